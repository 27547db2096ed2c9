"""Test rows that several clients share:
each client is tested on all test rows of its labels.
"""

import pytest
import torch

from fedlib import Task, make, run
from fedlib.core.pool import Pool
from fedlib.data.tasks import build
from fedlib.nets import Linear

SPEC = {
    "data": {"name": "digits"},
    "partition": {"name": "labels_per_client", "clients": 8, "labels": 3},
    "parts": [1, 0, 0],
    "test": {"by": "labels", "share": 0.3},
    "network": {"name": "Linear"},
}


def test_each_client_is_tested_on_all_test_rows_of_its_labels():
    t = build(SPEC)
    tests = torch.cat(t.test).unique()
    train = torch.cat(t.train)
    assert not torch.isin(train, tests).any() and len(train) == len(train.unique())
    assert len(train) + len(tests) == len(t.x) == 1797
    for a, b in zip(t.train, t.test):
        own = t.y[a].unique()
        assert len(own) == 3 and torch.equal(b, tests[torch.isin(t.y[tests], own)])
    assert sum(map(len, t.test)) > 2 * len(tests)  # 24 holders of 10 labels
    shares = torch.bincount(t.y[tests]) / torch.bincount(t.y)
    assert (shares - 0.3).abs().max() < 0.01


def test_the_split_is_one_of_training_rows_only():
    a, b = (build(SPEC | {"parts": [0.8, 0.2, 0]}, split=s) for s in (0, 1))
    rows = lambda t, part: {tuple(x.tolist()) for x in t.x[torch.cat(part)]}
    assert rows(a, a.test) == rows(b, b.test) and rows(a, a.train) != rows(b, b.train)
    assert all(len(v) > 0 for v in a.val)


@pytest.mark.parametrize("how", ["loop", "vmap"])
def test_shared_rows_are_scored_for_every_client(how):
    t = build(SPEC)
    rec = run(
        make("FedAvg", t, lr=0.01),
        rounds=2,
        how=how,
        splits=("test",),
        device="cpu",
        progress=False,
    )
    net = t.net(rec.state["server"]["w"])
    want = [float((net(t.x[r]).argmax(1) == t.y[r]).float().mean()) for r in t.test]
    assert rec["pre", "global", "test"][-1] == pytest.approx(want, abs=1e-6)


def test_an_official_test_list_is_used():
    pool = Pool(
        "mine",
        torch.randn(40, 4),
        torch.arange(40) % 4,
        4,
        "real",
        test=torch.arange(28, 40),
    )
    rows = [torch.tensor([0, 1, 4, 5]), torch.tensor([2, 3, 6, 7])]
    t = Task.from_rows("mine", Linear(4, 4), pool, rows, parts=(1, 0, 0), shared=True)
    assert [sorted(t.y[r].tolist()) for r in t.test] == [
        [0] * 3 + [1] * 3,
        [2] * 3 + [3] * 3,
    ]


@pytest.mark.parametrize(
    "test, says",
    [
        (
            {"by": "labels"},
            "digits has no official test list; give a share of every class to hold out",
        ),
        ({"by": "labels", "share": 1.5}, "give a share between 0 and 1"),
        (
            {"share": 0.3},
            "shared test rows are chosen by the labels of a client; give by: labels",
        ),
        ({"by": "labels", "shrae": 0.3}, "unknown key 'shrae'; did you mean 'share'?"),
    ],
)
def test_bad_input(test, says):
    with pytest.raises(ValueError) as e:
        build(SPEC | {"test": test})
    assert says in str(e.value)


def test_shared_without_a_list():
    with pytest.raises(
        ValueError, match="shared test rows need a test list, mine has none"
    ):
        Task.from_rows(
            "mine",
            Linear(4, 4),
            Pool("mine", torch.randn(8, 4), torch.arange(8) % 4, 4, "real"),
            [torch.arange(8)],
            shared=True,
        )
