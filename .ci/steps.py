"""What continuous integration does, step by step, and what each step took.

    python .ci/steps.py ci          every change: ten minutes of two idle cores
    python .ci/steps.py nightly     every night, two hours; goes on after a failure

The commands of a step run beside one another; tests run alone.
Needs no package. At the end stands a table of seconds, CPU seconds and the load of the
machine, and nothing that git tracks may have changed.
"""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VENV = Path(os.environ.get("VENV", ROOT / ".venv")).absolute()
PY, TINY, DAY = f"{VENV}/bin/python", "tiers/tiny", time.strftime("%j")
# One notebook of each paper and of each kind. What each of them reads is made with it.
STAGES = (
    "gate fedga@tables fedas@distributions plgu@landscapes equfl@paths "
    "fft-gp@distributions labs@fedga labs@measuring_fairness labs@one_round traffic "
    "errors"
)
PAGES = "intro.html one_round.html fedga.html claims.html notebooks/fedga/tables.html"
BROWSER = (
    "command -v chromium || command -v chromium-browser || command -v google-chrome || "
    '{ [ "$(id -u)" = 0 ] && command -v apt-get && apt-get update -qq && '
    "apt-get install -y -qq chromium; } || echo 'No browser to be had here.'"
)
PROXY = (
    'command -v nginx || { [ "$(id -u)" = 0 ] && apt-get update -qq && '
    "apt-get install -y -qq nginx-light; } || echo 'No proxy to be had here.'"
)
BOOK = f"cd {TINY} && PYTHONPATH=$PWD {PY} -m repro.bookbuild"
LOOK = f"{PY} -m repro.browse {TINY}/book/_build/html"
PRINT = f"cd {TINY} && PYTHONPATH=$PWD {PY} -m repro.pdf"
PIECES = f"FIGURES={TINY}/results/figures {PY} -m pytest -q tests/book -m nightly"

CI = {
    "install": [f"make {VENV}/.installed", BROWSER],
    "tests": ["make test"],
    "notebooks of tier tiny": [
        f"rm -rf {TINY}; {PY} -m repro.tier tiny --alone {STAGES}"
    ],
    "results, lint": [f"{PY} -m repro.tier tiny --alone results", "make lint"],
    "again, stored runs": [
        f"{PY} -m repro.tier tiny --alone {STAGES} results | grep 'up to date'",
        f"{PY} -m fedlib evidence check",
        f"{PY} -m fedlib evidence verify --sample 1 --seed {DAY}",
    ],
    "book": [f"{PY} .ci/draft.py {TINY} && {BOOK}"],
    "browser": [f"{LOOK} {PAGES}", PIECES],
}
NIGHTLY = {
    "install": [*CI["install"], PROXY],
    "dear tests": [f"{PY} -m pytest -q -m nightly"],
    "torture": [f"{PY} torture --share .2 --seed {DAY}"],
    "stored runs": [f"{PY} -m fedlib evidence verify --sample 20 --seed {DAY}"],
    "all notebooks and pages of tier tiny": ["make paper TIER=tiny"],
    "browser, all pages": [LOOK, PRINT],
    "pinned packages": ["make audit"],
    "faults": ["make mutants"],
}


def cpu() -> float:
    return sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])


def run(commands: list[str]) -> tuple[int, str]:
    """The worst exit status of commands side by side, and what the first has printed.
    The others' words come when all have ended.
    """
    files = [tempfile.TemporaryFile("w+") for _ in commands[1:]]
    others = [
        subprocess.Popen(c, shell=True, stdout=f, stderr=subprocess.STDOUT)
        for c, f in zip(commands[1:], files)
    ]
    said, words = "", subprocess.STDOUT
    with subprocess.Popen(
        commands[0], shell=True, stdout=subprocess.PIPE, stderr=words, text=True
    ) as first:
        for line in first.stdout:
            print(line, end="", flush=True)
            said += line
    for other, file in zip(others, files):
        other.wait()
        file.seek(0)
        print(file.read(), end="", flush=True)
    return max(abs(p.returncode) for p in (first, *others)), said


def changes() -> str:
    return subprocess.run(
        ["git", "status", "--porcelain"], capture_output=True, text=True
    ).stdout


def main(which: str) -> int:
    os.chdir(ROOT)
    os.environ |= {"VENV": str(VENV), "OMP_NUM_THREADS": "1"}
    before, rows, failed, tests = changes(), [], [], ""
    for name, commands in {"ci": CI, "nightly": NIGHTLY}[which].items():
        print(f"\n=== {name}", flush=True)
        began, used = time.time(), cpu()
        status, said = run(commands)
        load = os.getloadavg()[0]
        rows.append((name, time.time() - began, cpu() - used, load, status))
        tests = (re.findall(r"(?m)^=+ (.* in .*) =+$", said) or [tests])[-1]
        if status:
            failed.append(name)
            if which == "ci":
                break
    if changes() != before:
        print(f"\nWhat git tracks has changed:\n{changes()}")
        failed.append("clean tree")
    print(f"\n{'step':38} {'s':>6} {'CPU s':>7} {'load':>6}")
    for name, seconds, used, load, status in rows:
        bad = "  FAILED" if status else ""
        print(f"{name:38} {seconds:6.0f} {used:7.0f} {load:6.1f}{bad}")
    print(f"{'all':38} {sum(r[1] for r in rows):6.0f} {sum(r[2] for r in rows):7.0f}")
    print(f"\n=== {tests} ===" if tests else "")
    print(f"FAILED: {', '.join(failed)}" if failed else "all passed")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
