"""Did an edit move numbers? Short runs of every unit against what is noted.

    python -m goldens.numbers check
    python -m goldens.numbers check --defaults FedAS data
    python -m goldens.numbers write "method FedAS"

The first repeats all short runs, and notes in fedlib/study/checked.txt that these
sources gave the same; the second repeats those of some units, only at default settings;
the third notes new numbers, after a version was raised.
"""

from __future__ import annotations

import time
import tomllib
from typing import Literal

import torch

from fedlib.cli.program import program
from fedlib.core.files import whole
from fedlib.study import identity

from . import noted


def main(what: Literal["check", "write"], *units, defaults: bool = False):
    """Check or write; the exit status is 1 where something is wrong.

    units: a unit (method FedAS), a name (FedAS), a kind (data); default: all
    defaults: check only the short runs at default settings
    """
    torch.set_num_threads(1)
    noted.checked(tomllib.loads(identity.VERSIONS.read_text()))
    some, began = noted.chosen(units), time.process_time()
    if what == "write":
        found = noted.write(some)
    else:
        found = [f for u in some for f in noted.findings(u, defaults)]
    print(*found, sep="\n", end="\n" * bool(found))
    if what == "check" and not (units or defaults or found):
        whole(identity.CHECKED, lambda f: f.write(f"{identity.state()}\n".encode()))
    seconds = time.process_time() - began
    done = f"{len(some)} units, {len(found)} findings, {seconds:.0f} s of CPU time"
    print(noted.advice(found) or done)
    return int(bool(found))


if __name__ == "__main__":
    program(main)
