"""Equality with other people's programs: `goldens` holds what FLGo, FedLab, Flower,
fluke and PFLlib answered on one tiny federation, and the makers of these files.

The same numbers must come out after every round. Where a program reads a method
otherwise than fedlib does, its reading (goldens.readings) must give them, ours must not.
"""

import json
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from where import ROOT

from fedlib.core.engine import run
from fedlib.core.method import Round
from fedlib.core.task import Task
from fedlib.core.tree import leaves, pick, rows, subset, tmap, without
from fedlib.methods import METHODS
from fedlib.nets import MLP
from fedlib.pieces.robust import Median
from goldens import readings as read

SHAPES = {"fc1.weight": (5, 4), "fc1.bias": (5,), "fc.weight": (3, 5), "fc.bias": (3,)}
LR, FAR = 0.5, 1e-4  # FAR: readings that are further apart than this are different


@cache
def answers(package):
    with np.load(ROOT / f"goldens/{package}.npz") as f:
        return dict(f)


@cache
def about(package):
    return json.loads((ROOT / f"goldens/{package}.json").read_text())


def tree(v):
    """Vectors [..., P] as a tree of [..., shape]."""
    parts = torch.as_tensor(v).split([int(np.prod(s)) for s in SHAPES.values()], -1)
    return {k: p.reshape(*p.shape[:-1], *s) for (k, s), p in zip(SHAPES.items(), parts)}


@dataclass(frozen=True)
class Given(MLP):
    """Starts from the weights of all programs [P]; norm layers at 1 and 0."""

    start: Any = None

    def init(self, seed, dtype=torch.float64):
        w = super().init(seed, dtype) | tree(self.start)
        return {k: w[k] for k in super().init(seed)}


@cache
def task(package, batch=8, norm="none"):
    a = answers(package)
    x, y, owner = (torch.as_tensor(a[f"data/{k}"]) for k in ("x", "y", "owner"))
    C, N = int(owner.max()) + 1, len(x)
    own = tuple((owner == c).nonzero()[:, 0] for c in range(C))
    test, none = tuple(torch.arange(N, N + C).split(1)), (torch.arange(0),) * C
    net = Given(4, 5, 3, norm=norm, start=a["data/start"])
    x, y = torch.cat([x, x[:C]]), torch.cat([y, y[:C]])
    return Task("goldens", net, x, y, own, none, test, K=3, batch=batch)


def build(package, method, kw, batch=8):
    cls = METHODS[method] if isinstance(method, str) else method
    norm = "batch" if method == "FedBN" else "none"
    how = {"lr": LR, "epochs": 2, "shuffle": False} | kw
    return cls(task(package, batch, norm), **how)


def states(m, R, cohorts=None):
    """What server and clients hold after each round, and what is logged."""
    out, both = [], ("server", "clients")
    look = lambda t, rec: out.append(tmap(torch.clone, subset(rec.state, both)))
    cohort = None if cohorts is None else lambda t: cohorts[t % len(cohorts)]
    more = {"every": R, "how": "loop", "splits": ("test",), "device": "cpu"}
    rec = run(m, rounds=R, cohort=cohort, on_round=look, **more)
    return out[:R], rec.logs


def vectors(w):
    return rows(w).numpy()


def vector(w):
    return np.concatenate([x.reshape(-1) for x in leaves(w)])


def gap(a, b):
    """Largest difference, in units of the largest entry; NaN stands for 0."""
    a, b = (np.nan_to_num(np.asarray(v)) for v in (a, b))
    assert a.shape == b.shape and np.isfinite([a, b]).all()
    return np.abs(a - b).max() / np.abs(b).max()


def models(m, s):
    server = s["server"]
    return server["proto"].numpy() if "proto" in server else vector(server["w"])


def clients(m, s):
    w = without(s["clients"]["w"], m.task.buffers) | s["server"].get("head", {})
    return vectors({k: w[k] for k in m.task.init(0) if k in w})


def hits(m, s):
    """How many training rows of each client the server's prototypes get right."""
    down = subset(s["server"], ("proto", "held"))
    said = torch.as_tensor(said_by(m, "prototype", [down] * m.task.C, s["clients"]))
    right = said.argmax(1) == m.task.y[torch.cat(m.task.train)]
    return [int(c.sum()) for c in right.split([*map(len, m.task.train)])]


AFTER_EACH = {
    "models": models,
    "own": lambda m, s: vectors(s["clients"]["v"]),
    "alphas": lambda m, s: s["clients"]["alpha"].numpy(),
    "control": lambda m, s: vector(s["server"]["c"]),
    "state": lambda m, s: vector(s["server"]["h"]),
    "heads": lambda m, s: vectors(s["server"]["head"]),
    "prototypes": lambda m, s: s["server"]["c"].numpy(),
    "statistics": lambda m, s: vectors(subset(s["clients"]["w"], m.task.buffers)),
    "hits": hits,
}
AT_THE_END = {
    "clients": clients,
    "personal": lambda m, s: vectors(s["clients"]["v"]),
    "lambda": lambda m, s: s["server"]["lam"].numpy(),
    "weights": lambda m, s: vectors(s["clients"]["A"]),
    "m": lambda m, s: vector(s["server"]["v"]),
}


def said_by(m, view, downs, kept=None):
    """What every client says of its own rows [N, K] with what it has downloaded."""
    t, out = m.task, []
    shards = t.shards(0, 2, 2, torch.arange(t.C), m.plans())
    for i, (down, shard) in enumerate(zip(downs, shards)):
        mine = pick(kept, i) if kept else m.client(t.init(0), shard)
        out.append(m.views(down, mine, shard)[view](shard.all().x))
    return torch.cat(out).detach().numpy()


FA = {"momentum": 0.7, "gamma": 0.7, "beta": 0.4}
FA |= {"sign": "released", "acc_at": "before"}
ME = {"inner_steps": 3, "inner_lr": LR, "decay": 0.01, "beta": 0.5}
ONE = {"epochs": 1}  # one pass over one batch
ALA, REP = {"share": 1.0, "cap": 100}, {"epochs": 1, "head_epochs": 3}
ALL, W, V = "models clients", "models", "models personal"
# golden, method (a name: ours as it is), hyper-parameters, arrays that are equal, more
FLGO = [
    ("fedavg", "FedAvg", {}, W, {}),
    ("fedavg-partial", "FedAvg", {}, W, {}),
    ("fedavg-uniform", "Uniform", {}, W, {}),
    ("fedavg-momentum", "FedAvg", {"momentum": 0.9, "decay": 0.01}, W, {}),
    ("fedprox", read.plain(METHODS["FedProx"]), {"mu": 0.3}, W, {}),
    ("fedprox-sizes", "FedProx", {"mu": 0.3}, W, {}),
    ("qfedavg", "q-FedAvg", {"q": 2.0}, W, {"tol": 1e-7}),  # 1e-8 is added to the loss
    ("qfedavg-small", "q-FedAvg", {"q": 0.1}, W, {"tol": 1e-7}),
    ("afl", "AFL", {"gamma": 0.1}, "models lambda", {}),
    ("fedfa", "FedFa", FA, "models m", {}),
    ("fedfa-partial", "FedFa", FA, W, {}),
    ("fedfv", "FedFV", {"alpha": 0.0}, W, {}),
    ("fedfv-kept", "FedFV", {"alpha": 0.4}, W, {}),
    ("fedfv-tau1", read.ThisRound, {"alpha": 1.0, "tau": 1}, W, {}),
    ("fedfv-tau3", read.ThisRound, {"alpha": 0.0, "tau": 3}, W, {}),
    ("fedmgda", "FedMGDA+", {"epsilon": 0.1}, W, {"tol": 1e-6}),  # another solver
    ("fedmgda-free", "FedMGDA+", {"epsilon": 1.0}, W, {"tol": 1e-6}),
    ("ditto", read.plain(METHODS["Ditto"]), {"lam": 0.7}, V, {}),
]
FEDLAB = [
    ("qfedavg", "q-FedAvg", {"q": 2.0} | ONE, W, {}),
    ("qfedavg-batches", read.SummedLoss, {"q": 2.0}, W, {}),
]
FLUKE = [
    ("fedsam", read.Stale, {"rho": 0.3}, W, {}),
    ("fedsam-once", "FedSAM", {"rho": 0.3} | ONE, W, {}),  # nothing is left over
    ("pfedme", read.Untied, ME | {"lam": 1e-300}, W, {}),  # not a bit of theta feels it
    ("fedavg-default", "Uniform", {}, W, {}),
    ("fedprox", "FedProx", {"mu": 0.3}, W, {}),
    ("ditto", "Ditto", {"lam": 0.7, "own": 3}, V, {}),
    ("fedper", "FedPer", {}, ALL, {}),
    ("fedper-partial", "FedPer", {}, W, {}),
    ("fedper-partial", "FedPer-online", {}, ALL, {}),
    ("fedrep", "FedRep", REP, ALL, {}),
    ("lg-fedavg", "LG-FedAvg", {}, ALL, {}),
    ("fedbabu", "FedBABU", {}, W, {}),
    ("fedproto", "FedProto", {"lam": 0.8}, ALL, {}),
    ("fedproto-absent", read.Lasting, {"lam": 0.8}, ALL, {}),
    ("fedala", "FedALA", ALA, "models clients weights", {}),
    ("fedala-strict", "FedALA", ALA | {"tol": 1e-3}, "models clients weights", {}),
    ("fedala-partial", read.OnlineALA, ALA, "models weights", {}),
]
AS, PAC = "models traces clients", "models prototypes heads clients"
PFL = "models own alphas"
PFLLIB = [
    ("fedas", read.BySixteen, {}, AS, {}),
    ("fedas-late", read.BySixteen, {}, AS, {}),
    ("fedas-sixteen", "FedAS", {}, AS, {}),
    ("fedas-dropped", read.FullBatches, {"last": "drop"}, AS, {}),
    ("fedpac", read.TheirPAC, {}, PAC, {}),
    ("fedpac-late", read.TheirPAC, {}, PAC, {}),
    ("fedpac-order", read.TheirPAC, {"swapped": True}, PAC, {}),
    ("fedproto", "FedProto", {}, "models hits clients", {}),
    ("fedproto-absent", "FedProto", {}, "models hits clients", {}),
    ("moon", "MOON", {}, ALL, {"trained": 1}),
    ("moon-late", "MOON", {}, ALL, {"trained": 1}),
    ("apfl", read.TheirAPFL, {}, f"{PFL} clients", {"trained": 1}),
    ("apfl-late", read.TheirAPFL, {}, f"{PFL} clients", {"trained": 1}),
    ("fedbn", "FedBN", {}, "models clients statistics", {"trained": 1}),
    ("fedbn-late", "FedBN", {}, "models clients statistics", {"trained": 1}),
    ("scaffold", "SCAFFOLD", {}, "models control", {}),
    ("scaffold-late", "SCAFFOLD", {}, "models control", {}),
    ("feddyn", read.ByTheNorm, {}, "models state", {}),
    ("feddyn-late", read.ByTheNorm, {}, "models state", {}),
]
SAME = {"flgo": FLGO, "fedlab": FEDLAB, "fluke": FLUKE, "pfllib": PFLLIB}
# a reading, mostly ours, that is another, and the array where it is seen
OTHER = {
    "flgo": [
        ("fedprox", "FedProx", {"mu": 0.3}, W),
        ("fedfa", "FedFa", FA | {"sign": "momentum"}, W),
        ("fedfa", "FedFa", FA | {"acc_at": "after"}, W),
        ("fedfv-tau1", "FedFV", {"alpha": 1.0, "tau": 1}, W),
        ("fedfv-tau3", "FedFV", {"alpha": 0.0, "tau": 3}, W),
        ("fedfv", "Uniform", {}, W),  # there are conflicts to be mitigated
        ("fedfv-kept", "FedFV", {"alpha": 0.0}, W),
    ],
    "fedlab": [("qfedavg-batches", "q-FedAvg", {"q": 2.0}, W)],
    "fluke": [
        ("fedavg-default", "FedAvg", {}, W),
        ("fedsam", "FedSAM", {"rho": 0.3}, W),
        ("fedsam-once", "FedAvg", ONE, W),
        ("pfedme", "pFedMe", ME | {"lam": 2.0, "outer_lr": LR}, W),
        ("fedper-partial", "FedPer", {}, "clients"),
        ("fedproto-absent", "FedProto", {"lam": 0.8}, W),
        ("fedala-strict", "FedALA", ALA, W),
        ("fedala-partial", "FedALA", ALA, W),
    ],
    "pfllib": [
        ("fedas", "FedAS", {}, W),
        ("fedpac", "FedPAC", {}, W),
        ("apfl", "APFL", {}, "own"),
        ("feddyn", "FedDyn", {}, W),
    ],
}
GIVEN = {"lamda": "lam", "server_learning_rate": "server_lr"}
GIVEN |= {k: k for k in ("mu", "tau", "alpha")}


def gaps(package, golden, method, kw, arrays, trained=0, **_):  # of who trained last
    """{array: largest gap, of any round}"""
    a, said = answers(package), about(package)["goldens"][golden]["arguments"]
    if package == "pfllib":  # as its servers were given it
        kw = {ours: said[k] for k, ours in GIVEN.items() if k in said} | kw
    cohorts = said.get("cohorts")
    m = build(package, method, kw, said.get("batch_size", 8))
    after, logs = states(m, len(a[f"{golden}/models"]), cohorts)
    out = {}
    for name in arrays.split():
        theirs = a[f"{golden}/{name}"]
        if name in AFTER_EACH:
            got = [AFTER_EACH[name](m, s) for s in after]
        elif name == "traces":  # of absent clients they have it for nothing
            got = [t[: len(c)] for t, c in zip(logs["trace"], cohorts)]
            theirs = [t[c] for t, c in zip(theirs, cohorts)]
            got, theirs = np.concatenate(got), np.concatenate(theirs)
        else:
            got = AT_THE_END[name](m, after[-1])
            if trained and name == "clients":
                got, theirs = got[cohorts[-1]], theirs[cohorts[-1]]
        out[name] = gap(got, theirs)
    return out


def test_the_same_numbers_after_every_round():
    for package, table in SAME.items():
        for golden, method, kw, arrays, more in table:
            found = max(gaps(package, golden, method, kw, arrays, **more).values())
            assert found < more.get("tol", 1e-9), (package, golden, method)


def test_another_reading_gives_other_numbers():
    for package, table in OTHER.items():
        for golden, method, kw, arrays in table:
            found = min(gaps(package, golden, method, kw, arrays).values())
            assert found > FAR, (package, golden, method, kw)


Q = {"qfedavg": 2.0, "qfedavg-small": 0.1, "qfedavg-zero": 0.0, "qfedavg-older": 2.0}
MEANS = ("fedavg", "fedavg-older", "fedavg-older-all", "fedprox")
MEDIANS = {"median": 4, "median-older": 4, "median-three": 3}


def aggregate(package, method, clients, losses=0.0, **kw):
    """The server's model after one aggregation of the clients' vectors [M, P]."""
    m, ids = build(package, method, kw), torch.arange(len(clients))
    r = Round(0, 1, torch.tensor(0), None, ids)
    n = torch.tensor([float(len(c)) for c in m.task.train], dtype=torch.float64)[ids]
    loss = torch.zeros_like(n) + torch.as_tensor(losses)
    up = {"w": tree(clients), "n": n, "cid": ids, "loss": loss}
    return vector(m.aggregate(m.server(m.task.init(0), r), up, r)["w"])


def test_one_aggregation_of_flower_and_fedlab():
    a, b = answers("flower"), answers("fedlab")
    sent, losses = a["replies/clients"], a["replies/losses"]
    ours = partial(aggregate, "flower")
    for name in MEANS:
        assert gap(ours("FedAvg", sent), a[f"{name}/model"]) < 1e-12
        assert gap(ours("Uniform", sent), a[f"{name}/model"]) > FAR
    for name, M in MEDIANS.items():
        median = ours("FedAvg", sent[:M], rule=Median())
        assert gap(median, a[f"{name}/model"]) < 1e-12
    for name, q in Q.items():  # its older interface knows one loss for all clients
        each = a["qfedavg-older/loss"] if name.endswith("older") else losses
        assert gap(ours("q-FedAvg", sent, each, q=q), a[f"{name}/model"]) < 1e-12
    assert (a["fedprox/mu"] == 0.3).all()
    assert a["replies/sizes"].tolist() == [*map(len, task("flower").train)]
    ours = aggregate("fedlab", "FedAvg", b["aggregate/clients"])
    assert gap(ours, b["aggregate/model"]) < 1e-12


def test_afl_leaves_the_initial_model_out_of_its_average():
    """Here the mean of the models after rounds 1 and 2; theirs counts the start, too."""
    a, m = answers("flgo"), build("flgo", "AFL", {"gamma": 0.1})
    mean = vector(states(m, 2)[0][-1]["server"]["avg"])
    assert gap(a["afl/models"].mean(0), mean) < 1e-9
    assert gap((a["data/start"] + 2 * mean) / 3, a["afl/result"]) < 1e-9


def test_fine_tuned_copies():
    a, m = answers("fluke"), build("fluke", "FedAvg-FT", {"tune": 3})
    down = {"w": states(m, 2)[0][-1]["server"]["w"]}
    assert gap(said_by(m, "tuned", [down] * 4), a["fedavg-tuned/scores"]) < 1e-9
    # of FedBABU the client's own body there, the shared one here
    m = build("fluke", "FedBABU", {"tune": 3})
    (one, two), _ = states(m, 2)
    head = m.task.split(m.task.init(0))[1]
    shards = m.task.shards(0, 1, 2, torch.arange(4), m.plans())
    down = {"w": one["server"]["w"]}
    bodies = [m.local(down, {"w": head}, s)[1]["w"] for s in shards]
    own = np.stack([vector(b | head) for b in bodies])
    assert gap(own, a["fedbabu/clients"]) < 1e-9
    theirs = a["fedbabu-tuned/scores"]
    assert gap(said_by(m, "tuned", [{"w": b} for b in bodies]), theirs) < 1e-9
    assert gap(said_by(m, "tuned", [{"w": two["server"]["w"]}] * 4), theirs) > FAR


def test_prototypes_that_predict():
    """A client's own there, the servers' here; they take the mean over D."""
    a, m = answers("fluke"), build("fluke", "FedProto", {"lam": 0.8})
    (*_, last), _ = states(m, 2)
    own = torch.as_tensor(a["fedproto/prototypes"][-1])  # [C, K, D]
    table = np.nanmean(own, 0)  # plain mean over the clients that hold the class
    assert gap(table, a["fedproto/models"][-1]) < 1e-9
    downs = [{"proto": p.nan_to_num(), "held": p.isfinite().all(1) + 0.0} for p in own]
    got = said_by(m, "prototype", downs, last["clients"])
    theirs = a["fedproto-view/scores"]
    there = np.isfinite(theirs)
    assert (np.isfinite(got) == there).all() and not there.all()
    assert gap(got[there], m.task.network.D * theirs[there]) < 1e-9
    server = subset(last["server"], ("proto", "held"))
    ours = said_by(m, "prototype", [server] * 4, last["clients"])
    assert (ours.argmax(1) != theirs.argmax(1)).any()
