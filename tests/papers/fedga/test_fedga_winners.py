"""The study `tuned` runs the winners of the stored grid."""

import json

from where import ROOT

from fedlib.study import evidence, studies
from fedlib.study.experiment import study
from repro.winners import winners

PARAMS = ROOT / "params.yaml"


def test_the_tuned_values_are_the_winners_of_the_grid(tmp_path):
    grid = studies.cells("fedga", "grid", PARAMS, "small")[0]
    wanted = {c.id for c in grid}
    assert wanted == set(evidence.find(wanted, "fedga", "grid", ROOT / "evidence"))
    won = winners(study("fedga", "grid", "small", PARAMS, tmp_path))
    tuned = studies.cells("fedga", "tuned", PARAMS, "small")[0]
    assert {(c.method, c.dataset) for c in tuned} == {
        (method, dataset) for method in won for dataset in won[method]
    }
    for c in tuned:
        values, best = json.loads(c.kwargs), won[c.method][c.dataset][""]
        assert {k: values[k] for k in best} == best, (c.method, c.dataset)


def test_nothing_that_decides_is_a_pilot_seed():
    for name in ("grid", "gate"):
        cells = studies.cells("fedga", name, PARAMS, "small")[0]
        assert min(c.seed for c in cells) >= 1000
    cells = studies.cells("fedga", "tuned", PARAMS, "small")[0]
    main = studies.cells("fedga", "synthetic", PARAMS, "small")[0]
    assert {c.seed for c in cells} >= {c.seed for c in main}
    assert max(c.seed for c in cells) < 1000
