"""Archives, lists and downloads that cannot be trusted: read as they should be, or
refused with nothing left behind.
"""

import gzip
import io
import os
import pickle
import tarfile
import zipfile
from hashlib import md5
from pathlib import Path

import numpy as np
import pytest

from fedlib.data import get, images
from fedlib.data.files import Archive, DataError, bring, data_root, fetch, read_pickle

GOOD = {"set/a.txt": b"alpha" * 99, "set/deep/b.txt": b"beta" * 400}


def tar(files=GOOD, kind=tarfile.REGTYPE):
    """The bytes of a tar; the files beyond GOOD are of a kind."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as pack:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            if name not in GOOD:
                info.type, info.linkname = kind, "/etc"
            pack.addfile(info, io.BytesIO(content))
    return out.getvalue()


def zipped(files=GOOD):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as pack:
        for name, content in files.items():
            pack.writestr(name, content)
    return out.getvalue()


def left(folder):
    return {str(p.relative_to(folder)) for p in folder.rglob("*")}


def test_archives(tmp_path):
    root = tmp_path / "in" / "to"
    root.mkdir(parents=True)
    odd = "../evil", "set/../../evil"
    bad = {f"tar {name}": ("p.tar.gz", tar(GOOD | {name: b"x"})) for name in odd}
    for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE):
        bad[f"kind {kind}"] = "p.tar.gz", tar(GOOD | {"l": b""}, kind)
    bad |= {
        "zip, cut": ("p.zip", zipped()[:-30]),
        "other": ("p.zip", zipped({"x": b""})),
    }
    bad |= {"tar, cut": ("p.tar.gz", tar()[:-30]), "text": ("p.tar.gz", b"no archive")}
    bad |= {"a bit": ("p.zip", zipped().replace(b"beta", b"bets", 1))}
    bad |= {"gz, cut": ("set.gz", gzip.compress(b"x" * 999)[:-9])}
    for what, (name, body) in bad.items():
        (root / name).write_bytes(body)
        with pytest.raises(DataError, match=name):
            bring(Archive("set", name), root)
        assert left(tmp_path) == {"in", "in/to", f"in/to/{name}"}, what
        (root / name).unlink()
    for name, body in {"p.zip": zipped(), "p.tar.gz": tar()}.items():
        at = root / name[-3:]
        at.mkdir()
        (at / name).write_bytes(body)
        sums = (md5(body + b"0").hexdigest(), md5(body).hexdigest())
        wrong, right = (Archive(f"{at.name}/set", f"x/{name}", s) for s in sums)
        with pytest.raises(DataError, match=sums[0]):
            bring(wrong, root)
        assert left(at) == {name}
        assert bring(right, root) == at / "set"
        assert {n: (at / n).read_bytes() for n in GOOD} == GOOD
        assert left(at) == {name, "set", "set/deep", *GOOD}
    outside = {"../evil": b"x", "/evil": b"x"} | GOOD
    (root / "q.zip").write_bytes(zipped(outside))  # left out, as zip has it
    assert bring(Archive("set", "q.zip"), root).is_dir()
    assert not {p.name for p in tmp_path.rglob("*")} & {"evil"}
    (root / "f.gz").write_bytes(gzip.compress(b"digits"))
    assert bring(Archive("f", "f.gz"), root).read_bytes() == b"digits"


def test_downloads_and_the_folder_of_the_data(tmp_path, monkeypatch):
    from urllib import request, response

    body, seen = zipped(), []

    def answer(asked, timeout):
        seen.append(asked.full_url)
        where = asked.full_url.replace("down", "http")
        found = response.addinfourl(io.BytesIO(body), {}, where)
        found.length = len(body)
        return found

    monkeypatch.setattr(request, "urlopen", answer)
    sums = md5(body).hexdigest(), md5(b"").hexdigest()
    right, wrong = (Archive("set", "https://a.org/x/p.zip", s) for s in sums)
    for act in (lambda: bring(wrong, tmp_path, True), lambda: bring(right, tmp_path)):
        with pytest.raises(DataError, match="https://a.org"):
            act()
        assert left(tmp_path) == set()
    with pytest.raises(DataError, match="https address"):
        fetch("down://a.org/p.zip", tmp_path / "p.zip")
    assert left(tmp_path) == set()
    assert (bring(right, tmp_path, True, "https://b.org/") / "a.txt").is_file()
    assert seen[-1] == "https://b.org/p.zip"
    monkeypatch.setattr(images, "OFFICE", right)
    for name in ("office10", "domainbed", "digits"):
        with pytest.raises(ValueError, match=name):
            get.get(name, tmp_path)
    monkeypatch.delenv("FEDLIB_DATA", raising=False)
    assert data_root() == Path("data") and data_root("here") == Path("here")
    monkeypatch.setenv("FEDLIB_DATA", "/elsewhere")
    assert data_root() == Path("/elsewhere") and data_root("here") == Path("here")


class Evil:
    def __init__(self, *call):
        self.call = call

    def __reduce__(self):
        return self.call[0], self.call[1:]


def test_pickles_of_lists(tmp_path):
    file, mark = tmp_path / "f", tmp_path / "mark"
    good = [["a/b.jpg", "c"], np.array(["x", "y"]), np.array(["z"], dtype=object)]
    for protocol in range(5):
        file.write_bytes(pickle.dumps(good, protocol))
        assert [list(v) for v in read_pickle(file)] == [list(v) for v in good]
    calls = [(os.system, f"touch {mark}"), (eval, f"open('{mark}', 'w')"), (Path, "x")]
    calls += [(np.load, str(mark)), (getattr, "x", "upper"), (pickle.loads, b"")]
    bad = [pickle.dumps({"data": [Evil(*c)]}, p) for c in calls for p in (0, 2, 4)]
    whole = pickle.dumps(["name"] * 1000, 2)
    for body in (*bad, *(whole[:n] for n in (0, 1, 20, len(whole) - 1))):
        file.write_bytes(body)
        with pytest.raises(DataError, match=str(file)):
            read_pickle(file)
    assert not mark.exists()
