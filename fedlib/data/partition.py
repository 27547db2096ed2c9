"""Who holds what: cut samples into clients.

Each function returns one LongTensor of rows per client, ascending. Every row goes to
exactly one client, and the same arguments give the same clients.
Letters: C clients, N samples, K classes.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..core.errors import refuse_if, short
from .settings import Count, Positive, Seed, Whole, settings

TRIES = 10_000  # redraws before the Dirichlet partitions give up


@settings
def dirichlet(
    y: Tensor, clients: Count, alpha: Positive, seed: Seed = 0, least: Whole = 20
) -> list[Tensor]:
    """Label skew: the rows of each class are shared out by proportions drawn from
    Dirichlet(alpha, ..., alpha) over clients.

    y [N] classes; alpha small: a client has few classes, alpha large: all clients look
    alike. `least`: every client gets at least so many rows, by drawing all proportions
    again until it holds (Hsu, Qi and Brown, 2019; the redraw is Yurochkin et al., ICML
    2019). `alpha` is the value of every coordinate; other code multiplies it by the
    class frequencies.
    """

    def cuts(rng, count):
        share = rng.dirichlet(np.full(clients, alpha), len(count))  # rows sum to 1
        at = np.rint(share.cumsum(1) * count[:, None]).astype(int)  # [K, C]
        at[:, -1] = count
        return at

    return redrawn(cuts, y, clients, seed, least)


@settings
def dirichlet_capped(
    y: Tensor, clients: Count, alpha: Positive, seed: Seed = 0, least: Whole = 40
) -> list[Tensor]:
    """Label skew with a cap: as `dirichlet`, but class by class, and a client that
    already has its share gets no further class.

    y [N] classes. For k = 0, 1, ... proportions are drawn from Dirichlet(alpha,
    ..., alpha), those of the clients that hold N / C rows or more are set to 0, and
    the others share class k. The cap closes a client, it does not bound it: the class
    that reaches N / C may carry it far beyond. All is drawn again until every client
    has `least` rows (the code of FedAS, CVPR 2024; there 40 rows, of which 30 are for
    training).
    """

    def cuts(rng, count):
        at, held = np.zeros((len(count), clients), int), np.zeros(clients, int)
        for cut, n in zip(at, count):
            share = rng.dirichlet(np.full(clients, alpha))
            under = share * (held < len(y) / clients)  # [C]
            edge = (under if under.any() else share).cumsum()  # all closed: as drawn
            cut[:] = edge / edge[-1] * n  # down; exactly 1 from the last open on
            held += np.diff(cut, prepend=0)
        return at

    return redrawn(cuts, y, clients, seed, least)


@settings
def labels_per_client(
    y: Tensor, clients: Count, labels: Count, seed: Seed = 0
) -> list[Tensor]:
    """Label skew in the manner of McMahan et al. (AISTATS 2017): every client holds
    exactly `labels` classes.

    y [N]. Classes are dealt so that they have equally many holders (to within one); a
    class is shared equally by its holders. ValueError where the clients cannot hold all
    classes, or a class has fewer rows than holders.
    """
    of_class, _ = by_class(y)
    K, rng = len(of_class), np.random.default_rng(seed)
    holds = np.zeros((K, clients), bool)
    for c in range(clients):  # the fewest holders so far, ties at random
        holds[np.lexsort((rng.random(K), holds.sum(1)))[:labels], c] = True
    return shared(y, holds, labels, rng)


@settings
def ring(y: Tensor, clients: Count, labels: Count, seed: Seed = 0) -> list[Tensor]:
    """Label skew in a ring of classes: client c holds `labels` classes in a row, from
    class c on, counted modulo K.

    y [N]. With fewer clients than classes the clients start at floor(c K / C) instead,
    so that ceil(K / C) labels reach every class. A class is shared equally, to within
    one row, by its holders. ValueError where a class has no holder, or fewer rows than
    holders.
    """
    K = len(by_class(y)[0])
    start = np.arange(clients) * max(K, clients) // clients
    holds = (np.arange(K)[:, None] - start) % K < labels  # [K, C]
    return shared(y, holds, labels, np.random.default_rng(seed))


def natural(owner: Tensor) -> list[Tensor]:
    """One client per distinct owner, in ascending order; owner [N] as in Pool.owner."""
    owner = np.asarray(owner)
    return [ascending(np.flatnonzero(owner == o)) for o in np.unique(owner)]


@settings
def by_domain(owner: Tensor, per_domain: Count = 1, seed: Seed = 0) -> list[Tensor]:
    """Feature skew: `per_domain` clients of equal size (to within one row) for each
    domain; owner [N].

    Client number = position of the domain * per_domain + j. ValueError where a domain
    has fewer rows than clients.
    """
    rng, clients = np.random.default_rng(seed), []
    for d, rows in enumerate(natural(owner)):
        few = f"per_domain = {per_domain}: domain {d} has {len(rows)} rows"
        refuse_if(per_domain > len(rows), few)
        pieces = np.array_split(rng.permutation(rows.numpy()), per_domain)
        clients += [ascending(piece) for piece in pieces]
    return clients


def counts(rows: list[Tensor], y: Tensor, K: int) -> Tensor:
    """[C, K] number of rows of each class at each client."""
    return torch.stack([torch.bincount(y[r], minlength=K) for r in rows])


def by_class(y):
    """The rows of each class, and how many they are [K]."""
    y = np.asarray(y)
    good = y.ndim == 1 and len(y) and y.dtype.kind in "iu" and y.min() >= 0
    wanted = "give whole numbers [N] from 0 on"
    refuse_if(not good, f"y, {y.dtype} {list(y.shape)}, {short(y)}: {wanted}")
    of_class = [np.flatnonzero(y == k) for k in range(int(y.max()) + 1)]
    return of_class, np.array([len(rows) for rows in of_class])


def shared(y, holds, labels, rng):
    """Classes shared by their holders [K, C]; ValueError for none, or too few rows."""
    (of_class, count), (K, clients), holders = by_class(y), holds.shape, holds.sum(1)
    k = int(((holders == 0) | (count < holders)).argmax())
    refuse_if(
        labels > K or not 0 < holders[k] <= count[k],
        f"{clients} clients with {labels} labels: class {k} of {K} has {count[k]} rows "
        f"for {holders[k]} clients; use {-(-K // clients)} to {K} labels, or fewer",
    )
    turn = holds.cumsum(1) - 1  # position among the holders of the class
    one_more = turn < (count % holders)[:, None]
    n = holds * ((count // holders)[:, None] + one_more)
    return deal(of_class, n.cumsum(1), rng)


def redrawn(cuts, y, clients, seed, least):
    """Clients of `least` rows, cut at cuts(rng, count) [K, C], drawn until so."""
    rng = np.random.default_rng(seed)
    of_class, count = by_class(y)
    for _ in range(TRIES if len(y) >= clients * least else 0):
        at = cuts(rng, count)
        held = np.diff(at, axis=1, prepend=0).sum(0)
        if held.min() >= least:
            return deal(of_class, at, rng)
    raise ValueError(
        f"{clients} clients of at least {least} of {len(y):,} rows: no draw of "
        f"{TRIES:,} gave them; use a larger alpha, fewer clients or a smaller `least`"
    )


def deal(of_class, cuts, rng):
    """Class k, shuffled, is cut at cuts[k] [C]; the last is its number of rows."""
    shuffled = (rng.permutation(rows) for rows in of_class)
    pieces = [np.split(rows, at[:-1]) for rows, at in zip(shuffled, cuts)]
    return [ascending(np.concatenate(client)) for client in zip(*pieces)]


def ascending(rows):
    return torch.from_numpy(np.sort(rows)).long()
