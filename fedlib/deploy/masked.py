"""A federation whose server sees sums of uploads only (`secure` in the file): four
messages in place of one, see fedlib.pieces.secure.

    local    down: the model                          up: keys, the upload stays
    shares   down: everybody's keys                   up: shares, sealed for each other
    masked   down: the shares sealed for this client  up: its upload, masked
    reveal   down: whose uploads came                 up: one share of every client

The server then calls the method's own `aggregate` with the mean in place of every
upload. So a method fits if its next state is the same from the mean; `weighing` tries
that with made-up uploads, whoever wrote the method.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import torch

from ..core.method import Round
from ..core.tree import leaves, mean, normalize, pick, stack, tmap
from ..pieces import secure
from ..pieces.secure import Fixed, Party, Public
from . import message
from .act import ABOUT
from .rows import server_task

KINDS = ("shares", "masked", "reveal")
KNOWN = ("n", "cid")  # of an upload: what the server knows of each client anyway
WEIGHTS = ("rows", "alike")


def fixed(fed, clients):
    """How numbers of one sum become integers."""
    return Fixed(fed.secure["bits"], fed.secure["range"], clients)


def label(fed, t):
    return f"{fed.digest} round {t}".encode()


def floats(up):
    """What of an upload is summed; ValueError for whole numbers of a single client."""
    rest = {k: v for k, v in up.items() if k not in KNOWN}
    for name, x in secure.named(rest):
        if not x.is_floating_point():
            raise ValueError(f"it uploads {name!r}, which is {x.dtype} and has no mean")
    return rest


def integers(x, bits):
    """Integers modulo 2^bits as the tensor that is sent, and back."""
    kind = ("<u4", "<i4") if bits <= 32 else ("<u8", "<i8")
    return torch.from_numpy(x.astype(kind[0]).view(kind[1]).astype(kind[1][1:]))


def back(x, bits):
    return x.numpy().astype("uint64") & secure.ones(bits)


def as_bytes(rows):
    """Equally long bytes as uint8 [n, length], and back."""
    return torch.tensor([list(r) for r in rows], dtype=torch.uint8)


def of_bytes(x):
    return [bytes(row.tolist()) for row in x]


# ---------------------------------------------------------------- a client
@dataclass
class Turn:
    """Client c's part in the sum of round t, held in memory only.

    A client that is started again in between has no secrets left: it is away for the
    rest of the round. upload() -> (its upload, n rows), as it was trained.
    """

    fed: object
    c: int
    t: int
    said: dict = field(default_factory=dict)  # {kind: (what was asked, the answer)}

    def __post_init__(self):
        s = self.fed.secure
        name = label(self.fed, self.t)
        self.party = Party(self.c, s["threshold"], s["bits"], name)

    def keys(self):
        return {"keys": as_bytes(self.party.keys())}

    def answer(self, kind, about, down, upload):
        """The same answer to the same message, none to another of its kind: two masked
        uploads with the same masks would tell more than a sum.
        """
        asked = hashlib.sha256(message.dumps(down) + str(about["most"]).encode())
        asked = asked.hexdigest()
        if kind not in self.said:
            self.said[kind] = asked, getattr(self, kind)(about, down, upload)
        if self.said[kind][0] != asked:
            raise ValueError(
                f"client {self.c} has answered {kind!r} of this sum before"
            )
        return self.said[kind][1]

    def shares(self, about, down, upload):
        known = dict(zip(down["ids"].tolist(), map(publics, down["keys"])))
        self.clients = len(known)
        dealt = self.party.share(known)
        return {"shares": as_bytes([dealt[j] for j in down["ids"].tolist()])}

    def masked(self, about, down, upload):
        up, n = upload()
        if about["most"] and not 0 < n <= about["most"]:
            raise ValueError(f"{n} rows, and the server says at most {about['most']}")
        q = n / about["most"] if about["most"] else 1.0
        x = fixed(self.fed, self.clients).encode(floats(up), q)
        self.order = down["ids"].tolist()
        sealed = dict(zip(self.order, of_bytes(down["shares"])))
        bits = self.fed.secure["bits"]
        return {"masked": integers(self.party.mask(x, sealed), bits)}

    def reveal(self, about, down, upload):
        given = self.party.unmask(down["ids"].tolist())
        return {"shares": as_bytes([given[j] for j in self.order])}


def publics(x):
    return Public(*of_bytes(x))


# ---------------------------------------------------------------- the server
def summed(talk, ids, down, weights, record):
    """{c: upload} of those whose uploads are in the sum: their mean, for each of them.

    ValueError where fewer than the threshold are left.
    """
    fed, s, n = talk.fed, talk.fed.secure, talk.n["train"]
    like = talk.example.answer("local", ABOUT | {"t": talk.t}, pick(down, 0))
    zeros = lambda *shape: torch.zeros(shape, dtype=torch.uint8)
    here, bits, most = ids, s["bits"], max(n[c] for c in ids.tolist())
    most = most if weights == "rows" else 0

    def ask(kind, here, downs, answer):
        got = talk.send(kind, here, downs, like=answer, most=most)
        secure.enough(len(got), s["threshold"], "answered; " + talk.reasons())
        if kind != "local":
            record.count("down", {f"secure.{kind}.{k}": v for k, v in downs.items()})
        up = stack([got[c] for c in sorted(got)])
        record.count("up", {f"secure.{kind}.{k}": v for k, v in up.items()})
        return got

    alike = lambda tree, ids: tmap(lambda x: x.expand(len(ids), *x.shape), tree)
    got = ask("local", here, down, {"keys": zeros(3, secure.SECRET)})
    record.count("down", down)
    here = torch.tensor(sorted(got))
    known = {c: publics(got[c]["keys"]) for c in here.tolist()}
    told = {"ids": here, "keys": torch.stack([got[c]["keys"] for c in here.tolist()])}
    size, place = len(here), {c: k for k, c in enumerate(here.tolist())}
    like_shares = {"shares": zeros(size, secure.SEALED)}
    dealt = ask("shares", here, alike(told, here), like_shares)
    here = torch.tensor(sorted(dealt))
    known = {c: known[c] for c in here.tolist()}
    sealed = [
        {"ids": here, "shares": torch.stack([v["shares"][place[j]] for v in rows])}
        for j in here.tolist()
        for rows in [[dealt[i] for i in here.tolist()]]
    ]
    code, part = fixed(fed, size), floats(like)
    P = sum(x.numel() for x in leaves(part))
    kind = torch.int32 if bits <= 32 else torch.int64
    empty = {"masked": torch.zeros(P, dtype=kind)}
    got = ask("masked", here, stack(sealed), empty)
    came = torch.tensor(sorted(got))
    like_shares = {"shares": zeros(len(here), secure.SHARE)}
    given = ask("reveal", came, alike({"ids": came}, came), like_shares)
    for c in came.tolist():  # gone after its upload: that is in the sum all the same
        talk.out.pop(c, None)
    total = secure.total(
        {c: back(got[c]["masked"], bits) for c in came.tolist()},
        known,
        {c: dict(zip(known, of_bytes(v["shares"]))) for c, v in given.items()},
        s["threshold"],
        bits,
        label(fed, talk.t),
    )
    q = sum(n[c] / most for c in came.tolist()) if most else len(came)
    mean_ = tmap(lambda x: x / q, code.decode(total, part))
    own = lambda c: {"n": n[c], "cid": c}
    return {
        c: {k: mean_[k] if k in mean_ else own(c)[k] + v * 0 for k, v in like.items()}
        for c in came.tolist()
    }


# ---------------------------------------------------------------- which methods fit
def weighing(fed, example):
    """By what the method weighs uploads, of WEIGHTS.

    ValueError for a method whose server must see more than their mean, and what: its
    `aggregate` is called with made-up uploads, as they are and with the mean in place
    of each.
    """
    name, method = fed.method["name"], fed.make(server_task(fed))
    M = fed.C if method.who == "all" else min(fed.cohort or fed.C, fed.C)
    key, ids = torch.tensor(fed.seed), torch.arange(M)

    def ask(question, tree=None):
        raise ValueError(f"it asks each client {question.__name__!r}")

    try:
        before = Round(-1, fed.rounds, key, ask, torch.arange(fed.C))
        server = method.server(method.task.init(fed.seed), before)
        down = pick(method.send(server, ids[:1]), 0)
        like = example.answer("local", ABOUT | {"t": 0}, down)
        tried = Tried(method, server, like, before._replace(ids=ids))
        found = [w for w in WEIGHTS if tried.same(w)]
        if not found:
            single = [
                k for k in tried.parts if not any(tried.same(w, k) for w in WEIGHTS)
            ]
            raise ValueError(f"it must see {' and '.join(map(repr, single))} of each")
        if unclear := [k for k in tried.read if not tried.moves(k)]:
            raise ValueError(f"it reads {unclear[0]!r}, and tries do not show what for")
    except (ValueError, RuntimeError) as e:
        raise ValueError(
            f"{fed.at}: {name} cannot run with `secure`: its server needs more than "
            f"the mean of the uploads ({' '.join(str(e).split())}); leave `secure` "
            "out, or take a method that averages, as FedAvg"
        ) from e
    return found[0]


class Noting(dict):
    """A dict that notes which of its entries are read."""

    def __init__(self, of, read):
        super().__init__(of)
        self.noted = read

    def __getitem__(self, k):
        self.noted.add(k)
        return super().__getitem__(k)


@dataclass
class Tried:
    """A method's `aggregate` on made-up uploads in the form of `like`."""

    method: object
    server: dict
    like: dict
    r: Round

    def __post_init__(self):
        self.parts = list(floats(self.like))
        self.ups = [self.made_up(kind) for kind in range(6)]
        self.noted = set()
        self.outcomes = self.run(self.ups)

    read = property(lambda self: [k for k in self.parts if k in self.noted])

    def made_up(self, kind):
        """Uploads [M, ...] with different numbers of rows: of one sign, of both, or
        with many zeros, small or large.
        """
        ids, g = self.r.ids, torch.Generator().manual_seed(kind)
        noise = lambda x: torch.randn(len(ids), *x.shape, generator=g).to(x.dtype)
        cut = [torch.abs, lambda v: v, lambda v: v.clamp(min=0)][kind % 3]
        known = {"n": 1 + (7 * ids) % 5, "cid": ids}
        return {
            k: known[k].to(v.dtype)
            if k in KNOWN
            else tmap(lambda x: 10.0 ** (kind % 2) * cut(noise(x)), v)
            for k, v in self.like.items()
        }

    def run(self, ups):
        """The states after each of them: in the first rounds, and in the last."""
        server, out, last = self.server, [], self.r.R - 1
        for k, up in enumerate(ups):
            t = last if k == len(ups) - 1 else min(k, last)
            up = Noting(up, self.noted)
            new = self.method.aggregate(server, up, self.r._replace(t=t))
            server = {k: v for k, v in new.items() if k != "log"}
            out.append(leaves(new))
        return out

    def alike(self, ups):
        """Do these uploads lead to the same states, and to the same log?"""
        near = lambda a, b: (
            a.shape == b.shape
            and torch.allclose(a.double(), b.double(), 1e-3, 1e-3, equal_nan=True)
        )
        return all(
            len(a) == len(b) and all(map(near, a, b))
            for a, b in zip(self.outcomes, self.run(ups))
        )

    def same(self, weights, part=None):
        """Is the mean as good as the uploads, or as this part of them?"""
        n = 1 + (7 * self.r.ids) % 5
        p = normalize((n if weights == "rows" else n * 0 + 1).double())
        all_ = lambda tree: tmap(lambda x: x.expand(len(p), *x.shape), mean(tree, p))
        parts = self.parts if part is None else [part]
        return self.alike([up | all_({k: up[k] for k in parts}) for up in self.ups])

    def moves(self, part):
        """Does anything follow from this part?"""
        turned = self.ups[1:] + self.ups[:1]
        other = [up | {part: o[part]} for up, o in zip(self.ups, turned)]
        return not self.alike(other)
