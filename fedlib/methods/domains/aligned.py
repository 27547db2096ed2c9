"""A local step that learns the task and keeps features close to the global model's."""

from dataclasses import dataclass

from ...core.local import Plain, grad, in_parts
from ...core.method import hp
from ...core.tree import add
from ...pieces import align
from ..base.fedavg import FedAvg, only


@dataclass(frozen=True)
class Aligned(FedAvg):
    """FedAvg with meta-learning: a step for the task has to leave features aligned.

    A batch is cut in two halves B1 and B2. f(v, B): features of B under v; w_t: the
    model as downloaded, frozen, in evaluation.

        g1 = grad_w F(w; B1),   v = w - ahead g1                      eq:meta-train
        g2 = grad_v [rho F(v; B2) + lam A(f(v, B2), f(w_t, B2))]      eq:meta-test
        w <- w - lr (g1 + g2)                                         eq:meta-step

    v is a virtual step. A: a distance of two clouds of features
    (`fedlib.pieces.align`). meta: "mldg" is the above (after Li et al., AAAI 2018);
    "grace" applies g2 alone (the authors' code of GRACE); "joint" has no virtual step,
    g = grad_w [F(w; B) + lam A]; "none" is plain SGD. second_order differentiates
    through v as well. Momentum and decay act on the real step only; running statistics
    of batch norm are refreshed once, at w. A batch of one row makes no step. With rho =
    1 the task counts twice: a step is about twice as long as plain SGD's.
    """

    meta: str = hp("mldg", "the local step", "ours", ("mldg", "grace", "joint", "none"))
    align: str = hp(
        "coral", "distance of features", "GRACE's readme", tuple(align.LOSSES)
    )
    lam: float = hp(
        0.1, "weight of the alignment", "GRACE's readme", grid=(0, 0.01, 0.1, 1)
    )
    rho: float = hp(1.0, "weight of the task on the second half", "GRACE's code")
    ahead: float = hp(0.0, "step size of the virtual step; 0: lr", "as in DomainBed")
    second_order: bool = hp(False, "through the virtual step", "GRACE's code")

    needs_features = property(lambda self: bool(self.lam))

    def __post_init__(self):
        super().__post_init__()
        if self.meta != "none":
            only(self, "step", Plain, f"meta = {self.meta!r} brings its own")

    def fit(self, loss, w, shard, lr=None, pull=None):
        return self.descend(self.direction(loss, w), w, shard, lr, pull)

    def direction(self, loss, start):
        """(w, batch) -> a tree; features stay close to those of the model `start`."""
        g, ahead, net = self.step(loss), self.ahead or self.lr, self.task.network
        # a network may say what is compared, and whether it has rows
        features = getattr(net, "aligned", net.feat)
        per_row = getattr(net, "per_row", True)

        def A(v, b):
            if not self.lam:
                return 0.0
            z, z_t = features(v, b.x, b), features(start, b.x).detach()
            return align.LOSSES[self.align](z, z_t, b.m if per_row else None)

        def test(v, b):
            return self.rho * loss(v, b) + self.lam * A(v, b)

        def joint(w, b):
            return loss(w, b) + self.lam * A(w, b)

        def through(w, B1, B2):  # second order: v depends on w
            return test(add(w, g(w, B1), -ahead), B2)

        def step(w, B1, B2):
            g1 = g(w, B1)
            v = add(w, g1, -ahead)  # eq:meta-train
            if self.second_order:
                g2 = grad(through)(w, B1, B2)
            else:
                g2 = grad(test)(v, B2)  # eq:meta-test
            return g2 if self.meta == "grace" else add(g1, g2)  # eq:meta-step

        return {"none": g, "joint": grad(joint)}.get(self.meta, in_parts(step, 2))
