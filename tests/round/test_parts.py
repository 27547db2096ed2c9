"""The parts of a round alone, against torch, scipy, or by hand."""

import math
import os

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, stats
from toys_core import Normed, gap, same, toy

from fedlib.core import clients, files, tree
from fedlib.core.clients import cohort_of
from fedlib.core.local import adam, grad, in_parts, sgd
from fedlib.core.pool import Groups, describe, parity
from fedlib.core.random import fold, normal, seed_of, tag, uniform
from fedlib.core.shards import Batch, Plan, draw, mapped, stacked
from fedlib.methods.base.fedavg import FedAvg
from fedlib.nets import MLP
from fedlib.pieces.simplex import project, project_box, simplex_qp

D = torch.float64
t64 = lambda *v: torch.tensor(v, dtype=D)


def randn(seed, *shape):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=g, dtype=D)


def test_integers_are_those_of_splitmix_and_differ_by_every_tag():
    known = 0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F  # published
    assert all(int(fold(torch.tensor(0), k)) % 2**64 == v for k, v in enumerate(known))
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
    for v in (two["a"], z[len(z) // 2 :], z[1:]):
        assert abs(np.corrcoef(z[: len(v)], v)[0, 1]) < 0.015
    u = uniform(torch.tensor(5), (300, 400), D)
    assert stats.kstest(u.flatten().numpy(), "uniform").pvalue > 0.01


def test_a_cohort_is_drawn_without_replacement_and_all_alike():
    m = FedAvg(toy())
    drawn = [cohort_of(m, m.task, 1, t, 3).tolist() for t in range(400)]
    assert all(c == sorted(set(c)) and len(c) == 3 for c in drawn)
    n = np.bincount(np.concatenate(drawn), minlength=6)
    assert stats.chisquare(n).pvalue > 0.01 and len({*map(tuple, drawn)}) == 20


def test_who_is_online_by_hand():
    shares = (0.2, 0.59, 0.6, 1, 0.01, 0.15)
    assert [clients.size(20, P) for P in shares] == [4, 11, 12, 20, 1, 3]
    late, early = (clients.stragglers(7, 0.3, 5, exchanged=e) for e in (False, True))
    for t in range(10):
        everybody = t in (4, 9)
        assert late(t).tolist() == [*range(7 if everybody else 5)]
        assert early(t).tolist() == [*range(0 if everybody else 2, 7)]
    for wrong in (0, 1.1):
        pytest.raises(ValueError, clients.size, 20, wrong)
    for wrong in ((1.0, 5), (0.5, 0), (-0.1, 5)):
        pytest.raises(ValueError, clients.stragglers, 20, *wrong)


def test_plans_by_hand():
    rows = torch.arange(100, 111)
    for plan, lengths in (
        *((Plan(), [4, 4, 3]), (Plan(2), [4, 4, 3] * 2), (Plan(0), [])),
        *((Plan(1, 5), [5, 5, 1]), (Plan(1, 100), [11])),
        *((Plan(2, None, "drop"), [4, 4] * 2), (Plan(1, 100, "drop"), [11])),
        *((Plan(9, steps=2), [4, 4]), (Plan(steps=5), [4, 4, 3, 4, 4])),
        *((Plan(1, block=0.5), [4, 1]), (Plan(1, block=0.01), [1])),
        (Plan(5, 11, poisson=True), [11] * 5),
    ):
        drawn, cut = draw(rows, plan, 3, 4)
        assert cut == lengths and len(drawn) == sum(cut), plan
        assert len(drawn[:8].unique()) == len(drawn[:8]), plan
        assert torch.isin(drawn, rows).all()
        assert torch.equal(drawn, draw(rows, plan, 3, 4)[0])
    blocks = [draw(rows, Plan(block=0.5, shuffle=False), s, 4)[0] for s in range(99)]
    assert all(b.tolist() == [*range(int(b[0]), int(b[0]) + 5)] for b in blocks)
    assert {int(b[0]) for b in blocks} == {*range(100, 107)}
    assert draw(rows[:0], Plan(3), 0, 4)[1] == []
    (s,) = toy().shards(0, 0, 1, torch.tensor([0]), {"head": Plan(1, 7)})
    assert [(len(b.y), b.size) for b in s.on("head")] == [(7, 7), (2, 7)]


def test_a_mean_is_over_the_rows_that_count():
    v = torch.arange(6.0).view(3, 2)
    b = Batch(v, torch.zeros(3).long(), None, None, torch.arange(3), None, 3)
    masked = lambda *m: b._replace(m=torch.tensor(m, dtype=v.dtype))
    for m, mean in (((1, 0, 1), [2, 3]), ((0, 0, 1), [4, 5]), ((0, 0, 0), [0, 0])):
        assert masked(*m).avg(v).tolist() == mean
    assert b.avg(v).tolist() == [2, 3] and b.avg(v[:0]).tolist() == [0, 0]
    parts = [masked(1, 1, 0).part(k, 2) for k in range(2)]
    assert [(*p.row.tolist(), *p.m.tolist()) for p in parts] == [(0, 2, 1, 0), (1, 1)]
    step = in_parts(lambda w, p, q: {"w": w["w"] + p.x.sum() - q.x.sum()}, 2)
    short = b._replace(x=v[:1], y=b.y[:1], row=b.row[:1])
    moved = lambda batch: float(step({"w": torch.ones(())}, batch)["w"])
    batches = b, masked(1, 1, 0), short, masked(1, 0, 1)
    assert [*map(moved, batches)] == [6, 6, 0, 0]


def test_gradients_nest():
    A, q = randn(0, 4, 4), {"w": randn(1, 4), "unused": torch.ones(2)}
    norm = tree.sqnorm
    f = lambda v: (v["w"] @ A @ A.T @ v["w"]) ** 2 / 9
    for nested in (
        lambda g: g(f),
        lambda g: g(lambda v: norm(g(lambda u: norm(g(f)(u)))(v))),
        lambda g: g(lambda v: norm(g(lambda u: f(u) + 3 * tree.sqdist(u, v))(v))),
    ):
        a, b = nested(grad)(q), nested(torch.func.grad)(q)
        assert gap(a, b) < 1e-10 * float(b["w"].abs().max())


def test_a_part_of_a_model_descends_in_closed_form_and_step_by_step():
    task, plans = toy(MLP(5, 6, 3)), {"train": Plan(2)}
    body, head = task.split(task.init(0))
    (s,) = task.shards(0, 0, 1, torch.tensor([0]), plans)
    for start, rest in ((head, body), (body, head)):
        loss = task.loss.beside(rest)
        slow = grad(lambda v, b, rest=rest: task.loss(rest | v, b))
        pull = (0.3, dict(reversed(tree.scale(start, 2).items())))
        for how in ((0.2, 0.0, 0.1, pull), (0.2, 0.5, 0.1, pull)):
            down = lambda f, w, how=how: sgd(f, w, s, *how)
            a, b = (down(f, start) for f in (grad(loss), slow))
            assert loss.descend and gap(a, b) < 1e-12 < gap(a, start)
            size = lambda f, down=down: grad(lambda w: tree.sqnorm(down(f, w)))
            assert gap(size(grad(loss))(start), size(slow)(start)) < 1e-12
    assert task.loss.beside({"fc.bias": head["fc.bias"]}).descend is None


def test_running_statistics_move_in_a_part_and_in_two_models_at_once():
    task = toy(Normed(5, 6, 3))
    (s,) = task.shards(0, 0, 1, torch.tensor([0]), {"train": Plan(2)})
    w, v, d = task.init(1), task.init(2), grad(task.loss)
    body, head = task.split(w)
    moved = sgd(grad(lambda v, b: task.loss(v | head, b)), body, s, 0.1)
    assert all(gap([moved[k]], [w[k]]) > 1e-3 for k in task.buffers)
    step = lambda m, b: {k: d(x, b) for k, x in m.items()}
    both = sgd(step, {"a": w, "b": v}, s, 0.1, 0.5, 0.01)
    for k, x in {"a": w, "b": v}.items():
        assert same(both[k], sgd(d, x, s, 0.1, 0.5, 0.01))


@pytest.mark.parametrize("network", [None, Normed(5, 6, 3)])
def test_adam_is_torchs(network):
    """Clients of unequal size, one after another and at once; decay, statistics."""
    task, plans, ids = toy(network), {"train": Plan(2)}, torch.arange(3)
    w, how, want = task.init(0), {"betas": (0.5, 0.8), "eps": 1e-2}, []
    for s in task.shards(0, 0, 1, ids, plans):
        p = {k: v.clone().requires_grad_() for k, v in w.items()}
        free = [v for k, v in p.items() if k not in task.buffers]
        opt = torch.optim.Adam(free, lr=0.03, weight_decay=0.1, **how)
        for b in s:
            opt.zero_grad()
            moved = task.refresh(p, b)
            F.cross_entropy(task.logits(p, b.x, b), b.y).backward()
            opt.step()
            for k, v in moved.items():
                p[k].data = v
        want.append({k: v.detach() for k, v in p.items()})
    fit = lambda s: adam(grad(task.loss), w, s, 0.03, **how, decay=0.1)
    at_once = mapped(fit, stacked(task, 0, 0, 1, ids, plans), ())
    for c, s in enumerate(task.shards(0, 0, 1, ids, plans)):
        assert max(gap(a, want[c]) for a in (fit(s), tree.pick(at_once, c))) < 1e-7


@given(st.integers(0, 10**6), st.integers(1, 7), st.floats(0.1, 9))
def test_the_nearest_points_of_simplex_and_box(seed, n, size):
    """Against scipy's root of their one equation; a mixture by its conditions."""
    v, U = size * randn(seed, n), randn(seed + 1, n, n + 1)
    lo, hi = randn(seed + 2, 2, n).abs()
    lo, hi = lo / lo.sum() / 2, 1.5 / n + hi
    free = project(v[None])[0], torch.zeros(n, dtype=D), torch.full((n,), math.inf)
    for p, low, high in (free, (project_box(v, lo, hi), lo, hi)):
        at = lambda s, low=low, high=high: float((v - s).clamp(low, high).sum()) - 1
        s = optimize.brentq(at, float(v.min()) - 9, float(v.max()) + 9, xtol=1e-14)
        assert gap([p], [(v - s).clamp(low, high)]) < 1e-8
    a = simplex_qp((U @ U.T)[None])[0]
    slope = U @ (U.T @ a)
    assert abs(float(a.sum()) - 1) < 1e-9 and float(a.min()) >= 0
    assert float(a @ slope - slope.min()) < 1e-6 * float(slope.abs().max())


def test_a_row_without_a_finite_score_is_wrong():
    z = t64(1.0, 2.0, 0.0).repeat(4, 1)
    z[1, 0], z[2, 1] = math.nan, math.inf
    hits = FedAvg(toy()).hits(z, torch.tensor([1, 1, 1, 2]))
    assert hits.tolist() == [1, 0, 0, 0]


def test_groups_by_hand():
    g, rows = Groups("g", ("a", "b"), (1, 3), 0), torch.tensor([[0, 1], [2, 3]])
    assert g.outcome(rows).tolist() == [[0, 1], [0, 1]]
    q, x = t64(0.1, 0.2, 0.3, 0.4).repeat(2, 1), t64(0.0, 0.98)[:, None]
    assert torch.allclose(g.odds(q.log() + 5).exp(), t64(0.4, 0.6).repeat(2, 1))
    share, none = [0.4, 0.6], [0, 0]
    by_class = Groups("parity", ("even", "odd"), (1, 2), None, (0, 1, 0))
    for cells, want in (
        (g.cells(q, x), [[share, none], [none, share]]),
        (g.cells(q, x, torch.tensor([1, 0])), [[none, share], [share, none]]),
        (by_class.cells(t64(0.5, 0.2, 0.3)[None]), [[[0.5, 0.3], [0, 0.2]]]),
    ):
        assert torch.allclose(cells, torch.tensor(want, dtype=D))
    y, a = torch.tensor([1, 1, 0, 2]), torch.tensor([0, 1, 1, 1])
    b, z = Batch(x, y, a, t64(1, 1, 1, 0), None, None, 4), torch.eye(4, dtype=D)
    assert g.tally(z[[0, 1, 3, 2]], b).tolist() == [[none, [1, 0]], [[0, 1], [0, 1]]]
    odd, p = parity(torch.arange(10), 10)
    assert odd.tolist() == [0, 1] * 5 and p.positive == (5, 6, 7, 8, 9)
    assert torch.equal(p.cells(torch.eye(10)).sum(2).argmax(1), odd)
    x = torch.tensor([[0, 0.5, 1], [1, 2, 0], [1, 1, 0]], dtype=D)
    a, told = describe(x, ["a 2", "a 10", "a 10"], (1,))
    assert a.tolist() == [0, 1, 1] and told.names == ("a 2", "a 10")
    assert told.column == 0 and [b.kind[0] for b in told.schema] == ["f", "n", "f"]


def test_a_file_is_whole_and_what_the_dead_left_is_swept(tmp_path):
    stay, old = {".a.7@here", ".b.8@here", "a.9@here"}, ".a.8@here"
    for name in (*stay, old):
        (tmp_path / name).write_text("half")
        if name != ".a.7@here":
            os.utime(tmp_path / name, (0, 0))
    files.whole(tmp_path / "a", lambda f: f.write(b"whole"))
    with pytest.raises(ZeroDivisionError):
        files.whole(tmp_path / "a", lambda f: f.write(b"half") / 0)
    assert (tmp_path / "a").read_bytes() == b"whole"
    assert {p.name for p in tmp_path.iterdir()} == stay | {"a"}
