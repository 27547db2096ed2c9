"""Files that are there whole or not at all, also when a process is killed or the disk
is full; and the version, the commit and a hash of this package's own."""

import glob
import hashlib
import io
import os
import socket
import subprocess
import time
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path

PACKAGE = Path(__file__).parents[1]
HOST = socket.gethostname()
STALE = 3600  # seconds: nobody writes to a file for longer


def whole(path, write):
    """Write a file through a hidden one beside it; write(f) writes to the open file f.
    OSError names the file and the remedy."""
    sweep(path)
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
    import torch  # here: commands that need no torch start at once

    buf = io.BytesIO()
    torch.save(tree, buf)
    body = buf.getbuffer()
    checksum = hashlib.sha256(body).hexdigest().encode()
    whole(path, lambda f: f.writelines((checksum, b"\n", body)))


def read_tensors(path, device):
    """The tree of tensors in a file; ValueError where it is damaged."""
    import torch

    checksum, _, body = path.read_bytes().partition(b"\n")
    try:
        if hashlib.sha256(body).hexdigest().encode() != checksum:
            raise ValueError("its checksum does not fit")
        return torch.load(io.BytesIO(body), map_location=device, weights_only=True)
    except Exception as e:  # whatever other bytes lead zip and torch to
        raise damaged(path, f"{e!s:.90}") from e


def damaged(path, why):
    return ValueError(f"{path} is damaged ({why}); delete it to start this run again")


def sweep(path):
    """Delete what kills left of a file: hidden ones that nobody writes to any more."""
    for part in path.parent.glob(f".{glob.escape(path.name)}.[0-9]*@*"):
        with suppress(OSError):  # another process has deleted it, or only may
            if time.time() - part.stat().st_mtime > STALE:
                part.unlink()


@cache
def version():
    """The version of this package, such as "0.2.0". No run is named by it."""
    return metadata.version("fedlib")


@cache
def commit():
    """The commit of the source, + if it has local changes; "unknown" outside git."""
    try:
        head = git("rev-parse", "--short=10", "HEAD")
        return head + ("+" if git("status", "--porcelain", "--", ".") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def git(*words):
    """What git prints when it is asked in the folder of this package."""
    how = {"cwd": PACKAGE, "capture_output": True, "text": True, "check": True}
    return subprocess.run(["git", *words], **how).stdout.strip()


@cache
def source():
    """Hash of all sources as the process found them. No run is named by it."""
    return sources("**/*.py")[:16]


def sources(*patterns, root=PACKAGE):
    """Hash of source files, by patterns as "nets/*.py"; line ends do not count."""
    h = hashlib.sha256()
    for path in sorted({p for pattern in patterns for p in root.glob(pattern)}):
        name, body = path.relative_to(root).as_posix(), path.read_bytes()
        h.update(name.encode() + b"\0" + body.replace(b"\r\n", b"\n") + b"\0")
    return h.hexdigest()
