"""The Tiny-ImageNet loader on fabricated trees in the official layout."""

import io
import re
import shutil
import zipfile

import numpy as np
import pytest
import torch
from PIL import Image

from fedlib.data import archive, tasks
from fedlib.data import tiny_imagenet as tiny
from fedlib.data.archive import DataError, checksum

WNIDS = ("n02124075", "n01443537", "n04067472")  # not sorted, as in the official file
TRAIN, VAL = 4, 2  # of each class; officially 500 and 50


def paint(path, value):
    """An odd value gives a grey image."""
    path.parent.mkdir(parents=True, exist_ok=True)
    picture = (
        np.full((64, 64), value, np.uint8)
        if value % 2
        else np.full((64, 64, 3), (value, 40, 200), np.uint8)
    )
    Image.fromarray(picture).save(path, format="JPEG", quality=95)


@pytest.fixture
def root(tmp_path, monkeypatch):
    """Images whose brightness is known: 10, 17, 24 ... for training, class by class,
    then the validation images.
    """
    monkeypatch.setattr(tiny, "K", len(WNIDS))
    monkeypatch.setattr(tiny, "PER_CLASS", {"train": TRAIN, "val": VAL})
    folder, value = tmp_path / tiny.FOLDER, 10
    for wnid in WNIDS:
        for i in range(TRAIN):
            paint(folder / "train" / wnid / "images" / f"{wnid}_{i}.JPEG", value)
            value += 7
        (folder / "train" / wnid / f"{wnid}_boxes.txt").write_text(
            f"{wnid}_0.JPEG\t0\t0\t63\t63\n"
        )
    lines = []
    for i in range(VAL * len(WNIDS)):
        paint(folder / "val" / "images" / f"val_{i}.JPEG", value)
        lines.append(f"val_{i}.JPEG\t{WNIDS[2 - i % 3]}\t0\t32\t44\t62\n")
        value += 7
    (folder / "val" / "val_annotations.txt").write_text("".join(lines))
    (folder / "wnids.txt").write_text("".join(w + "\n" for w in WNIDS))
    (folder / "test" / "images").mkdir(parents=True)
    (folder / "test" / "images" / "test_0.JPEG").write_bytes(b"never read")
    return tmp_path


def test_train_then_validation_images_with_their_rows_listed(root):
    pool = tiny.tiny_imagenet(root, normalise=False)
    n, m = TRAIN * len(WNIDS), VAL * len(WNIDS)
    assert (
        pool.x.shape == (n + m, 3, 64, 64)
        and pool.x.dtype == torch.float32
        and pool.y.dtype == torch.int64
    )
    # order of wnids.txt
    assert (
        pool.y.tolist() == [k for k in range(3) for _ in range(TRAIN)] + [2, 1, 0] * VAL
    )
    assert (
        pool.test.tolist() == list(range(n, n + m)) and pool.test.dtype == torch.int64
    )
    assert (pool.name, pool.K, pool.kind, pool.owner) == (
        "Tiny-ImageNet",
        3,
        "real",
        None,
    )
    for r, x in enumerate(pool.x):  # the right picture, red first, in [0, 1]
        value = 10 + 7 * r
        expected = (value,) * 3 if value % 2 else (value, 40, 200)
        assert (255 * x.mean((1, 2)) - torch.tensor(expected)).abs().max() < 3, r


def test_the_other_splits_are_its_parts(root):
    both, train, test, every = (
        tiny.tiny_imagenet(root, s) for s in ("both", "train", "test", "all")
    )
    n = TRAIN * len(WNIDS)
    assert torch.equal(train.x, both.x[:n]) and torch.equal(train.y, both.y[:n])
    assert torch.equal(test.x, both.x[n:]) and torch.equal(test.y, both.y[n:])
    assert (
        torch.equal(every.x, both.x)
        and torch.equal(every.y, both.y)
        and train.test is test.test is every.test is None
    )


def test_normalises_each_channel(root):
    raw, x, half = (
        tiny.tiny_imagenet(root, normalise=n).x for n in (False, True, "half")
    )
    for c, (mean, std) in enumerate(zip(tiny.MEAN, tiny.STD)):
        assert torch.allclose(x[:, c] * std + mean, raw[:, c], atol=1e-6)
    assert torch.allclose(half, 2 * raw - 1, atol=1e-6) and (x - raw).abs().max() > 0.1


def test_is_a_source_of_tasks(root, monkeypatch):
    monkeypatch.setenv("FEDLIB_DATA", str(root))
    pool = tasks.call(tasks.SOURCES, "data", {"name": "tiny_imagenet"})
    assert torch.equal(pool.x, tiny.tiny_imagenet(root).x) and len(
        pool.test
    ) == VAL * len(WNIDS)


def packed(root, top=tiny.FOLDER):
    """The tree of `root` as the official archive."""
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as pack:
        for p in sorted((root / tiny.FOLDER).rglob("*")):
            if p.is_file():
                pack.write(p, f"{top}/{p.relative_to(root / tiny.FOLDER).as_posix()}")
    return held.getvalue()


def test_unpacks_or_downloads_the_archive(root, tmp_path_factory, monkeypatch):
    content, fresh, other = (
        packed(root),
        tmp_path_factory.mktemp("a"),
        tmp_path_factory.mktemp("b"),
    )
    (fresh / tiny.ARCHIVE).write_bytes(content)
    # not the official archive
    with pytest.raises(
        DataError, match="tiny-imagenet-200.zip is damaged or cut short"
    ):
        tiny.tiny_imagenet(fresh)
    monkeypatch.setattr(tiny, "MD5", checksum(fresh / tiny.ARCHIVE))
    truth = tiny.tiny_imagenet(root).x
    assert torch.equal(tiny.tiny_imagenet(fresh).x, truth)
    monkeypatch.setattr(
        archive,
        "_open",
        lambda url, timeout: io.BytesIO(content if url == tiny.URL else b""),
    )
    with pytest.raises(DataError, match=f"Tiny-ImageNet is not in {other}"):
        tiny.tiny_imagenet(other)
    assert torch.equal(tiny.tiny_imagenet(other, download=True).x, truth)


def test_an_archive_of_something_else(root, tmp_path, tmp_path_factory, monkeypatch):
    fresh = tmp_path_factory.mktemp("c")
    (fresh / tiny.ARCHIVE).write_bytes(packed(root, "other"))
    monkeypatch.setattr(tiny, "MD5", checksum(fresh / tiny.ARCHIVE))
    with pytest.raises(DataError, match=f"does not hold a folder {tiny.FOLDER}"):
        tiny.tiny_imagenet(fresh)


def rewrite(folder, name, change):
    file = folder / name
    file.write_text(change(file.read_text()))


IMAGE, NOTES = "train/n01443537/images/n01443537_2.JPEG", "val/val_annotations.txt"


@pytest.mark.parametrize(
    "harm, says",
    [
        (lambda f: (f / "wnids.txt").unlink(), "wnids.txt cannot be read"),
        (
            lambda f: rewrite(f, "wnids.txt", lambda t: t[:10]),
            "wnids.txt has 1 lines and 1 different classes, not 3",
        ),
        (
            lambda f: rewrite(f, "wnids.txt", lambda t: t.replace(WNIDS[1], WNIDS[0])),
            "3 lines and 2 different classes, not 3",
        ),
        (
            lambda f: rewrite(
                f, "wnids.txt", lambda t: t.replace(WNIDS[1], "n00000001")
            ),
            "has no folder of the class 'n00000001'",
        ),
        (
            lambda f: shutil.rmtree(f / "train" / WNIDS[1]),
            "train has no folder of the class 'n01443537'",
        ),
        (
            lambda f: (f / "train" / "n09999999").mkdir(),
            "has a folder that is no class of wnids.txt: 'n09999999'",
        ),
        (lambda f: (f / IMAGE).unlink(), "n01443537/images has 3 images, not 4"),
        (
            lambda f: paint(f / IMAGE.replace("_2", "_7"), 40),
            "n01443537/images has 5 images, not 4",
        ),
        (
            lambda f: (f / IMAGE).write_bytes(b"\xff\xd8\xff no"),
            "n01443537_2.JPEG is damaged or cut short",
        ),
        (
            lambda f: (f / IMAGE).write_bytes((f / IMAGE).read_bytes()[:-40]),
            "n01443537_2.JPEG is damaged or cut short",
        ),
        (
            lambda f: Image.new("RGB", (64, 63)).save(f / IMAGE),
            "n01443537_2.JPEG has 64 x 63 pixels, not 64 x 64",
        ),
        (lambda f: (f / NOTES).unlink(), "val_annotations.txt cannot be read"),
        (
            lambda f: (f / NOTES).write_bytes(b"\xff\xfe\xfd"),
            "val_annotations.txt cannot be read",
        ),
        (
            lambda f: rewrite(f, NOTES, lambda t: "val_0.JPEG\n" + t),
            "line 1: expected an image and its class, found 'val_0.JPEG'",
        ),
        (
            lambda f: rewrite(
                f, NOTES, lambda t: t.replace("1.JPEG\tn01443537", "1.JPEG\tn00000002")
            ),
            (
                "line 2: val_1.JPEG has the class 'n00000002', which wnids.txt "
                "does not name"
            ),
        ),
        (
            lambda f: rewrite(f, NOTES, lambda t: t.replace("val_3", "../../x")),
            r"line 4 names \.\./\.\./x.JPEG, which is not in",
        ),
        (
            lambda f: rewrite(f, NOTES, lambda t: t.replace("val_3", "val_2")),
            "line 4 names val_2.JPEG, .* or was named before",
        ),
        (
            lambda f: (f / "val" / "images" / "val_3.JPEG").unlink(),
            "line 4 names val_3.JPEG, which is not in",
        ),
        (
            lambda f: paint(f / "val" / "images" / "val_9.JPEG", 9),
            "does not give the class of val_9.JPEG",
        ),
        (
            lambda f: rewrite(
                f, NOTES, lambda t: t.replace("1.JPEG\tn01443537", "1.JPEG\tn02124075")
            ),
            "gives 3 images to the class n02124075, not 2",
        ),
    ],
)
def test_harm_is_named(root, harm, says):
    harm(root / tiny.FOLDER)
    with pytest.raises(
        DataError, match=says + f".*{tiny.FOLDER} and unpack {tiny.ARCHIVE} again"
    ):
        tiny.tiny_imagenet(root)


def test_without_the_files_says_what_to_get_and_where(tmp_path):
    with pytest.raises(
        DataError,
        match=(
            f"download {re.escape(tiny.URL)} and put it.* into {tmp_path}; "
            ".*download=True"
        ),
    ):
        tiny.tiny_imagenet(tmp_path)


@pytest.mark.parametrize(
    "given, says",
    [
        ({"split": "val"}, 'split = \'val\': use "train", "test" or "all", or "both"'),
        ({"normalise": "z"}, "normalise = 'z'"),
    ],
)
def test_unknown_options(root, given, says):
    with pytest.raises(ValueError, match=says):
        tiny.tiny_imagenet(root, **given)
