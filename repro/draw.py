"""The process that draws notebooks, each in a kernel forked from one that has imported
everything; started by repro/run_notebook.py.

``tier`` and ``seed`` of params.yaml reach every notebook that declares them in its cell
tagged ``parameters``; studies read the rest of that file themselves.

Times, machine paths and random names are taken out of what a notebook has printed, so
that the same code and parameters give the same bytes. A run that fails leaves its
half-done notebook in runs/failed.
"""

import hashlib
import itertools
import multiprocessing
import os
import re
import shutil
import sys
import tempfile
import threading
import time
import traceback
from collections import deque
from concurrent.futures import Future
from contextlib import suppress
from multiprocessing.connection import Listener
from pathlib import Path

from fedlib.study import TIERS
from fedlib.study.studies import read
from repro import papers
from repro.names import hint
from repro.run_notebook import SOCKET, folder_of

COMMON = ("tier", "seed")
FAILED = Path("runs/failed")
GATE = Path("results/gate")
MADE = ("benchmarks-server", "traffic", "verdicts-errors")
MADE = [Path(f"results/{name}.csv") for name in MADE]  # some notebooks read them
CORES = min(len(os.sched_getaffinity(0)), 4)  # notebooks at a time
KERNEL_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
    "SOURCE_DATE_EPOCH": "0",
    "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    "MPLBACKEND": "module://matplotlib_inline.backend_inline",
}
WARM = multiprocessing.get_context("forkserver")


# ---------------------------------------------------------------- parameters
def parameters(notebook: Path, file: Path) -> dict:
    """What a notebook is given from `file`: what its ``parameters`` cell assigns."""
    from papermill import inspect_notebook

    tree, names = read(file), inspect_notebook(notebook)
    if (tier := tree.get("tier", TIERS[0])) not in TIERS:
        raise ValueError(f"{file}: no tier {tier!r}; {hint(tier, TIERS)}")
    return {k: tree[k] for k in COMMON if k in tree and k in names}


# ---------------------------------------------------------------- the same bytes
def same_bytes(nb, root: Path) -> str:
    """The notebook as text, without what differs between two runs of the same code.

    Left out: run times and other traces of the runner, cell ids made at random,
    the Python version. In outputs, `root` becomes ``.``, the interpreter's folder
    ``<python>``, a memory address ``0x...``; pandas' styled tables are numbered; texts
    printed in pieces are joined, since the clock cuts them."""
    import nbformat

    nb.metadata.pop("papermill", None)
    nb.metadata.get("language_info", {}).pop("version", None)
    plain = without_traces(root)
    for i, cell in enumerate(nb.cells):
        cell.id = f"cell-{i}"
        for trace in ("papermill", "execution"):
            cell.metadata.pop(trace, None)
        if cell.cell_type == "code":
            cell.outputs = plain(joined(cell.outputs))
    return nbformat.writes(nb) + "\n"


def without_traces(root: Path):
    """A function of outputs that takes traces of the machine out of them."""
    base = sys.base_prefix
    folders = {sys.prefix: "<python>", f"{base}/lib": "<python>/lib", str(root): "."}
    tables: dict[str, str] = {}
    numbered = lambda m: tables.setdefault(m[0], f"T_{len(tables)}")
    # without its look-behind, the first takes minutes on base64
    traces = {
        r"(?<![^\s\"'])[^\s\"']*ipykernel_\d+/\d+\.py": "<cell>",
        r"\b0x[0-9a-f]{9,}": "0x...",
        r"\bT_[0-9a-f]{5}(?=[_\s\"])": numbered,
    }
    picture = lambda k: k.startswith("image/") and k != "image/svg+xml"

    def plain(value):
        if isinstance(value, dict):
            of = ((k, v if picture(k) else plain(v)) for k, v in value.items())
            return type(value)(of)
        if isinstance(value, list):
            return [plain(v) for v in value]
        if isinstance(value, str):
            for folder, name in folders.items():
                value = value.replace(folder, name)
            for trace, name in traces.items():
                value = re.sub(trace, name, value)
        return value

    return plain


def joined(outputs: list) -> list:
    """Printed texts that touch become one for stdout, then one for stderr."""
    from nbformat.v4 import new_output

    done = []
    of_text = lambda out: out.output_type == "stream"
    for printed, group in itertools.groupby(outputs, of_text):
        group = list(group)
        for name in ("stdout", "stderr") if printed else ():
            if text := "".join(out.text for out in group if out.name == name):
                done.append(new_output("stream", name=name, text=text))
        done += () if printed else group
    return done


# ---------------------------------------------------------------- a warm kernel
def kernel(file: str, environment: dict) -> None:
    """In the fork: be the kernel of a connection file."""
    from ipykernel.kernelapp import IPKernelApp

    os.environ.update(environment)
    sys.argv = ["kernel"]
    parent = f"--IPKernelApp.parent_handle={os.getppid()}"
    IPKernelApp.launch_instance(argv=["-f", file, "--log-level=ERROR", parent])


class Forked(WARM.Process):
    """A kernel's process with the methods of subprocess.Popen that Jupyter calls."""

    stdin = stdout = stderr = None

    def poll(self):
        return self.exitcode

    def wait(self):
        self.join()
        return self.exitcode

    def send_signal(self, number):
        os.kill(self.pid, number)


def manager(environment: dict):
    """A class of kernel managers whose kernels are forks of a warm process."""
    from jupyter_client.manager import AsyncKernelManager
    from jupyter_client.provisioning import LocalProvisioner

    class Provisioner(LocalProvisioner):
        async def launch_kernel(self, cmd, **kw):
            file = self.parent.connection_file
            self.process = Forked(target=kernel, args=(file, environment))
            self.process.start()
            self.pid = self.process.pid
            return self.connection_info

    class Manager(AsyncKernelManager):
        async def _async_pre_start_kernel(self, **kw):
            about = {"kernel_id": "warm", "kernel_spec": self.kernel_spec}
            self.provisioner = Provisioner(**about, parent=self)
            return await super()._async_pre_start_kernel(**kw)

        async def _async_interrupt_kernel(self):
            """None: a kernel that is not quite idle yet would print that."""

    return Manager


# ---------------------------------------------------------------- one notebook
def reads(notebook: Path) -> list[Path]:
    """The files that a drawing depends on: those that its stage in dvc.yaml names."""
    of, here = notebook.parent.name, papers.found()
    names = [of] if of in here else [*here, "all"]
    gate = [GATE / f"{name}.txt" for name in names]
    return [notebook, *gate, *MADE]


def key(notebook: Path) -> str:
    """A hash of what a drawing depends on."""
    h = hashlib.sha256()
    for file in reads(notebook):
        h.update(file.read_bytes() if file.exists() else b"")
    return h.hexdigest()


def draw(notebook: Path) -> str:
    """Execute a notebook below its folder in runs/drawn -> how long it took.
    RuntimeError when a cell fails."""
    import nbformat
    import papermill

    began, to = time.perf_counter(), folder_of(notebook)
    if not notebook.is_file():
        there = hint(notebook, sorted(notebook.parent.glob("*.ipynb")))
        raise ValueError(f"no such notebook: {notebook}; {there}")
    given, now = parameters(notebook, Path("params.yaml")), key(notebook)
    shutil.rmtree(to, ignore_errors=True)
    to.mkdir(parents=True)
    part = to / f".{notebook.name}"
    environment = KERNEL_ENVIRONMENT | os.environ
    environment |= {"FEDLIB_RESULTS": str((to / "results").absolute())}
    how = {"kernel_name": "python3", "progress_bar": False, "cwd": "."}
    how["kernel_manager_class"] = manager(environment)
    try:
        papermill.execute_notebook(notebook, part, parameters=given, **how)
        part.write_text(same_bytes(nbformat.read(part, 4), Path.cwd()))
        os.replace(part, to / notebook.name)
    except Exception as error:
        kept = FAILED / notebook.parent.name / notebook.name
        kept.parent.mkdir(parents=True, exist_ok=True)
        if part.exists():
            os.replace(part, kept)
        told = re.sub(r"\x1b\[[0-9;]*m", "", f"{type(error).__name__}: {error}")
        told = f"{notebook} failed: {told}\nWhat had run by then: {kept}"
        raise RuntimeError(told) from error
    (to / "key").write_text(now)
    return f"drawn in {time.perf_counter() - began:.0f} s"


# ---------------------------------------------------------------- all of them
class Drawing:
    """Notebooks that are drawn ahead, one after another on each core; one that a stage
    asks for is begun at once."""

    def __init__(self, ahead: list[Path]):
        self.waiting, self.begun, self.lock = deque(ahead), {}, threading.Lock()
        for _ in range(CORES):
            threading.Thread(target=self.work, daemon=True).start()

    def work(self) -> None:
        """Draw what waits."""
        while self.waiting:
            with suppress(IndexError):
                self.drawn(self.waiting.popleft())

    def drawn(self, notebook: Path) -> tuple[int, str]:
        """(exit status, words) of a notebook; where it is being drawn, the answer that
        the other thread gets."""
        with self.lock:
            known = self.begun.get(notebook)
            if mine := known is None or (known.done() and not ready(notebook)):
                known = self.begun[notebook] = Future()
            with suppress(ValueError):
                self.waiting.remove(notebook)
        if mine:
            try:
                told = "drawn before" if ready(notebook) else draw(notebook)
                known.set_result((0, told))
            except (RuntimeError, ValueError) as error:
                known.set_result((1, str(error)))
            except BaseException:
                known.set_result((1, traceback.format_exc()))
        return known.result()


def current(notebook: Path) -> bool:
    """Whether it was drawn as things are now."""
    seen = folder_of(notebook) / "key"
    return seen.exists() and seen.read_text() == key(notebook)


def ready(notebook: Path) -> bool:
    """Whether it was, and nobody has taken it yet."""
    return (folder_of(notebook) / notebook.name).exists() and current(notebook)


def stale(notebook: Path) -> bool:
    """Whether what was taken last was drawn when things were otherwise."""
    taken = Path("results/notebooks", notebook.parent.name, notebook.name)
    return not (taken.exists() and current(notebook))


def answer(connection, drawing: Drawing) -> None:
    """Draw what one stage asks for."""
    with connection, suppress(EOFError, OSError):
        connection.send(drawing.drawn(Path(connection.recv())))


def wanted(words: list[str]) -> list[Path]:
    """The notebooks of a command: of `dvc repro labs@flat` one, of `dvc repro` or
    `dvc exp run -S fedga.alpha=2` all; none where it is not DVC's. The longest first:
    tables, then by the size of the source.
    """
    at = next((i for i, w in enumerate(words) if w in ("repro", "run")), len(words))
    named = [w for w in words[at + 1 :] if w[0] != "-" and "=" not in w]
    every = Path("notebooks").glob("*/*.ipynb") if at < len(words) else []
    every = sorted(every, key=lambda n: (n.stem != "tables", -n.stat().st_size, n))
    return [n for n in every if not named or f"{n.parent.name}@{n.stem}" in named]


def main(owner: int) -> None:
    """Draw until the process `owner` has ended."""
    import psutil

    home = tempfile.mkdtemp()  # nobody's start-up files, no shared history
    os.environ |= KERNEL_ENVIRONMENT | {"IPYTHONDIR": home}
    WARM.set_forkserver_preload(["repro.imported"])
    SOCKET.unlink(missing_ok=True)
    listener = Listener(str(SOCKET))
    words = psutil.Process(owner).cmdline()
    drawing = Drawing([n for n in wanted(words) if stale(n)])

    def accept():
        while True:
            one = listener.accept()
            threading.Thread(target=answer, args=(one, drawing), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    while psutil.pid_exists(owner):
        time.sleep(0.2)
    SOCKET.unlink(missing_ok=True)
    shutil.rmtree(home, ignore_errors=True)
    for child in psutil.Process().children(recursive=True):
        child.kill()
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]))
