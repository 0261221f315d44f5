"""The user's arrays: an `.npz`, or a folder of `.npy` files that stay on disk."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO
from zipfile import ZipFile

import numpy as np

from consilience.core.errors import InputError, name_rows, unknown_name
from consilience.core.samples import Modality, Samples
from consilience.core.targets import guess_task
from consilience.data.dataset import DataSet, SplitFields
from consilience.data.files.cell_fills import fill_gaps, learn_fills, plain_fills
from consilience.data.files.damaged_files import reading_as
from consilience.data.files.file_options import FileOptions
from consilience.data.files.size_limits import zip_members
from consilience.data.files.split_columns import read_rule
from consilience.data.files.table_reading import TABLES
from consilience.data.splits import settle_split

LENGTHS = "_lengths"  # the suffix of the array of a modality's lengths
_NPY = ".npy"
_LAST_CHARACTER = 0x10FFFF
_NUMPY_FILE = "a numpy file"


def load_arrays(path: Path, modalities: Sequence[str] | None, options: FileOptions) -> DataSet:
    """A data set of an `.npz` or a folder of `.npy`; the options are those of `load_data`.

    There is one array per modality with the samples first, `y`, optionally `split` and `<modality>_lengths`. `y` and
    `split` are never modalities, even if another array is the target.
    """
    arrays, split = read_arrays(path), options.split
    target = "y" if options.target is None else options.target
    if target not in arrays:
        raise unknown_name("target", target, arrays, f"{path.name} must hold the targets as {target!r}")
    if split is not None and split not in arrays:
        raise unknown_name("split", split, arrays, f"It was looked for in {path.name}")
    y = np.array(arrays[target])
    order = options.group or options.time
    if order is not None and order not in arrays:
        raise unknown_name("group" if options.group else "time", order, arrays, f"It was looked for in {path.name}")
    parts, ordering = arrays.get(split or "split"), {} if order is None else {order: np.array(arrays[order])}
    # Another target or split in the file is not a modality.
    for name in (target, split or "split", "y", "split", *ordering):
        arrays.pop(name, None)
    lengths = take_lengths(arrays)
    for name in modalities or ():
        if name not in arrays:
            raise unknown_name("modality", name, arrays, f"It was looked for in {path.name}")
    kept = {name: arrays[name] for name in modalities or sorted(arrays)}
    if not kept:
        raise InputError(f"{path.name} holds no modality: besides {target!r} there must be at least one array")
    for name, value in (*kept.items(), (target, y)):
        if value.ndim == 0:
            raise InputError(f"{path.name}: {name!r} is a single value; the first dimension must be the samples")
    task = options.task or guess_task(y, f"array {target!r}")
    rule = read_rule(ordering, options)
    drawn = settle_split(parts, y, task, seed=options.seed, where=f"the split of {path.name}", rule=rule)
    if options.fill not in (None, "none") and path.is_dir():
        raise InputError("fill does not apply to a folder of .npy files, which stay on disk: fill them beforehand")
    own_lengths = {name: lengths[name] for name in kept if name in lengths}
    make = partial(_make_samples, target, kept, y, own_lengths, options)
    made = make(drawn.parts)
    remake = None if options.fill in (None, "none") else make
    name = path.resolve().name.removesuffix(".npz")
    return DataSet(name, made.samples, task, *drawn, extra=made.extra, remake=remake, reading=made.reading, rule=rule)


def _make_samples(
    target: str,
    values: Mapping[str, np.ndarray],
    y: np.ndarray,
    lengths: Mapping[str, np.ndarray],
    options: FileOptions,
    split: np.ndarray,
) -> SplitFields:
    """Samples, with the gaps of vectors filled if `fill` is given."""
    fill, train = options.fill, split == "train"
    vectors = {
        name: value
        for name, value in values.items()
        if value.dtype.kind in "biuf" and value.ndim == 2 and options.kinds.get(name, "vector") == "vector"
    }
    fills = {}
    if fill is not None and fill != "none":
        fills = {name: learn_fills(value, fill, train) for name, value in vectors.items()}
    flagged = {name: np.flatnonzero(find_gaps(vectors[name][train]).any(axis=0)) for name in fills}
    flagged = {name: columns for name, columns in flagged.items() if fill == "indicator" and len(columns)}
    samples = Samples.of(fill_vectors(values, fills, flagged), y, kinds=options.kinds, lengths=lengths)
    own: dict[str, dict[str, object]] = {name: {"fills": plain_fills(known)} for name, known in fills.items()}
    for name, columns in flagged.items():
        own[name]["flagged"] = columns.tolist()
    return SplitFields(samples, {}, {"format": "arrays", "target": {"name": target}, "modalities": own})


def read_new_arrays(
    path: Path,
    modalities: Mapping[str, Modality],
    fills: Mapping[str, np.ndarray],
    target: str,
    flagged: Mapping[str, np.ndarray] | None = None,
) -> Samples:
    """Samples of every row of an `.npz`, a folder of `.npy` or a `.mat`, laid out as in training.

    A modality without its array is left out. The targets are read if the file has them. `fills` replace NaN in vectors,
    and each of the columns `flagged` gets a feature that says where it was NaN.
    """
    if path.name.lower().endswith(".mat"):
        from consilience.data.files.matlab import read_new_views

        arrays, y = read_new_views(path)
    else:
        arrays = read_arrays(path, only={target, *modalities, *(name + LENGTHS for name in modalities)})
        y = np.array(arrays.pop(target)) if target in arrays else None
    lengths = take_lengths(arrays)
    kept = {name: arrays[name] for name in modalities if name in arrays}
    if not kept:
        raise InputError(f"{path.name} has none of the modalities of training: {', '.join(modalities)}")
    for name, value in kept.items():
        if value.ndim == 0:
            raise InputError(f"{path.name}: {name!r} is a single value; the first dimension must be the samples")
    samples = Samples.of(
        fill_vectors(kept, fills, flagged or {}),
        None if y is None else _known_targets(path, y),
        kinds={name: modalities[name].kind for name in kept},
        lengths={name: length for name, length in lengths.items() if name in kept},
    )
    for name, given in samples.modalities.items():
        trained = modalities[name]
        fixed = 1 if trained.timed else 0  # the number of time steps may differ
        if given.shape[fixed:] != trained.shape[fixed:]:
            raise InputError(f"{path.name}: training read {trained.describe()}, got {given.describe()}")
    return samples


def _known_targets(path: Path, y: np.ndarray) -> np.ndarray | None:
    """The targets, or None if all of them are NaN, since they are not known yet."""
    if y.dtype.kind != "f" or y.ndim == 0:
        return y
    empty = np.isnan(y).reshape(len(y), -1).any(axis=1)
    if empty.any() and np.isnan(y).all():
        return None
    if empty.any():
        raise InputError(
            f"{path.name}: targets are NaN in {name_rows(np.flatnonzero(empty))}: complete them, or leave them out"
        )
    return y


def fill_vectors(
    values: Mapping[str, np.ndarray], fills: Mapping[str, np.ndarray], flagged: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """The same arrays, with NaN replaced in those vectors `[n, feature]` that have `fills` `[feature]`.

    A vector with `flagged` columns gets a feature for each, 1 where it was NaN; a row of NaN stays one.
    """
    filled = dict(values)
    for name, known in fills.items():
        value = values.get(name)
        if value is None or value.dtype.kind not in "biuf" or value.shape[1:] != known.shape:
            continue
        if value.dtype.kind == "f":
            filled[name] = fill_gaps(value, known, name, [f"column {number}" for number in range(len(known))])
        if name in flagged:
            flags = find_gaps(value)[:, flagged[name]].astype(np.result_type(value.dtype, np.float32))
            if value.dtype.kind == "f":
                flags[np.isnan(value).all(axis=1)] = np.nan
            filled[name] = np.concatenate([filled[name], flags], axis=1)
    return filled


def find_gaps(values: np.ndarray) -> np.ndarray:
    """Which single values are NaN `[n, feature]`; none of a row that is all NaN, since it lacks the modality.

    >>> find_gaps(np.array([[1, np.nan], [np.nan, np.nan]])).tolist()
    [[False, True], [False, False]]
    """
    if values.dtype.kind != "f":
        return np.zeros(values.shape, dtype=bool)
    empty = np.isnan(values)
    empty[empty.all(axis=1)] = False
    return empty


def take_lengths(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Take every `<modality>_lengths` out of the arrays, by modality."""
    return {
        name.removesuffix(LENGTHS): np.array(arrays.pop(name))
        for name in list(arrays)
        if name.endswith(LENGTHS) and name.removesuffix(LENGTHS) in arrays
    }


def read_arrays(path: Path, only: Collection[str] | None = None) -> dict[str, np.ndarray]:
    """The arrays of an `.npz` or a folder of `.npy` by name; if `only` is given, those of them that are there."""
    return read_folder(path, only) if path.is_dir() else read_npz(path, only)


def read_npz(path: Path, only: Collection[str] | None = None, required: Collection[str] = ()) -> dict[str, np.ndarray]:
    """The arrays of an `.npz` by name, or those of `only` that are there; Python objects are refused."""
    with reading_as(path, _NUMPY_FILE):
        with path.open("rb") as file:
            if file.read(6) == np.lib.format.MAGIC_PREFIX:
                raise InputError(f"{path.name} holds one array without a name: save several by name with numpy.savez")
        with ZipFile(path) as archive:
            members = {
                member.filename.removesuffix(_NPY): member
                for member in zip_members(archive, path.name, path.stat().st_size)
            }
            if len(members) < len(archive.namelist()):
                raise InputError(f"{path.name} holds folders, or two arrays of the same name: save it with numpy.savez")
            if missing := [name for name in required if name not in members]:
                raise InputError(f"{path.name} lacks {', '.join(missing)}; it holds {', '.join(sorted(members))}")
            arrays = {}
            for name, member in members.items():
                if only is None or name in only:
                    with archive.open(member) as file:
                        check_array_header(file, f"{path.name}: {name!r}", member.file_size)
                    with archive.open(member) as file:
                        arrays[name] = np.lib.format.read_array(file, allow_pickle=False)
                    check_characters(arrays[name])
            return arrays


def read_npz_parts(path: Path, names: Sequence[str], parts: Sequence[str]) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The arrays `NAME_PART` of an `.npz` joined over the parts, by name, and the part of each row `[n]`."""
    arrays = read_npz(path, required=[f"{name}_{part}" for name in names for part in parts])
    joined = {name: np.concatenate([arrays[f"{name}_{part}"] for part in parts]) for name in names}
    return joined, np.repeat(parts, [len(arrays[f"{names[0]}_{part}"]) for part in parts])


def read_folder(path: Path, only: Collection[str] | None = None) -> dict[str, np.ndarray]:
    """Every `.npy` of a folder by name, memory-mapped; Python objects are refused."""
    found = sorted(path.glob("*.npy"))
    if not found:
        raise no_arrays(path)
    return {file.stem: map_array(file) for file in found if only is None or file.stem in only}


def no_arrays(path: Path) -> InputError:
    """The error for a folder without arrays, with what to give in its place."""
    tables = sorted(file.name for file in path.iterdir() if file.name.lower().endswith(TABLES))
    if tables:
        given = " or ".join(str(path / name) for name in tables[:3])
        return InputError(f"{str(path)!r} is a folder, and no table: give {given}")
    return InputError(
        f"{str(path)!r} is a folder without tables and without .npy files. Give the path of a table "
        f"({', '.join(TABLES)}); pictures and recordings are named by a column of paths in it. A folder is read if it "
        "has one .npy of each modality, and y.npy"
    )


def map_array(path: Path) -> np.ndarray:
    """The array of an `.npy`, mapped from disk; Python objects are refused."""
    with reading_as(path, _NUMPY_FILE):
        with path.open("rb") as file:
            check_array_header(file, path.name, path.stat().st_size)
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        check_characters(array)
        return array


def check_array_header(file: IO[bytes], name: str, size: int) -> None:
    """Refuse an array in numpy's format that holds Python objects, or whose header and size do not agree.

    Memory for an array is taken as its header says, so the header must be checked first.

    Args:
        file: Open at its start; only the header is read.
        name: What errors call it.
        size: Its bytes, the header included.
    """
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    if version not in ((1, 0), (2, 0)):
        raise InputError(f"{name} has version {version[0]}.{version[1]} of numpy's format: 1.0 and 2.0 are read")
    shape, _, kind = read(file)
    if kind.hasobject:
        raise InputError(
            f"{name} holds Python objects, which could run code when read: save numbers or strings of one type and "
            "shape (sequences of different lengths: zero-padded, with <modality>_lengths)"
        )
    claimed = kind.itemsize
    for length in shape:
        claimed *= length  # as Python's integers, which do not overflow
    there = size - file.tell()
    if claimed != there or min(shape, default=0) < 0 or (not kind.itemsize and 0 not in shape):
        raise InputError(
            f"{name} is truncated or not a numpy file: its header says {kind} of shape {list(shape)}, {claimed} "
            f"bytes; there are {there}"
        )


def check_characters(array: np.ndarray) -> None:
    """Refuse strings with numbers that are no characters; Python fails wherever it meets one later."""
    if array.dtype.kind != "U" or not array.size:
        return
    codes = np.frombuffer(
        np.ascontiguousarray(array).data.cast("B"), dtype=array.dtype.byteorder.replace("|", "=") + "u4"
    )
    if codes.max() > _LAST_CHARACTER:
        raise ValueError(f"it holds strings with the character {codes.max()}")


def array_batches(array: np.ndarray, rows: int) -> Iterator[np.ndarray]:
    """An array, `rows` rows at a time; of one that is mapped from disk, only these are read."""
    for start in range(0, len(array), rows):
        yield np.asarray(array[start : start + rows])
