"""Tables and frames of a study against the same numbers by loops over records that are
made by hand.
"""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from toys_study import GUEST, POST, PRE, biases, cell, record, study

from fedlib.measures import metrics, selection
from fedlib.study import frames, results, table

OWN = [("own", "global", s) for s in ("test", "val")]
LOOK = {"FedPer": ("post", "personal"), "FedFB": ("own", "global")}
MOMENTS = {"FedAvg": PRE, "FedPer": PRE + POST, "FedFB": PRE + OWN}
WHO = ["dataset", "method", "setting", "seed"]
RULES = [*selection.RULES]


def runs(groups=False, guests=(), C=12, rounds=(0, 2, 4, 6)):
    """(cell, record) of three methods, two data sets of unequal size, two seeds."""
    out = []
    for dataset, more in (("d", 0), ("e", 3)):
        for method, keys in MOMENTS.items():
            for seed in (0, 4):
                keys_ = keys + (GUEST if guests else [])
                some = {"keys": keys_, "C": C + more, "rounds": rounds}
                some |= {"groups": groups, "guests": guests}
                r = record(seed, method, **some, seconds=60.0 + seed + more)
                c = cell(method, seed, lr=0.1 + more, setting="mu=1" if more else "")
                out.append((replace(c, dataset=dataset), r))
    return out


@pytest.fixture(scope="module")
def run():
    return study(*runs(groups=True), look=LOOK.items())


def scored(method):
    return LOOK.get(method, ("pre", "global"))


def gini(a):
    a = a.astype(float) + 1e-10
    return np.abs(a[:, None] - a).sum() / (2 * (len(a) - 1) * a.sum())


def plain(a, n):
    """The usual measures of accuracies [C], percent but Gini."""
    low, k = sorted(a), max(1, len(a) // 10)
    mean = sum(a) / len(a)
    worst, best = sum(low[:k]) / k, sum(low[-k:]) / k
    return {
        "mean_acc": 100 * mean,
        "std_acc": 100 * (sum((x - mean) ** 2 for x in a) / len(a)) ** 0.5,
        "worst10_acc": 100 * worst,
        "top10_minus_bottom10": 100 * (best - worst),
        "best_gini": gini(np.array(a)),
    }


def picked(rule, r, moment, view):
    """The evaluations that a rule names, written a second time."""
    moment = "pre" if moment == "guest" else moment
    test, val = (r.views[moment, view, s] for s in ("test", "val"))
    E, n = len(test), np.array(r.meta["n"]["test"])
    late = r.rounds[:E] > r.rounds[E - 1] - max(1, min(10, r.rounds[-1] / 4))
    best = lambda scores: [min(range(E), key=lambda e: (-scores[e], e))]
    return {
        "last": [E - 1],
        "last10_mean": [e for e in range(E) if late[e]],
        "best_val": best([v.mean() for v in val]),
        "best_val_gini": best([-gini(v) for v in val]),
        "best_round_test": best([t.mean() for t in test]),
        "best_round_pooled": best([(t * n).sum() for t in test]),
    }[rule]


def close(a, b, what=""):
    assert np.allclose(a, b, rtol=1e-5, atol=1e-5, equal_nan=True), (what, a, b)


# ---------------------------------------------------------------- results
@pytest.mark.parametrize("rule", RULES)
def test_seeds_scores_and_validation_by_hand(run, rule):
    long, val = run.seeds(rules=(rule,)), run.validation(rule)
    wide = frames.scores(run, rule).set_index(WHO)
    assert len(long) == 12 * 5 and len(val) == len(wide) == 12
    for c, r in zip(run.cells, run.records):
        moment, view = scored(c.method)
        at, n = picked(rule, r, moment, view), r.meta["n"]["test"]
        each = [plain(r.views[moment, view, "test"][e], n) for e in at]
        rows = long[long.run_ids == c.id].set_index("metric")
        for k in each[0]:
            want = np.mean([e[k] for e in each])
            close(rows.value[k], want, (c, k))
            close(wide.loc[tuple(getattr(c, w) for w in WHO), k], want, (c, k))
        (one,) = val[val.run_ids == c.id].itertuples()
        close(one.value, 100 * r.views[moment, view, "val"][at].mean(), c)
        row = rows.loc["mean_acc"].to_dict()
        told = {"paper": "toy", "study": "main", "rule": rule, "data": "synthetic"}
        told |= {w: getattr(c, w) for w in WHO} | {"tier": "small", "device": "cpu"}
        told |= {"minutes": round(r.meta["seconds"] / 60, 4), "commit": "0123456789"}
        assert row.items() >= told.items()
    assert set(wide.rule) == {rule} and one.metric == "val_acc"


def test_a_measure_may_take_rows_and_a_view_may_be_chosen(run):
    top = {"top": lambda a, n: metrics.pooled_acc(a, n)}
    looks = [(("pre", "global"), None), (lambda m: scored(m), scored)]
    for given_, own in looks:
        rows = run.seeds(top, ("last",), scored=given_)
        for c, r in zip(run.cells, run.records):
            moment, view = own(c.method) if own else given_
            n = np.array(r.meta["n"]["test"])
            want = (r.views[moment, view, "test"][-1] * n).sum() / n.sum()
            close(rows[rows.run_ids == c.id].value, want, c)
    a = np.arange(40) / 40
    tails = {k: f(a) for k, f in results.TAILS.items()}
    close(tails["acc_lowest20_pct"], 100 * 3.5 / 40)
    close(tails["acc_lowest5_pct"], 100 * 0.5 / 40)
    close(tails["acc_top5_pct"], 100 * 38.5 / 40)
    close(tails["acc_min_over_clients_pct"], 0)
    close(results.TOP1["top1_acc_pct"](np.array([1.0, 0.0]), n=[3, 1]), 75)


def test_the_parts_of_a_study(run):
    assert run.datasets() == ["d", "e"] and run.methods("e") == [*MOMENTS]
    assert [c.seed for c, _ in run.of("d", "FedPer")] == [0, 4]
    assert run.of("d", seed=4, setting="")[1][0].method == "FedPer" and not run.of("x")
    assert run.rounds("d").tolist() == [0, 2, 4, 6]
    stack = run.stack("e", "FedPer", setting="mu=1", split="val")
    want = [r.views["post", "personal", "val"] for _, r in run.of("e", "FedPer")]
    assert stack.shape == (2, 3, 15) and all(map(np.array_equal, stack, want))
    key = ("pre", "global", "test")
    assert run.stack("d", "FedPer", key).shape == (2, 4, 12)
    assert run.log("d", "FedAvg", "weight").shape == (2, 6, 2)
    with pytest.raises(ValueError, match="FedAvg.*'drift'"):
        run.log("d", "FedAvg", "drift")
    for c, r in zip(run.cells, run.records):
        moment, view = scored(c.method)
        x, y = run.curve(c.dataset, c.method, c.setting)
        if moment != "own":
            assert x.tolist() == ([0, 2, 4, 6] if moment == "pre" else [1, 3, 5])
        n = np.array(r.meta["n"]["test"])
        want = 100 * (r.views[moment, view, "test"] * n).sum(1) / n.sum()
        close(y[[0, 4].index(c.seed)], want, c)
    part = run.with_view("global")
    assert part.cells == run.cells and run.with_view("personal").cells == []
    both = part.join(run)
    assert both.cells == run.cells * 2 and both.tiers == run.tiers * 2
    assert list(both.records) == [*run.records, *run.records]


def test_views_are_named_as_the_paper_names_them():
    personal = [("pre", "personal", s) for s in ("test", "val")]
    keys = {"FedAvg": PRE, "Ditto": PRE + personal}
    some = [
        (cell(m, setting=s, lr=lr), record(0, m, keys[m]))
        for m in keys
        for s, lr in (("", 1), ("a=1", 2))
    ]
    names = {"global": "shared", "personal": "own"}
    mean = {"mean": results.MEASURES["mean_acc"]}
    end = lambda c: c.setting.replace("a=", "A")
    got = study(*some, look=[("Ditto", ("post", "x"))]).views(
        names, mean, ["last"], end
    )
    got = {(r.method, r.setting): r.value for r in got.itertuples()}
    assert got.keys() == {
        *(("FedAvg", s) for s in ("shared", "shared;A1")),
        *(("Ditto", s) for s in ("shared", "shared;A1", "own", "own;A1")),
    }
    for (method, setting), value in got.items():
        view = "personal" if setting.startswith("own") else "global"
        r = dict(zip(keys, (some[0][1], some[2][1])))[method]
        close(value, 100 * r.views["pre", view, "test"][-1].mean())


def test_sites_and_guests_have_numbers_of_their_own():
    owners = ["dslr", "home", *results.SITES[:1], "x"]
    c, r = cell(), record(C=4, keys=PRE + GUEST, guests=[9], owners=owners)
    one = study((c, r), look=[("FedAvg", ("guest", "global"))])
    rows = one.seeds(rules=("best_val",)).set_index("metric").value
    e = picked("best_val", r, "pre", "global")
    assert list(rows.index) == ["mean_acc"]  # a single guest has no spread
    close(rows.mean_acc, 100 * r.views["guest", "global", "test"][e, 0])
    e = picked("last", r, "guest", "global")
    close(one.validation("last").value, 100 * r.views["pre", "global", "val"][e].mean())
    rows = (
        one.seeds(rules=("last",), scored=("pre", "global")).set_index("metric").value
    )
    sites = {"acc_dslr": 0, f"acc_{results.SITES[0]}": 2}
    assert {k for k in rows.index if k.startswith("acc_")} == set(sites)
    for k, i in sites.items():
        close(rows[k], 100 * r.views["pre", "global", "test"][-1, i])
    many = replace(r, meta=r.meta | {"n": r.meta["n"] | {"guest": [9, 30]}})
    many.views["guest", "global", "test"] = np.array([[0.1, 0.7]] * 3, np.float32)
    one = study((c, many), look=[("FedAvg", ("guest", "global"))])
    _, y = one.curve("d", "FedAvg")
    close(y, 100 * (0.9 + 21) / 39)
    d = frames.frame(one)
    assert d.n.tolist() == [9, 30] * 3 and d.client.tolist() == [0, 1] * 3


@pytest.mark.parametrize("rule", ["last", "last10_mean", "best_val"])
def test_biases_by_hand(run, rule):
    rows, wide = run.biases((rule,)), frames.biases(run, rule)
    every = frames.biases(run)
    for c, r in zip(run.cells, run.records):
        key = (*scored(c.method), "test")
        counts, alike = r.cells[key], r.consistency[key[:2]]
        n = np.array(r.meta["n"]["test"])
        each = []
        for e in range(len(counts)):
            each.append(biases(counts[e].astype(float), alike[e].astype(float)))
            each[-1]["accuracy"] = (r.views[key][e] * n).sum() / n.sum()
        at = picked(rule, r, *key[:2])
        mine = rows[rows.run_ids == c.id].set_index("metric").value
        assert set(mine.index) == each[0].keys()
        here = (wide.dataset == c.dataset) & (wide.method == c.method)
        some = wide[here & (wide.seed == c.seed)]
        all_ = every[(every.dataset == c.dataset) & (every.method == c.method)]
        all_ = all_[all_.seed == c.seed]
        assert len(some) == len(at) and len(all_) == len(counts)
        moved = key[0] in ("post", "own")
        assert all_["round"].tolist() == [
            int(t) + moved for t in r.rounds[: len(counts)]
        ]
        for k in each[0]:
            close(mine[k], np.mean([each[e][k] for e in at]), (c, k))
            if k in wide:
                close(some[k], [each[e][k] for e in at], (c, k))
                close(all_[k], [e[k] for e in each], (c, k))


def test_numbers_of_whole_runs_and_tables(run, tmp_path):
    whole = {"first": lambda r: float(r.rounds[1]), "none": lambda r: np.nan}
    rows = run.whole(whole, "e", "FedPer")
    assert rows.value.tolist() == [2, 2] and set(rows.rule) == {"run"}
    assert rows.metric.tolist() == ["first"] * 2
    wide = run.table("worst10_acc", "last")
    long = run.seeds(rules=("last",))
    long = long[(long.metric == "worst10_acc") & (long.method == "FedPer")]
    close(wide.loc[("FedPer", ""), "d"], long[long.dataset == "d"].value.mean())
    close(wide.loc[("FedPer", "mu=1"), "e"], long[long.dataset == "e"].value.mean())
    results.write_seeds(run, tmp_path / "a" / "seeds.csv")
    back = pd.read_csv(tmp_path / "a" / "seeds.csv", keep_default_na=False)
    both = pd.concat([run.seeds(), run.validation()])
    assert list(back) == list(both) and len(back) == 12 * 6
    close(back.value, both.value)


def test_a_figure_says_what_it_was_made_from(run, tmp_path):
    import matplotlib.pyplot as plt

    tiers = ["tiny" if c.dataset == "e" else "paper" for c in run.cells]
    mixed = replace(run, tiers=tiers, paper=str(tmp_path / "toy"))
    told = {"title": "A title", "alt": "What can be seen"}
    for dataset, tier in ((None, "tiny"), ("d", "paper")):
        meta = mixed.save(plt.figure(), "f", **told, dataset=dataset, notebook="n").meta
        assert meta["tier"] == tier and meta["seeds"] == "2"
        assert (
            meta["stage"].endswith("toy@n") and "the data (synthetic)" in meta["data"]
        )
    few = mixed.save(plt.figure(), "f", **told, seeds="one of two").meta
    assert few["seeds"] == "one of two" and few["notebook"].endswith("toy/main.ipynb")
    assert set(mixed.seeds(rules=("last",)).query("dataset == 'd'").tier) == {"paper"}


# ---------------------------------------------------------------- frames
COLUMNS = [*WHO, "moment", "view", "split", "round", "client", "n", "acc"]


def by_loops(run, fits, at=None):
    """Every number of every view that fits, a row each."""
    out = []
    for c, r in zip(run.cells, run.records):
        for key, a in r.views.items():
            if not fits(c, key):
                continue
            n = r.meta["n"]["guest" if key[0] == "guest" else key[2]]
            evaluations = range(len(a)) if at is None else picked(at, r, *key[:2])
            for e in evaluations:
                late = key[0] in ("post", "own")
                for i in range(a.shape[1]):
                    who = [getattr(c, w) for w in WHO]
                    numbers = [int(r.rounds[e]) + late, i, n[i], 100 * float(a[e, i])]
                    out.append([*who, *key, *numbers])
    return out


def test_a_frame_has_every_number_once():
    run = study(*runs(guests=[9, 5]), look=LOOK.items())
    asked = [
        ({}, lambda c, k: k == (*scored(c.method), "test")),
        ({"split": "val"}, lambda c, k: k == (*scored(c.method), "val")),
        ({"view": None, "moment": None, "split": None}, lambda c, k: True),
        ({"view": "global", "moment": "pre"}, lambda c, k: k == PRE[0]),
        ({"moment": "guest", "view": "global"}, lambda c, k: k == GUEST[0]),
        *[({"at": rule}, asked_of) for rule in RULES],
    ]
    for more, fits in asked:
        d = frames.frame(run, **more)
        want = by_loops(run, fits, more.get("at"))
        assert list(d) == COLUMNS and len(d) == len(want), more
        got = d.to_numpy().tolist()
        assert [g[:-1] for g in got] == [w[:-1] for w in want], more
        close([g[-1] for g in got], [w[-1] for w in want], more)
        assert "category" not in map(str, d.dtypes)


def asked_of(c, key):
    return key == (*scored(c.method), "test")


def test_rounds_are_measures_at_every_evaluation(run):
    measures = {"gini": metrics.gini, "top": metrics.pooled_acc}
    d = frames.rounds(run, measures)
    assert list(d) == [*WHO, "moment", "view", "round", *measures]
    want = []
    for c, r in zip(run.cells, run.records):
        key, n = (*scored(c.method), "test"), np.array(r.meta["n"]["test"])
        for e, a in enumerate(r.views[key]):
            t = int(r.rounds[e]) + (key[0] != "pre")
            who = [getattr(c, w) for w in WHO]
            want.append([*who, *key[:2], t, gini(a), (a * n).sum() / n.sum()])
    assert d.iloc[:, :7].to_numpy().tolist() == [w[:7] for w in want]
    close(d.iloc[:, 7:].to_numpy(float), [w[7:] for w in want])


def test_logs_have_a_row_for_each_client_of_a_cohort(run):
    d = frames.logs(run, "weight")
    want = [
        [*(getattr(c, w) for w in WHO), t, int(i), float(v)]
        for c, r in zip(run.cells, run.records)
        for t in range(6)
        for i, v in zip(r.logs["cohort"][t], r.logs["weight"][t])
    ]
    assert list(d) == [*WHO, "round", "client", "weight"]
    assert d.to_numpy().tolist() == want
    once = frames.logs(run, "scale")
    assert list(once) == [*WHO, "round", "scale"] and len(once) == 12 * 6
    assert once.scale[:6].tolist() == run.records[0].logs["scale"].tolist()
    some = study(*runs(), look=LOOK.items())
    some.records[0].logs["cohort"][2, 1] = -1  # nobody
    del some.records[1].logs["weight"]
    few = frames.logs(some, "weight")
    assert len(few) == 11 * 12 - 1 and (few.client >= 0).all()
    assert (
        len(few[(few.seed == 4) & (few.method == "FedAvg") & (few.dataset == "d")]) == 0
    )


def test_a_question_without_an_answer_says_what_there_is():
    run = study(*runs())
    bad = [
        (lambda: frames.frame(run, view="tuned"), "'tuned'.*pre global test"),
        (lambda: frames.rounds(run, moment="guest"), "'guest'.*post personal val"),
        (lambda: frames.frame(run, at="best"), "'best'.*best_val_gini"),
        (lambda: frames.biases(run), "FedAvg.*groups"),
        (lambda: frames.logs(run, "drift"), "drift.*cohort, weight, scale"),
        (lambda: frames.logs(run, "scale", "weight"), "scale, weight.*FedAvg"),
    ]
    for ask, words in bad:
        with pytest.raises(ValueError, match=words):
            ask()


# ---------------------------------------------------------------- csv
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_in_a_csv_has_six_digits(v):
    text = table.shown(v)
    assert float(text) == (v if v == round(v) else pytest.approx(v, rel=1e-5))
    assert "-0" != text and len(text.lstrip("-").replace(".", "")) < 330


def test_a_table_in_a_csv(tmp_path):
    d = pd.DataFrame(
        {"a": [1.5, np.nan, 2.0], "b": ["x, y", None, "z"], "c": [1, 2, 3]}
    )
    path = table.write(d, tmp_path / "deep" / "t.csv")
    assert path.read_bytes() == b'a,b,c\n1.5,"x, y",1\n,,2\n2,z,3\n'
    assert json.loads(table.shown(1234567.8)) == 1234570
