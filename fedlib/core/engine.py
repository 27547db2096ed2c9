"""The round of federated learning.

    for t = 0, 1, ..., R - 1
        a cohort of clients is drawn
        they receive the server's model
        all clients are scored, every so many rounds
        the cohort trains and uploads
        the server aggregates

run(method, task, rounds, ...) -> Record. Clients run one after another or many under
vmap, with the same numbers; a checkpoint is the state.
Letters: C clients, M cohort, R rounds, t round.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from . import given
from .clients import Clients, cohort_of, way
from .errors import Diverged
from .folder import Folder, patient, restore
from .method import Method, Round, acts_on_download, keeps_state
from .random import fold
from .ranges import is_whole
from .record import Record
from .task import Task
from .tree import leaves, pick, put, rows, sub, subset, tmap
from .types import Cohort, OnRound, Tree

BEFORE = -1  # the round in which client and server states are made


def run(
    method: Method,
    task: Task | None = None,
    rounds: int = 1,
    seed: int = 0,
    cohort: Cohort = None,
    every: int = 1,
    how: str | None = None,
    chunk: int | None = None,
    splits: Sequence[str] = ("test", "val"),
    guests: bool = False,
    own: bool = False,
    microscope: bool = False,
    folder: str | Path | None = None,
    checkpoint_every: float = 30.0,
    device: str | torch.device | None = None,
    progress: bool | None = None,
    upto: int | None = None,
    threads: int = 1,
    precision: str = "float32",
    init: Tree | None = None,
    keep_state: bool = True,
    on_round: OnRound | None = None,
    reach: Any = None,
) -> Record:
    """Run a federation and return its Record.

    cohort: clients per round (None: all). every: evaluation period in rounds.

    how: "loop", clients one after another, or "vmap", all at once, which never changes
    a number beyond rounding (None: see `clients.way`). threads: so many clients at once
    in the loop, which pays where a client is convolutions, and changes no bit.
    precision: of local training, "float32", "tf32" (on a GPU) or "bf16"; the last two
    are quicker and change the numbers.

    folder: where checkpoint and record are kept; an unfinished run there is continued
    to the same bits, a finished one is returned, one that diverged raises again.
    checkpoint_every: seconds between two checkpoints. upto: stop before that round, as
    a kill would. Ctrl-C: the round at hand ends, and is kept. keep_state: also keep
    what server and clients hold at the end. Then Record.model works from the folder,
    and the same call with more rounds goes on, to the bits of a run that never stopped,
    unless the method plans ahead. It takes as much disk as one model for each client
    that has its own.

    init: weights {name: tensor} to start from, such as a state_dict; None: the
    network's own, drawn with `seed`.

    on_round: f(t, record so far), called after every round t = 0 .. rounds - 1, and at
    the end with t = rounds. If it returns True, the run stops there, as with `upto`; if
    it raises, what was done is kept first. A finished run that is only returned calls
    it no more.

    guests: also score clients that never take part. own: also score every client's
    model as it was uploaded, before averaging (moment "own"), where whole models are
    uploaded; all clients must train in every round. microscope: also record drift,
    conflict and update scale per round.

    reach: f(federation, t) -> the `Clients` of round t, where they are not in this
    process (`fedlib.deploy`); None: they are.

    ValueError, before the first round, for arguments that make no sense and a folder of
    another run; Diverged where a client's model is not finite.
    """
    given.check_values(locals())
    task = getattr(method, "task", None) if task is None else task
    given.check_run(method, task, cohort, own, guests)
    device, path = given.checked_device(device), given.checked_folder(folder)
    given.check_execution(how, threads, precision, device)
    whole = lambda v: int(v) if is_whole(v) else v  # such as one of numpy's
    task = task.to(device)
    fed = Federation(
        method=bind(method, task),
        task=task,
        R=int(rounds),
        seed=int(seed),
        cohort=whole(cohort),
        every=int(every),
        how=how or way(task, device, threads, precision),
        chunk=whole(chunk),
        splits=tuple(splits),
        guests=guests,
        own=own,
        microscope=microscope,
        threads=int(threads),
        precision=precision,
        init=given.checked_start(init, task),
        folder=Folder(path, checkpoint_every, keep_state),
        reach=reach,
    )
    if record := fed.folder.finished(fed):
        return record
    with torch.no_grad(), patient(path) as pressed:
        try:
            record = fed.rounds(progress, upto, on_round, pressed)
        except Diverged as e:
            fed.folder.finish(e.record)
            raise
    if pressed:
        raise KeyboardInterrupt(
            f"{record.state['t']} of {rounds} rounds are kept in {path}: the same call "
            "continues from there"
        )
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
    chunk: int | None = None
    splits: tuple = ("test", "val")
    guests: bool = False
    own: bool = False
    microscope: bool = False
    threads: int = 1
    precision: str = "float32"
    init: Tree | None = None
    folder: Folder = field(default_factory=Folder)
    reach: Any = None
    # the stages that could not be batched although how = "auto", see `Clients`
    single: set = field(default_factory=set)

    @property
    def everybody(self):
        return torch.arange(self.task.C)

    @property
    def w(self):
        """The weights before round 0."""
        return self.task.init(self.seed) if self.init is None else self.init

    # ------------------------------------------------------------------ the rounds
    def rounds(self, progress, upto, on_round, pressed):
        """All rounds, from a checkpoint where there is one -> Record."""
        state, record = self.begin()
        stop = False
        with self.bar(progress, state["t"]) as bar:
            while not (stop or pressed or (upto is not None and state["t"] >= upto)):
                t = state["t"]
                if t == self.R and self.folder.state:
                    self.keep(state, record)
                run, cohort = self.take_part(t)
                scores = self.before_training(t, run, cohort, state, record)
                if t == self.R:
                    break
                state = self.one_round(t, run, cohort, state, record, scores)
                if self.folder.due():
                    self.keep(state, record)
                bar.update()
                if scores and not bar.disable:
                    name, value = next(iter(record.summary().items()))
                    bar.set_postfix_str(f"{name} {value:.3f}")
                try:
                    stop = bool(on_round) and on_round(t, record.so_far(state)) is True
                except BaseException:
                    self.keep(state, record)
                    raise
            else:
                record.meta["unfinished"] = True
                self.keep(state, record)
        self.note_single(record)
        self.folder.finish(record)
        record.state = state
        return record

    def begin(self):
        """(state, record): of the checkpoint, or before round 0."""
        record, method, run = self.record(), self.method, self.clients(BEFORE)
        if path := self.folder.file("checkpoint", "state"):
            like = {"clients": self.fresh(run, run.shards(self.everybody[:1]))}
            state, record = restore(path, self.task.x.device, record, method, like)
            record.meta.pop("unfinished", None)
            self.single.update(record.meta.pop("single", []))
            return state, self.attach(record)
        everybody = run.shards(self.everybody)
        clients = self.fresh(run, everybody)
        seen = self.server_sees(BEFORE, run, everybody, clients, record)
        return {
            "server": method.server(self.w, seen),
            "clients": clients,
            "t": 0,
        }, record

    def take_part(self, t):
        """How client functions run in round t, and the cohort: (ids [M], shards)."""
        run = self.clients(t)
        ids = cohort_of(self.method, self.task, self.seed, t, self.cohort)
        return run, run.shards(ids)

    def fresh(self, run, at_hand):
        """What clients keep before round 0 [M, ...]."""
        if not keeps_state(self.method):
            return {}
        w = self.w
        clients = run.each(lambda s: self.method.client(w, s), (), at_hand, "client")
        own = lambda x: x.clone(memory_format=torch.contiguous_format)
        return tmap(own, clients)  # in memory of their own: they are written in place

    def before_training(self, t, run, cohort, state, record):
        """The clients receive, and all are scored -> the scores, or None.

        After the last round nobody trains any more: who would receive is scored as if
        it had, and keeps what it has.
        """
        method, last, as_if = self.method, t == self.R, None
        listeners = run.shards(self.everybody) if method.download == "all" else cohort
        if acts_on_download(method) and last:
            as_if = torch.isin(self.everybody, listeners[0]).to(self.task.x.device)
        elif acts_on_download(method) and len(listeners[0]):
            self.receive(run, listeners, state)
        if t % self.every and not last:
            return None
        everybody = run.shards(self.everybody)
        down, clients = method.send(state["server"], self.everybody), state["clients"]
        scores = run.score(method, down, clients, everybody, self.splits, None, as_if)
        record.score(t, "pre", scores)
        if self.guests and self.task.guests:
            record.score(t, "guest", self.score_guests(run, state["server"]))
        return scores

    def receive(self, run, listeners, state):
        """What clients do with a download before anything else; written in place."""
        down = self.method.send(state["server"], listeners[0])
        f = lambda *args: (self.method.receive(*args), {})
        run.keep(f, down, state["clients"], listeners, "receive")

    def one_round(self, t, run, cohort, state, record, scores):
        """Local training and aggregation -> the next state."""
        method, (ids, _), log, up = self.method, cohort, {}, {}
        server, clients = state["server"], state["clients"]
        down = method.send(server, ids)
        if len(ids):  # else nobody was online, and the round passes
            up = run.keep(method.local, down, clients, cohort, "local")
            if len(here := run.present(ids)) < len(ids):  # elsewhere, some are late
                ids, cohort, down = here, run.shards(here), method.send(server, here)
            bad = first_not_finite([*leaves(up), *leaves(pick(clients, ids))])
            if bad is not None:
                record.meta["diverged"] = {"client": int(ids[bad]), "round": t}
                raise Diverged(**record.meta["diverged"], record=record)
        if scores:
            self.after_training(t, run, cohort, down, up, clients, record, scores)
        if up:
            if self.microscope and "w" in up:
                log = microscope(self.task, down, up)
            record.count("down", down)
            record.count("up", up)
            seen = self.server_sees(t, run, cohort, clients, record)
            server = method.aggregate(server, up, seen)
            log |= server.pop("log", {})
        record.log(t, ids, log)
        return {"server": server, "clients": clients, "t": t + 1}

    def server_sees(self, t, run, at_hand, clients, record):
        """What the server knows in round t beside its state; `ask` puts a question to
        the clients at hand, and counts it."""

        def ask(question, tree=None):
            tree = {} if tree is None else tree
            answers = run.ask(question, tree, clients, at_hand)
            name = question.__name__
            named = lambda tree: {f"{name}.{k}": v for k, v in tree.items()}
            record.count("ask", named(tree), once=True)
            record.count("answer", named(answers))
            return answers

        key = fold(torch.tensor(self.seed, device=self.task.x.device), t, -999)
        return Round(t, self.method.horizon(self.R), key, ask, at_hand[0])

    # ------------------------------------------------------------ scored besides
    def after_training(self, t, run, cohort, down, up, clients, record, before):
        """Views that are scored after training, and models as they were uploaded."""
        method, (ids, _), splits = self.method, cohort, self.splits
        if method.post:  # who was absent has the same model as before
            after = {kind: subset(v, method.post) for kind, v in before.items()}
            if len(ids):
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
        at_hand = run.shards(-1 - torch.arange(len(guests)))
        down = method.send(server, at_hand[0])
        arrive = lambda d, s: method.receive(d, method.client(w, s), s)
        clients = run.each(arrive, (down,), at_hand, "guest")
        rows_of = {"all": 0, "val": 1}  # of (train, val, test); all have test rows
        has = lambda s: s == "test" or all(len(g[rows_of[s]]) for g in guests)
        splits = [s for s in self.splits if has(s)]
        return run.score(method, down, clients, at_hand, splits)

    # ------------------------------------------------------- for the lines above
    def clients(self, t):
        """How client functions are executed in round t."""
        if self.reach:
            return self.reach(self, t)
        who = self.method, self.task, self.seed, t, self.R
        how = self.how, self.chunk, self.threads, self.precision, self.single
        return Clients(*who, *how)

    def record(self):
        """An empty record of this run."""
        who = self.method, self.task, self.R, self.seed, self.cohort
        record = self.attach(Record.new(*who, self.every, self.how, self.precision))
        record.meta["scored"] = [sorted(self.splits), self.guests, self.own]
        if self.init is not None:
            record.meta["init"] = given.digest(self.init)
        return record

    def attach(self, record):
        """The record with what its models are made of, in memory."""
        record.method, record.cohort = self.method, self.cohort
        record.folder = self.folder.path
        return record

    def keep(self, state, record):
        self.note_single(record)
        self.folder.keep(state, record)

    def note_single(self, record):
        if self.single:
            record.meta["single"] = sorted(self.single)

    def bar(self, progress, t):
        shown = sys.stderr.isatty() if progress is None else progress
        of = {"total": self.R, "initial": t, "desc": type(self.method).__name__}
        return tqdm(**of, unit="round", leave=False, disable=not shown)


def microscope(task, down, up):
    """Drift |w_i - w| [M]; conflict [M], the share of the cohort whose update points
    against mine; update scale, the mean square of the mean update."""
    shared = [k for k in down.get("w", {}) if k in up["w"] and k not in task.buffers]
    if not shared:
        return {}
    new, old = ({k: tree["w"][k] for k in shared} for tree in (up, down))
    G = rows(sub(new, old))  # [M, P]
    conflict = (G @ G.T < 0).to(G.dtype).sum(1) / max(1, len(G) - 1)
    return {
        "drift": G.norm(dim=1),
        "conflict": conflict,
        "update_scale": G.mean(0).square().mean(),
    }


def first_not_finite(stacks):
    """The first row [M] at which some tensor [M, ...] is not finite, or None."""
    sums = [x.reshape(len(x), -1).sum(1) for x in stacks if x.is_floating_point()]
    ok = torch.stack(sums).isfinite().all(0) if sums else torch.tensor(True)
    return None if bool(ok.all()) else int((~ok).nonzero()[0])
