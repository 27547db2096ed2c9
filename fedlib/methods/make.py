"""A method by its name, as params.yaml and the command line give it."""

from dataclasses import fields
from typing import Any

from ..core.errors import nearest
from ..core.local import STEPS
from ..core.method import BASE, Method, Wrap
from ..core.ranges import short
from ..core.task import Task
from ..pieces.robust import RULES
from . import METHODS


def make(name: str, task: Task | None, **kw: Any) -> Method:
    """The method called `name`, with its hyper-parameters, on a task.

    Pieces may be given by name, rule="Median" or step={"name": "SAM", "rho": 0.1},
    and so may the method inside a wrapper, inner="FedProx". What the wrapper does not
    declare itself goes to that one. ValueError for an unknown name, and for a value
    outside its range.
    """
    if not isinstance(name, str) or name not in METHODS:
        raise ValueError(
            f"unknown method {name!r}{nearest(name, METHODS)} (python -m fedlib "
            "methods lists them)"
        )
    if not (task is None or isinstance(task, Task)):
        raise ValueError(
            f"task = {short(task)}: give a Task, such as fedlib.Task.from_arrays makes"
        )
    if issubclass(METHODS[name], Wrap):
        return wrapper(name, task, **kw)
    known = hyperparameters(METHODS[name])
    for k in kw:
        if k not in known:
            raise ValueError(
                f"{name} has no hyper-parameter {k!r}{nearest(k, known)} (it has "
                f"{', '.join(known)})"
            )
    described = [k for k in ("step", "rule") if isinstance(kw.get(k), (str, dict))]
    return METHODS[name](task, **kw | {k: piece(k, kw[k]) for k in described})


def hyperparameters(cls):
    """The names of a method's hyper-parameters."""
    return [f.name for f in fields(cls) if f.name not in ("task", "inner")]


def wrapper(name, task, **kw):
    """The wrapping method called `name` around the method `inner`, or its `around`.

    Hyper-parameters that the wrapper does not declare itself go to the inner method.
    """
    cls = METHODS[name]
    own = [k for k in hyperparameters(cls) if k not in BASE]
    inner = kw.get("inner", cls.around)
    inner = {"name": inner} if isinstance(inner, str) else inner
    if not isinstance(inner, dict) or not isinstance(inner.get("name"), str):
        raise ValueError(
            f"{name}.inner = {short(inner)}: give the name of a method, as "
            f"{cls.around!r}, or {{'name': its name, ...}}; a method that is built "
            f"already goes into {cls.__name__}(task, inner=...)"
        )
    known = hyperparameters(METHODS.get(inner["name"], Method))
    rest = {k: v for k, v in kw.items() if k not in ("inner", *own)}
    for k in rest:
        if k not in known:
            raise ValueError(
                f"{name} has no hyper-parameter {k!r}{nearest(k, own + known)} (it "
                f"has {', '.join(own)}, and those of {inner.get('name')})"
            )
    inner = make(**{"name": None} | rest | inner | {"task": task})
    return cls(task, inner=inner, **{k: v for k, v in kw.items() if k in own})


def piece(kind, spec):
    """The step or rule of a description: its name, or {"name": its name, ...}."""
    table = {"step": STEPS, "rule": RULES}[kind]
    values = {"name": spec} if isinstance(spec, str) else dict(spec)
    name = values.pop("name", None)
    if not isinstance(name, str) or name not in table:
        raise ValueError(
            f"unknown {kind} {name!r}{nearest(name, table)} (known: {', '.join(table)})"
        )
    known = [f.name for f in fields(table[name])]
    for k in values:
        if k not in known:
            raise ValueError(
                f"{name} has no {k!r}{nearest(k, known)} (it has "
                f"{', '.join(known) or 'nothing to set'})"
            )
    return table[name](**values)
