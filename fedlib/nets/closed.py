"""Linear layers with relu between them: gradient and descent in closed form.

forward     z_0 = x,   z_l = relu(z_{l-1} W_l' + c_l),   l = 1 .. L-1
            p = softmax(z_{L-1} W_L' + c_L)                              [B, K]
backward    d_L = p - onehot(y),   d_{l-1} = (d_l W_l) [z_{l-1} > 0]
            dF/dW_l = d_l' z_{l-1} / B,   dF/dc_l = d_l' 1 / B
update      V <- momentum V + dF/dW + decay W + mu (W - anchor)
            W <- W - lr V
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from .layers import Net


class Closed(Net):
    """A network of linear layers with relu between them, and nothing else."""

    dense = None  # the layers' names in forward order; None: there is something else

    @property
    def gradient(self):
        """(w, batch) -> the gradient of the mean cross-entropy; None: no closed form.

        The mean is over the rows that count. Half the time of autograd: no graph, few
        operations. Needs tensors that no transform follows.
        """
        return self._gradient if self.dense else None

    @property
    def descend(self):
        """`local.sgd` along the gradient; None: no closed form.

        (w, shard, lr, momentum, decay, pull) -> w. A weight is moved by the product
        that makes its gradient, W <- W - lr/B d' z, so no gradient is ever stored.
        """
        return self._descend if self.dense else None

    def _gradient(self, w, b):
        W = [w[f"{name}.weight"].detach() for name in self.dense]
        c = [w[f"{name}.bias"].detach() for name in self.dense]
        z = [b.x.flatten(1)]
        for W_l, c_l in zip(W[:-1], c[:-1]):
            z.append(F.linear(z[-1], W_l, c_l).relu_())
        d = F.linear(z[-1], W[-1], c[-1]).softmax(1)
        d.scatter_(1, b.y.unsqueeze(1), -1.0, reduce="add")  # p - onehot(y)
        if b.m is None:
            d.div_(len(d) or 1)
        else:
            d.mul_((b.m / b.m.sum().clamp(min=1)).unsqueeze(1))
        g = {}
        for l, d_l in backward(W, z, d):
            g[f"{self.dense[l]}.weight"] = d_l.t().mm(z[l])
            g[f"{self.dense[l]}.bias"] = d_l.sum(0)
        return {k: g[k] for k in w}

    def _descend(self, w, shard, lr, momentum=0.0, decay=0.0, pull=None):
        mu, anchor = pull or (0.0, None)
        W = self._joined(w)
        move = mover(W, lr, momentum, decay, mu, self._joined(anchor) if mu else None)
        for x, y, sizes in shard.pieces():
            onehot = x.new_zeros(len(y), self.K).scatter_(1, y.unsqueeze(1), 1.0)
            batches = with_one(x.flatten(1)).split(sizes), onehot.split(sizes), sizes
            for x_b, y_b, B in zip(*batches):
                z, p = forward(W, x_b)
                for l, d in backward(W, z, p.sub_(y_b)):
                    move(l, d, z[l], B)
        return self._parted(W, w)

    def _joined(self, w):
        """[W_l | c_l] per layer: a bias is the weight of an input that is always 1."""
        weight = lambda name: w[f"{name}.weight"].detach()
        bias = lambda name: w[f"{name}.bias"].detach()[:, None]
        return [torch.cat([weight(k), bias(k)], 1) for k in self.dense]

    def _parted(self, W, like):
        """The inverse of `_joined`, in the order of the model `like`."""
        w = {f"{k}.weight": W_l[:, :-1] for k, W_l in zip(self.dense, W)}
        w |= {f"{k}.bias": W_l[:, -1] for k, W_l in zip(self.dense, W)}
        return {k: w[k].contiguous() for k in like}


def with_one(z):
    """Rows z [B, D] with a 1 at the end, [B, D + 1]."""
    return F.pad(z, (0, 1), value=1.0)


def forward(W, x):
    """Inputs z_l of all layers, each with a 1, and probabilities p [B, K].

    W: weights with biases; x [B, D + 1].
    """
    z = [x]
    for W_l in W[:-1]:
        z.append(with_one(z[-1].mm(W_l.t()).relu_()))
    return z, z[-1].mm(W[-1].t()).softmax(1)


def backward(W, z, d):
    """(l, d_l) for each layer from the last to the first; d: that of the last.

    The next d is taken before layer l is handed out, so layer l may be moved then.
    """
    for l in range(len(W) - 1, 0, -1):
        # the 1 beside z has no layer below it
        before = d.mm(W[l]).mul_(z[l] > 0)[:, : len(W[l - 1])]
        yield l, d
        d = before
    yield 0, d


def mover(W, lr, momentum=0.0, decay=0.0, mu=0.0, anchor=None):
    """move(l, d, z, B): the update of layer l after a batch of B rows, in place on W.

        V <- momentum V + d' z / B + decay W + mu (W - anchor),   W <- W - lr V

    Without momentum the same without V: W <- shrink W - lr/B d' z + lr mu anchor with
    shrink = 1 - lr (decay + mu).
    """
    V = [torch.zeros_like(W_l) for W_l in W] if momentum else None
    shrink = 1 - lr * (decay + mu)

    def with_velocity(l, d, z, B):
        v = V[l].addmm_(d.t(), z, beta=momentum, alpha=1 / B)
        v.add_(W[l], alpha=decay + mu)
        if mu:
            v.sub_(anchor[l], alpha=mu)
        W[l].sub_(v, alpha=lr)

    def plain(l, d, z, B):
        W[l].addmm_(d.t(), z, beta=shrink, alpha=-lr / B)
        if mu:
            W[l].add_(anchor[l], alpha=lr * mu)

    return with_velocity if momentum else plain
