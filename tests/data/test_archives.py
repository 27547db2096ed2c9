"""Archives, lists and downloads that cannot be trusted: read as they should be, or
refused."""

import io
import os
import pickle
import zipfile
from hashlib import md5
from pathlib import Path

import numpy as np
import pytest

from fedlib.data import get, images
from fedlib.data.files import Archive, DataError, bring, data_root, fetch, read_pickle

GOOD = {"set/a.txt": b"alpha" * 99, "set/deep/b.txt": b"beta" * 400}


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
    bad = {"cut": zipped()[:-30], "other": zipped({"x": b""}), "text": b"no archive"}
    bad |= {"a bit": zipped().replace(b"beta", b"bets", 1)}
    for what, body in bad.items():
        (root / "p.zip").write_bytes(body)
        with pytest.raises(DataError, match="p.zip"):
            bring(Archive("set", "p.zip"), root)
        assert left(tmp_path) == {"in", "in/to", "in/to/p.zip"}, what
    at, body = root / "at", zipped()
    at.mkdir()
    (at / "p.zip").write_bytes(body)
    sums = (md5(body + b"0").hexdigest(), md5(body).hexdigest())
    wrong, right = (Archive("at/set", "x/p.zip", s) for s in sums)
    with pytest.raises(DataError, match=sums[0]):
        bring(wrong, root)
    assert left(at) == {"p.zip"}
    assert bring(right, root) == at / "set"
    assert {n: (at / n).read_bytes() for n in GOOD} == GOOD
    assert left(at) == {"p.zip", "set", "set/deep", *GOOD}
    outside = {"../evil": b"x", "/evil": b"x"} | GOOD
    (root / "q.zip").write_bytes(zipped(outside))  # left out, as zip has it
    assert bring(Archive("set", "q.zip"), root).is_dir()
    assert not {p.name for p in tmp_path.rglob("*")} & {"evil"}


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
    with pytest.raises(DataError, match="https://a.org"):
        bring(right, tmp_path)
    with pytest.raises(DataError, match="https address"):
        fetch("down://a.org/p.zip", tmp_path / "p.zip")
    assert left(tmp_path) == set()
    with pytest.raises(DataError, match=sums[1]):
        bring(wrong, tmp_path, True)
    assert left(tmp_path) == {"p.zip"}
    (tmp_path / "p.zip").unlink()
    assert (bring(right, tmp_path, True) / "a.txt").is_file()
    assert seen[-1] == "https://a.org/x/p.zip"
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
