"""One modality: its kind and shape; arrays, tensors, columns and lists are read into one array."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, Literal, Protocol, get_args

import numpy as np

from consilience.core.errors import InputError, name_rows, unknown_name, wrapped

Kind = Literal["vector", "image", "sequence", "tokens", "text"]
KINDS: tuple[Kind, ...] = get_args(Kind)

# Values are scanned in pieces of this many bytes, so that a memory-mapped array is never held in memory whole.
SCAN_BYTES = 64 * 2**20

# The shape of one sample of each kind.
_LAYOUT = {
    "vector": "[feature]",
    "image": "[channel, height, width]",
    "sequence": "[time, feature]",
    "tokens": "[time] (whole numbers ≥ 0; 0 pads)",
    "text": "one string",
}
_DIMENSIONS = {"vector": 1, "image": 3, "sequence": 2, "tokens": 1, "text": 0}
_TIMED = ("sequence", "tokens")


@dataclass(frozen=True)
class Modality:
    """The name, kind and shape of one modality.

    Args:
        name: The name.
        kind: "vector", "image", "sequence", "tokens" or "text".
        shape: vector `(feature,)`, image `(channel, height, width)`, sequence `(time, feature)`, tokens `(time,)`,
            text `()`.
        vocabulary: Number of token ids, for tokens only.
        words: The words of the ids 2, 3, …, if text was split into words.
    """

    name: str
    kind: Kind
    shape: tuple[int, ...]
    vocabulary: int | None = None
    words: tuple[str, ...] | None = field(default=None, repr=False, compare=False)

    @property
    def timed(self) -> bool:
        """Whether each sample has its own length: sequences and tokens."""
        return self.kind in _TIMED

    def describe(self) -> str:
        """Return name, kind and shape as text, for messages.

        >>> Modality("audio", "sequence", (20, 3)).describe()
        'audio (sequence 20×3)'
        """
        size = "×".join(str(n) for n in self.shape)
        return f"{self.name} ({self.kind}{' ' + size if size else ''})"


class RowSource(Protocol):
    """A source of rows `[rows, *shape]`: a memory-mapped array, files, or a generator of values."""

    @property
    def shape(self) -> tuple[int, ...]:
        """`(n, *shape)`."""

    @property
    def dtype(self) -> np.dtype:
        """The type of the values."""

    @property
    def ndim(self) -> int:
        """The number of dimensions, including the rows."""

    def __getitem__(self, rows: Any, /) -> Any: ...


class MappedRows:
    """Some rows of a memory-mapped array or another source, which are read when they are indexed."""

    def __init__(self, base: RowSource, rows: np.ndarray):
        self.base, self.rows = base, rows
        self.shape = (len(rows), *base.shape[1:])
        self.dtype, self.ndim = base.dtype, base.ndim

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, key: Any) -> np.ndarray:
        return np.asarray(self.base[self.rows[key]])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.base[self.rows], dtype=dtype)


Values = np.ndarray | MappedRows


def is_missing(value: Any) -> bool:
    """Whether a cell is empty: `None`, NaN, or pandas' `NA`.

    >>> [is_missing(cell) for cell in (None, float("nan"), "", 0)]
    [True, True, False, False]
    """
    return value is None or (isinstance(value, float) and value != value) or type(value).__name__ == "NAType"


def to_numpy(what: str, values: Any) -> np.ndarray:
    """Convert an array, a tensor, a pandas or polars column or table, or nested lists to an array."""
    if isinstance(values, np.ma.MaskedArray):
        cells = np.array(values.data, dtype=object)
        cells[np.ma.getmaskarray(values)] = None  # a masked value is missing
        return cells
    if isinstance(values, np.ndarray):  # a memory-mapped array stays one; a matrix would keep two dimensions for ever
        return values.view(np.ndarray) if isinstance(values, np.matrix) else values
    if hasattr(values, "toarray"):
        raise InputError(f"{what}: sparse matrices are not supported; convert with .toarray()")
    try:
        if hasattr(values, "detach"):  # a tensor, recognised without importing torch
            values = values.detach().cpu()
            # numpy has no bfloat16
            values = (values.float() if str(values.dtype) == "torch.bfloat16" else values).numpy()
        elif hasattr(values, "to_numpy"):  # a pandas or polars column or table
            values = values.to_numpy()
        strings = sum(isinstance(value, str) for value in values) if isinstance(values, list | tuple) else 0
        # Without a dtype, numpy would convert numbers and NaNs among strings to strings.
        return np.asarray(values, dtype=object if 0 < strings < len(values) else None)
    except Exception as error:
        # Besides ragged lists: tensors without memory or of a type of torch alone, 128-bit columns, foreign objects.
        if isinstance(error, ValueError) and isinstance(values, list | tuple):
            raise InputError(f"{what}: rows of different lengths do not make an array ({error})") from None
        raise wrapped(error, f"{what}: a {type(values).__name__} cannot be read as an array") from error


def unbox(values: np.ndarray) -> np.ndarray:
    """Convert an object array of numbers and missing values to floats; other arrays are returned unchanged.

    >>> unbox(np.array([1, True, None], dtype=object))
    array([ 1.,  1., nan])
    """
    if values.dtype.kind != "O":
        return values
    cells = [np.nan if is_missing(cell) else cell for cell in values.ravel().tolist()]
    if not all(isinstance(cell, Real | np.bool_) for cell in cells):
        return values
    try:
        return np.array(cells, dtype=np.float64).reshape(values.shape)
    except OverflowError:  # a whole number beyond the largest float
        return values


def read_modality(name: str, given: Any, kind: Kind | None, length: Any) -> tuple[Modality, Values, np.ndarray | None]:
    """Read the values of one modality.

    Returns:
        The modality, its values `[n, *shape]`, and the length of each sample `[n]` for sequences and tokens.
    """
    what = f"modality {name!r}"
    if kind is not None and kind not in KINDS:
        raise unknown_name("kind", kind, KINDS, f"It was given for {what}")
    if given is None:
        raise InputError(f"{what} is None: leave a modality that is missing for every sample out of the mapping")
    values, length, kind = _as_array(what, given, kind, length)
    if values.ndim == 0:
        raise InputError(f"{what} must hold one row per sample, got one {type(given).__name__}")
    if isinstance(values, np.ndarray) and kind != "text":
        values = unbox(values)
    if kind == "text" or (kind is None and values.dtype.kind in "OUST"):
        if length is not None:
            raise InputError(f"{what} is of kind text: only sequences and tokens have lengths")
        return Modality(name, "text", ()), _read_text(what, values), None
    _check_numbers(what, values.dtype)
    values, kind = _fit_layout(what, values, kind)
    modality = Modality(name, kind, tuple(int(size) for size in values.shape[1:]))
    if modality.timed:
        return modality, values, _read_length(what, length, len(values), modality.shape[0])
    if length is not None:
        raise InputError(f"{what} is of kind {kind}: only sequences and tokens have lengths")
    return modality, values, None


def find_present(modality: Modality, values: Values, length: np.ndarray | None, present: np.ndarray) -> np.ndarray:
    """Return which samples are present `[n]`; NaN or infinity in part of a present sample raises an error."""
    if modality.kind == "text":
        return present & np.array([text is not None for text in np.asarray(values)], dtype=np.bool_)
    there = present.copy() if length is None else present & (length > 0)
    if values.dtype.kind != "f":
        return there
    for piece in _pieces(values):
        part = np.asarray(values[piece])
        # A finite sum of |x| shows in one pass that there is no NaN and no infinity, which is the usual case.
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(np.abs(part).sum(dtype=np.float64)):
                continue
        finite, unknown = np.isfinite(part), np.isnan(part)
        if length is not None:  # values beyond the end of a sequence are padding
            beyond = (np.arange(part.shape[1]) >= length[piece, None])[..., None]
            finite, unknown = finite | beyond, unknown | beyond
        flat = (len(part), -1)
        all_nan = unknown.reshape(flat).all(axis=1)
        broken = ~finite.reshape(flat).all(axis=1) & ~all_nan & there[piece]
        if broken.any():
            rows = piece.start + np.flatnonzero(broken)
            raise InputError(
                f"modality {modality.name!r} contains NaN or infinity in part of {name_rows(rows)}. A missing modality "
                "is a row that is all NaN; fill single values (load_data(..., fill='median'), --fill median), or drop "
                "the rows"
            )
        there[piece] &= ~all_nan
    return there


def count_tokens(name: str, values: Values, length: np.ndarray, present: np.ndarray) -> int:
    """Return the number of ids that an embedding needs: the largest token of a present sample, plus one."""
    largest = 0
    for piece in _pieces(values):
        part = np.asarray(values[piece])
        counted = (np.arange(part.shape[1]) < length[piece, None]) & present[piece, None]
        part = np.where(counted, part, 0)
        if part.min(initial=0) < 0:
            rows = piece.start + np.flatnonzero((part < 0).any(axis=1))
            raise InputError(f"modality {name!r} of kind tokens has negative ids ({name_rows(rows)}); ids start at 0")
        largest = max(largest, int(part.max(initial=0)))
    return largest + 1


def without_padding(values: np.ndarray, lengths: np.ndarray | None) -> np.ndarray:
    """Values `[rows, time, …]` with zeros beyond the length of each row `[rows]`; padding may hold NaN."""
    if lengths is None:
        return values
    beyond = np.arange(values.shape[1]) >= lengths[:, None]
    if not beyond.any():
        return values
    return np.where(beyond.reshape(*beyond.shape, *[1] * (values.ndim - 2)), values.dtype.type(0), values)


def check_whole_numbers(what: str, values: np.ndarray) -> None:
    """Refuse whole numbers `[n, …]` of which 64-bit floats, in which everything is computed, would merge some.

    >>> check_whole_numbers("time", np.array([2**60, 2**60 + 1]))
    Traceback (most recent call last):
    consilience.core.errors.InputError: time: 64-bit floats merge 1152921504606846976 and the next: subtract an offset
    """
    if values.dtype.kind not in "iu" or values.dtype.itemsize < 8 or not values.size:
        return
    if max(abs(int(values.min())), abs(int(values.max()))) <= 2**53:
        return
    for feature in values.reshape(len(values), -1).T:
        different = np.unique(feature)
        same = np.flatnonzero(np.diff(different.astype(np.float64)) == 0)
        if len(same):
            raise InputError(f"{what}: 64-bit floats merge {different[same[0]]} and the next: subtract an offset")


def _pieces(values: Values) -> Iterator[slice]:
    row = max(1, int(np.prod(values.shape[1:])) * values.dtype.itemsize)
    step = max(1, SCAN_BYTES // row)
    for start in range(0, len(values), step):
        yield slice(start, min(start + step, len(values)))


def _as_array(what: str, given: Any, kind: Kind | None, length: Any) -> tuple[Values, Any, Kind | None]:
    if isinstance(given, MappedRows):
        return given, length, kind
    if not isinstance(given, list | tuple):
        given = to_numpy(what, given)
        if given.dtype.kind != "O" or given.ndim != 1:
            return given, length, kind
    if not any(_is_array(row) for row in given):
        return to_numpy(what, given), length, kind
    rows = [None if is_missing(row) else to_numpy(f"{what}, row {n}", row) for n, row in enumerate(given)]
    shapes = {row.shape for row in rows if row is not None and row.shape != (0,)}
    if not shapes:
        raise InputError(f"{what} is empty: none of its {len(rows)} rows holds a value")
    if len(shapes) == 1 and all(row is not None and row.shape in shapes for row in rows):
        return np.array(rows), length, kind
    timed = kind in _TIMED or (kind is None and len(min(shapes)) == 2)
    if len(shapes) == 1 and not timed and not any(row is not None and not row.size for row in rows):
        return _stack_with_gaps(what, rows, shapes.pop()), length, kind
    if length is not None:
        raise InputError(f"{what}: rows of different lengths carry their own lengths")
    return _pad(what, rows, shapes, kind)


def _is_array(row: Any) -> bool:
    if isinstance(row, np.ndarray) or hasattr(row, "detach") or hasattr(row, "to_numpy"):
        return row.ndim > 0 if hasattr(row, "ndim") else True
    return isinstance(row, list | tuple)


def _stack_with_gaps(what: str, rows: list[np.ndarray | None], shape: tuple[int, ...]) -> np.ndarray:
    """Stack rows of one shape, with NaN for None."""
    dtype = np.result_type(*(row.dtype for row in rows if row is not None))
    _check_numbers(what, dtype)
    gap = np.full(shape, np.nan, dtype=np.result_type(dtype, np.float32))
    return np.array([gap if row is None else row for row in rows])


def _pad(
    what: str, rows: list[np.ndarray | None], shapes: set[tuple[int, ...]], kind: Kind | None
) -> tuple[np.ndarray, np.ndarray, Kind]:
    """Pad sequences or token lists of different lengths with zeros; return the array and the lengths."""
    widths = {shape[1:] for shape in shapes}
    dimensions = {len(shape) for shape in shapes}
    if (
        len(widths) != 1
        or len(dimensions) != 1
        or dimensions.pop() not in (1, 2)
        or kind in ("vector", "image", "text")
    ):
        shown = ", ".join(str(list(shape)) for shape in sorted(shapes)[:3])
        raise InputError(
            f"{what}: rows of different shapes ({shown}{', …' if len(shapes) > 3 else ''}) must be [time, feature] for "
            "a sequence or [time] for tokens, and may differ in time only"
        )
    filled = [row for row in rows if row is not None and row.size]
    dtype = np.result_type(*(row.dtype for row in filled)) if filled else np.dtype(float)
    _check_numbers(what, dtype)
    width = widths.pop()
    if kind is None and not width and dtype.kind == "f":
        raise InputError(
            f"{what}: rows [time] of different lengths are tokens, which must be whole numbers, got {dtype}; for a "
            "sequence of one feature give kinds={name: 'sequence'}"
        )
    lengths = np.array([0 if row is None else len(row) for row in rows], dtype=np.int64)
    padded = np.zeros((len(rows), max(int(lengths.max()), 1), *width), dtype=dtype)
    for position, row in enumerate(rows):
        if row is not None and row.size:
            padded[position, : len(row)] = row
    return padded, lengths, kind or ("sequence" if width else "tokens")


def _check_numbers(what: str, dtype: np.dtype) -> None:
    if dtype.kind not in "biuf":
        raise InputError(f"{what} holds values of type {dtype}: numbers, or one string per sample, are allowed")


def _fit_layout(what: str, values: Values, kind: Kind | None) -> tuple[Values, Kind]:
    """Add missing axes, and infer the kind from the shape if it is not given."""
    if values.ndim == 1 and kind in (None, "vector"):
        values = _with_axis(values, 1)
    elif values.ndim == 2 and kind == "sequence":
        values = _with_axis(values, 2)
    elif values.ndim == 3 and kind == "image":
        values = _with_axis(values, 1)
    if kind is None:
        by_dimensions: dict[int, Kind] = {2: "vector", 3: "sequence", 4: "image"}
        if values.ndim not in by_dimensions:
            raise InputError(
                f"{what} has shape {list(values.shape)}: give [n, feature] for a vector, [n, time, feature] for a "
                "sequence, [n, channel, height, width] for an image, or give its kind with kinds="
            )
        kind = by_dimensions[values.ndim]
    if values.ndim != _DIMENSIONS[kind] + 1:
        raise InputError(f"{what} of kind {kind} must be [n] × {_LAYOUT[kind]}, got {list(values.shape)}")
    if 0 in values.shape[1:]:
        raise InputError(f"{what} is empty: its shape is {list(values.shape)}")
    if kind == "tokens" and values.dtype.kind not in "iu":
        raise InputError(f"{what} of kind tokens must hold whole numbers, got {values.dtype}")
    return values, kind


def _with_axis(values: Values, axis: int) -> Values:
    key = (slice(None),) * axis + (None,)
    return MappedRows(values.base[key], values.rows) if isinstance(values, MappedRows) else values[key]


def _read_length(what: str, length: Any, n: int, steps: int) -> np.ndarray:
    if length is None:
        return np.full(n, steps, dtype=np.int64)
    given = to_numpy(f"lengths of {what}", length)
    if given.shape != (n,):
        raise InputError(f"lengths of {what} must have shape [n] = [{n}], got {list(given.shape)}")
    if given.dtype.kind not in "iu" or (given < 0).any() or (given > steps).any():
        raise InputError(f"lengths of {what} must be whole numbers from 0 to {steps}")
    return given.astype(np.int64)


def _read_text(what: str, values: Values) -> np.ndarray:
    if values.ndim == 2 and values.shape[1] == 1:  # a table of one column
        values = values[:, 0]
    if values.ndim != 1:
        raise InputError(f"{what}: text must be one string per sample, got shape {list(values.shape)}")
    texts = np.empty(len(values), dtype=object)
    for row, text in enumerate(np.asarray(values).tolist()):
        if is_missing(text):
            continue  # the row stays None
        if not isinstance(text, str):
            raise InputError(f"{what}: row {row} holds {text!r}; text must be strings, or None for missing")
        texts[row] = str(text)
    return texts
