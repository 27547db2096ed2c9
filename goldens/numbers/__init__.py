"""What short runs of every unit gave: golden numbers, which say when an edit moved any.

toys      the tasks they run on
runs      the short runs of a unit
noted     fingerprints.json, and what differs from it
"""
