"""Everything that the page How fast is a round? shows side by side, in one go.

    python -m benchmarks.all ~/peers

Runs benchmarks.rounds, .methods and .floor, one after the other, with every peer that
has an environment in the folder: ~/peers/pfl, fedlab, flower, pfllib and flgo, and the
sources of PFLlib in ~/peers/PFLlib. Without a folder no peer is asked.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from .peers.ask import PEERS, ROOT


def found(folder):
    """["--peer", "NAME=PYTHON", ...] of the environments in the folder."""
    pythons = {name: folder / name / "bin" / "python" for name in PEERS}
    return [
        word
        for name, python in pythons.items()
        if python.exists()
        for word in ("--peer", f"{name}={python}")
    ]


def main(argv=None):
    p = argparse.ArgumentParser(
        prog="python -m benchmarks.all", description=__doc__.partition("\n")[0]
    )
    p.add_argument("peers", type=Path, nargs="?", help="folder of their environments")
    p.add_argument("--reps", default="7")
    p.add_argument(
        "--seconds", default="1.0", help="of CPU, per variant and repetition"
    )
    args = p.parse_args(argv)
    env, peers = dict(os.environ), []
    if args.peers:
        peers = found(args.peers.resolve())
        env.setdefault("PFLLIB", str(args.peers.resolve() / "PFLlib"))
        if not peers:
            p.error(
                f"{args.peers} holds no environment of a peer: make one of "
                f"{', '.join(PEERS)} in it, see benchmarks/README.md"
            )
    much = ["--reps", args.reps, "--seconds", args.seconds]
    for module, words in (
        ("rounds", much + peers),
        ("methods", much + peers),
        ("floor", []),
    ):
        command = [sys.executable, "-m", f"benchmarks.{module}", *words]
        subprocess.run(command, cwd=ROOT, env=env, check=True)


if __name__ == "__main__":
    sys.exit(main())
