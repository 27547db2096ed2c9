"""Commands with a mistake: status 2 and one line on stderr that names it; the ends of
ranges run; and words in any order never raise an error of ours.
"""

import contextlib
import io
import itertools
import random
import re
import shlex

import pytest
import torch
from toys_input import lacks

from fedlib.cli import main as cli

TASK = {  # source: its wrong entries, which have to be named
    "digits": "clients=1.5 clients=abc clients=True clients=None clients=[3] clients=0 "
    "clients=9999999999 clients=4,clients=5 clients={1} clients=1+2j clients=b'1' "
    "clients=SAM() least=1.5 least=-1 seed=-1 dirichlet=inf labels=2.5 labels=11 labels=0 "
    "batch=abc batch=1e9 batch=0 batch=True split=abc split=1.5 split=-1 hidden=0 "
    "hidden=1.5 hidden=abc hidden=[] hidden=[8,0] hidden=1000000000 network=[1] "
    "network=CNNN network=CNN,widths=[1] network=CNN,norm=[1] standard=abc groups=abc "
    "guest=abc hiden=4 bach=32",
    "synthetic:alpha=1,beta=1": "network=CNN standard=True draw=-1 sizes=5 sizes=[9.5]",
    "glyphs": "n=1.5 n=200,spurious=nan n=200,size=16.5 n=200,styles=[foto]",
    "domains": "preset=PACSS preset=PACS,n=True preset=PACS,warp=nan",
    "census": "n_mean=nan clients=52 bias_sex=abc task=incom group=age",
    "adult": "by=[1] least=1.5",
    "acs": "rows=0 year=abc states=5 root=5",
    "cifar10": "download=abc normalise=1",
    "mnist5k": "noise=nan pool=3",
    "rotated": "angles=[0,nan] angles=[0]",
    "colored": "flips=[0,True]",
    "digit_sites": "per_domain=0.5 n=[5],manners=[plain,uci]",
    "features:model=5": "data=5",
}
SETTING = {  # method: wrong NAME=VALUE
    "FedAvg": "step=SAM(rho=-1) step=SAM(rho=nan) step=SAM(1,2) step=SAM(rh=1) step=SAM(rho=x) "
    "step=Private(clip=nan) rule=TrimmedMean(trim=.5) rule=MultiKrum(bad=True) rule=5 "
    "rule=SAM(.1) step=Median() rule=Medan() lr=SAM() lr=True lr=abc lr=[.1] lr=nan lr=inf "
    "lr=-inf epochs=1.5 epochs=True poisson=2 momentum=1.5 lr lrr=1",
    "FedGA": "theta=-1 theta=2 theta=-1/2 theta=nan alpha=inf",
    "Uniform-update": "inner=FedAvgg",
}
NUMBERS = {  # a line: (options that are numbers, what none of them is)
    "run FedAvg digits": ("rounds cohort seed every threads", "nan 1.5 abc -1 1e3"),
    "run fedga/synthetic": ("rounds cohort every", "nan 1.5 -1"),
    "compare FedAvg --task digits": ("rounds seeds workers cohort every", "nan x -1 0"),
    "compare FedAvg --task digits --grid": ("budget", "nan -1 0"),
    "evidence verify fedga": ("sample seed workers", "nan abc -1 1.5"),
    "deploy keys NEW --host a --days 3": ("clients", "nan abc -1 0 999999"),
    "deploy keys NEW --host a --clients 3": ("days", "nan abc -1 0 99999999"),
    "deploy server x.yaml --folder NEW": ("port minimum patience", "abc --x"),
    "decide fedga --dry-run": ("hours workers", "nan abc -1 0"),
}
LINES = [  # (line, *what is named)
    *(("fly", "fly"), ("shwo FedAvg", "show"), ("show FedAvgg", "FedAvgg", "FedAvg")),
    *(("run", "method"), ("run FedAvg", "task"), ("run FedAvgg digits", "FedAvg")),
    *(
        ("run FedAvg digitss", "digits"),
        ("run fedga/", "fedga"),
        ("cite Dito", "Ditto"),
    ),
    ("run FedAvg digits --rounds 0 --cohort 11", "cohort", 11),
    ("run FedAvg digits --seed 9223372036854775808", "seed"),
    ("run FedAvg digits --threads 10001", "threads"),
    ("run FedAvg digits --cohort 0", "cohort"),
    ("run FedAvg digits --every 0", "every"),
    ("run FedAvg digits --keep x.csv", "keep"),
    ("run FedAvg digits --tier tiny", "tier"),
    ("run FedAvg digits --how quickly", "quickly"),
    ("run FedAvg digits --device tpu", "tpu"),
    ("run FedAvg digits --folder=", "folder"),
    *(
        f"run FedAvg digits --folder {at}|folder".split("|")
        for at in ("FILE", "FILE/x")
    ),
    ("run FedAvg digits --scheduler tcp://x:1", "scheduler"),
    ("run FedAvg digits --set lr=.1 --set lr=.2", "lr"),
    ("run FedAvg digits --rounds 1 --rounds=2", "rounds"),
    ("run FedAvg digits 'a\nb'",),
    *(("run fedga/synthetic --seed 0", "seed"), ("run tier/synthetic", "tier")),
    ("run fedga/synthetik --tier tiny", "synthetik", "synthetic"),
    ("run fedga/synthetic --keep FILE/x", "keep"),
    *(("compare FedAvg", "task"), ("compare FedAvg FedAvg --task digits", "FedAvg")),
    ("compare FedAvg --task digits --set lr=1", "set"),
    ("compare FedAvg --task digits --set FedGA.lr=1", "FedGA"),
    ("compare FedAvg --task digits --data x.csv", "task"),
    ("compare FedAvg --task digits --report NEW/x.html", "report"),
    ("compare FedAvg --data FILE --client a --label b", "FILE"),
    ("compare FedAvg --data none.csv --client a --label b", "none.csv"),
    ("compare FedAvg --data CSV --client a", "label"),
    ("compare FedAvg --data CSV --client who --label y", "client", "who"),
    ("compare FedAvg --data CSV --client a --label y --features z", "features", "z"),
    ("compare FedAvg --task digits --task glyphs", "task"),
    ("table fedga 'Table 99'", "Table 99"),
    *(("evidence chek", "chek"), ("data get", "get"), ("data get cifar", "cifar10")),
    *(
        ("data got cifar10", "got"),
        ("data --root FILE", "root"),
        ("data get office10",),
    ),
    ("data get '\x1b[31m'", "data"),
    *((f"deploy keys NEW --host {h} --clients 2", "host") for h in ("a..b", "''")),
    ("deploy keys FILE --host a --clients 2", "FILE"),
    ("deploy server x.yaml --folder a --folder b", "folder"),
    ("decide --hours 1 --hours 2", "hours"),
]


def call(line):
    """(status, stdout, stderr) of a line of words, or a list of them."""
    out, err = io.StringIO(), io.StringIO()
    words = shlex.split(line) if isinstance(line, str) else line
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = cli.main(words)
        except SystemExit as e:
            status = e.code
    return status, out.getvalue(), err.getvalue()


def lines():
    """(words, *what has to be named) of all tables."""
    run = ["run", "FedAvg"]
    for source, entries in TASK.items():
        for entry in entries.split():
            name = re.split(r",(?![^[]*\])", entry)[-1].partition("=")[0]
            task = f"{source}{':,'[':' in source]}{entry}"
            name = "alpha" if name == "dirichlet" else (name, name.rstrip("s"))
            yield [*run, task, "--rounds", "1"], name
    for method, pairs in SETTING.items():
        for pair in pairs.split():
            words = ["run", method, "census:clients=3,n_mean=9", "--rounds", "1"]
            yield [*words, "--set", pair], tuple(re.split(r"[=(]", pair)[:2])
    for line, (names, values) in NUMBERS.items():
        for name, v in itertools.product(names.split(), values.split()):
            yield shlex.split(f"{line} --{name} {v}"), name
    for line, *names in LINES:
        yield shlex.split(line), *names


def test_a_mistake_is_one_line_that_names_it(tmp_path):
    pytest.importorskip("cryptography")
    (tmp_path / "file").write_text("")
    (tmp_path / "t.csv").write_text("a,x,y\n1,2,3\n")
    at = {"FILE": tmp_path / "file", "CSV": tmp_path / "t.csv", "NEW": tmp_path / "new"}
    bad = []
    for words, *names in lines():
        for k, path in at.items():
            words = [w.replace(k, str(path)) for w in words]
            names = [str(path) if n == k else n for n in names]
        status, out, err = call(words)
        good = (status, out, err.count("\n")) == (2, "", 1) and not lacks(err, *names)
        bad += [] if good else [f"{words} {names}: {status} {out:.60} {err:.200}"]
    assert not bad, "\n".join(bad)
    assert not (tmp_path / "new").exists()


def test_the_ends_of_ranges_run(tmp_path):
    for more in (
        ("--seed", str(2**63 - 1), "--cohort", "3", "--every", "1"),
        ("--set", "step=SAM(rho=0)", "--set", "rule=TrimmedMean(trim=0)"),
        ("--folder", str(tmp_path / "new" / "run"), "--threads", "1"),
    ):
        task = "digits:clients=3,hidden=[4, 3],dirichlet=5"
        words = ["run", "FedAvg", task, "--rounds", "1", *more]
        status, out, err = call(words)
        assert (status, err) == (0, "") and "FedAvg" in out, (more, err)
    assert (tmp_path / "new" / "run" / "done").exists()


def test_debug_anywhere_raises_what_is_wrong():
    words = ["run", "FedAvg", "digits:dirichlet=nan"]
    for i in range(4):
        with pytest.raises(ValueError, match="alpha"):
            cli.main([*words[:i], "--debug", *words[i:]])


ODD = ("nan", "-1", "0", "1.5", "1e30", "abc", "", "None", "True", "[]", "{}", "1+2j")
ODD += (
    "SAM(",
    "()",
    "'",
    '"',
    "\\",
    "=",
    ",",
    ":",
    "\n",
    "ü",
    "lambda: 1",
    "[[1]]",
    "9" * 30,
)


def test_no_other_error_arises():
    """Words of a good line changed: each ends with 0, or with 2 and one line."""
    rng, ends, threads = random.Random(0), [], torch.get_num_threads()
    sources = (
        "digits:clients=3,dirichlet=1,batch=8,hidden=4",
        "synthetic:alpha=.5,beta=.5",
    )
    sources += ("census:clients=3,n_mean=9,n_test=9,bias_sex=1", "adult:by=education")
    for _ in range(80):
        line = [
            "run",
            "FedProx",
            rng.choice(sources),
            "--rounds",
            "0",
            "--set",
            "mu=0.1",
        ]
        line += ["--seed", "1", "--every", "1"]
        for _ in range(rng.randint(1, 2)):
            k = rng.randrange(1, len(line))
            head, mark, pairs = line[k].rpartition(rng.choice(":=,"))
            at = rng.randrange(len(line[k]) + 1)
            word, old = rng.choice(ODD), line[k]
            ways = f"{head}{mark}{word}", f"{old[:at]}{word}{old[at:]}", word
            line[k] = rng.choice(ways)
        status, _, err = call(line)
        assert (status, err.count("\n")) in ((0, 0), (2, 1)), (line, err)
        ends.append(status)
    torch.set_num_threads(threads)
    assert ends.count(2) > 40
