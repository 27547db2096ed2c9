"""One device: what it keeps, and what it answers.

    site = Site(federation, c, federation.client_task(c, "mine.npz"), "state/1")
    up = site.answer("local", about, down)    # to one message of the server, a tree

What a client keeps changes in numbered steps: 0 before round 0, 2t + 1 by the download
of round t, 2t + 2 by its training. A message says on which step it builds, and which
one is done, that is, counts for good. So a client whose answer was lost or refused goes
on from where it was, and a message that comes twice is computed once.
"""

from __future__ import annotations

import hashlib

import torch

from ..core import engine
from ..core.method import keeps_state
from ..core.task import SPLITS
from ..core.tree import leaves, tmap
from . import masked, message
from .act import ABOUT, KINDS, act
from .shelf import Shelf

SHORT = 4  # a row of fewer numbers cannot be told from other numbers
OTHER = {
    "code": "runs another version of fedlib: install the same one everywhere",
    "federation": "has another federation file: give all parties the same one",
}


class Site:
    """Client c of a federation.

    task: by its client_task. folder: where its state is kept across restarts; None:
    in memory.
    """

    def __init__(self, federation, c, task, folder=None):
        self.fed, self.c, self.method = federation, c, federation.make(task)
        self.turn = None  # in a sum, where the server sees no uploads
        self.shelf = Shelf(folder, {"federation": federation.digest, "client": c})
        self.n = {s: torch.tensor(len(getattr(task, s)[c])) for s in SPLITS}
        self._rows = {
            r.numpy().tobytes() for r in task.x if r.numel() >= SHORT and r.any()
        }
        for k in self.shelf.steps():  # damaged, or another client's: say so now
            self.shelf.get(f"step-{k}")

    def answer(self, kind, about, tree):
        """The answer, a tree, to one message: a kind of KINDS, about as act.ABOUT has
        it, a tree.

        A ValueError, or whatever the method raises, says why there is none; its text
        belongs into the reply.
        """
        about = ABOUT | about
        self._refuse(kind, about, tree)
        with torch.no_grad():
            if kind == "client":
                return self._begin()
            if kind in masked.KINDS:
                return self._masked(kind, about, tree)
            down, mine = self._download(kind, about, tree), self._state(about["on"])
            done, now = about["done"], 2 * about["t"] + 1
            self.shelf.forget(lambda k: k < done or done < k < now)
            if kind in ("ask", "score"):
                _, out = act(self.method, self.c, self.fed, kind, about, down, mine)
                return self._private(out)
            out = self._step(kind, about, down, mine)
            if kind == "local" and self.fed.secure:
                self.turn = masked.Turn(self.fed, self.c, about["t"])
                return self.turn.keys()
            return out

    def _masked(self, kind, about, tree):
        """A message of a sum; the upload is what the last training gave."""
        t = about["t"]
        if self.turn is None or self.turn.t != t:
            raise ValueError(
                f"client {self.c} has no secrets for a sum of round {t}: it has been "
                "started again since, or has not trained"
            )
        up = lambda: self.shelf.get(f"step-{2 * t + 2}")[1]["answer"]
        return self.turn.answer(kind, about, tree, lambda: (up(), int(self.n["train"])))

    def kept(self):
        """What this client keeps, as far as the server has said that it counts."""
        return self._state(min(self.shelf.steps(), default=0))

    def _refuse(self, kind, about, tree):
        for what, own in (("code", message.code()), ("federation", self.fed.digest)):
            if about.get(what) != own:
                raise ValueError(
                    f"the server {OTHER[what]} ({about.get(what)} there, {own} at "
                    f"client {self.c})"
                )
        kinds = (*KINDS, *masked.KINDS) if self.fed.secure else KINDS
        if self.fed.secure and kind == "ask":
            raise ValueError("with `secure` no question about one client is answered")
        if kind not in kinds or not all(
            isinstance(about.get(k), int) for k in ("t", "on", "done", "most")
        ):
            raise ValueError(
                f"a message of kind {kind!r} with {about!r:.90} is none of fedlib's"
            )
        if not -1 <= about["t"] <= self.fed.rounds:
            raise ValueError(
                f"round {about['t']} is none of this federation's {self.fed.rounds}"
            )
        if (n := message.size(tree)) > self.fed.limit:
            raise ValueError(
                f"the server sent {n:,} bytes, and the limit is {self.fed.limit:,}"
            )

    def _begin(self):
        """What a client keeps before round 0, and how many rows it has."""
        steps = self.shelf.steps()
        if 0 not in steps:
            if steps and keeps_state(self.method):
                raise ValueError(
                    f"client {self.c} is in round {(steps[0] - 1) // 2} already, "
                    "and the server starts anew: give it its old folder, or delete "
                    f"{self.shelf.folder or 'this client'} to start again"
                )
            self.shelf.forget(lambda k: True)
            self.shelf.put("step-0", {"of": ""}, {"mine": self._state(0), "answer": {}})
        return {"n": self.n}

    def _state(self, step):
        known = self.shelf.get(f"step-{step}")
        if known is not None or not keeps_state(self.method):
            return known[1]["mine"] if known else {}
        if step:
            raise ValueError(
                f"client {self.c} keeps no state of step {step} (it has "
                f"{self.shelf.steps() or 'none'}): bring its folder back; without it "
                "this client cannot take part"
            )
        return act(self.method, self.c, self.fed, "client", ABOUT, {}, {})[0]

    def _download(self, kind, about, tree):
        """What the message brings, or what an earlier one of this round has brought."""
        if kind == "score" and about["moment"] == "own":
            return {"w": self.shelf.get(f"step-{about['on']}")[1]["answer"]["w"]}
        if not about["kept"]:
            if kind in ("receive", "score"):
                self.shelf.put("down", {"t": about["t"]}, tree)
            return tree
        return self.shelf.download(about["t"])

    def _step(self, kind, about, down, mine):
        """Receive or train, unless this very message has been answered before."""
        name = f"step-{2 * about['t'] + 1 + (kind == 'local')}"
        what = hashlib.sha256(message.dumps(down)).hexdigest() + f" on {about['on']}"
        known = self.shelf.get(name)
        if known is None or known[0]["of"] != what:
            new, out = act(self.method, self.c, self.fed, kind, about, down, mine)
            new = tmap(lambda x, y: torch.empty_like(x).copy_(y), mine, new)
            arrays = [x[None] for x in (*leaves(new), *leaves(out))]
            if engine.first_not_finite(arrays) is not None:
                raise ValueError(
                    "the trained model is not finite; lower lr, or look at this "
                    "client's rows"
                )
            kept = {"mine": new, "answer": self._private(out)}
            known = self.shelf.put(name, {"of": what}, kept)
        return known[1]["answer"]

    def _private(self, out):
        """The answer, unless one of this client's rows is in it."""
        d = self.fed.shape
        for x in leaves(out):
            if (
                self._rows
                and tuple(x.shape[-len(d) :]) == d
                and any(r.numpy().tobytes() in self._rows for r in x.reshape(-1, *d))
            ):
                raise ValueError(
                    "the answer would hold a row of this client's data, so it "
                    "is not given"
                )
        return out
