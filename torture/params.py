"""Mistakes in params.yaml and in papers/<paper>/studies.yaml: one change each, of this
repository's own files, at any place, in parts that the tier hides as well.

A study of the paper is planned with the changed files. Where that is accepted, two
judges that do not know the schema ask whether it is nonsense: `hopeless`, which goes by
what stood there before, and one round of a run that the change has altered.
"""

from __future__ import annotations

import copy
import json
import math
import random
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import yaml

from fedlib.core.errors import ClientError
from fedlib.study import compute, studies
from fedlib.study.studies import read

from .count import Count

attempts = 4000  # half in params.yaml, half in studies files
ROOT = Path(__file__).parents[1]
PAPERS = sorted(p.parent.name for p in ROOT.glob("papers/*/studies.yaml"))
NAN, INF = math.nan, math.inf
VALUES = (
    *(None, True, False, 0, -1, 1.5, NAN, INF, -INF, 1e30, 1e-30, 10**12, 2**70),
    *("", "abc", "1e30", "$x", "é", "a.b", [], {}, [1], [NAN], {"a": 1}, [[]], [{}]),
    *({"grid": []}, {"grid": [1, "x"]}, {"tiny": 1}, {"name": 5}, {"name": "SAM"}),
    *({"tiny": 1, "small": [], "paper": {}}, {"pilot": -1}, {"tiny": {}}, [True]),
)
TEXTS = (  # whole files, which are no parameters
    *(b"", b"# nothing\n", b"- tier\n", b"tier\n", b"5\n", b"tier: [\n", b"\x00", b"~"),
    *(b"tier: tiny\n\tx: 1\n", b"tier: tiny\ntier: small\n", b"\xff\xfe\x00", b"{}"),
    *(b"tier: &a [*a]\n", b"? [1]\n: 2\n", b"tier: !!python/name:os.system x\n"),
    *(b"tier: small\n1: 2\n", b"tier: small\nno: 1\n", b"tier: small\nx: 2026-01-01\n"),
    *(
        b"tier: small\n---\ntier: small\n",
        b"tier: *b\n",
        b"%YAML 9.9\n---\ntier: small",
    ),
    *(b"x: " + b"[" * 5000, b'tier: "small', b"tier: small\nfedga: 5\n", b"<<: 5\n"),
    *(b"tier: small\nfedga: {alpha: !!float nan}\n", b"tier: small\nfedga: [1]\n"),
    *(b"tier: 12:30:45\n", b"tier: 0o17\n", b"tier: yes\n", b"tier: Small\n"),
)


# ---------------------------------------------------------------- one change
def places(tree, at=()):
    """Where there is a value: [keys that lead to it]."""
    out = [at] if at else []
    items = tree.items() if isinstance(tree, dict) else ()
    for k, v in enumerate(tree) if isinstance(tree, list) else items:
        out += places(v, (*at, k))
    return out


def inside(tree, at):
    for k in at:
        tree = tree[k]
    return tree


def changed(tree, rng):
    """(the text of a tree with one change, what it was, what stood there, what is)."""
    tree = copy.deepcopy(tree)
    at = rng.choice(places(tree))
    above, key = inside(tree, at[:-1]), at[-1]
    old, how = (
        above[key],
        rng.choice(["put"] * 5 + ["delete", "rename", "twice", "tag"]),
    )
    new = copy.deepcopy(rng.choice(VALUES))
    if how == "put":
        above[key] = new
    elif how == "delete":
        del above[key]
    elif how == "rename" and isinstance(above, dict):
        above[f"{key}x"] = above.pop(key)
    elif how in ("twice", "tag"):
        above[key] = "@mark@"
    text = yaml.safe_dump(tree, sort_keys=False, allow_unicode=True)
    flow = yaml.safe_dump(old, default_flow_style=True, width=10**6).split("\n...")[0]
    flow = flow.strip()
    if how == "twice" and isinstance(above, dict):
        name = yaml.safe_dump(key).split("\n")[0]
        flow = f"{{{name}: {flow}, {name}: 1}}"
    text = text.replace("'@mark@'", flow if how == "twice" else f"!!set {flow}")
    return text, how, at, old, new


def meant(old, values):
    """What stood there: of a reference, "$alpha", what it stands for; of several values
    the first.
    """
    if not (isinstance(old, str) and old[1:] in values and old[0] == "$"):
        return old
    old = values[old[1:]]
    while isinstance(old, (dict, list)) and old:
        old = next(iter(old.values() if isinstance(old, dict) else old))
    return old


NO_NUMBERS = ("{}", "[True]", "{'a': 1}", "{'tiny': 1}")
FREE = {"title", "label", "called", "guest"}  # words; an owner may be a number


def hopeless(how, at, old, new):
    """Whether a change is nonsense wherever it is, by what stood there before."""
    number = isinstance(old, (int, float)) and not isinstance(old, bool)
    if how == "tag" or (how == "twice" and isinstance(at[-1], str)):
        return True
    if how != "put":
        return False
    if new == [{}] and at[-2:-1] == ("methods",):
        return False  # a list of variants, with one: the defaults
    odd = isinstance(new, float) and math.isnan(new)
    if odd or new == [NAN] or new in ([[]], [{}], {"grid": []}, "$x", {"pilot": -1}):
        return True
    if number:
        word = isinstance(new, str) and not ("called" in at and new)
        return isinstance(new, bool) or word or repr(new) in NO_NUMBERS
    if isinstance(old, bool):
        return not isinstance(new, bool) and new is not None
    if isinstance(old, str) and not {*at} & FREE:
        return isinstance(new, (int, float)) and not isinstance(new, bool)
    return False


# ---------------------------------------------------------------- what comes of it
def planned(folder, paper, study, tier):
    return studies.cells(paper, study, folder / "params.yaml", tier)[0]


def judged(folder, paper, before, rng, change=("text", (), None, None)):
    """(outcome, words) of planning all studies of a paper, and of one round."""
    tier, altered = rng.choice(["tiny", "small", "paper"]), []
    try:
        for study, cells in before(paper, tier).items():
            now = planned(folder, paper, study, tier)
            altered += [c for c in now if c not in cells]
    except (ValueError, OSError) as e:
        clear = str(folder) in str(e) and len(str(e)) < 4000
        return ("clean", "") if clear else ("raw", f"no place: {e!r}"[:300])
    except Exception as e:
        return "raw", repr(e)[:300]
    if hopeless(*change):
        return "silent", "planned"
    return one_round(altered, paper, tier)


def one_round(altered, paper, tier):
    """The same of one round of the first run that differs, where its data are here."""
    if not altered or tier == "paper":
        return "accepted", ""
    cell = altered[0]
    engine = json.loads(cell.engine)
    few = engine | {"rounds": min(engine["rounds"], 1), "every": 1}
    try:
        compute.trained(replace(cell, engine=json.dumps(few)))
    except (ValueError, OSError, ClientError):
        return "clean", ""
    except Exception as e:
        return "raw", f"{paper}: {cell.method} on {cell.dataset}: {e!r}"[:300]
    return "accepted", ""


class Plans(dict):
    """{(paper, tier): {study: cells}} of the files as they are, made when asked for."""

    def __missing__(self, key):
        paper, tier = key
        tree = studies.load(ROOT / "params.yaml")[paper]["studies"]
        self[key] = {s: set(planned(ROOT, paper, s, tier)) for s in tree}
        return self[key]

    def __call__(self, *key):
        return self[key]


# ---------------------------------------------------------------- counts
def copied(folder, paper):
    """The files of one paper, in a folder of their own."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "papers" / paper).mkdir(parents=True)
    for name in ("studies.yaml", "seeds.yaml"):
        source = ROOT / "papers" / paper / name
        if source.exists():
            shutil.copy(source, folder / "papers" / paper / name)
    tree = read(ROOT / "params.yaml")
    kept = {k: tree[k] for k in ("tier", paper)}
    (folder / "params.yaml").write_text(yaml.safe_dump(kept), "utf-8")
    return kept


def measure(n, seed):
    """n changes, and a share of the raw files."""
    rows = [Count("params.yaml mutations"), Count("studies files")]
    raw, before = Count("raw YAML files"), Plans()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "files")
        for i in range(n):
            rng = random.Random(f"{seed} {i}")
            paper, row = rng.choice(PAPERS), rows[i % 2]
            tree = values = copied(folder, paper)
            file = folder / "params.yaml"
            if i % 2:
                file = folder / "papers" / paper / "studies.yaml"
                tree = read(file)
            text, how, at, old, new = changed(tree, rng)
            file.write_text(text, "utf-8")
            change = how, at, meant(old, values[paper]), new
            outcome, words = judged(folder, paper, before, rng, change)
            row.add(outcome, f"{seed} {i}: {paper}: {change}: {words}"[:500])
        for k, text in enumerate(TEXTS[: max(3, n // 100)]):
            copied(folder, "fedga")
            file = ("params.yaml", "papers/fedga/studies.yaml")[k % 2]
            (folder / file).write_bytes(text)
            outcome, words = judged(folder, "fedga", before, random.Random(k))
            silent = outcome == "accepted"
            raw.add("silent" if silent else outcome, f"{file}: {text[:60]!r}: {words}")
    return [*rows, raw]
