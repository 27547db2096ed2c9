"""Another size of every run, in a copy of its own; called by `make paper TIER=tiny`.

    python -m repro.tier tiny

The files of the repository, as they are, are copied to tiers/tiny/, where params.yaml
says ``tier: tiny``; runs, results and the book of that tier stay there, and nothing
that git tracks changes. Next time only what differs is copied.
"""

import filecmp
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from fedlib.cli.program import program
from fedlib.study import TIERS

PARAMS = Path("params.yaml")
COPIES = Path("tiers")
CONFIG = "[core]\n    no_scm = true\n"  # git knows nothing of the copy


def with_tier(text, tier):
    """The text of a params.yaml with another tier; every other character stays."""
    if tier not in TIERS:
        raise ValueError(f"no such tier: {tier!r}. Choose one of {', '.join(TIERS)}.")
    changed, n = re.subn(r"(?m)^(tier:[ \t]*)\w+", rf"\g<1>{tier}", text)
    if n != 1:
        raise ValueError(f"{PARAMS}: {n} lines `tier: ...` on the left; one")
    return changed


def sources():
    """What git tracks or would track here, without what the pipeline makes."""
    from dvc.repo import Repo

    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    with Repo() as repo:
        made = {Path(repo.root_dir, out.fs_path) for out in repo.index.outs}
    made.add(Path("dvc.lock").resolve())
    files = {Path(name) for name in names.split("\0") if name and Path(name).is_file()}
    is_made = lambda file: made & {file.resolve(), *file.resolve().parents}
    return {file for file in files if not is_made(file)}


def copy(tier, to):
    """Make `to` a copy of this repository at `tier`, results and runs apart:
    those that are there stay."""
    wanted, listing = sources(), to.with_suffix(".files")
    before = listing.read_text().splitlines() if listing.exists() else []
    for gone in {Path(line) for line in before} - wanted:
        (to / gone).unlink(missing_ok=True)
    for file in wanted:
        here = to / file
        if not (here.is_file() and filecmp.cmp(file, here, shallow=False)):
            here.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, here)
    (to / PARAMS).write_text(with_tier(PARAMS.read_text(), tier))
    (to / ".dvc/config.local").write_text(CONFIG)
    listing.write_text("".join(f"{file}\n" for file in sorted(wanted)))
    if Path("data").is_dir() and not (to / "data").exists():
        # downloads are large; each has its checksum
        (to / "data").symlink_to(Path("data").resolve())


def main(tier: str, *stages: str, alone: bool = False) -> None:
    """Copy, then be ``dvc repro`` in the copy, with the copy's own fedlib.

    alone: these stages, and not what they need"""
    words = ["-m", "dvc", "repro", *["--single-item"] * alone, *stages]
    # stages call plain `python`; a second thread of each would wait
    path = f"{Path(sys.prefix) / 'bin'}:{os.environ['PATH']}"
    environ = {"OMP_NUM_THREADS": "1"} | os.environ | {"PATH": path}
    to = (COPIES / tier).resolve()
    copy(tier, to)
    os.chdir(to)
    environ["PYTHONPATH"] = str(to)
    print(f"Tier {tier}, in {COPIES / tier}/; nothing outside changes.", flush=True)
    os.execve(sys.executable, [sys.executable, *words], environ)


if __name__ == "__main__":
    program(main)
