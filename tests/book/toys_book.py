"""A small book of invented results; one of its pages holds every mistake."""

import io
import re
import sys
from functools import cache
from html import unescape
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import yaml
from where import ROOT

from repro.bookcheck import rows_of

BOOK, EXT = ROOT / "book", ROOT / "book/_ext"
TAG = re.compile(r"eq:([a-z][\w-]*)")
FEDGA = (ROOT / "fedlib/methods/fair/fedga.py").read_text("utf-8")
PLAIN = (ROOT / "fedlib/methods/base/fedavg.py").read_text("utf-8")
EQUATIONS = sorted({*TAG.findall(FEDGA + PLAIN)})
PAGES = "fedbook fedtables fedregimes fedclaims fedlooks fedcode "
EXTENSIONS = (PAGES + "fedfig fedcourse fedmap fedrun fedapi").split()


def extension(name):
    """A module of book/_ext."""
    if str(EXT) not in sys.path:
        sys.path.insert(0, str(EXT))
    return __import__(name)


def lines(text):
    """Lines of cells between bars -> dictionaries, named by the first line."""
    head, *rest = ([c.strip() for c in s.split("|")] for s in text.strip().splitlines())
    return [dict(zip(head, cells, strict=True)) for cells in rest]


LEDGER = """
paper | artefact | dataset | method | setting | metric | reported | ours | ours_lo | ours_hi | n_seeds | rule | verdict | pairs
fedga | Table 5 | synthetic_05_05 | FedAvg | | mean_acc | 64.48 | 63.2 | 62.1 | 64.3 | 3 | best_val | differs |
fedga | Table 5 | synthetic_05_05 | FedAvg | | best_gini | 0.32495 | 0.3 | 0.2 | 0.4 | 3 | best_val | match |
fedga | Table 5 | synthetic_05_05 | FedGA | | mean_acc | 84.00 | 84.123 | 83 | 85.2 | 3 | best_val | match |
fedga | Table 5 | synthetic_05_05 | FedGA | | best_gini | 0.11955 | -0.000001 | | | 3 | best_val | close |
fedga | Table 5 | synthetic_05_05 | FedMGDA+ | | mean_acc | 34.06 | | | | | | not run |
fedga | Table 5 | synthetic_05_05 | FedGA | rule=last | mean_acc | | 80 | | | 3 | last | no comparison |
fedas | Table 9 | CIFAR-10 | FedPer | beta=0.1;P=0.2 | top1_acc_pct | 88.51 | 70 | | | 1 | last | no comparison |
fedas | Table 9 | CIFAR-10 | FedPer | beta=0.1;P=1 | top1_acc_pct | 89.79 | 71 | | | 1 | last | no comparison |
fedas | Table 9 | CIFAR-10 | FedPer | beta=0.5;P=0.2 | top1_acc_pct | 73.71 | 60 | | | 1 | last | no comparison |
fedas | Table 9 | CIFAR-10 | FedAS | beta=0.1;P=0.2;CS=1 | top1_acc_pct | 89.92 | 72 | | | 1 | last | no comparison |
fedas | Table 9 | CIFAR-10 | FedAS | beta=0.1;P=1;CS=1 | top1_acc_pct | 91.03 | 69.5 | | | 1 | last | no comparison |
fedas | Table 9 | CIFAR-10 | FedAS | beta=0.5;P=0.2;CS=1 | top1_acc_pct | 75.93 | 61 | | | 1 | last | no comparison |
fedas | Table 9 | CIFAR-10 | FedAS | beta=0.1;P=0.2;CS=1;rule=last10_mean | top1_acc_pct | | 67 | | | 1 | last10_mean | no comparison |
plgu | Table 1 | | a | | acc_mean_pct | 1 | 1 | | | 1 | last | order differs | 2 of 4 decided pairs agree
plgu | Table 1 | | b | | acc_mean_pct | 1 | 1 | | | 1 | last | setting |
plgu | Table 1 | | c | | acc_mean_pct | 1 | | | | | | not run |"""
CLAIMS = """
key | by | section | quote | holds | size | reason | gain | metric | effect | lo | hi | n_seeds | margin | printed | q | needs | claim
best-a | ours | | | yes | beyond | | | best_gini | 0.0512 | 0.03 | 0.07 | 10 | 0.01 | | 0.0002 | | FedGA is better, best_gini: cifar01.
best-b | paper | 4.2 | It is better. | no | | | excluded | mean_acc | -1.5 | -2 | -1 | 5 | 1 | 3 | 0.9 | | FedGA is better, mean_acc: b.
best-c | paper | | | alike | | | | mean_acc | 0.1 | -0.4 | 0.6 | 20 | 1 | | 0.4 | | FedGA is better, mean_acc: c.
best-d | paper | | | undecided | | | contained | mean_acc | 2 | -90 | 94 | 5 | 1 | 2.5 | 0.3 | 20 | FedGA is better, mean_acc: d.
best-e | paper | | | undecided | | | | mean_acc | 0.5 | -1.5 | 2.5 | 40 | 1 | | 0.3 | 57 | FedGA is better, mean_acc: e.
best-f | paper | | | undecided | | | | mean_acc | 0.5 | | | 3 | 1 | | | | FedGA is better, mean_acc: f.
best-g | paper | | | undecided | | | | | | | | 40 | | | | | FedGA is better, mean_acc: g.
best-h | paper | | | yes | beyond | | exceeded | mean_acc | 4 | 3.5 | 4.5 | 5 | 1 | 2 | 0.3 | | FedGA is better, mean_acc: h.
gate-a | paper | | | not testable | | below the gate | | | | | | | | | | | Nothing is learned.
alone-a | ours | | | not run | | no run of it | | | | | | | | | | | It is lost."""
FILES = {
    "artefacts": """
        paper | artefact | title | status | reason | page | tier | data
        fedga | Figure 9 | A cloud | reduced | sizes of tier tiny | notebooks/fedga/one.html#fedga-figure-9 | |
        fedas | Table 2 | A table | not run | | ledger.html | |""",
    "deviations": """
        key | paper | title | where | methods | paper_says | we_do | why | status | evidence
        fedga-1 | fedga | Exponent | equation 10 | FedGA | The formula $p_i$. | A power. | It fits. | measured |
        fedga-2 | fedga | Splits | | FedAvg | | As published. | | not measured | no other way""",
    "effects": """
        key | paper | dataset | metric | ours_is | other_is | effect | effect_lo | effect_hi | n_seeds | data | tier
        fedga-1 | fedga | synthetic_05_05 | best_gini | FedGA | FedGA sum | -0.0325 | -0.04 | -0.02 | 2 | synthetic | tiny""",
    "facts": """
        key | value | unit | source
        minutes-alpha | 0.71 | min | at tier tiny
        gap | -1234.5 | | nowhere""",
    "bytes": """
        method | direction | name | shape | bytes
        FedAvg | up | w | 10 x 60 | 2400
        FedAvg | up | n | one number | 8
        FedGA | up | w | 10 x 60 | 2400
        FedGA | up | n | one number | 8
        FedGA | up | acc | scalar | 4
        FedAvg | down | w | 10 x 60 | 2400
        FedGA | down | w | 10 x 60 | 2400
        FedPer | up | w | 10 x 30 | 1200
        FedPer | down | w | 10 x 30 | 1200""",
    "verdicts-errors": """
        verdict_of | truth | shape | yes | no | alike | undecided | seeds | wrong
        better | no difference | normal | 0.024 | 0.025 | 0.6 | 0.351 | 18.2 | 0.049
        best of nine | 1 sd | skewed | 0.9 | 0 | 0.02 | 0.08 | 14 | 0""",
    "benchmarks": "case | variant | times_loader\nsmall | loop | 1\nsmall | fedlib | 16\nlarge | loop | 1",
    "gates": """
        paper | dataset | label | tier | n_seeds | chance | local | reference | reference_method | centralised | gate | passes
        fedga | synthetic_0_0 | Synthetic(0, 0) | small | 3 | 20 | 84.7512 | 70 | Uniform | 80 | 0.833333 | yes
        fedas | digits | glyphs | small | 3 | 50 | 40 | 50 | FedAvg | 50 | | no""",
    "regimes": """
        paper | study | dataset | setting | rounds | clients | cohort | participations | epochs | steps_per_pass | steps_per_participation | steps_in_all | last_evaluations | paper_rounds | paper_steps_in_all
        fedas | grid | digits | P=0.2 | 40 | 20 | 4 | 8 | 5 | 140 | 700 | 5600 | 10 | 200 | 28000
        fedas | grid | digits | P=0.4 | 40 | 20 | 4 | 8 | 5 | 140 | 700 | 5600 | 10 | 200 | 28000
        fedas | other | digits | | 40 | 20 | 20 | 40 | 4.777 | 140 | 700 | 5600 | 10 | |""",
}


def results(root):
    """The folder results/ of the small book."""
    import matplotlib.pyplot as plt
    import numpy as np
    import pandas as pd

    from fedlib import plots
    from repro import artefacts, claims, ledger

    tables = {name: lines(text) for name, text in FILES.items()}
    rows = [{"data": "synthetic", "tier": "tiny"} | r for r in lines(LEDGER)]
    named = ("paper", "artefact", "dataset", "method", "metric", "setting")
    for r in rows:
        r["key"] = ledger.key(*(r[c] for c in named))
        r["reported_spread"] = r["reported"] and "1.85"
    known = dict(paper="fedga", artefact="Table 5", evidence="0.1 < 0.2", data="real")
    tables["ledger"] = rows
    tables["claims"] = [known | {"tier": "small"} | r for r in lines(CLAIMS)]
    many = dict(by="ours", holds="yes", metric="mean_acc", q="1", lo="1", hi="9")
    many |= dict(size="small", n_seeds="5", margin="1", tier="tiny") | known
    for i in range(14):
        own = {"key": f"many-{i}", "claim": f"More is more: place {i}."}
        tables["claims"].append(many | own | {"effect": f"{2 + i}"})
    for r in tables["claims"]:
        r["key"] = f"fedga-{r['key']}"
        r["family"] = r["key"].rpartition("-")[0]
    columns = {"ledger": ledger.LEDGER, "claims": claims.COLUMNS}
    columns |= {"effects": claims.EFFECTS, "artefacts": artefacts.COLUMNS}
    columns["deviations"] = claims.DEVIATIONS
    plots.use()
    (root / "results").mkdir()
    for name, table in tables.items():
        frame = pd.DataFrame(table, columns=columns.get(name)).fillna("")
        frame.to_csv(root / f"results/{name}.csv", index=False)
    about = dict(title="Lines rise", alt="Two rising lines.", tier="tiny", seeds=[1, 2])
    about |= dict(data="Synthetic(1, 1), synthetic", stage="fedga@one")
    about |= dict(folder=root / "results/figures/x", notebook=f"{RUN}.ipynb")
    for name in ("lines", "alpha-0", "alpha-1", "fedga-figure-9", "play-alpha", "lost"):
        fig, ax = plt.subplots(figsize=(3, 2))
        ax.plot([1, len(name)], [0, ord(name[-1])], color=plots.STRONG[0])
        if name == "lost":
            about["notebook"] = "notebooks/fedga/lost.ipynb"
        plots.save(fig, name, **about)
        plt.close(fig)
    plots.save_surface("bowl", {"FedGA": np.eye(3)}, axes="abc", folder=about["folder"])


ENDS = "fedga-mean_acc", "fedga-best_gini", "fedmgda-plus-mean_acc"
KEY, GINI, NOT_RUN = (f"fedga-table-5-synthetic_05_05-{end}" for end in ENDS)
ROLES = {  # source -> what a reader sees
    f"{{num}}`{KEY}`": "84.12",
    f"{{num}}`{GINI}`": "0.00000",
    "{num}`fedga-best-b effect`": "−1.5",
    "{num}`fedga-best-d effect .1f`": "2.0",
    "{num}`minutes-alpha .1f`": "0.7\u202fmin",
    "{num}`gap value ,.0f`": "−1,234",
    f"{{verdict}}`{KEY}`": "match",
    "{verdict}`plgu-table-1-a-acc_mean_pct`": "2 of 4 pairs as printed",
    "{verdict}`fedga-best-b`": "no",
    "{rests}`yes, small yes: fedga-best-a fedga-many-1?; no: fedga-best-b`": "yes yes, but small yes, but small yes, but small yes, but small no",
    "{count}`ledger method=FedAvg verdict=differs`": "1",
    "{count}`claims holds=no family=fedga-best`": "1",
    "{count}`bytes method=FEDGA direction=up`": "3",
}
WRONG = {  # what a page can get wrong -> what the warning names
    "{num}`no-such-key`": ["no-such-key"],
    f"{{num}}`{KEY} ours .1q`": [".1q", "format"],
    f"{{num}}`{KEY} rule .1f`": ["rule", "best_val"],
    f"{{num}}`{NOT_RUN}`": [NOT_RUN, "not run"],
    "{count}`ledger paper=nobody`": ["nobody"],
    "{count}`ledger colour=red`": ["colour"],
    "{count}`claims verdict=yes`": ["verdict=yes"],
    "{rests}`yes, no: fedga-best-?`": ["fedga-best-c", "alike", "yes, no"],
    "{rests}`no: fedga-best-z`": ["no claim fedga-best-z"],
    "source} FedGA\n:parts: nothing": ["nothing", "fedga.py"],
    "fig} nothing": ["nothing.svg"],
    "fig} lost": ["notebooks/fedga/lost.ipynb"],
    "play} alfa": ["alfa", "alpha"],
    "source} FedProx": ["eq-fedprox"],
}
DIRECTIVES = r"""
source} FedGA
source} FedGA\n:parts: gini fair
about} FedGA
hyper} FedGA
cite} FedGA
reported} fedga Table 5
reported} fedga Table 5\n:methods: FedGA FedAvg\n:transpose:\n:rules:
reported} fedas Table 9
verdicts}
claimsummary} fedga
forest} fedga-best\nA title of its own.
forest} fedga-alone
leads}\n:title: Side by side\n:panels: mean|worst\n:marks: stated|searched\none: fedga-best-{c,b}{|-1}\ntwo: fedga-best-{d,h}
artefacts} fedga
artefacts}\nfedga: Figure 9: Whom?\nThe end.
deviations} fedga FedGA
sends} FedGA
speeds}
gates}
regimes} fedas
methodsmap}
looks}\n:difference: 2
margins}
errors}
errors} better\n:shape: normal
fig} lines\n:name: fig-lines\nA caption.
fig} lines\nOnce more.
fig} alpha-0\n:name: fig-steps\n:frames: alpha-*\n:label: alpha\n:values: 1 10\n:view: bowl
arrows}\n:start: 1,0.2; -0.6,0.9\n:alt: Two arrows.\nDrag them.
play} alpha\n:name: fig-play\nWords.
plan}
plan} brief
slides}"""
OTHERS = {"ledger": ["ledger}"], "artefacts": ["artefacts}"], "plain": []}
OTHERS |= {"claims": ["claims}", "forest}"], "bibliography": ["bibliography}"]}
OTHERS["fedga_record"] = ["deviations} fedga"]
RUN = "notebooks/fedga/one"
OTHERS[RUN] = []


def fenced(sources):
    return "\n\n".join(s if s[0] == "{" else f"```{{{s}\n```" for s in sources)


def question(i):
    answers = [{"says": f"{i + k}", "because": f"Said of {i + k}."} for k in (1, 0, 7)]
    answers[0]["right"] = True
    return {"ask": f"What is ${i} + 1$?", "answers": answers}


def frame(**changes):
    """What the file of a chapter says."""
    good = dict(goals=["add $1$", "say what `add` does", "stop"], needs=[])
    good |= dict(uses=["numbers", "signs"], letters={"w": "the model", "n": "rows"})
    good["takeaways"] = ["One is $1$.", "Two is more.", "Three.", "Four.", "Five."]
    good["quiz"] = [question(i) for i in range(1, 6)]
    good["credit"] = "{cite:t}`mcmahan2017` averages. " + "It is so. " * 20
    good["reading"] = [{"key": "mcmahan2017", "why": f"Section {i}."} for i in "34"]
    return good | changes


def chapter(title):
    parts = ["opening}", "takeaways}", "quiz}", "credit}", "onward}", "fig} alpha-0"]
    many = "word " * 410
    words = f"# {title}\n\n(sec-{title})=\n## Start\n\n{many}\n\n$$\na = b\n$$"
    exercise = f"````{{exercise}} Try\n:label: ex-{title}-class\n{many}\n````\n"
    return f"{words} (eq-{title})\n\n{fenced(parts)}\n\n{exercise}"


def course_book(root, frames, contents=None):
    """book/ below `root` with these chapters: {page: frame}."""
    book = root / "book"
    (book / "course").mkdir(parents=True)
    for page, said in frames.items():
        (book / f"course/{page}.yaml").write_text(yaml.safe_dump(said, sort_keys=False))
        (book / f"{page}.md").write_text(chapter(page))
    chapters = [{"file": page} for page in contents or frames]
    toc = {"format": "jb-book", "root": "index", "chapters": chapters}
    (book / "_toc.yml").write_text(yaml.safe_dump(toc))
    return book


def write(root):
    """The sources of the small book."""
    quiz = [question(i) | {"see": "eq-one"} for i in range(1, 6)]
    two = frame(needs=["one"], letters={})
    book = course_book(root, {"one": frame(quiz=quiz), "two": two})
    week = dict(title="A", pages=["one", "two"], lab="one", project="Think.")
    week["class"] = "two"
    (book / "course/plan.yaml").write_text(yaml.safe_dump([week]))
    (book / "_assets/play").mkdir(parents=True)
    (book / "_assets/play/alpha.js").write_text("")
    for notebook in (RUN, "notebooks/labs/one", "notebooks/labs/two"):
        (root / notebook).parent.mkdir(parents=True, exist_ok=True)
        (root / f"{notebook}.ipynb").write_text("{}")
    sources = fenced(s.replace("\\n", "\n") for s in DIRECTIVES.split("\n")[1:])
    equations = (f"$$\nx = {i}\n$$ (eq-{tag})\n" for i, tag in enumerate(EQUATIONS))
    roles = "\n\n".join(f"START {source} END" for source in ROLES)
    toc = "\n".join(["one", "two", *OTHERS, "wrong"])
    index = [f"# All\n\n```{{toctree}}\n{toc}\n```", *equations, roles, sources]
    (book / "index.md").write_text("\n\n".join(index))
    (book / "wrong.md").write_text("# Wrong\n\n" + fenced(WRONG))
    for page, parts in OTHERS.items():
        (book / page).parent.mkdir(exist_ok=True, parents=True)
        (book / f"{page}.md").write_text(f"# {page}\n\n" + fenced(parts))
    return book


@cache
def built():
    """The pages {name: HTML}, the warnings, and the folder of the pages."""
    import matplotlib.pyplot as plt
    from sphinx.application import Sphinx

    extension(EXTENSIONS[0])
    tmp = TemporaryDirectory(prefix="book-")
    root, told = Path(tmp.name), io.StringIO()
    with plt.rc_context():
        results(root)
    book = write(root)
    known = "myst_parser sphinx.ext.mathjax sphinxcontrib.bibtex sphinx_proof"
    settings = dict(html_theme="basic", numfig=True, nitpicky=True)
    settings["extensions"] = [*known.split(), "sphinx_exercise", *EXTENSIONS]
    settings["bibtex_bibfiles"] = [str(ROOT / "fedlib/methods/references.bib")]
    settings["myst_enable_extensions"] = ["dollarmath", "colon_fence"]
    settings["exclude_patterns"] = ["_assets", "_ext", "course"]
    settings["html_static_path"] = [str(BOOK / "_assets")]
    settings["html_js_files"] = sorted(f.name for f in BOOK.glob("_assets/*.js"))
    settings["mathjax_path"] = "vendor/tex-svg.js"
    html = root / "html"
    place = (str(book), None, str(html), str(root / "trees"), "html")
    app = Sphinx(*place, settings, status=None, warning=told, freshenv=True)
    app.build()
    name = lambda p: p.relative_to(html).with_suffix("").as_posix()
    whole = lambda p: p.read_text("utf-8") + rows_of(p)
    pages = {name(p): whole(p) for p in html.rglob("*.html")}
    said = re.sub(r"\x1b\[[\d;]*m", "", told.getvalue())
    return SimpleNamespace(pages=pages, said=said, root=html, sources=book, keep=tmp)


def seen(html):
    """What a reader sees: tags away, blanks single."""
    html = re.sub(r"</?(?:td|th|tr|li|dt|dd|p|div|small)\b", r" \g<0>", html)
    return re.sub(r"[ \n]+", " ", unescape(re.sub(r"<[^>]+>", "", html))).strip()


def tables(page, kind):
    """The tables of a class on a page, as HTML."""
    found = rf'<table class="plain {kind}">.*?</table>'
    return re.findall(found, built().pages[page], re.S)
