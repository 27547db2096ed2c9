"""Which method to try first: three cheap runs place data beside tasks on which every
method was searched.

guide.csv has a row per task, made by papers/search/table.py: why its clients differ;
`signs` of its three; the methods that could be best for the worst tenth, the highest
first; how many points the best of the three was behind the best of all, and so what
the guide names first where it does not know the task.
"""

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

THREE = "Local", "FedAvg", "FedAvg+FT"
SIGNS = ["local", "tuned"]
TASKS = Path(__file__).with_name("guide.csv")
TOLD = """\
Which method next? Training alone gains {local:+.1f} points over FedAvg, fine-tuning \
{tuned:+.1f} over the better of both (mean accuracy on validation rows). Of {n} tasks \
on which all methods were searched, the nearest is {task}: {why}. For the worst tenth \
of its clients any of these could be best; try them in this order: {first}. The best \
of your three runs was {three:.1f} points behind there. On a task that it did not know \
this guide's first method was {error:.1f} points behind the best, at most {most:.1f}."""


def signs(mean: Mapping[str, float]) -> list[float]:
    """Of mean accuracies {method: %}: Local less FedAvg, and FedAvg+FT less the better
    of both, percentage points."""
    local, fedavg, tuned = (mean[k] for k in THREE)
    return [local - fedavg, tuned - max(local, fedavg)]


def nearest(at: list[float], tasks: pd.DataFrame) -> pd.Series:
    """The row of the task whose signs are nearest."""
    return tasks.loc[((tasks[SIGNS] - at) ** 2).sum(axis=1).idxmin()]


def advice(mean: Mapping[str, float]) -> str:
    """What to try, in words, from mean validation accuracies {method: %} of the three;
    "" where one of them is missing, or below 0 for want of validation rows."""
    if not all(mean.get(k, -1) >= 0 for k in THREE):
        return ""
    tasks = pd.read_csv(TASKS)
    local, tuned = signs(mean)
    told = nearest([local, tuned], tasks).to_dict() | {"local": local, "tuned": tuned}
    error = {"error": tasks.error.mean(), "most": tasks.error.max()}
    return TOLD.format(n=len(tasks), **told | error)
