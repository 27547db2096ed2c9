"""Epsilon against closed forms and quadrature;
the private step against a loop over rows.
"""

import math
import sys

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.stats import norm
from toys_core import gap, seen, state, toy

from fedlib.core import engine
from fedlib.core.batches import Batch
from fedlib.core.local import Plain, Private
from fedlib.core.random import LazyKey
from fedlib.core.tree import add, leaves, scale, sqnorm, sub
from fedlib.methods.base.fedavg import FedAvg
from fedlib.nets import MLP, Linear
from fedlib.pieces.privacy import ORDERS, epsilon


# ---------------------------------------------------------------- epsilon
def converted(renyi, delta, orders=ORDERS):
    """The smallest epsilon over the orders, by Balle et al.
    (AISTATS 2020, theorem 21).
    """
    a = np.array(orders, dtype=float)
    return float(
        np.min(renyi(a) + np.log(1 - 1 / a) - (math.log(delta) + np.log(a)) / (a - 1))
    )


def exact(sigma, delta):
    """Epsilon of one Gaussian mechanism, by its exact trade-off (Balle, Wang,
    ICML 2018, theorem 8).
    """

    def excess(e):
        return (
            norm.cdf(0.5 / sigma - e * sigma)
            - math.exp(e) * norm.cdf(-0.5 / sigma - e * sigma)
            - delta
        )

    return brentq(excess, 0, 100)


@pytest.mark.parametrize("sigma", [0.5, 1, 2, 4])
@pytest.mark.parametrize("delta", [1e-5, 1e-3])
def test_all_rows_in_every_step_is_the_gaussian_mechanism(sigma, delta):
    """q = 1: order a costs a / (2 sigma^2) a step.

    The exact epsilon lies below, and T steps are one with sigma / sqrt(T).
    """
    e = epsilon(sigma, 100, 100, 1, delta)
    assert e == pytest.approx(converted(lambda a: a / (2 * sigma**2), delta), rel=1e-9)
    assert exact(sigma, delta) < e < 1.25 * exact(sigma, delta)
    assert epsilon(sigma, 7, 7, 9, delta) == pytest.approx(
        epsilon(sigma / 3, 7, 7, 1, delta), rel=1e-9
    )


@pytest.mark.parametrize(
    "sigma, batch, n, steps", [(1, 64, 450, 800), (2, 10, 1000, 50), (0.8, 30, 60, 1)]
)
def test_sampled_rows_by_quadrature(sigma, batch, n, steps, monkeypatch):
    """Order a costs log E[((1 - q) + q exp((2 z - 1) / (2 sigma^2)))^a] / (a - 1) a
    step, z ~ N(0, sigma^2).
    """
    q = batch / n

    def renyi(a):
        def f(z):
            ratio = np.logaddexp(
                math.log1p(-q), math.log(q) + (2 * z - 1) / (2 * sigma**2)
            )
            return math.exp(a * ratio + norm.logpdf(z, scale=sigma))

        points = [0, a, a / 2]  # the mass lies about 0 and about z = a
        return math.log(
            quad(f, -12 * sigma, a + 12 * sigma, points=points, limit=200)[0]
        ) / (a - 1)

    some = [1.5, 2, 2.5, 3, 4, 6, 12, 20]
    want = converted(np.vectorize(lambda a: steps * renyi(a)), 1e-5, some)
    assert epsilon(sigma, batch, n, steps) <= want * (1 + 1e-6)  # by more orders
    monkeypatch.setattr("fedlib.pieces.privacy.ORDERS", some)
    assert epsilon(sigma, batch, n, steps) == pytest.approx(want, rel=1e-6)


def test_a_published_value():
    """q = 0.01, sigma = 4, 10000 steps, delta = 1e-5 cost 1.26 by the looser moments
    accountant of Abadi et al. (CCS 2016).
    """
    assert 1.0 < epsilon(4, 1, 100, 10000) < 1.26


@pytest.mark.parametrize(
    "calls",
    [
        [{"sigma": s} for s in (8, 4, 2, 1, 0.5, 0)],
        [{"steps": t} for t in (0, 1, 10, 100, 1000)],
        [{"batch": b} for b in (1, 8, 64, 200, 450)],
        [{"n": n} for n in (10**5, 450, 64)],
        [{"delta": d} for d in (0.1, 1e-3, 1e-9)],
    ],
)
def test_what_costs_more(calls):
    costs = [
        epsilon(**{"sigma": 1, "batch": 64, "n": 450, "steps": 100} | c) for c in calls
    ]
    assert all(a < b for a, b in zip(costs, costs[1:]))


def test_no_noise_no_privacy_and_no_step_no_cost():
    assert epsilon(0, 64, 450, 1) == math.inf
    assert epsilon(0, 64, 450, 0) == epsilon(1, 64, 450, 0) == 0
    assert 0 <= epsilon(1e6, 1, 10**6, 1) < 0.01


@pytest.mark.parametrize(
    "bad, words",
    [
        ({"sigma": -1}, "sigma = -1"),
        ({"sigma": math.nan}, "sigma = nan"),
        ({"batch": 451}, "batch = 451 of n = 450 rows"),
        ({"batch": 0}, "batch = 0"),
        ({"steps": -1}, "steps = -1"),
        ({"steps": 1.5}, "steps = 1.5"),
        ({"delta": 0}, "delta = 0"),
        ({"delta": 1}, "delta = 1"),
    ],
)
def test_bad_input_is_named(bad, words):
    with pytest.raises(ValueError, match=words):
        epsilon(**{"sigma": 1, "batch": 64, "n": 450, "steps": 100} | bad)


def test_without_the_accountant(monkeypatch):
    monkeypatch.setitem(sys.modules, "opacus.accountants.analysis", None)
    with pytest.raises(ImportError, match=r"fedlib\[paper\]"):
        epsilon(1, 64, 450, 100)
    assert epsilon(0, 64, 450, 100) == math.inf  # known without it


# ---------------------------------------------------------------- the step
def rows_of(task, r, m=None, size=8, key=1):
    r = torch.as_tensor(r)
    m = None if m is None else torch.as_tensor(m, dtype=task.x.dtype)
    return Batch(
        task.x[r],
        task.y[r],
        None if task.a is None else task.a[r],
        m,
        r,
        LazyKey(torch.tensor(key)),
        size,
    )


@pytest.mark.parametrize("clip", [0.05, 1.0, 1e9])
def test_rows_are_clipped_one_by_one(clip):
    """A loop over rows: clip, add, divide by the nominal batch.

    The middle clip leaves some rows as they are.
    """
    task = toy()
    w, r, d = task.init(0), range(6), Private(clip, 0.0)(task.loss)
    total, lengths = None, []
    for i in r:
        g = torch.func.grad(task.loss)(w, rows_of(task, [i]))
        lengths.append(float(sqnorm(g).sqrt()))
        g = scale(g, min(1.0, clip / lengths[-1]))
        total = g if total is None else add(total, g)
        alone = float(sqnorm(d(w, rows_of(task, [i], size=1))).sqrt())
        assert alone == pytest.approx(min(clip, lengths[-1]), rel=1e-12)
    assert gap(d(w, rows_of(task, r)), scale(total, 1 / 8)) < 1e-14
    assert {
        0.05: min(lengths) > clip,
        1.0: min(lengths) < clip < max(lengths),
        1e9: max(lengths) < clip,
    }[clip]


@pytest.mark.parametrize("network", [None, Linear(5, 3)])
def test_no_noise_and_a_huge_clip_is_the_gradient(network):
    task = toy(network)
    w, b = task.init(0), rows_of(task, range(8))
    assert gap(Private(1e9, 0.0)(task.loss)(w, b), Plain()(task.loss)(w, b)) < 1e-14
    # padding counts neither as a row nor as a size
    d, m = Private(0.3, 0.0)(task.loss), [1, 1, 1, 1, 1, 0, 0, 0]
    assert gap(d(w, rows_of(task, range(8), m)), d(w, rows_of(task, range(5)))) < 1e-14


def test_one_row_more_moves_the_sum_by_at_most_the_clip():
    """What the noise is measured by; the nominal batch size does not
    change with the row.
    """
    task = toy()
    w, d = task.init(0), Private(0.2, 0.0)(task.loss)
    for i in range(8):
        rest = [j for j in range(8) if j != i]
        moved = 8 * float(
            sqnorm(sub(d(w, rows_of(task, range(8))), d(w, rows_of(task, rest)))).sqrt()
        )
        assert 0.01 < moved <= 0.2 * (1 + 1e-9)


def test_noise_has_standard_deviation_sigma_clip_over_batch():
    """Normal by its moments, whatever the rows, and new with the batch's key."""
    task = toy(MLP(5, 2000, 3))
    w, clip, sigma = task.init(0), 0.7, 1.5

    def noise(key, r=range(4)):
        g, quiet = (
            Private(clip, s)(task.loss)(w, rows_of(task, r, key=key))
            for s in (sigma, 0.0)
        )
        return torch.cat([v.flatten() for v in leaves(sub(g, quiet))])

    z, other = noise(1) * 8 / (sigma * clip), noise(2) * 8 / (sigma * clip)
    n = len(z)  # 18003
    assert abs(float(z.mean())) < 4 / n**0.5
    assert abs(float(z.std()) - 1) < 4 / (2 * n) ** 0.5
    assert abs(float((z**4).mean()) - 3) < 4 * (96 / n) ** 0.5
    assert abs(float((z * other).mean())) < 4 / n**0.5
    assert gap([noise(1, range(4, 11))], [noise(1)]) < 1e-12


@pytest.mark.parametrize("poisson", [False, True])
def test_a_loop_and_vmap_agree(poisson):
    kw = {"lr": 0.2, "step": Private(0.4, 0.8), "poisson": poisson}
    a, b = (
        engine.run(FedAvg(toy(batch=8), **kw), rounds=3, seed=2, how=how, device="cpu")
        for how in ("loop", "vmap")
    )
    assert gap(state(a), state(b)) < 1e-12 and gap(seen(a), seen(b)) < 1e-12
    other = engine.run(
        FedAvg(toy(batch=8), **kw), rounds=3, seed=3, how="loop", device="cpu"
    )
    assert gap(state(a), state(other)) > 1e-3


def test_no_noise_and_a_huge_clip_is_fedavg():
    """Where all batches are full; with noise it is not."""

    def run(**kw):
        m = FedAvg(toy(sizes=(8, 8), batch=8), lr=0.2, **kw)
        return state(engine.run(m, rounds=3, seed=2, how="loop", device="cpu"))

    plain = run()
    assert gap(run(step=Private(1e9, 0.0)), plain) < 1e-12
    assert gap(run(step=Private(1.0, 5.0)), plain) > 0.1


@pytest.mark.parametrize(
    "bad",
    [
        {"clip": 0.0},
        {"clip": -1.0},
        {"clip": math.nan},
        {"sigma": -0.1},
        {"sigma": math.nan},
    ],
)
def test_a_clip_must_be_positive_and_noise_not_negative(bad):
    with pytest.raises(ValueError, match="give clip > 0"):
        Private(**bad)
