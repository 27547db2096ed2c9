"""What the chapters on conflict and on models of one's own say, computed:
hand examples, exercises for a class, answers of the quizzes.
"""

import math
import re

import numpy as np
import pandas as pd
import pytest
import torch
from where import ROOT

from fedlib.data import tasks
from fedlib.methods import METHODS
from fedlib.methods.fair.fedmgda import min_norm

PAGES = "conflict own_model personalise fisher fedas".split()


def tensor(x):
    return torch.tensor(x, dtype=torch.float64)


# conflict


def fedfv(G, loss, length=False):
    """FedFV's direction, the mean of the P_i; with the plain average's length, or not."""
    d = METHODS["FedFV"](alpha=0).agree(G @ G.T, tensor(loss)) @ G
    return d * G.mean(0).norm() / d.norm() if length else d


def fedmgda(G, epsilon=1.0):
    """Weights and direction of FedMGDA+ for clients of one size."""
    U, n = G / G.norm(dim=1, keepdim=True), torch.full((len(G),), 1 / len(G)).double()
    lo, hi = (n - epsilon).clamp(min=0), (n + epsilon).clamp(max=1)
    p = min_norm(U @ U.T, lo, hi, steps=5000)
    return p, p @ U, U @ (p @ U)


def arrows(M, D, seed):
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(M, D, generator=draw, dtype=torch.float64)


@pytest.mark.parametrize("seed", range(20))
def test_two_arrows_of_one_length_have_an_average_that_harms_neither(seed):
    U = torch.nn.functional.normalize(arrows(2, 3, seed), dim=1)
    assert (U @ U.mean(0) >= -1e-12).all()


@pytest.mark.parametrize("seed", range(20))
def test_fedfv_leaves_two_clients_without_a_conflict(seed):
    G = arrows(2, 3, seed)
    assert (G @ fedfv(G, [1, 2]) >= -1e-6).all()


@pytest.mark.parametrize("M", [2, 3, 6])
@pytest.mark.parametrize("seed", range(5))
def test_every_client_gains_at_least_the_squared_length_of_the_nearest_point(M, seed):
    """Equal products hold for those who carry weight, an inequality for the others."""
    G = arrows(M, 4, seed) + 1
    p, d, gains = fedmgda(G)
    assert (gains >= d @ d - 1e-6).all()
    assert np.allclose(gains[p > 1e-4], d @ d, atol=1e-5)


def test_three_clients_at_one_table():
    G = tensor([[0, 0, 1], [1, -1, -1], [-1, 0, -1]])
    assert np.allclose(G @ G.mean(0), [-1 / 3, 2 / 3, 1 / 3])
    P2, P3 = tensor([1 / 2, -1, -1 / 2]), tensor([-2 / 3, -1 / 3, -1 / 3])
    assert np.allclose(P2, G[1] + G[0] + G[2] / 2) and np.isclose(P2 @ G[0], -1 / 2)
    assert np.allclose(P3, G[2] + G[0] + G[1] / 3) and np.isclose(P3 @ G[0], -1 / 3)
    P1 = tensor([-1 / 6, -1 / 3, 1 / 6])
    assert np.allclose(P1, G[0] + G[1] / 3 + G[2] / 2) and np.isclose(P1 @ G[1], 0)
    d = fedfv(G, [1, 2, 3])
    assert np.allclose(9 * d, [-1, -5, -2]) and np.allclose((P1 + P2 + P3) / 3, d)
    assert np.allclose(9 * G @ d, [-2, 6, 3])
    for last in ([3, 1, 2], [3, 2, 1]):  # client 1 has the largest loss
        assert np.allclose(G @ fedfv(G, last), [1 / 18, 1 / 3, 0])
    p, _, gains = fedmgda(G)
    assert np.allclose(p, [0.41, 0.27, 0.32], atol=0.005)
    assert np.allclose(gains, 0.03, atol=0.0005)
    harmed = [e for e in range(101) if fedmgda(G, e / 100)[2].min() < 0]
    assert harmed == list(range(6))
    assert np.isclose(fedmgda(G, 0.05)[2].min(), -0.016, atol=0.0005)


def test_answers_of_the_quiz_on_conflict():
    G = tensor([[2, 0], [-1, 1]])
    assert G.mean(0).tolist() == [0.5, 0.5] and (G @ G.mean(0)).tolist() == [1, 0]
    assert G[0] @ G[1] == -2
    I = torch.eye(3, dtype=torch.float64)
    assert np.allclose(fedfv(I, [1, 2, 3], length=True), I.mean(0))


def test_unlike_arrows_120_degrees_apart_harm_somebody_under_fedfv():
    turn = tensor([0, 2, 4]) * math.pi / 3
    G = torch.stack([turn.cos(), turn.sin()], 1) * tensor([[3], [1], [1]])
    d = fedfv(G, [1, 2, 3])
    assert d.norm() > 0.1 and (G @ d).min() < -0.1


def test_tuned_equally_the_fair_methods_lie_close_together():
    """By at most three points of mean accuracy, on every data set, against FedGA."""
    table = pd.read_csv(ROOT / "results/claims.csv")
    alike = table.query("family == 'fedga-alike' and metric == 'mean_acc'")
    rivals = alike[alike.key.str.contains("fedfv|fedmgda")]
    assert len(rivals) >= 8 and rivals.effect.abs().max() < 3


# own model


def test_three_rows_of_a_table():
    trained = 82
    common = (48 - 0.2 * trained) / 0.8
    assert np.isclose(common, 39.5)
    middle = 0.6 * trained + 0.4 * common
    assert np.isclose(middle, 65) and np.isclose((66 - middle) / 0.4, 2.5)
    body, head = 64 * 64 + 64 + 64 * 32 + 32, 32 * 10 + 10
    assert (body, head) == (6240, 330)
    assert round(body / head, 1) == 18.9 and round((body + head) / body, 2) == 1.05
    for lam, ratio in ((1, 1), (1 / 9, 9)):
        v = (3 + lam) / (1 + lam)
        assert np.isclose((v - 1) / (3 - v), ratio)


def test_answers_of_the_quiz_on_own_models():
    assert 0.25 * 80 + 0.75 * 40 == 50
    v = tensor(5.0)  # descent on (v - 6)^2 / 2 + 2 / 2 (v - 0)^2
    for _ in range(200):
        v = v - 0.1 * ((v - 6) + 2 * v)
    assert np.isclose(v, 2)


# personalise


def shares(h, V):
    """FedPAC's mixing matrix for clients with one class and one feature."""
    deal = {"name": "dirichlet", "clients": 3, "alpha": 1.0}
    network = {"name": "MLP", "hidden": 8}
    task = tasks.build(
        {"data": {"name": "digits"}, "partition": deal, "network": network}
    )
    pac = METHODS["FedPAC"](task)
    return pac.mixtures(tensor(h).reshape(-1, 1, 1), tensor(V))


def uploaded():
    """Bytes that a client uploads in a round, by method."""
    table = pd.read_csv(ROOT / "results/bytes.csv").query("direction == 'up'")
    return table.groupby("method")["bytes"].sum()


def test_five_clients_five_questions():
    assert np.allclose(shares([0, 1, 3], [1, 1, 1])[0], [2 / 3, 1 / 3, 0], atol=2e-3)
    alone, clipped = tensor([1, 2]), tensor([1, 3]).clamp(0, 2)
    assert clipped.tolist() == alone.tolist()
    assert (clipped - tensor([1, 3])).square().sum() / 2 == 0.5
    a = torch.linspace(0, 1, 101, dtype=torch.float64)
    single = ((2 * a - 1) ** 2 + (2 * a - 3) ** 2) / 2
    assert single.argmin() == 100 and single.min() == 1
    gap = (0 - tensor([1, 2, 6])).mean()
    assert (0 - gap, 0 - gap / 2) == (3, 1.5)
    up = uploaded()
    assert math.ceil(1e7 / (20 * up["FedPAC"])) == 41
    assert math.ceil(1e7 / (20 * up["FedProto"])) == 379


def test_who_sends_least():
    page, up = (ROOT / "book/personalise.md").read_text("utf-8"), uploaded()
    five = up[["FedProto", "FedALA", "FedPAC", "CD2-pFed", "pFedHN"]]
    assert five.idxmin() == "FedProto" and five.idxmax() == "FedPAC"
    assert five["FedALA"] == five["CD2-pFed"] == up["FedAvg"]
    answer = page[page.index("FedProto. With 64 pixels") :].split("\n")[0]
    said = [int(v.replace(",", "")) for v in re.findall(r"\d+,\d{3}", answer)]
    want = ("FedProto", "FedALA", "pFedHN", "FedPAC", "FedAvg")
    assert said == [up[m] for m in want]


def test_answers_of_the_quiz_on_personalising():
    means, n = tensor([[0, 0], [3, 0], [0, 6]]), tensor([1, 1, 10])
    assert means.mean(0).tolist() == [1, 2]
    assert (n @ means / n.sum()).tolist() == [0.25, 5]
    found = shares([0, 0, 1], [1, 1, 1])[0]
    assert np.allclose(found, [0.4, 0.4, 0.2], atol=2e-3)
    assert np.allclose(shares([0, 0, 3], [1, 1, 1])[0], tensor([10, 10, 1]) / 21, 1e-2)
    assert math.ceil(0.6 * 8 - 1e-9) == 5


# fisher


def slopes(w, x, y):
    """The gradient of every row under logistic regression without a bias [N, 2]."""
    return (torch.sigmoid(x @ w) - y)[:, None] * x


def test_five_rows_and_a_liar():
    x = tensor([[2, 1], [1, 2], [0, -3], [-4, 0], [-4, 0]])
    y, w = tensor([1, 1, 0, 0, 1]), tensor([0, 0])
    matrix = x.T @ x / 4
    assert matrix.tolist() == [[9.25, 1], [1, 3.5]] and matrix.trace() == 12.75
    for way, curvature in (([1, 1], 7.375), ([1, -1], 5.375)):
        v = tensor(way) / math.sqrt(2)
        assert np.isclose(v @ matrix @ v, curvature)
    g = slopes(w, x, y)
    assert g.square().sum() == 12.75
    assert g.sum(0).tolist() == [-1.5, -3] and g.sum(0).square().sum() == 11.25
    for _ in range(20_000):
        w = w - 0.05 * slopes(w, x, y).sum(0)
    p = torch.sigmoid(x @ w)
    assert np.isclose(slopes(w, x, y).square().sum(), 8, atol=0.02)
    assert np.isclose((p * (1 - p)) @ x.square().sum(1), 8, atol=0.02)
    assert abs(w[0]) < 0.01 < 3 < w[1]


def test_answers_of_the_quiz_on_fisher_information():
    flips = tensor([1] * 8 + [0] * 8) - 0.5
    assert flips.square().sum() == 4 and flips.sum() == 0
    turn = tensor([[1, -1], [1, 1]]) / math.sqrt(2)
    turned = turn.T @ tensor([[3, 0], [0, 1]]) @ turn
    assert np.allclose(turned.diagonal(), 2)
    pulls = tensor([1, 1, 1, 0]) - 0.75  # the coin of the page at its best weight
    assert pulls.sum() == 0 and pulls.square().sum() == 0.75
    batches = slopes(tensor([0.3, 0.1]), tensor([[2, 1], [0, -3]]), tensor([1, 0]))
    mean = batches.mean(0).square().sum()
    assert np.isclose(3 * mean, sum(b.mean(0).square().sum() for b in [batches] * 3))


@pytest.mark.parametrize("step", [1, 100, 10_000])
def test_the_wrong_label_shows_only_while_the_model_contradicts_it(step):
    """The plane example, trained on: both traces go to 0, so neither is a proof of
    clean labels.
    """
    x, y = tensor([[2, 1], [1, 2], [-3, 0], [0, -3]]), tensor([1, 1, 1, 0])
    w = tensor([1, 1]) * math.log(9) / 3  # trained on the right labels
    assert np.isclose(slopes(w, x, y).square().sum(), 7.48)
    for _ in range(step):
        w = w - 0.1 * slopes(w, x, y).sum(0)
    p = torch.sigmoid(x @ w)
    both = slopes(w, x, y).square().sum(), (p * (1 - p)) @ x.square().sum(1)
    assert (max(both) < 0.05) == (step == 10_000)
    assert (step == 1) == (float(p[2]) < 0.5)  # the wrong row, believed or not


# fedas


def align_slope(theta, old):
    """Of the alignment's loss in the toy: rows -1 | 1, 3, targets the old class means;
    one feature.
    """
    theta = tensor(theta).requires_grad_()
    a, b = tensor([-1]), tensor([1, 3])
    A = sum(((theta * x - (old * x).mean()) ** 2).mean() for x in (a, b))
    return torch.autograd.grad(A, theta)[0].item()


def test_back_after_a_holiday():
    for theta in (-1, 0, 2):
        assert np.isclose(align_slope(theta, 2), 12 * theta - 20)
    theta, steps = -1.0, 0
    while theta <= 0:
        theta, steps = theta - 0.01 * align_slope(theta, 2), steps + 1
        if steps == 3:
            assert np.isclose(theta, -0.15, atol=0.005)
    assert steps == 4
    trace, body = tensor([1 / 4, 2 / 2, 5 / 2]), tensor([0, 1, 3])
    assert np.isclose(trace @ body / trace.sum(), 34 / 15)
    assert np.isclose(tensor([1, 2, 5]) @ body / 8, 17 / 8)


def test_answers_of_the_quiz_on_fedas():
    assert np.isclose(align_slope(5 / 3, 2), 0)
    assert np.isclose(tensor([1, 2, 0]) @ tensor([0, 1, 3]) / 3, 2 / 3)


def test_what_the_newspaper_may_say():
    """The teachers' two sentences hold with few clients online (P = 0.2)."""
    effect = pd.read_csv(ROOT / "results/claims.csv", index_col="key")
    few = lambda f, d: effect.loc[f"fedas-{f}-{d}"]
    sets = ["cifar-10-beta_0.1-p_0.2", "cifar-100-beta_0.1-p_0.2", "digits-p_0.2"]
    ahead = [few("gain-beyond-download", d)["lo"] > 0 for d in sets]
    assert ahead == [True, False, True]
    assert all(few("beats-fine-tuning", d)["hi"] < 0 for d in sets)


# all of them


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_a_lab_and_an_exercise_whose_solution_is_not_on_it(page):
    text = (ROOT / f"book/{page}.md").read_text("utf-8")
    label = re.search(r":label: (ex-\w+-class)", text).group(1)
    assert f"{{solution}} {label}" not in text
    assert label in (ROOT / f"book/teachers/{page}.md").read_text("utf-8")
    assert f"(notebooks/labs/{page}.ipynb)" in text


def test_snippets_on_pages_bring_what_they_use():
    """Code of a solution that defines something starts from imports."""
    for page in PAGES:
        text = (ROOT / f"book/{page}.md").read_text("utf-8")
        for code in re.findall(r"```python\n(.*?)```", text, re.S):
            if "class " in code or "mixtures" in code or "randn" in code:
                assert "import" in code, f"{page}: {code[:60]}"
