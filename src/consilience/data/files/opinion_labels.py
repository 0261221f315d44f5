"""Labels of opinions in files: counted, matched with the classes, and read in batches as class numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from consilience.core.errors import InputError, listed, name_rows, unknown_name
from consilience.core.targets import label_positions
from consilience.data.files.arrays import array_batches, map_array, read_npz
from consilience.data.files.damaged_files import reading_as
from consilience.data.files.opinion_files import check_readable
from consilience.data.files.table_reading import read_header, string_batches
from consilience.data.files.tables import nearest
from consilience.data.files.target_column import read_target

_COUNTED = 1 << 16  # rows at a time


@dataclass(frozen=True, eq=False)
class LabelFile:
    """Labels as they are in a file; `read(rows)` yields them in batches `[row]`."""

    path: Path
    read: Callable[[int], Iterator[np.ndarray]]

    def count(self) -> dict[Any, int]:
        """Label → how often it occurs."""
        counts: Counter[Any] = Counter()
        for batch in self.read(_COUNTED):
            found, often = np.unique(batch, return_counts=True)
            counts.update(dict(zip(found.tolist(), often.tolist())))
        if not counts:
            raise InputError(f"{self.path.name} holds no labels")
        return dict(counts)

    def batches(self, place_of: Mapping[Any, int], rows: int) -> Iterator[np.ndarray]:
        """Batches of class numbers `[row]`; `place_of` is what `match_labels` returned."""
        done = 0
        for batch in self.read(rows):
            numbers = label_positions(batch, place_of)
            if (numbers < 0).any():
                wrong = np.flatnonzero(numbers < 0)
                raise InputError(
                    f"{self.path.name}: label {batch[wrong[0]].item()!r} ({name_rows(wrong + done)}) is none of "
                    f"the {len(set(place_of.values()))} classes"
                )
            done += len(batch)
            yield numbers


def open_labels(path: Path, column: str | None = None) -> LabelFile:
    """Labels in an `.npy` `[n]`, an array of an `.npz`, or a column of a table; `column` is its name.

    It is not needed if there is only one column or array.
    """
    check_readable(path)
    name = path.name.lower()
    if name.endswith(".npy"):
        return _of_array(path, map_array(path))
    if name.endswith(".npz"):
        arrays = read_npz(path)
        key = _only("array", path, column, list(arrays))
        return _of_array(path, arrays[key])
    key = _only("column", path, column, read_header(path))

    def read(rows: int) -> Iterator[np.ndarray]:
        done = 0
        for frame in string_batches(path, key, rows):
            if frame[key].null_count():
                empty = frame[key].is_null().arg_true().to_numpy() + done
                raise InputError(f"{path.name}: column {key!r} is empty in {name_rows(empty)}: every row needs a label")
            done += len(frame)
            yield _plain(path, read_target(frame[key]))

    return LabelFile(path, read)


def holds_labels(path: Path, column: str) -> bool:
    """Whether a file has this column, or an array of this name."""
    check_readable(path)
    name = path.name.lower()
    if name.endswith(".npy"):
        return False
    return column in (read_npz(path, only=[column]) if name.endswith(".npz") else read_header(path))


def match_labels(counts: Mapping[Any, int], width: int, names: Sequence[str] | None) -> dict[Any, int]:
    """Label → class number.

    Labels that are names of classes are matched by name. Otherwise labels from 0 to width − 1 are the numbers of the
    columns, and `width` different labels are the columns in sorted order.

    Args:
        counts: Label → how often it occurs.
        width: The number of classes.
        names: Of the classes, or None if nothing names them.

    Example:
        >>> match_labels({"dog": 3, "cat": 1}, 2, ["cat", "dog"])
        {'dog': 1, 'cat': 0}
        >>> match_labels({1: 5, 2: 4, 3: 1}, 3, None)
        {1: 0, 2: 1, 3: 2}
    """
    labels = {label: whole_number(label) for label in counts}
    numbers = [number for number in labels.values() if number is not None]
    by_number = len(numbers) == len(labels) and min(numbers) >= 0 and max(numbers) < width
    if names is not None:
        place = {name: number for number, name in enumerate(names)}
        spelled = {label: _spelled(label, number) for label, number in labels.items()}
        unknown = [label for label in labels if spelled[label] not in place]
        if not unknown:
            return {label: place[spelled[label]] for label in labels}
        if len(unknown) < len(labels) or not by_number:
            raise InputError(
                f"label {unknown[0]!r} ({counts[unknown[0]]} of {sum(counts.values())} labels) is none of the classes "
                f"{listed(names)}; if these are not all classes, choose the columns of the opinions"
            )
    if by_number:
        return {label: int(number) for label, number in labels.items() if number is not None}
    if len(labels) == width:
        sorted_labels = sorted(labels, key=lambda label: (labels[label] is None, labels[label] or 0, str(label)))
        return {label: place for place, label in enumerate(sorted_labels)}
    found = [str(label) for label in sorted(labels, key=str)]
    raise InputError(
        f"the opinions are on {width} classes, the labels are {listed(found)}: use labels from 0 to "
        f"{width - 1}, or name the classes in the order of the columns"
    )


def _of_array(path: Path, array: np.ndarray) -> LabelFile:
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1 or not len(array):
        raise InputError(f"{path.name}: labels must have shape [n], got {list(array.shape)}")

    def read(rows: int) -> Iterator[np.ndarray]:
        for batch in array_batches(array, rows):
            yield _plain(path, batch)

    return LabelFile(path, read)


def _plain(path: Path, batch: np.ndarray) -> np.ndarray:
    if batch.dtype.kind == "S":
        with reading_as(path, "text in UTF-8"):
            batch = np.char.decode(batch, "utf-8")
    if batch.dtype.kind not in "biufU":
        raise InputError(f"{path.name}: labels must be numbers or strings, got {batch.dtype}")
    if batch.dtype.kind == "f" and not (np.isfinite(batch) & (batch == np.round(batch))).all():
        odd = batch[~(np.isfinite(batch) & (batch == np.round(batch)))][0]
        raise InputError(f"{path.name}: labels must be whole numbers or strings, got {odd.item()!r}")
    return batch


def _only(what: str, path: Path, name: str | None, there: list[str]) -> str:
    if name is None:
        if len(there) == 1:
            return there[0]
        raise InputError(
            f"{path.name} has more than one {what}: say which holds the labels (--target); there are {listed(there)}"
        )
    if name not in there:
        raise unknown_name(f"label {what}", name, nearest(name, there) or there[:20], f"It was sought in {path.name}")
    return name


def whole_number(label: Any) -> int | None:
    """The whole number that a label is or spells, or None.

    >>> whole_number("2.0"), whole_number("cat")
    (2, None)
    """
    with suppress(ValueError):
        if isinstance(label, int | str):  # a float would round a large whole number
            return int(label)
    try:
        number = float(label)
    except ValueError:
        return None
    return int(number) if number.is_integer() else None


def _spelled(label: Any, number: int | None) -> str:
    return str(number) if isinstance(label, int | float) and not isinstance(label, bool) else str(label)
