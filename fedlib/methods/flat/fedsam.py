"""Averaging of models that were trained to be flat."""

from dataclasses import dataclass

from ...core.local import Plain
from ...core.method import Card, hp
from ...pieces.steps import SAM
from ..base.fedavg import FedAvg, only


@dataclass(frozen=True)
class FedSAM(FedAvg):
    """FedAvg whose clients take sharpness-aware steps.

    Qu, Li, Duan, Liu, Tang, Lu. Generalized Federated Learning via Sharpness Aware
    Minimization. ICML 2022, Algorithm 1.

        e   = rho g / |g|,   g = grad F_i(w_i)                         eq:fedsam-perturb
        w_i <- w_i - lr grad F_i(w_i + e)      on the same batch as g  eq:fedsam-step

    w_i + e is the worst point near w_i, to first order; |g| is over all tensors
    together. Two gradients a batch; running statistics of batch norm are those at w_i.
    Decay and momentum act outside the perturbation. The same as FedAvg with the piece
    SAM(rho) as its step. rho -> 0 is FedAvg. The name also stands for a method of
    Caldarola, Caputo and Ciccone (ECCV 2022), which this is not.
    """

    rho: float = hp(
        0.05, "radius of the perturbation", "SAM, PLGU", grid=(0.01, 0.05, 0.1, 0.5)
    )

    card = Card("fedsam2022", "FedAvg with sharpness-aware steps at the clients")

    def __post_init__(self):
        super().__post_init__()
        if not self.rho:
            raise ValueError(f"{type(self).__name__}.rho = 0 is FedAvg; give more")
        only(self, "step", Plain, "this method brings its own, SAM(rho)")

    def fit(self, loss, w, shard, lr=None, pull=None):
        step = SAM(self.rho)(loss)  # eq:fedsam-perturb
        return self.descend(step, w, shard, lr, pull)  # eq:fedsam-step
