"""Distances of features, surrogates of bias, condensation, privacy, secure sums and
aggregation rules: closed forms, other libraries, planted updates."""

import math
import random
from dataclasses import replace
from itertools import combinations, product
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from toys_core import Normed, gap, same, toy
from toys_plain import f64, flat, near, noise

from fedlib.core.pool import Block, Groups, parity
from fedlib.core.shards import Batch
from fedlib.core.tree import leaves, pick
from fedlib.nets import MLP, Linear
from fedlib.pieces import align, condense, robust, secure
from fedlib.pieces import surrogates as bias
from fedlib.pieces.privacy import epsilon
from fedlib.pieces.robust import DeepSight, Mean, Median, MultiKrum, TrimmedMean
from fedlib.pieces.secure import Fixed, Party, total


def explicit(name, z, z0):
    if name == "moments":
        return (z.mean(0) - z0.mean(0)).square().mean()
    if name == "coral":
        both = torch.cov(z.T) - torch.cov(z0.T) if len(z) > 1 else z.sum() * 0
        return explicit("moments", z, z0) + both.square().mean()
    if name == "l2":
        return (z - z0).square().mean()
    d2 = lambda a, b: (a[:, None] - b[None]).square().sum(2)
    k = lambda a, b: sum((-(10.0**g) * d2(a, b)).exp() for g in range(-3, 4)).mean()
    return k(z, z) + k(z0, z0) - 2 * k(z, z0)


def test_distances_of_clouds_are_those_of_their_covariances_and_kernels():
    """Value and gradient; padding counts for nothing, alone and for many at once."""
    sizes = (7, 3), (4, 9), (2, 5), (1, 4)
    for (name, f), (n, D) in product(align.LOSSES.items(), sizes):
        z, z0 = 0.7 * noise(n, D, seed=1), noise(n, D, seed=2) + 0.3
        m, z = (torch.arange(n + 3) < n).double(), z.requires_grad_()
        far = [F.pad(v, (0, 0, 0, 3), value=s) for v, s in ((z, 1e2), (z0, -1e2))]
        want = explicit(name, z, z0)
        for got in (f(z, z0), f(*far, m)):
            slope = lambda v, z=z: torch.autograd.grad(v, z, retain_graph=True)[0]
            assert gap([got, slope(got)], [want, slope(want)]) < 1e-9, (name, n, D)
        assert abs(float(f(z, z).detach())) < 1e-12 < float(got.detach())
    means = f64([[0], [0], [3], [3], [9], [9]])
    v = means + f64([[1], [-1]]).repeat(3, 1)
    between = 2 * np.var([0, 3, 9]) * 3
    assert align.spread(v, means[:, 0]) == pytest.approx(between / (between + 6))


COLUMNS = Block("sex", "flag", 0, 1), Block("age", "number", 1, 5)
SEX = Groups("sex", ("f", "m"), (1, 2), 0, (), COLUMNS)
PEOPLE = toy(groups=SEX)
# rows with a group in column 0, and soft labels
SOME = {"x": noise(24, 5, seed=3), "q": noise(24, 3, seed=4).softmax(-1)}
SOME["x"][:, 0] = torch.arange(24) % 2


def test_surrogates_are_means_over_subsets():
    """With hard labels, in numpy; scikit-learn's neighbours; zeros do not count."""
    from sklearn.neighbors import NearestNeighbors

    n, x = 60, noise(90, 3, seed=9)
    k = NearestNeighbors(n_neighbors=5).fit(x[:n]).kneighbors(return_distance=False)
    assert np.array_equal(bias.neighbours(x[:n]), k)
    for A, form in ((2, "ce"), (3, "ce"), (3, "prob")):
        odds = (2 * noise(90, 2)).log_softmax(-1)
        a, y = torch.arange(n) % A, (torch.arange(n) // A) % 2
        omega = torch.zeros(90, A, 2).double()
        omega[torch.arange(n), a, y] = 1
        p = odds[:n, 1].exp().numpy()
        l0, l1 = (p, p) if form == "prob" else -odds[:n].numpy().T
        a, y = a.numpy(), y.numpy()
        of = [a == i for i in range(A)]
        means = lambda v, at, of=of: np.array([v[i & at].mean() for i in of])
        good = means(l1, y == 1)
        want = {"DP": np.ptp(means(l1, y >= 0)), "CON": abs(p - p[k].mean(1)).mean()}
        want["EO"] = np.ptp(means(l0, y == 0)) + np.ptp(good)
        want["CAL"] = abs(good - l1[y == 1].mean()).max()
        close = bias.neighbours(x, 5, (torch.arange(90) < n).double())
        for name, value in want.items():
            for o, want in ((omega, value), (0 * omega, 0)):
                got = float(bias.SURROGATES[name](odds, o, close, form))
                assert got == pytest.approx(want, rel=1e-9), (name, A, form)
    x, m = f64([[0], [1], [3], [3.1]]), f64([1, 1, 0, 1])
    assert bias.neighbours(x, 2, m).tolist() == [[1, 3], [0, 3], [3, 1], [1, 0]]
    assert bias.neighbours(x[:3], 2, m[:3]).tolist() == [[1, -1], [0, -1], [1, 0]]
    assert bias.neighbours(x[:1]).shape == (1, 0)


def test_fairness_on_synthetic_rows_and_the_penalty_of_a_batch():
    """Batch norm in evaluation, and in training; a lacking cell costs nothing."""
    for task in (PEOPLE, replace(PEOPLE, network=Normed(5, 6, 3))):
        S, w = SOME, near(task.init(0))
        two = lambda p: torch.stack([p[:, 0], p[:, 1] + p[:, 2]], 1)
        odds = two(task.logits(w, S["x"]).softmax(-1)).log()
        omega, rows = torch.zeros(24, 2, 2).double(), torch.arange(24)
        omega[rows, rows % 2] = two(S["q"])
        r = torch.arange(40)
        b = Batch(task.x[r], task.y[r], task.a[r], None, r, None, 8)
        hot, trained = F.one_hot(b.y, 3).double(), task.logits(w, b.x, b)
        for name, f in bias.SURROGATES.items():
            for form in bias.FORMS:
                want = f(odds, omega, bias.neighbours(S["x"], 3), form)
                F_ = bias.fairness(name, task, S, form, 3)
                assert gap([F_(w)], [want]) < 1e-12, name
            want = f(SEX.odds(trained), SEX.cells(hot, b.x), bias.neighbours(b.x))
            assert gap([bias.penalty(name, task, w, b)], [want]) < 1e-12, name
    task, w, good = PEOPLE, PEOPLE.init(0), SEX.outcome(PEOPLE.y)
    needed = {"EO": [*np.ndindex(2, 2)], "DP": [], "CAL": [(0, 1), (1, 1)], "CON": []}
    for name, cells in needed.items():
        for i, j in np.ndindex(2, 2):
            r = (~((task.a == i) & (good == j))).nonzero()[:, 0]
            b = Batch(task.x[r], task.y[r], task.a[r], None, r, None, 8)
            none = float(bias.penalty(name, task, w, b)) == 0
            assert none == ((i, j) in cells), (name, i, j)
    a, groups = parity(task.y, 3)
    images, S = replace(task, a=a, groups=groups), SOME
    loss = -(task.logits(w, S["x"]).softmax(1)[:, 1:].sum(1)).log()
    even, odd = S["q"][:, 0] + S["q"][:, 2], S["q"][:, 1]
    want = (even @ loss / even.sum() - odd @ loss / odd.sum()).abs()
    assert gap([bias.fairness("DP", images, S)(w)], [want]) < 1e-12


@settings(max_examples=8)
@given(st.integers(2, 5), st.integers(0, 99), st.sampled_from(["none", "l2", "loss"]))
def test_mgda_is_the_shortest_vector_of_the_hull(n, seed, normalise):
    """By the condition of optimality; lengths as they were."""
    G = (noise(n, 7, seed=seed) + 0.3) * (0.2 + torch.arange(n))[:, None]
    value = 0.1 + noise(n, seed=seed).abs()
    s = {"none": torch.ones(n), "l2": G.norm(dim=1), "loss": value}[normalise]
    U = (G / s[:, None]).numpy()
    d, c = bias.min_norm([{"a": g[:2], "b": g[2:]} for g in G], normalise, value)
    v = flat(d).numpy() / (float(G.norm(dim=1).mean()) if normalise == "l2" else 1)
    assert np.allclose(v, c.numpy() @ U, atol=1e-9) and (c >= 0).all()
    v = c.numpy() @ U
    assert (U @ v >= v @ v - 1e-5).all() and abs(float(c.sum()) - 1) < 1e-9
    opposite, _ = bias.min_norm([{"a": G[0]}, {"a": -2 * G[0]}])
    assert not opposite["a"].any()


def test_matching_is_another_loop_with_torch_func_and_torch_optim():
    """eq:equfl-condense: walk, distance and Adam over rows, labels and the step; alone by pairs."""
    net, rounds = Linear(4, 3), [2, 5]
    trail = {"fc.weight": noise(2, 3, 4, seed=1), "fc.bias": noise(2, 3, seed=2)}
    S = {"x": noise(7, 4, seed=3), "logits": noise(7, 3)}
    for J, outer, normalised in ((3, 5, True), (2, 4, False)):
        start = S["x"], S["logits"], f64(0.3).log()
        x, a, s = (t.clone().requires_grad_() for t in start)
        rates, seen = ((x, 0.01), (a, 0.1), (s, 0.02)), []
        adam = torch.optim.Adam([{"params": [p], "lr": lr} for p, lr in rates])
        p, q = (pick(trail, i) for i in (0, 1))
        sq = lambda u, v: sum((u[k] - v[k]).square().sum() for k in u)
        for _ in range(outer):
            v = p
            for _ in range(J):
                P = (x @ v["fc.weight"].T + v["fc.bias"]).softmax(1) - a.softmax(1)
                g = {"fc.weight": P.T @ x / 7, "fc.bias": P.mean(0)}
                v = {k: v[k] - s.exp() * 3 / J * g[k] for k in v}
            loss = sq(v, q) / (sq(p, q) if normalised else 1)
            adam.zero_grad()
            loss.backward()
            adam.step()
            seen.append(float(loss.detach()))
        how = condense.Matching(outer, J, 10, normalised=normalised)
        new, losses = condense.condense(net, trail, rounds, S, how)
        assert np.allclose(losses, seen, rtol=1e-9), J
        assert gap(new, {"x": x.detach(), "q": a.detach().softmax(1)}) < 1e-9
    how = condense.Matching(4, 2, 10, batch=3, fixed=1, lr_q=0)
    of = lambda how, *a: condense.condense(net, trail, rounds, S, how, *a)[0]
    made = lambda *a, **k: of(replace(how, **k), *a)
    new = made()
    assert torch.equal(new["x"][:, 1], S["x"][:, 1])
    assert gap([new["q"]], [S["logits"].softmax(1)]) == 0 < gap(made(1), new)
    rows = [int((made(outer=1, J=J)["x"] != S["x"]).any(1).sum()) for J in (1, 3)]
    assert rows[0] == 3 < rows[1]  # a batch moves its rows alone; each step has its own
    # a walk over some rows trains on these
    net, x, at = MLP(4, (5, 4), 3), noise(6, 4, seed=3), torch.tensor([5, 2])
    a, q = net.init(1, torch.float64), noise(6, 3, seed=4).softmax(1)
    some = condense.walk(net, a, x, q, 0.4, [at])
    assert gap(some, condense.walk(net, a, x[at], q[at], 0.4, [None])) < 1e-12


def test_pairs_lie_at_most_gap_checkpoints_apart():
    """With the step at 0 the plain loss is the squared distance of a pair."""
    at = 2.0 ** torch.arange(6).double()  # all differences are different
    bias_ = torch.stack([at, 0 * at], 1)
    trail = {"fc.weight": torch.zeros(6, 2, 2).double(), "fc.bias": bias_}
    S = {k: torch.zeros(4, 2).double() for k in ("x", "logits")}
    for most in (1, 2, 10):
        how = condense.Matching(150, 1, most, step=1e-9, lr_step=0, normalised=False)
        losses = condense.condense(Linear(2, 2), trail, range(6), S, how)[1]
        pairs = [(p, q) for p, q in combinations(range(6), 2) if q - p <= most]
        want = {round(float((at[q] - at[p]) ** 2)) for p, q in pairs}
        assert {*losses.round().long().tolist()} == want, most


WIDE = Groups("kind", ("a", "b", "c"), (1,), 3, (), (
    Block("born", "flag", 0, 2), Block("code", "number", 3, 4), Block("job", "onehot", 4, 8),
    Block("flag", "flag", 2, 3), Block("age", "number", 8, 9, -0.3, 1.1)))  # fmt: skip
CENSUS = SimpleNamespace(x=torch.zeros(0, 9).double(), groups=WIDE, K=2)


def test_rows_follow_the_schema_and_no_data():
    x, n = condense.rows(CENSUS, 3000, 0), 3000
    assert x[:, 3].unique(return_counts=True)[1].tolist() == [1000] * 3
    assert (x[:, 3] == torch.arange(n) % 3).double().mean() < 0.4  # in random order
    assert {*x[:, [0, 1, 2, 4, 5, 6, 7]].unique().tolist()} == {0, 1}
    assert (x[:, :3].mean(0) - 0.5).abs().max() < 0.04
    job = x[:, 4:8]
    assert (job.sum(1) == 1).all() and (job.mean(0) - 0.25).abs().max() < 0.035
    age = x[:, 8]
    assert (age.min(), age.max()) == (-0.3, 1.1)
    assert abs((age == -0.3).double().mean() - 0.382) < 0.04  # P(N(0, 1) < -0.3)
    assert torch.corrcoef(x.T)[[0, 0, 0, 3], [1, 3, 2, 4]].abs().max() < 0.07
    assert not torch.equal(*(condense.rows(PEOPLE, 20, s) for s in (1, 2)))
    white = condense.rows(CENSUS, n, 0, "noise")[:, [0, 1, 2, 4, 8]]
    assert (white.std(0) - 1).abs().max() < 0.05 and (white % 1 != 0).all()
    x = torch.zeros(0, 1, 24, 24).double()
    images = SimpleNamespace(x=x, groups=parity(PEOPLE.y, 4)[1], K=4)
    x = condense.rows(images, 300, 0)
    assert abs(float(x.mean())) < 1e-6 and abs(float(x.std()) - 1) < 1e-6


def test_labels_start_at_the_model_or_balanced():
    task, w = PEOPLE, PEOPLE.init(3)
    S = condense.start(task, w, 30, 0)
    assert torch.equal(S["x"], condense.rows(task, 30, 0))
    p = task.logits(w, S["x"]).softmax(1)
    assert gap([S["logits"], condense.finish(S)["q"]], [p.log(), p]) < 1e-12
    S = condense.start(task, w, 30, 0, "noise", "balanced")
    want = 2 * F.one_hot(torch.arange(30) % 3, 3).double()
    assert same(S, {"x": condense.rows(task, 30, 0, "noise"), "logits": want})


def test_the_same_is_made_once():
    """By content to the bit; nobody spoils another's copy; the newest few are kept."""
    made, how, x = [], condense.Matching(1, 2, 3), torch.zeros(2)
    make = lambda: made.append(1) or {"x": x.clone()}
    ask = lambda *given: condense.shared(given, make)["x"]
    given = lambda: ({"w": torch.arange(3.0)}, [0, 1], how, "same")
    ask(*given()).fill_(9)
    assert ask(*given()).tolist() == [0, 0] and len(made) == 1
    zero = torch.zeros(4)
    some = [zero, zero.double(), -zero, zero.view(2, 2), {"w": zero}, {"v": zero}]
    some += [1, 1.0, True, MLP(4, 2, 3), MLP(4, 3, 3), how, replace(how, lr_x=0.02)]
    assert len({condense.content(v) for v in some}) == len(some)
    before = len(made)
    for seed in (*range(condense.KEPT), 0, condense.KEPT, 0, 1):
        ask("seeds", seed)  # 0 was asked for again, so 1 went
    assert len(made) - before == condense.KEPT + 2


def test_epsilon_is_that_of_the_gaussian_mechanism_and_of_opacus():
    from opacus.accountants import RDPAccountant
    from scipy.optimize import brentq
    from scipy.stats import norm

    for sigma, delta in ((0.5, 1e-5), (2, 1e-3)):
        side = lambda e, half, s=sigma: norm.cdf(half / s - e * s)
        f = lambda e, of=side, d=delta: of(e, 0.5) - math.exp(e) * of(e, -0.5) - d
        exact = brentq(f, 0, 100)
        e = epsilon(sigma, 100, 100, 1, delta)
        assert exact < e < 1.25 * exact  # all rows in every step
        assert epsilon(3 * sigma, 7, 7, 9, delta) == pytest.approx(e, rel=1e-9)
    for sigma, batch, n, steps in ((1, 64, 450, 800), (2, 10, 1000, 50)):
        theirs = RDPAccountant()
        theirs.history = [(sigma, batch / n, steps)]
        ours = epsilon(sigma, batch, n, steps)
        assert ours == pytest.approx(theirs.get_epsilon(1e-5), rel=0.02)
    assert epsilon(0, 64, 450, 1) == math.inf
    assert epsilon(0, 64, 450, 0) == epsilon(1, 64, 450, 0) == 0


HIGH, PHASES = 4.0, ["keys", "share", "mask", "unmask"]


def play(xs, threshold, away=(), bits=32, seed=None, spoil=lambda i, j, s: s):
    """One sum of {i: x_i} by clients and server -> (sum, masked uploads). away:
    {client: the first thing that it does not do}."""
    draw = {} if seed is None else {"random": random.Random(seed).randbytes}
    ps = {i: Party(i, threshold, bits, **draw) for i in xs}
    last = {i: PHASES.index(v) for i, v in dict(away).items()}
    does = lambda i, what: PHASES.index(what) < last.get(i, len(PHASES))
    known = {i: p.keys() for i, p in ps.items() if does(i, "keys")}
    dealt = {i: ps[i].share(known) for i in known if does(i, "share")}
    mine = lambda i: {j: spoil(j, i, dealt[j][i]) for j in dealt}
    up = {i: ps[i].mask(xs[i], mine(i)) for i in dealt if does(i, "mask")}
    shares = {i: ps[i].unmask(up) for i in up if does(i, "unmask")}
    known = {i: known[i] for i in dealt}
    return total(up, known, shares, threshold, bits), up


@settings(max_examples=20)
@given(st.integers(2, 5), st.sampled_from([8, 16, 32, 33, 40]), st.data())
def test_the_sum_is_that_of_those_who_uploaded(M, bits, data):
    threshold, code = M // 2 + 1, Fixed(bits, HIGH, M)
    end, draw = f64([HIGH, -HIGH, 0]), lambda i: HIGH * noise(2, 2, seed=i).tanh()
    trees = [{"w": {"a": draw(i)}, "b": end} for i in range(M)]
    who, when = st.integers(0, M - 1), st.sampled_from(PHASES)
    away = data.draw(st.dictionaries(who, when, max_size=M - threshold))
    got, _ = play(dict(enumerate(map(code.encode, trees))), threshold, away, bits)
    stay = [t for i, t in enumerate(trees) if away.get(i, "unmask") == "unmask"]
    want = [sum(x) for x in zip(*map(leaves, stay))]
    assert gap(leaves(code.decode(got, trees[0])), want) <= code.error
    assert code.error < 1.01 * M * code.step / 2


def test_below_the_threshold_and_out_of_range_there_is_no_sum():
    xs = {i: np.arange(4, dtype=np.uint64) for i in range(3)}
    for what in PHASES:
        with pytest.raises(ValueError, match="threshold"):
            play(xs, 2, {0: what, 1: what})
    for bad in (4.0001, -5, math.nan):
        with pytest.raises(ValueError, match="number 1"):
            Fixed(32, HIGH, 3).encode({"w": {"a": f64([0, bad])}})
    for n, x in ((1, 1.0), (2, -1.0), (3, 1.0), (64, -1.0)):  # at the end, no wrap
        code, one = Fixed(8, 1.0, n), {"x": torch.tensor([x])}
        s = sum(code.encode(one) for _ in range(n)) & secure.ones(8)
        back = code.decode(s, one)["x"]
        assert abs(float(back) - n * x) <= code.error and back.dtype == torch.float32


def masked(ps, x):
    """(keys, uploads) where every party is there."""
    known = {i: p.keys() for i, p in ps.items()}
    dealt = {i: p.share(known) for i, p in ps.items()}
    return known, {i: ps[i].mask(x, {j: dealt[j][i] for j in ps}) for i in ps}


def test_one_upload_or_share_tells_nothing():
    """Bytes of an upload are uniform; fewer shares than the threshold fit no secret."""
    from scipy.stats import chisquare

    def upload(value, n, seed, bits=32):
        code = Fixed(bits, HIGH, 3)
        x = [code.encode({"x": torch.full((n,), v)}) for v in (value, 1.0, 2.0)]
        return play(dict(enumerate(x)), 2, bits=bits, seed=seed)[1][0], x[0]

    n = 2**14
    for bits, seed in ((32, 5), (40, 6)):
        for x, uniform in zip(upload(HIGH, n, seed, bits), (True, False)):
            for k in range(bits // 8):
                count = np.bincount((x >> (8 * k)).astype("u1"), minlength=256)
                assert (chisquare(count).pvalue > 0.01) == uniform, k
    ps = {i: Party(i, 3, random=random.Random(i).randbytes) for i in range(4)}
    _, ys = masked(ps, 0 * x)
    held = [p.unmask(ps)[1] for p in ps.values()]  # of client 1's seed
    assert all(secure.join(s) == ps[1].seed for s in combinations(held, 3))
    assert all(secure.join(s) != ps[1].seed for s in combinations(held, 2))
    # neither mask alone hides it: with the own one taken off it is uniform still
    rest = (ys[1] - secure.stream(ps[1].seed, n, 32)) & secure.ones(32)
    assert len(np.unique(rest)) > 0.99 * n and (rest != ys[1]).mean() > 0.99


def test_who_does_not_play_fair_is_found_out():
    xs = {i: np.arange(4, dtype=np.uint64) for i in range(3)}
    flip = lambda s: s[:-1] + bytes([s[-1] ^ 1])
    with pytest.raises(ValueError, match="client 0 for client 2"):
        play(xs, 2, spoil=lambda i, j, s: flip(s) if (i, j) == (0, 2) else s)
    for gone in (None, 2):
        ps = {i: Party(i, 2) for i in xs}
        known, up = masked(ps, xs[0])
        up.pop(gone, None)
        shares = {i: ps[i].unmask(up) for i in (0, 1)}
        assert (total(up, known, shares, 2) == len(up) * xs[0]).all()
        assert ps[0].unmask(up) == shares[0]  # asked twice, answered alike
        whose = 0 if gone is None else gone
        shares[1][whose] = flip(shares[1][whose])
        with pytest.raises(ValueError, match=f"client {whose}"):
            total(up, known, shares, 2)
    four = {i: Party(i, 2) for i in range(4)}
    keys = lambda ps: {i: p.keys() for i, p in ps.items()}
    for call in (
        lambda: ps[0].unmask([0, 1, 2]),  # two stories
        lambda: ps[2].unmask([2]),
        lambda: ps[0].share(known),  # each step once
        lambda: ps[0].mask(xs[0], ps[0].held),
        lambda: Party(0, 2).share(keys(ps)),  # not its keys
        lambda: four[0].share(keys(four)),  # half of all
    ):
        with pytest.raises(ValueError, match="client|threshold"):
            call()


TASK = toy(MLP(5, 6, 5), K=5)
W = TASK.init(3)
P = sum(v.numel() for v in leaves(W))
ALL = [Mean(), Median(), TrimmedMean(0.2), MultiKrum(0.2), DeepSight(50)]


def call(rule, G, p=None):
    return rule(G, torch.full_like(G[:, 0], 1 / len(G)) if p is None else p, W, TASK)


# honest updates [M, P]: a common direction, and noise
toward = 0.1 * noise(P, seed=100)
updates = lambda M, seed=0, by=0.03: toward + by * noise(M, P, seed=seed)
shares = st.sampled_from([0, 0.1, 0.25, 0.3, 0.45])


@given(st.integers(1, 30), st.integers(0, 99), shares)
def test_median_trimmed_mean_and_krum_are_those_of_others(M, seed, share):
    """numpy's median, scipy's trimmed mean, and Krum by sorted distances."""
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
    far = np.sort(((G[:, None] - G) ** 2).sum(2), 1)[:, 1:]
    scores = far[:, : M - f - 2].sum(1)
    kept = sorted(range(M), key=scores.__getitem__)[: M - f - 2]
    assert np.allclose(call(MultiKrum(share), f64(G)), G[kept].mean(0), atol=1e-12)


def test_rules_in_numbers():
    G = noise(100, 3)  # 0.29 * 100 is below 29 in floating point
    assert np.allclose(call(TrimmedMean(0.29), G), np.sort(G, 0)[29:71].mean(0))
    near = 1000 + torch.tensor([[0.9], [0.5], [0.002], [0.0], [0.001]])
    assert float(call(MultiKrum(0.2), near)) == pytest.approx(1000.0005, abs=2e-4)


@pytest.mark.parametrize("rule", ALL, ids=lambda r: type(r).__name__)
def test_what_must_not_matter(rule):
    """The order of clients; their sizes, but to the mean; two bad ones of eleven."""
    for seed in (0, 2, 11, 12):  # in all but 0 DeepSight's last distances tie
        G = 3 * updates(11, seed, 0.1)
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
    assert len({*got[:3]}) == len({*got[3:6]}) == 1 > got[6] == -1 != got[0] != got[3]
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
