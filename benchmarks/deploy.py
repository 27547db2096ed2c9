"""What does a message cost? FedGA with three clients on loopback, without TLS.

    python -m benchmarks.deploy             5 rounds; some minutes
    python -m benchmarks.deploy --rounds 2

Flower starts a process `flwr-clientapp` for each message. A command of this name stands
before Flower's own, runs it, and writes down its CPU seconds, user and system.
`by_round` is the number of messages of a client and round, without the first (who are
you?) and the last (the final scores). Writes results/benchmarks-deploy.csv, and .json:
what it ran on.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

from . import harness

CLIENTS = 3
COUNTED = """\
#!/bin/bash
exec 3>&2
TIMEFORMAT='%U %S'
{{ time {} "$@" 2>&3; }} 2>> {}
"""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_for(port, seconds=120):
    """Until somebody listens at the port."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with suppress(OSError):
            return socket.create_connection(("127.0.0.1", port), 1).close()
        time.sleep(0.5)
    raise TimeoutError(f"nobody listens at port {port}")


def processes(at, rounds):
    """CPU seconds of each process of a client, of a run in the folder `at`."""
    spent, bin, port = at / "spent", at / "bin", free_port()
    bin.mkdir()
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    own = bin / "flwr-clientapp"
    own.write_text(COUNTED.format(shutil.which("flwr-clientapp", path=path), spent))
    own.chmod(0o755)
    env = os.environ | {"FLWR_HOME": str(at), "FLWR_TELEMETRY_ENABLED": "0"}
    env |= {"PATH": f"{bin}{os.pathsep}{path}", "PYTHONPATH": str(harness.ROOT)}
    env |= {"FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1"}
    link = f"127.0.0.1:{port}"
    (at / "config.toml").write_text(
        f'[superlink.here]\naddress = "{link}"\ninsecure = true\n'
    )
    how, log = {"env": env, "cwd": at}, open(at / "log", "w")
    back = how | {"stdout": log, "stderr": log, "start_new_session": True}
    words = f"deploy app app --method FedGA --rounds {rounds} --task"
    words = [*words.split(), f"digits:clients={CLIENTS},dirichlet=.3"]
    subprocess.run([sys.executable, "-m", "fedlib", *words], check=True, **how)
    started = []
    start = lambda *words: started.append(subprocess.Popen(words, **back))
    try:
        start(
            "flower-superlink", "--insecure", "--host", "127.0.0.1", "--port", str(port)
        )
        wait_for(port)
        for c in range(CLIENTS):
            to = ("--insecure", "--superlink", link, "--port", str(free_port()))
            own = ("--node-config", f"partition-id={c} folder='state-{c}'")
            start("flower-supernode", *to, *own)
        run = ("flwr", "run", "app", "here", "--stream")
        subprocess.run(run, check=True, timeout=1800, **how)
        if not (at / "run/record").exists():
            raise RuntimeError(f"the run failed: {(at / 'log').read_text()[-2000:]}")
    finally:
        for p in started:
            with suppress(ProcessLookupError):
                os.killpg(p.pid, signal.SIGKILL)
            p.wait()
    return [sum(map(float, x.split())) for x in spent.read_text().splitlines()]


def main():
    p = harness.parser("deploy", __doc__)
    p.add_argument("--rounds", type=int, default=5)
    args = p.parse_args()
    with tempfile.TemporaryDirectory() as at:
        spent = processes(Path(at), args.rounds)
    row = {"rounds": args.rounds, "clients": CLIENTS, "messages": len(spent)}
    row["by_round"] = (len(spent) - 2 * CLIENTS) / CLIENTS / args.rounds
    row |= harness.spread(spent, "cpu_s")
    del row["repetitions"]  # the messages
    harness.show([row])
    harness.keep([row], args.out, flwr=version("flwr"))


if __name__ == "__main__":
    main()
