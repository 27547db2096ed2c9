"""Runs are computed: a cell, or a list of jobs, here or in other processes, by joblib.

    study("fedga", "synthetic")                      # processes, one a core
    with joblib.parallel_config("dask"): ...         # wherever a backend of joblib is

On a cluster every machine needs the same commit of this package and the folder `runs`.
"""

from __future__ import annotations

import functools
import json
import math
import os
import sys
import time
from concurrent.futures import BrokenExecutor, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from joblib import Parallel, delayed
from tqdm import tqdm

from ..core import clients, engine, errors
from ..data import tasks
from ..methods import make
from . import lock, store

SMALL = ("Linear", "MLP", "Adapter", "Prompts")  # faster on the cores than on a GPU


class RunError(ValueError):
    """A run could not be computed; says which. What the others computed is kept."""


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


def compute_cell(cell, wait=True, runs="runs", device=None, until=math.inf):
    """The folder of a cell's run, which is computed unless it is done; None where
    another process is at it, and wait=False, and where it is later than `until`. A
    diverged run leaves its record, too.
    """
    folder = Path(runs, cell.id)
    done = folder / "record"
    if done.exists() or time.time() >= until:
        return folder if done.exists() else None
    with lock.alone(folder, wait) as mine:
        if mine and not done.exists():  # nobody has finished it meanwhile
            try:
                trained(cell, device, folder)
            except errors.Diverged as e:
                print(f"{cell}: {e}", file=sys.stderr)
    return folder if mine else None


# ---------------------------------------------------------------- many cells
def map_cells(f, cells, workers=None):
    """[f(cell)], in order, computed where `compute_all` would. Raises RunError."""
    return [x for (x,) in every(lambda cell, wait: [f(cell)], [*cells], workers)]


def compute_all(cells, runs="runs", workers=None, device="auto", until=math.inf):
    """Every cell's folder, in order; a cell that fails stops no other: RunError at the
    end.

    workers: processes on this machine (None: one per core that we may use). device:
    "cpu", "cuda", or "auto", convolutions on a GPU where there is one, one at a time,
    and beside it all others on the cores. until: seconds since the epoch; no run begins
    later, so that some may be missing.
    """
    at, places = Path(runs).absolute(), {}
    for c in unfinished(cells, at):
        places.setdefault(place_of(c) if device == "auto" else device, []).append(c)

    def on(where):
        f = functools.partial(compute_cell, runs=at, device=where, until=until)
        every(f, places[where], 1 if where == "cuda" else workers, where, None)

    with ThreadPoolExecutor() as side:
        list((side.map if len(places) > 1 else map)(on, places))
    return [Path(runs, c.id) for c in cells]


def place_of(cell):
    """The device of a cell under "auto"."""
    small = json.loads(cell.task)["network"]["name"] in SMALL
    return "cuda" if torch.cuda.is_available() and not small else "cpu"


def forecast(cells, stored):
    """What computing cells asks for, in words; stored: the study's folder in evidence/,
    whose runs of the same task and method say how long, on a core like theirs.
    """
    rates, columns = {}, ("task", "method", "seconds", "rounds")
    for run in store.listed(stored, columns):
        rate = run["seconds"] / run["rounds"][-1]
        rates.setdefault((run["task"], run["method"]), []).append(rate)
    rounds = [json.loads(c.engine)["rounds"] for c in cells]
    timed = [(n, rates.get((c.task, c.method))) for n, c in zip(rounds, cells)]
    minutes = sum(n * np.mean(rate) for n, rate in timed if rate) / 60
    words = f"{len(cells):,} runs, {sum(rounds):,} rounds to compute"
    if any(rate for _, rate in timed):
        words += f", about {max(1, round(minutes))} min of one core"
    unknown = sum(rate is None for _, rate in timed)
    return words + f"; {unknown:,} of them were never timed" * (unknown > 0)


def unfinished(cells, runs):
    """The cells that are not done in the folder runs, each once; those of one task
    after one another, so that a worker keeps its task.
    """
    by_id = {c.id: c for c in sorted(cells, key=lambda c: (c.task, c.seed))}
    return [c for i, c in by_id.items() if not Path(runs, i, "record").exists()]


def every(f, cells, workers, *how):
    """[f(cell, wait)], None: not computed; RunError at the end, where one fails."""
    found, failed = [None] * len(cells), {}
    for i, found[i], why in run_jobs(f, cells, workers, *how):
        if why:
            print(f"{cells[i]}: {why}", file=sys.stderr)
            failed[i] = why
    if failed:
        more = f"; {len(failed) - 1} more failed" if len(failed) > 1 else ""
        raise RunError(f"{cells[min(failed)]}: {failed[min(failed)]}{more}")
    return found


# ---------------------------------------------------------------- many jobs
def run_jobs(f, jobs, workers=None, device=None, progress=False):
    """Yield (number of the job, f(job, wait), None) or (number, None, why it failed),
    as they end.

    f gives None for a job that another process is at: it is left for last, and then
    asked to wait. A job that fails stops no other; RunError, where a worker has died,
    ends all. workers: see `compute_all`; progress: see `compare`.
    """
    left, hidden = dict(enumerate(jobs)), {True: False, False: True}.get(progress)
    on_gpu = torch.cuda.is_available() and device != "cpu"
    n = workers or (1 if on_gpu else len(os.sched_getaffinity(0)))
    pool = Parallel(max(1, min(n, len(left))), return_as="generator_unordered")
    with tqdm(total=len(left), unit="run", leave=False, disable=hidden) as bar:
        for wait in (False, True):
            todo = [delayed(tried)(i, f, job, wait) for i, job in left.items()]
            try:
                for i, value, why in pool(todo):
                    if value is not None or why:
                        del left[i]
                        bar.update()
                        yield i, value, why
            except BrokenExecutor as e:
                why = "a worker was killed (out of memory?); give fewer workers"
                raise RunError(why) from e


def tried(i, f, job, wait):
    """(i, f(job, wait), None), or what it raised in one line, with one thread."""
    torch.set_num_threads(1)
    try:
        return i, f(job, wait), None
    except Exception as e:  # not every exception can be sent to another process
        return i, None, reason(e)


def reason(error):
    """An exception in one line; one that is in words already as it is."""
    return error if isinstance(error, str) else f"{type(error).__name__}: {error}"
