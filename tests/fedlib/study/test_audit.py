"""Evidence of studies: computed, packed, checked, read by `study`,
and computed again.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from fedlib.core import record
from fedlib.study import (
    audit,
    evidence,
    experiment,
    guard,
    identity,
    packing,
    sources,
    studies,
)

TREE = {
    "tier": "small",
    "fedga": {
        "alpha": 3,
        "tasks": {
            "toy": {
                "label": "three clients",
                "data": {
                    "name": "synthetic",
                    "alpha": 0.5,
                    "beta": 0.5,
                    "sizes": [60, 80, 70],
                },
                "network": {"name": "Linear"},
                "train": {"lr": 0.05},
                "run": {"rounds": 3, "cohort": 2},
                "tiny": {"run": {"rounds": 1}},
            }
        },
        "studies": {
            "book": {
                "main": {
                    "tasks": ["toy"],
                    "seeds": 2,
                    "microscope": True,
                    "methods": {"FedAvg": {}, "FedGA": {"alpha": "$alpha"}},
                },
                "more": {
                    "tasks": ["toy"],
                    "seeds": 1,
                    "methods": {"FedProx": {"mu": [0.1, 1.0]}},
                },
            }
        },
    },
}


@pytest.fixture
def repo(tmp_path, monkeypatch):
    """A folder with two small studies; the sources are a commit without changes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(record, "commit", lambda: "0123456789")
    write(TREE)
    (tmp_path / "results").mkdir()
    return tmp_path


def write(tree):
    Path("params.yaml").write_text(yaml.safe_dump(tree, sort_keys=False))


def change(**entries):
    tree = json.loads(json.dumps(TREE))
    tree["fedga"]["studies"]["book"]["main"] |= entries
    write(tree)


def test_from_nothing_to_evidence_that_the_study_reads(repo, capsys):
    audit.compute(workers=1)
    told = capsys.readouterr().out
    assert (
        "6 runs of 2 studies, 6 of them to compute: about" in told
        and "[ 1/2] fedga/main: 4 runs" in told
    )
    audit.pack()
    assert audit.check() == [] and "6 runs" in capsys.readouterr().out
    fresh = experiment.study("fedga", "main", workers=1)
    shutil.rmtree("runs")
    stored = experiment.study("fedga", "main", workers=1)
    assert not list(Path("runs").glob("*/done"))  # nothing was computed again
    assert stored.seeds().equals(fresh.seeds()) and all(
        map(packing.same, fresh.records, stored.records)
    )
    audit.compute(workers=1)
    # `make evidence` takes nothing from evidence/
    assert "6 of them to compute" in capsys.readouterr().out


def test_a_killed_computation_continues(repo, capsys):
    audit.compute(["fedga/more"], workers=1)
    capsys.readouterr()
    audit.compute(workers=1)
    assert "6 runs of 2 studies, 4 of them to compute" in capsys.readouterr().out


def test_a_study_says_how_many_seeds_keep_a_log(repo):
    change(logs={"drift": 1, "conflict": 0})
    audit.compute(["fedga/main"], workers=1)
    audit.pack(["fedga/main"])
    shutil.rmtree("runs")
    run = experiment.study("fedga", "main", workers=1)
    assert [
        sorted({"drift", "conflict", "weight"} & r.logs.keys())
        for _, r in run.of(method="FedGA")
    ] == [
        ["drift", "weight"],
        ["weight"],
    ]
    assert run.log("toy", "FedAvg", "drift").shape[0] == 1
    # one number a round is always kept
    assert all("update_scale" in r.logs for r in run.records)
    with pytest.raises(
        ValueError,
        match=(
            "no run of FedAvg on toy has kept the log 'conflict'; let the study's "
            "key `logs`"
        ),
    ):
        run.log("toy", "FedAvg", "conflict")


def test_an_incomplete_study_is_not_packed(repo):
    audit.compute(workers=1)
    audit.pack()
    before = {f: f.read_bytes() for f in Path("evidence").rglob("*.parquet")}
    change(seeds=3)
    with pytest.raises(
        ValueError,
        match=(
            "fedga/main: 2 of 6 runs are missing, the first is toy FedAvg seed 2; "
            "compute them: python"
        ),
    ):
        audit.pack()
    assert {f: f.read_bytes() for f in Path("evidence").rglob("*.parquet")} == before
    audit.compute(["fedga/main"], workers=1)
    # what is packed need not lie in runs/
    shutil.rmtree(Path("runs", studies.cells("fedga", "main")[0][0].id))
    audit.pack(["fedga/main"])
    assert audit.check() == []


@pytest.mark.parametrize(
    "spoil, says",
    [
        (
            lambda m: m.update(commit="0123456789+"),
            "sources that are in no commit (0123456789+)",
        ),
        (
            lambda m: m.update(commit="unknown"),
            "sources that are in no commit (unknown)",
        ),
        (
            lambda m: m.update(rounds=9),
            "ends in round 3 of 9 and is not marked as diverged",
        ),
    ],
)
def test_a_run_that_nobody_could_make_again_is_not_packed(repo, spoil, says):
    audit.compute(workers=1)
    at = Path("runs", studies.cells("fedga", "main")[0][0].id)
    run = record.Record.load(at)
    spoil(run.meta)
    run.save(at)
    with pytest.raises(ValueError) as e:
        audit.pack()
    assert (
        says in str(e.value)
        and "toy FedAvg seed 0" in str(e.value)
        and f"delete {at}" in str(e.value)
    )
    run.meta |= {"diverged": {"client": 0, "round": 3}, "commit": "0123456789"}
    run.save(at)
    audit.pack(["fedga/main"])  # with its mark it is a result


def test_check_names_what_is_missing_foreign_or_of_other_versions(repo, monkeypatch):
    audit.compute(workers=1)
    audit.pack()
    Path("evidence/fedga-gone").mkdir()
    change(seeds=1)
    wrong = audit.check()
    assert any("fedga-gone: belongs to no study" in w for w in wrong)
    assert (
        any(
            "fedga-main: 2 are of settings that the study does not have" in w
            for w in wrong
        )
        and len(wrong) == 2
    )
    Path("evidence/fedga-gone").rmdir()
    write(TREE)
    monkeypatch.setattr(identity, "versions", lambda: {"method FedGA": 2})
    assert audit.check() == [
        (
            "evidence/fedga-main: 2 of 4 runs are missing, the first is toy FedGA seed "
            "0; 2 are of other versions (method FedGA 1, now 2): compute and pack again"
        )
    ]
    monkeypatch.undo()
    monkeypatch.chdir(repo)
    Path("evidence/fedga-more/hits.parquet").unlink()
    assert ["hits.parquet cannot be read" in w for w in audit.check()] == [True]
    assert "more than 0 MB" in audit.check(limit=10)[-1]


def test_verify_says_same_rounding_or_differs(repo, monkeypatch):
    audit.compute(workers=1)
    audit.pack()
    found = audit.verify(3)
    assert found.verdict.tolist() == ["same"] * 3 and (found.points == 0).all()
    parallel = audit.verify(3, workers=2).drop(columns="now")
    pd.testing.assert_frame_equal(parallel, found.drop(columns="now"))
    cell = studies.cells("fedga", "main")[0][0]
    old = evidence.find({cell.id}, "fedga", "main")[cell.id]
    assert audit.apart(old, old) == (0, 0, 0)
    honest = audit.again
    monkeypatch.setattr(
        audit,
        "again",
        lambda c, noise=0.0, device="cpu", draw=0: shifted(honest(c), 0.02, first=1),
    )
    # two points, more than rounding may do
    assert audit.verify(1).verdict.tolist() == ["DIFFERS"]
    monkeypatch.setattr(
        audit,
        "again",
        lambda c, noise=0.0, device="cpu", draw=0: shifted(honest(c), 0.002, first=1),
    )
    assert audit.verify(1).verdict.tolist() == ["rounding"]
    monkeypatch.setattr(
        audit,
        "again",
        lambda c, noise=0.0, device="cpu", draw=0: shifted(honest(c), 0.002, first=0),
    )
    # in the first round already, where the noise moves nothing: not rounding
    assert audit.verify(1).verdict.tolist() == ["DIFFERS"]


def shifted(r, by, first):
    for k, a in r.views.items():
        r.views[k] = a + np.where(np.arange(len(a)) >= first, by, 0)[:, None].astype(
            a.dtype
        )
    return r


def test_noise_on_the_starting_weights_moves_a_run_and_is_taken_back(repo):
    cell = studies.cells("fedga", "main")[0][0]
    a, b = audit.again(cell), audit.again(cell)
    assert packing.same(
        record.Record({}, a.rounds, a.views), record.Record({}, b.rounds, b.views)
    )
    assert (
        audit.apart(a, audit.again(cell, 1.0))[0] > 0
        and audit.apart(a, audit.again(cell))[0] == 0
    )


def test_names_of_studies(repo):
    assert (
        audit.chosen(["fedga/more"]) == [("fedga", "more")]
        and len(audit.chosen(["fedga"])) == 2
    )
    with pytest.raises(
        ValueError, match="no study 'fedga/mian'; did you mean 'fedga/main'"
    ):
        audit.chosen(["fedga/mian"])


def test_edited_code_is_told_and_given_its_own_numbers(repo, monkeypatch):
    """The story of a student who edits FedGA and runs a notebook: not the book's
    numbers, and hers on request.
    """
    audit.compute(workers=1)
    audit.pack()
    shutil.rmtree("runs")
    edited = json.loads(json.dumps(sources.stored()))
    # as if her code gave other numbers
    edited["method FedGA"]["runs"]["defaults"]["server"][1] *= 1.01
    monkeypatch.setattr(sources, "stored", lambda: edited)
    monkeypatch.setattr(sources, "released", lambda: "")
    with pytest.raises(guard.Moved, match="MOVED method FedGA.*\n.*mine=True"):
        experiment.study("fedga", "main", workers=1)
    with pytest.raises(guard.Moved):
        audit.pack()
    # what does not use it is not touched
    assert experiment.study("fedga", "more", workers=1).cells
    hers = experiment.study("fedga", "main", workers=1, mine=True)
    assert len(list(Path("runs").glob("*/done"))) == 4 and not {
        c.id for c in hers.cells
    } & set(evidence.find({c.id for c in hers.cells}, "fedga", "main"))
    monkeypatch.undo()
    monkeypatch.chdir(repo)
    monkeypatch.setattr(record, "commit", lambda: "0123456789")
    before = {c.id for c in experiment.study("fedga", "main", workers=1).cells}
    # the edit undone: the stored ones again
    assert not before & {c.id for c in hers.cells}
