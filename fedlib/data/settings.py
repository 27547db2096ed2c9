"""What may be given, declared once: beside the arguments of a source or a partition, or
as a pydantic model of a description.
"""

from __future__ import annotations

import functools
import inspect

from pydantic import BaseModel, ConfigDict, ValidationError

from ..core.errors import among, check_number, check_switch, check_whole, nearest, short


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
                    fits(f"{f.__name__}: {name}", v, notes[name], allowed.get(name))
            return f(*args, **more)

        return checked

    return declared


def fits(at, v, note, allowed=None):
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


def each(kind, allowed, different=False):
    """A check for a list of one or more values, each of which is as `fits` has it."""

    def check(at, values):
        values = [values] if isinstance(values, str) else values
        some = isinstance(values, (list, tuple)) and values
        if not some or (different and len({*map(str, values)}) < len(values)):
            raise ValueError(
                f"{at} = {short(values)}: give a list of one or more "
                + "different " * different
                + "values"
            )
        for i, v in enumerate(values):
            fits(f"{at}[{i}]", v, kind, allowed)

    return check


# ---------------------------------------------------------------- models
class Model(BaseModel):
    """No other keys, no other types: 1 is not true, "1" is no number."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


def check(model, value, at=""):
    """ValueError with the place, the key and the value unless the model fits."""
    try:
        model.model_validate(value)
    except ValidationError as e:
        first, *_ = e.errors(include_url=False)
        *_, last = first["loc"]
        text = first["msg"].removeprefix("Value error, ")
        if first["type"] == "extra_forbidden":
            known = model.model_fields
            text = f"unknown key{nearest(str(last), known)} (known: {', '.join(known)})"
        key = "".join(f"[{k}]" if isinstance(k, int) else f".{k}" for k in first["loc"])
        raise ValueError(f"{at}{key[1:]} = {short(first['input'])}: {text}") from None
