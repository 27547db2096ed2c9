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

How to start a cluster, also under Slurm and PBS: fedlib.study.cluster.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from concurrent.futures import CancelledError, ProcessPoolExecutor, as_completed
from contextlib import contextmanager

import torch

from . import cluster
from .cluster import version

VARIABLE = "FEDLIB_SCHEDULER"


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
    if executor is None:
        workers = workers or cores(device)
        with processes(workers if most is None else min(workers, most)) as submit:
            yield submit
    elif isinstance(executor, str):
        client = cluster.connect(executor, f"--scheduler, executor= or {VARIABLE}")
        try:
            with opened(client) as submit:
                yield submit
        finally:
            client.close()
    elif hasattr(executor, "get_executor"):  # a Dask client
        cluster.check(executor)
        with opened(executor.get_executor(pure=False)) as submit:
            yield submit
    elif hasattr(executor, "submit"):
        yield functools.partial(executor.submit, cluster.call, version(), attempt)
    else:
        raise ValueError(
            f"executor = {executor!r}: give the address of a scheduler, as "
            "tcp://10.0.0.5:8786, an object with submit(f, *args) -> "
            "concurrent.futures.Future, or None"
        )


def cores(device=None):
    """How many runs at once: one per core that we may use, one where there is a GPU."""
    on_gpu = torch.cuda.is_available() and device != "cpu"
    return 1 if on_gpu else len(os.sched_getaffinity(0))


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
        except cluster.CodeError:
            raise
        except Exception as e:
            yield i, None, e


class WorkerError(Exception):
    """What was raised in another process, in words; its traceback is a note.

    Not every exception survives the way back.
    """


def attempt(f, *args):
    """f(*args) in another process."""
    if pressed:  # what was handed over before
        raise KeyboardInterrupt
    idle = signal.getsignal(signal.SIGINT) is note
    if idle:  # while it runs, Ctrl-C ends the round at hand
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return f(*args)
    except KeyboardInterrupt:
        if idle:
            pressed.append(True)
        raise
    except Exception as e:
        error = WorkerError(f"{type(e).__name__}: {e}")
        error.add_note(traceback.format_exc())
        raise error from None
    finally:
        if idle and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, note)


pressed = []  # Ctrl-C, in a process of a pool


def note(*_):
    """Ctrl-C in a process that waits for work: it begins nothing more, and its caller,
    who has heard it too, ends it.
    """
    pressed.append(True)


def reason(error):
    """An exception in one line, wherever it was raised."""
    if isinstance(error, CancelledError):
        return "cancelled: the scheduler has gone, or was told to stop it"
    if isinstance(error, WorkerError):
        return str(error)
    return f"{type(error).__name__}: {error}"


# ---------------------------------------------------------------- this machine
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
    safe = sys.platform == "linux" and version() == served()
    return "forkserver" if safe else "spawn"


@functools.cache
def served():
    """The code when the first pool was started."""
    return version()


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
