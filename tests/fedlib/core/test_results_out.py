"""What a run leaves to its user: a tidy table, two lines, the models."""

import pickle
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from toys_clip import toy_towers
from toys_core import GROUPS, Normed, seen, toy

from fedlib.core import engine
from fedlib.core.errors import Diverged
from fedlib.core.record import Record
from fedlib.measures import metrics
from fedlib.methods import METHODS
from fedlib.methods.base.fedavg import FedAvg
from fedlib.methods.make import make
from fedlib.nets import MLP
from fedlib.study.microruns import CLIP, QUICK

NAMES = ("ann", "ben", "cem", "dora", "eve", "fay")


def run(*args, **more):
    return engine.run(*args, **({"device": "cpu", "seed": 4, "rounds": 3} | more))


def task(**more):
    return toy(MLP(5, 4, 3), **more)


def named():
    return replace(task(), owners=NAMES)


class Bursts(FedAvg):
    """Diverges in round 1."""

    def local(self, down, mine, shard):
        mine, up = super().local(down, mine, shard)
        bad = {k: v / 0 for k, v in up["w"].items()}
        return mine, up | ({"w": bad} if shard.t else {})


def diverged(folder=None):
    with pytest.raises(Diverged) as e:
        run(Bursts(task()), folder=folder)
    return e.value.record


# ---------------------------------------------------------------- a table
COLUMNS = ["round", "client", "name", "moment", "view", "split", "rows", "accuracy"]


def test_every_number_is_one_row_of_the_table():
    """Another way to the same: each row is looked up in the record by hand."""
    rec = run(make("Ditto", named()), cohort=3, every=2, guests=True)
    table = rec.frame()
    assert list(table) == COLUMNS
    assert len(table) == sum(v.size for v in rec.views.values())
    for r in table.itertuples():
        at, guest = rec.rounds.tolist().index(r.round), r.moment == "guest"
        c = -1 - r.client if guest else r.client
        a = rec[r.moment, r.view, r.split][at][c]
        assert a == r.accuracy or np.isnan(a) == np.isnan(r.accuracy) == True  # noqa: E712
        assert pd.isna(r.name) if guest else r.name == NAMES[c]
        n = rec.meta["n"]
        rows = n["guest" if r.split == "test" else "guest_val"] if guest else n[r.split]
        assert r.rows == rows[c]
    post = table[table.moment == "post"]
    assert sorted(post["round"].unique()) == [0, 2]  # nobody trains in round 3


def test_the_mean_of_the_table_is_the_curve():
    rec = run(make("FedAvg", task()), splits=("test", "all"))
    table = rec.frame()
    assert table.name.isna().all() and set(table.split) == {"test", "all"}
    got = table[table.split == "test"].groupby("round").accuracy.mean()
    assert np.allclose(got.to_numpy(), rec.curve(metrics.mean_acc))
    assert table[table.split == "all"].rows.tolist()[:6] == rec.meta["n"]["train"]


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_tables_of_several_runs_go_one_below_the_other(form, tmp_path):
    recs = [run(make("FedAvg", named()), seed=s) for s in (0, 1)]
    for i, rec in enumerate(recs):
        getattr(rec, f"to_{form}")(tmp_path / f"{i}.{form}")
    back = getattr(pd, f"read_{form}")
    both = pd.concat([back(tmp_path / f"{i}.{form}") for i in (0, 1)])
    assert list(both) == ["method", "task", "seed", *COLUMNS]
    assert set(both.method) == {"FedAvg"} and set(both.task) == {"toy"}
    for s, rec in enumerate(recs):
        part = both[both.seed == s][COLUMNS].reset_index(drop=True)
        pd.testing.assert_frame_equal(part, rec.frame(), check_dtype=form == "parquet")


@pytest.mark.parametrize(
    "path, why",
    [
        ("out.txt", "ends with '.txt': give a name that ends with .csv"),
        ("out", "ends with '': give a name that ends with .csv"),
        ("no/such/out.csv", "there is no folder .*; make it first"),
        ("folder.csv", "is a folder: give the name of a file in it"),
        (3, "path = 3: give the name of a file"),
        (None, "path = None: give the name of a file"),
    ],
)
def test_a_path_that_is_none_is_refused(path, why, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.csv").mkdir()
    rec = run(make("FedAvg", task()), rounds=0)
    with pytest.raises(ValueError, match=why):
        rec.to_csv(path)
    assert [p.name for p in tmp_path.rglob("*")] == ["folder.csv"]


# ---------------------------------------------------------------- two lines
def test_a_record_is_said_in_two_lines():
    rec = run(make("Ditto", task()), cohort=3)
    first, second = repr(rec).splitlines()
    assert first == "<Record of Ditto on toy: 3 rounds, seed 4"
    a = rec["pre", "global", "test"][-1]
    means = f"global {a.mean():.3f} (worst tenth {metrics.worst(a):.3f})"
    assert means in second and "personal" in second
    html = rec._repr_html_()
    assert f"<td>{a.mean():.3f}</td>" in html and html.count("<tr>") == 7


def test_the_summary_is_the_measures_of_the_last_row():
    rec = run(make("Ditto", toy(sizes=(5,) * 21)))
    for key, views in rec.views.items():
        name = "/".join(key)
        assert rec.summary()[f"{name}/mean"] == pytest.approx(views[-1].mean())
        assert rec.summary()[f"{name}/worst"] == pytest.approx(metrics.worst(views[-1]))


def test_a_clients_name_is_no_html():
    rec = run(make("FedAvg", replace(task(), name="<b>mine</b>")), rounds=0)
    assert "<b>" not in rec._repr_html_() and "&lt;b&gt;" in rec._repr_html_()


def test_records_that_are_not_whole(tmp_path):
    """Nothing scored, stopped, diverged: all have a table, two lines and a summary."""
    fed = run(make("FedAvg", task()), upto=0)
    assert len(fed.frame()) == 0 and list(fed.frame()) == COLUMNS
    assert fed.summary() == {} and "nothing scored yet" in repr(fed)
    assert "stopped after 0 of 3 rounds" in repr(fed) and fed._repr_html_()
    half = run(make("FedAvg", task()), upto=2)
    assert set(half.frame()["round"]) == {0, 1}
    assert "stopped after 2 of 3 rounds" in repr(half)
    bad = diverged()
    assert set(bad.frame()["round"]) == {0, 1}
    assert "diverged in round 1 of 3 rounds, client 0" in repr(bad)
    for i, rec in enumerate((fed, half, bad)):
        assert len(repr(rec).splitlines()) == 2
        rec.to_csv(tmp_path / f"{i}.csv")
        rec.to_parquet(tmp_path / f"{i}.parquet")
    assert len(pd.read_parquet(tmp_path / "1.parquet")) == 2 * 2 * 6


def test_clients_without_rows_do_not_count_in_the_summary():
    t = task()
    rec = run(FedAvg(replace(t, val=(t.val[0][:0], *t.val[1:]))))
    a = rec["pre", "global", "val"][-1]
    assert np.isnan(a[0]) and rec.summary()["pre/global/val/mean"] == a[1:].mean()
    assert np.isnan(rec.frame().query("split == 'val' and client == 0").accuracy).all()


# ---------------------------------------------------------------- the models
VIEWED = ["FedAvg", "Ditto", "FedPer", "FedRep", "pFedMe", "FedAvg-FT", "FedBABU"]
VIEWED += ["FedALA", "AFL", "Per-FedAvg", "FedPer-online", "FedAvg-P", "pFedHN"]


def accuracy(t, w, c, split="test"):
    rows = t.rows_of(c, split)
    z = t.logits(w, t.x[rows])
    return float((z.argmax(1) == t.y[rows]).double().mean())


def built(name):
    cls = METHODS[name]
    quick = {k: v for k, v in QUICK.items() if k in cls.__dataclass_fields__}
    data = toy_towers(3, 5, network=CLIP[name])[1] if name in CLIP else None
    norm = "batch" if name == "FedBN" else "none"  # it keeps norm layers at home
    data = data or toy(MLP(5, 4, 3, norm=norm), groups=GROUPS)
    return make(name, data, **quick | {"lr": 0.2})


def scored(rec, method):
    """Does each model that comes out get what the last row says?"""
    views = {view for moment, view, _ in rec.views if moment == "pre"}
    out = []
    for view in sorted(views):
        a = rec["pre", view, "test"][-1]
        for c in range(len(a)):
            try:
                w = rec.model(c, view)
            except ValueError as e:
                assert "is not one set of weights" in str(e) and repr(view) in str(e)
                rows = method.task.rows_of(c, "test")
                p = rec.predict(method.task.x[rows], c, view)
                hit = (p.argmax(1) == method.task.y[rows]).double().mean()
                out.append(float(hit) == pytest.approx(a[c]))
                continue
            assert {k: v.shape for k, v in w.items()} == method.task.shapes
            out.append(accuracy(method.task, w, c) == pytest.approx(a[c]))
    return out and all(out)


@pytest.mark.parametrize("name", [n for n in VIEWED if n in METHODS])
def test_a_model_is_the_one_that_was_scored_last(name, tmp_path):
    """Its accuracy on each client's own rows is the last row of the record; so it is
    from the folder.
    """
    method = built(name)
    rec = run(method, cohort=3, folder=tmp_path)
    assert scored(rec, method)
    back = Record.load(tmp_path, method)
    assert back.state is None and scored(back, method)


@pytest.mark.full
@pytest.mark.filterwarnings("ignore:the server's network agrees")
@pytest.mark.parametrize("name", [n for n in METHODS if n not in VIEWED])
def test_a_model_of_every_other_method(name):
    method = built(name)
    rec = run(method, rounds=4)
    assert scored(rec, method)


def test_what_all_share_is_given_without_a_client():
    rec = run(make("Ditto", named()), cohort=3)
    w = rec.state["server"]["w"]
    assert all(torch.equal(v, w[k]) for k, v in rec.model().items())
    assert all(torch.equal(v, w[k]) for k, v in rec.model(2, "global").items())
    own, v = rec.model("cem"), rec.state["clients"]["v"]
    assert all(torch.equal(own[k], v[k][2]) for k in own)
    assert all(torch.equal(own[k], rec.model(np.int64(2))[k]) for k in own)
    own["fc.bias"].zero_()  # a copy
    assert not torch.equal(own["fc.bias"], rec.model("cem")["fc.bias"])


MODEL = [
    ("Ditto", {"client": 6}, "client = 6: give a number from 0 to 5"),
    ("Ditto", {"client": -1}, "client = -1: give a number"),
    ("Ditto", {"client": True}, "client = True: give a number"),
    ("Ditto", {"client": 1.0}, "client = 1.0: give a number"),
    ("Ditto", {"client": "anne"}, "client = 'anne'.* name; did you mean 'ann'?"),
    ("Ditto", {"client": 0, "view": "personl"}, "no view 'personl'; did you mean 'per"),
    ("Ditto", {"view": "personal"}, "another model at each client; name a client"),
    ("FedAvg-FT", {"view": "tuned"}, "another model at each client"),
    ("FedPer", {}, "FedPer has no global model.*its views: 'personal'"),
    ("Local", {}, "has no global model"),
    ("FedProto", {"client": 0, "view": "prototype"}, "'prototype' is not one set of w"),
    ("FedAvg", {"view": "personal"}, "FedAvg has no view 'personal'.*it has 'global'"),
]


@pytest.mark.parametrize("name, asked, why", MODEL)
def test_a_model_that_is_not_there(name, asked, why):
    rec = run(make(name, named()), rounds=1)
    with pytest.raises(ValueError, match=why):
        rec.model(**asked)


def test_a_record_without_its_method_says_what_to_do(tmp_path):
    method = make("FedAvg", task())
    run(method, folder=tmp_path)
    with pytest.raises(ValueError, match=r"Record.load\(folder, fedlib.make\('FedAvg'"):
        Record.load(tmp_path).model()
    again = run(method, folder=tmp_path)  # the finished run knows it
    assert again.state is None and set(again.model()) == set(method.task.shapes)


@pytest.mark.parametrize(
    "other, why",
    [
        (lambda: make("FedProx", task()), "method is .*FedAvg.* there, .*FedProx"),
        (lambda: make("FedAvg", task(), lr=0.3), "parameters is"),
        (lambda: make("FedAvg", toy(sizes=(5, 6))), "n is"),
        (lambda: FedAvg(), "give a method with its task"),
        (lambda: "FedAvg", "give a method with its task"),
    ],
)
def test_another_method_is_not_taken_for_the_one_that_ran(other, why, tmp_path):
    run(make("FedAvg", task()), folder=tmp_path)
    with pytest.raises(ValueError, match=why):
        Record.load(tmp_path, other())


def test_models_that_were_not_kept(tmp_path):
    method = make("FedAvg", task())
    run(method, folder=tmp_path, keep_state=False)
    with pytest.raises(
        ValueError, match=r"is not in .*run it with folder=.*keep_state"
    ):
        Record.load(tmp_path, method).model()
    with pytest.raises(ValueError, match="diverged in round 1, so there is no model"):
        diverged().model()


def test_a_function_of_cohorts_is_kept_in_no_folder(tmp_path):
    """Who would receive after the last round is drawn by it: from a folder it is not
    known, and the same call knows it.
    """
    method, cohort = make("FedPer-online", task()), lambda t: [t % 6, (t + 2) % 6]
    rec = run(method, cohort=cohort, folder=tmp_path)
    assert scored(rec, method)
    with pytest.raises(ValueError, match="call fedlib.run with the same arguments"):
        Record.load(tmp_path, method).model(0)
    assert scored(run(method, cohort=cohort, folder=tmp_path), method)


def test_a_stale_state_is_refused(tmp_path):
    method = make("FedAvg", task())
    run(method, folder=tmp_path)
    record = Record.load(tmp_path)
    record.meta["rounds"] = 7
    record.save(tmp_path)
    with pytest.raises(ValueError, match="is of round 3, the record of 7"):
        Record.load(tmp_path, method).model()


def test_a_record_travels_without_the_data():
    rec = run(make("Ditto", task()), cohort=lambda t: [0, 1, 2])
    back = pickle.loads(pickle.dumps(rec))
    assert back.method is None and back.cohort is None
    assert all(np.array_equal(a, b) for a, b in zip(seen(rec), seen(back), strict=True))


# ---------------------------------------------------------------- into, save, predict
class Twin(torch.nn.Module):
    """The network MLP(5, 4, 3), as one would write it."""

    def __init__(self, hidden=4):
        super().__init__()
        self.fc1, self.fc = torch.nn.Linear(5, hidden), torch.nn.Linear(hidden, 3)

    def forward(self, x):
        return self.fc(self.fc1(x).relu())


def test_a_module_of_ones_own_is_filled():
    method = make("Ditto", task())
    rec, module, x = run(method), Twin().double(), method.task.x
    got = rec.model(3, into=module)
    assert got is module
    assert torch.allclose(got(x).softmax(1), rec.predict(x, 3), atol=1e-12)


def test_a_module_that_does_not_fit_is_left_as_it_was():
    rec, other = run(make("FedAvg", task())), Twin(7)
    more = torch.nn.ModuleDict({"fc1": Twin().fc1, "fc": Twin().fc, "out": Twin().fc})
    more["last"] = torch.nn.Linear(2, 2)
    before = {k: v.clone() for k, v in other.state_dict().items()}
    for bad, why in (
        (other, r"Twin: fc1.weight is \[4, 5\] in the model, there \[7, 5\]"),
        (torch.nn.Linear(5, 3), "Linear: fc1.weight is .* there not; did you mean"),
        (more, "has last.bias, last.weight, out.bias, .* which the model has not"),
        (3, "into = 3: give an nn.Module"),
    ):
        with pytest.raises(ValueError, match=why):
            rec.model(into=bad)
    assert all(torch.equal(v, before[k]) for k, v in other.state_dict().items())
    frozen = torch.nn.ModuleDict({"fc1": Twin().fc1, "fc": Twin().fc})
    frozen["lens"] = torch.nn.Linear(2, 2).requires_grad_(False)
    rec.model(into=frozen.double())
    assert torch.equal(frozen.state_dict()["fc.bias"], rec.model()["fc.bias"])


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".safetensors"])
def test_a_saved_model_comes_back(suffix, tmp_path):
    rec, path = run(make("Ditto", task())), tmp_path / f"model{suffix}"
    rec.save_model(path, client=1)
    if suffix == ".safetensors":
        back = pytest.importorskip("safetensors.torch").load_file(path)
    else:
        back = torch.load(path, weights_only=True)
    want = rec.model(1)
    assert back.keys() == want.keys()
    assert all(torch.equal(v, back[k]) for k, v in want.items())
    Twin().double().load_state_dict(back)


def test_a_model_is_saved_under_a_name_that_says_how(tmp_path):
    rec = run(make("FedAvg", task()), rounds=0)
    with pytest.raises(ValueError, match=r"give a name that ends with .pt or .pth or"):
        rec.save_model(tmp_path / "model.bin")
    with pytest.raises(ValueError, match="there is no folder"):
        rec.save_model(tmp_path / "no" / "model.pt")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("network", [MLP(5, 4, 3), Normed(5, 6, 3)])
def test_probabilities_of_rows(network):
    method = make("Ditto", toy(network))
    rec, x = run(method), method.task.x
    p = rec.predict(x.numpy(), client=2)
    z = method.task.logits(rec.model(2), x)
    assert p.shape == (len(x), 3) and torch.allclose(p.sum(1), torch.ones_like(p[:, 0]))
    assert torch.allclose(p, z.softmax(1))
    assert torch.equal(rec.predict(x.tolist(), 2), p)
    frame = pd.DataFrame(x.numpy())
    assert torch.equal(rec.predict(frame, 2), p)


@pytest.mark.parametrize(
    "x, why",
    [
        (np.zeros((2, 4)), r"x is \[2, 4\]: give rows \[n, 5\]"),
        (np.zeros(5), r"x is \[5\]: give rows"),
        (np.zeros((0, 5)), r"x is \[0, 5\]"),
        (3.0, r"x is \[\]"),
        ("rows", "does not become numbers"),
        ([["a"] * 5], "does not become numbers"),
        (None, "does not become numbers"),
        (np.full((1, 5), np.nan), "x is not finite"),
    ],
)
def test_rows_that_are_none_are_refused(x, why):
    rec = run(make("FedAvg", task()), rounds=0)
    with pytest.raises(ValueError, match=why):
        rec.predict(x)
