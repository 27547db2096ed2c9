"""Averaging, scored on the model that a client holds."""

from dataclasses import dataclass

from .fedavg import FedAvg
from .fedprox import FedProx


@dataclass(frozen=True)
class FedAvgP(FedAvg):
    """FedAvg, scored on the model a client holds: just trained, or just downloaded.

    Yang, Huang, Ye. FedAS: Bridging Inconsistency in Personalized Federated Learning.
    CVPR 2024, the rival "FedAvg-P" of Tables 2 and 3.

        v_i <- w_t                                          for all eq:fedavg-p-download
        v_i <- epochs passes of SGD on F_i from w_t      for online eq:fedavg-p

    The server runs plain FedAvg. View "personal" is v_i: at `post` the trained model
    of a client that was online and the download of one that was not, at `pre` the
    download of everybody. So its mean at `post` mixes trained and untrained models in
    the ratio of participation. The paper's text calls this fine-tuning the global
    model; its released code does what is written here. See `FedAvgFT`.
    """

    card = FedAvg.card._replace(line="FedAvg, scored on the model a client holds")
    download = "all"
    post = ("personal",)

    def client(self, w, shard):
        return {"w": w}

    def receive(self, down, mine, shard):
        return {"w": down["w"]}  # eq:fedavg-p-download

    def local(self, down, mine, shard):
        _, up = super().local(down, mine, shard)
        return {"w": up["w"]}, up  # eq:fedavg-p

    def views(self, down, mine, shard):
        return super().views(down, mine, shard) | {"personal": self.task.net(mine["w"])}


@dataclass(frozen=True)
class FedProxP(FedAvgP, FedProx):
    """FedProx, scored on the model a client holds, as in `FedAvgP`.

    The rival "FedProx-P" of the same tables. mu = 0 is FedAvg-P.
    """

    card = FedProx.card._replace(line="FedProx, scored on the model a client holds")
