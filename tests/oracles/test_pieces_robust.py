"""Aggregation rules: hand-made matrices, loops in numpy, scipy, planted updates."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from toys_core import Normed, gap, toy
from toys_replay import f64, noise

from fedlib.core.tree import leaves, stack
from fedlib.methods.base.fedavg import FedAvg
from fedlib.nets import MLP
from fedlib.pieces import robust
from fedlib.pieces.robust import DeepSight, Mean, Median, MultiKrum, TrimmedMean

TASK = toy(MLP(5, 6, 5), K=5)
W = TASK.init(3)
P = sum(v.numel() for v in leaves(W))
ALL = [Mean(), Median(), TrimmedMean(0.2), MultiKrum(0.2), DeepSight(50)]


def call(rule, G, p=None):
    return rule(G, torch.full_like(G[:, 0], 1 / len(G)) if p is None else p, W, TASK)


def updates(M, seed=0, spread=0.3):
    """Honest updates [M, P]: a common direction, and noise."""
    return 0.1 * (noise(P, seed=100) + spread * noise(M, P, seed=seed))


@given(
    st.integers(1, 30), st.integers(0, 99), st.sampled_from([0, 0.1, 0.25, 0.3, 0.45])
)
def test_median_trimmed_mean_and_krum_are_those_of_others(M, seed, share):
    """numpy's median, scipy's trimmed mean, and Krum by a double loop."""
    from scipy.stats import trim_mean

    G = noise(M, 5, seed=seed)
    assert np.allclose(call(Median(), G), np.median(G, 0), atol=1e-14)
    assert np.allclose(call(TrimmedMean(share), G), trim_mean(G.numpy(), share, 0))
    assert np.allclose(call(Mean(), G, G[:, 0]), G[:, 0] @ G)
    f, G = int(share * M + 1e-9), G.numpy()
    if M <= 2 * f + 2:
        with pytest.raises(ValueError, match="MultiKrum"):
            call(MultiKrum(share), f64(G))
        return
    scores = []
    for i in range(M):
        d = sorted(((G[i] - G[j]) ** 2).sum() for j in range(M) if j != i)
        scores.append(sum(d[: M - f - 2]))
    kept = sorted(range(M), key=scores.__getitem__)[: M - f - 2]
    assert np.allclose(call(MultiKrum(share), f64(G)), G[kept].mean(0), atol=1e-12)


def test_rules_in_numbers():
    G = f64([[1.0, 10, -5], [2, 0, 5], [3, 20, 0], [4, 30, 100], [90, 40, 1]])
    assert call(TrimmedMean(0.2), G).tolist() == [3, 20, 2]
    G = noise(100, 3)  # 0.29 * 100 is below 29 in floating point
    assert np.allclose(call(TrimmedMean(0.29), G), np.sort(G, 0)[29:71].mean(0))
    # scores 10, 5, 13, 52, 458 of 0, 1, 3, 7, 20: the two lowest are 1 and 0
    assert call(MultiKrum(0.2), f64([[20.0], [0], [3], [1], [7]])).tolist() == [0.5]
    near = 1000 + torch.tensor([[0.9], [0.5], [0.002], [0.0], [0.001]])
    assert float(call(MultiKrum(0.2), near)) == pytest.approx(1000.0005, abs=2e-4)


@pytest.mark.parametrize("rule", ALL, ids=lambda r: type(r).__name__)
def test_what_must_not_matter(rule):
    """The order of clients; their sizes, but to the mean; two bad ones of eleven."""
    for seed in (0, 2, 11, 12):  # in all but 0 DeepSight's last distances tie
        G = 3 * updates(11, seed, spread=1.0)
        G[7:, -35:] *= 0.01
        G[7:, -5] += 0.4
        order = torch.randperm(11, generator=torch.Generator().manual_seed(seed))
        assert torch.allclose(call(rule, G), call(rule, G[order]), atol=1e-13)
    p = torch.arange(11).double() / 55
    assert torch.equal(call(rule, G, p), call(rule, G)) == (rule != Mean())
    G = updates(11)
    honest = G[2:].mean(0)
    for bad in (-100 * G[:2], 1e4 * noise(2, P, seed=9)):
        apart = (call(rule, torch.cat([bad, G[2:]])) - honest).norm() / honest.norm()
        assert apart > 5 if rule == Mean() else apart < 0.5, float(apart)


def test_energies_and_suspicion_by_hand():
    dW = f64([[[1, -1], [0, 0], [2, 1]], [[0, 0]] * 3, [[0, 0], [0, 3], [0, 0]]])
    N = robust.neups(dW, f64([[1, -1, 0], [0, 0, 0], [0, 1, 0]]))  # E = 3 1 3; 0; 0 4 0
    assert np.allclose(N * 19, [[9, 1, 9], [0, 0, 0], [0, 19, 0]])
    assert robust.suspicious(N).tolist() == [False, True, False]  # TE 2, 0, 1
    # K = 200, so that the 0.01 counts: TE 4, 4, 2, 1 (median 3)
    for at, bad in ((0.009, True), (0.011, False)):
        N = (torch.arange(200) < f64([4, 4, 2, 1])[:, None]).double()
        N[3, 1:3] = at
        assert robust.suspicious(N).tolist() == [False, False, False, bad], at


def test_votes_and_verdicts_by_hand():
    labels = np.array([0, 0, 0, 1, 1, 1, 1, -1, -1])
    bad = np.array([0, 1, 0, 1, 0, 0, 0, 1, 0], bool)
    want = [False] * 3 + [True] * 4 + [False, True]  # a third of bad ones is too many
    assert robust.accepted(labels, bad).tolist() == want
    got = robust.parted(np.array([0, 0, 1, -1, -1])).tolist()
    alone = [[1, 1, 0, 1, 1], [1, 1, 1, 0, 1], [1, 1, 1, 1, 0]]
    assert got == [[0, 0, 1, 1, 1]] * 2 + alone
    line = np.array([0, 0.1, 0.2, 5, 5.1, 5.2, 40.0])
    got = robust.clusters(abs(line[:, None] - line))
    assert (
        len({*got[:3]}) == len({*got[3:6]}) == 1 and got[0] != got[3] and got[6] == -1
    )
    small = 1e-12 * noise(9, 9).numpy() ** 2
    assert (robust.clusters(small + small.T) == 0).all()  # rounding makes no clusters


def test_deepsight_leaves_nothing_of_a_coordinated_attack_on_the_head():
    """The mean of the honest updates, clipped to the median length of all."""
    for seed in range(6):
        G, bad = updates(12, seed), torch.arange(12) < 4
        push = torch.zeros(P).double()
        push[-35:-29], push[-5] = -0.5, -1.0
        G[bad] = push + 1e-3 * noise(4, P, seed=seed + 1)
        assert DeepSight(200).accept(G, W, TASK).tolist() == (~bad).tolist()
        size = G.norm(dim=1, keepdim=True)
        clipped = G * (size.quantile(0.5) / size).clamp(max=1)
        assert torch.allclose(call(DeepSight(200), G), clipped[~bad].mean(0))
    same = updates(1).expand(7, -1)
    assert torch.allclose(call(DeepSight(50), same), same[0])
    assert torch.allclose(call(DeepSight(50), same[:1]), same[0])  # one client alone
    still = noise(7, P)  # heads that do not move: all are suspicious, so all are taken
    still[:, -35:] = 0
    assert not DeepSight(50).accept(still, W, TASK).any()
    size = still.norm(dim=1, keepdim=True)
    clipped = still * (size.median() / size).clamp(max=1)
    assert torch.allclose(call(DeepSight(50), still), clipped.mean(0))


def test_rules_act_on_parameters_and_leave_buffers_to_the_mean():
    task = toy(Normed(5, 6, 3))
    ws = stack([task.init(s) for s in range(5)])
    w, p = task.init(9), f64([0.1, 0.3, 0.2, 0.25, 0.15])
    for name, rule in (("Median", Median()), ("TrimmedMean", TrimmedMean(0.2))):
        got = FedAvg(task, rule=rule).combine(w, ws, p)
        for k in w:
            mean = torch.tensordot(p, ws[k], 1)
            middle = ws[k].sort(0).values
            middle = middle[2] if name == "Median" else middle[1:4].mean(0)
            assert gap([got[k]], [mean if k in task.buffers else middle]) < 1e-12, k
