"""What the code of a method does not say by itself: whom it favours, in a phrase, and
the settings at which it is another method. The book's map of methods prints both, and
tests/oracles/test_limits.py computes every limit.

A method that is not named here, such as one of another package, has neither.
"""

import tomllib
from pathlib import Path
from typing import NamedTuple


class Limit(NamedTuple):
    """`method` with the settings `at` computes what the method `gives` computes."""

    method: str
    gives: str
    at: dict = {}
    words: str = ""  # for readers; "": the settings as they stand
    both: dict = {}  # settings that the two share
    unlike: dict = {}  # with these it differs
    rounds: int = 4  # for so long
    # the models compared: what this one serves, and what the other one does
    views: tuple | None = None  # None: the models that the servers send

    @property
    def said(self):
        """The settings for readers, as "mu = 0"."""
        return self.words or ", ".join(f"{k} = {v}" for k, v in self.at.items())


TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
LIMITS = [Limit(m, **x) for m, limits in TABLE["limits"].items() for x in limits]
FAVOURS = {m: whom for whom, of in TABLE["favoured"].items() for m in of.split()}
