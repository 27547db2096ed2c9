"""Numbers of the chapter *Privacy and communication*."""

import math

import numpy as np

from fedlib.pieces.secure import SEALED, SECRET, SHARE, Fixed


def masks(pairs, n):
    """What each of n clients adds for the others: + for the first of a pair."""
    out = np.zeros((n, n), int)
    for (i, j), k in pairs.items():
        out[i, j], out[j, i] = k, -k
    return out


def test_three_clients_and_one_drops_out():
    x, own = np.array([3, 5, 2]), np.array([4, 9, 1])
    pairs = masks({(0, 1): 7, (0, 2): 11, (1, 2): 6}, 3)
    up = (x + own + pairs.sum(1)) % 16
    assert up.tolist() == [9, 13, 2] and up.sum() % 16 == 8 and own.sum() == 14
    assert (8 - 14) % 16 == 10 == x.sum()
    # without Cem
    assert up[:2].sum() % 16 == 6 and own[:2].sum() == 13 and pairs[:2, 2].sum() == 17
    assert 6 - 13 - 17 == -24 and -24 % 16 == 8 == x[:2].sum()


def test_four_clients_of_the_class():
    x, own = np.array([1, 6, 9, 4]), np.array([3, 17, 8, 25])
    k = {(0, 1): 5, (0, 2): 12, (0, 3): 30, (1, 2): 7, (1, 3): 21, (2, 3): 9}
    pairs = masks(k, 4)
    bare = x + own + pairs.sum(1)
    assert bare.tolist() == [51, 46, 7, -31]
    up = bare % 32
    assert up.tolist() == [19, 14, 7, 1] and up.sum() % 32 == 9
    assert own.sum() == 53 and (9 - 53) % 32 == 20 == x.sum()
    stands = pairs[:3, 3].sum()
    assert stands == 60 and up[:3].sum() % 32 == 8 and own[:3].sum() == 28
    assert 8 - 28 - 60 == -80 and -80 % 32 == 16 == x[:3].sum()
    assert (up[3] - own[3] + stands) % 32 == 4 == x[3]


def test_quiz_and_coin():
    assert (6 + 5 + 8) % 10 == 9
    yes = {True: 3 / 4, False: 1 / 4}
    assert round(math.log(yes[True] / yes[False]), 2) == 1.10
    assert math.isclose(0.3 * yes[True] + 0.7 * yes[False], 0.4)
    assert math.isclose(0.3 * 3 / 4 / 0.4, 0.5625)  # Bayes
    assert math.isclose(3 / 4 - 1 / 4, 0.5)  # one bit


def test_a_biased_coin():
    r = math.tanh(0.05)
    assert math.isclose(math.log((1 + r) / (1 - r)), 0.1) and round(r, 5) == 0.04996
    error = math.sqrt(0.25 / 1000)  # at most
    assert round(100 * error, 1) == 1.6 and round(100 * error / r) == 32
    assert round(1 / 0.05**2) == 400


def test_noise_of_many():
    rng = np.random.default_rng(0)
    noise = rng.normal(0, 2.0 / np.sqrt(25), (25, 100_000)).sum(0)
    assert abs(noise.std() - 2) < 0.02


def test_bytes_of_the_protocol():
    assert (SECRET, SEALED, SHARE) == (32, 94, 33)


def test_the_step_of_rounding():
    code = Fixed(bits=32, high=16, clients=3)
    assert math.isclose(code.step, 16 * 3 / (2**31 - 1), rel_tol=1e-6)
    assert math.isclose(code.error, 3 * code.step / 2, rel_tol=1e-3)
