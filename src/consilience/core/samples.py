"""Samples: objects seen through named modalities, any of which may be missing; checked once, at the door."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from consilience.core.errors import InputError, name_rows, unknown_name
from consilience.core.modalities import (
    KINDS,
    SCAN_BYTES,
    Kind,
    MappedRows,
    Modality,
    Values,
    count_tokens,
    find_present,
    read_modality,
    to_numpy,
    unbox,
)

__all__ = ["KINDS", "SCAN_BYTES", "Kind", "MappedRows", "Modality", "Samples", "Values", "as_rows", "check_weight"]


class Samples:
    """A set of samples: one array per modality, who is present, lengths, targets, weights, and who is who.

    Indexing by name gives that modality's values; indexing by rows (a slice, integers, a boolean mask) gives a
    smaller `Samples`, which is what scikit-learn's splitters need. `len` is the number of samples.

    Build one with `Samples.of`, which checks everything.

    >>> samples = Samples.of({"image": np.zeros((4, 1, 8, 8)), "audio": np.ones((4, 3))}, y=[0, 1, 0, 1])
    >>> len(samples), samples.names, samples[1:3]["audio"].shape
    (4, ('image', 'audio'), (2, 3))
    """

    def __init__(
        self,
        modalities: Mapping[str, Modality],
        values: Mapping[str, Values],
        present: np.ndarray,
        lengths: Mapping[str, np.ndarray],
        y: np.ndarray | None,
        weight: np.ndarray | None,
        index: np.ndarray,
    ):
        self.modalities = dict(modalities)
        self.values = dict(values)
        self.present = present
        self.lengths = dict(lengths)
        self.y, self.weight, self.index = y, weight, index

    @classmethod
    def of(
        cls,
        X: Mapping[str, Any] | Samples,
        y: Any = None,
        *,
        kinds: Mapping[str, Kind] | None = None,
        lengths: Mapping[str, Any] | None = None,
        present: Mapping[str, Any] | np.ndarray | None = None,
        weight: Any = None,
        index: Any = None,
    ) -> Samples:
        """Check a mapping name → values and make samples of it.

        X: arrays, tensors or columns of a table with the samples first; lists of strings (text); lists of
        `[time, feature]` arrays of different lengths (sequences) or of integer lists (tokens). The kind follows from
        the shape (`[n, feature]` vector, `[n, time, feature]` sequence, `[n, channel, height, width]` image, strings
        text) unless `kinds` says otherwise. A row that is all NaN, `None` in a list, a length of 0 and a False in
        `present` (`[n, modality]`, or a mapping name → `[n]`) all mean missing. Any other NaN or infinity is an error.
        """
        if isinstance(X, Samples):
            if kinds or lengths:
                raise InputError("samples already know their kinds and lengths: give neither with Samples")
            return X._with(y=y, weight=weight, present=present, index=index)
        if not isinstance(X, Mapping):
            raise InputError(
                f"samples must be a mapping of modality name → values, got {type(X).__name__}"
                + (": give its .train or .test part" if hasattr(X, "train") and hasattr(X, "test") else "")
            )
        if not X:
            raise InputError("samples need at least one modality, got an empty mapping")
        for name in X:
            if not isinstance(name, str) or not name:
                raise InputError(f"modality names must be non-empty strings, got {name!r}")
        for given, what in ((kinds, "kinds"), (lengths, "lengths")):
            for name in given or {}:
                if name not in X:
                    raise unknown_name("modality", name, X, f"It was given in {what}")
        read = {name: read_modality(name, X[name], (kinds or {}).get(name), (lengths or {}).get(name)) for name in X}
        modalities = {name: modality for name, (modality, _, _) in read.items()}
        values = {name: value for name, (_, value, _) in read.items()}
        long = {name: length for name, (_, _, length) in read.items() if length is not None}
        n = _agree_on_rows(values)
        mask = _read_present(present, tuple(X), n)
        for column, (name, modality) in enumerate(modalities.items()):
            there = mask[:, column] = find_present(modality, values[name], long.get(name), mask[:, column])
            if modality.kind == "tokens":
                ids = count_tokens(name, values[name], long[name], there)
                modalities[name] = replace(modality, vocabulary=ids)
        samples = cls(modalities, values, mask, long, None, None, np.arange(n))
        return samples._with(y=y, weight=weight, index=index)

    @property
    def names(self) -> tuple[str, ...]:
        """The modalities' names, in the order of `present`'s columns."""
        return tuple(self.modalities)

    @property
    def shape(self) -> tuple[int]:
        """`(number of samples,)`: enough of an array for scikit-learn to slice."""
        return (len(self),)

    def __len__(self) -> int:
        return len(self.index)

    def __repr__(self) -> str:
        return f"Samples: {len(self)} of {', '.join(one.describe() for one in self.modalities.values())}"

    def __iter__(self) -> Iterator[str]:
        return iter(self.modalities)

    def __contains__(self, name: object) -> bool:
        return name in self.modalities

    def keys(self) -> tuple[str, ...]:
        """The modalities' names, so that `dict(samples)` works."""
        return self.names

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            self._position(key)
            return self.values[key]
        return self.select(key)

    def select(self, rows: Any) -> Samples:
        """The samples of these rows: an integer, a slice, integers or a boolean mask `[n]`."""
        rows = as_rows(rows, len(self))
        return Samples(
            self.modalities,
            {name: _rows_of(value, rows) for name, value in self.values.items()},
            self.present[rows],
            {name: length[rows] for name, length in self.lengths.items()},
            None if self.y is None else self.y[rows],
            None if self.weight is None else self.weight[rows],
            self.index[rows],
        )

    def only(self, names: Sequence[str]) -> Samples:
        """The same samples seen through fewer modalities, in the order of `names`."""
        if not len(names) or len(set(names)) < len(names):
            raise InputError(f"samples are seen through at least one modality, each once, got {list(names)}")
        columns = [self._position(name) for name in names]
        return Samples(
            {name: self.modalities[name] for name in names},
            {name: self.values[name] for name in names},
            self.present[:, columns],
            {name: self.lengths[name] for name in names if name in self.lengths},
            self.y,
            self.weight,
            self.index,
        )

    def replaced(
        self,
        values: Mapping[str, Values],
        present: np.ndarray | None = None,
        lengths: Mapping[str, np.ndarray] | None = None,
    ) -> Samples:
        """The same samples with some modalities' values changed, as corruption does."""
        for name in (*values, *(lengths or ())):
            self._position(name)
        return Samples(
            self.modalities,
            self.values | dict(values),
            self.present if present is None else present,
            self.lengths | dict(lengths or {}),
            self.y,
            self.weight,
            self.index,
        )

    def present_in(self, name: str) -> np.ndarray:
        """Who has this modality: booleans `[n]`."""
        return self.present[:, self._position(name)]

    def read(self, name: str, rows: Any = slice(None)) -> np.ndarray:
        """The values of some rows in memory, missing ones as zeros (or empty strings): `[rows, *shape]`."""
        value = np.asarray(self[name][rows])
        missing = ~self.present_in(name)[rows]
        if missing.any():
            value = np.array(value)
            value[missing] = "" if self.modalities[name].kind == "text" else 0
        return value

    @property
    def on_disk(self) -> bool:
        """Whether any modality is memory-mapped and so is to be read batch by batch."""
        return any(isinstance(value, np.memmap | MappedRows) for value in self.values.values())

    @property
    def nbytes(self) -> int:
        """How much memory the values would take as 32-bit numbers, a text as 64-bit word ids."""
        total = 0
        for name, value in self.values.items():
            if self.modalities[name].kind == "text":
                longest = max((len(text.split()) for text in np.asarray(value) if text is not None), default=0)
                total += 8 * len(value) * longest
            else:
                total += 4 * int(np.prod(value.shape))
        return total

    def _position(self, name: str) -> int:
        if name not in self.modalities:
            raise unknown_name("modality", name, self.modalities)
        return self.names.index(name)

    def _with(self, y: Any = None, weight: Any = None, present: Any = None, index: Any = None) -> Samples:
        mask = self.present
        if present is not None:
            mask = mask & _read_present(present, self.names, len(self))
        return Samples(
            self.modalities,
            self.values,
            mask,
            self.lengths,
            self.y if y is None else _column("targets", y, len(self), flat=False),
            self.weight if weight is None else check_weight(weight, len(self)),
            self.index if index is None else _read_index(index, len(self)),
        )


def as_rows(rows: Any, n: int) -> np.ndarray:
    """Positions of the rows that an integer, a slice, integers or a boolean mask `[n]` ask for.

    >>> as_rows(slice(1, None), 3), as_rows([True, False, True], 3)
    (array([1, 2]), array([0, 2]))
    """
    if isinstance(rows, tuple):
        if len(rows) != 2 or rows[1] is not Ellipsis:
            raise InputError("samples are indexed by rows alone; use samples[[0, 1]] for several rows")
        rows = rows[0]  # scikit-learn asks for X[rows, ...]
    if isinstance(rows, slice):
        return np.arange(n)[rows]
    asked = np.asarray(rows)
    if asked.size == 0 and asked.dtype.kind == "f":  # an empty list
        asked = asked.astype(np.int64)
    if asked.dtype.kind not in "biu" or asked.ndim > 1:
        raise InputError(
            f"rows must be an integer, a slice, integers or a boolean mask, got {asked.dtype} of shape "
            f"{list(asked.shape)}; samples.only(names) chooses modalities"
        )
    if asked.dtype.kind != "b":
        return np.atleast_1d(asked)
    if asked.shape != (n,):
        raise InputError(f"a mask of {asked.size} entries cannot select from {n} samples")
    return np.flatnonzero(asked)


def check_weight(weight: Any, n: int) -> np.ndarray:
    """Sample weights `[n]`: finite, not negative, not all zero."""
    column = unbox(_column("sample weights", weight, n))
    if column.dtype.kind not in "biuf":
        raise InputError(f"sample weights must be numbers, got {column.dtype}")
    column = column.astype(np.float64)
    if not np.isfinite(column).all() or (column < 0).any():
        rows = np.flatnonzero(~np.isfinite(column) | (column < 0))
        raise InputError(f"sample weights must be finite and ≥ 0 ({name_rows(rows)})")
    if n and not column.any():
        raise InputError("sample weights are all zero: nothing is left to learn from")
    return column


def _rows_of(value: Values, rows: np.ndarray) -> Values:
    if isinstance(value, MappedRows):
        return MappedRows(value.base, value.rows[rows])
    if isinstance(value, np.memmap):
        return MappedRows(value, np.arange(len(value))[rows])
    return value[rows]


def _column(what: str, values: Any, n: int, flat: bool = True) -> np.ndarray:
    column = to_numpy(what, values)
    if column.ndim == 0 or len(column) != n:
        raise InputError(f"{what} have {column.shape[0] if column.ndim else 'no'} rows, the samples have {n}")
    if flat and column.ndim != 1:
        raise InputError(f"{what} must have shape [n], got {list(column.shape)}")
    return column


def _agree_on_rows(values: Mapping[str, Values]) -> int:
    counts = {name: len(value) for name, value in values.items()}
    n = next(iter(counts.values()))
    if len(set(counts.values())) > 1:
        listing = ", ".join(f"{name} has {count}" for name, count in counts.items())
        raise InputError(f"every modality must have one row per sample, but {listing}")
    if n == 0:
        raise InputError("there are no samples: every modality has 0 rows")
    return n


def _read_index(index: Any, n: int) -> np.ndarray:
    column = _column("index", index, n)
    if column.dtype.kind not in "iu":
        raise InputError(f"index must hold whole numbers, got {column.dtype}")
    return column.astype(np.int64)


def _read_present(present: Any, names: tuple[str, ...], n: int) -> np.ndarray:
    mask = np.ones((n, len(names)), dtype=bool)
    if present is None:
        return mask
    if isinstance(present, Mapping):
        for name, column in present.items():
            if name not in names:
                raise unknown_name("modality", name, names, "It was given in present")
            what = f"present[{name!r}]"
            mask[:, names.index(name)] = _read_booleans(what, _column(what, column, n))
        return mask
    given = to_numpy("present", present)
    if given.shape != mask.shape:
        raise InputError(f"present must have shape [n, modality] = {list(mask.shape)}, got {list(given.shape)}")
    return _read_booleans("present", given)


def _read_booleans(what: str, given: np.ndarray) -> np.ndarray:
    given = unbox(given)
    if given.dtype.kind not in "biuf" or not np.isin(given, (0, 1)).all():
        raise InputError(f"{what} must hold booleans (or 0 and 1), got values of type {given.dtype}")
    return given.astype(bool)
