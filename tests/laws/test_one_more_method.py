"""A method is one file, one line in METHODS and a reference, and is then everywhere; so
is one that another package brings by the entry point group fedlib.methods."""

import json
import sys
import warnings
from importlib.metadata import EntryPoint

import pytest

import fedlib
from fedlib.cli import main as cli
from fedlib.core.method import Method
from fedlib.methods import METHODS, FedAvg, others
from fedlib.methods.base.fedprox import FedProx
from fedlib.methods.others import Methods

MINE = '''"""A method of the reader's own."""

from dataclasses import dataclass

from fedlib.core.method import Card, hp
from fedlib.methods.base.fedavg import FedAvg


@dataclass(frozen=True)
class Mine(FedAvg):
    """FedAvg by a power of the sizes."""

    card = Card("reader2026", "averages oddly")
    power: float = hp(2.0, "1 gives FedAvg", "a choice", (0, 9))

    def weights(self, up):
        p = up["n"] ** self.power
        return p / p.sum()
'''
REFERENCE = "@misc{reader2026,\n  title = {A Method},\n  year = {2026}\n}\n"
PARTS = {"name": "dirichlet", "clients": 3, "alpha": 1.0}
DIGITS = {"data": {"name": "digits"}, "network": {"name": "Linear"}, "partition": PARTS}


def point(name, value):
    return EntryPoint(name, value, others.GROUP)


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """METHODS, with an installed package whose method nobody has read yet."""
    (tmp_path / "tilted.py").write_text(MINE)
    (tmp_path / "references.bib").write_text(REFERENCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(METHODS, "waiting", [point("Mine", "tilted:Mine")])
    yield METHODS
    METHODS.pop("Mine", None)
    METHODS.added.discard("Mine")
    sys.modules.pop("tilted", None)


def test_a_new_method_is_in_every_command_table_and_run(mine, capsys, monkeypatch):
    from fedlib.study import identity, studies
    from repro import traffic

    def said(*words):
        assert not cli.main(list(words)), words
        return capsys.readouterr().out

    assert [*mine][-1] == "Mine" and mine.added == {"Mine"}
    assert "averages oddly" in said("methods")
    shown = said("show", "Mine")
    assert "power = 2" in shown and REFERENCE.strip() in shown
    assert said("run", "Mine", "digits:clients=3", "--rounds", "1")
    task = fedlib.data.tasks.build(DIGITS)
    how = [("Mine", {"power": power}) for power in (1, 3)]
    mean = fedlib.compare(["FedAvg", *how], task, rounds=2).table["mean"]
    assert mean["FedAvg"] == mean["Mine(power=1)"] != mean["Mine(power=3)"]
    monkeypatch.setattr(traffic, "METHODS", {"FedAvg": FedAvg, "Mine": mine["Mine"]})
    counted = traffic.tables()[1]
    up = counted[counted.direction == "up"].groupby("method").bytes.sum()
    assert up["Mine"] == up["FedAvg"] > 0
    texts = {"task": json.dumps(DIGITS), "kwargs": "{}", "engine": "{}", "data": "real"}
    cell = studies.Cell("toy", "toy", "Mine", "", seed=0, **texts)
    assert "method Mine" in identity.user_defined(identity.parts_of(cell)[1])


def test_what_is_no_method_is_left_out_with_a_warning_that_names_it(monkeypatch):
    prox, both = "fedlib.methods.base.fedprox:FedProx", {"FedAvg": FedAvg, "X": FedProx}
    bad = {"A": "fedlib.core.method:hp", "C": "nowhere:Mine", "FedAvg": prox}
    points = [point(*pair) for pair in (bad | {"X": prox}).items()]
    monkeypatch.setattr(others, "entry_points", lambda group: points)
    new = lambda: Methods({"FedAvg": FedAvg})
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert dict(new().items()) == both
    said = [str(w.message) for w in seen]
    assert len(said) == len(bad)
    for name, value in bad.items():
        assert [s for s in said if repr(name) in s and value in s], (name, said)
    points = points[-1:]  # whatever reads the table first finds all
    whole = [{**new()}, new() | {}, new(), {n: FedProx for n in new()} | {**new()}]
    assert all(table == both for table in whole) and len(new()) == 2
    assert "X" in new() and new()["X"] is new().get("X") is FedProx


def test_the_librarys_own_methods_are_methods_of_one_file_each():
    for name in {*METHODS} - METHODS.added:
        place = METHODS[name].__module__
        assert issubclass(METHODS[name], Method), name
        assert place.startswith("fedlib.methods.") and place.count(".") == 3, name
