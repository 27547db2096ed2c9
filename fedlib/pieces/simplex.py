"""Steps of aggregation weights on the simplex {a >= 0, sum a = 1}.

a [C] weights, z [C] a direction (positive: this client should count more), eta a
step size.
"""

import math

from ..core.tree import normalize


def mirror(a, z, eta):
    """a_i exp(eta z_i) / Z: mirror descent with the entropy (Beck, Teboulle 2003).

    Stays inside for any eta.
    """
    s = eta * z
    return normalize(a * (s - s.max()).exp())


def additive(a, z, eta):
    """a_i + eta z_i / C, clipped to [0, 1], over its sum.

    With |z| <= 1 and eta <= 1 nothing is clipped at the uniform point.
    """
    return normalize((a + eta * z / len(a)).clamp(0, 1))


def bounded(a, low, high):
    """a clipped to [low / C, high / C], over its sum.

    The division may carry a weight slightly over a bound.
    """
    return normalize(a.clamp(low / len(a), high / len(a)))


def inside(owner, name, eta, most):
    """ValueError for a step size that is not in [0, most]."""
    if not (isinstance(eta, (int, float)) and math.isfinite(eta) and 0 <= eta <= most):
        raise ValueError(
            f"{owner}.{name} = {eta!r} leaves the simplex: from equal weights 1/C a "
            f"step moves a weight by up to {name} / C, so give 0 <= {name} <= {most:g}"
        )
