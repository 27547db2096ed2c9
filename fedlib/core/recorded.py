"""Stages of a round, recorded once on a GPU and replayed in later rounds.

A GPU computes a step of small clients in microseconds, and Python takes longer to ask
for it. So all operations of a stage become one CUDA graph, over tensors that lie still:
models, rows of the batches, the round's number, written before each replay. A shape
that is met first runs by the code that is recorded when it is met again; so a run that
was stopped goes on to the same bits. Where the host waits for a number nothing can be
recorded: `Recorder.refused` says so, and the stage runs as ever. Batches are drawn by
Python, one client after another, and sent; while a round is quicker than that, it is
what a round takes.

In rounds whose clients differ, plans are padded to a number of steps that few others
exceed, and who has finished stands still.
Letters: C clients, M cohort, T local steps, B batch.
"""

from __future__ import annotations

import gc
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch.func import vmap
from torch.utils._python_dispatch import TorchDispatchMode

from .shards import SPLIT_OF, Shard, cut
from .tree import leaves, tmap

# how a stage is repeated: "graph", "eager" (the same without a graph), None: not at all
MODE = {"cuda": "graph", "cpu": None}
STAGES = ("local", "receive", "views")  # the others capture what changes
LONGEST = 4096  # steps: a graph is as long as they are many
FINER = 0.8  # plans are padded to the next of Tmax, FINER Tmax, FINER^2 Tmax, ..


class Recorder:
    """What a run has recorded, and the stages that cannot be: {stage: why}."""

    def __init__(self, mode):
        self.mode, self.kept, self.refused = mode, {}, {}
        self.inputs, self.pool = {}, None  # what recordings share: one runs at a time

    def __call__(self, run, f, shard, trees, stage, what=()):
        """f(*trees, shard) by replay, or None: let it run as ever. shard: of one
        client, or of all that are under vmap; what: f depends on, beside the stage."""
        if stage not in STAGES or stage in self.refused or min(shard.draws.who) < 0:
            return None
        try:
            draws = bounded(shard)
            who = len(draws.who) if shard.at is not None else draws.who
            shape = *draws.bounds.items(), *map(signature, trees)
            key = stage, what, who, run.precision, shape
            if key not in self.kept:
                self.kept[key] = Recording(self, run, f, shard, trees, stage)
            return self.kept[key](replace(shard, draws=draws), trees)
        except Exception as e:
            self.refused[stage] = f"{type(e).__name__}: {e}".splitlines()[0]
            return None

    def still(self, i, tree):
        """Tensors like the i-th of a stage's trees; what clients share is there once."""

        def like(x):
            one = len(x) > 1 and x.stride(0) == 0
            return x[:1].clone().expand_as(x) if one else x.clone()

        return self.inputs.setdefault((i, signature(tree)), tmap(like, tree))


def signature(tree):
    """Names, shapes and types, and what clients share."""
    if isinstance(tree, dict):
        return tuple((k, signature(v)) for k, v in tree.items())
    return tuple(tree.shape), tree.dtype, 0 in tree.stride()[:1]


def bounded(shard):
    """The draws of clients, padded so that those of other cohorts look alike."""
    draws, bounds = shard.draws, {}
    task, M = draws.task, len(draws.who)
    for name in (*draws.plans, *SPLIT_OF):
        plan = draws.plans.get(name)
        if plan and plan.poisson:
            raise ValueError(f"chance decides the lengths of plan {name!r}")
        if (key := ("cuts", plan, name)) not in task.cache:
            split = plan.split if plan else SPLIT_OF[name]
            n = [len(task.rows_of(c, split)) for c in range(task.C)]
            task.cache[key] = [cut(plan, k, task.batch)[1] if plan else [k] for k in n]
        cuts, T = task.cache[key], lambda c, cuts=task.cache[key]: len(cuts[c])
        up, here = max(map(T, range(task.C))), max(map(T, draws.who))
        if here > LONGEST:
            raise ValueError(f"plan {name!r} has {here} steps, more than {LONGEST}")
        if shard.at is not None and M < task.C and any(v != cuts[0] for v in cuts):
            while here <= int(FINER * up) < up:
                up = int(FINER * up)
            fit = sorted((T(c) for c in range(task.C) if T(c) <= up), reverse=True)
            bounds[name] = tuple(fit[:M]), max(n for v in cuts for n in v)
    return replace(draws, bounds=bounds, cache={}) if bounds else draws


class Still:
    """The draws of clients in tensors that lie still; else those of this round."""

    def __init__(self, draws, alone):
        self.now, self.key, self.cache = draws, draws.key, {}
        self.who = draws.who if alone else None  # of many: others in every round
        self.t = draws.key.new_zeros((), dtype=torch.float64)  # as exact as in Python

    def __getattr__(self, name):
        return getattr(self.now, name)

    def ready(self, *what):
        if what not in self.cache:
            tensors, more = self.now.ready(*what)
            self.cache[what] = tmap(torch.clone, tensors), more
        return self.cache[what]


class Recording:
    """A stage of one client, or of M, with everything that it reads lying still."""

    def __init__(self, recorder, run, f, shard, trees, stage):
        self.recorder, self.met, self.replay = recorder, False, None
        self.draws = draws = Still(shard.draws, shard.at is None)
        self.trees = [recorder.still(i, tree) for i, tree in enumerate(trees)]
        self.data = tmap(torch.clone, held(shard))

        def at_client(d, *trees):
            return f(*trees, Shard(draws, d["n"], d["cid"], d.get("at")))

        def once():
            with run.arithmetic(stage):
                many = "at" in self.data
                return (vmap(at_client) if many else at_client)(self.data, *self.trees)

        self.once = once

    def __call__(self, shard, trees):
        self.load(shard, trees)
        out = self.replay() if self.replay else self.begun()
        return tmap(torch.clone, out)

    def load(self, shard, trees):
        """Write this round's models, clients and batches."""
        self.draws.now, to, of = shard.draws, [self.data], [held(shard)]
        to, of = to + self.trees, of + list(trees)
        for what, (tensors, _) in self.draws.cache.items():
            to, of = [*to, tensors], [*of, shard.draws.ready(*what)[0]]
        to, of = ([x for t in trees for x in leaves(t)] for trees in (to, of))
        shared = [0 in x.stride()[:1] for x in to]
        one = lambda xs: [x[0] if s else x for x, s in zip(xs, shared)]
        torch._foreach_copy_(one(to), one(of))
        self.draws.t.fill_(shard.t)

    def begun(self):
        """What is met first runs by itself, and what is met again is recorded."""
        device, graph = self.draws.t.device, self.recorder.mode == "graph"
        if not self.met:
            self.once()  # libraries choose kernels; what a task keeps is made
            with no_waiting(device):
                out, self.met = self.once(), True
            return out
        if graph:
            self.replay = graph_of(self.once, device, self.recorder)
        return self.replay() if graph else self.once()


def held(shard):
    """What a shard knows of its clients, as a tree."""
    some = {} if shard.at is None else {"at": shard.at}
    return some | {"n": shard.n, "cid": shard.cid}


def graph_of(once, device, recorder):
    """once() as a function that replays it."""
    gc.collect()  # no graph of another run may be freed meanwhile
    side = torch.cuda.Stream(device)
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side), no_waiting(device):
        once()  # on this stream, too, libraries make their work space
    torch.cuda.synchronize(device)
    recorder.pool = recorder.pool or torch.cuda.graph_pool_handle()
    with torch.cuda.graph(g := torch.cuda.CUDAGraph(), recorder.pool, side):
        out = once()
    return lambda: g.replay() or out


class Reads(TorchDispatchMode):
    """An error where a tensor becomes a number of Python, or a length."""

    def __torch_dispatch__(self, f, types, args=(), kwargs=None):
        if f._schema.name in ("aten::_local_scalar_dense", "aten::nonzero"):
            raise RuntimeError("the host would wait for a number")
        return f(*args, **kwargs or {})


@contextmanager
def no_waiting(device):
    """An error where the host waits for the device: in a graph nobody does."""
    if device.type != "cuda":
        with Reads():
            yield
        return
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)
