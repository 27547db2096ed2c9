"""Norm layers of one's own."""

from dataclasses import dataclass

from ...core.method import Card
from ...core.tree import without
from .fedper import FedPer


@dataclass(frozen=True)
class FedBN(FedPer):
    """Average everything but the norm layers, which never leave the device.

    Li, Jiang, Zhang, Kamp, Dou. FedBN: Federated Learning on Non-IID Features via Local
    Batch Normalization. ICLR 2021, Algorithm 1.

        min  sum_i n_i / n  F_i(u, b_i)   over u, b_1 .. b_C                    eq:fedbn
        u <- sum_i n_i / n  u_i                                          eq:fedbn-server

    b_i: the norm layers of client i, gain, bias and running statistics; u: all other
    tensors, the head among them. u and b_i are trained together. Every client receives
    the new u, trained or not, under its own b_i. For clients whose inputs differ
    (scanner, camera, pen) and whose labels mean the same. The paper has batch norm, all
    clients in every round, and the plain average. A guest has the b of the start: it
    must train before its model is of use.
    """

    card = Card("fedbn2021", "shared layers, averaged; norm layers stay at the client")

    def __post_init__(self):
        super().__post_init__()
        if self.task is not None and not self.norms:
            raise ValueError(
                f"FedBN keeps the norm layers at home, and {self.task.network} names "
                'none (`norms`): give the task a network with norm="batch"'
            )

    @property
    def norms(self):
        """Names of the tensors that stay at the client."""
        return getattr(self.task.network, "norms", ())

    def server(self, w, r):
        return {"w": without(w, self.norms)}

    def local(self, down, mine, shard):
        w = self.fit(self.loss, mine["w"], shard)  # eq:fedbn
        # averaged: eq:fedbn-server
        return {"w": w}, {"w": without(w, self.norms), "n": shard.n}
