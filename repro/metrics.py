"""What is measured: its unit, which direction is better, the smallest difference that
anybody would care about, and where it ends; used by the ledger, the claims and the
book.

Here stands what fedlib measures for any method, and what several papers print. What one
paper alone measures stands in its metrics.yaml: {name: {better, unit, what}}, with a
kind of KINDS where the unit does not say it, or with a margin and its why_margin, or
bounds, of its own.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

from repro import papers


class Kind(NamedTuple):
    """A kind of quantity; margin: in the metric's unit, or, where it is relative, a
    share of the reference; bounds: its floor and its ceiling."""

    margin: float
    why_margin: str
    bounds: tuple[float, float] = (-math.inf, math.inf)
    relative: bool = False


FROM_0 = (0, math.inf)
KINDS = {
    "accuracy": Kind(1, "one test row in a hundred", (0, 100)),
    "tail": Kind(2, "few clients, so a point is a handful of their rows", (0, 100)),
    "fraction": Kind(0.01, "one row in a hundred", (0, 1)),
    "points": Kind(1, "one point of accuracy", (-100, 100)),
    "tail points": Kind(2, "the margin of a tail's accuracy", (-100, 100)),
    "spread": Kind(1, "one point of accuracy between clients", FROM_0),
    "gini": Kind(0.01, "a hundredth of the way from equal to one has all", (0, 1)),
    "gini gain": Kind(0.01, "the margin of a Gini coefficient", (-1, 1)),
    "bias": Kind(0.01, "one row in a hundred, treated otherwise by group", (0, 1)),
    "correlation": Kind(0.1, "a tenth, of a scale from 0 to 1", (-1, 1)),
    "share": Kind(0.05, "one round, client or parameter in twenty", (0, 1)),
    "percent": Kind(5, "one in twenty", (0, 100)),
    "gain": Kind(5, "a bias that is lower by a twentieth", (-math.inf, 100)),
    "loss": Kind(0.01, "one percent of the probability of a row's label"),
    "size": Kind(0.05, "a twentieth of the reference", FROM_0, True),
    "log ratio": Kind(math.log(1.05), "a ratio within a twentieth of 1"),
    "count": Kind(1, "one, the smallest step", FROM_0),
    "setting": Kind(0, "chosen, not measured"),
    "exact": Kind(0, "computed without chance"),
}
# the kind of a unit, where the metric names none
BY_UNIT = {"%": "accuracy", "accuracy": "fraction", "% of clients": "percent"}
BY_UNIT |= {"points": "points", "bias": "bias", "nats": "loss", "yes/no": "setting"}
BY_UNIT |= dict.fromkeys(("s", "MB", "bytes"), "size")


@dataclass(frozen=True)
class Metric:
    """better: "high", "low", or "" for a number that is no score; margin: the smallest
    difference that anybody would care about, `relative` to a reference or not."""

    better: str
    unit: str
    what: str
    kind: str
    margin: float
    why_margin: str
    bounds: tuple[float, float]
    relative: bool

    @property
    def sign(self) -> int:
        """1 where high is good, else -1."""
        return 1 if self.better == "high" else -1

    def margin_at(self, reference: float) -> float:
        """The margin in the metric's unit, beside a value of the reference."""
        return self.margin * abs(reference) if self.relative else self.margin


def metric(better="", unit="", what="", kind="", **own) -> Metric:
    """A metric, whose kind (or, without one, whose unit) says what its `own` margin,
    why_margin and bounds do not. Raises ValueError on an unknown kind, and on a margin
    that is bad or has no reason."""
    kind = kind or ("setting" if what == "setting" else BY_UNIT.get(unit, ""))
    if kind not in KINDS:
        raise ValueError(f"kind is {kind!r}; give one of {', '.join(KINDS)}")
    if ("margin" in own) != ("why_margin" in own):
        raise ValueError("a margin of its own needs its why_margin; give both")
    said = KINDS[kind]._asdict() | own
    if not 0 <= said["margin"] < math.inf:
        raise ValueError(f"margin is {said['margin']}; give a finite number from 0 on")
    low, high = map(float, said.pop("bounds"))
    return Metric(better, unit, what, kind, bounds=(low, high), **said)


# name: better; unit; what; kind
SHARED_TABLE = """
mean_acc: high; %; mean over clients
val_acc: high; %; mean over clients, on validation rows
std_acc: low; points; population standard deviation over clients; spread
worst10_acc: high; %; mean of the lowest max(1, floor(C/10)) clients; tail
top10_acc: high; %; mean of the highest max(1, floor(C/10)) clients; tail
top10_minus_bottom10: low; points; top10_acc - worst10_acc; tail points
best_gini: low; ; Gini coefficient over clients, denominator m - 1; gini
gini_auc: low; ; sum over rounds of the smoothed test Gini; size
gini_level_after_round_50: low; ; mean test Gini after round 50; gini
early_mean_acc: high; %; mean test accuracy over rounds 1 to 50
late_mean_acc: high; %; mean test accuracy over the rounds after 100
log_ratio: high; ; logarithm of a ratio; log ratio
learning_rate: ; ; setting
batch_size: ; ; setting
rounds: ; rounds; setting
clients: ; count; setting
samples: ; count; setting
top1_acc_pct: high; %; over all test rows, of the model and at the moment by which the \
method is judged
seconds_over_fedavg: low; ; time of a run over that of FedAvg; size
bytes_up: low; bytes; uploaded per client and round
bytes_down: low; bytes; downloaded per client and round
acc_mean_pct: high; %; mean over clients
acc_lowest5_pct: high; %; mean of the lowest 5% of the clients; tail
acc_lowest20_pct: high; %; mean of the lowest 20% of the clients
acc_top5_pct: high; %; mean of the highest 5% of the clients; tail
acc_min_over_clients_pct: high; %; accuracy of the worst client; tail
"""
LINES = (line.partition(": ")[::2] for line in SHARED_TABLE.strip().splitlines())
SHARED = {name: metric(*map(str.strip, row.split(";"))) for name, row in LINES}


def listed() -> dict[str, Metric]:
    """{name: Metric}, of SHARED and of the papers that are here."""
    found = dict(SHARED)
    for paper in papers.found():
        path = papers.folder() / paper / "metrics.yaml"
        text = path.read_text(encoding="utf-8") if path.exists() else "{}"
        for name, said in papers.parsed(text).items():
            if name in found:
                raise papers.PaperError(f"{path}: {name} is known already; rename it")
            try:
                found[name] = metric(**said)
            except (TypeError, ValueError) as error:
                raise papers.PaperError(f"{path}: {name}: {error}") from None
    return found


METRICS = listed()
