"""Linear layers with relu between them: the gradient in closed form, and descent along
it without a graph.

z_0 = x,  z_l = relu(z_{l-1} W_l' + c_l),  p = softmax(z_{L-1} W_L' + c_L)
d_L = p - onehot(y)                  [B, K]
d_{l-1} = (d_l W_l) [z_{l-1} > 0]    dW_l = d_l' z_{l-1} / B    dc_l = d_l' 1 / B
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from .layers import Net


class Closed(Net):
    """A network of linear layers `dense` (their names, in forward order); None where
    something stands between them.
    """

    dense = None

    @property
    def gradient(self):
        """(w, batch) -> the gradient of the mean cross-entropy over the rows that
        count; None without a closed form.

        Half the time of autograd: no graph, few operations. Needs tensors that no
        transform follows.
        """
        return self._gradient if self.dense else None

    @property
    def descend(self):
        """(w, shard, lr, momentum, decay, pull) -> w after `local.sgd` along the
        gradient; None without a closed form.

        A weight is moved by the product that makes its gradient, W <- W - lr/B d' z, so
        no gradient is ever stored.
        """
        return self._descend if self.dense else None

    def _gradient(self, w, b):
        W, c = (
            [w[f"{name}.{leaf}"].detach() for name in self.dense]
            for leaf in ("weight", "bias")
        )
        z = [b.x.flatten(1)]
        for Wl, cl in zip(W[:-1], c[:-1]):
            z.append(F.linear(z[-1], Wl, cl).relu_())
        d = F.linear(z[-1], W[-1], c[-1]).softmax(1)
        d.scatter_(1, b.y.unsqueeze(1), -1.0, reduce="add")
        d = (
            d.div_(len(d) or 1)
            if b.m is None
            else d.mul_((b.m / b.m.sum().clamp(min=1)).unsqueeze(1))
        )
        g = {}
        for l in reversed(range(len(W))):
            g[f"{self.dense[l]}.weight"], g[f"{self.dense[l]}.bias"] = (
                d.t().mm(z[l]),
                d.sum(0),
            )
            d = d.mm(W[l]).mul_(z[l] > 0) if l else None
        return {k: g[k] for k in w}

    def _descend(self, w, shard, lr, momentum=0.0, decay=0.0, pull=None):
        mu, anchor = pull or (0.0, None)
        W = self._joined(w)
        A = self._joined(anchor) if mu else None
        V = [torch.zeros_like(P) for P in W] if momentum else None
        shrink, Wt, last = 1 - lr * (decay + mu), [P.t() for P in W], len(W) - 1

        def move(l, d, z, n):
            """W_l <- W_l - lr (d' z / n + decay W_l + mu (W_l - anchor_l)), or the same
            through the velocity V_l.
            """
            if momentum:
                V[l].addmm_(d.t(), z, beta=momentum, alpha=1 / n).add_(
                    W[l], alpha=decay + mu
                )
                if mu:
                    V[l].sub_(A[l], alpha=mu)
                W[l].sub_(V[l], alpha=lr)
            else:
                W[l].addmm_(d.t(), z, beta=shrink, alpha=-lr / n)
                if mu:
                    W[l].add_(A[l], alpha=lr * mu)

        for x, y, cut in shard.pieces():
            y = torch.zeros(len(y), self.K, dtype=x.dtype, device=x.device).scatter_(
                1, y.unsqueeze(1), 1.0
            )
            for xb, yb, n in zip(
                beside_one(x.flatten(1)).split(cut), y.split(cut), cut
            ):
                z = [xb]
                for Pt in Wt[:-1]:
                    z.append(beside_one(z[-1].mm(Pt).relu_()))
                d = z[-1].mm(Wt[-1]).softmax(1).sub_(yb)
                for l in range(last, 0, -1):
                    before = d.mm(W[l]).mul_(z[l] > 0)[:, :-1]  # at W_l as it was
                    move(l, d, z[l], n)
                    d = before
                move(0, d, xb, n)
        out = {
            f"{name}.{leaf}": v
            for name, P in zip(self.dense, W)
            for leaf, v in (("weight", P[:, :-1]), ("bias", P[:, -1]))
        }
        return {k: out[k].contiguous() for k in w}

    def _joined(self, w):
        """[W_l | c_l], one matrix per layer:
        then a bias is a weight of an input that is always 1.
        """
        return [
            torch.cat(
                [w[f"{name}.weight"].detach(), w[f"{name}.bias"].detach()[:, None]], 1
            )
            for name in self.dense
        ]


def beside_one(z):
    """Rows z [B, D] with a 1 at the end, [B, D + 1]."""
    return F.pad(z, (0, 1), value=1.0)
