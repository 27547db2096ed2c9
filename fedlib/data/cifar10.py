"""CIFAR-10 (Krizhevsky, 2009): 60,000 colour photographs of 32 x 32 pixels, 10 classes, from the official "python version".

Files, below the data folder: `cifar-10-batches-py/` with data_batch_1 ... data_batch_5 (50,000 training images) and test_batch
(10,000), or the archive `cifar-10-python.tar.gz`, which is then unpacked. The archive's checksum is the one on the official
page, those of the files are the ones that torchvision verifies. The files are pickles: they are read by an unpickler that can
build arrays, lists and strings and nothing else.
"""
from __future__ import annotations

import numpy as np
import torch

from . import Pool, archive
from .archive import DataError, check, data_root, extract, read_arrays

URL = "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
ARCHIVE, ARCHIVE_MD5 = "cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a"
FOLDER = "cifar-10-batches-py"
FILES = {
    "train": {
        "data_batch_1": "c99cafc152244af753f735de768cd75f",
        "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "634d18415352ddfa80567beed471001a",
        "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb"},
    "test": {"test_batch": "40351d587109b95175f43aff81a1287e"},
}
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)     # of the training images, per channel


def cifar10(root=None, split: str = "train", normalise: bool = True, download: bool = False) -> Pool:
    """One split as a Pool: x [N, 3, 32, 32], y [N]; N = 50,000 ("train") or 10,000 ("test").

    root       data folder (default: environment variable FEDLIB_DATA, else `data`)
    normalise  subtract MEAN and divide by STD per channel; False leaves x in [0, 1]
    download   fetch the archive (170 MB) when the files are not there

    Needs 0.6 GB of memory for the training images.
    """
    if split not in FILES:
        raise ValueError(f'split = {split!r}: use "train" or "test"')
    folder = _folder(data_root(root), download)
    x, y = [], []
    for name, md5 in FILES[split].items():
        check(folder / name, md5)
        images, labels = read_batch(folder / name)
        x.append(images)
        y.append(labels)
    x = torch.from_numpy(np.concatenate(x)).float().div_(255)
    if normalise:
        x.sub_(torch.tensor(MEAN)[:, None, None]).div_(torch.tensor(STD)[:, None, None])
    return Pool(name="CIFAR-10", x=x, y=torch.from_numpy(np.concatenate(y)), K=10, kind="real")


def read_batch(path):
    """One file of the official layout: images [n, 3, 32, 32] uint8 and labels [n] int64."""
    batch = read_arrays(path)
    try:
        images, labels = np.asarray(batch[b"data"]), np.asarray(batch[b"labels"])
        if images.dtype != np.uint8 or labels.dtype.kind != "i" or images.shape != (len(labels), 3072):
            raise TypeError(f"data {images.dtype} {images.shape}, labels {labels.dtype} {labels.shape}")
        if len(labels) and not 0 <= labels.min() <= labels.max() <= 9:
            raise TypeError(f"labels from {labels.min()} to {labels.max()}")
    except (KeyError, TypeError) as error:
        raise DataError(f"{path} is not a CIFAR-10 batch: {error}; expected data [n, 3072] of bytes and "
                        "labels [n] from 0 to 9") from error
    return images.reshape(-1, 3, 32, 32), labels.astype(np.int64)


def _folder(root, fetch):
    folder, packed = root / FOLDER, root / ARCHIVE
    if not folder.is_dir():
        if not packed.is_file():
            if not fetch:
                raise DataError(f"CIFAR-10 is not in {root}: download {URL} and put it, or the folder {FOLDER} from it, "
                                f"into {root}; or call with download=True")
            archive.download(URL, packed, ARCHIVE_MD5)
        check(packed, ARCHIVE_MD5)
        extract(packed, root)
    return folder
