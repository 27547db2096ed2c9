"""Losses between the models of a study: the ends of lines are the models' own losses."""

import pytest
import torch

from fedlib.measures import landscape
from fedlib.study import compute, flatness, paths, studies

SIZE = dict(rows=60, points=7, fine=5)


def parabola(w):
    return 3 * w["w"].square().sum()


def at(x):
    return {"w": torch.tensor([x], dtype=torch.float64)}


def test_a_line_holds_both_models():
    z = paths.towards(parabola, at(2.0), at(1.0), 7)
    # x = -1.5, -1, ..., 1.5: models 2 - x
    assert z.tolist() == [3 * (2 - x) ** 2 for x in (-1.5, -1, -0.5, 0, 0.5, 1, 1.5)]


def test_uphill_is_measured_in_the_length_of_the_step():
    z = paths.uphill(parabola, at(-2.0), 5)
    assert z.tolist() == pytest.approx(
        [3 * (2 + x) ** 2 for x in (-0.5, -0.25, 0, 0.25, 0.5)]
    )


@pytest.fixture(scope="module")
def group():
    some = {"tasks": ["digits"], "methods": {"FedAvg": {}, "PLGU-LF": {}}}
    (found,) = paths.groups(studies.cells("plgu", "flatness", tier="tiny", **some)[0])
    return found


@pytest.fixture(scope="module")
def found(group):
    return paths.measure_all([group], workers=1, **SIZE)[0]


def test_ends_of_the_lines_are_the_models_of_the_runs(group, found):
    (_, task, fedavg), (_, _, lf) = (compute.trained(c) for c in group)
    loss = paths.everybody(task, "test", SIZE["rows"])
    here, there = (float(loss(r.state["server"]["w"])) for r in (fedavg, lf))
    z = found["between"]["PLGU-LF", "test"]
    assert (z[3], z[5]) == pytest.approx((here, there), rel=1e-5)
    mine = flatness.own("PLGU-LF", lf.state, 4)
    loss = landscape.data_loss(task, task.train[4])
    z = found["own"]["PLGU-LF", "train"][4]
    assert z[5] == pytest.approx(float(loss(mine)), rel=1e-4, abs=1e-6)


def test_the_gradient_leads_up_and_eigenvectors_span_a_plane(found):
    z = found["uphill"]["PLGU-LF"]
    assert z[2] < z[3] < z[4]
    # FedAvg has no models of clients
    assert set(found["curved"]) == {
        ("FedAvg", ""),
        ("PLGU-LF", ""),
        ("PLGU-LF", "median"),
    }
    plane = found["curved"]["PLGU-LF", "median"]
    assert plane["values"][0] >= plane["values"][1] and plane["z"].shape == (5, 5)


def test_no_plane_for_a_seed_that_is_not_drawn(group):
    assert paths.measure(group, **SIZE, draw=())["curved"] == {}
