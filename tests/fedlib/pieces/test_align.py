"""Distances of feature clouds: explicit covariances, double sums,
and what must not matter.
"""

import math

import numpy as np
import pytest
import torch

from fedlib.pieces import align
from fedlib.pieces.align import LOSSES, coral, l2, mmd, moments, spread

NAMES = sorted(LOSSES)


def cloud(n, D, seed=0, shift=0.0):
    return (
        torch.randn(
            n, D, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
        )
        + shift
    )


def explicit_coral(z, z0):
    """With the covariances [D, D] written out."""
    apart = torch.cov(z.T) - torch.cov(z0.T)
    return (z.mean(0) - z0.mean(0)).square().mean() + apart.square().mean()


def explicit_mmd(z, z0):
    """Double sums over rows and kernels."""
    k = lambda a, b: sum(
        math.exp(-g * float((a - b).square().sum())) for g in align.WIDTHS
    )
    mean = lambda A, B: sum(k(a, b) for a in A for b in B) / (len(A) * len(B))
    return mean(z, z) + mean(z0, z0) - 2 * mean(z, z0)


@pytest.mark.parametrize("n, D", [(7, 3), (4, 9), (2, 5)])
def test_coral_is_the_distance_of_covariances(n, D):
    z, z0 = cloud(n, D, 1), 1.5 * cloud(n, D, 2, 0.3)
    z.requires_grad_()
    got, want = coral(z, z0), explicit_coral(z, z0)
    assert float((got - want).detach().abs()) < 1e-12
    a, b = torch.autograd.grad(got, z)[0], torch.autograd.grad(want, z)[0]
    assert float((a - b).abs().max()) < 1e-11


def test_coral_by_hand():
    z, z0 = (
        torch.tensor([[0.0, 0.0], [2.0, 0.0]]),
        torch.tensor([[0.0, 1.0], [0.0, 1.0]]),
    )
    # means (1, 0) and (0, 1): (1 + 1) / 2; covariances diag(2, 0) and 0: 4 / 4
    assert float(coral(z, z0)) == pytest.approx(2.0)
    assert float(moments(z, z0)) == pytest.approx(1.0)
    assert float(l2(z, z0)) == pytest.approx((0 + 1 + 4 + 1) / 4)


def test_coral_of_fewer_than_two_rows_compares_means():
    z, z0 = cloud(1, 4, 1), cloud(1, 4, 2)
    assert float(coral(z, z0)) == pytest.approx(float(moments(z, z0)), abs=1e-15)


@pytest.mark.parametrize("n", [1, 2, 6])
def test_mmd_is_the_double_sum(n):
    z, z0 = 0.5 * cloud(n, 3, 1), 0.5 * cloud(n, 3, 2, 0.2)
    assert float(mmd(z, z0)) == pytest.approx(explicit_mmd(z, z0), abs=1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_zero_for_equal_clouds_and_positive_otherwise(name):
    f = LOSSES[name]
    z = cloud(6, 4)
    assert abs(float(f(z, z))) < 1e-13
    for other in (z + 0.1, cloud(6, 4, 3)):
        assert float(f(z, other)) > 1e-4


def test_coral_and_mmd_see_the_shape_that_moments_do_not():
    z = cloud(8, 3)
    z = z - z.mean(0)
    assert (
        float(moments(z, 2 * z))
        < 1e-28
        < 1e-2
        < min(float(coral(z, 2 * z)), float(mmd(z, 2 * z)))
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_mask_is_as_good_as_dropping_rows(name):
    f, n = LOSSES[name], 5
    z, z0 = cloud(8, 4, 1), cloud(8, 4, 2)
    m = torch.tensor([1.0, 0, 1, 1, 0, 1, 0, 1], dtype=torch.float64)
    on = m > 0
    z[~on], z0[~on] = 1e3, -1e3  # what padding holds is irrelevant
    z.requires_grad_()
    got, want = f(z, z0, m), f(z[on], z0[on])
    assert int(m.sum()) == n and float((got - want).detach().abs()) < 1e-11
    a, b = torch.autograd.grad(got, z)[0], torch.autograd.grad(want, z)[0]
    assert float((a - b).abs().max()) < 1e-10 and bool((a[~on] == 0).all())


@pytest.mark.parametrize("name", NAMES)
def test_under_vmap_every_client_has_its_own_rows(name):
    f = LOSSES[name]
    z, z0 = (
        torch.stack([cloud(5, 3, i) for i in range(3)]),
        torch.stack([cloud(5, 3, 9 + i) for i in range(3)]),
    )
    m = torch.tensor([[1.0] * 5, [1, 1, 1, 0, 0], [1, 0, 0, 0, 0]], dtype=torch.float64)
    got = torch.func.vmap(f)(z, z0, m)
    want = [f(z[i, :k], z0[i, :k]) for i, k in enumerate((5, 3, 1))]
    assert float((got - torch.stack(want)).abs().max()) < 1e-11


@pytest.mark.parametrize("name", NAMES)
def test_only_l2_pairs_the_rows(name):
    f, z, z0 = LOSSES[name], cloud(7, 4, 1), cloud(7, 4, 2)
    p = torch.tensor([3, 0, 6, 1, 5, 2, 4])
    assert float((f(z[p], z0[p]) - f(z, z0)).abs()) < 1e-12
    apart = float((f(z[p], z0) - f(z, z0)).abs())
    assert apart > 1e-3 if name == "l2" else apart < 1e-12


@pytest.mark.parametrize("name", NAMES)
def test_no_row_at_all_costs_nothing(name):
    z = cloud(4, 3).requires_grad_()
    for v in (
        LOSSES[name](z, cloud(4, 3, 2), torch.zeros(4, dtype=torch.float64)),
        LOSSES[name](z[:0], z[:0].detach()),
    ):
        assert float(v.detach()) == 0
        assert bool(torch.autograd.grad(v, z, allow_unused=True)[0].isfinite().all())


@pytest.mark.parametrize("name", NAMES)
def test_the_gradient_is_finite_where_the_clouds_meet(name):
    z = cloud(5, 4).requires_grad_()
    (g,) = torch.autograd.grad(LOSSES[name](z, z.detach()), z)
    assert bool(g.isfinite().all()) and float(g.abs().max()) < 1e-12


def test_spread_is_the_share_between_domains():
    own = torch.tensor([0, 0, 1, 1, 2, 2])
    means = torch.tensor([[0.0], [3.0], [9.0]]).repeat_interleave(2, 0)
    noise = torch.tensor([[1.0], [-1.0]]).repeat(3, 1)
    z = (means + noise).double()
    # sum over rows of (mean of the domain - mean)^2
    between = 2 * float(np.var([0, 3, 9]) * 3)
    assert spread(z, own) == pytest.approx(between / (between + 6))
    assert spread(means.double(), own) == pytest.approx(1)
    assert spread(noise.double(), own) == pytest.approx(0)
    a = cloud(12, 3)
    assert spread(a, torch.arange(12) % 3) == pytest.approx(
        spread(5 * a - 2, torch.arange(12) % 3)
    )
