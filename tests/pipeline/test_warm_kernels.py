"""A warm process that forks for notebooks: it is asked, answers, and leaves nothing."""

import json
import os
import signal
import socket
import threading
from contextlib import contextmanager

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
    os.close(fork.write)
