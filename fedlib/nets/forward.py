"""Batch norm and dropout of an nn.Module in training, as our own networks have them.

torch hands every call of its functions to a `TorchFunctionMode` first; `Training` takes
those that mix the rows of a batch or draw at random, and passes on the others.
Letters: B batch, T tokens, D feature width.
"""

from __future__ import annotations

import inspect
import math

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from ..core.random import fold, tag, uniform
from .layers import batch_norm


class Training(TorchFunctionMode):
    """A forward pass in training mode on the batch b.

    names: {id of a running statistic: its name}; stats receives the updated ones, if it
    is a dict. (torch hands every call of a function to the innermost mode.)
    """

    def __init__(self, b, stats, names):
        super().__init__()
        self.b, self.stats, self.names = b, stats, names
        self.draws, self.acted = 0, False

    def __torch_function__(self, func, types, args=(), kwargs=None):
        ours = OURS.get(func)
        if ours is None:
            return func(*args, **(kwargs or {}))
        self.acted = True
        return ours(self, *args, **(kwargs or {}))

    def batch_norm(self, input, mean, var, weight, bias, training, momentum, eps):
        """`layers.batch_norm` in place of torch's: only rows that count are counted."""
        if not training:
            return F.batch_norm(input, mean, var, weight, bias, False, momentum, eps)
        if id(mean) not in self.names:
            raise ValueError("batch norm needs track_running_stats = True here")
        known = {self.names[id(v)]: v for v in (mean, var)}
        stats = {} if self.stats is None else self.stats
        mean, var = (stats.get(k, v) for k, v in known.items())  # may be used twice
        one = input.new_ones(input.shape[1])
        w = {
            "norm.weight": one if weight is None else weight,
            "norm.bias": one - 1 if bias is None else bias,
            "norm.running_mean": mean,
            "norm.running_var": var,
        }
        b, new = self.b, None if self.stats is None else {}
        if b.m is not None and len(input) != len(b.m):  # rows [B, T, D] as [B T, D]
            b = b._replace(m=b.m.repeat_interleave(len(input) // len(b.m)))
        z = batch_norm(w, "norm", input, b, new, eps, momentum)
        if new is not None:
            stats |= zip(known, (new["norm.running_mean"], new["norm.running_var"]))
        return z

    def dropout(self, input, p=0.5, training=True, inplace=False, train=True):
        """input with a share p of its entries 0 and the others / (1 - p)."""
        return self.dropped(input, p, input.shape) if training and train else input

    def channels(self, input, p=0.5, training=True, inplace=False):
        """The same for whole channels of input [B, channels, ...]."""
        shape = (*input.shape[:2], *(1 for _ in input.shape[2:]))
        return self.dropped(input, p, shape) if training else input

    def dropped(self, z, p, shape):
        """The k-th draw of a batch is a function of its key, k and the row's number;
        without a key nothing is drawn."""
        b, self.draws = self.b, self.draws + 1
        if not p or b.key is None:
            return z
        B = len(b.x)
        if shape[0] % B:
            raise ValueError(
                f"dropout sees {list(z.shape)}, not the batch first; use batch_first"
            )
        keys = fold(b.key, tag("dropout"), self.draws, b.row)[:, None]  # [B, 1]
        u = uniform(keys, (math.prod(shape) // B,)).view(shape)
        return z * ((u >= p).to(z.dtype) / (1 - p if p < 1 else 1))

    def attention(
        self, query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, **how
    ):
        """softmax(q k' / sqrt(d)) v, with dropout on the softmax."""
        if not dropout_p or self.b.key is None:
            attend = F.scaled_dot_product_attention
            return attend(query, key, value, attn_mask, is_causal=is_causal, **how)
        if how.get("enable_gqa"):
            many = query.shape[-3] // key.shape[-3]
            key, value = (v.repeat_interleave(many, -3) for v in (key, value))
        s = query @ key.mT * (how.get("scale") or 1 / math.sqrt(query.shape[-1]))
        if is_causal:
            attn_mask = torch.ones_like(s, dtype=torch.bool).tril()
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            s = s.masked_fill(~attn_mask, -math.inf)
        elif attn_mask is not None:
            s = s + attn_mask
        return self.dropped(s.softmax(-1), dropout_p, s.shape) @ value

    def heads(self, *args, training=True, **kwargs):
        """torch's own multi-head attention draws inside, out of our reach."""
        if args[DROPOUT_P] and training:
            raise ValueError(
                "nn.MultiheadAttention draws where nobody can repeat it; set its "
                "dropout = 0.0 (layer.self_attn.dropout = 0.0)"
            )
        return F.multi_head_attention_forward(*args, training=training, **kwargs)


# the place of this argument of torch's function
PARAMETERS = inspect.signature(F.multi_head_attention_forward).parameters
DROPOUT_P = [*PARAMETERS].index("dropout_p")
OURS = {
    F.batch_norm: Training.batch_norm,
    F.dropout: Training.dropout,
    torch.dropout: Training.dropout,
    F.dropout1d: Training.channels,
    F.dropout2d: Training.channels,
    F.dropout3d: Training.channels,
    F.scaled_dot_product_attention: Training.attention,
    F.multi_head_attention_forward: Training.heads,
}
