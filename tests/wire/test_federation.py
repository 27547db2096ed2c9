"""What all parties agree on: the file, and the rows that each brings."""

from copy import deepcopy

import numpy as np
import pytest
import torch
import yaml
from toys_wire import Parties, agree, build, simulated

from fedlib.cli.text import parse_task
from fedlib.core.pool import Pool
from fedlib.core.task import Task
from fedlib.deploy.federation import Federation
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
    x, y = torch.arange(360.0).sin().reshape(90, 2, 2), torch.arange(90) % 3
    own = torch.arange(90).split(30)
    fed, tasks, file = loaded(tmp_path), [], tmp_path / "mine.npz"
    for c, r in enumerate(own):
        np.savez(file, x=x[r].numpy(), y=y[r].numpy())
        tasks.append(fed.client_task(c, file))
        assert [len(v) for v in tasks[c].train] == [18 * (i == c) for i in range(3)]
    parties = Parties(None, fed=fed, tasks=tasks).serve()
    pool = Pool("mine", x.reshape(90, 4), y, 3, "real")
    task = Task.from_rows("mine", MLP(4, 6, 3), pool, own, 0, (0.6, 0.2, 0.2), batch=8)
    known = {"rounds": 2, "seed": 0, "cohort": None, "every": 1}
    record = simulated(build("FedAvg", task, lr=0.5), **known)
    agree(parties, record)
    assert parties.record.meta["n"] == record.meta["n"]


def test_rows_from_a_description_are_those_of_one_client(tmp_path):
    fed = loaded(tmp_path, "task", classes=10, shape=[64], network="Linear")
    whole = parse_task(text := "digits:clients=3,dirichlet=.3")
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
    top = {"rounds": (-1, 1.5, True), "cohort": (0, 9), "seed": (-1, "x"), "every": (0,),
           "own": (1,), "wait": (0, "1", np.inf), "limit": (0, True), "method": (3, {})}  # fmt: skip
    task = {"clients": (0, 1.5), "classes": (0,), "batch": (0, "8"), "split": (-1, 1.5),
            "shape": (4, [], [0]), "dtype": ("half",)}  # fmt: skip
    for of, changes, name in (
        *(("", {k: v}, k) for k, bad in top.items() for v in bad),
        *(("task", {k: v}, k) for k, bad in task.items() for v in bad),
        ("", {"round": 3}, "rounds"), ("task", {"clinets": 3}, "clients"),
        ("method", {"name": "FedAgv"}, "FedAvg"), ("method", {"lrr": 1}, "lrr"),
        ("method", {"name": "FairFed"}, "groups"), ("task", {"network": {"name": "MPL"}}, "MLP"),
        ("task", {"network": {"name": "MLP", "hiden": 6}}, "hidden"),
    ):  # fmt: skip
        with pytest.raises(ValueError) as e:
            loaded(tmp_path, of, **changes)
        assert name in str(e.value), (changes, e.value)


def test_mistakes_in_the_rows(tmp_path):
    fed, path = loaded(tmp_path), tmp_path / "m.npz"
    x, y = np.random.default_rng(0).standard_normal((9, 4)), np.arange(9) % 3
    np.savez(path, x=x, y=y)
    task, whole = fed.client_task(0, path), path.read_bytes()
    assert task.x.dtype == torch.float32 and len(task.x) == 9

    # {}: these rows are sound, and no client has the number
    for c, bad in enumerate((
        {}, whole[:200], whole[:150] + b"?" + whole[151:], {"a": y}, {"y": y[:-1]},
        {"x": x[:, :3]}, {"y": y + 1}, {"y": y - 1}, {"x": x * np.nan}, {"y": y + 0.5},
        {"x": x[:1], "y": y[:1]}, {"x": np.array([{}]), "y": y[:1]}, {}), -1,
    ):  # fmt: skip
        if isinstance(bad, bytes):
            path.write_bytes(bad)
        else:
            np.savez(path, **{"x": x, "y": y} | bad)
        with pytest.raises(ValueError):
            fed.client_task(c if bad == {} else 0, path)


def test_all_that_decides_a_number_is_in_the_digest(tmp_path):
    digest = lambda *of, **more: loaded(tmp_path, *of, **more).digest
    one = digest()
    assert digest(wait=5) == digest(limit=10**6) == digest(secure=None) == one
    found = [digest(*of, **{k: v}) for *of, k, v in (
        ("rounds", 3), ("cohort", 2), ("seed", 1), ("every", 2), ("own", True),
        ("secure", {"threshold": 2}), ("method", "lr", 0.4), ("task", "clients", 4),
        ("task", "batch", 4), ("task", "split", 1), ("task", "parts", [0.5, 0.2, 0.3]),
        ("task", "dtype", "float64"), ("task", "shape", [2, 2]),
        ("task", "network", {"name": "MLP", "hidden": 5}),
    )]  # fmt: skip
    assert len({one, *found}) == len(found) + 1
