"""A task from a plain description, as params.yaml and the command line give it.

{data: {name: glyphs, n: 6000},
 partition: {name: dirichlet, clients: 100, alpha: 0.1},
 network: {name: CNN}, batch: 64}
"""

from __future__ import annotations

import functools
import inspect
import json
import math
import os
from dataclasses import MISSING, fields

import torch

from .. import nets
from ..core import groups as groups_
from ..core.errors import nearest
from ..core.ranges import SEEDS, check_whole, is_number, is_whole, short
from ..core.task import Task
from ..nets.clip import Adapter, Prompts
from .acs import acs
from .adult import adult
from .census import census
from .cifar import cifar10, cifar100
from .digits import digits
from .domainbed import domainbed
from .domains import domains
from .features import features
from .glyphs import glyphs
from .mnist import mnist
from .mnist5k import digit_pairs, digit_sites, mnist5k
from .mnist_domains import colored, rotated
from .office10 import office10
from .partition import (
    by_domain,
    dirichlet,
    dirichlet_capped,
    labels_per_client,
    natural,
    ring,
)
from .synthetic import synthetic
from .tiny_imagenet import tiny_imagenet

SOURCES = {
    "synthetic": synthetic,
    "digits": digits,
    "mnist5k": mnist5k,
    "digit_sites": digit_sites,
    "digit_pairs": digit_pairs,
    "rotated": rotated,
    "colored": colored,
    "glyphs": glyphs,
    "domains": domains,
    "features": features,
    "census": census,
    "adult": adult,
    "cifar10": cifar10,
    "cifar100": cifar100,
    "mnist": mnist,
    "office10": office10,
    "tiny_imagenet": tiny_imagenet,
    "domainbed": domainbed,
    "acs": acs,
}
PARTITIONS = {
    "natural": natural,
    "dirichlet": dirichlet,
    "dirichlet_capped": dirichlet_capped,
    "labels_per_client": labels_per_client,
    "ring": ring,
    "by_domain": by_domain,
}
NETWORKS = {
    n: c
    for n, c in vars(nets).items()
    if inspect.isclass(c) and issubclass(c, nets.Net) and c is not nets.Net
}
NETWORKS |= {"Adapter": Adapter, "Prompts": Prompts}
TABLES = {"data": SOURCES, "partition": PARTITIONS, "network": NETWORKS}
KEYS = (
    *("data", "standard", "groups", "partition", "guest", "network", "batch", "parts"),
    *("train", "source", "test", "owners"),
)
# mean and deviation per colour channel
IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def build(spec, split=0, name=None):
    """The Task of a description; `split` is the seed of each client's train / test /
    validation cut. Raises ValueError for what a description does not have.
    """
    check(spec, name or spec)
    check_whole(f"task {name}: split", split, 0, SEEDS, ", a seed")
    where = os.environ.get("FEDLIB_DATA"), os.getcwd()
    pool = source(json.dumps(spec["data"]), *where)
    out = left_out(pool, spec)
    shared = isinstance(spec.get("test"), dict)
    pool = prepared(pool, spec, out, shared)
    rows = divide(pool, spec.get("partition", {"name": "natural"}), shared)
    name, more = name or pool.name, {}
    if out:
        name += " without " + ", ".join(pool.owners[k] for k in out)
        more = {
            "guests": [rows[k] for k in out],
            "owners": tuple(o for k, o in enumerate(pool.owners) if k not in out),
        }
        rows = [r for k, r in enumerate(rows) if k not in out]
    net = network_for(pool, spec["network"])
    # rows drawn from nothing must know that they are images
    if "inputs" in names_of(net) and "groups" not in spec:
        pool = pool._replace(x=pool.x.flatten(1))
    parts, batch = tuple(spec.get("parts", (0.8, 0.1, 0.1))), spec.get("batch", 32)
    return Task.from_rows(
        name, net, pool, rows, split, parts, shared, batch=batch, **more
    )


def check(spec, name):
    """ValueError for an unknown key of a description, or a missing one."""
    for k in spec:
        if k not in KEYS:
            raise ValueError(
                f"task {name}: unknown key {k!r}{nearest(k, KEYS)} (known: "
                f"{', '.join(KEYS)})"
            )
    for k in ("data", "network"):
        if k not in spec:
            raise ValueError(f"task {name}: no {k!r} given")
    for k in ("data", "partition", "network"):
        check_described(spec.get(k, {"name": "natural"}), k, f"task {name}: {k}")
    check_values(spec, f"task {name}")


def check_described(piece, kind, at):
    """ValueError unless it is a description {name: ..., ...} that names a source, a
    partition or a network, and holds plain values."""
    if not isinstance(piece, dict) or not isinstance(piece.get("name"), str):
        raise ValueError(
            f"{at} = {short(piece)}: give a name and what it takes, as "
            f"{{name: {next(iter(TABLES[kind]))}, ...}}"
        )
    known(TABLES[kind], kind, piece["name"])
    try:
        json.dumps(piece)
    except (TypeError, ValueError, RecursionError) as e:
        raise ValueError(
            f"{at} = {short(piece)}: give numbers, texts, true, false and lists of "
            f"them ({e})"
        ) from e


def check_values(spec, at):
    """ValueError for a value of a description that is none."""
    check_whole(f"{at}: batch", spec.get("batch", 32), 1, why=" of rows")
    parts = spec.get("parts", (0.8, 0.1, 0.1))
    listed = isinstance(parts, (list, tuple)) and len(parts) == 3
    if not listed or not all(is_number(v) and 0 <= v <= 1 for v in parts):
        raise ValueError(
            f"{at}: parts = {short(parts)}: give three shares, of training, validation "
            "and test rows, as [0.8, 0.1, 0.1]"
        )
    how = spec.get("standard")
    if how not in (None, "imagenet") and not isinstance(how, bool):
        raise ValueError(f"{at}: standard = {short(how)}: give true, false or imagenet")
    test = spec.get("test")
    counts = isinstance(test, list) and all(map(is_whole, test))
    if test is not None and not isinstance(test, dict) and not counts:
        raise ValueError(
            f"{at}: test = {short(test)}: give {{by: labels}}, or a list with a number "
            "of test rows for each owner"
        )
    owners = spec.get("owners", [])
    if not isinstance(owners, list) or not all(isinstance(v, str) for v in owners):
        raise ValueError(f"{at}: owners = {short(owners)}: give a list of names")


def prepared(pool, spec, out, shared):
    """The pool, standardised, with its test rows, groups and names as described.

    out: numbers of the owners that are left out.
    """
    if spec.get("standard"):
        pool = standard(pool, out, spec["standard"])
    if shared:
        pool = hold_out_share(pool, spec["test"])
    elif spec.get("test") is not None:
        pool = hold_out(pool, spec["test"])
    if "groups" in spec:
        pool = grouped(pool, spec["groups"])
    if "owners" in spec:
        pool = pool._replace(owners=tuple(spec["owners"]))
    return pool


def names_of(network):
    """The sizes that a network has."""
    return [f.name for f in fields(network)]


def network_for(pool, spec):
    """The network of a description, with inputs and outputs as the pool has them."""
    cls = known(NETWORKS, "network", spec["name"])
    shape = pool.x.shape[1:]
    seen = {
        "inputs": math.prod(shape),
        "channels": shape[0],
        "K": pool.K,
        "classes": pool.classes,
    }
    given = seen | {k: v for k, v in spec.items() if k != "name"}
    names = names_of(cls)
    if "channels" in names and len(shape) != 3:
        raise ValueError(
            f"network {spec['name']} is for images, and {pool.name} has rows of shape "
            f"{list(shape)}; use Linear or MLP"
        )
    for k in given:
        if k not in names and k not in seen:
            raise ValueError(
                f"network {spec['name']} has no size {k!r}{nearest(k, names)} (it "
                f"has {', '.join(names)})"
            )
    lacks = [f.name for f in fields(cls) if needed(f) and f.name not in given]
    if lacks:
        raise ValueError(f"network {spec['name']} needs {' and '.join(lacks)}")
    return cls(**{k: v for k, v in given.items() if k in names})


def needed(field):
    """Whether a dataclass cannot do without this field."""
    return field.default is MISSING and field.default_factory is MISSING


@functools.lru_cache(maxsize=1)
def source(spec, *where):
    """The pool of a source, kept for the next task on the same data.

    where: what else decides which files it reads.
    """
    return pool_of(json.loads(spec))


def pool_of(spec):
    """The samples of a description {"name": ..., ...}.

    Features are of images that have a description of their own, under "data".
    """
    images = spec.get("data")
    if isinstance(images, dict) and "name" in images:
        spec = spec | {"data": pool_of(images)}
    return call(SOURCES, "data", spec)


def known(table, what, name):
    """table[name], or a ValueError that says what there is."""
    if not isinstance(name, str) or name not in table:
        raise ValueError(
            f"unknown {what} {name!r}{nearest(name, table)} (known: {', '.join(table)})"
        )
    return table[name]


def call(table, what, spec, *args):
    """The function that spec["name"] names, with the other entries as arguments."""
    f = known(table, what, spec["name"])
    more = {k: v for k, v in spec.items() if k != "name"}
    names = list(inspect.signature(f).parameters)
    for k in more:
        if k not in names:
            raise ValueError(
                f"{what} {spec['name']!r} takes no {k!r}{nearest(k, names)} (it takes "
                f"{', '.join(names)})"
            )
    parameters = [*inspect.signature(f).parameters.values()][len(args) :]
    lacks = [p.name for p in parameters if p.default is p.empty and p.name not in more]
    if lacks:
        raise ValueError(f"{what} {spec['name']!r} needs {' and '.join(lacks)}")
    return f(*args, **more)


def divide(pool, spec, shared=False):
    """Rows per client.

    shared: the test list belongs to nobody and only the other rows are dealt.
    """
    if shared:
        dealt = torch.ones(len(pool.y), dtype=torch.bool)
        rest = dealt.index_fill(0, pool.test, False).nonzero()[:, 0]
        owner = None if pool.owner is None else pool.owner[rest]
        pool = pool._replace(y=pool.y[rest], owner=owner)
        return [rest[r] for r in divide(pool, spec)]
    if spec["name"] in ("natural", "by_domain"):
        if pool.owner is None:
            raise ValueError(
                f"{pool.name} has no natural clients or domains; use dirichlet or "
                "labels_per_client"
            )
        return call(PARTITIONS, "partition", spec, pool.owner)
    return call(PARTITIONS, "partition", spec, pool.y)


def left_out(pool, spec):
    """The numbers of the owners that never take part: guest = an owner's name, or a
    list of names; a name may be a number, as an angle of `rotated` is.
    """
    names = spec.get("guest", [])
    names = names if isinstance(names, (list, tuple)) else [names]
    names = [str(g) for g in names]
    for g in names:
        if g not in pool.owners:
            raise ValueError(
                f"guest = {g!r}: {pool.name} has no owner of that "
                f"name{nearest(g, pool.owners)} (it has "
                f"{', '.join(pool.owners) or 'none'})"
            )
    natural = {"name": "natural"}
    if names and (spec.get("partition", natural) != natural or "test" in spec):
        raise ValueError(
            f"guest = {names}: a domain can be left out where every client is one "
            "(partition natural, and no test list of its own)"
        )
    if names and len(set(names)) >= len(pool.owners) - 1:
        raise ValueError(
            f"guest = {names}: of {len(pool.owners)} owners two or more must "
            "remain to train"
        )
    return [pool.owners.index(g) for g in dict.fromkeys(names)]


def standard(pool, out=(), how=True):
    """Images with mean 0 and deviation 1 per channel, over the pool without the owners
    left out; or as "imagenet" has them.
    """
    if pool.x.dim() != 4:
        raise ValueError(f"standard = {how!r}: {pool.name} has no images; leave it out")
    if how not in (True, "imagenet"):
        raise ValueError(
            f"standard = {how!r}: give true for the pool's own, or imagenet"
        )
    if how == "imagenet":
        if pool.x.shape[1] != 3:
            raise ValueError(
                f"standard = imagenet: {pool.name} has {pool.x.shape[1]} colour "
                "channels, it is for three"
            )
        mean, std = (torch.tensor(v)[:, None, None] for v in IMAGENET)
    else:
        # a domain left out is not looked at
        seen = pool.x if not out else pool.x[~torch.isin(pool.owner, torch.tensor(out))]
        mean = seen.mean((0, 2, 3), keepdim=True)
        std = seen.std((0, 2, 3), keepdim=True)
    return pool._replace(x=(pool.x - mean) / std)


def grouped(pool, spec):
    """groups = {by: parity}: odd and even classes, for images without people."""
    if spec != {"by": "parity"}:
        raise ValueError(
            f"groups = {spec}: give {{by: parity}}, or data that come with a sensitive "
            "attribute (census, acs, adult)"
        )
    a, groups = groups_.parity(pool.y, pool.K)
    return pool._replace(a=a, groups=groups)


def hold_out(pool, test):
    """The last test[k] rows of owner k become its fixed test rows, as an official test
    list would.
    """
    if not pool.owners:
        raise ValueError(
            f"test = {test}: {pool.name} has no owners; give {{by: labels, share: 0.3}}"
        )
    mine = [(pool.owner == k).nonzero()[:, 0] for k in range(len(pool.owners))]
    if len(test) != len(mine) or any(not 0 < n < len(r) for n, r in zip(test, mine)):
        raise ValueError(
            f"test = {test}: give one number of test rows for each of {len(mine)} "
            "owners, fewer than it has"
        )
    return pool._replace(test=torch.cat([r[-n:] for r, n in zip(mine, test)]))


def hold_out_share(pool, test):
    """test = {by: labels} takes the official test list, {by: labels, share: 0.3} holds
    out so much of every class, the last rows.

    Each client will be tested on all of these rows whose label it trains on.
    """
    for k in test:
        if k not in ("by", "share"):
            raise ValueError(
                f"test = {test}: unknown key {k!r}{nearest(k, ('by', 'share'))} "
                "(known: by, share)"
            )
    if test.get("by") != "labels":
        raise ValueError(
            f"test = {test}: shared test rows are chosen by the labels of a client; "
            "give by: labels"
        )
    if "share" not in test:
        if pool.test is None:
            raise ValueError(
                f"test = {test}: {pool.name} has no official test list; give a share "
                "of every class to hold out"
            )
        return pool
    share = test["share"]
    if pool.test is not None:
        raise ValueError(
            f"test = {test}: {pool.name} has an official test list, leave the share out"
        )
    if not is_number(share) or not 0 < share < 1:
        raise ValueError(f"test = {test}: give a share between 0 and 1")
    of_class = [(pool.y == k).nonzero()[:, 0] for k in range(pool.K)]
    last = [r[len(r) - round(share * len(r)) :] for r in of_class]
    return pool._replace(test=torch.cat(last))
