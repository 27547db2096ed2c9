"""Robust aggregation rules: trimmed mean, Multi-Krum and DeepSight.

A rule maps updates G [M, P] with rows g_i = w - w_i, weights p [M], the model w (a
flat dict, parameters only) and the task to one update [P]. All rules but Mean ignore
p: a client that lies about its size gains nothing. Letters: M cohort, P parameters,
K classes, D width of the features.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch

from ..core.errors import check_whole, is_number, short
from ..core.method import Mean
from ..core.tree import sub, unrow

SEEDS = (0, 1, 2)  # of DeepSight's random inputs
SAME = 6  # decimals of a distance that count: below is rounding, and no cluster


def floor_of(x, M):
    """floor(x M), safe from 0.29 * 100 = 28.999..."""
    return math.floor(x * M + 1e-9)


def check_minority(name, share):
    """ValueError for a share of the clients that is not in [0, 1/2)."""
    if not (is_number(share) and 0 <= share < 0.5):
        raise ValueError(f"{name} = {short(share)}: give a minority, 0 or up to 0.5")


@dataclass(frozen=True)
class Median:
    """The median of each coordinate (Yin et al., ICML 2018); takes no notice of p."""

    def __call__(self, G, p, w, task):
        s, n = G.sort(0).values, len(G)
        return (s[(n - 1) // 2] + s[n // 2]) / 2


@dataclass(frozen=True)
class TrimmedMean:
    """The mean of each coordinate without its floor(trim M) largest and smallest (Yin
    et al., ICML 2018). Ignores p."""

    trim: float = 0.1

    def __post_init__(self):
        check_minority("TrimmedMean.trim", self.trim)

    def __call__(self, G, p, w, task):
        M = len(G)
        b = min(floor_of(self.trim, M), (M - 1) // 2)
        return G.sort(0).values[b : M - b].mean(0)


@dataclass(frozen=True)
class MultiKrum:
    """The mean of the m = M - f - 2 updates that lie closest to others.

    Blanchard et al., NeurIPS 2017. Ignores p. Up to f = floor(bad M) updates may be
    anything. Score of an update: the sum of its squared distances to the M - f - 2
    nearest others; the m lowest are kept. A cohort with M <= 2 f + 2 is a ValueError.
    """

    bad: float = 0.1

    def __post_init__(self):
        check_minority("MultiKrum.bad", self.bad)

    def __call__(self, G, p, w, task):
        M, f = len(G), floor_of(self.bad, len(G))
        if M <= 2 * f + 2:
            raise ValueError(
                f"MultiKrum(bad={self.bad}) needs more than {2 * f + 2} updates, got "
                f"{M}: take more clients per round or a smaller share"
            )
        m = M - f - 2
        # without the distance 0 to itself
        score = distances(G).square().sort(1).values[:, 1 : m + 1].sum(1)
        return G[score.argsort(stable=True)[:m]].mean(0)


@dataclass(frozen=True)
class DeepSight:
    """Drop clusters of updates that train suspiciously few outputs; clip, average.

    Rieger et al., NDSS 2022. Ignores p. Simplified: of the layers only the output layer
    (W, b) is inspected, and the random inputs are `inputs` per seed, not 20,000.

        E_k    = |db_k| + sum_h |dW_kh|                       energy of output k
        NEUP_k = E_k^2 / sum_j E_j^2
        TE     = #{k: NEUP_k > max(0.01, 1 / K) max_j NEUP_j}
        DDif_k = mean_x softmax(f_i(x))_k / softmax(f(x))_k   f_i = f at w - g_i

    A client with TE <= median(TE) / 2 is suspicious. x ~ N(0, I), three seeds. HDBSCAN
    clusters the clients by the cosine distance of db, by NEUP and by DDif, each seed
    apart. The distance of two clients is then the share of clusterings that part them,
    seeds averaged first, and HDBSCAN on it gives the clusters. One with a third or more
    of suspicious members is dropped, and so is a suspicious client outside all
    clusters. The others are clipped to the median norm of all and averaged; if none is
    left, all are. With K = 2 and softmax cross-entropy TE = 2 at every honest client:
    then only the clipping acts.
    """

    inputs: int = 2000

    def __post_init__(self):
        check_whole("DeepSight.inputs", self.inputs, 1, why=", random rows per seed")

    def __call__(self, G, p, w, task):
        # HDBSCAN breaks ties by order: let it not be the clients' order
        G = G[G.sum(1).argsort()]
        keep, norm = self.accept(G, w, task), G.norm(dim=1)
        median = Median()(norm, p, w, task)
        clip = (median / norm.clamp(min=torch.finfo(G.dtype).tiny)).clamp(max=1)
        G = G * clip[:, None]
        return G[keep].mean(0) if keep.any() else G.mean(0)

    def accept(self, G, w, task):
        """Which of the updates to keep, [M] of bool."""
        dW, db = outputs(G, w, task)
        N = neups(dW, db)
        unit = db / db.norm(dim=1, keepdim=True).clamp(min=torch.finfo(db.dtype).tiny)
        apart = lambda d: parted(clusters(d.cpu().numpy()))
        a = apart(distances(unit) ** 2 / 2)  # by 1 - cosine
        b = apart(distances(N))
        c = sum(apart(distances(D)) for D in ddifs(G, w, task, self.inputs))
        # sums of integers: equal distances stay equal
        labels = clusters((len(SEEDS) * (a + b) + c) / (3 * len(SEEDS)))
        return torch.from_numpy(accepted(labels, suspicious(N))).to(G.device)


def outputs(G, w, task):
    """The updates of the output layer, (dW [M, K, D], db [M, K]) in float64."""
    name, head = type(task.network).__name__, task.head
    if task.buffers or [w[k].dim() for k in head] != [2, 1]:
        raise ValueError(
            f"DeepSight on {name}, with the head ({', '.join(head)}) and the buffers "
            f"({', '.join(task.buffers)}): take a network that ends in a linear layer, "
            "and has group norm, for an update holds no buffers"
        )
    at = dict(zip(w, G.split([v.numel() for v in w.values()], 1)))
    return tuple(at[k].double().view(len(G), *w[k].shape) for k in head)


def neups(dW, db):
    """Normalised energy of each output's update [M, K]; 0 for an update of zeros."""
    E = (db.abs() + dW.abs().sum(2)).square()
    return E / E.sum(1, keepdim=True).clamp(min=torch.finfo(E.dtype).tiny)


def suspicious(N):
    """Clients [M] that train at most half as many outputs as the median; N [M, K]."""
    TE = (N > max(0.01, 1 / N.shape[1]) * N.amax(1, keepdim=True)).sum(1).cpu().numpy()
    return TE <= np.median(TE) / 2


def ddifs(G, w, task, n):
    """DDif [M, K] in float64, on n random inputs, for each seed."""
    log_p = lambda w, x: task.logits(w, x).double().log_softmax(1)
    for seed in SEEDS:
        g = torch.Generator().manual_seed(seed)
        x = torch.randn(n, *task.x.shape[1:], generator=g, dtype=torch.float64).to(G)
        server = log_p(w, x)
        log_ratio = (log_p(sub(w, unrow(g_i, w)), x) - server for g_i in G)
        # e^100: large and finite
        yield torch.stack([r.clamp(max=100).exp().mean(0) for r in log_ratio])


def distances(v):
    """Euclidean distances of rows [M, F] -> [M, M], exact for near rows."""
    return torch.cdist(v, v, compute_mode="donot_use_mm_for_euclid_dist")


def clusters(D):
    """HDBSCAN (Campello, Moulavi, Sander, PAKDD 2013) on distances [M, M]: a label per
    client, -1 outside all clusters."""
    from sklearn.cluster import HDBSCAN  # seconds: only for those who use it

    if len(D) < 2:
        return np.zeros(len(D), int)
    how = {"metric": "precomputed", "allow_single_cluster": True, "copy": True}
    return HDBSCAN(min_cluster_size=2, **how).fit_predict(D.round(SAME))


def parted(labels):
    """[M, M]: 1 where two clients are in different clusters, or one in none, else 0."""
    D = ((labels[:, None] != labels) | (labels[:, None] < 0)).astype(int)
    np.fill_diagonal(D, 0)
    return D


def accepted(labels, bad):
    """Clients [M] to keep: clusters less than a third bad, outliers if not bad."""
    keep = ~bad
    for c in set(labels[labels >= 0]):
        keep[labels == c] = 3 * bad[labels == c].sum() < (labels == c).sum()
    return keep


RULES = {r.__name__: r for r in (Mean, Median, TrimmedMean, MultiKrum, DeepSight)}
