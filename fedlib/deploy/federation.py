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

from __future__ import annotations

import hashlib
import json
from dataclasses import fields
from functools import cached_property
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field

from ..core.given import check_run
from ..core.groups import Block, Groups
from ..core.method import Method
from ..core.pool import Pool
from ..data import tasks
from ..methods import METHODS
from ..methods.make import make
from . import rows

Count, Seconds = Annotated[int, Field(ge=1)], Annotated[float, Field(gt=0, le=1e6)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
Share = Annotated[float, Field(ge=0, le=1)]


class Config(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)


class Data(Config):
    """The task, as far as all know it."""

    clients: Count
    classes: Count | list[str]
    shape: Annotated[list[Count], Field(min_length=1)]  # of one row
    network: Any  # {"name": ..., its sizes}; in Python also a network
    name: str = "federation"
    kind: Literal["own", "real", "synthetic", "stand-in"] = "own"
    batch: Count = 32
    dtype: Literal["float32", "float64"] = "float32"
    groups: dict[str, Any] | None = None  # the fields of Groups
    split: Seed = 0  # how the rows of a file are cut, as in Task.from_rows
    parts: tuple[Share, Share, Share] = (0.8, 0.1, 0.1)


class Federation(Config):
    """A federation. ValueError for what is unknown, missing or makes no sense."""

    method: dict[str, Any]
    task: Data
    rounds: Annotated[int, Field(ge=0)]
    cohort: Annotated[int, Field(ge=0)] = 0
    seed: Seed = 0
    every: Count = 1  # rounds between evaluations
    own: bool = False  # also score every client's model as it was uploaded
    minimum: Count = 1  # answers that a round needs
    patience: Annotated[float, Field(ge=0)] = 600.0  # seconds to ask for them again
    wait: Seconds = 600.0  # for the answers to one kind of message
    limit: Count = 10**9  # bytes of an answer
    folder: str = ""  # where the server keeps checkpoint and record; "": nowhere
    data: str = ""  # the rows of a client whose node names none
    state: str = "clients"  # where a client keeps its own, whose node names no folder

    def model_post_init(self, context):
        method = self.make(rows.server_task(self))
        check_run(method, method.task, self.cohort or None, self.own)

    @classmethod
    def read(cls, config):
        """The federation of a run config, {"method.lr": 0.1, ...}."""
        tree = {}
        for path, v in config.items():
            *above, name = path.split(".")
            here = tree
            for k in above:
                here = here.setdefault(k, {})
            here[name] = json.loads(v) if str(v)[:1] in ("[", "{") else v
        return cls(**tree)

    @classmethod
    def of(cls, method, rounds, **more):
        """The federation of a Method object on the task that it has: what a simulation
        runs, to be deployed."""
        t, groups = method.task, method.task.groups
        data = {
            "name": t.name,
            "clients": t.C,
            "classes": t.K,
            "shape": list(t.x.shape[1:]),
            "network": sizes_of(t.network),
            "kind": t.kind,
            "batch": t.batch,
            "dtype": str(t.x.dtype).removeprefix("torch."),
            "groups": groups
            and {f.name: getattr(groups, f.name) for f in fields(groups)},
        }
        return cls(method=described(method), task=data, rounds=rounds, **more)

    def lines(self):
        """The lines of pyproject.toml from which `read` makes this federation."""
        return list(flat(self.model_dump(exclude_defaults=True)))

    # ------------------------------------------------------------ what follows from it
    C = property(lambda self: self.task.clients)
    K = property(lambda self: self.classes_and_names[0])
    shape = property(lambda self: tuple(self.task.shape))
    dtype = property(lambda self: getattr(torch, self.task.dtype))

    @property
    def classes_and_names(self):
        known = self.task.classes
        return (known, ()) if isinstance(known, int) else (len(known), tuple(known))

    def client_task(self, c, data):
        """The task of client c, see rows.client_task."""
        return rows.client_task(self, c, data)

    def make(self, task):
        """The Method on a task."""
        return make(**{"name": None} | self.method | {"task": task})

    @cached_property
    def digest(self):
        """A hash of what decides the numbers, but for the number of rounds."""
        told = {"method", "task", "cohort", "seed", "every", "own"}
        text = json.dumps(self.model_dump(include=told), sort_keys=True, default=repr)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @cached_property
    def network(self):
        if not isinstance(spec := self.task.network, dict):
            return spec
        (K, names), none = self.classes_and_names, torch.zeros(0, *self.shape)
        pool = Pool(self.task.name, none, rows.NONE, K, self.task.kind, classes=names)
        tasks.known(tasks.NETWORKS, "network", spec.get("name"))
        spec = {k: tuple(v) if isinstance(v, list) else v for k, v in spec.items()}
        return tasks.network_for(pool, spec)

    @cached_property
    def groups(self):
        if self.task.groups is None:
            return None
        given = self.task.groups.items()
        given = {k: tuple(v) if isinstance(v, list) else v for k, v in given}
        given["schema"] = tuple(Block(*b) for b in given.get("schema", ()))
        return Groups(**given)


def sizes_of(network):
    """A network as a description: its name, and the sizes that differ from the usual;
    itself, where it holds more than sizes."""
    own = {
        f.name: getattr(network, f.name)
        for f in fields(network)
        if f.name not in ("inputs", "channels", "K", "classes")
        and getattr(network, f.name) != f.default
    }
    plain = all(isinstance(v, (int, float, str, tuple)) for v in own.values())
    named = type(network) in tasks.NETWORKS.values()
    return {"name": type(network).__name__} | own if plain and named else network


def described(m):
    """A Method object as a description: its name, and the hyper-parameters that differ
    from the usual."""
    names = [k for k, cls in METHODS.items() if cls is type(m)]
    if not names:
        raise ValueError(f"{type(m).__name__} is not in METHODS: add a line there")
    out = {"name": names[0]}
    for f in fields(m):
        v = getattr(m, f.name)
        if f.name == "task" or v == f.default:
            continue
        if isinstance(v, Method):
            v = described(v)
        elif hasattr(v, "__dataclass_fields__"):
            v = {"name": type(v).__name__} | {
                k.name: getattr(v, k.name) for k in fields(v)
            }
        out[f.name] = v
    return out


def flat(tree, at=""):
    """'method.lr = 0.1' for each entry of nested dicts. Lists become JSON in a string,
    and so do groups, whose entries are lists."""
    for k, v in tree.items():
        if isinstance(v, dict) and k != "groups":
            yield from flat(v, f"{at}{k}.")
        elif v is not None:
            text = json.dumps(v) if isinstance(v, (list, tuple, dict)) else v
            number = isinstance(v, float)
            yield f"{at}{k} = {repr(v) if number else json.dumps(text)}"
