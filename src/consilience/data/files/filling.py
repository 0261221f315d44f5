"""Filling single empty cells with what the train rows say."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from consilience.errors import InputError, unknown_name

FILLS = ("mean", "median", "zero")


def check_fill(fill: str) -> None:
    """Refuse a fill that does not exist."""
    if fill not in FILLS:
        raise unknown_name("fill", fill, FILLS)


def fill_gaps(
    values: np.ndarray,
    fill: str,
    train: np.ndarray,
    name: str,
    columns: Sequence[str],
    missing: np.ndarray | None = None,
) -> np.ndarray:
    """Replace NaN in `[n, feature]` by the feature's median or mean over the train rows, or by 0.

    Rows that lack the modality, the all-NaN ones unless `missing` `[n]` says which, stay as they are.

    >>> gaps = np.array([[1.0, 4.0], [np.nan, 6.0], [np.nan, np.nan]])
    >>> fill_gaps(gaps, "mean", np.array([True, True, False]), "audio", ["a", "b"]).tolist()
    [[1.0, 4.0], [1.0, 6.0], [nan, nan]]
    """
    empty = np.isnan(values)
    there = ~(empty.all(axis=1) if missing is None else missing)
    affected = np.flatnonzero((empty & there[:, None]).any(axis=0))
    if not len(affected):
        return values
    instead = np.zeros(len(affected))
    if fill != "zero":
        known = values[train][:, affected]
        hopeless = np.isnan(known).all(axis=0)
        if hopeless.any():
            column = columns[affected[np.flatnonzero(hopeless)[0]]]
            raise InputError(
                f"modality {name!r}: {column} is empty in every train row, so there is no {fill} to fill it with. "
                "Leave it out, or use fill='zero'"
            )
        instead = np.nanmedian(known, axis=0) if fill == "median" else np.nanmean(known, axis=0)
    filled = np.array(values)
    part = filled[:, affected]
    filled[:, affected] = np.where(empty[:, affected] & there[:, None], instead, part)
    return filled
