"""python -m fedlib, and the command fedlib: see fedlib.cli.main."""

from .cli.main import entry as main

if __name__ == "__main__":
    main()
