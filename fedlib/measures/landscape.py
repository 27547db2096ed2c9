"""The loss around a trained model: along a line, and on a plane that two random
directions span.

Directions are normalised filter by filter (Li, Xu, Taylor, Studer, Goldstein.
Visualizing the Loss Landscape of Neural Nets. NeurIPS 2018, section 4), so a step of
1 moves every filter by its own length whatever the scale of the weights is.
Letters: M models, N rows, p points per axis. A model is a flat dict name -> tensor;
losses are means in nats per row.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..core.local import transformed
from ..core.random import fold, normal, tag
from ..core.shards import Batch
from ..core.tree import add, leaves, pick, stack, tmap

# bytes of inputs that a CPU sees at once: its activations stay in the cache
CHUNK = 2**20


# ---------------------------------------------------------------- the loss
class DataLoss:
    """L(w): mean loss over fixed rows in evaluation mode (no batch statistics, nothing
    drawn).

    `parts` are functions of w that add up to L: a gradient may be summed over them, in
    the memory of one. `buffers` names what is not a parameter.
    """

    def __init__(self, parts, buffers=()):
        self.parts, self.buffers = tuple(parts), tuple(buffers)

    def __call__(self, w):
        return sum(f(w) for f in self.parts)


def data_loss(task, rows, size=None):
    """The DataLoss of a task on rows: row numbers [N], or a Batch such as
    `shard.all()`.

    size: rows per chunk (None: 1 MiB of inputs on a CPU, 64 MiB elsewhere).
    Cross-entropy, or the network's own `each`. ValueError for no rows, or a row that
    the task does not have.
    """
    if isinstance(rows, Batch):
        keep = slice(None) if rows.m is None else rows.m > 0
        x, y = rows.x[keep], rows.y[keep]
    else:
        rows = torch.as_tensor(rows, device=task.x.device)
        if not len(rows) or rows.min() < 0 or rows.max() >= len(task.x):
            raise ValueError(
                f"data_loss on task {task.name!r}: give at least one row number, all "
                f"from 0 to {len(task.x) - 1}, as in task.test[client]"
            )
        x, y = task.x[rows], task.y[rows]
    if size is None:
        room = CHUNK if x.device.type == "cpu" else 64 * CHUNK
        size = max(1, room // (x[0].numel() * x.element_size()))
    chunks = zip(x.split(size), y.split(size))
    return DataLoss([part(task, a, b, len(y)) for a, b in chunks], task.buffers)


def part(task, x, y, N):
    """w -> sum of the losses of the rows (x, y), over N."""
    # once here, not once per model: see nets.pixels
    x = x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x
    own = getattr(task.network, "each", None)

    def f(w):
        # vmap's group norm wants the plain order
        z = x.contiguous() if transformed() else x
        if own:
            return own(w, Batch(z, y, None, None, None, None, len(y))).sum() / N
        return F.cross_entropy(task.logits(w, z), y, reduction="sum") / N

    return f


def balanced(y, n, rows=None):
    """Row numbers [n or fewer]: the first n / K rows of every class among `rows` (None:
    all of y [N]), in order; all rows of a class that has fewer.

    The fixed subset on which a global model is drawn.
    """
    rows = torch.arange(len(y)) if rows is None else torch.as_tensor(rows).sort().values
    classes = y[rows].unique()
    first = [rows[y[rows] == k][: n // len(classes)] for k in classes]
    return torch.cat(first).sort().values


# ---------------------------------------------------------------- directions
def direction(w, seed, buffers=()):
    """A random direction at w, filter by filter as long as w: a tree like w.

        d_f <- |w_f| g_f / |g_f|,    g ~ N(0, 1)

    where f is a slice along dim 0: a filter, or a row of a linear layer. Tensors with
    one dimension (biases, scales of norm layers) and buffers do not move. The draw g
    depends on the seed and the names and shapes alone: all models of one network see
    the same g, in float32 as in float64.
    """
    key = torch.tensor(int(seed), device=leaves(w)[0].device)

    def one(name, x):
        if x.dim() < 2 or name in buffers:
            return torch.zeros_like(x)
        like = {name: x.new_empty(x.shape, dtype=torch.float64)}
        g = normal(fold(key, tag(name)), like)[name].to(x.dtype)
        ratio = x.flatten(1).norm(dim=1) / (g.flatten(1).norm(dim=1) + 1e-10)
        return g * ratio.view(-1, *(1 for _ in x.shape[1:]))

    return {name: one(name, x.detach()) for name, x in w.items()}


def inner(a, b):
    """<a, b> of two trees, a scalar."""
    return sum(leaves(tmap(lambda x, y: (x * y).sum(), a, b)))


def cosine(a, b):
    """Cosine of the angle between two trees; nan if one is zero."""
    return float(inner(a, b) / (inner(a, a) * inner(b, b)).sqrt())


def norm(w, buffers=()):
    """|w| over the parameters."""
    p = {k: x.detach() for k, x in w.items() if k not in buffers}
    return float(inner(p, p).sqrt())


# ---------------------------------------------------------------- lines and planes
def axis(radius=1.0, points=41):
    """Coordinates [p] from -radius to radius, symmetric; the middle one is exactly 0.
    ValueError for an even number of points.
    """
    if points % 2 == 0 or not radius > 0:
        raise ValueError(
            f"radius = {radius}, points = {points}: give a positive radius (1 moves "
            "every filter by its own length) and an odd number of points, so that the "
            "model itself is the middle one"
        )
    half = points // 2
    return radius * (torch.arange(points, dtype=torch.float64) - half) / half


def losses_at(loss, w, directions, at, how=None, chunk=32):
    """loss(w + sum_j at[n, j] directions[j]) for every row n: at [n, J] -> [n].

    how: "loop" over points, or "vmap" over `chunk` of them at a time; the same numbers
    to rounding. None: vmap on a GPU, loop on a CPU, where it takes as long for matrix
    layers and far less for convolutions: batched weights need a grouped kernel.
    """
    shapes = lambda tree: {(k, v.shape) for k, v in tree.items()}
    for d in directions:
        if odd := {k for k, _ in shapes(w) ^ shapes(d)}:
            raise ValueError(
                f"a direction does not fit the model at {', '.join(sorted(odd))}; make "
                "it with direction(w, seed)"
            )
    like = leaves(w)[0]
    at = torch.as_tensor(at, dtype=like.dtype, device=like.device)
    how = how or ("loop" if like.device.type == "cpu" else "vmap")

    def f(s):
        v = w
        for d, r in zip(directions, s):
            v = add(v, d, r)
        return loss(v)

    with torch.no_grad():
        if how == "loop":
            return torch.stack([f(s.tolist()) for s in at])
        return torch.func.vmap(f, chunk_size=chunk)(at)


def finite(z, at, radius):
    """z, if every value is finite; at [n, J] the places of the values z [n]."""
    if z.isfinite().all():
        return z
    distance = at.square().sum(1).sqrt()
    nearest = float(distance[~z.isfinite()].min())
    raise ValueError(
        f"radius = {radius:g}: the loss is not finite from a distance of {nearest:.4g} "
        "on; take a smaller radius, or float64. At a distance of 0 the model itself "
        "has diverged"
    )


def line(loss, w, d, radius=1.0, points=41, **more):
    """Z [p] with Z[a] = loss(w + x_a d), x = axis(radius, points); more: see
    `losses_at`. ValueError if not finite.
    """
    at = axis(radius, points)[:, None]
    return finite(losses_at(loss, w, (d,), at, **more), at, radius)


def grid(radius=1.0, points=41):
    """Places (x, y) [p p, 2] of a plane; viewed as [p, p, 2] the first index is y, the
    second x.
    """
    x = axis(radius, points)
    return torch.stack([x.repeat(points), x.repeat_interleave(points)], 1)


def plane(loss, w, d1, d2, radius=1.0, points=41, **more):
    """Z [p, p] with Z[b, a] = loss(w + x_a d1 + y_b d2): rows are y, columns x;
    x = y = axis(radius, points); more: see `losses_at`. ValueError if not finite.
    """
    at = grid(radius, points)
    z = losses_at(loss, w, (d1, d2), at, **more)
    return finite(z, at, radius).view(points, points)


class Surface(NamedTuple):
    """A landscape and what it depends on; with models stacked every field but `radius`
    has a leading [M].
    """

    z: Tensor  # [p, p] losses, [y, x]; z[p // 2, p // 2] is the model's own
    radius: float
    cosine: Tensor  # of the two directions; they are drawn, not made orthogonal
    norm: Tensor  # |w| over the parameters


def surface(loss, w, radius=1.0, points=41, seeds=(1, 2), buffers=None, **more):
    """The plane through w along direction(w, seeds[0]) and direction(w, seeds[1]), as a
    Surface.

    buffers: names that are not parameters (None: those the loss names). Surfaces to be
    compared share seeds, radius and points.
    """
    if len({*seeds}) != 2:
        raise ValueError(f"seeds = {seeds}: give two different ones, or it is a line")
    buffers = getattr(loss, "buffers", ()) if buffers is None else buffers
    d1, d2 = (direction(w, s, buffers) for s in seeds)
    z = plane(loss, w, d1, d2, radius, points, **more)
    sizes = torch.tensor([cosine(d1, d2), norm(w, buffers)], dtype=torch.float64)
    return Surface(z, radius, *sizes)


def surfaces(losses, ws, *args, **more):
    """`surface` of many models, one after another: a stack ws [M, ...] -> a Surface
    with z [M, p, p].

    losses: one for all models, or a list of M, such as each client's own rows. Every
    model has its own filter norms; the draw is the same. ValueError names the model
    whose landscape is not finite.
    """
    M = len(leaves(ws)[0])
    out = []
    for i, loss in enumerate([losses] * M if callable(losses) else losses):
        try:
            out.append(surface(loss, pick(ws, i), *args, **more)._asdict())
        except ValueError as e:
            raise ValueError(f"model {i} of {M}: {e}") from e
    radius = [s.pop("radius") for s in out][0]
    return Surface(**stack(out), radius=radius)
