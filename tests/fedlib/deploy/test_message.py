"""The decoder of messages: nothing is believed before it is checked."""

import subprocess
import sys

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torture import messages
from torture.messages import joined
from where import ROOT

from fedlib.deploy import message

ONE = joined([["a", "float32", [1]]], bytes(4))


# ---------------------------------------------------------------- what is read
# lengths and texts are drawn anew from the same seeds in every run
same_each_time = settings(derandomize=True, max_examples=300, deadline=None)
names = st.text('ab.é"\\[], ', min_size=1, max_size=6)
tensors = st.builds(
    lambda kind, shape: torch.ones(shape).to(kind),
    st.sampled_from([getattr(torch, k) for k in message.TYPES]),
    st.lists(st.integers(0, 3), max_size=3),
)
inside = st.recursive(
    tensors, lambda v: st.dictionaries(names, v, max_size=4), max_leaves=12
)
trees = st.dictionaries(names, inside, max_size=4)


@same_each_time
@given(trees)
def test_a_tree_comes_back_in_its_order(tree):
    body = message.dumps(tree)
    assert message.dumps(message.loads(body)) == body
    assert repr(message.loads(body, limit=message.size(tree))) == repr(tree)


def test_the_bytes_of_a_message_stay_what_they_are():
    """Steps of clients are checked by the hash of what came down."""
    tree = {"w": {"é": torch.tensor([[1.0, 2.0]])}, "no": {}, "b": torch.tensor(True)}
    head = (
        b'[["w/\\u00e9", "float32", [1, 2]], ["no/", "uint8", [0]], ["b", "bool", []]]'
    )
    numbers = b"\0\0\x80\x3f\0\0\0\x40\x01"
    assert message.dumps(tree) == bytes([len(head)]) + bytes(7) + head + numbers


@pytest.mark.parametrize(
    "tree, why",
    [
        ({"a\nb": torch.ones(1)}, "printable"),
        ({"a" * 513: torch.ones(1)}, "up to 512"),
        ({"a": {"b": {"\x1b": {}}}}, "printable"),
        ({"": torch.ones(1)}, "without '/'"),
        ({str(i): torch.ones(0) for i in range(2**14 + 1)}, "more than 16,384"),
        ({"a": torch.ones([1] * 33)}, "shape"),
    ],
    ids=["line", "long", "control", "empty", "many", "dimensions"],
)
def test_what_nobody_could_read_is_not_sent(tree, why):
    with pytest.raises(ValueError, match=why):
        message.dumps(tree)


# ---------------------------------------------------------------- what is refused
def text(head, numbers=b""):
    """A message with this text as its head."""
    return len(head).to_bytes(8, "little") + head + numbers


BAD = {
    "bool 7": (joined([["a", "bool", [2]]], b"\1\7"), "the bool 7"),
    "empty name": (joined([["", "uint8", [1]]], b"\0"), "no tree"),
    "empty part": (joined([["a//b", "uint8", [1]]], b"\0"), "without '/'"),
    "control character": (joined([["a\x1b", "uint8", [0]]], b""), "printable"),
    "half a character": (joined([["\ud800", "uint8", [0]]], b""), "printable"),
    "number as a name": (joined([[1, "uint8", [0]]], b""), "its head begins"),
    "list as a name": (joined([["a", [], [0]]], b""), "of type"),
    "long name": (joined([["a" * 600, "uint8", [0]]], b""), "up to 512"),
    "deep name": (joined([["a/" * 9 + "b", "uint8", [0]]], b""), "dicts deep"),
    "twice": (joined([["a", "uint8", [0]]] * 2, b""), "twice"),
    "tensor and dict": (
        joined([["a", "uint8", [0]], ["a/b", "uint8", [0]]], b""),
        "a tensor and a dict",
    ),
    "dict and tensor": (
        joined([["a/b", "uint8", [0]], ["a", "uint8", [0]]], b""),
        "twice",
    ),
    "empty dict that is not": (
        joined([["a/", "uint8", [0]], ["a/b", "uint8", [0]]], b""),
        "no tree",
    ),
    "empty dict of numbers": (joined([["a/", "uint8", [2]]], b"ab"), "empty dict"),
    "torn dict": (
        joined([[k, "uint8", [0]] for k in ("a/x", "b", "a/y")], b""),
        "out of order",
    ),
    "unknown type": (joined([["a", "object", [1]]], bytes(8)), "of type 'object'"),
    "negative": (joined([["a", "uint8", [-1]]], b"ab"), r"shape \[-1\]"),
    "negative twice": (joined([["a", "uint8", [-1, -2]]], b"ab"), "shape"),
    "fraction": (joined([["a", "uint8", [2.0]]], b"ab"), "shape"),
    "true": (joined([["a", "uint8", [True]]], b"a"), "shape"),
    "huge": (joined([["a", "uint8", [2**62]]], b"a"), "too large"),
    "huge and empty": (joined([["a", "uint8", [0, 10**18]]], b""), "too large"),
    "overflow": (joined([["a", "float64", [2**32, 2**32]]], b""), "too large"),
    "33 dimensions": (joined([["a", "uint8", [1] * 33]], b"a"), "shape"),
    "no shape": (joined([["a", "uint8"]], b"a"), "its head begins"),
    "brackets": (text(b'[["' + b"[" * 7000 + b"]]]"), "Unterminated"),
    "deep shape": (text(b'[["a", "uint8", ' + b"[" * 7000 + b"]]]"), "brackets"),
    "long entry": (text(b'[["' + b"a" * 9000 + b"]]]"), "an entry of 9,000"),
    "many entries": (
        joined([[f"{i}", "uint8", [0]] for i in range(2**14 + 1)], b""),
        "more than 16,384 tensors",
    ),
    "no entries as a dict": (text(b"{}"), "begins '{}'"),
    "spaces": (text(b'[["a",  "uint8", [0]]]'), "another way"),
    "escaped": (text(b'[["\\u0061", "uint8", [0]]]'), "another way"),
    "not ascii": (text('[["é", "uint8", [0]]]'.encode()), "ascii"),
    "bytes too few": (ONE[:-1], "and its head says"),
    "bytes too many": (ONE + b"x", "and its head says"),
    "head too long": ((2**63).to_bytes(8, "little") + b"[]", "more than 1,048,576"),
    "nothing": (b"", "begins ''"),
    "text": ("[]", "not bytes"),
    "none": (None, "not bytes"),
}


@pytest.mark.parametrize("body, why", BAD.values(), ids=BAD)
def test_nonsense_is_refused(body, why):
    with pytest.raises(ValueError, match=f"this is no message of fedlib: .*({why})"):
        message.loads(body)


def test_the_limit_is_that_of_the_numbers():
    body = message.dumps({"a": torch.ones(100)})
    assert message.loads(body, 400)["a"].sum() == 100
    with pytest.raises(ValueError, match="400 bytes, the limit is 399"):
        message.loads(body, 399)


@same_each_time
@given(st.binary(max_size=60))
@example(ONE)
def test_any_bytes_are_refused_or_written_again_as_they_were(body):
    assert messages.outcome(body, nonsense=False)[0] in ("clean", "accepted")


@same_each_time
@given(st.text('[]{}", abfloat32uint8-.:0123456789\\', max_size=60))
@example('["a", "uint8", [0]]')
def test_any_head_is_refused_or_written_again_as_it_was(inside):
    body = text(b"[" + inside.encode() + b"]")
    assert messages.outcome(body, nonsense=False)[0] in ("clean", "accepted")


def test_mutations():
    """A share of what tests/torture counts."""
    for count in messages.measure(280, seed=1):
        assert count.bad == 0, count.examples
    assert count.n == 14
    # else what is accepted is never looked at
    assert messages.outcome(ONE, nonsense=False)[0] == "accepted"
    assert messages.outcome(ONE, nonsense=True)[0] == "silent"


# ---------------------------------------------------------------- memory
def test_entries_that_ask_for_the_rest_again_and_again_take_nothing():
    body = joined([[f"n{i}", "uint8", [-1]] for i in range(300)], bytes(1_140_000))
    assert messages.extra(body) < 10**6


def test_a_message_is_copied_once():
    body = message.dumps({"a": torch.zeros(1_000_000), "b": torch.zeros(3_000_000)})
    assert 16e6 < messages.extra(body) < 16.1e6


@same_each_time
@given(st.lists(st.integers(0, 2**18), max_size=8), st.integers(-2, 2))
def test_what_is_refused_takes_no_more_than_its_head(sizes, more):
    """Whatever the head says of the rest, which has another size."""
    rows = [[f"n{i}", "uint8", [n]] for i, n in enumerate(sizes)]
    body = joined(rows, bytes(max(0, sum(sizes) + more)))
    whole = sum(sizes) + more == sum(sizes)
    assert messages.extra(body) < 20_000 + (len(body) if whole else 0)


READ = """
import resource, sys
from fedlib.deploy import message
from torture.messages import joined
body = joined([["a", "uint8", [10**8]], ["b", "uint8", [10**8]]], bytes(2 * 10**8))
used = next(int(r.split()[1]) for r in open("/proc/self/status") if "VmSize" in r)
room = used * 1024 + int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_AS, (room, room))
try:
    print(sum(t.numel() for t in message.loads(body).values()))
except MemoryError:
    print("no memory")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, limits memory")
def test_an_operating_system_that_gives_no_more_than_one_copy():
    path = f"{ROOT}:{ROOT / 'tests'}"
    for room, answer in ((230e6, "200000000\n"), (150e6, "no memory\n")):
        done = subprocess.run(
            [sys.executable, "-c", READ, str(int(room))],
            capture_output=True,
            text=True,
            env={"PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
            check=False,
        )
        assert done.stdout == answer, done.stderr[-500:]
