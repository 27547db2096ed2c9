"""Run what is out of date, a line for each stage; called by `make paper`.

    python -m repro.pipeline                       all of it
    python -m repro.pipeline labs@fedga results    these stages and no others

DVC decides what is out of date, runs each stage (``dvc repro --single-item``) and
records it; here they are put in order: a stage begins when the stages before it are
done, those with the longest way to the end first. Notebooks fork from one warm process
(repro.warm). What DVC and the notebooks print goes to runs/paper.log.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import re
import select
import signal
import statistics
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import networkx as nx
from dvc.cli import main as dvc
from dvc.exceptions import DvcException
from dvc.repo import Repo

from fedlib.core import ends
from repro import warm

LOG = Path("runs/paper.log")
LOCK = Path("runs/paper.lock")
SECONDS = Path("runs/paper-seconds.json")  # {stage: seconds} of the last time it ran
BOOK = Path("book/_build/html/index.html")
QUIET = 30  # seconds without news, then we name what runs
TAIL = 30  # lines of a failed stage that are shown


@dataclass(frozen=True)
class Plan:
    """before: {stage that runs, or may run: those of them that it waits for}; usual:
    {stage: seconds}.

    notebooks: whether one of them executes a notebook.
    """

    before: dict[str, set[str]]
    notebooks: bool = False
    usual: dict[str, float] = field(default_factory=dict)

    def seconds(self, stage: str) -> float:
        """How long a stage usually takes."""
        return self.usual.get(stage) or statistics.median(
            list(self.usual.values()) or [10]
        )

    def way(self, stage: str) -> float:
        """Seconds from the beginning of `stage` to the end of all that waits for it."""
        after = [other for other, waits in self.before.items() if stage in waits]
        return self.seconds(stage) + max(map(self.way, after), default=0)

    def ready(self, begun: set[str], done: set[str]) -> list[str]:
        """The stages that can begin now, the longest way first."""
        free = [
            stage
            for stage, waits in self.before.items()
            if stage not in begun and waits <= done
        ]
        return sorted(free, key=self.way, reverse=True)

    def left(self, done: set[str], jobs: int) -> float:
        """About how many seconds it takes to run what is not done, `jobs` at a time."""
        rest = [stage for stage in self.before if stage not in done]
        return max(
            sum(map(self.seconds, rest)) / jobs, max(map(self.way, rest), default=0)
        )


def plan(only: list[str] = ()) -> Plan:
    """The stages that DVC finds out of date, and all that follow from them; of the
    stages `only`, where these are named.
    """
    with Repo() as repo:
        stale = set(repo.status(list(only) or None))
        commands = {stage.addressing: str(stage.cmd) for stage in repo.index.graph}
        graph = nx.relabel_nodes(
            repo.index.graph, {stage: stage.addressing for stage in repo.index.graph}
        )
    # edges go to what a stage needs
    todo = stale.union(*(nx.ancestors(graph, stage) for stage in stale))
    todo = todo & set(only) if only else todo
    return Plan(
        {stage: set(nx.descendants(graph, stage)) & todo for stage in sorted(todo)},
        any("repro.run_notebook" in commands[stage] for stage in todo),
        json.loads(SECONDS.read_text()) if SECONDS.exists() else {},
    )


# --------------------------------------------------- one stage, in a process of its own
@dataclass
class Running:
    """A stage at work in a process of its own."""

    stage: str
    pid: int
    output: object  # a temporary file
    start: float = field(default_factory=time.perf_counter)

    def seconds(self) -> float:
        """Since it began."""
        return time.perf_counter() - self.start

    def said(self) -> str:
        """What it has printed."""
        self.output.seek(0)
        return self.output.read().decode(errors="replace")

    def ended(self) -> int | None:
        """Its exit status, once it has one."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if pid else None


def begin(stage: str, lifeline: tuple[int, int]) -> Running:
    """Let a fork of this process be ``dvc repro`` of one stage, until the writing end
    of `lifeline` is closed.
    """
    output = tempfile.TemporaryFile()
    pid = os.fork()
    if pid:
        return Running(stage, pid, output)
    status = 1
    try:
        os.setsid()  # Ctrl-C in the terminal is for the parent, not for us
        os.close(lifeline[1])
        for standard in (1, 2):
            os.dup2(output.fileno(), standard)
        # is for what the stage runs; DVC then ends in order
        signal.signal(signal.SIGINT, lambda *_: None)
        threading.Thread(target=stop_at_end, args=(lifeline[0],), daemon=True).start()
        status = dvc(["--wait-for-lock", "repro", "--single-item", stage])
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status)


def stop_at_end(lifeline: int) -> None:
    """When nobody holds the other end any more, interrupt what this stage runs,
    and what it still begins.
    """
    select.select([lifeline], [], [])
    for _ in range(10):
        os.killpg(0, signal.SIGINT)
        time.sleep(2)
    os.killpg(0, signal.SIGKILL)


def result(said: str) -> str:
    """In one word or two, what DVC did with a stage that has not failed,
    from what it printed.
    """
    if re.search(r"^Stage '.*' is cached", said, re.M):
        return "restored from DVC's cache"
    return "done" if re.search(r"^Running stage '", said, re.M) else "as before"


# ------------------------------------------------------- all of them
def span(seconds: float) -> str:
    """How one says a duration: "8 s", "1 min 12 s", "2 h 5 min"."""
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def run(plan: Plan, jobs: int, lifeline: tuple[int, int], log) -> str | None:
    """Run the plan, `jobs` stages at a time;
    the first stage that failed, if one did.
    """
    start = news = time.perf_counter()
    begun, done, running = set(), set(), []
    failed = None
    while running or (len(done) < len(plan.before) and not failed):
        while not failed and len(running) < jobs and (ready := plan.ready(begun, done)):
            running.append(begin(ready[0], lifeline))
            begun.add(ready[0])
        time.sleep(0.05)
        for job in [*running]:
            status = job.ended()
            if status is None:
                continue
            running.remove(job)
            said, news = job.said(), time.perf_counter()
            log.write(f"=== {job.stage}\n{said}\n".encode())
            head = f"[{len(begun) - len(running):2d}/{len(plan.before)}] {job.stage}:"
            if status:
                failed = failed or job.stage
                print(f"{head} FAILED after {span(job.seconds())}\n")
                print("\n".join(f"    {line}" for line in said.splitlines()[-TAIL:]))
                print(
                    f"\n    All that it printed: {LOG}. It alone: "
                    f"PATH={Path(sys.prefix) / 'bin'}:$PATH dvc repro --single-item "
                    f"{job.stage}",
                    flush=True,
                )
                continue
            done.add(job.stage)
            if (word := result(said)) == "done":
                plan.usual[job.stage] = round(job.seconds(), 1)
            left = plan.left(done, jobs)
            print(
                f"{head} {word}, {span(job.seconds())}; {span(news - start)} so far"
                + (f", about {span(left)} left" if left else ""),
                flush=True,
            )
        if running and time.perf_counter() - news > QUIET:
            news = time.perf_counter()
            names = ", ".join(f"{job.stage} ({span(job.seconds())})" for job in running)
            print(f"        still running: {names}", flush=True)
    return failed


@contextmanager
def alone():
    """Only one of us at a time in this folder;
    the lock ends with the processes that hold it.
    """
    LOCK.parent.mkdir(exist_ok=True)
    with LOCK.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(
                "Another `make paper` is at work here; waiting for its end.", flush=True
            )
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def paper(jobs: int, only: list[str] = ()) -> int:
    """What `make paper` does, after the installation; the exit status."""
    start = time.perf_counter()
    todo = plan(only)
    if not todo.before:
        print("Nothing to do: everything is up to date.")
        return 0
    about = f", about {span(todo.left(set(), jobs))}" if todo.usual else ""
    many = (
        f"{len(todo.before)} stages to run, {jobs} at a time"
        if len(todo.before) > 1
        else "1 stage to run"
    )
    print(f"{many}{about}; what is printed goes to {LOG}", flush=True)
    lifeline = os.pipe()
    with LOG.open("wb", buffering=0) as log, ExitStack() as stack:
        if todo.notebooks:
            os.environ |= stack.enter_context(warm.server(lifeline[0], log))
        try:
            failed = run(todo, jobs, lifeline, log)
        except KeyboardInterrupt:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            os.close(lifeline[1])  # at which every stage stops
            while True:
                try:
                    os.wait()
                except ChildProcessError:
                    break
            print("\nStopped. What is finished stays; `make paper` goes on from there.")
            return 130
        finally:
            SECONDS.write_text(json.dumps(todo.usual, indent=1) + "\n")
    print(
        f"{'Stopped there' if failed else 'Done'} after "
        f"{span(time.perf_counter() - start)}."
    )
    return bool(failed)


def main(argv: list[str] | None = None) -> int:
    """What `make paper` calls; the exit status."""
    ap = argparse.ArgumentParser(
        prog="repro.pipeline", description=__doc__.splitlines()[0]
    )
    ap.add_argument("only", nargs="*", metavar="stage", help="these stages alone")
    ap.add_argument(
        "--jobs",
        type=int,
        default=min(os.cpu_count(), 4),
        metavar="N",
        help="stages at a time (default: one per core, four at most)",
    )
    a = ap.parse_args(argv)
    # stages call plain `python`
    os.environ["PATH"] = f"{Path(sys.prefix) / 'bin'}:{os.environ['PATH']}"
    # stages run side by side; a second thread of each would wait
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    try:
        with alone():
            status = paper(a.jobs, a.only)
    except DvcException:
        return dvc(["status"]) or 1  # which tells what is wrong, and where
    except KeyboardInterrupt:  # before a stage, or while another pipeline runs
        raise KeyboardInterrupt("stopped; `make paper` goes on from here") from None
    if not status and not a.only:
        print(f"The book: {BOOK.resolve()}")
    return status


if __name__ == "__main__":
    ends.program("python -m repro.pipeline", main)
