"""Files that are there whole or not at all, also when a process is killed or the disk
is full."""

from __future__ import annotations

import contextlib
import errno
import glob
import hashlib
import io
import os
import re
import socket
import time
from fnmatch import fnmatchcase

import torch

# a file that is being written: .NAME.PID@HOST; earlier versions wrote .NAME.PID
PART = re.compile(r"\.(?P<name>.+?)\.(?P<pid>[1-9]\d{0,8})(@(?P<host>.+))?")
DAY = 86_400.0  # seconds
FULL = errno.ENOSPC, errno.EDQUOT, errno.EFBIG
CLOSED = errno.EROFS, errno.EACCES, errno.EPERM


def whole(path, write):
    """Write a file through a hidden one beside it: whole or not at all, also when the
    disk is full. write(f) writes to the open file f.

    What killed processes have left of this file is deleted first. OSError names the
    file and the remedy.
    """
    sweep(path.parent, glob.escape(path.name))
    part = path.with_name(f".{path.name}.{os.getpid()}@{socket.gethostname()}")
    try:
        with open(part, "wb") as f:
            write(f)
            f.flush()
            os.fsync(f.fileno())
        os.replace(part, path)
    except OSError as e:
        raise OSError(
            e.errno,
            f"{e.strerror or e} while writing {path}; what was there is untouched: "
            f"{remedy(e.errno)}run again",
        ) from e
    finally:
        with contextlib.suppress(OSError):  # a disk that can only be read any more
            part.unlink(missing_ok=True)


def write_tensors(path, tree):
    """Write a tree of tensors; the first line is the checksum of the rest."""
    buf = io.BytesIO()
    torch.save(tree, buf)
    body = buf.getbuffer()
    checksum = hashlib.sha256(body).hexdigest().encode()
    whole(path, lambda f: f.writelines((checksum, b"\n", body)))


def read_tensors(path, device):
    """The tree of tensors in a file; ValueError where it is damaged."""
    checksum, _, body = path.read_bytes().partition(b"\n")
    try:
        if hashlib.sha256(body).hexdigest().encode() != checksum:
            raise ValueError("its checksum does not fit")
        return torch.load(io.BytesIO(body), map_location=device, weights_only=True)
    except Exception as e:  # whatever other bytes lead zip and torch to
        raise damaged(path, f"{e!s:.90}") from e


def damaged(path, why):
    return ValueError(
        f"checkpoint {path} is damaged ({why}); delete it to start this run again"
    )


def remedy(number):
    """What helps against an error of the disk, by its number."""
    if number in FULL:
        return "make room, "
    return "allow writing there, " if number in CLOSED else ""


# ---------------------------------------------------------------- what a kill leaves
def sweep(folder, *names):
    """Delete what killed processes of this host have left of files with these names;
    names may be patterns such as "step-*".

    What a living process or another host is writing stays. A leftover of an earlier
    version names no host: it must also be older than a day.
    """
    try:
        found = os.listdir(folder)
    except OSError:  # there is no such folder, or it is not ours to read
        return
    for name in found:
        with contextlib.suppress(
            OSError
        ):  # another process has deleted it, or only may
            path = os.path.join(folder, name)
            if left_over(path, name, names):
                os.unlink(path)


def left_over(path, name, names):
    """Whether a file is a leftover of one of these names."""
    part = PART.fullmatch(name)
    if part is None or not any(fnmatchcase(part["name"], n) for n in names):
        return False
    if part["host"] is None:
        here = time.time() - os.stat(path).st_mtime > DAY
    else:
        here = part["host"] == socket.gethostname()
    return here and dead(int(part["pid"]))


def dead(pid):
    """Is there no such process on this host?"""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:  # somebody else's
        pass
    return False
