"""Errors that name the value, the place and the remedy."""

from __future__ import annotations

import difflib
import sys
import warnings
from pathlib import Path

FEDLIB = str(Path(__file__).parents[1] / "_")[:-1]  # the folder, with its slash


def nearest(word, words):
    """'; did you mean X?' for an error message, or nothing."""
    small = {str(w).lower(): str(w) for w in words}
    close = difflib.get_close_matches(str(word).lower(), small, 1)
    return f"; did you mean {small[close[0]]!r}?" if close else ""


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
    """A client returned a model that is not finite.

    `record` holds the rounds before.
    """

    def __init__(self, client, round, record):
        super().__init__(
            client,
            round,
            "local",
            "the trained model is not finite; lower lr, or look at this client's rows",
        )
        self.record = record
