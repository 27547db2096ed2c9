"""Every command that a page prints can be typed: its program, its arguments, the names
in them. What would compute, fetch or install is not run.
"""

import json
import re
from importlib.util import find_spec
from pathlib import Path
from unittest.mock import Mock

import pytest
import yaml
from where import ROOT

import fedlib
from fedlib.cli import main as cli
from fedlib.data import get
from fedlib.study import audit

BLOCK = r"(?ms)^ *```(?:\w*|\{code-block\} \w+)\n(.*?)^ *```|`([^`\n]+)`"
COMMAND = re.compile(r"(python -m|make|dvc (?:repro|exp run)) ?(\S*) ?(.*)")


def markdown(path):
    """The text of a page, or of the texts of a notebook."""
    text = path.read_text("utf-8")
    if path.suffix == ".ipynb":
        cells = (c for c in json.loads(text)["cells"] if c["cell_type"] == "markdown")
        text = "\n\n".join("".join(c["source"]) for c in cells)
    return text.replace("\\\n", " ")


def printed():
    """{command: the first page that prints it}, without what explains it."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    pages += [*ROOT.glob("book/*.md"), *ROOT.glob("notebooks/*/*.ipynb")]
    found = {}
    for page in sorted(pages):
        for lines in re.findall(BLOCK, markdown(page)):
            for line in "\n".join(lines).splitlines():
                line = line.strip().removeprefix("$ ")
                line = re.split(r" {2,}(?=[^- ])|\s#|[;&|]", line)[0]
                if COMMAND.match(line) and not re.search(r"<|\.\.\.|FILE", line):
                    task = re.search(r"\bT=(\S+?)`?$", markdown(page), re.M)
                    line = line.replace("$T", task[1]) if task else line
                    found.setdefault(re.sub(r"\s+", " ", line), page.name)
    return found


FOUND = printed()
STAGES = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
KNOBS = yaml.safe_load((ROOT / "params.yaml").read_text())


@pytest.fixture
def idle(monkeypatch, tmp_path):
    """Whatever would do the work does nothing."""
    (tmp_path / "params.yaml").symlink_to(ROOT / "params.yaml")
    (tmp_path / "papers").symlink_to(ROOT / "papers")
    monkeypatch.chdir(tmp_path)
    record = Mock(summary=dict, cells={})
    monkeypatch.setattr(fedlib, "run", lambda *_, **__: record)
    monkeypatch.setattr(get, "get", lambda name: [get.entry(name)])
    result = Mock(records={}, failed={}, cautions=list, tuned={})
    monkeypatch.setattr(fedlib, "compare", lambda *_, **__: result)
    for name, place in (("compute", 0), ("pack", 0), ("verify", 2)):
        chosen = lambda *given, place=place, **_: audit.chosen(given[place])
        monkeypatch.setattr(audit, name, chosen)
    monkeypatch.setattr(audit, "check", list)


def test_there_are_commands():
    assert len(FOUND) > 30


@pytest.mark.parametrize("line", FOUND)
def test_a_printed_command_can_be_typed(line, idle, capsys):
    program, first, rest = COMMAND.match(line).groups()
    if program == "make":
        rules, words = (ROOT / "Makefile").read_text(), f"{first} {rest}".split()
        targets = [w for w in words if "=" not in w]
        assert all(re.search(rf"^{t}\b.*:", rules, re.M) for t in targets)
    elif program == "dvc exp run":
        at = KNOBS
        for key in rest.partition("=")[0].split("."):
            at = at[key]
    elif program == "dvc repro":
        assert not first or first.partition("@")[0] in STAGES
    elif first != "fedlib":
        assert find_spec(first)
    else:
        rows = "a,0,1,no\nb,1,2,yes\n" * 40
        Path("my.csv").write_text("hospital,y,x,returned\n" + rows)
        assert not cli.main(rest.split()), capsys.readouterr().err
