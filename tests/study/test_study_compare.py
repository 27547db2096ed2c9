"""Methods side by side: the table, differences of one seed and client, who is chosen."""

from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from toys_core import GROUPS, toy
from toys_study import GUEST, PRE, record, same

import fedlib
from fedlib.core.method import hp
from fedlib.core.tree import tmap
from fedlib.measures import bias, metrics
from fedlib.measures.metrics import gini
from fedlib.measures.selection import best_val, last
from fedlib.methods import search
from fedlib.methods.base.fedavg import FedAvg
from fedlib.methods.make import make
from fedlib.nets import MLP
from fedlib.study import compare, guide
from fedlib.study.compare import Comparison, view_of

OWN = [("pre", "personal", s) for s in ("test", "val")]
KEYS = {"FedAvg": PRE + GUEST, "Ditto": [*PRE, *OWN, *GUEST], "B": PRE + GUEST}
TIDY = ["method", "seed", "client", "rows", "model", "round", "accuracy"]
SEEDS = {"FedAvg": [0, 1, 2], "Ditto": [2, 0, 5], "B": [1]}


@pytest.fixture(scope="module")
def three():
    more = {"C": 24, "guests": [9, 5], "groups": True}
    made = {n: [record(s, n, k, **more) for s in SEEDS[n]] for n, k in KEYS.items()}
    return Comparison(made, best_val)


def counted(c, name):
    """[(seed, accuracies [C] that count, record, key, evaluation)], by best_val."""
    view = "personal" if name == "Ditto" else "global"
    for r in c.records[name]:
        e = int(np.argmax([v.mean() for v in r.views["pre", view, "val"]]))
        key = "pre", view, "test"
        yield r.meta["seed"], r.views[key][e].astype(float), r, key, e


def test_the_table_by_hand(three):
    got = three.table
    assert {*got.index} == {*KEYS} and "tuned" not in got
    assert got["worst 10 %"].is_monotonic_decreasing
    want = {"FedAvg": ("global", 3), "Ditto": ("personal", 3), "B": ("global", 1)}
    assert dict(zip(got.index, zip(got.model, got.seeds))) == want
    for name in KEYS:
        rows = []
        for _, a, r, key, e in counted(three, name):
            n, guests = r.cells[key][e].sum(0), r.views["guest", "global", "test"][e]
            row = {"mean": 100 * a.mean(), "worst 10 %": 100 * metrics.worst(a)}
            row |= {"left out %": 100 * guests.mean(), "Gini": metrics.gini(a)}
            rows.append(row | {"EO": bias.EO(n), "DP": bias.DP(n)})
        for k, x in pd.DataFrame(rows).items():
            near = 6e-4 if k in ("Gini", "EO", "DP") else 0.06
            assert got.loc[name, k] == pytest.approx(x.mean(), abs=near), (name, k)
            t = stats.t.ppf(0.975, len(x) - 1) * x.sem()  # of one seed: NaN
            half = got.loc[name, f"± {k}"]
            assert half == pytest.approx(t, abs=near, nan_ok=True), (name, k)


def test_differences_are_of_one_seed_and_client_and_of_the_model_that_counts(three):
    own = {s: a for s, a, *_ in counted(three, "Ditto")}
    base = {s: a for s, a, *_ in counted(three, "FedAvg")}
    d = 100 * np.array([own[s] - base[s] for s in (2, 0)])
    pair = {n: three.records[n] for n in ("FedAvg", "Ditto")}
    back = replace(three, records=pair).paired("Ditto")
    assert np.allclose(back.difference, -d.mean(0), atol=1e-3)
    for points in (1.0, 8.0):
        frame = three.paired(points=points)
        mine = frame[frame.method == "Ditto"]
        assert list(frame.method.unique()) == ["Ditto", "B"]
        far = [d.mean(0) > points, d.mean(0) < -points]
        side = np.select(far, ["gain", "loss"], "same").tolist()
        assert list(mine.change) == side
        assert list(mine.client) == three.records["Ditto"][0].meta["owners"]
        assert np.allclose(mine.difference, d.mean(0), atol=1e-3)
        assert list(mine.rows) == three.records["Ditto"][0].meta["n"]["test"]
        assert np.allclose(mine.accuracy, 50 * (own[0] + own[2]))
        half = stats.t.ppf(0.975, 1) * stats.sem(d)
        assert np.allclose(mine["± difference"], half, atol=1e-2)
        assert frame[frame.method == "B"]["± difference"].isna().all()
    assert {*three.paired("B").method} == {"FedAvg"}  # Ditto has no seed of B's
    with pytest.raises(ValueError, match="did you mean 'Ditto'"):
        three.paired("Dito")
    made = {"FedAvg": [record(C=2)], "B": [record(C=2)]}  # a point is a point, though
    made["FedAvg"][0].views["pre", "global", "test"][-1] = [0.8, 0.8]
    made["B"][0].views["pre", "global", "test"][-1] = [0.81, 0.78]  # these are float32
    frame = Comparison(made, last).paired()
    assert list(frame.change) == ["same", "loss"] and list(frame.difference) == [1, -2]
    frame, rows = three.frame(), []  # every client once
    for name in KEYS:
        for seed, a, r, key, e in counted(three, name):
            for i, who in enumerate(r.meta["owners"]):
                told = [name, seed, who, r.meta["n"]["test"][i], key[1], r.rounds[e]]
                rows.append([*told, pytest.approx(100 * a[i], abs=1e-4)])
    assert list(frame) == TIDY and frame.to_numpy().tolist() == rows
    order = ["other", "global", "tuned", "personal"]  # the best comes last
    for n, want in enumerate(order, 1):
        assert view_of(record(keys=[("pre", v, "test") for v in order[:n]])) == want
    late = replace(three, rule=lambda r, v: [0, 2]).table.loc["Ditto"]
    views = [r.views["pre", "personal", "test"][[0, 2]] for r in three.records["Ditto"]]
    assert late["mean"] == pytest.approx(100 * np.mean(views), abs=0.06)
    assert late["Gini"] == pytest.approx(np.mean(list(map(gini, views))), abs=6e-4)


def test_every_method_is_searched_at_the_same_steps_and_shared_values():
    for K in (4, 16):
        part = np.floor(K * np.log(np.array(search.steps(K)) / 0.01) / np.log(100))
        assert sorted(part) == [*range(K)]  # one in each of K parts of 0.01 to 1
    drawn = {n: search.settings(make(n, None), 16) for n in ("FedProx", "FedProx-FT")}
    prox, tuned = map(pd.DataFrame, drawn.values())
    assert prox.equals(tuned[["lr", "mu"]]) and prox.mu.value_counts().eq(4).all()
    assert tuned.tune.value_counts().isin([5, 6]).all()
    own = pd.DataFrame(search.settings(make("pFedMe", None), 16, {"lam": [1, 2]}))
    assert own.inner_lr.equals(prox.lr.rename("inner_lr")) and [*own.lam].count(1) == 8
    (adam,) = search.settings(make("FedAdam+FT", None), 1)
    assert {*adam} == {"lr", "server_lr", "tau", "tune"}
    inner = search.at(make("EquFL+FT", None, inner="FedProx"), mu=7, lam=2, tune=1)
    assert (inner.inner.inner.mu, inner.inner.lam, inner.tune) == (7, 2, 1)
    told = compare.method_of(("FedGA", {"alpha": 3}))[::2]
    assert told == ("FedGA(alpha=3)", ("alpha",))
    level = pd.Series({"a": 1, "b": 3, "c": 3, "d": 2})
    assert search.best(level) == ["b"] and search.best(level, 3) == ["b", "c", "d"]

    r = record(1000, C=3)
    r.views["pre", "global", "val"][:] = [[0.9] * 3, [0.1] * 3, [np.nan, 0.2, 0.6]]
    r.views["pre", "global", "test"][:] = 1
    assert compare.validation(r, last) == pytest.approx(0.4)
    assert compare.validation(r, last, metrics.worst) == pytest.approx(0.2)
    assert compare.validation("failed", last) < 0

    asked = []  # an entry that fixes all has one setting, which runs once
    all_of = lambda of, *how: asked.append(len(of)) or {k: [r] for k, r in of.items()}
    runs = SimpleNamespace(all=lambda of, *how: all_of(dict.fromkeys(of, r)))
    fixed = {"FedAvg": (make("FedAvg", None, lr=0.1), ("lr",))}
    some, _ = compare.searched(runs, fixed, 16, [0], last)
    assert asked == [1, 1] and [*some] == ["FedAvg"]


@dataclass(frozen=True)
class Odd(FedAvg):
    """FedAvg that diverges or is mistaken in round 1."""

    fault: str = hp("none", "what goes wrong")

    def aggregate(self, server, up, r):
        out = super().aggregate(server, up, r)
        if r.t == 1 and self.fault == "mistaken":
            raise RuntimeError("a mistake")
        scale = torch.inf if r.t == 1 and self.fault == "diverges" else 1
        return out | {"w": tmap(lambda x: x * scale, out["w"])}


def test_seeds_and_methods_are_those_that_were_asked_for(tmp_path):
    task = toy(MLP(5, 4, 3))
    told = {"rounds": 3, "seeds": [0, 4], "cohort": 3, "folder": tmp_path}
    methods = ["FedAvg", ("Ditto", {"lam": 0.5}), Odd(fault="mistaken")]
    got = fedlib.compare(methods, task, **told)
    assert [*got.records, *got.failed] == ["FedAvg", "Ditto(lam=0.5)", "Odd"]
    assert "a mistake" in got.failed["Odd"] and "seed 0" in got.failed["Odd"]
    plain = make("FedAvg", task), make("Ditto", task, lam=0.5)
    for name, method in zip(got.records, plain):
        for r, seed in zip(got.records[name], (0, 4)):
            alone = fedlib.run(method, rounds=3, seed=seed, cohort=3, guests=True)
            assert same(r, alone) and r.meta["seed"] == seed and r.state is None
    assert len(list(tmp_path.glob("*/[04]/record"))) == 4
    times = {p: p.stat().st_mtime_ns for p in tmp_path.glob("*/*/record")}
    some = ["FedAvg", "FedProx", methods[1]]
    more = fedlib.compare(some, task, **told | {"seeds": 1})
    assert list(more.records) == ["FedAvg", "FedProx", "Ditto(lam=0.5)"]
    assert len(more.cautions()) == 2
    assert same(more.records["FedAvg"][0], got.records["FedAvg"][0], but=())
    assert all(p.stat().st_mtime_ns == t for p, t in times.items())
    other = fedlib.compare(["FedAvg"], task, **told | {"cohort": 2})
    assert other.records["FedAvg"][0].meta["cohort"] == 2
    assert len(list(tmp_path.glob("FedAvg-*/0/record"))) == 2


def test_three_cheap_methods_are_placed_beside_a_task_that_was_searched(three):
    task = toy(MLP(5, 4, 3))
    got = fedlib.compare(["Local", "FedAvg", "FedAvg+FT"], task, 3)
    a = {k: r["pre", view_of(r), "val"] for k, (r,) in got.records.items()}
    level = {k: 100 * v.mean(1).max() for k, v in a.items()}  # the best round counts
    assert got.guide() == guide.advice(level) != "" and got.guide() in repr(got)
    assert three.guide() == ""
    unseen = fedlib.compare([*level], task, 1, rule=last, splits=("test",))
    assert unseen.guide() == "" and "Which method next" not in repr(unseen)


def test_winners_by_mean_and_by_worst_tenth_are_those_of_three_pilots(tmp_path):
    task, told = toy(MLP(5, 4, 3)), {"seeds": [1000, 3], "rule": last}
    methods = [("FedProx", {"mu": 0.5}), Odd(fault="diverges"), "Ditto"]
    got = fedlib.compare(methods, task, 3, search=5, folder=tmp_path, **told)
    assert list(got.failed) == ["Odd"]
    for name, view in ("FedProx(mu=0.5)", "global"), ("Ditto", "personal"):
        made, score = {}, {}
        for p in search.settings(make(name.partition("(")[0], None), 5):
            p |= {"mu": 0.5} if "mu" in p else {}
            of = make(name.partition("(")[0], task, **p)
            runs = [fedlib.run(of, rounds=3, seed=s) for s in (1001, 1002, 1003)]
            a = [r["pre", view, "val"][-1] for r in runs]
            words = ", ".join(f"{k}={v}" for k, v in p.items() if k != "mu")
            worst = np.mean([metrics.worst(x) for x in a])
            made[words], score[words] = p, (a[0].mean(), np.mean(a), worst)
        left = sorted(score, key=lambda k: -score[k][0])[:4]
        by_mean, by_worst = (max(left, key=lambda k: score[k][i]) for i in (1, 2))
        want = {name: by_mean}
        want |= {f"{name} (worst)": by_worst} if by_worst != by_mean else {}
        assert {k: v for k, v in got.tuned.items() if k.startswith(name)} == want
        for row, won in want.items():
            assert [r.meta["seed"] for r in got.records[row]] == [1000, 3]
            for r in got.records[row]:
                assert r.meta["parameters"].items() >= made[won].items()
    assert len(list(tmp_path.glob("*/1001/record"))) == 15
    assert len(list(tmp_path.glob("*/1002/record"))) == 12
    assert dict(got.table.tuned, Odd="lr=0.0158") == got.tuned  # Odd has failed


def test_all_that_makes_two_comparisons_one_is_in_their_folder():
    task = toy(MLP(5, 4, 3), groups=GROUPS)

    def said(task=task, rounds=3, **how):
        return str(compare.Runs(task, rounds, how).settings)

    changes = [{"rounds": 4}, {"cohort": 2}, {"every": 2}]
    changes += [{k: True} for k in ("guests", "own", "microscope")]
    changes += [{"splits": ("test",)}, {"cohort": lambda t: [0]}]
    fields = {"name": "x", "batch": 5, "network": MLP(5, 6, 3), "a": 1 - task.a}
    swap = lambda rows: (rows[1], rows[0], *rows[2:])
    fields |= {k: swap(getattr(task, k)) for k in ("train", "val", "test", "guests")}
    fields |= {"x": task.x + 1e-9, "y": task.y.flip(0)}
    changes += [{"task": replace(task, **{k: v})} for k, v in fields.items()]
    assert len({said(), *(said(**c) for c in changes)}) == 1 + len(changes)
    usual = {"every": 1, "splits": ("test", "val")}
    assert said(**usual, guests=False, own=False, how="vmap", device="cpu") == said()
    task = toy()  # rules and schedules where nothing is said

    def rule(given, task, splits=("test", "val")):
        return compare.rule_of(given, task, splits, 0)

    empty = replace(task, val=(*task.val[:-1], task.val[-1][:0]))
    assert rule(None, task) is rule(best_val, empty) is best_val
    assert rule(None, empty) is last
    assert rule(None, task, ("test",)) is last
    assert compare.seeds_of(np.int64(3)) == [0, 1, 2]
    assert compare.seeds_of((4, 1)) == [4, 1]
    got = fedlib.compare(["FedAvg"], toy(), 250, folder=None)
    assert got.records["FedAvg"][0].meta["every"] == 3
    assert any(k[0] == "guest" for k in got.records["FedAvg"][0].views)


def test_no_run_is_lost_where_a_number_is_none(tmp_path):
    """One client has no Gini, a group without the outcome no EO; given weights no draw."""
    i, x = np.arange(60), np.random.RandomState(0).randn(60, 3)
    more = {"a": np.where(i % 4, "f", "m"), "network": torch.nn.Linear(3, 2)}
    task = fedlib.Task.from_arrays(x, i % 2, ["a"] * 60, batch=99, **more)
    got = fedlib.compare(["FedAvg"], task, 2, 3)
    assert np.isnan(got.table[["Gini", "EO"]].to_numpy(float)).all()
    page = got.report(tmp_path / "it.html").read_text("utf-8")
    for words in ("compare f, m", "1 clients the smallest has", "m 2 + 0"):
        assert all(words in said for said in (page, str(got))), words
    assert got.frame().accuracy.round(4).equals(got.frame().accuracy)
