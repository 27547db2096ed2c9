"""Peak memory of a federation in which every client keeps a model of its own.

    python -m benchmarks.memory
            ResNet-18, one round of each method, several numbers of clients
    python -m benchmarks.memory --methods PLGU-LF --clients 100 --cohorts 4

What is kept (clients x model) is unavoidable; what comes on top must depend on the
cohort (loop) or the chunk (vmap), never on the number of clients. Each line runs in a
process of its own. Writes results/benchmarks-memory.csv.
"""

from __future__ import annotations

import itertools
import resource

import torch

from . import harness

MIB = 2**20
KEY = ["method", "how", "chunk", "cohort", "clients"]


def peak():
    """Largest resident size of this process so far, MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def one(method, clients, cohort, how, chunk, side):
    """The row of one round of a method on ResNet-18 with GroupNorm and tiny images."""
    import fedlib
    from fedlib.core.pool import Pool
    from fedlib.core.tree import leaves
    from fedlib.nets import ResNet18

    torch.set_num_threads(1)
    g, N = torch.Generator().manual_seed(0), clients * 6
    x, y = (
        torch.randn(N, 3, side, side, generator=g),
        torch.randint(10, (N,), generator=g),
    )
    pool, rows = Pool("noise", x, y, 10, "synthetic"), torch.arange(N).split(6)
    network, parts = ResNet18(10, stem="cifar", norm="group"), (0.7, 0, 0.3)
    task = fedlib.Task.from_rows("noise", network, pool, rows, parts=parts, batch=4)
    before = peak()
    way = {"cohort": cohort, "how": how, "chunk": chunk, "device": "cpu"}
    more = {"rounds": 1, "every": 1, "splits": ("test",), "progress": False}
    rec = fedlib.run(fedlib.make(method, task), **way, **more)
    top, size = peak() - before, lambda v: v.numel() * v.element_size() / MIB
    model = sum(map(size, task.init(0).values()))
    own = sum(map(size, leaves(rec.state["clients"])))
    out = {"method": method, "clients": clients, "cohort": cohort, "how": how}
    out |= {"chunk": chunk, "model_mib": model, "kept_mib": own, "peak_mib": top}
    return out | {"beside_in_models": (top - own) / model}


def main():
    p = harness.parser("memory", __doc__)
    p.add_argument("--methods", nargs="+", default=["Ditto", "FedPer", "PLGU-LF"])
    p.add_argument("--clients", type=int, nargs="+", default=[10, 40, 100])
    p.add_argument("--cohorts", type=int, nargs="+", default=[2, 4])
    p.add_argument("--how", choices=("loop", "vmap"), default="loop")
    p.add_argument("--chunk", type=int)
    p.add_argument("--side", type=int, default=32, help="pixels per side of the images")
    args, rows = p.parse_args(), []
    for case in itertools.product(args.methods, args.clients, args.cohorts):
        rows.append(harness.fresh(one, *case, args.how, args.chunk, args.side))
        harness.show(rows[-1:])
    harness.keep(rows, args.out, key=KEY)


if __name__ == "__main__":
    main()
