"""What a user types on the command line, as values and tasks."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields

import yaml

from ..core.errors import nearest
from ..data import tasks
from ..study import spec


def value(text):
    """What a text says in YAML: a number, true, a list, else the text itself; a piece
    such as SAM(rho=.05) becomes {"name": "SAM", "rho": 0.05}.
    """
    name, call, rest = text.strip().partition("(")
    if call and name.isidentifier() and rest.endswith(")"):
        return {"name": name} | settings(split(rest[:-1]))
    try:
        return spec.parsed(text)
    except (yaml.YAMLError, RecursionError) as e:
        raise ValueError(f"{text!r} is no YAML: {' '.join(str(e).split())}") from e


def split(text):
    """ "mu=.1,E=[1, 2]" -> ["mu=.1", "E=[1, 2]"]."""
    return [*filter(None, re.split(r",(?![^\[]*\])", text))]


def settings(pairs):
    """["mu=.1", ...] -> {"mu": 0.1}; `make` says what they may be."""
    out = {}
    for pair in pairs:
        name, eq, text = map(str.strip, pair.partition("="))
        if not eq or name in out:
            why = "is given twice; give it once" if eq else "is not name=value"
            raise ValueError(f"{pair!r}: {name} {why}, as in lr=0.05")
        try:
            out[name] = value(text)
        except ValueError as e:
            raise ValueError(f"{pair}: {e}") from e
    return out


# ---------------------------------------------------------------- tasks
NATURAL = {"name": "natural"}
DIRICHLET = {"name": "dirichlet", "clients": 10, "alpha": 0.5}
TWENTY = {"name": "dirichlet", "clients": 20, "alpha": 0.1}
HUNDRED = {"name": "dirichlet", "clients": 100, "alpha": 0.1}
CNN, SURVEY = {"name": "CNN"}, {"name": "MLP", "hidden": 32}
LINEAR, WIDE = {"name": "Linear"}, {"name": "MLP", "hidden": 64}
PARTS = {  # name on the command line -> partition, and its argument
    "dirichlet": ("dirichlet", "alpha"),
    "labels": ("labels_per_client", "labels"),
    "per_domain": ("by_domain", "per_domain"),
}
USUAL = {  # source -> partition, network
    "synthetic": (NATURAL, LINEAR),
    "features": (NATURAL, {"name": "Adapter"}),
    **dict.fromkeys(("office10", "domains", "domainbed"), (NATURAL, CNN)),
    **dict.fromkeys(("digit_sites", "rotated", "colored"), (NATURAL, WIDE)),
    **dict.fromkeys(("census", "adult", "acs"), (NATURAL, SURVEY)),
    **dict.fromkeys(("digits", "mnist5k"), (DIRICHLET, WIDE)),
    **dict.fromkeys(("glyphs", "mnist"), (DIRICHLET, CNN)),
    **dict.fromkeys(("cifar100", "tiny_imagenet"), (TWENTY, CNN)),
    "digit_pairs": (TWENTY, WIDE),
    "cifar10": (HUNDRED, CNN),
}
OWN = "network", "groups", "guest", "standard", "batch", "split"  # of the task itself


def describe(text):
    """A task from "digits:clients=10,dirichlet=.3" -> (description for
    fedlib.data.tasks, split).

    dirichlet=, labels= and per_domain= choose the partition, network= the network;
    groups=parity compares odd and even labels; guest= leaves an owner out,
    standard=true standardises images; batch= and split= are the task's; what the
    source takes goes to the source, then to the partition, and the rest are sizes of
    the network.
    """
    name, _, rest = text.partition(":")
    source, given = tasks.known(tasks.SOURCES, "task", name), settings(split(rest))
    partition, network = map(dict, USUAL.get(name, (DIRICHLET, LINEAR)))
    for k, (how, argument) in PARTS.items():
        if k in given:  # the number of clients stays the usual one
            clients = {a: b for a, b in partition.items() if a == "clients"}
            partition = {"name": how, argument: given.pop(k)} | clients
    network = {"name": given.pop("network")} if "network" in given else network
    described = {"data": {"name": name}, "batch": given.pop("batch", 32)}
    described |= {"groups": {"by": given.pop("groups")}} if "groups" in given else {}
    described |= {k: given.pop(k) for k in ("guest", "standard") if k in given}
    described |= {"partition": partition, "network": network}
    seed = given.pop("split", 0)
    net = tasks.known(tasks.NETWORKS, "network", network["name"])
    dealt = tasks.PARTITIONS[partition["name"]]
    parts = {  # the first of the three descriptions that takes an entry has it
        "data": [*inspect.signature(source).parameters],
        "partition": [*inspect.signature(dealt).parameters],
        "network": [f.name for f in fields(net)],
    }
    for k, v in given.items():
        to = next((part for part, names in parts.items() if k in names), None)
        if to is None:
            known = dict.fromkeys([*sum(parts.values(), []), *PARTS, *OWN])
            why = f"unknown {k!r}{nearest(k, known)} (known: {', '.join(known)})"
            raise ValueError(f"task {text!r}: {why}")
        described[to][k] = v
    return described, seed


def parse_task(text):
    """The Task that a text such as "digits:clients=10" describes."""
    description, split = describe(text)
    return tasks.build(description, split, text)
