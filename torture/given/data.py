"""Somebody's own data: {case: (what is called, words of the message)} of what must be
refused (BAD) and of what must be warned about (WARN).
"""

import importlib
from dataclasses import replace

import numpy as np
import pandas as pd
import scipy.sparse
import torch
from PIL import Image
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from fedlib.core.pool import Pool
from fedlib.core.task import Task
from fedlib.nets import Linear
from goldens.numbers.toys import toy

N = 240

X = np.random.RandomState(0).randn(N, 5)

Y, C, A = np.arange(N) % 3, np.array(["a", "b"]).repeat(N // 2), np.arange(N) // 3 % 2

IMAGES = np.random.RandomState(1).rand(N, 3, 8, 9)

NAN, INF = float("nan"), float("inf")


def arrays(x=X, y=Y, client_id=C, **more):
    return Task.from_arrays(x, y, client_id, **more)


def put(v, at, value, dtype=None):
    """A copy of v with another entry."""
    v = np.array(v, dtype=dtype)
    v[at] = value
    return v


def listed(v, at, value):
    v = list(v)
    v[at] = value
    return v


def masked(v):
    return np.ma.masked_array(v, mask=np.arange(v.size).reshape(v.shape) % 7 == 0)


def df(**columns):
    """A table of 240 people; what is given is another column, or one more."""
    r = np.random.RandomState(3)
    age = r.randint(18, 90, N)
    sex = r.choice(["woman", "man"], N)
    usual = {
        "age": age,
        "income": 500.0 * age + 2000 * r.rand(N),
        "job": r.choice(["nurse", "clerk", "cook"], N),
        "sex": sex,
        "smokes": r.rand(N) < 0.3,
        "ill": np.where(age + 20 * r.randn(N) > 54, "yes", "no"),
        "clinic": [f"clinic {i % 12}" for i in range(N)],
    }
    return pd.DataFrame(usual | columns)


def frame(table=None, **more):
    how = {"label": "ill", "client": "clinic"} | more
    return Task.from_frame(df() if table is None else table, **how)


PAIRS = TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))


def dataset(ds=PAIRS, client=C, **more):
    return Task.from_dataset(ds, client=client, **more)


def dicts(**columns):
    """Items that are dicts, of columns."""
    rows = zip(*columns.values())
    return [dict(zip(columns, row)) for row in rows]


def pictures(mode="RGB", n=N):
    r = np.random.RandomState(5)
    shape = (8, 9, 3) if mode != "L" else (8, 9)
    image = [
        Image.fromarray(r.randint(0, 256, shape).astype(np.uint8)) for _ in range(n)
    ]
    return [v.convert(mode) for v in image]


class Stream(IterableDataset):
    def __iter__(self):
        return iter(PAIRS)


def columns():
    """A Hugging Face data set in memory."""
    hf = importlib.import_module("datasets")
    hf.disable_progress_bars()
    return hf.Dataset.from_dict(
        {"x": X.tolist(), "label": Y.tolist(), "who": C.tolist()}
    )


def rows_pool(n=40):
    g = torch.Generator().manual_seed(0)
    return Pool("mine", torch.randn(n, 5, generator=g), torch.arange(n) % 3, 3, "own")


def rows(**more):
    cut = list(torch.arange(40).split(20))
    return Task.from_rows("mine", Linear(5, 3), rows_pool(), cut, **more)


# what is called, words of the message: what was wrong and where, and what to do
BAD = {
    # ------------------------------------------------------------ x
    "x None": (lambda: arrays(x=None), "x = None", "give an array"),
    "x text": (lambda: arrays(x="data.csv"), "x = 'data.csv'", "give an array"),
    "x number": (lambda: arrays(x=3), "x = 3", "give an array"),
    "x dict": (lambda: arrays(x={"a": 1}), "x = {'a': 1}", "give an array"),
    "x set": (lambda: arrays(x={1, 2}), "x = {1, 2}", "give an array"),
    "x generator": (lambda: arrays(x=(v for v in X)), "(generator)", "give an array"),
    "x 0-D": (lambda: arrays(x=np.float64(2)), "shape []", "give a row of numbers"),
    "x 1-D": (lambda: arrays(x=X[:, 0]), "x has shape [240]", "give x[:, None]"),
    "x no rows": (lambda: arrays(X[:0], Y[:0], C[:0]), "shape [0, 5]", "give rows"),
    "x no columns": (lambda: arrays(x=X[:, :0]), "shape [240, 0]", "give rows and"),
    "x complex": (lambda: arrays(x=X + 1j), "complex128", "give its real and"),
    "x complex tensor": (lambda: arrays(x=torch.ones(N, 2) * 1j), "complex64", "give"),
    "x masked": (lambda: arrays(x=masked(X)), "172 of its entries are", "leave these"),
    "x sparse": (
        lambda: arrays(x=scipy.sparse.csr_array(X)),
        "csr_array",
        ".toarray()",
    ),
    "x sparse tensor": (
        lambda: arrays(x=torch.from_numpy(X).to_sparse()),
        "torch.sparse_coo",
        "give x.to_dense()",
    ),
    "x ragged": (lambda: arrays(x=[[1.0, 2.0], [1.0]]), "different shapes", "pad"),
    "x ragged tensors": (
        lambda: arrays(x=[torch.ones(2), torch.ones(3)]),
        "different shapes",
        "pad, cut or resize",
    ),
    "x text entries": (lambda: arrays(x=X.astype(str)), "text (<U", "give numbers"),
    "x bytes": (lambda: arrays(x=X.astype("S")), "text (|S", "Task.from_frame"),
    "x objects": (lambda: arrays(x=put(X, (0, 0), "a", object)), "'a'", "give numbers"),
    "x object numbers": (lambda: arrays(x=X.astype(object)), "objects", "give numbers"),
    "x dates": (
        lambda: arrays(x=np.full((N, 1), np.datetime64("2026-01-01"))),
        "dates (datetime64[D])",
        "give numbers",
    ),
    "x durations": (
        lambda: arrays(x=np.full((N, 1), np.timedelta64(3, "s"))),
        "durations (timedelta64[s])",
        "give numbers",
    ),
    "x nan": (
        lambda: arrays(x=put(X, (7, 2), NAN)),
        "1 rows of x hold NaN or infinity, the first is row 7 in column 2 (nan)",
        "drop or impute",
    ),
    "x inf": (lambda: arrays(x=put(X, (7, 2), INF)), "row 7 in column 2 (inf)", "drop"),
    "x -inf": (lambda: arrays(x=put(X, (0, 4), -INF)), "column 4 (-inf)", "drop or"),
    "x None inside": (lambda: arrays(x=[[1, None]] * N), "objects", "give numbers"),
    "x large ints": (
        lambda: arrays(x=put(Y[:, None], 9, 2**24 + 1)),
        "the whole number 16777217",
        "give x as float64",
    ),
    "x large negative ints": (
        lambda: arrays(x=put(Y[:, None], 9, -(2**40))),
        "the whole number -1099511627776",
        "leave out",
    ),
    "x large unsigned": (
        lambda: arrays(x=put(Y[:, None], 9, 2**63, np.uint64)),
        "the whole number 9223372036854775808",
        "give x as float64",
    ),
    "x large int tensor": (
        lambda: arrays(x=torch.full((N, 1), 2**30)),
        "the whole number 1073741824",
        "give x as float64",
    ),
    "channels last": (
        lambda: arrays(x=IMAGES.transpose(0, 2, 3, 1)),
        "[240, 8, 9, 3], images with their 3 channels last",
        "x.transpose(0, 3, 1, 2)",
    ),
    "grey channels last": (
        lambda: arrays(x=IMAGES[:, 0, :, :, None]),
        "[240, 8, 9, 1], images with their 1 channels last",
        "x.permute(0, 3, 1, 2)",
    ),
    "uint8 pixels": (
        lambda: arrays(x=(IMAGES * 255).astype(np.uint8)),
        "uint8 values up to 254",
        "divide by 255",
    ),
    "int pixels": (
        lambda: arrays(x=(IMAGES * 255).astype(int)),
        "int64 values up to 254",
        "divide by 255",
    ),
    "uint8 pixels, tensor": (
        lambda: arrays(x=torch.from_numpy(IMAGES * 255).to(torch.uint8)),
        "torch.uint8 values up to 254",
        "divide by 255",
    ),
    "uint8 grey": (
        lambda: arrays(x=(IMAGES[:, 0] * 255).astype(np.uint8)),
        "[240, 8, 9] and uint8 values up to 25",
        "divide by 255",
    ),
    "x table with words": (
        lambda: arrays(x=df()[["age", "job"]]),
        "column 'job' of x is str",
        "Task.from_frame",
    ),
    "x table with gaps": (
        lambda: arrays(x=pd.DataFrame(X).replace({0: {X[3, 0]: NAN}})),
        "column 0 of x has 1 missing",
        "drop these rows",
    ),
    "x table with NA": (
        lambda: arrays(x=pd.DataFrame({"v": pd.array([1, None] * 120, dtype="Int64")})),
        "column 'v' of x has 120 missing",
        "fill them",
    ),
    "x table with dates": (
        lambda: arrays(x=pd.DataFrame({"day": pd.date_range("2026", periods=N)})),
        "column 'day' of x is datetime64",
        "give the DataFrame to Task.from_frame",
    ),
    "x without data": (
        lambda: arrays(x=torch.ones(N, 2, device="meta")),
        "x is a tensor of the device meta, without data",
        "give an array",
    ),
    "x large unsigned tensor": (
        lambda: arrays(x=torch.full((N, 1), 2**30, dtype=torch.uint32)),
        "the whole number 1073741824",
        "give x as float64",
    ),
    # ------------------------------------------------------------ rows that fit
    "short x": (
        lambda: arrays(x=X[:-1]),
        "x has 239 rows, y 240, client_id 240",
        "give",
    ),
    "short y": (lambda: arrays(y=Y[:-1]), "x has 240 rows, y 239", "give one label"),
    "short client_id": (lambda: arrays(client_id=C[:-1]), "client_id 239", "give one"),
    "short a": (lambda: arrays(a=A[:3]), "a has 3 entries for 240 rows", "give the"),
    "index of y": (
        lambda: arrays(pd.DataFrame(X), pd.Series(Y, range(N)[::-1])),
        "x and y have different indexes, at position 0 it is 0 and 239",
        "reset_index(drop=True)",
    ),
    "index of client_id": (
        lambda: arrays(y=pd.Series(Y), client_id=pd.Series(C, range(5, N + 5))),
        "y and client_id have different indexes, at position 0 it is 0 and 5",
        "take client_id.loc[y.index]",
    ),
    "index of a": (
        lambda: arrays(
            pd.DataFrame(X), a=pd.Series(A, np.arange(N) + (np.arange(N) > 8))
        ),
        "x and a have different indexes, at position 9 it is 9 and 10",
        "take a.loc[x.index]",
    ),
    # ------------------------------------------------------------ y
    "y None": (lambda: arrays(y=None), "y = None", "give the class of every row"),
    "y text": (lambda: arrays(y="label"), "y = 'label'", "give the class of every"),
    "y 0-D": (lambda: arrays(y=np.array(3)), "y has shape []", "one value per row"),
    "y 0-D tensor": (lambda: arrays(y=torch.tensor(3)), "y has shape []", "one value"),
    "y fractions": (lambda: arrays(y=Y + 0.5), "row 0 has 0.5", "make bands"),
    "y nan": (
        lambda: arrays(y=put(Y, 4, NAN, float)),
        "row 4 (nan)",
        "leave such rows",
    ),
    "y inf": (lambda: arrays(y=put(Y, 4, INF, float)), "row 4 has inf", "make bands"),
    "y None inside": (lambda: arrays(y=listed(Y, 4, None)), "row 4 (None)", "leave"),
    "y NA": (
        lambda: arrays(y=pd.Series(listed(Y, 4, None), dtype="Int64")),
        "y is missing at row 4 (<NA>)",
        "leave such rows out",
    ),
    "y empty text": (lambda: arrays(y=listed(C, 4, " ")), "row 4 (' ')", "leave such"),
    "y complex": (lambda: arrays(y=Y + 1j), "complex at row 0 (1j)", "give the class"),
    "y complex tensor": (
        lambda: arrays(y=torch.ones(N) * 1j),
        "complex at row",
        "give",
    ),
    "y without data": (
        lambda: arrays(y=torch.ones(N, device="meta")),
        "y is a tensor of the device meta, without data",
        "give the class",
    ),
    "y sparse tensor": (
        lambda: arrays(y=torch.from_numpy(Y).to_sparse()),
        "y is a torch.sparse_coo tensor",
        "give y.to_dense()",
    ),
    "y yes and numbers": (
        lambda: arrays(y=listed(Y.tolist(), 4, True)),
        "y holds True at row 4 and the number 0",
        "write all as numbers",
    ),
    "y masked": (lambda: arrays(y=masked(Y)), "35 of its entries are", "leave these"),
    "y negative": (lambda: arrays(y=Y - 1), "from -1 to 1", "classes=[-1, 0, 1]"),
    "y minus one, one": (lambda: arrays(y=Y % 2 * 2 - 1), "from -1 to 1", "[-1, 1]"),
    "y from 1": (
        lambda: arrays(y=Y + 1),
        "labels run from 1 to 3, and no row has 0",
        "List every class that can occur, classes=[1, 2, 3]",
    ),
    "y gap": (
        lambda: arrays(y=Y + (Y == 2)),
        "labels run from 0 to 3, and no row has 2",
        "classes=range(4)",
    ),
    "y huge": (
        lambda: arrays(y=put(Y, 4, 10**12)),
        "labels run from 0 to 1000000000000, and no row has 3",
        "numpy.unique(y, return_inverse=True)[1]",
    ),
    "y huge float": (lambda: arrays(y=put(Y, 4, 1e300, float)), "no row has 3", "List"),
    "y one class": (
        lambda: arrays(y=Y * 0),
        "only the class 0 in its 240",
        "give rows",
    ),
    "y one word": (lambda: arrays(y=["no"] * N), "only the class 'no'", "give rows"),
    "y one class of the list": (
        lambda: arrays(y=Y * 0, classes=range(3)),
        "only the class 0 in its 240 rows",
        "give rows of two classes",
    ),
    "y one-hot": (lambda: arrays(y=np.eye(3)[Y]), "[240, 3]", "give y.argmax(1)"),
    "y one-hot tensor": (
        lambda: arrays(y=torch.eye(3)[torch.from_numpy(Y)]),
        "y has shape [240, 3]",
        "give y.argmax(1)",
    ),
    "y one-hot list": (lambda: arrays(y=np.eye(3)[Y].tolist()), "[240, 3]", "y.argmax"),
    "y column": (lambda: arrays(y=Y[:, None]), "[240, 1]", "y[:, 0]"),
    "y several": (lambda: arrays(y=np.ones((N, 4))), "[240, 4]", "give one class per"),
    "y table": (lambda: arrays(y=df()[["ill"]]), "shape [240, 1]", "give one column"),
    "y dates": (
        lambda: arrays(y=np.full(N, np.datetime64("NaT"))),
        "y is missing at row 0",
        "leave such rows out",
    ),
    "y lists": (
        lambda: arrays(y=listed(Y, 4, [1])),
        "holds a list at row 4",
        "give the",
    ),
    "y mixed": (
        lambda: arrays(y=listed(map(int, Y), 4, "yes")),
        "as 'yes' at row 4 and 0 at row 0",
        "write all as text",
    ),
    "y not in classes": (
        lambda: arrays(y=put(C, 4, "c"), classes=["a", "b"]),
        "y holds 'c' at row 4, which is not among classes = ['a', 'b']",
        "add it, or leave",
    ),
    "y nearly in classes": (
        lambda: arrays(
            y=put(C.astype("U9"), 4, "healthe"), classes=["a", "b", "healthy"]
        ),
        "did you mean 'healthy'?",
        "add it",
    ),
    "y number not in classes": (
        lambda: arrays(y=Y, classes=[0, 1]),
        "y holds 2 at row 2",
        "add it",
    ),
    "fewer names": (
        lambda: arrays(y=Y, classes=["no", "yes"]),
        "labels run from 0 to 2, and classes has 2 names",
        "list the names",
    ),
    "classes text": (lambda: arrays(classes="abc"), "classes = 'abc'", "list all"),
    "classes number": (lambda: arrays(classes=3), "classes = 3", "list all classes"),
    "classes one": (lambda: arrays(classes=["a"]), "classes = ['a']", "two or more"),
    "classes twice": (lambda: arrays(classes=[0, 1, 1]), "[0, 1, 1]", "each once"),
    "classes None": (lambda: arrays(classes=[0, 1, None]), "None]", "list all classes"),
    "classes lists": (lambda: arrays(classes=[[0], [1]]), "[[0], [1]]", "list all"),
    # ------------------------------------------------------------ client_id
    "client None": (
        lambda: arrays(client_id=None),
        "client_id = None",
        "give the client",
    ),
    "client text": (
        lambda: arrays(client_id="clinic"),
        "= 'clinic'",
        "give the client",
    ),
    "client None inside": (
        lambda: arrays(client_id=listed(C, 5, None)),
        "client_id is missing at row 5 (None)",
        "leave such rows out",
    ),
    "client nan": (
        lambda: arrays(client_id=put(Y, 5, NAN, float)),
        "client_id is missing at row 5 (nan)",
        "leave such rows out",
    ),
    "client nan in a Series": (
        lambda: arrays(client_id=pd.Series(listed(C, 5, None))),
        "client_id is missing at row 5 (nan)",
        "leave such rows out",
    ),
    "client empty": (lambda: arrays(client_id=listed(C, 5, "")), "row 5 ('')", "leave"),
    "client 2-D": (
        lambda: arrays(client_id=np.stack([Y, Y], 1)),
        "client_id has shape [240, 2]",
        "one value per row",
    ),
    "client column": (lambda: arrays(client_id=Y[:, None]), "[240, 1]", "v[:, 0]"),
    "client table": (lambda: arrays(client_id=df()[["clinic"]]), "[240, 1]", "give"),
    "client lists": (
        lambda: arrays(client_id=[[c] for c in C.tolist()]),
        "client_id holds a list at row 0 (['a'])",
        "one value per row",
    ),
    "client fractions": (
        lambda: arrays(client_id=X[:, 0]),
        f"client_id holds the fraction {X[:, 0].min():.9f}"[:40],
        "as names or whole numbers",
    ),
    "client inf": (lambda: arrays(client_id=put(Y, 5, INF, float)), "inf", "whole num"),
    "client complex": (
        lambda: arrays(client_id=Y * 1j),
        "complex at row 0",
        "give the",
    ),
    "client masked": (
        lambda: arrays(client_id=masked(C)),
        "masked",
        "leave these rows",
    ),
    "client 1 and '1'": (
        lambda: arrays(client_id=[1, "1"] * (N // 2)),
        "client_id holds 1 and '1', which read the same",
        "write one of them",
    ),
    "client is the row": (
        lambda: arrays(client_id=np.arange(N)),
        "client_id takes 240 different values in 240 rows",
        "say whose row it is",
    ),
    "client of one row": (
        lambda: arrays(client_id=put(C, 5, "c")),
        "client 2 has 0 training and 0 test samples",
        "merge it with another",
    ),
    "its name": (
        lambda: arrays(client_id=put(C, 5, "c")),
        "its name is 'c'",
        "drop it",
    ),
    # ------------------------------------------------------------ a and positive
    "a nan": (
        lambda: arrays(a=put(A, 3, NAN, float)),
        "a is missing at row 3",
        "leave",
    ),
    "a None": (lambda: arrays(a=listed(A, 3, None)), "row 3 (None)", "give the group"),
    "a 2-D": (lambda: arrays(a=A[:, None]), "a has shape [240, 1]", "give the group"),
    "a text": (lambda: arrays(a="sex"), "a = 'sex'", "give the group of every row"),
    "a masked": (lambda: arrays(a=masked(A)), "a is a masked array", "leave these"),
    "a fractions": (lambda: arrays(a=X[:, 0]), "a holds the fraction", "pandas.cut"),
    "a constant": (lambda: arrays(a=A * 0), "only the value 0", "leave it out"),
    "a complex": (lambda: arrays(a=A * 1j), "a is complex at row 0", "give the group"),
    "positive outside": (
        lambda: arrays(a=A, positive=[7]),
        "positive names the class 7, and y has 0, 1, 2",
        "name classes",
    ),
    "positive name": (
        lambda: arrays(y=C, a=A, positive="c"),
        "positive names the class 'c', and y has 'a', 'b'",
        "name classes",
    ),
    "positive nearly": (
        lambda: frame(sensitive="sex", positive="yess"),
        "'yess', and label 'ill' has 'no', 'yes'; did you mean 'yes'?",
        "name classes",
    ),
    "positive without a": (lambda: arrays(positive=[1]), "positive = [1]", "give a"),
    "positive none": (lambda: arrays(a=A, positive=[]), "0 of 240 rows", "choose the"),
    "positive all": (lambda: arrays(a=A, positive=[0, 1, 2]), "240 of 240", "choose"),
    "client yes and numbers": (
        lambda: arrays(client_id=listed((Y % 2).tolist(), 4, False)),
        "client_id holds False at row 4 and the number 0",
        "write all as numbers",
    ),
    # --------------------------------------------------------- how it is cut and called
    "unknown argument": (
        lambda: arrays(bach=32),
        "a task takes no argument 'bach'; did you mean 'batch'?",
        "further arguments are a, groups, guests, batch",
    ),
    "unknown argument of a table": (lambda: frame(x=X), "no argument 'x'", "further"),
    "unknown argument of rows": (lambda: rows(K=3), "no argument 'K'", "further"),
    "kind": (lambda: arrays(kind="banana"), "kind = 'banana'", "give own"),
    "kind nearly": (
        lambda: arrays(kind="standin"),
        "did you mean 'stand-in'?",
        "give own",
    ),
    "kind None": (lambda: arrays(kind=None), "kind = None", "give own"),
    "batch 1.5": (
        lambda: arrays(batch=1.5),
        "batch = 1.5",
        "give a positive batch size",
    ),
    "batch True": (lambda: arrays(batch=True), "batch = True", "give a positive"),
    "batch 0": (lambda: arrays(batch=0), "batch = 0", "give a positive batch size"),
    "batch text": (lambda: arrays(batch="32"), "batch = '32'", "give a positive"),
    "batch None": (lambda: arrays(batch=None), "batch = None", "give a positive"),
    "split 1.5": (lambda: arrays(split=1.5), "split = 1.5", "give a whole number"),
    "split text": (lambda: arrays(split="0"), "split = '0'", "give a whole number"),
    "split True": (lambda: arrays(split=True), "split = True", "give a whole number"),
    "split None": (lambda: arrays(split=None), "split = None", "give a whole number"),
    "parts nan": (
        lambda: arrays(parts=(0.8, NAN, 0.1)),
        "(0.8, nan, 0.1)",
        "give three",
    ),
    "parts inf": (lambda: arrays(parts=(INF, -INF, 1)), "(inf, -inf, 1)", "give three"),
    "parts text": (lambda: arrays(parts="abc"), "parts = 'abc'", "give three shares"),
    "parts None": (lambda: arrays(parts=None), "parts = None", "give three shares"),
    "parts texts": (lambda: arrays(parts=[".8", ".1", ".1"]), "'.8'", "give three"),
    "parts two": (lambda: arrays(parts=(0.8, 0.2)), "(0.8, 0.2)", "give three shares"),
    "parts of bools": (lambda: arrays(parts=(True, False, 0)), "(True, False", "give"),
    "parts negative": (lambda: arrays(parts=(1.1, -0.1, 0)), "(1.1, -0.1, 0)", "give"),
    "no test rows": (lambda: arrays(parts=(1, 0, 0)), "0 test samples", "drop it"),
    "owners": (
        lambda: arrays(owners=("a",)),
        "owners has 1 names for 2",
        "give one each",
    ),
    "from_rows parts": (
        lambda: rows(parts=(0.8, NAN, 0.1)),
        "nan",
        "give three shares",
    ),
    "from_rows split": (lambda: rows(split=0.5), "split = 0.5", "give a whole number"),
    "Task batch": (lambda: replace(toy(), batch=2.0), "batch = 2.0", "give a positive"),
    "Task name": (lambda: replace(toy(), name=""), "name = ''", "give a text"),
    "Task kind": (
        lambda: replace(toy(), kind="reel"),
        "did you mean 'real'?",
        "give own",
    ),
    "Task K": (lambda: replace(toy(), K=3.0), "K = 3.0", "give the number of classes"),
    "Task classes": (
        lambda: replace(toy(), classes=("a",)),
        "has 1 names; 3 classes",
        "give one",
    ),
    "Task y": (
        lambda: replace(toy(), y=toy().y * 1j),
        "y torch.complex64",
        "must be floating point and y integer",
    ),
    "Task y 2-D": (
        lambda: replace(toy(), y=toy().y[:, None]),
        "y has shape [153, 1]",
        "must be floating point and y integer",
    ),
    # ------------------------------------------------------------ tables
    "no table": (lambda: frame(X), "got ndarray", "use Task.from_arrays"),
    "no table but a dict": (
        lambda: frame({"a": 1}),
        "got dict",
        "pandas.DataFrame(...)",
    ),
    "a path": (lambda: frame("people.csv"), "got str", "pandas.DataFrame(...)"),
    "a Series": (lambda: frame(df()["age"]), "got Series", "pandas.DataFrame(...)"),
    "no rows": (lambda: frame(df()[:0]), "0 rows", "look at the filter"),
    "label unknown": (
        lambda: frame(label="il"),
        "label = 'il' is no column of the table; did you mean 'ill'?",
        "it has 'age', 'income', 'job'",
    ),
    "label None": (lambda: frame(label=None), "label = None is no column", "it has"),
    "label list": (lambda: frame(label=["ill"]), "label = ['ill']", "did you mean"),
    "client unknown": (
        lambda: frame(client="clinics"),
        "'clinics'",
        "did you mean 'clin",
    ),
    "sensitive unknown": (lambda: frame(sensitive="gender"), "'gender'", "it has"),
    "label is client": (lambda: frame(label="clinic"), "both the column", "choose ano"),
    "label is sensitive": (lambda: frame(sensitive="ill"), "both the column", "choose"),
    "features text": (lambda: frame(features="age"), "features = 'age'", "['age']"),
    "inputs 0-d": (
        lambda: dataset(features=np.array(2)),
        "features = array(2)",
        "list",
    ),
    "inputs none": (
        lambda: dataset(features=print),
        "features = <built-in",
        "a list of",
    ),
    "label array": (
        lambda: dataset(label=np.array([1])),
        "label = array([1])",
        "place",
    ),
    "a label of dicts as an array": (
        lambda: dataset([{"x": 1.0}], label=Y),
        "label = array",
        "is not in the data set",
    ),
    "features 0-d": (
        lambda: frame(features=np.array(2)),
        "features = array(2)",
        "list",
    ),
    "parts 0-d": (lambda: frame(parts=np.array(2)), "parts = array(2)", "three shares"),
    "parts of numpy": (
        lambda: frame(parts=np.int64(2)),
        "parts = np.int64(2)",
        "three",
    ),
    "classes 0-d": (
        lambda: frame(classes=np.array(2)),
        "classes = array(2)",
        "list all",
    ),
    "classes 2-d": (
        lambda: frame(classes=np.ones((2, 2))),
        "classes = array",
        "each once",
    ),
    "features unknown": (
        lambda: frame(features=["agee"]),
        "'agee'",
        "did you mean 'age",
    ),
    "features empty": (lambda: frame(features=[]), "features = []", "give one column"),
    "features twice": (lambda: frame(features=["age", "age"]), "'age']", "each once"),
    "features label": (lambda: frame(features=["age", "ill"]), "'ill'", "leave it out"),
    "standardise": (lambda: frame(standardise="yes"), "= 'yes'", "give True or False"),
    "column twice": (
        lambda: frame(df().rename(columns={"job": "age"})),
        "two columns are named 'age'",
        "rename one",
    ),
    "missing number": (
        lambda: frame(
            df(age=put(np.ones(N), 4, NAN), job=listed(["x", "y"] * 120, 9, None))
        ),
        "missing values in the columns 'age' 1, 'job' 1; the first is in row 4 of",
        "df['age'].fillna(...)",
    ),
    "missing label": (lambda: frame(df(ill=listed(C, 3, None))), "'ill' 1", "dropna"),
    "missing client": (
        lambda: frame(df(clinic=listed(C, 3, None))),
        "'clinic' 1",
        "drop",
    ),
    "missing group": (
        lambda: frame(df(sex=listed(C, 3, None)), sensitive="sex", features=["age"]),
        "'sex' 1",
        "dropna",
    ),
    "missing text": (lambda: frame(df(job=listed(C, 3, "  "))), "'job' 1", "fillna"),
    "dates": (
        lambda: frame(df(born=pd.date_range("1990", periods=N))),
        "column 'born' holds datetime64",
        "df['born'].dt.year",
    ),
    "zoned dates": (
        lambda: frame(df(born=pd.date_range("1990", periods=N, tz="UTC"))),
        "column 'born' holds datetime64",
        "df['born'].dt.year",
    ),
    "periods": (
        lambda: frame(df(born=pd.period_range("1990", periods=N, freq="D"))),
        "column 'born' holds period[D]",
        "leave it out",
    ),
    "durations": (
        lambda: frame(df(stay=pd.to_timedelta(np.arange(N), unit="h"))),
        "column 'stay' holds timedelta64",
        "leave it out",
    ),
    "infinite": (
        lambda: frame(df(income=put(np.ones(N), 6, INF))),
        "column 'income' holds inf in row 6",
        "df['income'].clip(low, high)",
    ),
    "complex column": (
        lambda: frame(df(z=X[:, 0] * 1j)),
        "'z' holds complex",
        "astype",
    ),
    "lists": (lambda: frame(df(v=[[1, 2]] * N)), "'v' holds list ([1, 2])", "astype"),
    "mixed words": (
        lambda: frame(df(v=pd.Series([1, "a"] * 120, dtype=object))),
        "column 'v' holds int (1)",
        "df['v'].astype(str)",
    ),
    "names": (
        lambda: frame(df(who=[f"person {i}" for i in range(N)])),
        "column 'who' holds 240 different words in 240 rows, the first is 'person 0'",
        "leave it out",
    ),
    "large ints as they are": (
        lambda: frame(df(v=np.arange(N) + 2**24), standardise=False),
        "column 'v' holds the whole number 16777455",
        "use standardise=True",
    ),
    "label gaps": (lambda: frame(df(ill=Y + 1)), "from 1 to 3", "classes=[1, 2, 3]"),
    "label quantity": (
        lambda: frame(df(ill=X[:, 0])),
        "label 'ill' holds fractions",
        "pandas.cut",
    ),
    "groups of fractions": (
        lambda: frame(df(sex=X[:, 0]), sensitive="sex"),
        "sensitive 'sex' holds the fraction",
        "pandas.cut",
    ),
    "frame clients": (
        lambda: frame(df(clinic=np.arange(N))),
        "client 'clinic' takes 240 different values in 240 rows",
        "say whose row it is",
    ),
    "frame one class": (
        lambda: frame(df(ill="no")),
        "label 'ill' holds only the class 'no' in its 240 rows",
        "give rows of two classes",
    ),
    "frame parts": (lambda: frame(parts=(0.8, NAN, 0.1)), "nan", "give three shares"),
    "frame split": (lambda: frame(split="a"), "split = 'a'", "give a whole number"),
    # ------------------------------------------------------------ data sets
    "ds loader": (lambda: dataset(DataLoader(PAIRS)), "DataLoader", "ds.dataset"),
    "ds stream": (lambda: dataset(Stream()), "ds is a Stream", "list(ds)"),
    "ds dict": (lambda: dataset({"train": PAIRS}), "of 'train'", "ds['train']"),
    "ds table": (lambda: dataset(df()), "pandas DataFrame", "use Task.from_frame"),
    "ds array": (lambda: dataset(X), "ds is a ndarray", "use Task.from_arrays"),
    "ds tensor": (lambda: dataset(torch.ones(3, 2)), "ds is a Tensor", "from_arrays"),
    "ds None": (lambda: dataset(None), "ds is a NoneType", "give a map-style"),
    "ds empty": (lambda: dataset([]), "0 items", "look at the filter"),
    "items of one": (lambda: dataset(list(X)), "item 0 is array(", "is a pair (x, y)"),
    "items of other length": (
        lambda: dataset([(1, 0), (1, 0, 2)]),
        "item 0 has 2 parts, item 1 is (1, 0, 2)",
        "give all items the same parts",
    ),
    "items of other keys": (
        lambda: dataset([{"x": 1, "label": 0}, {"x": 1}]),
        "item 1 {'x': 1}",
        "give all items the same keys",
    ),
    "label of pairs": (lambda: dataset(label=2), "label = 2", "give the place"),
    "label of pairs text": (
        lambda: dataset(label="y"),
        "label = 'y'",
        "give the place",
    ),
    "features of pairs": (
        lambda: dataset(features=5),
        "features = 5",
        "give the place",
    ),
    "features are the label": (lambda: dataset(features=1), "[1]", "not the label"),
    "label of dicts": (
        lambda: dataset(dicts(x=X, labels=Y)),
        "label = 'label' is not in the data set; did you mean 'labels'?",
        "it has 'x', 'labels'",
    ),
    "client of pairs": (
        lambda: dataset(client="who"),
        "client = 'who'",
        "give one value",
    ),
    "client of dicts": (
        lambda: dataset(dicts(x=X, label=Y, who=C), client="whom"),
        "client = 'whom' is not in the data set; did you mean 'who'?",
        "it has",
    ),
    "client short": (
        lambda: dataset(client=C[:5]),
        "5 entries for 240",
        "give one per",
    ),
    "client missing": (
        lambda: dataset(client=None),
        "client = None",
        "give the client",
    ),
    "client place": (lambda: dataset(client=1), "client = 1", "one value per row"),
    "client function": (
        lambda: dataset(client=lambda i, item: None),
        "client_id is missing at row 0",
        "leave such rows out",
    ),
    "client function fails": (
        lambda: dataset(client=lambda item: item),
        "client is a function that fails at row 0 with TypeError",
        "give a function of (row number, item)",
    ),
    "sensitive short": (lambda: dataset(sensitive=A[:5]), "5 entries", "give one per"),
    "two inputs": (
        lambda: dataset(dicts(x=X, z=X, label=Y)),
        "the inputs ['x', 'z']",
        "choose one by features=",
    ),
    "other shapes": (
        lambda: dataset([(v[: 2 + (i == 7)], i % 2) for i, v in enumerate(X)]),
        "item 0 has shape [2], item 7 [3]",
        "resize, cut or pad",
    ),
    "other modes": (
        lambda: dataset(list(zip(listed(pictures(), 7, pictures("L", 1)[0]), Y))),
        "item 0 has shape [3, 8, 9], item 7 [1, 8, 9]",
        "give all pictures one mode",
    ),
    "transparent": (
        lambda: dataset(list(zip(pictures("RGBA"), Y))),
        "item 0 is a picture of mode RGBA",
        'image.convert("RGB")',
    ),
    "16 bits": (
        lambda: dataset(list(zip([Image.new("I;16", (8, 8))] * N, Y))),
        "item 0 is a picture of mode I;16",
        "convert it first",
    ),
    "five channels": (
        lambda: dataset([(np.zeros((8, 8, 5), np.uint8), int(k)) for k in Y]),
        "item 0 is a picture of shape [8, 8, 5]",
        "give one or three channels",
    ),
    "floats channels last": (
        lambda: dataset(list(zip(IMAGES.transpose(0, 2, 3, 1), Y))),
        "[240, 8, 9, 3], images with their 3 channels last",
        "x.permute(0, 3, 1, 2)",
    ),
    "texts": (
        lambda: dataset([(f"review {i}", i % 2) for i in range(N)]),
        "column '0' holds 240 different words",
        "make numbers of it first",
    ),
    "objects": (
        lambda: dataset([([object()], i % 2) for i in range(N)]),
        "the input 0 holds",
        "make numbers of it first",
    ),
    "columns are pictures of no kind": (
        lambda: dataset(columns(), label="labels"),
        "label = 'labels' is not in the data set; did you mean 'label'?",
        "it has 'x', 'label', 'who'",
    ),
    "unlabelled": (
        lambda: dataset(columns().map(lambda row: {"label": -1}), features="x"),
        "from -1 to -1",
        "renumber",
    ),
}


def rising(k):
    """240 rows, k different whole numbers, each as often as the others or once more."""
    return np.arange(N) * k // N


WARN = {
    "a large column": (
        lambda: arrays(x=put(X, (5, 3), -2e4)),
        "column 3 of x reaches 20000: training by gradients may diverge; standardise",
    ),
    "its name": (
        lambda: arrays(x=df()[["age", "income"]]),
        "column 'income' of x reaches 45",
    ),
    "two large columns": (lambda: arrays(x=X * 1e5), "and 4 more columns beyond 1000"),
    "a large column as it is": (
        lambda: frame(standardise=False),
        "column 'income' of x reaches 45",
    ),
    "whole numbers as floats": (
        lambda: arrays(x=(IMAGES * 255).round()),
        "[240, 3, 8, 9] and whole numbers up to 255: if these are pixels, divide by",
    ),
    "sixteen greys": (
        lambda: arrays(x=(IMAGES * 16).round()),
        "whole numbers up to 16: if these are pixels, divide by 16",
    ),
    "channels last, for an own network": (
        lambda: arrays(x=IMAGES.transpose(0, 2, 3, 1), network=Linear(8 * 9 * 3, 3)),
        "images with their 3 channels last",
    ),
    "few test rows": (
        lambda: arrays(client_id=rising(3) + (np.arange(N) > 215)),
        "fewer than 10 test rows at 4 of 4 clients; client '3' has 2, so its accuracy "
        "moves in steps of 50 points: merge clients, or raise the test share",
    ),
    "few at one": (
        lambda: arrays(client_id=["b"] * 200 + ["a"] * 40),
        "fewer than 10 test rows at 1 of 2 clients; client 'a' has 4",
    ),
    "one client": (
        lambda: arrays(client_id=["a"] * N),
        "client_id takes only the value 'a': with a single client",
    ),
    "many clients": (
        lambda: arrays(client_id=rising(60), parts=(0.5, 0, 0.5)),
        "client_id takes 60 different values in 240 rows, fewer than five rows a",
    ),
    "many classes": (
        lambda: arrays(y=rising(160)),
        "y takes 160 different values in 240 rows: if it is a quantity, make bands",
    ),
    "many groups": (
        lambda: arrays(a=rising(21)),
        "a takes 21 different values, such as 0, and each is a group: make bands",
    ),
    "a constant number": (
        lambda: frame(df(country=7)),
        "column 'country' holds 7 in every row and tells nothing: leave it out",
    ),
    "a constant word": (lambda: frame(df(country="FR")), "holds 'FR' in every row"),
    "a constant flag": (lambda: frame(df(adult=True)), "column 'adult' holds True"),
    "the label in other words": (
        lambda: frame(df(code=(df()["ill"] == "yes").map({True: 7, False: 9}))),
        "column 'code' tells the label 'ill' without error",
    ),
    "many words": (
        lambda: frame(df(town=[f"town {v}" for v in rising(110)])),
        "column 'town' holds 110 different words, each becomes a column of x",
    ),
}
