"""A modality of a table whose cells are paths of files: decoded values, what is missing, and the same for new rows."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from consilience.core.errors import InputError, TableWarning, unknown_name
from consilience.core.modalities import Kind
from consilience.core.samples import MappedRows, Values
from consilience.data.media.array_files import ArrayDecoder
from consilience.data.media.columns import ENDINGS, FilePaths, TableKind, ending_of, find_paths, is_file, path_cells
from consilience.data.media.decoding import IN_MEMORY_BYTES, Decoder, FilesOnDemand, decode_files
from consilience.data.media.pictures import PictureDecoder
from consilience.data.media.settings import Family, PictureSettings, read_settings
from consilience.data.media.sound import SoundDecoder

if TYPE_CHECKING:
    import polars

Broken = Literal["error", "missing"]
_DECODERS: Mapping[Family, Any] = {"picture": PictureDecoder, "sound": SoundDecoder, "array": ArrayDecoder}
_SHOWN = 3  # failures that a message lists
_LOOKED_AT = 50  # pictures whose headers decide what is "auto"


@dataclass(frozen=True, eq=False)
class FileColumn:
    """How the files of a column become a modality, as it is stored with a model.

    Attributes:
        name: Of the modality.
        column: The column of paths.
        decoder: Makes a sample of the content of a file.
        broken: What becomes of files that are missing or cannot be read.
    """

    name: str
    column: str
    decoder: Decoder
    broken: Broken = "error"
    fills: None = None

    @property
    def columns(self) -> list[str]:
        """Every column it reads."""
        return [self.column]

    @property
    def string_columns(self) -> list[str]:
        """The same, since paths are strings."""
        return [self.column]

    @property
    def numbers(self) -> list[str]:
        """None of them holds numbers."""
        return []

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        decoder = self.decoder
        return {"column": self.column, "media": decoder.family, "settings": decoder.to_json(), "broken": self.broken}

    @classmethod
    def from_json(cls, described: Mapping[str, Any]) -> FileColumn:
        """Rebuild what `to_json` wrote, with the name, kind and shape of the modality beside it."""
        name, family, broken = described["name"], described["media"], described["broken"]
        settings = read_settings(family, described["settings"], name)
        if broken not in ("error", "missing"):
            raise ValueError(f"broken is {broken!r}")
        decoder = _DECODERS[family].restore(name, described["kind"], settings, tuple(described["shape"]))
        return cls(name, str(described["column"]), decoder, broken)


@dataclass(frozen=True, eq=False)
class FileValues:
    """The decoded files of a column.

    Attributes:
        learned: How they were decoded.
        values: `[n, *shape]`.
        lengths: `[n]` for sequences and tokens, otherwise None.
        present: Which rows have a file that could be read `[n]`.
        about: Column, endings, empty cells and unreadable files, for descriptions.
    """

    learned: FileColumn
    values: Values
    lengths: np.ndarray | None
    present: np.ndarray
    about: Mapping[str, Any] = field(default_factory=dict)


def read_files(
    chosen: Mapping[str, Sequence[str]],
    kinds: Mapping[str, TableKind],
    frame: polars.DataFrame,
    folder: Path,
    settings: Mapping[str, Mapping[str, Any]],
    broken: Broken,
) -> dict[str, FileValues]:
    """Read every modality of a new table that is a column of paths.

    Args:
        chosen: Modality → columns.
        kinds: Modality → kind, as far as it is declared.
        frame: The cells.
        folder: What relative paths start from.
        settings: Modality → settings of its decoder.
        broken: What becomes of files that are missing or cannot be read.
    """
    found = find_paths(chosen, kinds, frame, folder)
    for name in settings:
        if name not in chosen:
            raise unknown_name("modality", name, chosen, "It was given in media")
        if name not in found:
            raise InputError(
                f"media of modality {name!r}: its cells are no paths of files, so there is nothing to decode; the "
                f"modalities with files are: {', '.join(found) or 'none'}"
            )
    read = {}
    for name, paths in found.items():
        known = read_settings(paths.family, settings.get(name, {}), name)
        files = list(dict.fromkeys(os.path.join(folder, cell) for cell in paths.cells if cell is not None))
        # The layout of arrays and the length of recordings depend on all files, the colour of pictures on a few.
        looked = _spread(files) if paths.family == "picture" else files
        looked = [file for file in looked if is_file(file)]  # a pipe would wait for ever
        decoder = _DECODERS[paths.family].learn(name, paths.kind, known, looked)
        guessed = isinstance(known, PictureSettings) and known.colour == "auto"
        read[name] = _read(FileColumn(name, paths.column, decoder, broken), paths, folder, guessed)
    return read


def _spread(files: Sequence[str]) -> list[str]:
    """Files of the whole column, since those of a kind may stand together."""
    return [files[row] for row in np.linspace(0, len(files) - 1, min(len(files), _LOOKED_AT)).astype(int)]


def read_known_files(learned: Mapping[str, FileColumn], frame: polars.DataFrame, folder: Path) -> dict[str, FileValues]:
    """Read the files of new rows as those of training."""
    read = {}
    for name, column in learned.items():
        decoder = column.decoder
        paths = FilePaths(column.column, decoder.family, decoder.kind, path_cells(frame[column.column]))
        read[name] = _read(column, paths, folder)
    return read


def join_files(
    order: Sequence[str], values: Mapping[str, Any], kinds: Mapping[str, Kind], files: Mapping[str, FileValues]
) -> dict[str, Any]:
    """The arguments of `Samples.of` for modalities of cells and of files together, in some order."""
    return {
        "X": {name: files[name].values if name in files else values[name] for name in order},
        "kinds": {**kinds, **{name: read.learned.decoder.kind for name, read in files.items()}},
        "lengths": {name: read.lengths for name, read in files.items() if read.lengths is not None},
        "present": {name: read.present for name, read in files.items()} or None,
    }


def _read(column: FileColumn, paths: FilePaths, folder: Path, guessed: bool = False) -> FileValues:
    """Decode the files; `guessed` says that the colour of pictures was guessed, and so may be wrong."""
    decoder, cells = column.decoder, paths.cells
    failures: dict[int, str] = {}
    place: dict[str, int] = {}
    index = np.zeros(len(cells), dtype=np.int64)
    endings = ENDINGS[decoder.family]
    for row, cell in enumerate(cells):
        if cell is None:
            continue
        if ending_of(cell) not in endings:
            failures[row] = f"its ending is none of {', '.join(endings)}"
            continue
        index[row] = place.setdefault(os.path.join(folder, cell), len(place))
    empty = np.array([cell is None for cell in cells], dtype=bool)
    named = ~empty
    named[list(failures)] = False
    decoded = decode_files(list(place), decoder)
    for row in np.flatnonzero(named).tolist():
        if int(index[row]) in decoded.failures:
            failures[row] = decoded.failures[int(index[row])]
    present = named.copy()
    present[list(failures)] = False
    if failures:
        _tell(column, cells, failures, folder)
    if guessed:
        _tell_colours(column, cells, np.flatnonzero(present)[decoded.lengths[index[present]] > 0])
    if isinstance(decoded.values, MappedRows) and isinstance(decoded.values.base, FilesOnDemand):
        gigabytes = len(place) * int(np.prod(decoder.shape)) * decoder.dtype.itemsize / 1e9
        warnings.warn(
            f"modality {column.name!r}: {len(place)} files take {gigabytes:.1f} GB when they are decoded, too much to "
            "keep in memory, so every batch decodes its own again. With the environment variable CONSILIENCE_CACHE, "
            "the name of a folder, each is decoded once and read from there; smaller samples take less "
            f"({_smaller(column)})",
            TableWarning,
            stacklevel=2,
        )
    about = {"column": column.column, "endings": paths.endings, "empty": int(empty.sum()), "broken": len(failures)}
    lengths = None
    if decoder.kind in ("sequence", "tokens"):
        lengths = np.zeros(len(cells), dtype=np.int64)
        lengths[present] = decoded.lengths[index[present]]
    return FileValues(column, _by_row(decoded.values, index, present, decoder), lengths, present, about)


def _smaller(column: FileColumn) -> str:
    """The setting that makes the samples of a column smaller, as an option."""
    setting = {"picture": "size", "sound": "seconds", "array": "steps"}[column.decoder.family]
    return f"--media {column.name}.{setting}=…"


def _by_row(values: Values, index: np.ndarray, present: np.ndarray, decoder: Decoder) -> Values:
    """The values of the files of each row; zeros where there are none, unless values are read when they are needed."""
    if isinstance(values, MappedRows):
        return MappedRows(values.base, values.rows[index])
    if present.all() and len(values) == len(index) and (index == np.arange(len(index))).all():
        return values
    if len(index) * values[:1].nbytes > IN_MEMORY_BYTES:  # few files stand in many rows
        return MappedRows(values, index)
    placed = np.zeros((len(index), *decoder.shape), dtype=decoder.dtype)
    placed[present] = values[index[present]]
    return placed


def _tell_colours(column: FileColumn, cells: Sequence[str | None], rows: np.ndarray) -> None:
    if len(rows):
        name = column.name
        warnings.warn(
            f"modality {name!r}: {len(rows)} of {len(cells)} files of column {column.column!r} are pictures with "
            f"colours, such as row {rows[0]}, {cells[rows[0]]!r}, and are read as grey, since the {_LOOKED_AT} files "
            f"that were looked at first are. Keep the colours with media={{{name!r}: {{'colour': 'rgb'}}}} (--media "
            f"{name}.colour=rgb), or say that grey is meant with 'grey' in place of 'rgb'",
            stacklevel=2,
        )


def _tell(column: FileColumn, cells: Sequence[str | None], failures: Mapping[int, str], folder: Path) -> None:
    """Name the first files that cannot be read, as an error or as a warning."""
    rows = sorted(failures)
    shown = "; ".join(f"row {row}, {cells[row]!r}: {failures[row]}" for row in rows[:_SHOWN])
    more = f"; and {len(rows) - _SHOWN} more" if len(rows) > _SHOWN else ""
    what = (
        f"modality {column.name!r}: {len(rows)} of {len(cells)} files of column {column.column!r} cannot be read "
        f"(rows counted from 0; relative paths start from {str(folder)!r}): {shown}{more}"
    )
    if column.broken == "missing":
        warnings.warn(f"{what}. The modality is missing in these rows", stacklevel=2)
        return
    raise InputError(
        f"{what}. Correct them, empty these cells, or treat such files as missing with broken='missing' (--broken "
        "missing)"
    )
