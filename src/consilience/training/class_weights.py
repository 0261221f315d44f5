"""Weights of classes in training: as sample weights, and as a user gives them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from consilience.core.errors import InputError, unknown_name
from consilience.core.samples import Samples
from consilience.core.targets import Task

# Class → weight, or "balanced".
ClassWeight = Mapping[Any, float] | str


def match_classes(class_weight: ClassWeight, labels: np.ndarray) -> ClassWeight:
    """Return class weights by label, where a label may be given as text, as on a command line.

    Args:
        class_weight: As it is given.
        labels: The labels of a data set.

    Raises:
        UnknownNameError: If a class is not among the labels.

    >>> match_classes({"1": 5.0}, np.array([0, 1, 1]))
    {1: 5.0}
    """
    if not isinstance(class_weight, Mapping):
        return class_weight
    by_text = {str(label): label for label in np.unique(labels).tolist()}
    for label in class_weight:
        if str(label) not in by_text:
            raise unknown_name("class", str(label), by_text, "It was given in class_weight")
    return {by_text[str(label)]: weight for label, weight in class_weight.items()}


def weigh_classes(train: Samples, task: Task, class_weight: Mapping[Any, float] | str) -> np.ndarray:
    """Return sample weights `[n]` multiplied by the weights of their classes.

    Args:
        train: The samples.
        task: The classification.
        class_weight: Weight by class (1 for classes that are not named), or "balanced": the same total for every class.
    """
    if not task.classification:
        raise InputError("class_weight is for classification; a regression has no classes")
    assert task.classes is not None
    assert train.y is not None
    weight = np.ones(len(train)) if train.weight is None else train.weight
    encoded = task.encode(train.y)
    if class_weight == "balanced":
        totals = np.bincount(encoded, weights=weight, minlength=task.outputs)
        # A class whose samples all have weight 0 keeps it.
        per_class = totals.sum() / (task.outputs * np.where(totals > 0, totals, 1.0))
    else:
        if not isinstance(class_weight, Mapping):
            raise InputError(
                f"class_weight must be 'balanced', a mapping class → weight, or None, got {class_weight!r}"
            )
        known = {label: position for position, label in enumerate(task.classes.tolist())}
        per_class = np.ones(task.outputs)
        for label, value in class_weight.items():
            if label not in known:
                raise InputError(f"class_weight names {label!r}, which is not a class; the classes are {list(known)}")
            if not isinstance(value, int | float | np.number) or not 0 <= value < np.inf:
                raise InputError(f"class_weight of {label!r} must be a number ≥ 0, got {value!r}")
            per_class[known[label]] = value
    return weight * per_class[encoded]
