"""The round, the checkpoint, and what happens when something goes wrong."""

import hashlib
import io
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from toys_core import Noisy, Normed, bowls, gap, same, seen, state, toy
from where import ROOT

from fedlib.core import checkpoint, engine
from fedlib.core.batches import draw
from fedlib.core.clients import cohort_of
from fedlib.core.errors import ClientError, Diverged
from fedlib.core.method import Wrap
from fedlib.core.random import seed_of, tag
from fedlib.core.record import Record
from fedlib.core.tree import leaves, normalize, pick
from fedlib.methods import METHODS
from fedlib.methods.base.fedavg import FedAvg
from fedlib.methods.make import make
from fedlib.nets import MLP

HERE = Path(__file__).parent


def run(*args, **more):
    """On the CPU unless a test says otherwise."""
    return engine.run(*args, **({"device": "cpu"} | more))


def noisy():
    return Noisy(toy(), lr=0.2, momentum=0.5)


# ---------------------------------------------------------------- one round, by hand
def test_one_round_by_hand():
    """On bowls w_i = b_i + (1 - lr)^epochs (w - b_i),
    and the server takes the mean with weights n_i / n.
    """
    b, n = [[0.0, 1.0], [4.0, -2.0], [2.0, 2.0]], [1, 3, 4]
    task, lr, epochs = bowls(b, n), 0.25, 2
    rec = run(FedAvg(task, lr=lr, epochs=epochs), rounds=1, seed=3)
    w, q = task.init(3)["u"], (1 - lr) ** epochs
    p = normalize(torch.tensor(n, dtype=torch.float64))
    want = sum(
        pi * (bi + q * (w - bi))
        for pi, bi in zip(p, torch.tensor(b, dtype=torch.float64))
    )
    assert gap([rec.state["server"]["w"]["u"]], [want]) < 1e-14
    assert np.allclose(rec.logs["weight"], [p.numpy()]) and rec.logs[
        "cohort"
    ].tolist() == [[0, 1, 2]]


@pytest.mark.parametrize("how", ["loop", "vmap"])
def test_batches_per_round_by_hand(how):
    """So many steps at every client, however many rows it has; 0 batches: passes."""
    b, n = [[0.0, 1.0], [4.0, -2.0], [2.0, 2.0]], [1, 3, 4]
    task, lr = replace(bowls(b, n), batch=2), 0.25
    b, p, w = (
        torch.tensor(b, dtype=torch.float64),
        normalize(torch.tensor(n, dtype=torch.float64)),
        task.init(3)["u"],
    )
    for kw, steps in (
        ({"batches": 5}, [5, 5, 5]),
        ({"batches": 1, "epochs": 7}, [1, 1, 1]),
        ({"epochs": 2}, [2, 4, 4]),
        ({"batches": 3, "last": "drop"}, [3, 3, 3]),
        ({"epochs": 2, "last": "drop"}, [2, 2, 4]),
    ):
        rec = run(FedAvg(task, lr=lr, **kw), rounds=1, seed=3, how=how)
        want = sum(
            pi * (bi + (1 - lr) ** k * (w - bi)) for pi, bi, k in zip(p, b, steps)
        )
        assert gap([rec.state["server"]["w"]["u"]], [want]) < 1e-14, kw


@pytest.mark.parametrize("network", [None, Normed(5, 6, 3)])
def test_a_client_whose_batches_are_all_empty_keeps_the_model(network):
    """Poisson batches of one row each: now and then nobody joins,
    and the client sends back what it got.
    """
    task = toy(network, batch=1)
    m = FedAvg(task, batches=1, poisson=True)
    lens = [
        len(
            draw(task.train[0], m.plans()["train"], seed_of(7, t, 0, tag("train")), 1)[
                1
            ]
        )
        for t in range(12)
    ]
    assert set(lens) == {0, 1}
    w = [
        run(m, rounds=12, seed=7, cohort=lambda t: [0], upto=t).state["server"]["w"]
        for t in range(13)
    ]
    assert [int(not same(a, b)) for a, b in zip(w, w[1:])] == lens
    a, b = (run(m, rounds=12, seed=7, how=how) for how in ("loop", "vmap"))
    assert gap(state(a), state(b)) < 1e-9 and gap(seen(a), seen(b)) < 1e-9


def test_everybody_is_scored_also_the_absent():
    task = toy()
    rec = run(FedAvg(task), rounds=3, seed=0, cohort=2, every=2)
    assert rec.rounds.tolist() == [0, 2, 3] and rec.logs["cohort"].shape == (3, 2)
    assert (
        rec["pre", "global", "test"].shape
        == rec["pre", "global", "val"].shape
        == (3, task.C)
    )
    model = task.net(rec.state["server"]["w"])
    for c in range(task.C):
        for split, rows in (("test", task.test[c]), ("val", task.val[c])):
            right = (model(task.x[rows]).argmax(1) == task.y[rows]).double().mean()
            assert rec["pre", "global", split][-1, c] == pytest.approx(
                float(right), abs=1e-15
            )


def test_training_rows_can_be_scored_and_empty_splits_have_no_score():
    task = toy()
    none = torch.zeros(0, dtype=torch.long)
    task = replace(task, val=(none, *task.val[1:]))
    rec = run(FedAvg(task), rounds=1, splits=("test", "val", "all"))
    assert {s for _, _, s in rec.views} == {"test", "val", "all"}
    assert (
        np.isnan(rec["pre", "global", "val"][:, 0]).all()
        and np.isfinite(rec["pre", "global", "val"][:, 1:]).all()
    )
    model = task.net(rec.state["server"]["w"])
    right = (
        (model(task.x[task.train[3]]).argmax(1) == task.y[task.train[3]])
        .double()
        .mean()
    )
    assert rec["pre", "global", "all"][-1, 3] == pytest.approx(float(right), abs=1e-15)


def test_no_rounds_score_the_start():
    task = toy()
    rec = run(FedAvg(task), rounds=0, seed=5)
    assert rec.rounds.tolist() == [0] and same(rec.state["server"]["w"], task.init(5))


# ---------------------------------------------------------------- who takes part
def test_cohorts():
    task = toy()
    m = FedAvg(task)
    drawn = [cohort_of(m, task, 1, t, 3).tolist() for t in range(200)]
    assert all(len(set(c)) == 3 and c == sorted(c) for c in drawn)
    assert (
        drawn == [cohort_of(m, task, 1, t, 3).tolist() for t in range(200)]
        and len(set(map(tuple, drawn))) > 15
    )
    assert drawn != [cohort_of(m, task, 2, t, 3).tolist() for t in range(200)]
    share_ = np.bincount(np.concatenate(drawn), minlength=6) / 200
    assert np.abs(share_ - 0.5).max() < 4 * np.sqrt(0.25 / 200)
    assert cohort_of(m, task, 1, 0, None).tolist() == list(range(6))


def test_a_cohort_may_be_a_function_of_the_round():
    rec = run(
        FedAvg(toy()),
        rounds=3,
        cohort=lambda t: [[0], [5, 1], [2, 3, 4]][t] if t < 3 else [0],
    )
    assert (
        rec.logs["cohort"].tolist() == [[0, -1, -1], [5, 1, -1], [2, 3, 4]]
        and rec.meta["cohort"] == "given"
    )
    assert np.isnan(rec.logs["weight"][0, 1:]).all() and rec.logs["weight"][0, 0] == 1


@pytest.mark.parametrize(
    "given", [0, None, [0.5], [True, False], [[0]], [6], [-1], [1, 1], [2**70], "ab"]
)
def test_a_function_of_cohorts_gives_numbers_of_clients(given):
    why = r"^cohort\(0\) = .*: give a list of different client numbers from 0 to 5$"
    with pytest.raises(ValueError, match=why):
        run(FedAvg(toy()), rounds=1, cohort=lambda t: given)


def test_who_all_overrules_the_cohort():
    @dataclass(frozen=True)
    class All(FedAvg):
        who = "all"

    rec = run(All(toy()), rounds=2, cohort=2)
    assert rec.logs["cohort"].tolist() == [list(range(6))] * 2


def test_download_all_reaches_the_absent():
    @dataclass(frozen=True)
    class Counting(FedAvg):
        def client(self, w, shard):
            return {"heard": shard.n * 0}

        def receive(self, down, mine, shard):
            return {"heard": mine["heard"] + 1}

    @dataclass(frozen=True)
    class CountingAll(Counting):
        download = "all"

    task = toy()
    few, everybody = (
        run(c(task), rounds=4, seed=1, cohort=2) for c in (Counting, CountingAll)
    )
    want = np.bincount(few.logs["cohort"].flatten(), minlength=6)
    # the last look at round 4 leaves no trace
    assert few.state["clients"]["heard"].tolist() == want.tolist()
    assert everybody.state["clients"]["heard"].tolist() == [4] * 6


def test_same_seed_same_bits_other_seed_other_run():
    a, b, c = (run(noisy(), rounds=3, seed=s, cohort=3) for s in (1, 1, 2))
    assert (
        same(state(a), state(b))
        and same(seen(a), seen(b))
        and gap(state(a), state(c)) > 0
    )


# -------------------------------------------------------------- logs, microscope, bytes
def test_a_log_that_begins_late_keeps_its_round():
    rec = run(noisy(), rounds=5, cohort=3)
    assert rec.logs["met"].shape == (5, 3) and rec.logs["late"].shape == (5,)
    assert np.isnan(rec.logs["late"]).tolist() == [True, True, False, False, False]
    assert np.allclose(rec.logs["late"][2:], rec.logs["met"][2:].mean(1))


def test_a_wrapper_passes_the_log_on_once():
    plain, wrapped = (
        run(noisy(), rounds=5, cohort=3),
        run(Wrap(toy(), inner=noisy()), rounds=5, cohort=3),
    )
    assert (
        wrapped.logs.keys() == plain.logs.keys()
        and "log" not in wrapped.state["server"]["in"]
    )
    assert all(
        np.array_equal(wrapped.logs[k], plain.logs[k], equal_nan=True)
        for k in plain.logs
    )
    assert same(wrapped.state["server"]["in"], plain.state["server"])


def test_microscope():
    """Drift, conflict and update scale of three clients on bowls,
    where updates are known.
    """
    b = [[1.0, 0.0], [-1.0, 0.0], [0.0, 3.0]]
    task = bowls(b)
    task = replace(
        task,
        network=type(
            "Origin",
            (type(task.network),),
            {
                "init": lambda self, seed, dtype: {
                    k: torch.zeros(2, dtype=dtype) for k in "uv"
                }
            },
        )(2),
    )
    rec = run(FedAvg(task, lr=0.5), rounds=1, microscope=True)
    assert np.allclose(rec.logs["drift"], [[0.5 * 2**0.5, 0.5 * 2**0.5, 1.5 * 2**0.5]])
    assert np.allclose(rec.logs["conflict"], [[0.5, 0.5, 0]])
    assert np.allclose(
        rec.logs["update_scale"],
        [np.mean([0, 0.5, 0, 0.5]) ** 2 + np.var([0, 0.5, 0, 0.5])],
    )


def test_questions_are_counted_by_name():
    rec = run(noisy(), rounds=2, cohort=3)
    assert rec.meta["bytes"]["ask"] == {
        "how_often.zero": {"shape": [], "values": 1, "bytes": 8}
    }
    assert rec.meta["bytes"]["answer"] == {
        "how_often.met": {"shape": [], "values": 1, "bytes": 8}
    }
    P = sum(v.numel() for v in toy().init(0).values())
    assert (
        rec.meta["bytes"]["down"]["w"]["values"] == P
        and rec.meta["bytes"]["up"]["n"]["shape"] == []
    )


# ---------------------------------------------------------------- batch norm
def test_running_statistics_are_averaged_with_the_same_weights(monkeypatch):
    task = toy(Normed(5, 6, 3))
    kept, honest = {}, FedAvg.aggregate

    def spy(self, server, up, r):
        kept.update(up)
        return honest(self, server, up, r)

    monkeypatch.setattr(FedAvg, "aggregate", spy)
    rec = run(FedAvg(task, momentum=0.9), rounds=1, cohort=3)
    p = normalize(kept["n"])
    for k in task.buffers:
        assert (
            gap([rec.state["server"]["w"][k]], [torch.tensordot(p, kept["w"][k], 1)])
            < 1e-15
        )
        assert gap([kept["w"][k][0]], [kept["w"][k][1]]) > 0
    assert (kept["w"]["bn.running_var"] > 0).all()


# ------------------------------------------------------------ killed, damaged, finished
CHILD = """
import sys; sys.path[:0] = {tests!r}
import torch; torch.set_num_threads(1)
from test_engine import noisy
from test_engine import run
print("ready", flush=True)
run(noisy(), rounds={rounds}, seed=4, cohort=3, folder={folder!r}, checkpoint_every=0)
"""


@pytest.mark.full
def test_killed_at_any_moment_it_continues_to_the_same_bits(tmp_path):
    """kill -9 again and again at random moments; what is left is always whole,
    and the end is the same.
    """
    rounds, folder, cuts, chance = (
        150,
        tmp_path / "run",
        set(),
        random.Random(os.urandom(8)),
    )
    whole = run(noisy(), rounds=rounds, seed=4, cohort=3)
    for _ in range(2):
        code = CHILD.format(
            tests=[str(HERE), str(ROOT / "tests"), str(ROOT)],
            rounds=rounds,
            folder=str(folder),
        )
        child = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=ROOT
        )
        assert child.stdout.readline() == b"ready\n"
        before = (
            checkpoint.restore(folder / "checkpoint", "cpu", blank(rounds))[0]["t"]
            if (folder / "checkpoint").exists()
            else 0
        )
        limit = time.time() + 60
        # wait for one new checkpoint, then a random moment
        while time.time() < limit and child.poll() is None:
            if (folder / "checkpoint").exists():
                if (
                    checkpoint.restore(folder / "checkpoint", "cpu", blank(rounds))[0][
                        "t"
                    ]
                    > before
                ):
                    break
        time.sleep(chance.random() * 0.2)
        child.send_signal(signal.SIGKILL)
        child.wait()
        if (folder / "done").exists():  # it was faster than we
            break
        cuts.add(
            checkpoint.restore(folder / "checkpoint", "cpu", blank(rounds))[0]["t"]
        )
    assert cuts and max(cuts) <= rounds, "no child was caught in the middle"
    rest = run(noisy(), rounds=rounds, seed=4, cohort=3, folder=folder)
    assert same(seen(rest), seen(whole)), f"killed at rounds {sorted(cuts)}"
    if rest.state is not None:
        assert same(state(rest), state(whole)), f"killed at rounds {sorted(cuts)}"
    assert (folder / "done").exists() and not (folder / "checkpoint").exists()


def blank(rounds=5, method=None, seed=4, cohort=3):
    method = method or noisy()
    return Record.new(method, method.task, rounds, seed, cohort, 1, "loop")


def half_done(folder):
    return run(noisy(), rounds=5, seed=4, cohort=3, folder=folder, upto=2)


@pytest.mark.parametrize("damage", ["truncated", "changed", "empty", "no checksum"])
def test_a_damaged_checkpoint_is_refused_and_kept(damage, tmp_path):
    half_done(tmp_path)
    path = tmp_path / "checkpoint"
    good = path.read_bytes()
    bad = {
        "truncated": good[:-100],
        "empty": b"",
        "no checksum": good.partition(b"\n")[2],
        "changed": good[:-500] + bytes([good[-500] ^ 1]) + good[-499:],
    }[damage]
    path.write_bytes(bad)
    with pytest.raises(ValueError) as e:
        run(noisy(), rounds=5, seed=4, cohort=3, folder=tmp_path)
    assert str(e.value) == (
        f"checkpoint {path} is damaged (its checksum does not fit); delete it to start "
        "this run again"
    )
    assert path.read_bytes() == bad and [p.name for p in tmp_path.iterdir()] == [
        "checkpoint"
    ]
    path.write_bytes(good)  # nothing was lost
    whole = run(noisy(), rounds=5, seed=4, cohort=3)
    assert same(
        state(run(noisy(), rounds=5, seed=4, cohort=3, folder=tmp_path)), state(whole)
    )


class Evil:
    def __reduce__(self):
        return print, ("this must never be printed",)


def test_a_checkpoint_runs_no_code(tmp_path, capsys):
    """A file whose checksum fits, but which holds a program instead of tensors."""
    buf = io.BytesIO()
    torch.save({"state": Evil(), "record": {}}, buf)
    (tmp_path / "checkpoint").write_bytes(
        hashlib.sha256(buf.getvalue()).hexdigest().encode() + b"\n" + buf.getvalue()
    )
    with pytest.raises(ValueError, match="damaged .* more than tensors"):
        run(noisy(), rounds=5, seed=4, cohort=3, folder=tmp_path)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 5},
        {"rounds": 1},
        {"cohort": 2},
        {"every": 2},
        {"method": "Uniform"},
        {"lr": 0.3},
    ],
)
def test_another_runs_folder_is_refused(change, tmp_path):
    usual = {"rounds": 2, "seed": 4, "cohort": 3, "every": 1}
    run(FedAvg(toy(), lr=0.2), **usual, folder=tmp_path / "done")
    run(FedAvg(toy(), lr=0.2), **usual, folder=tmp_path / "half", upto=1)
    other = METHODS[change.pop("method", "FedAvg")](toy(), lr=change.pop("lr", 0.2))
    for folder in ("done", "half"):
        with pytest.raises(
            ValueError, match="belongs to another run: .* give each run its own folder"
        ):
            run(other, **(usual | change), folder=tmp_path / folder)


def test_a_finished_run_is_not_computed_again(tmp_path, monkeypatch):
    first = run(noisy(), rounds=3, seed=4, cohort=3, folder=tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "done",
        "record.json",
        "record.npz",
        "state",
    ]
    monkeypatch.setattr(Noisy, "local", None)  # would fail if it were called
    again = run(noisy(), rounds=3, seed=4, cohort=3, folder=tmp_path)
    assert (
        same(seen(first), seen(again))
        and again.meta == first.meta
        and again.state is None
    )


@pytest.mark.parametrize("stops", [(0, 1, 3), (3,), (4,), (2, 9)])
def test_stopped_anywhere_even_at_the_end(stops, tmp_path):
    """upto stops before a round; one that lies beyond the end stops nothing."""
    whole = run(noisy(), rounds=3, seed=4, cohort=3)
    for upto in stops:
        part = run(noisy(), rounds=3, seed=4, cohort=3, folder=tmp_path, upto=upto)
        assert (
            part.meta.get("unfinished", False)
            == (upto <= 3)
            == (not (tmp_path / "done").exists())
        )
    assert same(
        seen(run(noisy(), rounds=3, seed=4, cohort=3, folder=tmp_path)), seen(whole)
    )


def test_without_the_mark_a_run_is_not_done(tmp_path):
    first = run(noisy(), rounds=3, seed=4, cohort=3, folder=tmp_path)
    (tmp_path / "done").unlink()  # as if killed just before the mark
    again = run(noisy(), rounds=3, seed=4, cohort=3, folder=tmp_path)
    assert (
        again.state is not None
        and same(seen(first), seen(again))
        and (tmp_path / "done").exists()
    )


def test_a_record_comes_back_as_it_was(tmp_path):
    first = run(noisy(), rounds=3, cohort=3, guests=True, microscope=True)
    first.save(tmp_path)
    again = Record.load(tmp_path)
    assert same(seen(first), seen(again)) and again.meta == first.meta
    assert (
        again.views.keys() == first.views.keys()
        and again.logs.keys() == first.logs.keys()
    )


# ------------------------------------------------------- something is wrong at a client
@pytest.mark.parametrize("how", ["loop", "vmap"])
def test_divergence_names_client_and_round_and_keeps_the_record(how, tmp_path):
    """lr = 1e6: the run stops, says where, and what happened before is on disk.

    A second call says the same.
    """
    m = FedAvg(toy(dtype=torch.float32), lr=1e6, epochs=3)
    for _ in range(2):
        with pytest.raises(
            Diverged, match=r"client \d, round \d, local: .* not finite; lower lr"
        ) as e:
            run(m, rounds=20, seed=4, cohort=3, folder=tmp_path, how=how)
        kept = Record.load(tmp_path)
        assert kept.meta["diverged"] == {
            "client": e.value.client,
            "round": e.value.round,
        }
        assert kept.rounds.tolist() == list(range(e.value.round + 1)) and same(
            seen(kept), seen(e.value.record)
        )
        assert e.value.client in cohort_of(m, m.task, 4, e.value.round, 3)
        assert not (tmp_path / "checkpoint").exists()


def test_a_personal_model_that_diverges_is_noticed_too():
    """Ditto's shared model is fine, the personal one explodes:
    lr (lam + curvature) > 2.
    """
    task = bowls([[1.0, 2.0], [3.0, 4.0]])
    with pytest.raises(Diverged, match=r"client 0, round \d+, local"):
        run(METHODS["Ditto"](task, lr=0.5, lam=1e9), rounds=60, every=60)
    assert (
        run(METHODS["Ditto"](task, lr=0.5, lam=1.0), rounds=60, every=60)
        .state["clients"]["v"]["u"]
        .isfinite()
        .all()
    )


@dataclass(frozen=True)
class Broken(FedAvg):
    """Fails at one stage, for client 3 in round 1 (client and server stages:
    whenever they are called).
    """

    stage: str = "local"

    def at(self, stage, shard):
        if (
            stage == self.stage
            and shard.cid == 3
            and (shard.t >= 1 or stage in ("client", "ask"))
        ):
            raise KeyError("lost")

    def client(self, w, shard):
        self.at("client", shard)
        return {"k": shard.n}

    def receive(self, down, mine, shard):
        self.at("receive", shard)
        return mine

    def local(self, down, mine, shard):
        self.at("local", shard)
        return super().local(down, mine, shard)

    def views(self, down, mine, shard):
        self.at("views", shard)
        return super().views(down, mine, shard)

    def question(self, q, mine, shard):
        self.at("ask", shard)
        return {"n": shard.n}

    def server(self, w, r):
        r.ask(self.question)
        return super().server(w, r)


@pytest.mark.parametrize(
    "stage, t",
    [("client", -1), ("receive", 1), ("local", 1), ("views", 1), ("ask", -1)],
)
def test_an_exception_names_client_round_and_stage(stage, t):
    with pytest.raises(ClientError) as e:
        run(Broken(toy(), stage=stage), rounds=3)
    assert str(e.value) == f"client 3, round {t}, {stage}: KeyError: 'lost'"
    assert (e.value.client, e.value.round, e.value.stage) == (
        3,
        t,
        stage,
    ) and isinstance(e.value.__cause__, KeyError)


def test_an_exception_of_all_at_once_names_round_and_stage():
    @dataclass(frozen=True)
    class Odd(FedAvg):
        def local(self, down, mine, shard):
            raise RuntimeError("no")

    with pytest.raises(
        ClientError, match=r"how='loop' says which\), round 0, local: RuntimeError: no"
    ):
        run(Odd(toy()), rounds=1, how="vmap")


def test_what_was_before_an_exception_is_kept(tmp_path):
    with pytest.raises(ClientError):
        run(Broken(toy()), rounds=3, folder=tmp_path, checkpoint_every=0)
    state_, rec = checkpoint.restore(
        tmp_path / "checkpoint", "cpu", blank(3, Broken(toy()), 0, None)
    )
    assert state_["t"] == 1 and rec.rounds == [0]


# ---------------------------------------------------------------- where it runs
def test_the_cpu_is_chosen_where_there_is_no_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    rec = engine.run(FedAvg(toy()), rounds=1)
    assert rec.meta["device"].startswith("cpu") and rec.meta["how"] == "auto"
    assert all(x.device.type == "cpu" for x in leaves(rec.state["server"]))


def test_both_ways_on_every_device(device):
    """A debug run (one after another) on a device gives what clients at
    once give there.
    """
    a, b = (
        run(noisy(), rounds=3, cohort=3, how=how, device=device)
        for how in ("loop", "vmap")
    )
    assert gap(state(a), state(b)) < 1e-9 and gap(seen(a), seen(b)) < 1e-9


@pytest.mark.parametrize(
    "network", [None, Normed(5, 6, 3)], ids=["plain", "batch norm"]
)
def test_threads_change_no_bit(network):
    task = toy(network) if network else toy()
    one, three = (
        run(make("Ditto", task, lr=0.2), rounds=3, cohort=4, threads=n, how="loop")
        for n in (1, 3)
    )
    assert all(same(one.state[k], three.state[k]) for k in ("server", "clients"))
    assert all(
        np.array_equal(one.views[k], three.views[k], equal_nan=True) for k in one.views
    )


def test_in_threads_an_exception_names_its_client():
    task = toy()

    class Breaks(FedAvg):
        def local(self, down, mine, shard):
            if int(shard.cid) == 2:
                raise RuntimeError("disk full")
            return super().local(down, mine, shard)

    with pytest.raises(
        ClientError, match="client 2, round 0, local: RuntimeError: disk full"
    ):
        run(Breaks(task, lr=0.2), rounds=2, threads=3)


@pytest.mark.parametrize(
    "more", [{"threads": 0}, {"threads": 1.5}, {"threads": 2, "how": "vmap"}]
)
def test_threads_that_make_no_sense(more):
    with pytest.raises(ValueError, match=f"threads = {more['threads']}"):
        run(FedAvg(toy()), rounds=1, **more)


@pytest.mark.parametrize("how", ["loop", "vmap"])
@pytest.mark.parametrize(
    "network", [MLP(5, 8, 3), Normed(5, 6, 3)], ids=["plain", "group norm"]
)
def test_bf16_is_asked_for_and_said(network, how):
    """Weights stay in the task's type and near those of float32; a record in one
    precision is not taken for the other's.
    """
    task = replace(toy(network), x=toy(network).x.float())
    full, half = (
        run(FedAvg(task, lr=0.2), rounds=2, how=how, precision=p)
        for p in ("float32", "bf16")
    )
    w, v = full.state["server"]["w"], half.state["server"]["w"]
    assert all(x.dtype == torch.float32 for x in leaves(v)) and 1e-6 < gap(w, v) < 0.05
    assert (full.meta["precision"], half.meta["precision"]) == ("float32", "bf16")
    with pytest.raises(ValueError, match='precision is "float32" there, "bf16" here'):
        checkpoint.same_run(full, half, "there")


@pytest.mark.parametrize(
    "precision, why",
    [
        ("fp16", "give 'float32', 'tf32' or 'bf16'"),
        ("tf32", "tensor cores are a GPU's"),
    ],
)
def test_a_precision_that_is_not_there(precision, why):
    with pytest.raises(ValueError, match=why):
        run(FedAvg(toy()), rounds=1, precision=precision)


def test_the_task_given_last_is_the_one_used():
    """A method made on one task may be run on another, wrappers included."""
    one, two = toy(), toy(sizes=(5, 6, 7))
    inner = make("FedAvg", one, lr=0.2)
    a = run(Wrap(one, inner=inner), two, rounds=2)
    assert a.meta["clients"] == 3 and same(
        a.state["server"]["in"],
        run(make("FedAvg", two, lr=0.2), rounds=2).state["server"],
    )


def test_progress_is_quiet_unless_asked(capsys):
    run(FedAvg(toy()), rounds=2)
    assert capsys.readouterr().err == ""
    run(FedAvg(toy()), rounds=2, progress=True)
    err = capsys.readouterr().err
    assert "FedAvg" in err and "2/2" in err and "global 0." in err


def test_state_rows_stay_where_they_are():
    """C models are held once: training writes rows in place, and what a method keeps of
    the old row is the old row.
    """

    @dataclass(frozen=True)
    class Keeper(FedAvg):
        def client(self, w, shard):
            return {"now": w, "before": w}

        def local(self, down, mine, shard):
            _, up = super().local(down, mine, shard)
            return {"now": up["w"], "before": mine["now"]}, up

    task = toy()
    one, two = (run(Keeper(task), rounds=t, cohort=lambda t: [2]) for t in (1, 2))
    assert same(
        pick(two.state["clients"]["before"], 2), pick(one.state["clients"]["now"], 2)
    )
    assert same(pick(two.state["clients"]["now"], 0), task.init(0))
