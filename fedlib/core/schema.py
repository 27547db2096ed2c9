"""The columns of x in words, as somebody writes them down: a list becomes Blocks.

The list goes through the columns of x [N, D] in their order. An entry is

    name                                    one column: a flag if it holds 0 and 1
                                            alone, else a number
    (name, kind)                            one column
    (name, kind, width)                     as many columns as width says
    (name, "number", width, (low, high))    numbers of a range that everybody knows

and a kind is

    "number"    standardised, within the range where there is one
    "flag"      0 or 1, each column by itself
    "onehot"    two columns or more, of which at most one is 1 in a row

The widths sum to D, no name stands twice, and the rows of x obey.
"""

from __future__ import annotations

from numbers import Integral, Real

from .errors import nearest
from .groups import Block

KINDS = ("number", "flag", "onehot")
FORMS = (
    'name, (name, kind), (name, kind, width) or (name, "number", width, (low, high))'
)


def blocks(schema, x):
    """A tuple of Blocks, one per entry of `schema`, for x [N, D]; see the module.

    ValueError for what is no such list, widths that do not sum to D, two blocks of one
    name, and rows that contradict their block.
    """
    if x.dim() != 2:
        raise ValueError(
            f"schema describes the columns of x [N, D], and x is {list(x.shape)}; "
            "leave schema out for images, or give one row of numbers per person"
        )
    if not isinstance(schema, list) or not schema:
        raise ValueError(
            f"schema = {schema!r:.80}: give a list with an entry for the columns of x, "
            f"in their order; an entry is {FORMS}"
        )
    at = [f"schema[{i}] = {entry!r:.80}" for i, entry in enumerate(schema)]
    found, stop, D = {}, 0, x.shape[1]
    for entry, here in zip(schema, at):
        block = parse(entry, stop, x, here)
        if block.name in found:
            raise ValueError(
                f"{here}: columns {found[block.name].start} and {stop} both begin a "
                f"block {block.name!r}; give each block a name of its own"
            )
        found[block.name], stop = block, block.stop
    if stop != D:
        raise ValueError(
            f"schema describes {stop} columns, and x has {D}; let the widths of its "
            f"{len(schema)} entries sum to {D}"
        )
    for block, here in zip(found.values(), at):
        obeyed(block, x[:, block.start : block.stop], here)
    return tuple(found.values())


def parse(entry, start, x, at):
    """The Block of one entry, from column `start` on; at: its place, for errors."""
    if isinstance(entry, str):
        v = x[:, start : start + 1]
        entry = entry, "flag" if ((v == 0) | (v == 1)).all() else "number"
    if not isinstance(entry, (list, tuple)) or not 2 <= len(entry) <= 4:
        raise ValueError(f"{at}: give {FORMS}")
    name, kind, width, *ends = entry if len(entry) > 2 else (*entry, 1)
    if not isinstance(name, str) or not name.strip():
        raise ValueError(f"{at}: the name is {name!r:.40}; give a text")
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(
            f"{at}: unknown kind {kind!r:.40}{nearest(kind, KINDS)} (known: "
            f"{', '.join(KINDS)})"
        )
    least = 2 if kind == "onehot" else 1
    if not isinstance(width, Integral) or isinstance(width, bool) or width < least:
        raise ValueError(
            f"{at}: width = {width!r:.40}; give the number of columns, {least} or more"
            + (", or call a single column a flag" if kind == "onehot" else "")
        )
    if ends and kind != "number":
        raise ValueError(
            f"{at}: {kind} means 0 or 1 and takes no range; leave {ends[0]!r:.40} out, "
            "or use number"
        )
    ends = span(*ends, at) if ends else ()
    return Block(str(name), kind, start, start + int(width), *ends)


def span(ends, at):
    """The range (low, high) as floats; an end may be infinite."""
    real = lambda v: isinstance(v, Real) and not isinstance(v, bool)
    pair = isinstance(ends, (list, tuple)) and len(ends) == 2 and all(map(real, ends))
    if not pair or not ends[0] < ends[1]:
        raise ValueError(
            f"{at}: the range is {ends!r:.40}; give two numbers (low, high) with "
            "low < high; an end may be infinite"
        )
    return tuple(map(float, ends))


def obeyed(block, v, at):
    """ValueError for rows v [N, columns of the block] that contradict it."""
    rules = [(~v.isfinite(), "drop or impute what is not finite")]
    if block.kind == "number":
        outside = (v < block.low) | (v > block.high)
        rules.append((outside, "clip it, or widen the range"))
    else:
        other = (v != 0) & (v != 1)
        rules.append((other, f"{block.kind} means 0 or 1; recode it, or use number"))
    if block.kind == "onehot":
        again = v.cumsum(1) > 1
        rules.append((again, "it is the second 1 of this row; leave one, or use flag"))
    for bad, remedy in rules:
        if bad.any():
            row, j = bad.nonzero()[0].tolist()
            raise ValueError(
                f"{at}: row {row} of x holds {v[row, j].item()} in column "
                f"{block.start + j}; {remedy}"
            )
