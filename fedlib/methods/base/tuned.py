"""Fine-tuning before use, around any method."""

from dataclasses import dataclass
from functools import cache

import numpy as np

from ...core.errors import refuse_if
from ...core.method import Method, Wrap, hp
from ...core.task import Fitted


@dataclass(frozen=True)
class Tunes(Method):
    """View "tuned": the model that a client would use, after `tune` passes. With
    also = [1, 5] it is scored on its way, too, as "tuned 1" and "tuned 5"."""

    tune: int = hp(5, "passes of fine-tuning", "papers: 1 to 10", grid=(1, 5, 10))
    tune_lr: float = hp(0.0, "its step size; 0: the federation's", "a choice")
    also: list = hp(None, "fewer passes, too", "a choice", (None, [1, 5]), absent=None)

    of = property(lambda self: getattr(self, "inner", self))
    legs = property(lambda self: [*(f"tune {k}" for k in self.also or ()), "tune"])

    def plans(self):
        passes = np.diff((0, *(self.also or ()), self.tune)).tolist()
        refuse_if(min(passes) < 0, f"tune = {self.tune} has no place for {self.also}")
        return super().plans() | dict(zip(self.legs, map(self.of.plan, passes)))

    def views(self, down, mine, shard):
        w = down.get("w", {}) | mine.get("w", {})
        lost = {*self.task.shapes} - w.keys()
        refuse_if(lost, f"{type(self.of).__name__} gives clients no {sorted(lost)}")
        out, fit = super().views(down, mine, shard), lambda: w
        lr = self.tune_lr or self.of.lr
        for leg in self.legs:
            tune = lambda w=fit, k=leg: self.fit(self.loss, w(), shard.on(k), lr)
            fit = cache(tune)  # eq:tuned
            out[leg.replace("tune", "tuned")] = Fitted(self.task, fit)
        return out


@dataclass(frozen=True)
class Tuned(Tunes, Wrap):
    """Any method, and one more view: the client's model after some fine-tuning.

        v_i = `tune` passes of SGD on F_i from the model client i would use     eq:tuned

    The copy is thrown away, so the federation is untouched. The start is the model
    "w" that the client keeps after the download (FedPer), or else the one downloaded
    (FedAvg, Ditto). tune = 0 is the untuned model; around FedAvg it is `FedAvgFT`.
    """

    around = "FedAvg"  # the method inside, where none is named
