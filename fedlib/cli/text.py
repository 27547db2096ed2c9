"""What a user types on the command line, as values, methods and tasks."""

from __future__ import annotations

import argparse
import ast
import inspect
import re
from dataclasses import fields
from pathlib import Path

from ..core.errors import nearest
from ..core.ranges import COUNT
from . import complete

if not complete.ASKED:  # a shell that completes a word cannot wait for torch
    from ..core.local import STEPS
    from ..data import tasks
    from ..methods import METHODS
    from ..pieces.robust import RULES


def pick(word, words, what):
    """The one of `words` that the user means; case and punctuation do not matter."""
    bare = lambda text: "".join(c for c in text.lower() if c.isalnum())
    found = {bare(w): w for w in words}.get(bare(word))
    if found is None:
        known = f"{nearest(word, words)} (known: {', '.join(words)})"
        raise ValueError(f"unknown {what} {word!r}{known}")
    return found


def known(name):
    """The class of a method."""
    if name not in METHODS:
        hint = f"{nearest(name, METHODS)} (python -m fedlib methods lists them)"
        raise ValueError(f"unknown method {name!r}{hint}")
    return METHODS[name]


# ---------------------------------------------------------------- types of options
def whole(low, high=COUNT):
    """The type of an option that is a whole number from low to high."""

    def read(text):
        if not low <= int(text) <= high:
            raise ValueError
        return int(text)

    read.__name__ = f"whole number from {low} to {high}"  # argparse says it
    return read


def file(text):
    """The type of an option that names a file to write."""
    path = Path(text)
    if path.is_dir() or not path.absolute().parent.is_dir():
        why = "give a file in a folder that exists, as in report.html"
        raise argparse.ArgumentTypeError(f"{text}: {why}")
    return text


# ---------------------------------------------------------------- values
def literal(text):
    """A number, True, False, None, a list of these, or the text itself."""
    if text in ("inf", "-inf", "nan"):
        return float(text)
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text


def value(text):
    """The same; or a piece such as SAM(rho=.05), and nothing else is called."""
    name, call, rest = text.strip().partition("(")
    if not call or not name.isidentifier():
        return literal(text)
    pieces = STEPS | RULES
    cls = pieces[pick(name, pieces, "piece")]
    try:
        node = ast.parse(f"{name}({rest}", mode="eval").body
        values = [ast.literal_eval(v) for v in node.args]
        return cls(*values, **{k.arg: ast.literal_eval(k.value) for k in node.keywords})
    except (TypeError, SyntaxError, AttributeError) as e:
        raise ValueError(f"write {name}{inspect.signature(cls)} ({e})") from e


def entries(pairs, read):
    """["mu=.1", ...] -> {"mu": 0.1}; read: text -> value."""
    out = {}
    for pair in pairs:
        k, eq, v = pair.partition("=")
        if not eq or k.strip() in out:
            why = "is given twice; give it once" if eq else "is not name=value"
            raise ValueError(f"{pair!r}: {k.strip()} {why}, as in lr=0.05")
        try:
            out[k.strip()] = read(v)
        except ValueError as e:
            raise ValueError(f"{pair}: {e}") from e
    return out


def parse_settings(pairs):
    """The hyper-parameters of --set; `make` says what they may be."""
    return entries(pairs, value)


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


def describe(text):
    """A task from "digits:clients=10,dirichlet=.3" -> (description for
    fedlib.data.tasks, split).

    dirichlet=, labels= and per_domain= choose the partition, network= the network;
    groups=parity compares odd and even labels; guest= leaves an owner out,
    standard=True standardises images; batch= and split= are the task's; what the
    source takes goes to the source, then to the partition, and the rest are sizes of
    the network.
    """
    name, _, rest = text.partition(":")
    source = tasks.known(tasks.SOURCES, "task", name)
    pairs = re.split(r",(?![^\[(]*[\])])", rest)  # not the commas of a list
    given = entries(filter(None, pairs), literal)
    partition, network = map(dict, USUAL.get(name, (DIRICHLET, LINEAR)))
    for k, (how, argument) in PARTS.items():
        if k in given:  # the number of clients stays the usual one
            clients = {a: b for a, b in partition.items() if a == "clients"}
            partition = {"name": how, argument: given.pop(k)} | clients
    if "network" in given:
        network = {"name": given.pop("network")}
    spec = {"data": {"name": name}, "batch": given.pop("batch", 32)}
    spec |= {"groups": {"by": given.pop("groups")}} if "groups" in given else {}
    spec |= {k: given.pop(k) for k in ("guest", "standard") if k in given}
    split = given.pop("split", 0)
    spec |= {"partition": partition, "network": network}
    net = tasks.known(tasks.NETWORKS, "network", network["name"])
    takes = [  # the first of the three descriptions that takes an entry has it
        (spec["data"], [*inspect.signature(source).parameters]),
        (
            partition,
            [*inspect.signature(tasks.PARTITIONS[partition["name"]]).parameters],
        ),
        (network, [f.name for f in fields(net)]),
    ]
    for k, v in given.items():
        to = next((part for part, names in takes if k in names), None)
        if to is None:
            words = [n for _, names in takes for n in names]
            words += [
                *PARTS,
                "network",
                "groups",
                "guest",
                "standard",
                "batch",
                "split",
            ]
            known = f"{nearest(k, words)} (known: {', '.join(dict.fromkeys(words))})"
            raise ValueError(f"task {text!r}: unknown {k!r}{known}")
        to[k] = v
    return spec, split


def parse_task(text):
    """The Task that a text such as "digits:clients=10" describes."""
    spec, split = describe(text)
    return tasks.build(spec, split, text)
