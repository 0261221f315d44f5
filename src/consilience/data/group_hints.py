"""Columns that look like groups: names of identifiers with repeats, or values within which rows are nearly the same."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

# Words of columns that say from whom or from what a row is.
_WORDS = frozenset(
    {"id", "ids", "identifier", "subject", "patient", "person", "participant", "user", "customer", "client", "speaker"}
    | {"session", "device", "machine", "serial", "batch", "lot", "run", "site", "hospital", "household", "family"}
    | {"animal", "specimen", "vehicle", "driver", "recording", "video", "experiment", "trial", "group"}
)
FEWEST = 5  # groups; fewer are conditions, such as the sex
_FEWEST_UNNAMED = 10
# Rows of a group count as alike if their variance is below this share of that of all rows.
_ALIKE = 0.5
_ROWS, _FEATURES = 20_000, 50
CANDIDATES = 12


@dataclass(frozen=True, eq=False)
class GroupHint:
    """A column that looks like groups.

    Attributes:
        column: Its name.
        codes: The number of each sample's group `[n]`.
        alike: Variance within groups by that of all rows, the median over features; None if it was not measured.
    """

    column: str
    codes: np.ndarray
    alike: float | None = None

    @property
    def sentence(self) -> str:
        """What the user should know, with the option to use."""
        close = "" if self.alike is None or self.alike >= _ALIKE else ", within which rows are closer than across"
        return (
            f"column {self.column!r} looks like a group ({self.codes.max() + 1} values in {len(self.codes)} rows"
            f"{close}): a random split puts rows of one value into both train and test, and the scores may be too "
            f"good; use group={self.column!r} (--group {self.column})"
        )


def candidate_columns(header: Sequence[str], taken: Sequence[str]) -> list[str]:
    """The columns that nothing else reads and that may be groups, those with names of identifiers first.

    >>> candidate_columns(["x1", "x2", "note", "patientId", "label"], ["x1", "x2", "label"])
    ['patientId', 'note']
    """
    unread = set(taken)
    free = [column for column in header if column not in unread]
    return sorted(free, key=lambda column: not is_identifier(column))[:CANDIDATES]


def is_identifier(column: str) -> bool:
    """Whether a column's name has a word for a person or a thing that rows are from.

    >>> [is_identifier(name) for name in ("patientId", "machine_id", "MachineID", "width", "humidity")]
    [True, True, True, False, False]
    """
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", column)
    return not _WORDS.isdisjoint(re.findall(r"[a-z]+", spaced.lower()))


def find_hint(columns: Mapping[str, np.ndarray], features: Sequence[np.ndarray], classes: int) -> GroupHint | None:
    """The first column that looks like groups, or None.

    Args:
        columns: Name → the number of each row's value `[n]`, from 0.
        features: Arrays of numbers `[n, feature]`, to see whether rows of a group are alike.
        classes: The number of classes; a column with no more values is not taken for groups.
    """
    unnamed = None
    for column, codes in columns.items():
        groups = int(codes.max()) + 1
        repeated = (np.bincount(codes)[codes] > 1).mean()
        if repeated < 0.5 or not max(FEWEST, classes + 1) <= groups <= len(codes) / 2:
            continue
        alike = spread_within(codes, features)
        if is_identifier(column):
            return GroupHint(column, codes, alike)
        if unnamed is None and groups >= _FEWEST_UNNAMED and alike is not None and alike < _ALIKE:
            unnamed = GroupHint(column, codes, alike)
    return unnamed


def spread_within(codes: np.ndarray, features: Sequence[np.ndarray]) -> float | None:
    """The variance within groups by that of all rows, the median over features; None without features that vary.

    For groups that have nothing to do with the features it is about 1.

    >>> spread_within(np.array([0, 0, 1, 1]), [np.array([[1.0], [1.0], [2.0], [2.0]])])
    0.0
    """
    kept = codes[:_ROWS]
    _, kept = np.unique(kept, return_inverse=True)
    sizes = np.bincount(kept)
    freedom = len(kept) - len(sizes)
    if not features or freedom < 1:
        return None
    values = np.concatenate([np.asarray(each[:_ROWS], dtype=np.float64) for each in features], axis=1)
    values = values[:, :: max(1, values.shape[1] // _FEATURES)]
    values = values[:, np.isfinite(values).all(axis=0)]
    values = values[:, values.var(axis=0) > 0]
    if not values.shape[1]:
        return None
    values = (values - values.mean(axis=0)) / values.std(axis=0)
    sums = np.zeros((len(sizes), values.shape[1]))
    np.add.at(sums, kept, values)
    within = (values**2).sum(axis=0) - (sums**2 / sizes[:, None]).sum(axis=0)
    return round(float(np.median(np.maximum(within, 0) / freedom / (len(kept) / (len(kept) - 1)))), 6)
