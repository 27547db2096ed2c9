"""A run is computed once: a lock beside its folder, for processes of one machine or of
many that share a file system.

The lock is a file, runs/0123456789abcdef.lock, that is touched every HEARTBEAT seconds
(filelock.SoftFileLease: where a cluster shares its files, locks of the operating system
are not to be relied on). Left by a process that died, it is taken over: at once on one
host, else after LEASE seconds. A holder that only slept so long goes on beside its
successor: both compute the same numbers, and files appear whole or not at all.
"""

from __future__ import annotations

import os
from contextlib import contextmanager, nullcontext
from pathlib import Path

from filelock import SoftFileLease, Timeout

from ..core.given import checked_folder

HEARTBEAT, LEASE = 15.0, 120.0  # seconds; every process must have the same LEASE


@contextmanager
def alone(folder, wait=True):
    """Hold the lock of a run's folder.

    Yields True; with wait=False at once False, where another process holds it.
    """
    path = Path(f"{Path(folder).absolute()}.lock")
    path.parent.mkdir(parents=True, exist_ok=True)
    lease = SoftFileLease(path, lease_duration=LEASE, heartbeat_interval=HEARTBEAT)
    try:
        lease.acquire(blocking=wait, poll_interval=0.2)  # takes over what is stale
    except Timeout:
        yield False
        return
    try:
        yield True
    finally:
        lease.release()


def within(folder):
    """The lock of a folder that is given for one run, kept inside of it: what lies
    beside it may not be ours. None without a folder, and where it can only be read.
    """
    if folder is None:
        return nullcontext(True)
    folder = checked_folder(folder)
    if folder.exists() and not os.access(folder, os.W_OK):
        return nullcontext(True)
    return alone(folder / "run")
