"""A comparison loses nothing: it checks first, keeps runs, goes on, and says what is
missing.
"""

import functools
import os
import re
import signal
import sys
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch

import fedlib
from fedlib.core import engine
from fedlib.core.method import hp
from fedlib.core.tree import tmap
from fedlib.measures.selection import best_val, last
from fedlib.measures.statistics import interval
from fedlib.methods.base.fedavg import FedAvg
from fedlib.methods.base.tuned import Tuned
from fedlib.nets.small import MLP
from fedlib.study import asked, compare, matrix, tune
from fedlib.study.rehearse import rehearse


def toy(sizes=(40, 60, 50, 30), network=None, **more):
    """A task of points in space, two classes."""
    g = torch.Generator().manual_seed(0)
    x = torch.randn(sum(sizes), 3, generator=g)
    y = (x[:, 0] + 0.5 * torch.randn(len(x), generator=g) > 0).long()
    names = [f"clinic {c}" for c in range(len(sizes))]
    return fedlib.Task.from_arrays(x, y, np.repeat(names, sizes), network, **more)


def same(a, b):
    """The same numbers, bit for bit."""
    assert a.views.keys() == b.views.keys()
    assert all(np.array_equal(a.views[k], b.views[k]) for k in a.views)
    return a.meta["seed"] == b.meta["seed"]


@dataclass(frozen=True)
class Exploding(FedAvg):
    """FedAvg whose model is infinite from a round on."""

    when: int = hp(1, "the round", range=(0, 100))

    def aggregate(self, server, up, r):
        w = super().aggregate(server, up, r)["w"]
        return {"w": tmap(lambda x: x * torch.inf, w) if r.t >= self.when else w}


@dataclass(frozen=True)
class Mistaken(FedAvg):
    """FedAvg with a mistake that only the second round meets."""

    def aggregate(self, server, up, r):
        if r.t == 1:
            raise RuntimeError("a mistake")
        return super().aggregate(server, up, r)


@dataclass(frozen=True)
class Stopping(FedAvg):
    """FedAvg, and the user presses Ctrl-C in round 1 of seed `at`."""

    at: int = hp(0, "the seed", range=(0, 100))

    def local(self, down, mine, shard):
        return super().local(down, mine, shard)

    def aggregate(self, server, up, r):
        if r.t == 1 and Path("ctrl-c").exists():
            raise KeyboardInterrupt
        return super().aggregate(server, up, r)


# ---------------------------------------------------------------- checked at the start
def test_all_that_cannot_run_are_named_before_anything_trains(monkeypatch):
    trained = []
    run = engine.run

    @functools.wraps(run)
    def noted(*args, **how):
        trained.append(how.get("upto"))
        return run(*args, **how)

    monkeypatch.setattr(engine, "run", noted)
    with pytest.raises(ValueError) as e:
        fedlib.compare(["FedAvg", "FedRep", "FairFed", "FedPer"], toy(), rounds=2)
    text = str(e.value)
    assert "3 methods cannot run" in text and "nothing was trained" in text
    for name, remedy in (
        ("FedRep", "give the task a network with a hidden layer"),
        ("FedPer", "give the task a network with a hidden layer"),
        ("FairFed", "give the task a sensitive attribute"),
    ):
        (line,) = [t for t in text.splitlines() if t.strip().startswith(f"{name}: ")]
        assert remedy in line
    assert set(trained) == {0}  # states before round 0, no round


@pytest.mark.parametrize("network", [None, "MLP"])
def test_a_rehearsal_fails_as_the_run_does(network):
    """Another way to the same answer, for every method that there is."""
    task = toy(network=MLP(3, 8, 2) if network else None)

    def outcome(f, *args, **how):
        try:
            f(*args, **how)
        except Exception as e:
            return f"{type(e).__name__}: {e}"
        return "fine"

    seen = set()
    for name in ("FedAvg", "FedRep", "CD2-pFed", "FedAvg-FT", "FairFed", "FedCLIP"):
        method = lambda name=name: fedlib.make(name, task)
        said = outcome(lambda m=method: rehearse(m(), task, 2, cohort=2))
        assert said == outcome(lambda m=method: fedlib.run(m(), rounds=2, cohort=2))
        seen.add(said == "fine")
    assert seen == {True, False}


def test_a_class_without_local_training_is_named():
    @dataclass(frozen=True)
    class Half(fedlib.core.method.Method):
        def aggregate(self, server, up, r):
            return server

    with pytest.raises(ValueError, match="Half has no local"):
        fedlib.compare([Half()], toy(), rounds=1)


# ---------------------------------------------------------------- kept and continued
def test_a_second_call_computes_only_what_is_new(tmp_path, monkeypatch):
    task, names = toy(), ["FedAvg", ("FedProx", {"mu": 0.5})]
    alone = fedlib.compare(names, task, 3, 2, cohort=2)
    first = fedlib.compare(names, task, 3, 2, cohort=2, folder=tmp_path)
    folders = sorted(p.name for p in tmp_path.iterdir() if p.is_dir())
    assert folders == ["FedAvg", "FedProx(mu=0.5)"]
    began = []
    rounds_of = engine.rounds_of
    monkeypatch.setattr(
        engine,
        "rounds_of",
        lambda fed, *more: (
            began.append((type(fed.method).__name__, fed.seed, more[2])),
            rounds_of(fed, *more),
        )[1],
    )
    more = fedlib.compare([*names, "FedGA"], task, 3, 3, cohort=2, folder=tmp_path)
    real = [(name, seed) for name, seed, upto in began if upto is None]
    assert sorted(real) == sorted(
        [("FedAvg", 2), ("FedProx", 2), ("FedGA", 0), ("FedGA", 1), ("FedGA", 2)]
    )
    for name in ("FedAvg", "FedProx(mu=0.5)"):
        for a, b, c in zip(
            alone.records[name], first.records[name], more.records[name]
        ):
            assert same(a, b) and same(b, c)


@pytest.mark.parametrize(
    "change, words",
    [
        (dict(rounds=4), "rounds is 3 there, 4 here"),
        (dict(cohort=3), "cohort is 2 there, 3 here"),
        (dict(every=2), "every is 1 there, 2 here"),
        (dict(task=toy((40, 60, 50, 31))), "task is "),
        (dict(task=toy(network=MLP(3, 8, 2))), "network is "),
        (dict(task=toy(batch=16)), "batch is 32 there, 16 here"),
        (dict(task=replace(toy(), y=1 - toy().y)), "data is "),
    ],
)
def test_another_comparison_in_the_folder_is_refused_by_name(change, words, tmp_path):
    told = dict(task=toy(), rounds=3, cohort=2)
    fedlib.compare(["FedAvg"], **told, folder=tmp_path)
    with pytest.raises(ValueError, match="holds another comparison: " + words):
        fedlib.compare(["FedAvg"], **told | change, folder=tmp_path)


def test_the_folder_of_a_run_says_what_it_is():
    task = toy()
    name = lambda n, **kw: matrix.folder_name(fedlib.make(n, task, **kw))
    assert name("FedAvg") == "FedAvg" == matrix.folder_name(FedAvg())
    assert name("FedGA", alpha=7) == "FedGA(alpha=7)"
    names = {name("FedAvg", step="SAM"), name("FedAvg", step={"name": "SAM", "rho": 1})}
    names |= {name("FedAvg-P"), matrix.folder_name(Mistaken())}
    assert len(names) == 4 and all(
        re.fullmatch(r"[\w.=,()+-]{1,100}", n) for n in names
    )


@pytest.mark.full
@pytest.mark.parametrize("folder", [False, True])
def test_two_processes_give_the_bits_of_one(folder, tmp_path):
    """A class that only this module has goes there, too."""
    task = toy(network=MLP(3, 8, 2))
    methods = ["FedAvg", "FedRep", Exploding(when=50)]
    told = dict(task=task, rounds=3, seeds=2, cohort=lambda t: [t % 4, (t + 1) % 4])
    one = fedlib.compare(methods, **told)
    at = {"folder": tmp_path} if folder else {}
    two = fedlib.compare(methods, **told, workers=2, **at)
    assert list(two.records) == list(one.records) == ["FedAvg", "FedRep", "Exploding"]
    for name, records in one.records.items():
        assert all(same(a, b) for a, b in zip(records, two.records[name], strict=True))


def test_what_processes_share_comes_out_as_it_went_in(tmp_path):
    task = toy(network=MLP(3, 8, 2))
    methods = {"FedRep": fedlib.make("FedRep", task), "mine": Exploding(task, when=50)}
    how = {"cohort": lambda t: [t % 4, (t + 1) % 4]}
    common = matrix.Common(task, methods, 3, how)
    path = matrix.hand_over(common, tmp_path / "common")
    there = torch.load(path, mmap=True, weights_only=False)
    assert there.task is there.methods["FedRep"].task
    for name in methods:
        job = matrix.Job(name, 1, None)
        assert same(common.run(job), there.run(job))


def test_without_cloudpickle_what_has_a_name_is_sent(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    task = toy()
    made = {"FedAvg": fedlib.make("FedAvg", task)}
    path = matrix.hand_over(matrix.Common(task, made, 1, {}), tmp_path / "common")
    assert torch.load(path, weights_only=False).task.name == task.name
    unnamed = matrix.Common(task, made, 1, {"cohort": lambda t: [0]})
    with pytest.raises(ValueError, match="install cloudpickle, or give workers = 1"):
        matrix.hand_over(unnamed, tmp_path / "other")


def test_what_cannot_be_sent_is_named(tmp_path):
    lock = threading.Lock()
    with pytest.raises(ValueError, match="cannot be sent to another process"):
        fedlib.compare(
            ["FedAvg"], toy(), 1, 2, workers=2, cohort=lambda t: [0, lock.locked()]
        )


def test_another_process_is_waited_for(tmp_path):
    """Whoever finds a run locked takes the others first, then what that one wrote."""
    task = toy()
    fedlib.compare(["FedAvg"], task, 2, folder=tmp_path)
    taken = tmp_path / "FedProx" / "0"
    from fedlib.study import lock

    held, free = threading.Event(), threading.Event()

    def other():
        with lock.alone(taken):
            held.set()
            free.wait(20)
            engine.run(fedlib.make("FedProx", task), rounds=2, folder=taken)

    thread = threading.Thread(target=other)
    thread.start()
    held.wait(20)
    threading.Timer(0.5, free.set).start()
    got = fedlib.compare(["FedAvg", "FedProx"], task, 2, folder=tmp_path)
    thread.join()
    assert list(got.records) == ["FedAvg", "FedProx"]


# ---------------------------------------------------------------- what goes wrong
def test_a_method_that_fails_leaves_the_others(tmp_path):
    got = fedlib.compare(
        ["FedAvg", Mistaken(), Exploding()], toy(), 4, 2, folder=tmp_path
    )
    assert list(got.table.index) == list(got.records) == ["FedAvg"]
    assert "a mistake" in got.failed["Mistaken"] and "seed 0" in got.failed["Mistaken"]
    assert "lower lr" in got.failed["Exploding"]
    assert "Mistaken failed: seed 0" in repr(got) and "FedAvg" in repr(got)
    assert "Exploding failed" in got._repr_html_()
    again = fedlib.compare(["FedAvg", Exploding()], toy(), 4, 2, folder=tmp_path)
    assert again.failed == {"Exploding": got.failed["Exploding"]}


def test_nothing_but_failures_is_an_error():
    with pytest.raises(ValueError, match="no method has finished(.|\n)*a mistake"):
        fedlib.compare([Mistaken()], toy(), 3)


def test_ctrl_c_returns_what_is_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("ctrl-c").touch()
    told = dict(task=toy(), rounds=3, seeds=2, folder=tmp_path / "out")
    got = fedlib.compare(["FedAvg", Stopping(), "FedProx"], **told)
    assert got.stopped == "interrupted"
    assert list(got.records) == ["FedAvg"] and len(got.records["FedAvg"]) == 1
    assert got.missing == {"FedAvg": [1], "Stopping": [0, 1], "FedProx": [0, 1]}
    assert got.table.loc["FedAvg", "seeds"] == 1
    assert "not computed: FedAvg (seed 1), Stopping (seed 0, 1)" in repr(got)
    assert "the same call goes on from there" in repr(got)
    Path("ctrl-c").unlink()
    rest = fedlib.compare(["FedAvg", Stopping(), "FedProx"], **told)
    assert not rest.missing and "not computed" not in repr(rest)
    assert same(rest.records["FedAvg"][0], got.records["FedAvg"][0])


def test_ctrl_c_with_nothing_there():
    @dataclass(frozen=True)
    class AtOnce(FedAvg):
        def aggregate(self, server, up, r):
            raise KeyboardInterrupt

    got = fedlib.compare([AtOnce(), "FedAvg"], toy(), 2)
    assert got.records == {} and "no run has finished" in repr(got)
    assert "give folder= to keep" in repr(got) and len(got.table) == 0
    assert len(got.frame()) == 0
    with pytest.raises(ValueError, match="nothing has finished"):
        got.report("never.html")


@pytest.mark.full
def test_ctrl_c_ends_the_workers_at_once(tmp_path):
    """They would go on for minutes, and Python would wait for them."""
    task = toy((3000, 3000))
    began = []

    def press():
        while not (tmp_path / "FedAvg" / "0" / "done").exists():
            time.sleep(0.1)
        began.append(time.time())
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press, daemon=True).start()
    got = fedlib.compare(
        ["FedAvg", ("FedAvg", {"epochs": 100_000})], task, 1, workers=2, folder=tmp_path
    )
    assert time.time() - began[0] < 10 and got.stopped == "interrupted"
    assert "FedAvg" in got.records
    assert got.missing == {"FedAvg(epochs=100000)": [0]}


# ---------------------------------------------------------------- tuning
def test_hyper_parameters_are_chosen_on_validation_rows():
    task = toy()
    grid = {"FedProx": {"lr": [0.5, 1e-6, 1e-5]}}
    got = fedlib.compare(["FedAvg", "FedProx"], task, 4, 2, grid=grid, rule=last)
    score = {}
    for lr in grid["FedProx"]["lr"]:
        pilot = fedlib.run(fedlib.make("FedProx", task, lr=lr), rounds=4, seed=1000)
        score[lr] = pilot["pre", "global", "val"][-1].mean()
    best = max(score, key=score.get)
    assert got.tuned == {"FedProx": f"lr={best} (best of 3)"}
    assert got.table.loc["FedProx", "tuned"] == f"lr={best} (best of 3)"
    assert [r.meta["parameters"]["lr"] for r in got.records["FedProx"]] == [best] * 2
    assert [r.meta["seed"] for r in got.records["FedProx"]] == [0, 1]


def test_the_pilot_never_counts_and_is_kept(tmp_path):
    grid = {"FedProx": {"mu": [0.3, 0.2]}}
    told = dict(task=toy(), rounds=2, seeds=[1000, 1001], folder=tmp_path)
    got = fedlib.compare(["FedProx"], **told, grid=grid)
    assert [r.meta["seed"] for r in got.records["FedProx"]] == [1000, 1001]
    pilots = sorted(p.parent.parent.name for p in tmp_path.glob("*/1002/done"))
    assert pilots == ["FedProx(mu=0.2)", "FedProx(mu=0.3)"]


def test_every_method_has_the_same_budget():
    points, size = tune.configurations("A", {"a": range(5), "b": range(4)}, 6)
    assert len(points) == 6 and size == 20
    assert len({tuple(p.values()) for p in points}) == 6
    assert points == tune.configurations("A", {"a": range(5), "b": range(4)}, 6)[0]
    other, _ = tune.configurations("B", {"a": range(5), "b": range(4)}, 6)
    assert other != points
    got = fedlib.compare(
        ["FedProx"], toy(), 1, grid={"FedProx": {"mu": [0, 1, 2]}}, budget=2
    )
    assert "(best of 2, drawn from 3)" in got.tuned["FedProx"]


def test_a_grid_of_the_papers_own():
    method = fedlib.make("FedAvg-FT", toy())
    assert tune.usual_grid(method)["tune"] == [1, 5, 10]
    made = {"FedAvg": fedlib.make("FedAvg", toy()), "FT": method}
    assert list(tune.grids(True, made)) == ["FT"]
    inside = Tuned(inner=fedlib.make("FedGA", toy()))
    assert {"tune", "alpha"} <= tune.usual_grid(inside).keys()
    changed = matrix.altered(inside, {"alpha": 7})
    assert changed.inner.alpha == 7 and inside.inner.alpha != 7
    with pytest.raises(ValueError, match="no hyper-parameter 'alpah'"):
        matrix.altered(inside, {"alpah": 7})


def test_a_configuration_that_fails_is_not_chosen():
    grid = {"Exploding": {"when": [0, 50, 1]}}
    got = fedlib.compare(["FedAvg", Exploding()], toy(), 3, grid=grid)
    assert got.tuned == {"Exploding": "when=50 (best of 3, 2 failed)"}
    grid = {"Exploding": {"when": [0, 1]}}
    got = fedlib.compare(["FedAvg", Exploding()], toy(), 3, grid=grid)
    assert list(got.records) == ["FedAvg"]
    assert "no configuration could be tried" in got.failed["Exploding"]


# ---------------------------------------------------------------- client by client
@pytest.fixture(scope="module")
def three():
    return fedlib.compare(["FedAvg", "Ditto", "Local"], toy(), 3, 3, rule=last)


def test_paired_differences_are_those_of_the_same_seed(three):
    frame = three.paired(points=2)
    assert list(frame.method.unique()) == ["Ditto", "Local"]
    one = frame[(frame.method == "Local") & (frame.client == "clinic 2")].iloc[0]
    a, b = (
        [100 * r["pre", view, "test"][-1][2] for r in three.records[name]]
        for name, view in (("Local", "personal"), ("FedAvg", "global"))
    )
    view = three.seen("Local")
    a = [100 * r["pre", view, "test"][-1][2] for r in three.records["Local"]]
    i = interval(np.subtract(a, b))
    assert one.difference == pytest.approx(i.mean)
    assert one["± difference"] == pytest.approx(i.half)
    assert one.rows == three.records["Local"][0].meta["n"]["test"][2]
    side = "gain" if i.mean > 2 else "loss" if i.mean < -2 else "same"
    assert one.change == side
    counts = three.gains(points=2)
    assert list(counts.index) == ["Ditto", "Local"]
    assert (counts[["gain", "same", "loss"]].sum(axis=1) == 4).all()
    of = frame[frame.method == "Local"]
    assert counts.loc["Local", "gain"] == (of.difference > 2).sum()
    assert counts.loc["Local", "lowest"] == of.difference.min()


def test_a_point_is_a_point():
    """Accuracies are float32: 0.81 - 0.80 is a little more than 0.01 there."""

    def record(a):
        meta = {"seed": 0, "n": {"test": [100] * 2}, "owners": [], "clients": 2}
        a = np.array([a], np.float32)
        return fedlib.Record(meta, np.array([0]), {("pre", "global", "test"): a})

    made = {"FedAvg": [record([0.8, 0.8])], "B": [record([0.81, 0.78])]}
    frame = compare.Comparison(made, last).paired()
    assert list(frame.change) == ["same", "loss"]
    assert list(frame.difference) == [1.0, -2.0]


def test_the_tidy_frame_has_every_client_once(three, tmp_path):
    frame = three.frame()
    assert len(frame) == 3 * 3 * 4
    assert not frame.duplicated(["method", "seed", "client"]).any()
    assert (frame["round"] == 3).all()
    mean = frame[frame.method == "FedAvg"].groupby("seed").accuracy.mean()
    assert three.table.loc["FedAvg", "mean"] == pytest.approx(mean.mean(), abs=0.05)
    three.to_csv(tmp_path / "all.csv")
    import pandas as pd

    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "all.csv"), frame)


def test_ranked_puts_the_best_first(three):
    assert three.ranked()["worst 10 %"].is_monotonic_decreasing
    assert three.ranked("Gini")["Gini"].is_monotonic_increasing
    with pytest.raises(ValueError, match="did you mean 'Gini'"):
        three.ranked("gini")
    with pytest.raises(ValueError, match="did you mean 'Ditto'"):
        three.paired(against="Dito")
    with pytest.raises(ValueError, match="points = -1"):
        three.paired(points=-1)
    alone = fedlib.compare(["FedAvg"], toy(), 1)
    with pytest.raises(ValueError, match="only FedAvg has finished"):
        alone.paired()


# ---------------------------------------------------------------- how far
def test_the_time_left_counts_open_runs_by_method():
    jobs = [matrix.Job(n, s, None) for s in (0, 1) for n in ("quick", "slow", "new")]
    say = matrix.Progress(jobs, jobs, 2, False)
    assert say.words() == "time left unknown"

    def ended(i, seconds):
        record = fedlib.Record({"seconds": seconds})
        say.finished(jobs[i], record)

    ended(0, 10)
    ended(1, 100)
    # open: new, quick, slow, new = 55 + 10 + 100 + 55, by two
    assert say.left() == pytest.approx(110, abs=1) and say.words() == "about 2 min left"
    assert matrix.duration(3900) == "1 h 5 min" and matrix.duration(40) == "40 s"


def test_a_line_per_minute_without_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr(matrix, "MINUTE", 0.05)
    jobs = [matrix.Job("FedAvg", s, None) for s in range(4)]
    with matrix.Progress(jobs, jobs, 1, None) as say:
        say.finished(jobs[0], None)
        time.sleep(0.3)
    assert "compare: 1 of 4 runs done, time left unknown" in capsys.readouterr().err
    with matrix.Progress(jobs[:1], jobs[:1], 1, None, 2, jobs[1:]) as say:
        say.finished(jobs[0], fedlib.Record({"seconds": 10}))
        time.sleep(0.3)
    assert "compare: 3 of 6 runs done, about 30 s left" in capsys.readouterr().err
    with matrix.Progress(jobs, jobs, 1, False):
        time.sleep(0.2)
    assert capsys.readouterr().err == ""


def test_a_method_that_was_not_compared_is_named(three):
    with pytest.raises(ValueError, match=r"'Dito' is no .*; did you mean 'Ditto'\?"):
        three.accuracies("Dito")


@pytest.mark.parametrize("gives", [None, [], [4], [-5], [0.5], [True], [[0]], "last"])
def test_a_rule_gives_positions_of_evaluations(gives, three):
    """Else the table says what it gave, and where; the runs are kept."""
    other = replace(three, rule=lambda rec, view: gives)
    why = r"^rule <lambda> gives .* for \w+, seed 0: a rule gives positions"
    for ask in (str, lambda c: c.accuracies("FedAvg")):
        with pytest.raises(ValueError, match=why):
            ask(other)
    assert len(other.records["FedAvg"]) == 3


# ---------------------------------------------------------------- bad input
NO_VAL = toy(parts=(0.8, 0, 0.2))
BAD = [
    ([FedAvg], {}, "FedAvg is a class: give an object"),
    (FedAvg, {}, "give a list of methods"),
    (3, {}, "give a list of methods"),
    (np.array(2), {}, "give a list of methods"),
    ([3], {}, "3 is no method"),
    ([("FedAvg", 3)], {}, "is no method: give a name, a pair"),
    ([("FedAvg", {"lr": -1})], {}, "FedAvg.lr = -1 is outside"),
    ([("FedAvg", {"lrr": 1}), "FedGAA"], {}, "2 methods cannot run"),
    ([FedAvg(toy((9, 9)))], {}, "this object was made for the task"),
    (["FedAvg"], {"task": "digits"}, "give a fedlib.Task"),
    (["FedAvg"], {"task": None}, "give a fedlib.Task"),
    (["FedAvg"], {"seeds": -1}, "seeds = -1: give how many"),
    (["FedAvg"], {"seeds": True}, "seeds = True: give how many"),
    (["FedAvg"], {"seeds": 10**12}, "at most 10000"),
    (["FedAvg"], {"seeds": torch.tensor(1)}, "give how many, at least one seed"),
    (["FedAvg"], {"rounds": 10**12}, "rounds = 1000000000000: give a whole number"),
    (["FedAvg"], {"seeds": "3"}, "seeds = '3': give how many"),
    (["FedAvg"], {"seeds": 2.0}, "seeds = 2.0: give how many"),
    (["FedAvg"], {"seeds": []}, "at least one seed"),
    (["FedAvg"], {"seeds": [1, 1]}, "holds 1 twice"),
    (["FedAvg"], {"seeds": [0, -1]}, "a seed = -1: give a whole number >= 0"),
    (["FedAvg"], {"seeds": [0.5]}, "a seed = 0.5"),
    (["FedAvg"], {"seeds": [True]}, "a seed = True"),
    (["FedAvg"], {"rounds": 0, "rule": best_val}, "rounds = 0: give a whole number"),
    (["FedAvg"], {"rounds": "5"}, "rounds = '5'"),
    (["FedAvg"], {"rounds": 2.5}, "rounds = 2.5"),
    (["FedAvg"], {"rule": "last"}, "rule = 'last': give a function"),
    (["FedAvg"], {"rule": "lasst"}, "did you mean 'last'"),
    (["FedAvg"], {"rule": fedlib.Task}, "a rule takes a record and a view"),
    (["FedAvg"], {"rule": lambda: [0]}, "a rule takes a record and a view"),
    (["FedAvg"], {"rule": best_val, "task": NO_VAL}, "rule = best_val chooses on"),
    (["FedAvg", "Ditto"], {"view": "personal"}, "FedAvg has global"),
    (["FedAvg"], {"view": "globl"}, "view = 'globl'"),
    (["FedAvg"], {"view": np.array([1, 2])}, "give the name of one"),
    (["FedAvg"], {"grid": True}, "none of FedAvg declares values"),
    (["FedAvg"], {"grid": {}}, "give True, or the values"),
    (["FedAvg"], {"grid": 3}, "give True, or the values"),
    (["FedAvg"], {"grid": {"FedAvgg": {"lr": [1]}}}, "did you mean 'FedAvg'"),
    (["FedAvg"], {"grid": {"FedAvg": {"lr": 0.1}}}, "FedAvg.lr = 0.1: give a list"),
    (["FedAvg"], {"grid": {"FedAvg": {"lr": "abc"}}}, "FedAvg.lr = 'abc'"),
    (["FedAvg"], {"grid": {"FedAvg": {"lr": []}}}, "give a list of at least one"),
    (["FedAvg"], {"grid": {"FedAvg": {"lr": [1, -1]}}}, "lr=-1: FedAvg.lr = -1 is out"),
    (["FedAvg"], {"grid": {"FedAvg": {"rl": [1]}}}, "no hyper-parameter 'rl'"),
    (["FedAvg"], {"grid": {"FedAvg": []}}, "give values by hyper-parameter"),
    (["FedGA"], {"grid": True, "task": NO_VAL}, "grid chooses on validation rows"),
    (["FedGA"], {"grid": True, "splits": ("test",)}, "add 'val'"),
    (["FedAvg"], {"splits": ("val",)}, "needs 'test'"),
    (["FedAvg"], {"budget": 0}, "budget = 0"),
    (["FedAvg"], {"workers": 0}, "workers = 0"),
    (["FedAvg"], {"workers": 1.5}, "workers = 1.5"),
    (["FedAvg"], {"workers": True}, "workers = True"),
    (["FedAvg"], {"folder": 3}, "folder = 3: give the path"),
    (["FedAvg"], {"folder": "\0"}, "give the path of a folder"),
    (["FedAvg"], {"folder": ""}, "folder = '': give the path"),
    (["FedAvg"], {"chort": 2}, "did you mean 'cohort'"),
    (["FedAvg"], {"worker": 2}, "did you mean 'workers'"),
    (["FedAvg"], {"seed": 2}, "give `seeds`"),
    (["FedAvg"], {"upto": 2}, "compare has no 'upto'"),
    (["FedAvg"], {"cohort": 0}, "cohort = 0"),
    (["FedAvg"], {"every": 0}, "every = 0"),
    (["FedAvg"], {"how": "fast"}, "how = 'fast'"),
]


@pytest.mark.parametrize("methods, more, words", BAD, ids=[words for *_, words in BAD])
def test_bad_input_is_named(methods, more, words, tmp_path):
    told = dict(task=toy(), rounds=1, folder=tmp_path) | more
    with pytest.raises(ValueError) as e:
        fedlib.compare(methods, **told)
    assert words in str(e.value)
    assert not list(tmp_path.iterdir())  # and nothing was computed


def test_a_folder_that_is_none(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="is a file"):
        fedlib.compare(["FedAvg"], toy(), 1, folder=tmp_path / "file")
    (tmp_path / "comparison.json").write_text("{")
    with pytest.raises(ValueError, match="cannot be read"):
        fedlib.compare(["FedAvg"], toy(), 1, folder=tmp_path)


def test_numbers_of_numpy_are_numbers():
    got = fedlib.compare(
        ["FedAvg"], toy(), np.int64(2), np.array([3, 5]), workers=np.int64(1)
    )
    assert [r.meta["seed"] for r in got.records["FedAvg"]] == [3, 5]
    assert asked.seeds(np.int64(2)) == [0, 1] == asked.seeds(range(2))


def test_long_runs_are_scored_a_hundred_times():
    got = fedlib.compare(["FedAvg"], toy((9, 9)), 250)
    assert got.records["FedAvg"][0].meta["every"] == 3
    assert len(got.records["FedAvg"][0].rounds) <= compare.EVALUATIONS
    short = fedlib.compare(["FedAvg"], toy((9, 9)), 100)
    assert short.records["FedAvg"][0].meta["every"] == 1


@pytest.mark.parametrize(
    "values, said",
    [
        ([0.5], "one seed gives no interval"),
        ([0.1, 0.9], "intervals over 2 seeds reach ±508 points"),
        ([0.5, 0.5, 0.5], None),
    ],
)
def test_too_few_seeds_are_said_beside_the_table(values, said):
    def one(v):
        views = {("pre", "global", "test"): np.full((1, 3), v)}
        n = {"test": [9, 9, 9]}
        meta = {"method": "FedAvg", "n": n, "owners": [], "clients": 3}
        return fedlib.Record(meta, np.arange(1), views)

    result = compare.Comparison({"FedAvg": [one(v) for v in values]}, last)
    assert (said in repr(result)) if said else not result.cautions()
