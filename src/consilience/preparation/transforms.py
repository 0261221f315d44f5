"""How each kind of modality becomes numbers: standardisation, words → ids, tokens; learned from training samples."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor

from consilience.core.errors import InputError, SavedModelError, name_rows
from consilience.core.modalities import SCAN_BYTES, Modality
from consilience.core.moments import Moments
from consilience.core.registry import Registry
from consilience.core.samples import MappedRows, Samples
from consilience.corruption import Statistics

FARTHEST = 1e6  # standard deviations: far beyond any doubt, and still small enough to square


class Transform(Protocol):
    """How one modality's raw values become numbers for an encoder."""

    name: ClassVar[str]
    output: Modality

    def __call__(
        self, values: np.ndarray, lengths: np.ndarray | None, dtype: torch.dtype = torch.float32
    ) -> tuple[Tensor, np.ndarray | None]:
        """Values `[rows, *shape]` and their lengths as a tensor (of `dtype`, if of numbers) and new lengths."""

    def statistics(self) -> Statistics:
        """Spread and range of the raw values in training, where they are numbers."""

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """What was learned: tensors, and plain JSON values."""


# From a modality as the encoder sees it, the JSON values and the tensors of a saved transform, the transform.
Loader = Callable[[Modality, Mapping[str, Any], Mapping[str, Tensor]], Transform]
_LOADERS: Registry[Loader] = Registry("transform")


def register_transform(name: str) -> Callable[[Loader], Loader]:
    """Say how a transform of this name is rebuilt from what its `state` gave, from the file that defines it."""
    return _LOADERS.register(name)


class Standardise:
    """(x − mean) / std, per feature of vectors and sequences, per channel of images; a constant feature becomes 0.

    What lies more than a million standard deviations away is put there: no more can be told from it, and a norm layer
    that squares it would make every answer NaN.
    """

    name: ClassVar[str] = "standardise"
    learned = ("mean", "std", "low", "high")

    def __init__(self, output: Modality, mean: Tensor, std: Tensor, low: Tensor, high: Tensor):
        """mean, std, and the smallest and largest value seen: `[feature]` or `[channel]`, float64."""
        self.output, self.mean, self.std, self.low, self.high = output, mean, std, low, high
        self._shift, self._scale = mean, torch.where(std > 0, std, torch.ones_like(std))

    @classmethod
    def fit(cls, samples: Samples, name: str, weight: np.ndarray | None) -> Standardise:
        """Learn mean, std and range from the samples that have this modality, sequences without their padding."""
        modality = samples.modalities[name]
        found = Moments()
        for rows, each in _weighed_pieces(samples, name, weight):
            values = np.asarray(samples[name][rows])
            if _of_bytes(modality, values):
                found.add_bytes(values.reshape(len(values), modality.shape[0], -1), each)
                continue
            values = values.astype(np.float64)
            if modality.kind == "image":
                values = values.reshape(len(values), modality.shape[0], -1).swapaxes(1, 2)  # [rows, pixel, channel]
            elif modality.kind == "vector":
                values = values[:, None]
            counted = np.repeat(each[:, None], values.shape[1], axis=1)
            if name in samples.lengths:
                counted *= np.arange(values.shape[1]) < samples.lengths[name][rows][:, None]
                values = np.where(counted[..., None] > 0, values, 0.0)  # padding may hold anything
            found.add(values.reshape(-1, values.shape[-1]), counted.reshape(-1))
        if found.shift is None:
            raise _nothing_there(name)
        mean, std = found.mean_and_std()
        if not np.isfinite(std).all():
            raise InputError(f"modality {name!r} holds numbers too large to square: scale them down")
        # A feature whose values differ in their last bit only is a constant that met rounding on its way here.
        dtype = samples[name].dtype
        last_bit = np.finfo(dtype if dtype.kind == "f" else np.float64).eps / 2
        std[std <= last_bit * np.abs(mean)] = 0.0
        if not std.any() and len(samples) > 1:
            raise _constant(name)
        return cls(modality, *(torch.from_numpy(learned) for learned in (mean, std, found.low, found.high)))

    def __call__(
        self, values: np.ndarray, lengths: np.ndarray | None, dtype: torch.dtype = torch.float32
    ) -> tuple[Tensor, np.ndarray | None]:
        """Standardised values `[rows, *shape]`, float32 or float64."""
        around = (-1, 1, 1) if self.output.kind == "image" else (-1,)
        shift, scale = self._shift.view(around).numpy(), self._scale.view(around).numpy()
        standardised = torch.empty(values.shape, dtype=dtype).numpy()
        at_once = _rows_at_once(self.output)
        if _of_bytes(self.output, values):
            # Of 256 bytes by 256 divisions, however many there are of each.
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
                    # In 64 bits, since a large mean would leave 32 without digits for what differs.
                    standardised[piece] = (values[piece] - shift) / scale
                    np.clip(standardised[piece], -FARTHEST, FARTHEST, out=standardised[piece])
        except FloatingPointError:
            raise InputError(
                f"modality {self.output.name!r} holds a number of size {np.abs(values).max():.3g}, which is beyond "
                "32-bit numbers after standardisation: mend it, or scale the modality down before training"
            ) from None
        return torch.from_numpy(standardised), lengths

    def statistics(self) -> Statistics:
        """Spread and range."""
        return Statistics(std=self.std.numpy(), low=self.low.numpy(), high=self.high.numpy())

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Mean, std and range."""
        return {name: getattr(self, name) for name in self.learned}, {}


class Words:
    """Text → word ids: 0 pads, 1 stands for a word not seen in training, the rest by falling frequency."""

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
        for text in samples[name][samples.present_in(name)]:
            found = cls.split(text)
            counts.update(found)
            different.add(tuple(found))
            steps = max(steps, len(found))
        if not different:
            raise _nothing_there(name)
        if len(different) < 2 and len(samples) > 1:
            raise _constant(name)
        ranked = sorted(counts, key=lambda word: (-counts[word], word))
        return cls(Modality(name, "tokens", (steps,)), ranked[: cls.largest])

    @classmethod
    def split(cls, text: str) -> list[str]:
        """Lower-case words and marks.

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
        """None: words are no numbers."""
        return Statistics()

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The vocabulary."""
        return {}, {"words": self.words}


class Tokens:
    """Token ids as they are; one that did not occur in training is an error, since no embedding exists for it."""

    name: ClassVar[str] = "tokens"

    def __init__(self, output: Modality):
        self.output = output

    @classmethod
    def fit(cls, samples: Samples, name: str) -> Tokens:
        """Count the ids that occur in these samples, and check that there is something to learn from."""
        lengths = samples.lengths[name]
        there = np.flatnonzero(samples.present_in(name))
        if not len(there):
            raise _nothing_there(name)
        varies = len(np.unique(lengths[there])) > 1
        first = without_padding(np.asarray(samples[name][there[:1]]), lengths[there[:1]])
        largest = 0
        for rows in _pieces(samples, name):
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
        """None: ids are no numbers."""
        return Statistics()

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Nothing was learned."""
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
    """Rebuild one modality's transform from what its `state` gave."""
    if entry["transform"] not in _LOADERS:
        raise SavedModelError(f"modality {output.name!r} was saved with an unknown transform {entry['transform']!r}")
    start = f"{position}."
    own = {name.removeprefix(start): value for name, value in tensors.items() if name.startswith(start)}
    return _LOADERS[entry["transform"]](output, entry, own)


def read_moments(modality: Modality, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The saved moments and range of a modality of numbers, checked against its shape."""
    features = modality.shape[0] if modality.kind == "image" else modality.shape[-1]
    learned = {name: tensors[name] for name in Standardise.learned}
    for name, values in learned.items():
        if values.shape != (features,):
            raise SavedModelError(
                f"the saved {name} of modality {modality.describe()} has shape {list(values.shape)}, not [{features}]"
            )
    return learned


def _pieces(samples: Samples, name: str) -> Iterator[np.ndarray]:
    """The rows that have this modality, in pieces small enough to hold in memory."""
    for rows, _ in _weighed_pieces(samples, name, None):
        yield rows


def _weighed_pieces(samples: Samples, name: str, weight: np.ndarray | None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The rows that have this modality, in pieces small enough to hold in memory, and how much each of them counts.

    What several samples share, such as a recording that goes with many images, is there once and counts for them all.
    """
    rows = np.flatnonzero(samples.present_in(name))
    each = np.ones(len(rows)) if weight is None else weight[rows]
    values = samples[name]
    if isinstance(values, MappedRows) and name not in samples.lengths:
        source, first, place = np.unique(values.rows[rows], return_index=True, return_inverse=True)
        if len(source) < len(rows):
            rows, each = rows[first], np.bincount(place, each)
    at_once = _rows_at_once(samples.modalities[name])
    for start in range(0, len(rows), at_once):
        piece = slice(start, start + at_once)
        yield rows[piece], each[piece]


def _of_bytes(modality: Modality, values: np.ndarray) -> bool:
    return modality.kind == "image" and values.dtype == np.uint8


def _rows_at_once(modality: Modality) -> int:
    return max(1, SCAN_BYTES // (8 * max(1, math.prod(modality.shape))))


def without_padding(values: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Values `[rows, time, …]` with zeros beyond each row's end, where anything may lie, NaN included."""
    beyond = np.arange(values.shape[1]) >= lengths[:, None]
    if not beyond.any():
        return values
    return np.where(beyond.reshape(beyond.shape + (1,) * (values.ndim - 2)), values.dtype.type(0), values)


def _nothing_there(name: str) -> InputError:
    return InputError(f"modality {name!r} is missing in every training sample: drop it, or check the split")


def _constant(name: str) -> InputError:
    return InputError(f"modality {name!r} is constant over the training samples: it carries no information. Drop it")
