"""What a type checker knows of somebody who uses fedlib; read by mypy, never run."""

from pathlib import Path
from typing import assert_type

import numpy as np
from matplotlib.axes import Axes
from pandas import DataFrame
from torch import Tensor

import fedlib
from fedlib.core.method import Method
from fedlib.core.record import Record
from fedlib.core.shards import Shard
from fedlib.core.task import Task
from fedlib.core.tree import Tree, View
from fedlib.measures.selection import best_val, last, select
from fedlib.methods.base.fedavg import FedAvg
from fedlib.study.compare import Comparison
from fedlib.study.experiment import Study, study

# somebody's own arrays
x, y = np.zeros((6, 4), dtype=np.float32), np.array([0, 1, 0, 1, 0, 1])
task = fedlib.Task.from_arrays(x, y, ["a", "a", "a", "b", "b", "b"])
assert_type(task, Task)
people = DataFrame({"age": [20, 30], "ill": ["no", "yes"], "clinic": ["a", "b"]})
assert_type(fedlib.Task.from_frame(people, label="ill", client="clinic"), Task)
assert_type(fedlib.Task.from_dataset(list(zip(x, y)), client=y), Task)

# one run, and what comes out of it
assert_type(method := fedlib.make("FedAvg", task, lr=0.1), Method)
record = fedlib.run(method, rounds=3, cohort=lambda t: [0, 1], folder="runs/mine")
assert_type(record, Record)
assert_type(record["pre", "global", "test"], np.ndarray)
assert_type(record.curve(fedlib.metrics.gini), np.ndarray)
assert_type(Record.load("runs/mine"), Record)
assert_type(record.summary(), dict[str, float])
assert_type(record.predict(x, client="a"), Tensor)
fedlib.run(method, rounds=3, init=record.model(), on_round=lambda t, r: print(t))
assert_type(select(record, fedlib.metrics.worst, last), float)

# several, side by side
two = fedlib.compare(["FedAvg", FedAvg(task, lr=0.5)], task, rounds=3, seeds=[0, 1])
found = fedlib.compare([("FedProx", {"mu": 0.1})], task, rounds=3, rule=best_val)
assert_type(found, Comparison)
assert_type(found.violin(), Axes)
assert_type(found.paired(against="FedProx"), DataFrame)
assert_type(found.report("report.html"), Path)
assert_type(fedlib.cite("FedAvg", "FedProx"), str)
assert_type(fedlib.METHODS["FedAvg"](task), Method)
assert_type(study("fedga", "synthetic", tier="tiny"), Study)


# a method of one's own
class Mine(FedAvg):
    def views(self, down: Tree, mine: Tree, shard: Shard) -> dict[str, View]:
        return super().views(down, mine, shard)


# what a caller gets wrong, and is told: each line must be an error
fedlib.run(task)  # type: ignore[arg-type]
fedlib.run(method, rounds="3")  # type: ignore[arg-type]
fedlib.compare("FedAvg", task, rounds=3, rule="last")  # type: ignore[arg-type]
_ = fedlib.nothing  # type: ignore[attr-defined]
