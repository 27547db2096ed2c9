"""Numbers that chapters and teachers' notes state, beside a plain calculation: each is
found in the text and compared to its last digit. And the code on pages runs.
"""

import math
import re

import numpy as np
import pandas as pd
import torch
from toys_book import BOOK
from where import ROOT

from fedlib.measures import bias
from fedlib.methods import METHODS, FedAvg, Uniform
from fedlib.methods.fair.fedmgda import min_norm

FRACTION = r"\\[td]?frac(?:\{([\d.]+)\}|(\d))(?:\{([\d.]+)\}|(\d))"


def numbers(words):
    """[(number, half of its last digit)] of a text with fractions and minus signs."""
    for old, new in {"½": "1/2", "\u2212": "-", "{,}": ""}.items():
        words = words.replace(old, new)
    words = re.sub(FRACTION, lambda m: f"{m[1] or m[2]}/{m[3] or m[4]}", words)
    for text in re.findall(r"-?\d[\d,]*(?:\.\d+)?(?:/\d+)?", words):
        over, _, under = text.rstrip(",").replace(",", "").partition("/")
        places = len(over.partition(".")[2])
        exact = under or not places
        yield float(over) / float(under or 1), 1e-9 if exact else 10**-places / 2


def says(page, words, *values):
    """These words stand on the page, and their numbers are these values."""
    assert words in (BOOK / f"{page}.md").read_text("utf-8"), (page, words)
    for (said, error), value in zip(numbers(words), values, strict=True):
        assert abs(said - float(value)) <= error * 1.001 + 1e-9, (page, words, value)


def tensor(x):
    return torch.tensor(x, dtype=torch.float64)


def test_gradients_that_conflict():
    G, page = tensor([[0, 0, 1], [1, -1, -1], [-1, 0, -1]]), "teachers/conflict"
    says(page, r"the products $-\tfrac13, \tfrac23, \tfrac13$", *(G @ G.mean(0)))
    fedfv = lambda loss: METHODS["FedFV"](alpha=0).agree(G @ G.T, tensor(loss)) @ G
    says(page, r"$-\tfrac29, \tfrac69, \tfrac39$", *(G @ fedfv([1, 2, 3])))
    for last in ([3, 1, 2], [3, 2, 1]):
        says(page, r"$\tfrac1{18}, \tfrac13, 0$", *(G @ fedfv(last)))
    U = G / G.norm(dim=1, keepdim=True)

    def fedmgda(epsilon):
        lo, hi = max(1 / 3 - epsilon, 0), min(1 / 3 + epsilon, 1)
        p = min_norm(U @ U.T, tensor([lo] * 3), tensor([hi] * 3), steps=5000)
        return p, U @ (p @ U)

    p, gains = fedmgda(1)
    says(page, "$0.41, 0.27, 0.32$. Each gains $0.03$", *p, gains.mean())
    assert np.ptp(gains.numpy()) < 1e-4
    lose = [e for e in range(12) if fedmgda(e / 100)[1].min() < 0]
    says(page, r"$\epsilon = 0.06$", (max(lose) + 1) / 100)
    says(page, "With $0.05$ client 1 loses $0.016$", 0.05, 1, -fedmgda(0.05)[1].min())


def test_models_of_ones_own():
    table = pd.read_csv(ROOT / "results/bytes.csv").query("direction == 'up'")
    up, page = table.groupby("method")["bytes"].sum(), "teachers/personalise"
    one, two = up["FedPAC"], up["FedProto"]
    says(page, "10 MB after 41 rounds", 10, math.ceil(1e7 / one / 20))
    said = "FedProto $1{,}320$ and $26{,}400$: after 379 rounds"
    says(page, said, two, 20 * two, math.ceil(1e7 / two / 20))
    trace, page = np.array([1 / 4, 2 / 2, 5 / 2]), "teachers/fedas"
    new, old = (t @ [0, 1, 3] / t.sum() for t in (trace, np.array([1, 2, 5])))
    says(page, r"34/15 \approx 2.27$, against $17/8 \approx 2.13$", new, new, old, old)


def test_groups():
    page, known = "teachers/groups", [[[48, 12], [10, 30]], [[64, 16], [5, 15]]]
    people = lambda C: np.array([*known, [[56, 14], [30 - C, C]]])
    says(page, "EO = 0.25", bias.EO(people(15)))
    says(page, "DemP = 0.13", bias.DP(people(15)))
    says(page, "1/2 = 1/6. P", 1 / 2, bias.CAL(people(15)))
    says(page, "is A's, 0.126", bias.CAL_ppv(people(15)))
    assert [bias.EO(people(n)) <= 0.1 for n in (19, 20)] == [False, True]
    says(page, "EO = 1/12 = 0.083", *[bias.EO(people(20))] * 2)


# blocks that need what stands elsewhere: data, a server, another package
ALONE = (
    "add_your_method deploy domains engine intro measuring_fairness own_model query "
)
ALONE = {*(ALONE + "watch which_number").split()}


def test_the_code_on_pages_runs(tmp_path, monkeypatch):
    from dataclasses import dataclass

    import fedlib
    from fedlib.core.method import hp

    monkeypatch.chdir(tmp_path)
    known = dict(np=np, math=math, torch=torch, fedlib=fedlib, dataclass=dataclass)
    known, ran, left = known | dict(hp=hp, FedAvg=FedAvg, Uniform=Uniform), {}, {}
    for page in sorted([*BOOK.glob("*.md"), *BOOK.glob("teachers/*.md")]):
        names, text = dict(known), page.read_text("utf-8")
        text = re.sub(r"rounds=(\d)0+\b", r"rounds=\1", text)
        for code in re.findall(r"^```python\n(.*?)^```", text, re.M | re.S):
            try:
                exec(code.replace("seeds=5", "seeds=2"), names)
                ran[page.stem] = names
            except Exception as e:
                left[page.stem] = e
        [f() for n, f in names.items() if n.startswith("test_") and n not in known]
    assert not {*left} - ALONE, {p: e for p, e in left.items() if p not in ALONE}
    assert len(ran) > 20
    ruled, walked = ran["deploy"]["ruled"], ran["domains"]["walked"]
    for x in (-1e6, 2.5, 1e6):  # what one liar of five can do
        assert 2 <= ruled("median", 1, 2, 3, 4, x) <= 3
        assert np.isclose(ruled("mean", 1, 2, 3, 4, x), 2 + x / 5)
    says("teachers/domains", "| 1 | 0.375 | 0.375 |", 1, 3 / 8, walked(1.0)[0][2])
