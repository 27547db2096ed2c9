"""The loader of CIFAR-10 (and what it shares with CIFAR-100) on fabricated files in the
official layout.
"""

import io
import pickle
import re
import struct
import tarfile

import numpy as np
import pytest
import torch

from fedlib.data import archive, cifar10
from fedlib.data.archive import DataError, checksum
from fedlib.data.cifar10 import CIFAR10
from fedlib.data.cifar100 import CIFAR100, cifar100

ROWS = 4  # per file; the official files have 10,000


def python2_pickle(data, labels):
    """A batch as Python 2 and an old numpy wrote it: byte strings, protocol 2, module
    numpy.core.multiarray.
    """

    def string(s):
        return b"T" + struct.pack("<i", len(s)) + s

    def number(n):
        return b"J" + struct.pack("<i", n)

    array = (
        b"cnumpy.core.multiarray\n_reconstruct\n"
        b"cnumpy\nndarray\n" + number(0) + b"\x85" + string(b"b") + b"\x87R"
        b"(" + number(1) + number(data.shape[0]) + number(data.shape[1]) + b"\x86"
        b"cnumpy\ndtype\n" + string(b"u1") + number(0) + number(1) + b"\x87R"
        b"("
        + number(3)
        + string(b"|")
        + b"NNN"
        + number(-1)
        + number(-1)
        + number(0)
        + b"tb"
        b"\x89" + string(data.tobytes()) + b"tb"
    )
    listed = b"](" + b"".join(map(number, labels)) + b"e"
    label = string(b"batch_label") + string(b"made up")
    return (
        b"\x80\x02}("
        + label
        + string(b"labels")
        + listed
        + string(b"data")
        + array
        + b"u."
    )


@pytest.fixture
def made(tmp_path, monkeypatch):
    """A data folder with all six files, and their checksums in place of the official
    ones.
    """
    folder = tmp_path / CIFAR10.folder
    folder.mkdir()
    rng, truth = np.random.default_rng(0), {}
    for split, names in CIFAR10.files.items():
        sums = {}
        for name in names:
            data, labels = (
                rng.integers(0, 256, (ROWS, 3072), dtype=np.uint8),
                rng.integers(0, 10, ROWS).tolist(),
            )
            (folder / name).write_bytes(python2_pickle(data, labels))
            truth[name], sums[name] = (data, labels), checksum(folder / name)
        monkeypatch.setitem(CIFAR10.files, split, sums)
    return tmp_path, truth


def test_reads_the_official_layout(made):
    root, truth = made
    for split, files in CIFAR10.files.items():
        pool = cifar10.cifar10(root, split, normalise=False)
        data = np.concatenate([truth[n][0] for n in files])
        assert (
            pool.x.shape == (ROWS * len(files), 3, 32, 32)
            and pool.x.dtype == torch.float32
        )
        # red, green, blue; row by row
        assert torch.equal(
            (pool.x * 255).round().flatten(1).byte(), torch.from_numpy(data)
        )
        assert (
            pool.y.tolist() == [k for n in files for k in truth[n][1]]
            and pool.y.dtype == torch.int64
        )
        assert (pool.K, pool.kind, pool.owner) == (10, "real", None)


def test_normalises_each_channel(made):
    raw, x = (cifar10.cifar10(made[0], normalise=n).x for n in (False, True))
    for c, (mean, std) in enumerate(zip(CIFAR10.mean, CIFAR10.std)):
        assert torch.allclose(x[:, c] * std + mean, raw[:, c], atol=1e-6)
    half = cifar10.cifar10(made[0], normalise="half").x
    assert (
        torch.allclose(half, 2 * raw - 1, atol=1e-6)
        and half.min() < -0.9
        and half.max() > 0.9
    )


def test_all_is_train_then_test(made):
    train, test, both = (
        cifar10.cifar10(made[0], split, normalise="half")
        for split in ("train", "test", "all")
    )
    assert torch.equal(both.x, torch.cat([train.x, test.x])) and torch.equal(
        both.y, torch.cat([train.y, test.y])
    )
    assert both.test is None and len(both.y) == 6 * ROWS


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_both_lists_the_official_test_rows(made, tmp_path, monkeypatch, name):
    load, data, root = cifar10.cifar10, CIFAR10, made[0]
    if name == "cifar100":
        load, data, root, rng = cifar100, CIFAR100, tmp_path, np.random.default_rng(3)
        (root / data.folder).mkdir()
        for split, n in (("train", 7), ("test", 3)):
            entries = {
                b"fine_labels": rng.integers(0, 100, n).tolist(),
                b"data": rng.integers(0, 256, (n, 3072), dtype=np.uint8),
            }
            (root / data.folder / split).write_bytes(pickle.dumps(entries, protocol=2))
            monkeypatch.setitem(
                data.files, split, {split: checksum(root / data.folder / split)}
            )
    train, test, every, both = (
        load(root, split) for split in ("train", "test", "all", "both")
    )
    assert (
        torch.equal(both.x, every.x)
        and torch.equal(both.y, every.y)
        and train.test is test.test is every.test is None
    )
    assert (
        both.test.tolist() == list(range(len(train.y), len(every.y)))
        and both.test.dtype == torch.int64
    )
    assert torch.equal(both.x[both.test], test.x) and torch.equal(
        both.y[both.test], test.y
    )


def test_root_from_the_environment(made, monkeypatch):
    monkeypatch.setenv("FEDLIB_DATA", str(made[0]))
    assert len(cifar10.cifar10(split="test").y) == ROWS


def test_files_cut_short_changed_or_missing(made):
    file = made[0] / CIFAR10.folder / "data_batch_3"
    whole = file.read_bytes()
    for content in (whole[:500], whole[:-1] + b"!"):
        file.write_bytes(content)
        with pytest.raises(
            DataError,
            match=f"data_batch_3 is damaged or cut short: {len(content):,} bytes",
        ):
            cifar10.cifar10(made[0])
    file.unlink()
    with pytest.raises(DataError, match="data_batch_3 does not exist"):
        cifar10.cifar10(made[0])


@pytest.mark.parametrize(
    "content, says",
    [
        (
            python2_pickle(np.zeros((3, 3072), np.uint8), [0, 1]),
            "is not a CIFAR-10 batch",
        ),
        (
            python2_pickle(np.zeros((2, 3000), np.uint8), [0, 1]),
            "is not a CIFAR-10 batch",
        ),
        (python2_pickle(np.zeros((2, 3072), np.uint8), [0, 10]), "labels from 0 to 10"),
        (b"\x80\x02}.", "is not a CIFAR-10 batch"),
        (b"\x80\x02]" + b".", "is not a CIFAR-10 batch"),
        (b"cos\nsystem\n(S'true'\ntR.", "asks for os.system"),
    ],
)
def test_files_with_the_right_checksum_and_wrong_content(
    made, monkeypatch, content, says
):
    file = made[0] / CIFAR10.folder / "test_batch"
    file.write_bytes(content)
    monkeypatch.setitem(CIFAR10.files, "test", {"test_batch": checksum(file)})
    with pytest.raises(DataError, match=says):
        cifar10.cifar10(made[0], "test")


def test_without_the_files_says_what_to_get_and_where(tmp_path):
    with pytest.raises(
        DataError,
        match=(
            f"download {re.escape(CIFAR10.url)} and put it.* into "
            f"{tmp_path}.*download=True"
        ),
    ):
        cifar10.cifar10(tmp_path)
    with pytest.raises(
        ValueError, match='split = \'val\': use "train", "test" or "all", or "both"'
    ):
        cifar10.cifar10(tmp_path, "val")
    with pytest.raises(ValueError, match="normalise = 'z': use True, False"):
        cifar10.cifar10(tmp_path, normalise="z")


def packed(root):
    """The folder of `made` as the official archive, elsewhere."""
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w:gz") as tar:
        tar.add(root / CIFAR10.folder, CIFAR10.folder)
    return held.getvalue()


def test_unpacks_or_downloads_the_archive(made, tmp_path_factory, monkeypatch):
    content, fresh, other = (
        packed(made[0]),
        tmp_path_factory.mktemp("a"),
        tmp_path_factory.mktemp("b"),
    )
    (fresh / CIFAR10.archive).write_bytes(content)
    # not the official archive
    with pytest.raises(DataError, match="damaged or cut short"):
        cifar10.cifar10(fresh, "test")
    monkeypatch.setattr(
        cifar10, "CIFAR10", CIFAR10._replace(md5=checksum(fresh / CIFAR10.archive))
    )
    truth = cifar10.cifar10(made[0], "test").x
    assert torch.equal(cifar10.cifar10(fresh, "test").x, truth)
    monkeypatch.setattr(
        archive,
        "_open",
        lambda url, timeout: io.BytesIO(content if url == CIFAR10.url else b""),
    )
    assert torch.equal(cifar10.cifar10(other, "test", download=True).x, truth)


def test_checksums_are_those_of_torchvision():
    from fedlib.nets.vision import ensure_torchvision

    ensure_torchvision()
    from torchvision import datasets

    for ours, theirs in ((CIFAR10, datasets.CIFAR10), (CIFAR100, datasets.CIFAR100)):
        assert (theirs.url, theirs.filename, theirs.tgz_md5) == (
            ours.url,
            ours.archive,
            ours.md5,
        )
        assert theirs.base_folder == ours.folder
        assert (
            dict(theirs.train_list) == ours.files["train"]
            and dict(theirs.test_list) == ours.files["test"]
        )
