"""Processes that measure when they are asked: `points` and `seeds`."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class Asked:
    """`python -m benchmarks.growth.MODULE SPEC MORE`, one thread; `answers` to `ask`,
    or the reason in `note`.

    A process that does not answer within `limit` seconds is killed, its workers
    included.
    """

    def __init__(self, module, spec, more, limit):
        self.limit, self.note, self.answers, self.spent, self.errors = (
            limit,
            "",
            [],
            0.0,
            tempfile.TemporaryFile(),
        )
        command = [
            sys.executable,
            "-m",
            f"benchmarks.growth.{module}",
            json.dumps(spec),
            str(more),
        ]
        self.process = subprocess.Popen(
            command,
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            cwd=ROOT,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            start_new_session=True,
        )
        self.ready = self.read()  # what it says when it has started

    def ask(self):
        """One more block."""
        if self.note:
            return
        try:
            self.process.stdin.write(b"go\n")
        except BrokenPipeError:
            pass  # `read` finds out why
        answer = self.read()
        if answer:
            self.answers.append(answer)
            self.spent += sum(v for k, v in answer.items() if k != "mib")

    def read(self):
        if not select.select([self.process.stdout], [], [], self.limit)[0]:
            self.note = f"no answer in {self.limit:g} s"
            return self.close()
        line = self.process.stdout.readline()
        if line:
            return json.loads(line)
        code = self.process.wait()
        self.errors.seek(0)
        last = self.errors.read().decode(errors="replace").strip().splitlines()
        self.note = "failed: " + (last[-1][:200] if last else f"exit status {code}")
        return None

    def close(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for f in (self.process.stdin, self.process.stdout, self.errors):
            f.close()


def turns(asked, reps, most):
    """Every process answers once to get warm, then in turns; a dear one (more than
    `most` CPU seconds) twice only.
    """
    for k in range(reps + 1):
        for a in asked:
            if k <= 2 or a.spent <= most:
                a.ask()
    for a in asked:
        a.answers = a.answers[1:]
