"""The commands of a federation: its keys, its server, its clients.

    python -m fedlib deploy keys keys --host server.example --clients 3
    python -m fedlib deploy server federation.yaml --folder run --host 0.0.0.0 \\
        --port 8000 --keys keys
    python -m fedlib deploy client federation.yaml --client 0 --data mine.npz \\
        --folder state-0 --server server.example:8000 \\
           --ca ca.pem --key client-0.key

To try it on one machine, leave out --host, --keys, --server, --ca and --key: then
nothing is encrypted, and nothing leaves.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import signal
import socket
import ssl
import sys
import threading
from importlib.metadata import PackageNotFoundError, version

from ..core.ranges import check_number

FLOWER, MAKE = "1.41.0", "`python -m fedlib deploy keys`"


def add(p):
    """The arguments, on a parser."""
    sub = p.add_subparsers(dest="do", required=True, metavar="keys|server|client")
    k = sub.add_parser(
        "keys",
        help="make a certificate for the server and a pair of keys for each client",
    )
    k.add_argument("folder", help="a new folder")
    k.add_argument(
        "--host",
        action="append",
        required=True,
        help="name or address of the server, as clients type it; repeatable",
    )
    k.add_argument("--clients", type=int, required=True, help="how many")
    k.add_argument(
        "--days",
        type=int,
        default=365,
        help="how long the certificates are valid (365)",
    )
    s = sub.add_parser(
        "server", help="run a federation: wait for its clients, then all rounds"
    )
    s.add_argument(
        "--host",
        default="127.0.0.1",
        help="address to listen at; 0.0.0.0: all of this machine (127.0.0.1)",
    )
    s.add_argument("--port", type=int, default=8000, help="the one port (8000)")
    s.add_argument(
        "--keys",
        metavar="DIR",
        help="folder with server.pem, server.key and client-*.pub",
    )
    s.add_argument(
        "--minimum",
        type=int,
        help="of the clients that a round asks, so many must answer; below that the "
        "federation waits for them (1; before round 0 all)",
    )
    c = sub.add_parser("client", help="take part: answer the server until stopped")
    c.add_argument(
        "--client", type=int, required=True, metavar="C", help="my number, from 0"
    )
    c.add_argument(
        "--data",
        required=True,
        help="mine.npz with x, y; or a task as digits:clients=3,dirichlet=.3",
    )
    c.add_argument("--server", default="127.0.0.1:8000", metavar="HOST:PORT")
    c.add_argument(
        "--ca", metavar="FILE", help="ca.pem, by which the server proves itself"
    )
    c.add_argument("--key", metavar="FILE", help="client-C.key, by which I do")
    c.add_argument(
        "--once", action="store_true", help="leave when the federation is over"
    )
    for q, what, first in (
        (
            s,
            "checkpoint and record; a server that was stopped goes on from there",
            "for all clients to come, when it starts",
        ),
        (c, "what this client keeps", "for the server, at first; later for ever"),
    ):
        q.add_argument(
            "file", help="federation.yaml, the same at the server and all clients"
        )
        q.add_argument("--folder", required=True, metavar="DIR", help=what)
        q.add_argument(
            "--insecure",
            action="store_true",
            help="no TLS and no keys, within this machine only (default there)",
        )
        q.add_argument(
            "--patience",
            type=float,
            default=600.0,
            metavar="S",
            help=f"seconds to wait {first} (600)",
        )


def run(args):
    """Do what the arguments say."""

    def stop(*_):
        raise KeyboardInterrupt

    # as Ctrl-C; a client may finish what it has in hand, see there
    signal.signal(signal.SIGTERM, stop)
    try:
        {"keys": keys, "server": server, "client": client}[args.do](args)
    except KeyboardInterrupt:
        say(
            "stopped; the same command goes on from here"
            if args.do != "keys"
            else "stopped"
        )
        sys.exit(130)


def say(text):
    print(text, flush=True)


def keys(args):
    part("keys").make(args.folder, args.host, args.clients, args.days)
    say(
        f"{args.folder}: server.pem, server.key and client-*.pub stay with the server; "
        "ca.pem and client-C.key go to client C by a safe way; ca.key stays off the "
        f"network. Valid for {args.days} days."
    )


def server(args):
    from ..cli.report import report
    from .federation import Federation
    from .gate import Gate, caps
    from .rows import server_task
    from .server import serve

    check_number("--patience", args.patience, 0, why=", of seconds")
    fed, safe = Federation.load(args.file), part("keys")
    if guarded(args, args.host, args.keys, "--keys DIR"):
        certificate, secret, known = safe.server(args.keys, fed.C)
        tls = certificate, secret
    else:
        tls, known = None, {c: safe.public(safe.stand_in(c)) for c in range(fed.C)}
    if args.minimum is not None and not 1 <= args.minimum <= fed.C:
        raise ValueError(
            f"--minimum {args.minimum}: {args.file} has {fed.C} clients, give "
            f"1 to {fed.C}"
        )
    # a method that needs everybody waits for everybody
    least = fed.C if fed.make(server_task(fed)).who == "all" else args.minimum
    flower = part("flower")
    sock = Gate(bind(args.host, args.port), caps(fed.C), say)
    with flower.Link(sock, known, tls, fed.limit, args.patience, least, say) as link:
        say(
            f"listening at {args.host}:{sock.getsockname()[1]} for {fed.C} clients, "
            + ("with TLS and keys" if tls else "this machine only, not encrypted")
        )
        record = serve(fed, link.exchange, args.folder, say)
        link.end()
    report(fed.method["name"], server_task(fed, record.meta["n"]), record)


def client(args):
    from .client import Site
    from .federation import Federation
    from .rows import client_task

    check_number("--patience", args.patience, 0, why=", of seconds")
    fed, safe = Federation.load(args.file), part("keys")
    host, port = address(args.server)
    if not 0 <= args.client < fed.C:
        raise ValueError(
            f"--client {args.client}: {args.file} has {fed.C} clients, numbered 0 to "
            f"{fed.C - 1}"
        )
    if guarded(
        args,
        host,
        args.ca and args.key,
        "--ca FILE and --key FILE",
        args.ca or args.key,
    ):
        safe.authority(args.ca)
        key, ca = safe.private(args.key), args.ca
    else:
        key, ca = safe.stand_in(args.client), None
    site = Site(fed, args.client, client_task(fed, args.client, args.data), args.folder)
    os.environ["no_proxy"] = "*"  # straight to the server, as the knock goes
    flower, leave = part("flower"), threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: leave.set())
    flower.join(
        site.answer,
        args.client,
        args.server,
        key,
        ca,
        fed.limit,
        args.once,
        args.patience,
        lambda: knock(host, port, ca),
        leave,
        say,
    )


# ----------------------------------------------- what is refused before anything starts
def part(name):
    """fedlib.deploy.keys or .flower; ValueError if Flower is not installed."""
    try:
        found = version("flwr")
    except PackageNotFoundError:
        found = None
    if found != FLOWER:
        raise ValueError(
            f"a federation over a network needs Flower {FLOWER}, and {found or 'none'} "
            "is installed: pip install 'fedlib[deploy]'"
        )
    from importlib import import_module

    return import_module(f".{name}", __package__)


def guarded(args, host, given, flags, some=None):
    """Are TLS and keys to be used? Beyond this machine they must."""
    here = loopback(host)
    if args.insecure and (given or some):
        raise ValueError(f"--insecure and {flags}: give one of the two")
    if given:
        return True
    if some:
        raise ValueError(f"give both, {flags}")
    if not here:
        raise ValueError(
            (
                f"{host} is not this machine alone, so the server and the clients must "
                f"prove who they are: give {flags}, made by {MAKE}"
            )
            + (" (--insecure is for 127.0.0.1 only)" if args.insecure else "")
        )
    return False


def loopback(host):
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def address(text):
    """ "host:port" or "[::1]:port" -> (host, port)."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"--server {text!r}: write host:port, as server.example:8000")
    return host, int(port)


def bind(host, port):
    """A socket that listens, or a ValueError that says why not."""
    if not 0 <= port < 65536:
        raise ValueError(f"--port {port}: give a number from 1 to 65535")
    try:
        return socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET
        )
    except OSError as e:
        if e.errno == errno.EADDRINUSE:
            raise ValueError(
                f"port {port} of {host} is in use: stop what listens there, or give "
                "another --port"
            ) from e
        raise ValueError(
            f"cannot listen at {host}:{port} ({e.strerror}): give --host an address of "
            "this machine, or 0.0.0.0 for all of them, and a --port that you may use"
        ) from e


def knock(host, port, ca):
    """Does somebody listen there? A server that is full hangs up, and may have room
    later.

    ValueError if it is not the server that `ca` vouches for.
    """
    try:
        with socket.create_connection((host, port), 10) as s:
            if ca is not None:
                ssl.create_default_context(cafile=ca).wrap_socket(
                    s, server_hostname=host
                ).close()
        return True
    except socket.gaierror as e:
        raise ValueError(f"--server {host}:{port}: unknown host ({e.strerror})") from e
    except ssl.SSLCertVerificationError as e:
        raise ValueError(
            f"{host}:{port} is not the server that {ca} vouches for "
            f"({e.verify_message}): take the ca.pem of this server's keys; they name "
            f"the hosts and end on a day, see {MAKE}"
        ) from e
    except ssl.SSLEOFError:
        return False
    except ssl.SSLError as e:
        raise ValueError(
            f"{host}:{port} does not speak TLS ({e.reason}): start the server "
            "with --keys"
        ) from e
    except OSError:
        return False
