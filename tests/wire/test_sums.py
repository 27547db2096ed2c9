"""A server that sees sums only: the plain run's model, but for rounding."""

import pytest
import torch
from toys_core import gap, same, state
from toys_wire import M, Parties, R, about, absent, at, build, member, simulated

from fedlib.core.tree import leaves
from fedlib.deploy import masked
from fedlib.deploy.talk import Example
from fedlib.pieces.secure import Fixed

SECURE = {"threshold": 2, "bits": 40, "range": 8.0}
KINDS = ("local", "shares", "masked")
pytestmark = pytest.mark.filterwarnings("ignore:the server's network agrees")


def secured(method, spoil=None, **more):
    return Parties(method, spoil=spoil, **{"secure": SECURE} | more).serve()


def near(parties, record, bits=40):
    """Off by no more than rounding: in a mean of three, carried on by R rounds."""
    off = gap(parties.states(), state(record))
    assert 0 < off < 10 * R * Fixed(bits, SECURE["range"], M).error, off
    assert (parties.record.logs["cohort"] == record.logs["cohort"]).all()


def test_the_model_is_that_of_the_plain_run():
    """Of means by rows and alike, of models and of what else is averaged."""
    for name, bits in zip(
        "FedAvg FedAvg Uniform Ditto SCAFFOLD".split(), (32, *[40] * 4)
    ):
        method = build(name)
        parties = secured(method, secure=SECURE | {"bits": bits})
        near(parties, simulated(method), bits)
        # not plain by mistake: the server has received masked integers only
        up = {k.rpartition(".")[0] for k in parties.record.meta["tensors"]["up"]}
        assert up == {f"secure.{k}" for k in (*KINDS, "reveal")}
        sent = parties.record.meta["bytes"]["up"]["secure.masked.masked"]["bytes"]
        P = sum(x.numel() for x in leaves(method.task.init(0)))
        assert sent == (4 if bits == 32 else 8) * P * (1 + (name == "SCAFFOLD"))
        assert not parties.left()


def test_clients_that_drop_out():
    """Before the upload as if absent; after it, it is in the sum all the same."""
    method = build("Ditto")
    c = member(method, 1)
    away = simulated(method, cohort=absent(method, c, 1))
    for kind in KINDS:
        parties = secured(method, at(c, 1, kind))
        near(parties, away)
        assert parties.left() == [(c, 1, kind)]
    near(secured(method, at(c, 1, "reveal")), simulated(method))


def test_a_client_tells_no_more_than_a_sum():
    parties = Parties(build("FedAvg"), secure=SECURE)
    fed, sites, fresh = parties.fed, [*map(parties.begun, range(3))], parties.begun(0)
    down = {"w": fresh.method.task.init(0)}
    keys = [s.answer("local", about(fed), down)["keys"] for s in sites]
    again = sites[0].answer("local", about(fed), down)
    assert set(again) == {"keys"} and (again["keys"] != keys[0]).any()
    told = {"ids": torch.arange(3), "keys": torch.stack([again["keys"], *keys[1:]])}
    share = lambda site, told: site.answer("shares", about(fed), told)
    assert same(share(sites[0], told), share(sites[0], told))
    dealt = torch.stack([share(s, told)["shares"][0] for s in sites])
    sealed = {"ids": told["ids"], "shares": dealt}
    mask = lambda most: sites[0].answer("masked", about(fed, most=most), sealed)
    plain = Parties(build("FedAvg")).fed
    for what in (
        lambda: share(sites[0], {k: v[:2] for k, v in told.items()}),
        lambda: share(fresh, told),  # started again, it has no secrets
        lambda: sites[0].answer("shares", about(fed, t=1), told),
        lambda: sites[0].answer("ask", about(fed, question="report"), {}),
        lambda: sites[0].answer("local", about(plain), down),
        lambda: mask(8),  # it has 9 rows
    ):
        with pytest.raises(ValueError):
            what()


def test_methods_whose_server_must_see_single_uploads_are_refused():
    more = {"cohort": None, "secure": {"threshold": 3}, "rounds": 9}
    for name, by in {"FedAvg": "rows", "FedPer": "rows", "PerFedAvg": "alike"}.items():
        fed = Parties(build(name), **more).fed
        assert masked.weighing(fed, Example(fed)) == by, name
    for name, kw in (("FedGA", {}), ("q-FedAvg", {}), ("FedMGDA+", {}), ("FedNova", {}),
                     ("FairFed", {}), ("FedAvg", {"rule": "Median"})):  # fmt: skip
        with pytest.raises(ValueError, match="secure"):
            secured(build(name, **kw), **more)
    for secure, cohort in (({"threshold": 2}, None), ({"threshold": 1}, M), ({"bits": 32}, M),
                           ({"threshold": 4}, M), ({"threshold": 2, "bits": 41}, M)):  # fmt: skip
        with pytest.raises(ValueError):
            Parties(build("FedAvg"), secure=secure, cohort=cohort)
