"""The command line: options reach the call, the numbers printed are those of the library,
and how a program ends.
"""

from dataclasses import fields
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
import torch

import fedlib
from fedlib.cli import main as cli
from fedlib.cli import text
from fedlib.core.record import Record
from fedlib.methods import METHODS
from fedlib.pieces.robust import Median
from fedlib.pieces.steps import SAM
from fedlib.study import audit

TASK = "digits:clients=4,hidden=4,batch=16"
pytestmark = pytest.mark.filterwarnings("ignore:fewer than 10 test rows")


def call(capsys, line):
    """(status, stdout, stderr) of one call."""
    try:
        status = cli.main(line.split() if isinstance(line, str) else line)
    except SystemExit as e:
        status = e.code
    return status, *capsys.readouterr()


def right(capsys, line):
    status, out, err = call(capsys, line)
    assert (status, err) == (0, ""), err
    return out


class Reached(BaseException):
    """The call that a command leads to: (its arguments, its keywords)."""


@pytest.fixture
def reached(monkeypatch):
    """reached(line) -> (arguments, keywords) of the call that would do the work."""

    def stop(*args, **more):
        raise Reached(args, more)

    ends = [(fedlib, "run"), (fedlib, "compare")]
    for module, name in ends + [(audit, k) for k in ("compute", "pack", "verify")]:
        monkeypatch.setattr(module, name, stop)

    def reached(line):
        with pytest.raises(Reached) as e:
            cli.main(line.split())
        return e.value.args

    return reached


def check(reached, line, named, usual, typed):
    """Each option changes the argument of its name in the call, and nothing else."""
    for option in ["", *typed.split()]:
        args, more = reached(f"{line} --{option}" if option else line)
        name, _, value = option.partition("=")
        change = {name: int(value) if value.isdigit() else value} if option else {}
        got = dict(zip(named, args[-len(named) :])) | more
        assert got == usual | change, option


def test_every_option_of_run_reaches_it(reached):
    one = f"run FedAvg {TASK} "
    usual = dict(rounds=50, seed=0, cohort=None, every=1, folder=None)
    usual |= dict(device=None, guests=False)
    typed = "rounds=0 rounds=7 seed=3 seed=0 cohort=2 every=5 device=cpu folder=out"
    check(reached, one, ["rounds"], usual, typed)
    (method, task, _), _ = reached(one)
    assert (type(method), task.C, task.batch) == (METHODS["FedAvg"], 4, 16)
    sets = "--set lr=1e-2 --set step=SAM(rho=.5) --set rule=Median()"
    (method, *_), _ = reached(one + sets)
    assert (method.lr, method.step, method.rule) == (0.01, SAM(0.5), Median())
    sets = "--set inner=FedProx --set mu=.5 --set rho=.3"
    (method, *_), _ = reached(f"run EquFL {TASK} {sets}")
    assert type(method.inner) is METHODS["FedProx"] and method.inner.mu == 0.5
    _, more = reached("run FedAvg census:clients=3,n_mean=40,guest=AK")
    assert more["guests"] is True


def test_every_option_of_evidence_reaches_it(reached, monkeypatch):
    line = "evidence compute fedga plgu/x --tier paper --dry-run"
    how = {"tier": "paper", "device": "auto", "dry_run": True, "anew": False}
    assert reached(line) == ((("fedga", "plgu/x"),), how)
    assert reached("evidence pack --anew") == (((),), {"anew": True})
    assert reached("evidence verify") == ((20, 0, (), "cpu", None, False), {})
    line = "verify fedga --sample 3 --seed 4 --write"
    assert reached(f"evidence {line}") == ((3, 4, ("fedga",), "cpu", None, True), {})
    for wrong in (["a is damaged"], []):
        monkeypatch.setattr(audit, "check", lambda wrong=wrong: wrong)
        assert cli.main(["evidence", "check"]) == 2 * len(wrong)


def test_every_option_of_a_comparison_reaches_it(reached):
    one = f"compare FedAvg FedProx --task {TASK} "
    usual = dict(rounds=50, seeds=3, folder=None, workers=1, cohort=None, search=0)
    typed = "rounds=4 seeds=2 cohort=2 workers=2 folder=out search=8"
    check(reached, one, ["rounds", "seeds"], usual, typed)
    (methods, task, *_), _ = reached(one)
    assert methods == [("FedAvg", {}), ("FedProx", {})] and task.C == 4
    sets = "--set FedProx.mu=.5 --set FedAvg.lr=.2 --set FedProx.lr=1"
    (methods, *_), _ = reached(one + sets)
    assert methods == [("FedAvg", {"lr": 0.2}), ("FedProx", {"mu": 0.5, "lr": 1})]


def test_a_description_of_a_task_reaches_its_parts():
    line = "digits:clients=6,dirichlet=.3,least=5,network=MLP,hidden=8,batch=7,split=2"
    parts = dict(data={"name": "digits"}, batch=7, network={"name": "MLP", "hidden": 8})
    dealt = dict(name="dirichlet", clients=6, alpha=0.3, least=5)
    assert text.describe(line) == (parts | {"partition": dealt}, 2)
    parts = dict(data={"name": "glyphs", "n": 200}, groups={"by": "parity"}, batch=32)
    parts |= dict(guest="a", standard=True, network={"name": "CNN"})
    dealt = dict(name="labels_per_client", labels=2, clients=10)
    line = "glyphs:n=200,labels=2,groups=parity,guest=a,standard=True"
    assert text.describe(line) == (parts | {"partition": dealt}, 0)
    task = text.parse_task("synthetic:alpha=1,beta=1,sizes=[50, 70],batch=8")
    assert (task.kind, task.C, task.batch, len(task.x)) == ("synthetic", 2, 8, 120)
    values = {".5": 0.5, "3": 3, "1e-3": 1e-3, "-2": -2, "True": True, "null": None}
    sam = {"name": "SAM", "rho": 0.2}
    values |= {"-.inf": -np.inf, "[1, .5]": [1, 0.5], "a": "a", "SAM(rho=.2)": sam}
    for typed, want in values.items():
        got = text.settings(f"x={typed}")["x"]
        assert got == want and type(got) is type(want), typed


def test_what_run_prints_is_the_run_of_the_library(capsys, tmp_path):
    digits = "digits:clients=20,hidden=4,batch=16,groups=parity"
    line = f"run Ditto {digits} --set lam=.5 --set lr=.5 --rounds 6 --cohort 8"
    out = right(capsys, f"{line} --seed 2 --device cpu --folder {tmp_path / 'a'}")
    task = text.parse_task(digits)
    method, usual = fedlib.make("Ditto", task, lam=0.5, lr=0.5), {"device": "cpu"}
    want = fedlib.run(method, rounds=6, cohort=8, seed=2, progress=False, **usual)
    got = Record.load(tmp_path / "a")
    assert got.views.keys() == want.views.keys()
    assert all(np.array_equal(got[k], want[k], equal_nan=True) for k in want.views)
    rows = dict(line.split(maxsplit=1) for line in out.splitlines() if "/" in line)
    for key, a in want.views.items():
        a = np.sort(a[-1])
        for name, x in (("mean", a.mean()), ("worst", a[:2].mean())):
            assert rows["/".join((*key, name))] == f"{100 * x:.1f} %", key
    for key, n in want.cells.items():
        n = n[-1].sum(0)  # [A, y, said]
        yes = n[..., 1].sum(1) / n.sum((1, 2))
        assert rows["/".join(key)].endswith(f"DP {abs(yes[0] - yes[1]):.3f}")


@pytest.fixture
def rows(tmp_path, monkeypatch):
    """hospital.csv, .tsv and .parquet in the working folder."""
    x = np.random.default_rng(0).normal(size=(160, 4)).round(3)
    frame = pd.DataFrame(x[:, :2], columns=["age", "bmi"])
    frame["sex"] = np.where(x[:, 2] < 0, "f", "m")
    frame["hospital"] = [f"ward {i % 4}" for i in range(160)]
    frame["ill"] = np.where(frame.age + x[:, 3] / 4 > 0, "yes", "no")
    monkeypatch.chdir(tmp_path)
    frame.to_csv("hospital.csv", index=False)
    frame.to_csv("hospital.tsv", index=False, sep="\t")
    frame.to_parquet("hospital.parquet")
    return frame


OWN = "--data hospital.csv --client hospital --label ill"


def test_own_rows_reach_the_task(rows, reached):
    who = dict(label="ill", client="hospital")
    want = fedlib.Task.from_frame(rows, **who)
    task_of = lambda line: reached(f"compare FedAvg {line}")[0][1]
    for kind in ("csv", "tsv", "parquet"):
        task = task_of(OWN.replace("csv", kind))
        assert torch.equal(task.x, want.x) and task.owners == want.owners, kind
    assert task_of(f"{OWN} --sensitive sex").groups.names == ("f", "m")


def test_a_comparison_prints_and_writes_the_numbers_of_the_call(rows, capsys):
    line = f"compare FedAvg FedProx {OWN} --set FedProx.mu=0.5 --rounds 3 --seeds 2"
    out = right(capsys, line + " --report report.html --folder out")
    task = fedlib.Task.from_frame(rows, label="ill", client="hospital")
    same = fedlib.compare(["FedAvg", ("FedProx", {"mu": 0.5})], task, 3, 2)
    assert out.startswith(same.table.to_string())
    assert "FedProx" in Path("report.html").read_text("utf-8")


def test_methods_and_their_hyper_parameters_are_shown(capsys):
    listed = right(capsys, "methods").splitlines()
    assert [row.split()[0] for row in listed] == [*METHODS]
    out = right(capsys, "show FedGA")
    lines = out.splitlines()
    for f in (f for f in fields(METHODS["FedGA"]) if "what" in f.metadata):
        head = f"  {f.name} = {f.default}: "
        (line,) = [x for x in lines if x.startswith(head)]
        assert line.startswith(head + f.metadata["what"]), f.name
    assert fedlib.cite("FedGA") in out
    assert all(name in right(capsys, "--help") for name in cli.COMMANDS)


def test_other_ends(capsys, monkeypatch):
    assert right(capsys, "--version").split()[-1] == fedlib.__version__
    errors = {KeyboardInterrupt(): (130, "--folder"), KeyError("x"): (70, "KeyError")}
    errors |= {OSError(28, "No space"): (1, "No space"), MemoryError(): (2, "memory")}
    for error, (status, word) in errors.items():
        monkeypatch.setattr(fedlib, "run", Mock(side_effect=error))
        got, out, err = call(capsys, f"run FedAvg {TASK}")
        assert (got, out, err.count("\n")) == (status, "", 1) and word in err, err
        with pytest.raises(type(error)):
            cli.main(["--debug", "run", "FedAvg", TASK])
