"""Who may take part: a certificate proves the server to its clients, a pair of keys
proves each client to the server.

In the folder:

    ca.pem           every client gets it, and trusts what ca.key has signed
    ca.key           signs certificates; keep it off the network
    server.pem/.key  stay with the server
    client-0.key     goes to client 0 by a safe way, and nowhere else
    client-0.pub     is registered at the server: flwr supernode register client-0.pub
"""

import os
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives import serialization as form
from cryptography.hazmat.primitives.asymmetric import ec

CURVE = ec.SECP384R1()
HERE = ("localhost", "127.0.0.1", "::1")


def make(folder, hosts, clients, days=365):
    """Write a fresh set of files, readable by their owner only; FileExistsError where
    one is there.

    hosts: names or addresses under which clients reach the server; this machine's own
    are added. The certificates are valid for `days` from now.
    """
    ca, key = ec.generate_private_key(CURVE), ec.generate_private_key(CURVE)
    root = certificate("fedlib federation", ca, ca, days)
    root = root.add_extension(x509.BasicConstraints(True, 0), critical=True)
    names = [name(h) for h in dict.fromkeys((*hosts, *HERE))]
    leaf = certificate(hosts[0], key, ca, days)
    leaf = leaf.add_extension(x509.SubjectAlternativeName(names), critical=False)
    pem = lambda c: c.sign(ca, hashes.SHA256()).public_bytes(form.Encoding.PEM)
    private = form.PrivateFormat.PKCS8
    files = {"ca.pem": pem(root), "ca.key": secret(ca, form.Encoding.PEM, private)}
    files |= {"server.pem": pem(leaf)}
    files |= {"server.key": secret(key, form.Encoding.PEM, private)}
    for c in range(clients):  # as Flower reads them
        pair, ssh = ec.generate_private_key(CURVE), form.PrivateFormat.OpenSSH
        public = form.Encoding.OpenSSH, form.PublicFormat.OpenSSH
        files[f"client-{c}.key"] = secret(pair, form.Encoding.PEM, ssh)
        files[f"client-{c}.pub"] = pair.public_key().public_bytes(*public)
    Path(folder).mkdir(parents=True, exist_ok=True)
    for file, content in files.items():
        new = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        with os.fdopen(os.open(Path(folder) / file, new, 0o600), "wb") as f:
            f.write(content)


def secret(key, *how):
    return key.private_bytes(*how, form.NoEncryption())


def name(host):
    """A host in a certificate; ValueError for one that can be none."""
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def certificate(subject, key, ca, days):
    """What `ca` is to sign for the holder of `key`."""
    named = lambda text: x509.Name(
        [x509.NameAttribute(x509.NameOID.COMMON_NAME, text[:64])]
    )
    now, own = datetime.now(UTC), x509.SubjectKeyIdentifier.from_public_key
    by = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca.public_key())
    return (
        x509.CertificateBuilder()
        .subject_name(named(subject))
        .issuer_name(named("fedlib federation"))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(own(key.public_key()), critical=False)
        .add_extension(by, critical=False)
    )
