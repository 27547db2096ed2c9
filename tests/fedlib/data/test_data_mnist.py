"""MNIST from fabricated idx files; torchvision reads the same files."""

import gzip

import numpy as np
import pytest
import torch

from fedlib.data.mnist import FILES, mnist

N = {"train": 30, "test": 11}


def idx(array):
    """An array of bytes in the idx format."""
    return (
        bytes((0, 0, 8, array.ndim))
        + b"".join(n.to_bytes(4, "big") for n in array.shape)
        + array.tobytes()
    )


@pytest.fixture(params=["", ".gz"], ids=["plain", "packed"])
def made(tmp_path, request):
    """Data folder with the four files, and {part: (images, labels)}."""
    rng, truth = np.random.default_rng(0), {}
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for part, n in N.items():
        truth[part] = (
            rng.integers(0, 256, (n, 28, 28), np.uint8),
            np.arange(n, dtype=np.uint8) % 10,
        )
        for name, array in zip(("images-idx3", "labels-idx1"), truth[part]):
            content = idx(array)
            (raw / f"{FILES[part]}-{name}-ubyte{request.param}").write_bytes(
                gzip.compress(content) if request.param else content
            )
    return tmp_path, truth


def test_values_and_splits(made, monkeypatch):
    root, truth = made
    train, test, both, all_ = (mnist(root, s) for s in ("train", "test", "both", "all"))
    for pool, part in ((train, "train"), (test, "test")):
        assert (
            pool.x.shape == (N[part], 1, 28, 28)
            and pool.x.dtype == torch.float32
            and pool.test is None
            and pool.K == 10
        )
        assert torch.equal(
            (pool.x[:, 0] * 255).round().byte(), torch.from_numpy(truth[part][0])
        )
        assert (
            pool.y.tolist() == truth[part][1].tolist()
            and pool.y.dtype == torch.int64
            and pool.kind == "real"
        )
    assert (
        0 <= both.x.min()
        and both.x.max() == 1
        and both.test.tolist() == list(range(30, 41))
        and all_.test is None
    )
    assert (
        torch.equal(both.x, torch.cat([train.x, test.x]))
        and torch.equal(all_.x, both.x)
        and torch.equal(all_.y, both.y)
    )
    monkeypatch.setenv("FEDLIB_DATA", str(root))
    assert torch.equal(mnist(split="test").x, test.x)


@pytest.mark.parametrize("made", [""], indirect=True, ids=["plain"])
def test_torchvision_reads_the_same(made):
    from fedlib.nets.vision import ensure_torchvision

    ensure_torchvision()
    from torchvision.datasets import MNIST

    for part in N:
        pool, theirs = mnist(made[0], part), MNIST(made[0], train=part == "train")
        assert torch.equal(pool.x[:, 0], theirs.data / 255) and torch.equal(
            pool.y, theirs.targets
        )


@pytest.mark.parametrize("made", [""], indirect=True, ids=["plain"])
@pytest.mark.parametrize(
    "name, change, says",
    [
        (
            "t10k-labels-idx1-ubyte",
            lambda b: None,
            "neither .*t10k-labels-idx1-ubyte nor .*gz beside it exists.*download=True",
        ),
        (
            "t10k-images-idx3-ubyte",
            lambda b: b[:-1],
            "damaged or cut short: 8,639 bytes for an array",
        ),
        ("t10k-images-idx3-ubyte", lambda b: b + b"0", "damaged or cut short"),
        ("t10k-images-idx3-ubyte", lambda b: b[:9], "damaged or cut short"),
        ("t10k-images-idx3-ubyte", lambda b: b[:4], "damaged or cut short"),
        ("t10k-images-idx3-ubyte", lambda b: b"", "starts with nothing"),
        (
            "t10k-images-idx3-ubyte",
            lambda b: b"\0\0\x0d" + b[3:],
            "starts with 00 00 0d 03",
        ),
        (
            "t10k-labels-idx1-ubyte",
            lambda b: idx(np.zeros(12, np.uint8)),
            r"images \[11, 28, 28\] and 12 labels",
        ),
        (
            "t10k-labels-idx1-ubyte",
            lambda b: idx(np.full(11, 10, np.uint8)),
            "labels up to 10",
        ),
        (
            "t10k-images-idx3-ubyte",
            lambda b: idx(np.zeros((11, 20, 28), np.uint8)),
            r"images \[11, 20, 28\]",
        ),
    ],
)
def test_damaged_files(made, name, change, says):
    file = made[0] / "MNIST" / "raw" / name
    content = change(file.read_bytes())
    file.unlink() if content is None else file.write_bytes(content)
    with pytest.raises(ValueError, match=says):
        mnist(made[0])
    assert len(mnist(made[0], "train").y) == 30


@pytest.mark.parametrize("made", [".gz"], indirect=True, ids=["packed"])
def test_a_packed_file_cut_short(made):
    file = made[0] / "MNIST" / "raw" / "t10k-images-idx3-ubyte.gz"
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(ValueError, match="gz is damaged or cut short"):
        mnist(made[0])


def test_unknown_split(tmp_path):
    with pytest.raises(ValueError, match="split = 'valid'"):
        mnist(tmp_path, "valid")
