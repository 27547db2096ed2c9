"""A run is computed once: a lock beside its folder, for processes of one machine or of
many that share a file system.

It is a file, runs/0123456789abcdef.lock (filelock.SoftFileLease: where a cluster shares
files, locks of the operating system are not to be relied on). Left by a process that
died it is taken over: at once on one host, else after LEASE seconds. A holder that only
slept goes on beside its successor: both compute the same numbers.
"""

from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import SoftFileLease, Timeout

HEARTBEAT, LEASE = 15.0, 120.0  # seconds; every process must have the same LEASE


@contextmanager
def alone(folder, wait=True):
    """Hold the lock of a run's folder.

    Yields True; with wait=False at once False, where another process holds it.
    """
    path = Path(f"{Path(folder).absolute()}.lock")
    path.parent.mkdir(parents=True, exist_ok=True)
    how = {"lease_duration": LEASE, "heartbeat_interval": HEARTBEAT}
    lease = SoftFileLease(path, blocking=wait, poll_interval=0.2, **how)
    with suppress(Timeout), lease:  # takes over what is stale
        yield True
        return
    yield False
