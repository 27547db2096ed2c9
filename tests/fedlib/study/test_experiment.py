"""Studies: params.yaml -> cells -> runs that are made once."""

import json

import numpy as np
import pytest
import yaml

from fedlib import study
from fedlib.core import local, record
from fedlib.measures import metrics, selection
from fedlib.methods import METHODS
from fedlib.methods.make import make
from fedlib.pieces import robust
from fedlib.study import compute, experiment, results, studies
from repro import facts, papers

THEORY = papers.module("fedga", "theory")
SMALL = {
    "tier": "tiny",
    "fedga": {
        "alpha": 3,
        "tasks": {
            "synthetic_05_05": {
                "label": "two clients",
                "data": {
                    "name": "synthetic",
                    "alpha": 0.5,
                    "beta": 0.5,
                    "sizes": [60, 80, 70],
                },
                "network": {"name": "Linear"},
                "batch": 32,
                "train": {"lr": 0.05},
                "run": {"rounds": 4, "cohort": 2},
                "paper": {"run": {"rounds": 6, "cohort": 2}},
            }
        },
        "studies": {
            "book": {
                "main": {
                    "tasks": ["synthetic_05_05"],
                    "seeds": 2,
                    "methods": {
                        "FedAvg": {},
                        "FedGA": {"alpha": [1, "$alpha"]} | {"alpha": [1, 3]},
                        "FedGA_ablation": [{"alpha": "$alpha"}, {"alpha": 9}],
                    },
                }
            }
        },
    },
}


@pytest.fixture
def params(tmp_path):
    def write(change=None):
        tree = json.loads(json.dumps(SMALL))
        if change:
            change(tree)
        path = tmp_path / "params.yaml"
        path.write_text(yaml.safe_dump(tree, sort_keys=False))
        return path

    return write


def test_a_list_spans_a_grid_and_a_list_of_entries_is_variants(params):
    cells, _, tier = studies.cells("fedga", "main", params())
    assert tier == "tiny" and len(cells) == 2 * (1 + 2 + 2)
    named = {(c.method, c.setting): json.loads(c.kwargs).get("alpha") for c in cells}
    assert named == {
        ("FedAvg", ""): None,
        ("FedGA", "alpha=1"): 1,
        ("FedGA", "alpha=3"): 3,
        ("FedGA_ablation", "alpha=3"): 3,
        ("FedGA_ablation", "alpha=9"): 9,
    }


def test_tiers_change_sizes_and_ids(params):
    tiny, paper = (
        studies.cells("fedga", "main", params(), tier)[0] for tier in ("tiny", "paper")
    )
    assert [json.loads(c.engine)["rounds"] for c in (tiny[0], paper[0])] == [4, 6]
    assert len({c.id for c in tiny + paper}) == len(tiny + paper)
    assert [c.id for c in tiny] == [
        c.id for c in studies.cells("fedga", "main", params())[0]
    ]


@pytest.mark.parametrize(
    "break_it, says",
    [
        (
            lambda t: t["fedga"].update(alhpa=2),
            "fedga: unknown key 'alhpa'; did you mean 'alpha'?",
        ),
        (lambda t: t["fedga"].pop("alpha"), "uses $alpha, which is not given"),
        (
            lambda t: t.update(tier="huge"),
            "tier = 'huge': give one of tiny, small, paper",
        ),
        (
            lambda t: t["fedga"]["studies"]["book"]["main"].update(sedes=3),
            "main: unknown key 'sedes'; did you mean 'seeds'?",
        ),
        (
            lambda t: t["fedga"]["tasks"]["synthetic_05_05"].update(netwrok=1),
            "unknown key 'netwrok'; did you mean 'network'?",
        ),
        (
            lambda t: t["fedga"]["studies"]["book"]["main"]["methods"].update(
                FedGAA={}
            ),
            "'FedGAA'; did you mean 'FedGA'?",
        ),
        (
            lambda t: t["fedga"]["studies"]["book"]["main"].update(
                tasks=["synthetic_0_5"]
            ),
            "names the task 'synthetic_0_5'",
        ),
    ],
)
def test_a_misspelt_parameter_is_named(params, break_it, says):
    with pytest.raises(ValueError) as e:
        studies.cells("fedga", "main", params(break_it))
    assert says in str(e.value)


def test_yaml_that_is_none_and_a_study_that_is_none(params, tmp_path):
    bad = tmp_path / "bad.yaml"
    bad.write_text("tier: [small\n")
    with pytest.raises(ValueError, match="bad.yaml is not valid YAML"):
        studies.load(bad)
    with pytest.raises(ValueError, match="has no 'mian'; did you mean 'main'"):
        studies.cells("fedga", "mian", params())


def test_every_study_of_the_repository_can_be_built_at_every_tier(monkeypatch):
    loaded = studies.load()
    monkeypatch.setattr(studies, "load", lambda *path: loaded)  # it is read once
    for paper in ("fedga", "fedas", "equfl"):
        for name in studies.load()[paper]["studies"]:
            for tier in study.TIERS:
                cells, _, _ = studies.cells(paper, name, tier=tier)
                assert cells and len(set(cells)) == len(cells)
                for c in cells:
                    # every name and value is permitted
                    make(c.method, None, **json.loads(c.kwargs))


def test_a_finished_study_is_read_not_run(params, tmp_path, monkeypatch):
    path = params()
    first = experiment.study(
        "fedga", "main", path=path, runs=tmp_path / "runs", workers=1
    )
    monkeypatch.setattr(compute.engine, "run", lambda *a, **k: pytest.fail("ran again"))
    again = experiment.study(
        "fedga", "main", path=path, runs=tmp_path / "runs", workers=1
    )
    for a, b in zip(first.records, again.records):
        assert np.array_equal(a["pre", "global", "test"], b["pre", "global", "test"])
    assert set(first.tiers) == {"tiny"}
    rows = first.seeds(rules=("best_val", "last"))
    one = rows[
        (rows.method == "FedAvg")
        & (rows.seed == 1)
        & (rows.metric == "mean_acc")
        & (rows.rule == "last")
    ]
    assert one.value.item() == pytest.approx(
        100
        * first.of(method="FedAvg", seed=1)[0][1]["pre", "global", "test"][-1].mean()
    )


def test_two_processes_give_the_same_numbers_as_one(params, tmp_path):
    path = params()
    one, two = (
        experiment.study(
            "fedga", "main", path=path, runs=tmp_path / f"runs{n}", workers=n
        )
        for n in (1, 2)
    )
    assert all(
        np.array_equal(a["pre", "global", "val"], b["pre", "global", "val"])
        for a, b in zip(one.records, two.records)
    )


def test_cells_with_the_papers_sizes_say_so(params, tmp_path):
    def same(tree):
        tree["fedga"]["tasks"]["synthetic_05_05"].pop("paper")

    done = experiment.study(
        "fedga", "main", path=params(same), runs=tmp_path / "runs", workers=1
    )
    assert set(done.tiers) == {"paper"} and set(done.seeds().tier) == {"paper"}


def test_settings_of_the_paper_are_declared_not_measured():
    table = results.declared("fedga").set_index(["dataset", "metric"]).value
    assert (
        table["synthetic_05_05", "rounds"] == 200
        and table["office10_resnet18", "learning_rate"] == 0.1
    )
    assert (
        table["cifar01", "dirichlet_concentration"] == 0.1
        and table["synthetic_0_0", "runs"] == 5
    )


def test_theory_agrees_with_the_paper():
    even = pytest.approx(0, abs=1e-12)
    assert THEORY.weight_bounds(200) == {
        "weight_bound_violations": 0,
        "alpha_one_deviation": even,
    }
    example = THEORY.avgdiff_example(mean=0.70, gini=0.10, d_gini=-0.01, d_mean=0.01)
    assert example["example_delta_avgdiff"] == pytest.approx(-0.012) and example[
        "exact"
    ] == pytest.approx(-0.0122)
    assert THEORY.upload_bytes()["extra_upload_bytes"] == 4
    assert facts.size(THEORY.PARAMETERS["office10_alexnet"][0]) == 12_974_154


def test_every_method_is_in_the_table_of_messages():
    table = facts.messages()
    assert set(table.method) == set(METHODS) and (table.bytes > 0).all()
    w = table[table.method == "FedAvg"].set_index(["direction", "name"]).bytes
    assert w["up", "w"] == w["down", "w"] == 4 * (64 * 32 + 32 + 32 * 10 + 10)


def test_selection_rules_pick_the_rounds_they_name():
    val, test = (
        np.array([[0.2], [0.9], [0.9], [0.1]]),
        np.array([[0.5], [0.3], [0.4], [0.8]]),
    )
    r = record.Record(
        {"n": {"test": [7]}},
        np.arange(4),
        {("pre", "global", "val"): val, ("pre", "global", "test"): test},
    )
    # Gini needs two clients
    rules = {n: rule for n, rule in selection.RULES.items() if n != "best_val_gini"}
    value = {
        n: selection.select(r, metrics.mean_acc, rule) for n, rule in rules.items()
    }
    assert value == {
        "last": 0.8,
        "last10_mean": 0.8,
        "best_val": 0.3,
        "best_round_test": 0.8,
        "best_round_pooled": 0.8,
    }


def test_rules_at_the_moment_after_training():
    """After the last round nobody trains: "post" has one evaluation fewer, and "the
    last ten" are rounds, not evaluations.
    """

    def run(rounds):
        pre = np.linspace(0, 1, len(rounds))[:, None]
        return record.Record(
            {"n": {"test": [7]}},
            rounds,
            {("pre", "own", "test"): pre, ("post", "own", "test"): pre[:-1]},
        )

    full, short, sparse = (
        run(np.arange(41)),
        run(np.arange(13)),
        run(np.arange(0, 101, 5)),
    )
    assert selection.last(full, "own", "post") == [39] and selection.last(
        full, "own"
    ) == [40]
    assert selection.last10_mean(full, "own", "post").tolist() == list(range(30, 40))
    assert selection.last10_mean(full, "own").tolist() == list(range(31, 41))
    # a quarter of twelve rounds
    assert selection.last10_mean(short, "own").tolist() == [10, 11, 12]
    assert selection.last10_mean(short, "own", "post").tolist() == [9, 10, 11]
    # rounds 95 and 100
    assert selection.last10_mean(sparse, "own").tolist() == [19, 20]


def test_the_pooled_rule_counts_rows_and_the_other_counts_clients():
    test = np.array([[0.9, 0.1], [0.2, 0.7]])  # a large and a small client
    r = record.Record(
        {"n": {"test": [90, 10]}}, np.arange(2), {("pre", "global", "test"): test}
    )
    assert selection.best_round_test(r) == [0] and selection.best_round_pooled(r) == [0]
    r.views["pre", "global", "test"] = np.array([[0.9, 0.1], [0.4, 0.8]])
    assert selection.best_round_test(r) == [1] and selection.best_round_pooled(r) == [0]
    assert metrics.pooled_acc(
        r["pre", "global", "test"], [90, 10]
    ).tolist() == pytest.approx([0.82, 0.44])


# ---------------------------------------------------------------- grids of a task
def gridded(t):
    del t["fedga"]["alpha"]
    t["fedga"]["tasks"]["synthetic_05_05"]["batch"] = {"grid": [8, 16], "as": "B"}
    t["fedga"]["tasks"]["synthetic_05_05"]["run"] = {
        "rounds": {"grid": [4, 2], "as": "B"},
        "online": {"grid": [0.5, 1], "as": "P"},
    }
    t["fedga"]["studies"]["book"]["main"]["methods"] = {"FedAvg": {}}


def test_entries_of_one_axis_advance_together(params):
    cells, _, _ = studies.cells("fedga", "main", params(gridded))
    at = {
        c.setting: (
            json.loads(c.task)["batch"],
            json.loads(c.engine)["rounds"],
            json.loads(c.engine)["online"],
        )
        for c in cells
    }
    assert at == {
        "B=8;P=0.5": (8, 4, 0.5),
        "B=8;P=1": (8, 4, 1),
        "B=16;P=0.5": (16, 2, 0.5),
        "B=16;P=1": (16, 2, 1),
    }


def test_axes_of_different_length_are_named(params):
    def uneven(t):
        gridded(t)
        t["fedga"]["tasks"]["synthetic_05_05"]["batch"]["grid"] = [8, 16, 32]

    with pytest.raises(
        ValueError,
        match=(
            r"the axis 'B' has lists of 3 and 2 values: batch, run.rounds "
            r"advance together"
        ),
    ):
        studies.cells("fedga", "main", params(uneven))
    with pytest.raises(
        ValueError, match="batch: unknown key 'gird'; did you mean 'grid'"
    ):
        studies.cells(
            "fedga",
            "main",
            params(
                lambda t: t["fedga"]["tasks"]["synthetic_05_05"].update(
                    batch={"grid": [8], "gird": [9]}
                )
            ),
        )


def test_a_share_of_clients_is_online(params, tmp_path):
    def change(t):
        del t["fedga"]["alpha"]
        t["fedga"]["tasks"]["synthetic_05_05"]["run"] = {
            "rounds": 4,
            "online": 0.7,
            "every": 2,
        }
        t["fedga"]["studies"]["book"]["main"] |= {
            "methods": {"FedAvg": {}},
            "seeds": 1,
        }

    path = params(change)
    done = experiment.study(
        "fedga", "main", path=path, runs=tmp_path / "runs", workers=1
    )
    ((_, avg),) = done.of(method="FedAvg")
    assert avg.logs["cohort"].shape == (4, 2) and avg.rounds.tolist() == [0, 2, 4]


def test_data_that_a_paper_did_not_use_stand_in_for_its_own():
    assert (
        studies.kind_of("digits") == "real"
        and studies.kind_of("digits", "cifar10") == "stand-in"
    )
    assert (
        studies.kind_of("synthetic", "synthetic") == "synthetic"
        and studies.kind_of("cifar10", "cifar10") == "real"
    )
    assert {c.data for c in studies.cells("fedas", "grid", tier="small")[0]} == {
        "stand-in"
    }
    assert {c.data for c in studies.cells("fedas", "digits", tier="small")[0]} == {
        "real"
    }


def test_each_method_is_judged_as_the_study_says(params, tmp_path):
    def change(t):
        del t["fedga"]["alpha"]
        t["fedga"]["tasks"]["synthetic_05_05"] |= {
            "network": {"name": "MLP", "hidden": 4}
        }
        t["fedga"]["studies"]["book"]["main"] |= {
            "methods": {"FedAvg": {}, "FedPer": {}},
            "seeds": 1,
            "look": {"FedPer": ["post", "personal"]},
        }

    done = experiment.study(
        "fedga", "main", path=params(change), runs=tmp_path / "runs", workers=1
    )
    top = lambda a, n: 100 * metrics.pooled_acc(a, n)  # noqa: E731
    rows = done.seeds({"top1_acc_pct": top}, ("last",)).set_index("method").value
    (_, avg), (_, per) = done.of(method="FedAvg")[0], done.of(method="FedPer")[0]
    assert rows["FedAvg"] == pytest.approx(
        top(avg["pre", "global", "test"][-1], avg.meta["n"]["test"])
    )
    assert rows["FedPer"] == pytest.approx(
        top(per["post", "personal", "test"][-1], per.meta["n"]["test"])
    )
    t, y = done.curve("synthetic_05_05", "FedPer")
    assert (
        t.tolist() == [1, 2, 3, 4]
        and y.shape == (1, 4)
        and y[0, -1] == pytest.approx(rows["FedPer"])
    )
    assert done.curve("synthetic_05_05", "FedAvg")[0].tolist() == [0, 1, 2, 3, 4]


def test_an_axis_may_be_called_by_the_papers_number(params):
    def called(t):
        gridded(t)
        t["fedga"]["tasks"]["synthetic_05_05"]["run"]["rounds"] |= {
            "called": [200, 100]
        }

    assert {c.setting for c in studies.cells("fedga", "main", params(called))[0]} == {
        "B=200;P=0.5",
        "B=200;P=1",
        "B=100;P=0.5",
        "B=100;P=1",
    }


def test_a_value_may_depend_on_the_tier(params):
    def by_tier(t):
        by = {"tiny": 2, "small": 5, "paper": 7}
        t["fedga"]["studies"]["book"]["main"]["methods"] = {
            "FedGA": {"alpha": dict(by)},
            "FedGA_ablation": [{"alpha": by}, {"alpha": by, "lr": 1}],
        }
        del t["fedga"]["alpha"]

    got = {
        tier: studies.cells("fedga", "main", params(by_tier), tier)[0][0]
        for tier in ("tiny", "paper")
    }
    assert [json.loads(c.kwargs)["alpha"] for c in got.values()] == [2, 7] and {
        c.setting for c in got.values()
    } == {""}
    variants = {
        c.setting
        for c in studies.cells("fedga", "main", params(by_tier), "tiny")[0]
        if c.method == "FedGA_ablation"
    }
    assert variants == {"", "lr=1"}  # what the tier sets is no variant

    def incomplete(t):
        by_tier(t)
        del t["fedga"]["studies"]["book"]["main"]["methods"]["FedGA"]["alpha"]["small"]

    with pytest.raises(
        ValueError,
        match=(
            "alpha = .* has no value for tier small; give one for each of tiny, "
            "small, paper"
        ),
    ):
        studies.cells("fedga", "main", params(incomplete), "small")


def test_views_are_named_as_the_paper_names_them(params, tmp_path):
    def ditto(t):
        del t["fedga"]["alpha"]
        t["fedga"]["studies"]["book"]["main"]["methods"] = {
            "FedAvg": {},
            "Ditto": [{}, {"lam": 0.5}],
        }

    done = experiment.study(
        "fedga", "main", path=params(ditto), runs=tmp_path / "runs", workers=1
    )
    names, measure = (
        {"global": "global model", "personal": "own model"},
        {"acc_mean_pct": results.TAILS["acc_mean_pct"]},
    )
    s = done.views(names, measure, ("last",))
    assert set(s.setting[s.method == "FedAvg"]) == {"global model"}  # it has no other
    assert set(s.setting[s.method == "Ditto"]) == {
        "global model",
        "own model",
        "global model;lam=0.5",
        "own model;lam=0.5",
    }
    want = (
        100
        * done.of(method="Ditto", setting="lam=0.5", seed=1)[0][1][
            "pre", "personal", "test"
        ][-1].mean()
    )
    assert s[
        (s.setting == "own model;lam=0.5") & (s.seed == 1)
    ].value.item() == pytest.approx(want)


def test_the_lowest_twentieth_is_a_mean_of_a_group():
    a = np.arange(40)[None] / 40
    assert results.TAILS["acc_lowest5_pct"](a) == pytest.approx(100 * 0.5 / 40)
    assert results.TAILS["acc_lowest20_pct"](a) == pytest.approx(100 * 3.5 / 40)
    assert results.TAILS["acc_top5_pct"](a) == pytest.approx(100 * 38.5 / 40)


# ------------------------------------------------ pieces, wrappers and what they change
def test_pieces_and_wrapped_methods_may_be_given_by_name():
    assert (
        make("FedAvg", None, rule="Median").rule == robust.Median()
        and make("FedAvg", None, step="SAM").step == local.SAM()
    )
    assert make(
        "FedAvg", None, rule={"name": "TrimmedMean", "trim": 0.2}
    ).rule == robust.TrimmedMean(0.2)
    assert make(
        "FedAvg", None, step={"name": "Private", "sigma": 0.5}
    ).step == local.Private(1.0, 0.5)
    assert make("FedAvg", None, rule=robust.Median()).rule == robust.Median()
    assert set(robust.RULES) == {
        "Mean",
        "Median",
        "TrimmedMean",
        "MultiKrum",
        "DeepSight",
    } and set(local.STEPS) == {"Plain", "SAM", "Private"}
    m = make("EquFL", None, lr=0.3, batches=4, rule="Median", target="DP", size=20)
    assert type(m.inner) is METHODS["FedAvg"] and (
        m.inner.lr,
        m.inner.batches,
        m.inner.rule,
    ) == (0.3, 4, robust.Median())
    assert (
        (m.target, m.size, m.lam) == ("DP", 20, 1.0)
        and m.plans() == m.inner.plans()
        and m.plans()["train"].steps == 4
    )
    assert (
        type(make("EquFL", None, inner="FedProx", mu=0.4).inner) is METHODS["FedProx"]
    )
    # both have a lam
    m = make("EquFL", None, inner={"name": "Ditto", "lam": 3.0}, lam=0.5, lr=0.2)
    assert (m.lam, m.inner.lam, m.inner.lr) == (0.5, 3.0, 0.2)
    inner = make(
        "EquFL", None, inner={"name": "FedAvg", "rule": "Median", "lr": 0.7}, lr=0.2
    ).inner
    assert (inner.lr, inner.rule) == (0.7, robust.Median())  # what is nearer counts
    assert [make("FedAvg", None, batches=n).plans()["train"].steps for n in (3, 0)] == [
        3,
        None,
    ]
    assert all(
        make(name, None, poisson=True).plans()["train"].poisson
        for name in ("FedAvg", "EquFL")
    )


def test_settings_in_words():
    word, settings = studies.word, studies.settings
    assert word("alpha", 5) == "alpha=5" and word("rule", "Median") == "rule=Median"
    assert (
        word("rule", {"name": "DeepSight", "inputs": 200}) == "rule=DeepSight"
        and word("step", "SAM") == "step=SAM"
    )
    assert word("step", {"name": "Private", "sigma": 0.5}) == "sigma=0.5"
    assert (
        word("step", {"name": "Private", "sigma": 0.5, "clip": 2}) == "sigma=0.5;clip=2"
    )
    steps = [{"name": "Private", "sigma": s} for s in (0.5, 1.0)]
    assert settings({"step": steps, "poisson": True}, {}) == [
        ("sigma=0.5", {"step": steps[0], "poisson": True}),
        ("sigma=1.0", {"step": steps[1], "poisson": True}),
    ]
    rules = ["Median", {"name": "DeepSight", "inputs": 200}]
    assert [
        (n, kw["rule"]) for n, kw in settings({"rule": rules, "lam": [1, 2]}, {})
    ] == [
        ("rule=Median;lam=1", "Median"),
        ("rule=Median;lam=2", "Median"),
        ("rule=DeepSight;lam=1", rules[1]),
        ("rule=DeepSight;lam=2", rules[1]),
    ]


def test_every_setting_has_a_name_of_its_own():
    """A step without values of its own goes by its name."""
    names = [
        n
        for n, _ in studies.settings(
            {"step": [{"name": "Plain"}, {"name": "SAM"}, {"name": "SAM", "rho": 0.1}]},
            {},
        )
    ]
    assert len(set(names)) == 3 and all(names)


def test_a_constant_may_depend_on_the_tier():
    paper = {"size": {"tiny": 60, "small": 100, "paper": 1000}, "J": 5}
    for tier in study.TIERS:
        got = studies.settings(
            {"target": ["EO", "DP"], "size": "$size", "J": "$J"}, paper, tier
        )
        assert got == [
            (f"target={t}", {"target": t, "size": paper["size"][tier], "J": 5})
            for t in ("EO", "DP")
        ]
    variants = studies.settings(
        [{"size": "$size", "J": 7}, {"size": 30}], paper, "small"
    )
    assert variants == [("J=7", {"size": 100, "J": 7}), ("size=30", {"size": 30})]


def test_a_piece_alone_is_no_value_by_tier():
    for k, v in (
        ("rule", {"name": "DeepSight", "inputs": 200}),
        ("inner", {"name": "FedProx", "mu": 0.1}),
        ("step", {"name": "Private", "sigma": 0.5}),
    ):
        assert studies.settings({k: v}, {}, "small") == [("", {k: v})]


PEOPLE = {
    "tier": "tiny",
    "equfl": {
        "size": {"tiny": 12, "small": 60, "paper": 1000},
        "tasks": {
            "Income-Sex": {
                "label": "survey",
                "data": {"name": "acs", "task": "income", "group": "sex"},
                "network": {"name": "MLP", "hidden": 4},
                "batch": 16,
                "train": {"lr": 0.1, "batches": 2},
                "parts": [1.0, 0.0, 0.0],
                "run": {"rounds": 4, "splits": ["test"], "how": "vmap"},
                "tiny": {
                    "data": {
                        "name": "census",
                        "task": "income",
                        "group": "sex",
                        "clients": 3,
                        "n_mean": 60,
                        "n_test": 40,
                    }
                },
            }
        },
        "studies": {
            "tables": {
                "census": {
                    "tasks": ["Income-Sex"],
                    "seeds": 1,
                    "methods": {
                        "FedAvg": {"rule": ["Median"]},
                        "EquFL": {
                            "target": ["EO", "DP"],
                            "size": "$size",
                            "net": "same",
                            "outer": 2,
                            "J": 2,
                        },
                    },
                }
            }
        },
    },
}


@pytest.fixture
def people(tmp_path):
    path = tmp_path / "params.yaml"
    path.write_text(yaml.safe_dump(PEOPLE, sort_keys=False))
    return experiment.study(
        "equfl", "census", path=path, runs=tmp_path / "runs", workers=1
    )


def test_a_study_of_groups(people):
    """Bias of the pooled test rows, in words and numbers; `how` is passed on and part
    of the run.
    """
    assert {(c.method, c.setting, c.data) for c in people.cells} == {
        ("FedAvg", "rule=Median", "stand-in"),
        ("EquFL", "target=EO", "stand-in"),
        ("EquFL", "target=DP", "stand-in"),
    }
    assert all(
        json.loads(c.engine)["how"] == "vmap" == r.meta["how"]
        for c, r in zip(people.cells, people.records)
    )
    assert all(
        json.loads(c.kwargs)["size"] == 12 for c in people.cells if c.method == "EquFL"
    )
    rows = people.biases(("last", "last10_mean"))
    assert set(rows.metric) == {*results.BIAS, "CON", "accuracy"} and set(
        rows.rule
    ) == {"last", "last10_mean"}
    ((_, rec),) = people.of(method="FedAvg")
    one = (
        rows[(rows.method == "FedAvg") & (rows.rule == "last")]
        .set_index("metric")
        .value
    )
    n, s = (
        rec.cells["pre", "global", "test"][-1].sum(0),
        rec.consistency["pre", "global"][-1].sum(0),
    )
    rate = n[..., 1] / n.sum(-1)  # P(yhat = 1 | a, y)
    gaps = abs(rate[0] - rate[1])
    assert one["EO"] == pytest.approx(gaps.max()) and one["EO_sum"] == pytest.approx(
        gaps.sum()
    )
    assert one["DP"] == pytest.approx(
        abs(np.subtract(*(n[..., 1].sum(-1) / n.sum((-1, -2)))))
    )
    assert one["accuracy"] == pytest.approx((n[:, 0, 0] + n[:, 1, 1]).sum() / n.sum())
    assert one["CON"] == pytest.approx(s[0] / s[1])
    last = rows[
        (rows.method == "FedAvg")
        & (rows.rule == "last10_mean")
        & (rows.metric == "accuracy")
    ].value.item()
    acc = (
        rec["pre", "global", "test"]
        @ np.array(rec.meta["n"]["test"])
        / sum(rec.meta["n"]["test"])
    )
    assert last == pytest.approx(acc[selection.last10_mean(rec)].mean())


def test_a_study_of_groups_has_a_table_of_its_hyper_parameters(people):
    table = results.hyper_table(people.cells).set_index("setting").used
    assert (
        "target = EO" in table["target=EO"]
        and "size = 12" in table["target=EO"]
        and "Median" in table["rule=Median"]
    )


def test_how_a_run_is_executed_may_be_set_by_a_study(people, tmp_path):
    tree = json.loads(json.dumps(PEOPLE))
    del tree["equfl"]["size"]
    tree["equfl"]["studies"]["tables"]["census"] |= {
        "how": "loop",
        "methods": {"FedAvg": {"rule": ["Median"]}},
    }
    path = tmp_path / "loop.yaml"
    path.write_text(yaml.safe_dump(tree, sort_keys=False))
    loop = experiment.study(
        "equfl", "census", path=path, runs=tmp_path / "runs", workers=1
    )
    (a, ra), (b, rb) = people.of(method="FedAvg")[0], loop.of(method="FedAvg")[0]
    assert a.id != b.id and rb.meta["how"] == "loop"
    assert np.allclose(
        ra["pre", "global", "test"], rb["pre", "global", "test"], atol=0.05
    )
