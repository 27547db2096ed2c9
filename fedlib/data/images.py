"""Photographs and digits from the files that their authors published: MNIST, CIFAR-10
and CIFAR-100, Tiny-ImageNet, Office-Caltech-10, and the five sets of DomainBed.

Files, below the data folder, as distributed; of Tiny-ImageNet and Office the zip beside
them will do, which is then unpacked:

    MNIST/raw/                train- and t10k-images-idx3-ubyte, -labels-idx1-ubyte
    cifar-10-batches-py/      data_batch_1 ... data_batch_5, test_batch
    cifar-100-python/         train, test, of which the fine labels are read
    tiny-imagenet-200/        wnids.txt: the classes; train/<class>/images/*.JPEG;
                              val/images/*.JPEG and val/val_annotations.txt
    office_caltech_10/        <site>/<class>/*.jpg; the lists <site>_train.pkl and
                              <site>_test.pkl, if there are any
    PACS/, VLCS/, office_home/, terra_incognita/, domain_net/
                              <domain>/<class>/<image>, as DomainBed's script leaves
                              them (Gulrajani and Lopez-Paz, ICLR 2021)

torchvision reads and checks MNIST and CIFAR. Of the others nobody publishes checksums
of files: classes, domains and the number of images are compared with the published
ones. MNIST: LeCun, Cortes and Burges, 1998. CIFAR: Krizhevsky, 2009. Tiny-ImageNet:
Stanford course CS231N, 2015. Office-Caltech-10: Gong et al., CVPR 2012, as distributed
with FedBN (Li et al., ICLR 2021).
"""

import warnings
from collections import Counter
from pathlib import PurePosixPath
from typing import Annotated, Literal

import torch
from PIL import ImageFile
from pydantic import Field

from ..core.errors import check_bytes, refuse_if, short
from ..core.pool import Pool
from ..nets.layers import ensure_torchvision
from ..nets.towers import load
from .domains import PRESETS
from .files import Archive, DataError, bring, data_root, read_image, read_pickle
from .settings import Count, Different, named, settings

Split = Literal["train", "test", "all", "both"]
Normalise = bool | Literal["half"]
Side = Annotated[int, Field(ge=1, le=10**5)]
TINY = Archive(  # the md5 that public loaders agree on
    "tiny-imagenet-200",
    "https://cs231n.stanford.edu/tiny-imagenet-200.zip",
    "90528d7ca1a48142e341f4ef8d21d0de",
)
OFFICE = Archive(  # the README links it, and may not be passed by
    "office_caltech_10", "github.com/med-air/FedBN/office_caltech_10_dataset.zip"
)
MOMENTS = {  # classes: mean and deviation per channel of the training images
    10: ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    100: ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
    200: ((0.4802, 0.4481, 0.3975), (0.2770, 0.2691, 0.2821)),
}
TINY_K, TINY_TRAIN, TINY_VAL = 200, 500, 50  # classes, images of each
IMAGES = {"amazon": 958, "caltech": 1123, "dslr": 157, "webcam": 295}  # of a site
CLASSES = tuple(
    "back_pack bike calculator headphones keyboard laptop_computer monitor mouse mug "
    "projector".split()
)


# ---------------------------------------------------------------- one list of images
@settings
def mnist(root=None, split: Split = "both") -> Pool:
    """MNIST as a Pool: x [N, 1, 28, 28] in [0, 1], y [N]; see `cifar10`."""
    x, y, test = official("MNIST", root, split, 10)
    x = x[:, None].float().div_(255)
    return Pool("MNIST", x, y, 10, "real", test=test)


@settings
def cifar10(root=None, split: Split = "train", normalise: Normalise = True) -> Pool:
    """CIFAR-10 as a Pool: x [N, 3, 32, 32], y [N]; N = 50,000 ("train"), 10,000
    ("test") or 60,000 ("all" and "both").

    root       data folder (default: environment variable FEDLIB_DATA, else `data`)
    split      "all" and "both" have the training images, then the test images. With
               "both" these keep their role: Pool.test lists their rows. With "all"
               Pool.test is None, and each client cuts test rows of its own
    normalise  True: subtract the mean and divide by the standard deviation per channel;
               False leaves x in [0, 1]; "half": (x - 0.5) / 0.5, so x in [-1, 1]

    x takes 0.6 GB of memory for the training images, 0.7 GB for all.
    """
    return cifar(10, root, split, normalise)


@settings
def cifar100(root=None, split: Split = "train", normalise: Normalise = True) -> Pool:
    """CIFAR-100 as a Pool: x [N, 3, 32, 32], y [N]; see `cifar10`."""
    return cifar(100, root, split, normalise)


def cifar(K, root, split, normalise):
    """The data set of the CIFAR page with K classes; arguments as for `cifar10`."""
    x, y, test = official(f"CIFAR{K}", root, split, K)
    x = scale(x.permute(0, 3, 1, 2), normalise, *MOMENTS[K])
    return Pool(f"CIFAR-{K}", x, y, K, "real", test=test)


def torchvision():
    """The data sets of torchvision, which can be imported beside any torch."""
    ensure_torchvision()
    from torchvision import datasets

    return datasets


def official(name, root, split, K, download=False):
    """Images [N, ...] uint8 and classes [N] of a data set of torchvision, training
    images first; and the rows of the test images, or None, see `cifar10`.
    """
    source, root = getattr(torchvision(), name), data_root(root)

    def read(train):
        try:
            found = source(root, train, download=download)
            x, y = torch.as_tensor(found.data), torch.as_tensor(found.targets)
            if len(x) != len(y) or not 0 <= y.min() <= y.max() < K:
                raise ValueError(f"{len(x)} images, {len(y)} labels up to {y.max()}")
        except Exception as e:  # a damaged file can raise nearly anything
            how = f"`python -m fedlib data get {name.lower()}` gets its files"
            raise DataError(f"{name} in {root}: {e or e!r}; {how}") from e
        return x, y

    return together(split, read)


def together(split, read):
    """What read(train=True) and read(train=False) give, x and y, one after the other as
    a split says; and the rows of the second, or None, see `cifar10`.
    """
    wanted = {"train": [True], "test": [False]}.get(split, [True, False])
    x, y = zip(*map(read, wanted))
    test = torch.arange(len(y[0]), len(y[0]) + len(y[-1])) if split == "both" else None
    return torch.cat(x), torch.cat(y), test


def scale(x, normalise, mean, std):
    """Images x [N, 3, height, width] uint8 as float32: see `normalise` of `cifar10`."""
    x = x.contiguous().float().div_(255)
    if not normalise:
        return x
    mean, std = ((0.5,) * 3, (0.5,) * 3) if normalise == "half" else (mean, std)
    mean, std = (torch.tensor(v)[:, None, None] for v in (mean, std))
    return x.sub_(mean).div_(std)


@settings
def tiny_imagenet(
    root=None, split: Split = "both", normalise: Normalise = True
) -> Pool:
    """Tiny-ImageNet-200 as a Pool: x [N, 3, 64, 64], y [N] in the order of wnids.txt;
    arguments as for `cifar10`. "train": 100,000 images; "test": the 10,000 validation
    images, since the labels of the test images were never published.

    Training rows go class by class, validation rows in the order of their annotations.
    All images take 5.4 GB of memory.
    """
    folder = bring(TINY, data_root(root))
    try:
        names = (folder / "wnids.txt").read_text().split()
        notes = (folder / "val" / "val_annotations.txt").read_text().splitlines()
        notes = [line.split()[:2] for line in notes]
        held_out = [(folder / "val/images" / p, names.index(w)) for p, w in notes]
    except (OSError, ValueError) as e:
        raise again(folder, e) from e
    at = [folder / "train" / name / "images" for name in names]
    train = [(p, k) for k, own in enumerate(at) for p in sorted(own.glob("*.JPEG"))]
    for rows, n in ((train, TINY_TRAIN), (held_out, TINY_VAL)):
        count = Counter(dict(rows).values())
        if count != dict.fromkeys(range(TINY_K), n):
            raise again(folder, f"not {n} images of {TINY_K} classes: {count}")

    def read(official):
        paths, y = zip(*(train if official else held_out))
        return pictures(paths, 64), torch.tensor(y)

    x, y, test = together(split, read)
    x = scale(x, normalise, *MOMENTS[200])
    return Pool("Tiny-ImageNet", x, y, TINY_K, "real", test=test)


def again(folder, why):
    """The DataError of a folder that is not as it was published."""
    return DataError(f"{folder}: {why}; delete it and get it again")


def pictures(paths, size):
    """Pictures as [N, 3, size, size] uint8."""
    x = torch.empty(len(paths), 3, size, size, dtype=torch.uint8)
    for row, path in zip(x, paths):
        row.copy_(read_image(path, size))
    return x


# ---------------------------------------------------------------- sites and domains
@settings
def office10(root=None, size: Side = 256) -> Pool:
    """Office-Caltech-10 as a Pool whose owner is the site: x [2533, 3, size, size] in
    [0, 1], y [2533].

    root: as for `cifar10`; size: pixels per side after resizing (bilinear); the memory
    is 0.5 GB at 128 and 2 GB at 256.

    The rows of a site are its official training list and then its official test list,
    both in the order of the file, and Pool.test holds the rows of the test lists.
    Without the lists the rows are sorted by path and Pool.test is None.
    """
    check_bytes(f"office10: size = {size}", sum(IMAGES.values()) * 3 * size**2 * 4)
    folder = bring(OFFICE, data_root(root))
    listed, paths, owner, test = any(folder.glob("*.pkl")), [], [], []
    for k, (site, n) in enumerate(IMAGES.items()):
        found = [p for c in CLASSES for p in (folder / site / c).glob("*.jpg")]
        found = sorted(p.relative_to(folder).as_posix() for p in found)
        if len(found) != n:
            raise again(folder, f"{site} has {len(found)} images, not {n}")
        if listed:
            lists = (folder / f"{site}_{part}.pkl" for part in ("train", "test"))
            train, held_out = map(read_list, lists)
            if sorted(train + held_out) != found:
                raise again(folder, f"the lists of {site} name not each image once")
            found = train + held_out
            test += range(len(paths) + len(train), len(paths) + n)
        paths, owner = paths + found, owner + [k] * n
    x = pictures([folder / path for path in paths], size).float().div_(255)
    y = torch.tensor([CLASSES.index(path.split("/")[1]) for path in paths])
    of = "Office-Caltech-10", x, y, 10, "real", torch.tensor(owner), tuple(IMAGES)
    return Pool(*of, test=torch.tensor(test) if test else None)


def read_list(file):
    """The paths "site/class/file" of an official list: paths, and the class of each."""
    try:
        paths, labels = read_pickle(file)
        tails = [PurePosixPath(str(p).replace("\\", "/")).parts[-3:] for p in paths]
        if [str(label) for label in labels] != [word for _, word, _ in tails]:
            raise ValueError("a path has another class than its folder's")
    except (TypeError, ValueError) as e:
        raise DataError(f"{file} is no official list ({e}); get it again") from e
    return ["/".join(tail) for tail in tails]


# of DomainBed: folder, number of classes, and of images, in one release or several
LAYOUTS = {
    "PACS": ("PACS", 7, 9991),
    "VLCS": ("VLCS", 5, 10729),
    "OfficeHome": ("office_home", 65, 15588),
    "TerraIncognita": ("terra_incognita", 10, 24788, 24330),
    "DomainNet": ("domain_net", 345, 586575),
}
SCRIPT = "domainbed/scripts/download.py of github.com/facebookresearch/DomainBed"


@settings
def domainbed(
    which: Annotated[str, named(LAYOUTS, "data set")],
    root=None,
    size: Side = 224,
    classes: Different[str] | None = None,
) -> Pool:
    """PACS, VLCS, OfficeHome, TerraIncognita or DomainNet as a Pool whose owner is the
    domain: x [N, 3, size, size] in [0, 1], y [N].

    root: as for `cifar10`; size: pixels per side after resizing (bilinear, without
    keeping the proportions); classes: the names of some, None: all.

    Rows go by domain, class and file name, all sorted; y counts Pool.classes, the
    sorted names. Images that are grey or have a palette become RGB; one that is cut
    short is used as far as it goes, as in DomainBed; of data sets of another number of
    images a warning says so. Memory: 0.6 MB per image at 224 pixels, so 6 GB for PACS;
    DomainNet fits with `classes` or a smaller `size` only.
    """
    (folder, K, *releases), owners = LAYOUTS[which], tuple(PRESETS[which].domains)
    top = data_root(root) / folder
    try:
        found = [torchvision().ImageFolder(top / owner) for owner in owners]
    except OSError as e:
        raise DataError(f"{which}: {e}: run {SCRIPT} with {top.parent}") from e
    names = sorted(classes or found[0].classes)
    for f in found:
        odd = {*names} - {*f.classes} or (classes is None and {*f.classes} - {*names})
        if odd:
            raise DataError(f"{which}: {odd} is not in every domain, see {f.root}")
    rows = [
        (path, names.index(f.classes[k]), d)
        for d, f in enumerate(found)
        for path, k in f.samples
        if f.classes[k] in names
    ]
    n = len(rows)
    if classes is None and (n not in releases or len(names) != K):
        warnings.warn(
            f"{which} is not the data set of the papers: {n:,} images of {len(names)} "
            f"classes, not {releases[0]:,} of {K}",
            stacklevel=3,
        )
    check_bytes(f"{which}: {n:,} images", n * 3 * size * size * 4)
    paths, y, owner = zip(*rows)
    ImageFile.LOAD_TRUNCATED_IMAGES = True
    try:
        x = pictures(paths, size)
    finally:
        ImageFile.LOAD_TRUNCATED_IMAGES = False
    y, owner = torch.tensor(y), torch.tensor(owner)
    of = which, x.float().div_(255), y, len(names), "real", owner, owners
    return Pool(*of, classes=tuple(names))


# ---------------------------------------------------------------- seen by a tower
@settings
@torch.no_grad()
def features(data: Pool, model, chunk: Count = 500) -> Pool:
    """The images of another source, seen once by the image tower: x [N, d] float32, not
    normalised; the rest as it was.

    data   a Pool of images [N, 1 or 3, H, W] in [0, 1]; in the description of a task
           that of their source, {"name": "domains", "preset": "PACS", ...}
    model  two towers, or what `fedlib.nets.towers.load` reads: the stand-in's file, or
           a folder for open_clip
    chunk  images at a time

    Each image is seen as it is: the tower is frozen and there is no augmentation. With
    a stand-in of CLIP the pool is one, too.
    """
    pool = data
    images = isinstance(pool, Pool) and pool.x.dim() == 4 and pool.x.shape[1] in (1, 3)
    wanted = "give images [N, 1 or 3, H, W], or the description of their source"
    refuse_if(not images, f"data = {short(pool)}: {wanted}")
    towers = load(model)
    images = (x.expand(-1, 3, -1, -1) for x in pool.x.split(chunk))
    x = torch.cat([towers.encode_image(towers.preprocess(x)) for x in images])
    kind = pool.kind if towers.kind == "real" else towers.kind
    return pool._replace(name=f"{pool.name} (CLIP features)", x=x, kind=kind)
