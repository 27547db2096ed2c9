"""EquFL's rivals run at the values that win on the stored pilots, by one rule."""

import dataclasses
import json
from types import SimpleNamespace

import pandas as pd
import pytest
import yaml
from where import ROOT

from fedlib.methods import METHODS
from fedlib.study import evidence, studies
from fedlib.study.experiment import study
from repro import papers

WINNERS = papers.module("equfl", "winners")
PARAMS = ROOT / "params.yaml"
RIVALS = {"FLinear": "tau", "FairFed": "beta", "FedFB": "alpha", "Regular": "mu"}
PILOTS = {  # data set -> where its rivals' values were chosen
    **dict.fromkeys(("Employment-Sex", "Health-Sex", "Income-Race"), "Income-Sex"),
    **dict.fromkeys(("Indirect-Sex", "census"), "Income-Sex"),
    "Adult-education": "Adult",
    "CIFAR-10": "MNIST",
}


def cells(name):
    return studies.cells("equfl", name, PARAMS, "small")[0]


# ---------------------------------------------------------------- the rule
def grid(**tasks):
    """A study of FedFB's values on pilots. tasks: {task: {setting: (EO, accuracy)}},
    "" for FedAvg, numbers or lists of them, one of each pilot."""
    made, rows = [], []
    for task, runs in tasks.items():
        for setting, (eo, accuracy) in runs.items():
            method = "FedFB" if setting else "FedAvg"
            of = {"dataset": task, "method": method, "setting": setting}
            kw = {"lr": 0.1} | (
                {"alpha": float(setting.split("=")[1])} if setting else {}
            )
            made.append(SimpleNamespace(**of, kwargs=json.dumps(kw)))
            for metric, values in (("EO", eo), ("accuracy", accuracy)):
                each = values if isinstance(values, list) else [values] * 2
                for s, x in enumerate(each):
                    row = {"seed": 1000 + s, "metric": metric, "value": x}
                    rows.append(of | row | {"rule": "last10_mean"})
                    rows.append(of | row | {"rule": "last", "value": -x})
    table = pd.DataFrame(rows)
    methods = {"FedAvg": {}, "FedFB": {"alpha": [0.1, 1, 2], "version": "EO"}}
    return SimpleNamespace(
        name="grid",
        cells=made,
        spec={"methods": methods},
        biases=lambda rules: table[table.rule.isin(rules)],
    )


def won(**runs):
    return WINNERS.chosen("FedFB", grid(a=runs))["a"]["alpha"]


def values(*each):
    return dict(zip(("", "alpha=0.1", "alpha=1", "alpha=2"), each))


@pytest.mark.parametrize(
    "each, alpha",
    [
        (((0.2, 0.80), (0.1, 0.80), (0.05, 0.80), (0.07, 0.80)), 1),
        # the fairest costs more than a point, and a point is allowed
        (((0.2, 0.80), (0.1, 0.80), (0.05, 0.7899), (0.07, 0.7901)), 2),
        # a model that says one thing to everybody is fair, and not chosen
        (((0.2, 0.80), (0.1, 0.80), (0.0, 0.70), (0.3, 0.80)), 0.1),
        # all cost more than a point: the most accurate
        (((0.2, 0.80), (0.1, 0.70), (0.05, 0.71), (0.3, 0.75)), 2),
        # of equals the first
        (((0.2, 0.80), (0.1, 0.80), (0.05, 0.80), (0.05, 0.82)), 1),
        # means over pilots, of both
        (((0.2, 0.80), (0.1, 0.80), ([0.0, 0.3], 0.80), (0.2, 0.80)), 0.1),
        (((0.2, 0.80), (0.1, 0.80), (0.05, [0.79, 0.795]), (0.2, 0.80)), 1),
        (((0.2, [0.7, 0.9]), (0.1, 0.795), (0.05, 0.78), (0.2, 0.80)), 0.1),
    ],
)
def test_the_fairest_of_those_that_cost_at_most_a_point(each, alpha):
    assert won(**values(*each)) == alpha


def test_every_task_has_a_winner_of_its_own():
    a = values((0.2, 0.8), (0.1, 0.8), (0.2, 0.8), (0.3, 0.8))
    b = values((0.2, 0.8), (0.3, 0.8), (0.2, 0.8), (0.1, 0.8))
    found = WINNERS.chosen("FedFB", grid(a=a, b=b))
    assert found == {"a": {"alpha": 0.1}, "b": {"alpha": 2}}  # and no version


def test_what_was_not_searched_has_no_winner():
    for method in ("FedAvg", "Reweight"):
        with pytest.raises(ValueError, match=f"{method} has no values in the study"):
            WINNERS.chosen(method, grid(a=values((0.2, 0.8), (0.1, 0.8))))


def test_the_winners_are_printed(monkeypatch, capsys):
    made = grid(a=values((0.2, 0.8), (0.1, 0.8), (0.2, 0.8), (0.3, 0.8)))
    monkeypatch.setattr(WINNERS, "read", lambda paper, name: made)
    WINNERS.main()
    printed = yaml.safe_load(capsys.readouterr().out)
    assert printed == {"FedFB": {"a": {"alpha": 0.1}}}


# ---------------------------------------------------------------- what is run
@pytest.fixture(scope="module")
def chosen(tmp_path_factory):
    """{method: {task: value}} of the stored pilots."""
    wanted = {c.id for c in cells("grid")}
    there = evidence.find(wanted, "equfl", "grid", ROOT / "evidence")
    assert wanted == set(there), "pack the runs of equfl/grid into evidence/"
    done = study("equfl", "grid", "small", PARAMS, tmp_path_factory.mktemp("runs"))
    return {
        m: {task: kw[name] for task, kw in WINNERS.chosen(m, done).items()}
        for m, name in RIVALS.items()
    }


def test_the_rivals_run_at_the_values_that_pilots_chose(chosen):
    """In every study, but for the regulariser, which shows another value too."""
    tree = studies.load(PARAMS)["equfl"]["studies"]
    seen = set()
    for name in (n for n in tree if n not in ("grid", "gate")):
        for c in cells(name):
            if c.method not in RIVALS or c.method == "Regular":
                continue
            task, hyper = PILOTS.get(c.dataset, c.dataset), RIVALS[c.method]
            default = {f.name: f.default for f in dataclasses.fields(METHODS[c.method])}
            value = json.loads(c.kwargs).get(hyper, default[hyper])
            # images are not pre-processed otherwise: their pilots have no FLinear
            due = chosen[c.method].get(task, default[hyper])
            assert value == due, (name, c.dataset, c.method)
            seen.add((name, c.method))
    for name in ("census", "adult", "images", "labels", "clients"):
        assert {(name, m) for m in RIVALS if m != "Regular"} <= seen
    assert {("cut", "FedFB"), ("paths", "FedFB")} <= seen


def test_the_claims_judge_the_regulariser_at_the_value_that_pilots_chose(chosen):
    text = (ROOT / "papers/equfl/claims.yaml").read_text(encoding="utf-8")
    shared = yaml.safe_load(text)["shared"]
    assert shared["mu"] == chosen["Regular"]
    for name, task in (("switches", "Income-Sex"), ("adult", "Adult")):
        mus = {json.loads(c.kwargs)["mu"] for c in cells(name) if c.method == "Regular"}
        assert mus >= {shared["strong"], shared["mu"][task]}


def test_nothing_that_decides_is_a_pilot_seed():
    for name in ("grid", "gate"):
        assert min(c.seed for c in cells(name)) >= 1000
    for name in ("census", "adult", "switches", "paths", "fraction"):
        assert {c.seed < 1000 for c in cells(name)} == {True}
        assert min(c.seed for c in cells(name)) >= 40  # below it lr_q was chosen
