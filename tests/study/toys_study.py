"""Runs, cells and files of parameters made by hand, for the tests of studies."""

import json
from dataclasses import replace

import numpy as np
import yaml

from fedlib.core.record import Record
from fedlib.study.results import Study
from fedlib.study.studies import Cell

DATA = {"name": "synthetic", "alpha": 0.5, "beta": 0.5, "sizes": [60, 80, 70]}
TASK = {"data": DATA, "network": {"name": "Linear"}}
STUDIES = """
tasks:
  near:
    label: three clients
    data: {name: synthetic, alpha: 0.5, beta: 0.5, sizes: [60, 80, 70]}
    network: {name: Linear}
    train: {lr: 0.05}
    run: {rounds: 3, cohort: 2}
    paper: {run: {rounds: 5, cohort: 2}}
  far: {like: near, label: others, data: {alpha: 1}}
studies:
  book:
    main: {tasks: [near], seeds: 2, microscope: true, curves: [near],
           logs: &all_logs [cohort, weight, scale],
           methods: {FedAvg: {}, FedGA: {alpha: $alpha}}}
    more: {tasks: &all [near, far], curves: *all, logs: *all_logs, seeds: [0, 3],
           methods: {FedProx: {mu: [0.1, 1.0]}}}
"""
PRE = [("pre", "global", s) for s in ("test", "val")]
POST = [("post", "personal", s) for s in ("test", "val")]
GUEST = [("guest", "global", "test")]
OWN = [("own", "global", s) for s in ("test", "val")]
PARTS = "views", "cells", "consistency", "logs"


def write(folder, change=lambda toy: None):
    """params.yaml in a folder, its paper changed by a function -> its path."""
    toy, path = yaml.safe_load(STUDIES), folder / "params.yaml"
    file = folder / "papers" / "toy" / "studies.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    change(toy)
    path.write_text("tier: small\ntoy: {alpha: 3}\n")
    file.write_text(yaml.safe_dump(toy, sort_keys=False))
    return path


def book(**studies):
    """A change for `write`: entries of studies, others stay as they are."""

    def change(toy):
        for name, entries in studies.items():
            toy["studies"]["book"][name].update(entries)

    return change


def cell(method="FedAvg", seed=0, task=None, engine=None, setting="", **kw):
    """A Cell, of hyper-parameters kw; its data set is called d."""
    texts = map(json.dumps, (TASK | (task or {}), kw, engine or {"rounds": 3}))
    return Cell("d", "the data", method, setting, seed, "synthetic", *texts)


def record(seed=0, method="FedAvg", keys=PRE, C=7, rounds=(0, 2, 4), **more):
    """A Record of counts over unequal rows. more: groups, rows of guests, meta."""
    rng = np.random.default_rng([seed, *method.encode(), C])
    first = ("train", 9), ("val", 4), ("test", 5)
    n = {s: [k + (3 * i) % 7 for i in range(C)] for s, k in first}
    guests, groups = more.pop("guests", ()), more.pop("groups", False)
    n |= {"guest": list(guests)} if guests else {}
    views, cells, alike, R = {}, {}, {}, int(rounds[-1])
    for key in keys:
        E = len(rounds) - (key[0] in ("post", "own"))
        rows = np.array(n["guest" if key[0] == "guest" else key[2]])
        counts = rng.multinomial(rows, np.ones(8) / 8, (E, len(rows)))
        counts = counts.reshape(E, len(rows), 2, 2, 2)
        right = counts[..., 0, 0].sum(-1) + counts[..., 1, 1].sum(-1)
        views[key] = right.astype(np.float32) / rows.astype(np.float32)
        if groups:
            cells[key] = counts.astype(np.int32)
            alike[key[:2]] = rng.integers(1, 9, (E, len(rows), 2)).astype(np.float32)
    ids = np.array([sorted(rng.choice(C, 2, False)) for _ in range(R)])
    logs = {"cohort": ids, "weight": rng.dirichlet([1, 1], R), "scale": rng.random(R)}
    names = {"method": method, "task": "toy", "kind": "synthetic", "how": "loop"}
    names |= {"device": "cpu", "torch": "2", "precision": "float32"}
    names |= {"commit": "0123456789", "source": "f" * 16, "parameters": {"lr": 0.1}}
    names |= {"bytes": {}, "tensors": {"down": {}, "up": {}}}
    names |= {"clients": C, "rounds": R, "seed": seed, "every": 2, "cohort": 2, "n": n}
    names |= {"owners": [f"ward {i}" for i in range(C)], "seconds": 6.0 + seed}
    return Record(names | more, np.array(rounds), views, logs, cells, alike)


def study(*runs, look=(), tiers=None):
    """A Study of (cell, record) pairs."""
    cells, records = map(list, zip(*runs))
    spec = {"look": {m: list(v) for m, v in look}}
    tiers = tiers or ["small"] * len(cells)
    cells = [replace(c, tier=tier) for c, tier in zip(cells, tiers)]
    return Study("toy", "main", "small", spec, cells, records)


def same(a, b, but=("seconds",)):
    """Two records are equal to the bit, but for some entries of meta."""
    metas = [{k: v for k, v in r.meta.items() if k not in but} for r in (a, b)]
    assert json.dumps(metas[0], sort_keys=True) == json.dumps(metas[1], sort_keys=True)
    assert np.array_equal(a.rounds, b.rounds)
    for part in PARTS:
        x, y = getattr(a, part), getattr(b, part)
        assert x.keys() == y.keys(), part
        for k in x:
            p, q = ((v.dtype, v.shape, v.tobytes()) for v in (x[k], y[k]))
            assert p == q, (part, k)
    return True
