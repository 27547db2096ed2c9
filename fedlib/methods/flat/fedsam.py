"""Averaging of models that were trained to be flat."""

from dataclasses import dataclass
from math import inf

from ...core.local import Plain, sgd
from ...core.method import Card, hp
from ...pieces.steps import SAM
from ..base.fedavg import FedAvg


@dataclass(frozen=True)
class FedSAM(FedAvg):
    """FedAvg whose clients take sharpness-aware steps.

    Qu, Li, Duan, Liu, Tang, Lu. Generalized Federated Learning via Sharpness Aware
    Minimization. ICML 2022, Algorithm 1.

        e   = rho g / |g|,   g = grad F_i(w_i)                         eq:fedsam-perturb
        w_i <- w_i - lr grad F_i(w_i + e)      on the same batch as g  eq:fedsam-step

    w_i + e is the worst point near w_i, to first order; |g| is over all tensors
    together. Two gradients a batch. The model itself never moves to w_i + e and back,
    so nothing is lost to rounding; running statistics of batch norm are those at w_i.
    Decay and momentum act on w_i, outside the perturbation. The same as FedAvg with the
    piece SAM(rho) as its step. rho -> 0 is FedAvg; so is a vanishing gradient, for then
    e = 0. The name also stands for a method of Caldarola, Caputo and Ciccone (ECCV
    2022), which adds an average over rounds; this is not that one, nor MoFedSAM.
    """

    rho: float = hp(
        0.05, "radius of the perturbation", "SAM, PLGU", grid=(0.01, 0.05, 0.1, 0.5)
    )

    card = Card("fedsam2022", "FedAvg with sharpness-aware steps at the clients")

    def __post_init__(self):
        super().__post_init__()
        if not 0 < self.rho < inf:
            none = "; rho = 0 perturbs nothing: that is FedAvg"
            raise ValueError(
                f"{type(self).__name__}.rho = {self.rho!r} is no radius: give a "
                f"finite number above 0{none if self.rho == 0 else ''}"
            )
        if self.step != Plain():
            raise ValueError(
                f"{type(self).__name__}.step = {self.step!r}: this method brings its "
                "own step, SAM(rho); give another one to FedAvg"
            )

    def fit(self, loss, w, shard, lr=None, pull=None):
        g, lr = SAM(self.rho)(loss), self.lr if lr is None else lr  # eq:fedsam-perturb
        return sgd(g, w, shard, lr, self.momentum, self.decay, pull)  # eq:fedsam-step
