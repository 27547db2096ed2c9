"""A task: a network, and data divided among clients.

What one client sees of it in one round is a shard. Letters: C clients, M cohort, N
samples, T local steps, B batch, K classes, D feature width.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from numpy.typing import ArrayLike
from torch import Tensor

from . import shards
from .errors import refuse_if, warn
from .pool import Groups, Pool, check_cut, check_task, cut_rows, laid_out, named, owned
from .shards import NEIGHBOURS
from .tree import subset, tmap, without

if TYPE_CHECKING:
    from pandas import DataFrame

SPLITS = ("train", "val", "test")
PARTS = 0.8, 0.1, 0.1  # shares of them
COMPARED, NEAR = 2000, 5  # consistency: so many test rows, so many neighbours of each


class Loss:
    """L(w, batch): the mean loss over the batch's rows that count. rest: the other part
    of the model, which stays, where w is a part, as the head. gradient(w, batch) and
    descend(w, shard, ...): see `nets.closed`; None where there is no closed form."""

    gradient = descend = None

    def __init__(self, task, rest=None):
        self.task, self.rest, network = task, rest or {}, task.network
        if getattr(network, "dense", None) and not network.splits(self.rest):
            self.gradient = partial(network.gradient, rest=self.rest)
            self.descend = partial(network.descend, rest=self.rest)

    def __call__(self, w, b):
        w = self.rest | w if self.rest else w
        if b.m is None and len(b.y) and not hasattr(self.task.network, "each"):
            return F.cross_entropy(self.task.logits(w, b.x, b), b.y)
        return b.avg(self.task.each(w, b))

    def beside(self, rest):
        """The loss of a part of the model; `rest`, the other part, stays as it is."""
        return Loss(self.task, rest)


class Model:
    """x -> logits [B, K] with weights w, which it shows: scoring runs many together."""

    def __init__(self, task, w):
        self.task, self.w = task, w

    def __call__(self, x):
        return self.task.logits(self.w, x)


class Fitted(Model):
    """A model whose weights, fit(), are made when they are asked for, and not kept."""

    def __init__(self, task, fit):
        self.task, self.fit = task, fit

    w = property(lambda self: self.fit())


@dataclass(frozen=True, eq=False)
class Task:
    """Network, flat data [N, ...] and, per client, the rows of its splits. Immutable.

    train, val, test: tuples of C row lists; a test row may serve several clients,
    no other row may. guests: (train, val, test) of clients that never take part: an
    unseen client, or a held-out domain without training rows. kind: own, real,
    synthetic or stand-in, see Pool. a [N]: the group of each row by a sensitive
    attribute, which `groups` describes."""

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
    kind: str = "own"
    owners: tuple[str, ...] = ()  # names of the clients, where they have names
    classes: tuple[str, ...] = ()  # names of the classes, where they have names

    def __post_init__(self):
        check_task(self)
        from ..nets import fitted

        for name, value in fitted(self).items():
            object.__setattr__(self, name, value)

    # ------------------------------------------------------------ making one
    @classmethod
    def from_rows(
        cls,
        name: str,
        network: Any,
        pool: Pool,
        rows: Sequence[Tensor],
        split: int = 0,
        parts: Sequence[float] = PARTS,
        shared: bool = False,
        guests: Sequence[Tensor] = (),
        head: str | Sequence[str] | None = None,
        **more: Any,
    ) -> Task:
        """Divide each client's rows (a list of C row tensors of `pool`) into parts, by
        one permutation per client, keyed by (split, client).

        parts   shares of train, val, test; where the pool has an official test list,
                those rows are the test rows, and train and val share the rest
        shared  a client is tested on all rows of that list whose label it trains on
        guests  row lists of clients that never take part, tested on all their rows
        head    of a torch.nn.Module, the submodule that methods keep personal
        more    fields of Task, as batch"""
        from ..nets import Module

        network = network if head is None else Module(network, head)
        split = check_cut(parts, split)
        held, C = () if pool.test is None else pool.test, len(rows)
        need = f"task {name!r}: shared test rows need a test list; hold rows out first"
        refuse_if(shared and not len(held), need)
        cut = [cut_rows(r, c, split, parts, pool.test) for c, r in enumerate(rows)]
        train, val, test = zip(*cut) if cut else ((), (), ())
        if shared:
            test = [r[:0] for r in test]
        # The data are laid out by split and client: a client's rows are one slice.
        common = [held] if shared else []
        order, at = laid_out([*train, *val, *test, *common, *guests], name)
        train, val, test = (at[i * C : (i + 1) * C] for i in range(3))
        y = pool.y[order]
        if shared:
            test = tuple(at[3 * C][torch.isin(y[at[3 * C]], y[r])] for r in train)
        none = torch.zeros(0, dtype=torch.long)
        away = tuple((none, none, r) for r in at[len(at) - len(guests) :])
        known = {"kind": pool.kind, "groups": pool.groups, "guests": away}
        known["a"] = None if pool.a is None else pool.a[order]
        known["owners"] = tuple(pool.owners) if len(pool.owners) == C else ()
        known["classes"] = tuple(pool.classes) if len(pool.classes) == pool.K else ()
        data = pool.x[order], y, train, val, test, pool.K
        return cls(f"{name}/split{split}", network, *data, **(known | more))

    @classmethod
    def from_arrays(
        cls,
        x: ArrayLike | Tensor,
        y: ArrayLike | Tensor | Sequence[Hashable],
        client_id: ArrayLike | Tensor | Sequence[Hashable],
        network: Any = None,
        *,
        a: ArrayLike | Tensor | Sequence[Hashable] | None = None,
        name: str = "arrays",
        **how: Any,
    ) -> Task:
        """Your own data: rows x [N, ...], their labels and clients, as lists, numpy
        arrays, torch tensors or pandas objects. Rows belong together by position.

            Task.from_arrays(x, y, client_id, network=torch.nn.Linear(5, 3))

        x          [N, D], or images [N, channels, height, width] in [0, 1]
        y          [N], whole numbers 0 .. K-1, or words in natural order (2 before 10)
        client_id  [N], any values; clients are numbered in natural order
        network    one of `nets`, or a torch.nn.Module that maps x to logits; default
                   softmax regression for vectors, a small CNN for images
        split      the seed of the cut into parts, shares of train, val and test
        a          [N], a sensitive attribute, any values
        positive   the classes that are good for a person, by default the second
        classes    all classes in order, where y does not show them, or their names
        how        these, head, and fields of Task, as batch

        ValueError for what would give wrong numbers, DataWarning for what looks wrong
        (`userdata.REFUSED`, `DOUBTFUL`)."""
        from . import userdata  # here: it loads pandas

        given = userdata.of_arrays(x, y, client_id, a, network is not None)
        return cls._dealt(given, name, network, **how)

    @classmethod
    def from_frame(
        cls,
        df: DataFrame,
        *,
        label: Hashable,
        client: Hashable,
        sensitive: Hashable | None = None,
        features: Sequence[Hashable] | None = None,
        standardise: bool = True,
        name: str = "frame",
        network: Any = None,
        **how: Any,
    ) -> Task:
        """A pandas DataFrame, one row per sample.

            Task.from_frame(df, label="returned", client="hospital", sensitive="sex")

        label, client, sensitive    names of columns
        features     the inputs, by default all columns but label and client
        standardise  numbers, but not columns of 0 and 1, become (v - mean) / deviation,
                     of all clients' training rows together; in a federation each
                     client would send three sums per column, once
        how          as in from_arrays

        Words of two values become one column, 1 for the second in natural order; other
        words a one-hot block; the sensitive column the group's number 0, 1, ..., as it
        is. The list of words is taken from all rows. x is float32.

        Errors, which name the column, as in from_arrays; TypeError for no DataFrame."""
        from . import userdata  # here: it loads pandas

        columns = label, client, sensitive, features
        given = userdata.of_frame(df, *columns, standardise, network is not None)
        return cls._dealt(given, name, network, **how)

    @classmethod
    def from_dataset(
        cls, ds, *, client, label=None, sensitive=None, features=None, **how: Any
    ) -> Task:
        """A map-style torch Dataset of pairs (x, y) or of dicts, or a Hugging Face
        Dataset. All items are read once, into memory.

            Task.from_dataset(ds, client=lambda i, item: item["hospital"])

        label     a key or column, or a place in the tuple; default "label", or 1
        features  the same, of the inputs; default all that play no other part, or 0
        client, sensitive    a key or column, one value per item, or a function of (row
                  number, item)
        how       as in from_frame; classes also come from the data set

        Pictures of PIL and uint8 arrays become [channels, height, width] in [0, 1], see
        `items.picture`; single numbers and words a table, see from_frame, which
        standardises it. x is float32. Errors as in from_arrays."""
        from .items import read  # here: it loads pandas

        return cls.from_frame(**read(ds, client, label, sensitive, features) | how)

    @classmethod
    def _dealt(
        cls, g, name, network, split=0, parts=PARTS, positive=None, classes=None, **of
    ):
        """The task of what a door was given, g."""
        from ..nets import CNN, Linear
        from . import userdata

        split, g.parts = check_cut(parts, split), parts
        g.positive, g.classes = positive, classes
        pool = named(userdata.pool_of(g, name, split))
        if network is None:
            images = pool.x.dim() == 4
            pool = pool if images else pool._replace(x=pool.x.flatten(1))
            network = (CNN if images else Linear)(pool.x.shape[1], pool.K)
        rows = owned(pool)
        g.task = cls.from_rows(pool.name, network, pool, rows, split, parts, **of)
        for words in userdata.found(userdata.DOUBTFUL, g):
            warn(words)
        return g.task

    @cached_property
    def shapes(self):
        """{name: shape} of the network's tensors."""
        return {k: v.shape for k, v in self.network.init(0).items()}

    def to(self, device):
        """The task on a device; row lists stay on the CPU, where plans are drawn."""
        x, a = self.x.to(device), None if self.a is None else self.a.to(device)
        return self if x is self.x else replace(self, x=x, y=self.y.to(device), a=a)

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
        check = getattr(self.network, "check_features", None)  # a user's may have none
        if check:
            check("Task.feat")
        return self.network.feat(w, x, b)

    def logits(self, w, x, b=None):
        """[B, K]; b: the batch in training (batch statistics, dropout), else None."""
        return self.network.out(w, self.network.feat(w, x, b))

    def net(self, w):
        """The model with weights w: x -> logits [B, K]."""
        return Model(self, w)

    def each(self, w, b):
        """Loss of every row of a batch [B]."""
        if hasattr(self.network, "each"):
            return self.network.each(w, b)
        return F.cross_entropy(self.logits(w, b.x, b), b.y, reduction="none")

    def split(self, w):
        """Body and head of a model w {name: tensor}: two trees."""
        return without(w, self.head), subset(w, self.head)

    def refresh(self, w, b):
        """The buffers after a batch, as a forward pass in training mode leaves them."""
        stats = {}
        with torch.no_grad():
            self.network.feat(tmap(torch.Tensor.detach, w), b.x, b, stats)
        return stats

    # ------------------------------------------------------------ rows and neighbours
    def rows_of(self, c, split):
        """The rows [n] of client c, negative for a guest, in a split."""
        own = (self.train[c], self.val[c], self.test[c]) if c >= 0 else None
        train, val, test = own or self.guests[-1 - c]
        if split == NEIGHBOURS:
            known = self.neighbours["rows"] if self.groups else test[:0]
            return test[torch.isin(test, known)]
        return {"train": train, "val": val, "test": test}[split]

    @cached_property
    def compared(self):
        """Who is compared by EO and DP, in words: sentences; [] without groups."""
        of = self.y, self.a, self.test, self.classes or [*map(str, range(self.K))]
        return [*self.groups.told(*of)] if self.groups else []

    @cached_property
    def neighbours(self):
        """Up to COMPARED test rows, drawn once, and the NEAR nearest others among them:
        {"rows": [n], "near": [N, NEAR]}, for consistency (Zemel et al., ICML 2013)."""
        rows = torch.cat(self.test).unique()
        g = torch.Generator().manual_seed(0)
        rows = rows[torch.randperm(len(rows), generator=g)[:COMPARED]].sort().values
        x, k = self.x[rows.to(self.x.device)].flatten(1), min(NEAR, len(rows) - 1)
        d = torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist")
        nearest = d.fill_diagonal_(math.inf).topk(k, largest=False).indices.cpu()
        near = torch.zeros(len(self.x), k, dtype=torch.long)
        near[rows] = rows[nearest]
        return {"rows": rows, "near": near.to(self.x.device)}

    def shards(self, seed, t, R, ids, plans):
        """[M shards] of the clients ids [M]: functions of seed, t, client and plan."""
        return list(shards.shards(self, seed, t, R, ids, plans))

    @cached_property
    def cache(self):
        """Batches that are the same in every round."""
        return {}


def row_counts(task):
    """{split: rows of each client}; of guests, if there are, only splits with rows."""
    out = {s: [len(r) for r in getattr(task, s)] for s in ("train", "val", "test")}
    for i, name in ((2, "guest"), (1, "guest_val"), (0, "guest_train")):
        counts = [len(g[i]) for g in task.guests]
        if name == "guest" or any(counts):
            out[name] = counts
    return out
