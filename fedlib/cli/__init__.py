"""The command line, `python -m fedlib`.

main      the commands and their arguments
text      what a user types, as values, methods and tasks
report    what a run prints when it is over, and tables of text
"""
