"""What drawings depend on, as a few small files; the stage `gate` of dvc.yaml.

    python -m repro.gate

All else in the pipeline waits for these files and not for folders of code, so that an
edit draws again what it may have changed, and nothing else:

    results/gate/all.txt        moves when numbers may: a version of a unit, or a short
                                run of edited sources that gives other numbers; when
                                what measures, draws or tabulates was edited; the tier
    results/gate/<paper>.txt    then, and when its studies, knobs, stored runs or looks
                                were
"""

import ast
import hashlib
import subprocess
from pathlib import Path

from fedlib.cli.program import program
from fedlib.study import audit, identity
from fedlib.study.studies import parsed, read
from repro import papers

TO = Path("results/gate")
DRAWS = ("fedlib/plots", "fedlib/measures", "fedlib/study", "repro")


def digest(files):
    """One hash of files; of Python without comments and layout."""
    h = hashlib.sha256()
    for file in sorted(files):
        text = file.read_bytes()
        if file.suffix == ".py":
            text = ast.dump(ast.parse(text)).encode()
        h.update(f"{file.as_posix()}\0{len(text)}\0".encode() + text)
    return h.hexdigest()[:16]


def numbers():
    """The versions, and the short runs of this code where they give other numbers than
    those that are noted."""
    moved = ""
    if identity.state() != identity.CHECKED.read_text().strip():
        from goldens.numbers import noted

        print("the code that makes numbers was edited: half a minute of short runs")
        found = (f for u in noted.chosen(()) for f in noted.findings(u, True))
        moved = "".join(f"{f}\n" for f in found)
    versions = Path("fedlib/study", identity.VERSIONS.name)  # alike in every checkout
    fixed = digest([versions, *Path("evidence").glob("*.pt")])
    return f"versions and weights {fixed}\n{moved}"


def of(paper, knobs):
    """What the drawings of a paper read."""
    every, stored = Path("papers", paper).rglob("*"), Path("evidence")
    files = [f for f in every if f.suffix in (".py", ".yaml", ".csv")]
    stored = [*stored.glob(f"{paper}-*/*"), *stored.glob(f"kept/{paper}-*")]
    return f"knobs {knobs}\nfiles {digest(files)}\nruns {digest(stored)}\n"


def turned():
    """The papers whose knobs, or the tier, are not those of the commit."""
    now, words = read("params.yaml"), ["git", "show", "HEAD:./params.yaml"]
    then = parsed(subprocess.run(words, capture_output=True).stdout) or now
    anew = then["tier"] != now["tier"]
    return [p for p in papers.found() if anew or then.get(p) != now.get(p)]


def main() -> None:
    """Write the files; say what is to compute where knobs were turned."""
    tree = read("params.yaml")
    drawing = (f for folder in DRAWS for f in Path(folder).rglob("*.py"))
    every = f"{numbers()}drawn by {digest(drawing)}\ntier {tree['tier']}\n"
    found = {"all": every}
    found |= {p: every + of(p, tree.get(p)) for p in papers.found()}
    TO.mkdir(parents=True, exist_ok=True)
    for name, text in found.items():
        (TO / f"{name}.txt").write_text(text)
    if moved := turned():
        audit.compute(moved, dry_run=True)


if __name__ == "__main__":
    program(main)
