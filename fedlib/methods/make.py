"""A method by its name, as params.yaml and the command line give it."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from ..core.errors import nearest
from ..core.local import STEPS
from ..core.method import BASE, Method, Wrap
from ..core.task import Task
from ..pieces.robust import RULES
from . import METHODS


def make(name: str, task: Task | None, **kw: Any) -> Method:
    """The method called `name`, with its hyper-parameters, on a task.

    Pieces may be given by name, rule="Median" or step={"name": "SAM", "rho": 0.1},
    and so may the method inside a wrapper, inner="FedProx". What the wrapper does not
    declare itself goes to that one.
    """
    if name not in METHODS:
        raise ValueError(
            f"unknown method {name!r}{nearest(name, METHODS)} (python -m fedlib "
            "methods lists them)"
        )
    known = [f.name for f in fields(METHODS[name]) if f.name not in ("task", "inner")]
    if issubclass(METHODS[name], Wrap):
        own = [k for k in known if k not in BASE]
        inside = kw.get("inner", METHODS[name].around)
        inside = {"name": inside} if isinstance(inside, str) else inside
        rest = {k: v for k, v in kw.items() if k not in ("inner", *own)}
        there = [
            f.name
            for f in fields(METHODS.get(inside.get("name"), Method))
            if f.name not in ("task", "inner")
        ]
        for k in rest:
            if k not in there:
                raise ValueError(
                    f"{name} has no hyper-parameter {k!r}{nearest(k, own + there)} (it "
                    f"has {', '.join(own)}, and those of {inside.get('name')})"
                )
        inner = make(**{"name": None} | rest | inside | {"task": task})
        return METHODS[name](
            task, inner=inner, **{k: v for k, v in kw.items() if k in own}
        )
    for k in kw:
        if k not in known:
            raise ValueError(
                f"{name} has no hyper-parameter {k!r}{nearest(k, known)} (it has "
                f"{', '.join(known)})"
            )
    return METHODS[name](
        task,
        **kw
        | {
            k: piece(k, kw[k])
            for k in ("step", "rule")
            if isinstance(kw.get(k), (str, dict))
        },
    )


def piece(kind, spec):
    """The step or rule of a description: its name, or {"name": its name, ...}."""
    table, spec = (
        {"step": STEPS, "rule": RULES}[kind],
        {"name": spec} if isinstance(spec, str) else spec,
    )
    if spec.get("name") not in table:
        raise ValueError(
            f"unknown {kind} {spec.get('name')!r}{nearest(spec.get('name'), table)} "
            f"(known: {', '.join(table)})"
        )
    known = [f.name for f in fields(table[spec["name"]])]
    for k in spec:
        if k not in (*known, "name"):
            raise ValueError(
                f"{spec['name']} has no {k!r}{nearest(k, known)} (it has "
                f"{', '.join(known) or 'nothing to set'})"
            )
    return table[spec["name"]](**{k: v for k, v in spec.items() if k != "name"})
