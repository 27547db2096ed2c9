"""The round of federated learning.

    for t = 0, 1, ..., R - 1
        a cohort of clients is drawn
        they receive the server's model
        all clients are scored, every so many rounds
        the cohort trains and uploads
        the server aggregates

run(method, task, rounds, ...) -> Record. Clients run one after another or many under vmap, with
the same numbers; a checkpoint is the state.
Letters: C clients, M cohort, R rounds, t round.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from tqdm import tqdm

from .clients import Clients, cohort_of, way
from .errors import Diverged
from .folder import Folder, patient, restore
from .given import (
    check_run,
    check_values,
    checked_device,
    checked_folder,
    checked_start,
    digest,
)
from .method import Method, Round, acts_on_download, keeps_state
from .random import fold
from .ranges import is_whole
from .record import Record
from .scoring import score
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
) -> Record:
    """Run a federation and return its Record.

    cohort: clients per round (None: all). every: evaluation period in rounds.

    how: "loop", clients one after another, or "vmap", all at once, which never changes a number
    beyond rounding (None: see `clients.way`). threads: so many clients at once in the loop, which
    pays where a client is convolutions, and changes no bit. precision: of local training,
    "float32", "tf32" (on a GPU) or "bf16"; the last two are quicker and change the numbers.

    folder: where checkpoint and record are kept; an unfinished run there is continued to the same
    bits, a finished one is returned, one that diverged raises again. checkpoint_every: seconds
    between two checkpoints. upto: stop before that round, as a kill would. Ctrl-C: the round at
    hand ends, and is kept. keep_state: also keep what server and clients hold at the end. Then
    Record.model works from the folder, and the same call with more rounds goes on, to the bits of
    a run that never stopped, unless the method plans ahead.

    init: weights {name: tensor} to start from; None: the network's own, drawn with `seed`.

    on_round: f(t, record so far), called after every round, and at the end with t = rounds. If it
    returns True, the run stops there, as with `upto`; if it raises, what was done is kept first.

    guests: also score clients that never take part. own: also score every client's model as it
    was uploaded (moment "own"). microscope: also record drift, conflict and update scale.

    ValueError, before the first round, for arguments that make no sense and a folder of another
    run; Diverged where a client's model is not finite.
    """
    values = dict(
        rounds=rounds, every=every, seed=seed, how=how, threads=threads, chunk=chunk
    )
    values |= dict(
        precision=precision, checkpoint_every=checkpoint_every, progress=progress
    )
    values |= dict(upto=upto, on_round=on_round, splits=splits, guests=guests, own=own)
    check_values(**values, microscope=microscope, keep_state=keep_state)
    task, device = (
        getattr(method, "task", None) if task is None else task,
        checked_device(device),
    )
    check_run(method, task, cohort, own, how, guests, threads, precision, device)
    whole = lambda v: int(v) if is_whole(v) else v  # such as one of numpy's
    rounds, seed, every, cohort, upto, chunk = map(
        whole, (rounds, seed, every, cohort, upto, chunk)
    )
    how = how or way(task, device, threads, precision)
    task, told = (
        task.to(device),
        (tuple(splits), guests, own, microscope, threads, precision),
    )
    at = checked_folder(folder)
    fed = Federation(
        bind(method, task),
        task,
        rounds,
        seed,
        cohort,
        every,
        how,
        chunk,
        *told,
        checked_start(init, task),
        Folder(at, checkpoint_every, keep_state),
    )
    if record := fed.folder.finished(fed):
        return record
    with torch.no_grad(), patient(at) as pressed:
        try:
            record = fed.rounds(progress, upto, on_round, pressed)
        except Diverged as e:
            fed.folder.finish(e.record)
            raise
    if pressed:
        raise KeyboardInterrupt(
            f"{record.state['t']} of {rounds} rounds are kept in {at}: the same call continues "
            "from there"
        )
    if on_round and "unfinished" not in record.meta:
        on_round(rounds, record)
    return record


def owned(x):
    """A copy in memory of its own: clients are written in place."""
    return x.clone(memory_format=torch.contiguous_format)


def bind(method, task):
    """The method on the task that is really used (moved to a device), wrappers included."""
    inner = getattr(method, "inner", None)
    return replace(
        method, task=task, **({} if inner is None else {"inner": bind(inner, task)})
    )


@dataclass(frozen=True)
class Federation:
    """Everything that a run is told and that stays, see `run`, and its rounds."""

    method: Method
    task: Task
    R: int
    seed: int
    cohort: Cohort
    every: int
    how: str
    chunk: int | None
    splits: tuple
    guests: bool
    own: bool
    microscope: bool
    threads: int
    precision: str
    init: Tree | None
    folder: Folder
    single: set = field(
        default_factory=set
    )  # stages that could not be batched, see Clients

    everybody = property(lambda self: torch.arange(self.task.C))
    w = property(
        lambda self: self.task.init(self.seed) if self.init is None else self.init
    )

    def clients(self, t):
        """How client functions are executed in round t."""
        told = self.how, self.chunk, self.threads, self.precision, self.single
        return Clients(self.method, self.task, self.seed, t, self.R, *told)

    def record(self):
        """An empty record of this run."""
        told = self.R, self.seed, self.cohort, self.every, self.how, self.precision
        record = self.attach(Record.new(self.method, self.task, *told))
        record.meta["scored"] = [sorted(self.splits), self.guests, self.own]
        if self.init is not None:
            record.meta["init"] = digest(self.init)
        return record

    def attach(self, record):
        """The record with what its models are made of, in memory."""
        record.method, record.cohort, record.folder = (
            self.method,
            self.cohort,
            self.folder.path,
        )
        return record

    def server_sees(self, t, run, at_hand, clients, record):
        """What the server knows in round t beside its state; `ask` is counted."""

        def ask(question, tree=None):
            tree, kept = {} if tree is None else tree, pick(clients, at_hand[0])
            answers = run.each(
                lambda m, s: question(tree, m, s), (kept,), at_hand, "ask"
            )
            named = lambda tree: {
                f"{question.__name__}.{k}": v for k, v in tree.items()
            }
            record.count("ask", named(tree), once=True)
            record.count("answer", named(answers))
            return answers

        key = fold(torch.tensor(self.seed, device=self.task.x.device), t, -999)
        return Round(t, self.R, key, ask, at_hand[0])

    # ------------------------------------------------------------ the rounds
    def rounds(self, progress, upto, on_round, pressed):
        """All rounds, from a checkpoint where there is one -> Record."""
        state, record = self.begin()
        shown = sys.stderr.isatty() if progress is None else progress
        bar = {
            "total": self.R,
            "initial": state["t"],
            "desc": type(self.method).__name__,
        }
        stop = False
        with tqdm(**bar, unit="round", leave=False, disable=not shown) as bar:
            while not (stop or pressed or (upto is not None and state["t"] >= upto)):
                t = state["t"]
                if t == self.R and self.folder.state:
                    self.keep(state, record)
                run = self.clients(t)
                cohort = run.shards(
                    cohort_of(self.method, self.task, self.seed, t, self.cohort)
                )
                scores = self.before_training(t, run, cohort, state, record)
                if t == self.R:
                    break
                state = self.one_round(t, run, cohort, state, record, scores)
                if self.folder.due():
                    self.keep(state, record)
                bar.update()
                if scores and shown:
                    bar.set_postfix_str(record.headline())
                try:
                    stop = bool(on_round) and on_round(t, record.so_far(state)) is True
                except BaseException:
                    self.keep(state, record)
                    raise
            else:
                record.meta["unfinished"] = True
                self.keep(state, record)
        record.meta |= {"single": sorted(self.single)} if self.single else {}
        self.folder.finish(record)
        record.state = state
        return record

    def keep(self, state, record):
        record.meta |= {"single": sorted(self.single)} if self.single else {}
        self.folder.keep(state, record)

    def begin(self):
        """(state, record): of the checkpoint, or before round 0."""
        record, method, run, w = (
            self.record(),
            self.method,
            self.clients(BEFORE),
            self.w,
        )

        def fresh(ids):
            at_hand = run.shards(ids)
            make = lambda s: method.client(w, s)
            clients = (
                run.each(make, (), at_hand, "client") if keeps_state(method) else {}
            )
            return at_hand, tmap(owned, clients)

        if path := self.folder.file("checkpoint", "state"):
            like = {"clients": fresh(self.everybody[:1])[1]}
            state, record = restore(path, self.task.x.device, record, method, like)
            record.meta.pop("unfinished", None)
            self.single.update(record.meta.pop("single", []))
            return state, self.attach(record)
        at_hand, clients = fresh(self.everybody)
        server = method.server(
            w, self.server_sees(BEFORE, run, at_hand, clients, record)
        )
        return {"server": server, "clients": clients, "t": 0}, record

    def before_training(self, t, run, cohort, state, record):
        """The cohort receives, and all are scored -> the scores, or None.

        After the last round nobody trains any more: who would receive is scored as if it had, and
        keeps what it has.
        """
        method, last, as_if = self.method, t == self.R, None
        listeners = run.shards(self.everybody) if method.download == "all" else cohort
        if acts_on_download(method) and last:
            as_if = torch.isin(self.everybody, listeners[0]).to(self.task.x.device)
        elif acts_on_download(method) and len(listeners[0]):
            down, receive = method.send(state["server"], listeners[0]), method.receive
            run.keep(
                lambda *args: (receive(*args), {}),
                down,
                state["clients"],
                listeners,
                "receive",
            )
        if t % self.every and not last:
            return None
        everybody, down = (
            run.shards(self.everybody),
            method.send(state["server"], self.everybody),
        )
        how = self.splits, None, as_if
        scores = score(method, down, state["clients"], run, everybody, *how)
        record.score(t, "pre", scores)
        if self.guests and self.task.guests:
            record.score(t, "guest", self.score_guests(run, state["server"]))
        return scores

    def one_round(self, t, run, cohort, state, record, scores):
        """Local training and aggregation -> the next state."""
        method, (ids, _), log, up = self.method, cohort, {}, {}
        server, clients = state["server"], state["clients"]
        down = method.send(server, ids)
        if len(ids):  # else nobody was online, and the round passes
            up = run.keep(method.local, down, clients, cohort, "local")
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
            r = self.server_sees(t, run, cohort, clients, record)
            server = method.aggregate(server, up, r)
            log |= server.pop("log", {})
        record.log(t, ids, log)
        return {"server": server, "clients": clients, "t": t + 1}

    # ------------------------------------------------------------ scored besides
    def after_training(self, t, run, cohort, down, up, clients, record, before):
        """Views that are scored after training, and models as they were uploaded."""
        method, (ids, _) = self.method, cohort
        if method.post:  # who was absent has the same model as before
            after = {kind: subset(v, method.post) for kind, v in before.items()}
            if len(ids):
                what = (
                    method,
                    down,
                    pick(clients, ids),
                    run,
                    cohort,
                    self.splits,
                    method.post,
                )
                after = put(after, ids.to(self.task.x.device), score(*what))
            record.score(t, "post", after)
        if self.own and {*self.task.shapes} <= {*up.get("w", {})}:
            everybody, plain = run.shards(self.everybody), Method(self.task)
            scores = score(plain, {"w": up["w"]}, clients, run, everybody, self.splits)
            record.score(t, "own", scores)

    def score_guests(self, run, server):
        """The scores of clients that never take part: fresh ones that receive once."""
        method, guests, w = self.method, self.task.guests, self.w
        at_hand = run.shards(-1 - torch.arange(len(guests)))
        down = method.send(server, at_hand[0])
        arrive = lambda d, s: method.receive(d, method.client(w, s), s)
        clients = run.each(arrive, (down,), at_hand, "guest")
        there = {"test": 2, "val": 1, "all": 0}
        splits = [
            s
            for s in self.splits
            if s == "test" or all(len(g[there[s]]) for g in guests)
        ]
        return score(method, down, clients, run, at_hand, splits)


def microscope(task, down, up):
    """Drift |w_i - w| [M], conflict [M], the share of the cohort whose update points against
    mine, and update scale, the mean square of the mean update."""
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
