"""The folder of a run: its checkpoint, the record, and the state it ends with.

checkpoint      of a run on its way: state and record in one file, whole or not at all
state           the checkpoint after the last round: a run goes on to more from there
record.*, done  the finished record; `done` comes last
"""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from .errors import Diverged
from .files import damaged, read_tensors, sweep, write_tensors
from .record import SAME, Record, check_same, paths


@dataclass
class Folder:
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
            sweep(self.path, "checkpoint", "record.npz", "record.json", "done")

    def file(self, *names):
        """The first of these files that is there, or None."""
        found = [] if self.path is None else [self.path / name for name in names]
        return next((f for f in found if f.exists()), None)

    def seconds(self):
        """Seconds since this was asked last."""
        before, self.since = self.since, time.time()
        return self.since - before

    def due(self):
        return time.time() - self.saved >= self.every

    def keep(self, state, record):
        """Save the state of an unfinished run, where there is a folder."""
        if self.path is not None:
            record.meta["seconds"] += self.seconds()
            self.path.mkdir(parents=True, exist_ok=True)
            save(self.path / "checkpoint", state, record)
            self.saved = time.time()

    def finish(self, record):
        """The record; the checkpoint after the last round becomes the state."""
        record.finish(self.seconds())
        if self.path is None or "unfinished" in record.meta:
            return
        (self.path / "done").unlink(missing_ok=True)  # of a run of fewer rounds
        if self.state and "diverged" not in record.meta:
            with suppress(FileNotFoundError):  # another process has ended this run
                os.replace(self.path / "checkpoint", self.path / "state")
        else:
            (self.path / "state").unlink(missing_ok=True)
        record.save(self.path)
        (self.path / "checkpoint").unlink(missing_ok=True)

    def finished(self, fed):
        """The record of a run that is done; None where there is none, or it shall and
        can go on to more rounds. One that diverged raises again."""
        if not self.file("done"):
            return None
        record = Record.load(self.path)
        meta = record.meta
        on = meta["rounds"] < fed.R and "diverged" not in meta
        if on and self.file("state"):
            return None
        if on and meta["method"] == type(fed.method).__name__:
            raise ValueError(
                f"{self.path} belongs to another run: it has {meta['rounds']} rounds "
                f"of {fed.R}, and not the state to go on from (keep_state = False); "
                "give a new folder"
            )
        fed.attach(same_run(record, fed.record(), self.path))
        if "diverged" in meta:
            raise Diverged(**meta["diverged"], record=record)
        return record


def save(path, state, record):
    """Write a checkpoint."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_tensors(path, {"state": state, "record": record.pack()})


def restore(path, device, want, method=None, fresh=None):
    """(state, record) of a checkpoint. want: a new record of the run that is to go on,
    which may have more rounds where the method is given. fresh: the state before round
    0, to compare."""
    read = read_tensors(path, device)
    try:
        state, record = read["state"], want.unpack(read["record"])
    except (KeyError, TypeError, ValueError) as e:
        raise damaged(path, "it is of an earlier version") from e
    there, rounds = record.meta["rounds"], want.meta["rounds"]
    if method is not None and there < rounds:
        if method.plans_ahead:
            raise ValueError(
                f"{type(method).__name__} plans ahead: {there} rounds of {rounds} are "
                "not a run of their own; give the run of more rounds a new folder"
            )
        record.meta["rounds"] = rounds
    same_run(record, want, path)
    kinds = lambda tree: {k: (x.shape[1:], x.dtype) for k, x in paths(tree, "")}
    kept = kinds(state.get("clients", {}))  # none where they are on other machines
    here = kept if fresh is None else kinds(fresh["clients"])
    for k in kept.keys() | here.keys():
        if kept.get(k) != here.get(k):
            raise ValueError(
                f"{path}: clients keep {k[1:]} {kept.get(k)} there, {here.get(k)} "
                "here; delete it to start this run again"
            )
    return state, record


def same_run(got, want, path):
    """The record `got`, or a ValueError where it is of another run than `want`."""
    check_same(got.meta, want.meta, path)
    got.meta = {k: want.meta[k] for k in SAME if k in want.meta} | got.meta
    return got


@contextmanager
def patient(folder):
    """Ctrl-C is noted in the list it yields, so that the round at hand ends and can be
    kept; the second one is raised at once, and so is the first where nothing can be
    kept."""
    pressed, usual = [], signal.getsignal(signal.SIGINT)
    main = threading.current_thread() is threading.main_thread()
    if folder is None or not main or usual is not signal.default_int_handler:
        yield pressed
        return

    def note(number, frame):
        signal.signal(signal.SIGINT, usual)
        pressed.append(number)
        os.write(2, b"\nthe round at hand ends first; again Ctrl-C: at once\n")

    signal.signal(signal.SIGINT, note)
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, usual)
