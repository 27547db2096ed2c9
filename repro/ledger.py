"""Every number the papers print beside ours, and a computed verdict; run by the stage
results of dvc.yaml, and imported by the notebooks of papers, which publish with it.

    python -m repro.ledger         results/{ours,seeds}/*.csv  ->
                                   results/{ours,ledger,artefacts}.csv
    python -m repro.ledger --keep  keep today's parts of tier paper (or --keep small)
                                   for later

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

import argparse
import math
import re
from pathlib import Path

import pandas as pd

from fedlib.core import ends
from fedlib.measures.statistics import interval
from fedlib.study.table import shown, write
from repro import artefacts, papers
from repro.derive import lead as lead
from repro.derive import lowest as lowest
from repro.derive import peak as peak
from repro.derive import renamed as renamed
from repro.derive import versus as versus
from repro.judge import by_seed, judge
from repro.metrics import METRICS
from repro.names import ResultError, hint, key, pieces
from repro.names import slug as slug

TIERS = ("tiny", "small", "paper", "exact")  # worst to best; exact: nothing was trained
KINDS = ("real", "synthetic", "stand-in")
# run: a whole run
RULES = (
    "best_val",
    "best_val_gini",
    "last",
    "last10_mean",
    "best_round_test",
    "best_round_pooled",
    "run",
)

CELL = ["paper", "artefact", "dataset", "method", "setting", "metric"]
NAMES = ["paper", "artefact", "dataset", "model", "method", "setting", "metric"]
REPORTED = [
    "key",
    *NAMES,
    "relation",
    "reported",
    "reported_spread",
    "unit",
    "improvement_pct",
    "rank_note",
    "note",
]
PROVENANCE = ["device", "minutes", "run_ids", "commit"]
OURS = [
    "key",
    *CELL,
    "value",
    "lo",
    "hi",
    "n_seeds",
    "rule",
    "data",
    "tier",
    *PROVENANCE,
]
POINT = ["paper", "study", "dataset", "method", "setting", "seed", "metric", "rule"]
SEEDS = [*POINT, "value", "data", "tier", *PROVENANCE]
LEDGER = [
    "key",
    *NAMES,
    "reported",
    "reported_spread",
    "ours",
    "ours_lo",
    "ours_hi",
    "n_seeds",
    "rule",
    "data",
    "tier",
    "verdict",
    "pairs",
    *PROVENANCE,
]
OPTIONAL = {"setting", *PROVENANCE}


# reading and checking


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
    if not path.exists():
        raise ResultError(
            f"{path} is missing: it is part of the repository, restore it with git"
        )
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    if list(table) != REPORTED:
        raise ResultError(f"{path}: the columns must be {', '.join(REPORTED)}")
    if (odd := table.paper[table.paper != paper]).size:
        raise ResultError(
            f"{path}, row {odd.index[0] + 1}: paper is {odd.iloc[0]!r}; rows of "
            f"{paper} stand here"
        )
    twice = table.key[table.key.duplicated()]
    if len(twice):
        raise ResultError(f"{path}: the key {twice.iloc[0]} occurs twice")
    return table


def _words(column):
    """A column as text, stripped; missing values become ""."""
    value = column.astype(object)
    return value.where(value.notna(), "").map(str).str.strip()


def _number(table, column, where, gaps):
    text = _words(table[column])
    number = pd.to_numeric(text.where(text != "", "nan"), errors="coerce")
    bad = number.isna() & ((text != "") | (not gaps))
    if bad.any():
        i = bad.idxmax()
        raise ResultError(
            f"{where}, row {i + 1}: {column} is {text[i]!r}; give a number"
        )
    return number


def check(table, kind, reported, where="table"):
    """A part as it should be, or ResultError.

    kind: "ours" (OURS columns) or "seeds" (SEEDS columns).

    Missing optional columns (setting and provenance) are added; numbers become numbers.
    """
    columns = {"ours": OURS, "seeds": SEEDS}[kind]
    table = table.reset_index(drop=True).copy()
    for c in table:
        if c not in columns:
            raise ResultError(
                f"{where}: no column {c!r} in a {kind} part; {hint(c, columns)}"
            )
    for c in columns:
        if c not in table and c not in OPTIONAL:
            raise ResultError(
                f"{where}: column {c!r} is missing; a {kind} part has "
                f"{', '.join(columns)}"
            )
        if c not in table:
            table[c] = ""
    table = table[columns]
    numbers = {"value": False, "minutes": True}
    numbers |= (
        {"lo": True, "hi": True, "n_seeds": False}
        if kind == "ours"
        else {"seed": False}
    )
    for c in table:
        table[c] = (
            _number(table, c, where, numbers[c]) if c in numbers else _words(table[c])
        )

    def insist(good, what):
        if not good.all():
            i = (~good).idxmax()
            raise ResultError(f"{where}, row {i + 1}: {what(table.loc[i])}")

    def among(column, allowed, rows=slice(None)):
        good = table.loc[rows, column].isin(allowed)
        insist(good, lambda r: f"{column} is {r[column]!r}; {hint(r[column], allowed)}")

    known = {
        "paper": papers.found(),
        "metric": METRICS,
        "rule": RULES,
        "data": KINDS,
        "tier": TIERS,
    }
    for c in known:
        among(c, known[c])
    for paper, printed in reported.groupby("paper"):
        more = papers.about(paper)
        among(
            "dataset",
            {*printed.dataset, *more["datasets"], "none", "all"},
            table.paper == paper,
        )
        among(
            "method",
            {*printed.method, *more["controls"], "all", "none"},
            table.paper == paper,
        )
    if kind == "seeds":
        insist(
            table.study != "",
            lambda r: "study is empty; name the experiment, as in 'main'",
        )
        insist(
            table.seed == table.seed.round(),
            lambda r: f"seed is {r.seed}; give a whole number",
        )
    else:
        for paper, allowed in artefacts.names(reported).items():
            among("artefact", allowed, table.paper == paper)
        wanted = pd.Series(
            [
                key(r.paper, r.artefact, r.dataset, r.method, r.metric, r.setting)
                for r in table.itertuples()
            ],
            table.index,
            dtype=object,
        )
        insist(
            table.key == wanted,
            lambda r: (
                f"the key is {r.key!r}, its columns say {wanted[r.name]!r}; "
                "make keys with ledger.key"
            ),
        )
        empty = table.lo.isna() & table.hi.isna()
        insist(
            empty | (table.lo <= table.value) & (table.value <= table.hi),
            lambda r: (
                f"the interval [{r.lo}, {r.hi}] must hold the value {r.value}, "
                "or be empty"
            ),
        )
        insist(
            (table.n_seeds >= 1) & (table.n_seeds == table.n_seeds.round()),
            lambda r: f"n_seeds is {r.n_seeds}; give a whole number from 1",
        )
    by = ["key"] if kind == "ours" else POINT
    twice = table.duplicated([*by, "tier"])
    if twice.any():
        i = twice.idxmax()
        what = " ".join(map(str, table.loc[i, by]))
        raise ResultError(f"{where}, row {i + 1}: {what} occurs twice at one tier")
    return table.astype({"n_seeds" if kind == "ours" else "seed": int})


def parts(root, kind, reported):
    """All parts of one kind below `root`, checked and put together; several tiers may
    stand side by side.

    Of a kept copy <name>.<tier>.csv, what <name>.csv holds at that tier is left out,
    all its seeds together. No parts at all: an empty frame. Parts of papers that are
    not here are left out, and a line says so.
    """
    found, fresh, by = [], {}, ["key"] if kind == "ours" else POINT
    here, absent = papers.found(), []
    what = [c for c in (*by, "tier") if c != "seed"]
    for path in sorted(
        (Path(root) / kind).glob("*.csv"), key=lambda p: (p.stem.count("."), p.name)
    ):
        name, _, tier = path.stem.partition(".")
        if tier and tier not in TIERS:
            raise ResultError(
                f"{path}: {tier!r} is no tier; a kept part is called "
                f"{name}.paper.csv, say"
            )
        try:
            table = pd.read_csv(path, dtype=str, keep_default_na=False)
        except pd.errors.EmptyDataError:
            raise ResultError(f"{path} is empty: run its stage again") from None
        if _of_another(table, name, here):
            absent.append(path.name)
            continue
        table = check(table, kind, reported, str(path))
        if tier and (wrong := table.tier[table.tier != tier]).size:
            raise ResultError(
                f"{path}, row {wrong.index[0] + 1}: tier {wrong.iloc[0]!r}; here "
                f"is {tier!r}"
            )
        of = pd.Series(list(zip(*(table[c] for c in what))), table.index, dtype=object)
        if tier:
            table = table[~of.isin(fresh.get(name, ()))]
        else:
            fresh[name] = set(of)
        found.append(table.assign(part=path.name))
    if absent:
        print(f"left out, since their papers are not here: {kind}/{', '.join(absent)}")
    if not found:
        return pd.DataFrame(columns=OURS if kind == "ours" else SEEDS)
    table = pd.concat(found, ignore_index=True)
    twice = table.duplicated([*by, "tier"])
    if twice.any():
        i = twice.idxmax()
        same = table[(table[[*by, "tier"]] == table.loc[i, [*by, "tier"]]).all(axis=1)]
        what, files = " ".join(map(str, table.loc[i, by])), " and in ".join(same.part)
        raise ResultError(
            f"{what} is in {files}, at tier {table.tier[i]}; let one stage write it"
        )
    return table.drop(columns="part")


def _of_another(table, name, here):
    """Is a part called after one paper, whose rows it has, and that is not here?

    A misspelt paper in a part of another name is an error, not a paper.
    """
    of = set(table["paper"]) if "paper" in table else set()
    return len(of) == 1 and not of & set(here) and name.startswith(f"{min(of)}-")


def save(table, kind, name, root="results"):
    """Check a part and write it to results/<kind>/<name>.csv.

    kind: "ours" or "seeds".
    """
    if kind not in ("ours", "seeds"):
        raise ResultError(f"save(kind={kind!r}): choose 'ours' or 'seeds'")
    if not re.fullmatch(r"[a-z0-9_-]+", name):
        raise ResultError(
            f"save(name={name!r}): small letters, digits, - and _, as in "
            "'fedga-synthetic'"
        )
    table = check(pd.DataFrame(table), kind, read_reported(), f"{kind} part {name}")
    by = ["key", "tier"] if kind == "ours" else [*POINT, "tier"]
    return write(
        table.sort_values(by, kind="stable"), Path(root) / kind / f"{name}.csv"
    )


def best_tier(table, by):
    """Of the rows that share `by`, those of the best tier."""
    rank = table.tier.map(TIERS.index)
    return (
        table[rank == rank.groupby([table[c] for c in by]).transform("max")]
        if len(table)
        else table
    )


# from seeds to cells


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
        raise ResultError(
            f"cells: the seeds mix the studies {', '.join(sorted(set(seeds.study)))}; "
            "pass one"
        )
    printed = reported[(reported.paper == paper) & (reported.artefact == artefact)]
    if metrics is None and not len(printed):
        raise ResultError(
            (
                f"cells: {paper} prints no number in {artefact!r}; name the metrics, "
                "or correct: "
            )
            + hint(artefact, artefacts.names(reported).get(paper, papers.found()))
        )
    pairs = list(zip(seeds.dataset, seeds.metric))
    wanted = (
        {p for p in pairs if p[1] in metrics}
        if metrics
        else set(zip(printed.dataset, printed.metric))
    )
    methods = set(
        methods
        or (
            seeds.method
            if metrics
            else {*printed.method, *papers.about(paper)["controls"]}
        )
    )
    seeds = seeds[
        pd.Series([p in wanted for p in pairs], seeds.index, dtype=bool)
        & seeds.method.isin(methods)
    ]
    seeds = seeds if settings is None else _called(seeds, settings)
    rows = []
    for r in filter(None, (rule, *also)):
        own = seeds[seeds.rule.isin([r, "run"] if r == rule else [r])]
        for at, g in own.groupby(
            ["dataset", "method", "setting", "metric", "tier", "data", "rule"]
        ):
            dataset, method, setting, metric, tier, data, used = at
            if r != rule:
                setting = ";".join(filter(None, [setting, f"rule={r}"]))
            i = interval(g.value) if g.value.map(math.isfinite).all() else None
            runs, commit = (
                " ".join(sorted(set(g[c]) - {""})) for c in ("run_ids", "commit")
            )
            rows.append(
                {
                    "key": key(paper, artefact, dataset, method, metric, setting),
                    "paper": paper,
                    "artefact": artefact,
                    "dataset": dataset,
                    "method": method,
                    "setting": setting,
                    "metric": metric,
                    "value": i.mean if i else math.inf,
                    "lo": i.lo if i else math.nan,
                    "hi": i.hi if i else math.nan,
                    "n_seeds": len(g),
                    "rule": used,
                    "data": data,
                    "tier": tier,
                    "device": ", ".join(sorted(set(g.device) - {""})),
                    "minutes": g.minutes.sum(min_count=1),
                    "run_ids": runs,
                    "commit": commit,
                    **provenance,
                }
            )
    if not rows:
        sought = (
            ", ".join(sorted("/".join(w) for w in wanted))
            or f"the metrics {', '.join(metrics)}"
        )
        by = (
            " or ".join(repr(r) for r in filter(None, (rule, *also)))
            or "no rule at all"
        )
        raise ResultError(
            f"cells: the seeds have nothing for {paper} {artefact} by {by}: {sought}"
        )
    return check(pd.DataFrame(rows), "ours", reported, f"cells of {artefact}")


def _called(seeds, settings):
    """The seeds whose setting has all parts of one of `settings`,
    the first that fits; see `cells`.
    """
    names, out = (
        settings if isinstance(settings, dict) else {s: s for s in settings},
        [],
    )
    for how in seeds.setting:
        own = pieces(how)
        fits = [parts for parts in names if set(pieces(parts)) <= set(own)]
        rest = [p for p in own if p not in pieces(fits[0])] if fits else ()
        out.append(";".join([*pieces(names[fits[0]]), *rest]) if fits else None)
    return seeds.assign(setting=out)[[how is not None for how in out]]


# for notebooks


def printed(paper, artefact, metric):
    """{method: number} as the paper prints it; numbers that are lost are left out."""
    r = read_reported().query(
        "paper == @paper and artefact == @artefact and metric == @metric"
    )
    if r.empty:
        raise ResultError(
            f"printed: {paper} prints no {metric} in {artefact!r}; see reported.csv"
        )
    return {m: float(v) for m, v in zip(r.method, r.reported) if v}


def beside(ours, paper, artefact):
    """The paper's numbers of one artefact beside ours: a row per data set and method,
    two columns per metric.
    """
    mine = ours[(ours.paper == paper) & (ours.artefact == artefact)]
    if mine.empty:
        raise ResultError(
            f"beside: ours holds nothing of {paper} {artefact!r}; "
            f"{hint(artefact, set(ours.artefact))}"
        )
    both = mine.merge(read_reported()[["key", "reported"]], on="key", how="left")
    both["reported"] = pd.to_numeric(both.reported)
    rows = ["dataset", "method"] + (["setting"] if (both.setting != "").any() else [])
    table = both.pivot_table(
        index=rows, columns="metric", values=["reported", "value"], sort=False
    )
    table = (
        table.swaplevel(axis=1)
        .sort_index(axis=1, level=0, sort_remaining=False)
        .rename(columns={"value": "ours"})
    )
    return table.round(3)


# the ledger


def join(reported, ours, seeds):
    """The ledger: reported.csv and ours side by side, one row per key, with the
    verdict. Paper's order, ours-only last. seeds: what ours was made of."""
    ours = best_tier(ours, ["key"])
    values = by_seed(ours, seeds)
    ours = ours.rename(columns={"value": "ours", "lo": "ours_lo", "hi": "ours_hi"})
    both = reported.merge(ours.drop(columns=CELL), on="key", how="left")
    extra = ours[~ours.key.isin(set(reported.key))]
    first = {
        (a, b): i
        for i, (a, b) in reversed([*enumerate(zip(reported.paper, reported.artefact))])
    }
    extra = extra.assign(
        reported="", reported_spread="", relation="=", model=None
    ).sort_values("key")
    table = pd.concat([both, extra], ignore_index=True) if len(extra) else both
    here = papers.found()
    place = [
        (
            here.index(p),
            first.get((p, a), len(first)),
            a if (p, a) not in first else "",
            i,
        )
        for i, (p, a) in enumerate(zip(table.paper, table.artefact))
    ]
    table = table.iloc[sorted(range(len(table)), key=place.__getitem__)].reset_index(
        drop=True
    )
    for c in ("ours", "ours_lo", "ours_hi", "n_seeds"):
        table[c] = table[c].astype(float)

    models = reported[reported.model != ""].groupby(["paper", "dataset"]).model.unique()
    alone = {at: m[0] for at, m in models.items() if len(m) == 1}
    table["model"] = [
        alone.get((r.paper, r.dataset), "") if pd.isna(r.model) else r.model
        for r in table.itertuples()
    ]
    table = judge(table, values)
    table["n_seeds"] = [shown(n if math.isnan(n) else int(n)) for n in table.n_seeds]
    return table[LEDGER].fillna(
        {c: "" for c in ("rule", "data", "tier", "device", "run_ids", "commit")}
    )


def keep(tier, root="results"):
    """Copy the rows of a tier to <name>.<tier>.csv,
    so that later runs at other tiers leave them -> paths.
    """
    if tier not in TIERS:
        raise ResultError(f"keep({tier!r}): {hint(tier, TIERS)}")
    made = []
    for path in sorted(
        p for kind in ("ours", "seeds") for p in (Path(root) / kind).glob("*.csv")
    ):
        table = pd.read_csv(path, dtype=str, keep_default_na=False)
        if "." not in path.stem and (table.tier == tier).any():
            made.append(
                write(
                    table[table.tier == tier], path.with_name(f"{path.stem}.{tier}.csv")
                )
            )
    return made


def main(argv=None):
    """Collate, join, judge, and write ours.csv, ledger.csv and artefacts.csv."""
    parser = argparse.ArgumentParser(
        prog="python -m repro.ledger", description=main.__doc__
    )
    parser.add_argument(
        "--results",
        default="results",
        help="folder with ours/ and seeds/ (default: results)",
    )
    parser.add_argument(
        "--keep",
        nargs="?",
        const="paper",
        metavar="TIER",
        help="keep the parts of a tier",
    )
    args = parser.parse_args(argv)
    if args.keep:
        for path in keep(args.keep, args.results):
            print(f"kept {path}")
    root, reported = Path(args.results), read_reported()
    ours = best_tier(parts(root, "ours", reported), ["key"])
    table = join(reported, ours, parts(root, "seeds", reported))
    write(ours[OURS].sort_values("key", kind="stable"), root / "ours.csv")
    write(table, root / "ledger.csv")
    write(artefacts.table(reported, ours, root), root / "artefacts.csv")
    counts = table.verdict.value_counts()
    print(
        f"{len(table)} rows: "
        + ", ".join(f"{n} {v}" for v, n in counts.sort_index().items())
    )


def publish(name, seeds, artefacts, root="results", **more):
    """Write results/seeds/<name>.csv and, for {artefact: keywords of cells, or a list
    of them}, results/ours/<name>.csv.

    The keywords `study` and `seed` take the rows of one study and one seed, where there
    are several.
    """
    seeds = (
        pd.concat(seeds, ignore_index=True)
        if isinstance(seeds, (list, tuple))
        else seeds
    )
    save(seeds, "seeds", name, root)
    rows = []
    for artefact, wanted in artefacts.items():
        for kw in wanted if isinstance(wanted, list) else [wanted]:
            some = seeds
            for k in {"study", "seed"} & set(kw):
                some = some[some[k] == kw[k]]
            kw = {k: v for k, v in kw.items() if k not in ("study", "seed")}
            rows.append(cells(some, seeds.paper.iloc[0], artefact, **kw))
    ours = pd.concat(rows, ignore_index=True) if rows else pd.DataFrame(columns=OURS)
    save(ours, "ours", name, root)
    return ours


if __name__ == "__main__":
    ends.program("python -m repro.ledger", main)
