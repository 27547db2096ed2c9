"""Growth curves and the GPU script: fits, blocks, stacked seeds and variants are what
they say. Nothing is timed here.
"""

import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
import torch
from where import ROOT

sys.path.insert(0, str(ROOT))

from benchmarks.gpu import __main__ as gpu  # noqa: E402
from benchmarks.gpu import checks, engine, floor  # noqa: E402
from benchmarks.gpu.graph import WARM, eager  # noqa: E402
from benchmarks.gpu.hand import Hand, widths  # noqa: E402
from benchmarks.gpu.measure import compared, measure, rule  # noqa: E402
from benchmarks.gpu.setups import padded, setup  # noqa: E402
from benchmarks.gpu.step import Cohort, Single, options  # noqa: E402
from benchmarks.gpu.variants import Variant, own, stacked  # noqa: E402
from benchmarks.growth import __main__ as growth  # noqa: E402
from benchmarks.growth import figure, fits, needed, points, seeds  # noqa: E402
from benchmarks.growth.ask import Asked  # noqa: E402
from benchmarks.growth.fit import Curve, curve  # noqa: E402
from fedlib.core.clients import cohort_of  # noqa: E402
from fedlib.nets import layers
from repro import facts  # noqa: E402

CPU = torch.device("cpu")
linux = pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="reads Linux's /proc"
)


def line(axis, method, measure, xs, f, mib=None, noise=(1.0, 1.1), clients=10):
    """Rows of a growth table: y = f(x) times the noise of each repetition."""
    out = []
    for x in xs:
        v = [f(x) * k for k in noise]
        out.append(
            {
                "axis": axis,
                "method": method,
                "measure": measure,
                "x": x,
                "clients": clients,
                "repetitions": len(v),
                "median": v[0],
                "low": min(v),
                "high": max(v),
                "mib": mib and mib(x),
                "each": " ".join(map(repr, v)),
            }
        )
    return out


def table(*rows):
    return pd.DataFrame(sum(rows, []), columns=growth.COLUMNS)


# ---------------------------------------------------------------- fits
def test_an_exponent_is_that_of_the_upper_range_and_a_fixed_cost_is_named():
    xs = [1, 10, 100, 1000, 10**4, 10**5, 10**6]
    t = table(
        line("clients", "a", "round", xs, lambda x: 5 + x**0.5, mib=lambda x: x / 1000),
        line("clients", "b", "round", xs, lambda x: 3 * x, noise=(1.0,)),
    )
    f = fits(t).set_index(["method", "measure"])
    a = f.loc["a", "round"]
    assert a.exponent == pytest.approx(0.5, abs=0.02) and (
        a["from"],
        a["to"],
        a.points,
    ) == (1000, 10**6, 4)
    assert a.fixed == pytest.approx(5, rel=0.15) and a.low <= a.exponent <= a.high
    b = f.loc["b", "round"]
    assert (
        (b.exponent, b.at_one) == (pytest.approx(1), pytest.approx(3))
        and pd.isna(b.fixed)
        and pd.isna(b.low)
    )
    mib = f.loc["a", "mib"]
    assert (
        mib.exponent == pytest.approx(1)
        and mib["from"] == 10**4
        and len(curve(t, "clients", "a", "mib").x) == 4
    )


def test_the_interval_is_that_of_the_repetitions():
    c = Curve(
        pd.Series([1.0, 10, 100]).to_numpy(),
        pd.DataFrame([[1, 10, 100], [1, 100, 10**4], [1, 1, 1]]).to_numpy(float),
    )
    assert [p for p, _ in c.lines()] == [pytest.approx(v, abs=1e-9) for v in (1, 2, 0)]
    assert c.at(1000) == (pytest.approx(1000), pytest.approx(1), pytest.approx(10**6))


def test_a_million_clients_on_paper():
    C = [100, 1000, 10**4]
    rows = []
    for m, s in (("FedAvg", 1), ("Ditto", 2)):
        rows += line(
            "clients",
            m,
            "round",
            C,
            lambda x, s=s: 0.005 * s,
            mib=lambda x, s=s: 0.01 * s * x,
        )
        rows += line("clients", m, "scoring", C, lambda x, s=s: 1e-4 * s * x)
        rows += line("cohort", m, "round", [10, 100, 1000], lambda x, s=s: 5e-4 * s * x)
        for measure_ in ("round", "scoring"):
            rows += line(
                "parameters",
                f"{m}, ResNet18",
                measure_,
                [11173962],
                lambda x, s=s: 2.0 * s,
                noise=(1.0,),
            )
    rows += line(
        "clients",
        "drawing the cohort",
        "draw",
        [10**4, 10**6],
        lambda x: 1e-8 * x,
        noise=(1.0,),
    )
    n = needed(table(rows)).set_index(["method", "model", "quantity"])
    soft, deep = ("Ditto", "softmax regression"), ("Ditto", "ResNet18")
    assert n.value[(*soft, "models kept by clients")] == 610 * 4 * 10**6
    assert n.value[(*deep, "models kept by clients")] == 11173962 * 4 * 10**6
    assert n.value[("FedAvg", "ResNet18", "models kept by clients")] == 0
    assert n.value[(*soft, "data, 10 rows per client")] == (60 * 4 + 8) * 10**7
    assert n.value[(*soft, "resident memory, data included")] == pytest.approx(
        0.02 * 10**6 * 2**20
    )
    at = n.loc[(*soft, "a round, cohort 10")]
    # 0.01 and the draw, 0.01
    assert (at.low, at.high) == (pytest.approx(0.02), pytest.approx(0.021))
    assert (
        at.basis
        == "extrapolated from 10000 to 1000000 clients; drawing the cohort measured"
    )
    assert n.loc[(*soft, "a round, cohort 1000")].low == pytest.approx(1.01)
    assert n.loc[(*soft, "scoring every client once")].low == pytest.approx(200)
    assert n.loc[(*deep, "scoring every client once")].value == pytest.approx(4 * 10**5)
    assert n.loc[(*deep, "a round, cohort 1000")].value == pytest.approx(400.01)
    assert set(n.basis.str.extract(r"^(\w+)", expand=False)) == {
        "computed",
        "extrapolated",
        "measured",
    }
    assert len(needed(table(rows[:0]))) == 12 and set(
        needed(table(rows[:0])).basis
    ) == {"computed"}


# ---------------------------------------------------------------- points
def blocks(every, seconds=0.0):
    """A block function with a clock that moves by one at every look,
    and what it says.
    """
    said, ticks = [], iter(range(10**6))
    method = SimpleNamespace(who="sample", task=SimpleNamespace(C=30))
    point = points.Point("clients", "FedAvg", 30, 30, 4, every=every)
    return points.Blocks(
        method,
        point,
        seconds,
        lambda: len(said) < 4,
        said.append,
        0.0,
        clock=lambda: float(next(ticks)),
    ), said


@linux
def test_blocks_count_rounds_and_pause():
    b, said = blocks(every=4)
    score = b.scored(lambda x: x + 1)
    with pytest.raises(SystemExit):
        for t in range(100):
            assert torch.equal(b(t), cohort_of(b.method, b.method.task, 0, t, 4))
            if t % 4 == 0:
                assert score(1) == 2  # two looks in the first round of each block
    assert t == 12 and list(said[0]) == ["start", "mib"]
    assert all(
        (a["round"], a["evaluated round"], a["scoring"]) == (1, 3, 1) for a in said[1:]
    )
    b, said = blocks(every=0, seconds=5)
    with pytest.raises(SystemExit):
        for t in range(100):
            b(t)
    assert t == 15 and all((a["round"], len(a)) == (1, 2) for a in said[1:])


PEAK = """
import torch
from benchmarks.growth import points
points.forget_peak()
before, v = points.resident(), torch.ones(5 * 10 ** 7)      # 191 MiB
del v
peak = points.resident("VmHWM") - before
points.forget_peak()
print(peak, points.resident("VmHWM") - before)
"""


@linux
@pytest.mark.full
def test_peak_memory_is_counted_from_where_it_was_forgotten():
    """In a process of its own: this one's allocator may hold on to as
    much from before.
    """
    done = subprocess.run(
        [sys.executable, "-c", PEAK],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    peak, after = map(float, done.stdout.split())
    assert 185 < peak < 215 and after < 10


def test_parameters_of_the_axis():
    assert [points.parameters(n) for n in ("softmax", "mlp-1", "resnet18")] == [
        610,
        805,
        11173962,
    ]
    with pytest.raises(ValueError, match="'mlp': give softmax, mlp-WIDTH"):
        points.network("mlp")


@pytest.mark.parametrize("how", ["loop", "vmap"])
def test_stacked_seeds_are_the_runs_one_by_one(how):
    task = points.task_of(points.Point("seeds", "FedAvg", 2, 12)).double()
    many = seeds.stacked(task, seeds.copies(task, 2), 2, 2, how, shuffle=False).state[
        "server"
    ]["w"]
    for s in range(2):
        one = seeds.single(task, s, 2, shuffle=False).state["server"]["w"]
        assert all(torch.allclose(many[k][s], one[k], atol=1e-12) for k in one)
    assert not torch.allclose(many["fc.weight"][0], many["fc.weight"][1], atol=1e-3)


def test_a_process_that_hangs_or_fails_is_a_note(tmp_path, monkeypatch):
    slow = Asked("points", {}, 0.1, 0.05)  # it has not even imported torch by then
    slow.ask()
    assert (
        slow.note == "no answer in 0.05 s"
        and slow.process.returncode == -9
        and not slow.answers
    )
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'MemoryError: too many' >&2\nexit 1\n")
    python.chmod(0o755)
    monkeypatch.setattr("benchmarks.growth.ask.sys.executable", str(python))
    bad = Asked("points", {}, 0.1, 60)
    bad.ask()
    bad.close()
    assert bad.note == "failed: MemoryError: too many" and not bad.answers
    (row,) = growth.rows_of(bad, "clients", "FedAvg", 1, 3)
    assert row["note"] == bad.note and row["mib"] is None


def test_the_whole_way_writes_four_files_and_keeps_other_axes(tmp_path, monkeypatch):
    out = tmp_path / "benchmarks-growth.csv"
    table(line("seeds", "stacked", "runs, wall", [1, 2, 4], lambda x: x)).to_csv(
        out, index=False
    )
    monkeypatch.setattr(growth, "METHODS", ["FedAvg"])
    growth.main(
        [
            "--axes",
            "cohort",
            "--cohort",
            "2",
            "--clients-of-cohort",
            "3",
            "--reps",
            "2",
            "--seconds",
            "0.01",
            "--out",
            str(out),
        ]
    )
    t = pd.read_csv(out)
    assert list(t.axis) == ["cohort"] * 2 + ["seeds"] * 3 and list(t.measure[:2]) == [
        "round",
        "start",
    ]
    assert (
        t["median"].gt(0).all()
        and t.repetitions[0] == 2
        and len(t.each[0].split()) == 2
        and t.mib[0] >= 0
    )
    assert pd.read_csv(tmp_path / "benchmarks-growth-fit.csv").method.tolist() == [
        "stacked"
    ]
    assert (
        pd.read_csv(tmp_path / "benchmarks-million.csv").basis.eq("computed").sum()
        == 12
    )
    (run,) = json.loads(out.with_suffix(".json").read_text())["runs"]
    assert run["axes"] == ["cohort"] and run["torch"] == torch.__version__


def test_the_figure_labels_its_curves_with_their_slopes(tmp_path):
    csv, xs = tmp_path / "g.csv", [10, 100, 1000, 10**4]
    table(
        line("clients", "FedAvg", "round", xs, lambda x: 0.01),
        line("clients", "FedAvg", "evaluated round", xs, lambda x: x / 100),
        line("seeds", "stacked", "runs, wall", [1, 2, 4], lambda x: x),
    ).to_csv(csv, index=False)
    fig = figure(csv)
    said = [[t.get_text() for t in ax.texts] for ax in fig.axes]
    assert said == [
        ["FedAvg $x^{-0.00}$", "FedAvg, scored $x^{1.00}$"],
        ["stacked $x^{1.00}$"],
    ] or said == [
        ["FedAvg $x^{0.00}$", "FedAvg, scored $x^{1.00}$"],
        ["stacked $x^{1.00}$"],
    ]
    with pytest.raises(ValueError, match="no curve to draw"):
        figure(csv, [3])


# ------------------------------------------------------------- the GPU script, on a CPU
def warmed(step, device):
    """What recording does to the tensors of a step, without a graph."""
    for _ in range(WARM):
        step()
    return step


LOW = replace(setup("linear-10", CPU, small=True), cohort=5)
KINDS = [
    ("linear-10", own(lambda s: Hand(s, warmed))),
    ("mlp", own(lambda s: Hand(s, warmed))),
    ("linear-10", stacked(lambda s: Hand(s, warmed, 3), 3)),
    ("cnn", own(lambda s: Single(s, warmed, torch.channels_last))),
    ("linear-10", own(lambda s: Cohort(s, warmed))),
    ("cnn", own(Cohort)),
    ("linear-10", lambda s: engine.rounds(s, "vmap", 2)),
]


@pytest.mark.parametrize(
    "name, make",
    [pytest.param(*k, marks=pytest.mark.full if k[0] == "cnn" else ()) for k in KINDS],
)
def test_variants_are_the_loop_and_another_step_size_is_refused(name, make):
    s = LOW if name == "linear-10" else setup(name, CPU, small=True)
    reference = engine.rounds(s, "loop")[1](), engine.rounds(s.double(), "loop")[1]()
    _, d64, d32 = compared(s, Variant("v", make), reference)
    assert d64 < 1e-12 and d32 < 1e-4
    with pytest.raises(ValueError, match="not timed: after one round in float64"):
        compared(s, Variant("v", lambda x: make(replace(x, lr=1.01 * x.lr))), reference)


def test_several_rounds_of_stacked_seeds_stay_apart():
    """Round after round the seeds are those of runs of their own."""
    v, w = Hand(LOW, S=2), [LOW.task.init(s) for s in range(2)]
    alone = Hand(LOW)
    for t in range(3):
        w = v.once(t, w)
    for s in range(2):
        own_ = LOW.task.init(s)
        for t in range(3):
            own_ = alone.once(t, own_)
        assert checks.apart(w[s], own_) < 1e-5


def test_plans_hold_every_row_once_and_shares_sum_to_one():
    plan = LOW.plan(0)
    p = padded(LOW, plan)
    for i, (rows, lens) in enumerate(plan):
        assert torch.equal(p["rows"][i][p["share"][i] > 0], rows)
        assert (
            torch.allclose(p["share"][i].sum(1)[: len(lens)], torch.ones(len(lens)))
            and p["share"][i][len(lens) :].sum() == 0
        )
    assert widths(10) == [10, 5, 3, 2, 1] and widths(1) == [1]


def test_without_cuda_or_budget_variants_are_rows_that_say_so(monkeypatch):
    reach = {"float32": {"product": 1e9, "convolution": 1e9}, "copy": 1e9}
    rows = measure(LOW, reach, lambda: -1, 1, 0.01, 2)
    assert {r["note"] for r in rows} == {
        "needs CUDA",
        "not tried: the budget is spent",
    } and not any("winner" in r for r in rows)


def test_the_rule_takes_the_quickest_that_changes_no_number():
    row = lambda times, precision="float32", seeds=1: {
        "times_loop": times,
        "precision": precision,
        "seeds": seeds,
    }
    rows = [
        row(1),
        row(3),
        row(9, "bf16"),
        row(7, seeds=5),
        {"note": "failed", "precision": "float32", "seeds": 1},
    ]
    assert (
        rule(rows) is rows[1]
        and rule(rows, stacked=True) is rows[3]
        and rule(rows[4:]) is None
    )


def test_the_floor_is_the_longer_of_arithmetic_and_traffic():
    reach = {
        "float32": {"product": 10.0, "convolution": 2.0},
        "tf32": {"product": 100.0, "convolution": 2.0},
        "copy": 5.0,
    }
    load = {"flop": 40.0, "bytes": 10.0}
    assert floor.floor(load, reach, "float32", True) == (4, "flop") and floor.floor(
        load, reach, "tf32", True
    ) == (2, "bytes")
    assert floor.floor(load, reach, "bf16", False) == (20, "flop")
    w = floor.work(setup("linear-10", CPU, small=True))
    rows = (
        sum(len(r) for r in LOW.task.train)
        / LOW.task.C
        * setup("linear-10", CPU, small=True).cohort
    )
    assert w["flop"] == pytest.approx(rows * 2 * 2 * 60 * 10)


def test_options_are_undone_and_tf32_is_off_unless_declared():
    before, pixels = torch.backends.cudnn.allow_tf32, layers.pixels
    with options():
        assert not torch.backends.cudnn.allow_tf32
    with pytest.raises(KeyError), options("tf32", "nchw"):
        assert torch.backends.cuda.matmul.allow_tf32 and layers.pixels is not pixels
        raise KeyError
    assert torch.backends.cudnn.allow_tf32 == before and layers.pixels is pixels


def test_on_a_cpu_nothing_is_written_without_out(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(gpu, "OUT", tmp_path / "never.csv")
    monkeypatch.setattr(gpu, "machine", lambda device: {"copy": 1.0})
    monkeypatch.setattr(
        gpu,
        "share",
        lambda case, *more: [
            {"case": case, "variant": "loop", "note": "killed after 1 s"}
        ],
    )
    gpu.main(["--device", "cpu", "--cases", "mlp"])
    assert (
        "tests on cpu: skipped: no CUDA device here" in capsys.readouterr().out
        and not list(tmp_path.iterdir())
    )
    gpu.main(
        ["--device", "cpu", "--cases", "mlp", "cnn", "--out", str(tmp_path / "gpu.csv")]
    )
    assert pd.read_csv(tmp_path / "gpu.csv").case.tolist() == ["mlp", "cnn"]
    assert json.loads((tmp_path / "gpu.json").read_text())["device"] == "cpu"


def test_a_case_that_takes_too_long_is_killed_and_one_that_fails_says_why(monkeypatch):
    monkeypatch.setattr(gpu, "LATE", 0)
    args = SimpleNamespace()
    (row,) = gpu.share("mlp", 0.05, args, {}, ["--small"])
    # before it has imported torch
    assert row == {"case": "mlp", "variant": "all", "note": "killed after 0 s"}
    failed = SimpleNamespace(
        stderr="Traceback\nRuntimeError: no such device\n", returncode=1
    )
    monkeypatch.setattr(gpu.subprocess, "run", lambda *a, **k: failed)
    (row,) = gpu.share("mlp", 60, args, {}, [])
    assert row["note"] == "failed: RuntimeError: no such device"


def test_apart_sees_what_is_not_finite():
    a, b = {"w": torch.tensor([1.0, math.nan])}, {"w": torch.tensor([1.0, 2.0])}
    assert (
        checks.apart(a, b) == math.inf
        and checks.apart(b, b) == 0
        and eager(len, CPU) is len
    )


@pytest.mark.parametrize(
    "v, unit, text",
    [
        (0, "bytes", "0"),
        (999, "bytes", "999 bytes"),
        (2.44e9, "bytes", "2.44 GB"),
        (5e-5, "s", "0.05 ms"),
        (92.6, "s", "1.54 min"),
        (42000, "s", "11.7 h"),
    ],
)
def test_amounts_come_in_units_that_can_be_read(v, unit, text):
    assert facts.amount(v, unit) == text


def test_the_page_shows_every_number_of_the_million_once(tmp_path):
    rows = [
        ("FedAvg", "softmax", "data", 2e9, "bytes", "computed"),
        ("Ditto", "softmax", "data", 3e9, "bytes", "computed"),
        ("FedAvg", "ResNet18", "data", 4e9, "bytes", "guessed"),
        ("Ditto", "ResNet18", "data", 5e9, "bytes", "guessed"),
    ]
    names = ["method", "model", "quantity", "value", "unit", "basis"]
    pd.DataFrame(rows, columns=names).to_csv(tmp_path / "benchmarks-million.csv")
    assert facts.millions(tmp_path).values.tolist() == [
        ["softmax", "data", "2 GB", "3 GB", "computed"],
        ["ResNet18", "data", "4 GB", "5 GB", "guessed"],
    ]


def test_the_page_sets_a_gpu_beside_one_core(tmp_path):
    """What is quickest may batch as it likes, but not change the numbers or the seed."""
    of = {"case": "cnn", "precision": "float32", "seeds": 1, "floor_ms": 0.9508}
    rows = [
        of | {"variant": "loop", "with_drawing_ms": 384.07},
        of | {"variant": "vmap", "with_drawing_ms": 75.557},
        of | {"variant": "step, graph", "with_drawing_ms": 31.2},
        of | {"variant": "step, graph", "with_drawing_ms": 9.0, "precision": "bf16"},
        of | {"variant": "vmap, 5 seeds stacked", "with_drawing_ms": 27.4, "seeds": 5},
    ]
    pd.DataFrame(rows).to_csv(tmp_path / "benchmarks-gpu.csv", index=False)
    cpu = {"case": ["cnn"], "variant": ["fedlib"], "rounds_per_cpu_s": [4.0]}
    pd.DataFrame(cpu).to_csv(tmp_path / "benchmarks.csv", index=False)
    table = facts.gpus(tmp_path)
    numbers = ["384", "75.6", "27.4", "31.2", "step, graph", "0.951", "250"]
    assert table.values.tolist() == [["cnn", *numbers]]
