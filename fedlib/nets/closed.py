"""Linear layers with relu between them: the gradient in closed form, and descent along it without a graph.

    z_0 = x,  z_l = relu(z_{l-1} W_l' + c_l),  p = softmax(z_{L-1} W_L' + c_L)
    d_L = p - onehot(y)                  [B, K]
    d_{l-1} = (d_l W_l) [z_{l-1} > 0]    dW_l = d_l' z_{l-1} / B    dc_l = d_l' 1 / B
"""
from __future__ import annotations

import torch
import torch.nn.functional as F

from .layers import Net


class Closed(Net):
    """A network of linear layers `dense` (their names, in forward order); None where something stands between them."""
    dense = None

    @property
    def gradient(self):
        """(w, batch) -> the gradient of the mean cross-entropy over the rows that count; None without a closed form.

        Half the time of autograd: no graph, few operations. Needs tensors that no transform follows.
        """
        return self._gradient if self.dense else None

    @property
    def descend(self):
        """(w, shard, lr, momentum, decay, pull) -> w after `local.sgd` along the gradient; None without a closed form.

        A weight is moved by the product that makes its gradient, W <- W - lr/B d' z, so no gradient is ever stored.
        """
        return self._descend if self.dense else None

    def _gradient(self, w, b):
        W, c = self._tensors(w)
        z = activations(W, c, b.x.flatten(1))
        d = torch.addmm(c[-1], z[-1], W[-1].t()).softmax(1)
        d.scatter_(1, b.y.unsqueeze(1), -1.0, reduce="add")
        d = d.div_(len(d) or 1) if b.m is None else d.mul_((b.m / b.m.sum().clamp(min=1)).unsqueeze(1))
        g = {}
        for l in reversed(range(len(W))):
            g[f"{self.dense[l]}.weight"], g[f"{self.dense[l]}.bias"] = d.t().mm(z[l]), d.sum(0)
            d = d.mm(W[l]).mul_(z[l] > 0) if l else None
        return {k: g[k] for k in w}

    def _descend(self, w, shard, lr, momentum=0.0, decay=0.0, pull=None):
        mu, anchor = pull or (0.0, None)
        w = {k: v.detach().clone() for k, v in w.items()}
        W, c = self._tensors(w)
        A, a = self._tensors(anchor) if pull else (None, None)
        V, v = ([torch.zeros_like(p) for p in ps] if momentum else None for ps in (W, c))

        def move(product, P, past, to, left, right, n):
            """P <- P - lr (left right / n + decay P + mu (P - anchor)), or the same through the velocity `past`."""
            if momentum:
                product(past, left, right, beta=momentum, alpha=1 / n)
                if decay or mu:
                    past.add_(P, alpha=decay + mu)
                if mu:
                    past.sub_(to, alpha=mu)
                P.sub_(past, alpha=lr)
            else:
                product(P, left, right, beta=1 - lr * (decay + mu), alpha=-lr / n)
                if mu:
                    P.add_(to, alpha=lr * mu)

        for x, y, cut in shard.pieces():
            y = torch.zeros(len(y), self.K, dtype=x.dtype, device=x.device).scatter_(1, y.unsqueeze(1), 1.0)
            one = x.new_ones(max(cut))
            for xb, yb, n in zip(x.flatten(1).split(cut), y.split(cut), cut):
                z = activations(W, c, xb)
                d = torch.addmm(c[-1], z[-1], W[-1].t()).softmax(1).sub_(yb)
                for l in range(len(W) - 1, -1, -1):
                    before = d.mm(W[l]).mul_(z[l] > 0) if l else None          # at W_l as it was
                    t = d.t()
                    move(torch.Tensor.addmm_, W[l], V and V[l], A and A[l], t, z[l], n)
                    move(torch.Tensor.addmv_, c[l], v and v[l], a and a[l], t, one[:n], n)
                    d = before
        return w

    def _tensors(self, w):
        """(weights, biases) of the layers."""
        return tuple([w[f"{name}.{leaf}"].detach() for name in self.dense] for leaf in ("weight", "bias"))


def activations(W, c, x):
    """[z_0, ..., z_{L-1}] of rows x [B, D], one [B, width] per layer's input."""
    z = [x]
    for Wl, cl in zip(W[:-1], c[:-1]):
        z.append(F.linear(z[-1], Wl, cl).relu_())
    return z
