"""What the paper of FFT-GP says, apart from the digits.

Judged by the last round, over few seeds. So a comparison pairs more than seeds where
there is more: accuracy on a domain left out over pairs of left-out domain and seed, an
average over data sets over pairs of data set and seed; the evidence says which, and how
many. Pairs of one domain are alike, so that such an interval is rather too short than
too long, and speaks of these domains.

The text at hand states what FFT-GP is for and prints two tables; FAA's rule and the
local step are our reading, so the claims about Figure 6 are tested for both timings
(FAA: trial averages within a round; FAA-lagged: gaps one round old). By "ours": what
the comparison leaves out. Some sentences are held against the paper's own tables alone:
they need no run.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from fedlib.measures.statistics import interval
from repro import papers
from repro.claims import (
    Claim,
    Finding,
    NotRun,
    common,
    decide,
    decide_all,
    gains_over,
    held,
    lacking,
    say,
    throughout,
)
from repro.ledger import METRICS, slug

PLACES = ("PACS", "VLCS", "OfficeHome", "TerraInc", "DomainNet")
FIGURE6 = dict(zip(PLACES, "abcd"))  # its four panels
OWN, GLOBAL, OUT = "in_domain_acc_pct", "global_acc_pct", "out_of_domain_acc_pct"
RIVALS = {
    OWN: ("FedAvg", "Ditto", "AFL", "q-FFL", "PerFedAvg", "GRACE"),
    OUT: ("FedAvg", "FedProx", "AFL", "q-FFL", "PerFedAvg", "GA", "GRACE"),
}
BETTER = {OWN: "Ditto", OUT: "q-FFL"}  # printed above FFT-GP, both on OfficeHome only
GAPS = {
    "gap_std_val": "gaps in loss on validation rows",
    "gap_std_test": "gaps in loss on test rows",
    "gap_acc_std_val": "gaps in accuracy on validation rows",
    "gap_acc_std_test": "gaps in accuracy on test rows",
}
WORST = {"gap_worst_val": "validation", "gap_worst_test": "test"}
READINGS = {
    "FAA": "FAA with trial averages",
    "FAA-lagged": "FAA with gaps one round old",
}
MOVED = ("GA", "FAA-lagged", "FAA")  # rules whose weights change
WEIGHTS = {  # whose weights: (method, setting), in words
    "equal": (("FFT-GP", "eta=0;trials=1"), "equal weights"),
    "faa": (("FFT-GP", ""), "FAA's weights"),
    "lagged": (("FFT-GP-lagged", ""), "FAA's weights from gaps one round old"),
}
STEPS = {
    "none": "the plain step",
    "joint": "the joint step",
    "mldg": "the meta step",
    "grace": "GRACE's step",
}
RULE = papers.about("fft-gp")["rule"]
COST = (1.3, 1.5)  # times FedAvg's time: our expectation
ALIKE = 2.0  # points of accuracy that may lie between two that compete: our bound


@dataclass(frozen=True)
class Units:
    """Where a number is read off the runs, and what a comparison of two runs pairs.

    out: one left-out domain after the other (setting "guest=..."). Of several data sets
    each counts the same, as in the tables.
    """

    metric: str
    places: tuple
    study: str = ""
    out: bool = False

    @property
    def pairs(self):
        """What a comparison pairs, in words."""
        many = (
            "data set"
            if len(self.places) > 1
            else "left-out domain"
            if self.out
            else ""
        )
        return f"pairs of {many} and seed" if many else "seeds"

    def read(self, v, run):
        """The number of a run, (method, setting), one per unit -> Series [units].

        Raises NotRun where a data set or a left-out domain is missing.
        """
        # {data set: {domain: {seed: value}}}
        found = {p: self._domains(v, p, *run) for p in self.places}
        if len(found) > 1:
            seeds = {p: list(at.values()) for p, at in found.items()}
            units = {
                (p, s): np.mean([x[s] for x in at])
                for p, at in seeds.items()
                for s in at[0]
                if all(s in x for x in at)
            }
        else:
            (at,) = found.values()
            units = {
                (s, g) if self.out else s: y
                for g, x in at.items()
                for s, y in x.items()
            }
        if not units:
            raise NotRun(
                f"{', '.join(self.places)} {name(run)} {self.metric} as a number"
            )
        return pd.Series(units, dtype=float)

    def _domains(self, v, place, method, how):
        study, out = self.study or v.main(place), {}
        runs = v.runs.get((study, place, method, self.metric), {})
        for g in self._guests(v, study, place) if self.out else ("",):
            setting = ";".join(filter(None, (g, how)))
            x = runs.get((setting, RULE), runs.get((setting, "run")))
            if x is None:
                raise NotRun(
                    " ".join(filter(None, (study, place, method, setting, self.metric)))
                )
            out[g.removeprefix("guest=")] = {
                s: y for s, y in x.items() if np.isfinite(y)
            }
        return out

    def _guests(self, v, study, place):
        """Settings of the domains that any method of this study was run without: every
        run has to have all of them.
        """
        of = [
            runs
            for (s, p, _, m), runs in v.runs.items()
            if (s, p, m) == (study, place, self.metric)
        ]
        found = sorted(
            {
                how.split(";")[0]
                for runs in of
                for how, _ in runs
                if how.startswith("guest=")
            }
        )
        if not found:
            raise NotRun(f"{study} {place} {self.metric} with a domain left out")
        return found

    def say(self, x):
        """The mean of x [units] in the digits of the metric."""
        return say(self.metric, x.mean())

    def gain(self, x, y):
        """How much better x is than y [units], paired -> Interval."""
        return common(x, y) if METRICS[self.metric].better == "high" else common(y, x)

    def span(self, i):
        """An interval in words."""
        if i.n < 2:
            return (
                f"{say(self.metric, i.mean)}, one "
                f"{self.pairs.replace('pairs', 'pair').replace('seeds', 'seed')}"
            )
        return (
            f"{say(self.metric, i.mean)} [{say(self.metric, i.lo)}, "
            f"{say(self.metric, i.hi)}], {i.n} {self.pairs}"
        )


def name(run):
    """A run in words."""
    return " ".join(filter(None, run))


def run(method, how=""):
    """A run as `Units.read` wants it."""
    return method, how


def above(u, a, b):
    """Run a is better than run b."""

    def test(v):
        x, y = u.read(v, a), u.read(v, b)
        g = u.gain(x, y)
        return Finding(
            decide(g),
            f"{name(a)} {u.say(x)}, {name(b)} {u.say(y)}; better by {u.span(g)}",
        )

    return test


def first(u, mine, rivals):
    """The run `mine` is better than the run of every rival, a method."""

    def test(v):
        x = u.read(v, mine)
        gains, missing = gains_over(
            rivals,
            lambda r: u.gain(x, u.read(v, run(r))),
            f"{', '.join(u.places)} {u.study} {u.metric}",
        )
        holds, top = decide_all(gains, missing)
        return Finding(
            holds,
            f"{name(mine)} {u.say(x)}, strongest of {len(gains)} "
            f"rivals {top} {u.say(u.read(v, run(top)))}; better by "
            f"{u.span(gains[top])}{lacking(missing)}",
            missing,
        )

    return test


def near(u, a, b, margin):
    """Runs a and b differ by less than the margin, either way."""

    def test(v):
        i = u.gain(u.read(v, a), u.read(v, b))
        inside, outside = (
            -margin < i.lo and i.hi < margin,
            i.hi < -margin or i.lo > margin,
        )
        return Finding(
            "yes" if inside else "no" if outside else "undecided",
            f"{name(a)} better than {name(b)} by {u.span(i)}; allowed +-{margin:g}",
        )

    return test


def exceeds(u, other, of):
    """Of one run, the number at u lies above that at other."""

    def test(v):
        x, y = u.read(v, of), other.read(v, of)
        i = common(x, y)
        return Finding(
            decide(i), f"{name(of)}: {u.say(x)} and {u.say(y)}; larger by {u.span(i)}"
        )

    return test


def negative(u, of, control=None):
    """A number of run `of` is below zero, or below that of another run."""

    def test(v):
        x = u.read(v, of)
        i = interval(x) if control is None else common(x, u.read(v, control))
        return Finding(
            decide(i._replace(mean=-i.mean, lo=-i.hi, hi=-i.lo)),
            f"{name(of)}{' minus ' + name(control) if control else ''} {u.span(i)}; "
            "claimed below 0",
        )

    return test


def between(u, of, low, high):
    """A number of a run lies between two bounds."""

    def test(v):
        i = interval(u.read(v, of))
        inside, outside = low <= i.lo and i.hi <= high, i.hi < low or i.lo > high
        return Finding(
            "yes" if inside else "no" if outside else "undecided",
            f"{name(of)} {u.span(i)}; claimed {low:g} to {high:g}",
        )

    return test


def claim(artefact, u, key, text, test, by="paper"):
    """A claim about one data set, or about several together."""
    place = u.places[0] if len(u.places) == 1 else "all"
    where = (
        place
        if place != "all"
        else f"on average over the {'five' if len(u.places) == 5 else 'four'} data sets"
    )
    return Claim(
        f"fft-gp-{key}-{slug(place)}",
        "fft-gp",
        artefact,
        f"{text}: {where}.",
        test,
        place,
        by,
        u.study,
    )


def everywhere(*of):
    """Units of every data set, and of all of them together."""
    yield from (Units(of[0], (p,), *of[1:]) for p in PLACES)
    yield Units(of[0], PLACES, *of[1:])


# ------------------------------------------------------------------ Tables 2 and 3

MINE, LATER = run("FFT-GP"), run("FFT-GP-lagged")


def _tables():
    for u in everywhere(OWN):
        yield from _row(
            "Table 2",
            u,
            "own",
            "local models have a higher accuracy on their own domain",
        )
        yield claim(
            "Table 2",
            u,
            "own-above-local",
            "FFT-GP's local models beat clients that train alone",
            above(u, MINE, run("Local")),
            "ours",
        )
    for u in everywhere(OUT, "general", True):
        yield from _row(
            "Table 3",
            u,
            "out",
            "global model has a higher accuracy on the domain left out",
        )
        yield claim(
            "Table 3",
            u,
            "out-above-ga",
            "FFT-GP's global model beats GA's on the domain left out",
            above(u, MINE, run("GA")),
        )
        yield claim(
            "Table 3",
            u,
            "ga-second",
            "GA's global model beats all but FFT-GP's on the domain left out",
            first(u, run("GA"), tuple(r for r in RIVALS[OUT] if r != "GA")),
            "paper" if len(u.places) > 1 else "ours",
        )  # second by the printed average
    for u in everywhere(OWN, "general-own", True):
        yield claim(
            "Table 2",
            u,
            "own-best-one-out",
            "Where one domain is left out, FFT-GP's local models have a higher "
            "accuracy on their own domain than those of every other method",
            first(u, MINE, RIVALS[OUT]),
            "ours",
        )


def _row(table, u, key, text):
    """What a table says of FFT-GP's row."""
    rivals = RIVALS[u.metric]
    if u.places == ("OfficeHome",):
        top = BETTER[u.metric]
        yield claim(
            table,
            u,
            f"{key}-second",
            f"{top}'s {text} than FFT-GP's",
            above(u, run(top), MINE),
        )
    else:
        yield claim(
            table,
            u,
            f"{key}-best",
            f"FFT-GP's {text} than those of every other method"
            if key == "own"
            else f"FFT-GP's {text} than that of every other method",
            first(u, MINE, rivals),
        )
    yield claim(
        table,
        u,
        f"{key}-above-fedavg",
        f"FFT-GP's {text} than FedAvg's",
        above(u, MINE, run("FedAvg")),
    )
    if len(u.places) > 1:
        yield claim(
            table,
            u,
            f"{key}-lagged-best",
            f"With gaps one round old FFT-GP's {text} than every other method's",
            first(u, LATER, rivals),
            "ours",
        )
        yield claim(
            table,
            u,
            f"{key}-timing",
            f"With trial averages FFT-GP's {text} than with gaps one round old",
            above(u, MINE, LATER),
            "ours",
        )


def _levels():
    """Local against global, at home against abroad."""
    for u in everywhere(OWN):
        other = Units(GLOBAL, u.places)
        methods = {m: exceeds(u, other, run(m)) for m in (*RIVALS[OWN], "FFT-GP")}
        yield claim(
            "Table 2",
            u,
            "own-above-global",
            "Local models beat the global model of the same run on the clients' own "
            "domains, whatever the method",
            throughout(methods),
            "ours",
        )
        yield claim(
            "Table 2",
            u,
            "fft-gp-own-above-global",
            "FFT-GP's local models beat its global model on the clients' own domains",
            methods["FFT-GP"],
            "ours",
        )
    for u in everywhere(OWN, "general-own", True):
        other = Units(OUT, u.places, "general", True)
        methods = {m: exceeds(u, other, run(m)) for m in (*RIVALS[OUT], "FFT-GP")}
        yield claim(
            "Table 3",
            u,
            "left-out-below-own",
            "On the domain left out the global model is less accurate than local "
            "models on their own domains, whatever the method",
            throughout(methods),
        )
        yield claim(
            "Table 3",
            u,
            "fft-gp-left-out-below-own",
            "On the domain left out FFT-GP's global model is less accurate "
            "than its local models on their own domains",
            methods["FFT-GP"],
        )


# ------------------------------------------------------------------ Figure 6


def _fairness():
    for places in (*((p,) for p in FIGURE6), tuple(FIGURE6)):
        artefact = f"Figure 6({FIGURE6[places[0]]})"
        for rule, what in READINGS.items():
            for rival in ("FedAvg", "GA"):
                for m, words in GAPS.items():
                    u = Units(m, places, "fairness")
                    yield claim(
                        artefact,
                        u,
                        f"{slug(rule)}-below-{rival.lower()}-{slug(m)}",
                        f"{what} has a smaller deviation over clients than {rival}, "
                        f"averaging the same local models, of the {words}",
                        above(u, run(rule), run(rival)),
                    )
                for m, words in WORST.items():
                    u = Units(m, places, "fairness")
                    yield claim(
                        artefact,
                        u,
                        f"{slug(rule)}-below-{rival.lower()}-{slug(m)}",
                        f"{what} leaves the client with the largest gap in loss on "
                        f"{words} rows a smaller one than {rival}",
                        above(u, run(rule), run(rival)),
                        "ours",
                    )
        for m, words in GAPS.items():
            u = Units(m, places, "fairness")
            yield claim(
                artefact,
                u,
                f"timing-{slug(m)}",
                "FAA has a smaller deviation over clients with trial averages than "
                f"with gaps one round old, of the {words}",
                above(u, *map(run, READINGS)),
                "ours",
            )
        u = Units("weight_gap_correlation", places, "fairness")
        for m in MOVED:
            yield claim(
                artefact,
                u,
                f"{slug(m)}-more-weight-smaller-gap",
                f"Where {m} raises a client's weight, the client's gap is smaller a "
                "round later",
                negative(u, run(m)),
                "ours" if m == "FAA" else "paper",
            )  # FAA chooses anew every round, by its gaps
            yield claim(
                artefact,
                u,
                f"{slug(m)}-more-weight-beyond-chance",
                f"Where {m} raises a client's weight, its gap falls more than it does "
                "under FedAvg's weights",
                negative(u, run(m), run(m, "gaps of FedAvg")),
                "ours",
            )
            yield claim(
                artefact,
                u,
                f"{slug(m)}-more-weight-same-round",
                f"A client with more weight under {m} than under FedAvg has a smaller "
                "gap there in the same round",
                negative(u, run(m, "same round")),
                "ours",
            )


# -------------------------------------------------- which part helps, and what it costs


def step(weights, meta):
    """A run of the ablation: whose weights, which local step."""
    (method, how), _ = WEIGHTS[weights]
    return run(method, ";".join(filter(None, (how, f"meta={meta}"))))


def _ablation():
    for metric, where in (
        (OWN, "of local models on their own domain"),
        (OUT, "of the global model on the domain left out"),
    ):
        u, end = Units(metric, ("PACS",), "ablation", True), metric.split("_")[0]
        for w, (_, words) in WEIGHTS.items():
            for key, a, b in (
                ("meta-helps", "mldg", "none"),
                ("joint-helps", "joint", "none"),
                ("grace-helps", "grace", "none"),
                ("meta-beyond-joint", "mldg", "joint"),
            ):
                yield claim(
                    "Method",
                    u,
                    f"{key}-{w}-{end}",
                    f"With {words} {STEPS[a]} gives a higher accuracy {where} than "
                    f"{STEPS[b]}",
                    above(u, step(w, a), step(w, b)),
                    "paper" if key == "meta-helps" else "ours",
                )
        for w in ("faa", "lagged"):
            for meta, local in STEPS.items():
                yield claim(
                    "Method",
                    u,
                    f"{w}-weights-help-{meta}-{end}",
                    f"After {local} {WEIGHTS[w][1]} give a higher accuracy {where} "
                    "than equal ones",
                    above(u, step(w, meta), step("equal", meta)),
                    "paper" if (meta, metric) == ("mldg", OUT) else "ours",
                )
        yield claim(
            "Method",
            u,
            f"faa-beyond-ga-{end}",
            f"After the plain step FAA's weights give a higher accuracy {where} "
            "than GA's",
            above(u, step("faa", "none"), run("GA")),
            "ours",
        )
        half = run("FFT-GP", "lr=0.025;ahead=0.01")
        yield claim(
            "Method",
            u,
            f"half-meta-helps-{end}",
            "With half the step size the meta step still gives a higher accuracy "
            f"{where} than the plain step with the whole",
            above(u, half, step("faa", "none")),
            "ours",
        )
        yield claim(
            "Method",
            u,
            f"whole-beyond-half-{end}",
            f"With the whole step size the meta step gives a higher accuracy {where} "
            "than with half of it",
            above(u, step("faa", "mldg"), half),
            "ours",
        )
        u = Units(metric, ("PACS",), "sweeps", True)
        yield claim(
            "Method",
            u,
            f"alignment-helps-{end}",
            f"The meta step gives a higher accuracy {where} with the alignment loss "
            "than without",
            above(u, run("FFT-GP", "lam=0.1"), run("FFT-GP", "lam=0")),
            "ours",
        )
    for m in ("FFT-GP", "FFT-GP-lagged"):
        u = Units("seconds_over_fedavg", ("PACS",), "cost")
        yield claim(
            "Method",
            u,
            f"{slug(m)}-cost",
            f"A run of {m} takes {COST[0]:g} to {COST[1]:g} times as long as one "
            "of FedAvg",
            between(u, run(m), *COST),
            "ours",
        )


# ----------------------------------------------------------------- beside a frozen CLIP


def _foundation():
    zero, clip, prompt = map(run, ("Zero-shot", "FedCLIP", "PromptFL"))
    adapter, prompts, ce = (
        run("FFT-GP (adapter)"),
        run("FFT-GP (prompts)"),
        run("FedCLIP", "fedclip_loss=class_ce"),
    )
    for u, where in (
        (Units(OWN, ("PACS",), "adapted"), "on the clients' own domains"),
        (Units(OUT, ("PACS",), "adapted_out", True), "on the domain left out"),
    ):
        end = u.metric.split("_")[0]

        def one(key, text, test, by="ours", u=u, where=where, end=end):
            return claim(
                "Foundation models", u, f"{key}-{end}", f"{text} {where}", test, by
            )

        for key, a, what in (
            ("fedclip", clip, "FedCLIP's adapter beats"),
            ("promptfl", prompt, "PromptFL's prompts beat"),
        ):
            yield one(
                f"{key}-above-zero-shot",
                f"{what} zero-shot prediction",
                above(u, a, zero),
                "paper",
            )
        yield one(
            "class-loss-above-zero-shot",
            "FedCLIP's adapter with a loss over classes beats zero-shot prediction",
            above(u, ce, zero),
        )
        yield one(
            "class-loss-helps",
            "FedCLIP's adapter is better with a loss over classes than with the "
            "contrastive one",
            above(u, ce, clip),
        )
        yield one(
            "prompts-above-adapter",
            "PromptFL's prompts beat FedCLIP's adapter",
            above(u, prompt, clip),
        )
        yield one(
            "prompts-near-adapter",
            f"PromptFL's prompts and FedCLIP's adapter are within {ALIKE:g} points",
            near(u, prompt, clip, ALIKE),
        )
        yield one(
            "fft-gp-helps-adapter",
            "FFT-GP's adapter beats FedCLIP's",
            above(u, adapter, clip),
            "paper",
        )
        yield one(
            "fft-gp-helps-prompts",
            "FFT-GP's prompts beat PromptFL's",
            above(u, prompts, prompt),
            "paper",
        )
        yield one(
            "fft-gp-beyond-class-loss",
            "FFT-GP's adapter beats FedCLIP's with the same loss over classes",
            above(u, adapter, ce),
        )


# ----------------------------------------------------- the paper against its own tables


def cells(reported, table):
    """Printed accuracies of a table: frames [methods, data sets] of the numbers and of
    the marks, "bold", "underlined" or "".
    """
    r = reported[
        (reported.paper == "fft-gp")
        & (reported.artefact == table)
        & (reported.reported != "")
    ]
    r = r.assign(
        value=r.reported.astype(float),
        mark=r.rank_note.str.extract(r"(?:^|; )printed (bold|underlined)")[0].fillna(
            ""
        ),
    )
    return tuple(
        r.pivot(index="method", columns="dataset", values=c) for c in ("value", "mark")
    )


def _highest(table):
    """FFT-GP's number is the highest of every column."""

    def test(reported):
        x, _ = cells(reported, table)
        return held(
            {
                p: (
                    c.idxmax() == "FFT-GP",
                    f"{c['FFT-GP']:.2f} against {c.max():.2f} of {c.idxmax()}",
                )
                for p, c in x.items()
            }
        )

    return test


def _averages(reported):
    """The printed averages are those of the five columns."""
    out = {}
    for table in ("Table 2", "Table 3"):
        x, _ = cells(reported, table)
        out |= {
            f"{table} {m}": (
                round(r[list(PLACES)].mean(), 2) == r["Avg"],
                f"{r['Avg']:.2f} printed, "
                f"{r[list(PLACES)].mean():.3f} from the columns",
            )
            for m, r in x.iterrows()
        }
    return held(out)


def _marks(reported):
    """In every column the highest number is bold, the second-highest underlined,
    and nothing else is marked.
    """
    out = {}
    for table in ("Table 2", "Table 3"):
        for (p, c), (_, mark) in zip(*(t.items() for t in cells(reported, table))):
            top = sorted(set(c), reverse=True)
            due = {
                m: "bold" if k == top[0] else "underlined" if k == top[1] else ""
                for m, k in c.items()
            }
            bad = [m for m in c.index if mark[m] != due[m]]
            out[f"{table} {p}"] = (
                not bad,
                ", ".join(f"{m} {c[m]:.2f} is {mark[m] or 'unmarked'}" for m in bad),
            )
    return held(out)


def _rank(table, method, place):
    """The average of a method has this place in the table, -1 for the last."""

    def test(reported):
        a = cells(reported, table)[0]["Avg"].sort_values(ascending=False, kind="stable")
        there = a.iloc[place if place < 0 else place - 1]
        return held(
            {
                "Avg": (
                    a[method] == there,
                    f"{a[method]:.2f}; {there:.2f} has that place of {len(a)}",
                )
            }
        )

    return test


def _below(reported):
    """Of one method and data set, the number on a domain left out is below that
    of local models.
    """
    (own, _), (out, _) = (cells(reported, t) for t in ("Table 2", "Table 3"))
    both = [m for m in own.index if m in out.index]
    return held(
        {
            f"{m} {p}": (out[p][m] < own[p][m], f"{out[p][m]:.2f} and {own[p][m]:.2f}")
            for m in both
            for p in own
        }
    )


def _printed():
    names = {
        "highest-own": (
            "Table 2",
            "FFT-GP's printed accuracy is the highest of every column of Table 2",
            _highest("Table 2"),
        ),
        "highest-out": (
            "Table 3",
            "FFT-GP's printed accuracy is the highest of every column of Table 3",
            _highest("Table 3"),
        ),
        "averages": (
            "Table 2",
            "The printed averages of Tables 2 and 3 are those of their five columns",
            _averages,
        ),
        "marks": (
            "Table 2",
            (
                "In every column of Tables 2 and 3 the two highest numbers, and no "
                "others, are bold and underlined"
            ),
            _marks,
        ),
        "fedavg-last": (
            "Table 2",
            "FedAvg's printed average is the lowest of Table 2",
            _rank("Table 2", "FedAvg", -1),
        ),
        "ga-second": (
            "Table 3",
            "GA's printed average is the second of Table 3",
            _rank("Table 3", "GA", 2),
        ),
        "left-out-below-own": (
            "Table 3",
            (
                "Every printed accuracy on a domain left out is below that of the "
                "method's local models"
            ),
            _below,
        ),
    }
    for key, (artefact, text, test) in names.items():
        yield Claim(
            f"fft-gp-printed-{key}", "fft-gp", artefact, f"{text}.", test, printed=True
        )


CLAIMS = (
    *_tables(),
    *_levels(),
    *_fairness(),
    *_ablation(),
    *_foundation(),
    *_printed(),
)
