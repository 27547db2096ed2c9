"""Averaging: the method that all others change."""

from dataclasses import dataclass

from ...core.method import Card, Method, uniform_weights
from ...core.tree import normalize


@dataclass(frozen=True)
class FedAvg(Method):
    """Train locally, send the models, average them by size.

    McMahan, Moore, Ramage, Hampson, Agueera y Arcas. Communication-Efficient Learning
    of Deep Networks from Decentralized Data. AISTATS 2017, Algorithm 1.

        w <- sum_i n_i / n  w_i                                                eq:fedavg
    """

    card = Card("mcmahan2017", "local training, then the size-weighted average")

    def local(self, down, mine, shard):
        w = self.fit(self.loss, down["w"], shard)
        return mine, {"w": w, "n": shard.n}

    def aggregate(self, server, up, r):
        p = self.weights(up)
        w = self.combine(server["w"], up["w"], p)  # eq:fedavg
        return {"w": w, "log": {"weight": p}}

    def weights(self, up):
        """Aggregation weights [M] that sum to one."""
        return normalize(up["n"])


@dataclass(frozen=True)
class Uniform(FedAvg):
    """FedAvg in which every client counts the same, p_i = 1/M.

    The control for every fair weighting.
    """

    card = FedAvg.card._replace(line="local training, then the plain average")

    def weights(self, up):
        return uniform_weights(up["n"])


def only(method, name, kind, why):
    """ValueError where a method's piece, its step or rule, is another than kind()."""
    if (v := getattr(method, name)) != kind():
        at = f"{type(method).__name__}.{name} = {v!r}"
        raise ValueError(f"{at}: {why}; leave it at {kind.__name__}()")
