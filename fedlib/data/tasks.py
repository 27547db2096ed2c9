"""A task from a plain description, as params.yaml and the command line give it.

{data: {name: glyphs, n: 6000}, partition: {name: dirichlet, clients: 100, alpha: 0.1},
network: {name: CNN}, batch: 64}
"""

from __future__ import annotations

import functools
import inspect
import json
import math
import os
from dataclasses import fields

import torch

from .. import nets
from ..core import groups as groups_
from ..core.errors import nearest
from ..core.task import Task
from ..nets.clip import Adapter, Prompts
from .acs import acs
from .census import census
from .cifar10 import cifar10
from .cifar100 import cifar100
from .digits import digits
from .domainbed import domainbed
from .domains import domains
from .features import features
from .glyphs import glyphs
from .mnist import mnist
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
    f.__name__: f
    for f in (
        synthetic,
        digits,
        glyphs,
        domains,
        features,
        census,
        cifar10,
        cifar100,
        mnist,
        office10,
        tiny_imagenet,
        domainbed,
        acs,
    )
}
PARTITIONS = {
    f.__name__: f
    for f in (natural, dirichlet, dirichlet_capped, labels_per_client, ring, by_domain)
}
NETWORKS = {
    n: c
    for n, c in vars(nets).items()
    if inspect.isclass(c) and issubclass(c, nets.Net) and c is not nets.Net
}
NETWORKS |= {"Adapter": Adapter, "Prompts": Prompts}
KEYS = (
    "data",
    "standard",
    "groups",
    "partition",
    "guest",
    "network",
    "batch",
    "parts",
    "train",
    "source",
    "test",
    "owners",
)


def build(spec, split=0, name=None):
    """The task of a description; `split` is the seed of each client's
    train / test / validation cut.
    """
    for k in spec:
        if k not in KEYS:
            raise ValueError(
                f"task {name or spec}: unknown key {k!r}{nearest(k, KEYS)} (known: "
                f"{', '.join(KEYS)})"
            )
    for k in ("data", "network"):
        if k not in spec:
            raise ValueError(f"task {name or spec}: no {k!r} given")
    pool, test = (
        source(json.dumps(spec["data"]), os.environ.get("FEDLIB_DATA"), os.getcwd()),
        spec.get("test"),
    )
    out = left_out(pool, spec)
    if spec.get("standard"):
        pool = standard(pool, out, spec["standard"])
    shared = isinstance(test, dict)
    if shared:
        pool = hold_out_share(pool, test)
    elif test is not None:
        pool = hold_out(pool, test)
    if "groups" in spec:
        pool = grouped(pool, spec["groups"])
    if "owners" in spec:
        pool = pool._replace(owners=tuple(spec["owners"]))
    rows = divide(pool, spec.get("partition", {"name": "natural"}), shared)
    name, more = name or pool.name, {}
    if out:
        name += " without " + ", ".join(pool.owners[k] for k in out)
        more = {
            "guests": [rows[k] for k in out],
            "owners": tuple(o for k, o in enumerate(pool.owners) if k not in out),
        }
        rows = [r for k, r in enumerate(rows) if k not in out]
    network = spec["network"]
    cls = known(NETWORKS, "network", network["name"])
    shape = pool.x.shape[1:]
    given = {
        "inputs": math.prod(shape),
        "channels": shape[0],
        "K": pool.K,
        "classes": pool.classes,
    }
    given |= {k: v for k, v in network.items() if k != "name"}
    names = [f.name for f in fields(cls)]
    for k in given:
        if k not in names and k not in ("inputs", "channels", "K", "classes"):
            raise ValueError(
                f"network {network['name']} has no size {k!r}{nearest(k, names)} (it "
                f"has {', '.join(names)})"
            )
    net = cls(**{k: v for k, v in given.items() if k in names})
    # rows drawn from nothing must know that they are images
    if "inputs" in names and "groups" not in spec:
        pool = pool._replace(x=pool.x.flatten(1))
    return Task.from_rows(
        name,
        net,
        pool,
        rows,
        split,
        tuple(spec.get("parts", (0.8, 0.1, 0.1))),
        shared,
        batch=spec.get("batch", 32),
        **more,
    )


@functools.lru_cache(maxsize=1)
def source(spec, *where):
    """The pool of a source, kept for the next task on the same data.

    where: what else decides which files it reads.
    """
    return call(SOURCES, "data", json.loads(spec))


def known(table, what, name):
    if name not in table:
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
    return f(*args, **more)


def divide(pool, spec, shared=False):
    """Rows per client.

    shared: the test list belongs to nobody and only the other rows are dealt.
    """
    if shared:
        rest = (
            torch.ones(len(pool.y), dtype=torch.bool)
            .index_fill(0, pool.test, False)
            .nonzero()[:, 0]
        )
        owner = None if pool.owner is None else pool.owner[rest]
        return [
            rest[r] for r in divide(pool._replace(y=pool.y[rest], owner=owner), spec)
        ]
    if spec["name"] in ("natural", "by_domain"):
        if pool.owner is None:
            raise ValueError(
                f"{pool.name} has no natural clients or domains; use dirichlet or "
                "labels_per_client"
            )
        return call(PARTITIONS, "partition", spec, pool.owner)
    return call(PARTITIONS, "partition", spec, pool.y)


def left_out(pool, spec):
    """The numbers of the owners that never take part: guest = an owner's name,
    or a list of names.
    """
    names = spec.get("guest", [])
    names = [names] if isinstance(names, str) else list(names)
    for g in names:
        if g not in pool.owners:
            raise ValueError(
                f"guest = {g!r}: {pool.name} has no owner of "
                f"that name{nearest(g, pool.owners)} (it has "
                f"{', '.join(pool.owners) or 'none'})"
            )
    if names and (
        spec.get("partition", {"name": "natural"}) != {"name": "natural"}
        or "test" in spec
    ):
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
        mean, std = (
            torch.tensor(v)[:, None, None]
            for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
        )
    else:
        # a domain left out is not looked at
        seen = pool.x if not out else pool.x[~torch.isin(pool.owner, torch.tensor(out))]
        mean, std = (
            seen.mean((0, 2, 3), keepdim=True),
            seen.std((0, 2, 3), keepdim=True),
        )
    return pool._replace(x=(pool.x - mean) / std)


def grouped(pool, spec):
    """groups = {by: parity}: odd and even classes, for images without people."""
    if spec != {"by": "parity"}:
        raise ValueError(
            f"groups = {spec}: give {{by: parity}}, or data that come with a sensitive "
            "attribute (census, acs)"
        )
    a, groups = groups_.parity(pool.y, pool.K)
    return pool._replace(a=a, groups=groups)


def hold_out(pool, test):
    """The last test[k] rows of owner k become its fixed test rows,
    as an official test list would.
    """
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
    if pool.test is not None or not 0 < test["share"] < 1:
        official = f"{pool.name} has an official test list, leave the share out"
        raise ValueError(
            f"test = {test}: "
            f"{official if pool.test is not None else 'give a share between 0 and 1'}"
        )
    of_class = [(pool.y == k).nonzero()[:, 0] for k in range(pool.K)]
    return pool._replace(
        test=torch.cat([r[len(r) - round(test["share"] * len(r)) :] for r in of_class])
    )
