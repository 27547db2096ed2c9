"""Averaging, fine-tuned by every client before use."""

from dataclasses import dataclass

from .fedavg import FedAvg
from .fedprox import FedProx
from .tuned import Tunes


@dataclass(frozen=True)
class FedAvgFT(Tunes, FedAvg):
    """FedAvg whose clients fine-tune a copy of the global model before they use it.

    The federation is plain FedAvg (McMahan et al., AISTATS 2017). View "tuned" of
    client i, online or not:

        v_i = `tune` passes of SGD on F_i from w_t, then thrown away            eq:tuned

    What the text of FedAS (CVPR 2024) calls FedAvg-P, though its code does otherwise
    (`FedAvgP`). tune = 0 is the global model. Fine-tuning has the method's momentum and
    decay, costs every client `tune` passes per evaluation, and adds no communication.
    The same as Tuned(task, inner=FedAvg(task)).
    """

    card = FedAvg.card._replace(line="FedAvg, fine-tuned by every client before use")


@dataclass(frozen=True)
class FedProxFT(FedAvgFT, FedProx):
    """FedProx whose clients fine-tune a copy of the global model, as in `FedAvgFT`.

    Only the federation is pulled towards the global model; fine-tuning minimises F_i
    alone. mu = 0 is FedAvg-FT.
    """

    card = FedProx.card._replace(line="FedProx, fine-tuned by every client before use")
