"""Where the repository is that figures belong to."""

from __future__ import annotations

from pathlib import Path


def root() -> Path:
    """The repository's root: the nearest folder above the working directory with a
    pyproject.toml, else that directory.
    """
    here = Path.cwd()
    above = (p for p in (here, *here.parents) if (p / "pyproject.toml").exists())
    return next(above, here)
