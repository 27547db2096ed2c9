"""Files that are there whole or not at all."""

from __future__ import annotations

import os


def whole(path, write):
    """Write a file through a hidden one beside it: whole or not at all, also when the
    disk is full. write(f) writes to the open file f."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(part, "wb") as f:
            write(f)
            f.flush()
            os.fsync(f.fileno())
        os.replace(part, path)
    except OSError as e:
        raise OSError(
            e.errno,
            f"{e.strerror} while writing {path}; what was there is untouched: make "
            "room, run again",
        ) from e
    finally:
        part.unlink(missing_ok=True)
