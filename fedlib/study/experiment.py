"""study("fedga", "synthetic").seeds(): the runs of a study, read from evidence/, where
finished ones are packed, then from runs/, else computed; a killed run continues.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from ..core import files
from ..core.record import Record
from . import identity, store
from .compute import compute_all
from .results import Study
from .studies import cells


def study(
    paper: str,
    name: str,
    tier: str | None = None,
    path: str | Path = "params.yaml",
    runs: str | Path = "runs",
    workers: int | None = None,
    mine: bool = False,
    knobs: dict[str, Any] | None = None,
    **changes: Any,
) -> Study:
    """The finished Study: its cells with their records, from evidence/ beside `path`,
    else from `runs`, else computed.

    workers: processes (see fedlib.study.compute).
    mine: runs of your own, for sources that you have edited, kept in `runs` under names
    of their own. Without it a warning says that the stored runs may not be theirs.
    knobs: {name: value} in place of the paper's own in `path`; None: as it has it."""
    todo, spec, tier = cells(paper, name, path, tier, knobs, **changes)
    same = changes | {"seeds": sorted({c.seed for c in todo})}
    full = {c.id for c in cells(paper, name, path, "paper", knobs, **same)[0]}
    todo = [replace(c, tier="paper") if c.id in full else c for c in todo]
    if mine:
        todo = [replace(c, mine=files.source()) for c in todo]
    else:
        identity.warn_if_edited()
    ids = [c.id for c in todo]
    done = store.find({*ids}, paper, name, Path(path).parent / "evidence")
    missing = [c for c, i in zip(todo, ids) if i not in done]
    folders = compute_all(missing, runs, workers, name=f"{paper}/{name}")
    computed = {c.id: Record.load(f) for c, f in zip(missing, folders)}
    if not mine:
        identity.warn_if_edited(computed.values())
    done |= computed
    return Study(paper, name, tier, spec, todo, [done[i] for i in ids])
