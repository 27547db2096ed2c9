"""Equality with PFLlib: tests/fedlib/methods/goldens/pfllib.npz holds what its FedAS,
FedPAC and FedProto answered on the federation of test_goldens, which says the rules.

Cohorts, batches and strengths are read from pfllib.json, as the servers were given them.
"""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from toys_goldens import (
    FAR,
    SHAPES,
    about,
    answers,
    build,
    gap,
    ours,
    recorded,
    seen,
    vector,
    vectors,
)

from fedlib.core.server import simplex_qp
from fedlib.core.tree import put, tmap, where
from fedlib.methods.personal.fedas import FedAS
from fedlib.methods.personal.fedpac import STEPS, TINY, FedPAC
from fedlib.methods.personal.fedproto import FedProto


# ----------------------------------------------------- what PFLlib reads differently
@dataclass(frozen=True)
class BySixteen(FedAS):
    """Alignment is in batches of 16 whatever the batches of the training."""

    def plans(self):
        plans = super().plans()
        return plans | {"align": plans["align"]._replace(batch=16)}


@dataclass(frozen=True)
class FullBatches(BySixteen):
    """An incomplete batch is left out also where it is the only one, so a client of
    fewer than 16 rows never aligns.
    """

    def receive(self, down, mine, shard):
        w = super().receive(down, mine, shard)["w"]
        body, head = self.task.split(w)
        return {"w": where(shard.n >= 16, body, down["w"]) | head}


@dataclass(frozen=True)
class TheirPAC(FedPAC):
    """Four readings, each of which can be taken back.

    plain: a prototype is the plain mean of the clients' means, whatever their rows.
    in_turn: a mixed head replaces its client's own before the next one is mixed.
    cut: weights below 1e-3 become 0 and the rest is not rescaled.
    swapped: models are received in another order than statistics, here in the opposite
    one, and the k-th mixture goes to the k-th model.
    """

    plain: bool = True
    in_turn: bool = True
    cut: bool = True
    swapped: bool = False

    def aggregate(self, server, up, r):
        new, A = super().aggregate(server, up, r), self.mixtures(up["h"], up["V"])
        order = list(range(len(A)))[:: -1 if self.swapped else 1]
        A = A.flip(0, 1) if self.swapped else A

        def mixed(heads):
            held = heads.clone()
            for i in order:
                held[i] = torch.tensordot(A[i], held if self.in_turn else heads, 1)
            return held

        head = put(server["head"], up["cid"], tmap(mixed, up["head"]))
        return new | {"head": head} | ({"c": plain_mean(up)} if self.plain else {})

    def mixtures(self, h, V):
        if not self.cut:
            return super().mixtures(h, V)
        d = (h[:, None] - h).flatten(2)  # [i, p, K D]
        A = simplex_qp(d @ d.mT + V.diag(), STEPS)
        return torch.where(A < TINY, 0.0, A)


def plain_mean(up):
    """Mean [K, D] of the class means of the clients that hold the class."""
    held = (up["classes"] > 0).to(up["means"].dtype)  # [M, K]
    return torch.einsum("ik,ikd->kd", held, up["means"]) / held.sum(0)[:, None]


# --------------------------------------------------------------------- the comparison
SEEN = {  # (method, array of its goldens) -> the same of our state
    ("fedas", "models"): lambda s: vector(s["server"]["w"]),
    ("fedpac", "models"): lambda s: vector(s["server"]["w"]),
    ("fedpac", "prototypes"): lambda s: s["server"]["c"].numpy(),
    ("fedpac", "heads"): lambda s: vectors(s["server"]["head"]),
    ("fedproto", "models"): lambda s: s["server"]["proto"].numpy(),
}


def their(golden):
    """{name: array} of a golden, and the arguments that it was made with."""
    found = {k: v for k, v in answers("pfllib").items() if k.startswith(f"{golden}/")}
    arrays = {k.split("/")[1]: np.nan_to_num(v) for k, v in found.items()}
    return arrays, about("pfllib")["goldens"][golden]["arguments"]


def given(method, golden, **more):
    """Our method with what PFLlib's was given, and the cohorts of its rounds."""
    said = their(golden)[1]
    kw = {"lam": said["lamda"]} if "lamda" in said else {}
    kw |= {"last": "drop"} if said.get("drop_last") else {}
    m = build("pfllib", method, kw | more, said["batch_size"])
    return m, said["cohorts"]


def gaps(method, golden, how="loop", **more):
    """{name: largest gap of any round}, and of the clients' models in the end."""
    (theirs, _), (m, cohorts) = their(golden), given(method, golden, **more)
    states = [ours(m, r, cohorts, how) for r in range(1, len(cohorts) + 1)]
    found = {
        name: [look(s) for s in states]
        for (family, name), look in SEEN.items()
        if family == golden.split("-")[0]
    }
    clients = states[-1]["clients"]["w"] | states[-1]["server"].get("head", {})
    found["clients"] = vectors({k: clients[k] for k in SHAPES})
    return {k: gap(v, theirs[k]) for k, v in found.items()}


SAME = [
    ("fedas", BySixteen, {}),
    ("fedas-late", BySixteen, {}),
    ("fedas-sixteen", FedAS, {}),
    ("fedas-dropped", FullBatches, {}),
    ("fedpac", TheirPAC, {}),
    ("fedpac-late", TheirPAC, {}),
    ("fedpac-order", TheirPAC, {"swapped": True}),
    ("fedproto", FedProto, {}),
    ("fedproto-absent", FedProto, {}),
]
OTHERWISE = [  # golden, a reading (mostly ours) that is another, where it is seen
    ("fedas", FedAS, {}, "models"),
    ("fedas-late", FedAS, {}, "models"),
    ("fedas-dropped", BySixteen, {}, "models"),
    ("fedas-dropped", FullBatches, {"last": "keep"}, "models"),
    ("fedas-sixteen", FedAS, {"align": "none"}, "models"),
    ("fedas-sixteen", FedAS, {"align": "sample"}, "models"),
    ("fedas-sixteen", FedAS, {"reduction": "sum"}, "models"),
    ("fedas-sixteen", FedAS, {"skip_first": True}, "models"),
    ("fedas-sixteen", FedAS, {"trace": "batch_mean"}, "models"),
    ("fedas-sixteen", FedAS, {"by": "size"}, "models"),
    ("fedas-sixteen", FedAS, {"download": "all"}, "clients"),
    ("fedpac", FedPAC, {}, "models"),
    ("fedpac", TheirPAC, {"plain": False}, "prototypes"),
    ("fedpac", TheirPAC, {"in_turn": False}, "heads"),
    ("fedpac", TheirPAC, {"cut": False}, "heads"),
    ("fedpac-late", FedPAC, {}, "models"),
    ("fedpac-late", TheirPAC, {"plain": False}, "models"),
    ("fedpac-late", TheirPAC, {"lam": 0.0}, "models"),
    ("fedpac-order", TheirPAC, {}, "heads"),
    ("fedproto", FedProto, {"lam": 0.0}, "models"),
    ("fedproto-absent", FedProto, {"lam": 0.0}, "models"),
]


def named(cases):
    return ["-".join([c[0], c[1].__name__, *map(str, c[2].values())]) for c in cases]


@pytest.mark.parametrize("how", ["loop", "vmap"])
@pytest.mark.parametrize("golden, method, kw", SAME, ids=named(SAME))
def test_the_same_numbers_after_every_round(golden, method, kw, how):
    found = gaps(method, golden, how, **kw)
    assert set(found) == set(their(golden)[0]) - {"traces", "hits"}
    assert max(found.values()) < 1e-9, found


@pytest.mark.parametrize("golden, method, kw, at", OTHERWISE, ids=named(OTHERWISE))
def test_another_reading_gives_other_numbers(golden, method, kw, at):
    assert gaps(method, golden, **kw)[at] > FAR


def test_the_same_traces_and_absent_clients_have_theirs_for_nothing():
    """The averaged bodies are the same although we compute the cohort's traces only."""
    theirs = their("fedas-late")[0]["traces"]  # [R, C]
    m, cohorts = given(BySixteen, "fedas-late")
    got = recorded(m, len(cohorts), cohorts).logs["trace"]
    for row, ids, a in zip(theirs, cohorts, got):
        assert gap(a[: len(ids)], row[ids]) < 1e-9
    assert (theirs > 0).all()  # of absent clients, too


def test_our_fedpac_differs_by_these_readings_alone():
    """Taken back one and all, they give our numbers."""
    m, cohorts = given(TheirPAC, "fedpac", plain=False, in_turn=False, cut=False)
    mine = ours(given(FedPAC, "fedpac")[0], len(cohorts), cohorts)["server"]
    again = ours(m, len(cohorts), cohorts)["server"]
    assert gap(vector(again["w"]), vector(mine["w"])) < 1e-12
    assert gap(vectors(again["head"]), vectors(mine["head"])) < 1e-12


@pytest.mark.parametrize("golden", ["fedproto", "fedproto-absent"])
def test_the_same_rows_are_predicted_by_the_servers_prototypes(golden):
    (theirs, _), (m, cohorts) = their(golden), given(FedProto, golden)
    t = m.task
    for r, hits in enumerate(theirs["hits"], 1):
        state = ours(m, r, cohorts)
        down = {k: state["server"][k] for k in ("proto", "held")}
        said = torch.as_tensor(seen(m, "prototype", [down] * t.C, state["clients"]))
        right = (said.argmax(1) == t.y[torch.cat(t.train)]).split([*map(len, t.train)])
        assert [int(c.sum()) for c in right] == hits.tolist()


def test_a_class_that_nobody_online_holds_has_no_prototype_in_either():
    table = answers("pfllib")["fedproto-absent/models"]
    m, cohorts = given(FedProto, "fedproto-absent")
    for r in range(1, len(cohorts) + 1):
        held = ours(m, r, cohorts)["server"]["held"].numpy() > 0
        assert (held == np.isfinite(table[r - 1]).all(1)).all()
    assert np.isnan(table[[0, 2], 2]).all() and np.isfinite(table[[1, 3]]).all()
