"""Trees, keys, plans, gradients and solvers: the laws that methods rely on."""

import math
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.nn.functional as F
from torch.func import vmap
from toys_core import Normed, bowls, gap, same, toy

from fedlib.core import local, tree
from fedlib.core.batches import Batch, Plan, draw
from fedlib.core.local import SAM, Plain, grad, scan, sgd
from fedlib.core.random import LazyKey, fold, normal, seed_of, tag, uniform
from fedlib.core.server import Mean, Median, project, project_box
from fedlib.core.tree import add, leaves, sqdist, sqnorm
from fedlib.nets import MLP, Linear


def some(seed=0, M=None):
    """A tree with a branch, a vector, a matrix and a scalar;
    stacked [M, ...] if asked.
    """
    g = torch.Generator().manual_seed(seed)
    lead = () if M is None else (M,)
    r = lambda *s: torch.randn((*lead, *s), generator=g, dtype=torch.float64)
    return {"a": r(3), "deep": {"b": r(2, 4), "c": r()}, "d": r(1)}


# ---------------------------------------------------------------- trees
def test_leaves_and_build_are_inverse():
    t = some()
    assert [x.dim() for x in leaves(t)] == [1, 2, 0, 1]
    assert (
        same(tree.build(t, leaves(t)), t)
        and tree.build(t, leaves(t)).keys() == t.keys()
    )
    assert (
        leaves({}) == [] and tree.build({}, []) == {} and tree.tmap(torch.neg, {}) == {}
    )


def test_rows_and_unrow_are_inverse():
    s = some(M=5)
    G = tree.rows(s)
    assert G.shape == (5, 3 + 8 + 1 + 1)
    for i in range(5):
        assert same(tree.unrow(G[i], some()), tree.pick(s, i))


def test_arithmetic():
    a, b = some(1), some(2)
    assert gap(add(a, tree.scale(b, -2.5)), tree.sub(a, tree.scale(b, 2.5))) < 1e-15
    flat = lambda t: torch.cat([x.flatten() for x in leaves(t)])
    assert float(sqdist(a, b)) == pytest.approx(
        float((flat(a) - flat(b)).square().sum()), rel=1e-14
    )
    assert float(sqnorm(a)) == pytest.approx(float(flat(a).square().sum()), rel=1e-14)
    assert same(tree.where(torch.tensor(True), a, b), a) and same(
        tree.where(torch.tensor(False), a, b), b
    )


def test_stacks():
    ts = [some(i) for i in range(4)]
    s = tree.stack(ts)
    i = torch.tensor([2, 0])
    assert all(same(tree.pick(s, k), t) for k, t in enumerate(ts))
    put = tree.put(s, i, tree.stack([ts[1], ts[3]]))
    assert [same(tree.pick(put, k), ts[j]) for k, j in enumerate((3, 1, 1, 3))] == [
        True
    ] * 4 and same(tree.pick(s, 2), ts[2])
    p = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
    assert (
        gap(
            tree.mean(s, p), tree.tmap(lambda *x: sum(w * v for w, v in zip(p, x)), *ts)
        )
        < 1e-15
    )
    assert (
        all(same(a, b) for a, b in zip(tree.unstack(s, 4), ts, strict=True))
        and tree.unstack({}, 3) == [{}] * 3
    )
    wide = tree.broadcast(ts[0], range(7))
    assert all(x.stride(0) == 0 and len(x) == 7 for x in leaves(wide)), (
        "a broadcast must cost no memory"
    )
    assert same(tree.subset(s, ("a",)) | tree.without(s, ("a",)), s)


def test_share_and_onehot():
    assert tree.normalize(torch.tensor([1.0, 3.0])).tolist() == [0.25, 0.75]
    y, like = torch.tensor([2, 0, 1]), torch.zeros(1, dtype=torch.float64)
    assert torch.equal(tree.onehot(y, 3, like), F.one_hot(y, 3).double())
    assert (
        tree.onehot(y, 3, like, torch.tensor([1.0, 0.0, 1.0], dtype=torch.float64))[
            1
        ].sum()
        == 0
    )
    inside = vmap(torch.func.grad(lambda v, y: (tree.onehot(y, 3, v) @ v).sum()))(
        like.expand(2, 3), torch.stack([y, y])
    )
    assert inside.tolist() == [[1, 1, 1]] * 2


# ---------------------------------------------------------------- keys
def test_the_generator_is_splitmix64():
    """The first three outputs of SplitMix64 from state 0,
    as published with the algorithm.
    """
    known = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    h = fold(torch.tensor(0), 0), fold(torch.tensor(0), 1), fold(torch.tensor(0), 2)
    assert [int(x) % 2**64 for x in h] == known


def test_keys_on_tensors_and_on_integers_agree():
    for tags in ((), (0,), (3, -999, 7), (2**31, 5)):
        assert int(fold(torch.tensor(11), *tags)) & 0x7FFFFFFFFFFFFFFF == seed_of(
            11, *tags
        )
    assert (
        len(
            {
                seed_of(s, t, c)
                for s in range(9)
                for t in range(-1, 9)
                for c in range(-3, 9)
            }
        )
        == 9 * 10 * 12
    )
    assert int(fold(LazyKey(torch.tensor(5), 1, 2), 3)) == int(
        fold(torch.tensor(5), 1, 2, 3)
    )
    assert tag("train") != tag("head")


def test_normals_are_normal():
    n, o = (
        normal(
            fold(torch.tensor(7), k), {"w": torch.zeros(400001, dtype=torch.float64)}
        )["w"]
        for k in (3, 5)
    )
    cdf = n.sort().values.mul(1 / math.sqrt(2)).erf().add(1).div(2)
    # Kolmogorov-Smirnov, 5 %
    assert (cdf - torch.linspace(0, 1, len(n), dtype=n.dtype)).abs().max() < 2.2e-3
    half = len(n) // 2
    assert abs(float((n**4).mean()) - 3) < 0.05
    assert (
        abs(float((n * o).mean())) < 6e-3
        and abs(float((n[:half] * n[half + 1 :]).mean())) < 6e-3
    )
    assert not torch.equal(n, o)
    assert (
        gap(
            [normal(torch.tensor(7), {"w": torch.zeros(9)})["w"]],
            [normal(torch.tensor(7), {"w": torch.zeros(9, dtype=torch.float64)})["w"]],
        )
        < 1e-5
    )


def test_uniforms_are_uniform():
    u = uniform(fold(torch.tensor(7), 4), (400, 1000), torch.float64)
    assert u.shape == (400, 1000) and 0 < u.min() and u.max() < 1
    assert abs(float(u.mean()) - 0.5) < 2e-3 and abs(float(u.var()) - 1 / 12) < 1e-3


def test_draws_are_the_same_one_by_one_and_under_vmap(device):
    keys, like = (
        fold(torch.tensor(3, device=device), torch.arange(5)),
        {"a": torch.zeros(3, device=device)},
    )
    at_once = vmap(lambda k: normal(k, like)["a"] + uniform(fold(k, 1), (3,)))(keys)
    alone = torch.stack(
        [normal(k, like)["a"] + uniform(fold(k, 1), (3,)) for k in keys]
    )
    assert torch.equal(at_once, alone)
    cpu = torch.stack([uniform(k, (3,)) for k in keys.cpu()])
    assert torch.equal(cpu, torch.stack([uniform(k, (3,)) for k in keys]).cpu())


# ---------------------------------------------------------------- plans and batches
ROWS = torch.arange(100, 111)  # 11 rows


@pytest.mark.parametrize(
    "plan, lens",
    [
        (Plan(), [4, 4, 3]),
        (Plan(2), [4, 4, 3] * 2),
        (Plan(0), []),
        (Plan(1, 5), [5, 5, 1]),
        (Plan(1, 100), [11]),
        (Plan(1, None, "drop"), [4, 4]),
        (Plan(2, None, "drop"), [4, 4] * 2),
        (Plan(1, 100, "drop"), [11]),
        (Plan(steps=2), [4, 4]),
        (Plan(steps=5), [4, 4, 3, 4, 4]),
        (Plan(1, block=0.5), [4, 1]),
        (Plan(1, 1), [1] * 11),
    ],
)
def test_plans(plan, lens):
    rows, cut = draw(ROWS, plan, 3, 4)
    assert cut == lens and len(rows) == sum(lens)
    again, _ = draw(ROWS, plan, 3, 4)
    other, _ = draw(ROWS, plan, 4, 4)
    assert torch.equal(rows, again) and (not lens or not torch.equal(rows, other))
    n = {0.5: 5}.get(plan.block, 11)  # one pass
    for k in range(0, len(rows) - n + 1, n):
        if plan.last == "keep":
            assert len(rows[k : k + n].unique()) == n
    assert set(rows.tolist()) <= set(ROWS.tolist())


def test_plan_in_order_and_block():
    rows, _ = draw(ROWS, Plan(1, shuffle=False), 3, 4)
    assert torch.equal(rows, ROWS)
    starts = set()
    for seed in range(60):
        rows, _ = draw(ROWS, Plan(1, shuffle=False, block=0.5), seed, 4)
        assert torch.equal(rows, torch.arange(int(rows[0]), int(rows[0]) + 5))
        starts.add(int(rows[0]))
    assert starts == set(range(100, 107))  # every place, the last one included
    assert draw(ROWS[:0], Plan(3), 0, 4)[1] == []


def test_poisson_batches_have_the_rate_they_say():
    """Every row joins every batch with probability B / n,
    whoever else joins and whatever it did before.
    """
    n, B, T = 11, 4, 4000
    rows, lens = draw(ROWS, Plan(steps=T, poisson=True), 3, B)
    assert (
        abs(len(lens) - T * (1 - (1 - B / n) ** n)) < 5 * math.sqrt(T)
        and min(lens) > 0
        and sum(lens) == len(rows)
    )
    joined = torch.zeros(len(lens), n)
    for i, r in enumerate(rows.split(lens)):
        assert len(r) == len(r.unique())
        joined[i, r - 100] = 1
    # the batches that nobody joined
    joined = torch.cat([joined, torch.zeros(T - len(lens), n)])
    p = B / n
    assert (joined.mean(0) - p).abs().max() < 5 * math.sqrt(p * (1 - p) / T)
    # rows are independent of each other
    cov = torch.cov(joined.T) - p * (1 - p) * torch.eye(n)
    assert cov.abs().max() < 5 * p * (1 - p) / math.sqrt(T) * 1.5
    size = torch.tensor(lens, dtype=torch.float64)
    # binomial, not of one size
    assert size.mean() * len(lens) / T == pytest.approx(B, rel=0.02)
    assert size.var() == pytest.approx(n * p * (1 - p), rel=0.15)
    again, other = (
        draw(ROWS, Plan(steps=T, poisson=True), 3, B)[0],
        draw(ROWS, Plan(steps=T, poisson=True), 4, B)[0],
    )
    assert torch.equal(rows, again) and not torch.equal(rows[:100], other[:100])


def test_poisson_batches_are_as_many_as_the_epochs_have_and_a_small_client_gives_all():
    # 3 a pass, an empty one skipped
    assert len(draw(ROWS, Plan(100, poisson=True), 0, 4)[1]) in range(285, 301)
    rows, lens = draw(ROWS[:3], Plan(5, poisson=True), 0, 4)  # n < B: probability 1
    assert lens == [3] * 5 and torch.equal(rows, ROWS[:3].repeat(5))
    assert draw(ROWS[:0], Plan(5, poisson=True), 0, 4)[1] == []
    lengths = [
        len(draw(ROWS, Plan(steps=1, batch=1, poisson=True), s, 4)[1])
        for s in range(400)
    ]
    # sometimes nobody joins at all
    assert (
        set(lengths) == {0, 1} and abs(lengths.count(0) / 400 - (10 / 11) ** 11) < 0.12
    )


def test_batches_hold_the_rows_of_their_client():
    task = toy()
    for s in task.shards(
        3, 2, 9, torch.arange(task.C), {"train": Plan(2), "head": Plan(1, 7)}
    ):
        c = int(s.cid)
        for name, size in (("train", 4), ("head", 7)):
            bs = list(s.on(name))
            assert all(
                torch.equal(task.x[b.row], b.x)
                and torch.equal(task.y[b.row], b.y)
                and torch.equal(task.a[b.row], b.a)
                and b.size == size
                and b.m is None
                for b in bs
            )
            passes = 2 if name == "train" else 1
            assert sorted(torch.cat([b.row for b in bs]).tolist()) == sorted(
                task.train[c].tolist() * passes
            )
        assert torch.equal(s.all("val").row, task.val[c]) and torch.equal(
            s.all("test").x, task.x[task.test[c]]
        )
        assert (
            torch.equal(s.all().row, task.train[c])
            and s.all().key is None
            and int(s.n) == len(task.train[c])
        )
        keys = {int(fold(b.key)) for name in ("train", "head") for b in s.on(name)}
        assert len(keys) == sum(1 for name in ("train", "head") for _ in s.on(name))


def test_padded_shards_hold_the_same_rows():
    task, ids = toy(), torch.tensor([5, 3, -1, -2])
    plans = {"train": Plan(2)}
    data, make = task.stacked(3, 2, 9, ids, plans)
    for i, s in enumerate(task.shards(3, 2, 9, ids, plans)):
        padded = make(tree.pick(data, i))
        assert same(
            {"n": s.n, "cid": s.cid, "key": fold(s.key)},
            {"n": padded.n, "cid": padded.cid, "key": fold(padded.key)},
        )
        exact = list(s)
        for j, b in enumerate(padded):
            r = b.row[b.m > 0]
            assert torch.equal(r, exact[j].row) if j < len(exact) else not len(r)
            if j < len(exact):
                assert (
                    int(fold(b.key)) == int(fold(exact[j].key))
                    and b.size == exact[j].size
                )
        for name in ("all", "val", "test"):
            b = padded.all(name)
            assert torch.equal(b.row[b.m > 0], s.all(name).row)


def test_large_rows_are_fetched_in_pieces(monkeypatch):
    task, ids, plans = toy(), torch.arange(6), {"train": Plan(3)}
    at_once = [[b for b in s] for s in task.shards(0, 0, 1, ids, plans)]
    monkeypatch.setattr("fedlib.core.shards.GATHER", 1)
    for whole, s in zip(at_once, task.shards(0, 0, 1, ids, plans)):
        pieces = list(s)
        assert len(pieces) == len(whole)
        for a, b in zip(whole, pieces):
            assert (
                torch.equal(a.x, b.x)
                and torch.equal(a.row, b.row)
                and int(fold(a.key)) == int(fold(b.key))
            )


def test_mean_over_the_rows_that_count():
    v = torch.arange(6.0).view(3, 2)
    b = Batch(v, torch.zeros(3).long(), None, None, torch.arange(3), None, 3)
    assert b.avg(v).tolist() == [2, 3]
    assert b._replace(m=torch.tensor([1.0, 0, 1])).avg(v).tolist() == [2, 3]
    assert b._replace(m=torch.tensor([0.0, 1, 0])).avg(v).tolist() == [2, 3]
    assert b._replace(m=torch.zeros(3)).avg(v).tolist() == [0, 0] and b.avg(
        v[:0]
    ).tolist() == [0, 0]
    parts = [b.part(k, 2) for k in range(2)]
    assert [p.row.tolist() for p in parts] == [[0, 2], [1]] and parts[0].m is None
    assert b._replace(m=torch.tensor([1.0, 1, 0])).part(0, 2).m.tolist() == [1, 0]


# ---------------------------------------------------------------- gradients
def quartic(n=4):
    g = torch.Generator().manual_seed(0)
    A = torch.randn(n, n, generator=g, dtype=torch.float64)
    A = A @ A.T / n
    return (
        (lambda v: (v["w"] @ A @ v["w"]) ** 2),
        {"w": torch.randn(n, generator=g, dtype=torch.float64)},
        A,
    )


def test_gradient_against_the_formula():
    f, q, A = quartic()
    w = q["w"]
    assert gap(grad(f)(q), {"w": 4 * (w @ A @ w) * (A @ w)}) < 1e-12
    assert not w.requires_grad and w.grad is None


def test_gradients_nest_to_any_order():
    f, q, _ = quartic()
    ours, theirs = (lambda g: lambda v: f(add(v, g(f)(v), -1e-3))), torch.func.grad
    assert gap(grad(ours(grad))(q), theirs(ours(theirs))(q)) < 1e-9
    thrice = lambda g: g(lambda v: sqnorm(g(lambda u: sqnorm(g(f)(u)))(v)))
    assert gap(thrice(grad)(q), thrice(theirs)(q)) < 1e-9 * float(
        sqnorm(thrice(theirs)(q)).sqrt()
    )


def test_a_closure_over_the_same_tensor_is_a_constant():
    f, q, _ = quartic()
    near = lambda g: (
        lambda v: sqnorm(
            g(lambda u: f(u) + 3 * sqdist(u, v) + (u["w"] * v["w"]).sum())(v)
        )
    )
    assert gap(grad(near(grad))(q), torch.func.grad(near(torch.func.grad))(q)) < 1e-8


def test_gradient_of_what_is_not_used_is_zero():
    q = {"w": torch.ones(3), "unused": {"v": torch.ones(2)}}
    assert (
        gap(
            grad(lambda v: v["w"].sum())(q),
            {"w": torch.ones(3), "unused": {"v": torch.zeros(2)}},
        )
        == 0
    )
    with torch.no_grad():
        assert (
            gap(
                grad(lambda v: v["w"].sum())(q),
                {"w": torch.ones(3), "unused": {"v": torch.zeros(2)}},
            )
            == 0
        )


def test_threads_do_not_share_the_depth_of_nesting():
    f, q, _ = quartic()
    want = grad(lambda v: sqnorm(grad(f)(v)))(q)
    with ThreadPoolExecutor(4) as pool:
        got = list(
            pool.map(
                lambda _: (grad(lambda v: sqnorm(grad(f)(v)))(q), grad(f)(q)), range(40)
            )
        )
    assert all(same(g, want) and same(h, grad(f)(q)) for g, h in got)


def test_closed_form_is_the_gradient():
    task = toy(Linear(5, 3))
    w, s = task.init(4), task.shards(0, 0, 1, torch.tensor([3]), {"train": Plan(1)})[0]
    for b in s:
        autograd = grad(lambda v, b: task.loss(v, b))(w, b)
        assert gap(grad(task.loss)(w, b), autograd) < 1e-15
        b = b._replace(m=torch.tensor([1.0, 0, 1, 1][: len(b.y)], dtype=torch.float64))
        assert (
            gap(grad(task.loss)(w, b), grad(lambda v, b: b.avg(task.each(v, b)))(w, b))
            < 1e-15
        )


# ---------------------------------------------------------------- descent
@pytest.mark.parametrize(
    "network", [Linear(5, 3), MLP(5, 8, 3), MLP(5, (8, 6), 3)], ids=repr
)
@pytest.mark.parametrize(
    "momentum, decay, mu",
    [(0, 0, 0), (0.9, 0, 0), (0, 0.1, 0), (0, 0, 0.3), (0.9, 0.1, 0.3), (0, 0.1, 0.3)],
)
def test_descent_in_closed_form_is_descent(network, momentum, decay, mu, monkeypatch):
    """The same batches, also where the rows are fetched in several goes;
    what goes in is not written to.
    """
    monkeypatch.setattr("fedlib.core.shards.GATHER", 200)
    task = toy(network)
    w, anchor = task.init(4), dict(reversed(task.init(5).items()))
    before, pull = tree.tmap(torch.clone, w), (mu, anchor) if mu else None
    s = shard_of(task, epochs=3)
    step = Plain()(task.loss)
    got = sgd(step, w, s, 0.3, momentum, decay, pull)
    want = sgd(lambda *a: step(*a), w, s, 0.3, momentum, decay, pull)
    assert (
        gap(got, want) < 1e-14 < gap(got, w)
        and same(w, before)
        and list(got) == list(w)
    )
    assert not any(v.requires_grad for v in got.values())


def test_descent_in_closed_form_without_batches_stays():
    task = toy(Linear(5, 3))
    s = shard_of(task, epochs=0)
    assert same(sgd(Plain()(task.loss), task.init(4), s, 0.3), task.init(4))


def shard_of(task=None, c=3, epochs=2, t=0, **plan):
    task = task or toy()
    return task.shards(1, t, 3, torch.tensor([c]), {"train": Plan(epochs, **plan)})[0]


@pytest.mark.parametrize("momentum, decay", [(0, 0), (0.9, 0), (0, 0.1), (0.9, 0.1)])
def test_descent_is_that_of_torch(momentum, decay):
    task = toy()
    w, s = task.init(1), shard_of(task)
    p = {k: v.clone().requires_grad_() for k, v in w.items()}
    opt = torch.optim.SGD(p.values(), lr=0.1, momentum=momentum, weight_decay=decay)
    for b in s:
        opt.zero_grad()
        F.cross_entropy(task.net(p)(b.x), b.y).backward()
        opt.step()
    before = tree.tmap(torch.clone, w)
    got = sgd(grad(task.loss), w, s, 0.1, momentum, decay)
    assert gap(got, {k: v.detach() for k, v in p.items()}) < 1e-14
    assert same(w, before) and not any(x.requires_grad for x in leaves(got) + leaves(w))


@pytest.mark.parametrize("momentum, decay", [(0, 0), (0.9, 0.1)])
def test_in_place_and_functional_agree(momentum, decay, monkeypatch):
    task, anchor = toy(Normed(5, 6, 3)), toy(Normed(5, 6, 3)).init(7)
    fast = sgd(
        grad(task.loss),
        task.init(1),
        shard_of(task),
        0.1,
        momentum,
        decay,
        (0.3, anchor),
    )
    monkeypatch.setattr(local, "transformed", lambda: True)
    assert (
        gap(
            fast,
            sgd(
                grad(task.loss),
                task.init(1),
                shard_of(task),
                0.1,
                momentum,
                decay,
                (0.3, anchor),
            ),
        )
        < 1e-13
    )


def test_pull_is_the_term_written_into_the_loss():
    task, d = toy(), toy().init(9)
    near = lambda w, b: task.loss(w, b) + 0.05 * sqdist(w, d)
    a = sgd(grad(near), task.init(1), shard_of(task), 0.1, 0.5)
    assert (
        gap(
            a,
            sgd(grad(task.loss), task.init(1), shard_of(task), 0.1, 0.5, pull=(0.1, d)),
        )
        < 1e-13
    )


def test_descent_on_a_bowl():
    """On |w - b|^2 / 2 every step shrinks the distance to b by 1 - lr (1 + mu),
    around (b + mu a) / (1 + mu).
    """
    task = bowls([[2.0, -1.0]])
    s, w, lr, mu = shard_of(task, 0, 5), task.init(0), 0.2, 0.5
    b, a = (
        task.x[0],
        {
            "u": torch.zeros(2, dtype=torch.float64),
            "v": torch.ones(2, dtype=torch.float64),
        },
    )
    plain, tied = (
        sgd(grad(task.loss), w, s, lr),
        sgd(grad(task.loss), w, s, lr, pull=(mu, a)),
    )
    for k in w:
        assert gap([plain[k]], [b + (1 - lr) ** 5 * (w[k] - b)]) < 1e-14
        centre = (b + mu * a[k]) / (1 + mu)
        assert (
            gap([tied[k]], [centre + (1 - lr * (1 + mu)) ** 5 * (w[k] - centre)])
            < 1e-14
        )


def test_descent_through_descent():
    """The derivative of a descended model by its start, on a bowl: (1 - lr)^steps."""
    task = bowls([[2.0, -1.0]])
    s, lr = shard_of(task, 0, 3), 0.2
    total = lambda w: sum(x.sum() for x in leaves(sgd(grad(task.loss), w, s, lr)))
    assert (
        gap(
            grad(total)(task.init(0)),
            tree.tmap(lambda x: torch.full_like(x, (1 - lr) ** 3), task.init(0)),
        )
        < 1e-14
    )


def test_buffers_follow_torch_and_stay_out_of_the_gradient():
    net, task = Normed(5, 6, 3), toy(Normed(5, 6, 3))
    w = task.init(1)
    module = torch.nn.BatchNorm1d(6).double()
    b = next(iter(shard_of(task)))
    module(F.linear(b.x, w["one.weight"], w["one.bias"]))
    got = task.refresh(w, b)
    assert got.keys() == set(net.buffers)
    assert (
        gap(
            [got["bn.running_mean"], got["bn.running_var"]],
            [module.running_mean, module.running_var],
        )
        < 1e-14
    )
    g = grad(task.loss)(w, b)
    assert (
        all(float(g[k].abs().max()) == 0 for k in net.buffers)
        and float(g["one.weight"].abs().max()) > 0
    )


def test_a_frozen_body_keeps_its_buffers():
    task = toy(Normed(5, 6, 3))
    body, head = task.split(task.init(1))
    before = tree.tmap(torch.clone, body)
    moved = sgd(grad(lambda h, b: task.loss(body | h, b)), head, shard_of(task), 0.1)
    assert moved.keys() == head.keys() and gap(moved, head) > 0 and same(body, before)
    body2 = sgd(grad(lambda v, b: task.loss(v | head, b)), body, shard_of(task), 0.1)
    assert all(gap([body2[k]], [body[k]]) > 0 for k in task.buffers)


def test_scan_skips_padding():
    b = Batch(
        torch.ones(2, 1), torch.zeros(2).long(), None, None, torch.arange(2), None, 2
    )
    masks = [
        torch.tensor([1.0, 1.0]),
        torch.tensor([0.0, 0.0]),
        torch.tensor([1.0, 0.0]),
    ]
    shard = type(
        "S",
        (),
        {"full": False, "__iter__": lambda s: iter([b._replace(m=m) for m in masks])},
    )()
    assert scan(lambda c, b: {"k": c["k"] + 1}, {"k": torch.tensor(0)}, shard)["k"] == 2


def test_sharpness_aware_step():
    """On w' H w / 2: H (w + rho H w / |H w|)."""
    H = torch.tensor([[3.0, 1.0], [1.0, 2.0]], dtype=torch.float64)
    w, rho = torch.tensor([1.0, -2.0], dtype=torch.float64), 0.3
    f = lambda v, b: v["w"] @ H @ v["w"] / 2
    g = H @ w
    assert gap(SAM(rho)(f)({"w": w}, None), {"w": H @ (w + rho * g / g.norm())}) < 1e-11
    assert gap(SAM(0.0)(f)({"w": w}, None), Plain()(f)({"w": w}, None)) == 0


# ---------------------------------------------------------------- the server's pieces
def test_projection_onto_the_simplex():
    v = torch.tensor(
        [[0.5, 0.3, 0.2], [2.0, 0.0, 0.0], [0.6, 0.6, -1.0], [-5.0, -5.0, -5.0]],
        dtype=torch.float64,
    )
    p = project(v)
    assert torch.allclose(
        p,
        torch.tensor(
            [[0.5, 0.3, 0.2], [1, 0, 0], [0.5, 0.5, 0], [1 / 3] * 3],
            dtype=torch.float64,
        ),
    )
    g = torch.Generator().manual_seed(1)
    v = torch.randn(50, 6, generator=g, dtype=torch.float64)
    p, q = project(v), torch.rand(200, 6, generator=g, dtype=torch.float64)
    q = q / q.sum(1, keepdim=True)
    nearer = (v[:, None] - q).square().sum(2) >= (v - p).square().sum(
        1, keepdim=True
    ) - 1e-12
    assert (
        nearer.all()
        and torch.allclose(p.sum(1), torch.ones(50, dtype=torch.float64))
        and p.min() >= 0
    )
    assert gap([project_box(v[0], torch.zeros(6), torch.ones(6))], [p[0]]) < 1e-12
    lo, hi = (
        torch.full((6,), 0.1, dtype=torch.float64),
        torch.full((6,), 0.3, dtype=torch.float64),
    )
    boxed = project_box(v[1], lo, hi)
    assert (
        abs(float(boxed.sum()) - 1) < 1e-12
        and (boxed >= lo - 1e-12).all()
        and (boxed <= hi + 1e-12).all()
    )


def test_rules():
    G, p = (
        torch.tensor([[1.0, 9.0], [2.0, 0.0], [6.0, 3.0]]),
        torch.tensor([0.5, 0.25, 0.25]),
    )
    assert Mean()(G, p, None, None).tolist() == [2.5, 5.25]
    assert Median()(G, p, None, None).tolist() == [2, 3]
    assert Median()(
        torch.cat([G, torch.tensor([[4.0, 5.0]])]), p, None, None
    ).tolist() == [3, 4]


@pytest.mark.parametrize("network", [None, Normed(5, 6, 3)])
def test_rules_leave_buffers_alone(network):
    """Geometry sees parameters only; running statistics are averaged with
    the same weights.
    """
    from fedlib.methods import METHODS

    task = toy(network)
    ws = tree.stack([task.init(k) for k in range(3)])
    for k in task.buffers:
        ws[k] = torch.arange(3, dtype=torch.float64)[:, None].expand(ws[k].shape) + 1
    p = torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64)
    mean, median = (
        METHODS["FedAvg"](task, rule=r).combine(task.init(9), ws, p)
        for r in (Mean(), Median())
    )
    m = METHODS["FedAvg"](task)
    P = sum(v.numel() for k, v in task.init(0).items() if k not in task.buffers)
    assert m.progress(task.init(9), ws).shape == (3, P)
    for k in mean:
        want = (
            torch.tensordot(p, ws[k], 1)
            if k in task.buffers
            else ws[k].median(0).values
        )
        assert (
            gap([median[k]], [want]) < 1e-14
            and gap([mean[k]], [torch.tensordot(p, ws[k], 1)]) < 1e-14
        )
    assert (
        gap(m.move(task.init(9), ws, p @ m.progress(task.init(9), ws), p), mean) < 1e-14
    )


# -------------------------------------------------------- two models that move together
@pytest.mark.parametrize("momentum, decay", [(0.0, 0.0), (0.5, 0.01)])
def test_two_models_in_one_descent_are_two_descents(momentum, decay):
    """sgd on {"a": w, "b": v} with the gradient of each: running statistics, momentum
    and decay included, loop and vmap.
    """
    task = toy(Normed(5, 6, 3))
    shards = task.shards(0, 0, 1, torch.arange(2), {"train": Plan(2)})
    d, w, v = grad(task.loss), task.init(1), task.init(2)
    both = lambda m, b: {"a": d(m["a"], b), "b": d(m["b"], b)}
    got = sgd(both, {"a": w, "b": v}, shards[0], 0.1, momentum, decay)
    for name, start in (("a", w), ("b", v)):
        assert same(got[name], sgd(d, start, shards[0], 0.1, momentum, decay))
        assert not same(
            tree.subset(got[name], task.buffers), tree.subset(start, task.buffers)
        )
    data, make = task.stacked(0, 0, 1, torch.arange(2), {"train": Plan(2)})
    stacked = vmap(
        lambda x: sgd(both, {"a": w, "b": v}, make(x), 0.1, momentum, decay)
    )(data)
    assert gap(leaves(tree.pick(stacked, 0)), leaves(got)) < 1e-12
