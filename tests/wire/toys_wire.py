"""A federation in one process."""

import math
from dataclasses import fields
from functools import cache

from toys_core import GROUPS, Normed, gap, seen, state, toy

from fedlib.core.clients import cohort_of
from fedlib.core.engine import run
from fedlib.core.tree import stack
from fedlib.deploy.client import Client, begin
from fedlib.deploy.federation import Federation
from fedlib.deploy.server import serve
from fedlib.methods import METHODS
from fedlib.methods.make import make

R, M, SEED = 3, 3, 1
TINY = 1e-12
SIZES = (9, 6, 11, 3)  # four clients, one shorter than a batch
USUAL = {"rounds": R, "seed": SEED, "cohort": M, "every": 2}
QUICK = {"W": 1, "theta": math.inf, "tune": 1, "head_epochs": 1, "J": 2, "size": 12}


task_of = cache(lambda net=None: toy(net, SIZES, groups=GROUPS))


def build(name, task=None, **more):
    known = {f.name for f in fields(METHODS[name])}
    net = Normed(5, 6, 3) if name == "FedBN" else None
    quick = {k: v for k, v in QUICK.items() if k in known}
    return make(name, task or task_of(net), **quick | more)


class Parties:
    """A server and the clients of a task, or of a federation (fed) with their tasks.
    spoil(c, about, answer): what becomes of an answer, None: it is late. folder: every
    message finds a client that was started anew."""

    def __init__(self, method, folder=None, spoil=None, fed=None, tasks=None, **more):
        more = USUAL | {"patience": 0} | more
        more["cohort"] = more["cohort"] or 0
        self.fed = fed or Federation.of(method, **more)
        self.spoil, self.folder, self.lines = spoil, folder, []
        self.asked = []  # (round, client, about)
        of = range(self.fed.C)
        cut = lambda c: self.fed.client_task(c, method.task)
        self.tasks = tasks or [cut(c) for c in of]
        self.clients = [self.start(c) for c in of]
        self.n = {c: self.clients[c].n for c in of}

    def start(self, c):
        return Client(self.fed, c, self.tasks[c], self.folder)

    def __call__(self, requests, wait):
        out = {}
        for c, (about, tree) in requests.items():
            client = self.start(c) if self.folder else self.clients[c]
            self.asked.append((about["t"], c, about))
            try:
                out[c] = client.answer(about, tree)
                out[c] = self.spoil(c, about, out[c]) if self.spoil else out[c]
            except Exception as e:
                out[c] = e
        return {c: a for c, a in out.items() if a is not None}

    def serve(self, folder=None):
        self.record = serve(self.fed, self, folder, self.lines.append)
        return self

    def states(self):
        """What server and clients hold at the end."""
        return {"server": self.record.state["server"], "clients": self.kept()}

    def kept(self):
        steps = self.record.state["clients"].get("step")
        if steps is None:
            return {}
        run = self.asked[0][2]["run"]
        of = [self.clients[c].read(run) for c in range(self.fed.C)]
        fresh = lambda c: begin(self.clients[c].method, c, self.fed)
        both = enumerate(zip(of, steps))
        return stack([k[int(s)] if k else fresh(c) for c, (k, s) in both])

    def left(self):
        """(client, round) of those that were left out."""
        words = [x.split() for x in self.lines if "left out of round" in x]
        return [(int(w[1]), int(w[6].strip(":"))) for w in words]


def simulated(method, **more):
    return run(method, how="loop", device="cpu", **USUAL | more)


def agree(parties, record, but=()):
    """The same states, scores, cohorts; to the bit, but that kernels of a processor may
    round by where a row lies in memory. but: of views, where some were away; of
    consistency, as nobody has the rows to measure it."""
    assert gap(parties.states(), state(record)) < TINY
    mine, theirs = seen(parties.record), seen(record)
    assert list(mine) == list(theirs)
    keys = [k for k in theirs if not any(b in k for b in ("alike", *but))]
    assert [k for k in keys if gap({"": mine[k]}, {"": theirs[k]}) > TINY] == []


def absent(method, c, t):
    """The cohorts of the simulation, without client c in round t."""
    drawn = lambda s: cohort_of(method, method.task, SEED, s, M)
    return lambda s: drawn(s)[(drawn(s) != c) | (s != t)]


member = lambda method, t: int(cohort_of(method, method.task, SEED, t, M)[1])


def at(c, t, fault=lambda out: None, kind="train"):
    """Client c's answer in round t is spoilt."""
    here = lambda who, about: (who, about["t"]) == (c, t) and about[kind]
    return lambda who, about, out: fault(out) if here(who, about) else out
