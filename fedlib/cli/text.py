"""What a user types on the command line, as values and tasks."""

import inspect
import re

from ..data import tasks
from ..study import studies


def settings(text):
    """ "mu=.1,step=SAM(rho=.5)" -> {"mu": 0.1, "step": {"name": "SAM", "rho": 0.5}}.

    The text is the inside of a YAML mapping, but for = and for pieces, which are
    written as calls. ValueError where it is none; `make` says what the values may be.
    """
    flow = re.sub(r"(\w+)\(([^()]*)\)", r"{name: \1, \2}", text).replace("=", ": ")
    with studies.located(repr(text)):
        return {str(k): v for k, v in studies.parsed(f"{{{flow}}}").items()}


# ---------------------------------------------------------------- tasks
# sources whose rows nobody owns, and of images; the network of a source, else WIDE
POOLED = "digits mnist5k digit_pairs glyphs mnist cifar10 cifar100 tiny_imagenet"
IMAGES = "office10 domains domainbed glyphs mnist cifar10 cifar100 tiny_imagenet"
NETWORKS = dict.fromkeys(IMAGES.split(), {"name": "CNN"})
NETWORKS |= dict.fromkeys(("census", "adult", "acs"), {"name": "MLP", "hidden": 32})
NETWORKS |= {"synthetic": {"name": "Linear"}, "features": {"name": "Adapter"}}
WIDE = {"name": "MLP", "hidden": 64}
DIRICHLET = {"name": "dirichlet", "clients": 10}
PARTS = {  # name on the command line -> argument of the partition, and the others
    "dirichlet": ("alpha", DIRICHLET),
    "labels": ("labels", {"name": "labels_per_client", "clients": 10}),
    "per_domain": ("per_domain", {"name": "by_domain"}),
}
OWN, NAMED = ("guest", "standard", "batch"), {"network": "name", "groups": "by"}


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
    given = settings(rest)
    spec = {"data": {"name": name}, "batch": 32, "network": NETWORKS.get(name, WIDE)}
    half = DIRICHLET | {"alpha": 0.5}
    spec["partition"] = half if name in POOLED.split() else tasks.NATURAL
    for k in [k for k in PARTS if k in given]:
        argument, others = PARTS[k]
        spec["partition"] = others | {argument: given.pop(k)}
    spec |= {k: given.pop(k) for k in OWN if k in given}
    spec |= {k: {of: given.pop(k)} for k, of in NAMED.items() if k in given}
    split = given.pop("split", 0)
    made = lambda k: tasks.known(tasks.TABLES[k], k, spec[k]["name"])
    takes = {k: inspect.signature(made(k)).parameters for k in tasks.TABLES}
    for k, v in given.items():
        to = next((part for part, names in takes.items() if k in names), "network")
        spec[to] = spec[to] | {k: v}
    return spec, split


def parse_task(text):
    """The Task that a text such as "digits:clients=10" describes."""
    return tasks.build(*describe(text), text)
