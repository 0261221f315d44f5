"""The class of each column of the opinions, and labels as class indices."""

from __future__ import annotations

from typing import Any

import numpy as np

from consilience.core.errors import InputError, name_rows
from consilience.core.targets import check_labels


def find_classes(given: Any, labels: np.ndarray, columns: int, names: tuple[str, ...] | None = None) -> np.ndarray:
    """Return the classes in the order of the columns of the opinions.

    These are the given ones, those of the column names, the labels of y, or 0, 1, 2, …

    Args:
        given: `[class]` or None.
        labels: `[n]`.
        columns: Number of columns.
        names: Column names of tables.

    >>> find_classes(None, np.array([2, 0, 0]), columns=4)
    array([0, 1, 2, 3])
    """
    if given is not None:
        classes = read_classes(given)
        if len(classes) != columns:
            raise InputError(f"classes must name the opinions' {columns} columns, got {classes.tolist()}")
        return classes
    found = np.unique(labels)
    named = None if names is None else order_by_columns(names, found)
    if named is not None:
        return named
    if len(found) == columns:
        return found
    if found.dtype.kind in "biuf" and found[0] >= 0 and found[-1] < columns:
        return np.arange(columns)
    listing = ", ".join(map(repr, found.tolist()[:10]))
    raise InputError(
        f"the opinions are on {columns} classes, y has {len(found)} labels ({listing}): "
        "give the class of each column with classes=[...], or use labels from 0 to " + str(columns - 1)
    )


def read_classes(given: Any) -> np.ndarray:
    """Check given classes; each must occur once."""
    classes = check_labels(given)
    if len(np.unique(classes)) < len(classes):
        raise InputError(f"classes must name each class once, got {classes.tolist()}")
    return classes


def encode_labels(labels: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Return labels as indices into classes, in any order of the classes."""
    place = {label: number for number, label in enumerate(classes.tolist())}
    found = np.array([place.get(label, -1) for label in labels.tolist()], dtype=np.int64)
    if (found < 0).any():
        rows = np.flatnonzero(found < 0)
        raise InputError(
            f"label {labels[rows[0]].item()!r} ({name_rows(rows)}) is not one of the classes "
            f"{', '.join(map(repr, classes.tolist()[:10]))}"
        )
    return found


def order_by_columns(columns: tuple[str, ...], labels: np.ndarray) -> np.ndarray | None:
    """Return the classes in the order of the column names; None if no column name is a label.

    labels: the different labels that occur.

    >>> order_by_columns(("dog", "cat"), np.array(["cat"])), order_by_columns(("p0", "p1"), np.array(["cat", "dog"]))
    (array(['dog', 'cat'], dtype='<U3'), None)
    """
    names = [str(label) for label in labels.tolist()]
    unknown = [label for label in names if label not in columns]
    if len(unknown) == len(names):
        return None
    if unknown:
        raise InputError(
            f"the opinions' columns name the classes {', '.join(map(repr, columns))}, and label {unknown[0]!r} is "
            "not one of them. If the names mean something else, give the class of each column with classes=[...]"
        )
    known = dict(zip(names, labels.tolist()))
    read = {"U": str, "i": int, "u": int}.get(labels.dtype.kind)
    try:
        # A class that does not occur in y is converted like the others.
        classes = np.array([known[name] if name in known else read(name) for name in columns])  # type: ignore[misc]
    except (TypeError, ValueError):
        raise InputError(
            f"the opinions' columns {', '.join(map(repr, columns))} cannot be read as labels like "
            f"{labels[0].item()!r}: give the class of each column with classes=[...]"
        ) from None
    return read_classes(classes)
