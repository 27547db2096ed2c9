"""How sharp is a minimum? Four numbers, and how two models compare at like losses.

    rise        how much the loss grows at the worst place nearby, in the 2-norm
    lambda_max  the largest eigenvalue of the Hessian
    trace       the sum of its eigenvalues
    area        the mean growth on a filter-normalised landscape; the only one that a
                rescaled filter before a norm layer leaves

The first three change when a layer is rescaled though the model computes the same:
print |w| (`landscape.norm`) beside them. A loss is a function of a flat dict w:
name -> tensor; one with `parts` (`landscape.data_loss`) is differentiated part by part,
in the memory of one. Buffers of batch norm are held fixed. Letters: P parameters.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch

from ..core.local import grad
from ..core.random import fold, normal, tag, uniform
from ..core.tree import add, leaves, scale, tmap, unrow, without
from .landscape import axis, inner


class Rise(NamedTuple):
    """Growth of the loss, in its own unit."""

    asc: float  # after one step along the gradient
    pga: float  # the largest on the way of a projected gradient ascent


class Eigenvalue(NamedTuple):
    """A power iteration's answer: the Rayleigh quotient, whether it had settled, and
    the products H v that it took.
    """

    value: float
    converged: bool
    products: int


class Trace(NamedTuple):
    """Mean over the draws, and its standard error."""

    value: float
    error: float


# ------------------------------------------------------------ derivatives, part by part
def apart(loss, w, which="all"):
    """(what varies, functions of it that add up to the loss).

    Buffers stay as they are, and with which="matrix" all vectors too.
    """
    buffers = getattr(loss, "buffers", ())
    varies = lambda k, x: k not in buffers and (which == "all" or x.dim() > 1)
    p = {k: x.detach() for k, x in w.items() if varies(k, x)}
    rest = without(w, p)
    return p, [lambda v, f=f: f(v | rest) for f in getattr(loss, "parts", (loss,))]


def total(parts, f):
    """The sum over parts of the trees f(part)."""
    out = f(parts[0])
    for g in parts[1:]:
        out = add(out, f(g))
    return out


def slope(parts, p):
    """The gradient, a tree."""
    return total(parts, lambda f: grad(f)(p))


def hvp(parts, p, v):
    """The Hessian times v: the gradient of <gradient, v>, a tree."""
    return total(parts, lambda f: grad(lambda u: inner(grad(f)(u), v))(p))


def value(parts, p):
    """The loss."""
    with torch.no_grad():
        return float(sum(f(p) for f in parts))


def length(v):
    """The 2-norm of a tree."""
    return float(inner(v, v).sqrt())


def finite(numbers, what):
    """ValueError unless all numbers are finite."""
    if not np.isfinite(numbers).all():
        raise ValueError(f"{what} is not finite")


# --------------------------------------------------------------- the worst place nearby
def rise(loss, w, rho=0.05, steps=10):
    """Growth of the loss in the ball of radius rho around w, in the 2-norm over all
    parameters.

        asc = L(w + rho g / |g|) - L(w),    g the gradient at w
        pga = max(0, L(w + e) - L(w)),      e on the way of `steps` ascent steps of
                                            length rho / 4, projected to the ball

    It takes four steps to reach the rim. Where the gradient vanishes there is nowhere
    to go: both are 0. ValueError for a loss that is not finite.
    """
    p, parts = apart(loss, w)
    base, seen, asc, e = value(parts, p), [0.0], 0.0, tmap(torch.zeros_like, p)
    for k in range(steps):
        g = slope(parts, add(p, e))
        size = length(g)
        if size == 0:
            break
        if k == 0:
            asc = value(parts, add(p, g, rho / size)) - base
        e = add(e, g, rho / 4 / size)
        e = scale(e, min(1.0, rho / max(length(e), 1e-30)))
        seen.append(value(parts, add(p, e)) - base)
    finite((asc, *seen), f"the loss in the ball of radius rho = {rho}")
    return Rise(asc, max(seen))


# ---------------------------------------------------------------- the Hessian
HESSIAN = "the Hessian of the loss at this model"


def power(product, v, shift, iterations, tol):
    """Power iteration on H + shift I from v: (Eigenvalue of H, |(H + shift I) v|, the
    last v).

        v <- (H + shift I) v / |(H + shift I) v|,    q = v' H v

    Settled: q changes by less than tol q, and |H v - q v| < sqrt(tol) q. The change
    alone is not enough: between a pair of eigenvalues of one size and opposite sign
    q stands still at a value that is neither.
    """
    v, last = scale(v, 1 / length(v)), math.nan
    for k in range(1, iterations + 1):
        h = product(v)
        q = float(inner(v, h))  # v has length 1: the Rayleigh quotient
        finite(q, HESSIAN)
        u = add(h, v, shift)
        # the largest may be 0, where nothing is relative
        size, scope = length(u), max(abs(q), 1e-3 * shift)
        still = abs(q - last) <= tol * scope
        if size == 0 or still and length(add(h, v, -q)) <= math.sqrt(tol) * scope:
            return Eigenvalue(q, True, k), size, v
        v, last = scale(u, 1 / size), q
    return Eigenvalue(q, False, iterations), size, v


def lambda_max(loss, w, iterations=50, tol=1e-3, seed=0, which="all"):
    """The largest eigenvalue of the Hessian at w, by power iteration from a random
    vector, as an Eigenvalue.

    The iteration finds the eigenvalue lambda that is largest in magnitude. If it
    does not settle on a positive one, a second iteration on H + |lambda| I, whose
    eigenvalues are none below 0, finds the largest; `products` counts both. Each
    takes at most `iterations` products; every quotient is a lower bound of the largest
    eigenvalue, so the better one is returned.
    """
    p, parts = apart(loss, w, which)
    key = torch.tensor(int(seed), device=leaves(p)[0].device)
    start = normal(fold(key, tag("power")), p)
    product = lambda v: hvp(parts, p, v)
    first, size, v = power(product, start, 0.0, iterations, tol)
    if first.converged and first.value >= 0:
        return first
    again = add(v, start, 1 / length(start))
    second, _, _ = power(product, again, size, iterations, tol)
    best = max(second, first, key=lambda e: e.value)
    return best._replace(products=first.products + second.products)


def trace(loss, w, draws=10, seed=0, which="all"):
    """The trace of the Hessian at w: the mean of v' H v over random signs v (Hutchinson
    1990), as a Trace; draws: 2 or more.
    """
    p, parts = apart(loss, w, which)
    P, like = sum(x.numel() for x in leaves(p)), leaves(p)[0]
    key, out = torch.tensor(int(seed), device=like.device), []
    for k in range(draws):
        heads = uniform(fold(key, tag("trace"), k), (P,)) < 0.5
        v = unrow(torch.where(heads, -1.0, 1.0).to(like.dtype), p)
        out.append(float(inner(v, hvp(parts, p, v))))
    finite(out, HESSIAN)
    t = torch.tensor(out, dtype=torch.float64)
    return Trace(float(t.mean()), float(t.std() / math.sqrt(draws)))


# ---------------------------------------------------------- the landscape as one number
def area(z, radius=1.0, within=0.5):
    """Mean of z - z(centre) over the grid points with x^2 + y^2 <= within^2; z [..., p,
    p] on [-radius, radius]^2 -> [...]. ValueError for values that are not finite.
    """
    z = torch.as_tensor(z)
    p = z.shape[-1]
    finite(z.cpu().numpy(), "area: a loss on the grid")
    if not 0 < within <= radius:
        raise ValueError(f"area: within = {within}: give at most the radius, {radius}")
    x = axis(radius, p).to(z.device)
    # a point on the rim counts, whatever its rounding
    disc = x[:, None] ** 2 + x**2 <= within**2 * (1 + 1e-12)
    return (z - z[..., p // 2, p // 2, None, None])[..., disc].mean(-1)


# ---------------------------------------------------------------- at like losses
def like_loss(loss, sharp, other_loss, other_sharp, points=25):
    """ln(sharp / other_sharp) at equal loss: the mean over the losses that both methods
    pass, nan where they pass none in common.

    loss, sharp: of one method's models at several ages [A], other_*: of the other's
    [B]; all positive. Between two ages ln sharp is linear in ln loss. 0: as sharp as
    the other, negative: flatter. A model that has learned less is often flatter, so
    that models of one age are compared at different losses.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        given = loss, sharp, other_loss, other_sharp
        x, s, y, t = (np.log(np.asarray(v, float)) for v in given)
    finite(np.concatenate([x, s, y, t]), "like_loss: the logarithm of a value")
    low, high = max(x.min(), y.min()), min(x.max(), y.max())
    if low > high:
        return math.nan
    at = np.linspace(low, high, points)
    mine = np.interp(at, np.sort(x), s[x.argsort()])
    theirs = np.interp(at, np.sort(y), t[y.argsort()])
    return float((mine - theirs).mean())
