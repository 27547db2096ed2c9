"""The words above and beside a forest plot: what a family of sentences shares, and what
tells each from the others.
"""

import pytest
from where import ROOT


@pytest.fixture
def told_apart(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "book/_ext"))
    from fedeffects import told_apart

    return told_apart


def test_what_all_share_stands_above_wherever_it_is(told_apart):
    title, labels = told_apart(
        [
            "Stored models of A have a higher mean than Local: MNIST, C = 10.",
            "Refreshed models of A have a higher worst 10 % than Local: MNIST, C = 10.",
            "Stored models of A have a higher mean than Local: digits, C = 10.",
        ]
    )
    assert title == "… models of A have a higher … than Local: … C = 10"
    assert labels == [
        "Stored · mean · MNIST",
        "Refreshed · worst 10 % · MNIST",
        "Stored · mean · digits",
    ]


def test_a_title_does_not_end_in_the_middle_of_a_phrase(told_apart):
    title, labels = told_apart(["B has the lowest loss: x", "B has the best mean: x"])
    assert title == "B …: x" and labels == ["has the lowest loss", "has the best mean"]


def test_one_sentence_is_told_with_its_data(told_apart):
    assert told_apart(["A beats B: x."]) == ("A beats B", ["x"])
    assert told_apart(["A beats B."]) == ("A beats B", [""])


def test_sentences_that_share_nothing_are_their_own_labels(told_apart):
    assert told_apart(["A wins", "B loses"]) == ("", ["A wins", "B loses"])
