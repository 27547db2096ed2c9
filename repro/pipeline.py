"""Run what is out of date, a line for each stage; called by `make paper`.

    python -m repro.pipeline                       all of it
    python -m repro.pipeline labs@fedga results    these stages and no others

DVC decides what is out of date, runs each stage (``dvc repro --single-item``) and
records it; here they are put in order: a stage begins when the stages before it are
done, those on which most others wait first. What DVC and the notebooks print goes to
runs/paper.log.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import sys
import tempfile
import time
from dataclasses import dataclass
from graphlib import TopologicalSorter
from multiprocessing.connection import wait
from pathlib import Path

import networkx as nx
from dvc.cli import main as dvc
from dvc.exceptions import DvcException
from dvc.repo import Repo
from filelock import FileLock, Timeout

from fedlib.cli.program import program

LOG = Path("runs/paper.log")
LOCK = Path("runs/paper.lock")
BOOK = Path("book/_build/html/index.html")
QUIET = 30  # seconds without news, then we name what runs
TAIL = 30  # lines of a failed stage that are shown


def plan(only: list[str] = ()) -> dict[str, set[str]]:
    """{stage that DVC finds out of date, or that follows from one: those of them that
    it waits for}; of the stages `only`, where these are named. Where most wait, first.
    """
    with Repo() as repo:
        stale = set(repo.status(list(only) or None))
        names = {stage: stage.addressing for stage in repo.index.graph}
        graph = nx.relabel_nodes(repo.index.graph, names)
    # edges go to what a stage needs
    todo = stale.union(*(nx.ancestors(graph, stage) for stage in stale))
    todo = todo & set(only) if only else todo
    many = lambda stage: (-len(nx.ancestors(graph, stage)), stage)
    return {s: nx.descendants(graph, s) & todo for s in sorted(todo, key=many)}


# ---------------------------------------------------------------- one stage
@dataclass
class Running:
    """A stage at work in a fork of this process, which has imported DVC."""

    stage: str

    def __post_init__(self):
        self.start, self.output = time.perf_counter(), tempfile.TemporaryFile()
        fork = multiprocessing.get_context("fork")
        self.process = fork.Process(target=self.repro)
        self.process.start()

    def repro(self):
        """In the fork: be ``dvc repro`` of the stage."""
        for standard in (1, 2):
            os.dup2(self.output.fileno(), standard)
        sys.exit(dvc(["--wait-for-lock", "repro", "--single-item", self.stage]))

    def seconds(self) -> str:
        """How long it has run, in words."""
        return span(time.perf_counter() - self.start)

    def printed(self) -> str:
        """What it has printed."""
        self.output.seek(0)
        return self.output.read().decode(errors="replace")


def result(printed: str) -> str:
    """What DVC did with a stage that has not failed, from what it printed."""
    if re.search(r"^Stage '.*' is cached", printed, re.M):
        return "restored from DVC's cache"
    return "done" if re.search(r"^Running stage '", printed, re.M) else "as before"


def span(seconds: float) -> str:
    """How one says a duration: "8 s", "1 min 12 s", "2 h 5 min"."""
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def failure(stage: str, printed: str) -> str:
    """What a reader needs who has only the terminal."""
    last = "\n".join(f"    {line}" for line in printed.splitlines()[-TAIL:])
    alone = f"PATH={Path(sys.prefix, 'bin')}:$PATH dvc repro --single-item {stage}"
    return f"\n{last}\n\n    All that it printed: {LOG}. It alone: {alone}"


# ---------------------------------------------------------------- all of them
def run(waits: dict[str, set[str]], jobs: int, log) -> str | None:
    """Run the stages of a plan, `jobs` at a time; the first that failed, if one did."""
    order, ready, running, failed, ended = TopologicalSorter(waits), [], {}, None, 0
    start = time.perf_counter()
    order.prepare()
    while running or (order.is_active() and not failed):
        ready = sorted([*ready, *order.get_ready()], key=[*waits].index)
        while ready and len(running) < jobs and not failed:
            job = Running(ready.pop(0))
            running[job.process.sentinel] = job
        over = wait([*running], QUIET)
        for job in map(running.pop, over):
            job.process.join()
            ended, printed = ended + 1, job.printed()
            log.write(f"=== {job.stage}\n{printed}\n".encode())
            head = f"[{ended:2d}/{len(waits)}] {job.stage}:"
            if job.process.exitcode:
                failed = failed or job.stage
                said = f"FAILED after {job.seconds()}\n{failure(job.stage, printed)}"
            else:
                order.done(job.stage)
                far = span(time.perf_counter() - start)
                said = f"{result(printed)}, {job.seconds()}; {far} so far"
            print(head, said, flush=True)
        if not over:
            names = [f"{job.stage} ({job.seconds()})" for job in running.values()]
            print(f"        still running: {', '.join(names)}", flush=True)
    return failed


def paper(jobs: int, only: list[str] = ()) -> int:
    """What `make paper` does, after the installation; the exit status."""
    start, waits = time.perf_counter(), plan(only)
    if not waits:
        print("Nothing to do: everything is up to date.")
        return 0
    many = f"{len(waits)} stage{'s' * (len(waits) > 1)} to run, {jobs} at a time"
    print(f"{many}; what is printed goes to {LOG}", flush=True)
    with LOG.open("wb", buffering=0) as log:
        failed = run(waits, jobs, log)
    so = "Stopped there" if failed else "Done"
    print(f"{so} after {span(time.perf_counter() - start)}.")
    return bool(failed)


def main(*stages: str, jobs: int = min(os.cpu_count(), 4)) -> int:
    """Run what is out of date, a line for each stage; the exit status.

    stages: these alone
    jobs: stages at a time (default: one per core, four at most)
    """
    # stages call plain `python`
    os.environ["PATH"] = f"{Path(sys.prefix) / 'bin'}:{os.environ['PATH']}"
    # stages run side by side; a second thread of each would wait
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    LOCK.parent.mkdir(exist_ok=True)
    try:
        with FileLock(LOCK, timeout=0):
            status = paper(jobs, stages)
    except Timeout:
        raise ValueError("another `make paper` is at work here: wait for it") from None
    except DvcException:
        return dvc(["status"]) or 1  # which tells what is wrong, and where
    except KeyboardInterrupt:  # Ctrl-C reaches the stages, too
        raise KeyboardInterrupt("stopped; `make paper` goes on from here") from None
    if not status and not stages:
        print(f"The book: {BOOK.resolve()}")
    return status


if __name__ == "__main__":
    program(main)
