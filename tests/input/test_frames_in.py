"""What a table, arrays or a data set become: by scikit-learn's encoders, by hand, and
the same by every door."""

import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedlib.core import items
from fedlib.core.pool import natural
from fedlib.core.task import Task
from fedlib.nets import CNN, Linear

from toys_input import IMAGES, INF, NAN, A, C, N, X, Y  # isort: skip
from toys_input import all_refused, arrays, each, frame, lacks  # isort: skip
from toys_input import listed, people, put, refused  # isort: skip

pytestmark = pytest.mark.filterwarnings("ignore::fedlib.core.errors.DataWarning")


def rows_of(task):
    """The rows of each client [n] in train, val, test."""
    return [tuple(r.tolist() for r in p) for p in zip(task.train, task.val, task.test)]


def order_of(table, **more):
    """Which row of a table lies where in its task."""
    how = {"features": ["row"], "standardise": False} | more
    return frame(table.assign(row=np.arange(len(table))), **how).x[:, 0].long().numpy()


WORDS = {"two": ["ward 2", "ward 10"], "words": ["b 2", "b 10", "b 10a", "c"]}
WORDS |= {"category": ["x", "y", "z"], "string": ["1", "2", "10"]}
WORDS |= {"ranks": ["low", "mid", "high"]}  # all of them in their order
KINDS = ["number", "int", "01", "Int64", "bool", "flags", *WORDS]


def columns(r):
    yes = r.rand(N) < 0.4
    t = pd.DataFrame({"number": r.randn(N), "01": yes * 1, "flags": yes.astype(object)})
    t = t.assign(bool=yes, Int64=r.randint(5, 90, N), int=r.randint(-40, 1000, N))
    for kind, words in WORDS.items():
        at = np.r_[: len(words), r.randint(0, len(words), N)][:N]
        t[kind] = np.array(words, object)[at]
    ranks = pd.CategoricalDtype([*WORDS["ranks"], "never"], True)
    kinds = {k: k for k in ("category", "string", "Int64")}
    return t.astype(kinds | {"ranks": ranks})


SHARES = (0.8, 0.1, 0.1), (0.5, 0.0, 0.5), (0.4, 0.3, 0.3)


@pytest.mark.parametrize("seed", range(6))
def test_a_table_is_coded_as_by_scikit_learn(seed):
    """Numbers by the training rows of all clients; words one-hot, or the second's flag."""
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    r = np.random.RandomState(seed)
    table = people()[["ill", "clinic"]].join(columns(r)).sample(frac=1, random_state=r)
    kinds = r.permutation(KINDS).tolist()
    how, standardise = {"parts": SHARES[seed % 3], "split": seed}, seed % 2 == 0
    task = frame(table, **how, features=kinds, standardise=standardise)
    t, train, want = table.iloc[order_of(table, **how)], torch.cat(task.train), []
    for k in kinds:
        if k in WORDS:
            encoder = OneHotEncoder(categories=[WORDS[k]], drop="if_binary")
            want.append(encoder.fit_transform(t[[k]].astype(str)).toarray())
        else:
            v = t[[k]].astype(float).to_numpy()
            if standardise and k in ("number", "int", "Int64"):
                v = StandardScaler().fit(v[train.numpy()]).transform(v)
            want.append(v)
    assert np.allclose(task.x.numpy(), np.concatenate(want, 1), atol=1e-4), kinds
    assert task.x.dtype == torch.float32 and task.classes == ("no", "yes")
    assert np.array_equal(task.y.numpy(), t["ill"] == "yes")
    assert task.owners == tuple(f"clinic {k}" for k in range(12))
    for owner, own in zip(task.owners, rows_of(task)):
        assert set(t["clinic"].iloc[sum(own, [])]) == {owner}


@given(st.integers(41, 80), st.integers(1, 18), st.integers(1, 18), st.integers(0, 3))
def test_rows_are_cut_into_shares(n, train, test, split):
    """By floors; a client's cut hangs on its own rows, number and the split alone."""
    test = min(test, 20 - train)
    parts = train / 20, (20 - train - test) / 20, test / 20

    def cut(c, split):
        i = np.arange(len(c))
        t = arrays(i[:, None] / 128, i % 2, c, parts=parts, split=split)
        ids = lambda r: (t.x[r][:, 0] * 128).round().int().tolist()
        return [list(map(ids, p)) for p in zip(t.train, t.val, t.test)], t.name

    c = np.repeat([0, 1], [n, 60])
    (one, two), name = cut(c, split)
    i, j = train * n // 20, (train + test) * n // 20
    assert [len(r) for r in one] == [i, n - j, j - i]
    assert sorted(sum(one, [])) == [*range(n)] != one[0] + one[2] + one[1]
    assert sorted(sum(two, [])) == [*range(n, n + 60)]
    assert cut(c, split) == ([one, two], name)
    assert cut(np.r_[c, [1] * 5], split)[0][0] == one
    other, its = cut(c, split + 1)
    assert other != [one, two] and name != its
    alike = cut(np.repeat([0, 1], 60), split)[0]
    assert alike[0] != [[v - 60 for v in r] for r in alike[1]]


def test_a_row_outside_the_training_rows_moves_no_other():
    table, task = people(), frame()
    (last, *_) = task.test[3].tolist()
    far = table.copy()
    far.loc[order_of(table)[last], "income"] = 1e7
    again, keep = frame(far), torch.arange(N) != last
    assert torch.equal(again.x[keep], task.x[keep]) and again.x[last, 1] > 100
    assert again.name != task.name
    rare = put(np.zeros(N), order_of(table)[last], 3.5)
    level = 1e9 + np.arange(N)
    task = frame(people(rare=rare, level=level), features=["rare", "level"])
    assert task.x[:, 0].max() == 3.5 and task.x[:, 1].abs().max() < 2


def test_who_is_compared_and_what_is_good_for_them():
    task = frame(sensitive="sex")
    g = task.groups
    assert (g.name, g.names, g.positive, g.column) == ("sex", ("man", "woman"), (1,), 5)
    told = [(b.name, b.kind, b.start, b.stop) for b in g.schema]
    assert told[1:3] == [("income", "number", 1, 2), ("job", "onehot", 2, 5)]
    assert told[3:] == [("sex=woman", "flag", 5, 6), ("smokes", "flag", 6, 7)]
    woman = people()["sex"].iloc[order_of(people())].to_numpy() == "woman"
    assert task.a.tolist() == task.x[:, 5].tolist() == woman.tolist()
    hidden = frame(sensitive="sex", features=["age", "job"])
    assert hidden.groups.column is None and hidden.a.tolist() == woman.tolist()
    assert frame(sensitive="sex", positive="no").groups.positive == (0,)
    assert frame().groups is None
    good = lambda v, **more: arrays(a=A, positive=v, **more).groups.positive
    assert good(None) == good(1) == good(np.array([1])) == (1,)
    assert good([2, 1, 2]) == (2, 1)
    assert good("yes", y=np.array(["no", "yes", "often"])[Y]) == (2,)
    assert good([1], y=Y + 1, classes=[1, 2, 3]) == (0,)
    assert arrays(a=np.array(["x 10", "x 9"])[A]).groups.names == ("x 9", "x 10")


def test_columns_and_index_of_any_kind():
    table = people().set_axis(range(7), axis=1)
    table.index = np.arange(N)[::-1] // 2
    task = Task.from_frame(table, label=5, client=6, sensitive=3)
    assert torch.equal(task.x, frame(sensitive="sex").x)
    t, both = people(), ["age", "income"]
    one = frame(features=both, standardise=False)
    two = arrays(t[both].to_numpy(np.float32), t["ill"], t["clinic"])
    assert torch.equal(one.x, two.x) and rows_of(one) == rows_of(two)
    assert one.network == Linear(2, 2) and arrays(IMAGES).network == CNN(3, 3)


LABELS = [  # (labels, classes=, numbers, names)
    (["b 10", "b 9", "a"], None, [2, 1, 0], ("a", "b 9", "b 10")),
    ([True, False, True], None, [1, 0, 1], ("False", "True")),
    ([2.0, 0.0, 1.0], None, [2, 0, 1], ()),
    ([1, 2, 3], [3, 2, 1], [2, 1, 0], ("3", "2", "1")),
    ([0, 2, 1], ["no", "a", "b"], [0, 2, 1], ("no", "a", "b")),
    (["lo", "hi", "lo"], ["lo", "hi"], [0, 1, 0], ("lo", "hi")),
]


def test_labels_and_their_order():
    for y, classes, want, names in LABELS:
        at = np.arange(N) % len(y)
        task = arrays(np.arange(N)[:, None] / N, [y[i] for i in at], classes=classes)
        i = (task.x[:, 0] * N).round().long()
        assert task.y.tolist() == [want[at[k]] for k in i] and task.classes == names, y
        assert task.K == (len(classes) if classes is not None else len(set(y))), y
    grades = pd.CategoricalDtype(["low", "middle", "high", "never"], ordered=True)
    y = pd.Series(["high", "low", "middle"] * 80, dtype=grades)
    assert arrays(y=y).classes == ("low", "middle", "high")
    assert arrays(y=y.astype(str)).classes == ("high", "low", "middle")
    assert arrays(y=y, classes=list(grades.categories)).K == 4


def test_clients_in_natural_order():
    want = ["Clinic 3", "bay 11", "clinic 1", "clinic 1b", "clinic 2", "clinic 10"]
    first = [-3, False, 2, 2.5, 10]
    assert sorted([*want[::-1], *first[::-1]], key=natural) == [*first, *want]
    c = np.arange(N) % 12
    for ids in (c, c + 0.0, torch.from_numpy(c), pd.Series(c)):
        task = arrays(np.stack([c, c], 1) / 12, client_id=ids)
        assert task.owners == tuple(map(str, range(12)))
        for k, own in enumerate(rows_of(task)):
            assert set((task.x[sum(own, [])] * 12).round().flatten().tolist()) == {k}


def test_the_name_tells_contents_apart():
    base, more = arrays(a=A), {"a": A, "name": "arrays"}
    assert arrays(**more).name == base.name and base.name.startswith("arrays-")
    changes = [{"x": put(X, (3, 1), 0.5)}, {"y": np.roll(Y, 1)}, {"a": 1 - A}]
    changes += [{"client_id": C[::-1]}, {"positive": [0]}, {"classes": range(4)}]
    for change in [*changes, {"name": "other"}, {"split": 1}]:
        assert arrays(**more | change).name != base.name, change
    assert arrays().x.dtype == torch.float64
    assert arrays(x=X.tolist()).x.dtype == torch.float32  # as torch reads lists


PAIRS = torch.utils.data.TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))


def dataset(ds=PAIRS, client=C, **more):
    return Task.from_dataset(ds, client=client, **more)


def dicts(**columns):
    return [dict(zip(columns, row)) for row in zip(*columns.values())]


def pictures(mode="RGB"):
    from PIL import Image

    pixels = np.random.RandomState(5).randint(0, 256, (N, 8, 9, 3)).astype(np.uint8)
    return [Image.fromarray(v).convert(mode) for v in pixels]


def test_data_sets_of_any_kind():
    want, lists = arrays(X.astype(np.float32)), list(zip(X, Y))
    named = {"label": "z", "features": "inputs", "client": "who"}
    for task in (
        dataset([(k, v, "more") for v, k in lists], label=0),
        dataset([("id", v, k) for v, k in lists], label=2, features=1),
        dataset(dicts(x=X, label=Y, who=C), client="who"),
        dataset(dicts(inputs=X, z=Y, who=C), **named),
    ):
        assert task.name.replace("dataset", "arrays") == want.name
        assert torch.equal(task.x, want.x) and torch.equal(task.y, want.y)
        assert task.owners == ("a", "b") and task.kind == "own"
    grouped = dataset(sensitive=lambda i, item: ["f", "m"][A[i]], positive=[1, 2])
    assert (grouped.groups.names, grouped.groups.positive) == (("f", "m"), (1, 2))
    by_class = dataset(client=lambda i, item: isinstance(item, tuple) and int(item[1]))
    assert by_class.owners == ("0", "1", "2"), "a function sees an item as it is"
    named = torch.utils.data.TensorDataset(*PAIRS.tensors)
    named.classes = ["none", "some", "much", "all"]
    assert dataset(named).classes == tuple(named.classes)


def test_pictures_are_floats_with_channels_first():
    told = lambda t: (t.name.split("-")[1], t.x.dtype)
    for mode in ("L", "RGB", "P", "1", "CMYK"):
        images, grey = pictures(mode), mode in ("L", "1")
        v = np.stack([np.array(v.convert("L" if grey else "RGB")) for v in images])
        v = (v[:, None] if grey else v.transpose(0, 3, 1, 2)) / np.float32(255)
        assert told(dataset(list(zip(images, Y)))) == told(arrays(v)), mode
    pixels = np.stack([np.array(v) for v in pictures()])
    want, first = dataset(list(zip(pictures(), Y))), pixels.transpose(0, 3, 1, 2)
    for v in (pixels, first, torch.tensor(first) / 255):
        assert torch.equal(dataset(list(zip(v, Y))).x, want.x)
    assert dataset(list(zip(pixels[..., 0], Y))).x.shape == (N, 1, 8, 9)
    both = np.random.RandomState(0).randint(0, 256, (3, 8, 3)).astype(np.uint8)
    assert items.picture(both, 0).shape == (3, 3, 8)  # an array has its channels last
    assert items.picture(torch.from_numpy(both), 0).shape == (3, 8, 3)  # a tensor first


def test_hugging_face():
    hf = pytest.importorskip("datasets")
    hf.disable_progress_bars()
    columns = {"x": X.tolist(), "label": Y.tolist(), "who": C.tolist()}
    ds, want = hf.Dataset.from_dict(columns), arrays(X.astype(np.float32))
    task = dataset(ds, "who", features="x")
    assert torch.equal(task.x, want.x) and torch.equal(task.y, want.y)
    labelled = ds.cast_column("label", hf.ClassLabel(names=["no", "yes", "often"]))
    task = dataset(labelled.select(np.flatnonzero(Y < 2)), C[Y < 2], features="x")
    assert task.classes == ("no", "yes", "often") and task.K == 3


BAD_COLUMN = {  # a column of a table that cannot be an input, or hold labels
    "v": [pd.date_range("1990", periods=N), X[:, 0] * 1j, put(np.ones(N), 6, INF)]
    + [listed(["x", "y"] * 120, 9, v) for v in (None, " ", 1)]
    + [[f"town {i % 121}" for i in range(N)], listed(np.ones(N), 9, None)],
    "ill": [X[:, 0], "no", listed(C, 3, None)],
    "clinic": [listed(C, 3, None), X[:, 0]],
}
BAD_FRAME = {"df": (X, people()["age"], people()[:0]), "standardise": ("yes", 1)}
BAD_FRAME |= {"label": ("il", None, ["ill"], "clinic"), "client": ("clinics", "ill")}
BAD_FRAME |= {"features": (["agee"], [], ["age", "age"], ["age", "ill"])}
BAD_FRAME |= {"sensitive": ("gender", "ill", ["sex"])}
SETS = [torch.utils.data.DataLoader(PAIRS), people(), X, [], list(X)]
SETS += [[(v[: 2 + (i == 7)], i % 2) for i, v in enumerate(X)]]
BAD_SET = {"ds": SETS, "label": (2, "y", -1), "features": (5, 1, [0, 1])}
BAD_SET |= {"client": ("who", C[:5], None, 1), "sensitive": (A[:5],)}


def test_tables_and_data_sets_that_are_none():
    call = lambda df=None, **more: frame(df, **more)
    found = [*each(call, BAD_FRAME), *each(dataset, BAD_SET)]
    rows = [(v, f, *[k] * (k not in ("ds", "df"))) for v, f, k in found]
    rows += each(lambda **column: frame(people(**column)), BAD_COLUMN)
    gaps = people()
    gaps.loc[4, "age"], gaps.loc[[9, 11], "job"] = NAN, None
    rows += [("gaps", lambda: frame(gaps), "age", 1, "job", 2, "row 4")]
    tiny = people(clinic=listed(C, slice(9), [*"tttuuuvvv"]))  # all are named at once
    rows += [("small", lambda: frame(tiny), "t", "u", "v", "3 of 5")]
    lost = {"client": "who", "sensitive": "gender", "features": ["age", "agee"]}
    rows += [("lost", lambda: frame(**lost), "who", "gender", "agee")]
    both = people(day=pd.Timestamp("1990"), name=[f"n{i}" for i in range(N)])
    rows += [("two", lambda: frame(both.assign(time=both.day)), "day", "time", "name")]
    all_refused(rows)


rising, R = lambda k: np.arange(N) * k // N, np.random.RandomState(4)
pick = lambda *words: np.array(words)[R.randint(0, len(words), N)]
last = lambda *s: arrays(R.rand(N, *s), network=Linear(int(np.prod(s)), 3))
column = lambda v, **more: frame(people(v=v), **more)
ILL, AGE = people()["ill"] == "yes", people()["age"]
MIXED, I, G = X[:, :2].repeat(2, 0)[:N], np.arange(N), rising(3)
TWO, THREE = ["b"] * 200 + ["a"] * 40, G + (I > 215)
GRADE, SEX = np.array(["low", "mid", "high"])[G], pick("m", " M", "f")
DAYS, TEXT = pick("2020-01-02", "2020-01-03", "2021-05-06"), AGE.astype(str)
COMMAS = [f"{v:.1f}".replace(".", ",") for v in X[:, 0]]
STRANGE = {  # what can be trained on and looks wrong: (call, *what is named)
    "far": (lambda: arrays(put(X, (5, 3), -2e4)), "column 3", 20000),
    "pixels": (lambda: arrays((IMAGES * 255).round()), 255),
    "bytes": (lambda: arrays((IMAGES * 255).astype(np.uint8)), 255),
    "turned": (lambda: arrays(IMAGES.transpose(0, 2, 3, 1)), "3 bands"),
    "13 bands last": (lambda: last(16, 20, 13), "13 bands"),
    "100 bands last": (lambda: last(9, 9, 100), "100 bands"),
    "few test rows": (lambda: arrays(client_id=THREE), "4 of 4", "3", 2, 50),
    "few at one": (lambda: arrays(client_id=TWO), "1 of 2", "a", 4),
    "one client": (lambda: arrays(client_id=[7] * N), "client_id", 7),
    "a copy": (lambda: column(ILL * 2 + 7), "v", "ill"),
    "a copy in words": (lambda: column(np.where(ILL, "b", "a")), "v", "ill"),
    "a finer copy": (lambda: column(ILL * 9 + I % 4), "v", "ill"),
    "behind a threshold": (lambda: column(ILL + X[:, 0].clip(0, 0.99)), "v", "ill"),
    "a copy in arrays": (lambda: arrays(np.c_[X, Y]), "5 of x", "y"),
    "row number": (lambda: frame(people(**{"Unnamed: 0": I})), "Unnamed: 0", N),
    "shuffled": (lambda: column(np.random.RandomState(1).permutation(N) + 9.0), "v", N),
    "in each client": (lambda: arrays(np.c_[X, I % 120]), "5 of x", 120),
    "named so": (lambda: frame(people(patientID=I // 3)), "patientID", 80),
    "ages as text": (lambda: column(TEXT), "v", "to_numeric"),
    "euros": (lambda: column([f"€ {v}" for v in AGE]), "v"),
    "decimal comma": (lambda: column(COMMAS), "v", "to_numeric"),
    "thousands": (lambda: column([f"{1000 * v:,}" for v in AGE]), "v", "to_numeric"),
    "a stray ?": (lambda: column(listed(TEXT, 5, "?")), "v", "?", "to_numeric"),
    "days as text": (lambda: column(DAYS), "v"),
    "client twice": (lambda: arrays(client_id=pick("a", "A ", "b")), "client_id", "a"),
    "label twice": (lambda: arrays(y=pick(" <=50K", " <=50K.", " >50K")), "y", "<=50K"),
    "group twice": (lambda: frame(people(sex=SEX), sensitive="sex"), "sensitive 'sex'"),
    "word twice": (lambda: column(pick("A B", "a_b ", "x")), "v", "a_b"),
    "rows twice": (lambda: arrays(MIXED, Y.repeat(2)[:N]), f"{N} of {N}", 0, 1),
    "pictures": (lambda: arrays(IMAGES[I % 120], Y[I % 120]), 0, 120),
    "which outcome": (lambda: arrays(y=GRADE, a=A), "group", "low", "positive"),
    "no test rows": (lambda: arrays(a=put(A, [0, 1], 2), y=Y % 2), "group", "2 0 + 0"),
    "few in a cell": (lambda: arrays(a=A, y=Y % 2), "group", "1 / rows"),
}


def test_what_looks_wrong_is_said_at_the_callers_line():
    bad = []
    for case, (call, *names) in STRANGE.items():
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            assert call().C, case
        found = [w for w in seen if not lacks(str(w.message), *names)]
        if not found or not found[0].filename.endswith(("_in.py", "_input.py")):
            bad.append(f"{case}: {[str(w.message) for w in seen]}")
    assert not bad, "\n".join(bad)


def test_what_is_right_draws_no_warning():
    flags = (np.random.RandomState(2).rand(6000, 3) > 0.5) * 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        arrays(a=A, positive=1, parts=(0.4, 0.1, 0.5))
        arrays(X * 900 / abs(X).max())
        arrays(1000 * (I[:, None] % 7) + 2000, network=Linear(1, 3))  # places of words
        arrays(flags, np.arange(6000) % 3, np.arange(6000) % 8)  # alike by nature
        arrays(R.rand(N, 13, 16, 14))
        column(pick("e1", "2", "10", "other", "none", "3+"), parts=(0.4, 0.1, 0.5))
        column(TEXT.astype("category"), parts=(0.4, 0.1, 0.5))  # a code is meant
        assert arrays(IMAGES).C and frame(parts=(0.4, 0.1, 0.5)).C and dataset().C


def test_a_sensitive_column_is_the_code_of_its_group():
    """As it is, whatever it is called, so that methods read the right group."""
    for values in (G, G + 1, 10.0 * G, np.array(["A", "B", "C"])[G], pd.Categorical(G)):
        task = column(values, sensitive="v")
        j, order = task.groups.column, order_of(people())
        assert torch.equal(task.x[:, j].long(), task.a), values
        assert task.a.tolist() == G[order].tolist() and task.x[:, j].max() == 2
    beside = frame(people(race=np.array(["A", "B", "C"])[G], v=G), sensitive="race")
    (block,) = (b for b in beside.groups.schema if b.name == "race")
    assert beside.groups.column == block.start
    assert column(AGE % 3, sensitive="sex").x[:, -1].min() < 0  # standardised


def test_words_of_a_file_are_what_they_say(tmp_path):
    from fedlib.core.userdata import read

    text = "client,drug,age,y\nNA,None,3,1\nCH,N/A,NA,0\nDE,,5,1\n"
    for name, sep in (("t.csv", ","), ("t.tsv", "\t")):
        (tmp_path / name).write_text(text.replace(",", sep))
        table = read(tmp_path / name)
        assert table.client.tolist() == ["NA", "CH", "DE"]
        assert table.drug.tolist()[:2] == ["None", "N/A"] and table.drug.isna()[2]
        assert table.age.isna().tolist() == [False, True, False]
    for bad in ("a,b\n1,2,3\n4,5,6\n", "a,b\n1,2\n1,2,3\n", "Zürich,b\n1,2\n"):
        (tmp_path / "bad.csv").write_bytes(bad.encode("latin-1"))
        refused(lambda: read(tmp_path / "bad.csv"), "bad.csv", "UTF-8")
