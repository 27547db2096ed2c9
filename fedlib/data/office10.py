"""Office-Caltech-10 (Gong et al., CVPR 2012): ten kinds of office objects photographed
at four sites. Each site is a client.

Files, below the data folder, as distributed with FedBN (Li et al., ICLR 2021):

    office_caltech_10/<site>/<class>/*.jpg    amazon 958, caltech 1123, dslr 157,
                                              webcam 295 images
    office_caltech_10/<site>_train.pkl        the official lists, if present
    office_caltech_10/<site>_test.pkl

or the archive `office_caltech_10_dataset.zip`, which is then unpacked. No official
checksum is published for these files, so the loader verifies what can be verified:
the number of images per site, and that the lists name each image once. The lists are
pickles: they are read by an unpickler that can build arrays, lists and strings and
nothing else.
"""

from __future__ import annotations

from pathlib import PurePosixPath

import numpy as np
import torch
from PIL import Image

from ..core.pool import Pool
from ..core.ranges import check_bytes, check_whole
from .archive import DataError, data_root, extract
from .pickled import read_arrays

FOLDER, ARCHIVE = "office_caltech_10", "office_caltech_10_dataset.zip"
WHERE = (
    "the pre-processed office-caltech10 data linked from the README of "
    "github.com/med-air/FedBN"
)
SITES = ("amazon", "caltech", "dslr", "webcam")
IMAGES = {"amazon": 958, "caltech": 1123, "dslr": 157, "webcam": 295}
CLASSES = (
    "back_pack",
    "bike",
    "calculator",
    "headphones",
    "keyboard",
    "laptop_computer",
    "monitor",
    "mouse",
    "mug",
    "projector",
)


def office10(root=None, size: int = 256) -> Pool:
    """All images as a Pool whose owner is the site: x [2533, 3, size, size] in [0, 1],
    y [2533].

    root  data folder (default: environment variable FEDLIB_DATA, else `data`)
    size  pixels per side after resizing (bilinear); the memory is 0.5 GB at 128 and
          2 GB at 256

    The rows of a site are its official training list and then its official test list,
    both in the order of the file, and Pool.test holds the rows of the test lists.
    Without the lists the rows are sorted by path and Pool.test is None.
    """
    check_whole("office10: size", size, 1, 10**5, " pixels per side")
    check_bytes(f"office10: size = {size}", sum(IMAGES.values()) * 3 * size**2 * 4)
    folder = _folder(data_root(root))
    paths, labels, owner, test = [], [], [], []
    for site, name in enumerate(SITES):
        found = _images(folder, name)
        lists = [_list(folder, name, part, found) for part in ("train", "test")]
        if None not in lists:
            train, held_out = lists
            if sorted(train + held_out) != sorted(found):
                raise DataError(
                    f"{folder}: the lists {name}_train.pkl and {name}_test.pkl do not "
                    f"name each image of {name} exactly once; get {WHERE} again"
                )
            test += range(len(paths) + len(train), len(paths) + len(found))
            found = train + held_out
        elif lists != [None, None]:
            raise DataError(
                f"{folder} has only one of {name}_train.pkl and {name}_test.pkl; "
                "provide both or neither"
            )
        paths += found
        labels += [CLASSES.index(p.split("/")[1]) for p in found]
        owner += [site] * len(found)
    if test and len({owner[r] for r in test}) < len(SITES):
        raise DataError(
            f"{folder} has official lists for some sites only; provide those of all "
            "sites or none"
        )
    x = torch.empty(len(paths), 3, size, size)
    for r, path in enumerate(paths):
        x[r] = read_image(folder / path, size)
    return Pool(
        name="Office-Caltech-10",
        x=x,
        y=torch.tensor(labels),
        K=10,
        kind="real",
        owner=torch.tensor(owner),
        owners=SITES,
        test=torch.tensor(test) if test else None,
    )


def read_image(path, size):
    """One picture as [3, size, size] float32 in [0, 1]; grey ones get three equal
    channels.
    """
    try:
        with Image.open(path) as picture:
            picture = picture.convert("RGB").resize(
                (size, size), Image.Resampling.BILINEAR
            )
    except (OSError, SyntaxError) as error:
        raise DataError(
            f"{path} is damaged or cut short ({error}); get {WHERE} again"
        ) from error
    return torch.from_numpy(np.array(picture)).permute(2, 0, 1).float().div_(255)


def _folder(root):
    folder, packed = root / FOLDER, root / ARCHIVE
    if not folder.is_dir():
        if not packed.is_file():
            raise DataError(
                f"Office-Caltech-10 is not in {root}: get {WHERE} ({ARCHIVE}) and put "
                f"it, or the folder {FOLDER} from it, into {root}"
            )
        extract(packed, root)
        if not folder.is_dir():
            raise DataError(
                f"{packed} does not hold a folder {FOLDER}; get {WHERE} again"
            )
    return folder


def _images(folder, site):
    """Paths "site/class/file" of a site, sorted, with their number verified."""
    strangers = [
        p.name
        for p in sorted((folder / site).glob("*"))
        if p.is_dir() and p.name not in CLASSES
    ]
    if strangers:
        raise DataError(
            f"{folder / site} has the folder {strangers[0]!r}; the classes are "
            f"{', '.join(CLASSES)}"
        )
    found = sorted(
        p.relative_to(folder).as_posix()
        for c in CLASSES
        for p in (folder / site / c).glob("*.jpg")
    )
    if len(found) != IMAGES[site]:
        raise DataError(
            f"{folder / site} has {len(found)} images, not {IMAGES[site]}; get "
            f"{WHERE} again"
        )
    return found


def _list(folder, site, part, found):
    """The paths of one official list, or None when there is no such file."""
    file = folder / f"{site}_{part}.pkl"
    if not file.is_file():
        return None
    content = read_arrays(file, encoding="latin1")
    try:
        paths, labels = content
        tails = [PurePosixPath(str(p).replace("\\", "/")).parts[-3:] for p in paths]
        good = all(str(c) == t[1] for c, t in zip(labels, tails, strict=True))
    except (TypeError, ValueError, IndexError):
        good = False
    if not good:
        raise DataError(
            f"{file} is not an official list: expected two lists of equal length, "
            "paths .../site/class/file.jpg and the class of each"
        )
    names, known = ["/".join(t) for t in tails], set(found)
    missing = [n for n in names if n not in known]
    if missing:
        raise DataError(f"{file} names {missing[0]}, which is not in {folder}")
    return names
