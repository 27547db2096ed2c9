"""A federation of real processes on loopback: TLS, registered keys, a proxy, and a kill
in each part. Its record is that of the simulation."""

import os
import shutil
import signal
import socket
import subprocess
import time
import warnings
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from toys_core import same

import fedlib
from fedlib.cli.main import main
from fedlib.core.files import read_tensors
from fedlib.core.tree import pick

pytest.importorskip("flwr")
TASK, C, R = "digits:clients=3,dirichlet=.3", 3, 3
KERNELS = {"OMP_NUM_THREADS": "1", "MKL_CBWR": "AVX2"}  # wherever a row lies in memory
pytestmark = pytest.mark.nightly


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Network:
    """The processes, in a folder; each has a log and a group of its own."""

    def __init__(self, at):
        self.at, self.processes, self.port = at, {}, free_port()
        self.env = os.environ | KERNELS | {"NO_PROXY": "*", "no_proxy": "*"}
        self.env |= {"FLWR_HOME": f"{at}/home", "FLWR_TELEMETRY_ENABLED": "0"}
        self.env["PYTHONPATH"] = str(Path(fedlib.__file__).parents[1])
        keys = f"keys {at}/keys --host localhost --clients {C + 1}"
        for what in (keys, f"app {at}/app --method Ditto --rounds {R} --task {TASK}"):
            assert main(["deploy", *what.split()]) == 0
        (at / "home").mkdir()
        (at / "home/config.toml").write_text(
            f'[superlink.here]\naddress = "localhost:{self.port}"\n'
            f'root-certificates = "{at}/keys/ca.pem"\n'
        )

    def start(self, name, *command):
        log = open(self.at / f"{name}.log", "w")
        how = {"stdout": log, "stderr": log, "env": self.env, "cwd": self.at}
        how["start_new_session"] = True
        self.processes[name] = subprocess.Popen(command, **how)

    def kill(self, name):
        if p := self.processes.pop(name, None):
            with suppress(ProcessLookupError):  # it has ended by itself
                os.killpg(p.pid, signal.SIGKILL)
            p.wait()

    def started(self, *words):
        """The processes of this network that are called so."""
        for p in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                ours = f"FLWR_HOME={self.at}/home" in (p / "environ").read_text()
                if ours and any(w in (p / "cmdline").read_text() for w in words):
                    yield int(p.name)

    def said(self, name, text, seconds=300):
        """Wait for a text in a log."""
        until = time.time() + seconds
        while text not in (said := (self.at / f"{name}.log").read_text()):
            assert time.time() < until, f"{name}: no {text!r} in {said[-3000:]}"
            time.sleep(0.5)
        return said

    def link(self):
        words = f"""flower-superlink --host 127.0.0.1 --port {self.port}
            --ssl-certfile keys/server.pem --ssl-keyfile keys/server.key
            --ssl-ca-certfile keys/ca.pem --enable-supernode-auth
            --database link.db --disable-runtime-dependency-installation"""
        self.start("link", *words.split())
        self.said("link", "running on", 60)

    def node(self, c, port=None):
        words = f"""flower-supernode --superlink localhost:{port or self.port}
            --root-certificates keys/ca.pem --port {free_port()}
            --auth-supernode-private-key keys/client-{c}.key --node-config"""
        own = f"partition-id={c} folder='state-{c}'"
        self.start(f"node-{c}", *words.split(), own)

    def proxy(self):
        """The port of nginx in front of the SuperLink, or None where there is none."""
        if not shutil.which("nginx"):
            warnings.warn("no nginx here: the proxy is not tried", stacklevel=1)
            return None
        port, conf = free_port(), (self.at / "app/nginx.conf").read_text()
        conf = conf.replace("8443", f"127.0.0.1:{port}").replace("8000", str(self.port))
        own = [f"access_log {self.at}/access.log"]  # it may not be installed
        for what in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"):
            own.append(f"{what}_temp_path {self.at}/{what}")
        conf = conf.replace("http {", f"http {{ {'; '.join(own)};", 1)
        (self.at / "keys/nginx.conf").write_text(conf)
        where = ("-p", str(self.at / "keys"), "-c", "nginx.conf")
        log = f"error_log {self.at}/nginx-error.log; pid {self.at}/nginx.pid;"
        self.start("nginx", "nginx", *where, "-g", f"{log} daemon off;")
        with open(self.at / "home/config.toml", "a") as f:
            f.write(f'[superlink.outside]\naddress = "localhost:{port}"\n')
            f.write(f'root-certificates = "{self.at}/keys/ca.pem"\n')
        return port

    def flwr(self, *words, link="here"):
        how = {"env": self.env, "cwd": self.at, "capture_output": True, "text": True}
        return subprocess.run(["flwr", *words, link], timeout=120, **how)

    def run(self, name, folder):
        more = f"folder='{self.at / folder}'"
        command = ("flwr", "run", "app", "here", "--stream", "--run-config", more)
        self.start(name, *command)


@pytest.fixture
def network(tmp_path):
    if not shutil.which("flower-superlink"):
        pytest.skip("flower-superlink is not on the path")
    net = Network(tmp_path)
    yield net
    for name in list(net.processes):
        net.kill(name)
    for pid in net.started("flwr", "flower"):  # by these
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def check(net, folder):
    """The record, the server and the clients are those of the simulation, with the
    cohorts that were there."""
    record = fedlib.Record.load(net.at / folder)
    cohorts = [[int(c) for c in row if c >= 0] for row in record.logs["cohort"]]
    code = (
        "import sys, fedlib, torch; from fedlib.cli.text import parse_task;"
        f"m = fedlib.make('Ditto', parse_task('{TASK}'));"
        f"r = fedlib.run(m, rounds={R}, how='loop', cohort=lambda t: ({cohorts} + [[0, 1, 2]])[t],"
        f"device='cpu', folder='{net.at}/{folder}-simulated')"
    )
    subprocess.run([shutil.which("python"), "-c", code], env=net.env, check=True)
    want = fedlib.Record.load(net.at / f"{folder}-simulated")
    for k, v in want.views.items():
        there = ~np.isnan(record[k])
        assert (record[k][there] == v[there]).all() and there.mean() > 0.5, k
    state = lambda at: read_tensors(net.at / at / "checkpoint", "cpu")["state"]
    mine, theirs = state(folder), state(f"{folder}-simulated")
    assert same(mine["server"], theirs["server"])
    name = (net.at / folder / "run").read_text()
    steps = mine["clients"]["step"].tolist()
    for c in range(C):
        own = read_tensors(net.at / f"state-{c}/client-{c}-{name}", "cpu")["steps"]
        assert same(own[steps[c]], pick(theirs["clients"], c))
    return cohorts


def test_a_federation_that_is_killed_in_each_part(network):
    net = network
    net.link()
    for c in range(C):
        done = net.flwr("supernode", "register", f"keys/client-{c}.pub")
        assert done.returncode == 0, done.stdout + done.stderr
    proxy = net.proxy()
    for c in range(C):
        net.node(c, proxy)
    net.node(C, proxy)  # a stranger: its key is not registered
    net.run("first", "first")
    net.said("first", "round 0")
    net.said("link", 'activate-node HTTP/1.1" 412')  # the stranger
    net.kill(f"node-{C}")
    if proxy:  # nobody outside can start a run
        assert net.flwr("run", "app", link="outside").returncode != 0
    net.kill("node-1")
    net.said("first", "client 1 left out of round 1")
    net.node(1, proxy)
    net.said("first", "round 3")
    cohorts = check(net, "first")
    assert cohorts[0] == [0, 1, 2] and cohorts[1] == [0, 2]

    net.run("second", "second")
    net.said("second", "round 0")
    for pid in net.started("flwr-serverapp"):
        os.kill(pid, signal.SIGKILL)
    net.processes["second"].wait(200)  # Flower says that this run has failed
    net.run("third", "second")
    net.said("third", "round 1")
    assert "round 0" not in (net.at / "third.log").read_text()
    for name in ("link", "third"):  # and the ServerApp: the power fails
        net.kill(name)
    for pid in net.started("flwr-serverapp"):
        os.kill(pid, signal.SIGKILL)
    net.link()
    net.run("fourth", "second")
    net.said("fourth", "round 3")
    assert check(net, "second") == [[0, 1, 2]] * R
