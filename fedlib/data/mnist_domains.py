"""Digits in domains, as DomainBed has them: turned by an angle of the domain's own, or
coloured by a rule of the domain's own.

RotatedMNIST: Ghifary, Kleijn, Zhang, Balduzzi. Domain Generalization for Object
Recognition with Multi-Task Autoencoders. ICCV 2015. ColoredMNIST: Arjovsky, Bottou,
Gulrajani, Lopez-Paz. Invariant Risk Minimization. 2019. Both as in Gulrajani,
Lopez-Paz. In Search of Lost Domain Generalization. ICLR 2021, whose code is DomainBed;
ours are 5,000 images of MNIST (`mnist5k`), none of them in two domains.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from ..core.pool import Pool
from ..core.ranges import DRAWS, is_number
from ..nets.vision import ensure_torchvision
from .mnist5k import divides, images, pooled
from .settings import settings

ANGLES = (0, 15, 30, 45, 60, 75)  # degrees, counter-clockwise
FLIPS = (0.1, 0.2, 0.9)  # share of a domain's images whose colour is not their label
WRONG = 0.25  # share of ColoredMNIST's labels that are not their image's


def different(low, high):
    """A check for two or more numbers in a range, which differ where they are written,
    as the names of domains."""

    def check(at, values):
        listed = isinstance(values, (list, tuple)) and len(values) > 1
        good = listed and all(is_number(v) and low <= v <= high for v in values)
        if not good or len({f"{v:g}" for v in values}) < len(values):
            raise ValueError(
                f"{at} = {values!r}; give two or more different numbers from {low} to "
                f"{high}, one for each domain"
            )

    return check


@settings(angles=different(0, 359), pool=divides, draw=(0, DRAWS))
def rotated(angles: Sequence[float] = ANGLES, pool: int = 1, draw: int = 0) -> Pool:
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
    return domains("RotatedMNIST", pooled(torch.cat(turned), pool), y, 10, parts, names)


@settings(flips=different(0, 1), pool=divides, draw=(0, DRAWS))
def colored(flips: Sequence[float] = FLIPS, pool: int = 1, draw: int = 0) -> Pool:
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
        red, green = (colour == 0), (colour == 1)
        channels = torch.stack([red, green], 1)[:, :, None, None]
        found.append(x[r] * channels)
    names = [f"{100 - 100 * p:+g}%" if p <= 0.5 else f"{-100 * p:+g}%" for p in flips]
    return domains("ColoredMNIST", torch.cat(found), y, 2, parts, names)


def dealt(n, draw):
    """Numbers of the 5,000 images, dealt in turn to n domains in the order of a
    draw."""
    order = np.random.RandomState(draw).permutation(len(images()[1]))
    return [torch.from_numpy(order[k::n].copy()) for k in range(n)]


def domains(name, x, y, K, parts, names):
    """The Pool of domains: x as the parts lie, y [5000] as the images lie."""
    owner = torch.cat([torch.full((len(r),), k) for k, r in enumerate(parts)])
    y = y[torch.cat(parts)]
    return Pool(f"{name} of 5,000 digits", x, y, K, "real", owner, tuple(names))
