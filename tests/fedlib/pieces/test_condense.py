"""Condensation: gradients by hand and by finite differences, an independent loop,
draws that follow the schema.
"""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import tensor
from torch.autograd import gradcheck
from toys_core import Normed, gap, same, toy

from fedlib.core import schema
from fedlib.core.groups import Block, Groups, parity
from fedlib.core.task import Task
from fedlib.core.tree import leaves, pick, stack, without
from fedlib.nets import CNN, MLP, Linear
from fedlib.pieces import condense as C

SEX = Groups(
    "sex",
    ("f", "m"),
    (1,),
    0,
    (),
    (Block("sex", "flag", 0, 1), Block("age", "number", 1, 5)),
)
WIDE = Groups(
    "kind",
    ("a", "b", "c"),
    (1,),
    3,
    (),
    (
        Block("born", "flag", 0, 2),
        Block("code", "number", 3, 4),
        Block("job", "onehot", 4, 8),
        Block("flag", "flag", 2, 3),
    ),
)


def people(**more):
    return toy(groups=SEX, **more)


def census(**more):
    """A stand-in for a task with 8 columns, three groups and every kind of block.

    It holds no row at all.
    """
    return SimpleNamespace(
        **({"x": torch.zeros(0, 8, dtype=torch.float64), "groups": WIDE, "K": 2} | more)
    )


def images(network=None, size=12, dtype=torch.float64):
    y = torch.arange(60) % 4
    a, groups = parity(y, 4)
    own = torch.arange(60).split(20)
    task = toy()
    return replace(
        task,
        network=network or MLP(size * size, 8, 4),
        x=torch.zeros(60, 1, size, size, dtype=dtype),
        y=y,
        a=a,
        K=4,
        groups=groups,
        train=own[:1],
        val=(own[0][:0],),
        test=own[1:2],
        guests=(),
    )


def trained(task, c, seed=1, lr=0.3, per=5):
    """A real trajectory: c checkpoints of gradient descent on the
    task's rows, a stack.
    """
    w, out = task.init(seed), []
    names = list(without(w, task.buffers))
    for _ in range(c):
        out.append(w)
        for _ in range(per):
            w = {k: v.detach().requires_grad_(k in names) for k, v in w.items()}
            d = torch.autograd.grad(
                F.cross_entropy(task.logits(w, task.x), task.y), [w[k] for k in names]
            )
            w = {
                k: v.detach()
                for k, v in (w | {k: w[k] - lr * dk for k, dk in zip(names, d)}).items()
            }
    return stack(out)


def softmax(z):
    e = np.exp(z - z.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


# ---------------------------------------------------------------- the outer gradient
def by_hand(W, c, B, e, x, a, s):
    """Softmax regression, J = 1, in numpy: loss of eq. 5 (normalised) and its gradients
    by x, label logits a and step s.

    v = (W, c) - s (P'x, P'1) / n with P = softmax(xW' + c) - softmax(a). With R, r the
    gradient by v and h_i = R x_i + r,
        dL = -s/n sum_i (h_i' dP_i + P_i' R dx_i),  dP_i = S(p_i) W dx_i - S(q_i) da_i,
                                                    S(p) = diag(p) - p p'
    """
    n, p, q = len(x), softmax(x @ W.T + c), softmax(a)
    P = p - q
    V, v = W - s * P.T @ x / n, c - s * P.sum(0) / n
    N = ((W - B) ** 2).sum() + ((c - e) ** 2).sum()
    loss = (((V - B) ** 2).sum() + ((v - e) ** 2).sum()) / N
    R, r = 2 * (V - B) / N, 2 * (v - e) / N
    h = x @ R.T + r

    def S(p, h):
        return p * h - p * (p * h).sum(1, keepdims=True)

    dx = -s / n * (P @ R + S(p, h) @ W)
    return loss, dx, s / n * S(q, h), -(P * h).sum() / n


def regression(n=7, D=4, K=3, seed=0):
    """Two checkpoints of softmax regression, rounds 2 and 5, and a start."""
    g = torch.Generator().manual_seed(seed)

    def r(*size):
        return torch.randn(*size, generator=g, dtype=torch.float64)

    return (
        Linear(D, K),
        {"fc.weight": r(2, K, D), "fc.bias": r(2, K)},
        tensor([2, 5]),
        {"x": r(n, D), "logits": r(n, K)},
    )


def arrays(trail, S):
    (W, B), (c, e) = (trail[k].numpy() for k in ("fc.weight", "fc.bias"))
    return W, c, B, e, S["x"].numpy(), S["logits"].numpy()


def test_one_step_of_softmax_regression_has_the_gradient_derived_by_hand():
    net, trail, _, S = regression()
    x, a, s = (
        t.clone().requires_grad_()
        for t in (S["x"], S["logits"], tensor(0.7, dtype=torch.float64))
    )
    q = a.softmax(1)
    with torch.no_grad():  # as in a run; walk opens its own graph
        v = C.walk(net, pick(trail, 0), x, q, s, [None])
    loss = C.distance(v, pick(trail, 0), pick(trail, 1))
    want = by_hand(*arrays(trail, S), 0.7)
    for ours, theirs in zip(
        (loss.detach(), *torch.autograd.grad(loss, (x, a, s))), want
    ):
        assert np.allclose(ours, theirs, rtol=1e-10, atol=1e-14)


def test_the_first_outer_step_is_adam_on_that_gradient():
    """Adam's first step is lr g / (|g| + 1e-8).

    The inner step is 0.3 per round, here 3 rounds in one step.
    """
    net, trail, rounds, S = regression()
    new, losses = C.condense(net, trail, rounds, S, C.Matching(1, 1, 10))
    loss, dx, da, _ = by_hand(*arrays(trail, S), 0.3 * 3)
    assert np.allclose(losses, [loss], rtol=1e-12)
    assert np.allclose(
        new["x"], S["x"].numpy() - 0.01 * dx / (abs(dx) + 1e-8), atol=1e-12
    )
    assert np.allclose(
        new["q"], softmax(S["logits"].numpy() - 0.1 * da / (abs(da) + 1e-8)), atol=1e-12
    )


@pytest.mark.parametrize(
    "net, rows",
    [
        (MLP(4, 5, 3), None),
        (MLP(4, (5, 4), 3), tensor([0, 2, 5])),
        (Normed(4, 5, 3), None),
    ],
)
def test_finite_differences_by_rows_labels_and_step(net, rows):
    g = torch.Generator().manual_seed(3)
    a, b = (without(net.init(s, torch.float64), net.buffers) for s in (1, 2))
    x, q = (
        torch.randn(6, 4, generator=g, dtype=torch.float64),
        torch.randn(6, 3, generator=g, dtype=torch.float64),
    )

    def loss(x, logits, step):
        return C.distance(C.walk(net, a, x, logits.softmax(1), step, [rows] * 3), a, b)

    assert gradcheck(
        loss, [t.requires_grad_() for t in (x, q, tensor(0.4, dtype=torch.float64))]
    )


def test_the_loop_equals_another_one_with_torch_func_and_torch_optim():
    task = people(network=MLP(5, 4, 3))
    trail, S = pick(trained(task, 4), slice(2, 4)), C.start(task, task.init(4), 9, 0)
    x, a, alpha = (
        t.clone().requires_grad_()
        for t in (S["x"], S["logits"], tensor(0.3, dtype=torch.float64).log())
    )
    adam = torch.optim.Adam(
        [{"params": [p], "lr": lr} for p, lr in ((x, 0.01), (a, 0.1), (alpha, 0.02))]
    )
    inner = torch.func.grad(
        lambda w, x, q: -(q * task.logits(w, x).log_softmax(1)).sum(1).mean()
    )
    start, goal = (
        torch.cat([t.flatten() for t in leaves(pick(trail, i))]) for i in (0, 1)
    )
    seen = []
    for _ in range(6):
        v = pick(trail, 0)
        for _ in range(3):
            g = inner(v, x, a.softmax(1))
            v = {k: v[k] - alpha.exp() * 4 / 3 * g[k] for k in v}
        loss = (torch.cat([t.flatten() for t in leaves(v)]) - goal).square().sum() / (
            start - goal
        ).square().sum()
        adam.zero_grad()
        loss.backward()
        adam.step()
        seen.append(float(loss.detach()))
    new, losses = C.condense(task.network, trail, [1, 5], S, C.Matching(6, 3, 10))
    assert np.allclose(losses, seen, rtol=1e-10)
    assert np.allclose(new["x"], x.detach(), atol=1e-10)
    assert np.allclose(new["q"], a.detach().softmax(1), atol=1e-10)


def test_plain_and_normalised_distance_by_hand():
    v, a, b = (
        {"u": tensor([p]), "v": tensor([[q]])}
        for p, q in ((1.0, 2.0), (0.0, 0.0), (3.0, 4.0))
    )
    assert C.distance(v, a, b, False) == 8 and C.distance(v, a, b) == 8 / 25
    net, trail, rounds, S = regression()
    size = sum(float((t[0] - t[1]).square().sum()) for t in trail.values())
    plain, normal = (
        float(C.condense(net, trail, rounds, S, C.Matching(1, 2, 1, normalised=n))[1])
        for n in (False, True)
    )
    assert plain == pytest.approx(size * normal, rel=1e-12)


# --------------------------------------------------------- condensing a real trajectory
def test_a_real_trajectory_is_matched_and_the_sensitive_column_stays():
    task = people(network=MLP(5, 8, 3), dtype=torch.float32)
    trail = trained(task, 8)
    S = C.start(task, pick(trail, -1), 60, 0)
    kept = (
        {k: v.clone() for k, v in S.items()},
        {k: v.clone() for k, v in trail.items()},
    )
    with torch.no_grad():
        new, losses = C.condense(
            task.network, trail, torch.arange(8), S, C.Matching(150, 5, 10, fixed=0)
        )
    assert losses.shape == (150,) and not losses.requires_grad
    assert losses[-40:].mean() < 0.5 < losses[:10].mean()
    assert same({"x": new["x"][:, 0]}, {"x": S["x"][:, 0]})
    assert (new["x"][:, 1:] - S["x"][:, 1:]).abs().min() > 0
    assert torch.allclose(new["q"].sum(1), torch.ones(60))
    assert not new["x"].requires_grad
    assert not new["q"].requires_grad
    assert same(kept[0], S) and same(kept[1], trail)  # nothing was written to


def test_without_outer_steps_the_start_comes_back():
    net, trail, rounds, S = regression()
    new, losses = C.condense(net, trail, rounds, S, C.Matching(0, 5, 10))
    assert same(new, {"x": S["x"], "q": S["logits"].softmax(1)})
    assert losses.shape == (0,)


def test_a_mini_batch_moves_its_rows_alone():
    net, trail, rounds, S = regression()
    new, _ = C.condense(net, trail, rounds, S, C.Matching(1, 1, 10, 3))
    assert int((new["x"] != S["x"]).any(1).sum()) == 3
    # every step draws its own
    new, _ = C.condense(net, trail, rounds, S, C.Matching(1, 3, 10, 3))
    assert int((new["x"] != S["x"]).any(1).sum()) > 3
    assert same(
        C.condense(net, trail, rounds, S, C.Matching(3, 2, 10, 7))[0],
        C.condense(net, trail, rounds, S, C.Matching(3, 2, 10))[0],
    )


def test_pairs_lie_at_most_gap_checkpoints_apart():
    """With the step at 0 the model stays where it is,
    so the plain loss is the squared distance of a pair.
    """
    net, c = Linear(2, 2), 6
    at = 2.0 ** torch.arange(c, dtype=torch.float64)  # all differences are different
    trail = {
        "fc.weight": torch.zeros(c, 2, 2, dtype=torch.float64),
        "fc.bias": torch.stack([at, 0 * at], 1),
    }
    S = {k: torch.zeros(4, 2, dtype=torch.float64) for k in ("x", "logits")}
    for most, pairs in ((1, 5), (2, 9), (10, 15)):
        losses = C.condense(
            net,
            trail,
            range(c),
            S,
            C.Matching(150, 1, most, step=1e-9, lr_step=0, normalised=False),
        )[1]
        want = {
            round(float((at[q] - at[p]) ** 2))
            for p in range(c)
            for q in range(p + 1, min(c, p + most + 1))
        }
        assert len(want) == pairs and set(losses.round().long().tolist()) == want


def test_seeds():
    task = people()
    trail, S = trained(task, 5), C.start(task, task.init(2), 20, 0)
    one, two, other = (
        C.condense(task.network, trail, range(5), S, C.Matching(5, 2, 3, 8), seed=s)[0]
        for s in (0, 0, 1)
    )
    assert same(one, two) and gap(one, other) > 0
    assert same(C.start(task, task.init(2), 20, 0), S)
    assert gap(C.start(task, task.init(2), 20, 1), S) > 0


def test_batch_norm_uses_the_statistics_of_the_synthetic_rows():
    task = people(network=Normed(5, 4, 3))
    trail, S = trained(task, 3), C.start(task, task.init(2), 20, 0)
    wrong = trail | {k: v + 7 for k, v in trail.items() if k in task.buffers}
    a, b = (
        C.condense(task.network, t, range(3), S, C.Matching(3, 2, 3))
        for t in (trail, wrong)
    )
    assert same(a[0], b[0]) and same({"l": a[1]}, {"l": b[1]})


def test_images_of_a_convolutional_network(device):
    task = images(CNN(1, 4, (4, 8)), dtype=torch.float32).to(device)
    w, far = task.init(1), task.init(2)
    trail = stack([w, {k: 0.9 * w[k] + 0.1 * far[k] for k in w}])
    new, losses = C.condense(
        task.network,
        trail,
        [0, 1],
        C.start(task, w, 12, 0),
        C.Matching(8, 2, 1, 6, step=0.02),
    )
    assert new["x"].shape == (12, 1, 12, 12)
    assert new["x"].device == task.x.device
    assert losses.isfinite().all()


# ---------------------------------------------------------------- the proxy
@pytest.mark.parametrize(
    "name, sizes", [("standard", (64,)), ("deep", (64, 32)), ("wide", (128,))]
)
def test_another_network_follows_the_trajectory(name, sizes):
    task = people(network=MLP(5, 8, 3), dtype=torch.float32)
    trail, net = trained(task, 4), C.server_net(name, task)
    assert net.widths == sizes
    with torch.no_grad():
        theta, agreement = C.proxy(net, task, trail, 0, pool=300)
    assert {k: v.shape[1:] for k, v in theta.items()} == {
        k: v.shape for k, v in net.init(0).items()
    }
    assert agreement > 0.9
    assert all(len(v) == 4 and not v.requires_grad for v in theta.values())
    x = C.rows(task, 500, 99)  # rows that the fit has not seen
    for i, least in ((1, 0.8), (3, 0.9)):
        told = net.out(pick(theta, i), net.feat(pick(theta, i), x)).argmax(1)
        assert (
            told == task.logits(pick(trail, i), x).argmax(1)
        ).double().mean() > least
    C.condense(
        net, theta, range(4), C.start(task, pick(trail, -1), 20, 0), C.Matching(1, 2, 2)
    )


def test_the_proxy_is_warm_started_gradient_descent(monkeypatch):
    """Softmax regression in numpy: two checkpoints, two steps each, the second two from
    where the first two ended.
    """
    task, net = people(network=MLP(5, 3, 3)), Linear(5, 3)
    trail, x = (
        trained(task, 2),
        torch.randn(
            9, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64
        ),
    )
    asked = []
    monkeypatch.setattr(
        C, "pool_rows", lambda task, n, seed: asked.append((n, seed)) or x
    )
    with pytest.warns(UserWarning, match="agrees with the last checkpoint"):
        theta, agreement = C.proxy(net, task, trail, 6, steps=2, lr=0.05)
    W, c = (v.numpy() for v in net.init(6, torch.float64).values())
    for i in (0, 1):
        goal = softmax(task.logits(pick(trail, i), x).numpy())
        for _ in range(2):
            P = (softmax(x.numpy() @ W.T + c) - goal) / 9
            W, c = W - 0.05 * P.T @ x.numpy(), c - 0.05 * P.sum(0)
        assert np.allclose(theta["fc.weight"][i], W, atol=1e-13)
        assert np.allclose(theta["fc.bias"][i], c, atol=1e-13)
    assert agreement == ((x.numpy() @ W.T + c).argmax(1) == goal.argmax(1)).mean() < 0.9
    # other rows to fit than to compare
    assert [n for n, _ in asked] == [4000, 1000] and asked[0][1] != asked[1][1]


def test_the_pool_of_images_holds_mixtures():
    """The second half: u x_i + (1 - u) x_j of rows in the first half,
    so each lies in the plane of a pair.
    """
    pool = C.pool_rows(images(), 8, 0).flatten(1).numpy()
    pure, mixed = pool[:4], pool[4:]
    weights = mixed @ np.linalg.pinv(pure)
    assert np.allclose(weights @ pure, mixed) and np.allclose(weights.sum(1), 1)
    assert weights.min() > -1e-10 and (weights > 1e-10).sum(1).max() <= 2
    assert same({"x": tensor(pure)}, {"x": C.rows(images(), 8, 0).flatten(1)[:4]})


# ---------------------------------------------------------------- starts and ends
def test_rows_follow_the_schema_and_groups_are_balanced():
    x = C.rows(census(), 3000, 0)
    assert x.shape == (3000, 8) and x.dtype == torch.float64
    # the code 0, 1, 2
    assert torch.equal(
        x[:, 3].unique(return_counts=True)[1], tensor([1000, 1000, 1000])
    )
    # in random order, unlike balanced labels
    assert (x[:, 3] == torch.arange(3000) % 3).double().mean() < 0.4
    assert set(x[:, :3].unique().tolist()) == {0, 1}
    assert (x[:, :3].mean(0) - 0.5).abs().max() < 0.04
    assert set(x[:, 4:].unique().tolist()) == {0, 1} and (x[:, 4:].sum(1) == 1).all()
    assert (x[:, 4:].mean(0) - 0.25).abs().max() < 0.035
    # shuffled, independent
    assert (torch.corrcoef(x.T)[[0, 0, 0, 3], [1, 3, 2, 4]]).abs().max() < 0.07
    y = C.rows(people(), 3000, 0)
    assert (y[:, 0] == 1).sum() == 1500 and (y[:, 0] == 0).sum() == 1500
    assert y[:, 1:].mean(0).abs().max() < 0.07
    assert (y[:, 1:].std(0) - 1).abs().max() < 0.05
    assert torch.equal(
        C.rows(people(dtype=torch.float32), 50, 3), C.rows(people(), 50, 3).float()
    )


WORDS = [
    ("age", "number", 1, (-0.3, 1.1)),
    ("job", "onehot", 4),
    "sex",
    ("habits", "flag", 2),
    ("region", "onehot", 2),
    "income",
]


def in_words(dtype):
    """A task of somebody's own arrays, with their columns in words."""
    g, i = torch.Generator().manual_seed(5), torch.arange(60)
    x = torch.zeros(60, 11, dtype=dtype)
    x[:, 0] = torch.rand(60, generator=g)  # a number from 0 to 1
    x[i, 1 + i % 4] = (i > 7).to(dtype)  # the first eight have no job
    x[:, 5] = i % 2  # the code
    x[:, 6:8] = torch.randint(2, (60, 2), generator=g)
    x[i, 8 + i // 2 % 2] = 1
    x[:, 10] = torch.randn(60, generator=g)
    more = {"a": i % 2, "schema": WORDS}
    return Task.from_arrays(x, i // 2 % 2, i % 3 // 2, MLP(11, 4, 2), **more)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_obey_a_schema_in_words(dtype):
    task = in_words(dtype)
    x = C.rows(task, 2000, 3)
    assert x.shape == (2000, 11) and x.dtype == dtype
    low, high = torch.tensor([-0.3, 1.1], dtype=dtype)
    age = x[:, 0]
    assert (age.min(), age.max()) == (low, high)  # clipped there, and not beyond
    assert ((age == low).double().mean() - 0.382).abs() < 0.04  # P(N(0, 1) < -0.3)
    assert set(x[:, 1:10].unique().tolist()) == {0, 1}
    for at, k in (((1, 5), 4), ((8, 10), 2)):
        job = x[:, slice(*at)]
        assert (job.sum(1) == 1).all()
        assert (job.mean(0) - 1 / k).abs().max() < 0.04
    assert x[:, 5].sum() == 1000
    assert x[:, 10].abs().max() > 2.5
    # they pass the check that a reader's own rows must pass
    assert schema.blocks(WORDS, x) == task.groups.schema


def test_a_number_without_a_range_is_drawn_as_it_was():
    """Bit for bit: normal numbers of float32."""
    block, g = Block("age", "number", 3, 7), torch.Generator()
    for dtype in (torch.float32, torch.float64):
        x = C.block_rows(block, 500, g.manual_seed(1)).to(dtype)
        assert torch.equal(x, torch.randn(500, 4, generator=g.manual_seed(1)).to(dtype))


def test_rows_do_not_depend_on_the_data():
    task = people()
    other = replace(task, x=torch.zeros_like(task.x))
    for how in ("schema", "noise"):
        assert torch.equal(C.rows(task, 20, 1, how), C.rows(other, 20, 1, how))
        assert not torch.equal(C.rows(task, 20, 1, how), C.rows(task, 20, 2, how))


def test_noise_is_white_but_for_the_sensitive_column():
    x = C.rows(census(), 3000, 0, "noise")
    assert torch.equal(
        x[:, 3].unique(return_counts=True)[1], tensor([1000, 1000, 1000])
    )
    rest = x[:, [0, 1, 2, 4, 5, 6, 7]]
    assert (rest.std(0) - 1).abs().max() < 0.05
    assert rest.mean(0).abs().max() < 0.07
    assert (rest % 1 != 0).all()
    assert C.rows(images(), 5, 0, "noise").unique().numel() == 5 * 144


def test_smooth_images_have_the_correlation_of_a_box():
    """Two 5 x 5 boxes that are d pixels apart share 5 - d of 5 columns."""
    x = C.rows(images(size=24), 400, 0)
    assert abs(float(x.mean())) < 1e-6 and abs(float(x.std()) - 1) < 1e-6
    assert abs(float(x[:, 0, 0, 0].mean())) < 0.3  # the edge is no darker
    inner = x[:, 0, 2:-2, 2:-2]
    for d, share in ((1, 0.8), (2, 0.6), (5, 0.0)):
        ours = np.corrcoef(inner[:, :, :-d].flatten(), inner[:, :, d:].flatten())[0, 1]
        assert abs(ours - share) < 0.02


def test_labels_start_at_the_model_or_balanced():
    task, w = people(), people().init(3)
    S = C.start(task, w, 30, 0)
    assert torch.equal(S["x"], C.rows(task, 30, 0))
    assert torch.allclose(S["logits"], task.logits(w, S["x"]).log_softmax(1))
    flat = C.start(task, w, 30, 0, "noise", "balanced")
    assert torch.equal(flat["x"], C.rows(task, 30, 0, "noise"))
    assert set(flat["logits"].unique().tolist()) == {0, 2}
    assert flat["logits"].sum(0).tolist() == [20, 20, 20]
    assert (flat["logits"].sum(1) == 2).all()
    task = images()
    S = C.start(task, task.init(3), 12, 0)
    two = np.eye(4)[np.arange(12) % 4] * 2
    want = (softmax(two) + softmax(task.logits(task.init(3), S["x"]).numpy())) / 2
    assert np.allclose(S["logits"].softmax(1), want)


def test_a_start_without_matching_is_a_synthetic_set():
    x, logits = torch.randn(2, 8), tensor([[1.0, 2.0], [5.0, 0.0]])
    S = C.finish({"x": x, "logits": logits})
    assert torch.equal(S["x"], x) and torch.allclose(S["q"], logits.softmax(1))
    # log-probabilities are logits
    assert torch.allclose(C.finish({"x": x, "logits": S["q"].log()})["q"], S["q"])


# ---------------------------------------------------------------- refusals
def _condense(**more):
    net, trail, rounds, S = regression()
    at = {"net": net, "trail": trail, "rounds": rounds, "S": S}
    how = {"outer": 1, "J": 1, "gap": 1} | {k: more[k] for k in more if k not in at}
    return C.condense(
        **at | {k: more[k] for k in more if k in at}, how=C.Matching(**how)
    )


@pytest.mark.parametrize(
    "bad, words",
    [
        (
            dict(trail={k: v[:1] for k, v in regression()[1].items()}, rounds=[0]),
            "1 checkpoints make no trajectory; collect",
        ),
        (dict(rounds=[0, 1, 2]), "the trail is not 3 checkpoints"),
        (dict(net=Linear(4, 2)), "trail with condense.proxy"),
        (dict(rounds=[3, 1]), "sort the checkpoints"),
        (dict(J=0), "J = 0; give 1"),
        (dict(outer=-1), "outer = -1; give 0"),
        (dict(gap=0), "gap = 0; give 1"),
        (dict(batch=0), "batch = 0; give 1"),
        (
            dict(trail={k: v[[0, 0]] for k, v in regression()[1].items()}),
            "rounds 2 and 5 are equal",
        ),
        (
            dict(step=1e200),
            "outer step 1, rounds 2 to 5: loss inf, .* use a smaller step than 1e",
        ),
    ],
)
def test_what_cannot_be_condensed(bad, words):
    with pytest.raises(ValueError, match=words):
        _condense(**bad)


GAP = replace(WIDE, schema=WIDE.schema[1:])
ODD = replace(WIDE, schema=(WIDE.schema[0]._replace(kind="text"), *WIDE.schema[1:]))


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: C.rows(census(), 2, 0), "n = 2 rows for 3 groups"),
        (lambda: C.rows(toy(), 9, 0), "the task has no groups"),
        (
            lambda: C.rows(census(), 9, 0, "zeros"),
            'how = .zeros.; use "schema" or "noise"',
        ),
        (
            lambda: C.rows(census(groups=GAP), 9, 0),
            "the schema of 'kind' describes columns .* of 8",
        ),
        (lambda: C.rows(census(groups=ODD), 9, 0), "block 'born' is a 'text'"),
        (
            lambda: C.start(people(), people().init(0), 9, 0, labels="none"),
            'labels = .none.; use "soft" or "balanced"',
        ),
        (
            lambda: C.server_net("tiny", people()),
            "'tiny' is unknown; use one of same, standard, deep, wide",
        ),
        (
            lambda: C.proxy(Normed(5, 4, 3), people(), trained(people(), 2), 0),
            "running statistics.*use group norm",
        ),
        (
            lambda: C.proxy(
                MLP(5, 4, 3), people(), trained(people(), 2), 0, 50, 20, 1e200
            ),
            "diverged; use a smaller lr",
        ),
    ],
)
def test_what_cannot_be_started(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_server_networks():
    task = images()
    assert C.server_net("same", task) is task.network
    assert [C.server_net(n, task).widths for n in ("standard", "deep", "wide")] == [
        (64,),
        (64, 32),
        (128,),
    ]
    assert C.server_net("wide", task).inputs == 144
    assert C.server_net("wide", task).K == 4


# ---------------------------------------------------------------- once for the same
@pytest.fixture
def made(monkeypatch):
    """What `shared` had to make, and nothing of other tests."""
    monkeypatch.setattr(C, "answers", {})
    return []


def ask(made, *given):
    def make():
        made.append(given)
        return {"S": {"x": torch.ones(2)}, "log": {"n": tensor(len(made))}}

    return C.shared(given, make)


def test_the_same_is_made_once(made):
    """Also from other objects that hold the same; and nobody spoils another's copy."""
    given = lambda: ({"w": torch.arange(3.0)}, [0, 1], C.Matching(1, 2, 3), "same")
    first = ask(made, *given())
    first["S"]["x"].zero_()
    again = ask(made, *given())
    assert len(made) == 1 and again["log"]["n"] == 1
    assert torch.equal(again["S"]["x"], torch.ones(2))


def test_whatever_differs_is_made_anew(made):
    some = [
        (torch.zeros(4), C.Matching(1, 2, 3)),
        (torch.zeros(4), C.Matching(1, 2, 3, lr_x=0.02)),
        (torch.zeros(4, dtype=torch.float64), C.Matching(1, 2, 3)),
        (torch.zeros(2, 2), C.Matching(1, 2, 3)),
        (-torch.zeros(4), C.Matching(1, 2, 3)),
        ([torch.zeros(2), torch.zeros(2)], C.Matching(1, 2, 3)),
        ({"w": torch.zeros(4)}, C.Matching(1, 2, 3)),
        ({"v": torch.zeros(4)}, C.Matching(1, 2, 3)),
        (torch.zeros(4), 1, MLP(4, 2, 3)),
        (torch.zeros(4), 1.0, MLP(4, 2, 3)),
        (torch.zeros(4), True, MLP(4, 2, 3)),
        (torch.zeros(4), 1, MLP(4, (2, 2), 3)),
        (torch.zeros(4), 1, SEX),
        (torch.zeros(4), 1, replace(SEX, schema=SEX.schema[:1])),
    ]
    names = [C.content(given) for given in some]
    assert len(set(names)) == len(some)
    assert names == [C.content(given) for given in some]
    for given in some[: C.KEPT]:
        ask(made, *given)
    assert len(made) == C.KEPT == len(C.answers)


def test_only_the_last_few_are_kept(made):
    for seed in range(C.KEPT + 1):
        ask(made, seed)
    ask(made, 1)  # now the newest
    ask(made, 0)  # was forgotten, and 2 goes in its place
    assert [given for (given,) in made] == [*range(C.KEPT + 1), 0]
    ask(made, 1)
    ask(made, 2)
    assert len(made) == C.KEPT + 3 and len(C.answers) == C.KEPT


def test_what_has_no_known_content_is_made_every_time(made):
    for _ in range(2):
        ask(made, MLP(4, 2, 3), torch.nn.Linear(1, 1))
    assert len(made) == 2 and not C.answers
    with pytest.raises(TypeError, match="no content is known of a Linear"):
        C.content({"net": torch.nn.Linear(1, 1)})


def test_nothing_is_kept_of_what_failed(made):
    def make():
        raise ValueError("diverged")

    with pytest.raises(ValueError, match="diverged"):
        C.shared("trail", make)
    assert not C.answers
