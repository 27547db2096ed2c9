"""Where runs are computed: one argument of `experiment.study`, or the environment
variable FEDLIB_SCHEDULER.

    study("fedga", "synthetic")                                  # processes, one a core
    study("fedga", "synthetic", executor="tcp://10.0.0.5:8786")  # a Dask cluster
    study("fedga", "synthetic", executor=ThreadPoolExecutor(2))  # whatever has submit

    python -m fedlib run fedga/synthetic --scheduler tcp://10.0.0.5:8786
    FEDLIB_SCHEDULER=tcp://10.0.0.5:8786 dvc repro

An executor of one's own has submit(f, *args) -> Future. With FEDLIB_SCHEDULER all
notebooks run on a cluster, no line of them changed; it counts where nothing is said,
an argument `executor` or `workers` goes before it.

**A Dask cluster.** On every machine `pip install 'fedlib[cluster]'` and the same commit
of this package. On one of them the scheduler, which prints its address; on every one,
in the folder of the repository, the workers:

    dask scheduler --host 10.0.0.5
    dask worker tcp://10.0.0.5:8786 --nthreads 1 --nworkers 8

Under Slurm dask-jobqueue starts the workers as jobs; under PBS it is PBSCluster. Here
are 4 jobs of 8 workers, each of one thread:

    from dask_jobqueue import SLURMCluster
    size = dict(walltime="04:00:00", cores=8, processes=8, memory="32GB")
    slurm = SLURMCluster(queue="short", **size)
    slurm.scale(jobs=4)
    study("fedga", "synthetic", executor=slurm.scheduler_address)

Finished runs end up in the caller's folder `runs`. Where the workers see that folder
too, as on a shared file system, a killed run goes on from its checkpoint at another
worker; where not, it starts anew and its files come back over the network.

Who reaches a tcp:// scheduler can run code on its workers. Keep it in a private
network, or use tls:// with the certificates in Dask's configuration.
"""

from __future__ import annotations

import functools
import logging
import multiprocessing
import os
import re
import signal
import socket
import sys
import threading
import traceback
from concurrent.futures import CancelledError, ProcessPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager

import torch

from ..core.provenance import sources

VARIABLE = "FEDLIB_SCHEDULER"
PATIENCE = 5  # seconds for a scheduler to answer
log = logging.getLogger(__name__)


class CodeError(ValueError):
    """A worker has other code than the caller, so its numbers would not be ours."""


class WorkerError(Exception):
    """What was raised in another process, in words; its traceback is a note.

    Not every exception survives the way back.
    """


@contextmanager
def opened(executor=None, workers=None, most=None, device=None):
    """A function submit(f, *args) -> Future for as long as it is needed; None: compute
    in this process.

    executor: see the module. workers: processes on this machine (None: one per core
    that we may use; one where there is a GPU). most: no more than so many are needed.
    Raises ValueError where a cluster is not there or has other code.
    """
    if executor is None and workers is None:
        executor = os.environ.get(VARIABLE) or None
    with ExitStack() as until:
        if executor is None:
            n = workers or cores(device)
            yield until.enter_context(processes(n if most is None else min(n, most)))
            return
        if isinstance(executor, str):
            executor = until.enter_context(connect(executor))
        if hasattr(executor, "get_executor"):  # a Dask client
            check_workers(executor)
            executor = executor.get_executor(pure=False)
        if not hasattr(executor, "submit"):
            what = f"executor = {executor!r}: give the address of a scheduler, as"
            raise ValueError(
                f"{what} tcp://10.0.0.5:8786, or what has submit(f, *args)"
            )
        yield functools.partial(executor.submit, call, version(), attempt)


def results(submit, f, items, *args):
    """(i, f(items[i], *args), None) or (i, None, the exception), in the order in which
    they end; submit None: in this process. Raises CodeError at once.
    """
    if submit is None:
        for i, item in enumerate(items):
            try:
                yield i, f(item, *args), None
            except Exception as e:
                yield i, None, e
        return
    todo = {submit(f, item, *args): i for i, item in enumerate(items)}
    for future in as_completed(todo):
        i = todo.pop(future)  # and its result is not kept here
        try:
            yield i, future.result(), None
        except CodeError:
            raise
        except Exception as e:
            yield i, None, e


def reason(error):
    """An exception in one line, wherever it was raised."""
    if isinstance(error, CancelledError):
        return "cancelled: the scheduler has gone, or was told to stop it"
    if isinstance(error, WorkerError):
        return str(error)
    return f"{type(error).__name__}: {error}"


# ---------------------------------------------------------------- in a worker
def attempt(f, *args):
    """f(*args) in another process."""
    if pressed:  # what was handed over before
        raise KeyboardInterrupt
    waiting = signal.getsignal(signal.SIGINT) is note
    if waiting:  # while it runs, Ctrl-C ends the round at hand
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return f(*args)
    except KeyboardInterrupt:
        if waiting:
            pressed.append(True)
        raise
    except Exception as e:
        error = WorkerError(f"{type(e).__name__}: {e}")
        error.add_note(traceback.format_exc())
        raise error from None
    finally:
        if waiting and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, note)


pressed = []  # Ctrl-C, in a process of a pool


def note(*_):
    """Ctrl-C in a process that waits for work: it begins nothing more, and its caller,
    who has heard it too, ends it.
    """
    pressed.append(True)


# ---------------------------------------------------------------- this machine
def cores(device=None):
    """How many runs at once: one per core that we may use, one where there is a GPU."""
    on_gpu = torch.cuda.is_available() and device != "cpu"
    return 1 if on_gpu else len(os.sched_getaffinity(0))


@contextmanager
def processes(n):
    """A pool of n processes, copies of a server that has imported fedlib: importing
    takes seconds, a run may not.
    """
    if n < 2:
        yield None
        return
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    context = multiprocessing.get_context(start_method())
    if context.get_start_method() == "forkserver":
        context.set_forkserver_preload(["fedlib.study.compute"])
    start = {"initializer": begin, "initargs": (dict(os.environ),)}
    with ProcessPoolExecutor(n, mp_context=context, **start) as pool:
        try:
            yield functools.partial(pool.submit, attempt)
        except BaseException:  # interrupted: do not wait for what has not begun
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def start_method():
    """forkserver, or spawn where that is not safe: off Linux, and after an edit, as the
    server keeps the code of its start.
    """
    safe = sys.platform == "linux" and version() == first()
    return "forkserver" if safe else "spawn"


def begin(environment):
    """In a new process of the pool: the caller's environment of today, one thread, and
    no life after the caller's.
    """
    os.environ.update(environment)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, note)
    torch.set_num_threads(1)
    threading.Thread(target=end_with_caller, daemon=True).start()


def end_with_caller():
    """Wait for the caller's end, and end this process."""
    multiprocessing.parent_process().join()
    os._exit(1)


# ---------------------------------------------------------------- a Dask cluster
def connect(address):
    """A Dask client of the scheduler at an address, "tcp://host:port"."""
    parts = re.fullmatch(r"(tcp|tls)://\[?([^/\]]+)\]?:(\d+)", address)
    if not parts:
        example = "tcp://host:port; `dask scheduler` prints it"
        raise ValueError(f"scheduler {address!r}: write its address as {example}")
    try:
        from distributed import Client  # here, since Dask is optional

        # a client by itself would wait for ever for what is no scheduler
        with socket.create_connection((parts[2], int(parts[3])), PATIENCE) as s:
            if parts[1] == "tcp" and not s.recv(1):  # a scheduler speaks first
                raise OSError("what is there hangs up")
        return Client(address, timeout=PATIENCE, set_as_default=False)
    except ImportError as e:
        install = "Dask is not installed here; pip install 'fedlib[cluster]'"
        raise ValueError(f"scheduler {address}: {install}") from e
    except (OSError, TypeError) as e:  # tls without certificates is a TypeError
        what = f"no Dask scheduler answers at {address} within {PATIENCE} s ({e})"
        where = f"--scheduler, executor= or {VARIABLE}"
        start = "start one there with `dask scheduler`"
        raise ValueError(f"{what}; {start}, or correct {where}") from e


def check_workers(client):
    """CodeError for workers that run other code, before anything is submitted."""
    at, found = client.scheduler.address, client.run(first, on_error="return")
    if not found:
        start = f"dask worker {at} --nthreads 1"
        log.warning("%s has no workers yet; runs begin when one comes: %s", at, start)
    for worker, theirs in sorted(found.items()):
        same_code(f"worker {worker} of {at}", theirs, version())


def call(expected, f, *args):
    """f(*args) on a worker that may have come after the check, with one thread."""
    me = f"worker {os.getpid()} on {socket.gethostname()}"
    same_code(me, first(), expected)
    torch.set_num_threads(1)
    return f(*args)


def same_code(who, theirs, mine):
    """CodeError unless a worker has the caller's code; theirs may be an exception."""
    if theirs != mine:
        what = f"{who} has {theirs!s}, the caller has {mine}: bring both to one commit"
        raise CodeError(f"{what} and one torch, then start workers and notebook again")


def version():
    """The code that decides numbers: a digest of fedlib's sources as they are on disk,
    and the release of torch.
    """
    release = torch.__version__.partition("+")[0]  # a build for a GPU is the same
    return f"fedlib {sources('**/*.py')[:12]}, torch {release}"


@functools.cache
def first():
    """The version at a process's first call: what it has imported stays, whatever
    becomes of the files.
    """
    return version()
