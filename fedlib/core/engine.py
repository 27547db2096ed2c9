"""The round of federated learning.

    for t = 0, 1, ..., R - 1
        a cohort of clients is drawn
        they receive the server's model
        all clients are scored, every so many rounds
        the cohort trains and uploads
        the server aggregates

A checkpoint is the state. Letters: C clients, M cohort, R rounds, t round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor
from tqdm import tqdm

from . import given, recorded
from .clients import Clients, cohort_of, mode
from .errors import Diverged, is_whole
from .folder import RunFolder
from .method import Method, Round, overrides
from .random import fold
from .record import Record
from .task import Task
from .tree import Tree, leaves, pick, put, rows, sent, sub, subset, tmap

Cohort: TypeAlias = int | Callable[[int], Sequence[int] | Tensor] | None
BEFORE = -1  # the round in which client and server states are made


def run(
    method: Method,
    task: Task | None = None,
    rounds: int = 1,
    seed: int = 0,
    cohort: Cohort = None,
    every: int = 1,
    how: str | None = None,
    precision: str = "float32",
    splits: Sequence[str] = ("test", "val"),
    guests: bool = False,
    own: bool = False,
    microscope: bool = False,
    folder: str | Path | None = None,
    checkpoint_every: float = 30.0,
    device: str | torch.device | None = None,
    progress: bool | None = None,
    upto: int | None = None,
    init: Tree | None = None,
    keep_state: bool = True,
    on_round: Callable[[int, Record], Any] | None = None,
    reach: Any = None,
) -> Record:
    """Run a federation and return its Record.

    cohort: clients per round (None: all), or a function t -> their numbers. every:
    rounds between two evaluations. init: weights {name: tensor} to start from; None:
    the network's own, drawn with `seed`.
    how: "loop", clients one after another, or "vmap", all at once, which changes no
    number beyond rounding; None: see `clients.mode`. precision: of local training on a
    GPU, where stages are recorded (see `recorded`); "tf32": products and convolutions
    with 10 bits of mantissa, which is quicker and gives other numbers.
    folder: for checkpoint and record; an unfinished run there goes on to the same bits,
    a finished one is returned, one that diverged raises again. checkpoint_every: in
    seconds. keep_state: what server and clients hold at the end is kept, too; then
    Record.model works from the folder, and the same call with more rounds goes on from
    there, unless the method plans ahead. upto: stop before that round, as a kill would.
    on_round: f(t, record so far), called after every round t = 0 .. rounds - 1, and at
    the end with t = rounds. If it returns True, the run stops there, as with `upto`; if
    it raises, what was done is kept first.
    guests: also score clients that never take part. own: also score every client's
    model as uploaded (moment "own"), where whole models are uploaded and all train.
    microscope: also log drift, conflict and update scale per round.
    reach: f(federation, t) -> the `Clients` of round t, where they are not in this
    process (`fedlib.deploy`).

    ValueError, before the first round, for arguments that make no sense and a folder of
    another run; Diverged where a client's model is not finite."""
    told = {k: int(v) if is_whole(v) else v for k, v in locals().items()}  # numpy's too
    given.check_values(told)
    task = getattr(method, "task", None) if task is None else task
    given.check_run(method, task, cohort, own)
    device, path = given.checked_device(device), given.checked_folder(folder)
    task, way = task.to(device), recorded.MODE.get(device.type)
    fed = Federation(
        bind(method, task),
        task,
        told["rounds"],
        how=how or mode(task, device),
        splits=tuple(splits),
        init=given.checked_start(init, task),
        folder=RunFolder(path, checkpoint_every, keep_state),
        recorder=recorded.Recorder(way) if way else None,
        **subset(told, "seed cohort every guests own microscope".split()),
        **subset(told, ("reach", "precision")),
    )
    if record := fed.folder.finished(Record.of(fed)):
        return record
    with torch.no_grad():
        try:
            record = fed.rounds(progress, upto, on_round)
        except Diverged as e:
            fed.folder.finish(e.record)
            raise
    if on_round and "unfinished" not in record.meta:
        on_round(fed.R, record)
    return record


def bind(method, task):
    """The method on the task that is really used (moved to a device), wrappers too."""
    inner = getattr(method, "inner", None)
    more = {} if inner is None else {"inner": bind(inner, task)}
    return replace(method, task=task, **more)


@dataclass(frozen=True)
class Federation:
    """What stays during a run, see `run`, and its rounds."""

    method: Method
    task: Task
    R: int
    seed: int = 0
    cohort: Cohort = None
    every: int = 1
    how: str = "loop"
    splits: tuple = ("test", "val")
    guests: bool = False
    own: bool = False
    microscope: bool = False
    init: Tree | None = None
    folder: RunFolder = field(default_factory=RunFolder)
    reach: Any = None
    single: set = field(default_factory=set)  # stages not batched, see `Clients`
    precision: str = "float32"
    recorder: Any = None
    later: list = field(default_factory=list)  # what waits for a GPU, see `soon`

    # ------------------------------------------------------------------ the rounds
    def rounds(self, progress, upto, on_round):
        """All rounds, from a checkpoint where there is one -> Record."""
        (state, record), stop = self.begin(), False
        off = None if progress is None else not progress  # None: without a terminal
        of = {"total": self.R, "initial": state["t"], "unit": "round", "leave": False}
        with tqdm(desc=type(self.method).__name__, disable=off, **of) as bar:
            while not (stop or (upto is not None and state["t"] >= upto)):
                if (t := state["t"]) == self.R and self.folder.state:
                    self.keep(state, record)
                turn = self.turn(t)
                scores = self.before_training(turn, state, record)
                if t == self.R:
                    break
                state = self.one_round(turn, state, record, scores)
                if self.folder.due():
                    self.keep(state, record)
                bar.update()
                self.settle(bool(on_round))
                try:
                    stop = bool(on_round) and on_round(t, record.so_far(state)) is True
                except BaseException:
                    self.keep(state, record)
                    raise
            else:
                record.meta["unfinished"] = True
                self.keep(state, record)
        self.folder.finish(self.noted(record))
        record.state = state
        return record

    def begin(self):
        """(state, record): of the checkpoint, or before round 0."""
        method, record, w = self.method, Record.of(self), self.w
        if self.folder.has("checkpoint"):
            state, record = self.folder.restore(self.task.x.device, record)
            record.meta.pop("unfinished", None)
            self.single.update(record.meta.pop("single", []))
            return state, record
        cohort = (run := self.clients(BEFORE)).shards(self.everybody)
        turn, clients = (BEFORE, run, cohort), {}
        if overrides(method, "client"):
            make = lambda shard: method.client(w, shard)
            own = lambda x: x.clone(memory_format=torch.contiguous_format)
            clients = tmap(own, run.each(make, (), cohort, "client"))  # to write into
        server = method.server(w, self.server_sees(turn, clients, record))
        return {"server": server, "clients": clients, "t": 0}, record

    def turn(self, t):
        """(t, how client functions run in it, the cohort: ids [M] and shards)."""
        run = self.clients(t)
        ids = cohort_of(self.method, self.task, self.seed, t, self.cohort)
        return t, run, run.shards(ids)

    def before_training(self, turn, state, record):
        """The clients receive, and all are scored -> the scores, or None. After the
        last round who would receive is scored as if it had, and keeps what it has."""
        method, (t, run, cohort), as_if = self.method, turn, None
        server, clients, last = state["server"], state["clients"], t == self.R
        listeners = run.shards(self.everybody) if method.download == "all" else cohort
        if overrides(method, "receive") and last:
            as_if = torch.isin(self.everybody, listeners[0]).to(self.task.x.device)
        elif overrides(method, "receive") and len(listeners[0]):
            receive = lambda *args: (method.receive(*args), {})
            down = method.send(server, listeners[0])
            run.keep(receive, down, clients, listeners, "receive")
        if t % self.every and not last:
            return None
        self.settle()
        everybody = run.shards(self.everybody)
        down = method.send(server, self.everybody)
        scores = run.score(method, down, clients, everybody, self.splits, None, as_if)
        record.score(t, "pre", scores)
        if self.guests and self.task.guests:
            record.score(t, "guest", self.score_guests(run, server))
        return scores

    def one_round(self, turn, state, record, scores):
        """Local training and aggregation -> the next state."""
        method, (t, run, cohort), log, up = self.method, turn, {}, {}
        server, clients, ids = state["server"], state["clients"], cohort[0]
        down = method.send(server, ids)
        if len(ids):  # else nobody was online, and the round passes
            up = run.keep(method.local, down, clients, cohort, "local")
            if len(here := run.present(ids)) < len(ids):  # elsewhere, some are late
                turn, ids = (t, run, run.shards(here)), here
                down = method.send(server, ids)
            there = sent(ids, self.task.x.device)
            good = finite([*leaves(up), *leaves(pick(clients, there))])
            self.settle()  # the round before, while this one is computed
            self.soon(self.check, record, t, ids, good)
        if scores:
            self.settle()
            self.after_training(turn, down, up, clients, record, scores)
        if up:
            if self.microscope and "w" in up:
                log = microscope(self.task, down, up)
            record.count("down", down)
            record.count("up", up)
            seen = self.server_sees(turn, clients, record)
            server = method.aggregate(server, up, seen)
            log |= server.pop("log", {})
        self.soon(record.log, t, ids, log)
        return {"server": server, "clients": clients, "t": t + 1}

    def soon(self, f, *args):
        """f(*args), which waits for numbers: a round later if stages are recorded."""
        self.later.append(lambda: f(*args))
        self.settle(not self.recorder)

    def settle(self, now=True):
        """Do what was to be done soon."""
        while now and self.later:
            self.later.pop(0)()

    def check(self, record, t, ids, good):
        """Raise Diverged, if some model of the clients ids is not finite."""
        if not bool(good.all()):
            bad = int(ids[int((~good).nonzero()[0])])
            record.meta["diverged"] = {"client": bad, "round": t}
            raise Diverged(**record.meta["diverged"], record=record)

    def server_sees(self, turn, clients, record):
        """What the server knows beside its state; `ask` asks the cohort, and counts."""
        t, run, cohort = turn

        def ask(question, tree=None):
            tree = {} if tree is None else tree
            answers = run.ask(question, tree, clients, cohort)
            named = lambda t: {f"{question.__name__}.{k}": v for k, v in t.items()}
            record.count("ask", named(tree), once=True)
            record.count("answer", named(answers))
            return answers

        key = fold(self.key, t, -999)
        return Round(t, self.method.horizon(self.R), key, ask, cohort[0])

    def after_training(self, turn, down, up, clients, record, before):
        """Views that are scored after training, and models as they were uploaded."""
        method, splits, (t, run, cohort) = self.method, self.splits, turn
        if method.post:  # who was absent has the same model as before
            after = {kind: subset(v, method.post) for kind, v in before.items()}
            if len(ids := cohort[0]):
                mine = pick(clients, ids)
                new = run.score(method, down, mine, cohort, splits, method.post)
                after = put(after, ids.to(self.task.x.device), new)
            record.score(t, "post", after)
        if self.own and {*self.task.shapes} <= {*up.get("w", {})}:
            everybody, plain = run.shards(self.everybody), Method(self.task)
            scores = run.score(plain, {"w": up["w"]}, clients, everybody, splits)
            record.score(t, "own", scores)

    def score_guests(self, run, server):
        """The scores of clients that never take part: fresh ones that receive once."""
        method, guests, w = self.method, self.task.guests, self.w
        away = run.shards(-1 - torch.arange(len(guests)))
        down = method.send(server, away[0])
        arrive = lambda d, s: method.receive(d, method.client(w, s), s)
        clients = run.each(arrive, (down,), away, "guest")
        rows_of = {"all": 0, "val": 1}  # of (train, val, test); all have test rows
        has = lambda s: s == "test" or all(len(g[rows_of[s]]) for g in guests)
        return run.score(method, down, clients, away, [*filter(has, self.splits)])

    everybody = property(lambda self: torch.arange(self.task.C))

    @cached_property
    def key(self):
        return torch.tensor(self.seed, device=self.task.x.device)

    @property
    def w(self):
        """The weights before round 0."""
        return self.task.init(self.seed) if self.init is None else self.init

    def clients(self, t):
        """How client functions are executed in round t."""
        if self.reach:
            return self.reach(self, t)
        who = self.method, self.task, self.seed, t, self.R
        how = self.how, self.single, self.precision, self.recorder
        return Clients(*who, *how)

    def keep(self, state, record):
        self.settle()
        self.folder.keep(state, self.noted(record))

    def noted(self, record):
        """The record, with the stages that could not be batched, or recorded."""
        if self.single:
            record.meta["single"] = sorted(self.single)
        if self.recorder and self.recorder.refused:
            record.meta["refused"] = self.recorder.refused
        return record


def microscope(task, down, up):
    """Drift |w_i - w| [M]; conflict [M], the share of the cohort whose update points
    against mine; update scale, the mean square of the mean update."""
    shared = [k for k in down.get("w", {}) if k in up["w"] and k not in task.buffers]
    if not shared:
        return {}
    new, old = ({k: tree["w"][k] for k in shared} for tree in (up, down))
    G = rows(sub(new, old))  # [M, P]
    return {
        "drift": G.norm(dim=1),
        "conflict": (G @ G.T < 0).to(G.dtype).sum(1) / max(1, len(G) - 1),
        "update_scale": G.mean(0).square().mean(),
    }


def finite(stacks):
    """Which rows [M] of all tensors [M, ...] are finite."""
    sums = [x.reshape(len(x), -1).sum(1) for x in stacks if x.is_floating_point()]
    return torch.stack(sums).isfinite().all(0) if sums else torch.tensor([True])
