"""How the rows of results are called: their keys, the parts of their settings, and what
somebody may have meant by a name that is not known.
"""

import re

from fedlib.core.errors import nearest
from repro import papers

TIERS = ("tiny", "small", "paper", "exact")  # worst to best; exact: nothing was trained


class ResultError(ValueError):
    """A results file, or a row of one, that cannot be used."""


def slug(text):
    """Letters that are safe in an address: "FedMGDA+" -> "fedmgda-plus",
    "beta=0.1;P=1" -> "beta_0.1-p_1"."""
    text = text.lower().replace("+", "-plus-").replace("=", "_")
    return re.sub(r"[^a-z0-9_.]+", "-", text).strip("-")


def key(paper, artefact, dataset, method, metric, setting=""):
    """The name of a cell, the same for the paper's number and for ours.

    Of a setting only what stands before a colon is part of it; the setting "default"
    leaves no trace."""
    setting = "" if setting == "default" else setting.split(":")[0]
    parts = (paper, artefact, dataset, method, setting, metric)
    return "-".join(slug(s) for s in parts if s)


def axes(setting):
    """The parts of a setting that tell of the task, as the papers name them."""
    known = papers.union("axes", "views")
    return [s for s in pieces(setting) if s.split("=")[0] in known]


def pieces(setting):
    """The parts of a setting: "beta=0.1;P=1" -> ["beta=0.1", "P=1"]."""
    return [s for s in setting.split(";") if s]


def hint(value, known):
    """What somebody may have meant, for the end of an error message."""
    there = sorted(map(str, known))
    return nearest(value, there)[2:] or f"known: {', '.join(there)}"
