"""Writes posteriors in batches to a temporary file, which replaces the target once it is complete."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np

from consilience.core.errors import InputError
from consilience.core.files import atomic_file, temporary_folder, write_atomically

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
    makers: dict[str, Callable[..., AbstractContextManager[Write]]]
    makers = {".npy": _npy, ".npz": _npz, ".csv": _csv, ".parquet": _parquet}
    ending = path.suffix.lower()
    if ending not in makers:
        raise InputError(f"cannot write {path.name!r}: the ending must be one of {', '.join(ENDINGS)}")
    with atomic_file(path) as file, makers[ending](file, path, list(classes), logarithms) as write:
        yield lambda posterior: write(posterior if logarithms else np.exp(posterior))


@contextmanager
def _npy(file: IO[bytes], path: Path, classes: list[str], logarithms: bool) -> Iterator[Write]:
    rows = 0
    kind = np.dtype(np.float64)
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
def _npz(file: IO[bytes], path: Path, classes: list[str], logarithms: bool) -> Iterator[Write]:
    with temporary_folder(path) as folder:
        whole = folder / "posterior.npy"
        with atomic_file(whole) as part, _npy(part, whole, classes, logarithms) as write:
            yield write
        with zipfile.ZipFile(file, "w") as archive:
            archive.write(whole, whole.name)
            with archive.open("classes.npy", "w") as names:
                np.save(names, np.array(classes))


@contextmanager
def _csv(file: IO[bytes], path: Path, classes: list[str], logarithms: bool) -> Iterator[Write]:
    header = True

    def write(posterior: np.ndarray) -> None:
        nonlocal header
        _frame(posterior, classes, logarithms).write_csv(file, include_header=header)
        header = False

    yield write


@contextmanager
def _parquet(file: IO[bytes], path: Path, classes: list[str], logarithms: bool) -> Iterator[Write]:
    import polars as pl

    written: list[Path] = []
    with temporary_folder(path) as folder:

        def write(posterior: np.ndarray) -> None:
            frame = _frame(posterior, classes, logarithms)
            written.append(write_atomically(folder / f"{len(written)}.parquet", frame.write_parquet))

        yield write
        # polars cannot append to a Parquet file, but joins many into one without holding them.
        pl.scan_parquet(written, glob=False).sink_parquet(file)


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
