"""The server of a federation: the rounds of fedlib.core.engine, whose clients answer
messages.

    record = serve(federation, exchange, "run")    exchange: who carries the messages

A client that fails, answers too late or answers nonsense is left out of the round, with
one line in the log. A round that too few answer is asked again; then the run ends, and
its state is kept: serve() on the same folder goes on from there.
"""

import time
import uuid
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch

from ..cli.program import one_line
from ..core.clients import cohort_of
from ..core.engine import run
from ..core.errors import refuse_if
from ..core.files import whole as write_whole
from ..core.method import Method
from ..core.task import SPLITS
from ..core.tree import leaves, stack, tmap, unstack
from . import client, rows
from .client import ABOUT, address

PAUSES = 1.0, 60.0  # seconds before a round is asked again, at first and at most
EPS, NAN = 1e-3, float("nan")  # rounding of an accuracy; none


class TooFew(RuntimeError):
    """Too few clients have answered; what was done before is kept."""


def serve(fed, exchange, folder=None, log=print, on_round=None):
    """Run the federation -> its Record, as fedlib.run gives it.

    exchange(requests, wait) -> {c: tree or Exception}; requests {c: (about, tree)}, see
    client.ABOUT. It returns when all have answered or `wait` seconds have passed;
    whoever is missing is late. exchange.n: {client: {split: how many rows it says it
    has}}. folder: where state and record are kept, None: nowhere.

    TooFew, after `fed.patience` seconds. NoRows for a method whose server needs rows.
    """
    n = {s: [exchange.n[c][s] for c in range(fed.C)] for s in SPLITS}
    folder = folder and Path(folder)
    party = Party(fed, n, exchange, named(folder), log)
    what = {k: getattr(fed, k) for k in ("rounds", "seed", "every", "own")}
    how = {"how": "loop", "device": "cpu", "progress": False, "checkpoint_every": 0}
    how |= {"folder": folder, "on_round": on_round, "cohort": fed.cohort or None}
    method, reach = fed.make(rows.server_task(fed, n)), partial(Remote, party)
    return run(method, **what, **how, reach=reach)


def named(folder):
    """The name of a run, kept for a restart: clients keep their steps under it."""
    new = uuid.uuid4().hex[:8]
    if folder is None:
        return new
    path = folder / "run"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(path, lambda f: f.write(new.encode()))
    return path.read_text()


@dataclass(frozen=True)
class Party:
    """What stays during a run: with whom the server talks, and how an answer looks."""

    fed: Any
    n: dict  # {split: [C]}, how many rows the clients say they have
    exchange: Any
    name: str  # of the run
    log: Any

    @cached_property
    def example(self):
        """A method with made-up rows, and what its client keeps before round 0."""
        method = self.fed.make(rows.stand_in(self.fed))
        return method, client.begin(method, 0, self.fed)

    def like(self, about, down):
        """An answer by made-up rows: names, shapes, types that all must have."""
        method, mine = self.example
        return client.turn(method, 0, self.fed, about, down, mine, quick=True)[1]

    def check(self, c, answer, like):
        """Client c's answer as `like`; ValueError for one that cannot be right."""
        if isinstance(answer, Exception):
            raise answer
        size, limit = sum(x.nbytes for x in leaves(answer)), self.fed.limit
        refuse_if(size > limit, f"{size:,} bytes, and the limit is {limit:,}")
        answer = alike(answer, like)
        for name, own in (("cid", c), ("n", self.n["train"][c])):
            said = float(answer.get("up", {}).get(name, own))
            refuse_if(said != own, f"{name!r} is {said:.10g}, not {own}")
        for moment in answer.keys() - {"up", "answer"}:
            for x in map(float, leaves(answer[moment]["acc"])):
                refuse_if(not -EPS <= x <= 1 + EPS, f"an accuracy of {x:.6g}")
        return answer


def alike(tree, like, at="the answer"):
    """The tree in the order of `like`; ValueError: other names or types, or NaN."""
    got, expected = kind(tree), kind(like)
    refuse_if(got != expected, f"{at} is {got}, expected {expected}")
    if isinstance(like, dict):
        return {k: alike(tree[k], v, k) for k, v in like.items()}
    refuse_if(not tree.isfinite().all(), f"{at} holds NaN or infinity")
    return tree


def kind(x):
    """What a part of an answer is: the names in it, or type and shape."""
    if isinstance(x, torch.Tensor):
        return f"{x.dtype} {list(x.shape)}"
    return sorted(x) if isinstance(x, dict) else type(x).__name__


class Remote:
    """The clients of round t, as the engine reaches them (core.clients.Clients). What
    one keeps stays with it; here is only the step that it has reached.

    Receive, scores and training are one message, sent when the engine asks for the
    first of them; but where each client is sent its own download, which the method
    makes anew for each of them, they are apart.
    """

    def __init__(self, party, fed, t):
        self.party, self.method, self.t = party, fed.method, t
        self.answers, self.late, self.down, self.done = {}, set(), {}, None
        C, last = fed.task.C, t == fed.R
        cohort = cohort_of(fed.method, fed.task, fed.seed, t, fed.cohort).tolist()
        self.trains = set() if last or t < 0 else {*cohort}
        scored = {"score"} if last or t % fed.every == 0 else set()
        self.todo = {c: {*scored} for c in range(C)}
        for c in self.trains:
            again = scored and (fed.method.post or fed.own)
            self.todo[c] |= {"train", "again"} if again else {"train"}
        needs_all = fed.method.who == "all" or fed.own
        self.needed = C if needs_all else min(party.fed.minimum, len(cohort))

    def shards(self, ids):
        return ids, None

    def present(self, ids):
        return ids[[c not in self.late for c in ids.tolist()]]

    def each(self, f, trees, at_hand, stage):
        return {"step": torch.zeros(len(at_hand[0]), dtype=torch.long)}

    def keep(self, f, down, clients, at_hand, stage):
        ids = at_hand[0]
        if stage == "receive":  # with the rest, as a rule
            for c in ids.tolist():
                self.todo[c].add("receive")
            self.turn({"receive"}, ids, down, clients, first=False)
            return {}
        self.turn({"train", "again"}, ids, down, clients)
        return stack([self.answers[c]["up"] for c in self.present(ids).tolist()])

    def score(self, method, down, clients, at_hand, splits, views=None, receives=None):
        """Scores of all of at_hand: NaN, and counts of 0, of those that are late."""
        ids = at_hand[0]
        moment = "own" if type(method) is Method else "post" if views else "pre"
        if moment == "pre":
            as_if = () if receives is None else ids[receives.bool()].tolist()
            self.turn({"score"}, ids, down, clients, as_if)
        got = {c: a[moment] for c, a in self.answers.items() if moment in a}
        blank = lambda x: torch.full_like(x, NAN if x.is_floating_point() else 0)
        missing = tmap(blank, next(iter(got.values())))
        out = stack([got.get(c, missing) for c in ids.tolist()])
        if "cells" in out:  # nobody has the rows of two clients side by side
            out["consistency"] = dict.fromkeys(out["acc"], torch.zeros(len(ids), 2))
        return out

    def ask(self, question, tree, clients, at_hand):
        ids, about = at_hand[0], {"question": address(self.method, question)}
        requests = {c: (about, tree) for c in ids.tolist()}
        got = self.asked(requests, clients, len(ids))
        return stack([got[c]["answer"] for c in ids.tolist()])

    def turn(self, parts, ids, down, clients, as_if=(), first=True):
        """What is still to do in this round at ids, and at those that receive; only
        `parts` of it where downloads differ. first = False: it can wait until then."""
        alike = not any(x.stride(0) for x in leaves(down))
        self.down |= dict(zip(ids.tolist(), unstack(down, len(ids))))
        if alike and not first:
            return
        requests = {}
        for c, tree in self.down.items():
            if now := self.todo[c] if alike else self.todo[c] & parts:
                about = dict.fromkeys(now, True) | {"as_if": c in as_if}
                requests[c], self.todo[c] = (about, tree), self.todo[c] - now
        got = self.asked(requests, clients, self.needed)
        for c, answer in got.items():
            self.answers[c] = self.answers.get(c, {}) | answer
            about, _ = requests[c]
            if clients and ("receive" in about or "train" in about):
                clients["step"][c] = 2 * self.t + 1 + ("train" in about)
        self.down = {}

    def asked(self, requests, clients, needed):
        """{client: answer} of `needed` that train; TooFew where they are late."""
        party, (pause, longest) = self.party, PAUSES
        steps = clients["step"].tolist() if clients else [0] * party.fed.C
        self.done = self.done or steps
        base = ABOUT | {"t": self.t, "run": party.name}
        left = {
            c: (base | about | {"on": steps[c], "done": self.done[c]}, down)
            for c, (about, down) in requests.items()
            if c not in self.late
        }
        busy = left.keys() & self.trains or left
        likes, good, until = {}, {}, time.monotonic() + party.fed.patience
        while left:
            got, why = party.exchange(left, party.fed.wait), {}
            for c, (about, down) in left.items():
                kind = tuple(v for k, v in about.items() if k not in ("on", "done"))
                if kind not in likes:
                    likes[kind] = party.like(about, down)
                try:
                    answer = got.get(c, TimeoutError("no answer in time"))
                    good[c] = party.check(c, answer, likes[kind])
                except Exception as e:  # whatever a client does, it is its own problem
                    why[c] = one_line(e)[:300] or type(e).__name__
            left = {c: left[c] for c in why}
            here = sum(c in good for c in busy)
            if here >= min(needed, len(busy)):
                break
            said = "; ".join(f"client {c}: {w}" for c, w in why.items())
            said = f"round {self.t}: {here} of {needed} answers; {said}"
            if time.monotonic() + pause > until:
                raise TooFew(f"{said}. What was done before is kept: start again")
            party.log(f"{said}. Asked again in {pause:g} s")
            time.sleep(pause)
            pause = min(2 * pause, longest)
        for c in left:
            self.late.add(c)
            party.log(f"client {c} left out of round {self.t}: {why[c]}")
        return good
