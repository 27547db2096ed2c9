"""Somebody's own data: arrays, tables and data sets become tasks, and what looks wrong
is refused, or warned about, by name.
"""

import math
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from PIL import Image
from sklearn.datasets import load_breast_cancer, load_digits
from torch.utils.data import DataLoader, IterableDataset, Subset, TensorDataset
from toys_core import toy

import fedlib
from fedlib.core import engine, items
from fedlib.core.errors import DataWarning
from fedlib.core.groups import Block
from fedlib.core.order import natural
from fedlib.core.pool import Pool
from fedlib.core.task import Task, cut_rows, owned
from fedlib.methods.base.fedavg import FedAvg
from fedlib.methods.make import make
from fedlib.nets import MLP, Linear

HERE = Path(fedlib.__file__).parent
pytestmark = pytest.mark.filterwarnings("ignore:fewer than 10 test rows")

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


class Half:
    """A partitioner as those of flwr-datasets are: what is asked of it."""

    dataset, num_partitions = None, 2

    def __init__(self, cut=lambda ds, i: ds.select(range(i, len(ds), 2))):
        self.cut = cut

    def is_dataset_assigned(self):
        return self.dataset is not None

    def load_partition(self, i):
        return self.cut(self.dataset, i)


def columns():
    """A Hugging Face data set in memory."""
    hf = pytest.importorskip("datasets")
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
    # ------------------------------------------------------------ how it is cut and called
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
    "name None": (lambda: arrays(name=None), "name = None", "give the task a name"),
    "name number": (lambda: arrays(name=3), "name = 3", "a text"),
    "name empty": (lambda: arrays(name=" "), "name = ' '", "a text"),
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
        "missing values in the columns 'age' 1, 'job' 1; the first is in row 4 of 'age'",
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
    "empty partition": (
        lambda: dataset(columns(), Half(lambda ds, i: ds.select(range(240 * i)))),
        "partition 0 of 2 of the Half has 0 rows",
        "fewer partitions",
    ),
    "rows of two clients": (
        lambda: dataset(columns(), Half(lambda ds, i: ds)),
        "the Half gives 480 rows of 240",
        "choose a partitioner",
    ),
    "parts of columns": (
        lambda: dataset(columns(), Half(lambda ds, i: ds.select_columns(["x"]))),
        "the Half divides columns, not rows",
        "choose a partitioner of rows",
    ),
}


@pytest.mark.filterwarnings("ignore::fedlib.core.errors.DataWarning")
@pytest.mark.parametrize("case", BAD)
def test_bad_data(case):
    call, wrong, remedy = BAD[case]
    with pytest.raises((ValueError, TypeError)) as e:
        call()
    assert type(e.value) in (ValueError, TypeError)
    assert wrong in str(e.value) and remedy in str(e.value)
    assert e.traceback[-1].path.is_relative_to(HERE), "not an error of ours"


def test_there_are_many_cases():
    assert len(BAD) >= 130


# ---------------------------------------------------------------- warnings
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
        "[240, 3, 8, 9] and whole numbers up to 255: if these are pixels, divide by 255",
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
        "client_id takes 60 different values in 240 rows, fewer than five rows a client",
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
    "rows of no partition": (
        lambda: dataset(
            columns(), Half(lambda ds, i: ds.select(range(i, 200, 2))), features="x"
        ),
        "the Half leaves out 40 of 240 rows",
    ),
}


@pytest.mark.parametrize("case", WARN)
def test_what_looks_wrong_is_said(case):
    call, says = WARN[case]
    with pytest.warns(DataWarning) as seen:
        task = call()
    (found,) = [w for w in seen if says in str(w.message)]
    assert found.filename == __file__, "names the caller's line"
    assert task.C and issubclass(DataWarning, UserWarning)


def test_sound_data_draw_no_word():
    x, y = load_digits(return_X_y=True)  # pixels at an edge are constant
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        arrays()
        arrays(a=A)
        arrays(x=IMAGES)
        arrays(x=X * 900 / abs(X).max())
        Task.from_arrays(x / 16, y, np.arange(len(y)) % 10)
        Task.from_arrays(x.reshape(-1, 1, 8, 8) / 16, y, np.arange(len(y)) % 10)
        arrays(x=1000 * Y[:, None] + 2000, network=MLP(1, 3, 3))  # as words' places are
        frame(parts=(0.4, 0.1, 0.5))
        dataset()


# ---------------------------------------------------------------- arrays
def test_natural_order():
    want = [False, 2, 2.5, 10, "", "a 2", "a 02", "a 2b", "a 10", "a b", ("x", 1)]
    want = [-3, *want[:4], *sorted(want[4:], key=natural)]
    assert sorted(reversed(want), key=natural) == want
    names = ["clinic 10", "clinic 2", "clinic 1b", "clinic 1", "bay 11", "Clinic 3"]
    assert sorted(names, key=natural) == [
        *("Clinic 3", "bay 11", "clinic 1", "clinic 1b", "clinic 2", "clinic 10"),
    ]


@pytest.mark.filterwarnings("ignore::fedlib.core.errors.DataWarning")
def test_clients_are_numbered_in_natural_order():
    c = np.arange(N) % 12
    for ids in (c, c.astype(float), c.tolist(), torch.from_numpy(c), pd.Series(c)):
        assert arrays(client_id=ids).owners == tuple(map(str, range(12)))
    named = arrays(client_id=[f"clinic {k}" for k in c])
    assert named.owners == tuple(f"clinic {k}" for k in range(12))
    for k in range(12):
        mine = torch.cat([named.train[k], named.val[k], named.test[k]])
        assert sorted(map(tuple, named.x[mine].tolist())) == sorted(
            map(tuple, X[c == k].tolist())
        )
    pairs = arrays(client_id=[("ward", int(k)) for k in c % 2])
    assert pairs.owners == ("('ward', 0)", "('ward', 1)")


def test_any_array_will_do():
    """The same numbers in other clothes are the same task, to the hash of its rows."""
    x, y = X.astype(np.float32), Y
    index = pd.Index(np.arange(N)[::-1] * 7)
    want = arrays(x, y)
    for kind in (
        lambda v: v.tolist(),
        lambda v: tuple(map(tuple, v.tolist())) if v.ndim > 1 else tuple(v.tolist()),
        torch.from_numpy,
        lambda v: list(torch.from_numpy(v)),
        lambda v: pd.DataFrame(v) if v.ndim > 1 else pd.Series(v),
        lambda v: pd.DataFrame(v, index) if v.ndim > 1 else pd.Series(v, index),
        lambda v: v.astype(v.dtype.newbyteorder(">")),
        lambda v: np.ascontiguousarray(v[::-1])[::-1],
        lambda v: np.asfortranarray(v),
        lambda v: torch.from_numpy(v).requires_grad_(v.ndim > 1),
    ):
        task = arrays(kind(x), kind(y))
        assert task.name == want.name and torch.equal(task.x, want.x)
        assert torch.equal(task.y, want.y) and task.owners == want.owners
        assert not task.x.requires_grad
    frozen = x.copy()
    frozen.flags.writeable = False
    assert arrays(frozen).name == want.name
    assert arrays(x, y + 0.0).name == arrays(x, pd.array(y, "Int64")).name == want.name
    assert arrays(x[::-1], y[::-1], C[::-1]).name != want.name


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", "float16", "f4"])
def test_what_float32_holds_becomes_float32(dtype):
    x = (X > 0).astype(dtype) if dtype == "bool" else (100 * X % 50).astype(dtype)
    task = arrays(x=x)
    order = arrays(x=np.arange(N)[:, None] + 0.0).x[:, 0].long()
    assert task.x.dtype == torch.float32
    assert torch.equal(task.x, torch.from_numpy(x.astype(np.float32))[order])


def test_doubles_stay_doubles():
    assert arrays().x.dtype == torch.float64
    assert arrays(x=X.tolist()).x.dtype == torch.float32  # as torch reads lists
    assert arrays(x=np.longdouble(X)).x.dtype == torch.float64
    assert arrays(x=torch.from_numpy(X).bfloat16()).x.dtype == torch.float32


def test_large_whole_numbers_as_doubles():
    """What is exact is taken: 2^24, and beyond it as doubles."""
    edge = put(Y[:, None], 9, 2**24)
    assert arrays(x=edge, network=Linear(1, 3)).x.max() == 2**24
    with pytest.warns(DataWarning, match="column 0 of x reaches"):
        task = arrays(x=edge + 1.0)
    assert task.x.max() == 2**24 + 1


LABELS = {
    "words": (["b 10", "b 9", "a"], None, [2, 1, 0], ("a", "b 9", "b 10")),
    "yes or no": ([True, False, True], None, [1, 0, 1], ("False", "True")),
    "numbers": ([2, 0, 1], None, [2, 0, 1], ()),
    "floats": ([2.0, 0.0, 1.0], None, [2, 0, 1], ()),
    "from one": ([1, 2, 3], [1, 2, 3], [0, 1, 2], ("1", "2", "3")),
    "backwards": ([1, 2, 3], [3, 2, 1], [2, 1, 0], ("3", "2", "1")),
    "signs": ([-1, 1, 1], [-1, 1], [0, 1, 1], ("-1", "1")),
    "a class that no row has": ([0, 1, 3], range(5), [0, 1, 3], ()),
    "names of numbers": ([0, 2, 1], ["no", "a", "b"], [0, 2, 1], ("no", "a", "b")),
    "own order": (["lo", "hi", "lo"], ["lo", "hi"], [0, 1, 0], ("lo", "hi")),
    "huge": ([10**12, 5, 5], [5, 10**12], [1, 0, 0], ("5", "1000000000000")),
    "numpy's": ([np.int8(1), np.int64(0), np.str_("0")][:2] * 2, None, [1, 0] * 2, ()),
}


@pytest.mark.parametrize("case", LABELS)
def test_labels(case):
    y, classes, want, names = LABELS[case]
    at = np.arange(N) % len(y)
    task = arrays(np.arange(N)[:, None] / N, [y[i] for i in at], classes=classes)
    i = (task.x[:, 0] * N).round().long()
    assert task.y.tolist() == [want[at[k]] for k in i]
    assert task.classes == names
    assert task.K == (len(classes) if classes is not None else len(set(y)))


def test_an_ordered_category_keeps_its_order():
    grades = pd.CategoricalDtype(["low", "middle", "high", "never"], ordered=True)
    y = pd.Series(["high", "low", "middle"] * 80, dtype=grades)
    assert arrays(y=y).classes == ("low", "middle", "high")
    assert arrays(y=y.astype(str)).classes == ("high", "low", "middle")
    assert arrays(y=y.astype(str).astype("category")).classes == (
        "high",
        "low",
        "middle",
    )
    assert arrays(y=y, classes=list(grades.categories)).K == 4


def test_positive_classes_by_name_or_number():
    words = np.where(Y == 0, "no", np.where(Y == 1, "yes", "often"))
    given = lambda positive, **more: (
        arrays(a=A, positive=positive, **more).groups.positive
    )
    assert given(None) == given(1) == given([1]) == given(np.array([1])) == (1,)
    assert given([2, 1, 2]) == (2, 1)
    assert given("yes", y=words) == given(["yes"], y=words) == (2,)
    # a label, as it is written
    assert given([1], y=Y + 1, classes=[1, 2, 3]) == (0,)
    assert given(None, y=Y + 1, classes=[1, 2, 3]) == (1,)


def test_names_tell_tasks_apart():
    made = [
        arrays(),
        arrays(classes=range(4)),
        arrays(y=2 - Y),
        arrays(client_id=C[::-1]),
    ]
    made += [arrays(x=X + 1), arrays(a=A), arrays(a=A, positive=2), arrays(split=1)]
    assert len({t.name for t in made}) == len(made)
    assert arrays(a=A).name == arrays(a=A).name
    assert arrays(name="mine").name.startswith("mine-")


def test_own_data_are_called_own(capsys):
    from fedlib.cli.report import report

    task = arrays()
    assert task.kind == "own" and arrays(kind="real").kind == "real"
    report("FedAvg", task, engine.run(FedAvg(task), rounds=1, progress=False))
    assert "seed 0, own data" in capsys.readouterr().out


# ---------------------------------------------------------------- tables
def order_of(task, table):
    """Which row of the table each row of the task is, by a column `row` of it."""
    whole = Task.from_frame(
        table.assign(row=np.arange(N) * 1.0),
        label="ill",
        client="clinic",
        features=["row"],
        standardise=False,
    )
    assert len(whole.x) == len(task.x)
    return whole.x[:, 0].long().numpy()


def test_a_table_by_hand():
    table = df()
    task = frame(table, standardise=False, features=["age", "job", "sex", "smokes"])
    t = table.iloc[order_of(task, table)]
    want = np.stack(
        [
            t["age"],
            *(t["job"] == job for job in ("clerk", "cook", "nurse")),
            t["sex"] == "woman",
            t["smokes"],
        ],
        1,
    )
    assert np.array_equal(task.x.numpy(), want.astype(np.float32))
    assert np.array_equal(task.y.numpy(), t["ill"] == "yes")
    assert task.classes == ("no", "yes") and task.x.dtype == torch.float32
    assert task.owners == tuple(f"clinic {k}" for k in range(12))
    for c, owner in enumerate(task.owners):
        mine = torch.cat([task.train[c], task.val[c], task.test[c]])
        assert set(t["clinic"].iloc[mine.numpy()]) == {owner}
    assert task.network == Linear(6, 2) and task.groups is None


def test_groups_of_a_table_know_the_blocks():
    task = frame(sensitive="sex")
    assert (task.groups.name, task.groups.names) == ("sex", ("man", "woman"))
    assert task.groups.schema == (
        Block("age", "number", 0, 1),
        Block("income", "number", 1, 2),
        Block("job", "onehot", 2, 5),
        Block("sex=woman", "flag", 5, 6),
        Block("smokes", "flag", 6, 7),
    )
    assert task.groups.column == 5 and task.groups.positive == (1,)
    assert torch.equal(task.x[:, 5].long(), task.a)
    hidden = frame(sensitive="sex", features=["age", "job"])
    assert hidden.groups.column is None and hidden.groups.names == ("man", "woman")
    assert frame(sensitive="sex", positive="no").groups.positive == (0,)


def test_drawn_rows_keep_to_the_blocks_of_a_table():
    from fedlib.pieces import condense

    task = frame(sensitive="sex", network=MLP(7, 4, 2))
    x = condense.rows(task, 500, 0)
    assert x.shape == (500, 7) and set(x[:, 5:].unique().tolist()) == {0, 1}
    assert (x[:, 2:5].sum(1) == 1).all()
    how = {"size": 20, "outer": 2, "J": 2, "pool": 40}
    done = engine.run(make("EquFL", task, **how), rounds=4, progress=False)
    assert done["pre", "global", "test"].shape == (5, 12)


@pytest.mark.filterwarnings("ignore:.* of x reaches")
def test_numbers_are_standardised_on_training_rows_alone():
    table = df()
    task, raw = frame(table), frame(table, standardise=False)
    train = torch.cat(task.train)
    numbers, others = [0, 1], [2, 3, 4, 5, 6]
    seen, rest = task.x[train], task.x[torch.cat([*task.val, *task.test])]
    assert seen[:, numbers].mean(0).abs().max() < 1e-6
    assert (seen[:, numbers].std(0, correction=0) - 1).abs().max() < 1e-6
    assert rest[:, numbers].mean(0).abs().min() > 1e-3
    assert torch.equal(task.x[:, others], raw.x[:, others])
    # a test row says nothing about the others
    (last, *_) = task.test[3].tolist()
    far = table.copy()
    far.loc[order_of(task, table)[last], "income"] = 1e7
    again = frame(far)
    keep = torch.arange(N) != last
    assert torch.equal(again.x[keep], task.x[keep])
    assert again.x[last, 1] > 100 and again.name != task.name
    # another cut, other training rows
    assert not torch.equal(frame(table, split=1).x.sort(0)[0], task.x.sort(0)[0])


def test_a_column_that_is_constant_where_it_is_learnt():
    rare = np.zeros(N)
    table = df()
    at = order_of(frame(table), table)
    rare[at[frame(table).test[0][0]]] = 3.5
    task = frame(df(rare=rare, level=1e9 + np.arange(N)), features=["rare", "level"])
    assert task.x.isfinite().all() and task.x[:, 0].max() == 3.5
    assert task.x[:, 1].abs().max() < 2


@pytest.mark.filterwarnings("ignore:.* of x reaches")
def test_a_table_as_it_is_is_an_array():
    """The same rows, cut in the same way, by another door."""
    table, both = df(), ["age", "income"]
    one = frame(table, features=both, standardise=False)
    two = arrays(table[both].to_numpy(np.float32), table["ill"], table["clinic"])
    assert torch.equal(one.x, two.x) and torch.equal(one.y, two.y)
    assert all(torch.equal(a, b) for a, b in zip(one.test, two.test))
    assert one.owners == two.owners and one.classes == two.classes


@pytest.mark.parametrize(
    "words",
    [
        lambda v: v.astype("category"),
        lambda v: v.astype(object),
        lambda v: v.astype("string"),
    ],
)
def test_words_of_any_type(words):
    table = df()
    other = table.assign(job=words(table["job"]), sex=words(table["sex"]))
    assert frame(other).name == frame(table).name
    flags = table.assign(smokes=table["smokes"].astype(object))
    assert frame(flags).name == frame(table).name
    nullable = table.assign(age=table["age"].astype("Int64"))
    assert frame(nullable).name == frame(table).name


def test_an_index_and_columns_that_are_no_words():
    table = df().set_axis(range(7), axis=1)
    table.index = np.arange(N)[::-1] // 2  # twice the same
    task = Task.from_frame(table, label=5, client=6, sensitive=3)
    assert torch.equal(task.x, frame(sensitive="sex").x)
    assert task.groups.schema[3].name == "3=woman"
    mine = Task.from_frame(table, label=5, client=3)  # clients are men and women
    assert mine.owners == ("man", "woman")


@pytest.mark.parametrize("load", [load_breast_cancer, "wine"])
def test_the_default_learns_ordinary_tables(load):
    """Columns of a thousand and of a hundredth; as they are, they teach little."""
    if load == "wine":
        from sklearn.datasets import load_wine as load
    table = load(as_frame=True).frame
    table["clinic"] = [f"clinic {i % 6}" for i in range(len(table))]
    how = {"label": "target", "client": "clinic", "parts": (0.6, 0.1, 0.3)}
    task = Task.from_frame(table, **how)
    learnt = engine.run(FedAvg(task), rounds=20, progress=False)
    assert learnt["pre", "global", "test"][-1].mean() > 0.87
    with pytest.warns(DataWarning, match="may diverge"):
        raw = Task.from_frame(table, **how, standardise=False)
    plain = engine.run(FedAvg(raw), rounds=20, progress=False)
    gap = learnt["pre", "global", "test"] - plain["pre", "global", "test"]
    assert gap[-1].mean() > 0.05


# ---------------------------------------------------------------- data sets
def same_rows(a, b):
    """The same rows, labels and clients; the order, and so the cut, may differ."""
    said = lambda t: sorted(
        (c, int(t.y[i]), t.x[i].flatten().tolist())
        for c in range(t.C)
        for i in torch.cat([t.train[c], t.val[c], t.test[c]]).tolist()
    )
    return a.owners == b.owners and a.classes == b.classes and said(a) == said(b)


def test_data_sets_of_any_kind():
    want = arrays(X.astype(np.float32))
    lists = list(zip(X, Y))
    for task in (
        dataset(),
        dataset(lists),
        dataset([(v, k, "more") for v, k in lists]),
        dataset([(k, v) for v, k in lists], label=0),
        dataset([("id", v, k) for v, k in lists], label=2, features=1),
        dataset(dicts(x=X, label=Y)),
        dataset(dicts(x=X, label=Y, who=C), client="who"),
        dataset(
            dicts(inputs=X, z=Y, who=C), label="z", features="inputs", client="who"
        ),
        dataset(client=lambda i, item: C[i]),
        dataset(client=C.tolist()),
        dataset(client=pd.Series(C)),
    ):
        assert task.name.replace("dataset", "arrays") == want.name
        assert torch.equal(task.x, want.x) and torch.equal(task.y, want.y)
        assert task.owners == ("a", "b") and task.kind == "own"
    some = dataset(Subset(PAIRS, range(0, N, 2)), client=C[::2])
    assert same_rows(some, arrays(X[::2].astype(np.float32), Y[::2], C[::2]))
    by_item = dataset(client=lambda i, item: int(item[0][0] > 0))
    assert by_item.owners == ("0", "1")
    grouped = dataset(sensitive=lambda i, item: ["f", "m"][A[i]])
    assert grouped.groups.names == ("f", "m")
    assert dataset(sensitive=A, positive=[1, 2]).groups.positive == (1, 2)


def test_columns_of_hugging_face():
    hf = pytest.importorskip("datasets")
    want = arrays(X.astype(np.float32))
    for form in (None, "numpy", "torch", "pandas")[:3]:
        ds = columns().with_format(form)
        task = dataset(ds, "who", features="x")
        assert torch.equal(task.x, want.x) and torch.equal(task.y, want.y)
        assert torch.equal(dataset(ds.remove_columns("who"), C).x, want.x)
    labelled = columns().cast_column(
        "label", hf.ClassLabel(names=["no", "yes", "often"])
    )
    task = dataset(labelled, "who", features="x")
    assert task.classes == ("no", "yes", "often") and torch.equal(task.y, want.y)
    only = dataset(labelled.filter(lambda r: r["label"] < 2), lambda i, r: r["who"],
                   features="x")  # fmt: skip
    assert only.K == 3, "also a class that no row has"
    with pytest.raises(
        ValueError, match=r"of 'train': give one of them, ds\['train'\]"
    ):
        dataset(hf.DatasetDict({"train": columns()}))
    with pytest.raises(ValueError, match="IterableDataset, which cannot be asked"):
        dataset(columns().to_iterable_dataset())


def test_columns_of_numbers_and_words_are_a_table():
    hf = pytest.importorskip("datasets")
    hf.disable_progress_bars()
    table = df()
    want = frame(table, sensitive="sex")
    ds = hf.Dataset.from_pandas(table)
    how = {"client": "clinic", "label": "ill", "sensitive": "sex"}
    roles = ["age", "income", "job", "sex", "smokes"]
    task = dataset(ds, features=roles, **how)
    assert torch.equal(task.x, want.x) and task.groups == want.groups
    rows_ = table.to_dict("records")
    assert dataset(rows_, features=roles, **how).name == task.name
    # what plays a part is no input, unless it is named
    assert dataset(ds, **how).x.shape[1] == want.x.shape[1] - 1


@pytest.mark.parametrize("mode", ["L", "RGB", "P", "1", "CMYK"])
def test_pictures(mode):
    images = pictures(mode)
    task = dataset(list(zip(images, Y)))
    grey = mode in ("L", "1")
    assert task.x.shape == (N, 1 if grey else 3, 8, 9) and task.x.dtype == torch.float32
    assert 0 <= task.x.min() < 0.05 and 0.95 < task.x.max() <= 1
    want = [
        np.array(v.convert("L" if grey else "RGB")) / np.float32(255) for v in images
    ]
    want = np.stack([v[None] if grey else v.transpose(2, 0, 1) for v in want])
    assert same_rows(task, arrays(want))
    assert task.network.__class__.__name__ == "CNN"


def test_arrays_of_pixels():
    pixels = np.stack([np.array(v) for v in pictures()])
    want = dataset(list(zip(pictures(), Y)))
    first = torch.from_numpy(pixels.transpose(0, 3, 1, 2))
    for ds in (list(zip(pixels, Y)), list(zip(first, Y)), list(zip(first.numpy(), Y))):
        assert torch.equal(dataset(ds).x, want.x)
    assert torch.equal(
        dataset(list(zip(first.float() / 255, Y))).x, want.x
    )  # as torchvision's ToTensor gives them
    grey = dataset(list(zip(pixels[..., 0], Y)))
    assert torch.equal(grey.x, dataset(list(zip(pixels[..., :1], Y))).x)
    assert grey.x.shape == (N, 1, 8, 9)
    # of shape [3, 8, 3] a tensor has its channels first, an array last
    both = np.random.RandomState(0).randint(0, 256, (3, 8, 3)).astype(np.uint8)
    assert items.picture(both, 0).shape == (3, 3, 8)
    assert items.picture(torch.from_numpy(both), 0).shape == (3, 8, 3)


def test_pictures_of_hugging_face():
    hf = pytest.importorskip("datasets")
    hf.disable_progress_bars()
    images = pictures(n=24)
    kind = hf.Features({"image": hf.Image(), "label": hf.ClassLabel(names=["a", "b"])})
    ds = hf.Dataset.from_dict({"image": images, "label": [0, 1] * 12}, features=kind)
    who = ["x"] * 12 + ["y"] * 12
    want = Task.from_dataset(list(zip(images, [0, 1] * 12)), client=who)
    for form in (None, "torch", "numpy"):
        task = Task.from_dataset(ds.with_format(form), client=who)
        assert torch.equal(task.x, want.x) and task.classes == ("a", "b")


def test_a_data_set_that_names_its_classes():
    class Named(TensorDataset):
        classes = ["none", "some", "much", "all"]

    task = dataset(Named(*PAIRS.tensors))
    assert task.classes == ("none", "some", "much", "all") and task.K == 4


def test_partitions_are_clients():
    task = dataset(columns(), Half(), features="x")
    assert same_rows(task, arrays(X.astype(np.float32), Y, np.arange(N) % 2))
    assigned = Half()
    assigned.dataset = columns()
    assert dataset(columns(), assigned, features="x").name == task.name
    with pytest.raises(ValueError, match="a Half of another data set, 240 rows"):
        dataset(columns().select(range(9)), assigned, features="x")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_partitioners_of_flwr_datasets():
    fl = pytest.importorskip("flwr_datasets.partitioner")
    natural_ids = dataset(columns(), fl.NaturalIdPartitioner("who"), features="x")
    assert same_rows(natural_ids, arrays(X.astype(np.float32)))
    for partitioner in (
        fl.IidPartitioner(5),
        fl.DirichletPartitioner(4, "label", alpha=5, min_partition_size=30),
        fl.PathologicalPartitioner(4, "label", 2),
        fl.LinearPartitioner(3),
        fl.ShardPartitioner(3, "label", 2),
    ):
        task = dataset(columns(), partitioner, features="x")
        C = partitioner.num_partitions
        assert task.C == C and task.owners == tuple(map(str, range(C)))
        for c in range(C):
            part = partitioner.load_partition(c)
            mine = torch.cat([task.train[c], task.val[c], task.test[c]])
            assert sorted(task.y[mine].tolist()) == sorted(part["label"])
            got = task.x[mine].double().sum(0).numpy()
            assert np.allclose(got, np.array(part["x"]).sum(0), atol=1e-4)
    with pytest.raises(ValueError, match="VerticalEvenPartitioner divides columns"):
        dataset(columns(), fl.VerticalEvenPartitioner(2), features="x")


def test_a_network_may_know_more_classes_than_have_names():
    wide = replace(toy(), K=5, network=Linear(5, 5), classes=("a", "b", "c"))
    assert replace(wide, batch=8).classes == ("a", "b", "c")
    with pytest.raises(ValueError, match="classes has 6 names; 3 classes occur"):
        replace(wide, classes=tuple("abcdef"))


# ---------------------------------------------------------------- every method's rows
def test_the_cut_that_is_standardised_is_the_cut():
    """owned and cut_rows give the rows that from_rows trains on."""
    pool = rows_pool()._replace(owner=torch.arange(40) % 2, owners=("a", "b"))
    task = Task.from_rows("t", Linear(5, 3), pool, owned(pool), 3)
    cut = [cut_rows(r, c, 3, (0.8, 0.1, 0.1))[0] for c, r in enumerate(owned(pool))]
    assert torch.equal(task.x[torch.cat(task.train)], pool.x[torch.cat(cut)])
    assert math.isclose(len(torch.cat(cut)), 32)


def test_a_seed_of_numpy_cuts_as_one_of_python():
    a, b = frame(split=3), frame(split=np.int64(3))
    assert a.name == b.name and torch.equal(a.x, b.x)
    assert all(map(torch.equal, a.train, b.train))
