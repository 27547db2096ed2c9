"""The guard: stored runs are taken where the code gives their numbers,
and whoever has edited it is told.
"""

import importlib.util
import itertools
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass

import pytest

from fedlib.core import provenance
from fedlib.methods import METHODS, FedAvg
from fedlib.study import fingerprints, guard, identity, microruns, sources
from fedlib.study.foreign import own, unknown
from fedlib.study.guard import Moved, check, wanted
from fedlib.study.microruns import DEFAULTS
from fedlib.study.studies import Cell

HOME = sources.PACKAGE
TASK = {
    "data": {"name": "digits"},
    "partition": {"name": "dirichlet", "clients": 5, "alpha": 0.5},
    "network": {"name": "Linear"},
}


def cell(method="FedAvg", task=None, rounds=2, **hyper):
    return Cell(
        "digits",
        "digits",
        method,
        "",
        0,
        "real",
        json.dumps(TASK | (task or {})),
        json.dumps(hyper),
        json.dumps({"rounds": rounds}),
    )


@pytest.fixture(autouse=True)
def edited(monkeypatch):
    """Sources that are not those whose fingerprints were all compared."""
    monkeypatch.setattr(sources, "released", lambda: "")


@pytest.fixture
def repeated(monkeypatch):
    """The (unit, label) of every micro-run that is made while the test runs."""
    out, repeat = [], fingerprints.repeat

    def counted(unit, labels=None):
        got = repeat(unit, labels)
        out.extend((unit, label) for label in got)
        return got

    monkeypatch.setattr(fingerprints, "repeat", counted)
    return out


@pytest.fixture
def noted(monkeypatch):
    """{unit: ...} of fingerprints.json, to be changed as if it had been noted by other
    code.
    """
    tree = json.loads(json.dumps(sources.stored()))
    monkeypatch.setattr(sources, "stored", lambda: tree)
    return tree


# ----------------------------------------------------- which micro-runs concern a study
def test_what_is_repeated_is_what_the_cells_use():
    got = wanted(
        [
            cell("FedAS", align="sample", align_lr=0.3, epochs=5),
            cell("FedProx"),
            cell("FedProx", mu=0.7),
        ]
    )
    assert got["method FedAS"] == [DEFAULTS, "align=sample", "align_lr=0.005"] and got[
        "method FedProx"
    ] == [DEFAULTS, "mu=0.001"]
    assert {"epochs=3", DEFAULTS, "rows"} <= set(got["engine"]) and not {
        "momentum=0.5",
        "own=True",
    } & set(got["engine"])
    assert set(got) == {
        "engine",
        "method FedAS",
        "method FedProx",
        "step Plain",
        "rule Mean",
        "data digits",
        "partition dirichlet",
        "network Linear",
    }


def test_pieces_and_what_is_inside_count():
    got = wanted(
        [
            cell(
                "EquFL",
                target="DP",
                step={"name": "SAM", "rho": 0.1},
                inner={"name": "FedProx", "mu": 0.5},
            ),
            cell(
                task={
                    "partition": {
                        "name": "dirichlet",
                        "clients": 5,
                        "alpha": 0.5,
                        "seed": 3,
                    }
                }
            ),
        ]
    )
    assert got["method EquFL"] == [DEFAULTS, "rho=0.2", "target=DP"] and got[
        "method FedProx"
    ] == [DEFAULTS, "mu=0.001"]
    assert got["step SAM"] == [DEFAULTS, "rho=0.025"] and got[
        "partition dirichlet"
    ] == [DEFAULTS, "seed=1"]


# ---------------------------------------------------------------- untouched code
def test_untouched_code_passes_and_is_looked_at_once(tmp_path, repeated):
    runs = tmp_path / "not" / "there"
    check([cell(), cell(lr=0.3)], runs)
    assert ("method FedAvg", DEFAULTS) in repeated and len(set(repeated)) == len(
        repeated
    )
    del repeated[:]
    check([cell()], runs)
    assert repeated == []
    check([cell("FedProx"), cell()], runs)  # only what is new in this study
    assert repeated == [("method FedProx", DEFAULTS)]
    check([cell("FedProx", mu=0.5)], runs)
    assert repeated[1:] == [("method FedProx", "mu=0.001")]


def test_sources_as_they_were_compared_cost_nothing(
    tmp_path, repeated, noted, monkeypatch
):
    monkeypatch.setattr(sources, "released", sources.state)
    check([cell()], tmp_path)
    assert repeated == [] and not (tmp_path / ".checked").exists()


def test_what_makes_numbers_is_found_by_its_imports(tmp_path):
    files = {p.relative_to(sources.PACKAGE).as_posix() for p in sources.modules()}
    assert {
        "core/engine.py",
        "core/tree.py",
        "pieces/condense.py",
        "methods/personal/fedas.py",
        "data/glyphs.py",
        "nets/layers.py",
        "core/server.py",
    } <= files
    assert (
        not {
            "plots/theme.py",
            "study/evidence.py",
            "study/compute.py",
            "study/experiment.py",
            "study/compare.py",
            "deploy/server.py",
        }
        & files
    )
    code = "def f(x):\n    return x + 1\n"
    assert sources.bare(code) == sources.bare(
        'def f(x):\n    """One more."""\n    # why\n    return x + 1\n'
    )
    assert sources.bare(code) != sources.bare(code.replace("1", "2"))


@pytest.mark.full
def test_the_fingerprints_of_these_sources_were_compared():
    """Else everybody who asks for a study waits for that comparison."""
    assert sources.CHECKED.read_text().strip() == sources.state(), (
        "run python -m fedlib.study.fingerprints check"
    )


def test_other_sources_are_looked_at_again(tmp_path, repeated, monkeypatch):
    check([cell()], tmp_path)
    del repeated[:]
    monkeypatch.setattr(sources, "state", lambda: "0" * 16)
    check([cell()], tmp_path)
    assert ("engine", DEFAULTS) in repeated
    monkeypatch.undo()
    check([cell()], tmp_path)  # back again: nothing was forgotten
    assert len((tmp_path / ".checked").read_text().split("\n")) > 20


@pytest.mark.parametrize("harm", ["garbage", "half", "folder"])
def test_notes_that_say_nothing(tmp_path, repeated, harm):
    notes, line = tmp_path / ".checked", guard.entry("method FedAvg", DEFAULTS)
    if harm == "folder":
        notes.mkdir()  # cannot be read, cannot be written
    else:
        notes.write_bytes(
            b"\xff\x00 no line" if harm == "garbage" else line[:-3].encode()
        )
    check([cell()], tmp_path)
    assert ("method FedAvg", DEFAULTS) in repeated
    del repeated[:]
    check([cell()], tmp_path)
    assert bool(repeated) == (harm == "folder")


@pytest.mark.full
def test_two_processes_write_whole_lines(tmp_path):
    script = (
        "import sys; from pathlib import Path; from fedlib.study import guard\n"
        "for i in range(200): guard.write(Path(sys.argv[1]), "
        "[f'{sys.argv[2]} {i} ' + 'x' * 50] * 2)"
    )
    at = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path / "notes"), who],
            cwd=HOME.parent,
        )
        for who in "ab"
    ]
    assert [p.wait() for p in at] == [0, 0]
    want = {f"{who} {i} " + "x" * 50 for who in "ab" for i in range(200)}
    assert guard.read(tmp_path / "notes") == want | {""}


# -------------------------------------------------------- code that gives other numbers
def test_moved_numbers_stop_a_study(tmp_path, noted, repeated):
    noted["method FedProx"]["runs"][DEFAULTS]["server"][1] *= 1.01
    check([cell()], tmp_path)
    for _ in range(2):  # again and again; the others are noted
        del repeated[:]
        with pytest.raises(
            Moved, match=r"MOVED method FedProx \(version 1\): by 9.9e-03 in defaults"
        ) as e:
            check([cell(), cell("FedProx")], tmp_path)
        assert repeated == [("method FedProx", DEFAULTS)]
    for remedy in (
        "mine=True",
        "raise by one the version of method FedProx in fedlib/study/versions.toml",
        "undo the edit",
    ):
        assert remedy in str(e.value)


def test_a_setting_moves_only_those_who_use_it(tmp_path, noted):
    noted["method FedAS"]["runs"]["align=sample"]["clients"][1] *= 1.01
    check([cell("FedAS")], tmp_path)
    with pytest.raises(Moved, match="in align=sample"):
        check([cell("FedAS", align="sample")], tmp_path)


def test_a_version_is_noted_with_its_numbers(tmp_path, noted, monkeypatch):
    """Raised, and not yet written: else the edits that follow would go unseen."""
    monkeypatch.setattr(identity, "versions", lambda: {"method FedProx": 2})
    with pytest.raises(Moved, match='RAISED method FedProx.*write "method FedProx"'):
        check([cell("FedProx")], tmp_path)
    noted["method FedProx"]["version"] = 2
    check([cell("FedProx")], tmp_path)


def test_a_new_setting_needs_a_fingerprint(tmp_path, noted):
    del noted["method FedProx"]["runs"]["mu=0.001"]  # as if mu had been added since
    check([cell("FedProx")], tmp_path)
    with pytest.raises(Moved, match="INCOMPLETE method FedProx.*new: mu=0.001"):
        check([cell("FedProx", mu=0.5)], tmp_path)


@pytest.mark.full
def test_a_student_edits_fedas(tmp_path):
    """... and has a run of hers from before the edit: it is not what she is given."""
    shutil.copytree(
        HOME, tmp_path / "fedlib", ignore=shutil.ignore_patterns("__pycache__")
    )
    path = tmp_path / "fedlib" / "methods" / "personal" / "fedas.py"
    body, old = path.read_text(), "return (d * share.sum(1)"
    assert body.count(old) == 1
    path.write_text(body.replace(old, "return 2 * (d * share.sum(1)"))
    before = cell("FedAS")
    (tmp_path / "runs" / before.id).mkdir(parents=True)
    (tmp_path / "runs" / before.id / "done").touch()
    script = (
        (
            "from fedlib.study import guard; from fedlib.study.studies import Cell; import "
            f"os\nc = {before!r}\n"
            "assert os.path.exists(f'runs/{c.id}/done') and guard.salt() != "
        )
        + repr(guard.salt())
        + "\n"
        "try:\n    guard.check([c])\nexcept guard.Moved as e:\n    print(e)\n"
        "guard.check([Cell(**vars(c) | {'method': 'FedPer'})])\n"
    )
    out = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(tmp_path), "OMP_NUM_THREADS": "1"},
    )
    assert out.returncode == 0, out.stderr
    assert (
        "MOVED method FedAS (version 1): by" in out.stdout
        and "mine=True" in out.stdout
        and "FedPer" not in out.stdout
    )


def test_salt():
    assert guard.salt() == provenance.source() and len(guard.salt()) == 16


# --------------------------------------------------------------- units of somebody else
number = itertools.count()
MINE = '''
from dataclasses import dataclass
from fedlib.methods import FedAvg

LIMIT = 2
NAMES = {"a", "b"}


def cut(x):
    """What is above the limit."""
    return x * LIMIT


class Base(FedAvg):
    def weights(self, up):
        return super().weights(up)


@dataclass(frozen=True)
class Mine(Base):
    """A method of one's own."""
    tau: float = 1.0
    who = "sample"

    def local(self, down, mine, shard):
        # a comment
        return (lambda: super(Mine, self).local(down, mine, shard))() if cut(self.tau) in {1, 2} else None
'''


def mine(tmp_path, old="", new="", source=True):
    """The class of a module MINE, with an edit; source: is there a file that it can be
    read from?
    """
    assert old in MINE
    text, name = MINE.replace(old, new) if old else MINE, f"mine{next(number)}"
    if source:
        (tmp_path / f"{name}.py").write_text(text)
        spec = importlib.util.spec_from_file_location("mine", tmp_path / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        sys.modules["mine"] = module
        spec.loader.exec_module(module)
        return module.Mine
    module = type(sys)("mine")
    sys.modules["mine"] = module
    exec(compile(text, "<cell>", "exec"), vars(module))
    return module.Mine


@pytest.mark.parametrize("source", [True, False], ids=["file", "code"])
def test_what_is_ones_own_counts(tmp_path, source):
    was = own(mine(tmp_path, source=source))
    assert own(mine(tmp_path, source=source)) == was and len(was) == 16
    for old, new in (
        ("tau: float = 1.0", "tau: float = 2.0"),
        ("LIMIT = 2", "LIMIT = 3"),
        ("x * LIMIT", "x - LIMIT"),
        ("super().weights(up)", "super().weights(up) * 2"),
        ('"sample"', '"all"'),
        ("{1, 2}", "{1, 3}"),
        ("(down, mine, shard))()", "(down, mine, shard) or 1)()"),
    ):
        assert own(mine(tmp_path, old, new, source)) != was, old
    for old, new in (
        ("# a comment", "# another"),
        ("A method of one's own.", "Mine."),
        ('"b"}', '"c"}'),
    ):
        assert own(mine(tmp_path, old, new, source)) == was, old


def test_a_comment_in_what_is_called_does_not_count(tmp_path):
    assert own(mine(tmp_path, "What is above the limit.", "Above.")) == own(
        mine(tmp_path)
    )


def test_a_notebooks_own_method(tmp_path, monkeypatch, repeated):
    """It has no fingerprint, so its source is in the name of its runs, and the guard
    has nothing to say about it.
    """
    monkeypatch.setitem(METHODS, "Mine", mine(tmp_path))
    assert (
        unknown({*identity.units(cell("Mine")), *identity.units(cell())})
        == {"method Mine": own(METHODS["Mine"])}
        and unknown(identity.units(cell())) == {}
    )
    check([cell("Mine")], tmp_path)
    assert ("engine", DEFAULTS) in repeated and not any(
        "Mine" in unit for unit, _ in repeated
    )
    was = cell("Mine").id
    monkeypatch.setitem(METHODS, "Mine", mine(tmp_path, "x * LIMIT", "x + LIMIT"))
    assert cell("Mine").id != was


@pytest.mark.full
def test_a_hash_does_not_depend_on_the_process(tmp_path):
    """The order of a set is chance, by PYTHONHASHSEED."""
    (tmp_path / "mine.py").write_text(MINE.replace("{1, 2}", '{"a", "b", "c", "d"}'))
    script = (
        "import types, sys; from fedlib.study.foreign import own; "
        "m = types.ModuleType('mine'); sys.modules['mine'] = m\n"
        "exec(compile(open('mine.py').read(), '<cell>', 'exec'), vars(m)); "
        "print(own(m.Mine))"
    )
    out = {
        subprocess.run(
            [sys.executable, "-c", script],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
            env=os.environ | {"PYTHONPATH": str(HOME.parent), "PYTHONHASHSEED": seed},
        ).stdout
        for seed in "12"
    }
    assert len(out) == 1


def test_a_method_of_the_package_without_a_fingerprint(noted, monkeypatch):
    """Newly added, and `write` not yet run: until then each edit of its module renames
    its runs.
    """
    known = cell("FedProx").id
    del noted["method FedProx"]
    assert unknown(identity.units(cell("FedProx"))) == {
        "method FedProx": own(METHODS["FedProx"])
    }
    before = cell("FedProx").id
    monkeypatch.setattr(
        METHODS["FedProx"], "local", lambda self, down, mine, shard: (mine, down)
    )
    assert len({known, before, cell("FedProx").id}) == 3 and cell().id == cell().id


@dataclass(frozen=True)
class Here(FedAvg):
    def weights(self, up):
        return helper(up)


def helper(up):
    return up["n"] / up["n"].sum()


def test_what_a_test_defines_is_hashed_too(monkeypatch):
    was = own(Here)
    monkeypatch.setattr(sys.modules[__name__], "helper", lambda up: up["n"])
    assert own(Here) != was
    assert microruns.KINDS["method"][0] is METHODS
