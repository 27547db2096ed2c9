"""What a replay by hand needs: batches, gradients and averages without the engine."""

import numpy as np
import torch
import torch.nn.functional as F

from fedlib.core import engine

SEED = 1
# the two layers of the toy's network
BODY, HEAD = ("fc1.weight", "fc1.bias"), ("fc.weight", "fc.bias")
FIXED = {"lr": 0.2, "shuffle": False}  # the same batches in every pass

# the server's state after so many rounds
served = lambda method, rounds=1, **more: run(method, rounds, **more).state["server"]
f64 = lambda x: torch.as_tensor(np.asarray(x), dtype=torch.float64)
flat = lambda tree: torch.cat([v.flatten() for v in tree.values()])


def run(method, rounds=3, **more):
    usual = {"seed": SEED, "how": "loop", "device": "cpu"}
    return engine.run(method, rounds=rounds, **(usual | more))


def shard_of(method, c, t=0, R=5):
    return method.task.shards(SEED, t, R, torch.tensor([c]), method.plans())[0]


def noise(*shape, seed=0):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=g, dtype=torch.float64)


def near(tree, size=0.3, seed=1):
    """Another model, not far away."""
    g = torch.Generator().manual_seed(seed)
    draw = lambda v: torch.randn(v.shape, generator=g, dtype=v.dtype)
    return {k: v + size * draw(v) for k, v in tree.items()}


def batches(task, c, passes=1):
    """(x, y) of client c's rows, a task's batch at a time, in their own order."""
    for _ in range(passes):
        for r in task.train[c].split(task.batch):
            yield task.x[r], task.y[r]


def mlp(w, x):
    """Logits of the toy's network, MLP(5, 6, 3)."""
    return (x @ w[BODY[0]].T + w[BODY[1]]).clamp(min=0) @ w[HEAD[0]].T + w[HEAD[1]]


def slope_of(f, w, names=None):
    """The gradient of f at w, by autograd; for the tensors named, or for all."""
    p = {k: v.detach().clone() for k, v in w.items()}
    names = list(names or p)
    with torch.enable_grad():
        for k in names:
            p[k].requires_grad_()
        out = torch.autograd.grad(f(p), [p[k] for k in names])
    return dict(zip(names, out))


def slope(w, xy, names=None):
    """The gradient of the mean cross-entropy of MLP(5, 6, 3) on a batch."""
    return slope_of(lambda v: F.cross_entropy(mlp(v, xy[0]), xy[1]), w, names)


def down(w, g, lr):
    return {k: w[k] - lr * g[k] if k in g else w[k] for k in w}


def averaged(models, p):
    """sum_i p_i w_i / sum_i p_i of a list of models."""
    p = f64(p) / f64(p).sum()
    return {k: sum(pi * m[k] for pi, m in zip(p, models)) for k in models[0]}
