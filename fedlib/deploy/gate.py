"""The one open port of a server: how many connections there may be, and for how long.

    gate = Gate(a bound socket, caps(clients), log)

Every connection takes a file descriptor, and without a free one no checkpoint can be
written. So connections are counted as soon as they are accepted, before a word is said:
in all, per address, and per client once a signed request has shown whose it is. Where
it is full, the oldest of those that have shown nothing gives way, so that idle
connections cannot keep a client out. Each has `GRACE` seconds first, in which a client
can show its key on a busy machine, too; as long as all are younger, the new one goes.

A connection has `seconds` for the TLS handshake and the header of its first request,
as long again for each further header, and `seconds` and one more per 16 KiB for a body.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import resource
import socket
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass

CLIENT, SPARE = 4, 64  # connections of each client, and of strangers
KEPT = 64  # descriptors that no connection takes: for checkpoint, record, log
LEAVING = 16  # connections that are being closed, beside those that stay
GRACE = 3.0  # seconds in which a new connection gives way to nobody
KEEP_ALIVE = 5  # seconds between an answer and the next request, as uvicorn has it
HEADER = 2**16  # bytes of a request's header; also of a stranger's body that are read
SLOWEST = 2**14  # bytes a second of a body
LINES = 1000  # of the log, about refusals


@dataclass(frozen=True)
class Caps:
    """Connections at once: in all, from one address, and of one client."""

    total: int
    address: int
    client: int


def caps(clients):
    """Caps for so many clients, within this process' limit of open files.

    All clients may share one address, and strangers at it leave half of the places for
    strangers to others. ValueError: the limit leaves too few, and cannot be raised.
    """
    wanted, least = CLIENT * clients + SPARE, 2 * clients + LEAVING
    total = descriptors(wanted + KEPT + LEAVING) - KEPT - LEAVING
    if total < least:
        raise ValueError(
            f"the limit of open files leaves room for {max(0, total)} connections, and "
            f"{clients} clients need {least}: raise it by {least - total} (ulimit -n)"
        )
    each = min(CLIENT, (total - LEAVING) // clients)
    return Caps(total, each * clients + (total - each * clients) // 2, each)


def descriptors(wanted):
    """How many of the wanted descriptors this process can open.

    Its soft limit is raised as far as they need and the hard one allows.
    """
    here = len(os.listdir("/dev/fd"))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    bound = lambda n: math.inf if n == resource.RLIM_INFINITY else n
    if bound(soft) < here + wanted:
        soft = min(here + wanted, bound(hard))
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return min(wanted, bound(soft) - here)


@dataclass(eq=False)
class Connection:
    """One that was accepted.

    since: when. until: when it is closed, unless a request is at work. client: whose it
    is, once a signed request has come. leaving: it was told to close.
    """

    sock: socket.socket
    address: str
    since: float
    until: float
    client: int | None = None
    asked: bool = False
    leaving: bool = False


class Gate(socket.socket):
    """A listening socket that counts what it accepts; for asyncio's own event loop.

    All but the constructor is called in the thread of that loop.
    """

    def __init__(self, sock, caps, log=print, seconds=10.0, clock=time.monotonic):
        """sock: a bound socket, which is taken over. log: takes one line of text."""
        super().__init__(sock.family, sock.type, sock.proto, fileno=sock.detach())
        self.caps, self.log, self.seconds, self.clock = caps, log, seconds, clock
        self.connections, self.said = {}, set()

    def accept(self):
        """As of a socket; BlockingIOError as long as too many are being closed."""
        here = self.here()
        if len(here) >= self.caps.total + LEAVING:
            raise BlockingIOError("those that leave go first")
        sock, peer = super().accept()
        now = self.clock()
        new = Connection(sock, peer[0], now, now + self.seconds)
        self.make_room([v for v in here if not v.leaving], new)
        self.connections[*peer[:2], *sock.getsockname()[:2]] = new
        return sock, peer

    def here(self):
        """The connections that are open, the oldest first."""
        gone = [k for k, v in self.connections.items() if v.sock.fileno() < 0]
        for k in gone:
            del self.connections[k]
        return list(self.connections.values())

    def make_room(self, here, new):
        """Close one of those here, or the new one, where it is one too many."""
        near = [v for v in here if v.address == new.address]
        if len(near) >= self.caps.address:
            crowd, full = near, f"more than {self.caps.address} from there"
        elif len(here) >= self.caps.total:
            crowd, full = here, f"more than {self.caps.total} in all"
        else:
            return
        self.refuse(new.address, f"connects, which makes {full}: one gives way")
        stale = (v for v in crowd if v.client is None and new.since - v.since >= GRACE)
        self.cut(next(stale, new))

    def cut(self, connection):
        """Close it: its transport reads an end, and gives the descriptor back."""
        connection.leaving = True
        with suppress(OSError):
            connection.sock.shutdown(socket.SHUT_RDWR)

    def refuse(self, address, why):
        """A line in the log, once for each address and reason."""
        if (address, why) in self.said or len(self.said) == LINES:
            return
        self.said.add((address, why))
        self.log(f"refused: {address} {why}")
        if len(self.said) == LINES:
            self.log(f"refused: {LINES} lines say so, further ones are left out")

    # ------------------------------------------------- what is known of a connection
    def find(self, scope):
        """The connection of an ASGI scope, None if it is gone."""
        ends = (scope.get("client"), scope.get("server"))
        return self.connections.get((*ends[0], *ends[1])) if all(ends) else None

    def client(self, scope):
        """Whose connection it is, None: nobody's yet."""
        found = self.find(scope)
        return None if found is None else found.client

    def trust(self, scope, c):
        """A request signed by client c came over this connection.

        Of too many of one client the oldest is closed.
        """
        found = self.find(scope)
        if found is None or found.client == c:
            return
        found.client = c
        own = [v for v in self.here() if v.client == c and not v.leaving]
        for old in own[: -self.caps.client]:
            self.cut(old)

    @contextmanager
    def request(self, scope):
        """While a request is at work, its connection is not closed for being slow."""
        found = self.find(scope)
        if found is None:
            yield
            return
        found.asked, found.until = True, math.inf
        try:
            yield
        finally:
            found.until = self.clock() + KEEP_ALIVE + self.seconds

    async def sweep(self):
        """Close those whose time is over; uvicorn calls it every second."""
        for v in self.here():
            if v.until < self.clock():
                if not v.asked and not v.leaving:
                    self.refuse(v.address, f"sent no request in {self.seconds:g} s")
                self.cut(v)

    async def body(self, receive, n, keep=True):
        """A request's body of n bytes; None: it broke off, or came too slowly.

        keep: False: it is read and thrown away (b"").
        """
        parts = []
        with suppress(TimeoutError):
            async with asyncio.timeout(self.seconds + n / SLOWEST):
                while (part := await receive())["type"] == "http.request":
                    if keep:
                        parts.append(part.get("body", b""))
                    if not part.get("more_body"):
                        return b"".join(parts)
        return None


class Once(logging.Filter):
    """Lets loggers say once what a stranger can make them say at every connection."""

    def __init__(self, *names):
        super().__init__()
        self.loggers, self.said = [logging.getLogger(n) for n in names], set()

    def begin(self):
        for logger in self.loggers:
            logger.addFilter(self)

    def end(self):
        for logger in self.loggers:
            logger.removeFilter(self)

    def filter(self, record):
        what = record.getMessage().partition("\n")[0], str(record.exc_info)[:80]
        new = what not in self.said and len(self.said) < LINES
        self.said.add(what)
        return new
