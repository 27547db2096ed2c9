"""Clients and servers that are away: nothing is lost, and nothing is counted twice."""

import socket
import threading
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import httpx
import pytest

pytest.importorskip("flwr")

from torture import outage

from fedlib.deploy import flower, keys
from fedlib.deploy.flower import Link
from fedlib.deploy.gate import Gate, caps

SICK = ValueError("its folder is damaged")


class World:
    """Time, and clients in it: life[c] is a list of (from, to), seconds at which a
    process of client c lives; hung: those that never answer; sick: answer with an error.

    In place of the module `time` for the link, and of Flower.
    """

    def __init__(self, hung=(), sick=(), **life):
        self.now, self.hung, self.sick = 0.0, hung, sick
        self.life = {int(c[1:]): spans for c, spans in life.items()}
        self.asked = []  # (seconds, client)

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds

    def span(self, c, at=None):
        """When the process began that lives at a moment, or None."""
        at = self.now if at is None else at
        return next((a for a, b in self.life[c] if a <= at < b), None)

    def last_beat(self, c):
        """The last sign of life, every 5 s."""
        spans = [(a, min(b, self.now)) for a, b in self.life[c] if a <= self.now]
        return max((a + (b - a) // 5 * 5 for a, b in spans), default=None)


class Pretended(Link):
    """The link as it is, without Flower: its messages, answers and list of nodes."""

    def __init__(self, world, minimum=None, patience=0.0):
        self.world, self.limit, self.patience = world, 10**6, patience
        self.minimum, self.began = minimum or 1, True
        self.over, self.lines = threading.Event(), []
        self.log = self.lines.append
        self.refused, self.gone, self.signs = {}, set(), {}
        self.nodes = dict.fromkeys(world.life)

    def _nodes(self):
        return [(c, self.node(c)) for c in self.nodes]

    def node(self, c):
        beat, w = self.world.last_beat(c), self.world
        online = beat is not None and w.now < beat + 20  # so long Flower believes it
        status = flower.NodeStatus.ONLINE if online else flower.NodeStatus.OFFLINE
        until = None if beat is None else beat + 20
        return SimpleNamespace(online_until=until, status=status)

    def _send(self, c, kind, about, tree, wait):
        self.world.asked.append((self.world.now, c))
        return SimpleNamespace(at=self.world.now, taken=None)

    def _answer(self, c, sent):
        w = self.world
        life = w.span(c)
        if life is None or sent.taken not in (None, life):
            return None  # not there, or another life has the message
        if sent.taken is None:
            sent.taken, sent.when = life, w.now
        if c in w.sick:
            raise SICK
        # an answer takes 3 seconds
        return {} if c not in w.hung and w.now > sent.when + 3 else None

    def _vain(self, c, sent):
        life = self.world.span(c)
        return sent.taken is not None and life is not None and life != sent.taken

    def _missing(self, connected, sent, wait):
        return TimeoutError() if connected else ConnectionError()

    def _forget(self, sent):
        pass


EVER = 10**6


@pytest.fixture
def link(monkeypatch):
    """link(minimum, hung=, sick=, c0=[(from, to)], ...) -> a link in such a world."""

    def make(minimum=None, **world):
        w = World(**world)
        monkeypatch.setattr(flower, "time", w)
        return Pretended(w, minimum)

    return make


def ask(link, *ids, t=1, wait=60):
    """One exchange -> ({c: type of the answer}, seconds)."""
    began = link.world.now
    out = link.exchange([(c, "local", {"t": t}, {}) for c in ids], wait)
    return {c: type(a) for c, a in out.items()}, link.world.now - began


def test_all_are_killed_and_come_back_one_after_another(link):
    """One pause, said once; whoever comes within `wait` of the first is in the round."""
    at = link(
        c0=[(0, 30), (500, EVER)], c1=[(0, 31), (507, EVER)], c2=[(0, 32), (530, EVER)]
    )
    assert ask(at, 0, 1, 2)[0] == {0: dict, 1: dict, 2: dict}
    at.world.now = 29.0  # they take the message, and die with it
    got, seconds = ask(at, 0, 1, 2)
    assert got == {0: dict, 1: dict, 2: dict} and 500 < seconds < 515
    assert at.lines == [
        "paused: 0 of 3 clients answer, and 1 must; not connected: client 0, 1, 2",
        "going on: client 0 is connected",
    ]


def test_one_that_is_away_is_waited_for_once(link):
    at = link(c0=[(0, 10)], c1=[(0, EVER)], c2=[(0, EVER)])
    at.world.now = 9.0
    got, seconds = ask(at, 0, 1, 2)
    assert got == {0: ConnectionError, 1: dict, 2: dict} and 59 < seconds < 62
    got, seconds = ask(at, 0, 1, 2)
    assert got == {0: ConnectionError, 1: dict, 2: dict} and seconds < 5
    assert not at.lines


def test_one_that_comes_back_within_wait_is_asked_again(link):
    """What it had in hand died with it."""
    at = link(c0=[(0, 10), (45, EVER)], c1=[(0, EVER)])
    at.world.now = 9.0
    got, seconds = ask(at, 0, 1)
    assert got == {0: dict, 1: dict} and 36 < seconds < 45 and not at.lines
    assert [c for _, c in at.world.asked] == [0, 1, 0]


def test_one_that_was_away_before_and_came_back_counts_again(link):
    at = link(c0=[(0, 10), (90, EVER)], c1=[(0, EVER)])
    at.world.now = 9.0
    assert ask(at, 0, 1)[0] == {0: ConnectionError, 1: dict}
    at.world.now = 95.0
    assert ask(at, 0, 1)[0] == {0: dict, 1: dict}


def test_one_that_hangs_is_late_and_no_outage(link):
    at = link(hung=(0,), c0=[(0, EVER)])
    got, seconds = ask(at, 0)
    assert got == {0: TimeoutError} and 59 < seconds < 62 and not at.lines


def test_clients_that_refuse_are_no_outage(link):
    at = link(sick=(0, 1), c0=[(0, EVER)], c1=[(0, EVER)])
    got, seconds = ask(at, 0, 1)
    assert got == {0: ValueError, 1: ValueError} and seconds < 1 and not at.lines


def test_one_refuses_and_the_other_is_away(link):
    """A refusal is no answer: the federation waits for the one that can give one."""
    at = link(sick=(0,), c0=[(0, EVER)], c1=[(400, EVER)])
    assert ask(at, 0, 1) == ({0: ValueError, 1: dict}, pytest.approx(404, abs=2))
    assert "0 of 2 clients answer, and 1 must; not connected: client 1" in at.lines[0]


def test_the_minimum_holds_during_the_run(link):
    lives = {"c0": [(0, EVER)], "c1": [(0, 10), (300, EVER)], "c2": [(0, 10)]}
    for minimum, first in ((1, 60), (2, 294)):
        at = link(minimum, **lives)
        at.world.now = 9.0
        got, seconds = ask(at, 0, 1, 2)
        assert got[0] is dict and got[1] is (dict if minimum == 2 else ConnectionError)
        assert seconds > first and bool(at.lines) == (minimum == 2)


def test_the_minimum_of_a_cohort_is_of_those_that_are_asked(link):
    """Others who are there do not help a round that does not ask them; of one client
    that is asked, one must answer, however large the minimum."""
    at = link(3, c0=[(0, EVER)], c1=[(200, EVER)], c2=[(0, EVER)])
    assert ask(at, 1) == ({1: dict}, pytest.approx(204, abs=2))
    assert ask(at, 0, 2)[0] == {0: dict, 2: dict}


def test_before_round_0_all_must_answer(link):
    at = link(c0=[(0, EVER)], c1=[(200, EVER)])
    assert ask(at, 0, 1, t=-1)[0] == {0: dict, 1: dict}
    assert "1 of 2 clients answer, and 2 must" in at.lines[0]


def test_the_dead_do_not_end_a_pause(link):
    """Flower takes a client for connected for 20 s after its last sign of life."""
    at = link(c0=[(0, 30)], c1=[(0, 30), (400, EVER)])
    at.world.now = 29.0
    got, seconds = ask(at, 0, 1, wait=12)
    assert got == {0: ConnectionError, 1: dict} and seconds > 371
    assert len(at.lines) == 2


def test_the_start_waits_for_all_and_then_for_the_minimum(link):
    for t, minimum, ok in ((-1, 1, False), (0, None, True), (0, 2, False)):
        at = link(minimum, c0=[(0, EVER)], c1=[])
        at.began, at.patience = False, 100.0
        if ok:
            got, seconds = ask(at, 0, 1, t=t)
            assert got == {0: dict, 1: ConnectionError} and seconds > 100
            continue
        with pytest.raises(
            ValueError, match="1 of 2 clients came within 100 s, client 1"
        ):
            ask(at, 0, 1, t=t)


def test_the_end_is_told_to_those_who_are_there(link):
    """It pauses for nobody; a server that was done before waits some seconds."""
    at = link(c0=[(0, EVER)], c1=[(0, 1)])
    at.world.now = 30.0
    at.end()
    assert [c for _, c in at.world.asked] == [0] and not at.lines
    at = link(c0=[(4, EVER)], c1=[(6, EVER)])
    at.began = False
    at.end()
    assert [c for _, c in at.world.asked] == [0, 1] and at.world.now < 12


# ---------------------------------------------------------------- on Flower itself
@pytest.fixture
def real():
    """A link of two clients whose threads are not started."""
    known = {c: keys.public(keys.stand_in(c)) for c in range(2)}
    bound = socket.create_server(("127.0.0.1", 0))
    with Gate(bound, caps(3)) as s:
        yield Link(s, known)


def test_a_message_is_lost_with_the_life_that_took_it(real):
    state, node = real.state, real.nodes[0]
    state.activate_node(node, flower.BEAT)
    sent = real._send(0, "local", {}, {}, 60)
    assert not real._vain(0, sent)  # not taken yet
    assert [m.metadata.message_id for m in state.get_message_ins(node, None)] == [sent]
    assert not real._vain(0, sent)  # at work
    state.deactivate_node(node)
    assert not real._vain(0, sent)  # away
    state.activate_node(node, flower.BEAT)
    assert real._vain(0, sent) and not state.get_message_ins(node, None)
    real._forget(sent)
    assert real._vain(0, sent)


def test_who_is_connected_is_seen_by_signs_of_life(real, monkeypatch):
    """One BEAT after the last; Flower itself believes in it for two."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(flower, "time", SimpleNamespace(monotonic=lambda: clock.now))
    state, node = real.state, real.nodes[1]
    assert real.connected() == set()
    state.activate_node(node, flower.BEAT)
    assert real.connected() == {1}
    clock.now = flower.BEAT + 1.0
    assert real.connected() == set()
    assert state.get_node_info(node_ids=[node])[0].status == flower.NodeStatus.ONLINE
    state.acknowledge_node_heartbeat(node, flower.BEAT)
    assert real.connected() == {1}
    state.deactivate_node(node)
    assert real.connected() == set()


def test_a_server_that_slept_goes_on(real, monkeypatch):
    """Flower ends a run of which it has not heard for a minute, and takes no message
    of it: there is a new one.
    """
    state, old = real.state, real.run
    for node in real.nodes.values():
        state.activate_node(node, flower.BEAT)
    sent = real._send(0, "local", {}, {}, 60)
    state.task_token_store[real.task].active_until = datetime.now(UTC) - timedelta(
        days=1
    )
    assert not state.acknowledge_task_heartbeat(real.task)
    lost = real._send(1, "local", {}, {}, 60)
    assert lost not in state.message_ins_store
    waits = iter([False, False, True])
    monkeypatch.setattr(real.over, "wait", lambda seconds: next(waits))
    real._alive()
    assert real.run != old
    assert real._vain(0, sent) and real._vain(1, lost)
    assert not real._vain(1, real._send(1, "local", {}, {}, 60))


# ---------------------------------------------------------------- a client's side
def test_a_client_looks_for_its_server_more_and_more_seldom(monkeypatch):
    """Said once when it is lost, and no end of patience; found again, all anew."""
    tries, lines, there = [], [], iter([True] + 30 * [False] + [True] + 2 * [False])

    class Leave(threading.Event):
        def wait(self, seconds):
            tries.append(seconds)
            clock.now += seconds

    clock, leave = SimpleNamespace(now=0.0), Leave()
    monkeypatch.setattr(flower, "time", SimpleNamespace(monotonic=lambda: clock.now))

    @flower.contextmanager
    def node(*_):
        yield None, None

    def work(*_):
        clock.now += 100
        raise httpx.ConnectError("gone")

    def knock():
        for answer in there:
            return answer
        leave.set()

    monkeypatch.setattr(flower, "node", node)
    monkeypatch.setattr(flower, "work", work)
    flower.join(
        None, 0, "here", None, patience=50, knock=knock, leave=leave, log=lines.append
    )
    assert (
        lines
        == [
            "client 0 is connected to here",
            "lost here (nobody answers); trying again",
        ]
        * 2
    )
    for k, seconds in enumerate(tries[:31]):
        most = min(8, 0.5 * 2**k)
        assert most / 2 <= seconds <= most
    assert len(set(tries[5:31])) > 20  # not all clients at one time
    assert tries[31] <= 0.5  # found and lost again: from the beginning


def test_a_server_that_never_was_there_is_not_waited_for(monkeypatch):
    with pytest.raises(
        ValueError, match="nobody answers, for 0 s: is the server started"
    ):
        flower.join(None, 0, "here", None, patience=0, knock=lambda: False)


# ---------------------------------------------------------------- real processes
@pytest.mark.full
def test_all_clients_are_killed_in_round_1_and_come_back(tmp_path):
    """No round is lost: record and state are those of the simulation, bit for bit."""
    truth = outage.undisturbed()
    with outage.Parties(tmp_path / "all", wait=25) as them:
        them.start("server", 0, 1, 2)
        them.until("round 0 of 4: 3 clients")
        them.kill(0, 1, 2)
        them.until("paused: 0 of 3 clients answer, and 1 must")
        them.start(0, 1, 2)
        them.until("going on: client ")
        them.ended(120)
        log = them.log()
    assert outage.differs(truth, tmp_path / "all") is None, log
    assert "left out" not in log and log.count("paused") == log.count("going on") == 1


@pytest.mark.full
def test_a_share_of_the_torture():
    """One kill of the server, of a client and of all clients, at a random moment."""
    for count in outage.measure(3, 0):
        assert (count.n, count.bad) == (1, 0), count.examples


@pytest.mark.parametrize("times", [flower.HUNG - 1, flower.HUNG])
def test_a_server_that_is_killed_in_its_first_answer_is_tried_again(monkeypatch, times):
    """It hangs up, as one that speaks TLS does every time; then it is there."""
    left = [times]

    @contextmanager
    def node(*_):
        if left[0]:
            left[0] -= 1
            raise httpx.ReadError("the end")
        yield None, None

    monkeypatch.setattr(flower, "SOON", 0.01)
    monkeypatch.setattr(flower, "LATE", 0.01)
    monkeypatch.setattr(flower, "node", node)
    monkeypatch.setattr(flower, "work", lambda *_: True)
    told = dict(key=None, once=True, log=lambda _: None)
    if times == flower.HUNG:
        with pytest.raises(ValueError, match="hangs up: if it speaks TLS"):
            flower.join(None, 0, "localhost:1", **told)
    else:
        flower.join(None, 0, "localhost:1", **told)
    assert not left[0]
