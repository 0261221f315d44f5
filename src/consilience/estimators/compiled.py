"""A trained model with its preparation laid out for one purpose: predicting a few rows of numbers with little delay."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from consilience.core.batches import Batch
from consilience.core.errors import (
    InputError,
    UnsupportedError,
    WrongTypeError,
    is_library_error,
    unknown_name,
    wrapped,
)
from consilience.core.modalities import find_present
from consilience.evaluation.trust import trust_from_weights
from consilience.methods import Prediction
from consilience.preparation.transforms import FARTHEST, Standardise
from consilience.training import Model

# A sum of squares below it is of numbers that the preparation does not refuse: they, squared, fit in 32 bits.
_USUAL = 1e38
# Codes of the NumPy types that are read: booleans, whole numbers, and floats of 16, 32 and 64 bits.
_NUMBERS = frozenset("?bBhHiIlLqQefd")


class CompiledModel:
    """Predicts rows of numbers on the CPU without the checks of the model that it is made of.

    An input is a mapping modality → array `[n, *shape]`. A modality is missing where its row is all NaN, or for every
    row if the mapping does not have it. NaN in part of a row, infinity, and numbers that are too large are refused with
    the errors of the model; so are unknown names, other shapes and unequal numbers of rows. Not checked is whether
    outputs are finite. Rows are not split into batches. The model must not be trained any further, nor moved to another
    device; what `partial_fit` learns later is not in it.

    Args:
        model: A trained model whose modalities are vectors or images.
        weighs: Whether its method weighs its modalities.
    """

    def __init__(self, model: Model, weighs: bool):
        self._task, self._weighs = model.task, weighs
        self._method = model.method.eval()
        self._names = tuple(model.preparation.transforms)
        self._scales: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        self._transforms: dict[str, Standardise] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}
        tensors = [*model.method.parameters(), *model.method.buffers()]
        if any(tensor.device.type != "cpu" for tensor in tensors):
            raise UnsupportedError(
                "compiled: the model is on another device than the CPU: give device='cpu' in fitting"
            )
        doubles = any(tensor.dtype is torch.float64 for tensor in model.method.parameters())
        self._dtype = torch.float64 if doubles else torch.float32
        for name, transform in model.preparation.transforms.items():
            if not isinstance(transform, Standardise) or transform.output.timed:
                raise UnsupportedError(
                    f"compiled: modality {transform.output.describe()} is no vector or image of numbers, whose "
                    "preparation alone can be laid out: use the model itself"
                )
            self._transforms[name], self._scales[name] = transform, transform.units
            self._shapes[name] = tuple(transform.output.shape)
        self._constant: dict[int, tuple[Tensor, Tensor, Tensor]] = {}

    def predict_proba(self, X: Mapping[str, Any]) -> np.ndarray:
        """Return class probabilities `[n, class]`."""
        return self._predict(X).output.double().softmax(dim=1).numpy()

    def predict(self, X: Mapping[str, Any]) -> np.ndarray:
        """Return labels `[n]`, or numbers `[n]` or `[n, target]`."""
        return self._task.decode(self._predict(X).output.numpy())

    def trust(self, X: Mapping[str, Any]) -> np.ndarray:
        """Return the trust in each modality `[n, modality]`, if the method weighs its modalities."""
        if not self._weighs:
            raise UnsupportedError("compiled: the method does not weigh its modalities, so it has no trust")
        batch = self._batch(X)
        prediction = self._run(batch)
        assert prediction.weights is not None
        return trust_from_weights(prediction.weights.double().numpy(), batch.present.numpy())

    def _predict(self, X: Mapping[str, Any]) -> Prediction:
        return self._run(self._batch(X))

    def _run(self, batch: Batch) -> Prediction:
        with torch.inference_mode():
            return self._method(batch)

    # What overflows is found below, and refused with an error instead of a warning.
    @np.errstate(over="ignore", invalid="ignore")
    def _batch(self, X: Mapping[str, Any]) -> Batch:
        values: dict[str, Tensor] = {}
        absent: dict[int, np.ndarray] = {}
        complete = []
        n, arrays = self._read(X)
        for place, (name, shape) in enumerate(self._shapes.items()):
            given = arrays.get(name)
            if given is None:
                values[name] = torch.zeros((n, *shape), dtype=self._dtype)
                absent[place] = np.ones(n, dtype=bool)
                continue
            shift, scale = self._scales[name]
            # In 64 bits and then clipped, as `Standardise` does.
            standard = (given - shift) / scale
            flat = standard.ravel()
            if np.dot(flat, flat) < _USUAL:
                np.clip(standard, -FARTHEST, FARTHEST, out=standard)
                complete.append(name)
                values[name] = torch.from_numpy(standard).to(self._dtype)
                continue
            values[name], missing = self._unusual(name, given)
            if missing.any():
                absent[place] = missing
            else:
                complete.append(name)
        index, weight, everything = self._constants(n)
        present = everything
        if absent:
            present = everything.clone()
            for place, missing in absent.items():
                present[:, place] = torch.from_numpy(~missing)
        return Batch(values, present, index=index, weight=weight, complete=frozenset(complete))

    def _read(self, X: Mapping[str, Any]) -> tuple[int, dict[str, np.ndarray]]:
        """The number of rows, and the arrays that are given, whose names, types and shapes are right."""
        if not isinstance(X, Mapping):
            raise WrongTypeError(
                f"compiled: give a mapping modality → array [n, …], got a {type(X).__name__}; the model reads more"
            )
        arrays: dict[str, np.ndarray] = {}
        n, even = -1, True
        for name, shape in self._shapes.items():
            given = X.get(name)
            if given is None:
                continue
            array = arrays[name] = _as_array(name, given)
            if array.shape[1:] != shape or not array.ndim or array.dtype.char not in _NUMBERS:
                raise _unfit(name, shape, array)
            if n < 0:
                n = len(array)
            even = even and len(array) == n
        if len(arrays) < len(X):
            self._check_names(X)
        if not even:
            counts = ", ".join(f"{name!r} {len(array)}" for name, array in arrays.items())
            raise InputError(f"compiled: modalities have different numbers of rows: {counts}")
        if n < 1:
            if n == 0:
                raise InputError("compiled: there are no samples: every modality has 0 rows")
            raise InputError(f"compiled: no modality is given: give at least one of {', '.join(self._names)}")
        return n, arrays

    def _check_names(self, X: Mapping[str, Any]) -> None:
        for name in X:
            if name not in self._shapes:
                raise unknown_name("modality", name, self._names, "It was given to compiled")

    def _unusual(self, name: str, given: np.ndarray) -> tuple[Tensor, np.ndarray]:
        """Values of which some are NaN, infinite or large, by the checks of the model; and which rows are missing."""
        transform = self._transforms[name]
        there = find_present(transform.output, given, None, np.ones(len(given), dtype=bool))
        values = torch.zeros((len(given), *self._shapes[name]), dtype=self._dtype)
        values[torch.from_numpy(there)] = transform(given[there], None, self._dtype)[0]
        return values, ~there

    def _constants(self, n: int) -> tuple[Tensor, Tensor, Tensor]:
        """Numbers of the rows, their weights, and "present" for each, kept for the last few sizes."""
        found = self._constant.get(n)
        if found is None:
            found = torch.arange(n), torch.ones(n), torch.ones((n, len(self._names)), dtype=torch.bool)
            if len(self._constant) > 16:
                self._constant = {}
            self._constant[n] = found
        return found


def _as_array(name: str, given: Any) -> np.ndarray:
    try:
        return np.asarray(given)
    except Exception as error:  # rows of different lengths, or a tensor on another device
        if not is_library_error(error):
            raise
        raise wrapped(error, f"compiled: modality {name!r}") from error


def _unfit(name: str, shape: tuple[int, ...], array: np.ndarray) -> InputError:
    """The error for an array of another shape or type than a modality has."""
    if array.dtype.char not in _NUMBERS:
        return WrongTypeError(f"compiled: modality {name!r} must hold numbers of at most 64 bits, got {array.dtype}")
    wanted = ", ".join(map(str, ("n", *shape)))
    return InputError(f"compiled: modality {name!r} needs the shape [{wanted}], got {list(array.shape)}")
