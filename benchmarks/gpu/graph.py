"""A step as a CUDA graph: recorded once, replayed without asking for its
operations again.

A step reads and writes tensors that stay where they are: weights, the plan of the
round, and a counter on the device that says which batch is next. Nothing is copied
between two steps and no shape changes; other widths are other graphs.
"""

from __future__ import annotations

import torch

WARM = 3  # runs of a step before it is recorded; plans are longer by so many


def recorded(step, device):
    """step() as a function that replays it.

    The tensors that it changes are changed while it warms up: load them afterwards.
    """
    side = torch.cuda.Stream(device)
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side):
        # libraries choose their kernels and make their work space
        for _ in range(WARM):
            step()
    torch.cuda.current_stream(device).wait_stream(side)
    torch.cuda.synchronize(device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def eager(step, device):
    """The same interface without a graph."""
    return step
