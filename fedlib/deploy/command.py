"""The commands of a federation: its app, and its keys. All else are Flower's.

    python -m fedlib deploy app federation --method FedGA --rounds 20 \\
        --task digits:clients=3,dirichlet=.3
    python -m fedlib deploy keys keys --host server.example --clients 3
    flwr run federation
"""

from pathlib import Path

from ..core.errors import check_whole, refuse_if

PROJECT = """\
# A federation: `flwr run .` starts it. No code is in this folder; server and clients
# have fedlib installed. In Flower's simulation engine:
# flwr run . local --federation-config num-supernodes={}
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
      proxy_http_version 1.1;
      proxy_buffering off;  # models do not lie on this disk
      proxy_request_buffering off;
    }
    location / { return 404; }
  }
}
"""


def app(folder, *, method, task, set: tuple = (), rounds: int = 20, cohort: int = 0):
    """write the folder of a Flower app: pyproject.toml, nginx.conf

    folder: a new folder
    method: a method
    task: as digits:clients=3,dirichlet=.3, of which each client has its own rows
    set: a hyper-parameter, NAME=VALUE; repeatable
    rounds: (20)
    cohort: clients per round (all)
    """
    from ..cli.text import parse_task, settings
    from .federation import Federation

    path, described = new(folder), {"name": method} | settings(",".join(set))
    more = {"cohort": cohort, "data": task, "folder": "run"}
    fed = Federation.of(described, rounds, parse_task(task), **more)
    path.mkdir(parents=True, exist_ok=True)
    project = PROJECT.format(fed.C, "\n".join(fed.lines()))
    (path / "pyproject.toml").write_text(project, "utf-8")
    (path / "nginx.conf").write_text(NGINX, "utf-8")
    print(f"{path}: pyproject.toml, nginx.conf; `flwr run {path}` starts it")


def keys(folder, *, host: tuple, clients: int, days: int = 365):
    """make a certificate for the server and a pair of keys for each client

    folder: a new folder
    host: name or address of the server, as clients type it; repeatable
    clients: how many
    days: how long the certificates are valid (365)
    """
    from .keys import make

    check_whole("--clients", clients, 1, 10**5)
    check_whole("--days", days, 1, 36_500)
    make(new(folder), host, clients, days)
    print(
        f"{folder}: server.pem and server.key stay with the server, where client-*.pub "
        "are registered; ca.pem and client-C.key go to client C by a safe way; ca.key "
        f"stays off the network. Valid for {days} days."
    )


def new(folder):
    """The path of a folder that is empty or not there."""
    path = Path(folder)
    there = path.exists() and (path.is_file() or any(path.iterdir()))
    refuse_if(there, f"{folder} is there and not empty: give a new folder")
    return path
