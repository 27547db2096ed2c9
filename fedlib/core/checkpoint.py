"""Checkpoints: the state of a run in one file, whole or not at all.

The checkpoint after the last round, before it is scored, stays as the file `state`:
from there a run goes on to more rounds, and its models are read from there.
"""

from __future__ import annotations

import hashlib
import io
import json
import pickle

import torch

from .check_state import check_sound
from .files import whole
from .schedule import check_extension
from .tree import leaves

SAME = (
    "method",
    "parameters",
    "task",
    "network",
    "n",
    "rounds",
    "seed",
    "cohort",
    "every",
    "precision",
    "init",
)  # entries of a record's meta by which two runs are one


def save(path, state, record):
    """Write a checkpoint; its first line is the checksum of the rest."""
    buf = io.BytesIO()
    torch.save({"state": state, "record": record.pack()}, buf)
    body = buf.getbuffer()
    checksum = hashlib.sha256(body).hexdigest().encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    whole(path, lambda f: f.writelines((checksum, b"\n", body)))


def restore(path, device, record, method=None):
    """(state, record) of a checkpoint.

    record: a new one of the run that is to go on. method: where given, the file may be
    of a run of fewer rounds.

    ValueError for a truncated or changed file, and for one of another run.
    """
    state, packed = read(path, device)
    rounds = record.meta["rounds"]
    try:
        got = record.unpack(packed)
        check_sound(got)
    except Exception as e:  # whatever nonsense in its place leads to
        raise damaged(path, f"the record in it cannot be read: {e!r:.90}") from e
    if method is not None and got.meta["rounds"] < rounds:
        check_extension(method, got.meta["rounds"], rounds)
        got.meta["rounds"] = rounds
    same_run(got, record, path)
    check_place(state, got, path)
    return state, got


def read(path, device):
    """(state, packed record) of a checkpoint; ValueError for a damaged file."""
    checksum, _, body = path.read_bytes().partition(b"\n")
    if hashlib.sha256(body).hexdigest().encode() != checksum:
        raise damaged(path, "its checksum does not fit")
    try:
        got = torch.load(io.BytesIO(body), map_location=device, weights_only=True)
        return got["state"], got["record"]
    except pickle.UnpicklingError as e:
        raise damaged(path, "it holds more than tensors and plain values") from e
    except Exception as e:  # whatever other bytes lead zip and torch to
        raise damaged(path, f"{type(e).__name__} while reading it") from e


def damaged(path, why):
    """The error for a checkpoint that cannot be read."""
    return ValueError(
        f"checkpoint {path} is damaged ({why}); delete it to start this run again"
    )


def check_place(state, record, path):
    """ValueError where a state is of no round of this run, or its rows of clients are
    not one for each."""
    rounds, C = record.meta["rounds"], record.meta["clients"]
    if not isinstance(state, dict) or not {"server", "t"} <= state.keys():
        raise damaged(path, "it has no server state and no round t")
    for who in ("server", "clients"):
        if not isinstance(state.get(who, {}), dict):
            raise damaged(path, f"the state of {who} is a {type(state[who]).__name__}")
    t = state["t"]
    if type(t) is not int or not 0 <= t <= rounds:
        raise damaged(path, f"t = {t!r} is no round from 0 to {rounds}")
    if record.rounds and record.rounds[-1] > t:
        raise damaged(path, f"t = {t}, and round {record.rounds[-1]} is scored already")
    for x in leaves(state.get("clients", {})):
        if not isinstance(x, torch.Tensor) or x.shape[:1] != (C,):
            found = list(x.shape) if isinstance(x, torch.Tensor) else repr(x)
            raise damaged(path, f"clients hold {found}, not a row for each of {C}")


def same_run(got, want, path):
    """The record `got`, or a ValueError where it is of another run than `want`."""
    for k in SAME:
        a, b = (json.dumps(r.meta.get(k), sort_keys=True) for r in (got, want))
        if a != b:
            raise ValueError(
                f"{path} belongs to another run: {k} is {a:.90} there, {b:.90} here; "
                "give each run its own folder"
            )
    # what is None here may be missing there
    got.meta = {k: want.meta[k] for k in SAME if k in want.meta} | got.meta
    return got
