"""Draw one notebook of the pipeline; called by its stages in dvc.yaml.

    python -m repro.run_notebook notebooks/fedga/sweeps.ipynb results/notebooks/fedga

Importing takes longer than drawing. So a process that has imported everything draws
(repro/draw.py), as many notebooks at a time as there are cores: the one that is asked
for, and ahead of DVC those that it will ask for next. The first stage starts it, and it
ends with DVC. What it has drawn lies in runs/drawn until the stage takes it: whole or
not at all.
"""

import os
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from multiprocessing.connection import Client
from pathlib import Path

DRAWN = Path("runs/drawn")
SOCKET = DRAWN / "socket"
PATIENCE = 120  # seconds until the other process listens


def owner() -> int:
    """The process for which we draw: DVC where it called us, else ourselves."""
    import psutil

    above = psutil.Process().parents()
    dvc = (p for p in above if any(Path(w).name == "dvc" for w in p.cmdline()[:3]))
    return next(dvc, psutil.Process()).pid


def connected():
    """A connection to the process that draws, which is started where there is none."""
    DRAWN.mkdir(parents=True, exist_ok=True)
    started, end = None, time.monotonic() + PATIENCE
    while True:
        try:
            return Client(str(SOCKET))
        except OSError:
            died = started and started.poll() is not None
            if died or time.monotonic() > end:
                raise RuntimeError(f"nothing draws: see {DRAWN}/log") from None
        if started is None:
            words = [sys.executable, "-m", "repro.draw", str(owner())]
            with (DRAWN / "log").open("w") as log:
                how = {"stdout": log, "stderr": log, "start_new_session": True}
                started = subprocess.Popen(words, **how)
        time.sleep(0.1)


def drawn(notebook):
    """(exit status, words) of a notebook. Who draws may be about to end with another
    command: then it is asked again, of a new one."""
    for _ in range(3):
        with suppress(EOFError, OSError), connected() as drawing:
            drawing.send(notebook.as_posix())
            return drawing.recv()
    return 1, f"the process that draws has died three times: see {DRAWN}/log"


def folder_of(notebook):
    """Where a notebook is drawn: runs/drawn/fedga-sweeps."""
    return DRAWN / f"{notebook.parent.name}-{notebook.stem}"


def main(notebook: Path, out_dir: Path) -> int:
    """Draw a notebook and move what it made to results/; the exit status."""
    failed, told = drawn(notebook)
    if failed:
        print(told, file=sys.stderr)
        return failed
    made, out = folder_of(notebook), out_dir / notebook.name
    out.parent.mkdir(parents=True, exist_ok=True)
    if (made / "results").exists():
        shutil.copytree(made / "results", "results", dirs_exist_ok=True)
    os.replace(made / notebook.name, out)
    print(f"{out}: {told}")
    return 0


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:3])))
