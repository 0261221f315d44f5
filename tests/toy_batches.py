"""Batches made by hand, for tests of methods that need no data set."""

import numpy as np
import torch

from consilience.core.batches import Batch
from consilience.core.samples import Modality
from consilience.core.targets import Task

CLASSES = Task.of_labels(np.array([0, 1, 2]))
NUMBERS = Task.of_numbers(np.random.default_rng(0).normal(size=(9, 2)))
VECTORS = {"image": Modality("image", "vector", (3,)), "audio": Modality("audio", "vector", (2,))}


def batch_of(n=6, present=None, task=CLASSES, seed=0, weight=None, modalities=VECTORS):
    """A batch as the preparation makes it: zeros where a modality is missing."""
    torch.manual_seed(seed)
    there = torch.ones(n, len(modalities), dtype=torch.bool) if present is None else torch.as_tensor(present)
    values = {name: torch.randn(n, *one.shape) for name, one in modalities.items()}
    for column, name in enumerate(values):
        values[name][~there[:, column]] = 0
    y = torch.randint(task.outputs, (n,)) if task.classification else torch.randn(n, task.outputs)
    complete = frozenset(name for column, name in enumerate(values) if there[:, column].all())
    return Batch(
        values,
        there,
        index=torch.arange(n),
        weight=torch.ones(n) if weight is None else torch.as_tensor(weight),
        y=y,
        complete=complete,
    )
