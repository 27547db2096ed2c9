"""A method by its name, as params.yaml and the command line give it."""

from dataclasses import fields
from typing import Any

from ..core.errors import known, nearest, short
from ..core.method import BASE, Method, Wrap
from ..core.task import Task
from ..core.tree import subset
from ..pieces.robust import RULES
from ..pieces.steps import STEPS
from . import METHODS
from .base.tuned import Tuned
from .others import FT


def make(name: str, task: Task | None, **kw: Any) -> Method:
    """The method called `name`, with its hyper-parameters, on a task.

    Pieces may be given by name, rule="Median" or step={"name": "SAM", "rho": 0.1},
    and so may the method inside a wrapper, inner="FedProx". What the wrapper does not
    declare itself goes to that one. "FedGA+FT" is Tuned around FedGA. ValueError for an
    unknown name, and for a value outside its range.
    """
    cls = named(name)
    if not (task is None or isinstance(task, Task)):
        raise ValueError(f"task = {short(task)}: give a Task, as from_arrays makes")
    if cls is Tuned:
        kw["inner"] = {"name": name.removesuffix(FT)} | subset(kw, ["inner"])
    if issubclass(cls, Wrap):
        return wrapper(cls, task, **kw)
    check_known(name, kw, hyperparameters(cls))
    described = [k for k in ("step", "rule") if isinstance(kw.get(k), (str, dict))]
    return cls(task, **kw | {k: piece(k, kw[k]) for k in described})


def named(name: str) -> type[Method]:
    """The class of a method; ValueError for an unknown name."""
    if not isinstance(name, str) or name not in METHODS:
        raise ValueError(
            f"unknown method {name!r}{nearest(name, METHODS)} (python -m fedlib "
            "methods lists them)"
        )
    return METHODS[name]


def hyperparameters(cls):
    """The names of a method's hyper-parameters."""
    return [f.name for f in fields(cls) if f.name not in ("task", "inner")]


def check_known(name, given, known):
    """ValueError for a setting that `name` does not have."""
    for k in given:
        if k not in known:
            raise ValueError(
                f"{name} has no hyper-parameter {k!r}{nearest(k, known)} (it has "
                f"{', '.join(known) or 'nothing to set'})"
            )


def wrapper(cls, task, **kw):
    """A method of this wrapping class around the method `inner`, or its `around`.

    Hyper-parameters that the wrapper does not declare itself go to the inner method.
    """
    own = [k for k in hyperparameters(cls) if k not in BASE]
    inner = kw.pop("inner", cls.around)
    inner = {"name": inner} if isinstance(inner, str) else inner
    if not isinstance(inner, dict) or not isinstance(inner.get("name"), str):
        raise ValueError(
            f"{cls.__name__}.inner = {short(inner)}: give the name of a method, as "
            f"{cls.around!r}, or {{'name': its name, ...}}; a method that is built "
            f"already goes into {cls.__name__}(task, inner=...)"
        )
    around = f"{cls.__name__} around {inner['name']}"
    check_known(around, kw, own + hyperparameters(METHODS.get(inner["name"], Method)))
    rest = {k: v for k, v in kw.items() if k not in own}
    inner = make(**rest | inner | {"task": task})
    return cls(task, inner=inner, **{k: v for k, v in kw.items() if k in own})


def piece(kind, spec):
    """The step or rule of a description: its name, or {"name": its name, ...}."""
    table = {"step": STEPS, "rule": RULES}[kind]
    values = {"name": spec} if isinstance(spec, str) else dict(spec)
    made = known(table, kind, name := values.pop("name", None))
    check_known(name, values, [f.name for f in fields(made)])
    return made(**values)
