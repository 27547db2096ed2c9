"""Command lines with mistakes: the tables of given/lines.py, each with the words that
it must answer; and good lines with words dropped, doubled, swapped, or replaced by
nonsense. One in twenty is a process of its own.

A line that ends with 0 must have done what it says. Any other must end with one line
that a `raise` of ours has made, or the system about a file. What would take hours, wait
for others or need the net is cut short behind the checks of what was asked.
"""

from __future__ import annotations

import contextlib
import functools
import io
import linecache
import os
import random
import resource
import shlex
import signal
import subprocess
import sys
import tempfile
import urllib.request
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pandas as pd
import torch

import fedlib
from fedlib.cli import main as cli
from fedlib.cli import program
from fedlib.core import engine
from fedlib.study import audit, identity, once

from .count import Count
from .given import lines as given

attempts = 600
ROOT = Path(__file__).resolve().parents[1]
LONGEST, LATE = 60, 900  # seconds of one line, of the processor and of the clock
SIGNALS = signal.SIGALRM, signal.SIGPROF, signal.SIGTERM
MEMORY = 3 * 2**30  # bytes that a line may add

DIGITS = "digits:clients=3,hidden=4,batch=16"
ROWS = "--data my.csv --client ward --label ill"
GOOD = [
    *("methods", "show FedGA", "data", "data get digits adult"),
    f"run FedAvg {DIGITS},dirichlet=1 --rounds 1 --seed 3 --cohort 2 --every 1",
    f"run FedGA {DIGITS} --rounds 1 --set theta=.1 --set alpha=2 --folder new",
    f"run Ditto {DIGITS} --rounds 2 --set lam=.5 --device cpu",
    f"run EquFL {DIGITS},groups=parity --rounds 4 --set size=20 --set inner=FedProx",
    "run FedAvg synthetic:alpha=.5,beta=.5 --rounds 1 --set 'step=SAM(rho=.1)'",
    "run FedAvg census:clients=3,n_mean=40 --rounds 1 --set 'rule=Median()'",
    f"compare FedAvg FedProx {ROWS} --rounds 1 --seeds 2 --set FedProx.mu=.5",
    f"compare FedAvg Ditto {ROWS} --sensitive sex --rounds 1"
    " --seeds 1 --report page.html",
    f"compare FedAvg --task {DIGITS} --rounds 2 --seeds 1 --cohort 2 --folder new",
    f"compare FedProx {ROWS} --rounds 1 --seeds 1 --workers 1",
    "evidence compute fedga/synthetic --tier tiny",
    *("evidence pack fedga --anew", "evidence check fedga"),
    "evidence verify fedga --sample 1 --seed 3",
    "deploy keys new --host server.example --host 10.0.0.1 --clients 2 --days 3",
    f"deploy app new --method Ditto --task {DIGITS} --rounds 3 --cohort 2 --set lam=.5",
]
USUAL = [*("0", "1", "2", "3", "5", ".5", "1.0", "True", "new", "FedAvg", "a=1")]
WORDS = [
    *("nan", "-1", "0", "1", "1.5", "1e308", "1e999", "-inf", "99999999999999999999"),
    *("True", "None", "abc", "", " ", "\n", "ü", "٣", "\udcff", "\x1b[31m", "x" * 5000),
    *("[]", "[[1]]", "{}", "(", "'", '"', "\\", "=", ",", ":", "a=b", "%s", "{0}", "-"),
    *("--", "--x", "-h", "SAM(", "SAM(rho=-1)", "lambda: 1", "[" * 999, "0x10", "1_0"),
    *("/dev/full", "/dev/null", "/etc/passwd", "/etc/passwd/x", "/", ".", "..", "~"),
    *("nowhere/x", "folder", "my.csv", "mine.npz", "damaged.yaml"),
    *("fedga", "FedAvg", "digits", "--rounds", "--set", "--folder", "run", "y" * 300),
]


class Enough(BaseException):
    """All checks have passed; here the work would begin."""


class Endless(BaseException):
    """It took longer than LONGEST or LATE."""


@dataclass
class Seen:
    """What a line has led to, and the exception that ended it."""

    runs: list = field(default_factory=list)  # (method, task, rounds, keywords)
    records: list = field(default_factory=list)
    compared: list = field(default_factory=list)
    error: BaseException | None = None


# --------------------------------------------------------------- a line in this process
def enough(*_, **__):
    raise Enough


def offline(*_, **__):
    raise OSError("there is no net here")


def watched(seen):
    """engine.run that notes what it is asked, and ends long runs after a round."""
    real = engine.run

    @functools.wraps(real)
    def run(method, task, rounds, seed=0, **more):
        more["seed"] = seed
        seen.runs.append((method, task, rounds, more))
        short = {} if rounds <= 2 else {"upto": 1}
        record = real(method, task, rounds, **more | short)
        seen.records.append(record)
        return record

    return run


@contextlib.contextmanager
def cut_short(folder):
    """What takes hours, waits for others or needs the net ends behind its checks."""
    seen, told, compare = Seen(), program.explained, fedlib.compare

    def note(e):
        seen.error = e
        return told(e)

    def compared(*given, **more):
        seen.compared.append(compare(*given, **more))
        return seen.compared[-1]

    with contextlib.ExitStack() as stack:
        for module, name, new in (
            (program, "explained", note),
            (engine, "run", watched(seen)),
            (fedlib, "run", watched(seen)),
            (fedlib, "compare", compared),
            (audit, "compute_all", enough),
            (audit, "check", list),
            (audit, "packable", lambda *_: enough()),
            (once, "pack", enough),
            (audit, "verify", lambda *a: (audit.chosen(a[2]), enough())),
            (urllib.request, "urlopen", offline),
            (identity, "warn_if_edited", lambda *_: None),
            (tempfile, "tempdir", str(folder)),
        ):
            stack.enter_context(patch.object(module, name, new))
        yield seen


@contextlib.contextmanager
def limits():
    """An end after LONGEST seconds of the processor, or LATE of the clock, and of
    memory; SIGTERM as it was.
    """

    def late(*_):
        raise Endless

    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    usual = resource.getrlimit(resource.RLIMIT_AS)
    before = {s: signal.getsignal(s) for s in SIGNALS}
    signal.signal(signal.SIGALRM, late)
    signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_REAL, LATE)
    signal.setitimer(signal.ITIMER_PROF, LONGEST)
    resource.setrlimit(resource.RLIMIT_AS, (now + MEMORY, usual[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, usual)
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


def called(argv, folder):
    """(exit status, stderr, Seen) of a line; the status is what escaped, where an
    exception did.
    """
    err = io.StringIO()
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.chdir(folder))
        stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
        stack.enter_context(contextlib.redirect_stderr(err))
        stack.enter_context(warnings.catch_warnings(action="ignore"))
        seen = stack.enter_context(cut_short(folder))
        stack.enter_context(limits())
        try:
            status = cli.main(list(argv))
        except SystemExit as e:
            status = e.code
        except Enough:
            status = 0
        except BaseException as e:
            status = e
    return status, err.getvalue(), seen


def judged(argv, folder):
    """(outcome, why) of a line."""
    status, err, seen = called(argv, folder)
    if isinstance(status, Endless):
        return ("accepted", "") if seen.runs else ("raw", "it does not end")
    if isinstance(status, BaseException):
        return "raw", repr(status)
    if status == 0:
        why = unlike(argv, seen, folder)
        return ("silent", why) if why else ("accepted", "")
    if status not in (program.FAILED, program.MISTAKE) or not err.strip():
        return "raw", f"status {status}: {err}"
    if err.count("\n") != 1 or "Traceback" in err:
        return "raw", f"{err.count(chr(10))} lines: {err}"
    if not ours(seen.error):
        return "raw", f"not by a raise of ours: {seen.error!r}"
    return "clean", ""


def ours(e):
    """Whether an exception was made by a `raise` of this repository, or is the
    system's about a file.
    """
    if isinstance(e, OSError) and (e.filename is not None or not e.errno):
        return True
    if isinstance(e, MemoryError) or "can't allocate memory" in str(e):
        return True
    at = e.__traceback__
    while at.tb_next:
        at = at.tb_next
    file = at.tb_frame.f_code.co_filename
    line = linecache.getline(file, at.tb_lineno).strip()
    return file.startswith(str(ROOT)) and line.startswith("raise")


# ------------------------------------------------------------ has it done what it says?
def flags(argv):
    """{flag: [its values]} of a line, --x=v and --x v."""
    out = {}
    for word, after in zip(argv, [*argv[1:], ""]):
        if word.startswith("--"):
            name, eq, value = word[2:].partition("=")
            out.setdefault(name, []).append(value if eq else after)
    return out


def unlike(argv, seen, folder):
    """What a line says and was not done; "" where all was."""
    given = flags(argv)
    if {"help", "version"} & {*given} or "-h" in argv:
        return ""
    if argv[:1] == ["run"]:
        return unlike_run(argv, given, seen, folder)
    if argv[:1] == ["compare"]:
        return unlike_comparison(given, seen)
    if argv[:2] == ["deploy", "keys"]:
        made = len(list(Path(folder, argv[2]).glob("client-*.pub")))
        return "" if [str(made)] == given["clients"] else f"{made} clients have keys"
    return ""


def number(text):
    """The number that a text is, or None; 0x10 is one."""
    for read in (float, functools.partial(int, base=0)):
        with contextlib.suppress(ValueError):
            return read(text)
    return None


def unlike_run(argv, given, seen, folder):
    if not seen.runs:
        return "nothing has run"
    method, task, rounds, more = seen.runs[-1]
    there = more | {"rounds": rounds}
    wrong = [k for k in ("rounds", "seed", "cohort", "every") if k in given]
    wrong = [k for k in wrong if number(given[k][-1]) != there[k]]
    for pair in given.get("set", ()):
        name, _, text = pair.partition("=")
        holder = method if hasattr(method, name) else getattr(method, "inner", None)
        value = getattr(holder, name, None)
        if isinstance(value, (int, float)) and number(text) != value:
            wrong += [pair] if text not in ("True", "False") else []
    for pair in argv[2].partition(":")[2].split(","):
        name, _, text = pair.partition("=")
        value = {"clients": task.C, "batch": task.batch}.get(name.strip())
        wrong += [pair] if value is not None and number(text) != value else []
    if "folder" in given and not Path(folder, given["folder"][-1]).is_dir():
        wrong += ["folder"]
    if seen.records and not finite(seen.records[-1]):
        wrong += ["accuracies that are not finite"]
    return ", ".join(wrong)


def finite(record):
    """Whether all accuracies are numbers from 0 to 1."""
    tests = [a for (_, _, split), a in record.views.items() if split == "test"]
    return all(((a >= 0) & (a <= 1)).all() for a in map(np.asarray, tests))


def unlike_comparison(given, seen):
    if not seen.compared:
        return "nothing was compared"
    records, wrong = seen.compared[-1].records, []
    n = max(map(len, records.values()))
    rounds = next(iter(records.values()))[0].meta["rounds"]
    wrong += ["seeds"] if number(given.get("seeds", ["3"])[-1]) != n else []
    wrong += ["rounds"] if number(given.get("rounds", ["50"])[-1]) != rounds else []
    if not all(finite(r) for some in records.values() for r in some):
        wrong += ["accuracies that are not finite"]
    return ", ".join(wrong)


# ---------------------------------------------------------------- lines
def prepare(folder):
    """The files that lines name, in a folder."""
    draw = np.random.default_rng(0)
    rows = pd.DataFrame(draw.normal(size=(160, 2)).round(3), columns=["age", "bmi"])
    rows["sex"] = np.where(draw.random(160) < 0.5, "f", "m")
    rows["ward"] = [f"ward {i % 4}" for i in range(160)]
    rows["ill"] = np.where(rows.age + draw.normal(size=160) / 4 > 0, "yes", "no")
    rows.to_csv(folder / "my.csv", index=False)
    rows.rename(columns={"ward": "hospital"}).to_csv(
        folder / "hospital.csv", index=False
    )
    x, y = draw.normal(size=(40, 5)).astype(np.float32), np.arange(40) % 2
    np.savez(folder / "mine.npz", x=x, y=y)
    (folder / "damaged.yaml").write_bytes(b"method: [\xff\x00")
    (folder / "bad.parquet").write_text("no")
    (folder / "x.xlsx").write_text("no")
    (folder / "none.csv").write_text("a,b\n")
    (folder / "folder").mkdir()


def kept():
    """[(line, words of the answer)] of the tables."""
    run = ["run", "FedAvg"]
    lines = [([*run, task, "--rounds", "1"], says) for task, says in given.TASKS]
    for method, pair, says in given.SETTINGS:
        line = ["run", method, "census:clients=3", "--rounds", "1", "--set", pair]
        lines.append((line, says))
    lines += [([*run, "digits", *text.split()], says) for text, says in given.OPTIONS]
    more = [(f"compare {text}", says) for text, says in given.COMPARE]
    more += given.OTHERS + given.lines_of_numbers() + given.LINES
    return lines + [(shlex.split(t.replace("NEW", "new")), says) for t, says in more]


def mutated(draw):
    """A good line with one or two mistakes, most of them in a value."""
    argv = shlex.split(draw.choice(GOOD))
    for _ in range(draw.choice((1, 1, 1, 2))):
        word = draw.choice(USUAL if draw.random() < 0.4 else WORDS)
        values = [i for i, w in enumerate(argv) if i and not w.startswith("--")]
        if values and draw.random() < 0.75:
            k = draw.choice(values)
            entry = "=" in argv[k] and draw.random() < 0.8
            argv[k] = with_entry(argv[k], word, draw) if entry else word
        else:
            change_words(argv, word, draw)
    return argv


def change_words(argv, word, draw):
    """Drop, double or swap a word, put one in, or letters into one."""
    j, k = (draw.randrange(len(argv)) for _ in range(2))
    how = draw.randrange(5)
    if how == 0 and len(argv) > 1:
        del argv[k]
    elif how == 1:
        argv.insert(k, argv[k])
    elif how == 2:
        argv[j], argv[k] = argv[k], argv[j]
    elif how == 3:
        argv.insert(k, word)
    else:
        at = draw.randrange(len(argv[k]) + 1)
        argv[k] = argv[k][:at] + word + argv[k][at:]


def with_entry(text, word, draw):
    """ "digits:a=1,b=2" with another value, or name, of one entry."""
    head, colon, rest = text.rpartition(":")
    pairs = rest.split(",")
    i = draw.randrange(len(pairs))
    name, _, value = pairs[i].partition("=")
    pairs[i] = f"{name}={word}" if draw.random() < 0.8 else f"{word}={value}"
    return head + colon + ",".join(pairs)


# ---------------------------------------------------------------- count
def as_process(argv, says, folder):
    """(outcome, why) of a line of the tables, as a process."""
    env = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    how = {"cwd": folder, "env": env, "stdin": subprocess.DEVNULL, "timeout": 300}
    line = [sys.executable, "-m", "fedlib", *argv]
    done = subprocess.run(line, capture_output=True, text=True, **how)
    told = [e for e in done.stderr.split("\n") if ": warning: fewer than" not in e]
    if done.returncode == 2 and len(told) == 2 and says in told[0] and not told[1]:
        return "clean", ""
    return "raw", f"status {done.returncode}: {done.stderr[-300:]}"


def refused(argv, says, folder):
    """(outcome, why) of a line of the tables, which must be refused by these words."""
    outcome, why = judged(argv, folder)
    if outcome == "accepted":
        return "silent", "it should have been refused"
    if outcome == "clean" and says not in called(argv, folder)[1]:
        return "raw", f"not by {says!r}"
    return outcome, why


def state():
    """What git says of the files that it tracks, and what else lies in the root."""
    ask = ["git", "status", "--porcelain", "--untracked-files=no"]
    told = subprocess.run(ask, cwd=ROOT, capture_output=True, text=True).stdout
    return told, {p.name for p in ROOT.iterdir() if not p.name.startswith(".")}


def measure(n, seed):
    """n lines -> [Count]."""
    draw, count, before = (
        random.Random(f"commands {seed}"),
        Count("command line"),
        state(),
    )
    known, threads = kept(), torch.get_num_threads()
    chosen = known if n >= 2 * len(known) else draw.sample(known, n // 2)
    with tempfile.TemporaryDirectory() as at:
        for i in range(n):
            folder = Path(at, str(i))
            folder.mkdir()
            prepare(folder)
            if i < len(chosen):
                argv, says = chosen[i]
                act = as_process if i % 10 == 9 else refused
                outcome, why = act(argv, says, folder)
            else:
                argv = mutated(draw)
                outcome, why = judged(argv, folder)
            count.add(outcome, f"{shlex.join(argv)!a:.300}: {why!a:.300}")
    torch.set_num_threads(threads)
    if state() != before:
        count.add("lost", f"files of the repository changed: {state()}")
    return [count]
