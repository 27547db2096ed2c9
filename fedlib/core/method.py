"""A method: a frozen dataclass of hyper-parameters, two pluggable pieces, and up to
seven small pure functions.

CLIENT functions see one client, SERVER functions see stacked rows [M, ...]. Letters:
M cohort, B batch, K classes, R rounds.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from math import inf
from operator import attrgetter
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from .errors import SEEDS, among, is_number, is_whole, refuse_if, short
from .local import Plain, sgd
from .shards import Plan, Shard, planned
from .task import Task
from .tree import Tree, View, broadcast, mean, rows, sub, subset, unrow, without


def hp(default, what, source="", values=None, grid=None, **more):
    """A hyper-parameter: its meaning, where its default comes from, what it may be, and
    the values searched.

    values: the range (low, high) of a number, else the choices; None: a number from 0
    on, a whole one up to 10^6, both values of a flag, anything else. absent: of one
    added to a method that has runs, the value that is left out of their names."""
    usual = {float: (0, inf), int: (0, 10**6), bool: (True, False)}
    kind = "range" if type(default) in (int, float) else "choices"
    known = {"what": what, "source": source, "grid": grid} | more
    known |= {"range": None, "choices": None, kind: values or usual.get(type(default))}
    return field(default=default, metadata=known)


class Card(NamedTuple):
    """A method's paper, by its key in references.bib, and what it does, in one line."""

    bibkey: str
    line: str
    status: str = "unofficial"  # unofficial: written from the paper


class Round(NamedTuple):
    """What the server knows beside its state. ids [M] the cohort; ask(question, tree)
    puts a question(tree, mine, shard) -> tree, a bound method of the Method, to it: the
    answers are stacked [M, ...]. One `ask` counts as one message down and one up."""

    t: int
    rounds: int | None  # None: the method does not plan ahead
    key: Any
    ask: Any
    ids: Any

    R = property(lambda self: planned(self.rounds))


@dataclass(frozen=True)
class Mean:
    """sum_i p_i g_i. A rule maps updates G [M, P], weights p [M], the model w and the
    task to one update [P]."""

    def __call__(self, G, p, w, task):
        return p @ G


@dataclass(frozen=True)
class Method:
    """What is common to all methods."""

    task: Task = field(default=None, repr=False, compare=False)
    lr: float = hp(0.1, "step size of the clients", "set by the task")
    epochs: int = hp(1, "passes over a client's rows per round", "the task")
    momentum: float = hp(0.0, "of the clients, in a round", "0: plain SGD", (0, 1))
    decay: float = hp(0.0, "weight decay of the clients", "0: none")
    batches: int = hp(0, "batches per round; 0: epochs", "set by the task")
    poisson: bool = hp(
        False,
        "each row joins a batch with probability batch / rows, as DP-SGD counts it",
        "set by the task",
    )
    last: str = hp("keep", "an incomplete last batch", "engine", ("keep", "drop"))
    shuffle: bool = hp(
        True, "new batches in every pass; False: the same for ever", "engine"
    )
    step: Any = hp(Plain(), "loss -> direction; as in pieces.steps", "piece")
    rule: Any = hp(Mean(), "updates, weights -> one; as in pieces.robust", "piece")

    card: ClassVar[Card | None] = None
    who: ClassVar[str] = "sample"  # who trains: the cohort, or "all" in every round
    download: ClassVar[str] = "cohort"  # who runs receive, or "all": the absent, too
    needs_val: ClassVar[bool] = False  # does a client measure itself on these rows?
    needs_groups: ClassVar[bool] = False  # of a sensitive attribute
    needs_features: ClassVar[bool] = False  # does it compare features [B, D]?
    needs_linear_head: ClassVar[bool] = False  # and compute with a last layer z W' + c?
    ruled: ClassVar[bool] = True  # does it average by its rule? Others refuse one
    plans_ahead: ClassVar[bool] = False  # does round t depend on R, as a falling lr?
    waits: ClassVar[str] = ""  # what keeps a stage from being recorded, see `recorded`
    post: ClassVar[tuple[str, ...]] = ()  # views also scored after training

    def horizon(self, rounds):
        """The number of rounds, where this method may look at it; else None."""
        return rounds if self.plans_ahead else None

    def __post_init__(self):
        name = type(self).__name__
        for f in fields(self):
            check_value(name, f, getattr(self, f.name))
        unused = not (self.ruled or self.rule == Mean())
        why = f"{name}.rule = {short(self.rule)}: {name} averages no updates by a rule"
        refuse_if(unused, f"{why}; leave it at Mean()")

    def plans(self) -> dict[str, Plan]:
        """The ways through a client's rows, by the names that `local` asks for."""
        return {"train": self.plan(self.epochs, steps=self.batches or None)}

    def plan(self, epochs, **more):
        """`epochs` passes as the task and method want them; more: fields of Plan."""
        plan = Plan(epochs, None, self.last, self.shuffle, poisson=self.poisson)
        return plan._replace(**more)

    # server
    def server(self, w: Tree, r: Round) -> Tree:
        """The server's state before round 0; r.ask reaches all clients."""
        return {"w": w}

    def send(self, server: Tree, ids: Tensor) -> Tree:
        """What the clients ids [M] download, leaves [M, ...]; an id < 0 is a guest."""
        return broadcast({"w": server["w"]}, ids)

    def aggregate(self, server: Tree, up: Tree, r: Round) -> Tree:
        """The server's next state; up [M, ...]; server["log"] is recorded."""
        raise NotImplementedError(f"{type(self).__name__} has no aggregate")

    # client
    def client(self, w: Tree, shard: Shard) -> Tree:
        """What a client keeps, before round 0 (a guest: at evaluation)."""
        return {}

    def receive(self, down: Tree, mine: Tree, shard: Shard) -> Tree:
        """What a client keeps after a download, whether it trains or not."""
        return mine

    def local(self, down: Tree, mine: Tree, shard: Shard) -> tuple[Tree, Tree]:
        """Local training -> (what the client keeps, what it uploads)."""
        raise NotImplementedError(f"{type(self).__name__} has no local training")

    def views(self, down: Tree, mine: Tree, shard: Shard) -> dict[str, View]:
        """{name: x -> logits [n, K]}: the models that can be scored on this client; a
        view works when it is called."""
        return {"global": self.task.net(down["w"])}

    # shared by methods
    loss = property(lambda self: self.task.loss)

    def fit(self, loss, w, shard, lr=None, pull=None):
        """Descend on loss(w, batch) from w by the method's step, momentum and decay."""
        return self.descend(self.step(loss), w, shard, lr, pull)

    def descend(self, step, w, shard, lr=None, pull=None):
        """The same along a direction step(w, batch)."""
        lr = self.lr if lr is None else lr
        return sgd(step, w, shard, lr, self.momentum, self.decay, pull)

    def combine(self, w, ws, p):
        """Models [M, ...] -> one: parameters by the rule, buffers by their p-mean."""
        if isinstance(self.rule, Mean):
            return mean(ws, p)
        parameters = without(w, self.task.buffers)
        g = self.rule(self.progress(w, ws), p, parameters, self.task)
        return self.move(w, ws, g, p)

    def move(self, w, ws, g, p):
        """w - g for a flat g [P] of the parameters; buffers: the clients' p-mean."""
        old, buffers = without(w, self.task.buffers), subset(ws, self.task.buffers)
        return w | sub(old, unrow(g, old)) | mean(buffers, p)

    def progress(self, w, ws):
        """g_i = w - w_i as one matrix [M, P], parameters only."""
        old, new = without(w, self.task.buffers), without(ws, self.task.buffers)
        return rows(sub(broadcast(old, next(iter(ws.values()))), new))

    def hits(self, logits, y):
        """1 for a row that is right [n]; a row without a finite score is wrong."""
        z = logits.max(-1)
        return ((z.indices == y) & (z.values.abs() < inf)).to(logits.dtype)

    def accuracy(self, f, b):
        """Share of a batch's rows that f: x -> logits gets right."""
        return b.avg(self.hits(f(b.x), b.y))

    def share_right(self, w, b):
        """The same of the model w."""
        return self.accuracy(self.task.net(w), b)


@dataclass(frozen=True)
class Wrap(Method):
    """A method around a method: everything passes through; override what changes. The
    server's state is {"in": the inner state, ...}."""

    inner: Any = hp(None, "the method inside", "piece")
    around = ""  # name of the method inside, where none is given

    def server(self, w, r):
        return {"in": self.inner.server(w, r)}

    def send(self, server, ids):
        return self.inner.send(server["in"], ids)

    def aggregate(self, server, up, r):
        inner = dict(self.inner.aggregate(server["in"], up, r))
        return server | {"log": inner.pop("log", {}), "in": inner}


for _name in ("plans", "client", "receive", "local", "views"):
    passed = lambda self, *args, _name=_name: getattr(self.inner, _name)(*args)
    passed.__name__ = _name
    setattr(Wrap, _name, passed)
PASSED = "who download post plans_ahead needs_val needs_groups needs_features"
for _name in (*PASSED.split(), "needs_linear_head"):
    setattr(Wrap, _name, property(attrgetter(f"inner.{_name}")))


def check_value(name, f, v):
    """ValueError where v is no permitted value of the hyper-parameter f, a field."""
    bounds, choices = f.metadata.get("range"), f.metadata.get("choices")
    at, what = f"{name}.{f.name} = {short(v)}", f.metadata.get("what")
    whole = type(f.default) is int
    refuse_if(whole and not is_whole(v), f"{at} is not a whole number: {what}")
    if bounds:
        low, high = bounds
        # of a range without ends, both ends are values: always, never
        number = is_number(v) or (type(v) is float and bounds == (-inf, inf))
        large = isinstance(v, int) and abs(v) > SEEDS  # than torch knows
        why = f"{at} is outside [{low}, {high}], or too large: {what}"
        refuse_if(not number or not low <= v <= high or large, why)
    if f.name in PIECES:
        why = f"{at} is no {f.name}: give a function of ({PIECES[f.name]}"
        refuse_if(not callable(v) or isinstance(v, type), why)  # its instances: pieces
    refuse_if(
        choices and not among(v, choices),
        f"{at} is not one of {', '.join(map(repr, choices or ()))}: {what}",
    )


PIECES = {  # and what they take
    "step": "loss), such as an object of fedlib.pieces.steps",
    "rule": "G, p, w, task), such as an object of fedlib.pieces.robust",
}
BASE = [f.name for f in fields(Method)]


def overrides(m, name):
    """Has this method, or the one inside it, a function `name` of its own? "receive":
    it does something on download; "client": clients keep something."""
    if isinstance(m, Wrap) and getattr(type(m), name) is getattr(Wrap, name):
        return overrides(m.inner, name)
    return getattr(type(m), name) is not getattr(Method, name)


def uniform_weights(like):
    """Uniform weights [M] for M clients; like [M, ...]."""
    return torch.full((len(like),), 1 / len(like), dtype=like.dtype, device=like.device)


def describe(method):
    """Hyper-parameters as plain values; a piece is {its class: its own}."""
    out = {}
    for f in fields(method):
        v = getattr(method, f.name)
        if f.name != "task":
            piece = hasattr(v, "__dataclass_fields__")
            out[f.name] = {type(v).__name__: describe(v)} if piece else v
    return out
