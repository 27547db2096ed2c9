"""Ask the warm process to run a notebook; called by repro.run_notebook.

It imports nothing that is slow: a command that is served costs no import of torch.
"""

from __future__ import annotations

import json
import os
import socket
import sys

SOCKET = "FEDLIB_WARM"  # the variable that names the socket
TAKEN = b"y"


def ask(argv: list[str]) -> int | None:
    """Exit status of ``python -m repro.run_notebook *argv``, done by the warm process;
    None where it does not serve."""
    if SOCKET not in os.environ:
        return None
    request = {
        "argv": argv,
        "cwd": os.getcwd(),
        "environ": dict(os.environ),
        "package": __file__,
    }
    text = json.dumps(request).encode()
    with socket.socket(socket.AF_UNIX) as line:
        try:
            line.connect(os.environ[SOCKET])
            socket.send_fds(line, [len(text).to_bytes(8, "big")], [1, 2])
            line.sendall(text)
            if line.recv(1) != TAKEN:
                return None
            status = line.recv(1)
        except OSError:
            return None
        except KeyboardInterrupt:  # the runner sees that we are gone, and stops
            return 130
    if not status:
        print(
            "repro.run_notebook: the process that ran the notebook has been killed",
            file=sys.stderr,
        )
        return 1
    return status[0]
