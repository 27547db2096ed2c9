"""Files of real data sets: where they live, checksums, downloads, archives, pickles and
pictures. What is read is not trusted: a file is as it was published, or refused.
"""

from __future__ import annotations

import hashlib
import http.client
import io
import lzma
import os
import pickle
import shutil
import stat
import tarfile
import tempfile
import urllib.error
import urllib.request
import zipfile
import zlib
from functools import partial
from pathlib import Path, PurePosixPath

import numpy as np
import torch
from filelock import FileLock, Timeout
from PIL import Image
from tqdm import tqdm


class DataError(ValueError):
    """A file of a data set is missing, damaged or not what it should be; the message
    says what to do.
    """


def data_root(root=None) -> Path:
    """The folder of the data sets: `root`, else the environment variable FEDLIB_DATA,
    else `data`.
    """
    root = os.environ.get("FEDLIB_DATA") or "data" if root is None else root
    if not isinstance(root, (str, os.PathLike)) or "\0" in os.fspath(root):
        raise ValueError(f"root = {root!r}: give the folder of the data sets")
    return Path(root)


def checksum(path, algorithm: str = "md5") -> str:
    """Hexadecimal checksum of a file ("md5", "sha256" ...)."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def check(path, md5: str) -> None:
    """DataError unless the file exists and has this checksum."""
    found = checksum(path) if Path(path).is_file() else "nothing"
    if found != md5:
        raise DataError(f"{path}: found {found}, expected md5 {md5}; get it again")


def unpacked(name, root, folder, archive, url="", md5="", download=False, where=""):
    """The folder of a data set below `root`, unpacked from its archive where only that
    is there, which `download` fetches; where: what to say of how to get it.
    """
    folder, packed = root / folder, root / archive
    if folder.is_dir():
        return folder
    if not packed.is_file():
        if not download:
            raise DataError(
                f"{name} is not in {root}: get {where or url} and put {archive}, or "
                f"the folder {folder.name} from it, there"
                + "; or call with download=True"
                * bool(url)
            )
        fetch(url, packed, md5)
    if md5:
        check(packed, md5)
    extract(packed, root)
    if not folder.is_dir():
        raise DataError(f"{packed} holds no folder {folder.name}; get it again")
    return folder


# ---------------------------------------------------------------- download
SAFE = ("https://", "http://127.0.0.1:", "http://localhost:")


def fetch(url: str, path, md5: str = "", progress: bool | None = None, timeout=30):
    """Fetch an address into a file, which appears under its name only when it is whole
    and has the checksum; without one its SHA-256 is printed.

    What has arrived stays beside it as NAME.part, and the next call goes on from there
    where the server can (HTTP Range and If-Range, RFC 9110). timeout: the longest
    silence of the server, in seconds.
    """
    path = Path(path)
    if not url.startswith(SAFE):
        raise DataError(f"refusing to download {url}: only https addresses are allowed")
    part, lock = (path.with_name(path.name + end) for end in (".part", ".lock"))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(lock, timeout=0):
            try:
                transfer(url, part, timeout, progress)
                accept(url, part, path, md5)
            finally:
                lock.unlink(missing_ok=True)
    except Timeout:
        raise DataError(f"{path} is being fetched by another process; wait") from None
    except (OSError, http.client.HTTPException) as e:
        raise DataError(
            f"{url} could not be fetched ({e}); the same command goes on from where it "
            f"was, or fetch it elsewhere and put it at {path}"
        ) from e


def accept(url, part, path, md5):
    """Give a file its name, or DataError and take it away where its checksum is not the
    one that was published: going on cannot mend it.
    """
    if md5 and (found := checksum(part)) != md5:
        part.unlink()
        raise DataError(f"{url} has md5 {found}, expected {md5}; try again")
    if not md5:
        sha256 = checksum(part, "sha256")
        print(f"{path.name}: no checksum is published; sha256 {sha256}")
    part.replace(path)


class OnlyHttps(urllib.request.HTTPRedirectHandler):
    """Follows a server to https addresses alone."""

    def redirect_request(self, request, file, code, message, headers, new):
        if not new.startswith("https://"):
            raise DataError(f"{request.full_url} leads to {new}, which is not https")
        return super().redirect_request(request, file, code, message, headers, new)


def _open(request, timeout):
    return urllib.request.build_opener(OnlyHttps).open(request, timeout=timeout)


def transfer(url, part, timeout, progress):
    """Write what an address has to the file `part`, from where that ends if the file
    behind the address is still the same.
    """
    version = part.with_name(part.name + ".version")
    have = part.stat().st_size if part.exists() and version.exists() else 0
    request = urllib.request.Request(url, headers={"User-Agent": "fedlib"})
    if have:
        request.add_header("Range", f"bytes={have}-")
        request.add_header("If-Range", version.read_text("latin1"))
    try:
        answer = _open(request, timeout)
    except urllib.error.HTTPError as e:
        if e.code != 416 or not have:  # it has no bytes from there on: begin again
            raise
        part.unlink()
        return transfer(url, part, timeout, progress)
    with answer:
        head = answer.headers
        rest = head.get("Content-Range", "").startswith(f"bytes {have}-")
        have = have if answer.status == 206 and rest else 0
        tag = head.get("ETag", "")
        version.write_text(
            head.get("Last-Modified", "") if tag[:2] in ("", "W/") else tag, "latin1"
        )
        if not version.stat().st_size:  # nothing tells this file from the next one
            version.unlink()
        total = have + int(head.get("Content-Length") or 0)
        hide = None if progress is None else not progress  # None: on a terminal alone
        how = {"total": total, "initial": have, "disable": hide, "leave": False}
        with (
            open(part, "ab" if have else "wb") as out,
            tqdm.wrapattr(answer, "read", desc=part.stem, **how) as body,
        ):
            shutil.copyfileobj(body, out)
    if (arrived := part.stat().st_size) < total:
        raise OSError(f"the connection was cut at {arrived:,} of {total:,} bytes")
    version.unlink(missing_ok=True)


# ---------------------------------------------------------------- archives
DAMAGED = (
    *(OSError, EOFError, RuntimeError, OverflowError, KeyError),
    *(tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError),
)


def extract(archive, into, limit: int = 8 * 2**30) -> list[Path]:
    """Unpack a tar (also compressed) or zip file; returns the top-level paths that it
    made, sorted.

    Only plain files and folders inside `into`, each once and `limit` bytes in all: a
    path that leads elsewhere, a link or a device refuses the whole, and nothing is left
    behind. Of a compressed tar nothing but its published checksum tells a flipped bit.
    """
    archive, into = Path(archive), Path(into)
    into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=into, prefix=".unpacking-") as folder:
        try:
            is_zip = zipfile.is_zipfile(archive)
            with (zipfile.ZipFile if is_zip else tarfile.open)(archive) as pack:
                total = 0
                for member in (of_zip if is_zip else of_tar)(pack):
                    total += member[2]
                    if total > limit:
                        raise DataError(f"it unpacks to more than {limit:,} bytes")
                    write(*member, Path(folder))
            tops = sorted(Path(folder).iterdir())
            if not tops:
                raise DataError("it holds no file")
            if there := [top.name for top in tops if (into / top.name).exists()]:
                raise DataError(f"{into / there[0]} exists already: move it away")
        except (*DAMAGED, DataError) as e:
            raise DataError(f"{archive} is not unpacked: {e}; get it again") from e
        return [top.replace(into / top.name) for top in tops]


def of_zip(pack):
    """(name, kind, bytes, open) of each entry; kind: "folder", "file" or "other"."""
    for m in pack.infolist():
        plain = stat.S_IFMT(m.external_attr >> 16) in (0, stat.S_IFREG, stat.S_IFDIR)
        kind = "other" if not plain else "folder" if m.is_dir() else "file"
        yield m.filename, kind, m.file_size, partial(pack.open, m)


def of_tar(pack):
    """The same of a tar."""
    for m in pack:
        plain = m.isreg() and not m.issparse() and m.size >= 0
        kind = "folder" if m.isdir() else "file" if plain else "other"
        yield m.name, kind, m.size, partial(pack.extractfile, m)


def write(name, kind, size, source, folder):
    """Write one entry of an archive below a folder."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or set(name) & set("\\:\0"):
        raise DataError(f"the path {name!r} leads outside its folder")
    if kind == "other" or not name.isprintable():
        raise DataError(f"{name!r} is no plain file or folder")
    to = folder.joinpath(*path.parts)
    (to if kind == "folder" else to.parent).mkdir(parents=True, exist_ok=True)
    if kind == "file":
        with source() as content, open(to, "xb") as file:  # "x": no file twice
            shutil.copyfileobj(content, file)
        if to.stat().st_size != size:
            raise DataError(f"{name!r} has {to.stat().st_size:,} of {size:,} bytes")


def take_member(archive, member, path):
    """Write the one file of a zip that is wanted, whole, and take the zip away."""
    with tempfile.TemporaryDirectory(dir=Path(path).parent) as folder:
        try:
            with zipfile.ZipFile(archive) as pack:
                Path(pack.extract(member, folder)).replace(path)
        except DAMAGED as e:
            raise DataError(f"{archive} does not hold {member} ({e})") from e
        finally:
            Path(archive).unlink(missing_ok=True)


# ---------------------------------------------------------------- pickles
class Kind:
    """Stands for a dtype of numbers, texts or objects."""

    def __init__(self, code, *_):
        self.dtype = np.dtype(code)
        if self.dtype.kind not in "biufSUO":
            raise DataError(f"asks for arrays of type {code!r}")

    def __setstate__(self, state):
        if any(part is not None for part in state[2:5]):
            raise DataError("asks for arrays with fields")
        order = state[1].decode() if isinstance(state[1], bytes) else state[1]
        self.dtype = self.dtype.newbyteorder(order)


class Array:
    """Stands for an array."""

    def __init__(self, *_):
        self.array = None

    def __setstate__(self, state):
        _, shape, kind, fortran, content = state
        if min(shape, default=0) < 0:
            raise DataError(f"holds an array of shape {shape}")
        if isinstance(content, list) and kind.dtype == object:
            flat = np.empty(len(content), object)
            flat[:] = [plain(v) for v in content]
        else:
            content = content.encode("latin1") if isinstance(content, str) else content
            flat = np.frombuffer(content, kind.dtype).copy()
        self.array = flat.reshape(shape, order="F" if fortran else "C")


class Arrays(pickle.Unpickler):
    """Reads containers, strings, numbers and numpy arrays. Nothing that the file names
    is called, but what stands for it here.
    """

    def find_class(self, module, name):
        return NAMED[module.replace("numpy.core", "numpy._core"), name]


NAMED = {
    ("numpy", "ndarray"): Array,
    ("numpy", "dtype"): Kind,
    ("_codecs", "encode"): lambda text, _: text.encode("latin1"),
    ("__builtin__", "bytes"): lambda: b"",  # how Python 3 writes no bytes
    ("numpy._core.multiarray", "_reconstruct"): Array,
    ("numpy._core.multiarray", "scalar"): lambda kind, content: np.frombuffer(
        content.encode("latin1") if isinstance(content, str) else content, kind.dtype
    )[0],
}


def plain(value):
    """The value with arrays in place of what stands for them."""
    if isinstance(value, (list, tuple)):
        return type(value)(map(plain, value))
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, Array) and value.array is not None:
        return value.array
    if isinstance(value, (type(None), bool, int, float, str, bytes, np.generic)):
        return value
    raise DataError(f"holds a {type(value).__name__} by itself")


def read_arrays(path, encoding: str = "bytes"):
    """The content of a pickle of plain containers, strings, numbers and numpy arrays;
    DataError for every other one.
    """
    try:
        # of bytes no more are read than are there, whatever length a content claims
        content = io.BytesIO(Path(path).read_bytes())
        return plain(Arrays(content, encoding=encoding).load())
    except Exception as e:  # a damaged pickle can raise nearly anything
        raise DataError(
            f"{path} is no whole file of arrays ({type(e).__name__}: {e}); get it again"
        ) from e


# ---------------------------------------------------------------- pictures
def read_image(path, size: int | None = None) -> torch.Tensor:
    """A picture as [3, H, W] float32 in [0, 1]; with a size [3, size, size], bilinear,
    without its proportions. Grey ones get three equal channels.
    """
    try:
        with Image.open(path) as picture:
            # dropped once colours are looked up
            if picture.mode == "P" and "transparency" in picture.info:
                picture = picture.convert("RGBA")
            picture = picture.convert("RGB")
            if size:
                picture = picture.resize((size, size), Image.Resampling.BILINEAR)
    except Exception as e:  # a damaged image can raise nearly anything
        raise DataError(
            f"{path} cannot be read as an image ({type(e).__name__}: {e}); get it again"
        ) from e
    return torch.from_numpy(np.array(picture)).permute(2, 0, 1).float().div_(255)
