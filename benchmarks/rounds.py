"""Rounds per CPU second: the usual DataLoader loop, fedlib, and peers.

    python -m benchmarks.rounds                     FedAvg; results/benchmarks.csv
    python -m benchmarks.rounds --peers ~/peers     beside the peers of that folder
    python -m benchmarks.methods                    personal and fair methods, each
                                                    beside its own usual loop

Training and averaging only; one torch thread. Before anything is timed, two rounds of
two passes over the same batches must give the same models in the loop and in every way
of fedlib; how far a peer is off is in its row's note.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import metadata
from pathlib import Path

import torch
from torch.utils.data import DataLoader

import fedlib
from fedlib.methods import METHODS as ALL
from fedlib.methods.base.fedavg import FedAvg

from . import harness, usual
from .cases import NAMES, case
from .peers import PEERS, peers_in

COLUMNS = ["case", "variant", "version", "rounds_per_cpu_s", "low", "high"]
COLUMNS += ["times_loader", "repetitions", "note"]
QUIET = {"device": "cpu", "progress": False, "splits": ("test",)}


@dataclass(frozen=True)
class Setting:
    """hp: of fedlib's method; loop: the same by hand, given `loop_hp`; theirs: {peer:
    its names for the same values}; body: needs a network with a hidden layer.
    """

    loop: type
    hp: dict = field(default_factory=dict)
    theirs: dict = field(default_factory=dict)
    body: bool = False
    loop_hp: dict | None = None

    def usual(self, case, batch=None):
        hp = self.hp if self.loop_hp is None else self.loop_hp
        return self.loop(case, batch, **hp)


def both(**hp):
    """PFLlib and FLGo name a value alike."""
    return {"pfllib": hp, "flgo": hp}


METHODS = {
    "FedAvg": Setting(usual.Usual, {}, both()),
    "FedProx": Setting(usual.FedProx, {"mu": 0.1}, both(mu=0.1)),
    "Ditto": Setting(usual.Ditto, {"lam": 1.0}, both(mu=1.0)),
    "FedPer": Setting(usual.FedPer, {}, {"pfllib": {}}, True),
    "FedRep": Setting(
        usual.FedRep, {"head_epochs": 5}, {"pfllib": {"plocal_epochs": 5}}, True
    ),
    "FedAS": Setting(usual.FedAS, {}, {"pfllib": {}}, True),
    # its weights from the first round on
    "FedGA": Setting(usual.FedGA, {"delayed": False}, loop_hp={}),
}


def suits(name, c):
    """Can the method train the case? A shared body needs a hidden layer."""
    return not METHODS[name].body or len(list(c.module().children())) > 0


def ways(c):
    """How FedAvg of fedlib is timed; None: by its own choice. Batching a ResNet is left
    out: it takes very long.
    """
    return (None, "loop") if c.name == "resnet18" else (None, "loop", "vmap")


@cache
def ticking(method):
    """The class of a method that looks at the clock whenever a round is aggregated."""

    @dataclass(frozen=True)
    class Ticking(method):
        now: callable = field(default=time.process_time, compare=False)
        ticks: list = field(default_factory=list, compare=False)

        def aggregate(self, server, up, r):
            out = super().aggregate(server, up, r)
            self.ticks.append(self.now())
            return out

    return Ticking


def ours(case, how=None, method=FedAvg, **hp):
    """f(n) -> CPU seconds of n rounds inside a real run: from the end of round 0 to the
    end of the last, no evaluation between.
    """

    def f(n):
        timed, draw = ticking(method)(case.task, lr=case.lr, **hp), case.cohorts()
        more = {"rounds": n + 1, "upto": n + 1, "every": n + 2, "how": how}
        fedlib.run(timed, cohort=lambda t: next(draw), **more, **QUIET)
        return timed.ticks[-1] - timed.ticks[0]

    return f


# ---------------------------------------------------------------- do they agree?
def state(method, how, clients, rounds):
    """What server and clients hold after some rounds of the first clients."""
    more = {"rounds": rounds, "upto": rounds, "every": rounds + 1, "how": how} | QUIET
    return fedlib.run(method, cohort=lambda t: torch.arange(clients), **more).state


def kept(clients, i):
    """The tensors of client i's own model, body before head."""
    names = [k for k in ("v", "w", "body", "head") if k in clients]
    return [x[i] for k in names for x in clients[k].values()]


def agree(c, name="FedAvg", hows=(None,), rounds=2, tolerance=1e-9):
    """Refuse to time loops that do not compute the same, in float64: the global model,
    and those that clients keep.
    """
    # with larger steps the first rounds already tell clients apart
    c, s = replace(c, task=c.task.double(), lr=0.1), METHODS[name]
    loop, clients = s.usual(c), min(5, c.task.C)
    loop.epochs = 2  # a pull does nothing in the first step
    loop.loaders = [DataLoader(one.dataset, c.task.batch) for one in loop.loaders]
    for _ in range(rounds):
        loop.round(torch.arange(clients))
    for how in hows:
        method = ALL[name](c.task, lr=c.lr, epochs=2, shuffle=False, **s.hp)
        ours = state(method, how, clients, rounds)
        pairs = [(ours["server"]["w"].values(), loop.model)]
        own = getattr(loop, "own", {}).items()
        pairs += [(kept(ours["clients"], i), model) for i, model in own]
        d = max(usual.difference(w, model.parameters()) for w, model in pairs)
        if not d < tolerance:
            raise SystemExit(
                f"{c.name}: after {rounds} rounds of {name} fedlib ({how}) is {d:.1e} "
                "off the loop of benchmarks/usual.py; mend it, or cases.py"
            )


# ---------------------------------------------------------------- the tables
def here(c, name, hows, reps, seconds):
    """Rows of one method on one case, all variants in this process."""
    agree(c, name, hows)
    s = METHODS[name]
    loop = s.usual(c).rounds(c.cohorts())
    names = {how: " ".join(filter(None, ("fedlib", how))) for how in hows}
    variants = {names[how]: ours(c, how, ALL[name], **s.hp) for how in hows}
    rows = harness.beside_the_loop(loop, variants, reps, seconds)
    rows[0]["version"] = torch.__version__
    for row in rows[1:]:
        row["version"] = metadata.version("fedlib")
    return rows


def there(c, name, peers, reps, seconds):
    """Rows of the peers: what they measure, or why there is nothing."""
    for peer in peers:
        if peer.key in METHODS[name].theirs or name == "FedAvg":
            yield peer.ask(c.name, reps, seconds, name)
        elif peer.with_methods:
            yield {"variant": peer.name, "note": f"{peer.name} has no {name}"}


def command(module, out, cases, methods):
    """Measure and write; methods: None for FedAvg in every way of fedlib."""
    p = harness.parser(module, __doc__, out, cases=cases, reps=7, seconds=1.0)
    if methods:
        p.add_argument("--methods", nargs="+", default=methods, choices=methods)
    p.add_argument("--peers", type=Path, help=f"folder of their environments: {PEERS}")
    p.add_argument("--only-peers", action="store_true", help="the other rows stay")
    args = p.parse_args()
    peers, much = peers_in(args.peers), (args.reps, args.seconds)
    peers = [peer for peer in peers if peer.with_methods or not methods]
    key = ["case", "method", "variant"] if methods else ["case", "variant"]
    torch.set_num_threads(1)
    for c in map(case, args.cases):
        rows = []
        for name in [m for m in args.methods if suits(m, c)] if methods else ["FedAvg"]:
            hows = (None,) if methods else ways(c)
            mine = [] if args.only_peers else here(c, name, hows, *much)
            mine += there(c, name, peers, *much)
            rows += [{"case": c.name, "method": name} | row for row in mine]
        columns = [*key[:-1], *COLUMNS[1:]]
        harness.show(rows, columns)
        about = {"order": ("case", cases), "command": f"python -m benchmarks.{module}"}
        harness.keep(rows, args.out, columns, key, **about)


if __name__ == "__main__":
    command("rounds", "benchmarks.csv", NAMES, None)
