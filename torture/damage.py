"""Damaged files: checkpoints and records, with
checksums that do not fit any more and with checksums made anew. Each is refused by a
ValueError that names the file and the remedy, or leads to the same bits."""

from __future__ import annotations

import copy
import hashlib
import io
import json
import random
import shutil
import tempfile
from functools import partial
from pathlib import Path

import torch

from fedlib.core import engine
from fedlib.core.record import SAME
from fedlib.methods.make import make

from .count import Count
from .kill_runs import digest, digest_of, numbers, quick, small_task

attempts = 600
ROUNDS = 6
DONE = ["its bytes"]  # what was altered last, in words
NONSENSE = (None, True, -5, 99, 1.5, "x", [], {}, [1], float("nan"))
METHODS = ("Ditto", "FedAvg", "SCAFFOLD", "FedAdam")


# ---------------------------------------------------------------- of bytes
def torn(body, chance):
    """Some bytes are gone, changed, doubled or exchanged."""
    a, b = sorted(chance.randrange(len(body) + 1) for _ in range(2))
    ways = [
        body[:a],
        body[a:],
        body[:a] + body[b:],
        body[:a] + bytes(b - a) + body[b:],
        body[:b] + body[a:],
        b"",
        chance.randbytes(len(body)),
    ]
    if a < len(body):
        other = bytes([body[a] ^ 1 << chance.randrange(8)])
        ways += [body[:a] + other + body[a + 1 :]] * 4
    return chance.choice(ways)


def cut(body, chance):
    """The end is gone."""
    return body[: chance.randrange(len(body))]


# ---------------------------------------------------------------- of trees
def places(tree, at=()):
    """[path] of every entry of nested dictionaries."""
    if not isinstance(tree, dict):
        return []
    return [p for k, v in tree.items() for p in ((*at, k), *places(v, (*at, k)))]


def altered(tree, chance, some=None):
    """A copy in which one entry is gone, of another shape or type, or nonsense; says
    so in DONE."""
    tree = copy.deepcopy(tree)
    *above, name = chance.choice(some or places(tree))
    inside = tree
    for k in above:
        inside = inside[k]
    old = inside[name]
    ways = [v for v in NONSENSE if type(v) is not type(old) or name == "t"]
    if isinstance(old, torch.Tensor):
        ways += [old[None], old.double(), old.bool(), old[..., :0], old[:-1]]
    if name == "t":
        ways += [-1, ROUNDS + 1, 2**70, 0, True]
    if chance.random() < 0.3:
        del inside[name]
    else:
        inside[name] = chance.choice(ways)
    DONE.append(
        f"{'.'.join(map(str, (*above, name)))} is {inside.get(name, 'gone')!r:.40}"
    )
    return tree


def with_checksum(body):
    return hashlib.sha256(body).hexdigest().encode() + b"\n" + body


# ---------------------------------------------------------------- checkpoints
def half(name, folder):
    engine.run(
        make(name, small_task()),
        rounds=ROUNDS,
        seed=1,
        folder=folder,
        upto=3,
        **quick(),
    )


def gone_on(name, folder):
    """What a run is in the end that goes on from a folder."""
    r = engine.run(
        make(name, small_task()), rounds=ROUNDS, seed=1, folder=folder, **quick()
    )
    state = {} if r.state is None else r.state  # a finished run is only read
    return digest_of(r), digest([x.numpy().tobytes() for x in numbers(state)])


def checkpoint_of(folder, chance):
    """Damage the checkpoint; its state, or what its record says of the run."""
    path = folder / "checkpoint"
    body = path.read_bytes().partition(b"\n")[2]
    way = chance.randrange(4)
    if way == 0:
        path.write_bytes(torn(path.read_bytes(), chance))
    elif way == 1:
        path.write_bytes(with_checksum(cut(body, chance)))
    else:
        tree = torch.load(io.BytesIO(body), weights_only=True)
        if way == 2:
            state = places(tree["state"])
            short = [("state", *p) for p in state] + [("state", "t")] * 3
            tree = altered(tree, chance, [*short, ("state",), ("record",)])
        else:
            tree["record"] = packed_of(tree["record"], chance)
        buffer = io.BytesIO()
        torch.save(tree, buffer)
        path.write_bytes(with_checksum(buffer.getvalue()))


# ---------------------------------------------------------------- records
def record_of(folder, chance):
    """Damage a record; its arrays, or what it says of the run."""
    path, way = folder / "record", chance.randrange(3)
    body = path.read_bytes()
    if way == 0:
        path.write_bytes(torn(body, chance))
        return
    packed = torch.load(io.BytesIO(body.partition(b"\n")[2]), weights_only=True)
    if way == 1:
        packed = packed_of(packed, chance)
    else:
        arrays = packed["arrays"]
        key = chance.choice([k for k in arrays if k[:4] in ("roun", "view")])
        short = [arrays[key][:, :-1]] if arrays[key].ndim > 1 else []
        arrays[key] = chance.choice([torch.cat([arrays[key]] * 2), *short])
    buffer = io.BytesIO()
    torch.save(packed, buffer)
    path.write_bytes(with_checksum(buffer.getvalue()))


def packed_of(packed, chance):
    """A packed record in which what it says of its run is altered, or a part is."""
    packed = packed | {"meta": json.loads(packed["meta"])}
    needed = [("meta", k) for k in (*SAME, "clients") if k in packed["meta"]]
    packed = altered(packed, chance, [*needed, ("meta",), ("arrays",)])
    if isinstance(packed.get("meta"), dict):
        packed["meta"] = json.dumps(packed["meta"])
    return packed


# ---------------------------------------------------------------- counted
def tried(count, folder, good, damage, read, remedy, chance):
    """One damage in a copy of a folder, and how it is read."""
    with tempfile.TemporaryDirectory() as at:
        copied = Path(at, "copy")
        shutil.copytree(folder, copied)
        DONE[:] = ["its bytes"]
        damage(copied, chance)
        where = f"{damage.__name__}, {DONE[-1]}"
        try:
            same = read(copied) == good
        except ValueError as e:
            named = str(copied) in str(e) and any(w in str(e) for w in remedy)
            count.add("clean" if named else "raw", f"{where}: {e!r:.200}")
        except Exception as e:
            count.add("raw", f"{where}: {e!r:.200}")
        else:
            count.add("accepted" if same else "silent", f"{where}: other bits")


def measure(n, seed):
    chance, count = random.Random(seed), Count("checkpoint and record damage")
    again = ("delete it", "delete the folder", "give each run its own", "the task that")
    with tempfile.TemporaryDirectory() as at:
        cases = []
        for name in METHODS:
            before, after = Path(at, name, "half"), Path(at, name, "done")
            half(name, before)
            shutil.copytree(before, after)
            good, read = gone_on(name, after), partial(gone_on, name)
            cases.append((before, good, checkpoint_of, read, again))
            cases.append((after, read(after), record_of, read, again))
        for i in range(n):
            folder, good, damage, read, remedy = cases[i % len(cases)]
            tried(count, folder, good, damage, read, remedy, chance)
    return [count]
