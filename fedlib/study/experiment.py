"""Studies: a grid of tasks, methods and seeds, run once and read many times.

    study("fedga", "synthetic").table("mean_acc")

A cell (task, method, setting, seed) is one run, named by its resolved specification
and the versions of what makes its numbers (fedlib.study.identity). A study is read
from evidence/, where finished runs are packed, then from runs/; what is in neither is
computed into runs/, where a finished run is never repeated and a killed one continues.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from tqdm import tqdm

from .. import plots
from ..core import engine, errors, online, record
from ..core.record import Record
from ..core.types import Key, Look, Metric
from ..data import tasks
from ..measures import bias, curves, metrics, selection
from ..methods import METHODS, make
from . import TIERS, evidence, guard, lock, table
from .executor import opened, reason, results
from .studies import Cell, cells, kind_of, load, root, settings, tiered, word  # noqa: F401

MEASURES = {  # name in the tables -> function of accuracies [.., C]; percent but Gini
    "mean_acc": lambda a: 100 * metrics.mean_acc(a),
    "std_acc": lambda a: 100 * metrics.std_acc(a),
    "worst10_acc": lambda a: 100 * metrics.worst(a),
    "top10_minus_bottom10": lambda a: 100 * metrics.gap(a),
    "best_gini": metrics.gini,
}
# say nothing of a single guest
SPREAD = ("std_acc", "worst10_acc", "top10_minus_bottom10", "best_gini")
TAILS = {  # the clients served worst and best, each the mean of a group
    "acc_mean_pct": MEASURES["mean_acc"],
    "acc_lowest5_pct": lambda a: 100 * metrics.worst(a, 0.05),
    "acc_top5_pct": lambda a: 100 * metrics.best(a, 0.05),
    "acc_min_over_clients_pct": lambda a: 100 * np.min(a, -1),
    "std_acc": MEASURES["std_acc"],
}
TOP1 = {  # of the rows of all clients together, and of the clients served worst
    "top1_acc_pct": lambda a, n: 100 * metrics.pooled_acc(a, n),
    "worst10_acc": MEASURES["worst10_acc"],
}
BIAS = {
    f.__name__: f
    for f in (bias.EO, bias.DP, bias.CAL, bias.EO_sum, bias.CAL_ppv, bias.positive_rate)
}
# moment and view that are scored, unless a study says otherwise
LOOK = ("pre", "global")
# clients with names whose accuracies papers print one by one
SITES = ("amazon", "caltech", "dslr", "webcam")
CURVES = {  # of the whole run (rule "run"): record -> {name: value}
    "early_mean_acc": lambda r: curves.between(
        r, 100 * r.curve(metrics.mean_acc), 1, 50
    ),
    "late_mean_acc": lambda r: curves.between(r, 100 * r.curve(metrics.mean_acc), 101),
    "gini_auc": curves.gini_auc,
    "gini_level_after_round_50": lambda r: curves.between(r, r.curve(metrics.gini), 51),
}


# ---------------------------------------------------------------- running
@functools.lru_cache(maxsize=2)
def task_of(spec, seed, name):
    return tasks.build(json.loads(spec), seed, name)


class RunError(ValueError):
    """A cell could not be computed; says which.

    What the others have computed is kept.
    """


def compute(cell, runs="runs", device=None, wait=True):
    """Run one cell, or find it done.

    Returns its folder; a diverged run leaves its record too.

    Where another process computes it, wait for that; with wait=False return None.
    """
    torch.set_num_threads(1)
    folder = Path(runs, cell.id)
    if not (folder / "done").exists():
        with lock.alone(folder, wait) as mine:
            if not mine:
                return None
            if not (folder / "done").exists():  # nobody has finished it meanwhile
                try:
                    trained(cell, device, folder)
                except errors.Diverged as e:
                    print(f"{called(cell)}: {e}", file=sys.stderr)
    return folder


def called(item):
    """A cell in a message."""
    words = (
        (item.dataset, item.method, item.setting, f"seed {item.seed}")
        if isinstance(item, Cell)
        else (str(item),)
    )
    return " ".join(filter(None, words))


def work(item, runs, device=None, wait=True):
    """What a worker does, here or on another machine: `compute`.

    Returns the run's files {name: bytes}; None: others are at it.

    item: (id by the caller's sources, cell). Without a folder `runs` the files are made
    in a passing one.
    """
    expected, cell = item
    if cell.id != expected:
        raise ValueError(
            f"to the worker this run is {cell.id}, to the caller {expected}: their "
            "sources, or the files of weights that they see, differ. Bring both to one "
            "state and start them again"
        )
    with tempfile.TemporaryDirectory() as passing:
        folder = compute(cell, runs if os.path.isdir(runs) else passing, device, wait)
        return folder and {
            name: (folder / name).read_bytes()
            for name in ("record.npz", "record.json", "done")
        }


def store(folder, files):
    """Keep a run that a worker without our folder `runs` has sent, unless it is there;
    `done` comes last.
    """
    if not (folder / "done").exists():
        folder.mkdir(parents=True, exist_ok=True)
        with lock.alone(folder):
            for name, body in files.items():
                files.whole(folder / name, lambda f, body=body: f.write(body))
            (folder / "checkpoint").unlink(missing_ok=True)


def stop(failed, kept=""):
    """Raise the first of [(cell, exception)]."""
    if failed:
        c, e = failed[0]
        more = f"; {len(failed) - 1} more failed" if len(failed) > 1 else ""
        raise RunError(f"{called(c)}: {reason(e)}{more}{kept}") from e


def trained(cell, device=None, folder=None):
    """(method, task, record) of a cell, run anew: record.state has what server and
    clients hold after the last round.

    Without a folder nothing is written. Raises engine.Diverged.
    """
    t = task_of(cell.task, cell.seed, cell.dataset)
    m = make.make(cell.method, t, **json.loads(cell.kwargs))
    how = json.loads(cell.engine)
    if "online" in how:
        how["cohort"] = online.size(t.C, how.pop("online"))
    if "stragglers" in how:
        how["cohort"] = online.stragglers(t.C, **how.pop("stragglers"))
    return (
        m,
        t,
        engine.run(
            m,
            t,
            how.pop("rounds"),
            seed=cell.seed,
            folder=folder,
            device=device,
            progress=False,
            **how,
        ),
    )


def over(f, todo, workers=None, executor=None):
    """[f(cell)], in order, computed where `compute_all` would.

    f: importable; it returns plain arrays.
    """
    todo = list(todo)
    out, failed = [None] * len(todo), []
    with opened(executor, workers, len(todo)) as submit:
        for i, out[i], error in results(submit, f, todo):
            failed += [(todo[i], error)] if error else []
    stop(failed)
    return out


def compute_all(todo, runs="runs", workers=None, device=None, executor=None):
    """Every cell's folder, in order.

    workers: processes on this machine; executor: somewhere else, see
    fedlib.study.executor.

    What another process is computing is left for last, then waited for. A cell that
    fails stops no other: RunError at the end.
    """
    todo, at, failed = list(todo), Path(runs).absolute(), []
    # so that a worker keeps its task
    missing = {c.id: c for c in sorted(todo, key=lambda c: (c.task, c.seed))}
    missing = {k: c for k, c in missing.items() if not (at / k / "done").exists()}
    if missing:
        at.mkdir(parents=True, exist_ok=True)
        with (
            opened(executor, workers, len(missing), device) as submit,
            tqdm(
                total=len(missing),
                unit="run",
                disable=not sys.stderr.isatty(),
                leave=False,
            ) as bar,
        ):
            for wait in (False, True):
                some = list(missing.items())
                for i, files, error in results(
                    submit, work, some, str(at), device, wait
                ):
                    if error or files:
                        k, c = some[i]
                        del missing[k]
                        bar.update()
                        if error:
                            print(f"{called(c)}: {reason(error)}", file=sys.stderr)
                            failed.append((c, error))
                        else:
                            store(at / k, files)
    stop(failed, "; the other runs are kept")
    return [Path(runs, c.id) for c in todo]


def study(
    paper: str,
    name: str,
    tier: str | None = None,
    path: str | Path = "params.yaml",
    runs: str | Path = "runs",
    workers: int | None = None,
    executor: str | None = None,
    mine: bool = False,
    **changes: Any,
) -> Study:
    """The finished study: its cells with their records, from evidence/ beside `path`,
    else from `runs`, else computed.

    executor: where to compute, as the address of a cluster (see fedlib.study.executor);
    two notebooks may ask for a study at once. mine: runs of your own, for sources that
    you have edited; they are kept in `runs` under names of their own. Without it edited
    sources that give other numbers are refused (guard.Moved), since the stored runs are
    not theirs.
    """
    todo, spec, tier = cells(paper, name, path, tier, **changes)
    full = {c.id for c in cells(paper, name, path, "paper", **changes)[0]}
    tiers = ["paper" if c.id in full else tier for c in todo]
    if mine:
        todo = [dataclasses.replace(c, mine=guard.salt()) for c in todo]
    else:
        guard.check(todo, runs)
    done = evidence.find(
        {c.id for c in todo}, paper, name, Path(path).parent / "evidence"
    )
    missing = [c for c in todo if c.id not in done]
    done |= {
        c.id: record.Record.load(f)
        for c, f in zip(missing, compute_all(missing, runs, workers, executor=executor))
    }
    return Study(paper, name, tier, spec, todo, [done[c.id] for c in todo], tiers)


def declared(paper, path="params.yaml"):
    """The settings of tier paper as rows of results/seeds:
    what is declared, not measured.
    """
    out, p = [], load(path)[paper]
    for dataset, entry in p["tasks"].items():
        spec = tiered(entry, "paper")
        found = {
            "learning_rate": spec["train"]["lr"],
            "local_epochs": spec["train"]["epochs"],
            "batch_size": spec["batch"],
            "rounds": spec["run"]["rounds"],
            "dirichlet_concentration": spec.get("partition", {}).get("alpha"),
            "runs": next(
                (
                    tiered(s, "paper")["seeds"]
                    for s in p["studies"].values()
                    if dataset in s["tasks"]
                ),
                None,
            ),
        }
        out += [
            dict(
                paper=paper,
                study="settings",
                dataset=dataset,
                method="all",
                setting="",
                seed=0,
                metric=k,
                rule="run",
                value=v,
                data=kind_of(root(spec["data"])),
                tier="exact",
            )
            for k, v in found.items()
            if v is not None
        ]
    return pd.DataFrame(out)


@dataclass
class Study:
    """cells and their records, side by side; spec: the study as it was run."""

    paper: str
    name: str
    tier: str
    spec: dict[str, Any]
    cells: list[Cell]
    records: list[Record]
    tiers: list[
        str
    ]  # per cell: "paper" where its sizes are the paper's, whatever tier ran

    def of(
        self,
        dataset: str | None = None,
        method: str | None = None,
        setting: str | None = None,
        seed: int | None = None,
    ) -> list[tuple[Cell, Record]]:
        """[(cell, record)] that fit."""
        want = {"dataset": dataset, "method": method, "setting": setting, "seed": seed}
        return [
            (c, r)
            for c, r in zip(self.cells, self.records)
            if all(v is None or getattr(c, k) == v for k, v in want.items())
        ]

    def join(self, other: Study) -> Study:
        """Both studies as one, for a figure that shows both."""
        return dataclasses.replace(
            self,
            cells=self.cells + other.cells,
            records=self.records + other.records,
            tiers=self.tiers + other.tiers,
        )

    def methods(self, dataset: str | None = None) -> list[str]:
        return list(dict.fromkeys(c.method for c, _ in self.of(dataset)))

    def datasets(self) -> list[str]:
        return list(dict.fromkeys(c.dataset for c in self.cells))

    def look(self, method: str) -> Look:
        """(moment, view) by which a method is judged here; the study's key `look`."""
        return tuple(self.spec.get("look", {}).get(method, LOOK))

    def stack(
        self,
        dataset: str,
        method: str,
        key: Key | None = None,
        setting: str = "",
        split: str = "test",
    ) -> np.ndarray:
        """Accuracies [S, E, C] of all seeds of one row.

        key: (moment, view, split); None: the study's look at the method.
        """
        return np.stack(
            [
                r[key or (*self.look(method), split)]
                for _, r in self.of(dataset, method, setting)
            ]
        )

    def curve(
        self, dataset: str, method: str, setting: str = "", look: Look | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Rounds trained so far [E], and the accuracy over all test rows
        in percent [S, E].
        """
        moment, view = look or self.look(method)
        runs, who = (
            [r for _, r in self.of(dataset, method, setting)],
            "guest" if moment == "guest" else "test",
        )
        y = np.stack(
            [
                100 * metrics.pooled_acc(r[moment, view, "test"], r.meta["n"][who])
                for r in runs
            ]
        )
        return runs[0].rounds[: y.shape[1]] + (moment == "post"), y

    def log(
        self, dataset: str, method: str, name: str, setting: str = ""
    ) -> np.ndarray:
        """A logged quantity [S, R, ...] of all seeds,
        of those whose log was kept (a study's key `logs`).
        """
        kept = [
            r.logs[name] for _, r in self.of(dataset, method, setting) if name in r.logs
        ]
        if not kept:
            raise ValueError(
                f"{self.paper}/{self.name}: no run of {method} on {dataset} has "
                f"kept the log {name!r}; let the study's key `logs` keep it, and "
                "pack it anew"
            )
        return np.stack(kept)

    def rounds(self, dataset: str) -> np.ndarray:
        return self.of(dataset)[0][1].rounds

    def seeds(
        self,
        measures: Mapping[str, Callable[..., Any]] = MEASURES,
        rules: Sequence[str] = ("best_val",),
        look: Look | Callable[[str], Look] | None = None,
    ) -> pd.DataFrame:
        """Long table, one row per cell, measure and selection rule, with where it comes
        from (results/seeds).

        measures: {name: accuracies a [.., C] -> [..]}, or of a and n, the test
        rows [C]. look: (moment, view), or a function method -> (moment, view); None:
        the study's.
        """
        out = []
        for c, r in zip(self.cells, self.records):
            moment, view = (
                look if isinstance(look, tuple) else (look or self.look)(c.method)
            )
            for rule in rules:
                # a guest has no validation rows
                at = selection.RULES[rule](
                    r, view, "pre" if moment == "guest" else moment
                )
                n = r.meta["n"]["guest" if moment == "guest" else "test"]
                for k, f in measures.items():
                    if len(n) == 1 and k in SPREAD:
                        continue
                    f = (
                        f
                        if len(inspect.signature(f).parameters) == 1
                        else functools.partial(f, n=n)
                    )
                    out.append(
                        self._row(
                            c,
                            r,
                            k,
                            rule,
                            float(np.mean(f(r[moment, view, "test"][at]))),
                        )
                    )
                if moment == "guest":
                    continue
                test = r[moment, view, "test"][at].mean(0)
                out += [
                    self._row(c, r, f"acc_{o}", rule, 100 * a)
                    for o, a in zip(r.meta["owners"], test)
                    if o in SITES
                ]
        return pd.DataFrame(out)

    def views(
        self,
        names: Mapping[str, str],
        measures: Mapping[str, Callable[..., Any]],
        rules: Sequence[str],
        setting: Callable[[Cell], str] = lambda cell: cell.setting,
    ) -> pd.DataFrame:
        """Seeds of every view that a record holds: names {view: what the paper calls
        it}, which comes first in the setting, so "personalised model;C=10". setting:
        what follows, from the cell. Judged before training, so as a client is served.
        """
        out = []
        for view, name in names.items():
            some = [
                (c, r)
                for c, r in zip(self.cells, self.records)
                if ("pre", view, "test") in r.views
            ]
            part = dataclasses.replace(
                self,
                cells=[c for c, _ in some],
                records=[r for _, r in some],
                tiers=[
                    t
                    for c, t in zip(self.cells, self.tiers)
                    if any(c is d for d, _ in some)
                ],
            )
            s = part.seeds(measures, rules, look=("pre", view))
            ends = {c.id: setting(c) for c, _ in some}
            out.append(
                s.assign(
                    setting=[";".join(filter(None, (name, ends[i]))) for i in s.run_ids]
                )
            )
        return pd.concat(out, ignore_index=True)

    def biases(
        self,
        rules: Sequence[str] = ("last10_mean",),
        measures: Mapping[str, Metric] = BIAS,
    ) -> pd.DataFrame:
        """Seeds of how the model treats groups, over all clients' test rows together:
        the metrics of `measures`, functions of counts [.., A, 2, 2], CON, and the
        accuracy as a fraction.
        """
        out = []
        for c, r in zip(self.cells, self.records):
            moment, view = self.look(c.method)
            for rule in rules:
                at = selection.RULES[rule](r, view, moment)
                n, s = (
                    bias.pooled(r.cells[moment, view, "test"][at]),
                    r.alike[moment, view][at].sum(1),
                )
                acc = metrics.pooled_acc(
                    r[moment, view, "test"][at], r.meta["n"]["test"]
                )
                values = {k: f(n) for k, f in measures.items()} | {
                    "CON": bias.CON(s),
                    "accuracy": acc,
                }
                out += [
                    self._row(c, r, k, rule, float(v.mean())) for k, v in values.items()
                ]
        return pd.DataFrame(out)

    def validation(self, rule: str = "best_val") -> pd.DataFrame:
        """The same for the mean validation accuracy, by which a grid is searched."""

        def value(c, r):
            moment, view = self.look(c.method)
            # no guest has validation rows
            moment = "pre" if moment == "guest" else moment
            return 100 * selection.select(
                r, metrics.mean_acc, selection.RULES[rule], view, moment, "val"
            )

        return pd.DataFrame(
            [
                self._row(c, r, "val_acc", rule, value(c, r))
                for c, r in zip(self.cells, self.records)
            ]
        )

    def whole(
        self,
        measures: Mapping[str, Callable[[Record], float]] = CURVES,
        dataset: str | None = None,
        method: str | None = None,
    ) -> pd.DataFrame:
        """The same for numbers of whole runs: {name: record -> value}, rule "run";
        values that do not exist are left out.
        """
        out = [
            self._row(c, r, k, "run", f(r))
            for c, r in self.of(dataset, method)
            for k, f in measures.items()
        ]
        return pd.DataFrame([row for row in out if not np.isnan(row["value"])])

    def _row(self, c, r, metric, rule, value):
        tier = self.tiers[self.cells.index(c)]
        return dict(
            paper=self.paper,
            study=self.name,
            dataset=c.dataset,
            method=c.method,
            setting=c.setting,
            seed=c.seed,
            metric=metric,
            rule=rule,
            value=value,
            data=c.data,
            tier=tier,
            device=r.meta["device"],
            minutes=round(r.meta["seconds"] / 60, 4),
            run_ids=c.id,
            commit=r.meta["commit"],
        )

    def table(
        self, metric: str = "mean_acc", rule: str = "best_val", **kw: Any
    ) -> pd.DataFrame:
        """Methods x data sets, mean over seeds."""
        s = self.seeds({metric: MEASURES[metric]}, (rule,), **kw).query(
            "metric == @metric"
        )
        rows = ["method"] + (["setting"] if s.setting.any() else [])
        return s.pivot_table(index=rows, columns="dataset", values="value", sort=False)

    def data(self, dataset: str | None = None) -> str:
        """What the numbers were made from, for a figure's provenance line."""
        return "; ".join(
            dict.fromkeys(f"{c.label} ({c.data})" for c, _ in self.of(dataset))
        )

    def save(
        self,
        fig: Any,
        name: str,
        title: str,
        alt: str,
        dataset: str | None = None,
        notebook: str | None = None,
        seeds: str | None = None,
    ) -> Any:
        """Save a figure with this study's provenance (see plots.save).

        seeds: in words, where not all were used.
        """
        stage = notebook or self.name
        n = seeds or len({c.seed for c, _ in self.of(dataset)})
        tiers = {
            t for c, t in zip(self.cells, self.tiers) if dataset in (None, c.dataset)
        }
        tier = min(tiers, key=TIERS.index)
        return plots.save(
            fig,
            name,
            title=title,
            alt=alt,
            data=self.data(dataset),
            tier=tier,
            seeds=str(n),
            notebook=f"notebooks/{self.paper}/{stage}.ipynb",
            stage=f"{self.paper}@{stage}",
            folder=f"results/figures/{self.paper}-{stage}",
        )


def keep(done, path):
    """Every seed's test numbers and mean validation accuracy of a study, as csv
    (columns of results/seeds).
    """
    table.write(pd.concat([done.seeds(), done.validation()], ignore_index=True), path)


def short(v):
    """A value of a hyper-parameter, in a table."""
    return (
        f"{v:g}"
        if isinstance(v, (int, float)) and not isinstance(v, bool)
        else v["name"]
        if isinstance(v, dict)
        else str(v)
    )


def hyper_table(cells_):
    """One row per method: the hyper-parameters in use and the grid searched, from the
    methods' own declarations.
    """
    out = []
    for c in cells_:
        fs = {f.name: f for f in dataclasses.fields(METHODS[c.method])}
        used = {
            k: v
            for k, v in json.loads(c.kwargs).items()
            if k not in ("lr", "epochs", "last")
        }
        own = [
            n
            for n, f in fs.items()
            if f.metadata.get("grid") and n in METHODS[c.method].__annotations__
        ]
        names = list(dict.fromkeys([*used, *own]))
        out.append(
            {
                "method": c.method,
                "setting": c.setting,
                "used": ", ".join(
                    f"{n} = {short(used.get(n, fs[n].default))}" for n in names
                ),
                "grid": "; ".join(
                    f"{n} in " + ", ".join(map(short, fs[n].metadata["grid"]))
                    for n in own
                ),
            }
        )
    return pd.DataFrame(out)
