"""First the head, then the body."""

from dataclasses import dataclass

from ...core.method import Card, hp
from ...core.tree import add
from .fedper import FedPer


@dataclass(frozen=True)
class FedRep(FedPer):
    """Each client fits its head to the shared body, then moves the body a little.

    Collins, Hassani, Mokhtari, Shakkottai. Exploiting Shared Representations for
    Personalized Federated Learning. ICML 2021, Algorithm 1. Only bodies are averaged.

        h_i     <- head_epochs passes of SGD on F_i(theta, .)             eq:fedrep-head
        theta_i <- epochs passes of SGD on F_i(., h_i)                    eq:fedrep-body
        theta   <- sum_i n_i / n  theta_i

    with theta as received and h_i as just fitted. The two descents are separate:
    neither the momentum nor the decay of one moves the other's tensors. A frozen body
    is frozen, running statistics of batch norm included. The paper averages uniformly
    over clients of equal size.
    """

    head_epochs: int = hp(
        10, "passes for the head, at first", "released code", grid=(1, 5, 10)
    )

    card = Card("fedrep2021", "FedPer that fits the head first, then the body")

    def plans(self):
        return super().plans() | {"head": self.plan(self.head_epochs)}

    def local(self, down, mine, shard):
        body, head = self.task.split(mine["w"])
        of_head = self.loss.beside(body)
        head = self.fit(of_head, head, shard.on("head"))  # eq:fedrep-head
        of_body = self.loss.beside(head)
        body = self.descend(self.direction(of_body), body, shard)  # eq:fedrep-body
        return {"w": body | head}, {"w": body, "n": shard.n}

    def direction(self, of_body):
        """(body, batch) -> the body's direction, from its loss."""
        return self.step(of_body)


@dataclass(frozen=True)
class FedRep2x(FedRep):
    """FedRep whose body takes two plain steps on every batch (a control).

        g = grad F_i(theta, h_i)
        theta <- theta - lr (g + grad F_i(theta - lr g, h_i))           eq:fedrep-twice

    Not in the paper. Sharpness-aware variants of FedRep move the body twice per batch,
    the second time along a perturbed gradient; what they gain over this is the
    perturbation. Momentum, decay and running statistics see the pair as one step.
    """

    card = FedRep.card._replace(line="FedRep with two body steps per batch (a control)")

    def direction(self, of_body):
        d = self.step(of_body)

        def twice(v, b):
            g = d(v, b)
            return add(g, d(add(v, g, -self.lr), b))  # eq:fedrep-twice

        return twice
