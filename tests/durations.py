"""How long the tests take, measured in one process and written into CONTRIBUTING.md.

python tests/durations.py                all tests; then the table is written anew
python tests/durations.py tests/fedlib/core/test_core.py -k seed
        some tests; the table is only printed
"""

import os
import re
import resource
import sys
import time

import pandas as pd
import pytest
from where import ROOT

PAGE = ROOT / "CONTRIBUTING.md"
SLOWEST = 10


def cpu():
    """Seconds of this process and of the children that have ended,
    of user and system.
    """
    return sum(
        sum(resource.getrusage(who)[:2])
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )


class Watch:
    """A pytest plugin.

    rows: (file, is it quick, CPU seconds, seconds) of each test; collected: CPU seconds
    before the first.
    """

    def __init__(self):
        self.rows, self.began, self.collected = [], cpu(), 0.0

    def pytest_collection_finish(self):
        self.collected = cpu() - self.began

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        used, now = cpu(), time.monotonic()
        done = yield
        quick = item.get_closest_marker("full") is None
        self.rows.append((item.path.name, quick, cpu() - used, time.monotonic() - now))
        return done


def table(rows, collected):
    """Markdown: the slowest files, all files, and collection."""
    each = pd.DataFrame(rows, columns=["file", "quick", "cpu", "wall"])
    each = each.assign(one=1, quick_one=each.quick, quick_cpu=each.cpu * each.quick)
    files = (
        each.groupby("file")[["quick_one", "quick_cpu", "one", "cpu", "wall"]]
        .sum()
        .sort_values("wall", ascending=False)
    )
    lines = [(f"`{name}`", *row) for name, row in zip(files.index, files.to_numpy())][
        :SLOWEST
    ]
    lines += [
        (f"all {len(files)} files", *files.sum()),
        ("collection, in each process", "", collected, "", collected, ""),
    ]
    head = ("", "quick tests", "CPU s", "all tests", "CPU s", "s")
    said = [[c if isinstance(c, str) else f"{c:,.0f}" for c in line] for line in lines]
    return "\n".join(
        f"| {' | '.join(cells)} |" for cells in (head, ["---", *["--:"] * 5], *said)
    )


def machine():
    """On what it was measured.

    A load above one: other work has made the seconds long, and CPU seconds somewhat.
    """
    load = os.getloadavg()[2]
    return (
        f"Measured in one process on {os.cpu_count()} cores; mean load of the last "
        f"quarter of an hour: {load:.1f}."
    )


def put(text, lines):
    """The page with these lines between its two marks."""
    new, n = re.subn(
        r"(<!-- durations -->\n).*?(<!-- /durations -->)",
        lambda m: f"{m[1]}{lines}\n{m[2]}",
        text,
        flags=re.S,
    )
    if n != 1:
        raise ValueError(
            f"{PAGE.name}: one pair of the marks <!-- durations --> and <!-- "
            f"/durations --> is needed, it has {n}"
        )
    return new


if __name__ == "__main__":
    watch = Watch()
    code = pytest.main(["-q", *sys.argv[1:]], plugins=[watch])
    lines = f"{table(watch.rows, watch.collected)}\n\n{machine()}"
    print(lines)
    if code == 0 and not sys.argv[1:]:
        PAGE.write_text(put(PAGE.read_text(encoding="utf-8"), lines), encoding="utf-8")
    sys.exit(code)
