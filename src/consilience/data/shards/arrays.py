"""Shards of arrays: `NAME-NUMBER.npy`, one file of each modality and of the targets for each number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

import numpy as np

from consilience.core.chunked_rows import Chunks, Column
from consilience.core.errors import InputError, listed, unknown_name
from consilience.core.samples import Samples
from consilience.core.targets import guess_task
from consilience.data.dataset import DataSet
from consilience.data.files.arrays import LENGTHS, check_array_header
from consilience.data.files.file_options import FileOptions
from consilience.data.files.split_columns import read_rule
from consilience.data.shards.chunk_sizes import cut_shards, settle_buffer
from consilience.data.shards.locations import NUMBERED, opened, size_of
from consilience.data.splits import settle_split


class _File(NamedTuple):
    """One array on disk: where its first row begins, its shape and type."""

    place: str
    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype

    def read(self, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Some rows, in memory."""
        shape = (len(range(*slice(start, stop).indices(self.shape[0]))), *self.shape[1:])
        size = self.dtype.itemsize * int(np.prod(shape))
        with opened(self.place) as file:
            file.seek(self.offset + start * self.dtype.itemsize * int(np.prod(self.shape[1:])))
            text = file.read(size)
        if len(text) != size:
            raise InputError(f"{PurePosixPath(self.place).name} is truncated: it was changed while it was read")
        return np.ndarray(shape, self.dtype, bytearray(text))


class ArrayShards:
    """A `ChunkSource` of `.npy` files."""

    def __init__(self, files: Mapping[str, Sequence[_File]], rows: Sequence[int], most: int):
        """`most`: rows of a chunk."""
        self.files = {name: list(own) for name, own in files.items()}
        self.columns = {name: Column(own[0].shape[1:], own[0].dtype) for name, own in files.items()}
        self.pieces, self.starts = cut_shards(rows, most)

    def read(self, chunk: int, names: Sequence[str]) -> dict[str, np.ndarray]:
        """Read some rows of one shard."""
        piece = self.pieces[chunk]
        return {name: self.files[name][piece.shard].read(piece.start, piece.stop) for name in names}


def load_array_shards(
    found: Sequence[str], name: str, modalities: Sequence[str] | None, options: FileOptions, buffer: int | None
) -> DataSet:
    """A data set of numbered `.npy` files; the options are those of `load_data`.

    Targets, lengths, split, groups and times are read into memory, modalities stay where they are.
    """
    files = _by_name(found, name)
    target, split = options.target or "y", options.split
    for what, column in (("target", target), ("split", split), ("group", options.group), ("time", options.time)):
        if column is not None and column not in files:
            raise unknown_name(what, column, files, f"It was looked for in {name}")
    if options.fill not in (None, "none"):
        raise InputError("fill does not apply to shards of .npy files: fill them beforehand, or write Parquet")
    y = _whole(files[target])
    order = options.group or options.time
    ordering = {} if order is None else {order: _whole(files[order])}
    parts = _whole(files[split or "split"]) if (split or "split") in files else None
    kept = {key: own for key, own in files.items() if key not in {target, split or "split", "y", "split", *ordering}}
    lengths = {
        key.removesuffix(LENGTHS): _whole(kept.pop(key))
        for key in list(kept)
        if key.endswith(LENGTHS) and key.removesuffix(LENGTHS) in kept
    }
    for each in modalities or ():
        if each not in kept:
            raise unknown_name("modality", each, kept, f"It was looked for in {name}")
    kept = {each: kept[each] for each in modalities or sorted(kept)}
    if not kept:
        raise InputError(f"{name} holds no modality: besides {target!r} there must be at least one array")
    rows = [file.shape[0] for file in files[target]]
    columns = {each: Column(own[0].shape[1:], own[0].dtype) for each, own in kept.items()}
    most, buffer = settle_buffer(columns, buffer)
    chunks = Chunks(ArrayShards(kept, rows, most), buffer)
    task = options.task or guess_task(y, f"array {target!r}")
    rule = read_rule(ordering, options)
    drawn = settle_split(parts, y, task, seed=options.seed, where=f"the split of {name}", rule=rule)
    own_lengths = {each: length for each, length in lengths.items() if each in kept}
    samples = Samples.of(chunks.samples(), y, kinds=options.kinds, lengths=own_lengths)
    reading = {"format": "arrays", "target": {"name": target}, "modalities": {}}
    return DataSet(name, samples, task, *drawn, reading=reading, rule=rule)


def _by_name(found: Sequence[str], name: str) -> dict[str, list[_File]]:
    """Array → its shards; every array has the same numbers, rows, shape and type in all of them."""
    numbered: dict[str, dict[int, _File]] = {}
    for place in found:
        matched = NUMBERED.fullmatch(PurePosixPath(place.replace("\\", "/")).name)
        if matched is None:
            raise InputError(
                f"{name}: {PurePosixPath(place).name!r} has no number; shards of arrays are called NAME-NUMBER.npy, "
                "such as image-0.npy, y-0.npy, image-1.npy, y-1.npy"
            )
        own, number = numbered.setdefault(matched["name"], {}), int(matched["number"])
        if number in own:
            raise InputError(
                f"{name}: {own[number].place} and {place} are both shard {number} of array {matched['name']!r}: give "
                "every shard a number of its own, or load one folder"
            )
        own[number] = _read_header(place)
    numbers = {number for own in numbered.values() for number in own}
    for each, own in numbered.items():
        if lacking := sorted(numbers - own.keys()):
            raise InputError(f"{name}: array {each!r} lacks shards {listed([str(number) for number in lacking])}")
        kinds = {(file.shape[1:], file.dtype) for file in own.values()}
        if len(kinds) > 1:
            shown = ", ".join(f"{dtype} of shape {list(shape)}" for shape, dtype in sorted(kinds, key=str))
            raise InputError(f"{name}: the shards of array {each!r} hold rows of different types: {shown}")
    for number in sorted(numbers):
        counts = {each: own[number].shape[0] for each, own in numbered.items()}
        if len(set(counts.values())) > 1:
            raise InputError(
                f"{name}: in shard {number} every array must have one row per sample, but "
                + ", ".join(f"{each} has {count}" for each, count in counts.items())
            )
    return {each: [own[number] for number in sorted(own)] for each, own in numbered.items()}


def _read_header(place: str) -> _File:
    name = PurePosixPath(place).name
    with opened(place) as file:
        check_array_header(file, name, size_of(place))
        file.seek(0)
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(file)
        if not shape:
            raise InputError(f"{name} is a single value; the first dimension must be the samples")
        if fortran and len(shape) > 1:
            raise InputError(f"{name} is stored column by column: save it with numpy.ascontiguousarray")
        return _File(place, file.tell(), tuple(shape), dtype)


def _whole(files: Sequence[_File]) -> np.ndarray:
    return np.concatenate([file.read() for file in files])
