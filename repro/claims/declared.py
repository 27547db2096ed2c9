"""Claims that follow a pattern, declared in papers/<paper>/claims.yaml; read by
repro.claims.report.

The file is a mapping {shared: anything, for anchors; claims: [...]}; each entry is a
family of claims, one for each case of its grid:

    - key: best-{metric}-{dataset}     "fedga-" comes in front, odd letters are replaced
      for:                             the product of these lists; an element that is a
        dataset: [synthetic_0_0]       mapping gives several names at once
        score:
          - {metric: std_acc, what: the lowest standard deviation, artefact: Table 2}
      artefact: "{artefact}"
      text: "FedGA has {what}: {dataset}."
      test: {best: {metric: "{metric}", place: "{dataset}", method: FedGA,
                    rivals: [FedAvg, FedProx]}}
      section: "5.2"                   where the paper says so, and in its own words;
      quote: "FedGA attains ..."       or by: ours
      place: "{dataset}"               whose kind of data stands beside it
      study: ""                        a study that is not the main one
      family: best                     for a key that says too little without its case

A field that an entry does not give is taken from the case, as place: from a grid of
places. A test is {builder: its arguments}, builders being those of
repro.claims.builders; where an argument is a test, or a list or mapping of tests, it is
written the same way. Words in braces are replaced by the case; a value that is one word
in braces keeps its type. Tests that follow no pattern are functions of
papers/<paper>/claims.py: {python: name}, or {python: {name: arguments}} for a function
that builds the test.
"""

import itertools
import re
from dataclasses import fields
from pathlib import Path

from repro import papers
from repro.claims import builders
from repro.claims.values import Claim
from repro.ledger import ResultError, hint, slug

FIELDS = {f.name for f in fields(Claim)} - {"paper"}
OF_TESTS = ("contrary", "every", "throughout", "some")  # take tests, not numbers
OF_NUMBERS = "better near level larger smaller exactly best steadier"
OF_NUMBERS = (*OF_NUMBERS.split(), "ranked", "flat")
BUILDERS = {name: getattr(builders, name) for name in (*OF_NUMBERS, *OF_TESTS)}


def declared(paper, where=None):
    """The claims that papers/<paper>/claims.yaml declares -> list of Claim; none where
    there is no such file. Raises ResultError, which names file and key."""
    path = Path(where or papers.folder()) / paper / "claims.yaml"
    if not path.exists():
        return []
    tree = papers.parsed(path.read_text(encoding="utf-8")) or {}
    if odd := set(tree) - {"shared", "claims"}:
        raise ResultError(f"{path}: unknown part {min(odd)!r}; shared, claims")
    found = [c for e in tree.get("claims", ()) for c in family(paper, e, str(path))]
    keys = [c.key for c in found]
    if twice := [key for key in set(keys) if keys.count(key) > 1]:
        raise ResultError(f"{path}: the key {min(twice)} occurs twice")
    return found


def family(paper, entry, at):
    """The claims of one entry -> Claims, one for each case. Raises ResultError."""
    at = f"{at}, {entry.get('key', 'entry without key')}"
    for case in cases(entry.get("for") or {}):
        try:
            yield claim_of(paper, entry, case)
        except (AttributeError, KeyError, TypeError) as e:
            raise ResultError(f"{at}, {case}: {e}") from None


def claim_of(paper, entry, case):
    """The Claim of one case."""
    said = {k: case[k] for k in FIELDS if k in case}
    said |= {k: filled(v, case) for k, v in entry.items() if k != "for"}
    name = slug(re.sub(r"[-.]?\{\w+\}", "", entry["key"]))
    said["key"] = key_of(paper, *said["key"].split("|"))
    said["family"] = key_of(paper, said.get("family", name))
    said["section"] = str(said.get("section", ""))
    said["test"] = test_of(said["test"], paper)
    return Claim(paper=paper, **said)


def key_of(paper, *names):
    """The names as one that begins with the paper's."""
    return "-".join(filter(None, (paper, *map(slug, names))))


def cases(grid):
    """The product of the lists of a grid -> mappings of names to values."""
    named = lambda name, v: v if isinstance(v, dict) else {name: v}
    spread = ([named(name, v) for v in values] for name, values in grid.items())
    for point in itertools.product(*spread):
        yield {k: v for part in point for k, v in part.items()}


def filled(value, case):
    """A value, lists and mappings too, with the words in braces filled in."""
    if isinstance(value, dict):
        return {filled(k, case): filled(v, case) for k, v in value.items()}
    if isinstance(value, list):
        return [filled(v, case) for v in value]
    if not isinstance(value, str):
        return value
    if word := re.fullmatch(r"\{(\w+)\}", value):
        return case[word[1]]
    return re.sub(r"\{(\w+)\}", lambda m: str(case[m[1]]), value)


def test_of(said, paper):
    """{builder: arguments} -> the test."""
    if not isinstance(said, dict) or len(said) != 1:
        raise TypeError(f"test is {said!r}; give one builder and its arguments")
    ((name, given),) = said.items()
    if name == "python":
        return written(given, paper)
    if name not in BUILDERS:
        raise TypeError(f"no test {name!r}; {hint(name, BUILDERS)}")
    build = BUILDERS[name]
    if name == "throughout":
        return build({k: test_of(t, paper) for k, t in given.items()})
    if name in OF_TESTS:
        tests = given if isinstance(given, list) else [given]
        return build(*(test_of(t, paper) for t in tests))
    return build(**given)


def written(given, paper):
    """A test of papers/<paper>/claims.py: a name, or {name: arguments}."""
    module = papers.module(paper, "claims")
    if isinstance(given, str):
        return getattr(module, given)
    ((name, arguments),) = given.items()
    return getattr(module, name)(**arguments)
