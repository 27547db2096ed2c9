"""What the study `flatness` measures: on a loss whose answers are known,
and on a tiny run.
"""

import numpy as np
import pytest
import torch

from fedlib.study import compute, flatness, studies

TINY = dict(clients=3, rows=60, points=5, coarse=3)


def test_numbers_of_a_parabola():
    w = {"w": torch.tensor([[2.0]], dtype=torch.float64)}
    got = flatness.numbers(lambda w: 3 * w["w"].square().sum(), w)
    assert got["train_loss"] == 12 and got["weight_norm"] == 2 and got["converged"] == 1
    assert got["lambda_max"] == pytest.approx(6)
    # uphill is away from 0
    assert got["rise_0.5"] == pytest.approx(3 * (2.5**2 - 2**2), rel=1e-6)
    assert got["rise_0.05"] < got["rise_0.1"] < got["rise_0.5"]
    assert set(flatness.METRICS) <= set(got)


def test_places_are_worst_middle_and_best():
    assert flatness.places(np.array([0.5, 0.9, 0.1, 0.7, 0.5])) == {
        "worst": 2,
        "median": 4,
        "best": 1,
    }
    assert flatness.places(np.array([0.3, 0.2])) == {"worst": 1, "median": 1, "best": 0}


def test_some_clients_are_spread_and_no_client_twice():
    assert flatness.some(40, 3) == [0, 20, 39]
    assert flatness.some(3, 8) == [0, 1, 2]


def test_a_client_that_never_trained_is_served_by_the_server():
    state = {
        "server": {"w": {"a": torch.zeros(2)}},
        "clients": {"w": {"a": torch.ones(2, 2)}, "seen": torch.tensor([True, False])},
    }
    assert flatness.own("PLGU-LF", state, 0)["a"].tolist() == [1, 1]
    assert flatness.own("PLGU-LF", state, 1)["a"].tolist() == [0, 0]
    ditto = state | {"clients": {"v": {"a": torch.ones(2, 2)}}}
    assert flatness.own("Ditto", ditto, 1)["a"].tolist() == [1, 1]


@pytest.fixture(scope="module")
def cells():
    some = {"tasks": ["digits"], "methods": {"FedAvg": {}, "PLGU-LF": {}}}
    return studies.cells("plgu", "flatness", tier="tiny", **some)[0]


@pytest.fixture(scope="module")
def found(cells):
    return flatness.measure_all(cells, workers=1, **TINY)


def test_views_and_surfaces_of_a_run(found):
    fedavg, lf = found
    assert set(fedavg["sharpness"]) == {flatness.GLOBAL} and set(
        fedavg["surfaces"]
    ) == {(flatness.GLOBAL, "")}
    assert set(lf["sharpness"]) == {flatness.GLOBAL, flatness.ALONE, flatness.OWN}
    assert lf["sharpness"][flatness.ALONE]["weight_norm"] == pytest.approx(
        lf["sharpness"][flatness.GLOBAL]["weight_norm"]
    )
    assert (
        lf["sharpness"][flatness.OWN]["weight_norm"]
        != lf["sharpness"][flatness.GLOBAL]["weight_norm"]
    )
    shapes = {k: z.shape for k, z in lf["surfaces"].items()}
    for view in (flatness.ALONE, flatness.OWN):
        assert shapes.pop((view, "mean")) == (3, 3)
        assert all(shapes.pop((view, p)) == (5, 5) for p in flatness.PLACES)
    assert shapes == {(flatness.GLOBAL, ""): (5, 5)}


def test_no_surface_for_a_seed_that_is_not_drawn(cells, found):
    got = flatness.measure(cells[0], **TINY, draw=())
    assert got["surfaces"] == {} and got["sharpness"] == found[0]["sharpness"]


def test_over_keeps_the_order_in_several_processes():
    assert compute.map_cells(str.upper, ["b", "a", "c"], workers=2) == ["B", "A", "C"]
