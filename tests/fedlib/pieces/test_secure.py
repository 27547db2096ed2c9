"""Secure aggregation: the sum is right, whoever drops out, and nothing else is told."""

import random
import re
import sys
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare, ks_2samp

from fedlib.core.tree import leaves
from fedlib.pieces import secure
from fedlib.pieces.secure import Fixed, Party, total

HIGH = 4.0


def tree(seed, dtype=torch.float64):
    """Numbers in [-HIGH, HIGH], some at its ends."""
    g = torch.Generator().manual_seed(seed)
    draw = lambda *shape: HIGH * (2 * torch.rand(*shape, generator=g, dtype=dtype) - 1)
    end = torch.tensor([HIGH, -HIGH, 0], dtype=dtype)
    return {"w": {"a": draw(3, 4), "b": draw(2)}, "end": end}


def play(xs, threshold, away=(), bits=32, spoil=lambda i, j, s: s, seed=None):
    """One sum of {i: x_i}, as client and server would make it.

    away: {client: the last thing that it does not do any more}. spoil: what becomes of
    a sealed share on its way from i to j.
    """
    away, draw = dict(away), {}
    if seed is not None:
        draw = {"random": random.Random(seed).randbytes}
    ps = {i: Party(i, threshold, bits, b"round 1", **draw) for i in xs}
    order = ["keys", "share", "mask", "unmask"]
    there = lambda i, what: (
        order.index(what) < order.index(away.get(i, "unmask")) or (i not in away)
    )
    known = {i: p.keys() for i, p in ps.items() if there(i, "keys")}
    dealt = {i: ps[i].share(known) for i in known if there(i, "share")}
    masked = {}
    for i in dealt:
        if there(i, "mask"):
            mine = {j: spoil(j, i, dealt[j][i]) for j in dealt}
            masked[i] = ps[i].mask(xs[i], mine)
    shares = {i: ps[i].unmask(masked) for i in masked if there(i, "unmask")}
    sum_ = total(
        masked, {i: known[i] for i in dealt}, shares, threshold, bits, b"round 1"
    )
    return sum_, masked


def inputs(ids, bits=32):
    code = Fixed(bits, HIGH, len(ids))
    trees = {i: tree(i) for i in ids}
    return code, trees, {i: code.encode(t) for i, t in trees.items()}


def plain(trees, ids):
    return [sum(x) for x in zip(*[leaves(trees[i]) for i in ids])]


def near(got, want, error):
    return all(bool(((a - b).abs() <= error).all()) for a, b in zip(leaves(got), want))


# ---------------------------------------------------------------- the sum
@pytest.mark.parametrize("bits", [16, 32, 40])
@pytest.mark.parametrize("what", ["nobody", "keys", "share", "mask", "unmask"])
def test_the_sum_is_that_of_those_who_uploaded(what, bits):
    """Two of five may go, in any phase; who goes after its upload is in the sum."""
    ids, threshold = [3, 7, 8, 20, 21], 3
    code, trees, xs = inputs(ids, bits)
    for gone in [()] if what == "nobody" else [*combinations(ids, 1), (7, 21)]:
        got, masked = play(xs, threshold, dict.fromkeys(gone, what), bits)
        stay = (
            ids if what in ("nobody", "unmask") else [i for i in ids if i not in gone]
        )
        assert sorted(masked) == stay
        assert near(code.decode(got, trees[3]), plain(trees, stay), code.error)
    # the bound is no larger than it must be
    assert code.error < 1.01 * len(ids) * code.step / 2


@pytest.mark.parametrize("what", ["keys", "share", "mask", "unmask"])
def test_below_the_threshold_there_is_no_sum(what):
    _, _, xs = inputs([0, 1, 2])
    did = {
        "keys": "announced keys",
        "share": "dealt out shares",
        "mask": "uploaded",
        "unmask": "gave their shares",
    }[what]
    with pytest.raises(ValueError, match=f"1 clients {did}, and the threshold is 2"):
        play(xs, 2, {0: what, 1: what})


def test_clients_go_in_different_phases():
    ids = list(range(7))
    code, trees, xs = inputs(ids)
    got, _ = play(xs, 4, {0: "keys", 3: "share", 5: "mask"})
    assert near(code.decode(got, trees[0]), plain(trees, [1, 2, 4, 6]), code.error)


@settings(deadline=None, max_examples=25)
@given(
    st.lists(
        st.lists(st.floats(-HIGH, HIGH, width=64), min_size=3, max_size=3),
        min_size=2,
        max_size=4,
    ),
    st.integers(8, 40),
    st.data(),
)
def test_any_numbers_any_dropout(rows, bits, data):
    M = len(rows)
    threshold = M // 2 + 1
    code = Fixed(bits, HIGH, M)
    trees = [{"x": torch.tensor(r, dtype=torch.float64)} for r in rows]
    phases = st.sampled_from(["keys", "share", "mask", "unmask"])
    gone = st.dictionaries(st.integers(0, M - 1), phases, max_size=M - threshold)
    away = data.draw(gone)
    got, _ = play(dict(enumerate(map(code.encode, trees))), threshold, away, bits)
    stay = [i for i in range(M) if away.get(i, "unmask") == "unmask"]
    assert near(code.decode(got, trees[0]), plain(trees, stay), code.error)


# ---------------------------------------------------------------- numbers as integers
@pytest.mark.parametrize("bad", [4.0001, -5, float("nan"), float("inf")])
def test_a_number_out_of_range_is_named(bad):
    x = tree(0)
    x["w"]["a"][1, 2] = bad
    said = rf"w/a\[1, 2\] = {bad:.6g} is outside \[-4, 4\].*3 clients.*larger range"
    with pytest.raises(ValueError, match=re.sub(r"\+", r"\\+", said)):
        Fixed(32, HIGH, 3).encode(x)


def test_what_cannot_be_summed_is_refused():
    with pytest.raises(ValueError, match="'n' is torch.int64"):
        Fixed().encode({"n": torch.tensor(3)})
    with pytest.raises(ValueError, match="100 clients could wrap in 8 bits"):
        Fixed(8, 1.0, 100)
    with pytest.raises(ValueError, match="give 8 to 40 bits"):
        Fixed(64)
    with pytest.raises(ValueError, match="finite range above 0"):
        Fixed(high=0.0)


def test_a_sum_at_the_end_of_the_range_does_not_wrap():
    for clients in (1, 2, 3, 64):
        code = Fixed(8, 1.0, clients)
        for x in (1.0, -1.0):
            one = {"x": torch.tensor([x])}
            s = sum(code.encode(one) for _ in range(clients)) & secure.ones(8)
            assert abs(float(code.decode(s, one)["x"]) - clients * x) <= code.error


def test_types_come_back():
    like = tree(1, torch.float32)
    code = Fixed(32, HIGH, 1)
    back = code.decode(code.encode(like), like)
    assert [x.dtype for x in leaves(back)] == [torch.float32] * 3
    assert near(back, leaves(like), code.error + 2**-22)


# ---------------------------------------------------------------- what is told
def uploads(value, n, seed):
    """Client 0's masked uploads of n equal numbers."""
    code = Fixed(32, HIGH, 3)
    x = {
        i: code.encode({"x": torch.full((n,), v)})
        for i, v in enumerate((value, 1.0, 2.0))
    }
    return play(x, 2, seed=seed)[1][0]


def test_one_upload_alone_is_uniform():
    """Chi-square of each byte, at a kept seed."""
    y = uploads(HIGH, 2**14, seed=5).astype("<u4")
    for k in range(4):
        count = np.bincount((y >> (8 * k)) & 255, minlength=256)
        assert chisquare(count).pvalue > 0.01
    # the same test sees an upload without masks at once
    bare = Fixed(32, HIGH, 3).encode({"x": torch.full((2**14,), HIGH)}).astype("<u4")
    assert chisquare(np.bincount(bare & 255, minlength=256)).pvalue < 1e-6


def test_uploads_of_different_numbers_are_alike():
    a, b = uploads(HIGH, 2**14, seed=6), uploads(-0.25, 2**14, seed=7)
    assert ks_2samp(a.astype(float), b.astype(float)).pvalue > 0.01
    # new masks for the same number
    assert (uploads(0.5, 999, seed=8) != uploads(0.5, 999, seed=9)).mean() > 0.99


def test_with_equal_secrets_any_upload_fits_any_number():
    """Moving a client's number moves its upload by as much: nothing but the sum is
    told."""
    code = Fixed(32, HIGH, 3)
    a, b = uploads(1.0, 5, seed=3), uploads(2.0, 5, seed=3)
    x, y = (code.encode({"x": torch.tensor([v])}) for v in (1.0, 2.0))
    assert ((b - a) & secure.ones(32) == (y - x) & secure.ones(32)).all()


def test_fewer_shares_than_the_threshold_fit_any_secret():
    key = bytes(range(32))
    shares = secure.split(key, 3, 5)
    assert all(secure.join(s) == key for s in combinations(shares, 3))
    assert all(secure.join(s) != key for s in combinations(shares, 2))
    assert len(secure.split(key, 3, 5)[0]) == secure.SHARE


# ---------------------------------------------------------------- who does not play fair
def test_a_share_that_was_changed_on_its_way_is_refused():
    _, _, xs = inputs([0, 1, 2])

    def spoil(i, j, s):
        return s[:-1] + bytes([s[-1] ^ 1]) if (i, j) == (0, 2) else s

    said = "the shares of client 0 for client 2 were changed on the way"
    with pytest.raises(ValueError, match=said):
        play(xs, 2, spoil=spoil)


def parties(n=3, threshold=2, bits=32):
    """After the uploads: (parties, {j: Public}, {i: y_i})."""
    ps = {i: Party(i, threshold, bits) for i in range(n)}
    known = {i: p.keys() for i, p in ps.items()}
    dealt = {i: p.share(known) for i, p in ps.items()}
    x = np.arange(4, dtype=np.uint64)
    up = {i: ps[i].mask(x, {j: dealt[j][i] for j in ps}) for i in ps}
    return ps, known, up


@pytest.mark.parametrize("gone", [None, 2])
def test_a_wrong_share_is_found_out(gone):
    ps, known, up = parties()
    up.pop(gone, None)
    shares = {i: ps[i].unmask(up) for i in (0, 1)}
    assert (total(up, known, shares, 2) == len(up) * np.arange(4)).all()
    whose = 0 if gone is None else gone
    wrong = shares[1][whose]
    shares[1][whose] = wrong[:-1] + bytes([wrong[-1] ^ 1])
    said = rf"the shares of client {whose}'s secret do not fit .* clients \[0, 1\]"
    with pytest.raises(ValueError, match=said):
        total(up, known, shares, 2)


def test_no_client_gives_both_shares_of_another():
    ps, _, up = parties()
    all_came = ps[0].unmask(up)
    assert ps[0].unmask(up) == all_came  # asked twice, answered alike
    with pytest.raises(ValueError, match="told of other uploads before"):
        ps[0].unmask([0, 1])
    with pytest.raises(ValueError, match="that dealt out no shares"):
        ps[1].unmask([0, 1, 9])
    with pytest.raises(ValueError, match="1 clients uploaded"):
        ps[1].unmask([1])


def test_each_step_is_taken_once():
    """Two uploads with the same masks would tell the difference."""
    ps, known, _ = parties()
    with pytest.raises(ValueError, match="has dealt out its shares"):
        ps[0].share(known)
    with pytest.raises(ValueError, match="has uploaded"):
        ps[0].mask(np.zeros(4, np.uint64), ps[0].held)


def test_half_of_the_clients_is_not_enough():
    ps = {i: Party(i, 2) for i in range(4)}
    with pytest.raises(ValueError, match="threshold = 2 of 4 clients: give more than"):
        ps[0].share({i: p.keys() for i, p in ps.items()})


def test_keys_that_are_not_mine_are_refused():
    ps = {i: Party(i, 2) for i in range(3)}
    known = {i: p.keys() for i, p in ps.items()}
    with pytest.raises(ValueError, match="client 0 is listed with keys that are not"):
        ps[0].share(known | {0: known[1]})


def test_without_the_libraries_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "Crypto.Protocol.SecretSharing", None)
    with pytest.raises(ImportError, match=r"pip install 'fedlib\[deploy\]'"):
        Party(0, 2).keys()
