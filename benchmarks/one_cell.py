"""CPU seconds of single cells of studies, by the fedlib that PYTHONPATH names.

`benchmarks.evidence` starts it by its path, once per version of the code. It first says
whose code it is; then each line of its input is a cell, each line of its output the
answer. The task is built before the clock starts, and runs go into a passing folder.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import tempfile
import time
import warnings

import torch

import fedlib
from fedlib.core import provenance
from fedlib.pieces import condense
from fedlib.study import compute
from fedlib.study.studies import Cell


def seconds(cell, rounds, times):
    """CPU seconds of a cell's run of so many rounds, `times` times over; only the first
    finds nothing that runs share.
    """
    engine = json.dumps(json.loads(cell.engine) | {"rounds": rounds})
    cell = dataclasses.replace(cell, engine=engine)
    compute.task_of(cell.task, cell.seed, cell.dataset)
    getattr(condense, "answers", {}).clear()  # older code shares nothing
    return [once(cell) for _ in range(times)]


def once(cell):
    with tempfile.TemporaryDirectory() as runs:
        start = time.process_time()
        compute.compute_cell(cell, runs, "cpu")
        return time.process_time() - start


def answer(order):
    """{"seconds": [...]}, or {"error": why}."""
    try:
        cell = Cell(**order["cell"])
        return {"seconds": seconds(cell, order["rounds"], order["times"])}
    except Exception as e:
        return {"error": f"{type(e).__name__}: {e}"}


def main():
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    out, sys.stdout = sys.stdout, sys.stderr  # what a run prints is no answer

    def say(what):
        print(json.dumps(what), file=out, flush=True)

    mine = {"commit": provenance.commit(), "source": provenance.source()}
    say(mine | {"fedlib": fedlib.__file__, "torch": torch.__version__})
    for line in sys.stdin:
        say(answer(json.loads(line)))


if __name__ == "__main__":
    main()
