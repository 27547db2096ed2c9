"""The benchmark of messages: its parts that need no other process; and what the chapter
on devices says of files.
"""

import re
import socket
import threading

import numpy as np
import pytest
import torch
from where import ROOT

from benchmarks import deploy
from fedlib.deploy.federation import Federation


def test_in_process_the_numbers_are_those_of_the_simulation(tmp_path):
    (one, a), (two, b) = (
        f(tmp_path, 2) for f in (deploy.simulation, deploy.in_process)
    )
    for split in ("test", "val"):
        assert np.array_equal(
            a["pre", "global", split], b["pre", "global", split], equal_nan=True
        )
    assert (
        two["messages"] == 2
        and two["bytes down"] > 9640
        and two["bytes up"] > 9648
        and one["ms per round"] > 0
    )


def test_the_relay_counts_both_directions():
    def echo(server):
        with server.accept()[0] as s:
            while some := s.recv(100):
                s.sendall(3 * some)

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=echo, args=(server,), daemon=True).start()
        with (
            deploy.relay(server.getsockname()[1]) as count,
            socket.create_connection(("127.0.0.1", count.port), 10) as s,
        ):
            s.settimeout(10)
            s.sendall(b"x" * 7)
            got = b""
            while len(got) < 21:
                got += s.recv(100)
    assert count.bytes == [7, 21]


def test_a_transcript_is_short():
    some = [(0, str(k)) for k in range(40)]
    party = type("P", (), {"args": ["/any/python", "-m", "fedlib"]})
    text = deploy.transcript([party, party], [some, [(0, "a"), (0, "")]])
    assert (
        text.startswith("$ python -m fedlib\n0\n")
        and "\n6\n...\n33\n" in text
        and text.endswith("$ python -m fedlib\na\n")
    )


@pytest.mark.parametrize(
    "value, text", [(1234.5, "1,234"), (12.34, "12.3"), (0.0123, "0.012")]
)
def test_numbers_are_readable(value, text):
    assert deploy.shown(value) == text


def test_the_file_of_the_chapter(tmp_path):
    """The yaml of the page is a federation, the one of the benchmark."""
    page = (ROOT / "book/operate.md").read_text()
    (text,) = re.findall(r"```yaml\n(.*?)```", page, re.S)
    (tmp_path / "federation.yaml").write_text(text)
    fed = Federation.load(tmp_path / "federation.yaml")
    assert (
        fed.C == 3
        and sum(v.numel() for v in fed.server_task().init(0).values()) == 2410
        and "2,410 weights" in (ROOT / "book/deploy.md").read_text()
    )
    assert Federation(**deploy.federation(20)).network == fed.network


def test_a_row_can_be_read_off_an_update():
    """The chapter's example by hand, and its exercise with two rows."""

    def step(x, y):
        W, b = torch.zeros(2, 2, requires_grad=True), torch.zeros(2, requires_grad=True)
        return torch.autograd.grad(
            torch.nn.functional.cross_entropy(x @ W.T + b, y, reduction="sum"), (W, b)
        )

    dW, db = step(torch.tensor([[2.0, 1.0]]), torch.tensor([1]))
    assert dW.tolist() == [[1, 0.5], [-1, -0.5]] and (dW / db[:, None]).tolist() == [
        [2, 1],
        [2, 1],
    ]
    dW, db = step(torch.tensor([[2.0, 1.0], [0.0, 1.0]]), torch.tensor([1, 0]))
    assert dW.tolist() == [[1, 0], [-1, 0]] and db.tolist() == [0, 0]
