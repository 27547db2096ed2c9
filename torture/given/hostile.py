"""Clients that misbehave: the command's own client, in
which a few functions of this process are replaced before it begins.

    start(log, "client", ..., trick=Hostile(folder, {3: "NaN", 4: "a pickle"}, seed=0))

A deed is done at the answer to `local` of one round. DEEDS says of each what the
server's log must give as the reason, or None where the round is complete all the same.
"""

from __future__ import annotations

import copy
import json
import pickle
import random
import re
from base64 import b64encode
from contextlib import suppress
from pathlib import Path

import torch

from fedlib.core.files import whole
from fedlib.deploy.federation import Federation
from fedlib.deploy.shelf import Shelf

from . import parties as real
from .parties import until

LIMIT = 10**6  # bytes of a message, in the federations of these tests


# ------------------------------------------------------ another tree than was asked for
def spoiled(up, name, change):
    """The upload with one tensor changed."""
    return up | {"w": up["w"] | {name: change(up["w"][name].clone())}}


def one_number(value):
    """A change of one number, wherever it is."""

    def change(x, dice):
        x.view(-1)[dice.randrange(x.numel())] = value
        return x

    return change


def missing(up, name):
    return up | {"w": {k: v for k, v in up["w"].items() if k != name}}


def added(up, name, value):
    return up | {"w": up["w"] | {name: value}}


# name: (change of one tensor, the reason in the log)
TENSORS = {
    "NaN": (one_number(float("nan")), "'w/.*' holds NaN or infinity"),
    "infinity": (one_number(float("inf")), "'w/.*' holds NaN or infinity"),
    "minus infinity": (one_number(float("-inf")), "'w/.*' holds NaN or infinity"),
    "a shape": (lambda x, dice: x[:-1], "'w/.*' is float32 .*, expected float32"),
    "a dimension": (lambda x, dice: x[None], "'w/.*' is float32 .*, expected float32"),
    "no rows": (lambda x, dice: x[:0], "'w/.*' is float32 .*, expected float32"),
    "float64": (lambda x, dice: x.double(), "'w/.*' is float64 .*, expected float32"),
    "integers": (lambda x, dice: x.long(), "'w/.*' is int64 .*, expected float32"),
    "a dict": (lambda x, dice: {"x": x}, "unknown name 'w/.*/x'"),
    "too large": (lambda x, dice: x.new_zeros(LIMIT // 3), "numbers of .* limit is"),
    "far too large": (lambda x, dice: x.new_zeros(LIMIT), "larger than the limit"),
}
# name: (change of the upload, the reason in the log)
TREES = {
    "a missing name": (missing, "'w/.*' is missing"),
    "an unknown name": (
        lambda up, name: added(up, name + "2", up["w"][name]),
        "unknown name 'w/.*2'",
    ),
    "no dict": (lambda up, name: up | {"w": up["w"][name]}, "unknown name 'w'"),
    "nothing": (lambda up, name: {}, "'w/.*' is missing"),
    "more rows": (lambda up, name: up | {"n": up["n"] * 1000}, "'n' is .* client's is"),
    "another number": (
        lambda up, name: up | {"cid": torch.tensor(0)},
        "'cid' is 0, this client's is",
    ),
    "an answer to another question": (
        lambda up, name: {"acc": {"global": {"test": torch.tensor(1.0)}}},
        "unknown name 'acc/global/test'",
    ),
}


# ----------------------------------------------------- another body than a tree's bytes
class Bomb:
    """Unpickled, it leaves a file behind."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (Path(self.path),)


NO_MESSAGE = "this is no message of fedlib"
# name: (what stands for the bytes of a tree: f(bytes, dice, folder), the reason)
BODIES = {
    "random bytes": (lambda body, dice, folder: dice.randbytes(500), NO_MESSAGE),
    "a pickle": (
        lambda body, dice, folder: pickle.dumps(Bomb(folder / "exploded")),
        NO_MESSAGE,
    ),
    "no bytes": (lambda body, dice, folder: b"", NO_MESSAGE),
    "half of the bytes": (
        lambda body, dice, folder: body[: len(body) // 2],
        NO_MESSAGE,
    ),
    "a text": (lambda body, dice, folder: "federated", "its answer holds no tree"),
    "a number": (lambda body, dice, folder: 7, "its answer holds no tree"),
}


# ---------------------------------------------------------- another way than an answer
def left_behind(hostile, asked, honest):
    """Answer only when the server has gone on."""
    until(hostile.is_out, f"round {hostile.t} to go on without client {hostile.c}")
    return honest


def replayed(hostile, asked, honest):
    """First the answer to the first message once more."""
    hostile.push(hostile.first)
    return honest


def not_asked(hostile, asked, honest):
    """First an answer to a message that was never sent."""
    hostile.push(hostile.answer_to(asked, "f" * 64, asked.metadata.dst_node_id))
    return honest


def for_another(hostile, asked, honest):
    """First an answer in the name of client 0, which is at work; see Read."""
    note = hostile.folder / f"asked-{hostile.t}"
    until(note.exists, f"the message of {note}")
    hostile.push(hostile.answer_to(asked, *json.loads(note.read_text())))
    (hostile.folder / f"spoken-{hostile.t}").touch()
    return honest


def twice(hostile, asked, honest):
    """A bad answer, and a good one after it: the first counts."""
    hostile.push(hostile.reply(asked, {"tree": b"nonsense"}))
    return honest


def endless(hostile, asked, honest):
    """First a body that never ends."""
    hostile.stream()
    return honest


def array(hostile, asked, honest):
    """An array of Flower's, which may be far larger than its bytes."""
    import numpy as np
    from flwr.app import Array, ArrayRecord

    record = ArrayRecord({"tree": Array(np.zeros(3))})
    return hostile.reply(asked, record)


def no_tree(hostile, asked, honest):
    return hostile.reply(asked, {})


def error(hostile, asked, honest):
    """An excuse that would write lines of its own, in colour, into the log."""
    from flwr.app import Error, Message

    lie = "\x1b[2Jno power\nround 99 of 99: 99 clients"
    return Message(Error(0, lie), reply_to=asked)


# name: (f(hostile, asked, honest answer) -> answer, the reason; None: complete)
WAYS = {
    "a replay": (replayed, None),
    "not asked": (not_asked, None),
    "for another client": (for_another, None),
    "endless": (endless, "larger than the limit"),
    "two answers": (twice, NO_MESSAGE),
    "an array": (array, "its answer holds a Array"),
    "no tree": (no_tree, "its answer holds no tree"),
    "an excuse": (error, r"it says: \[2Jno power round 99 of 99: 99 clients"),
    "too late": (left_behind, "no answer within"),
}
DEEDS = {
    k: why for kind in (TENSORS, TREES, BODIES, WAYS) for k, (_, why) in kind.items()
}


# ------------------------------------------------------------------- the whole client
class Hostile:
    """Client c, which does deeds {round: name} and is honest in all other rounds.

    folder: of the federation, where the server writes server.txt. address: of the
    server. seed: of what is drawn, such as the tensor that is spoiled.
    """

    def __init__(self, folder, c, deeds, address, seed=0):
        self.folder, self.c, self.deeds, self.address = folder, c, deeds, address
        self.dice, self.first = random.Random(seed), None

    def play(self):
        from fedlib.deploy import flower

        work, reply_to = flower.work, flower.reply_to

        def working(client, me, *rest):
            self.client, self.me = client, me
            return work(client, me, *rest)

        def replying(asked, record, answer, *rest):
            honest = reply_to(asked, record, answer, *rest)
            return self.turn(asked, record, honest, answer)

        flower.work, flower.reply_to = working, replying

    def turn(self, asked, record, honest, answer):
        """The answer to one message."""
        from fedlib.deploy import message

        self.t = json.loads(record["about"]).get("t")
        deed = self.deeds.get(self.t) if record["kind"] == "local" else None
        if self.first is None and record["kind"] == "local":
            self.first = copy.deepcopy(honest)
        if deed is None:
            return honest
        if deed in WAYS:
            return WAYS[deed][0](self, asked, honest)
        body = honest.content[""]["tree"]
        if deed in BODIES:
            bad = BODIES[deed][0](body, self.dice, self.folder)
            return self.reply(asked, {"tree": bad})
        up = message.loads(body)
        name = self.dice.choice(sorted(up["w"]))
        if deed in TREES:
            up = TREES[deed][0](up, name)
        else:
            up = spoiled(up, name, lambda x: TENSORS[deed][0](x, self.dice))
        return self.reply(asked, {"tree": message.dumps(up)})

    def reply(self, asked, record):
        from flwr.app import ConfigRecord, Message, RecordDict

        record = ConfigRecord(record) if isinstance(record, dict) else record
        return Message(RecordDict({"": record}), reply_to=asked)

    def answer_to(self, asked, number, node):
        """A good answer of zeros, as if node had been sent the message `number`."""
        from fedlib.deploy import message

        forged = copy.deepcopy(asked)
        forged.metadata.__dict__.update(_message_id=number, _dst_node_id=node)
        up = message.loads(self.first.content[""]["tree"])
        up["w"] = {k: torch.zeros_like(v) for k, v in up["w"].items()}
        return self.reply(forged, {"tree": message.dumps(up)})

    def push(self, reply):
        """Send an answer, as flower.work does."""
        from fedlib.deploy import flower as f

        run = reply.metadata.run_id
        with f.parts.no_object_id_recompute():
            head = f.message_to_proto(f.remove_content_from_message(f.named(reply)))
            got = self.client.PushMessages(
                f.fleet.PushMessagesRequest(
                    node=self.me,
                    messages_list=[head],
                    message_object_trees=[f.parts.get_object_tree(reply)],
                )
            )
            send = f.carry.make_push_object_fn_protobuf(
                self.client.PushObject, self.me, run, got.session_id
            )
            f.move.push_objects(
                f.parts.get_all_nested_objects(reply),
                send,
                object_ids_to_push=set(got.objects_to_push),
            )

    def is_out(self):
        """Has the server gone on without this client?"""
        said = f"client {self.c} left out of round {self.t},"
        return said in (self.folder / "server.txt").read_text()

    def stream(self):
        """Zeros without end, announced as such, or as long as the server takes them."""
        import httpx
        from flwr.supercore.date import now
        from flwr.supercore.primitives.asymmetric import sign_message

        from fedlib.deploy import keys

        def zeros():
            while not self.is_out():
                yield bytes(2**16)

        key, stamp = keys.stand_in(self.c), now().isoformat()
        head = {
            "content-length": str(10**15),
            "flwr-public-key": b64encode(keys.public(key)).decode(),
            "flwr-timestamp": stamp,
            "flwr-signature": b64encode(sign_message(key, stamp.encode())).decode(),
        }
        url = f"http://{self.address}/v1/fleet/push-messages"
        # it ends in an error of httpx or of what carries it
        with suppress(Exception), httpx.Client(trust_env=False, timeout=20) as raw:
            raw.post(url, content=zeros(), headers=head)


class Read:
    """An honest client 0 whose messages lie open: for those who speak in its name."""

    def __init__(self, folder, rounds):
        self.folder, self.rounds = folder, rounds

    def play(self):
        from fedlib.deploy import flower

        reply_to = flower.reply_to

        def replying(asked, record, *rest):
            t = json.loads(record["about"]).get("t")
            if record["kind"] == "local" and t in self.rounds:
                told = asked.metadata.message_id, asked.metadata.dst_node_id
                body = json.dumps(told).encode()
                whole(self.folder / f"asked-{t}", lambda f: f.write(body))
                until((self.folder / f"spoken-{t}").exists, f"lies of round {t}")
            return reply_to(asked, record, *rest)

        flower.reply_to = replying


class Hold:
    """An honest client that keeps the server waiting at some stages, such as "score1":
    it leaves the file held-score1, and answers when there is one go-score1."""

    def __init__(self, folder, *stages):
        self.folder, self.stages = folder, stages

    def play(self):
        from fedlib.deploy.client import Site

        honest = Site.answer

        def answer(site, kind, about, tree):
            stage = f"{kind}{about['t']}"
            if stage in self.stages:
                (self.folder / f"held-{stage}").touch()
                go = self.folder / f"go-{stage}"
                until(go.exists, f"{stage} to go on", 600)  # the test does much here
            return honest(site, kind, about, tree)

        Site.answer = answer


class Clock:
    """An honest client whose clock is so many seconds fast."""

    def __init__(self, seconds):
        self.seconds = seconds

    def play(self):
        from datetime import timedelta

        from flwr.supernode import node_auth_http_interceptor as signing

        right, fast = signing.now, timedelta(seconds=self.seconds)
        signing.now = lambda: right() + fast


class Blind:
    """A server that does not look at the dates of its certificate."""

    def play(self):
        from fedlib.deploy import keys

        look = keys.authority
        then = keys.datetime(2020, 1, 2, tzinfo=keys.UTC)
        keys.authority = lambda path, now=None: look(path, then)


# --------------------------------------------------------------- a whole federation
METHOD = {"name": "FedFV", "lr": 0.1}  # its answers hold a client's number, too
LIAR = 2  # of the clients 0, 1 and 2


def suffered(folder, start, deeds, seed=0, wait=60):
    """A federation in which client 2 does these deeds, one per round, with an honest
    round before and after them -> the server's log, the reasons
    {round: of client 2, or None}, how far the model is from that of a simulation with
    the same cohorts.

    start: of parties.parties.
    """
    deeds = dict(enumerate(deeds, 1))
    rounds = len(deeds) + 2
    more = {"limit": LIMIT, "wait": wait, "every": rounds}
    file = real.federation(folder, METHOD, 3, rounds, **more)
    port, log = real.port(), folder / "server.txt"
    at = f"127.0.0.1:{port}"
    spoken = [t for t, deed in deeds.items() if deed == "for another client"]
    tricks = {0: Read(folder, spoken), LIAR: Hostile(folder, LIAR, deeds, at, seed)}
    serving = "server", file, "--folder", folder / "run", "--port", port
    server = start(log, *serving, "--minimum", 1)
    for c in range(3):
        mine = folder / f"mine-{c}.npz", "--folder", folder / f"state-{c}"
        argv = "client", file, "--client", c, "--data", *mine, "--server", at, "--once"
        start(folder / f"client-{c}.txt", *argv, trick=tricks.get(c))
    code, text = real.ended(server, log)
    assert code == 0, text
    said = re.findall(rf"client {LIAR} left out of round (\d+), local: (.*)", text)
    reasons = dict.fromkeys(range(rounds)) | {int(t): why for t, why in said}
    return text, reasons, apart(folder, file, reasons)


def apart(folder, file, reasons):
    """How far the last model that client 0 got is from the simulation's, in which
    client 2 is not drawn in the rounds that have a reason."""
    fed = Federation.load(file)
    owner = {"federation": fed.digest, "client": 0}
    about, got = Shelf(folder / "state-0", owner).get("down")
    assert about["t"] == fed.rounds
    there = lambda t: [c for c in range(3) if c != LIAR or not reasons.get(t)]
    record = real.simulated(fed.method, 3, fed.rounds, cohort=there)
    want = record.state["server"]["w"]
    return max(float((got["w"][k] - v).abs().max()) for k, v in want.items())


def verdict(text, reasons, far, deeds):
    """{deed: what is wrong with how it was met, or None}."""
    out, rounds = {}, len(deeds) + 2
    for t, deed in enumerate(deeds, 1):
        want, got = DEEDS[deed], reasons[t]
        n = 3 if want is None else 2
        fits = got is None if want is None else bool(re.search(want, got or ""))
        ended = f"\nround {t} of {rounds}: {n} clients\n" in text
        fine = fits and ended and far <= 1e-6
        out[deed] = None if fine else f"{deed}: {got}, {far:g} from the simulation"
    return out
