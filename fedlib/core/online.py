"""Who is online, for the argument `cohort` of `run`: a size, whose clients the engine
draws from (seed, round), the same for every method; or a function round -> clients."""

from __future__ import annotations

import torch

from .ranges import check_number, check_positive


def size(C, P):
    """The number of clients online in a round at online ratio P:
    floor(C P), at least one. ValueError unless 0 < P <= 1.
    """
    check_positive("online", P)
    check_number("online", P, high=1)
    return max(1, int(C * P + 1e-9))


def stragglers(C, portion=0.5, every=5, exchanged=False):
    """The last floor(C portion) clients, or the first if exchanged, take part in every
    `every`-th round only, first in round every - 1; the others always.

    Stragglers are known then, and whether a method tells them apart can be seen. It
    is a function of the round. ValueError unless 0 <= portion < 1 and every >= 1.
    """
    if not 0 <= portion < 1 or every < 1:
        said = f"portion = {portion}, every = {every}"
        raise ValueError(f"{said}: give a portion from 0 to below 1 and every >= 1")
    late = int(C * portion + 1e-9)
    always = torch.arange(late, C) if exchanged else torch.arange(C - late)
    return lambda t: torch.arange(C) if (t + 1) % every == 0 else always
