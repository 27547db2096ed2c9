"""The CIFAR-10 loader on fabricated files in the official layout."""
import io
import re
import struct
import tarfile

import numpy as np
import pytest
import torch

from fedlib.data import archive, cifar10
from fedlib.data.archive import DataError, checksum

ROWS = 4                                                                          # per file; the official files have 10,000


def python2_pickle(data, labels):
    """A batch as Python 2 and an old numpy wrote it: byte strings, protocol 2, module numpy.core.multiarray."""
    def string(s):
        return b"T" + struct.pack("<i", len(s)) + s

    def number(n):
        return b"J" + struct.pack("<i", n)
    array = (b"cnumpy.core.multiarray\n_reconstruct\n" b"cnumpy\nndarray\n" + number(0) + b"\x85" + string(b"b") + b"\x87R"
             b"(" + number(1) + number(data.shape[0]) + number(data.shape[1]) + b"\x86"
             b"cnumpy\ndtype\n" + string(b"u1") + number(0) + number(1) + b"\x87R"
             b"(" + number(3) + string(b"|") + b"NNN" + number(-1) + number(-1) + number(0) + b"tb"
             b"\x89" + string(data.tobytes()) + b"tb")
    listed = b"](" + b"".join(map(number, labels)) + b"e"
    label = string(b"batch_label") + string(b"made up")
    return b"\x80\x02}(" + label + string(b"labels") + listed + string(b"data") + array + b"u."


@pytest.fixture
def made(tmp_path, monkeypatch):
    """A data folder with all six files, and their checksums in place of the official ones."""
    folder = tmp_path / cifar10.FOLDER
    folder.mkdir()
    rng, truth = np.random.default_rng(0), {}
    for split, names in cifar10.FILES.items():
        sums = {}
        for name in names:
            data, labels = rng.integers(0, 256, (ROWS, 3072), dtype=np.uint8), rng.integers(0, 10, ROWS).tolist()
            (folder / name).write_bytes(python2_pickle(data, labels))
            truth[name], sums[name] = (data, labels), checksum(folder / name)
        monkeypatch.setitem(cifar10.FILES, split, sums)
    return tmp_path, truth


def test_reads_the_official_layout(made):
    root, truth = made
    for split, files in cifar10.FILES.items():
        pool = cifar10.cifar10(root, split, normalise=False)
        data = np.concatenate([truth[n][0] for n in files])
        assert pool.x.shape == (ROWS * len(files), 3, 32, 32) and pool.x.dtype == torch.float32
        assert torch.equal((pool.x * 255).round().flatten(1).byte(), torch.from_numpy(data))     # red, green, blue; row by row
        assert pool.y.tolist() == [k for n in files for k in truth[n][1]] and pool.y.dtype == torch.int64
        assert (pool.K, pool.kind, pool.owner) == (10, "real", None)


def test_normalises_each_channel(made):
    raw, x = (cifar10.cifar10(made[0], normalise=n).x for n in (False, True))
    for c, (mean, std) in enumerate(zip(cifar10.MEAN, cifar10.STD)):
        assert torch.allclose(x[:, c] * std + mean, raw[:, c], atol=1e-6)


def test_root_from_the_environment(made, monkeypatch):
    monkeypatch.setenv("FEDLIB_DATA", str(made[0]))
    assert len(cifar10.cifar10(split="test").y) == ROWS


def test_files_cut_short_changed_or_missing(made):
    file = made[0] / cifar10.FOLDER / "data_batch_3"
    whole = file.read_bytes()
    for content in (whole[:500], whole[:-1] + b"!"):
        file.write_bytes(content)
        with pytest.raises(DataError, match=f"data_batch_3 is damaged or cut short: {len(content):,} bytes"):
            cifar10.cifar10(made[0])
    file.unlink()
    with pytest.raises(DataError, match="data_batch_3 does not exist"):
        cifar10.cifar10(made[0])


@pytest.mark.parametrize("content, says", [
    (python2_pickle(np.zeros((3, 3072), np.uint8), [0, 1]), "is not a CIFAR-10 batch"),
    (python2_pickle(np.zeros((2, 3000), np.uint8), [0, 1]), "is not a CIFAR-10 batch"),
    (python2_pickle(np.zeros((2, 3072), np.uint8), [0, 10]), "labels from 0 to 10"),
    (b"\x80\x02}.", "is not a CIFAR-10 batch"),
    (b"\x80\x02]" + b".", "is not a CIFAR-10 batch"),
    (b"cos\nsystem\n(S'true'\ntR.", "asks for os.system"),
])
def test_files_with_the_right_checksum_and_wrong_content(made, monkeypatch, content, says):
    file = made[0] / cifar10.FOLDER / "test_batch"
    file.write_bytes(content)
    monkeypatch.setitem(cifar10.FILES, "test", {"test_batch": checksum(file)})
    with pytest.raises(DataError, match=says):
        cifar10.cifar10(made[0], "test")


def test_without_the_files_says_what_to_get_and_where(tmp_path):
    with pytest.raises(DataError, match=f"download {re.escape(cifar10.URL)} and put it.* into {tmp_path}.*download=True"):
        cifar10.cifar10(tmp_path)
    with pytest.raises(ValueError, match='use "train" or "test"'):
        cifar10.cifar10(tmp_path, "val")


def packed(root):
    """The folder of `made` as the official archive, elsewhere."""
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w:gz") as tar:
        tar.add(root / cifar10.FOLDER, cifar10.FOLDER)
    return held.getvalue()


def test_unpacks_or_downloads_the_archive(made, tmp_path_factory, monkeypatch):
    content, fresh, other = packed(made[0]), tmp_path_factory.mktemp("a"), tmp_path_factory.mktemp("b")
    (fresh / cifar10.ARCHIVE).write_bytes(content)
    with pytest.raises(DataError, match="damaged or cut short"):                  # not the official archive
        cifar10.cifar10(fresh, "test")
    monkeypatch.setattr(cifar10, "ARCHIVE_MD5", checksum(fresh / cifar10.ARCHIVE))
    truth = cifar10.cifar10(made[0], "test").x
    assert torch.equal(cifar10.cifar10(fresh, "test").x, truth)
    monkeypatch.setattr(archive, "_open", lambda url, timeout: io.BytesIO(content if url == cifar10.URL else b""))
    assert torch.equal(cifar10.cifar10(other, "test", download=True).x, truth)


def test_checksums_are_those_of_torchvision():
    from fedlib.vision import ensure_torchvision
    ensure_torchvision()
    from torchvision.datasets import CIFAR10
    assert (CIFAR10.url, CIFAR10.filename, CIFAR10.tgz_md5) == (cifar10.URL, cifar10.ARCHIVE, cifar10.ARCHIVE_MD5)
    assert CIFAR10.base_folder == cifar10.FOLDER
    assert dict(CIFAR10.train_list) == cifar10.FILES["train"] and dict(CIFAR10.test_list) == cifar10.FILES["test"]
