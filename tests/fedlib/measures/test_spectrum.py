"""The top of the Hessian's spectrum, against matrices whose eigenvectors are known."""

import pytest
import torch
from test_sharpness import at, bowl, hessian, rotated, tiny_net

from fedlib.core.tree import leaves, rows, stack
from fedlib.measures import landscape as ls
from fedlib.measures import spectrum
from fedlib.measures.sharpness import apart


def flat(tree):
    return rows(stack([tree]))[0]


def test_eigenpairs_of_a_known_matrix():
    H = rotated([5.0, -7.0, 3.0, 1.0, 0.5])
    found = spectrum.eigenpairs(bowl(H), at(1.0, 2.0, 3.0, 4.0, 5.0))
    # the largest, not the largest in magnitude
    assert found.values == pytest.approx([5, 3])
    for value, vector in zip(found.values, found.vectors):
        v = flat(vector)
        assert v.norm() == pytest.approx(1)
        assert v[v.abs().argmax()] > 0
        assert torch.allclose(H @ v, value * v, atol=1e-3)


def test_eigenvalues_of_a_network_are_those_of_its_whole_hessian():
    task, w = tiny_net()
    loss = ls.data_loss(task, torch.cat(task.train), 7)
    p, _ = apart(loss, w)
    exact = torch.linalg.eigvalsh(hessian(loss, p, w)).flip(0)[:3]
    found = spectrum.eigenpairs(loss, w, k=3)
    assert found.values == pytest.approx(exact.tolist(), rel=1e-3)
    # buffers stay where they are
    assert not any(found.vectors[0][name].any() for name in task.buffers)


def test_vectors_are_directions_of_a_landscape():
    found = spectrum.eigenpairs(bowl(rotated([4.0, 2.0, 1.0])), at(0.0, 0.0, 0.0))
    z = ls.plane(bowl(rotated([4.0, 2.0, 1.0])), at(0.0, 0.0, 0.0), *found.vectors)
    middle = len(z) // 2
    # half the eigenvalue at distance 1
    assert float(z[middle, -1]) == pytest.approx(2, rel=1e-3)
    assert float(z[-1, middle]) == pytest.approx(1, rel=1e-3)


def test_what_does_not_vary_is_zero():
    w = {"w": torch.ones(2, 2, dtype=torch.float64), "b": torch.ones(2).double()}
    loss = lambda v: sum((i + 1) * x.square().sum() for i, x in enumerate(leaves(v)))
    found = spectrum.eigenpairs(loss, w, k=1, which="matrix")
    assert found.values == pytest.approx([2])
    assert not found.vectors[0]["b"].any() and found.vectors[0]["w"].any()


@pytest.mark.parametrize("k", [0, 3, 9])
def test_too_many_or_no_eigenpairs_are_refused(k):
    with pytest.raises(ValueError, match="give 1 to 2 eigenpairs"):
        spectrum.eigenpairs(bowl(rotated([1.0, 2.0, 3.0])), at(0.0, 0.0, 0.0), k=k)


def test_a_loss_that_is_not_finite_is_refused():
    with pytest.raises(ValueError, match="not finite"):
        spectrum.eigenpairs(lambda w: w["w"].sqrt().sum(), at(-1.0, -1.0, -1.0))
