"""The app on Flower's releases: the oldest that pyproject.toml admits, the one that is
installed, the newest."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.nightly


def run(*command, env):
    how = {"capture_output": True, "text": True, "cwd": ROOT}
    return subprocess.run([sys.executable, "-m", *command], env=os.environ | env, **how)


@pytest.mark.parametrize("release", ("oldest", "installed", "newest"))
def test_the_app_on_a_release(release, tmp_path):
    pytest.importorskip("flwr")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needs = next(r for r in extras["optional-dependencies"]["deploy"] if "flwr" in r)
    if release != "installed":
        what = needs.replace(">=", "==") if release == "oldest" else "flwr"
        alone = ("-q", "--no-deps", "--target", str(tmp_path))
        got = run("pip", "install", *alone, what, env={})
        if got.returncode:
            pytest.skip(f"{what} cannot be fetched: {got.stderr[-200:]}")
    path = os.pathsep.join((str(tmp_path), str(ROOT)))
    tests = ("-q", "-p", "no:cacheprovider", "tests/wire/test_app.py")
    done = run("pytest", *tests, env={"PYTHONPATH": path})
    assert not done.returncode and "skipped" not in done.stdout, done.stdout
