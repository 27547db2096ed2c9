"""FedAvg written for other packages, each with its own recommended classes; run by
benchmarks.rounds in a venv of its own.
"""
