"""The benchmarks compare loops that compute the same, and count what they say they
count. Nothing is timed here.
"""

import json
import subprocess
import sys
import time
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
import torch
from where import ROOT

from repro import facts

sys.path.insert(0, str(ROOT))

from benchmarks import all as everything  # noqa: E402
from benchmarks import (  # noqa: E402
    clock,
    floor,
    methods,
    pictures,
    rounds,
    rows,
    server,
)
from benchmarks.cases import NAMES, SMALL, case  # noqa: E402
from benchmarks.ours import after, ours  # noqa: E402
from benchmarks.peers.ask import PEERS, ask  # noqa: E402
from benchmarks.usual import Usual, difference  # noqa: E402


def smaller(c, most=10):
    """The case with no more than so many rows of each split at a client:
    enough to see what a round computes.
    """
    few = {
        split: tuple(r[:most] for r in getattr(c.task, split))
        for split in ("train", "val", "test")
    }
    return replace(c, task=replace(c.task, **few))


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.full if n == "resnet18" else ()) for n in NAMES],
)
def test_one_round_of_the_usual_loop_and_of_fedlib_is_the_same(name):
    c = case(name) if name.startswith("synthetic") else smaller(case(name))
    rounds.agree(c)
    # five percent off is noticed
    usual = Usual(replace(c, lr=1.05 * c.lr), batch=10**6)
    usual.round(torch.arange(2))
    assert difference(after(c, "loop", 2).values(), usual.model.parameters()) > 1e-4


@pytest.mark.parametrize(
    "name, clients, rows",
    [
        ("synthetic-30", 30, None),
        ("synthetic-100", 100, None),
        ("mlp", 51, 200),
        ("cnn", 20, 250),
        ("resnet18", 2, 50),
    ],
)
def test_cases_are_as_large_as_they_say(name, clients, rows):
    c = case(name)
    assert (
        c.task.C == clients
        and rows in (None, *{len(r) for r in c.task.train})
        and len(next(c.cohorts())) == c.cohort
    )
    assert (c.cohort == 10) == (name == "synthetic-30") and c.cohort in (10, clients)
    assert rows is None or len({len(r) for r in c.task.train}) == 1


def test_a_loop_that_computes_something_else_is_refused(monkeypatch):
    class Other(Usual):
        def __init__(self, c, batch):
            super().__init__(replace(c, lr=2 * c.lr), batch)

    monkeypatch.setattr(rounds, "Usual", Other)
    with pytest.raises(SystemExit, match="synthetic-30: after one round"):
        rounds.agree(case("synthetic-30"))


def test_ours_times_the_rounds_it_is_asked_for(monkeypatch):
    """n rounds lie between the first and the last look at the clock, and the cohorts
    are those of the usual loop.
    """
    c, ticks, drawn = case("synthetic-30"), iter(range(100)), []
    monkeypatch.setattr("benchmarks.ours.time.process_time", lambda: next(ticks))

    def cohorts(self):
        while True:
            drawn.append(torch.arange(2))
            yield drawn[-1]

    monkeypatch.setattr(type(c), "cohorts", cohorts)
    assert ours(c, "loop")(5) == 5 and len(drawn) == 6


def test_summary_pairs_repetitions():
    rows = clock.summary({"a": [10, 20, 30], "b": [20, 60, 60]}, "a")
    assert (
        rows[1]["times_loader"] == 2
        and rows[1]["rounds_per_cpu_s"] == 60
        and rows[0]["times_loader"] == 1
    )
    assert (rows[0]["low"], rows[0]["high"], rows[0]["repetitions"]) == (10, 30, 3)


def test_interleave_visits_every_variant_in_every_repetition():
    order, now = [], [0.0]

    def variant(name, cost):
        def f(n):
            order.append((name, n))
            now[0] += n * cost

        return f

    rates = clock.interleave(
        {"slow": variant("slow", 0.5), "quick": variant("quick", 0.1)},
        3,
        1.0,
        clock=lambda: now[0],
    )
    assert rates == {"slow": pytest.approx([2] * 3), "quick": pytest.approx([10] * 3)}
    assert (
        order[4:] == [("slow", 2), ("quick", 10)] * 3
        and order[:4] == [("slow", 1)] * 2 + [("quick", 1)] * 2
    )


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads Linux's /proc")
def test_tree_cpu_counts_a_living_child_and_then_keeps_it():
    burn = (
        "import time\nwhile time.process_time() < .5: pass\nprint(flush=True)\ninput()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", burn], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    before, own = clock.tree_cpu(child.pid), time.process_time()
    child.stdout.readline()
    alive = clock.tree_cpu()
    assert clock.tree_cpu(child.pid) >= 0.45 > before - 0.4 and alive >= own + 0.45
    child.communicate(b"\n")
    assert clock.tree_cpu() >= alive


def test_operations_are_those_of_the_formula():
    """Softmax regression: a product forwards, one for the weights' gradient;
    the input needs none.
    """
    assert floor.flops(case("synthetic-30")) == pytest.approx(2 * 2 * 60 * 10)
    assert floor.flops(case("mlp")) == pytest.approx(2 * (2 * 784 * 64 + 3 * 64 * 10))
    assert floor.rows_per_round(case("mlp")) == 51 * 200


def test_the_floor_of_images_is_their_convolutions(monkeypatch):
    """Each of them is timed once per repetition, the quickest counts, and the first has
    no gradient for the images.
    """
    asked, honest, clock = [], torch.autograd.grad, iter(range(100))
    monkeypatch.setattr(
        torch.autograd,
        "grad",
        lambda z, ws, g: asked.append(len(ws)) or honest(z, ws, g),
    )
    monkeypatch.setattr("benchmarks.floor.time.process_time", lambda: next(clock))
    assert floor.convolutions(case("cnn"), reps=3) == 2 and asked == [1] * 3 + [2] * 3


def keep(new, out):
    rows.keep(new, out, rounds.COLUMNS, ("case", "variant"), NAMES, "a command")


def test_rows_of_another_day_are_kept(tmp_path):
    out = tmp_path / "benchmarks.csv"
    keep(
        [
            {"case": "mlp", "variant": "a", "rounds_per_cpu_s": 1.0},
            {"case": "cnn", "variant": "a"},
        ],
        out,
    )
    keep(
        [
            {"case": "mlp", "variant": "a", "rounds_per_cpu_s": 2.0},
            {"case": "synthetic-30", "variant": "b"},
        ],
        out,
    )
    lines = out.read_text().splitlines()
    assert [line.split(",")[:4] for line in lines[1:]] == [
        ["synthetic-30", "b", "", ""],
        ["mlp", "a", "", "2"],
        ["cnn", "a", "", ""],
    ]
    first, second = json.loads(out.with_suffix(".json").read_text())["runs"]
    assert (
        first["rows"] == [["cnn", "a"]]
        and second["rows"] == [["mlp", "a"], ["synthetic-30", "b"]]
        and second["cpu"]
    )


def test_a_peer_that_fails_is_a_row_with_its_reason(tmp_path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'ImportError: no such peer' >&2\nexit 1\n")
    python.chmod(0o755)
    (row,) = ask("pfl", str(python), "mlp")
    assert row == {
        "case": "mlp",
        "variant": "pfl-research",
        "note": "failed: ImportError: no such peer",
    }
    (row,) = ask("pfllib", str(tmp_path / "none"), "mlp", method="Ditto")
    assert row["note"].startswith("no interpreter") and row["method"] == "Ditto"


def test_a_peer_is_asked_for_no_more_than_the_others(tmp_path):
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\nshift 2\necho "{\\"variant\\": \\"$*\\"}"\n')
    python.chmod(0o755)
    (row,) = ask("flgo", str(python), "mlp", 2, 0.5, "Ditto")
    assert row == {"case": "mlp", "method": "Ditto", "variant": "mlp 2 0.5 Ditto"}
    (row,) = ask("flower", str(python), "mlp", 7, 0.5)
    assert row == {"case": "mlp", "variant": "mlp 3 4"}


def test_environments_are_found_by_their_names(tmp_path):
    for name in ("flgo", "stranger"):
        (tmp_path / name / "bin").mkdir(parents=True)
        (tmp_path / name / "bin" / "python").touch()
    python = tmp_path / "flgo" / "bin" / "python"
    assert everything.found(tmp_path) == ["--peer", f"flgo={python}"]
    with pytest.raises(SystemExit):
        everything.main([str(tmp_path / "stranger")])
    assert set(PEERS) >= set(methods.WITH_METHODS)


def test_clients_take_turns():
    """Every client is drawn once before one is drawn again."""
    c = case("synthetic-30")
    turn = [next(draw) for draw in [c.cohorts()] for _ in range(6)]
    for three in (turn[:3], turn[3:]):
        assert torch.cat(three).sort().values.tolist() == list(range(30))
    assert not torch.equal(turn[0], turn[3])


@pytest.mark.parametrize("name", SMALL)
def test_methods_by_hand_compute_what_fedlib_does(name):
    c = smaller(case(name), 25)
    done = [m for m in methods.METHODS if methods.suits(m, c)]
    for method in done:
        methods.agree(c, method)
    assert len(done) == (4 if name == "synthetic-30" else len(methods.METHODS))


@pytest.mark.parametrize(
    "method", ["FedProx", "Ditto", "FedRep", "FedAS", "PLGU-GRep", "FedGA"]
)
def test_a_method_by_hand_that_is_a_little_off_is_refused(method, monkeypatch):
    own = methods.METHODS[method]
    change = {
        "FedProx": {"mu": 0.2},
        "Ditto": {"lam": 0.5},
        "FedRep": {"head_epochs": 4},
        "FedAS": {"align_lr": 0.02},
        "PLGU-GRep": {"head_epochs": 5, "rho": 0.2},
        "FedGA": {"alpha": 2.0},
    }[method]
    monkeypatch.setitem(methods.METHODS, method, replace(own, loop_hp=change))
    with pytest.raises(SystemExit, match=f"2 rounds of {method}"):
        methods.agree(smaller(case("synthetic-mlp"), 25), method)


def test_a_method_that_no_peer_has_is_a_row_that_says_so():
    c, peers = case("synthetic-30"), [("pfllib", "none"), ("pfl", "none")]
    assert methods.there(c, "FedGA", peers, 1, 0.1) == [
        {
            "case": "synthetic-30",
            "method": "FedGA",
            "variant": "PFLlib",
            "note": "PFLlib has no FedGA",
        }
    ]
    (row,) = methods.there(c, "Ditto", peers, 1, 0.1)
    assert row["note"] == "no interpreter none"


# ---------------------------------------------------------------- pictures
def bars(fig):
    return [(p.get_x(), p.get_width()) for p in fig.axes[0].patches]


def test_bars_begin_at_the_usual_loop(tmp_path):
    csv = tmp_path / "rounds.csv"
    csv.write_text(
        "case,variant,rounds_per_cpu_s,low,high,times_loader\n"
        "mlp,DataLoader loop,10,9,11,1\nmlp,PFLlib,5,4,6,0.5\n"
        "mlp,FLGo,,,,\nmlp,fedlib,40,30,50,4\n"
    )
    fig = pictures.side_by_side(csv)
    assert bars(fig) == [(1, 3), (1, -0.5)]
    assert [t.get_text() for t in fig.axes[0].texts] == ["4.0", "0.50", "no result"]
    assert [t.get_text() for t in fig.axes[0].get_yticklabels()] == [
        "mlp",
        "fedlib",
        "PFLlib",
        "FLGo",
    ]
    t = pictures.ratios(csv).set_index("variant")
    assert (t.least["fedlib"], t.most["fedlib"]) == (3, 5)


def test_a_program_without_the_method_has_no_mark(tmp_path):
    csv = tmp_path / "methods.csv"
    csv.write_text(
        "case,method,variant,rounds_per_cpu_s,low,high,times_loader\n"
        "mlp,FedGA,fedlib,40,30,50,4\nmlp,FedGA,PFLlib,,,,\n"
        "mlp,Ditto,fedlib,40,30,50,4\nmlp,Ditto,PFLlib,20,20,20,2\n"
    )
    lines = {
        line.get_label(): line for line in pictures.by_method(csv).axes[0].get_lines()
    }
    assert list(lines["fedlib"].get_xdata()) == [4, 4]
    assert list(lines["PFLlib"].get_xdata()) == [2]


def test_the_evidence_is_drawn_when_it_was_measured(tmp_path):
    csv = tmp_path / "evidence.csv"
    assert pictures.evidence(csv) is None
    csv.write_text("study,before_min,after_min\na,3,1\nb,30,6\n")
    fig = pictures.evidence(csv)
    before, after = fig.axes[0].get_lines()
    assert list(before.get_xdata()) == [30, 3] and list(after.get_xdata()) == [6, 1]


def test_the_plan_in_the_picture_is_a_plan(tmp_path):
    fig = pictures.stacked_plan()
    (cells,) = fig.axes[0].collections
    rows_ = [path.vertices[:, 1].mean().round() for path in cells.get_paths()]
    steps = [rows_.count(-k) for k in range(10)]
    c = case("synthetic-100")
    most = max(
        -(-len(c.task.train[int(t.get_text().split()[1])]) // c.task.batch)
        for t in fig.axes[0].get_yticklabels()
    )
    assert steps == sorted(steps, reverse=True) and steps[0] == most


def test_server_splits_a_run_into_parts_that_are_counted(tmp_path, monkeypatch):
    """A clock that moves by one at every look: a part lasts as often as it happened,
    and what it contains.
    """
    monkeypatch.setattr(
        "benchmarks.server.time",
        SimpleNamespace(perf_counter=count().__next__, process_time=count().__next__),
    )
    out = tmp_path / "server.csv"
    server.main(
        [
            "--rounds",
            "6",
            "--states",
            "3",
            "--mean",
            "40",
            "--size",
            "20",
            "--outer",
            "2",
            "--inner",
            "2",
            "--pool",
            "30",
            "--targets",
            "EO",
            "Multi",
            "--repetitions",
            "1",
            "--out",
            str(out),
        ]
    )
    t = pd.read_csv(out).set_index("method")
    assert list(t.index) == ["FedAvg", "Gaussian", "EquFL-EO", "EquFL-Multi"]
    # 3 looks - the proxy's
    assert (t.clients_s == 6).all() and (
        t[["proxy_s", "matching_s"]].loc["EquFL-EO"] == [1, 2]
    ).all()
    assert (
        t.calibrated.to_dict() == {m: 0 if m == "FedAvg" else 3 for m in t.index}
        and (t.calibrating_s == t.calibrated).all()
    )
    assert not t.loc[["FedAvg", "Gaussian"], ["proxy_s", "matching_s"]].any(axis=None)
    assert t.loc[
        "FedAvg", "aggregation_s"
    ] == 6 and t.seconds.to_numpy() == pytest.approx(t[[*server.PARTS]].sum(axis=1))
    assert (
        t.times_fedavg.to_numpy() == pytest.approx(t.seconds / 12, rel=1e-3)
        and (t.repetitions == 1).all()
    )
    assert json.loads(out.with_suffix(".json").read_text())["outer"] == 2


def test_server_leaves_fedlib_as_it_was():
    from fedlib.methods.groups.equfl import EquFL

    before = EquFL.direction, EquFL.aggregate
    with server.stopwatches():
        assert EquFL.direction is not before[0]
    assert (EquFL.direction, EquFL.aggregate) == before


def test_the_parts_of_a_step_are_one_row_each(tmp_path):
    (tmp_path / "benchmarks-convolutions.csv").write_text(
        "way,part,forward_us,backward_us,share,times_floor\n"
        "module,conv1,10.4,20.6,0.5,\n"
        "module,step,62,0,1,2.5\n"
        "fedlib,conv1,8,9,0.5,\n"
        "fedlib,step,34,0,1,1.4\n"
        "floor,conv1,8,9,1,\n"
        "floor,step,25,0,1,1\n"
    )
    table = facts.convolutions(tmp_path).set_index("part")
    assert list(table.index) == ["conv1", "step"]
    assert table.loc["conv1"].to_dict() == {
        "torch.nn": "10 + 21",
        "fedlib": "8 + 9",
        "floor": "8 + 9",
    }
    assert table.loc["step"].to_dict() == {
        "torch.nn": "62",
        "fedlib": "34",
        "floor": "25",
    }
