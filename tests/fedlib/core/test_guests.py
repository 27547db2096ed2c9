"""Domains that never take part, the clients' own models, the standardisation,
weights from a file, and Adam.
"""

import json
import os
from dataclasses import replace

import numpy as np
import pytest
import torch
from toys_core import GROUPS, Normed, gap, same, state, toy

from fedlib.core import engine
from fedlib.core.batches import Plan
from fedlib.core.local import Private, adam, grad
from fedlib.core.pool import Pool
from fedlib.core.task import Task
from fedlib.core.tree import pick, without
from fedlib.data import tasks
from fedlib.methods.base.fedavg import FedAvg
from fedlib.methods.base.own import FedAvgP
from fedlib.methods.domains.faa import FAA
from fedlib.methods.make import make
from fedlib.nets import MLP, ResNet18
from fedlib.study import identity, studies

OWNERS, SIZES = ("art", "photo", "quick", "sketch"), (20, 30, 25, 15)


def run(*args, **more):
    return engine.run(*args, **({"device": "cpu"} | more))


@pytest.fixture(autouse=True)
def pictures(monkeypatch):
    """A source of four small domains, not one after another; the pixels of the k-th lie
    around 10^k, so a leak shows.
    """

    def pictures(channels=3):
        g = torch.Generator().manual_seed(0)
        owner = torch.cat([torch.full((n,), k) for k, n in enumerate(SIZES)])[
            torch.randperm(sum(SIZES), generator=g)
        ]
        x = torch.randn(len(owner), channels, 4, 4, generator=g) + 10.0 ** owner.view(
            -1, 1, 1, 1
        )
        y = torch.arange(len(owner)) % 3
        x[:, 0, 0, 0] = torch.arange(len(owner))  # a pixel that names the row
        return Pool("pictures", x, y, 3, "synthetic", owner, OWNERS)

    monkeypatch.setitem(tasks.SOURCES, "pictures", pictures)
    tasks.source.cache_clear()
    yield pictures
    tasks.source.cache_clear()


SPEC = {
    "data": {"name": "pictures"},
    "network": {"name": "Linear"},
    "batch": 8,
    "parts": [0.6, 0.2, 0.2],
}


def numbers(task, rows):
    """Which rows of the pool these are."""
    return task.x[rows].flatten(1)[:, 0].round().long().tolist()


# ------------------------------------------------------------ a domain that is left out
@pytest.mark.parametrize(
    "out", ["photo", ["sketch"], ["sketch", "art"], ["art", "art"]]
)
def test_a_guest_is_trained_on_by_nobody(out, pictures):
    task, pool = tasks.build(SPEC | {"guest": out}), pictures()
    names = [out] if isinstance(out, str) else list(dict.fromkeys(out))
    assert task.owners == tuple(o for o in OWNERS if o not in names) and task.C == len(
        task.owners
    )
    assert len(task.guests) == len(names)
    for (train, val, test), name in zip(task.guests, names):
        k = OWNERS.index(name)
        assert (
            not len(train)
            and not len(val)
            and sorted(numbers(task, test))
            == (pool.owner == k).nonzero()[:, 0].tolist()
        )
    for c, name in enumerate(task.owners):
        mine = [numbers(task, getattr(task, s)[c]) for s in ("train", "val", "test")]
        assert (
            sorted(sum(mine, []))
            == (pool.owner == OWNERS.index(name)).nonzero()[:, 0].tolist()
        )
    assert torch.equal(
        task.y, pool.y[torch.tensor(numbers(task, torch.arange(len(task.x))))]
    )


def test_nobody_is_left_out_unless_named():
    task = tasks.build(SPEC)
    assert task.C == 4 and task.guests == () and task.owners == OWNERS


def test_owners_may_be_renamed():
    task = tasks.build(SPEC | {"guest": "photo", "owners": ["A", "P", "Q", "S"]})
    assert task.owners == ("A", "Q", "S")


def test_tasks_with_different_guests_have_different_names():
    assert (
        len(
            {
                tasks.build(SPEC | more).name
                for more in ({}, {"guest": "art"}, {"guest": "quick"})
            }
        )
        == 3
    )


def test_the_standardisation_does_not_look_at_the_guest(pictures):
    pool = pictures()
    for out in ("sketch", ["sketch", "art"]):
        task = tasks.build(SPEC | {"guest": out, "standard": True})
        seen = pool.x[[OWNERS[k] not in out for k in pool.owner]]
        x = task.x.view(-1, 3, 4, 4)
        inside = torch.cat([*task.train, *task.val, *task.test])
        assert len(inside) == len(seen)
        assert (
            x[inside].mean((0, 2, 3)).abs().max() < 1e-5
            and (x[inside].std((0, 2, 3)) - 1).abs().max() < 1e-5
        )
        one = (pool.x[0] - seen.mean((0, 2, 3)).view(3, 1, 1)) / seen.std(
            (0, 2, 3)
        ).view(3, 1, 1)
        assert float((x - one).flatten(1).abs().max(1).values.min()) < 1e-4
        assert float(x[task.guests[0][2]].mean()) > 5, (
            "the guest's pixels are around 1000 and must stay far out"
        )


def test_everybody_is_seen_where_nobody_is_left_out():
    x = tasks.build(SPEC | {"standard": True}).x.view(-1, 3, 4, 4)
    assert (
        x.mean((0, 2, 3)).abs().max() < 1e-5
        and (x.std((0, 2, 3)) - 1).abs().max() < 1e-5
    )


def test_the_standard_of_imagenet(pictures):
    pool, task = (
        pictures(),
        tasks.build(SPEC | {"standard": "imagenet", "network": {"name": "CNN"}}),
    )
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    i = 7
    at = ((task.x[:, 0, 0, 0] * std[0] + mean[0]).round() == i).nonzero()[0, 0]
    for c in range(3):
        assert (
            float((task.x[at, c] - (pool.x[i, c] - mean[c]) / std[c]).abs().max())
            < 1e-3
        )


@pytest.mark.parametrize(
    "more, words",
    [
        (
            {"guest": "phot"},
            (
                r"guest = 'phot': pictures has no owner of that name; did you mean "
                r"'photo'\? \(it has art, photo"
            ),
        ),
        (
            {"guest": ["art", "Paris"]},
            "guest = 'Paris': pictures has no owner of that name",
        ),
        (
            {"guest": ["art", "photo", "quick"]},
            "of 4 owners two or more must remain to train",
        ),
        ({"guest": list(OWNERS)}, "of 4 owners two or more must remain to train"),
        (
            {"guest": "art", "partition": {"name": "by_domain", "per_domain": 2}},
            "can be left out where every client is one",
        ),
        (
            {"guest": "art", "test": [2, 2, 2, 2]},
            "can be left out where every client is one",
        ),
        ({"standard": "Imagenet"}, "standard = 'Imagenet': give true"),
        (
            {"standard": "imagenet", "data": {"name": "pictures", "channels": 1}},
            "imagenet: pictures has 1 colour channels",
        ),
        ({"guests": "art"}, "unknown key 'guests'; did you mean 'guest'"),
    ],
)
def test_descriptions_that_make_no_sense(more, words):
    with pytest.raises(ValueError, match=words):
        tasks.build(SPEC | more)


def test_from_rows_lays_guests_out_behind_the_clients(pictures):
    pool = pictures()
    rows = [(pool.owner == k).nonzero()[:, 0] for k in range(4)]
    task = Task.from_rows(
        "t", MLP(48, 4, 3), pool._replace(owner=None), rows[:2], guests=rows[2:]
    )
    assert [len(g[2]) for g in task.guests] == [25, 15] and all(
        not len(g[0]) and not len(g[1]) for g in task.guests
    )
    for g, r in zip(task.guests, rows[2:]):
        assert numbers(task, g[2]) == r.tolist()
    with pytest.raises(ValueError, match="given to two clients, or twice to one"):
        Task.from_rows(
            "t", MLP(48, 4, 3), pool._replace(owner=None), rows[:2], guests=[rows[0]]
        )


@pytest.mark.parametrize("how", ["loop", "vmap"])
@pytest.mark.parametrize("name", ["FedAvg", "FFT-GP", "PerFedAvg", "GRACE"])
def test_a_guest_is_scored_with_the_global_model(name, how):
    task = tasks.build(
        SPEC
        | {"guest": "quick", "standard": True, "network": {"name": "MLP", "hidden": 6}}
    )
    rec = run(make(name, task, lr=0.05), rounds=2, guests=True, how=how)
    w, test = rec.state["server"]["w"], task.guests[0][2]
    want = float(
        (task.logits(w, task.x[test]).argmax(1) == task.y[test]).double().mean()
    )
    assert rec["guest", "global", "test"].shape == (3, 1)
    assert rec["guest", "global", "test"][-1, 0] == pytest.approx(want)
    assert ("guest", "global", "val") not in rec.views, (
        "a guest has no validation rows, so nothing is scored there"
    )
    plain = run(make(name, task, lr=0.05), rounds=2, how=how)
    assert (
        same(state(rec), state(plain))
        and ("guest", "global", "test") not in plain.views
    )
    assert rec.meta["n"]["guest"] == [25]


def test_a_guest_without_training_rows_is_not_adapted():
    """PerFedAvg adapts on a client's own training rows; a held-out domain has none, so
    it gets the global model.
    """
    task = tasks.build(SPEC | {"guest": "quick", "standard": True})
    rec = run(make("PerFedAvg", task, alpha=0.5), rounds=2, guests=True)
    assert np.array_equal(
        rec["guest", "personal", "test"], rec["guest", "global", "test"]
    )
    assert not np.array_equal(rec["pre", "tuned", "test"], rec["pre", "global", "test"])


def test_scoring_guests_needs_guests():
    with pytest.raises(ValueError, match="guests = True.*has none"):
        run(FedAvg(tasks.build(SPEC)), guests=True)


# -------------------------------------------------------------- the clients' own models
@pytest.mark.parametrize("how", ["loop", "vmap"])
@pytest.mark.parametrize("name", ["FedAvg", "FAA", "FFT-GP"])
def test_own_scores_the_models_before_averaging(name, how):
    task, R = toy(Normed(5, 6, 3), sizes=(9, 6, 3)), 2
    method = make(name, task, lr=0.5)
    rec = run(method, rounds=R, own=True, how=how)
    for split in ("test", "val"):
        assert rec["own", "global", split].shape == (R, task.C)
        for t in range(R):
            w = run(method, rounds=R, upto=t).state["server"]["w"]
            for c, shard in enumerate(
                task.shards(0, t, R, torch.arange(task.C), method.plans())
            ):
                rows = getattr(task, split)[c]
                right = (
                    task.logits(method.fit(method.loss, w, shard), task.x[rows]).argmax(
                        1
                    )
                    == task.y[rows]
                )
                assert rec["own", "global", split][t, c] == pytest.approx(
                    float(right.double().mean())
                )
    assert not np.array_equal(
        rec["own", "global", "test"], rec["pre", "global", "test"][:R]
    )
    assert same(state(rec), state(run(method, rounds=R, how=how))), (
        "looking changed the training"
    )


def test_own_is_seen_when_everything_is():
    rec = run(FedAvg(toy()), rounds=5, every=2, own=True)
    # after the last round nobody trains
    assert (
        rec.rounds.tolist() == [0, 2, 4, 5] and len(rec["own", "global", "test"]) == 3
    )


@pytest.mark.parametrize("cohort", [1, 3, lambda t: [0, 1]])
def test_own_needs_everybody(cohort):
    with pytest.raises(
        ValueError, match="own = True with cohort = .*let all of them train"
    ):
        run(FedAvg(toy()), own=True, cohort=cohort)


def test_own_where_everybody_trains_anyway():
    task = toy()
    rec = run(FedAvg(task), own=True, cohort=task.C, rounds=2)
    assert rec["own", "global", "test"].shape == (2, task.C)
    assert run(FAA(task), own=True, cohort=2, rounds=1)[
        "own", "global", "test"
    ].shape == (1, task.C)


@pytest.mark.parametrize("name", ["FedPer", "FedProto", "LG-FedAvg", "Local"])
def test_a_method_that_uploads_no_whole_model_has_no_own_view(name):
    rec = run(make(name, toy()), own=True, rounds=1)
    assert rec.views and not [k for k in rec.views if k[0] == "own"]


def test_own_is_what_fedavg_p_keeps():
    """FedAvg-P serves each client the model it uploaded:
    the same numbers from another side.
    """
    task = toy()
    rec = run(FedAvgP(task, lr=0.5), own=True, rounds=3)
    post = [k for k in rec.views if k[0] == "post" and k[2] == "test"]
    assert post and any(
        np.array_equal(rec.views[k], rec["own", "global", "test"]) for k in post
    )


# ----------------------------------------------------- refusals that this chapter added
def test_private_steps_on_batch_norm_are_refused():
    task = toy(Normed(5, 6, 3))
    for method in (
        make("FedAvg", task, step="Private"),
        make("Uniform-update", task, step="Private", inner="FedProx"),
        make("FAA", task, step="Private"),
    ):
        with pytest.raises(
            ValueError,
            match="Private steps on Normed: its batch norm .* take norm: group",
        ):
            run(method)
    assert run(FedAvg(toy(), step=Private()), rounds=1).rounds.tolist() == [0, 1]


@pytest.mark.parametrize("value, name", [(0, "nought"), (1, "one")])
def test_a_constant_attribute_is_refused(value, name):
    task = toy()
    with pytest.raises(ValueError, match=f"'code' takes only the value {name}"):
        replace(task, a=torch.full_like(task.a, value), groups=GROUPS)


def test_a_constant_attribute_of_ones_own_data_is_refused():
    x, y = torch.randn(40, 3), torch.arange(40) % 2
    with pytest.raises(ValueError, match="takes only the value"):
        Task.from_arrays(x, y, torch.arange(40) // 20, a=torch.ones(40))


# ---------------------------------------------------------------- weights from a file
@pytest.fixture(scope="module")
def network():
    return ResNet18(4, stem="cifar")


@pytest.fixture(scope="module")
def pretrained(network, tmp_path_factory):
    """A state dict of the network of another seed with another head,
    and torchvision's counters.
    """
    w = {k: v + 0.5 for k, v in ResNet18(9, stem="cifar").init(3).items()}
    path = tmp_path_factory.mktemp("weights") / "net.pth"
    torch.save(w | {"bn1.num_batches_tracked": torch.tensor(7)}, path)
    return w, str(path)


def test_the_body_comes_from_the_file_and_the_head_is_drawn(network, pretrained):
    w, path = pretrained
    got, plain = replace(network, weights=path).init(0), network.init(0)
    assert list(got) == list(plain) and same(
        without(got, network.head), without({k: w[k] for k in got}, network.head)
    )
    assert same({k: got[k] for k in network.head}, {k: plain[k] for k in network.head})
    assert not torch.equal(got["conv1.weight"], plain["conv1.weight"])
    assert all(
        v.dtype == torch.float64
        for v in replace(network, weights=path).init(1, torch.float64).values()
    )


@pytest.mark.parametrize(
    "change, words",
    [
        (
            lambda w: without(w, ("layer1.0.conv1.weight",)),
            "has no tensor 'layer1.0.conv1.weight': it belongs to another network",
        ),
        (
            lambda w: w | {"conv1.weight": torch.zeros(64, 3, 7, 7)},
            (
                r"conv1.weight has shape \[64, 3, 7, 7\], the network needs "
                r"\[64, 3, 3, 3\]"
            ),
        ),
        (
            lambda w: w | {"conv1.weight": [1, 2]},
            "conv1.weight has shape .*the network needs",
        ),
        (lambda w: {"state_dict": w}, "has no tensor"),
        (lambda w: [1, 2], "holds a list, not a state dict"),
        (lambda w: torch.zeros(2), "holds a Tensor, not a state dict"),
    ],
)
def test_a_file_that_does_not_fit(network, pretrained, tmp_path, change, words):
    torch.save(change(pretrained[0]), tmp_path / "bad.pth")
    with pytest.raises(ValueError, match=words) as e:
        replace(network, weights=str(tmp_path / "bad.pth")).init(0)
    assert str(tmp_path / "bad.pth") in str(e.value)


def test_a_file_that_cannot_be_read(network, tmp_path):
    with pytest.raises(
        ValueError,
        match="nowhere.pth': there is no such file; put torchvision's state dict there",
    ):
        replace(network, weights=str(tmp_path / "nowhere.pth")).init(0)
    (tmp_path / "noise.pth").write_bytes(b"no weights at all")
    with pytest.raises(
        ValueError, match="cannot be read as a state dict .*get the file again"
    ):
        replace(network, weights=str(tmp_path / "noise.pth")).init(0)
    with pytest.raises(ValueError, match="cannot be read as a state dict"):
        replace(network, weights=str(tmp_path)).init(0)


def test_weights_of_batch_norm_do_not_fit_group_norm(network, pretrained):
    with pytest.raises(ValueError, match="norm = 'group'"):
        replace(network, weights=pretrained[1], norm="group").init(0)


# ---------------------------------------------------------------- what decides a run
def cell(data, network, method="FedAvg"):
    spec = {"data": data, "network": network}
    return studies.Cell(
        "d", "d", method, "", 0, "synthetic", json.dumps(spec), "{}", "{}"
    )


def test_the_content_of_a_file_decides_not_its_name(tmp_path):
    path = tmp_path / "weights.pth"

    def now(content, time):
        path.write_bytes(content)
        os.utime(path, ns=(time, time))
        return cell({"name": "digits"}, {"name": "ResNet18", "weights": str(path)}).id

    none = cell({"name": "digits"}, {"name": "ResNet18", "weights": str(path)}).id
    one, other = now(b"one", 1), now(b"another", 2)
    assert len({none, one, other}) == 3 and now(b"one", 3) == one
    assert identity.content(str(tmp_path / "nothing")) == str(tmp_path / "nothing")


# ---------------------------------------------------------------- Adam
PLAN = {"train": Plan(2)}


def torchs_adam(task, w, shard, **kw):
    p = {k: v.clone().requires_grad_() for k, v in w.items()}
    free = [v for k, v in p.items() if k not in task.buffers]
    opt = torch.optim.Adam(free, **kw)
    for b in shard:
        opt.zero_grad()
        loss = torch.nn.functional.cross_entropy(task.logits(p, b.x, b), b.y)
        stats = task.refresh(p, b)
        loss.backward()
        opt.step()
        for k, v in stats.items():
            p[k].data = v
    return {k: v.detach() for k, v in p.items()}


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("network", [None, Normed(5, 6, 3)])
@pytest.mark.parametrize("betas, eps", [((0.9, 0.999), 1e-8), ((0.5, 0.8), 1e-2)])
def test_adam_is_torchs(decay, network, betas, eps):
    """Unequal clients: under vmap a padded batch is no step and no
    tick of the clock.
    """
    task = toy(network)
    # a bias under batch norm: 0 / 0
    w, ids, tol = task.init(0), torch.arange(task.C), 1e-7 if network else 1e-10
    want = [
        torchs_adam(task, w, s, lr=0.03, betas=betas, eps=eps, weight_decay=decay)
        for s in task.shards(0, 0, 1, ids, PLAN)
    ]
    fit = lambda s: adam(grad(task.loss), w, s, 0.03, betas, eps, decay)
    with torch.no_grad():
        loop = [fit(s) for s in task.shards(0, 0, 1, ids, PLAN)]
        data, shard = task.stacked(0, 0, 1, ids, PLAN)
        at_once = torch.func.vmap(lambda d: fit(shard(d)))(data)
    for c in range(task.C):
        assert gap(loop[c], want[c]) < tol and gap(pick(at_once, c), want[c]) < tol
        assert gap(loop[c], w) > 0.01
