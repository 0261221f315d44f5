"""Counter-based noise against its definition in Python integers, and against the distributions it claims."""

import hashlib
import json
import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from consilience.corruption import seeded_noise as noise_module
from consilience.corruption.seeded_noise import Noise

WORD = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15


def mix(word):
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & WORD
    return word ^ (word >> 31)


def word_at(seed, names, index, position):
    key = int.from_bytes(hashlib.blake2b(json.dumps([seed, *names]).encode(), digest_size=8).digest(), "little")
    start = mix(mix((index * GOLDEN + key) & WORD))
    return mix((start + (position + 1) * GOLDEN) & WORD)


def uniform_at(seed, names, index, position):
    return (word_at(seed, names, index, position) >> 11) / 2**53


def normal_at(seed, names, index, position):
    word = word_at(seed, names, index, position // 2)
    high, low = word >> 32, word & 0xFFFFFFFF
    radius = math.sqrt(-2 * math.log(((high >> 1) + 0.5) / 2**31))
    angle = math.pi / 2 * (low >> 1) / 2**31
    if position % 2 == 0:
        return (-1) ** (high & 1) * radius * math.sin(angle)
    return (-1) ** (low & 1) * radius * math.cos(angle)


@pytest.mark.parametrize("index", [0, 1, 12345, 2**40, -3])
def test_equals_the_definition_in_python_integers(index):
    noise = Noise(7, "image", "gaussian")
    uniform, normal = noise.uniform(np.array([index]), (9,))[0], noise.normal(np.array([index]), (9,))[0]
    assert uniform.tolist() == [uniform_at(7, ["image", "gaussian"], index, p) for p in range(9)]
    expected = [normal_at(7, ["image", "gaussian"], index, p) for p in range(9)]
    np.testing.assert_allclose(normal, expected, rtol=2e-6, atol=2e-7)


def test_splitmix_reproduces_its_published_first_outputs():
    # The reference implementation of splitmix64 started from 1234567.
    words = np.array([(1234567 + step * GOLDEN) & WORD for step in range(1, 4)], dtype=np.uint64)
    assert noise_module._mix(words).tolist() == [6457827717110365317, 3203168211198807973, 9817491932198370423]


@given(st.permutations(range(11)), st.integers(1, 10), st.integers(1, 7))
def test_any_order_and_partition_gives_the_same_bits(order, cut, count):
    noise, order = Noise(3, "a"), np.array(order)
    for draw in (noise.uniform, noise.normal):
        whole = draw(np.arange(11), (count,))
        parts = np.concatenate([draw(order[:cut], (count,)), draw(order[cut:], (count,))])
        np.testing.assert_array_equal(parts, whole[order])


@pytest.mark.parametrize("block", [1, 3, 64])
def test_the_size_of_blocks_does_not_matter(block, monkeypatch):
    noise, index = Noise(0, "a"), np.arange(5)
    uniform, normal = noise.uniform(index, (3, 7)), noise.normal(index, (3, 7))
    monkeypatch.setattr(noise_module, "_BLOCK", block)
    np.testing.assert_array_equal(noise.uniform(index, (3, 7)), uniform)
    np.testing.assert_array_equal(noise.normal(index, (3, 7)), normal)


def test_more_time_adds_numbers_at_the_end():
    noise, index = Noise(0, "a"), np.arange(4)
    for draw in (noise.uniform, noise.normal):
        np.testing.assert_array_equal(draw(index, (9, 3))[:, :4], draw(index, (4, 3)))


def test_shapes_and_nothing_to_draw():
    noise = Noise(0, "a")
    assert noise.uniform(np.arange(3)).shape == (3,)
    assert noise.normal(np.arange(3), (2, 5)).shape == (3, 2, 5)
    assert noise.normal(np.arange(0), (5,)).shape == (0, 5)
    assert noise.uniform(np.arange(3), (0,)).shape == (3, 0)


def test_another_process_draws_the_same_bits():
    code = (
        "import numpy as np; from consilience.corruption.seeded_noise import Noise;"
        "print(Noise(5, 'é', 'b').normal(np.arange(50), (20,)).tobytes().hex())"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert printed == Noise(5, "é", "b").normal(np.arange(50), (20,)).tobytes().hex()


def test_normals_are_normal():
    draws = Noise(0, "a").normal(np.arange(2000), (500,)).astype(np.float64).ravel()
    n = draws.size
    assert abs(draws.mean()) < 4 / math.sqrt(n)
    assert abs(draws.var() - 1) < 4 * math.sqrt(2 / n)
    assert abs(stats.skew(draws)) < 4 * math.sqrt(6 / n)
    assert abs(stats.kurtosis(draws)) < 4 * math.sqrt(24 / n)
    assert stats.kstest(draws, "norm").pvalue > 1e-3
    assert stats.kstest(draws[0::2] ** 2 + draws[1::2] ** 2, stats.chi2(2).cdf).pvalue > 1e-3
    # As many beyond 3, 4 and 4.5 standard deviations as there should be, up to four times the counting error.
    for bound in (3, 4, 4.5):
        expected = 2 * stats.norm.sf(bound) * n
        assert abs((np.abs(draws) > bound).sum() - expected) < 4 * math.sqrt(expected) + 1


def test_uniforms_are_uniform():
    draws = Noise(0, "a").uniform(np.arange(2000), (500,)).ravel()
    assert draws.min() >= 0
    assert draws.max() < 1
    assert stats.kstest(draws, "uniform").pvalue > 1e-3
    assert stats.chisquare(np.bincount((draws * 256).astype(int), minlength=256)).pvalue > 1e-3


def test_samples_positions_streams_and_seeds_are_independent():
    index, size = np.arange(300), (300,)
    base = Noise(0, "image", "gaussian").normal(index, size)
    others = {
        "next sample": Noise(0, "image", "gaussian").normal(index + 1, size),
        "next position": np.roll(base, 1, axis=1),
        "position two on": np.roll(base, 2, axis=1),
        "samples for positions": base.T,
        "another modality": Noise(0, "audio", "gaussian").normal(index, size),
        "another corruption": Noise(0, "image", "drop").normal(index, size),
        "another seed": Noise(1, "image", "gaussian").normal(index, size),
        "within": Noise(0, "image", "gaussian").within("gaussian").normal(index, size),
    }
    for what, other in others.items():
        for f in (lambda x: x, np.abs):
            r = np.corrcoef(f(base).ravel(), f(other).ravel())[0, 1]
            assert abs(r) < 4.5 / math.sqrt(base.size), what


def test_names_are_not_run_together():
    draws = [Noise(0, *names).uniform(np.arange(2)).tolist() for names in (("ab", "c"), ("a", "bc"), ("abc",))]
    assert draws[0] != draws[1] != draws[2] != draws[0]
