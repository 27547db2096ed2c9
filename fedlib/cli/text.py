"""What a user types on the command line, as values, methods and tasks."""

from __future__ import annotations

import ast
import inspect
import math
import re
from dataclasses import fields

from ..core import local, server
from ..core.errors import nearest
from ..core.method import Wrap
from ..data import tasks
from ..methods import METHODS
from ..pieces import robust


class Mistake(ValueError):
    """What the user typed cannot be done; one line that says what would."""


def known(name):
    if name not in METHODS:
        raise Mistake(
            f"unknown method {name!r}{nearest(name, METHODS)} (python -m fedlib "
            "methods lists them)"
        )
    return METHODS[name]


def pick(word, words, what):
    """The one of `words` that the user means; case and punctuation do not matter."""
    bare = {"".join(c for c in w.lower() if c.isalnum()): w for w in words}
    found = bare.get("".join(c for c in word.lower() if c.isalnum()))
    if found is None:
        raise Mistake(
            f"unknown {what} {word!r}{nearest(word, words)} (known: {', '.join(words)})"
        )
    return found


def value(text):
    """A number, True, False, None, a list of these, a piece such as SAM(rho=.05),
    or the text itself.
    """
    try:
        node = ast.parse(text.strip(), mode="eval").body
        return literal(node) if not isinstance(node, ast.Call) else piece(node, text)
    except (SyntaxError, ValueError) as e:
        if isinstance(e, Mistake):
            raise
        return text


def literal(node):
    return (
        math.inf
        if isinstance(node, ast.Name) and node.id == "inf"
        else ast.literal_eval(node)
    )


def piece(node, text):
    """A step or rule from its constructor call, nothing else is called."""
    pieces, name = known_pieces(), getattr(node.func, "id", "")
    if name not in pieces:
        raise Mistake(
            f"unknown piece {name!r}{nearest(name, pieces)} (known: "
            f"{', '.join(pieces)})"
        )
    try:
        return pieces[name](
            *map(literal, node.args), **{k.arg: literal(k.value) for k in node.keywords}
        )
    except (TypeError, ValueError) as e:
        raise Mistake(f"{text}: write {name}{inspect.signature(pieces[name])}") from e


def known_pieces():
    """Steps and rules by name."""
    return {
        n: c
        for module in (local, server, robust)
        for n, c in vars(module).items()
        if inspect.isclass(c)
        and c.__module__ == module.__name__
        and hasattr(c, "__dataclass_fields__")
    }


def parse_settings(pairs, m):
    """["mu=.1", ...] -> {"mu": 0.1}."""
    out, names = {}, [f.name for f in fields(m) if f.name not in ("task", "inner")]
    if issubclass(m, Wrap):  # what it does not know goes to the method inside
        inside = next(
            (p.partition("=")[2] for p in pairs if p.startswith("inner=")), m.around
        )
        names += [
            "inner",
            *(
                f.name
                for f in fields(known(inside))
                if f.name not in ("task", "inner", *names)
            ),
        ]
    for pair in pairs:
        k, eq, v = pair.partition("=")
        if not eq:
            raise Mistake(f"--set {pair!r}: write name=value, as in --set lr=0.05")
        if k not in names:
            raise Mistake(
                f"--set {pair}: no hyper-parameter {k!r}{nearest(k, names)} (known: "
                f"{', '.join(names)})"
            )
        out[k] = value(v)
        if k in ("step", "rule") and isinstance(out[k], str):
            raise Mistake(
                f"--set {pair}: {k} is a piece, written as a call: "
                f"{', '.join(known_pieces())}"
            )
    return out


DIRICHLET = {"name": "dirichlet", "clients": 10, "alpha": 0.5}
PARTS = {
    "dirichlet": ("dirichlet", "alpha"),
    "labels": ("labels_per_client", "labels"),
    "per_domain": ("by_domain", "per_domain"),
}
USUAL = {
    "synthetic": ({"name": "natural"}, {"name": "Linear"}),
    "office10": ({"name": "natural"}, {"name": "CNN"}),
    "digits": (DIRICHLET, {"name": "MLP", "hidden": 64}),
    "glyphs": (DIRICHLET, {"name": "CNN"}),
    "cifar10": (DIRICHLET | {"clients": 100, "alpha": 0.1}, {"name": "CNN"}),
    "cifar100": (DIRICHLET | {"clients": 20, "alpha": 0.1}, {"name": "CNN"}),
    **dict.fromkeys(
        ("census", "acs"), ({"name": "natural"}, {"name": "MLP", "hidden": 32})
    ),
    "mnist": (DIRICHLET, {"name": "CNN"}),
    **dict.fromkeys(("domains", "domainbed"), ({"name": "natural"}, {"name": "CNN"})),
    "features": ({"name": "natural"}, {"name": "Adapter"}),
    "tiny_imagenet": (DIRICHLET | {"clients": 20, "alpha": 0.1}, {"name": "CNN"}),
}  # source -> partition, network


def describe(text):
    """ "digits:clients=10,dirichlet=.3" -> (description for fedlib.data.tasks, split).

    dirichlet=, labels= and per_domain= choose the partition, network= the network;
    groups=parity compares odd and even labels; guest= leaves an owner out,
    standard=True standardises images; batch= and split= are the task's; what the
    source takes goes to the source, then to the partition, and the rest are sizes of
    the network.
    """
    name, _, rest = text.partition(":")
    if name not in tasks.SOURCES:
        raise Mistake(
            f"unknown task {name!r}{nearest(name, tasks.SOURCES)} (known: "
            f"{', '.join(tasks.SOURCES)})"
        )
    given = {}
    # not the commas of a list
    for pair in filter(None, re.split(r",(?![^\[(]*[\])])", rest)):
        k, eq, v = pair.partition("=")
        if not eq:
            raise Mistake(
                f"task {text!r}: {pair!r} is not name=value; write "
                f"{name}:name=value,name=value"
            )
        given[k.strip()] = value(v)
    partition, network = map(dict, USUAL.get(name, (DIRICHLET, {"name": "Linear"})))
    for k, (how, arg) in PARTS.items():
        if k in given:
            partition = {"name": how, arg: given.pop(k)} | {
                a: b for a, b in partition.items() if a == "clients"
            }
    groups = {"groups": {"by": given.pop("groups")}} if "groups" in given else {}
    if "network" in given:
        network = {"name": given.pop("network")}
    spec = {"data": {"name": name}, "batch": given.pop("batch", 32)} | groups
    spec |= {k: given.pop(k) for k in ("guest", "standard") if k in given}
    split = given.pop("split", 0)
    takes = inspect.signature(tasks.SOURCES[name]).parameters
    lacks = [k for k, v in takes.items() if v.default is v.empty and k not in given]
    if lacks:
        raise Mistake(
            f"task {text!r} needs {' and '.join(lacks)}, as in "
            f"{name}:{','.join(f'{k}=1' for k in lacks)}"
        )
    sources, cuts = (
        list(takes),
        list(inspect.signature(tasks.PARTITIONS[partition["name"]]).parameters),
    )
    sizes = [
        f.name for f in fields(tasks.known(tasks.NETWORKS, "network", network["name"]))
    ]
    for k, v in given.items():
        where = (
            spec["data"]
            if k in sources
            else partition
            if k in cuts
            else network
            if k in sizes
            else None
        )
        if where is None:
            words = [
                *sources,
                *cuts[1:],
                *sizes,
                *PARTS,
                "network",
                "guest",
                "standard",
                "batch",
                "split",
            ]
            raise Mistake(
                f"task {text!r}: unknown {k!r}{nearest(k, words)} (known: "
                f"{', '.join(dict.fromkeys(words))})"
            )
        where[k] = v
    return spec | {"partition": partition, "network": network}, split


def parse_task(text):
    spec, split = describe(text)
    return tasks.build(spec, split, text)
