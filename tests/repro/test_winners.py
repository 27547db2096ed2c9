"""Which values win a grid, and the study that they make."""

import json
from types import SimpleNamespace

import pandas as pd

from repro.winners import by_task, winners


def grid(levels):
    """A Study that searches q on two tasks; levels: {(task, q): accuracy of each seed}."""
    cells = [
        SimpleNamespace(
            method="q-FedAvg",
            dataset=task,
            setting=f"q={q}",
            kwargs=json.dumps({"lr": 0.1, "q": q, "W": 10}),
        )
        for task, q in levels
    ]
    rows = [
        {
            "method": "q-FedAvg",
            "dataset": task,
            "setting": f"q={q}",
            "seed": 1000 + s,
            "rule": "last10_mean",
            "value": x,
        }
        for (task, q), each in levels.items()
        for s, x in enumerate(each)
    ]
    table = pd.DataFrame(rows)
    return SimpleNamespace(
        cells=cells,
        spec={"methods": {"q-FedAvg": {"q": [0.1, 1], "W": 10}}},
        validation=lambda rule: table[table.rule == rule],
    )


def test_the_mean_over_seeds_wins_on_each_task_and_the_first_of_equals():
    run = grid(
        {("a", 0.1): [70, 72], ("a", 1): [60, 90], ("b", 0.1): [5], ("b", 1): [5]}
    )
    won = winners(run)
    a, b = {"q": 1, "W": 10}, {"q": 0.1, "W": 10}
    assert won == {"q-FedAvg": {"a": {"": a}, "b": {"": b}}}
    assert by_task(won) == {"q-FedAvg": {"q": {"a": 1, "b": 0.1}, "W": 10}}
