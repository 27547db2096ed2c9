"""`dvc exp run -S fedga.alpha=2` writes params.yaml anew, by DVC's own writer: the file
must still be read afterwards, and hold the new value in place of the old one.
"""

import shutil

import pytest
from dvc.utils.hydra import apply_overrides
from where import ROOT

from fedlib.study import parameters
from fedlib.study.reader import read

PARAMS = read(ROOT / "params.yaml")


def leaves(tree, at=""):
    """{dotted name: value} of a tree of dictionaries."""
    if not isinstance(tree, dict):
        return {at: tree}
    parts = (leaves(v, f"{at}.{k}" if at else k) for k, v in tree.items())
    return {k: v for part in parts for k, v in part.items()}


def another(value):
    """A value of the same kind: for numbers a small one, which DVC writes as 1e-05."""
    if isinstance(value, list):
        return value[::-1]
    return 0.00001 if isinstance(value, float | int) else value


def overridden(folder, values):
    """What is read of a copy of params.yaml after `-S name=value` for each of these."""
    path = folder / "params.yaml"
    shutil.copy(ROOT / "params.yaml", path)
    words = [f"{k}={v:f}" if isinstance(v, float) else f"{k}={v}" for k, v in values]
    apply_overrides(path, [w.replace("'", "").replace(" ", "") for w in words])
    return path


@pytest.mark.parametrize("paper", [k for k, v in PARAMS.items() if isinstance(v, dict)])
def test_every_knob_can_be_set(paper, tmp_path):
    old = leaves(PARAMS)
    new = {k: another(v) for k, v in old.items() if k.startswith(f"{paper}.")}
    settable = {k: v for k, v in new.items() if " " not in k}  # DVC's names have none
    got = leaves(read(overridden(tmp_path, settable.items())))
    assert got == old | settable
    assert all(type(got[k]) is type(v) for k, v in settable.items())


def test_one_knob_changes_the_runs_that_read_it(tmp_path):
    (tmp_path / "papers").symlink_to(ROOT / "papers")
    path = overridden(tmp_path, [("fedga.alpha", 2), ("fft-gp.mu", 0.00001)])
    now, before = parameters.load(path), parameters.load(ROOT / "params.yaml")
    assert now["fedga"]["alpha"] == 2 and now["fft-gp"]["mu"] == 1e-05
    for paper in ("fedas", "plgu", "equfl"):
        assert now[paper] == before[paper]
    assert now["fedga"]["studies"] != before["fedga"]["studies"]
    assert now["fft-gp"]["studies"] != before["fft-gp"]["studies"]
