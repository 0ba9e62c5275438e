"""The generator against its published vectors, and what is built on it against scipy and numpy."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import special

from recsim_mnar import rng
from recsim_mnar.kernels import _rng_kernel
from toys import refused

# Random123's known-answer tests for philox4x32-10: counter, key, result.
KNOWN = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN)
def test_published_vectors(counter, key, expected):
    (index, stream, user_low, user_high), key = ([int(word, 16) for word in text.split()] for text in (counter, key))
    user = np.array([user_high << 32 | user_low], np.uint64)
    words = rng.blocks(key[1] << 32 | key[0], stream, user, np.array([index]))
    assert " ".join(f"{int(word):08x}" for word in words[0]) == expected


def plain_philox(counter, key):
    """Salmon et al. 2011, in Python integers."""
    c, k = list(counter), list(key)
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [p1 >> 32 ^ c[1] ^ k[0], p1 & 0xFFFFFFFF, p0 >> 32 ^ c[3] ^ k[1], p0 & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def test_blocks_agree_with_the_plain_generator():
    for seed, stream, user, index in [(7, 3, 11, 5), (2**64 - 3, 12, 2**40 + 9, 2**32 - 1), (1, 1, 0, 1)]:
        words = rng.blocks(seed, stream, np.array([user], np.uint64), np.array([index]))[0].tolist()
        counter = (index, stream, user & 0xFFFFFFFF, user >> 32)
        assert words == plain_philox(counter, (seed & 0xFFFFFFFF, seed >> 32))


def test_uniforms_and_normals_read_their_blocks():
    users, indices = np.arange(50), np.arange(50) * 3
    words = rng.blocks(9, 4, users, indices).astype(object)
    expected = [((int(w[0]) << 32 | int(w[1])) >> 11) * 2.0**-53 for w in words]
    assert rng.uniforms(9, 4, users, indices).tolist() == expected
    block = rng.blocks(9, 4, np.full(2, 6), np.arange(2)).ravel()[:7]
    normals = rng.normals(9, 4, 6, (1, 7))[0]
    assert_allclose(normals, special.ndtri((block + 0.5) / 2**32), rtol=2e-15)


def test_exp_log_and_normal_are_accurate():
    x = np.linspace(-700, 700, 100_001)
    out = np.empty_like(x)
    _rng_kernel.map_exp(x, out)
    assert_allclose(out, np.exp(x), rtol=4e-16)
    positive = np.exp(np.linspace(-600, 600, 100_001))
    _rng_kernel.map_log(positive, out)
    assert_allclose(out, np.log(positive), rtol=1e-15, atol=1e-16)
    small = np.linspace(-87, 87.9, 100_001).astype(np.float32)
    out32 = np.empty_like(small)
    _rng_kernel.map_exp32(small, out32)
    assert_allclose(out32, np.exp(small.astype(float)), rtol=2e-7)
    words = np.arange(0, 2**32, 99_991, dtype=np.uint32)
    out = np.empty(len(words))
    _rng_kernel.map_normal(words, out)
    assert_allclose(out, special.ndtri((words + 0.5) / 2**32), rtol=2e-15, atol=1e-17)


@pytest.mark.parametrize("seed", [-1, 2**64, 1.5, "x", True, None])
def test_bad_seeds_are_refused(seed):
    with refused("seed"):
        rng.check_seed(seed)
