"""The book's own directives, on a small book of invented results;
and the checks of a built book.
"""

import csv
import importlib
import json
import math
import re
import shutil
import subprocess
import sys
from html import unescape
from types import SimpleNamespace

import matplotlib.pyplot as plt
import nbformat
import numpy as np
import pytest
import yaml
from scipy import stats
from where import ROOT

from fedlib import plots
from fedlib.measures import verdicts
from fedlib.methods import METHODS
from fedlib.methods.cite import BIBLIOGRAPHY, entries
from repro import artefacts, bookcheck, claims, ledger
from repro.bookbuild import JUPYTER_BOOK

BOOK = ROOT / "book"
FEDGA = (ROOT / "fedlib/methods/fair/fedga.py").read_text()
EQUATIONS = sorted(
    set(
        re.findall(
            r"eq:([a-z][\w-]*)",
            FEDGA + (ROOT / "fedlib/methods/base/fedavg.py").read_text(),
        )
    )
)


FILES = {
    "claims": (
        claims.COLUMNS,
        """
        key | family | by | section | quote | holds | reason | gain | metric | effect | lo | hi | n_seeds | margin | printed | q | needs | claim
        fedga-best | fedga-best | ours | | | yes | | | best_gini | 0.0512 | 0.03 | 0.07 | 10 | 0.01 | | 0.0002 | | FedGA is better, best_gini: cifar01.
        fedga-best-b | fedga-best | paper | 4.2 | It is better. | no | | excluded | mean_acc | -1.5 | -2 | -1 | 5 | 1 | 3 | 0.9 | | FedGA is better, mean_acc: a.
        fedga-best-c | fedga-best | paper | Section 4.2 | | alike | | | mean_acc | 0.1 | -0.4 | 0.6 | 20 | 1 | | 0.4 | | FedGA is better, mean_acc: b.
        fedga-best-d | fedga-best | paper | | | undecided | | contained | mean_acc | 2 | -90 | 94 | 5 | 1 | 2.5 | 0.3 | 20 | FedGA is better, mean_acc: c.
        fedga-best-e | fedga-best | paper | | | undecided | | | mean_acc | 0.5 | -1.5 | 2.5 | 40 | 1 | | 0.3 | 57 | FedGA is better, mean_acc: d.
        fedga-best-f | fedga-best | paper | | | undecided | | | mean_acc | 0.5 | | | 3 | 1 | | | | FedGA is better, mean_acc: e.
        fedga-best-g | fedga-best | paper | | | undecided | | | | | | | 40 | | | | | FedGA is better, mean_acc: f.
        fedga-best-h | fedga-best | paper | | | yes | | exceeded | mean_acc | 4 | 3.5 | 4.5 | 5 | 1 | 2 | 0.3 | | FedGA is better, mean_acc: g.
        fedga-gate | fedga-gate | paper | | | not testable | below the gate | | | | | | | | | | | Nothing is learned.
        fedga-lost | fedga-lost | paper | | | not run | no run of it | | | | | | | | | | | It is lost.""",
    ),
    "verdicts-errors": (
        "verdict_of truth shape looks yes no alike undecided seeds wrong".split(),
        """
        verdict_of | truth | shape | looks | yes | no | alike | undecided | seeds | wrong
        better | no difference | normal | 5 10 20 40 | 0.024 | 0.025 | 0.6 | 0.351 | 18.2 | 0.049
        best of nine | 1 sd | skewed | 5 10 20 40 | 0.9 | 0 | 0.02 | 0.08 | 14 | 0""",
    ),
    "artefacts": (
        artefacts.COLUMNS,
        """
        paper | artefact | title | status | reason | page
        fedga | Figure 9 | A cloud | reduced | sizes of tier tiny | notebooks/fedga/one.html#fedga-figure-9
        fedas | Table 2 | A table | not run | | ledger.html""",
    ),
    "deviations": (
        claims.DEVIATIONS,
        """
        key | paper | title | where | methods | paper_says | we_do | why | status | evidence
        fedga-1 | fedga | Exponent | equation 10 | FedGA | The formula $p_i$ is lost. | A power. | It fits. | measured |
        fedga-2 | fedga | Splits | | FedAvg | | As published. | | not measured | no other way""",
    ),
    "effects": (
        claims.EFFECTS,
        """
        key | paper | dataset | metric | ours_is | other_is | effect | effect_lo | effect_hi | n_seeds | data | tier
        fedga-1 | fedga | synthetic_05_05 | best_gini | FedGA | FedGA sum | -0.0325 | -0.04 | -0.02 | 2 | synthetic | tiny""",
    ),
    "facts": (
        ["key", "value", "unit", "source"],
        """
        key | value | unit | source
        minutes-alpha | 0.71 | min | at tier tiny""",
    ),
    "bytes": (
        ["method", "direction", "name", "shape", "bytes"],
        """
        method | direction | name | shape | bytes
        FedAvg | up | w | 10 x 60 | 2400
        FedGA | up | w | 10 x 60 | 2400
        FedGA | up | acc | scalar | 4
        FedAvg | down | w | 10 x 60 | 2400
        FedGA | down | w | 10 x 60 | 2400""",
    ),
}
RAN = """
    method | setting | metric | reported | ours | ours_lo | ours_hi | n_seeds | tier | verdict
    FedAvg | | mean_acc | 64.48 | 63.2 | 62.1 | 64.3 | 3 | tiny | differs
    FedAvg | | best_gini | 0.32495 | 0.3 | 0.2 | 0.4 | 3 | tiny | match
    FedGA | | mean_acc | 84.00 | 84.123 | 83 | 85.2 | 3 | tiny | match
    FedGA | | best_gini | 0.11955 | -0.000001 | | | 3 | tiny | close
    FedMGDA+ | server_lr=0.01 | mean_acc | 34.06 | 33 | | | 3 | tiny | order holds
    FedMGDA+ | | mean_acc | 34.06 | | | | | | not run
    FedGA | rule=last | mean_acc | | 80 | | | 3 | tiny | no comparison"""

NUMBERS = (
    "match",
    "close",
    "differs",
    "order holds",
    "order differs",
    "order open",
    "setting",
    "no comparison",
    "not run",
)
CLAIMS = ("yes", "no", "alike", "undecided", "not testable", "not run")
GAINS = ("gain contained", "gain excluded", "gain exceeded")
WHERE = dict(
    paper="fedga", artefact="Table 5", evidence="0.1 < 0.2", data="real", tier="tiny"
)


ALONE = dict(
    key="fedga-alone",
    family="fedga-alone",
    artefact="Table 6",
    claim="It is lost.",
    by="ours",
    holds="not run",
)


def long_family():
    """Fourteen claims of one family, more than a forest plot shows at once."""
    known = dict(family="fedga-many", by="ours", holds="yes", metric="mean_acc", q="1")
    width = dict(lo="1", hi="9", n_seeds="5", margin="1")
    return [
        dict(
            key=f"fedga-many-{i}",
            claim=f"More is more: place {i}.",
            effect=str(2 + i / 4),
        )
        | known
        | width
        for i in range(14)
    ]


AXES = """
    method | setting | reported | ours
    FedPer | beta=0.1;P=0.2 | 88.51 | 70
    FedPer | beta=0.1;P=1 | 89.79 | 71
    FedPer | beta=0.5;P=0.2 | 73.71 | 60
    FedAS | beta=0.1;P=0.2;CS=1 | 89.92 | 72
    FedAS | beta=0.1;P=1;CS=1 | 91.03 | 69.5
    FedAS | beta=0.5;P=0.2;CS=1 | 75.93 | 61
    FedAS CS only | beta=0.1;P=0.2;CS=1 | 89.05 | 68
    FedAS | beta=0.1;P=0.2;CS=1;rule=last10_mean | | 67
    FedPer | beta=0.1;P=0.2;rule=last10_mean | | 67.5"""


def lines(text):
    """Lines of cells between bars -> list of dicts by the first line."""
    head, *rest = [
        [cell.strip() for cell in line.split("|")] for line in text.strip().splitlines()
    ]
    return [dict(zip(head, cells, strict=True)) for cells in rest]


def table(path, columns, rows):
    """Rows (dicts) as a csv with all columns."""
    with open(path, "w", newline="") as f:
        out = csv.DictWriter(f, columns)
        out.writeheader()
        out.writerows({c: r.get(c, "") for c in columns} for r in rows)


def key(method, metric, setting=""):
    return ledger.key(
        "fedga", "Table 5", "synthetic_05_05", method, metric, setting=setting
    )


def ledger_rows():
    """Table 5 of FedGA with invented numbers,
    and 1,500 further rows as the real ledger has.
    """
    rows = []
    for r in lines(RAN):
        ran = (
            dict(data="synthetic", rule="best_val", device="cpu", minutes="0.25")
            if r["ours"]
            else {}
        )
        where = dict(
            paper="fedga", artefact="Table 5", model="linear", dataset="synthetic_05_05"
        )
        rows.append(
            r
            | ran
            | where
            | dict(
                key=key(r["method"], r["metric"], r["setting"]),
                reported_spread=r["reported"] and "1.85",
            )
        )
    for r in lines(AXES):
        where = dict(
            paper="fedas",
            artefact="Table 9",
            model="CNN",
            dataset="CIFAR-10",
            metric="top1_acc_pct",
        )
        rule = r["setting"].partition("rule=")[2] or "best_round_pooled"
        ran = dict(
            n_seeds="1",
            tier="tiny",
            data="stand-in",
            rule=rule,
            verdict="no comparison",
        )
        rows.append(
            r
            | where
            | ran
            | dict(
                key=ledger.key(
                    *(
                        ({} | r | where)[c]
                        for c in (
                            "paper",
                            "artefact",
                            "dataset",
                            "method",
                            "metric",
                            "setting",
                        )
                    )
                )
            )
        )
    rows += [
        dict(
            key=f"plgu-{v}",
            paper="plgu",
            artefact="Table 1",
            method=v,
            metric="acc_mean_pct",
            verdict=v,
            pairs="3 of 4 decided pairs agree" if v == "order holds" else "",
        )
        for v in NUMBERS
    ]
    return rows + [
        dict(
            key=f"fedas-{i}",
            paper="fedas",
            artefact=f"Table {i % 5}",
            dataset="CIFAR-100",
            method=f"m{i % 17}",
            setting=f"beta=0.{i}",
            metric="top1_acc_pct",
            reported=f"{i / 7:.2f}",
            verdict="not run",
        )
        for i in range(1500)
    ]


def results(root):
    """The folder results/ of the small book -> the last figure."""
    (root / "results").mkdir()
    table(
        root / "results/ledger.csv",
        list(dict.fromkeys([*ledger.LEDGER, "pairs"])),
        ledger_rows(),
    )
    for name, (columns, text) in FILES.items():
        rows = lines(text)
        if name == "claims":
            rows = [WHERE | r for r in [*rows, *long_family(), ALONE]]
        table(root / f"results/{name}.csv", columns, rows)
    plots.use()
    about = dict(
        title="Lines rise",
        alt="Two rising lines.",
        data="Synthetic(1, 1), synthetic",
        tier="tiny",
        seeds=[1, 2],
        notebook="notebooks/fedga/one.ipynb",
        stage="fedga@one",
        folder=root / "results/figures/fedga-one",
    )
    for name in ("lines", "alpha-01", "alpha-02", "fedga-figure-9"):
        fig, ax = plt.subplots()
        plots.curves_with_interval(
            [0, 1, 2], {"FedAvg": [[1, 2, 3]], "FedGA": [[2, 3, 4]]}, ax
        )
        saved = plots.save(fig, name, **about)
    plots.save_surface("bowl", {"FedGA": np.eye(3)}, folder=about["folder"])
    return saved


GOOD = r"""# All directives

Ours {num}`KEY`, reported {num}`KEY reported .0f`, both {num}`KEY both`, gap {num}`KEY difference`,
from {num}`KEY interval .2f`; {verdict}`KEY`, {verdict}`fedga-best`, {verdict}`match`,
{num}`fedga-1 status`, {num}`minutes-alpha .1f`, tiny gini {num}`GINI`.
Of {count}`ledger paper=fedga` numbers {count}`ledger paper=fedga verdict="not run"` was not run;
{count}`claims holds=no` of {count}`claims family=fedga-best` claims fail.
{rows}`What differs <method=FedAvg dataset=synthetic_05_05 verdict=differs>` {cite:p}`liu2025fedga`.

EQUATIONS

::::{div} pair
:::{div}
Text
:::
```{source} FedGA
```
::::

```{source} FedGA
:parts: gini fair
```

```{about} FedGA
```
```{hyper} FedGA
```
```{reported} fedga Table 5
```
```{reported} fedga Table 5
:metrics: best_gini mean_acc
:methods: FedGA FedAvg
:transpose:
:rules:
```
```{reported} fedas Table 9
```
```{reported} fedas Table 9
:settings: beta=0.1 P=0.2
:methods: FedAS "FedAS CS only"
```
```{reported} fedas Table 9
:settings: rule=last10_mean
```
```{verdicts} fedga
```
```{verdicts} plgu
```
```{claims} fedga Table 6
```
```{claims} fedga Table 5
```
```{claimsummary} fedga
```
```{forest} fedga-alone
```
```{artefacts} fedga
```
```{deviations} fedga FedGA
```
```{sends} FedGA
```
```{cite} FedGA
```
```{fig} lines
:name: fig-lines
A caption with {num}`KEY`, see {numref}`fig-steps`.
```
```{fig} lines
Once more.
```
```{exercise} One
:label: ex-one
```
````{solution} ex-one
:class: dropdown
Yes.
````
```{exercise} Two
:label: ex-two
```
```{prf:theorem}
:label: thm-one
It is so.
```
```{fig} alpha-01
:name: fig-steps
:frames: alpha-*
:label: alpha
:values: 1 10
:view: bowl
```
```{arrows}
:start: 1,0.2; -0.6,0.9
:alt: Two arrows at more than a right angle.
Drag them.
```
"""
OWN_PAGES = ("ledger.md", "claims.md", "bibliography.md")
LOOKS = """# Which number?

```{looks}
:difference: 2
Dots are seeds.
```
```{margins}
```
```{errors}
```
"""
KEY, GINI, NOT_RUN = (
    key("FedGA", "mean_acc"),
    key("FedGA", "best_gini"),
    key("FedMGDA+", "mean_acc"),
)
# what a page can get wrong -> what the build says
WRONG = [
    ("{num}`no-such-key`", "the key 'no-such-key' is in none"),
    (f"{{num}}`{KEY} ours .1q`", "a format such as .1f"),
    (f"{{num}}`{KEY} rule .1f`", "not a number; leave the format out"),
    (f"{{num}}`{NOT_RUN}`", f"ours of '{NOT_RUN}' is empty (not run)"),
    ("{verdict}`matches`", "neither a key nor one of match"),
    ("{count}`ledger paper=nobody`", "no row of ledger has paper=nobody"),
    ("{count}`ledger colour=red`", "ledger has no column colour"),
    ("{rows}`all <method=FedNobody>`", "no row of the ledger has method=FedNobody"),
    ("```{reported} fedga Table 99\n```", "the ledger has no rows of fedga Table 99"),
    (
        "```{reported} fedga Table 5\n:metrics: speed\n```",
        "has no metric speed; it has best_gini, mean_acc",
    ),
    (
        "```{reported} fedas Table 9\n:settings: beta=0.7\n```",
        "has no setting beta=0.7; it has CS=1, P=0.2, P=1, beta=0.1",
    ),
    (
        "```{reported} fedas Table 9\n:settings: beta=0.5 P=1\n```",
        "no row has all of these options",
    ),
    ("```{claims} nobody\n```", "{claims}: no row for nobody"),
    ("```{claimsummary} nobody\n```", "{claimsummary}: no claim of nobody"),
    ("```{forest} nobody\n```", "{forest}: no effect to draw for 'nobody'"),
    ("```{errors} nothing\n```", "{errors}: no row for nothing"),
    ("```{deviations} fedga FedFV\n```", "{deviations}: no row for fedga FedFV"),
    ("```{sends} FedFV\n```", "bytes.csv has no method 'FedFV'"),
    (
        "```{source} FedNobody\n```",
        "no method and no module 'FedNobody'; fedlib has FedAvg",
    ),
    ("```{source} FedGA\n:parts: nothing\n```", "fedga.py has no nothing"),
    ("```{hyper} FedNobody\n```", "{hyper}: no method 'FedNobody'"),
    ("```{fig} nothing\n```", "results/figures has no nothing.svg"),
    ("```{fig} alpha-01\n:frames: alpha-*\n:values: 1\n```", "1 values for 2 frames"),
    ("```{fig} lines\n:view: nothing\n```", "no nothing.view.json"),
    (
        "```{fig} lost\n```",
        "names a notebook that is no page of the book: notebooks/fedga/lost.ipynb",
    ),
    ("```{arrows}\n:start: 1,2\n:alt: x\n```", "{arrows} needs :start:"),
    ("```{source} FedProx\n```", "code names an unknown equation eq-fedprox"),
]


def small_book(root, page):
    """A book below `root` with the real extensions, assets, configuration and ledger
    page -> the folder book/.
    """
    saved = results(root)
    (root / "book").mkdir()
    (root / "fedlib/methods").mkdir(parents=True)
    shutil.copy(BIBLIOGRAPHY, root / "fedlib/methods")
    for name in ("_config.yml", *OWN_PAGES):
        shutil.copy(BOOK / name, root / "book" / name)
    (root / "book/which_number.md").write_text(LOOKS)
    (root / "book/_ext").symlink_to(BOOK / "_ext")
    shutil.copytree(
        BOOK / "_assets", root / "book/_assets", ignore=shutil.ignore_patterns("vendor")
    )
    (root / "book/_toc.yml").write_text(
        yaml.safe_dump(
            {
                "format": "jb-book",
                "root": "intro",
                "chapters": [
                    *({"file": page.removesuffix(".md")} for page in OWN_PAGES),
                    {"file": "which_number"},
                    {"glob": "notebooks/fedga/*"},
                ],
            }
        )
    )
    (root / "book/intro.md").write_text(page)
    (root / "book/notebooks/fedga").mkdir(parents=True)
    shown = {"text/html": saved._repr_html_()}
    cell = nbformat.v4.new_code_cell(
        "plots.save(...)",
        execution_count=1,
        outputs=[nbformat.v4.new_output("execute_result", shown, execution_count=1)],
    )
    kernel = {
        "kernelspec": {
            "name": "python3",
            "display_name": "Python 3",
            "language": "python",
        },
        "language_info": {"name": "python"},
    }
    nbformat.write(
        nbformat.v4.new_notebook(
            cells=[nbformat.v4.new_markdown_cell("# One"), cell], metadata=kernel
        ),
        root / "book/notebooks/fedga/one.ipynb",
    )
    return root / "book"


def build(book):
    """Build it as the pipeline does -> (exit code, output)."""
    done = subprocess.run(
        [
            *JUPYTER_BOOK,
            "build",
            str(book),
            "--warningiserror",
            "--nitpick",
            "--keep-going",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=ROOT,
    )
    return done.returncode, done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    equations = "\n\n".join(
        f"$$\nx = {i}\n$$ (eq-{label})" for i, label in enumerate(EQUATIONS)
    )
    page = (
        GOOD.replace("KEY", KEY).replace("GINI", GINI).replace("EQUATIONS", equations)
    )
    book = small_book(tmp_path_factory.mktemp("good"), page)
    code, said = build(book)
    assert code == 0, said[-3000:]
    html = book / "_build/html"
    return SimpleNamespace(
        root=html,
        intro=(html / "intro.html").read_text(),
        ledger=(html / "ledger.html").read_text(),
        claims=(html / "claims.html").read_text(),
        looks=(html / "which_number.html").read_text(),
    )


def text_of(html):
    """What a reader sees: tags away, blanks single."""
    return " ".join(
        unescape(
            re.sub(
                r"<[^>]+>",
                "",
                re.sub(r"</?(?:td|th|tr|li|dt|dd|p|div|small)\b", r" \g<0>", html),
            )
        ).split()
    )


def test_a_built_book_has_nothing_to_complain_about(built):
    assert bookcheck.check(built.root) == []
    assert bookcheck.main([str(built.root)]) == 0


def test_numbers_come_out_as_they_should(built):
    seen = text_of(built.intro)
    assert (
        "Ours 84.12, reported 84, both 84.00 reported, 84.12 ours match, gap +0.12, "
        "from 83.00 to 85.20; match"
    ) in seen
    assert "yes, match, measured, 0.7 min, tiny gini 0.00000." in seen
    assert "Of 7 numbers 1 was not run; 1 of 8 claims fail." in seen
    assert f'<a class="num" href="ledger.html#{KEY}"' in built.intro
    assert (
        'href="ledger.html#?method=FedAvg&amp;dataset=Synthetic%280.5%2C+0.5%29&amp;'
        'verdict=differs"'
    ) in built.intro


def test_reported_stands_above_ours_and_the_best_is_bold(built):
    plain, turned, *_ = re.findall(
        r'<table class="plain reported">.*?</table>', built.intro, re.S
    )
    assert text_of(plain).split()[:4] == ["mean", "accuracy", "Gini", "FedAvg"]
    assert "64.48 ± 1.85 63.20 62.10 to 64.30 differs" in text_of(plain)
    assert (
        "<b>84.12</b>" in plain
        and "<b>84.00</b>" in plain
        and "<b>63.20</b>" not in plain
    )
    assert "FedMGDA+ server_lr=0.01" in text_of(plain) and "rule=last" not in plain
    assert "rule=last" in turned and text_of(turned).index("Gini") < text_of(
        turned
    ).index("mean accuracy")
    assert "Ours: data synthetic; tier tiny; seeds 3; rule best val." in text_of(
        built.intro
    )


def test_parts_of_a_setting_make_columns_where_they_vary_within_a_method(built):
    tables = re.findall(r'<figure class="tab"[^>]*>.*?</figure>', built.intro, re.S)
    wide, narrow, honest = (text_of(t) for t in tables if "FedAS, Table 9" in t)
    head = (
        "beta = 0.1 beta = 0.5 P = 0.2 P = 1 P = 0.2 FedPer 88.5170.00 no comparison "
        "89.7971.00 no comparison 73.71"
    )
    # CS: once, in the name of a method
    assert head in wide and wide.count("CS") == 1 and "67" not in wide
    assert "CIFAR-10, beta = 0.1, P = 0.2, CS = 1: reported above, ours below" in narrow
    assert (
        "P = 1" not in narrow
        and "FedPer" not in narrow
        and narrow.count("89.0568.00") == 1
    )
    assert (
        "P = 0.2: ours with the 95 %" in honest
        and "rule last10 mean" in honest
        and "–" not in honest
    )
    assert honest.index("FedAS 67.00") < honest.index("FedPer 67.50")


def test_code_stands_beside_its_equations(built):
    link = (
        r'<a class="eqlink[^"]*" href="(#equation-[\w-]+)" title="Equation (\d+)">(?:# '
        r")?\((\d+)\)</a>"
    )
    links = re.findall(link, built.intro)
    assert {to.removeprefix("#equation-eq-") for to, *_ in links} == set(
        re.findall(r"eq:([a-z][\w-]*)", FEDGA)
    )
    for to, number, shown in links:
        assert (
            number
            == shown
            == str(1 + EQUATIONS.index(to.removeprefix("#equation-eq-")))
        )
    shown = [
        text_of(b)
        for b in re.findall(
            r'<div class="source highlight-python.*?</pre>', built.intro, re.S
        )
    ]
    assert "class FedGA(Delayed):" in shown[0] and "from __future__" not in shown[0]
    assert (
        "def gini(a):" in shown[1]
        and "def fair(self, acc):" in shown[1]
        and "class FedGA" not in shown[1]
    )


def test_hyper_parameters_and_card_come_from_the_class(built):
    seen = text_of(built.intro)
    for f in METHODS["FedGA"].__dataclass_fields__.values():
        if f.metadata.get("what"):
            assert f.metadata["what"] in seen and f.metadata["source"] in seen
    assert (
        METHODS["FedGA"].card.title in seen and "validation rows on each client" in seen
    )
    assert "@misc{liu2025fedga," in seen


def test_what_is_sent_is_compared_with_fedavg(built):
    seen = text_of(
        re.search(r'<table class="plain sends">.*?</table>', built.intro, re.S)[0]
    )
    assert (
        "leaves the device" in seen
        and "4 bytes more than FedAvg" in seen
        and "2.4 kB as FedAvg" in seen
    )


def test_deviations_show_their_measured_effect(built):
    seen = text_of(built.intro)
    assert "Gini −0.0325 (−0.04 to −0.02)" in seen and "FedGA against FedGA sum" in seen
    assert "Splits" not in seen  # of another method
    assert 'id="deviations-fedga-2"' in built.ledger


def test_claims_are_printed_with_the_books_names(built):
    assert "FedGA is better, Gini: CIFAR-10, Dir(0.1)." in text_of(built.intro)
    assert 'href="claims.html#claims-fedga-best"' in built.intro


def claim_rows(built):
    """Rows of the page of claims -> {key: (the tag, its text)}."""
    found = re.findall(
        r'(<tr id="claims-([\w-]+)"[^>]*>)(.*?)</tr>', built.claims, re.S
    )
    return {key: (tag, text_of(inner)) for tag, key, inner in found}


@pytest.mark.parametrize(
    ("key", "says", "carries"),
    [
        ("best", "yes +0.0512 [+0.0300, +0.0700]", 'data-survives="yes"'),
        ("best-b", "no gain excluded −1.50 [−2.00, −1.00]", 'data-gain="excluded"'),
        ("best-c", "alike +0.10 [−0.40, +0.60]", 'data-verdict="alike"'),
        ("best-d", "0.3 20 seeds", 'data-needs="20 seeds"'),
        ("best-e", "more than 40 seeds", 'data-needs="more than 40 seeds"'),
        ("best-f", "at least 5 seeds", 'data-needs="at least 5 seeds"'),
        ("best-g", "undecided not by seeds", 'data-needs="not by seeds"'),
        ("best-h", "yes gain exceeded +4.00", 'data-survives="no"'),
        ("gate", "not testable below the gate", 'data-verdict="not testable"'),
        ("lost", "not run no run of it", 'data-verdict="not run"'),
    ],
)
def test_a_claim_says_its_verdict_and_what_would_decide_it(built, key, says, carries):
    tag, seen = claim_rows(built)[f"fedga-{key}"]
    assert says in seen and carries in tag


def test_a_claim_names_its_sentence_or_that_it_is_ours(built):
    rows = claim_rows(built)
    assert "“It is better.” Section 4.2" in rows["fedga-best-b"][1]
    assert "paper +3.00" in rows["fedga-best-b"][1]
    assert "ours, not the paper's" in rows["fedga-best"][1]


def test_claims_are_counted_apart_from_ours(built):
    counted = re.search(r'<table class="plain summary">.*?</table>', built.intro, re.S)
    theirs, ours = text_of(counted[0]).split("Our own")
    # sentences, testable, decided, yes, by chance, survive
    assert "FedGA 9 7 3 1 0.2 0 1 yes" in theirs
    assert "FedGA 16 15 15 15 0.4 1 15 yes1 not run" in ours


def test_settings_are_no_results(built):
    bars = re.findall(r'<table class="plain verdicts">.*?</table>', built.intro, re.S)
    seen = text_of(bars[1])
    assert "Table 1 8 1 1 match1 close" in seen and "1 setting" not in seen
    row = re.search(r'<tr id="plgu-order holds">.*?</tr>', built.ledger, re.S)[0]
    assert "order holds 3 of 4 decided pairs agree" in text_of(row)


def plots_of(page):
    """Forest plots of a page -> {title: markup}."""
    found = re.findall(r'<figure class="forest">.*?</figure>', page, re.S)
    return {re.search(r"<b>(.*?)</b>", f)[1]: f for f in found}


def test_points_and_gini_have_axes_of_their_own(built):
    plot = plots_of(built.intro)["FedGA is better"]
    assert (
        built.intro.count('id="mark-yes"') == built.claims.count('id="mark-yes"') == 1
    )
    assert re.findall(r'class="axis"><span>([^<]+)', plot) == ["points", "Gini"]
    points, gini = re.findall(r"<svg role.*?</svg>", plot, re.S)
    assert "1 yes, 1 no, 1 alike, 3 undecided" in points and "1 yes" in gini
    assert points.count('href="#mark-printed"') == 3
    # -90 to 94 would leave nothing to see of the others
    assert points.count('href="#mark-left"') == points.count('href="#mark-right"') == 1
    assert points.count('class="margin"') == 6 and points.count('class="bar"') == 5
    places = [float(x) for x in re.findall(r' (?:x|x1|x2)="([\d.]+)%"', plot)]
    assert 0 <= min(places) and max(places) <= 100
    table = text_of(plot[plot.index("As a table") :])
    assert "undecided 20 seeds +2.00 points [−90.00, +94.00] 1.00 +2.50 5" in table


def test_a_long_family_folds(built):
    plot = plots_of(built.claims)["More is more: place"]
    shown, folded, _ = re.split(r'<details class="more">', plot)
    assert "2 more" in folded and "place 13" in shown
    assert shown.count('<g class="v-yes">') == 12
    assert folded.count('<g class="v-yes">') == 2


def test_a_family_without_an_interval_is_no_mistake(built):
    """At tier tiny no family has one; a family that nobody knows stops the build."""
    assert "fedga-alone" in built.claims
    assert built.intro.count("No interval to draw: too few seeds here.") == 1
    assert "It is lost." not in "".join(plots_of(built.claims).values())


def test_every_verdict_has_a_colour_and_a_sign():
    """Never by colour alone; what other data says is never red."""
    css = (BOOK / "_assets/fedbook.css").read_text()
    colour, sign = {}, {}
    for selectors, body in re.findall(r"^([^{}\n]*)\{([^{}]*)\}", css, re.M):
        for name in re.findall(r"\.v-([\w-]+)", selectors):
            if mark := re.search(r'content: "(\S+) "', body):
                sign[name] = mark[1]
            elif (c := re.search(r"--c: var\(--fig-(\w+)\)", body)) and (
                "data-theme" not in selectors
            ):
                colour[name] = c[1]
    for group in (NUMBERS, CLAIMS, GAINS):
        names = [ledger.slug(v) for v in group]
        assert set(names) <= colour.keys()
        assert len({sign[n] for n in names}) == len(names)
    red = {n for n, c in colour.items() if c == "c2"}
    assert red & set(map(ledger.slug, (*NUMBERS, *CLAIMS, *GAINS))) == {"differs", "no"}


def test_what_verdicts_mean_is_said_for_each_of_them():
    sys.path.insert(0, str(BOOK / "_ext"))
    try:
        fedbook = importlib.import_module("fedbook")
    finally:
        sys.path.pop(0)
    assert tuple(fedbook.NUMBERS) == NUMBERS
    assert tuple(fedbook.CLAIMS) == CLAIMS and tuple(fedbook.GAINS) == GAINS


def test_shares_of_errors_are_printed_and_drawn(built):
    table = re.search(r'<table class="plain errors">.*?</table>', built.looks, re.S)[0]
    seen = text_of(table)
    assert "better no difference normal 2.4 2.5 60.0 35.1 4.9 18.2" in seen
    assert "at most 4.9 % are wrong" in text_of(built.looks)
    assert '<span class="v-alike" style="flex:60"></span>' in table
    assert "gini 0.01 a hundredth of the way" in text_of(built.looks)


def test_pages_name_the_looks_that_are_declared():
    first, *others, last = map(str, verdicts.LOOKS)
    page = (BOOK / "which_number.md").read_text()
    assert f"if that is not enough at {', '.join(others)} and {last};" in page
    words = (BOOK / "glossary.md").read_text()
    assert f"decided: {', '.join([first, *others])} or {last}, and nowhere" in words


def told(built):
    """What the build hands to looks.js."""
    found = re.search(r'<script type="application/json">(.*?)</script>', built.looks)
    return json.loads(found[1])


def test_looks_get_their_quantiles_from_scipy(built):
    assert [x["seeds"] for x in told(built)["looks"]] == list(verdicts.LOOKS)
    for x in told(built)["looks"]:
        want = stats.t.ppf(1 - verdicts.LEVEL / 2, x["seeds"] - 1)
        assert math.isclose(x["t"], want)
    still = re.search(
        r'<svg role="img" aria-label="One experiment.*?</svg>', built.looks
    )
    assert "5 seeds" in still[0] and "yes" in still[0]


def normal(seed, n):
    """The numbers that looks.js draws: mulberry32, Box and Muller."""

    def uniform():
        nonlocal seed
        seed = (seed + 0x6D2B79F5) % 2**32
        t = (seed ^ seed >> 15) * (1 | seed) % 2**32
        t ^= (t + (t ^ t >> 7) * (61 | t)) % 2**32
        return ((t ^ t >> 14) % 2**32) / 2**32

    return [
        math.sqrt(-2 * math.log(1 - uniform())) * math.cos(2 * math.pi * uniform())
        for _ in range(n)
    ]


@pytest.mark.full
@pytest.mark.skipif(not shutil.which("chromium"), reason="needs chromium")
def test_looks_says_in_a_browser_what_the_library_says(built):
    page = subprocess.run(
        [
            *("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"),
            *("--virtual-time-budget=5000", f"file://{built.root}/which_number.html"),
        ],
        capture_output=True,
        text=True,
        timeout=300,
    ).stdout
    d = 2 + 2 * np.array(normal(1, verdicts.LOOKS[0]))
    s, holds = verdicts.span(d), verdicts.verdict(verdicts.single(d, 1.0))
    signed = lambda x: f"{x:+.2f}".replace("-", "−")
    assert f"look at 5: {signed(s.lo)} to {signed(s.hi)}, {holds}" in page
    assert "Run 200 experiments" in page and "One experiment:" not in page


def test_a_figure_says_where_it_comes_from(built):
    figure = re.search(r'<figure[^>]*id="fig-lines".*?</figure>', built.intro, re.S)[0]
    seen = text_of(figure)
    assert (
        "Lines rise." in seen
        and "Synthetic(1, 1), synthetic · tier tiny · seeds 1, 2" in seen
    )
    assert 'href="notebooks/fedga/one.html"' in figure and "dvc repro fedga@one" in seen
    assert (
        "var(--fig-c2, #a83200)" in figure
        and 'aria-label="Two rising lines."' in figure
    )
    steps = re.search(r'<figure[^>]*id="fig-steps".*?</figure>', built.intro, re.S)[0]
    assert (
        steps.count('class="frame"') == 2
        and 'data-values="1 10"' in steps
        and '"kind":"surface"' in steps
    )


def test_the_ledger_page_is_a_plain_table_of_every_row(built):
    rows = ledger_rows()
    body = re.search(r'<table id="ledger".*?<tbody>(.*?)</tbody>', built.ledger, re.S)[
        1
    ]
    assert re.findall(r'<tr id="([^"]+)">', body) == [r["key"] for r in rows]
    head = re.findall(r'data-name="(\w+)"', built.ledger)
    assert head == [
        "paper",
        "artefact",
        "dataset",
        "method",
        "metric",
        "reported",
        "ours",
        "seeds",
        "data",
        "tier",
        "verdict",
    ]
    assert (built.root / "ledger.html").stat().st_size < bookcheck.HEAVY_PAGES[
        "ledger.html"
    ]


def test_pages_carry_only_the_scripts_they_need(built):
    def scripts(page):
        return set(
            re.findall(
                r'<script[^>]* src="(?:\.\./)*_static/([\w.-]+)',
                (built.root / page).read_text(),
            )
        )

    assert "ledger.js" in scripts("ledger.html") and "ledger.js" not in scripts(
        "intro.html"
    )
    assert "ledger.js" in scripts("claims.html")
    assert "looks.js" in scripts("which_number.html") - scripts("claims.html")
    assert "figures.js" in scripts("intro.html") and "figures.js" not in scripts(
        "bibliography.html"
    )
    assert not any(
        "thebe" in s for page in ("intro.html", "ledger.html") for s in scripts(page)
    )
    assert (built.root / "_static/vendor/tex-svg.js").stat().st_size > 1_000_000


@pytest.mark.full
def test_the_build_names_every_mistake(tmp_path):
    book = small_book(
        tmp_path, "# Mistakes\n\n" + "\n\n".join(source for source, _ in WRONG)
    )
    lost = tmp_path / "results/figures/fedga-one/lines.json"
    for end in (".svg", ".json"):
        text = (
            lost.with_suffix(end)
            .read_text()
            .replace("fedga/one.ipynb", "fedga/lost.ipynb")
            .replace('"lines"', '"lost"')
        )
        lost.with_name("lost").with_suffix(end).write_text(text)
    code, said = build(book)
    assert code != 0
    assert [words for _, words in WRONG if words not in said] == []


def test_the_palette_is_the_same_in_python_and_css():
    css = (BOOK / "_assets/fedbook.css").read_text()
    for theme, head in enumerate(["html", r'html\[data-theme="dark"\]']):
        block = re.search(rf"^{head} \{{(.*?)\}}", css, re.M | re.S)[1]
        colours = {name: pair[theme] for name, pair in plots.PALETTE.items()}
        assert dict(re.findall(r"--fig-(\w+): (#[0-9a-f]{6})", block)) == colours


def test_own_style_and_scripts_name_no_other_host():
    for path in (BOOK / "_assets").glob("*.*"):
        text = path.read_text().replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"(?:https?:)?//[a-z0-9-]+\.[a-z]", text), path.name


def test_every_paper_behind_a_method_is_in_the_bibliography():
    known = entries(BIBLIOGRAPHY.read_text())
    assert {cls.card.bibkey for cls in METHODS.values() if cls.card} <= set(known)


# the checks themselves

FINE = (
    '<p id="a">x</p><a href="#a">a</a> <a href="other.html#b">b</a> '
    '<a href="https://doi.org/10.1/2">doi</a><a '
    'href="ledger.html#?q=x">l</a><svg role="img" aria-label="x"></svg><svg '
    'aria-hidden="true"></svg><img src="_static/x.png" alt="x"><script>const '
    'x = "http://www.w3.org/2000/svg";</script>'
)
BROKEN = {
    '<script src="https://cdn.example.org/x.js"></script>': "<script src> loads",
    '<link rel="stylesheet" href="//fonts.example.org/x.css">': "<link href> loads",
    '<img src="https://example.org/x.png" alt="x">': "<img src> loads",
    ('<img srcset="https://example.org/x.png 2x" src="_static/x.png" alt="x">'): (
        "<img srcset> loads"
    ),
    '<iframe src="https://example.org"></iframe>': "<iframe src> loads",
    "<style>@import 'https://example.org/x.css';</style>": "<style> loads",
    '<p style="background: url(https://example.org/x.png)">': "<p style> loads",
    '<script>fetch("https://example.org/x.json")</script>': "<script> loads",
    '<img src="_static/x.png">': "has no alt text",
    '<img src="_static/x.png" alt=" ">': "has no alt text",
    "<svg></svg>": "<svg> has no role=img",
    '<svg role="img"></svg>': "<svg> has no role=img",
    '<p id="twice"></p><p id="twice"></p>': "'twice' is used 2 times",
    '<a href="nothing.html">x</a>': "leads to no file",
    '<a href="other.html#nothing">x</a>': "leads to no place on other.html",
    '<a href="#nothing">x</a>': "leads to no place on page.html",
    "x" * (bookcheck.HEAVY + 1): "bytes, more than",
}


def pages(root, body):
    (root / "_static").mkdir()
    (root / "_static/x.png").write_bytes(b"")
    (root / "_static/x.css").write_text(
        "/* https://example.org */ p { background: url(data:image/png;base64,AA) }"
    )
    (root / "page.html").write_text(body)
    (root / "other.html").write_text('<p id="b"></p>')
    (root / "ledger.html").write_text("<p></p>")
    return root


def test_a_fine_page_passes(tmp_path, capsys):
    assert bookcheck.check(pages(tmp_path, FINE)) == []
    assert (
        bookcheck.main([str(tmp_path)]) == 0
        and "nothing to complain about" in capsys.readouterr().out
    )


@pytest.mark.parametrize("body", BROKEN, ids=lambda b: b[:48])
def test_a_broken_page_is_named(tmp_path, body, capsys):
    (found,) = bookcheck.check(pages(tmp_path, FINE + body))
    assert BROKEN[body] in found and found.startswith("page.html")
    assert (
        bookcheck.main([str(tmp_path)]) == 1 and BROKEN[body] in capsys.readouterr().err
    )


def test_a_style_sheet_that_loads_from_elsewhere_is_named(tmp_path):
    pages(tmp_path, FINE)
    (tmp_path / "_static/x.css").write_text(
        "@font-face { src: url('https://example.org/x.woff2') }"
    )
    assert bookcheck.check(tmp_path) == [
        "_static/x.css: loads https://example.org/x.woff2 from another host"
    ]


def test_no_book_no_verdict(tmp_path, capsys):
    assert (
        bookcheck.main([str(tmp_path)]) == 1
        and "build the book first" in capsys.readouterr().err
    )


PROSE = [*sorted(BOOK.glob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]


@pytest.mark.parametrize("page", PROSE, ids=lambda p: p.name)
def test_what_a_page_imports_is_there(page):
    """In examples of code: `from fedlib.x import y`."""
    found = re.findall(
        r"^(?:>>> )?from ((?:fedlib|repro)[\w.]*) import ([\w, ]+)$",
        page.read_text(encoding="utf-8"),
        re.M,
    )
    for module, names in found:
        for name in names.split(", "):
            name = name.split(" as ")[0]
            known = importlib.import_module(module)
            if not hasattr(known, name):
                importlib.import_module(f"{module}.{name}")
