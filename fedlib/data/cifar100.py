"""CIFAR-100 (Krizhevsky, 2009): 60,000 colour photographs of 32 x 32 pixels, 100
classes, from the official "python version".

Files, below the data folder: `cifar-100-python/` with train (50,000 images) and test
(10,000), or the archive `cifar-100-python.tar.gz`. Classes are the fine labels; the
20 coarse ones are not read. Checksums and format: see `cifar10`.
"""

from __future__ import annotations

from ..core.pool import Pool
from .cifar10 import Official, load

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
    mean=(0.5071, 0.4865, 0.4409),
    std=(0.2673, 0.2564, 0.2762),
)


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
