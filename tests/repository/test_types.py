"""A caller's type checker sees what fedlib gives back."""

import os
import re
import subprocess
import sys
import tomllib

import pytest
from where import ROOT

USAGE = ROOT / "tests/repository/typed_usage.py"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def checked(cache):
    """What mypy says of the public functions and of the code that uses them."""
    pytest.importorskip("mypy")
    env = {k: v for k, v in os.environ.items() if k != "MYPYPATH"}
    got = subprocess.run(
        [sys.executable, "-m", "mypy", f"--cache-dir={cache}"],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
    )
    return got.returncode, got.stdout + got.stderr


@pytest.mark.full
def test_the_types_of_the_public_functions_fit_their_use():
    """typed_usage.py says what every call gives, and which calls are mistakes; where
    it is wrong, mypy ends with an error.
    """
    code, said = checked(ROOT / ".mypy_cache")
    assert code == 0, said


def test_the_package_says_that_it_is_typed():
    """PEP 561: without the mark a type checker reads no annotation of a package."""
    assert (ROOT / "fedlib/py.typed").exists()
    shipped = PROJECT["tool"]["setuptools"]["package-data"]
    assert "py.typed" in shipped["fedlib"]


def test_mypy_looks_at_the_package_and_at_its_use():
    files = PROJECT["tool"]["mypy"]["files"]
    assert files == ["fedlib", USAGE.relative_to(ROOT).as_posix()]


def test_every_public_name_is_used_in_the_typed_code():
    import fedlib

    text = USAGE.read_text()
    for name in fedlib.__all__:
        assert re.search(rf"\b{name}\b", text), name
    assert text.count("assert_type(") > 20 and text.count("type: ignore[") >= 6


def test_a_type_checker_is_told_the_names_that_come_lazily():
    """Both lists of fedlib/__init__.py name the same."""
    import fedlib

    text = (ROOT / "fedlib/__init__.py").read_text()
    shown = text.partition("if TYPE_CHECKING:")[2].partition("\n\n")[0]
    for name, place in fedlib.MADE_IN.items():
        assert f"    from .{place} import {name}\n" in shown + "\n"
    assert {*fedlib.MADE_IN, "metrics"} == set(fedlib.__all__)
