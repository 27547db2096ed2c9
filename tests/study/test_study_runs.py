"""One tiny study, trained once: each cell is its run, computed once, by one process at
a time, wherever that is; what differs when it is computed anew is noticed."""

import json
import os
import shutil
import subprocess
import sys
import threading
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from toys_study import book, cell, same, write

import fedlib
from fedlib.core import files
from fedlib.core.record import Record
from fedlib.data import tasks
from fedlib.methods.make import make
from fedlib.study import audit, compute, experiment, identity, store
from fedlib.study.studies import cells


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write(tmp_path_factory.mktemp("study")).parent


def main(folder, runs="runs", **more):
    told = {"path": folder / "params.yaml", "workers": 1} | more
    return experiment.study("toy", "main", runs=folder / runs, **told)


@pytest.fixture(scope="module")
def done(folder):
    return main(folder)


def test_a_cell_is_the_run_of_its_description(done, folder):
    for c, r in zip(done.cells, done.records):
        task = tasks.build(json.loads(c.task), c.seed)
        alpha = {"alpha": 3} if c.method == "FedGA" else {}
        method = make(c.method, task, lr=0.05, **alpha)
        told = {"rounds": 3, "cohort": 2, "microscope": True, "seed": c.seed}
        plain = fedlib.run(method, **told, device="cpu")
        assert same(r, plain, but=("seconds", "task"))
        assert r.meta["seed"] == c.seed and r.meta["task"] == f"near/split{c.seed}"
        files = {p.name for p in (folder / "runs" / c.id).iterdir()}
        assert files == {"record"}  # no models
    order = [(m, s) for m in ("FedAvg", "FedGA") for s in (0, 1)]
    assert [(c.method, c.seed) for c in done.cells] == order
    assert {c.tier for c in done.cells} == {"small"} and done.tier == "small"
    assert not list((folder / "runs").glob("*.lock"))
    late = {"portion": 0.5, "every": 2, "exchanged": True}
    asked = [({"online": 0.5}, [1, 1, 1, 1]), ({"stragglers": late}, [2, 3, 2, 3])]
    for told, want in asked:  # of three clients
        r = compute.trained(cell(engine={"rounds": 4} | told), "cpu")[2]
        assert (np.asarray(r.logs["cohort"]) >= 0).sum(1).tolist() == want


def test_a_finished_study_is_read_not_run(done, folder, monkeypatch):
    some = sorted((folder / "runs").glob("*/*"))
    before = [p.stat().st_mtime_ns for p in some]
    again = main(folder)
    assert all(same(a, b, but=()) for a, b in zip(done.records, again.records))
    assert [p.stat().st_mtime_ns for p in some] == before
    more = main(folder, seeds=[1, 2])
    assert [c.seed for c in more.cells] == [1, 2] * 2
    assert len(list(folder.glob("runs/*/record"))) == 6
    assert more.cells[0].id == done.cells[1].id
    paper = book(main={"paper": {"seeds": 1}})
    change = lambda toy: (paper(toy), toy["tasks"]["near"].pop("paper"))
    path = write(folder / "paper", change)
    some = main(folder, path=path).cells  # its sizes are the paper's
    assert {c.tier for c in some} == {"paper"}
    (folder / "checked").write_text("")  # sources were edited since
    monkeypatch.setattr(identity, "CHECKED", folder / "checked")
    with pytest.warns(UserWarning, match="edited.*mine=True"):  # once, and goes on
        assert same(main(folder).records[0], done.records[0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mine = main(folder, mine=True)
    assert not {c.id for c in mine.cells} & {c.id for c in done.cells}
    assert {c.mine for c in mine.cells} == {files.source()}
    assert all(same(a, b) for a, b in zip(mine.records, done.records))
    at = folder / "runs" / done.cells[0].id  # by an edit that was undone since
    r = Record.load(shutil.copytree(at, folder / "stray" / at.name))
    meta = r.meta | {"commit": "0123456789+", "source": "edited"}
    replace(r, meta=meta).save(folder / "stray" / at.name)
    (folder / "checked").write_text(identity.state())
    with pytest.warns(UserWarning, match="edits.*deleted"):
        main(folder, "stray")


def test_runs_that_are_killed_diverge_or_fail(done, tmp_path):
    c, whole = done.cells[0], done.records[0]
    method = compute.trained(c, "cpu")[0]
    told = {"rounds": 3, "cohort": 2, "microscope": True, "device": "cpu"}
    fedlib.run(method, **told, folder=tmp_path / c.id, upto=2)
    at = compute.compute_cell(c, runs=tmp_path)
    assert same(Record.load(at), whole, but=("seconds", "task"))
    assert not (at / "checkpoint").exists() and not list(tmp_path.glob("*.lock"))
    bad = compute.compute_cell(cell(lr=1e38, epochs=9), runs=tmp_path)
    assert "diverged" in Record.load(bad).meta
    at = tmp_path / "fails"  # is named, the others are kept
    todo = [cell("FedRep"), cell(), cell("FedRep", seed=1), cell("FedProx")]
    with pytest.raises(ValueError, match="FedRep seed 0: V(.|\n)*FedRep seed 1"):
        compute.compute_all(todo, at, workers=1)
    assert {p.parent.name for p in at.glob("*/record")} == {todo[1].id, todo[3].id}


def test_a_run_that_another_process_computes_is_left_or_waited_for(done, tmp_path):
    (a, b), got = done.cells[:2], []
    both = lambda: got.extend(compute.compute_all([a, b], tmp_path, workers=1))
    thread = threading.Thread(target=both, daemon=True)
    with store.alone(tmp_path / a.id) as mine:
        assert mine and compute.compute_cell(a, False, tmp_path) is None
        thread.start()
        while not (tmp_path / b.id / "record").exists():
            thread.join(0.01)  # it takes the other run first
            assert thread.is_alive()
        assert not (tmp_path / a.id / "record").exists()
        compute.trained(a, "cpu", tmp_path / a.id)
    thread.join()
    assert got == [tmp_path / a.id, tmp_path / b.id]
    assert same(Record.load(got[0]), done.records[0])
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    host, file = os.uname().nodename, tmp_path / "run.lock"
    told = "filelock/2\npid={}\nhost={}\nmode=lease\ntoken=a\nduration=120\n"
    for pid, where, mine in ((gone.pid, host, True), (1, "node17", False)):
        file.write_text(told.format(pid, where))
        with store.alone(tmp_path / "run", wait=False) as got:
            assert got is mine, where
    file.unlink()
    with store.alone(tmp_path / "run"):
        assert file.exists()
    assert not file.exists()


def test_a_stored_run_comes_out_again_or_it_is_said(done, folder, monkeypatch):
    c, old = done.cells[2], done.records[2]
    key = "pre", "global", "test"

    def changed(at, client, hits):
        views = {k: a.copy() for k, a in old.views.items()}
        views[key][at, client] += hits / old.meta["n"]["test"][client]
        return replace(old, views=views)

    new = compute.trained(c, "cpu")[2]
    assert same(new, old) and audit.compare(old, new)["verdict"] == "same"
    one, tiny = (audit.compare(changed(*x), new) for x in ((-1, 0, 1), (-1, 0, 0.1)))
    assert one["verdict"] == "DIFFERS"
    assert one["points"] == pytest.approx(100 / old.meta["n"]["test"][0] / 3, rel=1e-4)
    assert one["hits that differ, %"] == pytest.approx(100 / 12)
    assert tiny["verdict"] == "rounding" and 0 < tiny["points"] < 0.6
    short = replace(old, views={key: old.views[key][:-1]})
    assert audit.compare(short, new)["verdict"] == "DIFFERS"
    monkeypatch.chdir(folder)  # from nothing to evidence that is verified
    for c in cells("toy", "main")[0]:  # of a commit, so that they may be packed
        r = Record.load(folder / "runs" / c.id)
        replace(r, meta=r.meta | {"commit": "0123456789"}).save(Path("runs", c.id))
    audit.compute(["toy/main"], workers=1)
    audit.pack(["toy/main"])
    assert "about 1 min" in compute.forecast(done.cells, folder / "evidence")
    a, b = (audit.verify(3, seed=s) for s in (0, 1))
    assert a.verdict.tolist() == ["same"] * 3 and (a.points == 0).all()
    drawn = lambda t: set(zip(t.method, t.seed))
    assert len(drawn(a)) == 3 and drawn(a) != drawn(b) and set(a.study) == {"toy/main"}
    monkeypatch.setattr(audit, "compare", lambda *_: {"verdict": "DIFFERS"})
    with pytest.raises(ValueError, match="come out"):
        audit.verify(1)
