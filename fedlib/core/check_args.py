"""What `engine.run` is told, beside what is to be run: types and ranges."""

from __future__ import annotations

import math
import os
from numbers import Real
from pathlib import Path

import torch

from .ranges import SEEDS, check_switch, is_whole


def plain(v):
    """A whole number as an int, such as one of numpy's; anything else as it is."""
    return int(v) if is_whole(v) else v


def check_told(seed, checkpoint_every, progress, upto, on_round, **switches):
    """ValueError for a value of the wrong type, or outside its range."""
    if not is_whole(seed) or not 0 <= seed <= SEEDS:
        raise ValueError(
            f"seed = {seed!r}: give a whole number from 0 to {SEEDS} (2^63 - 1)"
        )
    seconds = isinstance(checkpoint_every, Real)
    seconds = seconds and not isinstance(checkpoint_every, bool)
    if not seconds or math.isnan(checkpoint_every) or checkpoint_every < 0:
        raise ValueError(
            f"checkpoint_every = {checkpoint_every!r}: give seconds, 0 or more (0: "
            "after every round)"
        )
    if not (progress is None or isinstance(progress, bool)):
        raise ValueError(
            f"progress = {progress!r}: give True, False, or None (a bar on a terminal)"
        )
    if not (upto is None or (is_whole(upto) and upto >= 0)):
        raise ValueError(
            f"upto = {upto!r}: give the round to stop before, a whole number >= 0, or "
            "None"
        )
    if not (on_round is None or callable(on_round)):
        raise ValueError(
            f"on_round = {on_round!r}: give a function f(t, record), or None"
        )
    for name, v in switches.items():
        check_switch(name, v)


def checked_device(device):
    """A torch.device; None: a GPU where there is one. ValueError for one that torch
    does not know, or does not find here."""
    there = torch.cuda.is_available()
    if device is None:
        return torch.device("cuda" if there else "cpu")
    try:
        if not isinstance(device, (str, torch.device)):
            raise TypeError(f"a device is no {type(device).__name__}")
        found = torch.device(device)
    except (RuntimeError, TypeError) as e:
        why = str(e).splitlines()[0]
        raise ValueError(f"device = {device!r}: give 'cpu' or 'cuda' ({why})") from e
    if found.type == "cuda" and not there:
        raise ValueError(
            f"device = {device!r}: torch {torch.__version__} finds no GPU here; give "
            "'cpu', or None"
        )
    return found


def checked_folder(folder):
    """A Path, or None; ValueError where no folder can be there."""
    if folder is None:
        return None
    named = isinstance(folder, (str, os.PathLike)) and os.fspath(folder)
    if not named or "\0" in str(folder):
        raise ValueError(f"folder = {folder!r}: give the path of a folder, or None")
    path = Path(folder)
    there = next((p for p in (path, *path.parents) if p.exists()), path)
    if there.exists() and not there.is_dir():
        raise ValueError(
            f"folder = {str(folder)!r}: {there} is a file; give each run a folder of "
            "its own"
        )
    if not (path / "done").exists() and not os.access(there, os.W_OK):
        raise ValueError(
            f"folder = {str(folder)!r}: {there} cannot be written to; give another"
        )
    return path
