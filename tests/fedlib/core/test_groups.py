"""Groups and outcomes, the counts and neighbours of a run,
and tasks that come with groups.
"""

import itertools
import os
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.neighbors import NearestNeighbors
from toys_core import GROUPS, gap, same, seen, state, toy

from fedlib.core import batches, engine
from fedlib.core import task as task_
from fedlib.core.batches import Batch
from fedlib.core.groups import Block, Groups, parity
from fedlib.core.pool import Pool
from fedlib.core.record import Record
from fedlib.core.task import Task
from fedlib.core.tree import onehot
from fedlib.data import tasks
from fedlib.measures import bias
from fedlib.methods.base.fedavg import FedAvg
from fedlib.methods.make import make
from fedlib.methods.personal.ditto import Ditto
from fedlib.nets import CNN, MLP, Linear
from fedlib.study.compare import compare


def run(*args, **more):
    return engine.run(*args, **({"device": "cpu", "seed": 1} | more))


@cache
def people():
    return toy(groups=GROUPS)


# ---------------------------------------------------------------- who, and what counts
def test_outcomes_and_odds_by_hand():
    groups = Groups("g", ("a", "b"), (1, 3), 0)
    assert (
        groups.outcome(torch.tensor([[0, 1], [2, 3]])).tolist() == [[0, 1], [0, 1]]
        and groups.A == 2
    )
    p = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.7, 0.1, 0.1, 0.1]], dtype=torch.float64)
    assert torch.allclose(
        groups.odds(p.log() + 5).exp(),
        torch.tensor([[0.4, 0.6], [0.8, 0.2]], dtype=torch.float64),
    )
    far = groups.odds(torch.tensor([[500.0, -500.0, 0.0, -500.0]]))
    assert far.isfinite().all() and far[0].tolist() == pytest.approx(
        [0, -1000 + np.log(2)]
    )


def test_cells_by_hand():
    """By the column, by a given group, and by the class;
    the marginals are the label's probabilities.
    """
    q = torch.tensor([[0.5, 0.2, 0.3], [0.0, 1.0, 0.0]], dtype=torch.float64)
    x = torch.tensor([[0.0, 9.0], [0.98, 9.0]], dtype=torch.float64)
    groups = Groups("g", ("a", "b"), (1, 2), 0)
    assert torch.allclose(
        groups.cells(q, x),
        torch.tensor([[[0.5, 0.5], [0, 0]], [[0, 0], [0, 1]]], dtype=torch.float64),
    )
    assert torch.allclose(
        groups.cells(q, x, torch.tensor([1, 0])),
        torch.tensor([[[0, 0], [0.5, 0.5]], [[0, 1], [0, 0]]], dtype=torch.float64),
    )
    by_class = Groups("parity", ("even", "odd"), (1, 2), None, (0, 1, 0))
    assert torch.allclose(
        by_class.cells(q),
        torch.tensor([[[0.5, 0.3], [0, 0.2]], [[0, 0], [0, 1]]], dtype=torch.float64),
    )
    for A, column in ((2, None), (4, 0)):
        g = Groups(
            "g", tuple("abcd"[:A]), (0, 2), column, (1, 0, 1) if column is None else ()
        )
        q = torch.rand(50, 3, dtype=torch.float64).softmax(1)
        omega = g.cells(q, torch.randint(A, (50, 2)).double())
        assert omega.shape == (50, A, 2) and torch.allclose(
            omega.sum((1, 2)), torch.ones(50, dtype=torch.float64)
        )
        assert torch.allclose(omega.sum(1)[:, 1], q[:, 0] + q[:, 2])


@pytest.mark.parametrize("A", [2, 3])
def test_tally_is_a_count(A):
    g = torch.Generator().manual_seed(A)
    groups = Groups("g", tuple("abc"[:A]), (1, 2), 0)
    z = torch.randn(60, 3, generator=g)
    y, a = torch.randint(3, (60,), generator=g), torch.randint(A, (60,), generator=g)
    m = (torch.rand(60, generator=g) < 0.7).float()
    b = Batch(z, y, a, None, torch.arange(60), None, 60)
    for mask in (None, m):
        want = np.zeros((A, 2, 2))
        for i in range(60):
            want[a[i], int(y[i] > 0), int(z[i].argmax() > 0)] += (
                1 if mask is None else m[i]
            )
        assert np.array_equal(groups.tally(z, b._replace(m=mask)).numpy(), want)


def test_parity_of_ten_digits():
    a, groups = parity(torch.arange(10), 10)
    assert (
        a.tolist() == [0, 1] * 5
        and groups.positive == (5, 6, 7, 8, 9)
        and groups.names == ("even", "odd")
    )
    assert torch.equal(groups.cells(torch.eye(10)).sum(2).argmax(1), a)
    positive = [
        float((groups.outcome(torch.arange(10))[a == g]).double().mean())
        for g in (0, 1)
    ]
    # the gap that a perfect classifier has
    assert positive == pytest.approx([0.4, 0.6])


# ---------------------------------------------------------------- what a run counts
def counts(task, w, rows):
    """Group, outcome, prediction: one row at a time."""
    said = task.logits(w, task.x[rows]).argmax(1)
    n = np.zeros((2, 2, 2), int)
    for r, s in zip(rows.tolist(), said.tolist()):
        n[int(task.a[r]), int(task.y[r] in (1, 2)), int(s in (1, 2))] += 1
    return n


def apart(task, w, rows, k=5):
    """Sum over test rows of |yhat - mean of the k nearest others' yhat|, and their
    number; neighbours by scikit-learn.
    """
    pool = torch.cat(task.test).unique()
    near = (
        NearestNeighbors(n_neighbors=k + 1)
        .fit(task.x[pool].numpy())
        .kneighbors(task.x[rows].numpy(), return_distance=False)
    )
    yhat = np.isin(task.logits(w, task.x).argmax(1).numpy(), (1, 2)).astype(float)
    return [
        sum(
            abs(yhat[r] - yhat[pool[n[1:]]].mean()) for r, n in zip(rows.tolist(), near)
        ),
        len(rows),
    ]


@pytest.mark.parametrize("how", ["loop", "vmap"])
def test_a_run_counts_groups_outcomes_and_predictions(how):
    task = people()
    rec = run(
        FedAvg(task, lr=0.3),
        rounds=3,
        how=how,
        guests=True,
        splits=("test", "val", "all"),
    )
    assert {k for k in rec.cells if k[0] == "pre"} == {
        ("pre", "global", s) for s in ("test", "val", "all")
    }
    for t in range(4):
        w = run(FedAvg(task, lr=0.3), rounds=3, upto=t).state["server"]["w"]
        for c in range(task.C):
            for split, rows in (
                ("test", task.test[c]),
                ("val", task.val[c]),
                ("all", task.train[c]),
            ):
                assert np.array_equal(
                    rec.cells["pre", "global", split][t, c], counts(task, w, rows)
                ), (t, c, split)
            assert rec.consistency["pre", "global"][t, c] == pytest.approx(
                apart(task, w, task.test[c])
            )
        for i, (_, _, rows) in enumerate(task.guests):
            assert np.array_equal(
                rec.cells["guest", "global", "test"][t, i], counts(task, w, rows)
            )
    # no neighbours
    assert (
        rec.cells["pre", "global", "test"].dtype == np.int32
        and (rec.consistency["guest", "global"] == 0).all()
    )
    assert rec.cells["pre", "global", "test"].shape == (
        4,
        task.C,
        2,
        2,
        2,
    ) and rec.consistency["pre", "global"].shape == (4, task.C, 2)


def test_both_views_and_both_moments_are_counted():
    task = people()
    rec = run(Ditto(task, lr=0.3), rounds=2)
    assert (
        set(rec.cells)
        == set(rec.views)
        == {("pre", v, s) for v in ("global", "personal") for s in ("test", "val")}
        | {("post", "personal", s) for s in ("test", "val")}
    )
    assert set(rec.consistency) == {
        ("pre", "global"),
        ("pre", "personal"),
        ("post", "personal"),
    }
    own = rec.state["clients"]["v"]
    for c in range(task.C):
        w = {k: v[c] for k, v in own.items()}
        assert np.array_equal(
            rec.cells["pre", "personal", "test"][-1, c], counts(task, w, task.test[c])
        )
        # neighbours by this view
        assert rec.consistency["pre", "personal"][-1, c] == pytest.approx(
            apart(task, w, task.test[c])
        )


def test_a_binary_tasks_counts_give_its_accuracies():
    task = toy(K=2, groups=replace(GROUPS, positive=(1,)))
    rec = run(FedAvg(task, lr=0.3), rounds=2)
    n = rec.cells["pre", "global", "test"]
    assert np.allclose(
        rec["pre", "global", "test"],
        (n[..., 0, 0] + n[..., 1, 1]).sum(-1) / n.sum((-1, -2, -3)),
    )


def test_counts_are_saved_loaded_and_survive_a_stop(tmp_path):
    m = Ditto(people(), lr=0.3)
    first = run(m, rounds=4, guests=True)
    first.save(tmp_path / "saved")
    again = Record.load(tmp_path / "saved")
    assert (
        again.cells.keys() == first.cells.keys()
        and again.consistency.keys() == first.consistency.keys()
        and first.cells
    )
    assert same(seen(first), seen(again)) and all(
        again.cells[k].dtype == np.int32 for k in again.cells
    )
    for t in range(5):
        run(m, rounds=4, guests=True, folder=tmp_path / "run", upto=t)
    rest = run(m, rounds=4, guests=True, folder=tmp_path / "run")
    assert same(seen(rest), seen(first)) and rest.cells.keys() == first.cells.keys()
    # and is read back
    assert same(
        seen(run(m, rounds=4, guests=True, folder=tmp_path / "run")), seen(first)
    )


@pytest.mark.parametrize("how", ["loop", "vmap"])
def test_groups_change_no_other_number(how):
    """Without groups there are no counts,
    and everything else is the same to the bit.
    """
    a, b = (
        run(Ditto(t, lr=0.3), rounds=3, how=how, cohort=4, guests=True)
        for t in (people(), toy())
    )
    assert same(state(a), state(b)) and not b.cells and not b.consistency and a.cells
    assert (
        all(np.array_equal(a.views[k], b.views[k]) for k in b.views)
        and a.views.keys() == b.views.keys()
    )
    assert all(np.array_equal(a.logs[k], b.logs[k]) for k in b.logs)


# ---------------------------------------------------------------- neighbours
def test_neighbours_are_scikit_learns():
    task = people()
    rows, near = task.neighbours["rows"], task.neighbours["near"]
    assert rows.tolist() == sorted(torch.cat(task.test).tolist()) and near.shape == (
        len(task.x),
        5,
    )
    x = task.x[rows].numpy()
    want = NearestNeighbors(n_neighbors=6).fit(x).kneighbors(x, return_distance=False)
    assert all(
        set(near[r].tolist()) == set(rows[w[1:]].tolist()) and int(r) not in near[r]
        for r, w in zip(rows, want)
    )


def test_neighbours_of_a_sample_lie_in_the_sample(monkeypatch):
    monkeypatch.setattr(task_, "COMPARED", 12)
    task = toy(groups=GROUPS)
    rows, near = task.neighbours["rows"], task.neighbours["near"]
    assert (
        len(rows) == 12 == len(rows.unique())
        and torch.isin(rows, torch.cat(task.test)).all()
    )
    assert torch.equal(rows, rows.sort().values) and torch.isin(near[rows], rows).all()
    again = toy(groups=GROUPS)
    assert torch.equal(again.neighbours["rows"], rows) and torch.equal(
        again.neighbours["near"], near
    )
    rec = run(FedAvg(task, lr=0.3), rounds=1)
    assert rec.consistency["pre", "global"][..., 1].sum(1).tolist() == [12, 12]
    assert rec.consistency["pre", "global"][0, :, 1].tolist() == [
        int(torch.isin(r, rows).sum()) for r in task.test
    ]
    assert gap(seen(rec), seen(run(FedAvg(task, lr=0.3), rounds=1, how="vmap"))) < 1e-9
    monkeypatch.setattr(task_, "NEAR", 3)
    assert toy(groups=GROUPS).neighbours["near"].shape[1] == 3


def test_neighbours_in_single_precision_are_those_of_double():
    """Rows far from the origin and close together,
    as unstandardised columns would be.
    """
    task = toy(groups=GROUPS, dtype=torch.float32)
    x = task.x + 300 * (torch.arange(5) > 0)
    single, double = replace(task, x=x), replace(task, x=x.double())
    assert torch.equal(
        single.neighbours["near"].sort(1).values,
        double.neighbours["near"].sort(1).values,
    )


def test_shared_test_rows_count_once_as_neighbours():
    task = people()
    both = replace(task, test=tuple(torch.cat(task.test) for _ in task.test))
    assert torch.equal(both.neighbours["rows"], task.neighbours["rows"])
    rec = run(FedAvg(both, lr=0.3), rounds=0)
    assert (
        rec.consistency["pre", "global"][0] == rec.consistency["pre", "global"][0, 0]
    ).all()
    assert rec.consistency["pre", "global"][0, 0, 1] == len(task.neighbours["rows"])


# ---------------------------------------------------------------- tasks with groups
def images(n=240, K=4):
    g = torch.Generator().manual_seed(0)
    return Pool(
        "images",
        torch.rand(n, 1, 8, 8, generator=g),
        torch.arange(n) % K,
        K,
        "real",
        torch.arange(n) % 3,
        tuple("abc"),
    )


@pytest.mark.parametrize(
    "network, cls",
    [
        ({"name": "MLP", "hidden": 4}, MLP),
        ({"name": "Linear"}, Linear),
        ({"name": "CNN"}, CNN),
    ],
)
def test_groups_by_parity_keep_images_images(network, cls, monkeypatch):
    monkeypatch.setitem(tasks.SOURCES, "images", images)
    spec = {"data": {"name": "images"}, "network": network, "batch": 8}
    tasks.source.cache_clear()
    with_, without = (
        tasks.build(spec | more) for more in ({"groups": {"by": "parity"}}, {})
    )
    assert (
        isinstance(with_.network, cls)
        and with_.x.shape[1:] == (1, 8, 8)
        and torch.equal(with_.a, with_.y % 2)
    )
    assert with_.groups.positive == (2, 3) and with_.groups.of_class == (0, 1, 0, 1)
    assert (
        without.a is None
        and without.groups is None
        and without.x.dim() == (4 if cls is CNN else 2)
    )
    a, b = (run(FedAvg(t, lr=0.1), rounds=2) for t in (with_, without))
    assert gap(state(a), state(b)) < 1e-6  # the network flattens: nothing else changes
    assert gap(seen(a), seen(run(FedAvg(with_, lr=0.1), rounds=2, how="vmap"))) < 1e-5


def test_groups_travel_with_their_rows():
    """a follows x and y through the division into clients and splits,
    onto a device and into batches.
    """
    g = torch.Generator().manual_seed(1)
    a = torch.randint(0, 3, (90,), generator=g)
    x = torch.randn(90, 4, generator=g)
    x[:, 2] = a
    groups = Groups("g", ("a", "b", "c"), (1,), 2)
    pool = Pool(
        "mine",
        x,
        torch.arange(90) % 2,
        2,
        "real",
        torch.arange(90) % 4,
        tuple("wxyz"),
        a=a,
        groups=groups,
    )
    task = Task.from_rows(
        "mine",
        Linear(4, 2),
        pool,
        [(pool.owner == c).nonzero()[:, 0] for c in range(4)],
        split=3,
    )
    assert (
        task.groups is groups
        and torch.equal(task.a, task.x[:, 2].long())
        and task.to("cpu").groups is groups
    )
    assert task.double().a is task.a
    for how in (task.shards, None):
        if how:
            shards = how(0, 0, 1, torch.arange(4), {"train": batches.Plan(2)})
        else:
            data, make = task.stacked(
                0, 0, 1, torch.arange(4), {"train": batches.Plan(2)}
            )
            shards = [
                make(
                    {
                        k: v[i]
                        if k != "plans"
                        else {n: {j: u[i] for j, u in p.items()} for n, p in v.items()}
                        for k, v in data.items()
                    }
                )
                for i in range(4)
            ]
        for s in shards:
            assert all(
                torch.equal(b.a, b.x[:, 2].long())
                for b in itertools.chain(
                    s, [s.all(), s.all("test"), s.all("neighbours")]
                )
            )


@pytest.mark.parametrize(
    "spec", [{"by": "sex"}, {"by": "parity", "of": 2}, "parity", {}]
)
def test_no_other_groups(spec, monkeypatch):
    monkeypatch.setitem(tasks.SOURCES, "images", images)
    with pytest.raises(
        ValueError,
        match="give {by: parity}, or data that come with a sensitive attribute",
    ):
        tasks.build(
            {"data": {"name": "images"}, "network": {"name": "Linear"}, "groups": spec}
        )


def test_people_come_with_their_groups():
    task = tasks.build(
        {
            "data": {
                "name": "census",
                "task": "income",
                "group": "race",
                "clients": 3,
                "n_mean": 60,
                "n_test": 40,
            },
            "network": {"name": "MLP", "hidden": 4},
            "parts": [1.0, 0.0, 0.0],
            "batch": 16,
        }
    )
    assert (
        task.C == 3
        and task.K == 2
        and task.kind == "synthetic"
        and task.groups.A == 2 == len(task.a.unique())
    )
    assert torch.equal(task.x[:, task.groups.column].round().long(), task.a)
    covered = sorted(j for b in task.groups.schema for j in range(b.start, b.stop))
    assert covered == list(range(task.x.shape[1]))
    rec = run(FedAvg(task, lr=0.1, batches=2), rounds=2, splits=("test",), how="vmap")
    assert (
        rec.cells["pre", "global", "test"].sum((2, 3, 4)) == [len(r) for r in task.test]
    ).all()


@pytest.mark.parametrize("name", ["acs", "mnist"])
def test_sources_of_files_say_what_is_missing(name, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDLIB_DATA", str(tmp_path))
    tasks.source.cache_clear()
    with pytest.raises(Exception) as e:
        tasks.build({"data": {"name": name}, "network": {"name": "Linear"}})
    assert str(tmp_path) in str(e.value)


def test_another_folder_is_another_pool(tmp_path, monkeypatch):
    """The pool that is kept for the next task is never that of another folder,
    or of other arguments.
    """

    def here(k=1):
        n = int(Path(os.environ.get("FEDLIB_DATA") or os.getcwd(), "n").read_text())
        return images(n * k)

    monkeypatch.setitem(tasks.SOURCES, "here", here)
    for i, name in enumerate(("one", "two")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "n").write_text(str(60 * (i + 1)))
    tasks.source.cache_clear()

    def size(**more):
        return len(
            tasks.build(
                {"data": {"name": "here"} | more, "network": {"name": "Linear"}}
            ).x
        )

    monkeypatch.delenv("FEDLIB_DATA", raising=False)
    for name, n in (("one", 60), ("two", 120), ("one", 60)):
        monkeypatch.chdir(tmp_path / name)
        assert size() == n and size(k=2) == 2 * n and size() == n
    for name, n in (("two", 120), ("one", 60)):
        monkeypatch.setenv("FEDLIB_DATA", str(tmp_path / name))
        assert size() == n


def test_a_kept_pool_is_not_changed_by_its_tasks(monkeypatch):
    monkeypatch.setitem(tasks.SOURCES, "images", images)
    tasks.source.cache_clear()
    spec = {"data": {"name": "images"}, "network": {"name": "Linear"}}
    first = tasks.build(spec | {"standard": True, "groups": {"by": "parity"}})
    first.x.zero_()
    assert (
        tasks.build(spec).a is None
        and tasks.build(spec).x.min() >= 0
        and tasks.build(spec).x.abs().sum() > 0
    )
    assert onehot(first.y, 4, first.x).sum() == 240


# ---------------------------------------------------------------- a reader's own data
def own_arrays(N=240):
    g = torch.Generator().manual_seed(3)
    a = torch.randint(0, 2, (N,), generator=g)
    x = torch.randn(N, 4, generator=g)
    x[:, 2] = a.float()
    y = (x[:, 0] + 0.8 * a > 0.5).long()
    return (
        x,
        y,
        [i % 4 for i in range(N)],
        ["woman" if v else "man" for v in a.tolist()],
    )


def test_own_arrays_with_a_sensitive_attribute():
    x, y, who, a = own_arrays()
    task = Task.from_arrays(x, y, who, MLP(4, 5, 2), a=a)
    assert (
        task.groups.names == ("man", "woman")
        and task.groups.column == 2
        and task.groups.positive == (1,)
    )
    assert torch.equal(task.x[:, 2].long(), task.a)  # rows moved, groups with them
    assert [b.kind for b in task.groups.schema] == [
        "number",
        "number",
        "flag",
        "number",
    ]
    hidden = Task.from_arrays(x[:, [0, 1, 3]], y, who, MLP(3, 5, 2), a=a)
    assert hidden.groups.column is None
    how = {"size": 20, "outer": 2, "J": 2, "pool": 40}
    with pytest.raises(ValueError, match="nobody can tell the group"):
        engine.run(make("EquFL", hidden, **how), hidden, 4, progress=False)
    with pytest.raises(ValueError, match="a has 3 entries for 240 rows"):
        Task.from_arrays(x, y, who, a=a[:3])
    with pytest.raises(
        ValueError,
        match="takes only the value woman; two groups or more must have rows",
    ):
        Task.from_arrays(x, y, who, a=["woman"] * len(y))


def test_own_arrays_with_a_schema():
    """The words become blocks side by side; without them every column stands alone."""
    x, y, who, a = own_arrays()
    job = torch.arange(240) % 4
    x = torch.cat([x, onehot(job, 4, x)[:, :3]], 1)  # of the fourth job is no column
    words = [
        ("scores", "number", 2),
        "sex",
        ["age", "number", np.int64(1), (-9, np.inf)],
        ("job", "onehot", 3),
    ]
    make = lambda schema: Task.from_arrays(x, y, who, a=a, schema=schema)
    task, plain = make(words), make(None)
    assert task.groups.schema == (
        Block("scores", "number", 0, 2),
        Block("sex", "flag", 2, 3),
        Block("age", "number", 3, 4, -9, np.inf),
        Block("job", "onehot", 4, 7),
    )
    plain_types = [str, str, int, int, float, float]  # that a file can hold
    assert [type(v) for v in task.groups.schema[2]] == plain_types
    assert task.groups == replace(plain.groups, schema=task.groups.schema)
    kinds = ["number"] * 2 + ["flag", "number"] + ["flag"] * 3
    assert [(b.kind, b.stop - b.start) for b in plain.groups.schema] == [
        (kind, 1) for kind in kinds
    ]
    assert torch.equal(task.x, plain.x) and torch.equal(task.a, plain.a)
    # the name is part of a run's: another schema, other drawn rows
    names = {make(s).name for s in (words, None, [*words[:3], ("job", "flag", 3)])}
    assert len(names) == 3 and make(list(words)).name in names


def test_names_alone_are_flags_and_numbers():
    """As without a schema, but for the names."""
    x, y, who, a = own_arrays()
    task, plain = (
        Task.from_arrays(x, y, who, a=a, schema=s) for s in (list("abcd"), None)
    )
    assert [b._replace(name="") for b in task.groups.schema] == [
        b._replace(name="") for b in plain.groups.schema
    ]
    assert [b.name for b in task.groups.schema] == list("abcd")


def test_ends_of_a_range_belong_to_it():
    """Also where the numbers of x are rounded: 0.1 in float32 is a bit above 0.1."""
    x, y, who, a = own_arrays()
    for dtype in (torch.float32, torch.float64):
        x = x.to(dtype)
        x[:, 0] = torch.tensor([-0.7, 0.1]).to(dtype)[torch.arange(240) % 2]
        words = [("age", "number", 1, (-0.7, 0.1)), "b", "sex", "d"]
        if dtype == torch.float64:  # the numbers of float32 lie outside
            with pytest.raises(ValueError, match="row 1 of x holds 0.10000000149"):
                Task.from_arrays(x, y, who, a=a, schema=words)
            x[:, 0] = x[:, 0].clamp(-0.7, 0.1)
        task = Task.from_arrays(x, y, who, a=a, schema=words)
        assert task.groups.schema[0][4:] == (-0.7, 0.1)


def test_the_code_is_rather_a_flag_than_part_of_a_block():
    """In either order; a category that says the same as the code stays one."""
    x, y, who, a = own_arrays()
    code = x[:, 2:3]
    sexes, words = torch.cat([1 - code, code], 1), ("sexes", "onehot", 2)
    for columns, schema, at in (
        ([code, sexes], ["sex", words], 0),
        ([sexes, code], [words, "sex"], 2),
    ):
        x = torch.cat(columns, 1)
        task = Task.from_arrays(x, y, who, a=a, schema=schema)
        assert task.groups.column == at
    with pytest.raises(ValueError, match="column 1 of x, one of 2 in the one-hot"):
        Task.from_arrays(sexes, y, who, a=a, schema=[words])
    with pytest.raises(ValueError, match="column 4 of x, one of 2 in the one-hot"):
        replace(task.groups, column=4, schema=(Block("b", "onehot", 3, 5),))
    replace(task.groups, column=4, schema=(Block("b", "onehot", 4, 5),))  # alone
    # a category that nobody has is no code where everybody is of one group
    with pytest.raises(ValueError, match="takes only the value 7"):
        Task.from_arrays(sexes * 0, y, who, a=[7] * 240, schema=[words])


@pytest.mark.filterwarnings("ignore:the server's network")
def test_compare_shows_the_bias_between_groups():
    x, y, who, a = own_arrays()
    task = Task.from_arrays(x, y, who, MLP(4, 5, 2), a=a)
    got = compare(
        ["FedAvg", ("EquFL", {"size": 20, "outer": 2, "J": 2, "pool": 40})],
        task,
        rounds=4,
        seeds=2,
        progress=False,
    )
    r = got.records["FedAvg"][0]
    # [A, y, yhat]
    n = r.cells["pre", "global", "test"][got.rule(r, "global")].sum(1)[0]
    rate = n[:, :, 1].sum(1) / n.sum((1, 2))
    assert np.isclose(got.bias("FedAvg", bias.DP)[0], abs(rate[0] - rate[1]))
    assert {"EO", "± EO", "DP"} <= set(got.table) and (got.table.DP < 1).all()
