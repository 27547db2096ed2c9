"""What the first chapters and FedGA's say, computed: their toys, corrected statements,
exercises and the solutions for teachers.
"""

import json
import re
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from toys import quadratic, serve
from where import ROOT

from fedlib.core.engine import run
from fedlib.data.synthetic import synthetic
from fedlib.measures import metrics
from fedlib.methods import METHODS, FedAvg
from fedlib.methods.make import make
from repro import judge

PAGES = ["one_round", "clients_differ", "drift", "measuring_fairness", "fedga"]


def page(name):
    return (ROOT / f"book/{name}.md").read_text("utf-8")


def snippet(name, start):
    """What the first Python snippet of a page that contains `start` defines."""
    found = re.findall(r"```python\n(.*?)```", page(name), re.S)
    names = {}
    exec(next(code for code in found if start in code), names)
    return names


def tensor(x):
    return torch.tensor(x, dtype=torch.float64)


# the frame


@pytest.mark.parametrize("name", PAGES)
def test_a_chapter_has_its_frame_lab_and_exercise_for_a_class(name):
    frame = yaml.safe_load((ROOT / f"book/course/{name}.yaml").read_text("utf-8"))
    assert [len(frame[k]) for k in ("goals", "takeaways", "quiz")] == [3, 5, 5]
    for question in frame["quiz"]:
        assert sum(a.get("right", False) for a in question["answers"]) == 1
        assert all(a["because"] for a in question["answers"])
        assert f"({question['see']})=" in page(name)
    assert 60 <= len(re.sub(r"\{\S+`", "", frame["credit"]).split()) <= 150
    for part in ("opening", "takeaways", "quiz", "credit", "onward"):
        assert page(name).count(f"```{{{part}}}\n```") == 1
    assert f":label: ex-{name}-class\n" in page(name)
    assert f"`ex-{name}-class`" in (ROOT / f"book/teachers/{name}.md").read_text(
        "utf-8"
    )


@pytest.mark.parametrize("name", PAGES)
def test_a_lab_is_short_and_checks_itself(name):
    lab = json.loads((ROOT / f"notebooks/labs/{name}.ipynb").read_text("utf-8"))
    code = ["".join(c["source"]) for c in lab["cells"] if c["cell_type"] == "code"]
    kept = [
        [x for x in c.splitlines() if x.strip() and x.lstrip()[0] != "#"] for c in code
    ]
    assert sum(map(len, kept)) <= 40 and max(map(len, kept)) <= 15
    assert "assert " in "\n".join(code) and "expected" in "\n".join(code)
    assert not any(c.get("outputs") for c in lab["cells"])


# one round

WISH, ROWS = np.array([0.0, 2, 10]), np.array([3, 5, 2])
PAIRS = [list(s) for s in combinations(range(3), 2)]


def three_clients(n=ROWS):
    return quadratic(WISH[:, None], list(n))


@dataclass(frozen=True)
class Watched(FedAvg):
    """FedAvg that writes its model down."""

    def aggregate(self, server, up, r):
        new = super().aggregate(server, up, r)
        return new | {"log": {"at": new["w"]["w"].expand(len(up["n"]))}}


def test_one_round_by_hand():
    out = serve(
        make("FedAvg", three_clients()), tensor([8]), [[4], [5], [9]], n=tensor(ROWS)
    )
    assert float(out["w"]["w"]) == 5.5 and 5.5 - 3 == (8 - 3) / 2
    names = snippet("one_round", "range(20)")
    assert abs(names["w"] - 3 - 5 / 2**20) < 1e-9


@pytest.mark.parametrize("T", [1, 2, 3])
def test_a_round_of_local_steps_leaves_half_to_their_number(T):
    m = make("FedAvg", three_clients(), lr=0.5, epochs=T)
    one, two = (
        float(run(m, rounds=r, every=r).state["server"]["w"]["w"]) for r in (1, 2)
    )
    assert np.isclose((two - 3) / (one - 3), 0.5**T)


def test_the_objective_is_least_where_fedavg_rests():
    w = np.linspace(0, 10, 10_001)
    loss = (ROWS / 10) @ (w - WISH[:, None]) ** 2 / 2
    assert np.isclose(w[loss.argmin()], 3)


def test_each_pair_rests_elsewhere_and_not_around_three():
    places = []
    for s in PAIRS:
        m = make("FedAvg", three_clients(), lr=0.5)
        end = run(m, rounds=60, every=60, cohort=lambda t, s=s: s).state["server"]
        places.append(float(end["w"]["w"]))
    assert np.allclose(places, [1.25, 4, 30 / 7])
    assert np.isclose(np.mean(places), 89 / 28) and f"{89 / 28:.2f}" == "3.18"
    share = [
        np.sum([(i in s) * ROWS[i] / ROWS[s].sum() for s in PAIRS]) / 3
        for i in range(3)
    ]
    assert np.allclose(share, [0.325, 0.4464, 8 / 35], atol=1e-4)
    assert np.isclose(share @ WISH, 89 / 28)
    assert np.allclose([WISH[s].mean() for s in PAIRS], [1, 5, 6])  # Uniform


@pytest.mark.parametrize("lr, rounds", [(0.5, 60), (0.1, 240)])
def test_pairs_in_turns_gather_around_another_point_with_any_step(lr, rounds):
    m = Watched(three_clients(), lr=lr)
    turns = run(m, rounds=rounds, every=rounds, cohort=lambda t: PAIRS[t % 3])
    assert np.isclose(turns.logs["at"][-3:].mean(), 89 / 28)


def test_pairs_by_chance_gather_around_another_point():
    m = Watched(three_clients(), lr=0.5)
    at = run(m, rounds=500, cohort=2, every=500).logs["at"][20:, 0]
    spread = np.std([1.25, 4, 30 / 7])
    assert abs(at.mean() - 89 / 28) < 2 * spread / np.sqrt(len(at)) < 89 / 28 - 3
    assert np.isclose(at.std(), spread * np.sqrt(1 / 3), rtol=0.15)


def test_one_of_three_forgets_the_rows():
    names = snippet("one_round", "size=1")
    assert 3.9 < np.mean(names["seen"]) < 4.1
    code = next(
        c
        for c in re.findall(r"```python\n(.*?)```", page("one_round"), re.S)
        if "size=1" in c
    )
    exec(code.replace("size=1", "size=2"), pairs := {})
    assert 3.1 < np.mean(pairs["seen"]) < 3.25


def test_cohorts_that_are_fair_on_average_scatter_more():
    p, eta = ROWS / 10, 0.5
    draws = [(i, j) for i in range(3) for j in range(3)]
    chance = np.array([p[i] * p[j] for i, j in draws])
    r = np.array([(WISH[i] + WISH[j]) / 2 for i, j in draws])
    by_size = chance @ (r - 3) ** 2
    assert np.isclose(chance @ r, 3) and np.isclose(by_size, 6.5)
    plain = np.var([WISH[s] @ ROWS[s] / ROWS[s].sum() for s in PAIRS])
    A = np.array([1.5 * p[s].sum() for s in PAIRS])
    B = np.array([1.5 * p[s] @ (WISH[s] - 3) for s in PAIRS])
    assert np.allclose(A, [1.2, 0.75, 1.05]) and np.allclose(B, [-2.1, 0.75, 1.35])
    assert np.isclose(B.mean(), 0)
    scaled = eta**2 * (B**2).mean() / (1 - ((1 - eta * A) ** 2).mean())
    third = eta / (2 - eta)
    scatter = np.sqrt([plain * third, by_size * third, scaled])
    assert np.allclose(scatter, [0.790, 1.472, 0.874], atol=5e-4)
    assert np.isclose(plain, 1.873, atol=5e-4)
    assert np.isclose(plain * third + (89 / 28 - 3) ** 2, 0.656, atol=5e-4)


def test_a_server_with_memory_is_fedavgm():
    Heavy = snippet("one_round", "class Heavy")["Heavy"]

    def end(m):
        return float(run(m, rounds=7, every=7).state["server"]["w"]["w"])

    task = three_clients()
    assert np.isclose(
        end(Heavy(task, memory=0.0)), end(make("FedAvg", task)), atol=1e-12
    )
    for beta, step in ((0.9, 1.0), (0.5, 0.3)):
        known = make("FedAvgM", task, beta=beta, server_lr=step)
        assert np.isclose(end(Heavy(task, memory=beta, server_lr=step)), end(known))


def test_the_quiz_of_one_round():
    out = serve(
        make("FedAvg", quadratic([[0], [12]], [1, 3])),
        tensor([4]),
        [[2], [8]],
        n=tensor([1, 3]),
    )
    assert float(out["w"]["w"]) == 6.5
    assert 8 - (8 - 4) / 0.5 == 0  # what the server computes of Ada


# clients differ


def teachers(clients, rows):
    """The teachers (W, b) of Synthetic(0, 0) and its inputs, drawn as the page says."""
    rng = np.random.RandomState(0)
    rng.normal(0, 0, 2 * clients)  # all u_k and B_k
    v = rng.normal(0, 1, (clients, 60))
    spread, found = np.arange(1, 61) ** -0.6, []
    for k in range(clients):
        W, b = rng.normal(0, 1, (60, 10)), rng.normal(0, 1, 10)
        found.append((W, b, v[k] + spread * rng.standard_normal((rows, 60))))
    return found


def test_the_first_number_of_synthetic_changes_no_label():
    sizes = [100] * 10
    a, b = synthetic(0, 0.5, sizes), synthetic(1, 0.5, sizes)
    assert torch.equal(a.x, b.x) and torch.equal(a.y, b.y)
    assert not torch.equal(a.x, synthetic(0, 1, sizes).x)


def test_teachers_of_synthetic_zero_agree_as_chance_would():
    drawn, pool = teachers(30, 100), synthetic(0, 0, [100] * 30)
    assert np.allclose(np.concatenate([x for *_, x in drawn]), pool.x, atol=1e-5)
    y = pool.y.numpy().reshape(30, 100)
    agree = [
        ((x @ W + b).argmax(1) == y[k]).mean()
        for k, (*_, x) in enumerate(drawn)
        for j, (W, b, _) in enumerate(drawn)
        if j != k
    ]
    assert abs(np.mean(agree) - 0.1) < 0.01
    own = [((x @ W + b).argmax(1) == y[k]).all() for k, (W, b, x) in enumerate(drawn)]
    assert all(own)


@pytest.mark.parametrize("T, at", [(1, 3), (2, 30 / 11), (3, 2.52), (1000, 2)])
def test_where_two_clients_on_a_line_rest(T, at):
    share = 1 - (1 - np.array([1, 3]) / 4) ** T
    assert np.isclose(share @ [0, 4] / share.sum(), at)


def test_a_pull_in_the_limit():
    for mu, at in ((0, 2), (1, 2.4), (3, 8 / 3), (1e9, 3)):
        share = np.array([1, 3]) / (np.array([1, 3]) + mu)
        assert np.isclose(share @ [0, 4] / share.sum(), at)


def test_steps_divided_by_their_number_balance_the_pulls():
    c, b, T, eta = np.array([1, 3]), np.array([0, 4]), np.array([1, 5]), 1e-4
    share = 1 - (1 - eta * c) ** T
    assert np.isclose(share / T @ b / (share / T).sum(), 3, atol=1e-3)
    assert abs(share @ b / share.sum() - 3) > 0.5


@pytest.mark.parametrize("T, mu", [(1, 0.0), (7, 0.0), (7, 2.0)])
def test_clients_that_answer_in_opposite_ways(T, mu):
    m = make("FedProx", quadratic([[1], [-1]]), mu=mu, lr=0.3, epochs=T)
    end = float(run(m, rounds=40, every=40).state["server"]["w"]["w"])
    assert np.isclose(end, 0, atol=1e-6)
    assert (1 - 0) ** 2 / 2 == (-1 - 0) ** 2 / 2 == 0.5


def test_the_snippet_of_the_microscope_runs():
    assert snippet("clients_differ", "microscope=True")["record"].logs[
        "drift"
    ].shape == (5, 5)


# measuring fairness


def test_averaging_seeds_first_is_more_equal_on_average_not_than_every_run():
    runs = np.array([[0.5] * 4, [0.2, 0.4, 0.6, 0.8]])
    each, averaged = metrics.gini(runs), metrics.gini(runs.mean(0))
    assert np.allclose(each, [0, 1 / 3]) and np.isclose(averaged, 1 / 6)
    assert averaged > each.min()
    for runs in np.random.default_rng(0).uniform(size=(200, 3, 5)):
        same_mean = runs / runs.mean(1, keepdims=True)
        assert metrics.gini(same_mean.mean(0)) <= metrics.gini(same_mean).mean() + 1e-12
        weights = runs.mean(1) / runs.mean()
        allowed = (weights * metrics.gini(runs)).mean()
        assert metrics.gini(runs.mean(0)) <= allowed + 1e-12


def test_the_lorenz_curve_of_four_clients():
    a = np.array([0.2, 0.4, 0.6, 0.8])
    held = np.append(0, a.cumsum() / a.sum())
    assert np.allclose(held, [0, 0.1, 0.3, 0.6, 1])
    area = np.trapezoid(np.linspace(0, 1, 5) - held, dx=1 / 4)
    assert np.isclose(area, 1 / 8) and np.isclose(2 * area * 4 / 3, metrics.gini(a))


def test_levelling_down_pleases_every_measure_of_equality():
    before, after = np.array([0.9, 0.6]), np.array([0.6, 0.6])
    assert metrics.gini(after) == metrics.std_acc(after) == 0 < metrics.gini(before)
    assert metrics.jain(after) == 1 > metrics.jain(before)
    assert (after <= before).all()
    assert np.isclose(metrics.gini(np.array([0, 0.8])), 1)


def test_four_models_for_a_class():
    alone = np.array([0.8, 0.75, 0.3])
    models = np.array([[0.9, 0.7, 0.5], [0.7, 0.7, 0.6], [0.5] * 3, [0.85, 0.8, 0.5]])
    assert np.allclose(metrics.mean_acc(models), [0.7, 0.667, 0.5, 0.717], atol=5e-4)
    assert np.allclose(metrics.gini(models), [0.190, 0.050, 0, 0.163], atol=5e-4)
    assert models.min(1).tolist() == [0.5, 0.6, 0.5, 0.5]
    assert (models > alone).sum(1).tolist() == [2, 1, 1, 3]
    worse = (models <= models[0]).all(1) & (models < models[0]).any(1)
    assert worse.tolist() == [False, False, True, False]


def test_the_snippet_of_a_measure_runs():
    assert snippet("measuring_fairness", "selection.select")["record"].rounds[-1] == 5


# drift


def test_an_old_control_variate_moves_a_client_away():
    c, b, eta = np.array([1.0, 3.0]), np.array([0.0, 4.0]), 1 / 4

    def ends(own):
        v = np.array([3.0, 3.0])
        for _ in range(2):
            v = v - eta * (c * (v - b) + own.mean() - own)
        return v

    now = c * (3 - b)
    assert now.tolist() == [3, -3] and now.mean() == 0
    assert np.allclose(ends(now), 3)
    old = np.array([now[0], c[1] * (2 - 4)])
    assert old.tolist() == [3, -6] and old.mean() == -1.5
    assert ends(old).tolist() == [3.65625, 2.53125] and ends(old).mean() == 3.09375


@pytest.mark.parametrize("T", [1, 5])
def test_momentum_at_the_server_rests_where_fedavg_does(T):
    def end(name, **kw):
        m = make(name, quadratic([[0], [4]], [1, 3]), lr=0.2, epochs=T, **kw)
        return float(run(m, rounds=150, every=150).state["server"]["w"]["w"])

    assert np.isclose(end("FedAvg"), 3) and np.isclose(end("FedAvgM", beta=0.5), 3)


# fedga


def average(reported, alpha=4.0):
    p = METHODS["FedGA"](alpha=alpha).fair(tensor(reported))
    return float(p @ tensor([0, 1, 3])), p.tolist()


def test_a_client_that_reports_less_gains_weight():
    honest, lied = average([1, 0.5, 0]), average([0, 0.5, 0])
    assert np.isclose(honest[0], 2) and np.isclose(lied[0], 1.4)
    assert np.allclose(lied[1], [0.4, 0.2, 0.4])
    # (b): everybody's best answer to (0, 1, 0), found among many reports
    grid, best = np.linspace(0, 1, 101), [0, 1, 0]
    for i, wish in enumerate((0, 1, 3)):
        off = [abs(average([*best[:i], x, *best[i + 1 :]])[0] - wish) for x in grid]
        assert np.isclose(off[np.abs(grid - best[i]).argmin()], min(off)) == (i != 1)
    best = [0, 0, 0]
    assert np.isclose(average(best)[0], 4 / 3)
    for i, wish in enumerate((0, 1, 3)):
        off = [abs(average([*best[:i], x, *best[i + 1 :]])[0] - wish) for x in grid]
        assert np.argmin(off) == 0


def test_a_base_of_123_gives_the_last_client_half():
    for base, side in ((122, -1), (124, 1)):
        p = METHODS["FedGA"](alpha=float(base)).fair(tensor([0.9, 0.8, 0.7]))
        assert (float(p[2]) - 0.5) * side > 0


# intro


def test_the_first_page_prints_the_rule_of_the_ledger():
    said = page("intro")
    assert judge.TOLERANCE == {"%": 2.0, "accuracy": 0.02}
    assert "2 points of accuracy, and for other quantities 5 %" in said
    for verdict in judge.VERDICTS:
        assert f"| {{verdict}}`{verdict}` |" in said
    wide = max(
        len(x)
        for c in re.findall(r"```(?:python|bash)\n.*?```", said, re.S)
        for x in c.splitlines()
    )
    assert wide <= 80  # no line of code runs over the edge


def test_the_table_of_the_first_page_leaves_no_row_of_the_ledger_out():
    ledger = pd.read_csv(ROOT / "results/ledger.csv", dtype=str, keep_default_na=False)
    rest = ledger[~ledger.verdict.isin(["setting", "not run"])]
    asked = re.findall(r'`ledger data=(\S+) verdict="([^"]+)"`', page("intro"))
    assert len(asked) == len(set(asked))
    assert set(rest.groupby(["data", "verdict"]).groups) <= set(asked)
