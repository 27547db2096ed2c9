"""The handwritten digits that come with scikit-learn: 1,797 real images, 8 x 8,
10 classes (UCI, Alpaydin and Kaynak, 1998).
"""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits

from ..core.pool import Pool


def digits() -> Pool:
    """All 1,797 images as x [N, 1, 8, 8] in [0, 1] (the files hold 17 grey levels) with
    their digit y [N].
    """
    files = load_digits()
    x = torch.from_numpy(files.images).float().div(16)[:, None]
    return Pool(
        name="digits", x=x, y=torch.from_numpy(files.target).long(), K=10, kind="real"
    )
