"""What may be given, declared by annotations: of a source's or a partition's arguments,
or of a pydantic model of a description.
"""

import functools
import inspect
import re
from collections.abc import Sequence
from typing import Annotated, Any, TypeVar, get_type_hints

from pydantic import AfterValidator, BaseModel, Field, ValidationError, create_model

from ..core.errors import COUNT, DRAWS, LARGEST, SEEDS, known, nearest, refuse_if, short


# ---------------------------------------------------------------- types
def named(table, what):
    """Of a text: a name in this table."""
    return AfterValidator(lambda name: known(table, what, name) and name)


def different(values):
    """The values; ValueError where one stands twice."""
    refuse_if(len({*map(str, values)}) < len(values), "give each once")
    return values


Whole = Annotated[int, Field(ge=0, le=COUNT)]
Count = Annotated[int, Field(ge=1, le=COUNT)]
Seed = Annotated[int, Field(ge=0, le=SEEDS)]
Draw = Annotated[int, Field(ge=0, le=DRAWS)]  # a seed of numpy's RandomState
Pixels = Annotated[int, Field(ge=16, le=128)]
Amount = Annotated[float, Field(ge=0, le=LARGEST)]
Positive = Annotated[float, Field(gt=0, le=LARGEST)]
Share = Annotated[float, Field(ge=0, le=1)]
Each = TypeVar("Each")
Some = Annotated[Sequence[Each], Field(min_length=1)]
Different = Annotated[Sequence[Each], Field(min_length=1), AfterValidator(different)]


# ---------------------------------------------------------------- models
class Model(BaseModel):
    """No other keys, no other types: 1 is not true, "1" is no number."""

    model_config = {"extra": "forbid", "strict": True, "allow_inf_nan": False}


def settings(f):
    """The function, which raises a ValueError that names an argument unless it is what
    its annotation says; classes, as Tensor, are not looked at.
    """
    signature, hints = inspect.signature(f), get_type_hints(f, include_extras=True)
    plain = lambda hint: hint in (int, float, bool, str) or not inspect.isclass(hint)
    told = {k: hints.get(k, Any) for k in signature.parameters}
    told = {k: hint if plain(hint) else Any for k, hint in told.items()}
    model = create_model(f.__name__, __base__=Model, **told)

    @functools.wraps(f)
    def checked(*args, **more):
        given = signature.bind(*args, **more)
        given.apply_defaults()
        check(model, given.arguments, f"{f.__name__}: ")
        return f(*args, **more)

    return checked


def check(model, value, at=""):
    """ValueError with the place, the key and the value unless the model fits."""
    try:
        model.model_validate(value)
    except ValidationError as e:
        raise ValueError(at + words(e, model)) from None


def words(e, model):
    """What is wrong, of the first value that is: its place, the value and the remedy,
    of all kinds that it may be."""
    every = [(path(x), x) for x in e.errors(include_url=False)]
    inside = [(k, x) for k, x in every if k[: len(every[0][0])] == every[0][0]]
    where, first = max(inside, key=lambda pair: len(pair[0]))
    said = [x["msg"].removeprefix("Value error, ") for k, x in inside if k == where]
    text = "; or: ".join(dict.fromkeys(said))
    if first["type"] == "extra_forbidden":
        keys, last = model.model_fields, str(where[-1])
        text = f"unknown key{nearest(last, keys)} (known: {', '.join(keys)})"
    key = "".join(f"[{k}]" if isinstance(k, int) else f".{k}" for k in where)
    return f"{key[1:]} = {short(first['input'])}: {text}" if key else text


def path(error):
    """Where a value stands, without the kinds that it may be of."""
    kind = re.compile(r"(bool|int|str|float)$|(constrained|function|literal)[-\[]")
    return [k for k in error["loc"] if isinstance(k, int) or not kind.match(k)]
