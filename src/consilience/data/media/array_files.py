"""Arrays in `.npy` files: one vector, sequence, image or list of tokens in each."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np

from consilience.core.errors import InputError
from consilience.core.modalities import Kind
from consilience.data.files.arrays import check_array_header
from consilience.data.media.settings import ArraySettings, Family, check_sample_size

ARRAY_ENDINGS = (".npy",)
_BY_DIMENSIONS: dict[int, Kind] = {1: "vector", 2: "sequence", 3: "image"}
_DIMENSIONS = {"vector": 1, "sequence": 2, "image": 3, "tokens": 1}


def parse_array(content: bytes, name: str) -> np.ndarray:
    """The numbers of an `.npy` file; Python objects and strings are refused."""
    file = io.BytesIO(content)
    check_array_header(file, name, len(content))
    file.seek(0)
    array = np.lib.format.read_array(file, allow_pickle=False)
    if array.dtype.kind not in "biuf":
        raise InputError(f"it holds values of type {array.dtype}: numbers are read")
    return array


@dataclass(frozen=True)
class ArrayDecoder:
    """Reads arrays as they are, in float32 (tokens in int64); sequences and tokens are padded with zeros.

    Attributes:
        kind: Of the modality.
        shape: Of one sample; its first number is the most time steps of a sequence.
    """

    settings: ArraySettings
    kind: Kind
    shape: tuple[int, ...]
    family: ClassVar[Family] = "array"

    @classmethod
    def learn(cls, name: str, kind: Kind | None, settings: ArraySettings, files: Sequence[str]) -> ArrayDecoder:
        """Take kind and shape from the headers of all files; unreadable ones are skipped."""
        shapes = [shape for shape in map(_shape_of, files) if shape is not None]
        if not shapes:
            raise InputError(f"modality {name!r}: none of its .npy files can be read")
        kind = kind or _BY_DIMENSIONS.get(len(shapes[0]))
        if kind is None:
            raise InputError(
                f"modality {name!r}: its arrays have {len(shapes[0])} dimensions: 1 (vector), 2 (sequence) and 3 (image"
                ") are read"
            )
        shape = shapes[0]
        if kind in ("sequence", "tokens"):
            alike = [other[0] for other in shapes if len(other) == len(shape) and other]
            shape = (settings.steps or max(alike, default=1) or 1, *shape[1:])
        return cls.restore(name, kind, settings, shape)

    @classmethod
    def restore(cls, name: str, kind: Kind, settings: ArraySettings, shape: Sequence[int]) -> ArrayDecoder:
        """The decoder of a saved model."""
        if len(shape) != _DIMENSIONS.get(kind) or 0 in shape:
            raise InputError(f"modality {name!r}: arrays of shape {list(shape)} are no samples of kind {kind}")
        check_sample_size(name, tuple(shape))
        return cls(settings, kind, tuple(int(length) for length in shape))

    @property
    def timed(self) -> bool:
        """Whether each array has a length of its own."""
        return self.kind in ("sequence", "tokens")

    @property
    def dtype(self) -> np.dtype:
        """Of the values."""
        return np.dtype(np.int64 if self.kind == "tokens" else np.float32)

    def to_json(self) -> dict[str, Any]:
        """The settings."""
        return asdict(self.settings)

    def __call__(self, content: bytes, name: str) -> tuple[np.ndarray, int]:
        """The array, padded or cut to the time steps, and its length."""
        array = parse_array(content, name)
        fixed = 1 if self.timed else 0
        if array.ndim != len(self.shape) or array.shape[fixed:] != self.shape[fixed:]:
            wanted = ("time", *self.shape[1:]) if self.timed else self.shape
            raise InputError(f"its shape is {list(array.shape)}, that of the others [{', '.join(map(str, wanted))}]")
        if self.kind == "tokens" and array.dtype.kind not in "iu":
            raise InputError(f"tokens are whole numbers, it holds {array.dtype}")
        if self.timed:
            padded = np.zeros(self.shape, dtype=array.dtype)
            padded[: len(array)] = array[: len(padded)]
            array, length = padded, min(len(array), len(padded))
        else:
            length = 0
        with np.errstate(over="ignore"):
            values = array.astype(self.dtype)
        # A whole array of NaN is a missing sample.
        if values.dtype.kind == "f" and not np.isfinite(values).all() and not np.isnan(values).all():
            raise InputError("it holds NaN or infinity among its numbers, or a number beyond 32 bits")
        return values, length


def _shape_of(path: str) -> tuple[int, ...] | None:
    """The shape that a header states; None if the file cannot be read."""
    try:
        with open(path, "rb") as file:
            check_array_header(file, path, os.stat(path).st_size)
            file.seek(0)
            version = np.lib.format.read_magic(file)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape = read(file)[0]
            return shape if math.prod(shape) else None
    except Exception:  # it is named when it is decoded
        return None
