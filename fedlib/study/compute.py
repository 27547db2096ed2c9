"""Runs are computed: a cell, or a list of jobs, in this process, in processes of this
machine, or on a Dask cluster, by one argument.

    study("fedga", "synthetic")                                  # processes, one a core
    study("fedga", "synthetic", executor="tcp://10.0.0.5:8786")  # a Dask cluster
    FEDLIB_SCHEDULER=tcp://10.0.0.5:8786 dvc repro

A cluster needs `pip install 'fedlib[cluster]'`, the same commit of this package and the
same folder `runs` on every machine, one `dask scheduler`, which prints its address, and
in the folder of the repository `dask worker ADDRESS --nthreads 1 --nworkers 8`. Who
reaches a tcp:// scheduler can run code on its workers: use a private network, or tls://.
"""

from __future__ import annotations

import functools
import json
import logging
import math
import multiprocessing
import os
import pickle
import signal
import socket
import sys
import tempfile
import threading
import time
from concurrent.futures import (
    BrokenExecutor,
    CancelledError,
    ProcessPoolExecutor,
    as_completed,
)
from contextlib import contextmanager, nullcontext
from pathlib import Path

import torch
from tqdm import tqdm

from ..core import clients, engine, errors
from ..core.errors import refuse_if
from ..core.files import sources
from ..data import tasks
from ..methods import make
from . import lock
from .studies import Cell

VARIABLE = "FEDLIB_SCHEDULER"  # where no executor and no number of workers is given
PATIENCE = 5  # seconds for a scheduler to answer
MINUTE = 60.0  # seconds between two lines where there is no terminal
log = logging.getLogger(__name__)


class RunError(ValueError):
    """A run could not be computed; says which. What the others computed is kept."""


class CodeError(ValueError):
    """A worker has other code than the caller, so its numbers would not be ours."""


class WorkerError(Exception):
    """What was raised in another process, in words: not everything can be sent back."""


# ---------------------------------------------------------------- one cell
@functools.lru_cache(maxsize=2)
def task_of(spec, seed, name):
    """The Task of a description (json); seed: of its split; name: what to call it."""
    return tasks.build(json.loads(spec), seed, name)


def trained(cell, device=None, folder=None):
    """(method, task, record) of a cell, run anew; record.state has what server and
    clients hold after the last round. Raises engine.Diverged.
    """
    task = task_of(cell.task, cell.seed, cell.dataset)
    method = make.make(cell.method, task, **json.loads(cell.kwargs))
    how = json.loads(cell.engine)
    if "online" in how:
        how["cohort"] = clients.size(task.C, how.pop("online"))
    if "stragglers" in how:
        how["cohort"] = clients.stragglers(task.C, **how.pop("stragglers"))
    where = {"folder": folder, "device": device, "progress": False}
    where["keep_state"] = False  # a study keeps numbers, no models
    run = engine.run(method, task, how.pop("rounds"), seed=cell.seed, **where, **how)
    return method, task, run


def compute_cell(cell, runs="runs", device=None, wait=True):
    """The folder of a cell's run, which is computed unless it is done; None where
    another process is at it, and wait=False. A diverged run leaves its record, too.
    """
    torch.set_num_threads(1)
    folder = Path(runs, cell.id)
    done = folder / "done"
    if done.exists():
        return folder
    with lock.alone(folder, wait) as mine:
        if mine and not done.exists():  # nobody has finished it meanwhile
            try:
                trained(cell, device, folder)
            except errors.Diverged as e:
                print(f"{describe_cell(cell)}: {e}", file=sys.stderr)
    return folder if mine else None


def describe_cell(item):
    """A cell in a message: "digits FedGA alpha=3 seed 0"."""
    if not isinstance(item, Cell):
        return str(item)
    words = item.dataset, item.method, item.setting, f"seed {item.seed}"
    return " ".join(filter(None, words))


# ---------------------------------------------------------------- many cells
def map_cells(f, cells, workers=None, executor=None):
    """[f(cell)], in order, computed where `compute_all` would.

    f: importable; it returns plain arrays. Raises RunError.
    """
    cells, found, failed = list(cells), {}, {}
    of_one = functools.partial(mapped, f)
    for i, value, error in run_jobs(of_one, cells, workers, executor):
        found[i], failed[i] = value, error
    raise_first(cells, failed)
    return [found[i][0] for i in range(len(cells))]


def mapped(f, cell, wait):
    return [f(cell)]


def compute_all(
    cells, runs="runs", workers=None, device=None, executor=None, until=math.inf
):
    """Every cell's folder, in order; a cell that fails stops no other: RunError at the
    end.

    workers: processes on this machine; executor: somewhere else, see `opened`. until:
    seconds since the epoch; no run begins later, so that some may be missing.
    """
    cells, at, failed = list(cells), Path(runs).absolute(), {}
    jobs = list(unfinished(cells, at).items())
    at.mkdir(parents=True, exist_ok=True)
    f = functools.partial(compute_job, runs=str(at), device=device, until=until)
    shown = sys.stderr.isatty()
    for i, _, error in run_jobs(f, jobs, workers, executor, device, shown):
        cell = jobs[i][1]
        if error:
            print(f"{describe_cell(cell)}: {reason(error)}", file=sys.stderr)
            failed[cells.index(cell)] = error
    raise_first(cells, failed, "; the other runs are kept")
    return [Path(runs, c.id) for c in cells]


def unfinished(cells, runs):
    """{id: cell} of those that are not done in the folder runs; those of one task after
    one another, so that a worker keeps its task.
    """
    by_id = {c.id: c for c in sorted(cells, key=lambda c: (c.task, c.seed))}
    return {i: c for i, c in by_id.items() if not (runs / i / "done").exists()}


def compute_job(item, wait=True, *, runs, device=None, until=math.inf):
    """`compute_cell` of (id, cell) in a worker; None also where it is later than
    `until`. ValueError where the worker sees other files than the caller.
    """
    name, cell = item
    if time.time() >= until:
        return None
    other = cell.id != name
    what = f"to the worker this run is {cell.id}, to the caller {name}"
    refuse_if(other, f"{what}: the files of weights that they see differ; mend these")
    refuse_if(not os.path.isdir(runs), f"the worker has no folder {runs}: share it")
    return compute_cell(cell, runs, device, wait)


def raise_first(cells, failed, kept=""):
    """RunError for the first of {number of a cell: exception or None} that failed."""
    bad = [i for i in sorted(failed) if failed[i]]
    if bad:
        kept = f"; {len(bad) - 1} more failed{kept}" if len(bad) > 1 else kept
        why = failed[bad[0]]
        raise RunError(f"{describe_cell(cells[bad[0]])}: {reason(why)}{kept}") from why


# ---------------------------------------------------------------- many jobs
def run_jobs(f, jobs, workers=None, executor=None, device=None, progress=False):
    """Yield (number of the job, f(job, wait), None) or (number, None, the exception),
    as they end.

    f gives None for a job that another process is at: it is left for last, and then
    asked to wait. A job that fails stops no other; CodeError and RunError, where a
    worker has died, end all. progress: see `compare`.
    """
    left = dict(enumerate(jobs))
    slow = progress is None and not sys.stderr.isatty()
    how = {"mininterval": MINUTE, "delay": MINUTE} if slow else {}
    how |= {"total": len(left), "disable": progress is False, "leave": False}
    with (
        opened(executor, workers, len(left), device) as submit,
        tqdm(unit="run", **how) as bar,
    ):
        for wait in (False, True):
            for i, value, error in ended(submit, f, dict(left), wait):
                if value is not None or error:
                    del left[i]
                    bar.update()
                    yield i, value, error


def ended(submit, f, jobs, wait):
    """(i, value, exception) of {i: job}; submit None: in this process."""
    try:
        if submit is None:
            each = ((i, functools.partial(f, job, wait)) for i, job in jobs.items())
        else:
            todo = {submit(f, job, wait): i for i, job in jobs.items()}
            # popped, so that no result is kept here
            each = ((todo.pop(future), future.result) for future in as_completed(todo))
        for i, result in each:
            try:
                yield i, result(), None
            except (CodeError, BrokenExecutor):
                raise
            except Exception as e:
                yield i, None, e
    except BrokenExecutor as e:
        why = "a worker was killed (out of memory?); give fewer workers"
        raise RunError(why) from e


def reason(error):
    """An exception in one line, wherever it was raised."""
    if isinstance(error, CancelledError):
        return "cancelled: the scheduler has gone, or was told to stop it"
    kind = "" if isinstance(error, WorkerError) else f"{type(error).__name__}: "
    return f"{kind}{error}"


def opened(executor, workers, most, device=None):
    """A context of a function submit(f, *args) -> Future; of None: compute in this
    process.

    executor: a scheduler's address. workers: processes on this machine (None: one per
    core that we may use; one where there is a GPU), at most `most`.
    """
    if executor is None and workers is None:
        executor = os.environ.get(VARIABLE) or None
    if executor is not None:
        return cluster(executor)
    on_gpu = torch.cuda.is_available() and device != "cpu"
    n = min(workers or (1 if on_gpu else len(os.sched_getaffinity(0))), most)
    return processes(n) if n > 1 else nullcontext()


@contextmanager
def cluster(address):
    """submit(f, *args) of a Dask scheduler, "tcp://host:port". ValueError where there
    is none.
    """
    try:
        from distributed import Client  # here, since Dask is optional

        client = Client(address, timeout=PATIENCE, set_as_default=False)
    except (ImportError, OSError, ValueError, TypeError) as e:
        raise ValueError(
            f"scheduler {address!r} cannot be reached ({e}); give tcp://host:port, as "
            f"`dask scheduler` prints it, to --scheduler, executor= or {VARIABLE}; "
            "Dask comes with pip install 'fedlib[cluster]'"
        ) from e
    with client:
        if not client.scheduler_info()["workers"]:
            log.warning("%s has no workers yet; start them: dask worker ...", address)
        yield functools.partial(client.get_executor(pure=False).submit, call, code())


@contextmanager
def processes(n):
    """submit(f, *args) of a pool of n processes, copies of a server that has imported
    fedlib: importing takes seconds, a run may not.

    f goes by a file, which they map into memory: it may hold large tensors.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    # off Linux a copy is not safe, and after an edit the server has the code of before
    now = code()
    copies = sys.platform == "linux" and now == CODE
    context = multiprocessing.get_context("forkserver" if copies else "spawn")
    if copies:
        context.set_forkserver_preload([__name__])
    ended, alive = multiprocessing.Pipe(duplex=False)
    start = {"initializer": begin, "initargs": (ended, dict(os.environ))}
    with (
        tempfile.TemporaryDirectory(prefix="fedlib-") as folder,
        ProcessPoolExecutor(n, mp_context=context, **start) as pool,
    ):
        written = functools.cache(lambda f: hand_over(f, Path(folder, str(id(f)))))
        try:
            yield lambda f, *args: pool.submit(call, now, run_file, written(f), *args)
        except BaseException:  # interrupted: nobody computes on
            alive.close()
            raise


def hand_over(f, path):
    """Write a function for other processes -> where; cloudpickle, if it is installed,
    also takes classes and functions of a notebook.
    """
    try:
        import cloudpickle as by
    except ImportError:
        by = pickle
    try:
        torch.save(f, path, pickle_module=by)
    except Exception as e:
        raise ValueError(
            "workers: the task, a method or the cohort cannot be sent to a process "
            f"({type(e).__name__}: {e}); define it at the top level of a module, "
            "install cloudpickle, or give workers = 1"
        ) from e
    return str(path)


def run_file(path, *args):
    return loaded(path)(*args)


@functools.lru_cache(maxsize=1)
def loaded(path):
    return torch.load(path, mmap=True, weights_only=False)


def begin(ended, environment):
    """In a new process of a pool: the caller's environment, and no life after the pool
    was left or the caller has died, which closes the pipe. Ctrl-C is the caller's.
    """
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end = lambda: ended.poll(None) and os._exit(1)
    threading.Thread(target=end, daemon=True).start()


def call(expected, f, *args):
    """f(*args) in a worker, which must have the caller's code; with one thread."""
    if expected != CODE:
        raise CodeError(
            f"worker {os.getpid()} on {socket.gethostname()} has {CODE}, the caller "
            f"{expected}: bring both to one commit and torch, and start them again"
        )
    torch.set_num_threads(1)
    try:
        return f(*args)
    except Exception as e:
        raise WorkerError(reason(e)) from e


def code():
    """The code that decides numbers: a digest of fedlib's sources as they are on disk,
    and the release of torch (a build for a GPU is the same).
    """
    release = torch.__version__.partition("+")[0]
    return f"fedlib {sources('**/*.py')[:12]}, torch {release}"


CODE = code()  # what this process has imported, whatever becomes of the files
