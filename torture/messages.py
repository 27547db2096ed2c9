"""Messages that were damaged or made up, and the memory that reading them takes.

The mutations know whether what they make is nonsense; all others may be read where
`dumps` writes the same bytes for what was read.
"""

from __future__ import annotations

import json
import tracemalloc

import numpy as np
import torch

from fedlib.deploy import message

from .count import Count

attempts = 6_000
LIMIT = 10**7
SLACK = 2**25  # bytes that 16,384 names and tensors may take beside the numbers

NAMES = ["", "/", "/a", "a//b", "a\n", "\x00", "a\x1b[2J", "\ud800", "é" * 600]
NAMES += ["a/" * 9 + "b", "w", "w/", None, 3, True, [], ["a"], {}]
TYPES = ["object", "float128", "complex64", ">f4", "f4", "O", "", None, 7, [], {}]
SHAPES = [[-1], [2, -1], [-(2**70)], [2**63], [0, 10**18], [2**40, 2**40, 0], [1.0]]
SHAPES += [[True], ["3"], [None], [[3]], [1] * 33, None, 3, "3", {}, [float("nan")]]


def tree_of(rng):
    """A small tree with all that may be in one."""
    tensor = lambda *shape: torch.from_numpy(rng.standard_normal(shape))
    return {
        "w": {"fc.weight": tensor(3, 4).float(), "fc.bias": tensor(3)},
        "none": {},
        "seen": tensor(int(rng.integers(9))) > 0,
        "n": torch.tensor(int(rng.integers(9))),
        "empty": torch.zeros(0, 5, dtype=torch.uint8),
    }


def parts(body):
    """The entries of a message, as lists, and its numbers."""
    end = 8 + int.from_bytes(body[:8], "little")
    return json.loads(body[8:end]), body[end:]


def joined(rows, numbers):
    """A message of such entries, right or wrong."""
    head = json.dumps(rows).encode()
    return len(head).to_bytes(8, "little") + head + numbers


# ------------------------------------------------------- (body, rng) -> body, nonsense
def flip(body, rng):
    at = int(rng.integers(len(body)))
    return body[:at] + bytes([body[at] ^ 1 << rng.integers(8)]) + body[at + 1 :], False


def flip_head(body, rng):
    end = len(body) - len(parts(body)[1])
    return flip(body[:end], rng)[0] + body[end:], False


def cut(body, rng):
    return body[: rng.integers(len(body))], True


def insert(body, rng):
    at = int(rng.integers(len(body)))
    return body[:at] + rng.bytes(rng.integers(1, 20)) + body[at:], True


def repeat(body, rng):
    a, b = sorted(int(i) for i in rng.integers(len(body), size=2))
    return body[:b] + body[a:b] + body[b:], a < b


def length(body, rng):
    wrong = int(rng.choice([0, 1, 7, 2**16, 2**20, 2**20 + 1, 2**40, 2**63]))
    return wrong.to_bytes(8, "little") + body[8:], True


def noise(body, rng):
    return rng.bytes(rng.integers(200)), True


def spaces(body, rng):
    rows, numbers = parts(body)
    indent = json.dumps(rows, indent=int(rng.integers(3))).encode()
    return len(indent).to_bytes(8, "little") + indent + numbers, True


def strange(values, part):
    """Put one of the values into a part of an entry."""

    def change(body, rng):
        rows, numbers = parts(body)
        rows[rng.integers(len(rows))][part] = values[rng.integers(len(values))]
        return joined(rows, numbers), True

    return change


def twice(body, rng):
    rows, numbers = parts(body)
    rows.insert(rng.integers(len(rows)), rows[rng.integers(len(rows))])
    return joined(rows, numbers), True


def order(body, rng):
    rows, numbers = parts(body)
    return joined([*rows[1:], rows[0]], numbers), True


def bools(body, rng):
    seen = joined([["b", "bool", [3]]], b"\0\1" + bytes([rng.integers(2, 256)]))
    return seen, True


MUTATIONS = [flip, flip_head, cut, insert, repeat, length, noise, spaces, twice, order]
MUTATIONS += [strange(NAMES, 0), strange(TYPES, 1), strange(SHAPES, 2), bools]


def outcome(body, nonsense):
    """What came of a message, and an example where that is bad."""
    try:
        tree = message.loads(body, LIMIT)
    except ValueError as e:
        clear = "no message of fedlib" in str(e)
        return ("clean" if clear else "raw"), f"{e} from {body[:200]!r}"
    except Exception as e:
        return "raw", f"{type(e).__name__}: {e} from {body[:200]!r}"
    if nonsense or message.dumps(tree) != body:
        return "silent", f"{body[:200]!r}"
    return "accepted", ""


# ---------------------------------------------------------------- memory
def greedy(rng):
    """A message of up to some megabytes that would take far more if it were read."""
    n = int(rng.integers(1, 3 * 10**6))
    kinds = [
        lambda: joined([[f"n{i}", "uint8", [-1]] for i in range(300)], bytes(n)),
        lambda: joined([[f"n{i}", "uint8", [n]] for i in range(300)], bytes(n)),
        lambda: joined([["a", "float64", [2**40]]], bytes(n)),
        lambda: joined([["a", "uint8", [n]]], bytes(n)),
        lambda: joined([["a", "bool", [n]]], bytes(n)),
        lambda: joined([[str(i), "bool", [0]] for i in range(n % 30_000)], b""),
        lambda: joined([[f"{i}/b/c/d/e", "bool", [0]] for i in range(n % 30_000)], b""),
        lambda: n.to_bytes(8, "little") + b"[" * n,
        lambda: n.to_bytes(8, "little") + b"[[" + b"{}," * (n // 3) + b"{}]]",
        lambda: n.to_bytes(8, "little") + b'[["' + b']], ["' * (n // 6) + b"]]]",
    ]
    return kinds[rng.integers(len(kinds))]()


def extra(body):
    """The most bytes that reading a message takes beside it."""
    tracemalloc.start()
    try:
        message.loads(body)
    except ValueError:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peak


def measure(n, seed):
    """n mutations; a twentieth as many messages whose memory is measured."""
    read, memory = Count("message decoder"), Count("peak memory of a message")
    rng = np.random.default_rng(seed)
    for i in range(n):
        change = MUTATIONS[i % len(MUTATIONS)]
        read.add(*outcome(*change(message.dumps(tree_of(rng)), rng)))
    for _ in range(n // 20):
        body = greedy(rng)
        peak = extra(body)
        what = f"{len(body):,} bytes took {peak:,} more: {body[8:60]!r}"
        memory.add("lost" if peak > len(body) + SLACK else "accepted", what)
    return [read, memory]
