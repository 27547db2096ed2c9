"""A share of tests/torture: calls of run and compare, and methods that are made."""

import pytest
from torture import calls, methods


@pytest.mark.parametrize("script, n", [(calls, 200), (methods, 2000)])
def test_no_other_exception_and_no_silent_nonsense(script, n):
    (count,) = script.measure(n, seed=1)
    assert count.bad == 0, count.examples
    assert count.n == n and count.accepted > 0 and count.clean > n // 2


def test_what_no_hyper_parameter_can_be_is_noticed():
    """The oracle of `silent`."""
    built = methods.make("FedSAM", None)
    for name, value in (
        ("lr", float("nan")),
        ("poisson", 1),
        ("lr", True),
        ("lr", [1]),
    ):
        assert not methods.sensible(built, name, value)
    for name, value in (("lr", 1), ("lr", 0.5), ("poisson", True), ("step", print)):
        assert methods.sensible(built, name, value)
