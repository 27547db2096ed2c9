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

import numpy as np
import torch

from fedlib.core import engine, record
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
            packed = tree["record"] | {"meta": json.loads(tree["record"]["meta"])}
            needed = [("meta", k) for k in (*SAME, "clients") if k in packed["meta"]]
            packed = altered(
                packed,
                chance,
                needed + [(k,) for k in ("meta", "rounds", "views", "logs")],
            )
            if isinstance(packed.get("meta"), dict):
                packed["meta"] = json.dumps(packed["meta"])
            tree["record"] = packed
        buffer = io.BytesIO()
        torch.save(tree, buffer)
        path.write_bytes(with_checksum(buffer.getvalue()))


# ---------------------------------------------------------------- records
def record_of(folder, chance):
    """Damage a record; its arrays, or what it says of the run."""
    name = chance.choice(["record.npz", "record.json"])
    path, way = folder / name, chance.randrange(3)
    if way == 0:
        path.write_bytes(torn(path.read_bytes(), chance))
        return
    body = (folder / "record.npz").read_bytes()
    meta = json.loads((folder / "record.json").read_text())
    del meta["sha256"]
    if way == 1:
        meta = altered(meta, chance, [(k,) for k in SAME if k in meta])
    else:
        with np.load(io.BytesIO(body)) as z:
            arrays = {k: z[k] for k in z.files}
        key = chance.choice(
            [k for k in arrays if k == "rounds" or k.startswith("view")]
        )
        short = [arrays[key][:, :-1]] if arrays[key].ndim > 1 else []
        longer = np.concatenate([arrays[key]] * 2)
        arrays[key] = chance.choice([longer, arrays[key].astype(str), *short])
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **arrays)
        body = chance.choice([buffer.getvalue(), cut(body, chance)])
    (folder / "record.npz").write_bytes(body)
    told = meta | {"sha256": record.checksum(body, meta)}
    (folder / "record.json").write_text(json.dumps(told))


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
