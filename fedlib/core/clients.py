"""Who takes part in a round, and how functions of one client run at many.

One client after another, or all at once under vmap: the same numbers.
Letters: C clients, M cohort, R rounds, t round.
"""

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from . import scoring
from .errors import ClientError, is_number, is_whole, listed, refuse, short
from .random import seed_of, tag
from .shards import mapped, stacked
from .tree import pick, sent, stack, tmap, unstack

FEW = 4  # clients: batching fewer saves nothing
LARGE = 2**20  # parameters of convolutions that fill a GPU by themselves
ALL_AT_ONCE = "(all at once; how='loop' says which)"


def cohort_of(method, task, seed, t, cohort):
    """The clients that train in round t [M]: a number of them, None for all, or what a
    function t -> ids says, which may be none."""
    if method.who == "all" or cohort is None:
        return torch.arange(task.C)
    if not callable(cohort):
        g = torch.Generator().manual_seed(seed_of(seed, t, tag("cohort")))
        return torch.randperm(task.C, generator=g)[:cohort].sort().values
    given = cohort(t)
    flat = getattr(given, "ndim", 0) == 1 or listed(given) is not None
    ids = torch.as_tensor(given).tolist() if flat else [None]
    if not all(map(is_whole, ids)) or len({*ids} & {*range(task.C)}) < len(ids):
        refuse(f"cohort({t})", given, f"client numbers below {task.C}, each once")
    return torch.tensor(ids, dtype=torch.long)


def size(C, P):
    """How many of C clients are online in a round at ratio P, for `cohort`: floor(C P),
    at least one. ValueError unless 0 < P <= 1."""
    if not (is_number(P) and 0 < P <= 1):
        raise ValueError(f"online = {short(P)}: give a ratio above 0 and up to 1")
    return max(1, int(C * P + 1e-9))


def stragglers(C, portion=0.5, every=5, exchanged=False):
    """A function of the round, for `cohort`: the last floor(C portion) clients, or the
    first if exchanged, take part in every `every`-th round only, first in round every -
    1; the others always. ValueError unless 0 <= portion < 1 and every >= 1."""
    if not 0 <= portion < 1 or every < 1:
        raise ValueError(f"portion {portion}, every {every}: give portion < 1 <= every")
    late = int(C * portion + 1e-9)
    always = torch.arange(late, C) if exchanged else torch.arange(C - late)
    return lambda t: torch.arange(C) if (t + 1) % every == 0 else always


def mode(task, device):
    """How clients are executed where nobody says. On a GPU "vmap" ("auto" for a user's
    module), but "loop" for large convolutions; on a processor "auto" where a network
    has its descent in closed form, else "loop": grouped convolutions are slow there."""
    if device.type == "cpu":
        return "auto" if getattr(task.network, "descend", None) else "loop"
    sizes = task.shapes.values()
    if any(len(s) > 2 for s in sizes) and sum(s.numel() for s in sizes) >= LARGE:
        return "loop"
    return "auto" if hasattr(task.network, "identity") else "vmap"


@dataclass
class Clients:
    """How functions of one client are executed in round t of R. how: "loop", one after
    another; "vmap", all at once; "auto": all at once, but for fewer than FEW clients,
    and for the stages in `single`, which cannot be batched: vmap refuses the function,
    or batches would be mostly padding (`shards.unequal`)."""

    method: Any
    task: Any
    seed: int
    t: int
    R: int | None
    how: str = "loop"
    single: set = field(default_factory=set)
    precision: str = "float32"
    recorder: Any = None  # what runs recorded stages; see `recorded`

    def __post_init__(self):
        self.R, self.plans = self.method.horizon(self.R), self.method.plans()
        self.made = {}

    def shards(self, ids):
        """(ids [M], the shard of each)."""
        return ids, self.task.shards(self.seed, self.t, self.R, ids, self.plans)

    def stacked(self, ids):
        """Their shards as one."""
        if (key := tuple(ids.tolist())) not in self.made:
            at, anyhow = (self.seed, self.t, self.R), self.how == "vmap"
            self.made[key] = stacked(self.task, *at, ids, self.plans, anyhow)
        return self.made[key]

    def each(self, f, trees, cohort, stage, what=()):
        """f(*rows, shard) at all clients; result [M, ...]. what: see `Recorder`."""
        ids, S = cohort
        alone = self.how == "auto" and (len(ids) < FEW or stage in self.single)
        if not (alone or self.how == "loop"):
            try:
                return self.at(f, trees, self.stacked(ids), ALL_AT_ONCE, stage, what)
            except ClientError:
                if self.how == "vmap":
                    raise
                self.single.add(stage)  # if it is a mistake, it is met again
        calls = zip(ids.tolist(), S, *[unstack(t, len(ids)) for t in trees])
        return stack([self.at(f, args, s, c, stage, what) for c, s, *args in calls])

    def keep(self, f, down, clients, cohort, stage):
        """mine, up = f(down, mine, shard) at every client -> up [M, ...]; `clients`
        [C, ...] change in place, in the loop one by one: C models are held once."""
        ids, S = cohort
        g = lambda *args: dict(zip(("mine", "up"), f(*args)))
        if self.how != "loop":
            there = sent(ids, self.task.x.device)
            out = self.each(g, (down, pick(clients, there)), cohort, stage)
            tmap(lambda x, y: x.index_copy_(0, there, y), clients, out["mine"])
            return out["up"]

        def one(c, d, s):
            row = pick(clients, c)  # f may return what it was given: a copy
            out = self.at(g, (d, tmap(torch.clone, row)), s, c, stage)
            tmap(torch.Tensor.copy_, row, out["mine"])
            return out["up"]

        return stack([*map(one, ids.tolist(), unstack(down, len(ids)), S)])

    def ask(self, question, tree, clients, cohort):
        """What clients answer to question(tree, mine, shard) [M, ...]."""
        f = lambda mine, shard: question(tree, mine, shard)
        there = sent(cohort[0], self.task.x.device)
        return self.each(f, (pick(clients, there),), cohort, "ask")

    def score(self, method, down, clients, cohort, splits, views=None, receives=None):
        """What clients get right, see `scoring.score`."""
        of = down, clients, self, cohort
        return scoring.score(method, *of, splits, views, receives)

    def present(self, ids):
        """Those of ids that are still in the round: here, all."""
        return ids

    def at(self, f, trees, shard, c, stage, what=()):
        """f(*trees, shard) at client c, or at many."""
        out = self.recorder and self.recorder(self, f, shard, trees, stage, what)
        return out or self.call(mapped, (f, shard, trees), c, stage)

    def call(self, f, args, c, stage):
        """f(*args); whatever it raises names the client, the round and the stage."""
        try:
            with self.arithmetic(stage):
                return f(*args)
        except Exception as e:
            raise ClientError(c, self.t, stage, f"{type(e).__name__}: {e}") from e

    @contextmanager
    def arithmetic(self, stage):
        """Products and convolutions on a GPU in float32, where it might take 10 bits of
        mantissa; it does so in local training at precision "tf32"."""
        parts = torch.backends.cudnn, torch.backends.cuda.matmul
        before = [part.allow_tf32 for part in parts]
        few = stage == "local" and self.precision == "tf32"
        try:
            for part in parts:
                part.allow_tf32 = few
            yield
        finally:
            for part, was in zip(parts, before):
                part.allow_tf32 = was
