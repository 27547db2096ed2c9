"""Where a client keeps its state: one file per step, whole or not there, with a
checksum and the name of its owner.

First line: SHA-256 of the rest; second: who and what, as json; then a tree as
message.dumps writes it.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

from ..core.files import sweep, whole
from . import message

NUMBERED = re.compile(r"step-(\d{1,9})")
# an entry of the second line and its type, and what the tree must have
STEP, DOWN = ("of", str, {"mine", "answer"}), ("t", int, set())


class Shelf:
    """Trees by name.

    folder: None keeps them in memory only. owner: {"federation", "client"}; other
    owners' files are refused. What a killed process has left half written is deleted.
    """

    def __init__(self, folder, owner):
        self.folder = None if folder is None else Path(folder)
        self.owner, self._held = owner, {}
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            sweep(self.folder, "step-*", "down")

    def put(self, name, about, tree):
        """Keep (about, tree); about a flat dict."""
        if self.folder is not None:
            body = json.dumps(about | self.owner).encode() + b"\n" + message.dumps(tree)
            mark = hashlib.sha256(body).hexdigest().encode()
            whole(self.folder / name, lambda f: f.writelines((mark, b"\n", body)))
        self._held[name] = about, tree
        return about, tree

    def get(self, name):
        """(about, tree), or None.

        ValueError for a damaged file and for another client's.
        """
        path = self.folder and self.folder / name
        if name not in self._held and path and path.exists():
            self._held[name] = self.read(name, path)
        return self._held.get(name)

    def read(self, name, path):
        """(about, tree) of a file."""
        mark, _, body = path.read_bytes().partition(b"\n")
        if hashlib.sha256(body).hexdigest().encode() != mark:
            raise self.damaged(path, "its checksum does not fit")
        head, _, body = body.partition(b"\n")
        try:
            about, tree = json.loads(head), message.loads(body)
        except (ValueError, RecursionError) as e:
            raise self.damaged(path, f"it cannot be read: {e!s:.90}") from e
        key, kind, parts = DOWN if name == "down" else STEP
        entries = about if isinstance(about, dict) else {}
        lacks = sorted({key, *self.owner} - entries.keys() | parts - tree.keys())
        if lacks:
            raise self.damaged(path, f"it has no {lacks[0]!r}")
        if type(about[key]) is not kind:
            raise self.damaged(
                path, f"{key} = {about[key]!r:.40} is no {kind.__name__}"
            )
        if {k: about[k] for k in self.owner} != self.owner:
            raise ValueError(
                f"{path} belongs to client {about['client']} of federation "
                f"{about['federation']}, this is client {self.owner['client']} of "
                f"{self.owner['federation']}: give each its own folder"
            )
        return about, tree

    def damaged(self, path, why):
        """The error for a file that cannot be read."""
        return ValueError(
            f"{path} is damaged ({why}): bring a copy back; without it client "
            f"{self.owner['client']} cannot go on"
        )

    def download(self, t):
        """The tree that round t has brought; ValueError if that of another is kept."""
        about, tree = self.get("down") or ({"t": None}, {})
        if about["t"] != t:
            where = self.folder / "down" if self.folder else "what is kept"
            of = "" if about["t"] is None else f", {where} is of round {about['t']}"
            raise ValueError(
                f"the download of round {t} is gone{of}; the next round brings a new "
                "one"
            )
        return tree

    def steps(self):
        """The steps k kept as "step-k", ascending."""
        files = [] if self.folder is None else self.folder.glob("step-*")
        names = {*self._held, *(p.name for p in files)}
        return sorted(int(m[1]) for m in map(NUMBERED.fullmatch, names) if m)

    def forget(self, dead):
        """Drop the steps k with dead(k)."""
        for k in filter(dead, self.steps()):
            self._held.pop(f"step-{k}", None)
            if self.folder is not None:
                (self.folder / f"step-{k}").unlink(missing_ok=True)
