"""A federation as a Flower app: its ServerApp is `server`, its ClientApp `client`.

Trees travel as Flower's records, so Flower's mods, runtimes and commands apply. Only
names of `flwr.app`, `flwr.clientapp` and `flwr.serverapp` are used.

A node says who it is by its --node-config: partition-id, the number of its client; data
and folder, see federation.Federation, where they are its own.
"""

import logging
import time
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import torch
from filelock import SoftFileLease
from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Context,
    Error,
    Message,
    MetricRecord,
    RecordDict,
)
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from ..cli.program import one_line
from ..core.errors import refuse_if
from ..core.task import SPLITS
from .client import ABOUT, Client, code
from .federation import Federation, nested
from .server import serve

log = logging.getLogger("flwr")  # `flwr run --stream` shows it
TYPES = {"train": "train", "question": "query.ask"}  # all else: evaluate
server = ServerApp()
client = ClientApp()


# ---------------------------------------------------------------- trees as records
def paths(tree, at=""):
    """{"w/fc.weight": tensor}; an empty dict inside is {"buffers/": no numbers}."""
    out = {} if tree or not at else {at: torch.zeros(0)}
    for k, v in tree.items():
        out |= paths(v, f"{at}{k}/") if isinstance(v, dict) else {at + k: v}
    return out


def pack(tree):
    """A tree -> {"arrays": its arrays, "metrics": its scalars, with their types}."""
    found = {k: v.detach().cpu() for k, v in paths(tree).items()}
    arrays = {k: Array(v.contiguous().numpy()) for k, v in found.items() if v.dim()}
    type_of = lambda v: str(v.dtype).removeprefix("torch.")
    few = {f"{k} {type_of(v)}": 1 * v.item() for k, v in found.items() if not v.dim()}
    return {"arrays": ArrayRecord(arrays), "metrics": MetricRecord(few)}


def unpack(content, limit=None):
    """The inverse of pack; ValueError for more than `limit` bytes."""
    arrays = content["arrays"]
    size = sum(len(a.data) for a in arrays.values())
    much = limit is not None and size > 2 * limit  # numbers, and heads of arrays
    refuse_if(much, f"{size:,} bytes, and the limit is {limit}")
    found = {k: torch.from_numpy(np.array(a.numpy())) for k, a in arrays.items()}
    for key, v in content["metrics"].items():
        k, _, kind = key.rpartition(" ")
        found[k] = torch.tensor(v, dtype=getattr(torch, kind))
    return nested(found, "/")


# ---------------------------------------------------------------- the server
class Nodes:
    """The nodes of a federation: which is which client, and messages to them."""

    def __init__(self, grid, fed):
        self.grid, self.fed = grid, fed
        self.client, self.n = {}, {}  # {node: client}, {client: {split: rows}}

    def wait_for_all(self):
        """Until every client is connected: its number of rows is a part of all."""
        while missing := {*range(self.fed.C)} - self.connected().keys():
            log.info("waiting for clients %s", sorted(missing))
            time.sleep(5)
        return self

    def connected(self):
        """{client: node}; whoever is new is asked who it is."""
        here = set(self.grid.get_node_ids())
        new = sorted(here - self.client.keys())
        for node, said in self.send([("query.who", k, {}, {}) for k in new]):
            self.client[node] = None
            try:
                self.introduce(node, said, here)
            except Exception as e:
                log.warning("node %s does not take part: %s", node, one_line(e))
        return {c: k for k, c in self.client.items() if k in here and c is not None}

    def introduce(self, node, said, here):
        """Take a node as the client that it says it is."""
        if isinstance(said, Exception):
            raise said
        c, n = int(said["client"]), {s: int(said["n"][s]) for s in SPLITS}
        other = int(said["code"]) != code()
        refuse_if(other, "it runs another version of fedlib: install the same")
        fits = 0 <= c < self.fed.C and n["train"] > 0 < n["test"]
        refuse_if(not fits, f"client {c} with rows {n}")
        twice = any(self.client[k] == c for k in here & self.client.keys())
        refuse_if(twice, f"another node is client {c}")
        self.client[node], self.n[c] = c, n

    def __call__(self, requests, wait):
        """See server.serve."""
        node = self.connected()
        kind = lambda about: next((t for k, t in TYPES.items() if about[k]), "evaluate")
        here = {c: r for c, r in requests.items() if c in node}
        got = self.send([(kind(a), node[c], a, t) for c, (a, t) in here.items()])
        away = dict.fromkeys(requests.keys() - here, ConnectionError("not connected"))
        # of a node that is lost, Flower itself answers, in its own name
        return away | {self.client[k]: answer for k, answer in got if k in self.client}

    def send(self, messages):
        """(node, its answer or an Exception) for messages (type, node, about, tree)."""
        wait, sent = self.fed.wait, []
        for kind, node, about, tree in messages:
            content = RecordDict({"about": ConfigRecord(about)} | pack(tree))
            sent.append(Message(content, node, kind, ttl=wait))
        for m in self.grid.send_and_receive(sent, timeout=wait) if sent else ():
            try:
                wrong = m.has_error()
                refuse_if(wrong, wrong and (m.error.reason or f"error {m.error.code}"))
                yield m.metadata.src_node_id, unpack(m.content, self.fed.limit)
            except Exception as e:  # whatever a client sends
                yield m.metadata.src_node_id, e


@server.main()
def main(grid: Grid, context: Context) -> None:
    fed = Federation.read(context.run_config)
    nodes = Nodes(grid, fed).wait_for_all()

    def said(t, record):
        means = [f"{k} {v:.3f}" for k, v in record.summary().items()]
        log.info("round %d of %d: %s", t, fed.rounds, ", ".join(means[:2]))

    with lock(fed.folder):
        record = serve(fed, nodes, fed.folder or None, log.warning, said)
    log.info("%r", record)


def lock(folder):
    """One ServerApp has a folder: one whose SuperLink was killed may live on."""
    if not folder:
        return nullcontext()
    Path(folder).mkdir(parents=True, exist_ok=True)
    return SoftFileLease(Path(folder) / "run.lock", lease_duration=120.0)


# ---------------------------------------------------------------- a client
def answering(answer):
    """A handler of Flower's: the reply, or an error that says why there is none."""

    def handle(msg: Message, context: Context) -> Message:
        try:
            fed, node = Federation.read(context.run_config), context.node_config
            c = int(node["partition-id"])
            task = fed.client_task(c, str(node.get("data", fed.data)))
            who = Client(fed, c, task, str(node.get("folder", fed.state)))
            reply = RecordDict(pack(answer(who, msg.content)))
            return Message(reply, reply_to=msg)
        except Exception as e:
            return Message(Error(0, one_line(e)), reply_to=msg)

    return handle


def who(client, content):
    said = {"client": client.c, "code": code()}
    whole = lambda tree: {k: torch.tensor(v) for k, v in tree.items()}
    return whole(said) | {"n": whole(client.n)}


def turn(client, content):
    about = {k: content["about"][k] for k in ABOUT}
    return client.answer(about, unpack(content))


client.train()(answering(turn))
client.evaluate()(answering(turn))
client.query("ask")(answering(turn))
client.query("who")(answering(who))
