"""A task from a description: which rows of a source become whose, and what else it
says; a small source of rows whose numbers are known takes the place of images."""

import pytest
import torch

from fedlib.core.pool import Pool
from fedlib.data import tasks
from fedlib.data.files import data_root
from fedlib.nets import MLP, Linear


def pool_of(test=None):
    """Three owners of 12, 16 and 20 images [2, 2, 2] that differ; y is the row mod 4."""
    N, owner = 48, torch.tensor([0] * 12 + [1] * 16 + [2] * 20)
    g = torch.Generator().manual_seed(0)
    x = torch.rand(N, 2, 2, 2, generator=g) + owner[:, None, None, None]
    x[:, 1] *= 3
    x[:, 0, 0, 0] = torch.arange(N) / N
    return Pool("made", x, torch.arange(N) % 4, 4, "real", owner, ("a", "b", "7"), test)


@pytest.fixture
def built(monkeypatch):
    """build(description) on that source, called `made`, or `held` with test rows."""
    held = lambda: pool_of(torch.tensor([0, 1, 2, 15, 30, 31]))
    monkeypatch.setitem(tasks.SOURCES, "made", pool_of)
    monkeypatch.setitem(tasks.SOURCES, "held", held)
    usual = {"data": {"name": "made"}, "network": {"name": "Linear"}}
    return lambda split=0, **more: tasks.build(usual | more, split)


def ids(task, part):
    """The rows of the source of each client."""
    number = (task.x.flatten(1)[:, 0] * 48).round().int()
    return [sorted(number[r].tolist()) for r in getattr(task, part)]


def test_parts_batch_network_and_names(built):
    task = built()
    told = task.name, task.owners, task.batch, task.K, task.kind, task.network
    assert told == ("made/split0", ("a", "b", "7"), 32, 4, "real", Linear(8, 4))
    assert task.x.shape == (48, 8)
    rows = zip(*(ids(task, p) for p in ("train", "val", "test")))
    want = [[*range(12)], [*range(12, 28)], [*range(28, 48)]]
    assert [sorted(sum(v, [])) for v in rows] == want
    mlp = {"name": "MLP", "hidden": 3}
    other = built(batch=5, parts=[0.5, 0, 0.5], network=mlp, split=1)
    assert [len(r) for r in other.train] == [6, 8, 10] and not any(map(len, other.val))
    told = other.batch, other.network, other.name
    assert told == (5, MLP(8, 3, 4), "made/split1")
    assert ids(built(), "train") == ids(task, "train") != ids(built(1), "train")
    assert built(owners=["x", "y", "z"]).owners == ("x", "y", "z")
    deal = {"name": "dirichlet", "clients": 3, "alpha": 9, "least": 5, "seed": 1}
    dealt = built(partition=deal)
    assert dealt.C == 3 and ids(dealt, "train") != ids(task, "train")
    assert built(partition={"name": "by_domain", "per_domain": 2}).C == 6


def test_images_have_mean_0_without_those_who_are_left_out(built):
    x, owner = pool_of().x, pool_of().owner
    for guest, seen in ((None, owner >= 0), ("b", owner != 1), (["a"], owner != 0)):
        more = {} if guest is None else {"guest": guest}
        task = built(standard=True, network={"name": "Linear"}, **more)
        mean = x[seen].mean((0, 2, 3), keepdim=True)
        std = x[seen].transpose(0, 1).flatten(1).std(1)[None, :, None, None]
        of = lambda v: {(*r,) for r in (v.flatten(1) * 1e4).round().int().tolist()}
        assert of(task.x) == of((x - mean) / std), guest
    with pytest.raises(ValueError, match="three"):
        built(standard="imagenet")
    rgb = pool_of()._replace(x=torch.rand(48, 3, 2, 2))
    mean, std = torch.tensor([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]])
    want = (rgb.x.movedim(1, 3) - mean) / std
    assert torch.allclose(tasks.standard(rgb, (), "imagenet").x.movedim(1, 3), want)


def test_a_guest_never_takes_part(built):
    for guest, gone, left in (("b", [1], ("a", "7")), (7, [2], ("a", "b"))):
        task, own = built(guest=guest), pool_of().owner
        assert task.owners == left and task.C == 2 and len(task.guests) == 1
        (train, val, test), rows = task.guests[0], torch.isin(own, torch.tensor(gone))
        kept = (task.x[test, 0] * 48).round().long()
        assert sorted(kept.tolist()) == rows.nonzero()[:, 0].tolist()
        assert len(train) == len(val) == 0 and pool_of().owners[gone[0]] in task.name
        used = sum((r for p in ("train", "val", "test") for r in ids(task, p)), [])
        assert len(used) == 48 - len(kept) and not {*used} & {*kept.tolist()}


def test_test_rows_are_held_out_before_anything_is_cut(built):
    fixed = built(test=[2, 3, 4])
    assert ids(fixed, "test") == [[10, 11], [25, 26, 27], [44, 45, 46, 47]]
    assert [len(r) for r in fixed.train] == [8, 11, 14], "8/9 of the others"
    official = built(data={"name": "held"}, parts=[0.5, 0.25, 0.25])
    assert ids(official, "test") == [[0, 1, 2], [15], [30, 31]]
    deal = {"name": "labels_per_client", "clients": 4, "labels": 2}
    for more, tests in (
        ({"test": {"by": "labels", "share": 0.25}}, [*range(36, 48)]),
        ({"test": {"by": "labels"}, "data": {"name": "held"}}, [0, 1, 2, 15, 30, 31]),
    ):
        task = built(partition=deal, **more)
        for c in range(4):
            mine = set(task.y[task.train[c]].tolist())
            assert ids(task, "test")[c] == [r for r in tests if r % 4 in mine], c
        used = sum(ids(task, "train") + ids(task, "val"), [])
        assert sorted(used) == sorted(set(range(48)) - set(tests))


def test_groups_of_images_are_even_and_odd(built):
    task = built(groups={"by": "parity"})
    assert torch.equal(task.a, task.y % 2) and task.groups.names == ("even", "odd")
    assert task.groups.positive == (2, 3) and task.groups.of_class == (0, 1, 0, 1)


def test_a_source_is_never_stale(monkeypatch, built):
    x = lambda: torch.full((48, 8), 1.0 * len(str(data_root())))
    away = lambda: pool_of()._replace(x=x())
    monkeypatch.setitem(tasks.SOURCES, "made", away)
    for folder in ("/one", "/three"):
        monkeypatch.setenv("FEDLIB_DATA", folder)
        assert (built().x == len(folder)).all()


NAN, BY = float("nan"), {"by": "labels"}
WRONG = {  # key of a description: wrong values
    "data": ["digits", {}, {"name": 5}, {"name": "made", "x": {1}}],
    "network": [None, {"name": "MLPP"}, "MLP", {"name": "MLP", "hiden": 4}],
    "test": [5, [1.5], [5], [5, 5, 20], [0, 1, 1], BY, BY | {"share": 1}],
}
WRONG |= {"partition": [[1], {"name": "ring"}], "batch": ["8", None, 0, 1.5, True]}
WRONG |= {"parts": [None, [2, 0, 0], [0.8, 0.2], [0.8, NAN, 0.1]], "bach": [5]}
WRONG |= {"owners": ["abc", [1]], "guest": [5, "c", ["a", "b"]], "standard": ["abc", 1]}
TOGETHER = (  # (change of a description, what is named)
    ({"data": {"name": "made", "test2": 1}}, "test2"),
    ({"guest": "a", "partition": {"name": "by_domain"}}, "guest"),
    ({"guest": "a", "test": [2, 3, 4]}, "guest"),
)


def test_a_wrong_description_is_refused_by_its_key(built):
    cases = [({k: v}, k) for k, values in WRONG.items() for v in values]
    for change, name in (*cases, *TOGETHER):
        with pytest.raises(ValueError) as e:
            built(**change)
        assert name in str(e.value), (change, str(e.value))
    for split in (-1, 1.5, True, 2**63):
        with pytest.raises(ValueError, match="split"):
            built(split)
