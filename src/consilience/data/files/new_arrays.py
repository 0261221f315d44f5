"""New samples as arrays, one a modality, laid out as those a model was trained on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from consilience.core.errors import InputError, name_rows
from consilience.core.samples import Modality, Samples
from consilience.data.files.arrays import LENGTHS, fill_vectors, read_arrays, take_lengths
from consilience.data.files.matlab import read_new_views


def read_new_arrays(
    path: Path, modalities: Mapping[str, Modality], fills: Mapping[str, np.ndarray], target: str
) -> Samples:
    """Samples of every row of an `.npz`, a folder of `.npy` or a `.mat`.

    A modality without its array is left out; the targets are read where they are there.
    """
    if path.name.lower().endswith(".mat"):
        arrays, y = read_new_views(path)
    else:
        arrays = read_arrays(path, only={target, *modalities, *(name + LENGTHS for name in modalities)})
        y = np.array(arrays.pop(target)) if target in arrays else None
    lengths = take_lengths(arrays)
    kept = {name: arrays[name] for name in modalities if name in arrays}
    if not kept:
        raise InputError(f"{path.name} has none of the modalities of training: {', '.join(modalities)}")
    for name, value in kept.items():
        if value.ndim == 0:
            raise InputError(f"{path.name}: {name!r} is a single value; the first dimension must be the samples")
    samples = Samples.of(
        fill_vectors(kept, fills),
        None if y is None else _known_targets(path, y),
        kinds={name: modalities[name].kind for name in kept},
        lengths={name: length for name, length in lengths.items() if name in kept},
    )
    for name, given in samples.modalities.items():
        trained = modalities[name]
        fixed = 1 if trained.timed else 0  # the number of time steps may differ
        if given.shape[fixed:] != trained.shape[fixed:]:
            raise InputError(f"{path.name}: training read {trained.describe()}, got {given.describe()}")
    return samples


def _known_targets(path: Path, y: np.ndarray) -> np.ndarray | None:
    """The targets, or None where all of them are NaN: they are not known yet."""
    if y.dtype.kind != "f" or y.ndim == 0:
        return y
    empty = np.isnan(y).reshape(len(y), -1).any(axis=1)
    if empty.any() and np.isnan(y).all():
        return None
    if empty.any():
        raise InputError(
            f"{path.name}: targets are NaN in {name_rows(np.flatnonzero(empty))}: complete them, or leave them out"
        )
    return y
