"""The server of a real federation: the round of fedlib.core.engine, with messages in
place of function calls.

    record = serve(federation, exchange, "server")    exchange: who carries the messages

A client that fails, answers too late or answers nonsense is left out of the round, with
one line in the log; the round completes with the others. A round to which nobody
contributes does not count: it is tried again, a few times, then an error says why. The
state is saved after every round, and serve() on the same folder goes on from there.
"""

from __future__ import annotations

import json
import time
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from ..core import folder as checkpoint
from ..core.clients import cohort_of
from ..core.engine import BEFORE
from ..core.files import damaged, whole
from ..core.given import check_run
from ..core.method import Round, acts_on_download
from ..core.ranges import short
from ..core.record import Record
from ..core.task import SPLITS
from ..core.tree import leaves, pick, put, stack, subset, without
from . import masked
from .act import ABOUT
from .federation import Federation
from .rows import server_task
from .talk import Example, Left, Talk, key

PAUSES = 1, 2, 4, 8  # seconds before a round that failed is tried again


class Failed(Exception):
    """Nothing came of a round: it does not count."""


def serve(federation, exchange, folder=None, log=print):
    """Run the federation and return its Record, as engine.run does.

    exchange(requests, wait) -> {c: tree or Exception}; requests
    [(c, kind, about, tree)], one per client: tree a tree of tensors, about a flat
    dict of str, int and bool. It returns when all have answered or `wait` seconds have
    passed, or later: while too few clients are there, it may wait for them. Whoever is
    missing is late. The text of an Exception is the reason that the log gives. Before
    round 0 every client must answer.
    folder: where state and record are kept, None: nowhere. log: takes one line of text.

    ValueError for a round of which nothing came in len(PAUSES) + 1 tries: nobody's
    answer was of use, or the aggregate is not finite. The round did not count, and
    serve() on the same folder begins with it.
    """
    folder = None if folder is None else Path(folder)
    with torch.no_grad():
        d = Deployment(federation, Example(federation), exchange, log)
        return rounds_of(d, folder)


@dataclass(frozen=True)
class Deployment:
    """What stays the same in all rounds; see `serve`."""

    fed: Federation
    example: Example
    exchange: Any
    log: Any
    n: dict | None = None  # {split: [C]}, how many rows the clients say they have
    weights: str | None = None  # of uploads that are only seen in a sum, see masked

    @property
    def everybody(self):
        return torch.arange(self.fed.C)

    @cached_property
    def method(self):
        return self.fed.make(server_task(self.fed, self.n))

    def talk(self, t, steps):
        """The conversation of round t; steps [C] that clients have reached."""
        return Talk(self.fed, self.example, self.exchange, self.log, t, steps, self.n)

    def cohort(self, t):
        """The clients that train in round t [M]."""
        fed, method = self.fed, self.method
        return cohort_of(method, method.task, fed.seed, t, fed.cohort)

    def scores_in(self, t):
        """Are all clients scored in round t?"""
        return t % self.fed.every == 0 or t == self.fed.rounds


def rounds_of(d, folder):
    """All rounds, from a checkpoint where there is one -> Record."""
    fed, began = d.fed, time.time()
    d = replace(d, weights=d.example.rehearse())
    introduction = d.talk(BEFORE, [0] * fed.C)
    d = replace(d, n=known(folder, fed) or introduced(introduction, folder))
    method = d.method
    check_run(method, method.task, fed.cohort, fed.own)
    told = fed.rounds, fed.seed, fed.cohort, fed.every, "deployed"
    record = Record.new(method, method.task, *told)
    if folder is not None and (folder / "done").exists():
        return checkpoint.same_run(Record.load(folder), record, folder)
    state, record = begin(d, folder, record)
    while (t := state["t"]) < fed.rounds:
        state, record = tried(d, state, record)
        record.meta["seconds"] += time.time() - began
        began = time.time()
        if folder is not None:
            checkpoint.save(folder / "checkpoint", state, record)
        d.log(f"round {t} of {fed.rounds}: {len(record.logs['cohort'][-1])} clients")
    state, record = tried(d, state, record)  # the last scores
    record.finish(time.time() - began)
    record.state = state
    if folder is not None:
        record.save(folder)
        (folder / "checkpoint").unlink(missing_ok=True)
    return record


def begin(d, folder, record):
    """(state, record): of the checkpoint, or before round 0."""
    fed, method = d.fed, d.method
    if folder is not None and (folder / "checkpoint").exists():
        path, device = folder / "checkpoint", method.task.x.device
        state, record = checkpoint.restore(path, device, record)
        check_steps(state, fed.C, path)
        d.log(f"going on with round {state['t']} of {fed.rounds}")
        return state, record
    steps, everybody = [0] * fed.C, d.everybody
    ask = d.talk(BEFORE, steps).asking(method, everybody, record)
    r = Round(BEFORE, method.horizon(fed.rounds), key(fed, BEFORE), ask, everybody)
    server = method.server(method.task.init(fed.seed), r)
    return {"server": server, "steps": steps, "t": 0}, record


def check_steps(state, C, path):
    """ValueError unless each client has a step, and none is ahead of the round."""
    steps, last = state.get("steps"), 2 * state["t"]
    listed = isinstance(steps, list) and len(steps) == C
    if not listed or not all(type(s) is int and 0 <= s <= last for s in steps):
        why = f"steps = {short(steps)}: it needs {C} whole numbers from 0 to {last}"
        raise damaged(path, why)


def tried(d, state, record):
    """The round at hand, again where nothing came of it -> (the next state, record)."""
    t, R = state["t"], d.fed.rounds
    for pause in (*PAUSES, None):
        talk, anew = d.talk(t, list(state["steps"])), deepcopy(record)
        try:
            scores = before_training(d, talk, state["server"], anew)
            if t == R:
                return state, anew
            return one_round(d, talk, state, anew, scores), anew
        except Failed as e:
            why = f"round {t} of {R} does not count: {e}"
        if pause is not None:
            d.log(f"{why}; it is tried again")
            time.sleep(pause)
    raise ValueError(
        f"{why}. So it went {len(PAUSES) + 1} times; what was done before is kept: put "
        "this right, then start the server again on the same folder"
    )


def before_training(d, talk, server, record):
    """The clients receive, and all are scored -> the scores, or None; Failed where
    nobody answers.

    After the last round nobody keeps what it would receive: it is scored as if it had.
    """
    method, last = d.method, talk.t == d.fed.rounds
    listeners = d.everybody if method.download == "all" else d.cohort(talk.t)
    receives = acts_on_download(method) and len(listeners) > 0
    if receives and not last:
        talk.send("receive", listeners, method.send(server, listeners))
    if not d.scores_in(talk.t):
        return None
    as_if = listeners.tolist() if receives and last else ()
    down = method.send(server, d.everybody)
    scores = talk.score("pre", d.everybody, down, pick(down, 0), receives=as_if)
    if not len(talk.left(d.everybody)):
        raise Failed(talk.nobody("could be scored"))
    record.score(talk.t, "pre", scores)
    return scores


def one_round(d, talk, state, record, scores):
    """Local training and aggregation -> the next state; Failed where there is none."""
    method, server, t = d.method, state["server"], talk.t
    ids = talk.left(d.cohort(t))
    down = method.send(server, ids)
    up = uploads(d, talk, ids, down, record)
    if not up:
        raise Failed(talk.nobody("trained"))
    if scores:
        after_training(d, talk, server, ids, up, record, scores)
    ids, new = aggregated(talk, method, server, ids, down, up, record)
    record.log(t, ids, new.pop("log", {}))
    steps = next_steps(d, talk, state["steps"], ids.tolist())
    return {"server": new, "steps": steps, "t": t + 1}


def uploads(d, talk, ids, down, record):
    """{c: upload}; with `secure` the mean of all in place of each."""
    if not d.fed.secure:
        return talk.send("local", ids, down)
    try:
        return masked.summed(talk, ids, down, d.weights, record)
    except ValueError as e:
        raise Failed(str(e)) from e


def next_steps(d, talk, steps, trained):
    """[C]: the step that every client has reached: 2t + 1 after the download of round
    t, where absent clients get one, too; 2t + 2 after its training."""
    t = talk.t
    if d.method.download == "all":
        steps = [2 * t + 1 if c in talk.received else s for c, s in enumerate(steps)]
    return [2 * t + 2 if c in trained else s for c, s in enumerate(steps)]


def after_training(d, talk, server, ids, up, record, before):
    """Views that are scored after training, and models as they were uploaded."""
    method, one = d.method, pick(d.method.send(server, d.everybody), 0)
    if method.post:
        # who was absent has the same model as before
        after = {kind: subset(v, method.post) for kind, v in before.items()}
        here = talk.left(ids)
        down = method.send(server, here) if len(here) else {}
        trained = talk.score("post", here, down, one, method.post)
        record.score(talk.t, "post", put(after, here, pick(trained, here)))
    if d.fed.own:
        own(talk, record, method.task, up, one)


def aggregated(talk, method, server, ids, down, up, record):
    """(clients that completed the round, the server's next state).

    Failed with nobody left, and where there is no finite state.
    """
    fed, t, name = talk.fed, talk.t, talk.fed.method["name"]
    ids = talk.left(ids)
    if len(ids) and not fed.secure:  # else counted where it was sent
        record.count("down", down)
        record.count("up", stack([up[c] for c in ids.tolist()]))
    while len(ids):
        if method.who == "all" and len(ids) < fed.C:
            raise Failed(f"{name} needs all {fed.C} clients; {talk.reasons()}")
        try:
            ask = talk.asking(method, ids, record)
            r = Round(t, method.horizon(fed.rounds), key(fed, t), ask, ids)
            new = method.aggregate(server, stack([up[c] for c in ids.tolist()]), r)
        except Left:  # somebody failed at a question: the same again without it
            ids = talk.left(ids)
            continue
        except RuntimeError as e:  # torch's own: numbers too large for a solver
            why = f"{name} cannot aggregate these answers ({' '.join(f'{e}'.split())})"
            raise Failed(f"{why:.250}; {largest(ids, up, fed.secure)}") from e
        state = leaves(without(new, ("log",)))
        if all(x.isfinite().all() for x in state if x.is_floating_point()):
            return ids, dict(new)
        why = "the new state of the server is not finite"
        raise Failed(f"{why}; {largest(ids, up, fed.secure)}")
    raise Failed(talk.nobody("completed it"))


def largest(ids, up, secure=None):
    """In words: whose upload holds the largest number, where that is known."""
    numbers = lambda x: x.is_floating_point() and x.numel()
    size = {
        c: max([float(x.abs().max()) for x in leaves(up[c]) if numbers(x)], default=0.0)
        for c in ids.tolist()
    }
    c = max(size, key=size.__getitem__)
    if secure:
        return f"the largest number of their mean is {size[c]:.3g}"
    return f"the largest number, {size[c]:.3g}, is in the answer of client {c}"


def own(talk, record, task, up, one):
    """Score every client's model as it was uploaded, where whole models are."""
    like = talk.example.answer("local", ABOUT | {"t": talk.t}, one)
    if set(task.shapes) <= set(like.get("w", {})):
        ids = torch.tensor(sorted(up), dtype=torch.long)
        downs = {"w": stack([up[c]["w"] for c in ids.tolist()])}
        record.score(talk.t, "own", talk.score("own", ids, downs, {"w": like["w"]}))


def introduced(talk, folder):
    """{"train": [C], "val": [C], "test": [C]}: how many rows every client says it has;
    kept for a restart.
    """
    got = talk.send("client", torch.arange(talk.fed.C))
    n = {s: [int(got[c]["n"][s]) for c in range(talk.fed.C)] for s in SPLITS}
    for c in range(talk.fed.C):
        if not all(
            low <= n[s][c] < 2**31 for s, low in (("train", 1), ("val", 0), ("test", 1))
        ):
            raise ValueError(
                f"client {c} says that it has { ({s: n[s][c] for s in SPLITS}) } rows"
            )
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        whole(
            folder / "clients.json",
            lambda f: f.write(
                json.dumps({"federation": talk.fed.digest, "n": n}).encode()
            ),
        )
    return n


def known(folder, fed):
    """The same of an earlier start on this folder, or None."""
    path = folder and folder / "clients.json"
    if not path or not path.exists():
        return None
    try:
        was = json.loads(path.read_bytes())
        federation, n = was["federation"], {s: [*map(int, was["n"][s])] for s in SPLITS}
        if any(len(n[s]) != fed.C for s in SPLITS) and federation == fed.digest:
            raise ValueError(f"not {fed.C} clients")
    except (ValueError, TypeError, KeyError, RecursionError) as e:
        raise ValueError(
            f"{path} is damaged ({e!r:.90}): bring a copy of it back; without one this "
            "federation can only start anew, in another folder"
        ) from e
    if federation != fed.digest:
        raise ValueError(
            f"{folder} belongs to another federation ({short(federation)} there, "
            f"{fed.digest} in {fed.at}): give each federation its own folder"
        )
    return n
