"""The folder of a run: its checkpoint, the record, and the state it ends with.

checkpoint      of a run on its way: state and record in one file, whole or not at all
state           the checkpoint after the last round: a run goes on to more from there
record          the finished record
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from .errors import Diverged, refuse_if
from .files import damaged, read_tensors, sweep, write_tensors
from .record import Record, same_meta


@dataclass
class RunFolder:
    """Where a run is kept, and the time that it takes. path: None, nowhere. every:
    seconds between two checkpoints. state: does what server and clients hold at the end
    stay?"""

    path: Path | None = None
    every: float = 30.0
    state: bool = True
    since: float = field(default_factory=time.time)
    saved: float = field(default_factory=time.time)

    def __post_init__(self):
        if self.path is not None:
            sweep(self.path, "checkpoint", "record")

    def file(self, *names):
        """The first of these files that is there, or None."""
        found = [] if self.path is None else [self.path / name for name in names]
        return next((f for f in found if f.exists()), None)

    def seconds(self):
        """Seconds since this was asked last."""
        before, self.since = self.since, time.time()
        return self.since - before

    def due(self):
        """Is it time for a checkpoint?"""
        return time.time() - self.saved >= self.every

    def keep(self, state, record):
        """Save the state of an unfinished run, where there is a folder."""
        if self.path is not None:
            record.meta["seconds"] += self.seconds()
            self.path.mkdir(parents=True, exist_ok=True)
            both = {"state": state, "record": record.so_far().pack()}
            write_tensors(self.path / "checkpoint", both)
            self.saved = time.time()

    def finish(self, record):
        """The record; the checkpoint after the last round becomes the state."""
        record.finish(self.seconds())
        if self.path is None or "unfinished" in record.meta:
            return
        if self.state and "diverged" not in record.meta:
            with suppress(FileNotFoundError):  # another process has ended this run
                os.replace(self.path / "checkpoint", self.path / "state")
        else:
            (self.path / "state").unlink(missing_ok=True)
        record.save(self.path)
        (self.path / "checkpoint").unlink(missing_ok=True)

    def finished(self, new):
        """The record of a run that is done; None where there is none, or it shall and
        can go on to more rounds. new: an empty record of the run that is wanted. One
        that diverged raises again."""
        if not self.file("record"):
            return None
        record = Record.load(self.path)
        there, rounds = record.meta["rounds"], new.meta["rounds"]
        more = there < rounds and "diverged" not in record.meta
        if more and self.file("state"):
            return None
        refuse_if(
            more,
            f"{self.path} has {there} rounds of {rounds}, and not the state to go on "
            "from (keep_state = False): give a new folder",
        )
        record.meta = same_meta(record.meta, new.meta, self.path)
        record.method, record.cohort = new.method, new.cohort
        if "diverged" in record.meta:
            raise Diverged(**record.meta["diverged"], record=record)
        return record


def restore(path, device, new):
    """(state, record) of a checkpoint. new: an empty record of the run that is to go
    on, which may have more rounds, unless the method plans ahead."""
    read = read_tensors(path, device)
    try:
        state, was = read["state"], Record.unpack(read["record"])
    except (KeyError, TypeError, ValueError) as e:
        raise damaged(path, "it is of an earlier version") from e
    record = replace(new, meta=was.meta, **was.listed())
    there, rounds = record.meta["rounds"], new.meta["rounds"]
    if there < rounds:
        refuse_if(
            new.method.plans_ahead,
            f"{new.meta['method']} plans ahead: {there} rounds of {rounds} are not a "
            "run of their own; give the run of more rounds a new folder",
        )
        record.meta["rounds"] = rounds
    record.meta = same_meta(record.meta, new.meta, path)
    return state, record
