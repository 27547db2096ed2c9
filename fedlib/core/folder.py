"""The folder of a run: `checkpoint`, state and record up to a round, from which it goes
on, after the last to more rounds; and `record`, the finished one.
"""

import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from .errors import Diverged, refuse_if
from .files import damaged, read_tensors, write_tensors
from .record import Record, same_meta


@dataclass
class RunFolder:
    """Where a run is kept, and its time. path: None, nowhere. every: seconds between
    two checkpoints. state: does what server and clients hold at the end stay?"""

    path: Path | None = None
    every: float = 30.0
    state: bool = True
    since: float = field(default_factory=time.time)  # the last checkpoint

    def has(self, name):
        return self.path is not None and (self.path / name).exists()

    def due(self):
        """Is it time for a checkpoint?"""
        return time.time() - self.since >= self.every

    def seconds(self):
        """Seconds since this was asked last."""
        before, self.since = self.since, time.time()
        return self.since - before

    def keep(self, state, record):
        """Save the state of an unfinished run, where there is a folder."""
        if self.path is not None:
            record.meta["seconds"] += self.seconds()
            self.path.mkdir(parents=True, exist_ok=True)
            both = {"state": state, "record": record.so_far().pack()}
            write_tensors(self.path / "checkpoint", both)

    def finish(self, record):
        """The record can be read, and is kept."""
        record.finish(self.seconds())
        if self.path is not None and "unfinished" not in record.meta:
            record.save(self.path)
            if not self.state or "diverged" in record.meta:
                (self.path / "checkpoint").unlink(missing_ok=True)

    def finished(self, new):
        """The record of a run that is done; None where there is none, or it can go on
        to the rounds of `new`, an empty record. One that diverged raises again."""
        if not self.has("record"):
            return None
        record = Record.load(self.path)
        there, rounds = record.meta["rounds"], new.meta["rounds"]
        if there < rounds and "diverged" not in record.meta:
            refuse_if(
                not self.has("checkpoint"),
                f"{self.path} has {there} rounds of {rounds}, and not the state to go "
                "on from (keep_state = False): give a new folder",
            )
            return None
        record.meta = same_meta(record.meta, new.meta, self.path)
        record.method, record.cohort = new.method, new.cohort
        if "diverged" in record.meta:
            raise Diverged(**record.meta["diverged"], record=record)
        return record

    def restore(self, device, new):
        """(state, record) of the checkpoint. new: an empty record of the run that is to
        go on, which may have more rounds, unless the method plans ahead."""
        read, path = read_tensors(self.path / "checkpoint", device), self.path
        try:
            state, was = read["state"], Record.unpack(read["record"])
        except (KeyError, TypeError, ValueError) as e:
            raise damaged(path / "checkpoint", "it is of an earlier version") from e
        there, rounds = was.meta["rounds"], new.meta["rounds"]
        refuse_if(
            there < rounds and new.method.plans_ahead,
            f"{new.meta['method']} plans ahead: {there} rounds of {rounds} are not a "
            "run of their own; give the run of more rounds a new folder",
        )
        was.meta["rounds"] = max(there, rounds)
        meta = same_meta(was.meta, new.meta, path)
        return state, replace(new, meta=meta, **was.listed())
