"""The folder of a run: its checkpoint, its record, the state that it ends with."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from .checkpoint import save
from .files import sweep

# what a run writes into its folder; `done` comes last
WRITTEN = ("checkpoint", "record.npz", "record.json", "done")


def begun(folder):
    """The file in a folder from which a run goes on, or None."""
    files = [] if folder is None else [folder / "checkpoint", folder / "state"]
    return next((path for path in files if path.exists()), None)


@dataclass
class Kept:
    """Where checkpoint and record of a run are kept, and the time that it takes.

    folder: None, nowhere. every: seconds between two checkpoints. state: does what
    server and clients hold at the end stay there, too?
    """

    folder: Path | None = None
    every: float = 30.0
    state: bool = True
    since: float = field(default_factory=time.time)
    saved: float = field(default_factory=time.time)

    def __post_init__(self):
        if self.folder is not None:
            self.folder = Path(self.folder)
            sweep(self.folder, *WRITTEN)

    def has(self, name):
        """Is there a file of this name?"""
        return self.folder is not None and (self.folder / name).exists()

    def seconds(self):
        """Seconds since this was asked last."""
        before, self.since = self.since, time.time()
        return self.since - before

    def due(self):
        return time.time() - self.saved >= self.every

    def checkpoint(self, state, record):
        """Save the state of an unfinished run, where there is a folder."""
        if self.folder is not None:
            record.add_time(self.seconds())
            save(self.folder / "checkpoint", state, record)
            self.saved = time.time()

    def finished(self, record):
        """The record in the folder; the checkpoint after the last round becomes the
        state, any other has served. `done` comes last."""
        if self.folder is None:
            return
        checkpoint, state = self.folder / "checkpoint", self.folder / "state"
        (self.folder / "done").unlink(missing_ok=True)  # of a run of fewer rounds
        if self.state and "diverged" not in record.meta:
            with suppress(FileNotFoundError):  # another process has ended this run
                os.replace(checkpoint, state)
        else:
            state.unlink(missing_ok=True)
        record.save(self.folder)
        checkpoint.unlink(missing_ok=True)
