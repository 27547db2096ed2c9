"""Numbers that chapters and teachers' notes state are right; code on pages runs."""

import math
import re
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from toys_book import BOOK
from where import ROOT

import fedlib
from fedlib.core.method import hp
from fedlib.measures import bias
from fedlib.methods import FedAvg, Uniform


def says(page, words, got=0, want=0):
    """These words stand on the page, and their numbers are right."""
    assert words in (BOOK / f"{page}.md").read_text("utf-8"), (page, words)
    assert np.allclose(got, want, atol=1e-9), (page, words, got)


def test_bytes_and_groups():
    table = pd.read_csv(ROOT / "results/bytes.csv").query("direction == 'up'")
    up, page = table.groupby("method")["bytes"].sum(), "teachers/own_model"
    rounds = lambda method: math.ceil(1e7 / up[method] / 20)
    says(page, f"10 MB after {rounds('FedPAC')} rounds")
    says(page, f"after {rounds('FedProto')} rounds", up["FedProto"], 1320)
    page, known = "teachers/groups", [[[48, 12], [10, 30]], [[64, 16], [5, 15]]]
    people = lambda C: np.array([*known, [[56, 14], [30 - C, C]]])
    says(page, f"EO = {bias.EO(people(15)):.2f}", bias.CAL(people(15)), 1 / 6)
    says(page, f"DemP = {bias.DP(people(15)):.2f}")
    says(page, f"is A's, {bias.CAL_ppv(people(15)):.3f}")
    assert [bias.EO(people(n)) <= 0.1 for n in (19, 20)] == [False, True]
    says(page, f"EO = 1/12 = {bias.EO(people(20)):.3f}")


# blocks that need what stands elsewhere: data, a server, another package
ALONE = {*"deploy measuring_fairness own_model start which_number".split()}


def test_the_code_on_pages_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evidence").symlink_to(ROOT / "evidence")
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
    assert len(ran) > 15
    ruled, walked = ran["deploy"]["ruled"], ran["fftgp"]["walked"]
    for x in (-1e6, 2.5, 1e6):  # what one liar of five can do
        assert 2 <= ruled("median", 1, 2, 3, 4, x) <= 3
        assert np.isclose(ruled("mean", 1, 2, 3, 4, x), 2 + x / 5)
    says("teachers/fftgp", "| 1 | 0.375 | 0.375 |", walked(1.0)[0][2], 3 / 8)
