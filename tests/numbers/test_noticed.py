"""A moved number is said; what is noted is complete, and every setting moves one."""

import datetime
import json
import math

import pytest
import torch

from fedlib.data.tasks import NETWORKS, PARTITIONS, SOURCES
from fedlib.methods import METHODS
from fedlib.pieces.robust import RULES
from fedlib.pieces.steps import STEPS
from fedlib.study import identity
from goldens.numbers import __main__, noted, runs
from goldens.numbers.runs import DEFAULTS, numbers

UNIT, TABLES = "step SAM", (METHODS, STEPS, RULES, SOURCES, PARTITIONS, NETWORKS)
AS = "method FedAS-parallel: align_"  # settings that change nothing in so short a run
IDLE = {f"{AS}lr=0.005", f"{AS}epochs=2", "method PLGU-LF: keep=last"}
IDLE |= {"method FedGini: sticky=True", "method FedGA_ablation: sticky=False"}
IDLE.add("rule DeepSight: inputs=50")


def test_all_units_are_noted_and_every_setting_moves_something():
    kinds = "method", "step", "rule", "data", "partition", "network"
    units = [f"{kind} {name}" for kind, of in zip(kinds, TABLES) for name in of]
    assert [*noted.stored()] == runs.units() == ["engine", *units]
    for unit, entry in noted.stored().items():
        usual = entry["runs"][DEFAULTS]
        still = {f"{unit}: {k}" for k, run in entry["runs"].items() if run == usual}
        assert still - {f"{unit}: {DEFAULTS}"} <= IDLE


def test_numbers_see_signs_order_and_size():
    v, far = torch.tensor([1.0, 2.0, -3.0]), noted.apart
    assert numbers([v])[:2] == [3, math.sqrt(14)]
    assert numbers([v[:1], v[1:]]) == numbers([v, [math.nan]]) == numbers([v])
    for other in (v.flip(0), -v, v.abs()):
        assert far({"a": numbers([v])}, {"a": numbers([other])}) > 0.01
    near = "a", 1.01 * v, 0.01 / 1.01
    for k, other, by in (near, ("a", v[1:], 9e9), ("b", v, 9e9)):
        distance = far({"a": numbers([v])}, {k: numbers([other])})
        assert min(distance, 9e9) == pytest.approx(by)


@pytest.fixture
def copied(tmp_path, monkeypatch):
    """(file, versions): a copy of what is noted, and a table that may be changed."""
    file, versions, read = tmp_path / "f.json", {}, noted.stored.__wrapped__
    file.write_bytes(noted.FILE.read_bytes())
    stored = lambda path=file: read(file)
    stored.cache_clear = lambda: None
    monkeypatch.setattr(noted, "stored", stored)
    monkeypatch.setattr(identity, "versions", lambda: versions)
    return file, versions


def test_what_moved_is_said_and_noted_with_a_new_version_only(copied, capsys):
    file, versions = copied
    whole = json.loads(file.read_text())
    said = lambda **k: [f.what for f in noted.findings(UNIT, **k)]
    write = lambda *units: [f.what for f in noted.write([UNIT, *units], file)]
    other = next(k for k in whole[UNIT]["runs"] if k != DEFAULTS)

    def edit(f):
        tree = json.loads(json.dumps(whole))
        f(tree[UNIT]["runs"], tree)
        file.write_text(json.dumps(tree))
        return tree

    def moved(label, by, place):
        run = [*whole[UNIT]["runs"][label]["server"]]
        run[place] = noted.short(run[place] + by * run[1])
        return edit(lambda runs, tree: runs[label].update(server=run))

    for label, by, place in ((DEFAULTS, 1e-8, 1), (other, -1e-8, 2)):  # rounding
        tree = moved(label, by, place)
        assert said() == [] == write() and json.loads(file.read_text()) == tree
    tree = moved(other, 1e-4, 2)
    assert said() == ["moved"] and said(defaults=True) == []
    assert write() == ["moved"] and json.loads(file.read_text()) == tree
    assert __main__.main("check", "SAM", defaults=True) == 0
    assert __main__.main("check", UNIT) == 1
    assert other in capsys.readouterr().out
    versions[UNIT] = 2
    assert said() == ["raised"] and write("rule Mean") == [] == said()
    now = json.loads(file.read_text())
    assert now.pop(UNIT)["version"] == 2
    assert now == {k: v for k, v in whole.items() if k != UNIT}
    versions.clear()
    assert said() == ["raised"] == write()
    edit(lambda runs, tree: runs.pop(other))
    assert said() == ["incomplete"] and write() == [] == said()
    edit(lambda runs, tree: tree.pop(UNIT))
    assert said() == ["incomplete"]


def test_a_table_of_versions_that_makes_no_sense_is_refused():
    at = {"v": 2, "why": "a line", "date": datetime.date(2026, 11, 22)}
    assert noted.checked({UNIT: [at, at | {"v": 3}]})
    odd = {"v": 3}, {"why": " "}, {"who": "me"}, {"date": "2026-11-22"}
    tables = {"step SAMM": [at]}, {UNIT: 2}, {UNIT: []}, {UNIT: [at, at]}
    for table in (*tables, *({UNIT: [at | k]} for k in odd)):
        with pytest.raises(ValueError, match=r"versions\.toml.*step SAM"):
            noted.checked(table)
