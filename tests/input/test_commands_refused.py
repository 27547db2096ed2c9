"""What is typed with a mistake: status 2 and one line on stderr that names it; the ends
of ranges run.

A table has lines `what is typed | what is named`, or `start | ends`, one case each.
"""

import contextlib
import io
import re
import shlex

import pytest
from toys_input import all_refused, lacks

from fedlib.cli import main as cli
from fedlib.cli import text
from fedlib.methods.make import make

TASK = """\
digits | clients=1.5 clients=True clients=[3] clients=0 clients=4,clients=5 clients={1}
digits | clients=SAM() clients=9999999999 seed=-1 dirichlet=inf labels=2.5 batch=1e9
digits | split=-1 hidden=[] hidden=[8,0] hidden=1000000000 hiden=4 network=CNNN groups=abc
domains | preset=PACSS preset=PACS,warp=nan
census | n_mean=nan clients=52 bias_sex=abc task=incom group=age
"""
SETTING = """\
FedAvg | step=SAM(rho=-1) step=SAM(1,2) step=SAM(rh=1) step=SAM(rho=x) rule=5 step=Median()
FedAvg | rule=SAM(.1) rule=Medan() lr=SAM() lr=True lr=abc lr=[.1] lr=nan epochs=1.5 lr
FedGA | theta=-1 theta=-1/2 theta=nan alpha=inf
"""
NUMBERS = """\
run FedAvg digits | --rounds=-1 --cohort=nan --seed=1.5 --every=0 --threads=10001
compare FedAvg --task digits | --rounds=nan --seeds=0 --workers=0 --cohort=0 --every=x
evidence verify fedga | --sample=-1
deploy keys NEW --host a --days 3 | --clients=0 --clients=999999
deploy server x.yaml --folder NEW | --port=abc --minimum=--x --patience=abc
decide fedga --dry-run | --hours=nan
"""
LINES = """\
fly | fly
run FedAvg digits --folder FILE/x | folder
run FedAvg digits --set lr=.1 --set lr=.2 | lr
compare FedAvg --data CSV --client who --label y | client who
table fedga 'Table_99' | Table_99
deploy keys FILE --host a --clients 2 | FILE
"""


def cases(table):
    return [line.split(" | ") for line in table.splitlines()]


def call(line):
    """(status, stdout, stderr) of a line of words."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = cli.main(shlex.split(line))
        except SystemExit as e:
            status = e.code
    return status, out.getvalue(), err.getvalue()


def test_a_mistake_is_one_line_that_names_it(tmp_path):
    pytest.importorskip("cryptography")
    (tmp_path / "file").write_text("")
    (tmp_path / "t.csv").write_text("a,x,y\n1,2,3\n")
    at = {"FILE": tmp_path / "file", "CSV": tmp_path / "t.csv", "NEW": tmp_path / "new"}
    lines, bad = cases(LINES), []
    for line, options in cases(NUMBERS):
        lines += [(f"{line} {v}", v[2:].split("=")[0]) for v in options.split()]
    for line, names in lines:
        for k, path in at.items():
            line, names = line.replace(k, str(path)), names.replace(k, str(path))
        status, out, err = call(line)
        good = (status, out, err.count("\n")) == (2, "", 1)
        good = good and not lacks(err, *names.split())
        bad += [] if good else [f"{line} {names}: {status} {out:.60} {err:.200}"]
    assert not bad and not (tmp_path / "new").exists(), "\n".join(bad)


def test_a_task_and_a_setting_in_words():
    rows = []
    for source, entries in cases(TASK):
        for entry in entries.split():
            task = f"{source}{':,'[':' in source]}{entry}"
            name = re.split(r",(?![^[]*\])", entry)[-1].partition("=")[0]
            name = "alpha" if name == "dirichlet" else (name, name.rstrip("s"))
            rows.append((task, lambda t=task: text.parse_task(t), name))
    for method, pairs in cases(SETTING):
        kind = text.known(method)
        for pair in pairs.split():
            read = lambda p=pair, k=kind: text.parse_settings([p], k)
            act = lambda m=method, read=read: make(m, None, **read())
            rows.append((pair, act, tuple(re.split(r"[=(]", pair)[:2])))
    all_refused(rows)


def test_the_ends_of_ranges_run(tmp_path):
    for more in (
        f"--seed {2**63 - 1} --cohort 3 --every 1 --folder '{tmp_path}/new/run'",
        "--set step=SAM(rho=0) --set rule=TrimmedMean(trim=0) --threads 1",
    ):
        task = "'digits:clients=3,hidden=[4, 3],dirichlet=5'"
        status, out, err = call(f"run FedAvg {task} --rounds 1 {more}")
        assert (status, err) == (0, "") and "FedAvg" in out, (more, err)
    assert (tmp_path / "new" / "run" / "done").exists()
