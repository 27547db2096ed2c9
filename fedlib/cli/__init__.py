"""The command line, `python -m fedlib`."""
