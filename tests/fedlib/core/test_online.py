"""Who is online: sizes and known stragglers."""

import pytest
import torch
from toys_core import toy

from fedlib.core import online
from fedlib.core.clients import cohort_of
from fedlib.core.engine import run
from fedlib.methods import METHODS


@pytest.mark.parametrize(
    "P, M", [(0.2, 4), (0.4, 8), (0.6, 12), (1, 20), (1.0, 20), (0.01, 1), (0.59, 11)]
)
def test_a_ratio_is_a_whole_number_of_clients(P, M):
    assert online.size(20, P) == M


@pytest.mark.parametrize("P", [0, -0.2, 1.2, "all", None, float("nan")])
def test_a_ratio_out_of_range_is_refused(P):
    with pytest.raises(
        ValueError, match="online = .*: give the share of the 20 clients"
    ):
        online.size(20, P)


def test_stragglers_come_every_fifth_round():
    who = online.stragglers(20, 0.5, 5)
    assert [len(who(t)) for t in range(10)] == [10, 10, 10, 10, 20] * 2
    assert who(0).tolist() == list(range(10))
    with pytest.raises(ValueError, match="portion from 0 to below 1"):
        online.stragglers(20, 1.0)
    with pytest.raises(ValueError, match="every >= 1"):
        online.stragglers(20, 0.5, 0)


def test_stragglers_exchange_roles():
    """Whoever was late is always there, and the other way round; if their numbers
    differ, as many are late.
    """
    late, early = (online.stragglers(20, 0.5, 5, exchanged=e) for e in (False, True))
    for t in range(10):
        a, b = set(late(t).tolist()), set(early(t).tolist())
        assert a | b == set(range(20)) and len(a) == len(b)
        assert a & b == (a if t % 5 == 4 else set())
    assert online.stragglers(7, 0.3, 5, exchanged=True)(0).tolist() == [2, 3, 4, 5, 6]
    assert online.stragglers(7, 0.3, 5)(0).tolist() == [0, 1, 2, 3, 4]
    assert online.stragglers(7, 0, 5, exchanged=True)(0).tolist() == list(range(7))


def test_all_methods_meet_the_same_cohorts():
    task = toy()
    drawn = [
        [cohort_of(METHODS[m](task), task, 3, t, 2).tolist() for t in range(6)]
        for m in ("FedAS", "FedPer", "FedALA")
    ]
    assert drawn[0] == drawn[1] == drawn[2] and len({tuple(c) for c in drawn[0]}) > 1


def test_known_stragglers_are_recorded():
    rec = run(METHODS["FedAS"](toy()), rounds=4, cohort=online.stragglers(6, 0.5, 2))
    assert (
        rec.logs["cohort"].tolist() == [[0, 1, 2, -1, -1, -1], [0, 1, 2, 3, 4, 5]] * 2
    )
    assert torch.as_tensor(rec.logs["trace"]).isfinite().sum(1).tolist() == [3, 6, 3, 6]
