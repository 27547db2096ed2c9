"""What is kept survives kills, full disks and other processes: leftovers, checksums,
and a share of the scripts of tests/torture.
"""

import contextlib
import hashlib
import json
import os
import socket
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from torture import damage, disk, kill_evidence, kill_runs, kill_studies
from toys_core import same, seen, toy

from fedlib.core import engine, files
from fedlib.core.record import Record
from fedlib.deploy.shelf import Shelf
from fedlib.methods.base.fedavg import FedAvg

PATIENCE = 60  # seconds until a test gives up
HOST = socket.gethostname()


def run(folder, **more):
    how = {"rounds": 3, "cohort": 3, "folder": folder, "device": "cpu"}
    return engine.run(FedAvg(toy()), **how | more)


def gone():
    """The number of a process that is no more."""
    process = subprocess.Popen(["true"])
    process.wait(PATIENCE)
    return process.pid


def names(folder):
    return sorted(p.name for p in Path(folder).iterdir())


# ---------------------------------------------------------------- leftovers
def test_what_the_dead_of_this_host_left_is_deleted_and_nothing_else(tmp_path):
    dead, living = gone(), os.getppid()
    old, new = time.time() - 2 * files.DAY, time.time()
    cases = {
        f".checkpoint.{dead}@{HOST}": (new, False),
        f".record.json.{dead}@{HOST}": (new, False),
        f".checkpoint.{living}@{HOST}": (old, True),
        f".checkpoint.{dead}@another.host": (old, True),
        f".checkpoint.{dead}": (old, False),  # of earlier versions
        f".done.{dead}": (new, True),  # whose host is not known
        f".done.{living}": (old, True),
        f".cache.{dead}": (old, True),  # no file of ours
        ".checkpoint.0": (old, True),
        f"checkpoint.{dead}@{HOST}": (old, True),
    }
    for name, (since, _) in cases.items():
        (tmp_path / name).write_text("half")
        os.utime(tmp_path / name, (since, since))
    run(tmp_path)
    stay = {name for name, (_, stays) in cases.items() if stays}
    left = set(names(tmp_path)) - {"done", "record.json", "record.npz", "state"}
    assert left == stay


def test_every_writer_sweeps_its_own_name(tmp_path):
    left = tmp_path / f".numbers[1].csv.{gone()}@{HOST}"
    other = tmp_path / f".numbers1.csv.{gone()}@{HOST}"
    for path in (left, other):
        path.write_text("half")
    files.whole(tmp_path / "numbers[1].csv", lambda f: f.write(b"1"))
    assert names(tmp_path) == sorted([other.name, "numbers[1].csv"])


def test_a_shelf_sweeps_what_a_killed_client_left(tmp_path):
    owner, dead = {"federation": "f", "client": 0}, gone()
    Shelf(tmp_path, owner).put("step-2", {"of": ""}, {"mine": {}, "answer": {}})
    for name in ("step-4", "down"):
        (tmp_path / f".{name}.{dead}@{HOST}").write_text("half")
    assert Shelf(tmp_path, owner).steps() == [2] and names(tmp_path) == ["step-2"]


def test_a_download_of_another_round_is_not_taken(tmp_path):
    """Nor one that does not exist; the file and both rounds are named."""
    owner = {"federation": "f", "client": 0}
    with pytest.raises(ValueError, match="^the download of round 0 is gone; the next"):
        Shelf(tmp_path, owner).download(0)
    Shelf(tmp_path, owner).put("down", {"t": 3}, {"w": torch.ones(2)})
    assert Shelf(tmp_path, owner).download(3)["w"].tolist() == [1, 1]
    why = f"download of round 4 is gone, {tmp_path}/down is of round 3; the next"
    with pytest.raises(ValueError, match=why):
        Shelf(tmp_path, owner).download(4)


def write_again_and_again(path, begun, over):
    begun.set()
    while not over.is_set():
        files.whole(path, lambda f: f.write(bytes(10**5)))


def test_a_sweep_disturbs_nobody_who_writes_at_that_moment(tmp_path):
    """Another process writes one file all the time; both sweep, neither fails."""
    context = kill_runs.fork()
    begun, over = context.Event(), context.Event()
    path = tmp_path / "checkpoint"
    args = path, begun, over
    other = context.Process(target=write_again_and_again, args=args)
    other.start()
    try:
        assert begun.wait(PATIENCE)
        deadline, seen_there = time.monotonic() + PATIENCE, set()
        while len(seen_there) < 20 and time.monotonic() < deadline:
            part = tmp_path / f".checkpoint.{other.pid}@{HOST}"
            files.sweep(tmp_path, "*")
            files.whole(path, lambda f: f.write(bytes(10**5)))
            with contextlib.suppress(FileNotFoundError):
                seen_there.add(part.stat().st_ctime_ns)
            assert len(path.read_bytes()) == 10**5
        assert other.is_alive() and len(seen_there) >= 20
    finally:
        over.set()
        other.join(PATIENCE)
    assert other.exitcode == 0 and names(tmp_path) == ["checkpoint"]


def test_a_folder_that_is_not_there_or_not_ours_is_not_swept(tmp_path, monkeypatch):
    files.sweep(tmp_path / "none", "*")
    part = tmp_path / f".done.{gone()}@{HOST}"
    part.write_text("half")

    def refuse(path):
        raise PermissionError(13, "Permission denied", path)

    with monkeypatch.context() as m:
        m.setattr(os, "unlink", refuse)
        files.sweep(tmp_path, "done")
    assert part.exists()


# ---------------------------------------------------------------- the checksum
def test_a_record_whose_meta_was_changed_is_refused(tmp_path):
    run(tmp_path)
    path = tmp_path / "record.json"
    good = path.read_text()
    meta = json.loads(good)
    for k, v in {"kind": "real", "seed": 9, "seconds": 0.5, "new": 1}.items():
        path.write_text(json.dumps(meta | {k: v}))
        with pytest.raises(ValueError, match="record.json does not fit the checksum"):
            Record.load(tmp_path)
    path.write_text(json.dumps(meta, separators=(",", ":")))  # the same, said otherwise
    assert same(seen(Record.load(tmp_path)), seen(run(None)))


def test_a_record_of_an_earlier_version_loads(tmp_path):
    """Its checksum was that of record.npz alone."""
    record = run(tmp_path)
    path = tmp_path / "record.json"
    body = (tmp_path / "record.npz").read_bytes()
    old = json.loads(path.read_text()) | {"sha256": hashlib.sha256(body).hexdigest()}
    path.write_text(json.dumps(old))
    back = Record.load(tmp_path)
    assert same(seen(back), seen(record)) and back.meta == record.meta


def test_numbers_that_fit_no_client_are_refused(tmp_path):
    record = run(tmp_path)
    key = next(iter(record.views))
    record.views[key] = record.views[key][:, 1:]
    record.save(tmp_path)
    with pytest.raises(ValueError, match="views are not of 6 clients.; delete the fo"):
        Record.load(tmp_path)
    record.views[key] = np.zeros((99, 6), np.float32)
    record.save(tmp_path)
    with pytest.raises(ValueError, match="views are not of 4 scored rounds"):
        Record.load(tmp_path)


# ---------------------------------------------------------------- shares of the scripts
def fine(counts, n):
    """Nothing was lost, and so many were tried."""
    for count in counts:
        assert not count.bad, "\n".join(count.examples)
    assert sum(count.n for count in counts) >= n


def test_kills_of_runs_lose_nothing():
    fine(kill_runs.measure(12, 1), 12)


def test_kills_of_studies_lose_nothing():
    fine(kill_studies.measure(6, 1), 6)


def test_kills_while_evidence_is_packed_lose_nothing():
    fine(kill_evidence.measure(12, 1), 12)


def test_a_disk_in_trouble_loses_nothing():
    fine(disk.measure(8, 1, mounting=False), 8)


def test_damaged_files_are_refused():
    fine(damage.measure(90, 1), 90)
