"""What is declared of params.yaml and of studies files is what the code has."""

from dataclasses import fields

import pytest
from where import ROOT

from fedlib.core import engine
from fedlib.data import tasks
from fedlib.methods import METHODS
from fedlib.study import schema
from fedlib.study.parameters import load, read

PAPERS = sorted(p.parent.name for p in ROOT.glob("papers/*/studies.yaml"))


def test_the_file_for_editors_is_the_schema():
    """After a method or a data set was changed: python -m fedlib.study.schema."""
    assert schema.FILE.read_text("utf-8") == schema.written()


@pytest.mark.parametrize("paper", PAPERS)
def test_an_editor_finds_no_mistake_in_the_papers(paper):
    """By another library."""
    jsonschema = pytest.importorskip("jsonschema")
    json = pytest.importorskip("json")
    told = jsonschema.Draft202012Validator(json.loads(schema.FILE.read_text("utf-8")))
    tree = read(ROOT / "papers" / paper / "studies.yaml")
    # `like` and its null are written out before fedlib looks
    tree["tasks"] = load(ROOT / "params.yaml")[paper]["tasks"]
    assert [e.message for e in told.iter_errors(tree)] == []
    name, group = next(iter(tree["studies"].items()))
    first = next(iter(group))
    tree["studies"][name][first]["sedes"] = 3
    assert not told.is_valid(tree)


def test_every_key_of_a_task_and_of_the_engine_is_declared():
    assert set(schema.TASK) == {*tasks.KEYS, "run", "label"}
    told = set(schema.RUN) - {"online", "stragglers", "rounds"}  # two make a cohort
    assert told <= set(engine.run.__annotations__)


@pytest.mark.parametrize("name", METHODS)
def test_a_default_of_a_method_is_what_is_declared(name):
    """And what lies beyond the end of a range is none."""
    for f in fields(METHODS[name]):
        if f.name in ("task", "inner", "step", "rule"):
            continue
        at = {"methods": {name: {f.name: f.default}}}
        schema.check("study", at, "here")
        for end in f.metadata.get("range") or ():
            if abs(end) < float("inf"):
                beyond = end - 1 if end == f.metadata["range"][0] else end + 1
                wrong = {"methods": {name: {f.name: beyond}}}
                with pytest.raises(ValueError, match=f"{f.name} = .* is outside"):
                    schema.check("study", wrong, "here")


@pytest.mark.parametrize("name", METHODS)
def test_a_number_has_a_range_and_is_one(name):
    """Else `true` would be one."""
    for f in fields(METHODS[name]):
        if type(f.default) in (int, float) and not f.metadata.get("choices"):
            for wrong in (True, "0.1", 2**70):
                told = {"methods": {name: {f.name: wrong}}}
                with pytest.raises(ValueError, match=rf"\.{f.name} = "):
                    schema.check("study", told, "here")


@pytest.mark.parametrize(
    "kind, told, words",
    [
        ("data", {"name": "domains", "preset": "PACS", "n": [80, ""]}, "or a list of"),
        ("data", {"name": "glyphs", "n": 90, "styles": ["photo", 2**70]}, "a list of"),
        ("data", {"name": "digit_sites", "manners": ["uci", 1.5]}, "a list of texts"),
        ("data", {"name": "rotated", "angles": [0, "x"]}, "a list of numbers"),
        ("data", {"name": "domainbed", "classes": ["dog", -1]}, "a list of texts"),
        ("data", {"name": "acs", "states": ["CA", 5]}, "a list of texts"),
        ("data", {"name": "synthetic", "sizes": [50, None]}, "a text or a list of"),
        ("network", {"name": "MLP", "hidden": "a.b"}, "a whole number or a list of"),
        ("network", {"name": "MLP", "hidden": [64, ""]}, "a whole number or a list of"),
    ],
)
def test_entries_of_a_list_are_looked_at(kind, told, words):
    task = {"tasks": {"toy": {kind: told}}}
    wrong = [*told][-1]
    with pytest.raises(ValueError, match=rf"toy\.{kind}\.{wrong}.*: give .*{words}"):
        schema.check("paper", task, "here")
