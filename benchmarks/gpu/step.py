"""Any network, one step at a time: client after client (`Single`),
or all clients under vmap (`Cohort`).
"""

from __future__ import annotations

import contextlib
from unittest.mock import patch

import torch
import torch.nn.functional as F

from fedlib.core.clients import arithmetic
from fedlib.core.shards import Batch
from fedlib.core.tree import broadcast, mean, tmap, where
from fedlib.nets import layers

from .graph import WARM, eager
from .setups import SEEN, padded, sent


@contextlib.contextmanager
def options(precision="float32", pixels="as fedlib"):
    """Inside, the declared way to compute: tf32 for products and convolutions, or the
    usual memory order of images ("nchw").

    bf16 is up to the step. Outside of "tf32" it is off, for convolutions too, where
    torch has it on.
    """
    with contextlib.ExitStack() as stack:
        if pixels == "nchw":
            stack.enter_context(patch.object(layers, "pixels", lambda x: x))
        stack.enter_context(
            arithmetic(
                "tf32" if precision == "tf32" else "float32", torch.device("cuda")
            )
        )
        yield


class Single:
    """once(t, w) -> the model after round t. Weights and plan of one client lie still;
    a graph for each length of a batch.

    order: memory order of the convolutions' weights, None or torch.channels_last; low:
    a type for autocast, None: none.
    """

    def __init__(self, setup, how=eager, order=None, low=None):
        task = setup.task
        self.setup, self.task, self.low, dev = setup, task, low, setup.device
        lay = lambda v: (
            v.contiguous(memory_format=order) if order and v.dim() == 4 else v.clone()
        )
        self.w = tmap(lambda v: lay(v).requires_grad_(), task.init(0))
        T, B = setup.longest
        self.rows = torch.zeros(T + WARM, B, dtype=torch.long, device=dev)
        self.j = torch.zeros(1, dtype=torch.long, device=dev)
        self.plans = [setup.plan(t) for t in range(SEEN)]
        self.steps = {}
        for n in {n for plan in self.plans for _, lens in plan for n in lens}:
            self.j.zero_()
            self.steps[n] = how(lambda n=n: self.step(n), dev)
        self.padded = [
            p | {"rows": sent(p["rows"], dev)}
            for p in (padded(setup, plan) for plan in self.plans)
        ]

    def step(self, n):
        """One step on the next n rows of the client at hand."""
        r = self.rows.index_select(0, self.j)[0, :n]
        with torch.autocast(
            self.setup.device.type,
            self.low,
            enabled=self.low is not None,
            cache_enabled=False,
        ):
            with torch.enable_grad():
                loss = F.cross_entropy(
                    self.task.logits(self.w, self.task.x[r]), self.task.y[r]
                )
                ds = torch.autograd.grad(loss, list(self.w.values()))
        with torch.no_grad():
            torch._foreach_add_(list(self.w.values()), list(ds), alpha=-self.setup.lr)
            self.j.add_(1)

    @torch.no_grad()
    def once(self, t, w):
        tensors, p = self.padded[t], self.padded[t]["n"] / self.padded[t]["n"].sum()
        rows, total = (
            tensors["rows"].to(self.setup.device, non_blocking=True),
            tmap(torch.zeros_like, w),
        )
        mine = list(self.w.values())
        for i, (_, lens) in enumerate(self.plans[t]):
            torch._foreach_copy_(mine, list(w.values()))
            self.rows[: len(rows[i])].copy_(rows[i])
            self.j.zero_()
            for n in lens:
                self.steps[n]()
            torch._foreach_add_(list(total.values()), mine, alpha=float(p[i]))
        return total


class Cohort:
    """The same for all clients at once by vmap(grad):
    any network, one width, padding masked.
    """

    def __init__(self, setup, how=eager):
        task, M = setup.task, setup.cohort
        self.setup, self.task, dev = setup, task, setup.device
        self.w = tmap(lambda v: v.expand(M, *v.shape).clone(), task.init(0))
        T, B = setup.longest
        self.rows = torch.zeros(T + WARM, M, B, dtype=torch.long, device=dev)
        self.share = torch.zeros(T + WARM, M, B, dtype=task.x.dtype, device=dev)
        self.j = torch.zeros(1, dtype=torch.long, device=dev)
        plans = [padded(setup, setup.plan(t)) for t in range(SEEN)]
        self.plans = [
            p | {k: sent(p[k].transpose(0, 1), dev) for k in ("rows", "share")}
            for p in plans
        ]
        self.one = torch.func.vmap(self.client)
        with torch.no_grad():
            self.step_ = how(self.step, dev)

    def client(self, w, r, s):
        m = (s > 0).to(s.dtype)
        b = Batch(self.task.x[r], self.task.y[r], None, m, r, None, self.task.batch)
        d = torch.func.grad(self.task.loss)(w, b)
        return where(m.sum() > 0, tmap(lambda v, g: v - self.setup.lr * g, w, d), w)

    def step(self):
        r, s = (v.index_select(0, self.j)[0] for v in (self.rows, self.share))
        tmap(lambda v, new: v.copy_(new), self.w, self.one(self.w, r, s))
        self.j.add_(1)

    @torch.no_grad()
    def once(self, t, w):
        plan = self.plans[t]
        tmap(
            lambda v, new: v.copy_(new), self.w, broadcast(w, range(self.setup.cohort))
        )
        for k in ("rows", "share"):
            getattr(self, k)[: len(plan[k])].copy_(plan[k], non_blocking=True)
        self.j.zero_()
        for _ in range(int(plan["steps"].max())):
            self.step_()
        return mean(self.w, (plan["n"] / plan["n"].sum()).to(self.setup.device))
