"""A disk that becomes full, or that can only be read any more, at random moments: the
error names the path, what was there stays whole, and the call goes on once it is
mended.

Full: files may have no more than so many bytes (RLIMIT_FSIZE), or, where this process
may mount one, a file system without room. Read-only: the folder's mode, for a process
without the rights of root, or that file system mounted anew.
"""

from __future__ import annotations

import contextlib
import os
import random
import resource
import subprocess
import tempfile
from pathlib import Path

from fedlib.core.files import read_tensors
from fedlib.core.folder import RunFolder
from fedlib.core.record import Record

from .count import Count
from .kill_runs import ONE, TWO, Call, command, compared, end, ended, one_run, start
from .kill_studies import alone

attempts = 60
NOBODY = 65534
SIZE = 2**20  # bytes of the file system that is mounted
FILLER = ".filler"  # beside the folder of a run, takes the room


# ---------------------------------------------------------------- in the process
def troubled(call, folder, trouble, at, *how):
    """The call, with the trouble before the at-th round is kept, or at once."""
    if trouble is read_only and os.geteuid() == 0:
        import pandas  # noqa: F401  where Python is root's own, nobody cannot read it
        import scipy.stats  # noqa: F401

        os.setresuid(NOBODY, NOBODY, NOBODY)
    rounds = []

    def due(self):
        rounds.append(1)
        if len(rounds) == at:
            trouble(folder, *how)
        return True

    RunFolder.due = due
    if not at:
        trouble(folder, *how)
    call.f(*call.args, folder)


def limited(folder, size):
    """No file may be longer than so many bytes."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def read_only(folder):
    """No file of the folder may be made, renamed or deleted."""
    for at in [folder, *(p for p in folder.rglob("*") if p.is_dir())]:
        at.chmod(0o555)


def filled(folder, left):
    """A file takes all the room of the file system but `left` bytes."""
    with open(folder.parent / FILLER, "wb", buffering=0) as f:
        with contextlib.suppress(OSError):
            while True:
                f.write(bytes(4096))
        f.truncate(max(0, f.tell() - left))


def mounted_read_only(folder):
    subprocess.run(["mount", "-o", "remount,ro", folder.parent], check=True)


# ---------------------------------------------------------------- from outside
@contextlib.contextmanager
def place(mounted):
    """A folder that everybody may write to; a file system of SIZE bytes if mounted."""
    with tempfile.TemporaryDirectory() as at:
        os.chmod(at, 0o755)
        inside = Path(at, "disk")
        inside.mkdir()
        inside.chmod(0o777)
        if mounted:
            mount(inside)
        try:
            yield inside / "run"
        finally:
            if mounted:
                subprocess.run(["umount", inside], check=True)


def mount(at):
    how = ["mount", "-t", "tmpfs", "-o", f"size={SIZE},mode=777", "fedlib-torture"]
    subprocess.run([*how, at], check=True, capture_output=True)


def may_mount():
    """May this process mount a file system?"""
    try:
        with place(mounted=True):
            return os.geteuid() == 0
    except (OSError, subprocess.CalledProcessError):
        return False


def mend(folder):
    """There is room, and everybody may write."""
    if os.path.ismount(folder.parent):
        subprocess.run(["mount", "-o", "remount,rw", folder.parent], check=True)
    (folder.parent / FILLER).unlink(missing_ok=True)
    for at in [folder, *(p for p in folder.rglob("*") if p.is_dir())]:
        if at.exists():
            at.chmod(0o755)


def damaged(folder):
    """The first file that cannot be read, or ""."""
    for path in sorted(folder.rglob("*")):
        try:
            if path.name == "checkpoint":
                read_tensors(path, "cpu")
            elif path.name == "record":
                Record.load(path.parent)
        except ValueError as e:
            return str(e)
    return ""


def attempt(call, trouble, at, how, mounted):
    """(name of a count, why) of one call that gets into trouble."""
    with place(mounted) as folder:
        if trouble is read_only or at == 0:
            folder.mkdir()
            folder.chmod(0o777)
            if os.geteuid() == 0:
                os.chown(folder, NOBODY, NOBODY)
        process = start(troubled, call, folder, trouble, at, *how)
        status, said = ended(process)
        mend(folder)
        if why := damaged(folder):
            return "lost", f"{trouble.__name__}: {why}"
        if status == 0:
            return compared(call, folder)
        told = said.strip().splitlines()[-1]
        ours = str(folder) in told and not told.startswith(("Traceback", "Assertion"))
        if not ours or (call.f is command and "Traceback" in said):
            return "raw", f"{trouble.__name__} in {call.args}: {told[-200:]}"
        outcome = end(call, folder)
        return ("clean", "") if outcome[0] == "accepted" else outcome


def measure(n, seed, mounting=True):
    chance, count = random.Random(seed), Count("full and read-only disk")
    calls = [Call(one_run, ("Ditto",)), Call(command, ONE), Call(command, TWO)]
    calls.append(Call(alone))
    troubles = [limited, read_only]
    if mounting and may_mount():
        troubles += [filled, mounted_read_only]
    for i in range(n):
        call = calls[i % len(calls)].measure()
        trouble = troubles[i // len(calls) % len(troubles)]
        at = chance.choice([0, *range(1, 9)])
        if trouble is mounted_read_only and call.f is not one_run:
            at = 0  # later a lock is open, and no system mounts anew beneath one
        how = {limited: [chance.randrange(6000)], filled: [chance.randrange(12_000)]}
        mounted = trouble in (filled, mounted_read_only)
        count.add(*attempt(call, trouble, at, how.get(trouble, []), mounted))
    return [count]
