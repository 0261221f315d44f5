"""A trained model with its preparation laid out for one purpose: predicting a few rows of numbers with little delay."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from consilience.core.batches import Batch
from consilience.core.errors import UnsupportedError
from consilience.core.modalities import find_present
from consilience.evaluation.trust import trust_from_weights
from consilience.methods import Prediction
from consilience.preparation.transforms import FARTHEST, Standardise
from consilience.training import Model

# A sum of squares below it is of numbers that the preparation does not refuse: they, squared, fit in 32 bits.
_USUAL = 1e38


class CompiledModel:
    """Predicts rows of numbers on the CPU without the checks of the model that it is made of.

    An input is a mapping modality → array `[n, *shape]`. A modality is missing where its row is all NaN, or for every
    row if the mapping does not have it. NaN in part of a row, infinity, and numbers that are too large are refused with
    the errors of the model. What is not checked: names and shapes, and whether outputs are finite. Rows are not split
    into batches. The model must not be trained any further, nor moved to another device; what `partial_fit` learns
    later is not in it.

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
        n = len(next(iter(X.values())))
        for place, name in enumerate(self._names):
            given = X.get(name)
            if given is None:
                values[name] = torch.zeros((n, *self._shapes[name]), dtype=self._dtype)
                absent[place] = np.ones(n, dtype=bool)
                continue
            shift, scale = self._scales[name]
            # In 64 bits and then clipped, as `Standardise` does.
            standard = (np.asarray(given) - shift) / scale
            flat = standard.ravel()
            if np.dot(flat, flat) < _USUAL:
                np.clip(standard, -FARTHEST, FARTHEST, out=standard)
                complete.append(name)
                values[name] = torch.from_numpy(standard).to(self._dtype)
                continue
            values[name], missing = self._unusual(name, np.asarray(given))
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
