"""The handwritten digits that come with scikit-learn: 1,797 real images, 8 x 8,
10 classes (UCI, Alpaydin and Kaynak, 1998).
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch

from ..core.pool import Pool


def digits() -> Pool:
    """All 1,797 images as x [N, 1, 8, 8] in [0, 1] (the files hold 17 grey levels) with
    their digit y [N].

    The file is read here as `sklearn.datasets.load_digits` reads it: to import that
    takes a second, in every process that builds a task. ImportError without
    scikit-learn.
    """
    package = find_spec("sklearn")
    if package is None:
        raise ImportError("digits come with scikit-learn: pip install scikit-learn")
    file = Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"
    rows = torch.from_numpy(np.loadtxt(file, delimiter=","))
    x, y = rows[:, :-1].float().div(16).reshape(-1, 1, 8, 8), rows[:, -1].long()
    return Pool(name="digits", x=x, y=y, K=10, kind="real")
