"""Fine-tuning before use, around any method."""

from dataclasses import dataclass

from ...core.method import Wrap, hp
from ...core.task import Fitted


def tuned(method, w, shard, lr):
    """View x -> logits [n, K] of a copy of w, fine-tuned over the plan "tune" when the
    view is called, and then thrown away."""
    tune = lambda: method.fit(method.loss, w, shard.on("tune"), lr)  # eq:tuned
    return Fitted(method.task, tune)


@dataclass(frozen=True)
class Tuned(Wrap):
    """Any method, and one more view: the client's model after some fine-tuning.

        v_i = `tune` passes of SGD on F_i from the model client i would use     eq:tuned

    The copy is thrown away, so the federation is untouched. The start is the model
    "w" that the client keeps after the download (FedPer), or else the one downloaded
    (FedAvg, Ditto). tune = 0 is the untuned model; around FedAvg it is `FedAvgFT`.
    """

    around = "FedAvg"  # the method inside, where none is named

    tune: int = hp(
        5, "passes of fine-tuning", "a choice: papers use 1 to 10", grid=(1, 5, 10)
    )
    tune_lr: float = hp(
        0.0, "step size of fine-tuning; 0: the inner method's", "a choice"
    )

    def plans(self):
        return super().plans() | {"tune": self.inner.plan(self.tune)}

    def views(self, down, mine, shard):
        start = down.get("w", {}) | mine.get("w", {})
        missing = [k for layer in self.task.layers for k in layer if k not in start]
        if missing:
            raise ValueError(
                f"{type(self.inner).__name__} leaves a client without a whole model to "
                f"fine-tune: {', '.join(missing)} is neither downloaded nor kept"
            )
        v = tuned(self, start, shard, self.tune_lr or self.inner.lr)
        return super().views(down, mine, shard) | {"tuned": v}
