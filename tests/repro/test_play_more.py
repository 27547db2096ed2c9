"""The interactive pieces with numbers from a notebook: they print the library's."""

import numpy as np
import pandas as pd
import pytest
import torch
from play import behaves, browser, piece, still  # noqa: F401
from torch.nn import functional
from where import ROOT

from fedlib.core.local import SAM
from fedlib.measures import bias
from fedlib.methods.domains.faa import FAA

NAMES = ["thresholds", "leak", "triangle", "sam", "message"]


@pytest.fixture
def known(tmp_path):
    """name -> what the notebook hands to the piece; skips where it has not run."""

    def known(name):
        meta = still(name, tmp_path)[1]
        if "play" not in meta:
            pytest.skip("notebooks/teach/play_more.ipynb has not been run")
        return meta["play"]

    return known


@pytest.mark.parametrize("name", NAMES)
def test_a_piece_behaves(piece, known, name):  # noqa: F811
    known(name)
    behaves(piece, name)


def test_thresholds_print_the_measures_of_fedlib(piece, known):  # noqa: F811
    data, it = known("thresholds"), piece("thresholds")
    steps = len(data["many"][0])

    def expected(at):
        n = np.zeros((2, 2, 2))
        for g, t in enumerate(at):
            told = np.arange(steps) >= t
            many, yes = np.array(data["many"][g]), np.array(data["yes"][g])
            for z in (0, 1):
                here = told == z
                n[g, :, z] = (many - yes)[here].sum(), yes[here].sum()
        return {
            "EO: the larger of these gaps": bias.EO(n),
            "DemP: told yes": bias.DP(n),
            "CAL: TPR, distance from everybody's": bias.CAL(n),
            "precision of a yes, gap from everybody's": bias.CAL_ppv(n),
        }

    def agrees():
        at = [round(steps * it.value(f"threshold for {g}")) for g in data["groups"]]
        rows = it.rows()
        for name, value in expected(at).items():
            assert rows[name][-1] == f"{float(value):.3f}", (at, name)
        return at

    assert agrees() == data["start"]
    it.keys(f"threshold for {data['groups'][0]}", "ArrowRight", times=3)
    assert agrees()[0] == data["start"][0] + 3
    it.drag(f"threshold for {data['groups'][1]}", -60, 0)
    assert agrees()[1] < data["start"][1]
    it.press("One threshold for both")
    at = agrees()
    assert at[0] == at[1]


@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("sigma", [0.0, 0.1])
def test_a_digit_comes_back_as_autograd_says(piece, known, batch, sigma):  # noqa: F811
    data, it = known("leak"), piece("leak")
    it.choose(str(batch))
    it.choose("well trained")
    it.set("noise σ on every number", sigma)
    it.page.get_by_role("application").focus()
    it.page.keyboard.press("ArrowRight")
    it.page.keyboard.press("Space")  # the second pixel becomes black
    x = torch.tensor(data["digits"]).double()[:batch] / 16
    x[0, 1] = 1.0
    y, k = torch.tensor(data["labels"][:batch]), data["labels"][0]
    w = {n: torch.tensor(v).double().requires_grad_() for n, v in data["good"].items()}
    loss = functional.cross_entropy(x @ w["W"].T + w["b"], y)
    W, b = torch.autograd.grad(loss, list(w.values()))
    noise = sigma * torch.tensor(data["noise"]).double()
    read = (W[k] + noise[64 * k : 64 * k + 64]) / (b[k] + noise[640 + k])
    error = float((read - x[0]).square().mean().sqrt())
    assert it.numbers("root mean square error") == [round(error, 3)]
    if batch == 1 and not sigma:
        assert error < 1e-9 and "comes back exactly" in it.note()


def test_a_digit_is_drawn_by_the_mouse(piece, known):  # noqa: F811
    known("leak")
    it = piece("leak")
    it.press("Empty picture")
    box = it.page.get_by_role("application").bounding_box()
    it.page.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 0.3 * box["height"])
    it.page.mouse.down()
    it.page.mouse.move(
        box["x"] + 0.7 * box["width"], box["y"] + 0.3 * box["height"], steps=9
    )
    it.page.mouse.up()
    dark = '.stage svg [role="application"]'
    assert "is dark" in it.page.locator(dark).get_attribute("aria-label")
    assert it.numbers("root mean square error") == [0.0]


def test_the_triangle_moves_as_faa(piece, known):  # noqa: F811
    data, it = known("triangle"), piece("triangle")
    faa = FAA(**data["faa"])

    def expected(c):
        gaps = lambda a: ((np.asarray(a) @ c - c) ** 2).sum(1) / 2  # noqa: E731
        a, tried = torch.full((3,), 1 / 3).double(), []
        for q in range(faa.trials):
            G = torch.tensor(gaps(a))
            tried.append((float(G.var(unbiased=False)), a))
            a = faa.moved(a, G, faa.eta * 0.7**q)
        best = min(tried, key=lambda t: t[0])[1].numpy()
        rows = {"FedAvg": np.array(data["rows"]) / sum(data["rows"]), "FAA": best}
        return {
            k: [*(f"{v:.3f}" for v in gaps(a)), f"{gaps(a).var():.4f}"]
            for k, a in rows.items()
        }

    c = np.array(data["corners"])
    assert {k: it.rows()[k] for k in ("FedAvg", "FAA")} == expected(c)
    it.keys("domain 2", "ArrowRight", "ArrowUp", "ArrowUp")
    c[1] += 0.05, 0.1
    assert {k: it.rows()[k] for k in ("FedAvg", "FAA")} == expected(c)
    it.drag("domain 3", 40, 30)
    assert it.rows()["FAA"] != expected(c)["FAA"]
    it.press("Reset")
    c = np.array(data["corners"])
    start = np.full(3, 1 / 3) @ c
    it.keys("your average", "ArrowRight", "ArrowUp")
    gaps = ((start + 0.05 - c) ** 2).sum(1) / 2
    assert it.rows()["your weights"][:3] == [f"{g:.3f}" for g in gaps]
    it.drag("your average", -400, 0)  # out of the triangle: the weight of domain 2 is 0
    assert ", 0.000, " in it.note().split("Yours:")[1]
    it.set("weight of domain 1", 0.5)
    it.set("domain 2’s part of the rest", 1)
    middle = np.array(data["corners"])[:2].mean(0)
    gaps = ((middle - np.array(data["corners"])) ** 2).sum(1) / 2
    assert it.numbers("your weights")[:3] == [round(float(g), 3) for g in gaps]


def test_the_balls_step_as_sgd_and_sam(piece, known):  # noqa: F811
    data, it = known("sam"), piece("sam")
    F = lambda w: torch.minimum(6 * w**2, 0.6 * (w - 3.5) ** 2 + 0.9)  # noqa: E731

    def walk(w, rho, steps):
        g = SAM(rho)(lambda v, b: F(v["w"]))
        w = torch.tensor(w, dtype=torch.float64)
        for _ in range(steps):
            w = w - data["eta"] * g({"w": w}, None)["w"]
        return w

    for n in (1, data["moves"]):
        it.press("One step" if n == 1 else f"{n} steps")
    n = data["moves"] + 1
    ends = [walk(data["start"], 0.0, n), walk(data["start"], data["rho"], n)]
    assert it.numbers("weight w") == [round(float(w), 3) for w in ends]
    assert it.numbers("loss") == [round(float(F(w)), 3) for w in ends]
    e = torch.linspace(-data["rho"], data["rho"], 4001).double()
    sharp = [round(float(F(w + e).max() - F(w)), 3) for w in ends]
    assert np.allclose(it.numbers("sharpness within ρ"), sharp, atol=1.1e-3)
    it.set("radius ρ", 0)
    it.press("One step")
    assert len(set(it.numbers("weight w"))) == 1  # SAM without a radius is SGD
    it.drag("where both begin", 120, 0)
    assert it.value("where both begin") > data["start"]


@pytest.mark.parametrize("method", ["FedAvg", "SCAFFOLD", "FedProto", "FAA"])
def test_messages_are_those_that_were_counted(piece, known, method):  # noqa: F811
    known("message")
    it = piece("message")
    it.page.get_by_role("combobox", name="method").select_option(method)
    it.choose("32")
    kept = pd.read_csv(ROOT / "results/traffic.csv").query("method == @method")
    assert len(kept)
    rows = it.rows()
    for sign, ways in (("↓", ("down", "ask")), ("↑", ("up", "answer"))):
        some = kept[kept.way.isin(ways)]
        shown = {k: v for k, v in rows.items() if k.startswith(sign)}
        assert len(shown) == len(some)
        for r in some.itertuples():
            assert shown[f"{sign} {r.name}"][1] == f"{r.bytes * r.messages:,}"
    up = kept[kept.way.isin(("up", "answer"))]
    assert f"{(up.bytes * up.messages).sum():,} up" in it.note()
