"""Break the code on purpose, and ask whether the tests notice: `make mutants`.

    python mutants                     all faults
    python mutants core study          the faults of two groups
    python mutants core.decay-sign     one fault
    python mutants --jobs 2            two at a time, each in a copy of its own

A fault is a table of mutants/<group>.toml: `file`, the text `old` that stands there
once, the text `new` in its place, and `tests`, the layers of tests/ that should notice
(their folders or files, space between). Where these pass, all other tests run. A fault
that is not noticed needs a `reason`, and is listed with it.

Nothing in this checkout is changed: a copy of it is.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

HERE, ROOT = Path(__file__).parent, Path(__file__).resolve().parents[1]
LEAST = 0.95  # of each group that must be noticed
LONGEST = 900  # CPU seconds of one run of tests; what hangs is noticed


def faults() -> dict[str, dict]:
    """{"group.name": fault}"""
    return {
        f"{path.stem}.{name}": fault
        for path in sorted(HERE.glob("*.toml"))
        for name, fault in tomllib.loads(path.read_text("utf-8")).items()
    }


def chosen(names: list[str]) -> dict[str, dict]:
    all_ = faults()
    for n in names:
        if not any(n in (k, k.split(".")[0]) for k in all_):
            sys.exit(f"{n!r} is no fault and no group; groups: {counted(all_)}")
    return {
        k: f for k, f in all_.items() if not names or {k, k.split(".")[0]} & {*names}
    }


def counted(names) -> str:
    groups = [n.split(".")[0] for n in names]
    return ", ".join(f"{g} ({groups.count(g)})" for g in dict.fromkeys(groups))


def copied(folder: Path) -> Path:
    """A copy of what git tracks or would track."""
    args = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(args, cwd=ROOT, capture_output=True, check=True, text=True)
    for name in listed.stdout.split("\0")[:-1]:
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    for words in ("init -q", "add -A", "-c gc.auto=0 commit -qm copy"):
        subprocess.run(["git", *words.split()], cwd=folder, check=True)
    return folder


# ------------------------------------------------------------------- one run of tests
def tested(folder: Path, args: list[str], log: Path) -> str:
    """What the first failing test is called; "" where all pass."""
    ours, theirs = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(
        target=run_tests, args=(folder, args, log, theirs)
    )
    child.start()
    child.join()
    if ours.poll():
        return ours.recv()
    ended = f"the process ended with {child.exitcode}"
    return (
        f"({ended})" if child.exitcode < 0 else f"STALE: {ended}"
    )  # a signal: it hung


def run_tests(folder: Path, args: list[str], log: Path, pipe) -> None:
    """In a child: it has the heavy packages from its parent and loads fedlib anew."""
    import pytest
    from hypothesis import Phase, settings

    class First:
        name = ""

        def pytest_collection_finish(self):
            """A failing example is enough: a smaller one is not looked for."""
            phases = Phase.explicit, Phase.generate
            settings.register_profile("first", settings(), phases=phases)
            settings.load_profile("first")

        def pytest_runtest_logreport(self, report):
            if report.failed and not self.name:
                self.name = report.nodeid

        def pytest_collectreport(self, report):
            if report.failed and not self.name:
                self.name = f"{report.nodeid} (cannot be read)"

    first = First()
    resource.setrlimit(resource.RLIMIT_CPU, (LONGEST, LONGEST))
    os.chdir(folder)
    sys.path[:] = [str(folder), *(p for p in sys.path if p not in ("", str(ROOT)))]
    os.environ["PYTHONPATH"] = str(folder)
    with log.open("w") as out:
        os.dup2(out.fileno(), 1)
        os.dup2(out.fileno(), 2)
        usual = ["-x", "-q", "-m", "not nightly", "-p", "no:cacheprovider", "-p"]
        code = pytest.main([*usual, "no:xdist", "--tb=short", *args], plugins=[first])
    pipe.send(first.name or ("" if code == 0 else f"STALE: pytest ended with {code}"))
    os._exit(0)


def warm() -> None:
    """Import what all tests need, so that children do not."""
    import hypothesis.strategies  # noqa: F401
    import matplotlib.pyplot  # noqa: F401
    import pandas  # noqa: F401
    import pyarrow.parquet  # noqa: F401
    import pydantic  # noqa: F401
    import scipy.stats  # noqa: F401
    import seaborn  # noqa: F401
    import sklearn.metrics  # noqa: F401
    import torch
    import torch.func  # noqa: F401

    torch.set_num_threads(1)


# ----------------------------------------------------------------------- one fault
def tried(name: str, fault: dict, folder: Path, logs: Path, own: bool) -> str:
    """Who noticed the fault; "" for nobody. own: of the layers that it names."""
    path = folder / fault["file"]
    right = path.read_text("utf-8")
    if right.count(fault["old"]) != 1:
        return (
            f"STALE: its text stands {right.count(fault['old'])} times in {path.name}"
        )
    first = [f"tests/{t}" for t in fault["tests"].split()]
    rest = ["tests", *(f"--ignore={t}" for t in first)]
    try:
        path.write_text(right.replace(fault["old"], fault["new"]), "utf-8")
        forget(path)
        log = logs / f"{name}.log"
        return (
            tested(folder, first, log) or (not own and tested(folder, rest, log)) or ""
        )
    finally:
        path.write_text(right, "utf-8")
        forget(path)


def forget(path: Path) -> None:
    """Its compiled form, which is known by size and second alone."""
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        compiled.unlink()


def sound(todo: dict, logs: Path) -> str:
    """What fails in a copy without a fault: then no fault can be told."""
    layers = {f"tests/{t}" for fault in todo.values() for t in fault["tests"].split()}
    with tempfile.TemporaryDirectory(prefix="mutants-") as tmp:
        args = ["tests"] if len(todo) == len(faults()) else sorted(layers)
        return tested(copied(Path(tmp)), args, logs / "without-a-fault.log")


def worker(jobs, answers, logs: Path, own: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="mutants-") as tmp:
        folder = copied(Path(tmp))
        for name, fault in iter(jobs.get, None):
            began = time.time()
            who = tried(name, fault, folder, logs, own)
            answers.put((name, who, time.time() - began))


def main() -> int:
    p = argparse.ArgumentParser(prog="python mutants", description=__doc__)
    p.add_argument("names", nargs="*", metavar="group or group.fault")
    p.add_argument("--jobs", type=int, default=1)
    p.add_argument("--own", action="store_true", help="only the layers it names")
    p.add_argument("--list", action="store_true", help="count them and stop")
    args = p.parse_args()
    todo = chosen(args.names)
    if args.list:
        print(f"{len(todo)} faults: {counted(todo)}")
        return 0
    warm()
    logs = Path(tempfile.mkdtemp(prefix="mutants-logs-"))
    if who := sound(todo, logs):
        sys.exit(f"without any fault {who} fails; see {logs}")
    fork = multiprocessing.get_context("fork")
    jobs, answers = fork.Queue(), fork.Queue()
    for job in [*todo.items(), *[None] * args.jobs]:
        jobs.put(job)
    at_work = [
        fork.Process(target=worker, args=(jobs, answers, logs, args.own))
        for _ in range(args.jobs)
    ]
    for w in at_work:
        w.start()
    noticed = {}
    for _ in todo:
        name, who, seconds = answers.get()
        noticed[name] = who
        print(f"{name:45} {seconds:5.0f} s  {who or 'NOT NOTICED'}", flush=True)
    for w in at_work:
        w.join()
    return report(todo, noticed, logs)


def report(todo: dict, noticed: dict, logs: Path) -> int:
    """A table by group; 1 where one is below LEAST, a fault stale or unexplained."""
    bad, stale = 0, {k for k, who in noticed.items() if who.startswith("STALE")}
    print(f"\n{'group':12} {'faults':>7} {'noticed':>8}")
    for group in dict.fromkeys(k.split(".")[0] for k in todo):
        names = [k for k in todo if k.split(".")[0] == group]
        found = [k for k in names if noticed[k] and k not in stale]
        bad += len(found) < LEAST * len(names)
        print(f"{group:12} {len(names):7} {len(found):8}")
    missed = [k for k in todo if not noticed[k]]
    found = len(todo) - len(missed) - len(stale)
    print(f"{'all':12} {len(todo):7} {found:8}\n")
    for k in missed:
        print(f"{k}: {todo[k].get('reason', 'no reason is given')}")
    print(f"what the tests said: {logs}")
    return int(bad + len(stale) + sum("reason" not in todo[k] for k in missed) > 0)


if __name__ == "__main__":
    sys.exit(main())
