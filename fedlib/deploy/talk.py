"""The server's conversation with its clients in one round, and how it knows what an
answer must look like.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from ..core.method import Round
from ..core.random import fold
from ..core.task import SPLITS
from ..core.tree import broadcast, leaves, pick, stack, tmap, unstack
from . import masked, message
from .act import ABOUT, act, address
from .rows import NoRows, server_task, stand_in

EPS = 1e-3  # rounding of an accuracy
INTRODUCTION = {"n": {s: torch.tensor(0) for s in SPLITS}}


class Left(Exception):
    """Somebody did not answer a question: the round goes on without it."""


class Example:
    """A client with made-up rows at the server: its answers have the names, shapes and
    types that all answers must have.
    """

    def __init__(self, fed):
        self.fed, self.method, self.scores = fed, fed.make(stand_in(fed)), {}
        self.mine, _ = act(self.method, 0, fed, "client", ABOUT, {}, {})

    def answer(self, kind, about, down):
        if kind in ("client", "receive"):
            return INTRODUCTION if kind == "client" else {}
        key = about["moment"], about["views"]
        if kind == "score" and key in self.scores:
            return self.scores[key]
        out = act(self.method, 0, self.fed, kind, about, down, self.mine, quick=True)[1]
        if kind == "score":
            self.scores[key] = out
        return out

    def rehearse(self):
        """Refuse a method whose server needs rows of clients, and messages above the
        limit, before anybody is asked -> how uploads are weighed, see masked.
        """
        fed, one = self.fed, torch.tensor([0])
        method = fed.make(server_task(fed))

        def ask(question, tree=None):
            about = {"t": -1, "question": address(method, question)}
            return broadcast(
                self.answer("ask", ABOUT | about, tree or {}), range(fed.C)
            )

        try:
            R = method.horizon(fed.rounds)
            r = Round(-1, R, key(fed, -1), ask, torch.arange(fed.C))
            down = pick(
                method.send(method.server(method.task.init(fed.seed), r), one), 0
            )
        except NoRows as e:
            raise ValueError(
                f"{fed.method['name']} cannot be deployed: its server needs the "
                "rows of the clients, which stay where they are; only a simulation "
                "can run it"
            ) from e
        weights = masked.weighing(fed, self) if fed.secure else None
        up = self.answer("local", ABOUT | {"t": 0}, down)
        for n in (message.size(down), message.size(up)):
            if n > fed.limit:
                raise ValueError(
                    f"{fed.at}: limit = {fed.limit:,}, and {fed.method['name']} sends "
                    f"{n:,} bytes; raise the limit"
                )
        return weights


def key(fed, t):
    """The server's key of a round, as in engine.run."""
    return fold(torch.tensor(fed.seed), t, -999)


@dataclass
class Talk:
    """The conversation of round t."""

    fed: object
    example: Example
    exchange: object
    log: object
    t: int
    done: list  # per client the step that counts (see client)
    n: dict | None = None
    out: dict = field(default_factory=dict)  # {client left out: why}
    # {client: what it has downloaded in this round}, so that it is sent once
    sent: dict = field(default_factory=dict)
    received: set = field(default_factory=set)  # clients that have received

    def __post_init__(self):
        self.at = list(self.done)  # per client the step that it has reached

    def send(self, kind, ids, downs=None, receives=(), like=None, **about):
        """One message to each of ids that is not left out; downs [M, ...]. like: how an
        answer looks, where that does not follow from the method.

        {c: answer} of those whose answer is in order.
        """
        parties = {"code": message.code(), "federation": self.fed.digest}
        base = ABOUT | about | parties | {"t": self.t}
        all_ = zip(ids.tolist(), unstack(downs or {}, len(ids)))
        rows = {c: d for c, d in all_ if c not in self.out}
        requests = []
        for c, down in rows.items():
            own = about.get("moment") == "own"  # its own upload: it has that
            kept = (
                own
                or kind in ("local", "score")
                and c in self.sent
                and same(self.sent[c], down)
            )
            more = {
                "on": self.at[c],
                "done": self.done[c],
                "kept": kept,
                "receives": c in receives,
            }
            requests.append((c, kind, base | more, {} if kept else down))
        if not requests:
            return {}
        got = self.exchange(requests, self.fed.wait)
        if like is None:
            like = self.example.answer(kind, base, next(iter(rows.values())))
        late = TimeoutError(f"no answer within {self.fed.wait:g} s")
        stage = filter(None, (kind, about.get("question"), about.get("moment")))
        stage, good = " ".join(stage), {}
        for c, down in rows.items():
            try:
                answer = got.get(c, late)
                if isinstance(answer, Exception):
                    raise answer
                answer = message.check(answer, like, self.fed.limit)
                good[c] = self.honest(kind, c, answer)
            except Exception as e:  # whatever a client does, it is its own problem
                self.leave(c, stage, e)
                continue
            if kind in ("receive", "score") and about.get("moment") != "own":
                self.sent[c] = down
            if kind in ("receive", "local"):
                self.at[c] = 2 * self.t + 1 + (kind == "local")
            if kind == "receive":
                self.received.add(c)
        return good

    def honest(self, kind, c, answer):
        """Nobody speaks for another client, or for more rows than it has announced; no
        accuracy is outside 0 to 1.
        """
        for x in leaves(answer["acc"]) if kind == "score" else ():
            wrong = x[(x < -EPS) | (x > 1 + EPS)]
            if len(wrong):
                raise ValueError(f"an accuracy of {float(wrong[0]):.6g} is none")
        if kind == "local":
            for name, own in (("cid", c), ("n", self.n["train"][c])):
                if name in answer and float(answer[name]) != own:
                    raise ValueError(
                        f"{name!r} is {float(answer[name]):.10g}, this "
                        f"client's is {own}"
                    )
        return answer

    def leave(self, c, stage, why):
        said = "".join(x for x in " ".join(f"{why}".split()) if x.isprintable())
        why = said[:300] or type(why).__name__  # one line, whatever a client says
        if self.t < 0:
            raise ValueError(
                f"client {c} is not ready ({stage}: {why}); before round 0 all "
                f"{self.fed.C} clients must answer: start it, then the server again"
            )
        self.out[c] = why
        self.log(f"client {c} left out of round {self.t}, {stage}: {why}")

    def left(self, ids):
        """Those of ids that are still in the round."""
        return ids[[c not in self.out for c in ids.tolist()]]

    def nobody(self, what):
        """In words: nobody did it, and why."""
        return f"nobody {what}; {self.reasons()}"

    def reasons(self):
        """In words: who was left out and why, the first four reasons."""
        whose = {}
        for c, why in self.out.items():
            whose.setdefault(why, []).append(c)
        said = [f"{numbered(ids)}: {why}" for why, ids in whose.items()]
        return f"left out: {'; '.join(said[:4] + ['...'] * (len(said) > 4))}"

    def asking(self, method, ids, record):
        """`ask` of a Round: a message down to each of ids and one up, counted."""

        def ask(question, tree=None):
            tree = {} if tree is None else tree
            got = self.send(
                "ask", ids, broadcast(tree, ids), question=address(method, question)
            )
            if len(got) < len(ids):
                raise Left
            out = stack([got[c] for c in ids.tolist()])
            record.count(
                "ask",
                {f"{question.__name__}.{k}": v for k, v in tree.items()},
                once=True,
            )
            record.count(
                "answer", {f"{question.__name__}.{k}": v for k, v in out.items()}
            )
            return out

        return ask

    def score(self, moment, ids, downs, one, views=(), receives=()):
        """What engine.score gives, for all C clients: accuracies of those that were not
        asked or did not answer are NaN, their counts 0. one: some client's download, to
        learn how the answer looks.
        """
        names = ",".join(views)
        got = self.send("score", ids, downs, receives, moment=moment, views=names)
        like = self.example.answer(
            "score", ABOUT | {"t": self.t, "moment": moment, "views": names}, one
        )
        blank = tmap(
            lambda x: (
                torch.full_like(x, float("nan"))
                if x.is_floating_point()
                else torch.zeros_like(x)
            ),
            like,
        )
        out = stack([got.get(c, blank) for c in range(self.fed.C)])
        if "cells" in out:  # consistency of no row: nobody has the rows to compare with
            none = torch.zeros(self.fed.C, 2)
            out["consistency"] = dict.fromkeys(out["acc"], none)
        return out


def numbered(clients):
    """Clients in words, the first ten."""
    clients = list(clients)
    more = f" and {len(clients) - 10} more" if len(clients) > 10 else ""
    return f"client {', '.join(map(str, clients[:10]))}{more}"


def same(a, b):
    """Equal bits, in trees of one structure?"""
    a, b = leaves(a), leaves(b)
    return len(a) == len(b) and all(
        x.shape == y.shape and torch.equal(x, y) for x, y in zip(a, b)
    )
