"""Stored runs: packed and read back to the bit, found, checked; what is missing,
damaged, foreign or nobody's is said.
"""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toys_study import GUEST, POST, PRE, book, cell, record, same, write

from fedlib.core.record import Record
from fedlib.study import audit, evidence, experiment, identity, packing, studies

OWN = [("own", "global", "val")]
ALL = [("pre", "global", "all"), ("guest", "global", "all")]


def spec(seed=0, method="FedAvg", **more):
    usual = dict.fromkeys(evidence.SPEC, "") | {"method": method, "seed": seed}
    return usual | {"paper": "p", "study": "s", "dataset": "toy"} | more


def everything():
    """{name: record} with all that a record can hold."""
    made = {
        "plain": record(0),
        "views": record(1, "FedPer", PRE + POST + OWN),
        "guests": record(2, "Ditto", PRE + GUEST, guests=[9, 5]),
        "groups": record(3, "FedFB", PRE + POST, groups=True, C=3),
        "short": record(4, rounds=(0, 2), diverged={"client": 0, "round": 2}),
    }
    r = made["guests"]
    r.meta["n"] |= {"guest_val": [3, 0], "guest_train": [0, 8]}
    for split, n in (("val", [3, 0]), ("all", [0, 8])):
        hits = np.array([[1, 3], [2, 7], [3, 5]], np.float32)
        with np.errstate(all="ignore"):
            a = np.where(np.array(n) > 0, hits / np.array(n, np.float32), np.nan)
        r.views["guest", "global", split] = a.astype(np.float32)
    none = made["views"]
    none.meta["n"]["val"][2] = 0
    for key, a in none.views.items():
        if key[2] == "val":
            a[:, 2] = np.nan  # a client without validation rows
    a = made["plain"].views["pre", "global", "test"]
    made["plain"].views["pre", "global", "all"] = (
        np.rint(a * 5).astype(np.float32) / np.array(made["plain"].meta["n"]["train"])
    ).astype(np.float32)
    made["plain"].logs |= {
        "third": np.random.default_rng(0).random((4, 2, 3)),
        "late": np.array([np.nan, np.nan, 0.25, 0.5]),
        "counts": np.arange(4),
    }
    return made


def items(made, *names):
    return [(k, spec(made[k].meta["seed"]), made[k]) for k in names or made]


# ---------------------------------------------------------------- to the bit
def test_what_is_packed_comes_back_to_the_bit(tmp_path):
    made, at = everything(), tmp_path / "p-s"
    size = packing.pack(items(made), at)
    assert size == sum(f.stat().st_size for f in at.iterdir())
    back = evidence.read(at)
    assert back.keys() == made.keys()
    for k, r in made.items():
        assert same(r, back[k], but=()) and packing.same(r, back[k]), k
        for key, a in r.views.items():  # a mean's last digit depends on the layout
            assert back[k].views[key].mean(1).tobytes() == a.mean(1).tobytes()
    assert evidence.read(at, {"views", "x"}).keys() == {"views"}
    assert os.listdir(tmp_path) == ["p-s"]  # no lock, no half-written neighbour
    packing.pack(items(made)[::-1], tmp_path / "again")
    for f in at.iterdir():
        assert f.read_bytes() == (tmp_path / "again" / f.name).read_bytes()


@settings(max_examples=8)
@given(st.integers(0, 99), st.integers(2, 9), st.integers(2, 5), st.booleans())
def test_records_of_any_shape_come_back(tmp_path_factory, seed, C, E, groups):
    rounds = [*range(0, 3 * E, 3)]
    r = record(seed, keys=PRE + POST, C=C, rounds=rounds, groups=groups)
    at = tmp_path_factory.mktemp("any") / "p-s"
    packing.pack([("a", spec(), r), ("b", spec(1), record(1))], at)
    assert same(evidence.read(at)["a"], r, but=())


def test_pandas_alone_can_read_it(tmp_path):
    made = everything()
    packing.pack(items(made, "plain", "groups"), tmp_path / "p-s")
    t = {
        f: pd.read_parquet(tmp_path / "p-s" / f"{f}.parquet")
        for f in evidence.FILES
        if f
    }
    names = dict(enumerate(t["runs"].id))
    r, run = made["groups"], t["hits"].run.map(names)
    for key, a in r.views.items():
        some = t["hits"][run == "groups"]
        some = some[(some[["moment", "view", "split"]] == list(key)).all(axis=1)]
        for h in some.itertuples():
            e = r.rounds.tolist().index(h.round)
            assert h.rows == r.meta["n"][key[2]][h.client]
            assert h.hits == round(float(a[e, h.client]) * h.rows)
        assert len(some) == a.size
        counts = t["groups"]
        counts = counts[(counts[["moment", "view", "split"]] == list(key)).all(axis=1)]
        for g in counts.itertuples():
            e = r.rounds.tolist().index(g.round)
            cell_ = r.cells[key][e, g.client, g.group, g.outcome, g.prediction]
            assert g.count == cell_
    logs = t["logs"][
        (t["logs"].run.map(names) == "plain") & (t["logs"].name == "weight")
    ]
    for v in logs.itertuples():
        assert v.value == made["plain"].logs["weight"][v.round, v.slot]
    row = t["runs"].set_index("id").loc["groups"]
    assert row["seed"] == 3 and list(row["rounds"]) == [0, 2, 4] and row.seconds == 9.0
    assert json.loads(row.meta)["n"] == r.meta["n"]


def test_same_notices_every_kind_of_difference():
    r = everything()["groups"]
    parts = ("views", "cells", "consistency", "logs")
    whole = {p: getattr(r, p) for p in parts}
    others = [Record(r.meta | {"seconds": 0.0}, r.rounds, **whole)]
    others += [Record(r.meta, r.rounds + 1, **whole)]
    for part in parts:
        k, v = next(iter(whole[part].items()))
        new = v.copy()
        new.reshape(-1)[-1] += 1
        less = {j: x for j, x in whole[part].items() if j != k}
        for changed in (less | {k: new}, less, less | {k: v.astype(np.float64) + 0}):
            if not (
                changed.get(k) is not None
                and changed[k].dtype == v.dtype
                and (changed[k] == v).all()
            ):
                others.append(Record(r.meta, r.rounds, **whole | {part: changed}))
    assert packing.same(r, Record(r.meta, r.rounds, **whole)) and len(others) > 10
    assert not any(packing.same(r, o) for o in others)


def test_what_would_not_come_back_is_refused_and_nothing_is_lost(tmp_path):
    made, at = everything(), tmp_path / "p-s"
    packing.pack(items(made, "plain"), at)
    bad = everything()["plain"]
    bad.views["pre", "global", "test"] *= np.float32(0.99)
    with pytest.raises(ValueError, match="rows"):
        packing.pack([("x", spec(), bad)], at)
    assert same(evidence.read(at)["plain"], made["plain"], but=())
    assert os.listdir(tmp_path) == ["p-s"]


# ---------------------------------------------------------------- damaged, or foreign
def test_damaged_and_foreign_files_are_named_with_a_remedy(tmp_path):
    made = everything()
    packing.pack(items(made, "groups"), tmp_path / "p-s")
    packing.pack(items(made, "plain", "views"), tmp_path / "p-t")
    for name in evidence.FILES:
        path = tmp_path / "p-s" / f"{name}.parquet"
        body, other = path.read_bytes(), tmp_path / "p-t" / path.name
        pd.DataFrame({"a": [1]}).to_parquet(tmp_path / "foreign")
        foreign = (tmp_path / "foreign").read_bytes()
        for harm in (body[:-40], foreign, None, other.exists() and other.read_bytes()):
            path.unlink() if harm is None else path.write_bytes(harm or b"")
            with pytest.raises(evidence.Damaged) as e:
                evidence.read(tmp_path / "p-s")
            said = str(e.value)
            assert "p-s" in said and "git checkout" in said and "make evidence" in said
            path.write_bytes(body)
    assert same(evidence.read(tmp_path / "p-s")["groups"], made["groups"], but=())
    assert evidence.listed(tmp_path / "nothing") == []
    assert evidence.find({"x"}, "p", "nothing", tmp_path / "nothing") == {}


def test_a_kill_between_two_renames_loses_nothing(tmp_path):
    made, at = everything(), tmp_path / "p-s"
    packing.pack(items(made, "plain"), at)
    os.rename(at, tmp_path / ".p-s.old")  # what such a process leaves
    shutil.copytree(tmp_path / ".p-s.old", tmp_path / ".p-s.new")
    assert set(evidence.find({"plain", "short"}, "p", "s", tmp_path)) == {"plain"}
    assert [r["id"] for r in evidence.listed(at)] == ["plain"]
    packing.pack(items(made, "plain", "short"), at)
    assert set(evidence.read(at)) == {"plain", "short"}
    assert os.listdir(tmp_path) == ["p-s"]


def test_find_looks_into_the_study_then_into_the_papers_others(tmp_path):
    made = everything()
    other = replace(made["plain"], meta=made["plain"].meta | {"seconds": 1.0})
    packing.pack(items(made, "plain"), tmp_path / "p-z")
    packing.pack([*items(made, "short"), ("plain", spec(), other)], tmp_path / "p-a")
    packing.pack(items(made, "views"), tmp_path / "q-s")
    got = evidence.find({"plain", "short", "views", "none"}, "p", "z", tmp_path)
    assert set(got) == {"plain", "short"} and got["plain"].meta["seconds"] == 6.0
    assert evidence.find({"plain"}, "p", "a", tmp_path)["plain"].meta["seconds"] == 1.0
    assert evidence.find({"views"}, "q", "none", tmp_path).keys() == {"views"}
    packing.pack(items(made, "guests"), tmp_path / "p-z")  # is read anew
    os.utime(tmp_path / "p-z" / "runs.parquet", ns=(7, 7))
    assert [r["id"] for r in evidence.listed(tmp_path / "p-z")] == ["guests"]
    got = evidence.find({"plain", "guests"}, "p", "z", tmp_path)
    assert got.keys() == {"plain", "guests"} and got["plain"].meta["seconds"] == 1.0
    row = evidence.listed(tmp_path / "q-s")[0]
    assert row["commit"] == "0123456789" and row["paper"] == "p" and row["seed"] == 1


# ---------------------------------------------------------------- all studies
@pytest.fixture
def repo(tmp_path, monkeypatch):
    """A folder with two studies, all of their runs in runs/, made by hand."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path)
    for name in ("main", "more"):
        for c in studies.cells("toy", name)[0]:
            store(c)
    return tmp_path


def store(c, **more):
    logs = record(c.seed, c.method, rounds=range(4), **{"rounds_": 3} | more)
    logs.meta["rounds"] = more.get("rounds_", 3)
    logs.save(Path("runs", c.id))
    return logs


def test_from_runs_to_evidence_that_a_study_reads(repo, capsys):
    assert len(audit.check()) == 2
    audit.pack()
    assert audit.check() == [] and "12 runs" in capsys.readouterr().out
    for c in studies.cells("toy", "more")[0]:
        shutil.rmtree(Path("runs", c.id))  # they are in evidence/
    fresh = experiment.study("toy", "main", workers=1)
    more = experiment.study("toy", "more", workers=1)
    assert not any(Path("runs", c.id).exists() for c in more.cells)
    for c, r in zip(fresh.cells + more.cells, fresh.records + more.records):
        want = record(c.seed, c.method, rounds=range(4), rounds_=3)
        assert same(r, want, but=("rounds",)) and r.meta["seed"] == c.seed
    rows = {row["id"]: row for row in evidence.listed(Path("evidence/toy-main"))}
    for c in fresh.cells:
        row = rows[c.id]
        assert all(
            row[k] == getattr(c, k) for k in ("method", "seed", "task", "kwargs")
        )
        assert (row["paper"], row["study"]) == ("toy", "main")
    audit.pack(["toy/more"])  # what is packed need not lie in runs/
    assert audit.check() == []


def test_an_incomplete_study_is_not_packed_and_new_runs_go_first_if_asked(repo):
    audit.pack()
    before = {f: f.read_bytes() for f in Path("evidence").rglob("*.parquet")}
    write(repo, book(main={"seeds": 3}))
    with pytest.raises(ValueError, match="toy/main: 2 of 6 .*FedAvg seed 2"):
        audit.pack()
    assert {f: f.read_bytes() for f in Path("evidence").rglob("*.parquet")} == before
    write(repo)
    c = studies.cells("toy", "main")[0][0]
    store(c, seconds=77.0)
    for anew, seconds in ((False, 6.0), (True, 77.0)):
        audit.pack(["toy/main"], anew=anew)
        got = evidence.find({c.id}, "toy", "main")[c.id]
        assert got.meta["seconds"] == seconds


def test_logs_are_kept_for_so_many_seeds(repo):
    write(repo, book(main={"logs": {"weight": 1, "scale": 0}, "seeds": [4, 1]}))
    for c in studies.cells("toy", "main")[0]:
        store(c)
    audit.pack(["toy/main"])
    shutil.rmtree("runs")
    run = experiment.study("toy", "main", workers=1)
    kept = {c.seed: sorted(r.logs) for c, r in run.of(method="FedGA")}
    # one number a round is always kept
    assert kept == {4: ["cohort", "scale"], 1: ["cohort", "scale", "weight"]}
    assert run.log("near", "FedAvg", "weight").shape[0] == 1


def test_a_run_that_nobody_could_make_again_is_not_packed(repo):
    c = studies.cells("toy", "main")[0][0]
    for spoil in ({"commit": "0123456789+"}, {"commit": "unknown"}, {"rounds_": 9}):
        store(c, **spoil)
        with pytest.raises(ValueError, match=f"near FedAvg seed 0.*runs/{c.id}"):
            audit.pack(["toy/main"])
    store(c, rounds_=9, diverged={"client": 0, "round": 3})
    audit.pack(["toy/main"])  # with its mark it is a result


def test_check_names_what_is_missing_foreign_or_of_other_versions(repo, monkeypatch):
    audit.pack()
    Path("evidence/toy-gone").mkdir()
    write(repo, book(main={"seeds": 1}))
    gone, main = sorted(audit.check())
    assert "toy-gone" in gone and "toy-main: 2 are" in main and "missing" not in main
    Path("evidence/toy-gone").rmdir()
    write(repo, book(main={"methods": {"FedAvg": {"lr": 0.3}, "FedGA": {"alpha": 3}}}))
    (main,) = audit.check()
    assert "2 of 4" in main and "near FedAvg seed 0" in main and "settings" in main
    write(repo)
    monkeypatch.setattr(identity, "versions", lambda: {"method FedGA": 2})
    (main,) = audit.check()
    assert "2 of 4" in main and "method FedGA 1, now 2" in main
    monkeypatch.setattr(identity, "versions", lambda: {})
    assert audit.check() == [] and "MB" in audit.check(limit=10)[-1]
    Path("evidence/toy-more/hits.parquet").unlink()
    (more,) = audit.check()
    assert "toy-more/hits.parquet" in more


def test_names_of_studies_and_what_is_left_to_do(repo):
    assert audit.chosen(["toy/more"]) == [("toy", "more")]
    assert audit.chosen(["toy"]) == audit.chosen() == [("toy", "main"), ("toy", "more")]
    with pytest.raises(ValueError, match="toy/mian.*toy/main"):
        audit.chosen(["toy", "toy/mian"])
    audit.pack(["toy/main"])
    todo = {("toy", s): studies.cells("toy", s)[0] for s in ("main", "more")}
    a, b = (c.id for c in todo["toy", "main"][:2])
    shutil.rmtree(f"runs/{a}")
    Path(f"runs/{b}/done").unlink()
    assert [c.id for c in audit.lacking(todo["toy", "main"] * 2, "runs")] == [a, b]
    # stored runs took 6 s with seed 0 and 7 s with seed 1
    assert audit.estimate(todo) == {("toy", "main"): 26, ("toy", "more"): 8 * 6.5}
    one = {"x": [*todo["toy", "main"][:1], cell(seed=9)]}
    assert audit.estimate(one) == {"x": 6 + 6}
    words = [audit.minutes(s) for s in (45, 720, 12600)]
    assert words == ["45 s", "12 min", "3.5 h"]
