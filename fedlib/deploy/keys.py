"""Who may take part: a certificate proves the server to its clients, a pair of keys
proves each client to the server.

    make("keys", ["server.example"], clients=3)
    certificate, key, {client: public key} = server("keys", 3)
    authority("ca.pem"), private("client-0.key")

In the folder:

    ca.pem           every client gets it, and trusts what ca.key has signed
    ca.key           signs certificates; keep it off the network
    server.pem/.key  stay with the server
    client-0.key     goes to client 0 by a safe way, and nowhere else
    client-0.pub     stays with the server: who holds the other half is client 0
"""

from __future__ import annotations

import os
import re
from base64 import b64decode
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives import serialization as form
from cryptography.hazmat.primitives.asymmetric import ec

from ..core.ranges import check_whole, short

CURVE = ec.SECP384R1()
SIGNED = -5, 305  # seconds of age at which a signed time counts, as Flower has it
HERE = ("localhost", "127.0.0.1", "::1")
AGAIN = "make new ones with `python -m fedlib deploy keys`"


def make(folder, hosts, clients, days=365, now=None):
    """Write a fresh set of files, readable by their owner only; nothing is overwritten.

    hosts: names or addresses under which clients reach the server; this machine's own
    are added. The certificates are valid for `days` from `now` (a datetime; today).
    """
    folder, now = Path(folder), now or datetime.now(UTC)
    check_whole("clients", clients, 1, 10**5)
    check_whole("days", days, 1, 36_500, ", a hundred years")
    if folder.is_file():
        raise ValueError(f"{folder} is a file: give a new folder")
    if folder.exists() and any(folder.iterdir()):
        raise ValueError(
            f"{folder} is not empty, and keys that may be in use are not overwritten: "
            "give a new folder"
        )
    ca, key = ec.generate_private_key(CURVE), ec.generate_private_key(CURVE)
    issuer, every = "fedlib federation", dict.fromkeys((*hosts, *HERE))
    names = x509.SubjectAlternativeName([_host(h) for h in every])
    folder.mkdir(parents=True, exist_ok=True)
    # certificates and lists of revoked ones, nothing else
    sign = x509.KeyUsage(*[k in (5, 6) for k in range(9)])
    root = (
        _certificate(issuer, issuer, ca.public_key(), now, days)
        .add_extension(x509.BasicConstraints(True, 0), critical=True)
        .add_extension(sign, critical=True)
        .add_extension(
            x509.SubjectKeyIdentifier.from_public_key(ca.public_key()), critical=False
        )
    )
    leaf = (
        _certificate(hosts[0], issuer, key.public_key(), now, days)
        .add_extension(names, critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(ca.public_key()),
            critical=False,
        )
    )
    files = {
        "ca.pem": root.sign(ca, hashes.SHA256()).public_bytes(form.Encoding.PEM),
        "ca.key": _pem(ca),
        "server.pem": leaf.sign(ca, hashes.SHA256()).public_bytes(form.Encoding.PEM),
        "server.key": _pem(key),
    }
    for c in range(clients):
        pair = ec.generate_private_key(CURVE)
        files |= {f"client-{c}.key": _pem(pair), f"client-{c}.pub": public(pair)}
    for name, content in files.items():
        new = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        with os.fdopen(os.open(folder / name, new, 0o600), "wb") as f:
            f.write(content)


def server(folder, clients, now=None):
    """What a server needs of such a folder, checked: (certificate file, key file,
    {client: public key}).
    """
    certificate, key = Path(folder) / "server.pem", Path(folder) / "server.key"
    if authority(certificate, now).public_key() != private(key).public_key():
        raise ValueError(f"{certificate} and {key} do not belong together: {AGAIN}")
    known = {}
    for c in range(clients):
        path = Path(folder) / f"client-{c}.pub"
        known[c] = _parse(path, "public key", form.load_pem_public_key).public_bytes(
            form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo
        )
    return certificate, key, known


def authority(path, now=None):
    """The certificate in a file; ValueError if there is none, or if it is not valid
    today.
    """
    got = _parse(path, "certificate", x509.load_pem_x509_certificate)
    now = now or datetime.now(UTC)
    begin, end = got.not_valid_before_utc, got.not_valid_after_utc
    if not begin <= now <= end:
        raise ValueError(
            f"the certificate {path} is valid from {begin:%Y-%m-%d} to {end:%Y-%m-%d}, "
            f"and today is {now:%Y-%m-%d}: {AGAIN}, and give the clients theirs"
        )
    return got


def private(path):
    """The private key in a file."""
    return _parse(path, "private key", lambda pem: form.load_pem_private_key(pem, None))


def public(key):
    """The public half of a private key, as the server knows it."""
    return key.public_key().public_bytes(
        form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo
    )


def signed(stamp, signature, key, now=None):
    """Did the holder of this public key sign this time, and is it now?

    stamp: ISO 8601; signature: in base64; all are bytes.
    """
    try:
        form.load_pem_public_key(key).verify(
            b64decode(signature), stamp, ec.ECDSA(hashes.SHA256())
        )
        age = (now or datetime.now(UTC)) - datetime.fromisoformat(stamp.decode())
    except (InvalidSignature, ValueError, TypeError):
        return False
    return SIGNED[0] < age.total_seconds() < SIGNED[1]


def stand_in(c):
    """Client c's key where nothing is secret: on one machine, without files.

    Anybody can compute it.
    """
    return ec.derive_private_key(1 + c, CURVE)


def _parse(path, what, parse):
    try:
        return parse(Path(path).read_bytes())
    except OSError as e:
        raise ValueError(
            f"{path}: a {what} is needed there, and it cannot be read ({e.strerror})"
        ) from e
    except (ValueError, TypeError) as e:
        raise ValueError(
            f"{path} holds no {what} that can be read ({e}): {AGAIN}"
        ) from e


def _pem(key):
    return key.private_bytes(
        form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption()
    )


def _host(text):
    try:
        return x509.IPAddress(ip_address(text))
    except ValueError:
        pass
    if not re.fullmatch(r"[A-Za-z0-9*_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*", text):
        try:
            ascii_name = text.encode("idna").decode()
        except UnicodeError:
            ascii_name = ""
        as_in = ascii_name if not text.isascii() and ascii_name else "server.example"
        raise ValueError(
            f"host = {short(text)}: give an address or a name of letters, digits, "
            f"hyphens and dots, as {as_in}"
        )
    return x509.DNSName(text)


def _certificate(subject, issuer, key, now, days):
    name = lambda text: x509.Name(
        [x509.NameAttribute(x509.NameOID.COMMON_NAME, text[:64])]
    )
    return (
        x509.CertificateBuilder()
        .subject_name(name(subject))
        .issuer_name(name(issuer))
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=days))
    )
