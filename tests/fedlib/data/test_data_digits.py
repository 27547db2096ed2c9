"""The digits of scikit-learn: what only these images have."""

import torch
from sklearn.datasets import load_digits

from fedlib.data.digits import digits
from fedlib.data.tasks import SOURCES


def test_shapes_kind_and_range():
    pool = digits()
    assert (
        pool.x.shape == (1797, 1, 8, 8)
        and pool.x.dtype == torch.float32
        and pool.kind == "real"
    )
    assert pool.y.dtype == torch.int64 and pool.y.unique().tolist() == list(
        range(pool.K)
    )
    assert pool.x.min() == 0 and pool.x.max() == 1 and SOURCES["digits"] is digits


def test_values_are_the_seventeen_grey_levels_of_the_files():
    pool, files = digits(), load_digits()
    assert torch.equal(
        (pool.x * 16).flatten(1), torch.tensor(files.data, dtype=torch.float32)
    )
    assert len(pool.x.unique()) == 17 and pool.y.tolist() == files.target.tolist()


def test_asked_twice_the_same_bits():
    a, b = digits(), digits()
    assert torch.equal(a.x, b.x) and torch.equal(a.y, b.y) and a.x is not b.x


def test_an_image_is_nearest_to_others_of_its_digit():
    """Nearest neighbour finds the digit: images and labels belong together."""
    pool = digits()
    x = pool.x.flatten(1)
    apart = torch.cdist(x, x).fill_diagonal_(torch.inf)
    assert (pool.y[apart.argmin(1)] == pool.y).float().mean() > 0.95
