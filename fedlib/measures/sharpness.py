"""How sharp is a minimum? Three numbers.

    rise        how much the loss grows at the worst place nearby, in the 2-norm
    lambda_max  the largest eigenvalue of the Hessian
    area        the mean growth on a filter-normalised landscape; the only one that a
                rescaled filter before a norm layer leaves

The first two change when a layer is rescaled though the model computes the same: print
|w| (`landscape.norm`) beside them. A loss is a function of a flat dict w: name ->
tensor; one with `parts` (`landscape.data_loss`) is differentiated part by part, in the
memory of one. Buffers of batch norm are held fixed.
"""

import functools
import math
from typing import NamedTuple

import torch

from ..core.local import grad
from ..core.random import fold, normal, tag
from ..core.tree import add, leaves, scale, tmap, without
from .landscape import axis, finite, inner, norm


class Rise(NamedTuple):
    """Growth of the loss, in its own unit."""

    asc: float  # after one step along the gradient
    pga: float  # the largest on the way of a projected gradient ascent


class Eigenvalue(NamedTuple):
    """A power iteration's answer."""

    value: float  # the Rayleigh quotient
    converged: bool  # had it settled?


# ------------------------------------------------------------ derivatives, part by part
def apart(loss, w):
    """(parameters, functions of them that add up to the loss); buffers stay."""
    buffers = getattr(loss, "buffers", ())
    p = {k: x.detach() for k, x in w.items() if k not in buffers}
    rest = without(w, p)
    return p, [lambda v, f=f: f(v | rest) for f in getattr(loss, "parts", (loss,))]


def total(parts, f):
    """The sum over parts of the trees f(part)."""
    return functools.reduce(add, map(f, parts))


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
        size = norm(g)
        if size == 0:
            break
        if k == 0:
            asc = value(parts, add(p, g, rho / size)) - base
        e = add(e, g, rho / 4 / size)
        e = scale(e, min(1.0, rho / max(norm(e), 1e-30)))
        seen.append(value(parts, add(p, e)) - base)
    finite((asc, *seen), f"the loss in a ball of radius rho = {rho}")
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
    v, last = scale(v, 1 / norm(v)), math.nan
    for _ in range(iterations):
        h = product(v)
        q = float(inner(v, h))  # v has length 1: the Rayleigh quotient
        finite(q, HESSIAN)
        u = add(h, v, shift)
        # the largest may be 0, where nothing is relative
        size, scope = norm(u), max(abs(q), 1e-3 * shift)
        still = abs(q - last) <= tol * scope
        if size == 0 or still and norm(add(h, v, -q)) <= math.sqrt(tol) * scope:
            return Eigenvalue(q, True), size, v
        v, last = scale(u, 1 / size), q
    return Eigenvalue(q, False), size, v


def lambda_max(loss, w, iterations=50, tol=1e-3, seed=0):
    """The largest eigenvalue of the Hessian at w, by power iteration from a random
    vector, as an Eigenvalue.

    The iteration finds the eigenvalue lambda that is largest in magnitude. If it
    does not settle on a positive one, a second iteration on H + |lambda| I, whose
    eigenvalues are none below 0, finds the largest. Each takes at most `iterations`
    products; every quotient is a lower bound of the largest eigenvalue, so the better
    one is returned.
    """
    p, parts = apart(loss, w)
    key = torch.tensor(int(seed), device=leaves(p)[0].device)
    start = normal(fold(key, tag("power")), p)
    product = lambda v: hvp(parts, p, v)
    first, size, v = power(product, start, 0.0, iterations, tol)
    if first.converged and first.value >= 0:
        return first
    again = add(v, start, 1 / norm(start))
    second, _, _ = power(product, again, size, iterations, tol)
    return max(second, first, key=lambda e: e.value)


# ---------------------------------------------------------- the landscape as one number
def area(z, radius=1.0, within=0.5):
    """Mean of z - z(centre) over the grid points with x^2 + y^2 <= within^2; z [..., p,
    p] on [-radius, radius]^2 -> [...]. ValueError for values that are not finite.
    """
    z = finite(torch.as_tensor(z), "area: a loss on the grid")
    p = z.shape[-1]
    x = axis(radius, p).to(z.device)
    # a point on the rim counts, whatever its rounding
    disc = x[:, None] ** 2 + x**2 <= within**2 * (1 + 1e-12)
    return (z - z[..., p // 2, p // 2, None, None])[..., disc].mean(-1)
