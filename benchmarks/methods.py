"""Rounds of personal and fair methods per CPU second: the usual loop, fedlib, and peers
with code of their own for the method.

    python -m benchmarks.methods                                  the loop and fedlib
    PFLLIB=/path/to/PFLlib python -m benchmarks.methods \\
        --peer pfllib=/path/to/venv/bin/python --peer flgo=...

Writes results/benchmarks-methods.csv and its provenance as json. Training and averaging
only; one torch thread. The usual loop here is that of the same method (by_hand.py).
Before anything is timed, two rounds of two passes over the same batches must give the
same models in it and in fedlib; for peers the difference of the global model after two
such rounds with full batches is in the row's note.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

import pandas as pd
import torch
from torch.utils.data import DataLoader

from fedlib.methods import METHODS as ALL

from . import by_hand, clock
from .cases import SMALL, case
from .ours import ours, state, version
from .peers.ask import NAMES, ROOT, ask, given
from .rounds import COLUMNS as ROUNDS
from .rows import keep
from .usual import Usual, difference

COLUMNS = ["case", "method", *ROUNDS[1:]]
WITH_METHODS = ("pfllib", "flgo")  # the peers that are asked for more than FedAvg


@dataclass(frozen=True)
class Setting:
    """hp: of fedlib's method; loop: the same by hand, given `loop_hp`; theirs: {peer:
    its names for the same values}; body: needs a network with a hidden layer.
    """

    loop: type
    hp: dict = field(default_factory=dict)
    loop_hp: dict | None = None
    theirs: dict = field(default_factory=dict)
    body: bool = False

    def usual(self, case, batch=None):
        return self.loop(
            case, batch, **self.hp if self.loop_hp is None else self.loop_hp
        )


METHODS = {
    "FedAvg": Setting(Usual, theirs={"pfllib": {}, "flgo": {}}),
    "FedProx": Setting(
        by_hand.FedProx,
        {"mu": 0.1},
        theirs={"pfllib": {"mu": 0.1}, "flgo": {"mu": 0.1}},
    ),
    "Ditto": Setting(
        by_hand.Ditto, {"lam": 1.0}, theirs={"pfllib": {"mu": 1.0}, "flgo": {"mu": 1.0}}
    ),
    "FedPer": Setting(by_hand.FedPer, theirs={"pfllib": {}}, body=True),
    "FedRep": Setting(
        by_hand.FedRep,
        {"head_epochs": 5},
        theirs={"pfllib": {"plocal_epochs": 5}},
        body=True,
    ),
    "FedAS": Setting(by_hand.FedAS, theirs={"pfllib": {}}, body=True),
    "PLGU-GRep": Setting(by_hand.PLGUGRep, {"head_epochs": 5}, body=True),
    # its weights from the first round on
    "FedGA": Setting(by_hand.FedGA, {"delayed": False}, {}),
}


def suits(name, c):
    """Can the method train the case? A shared body needs a hidden layer."""
    return not METHODS[name].body or len(list(c.module().children())) > 0


def kept(clients, i):
    """The tensors of client i's own model, body before head."""
    names = [k for k in ("v", "w", "body", "head") if k in clients]
    return [x[i] for k in names for x in clients[k].values()]


def agree(c, name, clients=5, rounds=2, tolerance=1e-9):
    """Refuse to time loops that do not compute the same, in float64: the global model,
    and those that clients keep.
    """
    # with larger steps the first rounds already tell clients apart
    c, s = replace(c, task=c.task.double(), lr=0.1), METHODS[name]
    usual = s.usual(c)
    usual.epochs = 2  # a pull does nothing in the first step
    usual.loaders = [DataLoader(one.dataset, c.task.batch) for one in usual.loaders]
    for _ in range(rounds):
        usual.round(torch.arange(clients))
    method = ALL[name](c.task, lr=c.lr, epochs=2, shuffle=False, **s.hp)
    ours = state(method, None, clients, rounds)
    d = difference(ours["server"]["w"].values(), usual.model.parameters())
    for i, model in getattr(usual, "own", {}).items():
        d = max(d, difference(kept(ours["clients"], i), model.parameters()))
    if not d < tolerance:
        raise SystemExit(
            f"{c.name}: after {rounds} rounds of {name} fedlib and the loop of "
            f"benchmarks/by_hand.py differ by {d:.1e}; mend the loop"
        )


def here(c, name, reps, seconds):
    """Rows of one method on one case, all variants in this process."""
    agree(c, name)
    s = METHODS[name]
    usual, draw = s.usual(c), c.cohorts()

    def loop(n):
        for _ in range(n):
            usual.round(next(draw))

    variants = {"DataLoader loop": loop, "fedlib": ours(c, None, ALL[name], s.hp)}
    rows = clock.summary(clock.interleave(variants, reps, seconds), "DataLoader loop")
    versions = {"DataLoader loop": torch.__version__, "fedlib": version()}
    same = {"case": c.name, "method": name}
    return [same | {"version": versions[r["variant"]]} | r for r in rows]


def there(c, name, peers, reps, seconds):
    """Rows of the peers: what they measure, or why there is nothing."""
    rows = []
    for who, python in peers:
        if who in METHODS[name].theirs:
            rows += ask(who, python, c.name, reps, seconds, name)
        elif who in WITH_METHODS:
            row = {"case": c.name, "method": name, "variant": NAMES[who]}
            rows.append(row | {"note": f"{NAMES[who]} has no {name}"})
    return rows


def main():
    p = argparse.ArgumentParser(
        prog="python -m benchmarks.methods", description=__doc__.partition("\n\n")[0]
    )
    p.add_argument("--cases", nargs="+", default=SMALL, choices=SMALL, metavar="CASE")
    p.add_argument(
        "--methods", nargs="+", default=[*METHODS], choices=METHODS, metavar="METHOD"
    )
    p.add_argument("--reps", type=int, default=7)
    p.add_argument(
        "--seconds",
        type=float,
        default=1.0,
        help="CPU seconds per variant and repetition",
    )
    p.add_argument(
        "--peer",
        action="append",
        default=[],
        metavar="NAME=PYTHON",
        help=", ".join(WITH_METHODS),
    )
    p.add_argument(
        "--out", type=Path, default=ROOT / "results" / "benchmarks-methods.csv"
    )
    args = p.parse_args()
    peers = given(args.peer, p)
    torch.set_num_threads(1)
    for c in map(case, args.cases):
        new = []
        for name in args.methods:
            if suits(name, c):
                new += here(c, name, args.reps, args.seconds)
                new += there(c, name, peers, args.reps, args.seconds)
        table = pd.DataFrame(new, columns=COLUMNS)
        print(table.round(3).to_string(index=False, na_rep=""), flush=True)
        keep(
            new,
            args.out,
            COLUMNS,
            ("case", "method", "variant"),
            SMALL,
            "python -m benchmarks.methods",
        )


if __name__ == "__main__":
    sys.exit(main())
