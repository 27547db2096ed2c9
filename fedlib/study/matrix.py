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
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import NamedTuple

import torch
from tqdm import tqdm

from ..core import engine, given
from ..core.errors import nearest
from ..core.files import whole
from ..core.method import Wrap, describe
from ..core.record import Record
from ..methods import METHODS
from . import lock
from .executor import opened, reason, results

IDENTITY = "comparison.json"
LONGEST = 80  # letters of a folder's name
MINUTE = 60.0  # seconds between two lines where there is no terminal


class Job(NamedTuple):
    """One run: the method's name in the comparison, a seed, the run's folder."""

    name: str
    seed: int
    at: str | None


@dataclass
class Done:
    """What has come of some jobs."""

    records: dict = field(default_factory=dict)  # {(name, seed): Record}
    failed: dict = field(default_factory=dict)  # {(name, seed): reason in one line}
    stopped: str = ""  # why some runs were not computed


@dataclass(frozen=True)
class Common:
    """What all runs of a comparison share."""

    task: object
    methods: dict  # {name: Method}
    rounds: int
    how: dict  # for engine.run

    def run(self, job, wait=True):
        """The Record of a job, computed or read; None: another process is at it."""
        told = {"seed": job.seed, "progress": False, "folder": job.at} | self.how
        method = self.methods[job.name]
        alone = contextlib.nullcontext(True)
        if job.at is not None and not Path(job.at, "done").exists():
            alone = lock.alone(job.at, wait)
        with alone as mine:
            if not mine:
                return None
            record = engine.run(method, self.task, self.rounds, **told)
        record.state = None  # the models of all clients: too much to keep of every run
        return record


def run_all(common, jobs, workers=1, progress=None, behind=0, ahead=()):
    """Every job -> Done.

    A job that fails stops no other. Ctrl-C ends the computation, not the call: what was
    finished is returned. workers: so many processes on this machine; the numbers are
    the same. progress: a bar (True), nothing (False), or a bar on a terminal and a line
    per minute elsewhere (None); it also counts the runs behind, a number, and those
    ahead, jobs, which belong to other calls.
    """
    done, todo = Done(), []
    for job in jobs:  # what is there costs nothing
        if job.at is not None and Path(job.at, "done").exists():
            keep(done, job, *attempt(common.run, job))
        else:
            todo.append(job)
    if not todo:
        return done
    try:
        with contextlib.ExitStack() as stack:
            more = behind, ahead
            say = stack.enter_context(Progress(jobs, todo, workers, progress, *more))
            compute = computing(stack, common, min(workers, len(todo)))
            # what another process is computing is left for last, then waited for
            for wait in (False, True):
                asked = todo[:]
                for i, record, error in compute(asked, wait):
                    if record is None and error is None:
                        continue
                    todo.remove(asked[i])
                    keep(done, asked[i], record, error)
                    say.finished(asked[i], record)
    except KeyboardInterrupt:
        done.stopped = "interrupted"
    except BrokenProcessPool:
        done.stopped = "a worker was killed (out of memory?); give fewer workers"
    for job in todo:  # finished while the call was being ended
        if job.at is not None and Path(job.at, "done").exists():
            keep(done, job, *attempt(common.run, job))
    return done


def attempt(f, *args):
    """(f(*args), None) or (None, the exception)."""
    try:
        return f(*args), None
    except Exception as e:
        return None, e


def keep(done, job, record, error):
    """Note what came of a job."""
    if error is None:
        done.records[job.name, job.seed] = record
    else:
        done.failed[job.name, job.seed] = reason(error)


# ---------------------------------------------------------------- processes
def computing(stack, common, workers):
    """A function from jobs to (i, Record or None, exception or None), as they end."""
    if workers < 2:
        return lambda jobs, wait: results(None, common.run, jobs, wait)
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="fedlib-"))
    path = hand_over(common, Path(folder, "common"))
    submit = stack.enter_context(opened(workers=workers))
    # the pool waits for its workers: interrupted, they must not compute on
    stack.push(lambda kind, *_: path.unlink() if kind else None)

    def compute(jobs, wait):
        for i, record, error in results(submit, run_there, jobs, str(path), wait):
            if isinstance(error, BrokenProcessPool):
                raise error
            yield i, record, error

    return compute


def hand_over(common, path):
    """Write what the processes share to a file, which they map into memory.

    cloudpickle, where it is installed, also takes classes and functions of a notebook.
    """
    try:
        import cloudpickle as by
    except ImportError:
        by = pickle
    try:
        torch.save(common, path, pickle_module=by)
    except Exception as e:
        raise ValueError(
            f"workers: this task, a method or the cohort cannot be sent to another "
            f"process ({type(e).__name__}: {e}); define it at the top level of a "
            "module, install cloudpickle, or give workers = 1"
        ) from e
    return path


@functools.lru_cache(maxsize=1)
def shared(path):
    """In a worker: what the runs share, and an end of the process with the call."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the caller's
    common = torch.load(path, mmap=True, weights_only=False)
    threading.Thread(target=end_without, args=(path,), daemon=True).start()
    return common


def end_without(path):
    """End this process when a file has gone: the call is over."""
    while os.path.exists(path):
        time.sleep(0.1)
    os._exit(1)


def run_there(job, path, wait):
    """A job in a worker."""
    return shared(path).run(job, wait)


# ---------------------------------------------------------------- the folder
def in_words(method):
    """A method with the hyper-parameters that are not the usual ones."""
    cls = type(method)
    name = next((n for n, c in METHODS.items() if c is cls), cls.__name__)
    usual = {f.name: plain(f.default) for f in fields(cls)}
    told = [
        f"{k}={v}"
        for k, v in describe(method).items()
        if plain(getattr(method, k)) != usual[k]
    ]
    return f"{name}({','.join(told)})" if told else name


def folder_name(method):
    """The same as a file may be called; of a class outside METHODS with a hash of its
    source.
    """
    text = in_words(method)
    name, marks = re.sub(r"[^\w.=,()+-]", "", text), []
    if name != text or len(name) > LONGEST:
        marks.append(text)
    if type(method) not in METHODS.values():
        marks.append(source_of(type(method)))
    if marks:
        digest = hashlib.sha256("\n".join(marks).encode()).hexdigest()[:8]
        name = f"{name[:LONGEST]}-{digest}"
    return name


def plain(value):
    """A hyper-parameter as a text that says all of it."""
    if hasattr(value, "__dataclass_fields__"):
        return json.dumps({type(value).__name__: describe(value)}, default=str)
    return json.dumps(value, default=str)


def source_of(cls):
    """The source text of a class, or its name where there is none."""
    try:
        return inspect.getsource(cls)
    except (OSError, TypeError):
        return cls.__qualname__


def checked_folder(folder, now):
    """The folder of a comparison with the identity `now` -> Path.

    ValueError where no folder can be there, and where it holds a comparison on another
    task or with other settings.
    """
    folder = given.checked_folder(folder)
    path = folder / IDENTITY
    if not path.exists():
        return folder
    try:
        before = json.loads(path.read_text("utf-8"))
    except ValueError as e:
        raise ValueError(
            f"{path} cannot be read ({e}): delete it to go on with these runs, or "
            "give another folder"
        ) from e
    for k in now:
        a, b = before.get(k), json.loads(json.dumps(now[k]))
        if a != b:
            raise ValueError(
                f"folder {str(folder)!r} holds another comparison: {k} is "
                f"{json.dumps(a):.80} there, {json.dumps(b):.80} here; give another "
                "folder"
            )
    return folder


def claim(folder, now):
    """Write what the comparison in a folder is; ValueError where another process has
    begun another one meanwhile.
    """
    text = json.dumps(now, indent=1).encode()
    with lock.alone(folder / IDENTITY):
        checked_folder(folder, now)
        whole(folder / IDENTITY, lambda f: f.write(text))


def identity(common):
    """What makes two comparisons one: {name: plain value}."""
    task, how = common.task, dict(common.how)
    cohort = how.get("cohort")
    return {
        "task": task.name,
        "clients": task.C,
        "network": repr(task.network),
        "batch": task.batch,
        "rounds": common.rounds,
        "cohort": "a function" if callable(cohort) else cohort,
        "every": how.get("every", 1),
        "precision": how.get("precision", "float32"),
        "splits": list(how.get("splits", ("test", "val"))),
        "guests": bool(how.get("guests")),
        "own": bool(how.get("own")),
        "microscope": bool(how.get("microscope")),
        "data": digest(task),
    }


def digest(task):
    """A hash of a task's data and of who holds which rows."""
    h = hashlib.sha256()
    guests = [rows for guest in task.guests for rows in guest]
    for x in (task.x, task.y, task.a, *task.train, *task.val, *task.test, *guests):
        if x is not None:
            h.update(str(tuple(x.shape)).encode())
            h.update(x.detach().cpu().contiguous().numpy())
    return h.hexdigest()[:16]


# ---------------------------------------------------------------- hyper-parameters
def altered(method, values):
    """The method with other hyper-parameters; what a wrapper does not declare goes to
    the method inside. ValueError for one that there is not, or a value that may not be.
    """
    own = {f.name for f in fields(method)} - {"task"}
    rest = {k: v for k, v in values.items() if k not in own}
    if rest and isinstance(method, Wrap):
        values = {k: v for k, v in values.items() if k in own}
        values["inner"] = altered(values.get("inner", method.inner), rest)
    elif rest:
        k = next(iter(rest))
        raise ValueError(
            f"{type(method).__name__} has no hyper-parameter {k!r}{nearest(k, own)} "
            f"(it has {', '.join(sorted(own))})"
        )
    return replace(method, **values)


# ---------------------------------------------------------------- how far
class Progress:
    """How many runs are done and how long the rest may take: a bar on a terminal, a
    line per minute elsewhere.

    The time left counts every open run as long as the finished ones of its method, or
    as the mean of all.
    """

    def __init__(self, jobs, todo, workers, shown, behind=0, ahead=()):
        self.todo, self.workers = [*todo, *ahead], max(1, min(workers, len(todo)))
        self.n, self.seconds = behind + len(jobs) + len(ahead), {}
        self.since = time.time()
        bar = sys.stderr.isatty() if shown is None else shown
        self.lines = shown is None and not bar
        self.bar = tqdm(
            total=self.n,
            initial=self.n - len(self.todo),
            desc="compare",
            disable=not bar,
            leave=False,
            bar_format="{desc}: {n_fmt} of {total_fmt} runs |{bar}| {elapsed}{postfix}",
        )
        self.over = threading.Event()
        self.clock = threading.Thread(target=self.tick, daemon=True)

    def __enter__(self):
        if self.lines or not self.bar.disable:
            self.clock.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        if self.clock.is_alive():
            self.clock.join()
        self.bar.close()

    def finished(self, job, record):
        """A run has come to its end, with a record or without."""
        self.todo.remove(job)
        self.since = time.time()
        if isinstance(record, Record):
            self.seconds.setdefault(job.name, []).append(record.meta["seconds"])
        self.bar.update()

    def left(self):
        """Seconds until all is done; None before the first run is."""
        every = [s for one in self.seconds.values() for s in one]
        if not every:
            return None
        mean = sum(every) / len(every)
        of = {name: sum(one) / len(one) for name, one in self.seconds.items()}
        open_ = sum(of.get(job.name, mean) for job in self.todo.copy())
        return max(0.0, open_ / self.workers - (time.time() - self.since))

    def words(self):
        """As "about 3 min left"."""
        left = self.left()
        return "time left unknown" if left is None else f"about {duration(left)} left"

    def tick(self):
        """Say it again and again, in a thread."""
        while not self.over.wait(MINUTE if self.lines else 1.0):
            if self.lines:
                k = self.n - len(self.todo)
                line = f"compare: {k} of {self.n} runs done, {self.words()}"
                print(line, file=sys.stderr, flush=True)
            else:
                self.bar.set_postfix_str(self.words())


def duration(seconds):
    """40 s, 3 min, 1 h 5 min."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    if minutes < 60:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"
