"""The interactive pieces of the book print the library's numbers."""

import re
import shutil
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from play import behaves, browser, directive, picture, piece  # noqa: F401
from where import ROOT

from fedlib import Task
from fedlib.core.clients import cohort_of
from fedlib.core.engine import run
from fedlib.measures import metrics
from fedlib.methods import METHODS
from fedlib.methods.make import make
from repro import bookcheck

START = [0.4, 0.25, 0.5, 0.15, 0.45, 0.3, 0.4, 0.35]


COURSE = [0.58, 0.4, 0.38, 0.31, 0.27, 0.24, 0.17, 0.19, 0.16, 0.23, 0.16, 0.14, 0.14]
COURSE += [0.12, 0.11, 0.12, 0.14, 0.12, 0.14, 0.12]
KNOWN = {"trigger": dict(x=COURSE, W=5, theta=0.01, trigger="rolling")}


@pytest.mark.parametrize("name", ["lorenz", "alpha", "driftline", "cohort", "trigger"])
def test_a_piece_behaves(piece, name):  # noqa: F811
    behaves(piece, name, known=KNOWN.get(name))


def measures(a):
    """The table of the piece lorenz, by fedlib."""
    return {
        "mean": f"{metrics.mean_acc(a):.3f}",
        "standard deviation": f"{metrics.std_acc(a):.3f}",
        "worst 10 %": f"{metrics.worst(a):.3f}",
        "Gini": f"{metrics.gini(a):.3f}",
        "Jain": f"{metrics.jain(a):.3f}",
    }


def test_lorenz_by_keyboard_and_mouse(piece):  # noqa: F811
    lorenz = piece("lorenz")
    read = lambda: {k: v for k, (v,) in lorenz.rows().items()}  # noqa: E731
    assert read() == measures(START)
    lorenz.keys("accuracy of client 1", "ArrowUp", times=7)
    lorenz.keys("accuracy of client 4", "PageDown", "End", "ArrowDown")
    a = np.array([0.47, *START[1:]])
    a[3] = 0.99
    assert read() == measures(a)
    lorenz.drag("accuracy of client 2", 0, -60)
    a[1] = lorenz.value("accuracy of client 2")
    assert a[1] > 0.4 and read() == measures(a)
    lorenz.drag("accuracy of client 3", 0, 900)  # below the axis: 0
    a[2] = 0
    assert lorenz.value("accuracy of client 3") == 0 and read() == measures(a)
    assert f"Gini {metrics.gini(a):.3f}" in lorenz.said()


@pytest.mark.parametrize("alpha", [4, 1, 7.5])
def test_alpha_gives_the_weights_of_fedga(piece, alpha):  # noqa: F811
    it = piece("alpha")
    if alpha != 4:
        it.set("α", alpha)
    rows = it.rows()
    p = METHODS["FedGA"](alpha=float(alpha)).fair(torch.tensor([1, 0.5, 0]).double())
    for i in range(3):
        assert rows[f"weight of client {i + 1}"][2] == f"{p[i]:.3f}"
    w = float(p[1] + 3 * p[2])
    losses = [(w - b) ** 2 / 2 for b in (0, 1, 3)]
    assert rows["new model"] == ["0.500", "1.333", f"{w:.3f}"]
    assert rows["largest loss"][2] == f"{max(losses):.3f}"
    assert rows["which is that of"][2] == f"client {1 + int(np.argmax(losses))}"


@dataclass(frozen=True)
class Line:
    """One weight; the loss of a row (b, c) is c (w - b)^2 / 2."""

    K, D, head, layers, buffers = 2, 1, ("w",), (("w",),), ()

    def init(self, seed, dtype=torch.float64):
        return {"w": torch.ones(1, dtype=dtype)}

    def each(self, w, b):
        return b.x[:, 1] * (w["w"] - b.x[:, 0]) ** 2 / 2

    def feat(self, w, x, b=None, stats=None):
        return x[:, :1] - w["w"]

    def out(self, w, z):
        return torch.cat([z, -z], 1)


def line(b, c, n):
    """Clients with wishes b, curvatures c and n rows each [C]."""
    who = torch.arange(len(b))  # a client's rows to train on, then one to test on
    who = torch.cat([who.repeat_interleave(torch.tensor(n)), who])
    x = torch.tensor([b, c], dtype=torch.float64).T[who]
    at = torch.arange(len(x))
    train, test = at[: sum(n)].split(n), at[sum(n) :].split(1)
    how = dict(batch=100, kind="synthetic")
    return Task("line", Line(), x, at * 0, train, (at[:0],) * len(b), test, **how)


def at_end(task, name, rounds, first=1.0, cohort=None, **how):
    """The model after so many rounds of fedlib."""
    start = {"w": torch.full((1,), float(first)).double()}
    m = make(name, task, **how)
    record = run(m, rounds=rounds, init=start, every=rounds, cohort=cohort)
    return float(record.state["server"]["w"]["w"])


@pytest.mark.parametrize(
    "T, eta, mu, c",
    [(2, 0.25, 0, (1, 3)), (3, 0.25, 0.5, (1, 3)), (16, 0.1, 3, (0.5, 4))],
)
def test_drift_line_goes_and_rests_as_fedlib_does(piece, T, eta, mu, c):  # noqa: F811
    it = piece("driftline")
    sliders = ("local steps T", "step size η", "pull μ (FedProx)")
    for label, value in zip(sliders, (T, eta, mu)):
        it.set(label, value)
    for label, value in zip(("Ada’s curvature c₁", "Ben’s curvature c₂"), c):
        it.set(label, value)
    name, pull = ("FedProx", {"mu": float(mu)}) if mu else ("FedAvg", {})
    how = dict(lr=eta, epochs=T, **pull)
    task = line([0.0, 4.0], list(map(float, c)), [1, 1])
    (seen,) = it.numbers("average of both models")
    assert abs(seen - at_end(task, name, 1, **how)) < 6e-4
    (seen,) = it.numbers(f"{name} rests at")
    assert abs(seen - at_end(task, name, 60, **how)) < 6e-4
    best = 4 * c[1] / sum(c)  # of the sum of the losses
    assert it.numbers("minimum of the sum of losses") == [round(best, 3)]
    assert abs(it.numbers("gap")[0] - (seen - best)) < 1.1e-3
    for _ in range(6):
        it.press("Ten rounds")
    assert abs(it.value("model sent w") - seen) < 6e-4


def test_the_model_of_the_drift_line_is_moved(piece):  # noqa: F811
    it = piece("driftline")
    task, how = line([0.0, 4.0], [1.0, 3.0], [1, 1]), dict(lr=0.25, epochs=2)
    it.drag("model sent w", 80, 0)
    moved = it.value("model sent w")
    assert moved > 1.2
    it.keys("model sent w", "ArrowRight", "ArrowUp")
    assert it.value("model sent w") == pytest.approx(moved + 0.1)
    end = at_end(task, "FedAvg", 1, first=moved + 0.1, **how)
    assert abs(it.numbers("average of both models")[0] - end) < 6e-4
    it.press("Reset")
    assert it.value("model sent w") == 1


def test_a_step_that_is_too_long_is_said(piece):  # noqa: F811
    it = piece("driftline")
    for label, value in (("step size η", 0.5), ("pull μ (FedProx)", 3)):
        it.set(label, value)
    it.set("local steps T", 8)
    assert it.rows()["FedProx rests at"] == ["nowhere"]
    assert "further away" in it.note()


PAIRS = {"Ada, Ben": [0, 1], "Ada, Cleo": [0, 2], "Ben, Cleo": [1, 2]}


def test_pairs_rest_where_fedlib_takes_them(piece):  # noqa: F811
    task, it = line([0.0, 2.0, 10.0], [1.0] * 3, [3, 5, 2]), piece("cohort")
    for names, pair in PAIRS.items():
        end = at_end(task, "FedAvg", 60, cohort=lambda t, p=pair: p, lr=0.5, epochs=1)
        assert it.numbers(names) == [round(end, 4)]
    it.keys("step size η", "ArrowLeft", "ArrowLeft", "ArrowLeft")
    it.press("One round")
    ends = [
        at_end(
            task, "FedAvg", 1, 8, cohort=lambda t, p=pair: p, lr=it.value("step size η")
        )
        for pair in PAIRS.values()
    ]
    assert it.value("step size η") == 0.35
    assert min(abs(it.numbers("model now")[0] - end) for end in ends) < 6e-5


def in_the_long_run(eta, cohort, rounds=2000):
    """Mean and standard deviation of the model over rounds of fedlib's FedAvg, with
    cohorts that fedlib draws; the formula of a round is checked by the test above.
    """
    n, b = np.array([3, 5, 2]), np.array([0.0, 2.0, 10.0])
    task = line(list(b), [1.0] * 3, n.tolist())
    m, w, path = make("FedAvg", task, lr=eta), 8.0, []
    for t in range(rounds + 50):
        ids = cohort_of(m, task, 0, t, cohort).numpy()
        w += eta * (n[ids] @ b[ids] / n[ids].sum() - w)
        path.append(w)
    return np.mean(path[50:]), np.std(path[50:])


@pytest.mark.parametrize("eta", [0.5, 0.1])
@pytest.mark.parametrize("M, words, mean", [(2, "two", 89 / 28), (1, "one", 4)])
def test_cohorts_are_biased_whatever_the_step(piece, eta, M, words, mean):  # noqa: F811
    it = piece("cohort")
    it.choose(words)
    it.set("step size η", eta)
    assert it.numbers("long-run mean of the model") == [round(mean, 4)]
    (sd,) = it.numbers("its standard deviation")
    it.press("1,000 rounds")
    it.press("1,000 rounds")
    (seen,) = it.numbers("mean of the rounds so far")
    error = sd * ((2 - eta) / eta / 2000) ** 0.5  # of a mean over 2,000 rounds
    way = (8 - mean) / eta / 2000  # what the way from 8 adds
    assert abs(seen - way - mean) < 4 * error
    by_fedlib = in_the_long_run(eta, M)
    assert abs(by_fedlib[0] - mean) < 4 * error
    assert by_fedlib[1] == pytest.approx(sd, rel=0.15)
    assert seen - way - 3 > 2 * error


def test_everybody_in_every_round_ends_at_three(piece):  # noqa: F811
    it = piece("cohort")
    it.choose("all three")
    it.press("100 rounds")
    it.press("100 rounds")
    assert it.numbers("model now") == [3.0]
    assert it.numbers("long-run mean of the model") == [3.0]


def fired(x, **how):
    """The first round in which fedlib's trigger passes."""
    m = METHODS["FedGA"](**how)
    state = {"past": torch.zeros(m.W + 1).double(), "on": torch.tensor(False)}
    for t, v in enumerate([*x, x[-1]]):
        state = m.watch(state, torch.tensor(float(v)).double(), t)
        if state["on"]:
            return str(t)
    return "–"


def test_trigger_fires_when_fedlib_fires(piece):  # noqa: F811
    it, x = piece("trigger", known=KNOWN["trigger"]), list(COURSE)
    said = lambda: it.rows()["fires in round"]  # noqa: E731
    assert said() == [fired(x, W=5, theta=0.01)] == ["10"]
    it.set("θ", 0.033)
    assert said() == [fired(x, W=5, theta=0.033)] == ["9"]
    it.set("window W", 4)
    it.choose("two halves of one")
    how = dict(W=4, theta=0.013, trigger="half")
    it.set("θ", 0.013)
    assert said() == [fired(x, **how)]
    it.drag("Gini coefficient of round 3", 0, -50)
    x[3] = it.value("Gini coefficient of round 3")
    it.keys("Gini coefficient of round 6", "ArrowUp", times=9)
    x[6] = it.value("Gini coefficient of round 6")
    assert x[3] > 0.4 and x[6] == pytest.approx(0.26)
    assert said() == [fired(x, **how)]
    it.choose("two, one round apart")
    it.set("θ", 0.001)
    assert said() == [fired(x, W=4, theta=0.001)]
    it.press("Reset")
    assert said() == ["10"]


def test_both_windows_means_are_printed(piece):  # noqa: F811
    it, t, W = piece("trigger", known=KNOWN["trigger"]), 10, 5
    early, late = np.mean(COURSE[t - W - 1 : t - 1]), np.mean(COURSE[t - W : t])
    assert it.rows()["mean of the earlier window"] == [f"{early:.4f}"]
    assert it.rows()["mean of the later window"] == [f"{late:.4f}"]
    assert it.rows()["difference"] == [f"{early - late:.4f}"]


def test_arrows_lead_from_point_to_point(piece):  # noqa: F811
    it = piece("trigger", known=KNOWN["trigger"])
    it.keys("Gini coefficient of round 0", "ArrowRight", "ArrowRight", "ArrowUp")
    assert it.value("Gini coefficient of round 2") == pytest.approx(COURSE[2] + 0.01)
    focused = "document.activeElement.getAttribute('aria-label')"
    assert it.page.evaluate(focused) == "Gini coefficient of round 2"


def test_a_finger_moves_a_bar(piece):  # noqa: F811
    it = piece("lorenz", width=390, has_touch=True)
    box = it.control("accuracy of client 4").locator(".area").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    it.page.touchscreen.tap(x, y)
    assert it.value("accuracy of client 4") > 0.3


CONF = """
import sys
sys.path.insert(0, {ext!r})
extensions = ["myst_parser", "fedplay"]
html_static_path = [{assets!r}]
html_theme, fedbook_results = "basic", "../results"
def setup(app): app.add_config_value("fedbook_results", "../results", "env")
"""
PAGES = {
    "index": "# Index\n```{play} alpha\n:name: fig-play\nWords.\n```\n",
    "plain": "---\norphan: true\n---\n# Plain\nNothing moves here.\n",
    "wrong": "---\norphan: true\n---\n# Wrong\n```{play} alfa\n```\n"
    "```{play} cohort\n```\n",
}


@pytest.fixture
def site(tmp_path):
    """A small site with one piece, one page without and one with mistakes ->
    (folder, warnings).
    """
    from sphinx.cmd.build import main

    book, figures = tmp_path / "book", tmp_path / "results/figures"
    (book / "_assets").mkdir(parents=True)
    shutil.copytree(ROOT / "book/_assets/play", book / "_assets/play")
    assets = book / "_assets"
    conf = CONF.format(ext=str(ROOT / "book/_ext"), assets=str(assets))
    (book / "conf.py").write_text(conf)
    for name, text in PAGES.items():
        (book / f"{name}.md").write_text(text)
    picture(figures, "alpha")
    told = tmp_path / "warnings.txt"
    out = tmp_path / "html"
    assert main([str(book), str(out), "-q", "-w", str(told)]) == 0
    return out, told.read_text()


def test_only_pages_with_a_piece_load_its_scripts(site):
    out, told = site
    page = (out / "index.html").read_text()
    assert re.findall(r"_static/play/([\w.]+)", page) == [
        "play.css",
        "play.js",
        "alpha.js",
    ]
    assert 'data-play="alpha"' in page and 'id="fig-play"' in page
    assert 'role="img"' in page and directive().PIECES["alpha"].split(" ")[0] in page
    for other in ("plain", "wrong"):
        assert "_static/play" not in (out / f"{other}.html").read_text()
    assert (out / "_static/play/alpha.js").exists()


def test_an_unknown_piece_and_a_missing_picture_are_named(site):
    _, told = site
    assert "no piece 'alfa'; there are alpha, cohort" in told
    assert "results/figures needs one play-cohort.svg" in told
    at_index = [line for line in told.splitlines() if "index.md" in line]
    assert [line.rpartition(": ")[0].rpartition(": ")[2] for line in at_index] == [
        "figure play-alpha names a notebook that is no page of the book"
    ]


def test_no_script_of_ours_names_an_address(tmp_path):
    (tmp_path / "_static/play").mkdir(parents=True)
    (tmp_path / "index.html").write_text("<html></html>")
    scripts = sorted((ROOT / "book/_assets/play").glob("*.js"))
    assert len(scripts) == len(directive().PIECES) + 1
    for script in scripts:
        shutil.copy(script, tmp_path / "_static/play")
    assert bookcheck.check(tmp_path) == []
    bad = tmp_path / "_static/play/alpha.js"
    bad.write_text("fetch('https://example.org/x')")
    assert bookcheck.check(tmp_path) == [
        "_static/play/alpha.js: names https://example.org/x"
    ]


def test_a_script_keeps_to_its_length():
    for script in (ROOT / "book/_assets/play").glob("*.js"):
        most = 250 if script.stem == "play" else 150
        assert len(script.read_text("utf-8").splitlines()) <= most, script.name
