"""Seeds of a study: how they are written and added, pilot seeds, seeds that draw the
data; hyper-parameters by task.
"""

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
import yaml
from where import ROOT

from fedlib.study import compute, studies
from fedlib.study.seeds import PILOT, drawn, seeds_of

TREE = {
    "tier": "small",
    "toy": {
        "tasks": {
            "near": {
                "data": {"name": "synthetic", "alpha": 0.5, "beta": 0.5},
                "network": {"name": "Linear"},
                "run": {"rounds": 2},
            },
            "far": {"like": "near", "data": {"alpha": 1}},
            "apart": {"like": "near", "data": {"alpha": 2}},
        },
        "studies": {
            "book": {
                "main": {
                    "tasks": ["near", "far"],
                    "seeds": {"tiny": 1, "small": 2, "paper": 2},
                    "methods": {"FedAvg": {}, "FedProx": {"mu": 0.1}},
                },
                "tuning": {
                    "tasks": ["near"],
                    "seeds": {"pilot": 2},
                    "methods": {"FedAvg": {"lr": [0.1, 0.01]}},
                },
            }
        },
    },
}


@pytest.fixture
def repo(tmp_path):
    """params.yaml of a folder, after entries of the study `main` were changed; and
    seeds.yaml of its paper.
    """

    def write(more=None, **entries):
        tree = json.loads(json.dumps(TREE))
        tree["toy"]["studies"]["book"]["main"] |= entries
        path = tmp_path / "params.yaml"
        path.write_text(yaml.safe_dump(tree, sort_keys=False))
        if more is not None:
            (tmp_path / "papers/toy").mkdir(parents=True, exist_ok=True)
            (tmp_path / "papers/toy/seeds.yaml").write_text(yaml.safe_dump(more))
        return path

    return write


def seeds(path, tier="small", study="main"):
    """{data set: its seeds}, the same for every method."""
    out = {}
    for c in studies.cells("toy", study, path, tier)[0]:
        out.setdefault((c.dataset, c.method, c.setting), []).append(c.seed)
    return {d: s for (d, *_), s in out.items()}


# ---------------------------------------------------------------- how they are written
@pytest.mark.parametrize(
    "given, want",
    [
        (3, [0, 1, 2]),
        ([0, 3, 7], [0, 3, 7]),
        ({"pilot": 3}, [1000, 1001, 1002]),
        ({"tiny": 1, "small": {"pilot": 2}, "paper": 5}, [1000, 1001]),
        ({"tiny": 1, "small": [4], "paper": 5}, [4]),
    ],
)
def test_seeds_are_counted_named_or_pilots(repo, given, want):
    assert seeds(repo(seeds=given)) == {"near": want, "far": want}


@pytest.mark.parametrize(
    "given, says",
    [
        ([0, 3, 3], "seeds = [0, 3, 3] names seed 3 twice"),
        ([0, -1], "seeds = [0, -1]; give how many (5)"),
        (True, "seeds = True; give how many (5)"),
        ([0, True], "seeds = [0, True]; give how many (5)"),
        (0, "seeds = 0; give how many (5)"),
        ([], "seeds = []; give how many (5)"),
        ("5", "seeds = '5'; give how many (5)"),
        ([0, PILOT], "mixes pilot seeds, from 1000 on, with seeds that decide"),
        (PILOT + 1, "mixes pilot seeds"),
        ({"pilot": True}, "seeds = {'pilot': True}; give how many"),
        ({"pilots": 3}, "seeds = {'pilots': 3}; give how many"),
    ],
)
def test_other_seeds_are_refused(given, says):
    with pytest.raises(ValueError, match=re.escape(says)) as e:
        seeds_of(given, "studies.main")
    assert str(e.value).startswith("studies.main: ")


# ---------------------------------------------------------------- seeds.yaml
def test_seeds_are_added_at_tier_small_on_one_data_set(repo):
    path = repo({"main": {"far": 5}})
    assert seeds(path) == {"near": [0, 1], "far": [0, 1, 2, 3, 4]}
    assert seeds(path, "paper") == seeds(path.parent / "params.yaml", "paper")
    assert seeds(path, "paper") == {"near": [0, 1], "far": [0, 1]}
    assert seeds(path, "tiny") == {"near": [0], "far": [0]}


def test_seeds_yaml_takes_none_away(repo):
    assert seeds(repo({"main": {"far": 1}})) == {"near": [0, 1], "far": [0, 1]}


def test_named_seeds_stay_when_others_join_them(repo):
    path = repo({"main": {"far": 5}}, seeds=[0, 3, 7])
    assert seeds(path)["far"] == [0, 3, 7, 1, 2]


def test_seeds_given_by_a_reader_go_before_seeds_yaml(repo):
    path = repo({"main": {"far": 5}})
    cells = studies.cells("toy", "main", path, seeds=1)[0]
    assert {c.seed for c in cells} == {0}


@pytest.mark.parametrize(
    "more, says",
    [
        ({"mian": {"far": 5}}, "there is no study 'mian'; did you mean 'main'?"),
        ({"main": {"fra": 5}}, "main has no data set 'fra'; did you mean 'far'?"),
        ({"main": {"apart": 5}}, "main has no data set 'apart'"),
        ({"main": {"far": "5"}}, "main: far: '5'; give a number of seeds"),
        ({"main": {"far": 2000}}, "main: far: 2000; give a number of seeds"),
        ({"main": 5}, "main is 5; give {data set: 10}"),
    ],
)
def test_a_fault_of_seeds_yaml_is_named(repo, more, says):
    with pytest.raises(ValueError, match=re.escape(says)) as e:
        studies.cells("toy", "main", repo(more))
    assert "papers/toy/seeds.yaml" in str(e.value)


def test_pilot_seeds_are_not_added_to(repo):
    with pytest.raises(ValueError, match="tuning has pilot seeds, which decide"):
        studies.cells("toy", "tuning", repo({"tuning": {"near": 5}}))


# ---------------------------------------------------------------- the seed draws data
def test_a_seed_draws_the_data_too(repo):
    fixed = studies.cells("toy", "main", repo())[0]
    drawn_ = {d: {"data": {"draw": "seed"}} for d in ("near", "far")}
    cells = studies.cells("toy", "main", repo(tasks=drawn_, seeds=[0, 7]))[0]
    assert all(json.loads(c.task)["data"]["draw"] == c.seed for c in cells)
    # seed 0 is today's draw 0, under its name
    today = {(c.dataset, c.method): c.id for c in fixed if c.seed == 0}
    assert today == {(c.dataset, c.method): c.id for c in cells if c.seed == 0}
    assert len({c.id for c in cells}) == len(cells)
    pilots = studies.cells("toy", "main", repo(tasks=drawn_, seeds={"pilot": 1}))[0]
    assert {json.loads(c.task)["data"]["draw"] for c in pilots} == {PILOT}


@pytest.mark.parametrize(
    "data, key",
    [
        ({"name": "census", "draw": "seed"}, "draw"),
        ({"name": "digit_sites", "n": [5], "draw": "seed"}, "draw"),
        ({"name": "glyphs", "n": 9, "draw": "seed"}, "seed"),
        ({"name": "domains", "preset": "PACS", "draw": "seed"}, "seed"),
    ],
)
def test_each_source_is_told_by_its_own_argument(data, key):
    new = drawn({"data": data}, 7, "x")["data"]
    assert new == {k: v for k, v in data.items() if k != "draw"} | {key: 7}
    over = {"name": "features", "data": data, "model": "m"}
    assert drawn({"data": over}, 7, "x")["data"] == over | {"data": new}


@pytest.mark.parametrize(
    "data, says",
    [
        ({"name": "digits"}, "x: data 'digits' cannot have draw: seed, since it is"),
        ({"name": "features", "data": {"name": "digits"}}, "data 'features' cannot"),
        ({"name": "glyphs", "seed": 2}, "since it has seed = 2 already"),
    ],
)
def test_data_that_are_not_drawn_are_refused(data, says):
    with pytest.raises(ValueError, match=re.escape(says)):
        drawn({"data": data | {"draw": "seed"}}, 7, "x")


def test_another_seed_draws_other_synthetic_data_and_the_same_seed_the_same(tmp_path):
    """On the repository's own study, at tier tiny."""
    (tmp_path / "papers").mkdir()
    shutil.copytree(ROOT / "papers/fedga", tmp_path / "papers/fedga")
    shutil.copy(ROOT / "params.yaml", tmp_path)
    own = {"synthetic_05_05": {"data": {"draw": "seed"}}}
    path = Path(tmp_path, "params.yaml")
    cells = studies.cells("fedga", "synthetic", path, "tiny", tasks=own)[0]
    specs = {c.seed: c.task for c in cells}
    x = {s: compute.task_of(specs[s], 0, "x").x for s in (0, 1)}
    compute.task_of.cache_clear()
    again = compute.task_of(specs[1], 0, "x").x
    assert torch.equal(x[1], again) and not torch.equal(x[0], x[1])


# ---------------------------------------------------------------- values by task
def hyper(path, method="FedProx", tier="small"):
    """{data set: [(setting, mu)]}."""
    out = {}
    for c in studies.cells("toy", "main", path, tier)[0]:
        if c.method == method and c.seed == 0:
            kw = json.loads(c.kwargs)
            out.setdefault(c.dataset, []).append((c.setting, kw.get("mu")))
    return out


@pytest.mark.parametrize(
    "mu, want",
    [
        ({"near": 0.1, "far": 1}, {"near": [("", 0.1)], "far": [("", 1)]}),
        (
            {"near": [0.1, 1], "far": 0.5},
            {"near": [("mu=0.1", 0.1), ("mu=1", 1)], "far": [("", 0.5)]},
        ),
        (
            {"tiny": 1, "small": {"near": 0.1, "far": 1}, "paper": 2},
            {"near": [("", 0.1)], "far": [("", 1)]},
        ),
    ],
)
def test_a_hyper_parameter_may_depend_on_the_task(repo, mu, want):
    assert hyper(repo(methods={"FedProx": {"mu": mu}})) == want


@pytest.mark.parametrize(
    "mu, says",
    [
        (
            {"near": 0.1},
            "methods.FedProx: mu = {'near': 0.1} has no value for the task",
        ),
        ({"near": 0.1, "small": 1}, "mixes tiers with tasks"),
        ({"near": 0.1, "fra": 1}, "'fra' is neither a tier (tiny, small, paper) nor a"),
        ({"near": 0.1, "far": 1, "apert": 1}, "did you mean 'apart'"),
        ({"tiny": 0.1}, "has no value for tier small"),
    ],
)
def test_a_value_that_a_task_lacks_is_named(repo, mu, says):
    with pytest.raises(ValueError, match=re.escape(says)):
        hyper(repo(methods={"FedProx": {"mu": mu}}))


def test_a_task_without_the_method_needs_no_value_for_it(repo):
    path = repo(methods={"FedProx": {"mu": {"near": 1}}}, without={"FedProx": ["far"]})
    assert hyper(path) == {"near": [("", 1)]}


def test_a_task_of_another_study_or_tier_may_have_a_value(repo):
    """One knob serves all studies of a paper."""
    mu = {"near": 0.1, "far": 1, "apart": 2}
    path = repo(methods={"FedProx": {"mu": mu}}, tiny={"tasks": ["far"]})
    assert hyper(path, tier="tiny") == {"far": [("", 1)]}
