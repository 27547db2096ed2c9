"""Deviations: effects as measured, and files that are refused."""

import shutil

import pandas as pd
import pytest
import yaml
from toys_claims import PLACE, table
from where import ROOT

from fedlib.measures.statistics import paired
from repro import claims
from repro.ledger import ResultError


def seeds(values, metric="best_gini", **more):
    """Runs of FedGA's main study, without the luck that seeds share."""
    values = {m: [x] if isinstance(x, float) else x for m, x in values.items()}
    return table(values, metric, **more)


# ------------------------------------------------------------------ deviations


@pytest.fixture
def folder(tmp_path):
    """A folder of papers with FedGA alone."""
    (tmp_path / "papers/fedga").mkdir(parents=True)
    shutil.copy(ROOT / "papers/fedga/paper.yaml", tmp_path / "papers/fedga")
    return tmp_path / "papers"


ENTRIES = claims.read_deviations()
ENTRY = {
    "id": "FedGA-1",
    "title": "t",
    "where": "w",
    "paper": "p",
    "code": "c",
    "ours": "o",
    "why": "y",
    "mark": "certain",
}
EFFECT = {
    "dataset": PLACE,
    "metrics": ["best_gini"],
    "ours": {"method": "FedGA"},
    "other": {"method": "FedGA", "rule": "last"},
}


def test_effects_are_ours_minus_other():
    d = [
        ENTRY | {"effect": [EFFECT]},
        ENTRY | {"id": "FedGA-2", "unmeasured": "no data", "methods": ["AFL"]},
    ]
    s = pd.concat(
        [
            seeds({"FedGA": [0.1, 0.2, 0.4]}),
            seeds({"FedGA": [0.2, 0.2, 0.5]}, rule="last"),
        ]
    )
    e = claims.effects(d, s)
    i = paired([0.1, 0.2, 0.4], [0.2, 0.2, 0.5])
    assert tuple(
        e.loc[0, ["effect", "effect_lo", "effect_hi", "n_seeds"]]
    ) == pytest.approx((i.mean, i.lo, i.hi, 3))
    t = claims.deviations(d, e).set_index("key")
    assert list(t.status) == ["measured", "not measured"] and list(t.methods) == [
        "FedGA",
        "AFL",
    ]
    assert (
        t.loc["fedga-1", "effect"] == pytest.approx(i.mean)
        and t.loc["fedga-2", "evidence"] == "no data"
    )
    assert (
        "0.2333 against 0.3000" in t.loc["fedga-1", "evidence"]
        and t.loc["fedga-1", "data"] == "synthetic"
    )


def test_effects_without_runs_and_without_end():
    d = [
        ENTRY
        | {
            "effect": [
                EFFECT | {"metrics": ["trigger_round"], "other": {"method": "FedGini"}}
            ]
        }
    ]
    empty = claims.effects(d, seeds({"FedAvg": 0.1}))
    assert (
        set(empty.evidence) == {"not run"}
        and claims.deviations(d, empty).status.item() == "not run"
    )
    s = seeds(
        {"FedGA": [11, 14], "FedGini": [80, float("inf")]}, "trigger_round", rule="run"
    )
    t = claims.deviations(d, claims.effects(d, s))
    assert t.status.item() == "measured" and pd.isna(t.effect.item())
    assert "11 to 14 against 80 to 80, never in 1 of 2 seeds" in t.evidence.item()


@pytest.mark.parametrize(
    "change, word",
    [
        ({"effekt": 1}, "unknown field 'effekt'; did you mean 'effect'"),
        ({"why": ""}, "why is missing"),
        ({"id": "FedGA-3"}, "here FedGA-1 is due"),
        ({"id": "FedAS-1"}, "deviations of fedga stand here"),
        ({"mark": "sure"}, "mark is 'sure'"),
        ({"unmeasured": None}, "either an effect"),
        ({"effect": [EFFECT]}, "either an effect"),
        (
            {"unmeasured": None, "effect": [EFFECT | {"metrics": ["gini"]}]},
            "metric is 'gini'; did you mean",
        ),
        (
            {"unmeasured": None, "effect": [EFFECT | {"data": 1}]},
            "unknown field 'data' in an effect",
        ),
        (
            {"unmeasured": None, "effect": [{"dataset": PLACE}]},
            "an effect has no metrics",
        ),
        (
            {"unmeasured": None, "effect": [EFFECT | {"ours": {"methods": "FedGA"}}]},
            "did you mean 'method'",
        ),
        (
            {"unmeasured": None, "effect": [EFFECT | {"ours": {"rule": "last"}}]},
            "ours has no method",
        ),
    ],
)
def test_malformed_deviations_are_refused(folder, change, word):
    (folder / "fedga/deviations.yaml").write_text(
        yaml.safe_dump([ENTRY | {"unmeasured": "x"} | change])
    )
    with pytest.raises(ResultError, match=word):
        claims.read_deviations(folder)


def test_broken_yaml_is_named(folder):
    path = folder / "fedga/deviations.yaml"
    for text, word in (("- [", "no valid YAML"), ("a: 1", "give a list")):
        path.write_text(text)
        with pytest.raises(ResultError, match=word):
            claims.read_deviations(folder)
    path.unlink()
    with pytest.raises(ResultError, match="deviations.yaml is missing"):
        claims.read_deviations(folder)
