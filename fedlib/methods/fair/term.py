"""Weights that grow exponentially with the loss."""

import math
from dataclasses import dataclass

from ...core.method import Card, hp
from ...core.tree import normalize
from ...pieces.steps import Private
from ..base.fedavg import FedAvg


@dataclass(frozen=True)
class TERM(FedAvg):
    """FedAvg on a tilted mean of the clients' losses: between the mean and the worst.

    Li, Beirami, Sanjabi, Smith. Tilted Empirical Risk Minimization. ICLR 2021,
    equations 2 and 4, clients as groups. tilt is its t, row_tilt its tau.

        J(w)   = 1/tilt log sum_i n_i / n  exp(tilt R_i(w))           eq:term-objective
        R_i(w) = 1/row_tilt log mean_{x of i} exp(row_tilt F_x(w))    eq:term-rows
        grad J = sum_i p_i grad R_i,   p_i ~ n_i exp(tilt R_i(w))     eq:term-weights
        w     <- sum_i p_i w_i,   w_i by local training on R_i        eq:term-step

    F_x: loss of a row; R_i = F_i at row_tilt = 0. p_i has R_i of the model as sent, on
    all training rows; one number more goes up. Local training tilts within a batch,
    where the mean of batches is no longer the whole. tilt = 0 is FedAvg;
    tilt -> infinity looks at the worst client only, tilt -> -infinity at the best; the
    same of row_tilt and rows. Exponents are taken relative to the largest, so nothing
    overflows. The released federated code has row_tilt = 0, draws and counts clients
    equally, and divides by a moving average of the mean of exp(tilt (F_i - max F)) in
    place of this round's, so that its weights do not sum to one.
    """

    card = Card("term2021", "weights by size and the exponential of the loss")

    tilt: float = hp(
        0.1, "between clients", "released script", (-1e6, 1e6), grid=(0.1, 0.5, 1, 2, 5)
    )
    row_tilt: float = hp(
        0.0, "between rows", "released code", (-1e6, 1e6), grid=(-1, 0, 1)
    )

    def __post_init__(self):
        super().__post_init__()
        if self.row_tilt and isinstance(self.step, Private):
            raise ValueError(
                f"TERM.row_tilt = {self.row_tilt} with Private steps, which clip the "
                "gradient of each row, where nothing is tilted: set row_tilt = 0"
            )

    @property
    def loss(self):
        return self.tilted if self.row_tilt else super().loss

    def tilted(self, w, b):
        """R_i on the rows of a batch that count."""
        z = self.row_tilt * self.task.each(w, b)
        z = z if b.m is None else z + b.m.log()
        n = math.log(len(z)) if b.m is None else b.m.sum().log()
        return (z.logsumexp(0) - n) / self.row_tilt  # eq:term-rows

    def local(self, down, mine, shard):
        R = shard.over(self.loss, down["w"])  # before training
        mine, up = super().local(down, mine, shard)  # w_i of eq:term-step
        return mine, up | {"loss": R}

    def weights(self, up):
        z = self.tilt * up["loss"]
        return normalize(up["n"] * (z - z.max()).exp())  # eq:term-weights
