"""Partitions: every row once, ascending, the same again, and what each promises by its
formula."""

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from fedlib.data import partition as p

CUTS = {  # name: (clients, seed, how many labels) -> the cut of y
    "dirichlet": lambda y, C, s, k: p.dirichlet(y, C, 0.3 * k, s, least=0),
    "capped": lambda y, C, s, k: p.dirichlet_capped(y, C, 0.3 * k, s, least=0),
    "labels": lambda y, C, s, k: p.labels_per_client(y, C, k, s),
    "ring": lambda y, C, s, k: p.ring(y, C, k, s),
    "domains": lambda y, C, s, k: p.by_domain(y, k, s),
}
seeds = st.integers(0, 10**6)


def rows_by_class(K, seed):
    """y [N] in any order, 40 rows or more of each class."""
    r = np.random.RandomState(seed)
    y = np.repeat(np.arange(K), r.randint(40, 90, K))
    return torch.from_numpy(r.permutation(y))


@pytest.mark.parametrize("how", CUTS)
@given(st.integers(1, 14), st.integers(2, 8), seeds, st.data())
def test_every_row_is_held_once(how, C, K, seed, data):
    k = data.draw(st.integers(1, K))
    assume(how not in ("labels", "ring") or C * k >= K)
    assume(how != "ring" or k >= -(-K // C))
    y = rows_by_class(K, seed)
    clients = CUTS[how](y, C, seed, k)
    assert len(clients) == (K * k if how == "domains" else C)
    assert torch.equal(torch.cat(clients).sort().values, torch.arange(len(y)))
    for rows in clients:
        assert rows.dtype == torch.int64 and torch.equal(rows, rows.sort().values)
    assert all(map(torch.equal, clients, CUTS[how](y, C, seed, k)))
    n = p.counts(clients, y, K)
    assert n.tolist() == [[int((y[r] == c).sum()) for c in range(K)] for r in clients]
    holders = (n > 0).sum(0)
    if how in ("labels", "ring"):
        assert ((n > 0).sum(1) == k).all(), "every client its labels"
        for own in n.T:
            assert own[own > 0].max() - own[own > 0].min() <= 1, "shared equally"
    if how == "labels":
        assert holders.max() - holders.min() <= 1
    if how == "ring":
        start = [c * K // C if C < K else c % K for c in range(C)]
        at = [{(s + i) % K for i in range(k)} for s in start]
        assert [set(row.nonzero()[:, 0].tolist()) for row in n] == at
        turn = n.T[n.T > 0].split(holders.tolist())
        assert all((own.diff() <= 0).all() for own in turn), "the first have one more"
    if how == "domains":
        assert all((n[d * k : (d + 1) * k].sum(0) > 0).nonzero() == d for d in range(K))
        assert all(int(v.max() - v.min()) <= 1 for v in n.sum(1).view(K, k))


def test_another_seed_deals_other_rows():
    y = rows_by_class(6, 0)
    for how, cut in CUTS.items():
        a, b = cut(y, 6, 0, 2), cut(y, 6, 1, 2)
        assert [r.tolist() for r in a] != [r.tolist() for r in b], how


@pytest.mark.parametrize("cut", [p.dirichlet, p.dirichlet_capped])
def test_shares_follow_dirichlet(cut):
    """Mean 1/C, variance (1/C)(1 - 1/C) / (alpha C + 1); of capped ones in class 0."""
    C, K, alpha = 4, 20, 0.8
    y = torch.arange(K).repeat_interleave(400)
    first = 1 if cut is p.dirichlet_capped else K
    of = lambda seed: p.counts(cut(y, C, alpha, seed, 0), y, K)[:, :first]
    share = torch.cat([of(s) for s in range(1600 // first)], 1) / 400
    variance = (1 / C) * (1 - 1 / C) / (alpha * C + 1)
    assert float(share.var()) == pytest.approx(variance, rel=0.12)
    assert torch.allclose(share.mean(1), torch.full((C,), 1 / C), atol=0.03)


@pytest.mark.parametrize("cut", [p.dirichlet, p.dirichlet_capped])
def test_nobody_has_fewer_rows_than_the_least(cut):
    y = rows_by_class(10, 1)
    least = lambda n: [min(map(len, cut(y, 8, 0.2, seed, n))) for seed in range(12)]
    assert min(least(30)) >= 30 and min(least(10)) >= 10
    assert min(least(0)) < 30, "a promise that costs nothing"


@given(seeds, st.sampled_from([0.05, 0.3]))
def test_a_client_at_the_cap_gets_no_further_class(seed, alpha):
    C, K = 8, 30
    y = torch.arange(K).repeat_interleave(40)
    n = p.counts(p.dirichlet_capped(y, C, alpha, seed, 0), y, K)
    before = n.cumsum(1) - n  # rows when class k is dealt
    assert (n[before >= len(y) / C] == 0).all()
    m = p.counts(p.dirichlet(y, C, alpha, seed, 0), y, K)
    assert m[m.cumsum(1) - m >= len(y) / C].any(), "without the cap they go on"
    y = y[y != 4]  # a class that is missing, and one client
    few, one = p.dirichlet_capped(y, 5, 1, seed, 0), p.dirichlet(y, 1, 1)
    for rows in (few, one):
        assert torch.cat(rows).sort().values.tolist() == [*range(len(y))]


def test_owners_are_clients_in_their_order():
    owner = torch.tensor([7, 2, 2, 9, 7, 2, 9, 9, 9, 2])
    want = [[1, 2, 5, 9], [0, 4], [3, 6, 7, 8]]
    assert [r.tolist() for r in p.natural(owner)] == want
    assert [r.tolist() for r in p.by_domain(owner)] == want
    assert [len(r) for r in p.by_domain(owner, 2, 3)] == [2, 2, 1, 1, 2, 2]


def test_what_cannot_be_cut_is_refused():
    y = torch.arange(100) % 10
    for act, *names in (
        (lambda: p.dirichlet(y, 20, 0.5), "20", "100"),
        (lambda: p.dirichlet_capped(y % 2, 3, 1), "3", "40"),
        (lambda: p.ring(y, 4, 2), "class 4", "3"),
    ):
        with pytest.raises(ValueError) as e:
            act()
        assert all(n in str(e.value) for n in names), str(e.value)
