"""The interactive pieces of the book print the library's numbers."""

import numpy as np
import pytest
from play import behaves, browser, piece  # noqa: F401

from fedlib.measures import metrics

START = [0.4, 0.25, 0.5, 0.15, 0.45, 0.3, 0.4, 0.35]


@pytest.mark.parametrize("name", ["lorenz"])
def test_a_piece_behaves(piece, name):  # noqa: F811
    behaves(piece, name)


def measures(a):
    """The table of the piece lorenz, by fedlib."""
    return {
        "mean": f"{metrics.mean_acc(a):.3f}",
        "standard deviation": f"{metrics.std_acc(a):.3f}",
        "worst 10 %": f"{metrics.worst(a):.3f}",
        "Gini": f"{metrics.gini(a):.3f}",
        "Jain": f"{metrics.jain(a):.3f}",
    }


def test_lorenz_by_keyboard_and_mouse(piece):  # noqa: F811
    lorenz = piece("lorenz")
    read = lambda: {k: v for k, (v,) in lorenz.rows().items()}  # noqa: E731
    assert read() == measures(START)
    lorenz.keys("accuracy of client 1", "ArrowUp", times=7)
    lorenz.keys("accuracy of client 4", "PageDown", "End", "ArrowDown")
    a = np.array([0.47, *START[1:]])
    a[3] = 0.99
    assert read() == measures(a)
    lorenz.drag("accuracy of client 2", 0, -60)
    a[1] = lorenz.value("accuracy of client 2")
    assert a[1] > 0.4 and read() == measures(a)
    lorenz.drag("accuracy of client 3", 0, 900)  # below the axis: 0
    a[2] = 0
    assert lorenz.value("accuracy of client 3") == 0 and read() == measures(a)
    assert f"Gini {metrics.gini(a):.3f}" in lorenz.said()
