"""How each kind of modality becomes a tensor: standardisation, words → ids, tokens; learned from training samples."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor

from consilience.core.errors import InputError, SavedModelError, name_rows
from consilience.core.modalities import Modality, check_whole_numbers, without_padding
from consilience.core.moments import is_byte_image, modality_moments, row_pieces, rows_at_once
from consilience.core.registry import Registry
from consilience.core.samples import Samples
from consilience.corruption import Statistics

_TEXTS_AT_ONCE = 10_000
FARTHEST = 1e6  # standard deviations; larger values are clipped, so that they can still be squared


class Transform(Protocol):
    """How the raw values of one modality become a tensor for an encoder."""

    name: ClassVar[str]
    output: Modality

    def __call__(
        self, values: np.ndarray, lengths: np.ndarray | None, dtype: torch.dtype = torch.float32
    ) -> tuple[Tensor, np.ndarray | None]:
        """The tensor of values `[rows, *shape]` (of `dtype`, if they are numbers), and its lengths."""

    def statistics(self) -> Statistics:
        """Standard deviation and range of the raw values in training, if they are numbers."""

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """What was learned: tensors, and JSON values."""


# Rebuilds a saved transform from the modality that it returns, its JSON values and its tensors.
Loader = Callable[[Modality, Mapping[str, Any], Mapping[str, Tensor]], Transform]
_LOADERS: Registry[Loader] = Registry("transform")


def register_transform(name: str) -> Callable[[Loader], Loader]:
    """Return a decorator for the function that rebuilds a transform of this name from its `state`."""
    return _LOADERS.register(name)


class Standardise:
    """(x − mean) / std, per feature of vectors and sequences, per channel of images; a constant feature becomes 0.

    Results are clipped to a million standard deviations, since a norm layer that squares larger ones returns NaN.
    """

    name: ClassVar[str] = "standardise"
    learned = ("mean", "std", "low", "high")

    def __init__(self, output: Modality, mean: Tensor, std: Tensor, low: Tensor, high: Tensor):
        """Mean, std, minimum and maximum of the training values: `[feature]` or `[channel]`, float64."""
        self.output, self.mean, self.std, self.low, self.high = output, mean, std, low, high
        self._at_once = rows_at_once(output)
        self._set_units(mean, torch.where(std > 0, std, torch.ones_like(std)))

    def _set_units(self, shift: Tensor, scale: Tensor) -> None:
        """What is subtracted and what is divided by, `[feature]` or `[channel]`."""
        around = (-1, 1, 1) if self.output.kind == "image" else (-1,)
        self._shift, self._scale = shift.view(around).numpy(), scale.view(around).numpy()

    @classmethod
    def fit(cls, samples: Samples, name: str, weight: np.ndarray | None) -> Standardise:
        """Learn mean, std and range from the samples that have this modality, sequences without their padding."""
        moments = modality_moments(samples, name, weight)
        if moments.shift is None:
            raise _missing(name)
        if np.maximum(np.abs(moments.low), np.abs(moments.high)).max() >= 2**53:
            check_whole_numbers(f"modality {name!r}", np.asarray(samples[name][samples.present_in(name)]))
        mean, std = moments.mean_and_std()
        if not np.isfinite(std).all():
            raise InputError(f"modality {name!r} holds numbers too large to square: scale them down")
        # A feature whose values differ in the last bit only is a constant with rounding errors.
        dtype = samples[name].dtype
        last_bit = np.finfo(dtype if dtype.kind == "f" else np.float64).eps / 2
        std[std <= last_bit * np.abs(mean)] = 0.0
        if not std.any() and len(samples) > 1:
            raise _constant(name)
        learned = (torch.from_numpy(values) for values in (mean, std, moments.low, moments.high))
        return cls(samples.modalities[name], *learned)

    def __call__(
        self, values: np.ndarray, lengths: np.ndarray | None, dtype: torch.dtype = torch.float32
    ) -> tuple[Tensor, np.ndarray | None]:
        """Standardised values `[rows, *shape]`, float32 or float64."""
        shift, scale, at_once = self._shift, self._scale, self._at_once
        standardised = torch.empty(values.shape, dtype=dtype).numpy()
        if is_byte_image(self.output, values):
            # There are only 256 different values: a table of them replaces a division for each pixel.
            byte = np.arange(256.0)[:, None, None, None]
            table = np.clip((byte - shift) / scale, -FARTHEST, FARTHEST).astype(standardised.dtype)
            for start in range(0, len(values), at_once):
                piece = slice(start, start + at_once)
                for channel in range(values.shape[1]):
                    standardised[piece, channel] = table[:, channel, 0, 0][values[piece, channel]]
            return torch.from_numpy(standardised), lengths
        try:
            with np.errstate(over="raise"):
                for start in range(0, len(values), at_once):
                    piece = slice(start, start + at_once)
                    # In 64 bits, since 32 bits have too few digits for small differences to a large mean.
                    standardised[piece] = (values[piece] - shift) / scale
                    np.clip(standardised[piece], -FARTHEST, FARTHEST, out=standardised[piece])
        except FloatingPointError:
            raise InputError(
                f"modality {self.output.name!r} holds a number of size {np.abs(values).max():.3g}, which is beyond "
                "32-bit numbers after standardisation: correct it, or scale the modality down before training"
            ) from None
        return torch.from_numpy(standardised), lengths

    @property
    def units(self) -> tuple[np.ndarray, np.ndarray]:
        """What is subtracted from the raw values, and what they are divided by then, in 64 bits."""
        return self._shift, self._scale

    @cached_property
    def needs_64_bits(self) -> bool:
        """Whether 32 bits are too few for the raw values: a rounding error is more than 0.01 % of a feature's std."""
        largest = torch.maximum(self.low.abs(), self.high.abs())
        return bool((largest * torch.finfo(torch.float32).eps > 1e-4 * self.std)[self.std > 0].any())

    def statistics(self) -> Statistics:
        """Standard deviation and range."""
        return Statistics(std=self.std.numpy(), low=self.low.numpy(), high=self.high.numpy())

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Mean, std and range."""
        return {name: getattr(self, name) for name in self.learned}, {}


class Words:
    """Text → word ids: 0 is padding, 1 an unknown word, the rest are ordered by falling frequency in training."""

    name: ClassVar[str] = "words"
    pattern = re.compile(r"\w+|[^\w\s]")
    longest = 512  # words kept of one text
    largest = 20_000  # words kept in the vocabulary

    def __init__(self, output: Modality, words: Sequence[str]):
        self.words = list(words)
        self._ids = {word: position + 2 for position, word in enumerate(self.words)}
        self.output = replace(output, kind="tokens", vocabulary=len(self.words) + 2, words=tuple(self.words))

    @classmethod
    def fit(cls, samples: Samples, name: str) -> Words:
        """Learn the vocabulary of the training texts."""
        counts: Counter[str] = Counter()
        different: set[tuple[str, ...]] = set()
        steps = 1
        present = np.flatnonzero(samples.present_in(name))
        for start in range(0, len(present), _TEXTS_AT_ONCE):  # which may have to be read
            for text in samples[name][present[start : start + _TEXTS_AT_ONCE]]:
                words = cls.split(text)
                counts.update(words)
                if len(different) < 2:
                    different.add(tuple(words))
                steps = max(steps, len(words))
        if not different:
            raise _missing(name)
        if len(different) < 2 and len(samples) > 1:
            raise _constant(name)
        ranked = sorted(counts, key=lambda word: (-counts[word], word))
        return cls(Modality(name, "tokens", (steps,)), ranked[: cls.largest])

    @classmethod
    def split(cls, text: str) -> list[str]:
        """Lower-case words and punctuation marks.

        >>> Words.split("A red square, bright!")
        ['a', 'red', 'square', ',', 'bright', '!']
        """
        return cls.pattern.findall(text.lower())[: cls.longest]

    def __call__(
        self, values: np.ndarray, lengths: np.ndarray | None, dtype: torch.dtype = torch.float32
    ) -> tuple[Tensor, np.ndarray | None]:
        """Word ids `[rows, time]` and their lengths; an empty text is one unknown word."""
        rows = [[self._ids.get(word, 1) for word in self.split(text)] or [1] for text in values.tolist()]
        lengths = np.array([len(row) for row in rows], dtype=np.int64)
        ids = np.zeros((len(rows), int(lengths.max(initial=1))), dtype=np.int64)
        ids[np.arange(ids.shape[1]) < lengths[:, None]] = [word for row in rows for word in row]
        return torch.from_numpy(ids), lengths

    def statistics(self) -> Statistics:
        """Empty, since words are not numbers."""
        return Statistics()

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The vocabulary."""
        return {}, {"words": self.words}


class Tokens:
    """Token ids as they are; one above those of training is an error, since it has no embedding."""

    name: ClassVar[str] = "tokens"

    def __init__(self, output: Modality):
        self.output = output

    @classmethod
    def fit(cls, samples: Samples, name: str) -> Tokens:
        """Find the largest id, and check that the samples differ."""
        lengths = samples.lengths[name]
        present = np.flatnonzero(samples.present_in(name))
        if not len(present):
            raise _missing(name)
        varies = len(np.unique(lengths[present])) > 1
        first = without_padding(np.asarray(samples[name][present[:1]]), lengths[present[:1]])
        largest = 0
        for rows, _ in row_pieces(samples, name):
            ids = without_padding(np.asarray(samples[name][rows]), lengths[rows])
            largest = max(largest, int(ids.max(initial=0)))
            varies = varies or bool((ids != first).any())
        if not varies and len(samples) > 1:
            raise _constant(name)
        return cls(replace(samples.modalities[name], vocabulary=largest + 1))

    def __call__(
        self, values: np.ndarray, lengths: np.ndarray | None, dtype: torch.dtype = torch.float32
    ) -> tuple[Tensor, np.ndarray | None]:
        """Ids `[rows, time]`, int64."""
        known = self.output.vocabulary or 0
        if values.max(initial=0) >= known:
            rows = np.flatnonzero((values >= known).any(axis=1))
            raise InputError(
                f"modality {self.output.name!r} holds token id {values.max()} ({name_rows(rows)}), which training "
                f"never saw: ids from 0 to {known - 1} are known. Give unknown tokens one id before training"
            )
        return torch.from_numpy(values.astype(np.int64)), lengths

    def statistics(self) -> Statistics:
        """Empty, since ids are not numbers."""
        return Statistics()

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Nothing is learned."""
        return {}, {}


@register_transform("words")
def _load_words(output: Modality, entry: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Transform:
    return Words(output, entry["words"])


@register_transform("tokens")
def _load_tokens(output: Modality, entry: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Transform:
    return Tokens(output)


@register_transform("standardise")
def _load_standardise(output: Modality, entry: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Transform:
    return Standardise(output, **read_moments(output, tensors))


def load_transform(
    output: Modality, entry: Mapping[str, Any], tensors: Mapping[str, Tensor], position: int
) -> Transform:
    """Rebuild the transform of one modality from its `state`."""
    if entry["transform"] not in _LOADERS:
        raise SavedModelError(f"modality {output.name!r} was saved with an unknown transform {entry['transform']!r}")
    start = f"{position}."
    own = {name.removeprefix(start): value for name, value in tensors.items() if name.startswith(start)}
    return _LOADERS[entry["transform"]](output, entry, own)


def read_moments(modality: Modality, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The saved mean, std and range of a modality of numbers, checked against its shape."""
    features = modality.shape[0] if modality.kind == "image" else modality.shape[-1]
    learned = {name: tensors[name] for name in Standardise.learned}
    for name, values in learned.items():
        if values.shape != (features,):
            raise SavedModelError(
                f"the saved {name} of modality {modality.describe()} has shape {list(values.shape)}, not [{features}]"
            )
        if not values.isfinite().all():
            raise SavedModelError(f"the saved {name} of modality {modality.describe()} is not finite")
    return learned


def _missing(name: str) -> InputError:
    return InputError(f"modality {name!r} is missing in every training sample: drop it, or check the split")


def _constant(name: str) -> InputError:
    return InputError(f"modality {name!r} is constant over the training samples: it carries no information. Drop it")
