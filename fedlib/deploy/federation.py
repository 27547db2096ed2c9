"""What all parties of a federation agree on, in one yaml file that the server and every
client read.

    method: {name: Ditto, lam: 0.5, lr: 0.1}
    task: {name: digits, clients: 3, classes: 10, shape: [64], network: {name: MLP,
        hidden: 32}, batch: 32}
    rounds: 20
    cohort: 2            # clients per round; null: all
    seed: 0              # of initial weights, cohorts and batches
    every: 5             # rounds between evaluations
    own: false           # also score every client's model as it was uploaded
    wait: 60             # seconds that the server waits for the answers to one kind
                         of message
    limit: 100000000     # bytes of the largest message
    secure: {threshold: 2, bits: 32, range: 16}
                         # the server sees sums of uploads only (see masked): so many
                         # clients can finish a sum, and numbers lie in [-range, range];
                         # left out: it sees each upload

    fed = Federation.load("federation.yaml")
    task = fed.client_task(1, "mine.npz")

Further keys of task: kind (real, synthetic, stand-in), dtype (float32, float64),
split and parts (how the rows of a file are cut, as in Task.from_rows), groups
{name, names, positive, column, of_class, schema} (see fedlib.core.groups), with blocks
[name, kind, start, stop] or, where numbers have a range, [name, kind, start, stop, low,
high], null for an end that is open. classes may be a list of names.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path

import yaml

from ..core.errors import nearest
from ..core.given import check_run, check_values
from ..core.groups import Block, Groups, span
from ..core.method import Method
from ..core.ranges import check_number, check_whole
from ..data import tasks
from ..methods import METHODS
from ..methods.make import make
from . import rows

USUAL = {
    "name": "federation",
    "batch": 32,
    "kind": "real",
    "dtype": "float32",
    "groups": None,
    "split": 0,
    "parts": (0.8, 0.1, 0.1),
}
SECURE = {"bits": 32, "range": 16.0}
NEEDED = ("clients", "classes", "shape", "network")
KEYS = (
    "method",
    "task",
    "rounds",
    "cohort",
    "seed",
    "every",
    "own",
    "wait",
    "limit",
    "secure",
)


@dataclass(frozen=True)
class Federation:
    """See the module.

    method and task as in the file; in Python task["network"] may also be a
    network itself.
    """

    method: dict
    task: dict
    rounds: int
    cohort: int | None = None
    seed: int = 0
    every: int = 1
    own: bool = False
    wait: float = 60.0
    limit: int = 10**8
    secure: dict | None = None
    at: str = field(default="federation", repr=False)  # its file, for error messages

    @classmethod
    def load(cls, path):
        """Read a file; ValueError names the key, the place and the nearest name."""
        try:
            given = yaml.safe_load(Path(path).read_text())
        except (yaml.YAMLError, UnicodeError) as e:
            raise ValueError(
                f"{path} is not valid YAML: {' '.join(str(e).split())}"
            ) from e
        refuse(given, KEYS, KEYS[:3], str(path))
        return cls(**given, at=str(path))

    @classmethod
    def of(cls, method, rounds, **more):
        """The federation of a Method object on the task that it has: what a simulation
        runs, to be deployed.
        """
        t, net, values = (
            method.task,
            method.task.network,
            lambda v: {f.name: getattr(v, f.name) for f in fields(v)},
        )
        if type(net) in tasks.NETWORKS.values() and not hasattr(net, "model"):
            net = {"name": type(net).__name__} | values(net)
        task = {
            "name": t.name,
            "clients": t.C,
            "classes": t.K,
            "shape": list(t.x.shape[1:]),
            "network": net,
            "kind": t.kind,
            "batch": t.batch,
            "dtype": str(t.x.dtype).removeprefix("torch."),
            "groups": t.groups
            and values(t.groups) | {"schema": [*map(plain, t.groups.schema)]},
        }
        return cls(spec(method), task, rounds, **more)

    def __post_init__(self):
        whole = lambda v, low=1: (
            isinstance(v, int) and not isinstance(v, bool) and v >= low
        )
        refuse(self.method, None, ("name",), f"{self.at}: method")
        refuse(self.task, (*NEEDED, *USUAL), NEEDED, f"{self.at}: task")
        object.__setattr__(self, "task", USUAL | self.task)
        t = self.task
        for k, v, good, wanted in (
            ("rounds", self.rounds, whole(self.rounds, 0), "a whole number of rounds"),
            (
                "cohort",
                self.cohort,
                self.cohort is None or whole(self.cohort),
                "a whole number of clients, or null for all",
            ),
            ("seed", self.seed, whole(self.seed, 0), "a whole number"),
            (
                "every",
                self.every,
                whole(self.every),
                "a whole number of rounds, 1 or more",
            ),
            ("own", self.own, isinstance(self.own, bool), "true or false"),
            (
                "wait",
                self.wait,
                isinstance(self.wait, (int, float)) and 0 < self.wait < math.inf,
                "seconds, more than 0",
            ),
            ("limit", self.limit, whole(self.limit), "a whole number of bytes"),
            (
                "task.clients",
                t["clients"],
                whole(t["clients"]),
                "a whole number of clients",
            ),
            (
                "task.classes",
                t["classes"],
                whole(t["classes"]) or isinstance(t["classes"], list),
                "their number, or names",
            ),
            (
                "task.shape",
                t["shape"],
                isinstance(t["shape"], list)
                and t["shape"]
                and all(map(whole, t["shape"])),
                "the shape of one row, as [64] or [3, 32, 32]",
            ),
            ("task.batch", t["batch"], whole(t["batch"]), "a whole number of rows"),
            (
                "task.dtype",
                t["dtype"],
                t["dtype"] in rows.DTYPES,
                " or ".join(rows.DTYPES),
            ),
            (
                "task.split",
                t["split"],
                whole(t["split"], 0),
                "a whole number, the seed of the cut",
            ),
        ):
            if not good:
                raise ValueError(f"{self.at}: {k} = {v!r}; give {wanted}")
        task = rows.server_task(self)
        if self.secure is not None:
            self.check_secure()
        check_values({"rounds": self.rounds, "every": self.every})
        check_run(self.make(task), task, self.cohort, self.own)

    def check_secure(self):
        """Fill in what is usual, and refuse what cannot be."""
        at = f"{self.at}: secure"
        refuse(self.secure, ("threshold", *SECURE), ("threshold",), at)
        object.__setattr__(self, "secure", SECURE | self.secure)
        everybody = self.make(rows.server_task(self)).who == "all"
        s, M = self.secure, self.C if everybody else min(self.cohort or self.C, self.C)
        check_whole(f"{at}: threshold", s["threshold"], 2, M, ", of the cohort")
        check_whole(f"{at}: bits", s["bits"], 16, 40)
        check_number(f"{at}: range", s["range"], 0, why=", of a number that is sent")
        if 2 * s["threshold"] <= M:
            raise ValueError(
                f"{at}: threshold = {s['threshold']} of {M} clients; give more than "
                "half, else a server that tells two stories sees single uploads"
            )
        if self.own:
            raise ValueError(f"{self.at}: own scores single uploads; leave out secure")

    # ------------------------------------------------------------ what follows from it
    C = property(lambda self: self.task["clients"])
    K = property(
        lambda self: (
            self.task["classes"]
            if isinstance(self.task["classes"], int)
            else len(self.task["classes"])
        )
    )
    shape = property(lambda self: tuple(self.task["shape"]))

    def make(self, task):
        """The Method on a task."""
        return make(**self.method | {"task": task})

    def server_task(self, n=None):
        """The task of the server; see rows."""
        return rows.server_task(self, n)

    def client_task(self, c, data):
        """The task of client c; data as in rows.client_task."""
        return rows.client_task(self, c, data)

    @cached_property
    def digest(self):
        """Hash of what decides the numbers; server and clients compare it in every
        message.
        """
        what = [
            self.method,
            self.task,
            self.rounds,
            self.cohort,
            self.seed,
            self.every,
            self.own,
            *([self.secure] if self.secure else []),
        ]
        return hashlib.sha256(
            json.dumps(what, sort_keys=True, default=repr).encode()
        ).hexdigest()[:16]

    @cached_property
    def network(self):
        spec, at = self.task["network"], f"{self.at}: task.network"
        if not isinstance(spec, (dict, str)):
            return spec
        spec = {"name": spec} if isinstance(spec, str) else spec
        refuse(spec, None, ("name",), at)
        cls = tasks.known(tasks.NETWORKS, f"{at}:", spec["name"])
        sizes = {f.name: f for f in fields(cls)}
        refuse(spec, ("name", *sizes), (), f"{at} {spec['name']}")
        names = (
            tuple(self.task["classes"])
            if isinstance(self.task["classes"], list)
            else ()
        )
        given = {
            "inputs": math.prod(self.shape),
            "channels": self.shape[0],
            "K": self.K,
            "classes": names,
        }
        given |= {k: tuple(v) if isinstance(v, list) else v for k, v in spec.items()}
        refuse(
            given,
            None,
            [k for k, f in sizes.items() if f.default is f.default_factory],
            f"{at} {spec['name']}",
        )
        return cls(**{k: v for k, v in given.items() if k in sizes})

    @cached_property
    def groups(self):
        g = self.task["groups"]
        if g is None:
            return None
        refuse(
            g,
            [f.name for f in fields(Groups)],
            ("name", "names", "positive"),
            f"{self.at}: task.groups",
        )
        flat = {k: tuple(v) if isinstance(v, list) else v for k, v in g.items()}
        at = f"{self.at}: task.groups.schema"
        schema = [block(b, f"{at}[{i}]") for i, b in enumerate(g.get("schema", ()))]
        return Groups(**flat | {"schema": tuple(schema)})


def plain(block):
    """A Block as an entry of the file: null is a range's open end, as JSON has no
    infinity.
    """
    return [None if v in (-math.inf, math.inf) else v for v in block]


def block(entry, at):
    """The Block of an entry of the file."""
    if not isinstance(entry, (list, tuple)) or len(entry) not in (4, 6):
        raise ValueError(
            f"{at} = {entry!r:.60}; give [name, kind, start, stop], or with a range "
            "[name, kind, start, stop, low, high]"
        )
    ends = [e if v is None else v for v, e in zip(entry[4:], (-math.inf, math.inf))]
    return Block(*entry[:4], *(span(ends, at) if ends else ()))


def spec(m):
    """A Method object as an entry of the file: its name, and the hyper-parameters that
    differ from the usual.
    """
    names = [k for k, cls in METHODS.items() if cls is type(m)]
    if not names:
        raise ValueError(
            f"{type(m).__name__} is not in METHODS, so a file cannot name it; add a "
            "line there"
        )
    own = {
        f.name: getattr(m, f.name)
        for f in fields(m)
        if f.name != "task" and getattr(m, f.name) != f.default
    }
    piece = lambda v: (
        {"name": type(v).__name__} | {f.name: getattr(v, f.name) for f in fields(v)}
    )
    return {"name": names[0]} | {
        k: spec(v)
        if isinstance(v, Method)
        else piece(v)
        if hasattr(v, "__dataclass_fields__")
        else v
        for k, v in own.items()
    }


def refuse(entry, known, needed, at):
    """ValueError for an entry that is no mapping, has a key that is not known, or lacks
    one that is needed.
    """
    if not isinstance(entry, dict):
        raise ValueError(f"{at}: {entry!r:.60} is no mapping; write key: value")
    for k in entry:
        if known is not None and k not in known:
            raise ValueError(
                f"{at}: unknown key {k!r}{nearest(k, known)} (known: "
                f"{', '.join(known)})"
            )
    for k in needed:
        if k not in entry:
            raise ValueError(f"{at}: {k!r} is missing")
