"""The ways to run a round that are compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

from . import engine
from .graph import recorded
from .hand import Hand
from .setups import timed
from .step import Cohort, Single


class Variant(NamedTuple):
    """make(setup) -> (f, once): f(n) is the wall seconds of n rounds, once() the model
    after round 0 (of the first seed).

    precision and pixels: see `step.options`. draws: its time contains drawing the
    batches. cuda: it needs a GPU.
    """

    name: str
    make: Callable
    precision: str = "float32"
    pixels: str = "as fedlib"
    cuda: bool = False
    seeds: int = 1
    draws: bool = False


def own(make):
    """A class of `hand` or `step` as the `make` of a Variant."""

    def both(setup):
        v, start = make(setup), lambda: setup.task.init(0)
        return timed(setup, v.once, start), lambda: v.once(0, start())

    return both


def stacked(make, S):
    """The same for S seeds at once."""

    def both(setup):
        v, start = make(setup), lambda: [setup.task.init(s) for s in range(S)]
        return timed(setup, v.once, start), lambda: v.once(0, start())[0]

    return both


def variants(setup, S):
    """Those that suit a case, the loop first; S seeds stacked."""
    last, low = torch.channels_last, torch.bfloat16
    out = [
        Variant("loop", lambda s: engine.rounds(s, "loop"), draws=True),
        Variant("vmap", lambda s: engine.rounds(s, "vmap"), draws=True),
    ]
    if setup.name != "resnet":
        out.append(
            Variant(
                f"vmap, {S} seeds stacked",
                lambda s: engine.rounds(s, "vmap", S),
                seeds=S,
                draws=True,
            )
        )
    if setup.linear:
        out += [
            Variant("hand", own(Hand)),
            Variant("hand, graph", own(lambda s: Hand(s, recorded)), cuda=True),
            Variant(
                f"hand, {S} seeds stacked", stacked(lambda s: Hand(s, S=S), S), seeds=S
            ),
            Variant(
                f"hand, graph, {S} seeds stacked",
                stacked(lambda s: Hand(s, recorded, S), S),
                cuda=True,
                seeds=S,
            ),
            Variant("hand, graph", own(lambda s: Hand(s, recorded)), "tf32", cuda=True),
            Variant(
                "hand, graph",
                own(lambda s: Hand(s, recorded, low=low)),
                "bf16",
                cuda=True,
            ),
        ]
    else:
        plain, laid = (
            own(lambda s: Single(s, recorded)),
            own(lambda s: Single(s, recorded, last)),
        )
        name = "step, graph, weights channels_last"
        out += [
            Variant("step", own(Single)),
            Variant("step, graph", plain, cuda=True),
            Variant(name, laid, cuda=True),
            Variant("step, graph, nchw", plain, pixels="nchw", cuda=True),
            Variant("step, graph", plain, "tf32", cuda=True),
            Variant(name, laid, "tf32", cuda=True),
            Variant(
                name, own(lambda s: Single(s, recorded, last, low)), "bf16", cuda=True
            ),
        ]
    return [
        *out,
        Variant("vmap step", own(Cohort)),
        Variant("vmap step, graph", own(lambda s: Cohort(s, recorded)), cuda=True),
    ]  # may not be recordable: the last
