"""From raw samples to batches: standardisation and vocabularies, fitted on the training data and saved with a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from consilience.core.batches import Batch
from consilience.core.errors import InputError, SavedModelError, unknown_name
from consilience.core.modalities import Modality
from consilience.core.samples import MappedRows, Samples, as_rows
from consilience.core.targets import Task
from consilience.corruption import Statistics
from consilience.preparation.transforms import Standardise, Tokens, Transform, Words, load_transform, without_padding

__all__ = ["Preparation", "Standardise", "Tokens", "Transform", "Words"]


class Preparation:
    """Everything between raw samples and a method's batches: one transform a modality, and the task's targets."""

    def __init__(self, transforms: Mapping[str, Transform], raw: Mapping[str, Modality], task: Task):
        self.transforms, self.raw, self.task = dict(transforms), dict(raw), task

    @classmethod
    def fit(
        cls, samples: Samples, task: Task, own: Mapping[str, Callable[[Samples, str], Transform]] | None = None
    ) -> Preparation:
        """Learn standardisation and vocabularies from the training samples.

        own: for modalities whose encoder has a preparation of its own, what makes it of the samples and the name.
        """
        weight = samples.weight
        transforms: dict[str, Transform] = {}
        for name, modality in samples.modalities.items():
            if name in (own or {}):
                transforms[name] = own[name](samples, name)  # type: ignore[index]
            elif modality.kind == "text":
                transforms[name] = Words.fit(samples, name)
            elif modality.kind == "tokens":
                transforms[name] = Tokens.fit(samples, name)
            else:
                transforms[name] = Standardise.fit(samples, name, weight)
        return cls(transforms, samples.modalities, task)

    @property
    def modalities(self) -> dict[str, Modality]:
        """The modalities as methods see them: text has become tokens."""
        return {name: transform.output for name, transform in self.transforms.items()}

    def check(self, samples: Samples) -> None:
        """Refuse modalities that training did not know, or knew in another shape."""
        for name, given in samples.modalities.items():
            if name not in self.raw:
                raise unknown_name("modality", name, self.raw, "The model was trained on the known ones")
            trained = self.raw[name]
            # The number of time steps may differ between sets; everything else is fixed by the encoders.
            fixed = 1 if trained.timed else 0
            if given.kind != trained.kind or given.shape[fixed:] != trained.shape[fixed:]:
                raise InputError(f"the model was trained on {trained.describe()}, got {given.describe()}")

    def batch(self, samples: Samples, rows: Any = slice(None), dtype: torch.dtype = torch.float32) -> Batch:
        """The given rows as a batch on the CPU; a modality that is not there at all is missing for every sample.

        dtype: of numbers, targets and weights, float32 or float64.
        """
        self.check(samples)
        if not isinstance(rows, slice):  # a slice needs no copy of what lies in memory
            rows = as_rows(rows, len(samples))
        index = samples.index[rows]
        n = len(index)
        values: dict[str, Tensor] = {}
        lengths: dict[str, Tensor] = {}
        present = np.zeros((n, len(self.transforms)), dtype=bool)
        for column, (name, transform) in enumerate(self.transforms.items()):
            output = transform.output
            if name not in samples.modalities:
                kept_as = torch.int64 if output.kind == "tokens" else dtype
                values[name] = torch.zeros((n, *output.shape), dtype=kept_as)
                if output.timed:
                    lengths[name] = torch.zeros(n, dtype=torch.int64)
                continue
            there = samples.present_in(name)[rows]
            length = samples.lengths[name][rows] if name in samples.lengths else None
            raw, place = read_once(samples, name, rows)
            if length is not None:
                raw = without_padding(raw, length)
            tensor, length = transform(raw, length, dtype)
            if place is not None:
                tensor = tensor[torch.from_numpy(place)]
            if length is not None:
                length = np.where(there, length, 0)
                beyond = torch.arange(tensor.shape[1]) >= torch.from_numpy(length)[:, None]
                tensor = tensor.masked_fill(beyond.view(*beyond.shape, *[1] * (tensor.ndim - 2)), 0)
                lengths[name] = torch.from_numpy(length)
            if not there.all():
                tensor[torch.from_numpy(~there)] = 0
            values[name] = tensor
            present[:, column] = there
        weight = np.ones(n) if samples.weight is None else samples.weight[rows]
        y: Tensor | None = None
        if samples.y is not None and self.task.outputs:
            y = torch.from_numpy(self.task.encode(samples.y[rows]))
        return Batch(
            values,
            torch.from_numpy(present),
            index=torch.tensor(index),
            weight=torch.from_numpy(weight).to(dtype),
            lengths=lengths,
            y=y.to(dtype) if y is not None and y.is_floating_point() else y,
            complete=frozenset(name for name, there in zip(self.transforms, present.T) if there.all()),
        )

    def statistics(self) -> dict[str, Statistics]:
        """Spread and range of each modality in training, by which a corruption's level is measured."""
        return {name: one.statistics() for name, one in self.transforms.items()}

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """What was learned, as tensors and JSON, for `Preparation.from_state`."""
        tensors: dict[str, Tensor] = {}
        described = []
        for position, (name, transform) in enumerate(self.transforms.items()):
            learned, plain = transform.state()
            tensors |= {f"{position}.{key}": value for key, value in learned.items()}
            raw, output = self.raw[name], transform.output
            described.append(
                {
                    "modality": name,
                    "transform": transform.name,
                    "raw": {"kind": raw.kind, "shape": list(raw.shape), "vocabulary": raw.vocabulary},
                    "output": {"kind": output.kind, "shape": list(output.shape), "vocabulary": output.vocabulary},
                    **plain,
                }
            )
        return tensors, {"modalities": described, "task": self.task.to_json()}

    @classmethod
    def from_state(cls, tensors: Mapping[str, Tensor], described: Mapping[str, Any]) -> Preparation:
        """Rebuild what `state` gave."""
        transforms: dict[str, Transform] = {}
        raw: dict[str, Modality] = {}
        try:
            for position, entry in enumerate(described["modalities"]):
                name = entry["modality"]
                raw[name] = _modality(name, entry["raw"])
                transforms[name] = load_transform(_modality(name, entry["output"]), entry, tensors, position)
            return cls(transforms, raw, Task.from_json(described["task"]))
        except (KeyError, TypeError) as error:
            raise SavedModelError(f"the saved preparation cannot be read: {type(error).__name__}: {error}") from error


def read_once(samples: Samples, name: str, rows: Any) -> tuple[np.ndarray, np.ndarray | None]:
    """The values of some rows, what several of them share once only, and the place of each row among these.

    The place is None where they are all there in order. A recording that goes with many images is prepared once.
    """
    values = samples[name]
    if isinstance(values, MappedRows) and name not in samples.lengths and samples.present_in(name)[rows].all():
        source, place = np.unique(values.rows[rows], return_inverse=True)
        if len(source) < len(place):
            return np.asarray(values.base[source]), place
    return samples.read(name, rows), None


def _modality(name: str, entry: Mapping[str, Any]) -> Modality:
    return Modality(name, entry["kind"], tuple(entry["shape"]), entry["vocabulary"])
