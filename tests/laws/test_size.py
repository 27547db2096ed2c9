"""How large each part may be: raising a number is a reviewed line."""

import ast
import io
import re
import sys
import tokenize

from where import ROOT

MOST = {  # of Python: lines, and code tokens (no comment, docstring, layout)
    "fedlib/core": (4_100, 31_900),
    "fedlib/nets": (1_671, 12_680),
    "fedlib/methods": (5_401, 35_330),
    "fedlib/pieces": (1_187, 8_360),
    "fedlib/data": (2_790, 20_290),
    "fedlib/measures": (1_140, 7_375),
    "fedlib/plots": (776, 6_125),
    "fedlib/study": (2_190, 18_175),
    "fedlib/deploy": (1_165, 8_500),
    "fedlib/cli": (398, 2_530),
    "fedlib": (20_880, 151_510),
    "repro": (4_940, 35_250),
    "papers": (2_546, 19_325),
    "book/_ext": (2_200, 15_500),
    "benchmarks": (2_167, 16_150),
    "tests": (15_000, 181_600),
}
LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT}
LAYOUT |= {tokenize.DEDENT, tokenize.ENDMARKER}
REFUSALS = 0.1  # of fedlib's lines of code may only refuse
FILES = 16  # of fedlib run inside fedlib.run


def sources(part):
    return [p.read_text("utf-8") for p in (ROOT / part).rglob("*.py")]


def code(text):
    """The code tokens of a source."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    bodies = (n.body for n in ast.walk(ast.parse(text)) if isinstance(n, kinds))
    strings = [b[0] for b in bodies if b and isinstance(b[0], ast.Expr)]
    said = {(s.lineno, s.col_offset) for s in strings}
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return [t for t in tokens if t.type not in LAYOUT and t.start not in said]


def refusing(text):
    """Numbers of the lines that only refuse."""
    out = set()
    for n in ast.walk(ast.parse(text)):
        named = isinstance(n, ast.FunctionDef) and re.match("_?(check|refuse)", n.name)
        last = getattr(n, "body", None)
        guard = isinstance(n, (ast.If, ast.ExceptHandler)) and len(last) <= 3
        guard = (
            guard and isinstance(last[-1], ast.Raise) and not getattr(n, "orelse", 0)
        )
        if named or guard or isinstance(n, ast.Raise):
            out |= {*range(n.lineno, n.end_lineno + 1)}
    return out


def test_every_part_keeps_to_its_size():
    for part, most in MOST.items():
        texts = sources(part)
        now = sum(t.count("\n") for t in texts), sum(len(code(t)) for t in texts)
        for n, limit, what in zip(now, most, ("lines", "code tokens")):
            assert n <= limit, f"{part} has {n} {what} of {limit}: delete first"


def test_few_lines_only_refuse():
    lines = only = 0
    for text in sources("fedlib"):
        own = {i for t in code(text) for i in range(t.start[0], t.end[0] + 1)}
        lines, only = lines + len(own), only + len(own & refusing(text))
    assert only <= REFUSALS * lines, f"{only} of {lines} lines of code only refuse"


def test_a_minibatch_passes_few_files():
    import fedlib
    from fedlib.data import tasks

    seen, root = set(), str(ROOT / "fedlib")

    def look(frame, *_):
        if frame.f_code.co_filename.startswith(root):
            seen.add(frame.f_code.co_filename.removeprefix(root))

    task = tasks.build(SYNTHETIC)
    method, run = fedlib.make("FedAvg", task, lr=0.05), fedlib.run
    run(method, task, 1, progress=False, device="cpu")  # the commit is asked for once
    before = sys.getprofile()
    sys.setprofile(look)
    try:
        run(method, task, 2, progress=False, device="cpu")
    finally:
        sys.setprofile(before)
    assert len(seen) <= FILES, sorted(seen)


SYNTHETIC = {
    "data": {"name": "synthetic", "alpha": 0.5, "beta": 0.5},
    "partition": {"name": "natural"},
    "network": {"name": "Linear"},
    "batch": 10,
}
