"""Which parameters matter: scores, choice and replacement."""

import numpy as np
import pytest
import torch
from toys_core import gap, toy

from fedlib.core.batches import Plan
from fedlib.core.tree import leaves
from fedlib.measures import fisher
from fedlib.methods.personal.fedas import traces

SCORE = {
    "a": torch.tensor([[5.0, 1.0], [0.0, 4.0]]),
    "b": torch.tensor([9.0, 2.0, 3.0, 0.5, 0.1, 0.2]),
}


def test_the_diagonal_sums_to_the_trace_and_is_the_square_of_a_difference_quotient():
    task = toy()
    w = task.init(2)
    (shard,) = task.shards(
        0, 0, 1, torch.tensor([3]), {"train": Plan(1, None, "drop", False)}
    )
    d = fisher.diagonal(task, w, shard)
    assert float(sum(x.sum() for x in leaves(d))) == pytest.approx(
        float(traces(task.loss, w, shard)[0]), rel=1e-12
    )
    eps, want = 1e-6, 0.0
    for b in shard:
        up, down = (
            {**w, "fc1.bias": w["fc1.bias"] + s * torch.eye(6, dtype=torch.float64)[2]}
            for s in (eps, -eps)
        )
        want += float((task.loss(up, b) - task.loss(down, b)) / (2 * eps)) ** 2
    assert float(d["fc1.bias"][2]) == pytest.approx(want, rel=1e-6)


def test_the_largest_are_chosen_over_the_whole_model():
    top = fisher.chosen(SCORE, 0.3)
    assert (
        top["a"].tolist() == [[True, False], [False, True]]
        and top["b"].tolist() == [True] + [False] * 5
    )
    drawn = [fisher.chosen(SCORE, 0.3, seed=s) for s in range(20)]
    assert all(sum(int(m.sum()) for m in leaves(d)) == 3 for d in drawn)
    assert (
        len(
            {tuple(torch.cat([m.flatten() for m in leaves(d)]).tolist()) for d in drawn}
        )
        > 5
    )
    assert (
        fisher.chosen(SCORE, 0.3, 4)["b"].tolist()
        == fisher.chosen(SCORE, 0.3, 4)["b"].tolist()
    )


def test_only_the_chosen_are_replaced():
    task = toy()
    w, other = task.init(0), task.init(1)
    mask = fisher.chosen(w, 0.1)
    for how in fisher.WITH:
        new = fisher.replaced(task, w, mask, how, other=other)
        assert all(torch.equal(new[k][~mask[k]], w[k][~mask[k]]) for k in w)
        assert sum(int((new[k] != w[k]).sum()) for k in w) == sum(
            int(m.sum()) for m in mask.values()
        )
    assert all(
        bool((fisher.replaced(task, w, mask, "zero")[k][mask[k]] == 0).all()) for k in w
    )
    assert all(
        torch.equal(
            fisher.replaced(task, w, mask, "other", other=other)[k][mask[k]],
            other[k][mask[k]],
        )
        for k in w
    )
    assert (
        gap(
            fisher.replaced(task, w, mask, seed=1),
            fisher.replaced(task, w, mask, seed=2),
        )
        > 0
    )


def test_share_by_layer():
    task = toy()
    w = task.init(0)
    mask = {k: torch.zeros_like(v, dtype=torch.bool) for k, v in w.items()} | {
        "fc.bias": torch.ones(3, dtype=torch.bool)
    }
    assert fisher.by_layer(task, mask) == {"fc1": 0.0, "fc": pytest.approx(3 / 21)}


@pytest.mark.parametrize("share", [0, 1, -0.1, np.nan])
def test_a_share_of_nothing_or_everything_is_refused(share):
    with pytest.raises(ValueError, match="share = "):
        fisher.chosen(SCORE, share)


def test_what_to_put_in_must_be_known():
    task = toy()
    w = task.init(0)
    mask = fisher.chosen(w, 0.1)
    with pytest.raises(
        ValueError, match="how = 'noise': give one of fresh, zero, other"
    ):
        fisher.replaced(task, w, mask, "noise")
    with pytest.raises(ValueError, match="needs the other client's model"):
        fisher.replaced(task, w, mask, "other")
