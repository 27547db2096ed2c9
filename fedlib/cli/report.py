"""What a run prints when it is over, and tables of text."""

from __future__ import annotations

from ..measures import bias, metrics, selection


def report(name, task, rec):
    """The end of a run: one row per view and selection rule."""
    print(
        f"{name} on {task.name}: {task.C} clients, {rec.meta['rounds']} rounds, "
        f"seed {rec.meta['seed']}, {task.kind} data, {rec.meta['device']}, "
        f"{rec.meta['seconds']:.1f} s\n"
    )
    rules = {"last": None} | (
        {"best_val": selection.best_val} if all(map(len, task.val)) else {}
    )
    rows = [("model", "moment", "round chosen by", "mean %", "worst 10 %", "Gini")]
    for moment, view, split in rec.views:
        for rule, choose in rules.items():
            if split == "test" and (choose is None or moment == "pre"):
                a = rec[moment, view, "test"][
                    -1 if choose is None else choose(rec, view)[0]
                ]
                rows.append(
                    (
                        view,
                        moment,
                        rule,
                        f"{100 * metrics.mean_acc(a):.1f}",
                        f"{100 * metrics.worst(a):.1f}",
                        f"{metrics.gini(a):.3f}" if len(a) > 1 else "-",
                    )
                )
    print(columns(rows))
    if rec.cells:
        names = task.groups.names
        rows = [
            (
                "model",
                "moment",
                *(f"{k}, %" for k in ("EO", "DP", "CAL", "CON")),
                *(f"positive {a}, %" for a in names),
            )
        ]
        for (moment, view, split), n in rec.cells.items():
            if split == "test" and moment != "guest":
                n, s = bias.pooled(n[-1]), rec.alike[moment, view][-1].sum(0)
                scores = [
                    bias.EO(n),
                    bias.DP(n),
                    bias.CAL(n),
                    bias.CON(s),
                    *(bias.positive_rate(g[None]) for g in n),
                ]
                rows.append((view, moment, *(f"{100 * v:.1f}" for v in scores)))
        print(
            (
                f"\nbias between {' and '.join(names)}, last round, all test rows "
                "together\n\n"
            )
            + columns(rows)
        )
    sent = {
        way: sum(e["bytes"] for e in leaves.values())
        for way, leaves in rec.meta["bytes"].items()
    }
    print(
        "\nbytes per client and round: "
        + ", ".join(f"{way} {n:,}" for way, n in sent.items())
    )


def plain(v):
    return f"{v:g}" if isinstance(v, float) else str(v)


def permitted(d):
    if d.get("choices"):
        return ", ".join(map(plain, d["choices"]))
    return "[{}, {}]".format(*map(plain, d["range"])) if d.get("range") else ""


def quoted(name):
    return name if name.replace("-", "").replace("_", "").isalnum() else f"'{name}'"


def columns(rows):
    """Rows of text as a table; the first is the head."""
    rows = [[str(c) for c in r] for r in rows]
    wide = [max(map(len, c)) for c in zip(*rows)]
    rows.insert(1, ["-" * n for n in wide])
    return "\n".join(
        "  ".join(c.ljust(n) for c, n in zip(r, wide)).rstrip() for r in rows
    )
