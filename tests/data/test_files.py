"""Readers of other people's files, on made-up files in their layout: the right picture
with the right class, in [0, 1], red first; and each damage is refused by its file.
"""

import gzip
import pickle
import shutil
import warnings
import zipfile

import numpy as np
import pytest
import torch
from PIL import Image

from fedlib.data import domainbed as beds
from fedlib.data import mnist, office10
from fedlib.data import tiny_imagenet as tiny
from fedlib.data.archive import DataError, checksum
from fedlib.data.cifar10 import CIFAR10, cifar10
from fedlib.data.cifar100 import CIFAR100, cifar100

ROWS = {"train": 7, "test": 3}
SPLITS = "train", "test", "both", "all"


def refused(act, *names):
    with pytest.raises(ValueError) as e:
        act()
    assert all(str(n) in str(e.value) for n in names), str(e.value)


def parts_of(load):
    """The pools of all splits, whose law is one: train, then test."""
    train, test, both, every = pools = [load(s) for s in SPLITS]
    assert torch.equal(both.x, torch.cat([train.x, test.x]))
    assert torch.equal(every.x, both.x) and torch.equal(every.y, both.y)
    assert torch.equal(both.y, torch.cat([train.y, test.y])) and both.owner is None
    assert both.test.tolist() == [*range(len(train.y), len(both.y))]
    assert train.test is test.test is every.test is None
    assert {p.kind for p in pools} == {"real"} and both.y.dtype == torch.int64
    assert both.x.dtype == torch.float32
    return train, test


def normalised(load, mean, std):
    raw, x, half = (load(n).x for n in (False, True, "half"))
    for c in range(3):
        assert torch.allclose(x[:, c] * std[c] + mean[c], raw[:, c], atol=1e-6)
    assert (
        torch.allclose(half, 2 * raw - 1, atol=1e-6) and 0 <= raw.min() < raw.max() <= 1
    )


# ---------------------------------------------------------------- CIFAR and MNIST
@pytest.mark.parametrize("load, data", [(cifar10, CIFAR10), (cifar100, CIFAR100)])
def test_the_cifar_page(load, data, tmp_path, monkeypatch):
    rng, truth = np.random.default_rng(0), {"train": [], "test": []}
    folder = tmp_path / data.folder
    folder.mkdir()

    def write(split, name, x, y):
        told = {b"data": x, data.labels: y, b"coarse_labels": [0] * len(y)}
        (folder / name).write_bytes(pickle.dumps(told, 2))
        sums = data.files[split] | {name: checksum(folder / name)}
        monkeypatch.setitem(data.files, split, sums)

    official = {s: dict(files) for s, files in data.files.items()}
    for split, names in official.items():
        for name in names:
            n = ROWS[split]
            x, y = rng.integers(0, 256, (n, 3072), np.uint8), rng.integers(0, data.K, n)
            y[:2] = 0, data.K - 1
            truth[split].append((x, y))
            write(split, name, x, y.tolist())
    for pool, split in zip(parts_of(lambda s: load(tmp_path, s, False)), truth):
        x, y = (np.concatenate(v) for v in zip(*truth[split]))
        assert np.array_equal((pool.x * 255).round().reshape(len(y), -1), x)
        assert pool.y.tolist() == y.tolist() and (pool.K, pool.name) == (
            data.K,
            data.name,
        )
    normalised(lambda n: load(tmp_path, normalise=n), data.mean, data.std)
    monkeypatch.setenv("FEDLIB_DATA", str(tmp_path))
    assert len(load(split="test").y) == 3
    name = [*official["train"]][-1]
    body = (folder / name).read_bytes()
    pixel = body[:900] + bytes([body[900] ^ 1]) + body[901:]  # only the checksum tells
    for bad in (body[:500], pixel, None):
        (folder / name).unlink() if bad is None else (folder / name).write_bytes(bad)
        refused(lambda: load(tmp_path), name)
    good = np.zeros((3, 3072), np.uint8)
    for x, y in (
        *((good, [0, 1]), (good[:, 1:], [0, 1, 2]), (good, [0, 1, data.K])),
        *((good + 0.0, [0, 1, 2]), (good, None), (good, [0, 1, -1])),
    ):
        told = pickle.dumps({b"data": x, data.labels: y}, 2)
        (folder / [*official["test"]][0]).write_bytes(told)
        sums = {[*official["test"]][0]: checksum(folder / [*official["test"]][0])}
        monkeypatch.setitem(data.files, "test", sums)
        refused(lambda: load(tmp_path, "test"), [*official["test"]][0])
    refused(lambda: load(tmp_path / "no"), data.url, tmp_path / "no")
    (tmp_path / "no").mkdir()
    (tmp_path / "no" / data.archive).write_bytes(b"other")
    refused(lambda: load(tmp_path / "no"), data.archive, data.md5)
    for more in ({"split": "val"}, {"normalise": "z"}, {"download": 1}):
        refused(lambda more=more: load(tmp_path, **more), *more)


def test_checksums_are_those_of_torchvision():
    from fedlib.nets.vision import ensure_torchvision

    ensure_torchvision()
    from torchvision import datasets

    for ours, theirs in ((CIFAR10, datasets.CIFAR10), (CIFAR100, datasets.CIFAR100)):
        assert (theirs.url, theirs.tgz_md5) == (ours.url, ours.md5)
        told = dict(theirs.train_list), dict(theirs.test_list)
        assert told == (ours.files["train"], ours.files["test"])
    # what is published of the training images
    assert (CIFAR10.mean, CIFAR100.mean) == (
        (0.4914, 0.4822, 0.4465),
        (0.5071, 0.4865, 0.4409),
    )
    assert (CIFAR10.std, CIFAR100.std) == (
        (0.2023, 0.1994, 0.2010),
        (0.2673, 0.2564, 0.2762),
    )


def idx(array):
    head = bytes((0, 0, 8, array.ndim))
    return head + b"".join(n.to_bytes(4, "big") for n in array.shape) + array.tobytes()


@pytest.mark.parametrize("end", ["", ".gz"])
def test_mnist(end, tmp_path):
    rng, truth = np.random.default_rng(0), {}
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    packed = gzip.compress if end else bytes
    for part, n in ROWS.items():
        x, y = rng.integers(0, 256, (n, 28, 28), np.uint8), np.arange(n, dtype=np.uint8)
        truth[part] = x, y
        for kind, v in (("images-idx3", x), ("labels-idx1", y)):
            file = raw / f"{mnist.FILES[part]}-{kind}-ubyte{end}"
            file.write_bytes(packed(idx(v)))
    for pool, part in zip(parts_of(lambda s: mnist.mnist(tmp_path, s)), truth):
        x, y = truth[part]
        assert np.array_equal((pool.x[:, 0] * 255).round(), x)
        assert pool.y.tolist() == y.tolist() and pool.x.max() == x.max() / 255
    file, label = (raw / f"t10k-{k}-ubyte{end}" for k in ("images-idx3", "labels-idx1"))
    x, y = (idx(v) for v in truth["test"])
    wrong = [x[:-1], x + b"0", x[:9], b"", b"\0\0\x0d" + x[3:], y, None]
    wrong += [idx(np.zeros((3, 20, 28), np.uint8)), idx(truth["test"][0][:2])]
    for path, body, bad in [
        (file, x, wrong),
        (label, y, [idx(np.full(3, 10, np.uint8))]),
    ]:
        for b in bad:
            path.unlink() if b is None else path.write_bytes(packed(b))
            refused(lambda: mnist.mnist(tmp_path), raw)
            assert len(mnist.mnist(tmp_path, "train").y) == 7
        path.write_bytes(packed(body))
    if end:
        file.write_bytes(packed(x)[:-20])
        refused(lambda: mnist.mnist(tmp_path), file)


# ---------------------------------------------------------------- pictures in folders
def paint(path, value):
    """A flat picture: odd values grey, even ones (value, 40, 200)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    shape = (64, 64) if value % 2 else (64, 64, 3)
    v = (
        np.full(shape, value, np.uint8)
        if value % 2
        else np.full(shape, (value, 40, 200), np.uint8)
    )
    Image.fromarray(v).save(path, "JPEG", quality=95)


def looks(x, value):
    want = (value,) * 3 if value % 2 else (value, 40, 200)
    return (255 * x.mean((1, 2)) - torch.tensor(want)).abs().max() < 3


WNIDS = "n02124075", "n01443537", "n04067472"  # not sorted, as in the official file


def test_tiny_imagenet(tmp_path, monkeypatch):
    monkeypatch.setattr(tiny, "K", 3)
    monkeypatch.setattr(tiny, "PER_CLASS", {"train": 2, "val": 1})
    folder = tmp_path / tiny.FOLDER
    for k, w in enumerate(WNIDS):
        for i in range(2):
            paint(
                folder / "train" / w / "images" / f"{w}_{i}.JPEG", 10 + 2 * k + 31 * i
            )
        paint(folder / "val" / "images" / f"val_{k}.JPEG", 101 + k)
    notes, names = folder / "val" / "val_annotations.txt", folder / "wnids.txt"
    notes.write_text(
        "".join(f"val_{i}.JPEG\t{WNIDS[2 - i]}\t0\t3\t4\t6\n" for i in range(3))
    )
    names.write_text("\n".join(WNIDS))
    load = lambda **more: tiny.tiny_imagenet(tmp_path, **{"normalise": False} | more)
    train, test = parts_of(lambda s: load(split=s))
    assert train.y.tolist() == [0, 0, 1, 1, 2, 2] and test.y.tolist() == [2, 1, 0]
    for i, v in enumerate([10, 41, 12, 43, 14, 45]):
        assert looks(train.x[i], v), i
    assert all(looks(test.x[i], 101 + i) for i in range(3))
    normalised(lambda n: load(normalise=n), tiny.MEAN, tiny.STD)
    image = folder / "train" / WNIDS[1] / "images" / f"{WNIDS[1]}_1.JPEG"
    text = {f: f.read_text() for f in (notes, names)}
    change = lambda f, a, b: f.write_text(text[f].replace(a, b))
    for harm, *told in (
        (lambda: change(names, WNIDS[1], WNIDS[0]), names, 2),
        (lambda: change(names, WNIDS[1], "n1"), "train"),
        (lambda: change(notes, WNIDS[1], "n1"), notes, "line 2", "n1"),
        (lambda: change(notes, WNIDS[1], WNIDS[0]), notes, WNIDS[0]),
        (lambda: change(notes, "val_2", "val_1"), "line 3", "val_1"),
        (lambda: change(notes, "val_2", "../x"), "line 3", "../x"),
        (lambda: notes.write_text("val_0.JPEG\n" + text[notes]), "line 1"),
        (lambda: notes.write_text(text[notes][:30]), "val_"),
        (lambda: image.write_bytes(b"\xff\xd8\xff no"), image),
        (lambda: Image.new("RGB", (64, 63)).save(image), image, 63),
        (image.unlink, image.parent, 1),
        (lambda: (folder / "train" / "n9").mkdir(), "n9"),
        (lambda: shutil.rmtree(folder), tiny.URL, tmp_path),
    ):
        harm()
        refused(load, *told)
        for f, t in text.items() if folder.exists() else ():
            f.write_text(t)
        if image.parent.exists():
            paint(image, 43)
        (folder / "train" / "n9").rmdir() if (
            folder / "train" / "n9"
        ).exists() else None


def office(root, monkeypatch, lists=True):
    """Four sites of five to two pictures; {site: its paths in the order of the lists}."""
    have, value, order = dict(zip(office10.SITES, (5, 4, 2, 3))), 10, {}
    monkeypatch.setattr(office10, "IMAGES", have)
    folder = root / office10.FOLDER
    for site, n in have.items():
        paths = []
        for i in range(n):
            at = f"{site}/{office10.CLASSES[(3 * i) % 10]}/frame_{i}.jpg"
            paint(folder / at, value)
            paths.append((at, value))
            value += 9
        order[site] = paths[::-1]
        for part, some in (("train", paths[:0:-1]), ("test", paths[:1])):
            names = [f"x/{at}" for at, _ in some]
            content = [names, [at.split("/")[1] for at, _ in some]]
            if lists:
                (folder / f"{site}_{part}.pkl").write_bytes(pickle.dumps(content, 2))
    return folder, order


def test_office(tmp_path, monkeypatch):
    folder, order = office(tmp_path, monkeypatch)
    pool = office10.office10(tmp_path, 8)
    rows = [row for paths in order.values() for row in paths]
    classes = lambda rows: [office10.CLASSES.index(at.split("/")[1]) for at, _ in rows]
    assert pool.y.tolist() == classes(rows) and pool.x.shape == (14, 3, 8, 8)
    assert all(looks(x, v) for x, (_, v) in zip(pool.x, rows))
    assert pool.owner.bincount().tolist() == [5, 4, 2, 3] and pool.kind == "real"
    assert pool.test.tolist() == [4, 8, 10, 13] and pool.owners == office10.SITES
    with zipfile.ZipFile(tmp_path / "z.zip", "w") as pack:
        for file in sorted(folder.rglob("*.jpg")):
            pack.write(file, file.relative_to(tmp_path))
    (tmp_path / "new").mkdir()
    (tmp_path / "z.zip").rename(tmp_path / "new" / office10.ARCHIVE)
    plain = office10.office10(tmp_path / "new", 8)
    assert plain.test is None
    rows = [
        r for p in order.values() for r in sorted(p, key=lambda r: (classes([r]), r))
    ]
    assert plain.y.tolist() == classes(rows)
    assert all(looks(x, v) for x, (_, v) in zip(plain.x, rows))
    first = folder / "amazon_train.pkl"
    names, words = pickle.loads(first.read_bytes())
    for content in (
        *([names[:-1], words[:-1]], [names + names[:1], words + words[:1]]),
        [["amazon/mug/none.jpg", *names[1:]], ["mug", *words[1:]]],
        *([names, words[::-1]], 3, [shutil.rmtree]),
    ):
        first.write_bytes(pickle.dumps(content))
        refused(lambda: office10.office10(tmp_path, 8), "amazon")
    for harm, name in (
        (first.unlink, "amazon_train.pkl"),
        (lambda: (folder / "amazon_test.pkl").unlink(), "lists"),
        (lambda: (folder / "dslr" / "backpack").mkdir(), "backpack"),
        (lambda: shutil.rmtree(folder / "dslr"), "dslr"),
        (lambda: shutil.rmtree(folder), office10.ARCHIVE),
    ):
        harm()
        refused(lambda: office10.office10(tmp_path, 8), name)


CLASSES = "ant", "bee", "cow"


def plant(root, which, n=2):
    """{path: brightness} of a small tree, pictures of every mode."""
    made, value = {}, 20
    for domain in beds.LAYOUTS[which].images:
        for name in CLASSES:
            for i in range(n):
                form = ("rgb.png", "grey.png", "clear.png", "cmyk.jpg", "rgb.JPEG")[
                    len(made) % 5
                ]
                path = root / beds.LAYOUTS[which].folder / domain / name / f"{i}_{form}"
                path.parent.mkdir(parents=True, exist_ok=True)
                v = np.full((9, 12), value, np.uint8)
                v = v if "grey" in form else np.stack([v, v // 2, v // 4], 2)
                picture, more = Image.fromarray(v), {}
                if "clear" in form:
                    picture, more = (
                        picture.quantize(4),
                        {"transparency": bytes([0, 128])},
                    )
                picture = picture.convert("CMYK") if "cmyk" in form else picture
                picture.save(path, **more | ({} if "png" in form else {"quality": 95}))
                made[path], value = value, 20 + (value + 7) % 230
    return made


@pytest.mark.filterwarnings("ignore:.*not the data set of the papers")
def test_domains_of_photographs(tmp_path):
    def read(**more):
        return beds.domainbed(which, tmp_path, 4, **more)

    for which, layout in beds.LAYOUTS.items():
        made = plant(tmp_path, which)
        (tmp_path / layout.folder / "splits").mkdir()
        pool = read()
        assert pool.owners == tuple(layout.images) and pool.classes == CLASSES
        for r, path in enumerate(sorted(made)):
            v = made[path]
            assert pool.owners[pool.owner[r]] == path.parts[-3]
            assert CLASSES[pool.y[r]] == path.parts[-2]
            want = [v, v, v] if "grey" in path.name else [v, v // 2, v // 4]
            assert np.allclose(pool.x[r].mean((1, 2)) * 255, want, atol=4), path
    two, named, few = read(classes=2), read(classes=["cow", "ant"]), read(most=1)
    assert torch.equal(two.x, pool.x[pool.y < 2]) and two.classes == CLASSES[:2]
    assert torch.equal(named.x, pool.x[pool.y != 1]) and named.y.unique().tolist() == [
        0,
        1,
    ]
    assert torch.equal(few.x, pool.x[::2]) and few.K == 3
    total = {
        k: sum(np.atleast_1d(n)[0] for n in v.images.values())
        for k, v in beds.LAYOUTS.items()
    }
    assert [*total.values()] == [9991, 10729, 15588, 24788, 586575]
    path = sorted(made)[5]
    noise = np.random.default_rng(0).integers(0, 256, (64, 48, 3), np.uint8)
    Image.fromarray(noise).save(path, "PNG")
    big = Image.fromarray(noise).resize((4, 4), Image.Resampling.BILINEAR)
    assert np.array_equal((read().x[5] * 255).round().permute(1, 2, 0), np.asarray(big))
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])
    with pytest.warns(UserWarning, match=str(path.name)):
        part = read()
    assert part.x[5].max() > 0 and len(part.x) == len(pool.x)
    path.write_bytes(b"\xff\xd8\xff no image")
    refused(read, path)
    keep = torch.arange(len(pool.x)) != 5
    with pytest.warns(UserWarning, match=str(path.name)):
        rest = read(unreadable="skip")
    for part in ("x", "y", "owner"):
        assert torch.equal(getattr(rest, part), getattr(pool, part)[keep])
    top = tmp_path / layout.folder
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a part has no number to be compared with
        read(classes=2, most=1)
        with pytest.raises(UserWarning, match="clipart"):
            read(unreadable="skip")
    for more in (
        {"classes": 4},
        {"classes": ["ant", "ant"]},
        {"classes": ["boe", "ant"]},
    ):
        refused(lambda more=more: read(**more), "class")
    for harm, *names in (
        (lambda: shutil.rmtree(top / "real" / "bee"), "real", "bee"),
        (lambda: (top / "sketch" / "dog").mkdir(), "dog", "sketch"),
        (lambda: shutil.rmtree(top / "real"), "real"),
        (lambda: shutil.rmtree(top), tmp_path, layout.trap[:20]),
    ):
        harm()
        with pytest.raises(DataError) as e:
            read()
        assert all(str(n) in str(e.value) for n in names), str(e.value)
