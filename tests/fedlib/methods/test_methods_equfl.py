"""EquFL and the updates that are only noise: rounds by hand, limits, the trail, the
rehearsal, what the server asks for.
"""

import itertools
import math
import warnings
from dataclasses import replace
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
import torch
from scipy import stats
from toys_core import GROUPS, Normed, gap, same, seen, state, toy

from fedlib.core import engine
from fedlib.core.groups import parity
from fedlib.core.local import Private
from fedlib.core.method import Round
from fedlib.core.random import fold
from fedlib.core.tree import (
    add,
    leaves,
    onehot,
    pick,
    scale,
    sqnorm,
    stack,
    sub,
    subset,
    unrow,
    without,
)
from fedlib.methods import METHODS
from fedlib.methods.base.fedavg import FedAvg
from fedlib.methods.groups.calibrated import Calibrated, GaussianUpdate, UniformUpdate
from fedlib.methods.groups.equfl import METRICS, EquFL
from fedlib.methods.make import make
from fedlib.pieces import condense, surrogates
from fedlib.pieces.robust import RULES

LR, R, T0 = 0.2, 6, 3
QUICK = {"lr": LR, "outer": 3, "J": 2, "size": 12, "net": "same"}
NOISE = {"Gaussian-update": {}, "Uniform-update": {}}
ALL = {"EquFL": QUICK, **{k: {"lr": LR} for k in NOISE}}


def run(method, **more):
    """A run that is scored at its start and its end."""
    return engine.run(
        method,
        **(
            {"rounds": R, "device": "cpu", "seed": 1, "every": 100, "splits": ("test",)}
            | more
        ),
    )


@cache
def task_of(network=None):
    return toy(network, sizes=(9, 14, 6, 20, 3), batch=8, groups=GROUPS)


def equfl(task=None, **kw):
    return make("EquFL", task or task_of(), **(QUICK | kw))


@cache
def plain(task=None, **more):
    return run(FedAvg(task or task_of(), lr=LR), **more)


def server(rec):
    return rec.state["server"]


def model(rec):
    s = server(rec)
    return s["in"]["w"] if "in" in s else s["w"]


def key(t, seed=1):
    return fold(torch.tensor(seed), t, -999)


def slope(f, w):
    """The gradient of f at w, by autograd."""
    p = {k: v.detach().clone().requires_grad_() for k, v in w.items()}
    return dict(zip(p, torch.autograd.grad(f(p), leaves(p))))


def eo_by_hand(task, S, w):
    """Eq. 8 for GROUPS: classes 1 and 2 are the positive outcome,
    column 0 holds the group.
    """
    p = task.logits(w, S["x"]).softmax(1)
    a, good, F = S["x"][:, 0] > 0.5, S["q"][:, 1] + S["q"][:, 2], 0
    for weight, loss in (
        (good, -(p[:, 1] + p[:, 2]).log()),
        (1 - good, -p[:, 0].log()),
    ):
        means = [(weight[g] * loss[g]).sum() / weight[g].sum() for g in (a, ~a)]
        F = F + (means[0] - means[1]).abs()
    return F


# ---------------------------------------------------------------- when
@pytest.mark.parametrize("cls", [GaussianUpdate, EquFL])
def test_calibration_begins_at_the_floor(cls):
    """T0 = floor(R (1 - rho)) in exact arithmetic, also where the floating product
    falls just below a whole number.
    """
    for rounds, percent in itertools.product(
        [*range(1, 41), 100, 150, 1000], range(0, 101)
    ):
        m = cls(rho=percent / 100)
        assert m.phases(rounds)[0] == math.floor(
            rounds * (1 - Fraction(percent, 100))
        ), (rounds, percent)


def test_a_rehearsal_of_T_rounds_takes_T_and_the_calibrated_ones():
    """A run of T + T - T0 rounds is split into T, and T - T0, for any share."""
    for T, percent in itertools.product(range(1, 101), range(0, 101, 5)):
        rho = percent / 100
        first = math.floor(T * (1 - Fraction(percent, 100)))
        assert EquFL(rho=rho, rewind=True).phases(T + T - first) == (T, first), (T, rho)


# ---------------------------------------------------------------- limits
@pytest.mark.parametrize("name", ALL)
def test_no_calibrated_round_is_the_method_inside(name):
    task = task_of()
    a, b = run(make(name, task, **ALL[name], rho=0)), plain(task)
    assert same(server(a)["in"], server(b))
    assert same(a.state["clients"], b.state["clients"])
    assert same(seen(a), seen(b))


def test_a_rehearsal_without_a_calibrated_round_is_the_method_inside():
    a, b = run(equfl(rho=0, rewind=True)), plain()
    assert same(server(a)["in"], server(b))


@pytest.mark.parametrize("name", ALL)
def test_no_strength_is_the_method_inside(name):
    task = task_of()
    a, b = run(make(name, task, **ALL[name], lam=0)), plain(task)
    assert gap(server(a)["in"], server(b)) == 0
    assert not gap(model(run(make(name, task, **ALL[name]))), model(b)) == 0


@pytest.mark.parametrize("name", ALL)
def test_before_the_calibrated_rounds_it_is_the_method_inside(name):
    task = task_of()
    a, b = run(make(name, task, **ALL[name]), upto=T0), plain(task, upto=T0)
    assert same(server(a)["in"], server(b)) and same(seen(a), seen(b))
    a, b = run(make(name, task, **ALL[name]), upto=T0 + 1), plain(task, upto=T0 + 1)
    assert not same(server(a)["in"], server(b))
    assert same(a.state["clients"], b.state["clients"])


# -------------------------------------------------- the first calibrated round, by hand
def first_step(method, inner=None):
    """(w^T0, aggregated, w^(T0+1), S) of a run,
    the aggregated model from the method inside alone.
    """
    before, new = (
        plain(method.task, upto=t) if inner is None else run(inner, upto=t)
        for t in (T0, T0 + 1)
    )
    got = run(method, upto=T0 + 1)
    return model(before), model(new), model(got), server(got).get("S")


@pytest.mark.parametrize("lam", [0.5, 1.0, 3.0])
def test_one_calibrated_round_by_hand(lam):
    """w <- aggregated - lr lam grad F(w^t; S), with F written out."""
    m = equfl(lam=lam)
    w, new, got, S = first_step(m)
    g = slope(lambda v: eo_by_hand(m.task, S, v), w)
    assert sqnorm(g) > 1e-6 and gap(got, add(new, g, -LR * lam)) < 1e-12


def test_every_calibrated_round_starts_where_the_clients_started(monkeypatch):
    """The same S in all rounds, the gradient at the model that was sent,
    the step from the aggregated one.
    """
    m, calls, honest = equfl(lam=0.7), [], EquFL.update

    def spy(self, server_, w, new, r):
        out = honest(self, server_, w, new, r)
        calls.append((r.t, w, new, out[0]["S"], out[1]))
        return out

    monkeypatch.setattr(EquFL, "update", spy)
    models = [model(run(m, upto=t)) for t in range(T0, R + 1)]
    calls = calls[-(R - T0) :]
    assert [c[0] for c in calls] == list(range(T0, R))
    for (_, w, new, S, g), sent, after in zip(calls, models, models[1:]):
        assert same(w, sent)
        assert same(S, calls[0][3])
        assert gap(add(new, g, -LR * 0.7), after) < 1e-15
        assert gap(g, slope(lambda v, S=S: eo_by_hand(m.task, S, v), sent)) < 1e-12


def test_to_first_order_the_bias_on_S_falls_by_the_squared_length():
    """F(w - h (G + g)) - F(w - h G) = -h |g|^2 + O(h^2): eqs 9 to 12."""
    m = equfl()
    w, new, _, S = first_step(m)
    F = surrogates.fairness("EO", m.task, S)
    g, G = slope(F, w), scale(sub(w, new), 1 / LR)
    errors = []
    for h in (1e-3, 1e-4, 1e-5):
        fall = float(F(add(w, add(G, g), -h)) - F(add(w, G, -h)))
        errors.append(abs(fall / (-h * float(sqnorm(g))) - 1))
    assert errors[2] < 1e-3 and errors[2] < errors[1] < errors[0]


def test_where_the_gradient_is_taken_and_how_long_it_is():
    task = task_of()
    steps = np.mean([-(-len(r) // task.batch) for r in task.train])
    for kw, at, length in (
        ({}, 0, None),
        ({"at": "aggregated"}, 1, None),
        ({"scale": "aggregate"}, 0, "aggregate"),
        ({"scale": "steps"}, 0, steps),
        ({"scale": "steps", "epochs": 3}, 0, 3 * steps),
        ({"scale": "steps", "batches": 2}, 0, 2),
    ):
        m = equfl(task, **kw)
        w, new, got, S = first_step(
            m,
            FedAvg(
                task, lr=LR, epochs=kw.get("epochs", 1), batches=kw.get("batches", 0)
            ),
        )
        g = slope(lambda v, S=S: eo_by_hand(task, S, v), (w, new)[at])
        if length == "aggregate":
            G = math.sqrt(sum(float(((w[k] - new[k]) / LR).square().sum()) for k in w))
            g = scale(g, G / math.sqrt(float(sqnorm(g))))
        elif length:
            g = scale(g, length)
        assert gap(got, add(new, g, -LR)) < 1e-12, kw


@pytest.mark.parametrize("form", surrogates.FORMS)
@pytest.mark.parametrize("target", METRICS)
def test_each_target_steps_along_its_own_surrogate(target, form):
    m = equfl(target=target, form=form)
    w, new, got, S = first_step(m)
    f = surrogates.fairness(target, m.task, S, form)
    assert gap(got, add(new, slope(f, w), -LR)) < 1e-12
    assert np.allclose(run(m).logs["surrogate"][T0], float(f(w)))


@pytest.mark.parametrize("normalise", ["none", "l2", "loss"])
def test_four_targets_at_once(normalise):
    m = equfl(target="Multi", normalise=normalise)
    w, new, got, S = first_step(m)
    F = [surrogates.fairness(t, m.task, S) for t in METRICS]
    gs, values = [slope(f, w) for f in F], torch.stack([f(w) for f in F])
    g, c = surrogates.min_norm(gs, normalise, values)
    assert gap(got, add(new, g, -LR)) < 1e-12
    moved = scale(sub(got, new), -1 / LR)
    # none gets worse
    assert all(
        sum((a * b).sum() for a, b in zip(leaves(moved), leaves(gi))) > -1e-9
        for gi in gs
    )
    logs = run(m, upto=T0 + 1).logs
    assert np.allclose(logs["surrogate"][T0], values)
    assert np.allclose(logs["mgda"][T0], c)
    assert logs["mgda"][T0].sum() == pytest.approx(1)


def test_the_sum_of_four_targets():
    m = equfl(target="Sum")
    w, new, got, S = first_step(m)
    g = slope(lambda v: sum(surrogates.fairness(t, m.task, S)(v) for t in METRICS), w)
    assert gap(got, add(new, g, -LR)) < 1e-12


# ---------------------------------------------------------------- noise
def drawn(m, seed=0, t=0, n=200_001):
    like = {
        "a": torch.zeros(n // 3, 2, dtype=torch.float64),
        "b": torch.zeros(n - 2 * (n // 3), dtype=torch.float64),
    }
    _, g, log = m.update({}, like, None, Round(t, 9, key(t, seed), None, None))
    assert [v.shape for v in leaves(g)] == [v.shape for v in leaves(like)] and not log
    return torch.cat([v.flatten() for v in leaves(g)])


@pytest.mark.parametrize(
    "make_, law",
    [
        (lambda t: GaussianUpdate(t, std=0.5), stats.norm(0, 0.5)),
        (lambda t: GaussianUpdate(t), stats.norm(0, 2)),
        (lambda t: UniformUpdate(t), stats.uniform(-1, 2)),
        (lambda t: UniformUpdate(t, bound=3.0), stats.uniform(-3, 6)),
    ],
)
def test_the_noise_has_its_distribution(make_, law):
    g = drawn(make_(task_of())).numpy()
    assert stats.kstest(g, law.cdf).pvalue > 1e-3
    assert abs(g.mean()) < 5 * law.std() / math.sqrt(len(g))
    assert g.std() == pytest.approx(law.std(), rel=0.01)
    assert abs(np.corrcoef(g[:-1], g[1:])[0, 1]) < 0.01


@pytest.mark.parametrize("name", NOISE)
def test_noise_depends_on_seed_and_round_alone(name):
    m = make(name, task_of())
    a, other_round, other_seed = drawn(m), drawn(m, t=1), drawn(m, seed=1)
    assert torch.equal(a, drawn(m))
    assert all(
        abs(np.corrcoef(a.numpy(), v.numpy())[0, 1]) < 0.02
        for v in (other_round, other_seed)
    )


@pytest.mark.parametrize("name", NOISE)
def test_a_round_of_noise_by_hand(name):
    m = make(name, task_of(), lr=LR, lam=0.3)
    w, new, got, _ = first_step(m)
    _, g, _ = m.update({}, w, new, Round(T0, R, key(T0), None, None))
    assert gap(got, add(new, g, -LR * 0.3)) < 1e-15
    assert gap(state(run(m)), state(run(m, how="vmap"))) < 1e-9


# ------------------------------------------------ around other methods, and other rules
@pytest.mark.parametrize(
    "name",
    [
        "FedProx",
        "q-FedAvg",
        "FedGA",
        "Ditto",
        "FedSAM",
        "FLinear",
        "FairFed",
        "FedFB",
        "FedMGDA+",
    ],
)
def test_around_other_methods(name):
    """Bit by bit the method inside until T0, then its step and the server's;
    clients notice nothing.
    """
    task = task_of()
    inner = make(name, task, lr=LR)
    m = EquFL(task, inner=inner, **{k: v for k, v in QUICK.items() if k != "lr"})
    a, b = run(m, upto=T0), run(inner, upto=T0)
    assert same(server(a)["in"], server(b))
    assert same(a.state["clients"], b.state["clients"])
    w, new, got, S = first_step(m, inner)
    g = slope(lambda v: eo_by_hand(task, S, v), w)
    assert gap(got, add(new, g, -LR)) < 1e-12
    done = run(m)
    assert all(v.isfinite().all() for v in leaves(state(done)) if v.is_floating_point())
    assert set(done.views) == set(b.views)


def test_the_logs_of_both_are_kept():
    """What FairFed calls F, the clients' gaps,
    is not what the server logs of its own.
    """
    task = task_of()
    done, inside = (
        run(make("EquFL", task, inner="FairFed", **QUICK)),
        run(make("FairFed", task, lr=LR)),
    )
    assert set(inside.logs) < set(done.logs)
    for k, v in inside.logs.items():
        assert (
            np.array_equal(done.logs[k][:T0], v[:T0], equal_nan=True)
            and done.logs[k].shape == v.shape
        ), k


@pytest.mark.parametrize("rule", RULES)
def test_with_every_rule(rule):
    """The rule has no say in the server's own update,
    and need not be differentiated.
    """
    task = task_of()
    m, inner = equfl(task, rule=rule), make("FedAvg", task, lr=LR, rule=rule)
    assert type(m.inner.rule) is RULES[rule]
    w, new, got, S = first_step(m, inner)
    assert gap(got, add(new, slope(lambda v: eo_by_hand(task, S, v), w), -LR)) < 1e-12


@pytest.mark.parametrize("outer", ["EquFL", "Gaussian-update"])
@pytest.mark.parametrize(
    "name",
    [
        "FedRep",
        "FedPer",
        "FedBABU",
        "LG-FedAvg",
        "Local",
        "FedProto",
        "pFedHN",
        "FedPAC",
        "FedAS",
    ],
)
def test_no_whole_model_no_calibration(name, outer):
    m = make(outer, task_of(), inner=name, **(QUICK if outer == "EquFL" else {}))
    with pytest.raises(
        ValueError,
        match=(
            r"around \w+: the server holds no whole model under 'w' \([\w.]+ is "
            r"missing\), so "
            "nothing can be calibrated; take a method with a global model"
        ),
    ):
        run(m)


@pytest.mark.parametrize("outer", ["EquFL", "Gaussian-update"])
def test_a_model_that_is_only_partly_shared_is_refused(outer):
    m = make(outer, task_of(), inner="CD2-pFed", **(QUICK if outer == "EquFL" else {}))
    with pytest.raises(ValueError, match="whole model"):
        run(m)


def test_a_server_without_an_update_is_no_method():
    task = task_of()
    with pytest.raises(NotImplementedError, match="Calibrated has no update"):
        run(Calibrated(task, inner=FedAvg(task)))


def test_groups_are_needed_by_the_server_but_not_for_noise():
    with pytest.raises(
        ValueError, match="EquFL needs to know the groups, and 'toy' has none"
    ):
        run(equfl(toy()))
    assert run(make("Gaussian-update", toy(), lr=LR)).rounds[-1] == R


# ---------------------------------------------------------------- the trail
def trail_of(rec):
    return server(rec)["trail"]


@pytest.mark.parametrize("network", [None, Normed(5, 6, 3)])
def test_the_trail_is_the_global_models_of_a_plain_run(network):
    """Round by round, to the bit."""
    task = task_of(network)
    done = run(equfl(task, source="real", rho=1 / 3))
    assert server(done)["window"].tolist() == [0, 1, 2, 3]
    names = list(trail_of(done))
    want = stack([subset(model(plain(task, upto=t)), names) for t in range(4)])
    assert same(trail_of(done), {k: want[k] for k in names})
    assert set(names) >= set(without(task.init(0), task.buffers))


def window(m, rounds=100, seed=1):
    return m.window(Round(-1, rounds, key(-1, seed), None, None)).tolist()


def test_windows():
    assert (
        window(EquFL())
        == list(range(50))
        == window(EquFL(count=90))
        == window(EquFL(count=50))
    )
    assert window(EquFL(count=30)) == list(range(30))
    assert window(EquFL(rho=0.2), 10) == list(range(8))
    assert window(EquFL(rewind=True), 150) == list(range(50))
    assert window(EquFL(rewind=True, count=80), 150) == list(range(80))
    for rewind, last, rounds in ((False, 50, 100), (True, 100, 150)):
        m = EquFL(collect="discrete", count=30, rewind=rewind)
        got = [window(m, rounds, seed) for seed in range(40)]
        assert all(
            len(set(w)) == 30 == len(w)
            and w == sorted(w)
            and 0 <= w[0]
            and w[-1] < last
            for w in got
        )
        assert window(m, rounds, 3) == got[3] and len(set(map(tuple, got))) == 40
        # every round is as likely as any other
        seen_ = np.bincount(np.concatenate(got), minlength=last)
        p = 30 / last
        assert (abs(seen_ - 40 * p) < 5 * math.sqrt(40 * p * (1 - p))).all()
        assert seen_.min() > 0


def test_the_discrete_trail_holds_its_rounds():
    m = equfl(collect="discrete", count=3, rewind=True, source="real")
    done = run(m, rounds=9)  # T = 6, T0 = 3
    rounds = server(done)["window"].tolist()
    assert len(rounds) == 3 and max(rounds) < 6
    want = stack([model(plain(upto=t, rounds=9)) for t in rounds])
    assert same(trail_of(done), want)


def test_after_the_rehearsal_the_server_is_where_it_was():
    """Nine rounds: a rehearsal of T = 6, then back to the model of round T0 = 3 and
    three calibrated rounds.
    """
    m = equfl(rewind=True)
    for t in range(6):
        assert same(
            server(run(m, rounds=9, upto=t))["in"], server(plain(rounds=9, upto=t))
        ), t
    back = run(m, rounds=9, upto=6)
    assert same(server(back)["in"], server(plain(rounds=9, upto=3)))
    assert "S" not in server(back)
    logs = run(m, rounds=9).logs
    assert np.isnan(logs["surrogate"][:6]).all()
    assert np.isfinite(logs["surrogate"][6:]).all()
    assert len(logs["surrogate"]) == 9
    want = eo_by_hand(m.task, server(run(m, rounds=9))["S"], model(back))
    # the first step is at the model of round T0
    assert logs["surrogate"][6] == pytest.approx(float(want))


def test_a_round_without_clients_leaves_no_checkpoint(monkeypatch):
    """Nobody is online in round 1: the two models that were sent make the trail."""
    calls, honest = [], condense.condense

    def spy(net, trail, rounds, *rest, **more):
        calls.append((trail, torch.as_tensor(rounds).tolist()))
        return honest(net, trail, rounds, *rest, **more)

    monkeypatch.setattr(condense, "answers", {})
    monkeypatch.setattr(condense, "condense", spy)
    task, cohort = task_of(), lambda t: [] if t == 1 else [0, 1]
    run(equfl(task), cohort=cohort)
    ((trail, rounds),) = calls
    assert rounds == [0, 2]
    want = stack([model(plain(task, upto=t, cohort=cohort)) for t in rounds])
    assert same(subset(trail, want), want)


@pytest.mark.parametrize(
    "kw, rounds", [({}, 2), ({"rho": 1.0}, 6), ({"rho": 0.9}, 10), ({"count": 1}, 6)]
)
def test_one_model_is_no_trail(kw, rounds):
    with pytest.raises(
        ValueError,
        match=(
            r"collects [01] models in \d+ rounds, and a trail has at least two: give a "
            r"smaller rho "
            "or more rounds"
        ),
    ):
        run(equfl(**kw), rounds=rounds)


# ---------------------------------------------------------------- resumed
KINDS = {
    "same": {},
    "standard": {"net": "standard", "pool": 30},
    "real": {"source": "real"},
    "start": {"source": "start"},
    "Multi": {"target": "Multi"},
    "discrete": {"collect": "discrete", "count": 2},
    "rewind": {"collect": "discrete", "count": 3, "rewind": True},
    "Ditto": {"inner": "Ditto"},
    "private": {"step": {"name": "Private", "sigma": 0.5}, "poisson": True},
}


@pytest.mark.filterwarnings("ignore:the server's network agrees")
@pytest.mark.parametrize("name", KINDS)
def test_resumed_at_every_round_it_is_uninterrupted(name, tmp_path):
    """Also where it goes back, right before and right after S is made,
    and between calibrated rounds.
    """
    rounds = 9 if name == "rewind" else R
    m = equfl(**KINDS[name])
    whole = run(m, rounds=rounds, cohort=4)
    for t in range(rounds + 1):
        # killed before every round
        run(m, rounds=rounds, cohort=4, folder=tmp_path, upto=t)
    rest = run(m, rounds=rounds, cohort=4, folder=tmp_path)
    assert same(state(rest), state(whole)) and same(seen(rest), seen(whole))


@pytest.mark.filterwarnings("ignore:the server's network agrees")
@pytest.mark.parametrize(
    "name, network",
    [
        *((k, None) for k in KINDS),
        *(
            (k, Normed(5, 6, 3))
            for k in ("same", "standard", "real", "start", "rewind")
        ),
    ],
)
def test_vmap_is_loop(name, network):
    m = equfl(task_of(network), **KINDS[name])
    a, b = (
        run(m, cohort=4, how=how, guests=True, rounds=9 if name == "rewind" else R)
        for how in ("loop", "vmap")
    )
    assert gap(state(a), state(b)) < 1e-8 and gap(seen(a), seen(b)) < 1e-8


# ---------------------------------------------------------------- the rows S
def test_real_rows_are_training_rows_of_those_who_were_asked():
    """k = 3 of each of four clients, 12 of 10 kept; every row with the label it has
    there; all of it is counted.
    """
    task, size = task_of(), 10
    m = equfl(task, source="real", size=size)
    rec = run(m, cohort=4)
    S, ids = server(rec)["S"], rec.logs["cohort"][T0].tolist()
    assert S["x"].shape == (size, 5) and S["q"].shape == (size, 3)
    for i, (x, q) in enumerate(zip(S["x"], S["q"])):
        own = task.train[ids[i // 3]]
        hit = own[(task.x[own] == x).all(1)]
        assert len(hit) == 1 and q.tolist() == onehot(task.y[hit[0]], 3, q).tolist()
    told = rec.meta["bytes"]["answer"]
    assert told["own_rows.x"]["bytes"] == 3 * 5 * 8
    assert told["own_rows.x"]["shape"] == [3, 5]
    assert {"own_rows.x", "own_rows.y"} == set(told)
    assert not run(equfl(task), cohort=4).meta["bytes"].get("answer")
    assert gap(S, server(run(m, cohort=4, how="vmap"))["S"]) == 0
    many = server(run(equfl(task, source="real", size=4000)))["S"]["x"]
    # every training row can be drawn
    assert len(many.unique(dim=0)) == sum(map(len, task.train))


def seed_of_S(t=T0):
    return int(key(t)) % 2**31


@pytest.mark.parametrize(
    "start, labels",
    [
        ("schema", "soft"),
        ("noise", "soft"),
        ("schema", "balanced"),
        ("noise", "balanced"),
    ],
)
def test_the_unmatched_rows_are_the_start(start, labels):
    """source = start: the rows and labels before matching,
    the labels by the last model of the trail.
    """
    task = task_of()
    S = server(run(equfl(task, source="start", start=start, labels=labels)))["S"]
    last = model(plain(task, upto=T0 - 1))
    want = condense.start(task, last, 12, seed_of_S(), start, labels)
    assert torch.equal(S["x"], want["x"])
    assert torch.allclose(S["q"], want["logits"].softmax(1), atol=1e-15)
    hard = (
        server(run(equfl(task, source="start", start=start, labels="hard")))["S"]["q"]
        if labels == "soft"
        else None
    )
    assert hard is None or torch.equal(
        hard, onehot(want["logits"].argmax(1), 3, S["x"])
    )


def test_the_condensed_rows_are_those_of_condense():
    m = equfl(rows=5, reach=1)
    task, done = m.task, run(m)
    first = condense.start(task, model(plain(upto=T0 - 1)), 12, seed_of_S())
    trail = stack([model(plain(upto=t)) for t in range(T0)])
    want, losses = condense.condense(
        task.network,
        trail,
        range(T0),
        first,
        condense.Matching(3, 2, 1, 5, 0, lr_q=m.lr_q),
        seed=seed_of_S(),
    )
    assert same(server(done)["S"], want)
    assert torch.equal(want["x"][:, 0], first["x"][:, 0])
    assert done.logs["matching"][T0] == pytest.approx(float(losses.mean()))
    assert np.isnan(done.logs["matching"][T0 + 1 :]).all()
    hard = server(run(equfl(rows=5, reach=1, labels="hard")))["S"]
    assert torch.equal(hard["x"], want["x"])
    assert torch.equal(hard["q"], onehot(want["q"].argmax(1), 3, want["q"]))


def test_how_fast_labels_are_learned():
    """Rate 0 leaves the labels as they were before matching; a faster rate moves them
    further.
    """
    task = task_of()
    first = condense.start(task, model(plain(upto=T0 - 1)), 12, seed_of_S())
    q = lambda rate: server(run(equfl(lr_q=rate)))["S"]["q"]
    moved = [
        float((q(rate) - condense.finish(first)["q"]).abs().max()) for rate in RATES
    ]
    assert moved[0] < 1e-15 and moved == sorted(moved) and moved[1] > 1e-5
    with pytest.raises(ValueError, match="lr_q = -0.1"):
        equfl(lr_q=-0.1)


RATES = (0, 0.001, 0.1)


def test_relabelled_rows_have_the_last_models_answers():
    """ "model" keeps the matched rows and gives them the answers of the last collected
    model; "each" gives them those of every round's model, so S itself is the same.
    """
    done = {k: server(run(equfl(labels=k))) for k in ("soft", "model", "each")}
    S = done["model"]["S"]
    last = model(plain(upto=T0 - 1))
    assert torch.allclose(S["q"], task_of().logits(last, S["x"]).softmax(1))
    assert all(torch.equal(s["S"]["x"], S["x"]) for s in done.values())
    assert not torch.equal(S["q"], done["soft"]["S"]["q"])
    assert torch.equal(done["each"]["S"]["q"], done["soft"]["S"]["q"])


def test_labels_given_anew_each_round_calibrate_on_that_rounds_answers():
    """One calibrated round by hand, at the model of round T0."""
    m = equfl(labels="each", rho=1 / 6, lam=0.5)
    before, done = run(m, upto=5), run(m)
    w, S = model(plain(upto=5)), server(done)["S"]
    q = m.task.logits(w, S["x"]).softmax(1).detach()
    F = surrogates.fairness("EO", m.task, S | {"q": q})
    w = {k: v.clone().requires_grad_() for k, v in w.items()}
    g = dict(zip(w, torch.autograd.grad(F(w), list(w.values()))))
    want = add(model(plain()), g, -LR * 0.5)
    assert gap(model(done), want) < 1e-10
    assert model(before).keys() == want.keys()


@pytest.mark.parametrize("target", ["DP", "CON"])
def test_the_surrogates_of_dp_and_con_read_no_labels(target):
    ends = [model(run(equfl(labels=k, target=target))) for k in LABELS]
    assert gap(ends[0], ends[1]) < 1e-12 and gap(ends[0], ends[2]) < 1e-12
    eo = [model(run(equfl(labels=k))) for k in LABELS]
    assert gap(eo[0], eo[1]) > 1e-7 and gap(eo[1], eo[2]) > 1e-7


LABELS = ("soft", "model", "each")


@pytest.mark.parametrize("net", ["standard", "deep", "wide"])
def test_another_network_condenses_its_own_trail(net):
    m = equfl(net=net, pool=60, outer=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        done = run(m)
        trail = stack([model(plain(upto=t)) for t in range(T0)])
        theirs, agreement = condense.proxy(
            condense.server_net(net, m.task), m.task, trail, seed_of_S(), 60
        )
    first = condense.start(m.task, pick(trail, -1), 12, seed_of_S())
    want, _ = condense.condense(
        condense.server_net(net, m.task),
        theirs,
        range(T0),
        first,
        condense.Matching(2, 2, 10, None, 0, lr_q=m.lr_q),
        seed=seed_of_S(),
    )
    assert same(server(done)["S"], want)
    assert done.logs["agreement"][T0] == pytest.approx(agreement)


@pytest.mark.filterwarnings("ignore:the server's network agrees")
@pytest.mark.parametrize("net", ["same", "wide"])
def test_runs_with_one_trail_condense_it_once(net, monkeypatch):
    """And have every bit that they have alone."""
    monkeypatch.setattr(condense, "answers", {})
    count = {"condense": 0, "proxy": 0}

    def spy(name, honest):
        def f(*args, **more):
            count[name] += 1
            return honest(*args, **more)

        return f

    for name in count:
        monkeypatch.setattr(condense, name, spy(name, getattr(condense, name)))
    settings = [{"target": k} for k in ("EO", "DP", "CAL", "CON", "Multi", "Sum")]
    settings += [{"lam": 3.0}, {"form": "prob"}, {"at": "aggregated"}]
    methods = [equfl(net=net, pool=60, **kw) for kw in [*settings, {"scale": "steps"}]]
    together = [run(m) for m in methods]
    assert count == {"condense": 1, "proxy": int(net != "same")}
    for m, done in zip(methods, together):
        condense.answers.clear()
        alone = run(m)
        assert same(server(alone), server(done))
        for k, log in alone.logs.items():
            np.testing.assert_array_equal(log, done.logs[k])
    models = {bytes(leaves(model(done))[0].numpy().tobytes()) for done in together}
    assert len(models) > len(methods) - 2  # they do end elsewhere
    # what changes the trail, or how it is condensed, is condensed anew
    condense.answers.clear()
    before = count["condense"]
    for kw in ({}, {"lr": 0.11}, {"J": 3}, {"size": 13}, {"rho": 0.2}):
        run(equfl(net=net, pool=60, **kw))
    run(equfl(net=net, pool=60), seed=2)
    run(equfl(net=net, pool=60))
    assert count["condense"] == before + 6


def test_seeds_change_the_rows():
    a, again, other = (
        server(run(equfl(source="start"), seed=s))["S"] for s in (1, 1, 2)
    )
    assert same(a, again) and not same(a, other)


# ------------------------------------------ images by parity, batch norm, private steps
def test_groups_that_follow_from_the_class():
    task = toy()
    a, groups = parity(task.y, 3)
    task = replace(task, a=a, groups=groups)
    m = equfl(task, start="noise")
    w, new, got, S = first_step(m)
    q = S["q"]

    def p(v):
        return task.logits(v, S["x"]).softmax(1)

    # classes 0, 2 even, 1 odd; 1 and 2 positive: only the even group has both
    def F(v):
        l1 = -(p(v)[:, 1] + p(v)[:, 2]).log()
        return (
            (q[:, 2] * l1).sum() / q[:, 2].sum() - (q[:, 1] * l1).sum() / q[:, 1].sum()
        ).abs()

    assert gap(got, add(new, slope(F, w), -LR)) < 1e-12


@pytest.mark.parametrize("source", ["condensed", "start", "real"])
def test_running_statistics_are_not_stepped(source):
    """The calibrated model has the aggregated statistics, and its parameters moved."""
    task = task_of(Normed(5, 6, 3))
    m = equfl(task, source=source)
    w, new, got, S = first_step(m)
    assert task.buffers and same(subset(got, task.buffers), subset(new, task.buffers))
    assert gap(without(got, task.buffers), without(new, task.buffers)) > 1e-6
    assert list(got) == list(new)


def test_a_private_inner_method_is_still_private():
    task = task_of()
    m = equfl(task, step={"name": "Private", "clip": 0.5, "sigma": 0.5}, poisson=True)
    assert m.inner.step == Private(0.5, 0.5) and m.plans()["train"].poisson
    inner = make(
        "FedAvg",
        task,
        lr=LR,
        step={"name": "Private", "clip": 0.5, "sigma": 0.5},
        poisson=True,
    )
    w, new, got, S = first_step(m, inner)
    assert gap(got, add(new, slope(lambda v: eo_by_hand(task, S, v), w), -LR)) < 1e-12


def test_guests_and_small_cohorts():
    rec = run(equfl(), cohort=1, guests=True)
    assert ("guest", "global", "test") in rec.views
    assert rec.cells["guest", "global", "test"].shape == (2, 2, 2, 2, 2)
    assert same(state(rec), state(run(equfl(), cohort=1)))
    assert rec.cells["guest", "global", "test"].sum((2, 3, 4)).tolist() == [[6, 6]] * 2


def test_like_unrow():
    """The noise is laid out in the order of the leaves,
    so its values do not depend on names.
    """
    m = UniformUpdate(task_of())
    like = {
        "b": torch.zeros(2, dtype=torch.float64),
        "a": torch.zeros(3, dtype=torch.float64),
    }
    r = Round(0, 9, key(0), None, None)
    one, two = (
        m.update({}, like, None, r)[1],
        m.update({}, {"z": torch.zeros(5, dtype=torch.float64)}, None, r)[1],
    )
    assert same(one, unrow(two["z"], like)) and set(METHODS) >= set(NOISE)
