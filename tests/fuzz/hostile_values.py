"""Values that no argument should have to expect: each by name, made afresh for every call."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import polars
import torch
from scipy import sparse

ROWS = 12

# Of every type, whatever the argument is.
ANYTHING: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "5": lambda: 5,
    "-1": lambda: -1,
    "0": lambda: 0,
    "1.5": lambda: 1.5,
    "nan": lambda: float("nan"),
    "inf": lambda: float("inf"),
    "2**70": lambda: 2**70,
    "-2**70": lambda: -(2**70),
    "1e300": lambda: 1e300,
    "True": lambda: True,
    "complex": lambda: 1j,
    "Decimal": lambda: Decimal("0.5"),
    "Fraction": lambda: Fraction(1, 2),
    "empty string": lambda: "",
    "x": lambda: "x",
    "NUL": lambda: "a\0b",
    "surrogate": lambda: "\ud800",
    "long string": lambda: "x" * 5000,
    "bytes": lambda: b"x",
    "empty list": list,
    "list of None": lambda: [None] * ROWS,
    "ragged list": lambda: [[1], [1, 2]],
    "list of lists of rows": lambda: [[1.0], [1.0, 2.0]] * (ROWS // 2),
    "mixed list": lambda: [1, "a", None] * (ROWS // 3),
    "list of names twice": lambda: ["a", "a"],
    "list of unknown names": lambda: ["a", "nobody"],
    "list of lists of names": lambda: [["a"], ["b"]],
    "list of huge integers": lambda: [2**70] * ROWS,
    "list of objects": lambda: [object()] * ROWS,
    "empty tuple": lambda: (),
    "tuple of three": lambda: (1, 2, 3),
    "empty mapping": dict,
    "mapping to 5": lambda: {"a": 5},
    "mapping to None": lambda: {"a": None},
    "mapping of unknown name": lambda: {"nobody": "x"},
    "mapping of an integer": lambda: {5: 5},
    "mapping of mappings": lambda: {"a": {"a": {"a": 5}}},
    "set": lambda: {"a", "b"},
    "generator": lambda: (letter for letter in "ab"),
    "range": lambda: range(ROWS),
    "slice": lambda: slice(None),
    "Ellipsis": lambda: ...,
    "function": lambda: lambda *_, **__: None,
    "type": lambda: int,
    "object": object,
    "path": lambda: Path("nowhere"),
    "date": lambda: datetime.date(2024, 1, 1),
    "module": torch.nn.Identity,
    "random state": lambda: np.random.RandomState(0),
    "generator of numpy": lambda: np.random.default_rng(0),
    "array of no dimension": lambda: np.array(5),
    "array of no rows": lambda: np.zeros((0, 3)),
    "array of no columns": lambda: np.zeros((ROWS, 0)),
    "array of five dimensions": lambda: np.zeros((ROWS, 2, 1, 1, 1)),
    "array of 40 dimensions": lambda: np.zeros((1,) * 40),
    "array of objects": lambda: np.array([object(), None, "a"] * (ROWS // 3), dtype=object),
    "array of arrays": lambda: np.array([np.zeros(2), np.zeros(3)] * (ROWS // 2), dtype=object),
    "array of complex numbers": lambda: np.ones((ROWS, 2), dtype=complex),
    "array of strings": lambda: np.array(["a", "b"] * (ROWS // 2)),
    "array of bytes": lambda: np.array([b"a", b"b"] * (ROWS // 2)),
    "array of dates": lambda: np.arange(ROWS).astype("datetime64[D]"),
    "array of durations": lambda: np.arange(ROWS).astype("timedelta64[s]"),
    "array of records": lambda: np.zeros(ROWS, dtype=[("a", float), ("b", int)]),
    "array of booleans": lambda: np.arange(ROWS) % 2 == 0,
    "array of NaN": lambda: np.full((ROWS, 2), np.nan),
    "array of infinities": lambda: np.full((ROWS, 2), np.inf),
    "array of 1e308": lambda: np.linspace(-1, 1, ROWS * 2).reshape(ROWS, 2) * 1e308,
    "array of 1e-320": lambda: np.linspace(-1, 1, ROWS * 2).reshape(ROWS, 2) * 1e-320,
    "array of long doubles": lambda: np.ones((ROWS, 2), dtype=np.longdouble),
    "array of unsigned integers": lambda: np.full(ROWS, 2**64 - 1, dtype=np.uint64),
    "array of large integers": lambda: np.full((ROWS, 2), 2**62),
    "array of the other byte order": lambda: np.arange(ROWS * 2.0).reshape(ROWS, 2).astype(">f8"),
    "array of strings of any length": lambda: np.array(["a", "b"] * (ROWS // 2), dtype=np.dtypes.StringDType()),
    "matrix": lambda: np.matrix(np.ones((ROWS, 2))),
    "masked array": lambda: np.ma.masked_less(np.arange(ROWS * 2.0).reshape(ROWS, 2), 5),
    "sparse matrix": lambda: sparse.csr_matrix(np.eye(ROWS)),
    "sparse dictionary": lambda: sparse.dok_matrix(np.eye(ROWS)),
    "tensor with a gradient": lambda: torch.ones(ROWS, 2, requires_grad=True),
    "tensor without memory": lambda: torch.ones(ROWS, 2, device="meta"),
    "sparse tensor": lambda: torch.eye(ROWS).to_sparse(),
    "quantized tensor": lambda: torch.quantize_per_tensor(torch.ones(ROWS, 2), 0.1, 0, torch.qint8),
    "tensor of bfloat16": lambda: torch.ones(ROWS, 2, dtype=torch.bfloat16),
    "tensor of float8": lambda: torch.ones(ROWS, 2).to(torch.float8_e4m3fn),
    "tensor of complex numbers": lambda: torch.ones(ROWS, 2, dtype=torch.complex64),
    "tensor of no dimension": lambda: torch.tensor(5),
    "tensor of no rows": lambda: torch.zeros(0, 2),
    "conjugated tensor": lambda: torch.ones(ROWS, 2, dtype=torch.complex64).conj(),
    "table of pandas": lambda: pandas.DataFrame({"a": np.arange(ROWS), "b": ["x"] * ROWS}),
    "table with one name twice": lambda: pandas.DataFrame(np.ones((ROWS, 2)), columns=["a", "a"]),
    "column of pandas": lambda: pandas.Series([1, None] * (ROWS // 2), dtype="Int64"),
    "categories": lambda: pandas.Series(["a", None] * (ROWS // 2), dtype="category"),
    "periods": lambda: pandas.Series(pandas.period_range("2024", periods=ROWS, freq="D")),
    "table of polars": lambda: polars.DataFrame({"a": range(ROWS), "b": ["x"] * ROWS}),
    "128 bits of polars": lambda: polars.DataFrame({"a": polars.Series([2**100] * ROWS, dtype=polars.Int128)}),
    "column of 128 bits": lambda: polars.Series([2**100] * ROWS, dtype=polars.Int128),
    "column of lists": lambda: polars.Series([[1, 2], [3]] * (ROWS // 2)),
    "column of structures": lambda: polars.Series([{"a": 1}] * ROWS),
    "column of dates": lambda: polars.Series([datetime.date(2024, 1, 1)] * ROWS),
    "decimals": lambda: polars.Series([Decimal("0.5")] * ROWS),
    "lazy table": lambda: polars.LazyFrame({"a": range(ROWS)}),
    "column without a value": lambda: polars.Series([None] * ROWS),
    "hostile object": lambda: Hostile(),
    "object without a representation": lambda: Unprintable(),
}


class Hostile:
    """Answers every question with an error."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("no array")

    def __len__(self) -> int:
        raise RuntimeError("no length")

    def __iter__(self) -> Any:
        raise RuntimeError("no iteration")

    def __bool__(self) -> bool:
        raise RuntimeError("neither true nor false")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("not comparable")

    __hash__ = None  # type: ignore[assignment]


class Unprintable:
    """Has no representation."""

    def __repr__(self) -> str:
        raise RuntimeError("no representation")


def spoilt(valid: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Values that are almost valid: one thing of a valid value is changed."""
    if isinstance(valid, np.ndarray) and valid.ndim:
        yield from _spoilt_array(valid)
    elif isinstance(valid, Mapping):
        yield from _spoilt_mapping(valid)
    elif isinstance(valid, str):
        yield "with a space", lambda: f" {valid}"
        yield "in upper case", valid.upper
        yield "in a list", lambda: [valid]
        yield "as an array", lambda: np.array(valid)
    elif isinstance(valid, bool):
        yield "as a number", lambda: int(valid)
    elif isinstance(valid, int | float):
        yield "as a string", lambda: str(valid)
        yield "in a list", lambda: [valid]
        yield "as an array", lambda: np.array([valid])
        yield "as a number of numpy", lambda: np.float32(valid)
        yield "as a tensor", lambda: torch.tensor(valid)
        yield "negative", lambda: -valid
    elif isinstance(valid, Sequence):
        yield "as a set", lambda: set(map(str, valid))
        yield "as a generator", lambda: (item for item in valid)
        yield "reversed", lambda: list(valid)[::-1]
        yield "twice", lambda: [*valid, *valid]
        yield "as objects", lambda: np.array(list(valid), dtype=object)


def _spoilt_array(valid: np.ndarray) -> Iterator[tuple[str, Callable[[], Any]]]:
    yield "no rows", lambda: valid[:0]
    yield "one row", lambda: valid[:1]
    yield "a row too many", lambda: np.concatenate([valid, valid[:1]])
    yield "another dimension", lambda: valid[..., None]
    yield "a dimension in front", lambda: valid[None]
    yield "fewer dimensions", lambda: valid.reshape(-1)
    yield "turned", lambda: valid.T
    yield "as lists", valid.tolist
    yield "as objects", lambda: valid.astype(object)
    yield "as strings", lambda: valid.astype(str)
    yield "as a tensor", lambda: torch.tensor(valid) if valid.dtype.kind in "biuf" else valid
    yield "as a table", lambda: pandas.DataFrame(valid.reshape(len(valid), -1))
    yield "reversed", lambda: valid[::-1]
    yield "read-only", lambda: np.frombuffer(valid.tobytes(), valid.dtype).reshape(valid.shape)
    yield "all the same", lambda: np.full_like(valid, valid.flat[0])
    yield "with None", lambda: [None, *valid.tolist()[1:]]
    if valid.dtype.kind in "iuf":
        yield "negative", lambda: -valid.astype(float)
        yield "complex", lambda: valid.astype(complex)
        yield "with a huge integer", lambda: np.array([2**70, *valid.ravel().tolist()[1:]], object).reshape(valid.shape)
        for value in (np.nan, np.inf, -np.inf, 1e300, 0.5):
            yield f"with {value}", lambda value=value: _changed(valid.astype(float), value)


def _changed(values: np.ndarray, value: float) -> np.ndarray:
    values = values.copy()
    values.flat[0] = value
    return values


def _spoilt_mapping(valid: Mapping[str, Any]) -> Iterator[tuple[str, Callable[[], Any]]]:
    yield "with an unknown name", lambda: {**valid, "nobody": next(iter(valid.values()), 5)}
    yield "with an integer as name", lambda: {**valid, 5: next(iter(valid.values()), 5)}
    yield "with the empty name", lambda: {**valid, "": next(iter(valid.values()), 5)}
    if not valid:
        return
    first = next(iter(valid))
    yield "without its first entry", lambda: {name: value for name, value in valid.items() if name != first}
    for what, make in (*ANYTHING.items(), *spoilt(valid[first])):
        yield f"{first}: {what}", lambda make=make: {**valid, first: make()}


def hostile(valid: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Every hostile value for an argument that has this valid value."""
    yield from ANYTHING.items()
    yield from spoilt(valid)
