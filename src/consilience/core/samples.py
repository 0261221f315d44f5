"""Samples: named modalities, any of which may be missing, with targets and weights; checked when they are built."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any

import numpy as np

from consilience.core.errors import InputError, RowError, show, unknown_name
from consilience.core.file_names import check_text
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
from consilience.core.sample_columns import check_weight, read_codes, read_column, read_index, read_times
from consilience.core.settings import Names, OwnCheck, checked

__all__ = ["KINDS", "SCAN_BYTES", "Kind", "MappedRows", "Modality", "Samples", "Values", "as_rows", "check_weight"]


class Samples:
    """A set of samples. Build one with `Samples.of`, which checks everything.

    Indexing by name gives the values of a modality; indexing by rows (a slice, integers, a boolean mask) gives a
    smaller `Samples`, as the splitters of scikit-learn need it. `len` is the number of samples.

    Attributes:
        modalities: Name → `Modality`.
        values: Name → array `[n, *shape]`.
        present: Booleans `[n, modality]`.
        lengths: Name → `[n]`, for sequences and tokens.
        y: Targets `[n]` or `[n, target]`, or None.
        weight: Sample weights `[n]`, or None.
        index: Position of each sample in the whole set `[n]`.
        group: Number of each sample's group `[n]`, such as a patient or a device, or None; their names are
            `DataSet.groups`. Samples of a group stay together wherever samples are held out.
        time: Rank of each sample in time `[n]`, or None. Samples are held out in blocks of successive ones.
        recipe: How the file or DataFrame that they are of was read, `DataSet.recipe()`; None for other samples.

    Example:
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
        group: np.ndarray | None = None,
        time: np.ndarray | None = None,
        recipe: Mapping[str, Any] | None = None,
    ):
        self.modalities = dict(modalities)
        self.values = dict(values)
        self.present = present
        self.lengths = dict(lengths)
        self.y, self.weight, self.index = y, weight, index
        self.group, self.time, self.recipe = group, time, recipe

    @classmethod
    @checked
    def of(
        cls,
        X: Annotated[Mapping[str, Any] | Samples, OwnCheck],
        y: Any = None,
        *,
        kinds: Mapping[str, Any] | None = None,
        lengths: Mapping[str, Any] | None = None,
        present: Any = None,
        weight: Any = None,
        index: Any = None,
        group: Any = None,
        time: Any = None,
    ) -> Samples:
        """Check a mapping name → values and make samples of it.

        A modality of a sample is missing if its row is all NaN, `None` in a list, of length 0, or False in `present`.
        Any other NaN or infinity is an error.

        Args:
            X: Name → array, tensor or column with the samples first; list of strings (text), of `[time, feature]`
                arrays of different lengths (sequences), or of lists of integers (tokens).
            y: Targets `[n]` or `[n, target]`.
            kinds: Name → kind. By default it follows from the shape: `[n, feature]` vector, `[n, time, feature]`
                sequence, `[n, channel, height, width]` image, strings text.
            lengths: Name → `[n]`, for padded sequences and tokens.
            present: `[n, modality]`, or name → `[n]`.
            weight: Sample weights `[n]`.
            index: Whole numbers `[n]` that identify the samples; 0, 1, 2, … if absent.
            group: Labels `[n]`; samples with the same one are held out together.
            time: Numbers, dates or ISO strings `[n]` by which samples are ordered; instead of groups.

        Raises:
            InputError: If something does not fit; the message names the modality and the rows.
        """
        if isinstance(X, Samples):
            if kinds or lengths:
                raise InputError("Samples have kinds and lengths already: leave kinds= and lengths= out")
            return X._with(y=y, weight=weight, present=present, index=index, group=group, time=time)
        if not isinstance(X, Mapping) or hasattr(X, "toarray"):  # some sparse matrices are mappings too
            raise InputError(
                f"samples must be a mapping of modality name → values, got {type(X).__name__}"
                + (": give its .train or .test part" if hasattr(X, "train") and hasattr(X, "test") else "")
            )
        if not X:
            raise InputError("samples need at least one modality, got an empty mapping")
        for name in X:
            if not isinstance(name, str) or not name:
                raise InputError(f"modality names must be non-empty strings, got {name!r}")
            check_text("modality", name)
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
        return samples._with(y=y, weight=weight, index=index, group=group, time=time)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the modalities, in the order of the columns of `present`."""
        return tuple(self.modalities)

    @property
    def shape(self) -> tuple[int]:
        """`(number of samples,)`, which scikit-learn needs for slicing."""
        return (len(self),)

    def __len__(self) -> int:
        return len(self.index)

    def __repr__(self) -> str:
        return f"Samples: {len(self)} of {', '.join(modality.describe() for modality in self.modalities.values())}"

    def __iter__(self) -> Iterator[str]:
        return iter(self.modalities)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self.modalities

    def keys(self) -> tuple[str, ...]:
        """Return the names of the modalities; `dict(samples)` uses it."""
        return self.names

    @checked
    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            self._position(key)
            return self.values[key]
        return self.select(key)

    @checked
    def select(self, rows: Any) -> Samples:
        """Return the samples of some rows: an integer, a slice, integers or a boolean mask `[n]`."""
        rows = as_rows(rows, len(self))
        return self._copy(
            values={name: _rows_of(value, rows) for name, value in self.values.items()},
            present=self.present[rows],
            lengths={name: length[rows] for name, length in self.lengths.items()},
            y=None if self.y is None else self.y[rows],
            weight=None if self.weight is None else self.weight[rows],
            index=self.index[rows],
            group=None if self.group is None else self.group[rows],
            time=None if self.time is None else self.time[rows],
        )

    @checked
    def only(self, names: Names) -> Samples:
        """Return the samples with fewer modalities, in the order of `names`."""
        if not names or len(set(names)) < len(names):
            raise InputError(f"choose at least one modality, each once, got {show(names)}")
        columns = [self._position(name) for name in names]
        return self._copy(
            modalities={name: self.modalities[name] for name in names},
            values={name: self.values[name] for name in names},
            present=self.present[:, columns],
            lengths={name: self.lengths[name] for name in names if name in self.lengths},
        )

    @checked
    def replaced(
        self,
        values: Mapping[str, Values],
        present: np.ndarray | None = None,
        lengths: Mapping[str, np.ndarray] | None = None,
    ) -> Samples:
        """Return the samples with other values of some modalities, and other `present` and lengths if given."""
        for name in (*values, *(lengths or ())):
            self._position(name)
        return self._copy(
            values=self.values | dict(values),
            present=self.present if present is None else present,
            lengths=self.lengths | dict(lengths or {}),
        )

    def without_targets(self) -> Samples:
        """Return the samples without y and weights."""
        return self if self.y is None and self.weight is None else self._copy(y=None, weight=None)

    def with_recipe(self, recipe: Mapping[str, Any] | None) -> Samples:
        """Return the samples with how they were read, so that a model trained on them reads new rows that way."""
        return self._copy(recipe=recipe)

    def _copy(self, **changed: Any) -> Samples:
        """The samples with some attributes changed."""
        return Samples(**(vars(self) | changed))

    @checked
    def present_in(self, name: str) -> np.ndarray:
        """Return which samples have a modality, booleans `[n]`."""
        return self.present[:, self._position(name)]

    @checked
    def present_among(self, names: Names) -> np.ndarray:
        """Return which of these modalities each sample has, booleans `[n, name]`; False where there is no such one."""
        absent = np.zeros((len(self), 1), dtype=bool)
        columns = [self.present_in(name)[:, None] if name in self else absent for name in names]
        return np.concatenate([absent[:, :0], *columns], axis=1)

    @checked
    def read(self, name: str, rows: Any = slice(None)) -> np.ndarray:
        """Return the values of some rows `[rows, *shape]` in memory, missing ones as zeros or empty strings."""
        rows = rows if isinstance(rows, slice) else as_rows(rows, len(self))
        value = np.asarray(self[name][rows])
        missing = ~self.present_in(name)[rows]
        if missing.any():
            value = np.array(value)
            value[missing] = "" if self.modalities[name].kind == "text" else 0
        return value

    @property
    def on_disk(self) -> bool:
        """Whether any modality is memory-mapped, so that it should be read batch by batch."""
        return any(isinstance(value, np.memmap | MappedRows) for value in self.values.values())

    @property
    def nbytes(self) -> int:
        """The bytes of the values as 32-bit numbers, and of text as 64-bit word ids."""
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

    def ordered_by(self, group: np.ndarray | None, time: np.ndarray | None) -> Samples:
        """Return the samples with other groups and times, both as whole numbers `[n]` or None."""
        return self._copy(group=group, time=time)

    def _with(
        self,
        y: Any = None,
        weight: Any = None,
        present: Any = None,
        index: Any = None,
        group: Any = None,
        time: Any = None,
    ) -> Samples:
        mask = self.present
        if present is not None:
            mask = mask & _read_present(present, self.names, len(self))
        return self._copy(
            present=mask,
            y=self.y if y is None else read_column("targets", y, len(self), flat=False),
            weight=self.weight if weight is None else check_weight(weight, len(self)),
            index=self.index if index is None else read_index(index, len(self)),
            group=self.group if group is None else read_codes("groups", group, len(self)),
            time=self.time if time is None else read_times(time, len(self)),
        )._check_one_order()

    def _check_one_order(self) -> Samples:
        if self.group is not None and self.time is not None:
            raise InputError("samples have groups or times, not both: groups stay together, times make blocks")
        return self


def as_rows(rows: Any, n: int) -> np.ndarray:
    """Return the positions that an integer, a slice, integers or a boolean mask `[n]` select.

    >>> as_rows(slice(1, None), 3), as_rows([True, False, True], 3)
    (array([1, 2]), array([0, 2]))
    """
    if isinstance(rows, tuple):
        if len(rows) != 2 or rows[1] is not Ellipsis:
            raise InputError("samples are indexed by rows alone; use samples[[0, 1]] for several rows")
        rows = rows[0]  # scikit-learn asks for X[rows, ...]
    if isinstance(rows, slice):
        return np.arange(n)[rows]
    selected = to_numpy("rows", rows)
    if selected.size == 0 and selected.dtype.kind == "f":  # an empty list
        selected = selected.astype(np.int64)
    if selected.dtype.kind not in "biu" or selected.ndim > 1:
        raise InputError(
            f"rows must be an integer, a slice, integers or a boolean mask, got {selected.dtype} of shape "
            f"{list(selected.shape)}; samples.only(names) chooses modalities"
        )
    if selected.dtype.kind != "b":
        outside = (selected < -n) | (selected >= n)
        if outside.any():
            raise RowError(f"there is no row {selected[outside].flat[0]}: the {n} samples are rows 0 … {n - 1}")
        return np.atleast_1d(selected)
    if selected.shape != (n,):
        raise InputError(f"a mask of {selected.size} entries cannot select from {n} samples")
    return np.flatnonzero(selected)


def _rows_of(value: Values, rows: np.ndarray) -> Values:
    if isinstance(value, MappedRows):
        return MappedRows(value.base, value.rows[rows])
    if isinstance(value, np.memmap):
        return MappedRows(value, np.arange(len(value))[rows])
    return value[rows]


def _agree_on_rows(values: Mapping[str, Values]) -> int:
    counts = {name: len(value) for name, value in values.items()}
    n = next(iter(counts.values()))
    if len(set(counts.values())) > 1:
        listing = ", ".join(f"{name} has {count}" for name, count in counts.items())
        raise InputError(f"every modality must have one row per sample, but {listing}")
    if n == 0:
        raise InputError("there are no samples: every modality has 0 rows")
    return n


def _read_present(present: Any, names: tuple[str, ...], n: int) -> np.ndarray:
    mask = np.ones((n, len(names)), dtype=bool)
    if present is None:
        return mask
    if isinstance(present, Mapping):
        for name, column in present.items():
            if name not in names:
                raise unknown_name("modality", name, names, "It was given in present")
            what = f"present[{name!r}]"
            mask[:, names.index(name)] = _read_booleans(what, read_column(what, column, n))
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
