"""Aggregation rules: hand-made matrices, independent implementations in numpy, planted
bad updates, and runs by the engine.
"""

import numpy as np
import pytest
import torch
from scipy.stats import trim_mean
from sklearn.cluster import HDBSCAN
from sklearn.metrics.pairwise import cosine_distances
from toys_core import Normed, bowls, gap, state, toy

from fedlib.core import engine
from fedlib.core.method import Round
from fedlib.core.tree import leaves, rows, stack, without
from fedlib.methods.base.fedavg import FedAvg
from fedlib.methods.make import make, piece
from fedlib.nets import MLP
from fedlib.pieces import robust
from fedlib.pieces.robust import RULES, DeepSight, Mean, Median, MultiKrum, TrimmedMean

HAND = torch.tensor(
    [
        [1.0, 10.0, -5.0],
        [2.0, 0.0, 5.0],
        [3.0, 20.0, 0.0],
        [4.0, 30.0, 100.0],
        [90.0, 40.0, 1.0],
    ],
    dtype=torch.float64,
)
ALL = [Mean(), Median(), TrimmedMean(0.2), MultiKrum(0.2), DeepSight(50)]
ROBUST = ALL[1:]


def task_of(K=5, dtype=torch.float64):
    return toy(MLP(5, 6, K), K=K, dtype=dtype)


def call(rule, G, task=None, p=None):
    task = task or task_of(dtype=G.dtype)
    return rule(
        G,
        torch.full((len(G),), 1 / len(G), dtype=G.dtype) if p is None else p,
        task.init(3),
        task,
    )


def numbers(*shape, seed=0):
    return torch.randn(
        *shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )


def updates(M, seed=0, spread=0.3, dtype=torch.float64):
    """Honest updates [M, P] of the K = 5 network: a common direction, and noise."""
    P = sum(v.numel() for v in task_of().init(3).values())
    return (0.1 * (numbers(P, seed=100) + spread * numbers(M, P, seed=seed))).to(dtype)


# -------------------------------------------- the rules in numpy, written a second time
def naive_krum(G, f):
    M, scores = len(G), []
    for i in range(M):
        d = sorted(
            sum((a - b) ** 2 for a, b in zip(G[i], G[j])) for j in range(M) if j != i
        )
        scores.append(sum(d[: M - f - 2]))
    kept = sorted(range(M), key=scores.__getitem__)[: M - f - 2]
    return sorted(kept), np.mean([G[i] for i in kept], 0)


def naive_clusters(v, metric="euclidean"):
    return HDBSCAN(
        min_cluster_size=2,
        allow_single_cluster=True,
        metric=metric,
        algorithm="brute",
        copy=True,
    ).fit_predict(v)


def naive_parted(labels):
    M = len(labels)
    return np.array(
        [
            [
                0.0 if i == j or (labels[i] == labels[j] and labels[i] != -1) else 1.0
                for j in range(M)
            ]
            for i in range(M)
        ]
    )


def softmax(z):
    e = np.exp(z - z.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def mlp(w, x):
    return np.maximum(x @ w[0].T + w[1], 0) @ w[2].T + w[3]


def naive_deepsight(G, w, K, n):
    """(accepted clients, the rule's update) for MLP(5, 6, K); w:
    weight, bias, weight, bias.
    """
    M, start = len(G), [v.numpy() for v in leaves(w)]
    local, changes = [], []
    for g in G:
        parts = np.split(g, np.cumsum([v.size for v in start])[:-1])
        changes.append([d.reshape(v.shape) for d, v in zip(parts, start)])
        local.append([v - d for d, v in zip(changes[-1], start)])
    E = np.array(
        [[(abs(c[3][k]) + sum(abs(c[2][k]))) ** 2 for k in range(K)] for c in changes]
    )
    N = E / E.sum(1)[:, None]
    TE = [
        sum(N[i, k] > max(0.01, 1 / K) * max(N[i]) for k in range(K)) for i in range(M)
    ]
    bad = [te <= np.median(TE) / 2 for te in TE]
    of_ddifs = 0
    for seed in range(3):
        x = torch.randn(
            n, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
        ).numpy()
        D = np.array(
            [(softmax(mlp(v, x)) / softmax(mlp(start, x))).mean(0) for v in local]
        )
        of_ddifs = of_ddifs + naive_parted(naive_clusters(D)) / 3
    by_bias = naive_parted(
        naive_clusters(cosine_distances([c[3] for c in changes]), "precomputed")
    )
    labels = naive_clusters(
        np.round((by_bias + naive_parted(naive_clusters(N)) + of_ddifs) / 3, 9),
        "precomputed",
    )
    keep = []
    for i in range(M):
        mates = (
            [j for j in range(M) if labels[j] == labels[i]] if labels[i] >= 0 else [i]
        )
        share = sum(bad[j] for j in mates) / len(mates)
        keep.append(share < 1 / 3 if labels[i] >= 0 else not bad[i])
    norms = np.linalg.norm(G, axis=1)
    clipped = [g * min(1, np.median(norms) / r) for g, r in zip(G, norms)]
    kept = [g for g, k in zip(clipped, keep) if k] or clipped
    return np.array(keep), np.mean(kept, 0)


# ----------------------------------------------------------- mean, median, trimmed mean
def test_hand_numbers():
    assert call(
        Mean(), HAND, p=torch.tensor([1, 0, 0, 0, 1.0]).double() / 2
    ).tolist() == [45.5, 25, -2]
    assert call(Median(), HAND).tolist() == [3, 20, 1]
    # an even number: between the middle two
    assert call(Median(), HAND[:4]).tolist() == [2.5, 15, 2.5]
    assert call(TrimmedMean(0.2), HAND).tolist() == [3, 20, 2]
    assert call(TrimmedMean(0.4), HAND).tolist() == call(Median(), HAND).tolist()
    # floor(0.1 * 5) = 0
    assert call(TrimmedMean(0.1), HAND).tolist() == HAND.mean(0).tolist()


@pytest.mark.parametrize("M", [1, 2, 5, 8, 10, 51])
def test_median_is_numpys_and_the_trimmed_mean_scipys(M):
    G = numbers(M, 7, seed=M)
    assert np.allclose(call(Median(), G), np.median(G, 0), atol=1e-15)
    for trim in (0, 0.1, 0.25, 0.45):
        assert np.allclose(
            call(TrimmedMean(trim), G), trim_mean(G.numpy(), trim, 0), atol=1e-15
        )


def test_a_share_of_clients_is_rounded_down_but_not_by_the_error_of_a_product():
    assert 0.29 * 100 < 29
    G = numbers(100, 3)
    assert np.allclose(
        call(TrimmedMean(0.29), G), np.sort(G, 0)[29:71].mean(0), atol=1e-15
    )
    assert call(TrimmedMean(0.5 - 1e-12), G[:4]).isfinite().all()  # never all


# ---------------------------------------------------------------- Multi-Krum
def test_krum_by_hand():
    """Points 0, 1, 3, 7, 20 on a line, f = 1, two neighbours each: scores 10, 5, 13,
    52, 458; the two lowest are 1 and 0.
    """
    G = torch.tensor([[20.0], [0.0], [3.0], [1.0], [7.0]], dtype=torch.float64)
    assert call(MultiKrum(0.2), G).tolist() == [0.5]


@pytest.mark.parametrize("M, bad", [(3, 0), (5, 0.2), (10, 0.1), (11, 0.3), (24, 0.45)])
def test_krum_is_the_double_loop(M, bad):
    G = numbers(M, 6, seed=M)
    f = int(bad * M + 1e-9)
    assert np.allclose(call(MultiKrum(bad), G), naive_krum(G.numpy(), f)[1], atol=1e-14)


def test_krum_drops_a_planted_outlier_and_sees_small_differences_far_from_zero():
    G = updates(10)
    G[4] += 5
    kept, mean = naive_krum(G.numpy(), 1)
    assert 4 not in kept and np.allclose(call(MultiKrum(0.1), G), mean)
    # float32: |a|^2 + |b|^2 - 2 ab gives 0
    near = 1000 + torch.tensor([[0.9], [0.5], [0.002], [0.0], [0.001]])
    assert call(MultiKrum(0.2), near).item() == pytest.approx(
        float(naive_krum(near.double().numpy(), 1)[1][0]), abs=1e-4
    )


# -------------------------------------------------------------- DeepSight, part by part
def test_neups_and_threshold_exceedings_by_hand():
    dW = torch.tensor(
        [
            [[1.0, -1.0], [0.0, 0.0], [2.0, 1.0]],
            [[0.0, 0.0]] * 3,
            [[0.0, 0.0], [0.0, 3.0], [0.0, 0.0]],
        ]
    ).double()
    db = torch.tensor([[1.0, -1.0, 0.0], [0.0, 0.0, 0.0], [0.0, 1.0, 0.0]]).double()
    N = robust.neups(dW, db)  # E = 3, 1, 3; nothing; 0, 4, 0
    assert torch.allclose(
        N, torch.tensor([[9.0, 1.0, 9.0], [0, 0, 0], [0, 19, 0]]).double() / 19
    )
    # TE 2, 0, 1; half the median is 1/2
    assert robust.suspicious(N).tolist() == [False, True, False]


def test_suspicious_is_half_the_median_or_less():
    """K = 200, so that the 0.01 counts: TE = 4, 4, 2, 1 (median 3), one output at
    0.009 of the largest not counted.
    """
    N = torch.zeros(4, 200).double()
    for i, te in enumerate((4, 4, 2, 1)):
        N[i, :te] = 1
    N[3, 1:3] = 0.009
    assert robust.suspicious(N).tolist() == [False, False, False, True]
    N[3, 1:3] = 0.011
    assert robust.suspicious(N).tolist() == [False, False, False, False]


def test_ddif_is_one_for_an_unchanged_model_and_moves_with_the_bias():
    """A bias higher by s at output 0 multiplies p_0 by e^s / (1 + p_0 (e^s - 1))."""
    task, s = task_of(), 0.7
    w = task.init(3)
    G = torch.zeros(2, sum(v.numel() for v in w.values())).double()
    G[1, -5] = -s  # the bias comes last: g = w - w_i
    got = list(robust.ddifs(G, w, task, 400))
    assert len(got) == 3 and not torch.equal(got[0], got[1])
    for seed, D in enumerate(got):
        x = torch.randn(
            400, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
        )
        p = task.logits(w, x).softmax(1)[:, :1]
        scale = 1 / (1 + p * (np.exp(s) - 1))
        assert torch.equal(D[0], torch.ones(5).double())
        assert torch.allclose(
            D[1], (scale * torch.tensor([np.exp(s), 1, 1, 1, 1])).mean(0)
        )


def test_clusters_and_the_votes_of_clusterings():
    line = np.array([0, 0.1, 0.2, 5, 5.1, 5.2, 40.0])
    labels = robust.clusters(abs(line[:, None] - line))
    assert labels[0] == labels[1] == labels[2] != labels[3] == labels[4] == labels[5]
    assert labels[6] == -1
    assert robust.parted(np.array([0, 0, 1, -1, -1])).tolist() == [
        [0, 0, 1, 1, 1],
        [0, 0, 1, 1, 1],
        [1, 1, 0, 1, 1],
        [1, 1, 1, 0, 1],
        [1, 1, 1, 1, 0],
    ]
    noise = 1e-12 * numbers(9, 9).numpy() ** 2
    assert (robust.clusters(noise + noise.T) == 0).all()  # rounding makes no clusters
    assert robust.clusters(np.zeros((1, 1))).tolist() == [0]


def test_a_cluster_goes_with_a_third_of_bad_members_and_an_outlier_when_it_is_bad():
    labels = np.array([0, 0, 0, 1, 1, 1, 1, -1, -1])
    bad = np.array([0, 1, 0, 1, 0, 0, 0, 1, 0], bool)
    assert robust.accepted(labels, bad).tolist() == [False] * 3 + [True] * 4 + [
        False,
        True,
    ]


@pytest.mark.parametrize("seed", range(8))
def test_deepsight_is_a_second_reading_of_its_text(seed):
    """Two kinds of honest clients, and four that train one output only; sorted as the
    rule sorts, because HDBSCAN breaks ties by order."""
    task = task_of()
    w = task.init(3)
    G = updates(12, seed, spread=1.0)
    G[:4] += 0.3 * numbers(1, G.shape[1], seed=seed + 50)
    G[8:, -5 - 30 :] *= 0.01
    G[8:, -5] += 0.4
    G = G[G.sum(1).argsort()]
    keep, update = naive_deepsight(G.numpy(), w, 5, 50)
    assert DeepSight(50).accept(G, w, task).tolist() == keep.tolist()
    assert np.allclose(call(DeepSight(50), G, task), update, atol=1e-13)


def test_deepsight_accepts_identical_clients():
    G = updates(1).expand(7, -1)
    assert DeepSight(50).accept(G, task_of().init(3), task_of()).all()
    assert torch.allclose(call(DeepSight(50), G), G[0])
    assert torch.allclose(call(DeepSight(50), G[:1]), G[0])  # one client alone


def attack(M=12, n=4, seed=0):
    """Honest updates, and n that together push one output's bias and weights and
    hardly touch the rest.
    """
    G, bad = updates(M, seed), torch.arange(M) < n
    push = torch.zeros(G.shape[1]).double()
    push[-35:-29], push[-5] = -0.5, -1.0
    G[bad] = push + 1e-3 * numbers(n, G.shape[1], seed=seed + 1)
    return G, bad


@pytest.mark.parametrize("seed", range(5))
def test_deepsight_drops_a_coordinated_attack_on_the_head(seed):
    G, bad = attack(seed=seed)
    assert (
        DeepSight(200).accept(G, task_of().init(3), task_of()).tolist()
        == (~bad).tolist()
    )
    norms = G.norm(dim=1, keepdim=True)
    # the median over all, the bad ones too
    clipped = G * (norms.quantile(0.5) / norms).clamp(max=1)
    assert torch.allclose(call(DeepSight(200), G), clipped[~bad].mean(0))


def test_deepsight_takes_all_when_nothing_is_left():
    """Six clients that differ by 1e-8: one cluster.

    Four train five outputs, two one: the others are just below the threshold.
    """
    # NEUP_k = NEUP_0 / K, but for the 1e-8
    e = torch.full((6, 5), 5**-0.5, dtype=torch.float64)
    e[:, 0] = 1
    e[:, 1:] *= 1 + 1e-8 * torch.tensor([1.0, 1, 1, 1, -1, -1]).double()[:, None]
    G = torch.zeros(6, 71).double()
    G[:, -5:] = 0.01
    G[:, -35:-5:6] = e - 0.01
    w, task = task_of().init(3), task_of()
    assert (
        robust.suspicious(robust.neups(*robust.outputs(G, w, task))).tolist()
        == [False] * 4 + [True] * 2
    )
    assert not DeepSight(50).accept(G, w, task).any()  # two of six are a third
    assert torch.allclose(call(DeepSight(50), G), G.mean(0), atol=1e-7)
    assert G.mean(0).norm() > 1
    zero = torch.zeros_like(G)  # no output is trained: all are suspicious
    assert not DeepSight(50).accept(zero, w, task).any()
    assert torch.equal(call(DeepSight(50), zero), zero[0])


def test_with_two_outputs_the_energies_say_nothing():
    """Softmax cross-entropy moves two outputs by opposite amounts, so DeepSight drops
    nobody who trains honestly.
    """
    task = toy(MLP(5, 6, 2), K=2)
    method, w = FedAvg(task, lr=0.5, epochs=3), task.init(0)
    with torch.no_grad():
        ups = [
            method.local({"w": w}, {}, s)[1]["w"]
            for s in task.shards(0, 0, 1, torch.arange(6), method.plans())
        ]
    G = method.progress(w, stack(ups))
    assert torch.allclose(
        robust.neups(*robust.outputs(G, w, task)),
        torch.full((6, 2), 0.5).double(),
        atol=1e-9,
    )
    norms = G.norm(dim=1, keepdim=True)
    assert torch.allclose(
        DeepSight(50)(G, None, w, task),
        (G * (norms.quantile(0.5) / norms).clamp(max=1)).mean(0),
    )


# ---------------------------------------------------------------- all rules
@pytest.mark.parametrize("rule", ALL, ids=repr)
def test_the_order_of_clients_does_not_matter(rule):
    for seed in (0, 2, 11, 12, 13):  # in all but 0 DeepSight's final distances tie
        G = 3 * updates(11, seed, spread=1.0)
        G[7:, -35:] *= 0.01
        G[7:, -5] += 0.4
        assert torch.allclose(
            call(rule, G),
            call(
                rule,
                G[torch.randperm(11, generator=torch.Generator().manual_seed(seed))],
            ),
            atol=1e-14,
        )


@pytest.mark.parametrize("rule", ROBUST, ids=repr)
def test_weights_do_not_matter_but_to_the_mean(rule):
    G = updates(9)
    p = torch.arange(9).double() / 36
    assert torch.equal(call(rule, G, p=p), call(rule, G))
    assert not torch.allclose(call(Mean(), G, p=p), call(Mean(), G))


@pytest.mark.parametrize("rule", ALL, ids=repr)
def test_both_precisions(rule):
    for G in (updates(11, spread=1.0), attack()[0]):
        low = call(rule, G.float())
        assert low.dtype == torch.float32 and low.shape == G.shape[1:]
        assert torch.allclose(low.double(), call(rule, G), atol=1e-6)


BAD = {
    "sign-flipped": lambda g: -g,
    "100 times": lambda g: 100 * g,
    "garbage": lambda g: 1e4 * numbers(*g.shape, seed=9),
}


@pytest.mark.parametrize("how", BAD)
@pytest.mark.parametrize("rule", ROBUST, ids=repr)
def test_two_bad_updates_of_eleven_pull_the_mean_away_and_not_the_robust_rules(
    rule, how
):
    """DeepSight accepts these, shortened: energies have no sign.

    A flipped update is no longer than others, and does its harm.
    """
    G = updates(11)
    honest = G[2:].mean(0)
    G[:2] = BAD[how](G[:2])
    far, close = (
        float((call(r, G) - honest).norm() / honest.norm()) for r in (Mean(), rule)
    )
    assert far > 0.35
    if isinstance(rule, DeepSight):
        assert DeepSight(50).accept(G, task_of().init(3), task_of()).all()
        assert close < 0.3 if how != "sign-flipped" else 0.35 < close < 0.4
    else:
        assert close < 0.2


@pytest.mark.parametrize("rule", ALL, ids=repr)
def test_a_run_uses_the_rule_in_the_loop_and_under_vmap(rule):
    task = toy()
    run = lambda how, R: engine.run(
        FedAvg(task, rule=rule, lr=0.3), rounds=R, seed=1, how=how, device="cpu"
    )
    assert gap(state(run("loop", 3)), state(run("vmap", 3))) < 1e-12
    method, w = FedAvg(task, rule=rule, lr=0.3), task.init(1)
    with torch.no_grad():
        shards = task.shards(1, 0, 1, torch.arange(task.C), method.plans())
        ups = stack([method.local({"w": w}, {}, s)[1] for s in shards])
        g = rule(
            rows({k: w[k] - v for k, v in ups["w"].items()}),
            ups["n"] / ups["n"].sum(),
            w,
            task,
        )
        by_hand = torch.cat([v.flatten() for v in w.values()]) - g
        after = run("loop", 1).state["server"]["w"]
    assert torch.allclose(
        torch.cat([v.flatten() for v in after.values()]), by_hand, atol=1e-13
    )


def test_rules_other_than_deepsight_leave_buffers_to_the_mean():
    task = toy(Normed(5, 6, 3))
    method, w = FedAvg(task, rule=MultiKrum()), task.init(0)
    ws = stack(
        [
            {k: v + 0.1 * numbers(*v.shape, seed=i) for k, v in w.items()}
            for i in range(5)
        ]
    )
    p = torch.tensor([0.1, 0.2, 0.3, 0.3, 0.1]).double()
    new = method.aggregate({"w": w}, {"w": ws, "n": p}, Round(0, 1, None, None, None))[
        "w"
    ]
    assert task.buffers
    assert all(
        torch.allclose(new[k], torch.tensordot(p, ws[k], 1)) for k in task.buffers
    )
    kept = naive_krum(rows(without(ws, task.buffers)).numpy(), 0)[0]
    assert all(
        torch.allclose(new[k], ws[k][kept].mean(0)) for k in without(w, task.buffers)
    )


# ----------------------------------------------------------- names, and what is refused
def test_rules_by_name():
    assert piece("rule", "Median") == Median()
    assert piece("rule", {"name": "TrimmedMean", "trim": 0.2}) == TrimmedMean(0.2)
    assert {k: type(piece("rule", k)) for k in RULES} == RULES
    task = toy()
    assert make(
        "FedAvg", task, rule={"name": "DeepSight", "inputs": 9}
    ).rule == DeepSight(9)


@pytest.mark.parametrize(
    "do, say",
    [
        (lambda: TrimmedMean(0.5), r"trim = 0\.5.*give 0 <= trim < 0\.5"),
        (lambda: TrimmedMean(-0.1), r"trim = -0\.1"),
        (lambda: TrimmedMean(float("nan")), "trim = nan"),
        (lambda: MultiKrum(0.5), r"bad = 0\.5.*minority"),
        (lambda: MultiKrum(-1), "bad = -1"),
        (lambda: DeepSight(0), "inputs = 0.*1 or more"),
        (lambda: DeepSight(1.5), r"inputs = 1\.5"),
        (
            lambda: call(MultiKrum(0), HAND[:2]),
            (
                r"M = 2 updates, f = 0 .*M > 2 f \+ 2 = 2: take more clients .* "
                r"smaller share"
            ),
        ),
        (lambda: call(MultiKrum(0.4), HAND), "M = 5 updates, f = 2"),
        (
            lambda: piece("rule", "Krum"),
            "unknown rule 'Krum'.*did you mean 'MultiKrum'",
        ),
        (
            lambda: piece("rule", {"name": "Trimed", "trim": 0.1}),
            "did you mean 'TrimmedMean'",
        ),
        (
            lambda: piece("rule", {"name": "TrimmedMean", "trm": 0.1}),
            "TrimmedMean has no 'trm'; did you mean 'trim'",
        ),
        (lambda: piece("rule", {"trim": 0.1}), "unknown rule None"),
        (
            lambda: call(DeepSight(), HAND, toy(Normed(5, 6, 3))),
            "Normed.*holds no buffers.*group norm, or another rule",
        ),
        (
            lambda: call(DeepSight(), HAND, bowls([[0.0, 1.0]])),
            "Bowl: the head v is not one weight.*linear layer with a bias",
        ),
    ],
)
def test_bad_input_is_refused_with_a_remedy(do, say):
    with pytest.raises(ValueError, match=say):
        do()


def test_a_cohort_too_small_for_krum_is_named_by_the_run():
    with pytest.raises(ValueError, match="M = 2 updates"):
        engine.run(FedAvg(toy(), rule=MultiKrum()), rounds=1, cohort=2, device="cpu")
