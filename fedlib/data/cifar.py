"""CIFAR-10 and CIFAR-100 (Krizhevsky, 2009): 60,000 colour photographs of 32 x 32
pixels, in 10 or 100 classes, from the official "python version".

Files, below the data folder: `cifar-10-batches-py/` with data_batch_1 ... data_batch_5
(50,000 training images) and test_batch (10,000); `cifar-100-python/` with train and
test, of which the fine labels are read; or the archives `cifar-10-python.tar.gz` and
`cifar-100-python.tar.gz`, which are then unpacked. Checksums are those of the official
page and of torchvision. The files are pickles, read by `files.read_arrays`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from ..core.pool import Pool
from .files import DataError, check, data_root, read_arrays, unpacked
from .settings import settings

SPLITS = ("train", "test", "all", "both")
NORMALISE = (True, False, "half")


class Official(NamedTuple):
    """A data set of the CIFAR page: what its files are called, and the statistics of
    its training images.
    """

    name: str
    K: int
    labels: bytes  # the entry of a file that holds the classes
    url: str
    md5: str  # of the archive
    folder: str
    files: dict[str, dict[str, str]]  # split -> file -> md5
    mean: tuple[float, float, float]  # per channel
    std: tuple[float, float, float]

    archive = property(lambda self: self.url.rsplit("/", 1)[1])


CIFAR10 = Official(
    "CIFAR-10",
    10,
    b"labels",
    "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
    "c58f30108f718f92721af3b95e74349a",
    "cifar-10-batches-py",
    {
        "train": {
            "data_batch_1": "c99cafc152244af753f735de768cd75f",
            "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
            "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
            "data_batch_4": "634d18415352ddfa80567beed471001a",
            "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
        },
        "test": {"test_batch": "40351d587109b95175f43aff81a1287e"},
    },
    (0.4914, 0.4822, 0.4465),
    (0.2023, 0.1994, 0.2010),
)
CIFAR100 = Official(
    "CIFAR-100",
    100,
    b"fine_labels",
    "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
    "eb9058c3a382ffc7106e4002c42a8d85",
    "cifar-100-python",
    {
        "train": {"train": "16019d7e3df5f24257cddd939b257f8d"},
        "test": {"test": "f0ef6b0ae62326f3e7ffdfab6717acfc"},
    },
    (0.5071, 0.4865, 0.4409),
    (0.2673, 0.2564, 0.2762),
)


@settings(split=SPLITS, normalise=NORMALISE)
def cifar10(
    root=None,
    split: str = "train",
    normalise: bool | str = True,
    download: bool = False,
) -> Pool:
    """One split as a Pool: x [N, 3, 32, 32], y [N]; N = 50,000 ("train"), 10,000
    ("test") or 60,000 ("all" and "both").

    split      "all" and "both" have the training images, then the test images. With
               "both" these keep their role: Pool.test lists their rows. With "all"
               Pool.test is None, and each client cuts test rows of its own
    root       data folder (default: environment variable FEDLIB_DATA, else `data`)
    normalise  True: subtract the mean and divide by the standard deviation per channel;
               False leaves x in [0, 1]; "half": (x - 0.5) / 0.5, so x in [-1, 1]
    download   fetch the archive (170 MB) when the files are not there

    x takes 0.6 GB of memory for the training images, 0.7 GB for all.
    """
    return load(CIFAR10, root, split, normalise, download)


@settings(split=SPLITS, normalise=NORMALISE)
def cifar100(
    root=None,
    split: str = "train",
    normalise: bool | str = True,
    download: bool = False,
) -> Pool:
    """One split as a Pool: x [N, 3, 32, 32], y [N] from 0 to 99; arguments, sizes and
    memory as for `cifar10`.
    """
    return load(CIFAR100, root, split, normalise, download)


def load(data: Official, root, split, normalise, download) -> Pool:
    """The split of a data set of the CIFAR page; arguments as in `cifar10`."""
    how = {"url": data.url, "md5": data.md5, "download": download}
    folder = unpacked(data.name, data_root(root), data.folder, data.archive, **how)
    x, y, held_out = [], [], []
    for part in parts_of(split):
        for name, md5 in data.files[part].items():
            check(folder / name, md5)
            images, labels = read_batch(folder / name, data)
            x.append(images)
            y.append(labels)
            held_out += [part == "test"] * len(labels)
    x = torch.from_numpy(np.concatenate(x)).float().div_(255)
    x, y = scale(x, normalise, data.mean, data.std), np.concatenate(y)
    test = torch.tensor(held_out).nonzero()[:, 0] if split == "both" else None
    return Pool(data.name, x, torch.from_numpy(y), data.K, "real", test=test)


def parts_of(split):
    """The parts of a split, in order."""
    return [part for part in ("train", "test") if split in (part, "all", "both")]


def scale(x, normalise, mean, std):
    """Images x [N, 3, height, width] in [0, 1], changed in place: see `normalise` of
    `cifar10`. Returns x.
    """
    if not normalise:
        return x
    mean, std = ((0.5,) * 3, (0.5,) * 3) if normalise == "half" else (mean, std)
    mean, std = (torch.tensor(v)[:, None, None] for v in (mean, std))
    return x.sub_(mean).div_(std)


def read_batch(path, data: Official = CIFAR10):
    """One file of the official layout: images [n, 3, 32, 32] uint8 and labels [n]
    int64.
    """
    batch = read_arrays(path)
    images, labels = np.asarray(batch[b"data"]), np.asarray(batch[data.labels])
    fits = images.dtype == np.uint8 and images.shape == (len(labels), 3072)
    if not fits or np.setdiff1d(labels, range(data.K)).size:
        raise DataError(
            f"{path} is no {data.name} batch: expected data [n, 3072] of bytes and "
            f"{data.labels.decode()} [n] from 0 to {data.K - 1}"
        )
    return images.reshape(-1, 3, 32, 32), labels.astype(np.int64)
