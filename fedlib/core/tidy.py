"""A record as a tidy table, as a few numbers, and in two lines."""

from __future__ import annotations

import html as escape
import io

import numpy as np

from .files import whole
from .models import place

SPLIT = {"all": "train"}  # scored on all training rows
GUEST = {"test": "guest", "val": "guest_val", "all": "guest_train"}  # in meta["n"]
# a column of a frame -> its type, None for texts
TEXTS = dict.fromkeys(("name", "moment", "view", "split"))
COLUMNS = {"round": "int64", "client": "int64"} | TEXTS
COLUMNS |= {"rows": "int64", "accuracy": "float64"}


def frame(record):
    """A DataFrame with one row per round, client, moment, view and split.

    round; client: its number, of a guest -1, -2, ...; name: its owner, missing where
    clients have no names; moment, view, split; rows: how many the client has of this
    split; accuracy: a fraction, missing where it has none.
    """
    import pandas as pd  # here, so that `import fedlib` stays quick

    blocks = [block(record, key, a) for key, a in record.views.items() if len(a)]
    joined = {c: [v for b in blocks for v in b[c]] for c in COLUMNS}
    return pd.DataFrame(joined).astype({c: t for c, t in COLUMNS.items() if t})


def block(record, key, a):
    """The columns of one view; a [E, C]."""
    (moment, _, split), (E, C), meta = key, np.shape(a), record.meta
    guests, clients = moment == "guest", np.arange(C)
    names = [None] * C if guests or not meta["owners"] else list(meta["owners"])
    rows = meta["n"][GUEST[split] if guests else SPLIT.get(split, split)]
    # a view that is scored after training has no row for the last round
    rounds = np.asarray(record.rounds, int)[:E]
    where = rounds.repeat(C), np.tile(-1 - clients if guests else clients, E), names * E
    what = [[v] * (E * C) for v in key]
    values = *where, *what, list(rows) * E, np.asarray(a, float).ravel()
    return dict(zip(COLUMNS, values))


def write(record, path, form):
    """Write the table, with method, task and seed in front, so that those of several
    runs can be put one below the other."""
    path, buffer, table = place(path, (f".{form}",)), io.BytesIO(), frame(record)
    for i, column in enumerate(("method", "task", "seed")):
        table.insert(i, column, record.meta[column])
    getattr(table, f"to_{form}")(buffer, index=False)
    whole(path, lambda f: f.write(buffer.getbuffer()))


def summary(record):
    """{"moment/view/split/mean": fraction, ".../worst": fraction} of the last round in
    which each was scored; clients without rows of a split do not count.

    worst: the mean of the worst tenth, as fedlib.metrics.worst.
    """
    out = {}
    for key, views in record.views.items():
        if len(views):
            a = np.sort(np.asarray(views[-1], float))  # missing ones come last
            a = a[~np.isnan(a)]
            name, k = "/".join(key), max(1, len(a) // 10)
            out[f"{name}/mean"] = float(a.mean()) if len(a) else float("nan")
            out[f"{name}/worst"] = float(a[:k].mean()) if len(a) else float("nan")
    return out


def heading(record):
    """What was run, and how far it came."""
    meta = record.meta
    done = f"{meta['rounds']} round{'s' if meta['rounds'] != 1 else ''}"
    if "diverged" in meta:
        at = meta["diverged"]
        done = f"diverged in round {at['round']} of {done}, client {at['client']}"
    elif meta.get("unfinished"):
        done = f"stopped after {len(record.logs.get('cohort', ()))} of {done}"
    return f"{meta['method']} on {meta['task']}: {done}, seed {meta['seed']}"


def text(record):
    """The record in two lines."""
    last, keys = summary(record), [k for k in record.views if k[0] == "pre"]
    views = list(dict.fromkeys(view for _, view, _ in keys))
    numbers = [
        f"{view} {last[f'pre/{view}/test/mean']:.3f} "
        f"(worst tenth {last[f'pre/{view}/test/worst']:.3f})"
        for view in views
        if f"pre/{view}/test/mean" in last
    ]
    said = f"test accuracy {', '.join(numbers)}" if numbers else "nothing scored yet"
    return f"<Record of {heading(record)}\n {said}>"


def html(record):
    """The same for a notebook: a small table of what was scored last."""
    cell = lambda v: f"<td>{escape.escape(v)}</td>"
    last, rows = summary(record), []
    for key in record.views:
        name = "/".join(key)
        if f"{name}/mean" in last:
            mean, worst = (f"{last[f'{name}/{of}']:.3f}" for of in ("mean", "worst"))
            rows.append(f"<tr>{''.join(map(cell, (*key, mean, worst)))}</tr>")
    titles = ("moment", "view", "split", "mean", "worst tenth")
    head = "".join(f"<th>{t}</th>" for t in titles)
    table = f"<table><tr>{head}</tr>{''.join(rows)}</table>" if rows else ""
    return f"<p>{escape.escape(heading(record))}</p>{table}"
