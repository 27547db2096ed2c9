"""The house: which module imports which, and the pictures of it in CONTRIBUTING.md.

    python -m repro.house           writes the blocks of CONTRIBUTING.md between the
                                    marks <!-- districts --> and <!-- rooms -->
    python -m repro.house --trace   a tiny study from cell to ledger; prints, as json,
                                    which rooms it passes

Called by whoever moved a module; tests/repository/test_house.py compares the page with
what this writes, and tests/repository/test_laws.py asks `graph` for the imports that
its laws are about. Sources are read, not imported: the graph costs no torch. Only the
trace runs something.

A module is a file, or a room; a district is a folder of fedlib, or repro, or papers.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import NamedTuple

from fedlib.core import ends

ROOT = Path(__file__).resolve().parents[1]
PLACES = ("fedlib", "repro", "papers")
PAGE = ROOT / "CONTRIBUTING.md"
# Two edges between districts lead upwards. They stay narrow: these modules, no others.
UPWARDS = {
    # the default network of Task.from_arrays
    ("core", "nets"): {("fedlib.core.task", "fedlib.nets")},
    # a federation's file names tasks and settings as the command line does
    ("deploy", "cli"): {
        ("fedlib.deploy.rows", "fedlib.cli.text"),
        ("fedlib.deploy.command", "fedlib.cli.report"),
    },
}
DOORS = ("fedlib", "__main__")  # front doors: they lead to everything, and hold nothing


class Import(NamedTuple):
    """A module asks for another; late: inside a function."""

    source: str
    target: str
    path: str  # of the source, from the root
    line: int
    late: bool


def name_of(path, root=ROOT):
    """ "fedlib/core/tree.py" -> "fedlib.core.tree"; a package has its folder's name."""
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def modules(root=ROOT, places=PLACES):
    """{name: path} of all modules, in order."""
    return {
        name_of(p, root): p for at in places for p in sorted((root / at).rglob("*.py"))
    }


def district(name):
    """ "fedlib.methods.fair.afl" -> "methods"; fedlib itself is "fedlib"."""
    first, *rest = name.split(".")
    return rest[0] if first == "fedlib" and rest else first


def only_for_checkers(node):
    """Is this `if TYPE_CHECKING:`, which never runs?"""
    test = getattr(node, "test", None)
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(test)


def statements(tree, late=False):
    """(import statement, is it inside a function) of a syntax tree."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield node, late
        elif only_for_checkers(node):
            for part in node.orelse:
                yield from statements(part, late)
        else:
            inside = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            yield from statements(node, late or inside)


def asked(node, name, package):
    """The dotted names that an import statement of the module `name` may mean, each
    with the longer one first: `from ..core import engine` is fedlib.core.engine, where
    there is such a module, else fedlib.core.
    """
    if isinstance(node, ast.Import):
        return [(a.name,) for a in node.names]
    base = name.split(".")
    base = base[: len(base) - node.level + package] if node.level else []
    base = ".".join([*base, *filter(None, [node.module])])
    return [(f"{base}.{a.name}", base) for a in node.names]


def known(dotted, among):
    """The longest beginning of a dotted name that is a module, or None."""
    while dotted and dotted not in among:
        dotted = dotted.rpartition(".")[0]
    return dotted or None


def graph(root=ROOT, places=PLACES):
    """Every import of a module by another of the same house [Import], in order."""
    out, among = [], modules(root, places)
    for name, path in among.items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node, late in statements(tree):
            for names in asked(node, name, path.name == "__init__.py"):
                to = next(filter(None, (known(n, among) for n in names)), None)
                if to and to != name:
                    at = path.relative_to(root).as_posix()
                    out.append(Import(name, to, at, node.lineno, late))
    return out


@cache
def here():
    """The graph of this repository, read once."""
    return tuple(graph())


def circle(edges):
    """The names on one circle of the edges {a: {b, ...}}, or []."""
    from graphlib import CycleError, TopologicalSorter

    try:
        TopologicalSorter(edges).prepare()
    except CycleError as e:
        return list(e.args[1])
    return []


def reached(edges):
    """{a: everything that some way leads to from a}."""
    out = {}
    for a in edges:
        seen, todo = set(), list(edges[a])
        while todo:
            b = todo.pop()
            if b not in seen:
                seen.add(b)
                todo += edges.get(b, ())
        out[a] = seen
    return out


def rings(edges):
    """The sets of names that reach each other, largest first; none in a graph without
    a circle.
    """
    to = reached(edges)
    found = {
        frozenset(b for b in to[a] if a in to.get(b, ())) for a in edges if a in to[a]
    }
    return sorted(map(set, found), key=lambda ring: (-len(ring), sorted(ring)))


def edges(imports, by=lambda name: name):
    """{a: {b, ...}} between modules, or what `by` makes of them."""
    out = {}
    for i in imports:
        out.setdefault(by(i.source), set())
        if by(i.source) != by(i.target):
            out[by(i.source)].add(by(i.target))
            out.setdefault(by(i.target), set())
    return out


# ---------------------------------------------------------------- the districts
def lines_of(path):
    """Lines of a file that are not blank."""
    return sum(bool(line.strip()) for line in path.read_text("utf-8").splitlines())


def reduced(edges):
    """The fewest edges with the same ways: an edge a -> c is left out where a -> b and
    b leads to c.
    """
    to = reached(edges)
    return {
        a: {c for c in edges[a] if not any(c in to[b] for b in edges[a] - {c})}
        for a in edges
    }


def districts():
    """The picture: Mermaid, as GitHub draws it."""
    each = {}
    for name, path in modules().items():
        if district(name) not in DOORS:
            each.setdefault(district(name), []).append(lines_of(path))
    up = {k: v for k, v in edges(here(), district).items() if k not in DOORS}
    down = {a: {b for b in up[a] if (a, b) not in UPWARDS} for a in up}
    rank = {a: len(reached(down)[a]) for a in down}
    order = sorted(each, key=lambda a: (-rank.get(a, 0), a))
    out = ["```mermaid", "flowchart TD"]
    for a in order:
        n, size = len(each[a]), round(sum(each[a]), -2)
        files = f"{n} module{'s' * (n != 1)}"
        out.append(f'    {a}["<b>{a}</b><br/>{files}, {size:,} lines"]')
    few = reduced(down)
    out += [f"    {a} --> {b}" for a in order for b in sorted(few.get(a, ()))]
    out += [f"    {a} -.-> {b}" for a, b in UPWARDS if b in up.get(a, ())]
    total = sum(map(sum, each.values()))
    left = sum(map(len, down.values())) - sum(map(len, few.values()))
    return "\n".join(
        [
            *out,
            "```",
            "",
            f"{sum(map(len, each.values()))} modules, {round(total, -2):,} lines, "
            "blank ones not counted. An "
            "arrow: imports, also inside a function. Where a way leads over another "
            f"district, the direct arrow is left out ({left} of them). Dotted: the "
            f"{len(UPWARDS)} edges that lead upwards, each from named modules only.",
        ]
    )


# ---------------------------------------------------------------- the way of a batch
STUDY = """
tier: tiny
fedga:
  tasks:
    synthetic_05_05:
      data: {name: synthetic, alpha: 0.5, beta: 0.5, sizes: [60, 80, 100]}
      network: {name: Linear}
      train: {lr: 0.1}
      run: {rounds: 2}
  studies:
    first:
      synthetic: {title: t, tasks: [synthetic_05_05], seeds: 1, methods: {FedAvg: {}}}
"""


def cell(folder):
    """What a notebook does: ask for a study, make its numbers, hand them in; then the
    ledger's stage.
    """
    from fedlib.study import experiment
    from repro import ledger

    done = experiment.study(
        "fedga",
        "synthetic",
        path=folder / "params.yaml",
        runs=folder / "runs",
        workers=1,
    )
    ledger.publish("fedga-synthetic", done.seeds(), {"Table 5": {}}, folder / "results")
    ledger.main(["--results", str(folder / "results")])


def trace():
    """[(module, the function by which it is entered first)] of a real run."""
    import importlib

    from fedlib.study import sources

    names = {str(p): n for n, p in modules().items()}
    for name in names.values():  # else imports on the way would count
        if district(name) not in (*DOORS, "deploy", "cli", "repro", "papers"):
            importlib.import_module(name)
    importlib.import_module("repro.ledger")
    # as after fingerprints.check: nothing has to be compared first
    sources.released = sources.state
    seen = {}

    def enter(frame, event, _):
        if event == "call" and not frame.f_code.co_name.startswith("<"):
            name = names.get(frame.f_code.co_filename)
            if name and name not in seen and frame.f_code.co_name != "cell":
                seen[name] = frame.f_code.co_qualname

    with tempfile.TemporaryDirectory() as tmp:
        folder = Path(tmp)
        (folder / "params.yaml").write_text(STUDY)
        (folder / "results").mkdir()
        sys.setprofile(enter)
        try:
            cell(folder)
        finally:
            sys.setprofile(None)
    return list(seen.items())


def traced():
    """`trace`, in a process of its own, on the processor: nothing is warm there."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("FEDLIB_")}
    env |= {"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    got = subprocess.run(
        [sys.executable, "-m", "repro.house", "--trace"],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
    )
    if got.returncode:
        raise RuntimeError(f"the trace ended with:\n{got.stderr[-2000:]}")
    return [tuple(room) for room in json.loads(got.stdout.splitlines()[-1])]


def legs(rooms):
    """Rooms in a row of one district: [(district, [its rooms as text])]."""
    out = []
    for name, function in rooms:
        at, room = district(name), ".".join(name.split(".")[1:])
        room = room.removeprefix(f"{at}.")
        if not out or out[-1][0] != at:
            out.append((at, []))
        out[-1][1].append(f"{room}.{function}")
    return out


def turns(way):
    """How often the way comes to a district that it has left before."""
    places = [at for at, _ in way]
    return sum(at in places[:i] for i, at in enumerate(places))


def rooms(found):
    """The picture: a line for each stretch in one district."""
    way = legs(found)
    wide = max(len(at) for at, _ in way)
    out = ["```text", "a notebook's cell"]
    for at, some in way:
        line = f"  {at:{wide}} "
        for room in some:
            if len(line) + len(room) > 100:
                out.append(line.rstrip())
                line = " " * (wide + 3)
            line += f" {room} "
        out.append(line.rstrip())
    return "\n".join(
        [
            *out,
            "a row of results/ledger.csv",
            "```",
            "",
            f"{len(found)} rooms in {len({at for at, _ in way})} districts; the way "
            f"turns back {turns(way)} times to a district that it has left.",
        ]
    )


# ---------------------------------------------------------------- the page
def put(text, mark, lines):
    """The page with these lines between the two marks."""
    new, n = re.subn(
        rf"(<!-- {mark} -->\n).*?(<!-- /{mark} -->)",
        lambda m: f"{m[1]}{lines}\n{m[2]}",
        text,
        flags=re.S,
    )
    if n != 1:
        raise ValueError(
            f"{PAGE.name}: one pair of the marks <!-- {mark} --> and <!-- /{mark} --> "
            f"is needed, it has {n}"
        )
    return new


def page(text):
    """The page as it should be."""
    text = put(text, "districts", districts())
    return put(text, "rooms", rooms(traced()))


def main(words):
    """Write the page, or trace."""
    if words not in ([], ["--trace"]):
        raise ValueError(f"{' '.join(words)}: give --trace or nothing")
    if words:
        print(json.dumps(trace()))
        return
    old = PAGE.read_text(encoding="utf-8")
    new = page(old)
    PAGE.write_text(new, encoding="utf-8")
    print(f"{PAGE.name}: {'as it was' if new == old else 'written anew'}")


if __name__ == "__main__":
    ends.program("python -m repro.house", main)
