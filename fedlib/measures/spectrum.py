"""The directions in which the loss curves most: the top of the Hessian's spectrum.

`sharpness.lambda_max` asks for one number by power iteration. A plane through a model
wants two directions, and power iteration is slow where two eigenvalues are close; here
is Lanczos' iteration, scipy's `eigsh`. Letters: P parameters, k pairs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from scipy.sparse.linalg import LinearOperator, eigsh

from ..core.random import fold, normal, tag
from ..core.tree import leaves, rows, stack, unrow
from .sharpness import apart, hvp


class Eigenpairs(NamedTuple):
    """The largest eigenvalues, the largest first, and their vectors, trees like the
    model, each of length 1; a sign is chosen so that the largest entry is positive.
    """

    values: list[float]
    vectors: list[dict]


def eigenpairs(loss, w, k=2, seed=0, which="all", tol=1e-4):
    """The k largest eigenvalues of the Hessian at w and their vectors, as Eigenpairs.

    Names that do not vary (buffers; with which="matrix" all vectors) are zero in the
    vectors. ValueError for k that is not from 1 to P - 1, or a Hessian that is not
    finite.
    """
    p, parts = apart(loss, w, which)
    like = leaves(p)[0]
    P = sum(x.numel() for x in leaves(p))
    if not 1 <= k < P:
        raise ValueError(f"k = {k} of {P} parameters: give 1 to {P - 1} eigenpairs")

    def product(v):
        v = torch.as_tensor(np.ravel(v), dtype=like.dtype, device=like.device)
        out = flat(hvp(parts, p, unrow(v, p)))
        if not np.isfinite(out).all():
            raise ValueError("the Hessian of the loss is not finite at this model")
        return out

    key = torch.tensor(int(seed), device=like.device)
    start = flat(normal(fold(key, tag("lanczos")), p))
    H = LinearOperator((P, P), matvec=product, dtype=np.float64)
    values, vectors = eigsh(H, k, which="LA", v0=start, tol=tol)
    top = np.argsort(-values)
    return Eigenpairs(values[top].tolist(), [tree(vectors[:, i], w, p) for i in top])


def flat(t):
    """A tree as one vector [P] of float64."""
    return rows(stack([t]))[0].detach().cpu().double().numpy()


def tree(v, w, p):
    """A vector [P] over the names of p as a tree like w, zero elsewhere."""
    v = v * np.sign(v[np.abs(v).argmax()])
    like = leaves(p)[0]
    own = unrow(torch.as_tensor(v, dtype=like.dtype, device=like.device), p)
    return {name: own.get(name, torch.zeros_like(x)) for name, x in w.items()}
