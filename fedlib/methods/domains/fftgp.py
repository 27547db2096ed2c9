"""Generalise and personalise at once: aligned local steps, weights that even gaps."""

from dataclasses import dataclass

from ..base.fedavg import FedAvg
from . import ga
from .aligned import Aligned
from .faa import FAA, FAALagged
from .gapped import Gapped


@dataclass(frozen=True)
class FFTGP(Aligned, FAA):
    """Broadcast, align features by meta-learning, weigh to even out gaps, average.

    Zhang, Fan, Yao, Zhang, Wang. FFT-GP. FITEE 26(1), 2025. The text at hand states the
    four steps and prints no formula; local step (`Aligned`) and weights (`FAA`) are our
    reading, after the same authors' code of GA and GRACE.

        w_i from w_t by eq:meta-step,   a by eq:faa-step from the gaps eq:gap
        w_{t+1} = sum_i a_i w_i                                                 eq:fftgp

    What generalises is w; what a client uses on its own domain is w_i, before the
    average. meta = "none" is FAA, and with eta = 0 as well Uniform.
    """

    card = FAA.card._replace(line="aligned local steps, and fairness-aware aggregation")


@dataclass(frozen=True)
class FFTGPLagged(FAALagged, FFTGP):
    """FFT-GP without extra traffic: gaps are one round old, as in `FAALagged`."""

    card = FFTGP.card._replace(line="FFT-GP whose gaps are one round old")


@dataclass(frozen=True)
class FFTGPBeside(FFTGP):
    """FFT-GP, and how other rules would average the same local models in every round.

    For Figure 6 of the paper. The rules: FedAvg, GA and FAA with lagged gaps. Each
    keeps its own weights and the gaps of its own candidate; FAA's alone is used, so the
    training is FFT-GP's. Logged for a rule, under "<rule> <what>", [C] each: its
    weights, and the gaps of its candidate in loss and in accuracy, on validation and on
    test rows.
    """

    card = FFTGP.card._replace(line="FFT-GP, and other rules tried on its local models")

    @property
    def others(self):
        common = {"task": self.task, "lr": self.lr}
        return {
            "FedAvg": FedAvg(**common),
            "GA": ga.GA(**common),
            "FAA-lagged": FAA(**common, timing="lagged", eta=0.2),
        }

    def server(self, w, r):
        state = super().server(w, r)
        a, zero = state["a"], state["smooth"]
        first = {"a": a, "smooth": zero, "gap": {"loss": zero, "accuracy": zero}}
        return state | {"beside": {k: first for k in self.others}}

    def local(self, down, mine, shard):
        mine, up = super().local(down, mine, shard)
        return mine, up | {"own": self.measured({"w": up["w"]}, mine, shard)}

    def measured(self, model, mine, shard):
        """Loss and accuracy of a model on this client's validation and test rows."""
        w, rows = model["w"], {s: shard.all(s) for s in ("val", "test")}
        f = self.task.net(w)
        loss = {f"{s} loss": self.loss(w, b) for s, b in rows.items()}
        return loss | {f"{s} accuracy": self.accuracy(f, b) for s, b in rows.items()}

    def aggregate(self, server, up, r):
        new = super().aggregate(server, up, r)
        chosen, log, beside = {"FAA": (new["w"], new["a"])}, dict(new.pop("log")), {}
        for name, rule in self.others.items():
            last = server["beside"][name]
            gapped = isinstance(rule, Gapped)
            gap = {"gap": last["gap"][rule.metric]} if gapped else {}
            now = rule.aggregate(last | {"w": server["w"]}, up | gap, r)
            chosen[name] = now["w"], now["log"]["weight"]
            beside[name] = {k: now.get(k, last[k]) for k in ("a", "smooth")}
        for name, (w, a) in chosen.items():
            measured = r.ask(self.measured, {"w": w})
            sign = lambda k: -1 if "accuracy" in k else 1
            gap = {k: (v - up["own"][k]) * sign(k) for k, v in measured.items()}
            log |= {f"{name} {k}": v for k, v in gap.items()} | {f"{name} weight": a}
            if name in beside:
                val = {k: gap[f"val {k}"] for k in ("loss", "accuracy")}
                beside[name]["gap"] = val
        return new | {"beside": beside, "log": log}
