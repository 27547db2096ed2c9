"""CIFAR-10 (Krizhevsky, 2009): 60,000 colour photographs of 32 x 32 pixels, 10 classes,
from the official "python version".

Files, below the data folder: `cifar-10-batches-py/` with data_batch_1
... data_batch_5 (50,000 training images) and test_batch (10,000), or the archive
`cifar-10-python.tar.gz`, which is then unpacked. The archive's checksum is the one on
the official page, those of the files are the ones that torchvision verifies. The files
are pickles: they are read by an unpickler that can build arrays, lists and strings and
nothing else. CIFAR-100 has the same format and is read by the same functions.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from ..core.pool import Pool
from ..core.ranges import check_switch, short
from . import archive
from .archive import DataError, check, data_root, extract
from .pickled import read_arrays


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
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2023, 0.1994, 0.2010),
)
SPLITS = ("train", "test", "all", "both")
CLASSES = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)


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


def load(data: Official, root, split, normalise, download) -> Pool:
    """The split of a data set of the CIFAR page; arguments as in `cifar10`."""
    refuse(split, normalise)
    check_switch(f"{data.name}: download", download)
    folder = _folder(data, data_root(root), download)
    parts = [s for s in data.files if split in (s, "all", "both")]
    files = [(s, *file) for s in parts for file in data.files[s].items()]
    x, y, held_out = [], [], []
    for part, name, md5 in files:
        check(folder / name, md5)
        images, labels = read_batch(folder / name, data)
        x.append(images)
        y.append(labels)
        held_out += [part == "test"] * len(labels)
    x = torch.from_numpy(np.concatenate(x)).float().div_(255)
    return Pool(
        name=data.name,
        x=scale(x, normalise, data.mean, data.std),
        y=torch.from_numpy(np.concatenate(y)),
        K=data.K,
        kind="real",
        test=torch.tensor(held_out).nonzero()[:, 0] if split == "both" else None,
    )


def refuse(split, normalise):
    """ValueError for options that do not exist."""
    if split not in SPLITS:
        raise ValueError(
            f'split = {short(split)}: use "train", "test" or "all", or "both" to have '
            "the test images listed as such"
        )
    if not isinstance(normalise, bool) and normalise != "half":
        raise ValueError(f'normalise = {short(normalise)}: use True, False or "half"')


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
    try:
        images, labels = np.asarray(batch[b"data"]), np.asarray(batch[data.labels])
        kinds = images.dtype == np.uint8 and labels.dtype.kind == "i"
        if not kinds or images.shape != (len(labels), 3072):
            raise TypeError(
                f"data {images.dtype} {images.shape}, labels {labels.dtype} "
                f"{labels.shape}"
            )
        if len(labels) and not 0 <= labels.min() <= labels.max() < data.K:
            raise TypeError(f"labels from {labels.min()} to {labels.max()}")
    except (KeyError, TypeError, ValueError, MemoryError) as error:
        raise DataError(
            f"{path} is not a {data.name} batch: {error}; expected data [n, 3072] of "
            f"bytes and {data.labels.decode()} [n] from 0 to {data.K - 1}"
        ) from error
    return images.reshape(-1, 3, 32, 32), labels.astype(np.int64)


def _folder(data, root, fetch):
    folder, packed = root / data.folder, root / data.archive
    if not folder.is_dir():
        if not packed.is_file():
            if not fetch:
                raise DataError(
                    f"{data.name} is not in {root}: download {data.url} and put it, "
                    f"or the folder {data.folder} from it, into {root}; or call with "
                    "download=True"
                )
            archive.download(data.url, packed, data.md5)
        check(packed, data.md5)
        extract(packed, root)
    return folder
