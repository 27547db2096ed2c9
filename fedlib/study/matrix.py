"""Methods times seeds: all runs of a comparison, here or in processes of this machine,
kept in a folder and never computed twice.

    folder/comparison.json     what all runs have in common
    folder/FedGA(alpha=3)/0    the run with seed 0, as `engine.run` keeps it
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import json
import os
import pickle
import re
import signal
import sys
import tempfile
import threading
import time
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import NamedTuple

import torch
from tqdm import tqdm

from ..core import engine
from ..core.files import whole
from ..core.method import describe
from ..methods import METHODS
from . import lock
from .executor import opened, reason, results

IDENTITY = "comparison.json"
LONGEST = 80  # letters of a folder's name
MINUTE = 60.0  # seconds between two lines where there is no terminal
# arguments of engine.run that change what a record holds, and their defaults
ENGINE = {"cohort": None, "every": 1, "precision": "float32", "splits": ("test", "val")}
ENGINE |= dict.fromkeys(("guests", "own", "microscope"), False)


class Job(NamedTuple):
    """One run: the method's name in the comparison, a seed, the run's folder."""

    name: str
    seed: int
    at: Path | None

    @property
    def done(self):
        return self.at is not None and (self.at / "done").exists()


@dataclass
class Runs:
    """What has come of some jobs."""

    records: dict = field(default_factory=dict)  # {(name, seed): Record}
    failed: dict = field(default_factory=dict)  # {(name, seed): reason in one line}
    stopped: str = ""  # why some runs were not computed


@dataclass(frozen=True)
class Shared:
    """What all runs of a comparison share."""

    task: object
    methods: dict  # {name: Method}
    rounds: int
    how: dict  # for engine.run
    folder: Path | None = None

    def job(self, name, seed):
        if self.folder is None:
            return Job(name, seed, None)
        return Job(
            name, seed, self.folder / folder_name(self.methods[name]) / f"{seed}"
        )

    def run(self, job, wait=True):
        """The Record of a job, computed or read; None: another process is at it."""
        how = self.how | {"seed": job.seed, "folder": job.at, "progress": False}
        free = job.at is None or job.done
        with contextlib.nullcontext(True) if free else lock.alone(job.at, wait) as mine:
            if not mine:
                return None
            record = engine.run(self.methods[job.name], self.task, self.rounds, **how)
        record.state = None  # the models of all clients: too much to keep of every run
        return record


def run_all(shared, jobs, workers=1, progress=None):
    """Every job -> Runs.

    A job that fails stops no other. Ctrl-C ends the computation, not the call: what was
    finished is returned. workers: so many processes on this machine; the numbers are
    the same. progress: a bar (True), nothing (False), or None: a bar on a terminal, a
    line per minute elsewhere.
    """
    runs = Runs()
    todo = read_finished(shared, jobs, runs)
    try:
        with contextlib.ExitStack() as stack:
            bar = stack.enter_context(progress_bar(len(jobs), len(todo), progress))
            submit, f = processes(stack, shared, min(workers, len(todo)))
            # what another process is computing is left for last, then waited for
            for wait in (False, True):
                open_ = todo[:]
                for i, record, error in results(submit, f, open_, wait):
                    if isinstance(error, BrokenProcessPool):
                        raise error
                    if record is not None or error is not None:
                        todo.remove(open_[i])
                        note(runs, open_[i], record, error)
                        bar.update()
    except KeyboardInterrupt:
        runs.stopped = "interrupted"
    except BrokenProcessPool:
        runs.stopped = "a worker was killed (out of memory?); give fewer workers"
    read_finished(shared, todo, runs)  # while the call was being ended
    return runs


def read_finished(shared, jobs, runs):
    """Note what is in the folder already -> the other jobs."""
    there = [job for job in jobs if job.done]
    for i, record, error in results(None, shared.run, there):
        note(runs, there[i], record, error)
    return [job for job in jobs if job not in there]


def note(runs, job, record, error):
    if error is None:
        runs.records[job.name, job.seed] = record
    else:
        runs.failed[job.name, job.seed] = reason(error)


def progress_bar(n, left, shown):
    on_terminal = sys.stderr.isatty()
    every = MINUTE if shown is None and not on_terminal else 0.1
    slow = {"delay": every, "mininterval": every} if every > 1 else {}
    how = {"unit": "run", "leave": False, "disable": shown is False} | slow
    return tqdm(desc="compare", total=n, initial=n - left, **how)


# ---------------------------------------------------------------- processes
def processes(stack, shared, workers):
    """(submit, f) for `results`: f(job, wait) in a process of a pool, or here."""
    if workers < 2:
        return None, shared.run
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="fedlib-"))
    path = hand_over(shared, Path(folder, "shared"))
    submit = stack.enter_context(opened(workers=workers))
    # the pool waits for its workers: interrupted, they must not compute on
    stack.push(lambda kind, *_: path.unlink() if kind else None)
    return submit, functools.partial(run_there, str(path))


def hand_over(shared, path):
    """Write what the processes share to a file, which they map into memory.

    cloudpickle, where it is installed, also takes classes and functions of a notebook.
    """
    try:
        import cloudpickle as by
    except ImportError:
        by = pickle
    try:
        torch.save(shared, path, pickle_module=by)
    except Exception as e:
        raise ValueError(
            f"workers: this task, a method or the cohort cannot be sent to another "
            f"process ({type(e).__name__}: {e}); define it at the top level of a "
            "module, install cloudpickle, or give workers = 1"
        ) from e
    return path


def run_there(path, job, wait):
    """A job in a worker."""
    return loaded(path).run(job, wait)


@functools.lru_cache(maxsize=1)
def loaded(path):
    """In a worker: what the runs share, and an end of the process with the call."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the caller's
    shared = torch.load(path, mmap=True, weights_only=False)
    threading.Thread(target=end_without, args=(path,), daemon=True).start()
    return shared


def end_without(path):
    """End this process when a file has gone: the call is over."""
    while os.path.exists(path):
        time.sleep(0.1)
    os._exit(1)


# ---------------------------------------------------------------- the folder
def in_words(method):
    """A method with the hyper-parameters that are not the usual ones."""
    cls = type(method)
    name = next((n for n, c in METHODS.items() if c is cls), cls.__name__)
    usual = {f.name: as_text(f.default) for f in fields(cls)}
    shown = {k: as_text(getattr(method, k)) for k in describe(method)}
    own = [f"{k}={v}" for k, v in describe(method).items() if shown[k] != usual[k]]
    return f"{name}({','.join(own)})" if own else name


def as_text(value):
    """A hyper-parameter as a text that says all of it."""
    if hasattr(value, "__dataclass_fields__"):
        value = {type(value).__name__: describe(value)}
    return json.dumps(value, default=str)


def folder_name(method):
    """The same as a file may be called; of a class outside METHODS with a hash of its
    source.
    """
    text = in_words(method)
    name = re.sub(r"[^\w.=,()+-]", "", text)
    marks = [text] if name != text or len(name) > LONGEST else []
    if type(method) not in METHODS.values():
        marks.append(source_of(type(method)))
    if not marks:
        return name
    digest = hashlib.sha256("\n".join(marks).encode()).hexdigest()[:8]
    return f"{name[:LONGEST]}-{digest}"


def source_of(cls):
    """The source text of a class, or its name where there is none."""
    try:
        return inspect.getsource(cls)
    except (OSError, TypeError):
        return cls.__qualname__


def claim(folder, now):
    """Note in a folder what the comparison is; ValueError where it holds another."""
    path, now = folder / IDENTITY, json.loads(json.dumps(now))
    with lock.alone(path):
        before = json.loads(path.read_text("utf-8")) if path.exists() else now
        for k in now:
            there, here = json.dumps(before.get(k)), json.dumps(now[k])
            if there != here:
                raise ValueError(
                    f"folder {str(folder)!r} holds another comparison: {k} is "
                    f"{there:.80} there, {here:.80} here; give another folder"
                )
        text = json.dumps(now, indent=1).encode()
        whole(path, lambda f: f.write(text))


def identity(shared):
    """What makes two comparisons one: {name: plain value}."""
    task, how = shared.task, {k: shared.how.get(k, v) for k, v in ENGINE.items()}
    if callable(how["cohort"]):
        how["cohort"] = "a function"
    of_task = {"task": task.name, "clients": task.C, "network": repr(task.network)}
    of_task |= {"batch": task.batch, "data": digest(task)}
    return of_task | {"rounds": shared.rounds} | how


def digest(task):
    """A hash of a task's data and of who holds which rows."""
    h = hashlib.sha256()
    guests = [rows for guest in task.guests for rows in guest]
    for x in (task.x, task.y, task.a, *task.train, *task.val, *task.test, *guests):
        if x is not None:
            h.update(str(tuple(x.shape)).encode())
            h.update(x.detach().cpu().contiguous().numpy())
    return h.hexdigest()[:16]
