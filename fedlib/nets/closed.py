"""Networks for vectors: linear layers with relu between them, gradient and descent in
closed form.

forward     z_0 = x,   z_l = relu(W_l z_{l-1} + c_l),   l = 1 .. L-1
            p = softmax(W_L z_{L-1} + c_L)                              [K, B]
backward    d_L = (p - onehot(y)) s,   d_{l-1} = (W_l' d_l) [z_{l-1} > 0]
            dF/dW_l = d_l z_{l-1}',   dF/dc_l = d_l 1
update      V <- momentum V + dF/dW + decay W + mu (W - anchor)
            W <- W - lr V

A column is a row of the data, s [B] its share of the mean (1/B): softmax down a column
takes a sixth of the time that it takes along a row. Weights with their biases are one
matrix [W_l | c_l], a bias being the weight of an input that is always 1.
Letters: M clients, B batch, K classes, L layers.
"""

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, zip_longest

import torch
import torch.nn.functional as F

from ..core.tree import batched, onehot, pick, tmap
from .layers import RELU, Rows

# bytes of weights that move together, on a processor what its cache holds; of rows that
# are fetched in one go; of a task's rows that are kept with their 1
TOGETHER = {"cpu": 2**20, "cuda": 2**28}
FETCHED, WITH_ONE = {"cpu": 2**21, "cuda": 2**28}, 2**28


class Closed(Rows):
    """A network of linear layers with relu between them, and nothing else.

    w: the tensors of some layers; rest: those of the others, which stay."""

    dense = None  # the layers' names in forward order; None: there is something else

    def splits(self, rest):
        """Has `rest` some tensors of a layer, but not all?"""
        return any((f"{k}.weight" in rest) != (f"{k}.bias" in rest) for k in self.dense)

    def moving(self, w):
        """The numbers of the layers whose tensors are in w."""
        return [l for l, name in enumerate(self.dense) if f"{name}.weight" in w]

    def gradient(self, w, b, rest=None):
        """The gradient of the mean cross-entropy over the rows that count, in half the
        time of autograd."""
        W = self._joined((rest or {}) | w)
        z, p = forward(W, with_one(b.x.flatten(1)).t())
        d = p - onehot(b.y, self.K, p).t()
        d = d / (len(b.y) or 1) if b.m is None else d * (b.m / b.m.sum().clamp(min=1))
        g = {}
        for l, d_l in backward(W, z, d, self.moving(w)):
            g[f"{self.dense[l]}.weight"] = d_l.mm(z[l][:-1].t())
            g[f"{self.dense[l]}.bias"] = d_l.sum(1)
        return {k: g[k] for k in w}

    def descend(self, w, shard, lr, momentum=0.0, decay=0.0, pull=None, rest=None):
        """`local.sgd` along the gradient, at one client or, under vmap, at all of them
        together. A weight is moved by the product that makes its gradient, W <- W -
        lr/B d z', so no gradient is ever stored."""
        mu, anchor = pull or (0.0, {})
        trees = {"w": w, "rest": rest or {}, "anchor": anchor if mu else {}}
        how = lr, momentum, decay, mu
        # n is there for a client whose trees are everybody's
        f = lambda trees, n: self._descent(shard, how, **trees)
        return batched(f, trees, shard.n)

    def _descent(self, shard, how, w, rest, anchor):
        """The models w [M, ...] of M clients after their batches. Clients of like
        numbers of steps move together, as many as a cache holds."""
        new, size = tmap(torch.empty_like, w), sum(x[0].nbytes for x in w.values())
        many = max(1, TOGETHER[shard.task.x.device.type] // size)
        for k, steps in (tables := shard.ready(timetables, many))[1].items():
            ids, n, rows = tables[0][k].values()
            W = self._joined(pick(rest | w, ids))
            to = self._joined(pick(rest | anchor, ids)) if anchor else []
            walk(shard.task, (rows, n, *steps), W, to, self.moving(w), how)
            write = lambda x, y, ids=ids: x.index_copy_(0, ids, y)
            tmap(write, new, self._parted(W, w))
        return new

    def _joined(self, w):
        """[W_l | c_l] per layer: a bias is the weight of an input that is always 1."""
        weight = lambda name: w[f"{name}.weight"].detach()
        bias = lambda name: w[f"{name}.bias"].detach().unsqueeze(-1)
        return [torch.cat([weight(k), bias(k)], -1) for k in self.dense]

    def _parted(self, W, like):
        """The inverse of `_joined`, in the order of the model `like`."""
        w = {f"{k}.weight": W_l[..., :-1] for k, W_l in zip(self.dense, W)}
        w |= {f"{k}.bias": W_l[..., -1] for k, W_l in zip(self.dense, W)}
        return {k: w[k] for k in like}


@dataclass(frozen=True)
class Linear(Closed):
    """Softmax regression: logits = x W' + c.

    The bias starts at 0, the weights uniform in +-1/sqrt(inputs) (FedGA, Synthetic)."""

    inputs: int
    K: int

    dense, head_start, rows = ("fc",), "zero-bias", (("flat", 1),)


@dataclass(frozen=True)
class MLP(Closed):
    """Linear layers with relu between them; `hidden` is one width or a tuple of widths.

    Images are flattened. norm: "none", or "group" or "batch" for a norm layer after
    each hidden linear layer, before its relu."""

    inputs: int
    hidden: int | tuple[int, ...]
    K: int
    norm: str = "none"

    @property
    def widths(self):
        """The widths of the hidden layers."""
        return (self.hidden,) if isinstance(self.hidden, int) else tuple(self.hidden)

    @property
    def dense(self):
        hidden = [f"fc{i}" for i in range(1, len(self.widths) + 1)]
        return (*hidden, "fc") if self.norm == "none" else None

    @cached_property
    def rows(self):
        rows = [("flat", 1)]
        for i, width in enumerate(self.widths, 1):
            rows += [("dense", f"fc{i}", width), ("norm", f"norm{i}"), RELU]
        return rows


# ---------------------------------------------------------------- many clients at once
def walk(task, table, W, to, moves, how):
    """Move the layers `moves` of the stacks W [M, out, in + 1] in place along the
    clients' batches; those with most steps come first.

    table: see `timetables`. to: where the pull of `how` = (lr, momentum, decay, mu)
    leads, stacks like W."""
    V = [torch.zeros_like(x) for x in W] if how[1] else []
    rows, n, steps, idle = table
    batch = rows.shape[1] * W[0].shape[2] * W[0].element_size()  # bytes
    most = FETCHED[task.x.device.type] // max(1, batch) or 1  # batches
    active, hidden = [], []
    for _, some in groupby(steps, lambda step: step[0] // most):
        begins, sizes, *_ = zip(*(some := list(some)))
        real = slice(begins[0], begins[0] + sum(sizes))
        columns = fetched(task, rows[real], n[real], W[-1].shape[1])
        for (_, k, B, full), *now in zip(some, *(v.split(sizes) for v in columns)):
            x, onehot, share = (v[:, :, :B] for v in now) if B < rows.shape[1] else now
            if not active or k < len(active[0]):  # others have finished
                active, hidden = [v[:k] for v in W], []
                beside = [v[:k] for v in V], [v[:k] for v in to]
            if not hidden or hidden[0].shape[2] != B:
                hidden = [x.new_ones(k, v.shape[1] + 1, B) for v in active[:-1]]
            z, p = forward(active, x, hidden)
            d = p.sub_(onehot) if full else p.sub_(onehot).mul_(share)
            for l, d_l in backward(active, z, d, moves):
                v, u = (stacks[l] if stacks else None for stacks in beside)
                # no gradient moves nobody; decay, a pull, a momentum do
                before = active[l].clone() if idle and any(how[1:]) else None
                move(active[l], v, u, d_l, z[l], 1 / B if full else 1.0, *how)
                if before is not None:
                    busy = share.sum((1, 2), keepdim=True) > 0
                    torch.where(busy, active[l], before, out=active[l])


def move(W, V, to, d, z, s, lr, momentum=0.0, decay=0.0, mu=0.0):
    """The update of a layer by the gradient s d z', in place.

        V <- momentum V + s d z' + decay W + mu (W - to),   W <- W - lr V

    Without momentum the same without V: W <- shrink W - lr s d z' + lr mu to with
    shrink = 1 - lr (decay + mu)."""
    if momentum:
        V.baddbmm_(d, z.mT, beta=momentum, alpha=s)
        V.add_(W, alpha=decay + mu)
        if mu:
            V.sub_(to, alpha=mu)
        W.sub_(V, alpha=lr)
    else:
        W.baddbmm_(d, z.mT, beta=1 - lr * (decay + mu), alpha=-lr * s)
        if mu:
            W.add_(to, alpha=lr * mu)


def fetched(task, rows, n, K):
    """Columns of batches: x [S, D + 1, B], one-hot labels [S, K, B], and each column's
    share of its batch's mean [S, 1, B]; rows [S, B], of which n [S] are real."""
    S, B = rows.shape
    real = torch.arange(B, device=n.device) < n[:, None]
    share = real.double() / n[:, None].clamp(min=1)
    if (few := task.x.nbytes <= WITH_ONE) and "with one" not in task.cache:
        task.cache["with one"] = with_one(task.x.flatten(1))
    x = (task.cache["with one"] if few else task.x).index_select(0, rows.flatten())
    x = (x if few else with_one(x.flatten(1))).view(S, B, -1)
    onehot = x.new_zeros(S, K, B).scatter_(1, task.y[rows][:, None], 1.0)
    return x.mT, onehot, share.to(x)[:, None]


def with_one(x):
    """Rows x [B, D] with a 1 at the end, [B, D + 1]."""
    return F.pad(x, (0, 1), value=1.0)


def forward(W, x, hidden=None):
    """Inputs z_l of all layers, each with a row of ones, and probabilities p.

    W: weights with biases; x [D + 1, B]; or both with a dimension of clients in front.
    hidden: where z_1, z_2, ... are written, whose last row is 1 already."""
    product, z = torch.bmm if x.dim() == 3 else torch.mm, [x]
    for l, W_l in enumerate(W[:-1]):
        a = product(W_l, z[-1])
        if hidden:
            torch.clamp_min(a, 0, out=hidden[l][..., :-1, :])
        z.append(hidden[l] if hidden else F.pad(a.relu(), (0, 0, 0, 1), value=1.0))
    return z, product(W[-1], z[-1]).softmax(-2)


def backward(W, z, d, moves):
    """(l, d_l) of the layers `moves`, from the last to the first; d: that of the last.

    The next d is taken before layer l is handed out, so layer l may be moved then."""
    product, lowest = torch.bmm if d.dim() == 3 else torch.mm, min(moves)
    for l in range(len(W) - 1, lowest - 1, -1):
        before = None
        if l > lowest:  # the row of ones has no layer below it
            below = z[l][..., :-1, :].sign()  # relu' is 1 where relu is not 0
            before = product(W[l][..., :-1].mT, d).mul_(below)
        if l in moves:
            yield l, d
        d = before


def timetables(draws, name, many):
    """The batches of clients, step by step, and in a step client by client; who has
    finished is left out of the steps that follow.

    So many clients at a time, most steps first: ({k: {"ids", "rows", "n"}}, {k: (steps,
    idle)}) with rows [S, B], row numbers of all S batches, padded by their first; n
    [S], how many of them are real; and the steps: batch `begin` is the first, k clients
    take it, batches have at most B rows, and all so many (full). Where clients are to
    look like others, they are idle at the end, in batches of no rows."""
    plans, (most, widest) = draws.drawn(name), draws.bounds.get(name, ((), 0))
    first = sorted(range(len(plans)), key=lambda i: -len(plans[i][1]))
    padded = ((i, *plans[i], T) for i, T in zip_longest(first, most, fillvalue=0))
    filled = [(i, r, n + [0] * (T - len(n))) for i, r, n, T in padded]
    trees, known = {}, {}
    for begin in range(0, len(plans), many):
        ids, rows, lengths = zip(*filled[begin : begin + many])
        step = [t for own in lengths for t in range(len(own))]
        n = torch.tensor([b for own in lengths for b in own], dtype=torch.long)
        order = torch.tensor(step, dtype=torch.long).argsort(stable=True)
        at, n = (n.cumsum(0) - n)[order, None], n[order]
        i = torch.arange(widest or (int(n.max()) if len(n) else 0))
        rows, at = torch.cat(rows), torch.where(i < n[:, None], at + i, at)
        trees[begin] = {"ids": torch.tensor(ids), "n": n}
        trees[begin]["rows"] = rows[at.clamp(max=len(rows) - 1) if most else at]
        steps, S, sizes = [], 0, n.tolist()
        for k in Counter(step).values():
            now = sizes[S : S + k]
            steps.append((S, k, widest or max(now), not most and min(now) == max(now)))
            S += k
        known[begin] = steps, bool(most)
    return trees, known
