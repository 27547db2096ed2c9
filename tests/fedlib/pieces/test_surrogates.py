"""Surrogates of bias and the min-norm direction: explicit subsets, closed forms, SLSQP,
limits, vmap against a loop.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from sklearn.neighbors import NearestNeighbors
from toys_core import Normed, toy

from fedlib.core.batches import Batch
from fedlib.core.groups import Groups, parity
from fedlib.core.tree import add, leaves, stack, tmap
from fedlib.nets import MLP
from fedlib.pieces.surrogates import (
    FORMS,
    SURROGATES,
    fairness,
    min_norm,
    neighbours,
    penalty,
)

# column 0 of the toy's x is its group
GENDER = Groups("gender", ("f", "m"), (1, 2), column=0)


def f64(*shape, seed=0):
    return torch.randn(
        *shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )


def odds_of(n, seed=0):
    return (2 * f64(n, 2, seed=seed)).log_softmax(-1)


def soft(n, A, seed=1):
    return f64(n, A * 2, seed=seed).softmax(-1).view(n, A, 2)


def hard(n, A):
    """One membership per row, every cell occupied; (omega, group, outcome)."""
    a, y = torch.arange(n) % A, (torch.arange(n) // A) % 2
    omega = torch.zeros(n, A, 2, dtype=torch.float64)
    omega[torch.arange(n), a, y] = 1
    return omega, a, y


def task_of(network=None, groups=GENDER, dtype=torch.float64):
    return toy(network, dtype=dtype, groups=groups)


def synthetic(task, n=24):
    """n rows like the toy's with a group in column 0, and soft labels."""
    x = f64(n, 5, seed=3)
    x[:, 0] = torch.arange(n) % 2
    return {"x": x.to(task.x), "q": f64(n, task.K, seed=4).softmax(-1).to(task.x)}


def batch(task, r, m=None, size=8):
    r = torch.as_tensor(r)
    return Batch(
        task.x[r],
        task.y[r],
        task.a[r],
        None if m is None else torch.as_tensor(m, dtype=task.x.dtype),
        r,
        None,
        size,
    )


# ---------------------------------------------------------------- the four losses
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("A", [2, 3])
def test_hard_labels_are_means_over_subsets(A, form):
    """Explicit subsets in numpy, every pair of groups."""
    n = 60
    odds, (omega, a, y) = odds_of(n), hard(n, A)
    l0, l1, p = -odds[:, 0].numpy(), -odds[:, 1].numpy(), odds[:, 1].exp().numpy()
    v, a, y = ([p, p] if form == "prob" else [l0, l1]), a.numpy(), y.numpy()
    pairs = [(i, j) for i in range(A) for j in range(A) if i != j]
    eo = sum(
        max(
            abs(v[b][(a == i) & (y == b)].mean() - v[b][(a == j) & (y == b)].mean())
            for i, j in pairs
        )
        for b in (0, 1)
    )
    dp = max(abs(v[1][a == i].mean() - v[1][a == j].mean()) for i, j in pairs)
    cal = max(
        abs(v[1][(a == i) & (y == 1)].mean() - v[1][y == 1].mean()) for i in range(A)
    )
    x = f64(n, 3, seed=9)
    near = (
        NearestNeighbors(n_neighbors=6)
        .fit(x.numpy())
        .kneighbors(x.numpy(), return_distance=False)[:, 1:]
    )
    con = np.mean([abs(p[i] - p[near[i]].mean()) for i in range(n)])
    for name, want in {"EO": eo, "DP": dp, "CAL": cal, "CON": con}.items():
        assert float(
            SURROGATES[name](odds, omega, neighbours(x), form)
        ) == pytest.approx(want, rel=1e-6)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", SURROGATES)
def test_identical_groups_are_fair(name, form):
    """Each row twice, once in each group; CON, which knows no groups,
    wants one prediction for all.
    """
    odds, omega = odds_of(10), soft(10, 1)
    zero = torch.zeros_like(omega)
    both = torch.cat([torch.cat([omega, zero], 1), torch.cat([zero, omega], 1)])
    odds = odds[:1].expand(20, 2) if name == "CON" else torch.cat([odds, odds])
    assert float(SURROGATES[name](odds, both, neighbours(f64(20, 3)), form)) < 1e-12
    other = odds + torch.where(torch.arange(20)[:, None] < 10, 0.0, odds_of(20, seed=5))
    assert float(SURROGATES[name](other, both, neighbours(f64(20, 3)), form)) > 1e-3


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", SURROGATES)
def test_derivatives_by_finite_differences(name, form):
    near, z = neighbours(f64(12, 3)), f64(12, 2, seed=2).requires_grad_()
    omega = soft(12, 3).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda z, o: SURROGATES[name](z.log_softmax(-1), o, near, form), (z, omega)
    )


@pytest.mark.parametrize("name", SURROGATES)
def test_masked_rows_do_not_count(name):
    odds, (omega, *_), x, F = odds_of(40), hard(40, 2), f64(40, 3), SURROGATES[name]
    m = (torch.arange(40) < 24).double()
    short = F(odds[:24], omega[:24], neighbours(x[:24]))
    assert float(
        F(odds, omega * m[:, None, None], neighbours(x, 5, m))
    ) == pytest.approx(float(short), rel=1e-12)
    z = f64(40, 2).requires_grad_()
    # nobody there
    value = F(
        z.log_softmax(-1), torch.zeros(40, 2, 2, dtype=torch.float64), neighbours(x)
    )
    assert float(value.detach()) == 0
    assert float(torch.autograd.grad(value, z)[0].abs().max()) == 0


@pytest.mark.parametrize("name", ["EO", "DP", "CAL"])
def test_a_cell_of_weight_below_a_thousandth_is_left_out(name):
    """A third group of one row, the one that is predicted worst:
    it decides as soon as it counts.
    """
    odds, (omega, *_), F = odds_of(40), hard(40, 2), SURROGATES[name]
    odds = torch.cat(
        [odds, torch.tensor([[1e-9, 1 - 1e-9]], dtype=torch.float64).log().flip(1)]
    )

    def third(weight):
        whole = torch.zeros(41, 3, 2, dtype=torch.float64)
        whole[:40, :2], whole[40, 2] = omega, weight
        return float(F(odds, whole))

    want = float(F(odds[:40], omega))
    assert third(4e-4) == pytest.approx(want, rel=1e-2) and third(4e-3) > want + 10


def test_extreme_predictions_stay_finite():
    z = torch.tensor(
        [[60.0, -60.0], [-60.0, 60.0], [0.0, 0.0], [300.0, -300.0]]
    ).requires_grad_()
    omega, near = hard(4, 2)[0].float(), neighbours(torch.randn(4, 2))
    for F in SURROGATES.values():
        value = F(z.log_softmax(-1), omega, near)
        assert value.isfinite() and torch.autograd.grad(value, z)[0].isfinite().all()


# ---------------------------------------------------------------- neighbours
def test_neighbours_are_scikit_learns():
    x = f64(50, 2, 3)
    want = (
        NearestNeighbors(n_neighbors=8)
        .fit(x.flatten(1).numpy())
        .kneighbors(return_distance=False)
    )
    np.testing.assert_array_equal(neighbours(x, 8).numpy(), want)


def test_few_rows_have_few_neighbours():
    assert neighbours(f64(4, 2), 5).shape == (4, 3)
    assert neighbours(f64(1, 2)).shape == (1, 0)
    near = neighbours(
        torch.tensor([[0.0], [1.0], [3.0], [3.1]]),
        2,
        torch.tensor([1.0, 1.0, 0.0, 1.0]),
    )
    assert near.tolist() == [[1, 3], [0, 3], [3, 1], [1, 0]]
    assert neighbours(
        torch.tensor([[0.0], [1.0], [2.0]]), 2, torch.tensor([1.0, 1.0, 0.0])
    ).tolist() == [[1, -1], [0, -1], [1, 0]]


# ---------------------------------------------------------------- on a task
@pytest.mark.parametrize("name", SURROGATES)
def test_fairness_is_the_surrogate_of_the_synthetic_set(name):
    task = task_of()
    S, w = synthetic(task), task.init(0)
    p = task.logits(w, S["x"]).softmax(-1)
    odds = torch.stack([p[:, 0], p[:, 1] + p[:, 2]], 1).log()
    omega = torch.zeros(24, 2, 2, dtype=torch.float64)
    for i in range(24):
        omega[i, i % 2] = torch.stack([S["q"][i, 0], S["q"][i, 1] + S["q"][i, 2]])
    for form in FORMS:
        want = SURROGATES[name](odds, omega, neighbours(S["x"], 3), form)
        assert float(fairness(name, task, S, form, 3)(w)) == pytest.approx(
            float(want), rel=1e-12
        )


@pytest.mark.parametrize("name", SURROGATES)
@pytest.mark.parametrize("form", FORMS)
def test_bias_falls_along_the_negative_gradient(name, form):
    """To first order by h |g|^2, and by a tenth of the way in a few steps."""
    task = task_of()
    w, F = task.init(3), fairness(name, task, synthetic(task), form)
    g = torch.func.grad(F)(w)
    sq, h = sum(float((v * v).sum()) for v in leaves(g)), 1e-6
    assert float(F(w) - F(add(w, g, -h))) == pytest.approx(h * sq, rel=1e-3)
    assert sq > 1e-6
    start = float(F(w))
    for _ in range(60):
        w = add(w, torch.func.grad(F)(w), -0.05)
    assert float(F(w)) < 0.9 * start


def test_images_get_their_group_from_the_label():
    task = toy(MLP(5, 6, 10), K=10)
    a, groups = parity(task.y, 10)
    task = replace(task, a=a, groups=groups)
    S = {"x": f64(20, 5), "q": torch.eye(10, dtype=torch.float64).repeat(2, 1)}
    w = task.init(0)
    l1 = -task.logits(w, S["x"]).softmax(-1)[:, 5:].sum(1).log()
    odd = torch.arange(20) % 2 == 1
    assert float(fairness("DP", task, S)(w)) == pytest.approx(
        float((l1[odd].mean() - l1[~odd].mean()).abs()), rel=1e-6
    )


def test_batch_norm_is_in_evaluation_mode():
    """A row's loss depends on no other row:
    masking by membership and removing rows agree.
    """
    task = task_of(Normed(5, 6, 3))
    S, w = synthetic(task), task.init(0)
    some = {k: v[:16] for k, v in S.items()}
    masked = {"x": S["x"], "q": S["q"] * (torch.arange(24) < 16)[:, None]}
    assert float(fairness("EO", task, masked)(w)) == pytest.approx(
        float(fairness("EO", task, some)(w)), rel=1e-12
    )


@pytest.mark.parametrize("name", SURROGATES)
def test_many_models_at_once(name):
    task = task_of()
    F, ws = fairness(name, task, synthetic(task)), [task.init(s) for s in range(3)]
    got = torch.func.vmap(torch.func.grad_and_value(F))(stack(ws))
    for i, w in enumerate(ws):
        g, value = torch.func.grad_and_value(F)(w)
        assert float(got[1][i]) == pytest.approx(float(value), rel=1e-12)
        assert all(
            torch.allclose(got[0][k][i], g[k], rtol=1e-10, atol=1e-14) for k in g
        )


# --------------------------------------------------------------- the penalty of a batch
@pytest.mark.parametrize("name", SURROGATES)
def test_the_penalty_is_the_surrogate_with_hard_labels(name):
    task = task_of()
    w, r = task.init(0), torch.arange(40)
    S = {"x": task.x[r], "q": torch.eye(3, dtype=torch.float64)[task.y[r]]}
    want = float(fairness(name, task, S)(w))
    assert float(penalty(name, task, w, batch(task, r))) == pytest.approx(
        want, rel=1e-12
    )
    assert want > 0


def test_the_penalty_is_in_training_mode():
    """Batch norm uses the batch's own statistics, as in the loss beside it."""
    task = task_of(Normed(5, 6, 3))
    w, b = task.init(0), batch(task, torch.arange(40))
    odds, hot = (
        GENDER.odds(task.logits(w, b.x, b)),
        torch.eye(3, dtype=torch.float64)[b.y],
    )
    assert float(penalty("EO", task, w, b)) == pytest.approx(
        float(SURROGATES["EO"](odds, GENDER.cells(hot, b.x))), rel=1e-12
    )
    assert (
        abs(
            float(penalty("EO", task, w, b))
            - float(fairness("EO", task, {"x": b.x, "q": hot})(w))
        )
        > 1e-3
    )


@pytest.mark.parametrize(
    "name, cells",
    [
        ("EO", [(0, 0), (0, 1), (1, 0), (1, 1)]),
        ("DP", [(0,), (1,)]),
        ("CAL", [(0, 1), (1, 1)]),
        ("CON", []),
    ],
)
def test_a_batch_without_a_needed_cell_pays_nothing(name, cells):
    """Remove a cell the target needs: 0 and no gradient.

    Remove one it does not: something.
    """
    task = task_of()
    w, y = task.init(0), GENDER.outcome(task.y)
    for cell in [(0, 0), (0, 1), (1, 0), (1, 1), (0,), (1,)]:
        gone = (task.a == cell[0]) & ((y == cell[1]) if len(cell) == 2 else True)
        needs = cell in cells or len(cell) == 1 and name in ("EO", "CAL")
        b = batch(task, (~gone).nonzero()[:, 0])
        g, value = torch.func.grad_and_value(lambda w: penalty(name, task, w, b))(w)  # noqa: B023
        assert (float(value) == 0) == needs
        assert (max(float(v.abs().max()) for v in leaves(g)) == 0) == needs


@pytest.mark.parametrize("name", SURROGATES)
def test_padded_batches_of_many_clients_are_their_own_batches(name):
    """vmap over clients with padding = a loop without; the second client has fewer rows
    than neighbours, the third one row.
    """
    task = task_of()
    own = [torch.arange(2, 10), torch.tensor([3, 9, 12, 20]), torch.tensor([5])]
    i = torch.stack([torch.cat([r, r[:1].expand(8 - len(r))]) for r in own])
    m = torch.stack([(torch.arange(8) < len(r)).double() for r in own])
    ws = [task.init(s) for s in range(3)]
    F = torch.func.grad_and_value(
        lambda w, i, m: penalty(name, task, w, batch(task, i, m))
    )
    got = torch.func.vmap(F)(stack(ws), i, m)
    for c, (w, r) in enumerate(zip(ws, own)):
        of_one = torch.func.grad_and_value(
            lambda w, r=r: penalty(name, task, w, batch(task, r))
        )
        g, value = of_one(w)
        assert float(got[1][c]) == pytest.approx(float(value), rel=1e-12, abs=1e-15)
        assert all(
            torch.allclose(got[0][k][c], g[k], rtol=1e-10, atol=1e-14) for k in g
        )
    # one row is compared with nobody
    assert float(got[1][0]) > 0 and float(got[1][2]) == 0


# ---------------------------------------------------------------- several at once
def trees(*vectors):
    return [
        {
            "a": torch.as_tensor(v, dtype=torch.float64)[:2],
            "b": torch.as_tensor(v, dtype=torch.float64)[2:],
        }
        for v in vectors
    ]


def flat(t):
    return torch.cat(leaves(t))


@pytest.mark.parametrize(
    "u, v",
    [
        ([1.0, 0, 0], [0.0, 2, 0]),
        ([1.0, 1, 0], [3.0, 2.5, 0]),
        ([1.0, 0, 0], [-2.0, 0, 1]),
    ],
)
def test_two_gradients_have_a_closed_form(u, v):
    """The weight of g_1 is clip(<g_2 - g_1, g_2> / |g_1 - g_2|^2, 0, 1)."""
    d, c = min_norm(trees(u, v), "none")
    u, v = torch.tensor(u).double(), torch.tensor(v).double()
    want = float((((v - u) @ v) / ((u - v) @ (u - v))).clamp(0, 1))
    assert float(c[0]) == pytest.approx(want, abs=1e-9)
    assert float(c.sum()) == pytest.approx(1)
    assert torch.allclose(flat(d), want * u + (1 - want) * v, atol=1e-8)


@pytest.mark.parametrize("normalise", ["none", "l2", "loss"])
@pytest.mark.parametrize("seed", range(4))
def test_four_gradients_against_slsqp(normalise, seed):
    G = (f64(4, 7, seed=seed) + 0.3) * torch.tensor(
        [[1.0], [3.0], [0.2], [1.0]]
    ).double()
    losses = torch.tensor([0.3, 2.0, 0.1, 0.8]).double()
    s = {"none": torch.ones(4).double(), "l2": G.norm(dim=1), "loss": losses}[normalise]
    U = (G / s[:, None]).numpy()
    best = minimize(
        lambda c: ((c @ U) ** 2).sum(),
        np.full(4, 0.25),
        jac=lambda c: 2 * U @ (c @ U),
        bounds=[(0, 1)] * 4,
        constraints={
            "type": "eq",
            "fun": lambda c: c.sum() - 1,
            "jac": lambda c: np.ones(4),
        },
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 500},
    )
    d, c = min_norm(trees(*G), normalise, losses)
    long = float(G.norm(dim=1).mean()) if normalise == "l2" else 1.0
    assert float(((c.numpy() @ U) ** 2).sum()) == pytest.approx(best.fun, rel=1e-6)
    np.testing.assert_allclose(flat(d) / long, best.x @ U, atol=1e-5)
    assert (torch.as_tensor(U) @ flat(d) > -1e-9).all() and (c >= 0).all()


def test_l2_makes_lengths_irrelevant_for_the_weights_and_keeps_the_scale():
    G = f64(3, 6) + 0.5
    d, c = min_norm(trees(*G))
    d2, c2 = min_norm(trees(G[0] * 100, G[1], G[2] * 1e-3))
    assert torch.allclose(c, c2, atol=1e-7)
    lengths = G.norm(dim=1)
    assert torch.allclose(
        flat(d) / lengths.mean(),
        flat(d2) / (lengths * torch.tensor([100, 1, 1e-3])).mean(),
        atol=1e-6,
    )
    same, _ = min_norm(trees(G[0], G[0]))
    assert torch.allclose(flat(same), G[0])  # one gradient alone is itself


def test_opposite_gradients_cancel_and_types_stay():
    d, c = min_norm(trees([1.0, 2, 3], [-2.0, -4, -6]))
    assert torch.equal(flat(d), torch.zeros(3).double())
    assert torch.allclose(c, torch.full((2,), 0.5).double())
    tiny, _ = min_norm(trees([1e-9, 0, 0], [0, 1e-9, 0]), "none")
    assert torch.equal(flat(tiny), torch.zeros(3).double())
    d, _ = min_norm(
        [tmap(torch.Tensor.float, t) for t in trees([1.0, 2, 3], [3.0, 2, 1])]
    )
    assert {k: (v.dtype, v.shape) for k, v in d.items()} == {
        "a": (torch.float32, (2,)),
        "b": (torch.float32, (1,)),
    }


def test_no_surrogate_gets_worse_along_the_common_direction():
    task = task_of()
    S, w = synthetic(task), task.init(3)
    Fs = [fairness(name, task, S) for name in SURROGATES]
    d, _ = min_norm([torch.func.grad(F)(w) for F in Fs])
    assert float(flat(tmap(torch.flatten, d)).norm()) > 1e-3
    assert all(float(F(add(w, d, -1e-5))) < float(F(w)) for F in Fs)


# ---------------------------------------------------------------- bad input
@pytest.mark.parametrize(
    "call, words",
    [
        (
            lambda t, S: fairness("EOD", t, S),
            "target = 'EOD': give one of EO, DP, CAL, CON",
        ),
        (lambda t, S: penalty("ED", t, t.init(0), batch(t, [0, 1])), "target = 'ED'"),
        (lambda t, S: fairness("EO", replace(t, groups=None), S), "has no groups"),
        (
            lambda t, S: fairness("EO", t, S | {"q": S["q"][:, :2]}),
            r"q of shape \[24, 2\]",
        ),
        (lambda t, S: fairness("EO", t, S, "hinge")(t.init(0)), "form = 'hinge'"),
        (lambda t, S: SURROGATES["CON"](odds_of(3), soft(3, 2)), "CON needs near"),
        (
            lambda t, S: min_norm(trees([1, 2, 3], [3, 2, 1]), "max"),
            "normalise = 'max': give one of none, l2, loss",
        ),
        (lambda t, S: min_norm(trees([1, 2, 3], [3, 2, 1]), "loss"), "give losses"),
    ],
)
def test_bad_input_is_named(call, words):
    task = task_of()
    with pytest.raises(ValueError, match=words):
        call(task, synthetic(task))
