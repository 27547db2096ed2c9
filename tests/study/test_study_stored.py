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
PARTS = ("views", "cells", "consistency", "logs")


def everything():
    """{name: record} with all that a record can hold."""
    made = {
        "plain": record(0),
        "views": record(1, "FedPer", PRE + POST + OWN),
        "guests": record(2, "Ditto", PRE + GUEST, guests=[9, 5]),
        "groups": record(3, "FedFB", PRE + POST, groups=True, C=3),
        "short": record(4, rounds=(0, 2), diverged={"client": 0, "round": 2}),
    }
    guests, plain = made["guests"], made["plain"]
    guests.meta["n"] |= {"guest_val": [7, 0], "guest_train": [0, 11]}
    rows = {"val": [7, 0], "all": [0, 11]}
    rows = [(guests, ("guest", "global", s), n) for s, n in rows.items()]
    rows += [(plain, ("pre", "global", "all"), plain.meta["n"]["train"])]
    made["views"].meta["n"]["val"][2] = 0  # a client without validation rows
    for key in [k for k in made["views"].views if k[2] == "val"]:
        rows.append((made["views"], key, made["views"].meta["n"]["val"]))
    for r, key, n in rows:
        E, n = len(r.rounds) - (key[0] in ("post", "own")), np.array(n)
        hits = np.minimum(np.arange(E * len(n)).reshape(E, -1) % 5, n)
        r.views[key] = evidence.accuracy_of(np.where(n, hits, -1), n)
    third = np.random.default_rng(0).random((4, 2, 3))
    late = np.array([np.nan, np.nan, 0.25, 0.5])
    plain.logs |= {"third": third, "late": late, "counts": np.arange(4)}
    return made


def items(made, *names):
    spec = dict.fromkeys(evidence.SPEC, "") | {"paper": "p", "dataset": "toy"}
    told = lambda r: spec | {"method": r.meta["method"], "seed": r.meta["seed"]}
    return [(k, told(made[k]), made[k]) for k in names or made]


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
    r = record(seed, keys=PRE + POST, C=C, rounds=range(0, 3 * E, 3), groups=groups)
    at = tmp_path_factory.mktemp("any") / "p-s"
    packing.pack(items({"a": r, "b": record(1)}), at)
    assert same(evidence.read(at)["a"], r, but=())


def test_pandas_alone_can_read_it(tmp_path):
    made = everything()
    packing.pack(items(made, "plain", "groups"), tmp_path)
    t = {f: pd.read_parquet(tmp_path / f"{f}.parquet") for f in evidence.FILES}
    names = dict(enumerate(t["runs"].id))
    of = lambda d, name: d[d.run.map(names) == name]
    at = lambda d, key: d[(d[["moment", "view", "split"]] == list(key)).all(axis=1)]
    r = made["groups"]
    for key, a in r.views.items():
        hits = at(of(t["hits"], "groups"), key)
        assert len(hits) == a.size
        for h in hits.itertuples():
            assert h.rows == r.meta["n"][key[2]][h.client]
            e = r.rounds.tolist().index(h.round)
            assert h.hits == round(float(a[e, h.client]) * h.rows)
        for g in at(of(t["groups"], "groups"), key).itertuples():
            e = r.rounds.tolist().index(g.round)
            n = r.cells[key][e, g.client, g.group, g.outcome, g.prediction]
            assert g.count == n
    logs = of(t["logs"], "plain")
    for v in logs[logs.name == "weight"].itertuples():
        assert v.value == made["plain"].logs["weight"][v.round, v.slot]
    row = t["runs"].set_index("id").loc["groups"]
    assert row["seed"] == 3 and list(row["rounds"]) == [0, 2, 4] and row.seconds == 9.0
    assert json.loads(row.meta)["n"] == r.meta["n"]


def test_same_notices_every_kind_of_difference():
    r = everything()["groups"]
    whole = {p: getattr(r, p) for p in PARTS}
    others = [Record(r.meta | {"seconds": 0.0}, r.rounds, **whole)]
    others += [Record(r.meta, r.rounds + 1, **whole)]
    for part, arrays in whole.items():
        k, v = next(iter(arrays.items()))
        new = v.copy()
        new.reshape(-1)[-1] += 1
        less = {j: x for j, x in arrays.items() if j != k}
        for changed in (new, v.astype(np.float16), None):
            more = {} if changed is None else {k: changed}
            others.append(Record(r.meta, r.rounds, **whole | {part: less | more}))
    assert packing.same(r, Record(r.meta, r.rounds, **whole))
    assert not any(packing.same(r, o) for o in others)


def test_what_would_not_come_back_is_refused_and_nothing_is_lost(tmp_path):
    made, at = everything(), tmp_path / "p-s"
    packing.pack(items(made, "plain"), at)
    bad = everything()
    bad["plain"].views["pre", "global", "test"] *= np.float32(0.99)
    with pytest.raises(ValueError, match="rows"):
        packing.pack(items(bad, "plain"), at)
    assert same(evidence.read(at)["plain"], made["plain"], but=())
    assert os.listdir(tmp_path) == ["p-s"]


# ---------------------------------------------------------------- damaged, or foreign
def test_damaged_and_foreign_files_are_named_with_a_remedy(tmp_path):
    made, at = everything(), tmp_path / "p-s"
    packing.pack(items(made, "groups"), at)
    r = made["groups"]
    less = {p: dict([*getattr(r, p).items()][:1]) for p in PARTS}
    less = {"groups": Record(r.meta, r.rounds, **less)}  # a view of each kind
    for name, some in (("p-t", items(made, "plain", "views")), ("p-u", items(less))):
        packing.pack(some, tmp_path / name)
    pd.DataFrame({"a": [1]}).to_parquet(tmp_path / "foreign")
    for name in evidence.FILES:
        path = at / f"{name}.parquet"
        body = path.read_bytes()
        others = [tmp_path / p / path.name for p in ("p-t", "p-u")] * (name != "runs")
        others = [p.read_bytes() for p in [tmp_path / "foreign", *others] if p.exists()]
        for harm in (body[:-40], None, *others):
            path.unlink() if harm is None else path.write_bytes(harm)
            with pytest.raises(evidence.Damaged, match="p-s.*git checkout.*make evid"):
                evidence.read(at)
            path.write_bytes(body)
    assert same(evidence.read(at)["groups"], r, but=())
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
    other = made | {"plain": record(0, seconds=1.0)}
    packing.pack(items(made, "plain"), tmp_path / "p-z")
    packing.pack(items(other, "plain", "short"), tmp_path / "p-a")
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
    assert (row["commit"], row["paper"], row["seed"]) == ("0123456789", "p", 1)


# ---------------------------------------------------------------- all studies
@pytest.fixture
def repo(tmp_path, monkeypatch):
    """A folder with two studies, all of their runs in runs/, made by hand."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path)
    for c in [c for name in ("main", "more") for c in studies.cells("toy", name)[0]]:
        store(c)
    return tmp_path


def store(c, **more):
    r = record(c.seed, c.method, rounds=range(4), **more)
    r.save(Path("runs", c.id))
    return r


def test_from_runs_to_evidence_that_a_study_reads(repo, capsys):
    assert len(audit.check()) == 2
    audit.pack()
    assert audit.check() == [] and "12 runs" in capsys.readouterr().out
    for c in studies.cells("toy", "more")[0]:
        shutil.rmtree(Path("runs", c.id))  # they are in evidence/
    both = [experiment.study("toy", s, workers=1) for s in ("main", "more")]
    assert not any(Path("runs", c.id).exists() for c in both[1].cells)
    for c, r in zip(both[0].cells + both[1].cells, both[0].records + both[1].records):
        assert same(r, record(c.seed, c.method, rounds=range(4)), but=())
    rows = {row["id"]: row for row in evidence.listed(Path("evidence/toy-main"))}
    for c in both[0].cells:
        row = rows[c.id]
        assert all(
            row[k] == getattr(c, k) for k in ("method", "seed", "task", "kwargs")
        )
        assert (row["paper"], row["study"]) == ("toy", "main")
    audit.pack(["toy/more"])  # what is packed need not lie in runs/
    assert audit.check() == []


def test_an_incomplete_study_is_not_packed_and_new_runs_go_first_if_asked(repo):
    audit.pack()
    files = lambda: {f: f.read_bytes() for f in Path("evidence").rglob("*.parquet")}
    before = files()
    write(repo, book(main={"seeds": 3}))
    with pytest.raises(ValueError, match="toy/main: 2 of 6 .*FedAvg seed 2"):
        audit.pack()
    assert files() == before
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
    for spoil in ({"commit": "0123456789+"}, {"commit": "unknown"}, {"rounds": 9}):
        r = store(c)
        replace(r, meta=r.meta | spoil).save(Path("runs", c.id))
        with pytest.raises(ValueError, match=f"near FedAvg seed 0.*runs/{c.id}"):
            audit.pack(["toy/main"])
    spoil |= {"diverged": {"client": 0, "round": 3}}  # with its mark it is a result
    replace(r, meta=r.meta | spoil).save(Path("runs", c.id))
    audit.pack(["toy/main"])


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
    main, more = ("toy", "main"), ("toy", "more")
    assert audit.chosen(["toy/more"]) == [more]
    assert audit.chosen(["toy"]) == audit.chosen() == [main, more]
    with pytest.raises(ValueError, match="toy/mian.*toy/main"):
        audit.chosen(["toy", "toy/mian"])
    audit.pack(["toy/main"])
    todo = {ps: studies.cells(*ps)[0] for ps in (main, more)}
    a, b = (c.id for c in todo[main][:2])
    shutil.rmtree(f"runs/{a}")
    Path(f"runs/{b}/done").unlink()
    assert [c.id for c in audit.lacking(todo[main] * 2, "runs")] == [a, b]
    # stored runs took 6 s with seed 0 and 7 s with seed 1
    assert audit.estimate(todo) == {main: 26, more: 8 * 6.5}
    assert audit.estimate({"x": [*todo[main][:1], cell(seed=9)]}) == {"x": 6 + 6}
    words = [audit.minutes(s) for s in (45, 720, 12600)]
    assert words == ["45 s", "12 min", "3.5 h"]
