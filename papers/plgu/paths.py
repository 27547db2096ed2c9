"""How does the loss run between the models of a study, and away from them? One data set
and seed at a time (PLGU, Figure 7).

    own      from the global model w to a client's own theta_i, on that client's rows
    between  from FedAvg's global model to another method's, on the rows of all
    uphill   along the gradient at a global model
    curved   on the plane of the top two eigenvectors of the Hessian

Lines run from -REACH to REACH: the one model is at 0, the other at 1. Letters: C
clients, p points.
"""

import numpy as np
import torch
from scipy.sparse.linalg import LinearOperator, eigsh

from fedlib.core.random import fold, normal, tag
from fedlib.core.tree import leaves, rows, scale, stack, sub, unrow
from fedlib.measures import landscape, sharpness
from fedlib.study import compute

from .flatness import HOME, own, places

REACH, UPHILL, CURVED = 1.5, 0.5, 1.0
SPLITS = ("train", "test")


def groups(cells):
    """[the cells of one data set and seed], of the runs of plain methods."""
    found = {}
    for c in cells:
        found.setdefault((c.dataset, c.seed), []).append(c)
    return list(found.values())


def measure_all(groups, **size):
    """[measure(group, **size)] of every group, in order, in processes."""
    return compute.every(lambda group, _: measure(group, **size), groups)


def measure(cells, rows=1000, points=31, fine=21, draw=(0,)):
    """Train the cells of a group, one for each method, FedAvg among them -> a
    dictionary.

    "own": {(method, split): losses [C, p]}, of methods whose clients have models of
    their own; "between": {(method, split): [p]}; "uphill": {method: [p]}, steps of
    length up to UPHILL; "curved", for seeds in `draw`: {(method, whose): {"values": the
    two eigenvalues, "z": losses [fine, fine]}}, whose "" for the global model on the
    rows of all clients, "median" for the own model of the client in the middle. rows: a
    fixed class-balanced subset for global models.
    """
    torch.set_num_threads(1)
    runs = {c.method: compute.trained(c, device="cpu")[1:] for c in cells}
    task, fedavg = runs["FedAvg"]
    common = {s: everybody(task, s, rows) for s in SPLITS}
    start = fedavg.state["server"]["w"]
    found = {"own": {}, "between": {}, "uphill": {}, "curved": {}}
    for method, (_, r) in runs.items():
        w = r.state["server"]["w"]
        found["uphill"][method] = uphill(common["train"], w, points)
        if method != "FedAvg":
            for s, loss in common.items():
                found["between"][method, s] = towards(loss, start, w, points)
        if method in HOME:
            mine = [own(method, r.state, i) for i in range(task.C)]
            for s in SPLITS:
                each = [client(task, s, i) for i in range(task.C)]
                lines = [towards(f, w, v, points) for f, v in zip(each, mine)]
                found["own"][method, s] = torch.stack(lines)
        if cells[0].seed in draw:
            found["curved"][method, ""] = curved(common["train"], w, fine)
            if method in HOME:
                i = places(r["pre", "personal", "test"][-1])["median"]
                here = curved(client(task, "train", i), mine[i], fine)
                found["curved"][method, "median"] = here
    return {k: {at: plain(v) for at, v in lines.items()} for k, lines in found.items()}


# ---------------------------------------------------------------- losses
def everybody(task, split, rows):
    """The loss on a class-balanced subset of all clients' rows."""
    every = torch.cat(getattr(task, split)).unique()
    return landscape.data_loss(task, landscape.balanced(task.y, rows, every))


def client(task, split, i):
    """The loss on a client's rows."""
    return landscape.data_loss(task, getattr(task, split)[i])


# ---------------------------------------------------------------- lines and planes
def towards(loss, a, b, points):
    """Losses [p] on the line on which a lies at 0 and b at 1."""
    return landscape.line(loss, a, sub(b, a), REACH, points)


def uphill(loss, w, points):
    """Losses [p] along the gradient at w, a step of 1 as long as 1 in the 2-norm."""
    p, parts = sharpness.apart(loss, w)
    g = sharpness.slope(parts, p)
    g = {k: torch.zeros_like(x) for k, x in w.items()} | g
    d = scale(g, 1 / landscape.norm(g))
    return landscape.line(loss, w, d, UPHILL, points)


def curved(loss, w, points):
    """The two largest eigenvalues at w, the losses [p, p] on their plane."""
    values, vectors = eigenpairs(loss, w)
    z = landscape.plane(loss, w, *vectors, CURVED, points)
    return {"values": values, "z": z}


def eigenpairs(loss, w, k=2):
    """The k largest eigenvalues of the Hessian at w, the largest first, and their
    vectors by Lanczos' iteration: trees like w of length 1, zero at buffers. Power
    iteration is slow where two eigenvalues are close.
    """
    p, parts = sharpness.apart(loss, w)
    like = leaves(p)[0]
    P = sum(x.numel() for x in leaves(p))
    flat = lambda v: rows(stack([v]))[0].detach().cpu().double().numpy()
    tensor = lambda v: torch.as_tensor(v, dtype=like.dtype, device=like.device)

    def product(v):
        out = flat(sharpness.hvp(parts, p, unrow(tensor(np.ravel(v)), p)))
        landscape.finite(out, sharpness.HESSIAN)
        return out

    def tree(v):
        own = unrow(tensor(v * np.sign(v[np.abs(v).argmax()])), p)
        return {name: own.get(name, torch.zeros_like(x)) for name, x in w.items()}

    key = torch.tensor(0, device=like.device)
    start = flat(normal(fold(key, tag("lanczos")), p))
    H = LinearOperator((P, P), matvec=product, dtype=np.float64)
    values, vectors = eigsh(H, k, which="LA", v0=start, tol=1e-4)
    top = np.argsort(-values)
    return values[top].tolist(), [tree(vectors[:, i]) for i in top]


def plain(v):
    """Tensors as arrays."""
    if isinstance(v, dict):
        return {k: plain(x) for k, x in v.items()}
    return v.numpy() if isinstance(v, torch.Tensor) else v
