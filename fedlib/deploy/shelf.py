"""Where a client keeps its state: one file per step, whole or not there, with a
checksum and the name of its owner.

First line: SHA-256 of the rest; second: who and what, as json; then a tree as
message.dumps writes it.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from ..core.files import whole
from . import message


class Shelf:
    """Trees by name.

    folder: None keeps them in memory only. owner: {"federation", "client"}; other
    owners' files are refused.
    """

    def __init__(self, folder, owner):
        self.folder = None if folder is None else Path(folder)
        self.owner, self._held = owner, {}
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)

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
            mark, _, body = path.read_bytes().partition(b"\n")
            if hashlib.sha256(body).hexdigest().encode() != mark:
                raise ValueError(
                    f"{path} is damaged (its checksum does not fit): bring a copy "
                    f"back; without it client {self.owner['client']} cannot go on"
                )
            head, _, body = body.partition(b"\n")
            about = json.loads(head)
            if {k: about[k] for k in self.owner} != self.owner:
                raise ValueError(
                    f"{path} belongs to client {about['client']} of federation "
                    f"{about['federation']}, this is client {self.owner['client']} of "
                    f"{self.owner['federation']}: give each its own folder"
                )
            self._held[name] = about, message.loads(body)
        return self._held.get(name)

    def steps(self):
        """The steps k kept as "step-k", ascending."""
        files = [] if self.folder is None else self.folder.glob("step-*")
        names = {*self._held, *(p.name for p in files)}
        return sorted(int(k[5:]) for k in names if k.startswith("step-"))

    def forget(self, dead):
        """Drop the steps k with dead(k)."""
        for k in filter(dead, self.steps()):
            self._held.pop(f"step-{k}", None)
            if self.folder is not None:
                (self.folder / f"step-{k}").unlink(missing_ok=True)
