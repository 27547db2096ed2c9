"""What is chosen: values of a grid by validation rows on pilot seeds, and the seeds that
open claims ask for, look by look.
"""

import json
from collections import Counter, defaultdict
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
import yaml
from where import ROOT

from fedlib.core import record
from fedlib.study import audit, evidence, studies
from repro import decide, papers
from repro.winners import by_task, winners

EQUFL = papers.module("equfl", "winners")


# ---------------------------------------------------------------- winners of a grid
def search(entry, *found):
    """A Study that searches q-FedAvg's values: (data set, setting, hyper-parameters,
    validation accuracy of each pilot)."""
    cells, rows = [], []
    for dataset, setting, kw, levels in found:
        what = {"method": "q-FedAvg", "dataset": dataset, "setting": setting}
        cells.append(SimpleNamespace(**what, kwargs=json.dumps({"epochs": 2} | kw)))
        rows += [what | {"seed": 1000 + s, "value": x} for s, x in enumerate(levels)]
    table = pd.DataFrame(rows)
    by_rule = {"last10_mean": table, "last": table.assign(value=-table.value)}
    spec = {"methods": {"q-FedAvg": entry}}
    return SimpleNamespace(cells=cells, spec=spec, validation=by_rule.__getitem__)


def values(lr, q):
    return {"lr": lr, "q": q}


def test_the_mean_over_pilots_wins_on_each_task_and_point():
    lr = {"lr": [0.2, 0.4], "q": 0.1}
    first = search(lr,
        ("turned", "guest=0;lr=0.2", values(0.2, 0.1), [80, 80]),
        ("turned", "guest=0;lr=0.4", values(0.4, 0.1), [60, 95]),  # the best pilot
        ("turned", "guest=45;lr=0.2", values(0.2, 0.1), [60, 70]),
        ("turned", "guest=45;lr=0.4", values(0.4, 0.1), [75, 71]),
        ("photos", "guest=0;lr=0.2", values(0.2, 0.1), [55]),
        ("photos", "guest=0;lr=0.4", values(0.4, 0.1), [55]),  # of equals the first
    )  # fmt: skip
    second = search({"q": [0.01, 1]},
        ("turned", "guest=45;q=0.01", values(0.4, 0.01), [75, 72]),
        ("turned", "guest=0;q=1", values(0.2, 1), [10, 81]),
    )  # fmt: skip
    at = {"guest=0": values(0.2, 0.1), "guest=45": values(0.4, 0.1)}
    photos = {"guest=0": values(0.2, 0.1)}
    assert winners(first) == {"q-FedAvg": {"turned": at, "photos": photos}}
    at["guest=45"] = values(0.4, 0.01)
    won = winners(first, second)
    assert won == {"q-FedAvg": {"turned": at, "photos": photos}}
    lr = {"turned": {"guest=0": 0.2, "guest=45": 0.4}, "photos": 0.2}
    q = {"turned": {"guest=0": 0.1, "guest=45": 0.01}, "photos": 0.1}
    assert by_task(won) == {"q-FedAvg": {"lr": lr, "q": q}}
    last = winners(first, rule="last")["q-FedAvg"]["turned"]
    assert last["guest=0"]["lr"] == 0.4 and last["guest=45"]["lr"] == 0.2


ROWS = {  # EO and accuracy of FedAvg, and of three values -> which wins
    ((0.2, 0.80), (0.1, 0.80), (0.05, 0.80), (0.07, 0.80)): 1,
    ((0.2, 0.80), (0.1, 0.80), (0.05, 0.7899), (0.07, 0.7901)): 2,  # a point is allowed
    ((0.2, 0.80), (0.1, 0.80), (0.0, 0.70), (0.3, 0.80)): 0.1,
    ((0.2, 0.80), (0.1, 0.70), (0.05, 0.71), (0.3, 0.75)): 2,  # the most accurate
    ((0.2, 0.80), (0.1, 0.80), (0.05, 0.80), (0.05, 0.82)): 1,  # of equals the first
}


def test_the_fairest_rival_of_equfl_that_costs_at_most_a_point():
    made, rows, due = [], [], {}
    for task, (each, alpha) in enumerate(ROWS.items()):
        due[str(task)] = {"alpha": alpha}
        for k, (eo, accuracy) in zip((None, 0.1, 1, 2), each):
            of = {"dataset": str(task), "method": "FedFB", "setting": f"alpha={k}"}
            of |= {} if k else {"method": "FedAvg", "setting": ""}
            made.append(SimpleNamespace(**of, kwargs=json.dumps({"alpha": k, "lr": 1})))
            for s, off in enumerate((-0.02, 0.02)):
                for metric, x in (("EO", eo + off), ("accuracy", accuracy + off)):
                    rows.append(of | {"seed": 1000 + s, "metric": metric, "value": x})
    table = pd.DataFrame(rows)
    spec = {"methods": {"FedAvg": {}, "FedFB": {"alpha": [0.1, 1, 2], "version": 1}}}
    biases = {("last10_mean",): table}.__getitem__
    grid = SimpleNamespace(name="grid", cells=made, spec=spec, biases=biases)
    assert EQUFL.chosen("FedFB", grid) == due  # and no version


def test_nothing_that_decides_is_a_pilot_seed():
    tree = studies.load(ROOT / "params.yaml")
    pilots = {"fedga": ["grid", "gate"], "equfl": ["grid", "gate"]}
    pilots["fft-gp"] = ["rates_out", "own_out", "rates_own", "own_own", "gate"]
    decide_ = {"fedga": ["tuned", "synthetic"], "equfl": ["census", "adult"]}
    for chooses, names in ((True, pilots), (False, decide_)):
        for paper, some in names.items():
            for name in some:
                assert name in tree[paper]["studies"]
                made = studies.cells(paper, name, ROOT / "params.yaml", "small")[0]
                assert {c.seed >= 1000 for c in made} == {chooses}, (paper, name)


# ---------------------------------------------------------------- more seeds
BOTH, FOUR = {"FedAvg": {}, "FedProx": {"mu": 0.1}}, {"FedProx": {"mu": [1, 2, 3, 4]}}
STUDIES = f"""
tasks:
  near:
    data: {{name: synthetic, alpha: 0.5, beta: 0.5, sizes: [60, 80, 70]}}
    network: {{name: Linear}}
    train: {{lr: 0.05}}
    run: {{rounds: 2}}
  far: {{like: near, data: {{alpha: 1}}}}
studies:
  book:
    main: {{tasks: [near, far], seeds: 2, methods: {json.dumps(BOTH)}}}
    tuning: {{tasks: [near], seeds: {{pilot: 1}}, methods: {json.dumps(BOTH)}}}
    wide: {{tasks: [near], seeds: 5, methods: {json.dumps(FOUR)}}}
"""


@pytest.fixture
def repo(tmp_path, monkeypatch):
    """A checkout with one paper and no runs; its sources are a commit."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(record, "commit", lambda: "0123456789")
    for name in ("papers/toy", "results", "evidence"):
        (tmp_path / name).mkdir(parents=True)
    Path("params.yaml").write_text("tier: small\n")
    Path("papers/toy/studies.yaml").write_text(STUDIES)
    Path("papers/toy/paper.yaml").write_text("order: 1\n")


def claims(*rows):
    text = ["key,paper,holds,needs,runs", *(f"k,toy,{r}" for r in rows), ""]
    Path("results/claims.csv").write_text("\n".join(text))


def plan(*rows, only=None):
    claims(*rows)
    return [
        (x.study, x.dataset, x.seeds, x.to, x.claims, x.open) for x in decide.plan(only)
    ]


def test_the_next_look_at_what_is_open(repo, monkeypatch):
    listed = defaultdict(list)
    monkeypatch.setattr(evidence, "listed", lambda path, *_: listed[Path(path).name])
    near = ("main", "near", 2, 5)
    assert plan("undecided,5,main:near") == [(*near, 1, 1)]
    assert plan("undecided,5,main:near", "undecided,20,main:near") == [(*near, 1, 2)]
    both = plan("undecided,5,main:near main:far")
    assert sorted(x[4] for x in both) == [0.5, 0.5]  # one claim, counted once
    never = "53,main:near|inf,main:near|,main:near|5,tuning:near|5,x:near|5,"
    for row in never.split("|"):
        assert plan(f"undecided,{row}") == [], row
    assert plan("alike,5,main:near", "yes,5,main:near") == []
    assert plan("undecided,5,main:near", only="other") == []
    Path("papers/toy/seeds.yaml").write_text("main: {near: 40}\n")
    assert plan("undecided,40,main:near main:far") == [("main", "far", 2, 5, 0, 1)]
    Path("papers/toy/seeds.yaml").write_text("main: {near: 10}\n")
    assert plan("undecided,20,main:near") == [("main", "near", 10, 20, 1, 1)]
    Path("papers/toy/seeds.yaml").unlink()
    # stored runs say what a run costs: by method and data set, by study, or else 2 s
    columns = ("method", "dataset", "seconds", "id", "setting")
    of = lambda m, d, s, at="x": dict(zip(columns, (m, d, s, at, "")))
    rows = ("5,main:near", "10,wide:near", "5,main:far", "5,main:far")
    claims(*(f"undecided,{row}" for row in rows))
    looks = decide.plan()
    at = [(x.study, x.dataset, x.runs) for x in looks]
    assert at == [("main", "far", 10), ("main", "near", 10), ("wide", "near", 40)]
    assert looks[0].minutes == pytest.approx(20 / 60)
    main = lambda: {x.dataset: x for x in decide.plan() if x.study == "main"}
    each = ("FedAvg", "near", 6), ("FedAvg", "near", 12), ("FedProx", "far", 3)
    listed["toy-main"] = [of(*x) for x in each]
    assert main()["near"].minutes == pytest.approx(5 * (9 + 7) / 60)
    assert main()["far"].minutes == pytest.approx(5 * (7 + 3) / 60)
    stored = [c for c in studies.cells("toy", "main")[0] if c.dataset == "near"]
    listed["toy-main"] = [of("FedAvg", "near", 6, c.id) for c in stored]
    assert main()["near"].runs == 10 - len(stored) == 6


def test_looks_are_taken_until_nothing_is_open(repo, monkeypatch, capsys):
    """All methods get the seeds; then the study is packed, drawn, and tested anew."""
    called, until = [], 10

    def call(words):
        called.append(words)
        if words == ["repro.claims"]:
            n = seeds()["near"]
            claims("yes,,main:near" if n >= until else "undecided,10,main:near")

    def seeds():
        made = {(c.dataset, c.seed) for c in studies.cells("toy", "main")[0]}
        return Counter(d for d, _ in made)

    monkeypatch.setattr(decide, "call", call)
    claims("undecided,10,main:near")
    files = lambda: {f for f in Path(".").rglob("*.*") if f.suffix != ".lock"}
    before = files()
    decide.decide(dry=True)
    assert files() == before and "main" in capsys.readouterr().out
    decide.decide(hours=1e-9, workers=1)
    assert seeds()["near"] == 2 and not called  # no look without all of its seeds
    audit.compute(["toy/main"], workers=1)
    audit.pack(["toy/main"])
    decide.decide(workers=1)
    assert seeds() == {"near": 10, "far": 2}
    assert not any("toy-main" in said for said in audit.check())
    drawn = ["repro.run_notebook", "notebooks/toy/book.ipynb", "results/notebooks/toy"]
    assert called == [drawn, ["repro.claims"]] * 2
    rows = evidence.listed(Path("evidence/toy-main"))
    near = {(r["method"], r["seed"]) for r in rows if r["dataset"] == "near"}
    assert (
        near == {(m, s) for m in BOTH for s in range(10)} and not decide.BEGUN.exists()
    )


def test_a_look_that_was_begun_is_finished(repo, monkeypatch):
    """Its runs are there, but its notebook fails: the next command goes on."""
    called = []

    def fails(words):
        raise ValueError(words[0])

    monkeypatch.setattr(audit, "pack", lambda names: called.append(names))
    monkeypatch.setattr(decide, "call", fails)
    with pytest.raises(ValueError, match="run_notebook"):
        decide.settle("toy", "main", {"near": 5})
    assert json.loads(decide.BEGUN.read_text())["more"] == {"near": 5}
    monkeypatch.setattr(decide, "call", called.append)
    for _ in range(2):  # the second time nothing is left
        decide.finish()
        assert called[:2] == [["toy/main"]] * 2 and len(called) == 4
    assert not decide.BEGUN.exists()
    said = yaml.safe_load(Path("papers/toy/seeds.yaml").read_text())
    assert said == {"main": {"near": 5}}
