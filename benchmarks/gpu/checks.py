"""The tests on the device; and does a variant compute what the loop does?"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXACT = 1e-8  # in float64: the same up to rounding
NEAR = 0.05  # in float32 a relu that flips is amplified within a round


def tests(device, seconds):
    """One line about the tests whose `device` is cuda."""
    if device.type != "cuda":
        return "skipped: no CUDA device here"
    if importlib.util.find_spec("pytest") is None:
        return "skipped: pytest is not installed"
    files = [
        str(f)
        for f in sorted((ROOT / "tests").rglob("test_*.py"))
        if re.search(r"def test\w*\(.*\bdevice\b", f.read_text())
    ]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-k",
        "cuda",
        "-p",
        "no:cacheprovider",
        "--continue-on-collection-errors",
    ]
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            [*command, *files],
            cwd=ROOT,
            env=env,
            capture_output=True,
            text=True,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        return f"not finished after {seconds:.0f} s"
    lines = done.stdout.strip().splitlines()
    return "; ".join(
        [*[x for x in lines if x.startswith(("FAILED", "ERROR"))][:20], *lines[-1:]]
    )


def apart(a, b):
    """Largest difference of two models, in units of the largest weight of its tensor;
    infinite where one is not finite.
    """
    worst = 0.0
    for k in b:
        d = ((a[k] - b[k]).abs().max() / b[k].abs().max().clamp(min=1e-12)).item()
        worst = max(worst, d if d == d else float("inf"))
    return worst
