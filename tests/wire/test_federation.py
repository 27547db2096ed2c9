"""What all parties agree on: the file, and the rows that each brings."""

import tracemalloc
import zipfile
from copy import deepcopy

import numpy as np
import pytest
import torch
import yaml
from toys_core import same
from toys_wire import Parties, scores

from fedlib.cli.text import parse_task
from fedlib.core.engine import run
from fedlib.core.pool import Pool
from fedlib.core.task import Task
from fedlib.deploy.federation import Federation
from fedlib.methods.make import make
from fedlib.nets import MLP

FILE = {
    "method": {"name": "FedAvg", "lr": 0.5},
    "task": {"name": "mine", "clients": 3, "classes": 3, "shape": [4], "batch": 8,
             "network": {"name": "MLP", "hidden": 6}, "parts": [0.6, 0.2, 0.2]},
    "rounds": 2,
}  # fmt: skip


def loaded(folder, of="", **changes):
    """The file with other entries, at the top or in one of its parts."""
    given, path = deepcopy(FILE), folder / "federation.yaml"
    (given[of] if of else given).update(changes)
    path.write_text(yaml.safe_dump(given))
    return Federation.load(path)


def test_rows_from_files_are_cut_as_in_the_simulation(tmp_path):
    g = torch.Generator().manual_seed(0)
    x, y = torch.randn(90, 2, 2, generator=g), torch.arange(90) % 3
    own = torch.arange(90).split(30)
    fed, tasks, file = loaded(tmp_path), [], tmp_path / "mine.npz"
    for c, r in enumerate(own):
        np.savez(file, x=x[r].numpy(), y=y[r].numpy())
        tasks.append(fed.client_task(c, file))
        assert [len(v) for v in tasks[c].train] == [18 * (i == c) for i in range(3)]
    record = Parties(None, fed=fed, tasks=tasks).serve().record
    pool = Pool("mine", x.reshape(90, 4), y, 3, "real")
    task = Task.from_rows("mine", MLP(4, 6, 3), pool, own, 0, (0.6, 0.2, 0.2), batch=8)
    rec = run(make("FedAvg", task, lr=0.5), rounds=2, how="loop", device="cpu")
    assert same(record.state["server"], rec.state["server"])
    tensors = lambda r: {k: torch.as_tensor(v) for k, v in scores(r).items()}
    assert same(tensors(record), tensors(rec))
    assert record.meta["n"] == rec.meta["n"]


def test_rows_from_a_description_are_those_of_one_client(tmp_path):
    fed = loaded(tmp_path, "task", classes=10, shape=[64], network="Linear")
    text = "digits:clients=3,dirichlet=.3"
    whole = parse_task(text)
    for c in range(3):
        part = fed.client_task(c, text)
        for s in ("train", "val", "test"):
            mine, theirs = getattr(part, s), getattr(whole, s)[c]
            assert torch.equal(part.x[mine[c]], whole.x[theirs])
            assert torch.equal(part.y[mine[c]], whole.y[theirs])
            assert sum(map(len, mine)) == len(theirs)
    assert type(part.network).__name__ == "Linear" and part.batch == 8
    with pytest.raises(ValueError):
        fed.client_task(0, "digits:clients=4")


def test_mistakes_in_the_file(tmp_path):
    net = lambda **kw: {"network": {"name": "MLP", "hidden": 6} | kw}
    for of, changes, names in (
        ("", {"round": 3}, ("round", "rounds")),
        *(("", {k: v}, (k,)) for k, bad in {
            "rounds": (-1, 1.5, True), "cohort": (0, 9), "seed": (-1, "x"), "every": (0,),
            "own": (1,), "wait": (0, "1", np.inf), "limit": (0, True), "method": (3, {}),
            }.items() for v in bad),
        ("method", {"name": "FedAgv"}, ("FedAgv", "FedAvg")),
        ("method", {"lrr": 1}, ("lrr", "lr")), ("method", {"name": "FairFed"}, ("groups",)),
        ("task", {"clinets": 3}, ("clinets", "clients")),
        *(("task", {k: v}, (k,)) for k, bad in {
            "clients": (0, 1.5), "classes": (0,), "batch": (0, "8"), "shape": (4, [], [0]),
            "split": (-1, 1.5), "dtype": ("half",)}.items() for v in bad),
        ("task", net(name="MPL"), ("MPL", "MLP")), ("task", net(hiden=3), ("hiden", "hidden")),
    ):  # fmt: skip
        with pytest.raises(ValueError) as e:
            loaded(tmp_path, of, **changes)
        assert all(n in str(e.value) for n in names), (changes, e.value)


def test_mistakes_in_the_rows(tmp_path):
    fed, path = loaded(tmp_path), tmp_path / "m.npz"
    x, y = np.random.default_rng(0).standard_normal((9, 4)), np.arange(9) % 3
    np.savez(path, x=x, y=y)
    task, whole = fed.client_task(0, path), path.read_bytes()
    assert task.x.dtype == torch.float32 and len(task.x) == 9

    def refused(c=0):
        with pytest.raises(ValueError):
            fed.client_task(c, path)

    refused(3), refused(-1)  # no client's number
    for body in (whole[:200], whole[:150] + b"?" + whole[151:]):
        path.write_bytes(body)
        refused()
    for arrays in (
        {"x": x}, {"x": x, "y": y[:-1]}, {"x": x[:, :3], "y": y}, {"x": x, "y": y + 1},
        {"x": x, "y": y - 1}, {"x": x * np.nan, "y": y}, {"x": x[:1], "y": y[:1]},
        {"x": np.array([{}]), "y": y[:1]}, {"x": x, "y": y + 0.5}, {"x": x, "y": y, "a": y},
    ):  # fmt: skip
        np.savez(path, **arrays)
        refused()
    tracemalloc.start()
    for shape in ("(10000000, 4)", "(9, -4)"):  # more than it holds, or less
        head = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}\n"
        np.savez(path, y=y)
        with zipfile.ZipFile(path, "a") as pack:
            start = b"\x93NUMPY\1\0" + len(head).to_bytes(2, "little")
            pack.writestr("x.npy", start + head.encode() + bytes(288))
        refused()
    assert tracemalloc.get_traced_memory()[1] < 10**7, "it was believed"
    tracemalloc.stop()


def test_all_that_decides_a_number_is_in_the_digest(tmp_path):
    digest = lambda *of, **more: loaded(tmp_path, *of, **more).digest
    one = digest()
    for more in ({"wait": 5}, {"limit": 10**6}, {"secure": None}):
        assert digest(**more) == one
    found = [digest(*of, **{k: v}) for *of, k, v in (
        ("rounds", 3), ("cohort", 2), ("seed", 1), ("every", 2), ("own", True),
        ("secure", {"threshold": 2}), ("method", "lr", 0.4), ("task", "clients", 4),
        ("task", "batch", 4), ("task", "split", 1), ("task", "parts", [0.5, 0.2, 0.3]),
        ("task", "dtype", "float64"), ("task", "shape", [2, 2]),
        ("task", "network", {"name": "MLP", "hidden": 5}),
    )]  # fmt: skip
    assert len({one, *found}) == len(found) + 1
