"""The numbers of one run: measures of its clients' accuracies at the evaluations that
count. A key is (moment, view, split), as in `Record.views`.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..core.errors import known, refuse_if
from ..core.record import GUEST, SPLIT
from . import bias, curves, metrics, selection

Measures = Mapping[str, Callable[..., Any]]
MEASURES = {  # name in the tables -> function of accuracies [.., C]; percent but Gini
    "mean_acc": lambda a: 100 * metrics.mean_acc(a),
    "std_acc": lambda a: 100 * metrics.std_acc(a),
    "worst10_acc": lambda a: 100 * metrics.worst(a),
    "top10_minus_bottom10": lambda a: 100 * metrics.gap(a),
    "best_gini": metrics.gini,
}
# say nothing of a single guest
SPREAD = ("std_acc", "worst10_acc", "top10_minus_bottom10", "best_gini")
BIAS = ("EO", "DP", "CAL", "EO_sum", "CAL_ppv", "positive_rate")
BIAS = {name: getattr(bias, name) for name in BIAS}  # of counts [.., A, 2, 2]
SITES = ("amazon", "caltech", "dslr", "webcam")  # clients that papers print by name


def rows_of(meta, key):
    """Rows [C] behind the accuracies of a key: of guests, or of the clients."""
    moment, _, split = key
    return np.array(
        meta["n"][(GUEST if moment == "guest" else SPLIT).get(split, split)]
    )


def rounds_of(r, key):
    """Rounds trained before each evaluation of a key [E]: after training one more."""
    return r.rounds[: len(r[key])] + (key[0] in ("post", "own"))


def scoring(key):
    """The moment with validation rows by which a key is judged: guests have none."""
    return "pre" if key[0] == "guest" else key[0]


def picked(rule, r, key):
    """The evaluations of a key that a rule picks, None: all."""
    pick = known(selection.RULES, "rule", rule) if rule else None
    return pick(r, key[1], scoring(key)) if rule else slice(len(curves.whole(r)))


def at_each(measures, r, key, rule):
    """{measure: its values at the evaluations of a rule}; one guest has no spread."""
    n, a, out = rows_of(r.meta, key), r[key][picked(rule, r, key)], {}
    for k, f in measures.items():
        if len(n) > 1 or k not in SPREAD:
            out[k] = f(a, n=n) if f.__code__.co_argcount > 1 else f(a)
    return out


def means(values):
    """{name: mean over evaluations} of {name: values}."""
    return {k: float(np.mean(v)) for k, v in values.items()}


def site_accuracies(r, key, rule):
    """{"acc_<client>": mean over the evaluations of a rule} of SITES, in percent."""
    named = zip(r.meta["owners"], r[key][picked(rule, r, key)].mean(0))
    return {f"acc_{k}": 100 * v for k, v in named if k in SITES and key[0] != "guest"}


def bias_of(measures, r, key, rule):
    """{measure: values at the evaluations of a rule}, with CON and the accuracy."""
    none = key not in r.cells or key[:2] not in r.consistency
    where = f"a run of {r.meta['method']} has counted no groups in {' '.join(key)}"
    refuse_if(none, f"biases: {where}; its task needs `groups`")
    at = picked(rule, r, key)
    n = bias.pooled(r.cells[key][at])
    out = {k: f(n) for k, f in measures.items()}
    out["CON"] = bias.CON(r.consistency[key[:2]][at].sum(1))
    return out | {"accuracy": metrics.pooled_acc(r[key][at], rows_of(r.meta, key))}
