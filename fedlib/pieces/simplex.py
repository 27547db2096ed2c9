"""The simplex {a >= 0, sum a = 1}: steps on it, the nearest point of it, a program over
it.

a [C] weights, z [C] a direction (positive: this client should count more), eta a
step size.
"""

import torch

from ..core.tree import normalize


def mirror(a, z, eta):
    """a_i exp(eta z_i) / Z: mirror descent with the entropy (Beck, Teboulle 2003);
    inside for any eta."""
    s = eta * z
    return normalize(a * (s - s.max()).exp())


def additive(a, z, eta):
    """a_i + eta z_i / C, clipped to [0, 1], over its sum. With |z| <= 1 and eta <= 1
    nothing is clipped at the uniform point."""
    return normalize((a + eta * z / len(a)).clamp(0, 1))


def bounded(a, low, high):
    """a clipped to [low / C, high / C], over its sum, which may carry a weight slightly
    over a bound."""
    return normalize(a.clamp(low / len(a), high / len(a)))


def project(v):
    """The nearest point of the simplex {p >= 0, sum p = 1} to each row of v [..., n]
    (Held, Wolfe, Crowder 1974)."""
    u = v.sort(-1, descending=True).values
    count = torch.arange(1, v.shape[-1] + 1, dtype=v.dtype, device=v.device)
    c = (u.cumsum(-1) - 1) / count
    k = (u > c).sum(-1, keepdim=True) - 1
    return (v - c.gather(-1, k)).clamp(min=0)


def project_box(v, lo, hi, passes=50):
    """The nearest point of {lo <= p <= hi, sum p = 1} to v [n], for bounds [n] with sum
    lo <= 1 <= sum hi: clamp(v - s, lo, hi) for one number s, found by bisection."""
    a, b = (v - hi).min(), (v - lo).max()
    for _ in range(passes):
        s = (a + b) / 2
        low = (v - s).clamp(lo, hi).sum() < 1
        a, b = torch.where(low, a, s), torch.where(low, s, b)
    return (v - (a + b) / 2).clamp(lo, hi)


def simplex_qp(Q, steps=500):
    """argmin_a a' Q_i a over the simplex, all programs at once.

    Q [M, n, n] symmetric positive semi-definite -> a [M, n]. Accelerated projected
    gradient from the uniform point (Beck, Teboulle 2009, FISTA) with step 1 / (2
    lambda_max), momentum forgotten where it points uphill (O'Donoghue, Candes 2015).
    """
    h = 0.5 / torch.linalg.eigvalsh(Q)[:, -1:].clamp(min=torch.finfo(Q.dtype).tiny)
    a = y = Q.new_full(Q.shape[:2], 1 / Q.shape[1])
    k = Q.new_ones(len(Q), 1)
    for _ in range(steps):
        new = project(y - 2 * h * torch.einsum("mpq,mq->mp", Q, y))
        k = torch.where(((y - new) * (new - a)).sum(1, keepdim=True) > 0, 1.0, k)
        k_new = (1 + (1 + 4 * k * k).sqrt()) / 2
        a, y, k = new, new + (k - 1) / k_new * (new - a), k_new
    return a
