"""What the pages on domains, prompts and devices say, computed: quizzes, classes'
exercises and their solutions for teachers."""

import math
import re

import numpy as np
import pandas as pd
import pytest
import torch
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
