"""MNIST (LeCun, Cortes and Burges, 1998): 70,000 handwritten digits of 28 x 28 pixels.

Files, below the data folder, as torchvision's `datasets.MNIST` leaves them:
`MNIST/raw/` with train-images-idx3-ubyte and train-labels-idx1-ubyte (60,000 digits)
and t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte (10,000), each plain or as .gz.
`python -m fedlib data get mnist` fetches them. The idx format: 0, 0, type of the
numbers (8: bytes), number of axes, then the length of every axis as a big-endian
32-bit integer, then the numbers.
"""

from __future__ import annotations

import gzip
import math

import numpy as np
import torch

from ..core.pool import Pool
from .cifar import SPLITS, parts_of
from .files import DAMAGED, DataError, data_root
from .settings import settings

FOLDER, FILES = "MNIST/raw", {"train": "train", "test": "t10k"}
URL = "https://ossci-datasets.s3.amazonaws.com/mnist/"
MD5 = {  # of the four files with .gz
    "train-images-idx3-ubyte": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte": "d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3-ubyte": "9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte": "ec29112dd5afa0611ce80d1b7f02629c",
}


@settings(split=SPLITS)
def mnist(root=None, split: str = "both") -> Pool:
    """One split as a Pool: x [N, 1, 28, 28] in [0, 1], y [N] the digit.

    split  "both" and "all" have the training images, then the test images. With "both"
           these keep their role: Pool.test lists their rows. With "all" Pool.test is
           None. "train" and "test" have one part
    root   data folder (default: environment variable FEDLIB_DATA, else `data`)
    """
    folder, x, y, held_out = data_root(root) / FOLDER, [], [], []
    for part in parts_of(split):
        images = read_idx(folder / f"{FILES[part]}-images-idx3-ubyte", 3)
        labels = read_idx(folder / f"{FILES[part]}-labels-idx1-ubyte", 1)
        if images.shape != (len(labels), 28, 28) or not len(labels) or labels.max() > 9:
            raise DataError(
                f"{folder}: the {part} files hold images {list(images.shape)} and "
                f"{len(labels)} labels; expected [n, 28, 28] and n labels from 0 to 9"
            )
        x.append(images)
        y.append(labels)
        held_out += [part == "test"] * len(labels)
    x = torch.from_numpy(np.concatenate(x)).float().div_(255)[:, None]
    y = torch.from_numpy(np.concatenate(y)).long()
    test = torch.tensor(held_out).nonzero()[:, 0] if split == "both" else None
    return Pool("MNIST", x, y, 10, "real", test=test)


def read_idx(path, axes: int) -> np.ndarray:
    """The bytes of an idx file, or of the same file with .gz at its end, as an array
    with so many axes.
    """
    packed = path.with_name(path.name + ".gz")
    try:
        there = path.is_file()
        content = path.read_bytes() if there else gzip.decompress(packed.read_bytes())
    except DAMAGED as e:
        raise DataError(
            f"{path}, or {packed.name} beside it, cannot be read ({e}): "
            "`python -m fedlib data get mnist` fetches the four files"
        ) from e
    start = 4 + 4 * axes
    shape = np.frombuffer(content[4:start].ljust(start - 4, b"\0"), ">u4").tolist()
    head = content[:4] == bytes((0, 0, 8, axes))
    if not head or len(content) != start + math.prod(shape):
        raise DataError(
            f"{path}: {len(content):,} bytes are no idx file of bytes with {axes} axes "
            f"({shape}); get it again"
        )
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)
