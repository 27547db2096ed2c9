"""Files that are there whole or not at all, also when a process is killed or the disk
is full."""

from __future__ import annotations

import glob
import hashlib
import io
import os
import re
import socket
from contextlib import suppress
from fnmatch import fnmatchcase

import torch

HOST = socket.gethostname()
# a file that is being written: .NAME.PID@HOST
PART = re.compile(r"\.(?P<name>.+)\.(?P<pid>[1-9]\d{0,8})@(?P<host>.+)")


def whole(path, write):
    """Write a file through a hidden one beside it: whole or not at all, also when the
    disk is full. write(f) writes to the open file f.

    What killed processes have left of this file is deleted first. OSError names the
    file and the remedy.
    """
    sweep(path.parent, glob.escape(path.name))
    part = path.with_name(f".{path.name}.{os.getpid()}@{HOST}")
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
            "make room or allow writing there, and run again",
        ) from e
    finally:
        with suppress(OSError):  # a disk that can only be read any more
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


# ---------------------------------------------------------------- what a kill leaves
def sweep(folder, *names):
    """Delete what killed processes of this host have left of files with these names;
    names may be patterns such as "step-*".

    What a living process or another host is writing stays.
    """
    with suppress(OSError):  # there is no such folder, or it is not ours to read
        for name in os.listdir(folder):
            part = PART.fullmatch(name)
            known = part and any(fnmatchcase(part["name"], n) for n in names)
            if known and part["host"] == HOST and dead(int(part["pid"])):
                with suppress(OSError):  # another process has deleted it, or only may
                    os.unlink(os.path.join(folder, name))


def dead(pid):
    """Is there no such process on this host?"""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:  # somebody else's
        pass
    return False
