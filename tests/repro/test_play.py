"""The interactive pieces of the book print the library's numbers."""

import numpy as np
import pytest
import torch
from play import behaves, browser, piece, still  # noqa: F401
from toys import quadratic

from fedlib.core.engine import run
from fedlib.measures import metrics
from fedlib.methods import METHODS
from fedlib.methods.make import make

START = [0.4, 0.25, 0.5, 0.15, 0.45, 0.3, 0.4, 0.35]
LINE = [[0.0], [1.0], [3.0]]


@pytest.mark.parametrize("name", ["lorenz", "alpha", "driftline", "cohort", "trigger"])
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


@pytest.mark.parametrize("alpha", [4, 1, 7.5])
def test_alpha_gives_the_weights_of_fedga(piece, alpha):  # noqa: F811
    it = piece("alpha")
    if alpha != 4:
        it.set("α", alpha)
    rows = it.rows()
    p = METHODS["FedGA"](alpha=float(alpha)).fair(torch.tensor([1, 0.5, 0]).double())
    for i in range(3):
        assert rows[f"weight of client {i + 1}"][2] == f"{p[i]:.3f}"
    w = float(p @ torch.tensor(LINE).double()[:, 0])
    losses = [(w - b) ** 2 / 2 for (b,) in LINE]
    assert rows["new model"] == ["0.500", "1.333", f"{w:.3f}"]
    assert rows["largest loss"][2] == f"{max(losses):.3f}"
    assert rows["which is that of"][2] == f"client {1 + int(np.argmax(losses))}"


def test_drift_line_rests_where_fedavg_rests(piece):  # noqa: F811
    """A run of fedlib on the same two losses ends at the printed point."""
    it = piece("driftline")
    it.set("local steps T", 3)
    it.keys("pull μ (FedProx)", "ArrowRight", times=5)
    T, mu, eta, c, b = 3, 0.5, 0.25, np.array([1.0, 3.0]), np.array([0.0, 4.0])
    w = 1.0
    for _ in range(300):
        v = np.full(2, w)
        for _ in range(T):
            v = v - eta * (c * (v - b) + mu * (v - w))
        w = v.mean()
    assert it.numbers("FedProx rests at") == [round(w, 3)]
    assert it.numbers("minimum of the sum of losses") == [round(c @ b / c.sum(), 3)]
    for _ in range(4):
        it.press("Ten rounds")
    assert abs(it.numbers("average of both models")[0] - w) < 2e-3
    it.press("Reset")
    before = it.value("model sent w")
    it.drag("model sent w", 80, 0)
    assert it.value("model sent w") > before


def test_drift_line_steps_as_fedlib_does(piece):  # noqa: F811
    """With equal curvatures: a round of FedAvg and of FedProx by the library."""
    it = piece("driftline")
    it.set("Ben’s curvature c₂", 1)
    for name, how in (("FedAvg", {}), ("FedProx", {"mu": 1.0})):
        it.set("pull μ (FedProx)", how.get("mu", 0))
        m = make(name, quadratic([[0.0], [4.0]]), lr=0.25, epochs=2, **how)
        start = {"w": torch.tensor([1.0]).double()}
        end = run(m, rounds=1, init=start, every=1).state["server"]["w"]["w"]
        assert it.numbers("average of both models") == [round(float(end), 3)]


def test_cohorts_are_biased_whatever_the_step(piece):  # noqa: F811
    it = piece("cohort")
    assert it.rows()["Ada, Ben"] == ["1.2500"] and it.rows()["Ben, Cleo"] == ["4.2857"]
    assert it.numbers("long-run mean of the model") == [round(89 / 28, 4)]
    for eta in (0.5, 0.1):
        it.set("step size η", eta)
        for _ in range(20):
            it.press("100 rounds")
        (seen,) = it.numbers("mean of the rounds so far")
        (sd,) = it.numbers("its standard deviation")
        assert abs(seen - 89 / 28) < 6 * sd / 2000**0.5 * (2 / eta) ** 0.5
    it.choose("all three")
    it.press("100 rounds")
    it.press("100 rounds")
    assert it.numbers("model now") == [3.0]
    assert it.numbers("long-run mean of the model") == [3.0]


def fired(x, **how):
    """The first round in which fedlib's trigger passes."""
    m = METHODS["FedGA"](**how)
    state = {"past": torch.zeros(m.W + 1).double(), "on": torch.tensor(False)}
    for t, v in enumerate([*x, x[-1]]):
        state = m.watch(state, torch.tensor(float(v)).double(), t)
        if state["on"]:
            return str(t)
    return "–"


def test_trigger_fires_when_fedlib_fires(piece, tmp_path):  # noqa: F811
    start = still("trigger", tmp_path)[1].get("play")
    if start is None:
        pytest.skip("notebooks/teach/play.ipynb has not been run")
    it, x = piece("trigger"), list(start["x"])
    how = dict(W=start["W"], theta=start["theta"])
    assert it.rows()["fires in round"] == [fired(x, **how)]
    it.set("θ", 0.02)
    assert it.rows()["fires in round"] == [fired(x, W=start["W"], theta=0.02)]
    it.set("window W", 4)
    it.choose("two halves of one")
    how = dict(W=4, theta=0.02, trigger="half")
    assert it.rows()["fires in round"] == [fired(x, **how)]
    it.drag("Gini coefficient of round 3", 0, -50)
    x[3] = it.value("Gini coefficient of round 3")
    it.keys("Gini coefficient of round 6", "ArrowUp", times=9)
    x[6] = it.value("Gini coefficient of round 6")
    assert x != start["x"] and it.rows()["fires in round"] == [fired(x, **how)]
    it.choose("two, one round apart")
    it.set("θ", 0)
    assert it.rows()["fires in round"] == [fired(x, W=4, theta=0.0)]
