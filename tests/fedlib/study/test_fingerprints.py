"""Fingerprints: nothing moves where only words changed, and what an edit moves is
named, no more and no less.
"""

import json
import os
import shutil
import subprocess
import sys
import tomllib

import pytest
import torch

from fedlib.core import provenance
from fedlib.core.local import STEPS
from fedlib.core.task import Task
from fedlib.data.tasks import NETWORKS, PARTITIONS, SOURCES
from fedlib.methods import METHODS
from fedlib.pieces.robust import RULES
from fedlib.study import fingerprints, identity, microruns, sources, studies
from fedlib.study.fingerprints import (
    DRAWN,
    Finding,
    advice,
    apart,
    checked,
    findings,
    moves,
    repeat,
)
from fedlib.study.microruns import DEFAULTS, numbers

UNITS = microruns.units()
HOME = sources.PACKAGE
IDLE = {
    # a field of FedAS that this one has no use for
    "method FedAS-parallel: align_lr=0.005",
    "method FedGini: sticky=True",
    "method FedGA_ablation: sticky=False",  # on in every round, as by default
    "rule DeepSight: inputs=50",  # the clusters are the same
    "method PLGU-LF: keep=last",  # the layer that moved most is the last; its own tests differ
}


# -------------------------------------------------------- the fingerprints of this code
def test_every_unit_is_there():
    tables = {
        "method": METHODS,
        "step": STEPS,
        "rule": RULES,
        "data": SOURCES,
        "partition": PARTITIONS,
        "network": NETWORKS,
    }
    assert UNITS == [
        "engine",
        *(f"{kind} {name}" for kind, table in tables.items() for name in table),
    ]
    assert list(sources.stored()) == UNITS and not [
        f for f in map(fingerprints.incomplete, UNITS) if f
    ]
    assert sources.FILE.stat().st_size < 120_000


@pytest.mark.parametrize(
    "unit",
    [
        pytest.param(u, marks=pytest.mark.full) if u == "network ResNet50" else u
        for u in UNITS
    ],
)
def test_defaults(unit):
    assert findings(unit, defaults=True) == []


@pytest.mark.full
@pytest.mark.parametrize("unit", UNITS)
def test_all_settings(unit):
    """... and every other setting changes something, so that an edit of its code is
    seen.
    """
    now = repeat(unit)
    assert moves(unit, now) == {}
    assert {
        f"{unit}: {label}"
        for label in now
        if label != DEFAULTS and now[label] == now[DEFAULTS]
    } <= IDLE


def test_nobody_touches_the_global_generator():
    before = torch.get_rng_state()
    for unit in (
        "engine",
        "method FedAS",
        "data glyphs",
        "partition dirichlet",
        "network CNN",
    ):
        repeat(unit, [DEFAULTS])
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    "unit",
    ["engine", "method FedProto", "method FedMGDA+", "method PLGU-GHN", "network MLP"],
)
def test_rounding_is_far_below_the_tolerance(unit, monkeypatch):
    """First weights that differ in the twelfth digit stay near: no micro-run is
    chaotic.
    """
    init = Task.init

    def shaken(task, seed):
        g = torch.Generator().manual_seed(99)
        return {
            k: v * (1 + 1e-12 * torch.randn(v.shape, generator=g, dtype=v.dtype))
            for k, v in init(task, seed).items()
        }

    monkeypatch.setattr(Task, "init", shaken)
    now = repeat(unit, [DEFAULTS])[DEFAULTS]
    far = apart(sources.stored()[unit]["runs"][DEFAULTS], now)
    assert (
        now != sources.stored()[unit]["runs"][DEFAULTS]
        and far < 0.01 * fingerprints.TOLERANCE
    )


# ----------------------------------------------------------- numbers and their distance
def test_numbers_see_signs_and_order():
    v = torch.tensor([1.0, 2.0, -3.0])
    assert numbers([v])[:2] == [3, 14**0.5] and numbers([v[:1], v[1:]]) == numbers([v])
    assert apart({"a": numbers([v])}, {"a": numbers([v.flip(0)])}) > 0.01
    assert apart({"a": numbers([v])}, {"a": numbers([-v])}) > 0.01
    assert numbers([torch.tensor([1.0, float("nan")])]) == numbers([[1.0]]) and numbers(
        []
    ) == [0, 0, 0]


def test_distance_is_relative_to_the_norm():
    a = {"many": numbers([torch.full((1000,), 1e-5)])}
    assert apart(a, {"many": numbers([torch.full((1000,), 1.01e-5)])}) == pytest.approx(
        0.01, rel=0.02
    )
    assert apart(a, {"many": numbers([torch.full((999,), 1e-5)])}) == float("inf")
    assert apart(a, {"other": a["many"]}) == float("inf") and apart(a, a) == 0 == apart(
        {"a": [2, 0, 0]}, {"a": [2, 0, 0]}
    )


def test_drawn_images_may_lose_a_level_in_a_few_pixels():
    x = SOURCES["glyphs"](**microruns.DATA["glyphs"]).x.clone()
    was = {"x": numbers([x])}
    x.view(-1)[::5000] += 1 / 255
    assert (
        fingerprints.TOLERANCE < apart(was, {"x": numbers([x])}) < fingerprints.PIXELS
        and "data glyphs" in DRAWN
    )
    assert (
        min(
            apart(
                *(sources.stored()["data glyphs"]["runs"][k] for k in (DEFAULTS, other))
            )
            for other in sources.stored()["data glyphs"]["runs"]
            if other != DEFAULTS
        )
        > 2 * fingerprints.PIXELS
    )


# ---------------------------------------------------------------- versions
def good(**more):
    return {
        "method FedAS": [
            {"v": 2, "why": "a line", "date": tomllib.loads("d = 2026-11-22")["d"]}
            | more
        ]
    }


def test_the_table_of_versions_is_valid():
    assert (
        checked(tomllib.loads(identity.VERSIONS.read_text())) is not None
        and checked(good()) == good()
    )


@pytest.mark.parametrize(
    "table, says",
    [
        ({"step SAMM": []}, "'step SAMM' is no unit; did you mean 'step SAM'"),
        ({"method FedAS": 2}, "give a list with one entry for each time"),
        ({"method FedAS": []}, "give a list with one entry for each time"),
        (good(v=3), "v = 3, and should be 2"),
        (
            {"engine": good()["method FedAS"] * 2},
            "'engine', entry 2: v = 2, and should be 3",
        ),
        (good(why=" "), "version 2 has no why"),
        (good(date="2026-11-22"), "give a day without quotes"),
        (good(who="me"), "unknown who"),
    ],
)
def test_a_bad_table_is_refused(table, says):
    with pytest.raises(ValueError, match=says):
        checked(table)


def test_advice():
    of = lambda *units: [Finding("moved", u, 1, "") for u in units]
    assert "the version of method FedAS, method FedPer in" in advice(
        of("method FedAS", "method FedPer")
    )
    assert "the version of engine in" in advice(of("method FedAS", "engine"))
    assert "the version of engine in" in advice(of(*(f"method {m}" for m in METHODS)))
    assert advice([Finding("raised", "engine", 2, "")]) == "" == advice([])


# ---------------------------------------------------------------- writing
@pytest.fixture
def kept(tmp_path, monkeypatch):
    """A copy of fingerprints.json that may be written, and a table of versions that may
    be changed.
    """
    file, versions = tmp_path / "fingerprints.json", {}
    shutil.copy(sources.FILE, file)
    original = sources.stored.__wrapped__
    monkeypatch.setattr(fingerprints, "FILE", file)
    monkeypatch.setattr(sources, "stored", lambda path=file: original(file))
    sources.stored.cache_clear = lambda: None
    monkeypatch.setattr(identity, "versions", lambda: versions)
    return file, versions


def disturb(file, unit, by):
    """As if the numbers had been noted before an edit."""
    tree = json.loads(file.read_text())
    tree[unit]["runs"][DEFAULTS]["server"][1] *= 1 + by
    file.write_text(
        "{\n" + ",\n".join(fingerprints.line(u, **v) for u, v in tree.items()) + "\n}\n"
    )


def test_writing_again_changes_no_byte(kept):
    file, _ = kept
    before = file.read_bytes()
    assert (
        fingerprints.write(["step SAM", "method FedProx"], file) == []
        and file.read_bytes() == before
    )
    disturb(file, "step SAM", 1e-9)  # rounding is not noted
    before = file.read_bytes()
    assert fingerprints.write(["step SAM"], file) == [] and file.read_bytes() == before


def test_moved_numbers_are_written_with_a_new_version_only(kept):
    file, versions = kept
    whole = file.read_text()
    disturb(file, "step SAM", 3e-4)
    moved = file.read_text()
    (refused,) = fingerprints.write(["step SAM", "step Plain"], file)
    assert (
        str(refused) == "MOVED step SAM (version 1): by 3.0e-04 in defaults"
        and file.read_text() == moved
    )
    versions["step SAM"] = 2
    assert [f.what for f in findings("step SAM")] == ["raised"]
    assert fingerprints.write(["step SAM"], file) == [] == findings("step SAM")
    old, new = whole.splitlines(), file.read_text().splitlines()
    assert [a for a, b in zip(old, new) if a != b] == [
        line for line in old if line.startswith('"step SAM"')
    ]
    versions.clear()
    (refused,) = fingerprints.write(["step SAM"], file)
    assert "a version never goes back" in str(refused)


def test_a_setting_that_is_new_is_asked_for(kept):
    file, _ = kept
    tree = json.loads(file.read_text())
    tree["step SAM"]["runs"] = {DEFAULTS: tree["step SAM"]["runs"][DEFAULTS]}
    file.write_text(json.dumps(tree))
    disturb(file, "step SAM", 1e-9)
    before = sources.stored(file)["step SAM"]["runs"][DEFAULTS]
    assert [f.why.partition(";")[0] for f in findings("step SAM")] == ["new: rho=0.025"]
    assert fingerprints.write(["step SAM"], file) == [] == findings("step SAM")
    # what was there stays, but for rounding
    assert sources.stored(file)["step SAM"]["runs"][DEFAULTS] == before


def test_command_line(kept, capsys):
    file, _ = kept
    assert fingerprints.main(["check", "--defaults", "SAM", "rule"]) == 0
    assert capsys.readouterr().out.startswith(f"{1 + len(RULES)} units, 0 findings")
    disturb(file, "step SAM", 3e-4)
    assert fingerprints.main(["check", "step SAM"]) == 1
    assert (
        "raise by one the version of step SAM in fedlib/study/versions.toml"
        in capsys.readouterr().out
    )
    with pytest.raises(ValueError, match="'SAN' is no unit; did you mean 'SAM'"):
        fingerprints.main(["check", "SAN"])


# ---------------------------------------------------------------- edits of the sources
ALIGNED = ["FedAS", "FedAS-parallel", "FedAS-global", "FedAS-chained", "CD2-pFed"]
TUNED = ["FedAvg-FT", "FedProx-FT", "FedBABU"]
CONTROLS = ["FedAvg", "FedProx", "FedPer", "FedRep", "FedProto"]
SCRIPT = """
import json, sys, torch
torch.set_num_threads(1)
from fedlib.study import fingerprints, studies
cells = [studies.Cell("toy", "toy", m, "", 0, "real", '{"data": {"name": "digits"}, "network": {"name": "Linear"}}',
                      "{}", '{"rounds": 2}') for m in sys.argv[1:]]
some = ("defaults", "align=sample", "align=True")
moved = {m: list(fingerprints.moves(f"method {m}", fingerprints.repeat(f"method {m}", some))) for m in sys.argv[1:]}
print(json.dumps([moved, [c.id for c in cells]]))
"""


def edited(tmp_path, names, *edits):
    """({method: labels that moved}, [ids]) by a copy of the package with edits (file,
    text, other text).
    """
    shutil.copytree(
        HOME, tmp_path / "fedlib", ignore=shutil.ignore_patterns("__pycache__")
    )
    for file, old, new in edits:
        path = tmp_path / "fedlib" / file
        body = path.read_text()
        assert body.count(old) == 1, (
            f"{file} has {old!r} {body.count(old)} times: the edit edits nothing, "
            "mend this test"
        )
        path.write_text(body.replace(old, new))
    env = os.environ | {"PYTHONPATH": str(tmp_path), "OMP_NUM_THREADS": "1"}
    out = subprocess.run(
        [sys.executable, "-c", SCRIPT, *names],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
    )
    assert out.returncode == 0, out.stderr
    return json.loads(out.stdout)


def ids(names):
    return [
        studies.Cell(
            "toy",
            "toy",
            m,
            "",
            0,
            "real",
            '{"data": {"name": "digits"}, "network": {"name": "Linear"}}',
            "{}",
            '{"rounds": 2}',
        ).id
        for m in names
    ]


@pytest.mark.full
def test_words_move_nothing(tmp_path):
    """A type hint, a message, a helper pulled out: no number moves, no run is renamed."""
    names = ["FedAS", "CD2-pFed", "FedAvg"]
    moved, now = edited(
        tmp_path,
        names,
        (
            "core/engine.py",
            "def first_not_finite(stacks):",
            "def first_not_finite(stacks: list[torch.Tensor]):",
        ),
        (
            "core/errors.py",
            "lower lr, or look at this client's rows",
            "try a smaller lr",
        ),
        (
            "methods/personal/fedas.py",
            '    d = d.mean(1) if reduction == "mean" else d.sum(1)',
            "    d = reduced(d, reduction)",
        ),
        (
            "methods/personal/fedas.py",
            "def class_means(",
            'def reduced(d, how):\n    """Mean or sum over features."""\n'
            '    return d.mean(1) if how == "mean" else d.sum(1)\n\n\ndef class_means(',
        ),
    )
    assert moved == dict.fromkeys(names, []) and now == ids(names)


@pytest.mark.full
def test_a_doubled_alignment_moves_all_that_aligns(tmp_path):
    moved, now = edited(
        tmp_path,
        ALIGNED + CONTROLS,
        (
            "methods/personal/fedas.py",
            "return (d * share.sum(1)).sum()",
            "return 2 * (d * share.sum(1)).sum()",
        ),
    )
    assert {m for m in moved if moved[m]} == set(ALIGNED)
    assert moved["CD2-pFed"] == ["align=True"]  # at its defaults it does not align
    # ids have no source in them: only the fingerprints can tell
    assert now == ids(ALIGNED + CONTROLS)


@pytest.mark.full
def test_a_longer_step_moves_all_that_fine_tunes(tmp_path):
    moved, _ = edited(
        tmp_path,
        TUNED + CONTROLS,
        (
            "methods/base/tuned.py",
            'shard.on("tune"), lr)  # eq:tuned',
            'shard.on("tune"), 1.1 * lr)  # eq:tuned',
        ),
    )
    assert {m for m in moved if moved[m]} == set(TUNED)


def test_the_package_ships_both_tables():
    project = tomllib.loads((HOME.parent / "pyproject.toml").read_text())
    assert set(project["tool"]["setuptools"]["package-data"]["fedlib.study"]) >= {
        fingerprints.FILE.name,
        identity.VERSIONS.name,
    }
    assert provenance.sources("study/" + fingerprints.FILE.name) != provenance.sources()
