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
from functools import partial
from pathlib import Path

import torch
from tqdm import tqdm

from .check_args import check_told, checked_device, checked_folder, plain
from .check_run import check_given, check_run
from .check_state import check_same_scoring, check_shapes
from .checkpoint import restore, same_run
from .clients import Clients, cohort_of, way
from .errors import Diverged
from .kept import Kept, begun
from .method import Method, Round, acts_on_download, keeps_state
from .random import fold
from .record import Record
from .scoring import score
from .start import checked_start, digest
from .task import Task
from .tree import leaves, pick, put, rows, sub, subset, tmap
from .types import Cohort, OnRound, Tree
from .watch import interrupted, patient, told

BEFORE = -1  # the round in which client and server states are made


@dataclass(frozen=True)
class Federation:
    """Everything that a run is told and that stays: see `run`."""

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
    # the stages that could not be batched although how = "auto", see `Clients`
    single: set = field(default_factory=set)

    @property
    def everybody(self):
        return torch.arange(self.task.C)

    @property
    def w(self):
        """The weights before round 0."""
        return self.task.init(self.seed) if self.init is None else self.init

    def clients(self, t):
        """How client functions are executed in round t."""
        return Clients(
            self.method,
            self.task,
            self.seed,
            t,
            self.R,
            self.how,
            self.chunk,
            self.threads,
            self.precision,
            self.single,
        )

    def record(self):
        """An empty record of this run."""
        record = Record.new(
            self.method,
            self.task,
            self.R,
            self.seed,
            self.cohort,
            self.every,
            self.how,
            self.precision,
        )
        if self.init is not None:
            record.meta["init"] = digest(self.init)
        return record

    def round(self, t, ids, ask):
        """What the server knows in round t beside its state."""
        seed = torch.tensor(self.seed, device=self.task.x.device)
        return Round(t, self.R, fold(seed, t, -999), ask, ids)

    def scores_in(self, t):
        """Are all clients scored in round t?"""
        return t % self.every == 0 or t == self.R


@dataclass(frozen=True)
class Turn:
    """One round at hand. cohort and everybody: (ids, shards) as `Clients` take them;
    everybody is None where nobody asks for all clients."""

    t: int
    run: Clients
    cohort: tuple
    everybody: tuple | None

    @property
    def ids(self):
        return self.cohort[0]


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

    how: "loop", clients one after another, or "vmap", all at once, which never changes
    a number beyond rounding (None: see `clients.way`). threads: so many clients at once
    in the loop, which pays where a client is convolutions, and changes no bit.
    precision: of local training, "float32", "tf32" (on a GPU) or "bf16"; the last two
    are quicker and change the numbers.

    folder: where checkpoint and record are kept; an unfinished run there is continued
    to the same bits, a finished one is returned, one that diverged raises again.
    checkpoint_every: seconds between two checkpoints. upto: stop before that round, as
    a kill would. Ctrl-C: the round at hand ends, and is kept.

    keep_state: with a folder, also keep what server and clients hold at the end. Then
    Record.model works from the folder, and the same call with more rounds goes on, to
    the bits of a run that never stopped, unless the method's schedule depends on
    `rounds`. It takes as much disk as one model for each client that has its own.

    init: weights {name: tensor} to start from, such as a state_dict; None: the
    network's own, drawn with `seed`.

    on_round: f(t, record), called after every round t = 0 .. rounds - 1 with the record
    so far, and at the end with t = rounds. If it returns True, the run stops there, as
    with `upto`; if it raises, what was done is kept first. A finished run that is only
    returned calls it no more.

    guests: also score clients that never take part. own: also score every client's
    model as it was uploaded, before averaging (moment "own"), where whole models are
    uploaded; all clients must train in every round. microscope: also record drift,
    conflict and update scale per round.

    ValueError or TypeError, before the first round, for arguments that make no sense
    and a folder of another run; Diverged where a client's model is not finite.
    """
    check_given(method, task)
    task = method.task if task is None else task
    rounds, seed, every, threads = map(plain, (rounds, seed, every, threads))
    cohort, chunk, upto = map(plain, (cohort, chunk, upto))
    switches = {"guests": guests, "own": own, "microscope": microscope}
    switches["keep_state"] = keep_state
    check_told(seed, checkpoint_every, progress, upto, on_round, **switches)
    check_run(
        method,
        task,
        rounds,
        cohort,
        every,
        how,
        chunk,
        splits,
        own,
        guests,
        threads,
        precision,
    )
    device, folder = checked_device(device), checked_folder(folder)
    if precision == "tf32" and device.type != "cuda":
        raise ValueError(
            f"precision = 'tf32' on {device.type}: tensor cores are a GPU's; give "
            "'float32' or 'bf16'"
        )
    how = how or way(task, device, threads, precision)
    task = task.to(device)
    fed = Federation(
        bind(method, task),
        task,
        rounds,
        seed,
        cohort,
        every,
        how,
        chunk,
        tuple(splits),
        guests,
        own,
        microscope,
        threads,
        precision,
        None if init is None else checked_start(init, task),
    )
    kept = Kept(folder, checkpoint_every, keep_state)
    record = finished(fed, folder) if kept.has("done") else None
    if record is None:
        with torch.no_grad():
            record = watched(fed, kept, progress, upto, on_round)
    return record


def bind(method, task):
    """The method on the task that is really used (moved to a device), wrappers
    included."""
    inner = getattr(method, "inner", None)
    more = {} if inner is None else {"inner": bind(inner, task)}
    return replace(method, task=task, **more)


def finished(fed, folder):
    """The record of a run that is done; None where it shall go on to more rounds, and
    can. One that diverged raises again."""
    record = Record.load(folder)
    on = record.meta["rounds"] < fed.R and "diverged" not in record.meta
    if on and (folder / "state").exists():
        return None
    if on and record.meta["method"] == type(fed.method).__name__:
        raise ValueError(
            f"{folder} belongs to another run: it has {record.meta['rounds']} rounds "
            f"of {fed.R}, and not the state to go on from (keep_state = False); give "
            "a new folder"
        )
    record = attached(fed, same_run(record, fed.record(), folder), folder)
    if "diverged" in record.meta:
        raise Diverged(**record.meta["diverged"], record=record)
    return record


def attached(fed, record, folder):
    """The record with what its models are made of, in memory."""
    record.method, record.cohort, record.folder = fed.method, fed.cohort, folder
    return record


# ---------------------------------------------------------------- the rounds
def watched(fed, kept, progress, upto, on_round):
    """All rounds -> Record. Whoever watches is told, and Ctrl-C waits for a round."""
    with patient(kept.folder) as pressed:
        try:
            record = rounds_of(fed, kept, progress, upto, on_round, pressed)
        except Diverged as e:
            e.record.finish(kept.seconds())
            kept.finished(e.record)
            raise
    if pressed:
        raise interrupted(record.state["t"], fed.R, kept.folder)
    if on_round and "unfinished" not in record.meta:
        on_round(fed.R, record)
    return record


def rounds_of(fed, kept, progress, upto, on_round, pressed):
    """All rounds, from a checkpoint where there is one -> Record."""
    state, record = begin(fed, kept.folder)
    bar, stop = progress_bar(fed, state["t"], progress), False
    while not (stop or pressed or (upto is not None and state["t"] >= upto)):
        turn = next_turn(fed, state["t"])
        if turn.t == fed.R and kept.state:
            checkpoint(fed, kept, state, record)
        scores = before_training(fed, turn, state, record)
        if turn.t == fed.R:
            break
        state = one_round(fed, turn, state, record, scores)
        keep = partial(checkpoint, fed, kept, state, record)
        if kept.due():
            keep()
        bar.update()
        if scores and not bar.disable:
            bar.set_postfix_str(record.headline())
        stop = told(on_round, turn.t, record, state, keep)
    else:
        record.meta["unfinished"] = True
        checkpoint(fed, kept, state, record)
    bar.close()
    remember(fed, record)
    record.finish(kept.seconds())
    record.state = state
    if "unfinished" not in record.meta:
        kept.finished(record)
    return record


def begin(fed, folder):
    """(state, record): of the checkpoint, or before round 0."""
    record, method, path = fed.record(), fed.method, begun(folder)
    attached(fed, record, folder)
    run = fed.clients(BEFORE)
    start = partial(clients_before, fed, run)
    if path is not None:
        state, record = restore(path, fed.task.x.device, record, method)
        check_same_scoring(fed, record, path)
        fresh = {"server": fresh_server(fed), "clients": start(fed.everybody[:1])[0]}
        check_shapes(state, fresh, fed.task, path)
        record.meta.pop("unfinished", None)
        fed.single.update(record.meta.pop("single", []))
        return state, attached(fed, record, folder)
    clients, shards = start(fed.everybody)
    ask = asking(run, shards, clients, record)
    server = method.server(fed.w, fed.round(BEFORE, fed.everybody, ask))
    return {"server": server, "clients": clients, "t": 0}, record


class Asked(Exception):
    """A server's first state needs the clients' answers."""


def fresh_server(fed):
    """What the server holds before round 0; {} where it asks the clients for it."""

    def ask(question, tree=None):
        raise Asked

    try:
        return fed.method.server(fed.w, fed.round(BEFORE, fed.everybody, ask))
    except Asked:
        return {}


def clients_before(fed, run, ids):
    """What the clients ids [M] keep before round 0, and their shards."""
    method, w, shards = fed.method, fed.w, run.shards(ids)
    if not keeps_state(method):
        return {}, shards
    clients = run.each(lambda s: method.client(w, s), (), shards, "client")
    own = lambda x: x.clone(memory_format=torch.contiguous_format)  # written in place
    return tmap(own, clients), shards


def next_turn(fed, t):
    """Round t: who takes part, and what they hold."""
    run, method = fed.clients(t), fed.method
    ids = cohort_of(method, fed.task, fed.seed, t, fed.cohort)
    needs_all = fed.scores_in(t) or method.download == "all"
    everybody = run.shards(fed.everybody) if needs_all else None
    return Turn(t, run, run.shards(ids), everybody)


def before_training(fed, turn, state, record):
    """The clients receive, and all are scored -> the scores, or None.

    After the last round nobody trains any more: who would receive is scored as if it
    had, and keeps what it has.
    """
    method, last = fed.method, turn.t == fed.R
    listeners = turn.everybody if method.download == "all" else turn.cohort
    receives = acts_on_download(method) and len(listeners[0]) > 0
    if receives and not last:
        receive(fed, turn, state, listeners)
    if not fed.scores_in(turn.t):
        return None
    as_if = None
    if acts_on_download(method) and last:
        as_if = torch.isin(fed.everybody, listeners[0]).to(fed.task.x.device)
    down = method.send(state["server"], fed.everybody)
    scores = score(
        method,
        down,
        state["clients"],
        turn.run,
        turn.everybody,
        fed.splits,
        receives=as_if,
    )
    record.score(turn.t, "pre", scores)
    if fed.guests and fed.task.guests:
        record.score(turn.t, "guest", score_guests(fed, turn, state["server"]))
    return scores


def receive(fed, turn, state, listeners):
    """What clients do with a download before anything else; they change in place."""
    down = fed.method.send(state["server"], listeners[0])
    f = lambda *args: (fed.method.receive(*args), {})
    turn.run.keep(f, down, state["clients"], listeners, "receive")


def one_round(fed, turn, state, record, scores):
    """Local training and aggregation -> the next state."""
    method, ids = fed.method, turn.ids
    server, clients = state["server"], state["clients"]
    down = method.send(server, ids)
    up = {}
    if len(ids):
        up = turn.run.keep(method.local, down, clients, turn.cohort, "local")
    stop_if_diverged(fed, turn, up, clients, record)
    if scores:
        after_training(fed, turn, down, up, clients, record, scores)
    log = microscope(fed.task, down, up) if fed.microscope and "w" in up else {}
    if up:  # else nobody was online, and the round passes
        record.count("down", down)
        record.count("up", up)
        ask = asking(turn.run, turn.cohort, clients, record)
        server = method.aggregate(server, up, fed.round(turn.t, ids, ask))
        log |= server.pop("log", {})
    record.log(turn.t, ids, log)
    return {"server": server, "clients": clients, "t": turn.t + 1}


def asking(run, shards, clients, record):
    """ask(question, tree): puts a question to the clients at hand and counts it."""

    def ask(question, tree=None):
        tree = {} if tree is None else tree
        kept = pick(clients, shards[0])
        answers = run.each(lambda m, s: question(tree, m, s), (kept,), shards, "ask")
        name = question.__name__
        named = lambda tree: {f"{name}.{k}": v for k, v in tree.items()}
        record.count("ask", named(tree), once=True)
        record.count("answer", named(answers))
        return answers

    return ask


# ---------------------------------------------------------------- scored besides
def after_training(fed, turn, down, up, clients, record, before):
    """Views that are scored after training, and models as they were uploaded."""
    method, ids = fed.method, turn.ids
    if method.post:
        # who was absent has the same model as before
        after = {kind: subset(v, method.post) for kind, v in before.items()}
        if len(ids):
            trained = score(
                method,
                down,
                pick(clients, ids),
                turn.run,
                turn.cohort,
                fed.splits,
                method.post,
            )
            after = put(after, ids.to(fed.task.x.device), trained)
        record.score(turn.t, "post", after)
    if fed.own and set(fed.task.shapes) <= set(up.get("w", {})):
        models, plain = {"w": up["w"]}, Method(fed.task)
        scores = score(plain, models, clients, turn.run, turn.everybody, fed.splits)
        record.score(turn.t, "own", scores)


def score_guests(fed, turn, server):
    """The scores of clients that never take part: fresh ones that receive once."""
    method, guests = fed.method, fed.task.guests
    shards = turn.run.shards(-1 - torch.arange(len(guests)))
    down = method.send(server, shards[0])
    w = fed.w
    arrive = lambda d, s: method.receive(d, method.client(w, s), s)
    clients = turn.run.each(arrive, (down,), shards, "guest")
    lacking = {k for k, i in (("all", 0), ("val", 1)) if lacks(guests, i)}
    splits = [k for k in fed.splits if k not in lacking]
    return score(method, down, clients, turn.run, shards, splits)


def lacks(guests, split):
    """Has a guest no rows in this of (train, val, test)?"""
    return any(not len(g[split]) for g in guests)


def microscope(task, down, up):
    """Drift |w_i - w| [M], conflict [M], the share of the cohort whose update points
    against mine, and update scale, the mean square of the mean update."""
    shared = [k for k in down.get("w", {}) if k in up["w"] and k not in task.buffers]
    if not shared:
        return {}
    new, old = ({k: tree["w"][k] for k in shared} for tree in (up, down))
    G = rows(sub(new, old))  # [M, P]
    against = (G @ G.T < 0).to(G.dtype)
    return {
        "drift": G.norm(dim=1),
        "conflict": against.sum(1) / max(1, len(G) - 1),
        "update_scale": G.mean(0).square().mean(),
    }


# ---------------------------------------------------------------- how a run ends
def stop_if_diverged(fed, turn, up, clients, record):
    """Diverged at the first client that returned a model that is not finite."""
    if not up:
        return
    own = [x[turn.ids.to(x.device)] for x in leaves(clients)]
    bad = first_not_finite([*leaves(up), *own])
    if bad is not None:
        where = {"client": int(turn.ids[bad]), "round": turn.t}
        record.meta["diverged"] = where
        raise Diverged(**where, record=record)


def first_not_finite(stacks):
    """The first row [M] at which some tensor [M, ...] is not finite, or None."""
    sums = [x.reshape(len(x), -1).sum(1) for x in stacks if x.is_floating_point()]
    ok = torch.stack(sums).isfinite().all(0) if sums else torch.tensor(True)
    return None if bool(ok.all()) else int((~ok).nonzero()[0])


def remember(fed, record):
    """Which stages could not be batched: who continues goes the same way."""
    if fed.single:
        record.meta["single"] = sorted(fed.single)


def checkpoint(fed, kept, state, record):
    """Keep the state of the run, where there is a folder."""
    remember(fed, record)
    kept.checkpoint(state, record)


def progress_bar(fed, t, progress):
    """A bar on a terminal, or as `progress` says."""
    shown = sys.stderr.isatty() if progress is None else progress
    name = type(fed.method).__name__
    bar = {"total": fed.R, "initial": t, "desc": name, "unit": "round"}
    return tqdm(**bar, leave=False, disable=not shown)
