"""What the device reaches, and the time in which it could do a round: the longer of the
arithmetic and of the memory traffic.
"""

from __future__ import annotations

import contextlib

import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from .setups import now
from .step import options

MODES = ("float32", "tf32", "bf16")


def best(f, work, device, reps=7):
    """Work per second, the best of several."""
    f()
    top = 0.0
    for _ in range(reps):
        began = now(device)
        f()
        top = max(top, work / (now(device) - began))
    return top


def machine(device):
    """{mode: {"product": FLOP/s, "convolution": FLOP/s}, "copy": bytes/s};
    small sizes on a CPU.
    """
    big = device.type == "cuda"
    n, B, c, side = (8192, 256, 128, 32) if big else (512, 8, 32, 16)
    a, b = torch.randn(2, n, n, device=device)
    x = torch.randn(B, c, side, side, device=device).contiguous(
        memory_format=torch.channels_last
    )
    w = torch.randn(c, c, 3, 3, device=device).contiguous(
        memory_format=torch.channels_last
    )
    out = {}
    for mode in MODES if big else ("float32",):
        cast = (
            torch.autocast(device.type, torch.bfloat16)
            if mode == "bf16"
            else contextlib.nullcontext()
        )
        with options("tf32" if mode == "tf32" else "float32"), cast, torch.no_grad():
            out[mode] = {
                "product": best(lambda: a @ b, 2 * n**3, device),
                "convolution": best(
                    lambda: F.conv2d(x, w, padding=1),
                    2 * B * side**2 * 9 * c * c,
                    device,
                ),
            }
    to = torch.empty(2 ** (28 if big else 24), dtype=torch.uint8, device=device)
    source = torch.ones_like(to)
    # read and written
    out["copy"] = best(lambda: to.copy_(source), 2 * to.numel(), device)
    return out


def work(setup):
    """FLOP and bytes of an average round: rows forward and backward; a step reads the
    weights, and again to write them.
    """
    task, w = setup.task, {k: v.requires_grad_() for k, v in setup.task.init(0).items()}
    r = task.train[0][: task.batch].to(setup.device)
    with FlopCounterMode(display=False) as count, torch.enable_grad():
        torch.autograd.grad(
            F.cross_entropy(task.logits(w, task.x[r]), task.y[r]), list(w.values())
        )
    sizes = torch.tensor([len(c) for c in task.train], dtype=torch.double)
    steps, rows = (
        (sizes / task.batch).ceil().mean() * setup.cohort,
        sizes.mean() * setup.cohort,
    )
    P = sum(v.numel() for v in w.values())
    traffic = 4 * (3 * P * steps + rows * task.x[0].numel())
    return {
        "flop": float(count.get_total_flops() / len(r) * rows),
        "bytes": float(traffic),
    }


def floor(load, reach, mode, linear):
    """(seconds, "flop" or "bytes": which of the two)."""
    by = {
        "flop": load["flop"]
        / reach.get(mode, reach["float32"])["product" if linear else "convolution"],
        "bytes": load["bytes"] / reach["copy"],
    }
    what = max(by, key=by.get)
    return by[what], what
