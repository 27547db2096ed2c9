"""Tables and frames of a study against the same numbers by loops over records."""

import itertools
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from toys_study import GUEST, OWN, POST, PRE, cell, record, study

from fedlib.measures import bias, metrics, runs, selection
from fedlib.study import results
from repro import papers

PLGU, TOP1 = papers.module("plgu", "measures"), papers.module("fedas", "measures").TOP1

LOOK = {"FedPer": ("post", "personal"), "FedFB": ("own", "global")}
MOMENTS = {"FedAvg": PRE, "FedPer": PRE + POST, "FedFB": PRE + OWN}
MOMENTS["FedPer"] = [*MOMENTS["FedPer"], ("post", "global", "test")]
WHO = ["dataset", "method", "setting", "seed"]
RULES = [*selection.RULES]
PLAIN = {"mean_acc": metrics.mean_acc, "std_acc": metrics.std_acc}
PLAIN |= {"worst10_acc": metrics.worst, "top10_minus_bottom10": metrics.gap}
PLAIN |= {"best_gini": lambda a: metrics.gini(a) / 100}  # all others are in percent


def made(guests=(), **more):
    """A Study of three methods, two data sets of unequal size, two seeds."""
    out, tiers = [], ["paper"] * 6 + ["tiny"] * 6
    for extra, method, seed in itertools.product((0, 3), MOMENTS, (0, 4)):
        some = {"C": 12 + extra, "rounds": (0, 2, 4, 6), "guests": guests}
        some |= {"seconds": 60.0 + seed + extra} | more
        r = record(seed, method, MOMENTS[method] + GUEST * bool(guests), **some)
        c = cell(method, seed, setting="mu=1" if extra else "", lr=0.1 + extra)
        out.append((replace(c, dataset="e" if extra else "d"), r))
    return study(*out, look=LOOK.items(), tiers=tiers)


@pytest.fixture(scope="module")
def run():
    return made(groups=True)


def scored(method):
    return LOOK.get(method, ("pre", "global"))


def looked(run):
    """(cell, who it is, record, key of what is scored, its test rows)."""
    for c, r in zip(run.cells, run.records):
        who = [getattr(c, w) for w in WHO]
        yield c, who, r, (*scored(c.method), "test"), np.array(r.meta["n"]["test"])


def picked(rule, r, moment, view):
    return selection.RULES[rule](r, view, "pre" if moment == "guest" else moment)


def biases(n, alike):
    """How groups are treated, of counts [C, A, 2, 2] of one evaluation."""
    names = "EO DP CAL EO_sum CAL_ppv positive_rate".split()
    out = {k: getattr(bias, k)(n.sum(0)) for k in names}
    return out | {"CON": bias.CON(alike.sum(0))}


def close(a, b, what=""):
    assert np.allclose(a, b, rtol=1e-5, atol=1e-5, equal_nan=True), (what, a, b)


def alike(frame, rows, *names):
    want = pd.DataFrame(rows, columns=[*WHO, *names])
    pd.testing.assert_frame_equal(frame, want, check_dtype=False, atol=1e-5)


@pytest.mark.parametrize("rule", RULES)
def test_seeds_scores_validation_and_biases_by_hand(run, rule):
    long, val = run.seeds(rules=(rule,)), run.validation(rule)
    wide, of_groups = results.scores(run, rule).set_index(WHO), run.biases((rule,))
    every, some = results.biases(run), results.biases(run, rule)
    assert len(long) == 12 * 5 and len(val) == len(wide) == 12
    mine = lambda d, who: d[(d[WHO] == who).all(axis=1)]
    for c, who, r, key, n in looked(run):
        at = picked(rule, r, *key[:2])
        rows = long[long.run_ids == c.id].set_index("metric")
        for k, f in PLAIN.items():
            want = 100 * np.mean([f(r.views[key][e]) for e in at])
            close([rows.value[k], wide.loc[tuple(who), k]], want, (c, k))
        close(mine(val, who).value, 100 * r.views[*key[:2], "val"][at].mean(), c)
        told = {"paper": "toy", "study": "main", "rule": rule, "data": "synthetic"}
        told |= dict(zip(WHO, who)) | {"tier": "paper" if who[0] == "d" else "tiny"}
        told |= {"minutes": round(r.meta["seconds"] / 60, 4), "commit": "0123456789"}
        assert rows.loc["mean_acc"].to_dict().items() >= told.items()
        alike = r.consistency[key[:2]].astype(float)
        each = pd.DataFrame(map(biases, r.cells[key], alike))
        each["accuracy"] = (r.views[key] * n).sum(1) / n.sum()
        got, all_ = mine(of_groups, who).set_index("metric").value, mine(every, who)
        assert set(got.index) == set(each)
        rounds = 2 * np.arange(len(each)) + (key[0] != "pre")
        assert all_["round"].tolist() == rounds.tolist()
        assert mine(some, who)["round"].tolist() == rounds[at].tolist()
        for k in each:
            close(got[k], each[k][at].mean(), (c, k))
            close(all_[k] if k in all_ else each[k], each[k], (c, k))


def test_the_parts_of_a_study(run):
    top = {"top": lambda a, n: metrics.pooled_acc(a, n)}
    for given_ in (("pre", "global"), lambda method: ("pre", "global")):
        rows = run.seeds(top, ("last",), scored=given_)
        for c, _, r, _, n in looked(run):
            want = (r.views["pre", "global", "test"][-1] * n).sum() / n.sum()
            close(rows[rows.run_ids == c.id].value, want, c)
    want = {"acc_lowest20_pct": 3.5, "acc_lowest5_pct": 0.5, "acc_top5_pct": 38.5}
    for k, v in (want | {"acc_min_over_clients_pct": 0}).items():
        close(PLGU.TAILS[k](np.arange(40) / 40), 100 / 40 * v, k)
    close(TOP1["top1_acc_pct"](np.array([1.0, 0.0]), n=[3, 1]), 75)
    assert run.datasets() == ["d", "e"] and run.methods("e") == [*MOMENTS]
    assert [c.seed for c, _ in run.of("d", "FedPer")] == [0, 4] and not run.of("x")
    assert run.of("d", seed=4, setting="")[1][0].method == "FedPer"
    both = run.join(replace(run, cells=[cell()] * 12))
    assert both.cells == run.cells + [cell()] * 12
    assert all(map(lambda a, b: a is b, both.records, run.records * 2))
    # views are named as the paper names them
    both = PRE + [("pre", "personal", s) for s in ("test", "val")]
    a, b = record(), record(1, keys=both)
    some = (cell(), a), (cell(lr=2, setting="a=1"), b)
    mean = {"mean": results.MEASURES["mean_acc"]}, ["last"]
    told = {"global": "shared", "personal": "own"}, *mean, lambda c: c.setting[::-1]
    got = PLGU.views(study(*some, look=[("FedAvg", ("post", "x"))]), *told)
    assert got.setting.tolist() == ["shared", "shared;1=a", "own;1=a"]
    for value, r, view in zip(got.value, (a, b, b), ("global", "global", "personal")):
        close(value, 100 * r.views["pre", view, "test"][-1].mean(), view)


def test_sites_and_guests_have_numbers_of_their_own():
    owners, guest = ["dslr", "home", runs.SITES[0], "x"], ("guest", "global")
    c, r = cell(), record(C=4, keys=PRE + GUEST, guests=[9], owners=owners)
    one = study((c, r), look=[("FedAvg", guest)])
    rows = one.seeds(rules=("best_val",)).set_index("metric").value
    e = picked("best_val", r, *guest)
    assert list(rows.index) == ["mean_acc"]  # a single guest has no spread
    close(rows.mean_acc, 100 * r.views[*guest, "test"][e, 0])
    val, last = (100 * r.views["pre", "global", s][-1] for s in ("val", "test"))
    close(one.validation("last").value, val.mean())
    rows = one.seeds(rules=("last",), scored=("pre", "global"))
    sites = rows[rows.metric.str.startswith("acc_")]
    assert list(sites.metric) == ["acc_dslr", f"acc_{runs.SITES[0]}"]
    close(sites.value, last[[0, 2]])


def test_numbers_of_whole_runs_tables_and_figures(run, tmp_path):
    import matplotlib.pyplot as plt

    whole = {"first": lambda r: float(r.rounds[1]), "none": lambda r: np.nan}
    rows = run.whole(whole, "e", "FedPer")
    rows = rows[["value", "metric", "rule"]].to_numpy()
    assert rows.tolist() == [[2, "first", "run"]] * 2
    some = {"a": [1 / 3e5, np.nan, -0.0], "b": ["x, y", None, "z"], "c": [1, 2, 3e7]}
    path = results.write(pd.DataFrame(some), tmp_path / "deep" / "t.csv")
    assert path.read_bytes() == b'a,b,c\n3.33333e-06,"x, y",1\n,,2\n0,z,30000000\n'
    mixed, told = replace(run, paper=str(tmp_path / "toy")), {"title": "A", "alt": "B"}
    for dataset, tier in ((None, "tiny"), ("d", "paper")):
        meta = mixed.save(plt.figure(), "f", **told, dataset=dataset).meta
        assert (meta["tier"], meta["seeds"]) == (tier, "2 seeds")


def by_loops(run, fits, at=None):
    """Every number of every view that fits, a row each."""
    for c, who, r, _, _ in looked(run):
        for key in [k for k in r.views if fits(c, k)]:
            a, late = r.views[key], int(key[0] in ("post", "own"))
            n = r.meta["n"]["guest" if key[0] == "guest" else key[2]]
            for e in range(len(a)) if at is None else picked(at, r, *key[:2]):
                for i, x in enumerate(a[e]):
                    yield [*who, *key, int(r.rounds[e]) + late, i, n[i], 100 * float(x)]


def test_a_frame_has_every_number_once():
    run, names = made(guests=[9, 5]), "moment view split round client n acc".split()
    usual = lambda c, k, split="test": k == (*scored(c.method), split)
    every = {"view": None, "moment": None, "split": None}
    asked = [({}, usual), (every, lambda c, k: True)]
    asked += [({"split": "val"}, lambda c, k: usual(c, k, "val"))]
    asked += [({"view": "global", "moment": "pre"}, lambda c, k: k == PRE[0])]
    asked += [({"moment": "guest", "view": "global"}, lambda c, k: k == GUEST[0])]
    for more, fits in [*asked, *(({"at": rule}, usual) for rule in RULES)]:
        d = results.frame(run, **more)
        alike(d, by_loops(run, fits, more.get("at")), *names)


def test_rounds_and_logs_have_a_row_for_each_evaluation_and_client(run):
    d = results.scores(run, measures={"gini": metrics.gini, "top": metrics.pooled_acc})
    logs, want, seen = results.logs(run, "weight"), [], []
    for _, who, r, key, n in looked(run):
        for t, a in zip(r.rounds, r.views[key]):
            at = [*who, *key[:2], int(t) + (key[0] != "pre")]
            want.append([*at, metrics.gini(a), (a * n).sum() / n.sum()])
        for t, (ids, values) in enumerate(zip(r.logs["cohort"], r.logs["weight"])):
            seen += [[*who, t, int(i), float(v)] for i, v in zip(ids, values)]
    alike(d, want, "moment", "view", "round", "gini", "top")
    alike(logs, seen, "round", "client", "weight")
    once = results.logs(run, "scale")
    assert list(once) == [*WHO, "round", "scale"] and len(once) == 12 * 6
    assert once.scale[:6].tolist() == run.records[0].logs["scale"].tolist()
    some = made()
    some.records[0].logs["cohort"][2, 1] = -1  # nobody
    del some.records[1].logs["weight"]
    few = results.logs(some, "weight")
    assert len(few) == 11 * 12 - 1 and (few.client >= 0).all()
    bad = [(results.frame, "tuned"), (results.logs, "drift"), (results.biases,)]
    for ask, *names in [*bad, (results.logs, "scale", "weight")]:
        with pytest.raises(ValueError, match="tuned|drift|groups|scale"):
            ask(some, *names)
