"""A user's own data become a pool: what is behind `Task.from_arrays`, `from_frame` and
`from_dataset`.

What is REFUSED would give wrong numbers in silence; what is DOUBTFUL can be trained on,
and looks wrong. These are tables {test: words}: a test returns what to put into its
words, or nothing. Letters: N rows, D columns, K classes, C clients.
"""

import re
import unicodedata
import warnings
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from pandas.api.types import infer_dtype

from . import pool
from .errors import check_switch, known, listed, nearest, refuse_if
from .pool import FEW, natural, positions

EXACT = 2**24  # up to here float32 holds every whole number
LARGE = 1e3  # a column that reaches this far is probably not standardised
MANY = 20  # groups, or rows
SIDE = 5  # pixels per side from which on [N, a, b, bands] is read as images
WIDE = 200  # columns of arrays that are looked at one by one
NUMBERS, WORDS = ("boolean", "integer", "floating"), ("string", "categorical")
INDEX = r"(?i:(unnamed: ?|_*index_|level_)[\d.]+_*|(.*[_ .])?(id|idx|index|nr|no|row))"
INDEX = re.compile(INDEX + "|.*[a-z]I[dD]|rownames")
NUMBER = r"[-+]?[$€£]?\s*(\d{1,3}([.,'\s]\d{3})+|\d+|(?=[.,]\d))([.,]\d*)?(e[-+]?\d+)?"
DATE = r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}([ T].*)?"
AS_TEXT = re.compile(rf"\s*({NUMBER}|{DATE})\s*[%$€£]?\s*", re.I)


# ---------------------------------------------------------------- what is given
@dataclass(eq=False)
class Given:
    """inputs: a DataFrame of numbers and words, or a tensor of numbers [N, ...]. names:
    {what messages call it: one value per row [N]} of label, client and perhaps group.
    attribute: what the groups differ in. own: the network is the user's. task: what it
    became. The others: see from_frame."""

    inputs: Any
    names: dict
    own: bool
    attribute: Any = "group"
    standardise: bool = False
    parts: Any = ()
    positive: Any = None
    classes: Any = None
    task: Any = None

    @cached_property
    def columns(self):
        """[(name, column, what it holds in pandas' words)] of the inputs."""
        x = self.inputs
        if torch.is_tensor(x):
            x = x.numpy() if x.dim() == 2 and x.shape[1] <= WIDE else None
            x = pd.DataFrame(x).rename(columns="{} of x".format)
        return [(c, s, infer_dtype(s, skipna=False)) for c, s in x.items()]

    @cached_property
    def encoded(self):
        """x [N, ...] and, of a table, the Blocks of its columns: numbers stay; words of
        two values are one column, 1 for the second, of k > 2 a one-hot block of k; the
        sensitive attribute is the group's code, which methods read there."""
        if torch.is_tensor(self.inputs):
            double = self.inputs.dtype == torch.float64
            return self.inputs if double else self.inputs.float(), None
        parts, schema, stop = [], [], 0
        for c, s, kind in self.columns:
            code, words = len(self.names) > 2 and c == self.attribute, kind in WORDS
            if code or words:
                values = in_order(s, not code)
                v, two = positions(s, values), len(values) <= 2
                v = (v[:, None] if code or two else F.one_hot(v)).double()
                c = f"{c}={values[-1]}" if words and two else c
            else:
                v = torch.tensor(s.to_numpy(float))[:, None]
            kind = "onehot" if v.shape[1] > 1 else pool.kinds_of(v)[0]
            start, stop = stop, stop + v.shape[1]
            schema.append(pool.Block(f"{c}", kind, start, stop))
            parts.append(v)
        return torch.cat(parts, 1), tuple(schema)

    x = property(lambda self: self.encoded[0])
    label = property(lambda self: [*self.names.values()][0])
    client = property(lambda self: [*self.names.values()][1])


def of_arrays(x, y, client_id, a, own):
    """See Task.from_arrays."""
    of = {"y": y, "client_id": client_id} | ({} if a is None else {"a": a})
    index = {k: v.index for k, v in ({"x": x} | of).items() if hasattr(v, "iloc")}
    refuse_if(
        any(len(u) == len(v) and not u.equals(v) for u, v in pairwise(index.values())),
        f"rows belong together by position, and indexes differ, {index!r:.400}: give "
        "them in one order, with reset_index(drop=True)",
    )
    x, of = numbers(x), {k: column(v, k) for k, v in of.items()}
    n = {k: len(v) for k, v in of.items()}
    refuse_if({*n.values()} != {len(x)}, f"x has {len(x)} rows and {n}: give one each")
    return Given(x, of, own)


def of_frame(df, label, client, sensitive, features, standardise, own):
    """See Task.from_frame."""
    df = df.to_pandas() if hasattr(df, "to_pandas") else df
    if not hasattr(df, "columns"):
        hint = "use Task.from_arrays or Task.from_dataset"
        raise TypeError(f"from_frame takes a DataFrame, no {type(df)!r:.80}: {hint}")
    fine = len(df) and df.columns.is_unique
    refuse_if(not fine, f"give rows, and columns {[*df.columns]} whose names differ")
    check_switch("standardise", standardise)
    roles, there = {"label": label, "client": client}, list(df.columns)
    roles |= {} if sensitive is None else {"sensitive": sensitive}
    usual = [c for c in there if c not in (label, client)]
    features = usual if features is None else listed(features) or []
    odd = [c for c in [*roles.values(), *features] if c not in there]
    once = not odd and 0 < len(set(features)) == len(features)
    hint = [f"there is no {c!r}{nearest(c, there)}" for c in odd]
    refuse_if(
        not once or label in (client, sensitive, *features),
        f"label = {label!r}, client = {client!r}, sensitive = {sensitive!r}, features ="
        f" {features!r:.200}: give columns of {there!r:.400}, inputs once each, and a "
        f"label that is nothing else; {'; '.join(hint)}",
    )
    of = {f"{role} {c!r}": column(df[c], role) for role, c in roles.items()}
    x = df[features].reset_index(drop=True)
    if len(features) == 1 and np.ndim(x.iloc[0, 0]):  # a column of arrays
        x, standardise = numbers([*x.iloc[:, 0]]).float(), False
    return Given(x, of, own, sensitive, standardise)


def read(file):
    """The table of a file .csv, .tsv or .parquet. NA, None and the like are gaps where
    a column holds numbers, and words among words."""
    sep = known({".csv": ",", ".tsv": "\t", ".parquet": ""}, "ending", file.suffix)
    how = {"sep": sep, "index_col": False, "low_memory": False}
    try:
        if not sep:
            return pd.read_parquet(file)
        with warnings.catch_warnings(action="error", category=pd.errors.ParserWarning):
            gaps = pd.read_csv(file, **how).select_dtypes("number")
            words = pd.read_csv(file, keep_default_na=False, na_values=[""], **how)
        return words.assign(**gaps.dropna(axis=1, how="all"))
    except (ValueError, pd.errors.ParserWarning) as e:
        text = "in UTF-8 (iconv -f latin1 -t utf-8), with as many fields in every line "
        text += f"as in the first, separated by {sep!r}"
        raise ValueError(
            f"{file}: {e!s:.200}: write it {text if sep else 'anew'}"
        ) from e


def plain(v):
    """A tensor as an array of numpy; all else as it is."""
    return v.detach().cpu().numpy() if torch.is_tensor(v) else v


def bare(u):
    """A value as one of Python's; a whole float, as pandas makes it, as an int."""
    u = u.item() if hasattr(u, "item") and not np.ndim(u) else u
    return int(u) if isinstance(u, float) and u.is_integer() else u


def column(v, at):
    """One hashable value per row, a Series [N]; an ordered category stays one."""
    try:
        s = pd.Series(plain(v)).reset_index(drop=True).map(bare)
        set(s)
        return s
    except Exception as e:
        raise ValueError(f"{at} has not one value per row, [N]: {e}; give one") from e


def numbers(x):
    """x as a tensor of real numbers; lists of Python's numbers are float32."""
    try:
        if hasattr(x, "iloc"):
            x = x.to_numpy(np.result_type(*[d.type for d in x.dtypes]))
        if isinstance(x, np.ma.MaskedArray):
            x = x.astype(float).filled(np.nan)
        if not isinstance(x, (list, tuple)):
            x = np.require(plain(x), requirements="CW")
        elif len(x) and hasattr(x[0], "__array__"):
            x = np.stack([np.asarray(plain(v)) for v in x])
        x = torch.as_tensor(x)
        refuse_if(x.is_complex(), f"complex, the first is {x.flatten()[:1].tolist()}")
        refuse_if(x.dim() < 2 or not x.numel(), f"shape {[*x.shape]}; give [N, D]")
        most = 0 if x.is_floating_point() else x.double().abs().max()
        refuse_if(most > EXACT, f"the whole number {most:.0f}; float32 ends at {EXACT}")
        refuse_if(bad := pool.not_finite(x), bad)
        return x
    except Exception as e:
        raise ValueError(
            f"x is no array of numbers as float32 holds them ({e!s:.200}): give rows of"
            " real numbers, large ones as float64, or a DataFrame to Task.from_frame"
        ) from e


def in_order(s, own=True):
    """The values of a column: an ordered category in its own order, others natural."""
    there = set(s)
    if own and getattr(s.dtype, "ordered", False):
        return [u for u in s.dtype.categories if u in there]
    return sorted(there, key=natural)


# ---------------------------------------------------------------- a pool
def pool_of(given, name, split):
    """The Pool of what a door was given. ValueError for what is REFUSED."""
    words = list(found(REFUSED, given))
    refuse_if(words, "\n".join(words))
    (x, schema), (at, *_) = given.encoded, given.names
    y, client, *a = given.names.values()
    known, classes = classes_of(y, given.classes, at)
    good = positive_classes(given.positive, classes, at, *a)
    owners, K = in_order(client, False), len(classes)
    numbered = [(type(c), c) for c in classes] == [(int, k) for k in range(K)]
    made = pool.Pool(name, x, positions(y, known), K, "own", positions(client, owners))
    called = () if numbered else tuple(map(str, classes))
    made = made._replace(owners=tuple(map(str, owners)), classes=called)
    if a:
        a, groups = pool.describe(x, a[0], good, schema, str(given.attribute))
        made = made._replace(a=a, groups=groups)
    if given.standardise:
        made = standardised(made, schema, split, given.parts)
    return made._replace(x=made.x.float()) if schema else made


def standardised(made, schema, split, parts):
    """The pool with numbers, but not the group's code, as (v - mean) / deviation over
    all clients' training rows; a constant column becomes v - mean."""
    cut = [pool.cut_rows(r, c, split, parts)[0] for c, r in enumerate(pool.owned(made))]
    code = made.groups and made.groups.column  # methods read the group there
    j = [b.start for b in schema if b.kind == "number" and b.start != code]
    v, x = made.x[torch.cat(cut)][:, j], made.x.clone()
    if not v.numel():
        return made
    deviation = v.std(0, correction=0)
    small = deviation <= 1e-12 * v.abs().amax(0)
    x[:, j] = (x[:, j] - v.mean(0)) / torch.where(small, 1.0, deviation)
    return made._replace(x=x)


def classes_of(s, given, at):
    """(labels in the order of their numbers 0 .. K-1, K classes as one writes them).
    Whole numbers stay, words in order; or `given` has labels, or names of 0 .. K-1."""
    there = [bare(u) for u in in_order(s)]
    classes = there if given is None else [bare(u) for u in listed(given) or ()]
    why = f"{at}: classes = {classes!r:.80}: give two or more, each once"
    refuse_if(len(set(map(str, classes))) < max(2, len(classes)), why)
    words = not any(isinstance(u, Real) for u in classes)
    listing = given is not None and (not words or all(u in classes for u in there))
    known = classes if listing or (given is None and words) else [*range(len(classes))]
    odd = [u for u in there if u not in known]
    refuse_if(
        odd,
        f"{at}: labels run from {there[0]!r} to {there[-1]!r}, and {odd!r:.99} are "
        f"none of {len(known)} classes {known!r:.99}{nearest([*odd, 0][0], classes)}: "
        f"list all, classes={there!r:.60}, renumber, np.unique(y, return_inverse=1)[1],"
        f" or leave out such rows, as {s[s.isin(odd)].index.min()}",
    )
    return known, classes


def positive_classes(positive, classes, at, a=None):
    """The numbers of the classes that are good for a person; None: the second."""
    if positive is None:
        return (1,)
    known, good = [*map(str, classes)], listed(positive) or [positive]
    good = [str(bare(u)) for u in good]
    refuse_if(
        a is None or not {*good} <= {*known},
        f"positive = {positive!r:.60}: give classes of {at} that are good for a person,"
        f" of {', '.join(known):.200}, and the group of every row",
    )
    return tuple(dict.fromkeys(map(known.index, good)))


# ---------------------------------------------------------------- the checks
def found(checks, g):
    """The words of what the checks find."""
    for test, words in checks.items():
        if facts := test(g):
            yield words.format(*facts)


def of_inputs(test):
    """A check of all inputs: test(column, kind, given) gives facts, or nothing. Before
    them are the names of all columns that it finds, and that of the first."""

    def check(g):
        facts = {c: f for c, s, kind in g.columns if (f := test(s, kind, g))}
        names = f"column{'s' * (len(facts) > 1)} {', '.join(map(repr, facts)):.200}"
        return facts and (names, *next((c, *f) for c, f in facts.items()))

    return check


def missing(g):
    """Gaps, infinity and blank texts, in all columns at once."""
    blank = lambda s: s.dtype.kind == "O" and s.astype(str).str.strip() == ""
    gap = lambda s: s.isna() | s.isin((np.inf, -np.inf)) | blank(s)
    columns = g.names | {f"column {c!r}": s for c, s, _ in g.columns}
    gaps = {k: v for k, s in columns.items() if len(v := np.flatnonzero(gap(s)))}
    for k, rows in gaps.items():
        said = ", ".join(f"{k} ({len(v)})" for k, v in gaps.items())
        return said, rows[0], k, bare(columns[k].iloc[rows[0]])


def unnamed(g):
    """Values that are no names and no whole numbers, or are of two types."""
    for at, s in g.names.items():
        types = s.dropna().map(bare).map(type)
        odd = types.isin((float, complex)) | types.ne(next(iter(types), None))
        for i in types.index[odd][:1]:
            return at, s[i], i, s[types.index[0]]


@of_inputs
def no_numbers_and_no_words(s, kind, g):
    return not (kind in NUMBERS + WORDS or s.isna().any()) and (kind, s.iloc[0])


@of_inputs
def identifier(s, kind, g):
    many = s.nunique() > max(len(s), MANY) / 2
    return kind in WORDS and many and (s.nunique(), len(s), s.iloc[0])


def bands_last(g):
    """Images, sides first: bands are fewer, or differ from two equal sides."""
    if g.x.dim() == 4:
        _, a, b, c = g.x.shape
        sides = min(a, b) >= SIDE and max(a, b) <= 3 * min(a, b)
        return sides and (c < min(a, b) or a == b != c) and ([*g.x.shape], c)


def pixels(g):
    """Whole numbers above 1 in images, or of images' own type."""
    x, kind = g.x, getattr(g.inputs, "dtype", None)
    if x.dim() > 2 and x.max() > 1 and (kind == torch.uint8 or x.dim() == 4):
        return x.min() >= 0 and x.equal(x.round()) and ([*x.shape], x.max())


REFUSED = {
    missing: "missing values in {}; the first is row {} of {} ({!r}): leave such rows "
    "out, as df.dropna(), or fill them, with a median or a word of their own; where NA "
    "or None is a word of the file, read_csv(file, keep_default_na=False)",
    unnamed: "{} holds {!r} at row {}, and {!r} before: give names, or whole numbers,"
    " all of one type; cut a quantity into bands first (pandas.cut)",
    no_numbers_and_no_words: "{0}: {2}, as {3!r}: give numbers, df[{1!r}].astype("
    "float), or text, .astype(str), of dates the years; or leave it out by features=",
    identifier: "{0}: {2} different words in {3} rows, as {4!r}: leave an identifier "
    "or text out by features=, make numbers by pandas.to_numeric(df[{1!r}])",
}


def far(g):
    codes = g.own and torch.is_tensor(g.inputs) and not g.inputs.is_floating_point()
    if not (g.standardise or g.x.dim() != 2 or codes):
        most = g.x.abs().amax(0)
        many, j = int((most > LARGE).sum()), int(most.argmax())
        return many and (j, most[j].item(), many)


@of_inputs
def numbers_as_text(s, kind, g):
    """More than half of the words; a category is meant as it is."""
    words = s.unique() if kind == "string" else ()
    odd = [w for w in words if not AS_TEXT.fullmatch(w)]
    fine = len(words) <= 2 or len(odd) >= len(words) / 2
    return not fine and (len(words) - len(odd), len(words), odd[:3] or "none")


@of_inputs
def row_number(s, kind, g):
    """Whole numbers, one per row, or that count a client's rows, or are called so."""
    if kind not in ("integer", "floating") or (s % 1 != 0).any():
        return None
    n, N, name, own = s.nunique(), len(s), f"{s.name}", s.groupby(g.client)
    span = own.max() - own.min() + 1
    counted = (span == own.nunique()) & (span == own.count()) & (span > FEW / 2)
    return n > MANY and (n == N or counted.all() or INDEX.fullmatch(name)) and (n, N)


@of_inputs
def the_label(s, kind, g):
    """A column whose words, few values or intervals have one label each."""
    y, n = pd.Series(pd.factorize(g.label)[0]), s.nunique()
    if n < 2 or y.groupby(s, observed=True).nunique().max() > 1:
        return None
    K, steps = y.nunique(), y[s.argsort()].diff().ne(0).sum() if kind in NUMBERS else 0
    few = n <= (K if kind == "floating" else max(K, len(y) / 10))
    cut = steps == K and y.value_counts().min() >= FEW / 2
    return (few or cut) and [[*g.names][0]]


def rows_again(g):
    """Rows that stand in the data far more often than if columns were drawn apart."""
    rows = (g.x.flatten(1) + 0.0).numpy()
    row = pd.DataFrame({"x": [hash(r.tobytes()) for r in rows], "y": g.label})
    n = row.groupby(["x", "y"]).x.transform("size")
    pairs = lambda s: s.value_counts(normalize=True).pow(2).sum()
    chance = len(n) * np.prod([pairs(s) for _, s, _ in g.columns] or [0.0])
    if (n > 1).mean() > 0.05 and (n - 1).mean() > 10 * chance:
        two = row.eq(row[n > 1].iloc[0]).all(axis=1)
        return (n > 1).sum(), len(n), *np.flatnonzero(two)[:2]


def same_word(v):
    """A word without its case, spaces, leading zeros and what follows a final dot."""
    v = unicodedata.normalize("NFKC", v).casefold()
    return re.sub(r"[\s_\u200b\ufeff]+|^\s*0+(?=\d)|\.0*\s*$", " ", v).strip()


def alike(g):
    """Words of label, client, group and inputs that are probably one."""
    columns, said = {f"column {c!r}": s for c, s, k in g.columns if k in WORDS}, []
    for at, s in (g.names | columns).items():
        words = pd.Series({u: same_word(u) for u in s.unique() if isinstance(u, str)})
        twice = words[words.duplicated(keep=False)].sort_values().index
        said += [f"{at}: {[*twice[:6]]}"] * bool(len(twice))
    return said and ["; ".join(said)]


def few_test_rows(g):
    n = [len(r) for r in g.task.test]
    few, least = sum(k < FEW for k in n), n.index(min(n))
    return few and (few, len(n), g.task.owners[least], n[least], 100 / n[least])


DOUBTFUL = {
    bands_last: "x has shape {}, images, {} bands last: give x.transpose(0, 3, 1, 2)",
    pixels: "x has shape {} and whole numbers to {:.0f}: divide pixels by 255",
    far: f"column {{}} of x reaches {{:g}} ({{}} columns beyond {LARGE:g}): training "
    "may diverge; standardise, as x = (x - x.mean(0)) / x.std(0)",
    numbers_as_text: "{0}: numbers or dates as text ({2} of {3} words; others: {4}) "
    "become columns of words: use pandas.to_numeric(df[{1!r}]), after .str.replace(',',"
    " '.') for decimal commas; for codes df[{1!r}].astype('category')",
    row_number: "{0}: {2} whole numbers in {3} rows, as a row number or identifier: "
    "leave it out by features=, or df.drop(columns={1!r})",
    the_label: "{0} tells the {2} without error, as if it were the label in other words"
    ": leave it out by features=, or df.drop(columns={1!r})",
    rows_again: "{} of {} rows stand in the data again, as rows {} and {}, so in "
    "training and in test: df.drop_duplicates(), and repeat training rows only",
    alike: "words that differ in case, spaces, zeros or a final dot alone: {}; make "
    "them one by df[c] = df[c].str.strip().str.rstrip('.').str.lower()",
    lambda g: g.task.K > 2 and g.positive is None and g.task.compared[:1]: "{}, by the "
    "second class: name those that are good for a person by positive=",
    lambda g: g.task.compared[1:]: "{}: merge groups, or raise the test share",
    lambda g: g.client.nunique() == 1 and ([*g.names][1], g.client[0]): "{} takes only "
    "the value {!r}: a federation has two clients or more",
    few_test_rows: f"fewer than {FEW} test rows at {{}} of {{}} clients; client {{!r}} "
    "has {}, so its accuracy moves in steps of {:.0f} points: merge clients, or raise "
    "the test share",
}
