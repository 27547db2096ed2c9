"""Keep some layers, average the others, and let the average be flat."""

from dataclasses import dataclass
from math import inf

import torch

from ...core.method import Card, hp
from ...core.random import fold, tag, uniform
from ...core.task import Fitted
from ...core.tree import add, where
from ..base.fedavg import FedAvg
from .plgu import TINY, LayerWise, largest, mix, spread


@dataclass(frozen=True)
class PLGULF(LayerWise, FedAvg):
    """Each client trains its own model, and a perturbed copy of the common one.

    Qu, Li, Han, Duan, Shen, Chen. How to Prevent the Poor Performance Clients for
    Personalized Federated Learning. CVPR 2023, Algorithms 1 and 2.

        theta_i <- theta_i on the D layers of the largest xi_i, else w      eq:plgu-mix
        theta_i <- theta_i - lr g,   u <- u - lr grad F(u + e)              eq:plgu-pair
        w       <- sum_i n_i / n  u_i                                       eq:fedavg

    u starts at w; only these copies are averaged. g is the gradient at theta_i, e the
    perturbation it gives (LayerWise), both from the same batch: two gradients a batch
    (`direction` = "w" takes a third). As printed, Algorithm 1 moves u by gradients of
    theta_i; `at` = "theta" does. "Frozen" layers are not overwritten by the download,
    but train: never trained, they would lag ever further and be chosen for ever
    (`freeze`). `keep` names the D layers: those that moved most; as controls the last
    or the first of the network, or others by chance in every training. A client that
    trains for the first time has nothing of its own: it takes w, and every score is 1
    (`first` = "initial": it is scored against the initial model). One that never
    trained is served by w. Views: personal is theta_i as its last training left it;
    refreshed is eq:plgu-mix applied to it now. Running statistics of batch norm belong
    to no layer: a download overwrites them all. Limits, with equal scores, direction w
    and D = 0: w is FedSAM's if universal layers are perturbed and FedAvg's if personal
    ones are; with D = L the other way round. The paper claims both (4.1 and 6.3).
    """

    D: int = hp(
        -1, "own layers; -1: 5 or L/4", "section 6.3", (-1, inf), grid=(0, 1, 5, 10)
    )
    keep: str = hp(
        "moved",
        "which layers are personal",
        "equation 6; the others are controls",
        ("moved", "last", "first", "random"),
        absent="moved",
    )
    perturb: str = hp(
        "all", "which", "Algorithm 1", ("all", "personal", "universal", "none")
    )
    direction: str = hp(
        "theta", "whose gradient gives e", "Algorithm 1, line 6", ("theta", "w")
    )
    at: str = hp("w", "where it is taken", "a choice; line 7: theta", ("w", "theta"))
    freeze: bool = hp(False, "personal layers do not train", "a choice")
    first: str = hp(
        "copy", "scores of a first training", "a choice", ("copy", "initial")
    )
    uniform: bool = hp(False, "all scores 1: SAM on every layer", "a control")

    card = Card("plgu2023", "own layers, and a common model made flat layer by layer")
    post = ("personal",)

    def __post_init__(self):
        super().__post_init__()
        if self.task is not None and self.D > self.L:
            raise ValueError(
                f"{type(self).__name__}.D = {self.D}: {self.task.network} has {self.L} "
                "layers; give 0 (all averaged) to as many (all personal)"
            )

    @property
    def L(self):
        """Number of layers."""
        return len(self.units(self.task.shapes))

    def client(self, w, shard):
        return {"w": w, "seen": shard.n < 0}

    def start(self, w, mine, key):
        """(theta_i as a round starts, scores s [L], personal layers [L]); key: the
        client's, of this round."""
        m, seen = self.movement(mine["w"], w), mine["seen"] | (self.first == "initial")
        D = self.D if self.D >= 0 else min(5, max(1, self.L // 4))
        own = largest(self.order(m, key), D) & seen & (m.sum() > TINY)
        equal = torch.ones_like(m)
        s = torch.where(seen & (not self.uniform), self.scores(m), equal)
        return mix(own, mine["w"], w, self.units(w)), s, own  # eq:plgu-mix

    def order(self, m, key):
        """[L]: the D layers with the largest values are personal; m: movements [L]."""
        if self.keep == "random":
            return uniform(fold(key, tag("keep")), (len(m),))
        at = torch.arange(len(m), device=m.device)
        return {"moved": m, "last": at, "first": -at}[self.keep]

    def local(self, down, mine, shard):
        theta, s, own = self.start(down["w"], mine, shard.key)
        personal = own.to(s.dtype)  # [L], 1 for a personal layer
        universal = 1 - personal
        part = {"personal": personal, "universal": universal}.get(self.perturb)
        units, gradient = self.units(theta), self.step(self.loss)

        def frozen(g, theta):  # neither gradient nor decay moves personal layers
            kept = spread(personal, theta, units)
            return add(spread(universal, g, units), kept, -self.decay)

        def direction(models, b):
            theta, u = models["theta"], models["w"]
            g = gradient(theta, b)
            along = g if self.direction == "theta" else gradient(u, b)
            e = self.perturbation(along, s, part)
            g_u = gradient(add(models[self.at], e), b)
            g = frozen(g, theta) if self.freeze else g
            return {"theta": g, "w": g_u}  # eq:plgu-pair

        models = {"theta": theta, "w": down["w"]}
        models = self.descend(direction, models, shard)
        mine = {"w": models["theta"], "seen": torch.ones_like(mine["seen"])}
        return mine, {"w": models["w"], "n": shard.n}

    def views(self, down, mine, shard):
        task, w = self.task, down["w"]
        return {
            "global": task.net(w),
            "personal": Fitted(task, lambda: where(mine["seen"], mine["w"], w)),
            "refreshed": Fitted(task, lambda: self.start(w, mine, shard.key)[0]),
        }
