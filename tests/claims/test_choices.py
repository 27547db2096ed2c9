"""What is chosen: values by validation rows on pilot seeds; seeds, look by look."""

import functools
import json
from collections import Counter, defaultdict
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import yaml
from where import ROOT

from fedlib.core import files, record
from fedlib.measures import bias
from fedlib.study import audit, guide, store, studies
from repro import decide, papers


def scores_by_hand(r, look, wins):
    """(level of the first, ...) of a stored pilot's validation rows."""
    a = r.views[*look, "val"]
    rounds = r.rounds[: len(a)]
    last = rounds > rounds[-1] - min(10, r.rounds[-1] / 4)
    if "fair" in wins:
        n = r.cells[*look, "val"][last].sum(1)  # [E, A, 2, 2]
        right = n[..., 0, 0].sum(-1) + n[..., 1, 1].sum(-1)
        return np.mean(bias.EO(n)), np.mean(right / n.sum((1, 2, 3)))
    a = np.sort(a[last] if "diverged" not in r.meta else np.zeros_like(a), 1)
    return a.mean(), a[:, : max(1, a.shape[1] // 10)].mean()


def order(of, fedavg, setting, pilots, i):
    """What is highest for the winner of a search: of {setting: (EO, accuracy) or (mean,
    worst tenth) of each pilot}; fedavg: FedAvg's, where the lowest EO wins."""
    x = np.mean(of[setting][:pilots], 0).round(6 if fedavg else 20)
    if not fedavg:
        return x[i]
    mean = [np.mean(v[:pilots], 0)[1] for v in fedavg.values() if len(v) >= pilots]
    enough = x[1] >= max(mean) - 0.01
    return enough, -x[0] if enough else x[1]


SEARCHES = {"fedga": "grid", "fedas": "search", "plgu": "search", "equfl": "search"}


@pytest.mark.parametrize("paper, search", SEARCHES.items())
def test_winners_are_those_of_the_stored_pilots(paper, search):
    """By hand: of each method and task the means over the last ten rounds."""
    told = studies.read(ROOT / f"papers/{paper}/winners.yaml")[search]
    wins = papers.about(paper)["wins"]
    level, point = defaultdict(lambda: defaultdict(list)), {}
    for name in (search, "finals"):
        stored = store.read(ROOT / f"evidence/{paper}-{name}")
        made, spec, _ = studies.cells(paper, name, ROOT / "params.yaml", "small")
        for c in made:
            look = spec["look"].get(c.method, ("pre", "global"))
            found = scores_by_hand(stored[c.id], look, wins)
            level[c.method, c.dataset][c.setting].append(found)
            names = [w.split("=")[0] for w in c.setting.split(";")]
            point[c.setting] = {k: json.loads(c.kwargs)[k] for k in names}
    for (method, dataset), of in level.items():
        fedavg = level["FedAvg", dataset] if "fair" in wins else {}
        better = functools.partial(order, of, fedavg)
        first = sorted(of, key=lambda s: better(s, 1, 0), reverse=True)[:4]
        assert all(len(of[s]) == 3 for s in first)
        won = [max(first, key=lambda s: better(s, 3, i)) for i in range(len(wins))]
        want = dict(zip(wins, (point[s] for s in won)))
        want["finalists"] = [point[s] for s in first]
        assert told[method][dataset] == want, (method, dataset)


GRIDS = ["rates_out", "own_out"], ["rates_own", "own_own"]
KINDS = "guest=", "decay=", "fedcli"  # what is not searched


@pytest.mark.parametrize("grids", [*GRIDS, ["adapted_rates"], ["adapted_rates_out"]])
def test_the_best_of_two_grids_wins_on_each_task_and_domain_left_out(grids):
    """By hand: after the last round; the second grid runs at the best of the first."""
    told = studies.read(ROOT / "papers/fft-gp/winners.yaml")[grids[0]]
    level = defaultdict(lambda: defaultdict(list))
    for name in grids:
        stored = store.read(ROOT / f"evidence/fft-gp-{name}")
        made, spec, _ = studies.cells("fft-gp", name, ROOT / "params.yaml", "small")
        for c in made:
            look = spec.get("look", {}).get(c.method, ("pre", "global"))
            r, kwargs = stored[c.id], json.loads(c.kwargs)
            kind = (w for w in c.setting.split(";") if w[:6] in KINDS)
            at = c.method, ";".join([c.dataset, *kind])
            won = told[c.method][at[1]]
            x = 0 if "diverged" in r.meta else r.views[*look, "val"][-1].mean()
            for by in won if name == grids[0] else ["mean"]:
                taken = {k: kwargs[k] for k in won[by]} == won[by]
                level[*at, by][name, c.setting, taken].append(float(x))
    asked = ((m, p, by) for m, of in told.items() for p in of for by in of[p])
    assert {*asked} == {*level}
    for at, of in level.items():
        assert len({len(x) for x in of.values()}) == 1
        mean = {k: np.mean(x) for k, x in of.items()}
        (won,) = [v for (*_, taken), v in mean.items() if taken]
        assert won > max(mean.values()) - 1e-6, at


ROWS = {  # EO and accuracy of FedAvg, and of three values -> which wins
    ((0.2, 0.80), (0.1, 0.80), (0.05, 0.80), (0.07, 0.80)): 1,
    ((0.2, 0.80), (0.1, 0.80), (0.05, 0.7899), (0.07, 0.7901)): 2,  # a point is allowed
    ((0.2, 0.80), (0.1, 0.70), (0.05, 0.71), (0.3, 0.75)): 2,  # the most accurate
    ((0.2, 0.80), (0.1, 0.80), (0.05, 0.80), (0.05, 0.82)): 1,  # of equals the first
}


def test_the_fairest_rival_of_equfl_that_costs_at_most_a_point():
    made, rows, due = [], [], {}
    for task, (each, alpha) in enumerate(ROWS.items()):
        due[str(task)] = {"alpha": alpha}
        for k, x in zip((None, 0.1, 1, 2), each):
            of = {"dataset": str(task), "method": "FedFB", "setting": f"alpha={k}"}
            of |= {} if k else {"method": "FedAvg", "setting": ""}
            made.append(SimpleNamespace(**of, kwargs=json.dumps({"alpha": k, "lr": 1})))
            values = zip(("EO", "accuracy"), x)
            rows += [of | {"metric": m, "value": v} for m, v in values]
    pilots, rows = enumerate((-0.02, 0.02), 1000), pd.DataFrame(rows)
    rows = pd.concat(rows.assign(seed=s, value=rows.value + x) for s, x in pilots)
    biases = {("last10_mean",): rows}.__getitem__
    of = lambda *at: [(c, 0) for c in made if (c.dataset, c.method, c.setting) == at]
    grid = SimpleNamespace(of=of, biases=biases)
    assert papers.module("equfl", "winners").chosen("FedFB", grid) == due  # no lr


def test_nothing_that_decides_is_a_pilot_seed():
    pilots = "fedga/grid fedga/finals plgu/search fedas/search equfl/finals equfl/grid fft-gp/rates_out fft-gp/own_own search/pilot search/final".split()
    decide = "fedga/tuned plgu/searched fedas/searched equfl/census search/decided"
    for name in pilots + decide.split():
        made = studies.cells(*name.split("/"), ROOT / "params.yaml", "small")[0]
        assert {c.seed >= 1000 for c in made} == {name in pilots}, name


def test_a_run_is_a_row_with_and_without_each_number_of_passes():
    shown = {"global": 0, "tuned 1": 1, "tuned 5": 5, "tuned": 10}
    views = {("pre", v, s): k for v, k in shown.items() for s in ("test", "val")}
    c, r = studies.cells("search", "pilot")[0][0], record.Record({}, [0], views)
    (plain, _), *rest = papers.module("search", "winners").rows(c, r)
    assert (plain.method, plain.setting) == ("FedAvg", "lr=0.0115")
    each = {row.setting: {*x.views.values()} for row, x in rest}
    assert each == {f"lr=0.0115;tune={k}": {k} for k in shown.values()}


def test_the_guide_is_that_of_the_table_and_knows_its_own_tasks():
    table, known = papers.module("search", "table"), pd.read_csv(guide.TASKS)
    found = pd.read_csv(ROOT / "results/search.csv")
    pd.testing.assert_frame_equal(known, table.tasks_of(found), check_dtype=False)
    mean = found[found.winner_by == "mean"].pivot(index="task", columns="method")[
        "mean"
    ]
    for task, level in mean.iterrows():
        told = guide.advice(level.to_dict())
        assert f"\n{task} (0.0 points" in told and f"Of {len(known)} tasks" in told
    assert guide.advice({"Local": 1.0, "FedAvg": 2.0}) == ""


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
SEEDS = Path("papers/toy/seeds.yaml")


@pytest.fixture
def repo(tmp_path, monkeypatch):
    """A checkout with one paper and no runs; its sources are a commit."""
    monkeypatch.chdir(tmp_path)
    for module in (files, record):
        monkeypatch.setattr(module, "commit", lambda: "0123456789")
    for name in ("papers/toy", "results", "evidence"):
        (tmp_path / name).mkdir(parents=True)
    Path("params.yaml").write_text("tier: small\n")
    Path("papers/toy/studies.yaml").write_text(STUDIES)
    Path("papers/toy/paper.yaml").write_text("order: 1\n")


def claims(*rows, holds="undecided"):
    text = ["key,paper,holds,needs,runs", *(f"k,toy,{holds},{r}" for r in rows), ""]
    Path("results/claims.csv").write_text("\n".join(text))


def plan(*rows, only=None, seeds="{}", **holds):
    claims(*rows, **holds)
    SEEDS.write_text(seeds)
    of = ("study", "dataset", "seeds", "to", "claims", "open")
    return [tuple(getattr(x, k) for k in of) for x in decide.plan(only)]


def test_the_next_look_at_what_is_open(repo, monkeypatch):
    stored = defaultdict(list)
    monkeypatch.setattr(store, "listed", lambda path, *_: stored[Path(path).name])
    near = ("main", "near", 2, 5)
    assert plan("5,main:near") == [(*near, 1, 1)]
    assert plan("5,main:near", "20,main:near") == [(*near, 1, 2)]
    assert [x[4] for x in plan("5,main:near main_best:far")] == [0.5, 0.5]  # one claim
    never = "53,main:near|inf,main:near|,main:near|5,tuning:near|5,x:near|5,"
    assert plan(*never.split("|")) == plan("5,main:near", only="other") == []
    assert plan("5,main:near", holds="alike") == plan("5,main:near", holds="yes") == []
    one = plan("20,main:near", seeds="main: {near: 10}")
    one += plan("40,main:near main:far", seeds="main: {near: 40}")
    assert one == [("main", "near", 10, 20, 1, 1), ("main", "far", 2, 5, 0, 1)]
    # stored runs say what a run costs: by method and data set, by study, or else 2 s
    assert len(plan("5,main:near", "10,wide:near", "5,main:far", "5,main:far")) == 3
    looks = decide.plan()
    at = [(x.study, x.dataset, x.runs) for x in looks]
    assert at == [("main", "far", 10), ("main", "near", 10), ("wide", "near", 40)]
    assert looks[0].minutes == pytest.approx(20 / 60)
    main = lambda: {x.dataset: x for x in decide.plan() if x.study == "main"}
    of = lambda *run: dict(zip(("method", "dataset", "seconds", "id"), run), setting="")
    each = ("FedAvg", "near", 6), ("FedAvg", "near", 12), ("FedProx", "far", 3)
    stored["toy-main"] = [of(*run, "x") for run in each]
    due = {"near": 5 * (9 + 7) / 60, "far": 5 * (7 + 3) / 60}
    assert {d: x.minutes for d, x in main().items()} == pytest.approx(due)
    cells = [c for c in studies.cells("toy", "main")[0] if c.dataset == "near"]
    stored["toy-main"] = [of("FedAvg", "near", 6, c.id) for c in cells]
    assert main()["near"].runs == 10 - len(cells) == 6


def test_looks_are_taken_until_nothing_is_open(repo, monkeypatch):
    """All methods get the seeds; then the study is packed, drawn, and tested anew."""
    called, until = [], 10

    def redraw():
        called.append(1)
        enough = seeds()["near"] >= until
        claims("10,main:near", holds="yes" if enough else "undecided")

    def seeds():
        made = {(c.dataset, c.seed) for c in studies.cells("toy", "main")[0]}
        return Counter(d for d, _ in made)

    monkeypatch.setattr(decide, "redraw", redraw)
    claims("10,main:near")
    files = lambda: {f for f in Path(".").rglob("*.*") if f.suffix != ".lock"}
    before = files()
    decide.decide(dry_run=True)
    assert files() == before
    decide.decide(hours=1e-9, workers=1)
    assert seeds()["near"] == 2 and not called  # no look without all of its seeds
    audit.compute(["toy/main"], workers=1)
    audit.pack(["toy/main"])
    decide.decide(workers=1)
    assert yaml.safe_load(SEEDS.read_text())["main"] == {"near": 10}
    assert seeds() == {"near": 10, "far": 2}
    assert not any("toy-main" in said for said in audit.check())
    assert len(called) == 2
