"""What a run prints when it is over."""

from __future__ import annotations

from ..measures import bias, metrics, selection


def report(name, task, rec):
    """Print the end of a run: one row per view and selection rule, bias where there are
    groups, bytes.
    """
    meta, scores, biases = rec.meta, [], []
    for moment, view, split in rec.views:
        if split == "test":
            rules = {"last": -1}
            if all(map(len, task.val)) and moment == "pre":
                rules["best_val"] = selection.best_val(rec, view)[0]
            for rule, at in rules.items():
                a = rec[moment, view, "test"][at]
                row = {"model": view, "moment": moment, "round chosen by": rule}
                row |= {"mean %": f"{100 * metrics.mean_acc(a):.1f}"}
                row |= {"worst 10 %": f"{100 * metrics.worst(a):.1f}"}
                row |= {"Gini": f"{metrics.gini(a):.3f}" if len(a) > 1 else "-"}
                scores.append(row)
    for (moment, view, split), counts in rec.cells.items():
        if split == "test" and moment != "guest":
            n, s = bias.pooled(counts[-1]), rec.consistency[moment, view][-1].sum(0)
            numbers = {"EO": bias.EO(n), "DP": bias.DP(n), "CAL": bias.CAL(n)}
            numbers |= {"CON": bias.CON(s)}
            for group, of in zip(task.groups.names, n):
                numbers[f"positive {group}"] = bias.positive_rate(of[None])
            shown = {f"{k}, %": f"{100 * v:.1f}" for k, v in numbers.items()}
            biases.append({"model": view, "moment": moment} | shown)
    done = f"{task.C} clients, {meta['rounds']} rounds, seed {meta['seed']}"
    made = f"{task.kind} data, {meta['device']}, {meta['seconds']:.1f} s"
    print(f"{name} on {task.name}: {done}, {made}\n", columns(scores), sep="\n")
    if biases:
        names = " and ".join(task.groups.names)
        print(f"\nbias between {names}, last round, all test rows together\n")
        print(columns(biases))
    total = lambda leaves: sum(e["bytes"] for e in leaves.values())
    sent = [f"{way} {total(leaves):,}" for way, leaves in meta["bytes"].items()]
    print(f"\nbytes per client and round: {', '.join(sent)}")


def columns(rows):
    """Rows {column: text} as a table of text."""
    lines = [[*rows[0]], *([*row.values()] for row in rows)]
    wide = [max(map(len, column)) for column in zip(*lines)]
    return "\n".join("  ".join(map(str.ljust, line, wide)).rstrip() for line in lines)
