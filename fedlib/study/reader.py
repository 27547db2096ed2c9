"""A YAML file as dictionaries and lists, without what YAML lets pass in silence: a key
that occurs twice, a date, an alias of what it is in.
"""

from __future__ import annotations

import copy
import functools
import re

import yaml

from ..core.ranges import short


class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
    """YAML in C where PyYAML has it: ten times as quick, and every study asks twice."""


# 1e-05, as DVC writes a small number for `-S`, is a number; for YAML 1.1 it is a word.
Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?\d+[eE][-+]?\d+$"), [*"-+0123456789"]
)


def read(path):
    """The dictionary in a YAML file, a copy of one's own."""
    return copy.deepcopy(tree_of(text_of(path), path))


def text_of(path):
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError as e:
        raise ValueError(f"{path} is not valid YAML: {e}") from e


def tree_of(text, path):
    """The dictionary in a text, which is kept: not to be changed."""
    try:
        tree = parsed(text)
    except (yaml.YAMLError, RecursionError) as e:
        why = " ".join(str(e).split())
        raise ValueError(f"{path} is not valid YAML: {why}") from e
    except ValueError as e:
        raise ValueError(f"{path}: {e}") from e
    if not isinstance(tree, dict):
        raise ValueError(f"{path} holds {short(tree)}; it needs lines `key: value`")
    return tree


@functools.lru_cache(maxsize=16)
def parsed(text):
    """The dictionary, list or value of a text."""
    loader = Loader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        check_node(node, {}, ())
        return loader.construct_document(node)
    finally:
        loader.dispose()


PLAIN = ("str", "int", "float", "bool", "null", "map", "seq", "merge", "value")
NODES = 10**6  # entries of a file, aliases written out


def check_node(node, sizes, above):
    """How many entries a node of YAML has; ValueError, with the line, for a key that
    occurs twice in a dictionary or is no text, a date, an alias of what it is in.

    sizes {id: entries} of the nodes that were seen; above: the nodes it is in.
    """
    line = node.start_mark.line + 1
    if id(node) in above:
        raise ValueError(f"line {line}: an alias leads into itself; write it out")
    if id(node) in sizes:
        return sizes[id(node)]
    kind, inside = node.tag.rpartition(":")[2], ()
    if kind not in PLAIN:
        raise ValueError(
            f"line {line}: {short(getattr(node, 'value', kind))} is read as {kind}; "
            "put a text in quotes"
        )
    if isinstance(node, yaml.MappingNode):
        seen = {}
        for key, _ in node.value:
            at = key.start_mark.line + 1
            if key.tag.rpartition(":")[2] not in ("str", "merge", "value"):
                raise ValueError(
                    f"line {at}: the key {short(key.value)} is no text; put it in "
                    "quotes"
                )
            if key.value in seen:
                raise ValueError(
                    f"line {at}: the key {key.value!r} is there already, in line "
                    f"{seen[key.value]}; take one of the two away"
                )
            seen[key.value] = at
        inside = [value for _, value in node.value]
    elif isinstance(node, yaml.SequenceNode):
        inside = node.value
    above = (*above, id(node))
    sizes[id(node)] = n = 1 + sum(check_node(v, sizes, above) for v in inside)
    if n > NODES:
        raise ValueError(
            f"line {line}: more than {NODES:,} entries, aliases written out"
        )
    return n
