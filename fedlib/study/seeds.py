"""The seeds of a study: which they are, what the claims have added, and whether a seed
draws the data, too.

    seeds: 5               0, 1, 2, 3, 4
    seeds: [0, 3, 7]       these
    seeds: {pilot: 3}      1000, 1001, 1002

Pilot seeds are those that choose: hyper-parameters, tasks, variants. They never decide
a claim, since a choice fits the noise of its own seeds.

papers/<paper>/seeds.yaml, beside studies.yaml, has the seeds that open claims asked for
(`python -m fedlib decide`): {study: {data set: 10}} are ten seeds in all at tier small.
"""

from __future__ import annotations

import itertools
from pathlib import Path

from ..core.ranges import SEEDS, check_whole, is_whole, short
from .spec import found, located, read

PILOT = 1000  # seeds from here on choose, and never decide
DRAWS = {  # sources that draw their data -> the argument that says which draw
    "synthetic": "draw",
    "census": "draw",
    "digit_sites": "draw",
    "rotated": "draw",
    "colored": "draw",
    "glyphs": "seed",
    "domains": "seed",
}


# ---------------------------------------------------------------- which seeds
def seeds_of(given, at):
    """The seeds [int] of a study's entry `seeds`. Raises ValueError, which begins with
    the place `at`.
    """
    pilot = isinstance(given, dict) and [*given] == ["pilot"]
    n, first = (given["pilot"], PILOT) if pilot else (given, 0)
    counted = is_whole(n) and 0 < n <= PILOT
    seeds = [*range(first, first + n)] if counted else [] if pilot else given
    listed = isinstance(seeds, list) and all(is_whole(s) and s >= 0 for s in seeds)
    if not listed or not seeds or len(set(seeds)) < len(seeds) or max(seeds) > SEEDS:
        raise ValueError(
            f"{at}: seeds = {short(given)}; give how many (5), which ones, each once "
            f"([0, 3, 7]), or pilot seeds ({{pilot: 3}}), up to {PILOT}"
        )
    if len({s >= PILOT for s in seeds}) > 1:
        what = f"{at}: seeds = {short(given)} mixes pilot seeds, from {PILOT} on, with"
        raise ValueError(f"{what} seeds that decide; give each a study of its own")
    return seeds


def file_of(path, paper):
    """seeds.yaml of a paper, beside the params.yaml `path`."""
    return Path(path).parent / "papers" / paper / "seeds.yaml"


def added(path, paper, datasets):
    """{study: {data set: seeds in all}} of seeds.yaml; nothing where there is none.

    datasets: {study: its data sets at tier small}. Raises ValueError for others, and
    for what is no number of seeds.
    """
    file = file_of(path, paper)
    tree = read(file) if file.exists() else {}
    with located(file):
        for study, entry in tree.items():
            known = found(study, datasets, "there is no study")
            for dataset, n in entry.items():
                found(dataset, dict.fromkeys(known), f"{study} has no data set")
                check_whole(f"{study}: {dataset}", n, 1, PILOT)
    return tree


def grown(own, n, at):
    """The study's own seeds, and the next ones from its least on until there are n."""
    if min(own) >= PILOT:
        raise ValueError(f"{at} has pilot seeds, which decide nothing; give it no more")
    fresh = (s for s in itertools.count(min(own)) if s not in own)
    return own + [*itertools.islice(fresh, max(0, n - len(own)))]


# ---------------------------------------------------------------- a seed draws the data
def drawn(spec, seed, at):
    """A task whose data say `draw: seed`, as this seed draws them; others as they
    are.
    """
    data = spec["data"]
    new = data_of(data, seed, at)
    return spec if new is data else spec | {"data": new}


def data_of(data, seed, at):
    """The same of its data; features are features of data."""
    if isinstance(data.get("data"), dict):
        inner = data_of(data["data"], seed, at)
        data = data if inner is data["data"] else data | {"data": inner}
    if data.get("draw") != "seed":
        return data
    key = DRAWS.get(data["name"])
    if key is None or (key != "draw" and key in data):
        why = f"it has {key} = {data[key]} already" if key else "it is always the same"
        what = f"{at}: data {data['name']!r} cannot have draw: seed, since {why}"
        raise ValueError(f"{what} (sources that draw: {', '.join(DRAWS)})")
    return {k: v for k, v in data.items() if k != "draw"} | {key: seed}
