"""Secure aggregation: the server learns the sum of its clients' uploads, and no upload.

Bonawitz, Ivanov, Kreuter, Marcedone, McMahan, Patel, Ramage, Segal, Seth. Practical
Secure Aggregation for Privacy-Preserving Machine Learning. CCS 2017, Figure 4. To learn
from: there is no network here, the server follows the protocol (it could hand out keys
of its own), and with `threshold` clients on its side it can remove all masks.

    y_i = x_i + PRG(b_i) + sum_{j > i} PRG(k_ij) - sum_{j < i} PRG(k_ij)  mod 2^bits

    keys     every client announces two public keys
    share    it deals out shares of its secret key and of the seed b_i, sealed for
             each other client
    mask     it uploads y_i
    unmask   it is told whose uploads came, and reveals of those the shares of b_j, of
             all others the shares of their secret keys; never both of one client

Any `threshold` of the clients can finish, fewer learn nothing. More than half of them
are asked for, so that no server can collect both of one client by telling two stories.
X25519, HKDF, AES and SHA-256 are those of `cryptography`, Shamir's secret sharing that
of `pycryptodome`.
"""

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch

from ..core.tree import leaves, tmap, unrow

SECRET, BLOCK = 32, 16  # bytes of a secret, and of what Shamir's scheme shares at once
SHARE = 1 + SECRET  # bytes of a share: the number of its holder, and its part
MASK, SEAL = b"fedlib mask ", b"fedlib seal "  # what a key is derived for


@dataclass(frozen=True)
class Fixed:
    """Numbers in [-high, high] as integers modulo 2^bits, such that a sum over
    `clients` cannot wrap.

    A number is rounded to the nearest multiple of `step`; a sum of so many is then off
    by `error` at most, beside the rounding of the type that it is given in.
    """

    bits: int = 32
    high: float = 16.0
    clients: int = 2

    most = property(lambda self: (2 ** (self.bits - 1) - 1) // self.clients)
    step = property(lambda self: self.high / self.most)
    # the second term: x / step is a float64, with a relative error of 2^-53
    error = property(lambda self: self.clients * self.step * (1 / 2 + 2**-12))

    def encode(self, tree):
        """The numbers of a tree as integers [P]; ValueError for one out of range."""
        x = torch.cat([x.detach().cpu().double().flatten() for x in leaves(tree)])
        if (bad := ~(x.abs() <= self.high)).any():
            raise ValueError(
                f"number {int(bad.int().argmax())} is {x[bad][0]:.6g}, and the sum of "
                f"{self.clients} clients could wrap in {self.bits} bits: give a higher "
                f"end than {self.high:g}, or look why it is so large"
            )
        whole = np.rint(x.numpy() / self.step).astype(np.int64)
        return whole.astype(np.uint64) & ones(self.bits)

    def decode(self, total, like):
        """A sum of such integers [P] as numbers in the structure of `like`."""
        half = np.uint64(2 ** (self.bits - 1))
        signed = ((total + half) & ones(self.bits)).astype(np.int64) - int(half)
        numbers = unrow(torch.from_numpy(signed * self.step), like)
        return tmap(lambda v, x: v.to(x.dtype), numbers, like)


def ones(bits):
    """The largest number of so many bits, with which `&` is modulo 2^bits."""
    return np.uint64(2**bits - 1)


# ------------------------------------------------------------- cryptography of others
def public_of(secret):
    """The public key (bytes) that belongs to a secret one, on the curve X25519."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    return X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


def agreed(secret, public, info):
    """The key of two clients: of one's secret key and the other's public one."""
    from cryptography.hazmat.primitives.asymmetric import x25519
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    mine = x25519.X25519PrivateKey.from_private_bytes(secret)
    raw = mine.exchange(x25519.X25519PublicKey.from_public_bytes(public))
    return HKDF(SHA256(), SECRET, None, info).derive(raw)


def stream(key, n, bits):
    """PRG(key): n integers, uniform modulo 2^bits. A key is used once."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    kind = np.dtype("<u4" if bits <= 32 else "<u8")
    aes = Cipher(algorithms.AES(key), modes.CTR(bytes(16)))
    raw = aes.encryptor().update(bytes(n * kind.itemsize))
    return np.frombuffer(raw, kind).astype(np.uint64) & ones(bits)


def split(secret, threshold, n):
    """n shares of a secret, of which any `threshold` give it back."""
    from Crypto.Protocol.SecretSharing import Shamir

    parts = secret[:BLOCK], secret[BLOCK:]
    dealt = [Shamir.split(threshold, n, part) for part in parts]
    return [bytes([i]) + a + b for (i, a), (_, b) in zip(*dealt)]


def join(shares):
    """The secret again."""
    from Crypto.Protocol.SecretSharing import Shamir

    cut = lambda a: [(s[0], s[a : a + BLOCK]) for s in shares]
    return Shamir.combine(cut(1)) + Shamir.combine(cut(1 + BLOCK))


# ------------------------------------------------------------- the parties
class Public(NamedTuple):
    """What a client announces: where shares for it are sealed, the key of its pairwise
    masks, and the hash of its seed, by which a wrong share is found out."""

    seal: bytes
    mask: bytes
    seed: bytes


@dataclass
class Party:
    """Client `me` in one sum; a new one, with new secrets, for every sum. The four
    methods are called in order, each once."""

    me: int
    threshold: int
    bits: int = 32
    random: Callable[[int], bytes] = field(default=os.urandom, repr=False)

    def __post_init__(self):
        self.seal, self.secret, self.seed = (self.random(SECRET) for _ in range(3))
        self.known, self.held, self.answered = {}, {}, None

    def keys(self):
        """What this client announces: two public keys, and the hash of its seed."""
        hashed = hashlib.sha256(self.seed).digest()
        return Public(public_of(self.seal), public_of(self.secret), hashed)

    def share(self, known):
        """{j: Public} -> {j: shares sealed for client j}. ValueError: a second time, a
        threshold that is no majority, or another key in my name."""
        n, half = len(known), len(known) / 2
        if self.known or known.get(self.me) != self.keys() or n > 255:
            raise ValueError(
                f"client {self.me} deals out its shares once, to 255 clients at most, "
                "under its own keys"
            )
        if not half < self.threshold <= n:
            raise ValueError(f"threshold = {self.threshold} is no majority of {n}")
        self.known = dict(known)
        both = [split(s, self.threshold, n) for s in (self.seed, self.secret)]
        out = {}
        for j, a, b in zip(sorted(known), *both):
            nonce = self.random(12)
            out[j] = nonce + self.box(j).encrypt(nonce, a + b, way(self.me, j))
        return out

    def box(self, j):
        """The cipher of what client j and I seal for each other."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        return AESGCM(agreed(self.seal, self.known[j].seal, SEAL))

    def opened(self, j, sealed):
        """The shares that client j sealed for me."""
        from cryptography.exceptions import InvalidTag

        try:
            return self.box(j).decrypt(sealed[:12], sealed[12:], way(j, self.me))
        except InvalidTag as e:
            raise ValueError(
                f"the shares of client {j} for client {self.me} were changed on the way"
            ) from e

    def mask(self, x, sealed):
        """x [P] and {j: what client j sealed for me} -> y_i [P]. ValueError: a second
        time, with too few shares, or with a stranger's."""
        enough(len(sealed), self.threshold, "dealt out shares")
        if self.held or not {self.me} <= sealed.keys() <= self.known.keys():
            raise ValueError(
                f"client {self.me} uploads once, with its own shares and those of "
                "clients that announced keys"
            )
        self.held = {j: self.opened(j, s) for j, s in sealed.items()}
        y = x + stream(self.seed, len(x), self.bits)
        for j in sealed.keys() - {self.me}:
            y += pair(self.me, self.secret, j, self.known[j], len(x), self.bits)
        return y & ones(self.bits)

    def unmask(self, came):
        """The clients whose uploads came -> {j: the share that I hold of client j}.

        ValueError: too few came, or another list than before: two answers could give
        both shares of one client away.
        """
        came = frozenset(came)
        enough(len(came), self.threshold, "uploaded")
        if self.answered not in (None, came) or not came <= self.held.keys():
            raise ValueError(
                f"client {self.me} has been told of other uploads before, or of one by "
                "a client that dealt out no shares"
            )
        self.answered = came
        return {j: s[:SHARE] if j in came else s[SHARE:] for j, s in self.held.items()}


def way(a, b):
    """From whom to whom: what a sealed text is bound to."""
    return f"{a} {b} ".encode()


def pair(i, secret, j, public, n, bits):
    """What client i adds for client j: +PRG(k_ij) for j > i, else -PRG(k_ij)."""
    m = stream(agreed(secret, public.mask, MASK), n, bits)
    return m if j > i else -m & ones(bits)


def total(masked, known, shares, threshold, bits=32):
    """The server's part: {i: y_i} -> sum of x_i [P] over these i.

    known: {j: Public} of all clients that dealt out shares. shares: {i: what client i's
    `unmask` gave}. ValueError: too few uploads or shares, or a share that is wrong.
    """
    enough(len(masked), threshold, "uploaded")
    enough(len(shares), threshold, "gave their shares")
    y = sum(masked.values()) & ones(bits)
    for j in known:
        secret = join([s[j] for s in shares.values()][:threshold])
        if j in masked:
            right = hashlib.sha256(secret).digest() == known[j].seed
            y -= stream(secret, len(y), bits)
        else:  # gone after sharing: its masks stand in the uploads of all others
            right = public_of(secret) == known[j].mask
            for i in masked:
                y += pair(j, secret, i, known[i], len(y), bits)
        if not right:
            raise ValueError(f"somebody gave a wrong share of client {j}'s secret")
    return y & ones(bits)


def enough(n, threshold, did):
    """ValueError for fewer clients than the threshold."""
    if n < threshold:
        raise ValueError(f"{n} clients {did}, below the threshold of {threshold}")
