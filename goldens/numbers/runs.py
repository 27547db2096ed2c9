"""Short runs: the small experiment of every unit that makes numbers, at its defaults
and at other settings.

    runs("method FedAS")["align=sample"]()
        {"server": [count, norm, projection], "view personal": ...}

A method runs four rounds of six clients in float64; engine, steps and rules do so under
a method with nothing of its own; data and partitions are small; a network trains for
two batches. `noted` keeps what they give.
"""

from __future__ import annotations

import itertools
import math
import tempfile
import warnings
from dataclasses import fields
from functools import cache, partial
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from fedlib.core import clients
from fedlib.core.clients import Clients, cohort_of
from fedlib.core.engine import run
from fedlib.core.local import grad, sgd
from fedlib.core.method import BASE
from fedlib.core.pool import Pool
from fedlib.core.shards import Plan
from fedlib.core.task import Task
from fedlib.core.tree import leaves
from fedlib.data import census, images, people, tasks
from fedlib.data.files import read_image
from fedlib.methods import METHODS
from fedlib.methods.make import make
from fedlib.pieces.robust import RULES
from fedlib.pieces.steps import STEPS

from . import toys

ROUNDS, COHORT, SEED = 4, 4, 1
DEFAULTS = "defaults"  # the label of the short run at default settings
LARGE = ("AlexNetBN", "ResNet50")  # networks that need 64 pixels per side
# methods beside a frozen CLIP, and their networks
CLIP = {"FedCLIP": "Adapter", "PromptFL": "Prompts"}
NORMED = ("FedBN",)  # refuses a network without norm layers

# ------------------------------------------------ hyper-parameters for four rounds
QUICK = {
    "W": 1,
    "theta": math.inf,
    "tune": 1,
    "head_epochs": 2,
    "outer": 3,
    "J": 2,
    "size": 12,
    "pool": 30,
}
OTHER = {  # a value that matters, where the next one does not
    "W": 2,
    "trim": 0.3,
    "bad": 0.3,
    "inputs": 50,
    "chunk": 16,
    "cap": 2,
    "window": 2,
    "tol": 9.0,
    "reach": 1,
    "rows": 5,
    "count": 2,
    "head_lr": 0.3,
    "floor": 0.9,
}
LATE = {"rho": 0.25}  # EquFL: three checkpoints, then one calibrated round
FEW = LATE | {"collect": "discrete", "count": 2}
TENSOR = {"layer": "tensor"}
NEEDS = {  # label -> what else must be set for it to matter
    "also=[1, 5]": {"tune": 6},
    "trigger=half": {"W": 2},
    "sticky=True": {"theta": 0.0},
    "sticky=False": {"theta": 0.0},
    "tol=9.0": {"window": 2},
    "delta=0.0005": {"order": "HF"},
    "against=drift": {"fresh": True},
    "count=2": FEW,
    "rewind=True": FEW,
    "collect=discrete": FEW,
    "reach=1": LATE,
    "normalise=none": LATE,
    "normalise=loss": LATE,
    "beta=0.3": {"timing": "lagged"},
    "trials=5": {"timing": "probe"},
    "CD2pFed align_lr=0.005": {"align": True},
    "CD2pFed align_epochs=2": {"align": True},
    "scale=sum1": TENSOR,
    "scale=renorm": TENSOR,
    "scale=exact": TENSOR,
    "by=root": TENSOR,
}

# --------------------------- what is made, and the changes that are tried one at a time
MANNERS = ["plain", "inverted", "blurred", "turned", "uci"]
DATA = {
    "synthetic": {"alpha": 1, "beta": 1},
    "mnist5k": {"pool": 14},
    "digit_sites": {"n": [4] * 5, "manners": MANNERS, "pool": 4},
    "digit_pairs": {"n": 60, "pool": 7},
    "rotated": {"angles": [0, 30], "pool": 14},
    "colored": {"pool": 14},
    "glyphs": {"n": 48, "size": 16},
    "domains": {"preset": "PACS", "n": 20, "size": 16},
    "census": {"clients": 4, "n_mean": 60, "n_test": 40},
    "features": {"data": {"name": "glyphs", "n": 12, "size": 16}},
}
CUTS = {
    "dirichlet": {"clients": 5, "alpha": 0.5},
    "dirichlet_capped": {"clients": 5, "alpha": 0.5},
    "labels_per_client": {"clients": 5, "labels": 3},
    "ring": {"clients": 5, "labels": 3},
    "by_domain": {"per_domain": 2},
}
SIZES = {
    "MLP": {"hidden": 7},
    "AlexNetBN": {"hidden": 16},
    "WideResNet": {"depth": 10, "width": 2},
}
BATCH, GROUP = {"norm": "batch"}, {"norm": "group"}
DRAW, SEEDED = {"draw": 1}, {"seed": 1}
PICTURES = [SEEDED, {"split": "test"}, {"warp": 0.25}, {"classes": 5}]
CHANGES = {
    "mnist5k": [{"noise": 0.3}],
    "digit_sites": [DRAW],
    "rotated": [DRAW],
    "colored": [DRAW],
    "synthetic": [DRAW, {"sizes": "lognormal"}, {"alpha": 0.5, "beta": 0.5}],
    "glyphs": [
        *PICTURES,
        {"styles": ("neon", "halftone")},
        {"spurious": 0.9},
        {"clutter": 1.0},
    ],
    "domains": [
        *PICTURES[:3],
        {"preset": "VLCS", "classes": 5},
        {"preset": "OfficeHome", "classes": 5},
        {"preset": "TerraIncognita", "classes": 5},
        {"preset": "DomainNet", "classes": 5},
    ],
    "census": [
        DRAW,
        {"task": "employment"},
        {"task": "health"},
        {"group": "race"},
        {"shift": 0.0},
        {"bias_sex": 0.0},
        {"bias_race": 0.0},
        {"indirect_sex": 0.0},
        {"indirect_race": 0.0},
    ],
    "adult": [{"by": "education"}, {"least": 700}],
    "dirichlet": [SEEDED],
    "dirichlet_capped": [SEEDED],
    "labels_per_client": [SEEDED],
    "ring": [SEEDED],
    "by_domain": [SEEDED],
    "MLP": [BATCH, GROUP, {"hidden": (7, 5)}],
    "CNN": [BATCH],
    "ResNet18": [GROUP, {"stem": "cifar"}],
    "WideResNet": [GROUP],
    "Prompts": [{"class_specific": True}, {"ctx_init": "a picture of a"}],
    "Probe": [
        {"momentum": 0.5},
        {"decay": 0.01},
        {"batches": 3},
        {"epochs": 3},
        {"poisson": True},
        {"last": "drop"},
        {"shuffle": False},
    ],
    "run": [
        {"every": 3},
        {"own": True, "cohort": None},
        {"microscope": True},
        {"splits": ("test", "all")},
    ],
}


# ---------------------------------------------------------------- a short run
def numbers(xs):
    """[count, norm, projection] of the finite values of arrays: no permutation and no
    sign goes unseen.
    """
    flat = [torch.as_tensor(x).detach().double().flatten() for x in xs]
    v = torch.cat([torch.zeros(0, dtype=torch.float64), *flat])
    v = v[v.isfinite()]
    k = torch.arange(len(v), dtype=torch.float64)
    return [float(len(v)), float(v.norm()), float(v @ torch.cos(1 + 0.7 * k))]


def played(method, **more):
    """The Record of four rounds of a method on its task, clients one after another on
    the CPU.
    """
    how = {
        "seed": SEED,
        "cohort": COHORT,
        "how": "loop",
        "guests": True,
        "device": "cpu",
        "progress": False,
    }
    with warnings.catch_warnings():
        # three steps on thirty rows are too few, say some
        warnings.simplefilter("ignore")
        return run(method, rounds=ROUNDS, **how | more)


def left(method, rec):
    """{what: numbers} of what a run leaves: server, clients, logs, bytes, and what
    every view says.
    """
    floats = lambda tree: [x for x in leaves(tree) if x.is_floating_point()]
    ways = [way for _, way in sorted(rec.meta["bytes"].items())]
    sent = [[t["bytes"] for _, t in sorted(way.items())] for way in ways]
    out = {
        "server": numbers(floats(rec.state["server"])),
        "clients": numbers(floats(rec.state["clients"])),
        "logs": numbers(v for k, v in sorted(rec.logs.items()) if k != "cohort"),
        "bytes": numbers(sent),
    }
    return out | {f"view {k}": numbers([v]) for k, v in said(method, rec).items()}


@torch.no_grad()
def said(method, rec):
    """{view: log-probabilities [C, n, K]} of every client's test rows; accuracies hide
    a small change.
    """
    ids = torch.arange(method.task.C)
    down = method.send(rec.state["server"], ids)
    go = Clients(method, method.task, SEED, ROUNDS, ROUNDS, "loop", None)

    def views(down, mine, shard):
        x = shard.all("test").x
        return {
            k: view(x).log_softmax(-1)
            for k, view in method.views(down, mine, shard).items()
        }

    return go.each(views, (down, rec.state["clients"]), go.shards(ids), "views")


# ---------------------------------------------------------------- other settings
def called(changes):
    """The label of some changes: the first of them in words, "epochs=3"."""
    return next((f"{k}={v}" for k, v in changes.items()), DEFAULTS)


def tried(f, name):
    """{label: f(changes)} without changes and with each of those in CHANGES."""
    return {called(c): partial(f, c) for c in ({}, *CHANGES.get(name, ()))}


def variants(cls, known=(*BASE, "task", "inner")):
    """{label: hyper-parameters}: the defaults, and each of its own at every other
    choice or one other value.
    """
    out = [{}]
    for f in fields(cls):
        if f.name not in known:
            values = f.metadata.get("choices") or [another(f)]
            out += [{f.name: v} for v in values if v not in (f.default, None)]
    return {called(h): h | needed(cls, called(h)) for h in out}


def needed(cls, label):
    """What else must be set for a setting to matter."""
    return NEEDS.get(f"{cls.__name__} {label}", NEEDS.get(label, {}))


def another(f):
    """Another value of a number: one that the paper searches, else half of it, or one
    more. Else None.
    """
    base = QUICK.get(f.name, f.default)
    low, high = f.metadata.get("range") or (-math.inf, math.inf)
    if f.name in OTHER or not isinstance(base, (int, float)):
        return OTHER.get(f.name)
    near = (base + 1, base - 1) if isinstance(base, int) else (base / 2, 0.5)
    searched = f.metadata.get("grid") or ()
    return next(v for v in (*searched, *near) if low <= v <= high and v != base)


# ------------------------------------------------- {label: function -> {what: numbers}}
def of_engine():
    """What no method decides: who trains, on which rows, in which batches; descent,
    evaluation, records.
    """
    task = toy_of(None)

    def go(task, hyper, **more):
        method = toys.Probe(task, **hyper)
        rec = played(method, **more)
        kinds = rec.views, rec.cells, rec.consistency
        scores = [v for kind in kinds for _, v in sorted(kind.items())]
        return left(method, rec) | {"scores": numbers(scores)}

    normed = toys.toy(toys.Normed(5, 6, 3), groups=toys.GROUPS)
    return {
        **tried(partial(go, task), "Probe"),
        **{called(e): partial(go, task, {}, **e) for e in CHANGES["run"]},
        "batch norm": partial(go, normed, {}),
        "cohorts": partial(cohorts, task),
        "rows": partial(rows, task),
    }


def cohorts(task):
    """Who trains: drawn, by online ratio, and all but the stragglers."""
    method, absent = toys.Probe(task), clients.stragglers(9, 0.4, 3)
    seeds_and_rounds = [(s, t) for s in range(3) for t in range(20)]
    sizes = [clients.size(C, P) for C in (7, 30) for P in (0.1, 0.5)]
    return {
        "drawn": numbers(cohort_of(method, task, s, t, 3) for s, t in seeds_and_rounds),
        "online": numbers([sizes]),
        "stragglers": numbers(absent(t) for t in range(6)),
    }


def rows(task):
    """How a pool becomes a task: cut, with test rows of its own, held out or shared;
    standardised; grouped.
    """
    names, owner = tuple("abcd"), torch.arange(len(task.y)) % 4
    pool = Pool("toy", task.x, task.y, task.K, "synthetic", owner, names, a=task.a)
    held = tasks.hold_out(pool, [3] * 4)
    common = tasks.hold_out_share(pool, {"by": "labels", "share": 0.3})
    keep = torch.ones(len(owner), dtype=torch.bool)
    rest = keep.index_fill(0, common.test, False)
    mine = lambda keep: [((owner == c) & keep).nonzero()[:, 0] for c in range(4)]
    cut = lambda pool, keep, **more: Task.from_rows(
        "toy", task.network, pool, mine(keep), SEED, **more
    )
    made = {
        "own": cut(pool, keep),
        "parts": cut(pool, keep, parts=(0.5, 0.3, 0.2)),
        "held out": cut(held, keep),
        "shared": cut(common, rest, shared=True),
    }
    pixels = pool._replace(x=task.x[:, :3, None, None])
    standard = [
        tasks.standard(pixels),
        tasks.standard(pixels, (1,)),
        tasks.standard(pixels, (), "imagenet"),
    ]
    a, groups = tasks.parity(pool.y, pool.K)
    return {
        **{k: numbers([t.x, t.y, *t.train, *t.val, *t.test]) for k, t in made.items()},
        "standard": numbers(p.x for p in standard),
        "parity": numbers([a, groups.of_class, groups.positive]),
    }


def of_method(name):
    """A method on the toy task; those beside a frozen CLIP on toy towers, FedBN with
    batch norm.
    """
    known = {f.name for f in fields(METHODS[name])}
    quick = {k: v for k, v in QUICK.items() if k in known}

    def go(hyper):
        network = "Normed" if name in NORMED else CLIP.get(name)
        method = make(name, toy_of(network), **quick | hyper)
        return left(method, played(method))

    return {label: partial(go, h) for label, h in variants(METHODS[name]).items()}


@cache
def toy_of(network):
    """The toy task with groups: of vectors, with batch norm where the network is
    Normed, or for one beside a frozen CLIP.
    """
    if network == "Normed":
        return toys.toy(toys.Normed(5, 6, 3), groups=toys.GROUPS)
    if network:
        return toys.toy_towers(3, 5, network=network, groups=toys.GROUPS)[1]
    return toys.toy(groups=toys.GROUPS)


def of_piece(kind, table, name):
    """A step or a rule, where all six clients train and send what they have."""

    def go(hyper):
        method = toys.Probe(toy_of(None), **{kind: table[name](**hyper)})
        return left(method, played(method, cohort=None))

    return {label: partial(go, h) for label, h in variants(table[name], ()).items()}


def of_data(name):
    """A source: its rows, classes, owners and groups; of one that reads files, how it
    reads a small one.
    """
    if name in READ:
        return {label: partial(read, name, label) for label in READ[name]}

    def go(changes):
        model = {"model": toys.towers()} if name == "features" else {}
        pool = tasks.pool_of({"name": name} | DATA.get(name, {}) | model | changes)
        there = {k: getattr(pool, k) for k in ("x", "y", "owner", "test", "a")}
        return {k: numbers([v]) for k, v in there.items() if v is not None}

    return tried(go, name)


def read(name, label):
    """What a source reads from small files that are made for it."""
    with tempfile.TemporaryDirectory() as folder:
        return {"read": numbers(READ[name][label](Path(folder)))}


def picture(folder, side=64):
    """The path of a small picture."""
    path = folder / "picture.png"
    colours = np.arange(side * side * 3) ** 2 // 11 % 256
    Image.fromarray(colours.astype(np.uint8).reshape(side, side, 3)).save(path)
    return path


def survey(folder, **what):
    """The census of three states, written as the survey's files and read from them."""
    states = people.STATES[:3]
    for state, frame in zip(states, census.people(clients=3, n_mean=60, n_test=10)):
        path = people.path(folder, state)
        path.parent.mkdir(parents=True, exist_ok=True)
        frame.to_csv(path, index=False)
    pool = people.acs(root=folder, states=states, rows=50, **what)
    return [pool.x, pool.y, pool.owner, pool.a]


def digits(folder):
    """Two pictures in the format of MNIST."""
    for part in itertools.product(("train", "t10k"), ("images-idx3", "labels-idx1")):
        path = folder / "MNIST/raw" / f"{'-'.join(part)}-ubyte"
        path.parent.mkdir(parents=True, exist_ok=True)
        head = bytes((0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 28, 0, 0, 0, 28))
        labels = bytes((0, 0, 8, 1, 0, 0, 0, 2, 0, 9))
        of_images = "images" in path.name
        path.write_bytes(head + bytes(range(196)) * 8 if of_images else labels)
    return [(images.mnist(folder, "train").x * 255).round()]


def scaled(folder, how, mean, std):
    """A picture, normalised as the archives of small photographs are."""
    image = read_image(picture(folder))
    return [images.scale(image[None], how, mean, std)]


def seen(folder):
    """A picture in [0, 1], shrunk."""
    return [read_image(picture(folder), 16).float().div_(255)]


READ = {
    "acs": {DEFAULTS: survey}
    | {f"task={t}": partial(survey, task=t) for t in ("employment", "health")}
    | {"group=race": partial(survey, group="race")},
    "mnist": {DEFAULTS: digits},
    "office10": {DEFAULTS: seen},
    "domainbed": {DEFAULTS: seen},
}
for _name, _K in (("cifar10", 10), ("cifar100", 100), ("tiny_imagenet", 200)):
    _mean, _std = images.MOMENTS[_K]
    READ[_name] = {
        DEFAULTS: partial(scaled, how=True, mean=_mean, std=_std),
        "normalise=half": partial(scaled, how="half", mean=_mean, std=_std),
    }


def of_partition(name):
    """A partition of 400 labels, or owners, that follow from their numbers."""

    def go(changes):
        K = 4 if name in ("natural", "by_domain") else 10
        y = (torch.arange(400) ** 2 // 7) % K
        out = tasks.PARTITIONS[name](y, **CUTS.get(name, {}) | changes)
        return {"rows": numbers(out), "sizes": numbers([[len(r) for r in out]])}

    return tried(go, name)


def of_network(name):
    """A network: first weights, logits, and weights after two batches, running
    statistics included.
    """

    def go(changes):
        task = seen_by(name, SIZES.get(name, {}) | changes)
        start = task.init(SEED)
        w = exact(start)
        shard = task.shards(SEED, 0, 1, torch.tensor([0]), {"train": Plan()})[0]
        with torch.no_grad():
            logits = task.logits(w, task.x)
            last = sgd(grad(task.loss), w, shard, 0.1)
        return {
            "start": numbers(leaves(start)),
            "logits": numbers([logits]),
            "trained": numbers(leaves(last)),
        }

    return tried(go, name)


def exact(w):
    """Other weights of these shapes, the same bits on every machine: normal numbers in
    float32 are not.
    """
    g = torch.Generator().manual_seed(SEED)

    def draw(v):
        u = torch.rand(v.shape, generator=g, dtype=torch.float64)
        return (2 * u - 1) / math.sqrt(v[0].numel() / 3)

    return {k: v if v.dim() < 2 else draw(v) for k, v in w.items()}


def seen_by(name, sizes):
    """A task with one client, whose rows are what a network of these sizes sees."""
    if name in CLIP.values():
        return toys.toy_towers(3, 5, network=name, **sizes)[1]
    known = [f.name for f in fields(tasks.NETWORKS[name])]
    given = {"inputs": 27, "channels": 3, "K": 4}
    given = {k: v for k, v in given.items() if k in known}
    side = 64 if name in LARGE else 32
    shape = (27,) if "inputs" in known else (3, side, side)
    g = torch.Generator().manual_seed(0)
    x = torch.randn(8, *shape, generator=g, dtype=torch.float64)
    train, val, test = (toys.rows([n], start) for n, start in ((6, 0), (1, 6), (1, 7)))
    net, y = tasks.NETWORKS[name](**given | sizes), torch.arange(8) % 4
    return Task("toy", net, x, y, train, val, test, K=4, batch=3)


# ---------------------------------------------------------------- all of them
KINDS = {  # kind -> its members, and name -> short runs
    "method": (METHODS, of_method),
    "step": (STEPS, partial(of_piece, "step", STEPS)),
    "rule": (RULES, partial(of_piece, "rule", RULES)),
    "data": (tasks.SOURCES, of_data),
    "partition": (tasks.PARTITIONS, of_partition),
    "network": (tasks.NETWORKS, of_network),
}


def units():
    """All units that make numbers, by the names that identity.parts_of gives them; no
    method of another package, whose runs are named by its source.
    """
    tables = {kind: table for kind, (table, _) in KINDS.items()}
    tables["method"] = [name for name in METHODS if name not in METHODS.added]
    members = [(kind, name) for kind, table in tables.items() for name in table]
    return ["engine", *(f"{kind} {name}" for kind, name in members)]


def runs(unit):
    """{label: function without arguments -> {what: numbers}} of a unit."""
    kind, _, name = unit.partition(" ")
    return of_engine() if kind == "engine" else KINDS[kind][1](name)
