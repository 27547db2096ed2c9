"""A warm process that forks for notebooks: it is asked, answers, and leaves nothing."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest
from where import ROOT

from repro import ask, kernel, warm


@contextmanager
def answering(path, reply):
    """A process that is asked once, and answers with these bytes -> what it was asked."""
    heard = []

    def serve():
        with listener.accept()[0] as line:
            size, fds, _, _ = socket.recv_fds(line, 8, 2)
            with line.makefile("rb") as pipe:
                heard.append(json.loads(pipe.read(int.from_bytes(size, "big"))))
            heard.append([os.close(fd) for fd in fds])
            line.sendall(reply)

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        thread = threading.Thread(target=serve)
        thread.start()
        yield heard
        thread.join()


def test_who_asks_gets_the_status_or_does_it_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a socket's path must be short
    monkeypatch.delenv(ask.SOCKET, raising=False)
    assert ask.ask(["a"]) is None
    monkeypatch.setenv(ask.SOCKET, "nowhere")
    assert ask.ask(["a"]) is None
    answers = {b"": None, b"n\x00": None, ask.TAKEN + b"\x00": 0}
    answers |= {ask.TAKEN + b"\x03": 3, ask.TAKEN: 1}  # took the work, and is gone
    for i, (reply, status) in enumerate(answers.items()):
        monkeypatch.setenv(ask.SOCKET, f"s{i}")
        with answering(f"s{i}", reply) as heard:
            assert ask.ask(["a", "--set", "b=1"]) == status, reply
        asked, fds = heard
        assert asked["argv"] == ["a", "--set", "b=1"] and len(fds) == 2
        assert asked["cwd"] == str(tmp_path) and asked["package"] == ask.__file__
        assert asked["environ"][ask.SOCKET] == f"s{i}"
    before, go = warm.threads(), threading.Event()  # a fork would lose a thread
    thread = threading.Thread(target=go.wait)
    thread.start()
    assert len(warm.threads()) == len(before) + 1
    go.set()
    thread.join()


def test_a_kernel_can_be_ended():
    fork = kernel.Forked()
    assert fork.poll() is None
    fork.kill()
    assert fork.wait() == fork.poll() == -signal.SIGKILL
    fork.kill()  # and once more does no harm
    os.close(fork.write)


@pytest.mark.nightly
def test_the_same_bytes_as_alone_until_a_source_is_edited(tmp_path, monkeypatch):
    import shutil

    import nbformat
    from nbformat.v4 import new_code_cell, new_notebook

    def write(name, *cells):
        first = new_code_cell("x = 1", metadata={"tags": ["parameters"]})
        nb = new_notebook(cells=[first, *map(new_code_cell, cells)])
        nb.metadata.kernelspec = dict(name="python3", display_name="P", language="")
        nbformat.write(nb, f"{name}.ipynb")

    def call(name, more):
        words = [sys.executable, "-m", "repro.run_notebook", f"{name}.ipynb", "out"]
        got = subprocess.run(words, env=os.environ | more, capture_output=True)
        said = (got.stdout + got.stderr).partition(b": done in")[0]
        return got.returncode, said, Path(f"out/{name}.ipynb").read_bytes()

    for name in ("fedlib", "repro"):
        shutil.copytree(ROOT / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    Path("params.yaml").write_text("tier: tiny\n")
    write("good", "import os\nos.system('echo a child')\n{'b', 'a', hash('a')}")
    tells = "import sys, torch\nwarm = 'papermill' in sys.modules\n"
    write("tells", f"{tells}open('told', 'a').write(f'{{warm}} {{torch.rand(1)}}\\n')")
    read, end = os.pipe()
    with Path("log").open("w") as log, warm.server(read, log) as found:
        assert call("good", found) == call("good", {})
        assert call("tells", found)[0] == call("tells", found)[0] == 0
        with Path("fedlib/core/tree.py").open("a") as source:
            source.write("\n# an edit\n")
        assert call("tells", found)[0] == 0
        os.close(end)
    told = [line.partition(" ") for line in Path("told").read_text().splitlines()]
    assert [w for w, *_ in told] == ["True", "True", "False"]
    assert len({drawn for *_, drawn in told}) == 3 and Path("log").read_text() == ""
