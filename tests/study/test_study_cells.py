"""The parameters of a study as cells: tiers, knobs, grids, seeds."""

import itertools
import json

import pytest
from toys_study import DATA, TASK, book, write
from where import ROOT

from fedlib.data import tasks
from fedlib.methods import search
from fedlib.study import TIERS, studies
from fedlib.study.studies import KINDS, PILOT, Study, grown, seeds_of
from repro import papers


def cells(folder, name="main", tier=None, change=lambda toy: None, **more):
    return studies.cells("toy", name, write(folder, change), tier, **more)[0]


def told(c, part="engine"):
    return json.loads(getattr(c, part))


def test_a_study_is_tasks_times_methods_times_seeds(tmp_path):
    got = {(c.dataset, c.method, c.setting, c.seed): c for c in cells(tmp_path, "more")}
    want = itertools.product(("near", "far"), ("mu=0.1", "mu=1.0"), (0, 3))
    assert list(got) == [(d, "FedProx", mu, s) for d, mu, s in want]
    for (dataset, _, mu, _), c in got.items():
        label, alpha = {"near": ("three clients", 0.5), "far": ("others", 1)}[dataset]
        assert told(c, "task") == TASK | {"data": DATA | {"alpha": alpha}}
        assert told(c, "kwargs") == {"lr": 0.05, "mu": float(mu[3:])}
        assert told(c) == {"every": 1, "rounds": 3, "cohort": 2}
        assert (c.label, c.data, c.mine) == (label, "synthetic", "")
    knob = {c.method: told(c, "kwargs").get("alpha") for c in cells(tmp_path)}
    assert knob == {"FedAvg": None, "FedGA": 3}
    assert cells(tmp_path, knobs={"alpha": None}) == cells(tmp_path)
    turned = cells(tmp_path, knobs={"alpha": 4})
    assert [told(c, "kwargs").get("alpha") for c in turned] == [None, None, 4, 4]
    with pytest.raises(ValueError, match="knob of toy in .*'alhpa'.*known: alpha"):
        cells(tmp_path, knobs={"alhpa": 4})
    rounds = {t: told(cells(tmp_path, tier=t)[0])["rounds"] for t in TIERS}
    assert rounds == {"tiny": 3, "small": 3, "paper": 5}
    more = {"train": {"lr": 0.05, "epochs": 2}, "batch": 8}
    path = write(tmp_path, lambda toy: toy["tasks"]["near"].update(more))
    near = papers.module("fedga", "tables").declared("toy", path)
    near = near[near.dataset == "near"]
    assert near.set_index("metric").value[["rounds", "runs"]].tolist() == [5, 2]
    path, n = ROOT / "params.yaml", 0  # so can each study of the repository be planned
    for paper, p in studies.load(path).items():
        every = itertools.product(p["studies"], TIERS) if paper != "tier" else ()
        for name, tier in every:
            few = {} if tier == "small" else {"seeds": 1}
            some = studies.cells(paper, name, path, tier, **few)[0]
            n += len(some)
            assert len(set(some)) == len(some)
    assert n > 10_000


def test_what_is_nearer_goes_before(tmp_path):
    some = {"every": 4, "cohort": 3, "methods": {"FedAvg": {"lr": 7.0}}}
    change = book(main=some)
    (c, *_) = cells(tmp_path, change=change)
    assert told(c, "kwargs")["lr"] == 7.0
    assert told(c) == {"every": 4, "rounds": 3, "cohort": 3, "microscope": True}
    mlp = {"name": "MLP", "hidden": 4}
    own = {"tasks": {"near": {"run": {"rounds": 8}, "network": mlp}}}
    (c, *_) = cells(tmp_path, change=book(main=some | own))
    assert (told(c)["rounds"], told(c)["cohort"]) == (8, 3)
    assert told(c, "task")["network"] == mlp
    (c,) = cells(tmp_path, change=change, seeds=[5], every=2)
    assert (c.seed, told(c)["every"]) == (5, 2)
    few = cells(tmp_path, "more", without={"FedProx": ["far"]})
    assert {c.dataset for c in few} == {"near"}
    tier = book(main={"paper": {"seeds": 1, "tasks": ["far"]}})
    paper = cells(tmp_path, tier="paper", change=tier)
    assert {(c.dataset, c.seed) for c in paper} == {("far", 0)}
    assert len(cells(tmp_path, change=tier)) == 4
    none = {"FedAvg": ["near"], "FedGA": ["near"]}
    bad = [({"methods": {"FedAvg": [{"lr": 1}, {"lr": 1}]}}, "FedAvg")]
    bad += [({"methods": {"FedAvgg": {}}}, "FedAvgg"), ({"tasks": ["naer"]}, "naer")]
    bad += [({"methods": {"FedAvg": {"lr": -1}}}, "lr"), ({"without": none}, "main")]
    for entries, word in bad:
        with pytest.raises(ValueError, match=word):
            cells(tmp_path, change=book(main=entries))


def test_a_tasks_grid_spans_axes_that_advance_together(tmp_path):
    sizes = [[30, 40], [50, 60]]

    def grid(toy):
        near = toy["tasks"]["near"]
        near["batch"] = {"grid": [8, 16], "as": "B"}
        near["data"]["sizes"] = {"grid": sizes, "as": "B", "called": [1, 9]}
        near["run"] = {"rounds": 3, "online": {"grid": [0.5, 1]}}
        del near["paper"], toy["tasks"]["far"]
        toy["studies"]["book"]["more"]["tasks"] = ["near"]

    want, got = {}, {}
    axes = ((1, 8, sizes[0]), (9, 16, sizes[1])), (0.5, 1), (0.1, 1.0)
    for (called, batch, size), online, mu in itertools.product(*axes):
        want[f"B={called};online={online};mu={mu}"] = batch, size, online
    for c in cells(tmp_path, "more", change=grid, seeds=1):
        task = told(c, "task")
        got[c.setting] = task["batch"], task["data"]["sizes"], told(c)["online"]
    assert got == want


def test_lists_span_a_grid_and_values_are_by_tier_or_inherited(tmp_path):
    entry = {"q": [2, 1], "p": ["a", "b"]}
    points = [{"q": q, "p": p} for q in (2, 1) for p in "ab"]
    names = ["q=2;p=a", "q=2;p=b", "q=1;p=a", "q=1;p=b"]
    assert studies.settings(entry) == list(zip(names, points))
    assert studies.settings(points[0]) == [("", points[0])]
    both = studies.settings([points[0], {"z": 1}])
    assert both == [(names[0], points[0]), ("z=1", {"z": 1})]
    plain = {"a": {"tiny": 1, "small": [2], "paper": 3}, "b": [{"c": 4}], "methods": 5}
    entry = plain | {"small": {"b": 6}, "paper": None}
    small, paper = (studies.tiered(entry, t) for t in ("small", "paper"))
    assert small == {"a": [2], "b": 6, "methods": 5}
    assert paper == {"a": 3, "b": [{"c": 4}], "methods": 5}
    was = {"a": {"x": 1, "y": 2}, "b": 3, "c": {"name": "p", "x": 1}, "d": {"k": 5}}
    was |= {"e": {"tiny": 3, "paper": 4}}
    new = {"a": {"x": 9}, "b": None, "c": {"name": "q"}, "d": was["e"]}
    got = studies.merged(was, new | {"e": {"paper": 5}})
    want = {"a": {"x": 9, "y": 2}, "c": new["c"], "d": new["d"]}
    assert got == want | {"e": {"tiny": 3, "paper": 5}}
    # data that a paper did not use stand in for its own
    kinds = [("digits", None, "real"), ("digits", "cifar10", "stand-in")]
    kinds += [("census", "census", "synthetic"), ("glyphs", "glyphs", "stand-in")]
    for source, known, kind in kinds:
        assert studies.kind_of(source, known) == kind
    deep = {"name": "features", "data": {"name": "features", "data": {"name": "adult"}}}
    assert studies.root(deep) == "adult" and studies.root({"name": "mnist"}) == "mnist"
    change = lambda toy: toy["tasks"]["near"]["paper"].update(data={"name": "digits"})
    assert {c.data for c in cells(tmp_path, change=change)} == {"stand-in"}


def test_settings_are_drawn_or_those_that_won(tmp_path):
    methods = {"FedProx": {"mu": [0.1, 1], "epochs": 2}, "FedAvg": {}}
    drawn = {"draws": 4, "seeds": {"pilot": 1}, "methods": methods, "tasks": ["near"]}
    got = [*cells(tmp_path, change=book(main=drawn))]
    kw = [json.loads(c.kwargs) for c in got]
    assert [k["lr"] for k in kw] == 2 * search.steps(4) and kw[0]["epochs"] == 2
    assert sorted(k["mu"] for k in kw[:4]) == [0.1, 0.1, 1, 1]
    rest = cells(tmp_path, change=book(main=drawn | {"skip": 3}))
    assert [c.setting for c in rest] == [got[3].setting, got[7].setting]
    assert got[0].setting == f"lr={kw[0]['lr']};mu={kw[0]['mu']}"
    ends = {"mean": {"lr": 0.2, "mu": 3}, "worst": {"lr": 0.4, "mu": 3}}
    entry = {"near": ends | {"finalists": [*ends.values()]}}
    file = tmp_path / "papers" / "toy" / "winners.yaml"
    file.write_text(json.dumps({"grid": {"FedProx": entry}}))
    won = {"winners": "grid", "methods": {"FedProx": {"epochs": 2}}, "tasks": ["near"]}
    finals = cells(tmp_path, change=book(main=won | {"seeds": {"pilot": 1}}))
    assert [c.setting for c in finals] == ["lr=0.2;mu=3", "lr=0.4;mu=3"]
    ends = cells(tmp_path, change=book(main=won | {"seeds": [7]}))
    assert [c.setting for c in ends] == ["by=mean", "by=worst"]
    assert [c.id for c in ends] != [c.id for c in finals]
    assert [told(c, "kwargs") for c in ends] == [told(c, "kwargs") for c in finals]
    text = {"near": entry["near"], "near;epochs=2": {"mean": {"lr": 0.8}}}
    file.write_text(json.dumps({"grid": {"FedProx": text}}))  # of a variant its own
    each = {"FedProx": [{"epochs": 1}, {"epochs": 2}], "FedProx-P": {"like": "FedProx"}}
    main = won | {"by": "mean", "seeds": [7], "methods": each}
    some = cells(tmp_path, change=book(main=main))
    assert [c.setting for c in some] == ["epochs=1", "epochs=2", ""]
    kw = [told(c, "kwargs") for c in some]
    assert [k["lr"] for k in kw] == [0.2, 0.8, 0.2] and kw[2]["mu"] == 3
    for odd in ({"winners": "gird"}, {"methods": {"FedAvg": {}}}):
        with pytest.raises(ValueError, match="search 'gird'|winners of 'FedAvg'"):
            cells(tmp_path, change=book(main=won | odd))


def test_seeds_are_counted_named_or_pilots_and_seeds_yaml_adds_some(tmp_path):
    assert seeds_of(3) == [0, 1, 2] and seeds_of([7, 0, 3]) == [7, 0, 3]
    assert seeds_of({"pilot": 3}) == [PILOT, PILOT + 1, PILOT + 2]
    asked = [([3, 0], 4, [3, 0, 1, 2]), ([5, 7], 4, [5, 7, 6, 8]), ([5, 1], 1, [5, 1])]
    for own, n, want in asked:  # new ones come after the own ones
        assert grown(own, n, "x") == want
    with pytest.raises(ValueError, match="pilot"):
        grown([PILOT], 2, "x")
    bad = [0, True, "5", [], [0, 0], [0, -1], [0.5], {"pilot": 0}, [0, PILOT]]
    for v in [*bad, PILOT + 1, {"pilot": PILOT + 1}]:
        with pytest.raises(ValueError, match="seeds"):
            Study.model_validate(dict(tasks=["d"], methods={"FedAvg": {}}, seeds=v))
    file = tmp_path / "papers" / "toy" / "seeds.yaml"
    file.parent.mkdir(parents=True)

    def seeds(text, study="more", tier=None, **more):
        file.write_text(text)
        found = {}
        for c in cells(tmp_path, study, tier, **more):
            found.setdefault(c.dataset, {})[c.seed] = 1
        return {d: [*s] for d, s in found.items()}

    usual, more = {"near": [0, 3], "far": [0, 3]}, "more: {far: 4}\nmain: {near: 1}\n"
    assert seeds(more) == usual | {"far": [0, 3, 1, 2]}
    assert seeds(more, "main") == {"near": [0, 1]}
    assert seeds(more, tier="tiny") == seeds(more, tier="paper") == usual
    assert seeds(more, seeds=1) == {"near": [0], "far": [0]}
    pilot = book(main={"seeds": {"pilot": 2}})
    with pytest.raises(ValueError, match="main, tier small: .*pilot seeds"):
        seeds("main: {near: 5}\n", "main", change=pilot)
    assert seeds(more, "main", "paper", change=pilot) == {"near": [PILOT, PILOT + 1]}
    for text in ("main: 5", "main: {far: -5}", "main: {near: 2000}"):
        with pytest.raises(ValueError, match="seeds.yaml"):
            seeds(text, "main")
    file.unlink()  # a seed that draws the data
    assert {*KINDS} < {*tasks.SOURCES}
    own = {"tasks": {"near": {"data": {"draw": "$seed"}}}, "seeds": [0, 7]}
    some = cells(tmp_path, change=book(main=own))
    assert all(told(c, "task")["data"]["draw"] == c.seed for c in some)
    today = {c.method: c.id for c in cells(tmp_path) if c.seed == 0}  # draw 0 is usual
    assert today == {c.method: c.id for c in some if c.seed == 0}
