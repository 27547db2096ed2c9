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
from PIL import Image, ImageFile

from ..core.errors import nearest
from ..core.pool import Pool
from ..core.ranges import check_whole
from .files import DataError, data_root

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".ppm", ".pgm", ".tif", ".tiff", ".webp")
MEMORY = 64e9  # bytes of images that are not refused
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
    if not isinstance(which, str) or which not in LAYOUTS:
        raise ValueError(
            f"which = {which!r}: no such data set{nearest(which, LAYOUTS)} (known: "
            f"{', '.join(LAYOUTS)})"
        )
    check_whole("domainbed: size", size, 1, 10**5, " pixels per side")
    if most is not None:
        check_whole("domainbed: most", most, 1, why=", or None for all")
    if unreadable not in ("refuse", "skip"):
        raise ValueError(f"unreadable = {unreadable!r}: give 'refuse' or 'skip'")
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
    if (need := len(found) * 3 * size * size * 4) > MEMORY:
        raise ValueError(
            f"{which}: {len(found):,} images of {size} x {size} need {need / 1e9:.0f} "
            f"GB of memory, more than {MEMORY / 1e9:.0f} GB; choose fewer with "
            "classes= or most=, or a smaller size="
        )
    x, rows, lost, short = torch.empty(len(found), 3, size, size), [], [], []
    for row in found:
        try:
            x[len(rows)], whole = read_image(row[2], size)
        except DataError as error:
            if unreadable == "refuse":
                raise DataError(
                    f"{error}; get it again, or leave such images out with "
                    "unreadable='skip'"
                ) from error
            lost.append(row[2])
            continue
        rows.append(row)
        short += [] if whole else [row[2]]
    for paths, what in (
        (lost, "cannot be read and are left out"),
        (short, "are cut short and used as far as they go"),
    ):
        if paths:
            warnings.warn(
                f"{which}: {len(paths)} of {len(found)} images {what}; the first is "
                f"{paths[0]}",
                stacklevel=2,
            )
    return Pool(
        name=which,
        x=x[: len(rows)],
        y=torch.tensor([k for _, k, _ in rows], dtype=torch.long),
        K=len(names),
        kind="real",
        owner=torch.tensor([d for d, *_ in rows], dtype=torch.long),
        owners=tuple(layout.images),
        classes=names,
    )


def read_image(path, size):
    """One picture as [3, size, size] float32 in [0, 1], and whether its file is whole.

    DataError when it cannot be opened.
    """
    for whole in (True, False):
        kept = ImageFile.LOAD_TRUNCATED_IMAGES
        ImageFile.LOAD_TRUNCATED_IMAGES = not whole
        try:
            with Image.open(path) as picture:
                # dropped once colours are looked up
                if picture.mode == "P" and "transparency" in picture.info:
                    picture = picture.convert("RGBA")
                picture = picture.convert("RGB")
                picture = picture.resize((size, size), Image.Resampling.BILINEAR)
            x = torch.from_numpy(np.array(picture)).permute(2, 0, 1)
            return x.float().div_(255), whole
        except Exception as error:  # a damaged image can raise nearly anything
            if not whole:
                raise DataError(
                    f"{path} cannot be read as an image ({type(error).__name__}: "
                    f"{error})"
                ) from error
        finally:
            ImageFile.LOAD_TRUNCATED_IMAGES = kept


def _domains(which, root):
    """{domain: its folder}, in sorted order."""
    layout, top = LAYOUTS[which], root / LAYOUTS[which].folder
    if not top.is_dir():
        raise DataError(
            f"{which} is not in {root}: run {SCRIPT} with {root} as its data_dir, "
            f"which makes {top}/<domain>/<class>, or put the folder there yourself. "
            f"Mind that {layout.trap}"
        )
    folders = {}
    for domain in layout.images:
        ways = [top / way for way in (domain, SPELLINGS.get(domain, domain))]
        folder = next((way for way in ways if way.is_dir()), None)
        if folder is None:
            raise DataError(
                f"{top} has no folder {domain!r}; {which} has the domains "
                f"{', '.join(layout.images)}. Mind that {layout.trap}"
            )
        if not any(p.is_dir() for p in folder.iterdir()):
            raise DataError(
                f"{folder} is empty: it should have one folder per class; get "
                f"{which} again"
            )
        folders[domain] = folder
    return folders


def _classes(which, folders, classes):
    """The names of the chosen classes, sorted; every domain must have them."""
    has = {
        domain: {
            p.name
            for p in folder.iterdir()
            if p.is_dir() and not p.name.startswith(".")
        }
        for domain, folder in folders.items()
    }
    names = _chosen(which, sorted(set().union(*has.values())), classes)
    for domain, folder in folders.items():
        missing = [name for name in names if name not in has[domain]]
        if missing:
            others = ", ".join(d for d in has if missing[0] in has[d])
            raise DataError(
                f"{folder} has no class {missing[0]!r}, which {others} have: add it, "
                "or name with classes= those that all domains have"
            )
    return names


def _chosen(which, every, classes):
    if classes is None:
        return tuple(every)
    if not isinstance(classes, (str, list, tuple)):
        check_whole(
            "domainbed: classes", classes, 2, len(every), f"; {which} has {len(every)}"
        )
        return tuple(every[:classes])
    names = [classes] if isinstance(classes, str) else list(classes)
    for name in names:
        if name not in every:
            raise ValueError(
                f"classes: {which} has no class {name!r}{nearest(name, every)}"
            )
    if len(names) < 2 or len(set(names)) < len(names):
        raise ValueError(f"classes = {classes}: give two or more different names")
    return tuple(sorted(names))


def _images(folder):
    found = sorted(
        p
        for p in folder.iterdir()
        if p.suffix.lower() in SUFFIXES and not p.name.startswith(".")
    )
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
        (
            f"{domain} has {n:,} images, not "
            f"{' or '.join(f'{m:,}' for m in np.atleast_1d(usual))}"
        )
        for (domain, usual), n in zip(layout.images.items(), counts)
        if n not in np.atleast_1d(usual)
    ]
    odd += [f"it has {K} classes, not {layout.K}"] if K != layout.K else []
    if odd:
        warnings.warn(
            f"{which} is not the data set of the papers: {'; '.join(odd)}. Mind that "
            f"{layout.trap}",
            stacklevel=3,
        )
