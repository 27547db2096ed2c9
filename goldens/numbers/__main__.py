"""Did an edit move numbers? Short runs of every unit against what is noted.

    python -m goldens.numbers check
    python -m goldens.numbers check --defaults FedAS data
    python -m goldens.numbers write "method FedAS"

The first repeats all short runs, and notes in fedlib/study/checked.txt that these
sources gave the same; the second repeats those of some units, only at default settings;
the third notes new numbers, after a version was raised.
"""

from __future__ import annotations

import argparse
import time
import tomllib

import torch

from fedlib.cli import exits
from fedlib.core.files import whole
from fedlib.study import identity, sources

from . import noted


def main(argv=None):
    """Check or write; the exit status is 1 where something is wrong."""
    args = parser().parse_intermixed_args(argv)
    torch.set_num_threads(1)
    noted.checked(tomllib.loads(identity.VERSIONS.read_text()))
    units, began = noted.chosen(args.unit), time.process_time()
    if args.what == "write":
        found = noted.write(units)
    else:
        found = [f for u in units for f in noted.findings(u, args.defaults)]
    print(*found, sep="\n", end="\n" * bool(found))
    if args.what == "check" and not (args.unit or args.defaults or found):
        whole(sources.CHECKED, lambda f: f.write(f"{sources.state()}\n".encode()))
    seconds = time.process_time() - began
    done = f"{len(units)} units, {len(found)} findings, {seconds:.0f} s of CPU time"
    print(noted.advice(found) or done)
    return int(bool(found))


def parser():
    title, name = __doc__.partition("\n")[0], "python -m goldens.numbers"
    cli = argparse.ArgumentParser(prog=name, description=title)
    cli.add_argument("what", choices=("check", "write"))
    some = "a unit (method FedAS), a name (FedAS), a kind (data); default: all"
    cli.add_argument("unit", nargs="*", help=some)
    few = "check only the short runs at default settings"
    cli.add_argument("--defaults", action="store_true", help=few)
    return cli


if __name__ == "__main__":
    exits.program("python -m goldens.numbers", main)
