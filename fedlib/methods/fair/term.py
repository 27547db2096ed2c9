"""Weights that grow exponentially with the loss."""

import math
from dataclasses import dataclass

from ...core.method import Card, hp
from ...core.tree import normalize
from ...pieces.steps import Private
from .qfedavg import ByLoss


@dataclass(frozen=True)
class TERM(ByLoss):
    """FedAvg on a tilted mean of the clients' losses: between the mean and the worst.

    Li, Beirami, Sanjabi, Smith. Tilted Empirical Risk Minimization. ICLR 2021,
    equations 2 and 4, clients as groups. tilt is its t, row_tilt its tau.

        J(w)   = 1/tilt log sum_i n_i / n  exp(tilt R_i(w))           eq:term-objective
        R_i(w) = 1/row_tilt log mean_{x of i} exp(row_tilt F_x(w))    eq:term-rows
        grad J = sum_i p_i grad R_i,   p_i ~ n_i exp(tilt R_i(w))     eq:term-weights
        w     <- sum_i p_i w_i,   w_i by local training on R_i        eq:term-step

    F_x: loss of a row; R_i = F_i at row_tilt = 0. p_i has R_i of the model as sent, on
    all training rows (`ByLoss`). Local training tilts within a batch. tilt = 0 is
    FedAvg; tilt -> infinity looks at the worst client only, -> -infinity at the best;
    the same of row_tilt and rows. Exponents are relative to the largest, so nothing
    overflows. The released federated code has row_tilt = 0, counts clients equally, and
    divides by a moving average, so that its weights do not sum to one.
    """

    card = Card("term2021", "weights by size and the exponential of the loss")

    tilt: float = hp(
        0.1, "between clients", "their script", (-1e6, 1e6), grid=(0.1, 0.5, 1, 2, 5)
    )
    row_tilt: float = hp(
        0.0, "between a client's rows", "their code", (-1e6, 1e6), grid=(-1, 0, 1)
    )

    def __post_init__(self):
        super().__post_init__()
        if self.row_tilt and isinstance(self.step, Private):
            raise ValueError(
                f"TERM.row_tilt = {self.row_tilt}: Private steps clip row by row, and "
                "rows alone are not tilted; set row_tilt = 0"
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

    def weights(self, up):  # p_i of eq:term-step
        z = self.tilt * up["loss"]
        return normalize(up["n"] * (z - z.max()).exp())  # eq:term-weights
