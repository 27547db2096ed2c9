"""The commands of a federation: its app, and its keys. All else are Flower's.

    python -m fedlib deploy app federation --method FedGA --rounds 20 \\
        --task digits:clients=3,dirichlet=.3
    python -m fedlib deploy keys keys --host server.example --clients 3
    flwr run federation
"""

from __future__ import annotations

from pathlib import Path

from ..cli.text import parse_settings, parse_task, whole
from ..methods.make import make
from .federation import Federation

PROJECT = """\
# A federation: `flwr run .` starts it. No code is in this folder; server and clients
# have fedlib installed.
[project]
name = "federation"
version = "1.0.0"
dependencies = ["flwr>=1.22"]

[tool.flwr.app]
publisher = "fedlib"

[tool.flwr.app.components]
serverapp = "fedlib.deploy.app:server"
clientapp = "fedlib.deploy.app:client"

# What all agree on, see fedlib.deploy.federation; a list is JSON in a string.
[tool.flwr.app.config]
{}
"""
NGINX = """\
# In front of a SuperLink: clients reach its Fleet API, and nobody anything else. Who
# reaches the rest of its port can run code at every client. The SuperLink listens at
# 127.0.0.1:8000 with the same certificate; `flwr run` is typed on this machine.
events {}
http {
  client_max_body_size 1g;
  server {
    listen 8443 ssl;
    ssl_certificate server.pem;
    ssl_certificate_key server.key;
    location /v1/fleet/ {
      proxy_pass https://127.0.0.1:8000;
      proxy_ssl_trusted_certificate ca.pem;
      proxy_ssl_name localhost;
      proxy_ssl_verify on;
      proxy_read_timeout 1h;
    }
    location / { return 404; }
  }
}
"""


def add(p):
    """The arguments, on a parser."""
    sub = p.add_subparsers(dest="do", required=True, metavar="app|keys")
    a = sub.add_parser("app", help="write a Flower app: pyproject.toml, nginx.conf")
    a.add_argument("folder", help="a new folder")
    a.add_argument("--method", required=True)
    described = (
        "as digits:clients=3,dirichlet=.3; what it says of rows is each client's own"
    )
    a.add_argument("--task", required=True, help=described)
    a.add_argument("--rounds", type=whole(1), default=20, help="(20)")
    a.add_argument("--cohort", type=whole(0), default=0, help="clients per round (all)")
    one = "of the method, as lr=.05; repeatable"
    a.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help=one)
    k = sub.add_parser("keys", help="a certificate for the server, keys for clients")
    k.add_argument("folder", help="a new folder")
    names = "name or address of the server, as clients type it; repeatable"
    k.add_argument("--host", action="append", required=True, help=names)
    k.add_argument("--clients", type=whole(1, 10**5), required=True, help="how many")
    valid = "how long the certificates are valid (365)"
    k.add_argument("--days", type=whole(1, 36_500), default=365, help=valid)


def run(args):
    """Do what the arguments say."""
    folder = Path(args.folder)
    if folder.exists() and (folder.is_file() or any(folder.iterdir())):
        raise ValueError(f"{folder} is there and not empty: give a new folder")
    if args.do == "keys":
        from .keys import make as make_keys  # here: only keys need cryptography

        make_keys(folder, args.host, args.clients, args.days)
        print(
            f"{folder}: server.pem and server.key stay with the server, which client-*"
            ".pub are registered at; ca.pem and client-C.key go to client C by a safe "
            f"way; ca.key stays off the network. Valid for {args.days} days."
        )
        return
    method = make(args.method, parse_task(args.task), **parse_settings(args.set))
    told = {"cohort": args.cohort, "data": args.task, "folder": "run"}
    fed = Federation.of(method, args.rounds, **told)
    folder.mkdir(parents=True, exist_ok=True)
    project = PROJECT.format("\n".join(fed.lines()))
    (folder / "pyproject.toml").write_text(project, "utf-8")
    (folder / "nginx.conf").write_text(NGINX, "utf-8")
    print(f"{folder}: pyproject.toml, nginx.conf; `flwr run {folder}` starts it")
