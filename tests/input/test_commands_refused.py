"""What is typed with a mistake: status 2 and one line on stderr that names it; the ends
of ranges run. A table has lines `what is typed | what stands for @`, one case each."""

import contextlib
import io
import re
import shlex

import pytest
from toys_input import lacks

from fedlib.cli import main as cli

TABLE = """\
run FedAvg digits:@ | clients=1.5 clients=True clients=[3] clients=0 clients={1} seed=-1
run FedAvg digits:@ | clients=SAM() clients=9999999999 labels=2.5 batch=1e9 split=-1
run FedAvg digits:@ | hidden=[8,0] hidden=1000000000 hiden=4 network=CNNN groups=a
run FedAvg domains:@ | preset=PACSS
run FedAvg census:@ | n_mean=nan clients=52 bias_sex=abc task=incom group=age
run FedAvg digits --set @ | step=SAM(rho=-1) step=SAM(1,2) step=SAM(rh=1) rule=5 lr
run FedAvg digits --set @ | step=Median() rule=SAM(.1) rule=Medan() lr=SAM() lr=True lr=abc
run FedAvg digits --set @ | lr=[.1] lr=nan epochs=1.5
run FedGA digits --set @ | theta=-1 theta=-1/2 theta=nan alpha=inf
run FedAvg digits --@ | rounds=-1 cohort=nan seed=1.5 every=0 folder=FILE/x
compare FedAvg --task digits --@ | rounds=nan seeds=0 workers=0 cohort=0
evidence verify fedga --@ | sample=-1 sample=0
deploy keys NEW --host a --days 3 --@ | clients=0 clients=999999
deploy keys NEW --host a --clients 3 --@ | days=0
deploy app NEW --method Ditto --task digits --@ | rounds=abc cohort=x set=lam=-1
compare FedAvg --data CSV --label y --client @ | who
deploy keys @ --host a --clients 2 | FILE
@ | fly
data get @ | digts
run FedAvg digits:clients=3,clients=4 | clients
run FedAvg digits --tier tiny | --tier
run FedAvg digits --set lr=1 --set lr=2 | lr
run FedAvg digits --seed -1 | seed
run FedAvg digits --set step=SAN(rho=.1) | SAN SAM
compare FedAvg --data CSV --client a --label y --sensitive @ | sx
compare FedAvg --task digits --set FedGA.alpha=3 | FedGA
compare FedAvg --task digits --report no/r.html | no
"""


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
    at, bad = {"FILE": "file", "CSV": "t.csv", "NEW": "new"}, []
    for row in TABLE.splitlines():
        start, ends = row.split(" | ")
        for end in ends.split():
            line = start.replace("@", end)
            for k, name in at.items():
                line = line.replace(k, f"'{tmp_path}'/{name}")
            names = [n.replace("FILE", "file") for n in re.split(r"[=(]", end)[:2]]
            status, out, err = call(line)
            good = (status, out, err.count("\n")) == (2, "", 1)
            if not good or lacks(err, (*names, names[0].rstrip("s"))):
                bad.append(f"{line}: {status} {out:.60} {err:.200}")
    assert not bad and not (tmp_path / "new").exists(), "\n".join(bad)


def test_the_ends_of_ranges_run(tmp_path):
    for more in (
        f"--seed {2**63 - 1} --cohort 3 --every 1 --folder '{tmp_path}/new/run'",
        "--set step=SAM(rho=0) --set rule=TrimmedMean(trim=0)",
    ):
        task = "'digits:clients=3,hidden=[4, 3],dirichlet=5'"
        status, out, err = call(f"run FedAvg {task} --rounds 1 {more}")
        assert (status, err) == (0, "") and "FedAvg" in out, (more, err)
    assert (tmp_path / "new" / "run" / "record").exists()
