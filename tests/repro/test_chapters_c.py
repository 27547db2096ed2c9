"""What the chapters flat, plgu, groups, equfl and which_number state: toys, quizzes,
exercises and labs.
"""

import math

import numpy as np
import pytest
import torch

from fedlib.core.local import SAM
from fedlib.measures import sharpness
from fedlib.methods.flat.plgu_lf import PLGULF


def tensor(x):
    return torch.tensor(x, dtype=torch.float64)


# flat


def sam_step(F, w, eta, rho):
    g = SAM(rho)(lambda w, b: F(w["w"]))({"w": tensor(w)}, None)["w"]
    return w - eta * float(g)


def test_quiz_of_flat_one_step_of_sam():
    square = lambda w: w**2
    assert np.isclose(sam_step(square, 1.0, 0.1, 0.5), 0.7)
    assert np.isclose(sam_step(square, 1.0, 0.1, 0.0), 0.8)  # plain descent
    assert np.isclose(1.5 - 0.1 * 2 * 1.5, 1.2)  # stepped from the wrong place


@pytest.mark.parametrize("k", [1.2, 12.0, 40.0])
def test_sam_ends_jumping_to_either_side(k, eta=1 / 24, rho=0.5):
    w = 1.0
    for _ in range(1000):
        w, last = sam_step(lambda w: k * w**2 / 2, w, eta, rho), w
    a = eta * k * rho / (2 - eta * k)
    assert np.isclose(abs(w), a) and np.isclose(w, -last)


def test_the_worst_place_nearby_is_the_loss_of_the_worst_shifted_client():
    F = lambda w: np.minimum(6 * w**2, 0.6 * (w - 3.5) ** 2 + 0.9)
    shifts = np.linspace(-0.3, 0.3, 601)
    for w in (0.0, 1.1, 3.5):
        nearby = F(w + np.linspace(-0.3, 0.3, 601)).max()
        assert np.isclose(nearby, F(w - shifts).max())


def test_doubled_weights_before_a_norm_layer_change_the_curvature_alone():
    x, target = tensor([[1.0, 2.0], [-1.0, 0.5]]), tensor([[0.3, -0.9], [1.0, 0.2]])

    def out(w):
        z = x @ w["w"].reshape(2, 2)
        z = z - z.mean(1, keepdim=True)
        return z / z.norm(dim=1, keepdim=True)

    loss = lambda w: ((out(w) - target) ** 2).sum()
    once = {"w": tensor([0.4, -0.2, 0.7, 0.1])}
    twice = {"w": 2 * once["w"]}
    assert torch.allclose(out(once), out(twice))
    assert np.isclose(loss(once), loss(twice))
    one, two = (sharpness.lambda_max(loss, w).value for w in (once, twice))
    assert np.isclose(two, one / 4, rtol=1e-3)
    # along a direction that is stretched with the filter nothing changes
    d = tensor([0.3, 0.1, -0.5, 0.2])
    a, b = loss({"w": once["w"] + d}), loss({"w": twice["w"] + 2 * d})
    assert np.isclose(a, b)


class TwoLayers(PLGULF):
    def units(self, w):
        return [(name,) for name in w]


def test_quiz_of_flat_shares_of_the_score():
    own = {"a": torch.full((16,), 0.8 / 4), "b": torch.full((4,), 0.4 / 2)}
    shared = {k: torch.zeros_like(v) for k, v in own.items()}
    distance = TwoLayers(rho=0.1, D=1).movement(own, shared)
    assert np.allclose(distance / distance.sum(), [1 / 3, 2 / 3])
    length, number = np.array([0.8, 0.4]), np.array([16, 4])
    assert np.isclose((length / length.sum())[1], 1 / 3)
    root = length / np.sqrt(number)
    assert np.isclose((root / root.sum())[1], 1 / 2)


def test_class_exercise_of_flat_the_mean_listens_to_the_steep_client():
    w = np.linspace(-2, 2, 400_001)
    one, two, wide = 6 * (w + 1) ** 2, 6 * (w - 1) ** 2, 0.6 * (w - 1) ** 2
    best = (one + two).argmin()
    assert np.isclose(w[best], 0, atol=1e-4) and np.isclose(one[best], 6, rtol=1e-3)
    best = (one + wide).argmin()
    assert np.isclose(w[best], -9 / 11, atol=1e-4)
    assert np.isclose(one[best], 24 / 121, rtol=1e-2)
    assert np.isclose(wide[best], 240 / 121, rtol=1e-2)
    fair = np.maximum(one, wide).argmin()
    root = math.sqrt(10)
    assert np.isclose(w[fair], (1 - root) / (1 + root), atol=1e-4)
    assert round(one[fair], 2) == 1.39
    assert round(wide[best] - wide[fair], 2) == 0.60
    rise = (one[fair] + wide[fair] - one[best] - wide[best]) / 2
    assert round(rise, 2) == 0.29
