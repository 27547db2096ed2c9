"""Data that people may give: the tables of given/data.py, and sound arrays, tables and
data sets in which something was changed at random: an entry, a type, a shape, a
container, an argument.

What is refused must be so by a `raise` of ours, before anything runs. What is accepted
must hold all rows, classes and clients that were given and the same numbers, and one
round of FedAvg must end with accuracies.
"""

from __future__ import annotations

import datetime
import decimal
import fractions
import random
import warnings

import numpy as np
import pandas as pd
import scipy.sparse
import torch

from fedlib.core import engine
from fedlib.core.errors import DataWarning, Diverged
from fedlib.core.task import Task
from fedlib.methods.base.fedavg import FedAvg

from .commands import finite, ours
from .count import Count
from .given import data

attempts = 1000
N = 120  # rows

# ---------------------------------------------------------------- what is changed
ODD = [
    *(float("nan"), float("inf"), -1, 2.5, 10**12, 2**63, 1e300, True, None, "a", ""),
    *(b"x", 1j, [1], {}, pd.NA, pd.NaT, decimal.Decimal("0.5"), object(), (1, 2)),
    *(
        fractions.Fraction(1, 3),
        datetime.date(2026, 1, 1),
        np.float16(7),
        torch.ones(2),
    ),
]
TYPES = [
    *("float16", "float32", "float64", "int8", "int64", "uint8", "uint64", "bool"),
    *(
        "complex64",
        "U8",
        "S8",
        "object",
        "datetime64[s]",
        "timedelta64[s]",
        ">f8",
        "f16",
    ),
]


def with_entry(v, draw):
    """One entry is another, in the type of the array or as objects."""
    v, odd = np.array(v), draw.choice(ODD)
    if draw.random() < 0.5:
        v = v.astype(object)
    at = tuple(draw.randrange(n) for n in v.shape)
    try:
        v[at] = odd
    except (ValueError, TypeError, OverflowError):
        v = v.astype(object)
        v[at] = str(odd)
    return v


def with_type(v, draw):
    """Another type of number, or words."""
    try:
        return np.array(v).astype(draw.choice(TYPES))
    except (ValueError, TypeError):
        return v


def with_values(v, draw):
    """Other numbers: scaled, shifted, constant, all different."""
    v = np.array(v)
    if v.dtype.kind not in "biuf":
        return v
    how = draw.randrange(6)
    others = (v * 255, v + 1, v * 0, -v, v * 1e30, np.arange(v.size).reshape(v.shape))
    return others[how]


def with_shape(v, draw):
    """Other dimensions, or other rows."""
    v = np.array(v)
    return draw.choice(
        [
            *(v[:-1], v[:1], v[:0], v[::-1], v[..., None], v[None], v.reshape(-1)),
            *(np.stack([v, v], -1), v.T, np.concatenate([v, v]), v[0], v.flat[0]),
            *(np.atleast_2d(v), v[: N // 2].repeat(2, 0), np.stack([v] * 3, 1)),
        ]
    )


def with_container(v, draw):
    """The same, held by something else."""
    v = np.array(v)
    flat = v.reshape(len(v), -1) if v.ndim else v.reshape(1, 1)
    try:
        return draw.choice(
            [
                *(list, tuple, np.ndarray.tolist, torch.tensor, memoryview, iter),
                *(np.ma.masked_array, np.matrix, lambda v: dict(enumerate(v)), set),
                *(lambda _: pd.DataFrame(flat), lambda _: scipy.sparse.csr_array(flat)),
                lambda v: pd.Series(list(v), index=np.arange(len(v))[::-1]),
                lambda v: pd.Series(list(v)).astype("category"),
                *(pd.Series, pd.Index, pd.array, np.ndarray.tobytes, str),
                lambda v: torch.tensor(v).to_sparse(),
                lambda v: torch.tensor(v).to("meta"),
                lambda v: torch.tensor(v * 1.0, requires_grad=True),
                lambda v: torch.tensor(v).to(torch.bfloat16),
                lambda v: [torch.tensor(e) for e in v],
                lambda v: np.ma.masked_array(v, mask=v == v.flat[0]),
                lambda v: np.array([tuple(row) for row in flat], "f4, f4, f4"),
            ]
        )(v)
    except Exception:  # this container does not take these values
        return v


def with_nothing(v, draw):
    """Something that is no array at all."""
    return draw.choice([None, 3, "data.csv", {}, [], object(), np.nan, lambda i: 0, v])


CHANGES = [with_entry, with_type, with_values, with_shape, with_container, with_nothing]
OPTIONS = {
    "batch": [0, -1, 1.5, "8", None, 10**12, True, np.int64(8), 1],
    "split": [0, -1, 1.5, "a", None, np.int64(3), 2**63, True],
    "parts": [(0.5, 0, 0.5), (1, 0, 0), (0.8, np.nan, 0.1), "abc", None, (1, 1, 1), []],
    "name": ["", None, 3, "a/b", "\n", "ü" * 300],
    "classes": [range(3), [0, 1], ["a", "b", "c"], "abc", [], None, 3, [0, 1, np.nan]],
    "positive": [1, [0, 1, 2], [], "a", None, 7, np.nan, [[1]]],
    "network": [
        "CNN",
        3,
        FedAvg,
        torch.nn.Linear(4, 3),
        torch.nn.Linear(9, 2),
        [],
        None,
    ],
    "kind": ["own", "real", "banana", None, 3],
    "nonsense": [1],
}


# ---------------------------------------------------------------- attempts
def sound(draw):
    """{argument: value} of arrays that make a task."""
    g = np.random.default_rng(draw.randrange(2**32))
    shape = draw.choice([(N, 4), (N, 4), (N, 1, 8, 8)])
    return {
        "x": g.normal(size=shape) if len(shape) == 2 else g.random(shape),
        "y": draw.choice([np.arange(N) % 3, np.array(list("abc") * (N // 3))]),
        "client_id": draw.choice([np.arange(N) // 40, np.array(["u", "v"] * (N // 2))]),
    } | draw.choice([{}, {"a": np.arange(N) // 2 % 2}])


def changed(draw):
    """(what it is, a function that makes the task, its arrays) of one attempt."""
    given, said = sound(draw), []
    for _ in range(draw.choice((1, 1, 2))):
        if draw.random() < 0.25:
            name = draw.choice([*OPTIONS])
            given[name] = draw.choice(OPTIONS[name])
            said.append(f"{name} = {given[name]!r:.60}")
            continue
        name = draw.choice([k for k in ("x", "y", "client_id", "a") if k in given])
        change = draw.choice(CHANGES)
        try:
            given[name] = change(given[name], draw)
        except Exception:  # what was changed cannot be changed again
            continue
        said.append(f"{change.__name__}: {name} is {type(given[name]).__name__}")
        said.append(f"{given[name]!r:.60}")
    way = draw.choice((arrays, arrays, frame, dataset))
    return f"{way.__name__}: {'; '.join(said)}", way(given), given


def arrays(given):
    return lambda: Task.from_arrays(**given)


def frame(given):
    """The same by from_frame; columns that a table cannot hold stay out."""
    given = dict(given)
    names = {"y": "label", "client_id": "client", "a": "sensitive"}
    columns, roles = {}, {}
    for name, role in names.items():
        if name in given:
            columns[role], roles[role] = given.pop(name), role
    x = given.pop("x")

    def made():
        try:
            table = pd.DataFrame(columns)
            for i, column in enumerate(np.reshape(x, (len(x), -1)).T[:4]):
                table[f"x{i}"] = column
        except Exception:  # it is no table
            table = columns
        return Task.from_frame(table, **roles, **given)

    return made


def dataset(given):
    """The same as pairs, by from_dataset."""
    given = dict(given)
    x, y, client = given.pop("x"), given.pop("y"), given.pop("client_id")
    more = {"sensitive": given.pop("a")} if "a" in given else {}

    def made():
        try:
            pairs = list(zip(x, y))
        except Exception:  # it cannot be gone through
            pairs = x
        return Task.from_dataset(pairs, client=client, **more, **given)

    return made


def judged(make, given=None):
    """(outcome, why) of an attempt."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            task = make()
        except (ValueError, TypeError) as e:
            return ("clean", "") if ours(e) else ("raw", repr(e))
        except Exception as e:
            return "raw", repr(e)
        if given is not None and (why := unlike(task, given)):
            return "silent", why
        try:
            record = engine.run(FedAvg(task), rounds=1, device="cpu", progress=False)
        except Diverged as e:  # numbers are too large, which must have been said
            told = any(issubclass(w.category, DataWarning) for w in said)
            return ("clean", "") if told else ("silent", repr(e))
        except Exception as e:
            return "raw", f"only in the run: {e!r}"
    return ("accepted", "") if finite(record) else ("silent", "accuracies are missing")


def unlike(task, given):
    """What a task does not have of arrays that were given to from_arrays."""
    rows = sum(len(r) for split in (task.train, task.val, task.test) for r in split)
    try:
        x = np.asarray(given["x"])
        y = [str(v) for v in given["y"]]
        owners = {str(v) for v in given["client_id"]}
    except Exception:  # a container that numpy does not read
        return ""
    if rows != len(y) or rows != len(x):
        return f"{rows} rows of {len(y)}"
    if task.C != len(owners) or len(set(y)) > task.K:
        return f"{task.C} clients of {len(owners)}, {task.K} classes of {len(set(y))}"
    if x.dtype.kind not in "biuf":
        return ""
    mine, theirs = (np.sort(v.reshape(rows, -1), 0) for v in (task.x.numpy(), x))
    return "" if np.allclose(mine, theirs, 1e-2) else "other numbers in x"


def measure(n, seed):
    """n attempts -> [Count], of which the tables have up to a half."""
    draw, counts = random.Random(f"arrays {seed}"), Count("Task.from_arrays")
    known = {f"to warn of: {name}": case[0] for name, case in data.WARN.items()}
    known |= {f"to refuse: {name}": case[0] for name, case in data.BAD.items()}
    names = sorted(known)
    if n < 2 * len(names):
        names = draw.sample(names, n // 2)
    for i in range(n):
        if i < len(names):
            what = names[i]
            outcome, why = judged(known[what])
            if outcome == "accepted" and what.startswith("to refuse"):
                outcome, why = "silent", "it should have been refused"
        else:
            what, make, given = changed(draw)
            outcome, why = judged(make, given if what.startswith("arrays") else None)
        counts.add(outcome, f"{what}: {why:.300}")
    return [counts]
