"""A run is computed once: a lock beside its folder, for processes of one machine or of
many that share a file system.

    with alone(Path("runs/0123456789abcdef")) as mine:     # waits for whoever has it
        ...

The lock is a file, runs/0123456789abcdef.lock, which names process and host and is
touched every HEARTBEAT seconds, see filelock.SoftFileLease: locks of the operating
system are not to be relied on where a cluster shares its files. Left by a process that
died on this host, it is taken over at once; by another host, after LEASE seconds
without a sign of life. A holder that only slept so long goes on beside its successor:
both compute the same numbers, and a run's files appear whole or not at all.
"""

from __future__ import annotations

import logging
import os
import time
from contextlib import contextmanager, nullcontext
from pathlib import Path

from filelock import SoftFileLease, Timeout

from ..core.files import remedy
from ..core.given import checked_folder

HEARTBEAT, LEASE = 15.0, 120.0  # seconds; every process must have the same LEASE
POLL = 0.2  # seconds between two looks of one who waits
log = logging.getLogger(__name__)


@contextmanager
def alone(folder, wait=True):
    """Hold the lock of a run's folder.

    Yields True; with wait=False at once False, where another process holds it.
    """
    path = Path(folder).absolute()
    path = path.with_name(path.name + ".lock")
    how = {"lease_duration": LEASE, "heartbeat_interval": min(HEARTBEAT, LEASE / 3)}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lease = SoftFileLease(path, on_compromise=lost, **how)
        mine = acquired(lease, path, wait)
    except OSError as e:
        why = f"{e.strerror or e} while writing the lock {path}; {remedy(e.errno)}"
        raise OSError(e.errno, why + "run again") from e
    if not mine:
        yield False
        return
    try:
        yield True
    finally:
        lease.release()


def acquired(lease, path, wait):
    """Whether the lock is ours; wait for a living holder."""
    seen, since = None, time.monotonic()
    while True:
        try:
            lease.acquire(blocking=False)  # takes over what is stale
            return True
        except Timeout:
            if not wait:
                return False
        if seen is None:
            log.warning("%s: waiting for %s, which computes it", path, lease.owner)
        if (mark := stamp(path)) != seen:
            seen, since = mark, time.monotonic()
        elif time.monotonic() - since > 1.2 * LEASE:  # NFS cannot exchange two names
            lease.force_break()
        time.sleep(POLL)


def stamp(path):
    """What every touch of a lock file changes; () without one."""
    try:
        s = os.stat(path)
    except FileNotFoundError:
        return ()
    return s.st_size, s.st_ino, s.st_mtime_ns


def lost(claim):
    """The holder slept longer than LEASE, or its lock was deleted; it goes on."""
    message = "%s: the lock is lost (%s); another process may compute the same run"
    log.warning(message, claim.lock_file, claim.reason)


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
