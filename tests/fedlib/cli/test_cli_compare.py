"""python -m fedlib compare: a table of rows in, a table of methods and a page out."""

import numpy as np
import pandas as pd
import pytest

import fedlib
from fedlib.cli import main as cli
from fedlib.core.task import Task


@pytest.fixture(autouse=True)
def from_frame(monkeypatch):
    """Task.from_frame by its signature, for the columns that these tests have."""

    def made(cls, df, *, label, client, sensitive=None, features=None, **more):
        others = [c for c in df if c not in (label, client, sensitive)]
        x = df[features or others].to_numpy(np.float32)
        y = df[label].astype("category").cat.codes.to_numpy(np.int64)
        a = None if sensitive is None else df[sensitive]
        return cls.from_arrays(x, y, df[client], a=a, **more)

    if not hasattr(Task, "from_frame"):
        monkeypatch.setattr(Task, "from_frame", classmethod(made), raising=False)


@pytest.fixture
def rows(tmp_path, monkeypatch):
    """hospital.csv and hospital.parquet in the working folder."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(160, 2)).round(3), columns=["age", "bmi"])
    frame["sex"] = np.where(rng.random(160) < 0.5, "f", "m")
    frame["hospital"] = [f"ward {i % 4}" for i in range(160)]
    frame["ill"] = np.where(frame.age + rng.normal(size=160) / 4 > 0, "yes", "no")
    frame.to_csv(tmp_path / "hospital.csv", index=False)
    frame.to_parquet(tmp_path / "hospital.parquet")
    monkeypatch.chdir(tmp_path)
    return frame


OWN = "--data hospital.csv --client hospital --label ill --features age,bmi"


def said(capsys, line):
    """(exit status, what was printed, what was complained) of a command."""
    status = cli.main(["compare", *line.split()])
    got = capsys.readouterr()
    return status, got.out, got.err


def test_own_rows_give_the_numbers_of_the_call(rows, capsys):
    status, out, err = said(
        capsys,
        f"FedAvg FedProx {OWN} --rounds 3 --seeds 2 --set FedProx.mu=0.5 "
        "--report report.html --csv all.csv --folder out",
    )
    assert (status, err) == (0, "")
    task = Task.from_frame(
        rows, label="ill", client="hospital", features=["age", "bmi"]
    )
    same = fedlib.compare(["FedAvg", ("FedProx", {"mu": 0.5})], task, 3, 2)
    assert out.startswith(same.ranked().to_string())
    frame = pd.read_csv("all.csv")
    pd.testing.assert_frame_equal(frame, same.frame())
    page = open("report.html").read()
    assert "4 clients" in page and "compare FedAvg FedProx --data hospital.csv" in page
    assert "--set FedProx.mu=0.5 --rounds 3 --seeds 2" in page


def test_parquet_sensitive_and_grid(rows, capsys):
    line = "FedAvg FedProx --data hospital.parquet --client hospital --label ill "
    line += "--sensitive sex --features age,bmi --rounds 2 --seeds 1 --grid --budget 2"
    status, out, _ = said(capsys, line)
    assert status == 0 and "best of 2" in out and " EO " in out


def test_a_task_that_comes_with_the_library(capsys):
    line = "FedAvg --task digits:clients=5 --rounds 1 --seeds 1 --every 1 --cohort 2"
    status, out, _ = said(capsys, line)
    assert status == 0 and "FedAvg" in out and "worst 10 %" in out


def test_what_is_missing_is_said_in_one_line(rows, capsys, monkeypatch):
    from fedlib.core import engine

    run = engine.rounds_of

    def stopped(fed, *more):
        if type(fed.method).__name__ == "FedProx" and more[2] is None:  # upto
            raise KeyboardInterrupt
        return run(fed, *more)

    monkeypatch.setattr(engine, "rounds_of", stopped)
    status, out, err = said(capsys, f"FedAvg FedProx {OWN} --rounds 1 --seeds 1")
    assert status == 130 and "FedAvg" in out
    assert "interrupted; not computed: FedProx (seed 0)" in err
    assert err.count("\n") == 1


BAD = [
    ("FedAvg", "give --data FILE --client COLUMN"),
    (f"FedAvg {OWN} --task digits", "compare needs a task"),
    (f"FedAvgg {OWN}", "did you mean 'FedAvg'"),
    (f"FedAvg FedAvg {OWN}", "FedAvg is listed twice"),
    ("FedAvg --data hospital.csv --label ill", "needs --client COLUMN"),
    ("FedAvg --data hospital.csv --client hospital", "needs --label COLUMN"),
    ("FedAvg --data hospital.csv --client hospitl --label ill", "mean 'hospital'"),
    ("FedAvg --data hospital.csv --client hospital --label il", "did you mean 'ill'"),
    (f"FedAvg {OWN} --sensitive sx", "--sensitive sx: hospital.csv has no such column"),
    (f"FedAvg {OWN},agge", "did you mean 'age'"),
    ("FedAvg --data hospital.csv --client hospital --label ill --features ,", "name c"),
    ("FedAvg --data hospitl.csv --client a --label b", "did you mean 'hospital.csv'"),
    ("FedAvg --data . --client a --label b", "there is no such file"),
    ("FedAvg --data x.xlsx --client a --label b", "give a file that ends in .csv"),
    ("FedAvg --data bad.parquet --client a --label b", "cannot be read"),
    ("FedAvg --data none.csv --client a --label b", "has no rows"),
    (f"FedAvg {OWN} --set alpha=3", "write METHOD.name=value"),
    (f"FedAvg {OWN} --set FedGA.alpha=3", "'FedGA' is not compared"),
    (f"FedAvg {OWN} --set FedAvg.lrr=3", "did you mean 'lr'"),
    (f"FedAvg {OWN} --set FedAvg.lr=-3", "FedAvg.lr = -3 is outside"),
    (f"FedAvg {OWN} --set FedAvg.lr", "write name=value"),
    (f"FedAvg {OWN} --rounds 0", "rounds = 0"),
    (f"FedAvg {OWN} --seeds 0", "seeds = 0"),
    (f"FedAvg {OWN} --workers 0", "workers = 0"),
    (f"FedAvg {OWN} --cohort 9", "cohort = 9"),
    (f"FedAvg {OWN} --every 0", "every = 0"),
    (f"FedAvg {OWN} --grid", "none of FedAvg declares values"),
    (f"FedAvg {OWN} --report nowhere/report.html", "a folder that exists"),
    (f"FedAvg {OWN} --report .", "a folder that exists"),
    (f"FedAvg {OWN} --folder hospital.csv", "is a file"),
    (f"FedRep FedPer {OWN}", "2 methods cannot run"),
    ("FedAvg --task digitss", "did you mean 'digits'"),
]


@pytest.mark.parametrize("line, words", BAD, ids=[words for _, words in BAD])
def test_a_mistake_is_one_line(line, words, rows, tmp_path, capsys):
    (tmp_path / "bad.parquet").write_text("no")
    (tmp_path / "x.xlsx").write_text("no")
    (tmp_path / "none.csv").write_text("a,b\n")
    status, out, err = said(capsys, line)
    assert (status, out) == (2, "") and err.count("\n") == 1
    assert words in err and "Traceback" not in err
