"""What lies in the folders of papers: they are found, any can be taken away, metrics have
margins, deviations have effects; and EquFL's tables, FedGA's theory, forests of claims.
"""

import ast
import math
import pickle
import shutil

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from scipy import stats
from toys_runs import PLACE, table
from where import ROOT

from repro import artefacts, claims, ledger, metrics, papers
from repro.ledger import ResultError
from repro.metrics import KINDS, METRICS
from repro.papers import PaperError

LEFT = ("fedga", "plgu", "equfl", "fft-gp")


# ---------------------------------------------------------------- papers
def test_papers_come_in_their_order():
    assert papers.found() == ["fedga", "fedas", "plgu", "equfl", "fft-gp"]
    assert (
        papers.about("fedga")["reference"]
        == "FedAvg"
        != papers.about("fedas")["reference"]
    )
    assert papers.each("switches")["fedga"] == () and papers.union("axes", "views")[
        :4
    ] == ("beta", "P", "E", "B")
    assert (
        papers.main_study("fedga", "none") == "theory"
        and papers.main_study("fedga", "x") == "main"
    )
    assert papers.main_datasets("equfl")[-2:] == ["census", "none"]
    made = papers.module("fft-gp", "claims")
    assert (
        made.__name__ == "papers.fft_gp.claims"
        and papers.module("fft-gp", "claims") is made
    )
    assert pickle.loads(pickle.dumps(made.below)) is made.below
    for paper, name in (("fedga", "nothing"), ("fedgb", "claims")):
        with pytest.raises(PaperError, match=f"{paper}/{name}.py"):
            papers.module(paper, name)
    with pytest.raises(PaperError, match="fedgb"):
        papers.about("fedgb")


def test_a_bad_paper_yaml_is_refused(tmp_path):
    changes = {
        "rule: last10_mean": "rules: x",
        "rule: last10_mean ": "# ",
        "order: 1": "order: 3",
    }
    for k, (old, new) in enumerate(changes.items()):
        for paper in ("fedga", "plgu"):
            text = (ROOT / "papers" / paper / "paper.yaml").read_text()
            folder = tmp_path / str(k) / paper
            folder.mkdir(parents=True)
            (folder / "paper.yaml").write_text(text.replace(old, new))
        with pytest.raises(PaperError, match=str(tmp_path)):
            papers.found(tmp_path / str(k))


def test_a_paper_fewer(tmp_path, monkeypatch, capsys):
    """The rest is read as before; rows of the one that is gone are left out."""
    for name in LEFT:
        keep = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "papers" / name, tmp_path / "papers" / name, ignore=keep)
    shutil.copy(ROOT / "papers/__init__.py", tmp_path / "papers")
    reported = ledger.read_reported()
    (tmp_path / "ours").mkdir()
    for name in ("fedas-grid", "fedga-alpha"):
        shutil.copy(ROOT / f"results/ours/{name}.csv", tmp_path / "ours")
    whole = ledger.parts(tmp_path, "ours", reported)
    capsys.readouterr()
    monkeypatch.chdir(tmp_path)
    assert tuple(papers.found()) == LEFT and "beta" not in papers.union("axes")
    left = ledger.read_reported()
    assert (
        set(left.paper) == set(LEFT) and len(left) == (reported.paper != "fedas").sum()
    )
    rows = ledger.parts(tmp_path, "ours", left)
    assert "fedas-grid" in capsys.readouterr().out and set(rows.paper) == {"fedga"}
    assert len(rows) == (whole.paper == "fedga").sum() > 0
    assert not any(d["id"].startswith("FedAS") for d in claims.read_deviations())
    assert set(METRICS) - set(metrics.listed()) and "EO" in metrics.listed()


def test_the_machinery_names_no_paper():
    for path in sorted((ROOT / "repro").rglob("*.py")):
        said = {getattr(n, "value", 0) for n in ast.walk(ast.parse(path.read_text()))}
        words = {x for x in said if isinstance(x, str)}
        assert path.name == "house.py" or not words & set(papers.found()), path


# ---------------------------------------------------------------- metrics, artefacts
def test_metrics_have_margins_in_their_unit():
    for name, m in METRICS.items():
        assert 0 <= m.margin < math.inf and m.why_margin and m.what, name
        assert m.bounds[0] < m.bounds[1] and m.better in ("high", "low", ""), name
        assert (m.margin == 0) == (m.kind in ("setting", "exact")), name
    assert {m.kind for m in METRICS.values()} == set(KINDS)
    at = {
        "mean_acc": 1,
        "worst10_acc": 2,
        "top10_acc": 2,
        "std_acc": 1,
        "best_gini": 0.01,
    }
    at |= {
        "accuracy": 0.01,
        "EO": 0.01,
        "top10_minus_bottom10": 2,
        "acc_lowest5_pct": 2,
        "acc_top5_pct": 2,
        "acc_min_over_clients_pct": 2,
    }
    at |= {
        "acc_lowest20_pct": 1,
        "seconds": 4,
        "bytes_up": 4,
        "gini_auc": 4,
        "log_ratio": math.log(1.05),
    }
    assert {k: METRICS[k].margin_at(-80) for k in at} == pytest.approx(at)
    low = ("std_acc", "best_gini", "EO", "DP", "CAL", "CON", "seconds", "bytes_up")
    high = ("mean_acc", "worst10_acc", "accuracy", "acc_mean_pct", "top1_acc_pct")
    assert {METRICS[m].better for m in low} == {"low"} and {
        METRICS[m].better for m in high
    } == {"high"}
    assert METRICS["mean_acc"].bounds == (0, 100) and METRICS["EO"].bounds == (0, 1)
    ours = pd.read_csv(ROOT / "results" / "ours.csv")
    for name, values in ours.groupby("metric").value:
        a, b = METRICS[name].bounds
        assert values.between(a - 1e-9, b + 1e-9).all(), name
    m = metrics.metric("high", "%", "shaky", margin=3, why_margin="ten rows")
    assert (m.margin, m.why_margin, m.bounds) == (3, "ten rows", (0, 100))
    for said in (
        {"unit": "furlongs"},
        {"kind": "acuracy"},
        {"unit": "%", "margin": 2},
        {"unit": "%", "margin": -1, "why_margin": "so"},
    ):
        with pytest.raises(ValueError):
            metrics.metric(what="x", **said)


def test_what_is_listed_can_be_found():
    """Artefacts stand on pages that exist, their measures are known, their names fit."""
    known = {
        p.relative_to(ROOT / "notebooks").with_suffix("").as_posix()
        for p in (ROOT / "notebooks").rglob("*.ipynb")
    }
    for a in artefacts.listed():
        page = a.page.removesuffix(".html").removeprefix("notebooks/")
        there = (
            page in known if "/" in a.page else (ROOT / "book" / f"{page}.md").exists()
        )
        assert there or a.page == "ledger.html", a
        assert set(a.cells) <= set(METRICS) and not (a.shown and a.shown == a.name), a
        if a.text:
            source = (ROOT / "book" / a.page).with_suffix(".md").read_text()
            assert f"({a.anchor})=" in source, a
    a = artefacts.Artefact("fedga", "Table IV(a)", "t", shown="Figure 2")
    assert (a.slug, a.anchor) == ("fedga-table-iv-a", "fedga-figure-2")


# ---------------------------------------------------------------- deviations
ENTRY = dict.fromkeys(("title", "where", "paper", "code", "ours", "why"), "w")
ENTRY |= {"id": "FedGA-1", "mark": "certain"}
EFFECT = {"dataset": PLACE, "metrics": ["best_gini"], "ours": {"method": "FedGA"}}
EFFECT |= {"other": {"method": "FedGA", "rule": "last"}}


def test_an_effect_is_ours_minus_other_seed_by_seed():
    ours, other = np.array([0.1, 0.2, 0.4]), np.array([0.2, 0.2, 0.5])
    s = pd.concat(
        [
            table({"FedGA": ours}, "best_gini"),
            table({"FedGA": [*other, 9]}, "best_gini", rule="last"),
        ]
    )
    none = {"id": "FedGA-2", "unmeasured": "no data", "methods": ["AFL"]}
    two = EFFECT | {"metrics": ["mean_acc", "best_gini"]}
    entries = [ENTRY | {"effect": [two]}, ENTRY | none]
    better = s.assign(value=s.value * 2, tier="paper")
    for tables, tier, k in (([s], "small", 1), ([s, better], "paper", 2)):
        e = claims.effects(entries, pd.concat(tables))
        assert (
            list(e.metric) == ["mean_acc", "best_gini"] and e.evidence[0] == "not run"
        )
        row, d = e.iloc[1], k * (ours - other)
        ends = stats.t.interval(0.95, 2, d.mean(), stats.sem(d))
        assert np.allclose(
            [row.effect, row.effect_lo, row.effect_hi], [d.mean(), *ends]
        )
        assert (row.n_seeds, row.tier, row.data) == (3, tier, "synthetic")
        assert np.allclose([row.ours, row.other], [k * ours.mean(), k * other.mean()])
    t = claims.deviations(entries, e).set_index("key")
    assert list(t.status) == ["measured", "not measured"] and list(t.methods) == [
        "FedGA",
        "AFL",
    ]
    assert (
        t.effect["fedga-1"] == pytest.approx(d.mean())
        and t.evidence["fedga-2"] == "no data"
    )
    assert (t.metric["fedga-1"], t.dataset["fedga-1"]) == ("best_gini", PLACE)
    e = claims.effects(entries[:1], table({"FedAvg": [0.1]}))
    assert (
        set(e.evidence) == {"not run"}
        and claims.deviations(entries[:1], e).status.item() == "not run"
    )
    late = EFFECT | {"metrics": ["trigger_round"], "other": {"method": "FedGini"}}
    rounds = table(
        {"FedGA": [11, 14], "FedGini": [80, math.inf]}, "trigger_round", rule="run"
    )
    t = claims.deviations(
        late := [ENTRY | {"effect": [late]}], claims.effects(late, rounds)
    )
    assert (
        t.status.item() == "measured"
        and pd.isna(t.effect.item())
        and "1 of 2" in t.evidence.item()
    )


def test_malformed_deviations_are_refused_by_name(tmp_path):
    (tmp_path / "fedga").mkdir()
    shutil.copy(ROOT / "papers/fedga/paper.yaml", tmp_path / "fedga")
    path = tmp_path / "fedga/deviations.yaml"
    of = lambda **change: {"unmeasured": None, "effect": [EFFECT | change]}
    changes = [
        {},
        of(),
        {"effekt": 1},
        {"why": ""},
        {"id": "FedGA-3"},
        {"id": "FedAS-1"},
        {"mark": "sure"},
    ]
    changes += [
        {"unmeasured": None},
        {"effect": [EFFECT]},
        of(metrics=["gini"]),
        of(data=1),
    ]
    changes += [
        {"unmeasured": None, "effect": [{"dataset": "x"}]},
        of(ours={"methods": "A"}),
        of(ours={"rule": "last"}),
    ]
    for k, change in enumerate(changes):
        path.write_text(yaml.safe_dump([ENTRY | {"unmeasured": "x"} | change]))
        if k < 2:
            assert len(claims.read_deviations(tmp_path)) == 1
            continue
        with pytest.raises(ResultError, match="deviations.yaml"):
            claims.read_deviations(tmp_path)
    for text in ("- [", "a: 1"):
        path.write_text(text)
        with pytest.raises(ResultError, match="deviations.yaml"):
            claims.read_deviations(tmp_path)
    path.unlink()
    with pytest.raises(ResultError, match="deviations.yaml"):
        claims.read_deviations(tmp_path)


# ---------------------------------------------------------------- EquFL's tables
COLUMNS = [
    "method",
    "setting",
    "seed",
    "EO",
    "DP",
    "CAL",
    "CON",
    "accuracy",
    "positive_rate",
]
RUNS = [
    ("FedAvg", "", 0, 0.2, 0.4, 0.1, 0.0, 0.80, 0.3),
    ("FedAvg", "", 1, 0.4, 0.4, 0.1, 0.0, 0.90, 0.3),
    ("Gaussian-update", "", 0, 0.3, 0.4, 0.1, 0.0, 0.50, 0.03),
    ("Gaussian-update", "", 1, 0.3, 0.4, 0.1, 0.0, 0.50, 0.3),
    ("EquFL", "target=EO", 0, 0.1, 0.3, 0.1, 0.0, 0.79, 0.3),
    ("EquFL", "target=EO", 1, 0.2, 0.3, 0.1, 0.0, 0.90, 0.3),
    ("EquFL", "target=DP;source=real", 0, 0.1, 0.1, 0.1, 0.0, 0.79, 0.3),
    ("EquFL", "target=Sum", 0, 0.1, 0.1, 0.1, 0.0, 0.79, 0.3),
]


def test_which_run_stands_in_which_column():
    targets = papers.module("equfl", "targets")
    s = targets.rows(pd.DataFrame(RUNS, columns=COLUMNS).assign(dataset="toy"))
    assert list(dict.fromkeys(s.row)) == [
        "FedAvg",
        "Gaussian-update",
        "EquFL",
        "EquFL, real rows",
        "EquFL-Sum",
    ]
    judged = targets.aims(pd.concat([s, s.assign(EO=s.EO + 0.2)]))  # two evaluations
    by = judged.groupby("row").metric.agg(lambda v: " ".join(dict.fromkeys(v)))
    assert by["EquFL"] == "EO" and by["EquFL, real rows"] == "DP"
    assert by["FedAvg"] == by["EquFL-Sum"] == "EO DP CAL CON"
    assert np.allclose(
        judged[judged.row == "EquFL"].sort_values("seed").bias, [0.2, 0.3]
    )
    of = (
        targets.against(targets.aims(s))
        .set_index(["row", "metric", "seed"])
        .sort_index()
    )
    assert np.allclose(of.gain["EquFL", "EO"], [100 / 3, 200 / 3])
    assert (
        np.allclose(of.points["EquFL", "EO"], [-1, 0])
        and of.gain["FedAvg", "CON"].isna().all()
    )
    assert (
        list(of.constant["Gaussian-update", "DP"]) == [True, False]
        and not of.constant["FedAvg"].any()
    )
    means = (
        targets.summary(targets.against(targets.aims(s))).sort_index().loc["toy", "EO"]
    )
    assert np.isclose(means.gain["EquFL"], 50) and means.seeds["EquFL"] == 2
    ends = stats.t.interval(0.95, 1, 50, stats.sem([100 / 3, 200 / 3]))
    assert np.allclose([means.low["EquFL"], means.high["EquFL"]], ends)
    told = targets.told(means)
    assert told["ours"]["EquFL"] == "0.150" and "1 of 2" in told[""]["Gaussian-update"]
    with pytest.raises(ResultError, match="Median"):
        targets.against(targets.aims(s), "Median")


def test_rows_of_seeds_for_equfls_tables():
    targets = papers.module("equfl", "targets")
    runs = {
        "FedAvg": [0.2, 0.4],
        "EquFL|target=EO;q=1": [0.1, 0.2],
        "EquFL|target=DP": [0.3, 0.3],
    }
    s = pd.concat([table(runs, "EO"), table(runs, "accuracy")])
    own = targets.own(s)
    assert {*zip(own.method, own.setting, own.metric)} == {
        ("FedAvg", "", "EO"),
        ("EquFL", "q=1", "EO"),
    }
    t = targets.accuracies(s)
    assert {*zip(t.method, t.setting)} == {
        ("EquFL", "q=1;target=EO"),
        ("EquFL", "target=DP"),
        *(("FedAvg", f"target={m}") for m in targets.METRICS),
    }
    assert set(targets.transfer(s).method) == {"FedAvg", "EquFL-EO", "EquFL-DP"}
    gain = targets.improvements(own)
    assert np.allclose(gain.value, [100 / 3, 200 / 3]) and set(gain.method) == {"EquFL"}
    named = targets.called(own, {("EquFL", "q=1"): ("mine", "end")})
    assert {*zip(named.method, named.setting)} == {("mine", "end")}
    for f, args in (
        (targets.called, ({("EquFL", "z"): ("a", "b")},)),
        (targets.improvements, ("Median",)),
    ):
        with pytest.raises(ResultError):
            f(own, *args)


# ---------------------------------------------------------------- FedGA's theory
def test_fedgas_theory():
    theory = papers.module("fedga", "theory")
    example = theory.avgdiff_example(mean=0.7, gini=0.1, d_gini=-0.01, d_mean=0.01)
    assert example["example_delta_avgdiff"] == pytest.approx(
        2 * (0.1 * 0.01 - 0.7 * 0.01)
    )
    assert example["exact"] == pytest.approx(2 * (0.71 * 0.09 - 0.07))
    even = pytest.approx(0, abs=1e-12)
    assert theory.weight_bounds(20) == {
        "weight_bound_violations": 0,
        "alpha_one_deviation": even,
    }
    # the trigger asks for the mean of a window to fall by less than theta
    past = torch.ones(5) * 0.5
    for u, fired in ((0.5, True), (0.1, False)):
        assert (
            bool(theory.fedgini_trigger([torch.full((3,), u**0.5)] * 2, past, 0.05))
            == fired
        )
    assert not theory.fedga_trigger(
        torch.full((4,), 0.3), past, 0.05
    )  # Gini 0: it falls
    sizes = {"extra_upload_bytes": 4} | dict.fromkeys(theory.PARAMETERS, 8)
    times = pd.DataFrame(
        {
            "dataset": "cifar01",
            "method": "FedGA",
            "metric": "trigger_time_seconds",
            "seed": [0, 1],
            "value": 1.0,
        }
    )
    t = theory.rows({"alpha_one_deviation": 0.0}, example, sizes, times, "small")
    assert len(ledger.check(t, "seeds", ledger.read_reported())) == len(t)
    assert {*zip(t.study, t.tier)} == {("theory", "exact"), ("timing", "small")}
    assert set(t[t.metric == "model_bytes"].dataset) == set(
        theory.PARAMETERS
    ) and "exact" not in set(t.metric)
    P, m = theory.PARAMETERS["synthetic_0_0"]
    assert sum(math.prod(x.shape) for x in P.init(0).values()) == 610 and m == 10
    places = papers.module("fedga", "places")
    assert (
        places.short("paper")["cifar01"]
        == "CIFAR-10"
        != places.short("small")["cifar01"]
    )
    assert (
        set(places.short("paper"))
        == set(places.short("tiny"))
        == set(papers.main_datasets("fedga")) - {"none"}
    )


def test_a_round_is_a_loop_of_five_boxes():
    for paper in papers.found():
        if not (ROOT / f"papers/{paper}/workflow.py").exists():
            continue
        for name, steps in vars(papers.module(paper, "workflow")).items():
            if name.isupper():
                assert len(steps) == 5 and steps[0][0] == "server", name
                assert {who for who, *_ in steps} == {"server", "clients"}, name
                assert all(0 < x < 1 and 0 < y < 1 for *_, x, y in steps), name
                assert len({step[2:] for step in steps}) == 5, name


# ---------------------------------------------------------------- words beside a forest
def test_what_all_sentences_share_stands_above_once(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "book/_ext"))
    from fedeffects import told_apart

    said = [
        "Stored models of A have a higher mean than B: x, C = 1.",
        "New models of A have a higher sum than B: x, C = 1.",
        "Stored models of A have a higher mean than B: y, C = 1.",
    ]
    title, labels = told_apart(said)
    assert (
        all(w in title for w in ("models of A", "than B", "C = 1"))
        and len({*labels}) == 3
    )
    for sentence, label in zip(said, labels):
        assert all(w in sentence and w not in title for w in label.split(" · ")), label
    assert told_apart(["A beats B: x."]) == ("A beats B", ["x"]) and told_apart(
        ["A beats B."]
    ) == ("A beats B", [""])
    assert told_apart(["A wins", "B loses"]) == ("", ["A wins", "B loses"])
