"""Stored runs: packed and read back to the bit, found, checked."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from toys_study import GUEST, OWN, PARTS, POST, PRE, book, record, same, write

from fedlib.study import audit, experiment, identity, store, studies
from fedlib.study.results import scores


def everything():
    """{name: record} with all that a record can hold."""
    guests, plain = record(2, "Ditto", PRE + GUEST, guests=[9, 5]), record(0)
    views = record(1, "FedPer", PRE + POST + OWN[1:])
    guests.meta["n"] |= {"guest_val": [7, 0], "guest_train": [0, 11]}
    rows = [(plain, ("pre", "global", "all"), plain.meta["n"]["train"])]
    rows += [(guests, ("guest", "global", "val"), [7, 0])]
    rows += [(guests, ("guest", "global", "all"), [0, 11])]
    val = views.meta["n"]["val"]
    val[2] = 0  # a client without validation rows
    rows += [(views, k, val) for k in views.views if k[2] == "val"]
    for r, key, n in rows:
        E, n = len(r.rounds) - (key[0] in ("post", "own")), np.array(n)
        hits = np.minimum(np.arange(E * len(n)).reshape(E, -1) % 5, n)
        r.views[key] = store.accuracy_of(np.where(n, hits, -1), n)
    third = np.random.default_rng(0).random((4, 2, 3))
    late = np.array([np.nan, np.nan, 0.25, 0.5])
    plain.logs |= {"third": third, "late": late, "counts": np.arange(4)}
    groups = record(3, "FedFB", PRE + POST, groups=True, C=3)
    short = record(4, rounds=(0, 2), diverged={"client": 0, "round": 2})
    made = {"plain": plain, "views": views, "guests": guests}
    return made | {"groups": groups, "short": short}


def packed(at, made, *names):
    """Pack the records of these names into a folder."""
    spec = dict.fromkeys(store.SPEC, "") | {"paper": "p", "dataset": "toy"}
    told = lambda r: spec | {"method": r.meta["method"], "seed": r.meta["seed"]}
    store.pack([(k, told(made[k]), made[k]) for k in names or made], at)


def test_what_is_packed_comes_back_to_the_bit(tmp_path):
    made, at, again = everything(), tmp_path / "p-s", tmp_path / "again"
    packed(at, made)
    back = store.read(at)
    assert back.keys() == made.keys()
    for k, r in made.items():
        assert same(r, back[k], but=()), k
        for key, a in r.views.items():  # a mean's last digit depends on the layout
            assert back[k].views[key].mean(1).tobytes() == a.mean(1).tobytes()
    assert os.listdir(tmp_path) == ["p-s"]  # no lock, no half-written neighbour
    packed(again, made, *[*made][::-1])
    assert all(f.read_bytes() == (again / f.name).read_bytes() for f in at.iterdir())
    made["plain"].views["pre", "global", "test"] *= np.float32(0.99)
    with pytest.raises(ValueError, match="rows"):  # would not come back
        packed(at, made, "plain")
    assert store.read(at).keys() == made.keys()
    r = made["groups"]
    packed(again, made := everything(), "plain", "groups")  # pandas alone can read it
    t = {f: pd.read_parquet(again / f"{f}.parquet") for f in ("runs", *store.PARTS)}
    names = dict(enumerate(t["runs"].id))
    of = lambda file, name: t[file][t[file].run.map(names) == name].itertuples()
    seen = 0
    e = {t: i for i, t in enumerate(r.rounds)}
    for h in of("hits", "groups"):
        key, seen = (h.moment, h.view, h.split), seen + 1
        assert h.rows == r.meta["n"][h.split][h.client]
        assert h.hits == round(float(r.views[key][e[h.round], h.client]) * h.rows)
    assert seen == sum(a.size for a in r.views.values())
    for g in of("groups", "groups"):
        which = e[g.round], g.client, g.group, g.outcome, g.prediction
        assert g.count == r.cells[g.moment, g.view, g.split][which]
    for v in [v for v in of("logs", "plain") if v.name == "weight"]:
        assert v.value == made["plain"].logs["weight"][v.round, v.slot]
    row = t["runs"].set_index("id").loc["groups"]
    assert row["seed"] == 3 and list(row["rounds"]) == [0, 2, 4] and row.seconds == 9.0


def test_damaged_and_foreign_files_are_named_with_a_remedy(tmp_path):
    made, at = everything(), tmp_path / "p-s"
    packed(at, made, "groups")
    r = made["groups"]
    less = {p: dict([*getattr(r, p).items()][:1]) for p in PARTS}  # a view of each kind
    packed(tmp_path / "r-t", made, "plain", "views")
    packed(tmp_path / "r-u", {"groups": replace(r, **less)})
    pd.DataFrame({"a": [1]}).to_parquet(tmp_path / "foreign")
    for name in ("runs", *store.PARTS):
        path = at / f"{name}.parquet"
        body = path.read_bytes()
        others = [tmp_path / p / path.name for p in ("r-t", "r-u")] * (name != "runs")
        others = [p.read_bytes() for p in [tmp_path / "foreign", *others] if p.exists()]
        for harm in (body[:-40], None, *others):
            path.unlink() if harm is None else path.write_bytes(harm)
            with pytest.raises(ValueError, match="p-s.*git checkout.*make evid"):
                store.read(at)
            path.write_bytes(body)
    assert same(store.read(at)["groups"], r, but=())
    shutil.copytree(at, tmp_path / ".p-s.new")  # of a process that was killed
    assert set(store.find({"groups", "short"}, "p", "s", tmp_path)) == {"groups"}
    packed(at, made, "groups", "short")
    assert set(store.read(at)) == {"groups", "short"}
    assert not [*tmp_path.glob(".p-s*")]
    find = lambda names, *of: store.find({*names.split()}, *of, tmp_path)
    packed(tmp_path / "p-z", made, "plain")
    packed(tmp_path / "p-a", made | {"plain": record(0, seconds=1.0)}, "plain", "short")
    packed(tmp_path / "q-s", made, "views")
    got = find("plain short views none", "p", "z")
    assert set(got) == {"plain", "short"} and got["plain"].meta["seconds"] == 6.0
    assert find("plain", "p", "a")["plain"].meta["seconds"] == 1.0
    assert find("views", "q", "none").keys() == {"views"}
    made["plain"].meta["picked"] = True  # of another study's rounds only
    packed(tmp_path / "w-s", made, "plain")
    assert find("plain", "w", "s") and not find("plain", "w", "none")
    del made["plain"].meta["picked"]
    packed(tmp_path / "p-z", made, "guests")  # is read anew
    os.utime(tmp_path / "p-z" / "runs.parquet", ns=(7, 7))
    assert [r["id"] for r in store.listed(tmp_path / "p-z")] == ["guests"]
    got = find("plain guests", "p", "z")
    assert got.keys() == {"plain", "guests"} and got["plain"].meta["seconds"] == 1.0


MAIN, MORE = ("toy", "main"), ("toy", "more")


@pytest.fixture
def repo(tmp_path, monkeypatch):
    """A folder with two studies, all of their runs in runs/, made by hand."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path)
    for c in cells() + cells(MORE):
        save(c)
    return tmp_path


def cells(study=MAIN):
    return studies.cells(*study)[0]


def save(c, **more):
    record(c.seed, c.method, rounds=range(4), **more).save(Path("runs", c.id))


def test_from_runs_to_evidence_that_a_study_reads(repo, capsys):
    assert len(audit.check()) == 2
    audit.pack()
    assert audit.check() == [] and "12 runs" in capsys.readouterr().out
    for c in cells(MORE):
        shutil.rmtree(Path("runs", c.id))  # they are in evidence/
    both = [experiment.study(*s, workers=1) for s in (MAIN, MORE)]
    assert not any(Path("runs", c.id).exists() for c in both[1].cells)
    for c, r in both[0].of() + both[1].of():
        assert same(r, record(c.seed, c.method, rounds=range(4)), but=())
    rows = {row["id"]: row for row in store.listed(Path("evidence/toy-main"))}
    for c in both[0].cells:
        told = {k: getattr(c, k) for k in ("method", "seed", "task", "kwargs")}
        assert rows[c.id].items() >= (told | {"paper": "toy", "study": "main"}).items()
    audit.pack(["toy/more"])  # what is packed need not lie in runs/
    files = lambda: {f: f.read_bytes() for f in Path("evidence").rglob("*.parquet")}
    before = files()
    write(repo, book(main={"seeds": 3}))
    with pytest.raises(ValueError, match="toy/main: 2 of 6 .*FedAvg seed 2"):
        audit.pack()
    assert files() == before
    write(repo)
    c = cells()[0]
    save(c, seconds=77.0)
    for anew, seconds in ((False, 6.0), (True, 77.0)):
        audit.pack(["toy/main"], anew=anew)
        assert store.find({c.id}, *MAIN)[c.id].meta["seconds"] == seconds


def test_what_may_be_packed_and_which_logs_are_kept(repo):
    c = cells()[0]
    r, at = record(), Path("runs", c.id)
    for spoil in ({"commit": "0123456789+"}, {"commit": "unknown"}, {"rounds": 9}):
        replace(r, meta=r.meta | spoil).save(at)  # nobody could make it again
        with pytest.raises(ValueError, match=f"near FedAvg seed 0.*runs/{c.id}"):
            audit.pack(["toy/main"])
    spoil |= {"diverged": {"client": 0, "round": 3}}  # with its mark it is a result
    replace(r, meta=r.meta | spoil).save(at)
    audit.pack(["toy/main"])
    for curves, evaluations in ([], 2), (["near"], 4):
        of = {"logs": ["cohort"], "seeds": [4, 0], "curves": curves, "stored": "test"}
        write(repo, book(main=of))
        for c in cells():
            save(c, groups=True)
        audit.pack(["toy/main"], anew=True)
        shutil.rmtree("runs")
        run = experiment.study(*MAIN, workers=1)
        new = [record(c.seed, c.method, rounds=range(4), groups=1) for c in run.cells]
        found = {c.seed: x for c, *x in zip(run.cells, run.records, new)}
        assert same(*found[0], but=())  # of seed 0 all
        r, whole = found[4]  # of FedGA
        assert [*r.logs] == ["cohort"] and len(r.rounds) == evaluations
        assert {split for _, _, split in r.views} == {"test"}
        for key, a in (r.cells | r.consistency).items():
            b = (whole.cells | whole.consistency)[key][r.rounds]
            assert a.shape[1] == 1 and (a[:, 0] == b.sum(1)).all(), key
        who = {*pd.read_parquet("evidence/toy-main/groups.parquet").client}
        assert who == {-1, *range(7)}
        audit.pack(["toy/main"])  # is packed as it is
        again = experiment.study(*MAIN, workers=1).records
        assert all(same(*both, but=()) for both in zip(run.records, again))
        if not curves:
            with pytest.raises(ValueError, match="seed 4.*mine"):
                scores(run)
            assert len(scores(run.only(seed=0))) == 8
            told = map(audit.compare, run.records, new)
            assert {t["verdict"] for t in told} == {"same"}


def test_of_a_searchs_pilots_validation_rows_are_kept(repo):
    logs = {"FedAvg": ["cohort"]}
    write(repo, book(main={"logs": logs, "seeds": {"pilot": 1}, "draws": 2}))
    for c in cells():
        save(c)
    audit.pack(["toy/main"])
    run = experiment.study(*MAIN, workers=1)
    for c, r in run.of():
        assert {split for _, _, split in r.views} == {"val"}
        assert [*r.logs] == logs.get(c.method, [])
    assert len(run.validation("last10_mean")) == len(run.cells) == 4


def test_check_names_what_is_missing_foreign_or_of_other_versions(repo, monkeypatch):
    audit.pack()
    write(repo, book(main={"seeds": 1}))
    Path("evidence/toy-gone").mkdir()
    gone, main = sorted(audit.check())
    assert "toy-gone" in gone
    assert "toy-main: 2 runs are" in main and "missing" not in main
    Path("evidence/toy-gone").rmdir()
    write(repo, book(main={"methods": {"FedAvg": {"lr": 0.3}, "FedGA": {"alpha": 3}}}))
    main = " ".join(audit.check())
    assert "2 of 4" in main and "near FedAvg seed 0" in main and "2 runs are" in main
    write(repo)
    monkeypatch.setattr(identity, "versions", lambda: {"method FedGA": 2})
    main = " ".join(audit.check())
    assert "2 of 4" in main and "near FedGA seed 0" in main and "versions" in main
    monkeypatch.setattr(identity, "versions", lambda: {})
    assert audit.check() == []
    Path("evidence/toy-more/hits.parquet").unlink()
    assert "toy-more/hits.parquet" in audit.check()[0]
    shutil.rmtree("evidence")  # what is left to do
    assert audit.chosen(["toy/more"]) == [MORE]
    assert audit.chosen(["toy"]) == audit.chosen() == [MAIN, MORE]
