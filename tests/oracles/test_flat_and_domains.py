"""FedSAM and PLGU; GA, FAA, FFT-GP, GRACE, FedCLIP and PromptFL: written a second time,
explicit autograd, torch's own optimisers."""

import itertools
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from toys_clip import NAMES, toy_towers
from toys_core import Normed, gap, same, toy
from toys_plain import LAYERS, averaged, batches, down, f64, near, run, served, slope

from fedlib.core.shards import Batch
from fedlib.core.tree import pick, stack, subset
from fedlib.methods.make import make
from fedlib.nets import MLP
from fedlib.nets.clip import Prompts
from fedlib.pieces import align
from fedlib.pieces.steps import SAM

SEED, NEAR, SIZES = 3, 1e-10, (8, 6, 7)  # rows; batches of four: two a pass
FIXED = {"lr": 0.2, "shuffle": False}  # the same batches in every pass
BODY, HEAD = LAYERS


def test_fedsam_by_hand():
    """eq:fedsam-perturb, eq:fedsam-step: with momentum and decay, which act on w."""
    task, rho = toy(sizes=SIZES), 0.3
    w, ws = task.init(SEED), []
    for c in range(3):
        a, v = w, {k: 0 for k in w}
        for b in batches(task, c, 2):
            g = slope(a, b)
            e = shake(g, [1, 1], LAYERS, rho)
            g = slope({k: a[k] + e[k] for k in a}, b)
            v = {k: 0.5 * v[k] + g[k] + 0.1 * a[k] for k in a}
            a = down(a, v, 0.2)
        ws.append(a)
    more = {"epochs": 2, "momentum": 0.5, "decay": 0.1} | FIXED
    got = served(make("FedSAM", task, rho=rho, **more))["w"]
    assert gap(got, averaged(ws, SIZES)) < NEAR
    assert same(got, served(make("FedAvg", task, step=SAM(rho), **more))["w"])


def moved(a, b, layer):
    """Euclidean distance of two models on one layer, over its number of weights."""
    gaps = np.concatenate([(a[k] - b[k]).numpy().ravel() for k in layer])
    return float(np.sqrt((gaps**2).sum())) / gaps.size


def mean_one(raw):
    total = sum(raw)
    return [len(raw) * r / total for r in raw] if total > 1e-12 else [1.0] * len(raw)


def test_the_default_number_of_own_layers_and_those_that_are_kept():
    """eq:plgu-mix: five layers, or a quarter of fewer; those that moved most."""
    for hidden, D in (((4,) * 3, 1), ((4,) * 11, 3), ((4,) * 29, 5), ((4,), 1)):
        m = make("PLGU-LF", toy(MLP(5, hidden, 3)))
        w = m.task.init(0)
        mine = {"w": near(w), "seen": torch.tensor(True)}
        theta, s, own = m.start(w, mine, torch.tensor(7))
        assert int(own.sum()) == D, (hidden, D)
        move = [moved(mine["w"], w, u) for u in m.units(w)]
        assert own.tolist() == [v in sorted(move)[-D:] for v in move]
        kept = {k for unit, o in zip(m.units(w), own) if o for k in unit}
        assert same(theta, {k: (mine["w"] if k in kept else w)[k] for k in w})


def shake(g, s, layers, rho):
    """rho s_l g_l / |g|."""
    length = math.sqrt(sum(float((v**2).sum()) for v in g.values()))
    each = zip(layers, s)
    return {k: rho * s_l * g[k] / length for layer, s_l in each for k in layer}


def lf(task, cohorts, D, at="w", direction="theta", freeze=False, decay=0.0, rho=0.3):
    """PLGU-LF: server's and clients' models after the rounds of the cohorts given."""
    w, met = task.init(SEED), set()
    theta = {c: w for c in range(task.C)}
    for cohort in cohorts:
        ups = []
        for c in cohort:
            raw = [moved(theta[c], w, layer) for layer in LAYERS]
            order = sorted(range(2), key=lambda i: (-raw[i], i))
            own = [c in met and sum(raw) > 1e-12 and i in order[:D] for i in range(2)]
            s = mean_one(raw) if c in met else [1.0, 1.0]
            kept = {k for layer, o in zip(LAYERS, own) if o for k in layer}
            a, u = {k: theta[c][k] if k in kept else w[k] for k in w}, w
            for b in batches(task, c, 2):
                g = slope(a, b)
                e = shake(g if direction == "theta" else slope(u, b), s, LAYERS, rho)
                where = u if at == "w" else a
                gu = slope({k: where[k] + e[k] for k in a}, b)
                gu = {k: gu[k] + decay * u[k] for k in u}
                still = kept if freeze else ()
                g = {k: g[k] + decay * a[k] for k in g if k not in still}
                a, u = down(a, g, 0.2), down(u, gu, 0.2)
            theta[c] = a
            met.add(c)
            ups.append((len(task.train[c]), u))
        w = averaged([u for _, u in ups], [n for n, _ in ups])
    return w, theta


LF = [{}, {"D": 2, "direction": "w"}, {"at": "theta"}, {"freeze": True, "decay": 0.1}]


@pytest.mark.parametrize("more", LF, ids=str)
def test_lf_by_hand(more):
    """eq:plgu-score, eq:plgu-mix, eq:plgu-perturb, eq:plgu-pair, and what each client
    is served then: client 0 misses the last of three rounds, client 2 never trains."""
    task, hyper, cohorts = toy(sizes=SIZES), {"D": 1} | more, [[0], [0, 1], [1]]
    m = make("PLGU-LF", task, rho=0.3, epochs=2, **FIXED, **hyper)
    rec = run(m, 3, cohort=lambda t: cohorts[min(t, 2)])
    w, theta = lf(task, cohorts, **hyper)
    assert gap(rec.state["server"]["w"], w) < NEAR
    w, x = near(task.init(9)), task.x[:5]
    for c in range(3):
        mine = pick(rec.state["clients"], c)
        assert gap(mine["w"], theta[c]) < NEAR and bool(mine["seen"]) == (c < 2)
        order = np.argsort([-moved(theta[c], w, layer) for layer in LAYERS])
        own = [k for i in order[: hyper["D"]] for k in LAYERS[i]] if c < 2 else []
        mixed = w | {k: theta[c][k] for k in own}
        last = theta[c] if c < 2 else w
        views = m.views({"w": w}, mine, shards(m, 0, 5)[c])
        for name, v in (("global", w), ("personal", last), ("refreshed", mixed)):
            assert gap([views[name](x)], [task.logits(v, x)]) < NEAR, (c, name)


def grep(task, cohorts, against="last", fresh=False, lr=0.2, rho=0.3):
    """PLGU-GRep: (server's body, clients' heads, clients' bodies)."""
    w, layers = task.init(SEED), (BODY[:1], BODY[1:])  # tensors as layers
    phi, bodies = subset(w, BODY), {}
    heads = {c: subset(w, HEAD) for c in range(task.C)}
    for cohort in cohorts:
        ups = []
        for c in cohort:
            h, v, known = heads[c], phi, [1.0, 1.0]
            for b in batches(task, c, 2):
                h = down(h, slope(phi | h, b, HEAD), lr)
            if c in bodies:
                known = mean_one([moved(bodies[c], phi, layer) for layer in layers])
            for b in batches(task, c):
                g = slope(v | h, b, BODY)
                after, s = down(v, g, lr), known
                if against == "drift":
                    s = mean_one([moved(after, v, layer) for layer in layers])
                e = shake(slope(after | h, b, BODY) if fresh else g, s, layers, rho)
                v = down(after, slope({k: after[k] + e[k] for k in e} | h, b, BODY), lr)
            heads[c], bodies[c] = h, v
            ups.append((len(task.train[c]), v))
        phi = averaged([v for _, v in ups], [n for n, _ in ups])
    return phi, heads, bodies


@pytest.mark.parametrize("more", [{}, {"against": "drift", "fresh": True}], ids=str)
def test_grep_by_hand(more):
    """eq:grep-head under the body as sent, then eq:grep-body twice on each batch."""
    task, cohorts = toy(sizes=SIZES), [[0, 1], [0], [1, 2]]
    m = make("PLGU-GRep", task, rho=0.3, layer="tensor", head_epochs=2, **FIXED, **more)
    rec = run(m, 3, cohort=lambda t: cohorts[min(t, 2)])
    phi, heads, bodies = grep(task, cohorts, **more)
    kept = rec.state["clients"]
    assert gap(rec.state["server"]["w"], phi) < NEAR
    for c in range(3):
        assert gap(pick(kept["head"], c), heads[c]) < NEAR
        assert gap(pick(kept["body"], c), bodies[c]) < NEAR
    # the own head on the body of the day
    body, x = subset(task.init(9), BODY), task.x[:5]
    view = m.views({"w": body}, pick(kept, 1), None)["personal"]
    assert gap([view(x)], [task.logits(body | heads[1], x)]) < NEAR


def test_ghn_client_by_hand():
    """eq:ghn-pair: two steps a batch, the second where the sent scores point."""
    task, s = toy(sizes=SIZES), [1.7, 0.3]
    m = make("PLGU-GHN", task, rho=0.3, epochs=2, **FIXED)
    w = start = task.init(4)
    for b in batches(task, 1, 2):
        g = slope(w, b)
        after, e = down(w, g, 0.2), shake(g, s, LAYERS, 0.3)
        w = down(after, slope({k: after[k] + e[k] for k in e}, b), 0.2)
    mine, up = m.local({"w": start, "s": f64(s)}, {}, shards(m, 0, 5)[1])
    assert mine == {} and gap(up["gap"], {k: start[k] - w[k] for k in w}) < NEAR


FORMS = "mirror", "mirror_std", "additive", "closed"
UNEVEN = (-4, 0.2), (4, 1.2)  # ends of gaps and of weights
TOY = toy()


shards = lambda m, t, R: m.task.shards(SEED, t, R, torch.arange(m.task.C), m.plans())
# every client's model after its local training from w, without the engine
trained = lambda m, w, t, R: [m.fit(m.loss, w, s) for s in shards(m, t, R)]


def costs(task, ws, metric):
    """Loss or error on each client's rows [C]; one model for all, or one each."""
    out = []
    for c, r in enumerate(task.val):
        z = task.logits(ws[c] if isinstance(ws, list) else ws, task.x[r])
        wrong = (z.argmax(1) != task.y[r]).double().mean()
        out.append(F.cross_entropy(z, task.y[r]) if metric == "loss" else wrong)
    return torch.stack(out)


def replay(method, R, step, local=trained):
    """(model, weights [R, C], gaps) of R rounds; a = step(t, w, ws, a, G), where the
    gap G is that of the model as sent against those uploaded the round before."""
    task = method.task
    w, a, before, log, gaps = task.init(SEED), f64([1 / task.C] * task.C), None, [], []
    for t in range(R):
        G = None if before is None else costs(task, w, method.metric) - before
        ws = local(method, w, t, R)
        a = step(t, w, ws, a, G)
        before, w = costs(task, ws, method.metric), averaged(ws, a)
        log.append(a)
        gaps.append(0 * a if G is None else G)
    return w, torch.stack(log), torch.stack(gaps)


def test_ga_is_its_replay():
    """eq:gap, eq:ga. Released: after round t - 1, by step - (t - 2) step / R."""

    def step(t, w, ws, a, G):
        if t == 0:
            return a
        G = G - G.mean() if method.centre else G
        eta = 0.9 - (t - 2 if method.falling == "released" else t) * 0.9 / 5
        a = (a + eta / len(a) * G / G.abs().max().clamp(min=1e-6)).clamp(0, 1)
        return a / a.sum()

    names = "metric", "centre", "falling"
    for values in (("loss", False, "released"), ("accuracy", True, "to zero")):
        method = make("GA", TOY, lr=0.5, step_size=0.9, **dict(zip(names, values)))
        rec, (w, log, gaps) = run(method, 5), replay(method, 5, step)
        assert gap(rec.state["server"]["w"], w) < NEAR
        assert gap([rec.logs["weight"], rec.logs["gap"]], [log, gaps]) < NEAR
        assert np.ptp(log.numpy(), 0).max() > 0.01  # they moved


def by_hand(form, a, G, eta, low=0.25, high=2.0):
    """The four forms in plain numpy (eq:faa-z, eq:faa-step)."""
    a, G, C = np.asarray(a, float), np.asarray(G, float), len(a)
    if np.abs(G).mean() < 1e-6:
        return a
    c = G - G.mean()
    if "mirror" in form:
        size = np.abs(G).mean() if form == "mirror" else G.std()
        b = a * np.exp(eta * np.clip(c / size, -1, 1))
    elif form == "additive":
        b = np.clip(a + eta / C * c / np.abs(c).max(), 0, 1)
    else:
        target = np.maximum(a * G, 1e-8)
        b = (1 - eta) * a + eta * target / target.sum()
    b = np.clip(b / b.sum(), low / C, high / C)
    return b / b.sum()


def test_forms_of_faa():
    """eq:faa-z, eq:faa-step, and the bounds; no gaps move nothing."""
    g = np.random.default_rng(0)
    for form, C, eta in itertools.product(FORMS, range(2, 8), (0.1, 0.5, 1)):
        faa, (G, a) = make("FAA", TOY, form=form), g.uniform(*UNEVEN, (C, 2)).T
        a = a / a.sum()
        b = faa.moved(f64(a), f64(G), eta)
        assert np.allclose(b, by_hand(form, a, G, eta), atol=1e-6), (form, C, eta)
        assert gap([faa.moved(f64(a), f64(G) * 1e-7, 0.5)], [f64(a)]) == 0


def late(form, eta, beta, R):
    """FAA's step from smoothed gaps that are a round late."""
    smooth = []

    def step(t, w, ws, a, G):
        if t == 0:
            return a
        smooth.append(G if t == 1 else beta * smooth[-1] + (1 - beta) * G)
        return f64(by_hand(form, a, smooth[-1], eta * (1 - t / R)))

    return step


def probe(task, form, eta):
    """FAA's choice of four trial averages of this round."""

    def step(t, w, ws, a, G):
        own, tried, a = costs(task, ws, "loss"), [], f64([1 / task.C] * task.C)
        for q in range(4):
            G = costs(task, averaged(ws, a), "loss") - own
            tried.append((float(G.var(unbiased=False)), q, a))
            a = f64(by_hand(form, a, G, eta * 0.7**q))
        return min(tried)[2]

    return step


def explicit(method, w, start, x, y):
    """By torch.autograd on the whole formula; the halves are every other row."""
    task, second = method.task, method.second_order
    p = {k: v.clone().requires_grad_() for k, v in w.items()}
    loss = lambda v, r: F.cross_entropy(task.logits(v, x[r]), y[r])

    def A(v, r):
        with torch.no_grad():
            frozen = task.feat(start, x[r])
        return align.LOSSES[method.align](task.feat(v, x[r]), frozen)

    def slope(out, at):
        d = torch.autograd.grad(out, list(at.values()), create_graph=second)
        return dict(zip(p, d))

    all_, one, two = slice(None), slice(0, None, 2), slice(1, None, 2)
    if method.meta in ("none", "joint"):
        lam = method.lam if method.meta == "joint" else 0
        return slope(loss(p, all_) + lam * A(p, all_), p)
    g1 = slope(loss(p, one), p)
    v = {k: p[k] - (method.ahead or method.lr) * g1[k] for k in p}
    if not second:
        v = {k: t.detach().requires_grad_() for k, t in v.items()}
    g2 = slope(method.rho * loss(v, two) + method.lam * A(v, two), p if second else v)
    return g2 if method.meta == "grace" else {k: g1[k] + g2[k] for k in p}


def test_the_aligned_step_is_the_formula():
    """eq:meta-train, eq:meta-test, eq:meta-step: every distance."""
    w, start, r = TOY.init(0), near(TOY.init(0)), TOY.train[3][:8]
    b = Batch(TOY.x[r], TOY.y[r], None, None, r, None, 8)
    names, metas = "meta second_order align ahead", ("none", "joint", "mldg", "grace")
    for case in itertools.product(metas, (False, True), align.LOSSES, (0.0, 0.4)):
        more = dict(zip(names.split(), case)) | {"lam": 0.7, "rho": 0.6, "lr": 0.3}
        method = make("FFT-GP", TOY, **more)
        got = method.direction(TOY.loss, start)(w, b)
        assert gap(got, explicit(method, w, start, b.x, b.y)) < NEAR, case


def test_fftgp_and_faa_are_their_replays():
    """eq:fftgp: eq:meta-step with momentum and decay, features of this round's
    download, weights by eq:faa-step from the gaps at once; FAA's a round late (eq:gap).
    """
    task, R = toy(sizes=(8, 12, 6)), 4
    more = {"lr": 0.3, "momentum": 0.6, "decay": 0.02}
    fft = make("FFT-GP", task, lam=0.9, eta=1.0, **more)
    faa = make("FAA-lagged", task, form="mirror_std", eta=0.8, beta=0.7, **more)

    def aligned(method, w, t, R):
        ws = []
        for shard in shards(method, t, R):
            v, speed = w, {k: 0 for k in w}
            for b in shard:
                g = explicit(method, v, w, b.x, b.y)
                speed = {k: 0.6 * speed[k] + g[k] + 0.02 * v[k] for k in v}
                v = {k: v[k] - 0.3 * speed[k] for k in v}
            ws.append(v)
        return ws

    for method, step, local in (
        (fft, probe(task, "mirror", 1.0), aligned),
        (faa, late("mirror_std", 0.8, 0.7, R), trained),
    ):
        rec, (w, log, _) = run(method, R), replay(method, R, step, local)
        assert gap(rec.state["server"]["w"], w) < 1e-6
        assert np.allclose(rec.logs["weight"], log)
        assert (log - 1 / 3).abs().max() > 1e-3


def brute(kind, D, sizes):
    """Mean cosine to the others, pair by pair and tensor by tensor, then the shift."""
    cut = [sum(sizes[:i]) for i in range(len(sizes) + 1)]
    parts = [(0, cut[-1])] if kind == "total" else list(zip(cut[:-1], cut[1:]))
    q = np.linspace(1, 0, len(parts)) if kind == "reweight" else np.ones(len(parts))
    q, M = q / q.sum(), len(D)
    cos = lambda a, b: float(a @ b / (a.norm() * b.norm()))
    cut = list(zip(q, parts))
    pair = lambda i, j: sum(qk * cos(D[i, a:b], D[j, a:b]) for qk, (a, b) in cut)
    s = [np.mean([pair(i, j) for j in range(M) if j != i]) for i in range(M)]
    s = np.array(s) - min(s) + 1e-3 if min(s) < 0 else np.array(s)
    return s / s.max() if s.max() > 1 else s


def test_a_round_of_grace_by_hand():
    """eq:grace-consistency, eq:grace-shift, eq:grace-step; buffers by the same p."""
    task, n = toy(Normed(5, 6, 3)), f64([3.0, 5.0, 2.0, 4.0])
    w = task.init(0)
    names = [k for k in w if k not in task.buffers]
    step = {k: v - w[k] for k, v in near(w, 0.4).items()}
    kinds = "total", "split", "reweight"
    for kind, apart in itertools.product(kinds, (False, True)):
        method, signs = make("GRACE", task, server_lr=0.7, cosine=kind), [1, 1, 1, 1]
        signs[3] -= 2 * apart
        ends = [{k: w[k] + s * step[k] for k in w} for s in signs]
        ends = [near(end, 0.15, seed=i + 5) for i, end in enumerate(ends)]
        new = method.aggregate({"w": w}, {"w": stack(ends), "n": n}, None)
        D = [torch.cat([(w[k] - e[k]).flatten() for k in names]) for e in ends]
        s = brute(kind, torch.stack(D), [w[k].numel() for k in names])
        assert bool(s.min() < 0.01) == apart and (s > 0).all()
        p = n * f64(s) / (n @ f64(s))
        assert gap(new["log"].values(), [p, f64(s)]) < NEAR
        mean = averaged(ends, p)
        want = {k: w[k] + 0.7 * (mean[k] - w[k]) for k in names}
        assert gap(new["w"], {k: want.get(k, mean[k]) for k in w}) < NEAR


def adapted(w, x):
    """eq:fedclip-adapter: z * softmax(W2 tanh(W1 z + b1) + b2), normalised."""
    gate = (x @ w["one.weight"].T + w["one.bias"]).tanh()
    u = x * (gate @ w["two.weight"].T + w["two.bias"]).softmax(1)
    return u / u.norm(dim=1, keepdim=True)


@pytest.mark.parametrize("loss", ["contrastive", "class_ce"])
def test_fedclip_is_torchs_adam(loss):
    """eq:fedclip-adapter, eq:fedclip-loss, eq:fedclip-average: Adam new in each round."""
    _, task = toy_towers(sizes=(5, 9))  # in batches of four: one row is left over
    method, w = make("FedCLIP", task, lr=0.01, fedclip_loss=loss), task.init(SEED)
    t_ = task.network.text.double()
    for t in range(2):
        ws = []
        for shard in shards(method, t, 2):
            mine = {k: v.clone().requires_grad_() for k, v in w.items()}
            adam = torch.optim.Adam(mine.values(), 0.01, (0.9, 0.98), 1e-6, 0.2)
            for b in shard:
                u = adapted(mine, b.x)
                L = F.cross_entropy(5 * u @ t_.T, b.y)
                if loss == "contrastive":
                    S, i = 5 * u @ t_[b.y].T, torch.arange(len(b.y))
                    L = (F.cross_entropy(S, i) + F.cross_entropy(S.T, i)) / 2
                    if len(b.y) == 1:
                        continue
                adam.zero_grad()
                L.backward()
                adam.step()
            ws.append({k: v.detach() for k, v in mine.items()})
        w = averaged(ws, [1.0] * task.C)
    assert gap(served(method, 2)["w"], w) < 1e-6


def test_a_prompt_of_words_is_the_sentence_of_these_words():
    """eq:promptfl-prompt, eq:promptfl-loss: ctx = embedded words, before each class."""
    towers, task = toy_towers(network="Prompts")
    words = ["latin letter", "small small", "letter latin"]
    embedded = lambda s: towers.token_embedding(towers.tokenize([s]))[0, 1:3].double()
    said = lambda s: towers.encode_text(towers.tokenize([s]))[0].double()
    x = task.x[:4]
    z = x / x.norm(dim=1, keepdim=True)
    for specific in (False, True):
        net = Prompts(6, 3, NAMES[:3], towers, M=2, class_specific=specific)
        mine = words if specific else words[:1] * 3
        ctx = torch.stack([embedded(s) for s in mine])
        w = {"ctx": ctx if specific else ctx[0]}
        want = torch.stack([said(f"{s} {c}.") for s, c in zip(mine, NAMES)])
        want = want / want.norm(dim=1, keepdim=True)
        assert gap([net.texts(w)], [want]) < 1e-5
        assert gap([net.out(w, net.feat(w, x))], [5 * z @ want.T]) < 1e-4


def test_promptfl_is_torchs_sgd_with_a_falling_step():
    """eq:promptfl-loss, eq:promptfl-step, eq:promptfl-average: three rounds."""
    _, task = toy_towers(network="Prompts")
    method, w = make("PromptFL", task, lr=0.02, epochs=2), task.init(SEED)
    for t in range(3):
        ws, lr = [], 0.02 * (1 + math.cos(math.pi * t / 3)) / 2
        for shard in shards(method, t, 3):
            ctx = w["ctx"].clone().requires_grad_()
            sgd = torch.optim.SGD([ctx], lr, momentum=0.9, weight_decay=5e-4)
            for b in shard:
                z = 5 * F.normalize(b.x, dim=1) @ task.network.texts({"ctx": ctx}).T
                sgd.zero_grad()
                F.cross_entropy(z, b.y).backward()
                sgd.step()
            ws.append({"ctx": ctx.detach()})
        w = averaged(ws, [1.0] * task.C)
    assert gap(served(method, 3)["w"], w) < 1e-6
