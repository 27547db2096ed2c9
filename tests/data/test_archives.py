"""Archives, pickles and downloads that cannot be trusted: read as they should be, or
refused with nothing left behind.
"""

import gzip
import hashlib
import io
import os
import pickle
import stat
import struct
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

from fedlib.data.files import (
    DataError,
    check,
    checksum,
    data_root,
    extract,
    fetch,
    read_arrays,
)

GOOD = {"set/a.txt": b"alpha" * 99, "set/deep/b.txt": b"beta" * 400}


def tar(files=GOOD, kind=tarfile.REGTYPE, mode="w:gz", link=""):
    """The bytes of a tar; the files beyond GOOD are of a kind."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as pack:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            if name not in GOOD:
                info.type, info.linkname = kind, link
            pack.addfile(info, io.BytesIO(content))
    return out.getvalue()


def zipped(files=GOOD, mode=0, method=zipfile.ZIP_DEFLATED):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as pack:
        for name, content in files.items():
            info = zipfile.ZipInfo("x")
            info.filename, info.external_attr = name, mode << 16
            pack.writestr(info, content, method)
    return out.getvalue()


def small_claim():
    """A zip that says of 1,600 bytes that they are 16."""
    body = bytearray(zipped({"a": b"beta" * 400}, method=zipfile.ZIP_STORED))
    at = body.index(b"PK\1\2")
    body[at + 20 : at + 28] = struct.pack("<2L", 16, 16)
    return bytes(body)


PATHS = "../evil", "set/../../evil", "/evil", "..\\evil", "C:evil", "set/..", "a\nb"
PATHS += ("set/\x1b[2J",)
plain = tar(mode="w")
link = lambda kind, to: tar(GOOD | {"l": b""}, kind, link=to)
FIRST = {f"{name[:20]!r}": GOOD | {name: b"x"} for name in PATHS}
BAD = {f"tar, {k}": tar(files) for k, files in FIRST.items()}
BAD |= {f"zip, {k}": zipped(files) for k, files in FIRST.items()}
BAD |= {"link out": link(tarfile.SYMTYPE, "/etc"), "pipe": link(tarfile.FIFOTYPE, "")}
BAD |= {"link in": link(tarfile.SYMTYPE, "set/a.txt"), "zip, cut": zipped()[:-30]}
BAD |= {"hard link": link(tarfile.LNKTYPE, "set/a.txt"), "no end": plain[: 5 * 512]}
BAD |= {"device": link(tarfile.CHRTYPE, ""), "twice": gzip.compress(tar())}
BAD |= {"zip, link": zipped({"l": b"/etc"}, stat.S_IFLNK | 0o777)}
BAD |= {"tar, bomb": tar({"zeros": bytes(10**6 + 1)}), "no files": zipped({})}
BAD |= {"zip, bomb": zipped({"zeros": bytes(10**6 + 1)}), "too small": small_claim()}
BAD |= {"small bombs": tar({str(i): bytes(10**5) for i in range(11)})}
BAD |= {"zip, twice": zipped({"s/1": b"1", "s/2": b"2"}).replace(b"s/2", b"s/1")}
BAD |= {"file as folder": tar({"a": b"x", "a/b": b"y"}), "zeros": bytes(10240)}


def left(folder):
    return {str(p.relative_to(folder)) for p in folder.rglob("*")}


def test_archives(tmp_path):
    into, file = tmp_path / "in" / "to", tmp_path / "p"
    for name, body in BAD.items():
        file.write_bytes(body)
        with pytest.raises(DataError) as e:
            extract(file, into, 10**6)
        assert str(file) in str(e.value), name
        assert left(tmp_path) == {"p", "in", "in/to"}, name
    good = [zipped(), *(tar(mode=m) for m in ("w", "w:gz", "w:bz2", "w:xz"))]
    for i, body in enumerate(good):
        file.write_bytes(body)
        assert extract(file, into / str(i), 10**6) == [into / str(i) / "set"]
        assert {n: (into / str(i) / n).read_bytes() for n in GOOD} == GOOD
        with pytest.raises(DataError, match="set"):
            extract(file, into / str(i))
    file.write_bytes(tar({"x": bytes(10**6)}))
    assert extract(file, into / "most", 10**6) == [into / "most" / "x"]


def test_checksums_and_the_folder_of_the_data(tmp_path, monkeypatch):
    file, md5 = tmp_path / "f", "900150983cd24fb0d6963f7d28e17f72"  # RFC 1321
    file.write_text("abc")
    check(file, md5)
    assert checksum(file, "sha256") == hashlib.sha256(b"abc").hexdigest()
    file.write_text("ab")
    for path in (file, tmp_path / "g"):
        with pytest.raises(DataError, match=path.name):
            check(path, md5)
    for url in ("http://example.org/f", "file:///etc/passwd"):
        with pytest.raises(DataError, match="https"):
            fetch(url, file)
    monkeypatch.delenv("FEDLIB_DATA", raising=False)
    assert data_root() == Path("data") and data_root("here") == Path("here")
    monkeypatch.setenv("FEDLIB_DATA", "/elsewhere")
    assert data_root() == Path("/elsewhere") and data_root("here") == Path("here")


class Evil:
    def __init__(self, *call):
        self.call = call

    def __reduce__(self):
        return self.call[0], self.call[1:]


def test_pickles_of_arrays(tmp_path):
    file, mark = tmp_path / "f", tmp_path / "mark"
    kinds = "<f8", ">f4", "<i2", "u1", "<U3", "S2", "?"
    good = [np.arange(6).reshape(2, 3).astype(k) for k in kinds]
    good += [np.asfortranarray(good[0]), np.zeros((0, 4)), np.array(True)]
    good += [np.array(["x", "y"], dtype=object)]
    told = {"text": ("a", 1.5, None), "n": [1, -(2**40)], "s": np.str_("é")}
    for protocol in range(5):
        file.write_bytes(pickle.dumps(good, protocol))
        for a, b in zip(read_arrays(file), good, strict=True):
            assert (a.dtype, a.shape) == (b.dtype, b.shape) and (a == b).all()
            assert type(a) is np.ndarray and a.flags.writeable
        file.write_bytes(pickle.dumps({b"data": good[3]} | told, protocol))
        back = read_arrays(file)
        assert (back.pop(b"data") == good[3]).all() and back == told
    calls = [(os.system, f"touch {mark}"), (eval, f"open('{mark}', 'w')"), (Path, "x")]
    calls += [(np.load, str(mark)), (getattr, "x", "upper"), (pickle.loads, b"")]
    bad = [pickle.dumps({"data": [Evil(*c)]}, p) for c in calls for p in (0, 2, 4)]
    whole = pickle.dumps({b"data": np.zeros(1000, np.uint8)}, 2)
    bad += [whole[:n] for n in (0, 1, 20, len(whole) // 2, len(whole) - 1)]
    bad += [whole.replace(b"M\xe8\x03", b"M\xe9\x03"), b"\x80\x02]q\0h\0a."]
    bad += [b"\x80\x02](" + b"cnumpy\nndarray\n" * 2 + b"e."]
    for body in bad:
        file.write_bytes(body)
        with pytest.raises(DataError, match=str(file)):
            read_arrays(file)
    assert not mark.exists()
