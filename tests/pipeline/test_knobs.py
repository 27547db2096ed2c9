"""`dvc exp run -S fedga.alpha=2` writes params.yaml anew, by DVC's own writer: the file
must still be read afterwards, and hold the new value in place of the old one.
"""

import shutil

from where import ROOT

from fedlib.study.studies import load, read


def leaves(tree, at=""):
    """{dotted name: value} of a tree of dictionaries."""
    if not isinstance(tree, dict):
        return {at: tree}
    parts = (leaves(v, f"{at}.{k}" if at else k) for k, v in tree.items())
    return {k: v for part in parts for k, v in part.items()}


def overridden(folder, values):
    """A copy of params.yaml after `-S name=value` for each of these."""
    from dvc.utils.hydra import apply_overrides

    path = folder / "params.yaml"
    shutil.copy(ROOT / "params.yaml", path)
    words = [f"{k}={v:f}" if isinstance(v, float) else f"{k}={v}" for k, v in values]
    apply_overrides(path, [w.replace("'", "").replace(" ", "") for w in words])
    return path


def test_every_knob_can_be_set_and_changes_the_runs_that_read_it(tmp_path):
    old, new = leaves(read(ROOT / "params.yaml")), {}
    for k, v in old.items():
        if "." in k and " " not in k:  # DVC's names have none; it writes 1e-05
            other = v[::-1] if isinstance(v, list) else v
            new[k] = 0.00001 if isinstance(v, float | int) else other
    got = leaves(read(overridden(tmp_path, new.items())))
    assert got == old | new and len(new) > 50
    assert all(type(got[k]) is type(v) for k, v in new.items())
    (tmp_path / "papers").symlink_to(ROOT / "papers")
    path = overridden(tmp_path, [("fedga.alpha", 2), ("fft-gp.mu", 0.00001)])
    now, before = load(path), load(ROOT / "params.yaml")
    for paper in ("fedas", "plgu", "equfl"):
        assert now[paper] == before[paper]
    for paper in ("fedga", "fft-gp"):
        assert now[paper]["studies"] != before[paper]["studies"]
