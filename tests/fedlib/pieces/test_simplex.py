"""Moves on the simplex: numbers by hand, the optimality that defines a mirror step, and
what leaves the simplex.
"""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import minimize

from fedlib.pieces import simplex

quick = settings(max_examples=60, deadline=None, derandomize=True)
clients = st.integers(2, 8)


def tensor(x):
    return torch.as_tensor(np.asarray(x), dtype=torch.float64)


def near(a, b, tol=1e-12):
    return float((tensor(a) - tensor(b)).abs().max()) < tol


@st.composite
def weights_and_direction(draw):
    C = draw(clients)
    a = draw(arrays(np.float64, C, elements=st.floats(0.01, 1)))
    z = draw(arrays(np.float64, C, elements=st.floats(-1, 1)))
    return tensor(a / a.sum()), tensor(z)


def test_mirror_by_hand():
    a, z = tensor([0.5, 0.3, 0.2]), tensor([1.0, 0.0, -1.0])
    raw = [0.5 * math.e**0.4, 0.3, 0.2 * math.e**-0.4]
    assert near(simplex.mirror(a, z, 0.4), [v / sum(raw) for v in raw])


def test_mirror_solves_the_problem_that_defines_it():
    """The step maximises eta <z, b> - KL(b | a) over the simplex."""
    a, z, eta = np.array([0.5, 0.3, 0.2]), np.array([0.7, -0.2, 1.0]), 0.8
    best = minimize(
        lambda b: (b * np.log(b / a)).sum() - eta * z @ b,
        a,
        bounds=[(1e-6, 1)] * 3,
        tol=1e-12,
        constraints={"type": "eq", "fun": lambda b: b.sum() - 1},
        method="SLSQP",
    ).x
    assert near(simplex.mirror(tensor(a), tensor(z), eta), best, 1e-6)


@quick
@given(weights_and_direction(), st.floats(0, 50), st.floats(-3, 3))
def test_mirror_stays_inside_and_ignores_a_common_shift(az, eta, shift):
    a, z = az
    b = simplex.mirror(a, z, eta)
    assert abs(float(b.sum()) - 1) < 1e-12
    assert bool((b >= 0).all())
    assert bool(b.isfinite().all())
    assert near(simplex.mirror(a, z + shift, eta), b, 1e-9)


def test_mirror_does_not_overflow():
    assert near(simplex.mirror(tensor([0.5, 0.5]), tensor([1.0, -1.0]), 1e5), [1, 0])


def test_additive_by_hand():
    a = tensor([0.5, 0.3, 0.2])
    assert near(simplex.additive(a, tensor([1.0, 0.0, -1.0]), 0.3), [0.6, 0.3, 0.1])
    # one sign: only relative
    assert near(
        simplex.additive(a, tensor([1.0, 1.0, 1.0]), 0.3),
        [0.6 / 1.3, 0.4 / 1.3, 0.3 / 1.3],
    )
    a = tensor([0.9, 0.1, 0.0])  # clipped at 0, then at 1
    assert near(
        simplex.additive(a, tensor([0.0, -1.0, 1.0]), 0.6), [0.9 / 1.1, 0, 0.2 / 1.1]
    )
    assert near(
        simplex.additive(a, tensor([1.0, 0.0, 0.0]), 0.6), [1 / 1.1, 0.1 / 1.1, 0]
    )


@quick
@given(
    clients.flatmap(lambda C: arrays(np.float64, C, elements=st.floats(-1, 1))),
    st.floats(0, 1, exclude_max=True),
)
def test_additive_clips_nothing_at_the_uniform_point(z, eta):
    C, z = len(z), tensor(z)
    raw = 1 / C + eta * z / C
    assert near(
        simplex.additive(torch.full_like(z, 1 / C), z, eta), raw / raw.sum(), 1e-9
    )


@quick
@given(weights_and_direction(), st.floats(0, 0.99))
def test_additive_stays_inside(az, eta):
    b = simplex.additive(*az, eta)
    assert abs(float(b.sum()) - 1) < 1e-12 and bool((b >= 0).all())


def test_no_step_changes_nothing():
    a, z = tensor([0.5, 0.3, 0.2]), tensor([1.0, -0.5, 0.2])
    assert near(simplex.mirror(a, z, 0), a)
    assert near(simplex.additive(a, z, 0), a)
    assert near(simplex.bounded(a, 0, 3), a)


def test_bounded_by_hand():
    a = tensor([0.9, 0.08, 0.02])  # bounds 0.25/3 and 2/3
    raw = [2 / 3, 0.25 / 3, 0.25 / 3]
    assert near(simplex.bounded(a, 0.25, 2.0), [v / sum(raw) for v in raw])
    assert near(simplex.bounded(tensor([1.0]), 0.25, 2.0), [1])


@quick
@given(weights_and_direction(), st.floats(0.01, 1), st.floats(1, 4))
def test_bounded_keeps_the_ratio_of_the_bounds(az, low, high):
    """The division by the sum may carry a weight over a bound, never two weights
    further apart than the bounds.
    """
    b = simplex.bounded(az[0], low, high)
    assert abs(float(b.sum()) - 1) < 1e-12
    assert float(b.max() / b.min()) <= high / low * (1 + 1e-12)


@pytest.mark.parametrize("eta", [-0.1, 1.1, math.inf, math.nan, "0.1", None])
def test_a_step_that_leaves_the_simplex_is_refused(eta):
    with pytest.raises(
        ValueError, match=r"Rule\.step = .*leaves the simplex.*0 <= step <= 1"
    ):
        simplex.inside("Rule", "step", eta, 1)


def test_a_step_that_stays_inside_is_not():
    assert simplex.inside("Rule", "step", 0, 1) is None
    assert simplex.inside("Rule", "step", 1, 1) is None
