"""The command line, `python -m fedlib`: `main` has the commands, `program` makes
programs of functions, `text` reads what a user types as values and tasks."""
