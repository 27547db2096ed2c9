"""A task: a network, and data divided among clients.

What one client sees of it in one round is a shard.

Letters: C clients, M cohort, N samples, T local steps, B batch, K classes,
D feature width.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from numpy.typing import ArrayLike
from torch import Tensor

from .groups import Groups, describe
from .pool import Pool
from .random import LazyKey, fold, seed_of, tag
from .tree import subset, tmap, without

SPLITS = ("train", "val", "test")
ALIKE, NEAR = 2000, 5  # consistency: so many test rows, so many neighbours of each
GATHER = 2**25  # bytes of a plan's rows that are fetched in one go


class Batch(NamedTuple):
    """Rows of one client. x [B, ...], y [B]; a [B] a sensitive attribute or None."""

    x: Tensor
    y: Tensor
    a: Tensor | None
    m: Tensor | None  # [B], 0 marks padding; None: every row counts
    row: Tensor  # [B] row numbers, to look up what was kept per sample
    key: Any  # the batch's own key; None: no randomness (evaluation)
    size: int  # nominal batch size

    def avg(self, v):
        """Mean over the rows that count; v [B, ...]."""
        if self.m is None:
            return v.mean(0) if len(v) else v.sum(0)
        return torch.einsum("b,b...->...", self.m, v) / self.m.sum().clamp(min=1)

    def part(self, k, n):
        """The k-th of n interleaved parts (interleaved,
        so that padding spreads evenly).
        """
        s = slice(k, None, n)
        cut = {
            f: None if v is None else v[s]
            for f, v in self._asdict().items()
            if f in ("x", "y", "a", "m", "row")
        }
        return self._replace(**cut)


class Plan(NamedTuple):
    """One way through a client's rows.

    A method names its plans; they are drawn outside vmap.
    """

    epochs: int = 1
    batch: int | None = None  # None: the task's
    last: str = "keep"  # or "drop": no incomplete last batch, unless it is the only one
    shuffle: bool = True
    split: str = "train"
    block: float = 1.0  # a random contiguous share of the rows
    steps: int | None = None  # instead of epochs: so many batches
    # each row joins a batch with probability batch / rows, on its own
    poisson: bool = False


WHOLE = {
    name: Plan(1, 10**9, "keep", False, split)
    for name, split in (
        ("all", "train"),
        ("val", "val"),
        ("test", "test"),
        ("alike", "alike"),
    )
}


def draw(rows, plan, seed, batch):
    """The batches of a plan: row numbers, one batch after another,
    and the length of each. A pure function.
    """
    if not len(rows):
        return rows, []
    size, n = min(plan.batch or batch, len(rows)), max(1, int(plan.block * len(rows)))
    g = (
        torch.Generator().manual_seed(seed)
        if plan.shuffle or plan.poisson or plan.block < 1
        else None
    )
    if plan.poisson:
        steps = plan.steps or plan.epochs * -(-len(rows) // size)
        take = [
            rows[torch.rand(len(rows), generator=g) < size / len(rows)]
            for _ in range(steps)
        ]
        # nobody joined: the batch is skipped
        return torch.cat(take), [len(r) for r in take if len(r)]
    out, lens, epochs = [], [], plan.epochs
    while (len(lens) < plan.steps) if plan.steps else epochs > 0:
        epochs -= 1
        r = rows[torch.randperm(len(rows), generator=g)] if plan.shuffle else rows
        if plan.block < 1:
            o = int(torch.randint(len(rows) - n + 1, (1,), generator=g))
            r = r[o : o + n]
        full, rest = divmod(n, size)
        keep = rest and not (plan.last == "drop" and full)
        lens += [size] * full + [rest] * bool(keep)
        out.append(r if keep else r[: n - rest])
    lens = lens[: plan.steps]
    return (out[0] if len(out) == 1 else torch.cat(out or [rows]))[: sum(lens)], lens


class Shard:
    """What ONE client holds in one round: iterating yields the batches of a plan
    ("train" unless `on` names another).

    n [] training rows; cid [] client number, negative for a guest; key [] the client's
    key of this round; t of R rounds.
    """

    def __init__(
        self, task, n, cid, key, t, R, batches, full, name="train", fetch=None
    ):
        self.task, self.n, self.cid, self.key, self.t, self.R = task, n, cid, key, t, R
        self._batches, self._full, self.name, self._fetch = batches, full, name, fetch

    @property
    def full(self):
        """No batch of this plan is padding only, for any client at hand."""
        return self._full(self.name)

    def on(self, name):
        """The same shard along another plan."""
        return Shard(
            self.task,
            self.n,
            self.cid,
            self.key,
            self.t,
            self.R,
            self._batches,
            self._full,
            name,
            self._fetch,
        )

    def __iter__(self):
        return self._batches(self.name, self.key)

    @property
    def in_pieces(self):
        """Can its rows be had many batches at a time?

        Not under vmap, nor where a method alters every batch.
        """
        return self._fetch is not None

    def pieces(self):
        """The rows, many batches at a time: x [n, ...],
        y [n] and the lengths of the batches in them.
        """
        for r, cut in self._fetch(self.name):
            yield self.task.x[r], self.task.y[r], cut

    def all(self, name="all"):
        """One batch with every row of a split: "all" (train), "val" or "test"."""
        return next(self._batches(name, None))


class Loss:
    """L(w, batch): the mean loss over the batch's rows that count.

    gradient(w, batch) and descend(w, shard, ...), see `nets.closed`, where the network
    has a closed form, else None.
    """

    def __init__(self, task):
        self.task = task
        self.gradient = getattr(task.network, "gradient", None)
        self.descend = getattr(task.network, "descend", None)

    def __call__(self, w, b):
        if b.m is None and len(b.y) and not hasattr(self.task.network, "each"):
            return F.cross_entropy(self.task.logits(w, b.x, b), b.y)
        return b.avg(self.task.each(w, b))


@dataclass(frozen=True, eq=False)
class Task:
    """Network, flat data [N, ...] and, per client, the rows of its splits.

    Immutable; `name` says what it is.

    train, val, test: tuples of C row lists; a test row may serve several clients,
    no other row may. guests: (train, val, test) of clients that never take part: an
    unseen client, or a held-out domain without training rows. kind: real, synthetic
    or stand-in. a [N]: the group of each row by a sensitive attribute, which `groups`
    describes.
    """

    name: str
    network: Any
    x: Tensor = field(repr=False)
    y: Tensor = field(repr=False)
    train: tuple[Tensor, ...] = field(repr=False)
    val: tuple[Tensor, ...] = field(repr=False)
    test: tuple[Tensor, ...] = field(repr=False)
    K: int = 2
    a: Tensor | None = field(default=None, repr=False)
    groups: Groups | None = field(default=None, repr=False)
    guests: tuple = field(default=(), repr=False)
    batch: int = 32
    kind: str = "real"
    owners: tuple[str, ...] = ()  # names of the clients, where they have names

    def __post_init__(self):
        check(self)

    # ------------------------------------------------------------ making one
    @classmethod
    def from_rows(
        cls,
        name: str,
        network: Any,
        pool: Pool,
        rows: Sequence[Tensor],
        split: int = 0,
        parts: Sequence[float] = (0.8, 0.1, 0.1),
        shared: bool = False,
        guests: Sequence[Tensor] = (),
        **more: Any,
    ) -> Task:
        """Divide each client's rows (a list of C row tensors of `pool`) into train,
        test and validation.

        One permutation per client, keyed by (split, client). parts = shares of train,
        val, test; where the pool comes with an official test list, those rows are
        the test rows and train and val share the rest. shared: every client is tested
        on all rows of that list whose label it trains on, so clients with a label in
        common have these test rows in common. guests: row lists of clients that never
        take part and are tested on all their rows.
        """
        if len(parts) != 3 or min(parts) < 0 or abs(sum(parts) - 1) > 1e-6:
            raise ValueError(
                f"parts = {parts}: give three shares (train, val, test) that sum to 1"
            )
        cut = {s: [] for s in SPLITS}
        official = getattr(pool, "test", None)
        for c, r in enumerate(rows):
            g = torch.Generator().manual_seed(seed_of(split, c, tag("split")))
            if official is None:
                r, n, share = (
                    r[torch.randperm(len(r), generator=g)],
                    len(r),
                    parts[0] + parts[2],
                )
                i, j = int(parts[0] * n + 1e-9), int(share * n + 1e-9)
                pieces = r[:i], r[i:j], r[j:]
            else:
                held = torch.isin(r, official)
                rest = r[~held]
                rest = rest[torch.randperm(len(rest), generator=g)]
                i = int(parts[0] / (parts[0] + parts[1]) * len(rest) + 1e-9)
                pieces = rest[:i], r[held], rest[i:]
            for s, piece in zip(("train", "test", "val"), pieces):
                cut[s].append(piece)
        common = []
        if shared:
            if official is None or not len(official):
                raise ValueError(
                    f"task {name!r}: shared test rows need a test list, {pool.name} "
                    "has none; hold rows out first"
                )
            common, cut["test"] = [official], [r[:0] for r in rows]
        # lay the data out by split and client, so that a client's rows are one slice,
        # not a gather
        order = [r for s in SPLITS for r in cut[s]] + common + list(guests)
        at = torch.arange(sum(map(len, order))).split([len(r) for r in order])
        C, order = (
            len(rows),
            torch.cat(order) if order else torch.zeros(0, dtype=torch.long),
        )
        if len(order) != len(order.unique()):
            raise ValueError(
                f"task {name!r}: a row is given to two clients, or twice to one; each "
                "row belongs to one client"
            )
        own = (
            {}
            if pool.owner is None or len(pool.owners) != C
            else {"owners": tuple(pool.owners)}
        )
        y, test = pool.y[order], at[2 * C : 3 * C]
        if shared:
            test = tuple(at[3 * C][torch.isin(y[at[3 * C]], y[r])] for r in at[:C])
        a, none = (
            None if pool.a is None else pool.a[order],
            torch.zeros(0, dtype=torch.long),
        )
        guests = tuple((none, none, r) for r in at[len(at) - len(guests) :])
        return cls(
            f"{name}/split{split}",
            network,
            pool.x[order],
            y,
            at[:C],
            at[C : 2 * C],
            test,
            K=pool.K,
            guests=guests,
            **({"kind": pool.kind, "a": a, "groups": pool.groups} | own | more),
        )

    @classmethod
    def from_arrays(
        cls,
        x: ArrayLike | Tensor,
        y: ArrayLike | Tensor,
        client_id: ArrayLike | Tensor | Sequence[Hashable],
        network: Any = None,
        split: int = 0,
        parts: Sequence[float] = (0.8, 0.1, 0.1),
        name: str = "arrays",
        a: ArrayLike | Tensor | None = None,
        positive: Sequence[int] = (1,),
        **more: Any,
    ) -> Task:
        """Your own data: x [N, ...], integer labels y [N], and whose row it is,
        client_id [N] (any hashable values).

        network: default softmax regression for vectors, a small convolutional network
        for [N, channels, height, width]. a [N]: to whom a row is compared, a sensitive
        attribute (any values); positive: the classes that are good for a person.
        """
        from ..nets import CNN, Linear

        x, y = torch.as_tensor(x), torch.as_tensor(y)
        x = x if x.is_floating_point() else x.float()
        ids = client_id.tolist() if hasattr(client_id, "tolist") else list(client_id)
        if not len(x) == len(y) == len(ids):
            raise ValueError(
                f"x has {len(x)} rows, y {len(y)}, client_id {len(ids)}: give one "
                "label and one client per row"
            )
        if y.is_floating_point() and not torch.equal(y, y.round()):
            raise ValueError("y holds fractions: labels must be integers 0 .. K-1")
        y, names = y.long(), sorted(set(ids), key=str)
        number = {c: i for i, c in enumerate(names)}
        owner = torch.tensor([number[c] for c in ids])
        K = int(y.max()) + 1 if len(y) else 0
        if network is None:
            network = (
                CNN(x.shape[1], K)
                if x.dim() == 4
                else Linear(math.prod(x.shape[1:]), K)
            )
            x = x if x.dim() == 4 else x.flatten(1)
        what = x.numpy().tobytes() + y.numpy().tobytes() + owner.numpy().tobytes()
        groups = None
        if a is not None:
            if len(a) != len(y):
                raise ValueError(
                    f"a has {len(a)} entries for {len(y)} rows: give the group "
                    "of every row"
                )
            a, groups = describe(x, a, positive)
            what += a.numpy().tobytes()
        digest = hashlib.sha256(what).hexdigest()[:8]
        pool = Pool(
            name, x, y, K, "real", owner, tuple(map(str, names)), None, a, groups
        )
        rows = [(owner == c).nonzero()[:, 0] for c in range(len(names))]
        return cls.from_rows(
            f"{name}-{digest}", network, pool, rows, split, parts, **more
        )

    @cached_property
    def shapes(self):
        """{name: shape} of the network's tensors."""
        return {k: v.shape for k, v in self.network.init(0).items()}

    def to(self, device):
        """The same task with its data on a device;
        row lists stay where plans are drawn, on the CPU.
        """
        device = torch.device(device)
        if device.type == self.x.device.type and device.index in (
            None,
            self.x.device.index,
        ):
            return self
        a = None if self.a is None else self.a.to(device)
        return replace(self, x=self.x.to(device), y=self.y.to(device), a=a)

    def double(self):
        """The same task in float64, for comparisons."""
        return replace(self, x=self.x.double())

    # ------------------------------------------------------------ the network
    C = property(lambda self: len(self.train))
    head = property(lambda self: self.network.head)
    layers = property(lambda self: self.network.layers)
    buffers = property(lambda self: self.network.buffers)

    @cached_property
    def loss(self):
        return Loss(self)

    def init(self, seed):
        """Initial weights, a tree: a function of the seed alone."""
        w = self.network.init(seed, self.x.dtype)
        return tmap(lambda v: v.to(self.x.device), w)

    def feat(self, w, x, b=None):
        """Features [B, D] before the head."""
        return self.network.feat(w, x, b)

    def logits(self, w, x, b=None):
        """[B, K]; b is the batch while training (batch statistics,
        dropout) and None in evaluation.
        """
        return self.network.out(w, self.network.feat(w, x, b))

    def net(self, w):
        """The model with weights w: x -> logits [B, K]."""
        return lambda x: self.logits(w, x)

    def each(self, w, b):
        """Loss of every row of a batch [B]."""
        own = getattr(self.network, "each", None)
        return (
            own(w, b)
            if own
            else F.cross_entropy(self.logits(w, b.x, b), b.y, reduction="none")
        )

    def split(self, w):
        """Body and head."""
        return without(w, self.head), subset(w, self.head)

    def refresh(self, w, b):
        """The buffers after one training batch, exactly as a forward pass in training
        mode leaves them.
        """
        stats = {}
        with torch.no_grad():
            self.network.feat(tmap(torch.Tensor.detach, w), b.x, b, stats)
        return stats

    # ---------------------- who is like whom, for consistency (Zemel et al., ICML 2013)
    @cached_property
    def alike(self):
        """Up to ALIKE test rows, drawn once, and the NEAR nearest others among them:
        {"rows": [n], "near": [N, NEAR]}.
        """
        rows = torch.cat(self.test).unique()
        rows = (
            rows[
                torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))[
                    :ALIKE
                ]
            ]
            .sort()
            .values
        )
        x, k = self.x[rows.to(self.x.device)].flatten(1), min(NEAR, len(rows) - 1)
        d = torch.cdist(
            x, x, compute_mode="donot_use_mm_for_euclid_dist"
        ).fill_diagonal_(math.inf)
        near = torch.zeros(len(self.x), k, dtype=torch.long)
        near[rows] = rows[d.topk(k, largest=False).indices.cpu()]
        return {"rows": rows, "near": near.to(self.x.device)}

    # ------------------- what a round draws, a pure function of (seed, t, client, plan)
    def _own(self, c, split):
        train, val, test = (
            self.guests[-1 - c] if c < 0 else (self.train[c], self.val[c], self.test[c])
        )
        if split == "alike":
            return (
                test[torch.isin(test, self.alike["rows"])] if self.groups else test[:0]
            )
        return {"train": train, "val": val, "test": test}[split]

    def _draw(self, seed, t, c, name, plans):
        plan = WHOLE.get(name) or plans[name]
        rows = self._own(c, plan.split)
        if name in WHOLE:
            return rows, [len(rows)]
        return draw(rows, plan, seed_of(seed, t, c, tag(name)), self.batch)

    def _size(self, name, plans):
        """Nominal batch size of a plan."""
        return (plans[name].batch if name in plans else None) or self.batch

    def _whole(self, c, name):
        """Every row of a client's split in one batch, kept:
        with from_rows' layout it is a view of the data.
        """
        if (c, name) not in self._kept:
            r = self._own(c, WHOLE[name].split)
            line = (
                len(r)
                and int(r[-1]) - int(r[0]) == len(r) - 1
                and torch.equal(r, torch.arange(int(r[0]), int(r[-1]) + 1))
            )
            i = slice(int(r[0]), int(r[-1]) + 1) if line else r.to(self.x.device)
            b = Batch(
                self.x[i],
                self.y[i],
                None if self.a is None else self.a[i],
                None,
                r.to(self.x.device),
                None,
                10**9,
            )
            if not line:
                return b
            self._kept[c, name] = b
        return self._kept[c, name]

    @cached_property
    def _kept(self):
        return {}

    def shards(self, seed, t, R, ids, plans):
        """One shard per client of ids [M], for execution one after another.

        Plans are drawn when they are walked.
        """
        key = fold(torch.tensor(seed, device=self.x.device), t, ids)
        n = torch.tensor(
            [len(self._own(c, "train")) for c in ids.tolist()],
            dtype=self.x.dtype,
            device=self.x.device,
        )

        def fetch(c):
            def groups(name):
                rows, lens = self._draw(seed, t, c, name, plans)
                size = self._size(name, plans)
                some = max(
                    1,
                    GATHER // max(1, self.x[0].numel() * self.x.element_size() * size),
                )
                # one gather for many batches
                cuts = [lens[i : i + some] for i in range(0, len(lens), some)]
                for r, cut in zip(rows.split([sum(g) for g in cuts]), cuts):
                    yield r.to(self.x.device), cut

            return groups

        def walk(c):
            def batches(name, key):
                if name in WHOLE:
                    yield self._whole(c, name)
                    return
                size, j, what = self._size(name, plans), 0, tag(name)
                for r, cut in fetch(c)(name):
                    a = [None] * len(cut) if self.a is None else self.a[r].split(cut)
                    for x, y, ai, ri in zip(
                        self.x[r].split(cut), self.y[r].split(cut), a, r.split(cut)
                    ):
                        yield Batch(
                            x,
                            y,
                            ai,
                            None,
                            ri,
                            None if key is None else LazyKey(key, what, j),
                            size,
                        )
                        j += 1

            return batches

        each = zip(n.unbind(), ids.to(n.device).unbind(), key.unbind(), ids.tolist())
        return [
            Shard(self, ni, cid, ki, t, R, walk(c), lambda name: True, fetch=fetch(c))
            for ni, cid, ki, c in each
        ]

    def stacked(self, seed, t, R, ids, plans):
        """The same shards for execution under vmap: (tree of index plans [M, T, B],
        function tree row -> shard).
        """
        dev, who = self.x.device, tuple(ids.tolist())
        data, full = {}, {}
        for name in (*plans, *WHOLE):
            # the whole of a split never changes
            again = (who, name) if name in WHOLE and len(who) == self.C else None
            got = self._kept.get(again) or self._padded(
                [self._draw(seed, t, c, name, plans) for c in who], who
            )
            if again:
                self._kept[again] = got
            data[name], full[name] = got
        key = fold(torch.tensor(seed, device=dev), t, ids.to(dev))
        n = torch.tensor(
            [len(self._own(c, "train")) for c in who], dtype=self.x.dtype, device=dev
        )

        def make(d):
            def batches(name, key):
                size = self._size(name, plans)
                idx, m = d["plans"][name]["i"], d["plans"][name]["m"]
                for j in range(len(idx)):
                    r = idx[j]
                    yield Batch(
                        self.x[r],
                        self.y[r],
                        None if self.a is None else self.a[r],
                        m[j],
                        r,
                        None if key is None else LazyKey(key, tag(name), j),
                        size,
                    )

            return Shard(
                self, d["n"], d["cid"], d["key"], t, R, batches, full.__getitem__
            )

        return {"plans": data, "n": n, "cid": ids.to(dev), "key": key}, make

    def _padded(self, drawn, who):
        """Plans (rows, batch lengths) of several clients as one:
        {"i": rows [M, T, B], "m": mask}, and is no batch empty?
        """
        T, B = (
            max((len(lens) for _, lens in drawn), default=0),
            max((n for _, lens in drawn for n in lens), default=0),
        )
        idx = torch.zeros(len(drawn), T, B, dtype=torch.long)
        m = torch.zeros(idx.shape, dtype=self.x.dtype)
        for i, (rows, lens) in enumerate(drawn):
            if len(lens) == T and set(lens) == {B}:
                idx[i], m[i] = rows.view(T, B), 1
                continue
            own = self._own(who[i], "train")
            # padding repeats a row of the client's own
            idx[i] = own[0] if len(own) else 0
            for j, r in enumerate(rows.split(lens) if lens else ()):
                idx[i, j, : len(r)], m[i, j, : len(r)] = r, 1
        return {"i": idx.to(self.x.device), "m": m.to(self.x.device)}, bool(
            (m.sum(2) > 0).all()
        )


def check(task):
    """Refuse a task that cannot be trained on, naming what is wrong and where."""
    x, y, at = task.x, task.y, f"task {task.name!r}"
    if len(x) != len(y):
        raise ValueError(
            f"{at}: x has {len(x)} rows and y {len(y)}; give one label per row"
        )
    if not x.is_floating_point() or y.is_floating_point():
        raise ValueError(
            f"{at}: x is {x.dtype} and y {y.dtype}; x must be floating point "
            "and y integer"
        )
    if not x.isfinite().all():
        bad = (~x.flatten(1).isfinite().all(1)).nonzero()[:, 0]
        raise ValueError(
            f"{at}: {len(bad)} rows of x hold NaN or infinity, the first is row "
            f"{int(bad[0])}; drop or impute them first"
        )
    if task.groups is not None:
        a, A = task.a, task.groups.A
        if a is None or len(a) != len(y):
            raise ValueError(
                f"{at}: groups are described and a has {None if a is None else len(a)} "
                f"entries for {len(y)} rows; give the group of every row"
            )
        if len(a) and not 0 <= int(a.min()) <= int(a.max()) < A:
            raise ValueError(
                f"{at}: groups run from {int(a.min())} to "
                f"{int(a.max())}; {task.groups.name!r} has the {A} groups "
                f"{', '.join(task.groups.names)}, numbered 0 to {A - 1}"
            )
        there = [g for i, g in enumerate(task.groups.names) if (a == i).any()]
        if len(a) and len(there) < max(2, A):
            raise ValueError(
                f"{at}: the sensitive attribute {task.groups.name!r} takes only the "
                f"value {', '.join(there)}; two groups or more must have rows, and all "
                f"that it names ({', '.join(task.groups.names)}), or leave it out"
            )
        good = task.groups.outcome(y)
        if len(y) and not 0 < int(good.sum()) < len(y):
            raise ValueError(
                f"{at}: {int(good.sum())} of {len(y)} rows have the positive outcome "
                f"{task.groups.positive}; choose the positive classes so that some "
                "labels lie inside and some outside"
            )
    if len(y) and not 0 <= int(y.min()) <= int(y.max()) < task.K:
        raise ValueError(
            f"{at}: labels run from {int(y.min())} to {int(y.max())}, K = {task.K} "
            f"allows 0 to {task.K - 1}"
        )
    if not task.C or not len(task.train) == len(task.val) == len(task.test):
        raise ValueError(
            f"{at}: {len(task.train)} train, {len(task.val)} val and {len(task.test)} "
            "test lists; give one of each per client, and at least one client"
        )
    for c in range(task.C):
        if not len(task.train[c]) or not len(task.test[c]):
            raise ValueError(
                f"{at}: client {c} has {len(task.train[c])} training and "
                f"{len(task.test[c])} test samples; drop it, merge it with another, or "
                "raise the partition's minimum size"
            )
    rows, tests = (
        torch.cat([r for s in splits for r in s])
        for splits in ((task.train, task.val), (task.test,))
    )
    lo, hi = int(min(rows.min(), tests.min())), int(max(rows.max(), tests.max()))
    if not 0 <= lo <= hi < len(x):
        raise ValueError(
            f"{at}: row numbers run from {lo} to {hi}, the data has {len(x)} rows"
        )
    if len(rows) != len(rows.unique()):
        raise ValueError(
            f"{at}: a row is used twice; each training or validation row belongs to "
            "one client and one split"
        )
    if torch.isin(rows, tests).any():
        raise ValueError(
            f"{at}: row {int(rows[torch.isin(rows, tests)][0])} is used twice, "
            "for training or validation and for testing; only test rows may serve "
            "several clients"
        )
    who = torch.arange(task.C).repeat_interleave(
        torch.tensor([len(r) for r in task.test])
    )
    if len(torch.unique(who * len(x) + torch.cat(task.test))) < len(who):
        raise ValueError(f"{at}: a client's test rows hold a row twice")
    if task.batch < 1:
        raise ValueError(f"{at}: batch = {task.batch}; give a positive batch size")
