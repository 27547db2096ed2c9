"""How often do the verdicts of claims err? Simulated with the functions that judge the
claims; called by the stage results of dvc.yaml.

    python -m benchmarks.verdicts      -> results/verdicts-errors.csv

A trial draws paired differences over forty seeds, and looks at the first 5, 10, 20 and
40, until nothing is open. Four kinds of sentences alone, which thus stop at their first
verdict, and nine that share a study, until the last is decided; with a margin of one
standard deviation, under a true difference of none, half a margin, one and two standard
deviations, and with differences of several shapes:

    normal        as Student's t assumes
    counts        of correct rows among fifty, for both methods: few values, many ties
    skewed        of two methods with a skewness of 1, one of which spreads twice as far
    very skewed   exponential, a skewness of 2: to see where the declared rate ends

Rival methods share a method's own luck, so their differences are correlated (1/2).
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from fedlib.cli.program import program
from fedlib.measures import verdicts
from fedlib.measures.verdicts import LOOKS
from fedlib.study.results import write

TRIALS = 4000
MARGIN = 1.0  # standard deviations
TRUTHS = {"none": 0.0, "half a margin": 0.5}
TRUTHS |= {"one deviation": 1.0, "two deviations": 2.0}
# which verdicts are wrong: a difference of half a margin is both better and alike
WRONG = {
    "none": ("yes", "no"),
    "half a margin": ("no",),
    "one deviation": ("no", "alike"),
    "two deviations": ("no", "alike"),
}
RIVALS, SETTINGS, VALUES = 9, 5, 5


# ---------------------------------------------------------------- what is drawn
def values(shape, size, rng):
    """Values of a method [size], mean 0."""
    if shape == "counts":
        return rng.binomial(50, 0.8, size) - 40.0
    if shape == "skewed":
        return rng.gamma(4, size=size) - 4
    return rng.standard_normal(size)


def differences(shape, size, rng):
    """Paired differences of two methods [size], mean 0 and variance 1."""
    if shape == "very skewed":
        return rng.exponential(size=size) - 1
    a, b = values(shape, size, rng), values(shape, size, rng)
    return scaled(2 * a - b if shape == "skewed" else a - b)


def scaled(d):
    """Differences with a variance of 1."""
    return d / d.std()


def against(k, shape, trials, rng):
    """Differences to k rivals that share the method's luck -> [k, trials, seeds]."""
    own = differences(shape, (trials, LOOKS[-1]), rng)
    theirs = differences(shape, (k, trials, LOOKS[-1]), rng)
    return (own + theirs) / np.sqrt(2)


# ---------------------------------------------------------------- what is claimed
def judged(d):
    """P of one difference d [..., S]; a constant d is as wide as the margin."""
    return verdicts.single(d, MARGIN, MARGIN)


def all_judged(d):
    """P of "in all cases", d [k, ..., S]: also of "better than every rival"."""
    return verdicts.all_of([judged(x) for x in d])


def slope(x):
    """The least-squares change along an axis, x [k, ..., S] -> [..., S]."""
    at = np.linspace(-0.5, 0.5, len(x))
    return np.tensordot(at / (at @ at), x, 1)


def sentences(shape, truth, trials, rng):
    """{sentence: (differences, their P)} under a true difference."""
    size = trials, LOOKS[-1]
    one = differences(shape, size, rng) + truth
    rivals = against(RIVALS, shape, trials, rng) + truth
    cases = np.stack([differences(shape, size, rng) for _ in range(SETTINGS)]) + truth
    runs = np.stack([differences(shape, size, rng) for _ in range(VALUES)])
    trend = scaled(slope(runs)) + truth
    return {
        "better": (one, judged),
        f"one of {RIVALS} in a study": (rivals, judged),
        f"best of {RIVALS + 1}": (rivals, all_judged),
        f"in all of {SETTINGS}": (cases, all_judged),
        f"trend over {VALUES}": (trend, judged),
    }


def sequential(d, test):
    """The answers of a study's sentences [k, trials], and its seeds [trials], for
    differences d [..., trials, S]: it grows while one of them is open, and each look
    judges all of them again.
    """
    look = lambda d: np.atleast_2d(verdicts.verdict(test(d)))
    found, took = look(d[..., : LOOKS[0]]), np.full(d.shape[-2], LOOKS[0])
    for n in LOOKS[1:]:
        grows = (found == "undecided").any(axis=0)
        found[:, grows], took[grows] = look(d[..., grows, :n]), n
    return found, took


def rates(trials=TRIALS, seed=0, shapes=("normal", "counts", "skewed", "very skewed")):
    """Shares of verdicts -> frame, a row per sentence, truth and shape."""
    rng = np.random.default_rng(seed)
    rows = []
    for shape in shapes:
        for truth, mean in TRUTHS.items():
            for sentence, (d, test) in sentences(shape, mean, trials, rng).items():
                found, took = sequential(d, test)
                every = (*verdicts.DECIDED, "undecided")
                share = {v: (found == v).mean() for v in every}
                wrong = sum(share[v] for v in WRONG[truth])
                row = {"verdict_of": sentence, "truth": truth, "shape": shape}
                row |= {"looks": " ".join(map(str, LOOKS))} | share
                rows.append(row | {"seeds": took.mean(), "wrong": wrong})
    return pd.DataFrame(rows)


def main():
    """Simulate, and write verdicts-errors.csv."""
    table = rates()
    write(table.round(4), "results/verdicts-errors.csv")
    honest = table[table["shape"] != "very skewed"]
    print(f"{len(table)} rates; at most {honest.wrong.max():.1%} wrong decisions")


if __name__ == "__main__":
    program(main)
