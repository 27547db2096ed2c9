"""PACS, VLCS, OfficeHome, TerraIncognita and DomainNet: the same classes, photographed
or drawn in several domains.

Files, below the data folder, as the download script of DomainBed (Gulrajani and
Lopez-Paz, ICLR 2021) leaves them:

    folder            domains                                    classes   images
    PACS/             art_painting, cartoon, photo, sketch             7    9,991
    VLCS/             Caltech101, LabelMe, SUN09, VOC2007              5   10,729
    office_home/      Art, Clipart, Product, Real World               65   15,588
    terra_incognita/  location_100, _38, _43, _46                     10   24,788
                                                                        or 24,330
    domain_net/       clipart, infograph, painting, quickdraw,       345  586,575
                      real, sketch

each as <folder>/<domain>/<class>/<image>. Their licences forbid passing the images
on, and nobody publishes checksums, so the loader verifies what can be verified: the
domains, that all domains have the same classes, and the number of images.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from PIL import ImageFile

from ..core.pool import Pool
from ..core.ranges import check_bytes, check_whole
from . import files
from .files import DataError, data_root
from .settings import one_of, settings

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".ppm", ".pgm", ".tif", ".tiff", ".webp")
SCRIPT = "domainbed/scripts/download.py of github.com/facebookresearch/DomainBed"


class Layout(NamedTuple):
    """folder; images per domain, sorted by name; number of classes; what goes wrong on
    the way to this folder.
    """

    folder: str
    images: dict[str, int | tuple[int, ...]]
    K: int
    trap: str


LAYOUTS = {
    "PACS": Layout(
        "PACS",
        {"art_painting": 2048, "cartoon": 2344, "photo": 1670, "sketch": 3929},
        7,
        "the archive unpacks to a folder `kfold`: rename it to PACS",
    ),
    "VLCS": Layout(
        "VLCS",
        {"Caltech101": 1415, "LabelMe": 2656, "SUN09": 3282, "VOC2007": 3376},
        5,
        "other releases cut each domain into train, test and crossval: take "
        "DomainBed's VLCS.tar.gz",
    ),
    "OfficeHome": Layout(
        "office_home",
        {"Art": 2427, "Clipart": 4365, "Product": 4439, "Real World": 4357},
        65,
        "the archive unpacks to a folder `OfficeHomeDataset_10072016`: rename it to "
        "office_home",
    ),
    "TerraIncognita": Layout(  # two releases of the labels are about
        "terra_incognita",
        {
            "location_100": (4879, 4741),
            "location_38": (9767, 9736),
            "location_43": (4020, 3970),
            "location_46": (6122, 5883),
        },
        10,
        "the archive holds one folder of images and a file of labels: only the script "
        "sorts them by location and class",
    ),
    "DomainNet": Layout(
        "domain_net",
        {
            "clipart": 48129,
            "infograph": 51605,
            "painting": 72266,
            "quickdraw": 172500,
            "real": 172947,
            "sketch": 69128,
        },
        345,
        "of clipart and painting the cleaned archives (`groundtruth`) are meant, and "
        "the script deletes the duplicates that domain_net_duplicates.txt lists",
    ),
}
SPELLINGS = {"Real World": "Real_World"}  # as some loaders write it


@settings(which=LAYOUTS, size=(1, 10**5), most=(1,), unreadable=("refuse", "skip"))
def domainbed(
    which: str,
    root=None,
    size: int = 224,
    classes: int | str | Sequence[str] | None = None,
    most: int | None = None,
    unreadable: str = "refuse",
) -> Pool:
    """One of the five data sets as a Pool whose owner is the domain: x [N, 3, size,
    size] in [0, 1], y [N].

    which       PACS, VLCS, OfficeHome, TerraIncognita or DomainNet
    root        data folder (default: environment variable FEDLIB_DATA, else `data`)
    size        pixels per side after resizing (bilinear, without keeping the
                proportions)
    classes     None: all; a number k: the first k in sorted order; a list of
                names: these
    most        at most so many images of each class in each domain, the first by
                file name
    unreadable  "refuse" an image that cannot be opened, or "skip" it with a warning

    Rows go by domain, class and file name, all sorted; y counts Pool.classes, the
    sorted names. Images that are grey or have a palette become RGB; one that is cut
    short is used as far as it goes, as in DomainBed, with a warning. Memory: 0.6 MB per
    image at 224 pixels, so 6 GB for PACS; DomainNet fits with `classes`, `most` or a
    smaller `size` only.
    """
    layout = LAYOUTS[which]
    folders = _domains(which, data_root(root))
    names = _classes(which, folders, classes)
    found = [
        (d, k, path)
        for d, folder in enumerate(folders.values())
        for k, name in enumerate(names)
        for path in _images(folder / name)[:most]
    ]
    if classes is None and most is None:
        counts = [sum(d == e for e, *_ in found) for d in range(len(folders))]
        _count(which, counts, len(names))
    check_bytes(f"{which}: {len(found):,} images", len(found) * 3 * size * size * 4)
    x, rows, lost, cut = torch.empty(len(found), 3, size, size), [], [], []
    for row in found:
        try:
            x[len(rows)], whole = read_image(row[2], size)
        except DataError as e:
            if unreadable == "refuse":
                raise DataError(f"{e}, or leave it out: unreadable='skip'") from e
            lost.append(row[2])
            continue
        rows.append(row)
        cut += [] if whole else [row[2]]
    left_out, used = "cannot be read and are left out", "are cut short and used so"
    for paths, what in ((lost, left_out), (cut, used)):
        if paths:
            text = f"{which}: {len(paths)} of {len(found)} images {what}; {paths[0]}"
            warnings.warn(text, stacklevel=3)
    y, owner = (torch.tensor([r[i] for r in rows], dtype=torch.long) for i in (1, 0))
    of = which, x[: len(rows)], y, len(names), "real", owner, tuple(layout.images)
    return Pool(*of, classes=names)


def read_image(path, size):
    """One picture as [3, size, size] float32 in [0, 1], and whether its file is whole.

    DataError when it cannot be opened.
    """
    try:
        return files.read_image(path, size), True
    except DataError:
        before, ImageFile.LOAD_TRUNCATED_IMAGES = ImageFile.LOAD_TRUNCATED_IMAGES, True
        try:
            return files.read_image(path, size), False
        finally:
            ImageFile.LOAD_TRUNCATED_IMAGES = before


def _domains(which, root):
    """{domain: its folder}, in sorted order."""
    layout, top = LAYOUTS[which], root / LAYOUTS[which].folder
    if not top.is_dir():
        raise DataError(
            f"{which} is not in {root}: run {SCRIPT} with {root} as its data_dir, or "
            f"put {top}/<domain>/<class> there. Mind that {layout.trap}"
        )
    folders = {}
    for domain in layout.images:
        ways = [top / way for way in (domain, SPELLINGS.get(domain, domain))]
        found = [way for way in ways if way.is_dir() and _folders(way)]
        if not found:
            raise DataError(
                f"{top} has no folder {domain!r} with a folder per class; {which} has "
                f"{', '.join(layout.images)}. Mind that {layout.trap}"
            )
        folders[domain] = found[0]
    return folders


def _folders(at):
    """The names of the folders in a folder."""
    return {p.name for p in at.iterdir() if p.is_dir() and not p.name.startswith(".")}


def _classes(which, folders, classes):
    """The names of the chosen classes, sorted; every domain must have them."""
    has = {domain: _folders(folder) for domain, folder in folders.items()}
    names = _chosen(which, sorted(set().union(*has.values())), classes)
    for domain, folder in folders.items():
        if missing := [name for name in names if name not in has[domain]]:
            others = ", ".join(d for d in has if missing[0] in has[d])
            raise DataError(
                f"{folder} has no class {missing[0]!r}, which {others} have: add it, "
                "or name with classes= those that all domains have"
            )
    return names


def _chosen(which, every, classes):
    """The classes that are asked for, sorted."""
    if classes is None:
        return tuple(every)
    if not isinstance(classes, (str, list, tuple)):
        check_whole(f"domainbed: {which}: classes", classes, 2, len(every))
        return tuple(every[:classes])
    names = [classes] if isinstance(classes, str) else list(classes)
    for name in names:
        one_of(f"domainbed: {which}: classes", name, every)
    if len(names) < 2 or len(set(names)) < len(names):
        raise ValueError(f"classes = {classes}: give two or more different names")
    return tuple(sorted(names))


def _images(folder):
    """The pictures of a folder, by name."""
    found = [p for p in folder.iterdir() if p.suffix.lower() in SUFFIXES]
    found = sorted(p for p in found if not p.name.startswith("."))
    if not found:
        raise DataError(
            f"{folder} has no images ({', '.join(SUFFIXES)}); get them again, or "
            "remove the class from every domain"
        )
    return found


def _count(which, counts, K):
    """Warn where the data set is not the one of the papers."""
    layout = LAYOUTS[which]
    odd = [
        f"{domain} has {n:,} images, not {' or '.join(map(str, np.atleast_1d(usual)))}"
        for (domain, usual), n in zip(layout.images.items(), counts)
        if n not in np.atleast_1d(usual)
    ]
    odd += [f"it has {K} classes, not {layout.K}"] if K != layout.K else []
    if odd:
        warnings.warn(
            f"{which} is not the data set of the papers: {'; '.join(odd)}. Mind that "
            f"{layout.trap}",
            stacklevel=4,
        )
