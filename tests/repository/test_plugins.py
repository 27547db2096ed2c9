"""A method of another package, by the entry point group fedlib.methods: it is in every
command, and one that is broken stops nothing.
"""

import json
import os
import subprocess
import sys
from importlib.metadata import EntryPoint

import pytest
from test_one_method import MINE, REFERENCE
from where import ROOT

from fedlib.core.method import Method
from fedlib.methods import METHODS, others
from fedlib.methods.base.fedavg import FedAvg
from fedlib.methods.base.fedprox import FedProx
from fedlib.methods.others import Methods

POINTS = """\
[fedlib.methods]
Mine = tilted.mine:Mine
FedAvg = tilted.mine:Mine
Broken = tilted.broken:Broken
Lost = tilted.mine:Lost
"""
ASK = """
import contextlib, io, json, sys, warnings
sys.path[:0] = ["tests", "tests/fedlib/methods"]
import torch
torch.set_num_threads(1)
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    import tilted.mine  # before fedlib has been asked for anything
    import fedlib
    out = {"there": "Mine" in fedlib.METHODS, "last": list(fedlib.METHODS)[-1]}
out["warned"] = [str(w.message) for w in seen if "tilted" in str(w.message)]
from fedlib import plots
from fedlib.cli import complete, main as cli
from fedlib.data import tasks
from fedlib.study import fingerprints, identity, microruns, studies

def said(*words):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        code = cli.main(list(words))
    assert not code, (words, code)
    return printed.getvalue()

for words in (["methods"], ["show", "Mine"], ["cite", "Mine"]):
    out[words[0]] = said(*words)
out["run"] = said("run", "Mine", "digits:clients=3", "--rounds", "1")
task = tasks.build({"data": {"name": "digits"}, "network": {"name": "Linear"},
    "partition": {"name": "dirichlet", "clients": 3, "alpha": 1.0}, "batch": 64})
out["power"] = fedlib.make("Mine", task, power=1).power
table = fedlib.compare(["FedAvg", ("Mine", {"power": 1})], task, rounds=1).table
out["compared"] = table["mean"].round(3).tolist()
out["completed"] = complete.methods()
out["look"] = plots.label("Mine")
import test_contract
out["contract"] = "Mine" in test_contract.NAMES
out["units"] = [u for u in microruns.units() if "Mine" in u]
text = {"data": {"name": "digits"}, "partition": {"name": "natural"}}
text |= {"network": {"name": "Linear"}}
cell = studies.Cell(dataset="toy", label="toy", method="Mine", setting="", seed=0,
    data="real", task=json.dumps(text), kwargs="{}", engine="{}")
out["units of a run"] = identity.units(cell)
out["named"] = len(cell.id)
print("ANSWER" + json.dumps(out))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The environment of a Python in which a package with methods is installed."""
    site = tmp_path_factory.mktemp("site")
    (site / "tilted").mkdir()
    (site / "tilted/__init__.py").touch()
    mine = MINE.replace("from ...core", "from fedlib.core")
    mine = mine.replace("from .fedavg", "from fedlib.methods.base.fedavg")
    (site / "tilted/mine.py").write_text(mine)
    (site / "tilted/references.bib").write_text(REFERENCE)
    (site / "tilted/broken.py").write_text("import no_such_module\n")
    (site / "tilted-1.0.dist-info").mkdir()
    about = "Metadata-Version: 2.1\nName: tilted\nVersion: 1.0\n"
    (site / "tilted-1.0.dist-info/METADATA").write_text(about)
    (site / "tilted-1.0.dist-info/entry_points.txt").write_text(POINTS)
    path = os.pathsep.join(map(str, (ROOT, site)))
    return os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}


def python(env, *words):
    """What that Python says."""
    command, how = [sys.executable, *words], {"capture_output": True, "text": True}
    got = subprocess.run(command, cwd=ROOT, env=env, **how)
    assert got.returncode == 0, got.stdout[-3000:] + got.stderr[-3000:]
    return got


@pytest.fixture(scope="module")
def answer(installed):
    got = python(installed, "-c", ASK)
    return json.loads(got.stdout.rpartition("ANSWER")[2])


def test_a_method_of_another_package_is_in_every_command(answer):
    assert answer["there"] and answer["last"] == "Mine" and answer["power"] == 1
    assert "averages by a power of the sizes" in answer["methods"]
    assert "power = 2" in answer["show"] and "tilted/mine.py" in answer["show"]
    assert "@inproceedings{reader2026" in answer["cite"]
    assert answer["run"].startswith("Mine on digits")
    assert "Mine" in answer["completed"] and answer["look"] == "Mine"
    assert answer["contract"]


def test_at_power_1_it_is_fedavg(answer):
    fedavg, mine = answer["compared"]
    assert mine == fedavg


def test_it_has_no_fingerprint_and_its_source_names_its_runs(answer):
    assert answer["units"] == [] and "method Mine" in answer["units of a run"]
    assert answer["named"] == 16


def test_a_broken_one_is_a_warning_that_names_its_package(answer):
    said = "\n".join(answer["warned"])
    assert said.count("tilted: its method") == 3 == len(answer["warned"])
    for words in (
        "'FedAvg' (tilted.mine:Mine) is left out: there is a method of that name",
        "'Broken' (tilted.broken:Broken) is left out: ModuleNotFoundError",
        "'Lost' (tilted.mine:Lost) is left out: AttributeError",
    ):
        assert words in said


@pytest.mark.full
def test_the_contract_tests_it(installed):
    words = "-m pytest -q -p no:cacheprovider tests/fedlib/methods/test_contract.py -k"
    end = python(installed, *words.split(), "Mine").stdout.splitlines()[-1]
    assert int(end.split(" passed")[0].split()[-1]) > 10


# ---------------------------------------------------------------- the table itself
def table(monkeypatch, **values):
    points = [EntryPoint(name, v, others.GROUP) for name, v in values.items()]
    monkeypatch.setattr(others, "entry_points", lambda group: points)
    return Methods({"FedAvg": FedAvg})


ANOTHER = "fedlib.methods.base.fedprox:FedProx"
READINGS = {
    "in": lambda t: "X" in t,
    "[]": lambda t: t["X"],
    "get": lambda t: t.get("X"),
    "list": lambda t: "X" in list(t),
    "len": lambda t: len(t) == 2,
    "dict": lambda t: "X" in dict(t),
    "**": lambda t: "X" in {**t},
    "|": lambda t: "X" in t | {},
    "items": lambda t: "X" in dict(t.items()),
    "==": lambda t: t == dict(FedAvg=FedAvg, X=FedProx),
}


@pytest.mark.parametrize("read", READINGS.values(), ids=READINGS)
def test_whatever_reads_the_table_first_finds_all(monkeypatch, read):
    assert read(table(monkeypatch, X=ANOTHER))


def test_it_is_a_dictionary_that_can_be_changed(monkeypatch):
    t = table(monkeypatch, X=ANOTHER)
    assert isinstance(t, dict) and t.added == set()
    t["Own"] = FedAvg
    assert list(t) == ["FedAvg", "Own", "X"] and t.added == {"X"}
    del t["X"]
    assert "X" not in t and len(t) == 2


@pytest.mark.parametrize(
    "value, words",
    [
        ("fedlib.core.method:hp", "it is no fedlib.core.method.Method"),
        ("fedlib.core.tree:Method", "AttributeError"),
        ("nowhere:Mine", "ModuleNotFoundError: No module named 'nowhere'"),
    ],
)
def test_what_is_no_method_is_left_out(monkeypatch, value, words):
    with pytest.warns(UserWarning, match="an unknown package: its method 'X'") as got:
        assert list(table(monkeypatch, X=value)) == ["FedAvg"]
    assert words in str(got[0].message)


def test_without_other_packages_the_table_is_the_librarys():
    own = [n for n in METHODS if n not in METHODS.added]
    assert own and all(issubclass(METHODS[n], Method) for n in own)
    assert all(METHODS[n].__module__.startswith("fedlib.") for n in own)
