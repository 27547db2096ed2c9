"""The parameters of a study as cells: tiers, knobs, grids, seeds, and the tables that
are made of them alone.
"""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toys_study import PARAMS, book, cell, write

from fedlib.data import tasks
from fedlib.methods import METHODS
from fedlib.methods.make import make
from fedlib.study import TIERS, checks, parameters, results, studies
from fedlib.study.seeds import DRAWS, PILOT, added, data_of, grown, seeds_of


def cells(folder, name="main", tier=None, change=lambda toy: None, **more):
    return studies.cells("toy", name, write(folder, change), tier, **more)[0]


def all_changes(*some):
    def change(toy):
        for one in some:
            one(toy)

    return change


# ---------------------------------------------------------------- what a study spans
def test_a_study_is_tasks_times_methods_times_seeds(tmp_path):
    run = {"rounds": 3, "cohort": 2}
    got = {(c.dataset, c.method, c.setting, c.seed): c for c in cells(tmp_path, "more")}
    want = itertools.product(("near", "far"), ("mu=0.1", "mu=1.0"), (0, 3))
    assert list(got) == [(d, "FedProx", mu, s) for d, mu, s in want]
    for (dataset, _, mu, _), c in got.items():
        assert c.label == {"near": "three clients", "far": "others"}[dataset]
        data = PARAMS["toy"]["tasks"]["near"]["data"]
        alpha = {"near": 0.5, "far": 1}[dataset]
        network = {"name": "Linear"}
        assert json.loads(c.task) == {
            "data": data | {"alpha": alpha},
            "network": network,
        }
        assert json.loads(c.kwargs) == {"lr": 0.05, "mu": float(mu[3:])}
        assert json.loads(c.engine) == {"every": 1} | run
        assert c.data == "synthetic" and c.mine == ""
    knob = {c.method: json.loads(c.kwargs).get("alpha") for c in cells(tmp_path)}
    assert knob == {"FedAvg": None, "FedGA": 3}
    rounds = {t: json.loads(cells(tmp_path, tier=t)[0].engine)["rounds"] for t in TIERS}
    assert rounds == {"tiny": 3, "small": 3, "paper": 5}
    assert all(json.loads(c.engine)["microscope"] for c in cells(tmp_path))


def test_what_is_nearer_goes_before(tmp_path):
    """A method's own value before the task's, the study's run before the task's, what
    the study says of one task before both, a reader's change before the study.
    """
    own = {"near": {"run": {"rounds": 8}, "network": {"name": "MLP", "hidden": 4}}}
    change = book(main={"every": 4, "cohort": 3, "methods": {"FedAvg": {"lr": 7.0}}})
    (c, *_) = cells(tmp_path, change=change)
    assert json.loads(c.kwargs)["lr"] == 7.0
    assert json.loads(c.engine) == {
        **{"every": 4, "rounds": 3, "cohort": 3, "microscope": True}
    }
    (c, *rest) = cells(tmp_path, change=all_changes(change, book(main={"tasks": own})))
    assert json.loads(c.engine)["rounds"] == 8 and json.loads(c.engine)["cohort"] == 3
    assert json.loads(c.task)["network"] == {"name": "MLP", "hidden": 4}
    (c,) = cells(tmp_path, change=change, seeds=[5], every=2)
    assert c.seed == 5 and json.loads(c.engine)["every"] == 2
    some = cells(tmp_path, "more", without={"FedProx": ["far"]})
    assert {c.dataset for c in some} == {"near"}
    tier = book(main={"paper": {"seeds": 1, "tasks": ["far"]}})
    assert {
        (c.dataset, c.seed) for c in cells(tmp_path, tier="paper", change=tier)
    } == {("far", 0)}
    assert len(cells(tmp_path, change=tier)) == 4


def test_a_tasks_grid_spans_axes_that_advance_together(tmp_path):
    def grid(toy):
        near = toy["tasks"]["near"]
        near["batch"] = {"grid": [8, 16], "as": "B"}
        near["data"]["sizes"] = {
            "grid": [[30, 40], [50, 60]],
            "as": "B",
            "called": [1, 9],
        }
        near["run"] = {"rounds": 3, "online": {"grid": [0.5, 1]}}
        del near["paper"], toy["tasks"]["far"]
        toy["studies"]["book"]["more"]["tasks"] = ["near"]

    some = cells(tmp_path, "more", change=grid, seeds=1)
    at = {
        c.setting: (
            json.loads(c.task)["batch"],
            json.loads(c.task)["data"]["sizes"],
            json.loads(c.engine)["online"],
        )
        for c in some
    }
    want = {}
    for called, batch, sizes in ((1, 8, [30, 40]), (9, 16, [50, 60])):
        for online, mu in itertools.product((0.5, 1), (0.1, 1.0)):
            want[f"B={called};online={online};mu={mu}"] = batch, sizes, online
    assert at == want

    def uneven(toy):
        grid(toy)
        toy["tasks"]["near"]["batch"]["grid"].append(32)

    with pytest.raises(ValueError, match="'B'.*batch"):
        cells(tmp_path, change=uneven)


values = st.one_of(st.integers(0, 9), st.sampled_from(["a", "b"]))


@given(
    st.dictionaries(st.sampled_from("pqr"), st.lists(values, min_size=1, max_size=3))
)
def test_lists_span_a_grid_in_order(entry):
    got = studies.settings(entry, {})
    points = [dict(zip(entry, v)) for v in itertools.product(*entry.values())]
    names = [";".join(f"{k}={v}" for k, v in p.items()) for p in points]
    assert got == list(zip(names, points))
    single = {k: v[0] for k, v in entry.items()}
    assert studies.settings(single, {}) == [("", single)]
    both = studies.settings([single, {"z": 1}], {})
    assert both == [(names[0], single), ("z=1", {"z": 1})]


def test_a_value_by_tier_task_or_point_is_no_variant():
    by = {
        t: {"near": {"g=1": 10 * i + 1, "g=2": [3, 4]}, "far": 5 + i}
        for i, t in enumerate(TIERS)
    }
    here = {"tasks": ("near", "far")}
    for i, tier in enumerate(TIERS):
        at = lambda task, point, t=tier: studies.settings(
            [{"mu": "$mu", "a": 1}, {"mu": 2}], {"mu": by}, t, task, point=point, **here
        )
        assert at("near", "g=1") == [
            ("a=1", {"mu": 10 * i + 1, "a": 1}),
            ("mu=2", {"mu": 2}),
        ]
        assert [s for s, _ in at("near", "g=2")] == ["mu=3;a=1", "mu=4;a=1", "mu=2"]
        assert at("far", "")[0] == ("a=1", {"mu": 5 + i, "a": 1})
    bad = [
        {"tiny": 1},
        {"near": 1, "tiny": 2},
        {"nera": 1},
        {"near": 1},
        {"g=1": 1},
        {},
    ]
    for v in bad:
        with pytest.raises(ValueError, match="mu"):
            studies.settings({"mu": v}, {}, "small", "far", **here)
    piece = {"rule": {"name": "DeepSight", "inputs": 200}}
    assert studies.settings(piece, {}, "small") == [("", piece)]


def test_pieces_in_a_setting():
    steps = [{"name": "Plain"}, {"name": "SAM", "rho": 0.1}]
    steps += [{"name": "Private", "sigma": 0.5, "clip": 2}, "SAM"]
    rules = ["Median", {"name": "DeepSight", "inputs": 200}]
    got = [s for s, _ in studies.settings({"step": steps, "rule": rules}, {})]
    words = ["step=Plain", "rho=0.1", "sigma=0.5;clip=2", "step=SAM"]
    both = itertools.product(words, ["rule=Median", "rule=DeepSight"])
    assert got == [";".join(two) for two in both]


def test_values_by_tier_and_inheritance():
    plain = {"a": {"tiny": 1, "small": [2], "paper": 3}, "b": [{"c": 4}], "methods": 5}
    spec = plain | {"small": {"b": 6}, "paper": None}
    small, paper = (parameters.tiered(spec, t) for t in ("small", "paper"))
    assert small == {"a": [2], "b": 6, "methods": 5}
    assert paper == {"a": 3, "b": [{"c": 4}], "methods": 5}
    merged = parameters.merged
    assert merged({"a": {"x": 1, "y": 2}, "b": 3}, {"a": {"x": 9}, "b": None}) == {
        "a": {"x": 9, "y": 2}
    }
    assert merged({"a": {"name": "p", "x": 1}}, {"a": {"name": "q"}}) == {
        "a": {"name": "q"}
    }
    by = {"tiny": 3, "paper": 4}
    assert merged({"a": {"k": 5}}, {"a": by}) == {"a": by}


def test_runs_that_are_alike_or_cannot_be_are_refused(tmp_path):
    twice = book(main={"methods": {"FedAvg": [{"lr": 1}, {"lr": 1}]}})
    bad = [
        (twice, "FedAvg"),
        (book(main={"methods": {"FedAvgg": {}}}), "FedAvgg"),
        (book(main={"methods": {"FedAvg": {"lr": -1}}}), "lr"),
        (book(main={"tasks": ["naer"]}), "naer"),
        (book(main={"paper": {"tasks": ["naer"]}}), "naer"),
        (lambda toy: toy["tasks"]["near"]["run"].pop("rounds"), "rounds"),
        (book(main={"without": {"FedAvg": ["near"], "FedGA": ["near"]}}), "main"),
        (lambda toy: toy["studies"]["book"]["main"].pop("seeds"), "seeds"),
    ]
    for change, name in bad:
        with pytest.raises(ValueError, match=name):
            cells(tmp_path, change=change)
    for asked, name in ((("toy", "mian"), "mian"), (("yot", "main"), "yot")):
        with pytest.raises(ValueError, match=name):
            studies.cells(*asked, write(tmp_path))
    with pytest.raises(ValueError, match="huge"):
        studies.cells("toy", "main", write(tmp_path), "huge")
    with pytest.raises(ValueError, match="x has no runs"):
        checks.check_cells([], "x")
    for c in cells(tmp_path):
        make(c.method, None, **json.loads(c.kwargs))


def test_data_that_a_paper_did_not_use_stand_in_for_its_own(tmp_path):
    kinds = [("digits", None, "real"), ("digits", "cifar10", "stand-in")]
    kinds += [("census", "census", "synthetic"), ("glyphs", "glyphs", "stand-in")]
    for source, papers, kind in kinds:
        assert studies.kind_of(source, papers) == kind
    deep = {"name": "features", "data": {"name": "features", "data": {"name": "adult"}}}
    assert studies.root(deep) == "adult" and studies.root({"name": "mnist"}) == "mnist"
    change = lambda toy: toy["tasks"]["near"]["paper"].update(data={"name": "digits"})
    assert {c.data for c in cells(tmp_path, change=change)} == {"stand-in"}


# ---------------------------------------------------------------- seeds
def test_seeds_are_counted_named_or_pilots():
    assert seeds_of(3, "x") == [0, 1, 2] and seeds_of([7, 0, 3], "x") == [7, 0, 3]
    assert seeds_of({"pilot": 3}, "x") == [PILOT, PILOT + 1, PILOT + 2]
    bad = [0, -1, True, "5", [], [0, 0], [0, -1], [0, True], [0.5], 2.0, None, {}]
    bad += [{"pilots": 3}, {"pilot": 0}, {"pilot": True}, {"pilot": 2, "x": 1}]
    bad += [[0, PILOT], PILOT + 1, 10**9, {"pilot": PILOT + 1}]
    for v in bad:
        with pytest.raises(ValueError, match="^here: seeds = "):
            seeds_of(v, "here")
    assert len(seeds_of(PILOT, "x")) == PILOT == len(seeds_of({"pilot": PILOT}, "x"))


@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=6, unique=True),
    st.integers(1, 40),
)
def test_grown_seeds_come_after_the_own_ones_and_are_new(own, n):
    got = grown(own, n, "x")
    assert got[: len(own)] == own and len(got) == max(n, len(own))
    fresh = got[len(own) :]
    rest = [s for s in range(min(own), 200) if s not in own]
    assert fresh == rest[: len(fresh)]
    with pytest.raises(ValueError, match="pilot"):
        grown([PILOT + s for s in own], n, "x")


def test_seeds_yaml_adds_seeds_at_tier_small_to_one_data_set(tmp_path):
    at = tmp_path / "papers" / "toy"
    at.mkdir(parents=True)
    file = at / "seeds.yaml"

    def seeds(study="more", tier=None, **more):
        found = {}
        for c in cells(tmp_path, study, tier, **more):
            found.setdefault(c.dataset, []).append(c.seed)
        return {d: list(dict.fromkeys(s)) for d, s in found.items()}

    file.write_text("more: {far: 4}\nmain: {near: 1}\n")
    assert seeds() == {"near": [0, 3], "far": [0, 3, 1, 2]} and seeds("main") == {
        "near": [0, 1]
    }
    usual = {"near": [0, 3], "far": [0, 3]}
    assert seeds(tier="tiny") == seeds(tier="paper") == usual
    assert seeds(seeds=1) == {"near": [0], "far": [0]}
    pilot = book(main={"seeds": {"pilot": 2}})
    with pytest.raises(ValueError, match="main has pilot seeds"):
        file.write_text("main: {near: 5}\n")
        seeds("main", change=pilot)
    assert seeds("main", "paper", change=pilot) == {"near": [PILOT, PILOT + 1]}
    bad = ["mian: {near: 5}", "more: {naer: 5}", "main: {far: 5}", "main: 5"]
    bad += ["main: {near: '5'}", "main: {near: 0}", "main: {near: 2000}"]
    for text in bad:
        file.write_text(text)
        with pytest.raises(ValueError, match="seeds.yaml"):
            seeds()
    assert added(tmp_path / "params.yaml", "other", {}) == {}


def test_a_seed_that_draws_the_data():
    assert set(DRAWS) < set(tasks.SOURCES)
    for name, key in DRAWS.items():
        bare = {"name": name, "n": 9}
        assert data_of(bare, 7, "x") is bare
        new = data_of(bare | {"draw": "seed"}, 7, "x")
        assert new == bare | {key: 7}
        over = {"name": "features", "data": bare | {"draw": "seed"}, "model": "m"}
        assert data_of(over, 7, "x") == over | {"data": new}
        if key == "seed":
            with pytest.raises(ValueError, match=f"{name}.*seed = 2"):
                data_of(bare | {"draw": "seed", "seed": 2}, 7, "x")
    for name in ("digits", "features"):
        with pytest.raises(ValueError, match=name):
            data_of({"name": name, "draw": "seed"}, 7, "x")
    assert data_of({"name": "synthetic", "draw": 5}, 7, "x")["draw"] == 5


def test_each_seed_of_a_study_draws_its_data(tmp_path):
    own = {"near": {"data": {"draw": "seed"}}}
    some = cells(tmp_path, change=book(main={"tasks": own, "seeds": [0, 7]}))
    assert all(json.loads(c.task)["data"]["draw"] == c.seed for c in some)
    today = {c.method: c.id for c in cells(tmp_path) if c.seed == 0}  # draw 0 is usual
    assert today == {c.method: c.id for c in some if c.seed == 0}


# ---------------------------------------------------------------- tables of cells
def test_what_is_declared_is_a_row_of_its_own(tmp_path):
    def change(toy):
        toy["tasks"]["near"]["train"]["epochs"] = 2
        toy["tasks"]["near"]["batch"] = {"tiny": 1, "small": 2, "paper": 16}
        toy["tasks"]["near"]["partition"] = {
            "name": "dirichlet",
            "clients": 3,
            "alpha": 5,
        }
        toy["tasks"]["far"] |= {"partition": {"name": "natural"}, "paper": None}

    table = results.declared("toy", write(tmp_path, change))
    got = {(r.dataset, r.metric): r.value for r in table.itertuples()}
    assert got == {
        **{("near", "learning_rate"): 0.05, ("near", "local_epochs"): 2},
        **{("near", "batch_size"): 16, ("near", "rounds"): 5, ("near", "runs"): 2},
        **{("near", "dirichlet_concentration"): 5, ("far", "learning_rate"): 0.05},
        **{("far", "local_epochs"): 2, ("far", "batch_size"): 16, ("far", "rounds"): 3},
        ("far", "runs"): 2,
    }
    assert set(table.tier) == {"exact"} and set(table.data) == {"synthetic"}


def test_hyper_parameters_in_use_and_the_grid_that_was_searched():
    step = {"name": "SAM", "rho": 0.1}
    table = results.hyper_table(
        [
            cell("FedGA", setting="x", alpha=7, lr=0.5, epochs=3),
            cell(step=step, decay=1e-3),
        ]
    )
    fields = METHODS["FedGA"].__dataclass_fields__
    assert table.method.tolist() == ["FedGA", "FedAvg"] and table.setting[0] == "x"
    used, grid = table.used[0].split(", "), table.grid[0].split("; ")
    assert used[0] == "alpha = 7" and not any(u.startswith("lr") for u in used)
    words = ", ".join(f"{v:g}" for v in fields["alpha"].metadata["grid"])
    assert f"alpha in {words}" in grid
    assert set(table.used[1].split(", ")) == {"step = SAM", "decay = 0.001"}
