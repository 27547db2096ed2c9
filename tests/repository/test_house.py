"""CONTRIBUTING.md's map of the house is the house."""

import ast
import re

import pytest
from where import ROOT

from repro import house

PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def block(mark):
    (found,) = re.findall(rf"<!-- {mark} -->\n(.*?)\n<!-- /{mark} -->", PAGE, re.S)
    return found


def section(title):
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def table(text):
    """The rows of the first Markdown table, without its head."""
    rows = [line for line in text.splitlines() if line.startswith("|")]
    return [[c.strip() for c in r.strip("|").split(" | ")] for r in rows[2:]]


# ---------------------------------------------------------------- the pictures
@pytest.mark.full
def test_the_page_is_what_the_program_writes():
    """After a module moved or grew: python -m repro.house."""
    assert block("districts") == house.districts()
    found = house.traced()
    assert block("rooms") == house.rooms(found)
    # another way to the same: who passes where, said by hand
    passed = [name for name, _ in found]
    landmarks = [
        "fedlib.study.experiment",
        "fedlib.study.studies",
        "fedlib.core.engine",
        "fedlib.methods.base.fedavg",
        "fedlib.core.local",
        "fedlib.measures.selection",
        "repro.ledger",
    ]
    assert [n for n in passed if n in landmarks] == landmarks
    assert len(set(passed)) == len(passed)


def test_every_district_is_in_the_picture():
    shown = set(re.findall(r'^    (\w+)\["', block("districts"), re.M))
    there = {house.district(n) for n in house.modules()} - set(house.DOORS)
    assert shown == there
    arrows = re.findall(r"^    (\w+) -(?:->|\.->) (\w+)$", block("districts"), re.M)
    real = house.edges(house.here(), house.district)
    assert arrows and all(b in real[a] for a, b in arrows)


def test_an_edge_is_left_out_where_a_way_leads_over_another():
    full = {"a": {"b", "c", "d"}, "b": {"c"}, "c": set(), "d": set()}
    assert house.reduced(full) == {"a": {"b", "d"}, "b": {"c"}, "c": set(), "d": set()}
    assert house.reached(house.reduced(full)) == house.reached(full)


def test_a_turn_back_is_a_district_that_was_left():
    rooms = [
        ("fedlib.study.experiment", "study"),
        ("fedlib.study.studies", "cells"),
        ("fedlib.core.engine", "run"),
        ("fedlib.study.table", "write"),
        ("repro.ledger", "main"),
    ]
    way = house.legs(rooms)
    assert way == [
        ("study", ["experiment.study", "studies.cells"]),
        ("core", ["engine.run"]),
        ("study", ["table.write"]),
        ("repro", ["ledger.main"]),
    ]
    assert house.turns(way) == 1 and house.turns(way[:2]) == 0
    assert "5 rooms in 3 districts; the way turns back 1 times" in house.rooms(rooms)


def test_only_one_block_of_the_page_is_replaced():
    new = house.put(PAGE, "rooms", "| new |")
    assert house.put(new, "rooms", block("rooms")) == PAGE and "| new |" in new
    with pytest.raises(ValueError, match="one pair of the marks"):
        house.put("a page without them", "rooms", "| new |")


def test_imports_are_read_off_the_source(tmp_path):
    """Relative, absolute, late, of names and of modules; not those for type checkers."""
    files = {
        "fedlib/__init__.py": "",
        "fedlib/a/__init__.py": "from .one import f",
        "fedlib/a/one.py": "from ..b import two\nimport fedlib.b.two as t\nimport os",
        "fedlib/b/__init__.py": "",
        "fedlib/b/two.py": "x = 1\ndef g():\n    from ..a.one import f, h\n",
        "fedlib/b/three.py": (
            "from typing import TYPE_CHECKING\n"
            "if TYPE_CHECKING:\n    from ..a import one\n"
        ),
        "repro/up.py": "from fedlib.a import f\n",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    found = house.graph(tmp_path)
    assert [(i.source, i.target, i.line, i.late) for i in found] == [
        ("fedlib.a", "fedlib.a.one", 1, False),
        ("fedlib.a.one", "fedlib.b.two", 1, False),
        ("fedlib.a.one", "fedlib.b.two", 2, False),
        ("fedlib.b.two", "fedlib.a.one", 3, True),
        ("fedlib.b.two", "fedlib.a.one", 3, True),
        ("repro.up", "fedlib.a", 1, False),
    ]
    assert house.rings(house.edges(found)) == [{"fedlib.a.one", "fedlib.b.two"}]


# ---------------------------------------------------------------- the words
def test_the_table_of_districts_has_each_and_a_file_to_begin_with():
    rows = table(section("The house"))
    named = [row[0].strip("`") for row in rows]
    folders = {
        p.relative_to(ROOT).as_posix()
        for p in (ROOT / "fedlib").iterdir()
        if (p / "__init__.py").exists()
    }
    assert set(named) == folders | {"repro", "papers"} and len(set(named)) == len(named)
    for folder, *_, first in rows:
        path = first.strip("`")
        assert path.startswith(folder.strip("`") + "/") and (ROOT / path).is_file()


def defined(tree):
    """The names that a module or a class defines: {name: its node}."""
    out = {}
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            out[node.name] = node
        elif isinstance(node, ast.AnnAssign):
            out[getattr(node.target, "id", "")] = node
        elif isinstance(node, ast.Assign):
            out |= {t.id: node for t in node.targets if isinstance(t, ast.Name)}
    return out


NAMES = table(section("Twenty names"))


def test_there_are_twenty_names():
    assert len({row[0] for row in NAMES}) == len(NAMES) == 20


@pytest.mark.parametrize("row", NAMES, ids=lambda row: row[0])
def test_a_name_is_defined_where_the_list_says(row):
    name, meaning, where = row
    path, _, symbol = where.strip("`").partition(": ")
    node = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    for part in symbol.split("."):
        assert part in defined(node), f"{name}: {path} defines no {symbol}"
        node = defined(node)[part]
    assert 20 < len(meaning) < 160


def test_the_files_that_the_page_names_exist():
    """In backticks, with a slash; <name> stands for something."""
    named = re.findall(r"`([\w./-]+/[\w./-]*)`", PAGE)
    somewhere = ("data/", "results/figures/")  # made, or downloaded
    lost = [n for n in named if not (ROOT / n).exists() and not n.startswith(somewhere)]
    assert len(named) > 30 and lost == []
