"""Archives and pickles that were made up to do harm, each with its name, beside good
ones that must be read. A child process tries each: what kills it or does not end is
counted too.
"""

from __future__ import annotations

import gzip
import io
import os
import pickle
import signal
import stat
import struct
import tarfile
import tempfile
import tracemalloc
import zipfile
from functools import partial
from pathlib import Path

import numpy as np

from fedlib.data import files
from fedlib.data.files import DataError

from .count import Count

GOOD = {"set/a.txt": b"alpha" * 99, "set/deep/b.txt": b"beta" * 400}
LIMIT = 10**6  # bytes that an archive may unpack to
MEMORY = 160 * 2**20  # bytes that no file of a few megabytes may take
SECONDS = 120


# ---------------------------------------------------------------- archives
def tar(files=GOOD, *members, mode="w:gz", end=True, form=tarfile.PAX_FORMAT):
    """The bytes of a tar. files {name: content}; members (TarInfo, content)."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode, format=form) as pack:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            pack.addfile(info, io.BytesIO(content))
        for info, content in members:
            info.size = len(content)
            pack.addfile(info, io.BytesIO(content))
    body = out.getvalue()
    return body if end else body[: len(body) // 10240 * 10240].rstrip(b"\0")


def entry(name, kind=tarfile.REGTYPE, content=b"", **more):
    """A member that addfile would not think of."""
    info = tarfile.TarInfo(name)
    info.type = kind
    for k, v in more.items():
        setattr(info, k, v)
    return info, content


def zipped(files=GOOD, mode=0, method=zipfile.ZIP_DEFLATED):
    """The bytes of a zip. mode: of its files, as in Unix."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as pack:
        for name, content in files.items():
            info = zipfile.ZipInfo("x")
            info.filename, info.external_attr = name, mode << 16
            info.compress_type = method
            pack.writestr(info, content)
    return out.getvalue()


def flipped(body, at):
    """A body with one bit wrong; at: a share of its length, or from its end."""
    at = int(at * len(body)) if isinstance(at, float) else at % len(body)
    return body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]


def twice():
    """A tar in which one name comes two times."""
    info = tarfile.TarInfo("a")
    return tar({"a": b"one"}, (info, b"two"))


def zipped_twice():
    """Two files whose names are made equal afterwards."""
    body = zipped({"set/1": b"one", "set/2": b"two"})
    return body.replace(b"set/2", b"set/1")


def plain(**more):
    return tar(mode="w", **more)


def header(name, kind, content):
    """A block of tar as it is written, with its content."""
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, len(content)
    padded = content + bytes(-len(content) % 512)
    return info.tobuf(tarfile.USTAR_FORMAT) + padded


def pax(key, value):
    """A line of a pax header, which begins with its own length."""
    n = len(key) + len(value) + 3
    while len(line := f"{n} {key}={value}\n".encode()) != n:
        n = len(line)
    return line


def small_claim():
    """A zip that says of a file of 1,600 bytes that it has 16."""
    body = bytearray(zipped({"set/a": b"beta" * 400}, method=zipfile.ZIP_STORED))
    at = body.index(b"PK\1\2")
    body[at + 20 : at + 28] = struct.pack("<2L", 16, 16)
    return bytes(body)


def with_flag(flag):
    body = bytearray(zipped())
    body[6] |= flag
    body[body.index(b"PK\1\2") + 8] |= flag
    return bytes(body)


def with_method(method):
    body = bytearray(zipped())
    body[8] = method
    body[body.index(b"PK\1\2") + 10] = method
    return bytes(body)


OUT, LINK, AGAIN = "leads outside its folder", "a link or a device", "get it again"
NAMED, LONG = "too long or too deep or", "a header that is too long"

# {name: (what makes its bytes, why it is refused; None: it is good)}
ARCHIVES = {
    "good tar": (plain, None),
    "good tar.gz": (tar, None),
    "good tar.bz2": (partial(tar, mode="w:bz2"), None),
    "good tar.xz": (partial(tar, mode="w:xz"), None),
    "good tar of GNU": (partial(tar, form=tarfile.GNU_FORMAT), None),
    "good zip": (zipped, None),
    "good zip, stored": (partial(zipped, method=zipfile.ZIP_STORED), None),
    "tar with folders": (lambda: tar(GOOD, entry("set", tarfile.DIRTYPE)), None),
    "tar from here": (lambda: tar({"./" + k: v for k, v in GOOD.items()}), None),
    "zip with folders": (lambda: zipped({"set/": b""} | GOOD), None),
    "zip of 60,000 files": (
        lambda: zipped(GOOD | {f"n/{i}": b"" for i in range(60_000)}),
        None,
    ),
    "tar, absolute": (lambda: tar(GOOD | {"/evil": b"x"}), OUT),
    "tar, above": (lambda: tar(GOOD | {"../evil": b"x"}), OUT),
    "tar, above inside": (lambda: tar(GOOD | {"set/../../evil": b"x"}), OUT),
    "tar, ends above": (lambda: tar(GOOD | {"set/..": b"x"}), OUT),
    "tar, back slash": (lambda: tar(GOOD | {"..\\evil": b"x"}), OUT),
    "tar, drive": (lambda: tar(GOOD | {"C:evil": b"x"}), OUT),
    "zip, absolute": (lambda: zipped(GOOD | {"/evil": b"x"}), OUT),
    "zip, above": (lambda: zipped(GOOD | {"../evil": b"x"}), OUT),
    "zip, above inside": (lambda: zipped(GOOD | {"set/../../evil": b"x"}), OUT),
    "zip, drive": (lambda: zipped(GOOD | {"C:evil": b"x"}), OUT),
    "link out": (
        lambda: tar(GOOD, entry("set/l", tarfile.SYMTYPE, linkname="/etc/passwd")),
        LINK,
    ),
    "link in": (
        lambda: tar(GOOD, entry("set/l", tarfile.SYMTYPE, linkname="a.txt")),
        LINK,
    ),
    "hard link": (
        lambda: tar(GOOD, entry("set/l", tarfile.LNKTYPE, linkname="set/a.txt")),
        LINK,
    ),
    "character device": (lambda: tar(GOOD, entry("set/d", tarfile.CHRTYPE)), LINK),
    "block device": (lambda: tar(GOOD, entry("set/d", tarfile.BLKTYPE)), LINK),
    "pipe": (lambda: tar(GOOD, entry("set/f", tarfile.FIFOTYPE)), LINK),
    "zip, link": (lambda: zipped({"l": b"/etc"}, stat.S_IFLNK | 0o777), LINK),
    "zip, pipe": (lambda: zipped({"l": b""}, stat.S_IFIFO | 0o666), LINK),
    "tar, bomb": (lambda: tar({"zeros": bytes(10**8)}), "more than 1,000,000 bytes"),
    "zip, bomb": (lambda: zipped({"zeros": bytes(10**8)}), "more than 1,000,000"),
    "tar, bombs": (lambda: tar({f"{i}": bytes(10**5) for i in range(11)}), "more than"),
    "tar, file with holes": (
        lambda: header("set/s", tarfile.GNUTYPE_SPARSE, b"") + plain(),
        "a file with holes",
    ),
    "tar.gz, cut": (lambda: tar()[:99], AGAIN),
    "zip, wrong bit": (
        lambda: flipped(zipped(method=zipfile.ZIP_STORED), 0.1),
        AGAIN,
    ),
    "zip, cut": (lambda: zipped()[:-30], AGAIN),
    "zip, larger than it says": (small_claim, AGAIN + "|larger"),
    "zip, with a password": (lambda: with_flag(1), AGAIN),
    "zip, unknown method": (lambda: with_method(77), AGAIN),
    "zip, other name inside": (
        lambda: zipped({"set/a": b"1"}).replace(b"set/a", b"set/b", 1),
        AGAIN,
    ),
    "tar, pax path above": (
        lambda: header("x", tarfile.XHDTYPE, pax("path", "../evil")) + plain(),
        OUT,
    ),
    "tar, control character": (lambda: tar(GOOD | {"set/\x1b[2J": b""}), NAMED),
    "zip, control character": (lambda: zipped(GOOD | {"set/\x07": b""}), NAMED),
    "tar, new line": (lambda: tar(GOOD | {"set/a\nb": b""}), NAMED),
    "tar, text turned round": (lambda: tar(GOOD | {"set/\u202etxt": b""}), NAMED),
    "tar, one long part": (lambda: tar(GOOD | {"set/" + "a" * 300: b""}), AGAIN),
    "tar, file twice": (twice, "twice"),
    "zip, file twice": (zipped_twice, "twice"),
    "tar, file as a folder": (lambda: tar({"a": b"x", "a/b": b"y"}), AGAIN),
    "tar, folder as a file": (lambda: tar({"a/b": b"x", "a": b"y"}), "twice|" + AGAIN),
    "text": (lambda: b"hello", "neither a tar nor a zip"),
    "nothing": (lambda: b"", "neither a tar nor a zip"),
    "zeros": (lambda: bytes(10240), "holds no file"),
    "zip without files": (lambda: zipped({}), "holds no file"),
    "gzip of a gzip": (lambda: gzip.compress(tar()), "neither a tar nor a zip"),
}


def try_archive(name, folder):
    """(outcome, example) of one archive."""
    make, why = ARCHIVES[name]
    file, into = folder / "p", folder / "into"
    file.write_bytes(make())
    tracemalloc.start()
    try:
        files.extract(file, into, LIMIT)
    except DataError as e:
        left = list(into.iterdir())
        good = why is not None and str(file) in str(e) and not left
        found = "clean" if good else "silent" if left else "raw", f"{name}: {e} {left}"
    except Exception as e:
        found = "raw", f"{name}: {type(e).__name__}: {e}"
    else:
        read = {k: (into / k).read_bytes() for k in GOOD if (into / k).is_file()}
        same = why is None and read == GOOD
        found = "accepted" if same else "silent", f"{name}: was unpacked"
    return within(found, name)


# ---------------------------------------------------------------- pickles
class Evil:
    """Pickled as the call of a function."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def calls(function, *arguments, protocol=2):
    return lambda: pickle.dumps({"data": [Evil(function, *arguments)]}, protocol)


def p2(body):
    """A pickle of protocol 2."""
    return lambda: b"\x80\x02" + body + b"."


NDARRAY, TYPE = b"cnumpy\nndarray\n", b"cnumpy\ndtype\n"
ENCODE, SCALAR = b"c_codecs\nencode\n", b"cnumpy.core.multiarray\nscalar\n"
MADE = b"cnumpy.core.multiarray\n_reconstruct\n" + NDARRAY + b"K\0\x85U\1b\x87R"


def dtype(code=b"u1", order=b"|", fields=b"NNN", more=b""):
    """A dtype, as Python 2 wrote it."""
    call = TYPE + b"U" + bytes([len(code)]) + code + b"K\0K\1\x87R"
    return (
        call
        + b"(K\3U\1"
        + order
        + fields
        + b"J\xff\xff\xff\xff" * 2
        + b"K\0"
        + more
        + b"tb"
    )


def array(shape=b"K\3\x85", kind=None, raw=b"U\3abc", order=b"\x89"):
    """An array of three bytes, if nothing else is said."""
    return MADE + b"(K\1" + shape + (kind or dtype()) + order + raw + b"tb"


def whole(n):
    """A whole number of up to 255 bytes."""
    raw = n.to_bytes(n.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(raw)]) + raw


def text(n):
    return b"X" + struct.pack("<L", n) + b"a" * n


CIFAR = {b"data": np.arange(6, dtype=np.uint8).reshape(2, 3), b"labels": [3, 9]}
ASKS, STATE, DOES = "asks for", "sets the state of", "does more than to describe"
KEY, PART, SELF = "has the key", "too deep, or twice", "by itself"
SHORT, LARGER = "bytes for an array of shape", "larger than the file"
CUT = "damaged or cut short"

# {name: (what makes its bytes, why it is refused, or what is read)}
PICKLES = {
    "shape of 10^9": (p2(array(whole(10**9) + b"\x85")), SHORT),
    **{
        f"good, protocol {p}": (partial(pickle.dumps, CIFAR, p), CIFAR)
        for p in range(5)
    },
    "good, of Python 2": (
        p2(
            b"}(U\4data"
            + array(b"K\2K\3\x86", raw=b"U\6\0\1\2\3\4\5")
            + b"U\6labels](K\3K\x09eu"
        ),
        CIFAR,
    ),
    "good, in the order of Fortran": (
        p2(
            b"}(U\4data"
            + array(b"K\2K\3\x86", None, b"U\6\0\3\1\4\2\5", b"\x88")
            + b"U\6labels](K\3K\x09eu"
        ),
        CIFAR,
    ),
    "os.system": (calls(os.system, "touch MARK"), ASKS),
    "os.system, protocol 0": (calls(os.system, "touch MARK", protocol=0), ASKS),
    "os.system, protocol 4": (calls(os.system, "touch MARK", protocol=4), ASKS),
    "eval": (calls(eval, "open('MARK', 'w')"), ASKS),
    "exec": (calls(exec, "open('MARK', 'w')"), ASKS),
    "getattr": (calls(getattr, "MARK", "upper"), ASKS),
    "pickle.loads": (calls(pickle.loads, b""), ASKS),
    "Path": (calls(Path, "MARK"), ASKS),
    "numpy.load": (calls(np.load, "MARK"), ASKS),
    "numpy's open_memmap": (calls(np.lib.format.open_memmap, "MARK", "w+"), ASKS),
    "a name with dots": (
        lambda: b"\x80\x04\x8c\x05numpy\x8c\x0edtype.__init__\x93.",
        ASKS,
    ),
    "changes numpy's float64": (
        p2(TYPE + b"U\2f8\x85R(K\3U\1>NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb"),
        SELF,
    ),
    "changes a list": (p2(b"]}U\1aK\1sb"), STATE),
    "calls a list": (p2(b"](K\1tR"), "calls a list"),
    "extension": (p2(b"\x82\1"), DOES),
    "persistent": (lambda: b"Pname\n.", DOES),
    "persistent, binary": (p2(b"U\1aQ"), DOES),
    "a function as a value": (p2(b"]" + ENCODE + b"a"), SELF),
    "a dtype as a value": (p2(b"]" + dtype() + b"a"), SELF),
    "an array that is not filled": (p2(MADE), SELF),
    "shape of 10^12": (p2(array(whole(10**12) + b"\x85")), "too large"),
    "shape of 10^12 and 0 bytes": (
        p2(array(whole(10**12) + b"\x85", raw=b"U\0")),
        "too large",
    ),
    "shape of -3": (p2(array(whole(-3) + b"\x85")), SHORT),
    "shape of -1 and -3": (p2(array(whole(-1) + whole(-3) + b"\x86")), AGAIN),
    "shape of a text": (p2(array(b"U\3abc")), "describes no array"),
    "too few bytes": (p2(array(raw=b"U\2ab")), SHORT),
    "numbers as a list": (p2(array(raw=b"](K\1K\2K\3e")), "by a list"),
    "objects, too few": (p2(array(kind=dtype(b"O8"), raw=b"]K\1a")), AGAIN),
    "objects as bytes": (
        p2(array(kind=dtype(b"O8"), raw=b"U\x18" + b"a" * 24)),
        "by a",
    ),
    "type with fields": (p2(array(kind=dtype(fields=b"NU\1a\x85}"))), "with fields"),
    "type of fields": (p2(array(kind=dtype(b"V3"))), "arrays of type"),
    "type of time": (p2(array(kind=dtype(b"M8"))), "arrays of type"),
    "type of no bytes": (
        p2(array(whole(10**12) + b"\x85", dtype(b"S0"), b"U\0")),
        "arrays of type",
    ),
    "type of text of 10^9": (p2(array(kind=dtype(b"U999999999"))), "arrays of type"),
    "type by commas": (p2(array(kind=dtype(b"u1,u1"))), "arrays of type"),
    "type that is a number": (p2(array(kind=b"K\1")), "describes no array"),
    "a list in itself": (p2(b"]q\0h\0a"), PART),
    "a dict in itself": (p2(b"}q\0U\1ah\0s"), PART),
    "an array in itself": (
        p2(MADE + b"q\0(K\1K\1\x85" + dtype(b"O8") + b"\x89]h\0atb"),
        PART,
    ),
    "half a dict": (p2(b"}(K\1u"), CUT),
    "bytes of 2^60": (lambda: b"\x80\x04\x8e" + struct.pack("<Q", 2**60) + b".", CUT),
    "text of 2^60": (lambda: b"\x80\x04\x8d" + struct.pack("<Q", 2**60) + b".", CUT),
    "bytes of -1": (p2(b"T\xff\xff\xff\xff"), CUT),
    "no value": (lambda: b".", CUT),
    "unknown instruction": (p2(b"\xff"), CUT),
    "text": (lambda: b"hello", CUT),
    "nothing": (lambda: b"", CUT),
    "unknown protocol": (lambda: b"\x80\x63N.", CUT),
}


def try_pickle(name, folder):
    """(outcome, example) of one pickle."""
    make, want = PICKLES[name]
    file, mark = folder / "f", folder / "mark"
    file.write_bytes(make().replace(b"MARK", os.fsencode(mark)))
    tracemalloc.start()
    try:
        read = files.read_arrays(file)
    except DataError as e:
        good = isinstance(want, str) and str(file) in str(e)
        found = "clean" if good else "raw", f"{name}: {e}"
    except Exception as e:
        found = "raw", f"{name}: {type(e).__name__}: {e}"
    else:
        same = not isinstance(want, str) and alike(read, want)
        found = "accepted" if same else "silent", f"{name}: was read as {read!r:.60}"
    if mark.exists() or np.dtype("f8") != np.dtype("=f8"):
        found = "silent", f"{name}: ran, or changed numpy"
    return within(found, name)


def alike(read, want):
    if not isinstance(want, dict):
        return read == want
    data, labels = read.values()
    return list(labels) == want[b"labels"] and np.array_equal(data, want[b"data"])


# ---------------------------------------------------------------- both
def within(found, name):
    """What was found, or that it took too much memory."""
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    if peak > MEMORY:
        return "lost", f"{name}: took {peak / 2**20:.0f} MB"
    return found


def in_a_child(trial, name):
    """(outcome, example) of a trial that may kill its process, or never end."""
    with tempfile.TemporaryDirectory() as folder:
        read, write = os.pipe()
        child = os.fork()
        if not child:
            signal.alarm(SECONDS)
            outcome, example = trial(name, Path(folder))
            os.write(write, f"{outcome}\n{example}"[:3000].encode())
            os._exit(0)
        os.close(write)
        with open(read, encoding="utf-8") as answer:
            outcome, _, example = answer.read().partition("\n")
        status = os.waitpid(child, 0)[1]
        return (outcome, example) if outcome else ("raw", f"{name}: status {status}")


TRIALS = {"archives": (try_archive, ARCHIVES), "hostile pickles": (try_pickle, PICKLES)}
attempts = len(ARCHIVES) + len(PICKLES)


def measure(n, seed):
    """n of the cases, drawn by the seed; all where n is large enough."""
    counts = [Count(row) for row in TRIALS]
    cases = [(c, name) for c in counts for name in TRIALS[c.row][1]]
    order = np.random.default_rng(seed).permutation(len(cases))
    for i in sorted(order[:n]):
        count, name = cases[i]
        count.add(*in_a_child(TRIALS[count.row][0], name))
    return counts
