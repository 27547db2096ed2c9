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

import torch

from .. import nets
from ..core import groups as groups_
from ..core.errors import nearest
from ..core.ranges import SEEDS, among, check_whole, is_number, is_whole, short
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


def by_name(*made):
    """{name: function or class}."""
    return {f.__name__: f for f in made}


SOURCES = by_name(
    *(synthetic, digits, mnist5k, digit_sites, digit_pairs, rotated, colored, glyphs),
    *(domains, features, census, adult, cifar10, cifar100, mnist, office10),
    *(tiny_imagenet, domainbed, acs),
)
PARTITIONS = by_name(
    natural, dirichlet, dirichlet_capped, labels_per_client, ring, by_domain
)
NETWORKS = by_name(*nets.NETWORKS)
NETWORKS |= by_name(Adapter, Prompts)
TABLES = {"data": SOURCES, "partition": PARTITIONS, "network": NETWORKS}
NATURAL, STANDARD = {"name": "natural"}, (None, True, False, "imagenet")
# mean and deviation per colour channel
IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


# ---------------------------------------------------------------- what may be said
def described(v):
    """Whether this is {name: ..., ...} of plain values."""
    try:
        json.dumps(v)
    except (TypeError, ValueError, RecursionError):
        return False
    return isinstance(v, dict) and isinstance(v.get("name"), str)


def shares(v):
    """Whether these are three numbers from 0 to 1."""
    listed = isinstance(v, (list, tuple)) and len(v) == 3
    return listed and all(is_number(p) and 0 <= p <= 1 for p in v)


def texts(v):
    """Whether this is a list of texts."""
    return isinstance(v, list) and all(isinstance(name, str) for name in v)


def tests(v):
    """Whether this says which rows test."""
    counts = isinstance(v, list) and all(map(is_whole, v))
    return v is None or isinstance(v, dict) or counts


def parity(v):
    """Whether this asks for the one kind of groups that images have."""
    return v == {"by": "parity"}


ANY, PIECE = (
    (lambda v: True, ""),
    (described, "a name and what it takes, of plain values"),
)
KEYS = {  # of a description: what its value passes, and what to give
    "data": PIECE,
    "standard": (lambda v: among(v, STANDARD), "true, false or imagenet"),
    "groups": (parity, "{by: parity}, or people: census, acs, adult"),
    "partition": PIECE,
    "guest": ANY,
    "network": PIECE,
    "batch": (lambda v: is_whole(v) and v >= 1, "a whole number >= 1 of rows"),
    "parts": (shares, "shares of training, validation, test, as [0.8, 0.1, 0.1]"),
    "train": ANY,
    "source": ANY,
    "test": (tests, "{by: labels}, or a list with test rows of each owner"),
    "owners": (texts, "a list of names"),
}


def check(spec, name):
    """ValueError for a key of a description that is unknown, missing or has a wrong
    value.
    """
    for k, v in spec.items():
        known(KEYS, f"key of task {name}:", k)
        check_value(k, v, f"task {name}")
    for k in ("data", "network"):
        if k not in spec:
            raise ValueError(f"task {name}: no {k!r} given")


def check_value(k, v, at):
    """ValueError unless the key k of a description may have this value."""
    good, give = KEYS[k]
    if not good(v):
        raise ValueError(f"{at}: {k} = {short(v)}: give {give}")
    if k in TABLES:
        known(TABLES[k], k, v["name"])


def known(table, what, name):
    """table[name], or a ValueError that says what there is."""
    if not isinstance(name, str) or name not in table:
        raise ValueError(
            f"unknown {what} {name!r}{nearest(name, table)} (known: {', '.join(table)})"
        )
    return table[name]


def call(table, what, spec, *args, **seen):
    """What spec["name"] names, made of the other entries; seen: what it takes besides,
    if it has a place for it.
    """
    f = known(table, what, spec["name"])
    names = inspect.signature(f).parameters
    given = {k: v for k, v in spec.items() if k != "name"}
    if odd := [k for k in given if k not in names and k not in seen]:
        raise ValueError(
            f"{what} {spec['name']!r} takes no {odd[0]!r}{nearest(odd[0], names)} (it "
            f"takes {', '.join(names)})"
        )
    given = {k: v for k, v in (seen | given).items() if k in names}
    needs = [k for k, p in names.items() if p.default is p.empty][len(args) :]
    if lacks := [k for k in needs if k not in given]:
        raise ValueError(f"{what} {spec['name']!r} needs {' and '.join(lacks)}")
    return f(*args, **given)


# ---------------------------------------------------------------- a task
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
    rows = divide(pool, spec.get("partition", NATURAL), shared)
    name, more = name or pool.name, {}
    if out:
        name += " without " + ", ".join(pool.owners[k] for k in out)
        more["guests"] = [rows[k] for k in out]
        more["owners"] = tuple(o for k, o in enumerate(pool.owners) if k not in out)
        rows = [r for k, r in enumerate(rows) if k not in out]
    net = network_for(pool, spec["network"])
    # rows drawn from nothing must know that they are images
    if "inputs" in net.__dataclass_fields__ and "groups" not in spec:
        pool = pool._replace(x=pool.x.flatten(1))
    parts, batch = tuple(spec.get("parts", (0.8, 0.1, 0.1))), spec.get("batch", 32)
    return Task.from_rows(
        name, net, pool, rows, split, parts, shared, batch=batch, **more
    )


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


def prepared(pool, spec, out, shared):
    """The pool, standardised, with its test rows, groups and names as described.

    out: numbers of the owners that are left out.
    """
    if spec.get("standard"):
        pool = standard(pool, out, spec["standard"])
    if spec.get("test") is not None:
        pool = (hold_out_share if shared else hold_out)(pool, spec["test"])
    if "groups" in spec:
        pool = grouped(pool)
    if "owners" in spec:
        pool = pool._replace(owners=tuple(spec["owners"]))
    return pool


def network_for(pool, spec):
    """The network of a description, with inputs and outputs as the pool has them."""
    shape = pool.x.shape[1:]
    names = inspect.signature(known(NETWORKS, "network", spec["name"])).parameters
    if "channels" in names and len(shape) != 3:
        raise ValueError(
            f"network {spec['name']} is for images, and {pool.name} has rows of shape "
            f"{list(shape)}; use Linear or MLP"
        )
    seen = {"inputs": math.prod(shape), "channels": shape[0]}
    return call(NETWORKS, "network", spec, **seen, K=pool.K, classes=pool.classes)


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
    whose = pool.owner if spec["name"] in ("natural", "by_domain") else pool.y
    if whose is None:
        raise ValueError(
            f"{pool.name} has no natural clients or domains; use dirichlet or "
            "labels_per_client"
        )
    return call(PARTITIONS, "partition", spec, whose)


def left_out(pool, spec):
    """The numbers of the owners that never take part: guest = an owner's name, or a
    list of names; a name may be a number, as an angle of `rotated` is.
    """
    names = spec.get("guest", [])
    names = [str(g) for g in (names if isinstance(names, (list, tuple)) else [names])]
    owners = {name: k for k, name in enumerate(pool.owners)}
    out = [known(owners, f"guest = {g!r}, owner of {pool.name}", g) for g in names]
    if names and (spec.get("partition", NATURAL) != NATURAL or "test" in spec):
        raise ValueError(
            f"guest = {names}: a domain can be left out where every client is one "
            "(partition natural, and no test list of its own)"
        )
    if names and len(set(names)) >= len(owners) - 1:
        raise ValueError(
            f"guest = {names}: two or more of {len(owners)} owners must train"
        )
    return list(dict.fromkeys(out))


def standard(pool, out=(), how=True):
    """Images with mean 0 and deviation 1 per channel, over the pool without the owners
    left out; or as "imagenet" has them.
    """
    if pool.x.dim() != 4 or (how == "imagenet" and pool.x.shape[1] != 3):
        raise ValueError(
            f"standard = {how!r}: {pool.name} has rows of shape "
            f"{list(pool.x.shape[1:])}, it is for images, imagenet for three channels"
        )
    if how == "imagenet":
        mean, std = (torch.tensor(v)[:, None, None] for v in IMAGENET)
    else:
        # a domain left out is not looked at
        seen = pool.x if not out else pool.x[~torch.isin(pool.owner, torch.tensor(out))]
        mean = seen.mean((0, 2, 3), keepdim=True)
        std = seen.std((0, 2, 3), keepdim=True)
    return pool._replace(x=(pool.x - mean) / std)


def grouped(pool):
    """Groups of images: odd and even classes."""
    a, groups = groups_.parity(pool.y, pool.K)
    return pool._replace(a=a, groups=groups)


def hold_out(pool, test):
    """The last test[k] rows of owner k become its fixed test rows, as an official test
    list would.
    """
    mine = [(pool.owner == k).nonzero()[:, 0] for k in range(len(pool.owners))]
    if len(test) != len(mine) or any(not 0 < n < len(r) for n, r in zip(test, mine)):
        raise ValueError(
            f"test = {test}: give one number of test rows for each of {len(mine)} "
            "owners, fewer than it has; without owners {by: labels, share: 0.3}"
        )
    return pool._replace(test=torch.cat([r[-n:] for r, n in zip(mine, test)]))


def hold_out_share(pool, test):
    """test = {by: labels} takes the official test list, {by: labels, share: 0.3} holds
    out so much of every class, the last rows.

    Each client will be tested on all of these rows whose label it trains on.
    """
    share = test.get("share")
    if test.keys() - {"share"} != {"by"} or test["by"] != "labels":
        raise ValueError(f"test = {test}: give {{by: labels}}, or with a share")
    if ("share" in test) == (pool.test is not None):
        has = "no" if pool.test is None else "an"
        raise ValueError(
            f"test = {test}: {pool.name} has {has} official test list: give a share of "
            "every class to hold out where it has none, and only there"
        )
    if "share" not in test:
        return pool
    if not is_number(share) or not 0 < share < 1:
        raise ValueError(f"test = {test}: give a share between 0 and 1")
    of_class = [(pool.y == k).nonzero()[:, 0] for k in range(pool.K)]
    last = [r[len(r) - round(share * len(r)) :] for r in of_class]
    return pool._replace(test=torch.cat(last))
