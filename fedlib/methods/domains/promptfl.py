"""A learnt prompt for a frozen CLIP."""

import math
from dataclasses import dataclass

import torch

from ...core.method import Card, hp
from ...nets.clip import Prompts
from ..base.fedavg import Uniform
from .fedclip import check_network


@dataclass(frozen=True)
class PromptFL(Uniform):
    """Averaging of a prompt's context vectors; the towers of CLIP are never sent.

    Guo, Guo, Wang, Tang, Xu. PromptFL: Let Federated Participants Cooperatively Learn
    Prompts Instead of Models - Federated Learning in Age of Foundation Model. IEEE
    Transactions on Mobile Computing, 2024.

        t_k    = text tower([start] ctx_1 ... ctx_V [class k] . [end])
                                                              eq:promptfl-prompt
        F_i    = mean cross-entropy of softmax_k(s cos(z, t_k))
                                                              eq:promptfl-loss
        lr_t   = lr (1 + cos(pi t / R)) / 2
        ctx_i <- ctx_i - lr_t grad F_i(ctx_i)                 eq:promptfl-step
        ctx   <- 1/M sum_i ctx_i                              eq:promptfl-average

    t_k is made by the text tower, in the network Prompts of V vectors. The step size
    falls over all R rounds, once a round; every client starts each round with no
    momentum. In the released code one optimiser serves all clients in turn, so momentum
    and a cosine of five passes go from each to the next, and round t averages the
    models of all rounds so far. Here a round averages its own models only.
    """

    plans_ahead = True
    card = Card("guo2023promptfl", "averages the context of a prompt for a frozen CLIP")

    lr: float = hp(
        0.001, "first step size", "their code; 0.002: CoOp's", grid=(0.001, 0.002)
    )
    epochs: int = hp(5, "passes over a client's rows per round", "the authors' code")
    momentum: float = hp(0.9, "of the clients, in a round", "CoOp's code", (0, 1))
    decay: float = hp(5e-4, "weight decay of the clients", "CoOp's code")
    schedule: str = hp(
        "cosine", "fall of the step size", "their code", ("cosine", "constant")
    )

    waits = "Not recorded on a GPU: sentences are cut at the longest."

    def __post_init__(self):
        super().__post_init__()
        check_network(self, Prompts)

    def local(self, down, mine, shard):
        lr = self.lr
        if self.schedule == "cosine":
            cos = math.cos if isinstance(shard.t, int) else torch.cos
            lr = lr * ((1 + cos(math.pi * shard.t / shard.R)) / 2)
        w = self.fit(self.loss, down["w"], shard, lr)  # eq:promptfl-step
        return mine, {"w": w, "n": shard.n}
