"""What a number may be, and errors that name the value, the place and the remedy."""

import difflib
import math
import reprlib
import sys
import warnings
from collections.abc import Iterable
from numbers import Integral, Real
from pathlib import Path

FEDLIB = str(Path(__file__).parents[1] / "_")[:-1]  # the folder, with its slash
LARGEST = 3.4e38  # of float32: what is beyond becomes infinite in a model
SEEDS = 2**63 - 1  # the largest seed of torch's generators
DRAWS = 2**32 - 1  # the largest seed of numpy's RandomState
COUNT = 10**9  # clients, rows, batches: nobody has more
MEMORY = 64e9  # bytes of one array or network that are not refused

_short = reprlib.Repr()
_short.maxstring = _short.maxother = _short.maxlong = 60


def short(v) -> str:
    """What to call a value in a message: its repr, not too long."""
    return _short.repr(v)


def among(v, known) -> bool:
    """Whether a value is one of these, and of its type: 1 is not True, and an array is
    none of them."""
    alike = lambda k: type(v) is type(k) or (isinstance(v, str) and isinstance(k, str))
    return any(alike(k) and v == k for k in known)


def listed(v) -> list | None:
    """The entries of a list, or of whatever else has one dimension; None for a text and
    for what has no entries."""
    flat = isinstance(v, Iterable) and getattr(v, "ndim", 1) == 1
    return list(v) if flat and not isinstance(v, (str, bytes)) else None


def is_whole(v) -> bool:
    """Whether this is a whole number, and no bool."""
    return isinstance(v, Integral) and not isinstance(v, bool)


def is_number(v) -> bool:
    """Whether this is a finite number, and no bool."""
    real = isinstance(v, Real) and not isinstance(v, bool)
    return real and abs(v) <= LARGEST  # nan is not


def check_whole(at: str, v, low: int = 0, high: int = COUNT, why: str = "") -> None:
    """ValueError unless v is a whole number from low to high; at: what it is called, as
    "glyphs: size"; why: what to add to the message."""
    if not is_whole(v) or not low <= v <= high:
        refuse(at, v, f"a whole number from {low} to {high}{why}")


def check_number(at: str, v, low=-math.inf, high=math.inf, why: str = "") -> None:
    """ValueError unless v is a finite number from low to high (infinite: no end)."""
    if not is_number(v) or not low <= v <= high:
        refuse(at, v, f"a number from {low} to {high}{why}")


def check_positive(at: str, v, why: str = "") -> None:
    """ValueError unless v is a finite number above 0."""
    if not is_number(v) or not v > 0:
        refuse(at, v, f"a number above 0{why}")


def check_switch(at: str, v) -> None:
    """ValueError unless v is True or False."""
    if not isinstance(v, bool):
        refuse(at, v, "True or False")


def check_bytes(at: str, need: float) -> None:
    """ValueError for what takes more bytes than any machine of ours has."""
    if need > MEMORY:
        sizes = f"{need / 1e9:,.0f} GB of memory, more than {MEMORY / 1e9:,.0f} GB"
        raise ValueError(f"{at} needs {sizes}: give fewer or smaller ones")


def refuse(at, v, what):
    raise ValueError(f"{at} = {short(v)}: give {what}")


def nearest(word, words):
    """'; did you mean X?' for an error message, or nothing."""
    small = {str(w).lower(): str(w) for w in words}
    close = difflib.get_close_matches(str(word).lower(), small, 1)
    return f"; did you mean {small[close[0]]!r}?" if close else ""


def known(table, what, name):
    """table[name], or a ValueError that says what there is."""
    if not isinstance(name, str) or name not in table:
        raise ValueError(
            f"unknown {what} {name!r}{nearest(name, table)} (known: {', '.join(table)})"
        )
    return table[name]


def refuse_if(wrong, message):
    """ValueError(message) where something is wrong."""
    if wrong:
        raise ValueError(message)


class DataWarning(UserWarning):
    """Data that can be trained on, and look wrong."""


def warn(message):
    """A DataWarning that names the caller's line: the first outside fedlib."""
    frame, level = sys._getframe(1), 2
    while frame.f_back and frame.f_code.co_filename.startswith(FEDLIB):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, DataWarning, stacklevel=level)


class ClientError(RuntimeError):
    """Something went wrong at one client; says which, in which round and stage."""

    def __init__(self, client, t, stage, why):
        super().__init__(f"client {client}, round {t}, {stage}: {why}")
        self.client, self.round, self.stage = client, t, stage


class Diverged(ClientError):
    """A client's model is not finite; `record` holds the rounds before."""

    def __init__(self, client, round, record):
        why = "the trained model is not finite; lower lr, or look at this client's rows"
        super().__init__(client, round, "local", why)
        self.record = record
