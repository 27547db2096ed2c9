"""What a run leaves to its user: a tidy table, files that come back, the models; each
number looked up in the record by hand."""

import itertools
import pickle
from collections import OrderedDict
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from toys_core import same, seen, toy
from toys_input import all_refused

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


def test_every_number_is_one_row_of_the_table():
    t = task()
    t = replace(t, val=(t.val[0][:0], *t.val[1:]))
    more = {"splits": ("test", "val", "all"), "every": 2, "guests": True}
    rec = run(make("Ditto", t), **more)
    table = rec.frame()
    assert list(table) == COLUMNS
    assert len(table) == sum(v.size for v in rec.views.values())
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


def test_the_last_row_in_a_few_numbers():
    """The worst tenth of 21 clients are two; who has no rows does not count."""
    t = toy(sizes=(5,) * 21)
    rec = run(make("Ditto", replace(t, val=(t.val[0][:0], *t.val[1:]))))
    told, want = rec.summary(), {}
    for key, views in rec.views.items():
        a = sorted(v for v in views[-1].tolist() if v == v)
        k = 2 if len(a) >= 20 else 1
        want["/".join(key) + "/mean"] = sum(a) / len(a)
        want["/".join(key) + "/worst"] = sum(a[:k]) / k
    assert told == pytest.approx(want)
    mean = rec["pre", "global", "test"].mean(1)
    assert np.allclose(rec.curve(lambda a: a.mean(1)), mean)


def test_records_that_are_not_whole():
    (none, half), bad = (run(FedAvg(task()), upto=t) for t in (0, 2)), diverged()
    assert len(none.frame()) == 0 and none.summary() == {}
    assert set(half.frame()["round"]) == set(bad.frame()["round"]) == {0, 1}
    assert bad.meta["diverged"] == {"round": 1, "client": 0}


def test_a_record_comes_back_bit_for_bit(tmp_path):
    rec = run(make("Ditto", task()), cohort=lambda t: [t % 6, (t + 1) % 6], guests=True)
    rec.save(tmp_path / "new")
    back, sent = Record.load(tmp_path / "new"), pickle.loads(pickle.dumps(rec))
    assert same(seen(rec), seen(back)) and same(seen(rec), seen(sent))
    assert back.meta == rec.meta and sent.method is None and sent.cohort is None
    assert rec.logs["cohort"].tolist() == [[0, 1], [1, 2], [2, 3]]


def test_a_model_is_the_one_that_was_scored_last(tmp_path):
    """In memory and from the folder; where a view is no one model, its probabilities."""
    for name in ("FedAvg", "Ditto", "FedPer-online", "FedAvg-FT", "FedProto", "FedALA"):
        method = make(name, task(), lr=0.2)
        go = lambda m=method, at=tmp_path / name: run(m, cohort=3, folder=at)
        rec = go()
        t, models = method.task, 0
        views = {view for moment, view, _ in rec.views if moment == "pre"}
        for got in (rec, go()):
            for view, c in itertools.product(views, range(6)):
                try:
                    p = t.logits(got.model(NAMES[c], view), t.x)
                    models += 1
                except ValueError:
                    p = got.predict(t.x, c, view)
                rows, a = t.rows_of(c, "test"), rec["pre", view, "test"][-1][c]
                mean = float((p[rows].argmax(1) == t.y[rows]).double().mean())
                assert mean == pytest.approx(a), (name, view, c)
        assert models > 6 or name == "FedProto"


def test_models_leave_as_weights_and_modules():
    method = make("Ditto", task())
    rec, x = run(method, cohort=3), method.task.x
    shared, own = rec.state["server"]["w"], rec.state["clients"]["v"]
    assert all(torch.equal(v, shared[k]) for k, v in rec.model(2, "global").items())
    for who in ("cem", 2, np.int64(2)):
        assert all(torch.equal(v, own[k][2]) for k, v in rec.model(who).items())
    rec.model("cem")["fc.bias"].zero_()
    assert rec.model("cem")["fc.bias"].any(), "a copy"
    parts = dict(fc1=nn.Linear(5, 4), relu=nn.ReLU(), fc=nn.Linear(4, 3))
    net = nn.Sequential(OrderedDict(parts)).double()  # as one would write it
    net.load_state_dict(rec.model(3))
    assert torch.allclose(net(x).softmax(1), rec.predict(x, 3), atol=1e-12)
    table = pd.DataFrame(x.numpy())
    assert torch.equal(rec.predict(x.tolist(), 3), rec.predict(table, 3))


def test_models_that_are_not_there(tmp_path):
    rec, half = run(make("Ditto", task()), cohort=3), make("FedAvg", task())
    lost = lambda: run(half, folder=tmp_path, keep_state=False)
    lost()
    of = lambda *a, rec=rec, **k: lambda: rec.model(*a, **k)
    rows = [(f"client {c}", of(c), "client", c) for c in (6, -1, True, 1.0)]
    rows += [
        ("no global", of(rec=run(make("FedPer", task()))), "FedPer", "client"),
        ("not kept", of(rec=lost()), tmp_path),
        ("diverged", of(rec=diverged()), "diverged", 1),
        ("read", of(rec=Record.load(tmp_path)), "method"),
        ("x", lambda: rec.predict(np.zeros((2, 4))), "x"),
    ]
    all_refused(rows)
