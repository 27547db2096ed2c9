"""The loss around a trained model: along a line, and on a plane that two random
directions span.

Directions are normalised filter by filter (Li, Xu, Taylor, Studer, Goldstein.
Visualizing the Loss Landscape of Neural Nets. NeurIPS 2018, section 4), so a step of
1 moves every filter by its own length whatever the scale of the weights is.
Letters: N rows, p points per axis. A model is a flat dict name -> tensor; losses are
means in nats per row.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..core.errors import refuse_if
from ..core.random import fold, normal, tag
from ..core.shards import Batch
from ..core.tree import add, leaves, tmap

# bytes of inputs that a CPU sees at once: its activations stay in the cache
CHUNK = 2**20


# ---------------------------------------------------------------- the loss
@dataclass(frozen=True)
class DataLoss:
    """L(w): mean loss over fixed rows in evaluation mode (no batch statistics, nothing
    drawn).
    """

    parts: tuple  # functions of w that add up to L: gradients in the memory of one
    buffers: tuple = ()  # names of what is no parameter

    def __call__(self, w):
        return sum(f(w) for f in self.parts)


def data_loss(task, rows, size=None):
    """The DataLoss of a task on its rows of these numbers [N]: cross-entropy, or the
    network's own `each`.

    size: rows per chunk (None: 1 MiB of inputs on a CPU, 64 MiB elsewhere).
    """
    x, y = task.x[rows], task.y[rows]
    if size is None:
        room = CHUNK if x.device.type == "cpu" else 64 * CHUNK
        size = max(1, room // (x[0].numel() * x.element_size()))
    chunks = zip(x.split(size), y.split(size))
    return DataLoss(tuple(part(task, a, b, len(y)) for a, b in chunks), task.buffers)


def part(task, x, y, N):
    """w -> sum of the losses of the rows (x, y), over N."""
    # once here, not once per model: see nets.pixels
    x = x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x
    own = getattr(task.network, "each", None)

    def f(w):
        if own:
            return own(w, Batch(x, y, None, None, None, None, len(y))).sum() / N
        return F.cross_entropy(task.logits(w, x), y, reduction="sum") / N

    return f


def balanced(y, n, rows=None):
    """Row numbers [n or fewer]: the first n / K rows of every class among `rows` (None:
    all of y [N]), in order; all rows of a class that has fewer.
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
    """Coordinates [p], -radius to radius, 0 in the middle; ValueError for even p."""
    odd = "give an odd number, so that the model itself is the middle point"
    refuse_if(points % 2 == 0, f"points = {points}: {odd}")
    half = points // 2
    return radius * (torch.arange(points, dtype=torch.float64) - half) / half


def finite(values, what):
    """The values, if all are finite; else ValueError."""
    good = torch.as_tensor(values).isfinite().all()
    refuse_if(not good, f"{what} is not finite; stay closer to it, or use float64")
    return values


@torch.no_grad()
def losses_at(loss, w, directions, at):
    """loss(w + sum_j at[n, j] directions[j]) [n]; ValueError where it is not finite."""
    out, at = [], torch.as_tensor(at, dtype=leaves(w)[0].dtype)
    for s in at.tolist():
        v = w
        for d, r in zip(directions, s, strict=True):
            v = add(v, d, r)
        out.append(loss(v))
    return finite(torch.stack(out), f"a loss within {float(at.abs().max()):g} of w")


def line(loss, w, d, radius=1.0, points=41):
    """Z [p] with Z[a] = loss(w + x_a d), x = axis(radius, points)."""
    return losses_at(loss, w, (d,), axis(radius, points)[:, None])


def plane(loss, w, d1, d2, radius=1.0, points=41):
    """Z [p, p], Z[b, a] = loss(w + x_a d1 + y_b d2), x = y = axis(radius, points)."""
    x = axis(radius, points)
    at = torch.stack([x.repeat(points), x.repeat_interleave(points)], 1)
    return losses_at(loss, w, (d1, d2), at).view(points, points)


class Surface(NamedTuple):
    """A landscape and what it depends on."""

    z: Tensor  # [p, p] losses, [y, x]; z[p // 2, p // 2] is the model's own
    cosine: float  # of the two directions; they are drawn, not made orthogonal
    norm: float  # |w| over the parameters


def surface(loss, w, radius=1.0, points=41, seeds=(1, 2)):
    """The plane through w along direction(w, seeds[0]) and direction(w, seeds[1]), as a
    Surface. Surfaces to be compared share seeds, radius and points.
    """
    buffers = getattr(loss, "buffers", ())
    d1, d2 = (direction(w, s, buffers) for s in seeds)
    z = plane(loss, w, d1, d2, radius, points)
    return Surface(z, cosine(d1, d2), norm(w, buffers))
