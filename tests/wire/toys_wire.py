"""A federation in one process: every message goes as bytes."""

import math
from dataclasses import fields
from functools import cache

from toys_core import GROUPS, Normed, same, seen, state, toy

from fedlib.core.clients import cohort_of
from fedlib.core.engine import run
from fedlib.core.tree import stack
from fedlib.deploy import message
from fedlib.deploy.client import Site
from fedlib.deploy.federation import Federation
from fedlib.deploy.server import serve
from fedlib.methods import METHODS
from fedlib.methods.make import make

R, M, SEED = 3, 3, 1
SIZES = (9, 6, 11, 3)  # four clients, one shorter than a batch
USUAL = {"rounds": R, "seed": SEED, "cohort": M, "every": 2}
QUICK = {"W": 1, "theta": math.inf, "tune": 1, "head_epochs": 1, "J": 2, "size": 12}


task_of = cache(lambda net=None: toy(net, SIZES, groups=GROUPS))


def build(name, task=None, **more):
    known = {f.name for f in fields(METHODS[name])}
    net = Normed(5, 6, 3) if name == "FedBN" else None
    quick = {k: v for k, v in QUICK.items() if k in known}
    return make(name, task or task_of(net), **quick | more)


through = lambda tree: message.loads(message.dumps(tree))


class Parties:
    """A server and the clients of a task, or of a file (fed) with their tasks. spoil(c,
    kind, about, answer): what becomes of an answer, None: it is late. folder: every
    message finds a client that was started anew.
    """

    def __init__(self, method, folder=None, spoil=None, fed=None, tasks=None, **more):
        self.fed = fed or Federation.of(method, **USUAL | more)
        self.spoil, self.folder, self.lines = spoil, folder, []
        self.asked = []  # ((kind, round, client), bytes down, bytes up)
        of = range(self.fed.C)
        self.tasks = tasks or [self.fed.client_task(c, method.task) for c in of]
        self.sites = [] if folder else [self.start(c) for c in of]

    def start(self, c, folder=None):
        return Site(self.fed, c, self.tasks[c], folder)

    def begun(self, c, folder=None):
        site = self.start(c, folder)
        site.answer("client", about(self.fed, t=-1), {})
        return site

    def site(self, c):
        new = self.folder and self.start(c, self.folder / f"client-{c}")
        return new or self.sites[c]

    def answer(self, c, kind, about, tree):
        out = through(self.site(c).answer(kind, about, through(tree)))
        self.asked.append(((kind, about["t"], c), *map(message.size, (tree, out))))
        return self.spoil(c, kind, about, out) if self.spoil else out

    def exchange(self, requests, wait):
        out = {}
        for c, *rest in requests:
            try:
                out[c] = self.answer(c, *rest)
            except Exception as e:
                out[c] = e
        return {c: a for c, a in out.items() if a is not None}

    def serve(self, folder=None):
        self.record = serve(self.fed, self.exchange, folder, self.lines.append)
        return self

    def states(self):
        clients = stack([self.site(c).kept() for c in range(self.fed.C)])
        return {"server": self.record.state["server"], "clients": clients}

    def left(self):
        """(client, round, stage) of those that were left out."""
        words = [x.split() for x in self.lines if "left out of round" in x]
        return [(int(w[1]), int(w[6].strip(",")), w[7].strip(":")) for w in words]


def simulated(method, **more):
    return run(method, how="loop", device="cpu", **USUAL | more)


def agree(parties, record, but=()):
    """The same bits: states, scores, cohorts. but: of views, where some were away; of
    consistency, as nobody has the rows to measure it.
    """
    assert same(parties.states(), state(record))
    mine, theirs = seen(parties.record), seen(record)
    assert list(mine) == list(theirs)
    keys = [k for k in theirs if not any(b in k for b in ("alike", *but))]
    assert [k for k in keys if not same({"": mine[k]}, {"": theirs[k]})] == []


def absent(method, c, t):
    """The cohorts of the simulation, without client c in round t."""
    drawn = lambda s: cohort_of(method, method.task, SEED, s, M)
    return lambda s: drawn(s)[(drawn(s) != c) | (s != t)]


member = lambda method, t: int(cohort_of(method, method.task, SEED, t, M)[1])


def at(c, t, kind, fault=lambda out: None):
    """Client c's answer to one kind of message in round t is spoilt."""
    here = lambda who, k, about: (who, k, about["t"]) == (c, kind, t)
    return lambda *which: fault(which[-1]) if here(*which[:-1]) else which[-1]


def about(fed, **more):
    """What stands beside the tree of a message."""
    steps = {"t": 0, "on": 0, "done": 0}
    return {"code": message.code(), "federation": fed.digest} | steps | more
