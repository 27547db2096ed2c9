"""What names a run: the resolved specification and versions, nothing else."""

import json
from dataclasses import dataclass, replace

import pytest

from fedlib.core.method import hp
from fedlib.methods import METHODS
from fedlib.methods.base.fedavg import FedAvg
from fedlib.study import identity, studies
from fedlib.study.studies import Cell

DATA = {"name": "glyphs", "n": 60}


def cell(method="FedAvg", task=None, engine=None, seed=0, **kw):
    task = {"data": DATA, "network": {"name": "CNN"}} | (task or {})
    return Cell(
        "d",
        "d",
        method,
        "",
        seed,
        "stand-in",
        json.dumps(task),
        json.dumps(kw),
        json.dumps(engine or {"rounds": 3}),
    )


@pytest.mark.parametrize(
    "a, b",
    [
        (cell(), cell(lr=0.1, momentum=0)),  # an explicit default
        (cell("FedProx", mu=1), cell("FedProx", mu=1.0)),  # one number
        (cell("FedAvg", rule="Median"), cell("FedAvg", rule={"name": "Median"})),
        (
            cell("EquFL", lr=0.2),
            cell("EquFL", inner={"name": "FedAvg", "lr": 0.2}),
        ),  # as method.make distributes them
        (cell("EquFL"), cell("EquFL", inner="FedAvg")),
        (
            cell(),
            cell(
                task={
                    "batch": 32,
                    "partition": {"name": "natural"},
                    "parts": [0.8, 0.1, 0.1],
                }
            ),
        ),
        (cell(), cell(task={"data": {"n": 60, "name": "glyphs", "seed": 0}})),
        (
            cell(),
            cell(
                engine={
                    "every": 1,
                    "rounds": 3,
                    "cohort": None,
                    "splits": ["test", "val"],
                    "microscope": False,
                }
            ),
        ),
        (
            cell(),
            replace(
                cell(), label="in other words", dataset="e", setting="x", data="real"
            ),
        ),
    ],
    ids=str,
)
def test_one_run_has_one_name(a, b):
    assert a.id == b.id


DIFFERENT = [
    cell(),
    cell(seed=1),
    cell(lr=0.2),
    cell("FedProx"),
    cell("FedProx", mu=0.5),
    cell(rule="Median"),
    cell(step="SAM"),
    cell(step={"name": "SAM", "rho": 0.5}),
    cell("EquFL"),
    cell("EquFL", lr=0.2),
    cell("EquFL", inner="FedProx"),
    cell("EquFL", rho=0.7),
    cell("FedAvg-FT"),
    cell("FedAvg-FT", tune=2),
    cell(task={"batch": 8}),
    cell(task={"standard": True}),
    cell(task={"network": {"name": "MLP"}}),
    cell(task={"network": {"name": "MLP", "hidden": 8}}),
    cell(task={"data": DATA | {"n": 61}}),
    cell(task={"partition": {"name": "dirichlet", "clients": 3, "alpha": 1}}),
    cell(engine={"rounds": 4}),
    cell(engine={"rounds": 3, "every": 2}),
    cell(engine={"rounds": 3, "microscope": True}),
    replace(cell(), mine="0123"),
]


def test_different_runs_have_different_names():
    """Among them options that a wrapper inherits from its parent, as EquFL's rho and
    FedAvg-FT's tune.
    """
    assert len({c.id for c in DIFFERENT}) == len(DIFFERENT)


def test_all_studies_of_all_tiers_name_a_run_once():
    """Cells that share a name are the same run: equal method, hyper-parameters, task
    and engine once defaults are written out.
    """
    from fedlib.plots import root

    for tier in ("tiny", "small"):
        first = {}
        for paper, p in studies.load(root() / "params.yaml").items():
            for s in p["studies"] if isinstance(p, dict) else ():
                for c in studies.cells(paper, s, root() / "params.yaml", tier)[0]:
                    a = first.setdefault(c.id, c)
                    assert (a.method, a.seed) == (c.method, c.seed)
                    assert identity.resolved(
                        a.method, json.loads(a.kwargs)
                    ) == identity.resolved(c.method, json.loads(c.kwargs))
        assert len(first) > 1000


UNITS = [
    (
        cell(),
        {
            "engine",
            "method FedAvg",
            "step Plain",
            "rule Mean",
            "data glyphs",
            "partition natural",
            "network CNN",
        },
    ),
    (
        cell("EquFL", inner={"name": "FedProx", "rule": "Median"}),
        {
            "engine",
            "method EquFL",
            "method FedProx",
            "step Plain",
            "rule Median",
            "data glyphs",
            "partition natural",
            "network CNN",
        },
    ),
    (
        cell(
            task={
                "data": {"name": "features", "data": DATA, "model": "m.pt"},
                "network": {"name": "Adapter", "model": "m.pt"},
                "partition": {"name": "ring", "clients": 3},
            },
            step="SAM",
        ),
        {
            "engine",
            "method FedAvg",
            "step SAM",
            "rule Mean",
            "data features",
            "data glyphs",
            "partition ring",
            "network Adapter",
        },
    ),
]


@pytest.mark.parametrize("c, units", UNITS, ids=["plain", "wrapped", "nested"])
def test_units(c, units):
    assert set(identity.units(c)) == units


@pytest.mark.parametrize(
    "unit", ["engine", "method FedProx", "rule Median", "data glyphs", "step SAM"]
)
def test_a_raised_version_renames_what_uses_the_unit_and_nothing_else(
    unit, monkeypatch
):
    some = [c for c, _ in UNITS]
    monkeypatch.setattr(identity, "versions", lambda: {})
    before = [c.id for c in some]
    monkeypatch.setattr(identity, "versions", lambda: {unit: 2})
    assert [c.id != b for c, b in zip(some, before)] == [unit in u for _, u in UNITS]
    monkeypatch.setattr(identity, "versions", lambda: {unit: 1})
    assert [c.id for c in some] == before  # 1 is not written


def test_versions_are_read_from_the_table(tmp_path):
    path = tmp_path / "versions.toml"
    path.write_text(
        'engine = [{v = 2, why = "a", date = 2026-01-01}, {v = 3, why = "b", '
        "date = 2026-01-02}]\n"
    )
    assert identity.versions(path) == {"engine": 3}


def test_an_option_added_later_keeps_the_names_of_old_runs(monkeypatch):
    @dataclass(frozen=True)
    class More(FedAvg):
        old: float = hp(1.0, "there from the start")

    @dataclass(frozen=True)
    class Later(More):
        new: float = hp(2.0, "added later; 0 is what was done before", absent=0.0)

    More.__module__ = Later.__module__ = "fedlib.methods.more"

    def name(cls, **kw):
        monkeypatch.setitem(METHODS, "FedAvg", cls)
        return cell(**kw).id

    assert name(Later, new=0) == name(More) != name(Later)
    with pytest.raises(TypeError, match="unknown absnt"):
        hp(1, "x", absnt=1)


def test_weights_count_by_their_content_wherever_they_lie(tmp_path):
    def name(file, content):
        (tmp_path / file).write_bytes(content)
        return cell(
            task={"network": {"name": "ResNet18", "weights": str(tmp_path / file)}}
        ).id

    assert name("a.pth", b"one") == name("b.pth", b"one") != name("c.pth", b"other")
