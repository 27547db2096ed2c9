"""Rounds of personal and fair methods: `rounds` for each method."""

from .cases import SMALL
from .rounds import METHODS, command

if __name__ == "__main__":
    command("methods", "benchmarks-methods.csv", SMALL, [*METHODS])
