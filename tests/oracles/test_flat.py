"""FedSAM and PLGU's three methods, written a second time on two linear layers.

In float64; the answers follow from the text alone.
"""

import math

import numpy as np
import pytest
import torch
from toys_core import Normed, gap, same, toy
from toys_replay import (
    BODY,
    FIXED,
    HEAD,
    SEED,
    averaged,
    batches,
    down,
    f64,
    near,
    run,
    served,
    shard_of,
    slope,
)

from fedlib.core.local import SAM
from fedlib.core.tree import pick, subset
from fedlib.methods.make import make
from fedlib.nets import MLP

NEAR, SIZES = 1e-11, (8, 6, 7)  # rows; batches of four: two a pass
LAYERS = (BODY, HEAD)
KEY = torch.tensor(7)


def test_fedsam_by_hand():
    """eq:fedsam-perturb, eq:fedsam-step: with momentum and decay, which act on w;
    running statistics are read at w, not at w + e."""
    task, rho = toy(sizes=SIZES), 0.3
    w, ws = task.init(SEED), []
    for c in range(3):
        a, v = w, {k: 0 for k in w}
        for b in batches(task, c, 2):
            g = slope(a, b)
            e = shake(g, [1, 1], LAYERS, rho)
            g = slope({k: a[k] + e[k] for k in a}, b)
            v = {k: 0.5 * v[k] + g[k] + 0.1 * a[k] for k in a}
            a = down(a, v, 0.2)
        ws.append(a)
    more = {"epochs": 2, "momentum": 0.5, "decay": 0.1} | FIXED
    got = served(make("FedSAM", task, rho=rho, **more))["w"]
    assert gap(got, averaged(ws, SIZES)) < NEAR
    assert same(got, served(make("FedAvg", task, step=SAM(rho), **more))["w"])
    task = toy(Normed(5, 6, 3), sizes=(4,))
    sam = served(make("FedSAM", task, rho=9.0), how="vmap")["w"]
    plain = served(make("FedAvg", task))["w"]
    assert task.buffers and gap(*(subset(w, task.buffers) for w in (sam, plain))) < NEAR
    assert gap(sam, plain) > 1e-3


def moved(a, b, layer):
    """Euclidean distance of two models on one layer, over its number of weights."""
    gaps = np.concatenate([(a[k] - b[k]).numpy().ravel() for k in layer])
    return float(np.sqrt((gaps**2).sum())) / gaps.size


def mean_one(raw):
    total = sum(raw)
    return [len(raw) * r / total for r in raw] if total > 1e-12 else [1.0] * len(raw)


def test_the_default_number_of_own_layers_and_those_that_are_kept():
    """eq:plgu-mix: five layers, or a quarter of fewer; those that moved most."""
    for hidden, D in (((4,) * 3, 1), ((4,) * 11, 3), ((4,) * 29, 5), ((4,), 1)):
        m = make("PLGU-LF", toy(MLP(5, hidden, 3)))
        w = m.task.init(0)
        mine = {"w": near(w), "seen": torch.tensor(True)}
        theta, s, own = m.start(w, mine, KEY)
        assert int(own.sum()) == D, (hidden, D)
        move = [moved(mine["w"], w, u) for u in m.units(w)]
        assert own.tolist() == [v in sorted(move)[-D:] for v in move]
        kept = {k for unit, o in zip(m.units(w), own) if o for k in unit}
        assert all(
            torch.equal(v, (mine["w"] if k in kept else w)[k]) for k, v in theta.items()
        )


def shake(g, s, layers, rho):
    """rho s_l g_l / |g|."""
    length = math.sqrt(sum(float((v**2).sum()) for v in g.values()))
    each = zip(layers, s)
    return {k: rho * s_l * g[k] / length for layer, s_l in each for k in layer}


def lf(task, cohorts, D, at="w", direction="theta", freeze=False, decay=0.0, rho=0.3):
    """PLGU-LF: server's and clients' models after the rounds of the cohorts given."""
    w, met = task.init(SEED), set()
    theta = {c: w for c in range(task.C)}
    for cohort in cohorts:
        ups = []
        for c in cohort:
            raw = [moved(theta[c], w, layer) for layer in LAYERS]
            order = sorted(range(2), key=lambda i: (-raw[i], i))
            own = [c in met and sum(raw) > 1e-12 and i in order[:D] for i in range(2)]
            s = mean_one(raw) if c in met else [1.0, 1.0]
            kept = {k for layer, o in zip(LAYERS, own) if o for k in layer}
            a, u = {k: theta[c][k] if k in kept else w[k] for k in w}, w
            for b in batches(task, c, 2):
                g = slope(a, b)
                e = shake(g if direction == "theta" else slope(u, b), s, LAYERS, rho)
                where = u if at == "w" else a
                gu = slope({k: where[k] + e[k] for k in a}, b)
                gu = {k: gu[k] + decay * u[k] for k in u}
                still = kept if freeze else ()
                g = {k: g[k] + decay * a[k] for k in g if k not in still}
                a, u = down(a, g, 0.2), down(u, gu, 0.2)
            theta[c] = a
            met.add(c)
            ups.append((len(task.train[c]), u))
        w = averaged([u for _, u in ups], [n for n, _ in ups])
    return w, theta


LF = [{}, {"D": 2, "direction": "w"}, {"at": "theta"}, {"freeze": True, "decay": 0.1}]


@pytest.mark.parametrize("more", LF, ids=str)
def test_lf_by_hand(more):
    """eq:plgu-score, eq:plgu-mix, eq:plgu-perturb, eq:plgu-pair, and what each client
    is served then: client 0 misses the last of three rounds, client 2 never trains."""
    task, hyper, cohorts = toy(sizes=SIZES), {"D": 1} | more, [[0], [0, 1], [1]]
    m = make("PLGU-LF", task, rho=0.3, epochs=2, **FIXED, **hyper)
    rec = run(m, 3, cohort=lambda t: cohorts[min(t, 2)])
    w, theta = lf(task, cohorts, **hyper)
    assert gap(rec.state["server"]["w"], w) < NEAR
    w, x = near(task.init(9)), task.x[:5]
    for c in range(3):
        mine = pick(rec.state["clients"], c)
        assert gap(mine["w"], theta[c]) < NEAR and bool(mine["seen"]) == (c < 2)
        order = np.argsort([-moved(theta[c], w, layer) for layer in LAYERS])
        own = [k for i in order[: hyper["D"]] for k in LAYERS[i]] if c < 2 else []
        mixed = w | {k: theta[c][k] for k in own}
        last = theta[c] if c < 2 else w
        views = m.views({"w": w}, mine, shard_of(m, c))
        for name, v in (("global", w), ("personal", last), ("refreshed", mixed)):
            assert gap([views[name](x)], [task.logits(v, x)]) < NEAR, (c, name)


def grep(task, cohorts, against="last", fresh=False, lr=0.2, rho=0.3):
    """PLGU-GRep: (server's body, clients' heads, clients' bodies)."""
    w, layers = task.init(SEED), (BODY[:1], BODY[1:])  # tensors as layers
    phi, bodies = subset(w, BODY), {}
    heads = {c: subset(w, HEAD) for c in range(task.C)}
    for cohort in cohorts:
        ups = []
        for c in cohort:
            h, v, known = heads[c], phi, [1.0, 1.0]
            for b in batches(task, c, 2):
                h = down(h, slope(phi | h, b, HEAD), lr)
            if c in bodies:
                known = mean_one([moved(bodies[c], phi, layer) for layer in layers])
            for b in batches(task, c):
                g = slope(v | h, b, BODY)
                after, s = down(v, g, lr), known
                if against == "drift":
                    s = mean_one([moved(after, v, layer) for layer in layers])
                e = shake(slope(after | h, b, BODY) if fresh else g, s, layers, rho)
                v = down(after, slope({k: after[k] + e[k] for k in e} | h, b, BODY), lr)
            heads[c], bodies[c] = h, v
            ups.append((len(task.train[c]), v))
        phi = averaged([v for _, v in ups], [n for n, _ in ups])
    return phi, heads, bodies


@pytest.mark.parametrize("more", [{}, {"against": "drift", "fresh": True}], ids=str)
def test_grep_by_hand(more):
    """eq:grep-head under the body as sent, then eq:grep-body twice on each batch."""
    task, cohorts = toy(sizes=SIZES), [[0, 1], [0], [1, 2]]
    m = make("PLGU-GRep", task, rho=0.3, layer="tensor", head_epochs=2, **FIXED, **more)
    rec = run(m, 3, cohort=lambda t: cohorts[min(t, 2)])
    phi, heads, bodies = grep(task, cohorts, **more)
    kept = rec.state["clients"]
    assert gap(rec.state["server"]["w"], phi) < NEAR
    for c in range(3):
        assert gap(pick(kept["head"], c), heads[c]) < NEAR
        assert gap(pick(kept["body"], c), bodies[c]) < NEAR
    # the own head on the body of the day
    body, x = subset(task.init(9), BODY), task.x[:5]
    view = m.views({"w": body}, pick(kept, 1), None)["personal"]
    assert gap([view(x)], [task.logits(body | heads[1], x)]) < NEAR


def test_ghn_client_by_hand():
    """eq:ghn-pair: two steps a batch, the second where the sent scores point."""
    task, s = toy(sizes=SIZES), [1.7, 0.3]
    m = make("PLGU-GHN", task, rho=0.3, epochs=2, **FIXED)
    w = start = task.init(4)
    for b in batches(task, 1, 2):
        g = slope(w, b)
        after, e = down(w, g, 0.2), shake(g, s, LAYERS, 0.3)
        w = down(after, slope({k: after[k] + e[k] for k in e}, b), 0.2)
    mine, up = m.local({"w": start, "s": f64(s)}, {}, shard_of(m, 1))
    assert mine == {} and gap(up["gap"], {k: start[k] - w[k] for k in w}) < NEAR
