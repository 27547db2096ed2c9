"""A task from a plain description, as params.yaml and the command line give it.

{data: {name: glyphs, n: 6000},
 partition: {name: dirichlet, clients: 100, alpha: 0.1},
 network: {name: CNN}, batch: 64}
"""

import functools
import inspect
import json
import math
import os
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import torch
from pydantic import AfterValidator, Field

from .. import nets
from ..core.errors import SEEDS, check_whole, known, refuse_if
from ..core.pool import parity
from ..core.task import Task
from ..nets.clip import Adapter, Prompts
from . import digits, images, partition, people
from .census import census
from .domains import domains
from .glyphs import glyphs
from .settings import Count, Model, Share, check
from .synthetic import synthetic


def by_name(*made):
    """{name: function or class}."""
    return {f.__name__: f for f in made}


SOURCES = by_name(
    *(synthetic, digits.digits, digits.mnist5k, digits.digit_sites, digits.digit_pairs),
    *(digits.rotated, digits.colored, glyphs, domains, images.features, census),
    *(people.adult, images.cifar10, images.cifar100, images.mnist, images.office10),
    *(images.tiny_imagenet, images.domainbed, people.acs),
)
PARTITIONS = by_name(
    *(partition.natural, partition.dirichlet, partition.dirichlet_capped),
    *(partition.labels_per_client, partition.ring, partition.by_domain),
)
NETWORKS = by_name(*nets.NETWORKS, Adapter, Prompts)
TABLES = {"data": SOURCES, "partition": PARTITIONS, "network": NETWORKS}
NATURAL = {"name": "natural"}
# mean and deviation per colour channel
IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


# ---------------------------------------------------------------- what may be said
def one_of(kind):
    """The type of {name: ..., what it takes: ...}, of plain values."""

    def plain(v):
        known(TABLES[kind], kind, v.get("name"))
        try:
            json.dumps(v)
        except (TypeError, RecursionError) as e:
            raise ValueError(f"give plain values ({e})") from e
        return v

    return Annotated[dict[str, Any], AfterValidator(plain)]


Three = Annotated[Sequence[Share], Field(min_length=3, max_length=3)]
Guest = str | int | float


class Parity(Model):
    by: Literal["parity"]


class Labels(Model):
    by: Literal["labels"]
    share: Annotated[float, Field(gt=0, lt=1)] = None


class Description(Model):
    """What a task is made of; `train` and `source` are for others."""

    data: one_of("data")
    partition: one_of("partition") = NATURAL
    network: one_of("network")
    standard: bool | Literal["imagenet"] | None = False
    groups: Parity = None
    guest: Guest | list[Guest] = None
    batch: Count = 32
    parts: Three = (0.8, 0.1, 0.1)
    train: Any = None
    source: str = None
    test: Labels | list[Count] | None = None
    owners: list[str] = None


def call(kind, spec, *args, **seen):
    """spec["name"], made of the other entries, and of `seen` as far as it takes it."""
    f = known(TABLES[kind], kind, spec["name"])
    signature = inspect.signature(f)
    takes = signature.parameters
    given = {k: v for k, v in (seen | spec).items() if k in takes or k not in seen}
    given.pop("name")
    try:
        signature.bind(*args, **given)
    except TypeError as e:
        raise ValueError(
            f"{kind} {spec['name']!r}: {e} (it takes {', '.join(takes)})"
        ) from None
    return f(*args, **given)


# ---------------------------------------------------------------- a task
def build(spec, split=0, name=None):
    """The Task of a description; `split` is the seed of each client's train / test /
    validation cut. Raises ValueError for what a description does not have.
    """
    check(Description, spec, f"task {name or spec}: ")
    check_whole(f"task {name}: split", split, 0, SEEDS, ", a seed")
    spec = Description.model_construct(**spec)
    where = os.environ.get("FEDLIB_DATA"), os.getcwd()
    pool = source(json.dumps(spec.data), *where)
    out = left_out(pool, spec)
    shared = isinstance(spec.test, dict)
    pool = prepared(pool, spec, out)
    rows = divide(pool, spec.partition, shared)
    name, more = name or pool.name, {}
    if out:
        name += " without " + ", ".join(pool.owners[k] for k in out)
        more["guests"] = [rows[k] for k in out]
        more["owners"] = tuple(o for k, o in enumerate(pool.owners) if k not in out)
        rows = [r for k, r in enumerate(rows) if k not in out]
    net = network_for(pool, spec.network)
    # rows drawn from nothing must know that they are images
    if "inputs" in net.__dataclass_fields__ and spec.groups is None:
        pool = pool._replace(x=pool.x.flatten(1))
    parts, batch = tuple(spec.parts), spec.batch
    return Task.from_rows(
        name, net, pool, rows, split, parts, shared, batch=batch, **more
    )


@functools.lru_cache(maxsize=1)
def source(spec, *where):
    """The pool of a source, kept; where: what else decides which files it reads."""
    return pool_of(json.loads(spec))


def pool_of(spec):
    """The samples of a description; features are of images described under "data"."""
    images = spec.get("data")
    if isinstance(images, dict) and "name" in images:
        spec = spec | {"data": pool_of(images)}
    return call("data", spec)


def prepared(pool, spec, out):
    """The pool as described; out: numbers of the owners that are left out."""
    if spec.standard:
        pool = standard(pool, out, spec.standard)
    if spec.test is not None:
        shared = isinstance(spec.test, dict)
        pool = (hold_out_share if shared else hold_out)(pool, spec.test)
    if spec.groups:  # odd and even classes
        a, groups = parity(pool.y, pool.K)
        pool = pool._replace(a=a, groups=groups)
    return pool._replace(owners=tuple(spec.owners)) if spec.owners else pool


def network_for(pool, spec):
    """The network of a description, with inputs and outputs as the pool has them."""
    shape = pool.x.shape[1:]
    flat = "channels" in NETWORKS[spec["name"]].__dataclass_fields__ and len(shape) != 3
    rows = f"{pool.name} has rows of shape {list(shape)}; use Linear or MLP"
    refuse_if(flat, f"network {spec['name']} is for images, and {rows}")
    seen = {"inputs": math.prod(shape), "channels": shape[0]}
    return call("network", spec, **seen, K=pool.K, classes=pool.classes)


def divide(pool, spec, shared=False):
    """Rows per client; shared: the test list is nobody's, the other rows are dealt."""
    if shared:
        dealt = torch.ones(len(pool.y), dtype=torch.bool)
        rest = dealt.index_fill(0, pool.test, False).nonzero()[:, 0]
        owner = None if pool.owner is None else pool.owner[rest]
        pool = pool._replace(y=pool.y[rest], owner=owner)
        return [rest[r] for r in divide(pool, spec)]
    whose = pool.owner if spec["name"] in ("natural", "by_domain") else pool.y
    none = f"{pool.name} has no natural clients or domains; use dirichlet"
    refuse_if(whose is None, none)
    return call("partition", spec, whose)


def left_out(pool, spec):
    """The numbers of the owners that never take part: guest = an owner's name, or a
    list of names; a name may be a number, as an angle of `rotated` is.
    """
    if spec.guest is None:
        return []
    names = spec.guest if isinstance(spec.guest, list) else [spec.guest]
    owners = {name: k for k, name in enumerate(pool.owners)}
    refuse_if(not owners, f"guest = {spec.guest!r}: {pool.name} has no owners of rows")
    out = [known(owners, f"guest, owner of {pool.name},", str(g)) for g in names]
    out = list(dict.fromkeys(out))
    all_out = len(out) > len(owners) - 2
    refuse_if(
        spec.partition != NATURAL or spec.test is not None or all_out,
        f"guest = {names}: a domain can be left out where every client is one "
        "(partition natural, and no test list of its own), and two or more train",
    )
    return out


def standard(pool, out=(), how=True):
    """Images with mean 0 and deviation 1 per channel, over the pool without the owners
    left out; or as "imagenet" has them.
    """
    fits = pool.x.dim() == 4 and (how != "imagenet" or pool.x.shape[1] == 3)
    what = "is for images, imagenet for three channels"
    shape = list(pool.x.shape[1:])
    refuse_if(not fits, f"standard = {how!r} {what}: {pool.name} has rows of {shape}")
    if how == "imagenet":
        mean, std = (torch.tensor(v)[:, None, None] for v in IMAGENET)
    else:
        # a domain left out is not looked at
        seen = pool.x if not out else pool.x[~torch.isin(pool.owner, torch.tensor(out))]
        mean = seen.mean((0, 2, 3), keepdim=True)
        std = seen.std((0, 2, 3), keepdim=True)
    return pool._replace(x=(pool.x - mean) / std)


def hold_out(pool, test):
    """The last test[k] rows of owner k become its fixed test rows."""
    mine = [(pool.owner == k).nonzero()[:, 0] for k in range(len(pool.owners))]
    fits = [0 < n < len(r) for n, r in zip(test, mine)]
    wrong = f"test = {test}: give each of {len(mine)} owners fewer rows than it has"
    refuse_if(len(test) != len(mine) or not all(fits), wrong)
    return pool._replace(test=torch.cat([r[-n:] for r, n in zip(mine, test)]))


def hold_out_share(pool, test):
    """test = {by: labels} takes the official test list, {by: labels, share: 0.3} holds
    out so much of every class, the last rows.

    Each client will be tested on all of these rows whose label it trains on.
    """
    share = test.get("share")
    has = f"{pool.name} has {'no' if pool.test is None else 'an'} official test list"
    wrong = (share is None) == (pool.test is None)
    refuse_if(wrong, f"test = {test}: {has}: give a share only where it has none")
    if share is None:
        return pool
    of_class = [(pool.y == k).nonzero()[:, 0] for k in range(pool.K)]
    last = [r[len(r) - round(share * len(r)) :] for r in of_class]
    return pool._replace(test=torch.cat(last))
