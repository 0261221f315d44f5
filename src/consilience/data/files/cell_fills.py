"""Single empty cells: what each becomes, learned from the train rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from consilience.core.errors import InputError

# "indicator" is the median, and a feature that says where a cell was empty; "none" makes a single empty cell an error.
Fill = Literal["indicator", "mean", "median", "zero", "none"]


def learn_fills(values: np.ndarray, fill: Fill, train: np.ndarray) -> np.ndarray:
    """The median or mean of each feature over the train rows, or 0: `[feature]`; NaN where every train row is empty.

    For "indicator" it is the median.

    Fills are learned for features without a gap too, since new samples may have one.

    >>> learn_fills(np.array([[1.0, 4.0], [np.nan, 6.0], [9.0, 9.0]]), "mean", np.array([True, True, False])).tolist()
    [1.0, 5.0]
    """
    if fill == "zero":
        return np.zeros(values.shape[1])
    known = values[train]
    empty = np.isnan(known)
    fills = np.full(values.shape[1], np.nan)
    whole = ~empty.any(axis=0)
    some = ~whole & ~empty.all(axis=0)
    with np.errstate(invalid="ignore", over="ignore"):  # infinite cells are refused later, with their rows
        if fill == "mean":
            fills[whole] = known[:, whole].mean(axis=0, dtype=np.float64)
            fills[some] = np.nanmean(known[:, some], axis=0, dtype=np.float64)
        else:
            fills[some] = np.nanmedian(known[:, some], axis=0)
            # Both are copies, which the median may sort in part.
            complete = known if whole.all() else known[:, whole]
            fills[whole] = np.median(complete, axis=0, overwrite_input=True)
    return fills


def fill_gaps(
    values: np.ndarray,
    fills: np.ndarray,
    name: str,
    columns: Sequence[str],
    missing: np.ndarray | None = None,
) -> np.ndarray:
    """Replace NaN in `[n, feature]` by the entry of the feature in `fills` `[feature]`.

    Rows that lack the modality are not changed: those in the mask `missing` `[n]`, by default those that are all NaN.

    >>> gaps = np.array([[1.0, 4.0], [np.nan, 6.0], [np.nan, np.nan]])
    >>> fill_gaps(gaps, np.array([1.0, 5.0]), "audio", ["a", "b"]).tolist()
    [[1.0, 4.0], [1.0, 6.0], [nan, nan]]
    """
    empty = np.isnan(values)
    present = ~(empty.all(axis=1) if missing is None else missing)
    affected = np.flatnonzero((empty & present[:, None]).any(axis=0))
    if not len(affected):
        return values
    unknown = affected[np.isnan(fills[affected])]
    if len(unknown):
        raise InputError(
            f"modality {name!r}: {columns[unknown[0]]} is empty in every train row, so there is nothing to fill it "
            "with. Leave it out, or use fill='zero' (--fill zero)"
        )
    filled = np.array(values)
    filled[:, affected] = np.where(empty[:, affected] & present[:, None], fills[affected], filled[:, affected])
    return filled


def plain_fills(fills: np.ndarray) -> list[float | None]:
    """Fills as JSON values, None where there is none."""
    return [number if known else None for number, known in zip(fills.tolist(), np.isfinite(fills).tolist())]


def restore_fills(described: Sequence[float | None]) -> np.ndarray:
    """What `plain_fills` wrote as an array `[feature]`."""
    return np.array([np.nan if number is None else float(number) for number in described])


def restore_flagged(described: Sequence[int], features: int) -> np.ndarray:
    """The positions of the features that have a further one for gaps, as a recipe has them.

    >>> restore_flagged([0, 2], features=3)
    array([0, 2])
    >>> restore_flagged([3], features=3)
    Traceback (most recent call last):
    ValueError: flagged must be different whole numbers from 0 to 2, got [3]
    """
    whole = isinstance(described, list | tuple) and all(type(position) is int for position in described)
    if not whole or not set(described) <= set(range(features)) or len(set(described)) < len(described):
        raise ValueError(
            f"flagged must be different whole numbers from 0 to {features - 1}, got {repr(described)[:60]}"
        )
    return np.array(described, dtype=np.int64)
