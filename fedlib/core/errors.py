"""Errors that name the value, the place and the remedy."""

from __future__ import annotations

import difflib


def nearest(word, words):
    """'; did you mean X?' for an error message, or nothing."""
    close = difflib.get_close_matches(str(word), [str(w) for w in words], 1)
    return f"; did you mean {close[0]!r}?" if close else ""


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
