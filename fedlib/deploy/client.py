"""One client: what it makes of a message, and what it keeps.

A round is one message: receive, be scored, train, be scored again, as far as the
message says. A client keeps numbered steps, 0 before round 0, 2t + 1 after the download
of round t, 2t + 2 after its training; a message says on which of them it builds, and
which one counts. So a client whose answer was lost goes on from where it was, and what
is done again gives the same bits.
"""

import inspect
from functools import cache
from pathlib import Path

import torch

from ..core.clients import Clients
from ..core.engine import finite
from ..core.errors import refuse_if
from ..core.files import read_tensors, sources, write_tensors
from ..core.method import Method, overrides
from ..core.task import SPLITS
from ..core.tree import leaves, pick, stack, tmap

SCORED = ("test", "val")
SHORT = 4  # a row of fewer numbers cannot be told from other numbers
ABOUT = {  # what travels beside a tree
    "t": -1,  # the round; -1: before round 0
    "on": 0,  # the step that it builds on
    "done": 0,  # the step that counts: a server that starts again goes on from there
    "receive": False,
    "score": False,
    "train": False,
    "again": False,  # is it scored after training, too?
    "as_if": False,  # is the download received to be scored, and then forgotten?
    "question": "",  # its name
    "run": "",  # the name of the run, which a client keeps its steps apart by
}


@cache
def code():
    """A number that follows from the sources that decide what is computed and sent."""
    of = ("core/*", "pieces/*", "methods/**/*", "nets/*", "deploy/*")
    return int(sources(*(f"{name}.py" for name in of))[:15], 16)


def turn(method, c, fed, about, down, mine, quick=False):
    """Client c's turn of a round -> (what it keeps, its answer), both trees.

    method: on a task that has the rows of client c. down: what it was sent. mine: what
    it keeps. The answer has "up", the upload, and the scores "pre", "post" and "own".
    quick: one batch of every plan, where only names, shapes and types of the answer
    count.
    """
    run, here, shard = alone(method, c, fed, about["t"], quick)
    out = {}

    def score(judge, down, views=None, receives=None):
        trees = stack([down]), stack([mine])
        got = run.score(judge, *trees, here, SCORED, views, receives)
        got.pop("consistency", None)  # it compares rows of different clients
        if "cells" in got:
            got["cells"] = tmap(lambda n: n.round().int(), got["cells"])
        return pick(got, 0)

    if about["question"]:
        return mine, {"answer": question(method, about["question"])(down, mine, shard)}
    if about["receive"]:
        mine = owned(method.receive(down, owned(mine), shard))
    if about["score"]:
        as_if = torch.tensor([True]) if about["as_if"] else None
        out["pre"] = score(method, down, None, as_if)
    if about["train"]:
        mine, out["up"] = map(owned, method.local(down, owned(mine), shard))
        if about["again"] and method.post:
            out["post"] = score(method, down, method.post)
        w, shapes = out["up"].get("w", {}), method.task.shapes
        if about["again"] and fed.own and shapes.keys() <= w.keys():
            out["own"] = score(Method(method.task), {"w": w})
    return mine, out


def begin(method, c, fed):
    """What client c keeps before round 0."""
    if not overrides(method, "client"):
        return {}
    *_, shard = alone(method, c, fed, -1)
    return owned(method.client(method.task.init(fed.seed), shard))


def alone(method, c, fed, t, quick=False):
    """Client c in round t: (how it runs, (its number [1], its shard), the shard)."""
    run = Clients(method, method.task, fed.seed, t, fed.rounds, "loop")
    if quick:
        run.plans = {k: p._replace(steps=1) for k, p in run.plans.items()}
    here = run.shards(torch.tensor([c]))
    return run, here, here[1][0]


def owned(tree):
    """A copy in memory of its own."""
    return tmap(lambda x: x.clone(memory_format=torch.contiguous_format), tree)


# ---------------------------------------------------------------- questions
def question(method, name):
    """The bound method f(tree, mine, shard) that a server may ask for; "inner.report"
    is one of the method inside.

    ValueError for anything else: hooks, private names, functions with other arguments.
    """
    inner = getattr(method, "inner", None)
    if name.startswith("inner.") and isinstance(inner, Method):
        return question(inner, name.removeprefix("inner."))
    f = inspect.getattr_static(type(method), name, None)
    takes = list(inspect.signature(f).parameters) if inspect.isfunction(f) else []
    wrong = hasattr(Method, name) or name.startswith("_")
    none = f"{name!r} is no question of {type(method).__name__}"
    refuse_if(wrong or takes[2:] != ["mine", "shard"], none)
    return getattr(method, name)


def address(method, asked):
    """The name of a question, a bound method: "report", or "inner.report"."""
    if asked.__self__ is method:
        return asked.__name__
    return "inner." + address(method.inner, asked)


# ---------------------------------------------------------------- a client
class Client:
    """Client c of a federation.

    task: its `rows.client_task`. folder: where it keeps its steps, one file for each
    run; None: in memory.
    """

    def __init__(self, fed, c, task, folder=None):
        self.fed, self.c, self.method = fed, c, fed.make(task)
        self.folder, self.steps = folder and Path(folder), {}
        self.owner = {"client": c, "federation": fed.digest}
        self.n = {s: len(getattr(task, s)[c]) for s in SPLITS}
        rows = (r for r in task.x if r.numel() >= SHORT and r.any())
        self.rows = {r.numpy().tobytes() for r in rows}

    def answer(self, about, down):
        """The answer, a tree, to one message, see ABOUT; errors say why none."""
        about = ABOUT | about
        t, on = about["t"], about["on"]
        beyond = f"round {t}: this federation has {self.fed.rounds}"
        refuse_if(not -1 <= t <= self.fed.rounds, beyond)
        steps = self.read(about["run"]) or {0: begin(self.method, self.c, self.fed)}
        keeps = overrides(self.method, "client")
        refuse_if(
            keeps and on not in steps,
            f"client {self.c} keeps steps {sorted(steps)} of this run, and the "
            f"server goes on from {on}: bring back the folder of one of them",
        )
        with torch.no_grad():
            mine = steps.get(on, {})
            new, out = turn(self.method, self.c, self.fed, about, down, mine)
        whole = finite([x[None] for x in leaves(new) + leaves(out)]).all()
        refuse_if(not whole, "the trained model is not finite: lower lr")
        self.refuse_rows(out)
        if keeps and (about["receive"] or about["train"]):
            kept = {k: v for k, v in steps.items() if k in (on, about["done"])}
            now = 2 * t + 1 + about["train"]
            self.write(about["run"], kept | {now: new})
        return out

    def refuse_rows(self, out):
        """ValueError where one of this client's rows is in an answer."""
        d = self.fed.shape
        like = [x for x in leaves(out) if tuple(x.shape[-len(d) :]) == d]
        rows = [r.numpy().tobytes() for x in like for r in x.reshape(-1, *d)]
        held = not self.rows.isdisjoint(rows)
        refuse_if(held, "the answer would hold a row of this client's data")

    # ------------------------------------------------------------ what it keeps
    def file(self, run):
        return self.folder and self.folder / f"client-{self.c}-{run}"

    def read(self, run):
        """{step: what it kept then}; ValueError: damaged, or somebody else's."""
        file = self.file(run)
        if not file or not file.exists():
            return self.steps.get(run, {})
        kept = read_tensors(file, "cpu")
        other = f"{file} belongs to {kept['owner']}, not to {self.owner}"
        refuse_if(kept["owner"] != self.owner, other)
        return kept["steps"]

    def write(self, run, steps):
        self.steps[run] = steps
        if self.folder:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_tensors(self.file(run), {"owner": self.owner, "steps": steps})
