"""Runs are computed: a cell, or a list of jobs, here or in other processes, by joblib.

    study("fedga", "synthetic")                      # processes, one a core
    with joblib.parallel_config("dask"): ...         # wherever a backend of joblib is

On a cluster every machine needs the same commit of this package and the folder `runs`.
"""

import functools
import json
import math
import operator
import os
import sys
from concurrent.futures import BrokenExecutor, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from joblib import Parallel, delayed
from tqdm import tqdm

from ..core import clients, engine, errors
from ..data import tasks
from ..methods import make
from .store import alone, listed

DRAWS = "FEDLIB_RESULTS"  # where the pipeline draws: it would keep what is printed
SMALL = ("Linear", "MLP", "Adapter", "Prompts")  # faster on the cores than on a GPU


# ---------------------------------------------------------------- one cell
@functools.lru_cache(maxsize=2)
def task_of(spec, seed, name):
    """The Task of a description (json); seed: of its split; name: what to call it."""
    return tasks.build(json.loads(spec), seed, name)


def trained(cell, device=None, folder=None):
    """(method, task, record) of a cell, run anew, with its state; Diverged."""
    task = task_of(cell.task, cell.seed, cell.dataset)
    method = make.make(cell.method, task, **json.loads(cell.kwargs))
    how = json.loads(cell.engine)
    if "online" in how:
        how["cohort"] = clients.size(task.C, how.pop("online"))
    if "stragglers" in how:
        how["cohort"] = clients.stragglers(task.C, **how.pop("stragglers"))
    # a study keeps numbers, no models
    how |= {"folder": folder, "device": device, "keep_state": False, "progress": False}
    return method, task, engine.run(method, task, seed=cell.seed, **how)


def compute_cell(cell, wait=True, runs="runs", device=None):
    """The folder of a cell's run, which is computed unless it is done; None where
    another process is at it, and wait=False. A diverged run leaves its record, too."""
    folder = Path(runs, cell.id)
    if (done := folder / "record").exists():
        return folder
    with alone(folder, wait) as mine:
        if mine and not done.exists():  # nobody has finished it meanwhile
            try:
                trained(cell, device, folder)
            except errors.Diverged as e:
                print(f"{cell}: {e}", file=sys.stderr)
    return folder if mine else None


# ---------------------------------------------------------------- many cells
def compute_all(cells, runs="runs", workers=None, device="auto", name=""):
    """Every cell's folder, in order; a cell that fails stops no other and is named in
    a ValueError at the end; what the others computed is kept.

    workers: processes on this machine (None: one per core that we may use, one for a
    GPU). device: "cpu", "cuda", or "auto", convolutions on a GPU where there is one,
    and beside it all others on the cores. name: says first what there is to compute."""
    at, places, todo = Path(runs).absolute(), {}, unfinished(cells, runs)
    large = "cuda" if torch.cuda.is_available() else "cpu"
    if name and todo and DRAWS not in os.environ:
        print(f"{name}: {forecast(todo)}", file=sys.stderr, flush=True)
    for c in todo:
        best = "cpu" if json.loads(c.task)["network"]["name"] in SMALL else large
        places.setdefault(best if device == "auto" else device, []).append(c)

    def on(where):
        f = functools.partial(compute_cell, runs=at, device=where)
        every(f, places[where], workers, where, None)

    with ThreadPoolExecutor() as side:
        list((side.map if len(places) > 1 else map)(on, places))
    return [Path(runs, c.id) for c in cells]


def forecast(cells, root="evidence"):
    """What computing cells asks for, in words: the time by what is stored alike."""
    rounds = [json.loads(c.engine)["rounds"] for c in cells]
    pace = [paces(root).get((c.method, c.dataset, c.data), 0) for c in cells]
    wall = math.ceil(np.dot(rounds, pace) / len(os.sched_getaffinity(0)))
    about = f", about {wall:,} min" if wall else ""
    return f"{len(cells):,} runs, {sum(rounds):,} rounds to compute{about}"


@functools.cache
def paces(root):
    """{(method, data set, kind of data): minutes of a round}, of stored runs."""
    columns = "method dataset data engine seconds".split()
    rows = [r for f in Path(root).glob("*-*/") for r in listed(f, columns)]
    found = pd.DataFrame(rows, columns=columns)
    found["rounds"] = [max(1, json.loads(e)["rounds"]) for e in found.engine]
    found["minutes"] = found.seconds / 60 / found.rounds
    return dict(found.groupby(columns[:3]).minutes.median())


def unfinished(cells, runs):
    """The cells not done in the folder runs, each once; a worker keeps its task."""
    by_id = {c.id: c for c in sorted(cells, key=lambda c: (c.task, c.seed))}
    return [c for i, c in by_id.items() if not Path(runs, i, "record").exists()]


def every(f, cells, workers=None, *how):
    """[f(cell, wait)], in order, see `run_jobs`; ValueError at the end for failures."""
    done = sorted(run_jobs(f, cells, workers, *how), key=operator.itemgetter(0))
    if failed := [f"{cells[i]}: {why}" for i, _, why in done if why]:
        raise ValueError("\n".join(failed))
    return [value for _, value, _ in done]


# ---------------------------------------------------------------- many jobs
def run_jobs(f, jobs, workers=None, device=None, progress=False):
    """Yield (number of the job, f(job, wait), None) or (number, None, why it failed),
    as they end.

    f gives None for a job that another process is at: it is left for last, and then
    asked to wait. A job that fails stops no other; ValueError, where a worker has died,
    ends all. workers: see `compute_all`; progress: see `compare`."""
    left, hidden = dict(enumerate(jobs)), progress is not None and not progress
    if progress is None and ("ipykernel" not in sys.modules or DRAWS in os.environ):
        hidden = None  # but on a terminal
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
                raise ValueError(why) from e


def tried(i, f, job, wait):
    """(i, f(job, wait), None), or what it raised in one line, with one thread."""
    torch.set_num_threads(1)
    try:
        return i, f(job, wait), None
    except Exception as e:  # not every exception can be sent to another process
        return i, None, f"{type(e).__name__}: {e}"
