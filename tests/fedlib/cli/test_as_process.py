"""The command as a process: Ctrl-C, a pipe that nobody reads, a full disk behind it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from where import ROOT

LINE = [sys.executable, "-m", "fedlib"]
ENV = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


def hear():
    """Ctrl-C as in a shell, also where the tests were started in the background."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def started(*words, **more):
    how = {"stdin": -3, "stdout": -1, "stderr": -1, "text": True, "env": ENV}
    how |= {"start_new_session": True, "preexec_fn": hear}
    return subprocess.Popen([*LINE, *words], **how | more)


def wait_for(there, child, seconds=120):
    end = time.monotonic() + seconds
    while not there():
        assert child.poll() is None and time.monotonic() < end, child.communicate()
        time.sleep(0.02)


def test_nobody_reads_what_is_printed():
    with started("methods") as child:
        child.stdout.close()
        err = child.stderr.read()
    assert (child.wait(), err) == (1, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux only")
def test_a_full_disk_takes_nothing():
    with open("/dev/full", "w") as full, started("methods", stdout=full) as child:
        err = child.stderr.read()
    assert child.wait() == 1
    assert err == "python -m fedlib: No space left on device\n"


def test_a_warning_of_data_is_a_line_of_the_program(tmp_path):
    rows = [f"{c},{i},{i % 2}" for c in "abc" for i in range(20)]
    Path(tmp_path, "small.csv").write_text("\n".join(["ward,age,ill", *rows]))
    line = "compare FedAvg --data small.csv --client ward --label ill --rounds 0"
    with started(*line.split(), cwd=tmp_path) as child:
        _, err = child.communicate()
    warned, refused = err.splitlines()
    assert warned.startswith("python -m fedlib: warning: fewer than 10 test rows at 3")
    assert child.returncode == 2 and refused.startswith("python -m fedlib: ")


def test_a_terminal_without_the_letters(tmp_path):
    plain = ENV | {"PYTHONIOENCODING": "ascii"}
    with started("table", "fedga", "Table 5", env=plain) as child:
        out, err = child.communicate()
    assert (child.returncode, err) == (0, "") and "\\xb1" in out


def imported(pid):
    """Whether a process has torch, and again the handler of Ctrl-C that it lays aside
    meanwhile.
    """
    at = Path(f"/proc/{pid}")
    caught = int((at / "status").read_text().split("SigCgt:")[1].split()[0], 16)
    return "libtorch_cpu" in (at / "maps").read_text() and caught >> 1 & 1


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="Linux only")
@pytest.mark.parametrize("where", ["--folder", None])
def test_ctrl_c_says_how_to_go_on(tmp_path, where):
    """A run that nobody keeps is stopped at once, one that is kept after its round."""
    more = ["--folder", str(tmp_path / "run")] if where else []
    words = ["digits:clients=2,hidden=4", "--rounds", "1000000", *more]
    mark = tmp_path / "run" / "checkpoint"
    with started("run", "FedAvg", *words) as child:
        if where:
            wait_for(mark.exists, child)
        else:
            wait_for(lambda: imported(child.pid), child)
        os.killpg(child.pid, signal.SIGINT)
        out, err = child.communicate(timeout=120)
    assert child.returncode == 130 and "Traceback" not in err
    if where:
        assert "rounds are kept in" in err and "continues from there" in err
    else:
        assert "stopped" in err and err.count("\n") == 1


WORKERS = """
import sys, time
from pathlib import Path
from fedlib.core import ends
from fedlib.study import executor

def main(words):
    with executor.opened(workers=3) as submit:
        submit(time.sleep, 1000)
        submit(Path(words[0]).touch).result()
        submit(time.sleep, 1000).result()

if __name__ == "__main__":
    ends.program("p", main)
"""


def test_ctrl_c_of_workers_is_one_line(tmp_path):
    """Two workers are at it and one waits: none of them shows a traceback."""
    script = tmp_path / "script.py"
    script.write_text(WORKERS)
    line = [sys.executable, script, tmp_path / "begun"]
    how = {"stderr": -1, "text": True, "env": ENV, "start_new_session": True}
    with subprocess.Popen(line, preexec_fn=hear, **how) as child:
        wait_for((tmp_path / "begun").exists, child)
        os.killpg(child.pid, signal.SIGINT)
        err = child.communicate(timeout=120)[1]
    assert (child.returncode, err) == (130, "p: stopped\n")
