"""Commands with a mistake: one line on stderr that names the value and what to give
instead, exit status 2, no traceback; and a seeded fuzz of commands.
"""

import contextlib
import io
import random
import shlex
import tempfile

import pytest
import torch

from fedlib.cli import main as cli

RUN = ("run", "FedAvg")


def call(capsys, *argv):
    """(status, stdout, stderr) of one call."""
    try:
        status = cli.main(list(argv))
    except SystemExit as e:
        status = e.code
    said = capsys.readouterr()
    return status, said.out, said.err


def refused(capsys, argv, says):
    status, out, err = call(capsys, *argv)
    assert (status, out, err.count("\n")) == (2, "", 1), (status, out, err)
    assert all(word in err for word in says), err


TASKS = [  # (task, what the message says: the value, what to give)
    ("digits:clients=1.5", "dirichlet: clients = 1.5: give a whole number >= 1"),
    ("digits:clients=abc", "dirichlet: clients = 'abc': give a whole number >= 1"),
    ("digits:clients=True", "dirichlet: clients = True: give a whole number >= 1"),
    ("digits:clients=None", "dirichlet: clients = None: give a whole number >= 1"),
    ("digits:clients=[3]", "dirichlet: clients = [3]: give a whole number >= 1"),
    ("digits:clients=0", "dirichlet: clients = 0: give a whole number >= 1"),
    ("digits:clients=nan", "dirichlet: clients = nan: give a whole number >= 1"),
    ("digits:clients=9999999999", "give a whole number from 1 to 1000000000"),
    ("digits:clients=4,clients=5", "clients is given twice; give it once"),
    ("digits:clients={1}", "clients = '{1}'; give a number, True, False, None, a"),
    ("digits:clients=1+2j", "clients = '1+2j'; give a number"),
    ("digits:clients=b'1'", "give a number, True, False, None, a text"),
    ("digits:clients=SAM()", "clients = 'SAM()'; give a number"),
    ("digits:clients=" + "-" * 9999 + "1", "cannot be read; give a number"),
    ("digits:least=1.5", "dirichlet: least = 1.5: give a whole number >= 0"),
    ("digits:seed=-1", "dirichlet: seed = -1: give a whole number >= 0"),
    ("digits:dirichlet=nan", "dirichlet: alpha = nan: give a number above 0"),
    ("digits:dirichlet=None", "dirichlet: alpha = None: give a number above 0"),
    ("digits:dirichlet=inf", "dirichlet: alpha = inf: give a number above 0"),
    ("digits:dirichlet=-1", "dirichlet: alpha = -1: give a number above 0"),
    ("digits:labels=2.5", "labels = 2.5: give a whole number from 1 to 10"),
    ("digits:labels=11", "labels = 11: give a whole number from 1 to 10"),
    ("digits:labels=True", "labels = True: give a whole number from 1 to 10"),
    ("digit_sites:per_domain=0.5", "per_domain = 0.5: give a whole number >= 1"),
    ("digits:batch=abc", "batch = 'abc': give a whole number >= 1 of rows"),
    ("digits:batch=1e9", "batch = 1000000000.0: give a whole number >= 1 of rows"),
    ("digits:batch=0", "batch = 0: give a whole number >= 1 of rows"),
    ("digits:batch=True", "batch = True: give a whole number >= 1 of rows"),
    ("digits:split=abc", "split = 'abc': give a whole number >= 0, a seed"),
    ("digits:split=1.5", "split = 1.5: give a whole number >= 0, a seed"),
    ("digits:split=-1", "split = -1: give a whole number >= 0, a seed"),
    ("digits:hidden=0", "MLP: hidden = 0: give a whole number >= 1"),
    ("digits:hidden=-1", "MLP: hidden = -1: give a whole number >= 1"),
    ("digits:hidden=1.5", "MLP: hidden = 1.5: give a whole number >= 1"),
    ("digits:hidden=abc", "MLP: hidden = 'abc': give a whole number >= 1"),
    ("digits:hidden=[]", "MLP: hidden = []: give one or more whole numbers"),
    ("digits:hidden=[8,0]", "MLP: hidden = [8, 0], of which one = 0: give a whole"),
    ("digits:hidden=1000000000000", "give a whole number from 1 to 1000000000"),
    ("digits:hidden=1000000000", "300 GB of memory; up to 64 GB are tried"),
    ("digits:network=[1]", "unknown network [1] (known: "),
    ("digits:network=CNNN", "unknown network 'CNNN'; did you mean 'CNN'?"),
    ("digits:network=CNN,widths=[1]", "CNN: widths = [1]: give 2 whole numbers"),
    ("digits:network=CNN,norm=[1]", 'use "batch" or "group"'),
    ("digits:network=WideResNet,depth=5", "depth"),
    ("synthetic:alpha=1,beta=1,network=CNN", "is for images"),
    ("digits:standard=abc", "standard = 'abc': give true, false or imagenet"),
    ("synthetic:alpha=1,beta=1,standard=True", "has no images; leave it out"),
    ("digits:groups=abc", "groups = {'by': 'abc'}: give {by: parity}"),
    ("digits:guest=abc", "guest = 'abc': digits has no owner of that name"),
    ("synthetic:alpha=nan,beta=1", "synthetic: alpha = nan: give a number >= 0"),
    ("synthetic:alpha=1,beta=-1", "synthetic: beta = -1: give a number >= 0"),
    ("synthetic:alpha=abc,beta=1", "synthetic: alpha = 'abc': give a number >= 0"),
    ("synthetic:alpha=1,beta=1,draw=-1", "synthetic: draw = -1: give a whole number"),
    ("synthetic:alpha=1,beta=1,sizes=5", 'sizes = 5: use "published", "lognormal"'),
    ("synthetic:alpha=1,beta=1,sizes=[9.5]", 'sizes = [9.5]: use "published"'),
    ("synthetic:alpha=1,beta=1,sizes=[10000000000]", "up to 64 GB are tried"),
    ("glyphs:n=1.5", "glyphs: n = 1.5: give at least one image for each"),
    ("glyphs:n=200,spurious=nan", "glyphs: spurious = nan: give a number from 0 to 1"),
    ("glyphs:n=200,clutter=2", "glyphs: clutter = 2: give a number from 0 to 1"),
    ("glyphs:n=200,size=16.5", "glyphs: size = 16.5: give a whole number from 16"),
    ("glyphs:n=200,styles=[foto]", "styles = "),
    ("glyphs:n=200,seed=abc", "glyphs: seed = 'abc': give a whole number >= 0"),
    ("glyphs:n=1000000000000", "up to 64 GB are tried: give fewer or smaller ones"),
    ("domains:preset=PACSS", "preset = 'PACSS'; did you mean 'PACS'?"),
    ("domains:preset=PACS,n=True", "domains: n = True: give at least one image"),
    ("domains:preset=PACS,warp=nan", "domains: warp = nan: give a number from 0 to 1"),
    ("census:n_mean=nan", "census: n_mean = nan: give a whole number >= 4"),
    ("census:clients=52", "census: clients = 52: give a whole number from 1 to 51"),
    ("census:bias_sex=abc", "census: bias_sex = 'abc': give a number"),
    ("census:n_mean=100000000", "up to 64 GB are tried"),
    ("census:task=incom", "did you mean 'income'?"),
    ("adult:by=[1]", "adult: unknown by = [1] (known: occupation, education)"),
    ("adult:least=1.5", "adult: least = 1.5 persons"),
    ("acs:rows=0", "acs: rows = 0: give a whole number >= 1"),
    ("acs:year=abc", "acs: year = 'abc': give the year"),
    ("acs:states=5", "unknown state 5"),
    ("acs:root=5", "root = 5: give the folder of the data sets"),
    ("cifar10:download=abc", "CIFAR-10: download = 'abc': give True or False"),
    ("cifar10:normalise=1", 'normalise = 1: use True, False or "half"'),
    ("cifar10:split=[1]", "split = [1]: give a whole number >= 0, a seed"),
    ("office10:size=0", "office10: size = 0: give a whole number from 1"),
    ("domainbed:which=PAC", "which = 'PAC': no such data set; did you mean 'PACS'?"),
    ("domainbed:which=PACS,most=0", "domainbed: most = 0: give a whole number >= 1"),
    ("mnist5k:noise=nan", "mnist5k: noise = nan: give a number >= 0"),
    ("mnist5k:pool=3", "pool = 3: give a whole number that divides 28"),
    ("digit_sites:n=[5,nan],manners=[plain,uci]", "manners"),
    ("rotated:angles=[0,nan]", "rotated: angles = [0, nan]; give two or more numbers"),
    ("colored:flips=[0,True]", "colored: flips = [0, True]; give two or more numbers"),
    ("features:data=5,model=5", "data = 5: describe the source of the images"),
]


@pytest.mark.parametrize("task, says", TASKS)
def test_a_bad_task_is_refused(capsys, task, says):
    refused(capsys, (*RUN, task, "--rounds", "1"), (says,))


SETTINGS = [  # (method, NAME=VALUE, what the message says)
    ("FedAvg", "step=SAM(rho=-1)", "SAM.rho = -1: give a number >= 0"),
    ("FedAvg", "step=SAM(rho=nan)", "SAM.rho = nan: give a number >= 0"),
    ("FedAvg", "step=SAM(rho=inf)", "SAM.rho = inf: give a number >= 0"),
    ("FedAvg", "step=SAM(rho=True)", "SAM.rho = True: give a number >= 0"),
    ("FedAvg", "step=SAM(1,2)", "write SAM(rho"),
    ("FedAvg", "step=SAM(rh=1)", "write SAM(rho"),
    ("FedAvg", "step=SAM(rho=x)", "write SAM(rho"),
    ("FedAvg", "step=Private(sigma=-1)", "sigma=-1): give clip > 0"),
    ("FedAvg", "step=Private(clip=nan)", "clip=nan, sigma=1.0): give clip > 0"),
    ("FedAvg", "rule=TrimmedMean(trim=.5)", "trim = 0.5: this share"),
    ("FedAvg", "rule=TrimmedMean(trim=nan)", "give 0 <= trim < 0.5"),
    ("FedAvg", "rule=MultiKrum(bad=True)", "give 0 <= bad < 0.5"),
    ("FedAvg", "rule=DeepSight(inputs=1.5)", "inputs = 1.5: give the number"),
    ("FedAvg", "rule=5", "rule is a piece, written as a call, as in rule=Median()"),
    ("FedAvg", "rule=None", "rule is a piece, written as a call"),
    ("FedAvg", "rule=SAM(.1)", "rule is a piece, written as a call"),
    ("FedAvg", "step=Median()", "step is a piece, written as a call, as in step=SAM()"),
    ("FedAvg", "rule=Medan()", "unknown piece 'Medan'; did you mean 'Median'?"),
    ("FedAvg", "lr=SAM()", "lr is no piece; pieces are for step and rule"),
    ("FedAvg", "lr=True", "FedAvg.lr = True is no number"),
    ("FedAvg", "lr=abc", "FedAvg.lr = 'abc' is no number"),
    ("FedAvg", "lr=[.1]", "FedAvg.lr = [0.1] is no number"),
    ("FedAvg", "lr=nan", "FedAvg.lr = nan is outside [0, inf]"),
    ("FedAvg", "lr=inf", "FedAvg.lr = inf is too large"),
    ("FedAvg", "lr=1e300", "FedAvg.lr = 1e+300 is too large"),
    ("FedAvg", "lr=-inf", "FedAvg.lr = -inf is outside [0, inf]"),
    ("FedAvg", "epochs=1.5", "FedAvg.epochs = 1.5 is not a whole number"),
    ("FedAvg", "epochs=True", "FedAvg.epochs = True is not a whole number"),
    ("FedAvg", "poisson=2", "FedAvg.poisson = 2 is not one of True, False"),
    ("FedAvg", "momentum=1.5", "FedAvg.momentum = 1.5 is outside [0, 1]"),
    ("FedAvg", "lr", "write name=value, as in --set lr=0.05"),
    ("FedAvg", "lrr=1", "no hyper-parameter 'lrr'; did you mean 'lr'?"),
    ("FedGA", "theta=-1", "FedGA.theta = -1: x would have to rise; give a number >= 0"),
    ("FedGA", "theta=2", "FedGA.theta = 2: a Gini coefficient is at most 1; give"),
    ("FedGA", "theta=-1/2", "FedGA.theta = '-1/2' is no number"),
    ("FedGA", "theta=nan", "FedGA.theta = nan is outside"),
    ("FedGA", "alpha=inf", "FedGA.alpha = inf is too large"),
    ("FedGini", "theta=-0.5", "FedGini.theta = -0.5: x would have to rise"),
    ("FedMGDA+", "server_lr=1e300", "server_lr = 1e+300 is too large"),
    ("Uniform-update", "inner=FedAvgg", "did you mean 'FedAvg'?"),
]


@pytest.mark.parametrize("method, pair, says", SETTINGS)
def test_a_bad_setting_is_refused(capsys, method, pair, says):
    argv = ("run", method, "census:clients=3", "--rounds", "1", "--set", pair)
    refused(capsys, argv, (says,))


OPTIONS = [  # (arguments after `run FedAvg digits`, what the message says)
    ("--every 0", "--every: '0': give a whole number >= 1"),
    ("--every x", "--every: 'x': give a whole number >= 1"),
    ("--every 1e30", "--every: '1e30': give a whole number >= 1"),
    ("--rounds -1", "--rounds: '-1': give a whole number >= 0"),
    ("--rounds 1.5", "--rounds: '1.5': give a whole number >= 0"),
    ("--rounds 99999999999", "--rounds: '99999999999': give a whole number"),
    ("--cohort 0", "--cohort: '0': give a whole number >= 1"),
    ("--cohort 11", "cohort = 11: "),
    ("--seed -1", "--seed: '-1': give a whole number from 0 to 9223372036854775807"),
    (
        "--seed 99999999999999999999",
        "give a whole number from 0 to 9223372036854775807",
    ),
    ("--threads 0", "--threads: '0': give a whole number from 1 to 10000"),
    ("--threads 99999", "--threads: '99999': give a whole number from 1 to 10000"),
    ("--keep x.csv", "--keep x.csv: that is for a study"),
    ("--tier tiny", "--tier tiny: that is for a study"),
    ("--tier huge", "invalid choice: 'huge'"),
    ("--how quickly", "invalid choice: 'quickly'"),
    ("--device tpu", "invalid choice: 'tpu'"),
    ("--folder=", "--folder: '': give the name of a folder"),
    ("--folder /etc/passwd", "/etc/passwd is a file; give a folder"),
    ("--folder /etc/passwd/x", "/etc/passwd is a file; give a folder"),
    ("--scheduler tcp://x:1", "one run stays on this machine"),
    ("--set lr=.1 --set lr=.2", "lr is set twice; give it once"),
]


@pytest.mark.parametrize("more, says", OPTIONS)
def test_a_bad_option_is_refused(capsys, more, says):
    refused(capsys, (*RUN, "digits", *more.split()), (says,))


OTHERS = [  # (command, what the message says)
    ("run fedga/synthetic --folder x", "a study has its own"),
    ("run fedga/synthetic --seed 0", "a study has its own"),
    ("run fedga/synthetic --every 0", "--every: '0': give a whole number >= 1"),
    ("run fedga/synthetic --keep=", "--keep: '': give the name of a file"),
    ("run fedga/synthetic --keep /etc/passwd/x", "/etc/passwd is a file"),
    ("run fedga/synthetik --tier tiny", "did you mean 'synthetic'?"),
    ("run tier/synthetic", "has no 'tier'"),
    ("run fedga/", "a study is paper/study"),
    ("run", "the following arguments are required: method"),
    ("evidence check --workers 0", "--workers: '0': give a whole number from 1"),
    ("evidence verify --sample 0", "--sample: '0': give a whole number >= 1"),
    ("evidence verify --seed -1", "--seed: '-1': give a whole number from 0"),
    ("deploy keys NEW --host ü.example --clients 2", "as xn--tda.example"),
    ("deploy keys NEW --host= --clients 2", "host = '': give an address or a name"),
    ("deploy keys NEW --host a..b --clients 2", "host = 'a..b': give an address"),
    ("deploy keys NEW --host a --clients 0", "clients = 0: give a whole number from 1"),
    ("deploy keys NEW --host a --clients 999999", "a whole number from 1 to 100000"),
    ("deploy keys NEW --host a --clients 2 --days 99999999", "from 1 to 36500"),
    ("deploy keys NEW --host a --clients 2 --days 0", "from 1 to 36500"),
    ("deploy keys /etc/passwd --host a --clients 2", "/etc/passwd is a file: give a"),
    ("deploy server x.yaml --folder x --patience nan", "--patience = nan: give a num"),
    ("deploy client x.yaml --folder x --client 0 --data x --patience -1", "--patience"),
]


@pytest.mark.parametrize("command, says", OTHERS)
def test_a_bad_command_is_refused(capsys, tmp_path, command, says):
    pytest.importorskip("cryptography")
    new = str(tmp_path / "new")
    argv = [new if word == "NEW" else word for word in command.split()]
    refused(capsys, argv, (says,))
    assert not (tmp_path / "new").exists()


NUMBERS = [  # (line, options that are numbers, what each of them is no number for)
    ("run FedAvg digits", "rounds cohort seed every threads", "nan 1.5 abc -1 1e3"),
    ("run fedga/synthetic", "rounds cohort every", "nan 1.5 abc -1"),
    ("compare FedAvg --task digits", "rounds seeds workers cohort every", "nan x -1 0"),
    ("compare FedAvg --task digits --grid", "budget", "nan abc -1 0"),
    ("evidence compute fedga", "workers", "nan abc -1 0 1e3"),
    ("evidence verify fedga", "sample seed", "nan abc -1 1.5"),
    ("deploy keys NEW --host a --days 3", "clients", "nan abc -1 0"),
    ("deploy keys NEW --host a --clients 3", "days", "nan abc -1 0"),
    ("deploy server x.yaml --folder NEW", "port minimum patience", "abc --x []"),
    ("deploy client x.yaml --folder NEW --data x", "client patience", "abc --x []"),
    ("decide fedga --dry-run", "hours workers", "nan abc -1 0"),
]


def lines_of_numbers():
    """[(line, word of the answer)]"""
    return [
        (f"{line} --{name} {value}", name)
        for line, names, values in NUMBERS
        for name in names.split()
        for value in values.split()
    ]


@pytest.mark.parametrize("line, name", lines_of_numbers())
def test_what_is_no_number_is_refused(capsys, tmp_path, line, name):
    pytest.importorskip("cryptography")
    refused(capsys, line.replace("NEW", str(tmp_path / "new")).split(), (name,))


LINES = [  # (line, what the message says)
    (
        "run FedAvg digits --rounds 1 --rounds=2",
        "--rounds is given twice; give it once",
    ),
    ("run FedAvg digits --round 1 --rounds 1", "--rounds is given twice; give it once"),
    ("compare FedAvg --task digits --task glyphs", "--task is given twice"),
    ("deploy keys new --host a --clients 2 --clients 3", "--clients is given twice"),
    ("deploy server x.yaml --folder a --folder b", "--folder is given twice"),
    ("decide --hours 1 --hours 2", "--hours is given twice"),
    ("run FedAvg digits 'a\nb'", "unrecognized arguments: a b"),
    ("data get '\x1b[31m'", "unknown data set '\\x1b[31m'"),
]


@pytest.mark.parametrize("line, says", LINES)
def test_a_bad_line_is_refused(capsys, tmp_path, monkeypatch, line, says):
    monkeypatch.chdir(tmp_path)
    refused(capsys, shlex.split(line), (says,))


def test_a_federation_of_other_bytes_is_refused(capsys, tmp_path):
    file = tmp_path / "x.yaml"
    file.write_bytes(b"method: [\xff")
    line = ("deploy", "server", str(file), "--folder", str(tmp_path / "new"))
    refused(capsys, line, ("x.yaml is not valid YAML", "invalid start byte"))


# ---------------------------------------------------------------- --debug, and defects
@pytest.mark.parametrize("at", [0, 1, 3])
def test_debug_anywhere_raises_what_is_wrong(at):
    line = [*RUN, "digits:dirichlet=nan"]
    with pytest.raises(ValueError, match="alpha = nan"):
        cli.main([*line[:at], "--debug", *line[at:]])
    with pytest.raises(ValueError, match="--every: '0': give"):
        cli.main([*line[:at], "--debug", *line[at:], "--every", "0"])


def test_a_defect_of_ours_says_so(capsys, monkeypatch):
    monkeypatch.setattr(cli, "parse_task", lambda text: {}[text])
    status, out, err = call(capsys, *RUN, "digits")
    assert (status, out, err.count("\n")) == (70, "", 1)
    assert "this is a defect of fedlib" in err and "KeyError: 'digits'" in err
    assert "--debug shows where: please report it" in err
    with pytest.raises(KeyError):
        cli.main([*RUN, "digits", "--debug"])


def test_what_was_valid_still_is(capsys, tmp_path):
    """The ends of ranges: all of these run."""
    for more in (
        ("--seed", str(2**63 - 1)),
        ("--set", "step=SAM(rho=0)"),
        ("--set", "rule=TrimmedMean(trim=0)"),
        ("--folder", str(tmp_path / "new" / "run")),
    ):
        argv = (*RUN, "digits:clients=3,hidden=[4, 3]", "--rounds", "1", *more)
        status, _, err = call(capsys, *argv)
        assert status == 0 and not err, err
    for theta in ("inf", "-inf", "0", "1"):
        argv = ("run", "FedGA", "digits:clients=3", "--rounds", "1")
        assert call(capsys, *argv, "--set", f"theta={theta}")[0] == 0


def test_too_little_memory_is_one_line(capsys, monkeypatch):
    def never(*_, **__):
        raise RuntimeError("[enforce fail at x] . can't allocate memory: 9 bytes")

    monkeypatch.setattr(cli, "parse_task", never)
    refused(capsys, (*RUN, "digits"), ("too little memory", "smaller"))


def test_ctrl_c_is_one_line(capsys, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "parse_task", stop)
    status, out, err = call(capsys, *RUN, "digits")
    assert (status, out, err.count("\n")) == (130, "", 1)
    assert "stopped, and nothing is kept; with --folder the same command" in err


# ---------------------------------------------------------------- fuzz
WORDS = (
    *("nan", "inf", "-inf", "-1", "0", "1.5", "1e30", "abc", "", "None", "True", "[]"),
    *("[1]", "[nan]", "{}", "{'a': 1}", "1+2j", "b'x'", "SAM(", "SAM(rho=-1)", "()"),
    *("Median()", "'", '"', "\\", "=", ",", ":", "\n", "ü", "10**9", "lambda: 1"),
    *("[[1]]", "0x10", "1_0", "''", "...", "not x", "f'{1}'", "99999999999999999999"),
)
SOURCES = (
    "digits:clients=3,dirichlet=1,batch=8,hidden=4",
    "synthetic:alpha=.5,beta=.5,draw=1",
    "mnist5k:pool=14,noise=.1,labels=3,clients=5",
    "census:clients=3,n_mean=40,n_test=40,bias_sex=1",
    "digit_sites:n=[50, 60],manners=['plain', 'uci'],pool=14",
    "digit_pairs:n=300,pool=14,clients=3,dirichlet=5,split=1",
    "rotated:angles=[0, 45],pool=14,guest=0",
    "adult:by=education,least=300",
)
METHODS = (
    ("FedAvg", "lr=0.1", "step=SAM(rho=0.1)", "rule=Median()", "momentum=.5"),
    ("FedGA", "alpha=2", "theta=0.1", "W=2"),
    ("Ditto", "lam=0.1", "epochs=1"),
    ("FedProx", "mu=0.1", "last=drop"),
)


def mutated(rng):
    """A command that runs, with one to three words of it changed."""
    source, (method, *settings) = rng.choice(SOURCES), rng.choice(METHODS)
    argv = ["run", method, source, "--rounds", "1"]
    for pair in rng.sample(settings, rng.randrange(3)):
        argv += ["--set", pair]
    for flag, v in (("--cohort", "2"), ("--seed", "1"), ("--every", "1")):
        argv += [flag, v] if rng.random() < 0.3 else []
    for _ in range(rng.randint(1, 3)):
        k = rng.randrange(1, len(argv))
        name, colon, rest = argv[k].partition(":" if k == 2 else "=")
        pairs = rest.split(",")
        i = rng.randrange(len(pairs))
        key = pairs[i].partition("=")[0]
        pairs[i] = f"{key}={rng.choice(WORDS)}" if k == 2 else rng.choice(WORDS)
        how = rng.random()
        if colon and how < 0.8:
            argv[k] = f"{name}{colon}{','.join(pairs)}"
        elif how < 0.9:
            argv[k] = rng.choice(WORDS)
        else:
            at = rng.randrange(len(argv[k]) + 1)
            argv[k] = argv[k][:at] + rng.choice(WORDS) + argv[k][at:]
    return argv


@pytest.mark.parametrize("seed", range(4))
def test_fuzz_only_our_own_errors_arise(seed, monkeypatch, tmp_path):
    """50 commands: each ends with 0, or with 2 and one line."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    # what is tested ends where the run begins
    monkeypatch.setattr(cli.engine, "run", lambda *_, **__: None)
    monkeypatch.setattr(cli, "report", lambda *_: None)
    threads, rng, ends = torch.get_num_threads(), random.Random(seed), []
    for _ in range(50):
        argv, err = mutated(rng), io.StringIO()
        with contextlib.redirect_stderr(err), contextlib.redirect_stdout(io.StringIO()):
            try:
                status = cli.main(argv)
            except SystemExit as e:
                status = e.code
            except Exception as e:
                raise AssertionError(f"{argv} -> {e!r}") from e
        lines = err.getvalue().count("\n")
        assert (status, lines) in ((0, 0), (2, 1)), (argv, err.getvalue())
        ends.append(status)
    torch.set_num_threads(threads)
    assert ends.count(2) > 25  # most are mistakes, and are found
