"""A notebook that a warm process forks for is the same, byte for byte,
as one in a process of its own.
"""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import nbformat
import pytest
from jupyter_client.kernelspec import KernelSpec
from where import ROOT

from repro import warm
from repro.kernel import Provisioner

NOTEBOOKS = {
    "good": [
        """
import os, sys, warnings
import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
print(sorted({*os.environ} - {'FEDLIB_WARM'}), sys.path, sys.argv[0], __name__, os.getcwd())
print(matplotlib.get_backend(), dict(plt.rcParams), pd.get_option("display.max_columns"), torch.get_num_threads())
print("to stderr", file=sys.stderr)
warnings.warn("mind the gap")
{"b", "a", "c", hash("a")}""",
        """
from fedlib import plots
fig, ax = plt.subplots()
ax.plot([1, 2, 3])
ax.set_title("a line")
pd.DataFrame(np.arange(60.).reshape(2, 30)).describe()""",
        """
os.system("echo a child")
pd.DataFrame({"a": [1.5]}).style.highlight_max()""",
    ],
    "fails": ["print('so far')", "raise OSError('no such river')"],
    "dies": [
        "print('so far', flush=True)",
        "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)",
    ],
    "tells": [
        (
            "import sys\nopen('told', 'w').write('warm' if 'papermill' in sys.modules "
            "else 'cold')"
        ),
        (
            "import numpy as np\nimport torch\nopen('drawn', "
            "'a').write(f'{np.random.rand()}\\n{torch.rand(1)}\\n')"
        ),
    ],
    "sleeps": [
        "import os, time\nopen('pid', 'w').write(f'{os.getpid()}')\ntime.sleep(1000)"
    ],
}


@pytest.fixture(scope="module")
def repo(tmp_path_factory):
    """A folder with the notebooks, and a copy of the package that can be edited."""
    root = tmp_path_factory.mktemp("warm")
    for name in ("fedlib", "repro"):
        shutil.copytree(
            ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__")
        )
    (root / "params.yaml").write_text("tier: tiny\n")
    (root / "notebooks/toy").mkdir(parents=True)
    for name, cells in NOTEBOOKS.items():
        first = nbformat.v4.new_code_cell("x = 1", metadata={"tags": ["parameters"]})
        nb = nbformat.v4.new_notebook(
            cells=[first, *(nbformat.v4.new_code_cell(cell.strip()) for cell in cells)]
        )
        nb.metadata.kernelspec = {
            "name": "python3",
            "display_name": "Python 3",
            "language": "python",
        }
        nbformat.write(nb, root / f"notebooks/toy/{name}.ipynb")
    return root


@contextmanager
def served(root, monkeypatch):
    """Within it a warm process serves the package of `root`; the variables that say so,
    and the end to close.
    """
    monkeypatch.chdir(root)
    monkeypatch.setenv("PYTHONPATH", str(root))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    read, write = os.pipe()
    with (
        (root / "warm.log").open("w") as log,
        open(write, "wb", buffering=0) as end,
        warm.server(read, log) as found,
    ):
        os.close(read)
        yield found, end


def begin(name, found):
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "repro.run_notebook",
            f"notebooks/toy/{name}.ipynb",
            "out",
        ],
        text=True,
        env=os.environ | found,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def call(name, found):
    """(exit status, what it printed, the executed notebook's bytes) of one notebook."""
    Path("out").mkdir(exist_ok=True)
    for old in ("out", "runs/failed/toy"):
        Path(old, f"{name}.ipynb").unlink(missing_ok=True)
    process = begin(name, found)
    said = "".join(process.communicate(timeout=120))
    bytes_ = [
        path.read_bytes()
        for old in ("out", "runs/failed/toy")
        if (path := Path(old, f"{name}.ipynb")).exists()
    ]
    return process.returncode, said.split(": done in")[0], bytes_


def gone(pid):
    """Whether the process ends within ten seconds."""
    for _ in range(100):
        try:
            if (
                Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
                == "Z"
            ):
                return True
            os.kill(pid, 0)
        except OSError:
            return True
        time.sleep(0.1)
    return False


def wait_for(path):
    deadline = time.time() + 60
    while not (path.exists() and path.read_text()):
        assert time.time() < deadline, f"{path} does not come"
        time.sleep(0.05)
    return path.read_text()


@pytest.mark.full
def test_the_same_bytes_and_the_same_errors_as_in_a_process_of_its_own(
    repo, monkeypatch
):
    with served(repo, monkeypatch) as (found, _):
        assert (
            call("good", found)
            == call("good", {})
            == (0, "a child\nout/good.ipynb", [Path("out/good.ipynb").read_bytes()])
        )
        for name, cause in (
            ("fails", "OSError: no such river"),
            ("dies", "DeadKernelError"),
        ):
            status, said, (half,) = call(name, found)
            assert (
                (status, said) == call(name, {})[:2]
                and status == 1
                and cause in said
                and b"so far" in half
            ), name
    good = nbformat.read("out/good.ipynb", 4)
    assert (
        "image/png" in str(good)
        and "mind the gap" in str(good)
        and "a child" in str(good)
    )


@pytest.mark.full
def test_it_serves_until_the_sources_are_edited_and_survives_a_kernel_that_dies(
    repo, monkeypatch
):
    with served(repo, monkeypatch) as (found, _):
        assert call("dies", found)[0] == 1
        for _ in range(2):
            assert call("tells", found)[0] == 0 and Path("told").read_text() == "warm"
        # each as if it were the first
        assert len(set(Path("drawn").read_text().splitlines())) == 4
        assert call("tells", {})[0] == 0 and Path("told").read_text() == "cold"
        source = repo / "fedlib/core/tree.py"
        source.write_text(source.read_text() + "\n# an edit\n")
        assert call("tells", found)[0] == 0 and Path("told").read_text() == "cold"
    assert (repo / "warm.log").read_text() == ""


@pytest.mark.full
def test_nothing_outlives_nbrun_or_the_process_that_started_it(repo, monkeypatch):
    pid = repo / "pid"
    with served(repo, monkeypatch) as (found, end):
        for way in ("nbrun is killed", "its starter is gone"):
            pid.unlink(missing_ok=True)
            process = begin("sleeps", found)
            kernel = int(wait_for(pid))
            runner = int(
                Path(f"/proc/{kernel}/stat").read_text().rpartition(")")[2].split()[1]
            )
            process.kill() if way == "nbrun is killed" else end.close()
            assert gone(kernel) and gone(runner), way
            assert (
                process.wait(10) != 0
                and not list(repo.glob("out/.*"))
                and not list(repo.glob("out/sleeps*"))
            )
        # nobody serves any more
        assert call("tells", found)[0] == 0 and Path("told").read_text() == "cold"


def test_a_kernel_can_be_ended_but_is_not_interrupted_before():
    provisioner = Provisioner(kernel_id="one", kernel_spec=KernelSpec())
    provisioner.process = subprocess.Popen(["sleep", "100"], start_new_session=True)
    asyncio.run(provisioner.send_signal(signal.SIGINT))
    with pytest.raises(subprocess.TimeoutExpired):
        provisioner.process.wait(0.3)
    asyncio.run(provisioner.send_signal(signal.SIGTERM))
    assert provisioner.process.wait(10) == -signal.SIGTERM
