"""python -m fedlib, and the command fedlib: see fedlib.cli.main."""

from .cli.main import obey
from .cli.program import end


def main():
    end(obey)


if __name__ == "__main__":
    main()
