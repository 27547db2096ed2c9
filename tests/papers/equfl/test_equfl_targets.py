"""Rows of EquFL's tables: which run is judged by which bias, and against what."""

import numpy as np
import pandas as pd
import pytest

from repro import papers
from repro.ledger import ResultError

targets = papers.module("equfl", "targets")
COLUMNS = ["method", "setting", "seed", "EO", "DP", "CAL", "CON"]
COLUMNS += ["accuracy", "positive_rate"]


def scores():
    """Two seeds, biases that can be counted on fingers."""
    own = [
        ("FedAvg", "", 0, 0.2, 0.4, 0.1, 0.0, 0.80, 0.3),
        ("FedAvg", "", 1, 0.4, 0.4, 0.1, 0.0, 0.90, 0.3),
        ("Gaussian-update", "", 0, 0.3, 0.4, 0.1, 0.0, 0.50, 0.03),
        ("Gaussian-update", "", 1, 0.3, 0.4, 0.1, 0.0, 0.50, 0.3),
        ("EquFL", "target=EO", 0, 0.1, 0.3, 0.1, 0.0, 0.79, 0.3),
        ("EquFL", "target=EO", 1, 0.2, 0.3, 0.1, 0.0, 0.90, 0.3),
        ("EquFL", "target=DP;source=real", 0, 0.1, 0.1, 0.1, 0.0, 0.79, 0.3),
        ("EquFL", "target=Sum", 0, 0.1, 0.1, 0.1, 0.0, 0.79, 0.3),
    ]
    return pd.DataFrame(own, columns=COLUMNS).assign(dataset="toy")


def test_a_row_says_what_is_changed():
    given = {
        ("EquFL", "target=EO;labels=each"): "EquFL, relabelled each round",
        ("EquFL", "paths=1-0;target=EO;source=start"): (
            "EquFL, paths 1-0, unmatched rows"
        ),
        ("EquFL", "target=Multi"): "EquFL-Multi",
        ("Regular", "target=DP;mu=0.1"): "Regular, mu 0.1",
        ("Uniform-update", ""): "Uniform-update",
    }
    table = pd.DataFrame([*given], columns=["method", "setting"])
    assert list(targets.rows(table).row) == list(given.values())


def test_a_run_is_judged_by_its_aim_or_by_all():
    s = targets.rows(scores())
    judged = targets.aims(pd.concat([s, s.assign(EO=s.EO + 0.2)]))  # two evaluations
    by = judged.groupby("row").metric.agg(lambda v: " ".join(dict.fromkeys(v)))
    assert by["EquFL"] == "EO" and by["EquFL, real rows"] == "DP"
    assert by["FedAvg"] == by["EquFL-Sum"] == "EO DP CAL CON"
    mine = judged[judged.row == "EquFL"].sort_values("seed")
    assert np.allclose(mine.bias, [0.2, 0.3]) and np.allclose(
        mine.accuracy, [0.79, 0.9]
    )


def test_a_gain_is_a_share_of_the_mean_bias_of_the_same_seeds():
    compared = targets.against(targets.aims(targets.rows(scores())))
    of = compared.set_index(["row", "metric", "seed"]).sort_index()
    assert np.allclose(of.gain["EquFL", "EO"], [100 / 3, 200 / 3])
    assert np.allclose(of.points["EquFL", "EO"], [-1, 0])
    assert of.gain["FedAvg", "CON"].isna().all()  # no bias that could be lowered
    assert list(of.constant["Gaussian-update", "DP"]) == [True, False]
    assert not of.constant["FedAvg"].any()


def test_the_mean_of_the_gains_is_the_gain_of_the_means():
    means = targets.summary(targets.against(targets.aims(targets.rows(scores()))))
    eo = means.sort_index().loc["toy", "EO"]
    drop = 1 - eo.bias["EquFL"] / eo.bias["FedAvg"]
    assert np.isclose(eo.gain["EquFL"], 100 * drop)
    assert eo.low["EquFL"] < eo.gain["EquFL"] < eo.high["EquFL"]
    words = targets.told(means.sort_index())
    nothing, words = words.loc["toy", "CON"], words.loc["toy", "EO"]
    assert words[""]["Gaussian-update"] == "constant in 1 of 2"
    assert words["gain, %"]["FedAvg"] == "0" and words["ours"]["EquFL"] == "0.150"
    assert nothing["gain, %"]["FedAvg"] == ""


def test_an_unknown_reference_is_refused():
    judged = targets.aims(targets.rows(scores()))
    with pytest.raises(ResultError, match="'Median'; there are FedAvg, Gaussian"):
        targets.against(judged, "Median")
