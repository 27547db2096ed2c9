"""A run is computed once: a lock beside its folder, for processes of one machine or of
many that share a file system.

    with alone(Path("runs/0123456789abcdef")) as mine:     # waits for whoever has it
        ...

The lock is a file, runs/0123456789abcdef.lock. It names process and host, and its
holder touches it every HEARTBEAT seconds, see filelock.SoftFileLease: locks of the
operating system are not to be relied on where a cluster shares its files.

Left by a process that died on this host, a lock is taken over at once, and after
NAMELESS seconds where it died before it had named itself; left by another host, after
LEASE seconds without a sign of life. Either is logged. Where the file
system cannot exchange two names (NFS), both take a little more than LEASE. A holder
that only slept so long goes on beside its successor: both compute the same numbers, and
a run's files appear whole or not at all.
"""

from __future__ import annotations

import logging
import os
import time
from contextlib import contextmanager, nullcontext
from pathlib import Path

from filelock import SoftFileLease, Timeout

from ..core.files import dead, remedy
from ..core.given import checked_folder

HEARTBEAT, LEASE = 15.0, 120.0  # seconds; every process must have the same LEASE
NAMELESS = 5.0  # seconds until an empty lock counts as left by a kill while it was made
POLL = 0.2  # seconds between two looks of one who waits
log = logging.getLogger(__name__)


@contextmanager
def alone(folder, wait=True):
    """Hold the lock of a run's folder.

    Yields True; with wait=False at once False, where another process holds it.
    """
    path = Path(folder).absolute()
    path = path.with_name(path.name + ".lock")
    lease = SoftFileLease(
        path,
        lease_duration=LEASE,
        heartbeat_interval=min(HEARTBEAT, LEASE / 3),
        on_compromise=lost,
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        mine = taken(lease, path, wait)
    except OSError as e:
        raise OSError(
            e.errno,
            f"{e.strerror or e} while writing the lock {path}; {remedy(e.errno)}"
            "run again",
        ) from e
    if not mine:
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


def taken(lease, path, wait):
    """Get the lock, from a living holder only when it lets go; False: it has not, and
    wait is False.
    """
    seen, since, told = None, time.monotonic(), False
    while True:
        mark, holder = stamp(path), lease.owner
        if mark != seen:
            seen, since = mark, time.monotonic()
        silent = time.monotonic() - since
        try:
            # takes over what is stale, if the file system lets it
            lease.acquire(blocking=False)
        except Timeout:
            empty = mark is not None and mark[0] == 0
            if silent > (NAMELESS if empty else 1.2 * LEASE):
                gone = "%s: no sign of life of %s for %.0f s, taking over"
                log.warning(gone, path, named(holder), silent)
                lease.force_break()
                continue
            if not wait:
                return False
            if not told:
                waiting = "%s: waiting for %s, which computes this run"
                log.warning(waiting, path, named(holder))
                told = True
            time.sleep(POLL)
            continue
        if holder is not None and (silent >= LEASE or died_here(holder, lease.owner)):
            log.warning("%s: taken over from %s, which is gone", path, named(holder))
        return True


def died_here(holder, me):
    """Whether a holder was a process of this host that is no more."""
    return holder.hostname == me.hostname and dead(holder.pid)


def stamp(path):
    """Size of the lock file, and what every touch of it changes; None without one."""
    try:
        s = os.stat(path)
    except FileNotFoundError:
        return None
    return s.st_size, s.st_ino, s.st_mtime_ns


def named(holder):
    """A lock's holder in a message."""
    if not holder:
        return "an unnamed process"
    return f"process {holder.pid} on {holder.hostname}"


def lost(claim):
    """The holder slept longer than LEASE, or its lock was deleted; it goes on, see
    above.
    """
    lost_it = "%s: the lock is lost (%s); another process may compute the same run"
    log.warning(lost_it, claim.lock_file, claim.reason)
