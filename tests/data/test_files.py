"""Readers of other people's files, on made-up files in their layout: the right picture
with the right class, in [0, 1], red first; and each damage is refused by its file."""

import itertools
import pickle
import shutil
import warnings

import numpy as np
import pytest
import torch
from PIL import Image

from fedlib.data import get, images
from fedlib.data.domains import PRESETS
from fedlib.data.files import checksum

ROWS = {"train": 7, "test": 3}
SPLITS = "train", "test", "both", "all"
PUBLISHED = {  # of the training images
    10: ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    100: ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
}


def refused(act, *names):
    with pytest.raises(ValueError) as e:
        act()
    assert all(str(n) in str(e.value) for n in names), (names, str(e.value))


def damaged(root, load, *harms):
    """What is refused after each harm; the folder is mended before the next one."""
    good = shutil.copytree(root, root.with_name("good"))
    for harm, *names in harms:
        harm()
        refused(load, *names)
        shutil.rmtree(root)
        shutil.copytree(good, root)


def parts_of(load):
    """The pools of all splits, whose law is one: train, then test."""
    train, test, both, every = pools = [load(s) for s in SPLITS]
    assert torch.equal(both.x, torch.cat([train.x, test.x]))
    assert torch.equal(every.x, both.x) and torch.equal(every.y, both.y)
    assert torch.equal(both.y, torch.cat([train.y, test.y])) and both.owner is None
    assert both.test.tolist() == [*range(len(train.y), len(both.y))]
    assert train.test is test.test is every.test is None
    assert {p.kind for p in pools} == {"real"}
    assert (both.x.dtype, both.y.dtype) == (torch.float32, torch.int64)
    return train, test


def normalised(load, mean, std):
    raw, x, half = (load(n).x for n in (False, True, "half"))
    mean, std = (torch.tensor(v)[:, None, None] for v in (mean, std))
    assert torch.allclose(x * std + mean, raw, atol=1e-6)
    assert torch.allclose(half, 2 * raw - 1, atol=1e-6)
    assert 0 <= raw.min() < raw.max() <= 1


@pytest.mark.parametrize("K", [10, 100])
def test_the_cifar_page(K, tmp_path, monkeypatch):
    """torchvision reads the files, by checksums that are those of the small ones."""
    images.ensure_torchvision()
    from torchvision import datasets

    rng, truth = np.random.default_rng(0), {"train": [], "test": []}
    load, (name, archive) = getattr(images, f"cifar{K}"), get.TORCHVISION[f"cifar{K}"]
    official, folder = getattr(datasets, name), tmp_path / archive.path
    assert official.base_folder == archive.path
    labels = "labels" if K == 10 else "fine_labels"
    folder.mkdir()

    def write(split, name, x, y):
        entry = {"data": x, "coarse_labels": [0] * 3, labels: y}
        (folder / name).write_bytes(pickle.dumps(entry, 2))
        names = dict(getattr(official, f"{split}_list"))
        names[name] = checksum(folder / name)
        monkeypatch.setattr(official, f"{split}_list", [*names.items()])

    meta = official.meta | {"filename": "names"}
    (folder / "names").write_bytes(pickle.dumps({meta["key"]: ["a"] * K}))
    meta["md5"] = checksum(folder / "names")
    monkeypatch.setattr(official, "meta", meta)
    first, last = (getattr(official, f"{s}_list")[-1][0] for s in ("test", "train"))
    for split, n in ROWS.items():
        for name, _ in getattr(official, f"{split}_list"):
            x, y = rng.integers(0, 256, (n, 3072), np.uint8), rng.integers(0, K, n)
            y[:2] = 0, K - 1
            truth[split].append((x, y))
            write(split, name, x, y.tolist())
    for pool, split in zip(parts_of(lambda s: load(tmp_path, s, False)), truth):
        x, y = (np.concatenate(v) for v in zip(*truth[split]))
        assert np.array_equal((pool.x * 255).round().reshape(len(y), -1), x)
        assert pool.y.tolist() == y.tolist() and pool.x.is_contiguous()
        assert (pool.K, pool.name) == (K, f"CIFAR-{K}")
    normalised(lambda n: load(tmp_path, normalise=n), *PUBLISHED[K])
    monkeypatch.setenv("FEDLIB_DATA", str(tmp_path))
    assert len(load(split="test").y) == 3
    body = (folder / last).read_bytes()
    pixel = body[:900] + bytes([body[900] ^ 1]) + body[901:]  # only the checksum tells
    for bad in (body[:500], pixel):
        (folder / last).write_bytes(bad)
        refused(lambda: load(tmp_path), tmp_path)
    (folder / last).write_bytes(body)
    for y in ([0, 1, K], [0, 1, -1], [0, 1]):
        write("test", first, np.zeros((3, 3072), np.uint8), y)
        refused(lambda: load(tmp_path, "test"), tmp_path)
    shutil.rmtree(folder)
    refused(lambda: load(tmp_path), tmp_path, f"data get cifar{K}")


def idx(array):
    head = bytes((0, 0, 8, array.ndim))
    return head + b"".join(n.to_bytes(4, "big") for n in array.shape) + array.tobytes()


def test_mnist(tmp_path):
    rng, truth, root = np.random.default_rng(0), {}, tmp_path / "MNIST"
    raw = root / "raw"
    raw.mkdir(parents=True)
    at = lambda part, kind: raw / f"{part}-{kind}-ubyte"
    for part, n in ROWS.items():
        x, y = rng.integers(0, 256, (n, 28, 28), np.uint8), np.arange(n, dtype=np.uint8)
        truth[part] = x, y
        part = part.replace("test", "t10k")
        at(part, "images-idx3").write_bytes(idx(x))
        at(part, "labels-idx1").write_bytes(idx(y))
    for pool, part in zip(parts_of(lambda s: images.mnist(tmp_path, s)), truth):
        assert np.array_equal((pool.x[:, 0] * 255).round(), truth[part][0])
        assert pool.x.max() == truth[part][0].max() / 255
        assert pool.y.tolist() == truth[part][1].tolist()
    file, label = (raw / f"t10k-{k}-ubyte" for k in ("images-idx3", "labels-idx1"))
    x, y = (idx(v) for v in truth["test"])
    wrong = [x[:-1], x[:9], b"\0\0\x0d" + x[3:], y, idx(truth["test"][0][:2])]
    harms = [(lambda b=b: file.write_bytes(b), tmp_path) for b in wrong]
    ten = idx(np.full(3, 10, np.uint8))
    harms += [(lambda: label.write_bytes(ten), tmp_path)]
    harms += [(file.unlink, "data get mnist")]
    damaged(root, lambda: images.mnist(tmp_path), *harms)


def paint(path, value):
    """A flat picture: odd values grey, even ones (value, 40, 200)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    mode, colour = ("L", value) if value % 2 else ("RGB", (value, 40, 200))
    Image.new(mode, (64, 64), colour).save(path, "JPEG", quality=95)


def looks(x, value):
    want = (value,) * 3 if value % 2 else (value, 40, 200)
    return (255 * x.mean((1, 2)) - torch.tensor(want)).abs().max() < 3


WNIDS = "n02124075", "n01443537", "n04067472"  # not sorted, as in the official file


def test_tiny_imagenet(tmp_path, monkeypatch):
    for name, n in {"TINY_K": 3, "TINY_TRAIN": 2, "TINY_VAL": 1}.items():
        monkeypatch.setattr(images, name, n)
    folder, lines = tmp_path / images.TINY.path, []
    image = lambda k, i: folder / "train" / WNIDS[k] / "images" / f"{WNIDS[k]}_{i}.JPEG"
    for k in range(3):
        paint(image(k, 0), 10 + 2 * k)
        paint(image(k, 1), 41 + 2 * k)
        paint(folder / "val" / "images" / f"val_{k}.JPEG", 101 + k)
        lines += [f"val_{k}.JPEG\t{WNIDS[2 - k]}\t0\t3\t4\t6\n"]
    notes, names = folder / "val" / "val_annotations.txt", folder / "wnids.txt"
    notes.write_text("".join(lines))
    names.write_text("\n".join(WNIDS))
    load = lambda **more: images.tiny_imagenet(tmp_path, **{"normalise": False} | more)
    train, test = parts_of(lambda s: load(split=s))
    assert train.y.tolist() == [0, 0, 1, 1, 2, 2] and test.y.tolist() == [2, 1, 0]
    assert all(map(looks, train.x, [10, 41, 12, 43, 14, 45]))
    assert all(map(looks, test.x, [101, 102, 103]))
    normalised(lambda n: load(normalise=n), *images.MOMENTS[200])
    change = lambda f, a, b: lambda: f.write_text(f.read_text().replace(a, b))
    damaged(
        *(folder, load, (change(names, WNIDS[1], WNIDS[0]), folder)),
        (change(notes, WNIDS[1], "n1"), folder, "n1"),
        (change(notes, WNIDS[1], WNIDS[0]), folder, "not 1 images"),
        (change(notes, "val_2", "val_1"), folder, "not 1 images"),
        (image(1, 1).unlink, folder, "not 2 images"),
        (notes.unlink, notes),
    )


def test_office(tmp_path, monkeypatch):
    """Four sites of five to two pictures, in the order of the lists or of the names."""
    classes = images.CLASSES
    have, value, order = dict(zip(images.IMAGES, (5, 4, 2, 3))), 10, {}
    monkeypatch.setattr(images, "IMAGES", have)
    folder, load = tmp_path / images.OFFICE.path, lambda: images.office10(tmp_path, 8)
    for site, n in have.items():
        words = [classes[3 * i % 10] for i in range(n)]
        at = [(i, f"{site}/{w}/frame_{i}.jpg", w) for i, w in enumerate(words)]
        paths = [(path, word, value + 9 * i) for i, path, word in at]
        value += 9 * n
        for path, _, v in paths:
            paint(folder / path, v)
        order[site] = paths[::-1]
        for part, some in (("train", paths[:0:-1]), ("test", paths[:1])):
            content = [[f"x/{p[0]}" for p in some], [p[1] for p in some]]
            (folder / f"{site}_{part}.pkl").write_bytes(pickle.dumps(content, 2))

    def holds(pool, rows):
        assert pool.y.tolist() == [classes.index(word) for _, word, _ in rows]
        assert all(looks(x, v) for x, (*_, v) in zip(pool.x, rows))

    pool = load()
    holds(pool, sum(order.values(), []))
    assert pool.x.shape == (14, 3, 8, 8) and pool.kind == "real"
    assert pool.owner.bincount().tolist() == [5, 4, 2, 3]
    assert pool.test.tolist() == [4, 8, 10, 13] and pool.owners == tuple(have)
    new = shutil.copytree(folder, tmp_path / "new" / folder.name)
    for file in new.glob("*.pkl"):
        file.unlink()
    by = lambda r: (classes.index(r[1]), r)
    plain = images.office10(tmp_path / "new", 8)
    holds(plain, [r for paths in order.values() for r in sorted(paths, key=by)])
    assert plain.test is None
    first = folder / "amazon_train.pkl"
    names, words = pickle.loads(first.read_bytes())
    lists = [[names[:-1], words[:-1]], [names + names[:1], words + words[:1]], 3]
    lists += [[["amazon/mug/none.jpg", *names[1:]], words], [names, words[::-1]]]
    harm = lambda v: lambda: first.write_bytes(pickle.dumps(v))
    damaged(
        *(folder, load, *[(harm(v), "amazon") for v in lists]),
        (first.unlink, "amazon_train.pkl"),
        (lambda: [f.unlink() for f in folder.glob("amazon_*")], "amazon"),
        (lambda: shutil.rmtree(folder / "dslr"), "dslr"),
    )


CLASSES = "ant", "bee", "cow"
FORMS = "rgb.png", "grey.png", "clear.png", "cmyk.jpg", "rgb.JPEG"


def plant(folder, domains):
    """{path: brightness} of a small tree, pictures of every mode."""
    made, places = {}, itertools.product(domains, CLASSES, range(2))
    for k, (domain, name, i) in enumerate(places):
        form, v = FORMS[k % 5], 20 + 7 * k % 230
        path = folder / domain / name / f"{i}_{form}"
        path.parent.mkdir(parents=True, exist_ok=True)
        picture, more = Image.new("RGB", (12, 9), (v, v // 2, v // 4)), {"quality": 95}
        if "grey" in form:
            picture = Image.new("L", (12, 9), v)
        if "clear" in form:
            picture, more = picture.quantize(4), {"transparency": bytes([0, 128])}
        if "cmyk" in form:
            picture = picture.convert("CMYK")
        picture.save(path, **more)
        made[path] = v
    return made


@pytest.mark.filterwarnings("ignore:.*not the data set of the papers")
def test_domains_of_photographs(tmp_path):
    read = lambda which="DomainNet", **k: images.domainbed(which, tmp_path, 4, **k)
    for which, (folder, *_) in images.LAYOUTS.items():
        top = tmp_path / folder
        made = plant(top, PRESETS[which].domains)
        (top / "splits").mkdir()
        pool = read(which)
        assert pool.owners == tuple(PRESETS[which].domains) and pool.classes == CLASSES
        for r, path in enumerate(sorted(made)):
            assert (pool.owners[pool.owner[r]], CLASSES[pool.y[r]]) == path.parts[-3:-1]
            v = made[path]
            want = [v, v, v] if "grey" in path.name else [v, v // 2, v // 4]
            assert np.allclose(pool.x[r].mean((1, 2)) * 255, want, atol=4), path
    two = read(classes=["bee", "ant"])
    assert torch.equal(two.x, pool.x[pool.y < 2]) and two.classes == CLASSES[:2]
    path = sorted(made)[5]
    noise = np.random.default_rng(0).integers(0, 256, (64, 48, 3), np.uint8)
    Image.fromarray(noise).save(path, "PNG")
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])
    part = read()
    assert part.x[5].max() > 0 and len(part.x) == len(pool.x)
    path.write_bytes(b"\xff\xd8\xff no image")
    refused(read, path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read(classes=["ant"])  # a part has no number to be compared with
        with pytest.raises(UserWarning, match="586,575"):
            read()
    damaged(
        *(top, read, (lambda: shutil.rmtree(top / "real" / "bee"), "real", "bee")),
        (lambda: paint(top / "sketch" / "dog" / "1.jpg", 9), "dog", "sketch"),
    )
    refused(lambda: images.domainbed("PACS", tmp_path / "none"), "PACS", "none")
