"""Which tests `make test` runs, and the table of their durations."""

import os
import subprocess

import pytest
from durations import PAGE, put, table


def test_the_table_adds_up_and_names_the_slowest_file_first():
    rows = [
        ("b.py", True, 10.0, 4.0),
        ("a.py", True, 1.0, 2.0),
        ("a.py", False, 3.0, 5.0),
    ]
    assert table(rows, 7.4).splitlines()[2:] == [
        "| `a.py` | 1 | 1 | 2 | 4 | 7 |",
        "| `b.py` | 1 | 10 | 1 | 10 | 4 |",
        "| all 2 files | 2 | 11 | 3 | 14 | 11 |",
        "| collection, in each process |  | 7 |  | 7 |  |",
    ]


def test_only_the_table_of_the_page_is_replaced():
    page = PAGE.read_text(encoding="utf-8")
    new = put(put(page, "| old |"), "| new |")
    assert "| new |" in new and "| old |" not in new
    assert new.partition("<!-- dur")[0] == page.partition("<!-- dur")[0]
    with pytest.raises(ValueError, match="one pair of the marks"):
        put("a page without them", "| new |")


@pytest.mark.parametrize("full", [[], ["FULL=1"]])
def test_dear_tests_run_where_they_are_asked_for(full):
    around = ("FULL", "MAKEFLAGS", "MAKEOVERRIDES")  # of a make that runs this test
    outside = {k: v for k, v in os.environ.items() if k not in around}
    said = subprocess.run(
        ["make", "-n", "test", *full],
        cwd=PAGE.parent,
        env=outside,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert ("not full" in said) == (not full) and "make test FULL=1" in (
        PAGE.parent / ".ci/run"
    ).read_text()
