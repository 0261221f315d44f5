"""Which class each column of the opinions is, and labels as positions among them."""

from __future__ import annotations

from typing import Any

import numpy as np

from consilience.core.errors import InputError, name_rows
from consilience.core.targets import check_labels


def find_classes(given: Any, labels: np.ndarray, columns: int, names: tuple[str, ...] | None = None) -> np.ndarray:
    """The classes in the order of the opinions' columns: those given, those named, the labels of y, or 0, 1, 2, …

    given: `[class]` or None · labels: `[n]` · columns: how many there are · names: what tables call them.

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
        "say which columns are whose with classes=[...], or use labels from 0 to " + str(columns - 1)
    )


def read_classes(given: Any) -> np.ndarray:
    """Classes as they were given, each of them once."""
    classes = check_labels(given)
    if len(np.unique(classes)) < len(classes):
        raise InputError(f"classes must name each class once, got {classes.tolist()}")
    return classes


def encode_labels(labels: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Labels as positions in classes, in whatever order these are."""
    place = {label: number for number, label in enumerate(classes.tolist())}
    found = np.array([place.get(label, -1) for label in labels.tolist()], dtype=np.int64)
    if (found < 0).any():
        rows = np.flatnonzero(found < 0)
        raise InputError(
            f"label {labels[rows[0]].item()!r} ({name_rows(rows)}) is none of the classes "
            f"{', '.join(map(repr, classes.tolist()[:10]))}"
        )
    return found


def order_by_columns(columns: tuple[str, ...], labels: np.ndarray) -> np.ndarray | None:
    """The classes in the order in which tables name them; None where the names are not those of labels at all.

    labels: those that occur, each once.

    >>> order_by_columns(("dog", "cat"), np.array(["cat"])), order_by_columns(("p0", "p1"), np.array(["cat", "dog"]))
    (array(['dog', 'cat'], dtype='<U3'), None)
    """
    called = [str(label) for label in labels.tolist()]
    strangers = [label for label in called if label not in columns]
    if len(strangers) == len(called):
        return None
    if strangers:
        raise InputError(
            f"the opinions' columns name the classes {', '.join(map(repr, columns))}, and label {strangers[0]!r} is "
            "none of them. If the names mean something else, say which columns are whose with classes=[...]"
        )
    known = dict(zip(called, labels.tolist()))
    read = {"U": str, "i": int, "u": int}.get(labels.dtype.kind)
    try:
        # A column of whose class no label occurs is read as the others are.
        classes = np.array([known[one] if one in known else read(one) for one in columns])  # type: ignore[misc]
    except (TypeError, ValueError):
        raise InputError(
            f"the opinions' columns {', '.join(map(repr, columns))} cannot be read as labels like "
            f"{labels[0].item()!r}: say which columns are whose with classes=[...]"
        ) from None
    return read_classes(classes)
