"""The app: its configuration, the rows of each, Flower's messages, its keys."""

import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch
from cryptography import x509
from cryptography.hazmat.primitives import serialization as form
from toys_core import same, seen
from toys_wire import Parties, R, agree, build, simulated

import fedlib
from fedlib.cli.main import main
from fedlib.cli.text import parse_task
from fedlib.core.pool import Pool
from fedlib.core.task import Task
from fedlib.core.tree import without
from fedlib.deploy.federation import Federation
from fedlib.nets import MLP
from fedlib.pieces.robust import Median
from fedlib.pieces.steps import SAM

FILE = {
    "method.name": "FedAvg", "method.lr": 0.5, "rounds": 2,
    "task.clients": 3, "task.classes": 3, "task.shape": "[4]", "task.batch": 8,
    "task.name": "mine", "task.parts": "[0.6, 0.2, 0.2]",
    "task.network.name": "MLP", "task.network.hidden": 6,
}  # fmt: skip


def flat(tree, at=""):
    """What Flower makes of the table [tool.flwr.app.config]."""
    for k, v in tree.items():
        yield from flat(v, f"{at}{k}.") if isinstance(v, dict) else [(at + k, v)]


def test_mistakes_in_the_configuration():
    top = {"rounds": (-1, 1.5), "cohort": (-1, 9), "seed": (-1, "x"), "every": (0,),
           "own": ("maybe",), "wait": (0, np.inf), "limit": (0,), "minimum": (0,)}  # fmt: skip
    task = {"clients": (0, 1.5), "classes": (0,), "batch": (0, "x"), "split": (-1,),
            "shape": ("4", "[]", "[0]"), "dtype": ("half",), "parts": ("[2, 0, 0]",)}  # fmt: skip
    wrong = [({k: v}, k) for k, bad in top.items() for v in bad]
    wrong += [({f"task.{k}": v}, k) for k, bad in task.items() for v in bad]
    wrong += [
        ({"round": 3}, "round"), ({"task.clinets": 3}, "clinets"),
        ({"method.name": "FedAgv"}, "FedAvg"), ({"method.lrr": 1}, "lrr"),
        ({"method.name": "FairFed"}, "groups"), ({"task.network.name": "MPL"}, "MLP"),
        ({"task.network.hiden": 6}, "hidden"), ({"own": True, "cohort": 2}, "own"),
    ]  # fmt: skip
    for changes, name in wrong:
        with pytest.raises(ValueError, match=name):
            Federation.read(FILE | changes)
    for k in ("rounds", "task.clients", "task.shape"):
        with pytest.raises(ValueError, match=k.split(".")[-1]):
            Federation.read({n: v for n, v in FILE.items() if n != k})


def test_all_that_decides_a_number_is_in_the_digest():
    digest = lambda **more: Federation.read(FILE | more).digest
    one = digest()
    assert Federation.read(dict(reversed(FILE.items()))).digest == one
    assert digest(wait=5) == digest(limit=10**6) == digest(rounds=9) == one
    changes = [{"cohort": 2}, {"seed": 1}, {"every": 2}, {"own": True},
               {"method.lr": 0.4}, {"task.clients": 4}, {"task.batch": 4},
               {"task.split": 1}, {"task.dtype": "float64"}, {"task.shape": "[2, 2]"},
               {"task.network.hidden": 5}]  # fmt: skip
    assert len({one, *(digest(**c) for c in changes)}) == len(changes) + 1


def test_a_method_on_a_task_becomes_a_file_and_comes_back():
    census = parse_task("census:clients=3")
    text = "digits:clients=3,network=CNN"
    for m in (
        fedlib.make("FedAvg", census, step=SAM(0.1), rule=Median()),
        fedlib.make("EquFL", census, inner={"name": "FedProx", "mu": 0.5}, rho=0.3),
        fedlib.make("Ditto", parse_task(text), lr=0.05),
    ):
        fed = Federation.of(m, 5, cohort=2)
        read = Federation.read(dict(flat(tomllib.loads("\n".join(fed.lines())))))
        assert read.make(m.task) == m and read.network == m.task.network
        assert read.groups == m.task.groups
        assert (read.C, read.K, read.shape) == (3, m.task.K, m.task.x.shape[1:])


# ---------------------------------------------------------------- rows
def test_rows_from_files_are_cut_as_in_the_simulation(tmp_path):
    x, y = torch.arange(360.0).sin().reshape(90, 2, 2), torch.arange(90) % 3
    own, fed, tasks = torch.arange(90).split(30), Federation.read(FILE), []
    for c, r in enumerate(own):
        np.savez(tmp_path / "mine.npz", x=x[r].numpy(), y=y[r].numpy())
        tasks.append(fed.client_task(c, tmp_path / "mine.npz"))
        assert [len(v) for v in tasks[c].train] == [18 * (i == c) for i in range(3)]
    parties = Parties(None, fed=fed, tasks=tasks).serve()
    pool = Pool("mine", x.reshape(90, 4), y, 3, "own")
    task = Task.from_rows("mine", MLP(4, 6, 3), pool, own, 0, (0.6, 0.2, 0.2), batch=8)
    known = {"rounds": 2, "seed": 0, "cohort": None, "every": 1}
    record = simulated(build("FedAvg", task, lr=0.5), **known)
    agree(parties, record)
    assert parties.record.meta["n"] == record.meta["n"]


def test_mistakes_in_the_rows(tmp_path):
    fed, path = Federation.read(FILE), tmp_path / "m.npz"
    x, y = np.random.default_rng(0).standard_normal((9, 4)), np.arange(9) % 3
    np.savez(path, x=x, y=y)
    task, whole = fed.client_task(0, path), path.read_bytes()
    assert task.x.dtype == torch.float32 and len(task.x) == 9
    for bad in (
        whole[:200], whole[:150] + b"?" + whole[151:], {"y": y[:-1]}, {"x": x[:, :3]},
        {"y": y + 1}, {"y": y - 1}, {"x": x * np.nan}, {"y": y + 0.5},
        {"x": x[:1], "y": y[:1]}, {"x": np.array([{}]), "y": y[:1]},
    ):  # fmt: skip
        if isinstance(bad, bytes):
            path.write_bytes(bad)
        else:
            np.savez(path, **{"x": x, "y": y} | bad)
        with pytest.raises(ValueError, match=r"m\.npz"):
            fed.client_task(0, path)
    for c, data in ((3, path), (0, "digits:clients=4"), (0, tmp_path / "none.npz")):
        with pytest.raises(ValueError, match="client|none"):
            fed.client_task(c, data)


# ---------------------------------------------------------------- Flower
class Grid:
    """Flower's grid, in this process. spoil(reply): what becomes of it."""

    def __init__(self, app, config, nodes, spoil=lambda m: m):
        from flwr.app import Context, RecordDict

        self.app, self.spoil, self.seen = app, spoil, []
        self.of = {k: Context(1, k, n, RecordDict(), config) for k, n in nodes.items()}

    def get_node_ids(self):
        return list(self.of)

    def send_and_receive(self, messages, timeout=None):
        out = []
        for m in messages:
            kind, node = m.metadata.message_type, m.metadata.dst_node_id
            self.seen.append((kind, node))
            out.append(self.spoil(self.app.client(m, self.of[node])))
        return out


@pytest.fixture
def app(monkeypatch):
    pytest.importorskip("flwr")
    try:  # a process of Flower's sets it, where there is one
        from flwr.supercore.task_identity import TaskIdentity

        for name in ("run_id", "node_id", "task_id"):
            monkeypatch.setattr(TaskIdentity, f"_{name}", 1)
    except ImportError:
        pass
    from fedlib.deploy import app

    monkeypatch.setattr(app.time, "sleep", lambda s: None)
    return app


def started(app, tmp_path, name, spoil=lambda m: m, nodes=None, **more):
    from flwr.app import Context, RecordDict

    text = "digits:clients=3,dirichlet=.3"
    method = fedlib.make(name, parse_task(text))
    more = {"folder": str(tmp_path / "s"), "state": str(tmp_path / "c")} | more
    fed = Federation.of(method, R, data=text, cohort=2, patience=0, **more)
    config = dict(flat(tomllib.loads("\n".join(fed.lines()))))
    nodes = nodes or {10 + c: {"partition-id": c} for c in range(3)}
    grid = Grid(app, config, nodes, spoil)
    app.server(grid, Context(1, 1, {}, RecordDict(), config))
    return grid, method, fedlib.Record.load(tmp_path / "s")


@pytest.mark.parametrize("name", ("FedGA", "Ditto", "FAA", "FedBABU"))
def test_flowers_messages_carry_the_same_numbers(app, tmp_path, name):
    grid, method, record = started(app, tmp_path, name)
    usual = {"how": "loop", "device": "cpu", "progress": False}
    want = fedlib.run(method, rounds=R, cohort=2, **usual)
    assert same(seen(record), seen(want))
    assert record.meta["bytes"] == want.meta["bytes"]
    kinds = {k for k, _ in grid.seen}
    asks = {"query.ask"} if name == "FAA" else set()
    assert kinds == {"query.who", "train", "evaluate"} | asks


@pytest.mark.parametrize("fault", ("a record less", "an error", "lost"))
def test_a_node_that_fails_is_named(app, tmp_path, fault, monkeypatch):
    """Its client is left out of each round, whatever comes from it."""
    from flwr.app import Error, Message

    said = []
    note = lambda text, *words: said.append(text % words if words else text)
    monkeypatch.setattr(app.log, "warning", note)

    def spoil(m):
        kind, node = m.metadata.message_type, m.metadata.src_node_id
        if node != 11 or kind == "query.who":
            return m
        if fault == "a record less":
            del m.content["metrics"]
            return m
        wrong = Message(Error(3, "Node Unavailable"), reply_to=m)
        wrong.metadata.__dict__["_src_node_id"] = 1 if fault == "lost" else 11
        return wrong

    _, _, record = started(app, tmp_path, "FedGA", spoil)
    assert not (record.logs["cohort"] == 1).any()
    assert len(said) == R + 1 and all("client 1 left out of round" in s for s in said)


def test_two_nodes_are_not_one_client(app, tmp_path):
    nodes = {10 + c: {"partition-id": c} for c in range(3)}
    more = {20: {"partition-id": 1}, 21: {"partition-id": 7}, 22: {}}
    grid, _, record = started(app, tmp_path, "FedGA", nodes=nodes | more)
    assert {n for k, n in grid.seen if k != "query.who"} == set(nodes)
    assert len(record.rounds)


def test_trees_come_back_to_the_bit(app):
    tree = {
        "w": {"a": torch.randn(2, 3).T, "half": torch.randn(2).half()},
        "n": torch.tensor(7), "p": torch.tensor(0.1), "yes": torch.tensor(True),
        "none": torch.zeros(0, 3), "empty": {}, "big": torch.tensor(2**53 + 1),
    }  # fmt: skip
    got = app.unpack(app.pack(tree))
    assert list(got) and got.keys() == tree.keys() and got["empty"] == {}
    full = without(tree, ["empty"])
    assert same({k: got[k] for k in full}, full)
    with pytest.raises(ValueError, match="limit"):
        app.unpack(app.pack(tree), 8)
    with pytest.raises(ValueError, match="'a' has a value"):
        app.nested({"a": torch.zeros(1), "a/b": torch.zeros(1)}, "/")


# ---------------------------------------------------------------- commands
def test_the_commands(tmp_path, capsys):
    at = tmp_path / "app"
    words = f"deploy app {at} --method Ditto --task digits:clients=3 --rounds 4 --set lam=.1"
    assert main(words.split()) == 0
    project = tomllib.loads((at / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    fed = Federation.read(dict(flat(project["config"])))
    assert (fed.C, fed.rounds, fed.method["lam"]) == (3, 4, 0.1)
    for what in project["components"].values():
        module, _, name = what.partition(":")
        source = Path(fedlib.__file__).parents[1] / (module.replace(".", "/") + ".py")
        assert f"\n{name} = " in source.read_text()  # Flower reads the source
    allowed = [x for x in (at / "nginx.conf").read_text().split("location")[1:]]
    assert [x.split()[0] for x in allowed] == ["/v1/fleet/", "/"]
    keys = tmp_path / "keys"
    line = f"deploy keys {keys} --host a.example --clients 2 --days 30"
    assert main(line.split()) == 0
    assert all(p.stat().st_mode & 0o077 == 0 for p in keys.iterdir())
    read = lambda name: x509.load_pem_x509_certificate((keys / name).read_bytes())
    read("server.pem").verify_directly_issued_by(read("ca.pem"))
    assert "a.example" in str(list(read("server.pem").extensions))
    private = form.load_ssh_private_key((keys / "client-0.key").read_bytes(), None)
    public = form.load_ssh_public_key((keys / "client-0.pub").read_bytes())
    assert private.public_key() == public
    for again in (words, f"deploy keys {keys} --host a --clients 2"):
        assert main(again.split()) == 2 and "new folder" in capsys.readouterr().err
