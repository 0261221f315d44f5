"""From samples to batches: standardisation and vocabularies, learned from the training data and saved with a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from consilience.core.batches import Batch
from consilience.core.errors import InputError, SavedModelError, unknown_name
from consilience.core.modalities import Modality, without_padding
from consilience.core.samples import MappedRows, Samples, as_rows
from consilience.core.targets import Task
from consilience.corruption import Statistics
from consilience.preparation.transforms import Standardise, Tokens, Transform, Words, load_transform


class Preparation:
    """What turns samples into batches for a method: one transform per modality, and the task for the targets."""

    def __init__(self, transforms: Mapping[str, Transform], raw: Mapping[str, Modality], task: Task):
        self.transforms, self.raw, self.task = dict(transforms), dict(raw), task

    @classmethod
    def fit(
        cls, samples: Samples, task: Task, own: Mapping[str, Callable[[Samples, str], Transform]] | None = None
    ) -> Preparation:
        """Learn standardisation and vocabularies from the training samples.

        Args:
            samples: The training samples.
            task: What is predicted.
            own: Modality → a function (samples, name) → transform, for encoders that bring their own.
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
        """The modalities as methods receive them: text has become tokens."""
        return {name: transform.output for name, transform in self.transforms.items()}

    def check(self, samples: Samples) -> None:
        """Refuse modalities that training did not have, or had in another kind or shape."""
        for name, given in samples.modalities.items():
            if name not in self.raw:
                raise unknown_name("modality", name, self.raw, "The model was trained on the known ones")
            trained = self.raw[name]
            # The number of time steps may differ between sets; everything else is fixed by the encoders.
            fixed = 1 if trained.timed else 0
            if given.kind != trained.kind or given.shape[fixed:] != trained.shape[fixed:]:
                raise InputError(f"the model was trained on {trained.describe()}, got {given.describe()}")

    def batch(self, samples: Samples, rows: Any = slice(None), dtype: torch.dtype = torch.float32) -> Batch:
        """Some rows as a batch on the CPU; a modality that the samples do not have is missing for every row.

        Args:
            samples: Any samples with modalities of training.
            rows: A slice, integers or a boolean mask.
            dtype: Of numbers, targets and weights: float32 or float64.
        """
        self.check(samples)
        if not isinstance(rows, slice):  # a slice needs no copy
            rows = as_rows(rows, len(samples))
        index = samples.index[rows]
        n = len(index)
        values: dict[str, Tensor] = {}
        lengths: dict[str, Tensor] = {}
        complete: list[str] = []
        present = np.zeros((n, len(self.transforms)), dtype=bool)
        places = {name: place for place, name in enumerate(samples.modalities)}
        for column, (name, transform) in enumerate(self.transforms.items()):
            output = transform.output
            if name not in samples.modalities:
                own = torch.int64 if output.kind == "tokens" else dtype
                values[name] = torch.zeros((n, *output.shape), dtype=own)
                if output.timed:
                    lengths[name] = torch.zeros(n, dtype=torch.int64)
                continue
            here = samples.present[rows, places[name]]
            length = samples.lengths[name][rows] if name in samples.lengths else None
            raw, place = read_once(samples, name, rows, here)
            if length is not None:
                raw = without_padding(raw, length)
            tensor, length = transform(raw, length, dtype)
            if place is not None:
                tensor = tensor[torch.from_numpy(place)]
            if length is not None:
                length = np.where(here, length, 0)
                beyond = torch.arange(tensor.shape[1]) >= torch.from_numpy(length)[:, None]
                tensor = tensor.masked_fill(beyond.view(*beyond.shape, *[1] * (tensor.ndim - 2)), 0)
                lengths[name] = torch.from_numpy(length)
            if here.all():
                complete.append(name)
            else:
                tensor[torch.from_numpy(~here)] = 0
            values[name] = tensor
            present[:, column] = here
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
            complete=frozenset(complete),
        )

    def statistics(self) -> dict[str, Statistics]:
        """Standard deviation and range of each modality in training, the scale of corruptions."""
        return {name: transform.statistics() for name, transform in self.transforms.items()}

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """What was learned, as tensors and JSON values, for `Preparation.from_state`."""
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
        """Rebuild a preparation from its `state`."""
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


def read_once(
    samples: Samples, name: str, rows: Any, here: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray | None]:
    """The values of some rows without repetitions, and the position of each row among them.

    So a recording that goes with many images is prepared once. The position is None if nothing is repeated. `here` is
    which of the rows have the modality, if it is known.
    """
    values = samples.values[name]
    if isinstance(values, np.ndarray) and here is not None and here.all():
        return np.asarray(values[rows]), None
    if isinstance(values, MappedRows) and name not in samples.lengths and samples.present_in(name)[rows].all():
        source, place = np.unique(values.rows[rows], return_inverse=True)
        if len(source) < len(place):
            return np.asarray(values.base[source]), place
    return samples.read(name, rows), None


def _modality(name: str, entry: Mapping[str, Any]) -> Modality:
    sizes, known = entry["shape"], entry["vocabulary"]
    if not all(isinstance(size, int) and size >= 0 for size in (*sizes, known or 0)):
        raise TypeError(f"the sizes of modality {name!r} are {sizes} and {known!r}")
    return Modality(name, entry["kind"], tuple(sizes), known)
