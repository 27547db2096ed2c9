"""PLGU's three methods against answers written down by hand, their limits,
and their readings. In float64.
"""

import itertools
import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from toys_core import Normed, bowls, gap, same, seen, state, toy

from fedlib.core import engine, shards
from fedlib.core.random import fold, normal
from fedlib.core.tree import add, pick, subset, without
from fedlib.methods import METHODS
from fedlib.methods.base.fedavg import FedAvg
from fedlib.methods.flat.fedsam import FedSAM
from fedlib.methods.flat.plgu import largest
from fedlib.methods.flat.plgu_ghn import PLGUGHN
from fedlib.methods.flat.plgu_grep import PLGUGRep
from fedlib.methods.flat.plgu_lf import PLGULF
from fedlib.methods.personal.pfedhn import PFedHN
from fedlib.nets import MLP, Linear
from fedlib.study.identity import resolved

SEED, NEAR = 1, 1e-12
KEY = torch.tensor(7)  # where nothing is drawn from it
# the two layers of the toy's network
BODY, HEAD = ("fc1.weight", "fc1.bias"), ("fc.weight", "fc.bias")
FIXED = {"lr": 0.2, "shuffle": False}  # the same batches in every pass
ALL = (PLGULF, PLGUGRep, PLGUGHN)
SIZES = (8, 6, 7)  # rows; batches of four: two a pass


def run(method, rounds=3, **more):
    return engine.run(
        method, rounds=rounds, **({"seed": SEED, "how": "loop", "device": "cpu"} | more)
    )


def server_of(rec):
    return rec.state["server"]["w"]


def client_of(rec, c, name="w"):
    return pick(rec.state["clients"][name], c)


def shard_of(method, c, t=0):
    (shard,) = method.task.shards(SEED, t, 5, torch.tensor([c]), method.plans())
    return shard


# -------------------------------------------- the methods by hand, on two linear layers
def batches(task, c, passes):
    """The rows of client c, four at a time, in their own order."""
    rows = task.train[c]
    for i in [*range(0, len(rows), 4)] * passes:
        yield task.x[rows[i : i + 4]], task.y[rows[i : i + 4]]


def slope(w, xy, names=None):
    """Gradient of the mean cross-entropy at w by torch's autograd,
    for the tensors named (default: all).
    """
    w, (x, y) = {k: v.detach().clone() for k, v in w.items()}, xy
    names = list(names or w)
    with torch.enable_grad():
        for k in names:
            w[k].requires_grad_()
        z = (x @ w["fc1.weight"].T + w["fc1.bias"]).clamp(min=0) @ w["fc.weight"].T + w[
            "fc.bias"
        ]
        return dict(
            zip(
                names, torch.autograd.grad(F.cross_entropy(z, y), [w[k] for k in names])
            )
        )


def moved(a, b, layer):
    """Euclidean distance of two models on one layer, over its number of weights."""
    gaps = np.concatenate([(a[k] - b[k]).numpy().ravel() for k in layer])
    return float(np.sqrt((gaps**2).sum())) / gaps.size


def mean_one(raw):
    return (
        [len(raw) * r / sum(raw) for r in raw] if sum(raw) > 1e-12 else [1.0] * len(raw)
    )


def shake(g, s, layers, rho, on=None):
    """rho s_l g_l / |g| on the layers that are `on`, |g| over these together;
    0 on the others.
    """
    on = [True] * len(layers) if on is None else on
    length = math.sqrt(
        sum(
            float((g[k] ** 2).sum()) for layer, o in zip(layers, on) if o for k in layer
        )
    )
    return {
        k: rho * s_l * g[k] / length if o else 0 * g[k]
        for layer, s_l, o in zip(layers, s, on)
        for k in layer
    }


def down(w, g, lr):
    return {k: w[k] - lr * g[k] if k in g else w[k] for k in w}


def weighted(ups):
    """[(n, model)] -> their average by n."""
    return {
        k: sum(n * u[k] for n, u in ups) / sum(n for n, _ in ups) for k in ups[0][1]
    }


def lf(
    task,
    cohorts,
    passes,
    lr,
    rho,
    D,
    at="w",
    direction="theta",
    freeze=False,
    perturb="all",
    first="copy",
    uniform=False,
    keep="moved",
):
    """PLGU-LF: server's and clients' models after the rounds whose
    cohorts are given.
    """
    layers = (BODY, HEAD)
    w = task.init(SEED)
    theta, met = (
        {c: w for c in range(task.C)},
        {c: first == "initial" for c in range(task.C)},
    )
    for cohort in cohorts:
        ups = []
        for c in cohort:
            raw = [moved(theta[c], w, layer) for layer in layers]
            order = {
                "moved": sorted(range(2), key=lambda i: (-raw[i], i)),
                "first": [0, 1],
                "last": [1, 0],
            }[keep]
            own = [met[c] and sum(raw) > 1e-12 and i in order[:D] for i in range(2)]
            s = mean_one(raw) if met[c] and not uniform else [1.0, 1.0]
            a = {
                k: theta[c][k] if o else w[k]
                for layer, o in zip(layers, own)
                for k in layer
            }
            u = w
            on = {
                "all": [True] * 2,
                "personal": own,
                "universal": [not o for o in own],
            }[perturb]
            for b in batches(task, c, passes):
                g = slope(a, b)
                e = (
                    shake(
                        g if direction == "theta" else slope(u, b), s, layers, rho, on
                    )
                    if any(on)
                    else {k: 0 for k in a}
                )
                where = u if at == "w" else a
                gw = slope({k: where[k] + e[k] for k in a}, b)
                still = [
                    k for layer, o in zip(layers, own) if o and freeze for k in layer
                ]
                a, u = (
                    down(a, {k: g[k] for k in g if k not in still}, lr),
                    down(u, gw, lr),
                )
            theta[c], met[c] = a, True
            ups.append((len(task.train[c]), u))
        w = weighted(ups)
    return w, theta


@pytest.mark.parametrize(
    "cohorts", [[[0, 1], [0, 1]], [[0], [0, 1], [1, 2]], [[0, 1], [0], [1]]], ids=str
)
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"D": 0},
        {"D": 2},
        {"at": "theta"},
        {"direction": "w"},
        {"freeze": True},
        {"perturb": "universal"},
        {"perturb": "personal"},
        {"first": "initial"},
        {"uniform": True},
        {"keep": "first"},
        {"keep": "last"},
        {"at": "theta", "direction": "w", "freeze": True},
    ],
    ids=str,
)
def test_lf_by_hand(cohorts, more):
    """Two batches a pass, two passes.

    A first training, here or later, has equal scores and nothing of its own.
    """
    task, hyper = toy(sizes=SIZES), {"D": 1, "rho": 0.3} | more
    rec = run(
        PLGULF(task, epochs=2, **FIXED, **hyper),
        len(cohorts),
        cohort=lambda t: cohorts[min(t, len(cohorts) - 1)],
    )
    w, theta = lf(task, cohorts, passes=2, lr=0.2, **hyper)
    assert gap(server_of(rec), w) < NEAR
    for c in range(3):
        assert gap(client_of(rec, c), theta[c]) < NEAR
        assert bool(rec.state["clients"]["seen"][c]) == any(c in ids for ids in cohorts)


def test_the_literal_algorithm_1_moves_the_copy_by_gradients_of_the_own_model():
    """at = "theta": from a first training on, the own model and the copy differ only by
    what the perturbation does to them.
    """
    task = toy(sizes=SIZES)
    rec = run(PLGULF(task, at="theta", D=1, rho=0.3, **FIXED), 1, cohort=lambda t: [1])
    w0 = task.init(SEED)
    a = u = w0
    for b in batches(task, 1, 1):
        g = slope(a, b)
        length = math.sqrt(sum(float((v**2).sum()) for v in g.values()))
        shaken = slope({k: a[k] + 0.3 * g[k] / length for k in a}, b)
        a, u = {k: a[k] - 0.2 * g[k] for k in a}, {k: u[k] - 0.2 * shaken[k] for k in u}
    assert gap(client_of(rec, 1), a) < NEAR and gap(server_of(rec), u) < NEAR
    assert (
        gap(
            server_of(
                run(PLGULF(task, D=1, rho=0.3, **FIXED), 1, cohort=lambda t: [1])
            ),
            u,
        )
        > 1e-4
    )


def grep(task, cohorts, head_passes, lr, rho, against="last", fresh=False, steps=None):
    """PLGU-GRep: (server's body, clients' heads, clients' bodies)."""
    w = task.init(SEED)
    phi, heads = (
        {k: w[k] for k in BODY},
        {c: {k: w[k] for k in HEAD} for c in range(task.C)},
    )
    bodies = {}
    layers = (BODY[:1], BODY[1:])  # tensors as layers: a body of two
    for cohort in cohorts:
        ups = []
        for c in cohort:
            h, v = heads[c], phi
            for b in batches(task, c, head_passes):
                h = down(h, slope(phi | h, b, HEAD), lr)
            known = (
                mean_one([moved(bodies[c], phi, layer) for layer in layers])
                if c in bodies
                else [1.0, 1.0]
            )
            for b in itertools.islice(batches(task, c, 1), steps):
                g = slope(v | h, b, BODY)
                after = down(v, g, lr)
                s = (
                    known
                    if against == "last"
                    else mean_one([moved(after, v, layer) for layer in layers])
                )
                e = shake(slope(after | h, b, BODY) if fresh else g, s, layers, rho)
                v = down(after, slope({k: after[k] + e[k] for k in e} | h, b, BODY), lr)
            heads[c], bodies[c] = h, v
            ups.append((len(task.train[c]), v))
        phi = weighted(ups)
    return phi, heads, bodies


@pytest.mark.parametrize("cohorts", [[[0, 1], [0, 1]], [[0, 1], [0], [1, 2]]], ids=str)
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"against": "drift"},
        {"fresh": True},
        {"steps": 1},
        {"against": "drift", "fresh": True},
    ],
    ids=str,
)
def test_grep_by_hand(cohorts, more):
    """First the head, under the downloaded body;
    then two steps of the body on each batch.
    """
    task = toy(sizes=SIZES)
    m = PLGUGRep(task, rho=0.3, layer="tensor", head_epochs=2, **FIXED, **more)
    rec = run(m, len(cohorts), cohort=lambda t: cohorts[min(t, len(cohorts) - 1)])
    phi, heads, bodies = grep(task, cohorts, 2, 0.2, 0.3, **more)
    assert gap(server_of(rec), phi) < NEAR
    for c in range(3):
        assert gap(client_of(rec, c, "head"), heads[c]) < NEAR
        assert c not in bodies or gap(client_of(rec, c, "body"), bodies[c]) < NEAR


def test_grep_serves_the_body_of_the_day_under_the_own_head():
    task = toy(sizes=SIZES)
    m = PLGUGRep(task, **FIXED)
    rec = run(m, 2, cohort=lambda t: [t])  # client 2 never trains
    x = task.x[:5]
    body = subset(task.init(9), BODY)
    for c in range(3):
        mine = pick(rec.state["clients"], c)
        want = task.logits(body | mine["head"], x)
        assert torch.equal(m.views({"w": body}, mine, None)["personal"](x), want)
    assert same(client_of(rec, 2, "head"), subset(task.init(SEED), HEAD))
    assert rec.meta["bytes"]["up"]["w"]["values"] == sum(
        task.shapes[k].numel() for k in BODY
    )


def ghn(task, **more):
    """A hypernetwork whose models differ visibly, and its state after one round."""
    m = PLGUGHN(task, width=7, spread=1.0, **FIXED, **more)
    return m, run(m, 1).state["server"]


def test_ghn_scores_are_those_against_the_mean_of_all_models():
    task = toy()
    m, server = ghn(task)
    everybody, ids = m.send(server, torch.arange(6))["w"], torch.tensor([4, 1, -1])
    sent = m.send(server, ids)
    mean = {k: v.mean(0) for k, v in everybody.items()}
    for i in range(3):
        want = mean_one(
            [moved(pick(sent["w"], i), mean, layer) for layer in (BODY, HEAD)]
        )
        assert np.allclose(sent["s"][i], want, atol=NEAR) and abs(want[0] - 1) > 1e-3
    assert same(sent["w"], PFedHN(task, width=7, spread=1.0).send(server, ids)["w"])


def test_ghn_client_by_hand():
    """Two steps a batch, the second at the point that the first gradient and the sent
    scores give; up goes minus the way.
    """
    task, s = toy(sizes=SIZES), [1.7, 0.3]
    m = PLGUGHN(task, rho=0.3, epochs=2, **FIXED)
    w = start = task.init(4)
    for b in batches(task, 1, 2):
        g = slope(w, b)
        after = down(w, g, 0.2)
        e = shake(g, s, (BODY, HEAD), 0.3)
        w = down(after, slope({k: after[k] + e[k] for k in e}, b), 0.2)
    mine, up = m.local(
        {"w": start, "s": torch.tensor(s, dtype=torch.float64)}, {}, shard_of(m, 1)
    )
    assert mine == {} and gap(up["gap"], {k: start[k] - w[k] for k in w}) < NEAR


def test_ghn_alone_or_with_one_model_for_all_has_equal_scores():
    for task, spread in ((toy(sizes=(9,)), 1.0), (toy(), 0.0)):
        m = PLGUGHN(task, width=7, spread=spread)
        s = m.send(run(m, 0).state["server"], torch.arange(task.C))["s"]
        assert torch.equal(s, torch.ones_like(s))


# ---------------------------------------------------------------- scores
def tree(seed, like):
    return normal(fold(torch.tensor(7), seed), like)


def test_scores_have_mean_one_and_shares_sum_one():
    m = PLGULF(toy(MLP(5, (6, 4, 7), 3)))
    a, b = (tree(i, m.task.init(0)) for i in range(2))
    raw = m.movement(a, b)
    units = [(f"{name}.weight", f"{name}.bias") for name in ("fc1", "fc2", "fc3", "fc")]
    assert np.allclose(raw, [moved(a, b, layer) for layer in units], atol=NEAR)
    s = m.scores(raw)
    assert len(s) == m.L == 4 and float(s.mean()) == pytest.approx(1, abs=NEAR)
    assert float((s / m.L).sum()) == pytest.approx(1, abs=NEAR)
    assert np.allclose(s / m.L, raw / raw.sum(), atol=NEAR)


def test_equal_models_have_equal_scores_and_no_layer_of_their_own():
    m = PLGULF(toy(), D=2)
    w = m.task.init(0)
    start, s, own = m.start(w, {"w": w, "seen": torch.tensor(True)}, KEY)
    assert torch.equal(s, torch.ones(2, dtype=s.dtype))
    assert not own.any()
    assert same(start, w)
    other = tree(1, w)
    start, s, own = m.start(w, {"w": other, "seen": torch.tensor(True)}, KEY)
    assert own.all() and same(start, other) and abs(float(s[0]) - 1) > 1e-3


def test_at_equal_movement_per_weight_the_small_layer_has_the_large_score():
    """|.| / dim favours small layers, by the root of their sizes; "root" is the
    root-mean-square movement: no favour.
    """
    task = toy()
    w = task.init(0)
    v = {k: x + 0.5 for k, x in w.items()}
    sizes = np.array([5 * 6 + 6, 6 * 3 + 3])
    dim, root = (PLGULF(task, by=by).movement(v, w) for by in ("dim", "root"))
    assert np.allclose(dim, 0.5 / np.sqrt(sizes), atol=NEAR)
    assert np.allclose(root, 0.5, atol=NEAR)
    assert int(dim.argmax()) == 1
    tensors = PLGULF(task, layer="tensor")
    assert tensors.L == 4
    assert tensors.units(w) == (
        ("fc1.weight",),
        ("fc1.bias",),
        ("fc.weight",),
        ("fc.bias",),
    )
    assert np.allclose(tensors.movement(v, w), 0.5 / np.sqrt([30, 6, 18, 3]), atol=NEAR)
    # the biases
    assert largest(tensors.movement(v, w), 2).tolist() == [False, True, False, True]


@pytest.mark.parametrize(
    "raw",
    [[3.0, 1, 2, 2, 2], [0.0, 0, 0, 0, 0], [1.0, 2, 3, 4, 5], [2.0, 2, 1, 2, 0]],
    ids=str,
)
def test_the_largest_are_as_many_as_asked_for_and_the_first_of_equals(raw):
    for D in range(6):
        want = sorted(range(5), key=lambda i: (-raw[i], i))[:D]
        assert largest(torch.tensor(raw), D).nonzero()[:, 0].tolist() == sorted(want)


def test_default_number_of_personal_layers():
    """A quarter of the layers, at least one, at most five."""
    for widths, D in (((6,), 1), ((4,) * 8, 2), ((3,) * 20, 5), ((3,) * 29, 5)):
        m = PLGULF(toy(MLP(5, widths, 3)))
        w = m.task.init(0)
        assert m.L == len(widths) + 1
        mine = {"w": tree(2, w), "seen": torch.tensor(True)}
        assert int(m.start(w, mine, KEY)[2].sum()) == D


# ------------------------------------------------------- which layers are personal
def test_the_last_the_first_or_the_most_moved_layers_are_kept():
    task = toy(MLP(5, (6, 4, 7), 3))
    w = task.init(0)
    mine = {"w": tree(2, w), "seen": torch.tensor(True)}
    m = PLGULF(task).movement(mine["w"], w)
    for D in range(5):
        one = {k: PLGULF(task, D=D, keep=k) for k in ("moved", "first", "last")}
        kept = {k: m.start(w, mine, KEY)[2].tolist() for k, m in one.items()}
        assert kept["first"] == [i < D for i in range(4)]
        assert kept["last"] == [i >= 4 - D for i in range(4)]
        assert kept["moved"] == largest(m, D).tolist()


@pytest.mark.parametrize("keep", ["first", "last", "random"])
def test_whatever_is_kept_nothing_is_before_a_first_training(keep):
    task = toy()
    w = task.init(0)
    start = lambda mine, seen: PLGULF(task, D=1, keep=keep).start(
        w, {"w": mine, "seen": torch.tensor(seen)}, KEY
    )[2]
    assert not start(tree(1, w), False).any() and not start(w, True).any()
    assert start(tree(1, w), True).sum() == 1


@pytest.mark.parametrize("how", ["loop", "vmap"])
def test_a_random_layer_is_another_one_for_each_client_and_round(how):
    """A frozen layer shows itself: it is the one that a training did not change. It is
    the one that the client's key of this round says.
    """
    task, R = toy(MLP(5, (6, 4), 3)), 6
    m = PLGULF(task, D=1, keep="random", freeze=True, lr=0.2)
    own, kept = [client_of(run(m, R, upto=1, how=how), c) for c in range(task.C)], []
    for t in range(1, R):
        w = server_of(run(m, R, upto=t, how=how))
        rec = run(m, R, upto=t + 1, how=how)
        for c in range(task.C):
            before, own[c] = own[c], client_of(rec, c)
            still = [
                gap(subset(before, u), subset(own[c], u)) < NEAR for u in m.units(w)
            ]
            key = m.task.shards(SEED, t, R, torch.tensor([c]), m.plans())[0].key
            said = m.start(w, {"w": before, "seen": torch.tensor(True)}, key)[2]
            assert still == said.tolist() and sum(still) == 1
            kept.append(still.index(True))
    kept = np.reshape(kept, (R - 1, task.C))
    assert {0, 1, 2} == set(kept.ravel())
    assert (kept != kept[0]).any() and (kept != kept[:, :1]).any()


def test_random_layers_are_all_as_often():
    m = PLGULF(toy(MLP(5, (6, 4), 3)), D=2, keep="random")
    orders = [m.order(torch.zeros(3), fold(KEY, i)) for i in range(600)]
    often = sum(largest(o, 2).double() for o in orders) / 600
    assert torch.allclose(often, torch.full((3,), 2 / 3).double(), atol=0.08)


def test_what_moved_most_is_the_default_and_its_runs_keep_their_names():
    said, unsaid = (resolved("PLGU-LF", kw) for kw in ({"keep": "moved"}, {}))
    assert said == unsaid and "keep" not in said and PLGULF().keep == "moved"
    assert resolved("PLGU-LF", {"keep": "last"}) == said | {"keep": "last"}


# ---------------------------------------------------------------- the perturbation
def pieces(**more):
    m = PLGULF(toy(MLP(5, (6, 4), 3)), rho=0.3, **more)
    g = tree(3, m.task.init(0))
    units = [(f"{name}.weight", f"{name}.bias") for name in ("fc1", "fc2", "fc")]
    return m, g, torch.tensor([2.0, 0.75, 0.25], dtype=torch.float64), units


def flat(t, names):
    return np.concatenate([t[k].numpy().ravel() for k in names])


PARTS = ([1, 1, 1], [0, 1, 1], [1, 0, 0], [0, 0, 0])


@pytest.mark.parametrize("part", [None, *PARTS], ids=str)
@pytest.mark.parametrize("scale", ["mean1", "sum1", "renorm", "exact"])
def test_perturbation_by_hand(scale, part):
    """Every scale, with the norm over the perturbed layers together;
    the others are left alone.
    """
    m, g, s, units = pieces(scale=scale)
    e = m.perturbation(
        g, s, None if part is None else torch.tensor(part, dtype=torch.float64)
    )
    on = part or [1, 1, 1]
    g, layer = (
        np.concatenate([o * flat(g, u) for o, u in zip(on, units)]),
        np.concatenate([flat(g, u) * 0 + float(sl) for sl, u in zip(s, units)]),
    )
    size = lambda v: max(np.sqrt((v**2).sum()), 1e-300)  # noqa: E731
    want = {
        "mean1": layer * g / size(g),
        "sum1": layer / 3 * g / size(g),
        "renorm": layer * g / size(layer * g),
        "exact": layer**2 * g / size(layer * g),
    }[scale] * 0.3
    got = np.concatenate([flat(e, u) for u in units])
    assert np.allclose(got, want, atol=1e-11) and (got[g == 0] == 0).all()
    if scale == "renorm" and any(on):
        # whatever the scores
        assert np.sqrt((got**2).sum()) == pytest.approx(0.3, abs=1e-10)


def test_equal_scores_give_sams_perturbation_along_the_gradient():
    m, g, s, units = pieces()
    for more in ({}, {"scale": "renorm"}, {"scale": "exact"}):
        e = np.concatenate(
            [
                flat(pieces(**more)[0].perturbation(g, torch.ones_like(s)), u)
                for u in units
            ]
        )
        v = np.concatenate([flat(g, u) for u in units])
        assert np.allclose(e, 0.3 * v / np.linalg.norm(v), atol=1e-11) and e @ v > 0


def test_a_vanishing_gradient_gives_no_perturbation():
    for scale in ("mean1", "renorm", "exact"):
        m, g, s, _ = pieces(scale=scale)
        assert all(
            bool((x == 0).all())
            for x in m.perturbation({k: 0 * v for k, v in g.items()}, s).values()
        )


@pytest.mark.parametrize("cls", ALL)
def test_scores_that_sum_to_one_are_a_smaller_radius(cls):
    """scale = "sum1" is mean1 with rho / L;
    L is 2, in PLGU-GRep's body of two tensors too.
    """
    more = {"layer": "tensor"} if cls is PLGUGRep else {}
    a, b, c = (
        run(cls(toy(), scale=scale, rho=rho, **FIXED, **more))
        for scale, rho in (("sum1", 0.4), ("mean1", 0.2), ("mean1", 0.4))
    )
    assert gap(state(a), state(b)) < NEAR and gap(state(a), state(c)) > 1e-5


# ---------------------------------------------------------------- limits
@pytest.mark.parametrize("D", [0, 1, 2])
@pytest.mark.parametrize(
    "more", [{}, {"momentum": 0.5, "decay": 0.05}], ids=["plain", "momentum"]
)
def test_lf_without_perturbation_averages_as_fedavg(D, more):
    """Whatever is personal, w goes its own way:
    FedAvg's, whose steps are taken in closed form.
    """
    a, b = (
        run(m, 4, cohort=3)
        for m in (PLGULF(toy(), D=D, perturb="none", **more), FedAvg(toy(), **more))
    )
    assert gap(server_of(a), server_of(b)) < 1e-12
    assert np.array_equal(a["pre", "global", "test"], b["pre", "global", "test"])


def test_lf_with_equal_scores_and_own_direction_is_fedsam():
    a, b = (
        run(m, 4, cohort=3)
        for m in (
            PLGULF(toy(), rho=0.3, uniform=True, direction="w"),
            FedSAM(toy(), rho=0.3),
        )
    )
    assert gap(server_of(a), server_of(b)) < NEAR
    assert (
        gap(
            server_of(a),
            server_of(run(PLGULF(toy(), rho=0.3, direction="w"), 4, cohort=3)),
        )
        > 1e-4
    )


@dataclass(frozen=True)
class Met(PLGULF):
    """Every client has a model of its own before round 0:
    a first training would have no personal layers.
    """

    def client(self, w, shard):
        return {
            "w": add(w, normal(shard.key, w), 0.1),
            "seen": torch.ones((), dtype=torch.bool),
        }


def limits_of(perturb):
    """{D: gaps of PLGU-LF's common model to FedSAM's and to FedAvg's} at D = 0 and
    D = L, over four rounds of a cohort.
    """
    task, out = toy(), {}
    sam, avg = (
        server_of(run(m, 4, cohort=4)) for m in (FedSAM(task, rho=0.3), FedAvg(task))
    )
    assert gap(sam, avg) > 1e-3
    for D in (0, 2):
        w = server_of(
            run(
                Met(task, D=D, perturb=perturb, uniform=True, direction="w", rho=0.3),
                4,
                cohort=4,
            )
        )
        out[D] = gap(w, sam), gap(w, avg)
    return out


def test_section_4_1_universal_layers_perturbed_then_no_personal_layer_is_fedsam_and_all_personal_is_fedavg():
    got = limits_of("universal")
    assert got[0][0] < NEAR and got[2][1] < NEAR and min(got[0][1], got[2][0]) > 1e-3


def test_section_6_3_personal_layers_perturbed_then_no_personal_layer_is_fedavg_and_all_personal_is_fedsam():
    got = limits_of("personal")
    assert got[0][1] < NEAR and got[2][0] < NEAR and min(got[0][0], got[2][1]) > 1e-3


@pytest.mark.parametrize(
    "perturb, D, same_as", [("universal", 2, FedSAM), ("personal", 2, FedAvg)]
)
def test_the_limits_at_all_layers_begin_after_a_first_training(perturb, D, same_as):
    """It has no personal layer, so the first round of all goes the other way."""
    a = run(PLGULF(toy(), D=D, perturb=perturb, uniform=True, direction="w"), 1)
    b = run(same_as(toy()), 1)
    assert gap(server_of(a), server_of(b)) < NEAR


@pytest.mark.parametrize("cls", ALL)
def test_a_vanishing_radius_is_no_perturbation(cls):
    runs = {
        k: run(cls(toy(), **{"lr": 0.2} | more))
        for k, more in {
            "none": {"perturb": "none"},
            "tiny": {"rho": 1e-9},
            "some": {"rho": 0.05},
        }.items()
    }
    assert (
        0
        < gap(state(runs["tiny"]), state(runs["none"]))
        < 1e-7
        < 1e-4
        < gap(state(runs["some"]), state(runs["none"]))
    )


def test_grep_without_perturbation_is_fedrep_with_two_steps():
    for more in ({}, {"momentum": 0.5, "decay": 0.05}):
        a = run(PLGUGRep(toy(), perturb="none", head_epochs=2, **more), 4, cohort=3)
        b = run(METHODS["FedRep-2x"](toy(), head_epochs=2, **more), 4, cohort=3)
        assert gap(server_of(a), server_of(b)) < NEAR
        assert (
            gap(a.state["clients"]["head"], subset(b.state["clients"]["w"], HEAD))
            < NEAR
        )
        assert np.array_equal(
            a["pre", "personal", "test"], b["pre", "personal", "test"]
        )
    assert (
        gap(
            server_of(a),
            server_of(
                run(METHODS["FedRep"](toy(), head_epochs=2, **more), 4, cohort=3)
            ),
        )
        > 1e-3
    )


def test_ghn_without_perturbation_is_pfedhn_on_batches_that_come_twice(monkeypatch):
    pair, once = (
        run(PLGUGHN(toy(), width=7, perturb="none")),
        run(PFedHN(toy(), width=7)),
    )
    draw = shards.draw

    def doubled(rows, plan, seed, batch):
        r, lens = draw(rows, plan, seed, batch)
        return torch.cat([p for p in r.split(lens) for _ in range(2)]), [
            n for n in lens for _ in range(2)
        ]

    monkeypatch.setattr(shards, "draw", doubled)
    twice = run(PFedHN(toy(), width=7))
    assert (
        gap(pair.state["server"], twice.state["server"])
        < NEAR
        < 1e-4
        < gap(pair.state["server"], once.state["server"])
    )


def test_with_all_layers_personal_the_own_model_never_hears_of_the_others():
    """Client 0 trains in rounds 0 and 2; who trains in round 1 makes no difference to
    it, unless a layer is averaged.
    """
    task = toy()
    for D, others in ((2, True), (1, False), (0, False)):
        a, b = (
            client_of(
                run(
                    PLGULF(task, D=D),
                    3,
                    cohort=lambda t, ids=ids: ids if t == 1 else [0, 5],
                ),
                0,
            )
            for ids in ([1, 2], [3, 4])
        )
        assert same(a, b) == others
    alone = task.init(SEED)
    rec = run(PLGULF(task, D=2, **FIXED), 3, cohort=lambda t: [0, 5] if t != 1 else [1])
    for b in batches(task, 0, 2):
        alone = down(alone, slope(alone, b), 0.2)
    assert gap(client_of(rec, 0), alone) < NEAR


def test_with_all_layers_personal_and_everybody_there_own_models_are_those_of_local_training():
    more = {"momentum": 0.5, "decay": 0.05}
    a, b = (
        run(m, 3, cohort=None)
        for m in (PLGULF(toy(), D=2, **more), METHODS["Local"](toy(), **more))
    )
    assert gap(a.state["clients"]["w"], b.state["clients"]["w"]) < NEAR


def test_without_personal_layers_the_own_model_is_one_rounds_training_from_the_common_one():
    task = toy()
    before, after = (run(PLGULF(task, D=0, **FIXED), 4, upto=t) for t in (3, 4))
    w = server_of(before)
    for c in range(task.C):
        want = w
        for b in batches(task, c, 1):
            want = down(want, slope(want, b), 0.2)
        assert gap(client_of(after, c), want) < NEAR


# ----------------------------------------------------------- what is served, what stays
def test_a_client_that_never_trained_is_served_by_the_common_model():
    task = toy()
    for first in ("copy", "initial"):
        m = PLGULF(task, D=1, first=first, **FIXED)
        rec = run(m, 2, cohort=lambda t: [0, 1])
        x, w = task.x[:7], server_of(rec)
        for c in range(task.C):
            mine = pick(rec.state["clients"], c)
            views = m.views({"w": w}, mine, shard_of(m, c))
            logits = {k: f(x) for k, f in views.items()}
            own = task.logits(client_of(rec, c), x)
            assert torch.equal(logits["global"], task.logits(w, x))
            assert torch.equal(logits["personal"], own if c < 2 else logits["global"])
            assert (
                c < 2
                or first == "initial"
                or torch.equal(logits["refreshed"], logits["global"])
            )


@pytest.mark.parametrize("first", ["copy", "initial"])
def test_refreshed_is_the_model_that_the_next_round_starts_from(first):
    """Training of no pass hands it back; by hand:
    own layers where they moved most, w elsewhere.
    """
    task = toy()
    m = PLGULF(task, D=1, first=first, **FIXED)
    rec = run(m, 3, cohort=lambda t: [t % 3, 3])
    x, w, init, idle = (
        task.x[:7],
        server_of(rec),
        task.init(SEED),
        PLGULF(task, D=1, first=first, epochs=0),
    )
    for c in range(task.C):
        mine = pick(rec.state["clients"], c)
        own = (
            max((BODY, HEAD), key=lambda layer: moved(mine["w"], w, layer))
            if c < 4 or first == "initial"
            else ()
        )
        want = {k: mine["w"][k] if k in own else w[k] for k in w}
        # of a client that never trained
        assert c < 4 or not own or same(subset(want, own), subset(init, own))
        assert same(idle.local({"w": w}, mine, shard_of(idle, c))[0]["w"], want)
        served = m.views({"w": w}, mine, shard_of(m, c))["refreshed"]
        assert torch.equal(served(x), task.logits(want, x))


def test_a_first_training_scored_against_the_initial_model_keeps_layers_of_it():
    """first = "initial", and no step: what client 0 has after its first round is
    D initial layers, the rest of the server's.
    """
    task = toy()
    w, init = (
        server_of(run(PLGULF(task, **FIXED), 2, cohort=lambda t: [1, 2])),
        task.init(SEED),
    )
    new = {"w": init, "seen": torch.tensor(False)}
    for first, D, want in (
        ("initial", 1, 1),
        ("initial", 2, 2),
        ("copy", 1, 0),
        ("copy", 2, 0),
    ):
        m = PLGULF(task, D=D, first=first, epochs=0)
        theta = m.local({"w": w}, new, shard_of(m, 0))[0]["w"]
        assert (
            sum(
                same(subset(theta, layer), subset(init, layer))
                for layer in (BODY, HEAD)
            )
            == want
        )
        assert (
            sum(same(subset(theta, layer), subset(w, layer)) for layer in (BODY, HEAD))
            == 2 - want
        )
        start, s, own = m.start(w, new, KEY)
        assert (s == 1).all() == (first == "copy") and own.sum() == want


@pytest.mark.parametrize(
    "more",
    [{}, {"momentum": 0.5}, {"decay": 0.1}, {"how": "vmap", "decay": 0.1}],
    ids=str,
)
def test_frozen_layers_stay_still_and_the_others_move(more):
    task, how = toy(), {"how": more.get("how", "loop")}
    more = without(more, ("how",))
    one, three = (
        run(PLGULF(task, D=1, freeze=True, lr=0.2, **more), 3, upto=t, **how)
        for t in (1, 3)
    )
    m = PLGULF(task, D=1)
    for c in range(task.C):
        a, b = client_of(one, c), client_of(three, c)
        mine = {"w": a, "seen": torch.tensor(True)}
        own = m.start(server_of(one), mine, KEY)[2].tolist()
        for layer, is_own in zip((BODY, HEAD), own):
            assert (gap(subset(a, layer), subset(b, layer)) < NEAR) == is_own
    both = [
        client_of(
            run(PLGULF(task, D=2, freeze=True, lr=0.2, **more), 3, upto=t, **how), 0
        )
        for t in (1, 3)
    ]
    assert gap(*both) < NEAR  # all of them frozen after the first training


# ---------------------------------------------------------------- networks
def trained(net, w, x, y, at=None):
    """Gradient at `at` (default w) of a torch module in training mode, with its
    parameters and running statistics set to w's.
    """
    with torch.enable_grad():
        p = {
            k: v.detach()
            .clone()
            .requires_grad_(not k.split(".")[1].startswith("running_"))
            for k, v in (at or w).items()
        }
        named = {NORMED[k]: v for k, v in p.items()}
        loss = F.cross_entropy(torch.func.functional_call(net, named, x), y)
        free = [k for k in p if p[k].requires_grad]
        return dict(zip(free, torch.autograd.grad(loss, [p[k] for k in free])))


def statistics(net, w, x):
    """w with the running statistics that a forward pass of torch's own batch
    norm leaves behind.
    """
    with torch.no_grad():
        net.load_state_dict({NORMED[k]: v for k, v in w.items()}, strict=False)
        net(x)
    return w | {k: net.state_dict()[NORMED[k]].clone() for k in w if ".running_" in k}


NORMED = {
    f"{mine}.{leaf}": f"{i}.{leaf}"
    for i, mine in ((0, "one"), (1, "bn"), (3, "out"))
    for leaf in ("weight", "bias", "running_mean", "running_var")
}


def module():
    return (
        nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 3))
        .double()
        .train()
    )


@pytest.mark.parametrize("how", ["loop", "vmap"])
def test_batch_norm_of_both_models_moves_as_a_forward_pass_says(how):
    """Own model and copy each see every batch once, at their own weights before the
    step; never at a perturbed point.
    """
    task = toy(Normed(5, 6, 3), sizes=(8, 12))
    rec = run(PLGULF(task, rho=0.3, uniform=True, D=0, **FIXED), 1, cohort=1, how=how)
    c = int(rec.logs["cohort"][0][0])
    a = u = task.init(SEED)
    net = module()
    for x, y in batches(task, c, 1):
        g = trained(net, a, x, y)
        length = math.sqrt(sum(float((v**2).sum()) for v in g.values()))
        gu = trained(
            net, u, x, y, {k: u[k] + 0.3 * g[k] / length if k in g else u[k] for k in u}
        )
        a, u = down(statistics(net, a, x), g, 0.2), down(statistics(net, u, x), gu, 0.2)
    assert gap(client_of(rec, c), {k: a[k] for k in client_of(rec, c)}) < NEAR
    assert gap(server_of(rec), {k: u[k] for k in server_of(rec)}) < NEAR
    assert gap([a["bn.running_mean"]], [u["bn.running_mean"]]) > 1e-4


def test_batch_norm_of_a_body_that_moves_twice_is_refreshed_once_a_batch():
    task = toy(Normed(5, 6, 3), sizes=(8, 12))
    m = PLGUGRep(task, rho=0.3, head_epochs=0, **FIXED)
    w = task.init(SEED)
    rec = run(m, 1, cohort=lambda t: [1])
    body = [k for k in w if not k.startswith("out")]
    net = module()
    for x, y in batches(task, 1, 1):
        g = {k: v for k, v in trained(net, w, x, y).items() if k in body}
        length = math.sqrt(sum(float((v**2).sum()) for v in g.values()))
        after = down(w, g, 0.2)
        g2 = trained(
            net,
            w,
            x,
            y,
            {k: after[k] + 0.3 * g[k] / length if k in g else after[k] for k in after},
        )
        w = down(
            statistics(net, w, x) | {k: after[k] for k in g}, {k: g2[k] for k in g}, 0.2
        )
    assert gap(server_of(rec), {k: w[k] for k in server_of(rec)}) < NEAR
    assert same(
        client_of(rec, 1, "head"), subset(task.init(SEED), ("out.weight", "out.bias"))
    )


@dataclass(frozen=True)
class NormFirst(Normed):
    """Its norm layer belongs to the layer after it, which is the head."""

    norm_first = True


@pytest.mark.parametrize("cls", ALL)
def test_a_norm_layer_of_the_head_is_a_layer_of_its_own_in_the_body(cls):
    m = cls(toy(NormFirst(5, 6, 3)))
    w = m.task.init(0)
    one, bn, out = (
        tuple(f"{name}.{leaf}" for leaf in ("weight", "bias"))
        for name in ("one", "bn", "out")
    )
    assert m.units(w) == (one, bn + out) and m.units(m.task.split(w)[0]) == (one, bn)
    rec = run(m, 2)
    assert all(bool(np.isfinite(v).all()) for v in rec.views.values())


def test_a_network_without_units_falls_back_on_its_layers():
    """On bowls, F(u, v) = (|u - x|^2 + |v - x|^2) / 2, rounds can be written down:
    g = w - x, and any e moves u by -lr e more.
    """
    centre, lr, rho = torch.tensor([4.0, -1.0], dtype=torch.float64), 0.25, 0.3
    task = bowls([centre.tolist()])
    m = PLGULF(task, lr=lr, rho=rho, D=1)
    w = task.init(SEED)
    assert m.units(w) == (("u",), ("v",))
    assert PLGULF(task, layer="tensor").units(w) == m.units(w)
    assert m.L == 2
    rec = run(m, 1)
    g = {k: w[k] - centre for k in w}
    length = math.sqrt(sum(float((v**2).sum()) for v in g.values()))
    assert gap(client_of(rec, 0), {k: w[k] - lr * g[k] for k in w}) < NEAR
    assert (
        gap(server_of(rec), {k: w[k] - lr * (g[k] + rho * g[k] / length) for k in w})
        < NEAR
    )


@dataclass(frozen=True)
class Orphan(Normed):
    """A norm layer before any other."""

    @property
    def parts(self):
        one, bn, out = super().parts
        return bn, one, out


def test_a_norm_layer_without_a_partner_is_refused():
    with pytest.raises(
        ValueError,
        match=(
            "norm layer 'bn' has no convolution or linear layer of its own .* "
            "list it right"
        ),
    ):
        PLGULF(toy(Orphan(5, 6, 3)))


# -------------------------------------------------------------- execution and bad input
SWITCHES = {
    "frozen": (PLGULF, {"freeze": True, "D": 1, "momentum": 0.5, "layer": "tensor"}),
    "theta": (PLGULF, {"at": "theta", "D": 1, "scale": "exact", "first": "initial"}),
    "own": (
        PLGULF,
        {
            "direction": "w",
            "D": 2,
            "perturb": "universal",
            "layer": "tensor",
            "scale": "renorm",
            "by": "root",
        },
    ),
    "personal": (PLGULF, {"perturb": "personal", "scale": "sum1", "decay": 0.05}),
    "random": (PLGULF, {"keep": "random", "D": 1, "layer": "tensor"}),
    "drift": (
        PLGUGRep,
        {"against": "drift", "fresh": True, "layer": "tensor", "scale": "renorm"},
    ),
    "one batch": (
        PLGUGRep,
        {"steps": 1, "layer": "tensor", "momentum": 0.5, "scale": "exact"},
    ),
    "written": (
        PLGUGHN,
        {"layer": "tensor", "by": "root", "scale": "sum1", "width": 7, "decay": 0.05},
    ),
}


@pytest.mark.parametrize(
    "network", [None, Normed(5, 6, 3)], ids=["plain", "batch norm"]
)
@pytest.mark.parametrize("name", SWITCHES)
def test_at_once_is_one_after_another(name, network):
    cls, more = SWITCHES[name]
    a, b = (
        run(cls(toy(network), rho=0.3, lr=0.2, **more), cohort=4, how=how, guests=True)
        for how in ("loop", "vmap")
    )
    assert gap(state(a), state(b)) < 1e-9 and gap(seen(a), seen(b)) < 1e-9


@pytest.mark.parametrize("cls", ALL)
@pytest.mark.parametrize(
    "rho, says",
    [
        (
            0,
            (
                r"PLGU\w+\.rho = 0 .*number above 0; for training without a "
                r"perturbation give perturb='none'"
            ),
        ),
        (0.0, "perturb='none'"),
        (-0.1, r"PLGU\w+\.rho = -0\.1 is outside \[0, inf\]"),
        (math.inf, r"\.rho = inf .*give a finite number"),
        (True, r"\.rho = True is no number"),
        (math.nan, r"\.rho = nan is outside \[0, inf\]"),
        ("wide", r"\.rho = 'wide'"),
    ],
)
def test_a_radius_that_is_none_is_refused(cls, rho, says):
    with pytest.raises(ValueError, match=says):
        cls(toy(), rho=rho)


@pytest.mark.parametrize(
    "D, says",
    [
        (3, r"PLGULF\.D = 3: MLP has 2 layers; give 0 .* to 2"),
        (-2, r"PLGULF\.D = -2 is outside"),
        (1.5, r"PLGULF\.D = 1\.5 is not a whole number"),
        ("1", r"PLGULF\.D = '1'"),
    ],
)
def test_a_number_of_personal_layers_that_is_none_is_refused(D, says):
    with pytest.raises(ValueError, match=says):
        PLGULF(toy(), D=D)
    # no task yet: nothing to count
    assert PLGULF(toy(), D=4, layer="tensor").L == 4 and PLGULF(D=30).D == 30


@pytest.mark.parametrize(
    "cls, name",
    [
        *((c, k) for c in ALL for k in ("perturb", "scale", "by", "layer")),
        *(
            (PLGULF, k)
            for k in ("keep", "direction", "at", "first", "freeze", "uniform")
        ),
        (PLGUGRep, "against"),
        (PLGUGRep, "fresh"),
    ],
)
def test_an_unknown_value_of_a_switch_is_refused(cls, name):
    with pytest.raises(
        ValueError, match=rf"{cls.__name__}\.{name} = 'nonsense' is not one of"
    ):
        cls(toy(), **{name: "nonsense"})


@pytest.mark.parametrize("cls", [PLGUGRep, PLGUGHN])
def test_only_lf_has_personal_and_universal_layers(cls):
    with pytest.raises(
        ValueError,
        match=rf"{cls.__name__}\.perturb = 'universal' is not one of 'all', 'none'",
    ):
        cls(toy(), perturb="universal")


def test_a_network_that_is_all_head_has_no_body_to_make_flat():
    with pytest.raises(
        ValueError,
        match="PLGUGRep shares the body of a network, and all of .* is its head",
    ):
        run(PLGUGRep(toy(Linear(5, 3))), 1)
