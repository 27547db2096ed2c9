"""Who takes part in a round, and how functions of one client run at many.

One client after another, in threads, or all at once under vmap: the same numbers.
Letters: C clients, M cohort, R rounds, t round.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property, partial

import torch
from torch.func import vmap

from . import shards
from .errors import ClientError
from .random import seed_of, tag
from .ranges import short
from .tree import pick, stack, tmap, unstack

WHOLE = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
FEW = 4  # clients: batching fewer saves nothing
ALL_AT_ONCE = "(all at once; how='loop' says which)"


def cohort_of(method, task, seed, t, cohort):
    """The clients that train in round t [M], in order where they are drawn.

    cohort: a size, None for all, or a function t -> ids, which may be none.
    """
    if method.who == "all" or cohort is None:
        return torch.arange(task.C)
    if callable(cohort):
        return checked(cohort(t), t, task.C)
    g = torch.Generator().manual_seed(seed_of(seed, t, tag("cohort")))
    return torch.randperm(task.C, generator=g)[:cohort].sort().values


def checked(given, t, C):
    """The ids [M] that a user's function gave, or a ValueError."""
    try:
        ids = torch.as_tensor(given)
        ids = ids.long() if not ids.numel() else ids
        good = ids.ndim == 1 and ids.dtype in WHOLE and len(ids.unique()) == len(ids)
        good = good and not ((ids < 0) | (ids >= C)).any()
    except (TypeError, ValueError, RuntimeError):
        good = False  # no numbers at all
    if not good:
        raise ValueError(
            f"cohort({t}) = {short(given)}: give a list of different client numbers "
            f"from 0 to {C - 1}"
        )
    return ids.long()


def way(task, device, threads, precision):
    """How clients are executed where nobody says: "vmap" on a GPU ("auto" for a module
    that a user brings); on a processor "auto" where a network has its descent in closed
    form, else "loop".

    Measured by `benchmarks.rounds` and `benchmarks.methods`: products of a stack of
    small matrices are quicker than one after another, grouped convolutions are not.
    """
    if device.type != "cpu":  # a network that a user brings may know no vmap
        return "auto" if hasattr(task.network, "identity") else "vmap"
    closed = getattr(task.network, "descend", None)
    return "auto" if closed and threads == 1 and precision == "float32" else "loop"


class AtHand:
    """What the clients ids [M] hold in a round: their shards, one after another, and
    `stacked`, the same for vmap; made when they are asked for."""

    def __init__(self, run, ids):
        self.run, self.ids = run, ids

    def __iter__(self):
        run = self.run
        return shards.shards(run.task, run.seed, run.t, run.R, self.ids, run.plans)

    def __getitem__(self, i):
        return next(iter(AtHand(self.run, self.ids[i : i + 1])))

    def __len__(self):
        return len(self.ids)

    @cached_property
    def stacked(self):
        """[(tree of M shards, its row -> shard)], one per chunk."""
        run = self.run
        make = partial(run.task.stacked, run.seed, run.t, run.R)
        return [make(i, run.plans, run.how == "vmap") for i in run.cut(self.ids)]


class Clients:
    """How functions of one client are executed in one round.

    `each` maps a function over clients, `keep` also writes what they keep. how: "loop",
    one after another; "vmap", all at once; "auto": all at once, but for fewer than FEW
    clients, and for the stages in `single`. A stage that cannot be batched is added
    there: a function that vmap refuses, or clients so unequal that their batches would
    be mostly padding (`shards.unequal`).
    """

    def __init__(
        self,
        method,
        task,
        seed,
        t,
        R,
        how,
        chunk,
        threads=1,
        precision="float32",
        single=None,
    ):
        self.task, self.seed, self.t, self.R = task, seed, t, R
        self.how, self.chunk = how, chunk
        self.threads, self.precision = threads, precision
        self.single = set() if single is None else single
        self.plans = method.plans()

    def shards(self, ids):
        """The clients ids [M] and what each of them holds in this round."""
        return ids, AtHand(self, ids)

    def each(self, f, trees, shards, stage):
        """f(*rows, shard) for every client; trees and result [M, ...]."""
        ids, S = shards
        if self.how == "vmap":
            return self._at_once(f, trees, S, stage)
        if self.how == "loop" or len(ids) < FEW or stage in self.single:
            return self._one_by_one(f, trees, shards, stage)
        try:
            return self._at_once(f, trees, S, stage)
        except ClientError:
            self.single.add(stage)  # if it is a mistake, it is met again
            return self._one_by_one(f, trees, shards, stage)

    def keep(self, f, down, clients, shards, stage):
        """mine, up = f(down, mine, shard) at every client -> up [M, ...].

        Rows of `clients` [C, ...] change in place, in the loop one by one, so that C
        models are held once.
        """
        ids, S = shards
        if self.how != "loop":
            g = lambda *args: dict(zip(("mine", "up"), f(*args)))
            out = self.each(g, (down, pick(clients, ids)), shards, stage)
            write = lambda x, y: x.index_copy_(0, ids.to(x.device), y)
            tmap(write, clients, out["mine"])
            return out["up"]

        def one(c, d, s):
            row = pick(clients, c)
            mine = tmap(torch.clone, row)  # f may return what it was given
            new, up = self._call(f, (d, mine, s), c, stage)
            tmap(lambda x, y: x.copy_(y), row, new)
            return up

        return stack(self._map(one, zip(ids.tolist(), unstack(down, len(ids)), S)))

    def _one_by_one(self, f, trees, shards, stage):
        ids, S = shards
        args = zip(*[unstack(t, len(ids)) for t in trees], S)
        calls = zip(ids.tolist(), args)
        return stack(self._map(lambda c, a: self._call(f, a, c, stage), calls))

    def _at_once(self, f, trees, S, stage):
        out = []
        for k, (data, shard_of) in enumerate(S.stacked):
            rows = [tmap(lambda x, k=k: self.cut(x)[k], t) for t in trees]
            f_rows = vmap(lambda d, *ts, one=shard_of: f(*ts, one(d)))
            out.append(self._call(f_rows, [data, *rows], ALL_AT_ONCE, stage))
        return tmap(lambda *x: torch.cat(x) if len(x) > 1 else x[0], *out)

    def cut(self, x):
        """x [M, ...] in chunks of clients that are batched together."""
        return x.split(self.chunk or max(1, len(x)))

    def _map(self, f, calls):
        """[f(*args)] in order, here or in threads.

        No client writes where another reads, so the numbers are the same bits.
        """
        if self.threads == 1:
            return [f(*args) for args in calls]
        with ThreadPoolExecutor(self.threads) as pool:
            return list(pool.map(torch.no_grad()(lambda args: f(*args)), calls))

    def _call(self, f, args, c, stage):
        """f(*args); whatever it raises names the client, the round and the stage."""
        precision = self.precision if stage == "local" else "float32"
        try:
            with arithmetic(precision, self.task.x.device):
                return f(*args)
        except Exception as e:
            raise ClientError(c, self.t, stage, f"{type(e).__name__}: {e}") from e


@contextmanager
def arithmetic(precision, device):
    """Matrix products in this precision: float32, tf32 (10 bits of mantissa, on a GPU)
    or bf16 (7 bits; weights stay float32)."""
    if precision == "bf16":
        # no cache: weights change in place between two products
        with torch.autocast(device.type, torch.bfloat16, cache_enabled=False):
            yield
    elif device.type == "cuda":
        flags = torch.backends.cuda.matmul, torch.backends.cudnn
        before = [f.allow_tf32 for f in flags]
        for f in flags:
            f.allow_tf32 = precision == "tf32"
        try:
            yield
        finally:
            for f, b in zip(flags, before):
                f.allow_tf32 = b
    else:
        yield
