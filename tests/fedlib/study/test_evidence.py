"""Packed runs: nothing is lost, and what is damaged says so."""

import json
import multiprocessing
import os
import shutil

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from toys_core import GROUPS, toy

from fedlib.core.engine import run
from fedlib.core.errors import Diverged
from fedlib.core.record import Record
from fedlib.methods.make import make
from fedlib.study import evidence, packing


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Records with everything that a record can hold, as they come back from a disk."""
    import torch

    at, task = tmp_path_factory.mktemp("runs"), toy(groups=GROUPS, dtype=torch.float32)
    how = {
        "rounds": 4,
        "cohort": 3,
        "guests": True,
        "microscope": True,
        "device": "cpu",
    }
    cases = {
        "plain": ("FedAvg", {}, how),
        "sparse": ("FedAvg", {}, how | {"every": 3}),
        "personal": ("FedPer", {}, how),
        "own": ("FedAvg", {}, how | {"own": True, "cohort": None}),
        "bias": ("FedFB", {}, how),
        "ga": ("FedGA", {"W": 1}, how),
    }
    for name, (method, kw, h) in cases.items():
        run(make(method, task, **kw), folder=at / name, **h)
    with pytest.raises(Diverged):
        run(make("FedAvg", task, lr=1e30), folder=at / "diverged", **how)
    cases["diverged"] = ("FedAvg", {"lr": 1e30}, how)
    return {
        k: (spec(v[0], i), Record.load(at / k))
        for i, (k, v) in enumerate(cases.items())
    }


def spec(method, seed):
    return {k: "" for k in evidence.SPEC} | {
        "paper": "p",
        "study": "s",
        "dataset": "toy",
        "method": method,
        "seed": seed,
    }


def items(made, *names):
    return [(k, *made[k]) for k in names or made]


def test_what_is_packed_comes_back_to_the_bit(made, tmp_path):
    size = packing.pack(items(made), tmp_path / "p-s")
    back = evidence.read(tmp_path / "p-s")
    assert back.keys() == made.keys() and size == sum(
        f.stat().st_size for f in (tmp_path / "p-s").iterdir()
    )
    for k, (_, r) in made.items():
        assert packing.same(r, back[k])
        # a mean's last digit depends on the layout in memory
        for key, a in r.views.items():
            assert back[k].views[key].mean(1).tobytes() == a.mean(1).tobytes()
    assert (
        {k[0] for r in back.values() for k in r.views}
        >= {"pre", "post", "guest", "own"}
        and back["bias"].cells
        and back["bias"].consistency
    )
    assert list(os.listdir(tmp_path)) == ["p-s"]  # no lock, no half-written neighbour


def test_same_notices_every_kind_of_difference(made):
    _, r = made["bias"]
    for part in ("views", "cells", "consistency", "logs"):
        old = getattr(r, part)
        k = next(iter(old))
        new = old[k].copy()
        new.reshape(-1)[-1] += 1
        other = {
            **{p: getattr(r, p) for p in ("views", "cells", "consistency", "logs")},
            part: old | {k: new},
        }
        assert not packing.same(r, Record(r.meta, r.rounds, **other))
        assert not packing.same(
            r,
            Record(
                r.meta,
                r.rounds,
                **other | {part: {j: v for j, v in old.items() if j != k}},
            ),
        )
    assert not packing.same(
        r,
        Record(
            r.meta | {"seconds": 0.0}, r.rounds, r.views, r.logs, r.cells, r.consistency
        ),
    )


def test_bytes_depend_on_the_runs_alone(made, tmp_path):
    packing.pack(items(made), tmp_path / "a")
    packing.pack(items(made)[::-1], tmp_path / "b")
    for f in (tmp_path / "a").iterdir():
        assert f.read_bytes() == (tmp_path / "b" / f.name).read_bytes()


def test_pandas_alone_can_read_it(made, tmp_path):
    """The question of the book's page: who was served worst at the end?

    Answered without fedlib's code.
    """
    packing.pack(items(made, "plain"), tmp_path / "p-s")
    hits, runs = (
        pd.read_parquet(tmp_path / "p-s" / f"{f}.parquet") for f in ("hits", "runs")
    )
    last = hits.query(
        "moment == 'pre' and view == 'global' and split == 'test' and round == 4"
    )
    acc = (last.hits / last.rows).to_numpy()
    assert (
        acc.astype(np.float32).tolist()
        == made["plain"][1]["pre", "global", "test"][-1].tolist()
    )
    assert runs.method.tolist() == ["FedAvg"] and runs["rounds"][0].tolist() == [
        0,
        1,
        2,
        3,
        4,
    ]


def test_accuracies_that_are_no_counts_are_refused(made, tmp_path):
    s, r = made["plain"]
    key = ("pre", "global", "test")
    bad = Record(
        r.meta,
        r.rounds,
        r.views | {key: r.views[key] * np.float32(0.99)},
        r.logs,
        r.cells,
        r.consistency,
    )
    packing.pack(items(made, "plain"), tmp_path / "p-s")
    with pytest.raises(ValueError, match="not counts over its clients' rows"):
        packing.pack([("x", s, bad)], tmp_path / "p-s")
    # nothing was lost
    assert packing.same(evidence.read(tmp_path / "p-s")["plain"], r)


def truncate(path):
    path.write_bytes(path.read_bytes()[:-40])


def foreign(path):
    pd.DataFrame({"a": [1]}).to_parquet(path)


def other_study(path, made, tmp_path):
    packing.pack(items(made, "plain", "personal", "bias"), tmp_path / "other")
    shutil.copy(tmp_path / "other" / path.name, path)


@pytest.mark.parametrize("file", evidence.FILES)
@pytest.mark.parametrize(
    "spoil, says",
    [(truncate, "cannot be read"), (foreign, "not evidence of this format")],
)
def test_a_damaged_file_is_named_with_its_remedy(made, tmp_path, file, spoil, says):
    packing.pack(items(made, "bias"), tmp_path / "p-s")
    spoil(tmp_path / "p-s" / f"{file}.parquet")
    with pytest.raises(
        evidence.Damaged, match=f"{file}.parquet .*{says}.*git checkout"
    ):
        evidence.read(tmp_path / "p-s")


def test_a_missing_or_swapped_file_is_noticed(made, tmp_path):
    packing.pack(items(made, "plain"), tmp_path / "p-s")
    other_study(tmp_path / "p-s" / "hits.parquet", made, tmp_path)
    with pytest.raises(
        evidence.Damaged, match="hits.parquet does not belong to the runs beside it"
    ):
        evidence.read(tmp_path / "p-s")
    for name in ("hits", "logs"):
        packing.pack(items(made, "plain"), tmp_path / "p-s")
        (tmp_path / "p-s" / f"{name}.parquet").unlink()
        with pytest.raises(evidence.Damaged, match=f"{name}.parquet"):
            evidence.read(tmp_path / "p-s")
    assert (
        evidence.listed(tmp_path / "nothing")
        == []
        == list(evidence.find({"x"}, "p", "s", tmp_path / "nothing"))
    )


def test_a_kill_between_two_renames_loses_nothing(made, tmp_path, monkeypatch):
    """pack puts the new folder in place by two renames; a process that dies between
    them leaves both beside it.
    """
    folder, rename, died = tmp_path / "p-s", os.rename, []

    def dying(a, b):
        if a.name == ".p-s.new":
            died.append(b)
            raise KeyboardInterrupt
        rename(a, b)

    packing.pack(items(made, "plain"), folder)
    monkeypatch.setattr(os, "rename", dying)
    with pytest.raises(KeyboardInterrupt):
        packing.pack(items(made, "plain", "ga"), folder)
    monkeypatch.undo()
    assert died and not folder.exists()
    # what was there is read
    assert set(evidence.find({"plain", "ga"}, "p", "s", tmp_path)) == {"plain"}
    packing.pack(items(made, "plain", "ga"), folder)
    assert set(evidence.read(folder)) == {"plain", "ga"} and os.listdir(tmp_path) == [
        "p-s"
    ]


def pack_often(items, folder):
    for _ in range(3):
        packing.pack(items, folder)


def test_two_packs_at_once_leave_one_whole_answer(made, tmp_path):
    many = [
        multiprocessing.get_context("fork").Process(
            target=pack_often, args=(items(made, *names), tmp_path / "p-s")
        )
        for names in (("plain", "ga"), ("plain", "personal"))
    ]
    for p in many:
        p.start()
    for p in many:
        p.join(60)
        assert p.exitcode == 0
    assert set(evidence.read(tmp_path / "p-s")) in (
        {"plain", "ga"},
        {"plain", "personal"},
    )


def test_find_looks_into_the_study_then_into_the_papers_others(made, tmp_path):
    packing.pack(items(made, "plain"), tmp_path / "p-s")
    packing.pack(items(made, "plain", "ga"), tmp_path / "p-t")
    packing.pack(items(made, "personal"), tmp_path / "q-s")
    assert set(
        evidence.find({"plain", "ga", "personal", "none"}, "p", "s", tmp_path)
    ) == {"plain", "ga"}
    # a file that changed is read anew
    packing.pack(items(made, "ga"), tmp_path / "p-t")
    assert set(evidence.find({"plain", "ga"}, "p", "t", tmp_path)) == {"plain", "ga"}
    listed = evidence.listed(tmp_path / "p-t")
    assert [row["id"] for row in listed] == ["ga"] and listed[0]["commit"] == made[
        "ga"
    ][1].meta["commit"]
    assert (
        json.loads(pq.read_table(tmp_path / "p-t" / "runs.parquet")["meta"][0].as_py())[
            "task"
        ]
        == "toy"
    )
