"""A global model that is good after one step of adaptation."""

from dataclasses import dataclass

from ...core.local import Plain, grad, in_parts, sgd
from ...core.method import Card, hp
from ...core.task import Fitted
from ...core.tree import add, sqnorm, sub
from ..base.fedavg import Uniform, only


@dataclass(frozen=True)
class PerFedAvg(Uniform):
    """Looks for a model that is good at each client after one gradient step there.

    Fallah, Mokhtari, Ozdaglar. Personalized Federated Learning with Theoretical
    Guarantees: A Model-Agnostic Meta-Learning Approach. NeurIPS 2020, Algorithm 1.
    A batch is cut into parts B1, B2 and, for "HF", B3.

        min_w  mean_i F_i(w - alpha grad F_i(w))                      eq:perfedavg
        v  = w - alpha g(w; B1),   g2 = g(v; B2)                      eq:perfedavg-ahead
        FO:  w <- w - lr g2                                           eq:perfedavg-fo
        HF:  w <- w - lr [ g2 - alpha (g(w + d g2; B3) - g(w - d g2; B3)) / (2 d) ]
                                                                      eq:perfedavg-hf

    The exact gradient is (I - alpha H) g2: FO leaves the Hessian out, HF replaces
    H g2 by a difference of gradients, order "exact" differentiates through v.
    d = delta / |g2|: a fixed d drowns in rounding where gradients are small. View
    "global" is w as it is; "personal" is w after one such step on one batch of the
    client's rows, "tuned" after a pass over all of them. alpha = 0 is Uniform on the
    second part of every batch. A batch with fewer rows than parts makes no step.
    """

    alpha: float = hp(
        0.01, "step of the adaptation", "section 5", grid=(0.001, 0.01, 0.1)
    )
    order: str = hp("FO", "reading of the Hessian", "section 4", ("FO", "HF", "exact"))
    delta: float = hp(1e-3, "length of the difference step", "a choice", (1e-12, 1))

    card = Card("fallah2020perfedavg", "a model that is good after one step")

    def __post_init__(self):
        super().__post_init__()
        only(self, "step", Plain, "this method brings its own")

    def plans(self):
        return super().plans() | {"adapt": self.plan(1, steps=1), "tune": self.plan(1)}

    def fit(self, loss, w, shard, lr=None, pull=None):
        return self.descend(self.direction(loss), w, shard, lr, pull)

    def direction(self, loss):
        """(w, batch) -> a tree."""
        g = self.step(loss)

        def after(w, first, second):
            return loss(add(w, g(w, first), -self.alpha), second)

        def step(w, first, second, *third):
            if self.order == "exact":
                return grad(after)(w, first, second)
            g2 = g(add(w, g(w, first), -self.alpha), second)  # eq:perfedavg-ahead
            if self.order == "FO":
                return g2
            d, (third,) = self.delta / sqnorm(g2).sqrt().clamp(min=1e-12), third
            change = sub(g(add(w, g2, d), third), g(add(w, g2, -d), third))
            return add(g2, change, -self.alpha / (2 * d))  # eq:perfedavg-hf

        return in_parts(step, 3 if self.order == "HF" else 2)

    def views(self, down, mine, shard):
        def adapted(plan):
            fit = lambda: sgd(g, down["w"], shard.on(plan), self.alpha)
            return Fitted(self.task, fit)

        g = self.step(self.loss)
        return super().views(down, mine, shard) | {
            "personal": adapted("adapt"),
            "tuned": adapted("tune"),
        }
