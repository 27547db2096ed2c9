"""Stages of a round, recorded on a GPU and replayed in later rounds.

Python takes longer to ask for a step of a small client than a GPU to compute it. So all
operations of a stage become one CUDA graph, over tensors that lie still: the models,
the rows of the batches, the round's number, written before each replay. What is met
first runs by the code that is recorded when it is met again, so that a run that was
stopped goes on to the same bits. Where the host waits for a number nothing can be
recorded: the stage runs as ever, and `refused` says why. Batches are still drawn by
Python. Where cohorts differ, plans are padded, and who has finished stands still.
"""

import gc
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .shards import EVERY_ROW, SPLIT_OF, Plan, cut, mapped
from .tree import leaves, tmap

# how a stage is repeated: "graph", "eager" (the same without a graph), None: not at all
MODE = {"cuda": "graph", "cpu": None}
STAGES = ("local", "receive", "views")  # the others read what changes, or run once
LONGEST = 4096  # steps: a graph is as long as they are many
FINER = 0.8  # plans are padded to the next of Tmax, FINER Tmax, FINER^2 Tmax, ..


class Recorder:
    """What a run has recorded, and which stages cannot be: {stage: why}."""

    def __init__(self, mode):
        self.mode, self.kept, self.given, self.refused = mode, {}, {}, {}
        self.pool = None  # memory that graphs share: one runs at a time

    def __call__(self, run, f, shard, trees, stage, what):
        """f(*trees, shard), or None: let it run as ever. shard: of one client, or of
        all that are under vmap; what: f depends on, beside the stage."""
        who = shard.draws.who
        if stage not in STAGES or stage in self.refused or min(who) < 0:
            return None
        try:
            draws = bounded(shard)
            given = {"held": shard.held, **dict(enumerate(trees))}
            shapes = repr(tmap(lambda x: (*x.shape, x.dtype), given))
            alone = who if shard.at is None else None
            key = stage, what, alone, repr(draws.bounds), shapes
            if key not in self.kept:
                # recordings of one form read the same tensors
                still = self.given.setdefault(shapes, tmap(torch.clone, given))
                self.kept[key] = Recording(self, run, f, shard, still, stage)
            return self.kept[key](draws, given)
        except Exception as e:
            self.refused[stage] = f"{type(e).__name__}: {e}".splitlines()[0]
            return None


def bounded(shard):
    """The draws of clients, padded so that those of other cohorts look alike."""
    draws, bounds = shard.draws, {}
    task, M = draws.task, len(draws.who)
    whole = {k: Plan(1, EVERY_ROW, split=s) for k, s in SPLIT_OF.items()}
    for name, plan in (draws.plans | whole).items():
        if (key := ("cuts", plan)) not in task.cache:
            n = [len(task.rows_of(c, plan.split)) for c in range(task.C)]
            cuts = [cut(plan, k, task.batch)[1] for k in n]
            widest = max((b for v in cuts for b in v), default=0)
            task.cache[key] = [*map(len, cuts)], widest, all(v == cuts[0] for v in cuts)
        steps, widest, alike = task.cache[key]
        up, here = max(steps), max(steps[c] for c in draws.who)
        if plan.poisson or here > LONGEST:
            raise ValueError(f"plan {name!r}: its lengths are chance, or {here} steps")
        if shard.at is not None and M < task.C and not alike:
            while here <= int(FINER * up) < up:
                up = int(FINER * up)
            most = sorted((T for T in steps if T <= up), reverse=True)[:M]
            bounds[name] = most, widest
    return replace(draws, bounds=bounds, cache={}) if bounds else draws


class Still:
    """Draws in tensors that lie still."""

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
    """A stage of one client, or of M, and all that it reads."""

    def __init__(self, recorder, run, f, shard, still, stage):
        self.recorder, self.still, self.replay, self.met = recorder, still, None, False
        self.draws = Still(shard.draws, shard.at is None)
        held, *trees = still.values()
        shard = replace(shard, draws=self.draws, **held)

        def once():
            with run.arithmetic(stage):
                return mapped(f, shard, trees)

        self.once = once

    def __call__(self, draws, given):
        self.draws.now, cache = draws, self.draws.cache
        to = {"": self.still} | {k: v[0] for k, v in cache.items()}
        of = {"": given} | {k: draws.ready(*k)[0] for k in cache}
        torch._foreach_copy_(leaves(to), leaves(of))
        self.draws.t.fill_(draws.t)
        if self.met and not self.replay:
            self.replay = graph(self) if self.recorder.mode == "graph" else self.once
        if not self.met:
            self.once()  # libraries choose kernels; what a task keeps is made
        with no_waiting(self.draws.t.device, not self.met):
            out = (self.replay or self.once)()
        self.met = True
        return tmap(torch.clone, out)


def graph(recording):
    """A function that replays what the recording does once."""
    gc.collect()  # no graph of another run may be freed meanwhile
    device, recorder = recording.draws.t.device, recording.recorder
    side = torch.cuda.Stream(device)
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side):
        recording.once()  # on this stream, too, libraries make their work space
    torch.cuda.synchronize(device)
    recorder.pool = recorder.pool or torch.cuda.graph_pool_handle()
    with torch.cuda.graph(g := torch.cuda.CUDAGraph(), recorder.pool, side):
        out = recording.once()
    return lambda: g.replay() or out


class Reads(TorchDispatchMode):
    """An error where a tensor becomes a number of Python, or a length."""

    def __torch_dispatch__(self, f, types, args=(), kwargs=None):
        if f._schema.name in ("aten::_local_scalar_dense", "aten::nonzero"):
            raise RuntimeError("the host would wait for a number")
        return f(*args, **kwargs or {})


@contextmanager
def no_waiting(device, looked_for):
    """An error where the host waits for the device: nobody does in a graph."""
    if not looked_for:
        yield
    elif device.type != "cuda":
        with Reads():
            yield
    else:
        torch.cuda.set_sync_debug_mode("error")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode("default")
