"""Filling single empty cells with what the train rows say."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from consilience.core.errors import InputError, unknown_name

FILLS = ("mean", "median", "zero")


def check_fill(fill: str) -> None:
    """Refuse a fill that does not exist."""
    if fill not in FILLS:
        raise unknown_name("fill", fill, FILLS)


def learn_fills(values: np.ndarray, fill: str, train: np.ndarray) -> np.ndarray:
    """Each feature's median or mean over the train rows, or 0: `[feature]`; NaN where every train row is empty.

    Learned for features without a gap too: new samples may have one there.

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
            fills[whole], fills[some] = np.median(known[:, whole], axis=0), np.nanmedian(known[:, some], axis=0)
    return fills


def fill_gaps(
    values: np.ndarray,
    fills: np.ndarray,
    name: str,
    columns: Sequence[str],
    missing: np.ndarray | None = None,
) -> np.ndarray:
    """Replace NaN in `[n, feature]` by the feature's entry of `fills` `[feature]`.

    Rows that lack the modality, the all-NaN ones unless `missing` `[n]` says which, stay as they are.

    >>> gaps = np.array([[1.0, 4.0], [np.nan, 6.0], [np.nan, np.nan]])
    >>> fill_gaps(gaps, np.array([1.0, 5.0]), "audio", ["a", "b"]).tolist()
    [[1.0, 4.0], [1.0, 6.0], [nan, nan]]
    """
    empty = np.isnan(values)
    there = ~(empty.all(axis=1) if missing is None else missing)
    affected = np.flatnonzero((empty & there[:, None]).any(axis=0))
    if not len(affected):
        return values
    hopeless = affected[np.isnan(fills[affected])]
    if len(hopeless):
        raise InputError(
            f"modality {name!r}: {columns[hopeless[0]]} is empty in every train row, so there is nothing to fill it "
            "with. Leave it out, or use fill='zero' (--fill zero)"
        )
    filled = np.array(values)
    filled[:, affected] = np.where(empty[:, affected] & there[:, None], fills[affected], filled[:, affected])
    return filled


def plain_fills(fills: np.ndarray) -> list[float | None]:
    """Fills as JSON values, None where there is none.

    >>> plain_fills(np.array([0.5, np.nan]))
    [0.5, None]
    """
    return [number if known else None for number, known in zip(fills.tolist(), np.isfinite(fills).tolist())]


def restore_fills(described: Sequence[float | None]) -> np.ndarray:
    """What `plain_fills` wrote, back again: `[feature]`."""
    return np.array([np.nan if number is None else float(number) for number in described])
