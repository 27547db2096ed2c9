"""Another size of every run, in a copy of its own; called by `make paper TIER=tiny`.

    python -m repro.tier tiny

The files of the repository, as they are, are copied to tiers/tiny/, where params.yaml
says ``tier: tiny``; runs, results and the book of that tier stay there, and nothing
that git tracks changes. Next time only what differs is copied.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from fedlib.cli.program import program
from fedlib.study import TIERS

PARAMS = Path("params.yaml")
COPIES = Path("tiers")
CONFIG = "[core]\n    no_scm = true\n"  # git knows nothing of the copy
LINE = re.compile(r"(?m)^(tier:[ \t]*)(\w+)")


def chosen(text: str) -> str:
    """The tier of a params.yaml."""
    lines = LINE.findall(text)
    if len(lines) != 1:
        raise ValueError(f"{PARAMS}: {len(lines)} lines `tier: ...` on the left; one")
    return lines[0][1]


def with_tier(text: str, tier: str) -> str:
    """The text of a params.yaml with another tier; every other character stays."""
    if tier not in TIERS:
        raise ValueError(f"no such tier: {tier!r}. Choose one of {', '.join(TIERS)}.")
    chosen(text)
    return LINE.sub(rf"\g<1>{tier}", text)


def sources() -> set[Path]:
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


def copy(tier: str, to: Path) -> None:
    """Make `to` a copy of this repository at `tier`, results and runs apart:
    those that are there stay.
    """
    wanted = {file: file.read_bytes() for file in sources()}
    wanted[PARAMS] = with_tier(PARAMS.read_text(), tier).encode()
    wanted[Path(".dvc/config.local")] = CONFIG.encode()
    listing = to.with_suffix(".files")  # what was copied last time
    before = listing.read_text().splitlines() if listing.exists() else []
    for gone in {Path(line) for line in before} - set(wanted):
        (to / gone).unlink(missing_ok=True)
    to.mkdir(parents=True, exist_ok=True)
    listing.write_text("".join(f"{file}\n" for file in sorted(wanted)))
    for file, content in wanted.items():
        here = to / file
        if not (here.is_file() and here.read_bytes() == content):
            here.parent.mkdir(parents=True, exist_ok=True)
            here.write_bytes(content)
            here.chmod(file.stat().st_mode if file.exists() else 0o644)
    if Path("data").is_dir() and not (to / "data").exists():
        # downloads are large; each has its checksum
        (to / "data").symlink_to(Path("data").resolve())


def main(tier: str, *stages: str, alone: bool = False) -> None:
    """Copy, then be ``dvc repro`` in the copy, with the copy's own fedlib.

    alone: these stages, and not what they need
    """
    words = ["-m", "dvc", "repro", *["--single-item"] * alone, *stages]
    # stages call plain `python`; a second thread of each would wait
    path = f"{Path(sys.prefix) / 'bin'}:{os.environ['PATH']}"
    environ = {"OMP_NUM_THREADS": "1"} | os.environ | {"PATH": path}
    if tier == chosen(PARAMS.read_text()):
        print(f"{tier} is the tier of {PARAMS}: here, not in a copy.", flush=True)
    else:
        to = (COPIES / tier).resolve()
        copy(tier, to)
        os.chdir(to)
        environ["PYTHONPATH"] = str(to)
        print(f"Tier {tier}, in {COPIES / tier}/; nothing outside changes.", flush=True)
    os.execve(sys.executable, [sys.executable, *words], environ)


if __name__ == "__main__":
    program(main)
