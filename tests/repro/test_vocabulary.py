"""One word per thing: the prose of all pages keeps to book/vocabulary.yaml."""

import re

import pytest
import yaml
from where import ROOT

BOOK = ROOT / "book"
RULES = yaml.safe_load((BOOK / "vocabulary.yaml").read_text("utf-8"))
CODE = "python|bash|text|console|yaml|toml|json|mermaid|math|bibliography|eval-rst"
NOT_PROSE = [
    re.compile(r"\A---\n.*?\n---\n", re.S),  # front matter
    re.compile(rf"(?ms)^[ \t]*(`{{3,}})\{{?(?:{CODE})\b.*?^[ \t]*\1`*[ \t]*$"),
    re.compile(
        r"(?m)^[ \t]*(?:`{3,}|:{3,})(?:\{[\w-]+\})?"
    ),  # other fences keep theirs
    re.compile(r"(?m)^[ \t]*:[\w-]+:.*$"),  # options
    re.compile(r"\$\$.*?\$\$", re.S),
    re.compile(r"\$[^$\n]*\$"),
    re.compile(r"(?m)^\([\w-]+\)=$"),  # labels
    re.compile(r"``[^`]*``|(?:\{[\w:-]+\})?`[^`\n]*`"),  # code and roles
    re.compile(r"(?<=\])\([^)\s]*\)"),  # where a link leads
    re.compile(r"(?m)^ *%.*$"),  # comments
]
QUOTED = re.compile(r"“[^”\n]*”|\"[^\"\n]*\"")


def prose(text):
    """What a reader reads as sentences of ours, on one line."""
    for found in NOT_PROSE:
        text = found.sub(" ", text)
    return " ".join(QUOTED.sub(" ", text).split())


def said(value):
    """All texts in a chapter's frame, its keys left out."""
    if isinstance(value, dict):
        return [t for k, v in value.items() if k != "key" for t in said(v)]
    if isinstance(value, list):
        return [t for v in value for t in said(v)]
    return [value] if isinstance(value, str) else []


def pages():
    """{page: its prose, with that of its frame}."""
    out = {}
    for path in sorted(BOOK.glob("*.md")):
        frame, texts = BOOK / "course" / f"{path.stem}.yaml", []
        if frame.exists():
            texts = said(yaml.safe_load(frame.read_text("utf-8")))
        texts = [prose(path.read_text("utf-8")), *map(prose, texts)]
        out[path.stem] = " ".join(texts)
    return out


PAGES = pages()


def uses(text, word):
    """The places of a word that stands alone, each with what is around it."""
    case = 0 if word != word.lower() else re.I
    at = re.finditer(rf"(?<![\w-]){re.escape(word)}(?![\w-])", text, case)
    return [text[max(0, m.start() - 40) : m.end() + 40] for m in at]


def found_in(text, rule):
    for phrase in rule.get("unless", []):
        text = re.sub(re.escape(phrase), " ", text, flags=re.I)
    return [hit for word in rule["avoid"] for hit in uses(text, word)]


@pytest.mark.parametrize("rule", RULES["words"], ids=lambda r: r["term"])
def test_pages_use_one_word_for_a_thing(rule):
    allowed = rule.get("allowed_on", {})
    hits = {p: found_in(t, rule) for p, t in PAGES.items() if p not in allowed}
    assert {p: h for p, h in hits.items() if h} == {}, f"write: {rule['term']}"


@pytest.mark.parametrize("phrase", RULES["phrases"])
def test_phrases_that_were_replaced_do_not_come_back(phrase):
    assert {p: uses(t, phrase) for p, t in PAGES.items() if uses(t, phrase)} == {}


def test_every_rule_says_what_it_means_and_every_exception_why():
    for rule in RULES["words"]:
        assert rule["means"] and rule["avoid"]
        assert set(rule.get("allowed_on", {})) <= set(PAGES), rule["term"]
        assert all(rule.get("allowed_on", {}).values())


def test_prose_is_what_is_read_as_a_sentence():
    page = (
        "# Nodes\n```{note} A word\n:name: parties\nSome samples.\n```\n"
        "```python\nsamples = 3\n```\n`nodes` and $samples$, “his samples”, "
        "{doc}`node`, [a link](parties.md)\n(samples)=\n"
    )
    assert prose(page) == "# Nodes A word Some samples. and , , , [a link]"
    assert uses("DP-SGD, a DP and a dp", "DP") == ["DP-SGD, a DP and a dp"]
    rule = {"avoid": ["private SGD"], "unless": ["differentially private SGD"]}
    assert not found_in("Differentially private SGD", rule)
    assert found_in("one private SGD", rule) == ["one private SGD"]


# letters


def exceptions():
    """(letter, page) of every exception that the page of letters lists."""
    page = (BOOK / "notation.md").read_text("utf-8")
    table = page.partition("(notation-exceptions)=")[2].partition("\n## ")[2]
    table = table.partition("\n(")[0]
    for letter, where in re.findall(r"(?m)^\| \$(.+?)\$ \| (.*?) \|", table):
        for name in re.findall(r"\{doc\}`(\w+)`", where):
            yield letter, name


def test_a_letter_with_another_meaning_stands_in_the_box_of_its_page():
    listed = [*exceptions()]
    assert len(listed) > 20
    for letter, name in listed:
        frame = yaml.safe_load((BOOK / f"course/{name}.yaml").read_text("utf-8"))
        box = " ".join(f"{k}, {v}" for k, v in frame["letters"].items())
        at = rf"(?<![\w\\]){re.escape(letter)}(?![\w])"
        assert re.search(at, box), f"{name} does not list {letter}"
