"""Randomness as a function of data.

A key is an int64 tensor. Draws depend on it alone: the same bits in a loop, under vmap,
in any chunk and on any device, and nothing is stored. SplitMix64 (Steele, Lea, Flood,
OOPSLA 2014) as tensor arithmetic.
"""

import math
import zlib

import torch

from .tree import leaves, unrow

GOLDEN = -7046029254386353131  # 0x9E3779B97F4A7C15 as int64


def _mix(z):
    z = (z ^ ((z >> 30) & 0x3FFFFFFFF)) * -4658895280553007687
    z = (z ^ ((z >> 27) & 0x1FFFFFFFFF)) * -7723592293110705685
    return z ^ ((z >> 31) & 0x1FFFFFFFF)


def _mix_int(z):
    """`_mix` on Python integers: the same bits without tensors."""
    z &= 0xFFFFFFFFFFFFFFFF
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
    return z ^ (z >> 31)


def seed_of(seed: int, *tags: int) -> int:
    """`fold` on Python integers, as a non-negative int64: seeds the index plans."""
    z = seed
    for g in tags:
        z = _mix_int(z + (g + 1) * 0x9E3779B97F4A7C15)
    return z & 0x7FFFFFFFFFFFFFFF


def tag(name: str) -> int:
    """A name as an integer to fold in."""
    return zlib.crc32(name.encode())


class LazyKey:
    """fold(key, *tags), computed only when somebody draws."""

    def __init__(self, key, *tags):
        self.key, self.tags = key, tags

    def __int__(self):
        return int(fold(self))


def fold(key, *tags):
    """A new key from a key and integers or integer tensors."""
    while isinstance(key, LazyKey):
        key, tags = key.key, key.tags + tags
    for g in tags:
        if isinstance(g, int):  # no tensor: a GPU would be waited for
            step = ((g + 1) * GOLDEN + 2**63) % 2**64 - 2**63
        else:
            step = (torch.as_tensor(g, device=key.device).long() + 1) * GOLDEN
        key = _mix(key + step)
    return key


def uniform(key, shape, dtype=torch.float32):
    """[shape] in (0, 1); of keys [B, 1], [B, shape]."""
    key = fold(key)
    h = _mix(key + torch.arange(1, math.prod(shape) + 1, device=key.device) * GOLDEN)
    u = (((h >> 11) & 0x1FFFFFFFFFFFFF).to(torch.float64) + 0.5) * 2.0**-53
    return u.to(dtype).view(*key.shape[:-1], *shape)


def normal(key, like):
    """Standard normals in the shape of a tree (Box-Muller, two per 64-bit word)."""
    ls, key = leaves(like), fold(key)
    n, dt = sum(x.numel() for x in ls), ls[0].dtype
    h = _mix(key + torch.arange(1, (n + 1) // 2 + 1, device=key.device) * GOLDEN)
    u = ((h & 0xFFFFFFFF).to(dt) + 0.5).mul(2.0**-32).clamp(max=1 - 2.0**-24)
    v = ((h >> 32) & 0xFFFFFFFF).to(dt).mul(2.0**-32)
    r, angle = (-2 * u.log()).sqrt(), 2 * math.pi * v
    return unrow(torch.cat([r * angle.cos(), r * angle.sin()])[:n], like)
