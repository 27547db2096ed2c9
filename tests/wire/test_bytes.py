"""Messages: every tree comes back to the bit, and of bytes that are no message nothing is
believed before it is checked.
"""

import tracemalloc

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from toys_core import same
from toys_wire import through

from fedlib.deploy import message
from torture.messages import MUTATIONS, joined, tree_of

names = st.text('ab.é"\\[], ', min_size=1, max_size=6)
bits = st.binary(min_size=0, max_size=24)


def tensor(kind, shape, body):
    """A tensor of any bits: NaNs with a payload, subnormal numbers, minus zero."""
    one = torch.empty(0, dtype=kind).element_size()
    n = int(torch.tensor(shape).prod()) if shape else 1
    raw = (body * (n * one // max(1, len(body)) + 1) + bytes(n * one))[: n * one]
    flat = torch.tensor(list(raw), dtype=torch.uint8)
    return ((flat > 9) if kind is torch.bool else flat.view(kind)).reshape(shape)


tensors = st.builds(
    tensor,
    st.sampled_from([getattr(torch, k) for k in message.TYPES]),
    st.lists(st.integers(0, 3), max_size=3),
    bits,
)
inside = st.recursive(tensors, lambda v: st.dictionaries(names, v, max_size=4))
trees = st.dictionaries(names, inside, max_size=4)


def shown(tree):
    """Everything of a tree: names in order, types, shapes, bits."""
    return [
        (k, v.dtype, v.shape, v.contiguous().numpy().tobytes())
        if isinstance(v, torch.Tensor)
        else k
        for k, v in message.flat(tree)
    ]


@settings(max_examples=150)
@given(trees)
def test_a_tree_comes_back_to_the_bit_and_in_its_order(tree):
    size = sum(v.nbytes for _, v in message.flat(tree) if isinstance(v, torch.Tensor))
    assert message.size(tree) == size
    assert shown(message.loads(message.dumps(tree), limit=size)) == shown(tree)
    assert shown(message.unpack(message.pack(tree))) == shown(tree)
    if size:
        with pytest.raises(ValueError, match="limit"):
            message.loads(message.dumps(tree), size - 1)


def test_the_bytes_of_a_message_stay_what_they_are():
    """Clients know by their hash what they have answered before."""
    tree = {"w": {"é": torch.tensor([[1.0, 2.0]])}, "no": {}, "b": torch.tensor(True)}
    head = (
        b'[["w/\\u00e9", "float32", [1, 2]], ["no/", "uint8", [0]], ["b", "bool", []]]'
    )
    body = bytes([len(head)]) + bytes(7) + head + b"\0\0\x80\x3f\0\0\0\x40\x01"
    assert message.dumps(tree) == body


def test_views_are_sent_as_what_they_show():
    w = torch.arange(6.0).reshape(2, 3)
    tree = {"t": w.T, "part": w[:, 1], "same": w[:1].expand(4, 3)}
    assert same(through(tree), tree)
    got = through(tree)
    got["t"][0] = 9  # of its own memory, also of another entry's
    assert same({"part": got["part"]}, {"part": w[:, 1]}) and w[0, 0] == 0


def test_what_nobody_could_read_is_not_sent():
    one = torch.ones(1)
    for tree in ({"a/b": one}, {"": one}, {1: one}, {"a\nb": one}, {"a" * 513: one},
                 {"a": 1.0}, {"a": None}, {"a": one.to(torch.bfloat16)},
                 {"a": {"b": {"\x1b": {}}}}, {"a": torch.ones([1] * 33)},
                 {str(i): torch.ones(0) for i in range(2**14 + 1)}):  # fmt: skip
        with pytest.raises(ValueError):
            message.dumps(tree)


# ---------------------------------------------------------------- hostile bytes
def refused_or_read(body, nonsense=False):
    """Never another exception, and what is read is written again as it was."""
    try:
        tree = message.loads(body, 10**7)
    except ValueError:
        return False
    assert not nonsense and message.dumps(tree) == body
    return True


@settings(max_examples=200)
@given(st.binary(max_size=60))
def test_any_bytes(body):
    refused_or_read(body)


@settings(max_examples=200)
@given(st.text('[]{}", abfloat32uint8-.:0123456789\\', max_size=60))
@example('["a", "uint8", [0]]')
def test_any_head(text):
    head = b"[" + text.encode() + b"]"
    read = refused_or_read(len(head).to_bytes(8, "little") + head)
    assert read == (text in ("", '["a", "uint8", [0]]'))


@settings(max_examples=280)
@given(st.sampled_from(MUTATIONS), st.integers(0, 2**32))
def test_messages_that_were_damaged(change, seed):
    import numpy as np

    rng = np.random.default_rng(seed)
    refused_or_read(*change(message.dumps(tree_of(rng)), rng))


def test_heads_that_lie_are_refused():
    u, many = "uint8", range(2**14 + 1)
    heads = {
        "bool": ([["a", "bool", [2]]], b"\1\7"),
        "deep": ([["a/" * 9 + "b", u, [0]]], b""),
        "twice": ([["a", u, [0]]] * 2, b""),
        "tensor and dict": ([["a", u, [0]], ["a/b", u, [0]]], b""),
        "dict and tensor": ([["a/b", u, [0]], ["a", u, [0]]], b""),
        "empty dict that is not": ([["a/", u, [0]], ["a/b", u, [0]]], b""),
        "empty dict of numbers": ([["a/", u, [2]]], b"ab"),
        "torn dict": ([[k, u, [0]] for k in ("a/x", "b", "a/y")], b""),
        "negative twice": ([["a", u, [-1, -2]]], b"ab"),
        "huge and empty": ([["a", u, [0, 10**18]]], b""),
        "overflow": ([["a", "float64", [2**32, 2**32]]], b""),
        "dimensions": ([["a", u, [1] * 33]], b"a"),
        "many": ([[f"{i}", u, [0]] for i in many], b""),
        "long": ([["a" * 9000, u, [0]]], b""),
        "true": ([["a", u, [True]]], b"a"),
        "too few": ([["a", u, [2]]], b"a"),
        "too many": ([["a", u, [2]]], b"abc"),
    }
    assert refused_or_read(joined([["a", u, [2]], ["b/c", "bool", [1]]], b"ab\1"))
    for name, head in heads.items():
        assert not refused_or_read(joined(*head)), name
    for body in (None, "[]", bytearray(10), (2**63).to_bytes(8, "little") + b"[]"):
        assert not refused_or_read(body)


def extra(body):
    """The most bytes that reading a message takes beside it."""
    tracemalloc.start()
    refused_or_read(body)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def test_what_is_refused_takes_no_memory_and_a_message_is_copied_once():
    n = 1_000_000
    for rows in (
        [[f"n{i}", "uint8", [-1]] for i in range(300)],
        [[f"n{i}", "uint8", [n]] for i in range(300)],
        [["a", "float64", [2**39]]],
        [["a", "uint8", [n + 1]]],
    ):
        assert extra(joined(rows, bytes(n))) < n / 2
    head = (2**19).to_bytes(8, "little")
    for text in (
        b"[" * 2**19,
        b"[[" + b"{}," * (2**19 // 3),
        b'[["' + b']], ["' * 2**16,
    ):
        assert extra(head + text.ljust(2**19, b"]")) < 2**22
    body = message.dumps({"a": torch.zeros(n), "b": torch.zeros(n)})
    tracemalloc.start()
    message.loads(body)
    assert 8 * n <= tracemalloc.get_traced_memory()[1] < 8.1 * n
    tracemalloc.stop()


# ---------------------------------------------------------------- what is expected
LIKE = {"w": {"a": torch.ones(2), "b": torch.ones(1, 3)}, "n": torch.tensor(1)}


def test_an_answer_is_taken_in_the_names_shapes_and_types_that_are_expected():
    right = {"n": torch.tensor(5), "w": {"b": torch.ones(1, 3), "a": torch.zeros(2)}}
    got = message.check(right, LIKE, 28)
    assert shown(got) == shown({"w": {"a": torch.zeros(2), "b": torch.ones(1, 3)},
                                "n": torch.tensor(5)})  # fmt: skip
    a = lambda v: right | {"w": right["w"] | {"a": v}}
    for bad in (["w"], None, {}, right | {"m": torch.ones(0)}, right | {"n": {}},
                right | {"n": torch.tensor(5.0)}, right | {"n": torch.ones(1).long()},
                a(torch.ones(3)), a(torch.ones(2, 1)), a(torch.ones(2).double()),
                a(torch.tensor([1, torch.nan])), a(torch.tensor([torch.inf, 1])),
                a(torch.tensor([1, -torch.inf])), a({"c": torch.ones(2)})):  # fmt: skip
        with pytest.raises(ValueError):
            message.check(bad, LIKE, 28)
    with pytest.raises(ValueError, match="limit"):
        message.check(right, LIKE, 27)
