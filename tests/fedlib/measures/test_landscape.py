"""Landscapes: what a direction is, where each value stands, and that every way of
computing a plane gives the same numbers.
"""

import json
import sys
from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from toys import Quadratic, quadratic
from toys_core import Normed, gap, toy
from where import ROOT

from fedlib import plots
from fedlib.core.batches import Plan
from fedlib.core.pool import Pool
from fedlib.core.task import Task
from fedlib.core.tree import add, pick, scale, stack
from fedlib.measures import landscape as ls
from fedlib.nets import CNN, MLP

T = torch.float64


def images(network=None, N=24, side=12, dtype=T):
    """Four clients with random pictures of three classes."""
    g = torch.Generator().manual_seed(3)
    x, y = torch.randn(N, 2, side, side, generator=g, dtype=T), torch.arange(N) % 3
    pool = Pool("noise", x.to(dtype), y, 3, "synthetic")
    return Task.from_rows(
        "noise",
        network or CNN(2, 3, (4, 8)),
        pool,
        torch.arange(N).split(N // 4),
        parts=(0.7, 0, 0.3),
    )


def every_row(task):
    return torch.cat(task.train)


# directions
def test_filters_of_a_direction_are_as_long_as_those_of_the_model_and_vectors_stay():
    task = images(CNN(2, 3, (4, 8), "batch"))
    w = task.init(0)
    d = ls.direction(w, 7, task.buffers)
    assert list(d) == list(w) and {x.dim() for x in d.values()} == {1, 2, 4}
    for k in w:
        if w[k].dim() > 1:
            assert torch.allclose(
                d[k].flatten(1).norm(dim=1), w[k].flatten(1).norm(dim=1), rtol=1e-9
            )
            assert (
                abs(float(F.cosine_similarity(d[k].flatten(), w[k].flatten(), 0))) < 0.5
            )
        else:
            assert (
                w[k].any()
                == (not k.endswith((".bias", "running_mean")) or k == "fc.bias")
                and not d[k].any()
            )
    assert not any(d[k].any() for k in task.buffers)


def test_a_buffer_does_not_move_whatever_its_shape():
    w = {"a": torch.ones(2, 3), "b": torch.ones(2, 3)}
    d = ls.direction(w, 0, ("b",))
    assert d["a"].any() and not d["b"].any()


def test_the_draw_depends_on_seed_and_name_alone():
    task = toy(MLP(5, (6, 6), 3))
    a, b = task.init(0), task.init(1)
    unit = lambda d: {k: F.normalize(v, dim=1) for k, v in d.items() if v.dim() > 1}
    # the same Gaussian, other lengths
    assert gap(unit(ls.direction(a, 3)), unit(ls.direction(b, 3))) < 1e-9
    assert gap(ls.direction(a, 3), ls.direction(b, 3)) > 1e-3
    assert gap(unit(ls.direction(a, 3)), unit(ls.direction(a, 4))) > 0.1
    # order and company do not matter
    some = {k: a[k] for k in reversed(a) if k != "fc1.weight"}
    assert all(
        torch.equal(ls.direction(some, 3)[k], ls.direction(a, 3)[k]) for k in some
    )
    single = ls.direction({k: v.float() for k, v in a.items()}, 3)
    assert gap(single, ls.direction(a, 3)) < 1e-6
    same = {k: torch.ones(4, 4) for k in ("u", "v")}
    assert (
        gap(
            ls.direction(same, 0)["u"][None].unbind(),
            ls.direction(same, 0)["v"][None].unbind(),
        )
        > 0.1
    )


def test_a_filter_of_zeros_stays_zero():
    w = {"a": torch.stack([torch.zeros(4, dtype=T), torch.ones(4, dtype=T)])}
    d = ls.direction(w, 0)["a"]
    assert not d[0].any() and float(d[1].norm()) == pytest.approx(2)


def test_cosine_and_norm():
    a, b = (
        {"x": torch.tensor([3.0, 0]), "y": torch.tensor([4.0])},
        {"y": torch.tensor([4.0]), "x": torch.tensor([0.0, 3])},
    )
    assert ls.cosine(a, b) == pytest.approx(16 / 25) and ls.cosine(
        a, scale(a, -2)
    ) == pytest.approx(-1)
    assert ls.norm(a) == 5 and ls.norm(a, ("y",)) == 3


# the loss
@pytest.mark.parametrize("size", [None, 1, 5, 100])
def test_the_loss_is_the_mean_over_the_rows_in_evaluation_mode(size):
    for task in (images(CNN(2, 3, (4, 8), "batch")), toy(Normed(5, 6, 3)), toy()):
        w = task.init(1)
        # buffers that matter
        w = {k: v + 0.3 if k in task.buffers else v for k, v in w.items()}
        rows = every_row(task)
        want = F.cross_entropy(task.logits(w, task.x[rows]), task.y[rows])
        loss = ls.data_loss(task, rows, size)
        assert float(loss(w)) == pytest.approx(
            float(want), rel=1e-12
        ) and loss.buffers == tuple(task.buffers)
        assert len(loss.parts) == (1 if size in (None, 100) else -(-len(rows) // size))
        (shard,) = task.shards(0, 0, 1, torch.tensor([2]), {"train": Plan()})
        own = F.cross_entropy(
            task.logits(w, task.x[task.train[2]]), task.y[task.train[2]]
        )
        assert float(ls.data_loss(task, shard.all(), size)(w)) == pytest.approx(
            float(own), rel=1e-12
        )


def test_padding_of_a_batch_does_not_count():
    task, w = toy(), toy().init(0)
    # 3 rows, padded to 20
    data, make = task.stacked(0, 0, 1, torch.tensor([5, 3]), {"train": Plan()})
    b = make(pick(data, 0)).all()
    assert len(b.y) == 20
    assert float(ls.data_loss(task, b)(w)) == pytest.approx(
        float(ls.data_loss(task, task.train[5])(w)), rel=1e-12
    )


def test_a_network_with_its_own_loss_is_asked():
    task = quadratic([[1.0, 2.0], [3.0, -1.0]])
    w = {"w": torch.tensor([0.0, 1.0], dtype=T)}
    assert isinstance(task.network, Quadratic)
    assert float(ls.data_loss(task, torch.tensor([0, 1]))(w)) == pytest.approx(
        (1 + 1 + 9 + 4) / 4
    )


def test_a_balanced_subset_has_every_class_equally_often():
    y = torch.tensor([0, 0, 0, 1, 2, 1, 2, 2, 0, 1])
    rows = ls.balanced(y, 7)
    assert rows.tolist() == [0, 1, 3, 4, 5, 6]
    assert ls.balanced(y, 4, torch.tensor([9, 8, 7, 6, 5])).tolist() == [5, 6, 8]
    assert ls.balanced(y, 30).tolist() == list(range(10))


# planes
def test_a_plane_is_written_y_x_and_equals_the_explicit_loop():
    for task in (
        images(),
        images(CNN(2, 3, (4, 8), "batch")),
        toy(),
        toy(Normed(5, 6, 3)),
    ):
        w, rows = task.init(0), every_row(task)
        loss, d1, d2 = (
            ls.data_loss(task, rows, 7),
            *(ls.direction(w, s, task.buffers) for s in (1, 2)),
        )
        x = [-0.8, -0.4, 0, 0.4, 0.8]
        want = torch.tensor(
            [
                [
                    float(
                        F.cross_entropy(
                            task.logits(add(add(w, d1, a), d2, b), task.x[rows]),
                            task.y[rows],
                        )
                    )
                    for a in x
                ]
                for b in x
            ],
            dtype=T,
        )
        # or the order could not be seen
        assert not torch.allclose(want, want.T, atol=1e-3)
        for how, chunk in (
            ("loop", 1),
            ("vmap", 1),
            ("vmap", 4),
            ("vmap", 99),
            (None, 3),
        ):
            z = ls.plane(loss, w, d1, d2, 0.8, 5, how=how, chunk=chunk)
            assert z.shape == (5, 5) and float((z - want).abs().max()) < 1e-12
        # row 2 is y = 0
        assert float((ls.line(loss, w, d1, 0.8, 5) - want[2]).abs().max()) < 1e-12
        assert (
            float((ls.line(loss, w, d2, 0.8, 5, how="vmap") - want[:, 2]).abs().max())
            < 1e-12
        )
        assert float(z[2, 2]) == pytest.approx(float(loss(w)), rel=1e-14)


def test_the_axis_is_symmetric_with_the_model_in_the_middle():
    for points in (3, 11, 41, 51):
        x = ls.axis(0.7, points)
        assert (
            len(x) == points
            and x[points // 2] == 0
            and torch.equal(x, -x.flip(0))
            and x[-1] == 0.7
        )
    g = ls.grid(1, 3).view(3, 3, 2)
    assert g[0, 2].tolist() == [1, -1] and g[2, 0].tolist() == [-1, 1]


def test_the_plane_of_a_quadratic_is_its_formula():
    """F(w) = |w - c|^2 / 2 up to a constant; w is a vector, so its direction is given,
    not drawn.
    """
    task = quadratic([[0.0, 0.0, 0.0]])
    w, e = {"w": torch.tensor([1.0, 2.0, 0.0], dtype=T)}, torch.eye(3, dtype=T)
    z = ls.plane(
        ls.data_loss(task, torch.tensor([0])), w, {"w": 2 * e[0]}, {"w": e[2]}, 1, 3
    )
    want = [
        [((1 + 2 * x) ** 2 + 4 + y * y) / 2 for x in (-1, 0, 1)] for y in (-1, 0, 1)
    ]
    assert torch.allclose(z, torch.tensor(want, dtype=T), atol=1e-14)


def test_a_stack_of_models_is_each_alone():
    task = images()
    ws = [task.init(s) for s in range(3)]
    each = [ls.data_loss(task, task.train[c]) for c in range(3)]
    one = ls.data_loss(task, every_row(task))
    for losses in (each, one):
        s = ls.surfaces(losses, stack(ws), 0.5, 5, seeds=(4, 9))
        assert s.z.shape == (3, 5, 5) and s.radius == 0.5
        for i, w in enumerate(ws):
            alone = ls.surface(
                losses[i] if losses is each else one, w, 0.5, 5, seeds=(4, 9)
            )
            assert torch.equal(s.z[i], alone.z)
            d1, d2 = ls.direction(w, 4), ls.direction(w, 9)
            assert (
                float(s.cosine[i])
                == float(alone.cosine)
                == pytest.approx(ls.cosine(d1, d2))
                and abs(alone.cosine) < 0.5
            )
            assert float(s.norm[i]) == pytest.approx(ls.norm(w), rel=1e-12)
        assert not torch.equal(s.z[0], s.z[1])


def test_buffers_of_the_loss_do_not_move_and_do_not_count():
    task = images(CNN(2, 3, (4, 8), "batch"))
    w, loss = task.init(0), ls.data_loss(task, every_row(task))
    big = {k: v + 1e3 if k.endswith("running_mean") else v for k, v in w.items()}
    assert (
        float(ls.surface(loss, big, 0.5, 3).norm)
        == float(ls.surface(loss, w, 0.5, 3).norm)
        == ls.norm(w, task.buffers)
    )


def test_nothing_is_left_to_differentiate():
    task = toy()
    w = {k: v.requires_grad_() for k, v in task.init(0).items()}
    s = ls.surface(ls.data_loss(task, every_row(task)), w, 0.5, 3)
    assert not s.z.requires_grad and all(v.grad is None for v in w.values())


# bad input
def test_a_radius_that_overflows_names_radius_place_and_remedy():
    task = toy(MLP(5, (6, 6, 6), 3), dtype=torch.float32)
    w, loss = task.init(0), ls.data_loss(task, every_row(task))
    with pytest.raises(
        ValueError,
        match=r"radius = 1e\+15: the loss is (nan|inf) at \(.+, .+\), the nearest of "
        r"\d+ of 25 points where it is not finite; take a smaller radius",
    ):
        ls.surface(loss, w, 1e15, 5)
    with pytest.raises(
        ValueError, match=r"radius = 1e\+15.* at \(-?5e\+14\), the nearest of 4 of 5"
    ):
        ls.line(loss, w, ls.direction(w, 0), 1e15, 5)
    with pytest.raises(
        ValueError,
        match="model 1 of 2: the loss of the model itself is nan: it has diverged",
    ):
        ls.surfaces(loss, stack([w, scale(w, float("nan"))]), 1, 3)


@pytest.mark.parametrize(
    "radius, points, words",
    [
        (0, 5, "radius = 0"),
        (-1, 5, "radius = -1"),
        (float("nan"), 5, "radius = nan"),
        (float("inf"), 5, "radius = inf"),
        (1, 4, "points = 4: give an odd number"),
        (1, 1, "points = 1"),
        (1, 0, "points = 0"),
        (1, -3, "points = -3"),
    ],
)
def test_a_plane_of_nothing_is_refused(radius, points, words):
    task = toy()
    w, loss = task.init(0), ls.data_loss(task, every_row(task))
    for f in (
        lambda: ls.surface(loss, w, radius, points),
        lambda: ls.line(loss, w, w, radius, points),
    ):
        with pytest.raises(ValueError, match=words):
            f()


def test_other_bad_input():
    task = toy()
    w, loss = task.init(0), ls.data_loss(task, every_row(task))
    d = ls.direction(w, 0)
    with pytest.raises(ValueError, match=r"seeds = \(3, 3\)"):
        ls.surface(loss, w, seeds=(3, 3))
    with pytest.raises(ValueError, match="does not fit the model at 'fc.bias'"):
        ls.line(loss, w, {k: v for k, v in d.items() if k != "fc.bias"})
    with pytest.raises(ValueError, match="does not fit the model at 'fc1.weight'"):
        ls.plane(loss, w, d, d | {"fc1.weight": torch.zeros(2, 2)})
    with pytest.raises(ValueError, match="how = 'fast'"):
        ls.line(loss, w, d, how="fast")
    with pytest.raises(ValueError, match="2 losses for 1 models"):
        ls.surfaces([loss, loss], stack([w]))
    for rows, words in (
        ([], "no rows"),
        ([10**6], "one vector of row numbers"),
        ([-1], "row numbers"),
        ([0.5], "float"),
        ([[1]], "shape"),
    ):
        with pytest.raises(ValueError, match=words):
            ls.data_loss(
                task, torch.tensor(rows) if rows else torch.zeros(0, dtype=torch.long)
            )
    with pytest.raises(ValueError, match="size = 0"):
        ls.data_loss(task, [0], 0)
    with pytest.raises(ValueError, match="n = 2 rows for 3 classes"):
        ls.balanced(task.y, 2)


def test_a_model_in_float32_has_a_plane_in_float32():
    task = toy(dtype=torch.float32)
    w = task.init(0)
    s = ls.surface(ls.data_loss(task, every_row(task)), w, 1, 5)
    double = replace(task, x=task.x.double())
    z = ls.surface(
        ls.data_loss(double, every_row(task)),
        {k: v.double() for k, v in w.items()},
        1,
        5,
    ).z
    assert s.z.dtype == torch.float32 and float((s.z - z).abs().max()) < 1e-5


# drawing
def paraboloid(x0=0.0, y0=0.0, scale=1.0, base=0.0, p=21):
    """[y, x]: base + scale ((x - x0)^2 + 4 (y - y0)^2)."""
    x = np.linspace(-1, 1, p)
    return base + scale * ((x - x0) ** 2 + 4 * (x[:, None] - y0) ** 2)


def test_what_is_drawn_is_the_rise_above_the_model_at_most_the_clip():
    v = plots.above(paraboloid(scale=10, base=3), 5)
    assert v[10, 10] == 0 and v.max() == 5 and v[10, 11] == pytest.approx(0.1)
    assert plots.above(paraboloid(0.5)).min() == pytest.approx(-0.25)
    for z in (np.zeros((4, 4)), np.zeros((3, 5)), np.zeros(3), np.full((3, 3), np.nan)):
        with pytest.raises(ValueError, match="above: z has shape"):
            plots.above(z)


@pytest.mark.parametrize(
    "top, want",
    [
        (5, [0, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5]),
        (4.9, [0, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5]),
        (0.01, [0, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 0.01]),
        (5.1, [0, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10]),
    ],
)
def test_levels_go_one_two_five(top, want):
    assert plots.ladder(top).tolist() == want


def test_all_panels_share_levels_colours_and_limits():
    plots.use()
    fig, axes = plt.subplots(2, 2)
    z = {
        "FedAvg": paraboloid(),
        "FedGA": paraboloid(0.4, base=7),
        "a": paraboloid(scale=0.1),
        "b": paraboloid(scale=9),
    }
    levels = plots.landscapes(z, axes, radius=0.5, clip=4, notes={"FedGA": "loss 7"})
    # the last is the clip
    assert levels.tolist() == [0, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 4]
    filled = [next(c for c in a.collections if c.filled) for a in axes.flat]
    assert all(
        c.norm is filled[0].norm and c.levels.tolist() == levels.tolist()
        for c in filled
    )
    assert {(a.get_xlim(), a.get_ylim()) for a in axes.flat} == {
        ((-0.5, 0.5), (-0.5, 0.5))
    }
    assert [a.get_title("left") for a in axes.flat] == [
        "FedAvg",
        "FedGA\nloss 7",
        "a",
        "b",
    ]
    bar = fig.axes[-1]
    assert [t.get_text() for t in bar.get_yticklabels()] == [
        "0",
        "0.02",
        "0.05",
        "0.1",
        "0.2",
        "0.5",
        "1",
        "2",
        "\u2265 4",
    ]
    assert filled[0].extend == "min"  # FedGA has places below its model
    fig, axes = plt.subplots(1, 2)
    plots.landscapes({"a": z["a"], "FedAvg": z["a"]}, axes)
    # nothing was cut
    assert [t.get_text() for t in fig.axes[-1].get_yticklabels()][-1] == "0.5"
    assert axes[0].collections[0].extend == "neither"
    with pytest.raises(ValueError, match="2 surfaces and 1 axes"):
        plots.landscapes({"a": z["a"], "b": z["a"]}, plt.subplots()[1])
    plt.close("all")


def test_rows_of_the_plane_are_drawn_upwards():
    """The flat direction is x: the innermost contour is wider than it is high."""
    plots.use()
    _, a = plt.subplots()
    plots.landscapes({"a": paraboloid()}, a)
    lines = next(c for c in a.collections if not c.filled)
    inner_ = lines.get_paths()[2].get_extents()
    assert inner_.width == pytest.approx(2 * inner_.height, rel=0.1)
    plt.close("all")


def test_dots_show_seeds_mean_and_interval():
    plots.use()
    _, a = plt.subplots()
    plots.dots(
        {"FedAvg": [1.0, 2.0, 3.0], "FedGA, own": [4.0, 4.0, 7.0]},
        a,
        of={"FedGA, own": "FedGA"},
    )
    mean, half = plots.band(np.array([4.0, 4, 7]))
    whisker, seeds, point = a.lines[3:]
    assert whisker.get_xdata() == pytest.approx(
        [mean - half, mean + half]
    ) and seeds.get_xdata().tolist() == [4, 4, 7]
    assert (
        point.get_xdata()[0] == 5
        and point.get_color() == plots.colour("FedGA")
        and a.get_xlim()[0] == 0
    )
    assert [t.get_text() for t in a.get_yticklabels()] == ["FedAvg", "FedGA, own"]
    _, a = plt.subplots()
    plots.dots({"FedAvg": [1.0, 100.0], "FedGA": [3.0]}, a, log=True)
    assert (
        a.get_xscale() == "log"
        and a.lines[2].get_xdata()[0] == pytest.approx(10)
        and len(a.lines) == 4
    )
    for bad, log in (([1.0, np.nan], False), ([1.0, 0.0], True), ([[1.0, 2.0]], False)):
        with pytest.raises(ValueError, match="dots: FedAvg has values"):
            plots.dots({"FedAvg": bad}, a, log=log)
    plt.close("all")


def test_the_view_to_turn_takes_the_same_numbers(tmp_path):
    z = {
        "FedAvg": plots.above(paraboloid(base=2, p=5)),
        "FedGA": plots.above(paraboloid(scale=3, p=5)),
    }
    data = json.loads(
        plots.save_surface("s", z, extent=(-0.5, 0.5), folder=tmp_path).read_text()
    )
    assert (
        data["z"]["FedAvg"][2][2] == 0
        and data["z"]["FedGA"][0][2] == 5
        and data["extent"] == [-0.5, 0.5]
    )


# the benchmark
def test_the_naive_loop_computes_the_same():
    sys.path.insert(0, str(ROOT))
    from benchmarks import landscape as bench

    at = torch.tensor([[0.0, 0.0], [0.5, -1.0]])
    want = bench.compute("loop", 16, at)
    assert (
        float((bench.compute("naive", 16, at) - want).abs().max())
        < 1e-4
        < float((want[0] - want[1]).abs())
    )
    assert float((bench.compute("vmap", 16, at) - want).abs().max()) < 1e-4
    task, w, d1, d2 = bench.setting(16)
    assert task.x.shape == (2000, 3, 16, 16) and ls.cosine(d1, d2) < 0.1
    assert float(want[0]) == pytest.approx(
        float(F.cross_entropy(task.logits(w, task.x), task.y)), rel=1e-5
    )
