"""Messages: every tree comes back to the bit, and no bytes are believed unchecked."""

import math
from contextlib import suppress

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from toys_core import same
from toys_wire import through

from fedlib.deploy import message
from torture.messages import MUTATIONS, joined, tree_of

names = st.text('ab.é"\\[], ', min_size=1, max_size=6)


def tensor(kind, shape, body):
    """A tensor of any bits: NaNs with a payload, subnormal numbers, minus zero."""
    raw = np.resize(np.frombuffer(body, np.uint8), math.prod(shape) * kind.itemsize)
    flat = torch.tensor(raw.tolist(), dtype=torch.uint8)
    return ((flat > 9) if kind is torch.bool else flat.view(kind)).reshape(shape)


kinds = st.sampled_from([getattr(torch, k) for k in message.TYPES])
body, shape = st.binary(max_size=24), st.lists(st.integers(0, 3), max_size=3)
tensors = st.builds(tensor, kinds, shape, body)
inside = st.recursive(tensors, lambda v: st.dictionaries(names, v, max_size=4))
trees = st.dictionaries(names, inside, max_size=4)


def shown(tree):
    """Everything of a tree: names in order, types, shapes, bits."""
    leaf = lambda v: v == {} or (v.dtype, v.shape, v.contiguous().numpy().tobytes())
    return [(k, leaf(v)) for k, v in message.flat(tree)]


@settings(max_examples=100)
@given(trees)
def test_a_tree_comes_back_to_the_bit_and_in_its_order(tree):
    size = sum(getattr(v, "nbytes", 0) for _, v in message.flat(tree))
    assert message.size(tree) == size
    assert shown(message.loads(message.dumps(tree), limit=size)) == shown(tree)
    if size:
        with pytest.raises(ValueError, match="limit"):
            message.loads(message.dumps(tree), size - 1)


def test_views_are_sent_as_what_they_show_and_what_nobody_could_read_is_not():
    w, one = torch.arange(6.0).reshape(2, 3), torch.ones(1)
    tree = {"t": w.T, "part": w[:, 1], "same": w[:1].expand(4, 3)}
    assert same(through(tree), tree)
    for bad in ({"a/b": one}, {"": one}, {"a": 1.0}, {"a" * 513: one}):
        with pytest.raises(ValueError):
            message.dumps(bad)


def read(body, nonsense=False):
    """Never another exception, and what is read is written again as it was."""
    with suppress(ValueError):
        tree = message.loads(body, 10**7)
        assert not nonsense and message.dumps(tree) == body
        return True


@settings(max_examples=200)
@given(st.sampled_from(MUTATIONS), st.integers(0, 2**32).map(np.random.default_rng))
def test_messages_that_were_damaged(change, rng):
    read(*change(message.dumps(tree_of(rng)), rng))


def test_heads_that_lie_are_refused():
    u = "uint8"
    for rows, body in (
        ([["a", "bool", [2]]], b"\1\7"), ([["a/" * 9 + "b", u, [0]]], b""),
        ([["a", u, [0]]] * 2, b""), ([["a", u, [0]], ["a/b", u, [0]]], b""),
        ([["a/b", u, [0]], ["a", u, [0]]], b""), ([["a/", u, [0]], ["a/b", u, [0]]], b""),
        ([["a/", u, [2]]], b"ab"), ([[k, u, [0]] for k in ("a/x", "b", "a/y")], b""),
        ([["a", u, [-1, -2]]], b"ab"), ([["a", "float64", [2**32, 2**32]]], b""),
        ([["a", u, [0, 10**18]]], b""), ([["a", u, [True]]], b"a"),
        ([["a", u, [2]]], b"a"), ([["a", u, [2]]], b"abc"),
        ([[f"{i}", u, [0]] for i in range(2**14 + 1)], b""),
    ):  # fmt: skip
        assert not read(joined(rows, body)), rows[:3]
    assert read(joined([["a", u, [2]], ["b/c", "bool", [1]]], b"ab\1"))
    for body in (None, "[]", b"", bytearray(10), (2**63).to_bytes(8, "little") + b"[]"):
        assert not read(body)


def test_an_answer_is_taken_in_the_names_shapes_and_types_that_are_expected():
    w, zero = {"b": torch.ones(1, 3), "a": torch.ones(2)}, torch.zeros((), dtype=int)
    right, like = {"n": zero + 5, "w": w}, {"w": dict(sorted(w.items())), "n": zero}
    assert shown(message.check(right, like, 28)) == shown(like | {"n": zero + 5})
    a = lambda v: right | {"w": w | {"a": v}}
    for bad in (["w"], None, {}, right | {"m": torch.ones(0)}, right | {"n": {}},
                right | {"n": torch.tensor(5.0)}, a({"c": torch.ones(2)}),
                a(torch.ones(3)), a(torch.ones(2, 1)), a(torch.ones(2).double()),
                a(torch.tensor([1, torch.nan])), a(torch.tensor([torch.inf, 1])),
                a(torch.tensor([1, -torch.inf]))):  # fmt: skip
        with pytest.raises(ValueError):
            message.check(bad, like, 28)
    with pytest.raises(ValueError, match="limit"):
        message.check(right, like, 27)
