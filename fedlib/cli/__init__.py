"""The command line, `python -m fedlib`.

main      the commands
program   a function as a program: its arguments, its exit status
text      what a user types, as values and tasks
"""
