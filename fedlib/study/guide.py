"""Which method to try first: three runs place data beside tasks searched by all.

guide.csv, by papers/search/table.py, has a row per task: why its clients differ; signs;
how many rows could be best for the worst tenth (open), the six highest and the three
(first); points that the best of the three was behind the best of all (three), and so
what the guide names first of a task that it does not know (error).
"""

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

THREE = "Local", "FedAvg", "FedAvg+FT"
SIGNS = ["local", "tuned"]
UNSURE = 1.5  # times the nearest one's distance: a second task is named, too
TASKS = Path(__file__).with_name("guide.csv")
TOLD = """\
Which method next? Training alone gains {:+.1f} points over FedAvg, fine-tuning, \
which may be declined, {:+.1f} over the better of both (mean accuracy on \
validation rows; search, as the tasks did). Of {} tasks the nearest to yours:"""
NEAR = """\
{task} ({away:.1f} points away: {why}). {open} of all searched rows could be best for \
the worst tenth there, not two points below FedAvg+FT; the highest, and those of your \
three, in this order: {first}. The best of the three was {three:.1f} points behind."""
SURE = """\
On a task that it did not know this guide's first method was {0:.1f} points behind \
the best, at most {2:.1f}; the best of the three {1:.1f}, at most {3:.1f}."""


def signs(mean: Mapping[str, float]) -> list[float]:
    """Of mean accuracies {method: %}: Local less FedAvg, and FedAvg, with fine-tuning
    where that helps, less the better of both, percentage points."""
    local, fedavg, tuned = (mean[k] for k in THREE)
    return [local - fedavg, max(tuned, fedavg) - max(local, fedavg)]


def nearest(at: list[float], tasks: pd.DataFrame) -> pd.DataFrame:
    """The row of the nearest task, and perhaps of the next; `away`: points to it."""
    away = ((tasks[SIGNS] - at) ** 2).sum(axis=1) ** 0.5
    near = tasks.assign(away=away).sort_values("away")[:2]
    return near[near.away <= UNSURE * away.min()]


def advice(mean: Mapping[str, float]) -> str:
    """What to try, in words, from mean validation accuracies {method: %} of the three;
    "" where one of them is missing, or below 0 for want of validation rows."""
    if not all(mean.get(k, -1) >= 0 for k in THREE):
        return ""
    tasks, at = pd.read_csv(TASKS), signs(mean)
    lines = [NEAR.format(**task) for task in nearest(at, tasks).to_dict("records")]
    behind = tasks[["error", "three"]]
    sure = SURE.format(*behind.mean(), *behind.max())
    return "\n".join([TOLD.format(*at, len(tasks)), *lines, sure])
