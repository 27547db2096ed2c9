"""Differentiable bias of a model on rows with soft labels, and MGDA for several.

EquFL, eqs 8 and 13 to 15. A surrogate is called F(odds, omega, near, form) -> scalar:

    odds [n, 2]       log-probabilities of the negative and the positive outcome
                      (`Groups.odds`)
    omega [n, A, 2]   soft membership of group a and outcome b (`Groups.cells`); a row
                      of zeros is masked
    near [n, k]       rows of the neighbours (`neighbours`), for CON alone
    form              "ce": cross-entropies are compared, as in the paper; "prob":
                      probabilities of the positive outcome

M[v; c] = sum_i c_i v_i / sum_i c_i is a weighted mean; cells of less weight than 1e-3
are left out. No branch looks at a tensor's values: everything runs inside vmap and
grad. Letters: A groups, K classes, n rows, P parameters.
"""

import torch

from ..core.tree import onehot, rows, stack, tmap, unrow
from .simplex import simplex_qp

EMPTY = 1e-3  # a cell of less weight is left out
FORMS = ("ce", "prob")


def _value(odds, b, form):
    """What is averaged: l_b [n], the cross-entropy towards outcome b, or p [n]."""
    return {"ce": -odds[:, b], "prob": odds[:, 1].exp()}[form]


def _mean(v, c):
    """M[v; c] [...] for v [n] and weights c [n, ...], and where the weight suffices."""
    total = c.sum(0)
    return torch.einsum("n,n...->...", v, c) / total.clamp(min=EMPTY), total >= EMPTY


def _gap(v, c):
    """max over pairs of groups of |M[v; c_a] - M[v; c_a']|; c [n, A]."""
    m, full = _mean(v, c)
    return torch.where(full[:, None] & full, (m[:, None] - m).abs(), 0.0).amax()


def eo(odds, omega, near=None, form="ce"):
    """sum_b max_{a,a'} |M[l_b; omega(a,b)] - M[l_b; omega(a',b)]| (eq. 8)."""
    return sum(_gap(_value(odds, b, form), omega[:, :, b]) for b in (0, 1))


def dp(odds, omega, near=None, form="ce"):
    """max_{a,a'} |M[l_1; omega(a)] - M[l_1; omega(a')]| (eq. 13), over all rows."""
    return _gap(_value(odds, 1, form), omega.sum(2))


def cal(odds, omega, near=None, form="ce"):
    """max_a |M[l_1; omega(a,1)] - M[l_1; omega(.,1)]| (eq. 14)."""
    v, c = _value(odds, 1, form), omega[:, :, 1]
    m, full = _mean(v, c)
    return torch.where(full, (m - _mean(v, c.sum(1))[0]).abs(), 0.0).amax()


def con(odds, omega, near=None, form="ce"):
    """M[|p_i - mean of p over i's neighbours|; omega_i(.,.)] (eq. 15).

    In probabilities whatever the form. A row's weight is its total membership; near =
    -1 stands for no neighbour, and a row without any has no difference.
    """
    p, there = _value(odds, 1, "prob"), near >= 0
    p_near = torch.where(there, p[near.clamp(min=0)], 0.0)  # [n, k]
    mean = p_near.sum(1) / there.sum(1).clamp(min=1)
    difference = torch.where(there.any(1), (p - mean).abs(), 0.0)
    return _mean(difference, omega.sum((1, 2)))[0]


SURROGATES = {"EO": eo, "DP": dp, "CAL": cal, "CON": con}
NEEDED = {  # the cells that must hold rows, of omega summed over them [A, 2]
    "EO": lambda n: n,
    "DP": lambda n: n.sum(1),
    "CAL": lambda n: n[:, 1],
    "CON": lambda n: n.sum(),
}


def neighbours(x, k=5, m=None):
    """Rows [n, k] of the k nearest other rows of x [n, ...], in Euclidean distance.

    n - 1 of them if n <= k. m [n]: a row with m = 0 is no neighbour; where too few are
    left, -1 fills up.
    """
    x, k = x.flatten(1), max(0, min(k, len(x) - 1))
    d = torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist")
    left_out = torch.eye(len(x), dtype=torch.bool, device=x.device)
    left_out = left_out if m is None else left_out | (m == 0)
    near = d.masked_fill(left_out, torch.inf).topk(k, largest=False)
    return torch.where(near.values < torch.inf, near.indices, -1)


def fairness(target, task, S, form="ce", k=5):
    """w -> F_target(w; S), a scalar, for the synthetic set S {"x", "q"}.

    x [n, ...], q [n, K]; w a dict of parameters. Memberships and neighbours are found
    once. Batch norm and dropout are in evaluation mode.
    """
    F, x = SURROGATES[target], S["x"]
    omega = task.groups.cells(S["q"], x)
    near = neighbours(x, k) if target == "CON" else None
    return lambda w: F(task.groups.odds(task.logits(w, x)), omega, near, form)


def penalty(target, task, w, b, form="ce", k=5):
    """F_target on a batch b with its hard labels, a term of a client's loss.

    0 for a batch that lacks a cell F needs. The network is in training mode, as in the
    loss beside it.
    """
    F, odds = SURROGATES[target], task.groups.odds(task.logits(w, b.x, b))
    omega = task.groups.cells(onehot(b.y, task.K, odds, b.m), b.x, b.a)
    near = neighbours(b.x, k, b.m) if target == "CON" else None
    full = (NEEDED[target](omega.sum(0)) >= EMPTY).all()
    return torch.where(full, F(odds, omega, near, form), 0.0)


def min_norm(grads, normalise="l2", losses=None):
    """MGDA (Desideri 2012): the shortest vector sum_m c_m g_m / s_m, and c [n].

    c lies in the simplex, the g_m are n gradient trees. Its product with no g_m is
    negative: to first order nothing gets worse. normalise: s_m = 1 ("none"), |g_m|
    ("l2"), or the loss F_m ("loss"; losses [n]). With "l2" the direction is multiplied
    by the mean of the |g_m|. Shorter than 1e-8: zero.
    """
    G = rows(stack(grads)).double()  # [n, P]
    norm = G.norm(dim=1)
    s = {"none": torch.ones_like(norm), "l2": norm, "loss": losses}[normalise]
    U = G / torch.as_tensor(s).to(norm).clamp(min=1e-12)[:, None]
    c = simplex_qp((U @ U.T)[None])[0]
    v = c @ U
    v = torch.where(v.norm() < 1e-8, 0.0, v)
    v = v * (norm.mean() if normalise == "l2" else 1)
    return tmap(lambda d, g: d.to(g), unrow(v, grads[0]), grads[0]), c
