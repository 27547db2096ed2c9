"""Gates and regimes: by hand, from invented runs, and what every study must keep to."""

import json
import re
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from where import ROOT

from fedlib.core.record import Record
from fedlib.study import studies
from fedlib.study.parameters import load
from fedlib.study.results import Study
from repro import papers, regimes

IMAGES = {
    "data": {"name": "cifar10"},
    "partition": {"name": "dirichlet", "clients": 20},
    "parts": [0.75, 0.0, 0.25],
    "batch": 16,
}
LOCAL = {"lr": 0.1, "epochs": 5, "last": "drop"}
ROUNDS = {"rounds": 40, "every": 1}


def regime(task=IMAGES, train=LOCAL, run=ROUNDS, rows=60000, clients=None):
    texts = map(json.dumps, (task, train, run))
    return regimes.regime(*texts, clients, json.dumps(rows))


# ---------------------------------------------------------------- a regime by hand
def test_a_regime_of_equal_clients():
    """60,000 rows: 3,000 a client, 2,250 of them to train, 140 batches of 16 and 10."""
    assert regime(run=ROUNDS | {"online": 0.2}) == {
        "rounds": 40,
        "clients": 20,
        "cohort": 4,
        "participations": 8.0,
        "epochs": 5,
        "steps_per_pass": 140,
        "steps_per_participation": 700,
        "steps_in_all": 5600.0,
    }
    kept = regime(train=LOCAL | {"last": "keep"})
    assert kept["steps_per_pass"] == 141 and kept["participations"] == 40


def test_a_number_of_batches_in_place_of_passes():
    few = regime(train=LOCAL | {"batches": 7})
    assert few["steps_per_participation"] == 7 and few["epochs"] == 7 / 140


def test_the_client_in_the_middle():
    """Shares of 0.75 of 4, 40 and 400 rows: 1, 2 and 19 batches of 16."""
    got = regime(IMAGES | {"partition": {"clients": 3}}, rows=[4, 40, 400])
    assert (
        got["steps_per_pass"] == 1 and got["clients"] == 3
    )  # 30 rows: one whole batch
    keep = LOCAL | {"last": "keep"}
    assert regime(train=keep, rows=[4, 40, 400])["steps_per_pass"] == 2


def test_stragglers_take_part_now_and_then():
    late = regime(run=ROUNDS | {"stragglers": {"portion": 0.5, "every": 5}})
    assert late["cohort"] == (4 * 10 + 20) / 5 and late["participations"] == 24


def test_what_is_not_known_is_not_made_up():
    domains = {"data": {"name": "domainbed"}, "guest": "sketch", "parts": [0.6, 0, 0.4]}
    got = regime(domains, rows=None, clients=4)
    assert got["clients"] == 3 and got["epochs"] == 5 and "steps_per_pass" not in got


def test_data_of_ours_are_counted():
    digits = IMAGES | {"data": {"name": "digits"}, "batch": 32}
    digits["partition"] = {"name": "dirichlet", "clients": 2, "alpha": 1e6}
    sizes = regimes.client_sizes(json.dumps(digits), None, "null")
    assert sum(sizes) == pytest.approx(0.75 * 1797, abs=2)


@pytest.mark.parametrize(
    "rounds, every, pre, post", [(24, 6, 1, 1), (24, 2, 3, 3), (200, 1, 10, 10)]
)
def test_evaluations_in_the_last_rounds(rounds, every, pre, post):
    run = json.dumps({"rounds": rounds, "every": every})
    assert regimes.evaluations(run, "last10_mean") == pre
    assert regimes.evaluations(run, "last10_mean", "post") == post
    assert regimes.evaluations(run, "last") == 1


# ---------------------------------------------------------------- a gate by hand
LABELS = SimpleNamespace(
    y=torch.tensor([0, 0, 1, 0, 1, 1, 2]),
    K=3,
    train=(torch.arange(3), torch.arange(3, 7)),
    test=(torch.arange(3), torch.arange(3, 7)),
)


TOY = json.dumps({"data": {"name": "digits"}, "network": {"name": "Linear"}})


def cell(method, seed=0, setting="", task=TOY, kwargs="{}", engine="{}"):
    names = "toy", "a toy", method, setting, seed, "real"
    return studies.Cell(*names, task, kwargs, engine)


def gates(monkeypatch, said, **accuracies):
    """The row of invented runs; {method: the accuracies of its clients}."""
    cells, records = [], []
    for method, acc in accuracies.items():
        for seed in (1000, 1001):
            views = {("pre", "global", "test"): np.array([[0.0, 0.0], acc])}
            meta = {"n": {"test": [3, 4]}, "device": "cpu", "seconds": 1, "commit": ""}
            meta["owners"] = []
            cells.append(cell(method, seed))
            records.append(Record(meta, np.array([0, 9]), views))
    tiers = ["small"] * len(cells)
    done = Study("toys", "gate", "small", {}, cells, records, tiers)
    monkeypatch.setattr(regimes, "study", lambda *_: done)
    monkeypatch.setattr(regimes.compute, "task_of", lambda *_: LABELS)
    about = {"rule": "last", "gate": said}
    monkeypatch.setattr(regimes.papers, "about", lambda _: about)
    (row,) = regimes.gates("toys")
    return row


def test_a_gate_is_how_far_the_federation_comes(monkeypatch):
    """Class 0 is right for 2/3 and 1/4 of the rows: chance 11/24."""
    runs = {"FedAvg": [0.7, 0.7], "Local": [0.9, 0.9], "Centralised": [0.8, 0.9]}
    row = gates(monkeypatch, {}, **runs)
    chance = 100 * 11 / 24
    assert row["chance"] == pytest.approx(chance) and row["n_seeds"] == 2
    assert row["gate"] == pytest.approx((70 - chance) / (85 - chance))
    assert row["reference_method"] == "FedAvg" and row["passes"] == "yes"
    held = {"clients": 2, "rows_least": 3, "rows_median": 3.5, "rows_most": 4}
    held |= {"test_median": 3.5, "classes": "2.5 of 3"}  # 0 0 1, and 0 1 1 2
    assert row.items() >= held.items()
    assert row["largest"] == pytest.approx(100 * (2 / 3 + 1 / 2) / 2)
    row = gates(monkeypatch, {}, **runs | {"FedAvg": [0.6, 0.6]})
    assert row["gate"] < 0.5 and row["passes"] == "no"


def test_the_best_federation_and_a_chance_of_ones_own(monkeypatch):
    """Class 0 at the first client, 2 of 3 rows; class 1 at the second, 2 of 4."""
    runs = {"FedAvg": [0.6, 0.6], "FedPer": [0.7, 0.8]}
    runs |= {"Local": [1.0, 1.0], "Centralised": [0.8, 0.9]}
    row = gates(monkeypatch, {"reference": "best", "chance": "own"}, **runs)
    assert row["reference_method"] == "FedPer" and row["local"] == 100
    assert row["chance"] == pytest.approx(100 * (2 / 3 + 1 / 2) / 2)


def test_where_all_rows_do_not_help_there_is_no_gate(monkeypatch):
    runs = {"FedAvg": [0.6, 0.7], "Local": [0.5, 0.5], "Centralised": [0.4, 0.4]}
    row = gates(monkeypatch, {}, **runs)
    assert row["gate"] is None and row["passes"] == "no"


def test_the_papers_that_take_another_reference_say_why():
    for paper in papers.found():
        said = papers.about(paper)["gate"]
        assert set(said) in (
            set(),
            {"reference", "why"},
            {"reference", "chance", "why"},
        )
        assert len(said.get("why", "x" * 50)) >= 50


# EquFL's census whose bias is turned, and the people of Adult in other parties
WITHOUT = ("knobs", "paths", "cut")


def test_the_gates_are_of_the_data_sets_of_the_main_studies():
    for paper in papers.found():
        known = load(ROOT / "params.yaml")[paper]["studies"]
        wanted = {
            d
            for name, places in papers.about(paper)["main"].items()
            for d in places
            if name in known and name not in WITHOUT
        }
        assert wanted - {"Avg"} <= set(known["gate"]["tasks"])


# ---------------------------------------------------------------- what is refused
def test_faults_are_found():
    dealt = {"name": "dirichlet", "clients": 2, "alpha": 1e6}
    task = {"data": {"name": "digits"}, "partition": dealt, "batch": 10**6}
    task = json.dumps(IMAGES | task | {"network": {"name": "Linear"}})
    run = json.dumps({"rounds": 8, "every": 4})
    told = {"task": task, "engine": run}
    two = json.dumps({"epochs": 2})
    assert regimes.faults([cell("FedAvg", **told)], {}, "best_val") == set()
    found = regimes.faults([cell("FedAvg", kwargs=two, **told)], {}, "last10_mean")
    assert found == {("toy", regimes.SINGLE), ("toy", regimes.ONE)}
    same = [
        cell("Ditto", setting=s, kwargs=k, **told)
        for s, k in (("", "{}"), ("decay=0", '{"decay": 0.0}'))
    ]
    assert regimes.faults(same, {}, "best_val") == {("toy", regimes.TWICE)}
    assert regimes.faults([same[0]] * 2, {}, "best_val") == set()


FULL = ("fedga", "fft-gp")  # whose data take seconds to make


@pytest.mark.parametrize(
    "paper",
    [
        pytest.param(p, marks=pytest.mark.full if p in FULL else ())
        for p in papers.found()
    ],
)
def test_no_study_computes_twice_or_calls_one_step_a_pass(paper):
    params = ROOT / "params.yaml"
    rule, found = papers.about(paper)["rule"], set()
    for name in load(params)[paper]["studies"]:
        cells, spec, _ = studies.cells(paper, name, params, "small")
        first = min(c.seed for c in cells)  # where a seed draws the data: as many rows
        cells = [c for c in cells if c.seed == first]
        faults = regimes.faults(cells, spec.get("look", {}), rule)
        found |= {(f"{paper}/{name}", *fault) for fault in faults}
    assert found == set()


# ---------------------------------------------------------------- the files
def test_the_files_say_what_they_mean():
    gates = pd.read_csv(ROOT / "results/gates.csv")
    room = gates.centralised - gates.chance
    assert np.allclose(gates.gate, (gates.reference - gates.chance) / room, rtol=1e-4)
    assert ((gates.gate >= regimes.LEAST) == (gates.passes == "yes")).all()
    table = pd.read_csv(ROOT / "results/regimes.csv")
    share = table.rounds * table.cohort / table.clients
    assert np.allclose(table.participations, share, rtol=1e-4)
    assert set(table.paper) == set(gates.paper) == set(papers.found())
    assert not table.duplicated(["paper", "study", "dataset", "setting"]).any()


# ---------------------------------------------------------------- the pages
PAGE = "# A page\n\n```{gates}\n```\n\n```{regimes} fedas\n```\n"
CONF = """
import sys
sys.path.insert(0, "EXT")
extensions = ["myst_parser", "sphinxcontrib.bibtex", "fedbook", "fedtables", "fedregimes"]
bibtex_bibfiles = []
html_theme = "basic"
fedbook_results = "RESULTS"
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The tables of the directives, from the files that are there."""
    sphinx = pytest.importorskip("sphinx.cmd.build")
    at = tmp_path_factory.mktemp("page")
    conf = CONF.replace("EXT", str(ROOT / "book/_ext"))
    (at / "conf.py").write_text(conf.replace("RESULTS", str(ROOT / "results")))
    (at / "index.md").write_text(PAGE)
    assert (
        sphinx.build_main(["-q", "-W", "-b", "html", str(at), str(at / "built")]) == 0
    )
    return (at / "built/index.html").read_text(encoding="utf-8")


def test_the_pages_show_every_gate_and_both_regimes(page):
    gates = pd.read_csv(ROOT / "results/gates.csv")
    first, second, folded = re.findall(r"<table class=\"plain.*?</table>", page, re.S)
    assert first.count("<tr>") == 1 + len(gates) and "stragglers" in folded
    assert first.count("v-no") == (gates.passes == "no").sum()
    assert "the federation goes 9" in first and "FedAvg-FT" in first
    assert '<span class="rep">5,600</span>' in second and "beta=0.1;P=0.2" in second
