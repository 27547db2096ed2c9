"""What params.yaml and papers/<paper>/studies.yaml may say, declared: a table for each
part, as RUN below. `python -m fedlib.study.schema` writes schema.json, which an editor
reads where a studies file begins with this line:

    # yaml-language-server: $schema=../../fedlib/study/schema.json

    check("study", {"rounds": -1}, "params.yaml: toy: studies.main", names=["digits"])

The tables are schemas of pydantic's core. Hyper-parameters are those of the methods'
dataclasses, and arguments of data sets, partitions and networks those of their
signatures, so that nothing here can fall behind.

Why pydantic: it asks a function whether a value is one by tier, a grid or neither, so
that a mistake has one place and one message; and it is quick. jsonschema reports every
form that does not fit, and takes two seconds to import where Jupyter is installed;
msgspec cannot tell two kinds of dictionaries apart. Why tables and not classes: most
keys come from other tables. What depends on several values is looked at later, by the
method (fedlib.study.checks) and by the task when it is built.
"""

from __future__ import annotations

import functools
import inspect
import json
import math
import re
from dataclasses import fields
from pathlib import Path

from pydantic_core import PydanticCustomError, SchemaValidator, ValidationError
from pydantic_core import core_schema as S

from ..core import ends
from ..core.errors import nearest
from ..core.method import PIECES, Method, Wrap, check_value
from ..core.ranges import COUNT, LARGEST, short
from ..data import tasks
from ..methods import METHODS
from ..methods.make import piece
from . import TIERS
from .seeds import DRAWS, seeds_of

FILE = Path(__file__).with_name("schema.json")


DEFS = {}  # what is declared by a name


def define(ref, schema):
    """Keep a schema by a name; it may lead to itself."""
    DEFS[ref] = schema | {"ref": ref}
    return S.definition_reference_schema(ref)


# ---------------------------------------------------------------- values
def one(words, schema):
    """A value; where it is none, "... = 5: give <words>"."""
    return S.custom_error_schema(
        schema,
        "give",
        custom_error_message="{words}",
        custom_error_context={"words": words},
        metadata={"pydantic_js_updates": {"description": words}},
    )


def first(ask, schema):
    """What ask(value, names of the tasks) lets through, and then the schema. The text
    of its ValueError follows the place: " = 5: give ...".
    """

    def asked(v, info):
        try:
            ask(v, info.context or ())
        except ValueError as e:
            raise PydanticCustomError("said", "{text}", {"text": str(e)}) from e
        return v

    return S.with_info_before_validator_function(asked, schema)


def several(words, schema):
    """A list with one entry or more."""

    def ask(v, names):
        if not isinstance(v, list) or not v:
            raise ValueError(f" = {short(v)}: give {words}")

    return first(ask, S.list_schema(schema))


def whole(low, high=COUNT):
    return S.int_schema(ge=low, le=high)


def number(**ends):
    """A finite number; ends: ge, gt, le, lt."""
    return S.float_schema(**{"le": LARGEST, "ge": -LARGEST} | ends)


def plain(v, names=()):
    """ValueError for what is, or holds, not-a-number."""
    inside = v.values() if isinstance(v, dict) else v if isinstance(v, list) else ()
    for w in inside:
        plain(w)
    if isinstance(v, float) and math.isnan(v):
        raise ValueError(" = nan: give a number")


ANY = first(plain, S.any_schema())
TEXT = one("a text", S.str_schema())
SWITCH = one("true or false", S.bool_schema())
COUNTED = one("a whole number of rounds >= 1", whole(1))


# ---------------------------------------------------------------- dictionaries
def entries(table, example=""):
    """A dictionary with some of these keys: {key: schema of its value}."""
    told = {k: S.typed_dict_field(v, required=False) for k, v in table.items()}
    closed = S.typed_dict_schema(told, extra_behavior="forbid")
    return first(functools.partial(refuse, keys=table, example=example), closed)


def refuse(v, names, keys, example=""):
    """ValueError unless this is a dictionary with no other than these keys."""
    known = ", ".join(keys)
    if not isinstance(v, dict) and example:
        raise ValueError(f" = {short(v)}: give entries, as {example}")
    if not isinstance(v, dict):
        raise ValueError(f" is {short(v)}; it needs entries (known: {known})")
    for k in v:
        if k not in keys:
            raise ValueError(f": unknown key {k!r}{nearest(k, keys)} (known: {known})")


def by_name(schema, example, table=None, ask=None):
    """{name: value} with names of one's own, or of a table; ask: refuses a value."""

    def asked(v, names):
        if not isinstance(v, dict):
            raise ValueError(f" = {short(v)}: give entries, as {example}")
        if table is not None:
            refuse(v, names, table)
        if ask:
            ask(v, names)

    return first(asked, S.dict_schema(S.str_schema(), schema))


# ---------------------------------------------------------------- tiers and grids
def by_tier(value):
    """Whether it is a value for each tier, {tiny: ..., small: ..., paper: ...}."""
    return isinstance(value, dict) and bool(value) and set(value) <= set(TIERS)


def tiered(ref, schema):
    """A value, or one for each tier."""
    again = S.definition_reference_schema(ref)
    each = S.typed_dict_schema({t: S.typed_dict_field(again) for t in TIERS})
    forms = {"<one>": schema, "<tier>": first(every_tier, each)}
    tell = lambda v: "<tier>" if by_tier(v) else "<one>"
    return define(ref, S.tagged_union_schema(forms, tell))


def every_tier(v, names):
    lacks = [t for t in TIERS if t not in v]
    if lacks:
        raise ValueError(
            f" = {short(v)} has no value for tier {lacks[0]}; give one for each of "
            f"{', '.join(TIERS)}"
        )


def spread(ref, schema):
    """A value, or {grid: [...], as: ..., called: [...]}, by tier or not."""
    schema = define(f"{ref}, one", schema)
    values = tiered(f"{ref}, of a grid", schema)
    values = several("a list of one value or more", values)
    name = S.union_schema([S.str_schema(pattern=r"^[^;\n]+$"), number()])
    called = one("a list of names or numbers, as many as values", S.list_schema(name))
    grid = entries(
        {
            "grid": tiered(f"{ref}, grid", values),
            "as": one("the name of an axis", S.str_schema()),
            "called": tiered("called", called),
        }
    )
    tell = lambda v: "<grid>" if isinstance(v, dict) and "grid" in v else "<one>"
    return tiered(ref, S.tagged_union_schema({"<one>": schema, "<grid>": grid}, tell))


# ---------------------------------------------------------------- the engine
LATE = {
    "portion": spread("late.portion", number(ge=0, lt=1)),
    "every": spread("late.every", whole(1)),
    "exchanged": spread("late.exchanged", S.bool_schema()),
}
RUN = {  # what the engine is told
    "rounds": one("a whole number of rounds", whole(0)),
    "cohort": one(
        "a whole number of clients >= 1, or null for all", S.nullable_schema(whole(1))
    ),
    "online": one("a share of the clients, above 0 and at most 1", number(gt=0, le=1)),
    "stragglers": one("{portion: 0.5, every: 5, exchanged: false}", entries(LATE)),
    "every": COUNTED,
    "splits": one(
        "a list of some of test, val, all",
        S.list_schema(S.literal_schema(["test", "val", "all"]), min_length=1),
    ),
    "guests": SWITCH,
    "own": SWITCH,
    "microscope": SWITCH,
    "how": one("loop, vmap or null", S.literal_schema(["loop", "vmap", None])),
    "precision": one(
        "float32, tf32 or bf16", S.literal_schema(["float32", "tf32", "bf16"])
    ),
}
RUN = {k: spread(f"run.{k}", v) for k, v in RUN.items()}


# ---------------------------------------------------------------- hyper-parameters
def permitted(f):
    """The values of a hyper-parameter, a field of a method, as its metadata say."""
    choices, ends = f.metadata.get("choices"), f.metadata.get("range")
    if choices:
        switch = all(isinstance(c, bool) for c in choices)
        return S.bool_schema() if switch else S.literal_schema([*choices])
    if not ends:
        return ANY
    low, high = (None if math.isinf(v) else v for v in ends)
    if type(f.default) is int:
        return S.int_schema(ge=low, le=high)
    return S.float_schema(ge=low, le=high)


def hyper(f):
    """The same, with the method's own words where a value is none."""

    def ask(v, names):
        if f.name in PIECES and isinstance(v, (str, dict)):
            v = located("", piece, f.name, v)
        try:
            check_value("", f, v)
        except ValueError as e:
            raise ValueError(str(e).removeprefix(f".{f.name}")) from e

    return first(ask, permitted(f))


def located(at, function, *args):
    """function(*args); a ValueError of it begins with the place."""
    try:
        return function(*args)
    except ValueError as e:
        raise ValueError(f"{at}: {e}") from e


def is_method(v, names):
    """ValueError unless this is the name of a method, or {name: ..., ...}."""
    name = v.get("name") if isinstance(v, dict) else v
    if not isinstance(name, str) or name not in METHODS:
        raise ValueError(f" = {short(v)} is no method{nearest(name, METHODS)}")


def choice(ref, schema):
    """A hyper-parameter of a study: a value, a list of them, which is a grid, or one
    for each tier, task or point of the task's grid; these may be nested.
    """
    again = S.definition_reference_schema(ref)
    forms = {
        "<one>": schema,
        "<list>": several("one value or more", again),
        "<case>": first(cases, S.dict_schema(S.str_schema(), again)),
    }
    return define(ref, S.tagged_union_schema(forms, case))


def case(v):
    """Which form a hyper-parameter has; {name: ...} is a piece."""
    if isinstance(v, dict) and "name" not in v:
        return "<case>"
    return "<list>" if isinstance(v, list) else "<one>"


def cases(v, names):
    """ValueError unless these are values by tier, by task or by point."""
    if not v or any(k in TIERS for k in v):
        if any(k not in TIERS for k in v):
            raise ValueError(
                f" = {short(v)} mixes tiers with tasks; give values by tier, and by "
                "task below one"
            )
        every_tier(v, names)
    for k in v:
        if k not in TIERS and k not in names and "=" not in k:
            raise ValueError(
                f" = {short(v)}: {k!r} is neither a tier ({', '.join(TIERS)}) nor a "
                f"task of the paper ({', '.join(names)}){nearest(k, names)}"
            )


def hypers(cls):
    """The hyper-parameters of a method, but for the one inside it: [field]."""
    return [f for f in fields(cls) if f.name not in ("task", "inner")]


def shared(cls, f):
    """A hyper-parameter of a method, declared once for those that inherit it."""
    has = lambda c: getattr(c, "__dataclass_fields__", {}).get(f.name) is f
    owner = next(c for c in reversed(cls.__mro__) if has(c))
    # two classes may have one name
    return choice(f"{owner.__module__}.{owner.__name__}.{f.name}", hyper(f))


def of_method(name):
    """{hyper-parameter: value} of a method."""
    cls = METHODS[name]
    if issubclass(cls, Wrap):
        return of_wrapper(name, cls)
    table = {f.name: shared(cls, f) for f in hypers(cls)}
    return entries(table, "{lr: 0.1}, {} where nothing is set")


def of_wrapper(name, cls):
    """A wrapper also has those of the method inside, which `inner` may change."""
    own = {f.name: f for c in (METHODS[cls.around], cls) for f in hypers(c)}
    table = {k: shared(cls, f) for k, f in own.items()}
    table["inner"] = choice(f"{name}.inner", first(is_method, ANY))

    def ask(v, names):
        inside = leaves(v.get("inner", cls.around)) if isinstance(v, dict) else ()
        found = [METHODS[m] for m in inside if isinstance(m, str) and m in METHODS]
        refuse(v, names, [*table, *(f.name for c in found for f in hypers(c))])

    told = {k: S.typed_dict_field(v, required=False) for k, v in table.items()}
    return first(ask, S.typed_dict_schema(told, extra_behavior="allow"))


def leaves(value):
    """All values inside dictionaries and lists that are neither."""
    if isinstance(value, dict):
        return leaves([*value.values()])
    if isinstance(value, list):
        return [leaf for v in value for leaf in leaves(v)]
    return [value]


def variants(name):
    """A method's entry, or a list of them."""
    entry = define(name, S.nullable_schema(of_method(name)))
    forms = {"<one>": entry, "<list>": several("one variant or more, or {}", entry)}
    return S.tagged_union_schema(
        forms, lambda v: "<list>" if isinstance(v, list) else "<one>"
    )


# ---------------------------------------------------------------- tasks
INT = S.int_schema(ge=-(2**63), le=2**64 - 1)
KINDS = {
    "int": ("a whole number", INT),
    "float": ("a number", number()),
    "str": ("a text", S.str_schema()),
    "bool": ("true or false", S.bool_schema()),
    "None": ("null", S.none_schema()),
}
PLAIN = spread("a plain value", ANY)


@functools.cache
def argument(annotation):
    """The schema of an argument by its annotation, as "int | Sequence[int]"."""
    forms = [form(a) for a in annotation.split(" | ")]
    if not all(forms):
        return PLAIN
    words = " or ".join(words for words, _ in forms)
    return spread(words, one(words, S.union_schema([schema for _, schema in forms])))


def form(annotation):
    """(words, schema) of one part of an annotation; None for what is not of KINDS."""
    listed = re.fullmatch(r"(?:Sequence|tuple)\[(\w+).*\]", annotation)
    if not listed:
        return KINDS.get(annotation)
    if listed[1] not in KINDS:
        return None
    words, schema = KINDS[listed[1]]
    each = words.removeprefix("a ") + "s"
    return f"a list of {each}", S.list_schema(schema, min_length=1)


# {draw: seed}: each seed of a study draws its data
SEED = spread("a draw", S.union_schema([S.literal_schema(["seed"]), INT]))


def arguments(kind, name):
    """{argument: schema} of a source, a partition or a network, but for its rows."""
    made = tasks.TABLES[kind][name]
    if kind == "network":
        found = {f.name: f.type for f in fields(made)} | {"channels": "int"}
    else:
        every = inspect.signature(made).parameters.values()
        found = {p.name: p.annotation for p in every if p.name not in ("y", "owner")}
    known = {k: v if isinstance(v, str) else "" for k, v in found.items()}
    table = {k: argument(v) for k, v in known.items()}
    if kind == "data" and name in DRAWS:
        table["draw"] = SEED
    if kind == "data" and name == "features":
        table["data"] = S.definition_reference_schema("data, one")
    return table


def described(kind):
    """{name: ..., and what it takes}; without a name, what one of them takes."""
    known = tasks.TABLES[kind]
    each = {k: arguments(kind, k) for k in known}
    every = {}  # what all that take an argument agree on
    for table in each.values():
        for k, v in table.items():
            every[k] = v if every.get(k, v) == v else PLAIN
    name = first(functools.partial(is_known, kind), S.str_schema())
    forms = {f"<{k}>": entries({"name": name} | v) for k, v in each.items()}
    forms["<any>"] = entries(
        {"name": spread(f"{kind}.name", name)} | every,
        f"{{name: {next(iter(known))}, ...}}",
    )

    def tell(v):
        name = v.get("name") if isinstance(v, dict) else None
        return f"<{name}>" if isinstance(name, str) and name in known else "<any>"

    return spread(kind, S.tagged_union_schema(forms, tell))


def is_known(kind, v, names):
    try:
        tasks.known(tasks.TABLES[kind], kind, v)
    except ValueError as e:
        raise ValueError(f": {e}") from e


SHARE = number(ge=0, le=1)
NAMES = S.list_schema(S.str_schema())
TEST = entries({"by": S.literal_schema(["labels"]), "share": number(gt=0, lt=1)})
GUEST = S.union_schema([S.str_schema(), S.int_schema(), number()])
TASK = {
    "standard": one(
        "true, false or imagenet",
        S.union_schema([S.bool_schema(), S.literal_schema(["imagenet"])]),
    ),
    "groups": one("{by: parity}", entries({"by": S.literal_schema(["parity"])})),
    "guest": one(
        "the name of an owner, or a list of names",
        S.union_schema([GUEST, S.list_schema(GUEST)]),
    ),
    "batch": one("a whole number >= 1 of rows", whole(1)),
    "parts": one(
        "three shares, of training, validation and test rows, as [0.8, 0.1, 0.1]",
        S.list_schema(SHARE, min_length=3, max_length=3),
    ),
    "train": entries(
        {f.name: spread(f"train.{f.name}", hyper(f)) for f in hypers(Method)},
        "{lr: 0.1, epochs: 1}",
    ),
    "source": TEXT,
    "test": one(
        "{by: labels}, or a list with a number of test rows for each owner",
        S.union_schema([TEST, S.list_schema(whole(1))]),
    ),
    "owners": one("a list of names", NAMES),
    "run": entries(RUN),
    "label": TEXT,
}
TASK = {k: spread(k, v) for k, v in TASK.items()}
TASK |= {k: described(k) for k in tasks.TABLES}


def levels(table):
    """Entries that may also stand below a tier."""
    below = S.nullable_schema(entries(table))
    return entries(table | dict.fromkeys(TIERS, below))


# ---------------------------------------------------------------- studies
def are_tasks(v, names):
    """ValueError unless these are names of tasks, each once, or {name: changes}."""
    there = f"(there are {', '.join(names)})"
    if not isinstance(v, (list, dict)) or not v:
        raise ValueError(f" = {short(v)}: give the names of one task or more {there}")
    for name in v:
        if not isinstance(name, str) or name not in names:
            near = nearest(name, names)
            raise ValueError(f" names the task {short(name)}{near} {there}")
    twice = [k for k in v if isinstance(v, list) and v.count(k) > 1]
    if twice:
        raise ValueError(f" names the task {twice[0]!r} twice; give it once")


def are_methods(v, names):
    if not isinstance(v, dict) or not v:
        raise ValueError(f" = {short(v)}: give one method or more, as {{FedAvg: {{}}}}")


def are_seeds(v, names):
    try:
        seeds_of(v, "")
    except ValueError as e:
        raise ValueError(str(e).removeprefix(": seeds")) from e


def study():
    """{key: schema} of a study."""
    changes = S.nullable_schema(entries(TASK, "{partition: {clients: 10}}"))
    forms = {"<list>": NAMES, "<one>": S.dict_schema(S.str_schema(), changes)}
    tell = lambda v: "<list>" if isinstance(v, list) else "<one>"
    methods = {k: variants(k) for k in METHODS}
    look = S.list_schema(S.str_schema(), min_length=2, max_length=2)
    look = one("a moment and a view, as [pre, personal]", look)
    known = [*METHODS]
    more = {
        "title": TEXT,
        "tasks": first(are_tasks, S.tagged_union_schema(forms, tell)),
        "methods": first(are_methods, entries(methods)),
        "without": by_name(one("a list of names", NAMES), "{FedAvg: [...]}", known),
        "look": by_name(look, "{FedAvg: [pre, personal]}", known),
        "seeds": first(are_seeds, S.any_schema()),
        "logs": by_name(one("a whole number of seeds", whole(0)), "{weight: 0}"),
        "source": TEXT,
    }
    return RUN | {k: tiered(f"study.{k}", v) for k, v in more.items()}


# ---------------------------------------------------------------- files
def knob(v, names):
    """ValueError for what no task or study can hold, and for the name of a knob."""
    plain(v)
    for leaf in leaves(v):
        if isinstance(leaf, str) and leaf.startswith("$"):
            raise ValueError(
                f" holds {leaf!r}, and a knob is no other knob; write it out"
            )


TIER = one(f"one of {', '.join(TIERS)}", S.literal_schema([*TIERS]))


@functools.lru_cache(maxsize=8)
def declared(kind, methods):
    """The schema of "paper": {tasks: ..., studies: ...}; "study": what a reader changes
    of one; "section": the knobs of a paper. methods: METHODS now.
    """
    table, group = study(), "{name: {...}}"
    free = by_name(by_name(S.any_schema(), group), group)
    free = S.nullable_schema(free)
    kinds = {
        "outline": entries({"tasks": free, "studies": free}),
        "rest": entries({"tier": TIER}),
        "study": entries(table),
        "section": by_name(first(knob, S.any_schema()), "{alpha: 5}"),
        "paper": entries(
            {
                "tasks": by_name(levels(TASK), group),
                "studies": by_name(by_name(levels(table), group), group),
            }
        ),
    }
    return S.definitions_schema(kinds[kind], [*DEFS.values()])


@functools.lru_cache(maxsize=8)
def validator(kind, methods):
    return SchemaValidator(declared(kind, methods))


def check(kind, value, at, names=(), place=None):
    """ValueError, which begins with the place, unless a value is what is declared.

    at: where the value stands; names: of the paper's tasks; place: a function from the
    keys that lead to a mistake to its place.
    """
    try:
        known = tuple(METHODS.items())
        validator(kind, known).validate_python(value, strict=True, context=names)
    except ValidationError as e:
        error = e.errors(include_url=False)[0]
        keys = [k for k in error["loc"] if not str(k).startswith("<")]
        here = (place or dotted)(at, keys)
        text, value = error["msg"], f"{here} = {short(error['input'])}"
        if error["type"] == "give":
            raise ValueError(f"{value}: give {text}") from None
        if error["type"] != "said":
            raise ValueError(f"{value}: {text[0].lower()}{text[1:]}") from None
        raise ValueError(here + text) from None


def dotted(at, keys):
    """A place in words: "params.yaml: toy: tasks.digits.parts[1]"."""
    inside = "".join(f"[{k}]" if isinstance(k, int) else f".{k}" for k in keys)
    return f"{at}: {inside.removeprefix('.')}" if inside else at


# ---------------------------------------------------------------- for an editor
def written():
    """schema.json: the same of a file in which "$name" may stand for a value."""
    from pydantic.json_schema import GenerateJsonSchema

    core = declared("paper", tuple(METHODS.items()))
    out = for_editor(GenerateJsonSchema().generate(core))
    knob = {"type": "string", "pattern": "^\\$"}
    out["$defs"] = {k: {"anyOf": [knob, v]} for k, v in out["$defs"].items()}
    lines = ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in out.items())
    return f"{{\n{lines}\n}}\n"


DRAFT = "https://json-schema.org/draft/2020-12/schema"


def for_editor(node):
    """JSON Schema without the titles, and with forms of which several may fit."""
    if isinstance(node, list):
        return [for_editor(v) for v in node]
    if not isinstance(node, dict):
        return node
    kept = {k: v for k, v in node.items() if k != "title" or isinstance(v, dict)}
    return {"anyOf" if k == "oneOf" else k: for_editor(v) for k, v in kept.items()}


def main():
    """Write the file for editors."""
    FILE.write_text(written(), "utf-8")


if __name__ == "__main__":
    ends.program("python -m fedlib.study.schema", main, takes_words=False)
