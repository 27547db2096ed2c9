"""A server that adds an update of its own, around any method; two that are noise."""

import math
from dataclasses import dataclass

from ...core.method import Card, Wrap, hp
from ...core.random import fold, normal, tag, uniform
from ...core.tree import add, leaves, scale, tmap, unrow, without


@dataclass(frozen=True)
class Calibrated(Wrap):
    """From round T0 = floor(R (1 - rho)) on the server adds an update of its own.

        w <- w - lr (AR(g_1 .. g_M) + lam g_s)            eq:calibrated   (EquFL, eq. 6)

    AR is the aggregation of the method inside, which keeps its model in its server
    state under "w". A subclass says what g_s is: `update`.
    """

    plans_ahead = True

    around = "FedAvg"  # the method inside, where none is named

    lam: float = hp(
        1.0, "strength of the server's update", "EquFL", grid=(0.25, 0.5, 1, 2, 4)
    )
    rho: float = hp(
        0.5, "last share of rounds", "EquFL", (0, 1), grid=(0.2, 0.4, 0.5, 0.6, 0.8)
    )

    def phases(self, R):
        """(rounds of the run before the calibrated ones, rounds of training in them).

        They differ for a server that goes back to an earlier model.
        """
        T0 = math.floor(R * (1 - self.rho) + 1e-9)
        return T0, T0

    def server(self, w, r):
        state = super().server(w, r)
        have = state["in"].get("w", {})
        self.check_model(w.keys() <= have.keys())
        return state

    def check_model(self, whole):
        """ValueError where the method inside has no global model."""
        if not whole:
            raise ValueError(
                f"{type(self).__name__} around {type(self.inner).__name__}: the server "
                "holds no whole model under 'w'; take a method with a global model"
            )

    def aggregate(self, server, up, r):
        w, out = server["in"]["w"], super().aggregate(server, up, r)
        shapes = lambda w: {k: v.shape for k, v in w.items()}
        self.check_model(shapes(out["in"]["w"]) == shapes(w))
        if r.t < self.phases(r.R)[0]:
            return out
        out, g_s, log = self.update(out, w, out["in"]["w"], r)
        new, step = out["in"]["w"], self.inner.lr * self.lam
        new = new | add(without(new, self.task.buffers), g_s, -step)  # eq:calibrated
        return out | {"in": out["in"] | {"w": new}, "log": out["log"] | log}

    def update(self, server, w, new, r):
        """(server, g_s, what to log), g_s a tree of parameters.

        w: the model that the clients downloaded; new: the aggregated one.
        """
        raise NotImplementedError(f"{type(self).__name__} has no update")


@dataclass(frozen=True)
class GaussianUpdate(Calibrated):
    """A control: the server's update is noise, g_s ~ N(0, std^2 I)."""

    std: float = hp(2.0, "standard deviation of the noise", "EquFL, appendix F")

    card = Card("equfl", "FedAvg, and the server adds Gaussian noise (a control)")

    def update(self, server, w, new, r):
        key, like = fold(r.key, tag("update")), without(w, self.task.buffers)
        return server, scale(normal(key, like), self.std), {}


@dataclass(frozen=True)
class UniformUpdate(Calibrated):
    """A control: the server's update is noise, uniform in [-bound, bound]^P."""

    bound: float = hp(1.0, "largest size of a coordinate", "a guess: lost")

    card = GaussianUpdate.card._replace(
        line="FedAvg, and the server adds uniform noise (a control)"
    )

    def update(self, server, w, new, r):
        key, like = fold(r.key, tag("update")), without(w, self.task.buffers)
        P, dtype = sum(x.numel() for x in leaves(like)), leaves(like)[0].dtype
        u = unrow(uniform(key, (P,), dtype), like)  # in [0, 1]
        return server, tmap(lambda v: self.bound * (2 * v - 1), u), {}
