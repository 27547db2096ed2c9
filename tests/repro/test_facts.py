"""What the data cards say of clients."""

from fedlib.study import studies
from fedlib.study.compute import task_of
from repro import facts


def test_what_clients_hold_is_counted_on_the_tasks_of_the_gates(monkeypatch):
    cells = {c.dataset: c for c in studies.cells("plgu", "gate", tier="tiny")[0]}
    cell, task = cells["digits"], None
    monkeypatch.setattr(studies, "load", lambda path: {"tier": "tiny", "plgu": {}})
    monkeypatch.setattr(studies, "cells", lambda *_: ([cell, cell], None, None))
    (row,) = facts.holdings().to_dict("records")
    task = task_of(cell.task, cell.seed, cell.dataset)
    n = sorted(map(len, task.train))
    assert (row["paper"], row["clients"]) == ("plgu", task.C)
    assert (row["training rows: fewest"], row["most"]) == (n[0], n[-1])
    assert n[0] <= row["median"] <= n[-1] and row["classes, median"] == "3 of 10"
    share = [
        max((task.y[r] == k).float().mean() for k in range(10)) for r in task.train
    ]
    assert abs(row["largest class, %"] / 100 - sorted(share)[task.C // 2]) < 0.05
