"""Many files through a decoder: in threads, from the cache where possible, with the reason for each that fails."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from consilience.core.errors import InputError
from consilience.core.modalities import SCAN_BYTES, Kind, RowSource
from consilience.core.row_cache import Place, RowCache, cache_folder
from consilience.core.samples import MappedRows, Values
from consilience.data.files.damaged_files import reason_of
from consilience.data.media.content_keys import ContentKeys, digest_of
from consilience.data.media.extras import MissingPackageError
from consilience.data.media.settings import Family

# Decoded files that take more bytes than this stay on disk.
IN_MEMORY_BYTES = 2**30
_MOST_FILE_BYTES = 2**30
_VERSION = 3  # of what decoders return; another one has other keys in the cache
_THREADS = 8
_AT_ONCE = 16  # files of one piece of work of a thread
_Result = TypeVar("_Result")


class Decoder(Protocol):
    """Content of a file → one sample."""

    @property
    def family(self) -> Family:
        """Which files it reads."""

    @property
    def kind(self) -> Kind:
        """Of the modality."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of a sample."""

    @property
    def dtype(self) -> np.dtype:
        """Of the values."""

    def to_json(self) -> dict[str, Any]:
        """Its settings."""

    def __call__(self, content: bytes, name: str, /) -> tuple[np.ndarray, int]:
        """The sample, and its length if it is a sequence or tokens; for a picture, 1 if its colours are lost."""


@dataclass(frozen=True, eq=False)
class Decoded:
    """Decoded files.

    Attributes:
        values: `[file, *shape]`; what is stored for a file that failed is never read.
        lengths: `[file]`; for pictures, 1 where the colours of the file are lost.
        failures: Number of a file → why it cannot be read.
    """

    values: Values
    lengths: np.ndarray
    failures: dict[int, str]


def decode_files(paths: Sequence[str], decoder: Decoder) -> Decoded:
    """Decode files into memory or, if they take more than a gigabyte, into what is read when it is needed.

    With the environment variable CONSILIENCE_CACHE, decoded files are kept in that folder under a digest of their
    content and of the decoder, and a large modality is mapped from there. Without it, the files of a large modality are
    decoded whenever a batch needs them.
    """
    row_bytes = max(1, int(np.prod(decoder.shape)) * decoder.dtype.itemsize)
    large = row_bytes * len(paths) > IN_MEMORY_BYTES
    folder = cache_folder()
    if folder is not None:
        return _decode_into_cache(paths, decoder, _open_cache(folder, decoder), large, row_bytes)
    lengths, failures = np.zeros(len(paths), dtype=np.int64), dict[int, str]()
    values = np.empty((0 if large else len(paths), *decoder.shape), dtype=decoder.dtype)
    for rows in _pieces(len(paths), row_bytes):
        for row, found in zip(rows, _run(partial(_decode, decoder=decoder), [paths[row] for row in rows])):
            if isinstance(found, str):
                failures[row] = found
            else:
                sample, lengths[row] = found
                if not large:
                    values[row] = sample
    if not large:
        values[list(failures)] = 0
        return Decoded(values, lengths, failures)
    return Decoded(MappedRows(FilesOnDemand(paths, decoder, failures), np.arange(len(paths))), lengths, failures)


class FilesOnDemand:
    """Files that are decoded when their rows are indexed: `[file, *shape]`; zeros for those that failed at first.

    Raises:
        InputError: Another file cannot be read any more, such as after a drive is gone.
    """

    def __init__(self, paths: Sequence[str], decoder: Decoder, failed: Collection[int] = ()):
        self.paths, self.decoder, self.failed = tuple(paths), decoder, frozenset(failed)
        self.shape, self.dtype = (len(self.paths), *decoder.shape), decoder.dtype
        self.ndim = len(self.shape)

    def __getitem__(self, key: Any) -> np.ndarray:
        rows = np.arange(len(self.paths))[key]
        values = np.zeros((rows.size, *self.shape[1:]), dtype=self.dtype)
        wanted = {place: self.paths[row] for place, row in enumerate(rows.flat) if row not in self.failed}
        found_at = _run(partial(_decode, decoder=self.decoder), list(wanted.values()))
        for (place, path), found in zip(wanted.items(), found_at):
            if isinstance(found, str):
                raise InputError(
                    f"{path} could be read when the data were loaded, and cannot be read now: {found}. Make it "
                    "readable and start again; with the environment variable CONSILIENCE_CACHE, decoded files are kept "
                    "in the folder that it names"
                )
            values[place] = found[0]
        return values.reshape(*rows.shape, *self.shape[1:])


class CachedRows:
    """Rows of several mapped arrays: `[row, *shape]`."""

    def __init__(self, pieces: Sequence[np.ndarray], piece: np.ndarray, row: np.ndarray):
        self.pieces, self.piece, self.row = tuple(pieces), piece, row
        self.shape, self.dtype = (len(row), *pieces[0].shape[1:]), pieces[0].dtype
        self.ndim = len(self.shape)

    def __getitem__(self, key: Any) -> np.ndarray:
        piece, row = self.piece[key], self.row[key]
        values = np.empty((piece.size, *self.shape[1:]), dtype=self.dtype)
        for number in np.unique(piece):
            chosen = piece.ravel() == number
            values[chosen] = self.pieces[number][row.ravel()[chosen]]
        return values.reshape(*piece.shape, *self.shape[1:])


def _decode_into_cache(paths: Sequence[str], decoder: Decoder, cache: RowCache, large: bool, row_bytes: int) -> Decoded:
    failures: dict[int, str] = {}
    contents = ContentKeys(cache.folder.parent)
    places: list[Place | None] = [None] * len(paths)
    for rows in _pieces(len(paths), row_bytes):
        keys = dict[int, bytes]()
        digests = contents.find([paths[row] for row in rows], partial(_run, _digest))
        for row, digest in zip(rows, digests):
            if isinstance(digest, str):
                failures[row] = digest
            else:
                keys[row] = digest
        for row, place in zip(keys, cache.find(list(keys.values()))):
            places[row] = place
        new = {keys[row]: row for row in keys if places[row] is None}  # files of the same content once
        kept: dict[bytes, tuple[np.ndarray, int]] = {}
        reasons: dict[bytes, str] = {}
        work = partial(_decode_with_digest, decoder=decoder)
        for key, found in zip(new, _run(work, [paths[row] for row in new.values()])):
            if isinstance(found, str):
                reasons[key] = found
            elif found[0] == key:  # it did not change in between
                kept[key] = found[1:]
        if kept:
            samples, lengths = zip(*kept.values())
            cache.keep(list(kept), {"values": np.stack(samples), "lengths": np.array(lengths)})
            for row, place in zip(keys, cache.find(list(keys.values()))):
                places[row] = place
        lost = [row for row in keys if places[row] is None]
        failures |= {row: reasons.get(keys[row], "it changed while it was read") for row in lost}
    return _collect(places, failures, decoder, cache, large)


def _collect(
    places: Sequence[Place | None], failures: dict[int, str], decoder: Decoder, cache: RowCache, large: bool
) -> Decoded:
    """Values and lengths of rows in the cache; a row that failed stands at the place of another."""
    names = list(dict.fromkeys(place.piece for place in places if place is not None))
    lengths = np.zeros(len(places), dtype=np.int64)
    if not names:
        return Decoded(np.zeros((len(places), *decoder.shape), dtype=decoder.dtype), lengths, failures)
    number = {name: position for position, name in enumerate(names)}
    piece = np.array([0 if place is None else number[place.piece] for place in places])
    row = np.array([0 if place is None else place.row for place in places])
    pieces = [cache.open(name, "values") for name in names]
    lengths = CachedRows([cache.open(name, "lengths") for name in names], piece, row)[:]
    lengths[list(failures)] = 0
    if large:
        source: RowSource = pieces[0] if len(pieces) == 1 else CachedRows(pieces, piece, row)
        return Decoded(MappedRows(source, row if len(pieces) == 1 else np.arange(len(row))), lengths, failures)
    values = CachedRows(pieces, piece, row)[:]
    values[list(failures)] = 0
    return Decoded(values, lengths, failures)


def _open_cache(folder: Path, decoder: Decoder) -> RowCache:
    identity = [_VERSION, decoder.family, decoder.kind, decoder.shape, decoder.to_json()]
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:24]
    columns = {"values": (decoder.shape, decoder.dtype), "lengths": ((), np.dtype(np.int64))}
    return RowCache(folder / "media" / digest, columns, "decoded files")


def _pieces(n: int, row_bytes: int) -> Iterator[range]:
    """So many files at a time that their values take some 64 MiB."""
    at_once = max(1, min(4096, SCAN_BYTES // row_bytes))
    for start in range(0, n, at_once):
        yield range(start, min(n, start + at_once))


def _run(work: Callable[[str], _Result], paths: Sequence[str]) -> list[_Result]:
    """The results of work on files, in threads; after Ctrl-C no further work starts."""
    groups = [paths[start : start + _AT_ONCE] for start in range(0, len(paths), _AT_ONCE)]
    with _quiet(), ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1)) as pool:
        futures = [pool.submit(lambda group: [work(path) for path in group], group) for group in groups]
        try:
            return [result for future in futures for result in future.result()]
        finally:
            for future in futures:
                future.cancel()


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the warnings of decoders on single files."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _decode(path: str, decoder: Decoder) -> tuple[np.ndarray, int] | str:
    """A sample and its length, or why there is none."""
    found = _decode_with_digest(path, decoder, digest=False)
    return found if isinstance(found, str) else found[1:]


def _decode_with_digest(path: str, decoder: Decoder, digest: bool = True) -> tuple[bytes, np.ndarray, int] | str:
    try:
        content = read_file(path)
        with np.errstate(all="ignore"):  # numbers that overflow are refused afterwards
            sample, length = decoder(content, os.path.basename(path))
        return (digest_of(content, path) if digest else b""), sample, length
    except MissingPackageError:
        raise
    except Exception as error:  # damaged bytes fail wherever they lead a parser
        return _reason(error)


def _digest(path: str) -> bytes | str:
    try:
        return digest_of(read_file(path), path)
    except Exception as error:  # a name may be one that no file can have
        return _reason(error)


def read_file(path: str) -> bytes:
    """The content of an ordinary file; a pipe or a device is refused, and so is a file above a gigabyte."""
    about = os.stat(path)
    if not stat.S_ISREG(about.st_mode):
        raise InputError("it is no file")
    if about.st_size > _MOST_FILE_BYTES:
        raise InputError(f"it has {about.st_size} bytes, more than {_MOST_FILE_BYTES}")
    with open(path, "rb") as file:
        return file.read()


def _reason(error: Exception) -> str:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return "there is no such file"
    if type(error).__name__ == "UnidentifiedImageError":  # its message is the address of an object
        return "it is no picture that can be read"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return reason_of(error).rstrip(".")
