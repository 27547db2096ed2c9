"""What the first chapters and FedGA's say, computed: their toys, corrected statements,
exercises and the solutions for teachers.
"""

import json
import re
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pytest
import torch
import yaml
from toys import quadratic, serve
from where import ROOT

from fedlib.core.engine import run
from fedlib.methods import FedAvg
from fedlib.methods.make import make

PAGES = ["one_round"]


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
