"""Cells are computed: one alone, many on the cores of this machine or on a cluster.

A finished run is never repeated and a killed one continues; where computations happen
is said in fedlib.study.executor.
"""

from __future__ import annotations

import functools
import json
import math
import os
import sys
import tempfile
import time
from pathlib import Path

import torch
from tqdm import tqdm

from ..core import clients, engine, errors
from ..core.files import whole
from ..data import tasks
from ..methods import make
from . import lock
from .executor import opened, reason, results
from .studies import Cell

FILES = ("record.npz", "record.json", "done")  # of a finished run; "done" comes last


class RunError(ValueError):
    """A cell could not be computed; says which.

    What the others have computed is kept.
    """


# ---------------------------------------------------------------- one cell
@functools.lru_cache(maxsize=2)
def task_of(spec, seed, name):
    """The Task of a description (json); seed: of its split; name: what to call it."""
    return tasks.build(json.loads(spec), seed, name)


def trained(cell, device=None, folder=None):
    """(method, task, record) of a cell, run anew: record.state has what server and
    clients hold after the last round.

    Without a folder nothing is written. Raises engine.Diverged.
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
    """The folder of a cell's run, which is computed unless it is done.

    A diverged run leaves its record, too. Where another process computes it, wait for
    that; with wait=False return None.
    """
    torch.set_num_threads(1)
    folder = Path(runs, cell.id)
    if not (folder / "done").exists():
        with lock.alone(folder, wait) as mine:
            if not mine:
                return None
            if not (folder / "done").exists():  # nobody has finished it meanwhile
                try:
                    trained(cell, device, folder)
                except errors.Diverged as e:
                    print(f"{describe_cell(cell)}: {e}", file=sys.stderr)
    return folder


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
    cells = list(cells)
    out, failed = [None] * len(cells), []
    with opened(executor, workers, len(cells)) as submit:
        for i, out[i], error in results(submit, f, cells):
            if error:
                failed.append((cells[i], error))
    raise_first(failed)
    return out


def compute_all(
    cells, runs="runs", workers=None, device=None, executor=None, until=math.inf
):
    """Every cell's folder, in order.

    workers: processes on this machine; executor: somewhere else, see
    fedlib.study.executor. until: seconds since the epoch; no run begins later, so that
    some may be missing (see `unfinished`).

    What another process is computing is left for last, then waited for. A cell that
    fails stops no other: RunError at the end.
    """
    cells, at, failed = list(cells), Path(runs).absolute(), []
    missing = unfinished(cells, at)
    if missing:
        at.mkdir(parents=True, exist_ok=True)
        opening = opened(executor, workers, len(missing), device)
        with opening as submit, progress_bar(len(missing)) as bar:
            for wait in (False, True):
                some = list(missing.items())
                args = str(at), device, wait, until
                for i, files, error in results(submit, compute_files, some, *args):
                    if not (error or files):  # another process is at it, or late
                        continue
                    name, cell = some[i]
                    del missing[name]
                    bar.update()
                    if error:
                        message = f"{describe_cell(cell)}: {reason(error)}"
                        print(message, file=sys.stderr)
                        failed.append((cell, error))
                    else:
                        store_files(at / name, files)
    failed.sort(key=lambda bad: cells.index(bad[0]))  # whoever was quicker
    raise_first(failed, "; the other runs are kept")
    return [Path(runs, c.id) for c in cells]


def unfinished(cells, runs):
    """{id: cell} of those that are not done in the folder runs, those of one task after
    one another, so that a worker keeps its task and what runs on it share.
    """
    by_task = sorted(cells, key=lambda c: (c.task, c.seed))
    by_id = {c.id: c for c in by_task}
    return {i: c for i, c in by_id.items() if not (runs / i / "done").exists()}


def progress_bar(n):
    """A bar of n runs, on a terminal."""
    hidden = not sys.stderr.isatty()
    return tqdm(total=n, unit="run", disable=hidden, leave=False)


def compute_files(item, runs, device=None, wait=True, until=math.inf):
    """What a worker does, here or on another machine: `compute_cell`.

    item: (id by the caller's sources, cell). Returns the run's files {name: bytes};
    None: another process is computing it, or it is later than `until`. Without a folder
    `runs` the files are made in a passing one.
    """
    if time.time() >= until:
        return None
    expected, cell = item
    if cell.id != expected:
        raise ValueError(
            f"to the worker this run is {cell.id}, to the caller {expected}: their "
            "sources, or the files of weights that they see, differ. Bring both to one "
            "state and start them again"
        )
    with tempfile.TemporaryDirectory() as passing:
        at = runs if os.path.isdir(runs) else passing
        folder = compute_cell(cell, at, device, wait)
        return folder and {name: (folder / name).read_bytes() for name in FILES}


def store_files(folder, files):
    """Keep a run that a worker without our folder `runs` has sent, unless it is there;
    `done` comes last.
    """
    if not (folder / "done").exists():
        folder.mkdir(parents=True, exist_ok=True)
        with lock.alone(folder):
            for name, body in files.items():
                whole(folder / name, lambda f, body=body: f.write(body))
            (folder / "checkpoint").unlink(missing_ok=True)


def raise_first(failed, kept=""):
    """RunError for the first of [(cell, exception)], if there is one."""
    if failed:
        cell, error = failed[0]
        more = f"; {len(failed) - 1} more failed" if len(failed) > 1 else ""
        message = f"{describe_cell(cell)}: {reason(error)}{more}{kept}"
        raise RunError(message) from error
