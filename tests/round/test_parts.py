"""The parts of a round alone: what is drawn, gradients and descents, rules, groups, who
is online, files. Against torch, scipy, or by hand.
"""

import math
import os
import socket
import subprocess

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, stats
from toys_core import GROUPS, Normed, bowls, gap, same, toy

from fedlib.core import files, online, tree
from fedlib.core.batches import Batch, Plan, draw
from fedlib.core.clients import cohort_of
from fedlib.core.groups import Groups, describe, parity
from fedlib.core.local import adam, grad, in_parts, sgd
from fedlib.core.pool import Pool
from fedlib.core.random import fold, normal, seed_of, tag, uniform
from fedlib.core.server import project, project_box, simplex_qp
from fedlib.core.task import COMPARED, Task
from fedlib.methods.base.fedavg import FedAvg
from fedlib.nets import CNN, MLP, Linear

D = torch.float64
t64 = lambda *v: torch.tensor(v, dtype=D)
seeds = st.integers(0, 10**6)


def randn(seed, *shape):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=g, dtype=D)


# ---------------------------------------------------------------- what is drawn
def test_integers_are_those_of_splitmix_and_differ_by_every_tag():
    """The first outputs of SplitMix64 from state 0, as published."""
    known = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert [int(fold(torch.tensor(0), k)) % 2**64 for k in range(3)] == known
    for tags in ((), (3, -999, 7), (2**31, 5)):
        assert seed_of(7, *tags) == int(fold(torch.tensor(7), *tags)) % 2**63
    tags = [(s, t, c) for s in range(9) for t in range(-1, 8) for c in range(-2, 7)]
    assert len({seed_of(*v) for v in tags}) == 9**3
    assert len({tag(k) for k in ("train", "head", "cohort", "privacy")}) == 4


def test_noise_is_normal_and_independent():
    like = {"a": torch.zeros(150_000, dtype=D), "b": torch.zeros(2, 25_001, dtype=D)}
    one, two = (normal(torch.tensor(k), like) for k in (3, 4))
    z = torch.cat([x.flatten() for x in one.values()])
    assert stats.kstest(z.numpy(), "norm").pvalue > 0.01 and len(z.unique()) == len(z)
    half = len(z) // 2
    others = [two["a"], z[half : half + 150_000 // 2], z[1:150_001]]
    for v in others:
        assert abs(np.corrcoef(z[: len(v)], v)[0, 1]) < 0.015
    u = uniform(torch.tensor(5), (300, 400), D)
    assert u.shape == (300, 400) and stats.kstest(u.flatten(), "uniform").pvalue > 0.01
    keys = torch.arange(5)
    many = torch.func.vmap(lambda k: uniform(k, (3,)))(keys)
    assert torch.equal(many, torch.stack([uniform(k, (3,)) for k in keys]))


def test_a_cohort_is_drawn_without_replacement_and_all_alike():
    m = FedAvg(toy())
    drawn = [cohort_of(m, m.task, 1, t, 3).tolist() for t in range(400)]
    assert all(c == sorted(set(c)) and len(c) == 3 for c in drawn)
    n = np.bincount(np.concatenate(drawn), minlength=6)
    assert stats.chisquare(n).pvalue > 0.01 and len({*map(tuple, drawn)}) == 20
    assert drawn != [cohort_of(m, m.task, 2, t, 3).tolist() for t in range(400)]


def test_who_is_online_by_hand():
    for P, M in ((0.2, 4), (0.59, 11), (0.6, 12), (1, 20), (0.01, 1), (0.15, 3)):
        assert online.size(20, P) == M
    late, early = (online.stragglers(7, 0.3, 5, exchanged=e) for e in (False, True))
    for t in range(10):
        everybody = t in (4, 9)
        assert late(t).tolist() == [*range(7 if everybody else 5)]
        assert early(t).tolist() == [*range(0 if everybody else 2, 7)]
    for P in (0, -1, 1.1, None):
        pytest.raises(ValueError, online.size, 20, P)
    for wrong in ((1.0, 5), (0.5, 0), (-0.1, 5)):
        pytest.raises(ValueError, online.stragglers, 20, *wrong)


ROWS = torch.arange(100, 111)  # 11 rows


def test_plans_by_hand():
    for plan, lengths in (
        *((Plan(), [4, 4, 3]), (Plan(2), [4, 4, 3] * 2), (Plan(0), [])),
        *((Plan(1, 5), [5, 5, 1]), (Plan(1, 100), [11]), (Plan(1, 1), [1] * 11)),
        *((Plan(2, None, "drop"), [4, 4] * 2), (Plan(1, 100, "drop"), [11])),
        *((Plan(9, steps=2), [4, 4]), (Plan(steps=5), [4, 4, 3, 4, 4])),
        *((Plan(1, block=0.5), [4, 1]), (Plan(1, block=0.01), [1])),
    ):
        rows, cut = draw(ROWS, plan, 3, 4)
        assert cut == lengths and len(rows) == sum(cut), plan
        assert set(rows.tolist()) <= set(ROWS.tolist())
        assert len(rows[:8].unique()) == len(rows[:8]), plan
        assert torch.equal(rows, draw(ROWS, plan, 3, 4)[0])
    blocks = [draw(ROWS, Plan(block=0.5, shuffle=False), s, 4)[0] for s in range(99)]
    assert all(b.tolist() == [*range(int(b[0]), int(b[0]) + 5)] for b in blocks)
    assert {int(b[0]) for b in blocks} == {*range(100, 107)}
    assert draw(ROWS[:0], Plan(3), 0, 4)[1] == []


def test_poisson_batches_have_the_rate_they_say():
    n, B, T = 11, 4, 4000
    rows, lengths = draw(ROWS, Plan(steps=T, poisson=True), 3, B)
    joined = torch.zeros(T, n)
    for i, r in enumerate(rows.split(lengths)):
        joined[i, r - 100] = 1
        assert 0 < len(r) == len(r.unique())
    cov = torch.cov(joined.T)
    p = B / n
    assert (joined.mean(0) - p).abs().max() < 5 * math.sqrt(p * (1 - p) / T)
    assert (cov - p * (1 - p) * torch.eye(n)).abs().max() < 0.03
    assert 285 <= len(draw(ROWS, Plan(100, poisson=True), 0, 4)[1]) <= 300
    assert draw(ROWS[:3], Plan(5, poisson=True), 0, 4)[1] == [3] * 5


def test_a_shard_has_the_rows_of_its_client_padded_or_not():
    task, ids = toy(groups=GROUPS), torch.tensor([5, 3, -1, -2])
    plans = {"train": Plan(2), "head": Plan(1, 7)}
    data, make = task.stacked(3, 2, 9, ids, plans)
    keys = set()
    for i, s in enumerate(task.shards(3, 2, 9, ids, plans)):
        padded, c = make(tree.pick(data, i)), int(s.cid)
        own = (task.train, task.val, task.test) if c >= 0 else zip(*task.guests)
        own = [v[c if c >= 0 else -1 - c] for v in own]
        assert int(s.n) == int(padded.n) == len(own[0]) and (s.t, s.R) == (2, 9)
        for name, rows in zip(("all", "val", "test"), own):
            a, b = s.all(name), padded.all(name)
            real = b.m > 0
            assert torch.equal(a.row, rows) and torch.equal(b.row[real], rows), name
            mean = lambda w, b: b.avg(b.x[:, 1] * w["k"])
            over = padded.over(mean, {"k": t64(2.0)}, name)
            right = 2 * task.x[rows, 1].mean() if len(rows) else 0
            assert abs(float(over) - float(right)) < 1e-12, name
        for name, size in (("train", 4), ("head", 7)):
            walks = list(s.on(name)), list(padded.on(name))
            for a, b in zip(*walks):
                real = b.m > 0
                assert torch.equal(a.row, b.row[real]) and a.size == b.size == size
                assert int(fold(a.key)) == int(fold(b.key))
                for x in (a, b):
                    held = zip((x.x, x.y, x.a), (task.x, task.y, task.a))
                    assert all(torch.equal(v, whole[x.row]) for v, whole in held)
                keys.add(int(fold(a.key)))
            assert not any(b.m.sum() for b in walks[1][len(walks[0]) :])
        first = s.altered(lambda batches: list(batches)[:1])
        assert len(list(first)) == min(1, len(own[0])) and not first.known
    assert len(keys) == 2 * 1 + 1 + 2 * 5 + 3 + 2 * 3 + 2


def test_a_mean_is_over_the_rows_that_count():
    v = torch.arange(6.0).view(3, 2)
    b = Batch(v, torch.zeros(3).long(), None, None, torch.arange(3), None, 3)
    for m, mean in (([1, 0, 1], [2, 3]), ([0, 0, 1], [4, 5]), ([0, 0, 0], [0, 0])):
        assert b._replace(m=torch.tensor(m).float()).avg(v).tolist() == mean
    assert b.avg(v).tolist() == [2, 3] and b.avg(v[:0]).tolist() == [0, 0]
    parts = [b._replace(m=torch.tensor([1.0, 1, 0])).part(k, 2) for k in range(2)]
    assert [(p.row.tolist(), p.m.tolist()) for p in parts] == [
        ([0, 2], [1, 0]),
        ([1], [1]),
    ]
    step = in_parts(lambda w, p, q: {"w": p.x.sum() + 0 * q.x.sum() + w["w"]}, 2)
    w, (whole, tail) = (
        {"w": t64(1.0)},
        (b, b._replace(x=v[:1], y=b.y[:1], row=b.row[:1])),
    )
    assert float(step(w, whole)["w"]) == 0 + 1 + 4 + 5 + 1
    assert float(step(w, tail)["w"]) == 0
    masked = whole._replace(m=torch.tensor([1.0, 0, 1]))
    assert float(step(w, masked)["w"]) == 0


# ---------------------------------------------------------------- gradients, descents
def test_gradients_nest_to_any_order():
    A = randn(0, 4, 4)
    f = lambda v: (v["w"] @ A @ A.T @ v["w"]) ** 2 / 9
    q, theirs, norm = {"w": randn(1, 4)}, torch.func.grad, tree.sqnorm
    for nested in (
        lambda g: g(f),
        lambda g: g(lambda v: f(tree.add(v, g(f)(v), -0.01))),
        lambda g: g(lambda v: norm(g(lambda u: norm(g(f)(u)))(v))),
        lambda g: g(lambda v: norm(g(lambda u: f(u) + 3 * tree.sqdist(u, v))(v))),
    ):
        a, b = nested(grad)(q), nested(theirs)(q)
        assert (
            gap(a, b) < 1e-10 * float(b["w"].abs().max()) and not q["w"].requires_grad
        )
    unused = grad(lambda v: v["w"].sum())(q | {"other": {"v": torch.ones(2)}})
    assert unused["other"]["v"].tolist() == [0, 0]


def first_shard(task, epochs, c=0):
    return task.shards(0, 0, 1, torch.tensor([c]), {"train": Plan(epochs)})[0]


def test_descent_through_descent_on_a_bowl():
    """Its derivative by the start is (1 - lr)^steps."""
    task = bowls([[2.0, -1.0]])
    s, loss = first_shard(task, 3), task.loss
    total = lambda w: sum(x.sum() for x in sgd(grad(loss), w, s, 0.2).values())
    for v in grad(total)(task.init(0)).values():
        assert gap([v], [torch.full_like(v, 0.8**3)]) < 1e-14


def test_two_models_in_one_descent_and_a_frozen_body():
    task = toy(Normed(5, 6, 3))
    d, s, w, v = grad(task.loss), first_shard(task, 2), task.init(1), task.init(2)
    both = lambda m, b: {"a": d(m["a"], b), "b": d(m["b"], b)}
    got = sgd(both, {"a": w, "b": v}, s, 0.1, 0.5, 0.01)
    for name, start in (("a", w), ("b", v)):
        assert same(got[name], sgd(d, start, s, 0.1, 0.5, 0.01))
    body, head = task.split(w)
    moved = sgd(grad(lambda h, b: task.loss(body | h, b)), head, s, 0.1)
    assert moved.keys() == head.keys() and gap(moved, head) > 0
    body2 = sgd(grad(lambda v, b: task.loss(v | head, b)), body, s, 0.1)
    assert all(gap([body2[k]], [body[k]]) > 0 for k in task.buffers)
    closed = toy(MLP(5, 6, 3))
    body, head = closed.split(closed.init(0))
    for start, rest in ((head, body), (body, head)):
        loss = closed.loss.beside(rest)
        slow = grad(lambda v, b, rest=rest: closed.loss(rest | v, b))
        pull = (0.3, tree.scale(start, 2))
        a, b = (sgd(f, start, s, 0.2, 0.5, 0.1, pull) for f in (grad(loss), slow))
        assert loss.descend and gap(a, b) < 1e-12 < gap(a, start)
    assert closed.loss.beside({"fc.bias": head["fc.bias"]}).descend is None


@pytest.mark.parametrize("network", [None, Normed(5, 6, 3)])
def test_adam_is_torchs(network):
    """At clients of unequal size, one after another and at once; decay, and running
    statistics of torch's own batch norm."""
    task, plans = toy(network), {"train": Plan(2)}
    ids, how = torch.arange(3), {"betas": (0.5, 0.8), "eps": 1e-2}
    want = []
    for s in task.shards(0, 0, 1, ids, plans):
        p = {k: v.clone().requires_grad_() for k, v in task.init(0).items()}
        free = [v for k, v in p.items() if k not in task.buffers]
        opt = torch.optim.Adam(free, lr=0.03, weight_decay=0.1, **how)
        for b in s:
            opt.zero_grad()
            stats_ = task.refresh(p, b)
            F.cross_entropy(task.logits(p, b.x, b), b.y).backward()
            opt.step()
            for k, v in stats_.items():
                p[k].data = v
        want.append({k: v.detach() for k, v in p.items()})
    w = task.init(0)
    fit = lambda s: adam(grad(task.loss), w, s, 0.03, **how, decay=0.1)
    data, make = task.stacked(0, 0, 1, ids, plans)
    at_once = torch.func.vmap(lambda d: fit(make(d)))(data)
    for c, s in enumerate(task.shards(0, 0, 1, ids, plans)):
        assert (
            gap(fit(s), want[c]) < 1e-7 and gap(tree.pick(at_once, c), want[c]) < 1e-7
        )


# ---------------------------------------------------------------- stacks and rules
def test_stacks_are_their_rows():
    ts = [
        {"a": randn(i, 2), "b": {"c": randn(i, 3, 2), "d": randn(i)}} for i in range(4)
    ]
    s, p = tree.stack(ts), t64(0.1, 0.2, 0.3, 0.4)
    flat = lambda t: torch.cat([x.flatten() for x in tree.leaves(t)])
    G = torch.stack([*map(flat, ts)])
    assert (
        torch.equal(tree.rows(s), G) and gap([flat(tree.mean(s, p))], [p @ G]) < 1e-15
    )
    assert all(same(a, b) for a, b in zip(tree.unstack(s, 4), ts))
    assert all(same(tree.unrow(g, t), t) for g, t in zip(G, ts))
    put = tree.put(s, torch.tensor([2, 0]), tree.stack(ts[:2]))
    assert torch.equal(tree.rows(put), G[[1, 1, 0, 3]]) and torch.equal(tree.rows(s), G)
    dist = float((G[0] - G[1]).square().sum())
    assert abs(float(tree.sqdist(ts[0], ts[1])) - dist) < 1e-12
    wide = tree.broadcast(ts[0], range(3))
    assert all(x is y for x, y in zip(*map(tree.leaves, tree.unstack(wide, 3)[:2])))
    assert (
        tree.unstack({}, 2) == [{}, {}]
        and tree.unstack(wide | {"e": p[:3]}, 3)[2]["e"] == p[2]
    )
    y = torch.tensor([2, 0, 1])
    mask = t64(1, 0, 1)
    assert torch.equal(tree.onehot(y, 3, p), F.one_hot(y, 3).to(D))
    assert tree.onehot(y, 3, p, mask).sum(1).tolist() == mask.tolist()


@given(seeds, st.integers(1, 7), st.floats(0.1, 9))
def test_the_nearest_points_of_simplex_and_box(seed, n, size):
    """Against scipy's root of the one equation; the best mixture against its
    conditions."""
    v = size * randn(seed, n)
    lo, hi = torch.rand(2, n, generator=torch.Generator().manual_seed(seed), dtype=D)
    lo, hi = lo / n / 2, 1.5 / n + hi
    for p, low, high in (
        (project(v[None])[0], torch.zeros(n, dtype=D), torch.full((n,), math.inf)),
        (project_box(v, lo, hi), lo, hi),
    ):
        at = lambda s, low=low, high=high: float((v - s).clamp(low, high).sum()) - 1
        s = optimize.brentq(at, float(v.min()) - 3, float(v.max()) + 3, xtol=1e-14)
        assert gap([p], [(v - s).clamp(low, high)]) < 1e-8
    U = randn(seed + 1, n, n + 1)
    a = simplex_qp((U @ U.T)[None])[0]
    slope = U @ (U.T @ a)
    assert abs(float(a.sum()) - 1) < 1e-9 and float(a.min()) >= 0
    assert float(a @ slope - slope.min()) < 1e-6 * float(slope.abs().max())


def test_a_row_without_a_finite_score_is_wrong():
    z = t64(1.0, 2.0, 0.0).repeat(4, 1)
    z[1, 0], z[2, 1] = math.nan, math.inf
    hits = FedAvg(toy()).hits(z, torch.tensor([1, 1, 1, 2]))
    assert hits.tolist() == [1, 0, 0, 0]


# ---------------------------------------------------------------- groups and neighbours
def test_groups_by_hand():
    g = Groups("g", ("a", "b"), (1, 3), 0)
    assert g.outcome(torch.tensor([[0, 1], [2, 3]])).tolist() == [[0, 1], [0, 1]]
    q = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.7, 0.1, 0.1, 0.1]], dtype=D)
    odds = torch.tensor([[0.4, 0.6], [0.8, 0.2]], dtype=D)
    assert torch.allclose(g.odds(q.log() + 5).exp(), odds)
    x = torch.tensor([[0.0, 9.0], [0.98, 9.0]], dtype=D)
    by_class = Groups("parity", ("even", "odd"), (1, 2), None, (0, 1, 0))
    for cells, want in (
        (g.cells(q, x), [[[0.4, 0.6], [0, 0]], [[0, 0], [0.8, 0.2]]]),
        (
            g.cells(q, x, torch.tensor([1, 0])),
            [[[0, 0], [0.4, 0.6]], [[0.8, 0.2], [0, 0]]],
        ),
        (by_class.cells(t64(0.5, 0.2, 0.3)[None]), [[[0.5, 0.3], [0, 0.2]]]),
    ):
        assert torch.allclose(cells, torch.tensor(want, dtype=D))
    z, y, a = (
        torch.eye(4, dtype=D)[[0, 1, 3, 2]],
        *torch.tensor([[1, 1, 0, 2], [0, 1, 1, 1]]),
    )
    b = Batch(x, y, a, t64(1, 1, 1, 0), None, None, 4)
    assert g.tally(z, b).tolist() == [[[0, 0], [1, 0]], [[0, 1], [0, 1]]]
    odd, p = parity(torch.arange(10), 10)
    assert odd.tolist() == [0, 1] * 5 and p.positive == (5, 6, 7, 8, 9)
    assert torch.equal(p.cells(torch.eye(10)).sum(2).argmax(1), odd)
    x = torch.tensor([[0, 0.5, 1], [1, 2, 0], [1, 1, 0]], dtype=D)
    a, told = describe(x, ["a 2", "a 10", "a 10"], (1,))
    assert a.tolist() == [0, 1, 1] and told.names == ("a 2", "a 10")
    assert told.column == 0 and [b.kind for b in told.schema] == [
        "flag",
        "number",
        "flag",
    ]


def test_neighbours_are_few_and_lie_among_the_test_rows():
    n = COMPARED + 30
    x = randn(0, n, 2)
    none = (torch.zeros(0, dtype=torch.long),)
    groups, rows = Groups("g", ("a", "b"), (1,)), torch.arange(n)
    args = Task(
        "t",
        Linear(2, 2),
        x,
        rows % 2,
        (rows[:5],),
        none,
        (rows[5:],),
        a=rows % 2,
        groups=groups,
    )
    near, drawn = args.neighbours["near"], args.neighbours["rows"]
    assert len(drawn) == COMPARED == len(drawn.unique()) and drawn.min() >= 5
    assert torch.isin(near[drawn], drawn).all() and near.shape == (n, 5)
    for r in drawn[:9]:
        far = (x[drawn] - x[r]).square().sum(1)
        assert set(near[r].tolist()) == set(drawn[far.argsort()[1:6]].tolist())
    assert torch.equal(args.rows_of(0, "neighbours"), drawn)


def test_parts_of_a_clients_rows():
    x, y = randn(0, 40, 3), torch.arange(40) % 2
    task = Task.from_arrays(x, y, [0] * 20 + [1] * 20, parts=(0.5, 0.2, 0.3))
    assert [len(r) for r in (task.train[0], task.val[0], task.test[0])] == [10, 4, 6]
    rows = torch.cat([*task.train, *task.val, *task.test])
    assert sorted(rows.tolist()) == [*range(40)]
    pool = Pool("mine", x, torch.arange(40) % 4, 4, "real", test=torch.arange(28, 40))
    own = [torch.tensor([0, 1, 4, 5]), torch.tensor([2, 3, 6, 7])]
    task = Task.from_rows("t", Linear(3, 4), pool, own, parts=(1, 0, 0), shared=True)
    labels = [sorted(task.y[r].tolist()) for r in task.test]
    assert labels == [[0] * 3 + [1] * 3, [2] * 3 + [3] * 3]


@pytest.mark.parametrize("network", [MLP(5, 6, 3), Linear(5, 3), CNN(1, 3)])
def test_initial_weights_are_a_function_of_the_seed(network):
    a, b, c = (network.init(s) for s in (1, 1, 2))
    assert same(a, b) and gap(a, c) > 1e-3


# ---------------------------------------------------------------- files
def test_a_file_is_whole_and_what_the_dead_left_is_swept(tmp_path):
    process = subprocess.Popen(["true"])
    process.wait()
    dead, living, host = process.pid, os.getppid(), socket.gethostname()
    stay = {f".a.{living}@{host}", f".a.{dead}@other.host", f".b.{dead}@{host}"}
    stay |= {f".a.{dead}", f"a.{dead}@{host}"}
    for name in (*stay, f".a.{dead}@{host}", f".old.{dead}"):
        (tmp_path / name).write_text("half")
    os.utime(tmp_path / f".old.{dead}", (0, 0))
    files.sweep(tmp_path, "old")
    files.sweep(tmp_path / "no such folder", "*")

    def fails(f):
        f.write(b"half")
        raise OSError(28, "no room")

    for write in (lambda f: f.write(b"whole"), fails):
        try:
            files.whole(tmp_path / "a", write)
        except OSError as e:
            assert str(tmp_path / "a") in str(e) and e.errno == 28
        assert (tmp_path / "a").read_bytes() == b"whole"
    assert {p.name for p in tmp_path.iterdir()} == stay | {"a"}
