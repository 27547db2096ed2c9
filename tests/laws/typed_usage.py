"""What a type checker knows of somebody who uses fedlib; read by mypy, never run."""

from pathlib import Path
from typing import Any, assert_type

import numpy as np
from matplotlib.axes import Axes
from pandas import DataFrame
from torch import Tensor

import fedlib
from fedlib.core.method import Method, Round
from fedlib.core.record import Record
from fedlib.core.shards import Shard
from fedlib.core.task import Task
from fedlib.core.types import Tree, View
from fedlib.measures.selection import best_val, last, select
from fedlib.methods.base.fedavg import FedAvg
from fedlib.study.compare import Comparison
from fedlib.study.experiment import Study, study

# somebody's own arrays
x, y = np.zeros((6, 4), dtype=np.float32), np.array([0, 1, 0, 1, 0, 1])
task = fedlib.Task.from_arrays(x, y, ["a", "a", "a", "b", "b", "b"])
assert_type(task, Task)
assert_type(fedlib.Task.from_arrays(x.tolist(), y, y, parts=[1, 0, 0]), Task)
people = DataFrame({"age": [20, 30], "ill": ["no", "yes"], "clinic": ["a", "b"]})
assert_type(fedlib.Task.from_frame(people, label="ill", client="clinic"), Task)
assert_type(fedlib.Task.from_dataset(list(zip(x, y)), client=y), Task)
assert_type(task.classes, tuple[str, ...])

# one run
method = fedlib.make("FedAvg", task, lr=0.1)
assert_type(method, Method)
record = fedlib.run(method, rounds=3, cohort=lambda t: [0, 1], folder="runs/mine")
assert_type(record, Record)
assert_type(record["pre", "global", "test"], np.ndarray)
assert_type(record.curve(fedlib.metrics.gini), np.ndarray)
assert_type(record.rounds, np.ndarray)
assert_type(record.meta, dict[str, Any])
assert_type(Record.load("runs/mine"), Record)
assert_type(Record.load("runs/mine", method), Record)

# what comes out of it
assert_type(record.frame(), DataFrame)
assert_type(record.summary(), dict[str, float])
assert_type(record.predict(x, client="a"), Tensor)
record.to_csv("accuracies.csv")
record.save_model("model.pt", client=0)
weights = record.model()
fedlib.run(method, rounds=3, init=weights, on_round=lambda t, r: print(t, r.summary()))
assert_type(select(record, fedlib.metrics.worst, last), float)
assert_type(best_val(record), np.ndarray)

# several, side by side
found = fedlib.compare(
    ["FedAvg", ("FedProx", {"mu": 0.1}), FedAvg(task, lr=0.5)],
    task,
    rounds=3,
    seeds=[0, 1],
    rule=best_val,
    cohort=1,
)
assert_type(found, Comparison)
assert_type(found.table, DataFrame)
assert_type(found.accuracies("FedAvg"), np.ndarray)
assert_type(found.violin(), Axes)
assert_type(found.paired(against="FedProx"), DataFrame)
assert_type(found.frame(), DataFrame)
assert_type(found.failed, dict[str, str])
assert_type(found.report("report.html"), Path)
tuned = fedlib.compare(["FedGA"], task, 3, grid={"FedGA": {"alpha": [1, 3]}}, workers=2)
assert_type(tuned.ranked(by="Gini"), DataFrame)
assert_type(fedlib.cite("FedAvg", "FedProx"), str)
assert_type(fedlib.METHODS["FedAvg"](task), Method)

# a study of a paper
done = study("fedga", "synthetic", tier="tiny")
assert_type(done, Study)
assert_type(done.table("mean_acc"), DataFrame)
assert_type(done.seeds(rules=["last"]), DataFrame)
assert_type(done.curve("synthetic", "FedAvg"), tuple[np.ndarray, np.ndarray])
assert_type(done.join(done).methods(), list[str])


# a method of one's own
class Mine(FedAvg):
    def local(self, down: Tree, mine: Tree, shard: Shard) -> tuple[Tree, Tree]:
        mine, up = super().local(down, mine, shard)
        return mine, up

    def aggregate(self, server: Tree, up: Tree, r: Round) -> Tree:
        assert_type(r.t, int)
        return {"w": server["w"]}

    def views(self, down: Tree, mine: Tree, shard: Shard) -> dict[str, View]:
        return super().views(down, mine, shard)


# what a caller gets wrong, and is told: each line must be an error
fedlib.run(task)  # type: ignore[arg-type]
fedlib.run(method, rounds="3")  # type: ignore[arg-type]
fedlib.run(method, on_round="print")  # type: ignore[arg-type]
record.model(client=1.5)  # type: ignore[call-overload]
fedlib.make("FedAvg", 3)  # type: ignore[arg-type]
fedlib.compare("FedAvg", task, rounds=3, rule="last")  # type: ignore[arg-type]
record["pre", "global"]  # type: ignore[index]
_ = fedlib.nothing  # type: ignore[attr-defined]
