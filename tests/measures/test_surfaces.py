"""Around a model: landscapes, sharpness, Hessians, Fisher's scores, worked explicitly."""

import math

import pytest
import torch
import torch.nn.functional as F
from toys import quadratic
from toys_core import Normed, gap, toy

from fedlib.core.pool import Pool
from fedlib.core.shards import Plan
from fedlib.core.task import Task
from fedlib.core.tree import add, leaves, rows, scale, stack, tmap, unrow
from fedlib.measures import fisher
from fedlib.measures import landscape as ls
from fedlib.measures import sharpness as sh
from fedlib.methods.personal.fedas import traces
from fedlib.nets import CNN, MLP
from repro import papers

T = torch.float64
eigenpairs = papers.module("plgu", "paths").eigenpairs
like_loss = papers.module("plgu", "flatness").like_loss


def images(network, N=24, side=12):
    """Four clients with random pictures of three classes."""
    g = torch.Generator().manual_seed(3)
    x, y = torch.randn(N, 2, side, side, generator=g, dtype=T), torch.arange(N) % 3
    own = torch.arange(N).split(N // 4)
    pool = Pool("noise", x, y, 3, "synthetic")
    return Task.from_rows("noise", network, pool, own, parts=(0.7, 0, 0.3))


def every_row(task):
    return torch.cat(task.train)


def flat(tree):
    return rows(stack([tree]))[0]


def test_filters_of_a_direction_are_as_long_as_those_of_the_model_and_vectors_stay():
    task = images(CNN(2, 3, (4, 8), "batch"))
    w = task.init(0)
    d = ls.direction(w, 7, task.buffers)
    assert list(d) == list(w)
    for k in w:
        norms = [v[k].flatten(1).norm(dim=1) for v in (d, w) if v[k].dim() > 1]
        assert torch.allclose(*norms, rtol=1e-9) if norms else not d[k].any()
    two = {"a": torch.ones(2, 3), "b": torch.ones(2, 3)}
    moved = ls.direction(two, 0, ("b",))
    assert moved["a"].any() and not moved["b"].any()  # a buffer, whatever its shape
    lone = {"a": torch.stack([torch.zeros(4, dtype=T), torch.ones(4, dtype=T)])}
    d = ls.direction(lone, 0)["a"]
    assert not d[0].any() and float(d[1].norm()) == pytest.approx(2)


def test_the_draw_depends_on_seed_and_name_alone():
    a, b = (toy(MLP(5, (6, 6), 3)).init(s) for s in (0, 1))
    unit = lambda d: {k: F.normalize(v, dim=1) for k, v in d.items() if v.dim() > 1}
    d = ls.direction(a, 3)
    assert gap(unit(d), unit(ls.direction(b, 3))) < 1e-9
    assert gap(unit(d), unit(ls.direction(a, 4))) > 0.1
    some = {k: a[k] for k in reversed(a) if k != "fc1.weight"}
    found = ls.direction(some, 3)  # order and company do not matter
    assert gap(found, {k: d[k] for k in found}) == 0
    alike = ls.direction({k: torch.ones(4, 4) for k in "uv"}, 0)
    assert not torch.allclose(alike["u"], alike["v"])
    one = {"x": torch.tensor([3.0, 0]), "y": torch.tensor([4.0])}
    two = {"y": torch.tensor([4.0]), "x": torch.tensor([0.0, 3])}
    assert ls.cosine(one, two) == pytest.approx(16 / 25)
    assert ls.norm(one) == 5 and ls.norm(one, ("y",)) == 3


def test_the_loss_is_the_mean_over_the_rows_in_evaluation_mode():
    for task in (images(CNN(2, 3, (4, 8), "batch")), toy(Normed(5, 6, 3)), toy()):
        w = {k: v + 0.3 * (k in task.buffers) for k, v in task.init(1).items()}
        of = every_row(task)
        want = float(F.cross_entropy(task.logits(w, task.x[of]), task.y[of]))
        for size in (None, 1, 5, 100):
            loss = ls.data_loss(task, of, size)
            assert float(loss(w)) == pytest.approx(want, rel=1e-12)
    own = quadratic([[1.0, 2.0], [3.0, -1.0]])  # a network with a loss of its own
    at = {"w": torch.tensor([0.0, 1.0], dtype=T)}
    assert float(ls.data_loss(own, torch.tensor([0, 1]))(at)) == (1 + 1 + 9 + 4) / 4


def test_a_balanced_subset_has_every_class_equally_often():
    y = torch.tensor([0, 0, 0, 1, 2, 1, 2, 2, 0, 1])
    assert ls.balanced(y, 7).tolist() == [0, 1, 3, 4, 5, 6]
    assert ls.balanced(y, 4, torch.tensor([9, 8, 7, 6, 5])).tolist() == [5, 6, 8]
    assert ls.balanced(y, 30).tolist() == list(range(10))


def test_a_plane_is_written_y_x_and_equals_the_explicit_loop():
    for task in (images(CNN(2, 3, (4, 8), "batch")), toy(Normed(5, 6, 3))):
        w, of = task.init(0), every_row(task)
        loss = ls.data_loss(task, of, 7)
        d1, d2 = (ls.direction(w, s, task.buffers) for s in (1, 2))
        x = [-0.8, -0.4, 0, 0.4, 0.8]

        def at(a, b, task=task, w=w, d1=d1, d2=d2, of=of):
            z = task.logits(add(add(w, d1, a), d2, b), task.x[of])
            return float(F.cross_entropy(z, task.y[of]))

        want = torch.tensor([[at(a, b) for a in x] for b in x], dtype=T)
        z, line = ls.plane(loss, w, d1, d2, 0.8, 5), ls.line(loss, w, d2, 0.8, 5)
        assert float((z - want).abs().max()) < 1e-12
        assert float((line - want[:, 2]).abs().max()) < 1e-12
        s, seeds = ls.surface(loss, w, 0.8, 5), (1, 2)
        assert torch.equal(s.z, z) and s.norm == ls.norm(w, task.buffers)
        assert s.cosine == ls.cosine(*(ls.direction(w, k, task.buffers) for k in seeds))


def at(*v):
    return {"w": torch.tensor(v, dtype=T)}


def bowl(H):
    """w -> u' H u / 2 with u all of w in one vector."""
    H = torch.as_tensor(H, dtype=T)
    return lambda w: flat(w) @ H @ flat(w) / 2


def rotated(eigenvalues):
    """A full matrix with these eigenvalues."""
    g, n = torch.Generator().manual_seed(0), len(eigenvalues)
    Q = torch.linalg.qr(torch.randn(n, n, generator=g, dtype=T))[0]
    return Q @ torch.diag(torch.tensor(eigenvalues, dtype=T)) @ Q.T


def hessian(loss, p, rest):
    of = lambda v: loss(rest | unrow(v, p))
    return torch.autograd.functional.hessian(of, flat(p).detach())


def tiny_net():
    """Twenty parameters, and buffers that stay."""
    g = torch.Generator().manual_seed(2)
    x = torch.randn(30, 4, generator=g, dtype=T)
    y = torch.randint(0, 2, (30,), generator=g)
    pool, own = Pool("t", x, y, 2, "synthetic"), torch.arange(30).split(10)
    task = Task.from_rows("t", Normed(4, 2, 2), pool, own, parts=(0.8, 0, 0.2))
    near = lambda v: v + 0.1 * torch.randn(v.shape, generator=g, dtype=T).abs()
    return task, {k: near(v) for k, v in task.init(3).items()}


def test_products_and_eigenvalues_are_those_of_the_explicit_hessian():
    task, w = tiny_net()
    for size in (None, 7):
        loss = ls.data_loss(task, every_row(task), size)
        p, parts = sh.apart(loss, w)
        assert not set(p) & set(task.buffers)
        v = tmap(lambda x: torch.randn(x.shape, dtype=T), p)
        H = hessian(loss, p, w)
        assert torch.allclose(flat(sh.hvp(parts, p, v)), H @ flat(v), atol=1e-12)
        of = lambda u, loss=loss, p=p: loss(w | unrow(u, p))
        want = torch.autograd.functional.jacobian(of, flat(p))
        assert torch.allclose(flat(sh.slope(parts, p)), want, atol=1e-12)
    e = torch.linalg.eigvalsh(H)
    top = sh.lambda_max(loss, w, 20000, 1e-13)
    assert top.converged and top.value == pytest.approx(float(e[-1]), rel=1e-7)
    values, vectors = eigenpairs(loss, w, k=3)
    assert values == pytest.approx(e.flip(0)[:3].tolist(), rel=1e-3)
    assert not any(vectors[0][name].any() for name in task.buffers)


def test_quadratics():
    # at the last power iteration alone stands still
    for values in ([1, 2, 5], [-9, 2, 5], [-9, -4, -1], [-5, 0, 0], [-3, 1, 3]):
        e = sh.lambda_max(bowl(rotated(values)), at(1, 2, 3), 2000, 1e-12)
        assert e.converged and e.value == pytest.approx(max(values), abs=1e-5), values
    slow = bowl(rotated([0.99, 0.995, 1.0, 0.98, 0.5]))
    e = sh.lambda_max(slow, at(*range(5)), iterations=2, tol=1e-9)
    assert not e.converged
    H = rotated([5.0, -7.0, 3.0, 1.0, 0.5])
    values, vectors = eigenpairs(bowl(H), at(1.0, 2.0, 3.0, 4.0, 5.0))
    assert values == pytest.approx([5, 3])  # the largest, not in magnitude
    for value, vector in zip(values, vectors):
        v = flat(vector)
        assert v.norm() == pytest.approx(1) and v[v.abs().argmax()] > 0
        assert torch.allclose(H @ v, value * v, atol=1e-3)


def test_rise_is_the_formula_and_stays_in_the_ball():
    H, x = torch.diag(at(2.0, 0.5)["w"]), at(0.3, -1)["w"]
    g = H @ x
    u = g / g.norm()
    turn = torch.linspace(0, 2 * math.pi, 20001, dtype=T)
    for rho in (0.05, 0.5, 3):
        r = sh.rise(bowl(H), {"w": x}, rho)
        asc = float(rho * g.norm() + rho**2 / 2 * u @ H @ u)
        e = x + rho * torch.stack([turn.cos(), turn.sin()], 1)
        worst = float(((e @ H) * e).sum(1).max() / 2 - x @ H @ x / 2)
        assert r.asc == pytest.approx(asc, rel=1e-10)
        assert max(r.asc - 1e-12, 0.95 * worst) <= r.pga <= worst * (1 + 1e-9)
    seen, f, w = [], bowl(torch.diag(torch.tensor([1.0, 9.0]))), at(1.0, 0.2)
    watched = lambda v: (seen.append(v["w"].detach().clone()), f(v))[1]
    sh.rise(watched, w, 0.1, steps=12)
    far = max(float((v - w["w"]).norm()) for v in seen)
    assert 0.0999 < far <= 0.1 * (1 + 1e-9) and w["w"].tolist() == [1, 0.2]
    assert sh.rise(bowl(torch.eye(2)), at(0.0, 0.0), 0.1) == (0, 0)


def test_area_is_the_mean_rise_in_a_disc():
    x = ls.axis(1, 41)
    z, v = 3 + 2 * x**2 + 5 * x[:, None] ** 2, x.tolist()
    disc = [(a, b) for a in v for b in v if a * a + b * b <= 0.25 + 1e-12]
    want = sum(2 * a * a + 5 * b * b for a, b in disc) / len(disc)
    assert float(sh.area(z)) == pytest.approx(want, rel=1e-12)
    many = sh.area(torch.stack([z, 2 * z, z - 9]))
    assert torch.allclose(many, want * torch.tensor([1, 2, 1], dtype=T))
    assert float(sh.area(z, radius=2, within=1)) == pytest.approx(want)


def test_sharpness_is_compared_at_the_losses_that_both_pass():
    loss, sharp, other = [0.4, 0.2, 0.1], [2.0, 4.0, 8.0], ([0.8, 0.16], [1.0, 5.0])
    twice = [2 * s for s in sharp]  # the law sharp = 0.8 / loss, and twice as sharp
    assert like_loss(loss, sharp, *other) == pytest.approx(0)
    assert like_loss(loss, twice, *other) == pytest.approx(math.log(2))
    assert like_loss(*other, loss, twice) == pytest.approx(-math.log(2))
    assert math.isnan(like_loss([0.4, 0.3], [1, 2], [0.2, 0.1], [1, 2]))


def test_fishers_diagonal_is_the_square_of_a_difference_quotient():
    task = toy()
    w, plan = task.init(2), {"train": Plan(1, None, "drop", False)}
    (shard,) = task.shards(0, 0, 1, torch.tensor([3]), plan)
    d = fisher.diagonal(task, w, shard)
    total = float(sum(x.sum() for x in leaves(d)))
    assert total == pytest.approx(float(traces(task.loss, w, shard)[0]), rel=1e-12)
    eps, want, unit = 1e-6, 0.0, torch.eye(6, dtype=T)[2]
    for b in shard:
        near = [{**w, "fc1.bias": w["fc1.bias"] + s * unit} for s in (eps, -eps)]
        up, down = (float(task.loss(v, b)) for v in near)
        want += ((up - down) / (2 * eps)) ** 2
    assert float(d["fc1.bias"][2]) == pytest.approx(want, rel=1e-6)


def test_the_largest_scores_are_chosen_and_replaced():
    score = {"a": torch.tensor([[5.0, 1.0], [0.0, 4.0]])}
    score["b"] = torch.tensor([9.0, 2.0, 3.0, 0.5, 0.1, 0.2])
    top = fisher.chosen(score, 0.3)
    assert top["a"].tolist() == [[True, False], [False, True]]
    assert top["b"].tolist() == [True] + [False] * 5
    drawn = {tuple(flat(fisher.chosen(score, 0.3, s)).tolist()) for s in range(20)}
    assert len(drawn) > 5 and {sum(d) for d in drawn} == {3}
    task = toy()
    w, other = task.init(0), task.init(1)
    mask = fisher.chosen(w, 0.1)
    want = {"zero": tmap(torch.zeros_like, w), "other": other}
    for how in fisher.WITH:
        new = fisher.replaced(task, w, mask, how, other=other)
        assert all(torch.equal(new[k] != w[k], mask[k]) for k in w)
        if how in want:
            assert all(torch.equal(new[k][mask[k]], want[how][k][mask[k]]) for k in w)
    assert gap(*(fisher.replaced(task, w, mask, seed=s) for s in (1, 2))) > 0
    none = {k: torch.zeros_like(v, dtype=torch.bool) for k, v in w.items()}
    layers = fisher.by_layer(task, none | {"fc.bias": torch.ones(3, dtype=torch.bool)})
    assert layers == {"fc1": 0.0, "fc": pytest.approx(3 / 21)}


def test_bad_input_is_refused_by_name():
    task, v = toy(), at(1.0, 1.0)
    w, loss = task.init(0), ls.data_loss(task, every_row(task))
    steep = bowl([[1.0, 0], [0, math.inf]])
    calls = {"within 1 of": lambda: ls.surface(loss, scale(w, math.nan), 1, 3)}
    calls["points = 4"] = lambda: ls.surface(loss, w, 1, 4)
    calls["ball"] = lambda: sh.rise(steep, v, 0.1)
    calls["Hessian"] = lambda: sh.lambda_max(bowl([[1.0, 0], [0, math.nan]]), v)
    for word, call in calls.items():
        with pytest.raises(ValueError, match=word):
            call()
