"""Files of real data sets: where they live, checksums, download and unpacking."""

from __future__ import annotations

import bz2
import errno
import gzip
import hashlib
import http.client
import lzma
import os
import shutil
import stat
import struct
import sys
import tarfile
import tempfile
import urllib.request
import zipfile
import zlib
from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path, PurePosixPath
from typing import NamedTuple


class DataError(ValueError):
    """A file of a data set is missing, damaged or not what it should be; the message
    says what to do.
    """


def data_root(root=None) -> Path:
    """The folder of the data sets: `root`, else the environment variable FEDLIB_DATA,
    else `data`.
    """
    if root is None:
        root = os.environ.get("FEDLIB_DATA") or "data"
    if not isinstance(root, (str, os.PathLike)) or "\0" in os.fspath(root):
        raise ValueError(f"root = {root!r}: give the folder of the data sets")
    return Path(root)


# ---------------------------------------------------------------- checksums
def checksum(path, algorithm: str = "md5") -> str:
    """Hexadecimal checksum of a file ("md5", "sha256" ...)."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def check(path, expected: str, algorithm: str = "md5") -> None:
    """DataError unless the file exists and has this checksum."""
    path = Path(path)
    if not path.is_file():
        raise DataError(f"{path} does not exist; get the data set again")
    found = checksum(path, algorithm)
    if found != expected:
        raise DataError(
            f"{path} is damaged or cut short: {path.stat().st_size:,} bytes with "
            f"{algorithm} {found}, expected {expected}; delete it and get it again"
        )


# ---------------------------------------------------------------- download
def download(
    url: str, path, expected: str, algorithm: str = "md5", timeout: float = 30
) -> None:
    """Fetch an https address into `path`.

    The file appears under its name only when its checksum is right.

    `timeout` is the longest silence of the server, in seconds.
    """
    if not url.startswith("https://"):
        raise DataError(f"refusing to download {url}: only https addresses are allowed")
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    try:
        with _open(url, timeout) as answer, open(part, "wb") as file:
            shutil.copyfileobj(answer, file)
        check(part, expected, algorithm)
        part.replace(path)
    except (OSError, http.client.HTTPException) as error:
        raise DataError(
            f"{url} could not be downloaded ({error}); fetch it elsewhere and put it "
            f"at {path}"
        ) from error
    finally:
        part.unlink(missing_ok=True)


class _OnlyHttps(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, request, file, code, message, headers, new):
        if not new.startswith("https://"):
            raise DataError(
                f"refusing to download {request.full_url}: the server leads to {new}, "
                "which is not https"
            )
        return super().redirect_request(request, file, code, message, headers, new)


def _open(url, timeout):
    return urllib.request.build_opener(_OnlyHttps).open(url, timeout=timeout)


# ---------------------------------------------------------------- unpacking
FILES = 250_000  # files and folders of one archive
HEADER = 2**20  # bytes in front of one file of a tar: long names, pax
DIRECTORY = 2**25  # bytes of the list at the end of a zip
NAME, DEPTH = 1024, 32  # letters of a path, folders above a file
OPENERS = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ": lzma.open}
BROKEN = (
    *(tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError),
    *(EOFError, RuntimeError, OverflowError, ValueError, struct.error),
)
FULL = (errno.ENOSPC, errno.EDQUOT)


class Member(NamedTuple):
    """One entry of an archive.

    kind: "file", "folder", or what else it is. open() -> its content.
    """

    name: str
    kind: str
    size: int
    open: Callable


def extract(archive, into, limit: int = 8 * 2**30) -> list[Path]:
    """Unpack a tar (also compressed) or zip file; returns the top-level paths that it
    made, sorted.

    Only plain files and folders inside `into` are accepted, each once: an absolute
    path, a path with "..", a link or a device anywhere in the archive refuses the whole
    of it, and so do a content beyond `limit` bytes, more than 250,000 files, and
    anything that is damaged or missing: what has checksums is read to its end. Nothing
    is left behind then.
    """
    archive, into = Path(archive), Path(into)
    into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=into, prefix=".unpacking-") as folder:
        try:
            with open(archive, "rb") as file, _members(file, archive) as members:
                _unpack(members, Path(folder), limit, archive)
        except DataError:
            raise
        except OSError as error:
            if error.errno in FULL:  # the disk's fault
                raise
            raise _unreadable(archive, error) from error
        except BROKEN as error:
            raise _unreadable(archive, error) from error
        tops = sorted(Path(folder).iterdir())
        for top in tops:
            if (into / top.name).exists():
                raise DataError(
                    f"{into / top.name} exists already; move it away before unpacking "
                    f"{archive.name}"
                )
        return [top.replace(into / top.name) for top in tops]


def _unreadable(archive, error):
    return DataError(
        f"{archive} cannot be unpacked ({error}): it may be cut short; delete it and "
        "get it again"
    )


@contextmanager
def _members(file, archive):
    """The members of an archive, whose kind is told by its first bytes."""
    first = file.read(6)
    file.seek(0)
    if first.startswith(b"PK"):
        headers = Headers(file, DIRECTORY, archive)
        with zipfile.ZipFile(headers) as pack:
            headers.left = sys.maxsize  # what is in front of a file has 192 kB at most
            _count(len(pack.infolist()), archive)
            yield _of_zip(pack)
        return
    mark = next((m for m in OPENERS if first.startswith(m)), None)
    with OPENERS[mark](file) if mark else nullcontext(file) as stream:
        headers = Headers(stream, HEADER, archive)
        try:
            tar = tarfile.open(fileobj=headers, mode="r:")
        except tarfile.ReadError:
            raise DataError(
                f"{archive} is neither a tar nor a zip file; delete it and get it again"
            ) from None
        with tar:
            yield _of_tar(tar, headers, archive)


class Headers:
    """A file of which `most` bytes are read, unless `left` is set anew.

    A header says how long it is, and is read at once: so a lie takes no memory.
    """

    def __init__(self, file, most, archive):
        self.file, self.left, self.archive = file, most, archive
        self.seek, self.tell, self.seekable = file.seek, file.tell, file.seekable

    def read(self, n=-1):
        block = self.file.read(self.left + 1 if n < 0 else min(n, self.left + 1))
        self.left -= len(block)
        if self.left < 0:
            raise DataError(f"{self.archive} holds a header that is too long: refused")
        return block


def _count(n, archive):
    if n > FILES:
        raise DataError(f"{archive} holds more than {FILES:,} files: refused")


def _of_zip(pack):
    for m in pack.infolist():
        mode = stat.S_IFMT(m.external_attr >> 16)
        kind = "folder" if m.is_dir() else "file"
        if mode not in (0, stat.S_IFREG, stat.S_IFDIR):
            kind = "a link or a device"
        yield Member(m.filename, kind, m.file_size, partial(pack.open, m))


def _of_tar(tar, headers, archive):
    end = 0
    while True:
        headers.left = HEADER
        m = tar.next()
        if m is None:
            break
        tar.members.clear()  # it keeps all headers that it has read
        tar.pax_headers.clear()
        headers.left = sys.maxsize
        kind = "folder" if m.isdir() else "file" if m.isreg() else "a link or a device"
        if m.issparse():
            kind = "a file with holes"
        yield Member(m.name, kind, m.size, partial(tar.extractfile, m))
        end = m.offset_data + (-(-m.size // 512) * 512 if m.isreg() else 0)
    _to_the_end(headers, end, archive)


def _to_the_end(stream, end, archive):
    """After the last file a tar has two blocks of zeros and nothing else. Behind them
    is the checksum of what is compressed.
    """
    stream.left, zeros = sys.maxsize, 0
    stream.seek(end)
    while block := stream.read(2**20):
        zeros += len(block)
        if block.strip(b"\0"):
            raise DataError(
                f"{archive} is damaged after its last readable file; delete it and get "
                "it again"
            )
    if zeros < 1024:
        raise DataError(f"{archive} is cut short; delete it and get it again")


def _unpack(members, folder, limit, archive):
    total, files, made = 0, 0, {folder}
    for m in members:
        path = _inside(folder, m.name, archive)
        if m.kind not in ("file", "folder"):
            raise DataError(f"{archive} holds {m.name!r}, which is {m.kind}: refused")
        _make(path if m.kind == "folder" else path.parent, made)
        files += m.kind == "file"
        _count(files + len(made), archive)
        if m.kind == "folder":
            continue
        total += m.size
        if m.size < 0 or total > limit:
            raise DataError(f"{archive} unpacks to more than {limit:,} bytes: refused")
        _write(m, path, archive)
    if not files:
        raise DataError(f"{archive} holds no file; delete it and get it again")


def _inside(folder: Path, name: str, archive) -> Path:
    """Where the member `name` goes, if that is inside `folder`."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or set(name) & set("\\:\0"):
        raise DataError(
            f"{archive} holds the path {name!r}, which leads outside its "
            "folder: refused"
        )
    if not name.isprintable() or len(name) > NAME or len(path.parts) > DEPTH:
        raise DataError(
            f"{archive} holds the path {name[:60]!r}, which is too long or too deep or "
            "cannot be printed: refused"
        )
    return folder.joinpath(*path.parts)


def _make(folder, made):
    """Make a folder and those above it; `made` are there."""
    if folder not in made:
        _make(folder.parent, made)
        folder.mkdir()
        made.add(folder)


def _write(member, path, archive):
    try:
        file = open(path, "xb")
    except FileExistsError:  # as the file system sees it, which may ignore case
        raise DataError(f"{archive} holds {member.name!r} twice: refused") from None
    with file, member.open() as source:
        while block := source.read(2**20):
            file.write(block)
            if file.tell() > member.size:
                raise DataError(
                    f"{archive}: {path.name!r} is larger than the archive says: refused"
                )
        if file.tell() != member.size:
            raise DataError(
                f"{archive} is damaged or cut short at {path.name!r}; delete it and "
                "get it again"
            )
