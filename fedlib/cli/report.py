"""What a run prints when it is over, and tables of text."""

from __future__ import annotations

from . import complete

if not complete.ASKED:  # a shell that completes a word cannot wait for torch
    from ..measures import bias, metrics, selection


def report(name, task, rec):
    """Print the end of a run: one row per view and selection rule, bias where there are
    groups, bytes.
    """
    meta = rec.meta
    print(
        f"{name} on {task.name}: {task.C} clients, {meta['rounds']} rounds, "
        f"seed {meta['seed']}, {task.kind} data, {meta['device']}, "
        f"{meta['seconds']:.1f} s\n"
    )
    print(columns(score_rows(task, rec)))
    if rec.cells:
        names = " and ".join(task.groups.names)
        print(f"\nbias between {names}, last round, all test rows together\n")
        print(columns(bias_rows(task, rec)))
    sent = {
        way: sum(e["bytes"] for e in leaves.values())
        for way, leaves in meta["bytes"].items()
    }
    total = ", ".join(f"{way} {n:,}" for way, n in sent.items())
    print(f"\nbytes per client and round: {total}")


def score_rows(task, rec):
    """Mean, worst tenth and Gini of every view, with a head."""
    rows = [("model", "moment", "round chosen by", "mean %", "worst 10 %", "Gini")]
    for moment, view, split in rec.views:
        if split != "test":
            continue
        chosen = {"last": -1}
        if all(map(len, task.val)) and moment == "pre":
            chosen["best_val"] = selection.best_val(rec, view)[0]
        for rule, at in chosen.items():
            a = rec[moment, view, "test"][at]
            mean, worst = 100 * metrics.mean_acc(a), 100 * metrics.worst(a)
            gini = f"{metrics.gini(a):.3f}" if len(a) > 1 else "-"
            rows.append((view, moment, rule, f"{mean:.1f}", f"{worst:.1f}", gini))
    return rows


def bias_rows(task, rec):
    """Bias metrics and shares of positive predictions of every view, with a head."""
    biases = (f"{k}, %" for k in ("EO", "DP", "CAL", "CON"))
    shares = (f"positive {group}, %" for group in task.groups.names)
    rows = [("model", "moment", *biases, *shares)]
    for (moment, view, split), counts in rec.cells.items():
        if split == "test" and moment != "guest":
            n, s = bias.pooled(counts[-1]), rec.consistency[moment, view][-1].sum(0)
            scores = [bias.EO(n), bias.DP(n), bias.CAL(n), bias.CON(s)]
            scores += [bias.positive_rate(group[None]) for group in n]
            rows.append((view, moment, *(f"{100 * v:.1f}" for v in scores)))
    return rows


def plain(v):
    """A value of a hyper-parameter, in words."""
    return f"{v:g}" if isinstance(v, float) else str(v)


def permitted(d):
    """The values that a hyper-parameter may take, from its metadata."""
    if d.get("choices"):
        return ", ".join(map(plain, d["choices"]))
    return "[{}, {}]".format(*map(plain, d["range"])) if d.get("range") else ""


def columns(rows):
    """Rows of text as a table; the first is the head."""
    rows = [[str(c) for c in r] for r in rows]
    wide = [max(map(len, c)) for c in zip(*rows)]
    rows.insert(1, ["-" * n for n in wide])
    return "\n".join(
        "  ".join(c.ljust(n) for c, n in zip(r, wide)).rstrip() for r in rows
    )
