"""Sharpness against closed forms: quadratics with a known Hessian, and the whole
Hessian of a model with 20 parameters.
"""

import math

import pytest
import torch
from toys_core import Normed, gap, toy

from fedlib.core.local import grad
from fedlib.core.pool import Pool
from fedlib.core.task import Task
from fedlib.core.tree import leaves, rows, stack, tmap, unrow
from fedlib.measures import landscape as ls
from fedlib.measures import sharpness as sh
from fedlib.nets import CNN

T = torch.float64


def bowl(H, centre=None):
    """w -> (u - c)' H (u - c) / 2 with u all of w in one vector."""
    H = torch.as_tensor(H, dtype=T)
    c = (
        torch.zeros(len(H), dtype=T)
        if centre is None
        else torch.as_tensor(centre, dtype=T)
    )

    def f(w):
        u = torch.cat([x.flatten() for x in leaves(w)]) - c
        return u @ H @ u / 2

    return f


def at(*v):
    return {"w": torch.tensor(v, dtype=T)}


def rotated(eigenvalues, seed=0):
    """A full matrix with these eigenvalues."""
    n = len(eigenvalues)
    Q = torch.linalg.qr(
        torch.randn(n, n, generator=torch.Generator().manual_seed(seed), dtype=T)
    )[0]
    return Q @ torch.diag(torch.tensor(eigenvalues, dtype=T)) @ Q.T


def hessian(loss, p, rest=None):
    """The explicit matrix, by torch's own."""
    flat = rows(stack([p]))[0].detach()
    return torch.autograd.functional.hessian(
        lambda v: loss((rest or {}) | unrow(v, p)), flat
    )


def tiny_net():
    """20 parameters: linear 4 -> 2 with bias (10), linear 2 -> 2 (6), and 4 of a norm
    layer with buffers that stay.
    """
    g = torch.Generator().manual_seed(2)
    x, y = (
        torch.randn(30, 4, generator=g, dtype=T),
        torch.randint(0, 2, (30,), generator=g),
    )
    task = Task.from_rows(
        "t",
        Normed(4, 2, 2),
        Pool("t", x, y, 2, "synthetic"),
        torch.arange(30).split(10),
        parts=(0.8, 0, 0.2),
    )
    w = {
        k: v + 0.1 * torch.randn(v.shape, generator=g, dtype=T).abs()
        for k, v in task.init(3).items()
    }
    assert (
        sum(v.numel() for k, v in w.items() if k not in task.buffers) == 20
        and task.buffers
    )
    return task, w


# the Hessian
@pytest.mark.parametrize("size", [None, 7, 1])
def test_products_are_those_of_the_explicit_hessian_whatever_the_parts(size):
    task, w = tiny_net()
    loss = ls.data_loss(task, torch.cat(task.train), size)
    p, parts = sh.apart(loss, w)
    assert not set(p) & set(task.buffers) and len(parts) == {None: 1, 7: 4, 1: 24}[size]
    g = torch.Generator().manual_seed(0)
    v = tmap(lambda x: torch.randn(x.shape, generator=g, dtype=T), p)
    assert torch.allclose(
        rows(stack([sh.hvp(parts, p, v)]))[0],
        hessian(loss, p, w) @ rows(stack([v]))[0],
        atol=1e-12,
    )
    want = torch.autograd.functional.jacobian(
        lambda u: loss(w | unrow(u, p)), rows(stack([p]))[0]
    )
    assert torch.allclose(rows(stack([sh.slope(parts, p)]))[0], want, atol=1e-12)


@pytest.mark.parametrize("sign", [1, -1], ids=["positive", "negative"])
def test_lambda_max_is_the_largest_eigenvalue_of_a_model_with_20_parameters(sign):
    """With the sign turned the eigenvalue largest in magnitude is negative, and the
    largest is another one.
    """
    task, w = tiny_net()
    plain = ls.data_loss(task, torch.cat(task.train), 7)
    loss = ls.DataLoss([lambda v, f=f: sign * f(v) for f in plain.parts], plain.buffers)
    p, _ = sh.apart(loss, w)
    e = torch.linalg.eigvalsh(hessian(loss, p, w))
    assert (e[-1] > -e[0]) == (sign == 1) and e[-1] > 1e-3
    exact = sh.lambda_max(loss, w, iterations=20000, tol=1e-13)
    assert exact.converged and exact.value == pytest.approx(float(e[-1]), rel=1e-7)
    usual = sh.lambda_max(loss, w)
    assert usual.value <= float(e[-1]) * (1 + 1e-9) and usual.products <= 100
    if sign == 1:
        assert usual.converged and usual.value == pytest.approx(float(e[-1]), rel=0.02)
    top = sh.lambda_max(loss, w, 20000, 1e-13, which="matrix")
    q = {k: v for k, v in p.items() if v.dim() > 1}
    assert top.value == pytest.approx(
        float(torch.linalg.eigvalsh(hessian(loss, q, w))[-1]), rel=1e-6
    )


@pytest.mark.parametrize(
    "eigenvalues, want",
    [
        ([1, 2, 5], 5),
        ([-9, 2, 5], 5),
        ([-9, -4, -1], -1),
        ([-5, 0, 0], 0),
        ([0, 0, 3], 3),
        ([-2, 1, 2.5], 2.5),
    ],
)
def test_lambda_max_of_a_quadratic(eigenvalues, want):
    e = sh.lambda_max(bowl(rotated(eigenvalues)), at(1, 2, 3), 2000, 1e-12)
    assert e.converged and e.value == pytest.approx(want, abs=1e-5)


def test_two_eigenvalues_of_one_size_and_opposite_sign():
    """Power iteration alone stands still between them."""
    H = rotated([-3, 1, 3])
    e = sh.lambda_max(bowl(H), at(1, 2, 3), 50, 1e-9)
    assert e.converged and e.value == pytest.approx(3, abs=1e-6)
    alone, size, _ = sh.power(lambda v: {"w": H @ v["w"]}, at(1, 2, 4), 0.0, 50, 1e-9)
    assert (
        not alone.converged and alone.value < 2.9 and size == pytest.approx(3, abs=1e-3)
    )


def test_power_iteration_says_when_it_has_not_settled():
    e = sh.lambda_max(
        bowl(rotated([0.99, 0.995, 1.0, 0.98, 0.5])),
        at(*range(5)),
        iterations=2,
        tol=1e-9,
    )
    assert not e.converged and e.products == 4 and 0.9 < e.value < 1
    flat = sh.lambda_max(bowl(torch.zeros(3, 3)), at(1, 2, 3))
    assert flat.value == 0 and flat.converged


def test_the_trace_of_a_diagonal_hessian_is_exact_and_of_another_within_its_error():
    t = sh.trace(
        bowl(torch.diag(torch.tensor([1.0, -2, 7, 0.5]))), at(1, 2, 3, 4), draws=2
    )
    assert t.value == pytest.approx(6.5, rel=1e-12) and t.error == pytest.approx(
        0, abs=1e-12
    )
    H = rotated([4, 1, -1, 0.5, 2])
    t = sh.trace(bowl(H), at(*range(5)), draws=4000)
    off = H - torch.diag(torch.diag(H))
    # var v'Hv = 2 |off-diagonal|^2
    assert t.error == pytest.approx(
        float((2 * off.square().sum() / 4000).sqrt()), rel=0.1
    )
    assert abs(t.value - 6.5) < 4 * t.error
    assert sh.trace(bowl(H), at(*range(5)), seed=1) != sh.trace(
        bowl(H), at(*range(5)), seed=2
    )


def test_the_trace_of_a_model_is_the_sum_of_its_eigenvalues():
    task, w = tiny_net()
    loss = ls.data_loss(task, torch.cat(task.train))
    p, _ = sh.apart(loss, w)
    t = sh.trace(loss, w, draws=400)
    assert abs(t.value - float(hessian(loss, p, w).diagonal().sum())) < 4 * t.error


# rise
@pytest.mark.parametrize("rho", [0.05, 0.5, 3])
def test_rise_of_a_quadratic_is_its_formula(rho):
    H, x = (
        torch.diag(torch.tensor([2.0, 0.5], dtype=T)),
        torch.tensor([0.3, -1.0], dtype=T),
    )
    g = H @ x
    u = g / g.norm()
    r = sh.rise(bowl(H), {"w": x}, rho)
    assert r.asc == pytest.approx(
        float(rho * g.norm() + rho**2 / 2 * u @ H @ u), rel=1e-10
    )
    turn = torch.linspace(0, 2 * math.pi, 100001, dtype=T)
    e = x + rho * torch.stack([turn.cos(), turn.sin()], 1)
    worst = float(((e @ H) * e).sum(1).max() / 2 - x @ H @ x / 2)
    assert r.asc - 1e-12 <= r.pga <= worst * (1 + 1e-9) and r.pga == pytest.approx(
        worst, rel=0.05
    )


def test_rise_of_a_round_bowl_is_exact():
    r = sh.rise(
        bowl(3 * torch.eye(2)),
        {"a": torch.tensor([3.0], dtype=T), "b": torch.tensor([[4.0]], dtype=T)},
        0.5,
    )
    # |g| = 15
    assert r.asc == pytest.approx(0.5 * 15 + 3 * 0.125) and r.pga == pytest.approx(
        r.asc
    )


def test_the_path_stays_in_the_ball_and_the_model_is_not_touched():
    seen, f, w = [], bowl(torch.diag(torch.tensor([1.0, 9.0]))), at(1.0, 0.2)

    def watched(v):
        seen.append(v["w"].detach().clone())
        return f(v)

    sh.rise(watched, w, 0.1, steps=12)
    far = [float((v - w["w"]).norm()) for v in seen]
    assert (
        max(far) <= 0.1 * (1 + 1e-9)
        and max(far) > 0.0999
        and w["w"].tolist() == [1, 0.2]
    )


def test_at_a_flat_place_nothing_rises():
    assert sh.rise(bowl(torch.eye(2)), at(0.0, 0.0), 0.1) == (0, 0)


def test_rise_of_a_network_grows_with_the_ball_and_holds_buffers():
    task, w = tiny_net()
    seen = []
    plain = ls.data_loss(task, torch.cat(task.train), 7)
    loss = ls.DataLoss(
        [
            lambda v, f=f: (seen.append([v[k] for k in task.buffers]), f(v))[1]
            for f in plain.parts
        ],
        plain.buffers,
    )
    r = [sh.rise(loss, w, rho) for rho in (0.05, 0.1, 0.5)]
    assert 0 < r[0].pga < r[1].pga < r[2].pga and all(
        a.asc <= a.pga + 1e-3 * a.pga for a in r
    )
    assert all(torch.equal(a, w[k]) for s in seen for a, k in zip(s, task.buffers))
    whole = ls.data_loss(task, torch.cat(task.train))
    assert sh.rise(whole, w, 0.1) == pytest.approx(r[1], rel=1e-9)


# area
def test_area_of_a_paraboloid_and_of_a_stack():
    x = ls.axis(1, 41)
    z = 3 + 2 * x**2 + 5 * x[:, None] ** 2
    inside = [
        (a, b) for a in x.tolist() for b in x.tolist() if a * a + b * b <= 0.25 + 1e-12
    ]
    want = sum(2 * a * a + 5 * b * b for a, b in inside) / len(inside)
    assert len(inside) == 317 and float(sh.area(z)) == pytest.approx(want, rel=1e-12)
    assert torch.allclose(
        sh.area(torch.stack([z, 2 * z, z - 9])), want * torch.tensor([1, 2, 1], dtype=T)
    )
    assert float(sh.area(z, radius=2, within=1)) == pytest.approx(want, rel=1e-12)
    fine = ls.axis(1, 401)
    # the mean of x^2 on a disc: r^2 / 4
    assert float(sh.area(fine**2 + 0 * fine[:, None])) == pytest.approx(
        0.25 / 4, rel=0.01
    )


def test_area_does_not_see_a_rescaled_filter_before_group_norm_and_the_others_do():
    g = torch.Generator().manual_seed(0)
    x, y = (
        50 * torch.randn(30, 1, 12, 12, generator=g, dtype=T),
        torch.randint(0, 3, (30,), generator=g),
    )
    task = Task.from_rows(
        "t",
        CNN(1, 3, (8, 8)),
        Pool("t", x, y, 3, "synthetic"),
        torch.arange(30).split(10),
        parts=(0.8, 0, 0.2),
    )
    loss, w = ls.data_loss(task, torch.cat(task.train)), task.init(0)
    big = torch.ones(8, 1, 1, 1, dtype=T)
    big[:4] = 6  # the filters of one group of channels
    other = w | {"conv1.weight": w["conv1.weight"] * big}
    a, b = (ls.surface(loss, v, 1, 11) for v in (w, other))
    assert (
        float(sh.area(b.z)) == pytest.approx(float(sh.area(a.z)), rel=1e-4)
        and float(sh.area(a.z)) > 1e-3
    )
    assert float(b.norm) > 1.5 * float(a.norm)
    assert abs(
        sh.trace(loss, other, 50).value - sh.trace(loss, w, 50).value
    ) > 0.01 * abs(sh.trace(loss, w, 50).value)


# bad input
@pytest.mark.parametrize("rho", [0, -0.1, float("nan"), float("inf")])
def test_a_ball_of_nothing_is_refused(rho):
    with pytest.raises(ValueError, match=f"rho = {rho}"):
        sh.rise(bowl(torch.eye(2)), at(1.0, 1.0), rho)


def test_other_bad_input():
    f, w = bowl(torch.eye(2)), at(1.0, 1.0)
    with pytest.raises(
        ValueError, match="rho = 0.1: the loss is not finite within the ball"
    ):
        sh.rise(bowl([[1.0, 0], [0, math.inf]]), w, 0.1)
    with pytest.raises(ValueError, match="steps = 0"):
        sh.rise(f, w, 0.1, 0)
    with pytest.raises(ValueError, match="iterations = 1"):
        sh.lambda_max(f, w, 1)
    with pytest.raises(ValueError, match="tol = 0"):
        sh.lambda_max(f, w, tol=0)
    with pytest.raises(ValueError, match="draws = 1"):
        sh.trace(f, w, 1)
    with pytest.raises(ValueError, match="which = 'some'"):
        sh.trace(f, w, which="some")
    with pytest.raises(ValueError, match="which = 'matrix': none of w"):
        sh.lambda_max(f, w, which="matrix")
    for g in (sh.lambda_max, sh.trace):
        with pytest.raises(ValueError, match="Hessian of the loss is not finite"):
            g(bowl([[1.0, 0], [0, math.nan]]), w)
    flat = torch.zeros(5, 5)
    for z, radius, within, words in (
        (flat, 0.3, 0.5, "within = 0.5 on a grid of radius 0.3"),
        (flat, 1, 0, "within = 0"),
        (flat[0], 1, 0.5, "shape"),
        (flat[:3], 1, 0.5, "shape"),
        (flat[:4, :4], 1, 0.5, "odd"),
        (flat + math.inf, 1, 0.5, "25 of 25"),
    ):
        with pytest.raises(ValueError, match=words):
            sh.area(z, radius, within)


def test_gradients_agree_with_the_loss_of_the_task():
    """The same loss as training sees, where no batch norm is in the way."""
    task = toy()
    w = task.init(0)
    (shard,) = task.shards(0, 0, 1, torch.tensor([1]), {})
    loss = ls.data_loss(task, shard.all(), 3)
    assert len(loss.parts) == 5
    assert (
        gap(sh.slope(*sh.apart(loss, w)[::-1]), grad(task.loss)(w, shard.all())) < 1e-14
    )


# like losses
def test_sharpness_is_compared_at_the_losses_that_both_pass():
    loss, sharp = [0.4, 0.2, 0.1], [2.0, 4.0, 8.0]
    # the same law, sharp = 0.8 / loss, at other ages; and twice as sharp
    other = [0.8, 0.16]
    assert sh.like_loss(loss, sharp, other, [1.0, 5.0]) == pytest.approx(0)
    twice = sh.like_loss(loss, [2 * s for s in sharp], other, [1.0, 5.0])
    assert twice == pytest.approx(math.log(2))
    back = sh.like_loss(other, [1.0, 5.0], loss, [2 * s for s in sharp])
    assert back == pytest.approx(-math.log(2))


def test_an_older_model_is_not_called_sharper_for_its_age():
    # by age the second is twice as sharp each time, yet only further along one curve
    young, old = ([0.4, 0.2, 0.1], [2, 4, 8]), ([0.2, 0.1, 0.05], [4, 8, 16])
    assert sh.like_loss(*young, *old) == pytest.approx(0)


def test_no_common_loss_is_no_comparison():
    assert math.isnan(sh.like_loss([0.4, 0.3], [1, 2], [0.2, 0.1], [1, 2]))
    with pytest.raises(ValueError, match="other_sharp is .*positive"):
        sh.like_loss([0.4, 0.3], [1, 2], [0.4, 0.1], [1, 0])
