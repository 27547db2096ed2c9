"""Clients that misbehave over the wire: every party is a process, and each has a key.

What a round must give: it ends with the others, as if the client had not been drawn,
and the log says which client, round and stage, and why.
"""

import shutil
from datetime import UTC, datetime

import pytest

pytest.importorskip("flwr")

import hostile
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from hostile import Blind, Clock, Hold
from test_deploy_flower import ended, federation, parties, port, until

from fedlib.deploy import keys

SLOW = ("too late",)  # waits as long as the federation does
QUICK = (
    "NaN",
    "a shape",
    "a dict",
    "a missing name",
    "another number",
    "more rows",
    "a pickle",
    "a number",
    "a replay",
    "for another client",
    "two answers",
    "an excuse",
)
pytestmark = pytest.mark.filterwarnings("ignore:fewer than 10 test rows")


def met(folder, deeds, **more):
    """Do the deeds in one federation, and see that each is met as it should be."""
    with parties() as start:
        text, reasons, far = hostile.suffered(folder, start, deeds, **more)
    wrong = [w for w in hostile.verdict(text, reasons, far, deeds).values() if w]
    assert not wrong, "\n".join([*wrong, text])
    assert not (folder / "exploded").exists()
    # nobody but the liar is blamed, and only in its rounds
    refused = [deed for deed in deeds if hostile.DEEDS[deed]]
    assert text.count("left out") == len(refused)
    assert "\x1b" not in text
    return text


def test_a_client_that_answers_nonsense_is_left_out_and_the_rest_goes_on(tmp_path):
    met(tmp_path, QUICK)


@pytest.mark.full
def test_every_kind_of_nonsense(tmp_path):
    met(tmp_path, [deed for deed in hostile.DEEDS if deed not in SLOW])


@pytest.mark.full
def test_an_answer_that_comes_too_late_is_not_waited_for(tmp_path):
    met(tmp_path, ["NaN", "too late", "NaN"], wait=8)


# ----------------------------------------------- clients that should not be let in again
@pytest.fixture
def keyed(tmp_path):
    """(federation file, server's arguments, client's arguments of (c, folder, key)) of
    a federation with certificate and keys."""
    file = federation(tmp_path, {"name": "Ditto", "lam": 0.5, "lr": 0.1}, 3, 4)
    keys.make(tmp_path / "keys", ["localhost"], 3)
    at = port()
    run = "--folder", tmp_path / "run", "--port", at, "--keys", tmp_path / "keys"
    server = "server", file, *run, "--minimum", 1

    def client(c, folder=None, key=None, *more):
        mine = tmp_path / f"mine-{c}.npz", "--folder", folder or tmp_path / f"state-{c}"
        me = tmp_path / f"keys/client-{c if key is None else key}.key"
        ca = "--ca", tmp_path / "keys/ca.pem", "--key", me
        there = "--server", f"localhost:{at}", "--once"
        return "client", file, "--client", c, "--data", *mine, *there, *ca, *more

    return file, server, client


def said_in(log):
    return log.read_text() if log.exists() else ""


@pytest.mark.full
def test_a_client_comes_back_only_as_itself(tmp_path, keyed):
    """Client 2 leaves in round 1.

    With a damaged state, another client's folder, a wrong clock or a key that is in use
    nobody comes in its place; who comes with its key and another number is left out.
    Then it is back with its own folder, and all is as if it had been away.
    """
    file, server, client = keyed
    log, state = tmp_path / "server.txt", tmp_path / "state-2"
    why = "ValueError: this is client 1 with the key of client 2"

    def refused(start, name, *argv, trick=None):
        """What a client says that must end by itself."""
        out = tmp_path / f"{name}.txt"
        code, said = ended(start(out, *argv, trick=trick), out, 60)
        assert code == 2, said
        return said

    with parties() as start:
        main = start(log, *server)
        start(tmp_path / "0.txt", *client(0), trick=Hold(tmp_path, "score1", "score2"))
        start(tmp_path / "1.txt", *client(1))
        out = tmp_path / "2.txt"
        two = start(out, *client(2))
        until((tmp_path / "held-score1").exists, "round 1", log=log)
        # its scores of round 0, before and after training, and that of round 1
        until(lambda: said_in(out).count("score: ") == 3, "client 2", log=out)
        two.terminate()
        ended(two, out)

        shutil.copytree(state, tmp_path / "broken")
        step = max((tmp_path / "broken").glob("step-*"))
        body = bytearray(step.read_bytes())
        body[-1] ^= 1
        step.write_bytes(body)
        said = refused(start, "broken-log", *client(2, tmp_path / "broken"))
        assert f"{step} is damaged (its checksum does not fit)" in said
        shutil.copytree(tmp_path / "state-1", tmp_path / "other")
        said = refused(start, "other-log", *client(2, tmp_path / "other"))
        assert "belongs to client 1 of federation" in said
        for name, seconds in (("fast", 60), ("slow", -600)):
            said = refused(start, name, *client(2), trick=Clock(seconds))
            assert "do the two clocks agree? Ours may be a few seconds fast" in said
        twin = client(1, tmp_path / "twin", None, "--patience", 1)
        assert "client 1 is connected already" in refused(start, "twin-log", *twin)

        wrong = start(tmp_path / "wrong.txt", *client(1, tmp_path / "wrong", 2))
        met = lambda: "connected" in said_in(tmp_path / "wrong.txt")
        until(met, "the client with the key of another", log=log)
        (tmp_path / "go-score1").touch()
        until((tmp_path / "held-score2").exists, "round 2", log=log)
        met = lambda: said_in(tmp_path / "wrong.txt").count(why) == 2
        until(met, "its answer in round 2", log=tmp_path / "wrong.txt")
        wrong.terminate()
        ended(wrong, tmp_path / "wrong.txt")
        two = start(tmp_path / "2-again.txt", *client(2))
        back = lambda: "connected" in said_in(tmp_path / "2-again.txt")
        until(back, "client 2", log=tmp_path / "2-again.txt")
        (tmp_path / "go-score2").touch()
        code, text = ended(main, log)
    assert code == 0, text
    why = f"it says: {why}"
    out = [line for line in text.splitlines() if "left out" in line]
    assert len(out) == 2 and all(why in line for line in out), text
    assert out[0].startswith("client 2 left out of round 1, local: ")
    for t, n in enumerate((3, 2, 2, 3)):
        assert f"round {t} of 4: {n} clients" in text
    assert hostile.apart(tmp_path, file, {1: why, 2: why}) <= 1e-6


def outdate(folder):
    """The server's certificate anew, signed by the same authority, valid in 2020."""
    read = lambda name: x509.load_pem_x509_certificate((folder / name).read_bytes())
    old = read("server.pem")
    new = (
        x509.CertificateBuilder()
        .subject_name(old.subject)
        .issuer_name(old.issuer)
        .public_key(old.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime(2020, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(2020, 2, 1, tzinfo=UTC))
    )
    for e in old.extensions:
        new = new.add_extension(e.value, e.critical)
    signed = new.sign(keys.private(folder / "ca.key"), hashes.SHA256())
    (folder / "server.pem").write_bytes(signed.public_bytes(keys.form.Encoding.PEM))


def test_a_certificate_that_has_expired_is_not_believed(tmp_path, keyed):
    _, server, client = keyed
    outdate(tmp_path / "keys")
    logs = [tmp_path / f"{name}.txt" for name in ("honest", "blind", "client")]
    with parties() as start:
        code, text = ended(start(logs[0], *server), logs[0])
        assert code == 2 and "is valid from 2020-01-01 to 2020-02-01" in text
        start(logs[1], *server, trick=Blind())
        up = lambda: "listening" in said_in(logs[1])
        until(up, "the server that does not look", log=logs[1])
        code, text = ended(start(logs[2], *client(0)), logs[2])
        assert code == 2 and "certificate has expired" in text
