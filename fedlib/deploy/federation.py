"""What all parties of a federation agree on: the table [tool.flwr.app.config] of the
app's pyproject.toml.

    rounds = 20
    cohort = 2                 # clients per round; 0: all
    method.name = "Ditto"
    method.lam = 0.5
    task.clients = 3
    task.classes = 10
    task.shape = "[64]"        # a list is JSON in a string
    task.network.name = "MLP"
    task.network.hidden = 32
"""

import hashlib
import json
from dataclasses import fields, is_dataclass
from functools import cached_property
from typing import Annotated, Any, Literal

import torch
from pydantic import Field, ValidationError

from ..core.engine import bind
from ..core.errors import refuse_if
from ..core.given import check_run
from ..core.method import Method
from ..core.pool import Block, Groups, Pool
from ..data import tasks
from ..data.settings import Count, Model, Seed, Some, Whole, words
from ..data.tasks import Three
from ..methods.make import make
from . import rows

Seconds = Annotated[float, Field(ge=0, le=1e6)]
DECIDE = "method", "task", "cohort", "seed", "every", "own"  # with rounds, the numbers


class Data(Model):
    """The task, as far as all know it."""

    clients: Count
    classes: Count
    shape: Some[Count]  # of one row
    network: Any  # {"name": ..., its sizes}, or in Python the network
    name: str = "federation"
    kind: Literal["own", "real", "synthetic", "stand-in"] = "own"
    batch: Count = 32
    dtype: Literal["float32", "float64"] = "float32"
    groups: Any = None  # the fields of Groups, or Groups
    split: Seed = 0  # how the rows of a file are cut, as in Task.from_rows
    parts: Three = (0.8, 0.1, 0.1)


class Federation(Model):
    """A federation. ValueError for what is unknown, missing or makes no sense."""

    method: Any  # {"name": ..., its hyper-parameters}, or in Python the method
    task: Data
    rounds: Whole
    cohort: Whole = 0
    seed: Seed = 0
    every: Count = 1  # rounds between evaluations
    own: bool = False  # also score every client's model as it was uploaded
    minimum: Count = 1  # answers that a round needs
    patience: Seconds = 600.0  # in which it is asked for them again
    wait: Annotated[Seconds, Field(gt=0)] = 600.0  # for the answers to a message
    limit: Count = 10**9  # bytes of an answer
    folder: str = ""  # where the server keeps checkpoint and record; "": nowhere
    data: str = ""  # the rows of a client whose node names none
    state: str = "clients"  # where a client keeps its own, whose node names no folder

    def __init__(self, **given):
        try:
            super().__init__(**given)
        except ValidationError as e:
            raise ValueError(words(e, Federation)) from None

    def model_post_init(self, context):
        method = self.make(rows.server_task(self))
        check_run(method, method.task, self.cohort or None, self.own)

    @classmethod
    def read(cls, config):
        """The federation of a run config, {"method.lr": 0.1, ...}."""
        parsed = lambda v: json.loads(v) if str(v)[:1] in ("[", "{") else v
        return cls(**nested({k: parsed(v) for k, v in config.items()}, "."))

    @classmethod
    def of(cls, method, rounds, task=None, **more):
        """The federation of a Method on its task, or of a description on this one."""
        task = task or method.task
        shape, dtype = list(task.x.shape[1:]), str(task.x.dtype)[6:]
        data = {"clients": task.C, "classes": task.K, "shape": shape, "dtype": dtype}
        for k in ("name", "network", "kind", "batch", "groups"):
            data[k] = getattr(task, k)
        return cls(method=method, task=data, rounds=rounds, **more)

    def lines(self):
        """The lines of pyproject.toml from which `read` makes this federation."""
        return list(flat(self))

    # ------------------------------------------------------------ what follows from it
    C = property(lambda self: self.task.clients)
    K = property(lambda self: self.task.classes)
    shape = property(lambda self: tuple(self.task.shape))
    dtype = property(lambda self: getattr(torch, self.task.dtype))

    def make(self, task):
        """The Method on a task."""
        if isinstance(self.method, Method):
            return bind(self.method, task)
        return make(**{"name": None} | self.method | {"task": task})

    def client_task(self, c, data):
        """The task of client c, see rows.client_task."""
        return rows.client_task(self, c, data)

    @cached_property
    def digest(self):
        """A hash of what decides the numbers, but for the number of rounds."""
        plain = lambda v: dict(v) if isinstance(v, Model) else repr(v)
        told = {k: getattr(self, k) for k in DECIDE}
        text = json.dumps(told, sort_keys=True, default=plain)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @cached_property
    def network(self):
        if not isinstance(spec := self.task.network, dict):
            return spec
        t, none = self.task, torch.zeros(0, *self.shape)
        pool = Pool(t.name, none, rows.NONE, self.K, t.kind)
        tasks.known(tasks.NETWORKS, "network", spec.get("name"))
        return tasks.network_for(pool, hashable(spec))

    @cached_property
    def groups(self):
        if not isinstance(given := self.task.groups, dict):
            return given
        schema = tuple(Block(*b) for b in given.get("schema", ()))
        return Groups(**hashable(given) | {"schema": schema})


def hashable(spec):
    return {k: tuple(v) if isinstance(v, list) else v for k, v in spec.items()}


def nested(found, mark):
    """{"method.lr": 0.1} as {"method": {"lr": 0.1}}; ValueError: names no tree."""
    tree = {}
    for path, leaf in found.items():
        *above, name = path.split(mark)
        here = tree
        for k in above:
            here = here.setdefault(k, {})
            own = f"{path!r}: {k!r} has a value of its own"
            refuse_if(not isinstance(here, dict), own)
        if name:
            here[name] = leaf
    return tree


def flat(v, at=""):
    """'method.lr = 0.1' for each entry of models, descriptions and objects."""
    if isinstance(v, Groups):
        v = json.dumps({f.name: getattr(v, f.name) for f in fields(v)})
    elif is_dataclass(v):
        own = {f.name: getattr(v, f.name) for f in fields(v) if f.repr}
        v = {"name": type(v).__name__} | own
    elif isinstance(v, Model):
        v = {k: getattr(v, k) for k in v.model_fields_set}
    if isinstance(v, dict):
        for k, part in v.items():
            yield from flat(part, f"{at}.{k}" if at else k)
    elif v is not None:
        text = json.dumps(v) if isinstance(v, (list, tuple)) else v
        yield f"{at} = {repr(v) if isinstance(v, float) else json.dumps(text)}"
