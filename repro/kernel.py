"""The kernel that executes a notebook; used by repro.run_notebook.

It is started as usual, or forked from a warm process (repro.warm).
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

from jupyter_client.manager import AsyncKernelManager
from jupyter_client.provisioning.local_provisioner import LocalProvisioner


class Forked:
    """A kernel made by os.fork that waits for its command; then what jupyter_client
    asks of a subprocess.Popen.

    To be made while this process has one thread: a fork copies no other, but all the
    locks that others hold. `others` is what is open here and must not stay open there.
    """

    stdin = stdout = stderr = None

    def __init__(self, *others):
        self.returncode = None
        read, self.write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.write)
            for other in others:
                other.close()
            become_kernel(read)
        os.close(read)

    def start(self, cmd: list[str], env: dict, cwd=None) -> Forked:
        """Let it run the kernel that `cmd` would start:
        ``python -m ipykernel_launcher -f FILE``.
        """
        order = {
            "argv": cmd[cmd.index("ipykernel_launcher") + 1 :],
            "environ": env,
            "cwd": cwd,
        }
        with open(self.write, "w") as pipe:
            json.dump(order, pipe)
        return self

    def poll(self) -> int | None:
        """As of Popen: the exit status, once there is one."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self, timeout=None) -> int:
        """As of Popen, without the timeout."""
        while self.poll() is None:
            time.sleep(0.01)
        return self.returncode

    def send_signal(self, signum: int) -> None:
        """As of Popen."""
        if self.poll() is None:
            os.kill(self.pid, signum)

    def terminate(self) -> None:
        """As of Popen."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """As of Popen."""
        self.send_signal(signal.SIGKILL)


def become_kernel(read: int) -> None:
    """In the fork: wait for the command, and be what ``python -m ipykernel_launcher``
    is. Does not return.
    """
    import numpy as np
    import torch
    from ipykernel.kernelapp import IPKernelApp

    os.setsid()  # signals reach what it starts, and no more
    with open(read) as pipe:
        order = json.loads(pipe.read() or "null")
    if order is None:  # no notebook came
        os._exit(0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.environ.clear()
    os.environ.update(order["environ"], JPY_PARENT_PID=str(os.getppid()))
    os.chdir(order["cwd"] or ".")
    np.random.seed()  # noqa: NPY002  else all forks would draw the same
    torch.default_generator.seed()
    sys.argv = [sys.modules["ipykernel_launcher"].__file__, *order["argv"]]
    IPKernelApp.launch_instance(
        [*order["argv"], f"--IPKernelApp.parent_handle={os.getppid()}"]
    )
    sys.exit()


class Provisioner(LocalProvisioner):
    """Starts the kernel by exec, or lets the waiting fork be it."""

    waiting: Forked | None = None

    async def launch_kernel(self, cmd, **kwargs):
        """Start the kernel, in the fork that waits if there is one."""
        if self.waiting is None:
            return await super().launch_kernel(cmd, **kwargs)
        self.process = self.waiting.start(cmd, kwargs["env"], kwargs.get("cwd"))
        self.pid = self.pgid = self.process.pid
        self.cwd = kwargs.get("cwd") or Path.cwd()
        return self.connection_info

    async def send_signal(self, signum: int) -> None:
        """All but the interrupt with which jupyter_client begins to end a kernel: when
        a notebook has ended, nothing is left to interrupt, and a kernel that is not
        quite idle yet prints that it was.
        """
        if signum != signal.SIGINT:
            await super().send_signal(signum)


class Manager(AsyncKernelManager):
    """jupyter_client's, with the provisioner above."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.provisioner = Provisioner(
            kernel_id=self.kernel_id, kernel_spec=self.kernel_spec, parent=self
        )
