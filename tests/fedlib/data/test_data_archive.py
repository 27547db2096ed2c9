"""Archives, checksums, downloads and pickles that cannot be trusted."""

import errno
import io
import os
import pickle
import stat
import tarfile
import urllib.error
import urllib.request
import zipfile
from pathlib import Path

import numpy as np
import pytest
from torture import archives

from fedlib.data import archive
from fedlib.data.archive import (
    DataError,
    check,
    checksum,
    data_root,
    download,
    extract,
)
from fedlib.data.pickled import read_arrays

GOOD = {"set/a.txt": b"alpha", "set/deep/b.txt": b"beta"}
ABC = "900150983cd24fb0d6963f7d28e17f72"  # md5 of "abc", RFC 1321


def tar(path, files, *members):
    with tarfile.open(path, "w:gz") as pack:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            pack.addfile(info, io.BytesIO(content))
        for member in members:
            pack.addfile(member)
    return path


def zipped(path, files, mode=None):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as pack:
        for name, content in files.items():
            info = zipfile.ZipInfo(name)
            info.external_attr = (mode or 0) << 16
            pack.writestr(info, content)
    return path


def link(name, target, kind=tarfile.SYMTYPE):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


# ---------------------------------------------------------------- unpacking
@pytest.mark.parametrize("pack", [tar, zipped])
def test_extract(tmp_path, pack):
    made = extract(pack(tmp_path / "p", GOOD), tmp_path / "into")
    assert made == [tmp_path / "into" / "set"] and sorted(
        os.listdir(tmp_path / "into")
    ) == ["set"]
    assert {n: (tmp_path / "into" / n).read_bytes() for n in GOOD} == GOOD
    with pytest.raises(DataError, match="exists already"):
        extract(tmp_path / "p", tmp_path / "into")


@pytest.mark.parametrize(
    "name", ["../evil", "set/../../evil", "/evil", "..\\evil", "C:evil", "set/.."]
)
@pytest.mark.parametrize("pack", [tar, zipped])
def test_paths_that_lead_outside_are_refused(tmp_path, pack, name):
    with pytest.raises(DataError, match="leads outside its folder: refused"):
        extract(pack(tmp_path / "p", GOOD | {name: b"x"}), tmp_path / "a" / "into")
    assert sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*")) == [
        "a",
        "a/into",
        "p",
    ]


@pytest.mark.parametrize(
    "member",
    [
        link("set/l", "/etc/passwd"),
        link("set/l", "a.txt"),
        link("set/l", "set/a.txt", tarfile.LNKTYPE),
        link("set/l", "", tarfile.CHRTYPE),
        link("set/l", "", tarfile.FIFOTYPE),
    ],
    ids=["out", "in", "hard", "device", "fifo"],
)
def test_links_and_devices_in_a_tar_are_refused(tmp_path, member):
    with pytest.raises(DataError, match="a link or a device: refused"):
        extract(tar(tmp_path / "p", GOOD, member), tmp_path / "into")
    assert os.listdir(tmp_path / "into") == []


def test_links_in_a_zip_are_refused(tmp_path):
    with pytest.raises(DataError, match="a link or a device: refused"):
        extract(
            zipped(tmp_path / "p", {"l": b"/etc/passwd"}, stat.S_IFLNK | 0o777),
            tmp_path / "into",
        )
    assert os.listdir(tmp_path / "into") == []


@pytest.mark.parametrize("pack", [tar, zipped])
def test_archives_that_are_too_large_or_cut_short(tmp_path, pack):
    big = pack(tmp_path / "big", {"zeros": bytes(100_000)})
    with pytest.raises(DataError, match="more than 99,999 bytes: refused"):
        extract(big, tmp_path / "into", limit=99_999)
    noise = pack(tmp_path / "noise", {"noise": np.random.default_rng(0).bytes(50_000)})
    noise.write_bytes(noise.read_bytes()[:20_000])
    with pytest.raises(DataError, match="get it again"):
        extract(noise, tmp_path / "into")
    with pytest.raises(DataError, match="neither a tar nor a zip"):
        (tmp_path / "text").write_text("hello")
        extract(tmp_path / "text", tmp_path / "into")
    assert os.listdir(tmp_path / "into") == []


def cases(table):
    """The names of a table of tests/torture; those that take seconds are marked."""
    full = pytest.mark.full
    return [pytest.param(k, marks=[full] * (k in archives.SLOW)) for k in table]


@pytest.mark.parametrize("name", cases(archives.ARCHIVES))
def test_archives_that_were_made_up(tmp_path, name):
    outcome, example = archives.try_archive(name, tmp_path)
    assert outcome == ("clean" if archives.ARCHIVES[name][1] else "accepted"), example


@pytest.mark.parametrize("pack", [tar, zipped])
def test_archives_of_too_many_files(tmp_path, monkeypatch, pack):
    """Folders count as well."""
    monkeypatch.setattr(archive, "FILES", 5)
    extract(pack(tmp_path / "p", GOOD), tmp_path / "into")
    with pytest.raises(DataError, match="more than 5 files: refused"):
        more = {f"more/{i}": b"" for i in range(6)}
        extract(pack(tmp_path / "q", more), tmp_path / "into")
    assert os.listdir(tmp_path / "into") == ["set"]


@pytest.mark.parametrize("at", range(10, 200, 7))
def test_a_wrong_bit_changes_nothing_or_is_noticed(tmp_path, at):
    """In a tar.gz: what is not content is a date, a name or an unused bit."""
    (tmp_path / "p").write_bytes(archives.flipped(archives.tar(), at))
    try:
        extract(tmp_path / "p", tmp_path / "into")
    except DataError:
        assert os.listdir(tmp_path / "into") == []
    else:
        found = {k: (tmp_path / "into" / k).read_bytes() for k in archives.GOOD}
        assert found == archives.GOOD


def test_a_full_disk_is_no_damage(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(archive, "_write", full)
    with pytest.raises(OSError, match="No space left"):
        extract(tar(tmp_path / "p", GOOD), tmp_path / "into")
    assert os.listdir(tmp_path / "into") == []


# -------------------------------------------------------------- checksums and downloads
def test_checksums(tmp_path):
    file = tmp_path / "f"
    file.write_text("abc")
    assert checksum(file) == ABC and checksum(file, "sha256").startswith(
        "ba7816bf8f01cfea"
    )
    check(file, ABC)
    file.write_text("ab")
    with pytest.raises(DataError, match="damaged or cut short: 2 bytes"):
        check(file, ABC)
    with pytest.raises(DataError, match="does not exist"):
        check(tmp_path / "g", ABC)


def test_download(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(
        archive,
        "_open",
        lambda url, timeout: asked.append((url, timeout)) or io.BytesIO(b"abc"),
    )
    download("https://example.org/f", tmp_path / "new" / "f", ABC, timeout=3)
    assert (tmp_path / "new" / "f").read_text() == "abc" and asked == [
        ("https://example.org/f", 3)
    ]
    with pytest.raises(DataError, match="damaged or cut short"):
        download("https://example.org/f", tmp_path / "g", "0" * 32)
    # nothing unfinished is left
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["f", "new"]


@pytest.mark.parametrize(
    "error",
    [
        urllib.error.URLError("no route"),
        TimeoutError("slow"),
        ConnectionResetError("gone"),
    ],
)
def test_download_without_a_network(tmp_path, monkeypatch, error):
    def fail(url, timeout):
        raise error

    monkeypatch.setattr(archive, "_open", fail)
    with pytest.raises(DataError, match="fetch it elsewhere and put it at .*/f"):
        download("https://example.org/f", tmp_path / "f", ABC)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "url", ["http://example.org/f", "file:///etc/passwd", "ftp://example.org/f"]
)
def test_only_https(tmp_path, url):
    with pytest.raises(DataError, match="only https"):
        download(url, tmp_path / "f", ABC)
    request = urllib.request.Request("https://example.org/f")
    with pytest.raises(DataError, match="which is not https"):
        archive._OnlyHttps().redirect_request(request, None, 302, "", {}, url)
    assert (
        archive._OnlyHttps()
        .redirect_request(request, None, 302, "", {}, "https://example.org/g")
        .full_url.endswith("g")
    )


def test_data_root(monkeypatch):
    monkeypatch.delenv("FEDLIB_DATA", raising=False)
    assert data_root() == Path("data") and data_root("here") == Path("here")
    monkeypatch.setenv("FEDLIB_DATA", "/elsewhere")
    assert data_root() == Path("/elsewhere") and data_root("here") == Path("here")


# ---------------------------------------------------------------- pickles
@pytest.mark.parametrize("protocol", range(0, 5))
def test_arrays_are_read(tmp_path, protocol):
    content = {
        b"data": np.arange(6, dtype=np.uint8).reshape(2, 3),
        b"labels": [1, 2],
        "text": ("a", 1.5, None),
        "objects": np.array(["x", "y"], dtype=object),
        "names": [np.str_("é")],
    }
    (tmp_path / "f").write_bytes(pickle.dumps(content, protocol))
    back = read_arrays(tmp_path / "f")
    assert (
        np.array_equal(back[b"data"], content[b"data"])
        and back[b"data"].dtype == np.uint8
    )
    assert (
        back[b"labels"] == [1, 2]
        and back["text"] == ("a", 1.5, None)
        and back["names"] == ["é"]
    )
    assert back["objects"].tolist() == ["x", "y"]


class Evil:
    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize(
    "function, arguments",
    [
        (os.system, ("touch {}",)),
        (eval, ("open('{}', 'w')",)),
        (np.load, ("{}",)),
        (np.lib.format.open_memmap, ("{}", "w+")),
        (getattr, ("{}", "upper")),
        (pickle.loads, (b"",)),
        (Path, ("{}",)),
    ],
    ids=lambda v: getattr(v, "__name__", None),
)
@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_pickles_that_ask_for_more_are_refused(tmp_path, function, arguments, protocol):
    mark = tmp_path / "mark"
    arguments = [a.format(mark) if isinstance(a, str) else a for a in arguments]
    (tmp_path / "f").write_bytes(
        pickle.dumps({"data": [Evil(function, *arguments)]}, protocol)
    )
    with pytest.raises(DataError, match="asks for .*: refused"):
        read_arrays(tmp_path / "f")
    assert not mark.exists()


def test_other_ways_to_encode_bytes_are_refused(tmp_path):
    (tmp_path / "f").write_bytes(b"c_codecs\nencode\n(Vabc\nVzip\ntR.")
    with pytest.raises(DataError, match="encodes bytes as 'zip': refused"):
        read_arrays(tmp_path / "f")


def test_damaged_pickles(tmp_path):
    whole = pickle.dumps({b"data": np.zeros(1000, np.uint8)}, 2)
    for cut in (0, 1, 20, len(whole) // 2, len(whole) - 1):
        (tmp_path / "f").write_bytes(whole[:cut])
        with pytest.raises(DataError, match="damaged or cut short"):
            read_arrays(tmp_path / "f")
    with pytest.raises(DataError, match="does not exist"):
        read_arrays(tmp_path / "g")


@pytest.mark.parametrize("name", cases(archives.PICKLES))
def test_pickles_that_were_made_up(tmp_path, name):
    outcome, example = archives.try_pickle(name, tmp_path)
    refused = isinstance(archives.PICKLES[name][1], str)
    assert outcome == ("clean" if refused else "accepted"), example


def test_a_case_that_kills_its_process_is_counted():
    die = lambda name, folder: os.kill(os.getpid(), 9)
    assert archives.in_a_child(die, "x")[0] == "raw"
    good = archives.in_a_child(archives.try_archive, "good tar")
    assert good[0] == "accepted"


def test_arrays_can_be_changed_and_their_numbers_are_those_of_numpy(tmp_path):
    wanted = [
        np.arange(6).reshape(2, 3).astype(k) for k in ("<f8", ">f4", "<i2", "<U3", "S2")
    ]
    wanted += [np.asfortranarray(np.ones((2, 3))), np.zeros((0, 4)), np.array(True)]
    for protocol in range(5):
        (tmp_path / "f").write_bytes(pickle.dumps(wanted, protocol))
        for a, b in zip(read_arrays(tmp_path / "f"), wanted, strict=True):
            assert type(a) is np.ndarray and a.flags.writeable
            assert a.dtype == b.dtype and a.shape == b.shape and (a == b).all()
