"""What a client makes of one message: the method's own functions, called as
fedlib.core.engine calls them. No state here.
"""

from __future__ import annotations

import inspect

import torch

from ..core import clients, scoring
from ..core.method import Method, keeps_state
from ..core.tree import pick, stack, tmap

KINDS = ("client", "receive", "local", "ask", "score")
SCORED = ("test", "val")
ABOUT = {  # what travels beside a tree, with "code" and "federation" (see Site)
    "t": -1,  # the round; -1: before round 0
    "on": 0,
    "done": 0,  # steps of the client's state (see client)
    "kept": False,  # the download is one that this round has brought already
    "question": "",  # of "ask": its name
    "moment": "",  # of "score": "pre", "post" or "own"
    "views": "",  # of "score": names with commas between, "": all
    "most": 0,  # of "masked": rows of the largest client, 0: all count alike
    "receives": False,  # of "score": is the download received first?
}


def act(method, c, fed, kind, about, down, mine, quick=False):
    """Client c's turn -> (what it keeps, its answer), both trees.

    method: on a task that has the rows of client c. kind: one of KINDS. about: see
    ABOUT. down: what it was sent. mine: what it keeps. quick: one batch of every plan,
    where only names, shapes and types of the answer count.
    """
    run = clients.Clients(
        method, method.task, fed.seed, about["t"], fed.rounds, "loop", None
    )
    if quick:
        run.plans = {k: p._replace(steps=1) for k, p in run.plans.items()}
    shards = run.shards(torch.tensor([c]))
    shard = shards[1][0]
    if kind == "client":
        w = method.task.init(fed.seed)
        mine = method.client(w, shard) if keeps_state(method) else {}
        return tmap(lambda x: x.clone(memory_format=torch.contiguous_format), mine), {}
    if kind == "receive":
        return method.receive(down, tmap(torch.clone, mine), shard), {}
    if kind == "local":
        return method.local(down, tmap(torch.clone, mine), shard)
    if kind == "ask":
        return mine, question(method, about["question"])(down, mine, shard)
    receives = torch.tensor([True]) if about["receives"] else None
    judge = Method(method.task) if about["moment"] == "own" else method
    names = about["views"].split(",") if about["views"] else None
    got = scoring.score(
        judge, stack([down]), stack([mine]), run, shards, SCORED, names, receives
    )
    # no consistency: it compares rows of different clients
    out = {"acc": got["acc"]}
    if "cells" in got:
        out["cells"] = tmap(lambda n: n.round().int(), got["cells"])
    return mine, pick(out, 0)


def question(method, name):
    """The bound method f(tree, mine, shard) that a server may ask for; "inner.report"
    is one of the method inside.

    ValueError for anything else: hooks, private names, functions with other arguments.
    """
    inside, _, rest = name.partition(".")
    wraps = isinstance(getattr(method, "inner", None), Method)
    if rest and inside == "inner" and wraps:
        return question(method.inner, rest)
    f = inspect.getattr_static(type(method), name, None)
    takes = list(inspect.signature(f).parameters) if inspect.isfunction(f) else []
    asks = len(takes) == 4 and takes[2:] == ["mine", "shard"]
    if hasattr(Method, name) or name.startswith("_") or not asks:
        raise ValueError(
            f"{name!r} is no question of {type(method).__name__}, so it is not answered"
        )
    return getattr(method, name)


def address(method, asked):
    """How a client finds a question, a bound method of the method or of one inside it:
    "report", "inner.report".
    """
    if asked.__self__ is method:
        return asked.__name__
    if not isinstance(getattr(method, "inner", None), Method):
        raise ValueError(
            f"{asked.__qualname__} is no question of {type(method).__name__}: clients "
            "could not find it"
        )
    return "inner." + address(method.inner, asked)
