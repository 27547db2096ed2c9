"""What the sentences say that papers/*/claims.py has words for: see toys_sentences."""

import itertools

import numpy as np
from toys_sentences import (
    METRICS,
    all_of,
    any_of,
    best,
    better,
    better_is,
    contrary,
    equal,
    exactly,
    inner,
    judged,
    level,
    over_seeds,
    paired,
    positive,
    printed,
    reported,
    run_of,
    says,
    slopes,
    sure,
)

# ---------------------------------------------------------------- FedAS
ACC = "top1_acc_pct"


def printed_settings(place):
    rows = reported("fedas")
    tables = ("Table 2", "Table 3")
    mine = [r for r in rows if (r["method"], r["dataset"]) == ("FedAS", place)]
    return [r["setting"] for r in mine if r["artefact"] in tables]


@says("fedas")
def best_everywhere(w, place, rivals):
    at = printed_settings(place)
    return all_of([best(w, ACC, place, rivals, "FedAS", setting=s) for s in at])


@says("fedas")
def loses_little_at_each_skew(w, place, least):
    at = printed_settings(place)
    share = lambda s: float(s.split("P=")[1])
    parts = []
    for skew in dict.fromkeys(s.split(";")[0] for s in at):
        own = sorted((s for s in at if s.startswith(f"{skew};")), key=share)
        few, whole = ({"method": "FedAS", "setting": s} for s in (own[0], own[-1]))
        parts.append(better(w, ACC, place, few, whole, least))
    return all_of(parts)


# ---------------------------------------------------------------- FedGA
def said(metric, place="none"):
    rows = [r for r in reported("fedga") if r["method"] == "FedGA"]
    (r,) = {
        r["reported"] for r in rows if (r["metric"], r["dataset"]) == (metric, place)
    }
    return r


@says("fedga", "as_printed")
def as_printed_digits(w, metric):
    text = said(metric)
    half = 0.5 / 10 ** len(text.partition(".")[2])
    return exactly(w, metric, float(text), half, method="FedGA")


@says("fedga", "at_least_printed")
def level_printed(w, metric, place, needs):
    return level(w, metric, place, "FedGA", least=float(said(metric, place)))


@says("fedga")
def about_printed_or_lower(w, metric, place, needs):
    most = float(said(metric, place)) + METRICS[metric].margin
    return level(w, metric, place, "FedGA", most=most)


@says("fedga")
def best_on_all(w, metrics, place, rivals):
    return all_of([best(w, m, place, rivals, "FedGA") for m in metrics])


@says("fedga")
def best_tuned(w, metric, place, rivals):
    tuned = lambda m: {"method": m} | ({"study": "tuned"} if m != "FedAvg" else {})
    mine = tuned("FedGA")
    return all_of([better(w, metric, place, mine, tuned(r)) for r in rivals])


@says("fedga")
def cheaper(w, place, orders=0.0, also=()):
    of = {"place": place, "study": "timing", "unit": 0.05}
    time = "trigger_time_seconds"
    mine = [w.ask(m, "FedGA", **of, base=1.0, up=-1) for m in (time, *also)]
    both = paired(w.ask(time, "FedGini", **of, base=10.0**orders), *mine)
    d = np.log10(both[0] / both[1:].sum(0)) - orders
    return positive("orders_of_magnitude", d, 0.0 if orders else None)


def alphas(w, place, study):
    low, high = (float(said(e, "all")) for e in ("alpha_min", "alpha_max"))
    run = lambda a: {"method": "FedGA", "setting": f"alpha={a:g}", "study": study}
    return {a: run(a) for a in (low, low + 1, low + 3, high)}


@says("fedga")
def valley(w, place, study):
    runs = alphas(w, place, study)
    up = dict(zip(runs, (0, -1, 0, 0)))
    curve = {a: w.ask("best_gini", place=place, **r, up=up[a]) for a, r in runs.items()}
    return inner("best_gini", curve)


@says("fedga")
def strong_end(w, place, study):
    *others, strong = alphas(w, place, study).values()
    return all_of([better(w, "best_gini", place, strong, r) for r in others])


@says("fedga")
def mostly(w, metric, place, way):
    s = better_is(metric)
    x = [w.ask(metric, m, place, up=s * k) for m, k in zip(way, (0, 1, 1))]
    start, middle, end = paired(*x)
    return positive(metric, s * ((middle - start) - (end - middle)))


# ---------------------------------------------------------------- FFT-GP
def fft_run(method, study="", setting=""):
    parts = [setting, "scored=last" if method == "AFL" else ""]
    return {"method": method, "study": study, "setting": ";".join(filter(None, parts))}


@says("fft-gp", "best")
def best_run(w, metric, place, method, rivals, study="", setting=""):
    mine = fft_run(method, study, setting)
    others = [fft_run(r, study, setting) for r in rivals]
    return all_of([better(w, metric, place, mine, r) for r in others])


@says("fft-gp")
def above(w, place, method, own, other):
    sides = [
        fft_run(method, k.get("study", ""), k.get("setting", "")) for k in (own, other)
    ]
    x = w.ask(own["metric"], place=place, **sides[0], up=1)
    x, y = paired(x, w.ask(other["metric"], place=place, **sides[1]))
    return positive(own["metric"], x - y)


@says("fft-gp")
def each_above(w, place, methods, own, other):
    return all_of([above(w, place, m, own, other) for m in methods])


# ---------------------------------------------------------------- PLGU
MEAN = "acc_mean_pct"
HYPER = ("pFedHN", "PLGU-GHN")


@says("plgu")
def trained(w, **test):
    """Hypernetworks must be about as good as clients that train alone."""
    p = judged(w, test)
    for study, place, method, _, parts in [*w.made]:
        if method in HYPER:
            cohort = next((c for c in parts if c.startswith("C=")), "C=10")
            plain = f"personalised model;{cohort}"
            main = study == w.main(place)
            w.ask(MEAN, "Local", place, plain)
            w.ask(MEAN, method, place, ";".join(sorted(parts)) if main else plain)
    return p


@says("plgu")
def best_of_two(w, metric, place, methods, rivals, setting):
    of = {"metric": metric, "place": place, "rivals": rivals, "setting": setting}
    return any_of([trained(w, best=of | {"method": m}) for m in methods])


def cells(cohorts):
    return [(place, C) for place, some in cohorts.items() for C in some]


@says("plgu")
def everywhere(w, metric, cohorts, methods, view, rivals, least=0.0):
    each = itertools.product(cells(cohorts), methods)
    of = lambda C: f"{view};C={C}"
    return all_of(
        [best(w, metric, p, rivals, m, least, setting=of(C)) for (p, C), m in each]
    )


@says("plgu")
def one_everywhere(w, metric, cohorts, methods, view, rivals):
    at = [(place, f"{view};C={C}") for place, C in cells(cohorts)]
    return all_of([best_of_two(w, metric, p, methods, rivals, s) for p, s in at])


@says("plgu")
def ahead(w, metric, place, run, rivals, setting):
    others = [{"method": r, "setting": setting} for r in rivals]
    return all_of([better(w, metric, place, run, r) for r in others])


@says("plgu")
def same_run(w, place, a, b):
    for run in (a, b):
        w.ask(MEAN, place=place, **run)
    return sure(False)


@says("plgu")
def at_least_printed(w, artefact, metric, place, methods, setting):
    of = {"artefact": artefact, "metric": metric, "method": ", ".join(methods)}
    least = printed("plgu", **of)
    return all_of([level(w, metric, place, m, least, setting=setting) for m in methods])


@says("plgu")
def gains_as_printed(w, gain, **of):
    where = {"artefact": "Section 6.2 text", "metric": gain, "method": "PLGU-LF"}
    return everywhere(w, **of, least=printed("plgu", **where))


def at_value(run, axis, k):
    return run | {"setting": f"{run['setting']};{axis}={k:g}"}


@says("plgu")
def best_at(w, metric, place, run, axis, value, others):
    mine = at_value(run, axis, value)
    each = [at_value(run, axis, k) for k in others]
    return all_of([better(w, metric, place, mine, r) for r in each])


@says("plgu")
def inside(w, metric, place, run, axis):
    s = better_is(metric)
    ups = {1: 0, 2: s, 10: 0, 5: 0}
    ask = lambda k: w.ask(metric, place=place, **at_value(run, axis, k), up=ups[k])
    return inner(metric, {k: ask(k) for k in ups})


def layers(w, place, view, study, *order):
    """Of 0 to 8 layers PLGU-LF takes a quarter of 8; asked in this order."""
    run = {"method": "PLGU-LF", "setting": view, "study": study}
    assert printed("plgu", metric="best_D", artefact="Figure 5 text") >= 2
    for k in (0, 1, 4, 8):
        w.ask(
            MEAN,
            place=place,
            **at_value(run, "D", k),
            up=int(bool(order) and k in (1, 4)),
        )
    w.ask(MEAN, place=place, **at_value(run, "D", 2), up=int(not order))
    return lambda k: at_value(run, "D", k)


@says("plgu")
def default_best(w, place, view, study, others=(0, 1, 4, 8)):
    at = layers(w, place, view, study)
    return all_of([better(w, MEAN, place, at(2), at(k)) for k in others])


@says("plgu")
def default_above_ends(w, **given):
    return default_best(w, **given, others=(0, 8))


@says("plgu")
def others_kept(w, place, view, study, least):
    at = layers(w, place, view, study, 1)
    return all_of([better(w, MEAN, place, at(k), at(2), least) for k in (1, 4)])


@says("plgu")
def flatter(w, metrics, place, a, b):
    for run in (a, b):
        w.ask("train_loss", place=place, **run)
    return all_of([better(w, m, place, a, b) for m in metrics])


@says("plgu")
def at_like_loss(w, metric, place, method, setting, sharper=False):
    view, s = setting.split(";")[0], 1 if sharper else -1
    w.ask("train_loss", method, place, f"{view};age=whole", "flatness")
    x = w.ask(metric, method, place, setting, "flatness", up=s, base=0)
    return positive(metric, s * np.array([*x.values()]))


# ---------------------------------------------------------------- EquFL
SCORES = ("EO", "DP", "CAL", "CON")
PLACES = ("Income-Sex", "Employment-Sex", "Health-Sex", "Income-Race")
PLACES += ("MNIST", "CIFAR-10")
FEDAVG = {"method": "FedAvg"}
AXES = {"rho": (0.5, "fraction"), "lam": (1, "strength"), "size": (1000, "size")}


def aimed(m, study="", *more):
    return {
        "method": "EquFL",
        "setting": ";".join((f"target={m}", *more)),
        "study": study,
    }


@says("equfl")
def lowered(w, metric, place, a, b, names=()):
    return better(w, metric, place, a, b)


@says("equfl")
def lowest(w, metric, place, mine, rivals, **of):
    others = [{"method": r, **of} for r in rivals]
    return all_of([better(w, metric, place, mine, r) for r in others])


@says("equfl", "everywhere")
def in_all_places(w, rivals):
    each = itertools.product(SCORES, PLACES)
    return all_of([lowest(w, m, p, aimed(m), rivals) for m, p in each])


@says("equfl")
def adds_less(w, metric, place, a, b, most):
    return better(w, metric, place, a, b, -most)


@says("equfl")
def all_lowered(w, place, a):
    return all_of([better(w, m, place, a, "FedAvg") for m in SCORES])


@says("equfl")
def conflict(w, place):
    pairs = itertools.permutations(SCORES, 2)
    return any_of([better(w, m, place, "FedAvg", aimed(aim)) for aim, m in pairs])


@says("equfl")
def accurate(w, place, rival, least=0.0, targets=SCORES, study=""):
    other, m = {"method": rival, "study": study}, "accuracy"
    each = [better(w, m, place, aimed(t, study), other, least) for t in targets]
    return all_of(each)


def in_table(artefact, place, method, metric, setting="", column="reported"):
    of = {"artefact": artefact, "dataset": place, "method": method, "metric": metric}
    found = [r for r in reported("equfl") if all(r[k] == v for k, v in of.items())]
    (r,) = (r for r in found if r["setting"].removeprefix("default") == setting)
    return float(r[column])


@says("equfl")
def as_accurate(w, place, artefact):
    parts = []
    for t in SCORES:
        at = "accuracy", f"target={t}"
        x, y = (in_table(artefact, place, m, *at) for m in ("EquFL", "FedAvg"))
        parts.append(better(w, "accuracy", place, aimed(t), "FedAvg", round(x - y, 4)))
    return all_of(parts)


@says("equfl")
def lowers_by(w, metric, place, a, share, b=FEDAVG):
    lost = base = METRICS[metric].bounds[1] / 2
    lost *= share / 100
    x = w.ask(metric, place=place, **run_of(a), up=-1, base=base - lost)
    x, y = paired(x, w.ask(metric, place=place, **run_of(b)))
    return positive(
        "EO_improvement_pct", 100 * ((1 - share / 100) * y - x) / y.mean(), 0
    )


@says("equfl")
def keeps(w, metric, place, a, share, b=FEDAVG):
    return contrary(lowers_by(w, metric, place, a, 100 - share, b))


@says("equfl")
def as_printed(w, metric, place, artefact, of_it=1.0):
    share = in_table(artefact, place, "EquFL", metric, column="improvement_pct")
    return lowers_by(w, metric, place, aimed(metric), share * of_it)


@says("equfl")
def half_as_printed(w, **given):
    return as_printed(w, **given, of_it=0.5)


@says("equfl")
def less_than_half(w, metric, place, a, rival, b):
    asked = [w.ask(metric, place=place, **run_of(r)) for r in (a, rival, b)]
    x, r, y = paired(*asked)
    return positive(metric, (y - r) / 2 - (y - x), 0.0)


def improvement(w, metric, place, a, up=0, b=FEDAVG):
    """In percent of FedAvg's mean, over the seeds that both have."""
    x = w.ask(metric, place=place, **run_of(a), up=-up)
    y = w.ask(metric, place=place, **run_of(b))
    return over_seeds(lambda x, y: 100 * (y - x) / y.mean(), x, y)


@says("equfl")
def same_improvement(w, metric, place, a, b):
    x, y = paired(*(improvement(w, metric, place, r) for r in (a, b)))
    return equal(x - y, 10)


def both_answers(w, place, regular):
    for run in (run_of(regular), FEDAVG):
        w.ask("positive_rate", place=place, **run)


@says("equfl")
def minor(w, metric, place, regular):
    both_answers(w, place, regular)
    return contrary(lowers_by(w, metric, place, regular, 20))


@says("equfl")
def beats_regular(w, metric, place, a, regular):
    both_answers(w, place, regular)
    return better(w, metric, place, a, regular)


@says("equfl")
def collapses(w, place, mu, least, study=""):
    runs = [aimed(m, study, f"mu={mu:g}") | {"method": "Regular"} for m in SCORES]
    return any_of([better(w, "accuracy", place, "FedAvg", r, least) for r in runs])


@says("equfl")
def private(w, metric, place, sigmas, same):
    parts = []
    for s in sigmas:
        noisy = {"setting": f"sigma={s}", "study": "private"} if same else {}
        mine = aimed(metric, "private", f"sigma={s}")
        parts.append(better(w, metric, place, mine, FEDAVG | noisy))
    return all_of(parts)


@says("equfl")
def noisier(w, metric, place, method, setting=""):
    at = (0, 0.5, 1.0, 2.0)
    asked = [w.ask(metric, method, place, setting)]
    for s in at[1:]:
        how = ";".join(filter(None, (setting, f"sigma={s}")))
        asked.append(w.ask(metric, method, place, how, "private", up=s))
    return positive(metric, slopes(at, paired(*asked)))


@says("equfl")
def cost(w, metric, place, method, most):
    return level(w, metric, place, method, most=most, study="cost")


@says("equfl")
def stored(w, place):
    at = "server storage"
    parts = []
    for m in ("global_models_MB", "synthetic_dataset_MB"):
        x = in_table("Table XI", place, "EquFL", m, at)
        of = {"method": "EquFL", "dataset": place, "setting": at, "study": "storage"}
        parts.append(exactly(w, m, x, 0.01 * x, **of))
    return all_of(parts)


def swept(w, metric, method, axis, up=0):
    """Improvements in percent along an axis -> values, array [values, S], seeds."""
    aim = f"target={metric}" if method == "EquFL" else ""
    how = lambda k: ";".join(filter(None, (f"{axis}={k:g}", aim)))
    out = {}
    if axis == "C":  # clients: FedAvg has as many
        for k in (10, 20, 100):
            of = {"study": "clients", "setting": f"C={k}"}
            run = of | {"method": method, "setting": how(k)}
            out[k] = improvement(w, metric, "MNIST", run, up, FEDAVG | of)
    else:
        usual, study = AXES[axis]
        for k in (usual / 10, usual / 2, usual, 2 * usual):
            run = {"method": method, "setting": how(k), "study": study}
            run = {"method": method, "setting": aim} if k == usual else run
            out[k] = improvement(w, metric, "Income-Sex", run, up)
    seeds = sorted(set.intersection(*map(set, out.values())))
    return [*out], paired(*out.values()), seeds


def gain(d, margin=None):
    return positive("EO_improvement_pct", d, margin)


@says("equfl")
def helps(w, metric, axis):
    return gain(swept(w, metric, "EquFL", axis, 1)[1].mean(0))


@says("equfl", "ahead")
def ahead_along(w, metric, axis, rivals):
    def means(m, up):
        _, x, seeds = swept(w, metric, m, axis, up)
        return dict(zip(seeds, x.mean(0)))

    each = [paired(means("EquFL", 1), means(r, 0)) for r in rivals]
    return all_of([gain(x - y) for x, y in each])


@says("equfl")
def wilder(w, metric, axis, noise):
    def spread(m):
        _, x, seeds = swept(w, metric, m, axis)
        away = (x - x.mean(1, keepdims=True)) ** 2
        return dict(zip(seeds, np.maximum(0.1, np.sqrt(away.mean(0)))))

    x, y = paired(spread(noise), spread("EquFL"))
    return positive("log_ratio", np.log(x / y))


def part(found, low, high):
    """The part of an axis from low to high."""
    at, x, _ = found
    kept = [(low or 0) <= k <= (high or np.inf) for k in at]
    return [k for k, good in zip(at, kept) if good], x[kept]


@says("equfl")
def stable(w, metric, axis, low=None, high=None):
    at, x = part(swept(w, metric, "EquFL", axis), low, high)
    return equal(slopes(at, x), max(10, 0.5 * x.mean()))


@says("equfl")
def grows(w, metric, axis, low=None, high=None, share=0.0):
    at, x = part(swept(w, metric, "EquFL", axis), low, high)
    d = slopes(at, x) - share * x.mean(0)
    return gain(d, 0.0 if share else None)


@says("equfl")
def linear(w, metric, axis):
    at, x, _ = swept(w, metric, "EquFL", axis)
    r = [np.corrcoef(at, seed)[0, 1] for seed in x.T]
    return positive("linearity", np.array(r) - 0.9, 0.0)
