"""FedCLIP and PromptFL: losses by brute force, torch's optimisers as oracles,
and what travels.
"""

import math

import pytest
import torch
import torch.nn.functional as F
from toys_clip import toy_towers
from toys_core import gap, toy

from fedlib.core.batches import Batch
from fedlib.core.engine import run
from fedlib.core.local import Private
from fedlib.core.tree import pick
from fedlib.methods.base.fedavg import FedAvg, Uniform
from fedlib.methods.domains.fedclip import FedCLIP, paired
from fedlib.methods.domains.promptfl import PromptFL
from fedlib.methods.personal.ditto import Ditto

SGD = {"lr": 0.05, "momentum": 0.0, "decay": 0.0, "epochs": 1}


def server(method, task, rounds=1, **more):
    return run(method, task, rounds, **({"how": "loop", "device": "cpu"} | more)).state[
        "server"
    ]["w"]


def batch(task, rows, m=None):
    rows = torch.tensor(rows)
    return Batch(
        task.x[rows],
        task.y[rows],
        None,
        None if m is None else torch.tensor(m).double(),
        rows,
        None,
        len(rows),
    )


# ---------------------------------------------------------------- FedCLIP
def test_contrastive_by_brute_force():
    _, task = toy_towers()
    net, w, b = task.network, task.init(3), batch(task, [0, 4, 9, 30])
    u, t = net.feat(w, b.x), net.text.double()
    S = [[5.0 * float(u[i] @ t[b.y[j]]) for j in range(4)] for i in range(4)]
    lse = lambda v: math.log(sum(map(math.exp, v)))
    want = sum(
        (lse(S[i]) - S[i][i] + lse([S[j][i] for j in range(4)]) - S[i][i]) / 8
        for i in range(4)
    )
    method = FedCLIP(task)
    assert float(method.contrastive(w, b)) == pytest.approx(want, abs=1e-6)
    ones = task.init(3)  # rows of one class are mismatches: the loss stays up at log 2
    same = batch(task, [r for r in range(60) if task.y[r] == 0][:2])
    assert float(method.contrastive(ones, same)) >= math.log(2) - 0.05


def test_padding_is_nobodys_mismatch():
    _, task = toy_towers()
    method, w = FedCLIP(task), task.init(0)
    some, padded = batch(task, [0, 4, 9]), batch(task, [0, 4, 9, 0, 0], [1, 1, 1, 0, 0])
    g = [torch.func.grad(method.contrastive)(w, b) for b in (some, padded)]
    assert float(method.contrastive(w, some)) == pytest.approx(
        float(method.contrastive(w, padded)), abs=1e-9
    )
    assert gap(*g) < 1e-9 and max(float(v.abs().max()) for v in g[0].values()) > 1e-4
    alone = torch.func.grad(method.contrastive)(w, batch(task, [0]))
    none = torch.func.grad(method.contrastive)(w, batch(task, [0, 0], [0, 0]))
    assert gap(alone, {k: torch.zeros_like(v) for k, v in w.items()}) < 1e-12
    assert gap(none, alone) < 1e-12


def test_batches_of_one_row_are_left_out():
    """Five rows in batches of four: the fifth alone must not even decay the weights."""
    _, task = toy_towers(sizes=(5, 9))
    method = FedCLIP(task)
    for ids in (torch.tensor([0]), torch.tensor([1])):
        shard = task.shards(0, 0, 1, ids, method.plans())[0]
        assert [len(b.y) for b in shard] == ([4, 1] if ids == 0 else [4, 4, 1])
        assert [len(b.y) for b in paired(shard)] == ([4] if ids == 0 else [4, 4])
    padded, make = task.stacked(0, 0, 1, torch.tensor([0, 1]), method.plans())
    row = pick(padded, 0)
    assert [float(b.m.sum()) for b in paired(make(row))] == [4, 0, 0]
    one = toy_towers(sizes=(1, 1))[1]
    assert gap(server(FedCLIP(one), one), one.init(0)) == 0
    assert gap(server(FedCLIP(one, fedclip_loss="class_ce"), one), one.init(0)) > 0


@pytest.mark.parametrize("loss", ["contrastive", "class_ce"])
def test_fedclip_is_torchs_adam(loss):
    """Two rounds by hand with torch.optim.Adam, new in each round,
    and the plain average.
    """
    _, task = toy_towers()
    method = FedCLIP(task, lr=0.01, fedclip_loss=loss)
    net, w = task.network, task.init(0)
    for t in range(2):
        ws = []
        for shard in task.shards(0, t, 2, torch.arange(task.C), method.plans()):
            mine = {k: v.clone().requires_grad_() for k, v in w.items()}
            adam = torch.optim.Adam(mine.values(), 0.01, (0.9, 0.98), 1e-6, 0.2)
            for b in shard:
                if loss == "contrastive" and len(b.y) == 1:
                    continue
                u = net.feat(mine, b.x)
                S = 5 * u @ net.text.double()[b.y].T
                i = torch.arange(len(S))
                L = (F.cross_entropy(S, i) + F.cross_entropy(S.T, i)) / 2
                L = (
                    F.cross_entropy(5 * u @ net.text.double().T, b.y)
                    if loss == "class_ce"
                    else L
                )
                adam.zero_grad()
                L.backward()
                adam.step()
            ws.append(mine)
        w = {k: torch.stack([m[k].detach() for m in ws]).mean(0) for k in w}
    assert gap(server(method, task, 2), w) < 1e-6


# ---------------------------------------------------------------- PromptFL
def test_promptfl_is_torchs_sgd_with_a_falling_step():
    """Three rounds by hand.

    Round t averages the models of round t only, by equal weights, and starts with no
    momentum.
    """
    _, task = toy_towers(network="Prompts")
    method, w = PromptFL(task, lr=0.02, epochs=2), task.init(0)
    for t in range(3):
        ws = []
        for shard in task.shards(0, t, 3, torch.arange(task.C), method.plans()):
            ctx = w["ctx"].clone().requires_grad_()
            sgd = torch.optim.SGD(
                [ctx],
                0.02 * (1 + math.cos(math.pi * t / 3)) / 2,
                0.9,
                weight_decay=5e-4,
            )
            for b in shard:
                logits = (
                    5 * F.normalize(b.x, dim=1) @ task.network.texts({"ctx": ctx}).T
                )
                sgd.zero_grad()
                F.cross_entropy(logits, b.y).backward()
                sgd.step()
            ws.append(ctx.detach())
        w = {"ctx": torch.stack(ws).mean(0)}
    assert gap(server(method, task, 3), w) < 1e-6
    first = server(PromptFL(task, lr=0.02, epochs=2), task, 1)
    assert (
        gap(
            first,
            server(PromptFL(task, lr=0.02, epochs=2, schedule="constant"), task, 1),
        )
        == 0
    )
    still = server(PromptFL(task, schedule="constant", **SGD), task, 3)
    assert gap(still, server(Uniform(task, **SGD), task, 3)) < 1e-12


# ---------------------------------------------------------------- both
@pytest.mark.parametrize(
    "name, network",
    [
        ("FedCLIP", "Adapter"),
        ("PromptFL", "Prompts"),
        ("FedAvg", "Adapter"),
        ("FedAvg", "Prompts"),
        ("Ditto", "Prompts"),
    ],
)
def test_vmap_is_loop_and_only_the_trainable_travels(name, network):
    _, task = toy_towers(network=network)
    kind = {"FedCLIP": FedCLIP, "PromptFL": PromptFL, "FedAvg": FedAvg, "Ditto": Ditto}[
        name
    ]
    loop, many = (
        run(kind(task), task, 3, cohort=4, how=how, guests=True, device="cpu")
        for how in ("loop", "vmap")
    )
    assert gap(loop.state["server"], many.state["server"]) < 1e-9
    assert all((loop[k] == many[k]).all() for k in loop.views)
    assert gap(loop.state["server"]["w"], task.init(0)) > 1e-5
    want = 2 * 6 * 6 + 2 * 6 if network == "Adapter" else 2 * 8
    assert (
        loop.meta["bytes"]["up"]["w"]["values"]
        == loop.meta["bytes"]["down"]["w"]["values"]
        == want
    )


def test_single_precision_is_close():
    for network, kind in (("Adapter", FedCLIP), ("Prompts", PromptFL)):
        double, single = (
            toy_towers(network=network, dtype=t)[1]
            for t in (torch.float64, torch.float32)
        )
        assert (
            gap(server(kind(double), double, 2), server(kind(single), single, 2)) < 1e-4
        )


def test_refusals():
    plain, adapter, prompts = toy(), toy_towers()[1], toy_towers(network="Prompts")[1]
    for kind, task in (
        (FedCLIP, plain),
        (FedCLIP, prompts),
        (PromptFL, plain),
        (PromptFL, adapter),
    ):
        with pytest.raises(
            ValueError,
            match=f"{kind.__name__} trains.*has {type(task.network).__name__}",
        ):
            kind(task)
    with pytest.raises(ValueError, match="beta1"):
        FedCLIP(adapter, momentum=0.5)
    with pytest.raises(ValueError, match="below 1"):
        FedCLIP(adapter, beta2=1.0)
    with pytest.raises(ValueError, match="class_ce"):
        FedCLIP(adapter, step=Private())
    FedCLIP(adapter, step=Private(), fedclip_loss="class_ce")
