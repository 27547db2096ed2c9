"""Ask a peer, in the interpreter of its own environment."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# name -> module, repetitions at most, CPU seconds of each at least; starting Flower
# costs half a minute a time
PEERS = {
    "pfl": ("with_pfl", 7, 0),
    "fedlab": ("with_fedlab", 7, 0),
    "pfllib": ("with_pfllib", 7, 0),
    "flgo": ("with_flgo", 7, 0),
    "flower": ("with_flower", 3, 4),
}
NAMES = {
    "pfl": "pfl-research",
    "fedlab": "FedLab",
    "pfllib": "PFLlib",
    "flgo": "FLGo",
    "flower": "Flower simulation",
}


def given(entries, parser):
    """[(name, python)] of what was said with --peer NAME=PYTHON."""
    pairs = [tuple(e.partition("=")[::2]) for e in entries]
    for (who, python), entry in zip(pairs, entries):
        if who not in PEERS or not python:
            parser.error(
                f"--peer {entry}: write NAME=PYTHON with NAME one of {', '.join(PEERS)}"
            )
    return pairs


def ask(name, python, case, reps=7, seconds=1.0, method=None, limit=900):
    """Rows of one peer, run by its own interpreter beside the DataLoader loop; a
    failure is a row with its reason. reps, seconds: at most so many repetitions, and at
    least so many CPU seconds of each.
    """
    env = os.environ | {
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
    }
    same = {"case": case} | ({"method": method} if method else {})
    empty = same | {"variant": NAMES[name]}
    module, most, least = PEERS[name]
    much = str(min(reps, most)), str(max(seconds, least))
    what = [case, *much, *([method] if method else [])]
    try:
        done = subprocess.run(
            [python, "-m", f"benchmarks.peers.{module}", *what],
            env=env,
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=limit,
        )
    except FileNotFoundError:
        return [empty | {"note": f"no interpreter {python}"}]
    except subprocess.TimeoutExpired:
        return [empty | {"note": f"not finished after {limit} s"}]
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"variant"')]
    if not lines:
        why = [line for line in done.stderr.splitlines() if line.strip()]
        return [
            empty
            | {
                "note": "failed: "
                + (why[-1][:200] if why else f"exit status {done.returncode}")
            }
        ]
    return [same | json.loads(line) for line in lines]
