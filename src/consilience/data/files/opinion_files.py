"""Files of opinions (logits or probabilities of trained models): their experts, their classes, and rows in batches."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from consilience.core.errors import InputError, listed, unknown_name
from consilience.data.files.arrays import array_batches, map_array, read_npz
from consilience.data.files.table_reading import (
    TABLES,
    count_rows,
    is_parquet,
    no_such_path,
    number_batches,
    parquet_schema,
    read_header,
)
from consilience.data.files.tables import choose_columns

if TYPE_CHECKING:
    import polars

PREDICTED = "probability_*"  # what `consilience predict` and `consilience fuse` call the columns of probabilities
ENDINGS = (".npy", ".npz", *TABLES)


@dataclass(frozen=True)
class Expert:
    """An expert of a file: its name, the number of its classes, and their names if the file has them."""

    name: str
    width: int
    classes: tuple[str, ...] | None = None


@dataclass(frozen=True, eq=False)
class OpinionFile:
    """One file of opinions.

    Attributes:
        path: Of the file.
        experts: Whose opinions it holds.
        rows: How many, or None where that is not known before they are read.
        read: `read(rows)` yields batches of so many rows: for each expert an array `[row, class]`, NaN where a cell is
            empty.
    """

    path: Path
    experts: tuple[Expert, ...]
    rows: int | None
    read: Callable[[int], Iterator[list[np.ndarray]]]


@dataclass(frozen=True, eq=False)
class OpinionFiles:
    """Files whose rows are the same samples; `classes` is None if no file names them."""

    files: tuple[OpinionFile, ...]
    names: tuple[str, ...]
    width: int
    classes: tuple[str, ...] | None

    def batches(self, rows: int) -> Iterator[dict[str, np.ndarray]]:
        """Expert → opinions `[row, class]` as 32-bit or 64-bit floats, columns in the order of `classes`."""
        orders = [_order(expert, self.classes) for file in self.files for expert in file.experts]
        done = 0
        for parts in itertools.zip_longest(*(file.read(rows) for file in self.files), fillvalue=[]):
            ends = [done + len(part[0]) if part else done for part in parts]
            if len(set(ends)) > 1:
                short = min(range(len(ends)), key=ends.__getitem__)
                long = max(range(len(ends)), key=ends.__getitem__)
                raise _different_rows(self.files[short], f"{ends[short]}", self.files[long], f"{ends[long]} or more")
            arrays = [array for part in parts for array in part]
            yield {name: _wide(array[:, order]) for name, array, order in zip(self.names, arrays, orders)}
            done = ends[0]


def open_opinions(
    paths: Sequence[Path],
    *,
    experts: Mapping[str, Sequence[str]] | None = None,
    columns: Sequence[str] | None = None,
    names: Sequence[str] | None = None,
    reserved: Sequence[str] = (),
) -> OpinionFiles:
    """Open `.npy` (`[n, class]` or `[n, expert, class]`), `.npz`, CSV and Parquet files of opinions.

    Args:
        paths: The files.
        experts: Name → columns or globs of a table, or the array of an `.npz`, if one file holds several experts. What
            `*` stands for in a glob is the name of the class.
        columns: Names or globs of the opinions in tables with one expert each; by default those called
            `probability_*`, else all.
        names: Of the experts, in place of those of the files.
        reserved: Columns and arrays that are no opinions, such as the labels.
    """
    if experts and len(paths) > 1:
        raise InputError(f"experts by column or array need one file that holds them all, got {len(paths)} files")
    files = [_open(path, experts, columns, reserved) for path in paths]
    found = [expert for file in files for expert in file.experts]
    if names is not None and len(names) != len(found):
        raise InputError(f"there must be a name for each of {len(found)} experts, got {len(names)}: {listed(names)}")
    called = tuple(names or (expert.name for expert in found))
    if twice := [name for name in called if called.count(name) > 1]:
        raise InputError(f"two experts are called {twice[0]!r}: give names of their own (--names)")
    owners = [file.path.name for file in files for _ in file.experts]
    whose = [owner if len(paths) == len(found) else f"{name!r} of {owner}" for name, owner in zip(called, owners)]
    classes = _agree_on_classes(found, whose)
    known = [file for file in files if file.rows is not None]
    for file in known:
        if file.rows != known[0].rows:
            raise _different_rows(known[0], f"{known[0].rows}", file, f"{file.rows}")
    return OpinionFiles(tuple(files), called, found[0].width, classes)


def renamed(opened: OpinionFiles, names: Sequence[str], classes: tuple[str, ...] | None) -> OpinionFiles:
    """Files of other samples with the names of the experts and the order of the classes changed to those given."""
    if len(opened.names) != len(names):
        raise InputError(f"the files to fit on hold {len(opened.names)} experts, those to fuse {len(names)}")
    if classes is not None and opened.classes is not None and set(classes) != set(opened.classes):
        raise InputError(
            f"the files to fit on name the classes {listed(opened.classes)}, those to fuse {listed(classes)}"
        )
    return replace(opened, names=tuple(names), classes=classes if opened.classes is not None else None)


def check_readable(path: Path) -> None:
    """Refuse a path that does not exist, or whose ending is unknown."""
    if path.is_dir():
        raise InputError(f"{str(path)!r} is a folder: give a file ({', '.join(ENDINGS)})")
    if not path.name.lower().endswith(ENDINGS):
        raise InputError(f"cannot read {path.name!r}: the endings known here are {', '.join(ENDINGS)}")
    if not path.is_file():
        raise no_such_path(path)


def _open(
    path: Path, experts: Mapping[str, Sequence[str]] | None, columns: Sequence[str] | None, reserved: Sequence[str]
) -> OpinionFile:
    check_readable(path)
    if path.name.lower().endswith(".npy"):
        if experts:
            raise InputError(f"{path.name} is one array: only tables and .npz hold experts by name")
        array = map_array(path)
        if array.ndim == 3:
            return _of_arrays(path, {f"{path.stem}_{place + 1}": array[:, place] for place in range(array.shape[1])})
        return _of_arrays(path, {path.stem: array})
    if path.name.lower().endswith(".npz"):
        return _of_arrays(path, _choose_arrays(path, experts, reserved))
    return _open_table(path, experts, columns, reserved)


def _choose_arrays(
    path: Path, experts: Mapping[str, Sequence[str]] | None, reserved: Sequence[str]
) -> dict[str, np.ndarray]:
    arrays = read_npz(path)
    if experts is None:
        # Arrays of one dimension are labels, sample numbers or class names.
        chosen = {name: array for name, array in arrays.items() if array.ndim != 1 and name not in reserved}
        if not chosen:
            raise InputError(f"{path.name} holds no array [n, class]; it holds {listed(list(arrays))}")
        return {path.stem: next(iter(chosen.values()))} if len(chosen) == 1 else chosen
    for name, sources in experts.items():
        if len(sources) != 1:
            raise InputError(f"expert {name!r} must be one array of {path.name}, got {listed(sources)}")
        if sources[0] not in arrays:
            raise unknown_name("array", sources[0], arrays, f"It was looked for in {path.name}")
    return {name: arrays[sources[0]] for name, sources in experts.items()}


def _of_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> OpinionFile:
    """A file of an array `[n, class]` for each expert."""
    first = next(iter(arrays))
    for name, array in arrays.items():
        if array.ndim != 2:
            wanted = "[n, class] or [n, expert, class]" if path.suffix.lower() == ".npy" else "[n, class]"
            raise InputError(f"{path.name}: opinions of {name!r} must have shape {wanted}, got {list(array.shape)}")
        if array.dtype.kind not in "iuf":
            raise InputError(f"{path.name}: opinions of {name!r} must be numbers, got {array.dtype}")
        if len(array) != len(arrays[first]):
            raise InputError(
                f"{path.name}: experts must have the same rows: {first!r} has {len(arrays[first])}, {name!r} "
                f"{len(array)}"
            )

    def read(rows: int) -> Iterator[list[np.ndarray]]:
        for batch in zip(*(array_batches(array, rows) for array in arrays.values())):
            yield list(batch)

    experts = tuple(Expert(name, array.shape[1]) for name, array in arrays.items())
    return _filled(OpinionFile(path, experts, len(arrays[first]), read))


def _open_table(
    path: Path, experts: Mapping[str, Sequence[str]] | None, columns: Sequence[str] | None, reserved: Sequence[str]
) -> OpinionFile:
    header = read_header(path)
    name = path.name.removesuffix(".gz").rpartition(".")[0]
    kept = [column for column in reserved if column in header]
    if experts is None and columns is None:
        predicted = [column for column in header if column.startswith(PREDICTED[:-1])]
        columns = [PREDICTED] if len(predicted) > 1 else None
    globs = experts or ({name: columns} if columns else {})
    chosen = {name: [column for column in header if column not in kept]}
    if globs:
        chosen = choose_columns(header, globs, kept, owner="expert")
    used = [column for own in chosen.values() for column in own]
    if is_parquet(path):
        _check_types(path, used)
    classes = {name: _class_names(own, globs[name]) if globs else tuple(own) for name, own in chosen.items()}
    if experts is None:
        # Every file has the same columns, so a column that is named without a glob has the name of its class.
        classes = {name: known or tuple(chosen[name]) for name, known in classes.items()}
    found = tuple(Expert(name, len(own), classes[name]) for name, own in chosen.items())

    def read(rows: int) -> Iterator[list[np.ndarray]]:
        for frame in number_batches(path, used, rows):
            yield [_floats(frame.select(own)) for own in chosen.values()]

    return _filled(OpinionFile(path, found, count_rows(path), read))


def _agree_on_classes(found: Sequence[Expert], whose: Sequence[str]) -> tuple[str, ...] | None:
    """The classes in the order of the first expert that names them; `whose` is how a message calls each expert."""
    for expert, owner in zip(found, whose):
        if expert.width < 2:
            raise InputError(
                f"{owner} has one column: opinions need one for each of at least two classes (a single logit z of a "
                "binary expert is the pair 0, z)"
            )
        if expert.width != found[0].width:
            alone = sorted(set(found[0].classes or ()) ^ set(expert.classes or ()))
            only = f" (not in both: {listed(alone)})" if found[0].classes and expert.classes else ""
            raise InputError(
                f"experts must have the same classes: {whose[0]} has {found[0].width}, {owner} {expert.width}"
                f"{only}. If not every column is a class, choose those of the opinions (--columns)"
            )
    named = [place for place, expert in enumerate(found) if expert.classes is not None]
    for place in named[1:]:
        first, other = found[named[0]].classes or (), found[place].classes or ()
        if set(first) != set(other):
            own = sorted(set(other) - set(first)) or sorted(set(first) - set(other))
            raise InputError(
                f"experts must name the same classes: {whose[named[0]]} has {listed(first)}, {whose[place]} has "
                f"{listed(other)} (not in both: {listed(own)})"
            )
    return found[named[0]].classes if named else None


def _class_names(columns: Sequence[str], globs: Sequence[str]) -> tuple[str, ...] | None:
    """What `*` stands for in a glob; None if a column was named without one, which does not name its class.

    >>> _class_names(["img_cat", "img_dog"], ["img_*"]), _class_names(["a1", "a2"], ["a1", "a2"])
    (('cat', 'dog'), None)
    """
    names = []
    for column in columns:
        for before, star, after in (glob.partition("*") for glob in globs):
            if star and not set("*?[") & set(before + after) and column.startswith(before) and column.endswith(after):
                names.append(column[len(before) : len(column) - len(after)])
                break
    return tuple(names) if len(set(names)) == len(columns) else None


def _filled(file: OpinionFile) -> OpinionFile:
    if file.rows == 0:
        raise InputError(f"{file.path.name} has no rows")
    return file


def _check_types(path: Path, columns: Sequence[str]) -> None:
    import polars as pl

    types = parquet_schema(path)
    for column in columns:
        if not types[column].is_numeric() and types[column] != pl.Null:
            raise InputError(
                f"{path.name}: column {column!r} holds {types[column]}, opinions are numbers: choose their columns "
                "(--columns, or --expert NAME=GLOB for each of several experts)"
            )


def _floats(frame: polars.DataFrame) -> np.ndarray:
    import polars as pl

    narrow = all(kind == pl.Float32 for kind in frame.dtypes)
    return frame.cast(pl.Float32 if narrow else pl.Float64).fill_null(float("nan")).to_numpy()


def _wide(array: np.ndarray) -> np.ndarray:
    if array.dtype in (np.float32, np.float64):
        return array
    return array.astype(np.float32 if array.dtype == np.float16 else np.float64)


def _order(expert: Expert, classes: tuple[str, ...] | None) -> slice | list[int]:
    if expert.classes is None or expert.classes == classes:
        return slice(None)
    return [expert.classes.index(name) for name in classes or ()]


def _different_rows(first: OpinionFile, rows: str, second: OpinionFile, others: str) -> InputError:
    return InputError(
        f"the files must hold the same samples in the same order: {first.path.name} has {rows} rows, "
        f"{second.path.name} has {others}"
    )
