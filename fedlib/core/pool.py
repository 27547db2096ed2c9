"""Samples before they are dealt to clients."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from .groups import Groups

KINDS = ("own", "real", "synthetic", "stand-in")


class Pool(NamedTuple):
    """name    what the samples are called in figures and tables
    x       [N, ...] float32; images are [N, channels, height, width] in [0, 1] unless a
            loader says otherwise
    y       [N] int64 class of each sample, 0 .. K-1
    K       number of classes
    kind    "real" (a published data set), "synthetic" (the papers' own generator),
            "stand-in" (where a paper's data need a download) or "own" (a user's);
            shown wherever a number made from it is shown
    owner   [N] int64, the natural client or domain of each sample, or None
    owners  names of the owners; () when owner is None
    test    rows of the official test list, ascending by owner, or None where the
            source has none
    a       [N] int64, the group of each sample by a sensitive attribute, or None
    groups  what these groups are, or None
    classes names of the classes, for models that read them; () where they have none
    """

    name: str
    x: Tensor
    y: Tensor
    K: int
    kind: str
    owner: Tensor | None = None
    owners: tuple[str, ...] = ()
    test: Tensor | None = None
    a: Tensor | None = None
    groups: Groups | None = None
    classes: tuple[str, ...] = ()
