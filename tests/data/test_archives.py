"""Archives, pickles and downloads that cannot be trusted: read as they should be, or
refused with nothing left behind; and a server on this machine that cuts and lies.
"""

import contextlib
import gzip
import hashlib
import http.server
import io
import os
import pickle
import stat
import struct
import tarfile
import threading
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedlib.data import acs, get
from fedlib.data.archive import DataError, check, checksum, data_root, download, extract
from fedlib.data.cifar10 import CIFAR10
from fedlib.data.pickled import read_arrays

GOOD = {"set/a.txt": b"alpha" * 99, "set/deep/b.txt": b"beta" * 400}


def tar(files=GOOD, kind=tarfile.REGTYPE, mode="w:gz", **more):
    """The bytes of a tar; the files beyond GOOD are of a kind."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as pack:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            if name not in GOOD:
                info.type = kind
                info.linkname = more.get("link", "")
            info.size = len(content)
            pack.addfile(info, io.BytesIO(content))
    return out.getvalue()


def zipped(files=GOOD, mode=0, method=zipfile.ZIP_DEFLATED):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as pack:
        for name, content in files.items():
            info = zipfile.ZipInfo("x")
            info.filename, info.external_attr = name, mode << 16
            info.compress_type = method
            pack.writestr(info, content)
    return out.getvalue()


def small_claim():
    """A zip that says of a file of 1,600 bytes that it has 16."""
    body = bytearray(zipped({"a": b"beta" * 400}, method=zipfile.ZIP_STORED))
    at = body.index(b"PK\1\2")
    body[at + 20 : at + 28] = struct.pack("<2L", 16, 16)
    return bytes(body)


PATHS = "../evil", "set/../../evil", "/evil", "..\\evil", "C:evil", "set/..", "a\nb"
PATHS += ("set/" + "a/" * 600 + "b", "a/" * 40 + "b", "set/\x1b[2J")
plain = tar(mode="w")
header = tarfile.TarInfo("x")
header.type, header.size = tarfile.XHDTYPE, 3_000_000
BAD = {  # what is refused
    **{f"tar, {name[:20]!r}": tar(GOOD | {name: b"x"}) for name in PATHS},
    **{f"zip, {name[:20]!r}": zipped(GOOD | {name: b"x"}) for name in PATHS},
    "link out": tar(GOOD | {"l": b""}, tarfile.SYMTYPE, link="/etc/passwd"),
    "link in": tar(GOOD | {"l": b""}, tarfile.SYMTYPE, link="set/a.txt"),
    "hard link": tar(GOOD | {"l": b""}, tarfile.LNKTYPE, link="set/a.txt"),
    "device": tar(GOOD | {"d": b""}, tarfile.CHRTYPE),
    "pipe": tar(GOOD | {"f": b""}, tarfile.FIFOTYPE),
    "zip, link": zipped({"l": b"/etc"}, stat.S_IFLNK | 0o777),
    "tar, bomb": tar({"zeros": bytes(10**6 + 1)}),
    "zip, bomb": zipped({"zeros": bytes(10**6 + 1)}),
    "bombs": tar({str(i): bytes(10**5) for i in range(11)}),
    "larger than it says": small_claim(),
    "long header": header.tobuf() + bytes(3_000_000) + plain,
    "no end": plain[: 5 * 512],
    "more after its end": plain + b"x" * 512,
    "cut at a file": plain[:1024],
    "wrong checksum": tar()[:-6] + b"\0" + tar()[-5:],
    "no checksum": tar()[:-8],
    "zip, cut": zipped()[:-30],
    "zip, twice": zipped({"set/1": b"1", "set/2": b"2"}).replace(b"set/2", b"set/1"),
    "file as a folder": tar({"a": b"x", "a/b": b"y"}),
    "text": b"hello",
    "nothing": b"",
    "no files": zipped({}),
    "zeros": bytes(10240),
    "gzip of a gzip": gzip.compress(tar()),
}


def left(folder):
    return {str(p.relative_to(folder)) for p in folder.rglob("*")}


def test_archives(tmp_path):
    into, file = tmp_path / "in" / "to", tmp_path / "p"
    for name, body in BAD.items():
        file.write_bytes(body)
        with pytest.raises(DataError) as e:
            extract(file, into, 10**6)
        assert str(file) in str(e.value) and left(tmp_path) == {"p", "in", "in/to"}, (
            name
        )
    modes = ["w", "w:gz", "w:bz2", "w:xz"]
    for i, body in enumerate(
        [*(tar(mode=m) for m in modes), zipped(), tar({"x": bytes(10**6)})]
    ):
        file.write_bytes(body)
        made = extract(file, into / str(i), 10**6)
        assert made == [into / str(i) / ("x" if i == 5 else "set")]
        if i < 5:
            assert {n: (into / str(i) / n).read_bytes() for n in GOOD} == GOOD
            with pytest.raises(DataError, match="set"):
                extract(file, into / str(i))


@given(st.floats(0, 1, exclude_max=True), st.sampled_from(["w:gz", "w:xz"]))
def test_a_wrong_bit_is_noticed_or_changes_nothing(tmp_path_factory, share, mode):
    body, folder = bytearray(tar(mode=mode)), tmp_path_factory.mktemp("x")
    body[int(share * len(body))] ^= 1
    (folder / "p").write_bytes(body)
    try:
        extract(folder / "p", folder / "to")
    except DataError:
        assert left(folder / "to") == set()
    else:
        assert {n: (folder / "to" / n).read_bytes() for n in GOOD} == GOOD


def test_checksums_and_the_folder_of_the_data(tmp_path, monkeypatch):
    file = tmp_path / "f"
    file.write_text("abc")
    check(file, "900150983cd24fb0d6963f7d28e17f72")  # RFC 1321
    assert checksum(file, "sha256") == hashlib.sha256(b"abc").hexdigest()
    for path, text in ((file, "ab"), (tmp_path / "g", None)):
        if text:
            path.write_text(text)
        with pytest.raises(DataError, match=path.name):
            check(path, "900150983cd24fb0d6963f7d28e17f72")
    for url in ("http://example.org/f", "file:///etc/passwd", "ftp://x/f"):
        for act in (
            lambda u=url: download(u, file, ""),
            lambda u=url: get.fetch(u, file),
        ):
            with pytest.raises(DataError, match="https"):
                act()
    monkeypatch.delenv("FEDLIB_DATA", raising=False)
    assert data_root() == Path("data") and data_root("here") == Path("here")
    monkeypatch.setenv("FEDLIB_DATA", "/elsewhere")
    assert data_root() == Path("/elsewhere") and data_root("here") == Path("here")


# ---------------------------------------------------------------- pickles
class Evil:
    def __init__(self, *call):
        self.call = call

    def __reduce__(self):
        return self.call[0], self.call[1:]


def test_pickles_of_arrays(tmp_path):
    file, mark = tmp_path / "f", tmp_path / "mark"
    kinds = "<f8", ">f4", "<i2", "u1", "<U3", "S2", "?"
    good = [np.arange(6).reshape(2, 3).astype(k) for k in kinds]
    good += [
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.zeros((0, 4)),
        np.array(True),
    ]
    good += [np.array(["x", "y"], dtype=object)]
    told = {
        b"data": good[3],
        "text": ("a", 1.5, None),
        "n": [1, -(2**40)],
        "s": np.str_("é"),
    }
    for protocol in range(5):
        file.write_bytes(pickle.dumps(good, protocol))
        for a, b in zip(read_arrays(file), good, strict=True):
            assert (a.dtype, a.shape) == (b.dtype, b.shape) and (a == b).all()
            assert type(a) is np.ndarray and a.flags.writeable
        file.write_bytes(pickle.dumps(told, protocol))
        back = read_arrays(file)
        assert (back.pop(b"data") == good[3]).all()
        assert back == {k: v for k, v in told.items() if k != b"data"}
    calls = [(os.system, f"touch {mark}"), (eval, f"open('{mark}', 'w')"), (Path, "x")]
    calls += [(np.load, str(mark)), (getattr, "x", "upper"), (pickle.loads, b"")]
    bad = [pickle.dumps({"data": [Evil(*c)]}, p) for c in calls for p in (0, 2, 4)]
    whole = pickle.dumps({b"data": np.zeros(1000, np.uint8)}, 2)
    bad += [whole[:n] for n in (0, 1, 20, len(whole) // 2, len(whole) - 1)]
    bad += [b"c_codecs\nencode\n(Vabc\nVzip\ntR.", b"\x80\x02}(K\1\x85K\2u."]
    bad += [whole.replace(b"M\xe8\x03", b"M\xe9\x03"), b"\x80\x02]q\0h\0a."]
    many = b"\x80\x02](" + b"cnumpy\nndarray\n" * 2 + b"e."
    for body in [*bad, many]:
        file.write_bytes(body)
        with pytest.raises(DataError, match=str(file)):
            read_arrays(file)
    assert not mark.exists()


# ---------------------------------------------------------------- a server
BODY = bytes(range(256)) * 12_000  # 3 MB: three blocks
MD5 = hashlib.md5(BODY).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers with a body; how: what is odd about this server."""

    def do_GET(self):
        how, asked = self.server.how, self.headers.get("Range")
        self.server.asked.append(asked)
        files = how.get("files")
        if how.get("status") or (files and self.path[1:] not in files):
            return self.send_error(how.get("status", 404))
        if how.get("to"):
            self.send_response(302)
            self.send_header("Location", how["to"])
            return self.end_headers()
        body = files[self.path[1:]] if files else how.get("body", BODY)
        tag, begin = how.get("tag", '"one"'), 0
        if asked and self.headers.get("If-Range") == tag and how.get("range", True):
            begin = int(asked.removeprefix("bytes=").removesuffix("-"))
            if begin >= len(body):
                return self.send_error(416)
        self.send_response(206 if begin else 200)
        if begin:
            self.send_header(
                "Content-Range", f"bytes {begin}-{len(body) - 1}/{len(body)}"
            )
        self.send_header("Content-Length", str(len(body) - begin))
        if tag:
            self.send_header("ETag", tag)
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(body[begin : how.get("cut", len(body))])
        return None

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as s:
        s.how, s.asked, s.url = {}, [], f"http://127.0.0.1:{s.server_address[1]}"
        threading.Thread(target=s.serve_forever, args=(0.01,), daemon=True).start()
        yield s
        s.shutdown()


def test_a_transfer_goes_on_where_it_was_cut(server, tmp_path):
    """And begins again where the file is another one, or the server cannot go on."""
    file, new = tmp_path / "new" / "f", BODY[::-1]
    fetch = lambda md5=MD5: get.fetch(f"{server.url}/f", file, md5)

    def cut(at=10**6, **how):
        server.how = {"cut": at} | how
        with pytest.raises(DataError, match=f"{at:,}"):
            fetch()
        assert not file.exists()

    for how, asked, body in (
        ({}, "bytes=1000000-", BODY),
        ({"range": False}, "bytes=1000000-", BODY),
        ({"tag": '"two"', "body": new}, "bytes=1000000-", new),
        ({"tag": ""}, None, BODY),
    ):
        cut(tag=how.get("tag", '"one"') if how.get("tag") == "" else '"one"')
        server.how, server.asked[:] = how, []
        fetch("" if body is new else MD5)
        assert file.read_bytes() == body and left(file.parent) == {"f"}
        assert server.asked == [asked]
        file.unlink()
    cut()
    cut(2 * 10**6)
    server.how, server.asked[:] = {}, []
    fetch()
    assert file.read_bytes() == BODY and server.asked == ["bytes=2000000-"]
    server.how = {"body": BODY[1:]}
    with pytest.raises(DataError, match=MD5):
        fetch()
    assert left(file.parent) == {"f"} and file.read_bytes() == BODY
    for how in ({"status": 404}, {"status": 500}, {"to": "http://elsewhere.example/f"}):
        server.how = how
        with pytest.raises(DataError, match=server.url.split(":")[1]):
            fetch()
    with get.FileLock(f"{file}.lock"), pytest.raises(DataError, match="process"):
        fetch()


def test_data_sets_are_fetched_once_and_checked(server, tmp_path, monkeypatch, capsys):
    def entry(name, **change):
        monkeypatch.setitem(get.CATALOGUE, name, get.CATALOGUE[name]._replace(**change))

    load = lambda name: get.get(name, tmp_path, server.url)
    assert get.CATALOGUE["cifar10"].files[0].md5 == CIFAR10.md5
    with pytest.raises(DataError, match=CIFAR10.md5):
        load("cifar10")
    entry("cifar10", files=(get.File(CIFAR10.archive, CIFAR10.url, MD5),))
    server.asked[:] = []
    assert load("cifar10") == load("cifar10") == [tmp_path / CIFAR10.archive]
    assert len(server.asked) == 1
    assert get.status("cifar10", tmp_path) == str(tmp_path / CIFAR10.archive)
    states = {s: acs.path(".", s).name for s in ("AL", "AK")}
    server.how = {
        "files": {
            f"csv_p{s.lower()}.zip": zipped({"README": b"x", name: s.encode()})
            for s, name in states.items()
        }
    }
    e = get.CATALOGUE["acs"]
    entry("acs", files=e.files[:2], places=(e.places[0][:2],))
    paths = load("acs")
    assert [p.read_text() for p in paths] == ["AL", "AK"]
    assert left(paths[0].parent) == {*states.values()}
    assert (
        hashlib.sha256(server.how["files"]["csv_pal.zip"]).hexdigest()
        in capsys.readouterr().out
    )
    paths[1].unlink()
    assert get.status("acs", tmp_path) == "incomplete: 1 of 2 files"
    server.how["files"]["csv_pak.zip"] = zipped({"other": b"x"})
    with pytest.raises(DataError, match=paths[1].name):
        load("acs")
    assert left(paths[0].parent) == {paths[0].name}
    for name in ("cifar", 5, "digits", "office10", "domainbed"):
        with pytest.raises(ValueError):
            load(name)
