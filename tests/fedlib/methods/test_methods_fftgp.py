"""FFT-GP, FAA, GA, GRACE and PerFedAvg: replays by hand, explicit autograd, quadratics,
and the limits between them.
"""

import math
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from toys_core import Normed, bowls, gap, same, seen, state, toy

from fedlib.core import engine
from fedlib.core.local import grad, sgd
from fedlib.core.tree import (
    add,
    leaves,
    mean,
    normalize,
    scale,
    stack,
    sub,
    tmap,
    without,
)
from fedlib.methods.base.fedavg import FedAvg, Uniform
from fedlib.methods.domains.aligned import Aligned
from fedlib.methods.domains.faa import FAA, FAALagged
from fedlib.methods.domains.fftgp import FFTGP, FFTGPBeside, FFTGPLagged
from fedlib.methods.domains.ga import GA
from fedlib.methods.domains.grace import GRACE
from fedlib.methods.make import make
from fedlib.methods.personal.perfedavg import PerFedAvg
from fedlib.nets import MLP
from fedlib.pieces import align

quick = settings(max_examples=60, deadline=None, derandomize=True)
FORMS = ["mirror", "mirror_std", "additive", "closed"]
# acute: the circumcentre, where all gaps are equal, lies inside
TRIANGLE = [[0.0, 0.0], [1.0, 0.0], [0.4, 1.1]]
PLAIN = {"meta": "none"}


def run(*args, **more):
    return engine.run(*args, **({"device": "cpu"} | more))


def tensor(x):
    return torch.as_tensor(np.asarray(x), dtype=torch.float64)


def model(rec):
    return rec.state["server"]["w"]


def trained(method, w, t, R, seed=0):
    """Every client's model after one round of the method's own local training,
    without the engine.
    """
    shards = method.task.shards(seed, t, R, torch.arange(method.task.C), method.plans())
    return [method.fit(method.loss, w, s) for s in shards]


def costs(task, ws, metric, split="val"):
    """Loss or error of model i on rows of client i [C], straight from the network; one
    model for all, or one each.
    """
    out = []
    for c, rows in enumerate(getattr(task, split)):
        z = task.logits(ws[c] if isinstance(ws, list) else ws, task.x[rows])
        wrong = (z.argmax(1) != task.y[rows]).double().mean()
        out.append(F.cross_entropy(z, task.y[rows]) if metric == "loss" else wrong)
    return torch.stack(out)


# ---------------------------------------------------------------- FAA: the step
def by_hand(form, a, G, eta, low=0.25, high=2.0):
    """The four forms in plain numpy."""
    a, G, C = np.asarray(a, float), np.asarray(G, float), len(a)
    if np.abs(G).mean() < 1e-6:
        return a
    c = G - G.mean()
    if form == "mirror":
        b = a * np.exp(eta * np.clip(c / np.abs(G).mean(), -1, 1))
    elif form == "mirror_std":
        b = a * np.exp(eta * np.clip(c / G.std(), -1, 1))
    elif form == "additive":
        b = np.clip(a + eta / C * c / np.abs(c).max(), 0, 1)
    else:
        target = np.maximum(a * G, 1e-8)
        b = (1 - eta) * a + eta * target / target.sum()
    b = np.clip(b / b.sum(), low / C, high / C)
    return b / b.sum()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "a, G, eta",
    [
        ([1 / 3, 1 / 3, 1 / 3], [0.3, 0.1, 0.05], 0.5),
        ([0.2, 0.5, 0.3], [0.4, 0.5, 0.6], 0.3),
        ([0.2, 0.5, 0.3], [-0.1, 0.05, 0.2], 1.0),
        ([0.1, 0.6, 0.3], [-1.0, 3.0, 0.1], 0.9),
        ([0.2, 0.5, 0.3], [-0.3, -0.2, -0.5], 0.4),
    ],
)
def test_forms_of_faa_by_hand(form, a, G, eta):
    got = FAA(toy(sizes=(8, 8, 8)), form=form).moved(tensor(a), tensor(G), eta)
    assert gap([got], [tensor(by_hand(form, a, G, eta))]) < 1e-7


def test_faa_in_numbers():
    """G = (3, 1, 0.5): mean 1.5, mean |G| 1.5, so z = (1, -1/3, -2/3); with eta 0.3 the
    weights are e^(0.3, -0.1, -0.2) / Z.
    """
    got = FAA(toy()).moved(tensor([1 / 3] * 3), tensor([3, 1, 0.5]), 0.3)
    raw = tensor([1.349858807576, 0.904837418036, 0.818730753078])
    assert gap([got], [raw / 3.07342697869]) < 1e-8


some_gaps = st.integers(2, 7).flatmap(
    lambda C: arrays(np.float64, C, elements=st.floats(-4, 4, width=32))
)


@quick
@given(some_gaps, st.sampled_from(FORMS), st.floats(0, 1), st.integers(0, 9))
def test_weights_sum_to_one_and_keep_their_bounds(G, form, eta, seed):
    C = len(G)
    a = normalize(
        torch.rand(
            C, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
        )
        + 0.2
    )
    b = FAA(toy(), form=form).moved(a, tensor(G), eta)
    assert abs(float(b.sum()) - 1) < 1e-12
    if np.abs(G).mean() < 1e-6:
        assert torch.equal(a, b)
    else:  # the last division may carry a weight over a bound, not their ratio
        assert float(b.max() / b.min()) <= 2 / 0.25 * (1 + 1e-12)


@quick
@given(
    some_gaps,
    st.sampled_from(["mirror", "mirror_std", "additive"]),
    st.floats(0.01, 0.5),
)
def test_the_client_with_the_largest_gap_gains(G, form, eta):
    if np.abs(G).mean() < 1e-6 or np.ptp(G) < 1e-3 * np.abs(G).mean():
        return
    a = torch.full((len(G),), 1 / len(G), dtype=torch.float64)
    b = FAA(toy(), form=form).moved(a, tensor(G), eta)
    assert float(b[np.argmax(G)]) > 1 / len(G) > float(b[np.argmin(G)])
    order = np.argsort(G)
    assert (np.diff(b.numpy()[order]) > -1e-12).all(), "a larger gap never gets less"


@quick
@given(some_gaps, st.floats(1e-2, 1e4))
def test_faa_is_blind_to_the_unit_of_the_loss(G, s):
    if np.abs(G).mean() * min(s, 1) < 1e-2:
        return
    a, faa = normalize(torch.arange(1.0, len(G) + 1, dtype=torch.float64)), FAA(toy())
    assert (
        gap([faa.moved(a, tensor(G), 0.5)], [faa.moved(a, tensor(s * G), 0.5)]) < 1e-6
    )


@pytest.mark.parametrize("form", ["mirror", "mirror_std", "additive"])
@pytest.mark.parametrize("level", [0.7, -0.2, 0.0])
def test_equal_gaps_move_nothing(form, level):
    a = tensor([0.2, 0.5, 0.3])
    assert gap([FAA(toy(), form=form).moved(a, tensor([level] * 3), 0.5)], [a]) < 1e-4


# ----------------------- FAA: a triangle of quadratics (spread against uniform weights)
def corners(centres=TRIANGLE):
    """A round of FAA on |w - c_i|^2 / 2 with the local models at their own optima c_i,
    so that G_i = |w - c_i|^2 / 2.
    """
    c = tensor(centres)
    task = bowls(centres)
    r = SimpleNamespace(
        t=0,
        R=1,
        ask=lambda question, trial: {"gap": (trial["w"]["u"] - c).square().sum(1) / 2},
    )
    up = {
        "w": {"u": c, "v": c},
        "gap": torch.zeros(len(c), dtype=torch.float64),
        "n": torch.ones(len(c), dtype=torch.float64),
    }
    spread = lambda a: float(((a @ c - c).square().sum(1) / 2).var(unbiased=False))
    return task, r, up, spread


def chosen(faa, r, up):
    return faa.aggregate(faa.server(faa.task.init(0), r), up, r)


@pytest.mark.parametrize("bounds", [{}, {"floor": 0.0, "ceiling": 1e9}])
def test_four_trials_take_out_most_of_the_spread(bounds):
    task, r, up, spread = corners()
    new = chosen(FAA(task, **bounds), r, up)
    assert spread(new["a"]) / spread(tensor([1 / 3] * 3)) == pytest.approx(
        0.055, abs=0.0005
    )
    assert gap([new["w"]["u"]], [new["a"] @ tensor(TRIANGLE)]) < 1e-14


def test_twenty_constant_trials_find_the_circumcentre(monkeypatch):
    task, r, up, spread = corners()
    step = FAA.moved
    # no decay
    monkeypatch.setattr(
        FAA, "moved", lambda self, a, G, eta: step(self, a, G, self.eta)
    )
    new = chosen(FAA(task, floor=0.0, ceiling=1e9, trials=20), r, up)
    assert spread(new["a"]) / spread(tensor([1 / 3] * 3)) < 1.05e-7
    assert gap([new["a"]], [tensor([0.260, 0.340, 0.401])]) < 1e-3
    apart = (new["w"]["u"] - tensor(TRIANGLE)).norm(dim=1)
    assert float(apart.max() - apart.min()) < 1e-3


@quick
@given(
    arrays(np.float64, (4, 2), elements=st.floats(-3, 3, width=32)),
    st.sampled_from(FORMS),
    st.integers(1, 5),
)
def test_the_probe_never_spreads_more_than_uniform_weights(centres, form, trials):
    task, r, up, spread = corners(centres)
    new = chosen(FAA(task, form=form, trials=trials), r, up)
    assert spread(new["a"]) <= spread(tensor([1 / 4] * 4)) * (1 + 1e-12) + 1e-15
    assert (
        gap(
            [new["log"]["gap"]], [(new["w"]["u"] - tensor(centres)).square().sum(1) / 2]
        )
        < 1e-12
    )


def test_a_gap_that_is_not_finite_leaves_uniform_weights():
    task, r, up, _ = corners()
    r.ask = lambda question, trial: {"gap": tensor([1.0, math.nan, 2.0])}
    new = chosen(FAA(task), r, up)
    assert gap([new["a"]], [tensor([1 / 3] * 3)]) < 1e-15
    assert bool(new["w"]["u"].isfinite().all())


# ---------------------------------------------- FAA and GA: whole runs against a replay
def replay(method, R, step):
    """Models and weights of R rounds: local training, then a = step(t, w, ws, a, gaps
    of the downloaded model); logs as lists.
    """
    task = method.task
    w, a, before, log = task.init(0), tensor([1 / task.C] * task.C), None, []
    for t in range(R):
        G = None if before is None else costs(task, w, method.metric) - before
        ws = trained(method, w, t, R)
        a = step(t, w, ws, a, G)
        before = costs(task, ws, method.metric)
        w = mean(stack(ws), a)
        log.append(a)
    return w, torch.stack(log)


def ga_step(falling, t, R, step=0.2):
    """The step of GA's weights in round t of R, from 0. The released code adjusts after
    round i = t - 1, by step - (i - 1) step / R.
    """
    i = t - 1 if falling == "released" else t + 1
    return step - (i - 1) * step / R


def ga(method, R, centre):
    def step(t, w, ws, a, G):
        if t == 0:
            return a
        G = G - G.mean() if centre else G
        if not G.abs().max() > 0:
            return a
        eta = ga_step(method.falling, t, R, method.step_size)
        a = (a + eta / len(a) * G / G.abs().max()).clamp(0, 1)
        return a / a.sum()

    return step


@pytest.mark.parametrize("metric", ["loss", "accuracy"])
@pytest.mark.parametrize("centre", [False, True])
@pytest.mark.parametrize("falling", ["released", "to zero"])
@pytest.mark.parametrize("how", ["loop", "vmap"])
def test_ga_is_its_replay(metric, centre, falling, how):
    task, R = toy(), 5
    more = {"metric": metric, "centre": centre, "falling": falling}
    method = GA(task, lr=0.5, step_size=0.9, **more)
    rec = run(method, rounds=R, how=how)
    w, log = replay(method, R, ga(method, R, centre))
    assert gap(model(rec), w) < 1e-10 and gap([rec.logs["weight"]], [log]) < 1e-10
    assert np.ptp(log.numpy(), 0).max() > 0.01, (
        "the weights never moved: this shows nothing"
    )
    assert (rec.logs["gap"][0] == 0).all() and np.abs(rec.logs["gap"][1:]).max() > 0


@pytest.mark.parametrize(
    "falling, first, last",
    [("released", 0.2 * 8 / 7, 0.2 * 3 / 7), ("to zero", 0.2 * 6 / 7, 0.2 / 7)],
)
def test_gas_step_falls_as_released(falling, first, last):
    """Seven rounds, step 0.2: .229 at first where the released code is followed, .171
    where the step is to vanish. Of gaps (1, -1, 0) weight 0 gains a third of the step.
    """
    method, third = GA(bowls(TRIANGLE), falling=falling), tensor([1 / 3] * 3)
    up = {"w": {"u": tensor(TRIANGLE)}, "gap": tensor([1, -1, 0])}

    def moved(t):
        server = {"w": {"u": tensor(TRIANGLE[0])}, "a": third}
        a = method.aggregate(server, up, SimpleNamespace(t=t, R=7))["a"]
        return float(3 * (a[0] - third[0]))

    assert moved(0) == 0
    for t, want in ((1, first), (6, last)):
        assert moved(t) == pytest.approx(want) == ga_step(falling, t, 7)
    assert round(first, 3) == {"released": 0.229, "to zero": 0.171}[falling]


def test_the_gap_of_a_round_is_one_round_late():
    """What client i reports in round t: the loss of the model it downloads, less that
    of the model it uploaded in t - 1.
    """
    task, R = toy(), 3
    method = GA(task, lr=0.5, metric="loss")
    rec = run(method, rounds=R)
    one = run(method, rounds=R, upto=1)
    want = costs(task, model(one), "loss") - costs(
        task, trained(method, task.init(0), 0, R), "loss"
    )
    assert gap([rec.logs["gap"][1]], [want]) < 1e-12


@pytest.mark.parametrize("form", FORMS)
def test_lagged_faa_is_its_replay(form):
    task, R = toy(), 5
    method = FAALagged(task, lr=0.5, form=form, eta=0.8, beta=0.6)
    smooth = []

    def step(t, w, ws, a, G):
        if t == 0:
            return a
        smooth.append(G if t == 1 else 0.6 * smooth[-1] + 0.4 * G)
        return tensor(by_hand(form, a, smooth[-1], 0.8 * (1 - t / R)))

    rec, (w, log) = run(method, rounds=R), replay(method, R, step)
    assert gap(model(rec), w) < 1e-6 and gap([rec.logs["weight"]], [log]) < 1e-6
    assert np.ptp(log.numpy(), 0).max() > 0.01


@pytest.mark.parametrize("form", FORMS)
def test_probing_faa_is_its_replay(form):
    task, R = toy(), 3
    method = FAA(task, lr=0.5, form=form)
    best = []

    def step(t, w, ws, a, G):
        own, tried, a = costs(task, ws, "loss"), [], tensor([1 / task.C] * task.C)
        for q in range(4):
            G = costs(task, mean(stack(ws), a), "loss") - own
            tried.append((float(G.var(unbiased=False)), q, a))
            a = tensor(by_hand(form, a, G, 0.5 * 0.7**q))
        best.append(min(tried)[1])
        return min(tried)[2]

    rec, (w, log) = run(method, rounds=R), replay(method, R, step)
    assert gap(model(rec), w) < 1e-6 and gap([rec.logs["weight"]], [log]) < 1e-6
    assert max(best) > 0, "uniform weights won every round: this shows nothing"


def test_the_probe_counts_its_traffic():
    rec = run(FAA(toy(), trials=3), rounds=1)
    assert "report.w" in rec.meta["bytes"]["ask"]
    assert rec.meta["bytes"]["answer"]["report.gap"]["values"] == 1
    assert "ask" not in run(FAALagged(toy()), rounds=1).meta["bytes"]


# ---------------------------------------------------------------- limits
@pytest.mark.parametrize("timing", ["probe", "lagged"])
@pytest.mark.parametrize("form", FORMS)
def test_faa_without_a_step_is_uniform(timing, form):
    task = toy()
    a, b = (
        run(FAA(task, eta=0, timing=timing, form=form, lr=0.3), rounds=3),
        run(Uniform(task, lr=0.3), rounds=3),
    )
    assert gap(model(a), model(b)) < 1e-12


def test_ga_without_a_step_is_uniform():
    task = toy(Normed(5, 6, 3))
    a, b = (
        run(GA(task, step_size=0, lr=0.3), rounds=3),
        run(Uniform(task, lr=0.3), rounds=3),
    )
    assert gap(model(a), model(b)) < 1e-12


@pytest.mark.parametrize("one, other", [(FFTGP, FAA), (FFTGPLagged, FAALagged)])
def test_fftgp_without_meta_learning_is_faa(one, other):
    task = toy()
    a, b = run(one(task, lr=0.3, **PLAIN), rounds=3), run(other(task, lr=0.3), rounds=3)
    assert same(state(a), state(b)) and same(seen(a), seen(b))


def test_fftgp_without_both_is_uniform():
    task = toy()
    a, b = (
        run(FFTGP(task, lr=0.3, eta=0, **PLAIN), rounds=3),
        run(Uniform(task, lr=0.3), rounds=3),
    )
    assert gap(model(a), model(b)) < 1e-12


@dataclass(frozen=True)
class Half(Uniform):
    """Plain SGD on one half of every batch."""

    k: int = 0

    def fit(self, loss, w, shard, lr=None, pull=None):
        return sgd(
            lambda v, b: grad(loss)(v, b.part(self.k, 2)),
            w,
            shard,
            self.lr,
            self.momentum,
            self.decay,
        )


def test_no_alignment_and_no_second_task_is_sgd_on_the_first_half():
    task, kw = (
        toy(batch=2, sizes=(8, 12, 6)),
        {"lr": 0.2, "momentum": 0.5, "decay": 0.01},
    )
    a = run(FFTGP(task, lam=0, rho=0, eta=0, **kw), rounds=3)
    assert gap(model(a), model(run(Half(task, **kw), rounds=3))) < 1e-12


@pytest.mark.parametrize("order", ["FO", "exact"])
def test_perfedavg_without_adaptation_is_sgd_on_the_second_half(order):
    task, kw = (
        toy(batch=2, sizes=(8, 12, 6)),
        {"lr": 0.2, "momentum": 0.5, "decay": 0.01},
    )
    a = run(PerFedAvg(task, alpha=0, order=order, **kw), rounds=3)
    assert gap(model(a), model(run(Half(task, k=1, **kw), rounds=3))) < 1e-12


# ---------------------------------------------------------------- the local step
def batch_of(task, n=8, c=3, m=None):
    (shard,) = task.shards(0, 0, 1, torch.tensor([c]), {})
    b = shard.all("all")
    return b._replace(x=b.x[:n], y=b.y[:n], a=None, row=b.row[:n], m=m)


def other(w, size=0.3, seed=1):
    """Another model, not far away."""
    g = torch.Generator().manual_seed(seed)
    return tmap(
        lambda v: v + size * torch.randn(v.shape, generator=g, dtype=v.dtype), w
    )


def explicit(method, w, start, x, y):
    """The step written out with torch.autograd on the whole formula; rows 0, 2, .. and
    1, 3, .. are the halves.
    """
    task = method.task
    p = {k: v.clone().requires_grad_() for k, v in w.items()}

    def F_(v, rows):
        return F.cross_entropy(task.logits(v, x[rows]), y[rows])

    def A(v, rows):
        return align.LOSSES[method.align](
            task.feat(v, x[rows]), task.feat(start, x[rows]).detach()
        )

    all_, one, two = slice(None), slice(0, None, 2), slice(1, None, 2)
    take = lambda out, at: dict(
        zip(
            p,
            torch.autograd.grad(
                out, list(at.values()), create_graph=method.second_order
            ),
        )
    )
    if method.meta == "none":
        return take(F_(p, all_), p)
    if method.meta == "joint":
        return take(F_(p, all_) + method.lam * A(p, all_), p)
    g1 = take(F_(p, one), p)
    ahead = {k: p[k] - (method.ahead or method.lr) * g1[k] for k in p}
    if not method.second_order:
        ahead = {k: v.detach().requires_grad_() for k, v in ahead.items()}
    g2 = take(
        method.rho * F_(ahead, two) + method.lam * A(ahead, two),
        p if method.second_order else ahead,
    )
    return g2 if method.meta == "grace" else {k: g1[k] + g2[k] for k in p}


METAS = [
    ("none", False),
    ("joint", False),
    ("mldg", False),
    ("grace", False),
    ("mldg", True),
    ("grace", True),
]


@pytest.mark.parametrize("meta, second", METAS)
@pytest.mark.parametrize("distance", sorted(align.LOSSES))
@pytest.mark.parametrize("ahead", [0.0, 0.4])
def test_the_step_is_the_formula(meta, second, distance, ahead):
    task = toy()
    w, start, b = task.init(0), other(task.init(0)), batch_of(task)
    method = FFTGP(
        task,
        meta=meta,
        second_order=second,
        align=distance,
        lam=0.7,
        rho=0.6,
        lr=0.3,
        ahead=ahead,
    )
    with torch.no_grad():
        got = method.direction(task.loss, start)(w, b)
    assert gap(got, explicit(method, w, start, b.x, b.y)) < 1e-11


@pytest.mark.parametrize("meta, second", METAS)
@pytest.mark.parametrize("n", [8, 5, 2])
def test_padding_is_as_good_as_dropping_rows_also_at_once(meta, second, n):
    """Three clients under vmap, 8, n and 8 rows of 8:
    the masked one takes the step of its n rows.
    """
    task = toy()
    w, start, b = task.init(0), other(task.init(0)), batch_of(task)
    method = FFTGP(task, meta=meta, second_order=second, lam=0.7, lr=0.3)
    m = torch.ones(3, 8, dtype=torch.float64)
    m[1, n:] = 0
    got = torch.func.vmap(
        lambda m: method.direction(task.loss, start)(w, b._replace(m=m))
    )(m)
    for i, k in enumerate((8, n, 8)):
        want = explicit(method, w, start, b.x[:k], b.y[:k])
        assert gap({name: v[i] for name, v in got.items()}, want) < 1e-11


def test_the_second_order_step_is_the_gradient_of_what_it_promises():
    """Finite differences of F(w; B1) + rho F(v; B2) + lam A(v; B2) with v = w - ahead
    grad F(w; B1), in random directions.
    """
    task = toy(Normed(5, 4, 3))
    w, start, b = task.init(0), other(task.init(0)), batch_of(task)
    method = FFTGP(task, second_order=True, lam=0.5, rho=0.8, ahead=0.6)
    first, second = b.part(0, 2), b.part(1, 2)

    def goal(w):
        v = add(w, grad(task.loss)(w, first), -0.6)
        apart = align.coral(task.feat(v, second.x, second), task.feat(start, second.x))
        return float(task.loss(w, first) + 0.8 * task.loss(v, second) + 0.5 * apart)

    with torch.no_grad():
        exact = method.direction(task.loss, start)(w, b)
        crude = replace(method, second_order=False).direction(task.loss, start)(w, b)
    free, e = [k for k in w if k not in task.buffers], 1e-5
    for seed in range(4):
        d = {
            k: v if k in free else 0 * v for k, v in sub(other(w, 1.0, seed), w).items()
        }
        slope = (goal(add(w, d, e)) - goal(add(w, d, -e))) / (2 * e)
        along = [float(sum((g[k] * d[k]).sum() for k in free)) for g in (exact, crude)]
        assert along[0] == pytest.approx(slope, abs=1e-7)
        assert abs(along[1] - slope) > 1e-4, (
            "first order is no worse here: this shows nothing"
        )


@pytest.mark.parametrize("meta", ["mldg", "grace", "joint"])
@pytest.mark.parametrize("how", ["loop", "vmap"])
def test_a_round_descends_along_the_formula_towards_the_downloaded_features(meta, how):
    """Momentum and decay act on the real step alone,
    and the frozen model is the one of this round's download.
    """
    task, R = toy(sizes=(8, 12, 4)), 2
    kw = {"lr": 0.3, "momentum": 0.6, "decay": 0.02, "lam": 0.9}
    rec, method = (
        run(FFTGP(task, eta=0, meta=meta, **kw), rounds=R, how=how),
        FFTGP(task, meta=meta, **kw),
    )
    w = task.init(0)
    for t in range(R):
        ws = []
        for shard in task.shards(0, t, R, torch.arange(3), method.plans()):
            v, speed = w, tmap(torch.zeros_like, w)
            for b in shard:
                g = add(explicit(method, v, w, b.x, b.y), v, 0.02)
                speed = add(g, speed, 0.6)
                v = add(v, speed, -0.3)
            ws.append(v)
        w = mean(stack(ws), tensor([1 / 3] * 3))
    assert gap(model(rec), w) < 1e-10


def test_running_statistics_are_refreshed_once_at_the_real_weights():
    task = toy(Normed(5, 6, 3), sizes=(4,), batch=4)
    w, shard = (
        task.init(0),
        task.shards(0, 0, 1, torch.tensor([0]), FFTGP(task).plans())[0],
    )
    want = task.refresh(w, next(iter(shard)))
    for how in ("loop", "vmap"):
        got = model(run(FFTGP(task, lr=0.5), rounds=1, how=how))
        assert gap({k: got[k] for k in task.buffers}, want) < 1e-12


def test_alignment_keeps_features_near():
    task = toy()
    apart = {}
    for lam in (0.0, 5.0):
        method = FFTGP(task, lr=0.05, lam=lam, epochs=8)
        w = task.init(0)
        models = trained(method, w, 0, 1)
        x = [task.x[r] for r in task.train]
        apart[lam] = sum(
            float(align.coral(task.feat(m, xi), task.feat(w, xi)))
            for m, xi in zip(models, x)
        )
    assert apart[5.0] < 0.3 * apart[0.0]


@pytest.mark.parametrize(
    "name, kw, rows",
    [
        ("FFT-GP", {}, 1),
        ("FFT-GP", {"second_order": True}, 1),
        ("GRACE", {}, 1),
        ("PerFedAvg", {}, 1),
        ("PerFedAvg", {"order": "HF"}, 2),
    ],
)
def test_a_batch_shorter_than_its_parts_gives_no_direction(name, kw, rows):
    """Twelve layers of batch norm would blow an empty part up to infinity."""
    task = toy(MLP(5, (6,) * 12, 3, "batch"), dtype=torch.float32)
    w, b, method = task.init(0), batch_of(task), make(name, task, **kw)
    more = (w,) if isinstance(method, Aligned) else ()
    step = method.direction(task.loss, *more)
    padded = torch.func.vmap(lambda m: step(w, b._replace(m=m)))(
        torch.tensor([[1.0] * rows + [0.0] * (8 - rows), [1.0] * 8])
    )
    assert all(bool((v[0] == 0).all()) for v in leaves(padded))
    assert all(bool((v == 0).all()) for v in leaves(step(w, batch_of(task, rows))))
    assert any(bool((v[1] != 0).any()) for v in leaves(padded))


# ---------------------------------------------------------------- GRACE
def brute(kind, D, sizes):
    """Mean cosine to the others, pair by pair and tensor by tensor,
    then the shift and the scale.
    """
    M, cut = len(D), [sum(sizes[:i]) for i in range(len(sizes) + 1)]
    parts = [(0, cut[-1])] if kind == "total" else list(zip(cut[:-1], cut[1:]))
    L = len(parts)
    q = np.linspace(1, 0, L) if kind == "reweight" else np.ones(L)
    q = q / q.mean()
    s = []
    for i in range(M):
        pairs = [
            np.mean(
                [
                    qk * float(F.cosine_similarity(D[i, a:b], D[j, a:b], 0))
                    for qk, (a, b) in zip(q, parts)
                ]
            )
            for j in range(M)
            if j != i
        ]
        s.append(np.mean(pairs))
    s = np.array(s)
    if s.min() < 0:
        s = s - s.min() + 1e-3
    if s.max() > 1:
        s = s / s.max()
    return s


SIZED = [6, 2, 1, 3]


def updates(seed, apart, M=4):
    """Updates that nearly agree; or with the last one against the others."""
    g = torch.Generator().manual_seed(seed)
    D = (
        torch.randn(1, sum(SIZED), generator=g, dtype=torch.float64)
        .expand(M, -1)
        .clone()
    )
    D[-1] *= -1 if apart else 1
    return D + 0.15 * torch.randn(M, sum(SIZED), generator=g, dtype=torch.float64)


@pytest.mark.parametrize("kind", ["total", "split", "reweight"])
@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_consistency_by_brute_force(kind, shifted, seed):
    D = updates(seed, shifted)
    got, want = GRACE(toy(), cosine=kind).consistency(D, SIZED), brute(kind, D, SIZED)
    assert gap([got], [tensor(want)]) < 1e-12
    assert bool((got > 0).all())
    assert float(got.max()) <= 1
    assert bool(got.min() < 0.01) == shifted, (
        "these updates do not test what they should"
    )


def test_the_shift_and_the_scale_in_numbers():
    """Updates e1, e1, -e1: s = (0, 0, -1); shifted (1.001, 1.001, 0.001);
    divided by 1.001.
    """
    got = GRACE(toy()).consistency(tensor([[1.0, 0], [2.0, 0], [-3.0, 0]]), [2])
    assert gap([got], [tensor([1, 1, 0.001 / 1.001])]) < 1e-12


def sent(task, deltas, n):
    w = task.init(0)
    return w, {"w": stack([sub(w, d) for d in deltas]), "n": tensor(n)}


def test_a_round_of_grace_by_hand():
    task, n = toy(Normed(5, 6, 3)), [3.0, 5.0, 2.0]
    method = GRACE(task, server_lr=0.7)
    w, up = sent(
        task, [sub(other(task.init(0), 0.4, i), task.init(0)) for i in range(3)], n
    )
    new = method.aggregate({"w": w}, up, None)
    D = torch.stack(
        [
            torch.cat(
                [(w[k] - up["w"][k][i]).flatten() for k in w if k not in task.buffers]
            )
            for i in range(3)
        ]
    )
    p = np.array(n) * brute("total", D, [D.shape[1]])
    p = tensor(p / p.sum())
    assert gap([new["log"]["weight"]], [p]) < 1e-12
    for k in w:
        average = torch.tensordot(p, up["w"][k], 1)
        want = average if k in task.buffers else w[k] - 0.7 * (w[k] - average)
        assert gap([new["w"][k]], [want]) < 1e-12


@pytest.mark.parametrize("kind", ["total", "split", "reweight"])
@pytest.mark.parametrize("size", [0.3, 0.0])
def test_grace_with_equal_updates_is_fedavg(kind, size):
    task, n = toy(Normed(5, 6, 3)), [3.0, 5.0, 2.0]
    one = sub(other(task.init(0), size), task.init(0))
    w, up = sent(task, [one, scale(one, 2.0), scale(one, 0.5)], n)  # equal in direction
    a, b = (
        m.aggregate({"w": w}, up, None)
        for m in (GRACE(task, cosine=kind), FedAvg(task))
    )
    assert gap(a["w"], b["w"]) < 1e-12
    assert gap([a["log"]["weight"]], [normalize(tensor(n))]) < 1e-12


def test_the_client_that_points_the_other_way_counts_least():
    task = toy()
    one = sub(other(task.init(0)), task.init(0))
    w, up = sent(
        task,
        [one, other(one, 0.05, 2), scale(one, -1.0), other(one, 0.05, 3)],
        [1.0] * 4,
    )
    p = GRACE(task).aggregate({"w": w}, up, None)["log"]["weight"]
    assert int(p.argmin()) == 2 and float(p[2]) < 0.01


def test_grace_with_one_client_is_fedavg():
    task = toy(Normed(5, 6, 3), sizes=(9,))
    a, b = (
        run(GRACE(task, lr=0.3, **PLAIN), rounds=2),
        run(FedAvg(task, lr=0.3), rounds=2),
    )
    assert gap(model(a), model(b)) < 1e-12


def test_grace_takes_the_local_step_without_its_first_half():
    task = toy()
    a = trained(GRACE(task, lr=0.3), task.init(0), 0, 1)
    b = trained(FFTGP(task, lr=0.3, meta="grace"), task.init(0), 0, 1)
    assert all(same(x, y) for x, y in zip(a, b)) and issubclass(GRACE, Aligned)


# ---------------------------------------------------------------- PerFedAvg
A = tensor([[2.0, 0.4, 0.0], [0.4, 1.0, -0.3], [0.0, -0.3, 0.5]])


def valley(w, b):
    """w A w / 2 - w mean(x): Hessian A, whatever the batch."""
    return w["w"] @ A @ w["w"] / 2 - b.avg(b.x[:, :3]) @ w["w"]


def steps_on_a_quadratic(alpha, **kw):
    task = toy()
    b, w = batch_of(task, 9), {"w": tensor([0.7, -1.2, 0.4])}
    with torch.no_grad():
        g = {
            o: PerFedAvg(task, alpha=alpha, order=o, **kw).direction(valley)(w, b)["w"]
            for o in ("FO", "HF", "exact")
        }

    def want(parts):
        one, two = b.x[0::parts, :3].mean(0), b.x[1::parts, :3].mean(0)
        return A @ (w["w"] - alpha * (A @ w["w"] - one)) - two  # g(v; B2)

    return g, want


@pytest.mark.parametrize("alpha", [0.01, 0.3])
@pytest.mark.parametrize("delta", [1e-3, 1e-6])
def test_perfedavg_on_a_quadratic(alpha, delta):
    g, want = steps_on_a_quadratic(alpha, delta=delta)
    I = torch.eye(3, dtype=torch.float64)
    assert gap([g["FO"]], [want(2)]) < 1e-12
    assert gap([g["exact"]], [(I - alpha * A) @ want(2)]) < 1e-12
    assert gap([g["HF"]], [(I - alpha * A) @ want(3)]) < 1e-5
    assert gap([g["FO"] - g["exact"]], [alpha * A @ want(2)]) < 1e-12


def test_perfedavg_exact_is_the_gradient_of_the_adapted_loss():
    """Finite differences of F(w - alpha grad F(w; B1); B2) on a network."""
    task = toy(Normed(5, 4, 3))
    b, w = batch_of(task), task.init(0)
    first, second = b.part(0, 2), b.part(1, 2)
    goal = lambda w: float(task.loss(add(w, grad(task.loss)(w, first), -0.7), second))
    with torch.no_grad():
        g = {
            o: PerFedAvg(task, alpha=0.7, order=o).direction(task.loss)(w, b)
            for o in ("exact", "FO")
        }
    for seed in range(3):
        d = {
            k: v if k not in task.buffers else 0 * v
            for k, v in sub(other(w, 1.0, seed), w).items()
        }
        slope = (goal(add(w, d, 1e-5)) - goal(add(w, d, -1e-5))) / 2e-5
        along = {o: float(sum((g[o][k] * d[k]).sum() for k in d)) for o in g}
        assert along["exact"] == pytest.approx(slope, abs=1e-7)
        assert abs(along["FO"] - slope) > 1e-4


def test_hf_comes_close_to_exact_on_a_network():
    """On three equal parts both are the same function of the batch."""
    task = toy(Normed(5, 4, 3))
    b, w = batch_of(task, 4), task.init(0)
    three = b._replace(
        x=b.x.repeat_interleave(3, 0),
        y=b.y.repeat_interleave(3),
        row=b.row.repeat_interleave(3),
    )
    two = b._replace(
        x=b.x.repeat_interleave(2, 0),
        y=b.y.repeat_interleave(2),
        row=b.row.repeat_interleave(2),
    )
    with torch.no_grad():
        hf = PerFedAvg(task, alpha=0.5, order="HF").direction(task.loss)(w, three)
        exact, fo = (
            PerFedAvg(task, alpha=0.5, order=o).direction(task.loss)(w, two)
            for o in ("exact", "FO")
        )
    free = lambda g: without(g, task.buffers)
    assert gap(free(hf), free(exact)) < 1e-5 < 1e-3 < gap(free(fo), free(exact))


def test_perfedavg_serves_one_step_and_a_pass():
    task, alpha = toy(), 0.8
    method = PerFedAvg(task, lr=0.3, alpha=alpha)
    rec = run(method, rounds=2)
    w, R = model(rec), 2
    for view, plan in (("personal", "adapt"), ("tuned", "tune")):
        got = []
        for c, s in enumerate(
            task.shards(0, 2, R, torch.arange(task.C), method.plans())
        ):
            v, count = w, 0
            for b in s.on(plan):
                p = {k: x.clone().requires_grad_() for k, x in v.items()}
                ds = torch.autograd.grad(
                    F.cross_entropy(task.logits(p, b.x), b.y), list(p.values())
                )
                v, count = {k: v[k] - alpha * d for k, d in zip(p, ds)}, count + 1
            assert count == (
                1 if view == "personal" else math.ceil(len(task.train[c]) / task.batch)
            )
            rows = task.test[c]
            got.append(
                float(
                    (task.logits(v, task.x[rows]).argmax(1) == task.y[rows])
                    .double()
                    .mean()
                )
            )
        assert rec["pre", view, "test"][-1] == pytest.approx(np.array(got))
    assert (rec["pre", "global", "test"][-1] != rec["pre", "tuned", "test"][-1]).any()


# ---------------------------------------------------------------- FFT-GP-beside
def beside(R=4, cls=FFTGPBeside, **kw):
    task = toy(sizes=(8, 8, 8), batch=4)
    return task, run(cls(task, lr=0.5, **kw), rounds=R)


def test_the_instrument_does_not_touch_the_training():
    task, rec = beside()
    plain = run(FFTGP(task, lr=0.5), rounds=4)
    assert same(model(rec), model(plain))
    assert same(rec.state["clients"], plain.state["clients"])
    assert all(np.array_equal(rec.views[k], plain.views[k]) for k in plain.views)
    assert all(np.array_equal(rec.logs[k], plain.logs[k]) for k in plain.logs)


def test_all_rules_but_faa_coincide_in_round_0():
    _, rec = beside()
    for k in ("weight", "val loss", "val accuracy", "test loss", "test accuracy"):
        first = rec.logs[f"FedAvg {k}"][0]
        assert np.array_equal(first, rec.logs[f"GA {k}"][0])
        assert np.array_equal(first, rec.logs[f"FAA-lagged {k}"][0])
    assert (
        np.abs(rec.logs["GA val loss"][1:] - rec.logs["FedAvg val loss"][1:]).max() > 0
    )


def test_every_rule_follows_the_gaps_of_its_own_candidate():
    """Weights of GA and lagged FAA, replayed from the logged gaps of
    the round before.
    """
    R = 5
    _, rec = beside(R)
    a = b = np.full(3, 1 / 3)
    smooth = rec.logs["FAA-lagged val loss"][0]
    for t in range(1, R):
        G = rec.logs["GA val accuracy"][t - 1]
        if np.abs(G).max() > 0:
            eta = ga_step("released", t, R)
            a = np.clip(a + eta / 3 * G / np.abs(G).max(), 0, 1)
            a = a / a.sum()
        assert rec.logs["GA weight"][t] == pytest.approx(a, abs=1e-12)
        smooth = (
            smooth
            if t == 1
            else 0.6 * smooth + 0.4 * rec.logs["FAA-lagged val loss"][t - 1]
        )
        b = by_hand("mirror", b, smooth, 0.2 * (1 - t / R))
        assert rec.logs["FAA-lagged weight"][t] == pytest.approx(b, abs=1e-7)
    assert np.abs(a - 1 / 3).max() > 1e-3 < np.abs(b - 1 / 3).max(), (
        "no weight moved: this shows nothing"
    )
    assert np.array_equal(rec.logs["FedAvg weight"], np.full((R, 3), 1 / 3))


def test_the_gaps_are_those_of_the_candidates():
    """Rounds 0 and 1 by hand: average the same local models with the logged
    weights, and evaluate.
    """
    task, R = toy(sizes=(8, 8, 8), batch=4), 2
    method = FFTGPBeside(task, lr=0.5)
    rec, w = run(method, rounds=R), task.init(0)
    for t in range(R):
        ws = trained(method, w, t, R)
        for rule in ("FedAvg", "GA", "FAA-lagged", "FAA"):
            candidate = mean(stack(ws), tensor(rec.logs[f"{rule} weight"][t]))
            for split in ("val", "test"):
                for metric, name in (("loss", "loss"), ("error", "accuracy")):
                    want = costs(task, candidate, metric, split) - costs(
                        task, ws, metric, split
                    )
                    assert rec.logs[f"{rule} {split} {name}"][t] == pytest.approx(
                        want.numpy(), abs=1e-10
                    )
        w = mean(stack(ws), tensor(rec.logs["FAA weight"][t]))
    assert gap(model(rec), w) < 1e-10


@dataclass(frozen=True)
class WithoutGA(FFTGPBeside):
    @property
    def others(self):
        return {k: v for k, v in super().others.items() if k != "GA"}


def test_one_rule_fewer_changes_no_other_number():
    (_, all_), (_, fewer) = beside(), beside(cls=WithoutGA)
    assert set(all_.logs) - set(fewer.logs) == {
        k for k in all_.logs if k.startswith("GA ")
    }
    assert all(np.array_equal(all_.logs[k], fewer.logs[k]) for k in fewer.logs)
    assert same(model(all_), model(fewer))


# ---------------------------------------------------------------- what is refused
@pytest.mark.parametrize(
    "name, kw, words",
    [
        ("GA", {"step_size": 1.5}, r"GA\.step_size = 1\.5"),
        ("GA", {"step_size": math.inf}, r"GA\.step_size = inf"),
        ("GA", {"step_size": -0.1}, r"GA\.step_size = -0\.1"),
        ("GA", {"metric": "f1"}, r"GA\.metric = 'f1' is not one of 'loss', 'accuracy'"),
        ("FAA", {"eta": 1.5, "form": "additive"}, r"FAA\.eta = 1\.5"),
        ("FAA", {"eta": 1.5, "form": "closed"}, r"FAA\.eta = 1\.5"),
        ("FAA", {"eta": math.inf}, r"FAA\.eta = inf"),
        ("FAA", {"eta": math.nan}, r"FAA\.eta = nan"),
        ("FFT-GP", {"eta": -1}, r"FFTGP\.eta = -1"),
        ("FFT-GP-lagged", {"eta": 2, "form": "closed"}, r"FFTGPLagged\.eta = 2"),
        ("FAA", {"form": "mirrors"}, r"FAA\.form = 'mirrors' is not one of"),
        ("FAA", {"trials": 0}, r"FAA\.trials = 0 is outside"),
        ("FAA", {"beta": 1.5}, r"FAA\.beta = 1\.5 is outside"),
        ("FAA", {"floor": 1.5}, r"FAA\.floor = 1\.5 is outside"),
        ("FAA", {"ceiling": 0.5}, r"FAA\.ceiling = 0\.5 is outside"),
        ("FFT-GP", {"align": "corral"}, r"FFTGP\.align = 'corral' is not one of"),
        ("FFT-GP", {"meta": "maml"}, r"FFTGP\.meta = 'maml' is not one of"),
        ("FFT-GP", {"lam": -1}, r"FFTGP\.lam = -1 is outside"),
        ("GRACE", {"cosine": "sum"}, r"GRACE\.cosine = 'sum' is not one of"),
        ("FFT-GP", {"step": "SAM"}, r"FFTGP\.step = SAM.*brings its own"),
        ("GRACE", {"step": {"name": "Private", "clip": 0.5}}, r"GRACE\.step = Private"),
        ("PerFedAvg", {"step": "Private"}, r"PerFedAvg\.step = Private"),
        ("PerFedAvg", {"order": "SO"}, r"PerFedAvg\.order = 'SO' is not one of"),
        ("PerFedAvg", {"delta": 0}, r"PerFedAvg\.delta = 0 is outside"),
    ],
)
def test_values_that_make_no_sense(name, kw, words):
    with pytest.raises(ValueError, match=words):
        make(name, toy(), **kw)


@pytest.mark.parametrize("name", ["GA", "FAA", "FAA-lagged", "FFT-GP", "FFT-GP-beside"])
def test_gaps_need_validation_rows(name):
    task = toy()
    none = torch.zeros(0, dtype=torch.long)
    with pytest.raises(
        ValueError, match="needs validation rows at every client; client 2"
    ):
        run(make(name, replace(task, val=(*task.val[:2], none, *task.val[3:]))))


def test_every_client_takes_part_in_a_rule_of_gaps():
    """A cohort is not drawn: each weight needs this round's model."""
    task = toy()
    assert same(
        model(run(FAA(task), rounds=2, cohort=2)), model(run(FAA(task), rounds=2))
    )
