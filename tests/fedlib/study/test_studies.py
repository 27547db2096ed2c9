"""params.yaml and papers/*/studies.yaml: knobs, inheritance, values by tier, errors;
what stages need.
"""

import json
import re
import shutil
from pathlib import Path

import pytest
import yaml
from where import ROOT

from fedlib.study import parameters, studies

STAGES = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
PARAMS = {
    "tier": "tiny",
    "fedga": {
        "alpha": 3,
        "sizes": {"tiny": [20, 30], "small": [20, 30], "paper": [60, 80]},
    },
    "fedas": {"P": [0.5, 1]},
}
BASE = {
    "label": "base",
    "data": {"name": "synthetic", "alpha": 0.5, "sizes": "$sizes"},
    "network": {"name": "MLP", "hidden": 8},
    "train": {"lr": 0.1, "epochs": {"tiny": 1, "small": 1, "paper": 5}},
    "run": {"rounds": 4, "cohort": 2},
    "paper": {"run": {"rounds": 9}},
}
FEDGA = {
    "tasks": {
        "base": BASE,
        "same": {"like": "base"},
        "other": {
            "like": "same",
            "label": "other",
            "data": {"alpha": 1},
            "network": {"name": "Linear"},
            "run": {"cohort": None},
            "paper": None,
        },
    },
    "studies": {
        "book": {
            "main": {
                "tasks": ["base", "same", "other"],
                "seeds": {"tiny": 1, "small": 1, "paper": 2},
                "methods": {
                    "FedAvg": {},
                    "FedGA": {"alpha": "$alpha"},
                    "FedGA_ablation": {"alpha": [9, "$alpha"]},
                },
            }
        }
    },
}
FEDAS = {
    "tasks": {
        "digits": {
            "data": {"name": "digits"},
            "network": {"name": "Linear"},
            "run": {"rounds": 1},
        }
    },
    "studies": {
        "grid": {
            "grid": {
                "tasks": {"digits": {"run": {"online": {"grid": "$P", "as": "P"}}}},
                "seeds": 1,
                "methods": {"FedAvg": {}},
            }
        }
    },
}


@pytest.fixture
def repo(tmp_path):
    """A folder with params.yaml and papers/*/studies.yaml; `change` may alter the three
    trees first.
    """

    def write(change=lambda params, fedga, fedas: None):
        trees = [json.loads(json.dumps(t)) for t in (PARAMS, FEDGA, FEDAS)]
        change(*trees)
        places = (
            "params.yaml",
            "papers/fedga/studies.yaml",
            "papers/fedas/studies.yaml",
        )
        for place, tree in zip(places, trees):
            path = tmp_path / place
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(yaml.safe_dump(tree, sort_keys=False))
        return tmp_path / "params.yaml"

    return write


def test_a_task_inherits_all_that_it_does_not_say(repo):
    tasks = studies.load(repo())["fedga"]["tasks"]
    assert tasks["same"] == tasks["base"] and "like" not in tasks["other"]
    assert tasks["other"] == {
        "label": "other",
        "data": {
            "name": "synthetic",
            "alpha": 1,
            "sizes": {"tiny": [20, 30], "small": [20, 30], "paper": [60, 80]},
        },  # changed
        "network": {"name": "Linear"},  # replaced, as it has a name
        "train": BASE["train"],
        "run": {"rounds": 4},  # null takes away
    }


@pytest.mark.parametrize(
    "base, change, want",
    [
        ({"a": 1, "b": 2}, {"b": 3, "c": 4}, {"a": 1, "b": 3, "c": 4}),
        (
            {"a": {"x": 1, "y": {"z": 2}}},
            {"a": {"y": {"w": 3}}},
            {"a": {"x": 1, "y": {"z": 2, "w": 3}}},
        ),
        ({"a": {"name": "p", "x": 1}}, {"a": {"name": "p"}}, {"a": {"name": "p"}}),
        ({"a": 1, "b": None}, {"a": None}, {"b": None}),
        (
            {"a": {"FedAvg": 5}},
            {"a": {"tiny": 3, "paper": 4}},
            {"a": {"tiny": 3, "paper": 4}},
        ),
        ({"a": {"tiny": 3, "paper": 4}}, {"a": {"FedAvg": 5}}, {"a": {"FedAvg": 5}}),
        (
            {"a": {"tiny": 3, "paper": 4}},
            {"a": {"paper": 5}},
            {"a": {"tiny": 3, "paper": 5}},
        ),
        ({"a": {"x": 1}}, {"a": [1]}, {"a": [1]}),
        ({"a": 1}, {"b": None}, {"a": 1}),
    ],
)
def test_merging(base, change, want):
    before = json.dumps([base, change])
    assert (
        parameters.merged(base, change) == want and json.dumps([base, change]) == before
    )


def test_knobs_reach_tasks_studies_and_methods(repo):
    cells, study, tier = studies.cells("fedga", "main", repo())
    assert tier == "tiny" and study["seeds"] == 1 and len(cells) == 3 * 4
    alphas = {(c.method, c.setting): json.loads(c.kwargs).get("alpha") for c in cells}
    assert alphas == {
        ("FedAvg", ""): None,
        ("FedGA", ""): 3,
        ("FedGA_ablation", "alpha=9"): 9,
        ("FedGA_ablation", "alpha=3"): 3,
    }
    assert all(json.loads(c.task)["data"]["sizes"] == [20, 30] for c in cells)
    online = [
        json.loads(c.engine)["online"]
        for c in studies.cells("fedas", "grid", repo())[0]
    ]
    assert online == [0.5, 1]


def test_a_value_by_tier_may_stand_anywhere(repo):
    cells, study, _ = studies.cells("fedga", "main", repo(), "paper")
    assert study["seeds"] == 2 and all(
        json.loads(c.kwargs)["epochs"] == 5 for c in cells
    )
    rounds = {c.dataset: json.loads(c.engine)["rounds"] for c in cells}
    assert rounds == {"base": 9, "same": 9, "other": 4}
    two = lambda p, a, b: a["tasks"]["base"]["train"]["epochs"].pop("small")
    with pytest.raises(
        ValueError,
        match=r"has no value for tier small; give one for each of tiny, small, paper",
    ):
        studies.cells("fedga", "main", repo(two), "tiny")


def test_a_list_that_depends_on_the_tier_is_an_axis_and_named():
    by = {
        "D": {"tiny": [0, 1], "small": [0, 2], "paper": [0, 5]},
        "lr": {"tiny": 1, "small": 1, "paper": 1},
    }
    assert studies.settings(by, {}, "paper") == [
        ("D=0", {"D": 0, "lr": 1}),
        ("D=5", {"D": 5, "lr": 1}),
    ]
    both = studies.settings([{"epochs": 1, "head_epochs": "$K"}], {"K": [1, 5]})
    assert [s for s, _ in both] == ["epochs=1;head_epochs=1", "epochs=1;head_epochs=5"]


def by_point(methods):
    """Cells of a study whose task leaves one owner out: {(guest, setting): lr}."""

    def change(params, fedga, fedas):
        out = {"guest": {"grid": ["photo", "sketch"]}, "like": "base"}
        fedga["tasks"]["pacs"] = out
        main = {"tasks": ["pacs", "base"], "seeds": 1, "methods": methods}
        fedga["studies"]["book"]["main"] = main
        del params["fedga"]["alpha"]  # what nothing uses is refused

    return change


def test_a_value_by_point_of_the_tasks_grid(repo):
    """Below the tier and the task, or a list and then an axis; other tasks have their
    own value.
    """
    points = {"guest=photo": 0.1, "guest=sketch": [0.2, 0.3]}
    by = {t: {"pacs": points, "base": 0.5} for t in ("tiny", "small", "paper")}
    cells, _, _ = studies.cells("fedga", "main", repo(by_point({"FedAvg": {"lr": by}})))
    found = {(c.dataset, c.setting): json.loads(c.kwargs)["lr"] for c in cells}
    assert found == {
        ("pacs", "guest=photo"): 0.1,
        ("pacs", "guest=sketch;lr=0.2"): 0.2,
        ("pacs", "guest=sketch;lr=0.3"): 0.3,
        ("base", ""): 0.5,
    }
    guests = {c.setting: json.loads(c.task).get("guest") for c in cells}
    assert (
        guests["guest=photo"] == "photo" and guests["guest=sketch;lr=0.2"] == "sketch"
    )


def test_variants_and_tiers_below_a_point():
    """Every variant reads the point, not the first one alone."""
    lr = {"guest=0": {"tiny": 1, "small": 2, "paper": 3}, "guest=45": 4}
    entry = [{"mu": [0.1, 1], "lr": lr}, {"mu": 2, "lr": lr}]
    here = {"tier": "small", "task": "turned", "tasks": ("turned",)}
    for point, want in (("guest=0", 2), ("guest=45", 4)):
        got = studies.settings(entry, {}, point=point, **here)
        assert got == [(f"mu={mu}", {"mu": mu, "lr": want}) for mu in (0.1, 1, 2)]


@pytest.mark.parametrize(
    "value, says",
    [
        (
            {"pacs": {"guest=photo": 1}, "base": 1},
            "studies.main.methods.FedAvg: lr = {'pacs': {'guest=photo': 1}, 'base': 1}: "
            "lr = {'guest=photo': 1} has no value for 'guest=sketch' of pacs; give one",
        ),
        (
            {"guest=photo": 1, "guest=sketch": 1},
            "has no value for base, which has no grid; give one",
        ),
        (
            {"guest=photo": 1, "pacs": 1},
            "'guest=photo' is neither a tier (tiny, small, paper) nor a task of the",
        ),
        ({"pacs": 1}, "lr = {'pacs': 1} has no value for the task 'base'; give one"),
        ({"pacs": 1, "tiny": 1}, "mixes tiers with tasks; give values by tier, and by"),
        (
            {"pcas": 1},
            "'pcas' is neither a tier (tiny, small, paper) nor a task of the "
            "paper (base, same, other, pacs); did you mean 'pacs'?",
        ),
        ({"paper": 1}, "lr = {'paper': 1} has no value for tier tiny; give one for"),
        ({}, "FedAvg.lr = {} has no value for tier tiny; give one for each of"),
    ],
    ids=str,
)
def test_a_value_that_is_missing_where_it_is_needed(repo, value, says):
    path = repo(by_point({"FedAvg": {"lr": value}}))
    with pytest.raises(ValueError, match=re.escape(says)):
        studies.cells("fedga", "main", path)


def test_a_paper_whose_folder_is_gone_is_not_there_and_no_error_for_the_others(repo):
    path = repo()
    shutil.rmtree(path.parent / "papers/fedga")
    assert (
        list(studies.load(path)) == ["tier", "fedas"]
        and studies.cells("fedas", "grid", path)[0]
    )
    with pytest.raises(ValueError, match=r"has no 'fedga'.*\(there are fedas\)"):
        studies.cells("fedga", "main", path)


def test_tasks_and_studies_may_stand_in_params_yaml_itself(repo):
    def inside(params, fedga, fedas):
        params["fedga"] |= fedga

    path = repo(inside)
    shutil.rmtree(path.parent / "papers")
    path.with_name("alone.yaml").write_text(path.read_text())
    alone = studies.cells("fedga", "main", path.with_name("alone.yaml"))
    assert alone == studies.cells("fedga", "main", repo())


def test_what_is_loaded_is_ones_own_copy(repo):
    path = repo()
    mine = studies.load(path)["fedga"]
    mine["tasks"]["base"]["run"]["rounds"] = 77
    mine["sizes"]["tiny"].append(99)
    again = studies.load(path)["fedga"]
    assert again["tasks"]["base"]["run"]["rounds"] == 4 and again["sizes"]["tiny"] == [
        20,
        30,
    ]


@pytest.mark.parametrize(
    "break_it, says",
    [
        (
            lambda p, a, b: p["fedga"].update(alhpa=2),
            "params.yaml: fedga: unknown key 'alhpa'; did you mean 'alpha'?",
        ),
        (
            lambda p, a, b: p["fedga"].update(alhpa=2),
            "fedga/studies.yaml uses $alhpa (known: ",
        ),
        (lambda p, a, b: p.update(alpha=2), "params.yaml: unknown key 'alpha'"),
        (
            lambda p, a, b: p["fedga"].pop("alpha"),
            "fedga/studies.yaml uses $alpha, which is not given",
        ),
        (lambda p, a, b: p["fedga"].pop("alpha"), "give alpha in"),
        (
            lambda p, a, b: p.pop("fedga"),
            "fedga/studies.yaml uses $sizes, which is not given; give sizes in",
        ),
        (
            lambda p, a, b: p["fedga"].update(tasks={}),
            "params.yaml: fedga: unknown key 'tasks'",
        ),
        (
            lambda p, a, b: a.update(study={}),
            "fedga/studies.yaml: unknown key 'study'; did you mean 'studies'?",
        ),
        (
            lambda p, a, b: a["tasks"]["same"].update(netwrok=1),
            (
                "fedga/studies.yaml: tasks.same: unknown key 'netwrok'; did you mean "
                "'network'?"
            ),
        ),
        (
            lambda p, a, b: a["tasks"]["base"]["paper"].update(rum=1),
            "tasks.base.paper: unknown key 'rum'; did you mean 'run'?",
        ),
        (
            lambda p, a, b: a["tasks"]["base"]["paper"].update(like="same"),
            "tasks.base.paper: unknown key 'like'",
        ),
        (
            lambda p, a, b: a["tasks"].update(base=None),
            "tasks.base = None: give entries, as {name: {...}}",
        ),
        (
            lambda p, a, b: a["tasks"]["same"].update(like="bsae"),
            "tasks.same: like names the task 'bsae'; did you mean 'base'?",
        ),
        (
            lambda p, a, b: a["tasks"]["base"].update(like="other"),
            "like leads in a circle, base -> other -> same -> base",
        ),
        (
            lambda p, a, b: a["tasks"]["base"].update(like="base"),
            "like leads in a circle, base -> base; write one",
        ),
        (
            lambda p, a, b: a["studies"]["book"]["main"].update(sedes=3),
            (
                "fedga/studies.yaml: studies.book.main: unknown key 'sedes'; did you "
                "mean 'seeds'?"
            ),
        ),
        (
            lambda p, a, b: a["studies"]["book"]["main"].update(like="x"),
            "studies.book.main: unknown key 'like'",
        ),
        (
            lambda p, a, b: a["studies"].update(two={"main": {}}),
            "two studies are called 'main'; rename the one of studies.two",
        ),
        (
            lambda p, a, b: a["studies"].update(book=None),
            "studies.book = None: give entries, as",
        ),
        (
            lambda p, a, b: a["studies"]["book"]["main"].update(tasks=["bse"]),
            (
                "fedga/studies.yaml: studies.book.main.tasks names the task 'bse'; did you "
                "mean 'base'?"
            ),
        ),
        (
            lambda p, a, b: a["studies"]["book"]["main"]["methods"].update(FedGAA={}),
            "methods: unknown key 'FedGAA'; did you mean 'FedGA'?",
        ),
    ],
)
def test_an_error_names_the_value_and_its_place(repo, break_it, says):
    with pytest.raises(ValueError, match=re.escape(says)):
        studies.cells("fedga", "main", repo(break_it))


def test_a_study_without_tasks_does_not_keep_another_from_being_planned(repo):
    def change(params, fedga, fedas):
        book = fedga["studies"]["book"]
        book["bare"] = {k: v for k, v in book["main"].items() if k != "tasks"}

    path = repo(change)
    assert studies.cells("fedga", "main", path, tier="small")[0]
    with pytest.raises(ValueError, match="studies.bare has no tasks; give it some"):
        studies.cells("fedga", "bare", path, tier="small")


# ----------------------------------------------------------- the repository's own files
def test_the_files_are_short():
    """dvc exp run -S writes every list with a value a line, so those are not counted."""
    knobs = [
        line
        for line in (ROOT / "params.yaml").read_text().splitlines()
        if not re.match(r"\s*- ", line)
    ]
    assert len(knobs) <= 80 and len((ROOT / "dvc.yaml").read_text().splitlines()) <= 220


def test_the_lock_is_small():
    lock = ROOT / "dvc.lock"
    assert not lock.exists() or lock.stat().st_size <= 120_000


def every_cell(path):
    return {
        (paper, s): studies.cells(paper, s, path)[0]
        for paper, p in studies.load(path).items()
        if isinstance(p, dict)
        for s in p["studies"]
    }


def test_a_knob_of_one_paper_changes_its_cells_and_no_others(tmp_path):
    """What `dvc exp run -S fedga.alpha=2` does."""
    shutil.copytree(ROOT / "papers", tmp_path / "papers")
    path = tmp_path / "params.yaml"
    text = (ROOT / "params.yaml").read_text()
    path.write_text(text)
    before = every_cell(path)
    path.write_text(re.sub(r"(?m)^  alpha: \S+", "  alpha: 2", text, count=1))
    after = every_cell(path)
    changed = {k for k in before if before[k] != after[k]}
    assert {paper for paper, _ in changed} == {"fedga"} and (
        "fedga",
        "synthetic",
    ) in changed
    moved = {
        new.method
        for k in changed
        for old, new in zip(before[k], after[k])
        if old != new
    }
    assert moved == {"FedGA", "FedGA_ablation"}


def stages():
    """(name, definition) of each stage; a notebook's path has its name for ${item}."""
    for name, entry in STAGES.items():
        for item in entry.get("foreach", [None]):
            text = json.dumps(entry.get("do", entry)).replace("${item}", str(item))
            yield (f"{name}@{item}" if item else name), json.loads(text)


@pytest.mark.parametrize("name, stage", [pytest.param(n, s, id=n) for n, s in stages()])
def test_a_stage_depends_on_the_papers_that_its_notebook_reads(name, stage):
    """A section of params.yaml and the paper's folder; the paper's name stands in the
    notebook's text.
    """
    notebook = next((d for d in stage["deps"] if d.endswith(".ipynb")), None)
    if notebook is None:
        return
    parts = json.loads((ROOT / notebook).read_text())["cells"]
    source = "\n".join("".join(c["source"]) for c in parts if c["cell_type"] == "code")
    calls = r"(?:experiment\.study|studies\.cells|results\.declared)"
    reads = set(re.findall(calls + r"""\(\s*["']([\w-]+)["']""", source))
    reads |= set(re.findall(r"""studies\.load\(\)\[["']([\w-]+)["']\]""", source))
    assert reads <= set(stage.get("params", ())), f"{name} reads {reads}"
    assert {f"papers/{p}" for p in reads} <= set(stage["deps"])
    if "experiment.study(" in source:
        assert "evidence" in stage["deps"]
    if re.search(r"\btier\b", source) and reads:
        assert "tier" in stage["params"]


def test_every_stage_says_what_it_does_and_none_is_always_run():
    assert all(stage["desc"] for _, stage in stages())
    assert not re.search("always_changed|persist", (ROOT / "dvc.yaml").read_text())


def test_every_dependency_is_kept_or_made():
    made = {
        path if isinstance(path, str) else next(iter(path))
        for _, stage in stages()
        for path in [*stage.get("outs", ()), *stage.get("metrics", ())]
    }
    inside = {str(parent) for path in made for parent in Path(path).parents}
    missing = {
        d
        for _, stage in stages()
        for d in stage["deps"]
        if d not in made | inside and not (ROOT / d).exists()
    }
    assert missing == set()
