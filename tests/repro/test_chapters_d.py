"""What the pages on domains, prompts and devices say, computed: quizzes, classes'
exercises and their solutions for teachers."""

import math
import re

import numpy as np
import pandas as pd
import pytest
import torch
from test_chapters import left_of
from where import ROOT

from fedlib.methods.domains.faa import FAA


def tensor(x):
    return torch.tensor(x, dtype=torch.float64)


def page(name):
    return (ROOT / "book" / f"{name}.md").read_text(encoding="utf-8")


def python_of(name):
    """The names that the Python of a page for teachers defines."""
    names = {}
    for text in re.findall(r"```python\n(.*?)```", page(f"teachers/{name}"), re.S):
        exec(text, names)
    return names


# domains


@pytest.mark.parametrize("h, a3", [(0.4, -0.281), (0.52, 0.038), (1.0, 0.375)])
def test_weights_of_equal_gaps_in_a_triangle(h, a3):
    """The formula for teachers, and where the walk of the page ends."""
    formula = 1 / 2 - 1 / (8 * h**2)
    assert formula == pytest.approx(a3, abs=5e-4)
    a = tensor([(1 - formula) / 2] * 2 + [formula])
    c = tensor([[0, 0], [1, 0], [0.5, h]])
    assert np.ptp((a @ c - c).square().sum(1).numpy()) < 1e-12
    end, gaps = python_of("domains")["walked"](h)
    held = max(formula, 1 / 12)
    assert float(end[2]) == pytest.approx(held, abs=2e-3)
    assert (np.ptp(gaps.numpy()) < 1e-6) == (formula > 1 / 12)


def test_when_equal_gaps_ask_for_less_than_a_share():
    a3 = lambda h: 1 / 2 - 1 / (8 * h**2)
    assert a3(1 / 2) == pytest.approx(0)
    assert a3(math.sqrt(0.3)) == pytest.approx(1 / 12)
    assert a3(math.sqrt(3) / 2) == pytest.approx(1 / 3)  # the equilateral triangle
    assert 0.548 == pytest.approx(math.sqrt(0.3), abs=5e-4)


def test_a_gap_and_not_a_loss_decides():
    a, G = tensor([1 / 2] * 2), tensor([1.4 - 1.3, 0.5 - 0.1])
    new = FAA().moved(a, G, 0.5)
    assert new[1] > new[0] and G.mean() == pytest.approx(0.25)


def test_equal_gaps_leave_any_weights_alone():
    a = tensor([1 / 2, 1 / 4, 1 / 8, 1 / 8])
    assert torch.allclose(FAA().moved(a, tensor([0.3] * 4), 0.5), a)


# deploy


@pytest.mark.parametrize("x", [-1e6, 0.0, 2.5, 10.0, 1e6])
def test_what_one_liar_of_five_can_do(x):
    ruled = python_of("deploy")["ruled"]
    assert ruled("mean", 1, 2, 3, 4, x) == pytest.approx(2 + x / 5)
    assert 2 <= ruled("median", 1, 2, 3, 4, x) <= 3
    assert 2 <= ruled("trimmed", 1, 2, 3, 4, x) <= 3


def test_what_two_liars_of_five_can_do_and_what_a_rule_makes_of_a_minority():
    ruled = python_of("deploy")["ruled"]
    assert ruled("median", 1, 2, 3, -1e6, -1e6) == 1
    assert ruled("median", 1, 2, 3, 1e6, 1e6) == 3
    assert ruled("trimmed", 1, 2, 3, 1e6, 1e6) == pytest.approx((5 + 1e6) / 3)
    said = [ruled(k, 0, 0, 0, 10, 10) for k in ("mean", "median", "trimmed")]
    assert said == pytest.approx([4, 0, 10 / 3])


def test_bytes_of_a_million_clients():
    """Numbers of the first exercise, from the table of all messages."""
    sent = pd.read_csv(ROOT / "results/traffic.csv").query("method == 'FedGA'")
    both = sent[sent.way.isin(["down", "up"])]
    assert (both.bytes * both.messages).sum() == 19_288
    assert 2 * 4 * 11.2e6 == pytest.approx(90e6, rel=0.01)


# prompts


def floor(*sizes):
    """The smallest published loss of a batch with so many images of each class."""
    return sum(n * math.log(n) for n in sizes) / sum(sizes)


def test_the_floor_of_two_classes():
    floors = [floor(m, 8 - m) for m in range(1, 8)]
    assert np.argmin(floors) == 3 and floors[3] == pytest.approx(math.log(4))
    assert floor(8) == pytest.approx(math.log(8)) and floor(8) > max(floors)
    assert floor(*[8] * 4) - floor(*[4] * 4) == pytest.approx(math.log(2))
    # perfect features reach it, and no less
    y = torch.tensor([0] * 3 + [1] * 5)
    S = 1000 * (y[:, None] == y).double()
    published = torch.nn.functional.cross_entropy(S, torch.arange(8))
    assert float(published) == pytest.approx(floor(3, 5))


def test_the_best_of_three_images_is_pushed_away():
    S = tensor([2.0, 1.0, 0.0]).requires_grad_()
    (-S.log_softmax(0).sum()).backward()
    assert torch.allclose(
        S.detach().softmax(0), tensor([0.665, 0.245, 0.090]), atol=5e-4
    )
    assert torch.allclose(S.grad, tensor([0.996, -0.266, -0.730]), atol=1e-3)


def test_a_prompt_for_each_class_beside_an_adapter():
    d, classes = 768, 50
    assert classes * 16 * d == 614_400 and 2 * d**2 + 2 * d == 1_181_184
    assert (2 * 512**2 + 2 * 512) / (16 * 512) == pytest.approx(64, rel=0.01)


# FFT-GP


def share(eta, c, alpha):
    """What a meta step leaves of w on c w^2 / 2, by the page's formula."""
    return 1 - eta * c * (2 - alpha * c)


def test_how_far_to_look_ahead():
    for eta, alpha in ((0.1, 0.1), (0.08, 0.075)):
        assert share(eta, 10, alpha) == pytest.approx(0, abs=1e-12)
    for alpha, limit in ((0, 1), (1 / 20, 4 / 3), (1 / 10, 2)):
        assert share(limit / 10, 10, alpha) == pytest.approx(-1)
    assert share(0.1, 1, 0.01) == pytest.approx(0.801)
    assert left_of(1.0, 10, "mldg", 0.08, 0.075) == pytest.approx(0, abs=1e-9)


def test_two_curvatures_at_once():
    etas = np.linspace(0, 0.3, 30_001)
    meta = np.maximum(abs(share(etas, 1, 0.1)), abs(share(etas, 10, 0.1)))
    plain = np.maximum(abs(1 - etas), abs(1 - 10 * etas))
    assert etas[meta.argmin()] == pytest.approx(0.168, abs=5e-4)
    assert meta.min() == pytest.approx(0.681, abs=5e-4)
    assert etas[plain.argmin()] == pytest.approx(2 / 11, abs=1e-4)
    assert plain.min() == pytest.approx(0.818, abs=5e-4)
    twice = plain.min() ** 2  # two plain steps
    assert twice == pytest.approx(0.669, abs=5e-4) and twice < meta.min()
