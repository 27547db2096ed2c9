"""What a source or a partition may be given, declared beside its arguments."""

from __future__ import annotations

import functools
import inspect

from ..core.errors import nearest
from ..core.ranges import among, check_number, check_switch, check_whole, short


def settings(**allowed):
    """Decorator of a function: a ValueError names the argument whose value is none.

    An argument is what its annotation says: int, float, bool, or None where that is
    named. allowed: {argument: (low, high) of a number, values to choose from, or a
    function (place, value) that raises ValueError}.
    """

    def declared(f):
        signature = inspect.signature(f)
        notes = {k: str(p.annotation) for k, p in signature.parameters.items()}

        @functools.wraps(f)
        def checked(*args, **more):
            given = signature.bind(*args, **more)
            given.apply_defaults()
            for name, v in given.arguments.items():
                if not (v is None and notes[name].endswith("None")):
                    check(f"{f.__name__}: {name}", v, notes[name], allowed.get(name))
            return f(*args, **more)

        return checked

    return declared


def check(at, v, note, allowed=None):
    """ValueError unless a value is what its annotation and `allowed` say."""
    kind = note.removesuffix(" | None")
    if callable(allowed):
        allowed(at, v)
    elif kind == "bool":
        check_switch(at, v)
    elif kind in ("int", "float"):
        (check_whole if kind == "int" else check_number)(at, v, *(allowed or ()))
    elif allowed:
        one_of(at, v, allowed)


def one_of(at, v, known):
    """ValueError unless a value is one of those that are known."""
    if not among(v, known):
        names = ", ".join(map(str, known))
        raise ValueError(f"{at} = {short(v)}{nearest(v, known)}; choose one of {names}")
