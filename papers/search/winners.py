"""Which settings win the search, and rows that share a run.

    python -m papers.search.winners SEARCH [TASK ...]

A run of "FedGA+FT" is two rows: FedGA, and FedGA after 0, 1, 5 or 10 passes of
fine-tuning. So no passes are drawn: each setting has all of them, and 0 among them lets
X+FT tie with X.
"""

import json
from dataclasses import replace
from pathlib import Path

import yaml

from fedlib.cli.program import program
from fedlib.methods.others import FT
from fedlib.methods.search import FINALISTS, best
from fedlib.study import studies
from fedlib.study.experiment import study
from repro import papers
from repro.winners import HEAD, levels, point

PATH, ALSO = Path("papers/search/winners.yaml"), ";also="
FINAL = {"pilot": "final"}  # of the others it is called as they are


def unfolded(run):
    """A Study with a cell for each row and number of passes, see above; a row that has
    runs of its own is taken from these."""
    own = run.methods()
    every = [row for at in run.of() for row in rows(*at, own)]
    cells, records = map(list, zip(*every))
    return replace(run, cells=cells, records=records)


def rows(c, r, own=()):
    """[(Cell, Record)] of one run."""
    kwargs = json.loads(c.kwargs)
    if "also" not in kwargs:
        return [(c, r)]
    views = {0: "global"} | {k: f"tuned {k}" for k in kwargs.pop("also")}
    views[kwargs.pop("tune")], out = "tuned", []
    words = [w for w in c.setting.split(";") if not w.startswith(ALSO[1:])]
    how = {"setting": ";".join(words), "kwargs": json.dumps(kwargs)}
    if (plain := c.method.removesuffix(FT)) not in own:
        out = [(replace(c, method=plain, **how), r)]
    for k, view in views.items():
        of = {s: a for (m, v, s), a in r.views.items() if (m, v) == ("pre", view)}
        seen = {("pre", "tuned", s): a for s, a in of.items()}
        how = {"setting": ";".join((*words, f"tune={k}"))}
        how["kwargs"] = json.dumps(kwargs | {"tune": k})
        out.append((replace(c, **how), replace(r, views=seen)))
    return out


def chosen(drawn, *finals):
    """{row: {task: {"finalists": [...], and of finals "mean" and "worst"}}}."""
    rule, out = papers.about("search")["rule"], {}
    for (task, row), level in levels(rule, "mean", drawn):
        runs = {}  # of one run the best number of passes
        for s in best(level, len(level)):
            at = point(drawn, row, task, s)
            if row.endswith(FT):
                at = {k: v for k, v in at.items() if k != "tune"} | {"also": [1, 5]}
            runs.setdefault(str(at), at)
        some = {"finalists": [*runs.values()][:FINALISTS]}
        out.setdefault(row, {})[task] = some
    for by in ("mean", "worst") if finals else ():
        for (task, row), level in levels(rule, by, drawn, *finals):
            out[row][task][by] = point(drawn, row, task, *best(level))
    return out


def main(search, *tasks):
    """choose settings; compute what is missing of pilots and finals

    search: the study of its pilots: pilot, twice, again, longer or fifth
    tasks: some of those of the study
    """
    changes, runs = {"tasks": [*tasks]} if tasks else {}, []
    for name in search, FINAL.get(search, f"{search}_final"):
        runs.append(unfolded(study("search", name, **changes)))
        every = studies.read(PATH)
        won = every.setdefault(search, {})
        for row, of in chosen(*runs).items():
            won[row] = won.get(row, {}) | of
        how = {"sort_keys": False, "default_flow_style": None}
        PATH.write_text(HEAD + yaml.safe_dump(every, **how))
    print(PATH)


if __name__ == "__main__":
    program(main)
