"""How flat are the models that a run ends with? What the study `flatness` measures,
cell by cell (PLGU, Figure 7).

Every model is measured three ways: the global model on the rows of all clients, the
global model on the rows of one client, and that client's own model on the same rows.
The middle one is the control: it has the first one's weights and the last one's rows.
Letters: c clients measured, p points per axis.
"""

import numpy as np
import torch

from fedlib.core.tree import pick, where
from fedlib.measures import landscape, sharpness
from fedlib.study import compute

GLOBAL = "global model"
ALONE = "global model on one client's data"
OWN = "personalised model"
HOME = {"Ditto": "v", "PLGU-LF": "w"}  # method -> where a client keeps its own model
RHO = (0.05, 0.1, 0.5)
RISES = tuple(f"rise_{r:g}" for r in RHO)
METRICS = ("train_loss", "lambda_max", *RISES, "landscape_area", "weight_norm")
SEEDS = (1, 2)  # of the two directions: the same in every plane
# the clients whose landscapes are drawn, by the accuracy of their model
PLACES = ("worst", "median", "best")


def own(name, state, i):
    """The model that serves client i: its own, else the server's."""
    mine, w = pick(state["clients"], i), state["server"]["w"]
    model = mine[HOME[name]]
    return where(mine["seen"], model, w) if "seen" in mine else model


def numbers(loss, w):
    """{metric: value} of one model on one loss; `train_loss` is the value at the model
    itself: flat says little of a model that has learned less.

    A rise is the largest of one step and of an ascent; the area is that of the disc of
    radius 0.5, on 9 points an axis.
    """
    e = sharpness.lambda_max(loss, w)
    s = landscape.surface(loss, w, 0.5, 9, SEEDS)
    middle = s.z.flatten()[s.z.numel() // 2]
    return {
        "lambda_max": e.value,
        **{f"rise_{r:g}": max(sharpness.rise(loss, w, r)) for r in RHO},
        "landscape_area": float(sharpness.area(s.z, 0.5)),
        "weight_norm": float(s.norm),
        "train_loss": float(middle),
        "converged": float(e.converged),
        "cosine": float(s.cosine),
    }


def some(C, c):
    """c client numbers spread evenly over C."""
    return np.unique(np.linspace(0, C - 1, min(c, C)).round().astype(int)).tolist()


def places(accuracy):
    """{"worst", "median", "best": client} of accuracies [C]; the first of ties."""
    order = np.argsort(accuracy, kind="stable")
    return dict(zip(PLACES, order[[0, (len(order) - 1) // 2, -1]].tolist()))


def measure_all(cells, **size):
    """[measure(cell, **size)] of every cell, in order; on processes of this machine."""
    return compute.every(lambda cell, _: measure(cell, **size), cells)


def measure(cell, clients=8, rows=1000, points=21, coarse=7, draw=(0,)):
    """Train a cell and measure what it leaves behind.

    -> "sharpness": {view: {metric: value}}; the last two views, means over `clients`
    clients, exist where clients have models of their own. "surfaces", for seeds
    in `draw` alone: {(view, place): losses [p, p]}, place "" for the global model,
    else one of PLACES or "mean" over all clients (on `coarse` points). "who":
    {place: client}. rows: a fixed class-balanced subset for the global model.
    """
    torch.set_num_threads(1)
    _, task, r = compute.trained(cell, device="cpu")
    w, home = r.state["server"]["w"], cell.method in HOME
    subset = landscape.balanced(task.y, rows, torch.cat(task.train))
    common = landscape.data_loss(task, subset)
    loss = [landscape.data_loss(task, at) for at in task.train]
    mine = [own(cell.method, r.state, i) for i in range(task.C)] if home else []
    views = {ALONE: lambda i: w, OWN: mine.__getitem__} if home else {}
    found = {GLOBAL: numbers(common, w)}
    for view, model in views.items():
        each = [numbers(loss[i], model(i)) for i in some(task.C, clients)]
        found[view] = {k: float(np.mean([e[k] for e in each])) for k in each[0]}
    surfaces, who = {}, {}
    if cell.seed in draw:
        surfaces[GLOBAL, ""] = losses_around(common, w, points)
        who = places(r["pre", "personal", "test"][-1]) if home else {}
        for view, model in views.items():
            for place, i in who.items():
                surfaces[view, place] = losses_around(loss[i], model(i), points)
            all_ = [losses_around(loss[i], model(i), coarse) for i in range(task.C)]
            surfaces[view, "mean"] = np.mean(all_, 0)
    return {"sharpness": found, "surfaces": surfaces, "who": who}


def losses_around(loss, w, points):
    """Losses [p, p] of the plane around a model."""
    return landscape.surface(loss, w, 1.0, points, SEEDS).z.numpy()


# ---------------------------------------------------------------- at like losses
def like_loss(loss, sharp, other_loss, other_sharp):
    """ln(sharp / other_sharp) at equal loss: the mean over the losses that both methods
    pass, nan where they pass none in common.

    loss, sharp: of one method's models at several ages [A], other_*: of the other's
    [B]; all positive. Between two ages ln sharp is linear in ln loss. 0: as sharp as
    the other, negative: flatter. A model that has learned less is often flatter, so
    that models of one age are compared at different losses.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        given = loss, sharp, other_loss, other_sharp
        x, s, y, t = (np.log(np.asarray(v, float)) for v in given)
    landscape.finite(
        np.concatenate([x, s, y, t]), "like_loss: the logarithm of a value"
    )
    low, high = max(x.min(), y.min()), min(x.max(), y.max())
    if low > high:
        return np.nan
    at = np.linspace(low, high, 25)
    mine = np.interp(at, np.sort(x), s[x.argsort()])
    theirs = np.interp(at, np.sort(y), t[y.argsort()])
    return float((mine - theirs).mean())
