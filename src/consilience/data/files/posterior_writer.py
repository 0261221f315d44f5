"""Writes posteriors in batches to a temporary file, which replaces the target once it is complete."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, TYPE_CHECKING

import numpy as np

from consilience.core.errors import InputError
from consilience.core.files import atomic_file

if TYPE_CHECKING:
    import polars

ENDINGS = (".npy", ".npz", ".csv", ".parquet")
Write = Callable[[np.ndarray], None]


@contextmanager
def writing(path: Path, classes: Sequence[str], logarithms: bool = False) -> Iterator[Write]:
    """A function that writes a batch of log-posteriors `[row, class]`; the file appears once all are written.

    `.npy` holds `[n, class]`; `.npz` the same as `posterior`, and `classes`; `.csv` and `.parquet` the most probable
    class as `prediction` and a column `probability_CLASS` for each class, as `consilience predict` writes them.

    Args:
        path: Of the file.
        classes: Their names, in the order of the columns.
        logarithms: Write log-posteriors, in columns `log_probability_CLASS`.
    """
    makers = {".npy": _npy, ".npz": _npz, ".csv": _csv, ".parquet": _parquet}
    ending = path.suffix.lower()
    if ending not in makers:
        raise InputError(f"cannot write {path.name!r}: the ending must be one of {', '.join(ENDINGS)}")
    with (
        atomic_file(path) as complete,
        TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent, ignore_cleanup_errors=True) as parts,
    ):
        with makers[ending](Path(parts), list(classes), logarithms) as write:
            yield lambda posterior: write(posterior if logarithms else np.exp(posterior))
        os.replace(Path(parts) / "whole", complete)


@contextmanager
def _npy(folder: Path, classes: list[str], logarithms: bool) -> Iterator[Write]:
    rows = 0
    kind = np.dtype(np.float64)
    with (folder / "whole").open("wb") as file:
        _head(file, rows, len(classes), kind)
        begin = file.tell()

        def write(posterior: np.ndarray) -> None:
            nonlocal rows, kind
            kind, rows = posterior.dtype, rows + len(posterior)
            file.write(np.ascontiguousarray(posterior).data)

        yield write
        file.seek(0)
        _head(file, rows, len(classes), kind)
        assert file.tell() == begin  # NumPy leaves room for the number of rows to grow


@contextmanager
def _npz(folder: Path, classes: list[str], logarithms: bool) -> Iterator[Write]:
    with _npy(folder, classes, logarithms) as write:
        yield write
    (folder / "whole").rename(folder / "posterior.npy")
    np.save(folder / "classes.npy", np.array(classes))
    with zipfile.ZipFile(folder / "whole", "w") as archive:
        for name in ("posterior.npy", "classes.npy"):
            archive.write(folder / name, name)


@contextmanager
def _csv(folder: Path, classes: list[str], logarithms: bool) -> Iterator[Write]:
    with (folder / "whole").open("wb") as file:

        def write(posterior: np.ndarray) -> None:
            _frame(posterior, classes, logarithms).write_csv(file, include_header=not file.tell())

        yield write


@contextmanager
def _parquet(folder: Path, classes: list[str], logarithms: bool) -> Iterator[Write]:
    import polars as pl

    written: list[Path] = []

    def write(posterior: np.ndarray) -> None:
        part = folder / f"{len(written)}.parquet"
        _frame(posterior, classes, logarithms).write_parquet(part)
        written.append(part)

    yield write
    # polars cannot append to a Parquet file, but joins many into one without holding them.
    pl.scan_parquet(written).sink_parquet(folder / "whole")


def _head(file: IO[bytes], rows: int, classes: int, kind: np.dtype) -> None:
    described = {"descr": np.lib.format.dtype_to_descr(kind), "fortran_order": False, "shape": (rows, classes)}
    np.lib.format.write_array_header_1_0(file, described)


def _frame(posterior: np.ndarray, classes: list[str], logarithms: bool) -> polars.DataFrame:
    import polars as pl

    prefix = "log_probability_" if logarithms else "probability_"
    decided = pl.Series("prediction", np.array(classes)[posterior.argmax(axis=1)])
    return pl.DataFrame(
        [decided, *(pl.Series(f"{prefix}{name}", column) for name, column in zip(classes, posterior.T))]
    )
