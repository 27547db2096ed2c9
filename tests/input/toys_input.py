"""What a refusal is: a ValueError or TypeError that names what was given and its place,
and says what to do; of its sentence nothing is asked. And somebody's data."""

import re

import numpy as np
import pandas as pd

from fedlib.core.task import Task

NAN, INF = float("nan"), float("inf")
NO_WHOLE = (True, 1.5, NAN, "3", None, [3], -1, 10**30)  # no number of things
NO_NUMBER = (True, NAN, INF, "x", None, [1.0], 1j)
REMEDY = re.compile("give|use|choose|write|leave|merge|delete|mean|outside|not a|known")


def lacks(said, *names):
    """What a message lacks: names, as words (of a tuple one will do), and a remedy."""
    whole = lambda n: re.search(rf"(?<!\w){re.escape(str(n))}(?!\w)", said)
    has = lambda n: any(map(whole, n)) if isinstance(n, tuple) else whole(n)
    short = len(said) < 40 and not REMEDY.search(said)
    return [n for n in names if not has(n)] + ["a remedy"] * short


def trouble(act, *names):
    """What is wrong with the refusal of act(); "" for nothing."""
    try:
        act()
    except (ValueError, TypeError) as e:
        gone = lacks(str(e), *names)
        return f"the message lacks {gone}: {e}" if gone else ""
    except Exception as e:
        return f"{type(e).__name__}: {e}"
    return "was accepted"


def refused(act, *names):
    all_refused([("", act, *names)])


def all_refused(rows):
    """Fail unless each act() of (case, act, *names) is refused in words with all names."""
    found = [(case, trouble(act, *names)) for case, act, *names in rows]
    bad = [f"{case!s:.200}: {what:.300}" for case, what in found if what]
    assert not bad, "\n".join(bad)


def each(call, table):
    """Rows of {argument: wrong values}: call(argument=value), which has to name it."""
    for name, values in table.items():
        for v in values:
            yield f"{name} = {v!r:.80}", lambda n=name, v=v: call(**{n: v}), name


N = 240
X = np.random.RandomState(0).randn(N, 5)
Y, A = np.arange(N) % 3, np.arange(N) // 3 % 2
C = np.array(["a", "b"]).repeat(N // 2)
IMAGES = np.random.RandomState(1).rand(N, 3, 8, 9)


def arrays(x=X, y=Y, client_id=C, **more):
    return Task.from_arrays(x, y, client_id, **more)


def put(v, at, value, dtype=None):
    v = np.array(v, dtype=dtype)
    v[at] = value
    return v


def listed(v, at, value):
    v = list(v)
    v[at] = value
    return v


def people(**columns):
    """A table of 240 people; what is given is another column, or one more."""
    r = np.random.RandomState(3)
    age = r.randint(18, 90, N)
    usual = {"age": age, "income": 500.0 * age + 2000 * r.rand(N)}
    usual["job"] = r.choice(["nurse", "clerk", "cook"], N)
    usual["sex"] = r.choice(["woman", "man"], N)
    usual["smokes"] = r.rand(N) < 0.3
    usual["ill"] = np.where(age + 20 * r.randn(N) > 54, "yes", "no")
    usual["clinic"] = [f"clinic {i % 12}" for i in range(N)]
    return pd.DataFrame(usual | columns)


def frame(table=None, **more):
    how = {"label": "ill", "client": "clinic"} | more
    return Task.from_frame(people() if table is None else table, **how)
