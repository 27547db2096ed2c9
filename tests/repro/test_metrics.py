"""Every metric has a margin with its reason, and ends where its numbers can end."""

import math

import pandas as pd
import pytest
from where import ROOT

from repro.metrics import KINDS, METRICS, metric


@pytest.mark.parametrize("name", METRICS)
def test_every_metric_has_a_margin_with_its_reason(name):
    m = METRICS[name]
    assert 0 <= m.margin < math.inf and m.why_margin
    assert m.bounds[0] < m.bounds[1]
    assert (m.margin == 0) == (m.kind in ("setting", "exact"))
    assert m.what and m.better in ("high", "low", "")


def test_no_stored_number_is_out_of_bounds():
    ours = pd.read_csv(ROOT / "results" / "ours.csv")
    for name, values in ours.groupby("metric").value:
        low, high = METRICS[name].bounds
        assert values.between(low - 1e-9, high + 1e-9).all(), name


def test_every_kind_is_some_metrics():
    assert {m.kind for m in METRICS.values()} == set(KINDS)


def test_margins_are_in_the_metrics_unit():
    assert METRICS["mean_acc"].margin_at(80) == 1
    assert METRICS["seconds"].margin_at(80) == 4
    assert METRICS["accuracy"].margin_at(0.8) == METRICS["EO"].margin_at(0.8) == 0.01


@pytest.mark.parametrize(
    "said, word",
    [
        ({"unit": "furlongs"}, "kind is ''"),
        ({"kind": "acuracy"}, "kind is 'acuracy'"),
        ({"unit": "%", "margin": 2}, "needs its why_margin"),
        ({"unit": "%", "margin": -1, "why_margin": "so"}, "margin is -1"),
    ],
)
def test_what_a_metric_may_not_say(said, word):
    with pytest.raises(ValueError, match=word):
        metric(what="x", **said)


def test_a_metric_may_have_a_margin_of_its_own():
    m = metric("high", "%", "a shaky one", margin=3, why_margin="ten rows a client")
    assert (m.margin, m.why_margin, m.bounds) == (3, "ten rows a client", (0, 100))
