"""Is what was read from a folder a record, and does a checkpoint fit the run that is to
go on from it?"""

from __future__ import annotations

import numpy as np

from .ranges import is_whole

# what every record knows about its run
META = {"method": str, "task": str, "clients": int, "rounds": int, "seed": int}
META |= {"n": dict, "seconds": (int, float), "bytes": dict}


def check_sound(record):
    """ValueError where what was read is no record: the rounds that were scored, and one
    number for each client at each of them."""
    for k, kind in META.items():
        if not isinstance(record.meta.get(k), kind):
            raise ValueError(f"its {k!r} is missing, or of another type")
    R, C = record.meta["rounds"], record.meta["clients"]
    where = record.meta.get("diverged", {"client": 0, "round": 0})
    if not isinstance(where, dict) or where.keys() != {"client", "round"}:
        raise ValueError(f"diverged = {where!r} names no client and round")
    at = list(record.rounds)
    if not all(map(is_whole, at)) or at != sorted({t for t in at if 0 <= t <= R}):
        raise ValueError(f"its scored rounds do not ascend from 0 to {R}")
    for part in ("views", "cells", "consistency"):
        for (moment, *_), v in getattr(record, part).items():
            rows = {np.shape(a)[:1] for a in v}
            if len(v) > len(at) or len(rows) > 1 or () in rows:
                raise ValueError(f"its {part} are not of {len(at)} scored rounds")
            if any(np.asarray(a).dtype.kind not in "fiub" for a in v):
                raise ValueError(f"its {part} are no numbers")
            if moment in ("pre", "post") and rows - {(C,)}:
                raise ValueError(f"its {part} are not of {C} clients")


def check_shapes(state, fresh, task, path):
    """ValueError where models or what clients keep have other shapes or types than
    here.

    fresh: the state before round 0, of one client [1, ...] each; of the server {} where
    it is not known.
    """
    shapes = {k: list(v) for k, v in task.shapes.items()}
    check_server(state["server"], fresh["server"], task, path)
    kept = state["server"].get("w", {})
    kept = kept if isinstance(kept, dict) else {}
    for name, shape in shapes.items():
        there = list(getattr(kept.get(name), "shape", shape))
        if shape not in (there, there[1:]):  # or one for each client
            raise other_shape(path, name, there, shape, task)
    if not isinstance(state.get("clients"), dict):
        raise ValueError(
            f"{path} is damaged (it has no state of clients); delete it to start this "
            "run again"
        )
    clients = dict(named(state["clients"]))
    here = dict(named(fresh["clients"]))
    for name in clients.keys() ^ here.keys():
        where = "there" if name in clients else "here"
        raise ValueError(
            f"{path}: clients keep {name!r} {where} alone; it was written by another "
            "version of this method: delete it to start this run again"
        )
    for name, x in clients.items():
        if x.shape[1:] != here[name].shape[1:]:
            there, shape = (list(v.shape[1:]) for v in (x, here[name]))
            raise other_shape(path, name, there, shape, task)
        check_type(path, name, x, here[name])


def check_server(held, fresh, task, path):
    """ValueError where the server's state lacks a tensor that it had before round 0, or
    has models of another shape or type."""
    there = dict(named(held))
    for name, x in named(fresh):
        if name.startswith("log."):
            continue
        if not isinstance(there.get(name), type(x)):
            raise ValueError(
                f"{path} is damaged (the server holds no {name!r} that makes sense); "
                "delete it to start this run again"
            )
        if name.partition(".")[2] in task.shapes:  # as w.fc.bias: of a model
            if there[name].shape != x.shape:
                shapes = list(there[name].shape), list(x.shape)
                raise other_shape(path, name, *shapes, task)
            check_type(path, name, there[name], x)


def check_type(path, name, there, here):
    """ValueError where two tensors are of two types."""
    if there.dtype != here.dtype:
        raise ValueError(
            f"{path}: {name} is {there.dtype} there, {here.dtype} here; delete it to "
            "start this run again"
        )


def other_shape(path, name, there, here, task):
    return ValueError(
        f"{path}: {name} is {there} there, {here} in task {task.name!r}; use the task "
        "that it was made on, or delete it to start this run again"
    )


def named(tree, at=""):
    """(name, tensor) of every leaf, as ("v.fc.bias", b)."""
    for k, v in tree.items():
        if isinstance(v, dict):
            yield from named(v, f"{at}{k}.")
        else:
            yield at + k, v


def check_same_scoring(fed, record, path):
    """ValueError where a run that goes on would score other things than before."""
    if not record.rounds:
        return
    scored = {split for moment, _, split in record.views if moment == "pre"}
    if scored != set(fed.splits):
        raise ValueError(
            f"{path} belongs to another run: it scores {', '.join(sorted(scored))}, "
            f"this one {', '.join(sorted(fed.splits))}; give the same splits"
        )
    moments = {moment for moment, *_ in record.views}
    sent = record.meta.get("tensors", {}).get("up", {})
    whole = all(f"w.{name}" in sent for name in fed.task.shapes)  # models as uploaded
    asked = {"guests": fed.guests, "own": fed.own and whole}
    for (name, now), moment in zip(asked.items(), ("guest", "own")):
        before = moment in moments
        if before != now:
            raise ValueError(
                f"{path} belongs to another run: {name} = {before} there, {now} here; "
                "give the same"
            )
