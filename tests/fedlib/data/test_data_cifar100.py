"""The CIFAR-100 loader on fabricated files in the official layout; what it shares with
CIFAR-10 is tested there.
"""

import pickle

import numpy as np
import pytest
import torch

from fedlib.data.archive import DataError, checksum
from fedlib.data.cifar100 import CIFAR100, cifar100

ROWS = {"train": 7, "test": 3}  # the official files have 50,000 and 10,000


def write(root, monkeypatch, split, entries):
    """One file with these entries, and its checksum in place of the official one."""
    file = root / CIFAR100.folder / split
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(pickle.dumps(entries, protocol=2))
    monkeypatch.setitem(CIFAR100.files, split, {split: checksum(file)})


@pytest.fixture
def made(tmp_path, monkeypatch):
    """A data folder with both files: {split: entries}."""
    rng, truth = np.random.default_rng(0), {}
    for split, n in ROWS.items():
        fine = rng.integers(0, 100, n)
        fine[:2] = 0, 99
        truth[split] = {
            b"filenames": [b"made_up.png"] * n,
            b"batch_label": b"made up",
            b"fine_labels": fine.tolist(),
            b"coarse_labels": (fine // 5).tolist(),
            b"data": rng.integers(0, 256, (n, 3072), dtype=np.uint8),
        }
        write(tmp_path, monkeypatch, split, truth[split])
    return tmp_path, truth


@pytest.mark.parametrize("split", ["train", "test"])
def test_reads_the_official_layout(made, split):
    root, truth = made
    pool = cifar100(root, split, normalise=False)
    assert pool.x.shape == (ROWS[split], 3, 32, 32) and pool.x.dtype == torch.float32
    assert torch.equal(
        (pool.x * 255).round().flatten(1).byte(),
        torch.from_numpy(truth[split][b"data"]),
    )
    assert (
        pool.y.tolist() == truth[split][b"fine_labels"] and pool.y.dtype == torch.int64
    )
    assert (pool.name, pool.K, pool.kind, pool.owner) == (
        "CIFAR-100",
        100,
        "real",
        None,
    )


def test_normalises_by_its_own_statistics(made):
    raw, x, half = (cifar100(made[0], normalise=n).x for n in (False, True, "half"))
    for c, (mean, std) in enumerate(zip(CIFAR100.mean, CIFAR100.std)):
        assert torch.allclose(x[:, c] * std + mean, raw[:, c], atol=1e-6)
    assert torch.allclose(half, 2 * raw - 1, atol=1e-6)


def test_all_is_train_then_test(made):
    train, test, both = (cifar100(made[0], split) for split in ("train", "test", "all"))
    assert torch.equal(both.x, torch.cat([train.x, test.x])) and torch.equal(
        both.y, torch.cat([train.y, test.y])
    )
    assert len(both.y) == sum(ROWS.values()) and both.test is None


@pytest.mark.parametrize(
    "change, says",
    [
        (
            {b"fine_labels": [100, 0, 1]},
            (
                "test is not a CIFAR-100 batch: labels from 0 to 100; .*fine_labels "
                ".* 0 to 99"
            ),
        ),
        ({b"fine_labels": [0, 1]}, "is not a CIFAR-100 batch"),
        ({b"data": np.zeros((3, 3072))}, "is not a CIFAR-100 batch: data float64"),
        ({b"fine_labels": None}, "is not a CIFAR-100 batch"),
    ],
)
def test_wrong_content(made, monkeypatch, change, says):
    root, truth = made
    write(root, monkeypatch, "test", truth["test"] | change)
    with pytest.raises(DataError, match=says):
        cifar100(root, "all")


def test_files_missing_or_damaged(made, tmp_path_factory):
    empty = tmp_path_factory.mktemp("empty")
    with pytest.raises(
        DataError,
        match=(
            f"CIFAR-100 is not in {empty}: download .*cifar-100-python.tar.gz "
            ".*cifar-100-python"
        ),
    ):
        cifar100(empty)
    file = made[0] / CIFAR100.folder / "train"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(DataError, match="train is damaged or cut short"):
        cifar100(made[0])
    file.unlink()
    with pytest.raises(DataError, match="train does not exist"):
        cifar100(made[0])
    with pytest.raises(
        ValueError, match='split = \'val\': use "train", "test" or "all"'
    ):
        cifar100(made[0], "val")
