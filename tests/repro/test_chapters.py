"""The toys that chapters work by hand, and the solutions of their exercises."""

import math
import re
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from toys import quadratic, serve
from toys_core import toy
from where import ROOT

import fedlib
from fedlib.core.engine import run
from fedlib.core.local import Plain, grad
from fedlib.core.method import hp
from fedlib.core.server import project_box
from fedlib.core.tree import leaves, scale, sqnorm, tmap, without
from fedlib.data import tasks
from fedlib.measures import bias
from fedlib.measures.selection import RULES
from fedlib.measures.statistics import interval
from fedlib.methods import METHODS, FedAvg, Uniform
from fedlib.methods.domains.faa import FAA
from fedlib.methods.fair.fedga import gini
from fedlib.methods.fair.fedmgda import min_norm
from fedlib.methods.flat.plgu import TINY, spread
from fedlib.methods.flat.plgu_lf import PLGULF
from fedlib.methods.groups.calibrated import Calibrated
from fedlib.methods.groups.equfl import EquFL
from fedlib.methods.make import make
from fedlib.pieces import simplex, surrogates
from repro import papers


def tensor(x):
    return torch.tensor(x, dtype=torch.float64)


# fedga


def test_three_clients_on_a_line():
    models, acc, n = tensor([0, 1, 3]), tensor([1, 0.5, 0]), tensor([6, 1, 1])
    p = METHODS["FedGA"](alpha=4.0).fair(acc)
    assert np.allclose(p, [1 / 7, 2 / 7, 4 / 7]) and np.isclose(p @ models, 2)
    assert np.isclose(METHODS["FedAvg"]().weights({"n": n}) @ models, 1 / 2)
    assert np.isclose(METHODS["Uniform"]().weights({"n": n}) @ models, 4 / 3)
    assert np.isclose(gini(acc), 2 / 3) and np.isclose(fedlib.metrics.gini(acc), 2 / 3)


LINE = [[0.0], [1.0], [3.0]]  # what the three clients want
LOSS = tensor([0, 1 / 2, 9 / 2])  # of the model w = 0


def one_round(name, t=0, state=None, **kw):
    """A round of the three clients, who train until they have what they want."""
    up = {k: kw.pop(k) for k in ("loss", "acc") if k in kw}
    m = make(name, quadratic(LINE), lr=1.0, **kw)
    return serve(m, tensor([0.0]), LINE, t, state, **up)


@pytest.mark.parametrize(
    "q, shares, new, rest",
    [
        (0.0, [1 / 3, 1 / 3, 1 / 3], 4 / 3, 4 / 3),
        (1.0, [0, 1 / 10, 9 / 10], 14 / 15, 1.491),
        (5.0, [0, 1 / 59050, 59049 / 59050], 0.273, 1.5),
    ],
)
def test_the_dial_on_a_line(q, shares, new, rest):
    out = one_round("q-FedAvg", q=q, loss=LOSS)
    assert np.allclose(out["log"]["weight"], shares, atol=1e-9)
    assert abs(float(out["w"]["w"]) - new) < 5e-4
    m = make("q-FedAvg", quadratic(LINE), q=q, lr=1.0)
    after = float(run(m, rounds=12, every=12).state["server"]["w"]["w"])
    assert abs(after - rest) < 5e-4
    alone = serve(m, tensor([0.0]), LINE[2:], loss=LOSS[2:])  # a client by itself
    assert np.isclose(float(alone["w"]["w"]), 3 / (2 * q + 1))


def test_the_worst_mixture_on_a_line():
    first = one_round("AFL", gamma=0.1, loss=LOSS)
    assert np.isclose(float(first["w"]["w"]), 4 / 3)
    assert np.allclose(first["lam"], tensor([10, 13, 37]) / 60)
    then = (first["w"]["w"] - tensor(LINE)[:, 0]).square() / 2
    second = one_round("AFL", 1, first, gamma=0.1, loss=then)
    assert np.isclose(float(second["w"]["w"]), 31 / 15)
    assert second["lam"][0] > first["lam"][0]  # client 1 climbs
    m = make("AFL", quadratic(LINE), gamma=0.1, lr=1.0)
    end = run(m, rounds=500, every=500).state["server"]
    assert np.allclose(end["lam"], [0.5, 0, 0.5], atol=1e-3)
    assert abs(float(end["w"]["w"]) - 1.5) < 1e-3


def test_information_and_ranks_on_a_line():
    bits = -(tensor([2 / 3, 1 / 3, 0]) + 1e-6).log2()
    assert np.allclose(bits, [0.58, 1.58, 19.9], atol=0.04)
    out = one_round("FedFa", gamma=1.0, momentum=0.0, acc=tensor([1, 0.5, 0]))
    assert np.allclose(out["log"]["weight"], [0.18, 0.20, 0.62], atol=0.005)
    assert abs(float(out["w"]["w"]) - 2.06) < 0.005
    for loss in (LOSS, 100 * LOSS):
        p = METHODS["FedGini"](epsilon=0.5).ranked(loss)
        assert np.allclose(p, tensor([4, 7, 13]) / 24)
    assert np.isclose(p @ tensor(LINE)[:, 0], 23 / 12)


@pytest.mark.parametrize("M", [4, 10, 30])
def test_errors_that_sum_to_one_flatten_the_weights_of_a_large_cohort(M):
    a = 1 - torch.linspace(0.1, 0.5, M, dtype=torch.float64)
    for norm, power in (("sum", 0.4 / (0.3 * M)), ("none", 0.4)):
        p = METHODS["FedGA"](alpha=10, weight_norm=norm).fair(a)
        assert np.isclose(p.max() / p.min(), 10**power)


@pytest.mark.parametrize(("theta", "fires"), [(0.019, None), (0.021, 6)])
def test_trigger_on_a_straight_line(theta, fires):
    task = toy()
    m = make("FedGA", task, W=5, theta=theta)
    state, first = m.server(task.init(0), None), None
    for t in range(40):
        state |= m.watch(state, tensor(1 - 0.02 * t), t)
        if state["on"] and first is None:
            first = t
    assert first == fires


def test_slips_are_as_the_record_tells_them():
    table = pd.read_csv(ROOT / "papers/fedga/reported.csv")
    where = ["artefact", "dataset", "method", "metric"]
    table = table.set_index(where).sort_index().reported
    say = table.astype(str).str.strip().pipe(pd.to_numeric, errors="coerce")
    here = "synthetic_05_05"
    gap = say["Figure 13", here].xs("top10_minus_bottom10", level="metric")
    best = gap + say["Table 5", here].xs("worst10_acc", level="metric")[gap.index]
    assert best["FedFa"] > 100 and np.allclose(best.drop("FedFa"), 100)
    assert say["Figure 4", "cifar01", "q-FedAvg", "delta_gini_vs_fedavg"] < 0
    ours, plain = say["Table 6", "office10_alexnet"].xs("mean_acc", level="metric")[
        ["FedGA", "FedGA_ablation"]
    ]
    assert ours < plain
    mean = say["Table 5", here].xs("mean_acc", level="metric")
    assert mean.idxmin() == "FedMGDA+" and mean["FedMGDA+"] < mean["FedAvg"] - 20


# conflict


def test_two_arrows_by_hand():
    G = tensor([[1, 0], [-0.3, 0.4]])
    average = G.mean(0)
    assert np.allclose(average, [0.35, 0.2]) and np.allclose(
        G @ average, [0.35, -0.025]
    )
    fedfv = METHODS["FedFV"](alpha=0).agree(G @ G.T, tensor([1, 2])) @ G
    assert np.allclose(fedfv, [0.32, 0.44]) and (G @ fedfv > 0).all()
    U = G / G.norm(dim=1, keepdim=True)
    d = min_norm(U @ U.T, tensor([0, 0]), tensor([1, 1])) @ U
    assert (
        np.allclose(U, [[1, 0], [-0.6, 0.8]])
        and np.allclose(d, [0.2, 0.4])
        and np.allclose(U @ d, [0.2, 0.2])
        and np.allclose(G @ d, [0.2, 0.1])  # its own arrow is half as long
    )


def free(n):
    """Bounds that leave the weights of n arrows free."""
    return tensor([0] * n), tensor([1] * n)


def test_the_nearest_point_may_be_a_tip_and_leave_an_arrow_out():
    G = tensor([[1, 0], [3, 1]])
    d = min_norm(G @ G.T, *free(2)) @ G
    assert np.allclose(d, G[0], atol=1e-6) and np.allclose(G @ d, [1, 3], atol=1e-5)
    turn = tensor([0, 1, 2]) * math.pi / 6
    U = torch.stack([turn.cos(), turn.sin()], 1)
    p = min_norm(U @ U.T, *free(3))
    assert np.allclose(p, [0.5, 0, 0.5], atol=1e-6)
    assert np.allclose(U @ (p @ U), [0.75, 0.866, 0.75], atol=1e-3)


@pytest.mark.parametrize(
    "epsilon, weight, step, gain",
    [
        (0.0, 1 / 3, [0.4, 0.2], -0.2),
        (0.1, 0.433, [0.22, 0.26], -0.02),
        (1.0, 1 / 2, [0.1, 0.3], 0.1),
    ],
)
def test_a_narrow_box_lets_a_client_lose(epsilon, weight, step, gain):
    U = tensor([[1, 0], [1, 0], [-0.8, 0.6]])
    out = serve(make("FedMGDA+", quadratic(U), epsilon=epsilon), tensor([0, 0]), U)
    assert abs(float(out["log"]["weight"][2]) - weight) < 5e-4
    assert np.allclose(out["w"]["w"], step, atol=1e-4)
    assert abs(float(U[2] @ out["w"]["w"]) - gain) < 1e-4


def test_three_arrows_that_agree_on_nothing():
    turn = tensor([0, 2, 4]) * math.pi / 3
    U = torch.stack([turn.cos(), turn.sin()], 1)
    assert np.allclose(
        min_norm(U @ U.T, tensor([0] * 3), tensor([1] * 3)) @ U, 0, atol=1e-9
    ) and np.allclose(U.mean(0), 0)


def nearest(a, b, cut=True):
    p = (b @ (b - a)) / (a - b).square().sum()
    p = p.clamp(0, 1) if cut else p
    return p * a + (1 - p) * b


@pytest.mark.parametrize("cut", [True, False])
def test_nearest_point_of_two(cut):
    """Without the clamp the theorem still holds;
    only the point is no longer between the two.
    """
    g, worst, outside = torch.Generator().manual_seed(0), math.inf, 0.0
    for _ in range(300):
        a, b = torch.randn(2, 5, generator=g, dtype=torch.float64)
        d = nearest(a, b, cut)
        worst = min(worst, float(min(a @ d, b @ d) - d @ d))
        outside = max(outside, float((d - a).norm() + (d - b).norm() - (a - b).norm()))
    assert worst >= -1e-9
    assert (outside < 1e-9) == cut


# which number


def test_the_best_of_two_hundred():
    top = np.random.default_rng(0).normal(size=(10_000, 200)).max(1).mean()
    assert (
        abs(top - 2.75) < 0.02
        and round(70 + top, 1) == 72.7
        and round(70 + 4 * top) == 81
    )


def test_an_interval_catches_the_mean_as_often_as_it_says():
    g, hits, short = np.random.default_rng(0), 0, 0
    for _ in range(2000):
        x = g.normal(3, 2, size=5)
        i = interval(x)
        hits += abs(i.mean - 3) <= i.half
        short += abs(x.mean() - 3) <= 1.96 * x.std(ddof=1) / math.sqrt(5)
    assert 0.935 < hits / 2000 < 0.965 and short / 2000 < 0.9


def test_the_rules_in_use_are_the_rules_on_the_page():
    page = (ROOT / "book/which_number.md").read_text("utf-8")
    line = r"^ *\| (\S+) \| `(\w+)` \| `(\w+)` \|$"
    said = {title: rest for title, *rest in re.findall(line, page, re.M)}
    printed = pd.read_csv(ROOT / "results/ledger.csv", dtype=str, keep_default_na=False)
    ran = printed.query("reported != '' and ours != ''")
    ran = ran[ran.rule.isin(list(RULES)) & ~ran.setting.str.contains("rule=")]
    used = ran.groupby("paper").rule
    known = {p: papers.about(p) for p in papers.found()}
    assert said == {
        known[p]["title"]: [*rules.unique(), known[p]["rule"]] for p, rules in used
    }


# fisher


PLANE = tensor([[2, 1], [1, 2], [-3, 0], [0, -3]])
RIGHT, WRONG = tensor([1, 1, 0, 0]), tensor([1, 1, 1, 0])


def row_loss(w, x, y):
    """-log p(y | x) of one row under logistic regression without a bias."""
    return torch.nn.functional.softplus((1 - 2 * y) * (x @ w))


def slopes(w, x, y):
    """The gradient of every row [N, 2]."""
    return torch.func.vmap(torch.func.grad(row_loss), (None, 0, 0))(w, x, y)


def trained_on(x, y, steps=10_000, lr=0.1):
    w = tensor([0, 0])
    for _ in range(steps):
        w = w - lr * slopes(w, x, y).sum(0)
    return w


def test_four_rows_in_a_plane():
    zero, sure = tensor([0, 0]), tensor([1, 1]) * math.log(9) / 3
    for w, y, added_last, added_first in (
        (zero, RIGHT, 7, 18),
        (sure, RIGHT, 0.28, 0.72),
        (zero, WRONG, 7, 9),
        (sure, WRONG, 7.48, 6.12),
    ):
        g = slopes(w, PLANE, y)
        assert np.isclose(g.square().sum(), added_last)
        assert np.isclose(g.sum(0).square().sum(), added_first)
    whole = lambda w: row_loss(w, PLANE, RIGHT).sum()
    matrix = torch.func.hessian(whole)(zero)
    assert np.allclose(matrix, [[3.5, 1], [1, 3.5]])
    assert np.allclose(torch.linalg.eigvalsh(matrix), [2.5, 4.5])


def test_a_wrong_label_is_learned_by_heart_unless_the_row_has_both():
    both = torch.cat([PLANE, PLANE[2:3]]), tensor([1, 1, 0, 0, 1])
    assert ((PLANE @ tensor([-1, 3]) > 0) == WRONG.bool()).all()
    for (x, y), end in (((PLANE, WRONG), 0), (both, 4.5)):
        w = trained_on(x, y)
        p = torch.sigmoid(x @ w)
        model = (p * (1 - p)) @ x.square().sum(1)  # labels drawn from the model
        assert np.isclose(slopes(w, x, y).square().sum(), end, atol=0.01)
        assert np.isclose(model, end, atol=0.05)


# add your method


@dataclass(frozen=True)
class Tilted(FedAvg):
    tau: float = hp(
        1.0, "tilt towards large losses", range=(0, math.inf), source="working choice"
    )

    def local(self, down, mine, shard):
        F = self.loss(down["w"], shard.all())
        mine, up = super().local(down, mine, shard)
        return mine, up | {"loss": F}

    def weights(self, up):
        return (self.tau * up["loss"]).softmax(0)


@dataclass(frozen=True)
class Growing(Tilted):
    def aggregate(self, server, up, r):
        tau = self.tau * min(1, 2 * r.t / r.R)
        p = (tau * up["loss"]).softmax(0)
        return {"w": self.combine(server["w"], up["w"], p), "log": {"weight": p}}


@dataclass(frozen=True)
class Capped(Tilted):
    def weights(self, up):
        p = super().weights(up)
        return project_box(p, torch.zeros_like(p), torch.full_like(p, 2 / len(p)))


def end(m, rounds):
    return run(m, m.task, rounds, seed=1, cohort=4, device="cpu").state["server"]["w"]


def far(a, b):
    return max(float((a[k] - b[k]).abs().max()) for k in a)


def test_tilted_by_hand_and_its_limit():
    assert np.allclose(
        Tilted(tau=1.0).weights({"loss": tensor([0, math.log(3)])}), [0.25, 0.75]
    )
    task = toy()
    even = end(Uniform(task), 3)
    assert (
        far(end(Tilted(task, tau=0), 3), even)
        < 1e-12
        < 1e-5
        < far(end(Tilted(task), 3), even)
    )


def test_a_growing_tilt_starts_as_the_uniform_average():
    task = toy()
    assert far(end(Growing(task, tau=50.0), 1), end(Uniform(task), 1)) < 1e-12
    assert far(end(Growing(task, tau=50.0), 4), end(Uniform(task), 4)) > 1e-5


def test_a_capped_weight():
    loss = tensor([1, 2, 3, 9])
    assert np.allclose(Capped(tau=0).weights({"loss": loss}), 1 / 4)
    p = Capped(tau=50.0).weights({"loss": loss})
    assert (
        np.isclose(p.sum(), 1) and np.isclose(p[3], 2 / 4) and p.max() <= 2 / 4 + 1e-12
    )
    assert np.isclose(Capped().weights({"loss": tensor([1])}), 1)


# plgu


@dataclass(frozen=True)
class ThreeLayers(PLGULF):
    """PLGU-LF of a network whose tensors are its layers."""

    def units(self, w):
        return [(name,) for name in w]


def with_lengths(lengths, sizes=(8, 4, 2)):
    """A tree of three layers, of these lengths and numbers of weights."""
    pairs = zip("abc", lengths, sizes)
    return {k: torch.full((n,), x / math.sqrt(n)).double() for k, x, n in pairs}


def lengths(tree):
    return [float(v.norm()) for v in tree.values()]


def test_three_layers_by_hand():
    m = ThreeLayers(rho=0.3, D=1)
    shared, own = with_lengths([0, 0, 0]), with_lengths([0.8, 0.4, 0.8])
    per_weight = m.movement(own, shared)
    assert np.allclose(per_weight, [0.1, 0.1, 0.4])
    assert np.allclose(per_weight / per_weight.sum(), [1 / 6, 1 / 6, 2 / 3])
    mine = {"w": own, "seen": torch.tensor(True)}
    mixed, s, kept = m.start(shared, mine, torch.tensor(0))
    assert np.allclose(s, [0.5, 0.5, 2]) and kept.tolist() == [False, False, True]
    assert np.allclose(lengths(mixed), [0, 0, 0.8])  # refreshed: only layer 3 is own
    g = with_lengths([2, 1, 2])
    assert np.allclose(lengths(m.perturbation(g, s)), [0.1, 0.05, 0.4])
    assert np.allclose(lengths(m.perturbation(g, torch.ones(3))), [0.2, 0.1, 0.2])


@pytest.mark.parametrize(("length", "printed"), [(1.0, 0.05), (0.01, 5.0)])
def test_the_printed_exponent_lets_the_perturbation_grow(length, printed):
    rho, p, q = 0.05, 2, 2
    g = with_lengths([2 * length / 3, length / 3, 2 * length / 3])
    norm = sum(v.abs().pow(q).sum() for v in g.values())
    as_printed = {k: rho * v / norm ** (p - 1) for k, v in g.items()}
    assert np.isclose(sqnorm(as_printed).sqrt(), printed)
    read = ThreeLayers(rho=rho).perturbation(g, torch.ones(3))
    assert np.isclose(sqnorm(read).sqrt(), rho)


@dataclass(frozen=True)
class Counted(Plain):
    """Plain steps that note each gradient."""

    taken: list = field(default_factory=list)

    def __call__(self, loss):
        gradient = super().__call__(loss)

        def noted(w, b):
            self.taken.append(None)
            return gradient(w, b)

        return noted


def gradients(name, batches, **kw):
    """Of one client in one round, whose rows fill so many batches of 4."""
    step, task = Counted(), toy(sizes=[4 * batches] * 2, batch=4)
    m = make(name, task, epochs=1, head_epochs=5, step=step, **kw)
    run(m, rounds=1, cohort=1, how="loop", progress=False)
    return len(step.taken)


def test_seven_rounds_of_fedrep_cost_as_many_gradients_as_six_of_plgu_grep():
    once, twice = (gradients(name, 4) for name in ("FedRep", "PLGU-GRep"))
    assert (once, twice) == (24, 28) and 7 * once == 6 * twice
    assert gradients("FedRep-2x", 4) == twice


def test_a_pass_over_the_stand_in_for_cifar10_has_four_batches():
    text = (ROOT / "papers/plgu/studies.yaml").read_text("utf-8")
    spec = yaml.safe_load(text)["tasks"]["CIFAR10"]["small"]
    train = 5000 * (1 - spec["test"]["share"]) / spec["partition"]["clients"]
    assert train // spec["batch"] == 4 and spec["train"]["last"] == "drop"


@dataclass(frozen=True)
class PLGUOwn(PLGULF):
    """PLGU-LF whose layers are each perturbed by their own score,
    whatever their gradients.
    """

    def perturbation(self, g, s, part=None):
        units = self.units(g)
        size = torch.stack([sqnorm({k: g[k] for k in names}).sqrt() for names in units])
        s = s if part is None else s * part
        return spread(self.rho * s / (len(s) ** 0.5 * (size + TINY)), g, units)


def test_every_layer_is_perturbed_by_its_own_score():
    task = tasks.build(
        {
            "data": {"name": "digits"},
            "network": {"name": "MLP", "hidden": 8},
            "partition": {"name": "dirichlet", "clients": 4, "alpha": 1.0},
        }
    )
    m, g, s = PLGUOwn(rho=0.5, task=task), task.init(0), torch.tensor([0.5, 1.5])
    e = m.perturbation(g, s)
    for names, want in zip(m.units(g), s * 0.5 / 2**0.5):
        assert abs(sqnorm({k: e[k] for k in names}).sqrt() - want) < 1e-6
    assert abs(sqnorm(m.perturbation(g, torch.ones(2))).sqrt() - 0.5) < 1e-6


# groups

MEN, WOMEN = [[3, 2], [0, 5]], [[5, 1], [2, 2]]  # by label and answer, no before yes


def test_two_tables_by_hand():
    n = np.array([MEN, WOMEN])
    assert np.isclose(bias.EO(n), 1 / 2) and np.isclose(bias.DP(n), 0.4)
    assert np.isclose(bias.TPR(n), 7 / 9) and np.isclose(bias.CAL(n), 5 / 18)
    precision = n[:, 1, 1] / n[:, :, 1].sum(1)
    assert np.allclose(precision, [5 / 7, 2 / 3])
    assert np.isclose(bias.CAL_ppv(n), 1 / 30)


def test_one_yes_in_a_village_of_noes():
    place = tensor([0, 1, 2, 3, 4, 5, 20, 21, 22, 23, 24, 25])
    told = np.array([1] * 6 + [0, 0, 1, 0, 0, 0])
    near = surrogates.neighbours(place[:, None], 5).numpy()
    apart = abs(told - told[near].mean(1))
    assert np.allclose(apart, [0] * 6 + [0.2, 0.2, 1, 0.2, 0.2, 0.2])
    assert np.isclose(bias.CON([apart.sum(), 12]), 1 / 6)


@pytest.mark.parametrize("said", [0, 1])
def test_the_same_answer_for_all_has_no_bias(said):
    n = np.zeros((2, 2, 2))
    n[:, :, said] = [[5, 5], [6, 4]]
    assert bias.EO(n) == bias.DP(n) == bias.CAL(n) == 0


def test_a_model_that_repeats_biased_records_has_no_eo_by_the_records():
    records = np.array([[[4, 0], [0, 6]], [[7, 0], [0, 3]]])
    happened = np.array([[[4, 0], [0, 6]], [[4, 0], [3, 3]]])
    assert (records.sum(1) == happened.sum(1)).all()  # the same answers
    assert bias.EO(records) == 0 and bias.EO(happened) == 1 / 2


def counts_of(base, tpr, fpr):
    """Shares by group, label and answer for base rates [A], and one TPR and FPR."""
    base = np.asarray(base)
    of = np.array([[1 - fpr, fpr], [1 - tpr, tpr]])
    return np.stack([1 - base, base], -1)[..., None] * of


@pytest.mark.parametrize("tpr, fpr", [(0.8, 0.1), (0.5, 0.5), (1, 0), (0.7, 0), (0, 1)])
def test_with_equal_odds_dp_is_what_the_base_rates_leave(tpr, fpr):
    n = counts_of([0.6, 0.3], tpr, fpr)
    assert np.isclose(bias.EO(n), 0)
    assert np.isclose(bias.DP(n), abs(tpr - fpr) * 0.3)
    # predictive parity besides: only if no yes is wrong, or every one
    assert np.isclose(bias.CAL_ppv(n), 0) == (tpr * fpr == 0)


def test_equal_odds_of_unequal_groups():
    n = np.array([[[3, 1], [1, 5]], [[6, 2], [1, 5]]])
    assert bias.EO(n) == 0 and np.isclose(bias.DP(n), 1 / 10)
    assert np.allclose(n[:, :, 1].sum(1), [6, 7])
    assert np.allclose(n[:, 1, 1] / n[:, :, 1].sum(1), [5 / 6, 5 / 7])


def tallied(a, y, told):
    n = np.zeros((2, 2, 2))
    np.add.at(n, (a, y, told), 1)
    return n


def by_majority(x, y):
    """The answers of the best model that sees x alone; a tie is a no."""
    return np.array([y[x == v].mean() > 1 / 2 for v in x]).astype(int)


def test_hiding_the_column_removes_direct_bias_and_leaves_indirect_bias():
    a, i = np.divmod(np.arange(20), 10)
    y = (i < np.where(a == 0, 8, 4)).astype(int)  # 8 men and 4 women
    assert np.isclose(bias.DP(tallied(a, y, y)), 0.4)
    same_hours = i % 2
    assert bias.DP(tallied(a, y, by_majority(same_hours, y))) == 0
    told = by_majority(y, y)  # full time is who has the label yes
    assert np.isclose(bias.DP(tallied(a, y, told)), 0.4)


def test_a_blind_model_has_eo_where_the_records_are_biased():
    a, years = np.divmod(np.arange(20), 10)
    years += 1
    y = (years >= np.where(a == 0, 5, 7)).astype(int)
    n = tallied(a, y, (years >= 6).astype(int))
    assert bias.DP(n) == 0 and np.isclose(bias.EO(n), 1 / 6)
    assert np.allclose(n[:, 1, 1] / n[:, 1].sum(1), [5 / 6, 1])


def surrogate_of(z, q):
    """EO's surrogate for two rows, one of each group: scores z, P(yes) = q."""
    z, omega = tensor(z), torch.zeros(2, 2, 2, dtype=torch.float64)
    for g in (0, 1):
        omega[g, g] = tensor([1 - q[g], q[g]])
    return float(surrogates.eo(torch.stack([-z, z], 1).sigmoid().log(), omega))


def test_a_gap_in_labels_is_neither_needed_nor_enough():
    assert np.isclose(surrogate_of([1, -1], [0.5, 0.5]), 2)
    assert np.isclose(surrogate_of([0, 0], [0.9, 0.1]), 0)


def accuracy_gap(n):
    r = (n[..., 0, 0] + n[..., 1, 1]) / n.sum((-1, -2))  # [..., A]
    return r.max(-1) - r.min(-1)


def test_a_gap_in_accuracy_by_hand():
    forty = np.array([[[0, 0], [0, 20]], [[0, 0], [8, 12]]])
    n = np.array([MEN, WOMEN])
    no = np.stack([n.sum(2), 0 * n.sum(2)], 2)
    assert np.isclose(accuracy_gap(forty), 0.4)
    assert np.isclose(accuracy_gap(n), 0.1)
    base = no[:, 1].sum(1) / 10
    assert np.isclose(accuracy_gap(no), abs(base[0] - base[1]))


# equfl


@pytest.mark.parametrize("lam, f, eo", [(0, 9, 1), (1, 7, 1), (4, 1, 0), (9, 9, 0)])
def test_a_calibrated_step_by_hand(lam, f, eo):
    w, g, rows = tensor([1, -2]), tensor([1 / 2, 1 / 2]), tensor([[1, 0], [1, 1]])
    F = lambda w: w[1].abs()
    assert np.isclose(surrogate_of(list(rows @ w), [0.5, 0.5]), F(w))
    new = w - (g + lam * torch.func.grad(F)(w)) / 2
    assert np.isclose(F(new), f / 4)
    assert np.isclose(surrogate_of(list(rows @ new), [0.5, 0.5]), f / 4)
    yes = (rows @ new > 0).double()
    assert abs(yes[0] - yes[1]) == eo


def test_cal_is_a_part_of_the_equal_opportunity_gap():
    s, r = 0.3, np.array([0.9, 0.4])
    yes = np.stack([1 - r, r], 1) * np.array([[1 - s], [s]])
    n = np.stack([np.full((2, 2), 0.25), yes], 1)
    assert np.isclose(bias.CAL(n), max(s, 1 - s) * 0.5) and bias.CAL(n) <= bias.EO(n)


@dataclass(frozen=True)
class Pushed(Calibrated):
    """A server whose own update is 1 in every weight."""

    def update(self, server, w, new, r):
        return server, tmap(torch.ones_like, without(w, self.task.buffers)), {}


def test_a_local_update_is_what_a_client_moved_over_the_step_size():
    task, lr, lam = toy(sizes=(12,)), 0.1, 2.0
    plain = make("FedAvg", task, lr=lr)
    w, w_i = task.init(0), run(plain, rounds=1).state["server"]["w"]
    m = Pushed(task, inner=plain, lam=lam, rho=1.0)
    got = run(m, rounds=1).state["server"]["in"]["w"]
    g_i = tmap(lambda a, b: (a - b) / lr, w, w_i)
    want = tmap(lambda w, g: w - lr * (g + lam), w, g_i)
    for a, b in zip(leaves(got), leaves(want)):
        assert torch.allclose(a, b, atol=1e-6)


@dataclass(frozen=True)
class EquFLStop(EquFL):
    """EquFL that leaves a model alone whose surrogate is already small."""

    enough: float = hp(
        0.05,
        "surrogate below which nothing is done",
        range=(0, math.inf),
        source="an exercise",
    )

    def direction(self, w, S):
        g, log = super().direction(w, S)
        return scale(g, float(log["surrogate"].max() > self.enough)), log


def test_a_server_that_stops_lies_between_fedavg_and_equfl():
    task = tasks.build(
        {
            "data": {"name": "census", "clients": 5, "n_mean": 60, "n_test": 30},
            "network": {"name": "MLP", "hidden": 4},
            "batch": 16,
        }
    )
    plain, how = make("FedAvg", task, lr=0.1), dict(source="start", size=20, net="same")

    def end(m):
        state = run(m, task, 6, progress=False).state["server"]
        return torch.cat([v.flatten() for v in state.get("in", state)["w"].values()])

    never, always = (EquFLStop(task, inner=plain, enough=e, **how) for e in (1e9, 0.0))
    assert torch.equal(end(never), end(plain))
    assert torch.equal(end(always), end(EquFL(task, inner=plain, **how)))
    assert not torch.equal(end(always), end(plain))


# engine


def test_clients_are_scored_every_so_many_rounds_and_at_the_end():
    rec = run(METHODS["FedAvg"](toy()), rounds=10, every=4)
    assert rec.rounds.tolist() == [0, 4, 8, 10]


@dataclass(frozen=True)
class Sign:
    def __call__(self, loss):
        g = grad(loss)
        return lambda w, batch: tmap(torch.sign, g(w, batch))


def test_a_step_that_follows_the_sign_moves_every_weight_as_far():
    method, task = make("FedAvg", toy(), lr=0.001, step=Sign(), batches=1), toy()
    w, v = task.init(0), run(method, rounds=1).state["server"]["w"]
    moved = torch.cat([(a - b).abs().flatten() for a, b in zip(leaves(v), leaves(w))])
    assert moved.max() <= 0.001 + 1e-9 and (moved > 0).any()


def test_clients_in_turns_train_as_often():
    task = toy(sizes=[8] * 10)
    turns = lambda t: [(3 * t + k) % 10 for k in range(3)]
    rec = run(METHODS["FedAvg"](task), rounds=10, cohort=turns)
    assert (np.bincount(rec.logs["cohort"].ravel().astype(int)) == 3).all()


# domains and FFT-GP


def left_of(w, c, meta, lr, ahead=0.0):
    """What a local step leaves of the weight w, on rows whose loss is c w^2 / 2."""
    m = make("FFT-GP", toy(), lr=lr, meta=meta, ahead=ahead, lam=0.0)
    w, loss = {"w": tensor(w)}, lambda w, b: c * w["w"] ** 2 / 2
    (shard,) = m.task.shards(0, 0, 1, torch.tensor([0]), {})
    g = m.direction(loss, w)(w, shard.all("all"))
    return float(w["w"] - lr * g["w"])


@pytest.mark.parametrize(
    ("meta", "lr", "ahead", "flat", "steep"),
    [
        ("none", 0.1, 0.01, 0.9, 0.0),
        ("none", 0.2, 0.01, 0.8, -1.0),
        ("mldg", 0.1, 0.01, 0.801, -0.9),
        ("mldg", 0.1, 0.1, 0.81, 0.0),
    ],
)
def test_the_meta_step_is_a_longer_step_that_steep_ground_shortens(
    meta, lr, ahead, flat, steep
):
    assert left_of(1.0, 1, meta, lr, ahead) == pytest.approx(flat)
    assert left_of(1.0, 10, meta, lr, ahead) == pytest.approx(steep, abs=1e-12)


@pytest.mark.parametrize(("meta", "limit"), [("none", 0.2), ("mldg", 2 / 19)])
def test_the_meta_step_leaves_the_valley_at_half_the_rate(meta, limit):
    assert abs(left_of(1.0, 10, meta, 0.99 * limit, 0.01)) < 1
    assert abs(left_of(1.0, 10, meta, 1.01 * limit, 0.01)) > 1


def weighed(name, gap, a, t=2, R=10, centres=((0.0,), (1.0,), (3.0,)), **kw):
    """Weights after round t of a rule of gaps that has the weights a, the clients' own
    models at the centres; a trial is answered with its gap |w - c_i|^2 / 2.
    """
    m, c = make(name, quadratic(centres), **kw), tensor(centres)
    asked = lambda _, trial: {"gap": (trial["w"]["w"] - c).square().sum(1) / 2}
    r = SimpleNamespace(t=t, R=R, ask=asked)
    server = {"w": {"w": c[0]}, "a": tensor(a), "smooth": tensor(gap)}
    up = {"w": {"w": c}, "gap": tensor(gap), "n": torch.ones(len(c))}
    return m.aggregate(server, up, r)["a"]


THIRDS = [1 / 3] * 3


def test_a_mirror_step_by_hand():
    G, a = tensor([0.8, 0.1, 0.0]), tensor(THIRDS)
    new = METHODS["FAA"]().moved(a, G, 0.5)
    factor = tensor([1 / 2, -1 / 3, -1 / 2]).exp()
    assert torch.allclose(new, factor / factor.sum())


def test_the_step_of_ga_by_hand():
    new = weighed("GA", [0.8, 0.1, 0.0], THIRDS)
    assert torch.allclose(new, tensor([48, 41, 40]) / 129)
    alike = [0.3] * 3
    new = weighed("GA", alike, [0.5, 0.25, 0.25])
    assert torch.allclose(new, tensor([34, 19, 19]) / 72)
    new = weighed("GA", alike, [0.6, 0.3, 0.1])
    assert torch.allclose(new, tensor([0.556, 0.306, 0.139]), atol=5e-4)
    first = weighed("GA", [0.8, 0.1, 0.0], THIRDS, t=1)  # 0.2 (1 + 1/R)
    share = 1 / 3 + tensor([1, 1 / 8, 0]) * 0.22 / 3
    assert torch.allclose(first, share / share.sum())


@pytest.mark.parametrize("a", [[0.5, 0.25, 0.25], [0.6, 0.3, 0.1]])
def test_equal_gaps_leave_lagged_weights_alone_and_probing_starts_anew(a):
    alike = [0.3] * 3
    assert torch.allclose(weighed("FAA-lagged", alike, a), tensor(a))
    assert torch.allclose(weighed("GA", alike, a, centre=True), tensor(a))
    anew = weighed("FAA", alike, a)
    assert torch.equal(anew, weighed("FAA", alike, THIRDS))
    assert not torch.allclose(anew, tensor(a), atol=1e-2)


def test_no_mixture_reaches_the_star_of_an_obtuse_triangle():
    c = tensor([[0, 0], [1, 0], [0.5, 0.35]])
    a, b = c[1] - c[2], c[0] - c[2]
    assert a @ b < 0  # the angle at the third corner is obtuse
    gaps = lambda a: (a @ c - c).square().sum(1) / 2
    bound, free = METHODS["FAA"](), METHODS["FAA"](floor=0.0, ceiling=1e9)
    a, b = tensor(THIRDS), tensor(THIRDS)
    for _ in range(200):
        assert gaps(a).argmin() == gaps(b).argmin() == 2
        a, b = bound.moved(a, gaps(a), 0.5), free.moved(b, gaps(b), 0.5)
    assert torch.allclose(b, tensor([0.5, 0.5, 0]), atol=1e-6)
    assert 0.08 < a[2] < 0.09  # 1/12, over the sum


def test_equal_gaps_are_not_equal_losses():
    F1, F2 = lambda w: 2 * w**2, lambda w: (w - 1) ** 2 / 2
    assert F1(1 / 3) == pytest.approx(F2(1 / 3))
    assert 4 * (1 / 5) == pytest.approx(1 - 1 / 5)
    afl = (math.sqrt(10) - 1) / 3
    assert F1(afl) == pytest.approx(F2(afl) + 1)
    assert 0.72 == pytest.approx(afl, abs=0.005)
    assert F1(1 / 3) == pytest.approx(2 / 9) and F1(afl) > 1


@dataclass(frozen=True)
class FAARank(FAA):
    """FAA that looks at the order of the gaps only."""

    def moved(self, a, G, eta):
        below = (G[None] < G[:, None]).sum(1)
        above = (G[None] > G[:, None]).sum(1)
        z = (below - above) / max(len(G) - 1, 1)
        return simplex.bounded(simplex.mirror(a, z, eta), self.floor, self.ceiling)


def test_weights_by_rank():
    m, a = FAARank(), torch.full((4,), 0.25)
    G = torch.tensor([0.3, 0.1, 0.2, 0.9])
    assert torch.equal(m.moved(a, torch.ones(4), 0.5), a)
    assert torch.equal(m.moved(a, G, 0.5), m.moved(a, 10 * G, 0.5))
    assert m.moved(a, G, 0.5).argmax() == 3


# prompts


def contrastive(S):
    """The two halves of the published loss of scaled cosines S [B, B], image to
    sentence and sentence to image."""
    cross_entropy, i = torch.nn.functional.cross_entropy, torch.arange(len(S))
    return cross_entropy(S, i), cross_entropy(S.T, i)


def by_sentence(loss, S):
    """The gradient of a loss of one sentence's scaled cosines S [images]."""
    S = tensor(S).requires_grad_()
    loss(S).backward()
    return S.grad


def test_two_pairs_by_hand():
    for s, want in ((1, 3 / 4), (2, 9 / 10)):
        halves = contrastive(s * math.log(3) * torch.eye(2, dtype=torch.float64))
        assert np.allclose(halves, -math.log(want))
    assert round(-math.log(3 / 4), 2) == 0.29 and round(-math.log(9 / 10), 2) == 0.11


def test_the_better_image_is_pushed_away_also_with_equal_shares():
    S = [math.log(3), 0]  # two images of one sentence
    published = by_sentence(lambda s: -s.log_softmax(0).sum(), S)
    shares = by_sentence(lambda s: -s.log_softmax(0).mean(), S)
    assert np.allclose(published, [1 / 2, -1 / 2])
    assert np.allclose(shares, [1 / 4, -1 / 4])


def test_together_nobody_is_pushed_away():
    together = lambda s: -s.log_softmax(0)[:2].logsumexp(0)
    assert np.allclose(by_sentence(together, [math.log(3), 0]), 0)  # no others there
    g = by_sentence(together, [math.log(3), 0, 0, 0])  # two images of other classes
    p = tensor([3, 1, 1, 1]) / 6
    assert np.allclose(g[:2], p[:2] - p[:2] / p[:2].sum())
    assert (g[:2] < 0).all() and (g[2:] > 0).all()


@pytest.mark.parametrize(
    "y, floor",
    [([0, 0, 0, 0, 1, 1, 2, 3], 10 / 8 * math.log(2)), ([0] * 8, math.log(8))],
)
def test_the_floor_of_a_batch(y, floor):
    """Perfect features leave the published loss there."""
    y = torch.tensor(y)
    same = (y[:, None] == y).double()
    assert np.allclose(contrastive(1000 * same), floor)
    assert round(10 / 8 * math.log(2), 2) == 0.87 and round(math.log(8), 2) == 2.08


def test_the_merged_loss_on_the_page():
    page, names = (ROOT / "book" / "prompts.md").read_text(), {}
    exec(re.search(r"```python\n(import torch.*?)```", page, re.DOTALL)[1], names)
    [names[k]() for k in list(names) if k.startswith("test_")]
    assert "merged" in names


def test_numbers_of_an_adapter_and_a_prompt():
    adapter, prompt = 2 * 768**2 + 2 * 768, 16 * 768
    assert (adapter, prompt) == (1_181_184, 12_288)
    assert min(K for K in range(1, 200) if K * prompt > adapter) == 97


def test_a_schedule_of_all_clients_falls_for_one_and_rises_for_the_next():
    """PromptFL's released loop: one optimiser, a cosine of five passes."""
    sgd = torch.optim.SGD([torch.zeros(1, requires_grad=True)], 0.001)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(sgd, 5.0)
    steps = []
    for _ in range(24):  # after the first pass, which takes 0.00001
        steps.append(sgd.param_groups[0]["lr"])
        sgd.step()
        cosine.step()
    each = np.reshape([1e-5, *steps], (5, 5))  # clients x passes
    assert (np.diff(each[2]) < 1e-12).sum() == 3 and each[2, -1] < each[2, 0]
    assert each[1, -1] > each[1, 0] and each[3, -1] > each[3, 0]
    assert np.isclose(each[3].mean() / each[2].mean(), 0.31, atol=0.005)
