"""Test every claim, measure every deviation, and write the tables; called by
`python -m repro.claims`, a command of the stage results of dvc.yaml.
"""

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd

from fedlib.measures import verdicts
from fedlib.study.results import write
from repro import papers
from repro.claims.declared import declared
from repro.claims.deviations import deviations, effects, read_deviations
from repro.claims.findings import REACHED, Finding, seen
from repro.claims.values import Values, say
from repro.ledger import TIERS, best_tier, parts, read_reported
from repro.metrics import METRICS

COLUMNS = [
    *("key", "paper", "artefact", "family", "claim", "section", "quote", "by"),
    *("holds", "size", "reason", "gain", "metric", "effect", "lo", "hi", "n_seeds"),
    *("margin", "printed", "p", "q", "needs", "evidence", "data", "tier", "runs"),
    "kind",
]
# field of a headline in paper.yaml -> column of the seeds
HEADLINE = {"studies": "study", "methods": "method"}
HEADLINE |= {"settings": "setting", "metrics": "metric"}
CLOSED = (
    "{reference_method} gets {gate:.0%} of the way from chance ({chance:.1f} %) to "
    "central training ({centralised:.1f} %): half is the least that tests a claim"
)


def listed():
    """The claims of all papers that are here, paper by paper: those declared first."""
    own = lambda paper: getattr(papers.module(paper, "claims"), "CLAIMS", ())
    return tuple(c for p in papers.found() for c in (*declared(p), *own(p)))


def check_claims(claims, seeds, reported=None, closed=None):
    """claims.csv: one row per claim -> frame [claims, COLUMNS].

    seeds: all parts, any tiers; reported: frame of reported.csv; closed: {(paper, tier,
    data set): why it fails the gate}."""
    at, rows, shut = {}, [], (closed or {}).items()
    for (paper, tier), g in seeds.groupby(["paper", "tier"]):
        why = {d: w for (*of, d), w in shut if of == [paper, tier]}
        at[paper, tier] = Values.of(g, why)
    for c in claims:
        if not c.printed:
            runs = {t: at[c.paper, t] for t in reversed(TIERS) if (c.paper, t) in at}
            f, tier, v = at_best_tier(c, runs)
        else:
            f, tier, v = c.test(reported), "exact", None
        place = where(c, v, tier)
        printed = None if "stand-in" in place["data"] else reported
        rows.append(described(c, f, printed) | place)
    table = pd.DataFrame(rows, columns=COLUMNS)
    for _, g in table[table.p.notna()].groupby(["paper", "by"]):
        p = np.stack(g.p)  # [claims, 3]: yes, no, alike; each has a q of its own
        mine = g.holds.map({"no": 1, "alike": 2}).fillna(0).astype(int)
        own = np.arange(len(g)), mine  # of what is open "yes"
        table.loc[g.index, ["p", "q"]] = np.c_[p[own], verdicts.survivors(p)[own]]
    return table.astype({"p": float})


def at_best_tier(c, runs):
    """The finding of a claim at the best tier that has all its numbers, or else some
    -> (Finding, tier, Values); runs: {tier: Values}, the best first."""
    found = {t: (seen(c.test, w := v.watched()), w) for t, v in runs.items()}
    whole = [tier for tier, (f, _) in found.items() if not f.missing]
    some = [tier for tier, (f, _) in found.items() if f.holds != "not run"]
    if not whole + some:
        none = Finding("not run", "no runs of this paper"), None
        f, v = next(iter(found.values()), none)
        return f._replace(reason=f.evidence), "", v
    tier = (whole + some)[0]
    f, v = found[tier]
    if tier == "tiny" and f.holds in REACHED:
        said = f"{f.evidence}; tier tiny decides nothing"
        f = f._replace(holds="undecided", evidence=said)
    return f, tier, v


def described(c, f, reported):
    """The columns of a claim that say what it is and what was found.

    reported: as for check_claims, or None on a stand-in, where a printed gain says as
    little as a printed level."""
    row = {"family": c.family or c.key, "claim": c.text}
    row |= {
        k: getattr(c, k) for k in ("key", "paper", "artefact", "section", "quote", "by")
    }
    row |= {k: getattr(f, k) for k in ("holds", "reason", "evidence", "kind")}
    if f.holds in REACHED and f.p is not None:
        row["p"] = verdicts.over_looks([f.p.yes, f.p.no, f.p.alike])
        row["needs"] = f.needs
    if f.holds in REACHED and f.span is not None:
        s = f.span
        row |= {"metric": f.metric, "effect": s.mean, "lo": s.lo, "hi": s.hi}
        row |= {"n_seeds": s.n, "margin": f.margin or math.nan, "size": size(f)}
        g = printed_gain(f.gain, c, reported)
        if g is not None and not math.isnan(s.lo):
            beside = "excluded" if g > s.hi else "exceeded" if g < s.lo else "contained"
            row |= {"printed": g, "gain": beside}
            row["evidence"] += f"; the paper's gain of {say(f.metric, g)} is {beside}"
    return row


def size(f):
    """How a difference compares with its margin: "beyond" it with the whole interval,
    "small" where that lies inside, or ""."""
    if f.kind != "sign" or f.holds not in ("yes", "no") or not f.margin:
        return ""
    near, far = sorted((abs(f.span.lo), abs(f.span.hi)))
    return "beyond" if near > f.margin else "small" if far < f.margin else ""


def printed_gain(asked, claim, reported):
    """How much better the paper's method is than the best of its rivals, in the units
    of the metric and beyond what the claim takes off -> float, or None where the paper
    does not print both.

    asked: (metric, place, run, rivals, least) of a Finding; runs are keywords of
    Values.get. The paper's numbers are those of the claim's own artefact, of a mean
    over several data sets its Avg."""
    if asked is None or reported is None or claim.by == "ours":
        return None
    metric, place, mine, rivals, least = asked
    of = {"paper": claim.paper, "artefact": claim.artefact, "metric": metric}
    of["dataset"] = place if isinstance(place, str) else "Avg"
    table = reported[(reported[[*of]] == pd.Series(of)).all(axis=1)]
    own, *others = (printed_of(table, run) for run in (mine, *rivals))
    if own is None or None in others:
        return None
    return min(METRICS[metric].sign * (own - x) for x in others) - least


def printed_of(table, run):
    """The printed number of a run -> float, or None unless there is exactly one.

    A setting of None is any: of a run that goes by the names of the paper's table. Of
    settings "default" is no part, and neither is what is averaged over ("guest=*")."""
    parts = lambda setting: (
        {s.strip() for s in setting.split(";") if not s.strip().endswith("=*")}
        - {"", "default"}
    )
    mine = table[(table.method == run["method"]) & (table.reported != "")]
    if (wanted := run.get("setting", "")) is not None:
        mine = mine[[parts(s) == parts(wanted) for s in mine.setting]]
    return float(mine.reported.iloc[0]) if len(mine) == 1 else None


def where(c, v, tier):
    """The columns that say what a claim was tested on; v: the Values that it saw."""
    if v is None:
        return {"data": "", "tier": tier, "runs": ""}
    at = v.asked if c.place == "all" else [(c.study, c.place)]
    kinds = {v.kind(place, study) for study, place in at} - {""} if tier else ()
    runs = " ".join(f"{study}:{dataset}" for study, dataset in sorted(v.asked))
    return {"data": ", ".join(sorted(kinds)), "tier": tier, "runs": runs}


def closed_gates(root):
    """{(paper, tier, data set): why it fails the gate}, of root/gates.csv."""
    path = Path(root) / "gates.csv"
    if not path.exists():
        return {}
    table = pd.read_csv(path)
    shut = table[table.passes == "no"].to_dict("records")
    return {(r["paper"], r["tier"], r["dataset"]): CLOSED.format(**r) for r in shut}


def headline(root, claims, seeds):
    """metrics.json, for `dvc metrics show` and `diff`: each paper's method and its
    controls, counts of claims and verdicts.

    claims: the frame of check_claims; seeds: all parts, any tiers."""
    out, by = {}, ["dataset", "setting", "method", "metric"]
    for paper in papers.found():
        about = papers.about(paper)
        own = seeds[(seeds.paper == paper) & (seeds.rule == about["rule"])]
        for wanted, column in HEADLINE.items():
            own = own[own[column].isin(about["headline"][wanted])]
        for (*at, metric), x in best_tier(own, by).groupby(by).value.mean().items():
            inner = out.setdefault(paper, {})
            for name in filter(None, at):
                inner = inner.setdefault(name, {})
            inner[metric] = round(float(x), 4)
    out["claims"] = answers(claims)
    if (ledger := root / "ledger.csv").exists():
        out["verdicts"] = counts(pd.read_csv(ledger, usecols=["verdict"]).verdict)
    (root / "metrics.json").write_text(json.dumps(out, indent=1) + "\n")


def answers(claims):
    """{answer: how many claims}, first those that hold by more than their margin."""
    size, yes = claims["size"], claims.holds == "yes"
    first = {"yes, by more than the margin": int((yes & (size == "beyond")).sum())}
    return first | counts(claims.holds) | {"small": int((size == "small").sum())}


def counts(words):
    """{word: how often}, sorted."""
    return {k: int(n) for k, n in words.value_counts().sort_index().items()}


def main(*, results: Path = Path("results")):
    """Test every claim, measure every deviation, write claims, deviations, effects.

    results: folder with seeds/"""
    root = results
    reported = read_reported()
    seeds = parts(root, "seeds")
    table = check_claims(listed(), seeds, reported, closed_gates(root))
    write(table, root / "claims.csv")
    entries = read_deviations()
    measured = effects(entries, seeds)
    write(measured, root / "effects.csv")
    write(deviations(entries, measured), root / "deviations.csv")
    headline(root, table, seeds)
    print(f"{len(table)} claims: {answers(table)}")
