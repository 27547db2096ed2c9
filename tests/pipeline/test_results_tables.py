"""What stages make of runs and of other files: derived rows, facts, gates and regimes,
the state of artefacts; on invented ones, by hand.
"""

import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from benchmarks import tables
from fedlib.core.record import Record
from fedlib.study import studies
from fedlib.study.results import Study
from repro import artefacts, cost, derive, names, regimes, results, rivals, traffic
from repro.names import ResultError

PLACE = dict(paper="fedas", study="main", dataset="d", rule="last", tier="tiny")


def seeds(rows, metric="top1_acc_pct", **more):
    """Rows of (method, setting, seed, value)."""
    table = pd.DataFrame(rows, columns=["method", "setting", "seed", "value"])
    return table.assign(metric=metric, **PLACE | more)


def added(new, old):
    """{(method, setting, seed, metric): value} of what was added at the end."""
    rest = new.iloc[len(old) :].set_index(["method", "setting", "seed", "metric"])
    return rest.value.round(9).to_dict()


def test_names_are_safe_and_keep_what_tells_rows_apart():
    assert names.slug("FedMGDA+") == "fedmgda-plus"
    key = names.key("fedas", "Table 1", "CIFAR-10", "FedAvg", "acc", "P=1;CS=2: some")
    assert key == "fedas-table-1-cifar-10-fedavg-p_1-cs_2-acc"
    assert names.axes("beta=0.1;CS=1;P=0.2") == ["beta=0.1", "P=0.2"]


def test_versus_subtracts_at_the_same_seed_and_place():
    base = [("FedAvg", "", 1, 0.5), ("FedAvg", "", 2, 0.1), ("FedAvg", "x=1", 1, 9)]
    mine = [("A", "", 2, 0.4), ("A", "", 1, 0.7), ("A", "", 3, 1.0)]
    old = seeds(base + mine, "best_gini")
    got = added(derive.versus(old), old)
    name = "delta_gini_vs_fedavg"
    # not FedAvg at another setting, and no seed without a partner
    assert got == {("A", "", 2, name): 0.3, ("A", "", 1, name): 0.2}


def test_lead_is_over_the_rival_with_the_best_mean():
    rows = [("A", "P=1;PA=1", s, 4.0 + s) for s in (1, 2, 3)]  # 3: no rival
    rows += [("B", "P=1", 1, 1.0), ("B", "P=1", 2, 9.0)]  # mean 5
    rows += [("C", "P=1", 1, 6.0), ("C", "P=1", 2, 6.0)]
    old = seeds(rows + [("A", "P=0.2", 1, 1.0), ("D", "P=1", 1, 99.0)])
    got = added(derive.lead(old, "A", ["B", "C"], "lead"), old)
    new = "delta_acc_points"
    assert got == {("lead", "P=1", 1, new): -1.0, ("lead", "P=1", 2, new): 0.0}
    low = old.assign(metric="best_gini")  # the lower, the better: B
    got = added(derive.lead(low, "A", ["B", "C"], "x", "best_gini"), low)
    assert [*got.values()] == [4.0, -3.0]
    for bad, word in ((pd.concat([old, old]), "two runs of"), (old[:3], "A beside")):
        with pytest.raises(ResultError, match=word):
            derive.lead(bad, "A", ["B", "C"], "x")


def test_lowest_needs_every_method_and_peak_the_best_mean_of_views():
    rows = [("A", "P=1", 1, 3.0), ("B", "P=1", 1, 2.0), ("A", "P=1", 2, 1.0)]
    old = seeds([*rows, ("B", "P=1;CS=1", 2, 0.0)], "acc_min_over_clients_pct")
    got = added(derive.lowest(old, ["A", "B"]), old)
    assert got == {("A, B", "P=1", 1, "acc_min_over_clients_pct"): 2.0}
    views = {0: (50, 70), 1: (80, 60), 2: (90, 20)}  # means 60, 70, 55
    kinds = ("global model", "personalised model")
    pairs = [(d, *pair) for d, accs in views.items() for pair in zip(kinds, accs)]
    rows = [("A", f"D={d};{view}", 1, float(acc)) for d, view, acc in pairs]
    old = seeds([*rows, ("A", "D=3;global model", 1, 99.0)], "acc_mean_pct")
    got = added(derive.peak(old), old)
    both = "global and personalised model"
    assert got == {("A", both, 1, "best_D"): 1, ("A", both, 1, "largest_D"): 2}
    assert {*derive.peak(old).rule[len(old) :]} == {"run"}


def test_renamed_takes_the_runs_with_this_part_and_keeps_their_axes():
    old = seeds([("FedAS", "P=0.2;by=size", 1, 1.0), ("FedAS", "P=0.2", 1, 2.0)])
    table = {("FedAS", "by=size"): ("PA only", "PA=1"), ("FedAS", ""): ("plain", "")}
    got = added(derive.renamed(old, table), [])
    assert len(derive.renamed(old, table)) == 2
    names = {("PA only", "P=0.2;PA=1"): 1, ("plain", "P=0.2"): 2}
    assert got == {(*who, 1, "top1_acc_pct"): value for who, value in names.items()}


def test_tables_of_facts_by_hand(tmp_path):
    def put(name, columns, *rows):
        table = pd.DataFrame(rows, columns=columns.split())
        table.to_csv(tmp_path / f"{name}.csv", index=False)

    held = "paper label clients rows_least rows_median rows_most test_median classes"
    row = ("equfl", "census", 51, 28, 139.0, 537, 132.6, "2 of 2", 75.4, "Sex")
    put("gates", f"{held} largest dataset", row, (*row[:-1], "Race"))
    (shown,) = results.clients(tmp_path).values.tolist()
    assert shown == ["EquFL", "census", 51, 28, 139, 537, 133, "2 of 2", 75]
    audited = [("fedga/main", "same", 0), ("fedga/main", "rounding", 0.5)]
    audited += [("fedga/sweep", "rounding", 0.7), ("fft-gp/steps", "DIFFERS", 12.3456)]
    put("audit-gpu", "study verdict points", *audited)
    shown = tables.audits(tmp_path).set_index("paper")
    assert shown.loc["FedGA"].tolist() == [3, 1, 2, 0, "0.6", "0.7"]
    assert shown.loc["FFT-GP"].tolist() == [1, 0, 0, 1, "12.3", "12.3"]


def test_runs_are_counted_once_and_bytes_in_a_round(tmp_path, monkeypatch):
    from fedlib.methods import METHODS

    ran = seeds([("A", "", s, 1.0) for s in (1, 1, 2)]).assign(minutes=[2.0, 2.0, 3.0])
    ran["run_ids"] = ["a", "a", "b"]
    theory = ran.assign(run_ids="", study="theory")
    monkeypatch.setattr(results.ledger, "parts", lambda *_: pd.concat([ran, theory]))
    shown = results.durations(tmp_path).set_index("key").value
    assert shown.to_dict() == {"fedas-main-runs": 2, "fedas-main-minutes": 5}
    only = {n: METHODS[n] for n in ("FedAvg", "FedProto", "FAA")}
    monkeypatch.setattr(traffic, "METHODS", only)
    counted = traffic.tables()[1].set_index(["method", "direction", "name"])
    model = 64 * 32 + 32 + 32 * 10 + 10  # float32
    assert counted.bytes["FedAvg", "down", "w"] == 4 * model
    assert counted.bytes["FedAvg", "up", "w"] == 4 * model
    asks = counted.loc["FAA"].loc["down"].bytes  # a trial of the server goes down, too
    assert (asks == 4 * model).sum() == 2
    protos = counted.loc["FedProto"].loc["up"].bytes
    assert 4 * 10 * 32 in protos.tolist() and protos.sum() < 4 * model


def test_a_visit_takes_the_gradients_that_the_formulas_say():
    of = lambda name, **how: cost.gradients(name, {"batches": 5, "last": "drop"} | how)
    plain, two, own = of("FedAvg"), of("FFT-GP", lam=0.1), of("FedRep", head_epochs=1)
    assert (plain, two, of("Ditto"), own, of("Reweight")) == (5, 10, 10, 8 + 5, 5)
    (cell, *_) = rivals.cells("fedga", "synthetic").values()
    assert rivals.values(cell, ["lr", "momentum"]) == "lr=0.01;momentum=0.0"


IMAGES = dict(data={"name": "cifar10"}, parts=[0.75, 0.0, 0.25], batch=16)
IMAGES["partition"] = {"name": "dirichlet", "clients": 20}
LOCAL, ROUNDS = {"lr": 0.1, "epochs": 5, "last": "drop"}, {"rounds": 40, "every": 1}


def regime(task=IMAGES, train=LOCAL, run=ROUNDS, rows=60000, clients=None):
    given = map(json.dumps, (task, train, run))
    return regimes.regime(*given, clients, json.dumps(rows))


def test_a_regime_by_hand():
    """60,000 rows: 3,000 a client, 2,250 of them to train, 140 batches of 16 and 10."""
    row = dict(rounds=40, clients=20, cohort=4, participations=8, epochs=5)
    row |= dict(steps_per_pass=140, steps_per_participation=700, steps_in_all=5600)
    assert regime(run=ROUNDS | {"online": 0.2}) == row
    kept = regime(train=LOCAL | {"last": "keep"})
    assert kept["steps_per_pass"] == 141 and kept["participations"] == 40
    few = regime(train=LOCAL | {"batches": 7}, run=ROUNDS | {"cohort": 5})
    assert (few["epochs"], few["steps_in_all"], few["cohort"]) == (7 / 140, 70, 5)
    # the client in the middle, of shares of 0.75 of 4, 40 and 400 rows
    assert regime(rows=[4, 40, 400])["steps_per_pass"] == 1
    assert regime(train={"last": "keep"}, rows=[4, 40, 400])["steps_per_pass"] == 2
    late = regime(run=ROUNDS | {"stragglers": {"portion": 0.5, "every": 5}})
    assert late["cohort"] == (4 * 10 + 20) / 5 and late["participations"] == 24
    task = {"data": {"name": "domainbed"}, "guest": "sketch", "parts": [0.6, 0, 0.4]}
    unknown = regime(task, rows=None, clients=4)
    assert unknown["clients"] == 3 and "steps_per_pass" not in unknown
    for rounds, every, averaged in ((24, 6, 1), (100, 7, 3), (200, 1, 10)):
        run = json.dumps({"rounds": rounds, "every": every})
        assert regimes.evaluations(run) == averaged


def test_the_regimes_of_a_paper_stand_beside_ours(monkeypatch):
    monkeypatch.setattr(regimes, "once", lambda name, tier, f, *given: f(*given))
    rows = [*regimes.regimes("fedas", "tiny")]
    where = dict(study="grid", dataset="CIFAR-10", setting="beta=0.1;P=0.2")
    (row,) = [r for r in rows if where.items() <= r.items()]
    theirs = {k: v for k, v in row.items() if k.startswith("paper_")}
    assert [*theirs.values()] == [40, 20, 4, 8, 5, 140, 700, 5600]
    assert row["rounds"] < 40 and row["last_evaluations"] >= 1
    glyphs = [r for r in rows if r["dataset"] == "digits"]  # data of ours
    assert glyphs and not any(r["paper_rounds"] for r in glyphs)
    assert not [r for r in rows if r["study"] == "gate"]


TOY = json.dumps({"data": {"name": "digits"}, "network": {"name": "Linear"}})


def cell(method, seed=0, setting="", task=TOY, kwargs="{}", engine="{}"):
    who = "toy", "a toy", method, setting, seed, "real"
    return studies.Cell(*who, task, kwargs, engine)


def gates(monkeypatch, said, **accuracies):
    """The row of invented runs; {method: the accuracies of its clients}. Class 0 is
    right for 2/3 and 1/4 of the test rows; one's own best class for 2/3 and 1/2.
    """
    labels = SimpleNamespace(y=torch.tensor([0, 0, 1, 0, 1, 1, 2]), K=3)
    labels.train = torch.tensor([0, 2, 4, 6]), torch.arange(3, 6)
    labels.test = torch.arange(3), torch.arange(3, 7)
    cells, records = [], []
    for method, acc in accuracies.items():
        for seed in (1000, 1001):
            views = {("pre", "global", "test"): np.array([[0.0, 0.0], acc])}
            meta = {"n": {"test": [3, 4]}, "device": "cpu", "seconds": 1, "commit": ""}
            cells.append(cell(method, seed))
            records.append(Record(meta | {"owners": []}, np.array([0, 9]), views))
    done = Study("toys", "gate", "small", {}, cells, records)
    monkeypatch.setattr(regimes, "study", lambda *_: done)
    monkeypatch.setattr(regimes, "once", lambda name, tier, f, *given: f(*given))
    monkeypatch.setattr(regimes.compute, "task_of", lambda *_: labels)
    about = {"rule": "last", "gate": said}
    monkeypatch.setattr(regimes.papers, "about", lambda _: about)
    (row,) = regimes.gates("toys")
    return row


def test_a_gate_is_how_far_the_federation_comes_from_chance_to_all_rows(monkeypatch):
    runs = {"FedAvg": [0.7, 0.7], "FedPer": [0.7, 0.8], "Local": [0.9, 1.0]}
    runs["Centralised"] = [0.8, 0.9]
    row, chance = gates(monkeypatch, {}, **runs), 100 * (2 / 3 + 1 / 4) / 2
    held = {"clients": 2, "rows_least": 3, "rows_median": 3.5, "rows_most": 4}
    held |= {"test_median": 3.5, "classes": "2.5 of 3", "n_seeds": 2, "local": 95}
    assert row.items() >= held.items()
    assert row["chance"] == pytest.approx(chance) and row["passes"] == "yes"
    assert row["gate"] == pytest.approx((70 - chance) / (85 - chance))
    assert row["largest"] == pytest.approx(100 * (2 / 3 + 1 / 2) / 2)
    row = gates(monkeypatch, {}, **runs | {"FedAvg": [0.6, 0.6]})
    assert row["gate"] < 0.5 and row["passes"] == "no"
    row = gates(monkeypatch, {"reference": "best", "chance": "own"}, **runs)
    assert (row["reference_method"], row["reference"]) == ("FedPer", 75)
    assert row["chance"] == pytest.approx(100 * (2 / 3 + 1 / 2) / 2)
    row = gates(monkeypatch, {}, **runs | {"Centralised": [0.4, 0.4]})
    assert row["gate"] is None and row["passes"] == "no"


def test_an_artefact_is_done_when_all_its_evidence_is_there(tmp_path, monkeypatch):
    one = artefacts.Artefact("fedga", "Figure 9", "t", "notebooks/a.html", figure=True)
    two = artefacts.Artefact("fedga", "Table 5", "t", cells=("gap",))
    three = artefacts.Artefact("fedga", "Box 1", "t", "box.html", text=True)
    monkeypatch.setattr(artefacts, "listed", lambda: (one, two, three))
    keys = dict(paper="fedga", artefact="Table 5")
    printed = pd.DataFrame([keys | {"key": k} for k in "ab"])
    ran = [("a", "acc", "paper"), ("b", "acc", "paper"), ("c", "gap", "paper")]
    root = tmp_path / "results"

    def state(rows):
        ours = pd.DataFrame(rows, columns=["key", "metric", "tier"])
        table = artefacts.table(printed, ours.assign(**keys, data="synthetic"), root)
        return [(r.status, r.reason, r.tier, r.page) for r in table.itertuples()]

    def draw(**about):
        (root / "figures/x/fedga-figure-9.json").write_text(json.dumps(about))

    assert [s[0] for s in state([])] == ["not run"] * 3
    (root / "figures/x").mkdir(parents=True)
    (tmp_path / "book").mkdir()
    (tmp_path / "book/box.md").write_text("(fedga-box-1)=\n")
    (root / "figures/x/fedga-figure-9.svg").write_text("<svg/>")
    draw(tier="paper", data="digits, real")
    assert state(ran) == [
        ("done", "", "paper", "notebooks/a.html#fedga-figure-9"),
        ("done", "", "paper", "ledger.html"),
        ("done", "", "exact", "box.html#fedga-box-1"),
    ]
    draw(tier="tiny", data="stand-in")
    (status, why, low, _), other, _ = state([("a", "acc", "small"), ran[1]])
    assert (status, low, other[0], other[2]) == ("reduced", "tiny", "reduced", "small")
    assert "stand-in" in why and "tiny" in why
    assert "gap" in other[1] and "small" in other[1] and "1 of 2" not in other[1]
    assert "1 of 2" in state(ran[:1])[1][1]
