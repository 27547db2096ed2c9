"""More seeds where claims are open: the plan, a look, time, death and return."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from where import ROOT

from fedlib.cli import main as cli
from fedlib.core import record
from fedlib.study import audit, evidence, studies
from repro import decide

TASK = {
    "data": {"name": "synthetic", "alpha": 0.5, "beta": 0.5, "sizes": [60, 80, 70]},
    "network": {"name": "Linear"},
    "train": {"lr": 0.05},
    "run": {"rounds": 2},
}
STUDIES = {
    "tasks": {"near": TASK, "far": {"like": "near", "data": {"alpha": 1}}},
    "studies": {
        "book": {
            "main": {
                "tasks": ["near", "far"],
                "seeds": 2,
                "methods": {"FedAvg": {}, "FedProx": {"mu": 0.1}},
            },
            "tuning": {
                "tasks": ["near"],
                "seeds": {"pilot": 1},
                "methods": {"FedAvg": {}},
            },
        },
        "more": {
            "wide": {
                "tasks": ["near"],
                "seeds": 5,
                "methods": {"FedProx": {"mu": [0.2, 0.3, 0.4, 0.5]}},
            }
        },
    },
}
COLUMNS = "key,paper,holds,needs,runs"
ONE = "one,toy,undecided,5,main:near"


@pytest.fixture
def repo(tmp_path, monkeypatch):
    """A folder with two packed studies; the sources are a commit without changes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(record, "commit", lambda: "0123456789")
    write(tmp_path)
    audit.compute(workers=1)
    audit.pack()
    return tmp_path


def write(folder):
    (folder / "papers/toy").mkdir(parents=True)
    (folder / "params.yaml").write_text("tier: small\n")
    text = yaml.safe_dump(STUDIES, sort_keys=False)
    (folder / "papers/toy/studies.yaml").write_text(text)
    (folder / "papers/toy/paper.yaml").write_text("order: 1\n")
    (folder / "results").mkdir()


def claims(*rows):
    Path("results/claims.csv").write_text("\n".join([COLUMNS, *rows, ""]))


@pytest.fixture
def drawn(monkeypatch):
    """The commands that are called; the claim is undecided until its study has so many
    seeds, `until`, while its table says that it `needs` so many.
    """

    class Calls(list):
        until = needs = 5

        def __call__(self, words):
            self.append(words)
            if words == ["repro.claims"]:
                n = seeds()["near"]
                holds = "yes,," if n >= self.until else f"undecided,{self.needs},"
                claims(f"one,toy,{holds}main:near")

    calls = Calls()
    monkeypatch.setattr(decide, "call", calls)
    return calls


def seeds(study="main"):
    """{data set: how many seeds}."""
    cells = studies.cells("toy", study)[0]
    return {d: len({c.seed for c in cells if c.dataset == d}) for d in ("near", "far")}


def stand(folder="."):
    """{path: bytes} of all files, but for locks and the guard's notes."""
    return {
        f: f.read_bytes()
        for f in Path(folder).rglob("*")
        if f.is_file() and f.suffix != ".lock" and f.name != ".checked"
    }


# ---------------------------------------------------------------- the plan
def test_the_next_look_is_planned_for_all_methods_with_what_it_costs(repo):
    claims(ONE, "two,toy,undecided,20,main:near", "three,toy,yes,,main:far")
    (look,) = decide.plan()
    assert (look.study, look.dataset, look.seeds, look.to) == ("main", "near", 2, 5)
    assert look.runs == 3 * 2 and (look.claims, look.open) == (1, 2)
    rows = evidence.listed(Path("evidence/toy-main"))
    spent = {
        m: [r["seconds"] for r in rows if (r["method"], r["dataset"]) == (m, "near")]
        for m in ("FedAvg", "FedProx")
    }
    each = sum(sum(v) / len(v) for v in spent.values())
    assert look.minutes == pytest.approx(3 * each / 60)


def test_most_decisions_per_minute_come_first(repo, monkeypatch):
    # Runs as short as these take twice as long where a machine is busy.
    listed = evidence.listed
    alike = lambda *a: [row | {"seconds": 2.0} for row in listed(*a)]
    monkeypatch.setattr(evidence, "listed", alike)
    wide = "w,toy,undecided,10,wide:near"
    claims(wide, ONE, "three,toy,undecided,5,main:far", "four,toy,undecided,5,main:far")
    looks = decide.plan()
    assert [(x.study, x.dataset) for x in looks] == [
        ("main", "far"),
        ("main", "near"),
        ("wide", "near"),  # twenty runs for one decision
    ]
    worth = [x.claims / x.minutes for x in looks]
    assert worth == sorted(worth, reverse=True)


def test_a_claim_on_two_data_sets_is_counted_once(repo):
    claims("both,toy,undecided,5,main:near main:far")
    assert [x.claims for x in decide.plan()] == [0.5, 0.5]


@pytest.mark.parametrize(
    "row",
    [
        "x,toy,undecided,53,main:near",  # more than the last look has
        "x,toy,undecided,inf,main:near",
        "x,toy,undecided,,main:near",
        "x,toy,alike,5,main:near",
        "x,toy,undecided,5,tuning:near",  # pilots decide nothing
        "x,toy,undecided,5,cost:near",  # no study of studies.yaml
        "x,toy,undecided,5,",
    ],
)
def test_claims_that_seeds_cannot_decide_ask_for_none(repo, capsys, row):
    claims(row)
    decide.decide()
    assert "No claim is open that more seeds would decide." in capsys.readouterr().out


def test_a_study_that_had_its_last_look_is_left_alone(repo):
    Path("papers/toy/seeds.yaml").write_text("main: {near: 40}\n")
    claims("one,toy,undecided,40,main:near main:far", "two,toy,undecided,30,main:near")
    assert [x.dataset for x in decide.plan()] == ["far"]


def test_a_dry_run_writes_nothing(repo, capsys):
    claims(ONE)
    before = stand()
    decide.decide(dry=True)
    told = capsys.readouterr().out
    assert "main" in told and "In all 6 runs" in told and "about 1 claims" in told
    assert stand() == before


# ---------------------------------------------------------------- a look
def test_a_look_computes_packs_draws_and_tests_the_claims(repo, drawn, capsys):
    claims(ONE)
    decide.decide(workers=1)
    assert "No claim is open that more seeds would decide." in capsys.readouterr().out
    assert seeds() == {"near": 5, "far": 2} and audit.check() == []
    assert drawn == [
        ["repro.run_notebook", "notebooks/toy/book.ipynb", "results/notebooks/toy"],
        ["repro.claims"],
    ]
    # every method has every seed
    rows = evidence.listed(Path("evidence/toy-main"))
    near = {(r["method"], r["seed"]) for r in rows if r["dataset"] == "near"}
    assert near == {(m, s) for m in ("FedAvg", "FedProx") for s in range(5)}
    assert not decide.BEGUN.exists()


def test_it_looks_again_until_the_claim_is_decided(repo, drawn):
    drawn.until = drawn.needs = 20
    claims("one,toy,undecided,20,main:near")
    decide.decide(workers=1)
    assert seeds()["near"] == 20 and drawn.count(["repro.claims"]) == 3


def test_it_stops_at_the_last_look(repo, drawn, monkeypatch):
    monkeypatch.setattr("fedlib.measures.verdicts.LOOKS", (5, 10))
    drawn.until, drawn.needs = 99, 10
    claims("one,toy,undecided,10,main:near")
    decide.decide(workers=1)
    assert seeds()["near"] == 10


def test_no_run_begins_when_the_time_is_over(repo, drawn, capsys):
    claims(ONE)
    decide.decide(hours=1e-9, workers=1)
    told = capsys.readouterr().out
    assert "6 of these runs are left" in told and "The time is over" in told
    assert seeds()["near"] == 2 and not drawn  # no look without all of its seeds


def test_a_look_is_finished_after_its_notebook_failed(repo, monkeypatch, capsys):
    claims(ONE)
    with pytest.raises(ValueError, match="run_notebook .* failed, see above"):
        decide.decide(workers=1)  # there is no such notebook here
    assert decide.BEGUN.exists()
    called = []
    monkeypatch.setattr(decide, "call", called.append)
    decide.finish()
    assert len(called) == 2 and not decide.BEGUN.exists() and seeds()["near"] == 5


# ---------------------------------------------------------------- death and return
HERE = """
import sys, time
from fedlib.core import engine, provenance
provenance.commit = lambda: "0123456789"
from fedlib.measures import verdicts
from fedlib.study import compute
from repro import decide
verdicts.LOOKS = (5,)
decide.call = print
if sys.argv[1:]:
    begin = compute.compute_files
    def slow(*args):
        time.sleep(0.4)
        return begin(*args)
    compute.compute_files = slow
decide.command(type("Args", (), dict(paper=None, hours=1, workers=1, dry_run=False)))
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_command_goes_on_and_the_bits_are_the_same(repo, how):
    claims(ONE)
    script = Path("script.py").absolute()
    script.write_text(HERE)
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = lambda: len(list(Path("runs").glob("*/done")))
    begun = done()
    with subprocess.Popen(
        [sys.executable, script, "slow"], env=env, stdout=-1, text=True
    ) as child:
        end = time.time() + 60
        while done() < begun + 2 and time.time() < end:
            time.sleep(0.02)
        child.send_signal(how)
        told = child.communicate(timeout=60)[0]
    assert child.returncode == (-how if how == signal.SIGKILL else 130)
    if how == signal.SIGINT:
        assert "Stopped. Finished runs are kept; the same command goes on" in told
    assert begun + 2 <= done() < begun + 6 and seeds()["near"] == 2
    kept = {f: f.stat().st_mtime_ns for f in Path("runs").glob("*/done")}
    once = subprocess.run([sys.executable, script], env=env, capture_output=True)
    claims("one,toy,yes,,main:near")
    assert seeds()["near"] == 5, once.stderr.decode()
    assert all(f.stat().st_mtime_ns == t for f, t in kept.items())
    # and a study that nobody killed
    killed = evidence.read(Path("evidence/toy-main"))
    for f in Path("runs").glob("*/done"):
        f.unlink()
    audit.compute(["toy/main"], workers=1)
    audit.pack(["toy/main"], anew=True)
    whole = evidence.read(Path("evidence/toy-main"))
    assert killed.keys() == whole.keys()
    for i, r in whole.items():
        assert r.views.keys() == killed[i].views.keys()
        assert all((r.views[k] == killed[i].views[k]).all() for k in r.views)


# ---------------------------------------------------------------- mistakes
def test_an_unknown_paper_is_told_which_there_are(repo, capsys):
    claims(ONE)
    assert cli.main(["decide", "tyo"]) == 2
    told = capsys.readouterr().err
    assert "no paper 'tyo'; did you mean 'toy'? (there are toy)" in told


def test_claims_of_an_older_version_are_refused(repo):
    Path("results/claims.csv").write_text("key,paper,holds\n")
    with pytest.raises(ValueError, match="has no column 'needs'.*make paper"):
        decide.plan()


def test_sources_in_no_commit_are_refused_before_hours_are_spent(repo, monkeypatch):
    claims(ONE)
    monkeypatch.setattr(record, "commit", lambda: "0123456789+")
    with pytest.raises(ValueError, match="in no commit .*: commit them first"):
        decide.decide(workers=1)
    decide.decide(dry=True)


def test_seeds_are_added_at_tier_small_only(repo):
    Path("params.yaml").write_text("tier: tiny\n")
    with pytest.raises(
        ValueError, match="tier = 'tiny'; seeds are added at tier small"
    ):
        decide.decide()


def test_the_command_line_finds_it_in_a_checkout_and_in_an_installation(
    capsys, monkeypatch, tmp_path
):
    with pytest.raises(SystemExit):
        cli.main(["decide", "--help"])
    assert "begin no run after so many hours" in capsys.readouterr().out
    monkeypatch.setattr(cli, "ROOT", tmp_path)  # no pyproject.toml there
    assert "decide" not in cli.further() or cli.further()["decide"].dist
    point = cli.EntryPoint("decide", "repro.decide:add", cli.GROUP)
    monkeypatch.setattr(cli, "entry_points", lambda group: [point])
    assert cli.further() == {"decide": point}


def test_hours_are_positive(capsys):
    assert cli.main(["decide", "--hours", "0"]) == 2
    assert "0: give a number of hours above 0" in capsys.readouterr().err


def test_what_is_begun_is_noted_as_json(repo, monkeypatch):
    monkeypatch.setattr(decide, "finish", lambda: None)
    decide.settle("toy", "main", {"near": 5})
    assert json.loads(decide.BEGUN.read_text())["more"] == {"near": 5}
