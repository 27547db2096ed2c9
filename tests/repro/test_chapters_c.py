"""What the chapters flat, plgu, groups, equfl and which_number state: toys, quizzes,
exercises and labs.
"""

import math
import re

import numpy as np
import pytest
import torch
from where import ROOT

from fedlib.core.local import SAM
from fedlib.measures import bias, sharpness
from fedlib.measures.statistics import interval
from fedlib.methods.flat.plgu_lf import PLGULF
from fedlib.pieces import surrogates

PLAY = ROOT / "book/_assets/play"


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


@pytest.mark.parametrize("eta, out", [(1 / 24, False), (0.1, False), (0.145, True)])
def test_sam_leaves_a_sharp_valley_only_over_its_edge(eta, out, rho=0.3):
    low = lambda w: 0.6 * (w - 3.5) ** 2 + 0.9
    F = lambda w: torch.minimum(6 * w**2, low(w))
    edge = (-4.2 + math.sqrt(4.2**2 + 4 * 5.4 * 8.25)) / (2 * 5.4)
    assert np.isclose(6 * edge**2, low(edge))  # where the two valleys meet
    assert (eta * 12 * rho / (2 - eta * 12) > edge) == out
    w = -0.6
    for _ in range(1000):
        w = sam_step(F, w, eta, rho)
    assert (w > edge) == out
    v = -0.6
    for _ in range(1000):  # plain descent stays
        v = sam_step(F, v, eta, 0.0)
    assert abs(v) < 1e-3


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


# groups


def test_quiz_of_groups():
    n = np.array([[[7, 3], [2, 8]], [[12, 3], [1, 4]]])
    assert np.isclose(bias.EO(n), 0.1) and np.isclose(bias.DP(n), 0.2)
    rates = n[:, 1, 1] / n[:, 1].sum(1)
    assert np.allclose(rates, 0.8)  # equal opportunity holds
    tpr, fpr = 0.9, 0.15
    of = np.array([[1 - fpr, fpr], [1 - tpr, tpr]])
    base = np.array([[0.4, 0.6], [0.8, 0.2]])
    n = base[..., None] * of
    assert np.isclose(bias.EO(n), 0) and np.isclose(bias.DP(n), 0.3)


def test_cal_is_the_largest_distance_of_a_true_positive_rate_from_the_overall_one():
    draw = np.random.default_rng(0)
    for _ in range(50):
        n = draw.integers(1, 30, (3, 2, 2))
        rate = n[:, 1, 1] / n[:, 1].sum(1)
        overall = n[:, 1, 1].sum() / n[:, 1].sum()
        assert np.isclose(bias.CAL(n), abs(rate - overall).max())
        # it is an equal-opportunity gap, whoever is told yes wrongly
        gap = rate.max() - rate.min()
        assert gap / 2 - 1e-12 <= bias.CAL(n) <= gap + 1e-12
        other = n.copy()
        other[:, 0] = other[:, 0, ::-1]
        assert np.isclose(bias.CAL(other), bias.CAL(n))
        # predictive parity conditions on the answer
        yes = n[:, 1, 1] / n[:, :, 1].sum(1)
        of_all = n[:, 1, 1].sum() / n[:, :, 1].sum()
        assert np.isclose(bias.CAL_ppv(n), abs(yes - of_all).max())


def test_a_calibrated_model_need_not_have_predictive_parity():
    """Two probabilities, each right as often as it says, in both groups."""
    p = np.array([0.6, 0.9])
    people = np.array([[10, 40], [40, 10]])  # by group and probability
    assert (p > 0.5).all()  # all are told yes
    right = (people * p).sum(1) / people.sum(1)
    assert np.allclose(right, [0.84, 0.66])


def three_districts(found_in_C):
    return np.array(
        [
            [[48, 12], [10, 30]],
            [[64, 16], [5, 15]],
            [[56, 14], [30 - found_in_C, found_in_C]],
        ]
    )


def test_class_exercise_of_groups_three_districts():
    n = three_districts(15)
    assert (n.sum((1, 2)) == 100).all()
    assert np.isclose(bias.EO(n), 0.25) and np.isclose(bias.DP(n), 0.13)
    assert np.isclose(bias.CAL(n), 1 / 6) and round(bias.CAL_ppv(n), 3) == 0.126
    more = next(k for k in range(16) if bias.EO(three_districts(15 + k)) <= 0.1)
    assert more == 5
    n = three_districts(20)
    assert np.isclose(bias.EO(n), 1 / 12) and np.isclose(bias.DP(n), 0.11)
    assert round(bias.CAL(n), 3) == 0.056 and round(bias.CAL_ppv(n), 3) == 0.124


# plgu


class OwnUnits(PLGULF):
    def units(self, w):
        return [(name,) for name in w]


def moved(lengths, numbers):
    """Two models whose layers lie so far apart."""
    away = {
        str(i): torch.full((n,), a / math.sqrt(n))
        for i, (a, n) in enumerate(zip(lengths, numbers))
    }
    return away, {k: torch.zeros_like(v) for k, v in away.items()}


def lengths(tree):
    return [float(v.norm()) for v in tree.values()]


def test_quiz_of_plgu():
    m = OwnUnits(rho=0.3, D=1)
    s = m.scores(m.movement(*moved([1, 1], [10, 5])))
    assert np.allclose(s / 2, [1 / 3, 2 / 3])
    g, _ = moved([4, 3], [10, 5])
    found = lengths(m.perturbation(g, tensor([0.5, 1.5]).float()))
    assert np.isclose(found[0], 0.12)
    assert np.isclose(lengths(m.perturbation(g, torch.ones(2)))[0], 0.24)  # SAM


def test_class_exercise_of_plgu_a_score_and_its_control():
    m, numbers = OwnUnits(rho=0.6, D=1), [20, 10, 5]
    away = moved([1, 0.5, 0.5], numbers)
    s, (g, _) = m.scores(m.movement(*away)), moved([1, 2, 2], numbers)
    assert np.allclose(s, [0.75, 0.75, 1.5])
    found = lengths(m.perturbation(g, s))
    assert np.allclose(found, [0.15, 0.3, 0.6])
    assert np.allclose(lengths(m.perturbation(g, torch.ones(3))), [0.2, 0.4, 0.4])
    assert round(math.hypot(*found), 2) == 0.69
    root = OwnUnits(rho=0.6, D=1, by="root").movement(*away)
    assert np.allclose(root, [0.224, 0.158, 0.224], atol=5e-4)


# equfl


def toy_step(w2, mean, lam, shown=1.0, eta=0.5):
    """The second weight after a calibrated step; g_s = (0, -shown)."""
    return w2 - eta * (mean - lam * shown)


def test_quiz_of_equfl_a_step_of_strength_two():
    assert toy_step(-2, 0.5, 2) == -5 / 4
    assert toy_step(-2, 0.5, 0) == -9 / 4
    assert toy_step(-2, 0.5, -2) == -13 / 4  # the wrong sign


def test_class_exercise_of_equfl_what_the_rows_show():
    F = lambda lam: abs(toy_step(-3, 1, lam))
    assert F(0) == 3.5 and F(13.9) < 3.5 < F(14.1)
    yes = lambda lam, shown=1.0: 0.5 + toy_step(-3, 1, lam, shown) > 0
    assert not yes(6) and yes(6.1)
    assert not yes(12, 0.5) and yes(12.1, 0.5)

    def dp(w):
        z = torch.stack([w[0], w[0] + w[1]])
        odds = torch.nn.functional.logsigmoid(torch.stack([-z, z], 1))
        return surrogates.dp(odds, torch.eye(2)[:, :, None] * torch.full((2,), 0.5))

    w = torch.tensor([1.0, -3.0])
    assert round(float(dp(w)), 3) == 1.814
    assert np.allclose(torch.func.grad(dp)(w), [-0.612, -0.881], atol=5e-4)


# which_number


def test_the_best_of_many_by_chance():
    g = np.random.default_rng(0)
    top = lambda k: g.normal(size=(20_000, k)).max(1).mean()
    assert np.isclose(top(200), 2.75, atol=0.02)  # the quiz: 70 + 2 * 2.75
    assert np.isclose(top(100), 2.51, atol=0.02)
    assert np.isclose(top(1000), 3.24, atol=0.02)
    assert round(1 - 0.95**20, 2) == 0.64


def test_class_exercise_of_which_number():
    assert np.isclose(math.sqrt(0.8 * 0.2 / 400), 0.02)
    i = interval(np.array([0.4, 1.0, 0.2, 0.8, 0.6]))
    assert np.isclose(i.mean, 0.6) and round(i.half, 2) == 0.39
    assert 1 - (1 - 0.05 / 20) ** 20 < 0.05


# labs


def test_lab_of_flat_where_sam_rests():
    rest = lambda k: k / 24 * 0.2 / (2 - k / 24)
    assert round(rest(1.2), 4) == 0.0051 and round(rest(12), 3) == 0.067


# scripts


def test_scripts_of_a_page_share_no_global_name():
    """Which number? has a quiz and a figure that draws seeds: two scripts, one scope."""
    scripts = [*(ROOT / "book/_assets").glob("*.js"), *PLAY.glob("*.js")]
    line = r"^(?:async )?(?:function\*?|const|let|var|class) +(\w+)"
    names = [n for s in scripts for n in re.findall(line, s.read_text("utf-8"), re.M)]
    assert len(scripts) > 10 and {"startQuiz", "play", "fedplay"} <= set(names)
    twice = {n for n in names if names.count(n) > 1}
    assert not twice, f"{sorted(twice)}: a second script overwrites the first"
