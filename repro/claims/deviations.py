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

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import yaml

from fedlib.measures.statistics import paired
from repro import papers
from repro.claims.values import NotRun, Values, common, say
from repro.ledger import METRICS, TIERS, ResultError, hint

DEVIATIONS = [
    "key",
    "paper",
    "title",
    "where",
    "methods",
    "mark",
    "paper_says",
    "code_says",
    "we_do",
    "why",
    "status",
    "dataset",
    "metric",
    "effect",
    "effect_lo",
    "effect_hi",
    "n_seeds",
    "data",
    "tier",
    "evidence",
]
EFFECTS = [
    "key",
    "paper",
    "dataset",
    "metric",
    "ours_is",
    "other_is",
    "ours",
    "other",
    "effect",
    "effect_lo",
    "effect_hi",
    "n_seeds",
    "data",
    "tier",
    "evidence",
]
MARKS = ("certain", "supported", "reconstruction")
FIELDS = {
    "id",
    "title",
    "where",
    "paper",
    "code",
    "ours",
    "why",
    "mark",
    "methods",
    "effect",
    "unmeasured",
}
RUN = {"method", "setting", "study", "metric", "rule"}


def read_deviations(where=None):
    """deviations.yaml of every paper that is here, one after the other -> dicts.

    where: a folder of papers in place of the repository's papers/. Raises ResultError.
    """
    where = Path(where or papers.folder())
    return [d for p in papers.found(where) for d in deviations_of(p, where)]


def deviations_of(paper, where=None):
    """papers/<paper>/deviations.yaml, checked -> dicts. Raises ResultError."""
    path = Path(where or papers.folder()) / paper / "deviations.yaml"
    if not path.exists():
        raise ResultError(
            f"{path} is missing: it is part of the repository, restore it with git"
        )
    try:
        entries = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as e:
        raise ResultError(f"{path} is no valid YAML: {e}") from None
    if not isinstance(entries, list) or not all(isinstance(d, dict) for d in entries):
        raise ResultError(f"{path}: give a list of deviations, each a mapping")
    for k, d in enumerate(entries, 1):
        at = f"{path}, {d.get('id', 'entry without id')}"
        if odd := set(d) - FIELDS:
            raise ResultError(
                f"{at}: unknown field {min(odd)!r}; {hint(min(odd), FIELDS)}"
            )
        lost = FIELDS - {"methods", "effect", "unmeasured"} - {k for k in d if d[k]}
        if lost:
            raise ResultError(f"{at}: {min(lost)} is missing")
        name, _, number = d["id"].rpartition("-")
        if name.lower() != paper:
            raise ResultError(f"{at}: deviations of {paper} stand here")
        if number != str(k):
            raise ResultError(
                f"{at}: number the deviations in order; here {name}-{k} is due"
            )
        if d["mark"] not in MARKS:
            raise ResultError(f"{at}: mark is {d['mark']!r}; {hint(d['mark'], MARKS)}")
        if bool(d.get("effect")) == bool(d.get("unmeasured")):
            raise ResultError(
                f"{at}: give either an effect to compute or a reason under unmeasured"
            )
        for e in d.get("effect") or ():
            if odd := set(e) - {"dataset", "metrics", "ours", "other"}:
                raise ResultError(f"{at}: unknown field {min(odd)!r} in an effect")
            if lost := {"dataset", "metrics", "ours", "other"} - set(e):
                raise ResultError(f"{at}: an effect has no {min(lost)}")
            for side in ("ours", "other"):
                if odd := set(e[side]) - RUN:
                    raise ResultError(
                        f"{at}: unknown field {min(odd)!r} in {side}; "
                        f"{hint(min(odd), RUN)}"
                    )
                if "method" not in e[side]:
                    raise ResultError(f"{at}: {side} has no method")
            for m in (
                *e["metrics"],
                *(e[s]["metric"] for s in ("ours", "other") if "metric" in e[s]),
            ):
                if m not in METRICS:
                    raise ResultError(f"{at}: metric is {m!r}; {hint(m, METRICS)}")
    return entries


def effects(entries, seeds):
    """effects.csv: what each deviation changes, ours minus other, paired by
    seed -> frame [.., EFFECTS].

    One row per deviation, comparison and metric. seeds: all parts, any tiers; the best
    tier with both sides counts.
    """
    at = {(p, t): Values.of(g) for (p, t), g in seeds.groupby(["paper", "tier"])}
    rows, shown = [], ("method", "study", "setting", "metric", "rule")
    for d in entries:
        paper = d["id"].rpartition("-")[0].lower()
        for e in d.get("effect") or ():
            name = {
                side: " ".join(e[side][k] for k in shown if k in e[side])
                for side in ("ours", "other")
            }
            for metric in e["metrics"]:
                row = {
                    "key": d["id"].lower(),
                    "paper": paper,
                    "dataset": e["dataset"],
                    "metric": metric,
                    "ours_is": name["ours"],
                    "other_is": name["other"],
                    "evidence": "not run",
                }
                for tier in reversed(TIERS):
                    if (paper, tier) in at and (
                        found := _effect(at[paper, tier], metric, e)
                    ):
                        row |= found | {"tier": tier}
                        break
                rows.append(row)
    return pd.DataFrame(rows, columns=EFFECTS)


def _effect(v, metric, e):
    """One comparison at one tier -> columns of EFFECTS,
    or None where a side was not run.
    """
    of, data = (
        {"metric": metric, "dataset": e["dataset"]},
        v.kind(e["dataset"], e["ours"].get("study", "")),
    )
    try:
        x, y = common(v.get(**of | e["ours"]), v.get(**of | e["other"]))
        if not np.isfinite([*x, *y]).all():  # a round that never comes has no mean
            return {
                "n_seeds": len(x),
                "data": data,
                "evidence": f"{metric} {_never(x)} against {_never(y)}",
            }
        i = paired(x, y)
    except NotRun:
        return None
    return {
        "ours": x.mean(),
        "other": y.mean(),
        "effect": i.mean,
        "effect_lo": i.lo,
        "effect_hi": i.hi,
        "data": data,
        "n_seeds": i.n,
        "evidence": (
            f"{metric} {say(metric, x.mean())} against {say(metric, y.mean())}: "
            f"{span(metric, i)}"
        ),
    }


def deviations(entries, measured):
    """deviations.csv: one row per deviation, with its first effect as the headline and
    all of them as evidence -> frame [deviations, DEVIATIONS]. measured: the frame of
    `effects`.
    """
    rows = []
    for d in entries:
        mine = measured[measured.key == d["id"].lower()]
        done = mine[mine.evidence != "not run"]
        status = (
            "not measured" if mine.empty else "measured" if len(done) else "not run"
        )
        head = done[done.effect.notna()].head(1).to_dict("records") if len(done) else []
        methods = d.get("methods") or sorted(
            {e[s]["method"] for e in d.get("effect") or () for s in ("ours", "other")}
        )
        said = [
            f"{r.dataset}, {r.ours_is} and {r.other_is}: {r.evidence}"
            for r in done.itertuples()
        ]
        rows.append(
            {
                "key": d["id"].lower(),
                "paper": d["id"].rpartition("-")[0].lower(),
                "title": d["title"],
                "where": d["where"],
                "methods": " ".join(methods),
                "mark": d["mark"],
                "paper_says": d["paper"],
                "code_says": d["code"],
                "we_do": d["ours"],
                "why": d["why"],
                "status": status,
                "evidence": d.get("unmeasured") or " | ".join(said),
            }
            | {c: head[0][c] for c in DEVIATIONS[11:19] if head}
        )
    return pd.DataFrame(rows, columns=DEVIATIONS)


def span(metric, i):
    """An interval in words."""
    if i.n < 2:
        return f"{say(metric, i.mean)}, one seed"
    return (
        f"{say(metric, i.mean)} [{say(metric, i.lo)}, {say(metric, i.hi)}], {i.n} seeds"
    )


def _never(x):
    """A Series with infinite values in words:
    "11 to 14", "80 to 80, never in 1 of 2 seeds".
    """
    ends, lost = x[np.isfinite(x)], int((~np.isfinite(x)).sum())
    return ", ".join(
        filter(
            None,
            (
                f"{ends.min():g} to {ends.max():g}" if len(ends) else "",
                f"never in {lost} of {len(x)} seeds" if lost else "",
            ),
        )
    )
