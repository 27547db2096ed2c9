"""What holds of many methods: declared limits, buffers, steps, rules; liars."""

from functools import cache

import pytest
import torch
from toys_core import GROUPS, Normed, gap, toy
from toys_plain import SEED

from benchmarks import byzantine
from fedlib.core.engine import run
from fedlib.core.method import Round
from fedlib.core.tree import mean, pick, stack, subset, tmap, without
from fedlib.methods import METHODS
from fedlib.methods.limits import FAVOURS, LIMITS
from fedlib.methods.make import make
from fedlib.nets import Linear

BESIDE_CLIP = "FedCLIP", "PromptFL"
QUICK = {"EquFL": {"outer": 2, "J": 2, "size": 12}}
SAME, OTHER = 1e-6, 1e-5  # models closer than the one, farther apart than the other


task = cache(lambda: toy(groups=GROUPS))


@cache
def served(name, view, everybody, rounds, settings):
    """The models that a server sends after some rounds, or a view's answers."""
    m = make(name, task(), lr=0.2, **QUICK.get(name, {}), **dict(settings))
    more = {"cohort": None if everybody else 4, "every": rounds, "device": "cpu"}
    rec = run(m, rounds=rounds, **more)
    ids = torch.arange(task().C)
    down = m.send(rec.state["server"], ids)
    if view is None:
        return {k: v for k, v in down["w"].items() if k in task().init(0)}
    out = []
    for i, shard in enumerate(task().shards(0, rounds, rounds, ids, m.plans())):
        d = pick(down, i)
        mine = m.receive(d, pick(rec.state["clients"], i), shard)
        out.append(m.views(d, mine, shard)[view](shard.all("test").x))
    return {"answers": torch.stack(out)}


def distance(limit, a, b, rounds):
    names, settings = (limit.method, limit.gives), (tuple(x.items()) for x in (a, b))
    more = any(METHODS[m].who == "all" for m in names), rounds
    views = limit.views or (None, None)
    one, other = (served(n, v, *more, s) for n, v, s in zip(names, views, settings))
    assert other and set(other) <= set(one)
    return gap({k: one[k] for k in other}, other)


def test_a_limit_gives_the_other_method_and_other_settings_do_not():
    for x in LIMITS:
        name = x.method, x.at, x.gives
        assert distance(x, x.at | x.both, x.both, x.rounds) < SAME, name
        assert distance(x, x.unlike, {}, 4) > OTHER, name
    named = {x.method for x in LIMITS} | {x.gives for x in LIMITS}
    assert named <= set(FAVOURS) <= set(METHODS)


def uploads(name):
    """(method, server state, what clients upload [M, ...], round) after one training."""
    m = make(name, toy(Normed(5, 6, 3), groups=GROUPS), lr=0.3)
    w, ids = m.task.init(SEED), torch.arange(m.task.C)
    r = Round(0, 9, torch.tensor(0), None, ids)
    server, ups = m.server(w, r), []
    down = m.send(server, ids)
    with torch.no_grad():
        for i, s in enumerate(m.task.shards(0, 0, 9, ids, m.plans())):
            mine = m.receive(pick(down, i), m.client(w, s), s)
            ups.append(m.local(pick(down, i), mine, s)[1])
        return m, server, stack(ups), r


WHOLE = """FedAvg Uniform FedProx MOON FedAvg-P FedAvg-FT SCAFFOLD FedDyn FedNova FedAvgM
FedAdagrad FedAdam FedYogi q-FedAvg AFL TERM FedFa FedMGDA+ FedFV FedGini FedGA Ditto
APFL pFedMe PerFedAvg FedALA""".split()


def test_running_statistics_are_averaged_and_move_no_parameter():
    for name in WHOLE:
        m, server, up, r = uploads(name)
        names = m.task.buffers
        new = m.aggregate(server, up, r)
        other = up | {"w": up["w"] | tmap(lambda x: 9 - x, subset(up["w"], names))}
        again = m.aggregate(server, other, r)
        assert gap(*(without(x["w"], names) for x in (new, again))) < 1e-12, name
        p = new["log"]["weight"] if "log" in new else m.weights(up)
        if name == "FedFV":
            p = torch.full_like(p, 1 / len(p))
        want = mean(subset(up["w"], names), p)
        assert gap(subset(new["w"], names), want) < 1e-12, name
        for k in ("v", "h", "c", "m"):  # the server's own trees
            assert not set(new.get(k, {})) & set(names), (name, k)


ZERO = torch.tensor(0)
NO_RULE = """Local Centralised SCAFFOLD FedDyn q-FedAvg FedMGDA+ FedFV FedProto pFedHN
pFedHN-chunked""".split()
REFUSE = NO_RULE, ["PerFedAvg"]  # another rule, another step


def test_a_step_and_a_rule_are_heeded_or_refused():
    for name, cls in METHODS.items():
        if cls.__module__.split(".")[2] not in ("base", "drift", "fair", "personal"):
            continue
        t = toy(Normed(5, 6, 3)) if name == "FedBN" else toy()
        state = lambda m: run(m, rounds=1, seed=SEED, device="cpu").state | {"t": ZERO}
        plain = state(make(name, t))
        for what in ({"step": {"name": "SAM", "rho": 1.0}}, {"rule": "Median"}):
            try:
                got = state(make(name, t, **what))
            except ValueError as e:
                assert name in REFUSE["step" in what], (name, what, e)
                continue
            assert gap(plain, got) > 0, (name, what)


PRIVATE = {"step": {"name": "Private"}}
FLAT = {"network": Linear(5, 3)}
AMISS = (  # settings, the name that the refusal has, methods
    ({"lr": 0.0}, "lr", "q-FedAvg SCAFFOLD"),
    ({"rule": "Median"}, "rule", "SCAFFOLD FedDyn"),
    ({"option": "I", **PRIVATE}, "option", "SCAFFOLD"),
    ({"alpha": 0.0}, "alpha", "FedDyn"),
    ({"alpha": 4.0, "lr": 0.5}, "alpha", "FedDyn"),
    ({"tau": 0.0}, "tau", "FedAdagrad FedYogi"),
    ({"row_tilt": 0.5, **PRIVATE}, "row_tilt", "TERM"),
    ({"theta": -0.1}, "theta", "FedGini"),
    ({"theta": 1.5}, "theta", "FedGA"),
    ({"trigger": "half", "W": 1}, "W", "FedGA"),
    ({"lam": 0.0}, "lam", "pFedMe"),
    ({"inner_lr": 0.2, "lam": 10.0}, "inner_lr", "pFedMe"),
    ({"outer_lr": 0.2, "lam": 10.0}, "outer_lr", "pFedMe"),
    ({"step": "SAM"}, "step", "PerFedAvg"),
    ({}, "FedBN", "FedBN"),
    ({"p": 0.05}, "p", "CD2-pFed"),
    (FLAT, "head", "FedPer LG-FedAvg FedRep FedBABU FedProto FedAS"),
    (FLAT, "hidden", "MOON FedPAC CD2-pFed"),
)


def test_what_makes_no_sense_is_refused_before_a_round():
    for settings, said, names in AMISS:
        more = dict(settings)
        t = toy(more.pop("network", None))
        for name in names.split():
            with pytest.raises(ValueError) as e:
                run(make(name, t, **more), rounds=1, device="cpu")
            assert said in str(e.value), (name, settings, e.value)
    make("FedDyn", toy(), alpha=3.9, lr=0.5)
    make("FedGA", toy(), theta=1.0)


def test_what_liars_send():
    w, honest = {"a": torch.zeros(2)}, {"a": torch.tensor([[1.0, 0], [3, 0]])}
    theirs = {"a": torch.tensor([[1.0, -2]])}
    sent = lambda f: f(w, honest, theirs, None)["a"].tolist()
    assert sent(byzantine.flipped) == [[-1, 2]]
    assert sent(byzantine.scaled) == [[100, -200]]
    # mean 2 and deviation sqrt(2) of the first weight, 0 and 0 of the second
    assert sent(byzantine.little) == [[pytest.approx(2 - 1.5 * 2**0.5), 0]]
    wrong = byzantine.mislabelled(toy(), 2).y
    lied = torch.cat(toy().train[:2])
    assert torch.equal(wrong[lied], 2 - toy().y[lied])
    assert (wrong != toy().y).sum() == (2 * toy().y[lied] != 2).sum()
    # one liar of two, and the mean of what came
    m = byzantine.Attacked(task=toy(), lr=0.0, attack="times 100", liars=1)
    w = toy().init(0)
    r = Round(0, 1, torch.tensor(0), None, torch.arange(2))
    up = {"w": tmap(lambda x: torch.stack([x + 0.01, x + 3]), w), "n": torch.ones(2)}
    got = m.aggregate({"w": w}, tmap(torch.Tensor.double, up), r)["w"]
    assert gap(got, tmap(lambda x: x + 2, w)) < 1e-9
