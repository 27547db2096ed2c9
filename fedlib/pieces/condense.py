"""Synthetic rows that train a network along a trajectory which was seen before: dataset
condensation for EquFL.

EquFL (When the Server Steps In, III-B, eq. 5, Algorithm 1) matches the global models
of the first rounds of a federated run, in the manner of Cazenavette et al. (Dataset
Distillation by Matching Training Trajectories, CVPR 2022). No row of a client is looked
at: rows start from the task's public schema and labels from a global model.

    start -> condense -> finish, and proxy where the server's network is not
        the clients'

A trail is a stacked tree of a model's parameters, {name: [c, ...]}: c checkpoints,
taken in `rounds` [c]. A start is {"x": [n, ...], "logits": [n, K]}; a synthetic set is
{"x": [n, ...], "q": [n, K]}, the rows of q being probabilities.
Letters: n rows, K classes, A groups, c checkpoints, J inner steps.
"""

from __future__ import annotations

import math
import warnings

import torch
import torch.nn.functional as F

from ..core.batches import Batch
from ..core.random import seed_of, tag
from ..core.tree import leaves, onehot, pick, sqdist, stack, tmap, unstack, without
from ..nets import MLP

HELD = 1000  # rows of the held-out pool, at most
WIDTHS = {"standard": 64, "deep": (64, 32), "wide": 128}


# ---------------------------------------------------------- where rows and labels start
def rows(task, n, seed, how="schema"):
    """Rows x [n, ...] in the form of the task's, drawn without looking at any.

    "schema": numbers N(0, 1), in a one-hot block a uniform category, flags 0 or 1 with
    equal chance; images are uniform noise, smoothed by a 5 x 5 box and standardised
    to mean 0 and standard deviation 1 per channel. "noise": N(0, 1) everywhere, the
    literal reading. In both, the sensitive column holds every group's code equally
    often, in random order. Drawn in float32 on the CPU, a function of (n, seed, how).
    ValueError for fewer rows than groups, or a schema that misses columns.
    """
    groups, shape = task.groups, task.x.shape[1:]
    if groups is None:
        raise ValueError(
            "condense.rows: the task has no groups; give it a sensitive attribute first"
        )
    if groups.A < 2:
        raise ValueError(
            f"condense.rows: the sensitive attribute {groups.name!r} takes only the "
            f"value {groups.names[0]!r}, so nobody can be compared; choose one that "
            "takes two values or more"
        )
    if n < groups.A:
        raise ValueError(
            f"condense.rows: n = {n} rows for {groups.A} groups; give at least one "
            "row per group"
        )
    if how not in ("schema", "noise"):
        raise ValueError(f'condense.rows: how = {how!r}; use "schema" or "noise"')
    g = torch.Generator().manual_seed(seed_of(seed, tag("rows")))
    code = (torch.arange(n) % groups.A)[torch.randperm(n, generator=g)]
    if how == "noise":
        x = torch.randn(n, *shape, generator=g)
    elif len(shape) > 1:
        x = F.avg_pool2d(
            torch.rand(n, *shape, generator=g), 5, 1, 2, count_include_pad=False
        )
        x = (x - x.mean((0, -2, -1), keepdim=True)) / x.std((0, -2, -1), keepdim=True)
    else:
        covered = sorted(
            j for block in groups.schema for j in range(block.start, block.stop)
        )
        if covered != list(range(shape[0])):
            raise ValueError(
                f"condense.rows: the schema of {groups.name!r} describes columns "
                f"{covered} of {shape[0]}; describe "
                'each column once, or use how = "noise"'
            )
        x = torch.cat(
            [
                block_rows(block, n, g)
                for block in sorted(groups.schema, key=lambda block: block.start)
            ],
            1,
        )
    if groups.column is not None:
        x[:, groups.column] = code.float()
    return x.to(task.x)


def block_rows(block, n, g):
    """[n, columns of the block], drawn with generator g."""
    size = n, block.stop - block.start
    if block.kind == "number":
        return torch.randn(size, generator=g)
    if block.kind == "flag":
        return torch.randint(2, size, generator=g).float()
    if block.kind == "onehot":
        return onehot(
            torch.randint(size[1], (n,), generator=g), size[1], torch.empty(0)
        )
    raise ValueError(
        f'condense.rows: block {block.name!r} is a {block.kind!r}; use "number", '
        '"flag" or "onehot"'
    )


def start(task, w, n, seed, how="schema", labels="soft"):
    """Where condensation starts: {"x": `rows`, "logits": [n, K]}.

    "soft": the log-probabilities that model w gives. Where the group follows from the
    class, every class must occur: then the mean of these probabilities and the balanced
    ones. "balanced": 2 for a row's class, each class equally often, and 0 for the
    others; the literal reading.
    """
    if labels not in ("soft", "balanced"):
        raise ValueError(
            f'condense.start: labels = {labels!r}; use "soft" or "balanced"'
        )
    x = rows(task, n, seed, how)
    with torch.no_grad():
        balanced = 2 * onehot(torch.arange(n, device=x.device) % task.K, task.K, x)
        if labels == "balanced":
            return {"x": x, "logits": balanced}
        said = task.logits(w, x).log_softmax(1)
        if task.groups.column is None:
            said = ((said.exp() + balanced.softmax(1)) / 2).log()
        return {"x": x, "logits": said}


def finish(task, x, logits, labels="soft", project=False):
    """Rows and label logits (or log-probabilities) as a synthetic set {"x", "q"}.

    labels: "soft" softmax; "hard" all on the largest. project: flags become 0 or 1 and
    a one-hot block gets a single 1, by the schema; the sensitive column stays.
    """
    if labels not in ("soft", "hard"):
        raise ValueError(f'condense.finish: labels = {labels!r}; use "soft" or "hard"')
    q = (
        logits.softmax(1)
        if labels == "soft"
        else onehot(logits.argmax(1), logits.shape[1], logits)
    )
    near, column = x.clone(), task.groups.column
    for block in task.groups.schema if project else ():
        cut = near[:, block.start : block.stop]  # a view
        if block.kind == "onehot":
            cut.copy_(onehot(cut.argmax(1), cut.shape[1], x))
        elif block.kind == "flag":
            cut.copy_(cut > 0.5)
    if column is not None:
        near[:, column] = x[:, column]
    return {"x": near, "q": q}


# ------------------------------------------------------ a trajectory of another network
def server_net(name, task):
    """The server's network: "same" as the clients', or an MLP: "standard" 64, "deep"
    64 and 32, "wide" 128 units (Table VII).
    """
    if name == "same":
        return task.network
    if name not in WIDTHS:
        raise ValueError(
            f"condense.server_net: {name!r} is unknown; use one of same, "
            f"{', '.join(WIDTHS)}"
        )
    return MLP(math.prod(task.x.shape[1:]), WIDTHS[name], task.K)


def pool_rows(task, n, seed):
    """n schema rows; of images, which noise alone describes badly, the second half are
    random mixtures u x_i + (1 - u) x_j.
    """
    x = rows(task, n, seed)
    if x.dim() > 2:
        g, half = torch.Generator().manual_seed(seed_of(seed, tag("mix"))), n // 2
        i, j = torch.randint(n - half, (2, half), generator=g).to(x.device)
        u = torch.rand(half, *[1] * (x.dim() - 1), generator=g).to(x)
        x[n - half :] = u * x[i] + (1 - u) * x[j]
    return x


def proxy(net, task, trail, seed, pool=4000, steps=40, lr=0.5):
    """The trajectory of the task's network, followed by another network in function
    space: (its trail, agreement).

    At each checkpoint `net` takes `steps` steps of full-batch gradient descent on the
    cross-entropy with the checkpoint's soft outputs on `pool` schema rows, from where
    it was at the checkpoint before: warm starts make the fits a trajectory. Eq. 5 then
    holds as printed for `net`. agreement: the share of other rows that both networks
    class alike at the last checkpoint; below 0.9 a warning. ValueError for a network
    with buffers, or a fit that diverges.
    """
    if net.buffers:
        raise ValueError(
            f"condense.proxy: {net} has running statistics, which a fit on noise would "
            "set; use group norm"
        )
    x = pool_rows(task, pool, seed_of(seed, tag("pool")))
    theta = tmap(lambda v: v.to(x.device).requires_grad_(), net.init(seed, x.dtype))
    said, taken = lambda x: net.out(theta, net.feat(theta, x)), []
    for w in unstack(trail, len(leaves(trail)[0])):
        with torch.no_grad():
            target = task.logits(w, x).softmax(1)
        for _ in range(steps):
            with torch.enable_grad():
                d = torch.autograd.grad(F.cross_entropy(said(x), target), leaves(theta))
            with torch.no_grad():
                for v, dv in zip(leaves(theta), d):
                    v.sub_(dv, alpha=lr)
        taken.append(tmap(lambda v: v.detach().clone(), theta))
    if not all(v.isfinite().all() for v in leaves(theta)):
        raise ValueError(
            f"condense.proxy: the fit with lr = {lr:g} diverged; use a smaller lr"
        )
    with torch.no_grad():
        x = pool_rows(task, min(pool, HELD), seed_of(seed, tag("held out")))
        agreement = float(
            (said(x).argmax(1) == task.logits(w, x).argmax(1)).double().mean()
        )
    if agreement < 0.9:
        warnings.warn(
            f"the server's network agrees with the last checkpoint on {agreement:.0%} "
            f"of held-out rows only; raise steps = {steps} or choose another network",
            stacklevel=2,
        )
    return stack(taken), agreement


# ---------------------------------------------------------------- matching it
def walk(net, v, x, q, step, batches):
    """v after one step of gradient descent per entry of `batches`, differentiable
    in x [n, ...], q [n, K] and step [].

        v <- v - step grad_v CE(f(x_rows; v), q_rows)      the inner loop of Algorithm 1

    batches: row numbers [B], or None for all rows. The graph keeps, for every step, the
    parameters and the forward and backward activations of its rows. Batch norm uses the
    statistics of those rows and leaves its buffers alone.
    """
    names = list(v)
    with torch.enable_grad():
        p = [t if t.requires_grad else t.detach().requires_grad_() for t in v.values()]
        for i in batches:
            xi, qi = (x, q) if i is None else (x[i], q[i])
            w = dict(zip(names, p))
            b = (
                Batch(xi, None, None, None, None, None, len(xi))
                if net.buffers
                else None
            )
            loss = F.cross_entropy(net.out(w, net.feat(w, xi, b)), qi)
            p = [
                t - step * d
                for t, d in zip(p, torch.autograd.grad(loss, p, create_graph=True))
            ]
    return dict(zip(names, p))


def distance(v, a, b, normalised=True):
    """|v - b|^2 (eq. 5), normalised: / |a - b|^2; else late pairs of checkpoints, which
    lie close together, have no say.
    """
    return sqdist(v, b) / (sqdist(a, b) if normalised else 1)


def condense(
    net,
    trail,
    rounds,
    S,
    outer,
    J,
    gap,
    batch=None,
    fixed=None,
    lr_x=0.01,
    lr_q=0.1,
    lr_step=0.02,
    step=0.3,
    normalised=True,
    seed=0,
):
    """Algorithm 1: (synthetic set {"x", "q"}, losses [outer]) from a start S, by
    `outer` steps of Adam.

        p ~ U{0 .. c-2},  q ~ U{p+1 .. min(c-1, p+gap)},
            step = e^alpha (rounds_q - rounds_p) / J
        v = J steps of gradient descent on S from w^p;
            minimise |v - w^q|^2 / |w^p - w^q|^2                                   eq. 5

    over rows (rate lr_x), label logits (lr_q) and alpha (lr_step, from log `step`).
    One alpha serves all gaps: it is a rate per round. The paper has the plain distance
    (normalised=False), plain gradient descent, and no learnable step. batch: rows of
    an inner step, drawn anew, or None for all. fixed: a column of x, or several, that
    stays. outer = 0 returns the start: the control without matching. Draws depend on
    `seed` alone. Memory: one graph (`walk`) at a time, so it grows with J and batch and
    neither with outer nor with c.

    ValueError for fewer than two checkpoints, a trail of another network, two equal
    checkpoints, J, gap or batch below 1, outer below 0, and a loss or gradient that is
    not finite.
    """
    trail, rounds = without(trail, net.buffers), torch.as_tensor(rounds).tolist()
    c, n, x = len(rounds), len(S["x"]), S["x"]
    batch = n if batch is None else batch
    refuse(net, trail, rounds, outer, J, gap, batch)
    g = torch.Generator().manual_seed(seed_of(seed, tag("condense")))
    free = [x.detach().clone(), S["logits"].detach().clone(), x.new_tensor(step).log()]
    m, s, losses = (
        [torch.zeros_like(f) for f in free],
        [torch.zeros_like(f) for f in free],
        [],
    )
    for k in range(1, outer + 1):
        p = int(torch.randint(c - 1, (1,), generator=g))
        q = int(torch.randint(p + 1, min(c - 1, p + gap) + 1, (1,), generator=g))
        a, b = pick(trail, p), pick(trail, q)
        batches = [
            None if batch >= n else torch.randperm(n, generator=g)[:batch].to(x.device)
            for _ in range(J)
        ]
        with torch.enable_grad():
            x, logits, alpha = (f.requires_grad_() for f in free)
            v = walk(
                net,
                a,
                x,
                logits.softmax(1),
                alpha.exp() * ((rounds[q] - rounds[p]) / J),
                batches,
            )
            loss = distance(v, a, b, normalised)
            d, loss = torch.autograd.grad(loss, free), loss.detach()
        if not all(t.isfinite().all() for t in (loss, *d)):
            raise ValueError(
                f"condense: outer step {k}, rounds {rounds[p]} to {rounds[q]}: loss "
                f"{float(loss):g}, and it or its gradient is not finite; use a smaller "
                f"step than {step:g}"
            )
        with torch.no_grad():
            if fixed is not None:
                d[0][:, fixed] = 0
            for f, df, mf, sf, lr in zip(free, d, m, s, (lr_x, lr_q, lr_step)):  # Adam
                mf.lerp_(df, 0.1)
                sf.lerp_(df * df, 0.001)
                f.sub_(lr / (1 - 0.9**k) * mf / ((sf / (1 - 0.999**k)).sqrt() + 1e-8))
        losses.append(loss)
    x, logits, _ = (f.detach() for f in free)
    return {"x": x, "q": logits.softmax(1)}, torch.stack(
        losses
    ) if losses else x.new_zeros(0)


def refuse(net, trail, rounds, outer, J, gap, batch):
    """ValueError for what `condense` cannot do."""
    c, shapes = (
        len(rounds),
        {k: v.shape for k, v in without(net.init(0), net.buffers).items()},
    )
    if c < 2:
        raise ValueError(
            f"condense: {c} checkpoints make no trajectory; collect at least two"
        )
    if {k: v.shape[1:] for k, v in trail.items()} != shapes or any(
        len(v) != c for v in trail.values()
    ):
        raise ValueError(
            f"condense: the trail is not {c} checkpoints of {net}; give one round per "
            "checkpoint, and for another network than the clients' build the trail "
            "with condense.proxy"
        )
    if any(a >= b for a, b in zip(rounds, rounds[1:])):
        raise ValueError(
            f"condense: rounds = {rounds}: sort the checkpoints, one per round"
        )
    for name, value, least in (
        ("outer", outer, 0),
        ("J", J, 1),
        ("gap", gap, 1),
        ("batch", batch, 1),
    ):
        if value < least:
            raise ValueError(f"condense: {name} = {value}; give {least} or more")
    moved = sum((v[1:] - v[:-1]).abs().flatten(1).sum(1) for v in trail.values())
    if not (moved > 0).all():
        i = int((moved > 0).int().argmin())
        raise ValueError(
            f"condense: the checkpoints of rounds {rounds[i]} and {rounds[i + 1]} are "
            "equal or hold NaN; drop one"
        )
