"""Secure aggregation: a server learns the sum of its clients' uploads, and no upload.

Bonawitz, Ivanov, Kreuter, Marcedone, McMahan, Patel, Ramage, Segal, Seth. Practical
Secure Aggregation for Privacy-Preserving Machine Learning. CCS 2017, Figure 4, without
its rounds against a server that lies.

    y_i = x_i + PRG(b_i) + sum_{j > i} PRG(k_ij) - sum_{j < i} PRG(k_ij)  mod 2^bits

    keys     every client announces two public keys
    share    it deals out shares of its secret key and of the seed b_i, sealed for
             each other client
    mask     it uploads y_i
    unmask   it is told whose uploads came, and reveals of those the shares of b_j, of
             all others the shares of their secret keys; never both of one client

Any `threshold` of the clients can finish, fewer learn nothing. More than half of them
are asked for, so that no server can collect both of one client by telling two stories.
What is promised holds against a server that follows the protocol, alone or with fewer
than `threshold` clients. It hands out the public keys: where it might put its own in
their place, clients must know each other's from elsewhere.

X25519, HKDF, AES and SHA-256 are those of `cryptography`, Shamir's secret sharing that
of `pycryptodome`; both come with fedlib[deploy].
"""

import hashlib
import os
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch

from ..core.tree import build, leaves

SECRET, BLOCK = 32, 16  # bytes of a secret, and of what Shamir's scheme shares at once
SHARE = 1 + SECRET  # bytes of a share: the number of its holder, and its part
SEALED = 12 + 2 * SHARE + 16  # nonce, both shares, tag


# ------------------------------------------------------------- numbers as integers
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

    def __post_init__(self):
        if not 8 <= self.bits <= 40 or not 0 < self.high < float("inf"):
            raise ValueError(
                f"bits = {self.bits}, high = {self.high}: give 8 to 40 bits, and a "
                "finite range above 0"
            )
        if not 1 <= self.clients <= 2 ** (self.bits - 2):
            raise ValueError(
                f"the sum of {self.clients} clients could wrap in {self.bits} bits: "
                "give more bits"
            )

    most = property(lambda self: (2 ** (self.bits - 1) - 1) // self.clients)
    step = property(lambda self: self.high / self.most)
    # the second term: x / step is a float64, with a relative error of 2^-53
    error = property(lambda self: self.clients * self.step * (1 / 2 + 2**-12))

    def encode(self, tree, weight=1.0):
        """The numbers of a tree as integers [P]; weight: of the tree, from 0 to 1."""
        parts = [self.numbers(name, x) for name, x in named(tree)]
        ints = np.rint(np.concatenate([[], *parts]) * (weight / self.step)).astype(
            np.int64
        )
        return ints.astype(np.uint64) & ones(self.bits)

    def numbers(self, name, x):
        """A leaf as float64 [n]; ValueError where a number is out of range."""
        if not x.is_floating_point():
            raise ValueError(f"{name!r} is {x.dtype}: only floating numbers are summed")
        v = x.detach().cpu().double().numpy()
        if (bad := ~(np.abs(v) <= self.high)).any():
            at = tuple(int(i) for i in np.argwhere(bad)[0])
            raise ValueError(
                f"{name}{list(at)} = {v[at]:.6g} is outside [-{self.high:g}, "
                f"{self.high:g}], and the sum of {self.clients} clients could wrap in "
                f"{self.bits} bits: give a larger range (with the same bits it rounds "
                "more), or look why it is so large"
            )
        return v.ravel()

    def decode(self, total, like):
        """A sum of such integers [P] as numbers in the structure of `like`."""
        half = np.uint64(2 ** (self.bits - 1))
        signed = ((total + half) & ones(self.bits)).astype(np.int64) - int(half)
        flat, out, i = torch.from_numpy(signed * self.step), [], 0
        for x in leaves(like):
            out.append(flat[i : i + x.numel()].view(x.shape).to(x.dtype))
            i += x.numel()
        return build(like, out)


def named(tree, at=""):
    """(path, leaf) for each leaf."""
    for k, v in tree.items():
        if isinstance(v, dict):
            yield from named(v, f"{at}{k}/")
        else:
            yield at + k, v


def ones(bits):
    """The largest number of so many bits, with which `&` is modulo 2^bits."""
    return np.uint64(2**bits - 1)


# ------------------------------------------------------------- cryptography of others
def crypto():
    """(X25519, AES-CTR keystream, AES-GCM, HKDF, Shamir), or how to install them."""
    try:
        from Crypto.Protocol.SecretSharing import Shamir
        from cryptography.hazmat.primitives import ciphers, hashes
        from cryptography.hazmat.primitives.asymmetric import x25519
        from cryptography.hazmat.primitives.ciphers import aead
        from cryptography.hazmat.primitives.kdf import hkdf
    except ImportError as e:
        raise ImportError(
            f"secure aggregation needs {e.name}: pip install 'fedlib[deploy]'"
        ) from e
    derive = lambda raw, info: hkdf.HKDF(hashes.SHA256(), SECRET, None, info).derive(
        raw
    )
    return x25519, ciphers, aead.AESGCM, derive, Shamir


def agreed(secret, public, info):
    """The key that two clients share: of the secret one of one, the public one of the
    other."""
    x25519, _, _, derive, _ = crypto()
    mine = x25519.X25519PrivateKey.from_private_bytes(secret)
    return derive(mine.exchange(x25519.X25519PublicKey.from_public_bytes(public)), info)


def public_of(secret):
    """The public key (bytes) that belongs to a secret one, on the curve X25519."""
    x25519 = crypto()[0]
    return (
        x25519.X25519PrivateKey.from_private_bytes(secret)
        .public_key()
        .public_bytes_raw()
    )


def stream(key, n, bits):
    """PRG(key): n integers, uniform modulo 2^bits. A key is used once."""
    ciphers = crypto()[1]
    kind = np.dtype("<u4" if bits <= 32 else "<u8")
    aes = ciphers.Cipher(ciphers.algorithms.AES(key), ciphers.modes.CTR(bytes(16)))
    raw = aes.encryptor().update(bytes(n * kind.itemsize))
    return np.frombuffer(raw, kind).astype(np.uint64) & ones(bits)


def split(secret, threshold, n):
    """n shares of a secret, of which any `threshold` give it back."""
    Shamir, parts = crypto()[4], [secret[:BLOCK], secret[BLOCK:]]
    dealt = [Shamir.split(threshold, n, part) for part in parts]
    return [bytes([i]) + a + b for (i, a), (_, b) in zip(*dealt)]


def join(shares):
    """The secret again."""
    Shamir = crypto()[4]
    cut = lambda a: [(s[0], s[a : a + BLOCK]) for s in shares]
    return Shamir.combine(cut(1)) + Shamir.combine(cut(1 + BLOCK))


# ------------------------------------------------------------- the parties
class Public(NamedTuple):
    """What a client announces: where shares for it are sealed, the key of its pairwise
    masks, and the hash of its seed, by which a wrong share is found out.
    """

    seal: bytes
    mask: bytes
    seed: bytes


@dataclass
class Party:
    """Client `me` in one sum; a new one, with new secrets, for every sum.

    label: bytes that name the sum, the same at all clients. The four methods are called
    in order, each once.
    """

    me: int
    threshold: int
    bits: int = 32
    label: bytes = b""
    random: object = field(default=os.urandom, repr=False)

    def __post_init__(self):
        draw = lambda: self.random(SECRET)
        self.seal, self.secret, self.seed = draw(), draw(), draw()
        self.known, self.held, self.answered = {}, {}, None

    def keys(self):
        """What this client announces: two public keys, and the hash of its seed."""
        hashed = hashlib.sha256(self.seed).digest()
        return Public(public_of(self.seal), public_of(self.secret), hashed)

    def share(self, known):
        """{j: Public} -> {j: sealed shares for client j}, my own are open.

        ValueError: a second time, with too few clients, a threshold that is no
        majority, or another key in my name.
        """
        if self.known:
            raise ValueError(f"client {self.me} has dealt out its shares already")
        enough(len(known), self.threshold, "announced keys")
        if 2 * self.threshold <= len(known) or len(known) > 255:
            raise ValueError(
                f"threshold = {self.threshold} of {len(known)} clients: give more than "
                "half of them, and of at most 255"
            )
        if known.get(self.me) != self.keys():
            raise ValueError(f"client {self.me} is listed with keys that are not its")
        n, order = len(known), sorted(known)
        both = [split(s, self.threshold, n) for s in (self.seed, self.secret)]
        self.known, out = dict(known), {}
        for j, seed, secret in zip(order, *both):
            out[j] = self._seal(j, seed + secret)
        return out

    def _seal(self, j, text):
        AESGCM, nonce = crypto()[2], self.random(12)
        key = agreed(self.seal, self.known[j].seal, b"fedlib seal " + self.label)
        return nonce + AESGCM(key).encrypt(nonce, text, self._way(self.me, j))

    def _open(self, j, sealed):
        from cryptography.exceptions import InvalidTag

        AESGCM = crypto()[2]
        key = agreed(self.seal, self.known[j].seal, b"fedlib seal " + self.label)
        try:
            way = self._way(j, self.me)
            return AESGCM(key).decrypt(sealed[:12], sealed[12:], way)
        except InvalidTag as e:
            raise ValueError(
                f"the shares of client {j} for client {self.me} were changed on the way"
            ) from e

    def _way(self, a, b):
        return f"{a} {b} ".encode() + self.label

    def mask(self, x, sealed):
        """x [P] and {j: what client j sealed for me} -> y_i [P].

        ValueError: a second time, with too few shares, or with a stranger's.
        """
        if self.held:
            raise ValueError(f"client {self.me} has uploaded already")
        enough(len(sealed), self.threshold, "dealt out shares")
        if not {self.me} <= sealed.keys() <= self.known.keys():
            raise ValueError("shares of a client that announced no keys, or mine lack")
        self.held = {j: self._open(j, s) for j, s in sealed.items()}
        y = x + stream(self.seed, len(x), self.bits)
        for j in sealed.keys() - {self.me}:
            y += self._pair(j, len(x))
        return y & ones(self.bits)

    def _pair(self, j, n):
        """+PRG(k_ij) for j > i, -PRG(k_ij) for j < i."""
        return pair(self.me, self.secret, j, self.known[j], n, self.bits, self.label)

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
                "a client that dealt out no shares: it could give both shares of one "
                "client away"
            )
        self.answered = came
        return {j: s[:SHARE] if j in came else s[SHARE:] for j, s in self.held.items()}


def pair(i, secret, j, public, n, bits, label):
    """What client i adds for client j; client j adds the opposite."""
    m = stream(agreed(secret, public.mask, b"fedlib mask " + label), n, bits)
    return m if j > i else -m & ones(bits)


def total(masked, known, shares, threshold, bits=32, label=b""):
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
                y += pair(j, secret, i, known[i], len(y), bits, label)
        if not right:
            raise ValueError(
                f"the shares of client {j}'s secret do not fit what it announced: one "
                f"of clients {sorted(shares)[:threshold]} gave a wrong one"
            )
    return y & ones(bits)


def enough(n, threshold, did):
    """ValueError for fewer clients than the threshold."""
    if n < threshold:
        raise ValueError(
            f"{n} clients {did}, and the threshold is {threshold}: there is no sum"
        )
