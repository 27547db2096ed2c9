"""What the labs share."""

import numpy as np


def of_lab(name):
    """Where the figures of a lab come from, for `plots.save`."""
    place = {"stage": f"labs@{name}", "folder": f"results/figures/labs-{name}"}
    return place | {"notebook": f"notebooks/labs/{name}.ipynb"}


def check(what, yours, found, within=None):
    """Print what a student wrote in place of `...` beside what a run gives.

    within: how far apart both may be; without it nobody is right or wrong"""
    if yours is ...:
        return print(f"{what}: fill in your line above, in place of `...`.")
    theirs = np.atleast_1d(found)
    try:
        mine = np.asarray(yours, float).reshape(theirs.shape)
    except (TypeError, ValueError):
        return print(f"{what}: give {theirs.size} number(s), not {yours!r}.")
    few = lambda v: ", ".join(f"{x:.4g}" for x in v.flat[:5]) + ", ..." * (v.size > 5)
    off = float(np.abs(mine - theirs).max())
    right = "" if within is None else " Right." if off <= within else " Not yet."
    print(f"{what}: you {few(mine)}, the run {few(theirs)}.{right}")
