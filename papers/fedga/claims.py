"""The tests of FedGA's claims that follow no pattern; claims.yaml names them."""

import numpy as np
import pandas as pd

from repro.claims import (
    NotRun,
    best,
    better,
    common,
    every,
    exactly,
    inner,
    level,
    positive,
    printed,
    say,
    strongest,
    testing,
)
from repro.metrics import METRICS


# ---------------------------------------------------------------- printed numbers
def number(metric, place="none"):
    """What the paper prints of FedGA, as text: its digits matter."""
    of = {"method": "FedGA", "metric": metric, "dataset": place}
    return printed("fedga", **of).reported.item()


def as_printed(metric):
    """A computed number rounds to the printed one."""
    said = number(metric)
    half = 0.5 * 10.0 ** -len(said.partition(".")[2])
    return exactly(metric, float(said), half, method="FedGA")


def at_least_printed(metric, place, needs):
    """FedGA's mean is at least the printed number; needs: the data it is about."""
    least = float(number(metric, place))
    return level(metric, place, "FedGA", least=least, needs=needs)


def about_printed_or_lower(metric, place, needs):
    """FedGA's mean exceeds the printed number by no more than the metric's margin."""
    most = float(number(metric, place)) + METRICS[metric].margin
    return level(metric, place, "FedGA", most=most, needs=needs)


# ---------------------------------------------------------------- several metrics
def best_on_all(metrics, place, rivals):
    """FedGA is better than every rival on every metric."""
    return every(*(best(m, place, rivals, "FedGA") for m in metrics))


# ---------------------------------------------------------------- the trigger
TRIGGER = "trigger_time_seconds"


@testing
def cheaper(v, place, orders=0.0, also=()):
    """FedGA's trigger takes less time than FedGini's, by `orders` of magnitude or more.

    also: further costs of FedGA, added to its trigger.
    """
    margin = 0.0 if orders else None
    words = ("more", "fewer") if orders else ("cheaper", "dearer")
    claimed = f" against the {orders:g} claimed" if orders else ""

    at = {"dataset": place, "study": "timing"}
    mine = {m: v.get(m, "FedGA", **at) for m in (TRIGGER, *also)}
    mine = pd.DataFrame(mine).dropna().sum(axis=1)
    other, mine = common(v.get(TRIGGER, "FedGini", **at), mine)
    said = (
        f"FedGini {other.median():.2g} s, FedGA {mine.median():.2g} s (medians, a "
        f"seed is a repetition); orders of magnitude{claimed}"
    )
    more = np.log10(other / mine) - orders
    return positive("orders_of_magnitude", more, said, margin, words)


# ---------------------------------------------------------------- the strength alpha
@testing
def alphas(v, place, study):
    """best_gini along the whole sweep of alpha -> function of Values."""
    ends = [float(number(end, "all")) for end in ("alpha_min", "alpha_max")]

    x = v.axis("best_gini", "FedGA", place, "alpha", study)
    curve = {float(how.partition("=")[2]): g for how, g in x.items()}
    if lost := [f"alpha={e:g}" for e in ends if e not in curve]:
        raise NotRun(f"{study} {place} FedGA {lost[0]} best_gini")
    return dict(sorted(curve.items()))


def valley(place, study):
    """The Gini coefficient is lower at some alpha between the ends than at both."""
    return inner("best_gini", alphas(place, study))


@testing
def strong_end(v, place, study):
    """The Gini coefficient is lower at the strongest alpha than at each other one."""
    *others, strong = alphas(place, study)(v)
    at = lambda a: {"method": "FedGA", "setting": f"alpha={a:g}", "study": study}
    versus = lambda a: better("best_gini", place, at(strong), at(a))
    return strongest(v, {f"alpha={a:g}": versus(a) for a in others})


# ---------------------------------------------------------------- where a gain is from
@testing
def mostly(v, metric, place, way):
    """Of the way over three methods the step to the middle one is the longer."""
    start, middle, end = way

    x = pd.DataFrame({m: v.get(metric, m, place) for m in way}).dropna()
    if not len(x):
        raise NotRun("no seed in common")
    first, second = x[middle] - x[start], x[end] - x[middle]
    share = first.mean() / (first + second).mean()
    means = ", ".join(f"{m} {say(metric, x[m].mean())}" for m in way)
    said = f"{means}: {middle} makes {share:.0%} of the way; against the rest"
    d = METRICS[metric].sign * (first - second)
    return positive(metric, d, said, words=("longer", "shorter"))
