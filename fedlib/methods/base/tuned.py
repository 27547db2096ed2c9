"""Fine-tuning before use, around any method."""

from dataclasses import dataclass
from functools import cache

from ...core.method import Wrap, hp
from ...core.task import Fitted


def tuned(method, start, shard, lr, plan="tune"):
    """View x -> logits [n, K] of a copy of start(), fine-tuned over a plan when the
    view is first called."""
    tune = lambda: method.fit(method.loss, start(), shard.on(plan), lr)  # eq:tuned
    return Fitted(method.task, cache(tune))


@dataclass(frozen=True)
class Tuned(Wrap):
    """Any method, and one more view: the client's model after some fine-tuning.

        v_i = `tune` passes of SGD on F_i from the model client i would use     eq:tuned

    The copy is thrown away, so the federation is untouched. The start is the model
    "w" that the client keeps after the download (FedPer), or else the one downloaded
    (FedAvg, Ditto). tune = 0 is the untuned model; around FedAvg it is `FedAvgFT`.
    also = (1, 5) scores the same copy on its way, as views "tuned 1" and "tuned 5".
    """

    around = "FedAvg"  # the method inside, where none is named

    tune: int = hp(
        5, "passes of fine-tuning", "a choice: papers use 1 to 10", grid=(1, 5, 10)
    )
    tune_lr: float = hp(
        0.0, "step size of fine-tuning; 0: the inner method's", "a choice"
    )

    also: tuple = hp((), "fewer passes, rising, scored besides", "a choice", absent=())

    def plans(self):
        ends = (0, *self.also, self.tune)
        legs = zip(self.legs, ends, ends[1:])
        return super().plans() | {k: self.inner.plan(b - a) for k, a, b in legs}

    legs = property(lambda self: [*(f"tune {k}" for k in self.also), "tune"])

    def views(self, down, mine, shard):
        start = down.get("w", {}) | mine.get("w", {})
        missing = [k for layer in self.task.layers for k in layer if k not in start]
        if missing:
            raise ValueError(
                f"{type(self.inner).__name__} leaves a client without a whole model to "
                f"fine-tune: {', '.join(missing)} is neither downloaded nor kept"
            )
        out, fit = super().views(down, mine, shard), lambda: start
        for leg in self.legs:
            view = tuned(self, fit, shard, self.tune_lr or self.inner.lr, leg)
            out[leg.replace("tune", "tuned")], fit = view, view.fit
        return out
