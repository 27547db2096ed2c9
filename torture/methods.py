"""Methods from Python: fedlib.make with one hyper-parameter, piece or name that is
nonsense, of every method.

What is refused must be so by a `raise` of ours; what is accepted must be of the type of
the default, and no nan. Infinity is a value of some ranges: never, always.
"""

from __future__ import annotations

import math
import random
import warnings
from dataclasses import fields

from fedlib.core.method import Method
from fedlib.methods import METHODS
from fedlib.methods.make import make
from goldens.numbers import toys

from .calls import ODD
from .commands import ours
from .count import Count

PIECES = [
    *({"name": {"a": 1}}, {"name": ["x"]}, {"name": None}, {"nam": "SAM"}, "SAM"),
    *({"name": "SAM", "rho": {}}, {"name": "SAM", "x": 1}, {"name": "FedProx"}),
    *({"name": "FedProx", "mu": -1}, {"name": "FedProx", "nu": 1}, "Median"),
    *(METHODS["FedAvg"](), METHODS["EquFL"](), METHODS["Ditto"]),
]
NAMES = ("nonsense", "name", "task")  # of arguments that are none's hyper-parameters
WHOLE = [
    (method, k, v)
    for method, cls in METHODS.items()
    for k in dict.fromkeys([*(f.name for f in fields(cls)), "inner", *NAMES])
    for v in ODD + PIECES
]
attempts = len(WHOLE)  # each value for each hyper-parameter of each method
TASK = toys.toy()


def made(method, name, value):
    """The method with this value of an argument."""
    if name == "name":
        return make(value, TASK)
    if name == "task":
        return make(method, value)
    return make(method, TASK, **{name: value})


def sensible(built, name, value):
    """Whether a hyper-parameter can have such a value."""
    if name in ("name", "task", "inner"):
        return isinstance(built, Method)
    default = next(f.default for f in fields(built) if f.name == name)
    if callable(value) or isinstance(value, (str, dict)):
        return callable(default) or isinstance(default, str)
    if isinstance(value, bool) or isinstance(default, bool):
        return type(value) is type(default)
    return isinstance(value, (int, float)) and not math.isnan(value)


def judged(method, name, value):
    """(outcome, why) of one method."""
    try:
        with warnings.catch_warnings(action="ignore"):
            built = made(method, name, value)
    except (ValueError, TypeError) as e:
        return ("clean", "") if ours(e) else ("raw", repr(e))
    except Exception as e:
        return "raw", repr(e)
    good = sensible(built, name, value)
    return ("accepted", "") if good else ("silent", "it is built")


def measure(n, seed):
    """n methods -> [Count]."""
    draw, count = random.Random(f"methods {seed}"), Count("methods from Python")
    for method, name, value in draw.sample(WHOLE, min(n, len(WHOLE))):
        outcome, why = judged(method, name, value)
        count.add(outcome, f"{method}({name}={value!r:.60}): {why:.300}")
    return [count]
