"""Tiny-ImageNet-200 (Stanford course CS231N, 2015): 110,000 labelled photographs of
64 x 64 pixels, 200 classes of ImageNet.

Files, below the data folder, as distributed:

    tiny-imagenet-200/wnids.txt                   the classes, one WordNet number a line
    tiny-imagenet-200/train/<wnid>/images/*.JPEG  500 training images of each class
    tiny-imagenet-200/val/images/*.JPEG           10,000 validation images
    tiny-imagenet-200/val/val_annotations.txt     the class of each, 50 of every class

or the archive `tiny-imagenet-200.zip` (248 MB), which is then unpacked. The labels of
its 10,000 test images were never published, so the folder `test` is not read and the
validation images serve as the test list. No checksum is published either: that of the
archive is the one that public loaders of the data set agree on, and in the folder the
loader verifies the classes, the number of images of each, and that the annotations name
every validation image once.
"""

from __future__ import annotations

from collections import Counter

import torch

from ..core.pool import Pool
from .cifar import NORMALISE, SPLITS, scale
from .files import DataError, data_root, read_image, unpacked
from .settings import settings

URL = "https://cs231n.stanford.edu/tiny-imagenet-200.zip"
MD5 = "90528d7ca1a48142e341f4ef8d21d0de"
FOLDER, ARCHIVE = "tiny-imagenet-200", "tiny-imagenet-200.zip"
K, PER_CLASS = 200, {"train": 500, "val": 50}  # images of each class
# per channel, of the training images
MEAN, STD = (0.4802, 0.4481, 0.3975), (0.2770, 0.2691, 0.2821)


@settings(split=SPLITS, normalise=NORMALISE)
def tiny_imagenet(
    root=None, split: str = "both", normalise: bool | str = True, download: bool = False
) -> Pool:
    """The images as a Pool: x [N, 3, 64, 64], y [N] in the order of wnids.txt; grey
    images have three equal channels.

    root       data folder (default: environment variable FEDLIB_DATA, else `data`)
    split      "both": 100,000 training images, then 10,000 validation images, whose
               rows Pool.test lists; "train" or "test" (the validation images) alone;
               "all": as "both" but Pool.test is None
    normalise  True: subtract the mean and divide by the standard deviation per channel;
               False leaves x in [0, 1]; "half": (x - 0.5) / 0.5, so x in [-1, 1]
    download   fetch the archive (248 MB) when the files are not there

    Training rows go class by class, validation rows in the order of their annotations.
    All images take 5.4 GB of memory (110,000 x 3 x 64 x 64 numbers of 4 bytes); they
    are decoded and normalised in place, so little is needed on top.
    """
    how = {"url": URL, "md5": MD5, "download": download}
    folder = unpacked("Tiny-ImageNet", data_root(root), FOLDER, ARCHIVE, **how)
    classes = classes_of(folder)
    train = training(folder, classes) if split != "test" else []
    rows = train + (validation(folder, classes) if split != "train" else [])
    x, y = torch.empty(len(rows), 3, 64, 64), torch.tensor([k for _, k in rows])
    for r, (path, _) in enumerate(rows):
        image = read_image(path)
        if image.shape != x[r].shape:
            raise again(f"{path} has pixels {list(image.shape[1:])}, not [64, 64]")
        x[r] = image
    x = scale(x, normalise, MEAN, STD)
    test = torch.arange(len(train), len(rows)) if split == "both" else None
    return Pool("Tiny-ImageNet", x, y, K, "real", test=test)


def again(what):
    """The DataError of a folder that is not as it was published."""
    return DataError(f"{what}; delete {FOLDER} and unpack {ARCHIVE} again ({URL})")


def lines(file):
    """The lines of a text file, cut at tabs or spaces."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise again(f"{file} cannot be read ({e})") from e
    return [line.split() for line in text.splitlines() if line.strip()]


def classes_of(folder):
    """{WordNet number: class}, in the order of wnids.txt."""
    file = folder / "wnids.txt"
    names = [line[0] for line in lines(file)]
    if len(names) != K or len(set(names)) != K:
        raise again(f"{file} has {len(set(names))} different classes, not {K}")
    there = {p.name for p in (folder / "train").glob("*") if p.is_dir()}
    if odd := sorted(there ^ set(names)):
        raise again(f"{file} and the folders of {folder / 'train'} differ in {odd[0]}")
    return {name: k for k, name in enumerate(names)}


def training(folder, classes):
    """(path, class) of the training images, class by class."""
    rows = []
    for name, k in classes.items():
        at = folder / "train" / name / "images"
        found = sorted(at.glob("*.JPEG"))
        if len(found) != PER_CLASS["train"]:
            raise again(f"{at} has {len(found)} images, not {PER_CLASS['train']}")
        rows += [(path, k) for path in found]
    return rows


def validation(folder, classes):
    """(path, class) of the validation images, in the order of the annotations."""
    at, images, rows = folder / "val" / "val_annotations.txt", folder / "val/images", []
    left = {p.name for p in images.glob("*.JPEG")}
    for i, (name, wnid, *_) in enumerate(lines(at), 1):
        if wnid not in classes or name not in left:
            raise again(
                f"{at}, line {i}: {wnid} is no class of wnids.txt, or {name} is not in "
                f"{images} or was named before"
            )
        left.remove(name)
        rows.append((images / name, classes[wnid]))
    count = Counter(k for _, k in rows)
    if wrong := [w for w, k in classes.items() if count[k] != PER_CLASS["val"]]:
        n, want = count[classes[wrong[0]]], PER_CLASS["val"]
        raise again(f"{at} gives {n} images to the class {wrong[0]}, not {want}")
    return rows
