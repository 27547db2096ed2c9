"""Adult: the table that comes with the package, its clients, and the official files."""

import hashlib
import itertools
import math
import random
import re

import numpy as np
import pytest
import torch

from fedlib.data import adult as module
from fedlib.data import tasks
from fedlib.data.adult import COLUMNS, CUTS, ENTRIES, FILES, WORDS, adult, joined, table

FIRST = (  # of adult.data
    "39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, "
    "White, Male, 2174, 0, 40, United-States, <=50K"
)
BLANK = FIRST.replace("State-gov", "?"), FIRST.replace("United-States", "?")


@pytest.fixture(scope="module")
def pool():
    return adult()


def share(v):
    return v.float().mean().item()


# ---------------------------------------------------------------- the people
def test_shapes_kind_and_groups(pool):
    n = 45_222 - 14  # of the armed forces
    assert pool.x.shape == (n, 47) and pool.x.dtype == torch.float32
    assert pool.y.shape == (n,) and pool.y.dtype == torch.int64
    assert pool.y.unique().tolist() == [0, 1] and pool.K == 2 and pool.kind == "real"
    assert pool.x.isfinite().all() and tasks.SOURCES["adult"] is adult
    assert torch.equal(pool.a, pool.x[:, 0].long())
    groups = pool.groups
    assert (groups.name, groups.names) == ("sex", ("men", "women"))
    assert (groups.positive, groups.column) == ((1,), 0)


def test_the_published_counts():
    """Those of adult.names: 45,222 without unknowns, of whom 24.78 % earn more."""
    t = table()
    assert all(len(v) == 45_222 and v.dtype == np.int64 for v in t.values())
    assert round(100 * t["salary"].mean(), 2) == 24.78
    assert (t["age"].min(), t["age"].max()) == (17, 90)


def test_one_woman_in_nine_earns_as_much_and_one_man_in_three(pool):
    men, women = (share(pool.y[pool.a == a]) for a in (0, 1))
    assert (round(men, 3), round(women, 3)) == (0.312, 0.114)


def test_the_schema_holds_for_all_rows(pool):
    schema = pool.groups.schema
    assert [b.stop for b in schema[:-1]] == [b.start for b in schema[1:]]
    assert (schema[0].start, schema[-1].stop) == (0, 47)
    for block in schema:
        v = pool.x[:, block.start : block.stop]
        if block.kind == "number":
            assert v.shape[1] == 1 and v.min() >= block.low and v.max() <= block.high
            assert math.isfinite(block.high - block.low)
        else:
            assert ((v == 0) | (v == 1)).all() and block.low == -block.high == -math.inf
        if block.kind == "onehot":
            assert v.shape[1] == len(WORDS[block.name]) and (v.sum(1) == 1).all()
    assert [b.name for b in schema if b.kind == "flag"] == ["sex", "born in the US"]


def test_a_person_by_hand(pool):
    """The first of adult.data: 39 years, Bachelors, a gain of 2,174 dollars, 40 hours."""
    numbers = [-1 / 14, (1 / 14) ** 2 - 1, 3 / 2.5, 0, math.log(2175) / 4, 0]
    ones = [("workclass", "State-gov"), ("marital-status", "Never-married")]
    ones += [("occupation", "Adm-clerical"), ("relationship", "Not-in-family")]
    ones += [("race", "White")]
    words = [float(w == one) for name, one in ones for w in WORDS[name]]
    x = torch.tensor([0, *numbers, *words, 1])
    (same,) = torch.isclose(pool.x, x, atol=1e-6).all(1).nonzero()[:, 0]
    assert pool.y[same] == 0 and pool.owners[pool.owner[same]] == "Adm-clerical 31-45"


def test_the_same_bits_twice(pool):
    again = adult()
    assert all(
        torch.equal(getattr(pool, k), getattr(again, k)) for k in ("x", "y", "a")
    )
    assert torch.equal(pool.owner, again.owner) and pool.owners == again.owners


# ---------------------------------------------------------------- clients
def test_clients_are_occupations_by_age(pool):
    sizes = pool.owner.bincount()
    assert len(pool.owners) == len(set(pool.owners)) == len(sizes) == 37
    assert (sizes.min(), sizes.max(), sizes.median()) == (232, 2776, 1106)
    assert pool.owners[:2] == ("Adm-clerical 17-30", "Adm-clerical 31-45")
    assert "Sales 46-90" in pool.owners and "Priv-house-serv 17-90" in pool.owners
    at = next(b for b in pool.groups.schema if b.name == "occupation").start
    for k, name in enumerate(pool.owners):
        word, _, ages = name.rpartition(" ")
        x, (low, high) = pool.x[pool.owner == k], map(int, ages.split("-"))
        assert (x[:, at + WORDS["occupation"].index(word)] == 1).all()
        age = (14 * x[:, 1] + 40).round()
        assert low <= age.min() and age.max() <= high


def test_clients_differ_in_women_and_in_answers(pool):
    mine = [pool.owner == k for k in range(len(pool.owners))]
    women, yes = ([share(v[m]) for m in mine] for v in (pool.a, pool.y))
    assert (round(min(women), 2), round(max(women), 2)) == (0.04, 0.94)
    assert (round(min(yes), 2), round(max(yes), 2)) == (0.01, 0.57)
    few = [m for m in mine if (m & (pool.a == 1) & (pool.y == 1)).sum() < 10]
    assert len(few) == 16


def test_education_is_the_second_cut(pool):
    other = adult(by="education")
    sizes = other.owner.bincount()
    assert len(other.owners) == len(sizes) == 37 and len(other.x) == 45_222 - 72
    assert (sizes.min(), sizes.max(), sizes.median()) == (207, 5768, 457)
    assert other.owners[:3] == ("1st-4th 17-90", "5th-6th 17-90", "7th-8th 17-45")
    women = [share(other.a[other.owner == k]) for k in range(37)]
    assert 0.09 < min(women) < max(women) < 0.5  # milder


@pytest.mark.parametrize(
    "n, least, want",
    [
        ([9, 9, 9], 9, [[0], [1], [2]]),
        ([8, 9, 9], 9, [[0, 1], [2]]),
        ([9, 8, 9], 9, [[0], [1, 2]]),
        ([9, 9, 8], 9, [[0], [1, 2]]),
        ([9, 4, 4], 9, [[0, 1, 2]]),
        ([4, 4, 4], 9, [[0, 1, 2]]),
        ([4, 4, 0], 9, []),
    ],
)
def test_small_bands_join_the_next(n, least, want):
    assert joined(np.array(n), least) == want


@pytest.mark.parametrize("by", CUTS)
@pytest.mark.parametrize("least", [1, 700])
def test_every_client_has_enough_people(by, least):
    pool = adult(by=by, least=least)
    sizes = pool.owner.bincount(minlength=len(pool.owners))
    assert sizes.min() >= least and sizes.sum() == len(pool.x)
    assert (len(pool.x) == 45_222) == (least == 1)


def test_a_task_of_it():
    task = tasks.build(
        {
            "data": {"name": "adult"},
            "network": {"name": "MLP", "hidden": 32},
            "batch": 64,
            "parts": [0.75, 0, 0.25],
        }
    )
    assert task.C == 37 and task.kind == "real" and task.owners == adult().owners
    held = [len(a) / (len(a) + len(b)) for a, b in zip(task.train, task.test)]
    assert min(held) > 0.74 and max(held) < 0.76
    assert task.groups.schema == module.SCHEMA and not any(map(len, task.val))


# ---------------------------------------------------------------- the official files
@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """A folder with the carried people in the official form: in any order, in two files,
    among rows with a blank.
    """
    t = table()
    texts = {k: [str(v) for v in column.tolist()] for k, column in t.items()}
    texts |= {k: [words[v] for v in t[k].tolist()] for k, words in WORDS.items()}
    texts["education-num"] = [str(v + 1) for v in t["education"].tolist()]
    abroad = itertools.cycle(["Mexico", "Hong", "Outlying-US(Guam-USVI-etc)"])
    born = ["United-States" if v else next(abroad) for v in t["native-country"]]
    texts["native-country"] = born
    texts["fnlwgt"] = [str(13_000 + k) for k in range(len(t["age"]))]
    lines = [", ".join(v) for v in zip(*(texts[k] for k in ENTRIES))]
    random.Random(0).shuffle(lines)
    folder = tmp_path_factory.mktemp("root") / "adult"
    folder.mkdir()
    give(folder, [*BLANK, *lines[:30_000]], [*lines[30_000:], *BLANK])
    return folder


def give(folder, data, test):
    """Write these lines as adult.data and adult.test."""
    (folder / FILES[0]).write_text("\n".join([*data, "", ""]))
    test = ["|1x3 Cross validator", *(f"{line}." for line in test), "", ""]
    (folder / FILES[1]).write_text("\n".join(test))


def test_the_carried_table_is_made_from_the_official_files(published, tmp_path, capsys):
    file = tmp_path / "made.npz"
    module.main([str(published), "--to", str(file)])
    assert "45,222 rows, digest 0608810f89583e7f" in capsys.readouterr().out
    with np.load(file) as made, np.load(module.CARRIED) as kept:
        assert made.files == kept.files == list(COLUMNS)
        for k in COLUMNS:
            assert made[k].dtype == kept[k].dtype and np.array_equal(made[k], kept[k])
    assert [f.name for f in tmp_path.iterdir()] == ["made.npz"]


def test_official_files_come_first_and_give_the_same_bits(published, pool, monkeypatch):
    monkeypatch.setattr(module, "carried", lambda: pytest.fail("not the carried table"))
    monkeypatch.setenv("FEDLIB_DATA", str(published.parent))
    mine = adult()
    assert torch.equal(mine.x, pool.x) and torch.equal(mine.y, pool.y)
    assert torch.equal(mine.owner, pool.owner)


def test_one_of_the_two_files_is_not_enough(tmp_path, pool):
    (tmp_path / "adult").mkdir()
    (tmp_path / "adult" / FILES[0]).write_text("nothing\n")
    assert torch.equal(adult(root=tmp_path).x, pool.x)


def test_the_digest_is_that_of_the_columns():
    rows = np.stack([table()[k] for k in COLUMNS])
    sha = hashlib.sha256(rows.astype("<i4").tobytes())
    assert sha.hexdigest()[:16] == module.DIGEST
    below = rows[:, :-1] != rows[:, 1:]  # sorted: the first that differs is larger
    first, some = below.argmax(0), below.any(0)
    step = (rows[:, 1:] - rows[:, :-1])[first, np.arange(len(first))]
    assert (step[some] > 0).all()


# ---------------------------------------------------------------- refused
@pytest.mark.parametrize(
    "data, says",
    [
        ([FIRST], "2 rows with digest "),
        ([FIRST], "expected 45,222 with 0608810f89583e7f; get the two files again"),
        (
            [FIRST[:31]],
            "adult.data: '39, State-gov, 77516, Bachelors' has 4 entries, ex",
        ),
        (
            [FIRST.replace("White", "Green")],
            "adult.test are not as published ('Green')",
        ),
        ([FIRST.replace("39", "old")], "'old'); get them again"),
        ([FIRST + "\u00e9"], "adult.data cannot be read ('ascii' codec"),
    ],
)
def test_other_official_files_are_refused(data, says, tmp_path):
    folder = tmp_path / "adult"
    folder.mkdir()
    give(folder, data, [FIRST])
    with pytest.raises(ValueError, match=re.escape(says)) as refused:
        adult(root=tmp_path)
    assert str(folder) in str(refused.value)
    with pytest.raises(ValueError, match=re.escape(says)):
        module.main([str(folder), "--to", str(tmp_path / "made.npz")])
    assert not (tmp_path / "made.npz").exists()


def changed(columns):
    columns["age"][0] += 1


def dropped(columns):
    del columns["race"]


def short(columns):
    columns |= {k: v[:-1] for k, v in columns.items()}


@pytest.mark.parametrize(
    "damage, says",
    [
        (changed, "45,222 rows with digest "),
        (short, "45,221 rows with digest "),
        (dropped, "is missing or damaged ("),
        (b"", "is missing or damaged ("),
        (b"PK\x03\x04 and no more", "is missing or damaged ("),
        (None, "is missing or damaged ("),
    ],
)
def test_a_damaged_table_is_refused(damage, says, tmp_path):
    file = tmp_path / "adult.npz"
    if isinstance(damage, bytes):
        file.write_bytes(damage)
    elif damage:
        columns = {k: v.copy() for k, v in np.load(module.CARRIED).items()}
        damage(columns)
        np.savez(file, **columns)
    with pytest.raises(ValueError, match=re.escape(says)) as refused:
        module.carried(file)
    assert str(file) in str(refused.value)
    assert "; restore it from the repository" in str(refused.value)


def test_a_table_cut_short_is_refused(tmp_path):
    content = module.CARRIED.read_bytes()
    for size in (100, len(content) // 2, len(content) - 1):
        file = tmp_path / f"{size}.npz"
        file.write_bytes(content[:size])
        with pytest.raises(ValueError, match="is missing or damaged"):
            module.carried(file)


@pytest.mark.parametrize(
    "given, says",
    [
        ({"group": "race"}, "adult: group = 'race': there are groups by sex; give sex"),
        (
            {"by": "educaton"},
            "adult: unknown by = 'educaton'; did you mean 'education'? (known: occup",
        ),
        ({"by": "sex"}, "adult: unknown by = 'sex' (known: occupation, education)"),
        (
            {"least": 0},
            "adult: least = 0 persons of a client; give a whole number >= 1",
        ),
        ({"least": 2.5}, "adult: least = 2.5 persons of a client; give a whole"),
        ({"least": True}, "adult: least = True persons of a client; give a whole"),
        ({"least": 10**6}, "least = 1000000 leaves no two clients by occupation; give"),
        (
            {"by": "education", "least": 9900},
            "least = 9900 leaves no two clients by edu",
        ),
    ],
)
def test_nonsense_is_refused(given, says):
    with pytest.raises(ValueError, match=re.escape(says)):
        adult(**given)
