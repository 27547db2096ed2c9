"""Tables of measurements: rows of another day stay until they are measured again."""

from __future__ import annotations

import json

import pandas as pd

from . import clock


def keep(rows, out, columns, key, order, command):
    """Write the rows to the csv `out`, sorted by the case as in `order`, and what they
    ran on to a json beside it. Rows with the same `key` (column names) are replaced in
    both, others stay.
    """
    new, about = pd.DataFrame(rows, columns=columns), out.with_suffix(".json")
    of = lambda table: list(zip(*(table[k] for k in key)))
    again, runs = set(of(new)), []
    if out.exists():
        old = pd.read_csv(out)
        new = pd.concat([old[[k not in again for k in of(old)]], new])
    if about.exists():
        runs = [
            r | {"rows": [k for k in r["rows"] if tuple(k) not in again]}
            for r in json.loads(about.read_text())["runs"]
        ]
    runs.append({"command": command, **clock.provenance(), "rows": sorted(again)})
    place = {n: i for i, n in enumerate(order)}
    new = new.sort_values("case", key=lambda s: s.map(place), kind="stable")
    out.parent.mkdir(parents=True, exist_ok=True)
    new.to_csv(out, index=False, float_format="%.4g", lineterminator="\n")
    about.write_text(
        json.dumps({"runs": [r for r in runs if r["rows"]]}, indent=1) + "\n"
    )
