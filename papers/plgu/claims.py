"""What PLGU's paper says, apart from the digits.

The paper names neither its number of rounds nor the round it reports; its claims are
judged here by the mean of the last rounds (record.last10_mean), over seeds. Where its
words name no number, the bound is ours and stands in the claim. By "ours": the same on
real digits, what the comparison leaves out, and whether flatness is what helps. Some
sentences are held against the paper's own tables alone: they need no run.
"""

from __future__ import annotations

from repro import papers
from repro.claims import (
    Claim,
    Finding,
    NotRun,
    allowed,
    best,
    better,
    common,
    decide,
    decide_all,
    every,
    held,
    lacking,
    level,
    near,
    say,
    some,
    span,
    throughout,
)
from repro.ledger import METRICS, slug

MEAN, LOW, TOP = "acc_mean_pct", "acc_lowest5_pct", "acc_top5_pct"
SCORES = {
    "mean": (MEAN, "mean accuracy"),
    "lowest5": (LOW, "accuracy of the lowest 5%"),
}
GLOBAL, OWN, NOW = "global model", "personalised model", "refreshed model"
ALONE = "global model on one client's data"
LF, GREP, GHN = PLGU = ("PLGU-LF", "PLGU-GRep", "PLGU-GHN")
BRIEF = {LF: "lf", GREP: "grep", GHN: "ghn"}  # in a key
RIVALS = {
    GLOBAL: ("FedAvg", "FedSAM", "Ditto", "pFedMe"),
    OWN: ("Ditto", "pFedMe", "FedRep", "pFedHN"),
}
COHORTS = {
    "CIFAR10": (10, 100),
    "CIFAR100": (10, 100),
    "TinyImageNet": (20,),
    "digits": (10, 100),
}
PRINTED = ("CIFAR10", "CIFAR100", "TinyImageNet")  # the five settings of Tables 1 and 2
SWEPT = ("CIFAR10", "digits")  # data sets of Figures 1, 5, 6 and 7
RULE = papers.about("plgu")["rule"]
KEPT = 1.0  # points that the top clients may lose: our bound
SHARP = {
    "area": ("landscape_area",),
    "eigenvalue": ("lambda_max",),
    "rise": ("rise_0.05", "rise_0.1", "rise_0.5"),
}
SHARPNESS = {
    "area": "area of the landscape",
    "eigenvalue": "largest eigenvalue",
    "rise": "growth of the loss within each radius",
}


def at(view, C, *more):
    """The setting of a cell of the main study."""
    return ";".join((view, f"C={C}", *more))


def run(method, setting, study=""):
    """A run as keywords of Values.get."""
    return {"method": method, "setting": setting} | ({"study": study} if study else {})


def claim(artefact, place, name, text, test, by="paper", study="", where=""):
    """A claim about a data set; about digits,
    which the paper does not use, it is ours.
    """
    key = "-".join(slug(s) for s in ("plgu", name, place, where) if s)
    spot = ", ".join((place, *([where.replace("=", " = ")] if "=" in where else ())))
    return Claim(
        key,
        "plgu",
        artefact,
        f"{text}: {spot}.",
        test,
        place,
        "ours" if place == "digits" else by,
        study,
    )


def overall(artefact, name, text, test):
    """A claim about the paper's five settings;
    what stands in for the data is of one kind in all of them.
    """
    return Claim(
        f"plgu-{name}",
        "plgu",
        artefact,
        f"{text} in all five settings.",
        test,
        "CIFAR10",
    )


def settings(*places):
    """{name: (place, C)} of the settings of Tables 1 and 2."""
    return {f"{p} C = {C}": (p, C) for p in places for C in COHORTS[p]}


# --------------------------------------------------- Tables 1 and 2, Figures 1, 4 and 6


def ahead(metric, place, C, method, view, margin=0.0, rivals=None):
    """`method` is better than every baseline by more than -margin."""
    return best(
        metric, place, rivals or RIVALS[view], method, margin, setting=at(view, C)
    )


def first(metric, place, C):
    """PLGU-GRep or PLGU-GHN has the best personalised models of all."""
    return some(
        *(
            ahead(metric, place, C, m, OWN, rivals=(*RIVALS[OWN], LF))
            for m in (GREP, GHN)
        )
    )


def _tables():
    for name, (metric, what) in SCORES.items():
        for place, cohorts in COHORTS.items():
            for C in cohorts:
                yield claim(
                    "Table 1",
                    place,
                    f"global-{name}",
                    f"PLGU-LF's global model has the highest {what}",
                    ahead(metric, place, C, LF, GLOBAL),
                    where=f"C={C}",
                )
                yield claim(
                    "Table 2",
                    place,
                    f"personalised-{name}",
                    "PLGU-GRep or PLGU-GHN has personalised models with a higher "
                    f"{what} than all baselines and PLGU-LF",
                    first(metric, place, C),
                    where=f"C={C}",
                )
            for m in PLGU:
                yield claim(
                    "Table 2",
                    place,
                    f"{BRIEF[m]}-above-baselines-{name}",
                    f"Personalised models of {m} have a higher {what} than those of "
                    "every baseline, whatever the cohort",
                    throughout(
                        {f"C = {C}": ahead(metric, place, C, m, OWN) for C in cohorts}
                    ),
                )
        five = settings(*PRINTED)
        yield overall(
            "Table 1",
            f"global-{name}-everywhere",
            f"PLGU-LF's global model has the highest {what}",
            throughout({s: ahead(metric, *x, LF, GLOBAL) for s, x in five.items()}),
        )
        yield overall(
            "Table 2",
            f"personalised-{name}-everywhere",
            f"PLGU-GRep or PLGU-GHN has personalised models with a higher {what} than "
            "all baselines and PLGU-LF",
            throughout({s: first(metric, *x) for s, x in five.items()}),
        )
        yield overall(
            "Table 2",
            f"all-three-{name}",
            f"Personalised models of each PLGU method have a higher {what} than those "
            "of every baseline",
            throughout(
                {
                    f"{m} {s}": ahead(metric, *x, m, OWN)
                    for s, x in five.items()
                    for m in PLGU
                }
            ),
        )
    for place, cohorts in COHORTS.items():
        for artefact, view, methods in (
            ("Table 1", GLOBAL, (LF,)),
            ("Table 2", OWN, PLGU),
        ):
            for m in methods:
                yield claim(
                    artefact,
                    place,
                    f"{BRIEF[m]}-top5-kept-{view}",
                    f"The top 5% of the clients lose at most a point by {m}'s {view} "
                    "against the best baseline, whatever the cohort",
                    throughout(
                        {
                            f"C = {C}": ahead(TOP, place, C, m, view, KEPT)
                            for C in cohorts
                        }
                    ),
                )
        C = cohorts[0]
        others = (*RIVALS[OWN], LF)
        yield claim(
            "Figure 4",
            place,
            "fastest",
            "Over the first half of the rounds PLGU-GRep and PLGU-GHN have better "
            "personalised models than all others",
            every(
                *(
                    ahead("early_mean_acc_pct", place, C, m, OWN, rivals=others)
                    for m in (GREP, GHN)
                )
            ),
            where=f"C={C}",
        )
    for place in SWEPT:
        for m in PLGU:
            yield claim(
                "Figure 1",
                place,
                f"{BRIEF[m]}-fewer-poor-clients",
                f"Fewer clients of {m} than of pFedMe and of FedRep are more than "
                "2.4 points below their mean",
                ahead(
                    "pct_clients_far_below_mean",
                    place,
                    10,
                    m,
                    OWN,
                    rivals=("pFedMe", "FedRep"),
                ),
                where="C=10",
            )
        yield claim(
            "Figure 6 text",
            place,
            "all-clients-above-75",
            "All clients of all PLGU methods are above 75%",
            every(
                *(
                    level(
                        "acc_min_over_clients_pct",
                        place,
                        m,
                        least=75,
                        setting=at(OWN, 10),
                    )
                    for m in PLGU
                )
            ),
            where="C=10",
        )
    yield overall(
        "Section 6.2 text",
        "gain-mean",
        "PLGU-LF's global model is better by 2.55 points or more",
        throughout(
            {
                s: ahead(MEAN, *x, LF, GLOBAL, -2.55)
                for s, x in settings(*PRINTED).items()
            }
        ),
    )
    yield claim(
        "Section 6.2 text",
        "CIFAR100",
        "gain-lowest5",
        "PLGU-LF's global model serves the lowest 5% of the clients better by 2.03 "
        "points or more",
        ahead(LOW, "CIFAR100", 10, LF, GLOBAL, -2.03),
        where="C=10",
    )
    yield claim(
        "Section 6.2 text",
        "CIFAR100",
        "level-lowest5",
        "PLGU-LF's global model gives the lowest 5% of the clients at least 56.85%",
        level(LOW, "CIFAR100", LF, least=56.85, setting=at(GLOBAL, 10)),
        where="C=10",
    )


# ------------------------------------------------------- what the comparison leaves out


def _controls():
    """The perturbation apart from what comes with it:
    further steps, further layers at home.
    """
    for place, (C, *_) in COHORTS.items():
        own, both = at(OWN, C), at(GLOBAL, C)
        for name, (metric, what) in SCORES.items():
            for key, a, b, text in (
                (
                    "grep-beyond-two-steps",
                    run(GREP, own),
                    run("FedRep-2x", own),
                    "PLGU-GRep has a higher {} than FedRep with as many steps",
                ),
                (
                    "two-steps-help",
                    run("FedRep-2x", own),
                    run("FedRep", own),
                    (
                        "FedRep has a higher {} with two body steps per batch "
                        "than with one"
                    ),
                ),
                (
                    "ghn-beyond-two-steps",
                    run(GHN, own),
                    run("pFedHN", f"{own};epochs=10"),
                    "PLGU-GHN has a higher {} than pFedHN with as many steps",
                ),
                (
                    "perturbing-helps-global",
                    run(LF, both),
                    run(LF, f"{both};perturb=none"),
                    (
                        "PLGU-LF's global model has a higher {} with the perturbation "
                        "than without"
                    ),
                ),
                (
                    "perturbing-helps-personalised",
                    run(LF, own),
                    run(LF, f"{own};perturb=none"),
                    (
                        "Personalised models of PLGU-LF have a higher {} with the "
                        "perturbation than without"
                    ),
                ),
                (
                    "layers-help-without-perturbing",
                    run(LF, f"{own};perturb=none"),
                    run("FedAvg-FT", own),
                    (
                        "Personalised models of PLGU-LF without the perturbation have "
                        "a higher {} than FedAvg fine-tuned"
                    ),
                ),
                (
                    "stored-beats-refreshed",
                    run(LF, own),
                    run(LF, at(NOW, C)),
                    (
                        "Personalised models of PLGU-LF have a higher {} as last "
                        "trained than with today's universal layers"
                    ),
                ),
            ):
                yield claim(
                    "Table 1" if "global" in key else "Table 2",
                    place,
                    f"{key}-{name}",
                    text.format(what),
                    better(metric, place, a, b),
                    "ours",
                    where=f"C={C}",
                )
            for m in PLGU:
                yield claim(
                    "Table 2",
                    place,
                    f"{BRIEF[m]}-beats-simple-{name}",
                    f"{m} has a higher {what} than clients that train alone and than "
                    "FedAvg fine-tuned",
                    ahead(metric, place, C, m, OWN, rivals=("Local", "FedAvg-FT")),
                    "ours",
                    where=f"C={C}",
                )
    for name, (metric, what) in SCORES.items():
        for view in (GLOBAL, OWN):
            yield claim(
                "Algorithm 1",
                "digits",
                f"lf-scores-help-{name}",
                f"PLGU-LF's {view} has a higher {what} with layer-wise scores than "
                "with equal ones",
                better(
                    metric,
                    "digits",
                    run(LF, view, "readings"),
                    run(LF, f"{view};uniform=True", "readings"),
                ),
                study="readings",
                where=view,
            )
    yield claim(
        "Algorithm 1",
        "digits",
        "sum-one-is-nothing",
        "With scores that sum to one PLGU-LF's global model is within a point of that "
        "without a perturbation",
        near(
            MEAN,
            "digits",
            *(
                run(LF, f"{GLOBAL};{how}", "readings")
                for how in ("scale=sum1", "perturb=none")
            ),
            1.0,
        ),
        study="readings",
    )


# ------------------------------------------------------------- Figure 5, Tables 3 and 4


def along(v, metric, method, place, study, view, axis):
    """Along an axis of the settings, "D": {value: one number per seed [S]}, in order.

    Raises NotRun for fewer than two.
    """
    found = {}
    for how, rule in v.runs.get((study, place, method, metric), {}):
        parts = dict(p.split("=") for p in how.split(";") if "=" in p)
        if rule == RULE and view in how.split(";") and axis in parts:
            found[float(parts[axis])] = v.get(metric, method, place, how, study)
    if len(found) < 2:
        raise NotRun(
            f"{study} {place} {method} {view} {metric} at two values of {axis}"
        )
    return dict(sorted(found.items()))


def default_D(values):
    """The D that PLGU-LF takes for itself, from the swept ones, of which the largest is
    L: five, or L / 4 if that is fewer.
    """
    return min(5, max(1, max(values) // 4))


def ends(values):
    """The first and the last of the swept values."""
    return [min(values), max(values)]


def within(values):
    """What is neither an end nor the default."""
    return [k for k in values if k not in (*ends(values), default_D(values))]


def stands_out(
    metric, place, method, view, axis, study, value, rivals=None, margin=0.0
):
    """At one value of an axis a method is better than at others, by more than -margin.

    value, rivals: numbers, or functions of the swept values; rivals None: all others.
    """

    def test(v):
        x = along(v, metric, method, place, study, view, axis)
        mine = value(x) if callable(value) else value
        other = [
            k for k in (rivals(x) if callable(rivals) else rivals or x) if k != mine
        ]
        if mine not in x or not any(k in x for k in other):
            raise NotRun(
                f"{study} {place} {method} {view} {metric} at {axis} = {mine:g} "
                "and at others"
            )
        missing = tuple(f"{axis} = {k:g}" for k in other if k not in x)
        gains = {k: over(metric, x[mine], x[k]) for k in other if k in x}
        holds, top = decide_all(gains, missing, margin)
        text = (
            f"{axis} = {mine:g}: {say(metric, x[mine].mean())}, strongest of "
            f"{len(gains)} other{'s' * (len(gains) > 1)} {axis} = {top:g}: "
            f"{say(metric, x[top].mean())}; better by {span(metric, gains[top])}"
        )
        return Finding(holds, text + allowed(margin) + lacking(missing), missing)

    return test


def over(metric, x, y):
    """How much better x [S] is than y [S], paired -> Interval."""
    return common(x, y) if METRICS[metric].better == "high" else common(y, x)


def no_worse(metric, place, method, view, axis, study, value, others, margin):
    """At none of the other values is a method worse than at this one by more than the
    margin; value, others: functions.
    """

    def test(v):
        x = along(v, metric, method, place, study, view, axis)
        mine = value(x)
        gains = {k: over(metric, x[k], x[mine]) for k in others(x)} if mine in x else {}
        if not gains:
            raise NotRun(
                f"{study} {place} {method} {view} {metric} at {axis} = {mine:g} and "
                "between the ends"
            )
        found, far = (
            {decide(g, margin) for g in gains.values()},
            min(gains, key=lambda k: gains[k].mean),
        )
        holds = "no" if "no" in found else "yes" if found == {"yes"} else "undecided"
        return Finding(
            holds,
            (
                f"{axis} = {mine:g}: {say(metric, x[mine].mean())}, farthest "
                f"below of {len(gains)} others {axis} = {far:g}: gains "
                f"{span(metric, gains[far])}"
            )
            + allowed(margin),
        )

    return test


def inner(metric, place, method, view, axis, study):
    """Some value between the ends of an axis is better than both ends."""

    def test(v):
        x = along(v, metric, method, place, study, view, axis)
        between = [k for k in x if k not in ends(x)]
        if not between:
            raise NotRun(
                f"{study} {place} {method} {view} {metric} at a value of {axis} "
                f"between {min(x):g} and {max(x):g}"
            )
        return some(
            *(
                stands_out(metric, place, method, view, axis, study, k, ends)
                for k in between
            )
        )(v)

    return test


def _sweeps():
    for place in SWEPT:
        study = "D" if place == "CIFAR10" else "D_digits"
        for view in (GLOBAL, OWN):
            of = MEAN, place, LF, view, "D", study
            yield claim(
                "Figure 5",
                place,
                "default-d-best",
                f"PLGU-LF's {view} is best with the default number of personal layers",
                stands_out(*of, default_D),
                study=study,
                where=view,
            )
            yield claim(
                "Figure 5",
                place,
                "ends-worse",
                f"PLGU-LF's {view} is better with the default number of personal "
                "layers than with none and with all",
                stands_out(*of, default_D, ends),
                study=study,
                where=view,
            )
            yield claim(
                "Figure 5",
                place,
                "between-alike",
                f"PLGU-LF's {view} is at no other number of personal layers between "
                "none and all more than a point worse than at the default",
                no_worse(*of, default_D, within, 1.0),
                study=study,
                where=view,
            )
            for name, (metric, what) in SCORES.items():
                yield claim(
                    "Figure 5",
                    place,
                    f"some-d-above-ends-{name}",
                    f"At some number of personal layers PLGU-LF's {view} has a higher "
                    f"{what} than with none and with all",
                    inner(metric, *of[1:]),
                    "ours",
                    study,
                    view,
                )
    for axis, chosen, others, artefact in (
        ("K", 5, (1, 10), "Table 3"),
        ("rho", 0.05, (0.1, 0.5), "Table 4"),
    ):
        for m, view in ((LF, GLOBAL), (LF, OWN), (GREP, OWN), (GHN, OWN)):
            of = "CIFAR10", m, view, axis, axis, chosen
            for name, (metric, what) in SCORES.items():
                yield claim(
                    artefact,
                    "CIFAR10",
                    f"{BRIEF[m]}-{axis}-best-{name}",
                    f"{m}'s {view} has the highest {what} at {axis} = {chosen}",
                    stands_out(metric, *of, others),
                    "paper" if metric == MEAN else "ours",
                    axis,
                    view,
                )
            if axis == "rho":
                yield claim(
                    artefact,
                    "CIFAR10",
                    f"{BRIEF[m]}-rho-large-hurts",
                    f"{m}'s {view} is more than a point better at rho = 0.05 than at "
                    "rho = 0.5",
                    stands_out(MEAN, *of, (0.5,), -1.0),
                    study=axis,
                    where=view,
                )


# ------------------------------------------------------------------ Figure 7


def flatter(kind, place, a, b):
    """Run a, (method, setting), lies flatter than run b by one kind of sharpness."""
    a, b = (run(*x, "flatness") for x in (a, b))
    tests = {m: better(m, place, a, b) for m in SHARP[kind]}
    return throughout(tests) if len(tests) > 1 else tests[SHARP[kind][0]]


FLATTER = {  # name: (run, run that is less flat, in words)
    "global-flatter": (
        (LF, GLOBAL),
        (LF, OWN),
        "PLGU-LF's global model is flatter than its personalised models",
    ),
    "personalised-sharper-on-same-data": (
        (LF, ALONE),
        (LF, OWN),
        (
            "On a client's own data PLGU-LF's global model is flatter than the "
            "personalised one"
        ),
    ),
    "data-alone-sharpen": (
        (LF, GLOBAL),
        (LF, ALONE),
        (
            "PLGU-LF's global model is flatter on the data of all clients than on "
            "those of one"
        ),
    ),
    "others-too": (
        ("Ditto", GLOBAL),
        ("Ditto", OWN),
        "Ditto's global model is flatter than its personalised models",
    ),
    "flatter-than-fedavg": (
        (LF, GLOBAL),
        ("FedAvg", GLOBAL),
        "PLGU-LF's global model is flatter than FedAvg's",
    ),
    "flatter-than-fedsam": (
        (LF, GLOBAL),
        ("FedSAM", GLOBAL),
        "PLGU-LF's global model is flatter than FedSAM's",
    ),
    "flatter-by-perturbing": (
        (LF, GLOBAL),
        (LF, f"{GLOBAL};perturb=none"),
        "PLGU-LF's global model is flatter with the perturbation than without",
    ),
}


def _flatness():
    for place in SWEPT:
        for kind, what in SHARPNESS.items():
            for name, (a, b, text) in FLATTER.items():
                # the paper shows two landscapes
                by = "paper" if (name, kind) == ("global-flatter", "area") else "ours"
                yield claim(
                    "Figure 7",
                    place,
                    f"{name}-{kind}",
                    f"{text}, by the {what}",
                    flatter(kind, place, a, b),
                    by,
                    "flatness",
                )


# ----------------------------------------------------- the paper against its own tables


def cells(reported, artefact, *wanted, **where):
    """Numbers of one artefact, {(dataset, setting, method, metric): number}; wanted:
    metrics, where: values of columns.
    """
    r = reported[
        (reported.paper == "plgu")
        & (reported.artefact == artefact)
        & reported.metric.isin(wanted)
    ]
    for column, value in where.items():
        r = r[r[column] == value]
    return {
        (x.dataset, x.setting, x.method, x.metric): float(x.reported)
        for x in r.itertuples()
    }


def against(artefact, metric, method, rivals, least=0.01):
    """In every setting of a table the printed number of a method is above those of its
    rivals by `least` or more.
    """

    def test(reported):
        x, out = cells(reported, artefact, metric), {}
        for place, setting, m, _ in x:
            if m == method:
                top = max(rivals, key=lambda r: x[place, setting, r, metric])
                mine, other = (
                    x[place, setting, m, metric],
                    x[place, setting, top, metric],
                )
                said = f"{mine:.2f} against {other:.2f} of {top}"
                out[f"{place} {setting.split('; ')[1]}"] = (
                    round(mine - other, 2) >= least,
                    said,
                )
        return held(out)

    return test


def sweep(artefact, axis, chosen, metric):
    """In a table the printed number is highest at the chosen value of an axis,
    method by method.
    """

    def test(reported):
        rows = {}
        for (_, setting, m, _), x in cells(reported, artefact, metric).items():
            view, *rest = setting.split("; ")
            value = float(dict(p.split("=") for p in rest)[axis])
            rows.setdefault(f"{m} {view}", {})[value] = x
        top = {k: max(x, key=x.get) for k, x in rows.items()}
        return held(
            {
                k: (
                    top[k] == chosen,
                    f"{x[chosen]:.2f} at {chosen:g}, {x[top[k]]:.2f} at {top[k]:g}",
                )
                for k, x in rows.items()
            }
        )

    return test


def between(reported):
    """The lowest 5% are below and the top 5% above the mean,
    cell by cell of the four tables.
    """
    out = {}
    for artefact in ("Table 1", "Table 2", "Table 3", "Table 4"):
        x = cells(reported, artefact, MEAN, LOW, TOP)
        for p, s, m, metric in x:
            if metric == MEAN:
                low, mean, top = (x[p, s, m, k] for k in (LOW, MEAN, TOP))
                out[f"{artefact} {p} {m} {s}"] = (
                    low < mean < top,
                    f"{low:.2f}, {mean:.2f}, {top:.2f}",
                )
    return held(out)


def same(pairs):
    """Printed numbers that should be one. pairs(reported) -> {case: (a, b)}."""
    return lambda reported: held(
        {k: (a == b, f"{a:.2f} and {b:.2f}") for k, (a, b) in pairs(reported).items()}
    )


def _repeated(reported):
    """The cells of Tables 3 and 4 at the defaults, against Tables 1 and 2."""
    main, out = (
        cells(reported, "Table 1", MEAN, LOW, TOP)
        | cells(reported, "Table 2", MEAN, LOW, TOP),
        {},
    )
    for artefact in ("Table 3", "Table 4"):
        for (p, s, m, k), x in cells(reported, artefact, MEAN, LOW, TOP).items():
            if s.endswith("; K=5; rho=0.05"):
                view = s.removesuffix("; K=5; rho=0.05")
                out[f"{artefact} {m} {view} {k}"] = (x, main[p, view, m, k])
    return out


def _quoted(reported):
    """What section 6.2 quotes of PLGU-GRep, against Table 2."""
    text = cells(reported, "Section 6.2 text", MEAN, LOW, TOP, method=GREP)
    return {
        k[-1]: (x, cells(reported, "Table 2", MEAN, LOW, TOP)[k])
        for k, x in text.items()
    }


def _toy(reported):
    """The means of Figure 1, against Table 2."""
    table = cells(reported, "Table 2", MEAN, setting="personalised model; C=10")
    return {
        m: (x, table[p, "personalised model; C=10", m, k])
        for (p, _, m, k), x in cells(reported, "Figure 1 text", MEAN).items()
    }


def _everybody(reported):
    """Every client above 75%, as the text has it of Figure 6,
    leaves no lowest 5% below.
    """
    (least,) = cells(reported, "Figure 6 text", "acc_min_over_clients_pct").values()
    low = cells(reported, "Table 2", LOW, dataset="CIFAR10")
    return held(
        {
            f"{m} {s.split('; ')[1]}": (x >= least, f"the lowest 5% have {x:.2f}")
            for (_, s, m, _), x in low.items()
            if m in PLGU
        }
    )


def _printed():
    names = {
        "above-baselines": (
            "Table 2",
            (
                "All three PLGU methods have printed personalised means above "
                "all baselines"
            ),
            _all(*(against("Table 2", MEAN, m, RIVALS[OWN]) for m in PLGU)),
        ),
        "top5-kept": (
            "Table 2",
            "No PLGU method has a printed top 5% below that of the best baseline",
            _all(*(against("Table 2", TOP, m, RIVALS[OWN], 0.0) for m in PLGU)),
        ),
        "gain-mean": (
            "Section 6.2 text",
            (
                "The printed gain of PLGU-LF's global model is at least 2.55 points in "
                "each setting"
            ),
            against("Table 1", MEAN, LF, RIVALS[GLOBAL], 2.55),
        ),
        "gain-lowest5": (
            "Section 6.2 text",
            (
                "The printed lowest 5% of PLGU-LF's global model is above all "
                "baselines everywhere"
            ),
            against("Table 1", LOW, LF, RIVALS[GLOBAL]),
        ),
        "quoted": (
            "Section 6.2 text",
            "What the text quotes of PLGU-GRep is what Table 2 prints of it",
            same(_quoted),
        ),
        "toy-example": (
            "Figure 1 text",
            "The means of the toy example are those of Table 2 at C = 10",
            same(_toy),
        ),
        "everybody-above-75": (
            "Figure 6 text",
            "With every client above 75%, no lowest 5% of Table 2 is below it",
            _everybody,
        ),
        "between": (
            "Table 3",
            (
                "In all cells of the tables the lowest 5% is below the mean and the "
                "top 5% above it"
            ),
            between,
        ),
        "repeated": (
            "Table 3",
            "At the defaults Tables 3 and 4 repeat Tables 1 and 2",
            same(_repeated),
        ),
        "k-mean": (
            "Table 3",
            "Every printed mean is highest at K = 5",
            sweep("Table 3", "K", 5, MEAN),
        ),
        "rho-mean": (
            "Table 4",
            "Every printed mean is highest at rho = 0.05",
            sweep("Table 4", "rho", 0.05, MEAN),
        ),
        "rho-lowest5": (
            "Table 4",
            "Every printed lowest 5% is highest at rho = 0.05",
            sweep("Table 4", "rho", 0.05, LOW),
        ),
    }
    for name, (artefact, text, test) in names.items():
        yield Claim(
            f"plgu-printed-{name}", "plgu", artefact, f"{text}.", test, printed=True
        )


def _all(*tests):
    """Several sentences about printed numbers as one."""

    def test(reported):
        found = [t(reported) for t in tests]
        said = [f"{m}: {f.evidence}" for m, f in zip(PLGU, found)]
        return Finding(
            "no" if any(f.holds == "no" for f in found) else "yes", " | ".join(said)
        )

    return test


CLAIMS = (*_tables(), *_controls(), *_sweeps(), *_flatness(), *_printed())
