"""A share of tests/torture/arrays.py."""

from dataclasses import replace

import numpy as np
import pytest
from torture import arrays

from fedlib.core.task import Task


def test_data_are_refused_clearly_or_trained_on():
    (count,) = arrays.measure(60, seed=1)
    assert count.bad == 0, count.examples
    assert count.n == 60 and count.clean > 20 and count.accepted > 5


@pytest.mark.filterwarnings("ignore::fedlib.core.errors.DataWarning")
def test_a_task_with_other_data_is_noticed():
    x, y, c = (
        np.random.default_rng(0).normal(size=(90, 3)),
        np.arange(90) % 3,
        [0, 1, 2],
    )
    given = {"x": x, "y": y, "client_id": np.repeat(c, 30)}
    task = Task.from_arrays(**given)
    assert not arrays.unlike(task, given)
    assert "other numbers" in arrays.unlike(replace(task, x=task.x + 1), given)
    lost = {k: v[3:] for k, v in given.items()}
    assert "90 rows of 87" in arrays.unlike(task, lost)
    assert "clients" in arrays.unlike(task, given | {"client_id": np.arange(90) // 20})
