"""Every number the papers print beside ours, and a computed verdict; run by the stage
results of dvc.yaml, and imported by the notebooks of papers, which publish with it.

    python -m repro.ledger         results/{ours,seeds}/*.parquet  ->
                                   results/{ledger,artefacts}.csv

Three kinds of files; the first in papers/<paper>, the others in results:

    reported.csv            one row per number of the paper; the source of the keys
    seeds/<name>.parquet    one row per number and seed of ours (SEEDS columns), from
                            the notebooks to the claims
    ours/<name>.parquet     one row per cell of a table (OURS columns), as made by
                            `cells` from the seeds

For each key the ledger takes the best tier there is. The verdicts are those of
repro.judge.
"""

import functools
import math
import os
from pathlib import Path

import numpy as np
import pandas as pd

from fedlib.cli.program import program
from fedlib.measures.statistics import interval
from fedlib.study.results import write
from repro import artefacts, papers
from repro.derive import lead, lowest, peak, renamed, versus  # noqa: F401
from repro.judge import by_seed, judge
from repro.metrics import METRICS
from repro.names import TIERS, ResultError, hint, key, pieces, slug  # noqa: F401

KINDS = ("real", "synthetic", "stand-in")
# run: a whole run
RULES = "best_val best_val_gini last last10_mean best_round_test best_round_pooled run"
RULES = tuple(RULES.split())

CELL = "paper artefact dataset method setting metric".split()
NAMES = "paper artefact dataset model method setting metric".split()
PRINTED = "relation reported reported_spread unit improvement_pct rank_note note"
REPORTED = ["key", *NAMES, *PRINTED.split()]
PROVENANCE = "device minutes run_ids commit".split()
OURS = ["key", *CELL, *"value lo hi n_seeds rule data tier".split(), *PROVENANCE]
POINT = "paper study dataset method setting seed metric rule".split()
SEEDS = [*POINT, "value", "data", "tier", *PROVENANCE]
BOTH = "reported reported_spread ours ours_lo ours_hi n_seeds rule data tier verdict"
# the runs of a row are named in its seeds
LEDGER = ["key", *NAMES, *BOTH.split(), "pairs", "device", "minutes", "commit"]
PARTS = {"ours": (OURS, ["key"]), "seeds": (SEEDS, POINT)}  # columns, and what is one
OPTIONAL = {"setting", *PROVENANCE}
NUMBERS = {"value", "seed", "n_seeds", "minutes", "lo", "hi"}
GAPS = {"minutes", "lo", "hi"}  # numbers that may be missing


# ---------------------------------------------------------------- reading, checking
def read_reported():
    """reported.csv of every paper that is here, one below the other, all columns as
    text (the printed digits matter) -> frame indexed 0.."""
    return pd.concat(map(reported_by, papers.found()), ignore_index=True)


def reported_by(paper):
    """reported.csv of one paper, checked -> frame."""
    path = papers.folder() / paper / "reported.csv"
    return _reported_by(paper, path, os.stat(path).st_mtime_ns)


@functools.cache
def _reported_by(paper, path, _changed):
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    if list(table) != REPORTED:
        raise ResultError(f"{path}: the columns must be {', '.join(REPORTED)}")
    refuse(table, table.paper == paper, path, lambda r: f"paper is {r.paper!r}")
    twice = table.key.duplicated()
    refuse(table, ~twice, path, lambda r: f"the key {r.key} occurs twice")
    return table


def refuse(table, good, where, what):
    """ResultError that names the first row that is not good; what: why, of a row."""
    if not good.all():
        i = (~good).idxmax()
        raise ResultError(f"{where}, row {i + 1}: {what(table.loc[i])}")


def check(table, kind, reported, where="table"):
    """A part as it should be, or ResultError.

    kind: "ours" (OURS columns) or "seeds" (SEEDS columns). Missing optional columns
    (setting and provenance) are added; numbers become numbers."""
    columns, by = PARTS[kind]
    if wrong := {*table} - {*columns} | {*columns} - {*table} - OPTIONAL:
        why = f"the column {min(wrong)!r} is unknown or missing"
        raise ResultError(f"{where}: {why}; a {kind} part has {', '.join(columns)}")
    table = table.reset_index(drop=True).reindex(columns=columns, fill_value="")
    for c in {*columns} - (NUMBERS & {*table.select_dtypes(["int64", "float64"])}):
        at, values = pd.factorize(table[c], use_na_sentinel=False)
        words = ["" if pd.isna(v) else str(v).strip() for v in values]
        table[c] = [words[i] for i in at]
    for c in NUMBERS & {*columns}:
        number = pd.to_numeric(table[c].replace("", "nan"), errors="coerce")
        good = number.notna() | table[c].isin(["", math.nan]) & (c in GAPS)
        refuse(table, good, where, lambda r, c=c: f"{c} is {r[c]!r}; give a number")
        table[c] = number
    check_names(table, kind, reported, where)
    counted, least = ("n_seeds", 1) if kind == "ours" else ("seed", -math.inf)
    n = table[counted]
    why = lambda r: f"{counted} is {r[counted]}; give a whole number"
    refuse(table, (n == n.round()) & (n >= least), where, why)
    if kind == "ours":
        inside = (table.lo <= table.value) & (table.value <= table.hi)
        why = lambda r: f"the interval [{r.lo}, {r.hi}] must hold the value {r.value}"
        refuse(table, inside | table.lo.isna() & table.hi.isna(), where, why)
    twice = table.duplicated([*by, "tier"])
    refuse(table, ~twice, where, lambda r: f"{' '.join(map(str, r[by]))} occurs twice")
    return table.astype({counted: int})


def check_names(table, kind, reported, where):
    """ResultError for a name that nobody knows, or a key that is not its columns'."""

    def among(column, known, rows=slice(None)):
        why = lambda r: f"{column} is {r[column]!r}; {hint(r[column], known)}"
        refuse(table, table.loc[rows, column].isin(known), where, why)

    known = {"paper": papers.found(), "metric": METRICS, "rule": RULES}
    for column, words in (known | {"data": KINDS, "tier": TIERS}).items():
        among(column, words)
    listed = artefacts.names(reported)
    for paper, printed in reported.groupby("paper"):
        more, rows = papers.about(paper), table.paper == paper
        among("dataset", {*printed.dataset, *more["datasets"], "none", "all"}, rows)
        among("method", {*printed.method, *more["controls"], "all", "none"}, rows)
        if kind == "ours":
            among("artefact", listed[paper], rows)
    if kind == "seeds":
        refuse(table, table.study != "", where, lambda r: "study is empty; name it")
        return
    of = (table[c] for c in "paper artefact dataset method metric setting".split())
    due = pd.Series([key(*row) for row in zip(*of)], table.index, dtype=object)
    why = lambda r: f"the key is {r.key!r}, its columns say {due[r.name]!r}"
    refuse(table, table.key == due, where, why)


def parts(root, kind):
    """All parts of one kind below `root` put together, as they were checked when they
    were saved; several tiers may stand side by side. No parts at all: an empty frame.
    Parts of papers that are not here are left out, and a line says so."""
    columns, by = PARTS[kind]
    found, here = [], {*papers.found()}
    for path in sorted((Path(root) / kind).glob("*.parquet")):
        table = pd.read_parquet(path)
        if table.empty or {*table.paper} & here:
            found.append(table.assign(part=path.name))
        else:
            print(f"left out, since its paper is not here: {kind}/{path.name}")
    if not found:
        return pd.DataFrame(columns=columns)
    table = pd.concat(found, ignore_index=True)
    twice = table.duplicated([*by, "tier"])
    why = lambda r: f"{' '.join(map(str, r[by]))} is in another part, too; let one go"
    refuse(table, ~twice, f"{kind}, {', '.join(table.part[twice][:1])}", why)
    return table.drop(columns="part")


def save(table, kind, name, root="results"):
    """Write a checked part, ours or seeds, to results/<kind>/<name>.parquet; numbers
    have the six digits of a printed table."""
    table = table.sort_values([*PARTS[kind][1], "tier"], kind="stable")
    for c in table.select_dtypes("float"):
        table[c] = [v if v == round(v, 0) else float(f"{v:.6g}") for v in table[c]]
    path = Path(root) / kind / f"{name}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    table.to_parquet(path, index=False, compression="zstd")
    return path


def best_tier(table, by):
    """Of the rows that share `by`, those of the best tier."""
    if not len(table):
        return table
    rank = table.tier.map(TIERS.index)
    return table[rank == rank.groupby([table[c] for c in by]).transform("max")]


# ---------------------------------------------------------------- from seeds to cells
def cells(
    seeds,
    paper,
    artefact,
    metrics=None,
    methods=None,
    settings=None,
    rule="best_val",
    also=(),
    *,
    reported,
    **provenance,
):
    """The rows of ours for one artefact: means and 95% t intervals over
    seeds that are checked -> frame with OURS columns.

    Takes every (data set, metric) that the paper prints there, for the printed methods
    and the controls, from the seeds of that rule (or "run"). metrics, methods: take
    these instead, on every data set of the seeds;
    needed where the paper prints no number. settings: those alone that
    have all parts of one of these, as in ["global model"]; of a mapping
    {parts: the paper's name} the name takes the place of the parts and comes first,
    as in {"personalised model;C=10": "personalised model"}. also: further selection
    rules, put beside the paper's as setting "rule=..."; rule None gives these alone.
    reported: see `read_reported`. provenance: columns of PROVENANCE that the seeds do
    not carry.
    Raises ResultError when the seeds mix studies, or have nothing to give."""
    seeds = seeds[seeds.paper == paper]
    if seeds.study.nunique() > 1:
        mixed = ", ".join(sorted(set(seeds.study)))
        raise ResultError(f"cells: the seeds mix the studies {mixed}; pass one")
    seeds = _wanted(seeds, reported, paper, artefact, metrics, methods)
    seeds = seeds if settings is None else _called(seeds, settings)
    rows, rules = [], [r for r in (rule, *also) if r]
    by = ["dataset", "method", "setting", "metric", "tier", "data", "rule"]
    for r in rules:
        own = seeds[seeds.rule.isin([r, "run"] if r == rule else [r])]
        of = {c: own[c].to_numpy(object) for c in ("device", "run_ids", "commit")}
        for at, g in sorted(own.groupby(by).indices.items()):
            row = {"paper": paper, "artefact": artefact} | dict(zip(by, at))
            if r != rule:
                row["setting"] = ";".join(filter(None, [row["setting"], f"rule={r}"]))
            row |= _mean(own.value.to_numpy()[g]) | {"n_seeds": len(g)}
            row["minutes"] = own.minutes.iloc[g].sum(min_count=1)
            for c, sep in {"device": ", ", "run_ids": " ", "commit": " "}.items():
                row[c] = sep.join(sorted({*of[c][g]} - {""}))
            named = (row[c] for c in ("dataset", "method", "metric", "setting"))
            rows.append({"key": key(paper, artefact, *named)} | row)
    if not rows:
        what = f"{paper} {artefact} by {' or '.join(rules) or 'no rule'}"
        raise ResultError(f"cells: the seeds have nothing for {what}; see reported.csv")
    table = pd.DataFrame(rows, columns=OURS).assign(**provenance)
    return check(table, "ours", reported, f"cells of {artefact}")


def _wanted(seeds, reported, paper, artefact, metrics, methods):
    """The seeds that an artefact takes; see `cells`."""
    there = reported[(reported.paper == paper) & (reported.artefact == artefact)]
    if metrics is not None:
        wanted = seeds.metric.isin(metrics)
        methods = methods or {*seeds.method}
    elif len(there):
        printed = pd.MultiIndex.from_frame(there[["dataset", "metric"]])
        wanted = pd.MultiIndex.from_frame(seeds[["dataset", "metric"]]).isin(printed)
        methods = methods or {*there.method, *papers.about(paper)["controls"]}
    else:
        known = hint(artefact, artefacts.names(reported).get(paper, papers.found()))
        none = f"cells: {paper} prints no number in {artefact!r}"
        raise ResultError(f"{none}; name the metrics, or correct: {known}")
    return seeds[wanted & seeds.method.isin(methods)]


def _mean(values):
    """Mean and ends of the interval; of values with an infinite one, no interval."""
    if not np.isfinite(values).all():
        return {"value": math.inf, "lo": math.nan, "hi": math.nan}
    i = interval(values)
    return {"value": i.mean, "lo": i.lo, "hi": i.hi}


def _called(seeds, settings):
    """The seeds whose setting has all parts of one of `settings`; see `cells`."""
    names = settings if isinstance(settings, dict) else {s: s for s in settings}
    out = []
    for own in map(pieces, seeds.setting):
        fit = next((s for s in names if set(pieces(s)) <= set(own)), None)
        rest = [] if fit is None else [p for p in own if p not in pieces(fit)]
        out.append(None if fit is None else ";".join([*pieces(names[fit]), *rest]))
    return seeds.assign(setting=out)[[how is not None for how in out]]


# ---------------------------------------------------------------- for notebooks
def printed(paper, artefact, metric):
    """{method: number} as the paper prints it; numbers that are lost are left out."""
    r = read_reported()
    r = r[(r.paper == paper) & (r.artefact == artefact) & (r.metric == metric)]
    if r.empty:
        raise ResultError(f"{paper} prints no {metric} in {artefact!r}: reported.csv")
    return {m: float(v) for m, v in zip(r.method, r.reported) if v}


def beside(ours, paper, artefact):
    """The paper's numbers of one artefact beside ours: a row per data set and method,
    two columns per metric."""
    mine = ours[(ours.paper == paper) & (ours.artefact == artefact)]
    if mine.empty:
        known = hint(artefact, set(ours.artefact))
        raise ResultError(f"beside: nothing of {paper} {artefact!r} in ours; {known}")
    both = mine.merge(read_reported()[["key", "reported"]], on="key", how="left")
    both = both.assign(reported=pd.to_numeric(both.reported), ours=both.value)
    rows = ["dataset", "method"] + (["setting"] if (both.setting != "").any() else [])
    two = {"columns": "metric", "values": ["reported", "ours"], "sort": False}
    table = both.pivot_table(index=rows, **two).swaplevel(axis=1)
    return table.sort_index(axis=1, level=0, sort_remaining=False).round(3)


def publish(name, seeds, artefacts, root=None):
    """Write results/seeds/<name>.parquet and, for {artefact: keywords of cells, or a
    list of them}, results/ours/<name>.parquet; root: in place of results, see
    plots.drawn.

    The keywords `study` and `seed` take the rows of one study and one seed, where there
    are several."""
    from fedlib import plots  # here, so that matplotlib is imported to draw only

    if isinstance(seeds, (list, tuple)):
        seeds = pd.concat(seeds, ignore_index=True)
    root, reported = root or plots.drawn("results"), read_reported()
    seeds = check(pd.DataFrame(seeds), "seeds", reported, f"seeds part {name}")
    save(seeds, "seeds", name, root)
    rows = []
    for artefact, wanted in artefacts.items():
        for given in wanted if isinstance(wanted, list) else [wanted]:
            some, kw = seeds, dict(given)
            for k in {"study", "seed"} & set(kw):
                some = some[some[k] == kw.pop(k)]
            of = seeds.paper.iloc[0]
            rows.append(cells(some, of, artefact, reported=reported, **kw))
    ours = pd.concat(rows, ignore_index=True) if rows else pd.DataFrame(columns=OURS)
    save(ours, "ours", name, root)
    return ours


# ---------------------------------------------------------------- the ledger
def join(reported, ours, seeds):
    """The ledger: reported.csv and ours side by side, one row per key, with the
    verdict. Paper's order, ours-only last. seeds: what ours was made of."""
    ours = best_tier(ours, ["key"])
    values = by_seed(ours, seeds)
    ours = ours.rename(columns={"value": "ours", "lo": "ours_lo", "hi": "ours_hi"})
    table = reported.merge(ours.drop(columns=CELL), on="key", how="left")
    alone = ours[~ours.key.isin(set(reported.key))].sort_values("key")
    alone = alone.assign(reported="", reported_spread="", relation="=", model=None)
    table = pd.concat([table, alone], ignore_index=True) if len(alone) else table
    table = table.iloc[places(table, reported)].reset_index(drop=True)
    floats = ["ours", "ours_lo", "ours_hi", "n_seeds"]
    table = table.astype(dict.fromkeys(floats, float))

    models = reported[reported.model != ""].groupby(["paper", "dataset"]).model.unique()
    only = {at: m[0] for at, m in models.items() if len(m) == 1}
    of = zip(table.paper, table.dataset, table.model)
    table["model"] = [only.get((p, d), "") if pd.isna(m) else m for p, d, m in of]
    table = judge(table, values)
    words = ["rule", "data", "tier", "device", "commit"]
    return table[LEDGER].fillna(dict.fromkeys(words, ""))


def places(table, reported):
    """Positions of the rows in the papers' order, those of other artefacts by name."""
    here, first, of = papers.found(), {}, []
    for i, at in enumerate(zip(reported.paper, reported.artefact)):
        first.setdefault(at, i)
    for i, (paper, name) in enumerate(zip(table.paper, table.artefact)):
        known = (paper, name) in first
        place = first[paper, name] if known else len(first)
        of.append((here.index(paper), place, "" if known else name, i))
    return sorted(range(len(of)), key=of.__getitem__)


def main(*, results: Path = Path("results")):
    """Collate, join, judge, and write ledger.csv and artefacts.csv.

    results: folder of ours/ and seeds/"""
    root, reported = results, read_reported()
    ours = best_tier(parts(root, "ours"), ["key"])
    table = join(reported, ours, parts(root, "seeds"))
    write(table, root / "ledger.csv")
    write(artefacts.table(reported, ours, root), root / "artefacts.csv")
    counts = table.verdict.value_counts().sort_index()
    print(f"{len(table)} rows: " + ", ".join(f"{n} {v}" for v, n in counts.items()))


if __name__ == "__main__":
    program(main)
