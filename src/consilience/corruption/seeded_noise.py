"""Random numbers as a pure function of seed, stream, sample and position: a sample always gets the same noise.

Each number is a hash of its address (the mixing function of Steele, Lea and Flood, "Fast Splittable Pseudorandom Number
Generators"), so that batch size, order, process and device do not matter.

Why by hand, and not with `numpy.random`:

- A generator that is drawn from in sequence makes the noise of a sample depend on the samples before it. One generator
  per sample (Philox with the index as its key) does not, but creating them takes several times as long as all of the
  noise takes here.
- numpy may change its normal numbers from release to release, and the last bits of `np.log` and `np.cos` depend on the
  processor. Here only integer operations, +, −, ×, ÷ and √ are used, which IEEE 754 fixes to the last bit.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Sequence

import numpy as np

# 64-bit words per block: few enough to stay in the cache of a core.
_BLOCK = 2**15

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
MIX_2 = np.uint64(0x94D049BB133111EB)
_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))
SQRT_HALF_BITS = np.int32(0x3F3504F3)  # √½ as a 32-bit float


class Noise:
    """A stream of random numbers, addressed by sample index and position within the sample.

    >>> noise = Noise(0, "image", "gaussian")
    >>> whole = noise.normal(np.arange(1000), (8, 8))
    >>> bool((whole[[7, 3]] == noise.normal(np.array([7, 3]), (8, 8))).all())
    True
    """

    def __init__(self, seed: int, *names: str):
        self.seed, self.names = seed, names
        address = json.dumps([seed, *names]).encode()
        self._key = np.frombuffer(hashlib.blake2b(address, digest_size=8).digest(), dtype="<u8").astype(np.uint64)

    def within(self, *names: str) -> Noise:
        """A separate stream, named below this one."""
        return Noise(self.seed, *self.names, *names)

    @classmethod
    def joined(cls, noises: Sequence[Noise], rows: int) -> Noise:
        """Streams side by side: the first `rows` samples draw from the first stream, the next from the second, …"""
        joined = cls.__new__(cls)
        joined.seed, joined.names = noises[0].seed, noises[0].names
        joined._key = np.repeat(np.concatenate([noise._key for noise in noises]), rows)
        return joined

    @property
    def key(self) -> np.ndarray:
        """What tells this stream from others: a word `[1]`, or `[sample]` of streams that are joined."""
        return self._key

    def uniform(self, index: np.ndarray, shape: tuple[int, ...] = ()) -> np.ndarray:
        """Numbers from [0, 1) for the samples `index` `[n]`: float64 `[n, *shape]`.

        Positions count through `shape` in C order, so a longer first dimension (time) only adds numbers at the end.
        """
        count = math.prod(shape)
        out = np.empty((len(index), count), dtype=np.float64)
        for rows, columns, words in self._blocks(index, count):
            words >>= np.uint64(11)
            np.multiply(words.view(np.int64), 2.0**-53, out=out[rows, columns])
        return out.reshape(len(index), *shape)

    def normal(self, index: np.ndarray, shape: tuple[int, ...] = ()) -> np.ndarray:
        """Standard normal numbers for the samples `index` `[n]`: float32 `[n, *shape]`, positions as in `uniform`."""
        count = math.prod(shape)
        pairs = (count + 1) // 2
        out = np.empty((len(index), 2 * pairs), dtype=np.float32)
        for rows, columns, words in self._blocks(index, pairs):
            first, second = _normal_pairs(words)
            pair = slice(2 * columns.start, 2 * columns.stop)
            out[rows, pair][:, 0::2] = first
            out[rows, pair][:, 1::2] = second
        return np.ascontiguousarray(out[:, :count]).reshape(len(index), *shape)

    def _blocks(self, index: np.ndarray, count: int) -> Iterator[tuple[slice, slice, np.ndarray]]:
        """Hashes `[rows, columns]` of `count` positions in each sample, in blocks that fit the cache."""
        samples = np.asarray(index).astype(np.int64).view(np.uint64)
        starts = _mix(_mix(samples * GOLDEN + self._key))
        steps = np.arange(1, count + 1, dtype=np.uint64) * GOLDEN
        columns_at_once = max(1, min(count, _BLOCK))
        rows_at_once = max(1, _BLOCK // columns_at_once)
        for top in range(0, len(starts), rows_at_once):
            rows = slice(top, min(top + rows_at_once, len(starts)))
            for left in range(0, count, columns_at_once):
                columns = slice(left, min(left + columns_at_once, count))
                yield rows, columns, _mix(starts[rows, None] + steps[columns])


def _mix(words: np.ndarray) -> np.ndarray:
    """Scramble 64-bit words in place, so that each input bit changes half of the output bits."""
    words ^= words >> _SHIFTS[0]
    words *= MIX_1
    words ^= words >> _SHIFTS[1]
    words *= MIX_2
    words ^= words >> _SHIFTS[2]
    return words


def _normal_pairs(words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two standard normals from each 64-bit word: 31 bits of radius, 31 of angle, a sign for each (Box and Muller).

    The angle π/4 + d runs over the first quadrant only and the signs do the rest, so with r = √(−ln u) the pair is
    ±r(cos d + sin d), ±r(cos d − sin d).
    """
    high, low = (words >> np.uint64(32)).astype(np.uint32), words.astype(np.uint32)
    radius = np.sqrt(_minus_log((high >> np.uint32(1)).view(np.int32)))
    cosine, sine = _cos_sin((low >> np.uint32(1)).view(np.int32))
    first, second = cosine + sine, cosine - sine
    for value, bits in ((first, high), (second, low)):
        value *= radius
        value.view(np.uint32)[...] ^= bits << np.uint32(31)
    return first, second


def _minus_log(bits: np.ndarray) -> np.ndarray:
    """−ln u of u = (bits + ½)/2³¹ for 31 random bits, float32."""
    scaled = bits.astype(np.float32)
    scaled += np.float32(0.5)
    # 2³¹u = m·2ᵉ with m in [√½, √2), read off the float's own bits.
    pattern = scaled.view(np.int32)
    pattern -= SQRT_HALF_BITS
    halvings = np.int32(31) - (pattern >> np.int32(23))
    pattern &= np.int32(0x7FFFFF)
    pattern += SQRT_HALF_BITS
    # ln m = 2 artanh s, s = (m − 1)/(m + 1), |s| < .172
    s = (scaled - np.float32(1)) / (scaled + np.float32(1))
    log = _polynomial(s * s, (2, 2 / 3, 2 / 5, 2 / 7, 2 / 9))
    log *= s
    return halvings.astype(np.float32) * np.float32(math.log(2)) - log


def _cos_sin(bits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Cosine and sine of an angle d uniform in [−π/4, π/4), from 31 random bits."""
    d = (bits - np.int32(2**30)).astype(np.float32)
    d *= np.float32(math.pi / 2**32)
    square = d * d
    sine = _polynomial(square, (1, -1 / 6, 1 / 120, -1 / 5040, 1 / 362880))
    sine *= d
    return _polynomial(square, (1, -1 / 2, 1 / 24, -1 / 720, 1 / 40320)), sine


def _polynomial(x: np.ndarray, coefficients: tuple[float, ...]) -> np.ndarray:
    value = x * np.float32(coefficients[-1])
    for coefficient in coefficients[-2:0:-1]:
        value += np.float32(coefficient)
        value *= x
    value += np.float32(coefficients[0])
    return value
