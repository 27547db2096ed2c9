"""Side by side with the usual loop and with peers; see README.md in this folder."""
