"""FFT-GP's tuned tables run the winners of the stored pilots."""

import json

import pytest
from where import ROOT

from fedlib.study import evidence, studies
from fedlib.study.experiment import study
from repro import papers
from repro.winners import winners, without

PARAMS = ROOT / "params.yaml"
RULE = papers.about("fft-gp")["rule"]
OUT, OWN = ("rates_out", "own_out"), ("rates_own", "own_own")
AS = {"FFT-GP-lagged": "FFT-GP"}  # at the values of the other
READING = "scored"  # of AFL: both are shown, the last model is tuned


def cells(name):
    return studies.cells("fft-gp", name, PARAMS, "small")[0]


def of_pilots(names, tmp_path):
    """{method: {data set: {domain left out: {hyper-parameter: value}}}}"""
    for name in names:
        wanted = {c.id for c in cells(name)}
        there = evidence.find(wanted, "fft-gp", name, ROOT / "evidence")
        assert wanted == set(there), f"{name}: pack its runs into evidence/"
    runs = (study("fft-gp", name, "small", PARAMS, tmp_path) for name in names)
    return winners(*runs, rule=RULE)


def agree(name, won, free=()):
    """Every cell of a study has the values that won where it is run.

    free: the hyper-parameters that a study searches itself.
    """
    for c in cells(name):
        best = won[AS.get(c.method, c.method)][c.dataset]
        point = without(c.setting, (READING, *free))
        values = json.loads(c.kwargs)
        assert point in best, (name, c.method, c.dataset, point)
        due = {k: v for k, v in best[point].items() if k not in (READING, *free)}
        assert {k: values[k] for k in due} == due, (c.method, c.dataset, point)


@pytest.mark.parametrize(
    "tuned, pilots", [("general_tuned", OUT), ("personal_tuned", OWN)]
)
def test_the_tuned_values_are_the_winners_of_the_pilots(tuned, pilots, tmp_path):
    won = of_pilots(pilots, tmp_path)
    agree(tuned, won)
    places = {(AS.get(c.method, c.method), c.dataset) for c in cells(tuned)}
    assert places == {(m, d) for m in won for d in won[m]}


@pytest.mark.parametrize("rates, own", [OUT, OWN])
def test_a_method_s_own_parameter_is_tried_at_its_best_step_size(rates, own, tmp_path):
    methods = studies.cells("fft-gp", own, PARAMS, "small")[1]["methods"]
    searched = {name for entry in methods.values() for name in entry} - {"lr"}
    agree(own, of_pilots([rates], tmp_path), free=searched)


def test_every_method_of_a_table_has_one_budget():
    """Seven step sizes and, but for those without a parameter, two more values."""
    for rates, own in (OUT, OWN):
        tried = {}
        for name in (rates, own):
            for c in cells(name):
                at = c.method, c.dataset, c.seed, guest(c)
                tried.setdefault(at, set()).add(c.setting)
        for (method, *_), settings in tried.items():
            assert len(settings) == (7 if method in ("FedAvg", "Local") else 9)


def guest(c):
    return json.loads(c.task).get("guest", "")


def test_nothing_that_decides_is_a_pilot_seed():
    for name in (*OUT, *OWN, "steps_pilot", "gate"):
        assert min(c.seed for c in cells(name)) >= 1000
    for name in ("personal", "personal_tuned", "general", "general_tuned", "steps"):
        assert max(c.seed for c in cells(name)) < 1000
    stated, tuned = (
        {c.seed for c in cells(name)} for name in ("general", "general_tuned")
    )
    assert stated <= tuned and len(stated) >= 5
