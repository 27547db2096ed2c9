"""Which rule stands finite lies: the words of the book, and the attacks themselves."""

import pandas as pd
import pytest
import torch
from where import ROOT

from fedlib.data import tasks
from repro import byzantine


@pytest.fixture(scope="module")
def means():
    """Accuracy of the honest clients, over seeds: [(attack, liars), rule]."""
    each = pd.read_csv(ROOT / "results/byzantine.csv")
    return each.pivot_table(index=["attack", "liars"], columns="rule", values="mean")


def test_the_words_of_the_book(means):
    robust = ["Median", "TrimmedMean", "MultiKrum", "DeepSight"]
    clean = means.loc["nobody lies", 0]
    assert (clean[robust] < clean.Mean).all()
    assert clean[robust].idxmin() == "MultiKrum"
    for liars in byzantine.LIARS:
        for attack in ("times 100", "noise"):
            good = ["Median", "TrimmedMean", "DeepSight"]
            apart = means.loc[attack, liars][good] - means.loc["away", liars][good]
            assert (apart > -7).all()
            assert means.loc[attack, liars].Mean < 65
    labels, little = means.loc["labels", 3], means.loc["a little", 3]
    assert (labels[robust] < labels.Mean + 1).all()
    assert (little[robust] < little.Mean - 5).all()
    assert (means.loc["sign flip", 3] < 70).all()


@pytest.mark.parametrize("case", [("nobody lies", 0), ("times 100", 3)])
@pytest.mark.parametrize("rule", ["Mean", "Median"])
def test_a_kept_row_comes_out_again(case, rule):
    each = pd.read_csv(ROOT / "results/byzantine.csv")
    rows = each.set_index(["attack", "liars", "rule", "seed"])
    divided = byzantine.DIVIDED | {"seed": 0}
    task = tasks.build(byzantine.TASK | {"partition": divided}, split=0)
    kept = rows.loc[(*case, rule, 0), ["mean", "worst"]].tolist()
    # rounding of another processor may move a row or two of the test
    assert byzantine.one(task, rule, *case, 0) == pytest.approx(kept, abs=2)


def test_what_liars_send():
    w, honest = {"a": torch.zeros(2)}, {"a": torch.tensor([[1.0, 0], [3, 0]])}
    theirs = {"a": torch.tensor([[1.0, -2]])}
    sent = lambda f: f(w, honest, theirs, None)["a"].tolist()
    assert sent(byzantine.flipped) == [[-1, 2]]
    assert sent(byzantine.scaled) == [[100, -200]]
    # mean 2 and deviation sqrt(2) of the first weight, 0 and 0 of the second
    assert sent(byzantine.little) == [[pytest.approx(2 - 1.5 * 2**0.5), 0]]


def test_the_table_has_a_row_per_case_and_says_where_a_model_is_lost():
    rows = [
        (attack, liars, rule, seed, 90.0 + seed, 80.0)
        for attack, liars in byzantine.cases()
        for rule in byzantine.RULES
        for seed in (0, 1)
    ]
    each = pd.DataFrame(rows, columns=byzantine.COLUMNS)
    each.loc[0, ["mean", "worst"]] = float("nan")
    shown = byzantine.table(each)
    assert len(shown) == len(list(byzantine.cases()))
    assert shown.Mean.tolist()[:2] == ["diverges", "90.5 (80.0)"]
