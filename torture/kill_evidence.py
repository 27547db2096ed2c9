"""SIGKILL while stored runs are packed or verified: each folder of the evidence is the
old one, the new one or gone, and the same command ends with the same bytes."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from functools import cache
from pathlib import Path

import yaml

from fedlib.study import audit, once, store

from .count import Count
from .kill_runs import Call, digest, end, ended, start

attempts = 40  # kills
TASK = {
    "label": "three clients",
    "data": {"name": "synthetic", "alpha": 0.5, "beta": 0.5, "sizes": [60, 80, 70]},
    "network": {"name": "Linear"},
    "train": {"lr": 0.05},
    "run": {"rounds": 3, "cohort": 2},
}
METHODS = {"FedAvg": {}, "FedGA": {"alpha": 3}, "FedProx": {"mu": 0.1}}


def write(seeds):
    """params.yaml, and a study of so many seeds."""
    study = {"tasks": ["toy"], "seeds": seeds, "methods": METHODS}
    paper = {"tasks": {"toy": TASK}, "studies": {"book": {"main": study}}}
    file = Path("papers/fedga/studies.yaml")
    file.parent.mkdir(parents=True, exist_ok=True)
    Path("params.yaml").write_text("tier: small\n")
    file.write_text(yaml.safe_dump(paper))


# ---------------------------------------------------------------- in a process
def made(folder):
    """A store: runs of two seeds, of which one is packed, and a kept measurement."""
    enter(folder)
    Path("results").mkdir()
    for seeds in (1, 2):
        write(seeds)
        audit.compute(["fedga/main"], workers=1)
        if seeds == 1:
            audit.pack(["fedga/main"])
    once.once("numbers", "small", measured, 3)
    audit.AUDITS["cpu"].write_text("old\n")


def measured(n):
    return {"squares": [float(k * k) for k in range(n)]}


def packed(folder):
    enter(folder)
    audit.pack(["fedga/main"])
    once.pack("small")


def verified(folder):
    enter(folder)
    audit.verify(2, write=True)


def enter(folder):
    os.chdir(folder)


# ---------------------------------------------------------------- from outside
@cache
def template():
    """The store that every attempt begins with, in a folder that is deleted at exit."""
    at = tempfile.TemporaryDirectory()
    folder = Path(at.name, "run")
    folder.mkdir()
    status, said = ended(start(made, folder))
    assert status == 0, said
    return at


class Stored(Call):
    """A command on a copy of the store."""

    def start(self, folder, last=0):
        if not folder.exists():
            shutil.copytree(Path(template().name, "run"), folder)
        return super().start(folder, last)


def sound(folder, call):
    """Why the evidence is neither the old one nor the new one, or "" where it is."""
    at = folder / "evidence" / "fedga-main"
    if not at.exists() and call.f is packed:
        return ""  # git has it
    try:
        n = len(store.read(at))
    except ValueError as e:
        return f"after a kill: {e}"
    bytes_now = digest([p.read_bytes() for p in sorted(at.glob("*.parquet"))])
    old = Path(template().name, "run", "evidence", "fedga-main")
    bytes_then = digest([p.read_bytes() for p in sorted(old.glob("*.parquet"))])
    new = len(METHODS) * 2
    if call.f is verified or n != new:
        return "" if bytes_now == bytes_then else "other bytes after a kill"
    return ""


def measure(n, seed):
    chance, count = random.Random(seed), Count("pack and verify of the evidence")
    calls = [Stored(packed), Stored(verified)]
    for i in range(10 * n):
        call = calls[i % 3 == 2].measure()
        with tempfile.TemporaryDirectory() as at:
            folder = Path(at, "run")
            if call.killed(folder, chance.uniform(0, 0.95), chance):
                why = sound(folder, call)
                outcome = ("lost", why) if why else end(call, folder)
                count.add(*outcome)
        if count.n == n:
            break
    return [count]
