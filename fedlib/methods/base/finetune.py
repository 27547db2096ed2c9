"""Averaging, fine-tuned by every client before use."""

from dataclasses import dataclass

from ...core.method import hp
from .fedavg import FedAvg
from .fedprox import FedProx
from .tuned import tuned


@dataclass(frozen=True)
class FedAvgFT(FedAvg):
    """FedAvg whose clients fine-tune a copy of the global model before they use it.

    The federation is plain FedAvg (McMahan et al., AISTATS 2017). View "tuned" of
    client i, online or not:

        v_i = `tune` passes of SGD on F_i from w_t, then thrown away            eq:tuned

    What the text of FedAS (CVPR 2024) calls FedAvg-P, though its code does otherwise
    (`FedAvgP`). tune = 0 is the global model. Fine-tuning has the method's momentum and
    decay, costs every client `tune` passes per evaluation, and adds no communication.
    The same as Tuned(task, inner=FedAvg(task)).
    """

    tune: int = hp(
        5, "passes of fine-tuning before use", "a choice, as in FedAS", grid=(1, 5, 10)
    )
    tune_lr: float = hp(0.0, "step size of fine-tuning; 0: lr", "a choice")

    card = FedAvg.card._replace(line="FedAvg, fine-tuned by every client before use")

    def plans(self):
        return super().plans() | {"tune": self.plan(self.tune)}

    def views(self, down, mine, shard):
        v = tuned(self, lambda: down["w"], shard, self.tune_lr or self.lr)  # eq:tuned
        return super().views(down, mine, shard) | {"tuned": v}


@dataclass(frozen=True)
class FedProxFT(FedAvgFT, FedProx):
    """FedProx whose clients fine-tune a copy of the global model, as in `FedAvgFT`.

    Only the federation is pulled towards the global model; fine-tuning minimises F_i
    alone. mu = 0 is FedAvg-FT.
    """

    card = FedProx.card._replace(line="FedProx, fine-tuned by every client before use")
