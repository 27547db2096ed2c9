"""What a run leaves to its user: a tidy table, files that come back, the models; each
number looked up in the record by hand.
"""

import pickle
import resource
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from toys_core import Normed, same, seen, toy
from toys_input import all_refused, refused

from fedlib.core import engine
from fedlib.core.errors import Diverged
from fedlib.core.record import Record
from fedlib.methods.base.fedavg import FedAvg
from fedlib.methods.make import make
from fedlib.nets import MLP

NAMES = ("ann", "ben", "cem", "dora", "eve", "fay")
COLUMNS = ["round", "client", "name", "moment", "view", "split", "rows", "accuracy"]


def run(*args, **more):
    return engine.run(*args, **{"device": "cpu", "seed": 4, "rounds": 3} | more)


def task(**more):
    return replace(toy(MLP(5, 4, 3)), **{"owners": NAMES} | more)


class Bursts(FedAvg):
    """Diverges in round 1."""

    def local(self, down, mine, shard):
        mine, up = super().local(down, mine, shard)
        bad = {k: v / 0 for k, v in up["w"].items()}
        return mine, up | ({"w": bad} if shard.t else {})


def diverged():
    with pytest.raises(Diverged) as e:
        run(Bursts(task()))
    return e.value.record


# ---------------------------------------------------------------- tables
def test_every_number_is_one_row_of_the_table(tmp_path):
    t = task()
    t = replace(t, val=(t.val[0][:0], *t.val[1:]))
    splits = ("test", "val", "all")
    recs = [
        run(make("Ditto", t), splits=splits, every=2, guests=True, seed=s)
        for s in (4, 5)
    ]
    rec, table = recs[0], recs[0].frame()
    assert list(table) == COLUMNS and len(table) == sum(
        v.size for v in rec.views.values()
    )
    guests, split_of = t.guests, {"train": 0, "val": 1, "test": 2}
    for r in table.itertuples():
        guest, split = r.moment == "guest", "all" if r.split == "train" else r.split
        c, at = -1 - r.client if guest else r.client, rec.rounds.tolist().index(r.round)
        a = rec[r.moment, r.view, split][at][c]
        assert a == r.accuracy or (np.isnan(a) and np.isnan(r.accuracy))
        assert pd.isna(r.name) if guest else r.name == NAMES[c]
        own = guests[c] if guest else (t.train[c], t.val[c], t.test[c])
        assert r.rows == len(own[split_of.get(split, 0)])
    empty = table[(table.client == 0) & (table.split == "val")]
    assert len(empty) and empty.accuracy.isna().all()
    assert sorted(table[table.moment == "post"]["round"].unique()) == [0, 2]
    assert sorted(table["round"].unique()) == rec.rounds.tolist() == [0, 2, 3]
    for form in ("csv", "parquet"):
        for i, one in enumerate(recs):
            getattr(one, f"to_{form}")(tmp_path / f"{i}.{form}")
        both = pd.concat(
            getattr(pd, f"read_{form}")(tmp_path / f"{i}.{form}") for i in (0, 1)
        )
        assert list(both) == ["method", "task", "seed", *COLUMNS]
        assert set(both.method) == {"Ditto"} and set(both.task) == {"toy"}
        for s, one in zip((4, 5), recs):
            part = both[both.seed == s][COLUMNS].reset_index(drop=True)
            exact = {"check_dtype": form == "parquet", "rtol": 1e-12}
            pd.testing.assert_frame_equal(part, one.frame(), **exact)
    for path in ("out.txt", "out", "no/such/out.csv", "folder.csv", 3, None):
        (tmp_path / "folder.csv").mkdir(exist_ok=True)
        at = tmp_path / path if isinstance(path, str) else path
        refused(
            lambda at=at: rec.to_csv(at), path if at is path else path.split("/")[-1]
        )


def test_the_last_row_in_a_few_numbers():
    """The worst tenth of 21 clients are two; who has no rows does not count."""
    t = toy(sizes=(5,) * 21)
    rec = run(make("Ditto", replace(t, val=(t.val[0][:0], *t.val[1:]))))
    told = rec.summary()
    for key, views in rec.views.items():
        a = sorted(v for v in views[-1].tolist() if v == v)
        k = 2 if len(a) >= 20 else 1
        name = "/".join(key)
        assert told[f"{name}/mean"] == pytest.approx(sum(a) / len(a))
        assert told[f"{name}/worst"] == pytest.approx(sum(a[:k]) / k)
    assert set(told) == {
        f"{'/'.join(k)}/{of}" for k in rec.views for of in ("mean", "worst")
    }
    for shown in (repr(rec), rec._repr_html_()):
        for view in ("global", "personal"):
            for of in ("mean", "worst"):
                assert f"{told[f'pre/{view}/test/{of}']:.3f}" in shown
    assert np.allclose(
        rec.curve(lambda a: a.mean(1)), rec["pre", "global", "test"].mean(1)
    )
    with pytest.raises(KeyError, match="personl"):
        rec["pre", "personl", "test"]
    assert "<b>" not in run(FedAvg(task(name="<b>x</b>")), rounds=0)._repr_html_()


def test_records_that_are_not_whole():
    none, half = (run(FedAvg(task()), upto=n) for n in (0, 2))
    bad = diverged()
    assert (
        len(none.frame()) == 0
        and list(none.frame()) == COLUMNS
        and none.summary() == {}
    )
    assert set(half.frame()["round"]) == set(bad.frame()["round"]) == {0, 1}
    assert bad.meta["diverged"] == {"round": 1, "client": 0}
    for rec, said in ((none, "0 of 3"), (half, "2 of 3"), (bad, "round 1")):
        assert (
            said in repr(rec) and len(repr(rec).splitlines()) == 2 and rec._repr_html_()
        )


# ---------------------------------------------------------------- files
def test_a_record_comes_back_bit_for_bit(tmp_path):
    rec = run(make("Ditto", task()), cohort=lambda t: [t % 6, (t + 1) % 6], guests=True)
    rec.save(tmp_path / "new")
    back, sent = Record.load(tmp_path / "new"), pickle.loads(pickle.dumps(rec))
    assert same(seen(rec), seen(back)) and same(seen(rec), seen(sent))
    assert back.meta == rec.meta and sent.method is None and sent.cohort is None
    assert rec.logs["cohort"].tolist() == [[0, 1], [1, 2], [2, 3]]
    assert sorted(p.name for p in (tmp_path / "new").iterdir()) == [
        *("done", "record.json", "record.npz"),
    ]


@pytest.mark.parametrize("room", [0, 100, 10**4])
def test_a_full_disk_leaves_no_half_file(room, tmp_path):
    """No file may grow beyond `room` bytes: what was there stays, and nothing else."""
    rec = run(FedAvg(task()))
    rec.logs["much"] = np.random.RandomState(0).rand(3, 4000)
    before = {}
    for was_there in (False, True):
        ends = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, ends[1]))
        try:
            with pytest.raises(OSError) as e:
                rec.save(tmp_path)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, ends)
        assert "record.npz" in str(e.value)
        now = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
        assert now == before, was_there
        run(FedAvg(task())).save(tmp_path)
        before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}


# ---------------------------------------------------------------- the models
def accuracy(t, w, c):
    rows = t.rows_of(c, "test")
    return float((t.logits(w, t.x[rows]).argmax(1) == t.y[rows]).double().mean())


def test_a_model_is_the_one_that_was_scored_last(tmp_path):
    """In memory and from the folder; where a view is no one model, its probabilities."""
    for name in ("FedAvg", "Ditto", "FedPer-online", "FedAvg-FT", "FedProto", "FedALA"):
        method = make(name, task(), lr=0.2)
        rec = run(method, cohort=3, folder=tmp_path / name)
        t, n = method.task, 0
        for got in (rec, Record.load(tmp_path / name, method)):
            views = {view for moment, view, _ in rec.views if moment == "pre"}
            for view in views:
                for c, a in enumerate(rec["pre", view, "test"][-1]):
                    try:
                        w = got.model(NAMES[c], view)
                    except ValueError:
                        p = got.predict(t.x[t.rows_of(c, "test")], c, view)
                        hit = p.argmax(1) == t.y[t.rows_of(c, "test")]
                        assert float(hit.double().mean()) == pytest.approx(a), name
                        continue
                    assert {k: v.shape for k, v in w.items()} == t.shapes
                    assert accuracy(t, w, c) == pytest.approx(a), (name, view, c)
                    n += 1
        assert n > 6 or name == "FedProto"


class Twin(torch.nn.Module):
    """The network MLP(5, 4, 3), as one would write it."""

    def __init__(self, hidden=4):
        super().__init__()
        self.fc1, self.fc = torch.nn.Linear(5, hidden), torch.nn.Linear(hidden, 3)

    def forward(self, x):
        return self.fc(self.fc1(x).relu())


def test_models_leave_as_weights_modules_and_files(tmp_path):
    method = make("Ditto", task())
    rec, x = run(method, cohort=3), method.task.x
    shared, own = rec.state["server"]["w"], rec.state["clients"]["v"]
    assert all(torch.equal(v, shared[k]) for k, v in rec.model().items())
    assert all(torch.equal(v, shared[k]) for k, v in rec.model(2, "global").items())
    for who in ("cem", 2, np.int64(2)):
        assert all(torch.equal(v, own[k][2]) for k, v in rec.model(who).items())
    rec.model("cem")["fc.bias"].zero_()
    assert rec.model("cem")["fc.bias"].any(), "a copy"
    module = rec.model(3, into=Twin().double())
    assert torch.allclose(module(x).softmax(1), rec.predict(x, 3), atol=1e-12)
    assert torch.equal(
        rec.predict(x.tolist(), 3), rec.predict(pd.DataFrame(x.numpy()), 3)
    )
    for suffix in (".pt", ".pth", ".safetensors"):
        rec.save_model(path := tmp_path / f"model{suffix}", client=1)
        if suffix == ".safetensors":
            back = pytest.importorskip("safetensors.torch").load_file(path)
        else:
            back = torch.load(path, weights_only=True)
        assert same(*({k: w[k] for k in sorted(w)} for w in (back, rec.model(1))))
    other, before = Twin(7), Twin(7).state_dict()
    other.load_state_dict(before)
    normed = make("FedAvg", toy(Normed(5, 6, 3)))
    assert run(normed).predict(normed.task.x).sum(1).allclose(torch.ones(1).double())
    half, folder = make("FedAvg", task()), tmp_path / "run"
    run(half, folder=folder, keep_state=False)
    loaded = lambda m: lambda: Record.load(folder, m)
    rows = [
        *(
            (f"client {c}", lambda c=c: rec.model(c), "client", c)
            for c in (6, -1, True, 1.0)
        ),
        ("near", lambda: rec.model("anne"), "anne", "ann"),
        ("view", lambda: rec.model(0, "personl"), "personl", "personal"),
        ("whose", lambda: rec.model(view="personal"), "personal", "client"),
        ("no global", lambda: run(make("FedPer", task())).model(), "FedPer", "client"),
        ("into", lambda: rec.model(into=other), "fc1.weight"),
        ("into 3", lambda: rec.model(into=3), "into"),
        ("names", lambda: rec.model(into=torch.nn.Linear(5, 3)), "fc1.weight"),
        ("suffix", lambda: rec.save_model(tmp_path / "m.bin"), "m.bin"),
        ("no method", lambda: Record.load(folder).model(), "FedAvg"),
        ("not kept", lambda: Record.load(folder, half).model(), folder),
        ("diverged", lambda: diverged().model(), "round 1"),
        ("another", loaded(make("FedProx", task())), "method"),
        ("another lr", loaded(make("FedAvg", task(), lr=0.3)), "parameters"),
        ("another task", loaded(make("FedAvg", toy(sizes=(5, 6)))), "n"),
        *((m, loaded(m), "method") for m in (FedAvg(), "FedAvg")),
    ]
    for v in (
        np.zeros((2, 4)),
        np.zeros(5),
        np.zeros((0, 5)),
        3.0,
        "rows",
        [["a"] * 5],
        None,
    ):
        rows.append((f"x {v}", lambda v=v: rec.predict(v), "x"))
    rows.append(("nan", lambda: rec.predict(np.full((1, 5), np.nan)), "x"))
    all_refused(rows)
    assert same(other.state_dict(), before), "what does not fit is left as it was"
