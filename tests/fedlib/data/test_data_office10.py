"""The Office-Caltech-10 loader on fabricated trees in the official layout."""

import os
import pickle
import zipfile

import numpy as np
import pytest
import torch
from PIL import Image

from fedlib.data import office10
from fedlib.data.archive import DataError

HAVE = {"amazon": 7, "caltech": 5, "dslr": 3, "webcam": 4}
KEEP = {"amazon": 2, "caltech": 1, "dslr": 1, "webcam": 1}  # test images


def paint(path, grey):
    path.parent.mkdir(parents=True, exist_ok=True)
    picture = (
        np.full((12, 9), grey, np.uint8)
        if grey % 2
        else np.full((12, 9, 3), (grey, 40, 200), np.uint8)
    )
    Image.fromarray(picture).save(path, quality=95)


@pytest.fixture
def root(tmp_path, monkeypatch):
    """Images whose brightness is known, and shuffled official lists."""
    monkeypatch.setattr(office10, "IMAGES", HAVE)
    folder, grey = tmp_path / office10.FOLDER, 10
    for site, n in HAVE.items():
        for i in range(n):
            paint(
                folder / site / office10.CLASSES[(3 * i) % 10] / f"frame_{i:04d}.jpg",
                grey,
            )
            grey += 9
    return tmp_path


def listed(root, form="lists", protocol=4):
    """Write the lists; returns the paths of each site: training list, then test list."""
    rng, order = np.random.default_rng(1), {}
    for site in HAVE:
        folder = root / office10.FOLDER
        paths = [
            p.relative_to(folder).as_posix()
            for p in sorted((folder / site).rglob("*.jpg"))
        ]
        order[site] = [paths[i] for i in rng.permutation(len(paths))]
        cut = len(paths) - KEEP[site]
        for part, some in (("train", order[site][:cut]), ("test", order[site][cut:])):
            content = [
                [f"{office10.FOLDER}/{p}" for p in some],
                [p.split("/")[1] for p in some],
            ]
            content = {
                "lists": content,
                "array": np.array(content),
                "objects": np.array(content, dtype=object),
                "tuple of arrays": tuple(map(np.array, content)),
            }[form]
            (folder / f"{site}_{part}.pkl").write_bytes(pickle.dumps(content, protocol))
    return order


def test_without_lists(root):
    pool = office10.office10(root, size=16)
    assert (
        pool.x.shape == (19, 3, 16, 16)
        and pool.x.dtype == torch.float32
        and pool.test is None
    )
    assert (
        torch.bincount(pool.owner).tolist() == list(HAVE.values())
        and pool.owners == office10.SITES
    )
    assert (pool.K, pool.kind) == (10, "real") and pool.y.dtype == torch.int64
    folder = root / office10.FOLDER
    paths = [
        p
        for site in office10.SITES
        for c in office10.CLASSES
        for p in sorted((folder / site / c).glob("*.jpg"))
    ]
    assert pool.y.tolist() == [office10.CLASSES.index(p.parent.name) for p in paths]
    for x, path in zip(pool.x, paths):
        with Image.open(path) as picture:
            mean = np.asarray(picture.convert("RGB"), dtype=float).mean((0, 1)) / 255
        # the right picture, red first, in [0, 1]
        assert np.allclose(x.mean((1, 2)), mean, atol=0.01)
    assert pool.test is None


@pytest.mark.parametrize(
    "form, protocol",
    [("lists", 4), ("lists", 2), ("array", 2), ("objects", 4), ("tuple of arrays", 4)],
)
def test_official_lists(root, form, protocol):
    plain = office10.office10(root, size=8)
    order = listed(root, form, protocol)
    pool = office10.office10(root, size=8)
    paths = [p for site in office10.SITES for p in order[site]]
    assert pool.y.tolist() == [office10.CLASSES.index(p.split("/")[1]) for p in paths]
    held_out = torch.zeros(len(pool.y), dtype=torch.bool)
    held_out[pool.test] = True
    for s, site in enumerate(HAVE):
        own = (pool.owner == s).nonzero().flatten()
        # the training list, then the test list
        left = HAVE[site] - KEEP[site]
        assert held_out[own].tolist() == [False] * left + [True] * KEEP[site]
        mine, theirs = pool.x[own].flatten(1), plain.x[plain.owner == s].flatten(1)
        # the same pictures
        assert torch.equal(mine.unique(dim=0), theirs.unique(dim=0))
    first = [sorted(order["amazon"]).index(p) for p in order["amazon"]]
    assert torch.equal(
        pool.x[pool.owner == 0], plain.x[[sorted_rows(plain, root, i) for i in first]]
    )


def sorted_rows(plain, root, i):
    """Row of amazon's i-th path (sorted by path) in the pool without lists (sorted by
    class, then path).
    """
    folder = root / office10.FOLDER / "amazon"
    by_class = [p for c in office10.CLASSES for p in sorted((folder / c).glob("*.jpg"))]
    return by_class.index(sorted(by_class)[i])


def test_archive(root, tmp_path_factory):
    fresh = tmp_path_factory.mktemp("fresh")
    with zipfile.ZipFile(fresh / office10.ARCHIVE, "w") as pack:
        for p in sorted((root / office10.FOLDER).rglob("*.jpg")):
            pack.write(p, p.relative_to(root).as_posix())
    assert torch.equal(office10.office10(fresh, 8).x, office10.office10(root, 8).x)


def lines(root, change):
    """Change amazon's training list."""
    listed(root)
    file = root / office10.FOLDER / "amazon_train.pkl"
    file.write_bytes(pickle.dumps(change(*pickle.loads(file.read_bytes()))))


@pytest.mark.parametrize(
    "harm, says",
    [
        (
            lambda r: (
                r / office10.FOLDER / "dslr" / "back_pack" / "frame_0000.jpg"
            ).unlink(),
            "dslr has 2 images, not 3",
        ),
        (
            lambda r: (r / office10.FOLDER / "dslr" / "backpack").mkdir(),
            "has the folder 'backpack'; the classes are back_pack",
        ),
        (
            lambda r: next((r / office10.FOLDER / "dslr").rglob("*.jpg")).write_bytes(
                b"\xff\xd8\xff no"
            ),
            "damaged or cut short",
        ),
        (
            lambda r: lines(r, lambda p, c: [p[:-1], c[:-1]]),
            "do not name each image of amazon exactly once",
        ),
        (
            lambda r: lines(r, lambda p, c: [p + p[:1], c + c[:1]]),
            "do not name each image of amazon exactly once",
        ),
        (
            lambda r: lines(
                r, lambda p, c: [["amazon/mug/none.jpg", *p[1:]], ["mug", *c[1:]]]
            ),
            "none.jpg, which is not in",
        ),
        (
            lambda r: lines(
                r, lambda p, c: [["../../../etc/mug/pw", *p[1:]], ["mug", *c[1:]]]
            ),
            "etc/mug/pw, which is not in",
        ),
        (
            lambda r: lines(r, lambda p, c: [p, c[::-1] + ["mug"]]),
            "is not an official list",
        ),
        (lambda r: lines(r, lambda p, c: 3), "is not an official list"),
        (lambda r: lines(r, lambda p, c: [os.path.join]), "asks for posixpath.join"),
        (
            lambda r: (listed(r), (r / office10.FOLDER / "amazon_test.pkl").unlink()),
            "only one of amazon_train.pkl and",
        ),
        (
            lambda r: (
                listed(r),
                [
                    (r / office10.FOLDER / f"dslr_{p}.pkl").unlink()
                    for p in ("train", "test")
                ],
            ),
            "for some sites only",
        ),
    ],
)
def test_harm_is_named(root, harm, says):
    harm(root)
    with pytest.raises(DataError, match=says):
        office10.office10(root, size=8)


def test_without_the_files_says_what_to_get_and_where(tmp_path):
    with pytest.raises(DataError, match=f"FedBN.*{office10.ARCHIVE}.*into {tmp_path}"):
        office10.office10(tmp_path)


def test_bad_size(root):
    with pytest.raises(ValueError, match="size = 0"):
        office10.office10(root, size=0)
