"""Files of real data sets: where they lie, how they are fetched, checked and unpacked.
What is read is not trusted: a file is as it was published, or refused.
"""

import hashlib
import os
import pickle
import shutil
import tempfile
import urllib.request
import zipfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image
from tqdm import tqdm

from ..core.files import whole

SAFE = ("https://", "http://127.0.0.1:", "http://localhost:")


class DataError(ValueError):
    """A file is missing, damaged or not what it should be; says what to do."""


class Archive(NamedTuple):
    """A file or folder of a data set, its path below the data folder; the address of
    the zip that holds it, of which the last part is its name, "" where there is none;
    the zip's md5, "" where none is published.
    """

    path: str
    url: str = ""
    md5: str = ""

    name = property(lambda self: self.url.rpartition("/")[2] or self.path)


def data_root(root=None) -> Path:
    """The folder of the data sets: `root`, else FEDLIB_DATA, else `data`."""
    root = os.environ.get("FEDLIB_DATA") or "data" if root is None else root
    if not isinstance(root, (str, os.PathLike)) or "\0" in os.fspath(root):
        raise ValueError(f"root = {root!r}: give the folder of the data sets")
    return Path(root)


def checksum(path, algorithm: str = "md5") -> str:
    """Hexadecimal checksum of a file ("md5", "sha256" ...)."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def bring(archive: Archive, root: Path, download=False) -> Path:
    """The path of a file or folder below `root`: as it lies there, or unpacked from its
    archive beside it, which is fetched where it is missing and `download` says so.

    An archive whose checksum is another one is refused.
    """
    path = root / archive.path
    packed = path.with_name(archive.name)
    if path.exists():
        return path
    if not packed.is_file():
        if not download:
            raise DataError(
                f"{path} is not there: put it there, or {archive.name} from "
                f"{archive.url} beside it; `python -m fedlib data` says what it can get"
            )
        fetch(archive.url, packed)
    if archive.md5 and (found := checksum(packed)) != archive.md5:
        raise DataError(f"{packed} has md5 {found}, not {archive.md5}; get it again")
    unpack(packed, path)
    return path


def fetch(url: str, path: Path) -> None:
    """Fetch an address into a file, which appears when it is whole."""
    request = urllib.request.Request(url, headers={"User-Agent": "fedlib"})
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with urllib.request.urlopen(request, timeout=30) as answer:
            if not answer.url.startswith(SAFE):
                raise DataError(f"{url} leads to {answer.url}: take an https address")
            bar = {"desc": path.name, "total": answer.length, "disable": None}
            with tqdm.wrapattr(answer, "read", leave=False, **bar) as body:
                whole(path, lambda file: shutil.copyfileobj(body, file))
    except OSError as e:
        raise DataError(
            f"{url} could not be fetched ({e}); or fetch it elsewhere, to {path}"
        ) from e


def unpack(archive: Path, path: Path) -> None:
    """Take a file or folder out of a zip, whole or not at all, nothing outside."""
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".unpack-") as folder:
        try:
            zipfile.ZipFile(archive).extractall(folder)
            Path(folder, path.name).replace(path)
        except Exception as e:  # a damaged archive can raise nearly anything
            raise DataError(
                f"{archive} does not hold {path.name} ({e}); get it again"
            ) from e


# ---------------------------------------------------------------- what is in them
KNOWN = {  # what a pickle of lists, texts, numbers and arrays names
    *(("numpy", "ndarray"), ("numpy", "dtype"), ("_codecs", "encode")),
    *(("numpy._core.multiarray", name) for name in ("_reconstruct", "scalar")),
}


class Plain(pickle.Unpickler):
    """Reads lists, texts, numbers and arrays; calls nothing else that a file names."""

    def find_class(self, module, name):
        if (module.replace("numpy.core", "numpy._core"), name) not in KNOWN:
            raise DataError(f"it names {module}.{name}")
        return super().find_class(module, name)


def read_pickle(path):
    """A pickle of lists, texts, numbers and arrays; DataError for other ones."""
    try:
        with open(path, "rb") as file:
            return Plain(file, encoding="latin1").load()
    except Exception as e:  # a damaged pickle can raise nearly anything
        raise DataError(f"{path} is no list of texts ({e}); get it again") from e


def read_image(path, size: int | None = None) -> torch.Tensor:
    """A picture as [3, H, W] uint8; with a size [3, size, size], bilinear, without its
    proportions. Grey ones get three equal channels.
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
        raise DataError(f"{path} cannot be read as an image ({e}); get it again") from e
    return torch.from_numpy(np.array(picture)).permute(2, 0, 1)
