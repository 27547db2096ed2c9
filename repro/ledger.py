"""Every number the papers print beside ours, and a computed verdict; run by the stage
results of dvc.yaml, and imported by the notebooks of papers, which publish with it.

    python -m repro.ledger         results/{ours,seeds}/*.csv  ->
                                   results/{ours,ledger,artefacts}.csv
    python -m repro.ledger --keep paper     keep today's parts of that tier for later

Three kinds of files, all plain csv; the first in papers/<paper>, the others in
results:

    reported.csv        one row per number of the paper; the source of the keys
    seeds/<name>.csv    one row per number and seed of ours (SEEDS columns), from the
                        notebooks to the claims
    ours/<name>.csv     one row per cell of a table (OURS columns), as made by `cells`
                        from the seeds

A part called <name>.<tier>.csv is a kept copy from an earlier run at that tier. It
fills in what <name>.csv does not hold at that tier itself. For each key the ledger
takes the best tier there is.

The verdicts are those of repro.judge.
"""

from __future__ import annotations

import math
import re
from pathlib import Path

import pandas as pd

from fedlib.cli.program import program
from fedlib.measures.statistics import interval
from fedlib.study.results import shown, write
from repro import artefacts, papers
from repro.derive import lead as lead
from repro.derive import lowest as lowest
from repro.derive import peak as peak
from repro.derive import renamed as renamed
from repro.derive import versus as versus
from repro.judge import by_seed, judge
from repro.metrics import METRICS
from repro.names import TIERS, ResultError, hint, key, pieces
from repro.names import slug as slug

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
LEDGER = ["key", *NAMES, *BOTH.split(), "pairs", *PROVENANCE]
PARTS = {"ours": (OURS, ["key"]), "seeds": (SEEDS, POINT)}  # columns, and what is one
OPTIONAL = {"setting", *PROVENANCE}
NUMBERS = {"value", "seed", "n_seeds", "minutes", "lo", "hi"}
GAPS = {"minutes", "lo", "hi"}  # numbers that may be missing


# ---------------------------------------------------------------- reading, checking
def read_reported(where=None):
    """reported.csv of every paper that is here, one below the other, all columns as
    text (the printed digits matter) -> frame indexed 0..

    where: a folder of papers in place of the repository's papers/.
    """
    where = Path(where or papers.folder())
    tables = [reported_by(paper, where) for paper in papers.found(where)]
    if not tables:
        raise ResultError(f"{where} has no paper: restore one of its folders with git")
    return pd.concat(tables, ignore_index=True)


def reported_by(paper, where=None):
    """reported.csv of one paper, checked -> frame; where: as for read_reported."""
    path = Path(where or papers.folder()) / paper / "reported.csv"
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    if list(table) != REPORTED:
        raise ResultError(f"{path}: the columns must be {', '.join(REPORTED)}")
    if (odd := table.paper[table.paper != paper]).size:
        at = f"{path}, row {odd.index[0] + 1}"
        raise ResultError(f"{at}: paper is {odd.iloc[0]!r}; rows of {paper} stand here")
    if len(twice := table.key[table.key.duplicated()]):
        raise ResultError(f"{path}: the key {twice.iloc[0]} occurs twice")
    return table


def _words(column):
    """A column as text, stripped; missing values become ""."""
    value = column.astype(object)
    return value.where(value.notna(), "").map(str).str.strip()


def _number(column, where):
    text = _words(column)
    number = pd.to_numeric(text.where(text != "", "nan"), errors="coerce")
    bad = number.isna() & ((text != "") | (column.name not in GAPS))
    if bad.any():
        at = f"{where}, row {bad.idxmax() + 1}: {column.name}"
        raise ResultError(f"{at} is {text[bad.idxmax()]!r}; give a number")
    return number


def check(table, kind, reported, where="table"):
    """A part as it should be, or ResultError.

    kind: "ours" (OURS columns) or "seeds" (SEEDS columns). Missing optional columns
    (setting and provenance) are added; numbers become numbers.
    """
    columns, by = PARTS[kind]
    if odd := [c for c in table if c not in columns]:
        raise ResultError(f"{where}: no column {odd[0]!r}; {hint(odd[0], columns)}")
    if lost := [c for c in columns if c not in table and c not in OPTIONAL]:
        raise ResultError(f"{where}: column {lost[0]!r} is missing from a {kind} part")
    table = table.reset_index(drop=True).reindex(columns=columns, fill_value="")
    for c in table:
        table[c] = _number(table[c], where) if c in NUMBERS else _words(table[c])
    check_names(table, kind, reported, where)
    check_numbers(table, kind, where)
    twice = table.duplicated([*by, "tier"])
    refuse(table, ~twice, where, lambda r: f"{' '.join(map(str, r[by]))} occurs twice")
    return table.astype({"n_seeds" if kind == "ours" else "seed": int})


def refuse(table, good, where, what):
    """ResultError that names the first row that is not good; what: why, of a row."""
    if not good.all():
        i = (~good).idxmax()
        raise ResultError(f"{where}, row {i + 1}: {what(table.loc[i])}")


def check_names(table, kind, reported, where):
    """ResultError for a name that nobody knows, or a key that is not its columns'."""

    def among(column, known, rows=slice(None)):
        why = lambda r: f"{column} is {r[column]!r}; {hint(r[column], known)}"
        refuse(table, table.loc[rows, column].isin(known), where, why)

    among("paper", papers.found())
    among("metric", METRICS)
    among("rule", RULES)
    among("data", KINDS)
    among("tier", TIERS)
    for paper, printed in reported.groupby("paper"):
        more, rows = papers.about(paper), table.paper == paper
        among("dataset", {*printed.dataset, *more["datasets"], "none", "all"}, rows)
        among("method", {*printed.method, *more["controls"], "all", "none"}, rows)
    if kind == "seeds":
        refuse(table, table.study != "", where, lambda r: "study is empty; name it")
        return
    for paper, known in artefacts.names(reported).items():
        among("artefact", known, table.paper == paper)
    of = (table[c] for c in "paper artefact dataset method metric setting".split())
    due = pd.Series([key(*row) for row in zip(*of)], table.index, dtype=object)
    why = lambda r: f"the key is {r.key!r}, its columns say {due[r.name]!r}"
    refuse(table, table.key == due, where, why)


def check_numbers(table, kind, where):
    """ResultError for a count that is none, and an interval without its value."""
    count, least = ("n_seeds", 1) if kind == "ours" else ("seed", -math.inf)
    whole = (table[count] == table[count].round()) & (table[count] >= least)
    why = lambda r: f"{count} is {r[count]}; give a whole number"
    refuse(table, whole, where, why)
    if kind == "ours":
        inside = (table.lo <= table.value) & (table.value <= table.hi)
        why = lambda r: f"the interval [{r.lo}, {r.hi}] must hold the value {r.value}"
        refuse(table, inside | table.lo.isna() & table.hi.isna(), where, why)


def parts(root, kind, reported):
    """All parts of one kind below `root`, checked and put together; several tiers may
    stand side by side.

    Of a kept copy <name>.<tier>.csv, what <name>.csv holds at that tier is left out,
    all its seeds together. No parts at all: an empty frame. Parts of papers that are
    not here are left out, and a line says so.
    """
    columns, by = PARTS[kind]
    found, fresh, here, absent = [], {}, papers.found(), []
    what = [c for c in (*by, "tier") if c != "seed"]
    fresh_first = lambda path: (path.stem.count("."), path.name)
    for path in sorted((Path(root) / kind).glob("*.csv"), key=fresh_first):
        name, _, tier = path.stem.partition(".")
        try:
            table = pd.read_csv(path, dtype=str, keep_default_na=False)
        except pd.errors.EmptyDataError:
            raise ResultError(f"{path} is empty: run its stage again") from None
        if _of_another(table, name, here):
            absent.append(path.name)
            continue
        table = check(table, kind, reported, str(path))
        if tier:
            why = lambda r: f"tier {r.tier!r} in a kept part of tier {tier!r}"  # noqa: B023
            refuse(table, table.tier == tier, path, why)
        of = pd.Series([*zip(*(table[c] for c in what))], table.index, dtype=object)
        if tier:
            table = table[~of.isin(fresh.get(name, ()))]
        else:
            fresh[name] = set(of)
        found.append(table.assign(part=path.name))
    if absent:
        print(f"left out, since their papers are not here: {kind}/{', '.join(absent)}")
    if not found:
        return pd.DataFrame(columns=columns)
    table = pd.concat(found, ignore_index=True)
    twice = table[table.duplicated([*by, "tier"], keep=False)]
    if len(twice):
        _, same = next(iter(twice.groupby([*by, "tier"])))
        row, files = " ".join(map(str, same[by].iloc[0])), " and ".join(same.part)
        raise ResultError(f"{row} is in {files} at one tier: let one stage write it")
    return table.drop(columns="part")


def _of_another(table, name, here):
    """Is a part called after one paper, whose rows it has, and that is not here?

    A misspelt paper in a part of another name is an error, not a paper.
    """
    of = set(table["paper"]) if "paper" in table else set()
    return len(of) == 1 and not of & set(here) and name.startswith(f"{min(of)}-")


def save(table, kind, name, root="results"):
    """Check a part, "ours" or "seeds", and write it to results/<kind>/<name>.csv."""
    if not re.fullmatch(r"[a-z0-9_-]+", name):
        raise ResultError(f"save(name={name!r}): small letters, digits, - and _ alone")
    table = check(pd.DataFrame(table), kind, read_reported(), f"{kind} part {name}")
    table = table.sort_values([*PARTS[kind][1], "tier"], kind="stable")
    return write(table, Path(root) / kind / f"{name}.csv")


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
    **provenance,
):
    """The rows of ours.csv for one artefact: means and 95% t intervals over
    seeds -> frame with OURS columns.

    Takes every (data set, metric) that the paper prints there, for the printed methods
    and the controls, from the seeds of that rule (or "run"). metrics, methods: take
    these instead, on every data set of the seeds;
    needed where the paper prints no number. settings: those alone that
    have all parts of one of these, as in ["global model"]; of a mapping
    {parts: the paper's name} the name takes the place of the parts and comes first,
    as in {"personalised model;C=10": "personalised model"}. also: further selection
    rules, put beside the paper's as setting "rule=..."; rule None gives these alone.
    provenance: columns of PROVENANCE that the seeds do not carry.
    Raises ResultError when the seeds mix studies, or have nothing to give.
    """
    reported = read_reported()
    seeds = check(pd.DataFrame(seeds), "seeds", reported, "seeds")
    seeds = seeds[seeds.paper == paper]
    if seeds.study.nunique() > 1:
        mixed = ", ".join(sorted(set(seeds.study)))
        raise ResultError(f"cells: the seeds mix the studies {mixed}; pass one")
    seeds = _wanted(seeds, reported, paper, artefact, metrics, methods)
    seeds = seeds if settings is None else _called(seeds, settings)
    rows = []
    by = ["dataset", "method", "setting", "metric", "tier", "data", "rule"]
    for r in filter(None, (rule, *also)):
        own = seeds[seeds.rule.isin([r, "run"] if r == rule else [r])]
        for (dataset, method, how, metric, tier, data, used), g in own.groupby(by):
            if r != rule:
                how = ";".join(filter(None, [how, f"rule={r}"]))
            name = key(paper, artefact, dataset, method, metric, how)
            row = [name, paper, artefact, dataset, method, how, metric]
            row += [*_mean(g.value), len(g), used, data, tier]
            each = {
                c: sorted(set(g[c]) - {""}) for c in ("device", "run_ids", "commit")
            }
            runs, commit = " ".join(each["run_ids"]), " ".join(each["commit"])
            minutes = g.minutes.sum(min_count=1)
            rows.append([*row, ", ".join(each["device"]), minutes, runs, commit])
    if not rows:
        by = [r for r in (rule, *also) if r]
        what = f"{paper} {artefact} by {' or '.join(by) or 'no rule'}"
        raise ResultError(f"cells: the seeds have nothing for {what}; see reported.csv")
    table = pd.DataFrame(rows, columns=OURS).assign(**provenance)
    return check(table, "ours", reported, f"cells of {artefact}")


def _wanted(seeds, reported, paper, artefact, metrics, methods):
    """The seeds that an artefact takes; see `cells`."""
    there = reported[(reported.paper == paper) & (reported.artefact == artefact)]
    if metrics is not None:
        return seeds[
            seeds.metric.isin(metrics) & seeds.method.isin(methods or seeds.method)
        ]
    if not len(there):
        known = hint(artefact, artefacts.names(reported).get(paper, papers.found()))
        none = f"cells: {paper} prints no number in {artefact!r}"
        raise ResultError(f"{none}; name the metrics, or correct: {known}")
    methods = methods or {*there.method, *papers.about(paper)["controls"]}
    wanted = set(zip(there.dataset, there.metric))
    is_wanted = [pair in wanted for pair in zip(seeds.dataset, seeds.metric)]
    return seeds[
        pd.Series(is_wanted, seeds.index, dtype=bool) & seeds.method.isin(methods)
    ]


def _mean(values):
    """Mean and ends of the interval; of values with an infinite one, no interval."""
    if not values.map(math.isfinite).all():
        return math.inf, math.nan, math.nan
    i = interval(values)
    return i.mean, i.lo, i.hi


def _called(seeds, settings):
    """The seeds whose setting has all parts of one of `settings`,
    the first that fits; see `cells`.
    """
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
    two columns per metric.
    """
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


def publish(name, seeds, artefacts, root="results", **more):
    """Write results/seeds/<name>.csv and, for {artefact: keywords of cells, or a list
    of them}, results/ours/<name>.csv.

    The keywords `study` and `seed` take the rows of one study and one seed, where there
    are several.
    """
    if isinstance(seeds, (list, tuple)):
        seeds = pd.concat(seeds, ignore_index=True)
    save(seeds, "seeds", name, root)
    rows = []
    for artefact, wanted in artefacts.items():
        for given in wanted if isinstance(wanted, list) else [wanted]:
            some, kw = seeds, dict(given)
            for k in {"study", "seed"} & set(kw):
                some = some[some[k] == kw.pop(k)]
            rows.append(cells(some, seeds.paper.iloc[0], artefact, **kw))
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
    table["n_seeds"] = [shown(n if math.isnan(n) else int(n)) for n in table.n_seeds]
    words = ["rule", "data", "tier", "device", "run_ids", "commit"]
    return table[LEDGER].fillna(dict.fromkeys(words, ""))


def places(table, reported):
    """Positions of the rows in the papers' order; other artefacts last, by name."""
    here, first = papers.found(), {}
    for i, at in enumerate(zip(reported.paper, reported.artefact)):
        first.setdefault(at, i)
    place = lambda at: (
        here.index(at[0]),
        first.get(at, len(first)),
        at[1] * (at not in first),
    )
    of = [place(at) for at in zip(table.paper, table.artefact)]
    return sorted(range(len(table)), key=lambda i: (of[i], i))


def kept(tier, root="results"):
    """Copy the rows of a tier to <name>.<tier>.csv,
    so that later runs at other tiers leave them -> paths.
    """
    if tier not in TIERS:
        raise ResultError(f"--keep {tier}: {hint(tier, TIERS)}")
    made = []
    for path in sorted(p for kind in PARTS for p in (Path(root) / kind).glob("*.csv")):
        table = pd.read_csv(path, dtype=str, keep_default_na=False)
        table = table[table.tier == tier]
        if "." not in path.stem and len(table):
            made.append(write(table, path.with_name(f"{path.stem}.{tier}.csv")))
    return made


def main(*, results: Path = Path("results"), keep=None):
    """Collate, join, judge, and write ours.csv, ledger.csv and artefacts.csv.

    results: folder of ours/ and seeds/
    keep: also keep the parts of this tier for later
    """
    for path in kept(keep, results) if keep else ():
        print(f"kept {path}")
    root, reported = results, read_reported()
    ours = best_tier(parts(root, "ours", reported), ["key"])
    table = join(reported, ours, parts(root, "seeds", reported))
    write(ours[OURS].sort_values("key", kind="stable"), root / "ours.csv")
    write(table, root / "ledger.csv")
    write(artefacts.table(reported, ours, root), root / "artefacts.csv")
    counts = table.verdict.value_counts().sort_index()
    print(f"{len(table)} rows: " + ", ".join(f"{n} {v}" for v, n in counts.items()))


if __name__ == "__main__":
    program(main)
