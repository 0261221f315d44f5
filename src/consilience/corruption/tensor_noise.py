"""The random numbers of `Noise` as tensors, for the samples of one training or of several side by side.

On a CUDA device they are computed there, with the same integer operations and the same order of roundings, so that
they are equal to those of the processor to the last bit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from consilience.corruption.seeded_noise import GOLDEN, MIX_1, MIX_2, SQRT_HALF_BITS, Noise

# The constants of `seeded_noise` as Python's integers; torch has no arithmetic of unsigned 64-bit words.
_GOLDEN, _MIX_1, _MIX_2 = (int(word.astype(np.int64)) for word in (GOLDEN, MIX_1, MIX_2))
_SQRT_HALF_BITS = int(SQRT_HALF_BITS)


class TensorNoise:
    """A stream of random numbers for each of several trials, addressed by sample index and position.

    Args:
        noises: One for each trial, or a single one.

    Example:
        >>> noise = TensorNoise([Noise(0, "image")])
        >>> whole = noise.normal(torch.arange(100), (8, 8))
        >>> bool((whole[[7, 3]] == noise.normal(torch.tensor([7, 3]), (8, 8))).all())
        True
    """

    def __init__(self, noises: Sequence[Noise]):
        self._noises = tuple(noises)
        self._below: dict[str, TensorNoise] = {}

    def within(self, name: str) -> TensorNoise:
        """A separate stream, named below this one."""
        if name not in self._below:
            self._below[name] = TensorNoise([noise.within(name) for noise in self._noises])
        return self._below[name]

    def uniform(self, index: Tensor, shape: tuple[int, ...] = ()) -> Tensor:
        """Numbers from [0, 1) for the samples `index`, `[n]` or `[trial, n]`: float64 `[*index, *shape]`."""
        if index.device.type != "cuda":
            return self._from_numpy(self._joined(index).uniform(index.cpu().numpy().reshape(-1), shape), index)
        words = self._words(index, math.prod(shape))
        return _to_uniform(words).reshape(*index.shape, *shape)

    def normal(self, index: Tensor, shape: tuple[int, ...] = ()) -> Tensor:
        """Standard normal numbers for the samples `index`, `[n]` or `[trial, n]`: float32 `[*index, *shape]`."""
        if index.device.type != "cuda":
            return self._from_numpy(self._joined(index).normal(index.cpu().numpy().reshape(-1), shape), index)
        count = math.prod(shape)
        words = self._words(index, (count + 1) // 2)
        return _to_normal(words)[:, :count].reshape(*index.shape, *shape)

    def _joined(self, index: Tensor) -> Noise:
        return self._noises[0] if len(self._noises) == 1 else Noise.joined(self._noises, index.shape[-1])

    def _from_numpy(self, numbers: np.ndarray, index: Tensor) -> Tensor:
        tensor = torch.from_numpy(numbers).reshape(*index.shape, *numbers.shape[1:])
        if index.device.type == "mps":  # which has no 64-bit floats
            tensor = tensor.float()
        return tensor.to(index.device)

    def _words(self, index: Tensor, count: int) -> Tensor:
        key = torch.from_numpy(self._joined(index).key.view(np.int64)).to(index.device, non_blocking=True)
        return hash_words(index.reshape(-1), key, count)


def hash_words(index: Tensor, key: Tensor, count: int) -> Tensor:
    """The 64-bit words of `count` positions in each sample, `[n, count]`, as `Noise` has them."""
    starts = _mix(_mix(index.long() * _GOLDEN + key))
    steps = torch.arange(1, count + 1, device=index.device) * _GOLDEN
    return _mix(starts[:, None] + steps)


def _to_uniform(words: Tensor) -> Tensor:
    return _shifted(words, 11).double() * 2.0**-53


def _to_normal(words: Tensor) -> Tensor:
    """Two standard normals from each word, by Box and Muller's method as in `Noise`: `[n, 2 · count]`."""
    high, low = _shifted(words, 32), words & 0xFFFFFFFF
    # In 64 bits, since the 32-bit root of some libraries is not correctly rounded.
    radius = _minus_log((high >> 1).int()).double().sqrt().float()
    cosine, sine = _cos_sin((low >> 1).int())
    first = (cosine + sine) * radius * (1 - 2 * (high & 1))
    second = (cosine - sine) * radius * (1 - 2 * (low & 1))
    return torch.stack([first, second], dim=-1).flatten(1)


def _mix(words: Tensor) -> Tensor:
    words = words ^ _shifted(words, 30)
    words *= _MIX_1
    words ^= _shifted(words, 27)
    words *= _MIX_2
    words ^= _shifted(words, 31)
    return words


def _shifted(words: Tensor, bits: int) -> Tensor:
    """Words shifted to the right, filled with zeros: torch has no unsigned 64-bit integers to shift."""
    return (words >> bits) & ((1 << (64 - bits)) - 1)


def _minus_log(bits: Tensor) -> Tensor:
    scaled = bits.float() + 0.5
    pattern = scaled.view(torch.int32) - _SQRT_HALF_BITS
    halvings = 31 - (pattern >> 23)
    scaled = ((pattern & 0x7FFFFF) + _SQRT_HALF_BITS).view(torch.float32)
    s = (scaled - 1) / (scaled + 1)
    log = _polynomial(s * s, (2, 2 / 3, 2 / 5, 2 / 7, 2 / 9)) * s
    return halvings.float() * float(np.float32(math.log(2))) - log


def _cos_sin(bits: Tensor) -> tuple[Tensor, Tensor]:
    d = (bits - 2**30).float() * float(np.float32(math.pi / 2**32))
    square = d * d
    sine = _polynomial(square, (1, -1 / 6, 1 / 120, -1 / 5040, 1 / 362880)) * d
    return _polynomial(square, (1, -1 / 2, 1 / 24, -1 / 720, 1 / 40320)), sine


def _polynomial(x: Tensor, coefficients: tuple[float, ...]) -> Tensor:
    value = x * float(np.float32(coefficients[-1]))
    for coefficient in coefficients[-2:0:-1]:
        value = (value + float(np.float32(coefficient))) * x
    return value + float(np.float32(coefficients[0]))
