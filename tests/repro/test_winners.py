"""Which values win a grid, and the study that they make."""

import json
from types import SimpleNamespace

import pandas as pd
import pytest
import yaml

from fedlib.study.studies import settings
from repro import papers
from repro import winners as module
from repro.winners import by_task, main, winners


def search(entry, *found):
    """A Study that searches q-FedAvg's values. found: (data set, setting,
    hyper-parameters, accuracy of each pilot seed) of its cells.
    """
    cells, rows = [], []
    for dataset, setting, kw, levels in found:
        what = {"method": "q-FedAvg", "dataset": dataset, "setting": setting}
        cells.append(SimpleNamespace(**what, kwargs=json.dumps({"epochs": 2} | kw)))
        rows += [
            {**what, "seed": 1000 + s, "rule": rule, "value": x * sign}
            for s, x in enumerate(levels)
            for rule, sign in (("last10_mean", 1), ("last", -1))
        ]
    table = pd.DataFrame(rows)
    return SimpleNamespace(
        cells=cells,
        spec={"methods": {"q-FedAvg": entry}},
        validation=lambda rule: table[table.rule == rule],
    )


def both_tasks():
    q = lambda v: {"lr": 0.1, "q": v, "W": 10}
    return search(
        {"q": [0.1, 1], "W": 10},
        ("a", "q=0.1", q(0.1), [70, 72]),
        ("a", "q=1", q(1), [60, 90]),
        ("b", "q=0.1", q(0.1), [5]),
        ("b", "q=1", q(1), [5]),
    )


def test_the_mean_over_seeds_wins_on_each_task_and_the_first_of_equals():
    won = winners(both_tasks())
    a, b = {"q": 1, "W": 10}, {"q": 0.1, "W": 10}
    assert won == {"q-FedAvg": {"a": {"": a}, "b": {"": b}}}
    assert by_task(won) == {"q-FedAvg": {"q": {"a": 1, "b": 0.1}, "W": 10}}


def test_the_rule_says_which_evaluations_count():
    assert winners(both_tasks(), rule="last")["q-FedAvg"]["a"][""]["q"] == 0.1


def two_studies():
    """First lr at q = 0.1 for every guest; then q at the lr that won there."""
    lr = {"guest=0": 0.2, "guest=45": 0.4}
    values = lambda lr, q: {"lr": lr, "q": q}
    rates = search(
        {"lr": [0.2, 0.4], "q": 0.1},
        ("turned", "guest=0;lr=0.2", values(0.2, 0.1), [80, 80]),
        ("turned", "guest=0;lr=0.4", values(0.4, 0.1), [70, 70]),
        ("turned", "guest=45;lr=0.2", values(0.2, 0.1), [60, 70]),
        ("turned", "guest=45;lr=0.4", values(0.4, 0.1), [75, 71]),
        ("photos", "guest=0;lr=0.2", values(0.2, 0.1), [50]),
        ("photos", "guest=0;lr=0.4", values(0.4, 0.1), [55]),
    )
    own = search(
        {"lr": {"turned": lr, "photos": 0.4}, "q": [0.01, 1]},
        ("turned", "guest=0;q=0.01", values(0.2, 0.01), [79, 79]),
        ("turned", "guest=0;q=1", values(0.2, 1), [10, 81]),
        ("turned", "guest=45;q=0.01", values(0.4, 0.01), [75, 72]),
        ("turned", "guest=45;q=1", values(0.4, 1), [74, 72]),
        ("photos", "guest=0;q=0.01", values(0.4, 0.01), [54]),
        ("photos", "guest=0;q=1", values(0.4, 1), [54]),
    )
    return rates, own


def test_two_studies_search_one_grid_and_every_point_has_a_winner():
    won = winners(*two_studies())
    assert won == {
        "q-FedAvg": {
            "turned": {
                "guest=0": {"lr": 0.2, "q": 0.1},  # the first study's
                "guest=45": {"lr": 0.4, "q": 0.01},  # the second's
            },
            "photos": {"guest=0": {"lr": 0.4, "q": 0.1}},
        }
    }
    assert by_task(won) == {
        "q-FedAvg": {
            "lr": {"turned": {"guest=0": 0.2, "guest=45": 0.4}, "photos": 0.4},
            "q": {"turned": {"guest=0": 0.1, "guest=45": 0.01}, "photos": 0.1},
        }
    }


def test_of_one_study_the_other_is_not_asked():
    rates, _ = two_studies()
    won = winners(rates)["q-FedAvg"]["turned"]
    assert won["guest=45"] == {"lr": 0.4, "q": 0.1}


def test_what_is_printed_can_stand_in_a_file_of_studies(monkeypatch, capsys):
    """As YAML it is the same, and values by point read as such."""
    runs = dict(zip(("rates", "own"), two_studies(), strict=True))
    monkeypatch.setattr(module, "study", lambda paper, name: runs[name])
    monkeypatch.setattr(papers, "about", lambda paper: {"rule": "last10_mean"})
    main(["fft-gp", "rates", "own"])
    printed = yaml.safe_load(capsys.readouterr().out)
    assert printed == by_task(winners(*two_studies()))
    here = {"task": "turned", "tasks": ("turned", "photos"), "point": "guest=45"}
    got = settings(printed["q-FedAvg"], {}, "small", **here)
    assert got == [("", {"lr": 0.4, "q": 0.01})]
    with pytest.raises(SystemExit):
        main(["fft-gp"])  # no study
