"""What each directive and role of book/_ext prints, on the small book of toys_book."""

import json
import os
import re
from types import SimpleNamespace

import pytest
import toys_book as toys
from scipy import stats
from toys_book import built, extension, seen, tables
from where import ROOT

from fedlib.measures import verdicts
from fedlib.methods import METHODS
from repro import course


def page(name="index"):
    return built().pages[name]


def figure(name):
    return re.search(rf'<figure[^>]*id="{name}".*?</figure>', page(), re.S)[0]


def test_a_role_prints_what_stands_in_the_file():
    said = re.findall(r"<p>START(.*?)END</p>", page(), re.S)
    for (source, want), got in zip(toys.ROLES.items(), said, strict=True):
        assert seen(got) == want, source
    links = dict(zip(toys.ROLES, said))
    assert f'href="ledger.html#{toys.KEY}"' in links[f"{{num}}`{toys.KEY}`"]
    assert 'href="claims.html#claims-fedga-best-b"' in links["{verdict}`fedga-best-b`"]
    where = links["{count}`ledger method=FedAvg verdict=differs`"]
    assert 'href="ledger.html#?method=FedAvg&amp;verdict=differs"' in where
    counted = links["{count}`claims holds=no family=fedga-best`"]
    assert "href" not in counted  # families cannot be chosen on the page


def test_every_mistake_is_a_warning_that_names_it_and_nothing_else_is():
    told = re.findall(r"(\S+)\.md(?::(\d+))?: WARNING: (.*)", built().said)
    assert {path.rpartition("/")[2] for path, *_ in told} == {"wrong"}
    source, said = (built().sources / "wrong.md").read_text().splitlines(), {}
    for _, at, what in told:
        said.setdefault(source[int(at or len(source) - 1) - 1].strip("`{"), what)
    for mistake, named in toys.WRONG.items():
        what = said.get(mistake.split("\n")[0].strip("`{"), "")
        assert what and not [n for n in named if n not in what], (mistake, what)


def test_a_number_that_has_moved_is_read_anew(tmp_path):
    """By the next build, in this process or another: Sphinx is told of the file."""
    fedbook, told = extension("fedbook"), []
    env = SimpleNamespace(srcdir=tmp_path / "book", note_dependency=told.append)
    env.config = SimpleNamespace(fedbook_results="../results")
    path = (tmp_path / "results/facts.csv").resolve()
    path.parent.mkdir()
    for when, value in enumerate(("1", "2"), 1):
        path.write_text(f"key,value,unit,source\na,{value},,\n")
        os.utime(path, (when, when))
        assert fedbook.rows(env, "facts")[0]["value"] == value
        assert fedbook.find(env, "a") == ("facts", fedbook.rows(env, "facts")[0])
    assert told == [str(path)] * 6 and fedbook.find(env, "b") == (None, {})


def test_numbers_are_printed_as_people_write_them():
    fedbook = extension("fedbook")
    of = fedbook.number
    show = lambda x, field="ours", fmt=None, **row: of({field: x} | row, field, fmt)
    assert show("3.14159") == "3.142" and show("-0.5") == "\u22120.5"
    assert show("23.378", reported="23.38") == "23.38"
    assert show("23.378", reported="23") == "23.4"
    assert show("-0.0001", reported="0.12") == "0.00" and show("inf") == "∞"
    assert show("0.25", "effect") == "+0.25" and show("0.256", "value", ".0%") == "26%"
    row = dict(paper="fedga", data="stand-in", dataset="cifar01")
    said = lambda r: fedbook.prose("all of best_gini: cifar01", r)
    assert said(row | {"data": "real"}) == "all of Gini: CIFAR-10, Dir(0.1)"
    assert said(row) == "all of Gini: skewed labels"  # what ran
    assert fedbook.instead(row) == "skewed labels for CIFAR-10, Dir(0.1)"
    agree = [{"pairs": f"{n} of 3 decided pairs agree"} for n in (1, 3, 2, 0)]
    assert fedbook.pairs([*agree, {"pairs": "none of 3 pairs is decided"}]) == (3, 6)


def test_reported_stands_above_ours_and_the_best_is_bold():
    plain, turned, wide = tables("index", "reported")[:3]
    assert "FedAvg 64.48 ± 1.85 63.20 62.10 to 64.30 differs 0.32495 " in seen(plain)
    bold = lambda table: re.findall(r"<b>([^<]*)</b>", table)
    assert bold(plain) == ["84.00", "84.12", "0.11955", "0.00000"]
    assert "34.06 ± 1.85 – not run" in seen(plain) and "rule=last" not in seen(plain)
    assert seen(turned).startswith("FedGA FedGA rule=last FedAvg mean accuracy 84.00")
    head = "beta = 0.1 beta = 0.5 P = 0.2 P = 1 P = 0.2 FedPer 88.51 ± 1.85 70.00"
    assert seen(wide).startswith(head) and "67" not in seen(wide)
    assert bold(wide) == ["71.00", "89.92", "72.00", "91.03", "75.93", "61.00"]
    assert "data synthetic; tier tiny; seeds 3; rule best val." in seen(page())
    (counts,) = tables("index", "verdicts")
    assert "FedGA 5 0 – 2 match1 close1 differs1 not run" in seen(counts)
    assert seen(counts).endswith("PLGU 2 1 1 of 2 1 not run")  # a setting is none
    (counted,) = tables("index", "summary")
    theirs, ours = seen(counted).split("Our own")
    # sentences, testable, yes (all, beyond the margin, by chance), survive
    assert "FedGA 8 7 1 1 0.2 0 1 yes1 no1 alike4 undecided1 not testable" in theirs
    assert "FedGA 16 15 15 1 0.4 1 15 yes1 not run" in ours
    rows = page("ledger").partition('id="ledger"')[2]  # those that stand apart, too
    assert rows.count("<tr id=") == 14 and "2 of 4 pairs as printed" in rows
    assert 'data-verdict="some pairs as printed"' in rows
    assert "A cloud dvc repro fedga@one" in seen(tables("index", "artefacts")[0])
    links = '<a href="notebooks/fedga/one.html#fedga-figure-9" title="A cloud">Figure 9'
    assert links in page("artefacts")
    card = re.search('<section class="card-paper">(?=<a).*?</section>', page(), re.S)
    said = "A cloud FedGA Whom? no pair is decided by our seeds one what holds"
    assert f"Figure 9: {said}" in seen(card[0])
    (speeds,) = tables("index", "speeds")
    assert seen(speeds) == "small large loop 1 1 fedlib 16"
    assert re.findall(r'rect width="([\d.]+)', speeds) == ["6.2", "6.2", "100.0"]
    (sent,) = tables("index", "sends")
    assert "leaves the device 2.41\u202fkB 4\u202fbytes more than FedAvg" in seen(sent)
    assert "reaches the device 2.4\u202fkB as FedAvg" in seen(sent)
    deviations = re.search(r'<ol class="[^"]*deviations.*?</ol>', page(), re.S)[0]
    assert "Gini −0.0325 (−0.04 to −0.02)" in seen(deviations)
    assert "Splits" not in deviations  # of another method
    want = {  # claims: their verdict, and what would decide them
        "best-a": ("yes +0.0512 [+0.0300, +0.0700]", 'data-survives="yes"'),
        "best-b": ("no gain excluded −1.50 [−2.00, −1.00] points", "excluded"),
        "best-c": ("alike +0.10 [−0.40, +0.60]", 'data-survives="no"'),
        "best-d": ("0.3 20 seeds", 'data-needs="20 seeds"'),
        "best-e": ("more than 40 seeds", 'data-needs="more than 40 seeds"'),
        "best-f": ("at least 5 seeds", 'data-needs="at least 5 seeds"'),
        "best-g": ("undecided not by seeds", 'data-needs="not by seeds"'),
        "best-h": ("yes gain exceeded +4.00", 'data-survives="no"'),
        "gate-a": ("not testable below the gate", 'data-verdict="not testable"'),
        "alone-a": ("not run no run of it", 'data-by="ours"'),
        "many-0": ("yes, but small +2.00 [+1.00, +9.00]", 'data-size="small"'),
    }
    for key, (says, carries) in want.items():
        tag = f'(<tr id="claims-fedga-{key}"[^>]*>)(.*?)</tr>'
        found = re.search(tag, page("claims"), re.S)
        assert says in seen(found[2]) and carries in found[1], key


def test_effects_are_drawn_on_an_axis_of_their_kind():
    figures = re.compile(r'<figure class="forest">.*?</figure>', re.S).findall
    (plot,) = [f for f in figures(page()) if "<b>A title of its own.<" in f]
    assert "<b>FedGA is better" in page("claims")
    assert re.findall(r'class="axis"><span>([^<]+)', plot) == ["points", "Gini"]
    points, gini = re.findall(r"<svg role.*?</svg>", plot, re.S)
    assert "1 yes, 1 no, 1 alike, 3 undecided" in points and "1 yes" in gini
    marks = {m: points.count(f'href="#mark-{m}"') for m in ("printed", "left", "right")}
    assert marks == {"printed": 3, "left": 1, "right": 1}  # -90 to 94 leaves the plot
    assert points.count('class="band"') == 6 and points.count('class="bar"') == 5
    places = [float(x) for x in re.findall(r' (?:x|x1|x2)="([\d.]+)%"', plot)]
    assert 0 <= min(places) and max(places) <= 100
    (many,) = [f for f in figures(page("claims")) if "<b>More is more" in f]
    shown, folded, _ = many.split('<details class="more">')
    assert [s.count('<g class="v-yes">') for s in (shown, folded)] == [12, 2]
    assert re.findall(r"place (\d+)\. yes", seen(shown))[:3] == ["13", "12", "11"]
    fedplot = extension("fedplot")
    row = dict(effect="1", printed="", margin="2", lo="-1", hi="9")
    axis = fedplot.Axis([row])  # 9 is further out than 1.5 x 2, -1 is not
    assert (axis.low, axis.high) == (-2, 2) and not axis.inside(9)
    at = [axis.at(v) for v in (-2, 0, 2, 9)]
    assert at == [3, 50, 97, 97] and 0 in axis.ticks()
    fe = extension("fedeffects")
    r = dict(effect="-0.004", margin="0.01", metric="mean_acc", lo="", holds="yes")
    assert fe.amount(r, "effect") == "\u22120.0040" and fe.amount(r, "lo") == ""
    said = [f"A beats B: {d}." for d in ("X(0, 0)", "X(1, 1), C = 2")]
    assert fe.told_apart(said) == ("A beats B", ["X(0, 0)", "X(1, 1) C = 2"])
    for q, survives in (("0.1", True), ("0.11", False), ("", False)):
        assert fe.survives(r | {"q": q}) == survives, q
        assert fe.survives(r | {"q": q, "holds": "alike"}) == survives, q
        assert not fe.survives(r | {"q": q, "holds": "undecided"})


def test_a_lead_stands_below_the_lead_before_a_search():
    spelled = extension("fedclaims").spelled
    assert spelled("a-{b,c}-{d|e}", "|") == ["a-{b,c}-d", "a-{b,c}-e"]
    drawn = re.search('<figure class="forest leads">.*?</p></figure>', page(), re.S)[0]
    (plot,) = re.findall(r"<svg role.*?</svg>", drawn, re.S)  # the second has no claim
    assert "1 yes, 1 no" in plot and plot.count('<g class="before">') == 2
    marks = [plot.count(f'href="#mark-{m}"') for m in ("first", "yes", "no")]
    assert marks == [2, 2, 0]  # hollow before, full after, whatever the verdict
    says = "one +0.10 [−0.40, +0.60] −1.50 [−2.00, −1.00] no 1.00 5 two +2.00"
    assert says in seen(drawn) and "not drawn: one." in seen(drawn)
    assert 'href="claims.html#claims-fedga-best-b"' in drawn


def test_code_stands_beside_its_equations_and_cards_come_from_the_class():
    link = r'class="eqlink[^"]*" href="\S*#equation-eq-([\w-]+)"[^>]*>(?:# )?\((\d+)'
    place = r'id="equation-eq-([\w-]+)">\s*<span class="eqno">\((\d+)\)'
    links, numbers = {*re.findall(link, page())}, {*re.findall(place, page())}
    tags = {*toys.TAG.findall(toys.FEDGA)}
    assert {tag for tag, _ in links} == tags and links <= numbers
    assert {*toys.EQUATIONS} <= {tag for tag, _ in numbers}
    kind = r'<div class="source highlight-python.*?</pre>'
    whole, parts, *_ = map(seen, re.findall(kind, page(), re.S))
    assert whole.startswith("def gini") and "class FedGA(Delayed):" in whole
    assert "def gini(a):" in parts and "def fair(self, acc):" in parts
    assert "class FedGA" not in parts and "def local" not in parts
    own, shared = map(seen, tables("index", "hyper"))
    assert "alpha 5.0 ≥ 1 searched: 1, 2, 3" in own and "lr 0.1 ≥ 0" in shared
    assert "weight_norm none none, sum" in own and "epochs 1 0 to 1e+06" in shared


FOUND = r"\n## What was (?:found|learned)\n(.*?)\n(?:## |[`:]{3}\{(?:take|admon))"
SAYS = {"undecided": "decided", "small": "small|little|narrow", "not run": "not run"}


@pytest.mark.parametrize(
    "page", "fedga fedas plgu equfl fftgp across which_method".split()
)
def test_a_finding_rests_on_claims_and_says_which_are_open_or_small(page):
    fedbook = extension("fedbook")
    claims, _ = fedbook.read(str(ROOT / "results/claims.csv"), 0)
    text = (toys.BOOK / f"{page}.md").read_text("utf-8")
    part = text if page == "across" else re.search(FOUND, text, re.S)[1]
    for finding in re.findall(r"^(?:\d\. )?\*\*.*", part, re.M):
        says, _, rests = finding.partition("{rests}`")
        assert rests or "not yet a claim" in says, finding
        rows = fedbook.rested(rests.rstrip("`"), claims)
        answers = " ".join(map(fedbook.answer, rows))
        for what, words in SAYS.items():
            assert what not in answers or re.search(words, says), (what, finding)
    other = next(r for r in claims if r["tier"] not in ("", "tiny"))
    wrong = f"nonsense: {other['key']}"
    with pytest.raises(ValueError, match="mend the finding"):
        fedbook.rested(wrong, claims)
    assert fedbook.rested(wrong, claims, [other["paper"]]) == [other]


def test_a_figure_says_where_it_comes_from_and_moves():
    one, steps = figure("fig-lines"), figure("fig-steps")
    assert "Synthetic(1, 1), synthetic · tier tiny · seeds 1, 2" in seen(one)
    assert 'href="notebooks/fedga/one.html"' in one and "dvc repro fedga@one" in one
    assert steps.count('class="frame"') == 2 and steps.count("hidden>") == 1
    ids = re.findall(r' id="([^"]+)"', page())
    assert len({*ids}) == len(ids)  # though a page shows a figure twice
    assert 'data-tips="[[1.0, 0.2], [-0.6, 0.9]]"' in page()
    want = {"index": "figures looks play/play play/alpha slides", "ledger": "ledger"}
    for name, scripts in (want | {"plain": "", "one": "figures quiz"}).items():
        found = re.findall(r"_static/((?:play/)?\w+)\.js", page(name))
        ours = [s for s in found if (ROOT / f"book/_assets/{s}.js").exists()]
        assert sorted(ours) == sorted(scripts.split()), name


def test_gates_regimes_errors_and_looks_are_those_of_the_files():
    (gates,) = tables("index", "gates")
    rows = [seen(r) for r in re.findall(r"<tr><td>.*?</tr>", gates, re.S)]
    assert rows[0] == "Synthetic(0, 0) yes 0.83 20.0 84.8 70.0 Uniform 80.0"
    assert rows[1] == "glyphs digits no – 50.0 40.0 50.0 50.0"
    dots = [float(x) for x in re.findall(r'<circle cx="([\d.]+)"', gates)]
    # from 15 (chance) to 105 (all rows): alone at 64.75 / 60, the federation at 5 / 6
    assert dots == pytest.approx([15 + 90 * 64.7512 / 60, 15 + 90 * 5 / 6], abs=0.06)
    first, second = tables("index", "reported regimes")
    assert "grid: P=0.2, P=0.4" in seen(first) and seen(first).count("glyphs") == 1
    assert '<span class="rep">28,000</span>5,600' in first and "4.8" in seen(second)
    assert '<span class="rep">–</span>8' in first  # a paper that does not say
    every, normal = tables("index", "errors")
    assert "better no difference normal 2.4 2.5 60.0 35.1 4.9 18.2" in seen(every)
    assert "best of nine" in seen(every) and "best of nine" not in seen(normal)
    assert '<span class="v-alike" style="flex:60"></span>' in every
    assert seen(page()).count("at most 4.9 % are wrong") == 2
    assert "gini 0.01 a hundredth" in seen(page())
    found = re.search(r'class="forest looks">.*?json">(.*?)</script>', page(), re.S)
    told = json.loads(found[1])
    assert [x["seeds"] for x in told["looks"]] == [*verdicts.LOOKS]
    t = [stats.t.ppf(1 - verdicts.LEVEL / 2, n - 1) for n in verdicts.LOOKS]
    assert [x["t"] for x in told["looks"]] == pytest.approx(t)
    rows = extension("fedlooks").experiment(0.0, 1.0, 0.001)
    assert [r["n_seeds"] for r in rows] == [*map(str, verdicts.LOOKS)]  # never decided
    rows = extension("fedlooks").experiment(9.0, 1.0, 1.0)
    assert [r["holds"] for r in rows] == ["yes"]


def test_the_map_says_what_a_method_changes_and_sends():
    m = extension("fedmap")
    assert m.changed(METHODS["FedAvg"]) == []
    assert m.changed(METHODS["FedGA"]) != m.changed(METHODS["Ditto"]) != []
    assert m.family(METHODS["FedGA"]) == "fair" and m.family(dict) is None
    sent = "FedAvg up w 100, FedAvg up n 8, FedAvg down w 100, A up w 50, A up n 8, "
    sent += "A up c 46, A up c 50, A down w 50, B up w 100, B up c 8, B down w 100"
    head = "method", "direction", "name", "bytes"
    rows = [dict(zip(head, row.split())) for row in sent.split(", ")]
    assert m.counted(rows, "A", "up") == {"w": 50, "n": 8, "c": 96}
    assert m.traffic(rows, "FedAvg") == ([], "as FedAvg")
    assert m.traffic(rows, "B")[0] == ["c (8\u202fbytes)"]
    assert m.traffic(rows, "C") == ([], "not counted")
    more = ["a part of the model only", "c (96\u202fbytes)"]
    assert m.traffic(rows, "A") == (more, "1.43\u202f× up, 0.50\u202f× down")


def test_frames_of_chapters():
    one, two = page("one"), page("two")
    minutes, words = course.minutes_of(toys.chapter("one"), toys.frame()), seen(one)
    assert f"about {minutes} minutes with the quiz, then 1 exercise" in words
    assert "Read before nothing" in words and 'href="one.html"' in two
    assert "Next: two" in words and "This was the last chapter." in seen(two)
    fields = re.findall(r"<fieldset.*?</fieldset>", one, re.S)
    assert len(fields) == 5
    for i, field in enumerate(fields, 1):
        shown = [a["says"] for a in course.order(toys.question(i))]
        assert [*map(seen, re.findall("(?s)<label>.*?</label>", field))] == shown
        reasons = seen(field[field.index("<details") :])
        assert reasons.count("Not this one.") == 2
        assert f"✓ Right. {i + 1} Said of {i + 1}. See (" in reasons
    week = seen(re.search(r'id="week-1".*?</dl>', page(), re.S)[0])
    assert f"one, two; about {2 * minutes} minutes" in week and "Think." in week
    text = "Who is it, then?\n```{fig} x\n```\n## B\n```{fig} z\nWhy is it so?\n```\n"
    asked = [q for _, q, _ in extension("fedcourse").figures(text)]
    assert asked == ["Who is it, then?", "Why is it so?"]
    # of frames that one slides through the last one is shown
    kept = (built().root / "_images/slides/alpha-0.svg").read_text()
    last = built().sources.parent / "results/figures/x/alpha-1.svg"
    assert kept == extension("fedlight").light(last.read_text())
