"""Flower carries the messages.

The one file that knows it; written for flwr 1.41.0, whose inner parts change between
releases.

    with Link(gate, {0: public key, ...}, tls, limit) as link:
            the server: Flower's SuperLink, in a thread
        serve(federation, link.exchange, folder)
    join(site.answer, c, "host:8000", key, ca, limit)
            a client: what Flower calls a SuperNode

What we use: the Fleet API (one port, protobuf over HTTP or HTTPS; clients ask for
work, nobody connects to a client), its proof of identity (every request signed with
the client's key), its store of messages. What we do not: app bundles. Flower's own
SuperNode fetches code from the server and runs it, and its Control API takes such code
from whoever reaches the port. Here that API is shut, and a client runs the fedlib that
is installed beside it and nothing else. Nor is a process started per message.

A message is one record {"kind", "client", "about": json, "tree": the bytes of
message.dumps}; an answer {"tree"} or an error.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from base64 import b64encode
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import datetime
from pathlib import Path
from random import SystemRandom

# read when flwr is imported
os.environ.update(FLWR_TELEMETRY_ENABLED="0", FLWR_DATABASE=":flwr-in-memory:")

import h11
import httpx
import uvicorn
from flwr.app import ConfigRecord, Error, Message, RecordDict
from flwr.app.message import remove_content_from_message
from flwr.common.constant import (
    NOOP_ACCOUNT_NAME,
    NOOP_FLWR_AID,
    SUPERLINK_NODE_ID,
    ErrorCode,
)
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto import fleet_pb2 as fleet
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.node_pb2 import Node
from flwr.supercore.constant import NOOP_FEDERATION_ID, NodeStatus, TaskType
from flwr.supercore.inflatable import inflatable_object as parts
from flwr.supercore.inflatable import inflatable_protobuf_utils as carry
from flwr.supercore.inflatable import inflatable_utils as move
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.main import create_app
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from . import keys, message
from .gate import HEADER, KEEP_ALIVE, Once
from .keys import public
from .talk import numbered

BEAT = 10  # a client gives two signs of life in so many seconds; without, it is away
SOON, LATE = 0.5, 8.0  # seconds between two attempts to reach the server: first, most
HUNG = 4  # times that a server hangs up on a client before that means it speaks TLS
SLACK = 2**20  # bytes of an answer beside its numbers
CHANCE = SystemRandom()
SPEAKER = ContextVar("SPEAKER", default=None)  # the client whose request is at hand
logging.getLogger("flwr").setLevel(logging.CRITICAL)  # what matters, we say ourselves


class Link:
    """The server's end.

    `exchange` carries requests to clients and brings their answers back.
    """

    def __init__(
        self,
        sock,
        known,
        tls=None,
        limit=10**8,
        patience=600.0,
        minimum=None,
        log=print,
    ):
        """sock: a Gate, of a bound socket.

        known {c: public key}: nobody else is heard. tls: (certificate file, key
        file) or None.

        limit: bytes of the largest answer. patience: seconds that the first exchange
        waits for all clients. minimum: of the clients that are asked, so many must
        answer (all, where fewer are asked); below that `exchange` pauses. None: 1.
        Before round 0 all must.
        """
        self.limit, self.patience, self.log = limit, patience, log
        self.minimum, self.began, self.over = minimum or 1, False, threading.Event()
        self.refused, self.gone, self.signs = {}, set(), {}
        app = create_app()
        # nobody registers a key through the network
        app.state.enable_supernode_auth = True
        app.add_middleware(
            door, known=known, limit=limit, refused=self.refused, gate=sock
        )
        self.state = app.state.linkstate_factory.state()
        # Flower knows accounts, nodes, runs and their tasks: ours are one run with one
        # task, alive as long as we are
        self.nodes = {
            c: self.state.create_node(NOOP_FLWR_AID, NOOP_ACCOUNT_NAME, key, BEAT)
            for c, key in known.items()
        }
        believe_the_key(self.state, self.nodes)
        self._claim()
        files = (
            {}
            if tls is None
            else dict(zip(("ssl_certfile", "ssl_keyfile"), map(str, tls)))
        )
        self.web = uvicorn.Server(
            uvicorn.Config(
                app,
                loop="asyncio",  # uvloop does not ask the gate
                http="h11",  # httptools reads headers of any size
                h11_max_incomplete_event_size=HEADER,
                callback_notify=sock.sweep,
                timeout_notify=1,
                timeout_keep_alive=KEEP_ALIVE,
                proxy_headers=False,  # an address is where it comes from
                server_header=False,
                ws="none",
                log_level="error",
                access_log=False,
                timeout_graceful_shutdown=1,
                **files,
            )
        )
        self.once = Once("uvicorn.error", "asyncio")
        self.threads = [
            threading.Thread(target=self.web.run, args=([sock],), daemon=True),
            threading.Thread(target=self._alive, daemon=True),
        ]

    def __enter__(self):
        self.once.begin()
        for t in self.threads:
            t.start()
        while not self.web.started:
            if not self.threads[0].is_alive():
                raise ValueError(
                    "the SuperLink did not start: are certificate and key of the "
                    "server in order?"
                )
            time.sleep(0.01)
        return self

    def __exit__(self, *error):
        self.over.set()
        self.web.should_exit = True
        self.threads[0].join(3)
        self.once.end()

    def end(self):
        """Tell the clients that the federation is over.

        Where nobody was asked, as it was over before, they have some seconds to come.
        """
        late = time.monotonic() + 1.5 * LATE
        while not self.began and time.monotonic() < late:
            if self.connected() == self.nodes.keys():
                break
            time.sleep(0.1)
        self._ask([(c, "end", {}, {}) for c in sorted(self.connected())], 5)

    def _claim(self):
        """Flower's run and its task: what all messages belong to."""
        self.run = self.state.create_run(
            "fedlib/fedlib",
            "1",
            None,
            {},
            NOOP_FEDERATION_ID,
            None,
            NOOP_FLWR_AID,
            TaskType.SERVER_APP,
        )
        self.task = self.state.get_run_info(run_ids=[self.run])[0].primary_task_id
        self.state.claim_task(self.task)
        self.state.activate_task(self.task)
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = (
            self.run,
            SUPERLINK_NODE_ID,
            self.task,
        )

    def _alive(self):
        while not self.over.wait(BEAT):
            # Flower ends the run if this machine was asleep: a new one then
            if not self.state.acknowledge_task_heartbeat(self.task):
                self._claim()

    # ------------------------------------------------------------ who is there
    def _nodes(self):
        """What Flower knows of each client: [(c, its node)]."""
        return zip(
            self.nodes, self.state.get_node_info(node_ids=[*self.nodes.values()])
        )

    def connected(self):
        """The clients that are connected.

        Flower believes so for 2 BEAT after the last sign of life; here it is one.
        """
        here, now = set(), time.monotonic()
        for c, node in self._nodes():
            sign, since = self.signs.get(c, (None, now))
            if node.online_until != sign:  # moved by every sign of life
                since = now
            self.signs[c] = node.online_until, since
            if node.status == NodeStatus.ONLINE and now - since <= BEAT:
                here.add(c)
        return here

    def gather(self, least):
        """Wait for all clients until patience is over; ValueError names those who have
        not come if there are fewer than `least` then.
        """
        there, end = set(), time.monotonic() + self.patience
        while len(there) < len(self.nodes):
            came = self.connected()
            for c in sorted(came - there):
                self.log(f"client {c} is here")
            there = came
            if time.monotonic() > end:
                if len(there) >= least:
                    break
                late = [c for c in self.nodes if c not in there]
                raise ValueError(
                    f"{len(there)} of {len(self.nodes)} clients came within "
                    f"{self.patience:g} s, {numbered(late)} did not: are they "
                    "running, do they know this address, is the port open to them?"
                )
            time.sleep(0.05)

    # ------------------------------------------------------------ messages
    def exchange(self, requests, wait):
        """requests [(c, kind, about, tree)] -> {c: tree or Exception}.

        Clients have `wait` seconds to answer, and to come back where they are away; one
        that was away before is not waited for. Where clients are away and fewer than
        `minimum` of those that are asked have answered, the federation pauses until so
        many are connected again, however long that takes; then all that are missing are
        asked again. The text of an Exception says why there is no answer.
        """
        before = any(about.get("t", 0) < 0 for _, _, about, _ in requests)
        if not self.began:
            self.gather(len(self.nodes) if before else self.minimum)
            self.began = True
        least = len(requests) if before else min(self.minimum, len(requests))
        out = self._ask(requests, wait)
        while (lacking := least - answers(out)) > 0 and self.gone & out.keys():
            away = {
                c
                for c, a in out.items()
                if isinstance(a, (ConnectionError, TimeoutError))
            }
            self._pause(away, lacking, least, len(out))
            out |= self._ask([r for r in requests if r[0] in away], wait)
        return out

    def _pause(self, away, lacking, least, asked):
        """Wait until as many of the clients `away` are connected as are lacking."""
        lost = sorted(self.gone & away)
        self.log(
            f"paused: {least - lacking} of {asked} clients answer, and {least} must; "
            f"not connected: {numbered(lost)}"
        )
        while len(back := self.connected() & away) < min(lacking, len(away)):
            time.sleep(0.1)
        self.gone -= away  # whoever is not back yet may come: `wait` seconds
        self.log(f"going on: {numbered(sorted(back))} is connected")

    def _ask(self, requests, wait):
        """Send, and collect the answers -> {c: tree or Exception}."""
        out, end, pause = {}, time.monotonic() + wait, 0.01
        what = {r[0]: r for r in requests}
        asked = {c: self._send(*r, wait) for c, r in what.items()}
        while time.monotonic() < end:
            here = self.connected()
            if asked.keys() <= self.gone - here:
                break
            for c, sent in list(asked.items()):
                try:
                    got = self._answer(c, sent)
                except Exception as e:  # whatever a client sends, it is its own problem
                    got = e
                if got is not None:
                    out[c], pause = got, 0.01
                    self._forget(asked.pop(c))
                elif c in here and self._vain(c, sent):
                    self._forget(sent)
                    asked[c] = self._send(*what[c], wait)
            time.sleep(pause)
            pause = min(0.2, 1.1 * pause)
        here = self.connected()
        for c, sent in asked.items():
            out[c] = self._missing(c in here, sent, wait)
            self._forget(sent)
        self.gone -= what.keys()
        self.gone |= {c for c, a in out.items() if isinstance(a, ConnectionError)}
        return out

    def _missing(self, connected, sent, wait):
        """Why there is no answer."""
        held = self.state.message_ins_store.get(sent)
        if connected:
            return TimeoutError(f"no answer within {wait:g} s")
        if held is not None and held.metadata.delivered_at:
            return ConnectionError("it vanished while it was at work")
        return ConnectionError("it is not connected")

    def _send(self, c, kind, about, tree, wait):
        record = ConfigRecord(
            {
                "kind": kind,
                "client": c,
                "about": json.dumps(about),
                "tree": message.dumps(tree),
            }
        )
        self.refused.pop(c, None)
        with parts.no_object_id_recompute():  # a hash of all bytes, once
            m = named(
                Message(RecordDict({"": record}), self.nodes[c], "query", ttl=wait + 60)
            )
            session, inside = (
                self.state.start_session(self.run),
                parts.get_all_nested_objects(m),
            )
            for i in self.state.store_message_and_object_tree(
                m, parts.get_object_tree(m), session
            )[1]:
                self.state.store_object(self.run, session, i, inside[i].deflate())
        return m.metadata.message_id

    def _answer(self, c, sent):
        """The answer to a message, None as long as there is none."""
        if c in self.refused:
            raise ValueError(self.refused.pop(c))
        reply = self.state.message_res_store.get(
            self.state.message_ins_id_to_message_res_id.get(sent)
        )
        if reply is None:
            return None  # at work, or away: it may be back in time
        top, got = reply.metadata.message_id, {}
        todo = [top]
        while todo:
            i = todo.pop()
            got[i] = self.state.get_object(self.run, i)
            if not got[i]:
                return None  # still on its way
            kind, inside, _ = parts.get_object_head_values_from_object_content(got[i])
            # an Array may be far larger than its bytes
            if kind not in ("Message", "RecordDict", "ConfigRecord"):
                raise ValueError(f"its answer holds a {kind}")
            todo += [k for k in inside if k not in got]
        if reply.has_error():
            raise RuntimeError(f"it says: {reply.error.reason:.300}")
        if sum(map(len, got.values())) > self.limit + SLACK:
            raise ValueError(
                f"its answer is larger than the limit of {self.limit:,} bytes"
            )
        content = move.inflate_object_from_contents(top, got).content
        return message.loads(body_of(content), self.limit)

    def _vain(self, c, sent):
        """Is a message to a client that is there lost: expired, or taken by a life of
        it that has ended? It keeps its answers, so it may be asked twice.
        """
        held = self.state.message_ins_store.get(sent)
        if held is None or held.metadata.run_id != self.run:
            return True
        (node,) = self.state.get_node_info(node_ids=[self.nodes[c]])
        times = node.last_activated_at, held.metadata.delivered_at
        if not all(times):
            return False
        came, taken = map(datetime.fromisoformat, times)
        return came > taken

    def _forget(self, sent):
        reply = self.state.message_ins_id_to_message_res_id.get(sent)
        self.state.delete_messages({sent})  # a late answer finds nothing to answer
        for m in filter(None, (sent, reply)):
            self.state.object_store.delete(m)


def answers(out):
    """How many of {c: tree or Exception} are answers?"""
    return sum(not isinstance(a, Exception) for a in out.values())


def body_of(content):
    """The bytes of an answer's tree."""
    body = content[""].get("tree") if "" in content else None
    if not isinstance(body, bytes):
        raise ValueError("its answer holds no tree")
    return body


def believe_the_key(state, nodes):
    """Refuse an answer in the name of another client.

    Flower compares the key of a request with the node that sends it, but not with the
    node that the answer inside says it is from.
    """
    store = state.store_message_and_object_tree

    def checked(m, *rest):
        c = SPEAKER.get()  # None: the server itself
        if c is not None and m.metadata.src_node_id != nodes[c]:
            return False, []
        return store(m, *rest)

    state.store_message_and_object_tree = checked


def named(m):
    """A message's id is its hash; Flower wants it in the message too."""
    m.metadata.__dict__["_message_id"] = m.object_id
    return m


def caller(known, gate):
    """A function of a request's scope and header: which client signed it, a refusal.

    (c, None), or (None, (status, why)). The signature is looked at once a connection,
    by Flower at every request; a time that was signed counts once.
    """
    number, used = {b64encode(k): c for c, k in known.items()}, {}

    def who(scope, head):
        c = number.get(head.get(b"flwr-public-key"))
        stamp = head.get(b"flwr-timestamp", b"")[:40]  # as long as one is
        if not scope["path"].startswith("/v1/fleet/"):
            return None, (404, "asks for what is not there")
        if c is None:
            return None, (403, "has the key of no client")
        if (c, stamp) in used:
            return None, (401, f"repeats a request of client {c}")
        signature = head.get(b"flwr-signature", b"")
        if gate.client(scope) != c and not keys.signed(stamp, signature, known[c]):
            return None, (401, f"has a false or old signature of client {c}")
        used[c, stamp] = time.monotonic()
        while time.monotonic() - next(iter(used.values())) > 2 * keys.SIGNED[1]:
            del used[next(iter(used))]
        gate.trust(scope, c)
        return c, None

    return who


def door(app, known, limit, refused, gate):
    """In front of the SuperLink: the Fleet API only, for known keys only, and no more
    bytes than an answer may have.
    """
    who, sent = caller(known, gate), {}

    def size(c, path, n):
        """413 if a body of n bytes is more than client c may send, else 0."""
        if not path.endswith(("/push-messages", "/push-object")):
            return 0 if n <= SLACK else 413
        # an answer begins with push-messages
        before = sent.get(c, 0) if path.endswith("object") else 0
        sent[c] = before + n
        # said once, its other parts may still come
        if before <= limit + SLACK < sent[c]:
            refused[c] = f"its answer is larger than the limit of {limit:,} bytes"
        return 413 if sent[c] > limit + SLACK else 0

    async def admitted(scope, receive):
        """(0, client, body), or (the status of a refusal, client or None, None)."""
        head = dict(reversed(scope["headers"]))  # of two the first, as Flower has it
        c, refusal = who(scope, head)
        if refusal is not None:
            gate.refuse((scope["client"] or ["?"])[0], refusal[1])
        if b"content-length" not in head or b"transfer-encoding" in head:
            return (411 if refusal is None else refusal[0]), c, None
        n = int(head[b"content-length"])
        bad = size(c, scope["path"], n) if refusal is None else refusal[0]
        if c is None and n > HEADER:
            return bad, c, None
        # also of one that is refused, who else would not hear why
        body = await gate.body(receive, min(n, limit + SLACK), keep=not bad)
        return (408 if body is None else bad), c, body

    async def asgi(scope, receive, send):
        if scope["type"] != "http":
            return await app(scope, receive, send)
        with gate.request(scope):
            bad, c, body = await admitted(scope, receive)
            if not bad:
                SPEAKER.set(c)
                return await app(scope, before(body, receive), send)
            await refuse(send, bad, close=bad != 413)

    return asgi


async def refuse(send, status, close):
    """An answer without a body; close: the last one of its connection."""
    head = [(b"content-length", b"0")] + close * [(b"connection", b"close")]
    with suppress(h11.LocalProtocolError):  # what came next was no HTTP, and is refused
        await send({"type": "http.response.start", "status": status, "headers": head})
        await send({"type": "http.response.body", "body": b""})


def before(body, receive):
    """A receive() that begins with a body that was read already."""
    parts = [{"type": "http.request", "body": body, "more_body": False}]

    async def first():
        return parts.pop() if parts else await receive()

    return first


# ---------------------------------------------------------------- a client
def join(
    answer,
    c,
    address,
    key,
    ca=None,
    limit=10**8,
    once=False,
    patience=600.0,
    knock=lambda: True,
    leave=None,
    log=print,
):
    """Client c's end: ask the server for work and answer it, until `leave` is set
    (once: until the federation is over).

    answer(kind, about, tree) -> tree; what it raises is told to the server. key: a
    private key. ca: a file, or None: no TLS. knock() -> is somebody there? ValueError:
    it is not who we want. patience: seconds that nobody may be there at first; a
    server that is lost later is looked for as long as it takes, more and more seldom.
    leave: a threading.Event; the message in hand is answered first.
    """
    # been: connected; None: it was. hung: how often the server has hung up on us
    been, began, why, hung = False, time.monotonic(), "nobody answers", 0
    leave, pause = leave or threading.Event(), SOON
    while not leave.is_set():
        try:
            if knock():
                with node(address, key, ca) as (client, me):
                    log(f"client {c} is connected to {address}")
                    been, why, came = True, "nobody answers", time.monotonic()
                    if work(client, me, answer, c, limit, leave, log) and once:
                        return
        except httpx.HTTPStatusError as e:
            why = refusal(e.response.status_code, address, c, been)
        except httpx.TransportError as e:
            # once says nothing: it may have been killed while it answered
            hung += isinstance(e, (httpx.RemoteProtocolError, httpx.ReadError))
            if been is False and ca is None and hung == HUNG:
                raise ValueError(
                    f"{address} hangs up: if it speaks TLS, give --ca and --key"
                ) from e
        if been and not leave.is_set():
            log(f"lost {address} ({why}); trying again")
            been = None
            if time.monotonic() - came > LATE:  # it was no short visit
                pause = SOON
        if been is False and time.monotonic() - began > patience:
            raise ValueError(
                f"{address}: {why}, for {patience:g} s: is the server started, is the "
                "port open?"
            )
        leave.wait(pause * CHANCE.uniform(0.5, 1))  # not all clients at one time
        pause = min(2 * pause, LATE)


def refusal(status, address, c, been):
    """What a refusal means, in words; ValueError where it is of no use to try again.

    been: it did take us before.
    """
    if status == 403:
        raise ValueError(
            f"{address} does not know this key of client {c}: take client-{c}.key of "
            "the server's own keys"
        )
    if status == 404:
        raise ValueError(f"{address} is a web server, but not that of a federation")
    if status == 401 and been is False:
        raise ValueError(
            f"{address} takes our signature for false or out of date: do the two "
            "clocks agree? Ours may be a few seconds fast, or minutes slow"
        )
    return {
        401: "it has been started again",
        412: f"client {c} is connected already, or was a few seconds ago",
    }.get(status, f"it answers with status {status}")


@contextmanager
def node(address, key, ca):
    """A place at the server, with signs of life until the end -> (its client, my
    node).
    """
    trust = None if ca is None else Path(ca).read_bytes()
    sign = [
        RuntimeVersionHttpInterceptor("SuperNode"),
        NodeAuthHttpInterceptor(key, key.public_key()),
    ]
    with FleetHttpClient.from_server_address(
        address, ca is None, trust, sign
    ) as client:
        active = client.ActivateNode(
            fleet.ActivateNodeRequest(public_key=public(key), heartbeat_interval=BEAT)
        )
        me, over = Node(node_id=active.node_id), threading.Event()

        def beat():
            while not over.wait(BEAT / 2):
                # the next request says what is wrong; RuntimeError: closed meanwhile
                with suppress(httpx.HTTPError, RuntimeError):
                    client.SendNodeHeartbeat(
                        SendNodeHeartbeatRequest(node=me, heartbeat_interval=BEAT)
                    )

        threading.Thread(target=beat, daemon=True).start()
        try:
            yield client, me
        finally:
            over.set()
            with suppress(httpx.HTTPError):
                client.DeactivateNode(fleet.DeactivateNodeRequest(node_id=me.node_id))


def work(client, me, answer, c, limit, leave, log):
    """Answer one message after another; True: the federation is over."""
    pause = 0.02
    while not leave.wait(pause):
        got = client.PullMessages(fleet.PullMessagesRequest(node=me))
        if not got.messages_list:
            pause = min(1.0, 1.25 * pause)
            continue
        run, tree, pause = (
            message_from_proto(got.messages_list[0]).metadata.run_id,
            got.message_object_trees[0],
            0.02,
        )
        kind = "a message"
        try:
            asked = named(
                move.pull_and_inflate_object_from_tree(
                    tree,
                    carry.make_pull_object_fn_protobuf(client.PullObject, me, run),
                    carry.make_confirm_message_received_fn_protobuf(
                        client.ConfirmMessageReceived, me, run
                    ),
                    return_type=Message,
                )
            )
            kind = asked.content[""]["kind"]
            reply = reply_to(asked, asked.content[""], answer, c, limit, log)
            with parts.no_object_id_recompute():
                push = client.PushMessages(
                    fleet.PushMessagesRequest(
                        node=me,
                        messages_list=[
                            message_to_proto(remove_content_from_message(named(reply)))
                        ],
                        message_object_trees=[parts.get_object_tree(reply)],
                    )
                )
                move.push_objects(
                    parts.get_all_nested_objects(reply),
                    carry.make_push_object_fn_protobuf(
                        client.PushObject, me, run, push.session_id
                    ),
                    object_ids_to_push=set(push.objects_to_push),
                )
        except (move.ObjectPullError, move.ObjectPushError):
            log(f"{kind}: too late, the server has gone on")
        except httpx.HTTPStatusError as e:
            if e.response.status_code != 413:
                raise
            log(f"{kind}: the answer is too large for the server")
        if kind == "end":
            return True


def reply_to(asked, record, answer, c, limit, log):
    """The answer as a message, or the reason why there is none."""
    kind = record["kind"]
    try:
        if record["client"] != c:
            raise ValueError(
                f"this is client {c} with the key of client {record['client']}: "
                "--client and --key do not fit"
            )
        tree = (
            {}
            if kind == "end"
            else answer(
                kind, json.loads(record["about"]), message.loads(record["tree"])
            )
        )
        if message.size(tree) > limit:
            raise ValueError(
                f"the answer has {message.size(tree):,} bytes, and the limit is "
                f"{limit:,}"
            )
        body = message.dumps(tree)
        log(f"{kind}: {len(record['tree']):,} bytes came, {len(body):,} go")
        return Message(RecordDict({"": ConfigRecord({"tree": body})}), reply_to=asked)
    except Exception as e:
        log(f"{kind}: {type(e).__name__}: {e}")
        return Message(
            Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, f"{type(e).__name__}: {e}"),
            reply_to=asked,
        )
