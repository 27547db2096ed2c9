"""One process that has imported everything, and forks for each notebook; started by
repro.pipeline, asked by repro.run_notebook through repro.ask.

The pipeline starts it and names its socket in FEDLIB_WARM. ``python -m
repro.run_notebook`` then hands over its arguments, its environment and its terminal
(`repro.ask`), and waits for the exit status:

    server     imports, and from then on only forks: one thread, no zmq context,
               no tensor
    runner     a fork per notebook: papermill
    kernel     a fork of the runner, made before papermill starts threads: a real
               ipykernel (repro.kernel)

Without the variable, without the process, or after an edit of the sources, run_notebook
does the same work itself, and what it writes has the same bytes. Everything ends when
the process that started the server does.
"""

from __future__ import annotations

import builtins
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

from repro import ask
from repro.ask import SOCKET, TAKEN
from repro.run_notebook import KERNEL_ENVIRONMENT

IMPORTS = (
    "papermill",
    "ipykernel.kernelapp",
    "ipykernel_launcher",
    "IPython",
    "torch",
    "numpy",
    "pandas",
    "pandas.io.formats.style",
    "scipy.stats",
    "matplotlib.pyplot",
    "fedlib.study.experiment",
    "repro.kernel",
    "repro.run_notebook",
    "fedlib.plots",
)


# ------------------------------------------------------- the side of repro.pipeline
@contextmanager
def server(lifeline: int, log):
    """Start the warm process, its output going to the file `log`; the variables by
    which commands find it.

    lifeline: the end to read of a pipe. The process ends when nobody holds the other
    end any more.
    """
    with (
        tempfile.TemporaryDirectory(prefix="fedlib-") as folder,
        socket.socket(socket.AF_UNIX) as listener,
    ):
        path = os.path.join(folder, "warm")  # in a folder that nobody else may enter
        listener.bind(path)
        listener.listen()  # who comes before the imports are done waits here
        command = [
            sys.executable,
            "-m",
            "repro.warm",
            str(listener.fileno()),
            str(lifeline),
        ]
        subprocess.Popen(
            command,
            env=KERNEL_ENVIRONMENT | os.environ,
            pass_fds=(listener.fileno(), lifeline),
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        listener.close()
        yield {SOCKET: path}


# ------------------------------------------------------- the process itself
def serve(listener: socket.socket, lifeline: int) -> None:
    """Import, then fork a runner for each request,
    until `lifeline` is closed at its other end.
    """
    # pandas shows as many columns as in a kernel
    builtins.get_ipython = lambda: SimpleNamespace(kernel=None)
    for name in IMPORTS:
        import_module(name)
    del builtins.get_ipython
    if threads():
        sys.exit(
            f"repro.warm: imports started threads ({', '.join(threads())}), so nothing "
            "is forked."
        )
    gc.collect()
    gc.freeze()
    code = sources()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # runners leave no zombies
    while True:
        ready, _, _ = select.select([listener, lifeline], [], [])
        if lifeline in ready:
            return
        line, _ = listener.accept()
        if sources() == code and fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            listener.close()
            work(line, lifeline)
        line.close()


def fork() -> int:
    """os.fork, without the warning of Python 3.12 and later where there are threads:
    `threads` has looked.
    """
    with warnings.catch_warnings(action="ignore"):
        return os.fork()


def threads() -> list[str]:
    """Names of this process's threads beside the main one, as far as the system
    tells them.

    Not counted is Arrow's allocator, which has a thread and survives a fork.
    """
    names = {
        int(task.parent.name): task.read_text().strip()
        for task in Path("/proc/self/task").glob("*/comm")
    }
    return [
        name
        for thread, name in names.items()
        if thread != os.getpid() and name != "jemalloc_bg_thd"
    ]


def sources() -> str:
    """Hash of fedlib and of repro as they lie on disk."""
    from fedlib.core import provenance

    here = provenance.PACKAGE.parent
    return provenance.sources("fedlib/**/*.py", "repro/**/*.py", root=here)


def work(line: socket.socket, lifeline: int) -> None:
    """In the fork: run the notebook that is asked for and answer with the exit status.

    Does not return.
    """
    from repro import kernel, run_notebook

    size, fds, _, _ = socket.recv_fds(line, 8, 2)
    with line.makefile("rb") as pipe:
        request = json.loads(pipe.read(int.from_bytes(size, "big")))
    if request["package"] != ask.__file__:  # another copy of fedlib
        os._exit(0)
    os.setsid()
    for fd, standard in zip(fds, (1, 2)):
        os.dup2(fd, standard)
        os.close(fd)
    os.environ.clear()
    os.environ.update(request["environ"])
    os.chdir(request["cwd"])
    sys.argv = [run_notebook.__file__, *request["argv"]]
    kernel.Provisioner.waiting = kernel.Forked(line)
    done = threading.Event()
    threading.Thread(
        target=watch,
        args=(line, lifeline, kernel.Provisioner.waiting, done),
        daemon=True,
    ).start()
    line.sendall(TAKEN)
    try:
        status = run_notebook.main(request["argv"])
    except SystemExit as stop:  # argparse
        status = stop.code
    sys.stdout.flush()
    sys.stderr.flush()
    done.set()
    with suppress(OSError):  # run_notebook may be gone
        line.sendall(bytes([status]))
    os._exit(status)


def watch(line: socket.socket, lifeline: int, kernel, done: threading.Event) -> None:
    """Stop this runner and its kernel when run_notebook or the
    server's parent is gone.
    """
    select.select([line, lifeline], [], [])
    if not done.is_set():
        # so that run_notebook removes what is half done
        os.kill(os.getpid(), signal.SIGINT)
        with suppress(ProcessLookupError):
            os.killpg(kernel.pid, signal.SIGKILL)
        time.sleep(10)
        os._exit(130)


if __name__ == "__main__":
    # as ipykernel_launcher does; the kernel has "" instead
    if Path(sys.path[0]) == Path.cwd():
        del sys.path[0]
    serve(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]))
