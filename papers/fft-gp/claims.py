"""Tests of FFT-GP's claims that the shared ones do not cover; claims.yaml says of which
sentences.

Some sentences are held against the paper's own tables alone: they see reported.csv in
place of runs.
"""

import itertools

from repro.claims import (
    better,
    common,
    held,
    positive,
    printed,
    say,
    strongest,
    testing,
    throughout,
)
from repro.metrics import METRICS

PLACES = ["PACS", "VLCS", "OfficeHome", "TerraInc", "DomainNet"]
TABLES = ("Table 2", "Table 3")
READ_AS = {"AFL": "scored=last"}  # its running average lags behind after few rounds


# ---------------------------------------------------------------- runs
def run(method, study="", setting=""):
    """Keywords of Values.get; of AFL the last model, the stronger of two readings."""
    parts = filter(None, (setting, READ_AS.get(method)))
    return {"method": method, "study": study, "setting": ";".join(parts)}


@testing
def best(v, metric, place, method, rivals, study="", setting=""):
    """`method` is better than every rival, AFL by its last model."""
    me = run(method, study, setting)
    versus = {r: better(metric, place, me, run(r, study, setting)) for r in rivals}
    theirs = tuple({"method": r, "setting": setting} for r in rivals)
    v.get(metric, dataset=place, **me)
    return strongest(v, versus)._replace(gain=(metric, place, me, theirs, 0.0))


@testing
def above(v, place, method, own, other):
    """Of one method the number `own` is larger than `other`, in the same unit: both are
    {metric, study, setting}, and may come from different studies.
    """

    def number(v, metric, **of):
        return v.get(metric, dataset=place, **run(method, **of))

    x, y = common(number(v, **own), number(v, **other))
    said = "; ".join(
        f"{METRICS[k['metric']].what}: {say(k['metric'], side.mean())}"
        for k, side in ((own, x), (other, y))
    )
    words = ("the first larger", "the first smaller")
    return positive(own["metric"], x - y, f"{method}, {said}", words=words)


def each_above(place, methods, own, other):
    """The same for every method."""
    return throughout({m: above(place, m, own, other) for m in methods})


# ---------------------------------------------------------------- printed numbers
def cells(reported, table):
    """Printed accuracies of a table: frames [methods, data sets] of the numbers and of
    the marks, "bold", "underlined" or "".
    """
    r = printed("fft-gp", reported, artefact=table).query("reported != ''")
    mark = r.rank_note.str.extract(r"(?:^|; )printed (bold|underlined)")[0].fillna("")
    r = r.assign(value=r.reported.astype(float), mark=mark)
    wide = lambda column: r.pivot(index="method", columns="dataset", values=column)
    return wide("value"), wide("mark")


@testing
def highest(reported, table):
    """FFT-GP's number is the highest of every column."""
    x, _ = cells(reported, table)
    best, top, mine = x.idxmax(), x.max(), x.loc["FFT-GP"]
    said = lambda p: f"{mine[p]:.2f} against {top[p]:.2f} of {best[p]}"
    return held({p: (best[p] == "FFT-GP", said(p)) for p in x})


def averages(reported):
    """The printed averages are those of the five columns."""
    out = {}
    for table in TABLES:
        x, _ = cells(reported, table)
        for m, mean in x[PLACES].mean(axis=1).items():
            said = f"{x.Avg[m]:.2f} printed, {mean:.3f} from the columns"
            out[f"{table} {m}"] = round(mean, 2) == x.Avg[m], said
    return held(out)


def marks(reported):
    """In every column the highest number is bold, the second-highest underlined, and
    nothing else is marked.
    """
    out = {}
    for table in TABLES:
        numbers, marked = cells(reported, table)
        for p, c in numbers.items():
            place = c.rank(ascending=False, method="dense")
            due = place.map({1: "bold", 2: "underlined"}).fillna("")
            wrong = c.index[marked[p] != due]
            said = (f"{m} {c[m]:.2f} is {marked[p][m] or 'unmarked'}" for m in wrong)
            out[f"{table} {p}"] = not len(wrong), ", ".join(said)
    return held(out)


@testing
def ranks(reported, table, method, rank):
    """The average of a method has this place in the table, -1 for the last."""
    a = cells(reported, table)[0].Avg.sort_values(ascending=False)
    there = a.iloc[rank if rank < 0 else rank - 1]
    said = f"{a[method]:.2f}; {there:.2f} has that place of {len(a)}"
    return held({"Avg": (a[method] == there, said)})


def below(reported):
    """The number on a domain left out is below that of local models."""
    (own, _), (out, _) = (cells(reported, t) for t in TABLES)
    found = {}
    for m, p in itertools.product(own.index.intersection(out.index), own):
        x, y = out[p][m], own[p][m]
        found[f"{m} {p}"] = x < y, f"{x:.2f} and {y:.2f}"
    return held(found)
