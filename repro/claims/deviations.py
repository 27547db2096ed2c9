"""Where we leave a paper, and what that changes; called by repro.claims.report.

papers/<paper>/deviations.yaml is a list of mappings:

    id          FedGA-1, FedGA-2, ... in this order
    title       in a few words
    where       the place in the paper
    paper       what the paper says
    code        what its authors' code does, or that of a rival
    ours        what we do
    why         and why
    mark        certain (readable in the paper, a definition, or forced by its numbers),
                supported (by code, or by the paper's numbers), or reconstruction
    methods     that it is about; those of its effects where none are given
    effect      a list of {dataset, metrics, ours, other}: what is compared, ours minus
                other. Both are keywords of Values.get: {method, setting, study, metric,
                rule}, all but the method optional; `metric` replaces the listed one
    unmeasured  in place of an effect, the reason why there is none
"""

from pathlib import Path
from typing import Annotated, Literal

import pandas as pd
from pydantic import Field, TypeAdapter, ValidationError

from fedlib.data.settings import Model
from fedlib.measures.statistics import paired
from repro import papers
from repro.claims.findings import interval
from repro.claims.values import NotRun, Values, common, say
from repro.ledger import METRICS, TIERS, ResultError

HEAD = ["dataset", "metric", "effect", "effect_lo", "effect_hi", "n_seeds"]
HEAD += ["data", "tier"]
DEVIATIONS = "key paper title where methods mark paper_says code_says we_do why status"
DEVIATIONS = [*DEVIATIONS.split(), *HEAD, "evidence"]
EFFECTS = "key paper dataset metric ours_is other_is ours other effect effect_lo"
EFFECTS = [*EFFECTS.split(), "effect_hi", "n_seeds", "data", "tier", "evidence"]
SHOWN = ("method", "study", "setting", "metric", "rule")  # of a run, in this order


# ---------------------------------------------------------------- the files
Text = Annotated[str, Field(min_length=1)]
MetricName = Literal[tuple(METRICS)]


class Side(Model):
    """Keywords of Values.get."""

    method: str
    setting: str = ""
    study: str = ""
    metric: MetricName | None = None
    rule: str = ""


class Effect(Model):
    """What is compared, ours minus other."""

    dataset: str | list[str]
    metrics: list[MetricName]
    ours: Side
    other: Side


class Deviation(Model):
    """An entry of deviations.yaml."""

    id: Text
    title: Text
    where: Text
    paper: Text
    code: Text
    ours: Text
    why: Text
    mark: Literal["certain", "supported", "reconstruction"]
    methods: list[str] | None = None
    effect: list[Effect] | None = None
    unmeasured: str | None = None


def read_deviations(where=None):
    """deviations.yaml of every paper that is here, one after the other -> dicts.

    where: a folder of papers in place of the repository's papers/. Raises ResultError.
    """
    where = Path(where or papers.folder())
    return [d for p in papers.found(where) for d in deviations_of(p, where)]


def deviations_of(paper, where=None):
    """papers/<paper>/deviations.yaml, checked -> dicts. Raises ResultError."""
    path = Path(where or papers.folder()) / paper / "deviations.yaml"
    entries = papers.parsed(path.read_text(encoding="utf-8"))
    try:
        TypeAdapter(list[Deviation]).validate_python(entries)
    except ValidationError as e:
        raise ResultError(f"{path}: {e}") from None
    for k, d in enumerate(entries, 1):
        name, _, number = d["id"].rpartition("-")
        if name.lower() != paper or number != str(k):
            raise ResultError(f"{path}, {d['id']}: number {k} of {paper} is due here")
        if bool(d.get("effect")) == bool(d.get("unmeasured")):
            raise ResultError(f"{path}, {d['id']}: give an effect or unmeasured: why")
    return entries


# ---------------------------------------------------------------- effects
def effects(entries, seeds):
    """effects.csv: what each deviation changes, ours minus other, paired by
    seed -> frame [.., EFFECTS].

    One row per deviation, comparison and metric. seeds: all parts, any tiers; the best
    tier with both sides counts."""
    at = {(p, t): Values.of(g) for (p, t), g in seeds.groupby(["paper", "tier"])}
    pairs = [(d["id"].lower(), e) for d in entries for e in d.get("effect") or ()]
    rows = []
    for key, e in pairs:
        paper = key.rpartition("-")[0]
        sides = (e["ours"], e["other"])
        ours, other = (" ".join(s[k] for k in SHOWN if k in s) for s in sides)
        tiers = [t for t in reversed(TIERS) if (paper, t) in at]
        for metric in e["metrics"]:
            row = {"key": key, "paper": paper, "dataset": e["dataset"]}
            row |= {"metric": metric, "ours_is": ours, "other_is": other}
            found = (effect(at[paper, t], metric, e) for t in tiers)
            each = (f | {"tier": t} for t, f in zip(tiers, found) if f)
            rows.append(row | next(each, {"evidence": "not run"}))
    return pd.DataFrame(rows, columns=EFFECTS)


def effect(v, metric, e):
    """One comparison at one tier -> columns of EFFECTS; None: a side was not run."""
    of = {"metric": metric, "dataset": e["dataset"]}
    data = v.kind(e["dataset"], e["ours"].get("study", ""))
    try:
        x, y = common(v.get(**of | e["ours"]), v.get(**of | e["other"]))
    except NotRun:
        return None
    i, mine, other = paired(x, y), x.mean(), y.mean()
    row = {"data": data, "n_seeds": len(x), "ours": mine, "other": other}
    row |= {"effect": i.mean, "effect_lo": i.lo, "effect_hi": i.hi}
    said = f"{metric} {say(metric, mine)} against {say(metric, other)}"
    return row | {"evidence": f"{said}: {interval(metric, i)}"}


def deviations(entries, measured):
    """deviations.csv: one row per deviation, with its first effect as the headline and
    all of them as evidence -> frame [deviations, DEVIATIONS]. measured: the frame of
    `effects`."""
    says = {"paper_says": "paper", "code_says": "code", "we_do": "ours"}
    says |= {k: k for k in ("title", "where", "mark", "why")}
    rows = []
    for d in entries:
        key = d["id"].lower()
        mine = measured[measured.key == key]
        done = mine[mine.evidence != "not run"]
        run = "measured" if len(done) else "not run" if len(mine) else "not measured"
        sides = [e[s] for e in d.get("effect") or () for s in ("ours", "other")]
        methods = d.get("methods") or sorted({side["method"] for side in sides})
        of = zip(done.dataset, done.ours_is, done.other_is, done.evidence)
        said = [f"{at}, {ours} and {other}: {what}" for at, ours, other, what in of]
        row = {"key": key, "paper": key.rpartition("-")[0]}
        row |= {"methods": " ".join(methods), "status": run}
        row |= {"evidence": d.get("unmeasured") or " | ".join(said)}
        row |= {column: d[field] for column, field in says.items()}
        for head in done[done.effect.notna()].head(1).to_dict("records"):
            row |= {c: head[c] for c in HEAD}
        rows.append(row)
    return pd.DataFrame(rows, columns=DEVIATIONS)
