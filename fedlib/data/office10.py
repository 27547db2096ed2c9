"""Office-Caltech-10 (Gong et al., CVPR 2012): ten kinds of office objects photographed
at four sites. Each site is a client.

Files, below the data folder, as distributed with FedBN (Li et al., ICLR 2021):

    office_caltech_10/<site>/<class>/*.jpg    amazon 958, caltech 1123, dslr 157,
                                              webcam 295 images
    office_caltech_10/<site>_train.pkl        the official lists, if present
    office_caltech_10/<site>_test.pkl

or the archive `office_caltech_10_dataset.zip`, which is then unpacked. No official
checksum is published, so the loader verifies the number of images per site, and that
the lists name each image once. The lists are pickles, read by `files.read_arrays`.
"""

from __future__ import annotations

from pathlib import PurePosixPath

import torch

from ..core.pool import Pool
from ..core.ranges import check_bytes
from .files import DataError, data_root, read_arrays, read_image, unpacked
from .settings import settings

FOLDER, ARCHIVE = "office_caltech_10", "office_caltech_10_dataset.zip"
WHERE = "the office-caltech10 data that the README of github.com/med-air/FedBN links"
IMAGES = {"amazon": 958, "caltech": 1123, "dslr": 157, "webcam": 295}
SITES = tuple(IMAGES)
CLASSES = (
    *("back_pack", "bike", "calculator", "headphones", "keyboard"),
    *("laptop_computer", "monitor", "mouse", "mug", "projector"),
)


@settings(size=(1, 10**5))
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
    check_bytes(f"office10: size = {size}", sum(IMAGES.values()) * 3 * size**2 * 4)
    folder = unpacked(
        "Office-Caltech-10", data_root(root), FOLDER, ARCHIVE, where=WHERE
    )
    paths, owner, test = [], [], []
    listed = {
        s: [*folder.glob(f"{s}_train.pkl"), *folder.glob(f"{s}_test.pkl")]
        for s in SITES
    }
    if any(listed.values()) and not all(len(files) == 2 for files in listed.values()):
        raise DataError(
            f"{folder} has some of the lists amazon_train.pkl, amazon_test.pkl "
            "and so on; provide all or none"
        )
    for site, name in enumerate(SITES):
        found = images(folder, name)
        if listed[name]:
            train, held_out = (read_list(file) for file in listed[name])
            if sorted(train + held_out) != sorted(found):
                raise DataError(
                    f"{folder}: {name}_train.pkl and {name}_test.pkl do not name each "
                    f"image of {name} once; get {WHERE} again"
                )
            test += range(len(paths) + len(train), len(paths) + len(found))
            found = train + held_out
        paths += found
        owner += [site] * len(found)
    x = torch.empty(len(paths), 3, size, size)
    for r, path in enumerate(paths):
        x[r] = read_image(folder / path, size)
    y = torch.tensor([CLASSES.index(path.split("/")[1]) for path in paths])
    test = torch.tensor(test) if test else None
    return Pool("Office-Caltech-10", x, y, 10, "real", torch.tensor(owner), SITES, test)


def images(folder, site):
    """Paths "site/class/file" of a site, sorted, their number verified."""
    at = [p for c in CLASSES for p in (folder / site / c).glob("*.jpg")]
    if len(at) != IMAGES[site]:
        raise DataError(
            f"{folder / site} has {len(at)} images in the ten classes, not "
            f"{IMAGES[site]}; get {WHERE} again"
        )
    return sorted(p.relative_to(folder).as_posix() for p in at)


def read_list(file):
    """The paths "site/class/file" of an official list: paths, and the class of each."""
    try:
        paths, labels = read_arrays(file, encoding="latin1")
        tails = [PurePosixPath(str(p).replace("\\", "/")).parts[-3:] for p in paths]
        good = [str(label) for label in labels] == [word for _, word, _ in tails]
    except (TypeError, ValueError) as e:
        raise DataError(f"{file} is no official list ({e}); get {WHERE} again") from e
    if not good:
        raise DataError(f"{file} gives a path another class than its folder's")
    return ["/".join(tail) for tail in tails]
