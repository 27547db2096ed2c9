"""How large each part may be: raising a number is a reviewed line."""

from where import ROOT

LINES = {  # of Python, at most; less is better
    "fedlib/core": 5_600,
    "fedlib/nets": 2_370,
    "fedlib/methods": 6_800,
    "fedlib/pieces": 1_360,
    "fedlib/data": 4_390,
    "fedlib/measures": 1_620,
    "fedlib/plots": 1_740,
    "fedlib/study": 5_100,
    "fedlib/deploy": 3_730,
    "fedlib/cli": 880,
    "fedlib": 33_640,
    "repro": 5_760,
    "papers": 2_740,
    "book/_ext": 3_210,
    "benchmarks": 3_770,
    "tests": 15_000,
}


def test_every_part_keeps_to_its_size():
    for part, most in LINES.items():
        texts = (p.read_text("utf-8") for p in (ROOT / part).rglob("*.py"))
        lines = sum(text.count("\n") for text in texts)
        assert lines <= most, f"{part} has {lines} lines of {most}: delete first"
