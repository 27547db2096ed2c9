"""Dataset condensation for EquFL: synthetic rows that retrace a known trajectory.

EquFL (When the Server Steps In, III-B, eq. 5, Algorithm 1) matches the global models
of the first rounds of a federated run, in the manner of Cazenavette et al. (Dataset
Distillation by Matching Training Trajectories, CVPR 2022). No row of a client is looked
at: rows start from the task's public schema and labels from a global model.

    start -> condense, and proxy for a network that is not the clients'
    start -> finish, the control without matching

A trail is a stacked tree of a model's parameters, {name: [c, ...]}: c checkpoints,
taken in `rounds` [c]. A start is {"x": [n, ...], "logits": [n, K]}; a synthetic set is
{"x": [n, ...], "q": [n, K]}, the rows of q being probabilities.
Letters: n rows, K classes, A groups, c checkpoints, J inner steps.
"""

import dataclasses
import hashlib
import math
import warnings
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from ..core.random import seed_of, tag
from ..core.shards import Batch
from ..core.tree import leaves, onehot, pick, sqdist, stack, tmap, unstack, without
from ..nets import MLP

HELD = 1000  # rows of the held-out pool, at most
KEPT = 8  # answers of `shared`, the newest
WIDTHS = {"standard": 64, "deep": (64, 32), "wide": 128}  # hidden units, Table VII


def rows(task, n, seed, how="schema"):
    """Rows x [n, ...] in the form of the task's, drawn without looking at any.

    "schema": numbers N(0, 1), clipped to their range, in a one-hot block a uniform
    category, flags 0 or 1 with equal chance; images are uniform noise, smoothed by a
    5 x 5 box and standardised per channel. "noise": N(0, 1) everywhere, the literal
    reading. In both, the sensitive column holds every group's code equally often, in
    random order. Drawn in float32 on the CPU, a function of (n, seed, how). ValueError
    for fewer rows than groups, or a schema that misses columns.
    """
    groups, shape = task.groups, task.x.shape[1:]
    if not 2 <= groups.A <= n:
        raise ValueError(
            f"condense.rows: n = {n} rows for {groups.A} groups of {groups.name!r}; "
            "give two groups or more, and a row of each"
        )
    g = torch.Generator().manual_seed(seed_of(seed, tag("rows")))
    code = (torch.arange(n) % groups.A)[torch.randperm(n, generator=g)]
    if how == "noise":
        x = torch.randn(n, *shape, generator=g, dtype=torch.float32)
    elif len(shape) > 1:
        x = torch.rand(n, *shape, generator=g, dtype=torch.float32)
        x = F.avg_pool2d(x, 5, 1, 2, count_include_pad=False)
        x = (x - x.mean((0, -2, -1), keepdim=True)) / x.std((0, -2, -1), keepdim=True)
    else:
        blocks = sorted(groups.schema, key=lambda block: block.start)
        covered = [j for b in blocks for j in range(b.start, b.stop)]
        if covered != list(range(shape[0])):
            raise ValueError(
                f"condense.rows: the schema of {groups.name!r} describes columns "
                f"{covered} of {shape[0]}; describe each once, or take noise"
            )
        x = torch.cat([block_rows(block, n, g) for block in blocks], 1)
    if groups.column is not None:
        x[:, groups.column] = code.float()
    return x.to(task.x)


def block_rows(block, n, g):
    """[n, columns of the block]: a "number", "flag" or "onehot", by generator g."""
    size = n, block.stop - block.start
    if block.kind == "number":
        # in float64: in float32 an end such as 0.1 would lie outside of the range
        x = torch.randn(size, generator=g, dtype=torch.float32).double()
        return x.clamp(block.low, block.high)
    if block.kind == "flag":
        return torch.randint(2, size, generator=g).float()
    return F.one_hot(torch.randint(size[1], (n,), generator=g), size[1]).float()


def start(task, w, n, seed, how="schema", labels="soft"):
    """Where condensation starts: {"x": `rows`, "logits": [n, K]}.

    "soft": the log-probabilities that model w gives, averaged with the balanced ones
    where the group follows from the class. "balanced": 2 for a row's class, each class
    equally often, and 0 for the others; the literal reading.
    """
    x = rows(task, n, seed, how)
    with torch.no_grad():
        balanced = 2 * onehot(torch.arange(n, device=x.device) % task.K, task.K, x)
        if labels == "balanced":
            return {"x": x, "logits": balanced}
        log_p = task.logits(w, x).log_softmax(1)
        if task.groups.column is None:
            log_p = ((log_p.exp() + balanced.softmax(1)) / 2).log()
        return {"x": x, "logits": log_p}


def finish(S):
    """A start {"x", "logits"} as a synthetic set {"x", "q"}, without matching."""
    return {"x": S["x"], "q": S["logits"].softmax(1)}


# ------------------------------------------------------ a trajectory of another network
def server_net(name, task):
    """The server's network: "same" as the clients', or an MLP of WIDTHS."""
    if name == "same":
        return task.network
    return MLP(math.prod(task.x.shape[1:]), WIDTHS[name], task.K)


def pool_rows(task, n, seed):
    """n schema rows; of images the second half are mixtures u x_i + (1 - u) x_j, as
    noise alone describes images badly."""
    x = rows(task, n, seed)
    if x.dim() > 2:
        g, half = torch.Generator().manual_seed(seed_of(seed, tag("mix"))), n // 2
        i, j = torch.randint(n - half, (2, half), generator=g).to(x.device)
        u = torch.rand(half, *[1] * x[0].dim(), generator=g, dtype=torch.float32).to(x)
        x[n - half :] = u * x[i] + (1 - u) * x[j]
    return x


def proxy(net, task, trail, seed, pool=4000, steps=40, lr=0.5):
    """Another network `net` follows the clients' in function space: (trail, agreement).

    At each checkpoint `net` takes `steps` steps of full-batch gradient descent on the
    cross-entropy with the checkpoint's soft outputs on `pool` schema rows, from where
    it was at the checkpoint before. agreement: the share of held-out rows for which
    both networks predict the same class at the last checkpoint; below 0.9 a warning.
    """
    if net.buffers:
        raise ValueError(
            f"condense.proxy: {net} has running statistics, which a fit on noise would "
            "set; use group norm"
        )
    x = pool_rows(task, pool, seed_of(seed, tag("pool")))
    theta = tmap(lambda v: v.to(x.device).requires_grad_(), net.init(seed, x.dtype))
    logits, checkpoints = lambda x: net.out(theta, net.feat(theta, x)), []
    for w in unstack(trail, len(leaves(trail)[0])):
        with torch.no_grad():
            target = task.logits(w, x).softmax(1)
        for _ in range(steps):
            with torch.enable_grad():
                loss = F.cross_entropy(logits(x), target)
                d = torch.autograd.grad(loss, leaves(theta))
            with torch.no_grad():
                for v, dv in zip(leaves(theta), d):
                    v.sub_(dv, alpha=lr)
        checkpoints.append(tmap(lambda v: v.detach().clone(), theta))
    if not all(v.isfinite().all() for v in leaves(theta)):
        raise ValueError(f"condense.proxy: the fit diverged; give less than lr = {lr}")
    with torch.no_grad():
        x = pool_rows(task, min(pool, HELD), seed_of(seed, tag("held out")))
        same = logits(x).argmax(1) == task.logits(w, x).argmax(1)
        agreement = float(same.double().mean())
    if agreement < 0.9:
        warnings.warn(
            f"the server's network agrees with the last checkpoint on {agreement:.0%} "
            f"of held-out rows only; raise steps = {steps} or choose another network",
            stacklevel=2,
        )
    return stack(checkpoints), agreement


# ---------------------------------------------------------------- matching it
def walk(net, v, x, q, step, batches):
    """The inner loop of Algorithm 1: v after one step of descent per entry of batches.

        v <- v - step grad_v CE(f(x_i; v), q_i)        i: an entry of batches

    Differentiable in x [n, ...], q [n, K] and step []. An entry holds row numbers [B],
    or is None for all rows. Batch norm uses the statistics of those rows and leaves its
    buffers alone.
    """
    names = list(v)
    with torch.enable_grad():
        p = [t if t.requires_grad else t.detach().requires_grad_() for t in v.values()]
        for i in batches:
            x_i, q_i = (x, q) if i is None else (x[i], q[i])
            training = Batch(x_i, None, None, None, None, None, len(x_i))
            w, b = dict(zip(names, p)), training if net.buffers else None
            loss = F.cross_entropy(net.out(w, net.feat(w, x_i, b)), q_i)
            d = torch.autograd.grad(loss, p, create_graph=True)
            p = [t - step * dt for t, dt in zip(p, d)]
    return dict(zip(names, p))


def distance(v, a, b, normalised=True):
    """|v - b|^2 (eq. 5), normalised: / |a - b|^2, or late pairs of checkpoints, which
    lie close together, count for nothing."""
    return sqdist(v, b) / (sqdist(a, b) if normalised else 1)


@dataclass(frozen=True)
class Matching:
    """How `condense` matches: Algorithm 1's sizes and rates.

    The paper has the plain distance (normalised = False), plain gradient descent in
    place of Adam, and no learnable step.
    """

    outer: int  # outer steps, of Adam; 0 returns the start: a control
    J: int  # inner steps, of gradient descent
    gap: int  # largest number of checkpoints from p to q
    batch: int | None = None  # rows of an inner step, drawn anew; None: all
    fixed: Any = None  # a column of x, or several, that stays
    lr_x: float = 0.01  # Adam's rate for the rows x
    lr_q: float = 0.1  # ... for the label logits
    lr_step: float = 0.02  # ... for alpha, the logarithm of the step size
    step: float = 0.3  # e^alpha at first: step size per round of the trail
    normalised: bool = True  # see `distance`

    def pair(self, c, g):
        """p ~ U{0 .. c-2} and q ~ U{p+1 .. min(c-1, p+gap)}."""
        p = int(torch.randint(c - 1, (1,), generator=g))
        q = int(torch.randint(p + 1, min(c - 1, p + self.gap) + 1, (1,), generator=g))
        return p, q

    def batches(self, n, g, device):
        """The row numbers [batch] of J inner steps; None: all n rows."""
        if self.batch is None or self.batch >= n:
            return [None] * self.J
        draw = lambda: torch.randperm(n, generator=g)[: self.batch].to(device)
        return [draw() for _ in range(self.J)]


def adam_step(f, d, m, v, lr, k):
    """Step k = 1, 2, ... of Adam on f along the gradient d, in place; m, v: moments.

    Kingma, Ba, ICLR 2015, with beta = 0.9 and 0.999. (`torch.optim.Adam` rounds in
    another order, and stored numbers would move.)
    """
    m.lerp_(d, 0.1)
    v.lerp_(d * d, 0.001)
    f.sub_(lr / (1 - 0.9**k) * m / ((v / (1 - 0.999**k)).sqrt() + 1e-8))


def condense(net, trail, rounds, S, how, seed=0):
    """Algorithm 1: (synthetic set {"x", "q"}, losses [outer]) from a start S.

        draw checkpoints p < q                                    (`Matching.pair`)
        v = J steps of gradient descent on S from w^p             (`walk`)
        minimise |v - w^q|^2 / |w^p - w^q|^2                      (`distance`)    eq. 5

    by `outer` steps of Adam over rows, label logits and alpha; the step size of the
    descent is e^alpha (rounds_q - rounds_p) / J. One alpha serves all gaps: it is a
    rate per round. how: a Matching. Draws depend on `seed` alone. Memory: one graph
    (`walk`) at a time, so it grows with J and batch and neither with outer nor with c.

    ValueError for fewer than two checkpoints of `net` in ascending rounds, and for a
    loss or gradient that is not finite.
    """
    trail, rounds = without(trail, net.buffers), torch.as_tensor(rounds).tolist()
    c, n, device = len(rounds), len(S["x"]), S["x"].device
    shapes = {k: (c, *v.shape) for k, v in without(net.init(0), net.buffers).items()}
    if c < 2 or rounds != sorted({*rounds}) or shapes != tmap(lambda v: v.shape, trail):
        raise ValueError(
            f"condense: give two checkpoints of {net} or more, one per round in "
            f"rounds = {rounds}; those of another network go through condense.proxy"
        )
    g = torch.Generator().manual_seed(seed_of(seed, tag("condense")))
    x, logits = (S[k].detach().clone() for k in ("x", "logits"))
    alpha, rates = x.new_tensor(how.step).log(), (how.lr_x, how.lr_q, how.lr_step)
    free, losses = [x, logits, alpha], []
    moments = [(torch.zeros_like(f), torch.zeros_like(f)) for f in free]
    for k in range(1, how.outer + 1):
        p, q = how.pair(c, g)
        w_p, w_q, batches = pick(trail, p), pick(trail, q), how.batches(n, g, device)
        with torch.enable_grad():
            x, logits, alpha = (f.requires_grad_() for f in free)
            step = alpha.exp() * ((rounds[q] - rounds[p]) / how.J)
            v = walk(net, w_p, x, logits.softmax(1), step, batches)
            loss = distance(v, w_p, w_q, how.normalised)
            ds, loss = torch.autograd.grad(loss, free), loss.detach()
        if not all(t.isfinite().all() for t in (loss, *ds)):
            raise ValueError(
                f"condense: outer step {k}, rounds {rounds[p]} to {rounds[q]}: the "
                f"loss {float(loss):g} or its gradient is not finite; use a smaller "
                f"step than {how.step:g}, and checkpoints that differ"
            )
        with torch.no_grad():
            if how.fixed is not None:
                ds[0][:, how.fixed] = 0
            for f, d, (m, s), lr in zip(free, ds, moments, rates):
                adam_step(f, d, m, s, lr, k)
        losses.append(loss)
    x, logits, _ = (f.detach() for f in free)
    losses = torch.stack(losses) if losses else x.new_zeros(0)
    return finish({"x": x, "logits": logits}), losses


# ---------------------------------------------------------------- once for the same
answers: dict[tuple, dict] = {}  # of this process, the newest last


def shared(given, make):
    """make(), a tree of tensors, unless it was made before of what is `given`, to the
    bit, on which alone it must depend. The answer is a copy of one's own."""
    try:
        key = content(given)
    except TypeError:  # as of a network built around a module: make it anew
        return make()
    answers[key] = answer = answers.pop(key, None) or make()
    for old in list(answers)[:-KEPT]:
        answers.pop(old, None)  # another thread may have been here
    return tmap(torch.clone, answer)


def content(v):
    """What v holds, as a key: of tensors a hash; of numbers, texts, and dictionaries,
    sequences and dataclasses of these. TypeError for anything else."""
    if isinstance(v, torch.Tensor):
        raw = v.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()
        return v.dtype, v.device, v.shape, hashlib.sha256(raw).digest()
    if isinstance(v, dict):
        return tuple((k, content(x)) for k, x in v.items())
    if isinstance(v, (list, tuple)):
        return tuple(map(content, v))
    if dataclasses.is_dataclass(v):
        fields = dataclasses.fields(v)
        return type(v), *(content(getattr(v, f.name)) for f in fields)
    if v is None or isinstance(v, (bool, int, float, str)):
        return type(v), v
    raise TypeError(f"no content is known of a {type(v).__qualname__}")
