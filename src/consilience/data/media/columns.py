"""Which columns of a table hold paths of files, and which sentences: as declared, otherwise guessed from the cells."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from consilience.core.errors import InputError, UnsupportedError, listed, unknown_name
from consilience.core.modalities import Kind
from consilience.data.files.column_reading import ColumnKind, is_string
from consilience.data.files.table_reading import EMPTY_WORDS
from consilience.data.media.array_files import ARRAY_ENDINGS
from consilience.data.media.pictures import PICTURE_ENDINGS
from consilience.data.media.settings import Family
from consilience.data.media.sound import SOUND_ENDINGS

if TYPE_CHECKING:
    import polars

TableKind = Literal["vector", "image", "sequence", "tokens", "text", "sound", "array"]
TABLE_KINDS: tuple[TableKind | ColumnKind, ...] = (*get_args(TableKind), *get_args(ColumnKind))
# Of these kinds, the only column of a modality holds paths.
FILE_KINDS = ("image", "sequence", "tokens", "sound", "array")
FAMILIES: dict[str, Family] = {
    **dict.fromkeys(PICTURE_ENDINGS, "picture"),
    **dict.fromkeys(SOUND_ENDINGS, "sound"),
    **dict.fromkeys(ARRAY_ENDINGS, "array"),
}
ENDINGS: dict[Family, tuple[str, ...]] = {
    "picture": (*PICTURE_ENDINGS, *ARRAY_ENDINGS),
    "sound": SOUND_ENDINGS,
    "array": ARRAY_ENDINGS,
}
# A column holds paths if so many of its cells have the ending of a file that is read …
_PATHS_SHARE = 0.8
# … and one of so many first cells is a file.
_LOOKED_AT = 50
# A column holds sentences if it has more different values than this, in over half of its rows, …
_FEW_TEXTS = 20
# … and so many words in a cell on average.
_WORDS = 3


@dataclass(frozen=True)
class FilePaths:
    """A column of paths.

    Attributes:
        column: Its name.
        family: Which files they are.
        kind: What was declared, or None if it follows from the files.
        cells: The paths as they are written, None where a cell is empty.
    """

    column: str
    family: Family
    kind: Kind | None
    cells: Sequence[str | None]

    @property
    def endings(self) -> dict[str, int]:
        """Ending → how many cells have it."""
        return dict(Counter(ending_of(cell) for cell in self.cells if cell is not None).most_common())


def take_kinds(header: Sequence[str], modalities: Any, kinds: Mapping[str, Any] | None) -> tuple[Any, dict[str, Any]]:
    """Take the kinds out of "COLUMN:KIND"; a column whose whole name is that is meant first.

    Args:
        header: The columns of the table.
        modalities: Modality → a name or glob, or several, which may end in a colon and a kind.
        kinds: Modality → kind.

    Returns:
        Modality → names and globs without kinds, and modality → kind.

    Example:
        >>> take_kinds(["photo", "a:image"], {"x": "photo:image", "y": "a:image", "z": "a:image:text"}, {})
        ({'x': 'photo', 'y': 'a:image', 'z': 'a:image'}, {'x': 'image', 'z': 'text'})
    """
    found: dict[str, Any] = dict(kinds or {})
    if not isinstance(modalities, Mapping):
        return modalities, found
    without: dict[str, Any] = {}
    for name, given in modalities.items():
        patterns = [given] if isinstance(given, str) else given
        if isinstance(patterns, Mapping) or not all(isinstance(pattern, str) for pattern in patterns):
            without[name] = given  # it is refused where columns are chosen
            continue
        plain = []
        for pattern in patterns:
            column, kind = _split_kind(name, pattern, header)
            plain.append(column)
            if kind is not None and found.setdefault(name, kind) != kind:
                raise InputError(f"modality {name!r} is given the kinds {found[name]!r} and {kind!r}: give one")
        without[name] = plain[0] if isinstance(given, str) else plain
    return without, found


def _split_kind(name: str, pattern: str, header: Sequence[str]) -> tuple[str, TableKind | ColumnKind | None]:
    column, colon, kind = pattern.rpartition(":")
    if not colon or not column or pattern in header:
        return pattern, None
    if kind in TABLE_KINDS:
        return column, kind
    if column in header:
        raise unknown_name("kind", kind, TABLE_KINDS, f"It was given for column {column!r} of modality {name!r}")
    return pattern, None


def find_paths(
    chosen: Mapping[str, Sequence[str]], kinds: Mapping[str, TableKind], frame: polars.DataFrame, folder: Path
) -> dict[str, FilePaths]:
    """The modalities that are a column of paths: those of such a kind, and those whose cells are paths of files.

    Args:
        chosen: Modality → columns.
        kinds: Modality → kind, as far as it is declared.
        frame: The cells.
        folder: What relative paths start from.

    Raises:
        InputError: A column of paths is not the only one of its modality, or holds files that do not go together.
    """
    found = {}
    for name, columns in chosen.items():
        kind = kinds.get(name)
        if kind in FILE_KINDS:
            if len(columns) != 1:
                raise UnsupportedError(
                    f"modality {name!r} of kind {kind} must be one column of paths of files, got {listed(columns)}"
                )
            found[name] = _declared(name, kind, frame[columns[0]])
            continue
        held = [column for column in columns if kind != "text" and _holds_paths(frame[column], folder)]
        if not held:
            continue
        if len(columns) > 1:
            raise InputError(
                f"modality {name!r}: column {held[0]!r} holds paths of files, which make a modality of their own: "
                f"modalities={{{held[0]!r}: {held[0]!r}}} (--modality {held[0]}={held[0]})"
            )
        cells = path_cells(frame[held[0]])
        family = _family_of(name, held[0], cells)
        if kind is None or family == "array":
            found[name] = FilePaths(held[0], family, kind, cells)  # type: ignore[arg-type]
    return found


def guess_texts(
    chosen: Mapping[str, Sequence[str]],
    kinds: Mapping[str, TableKind],
    column_kinds: Mapping[str, ColumnKind],
    frame: polars.DataFrame,
) -> list[str]:
    """The modalities without a kind whose only column holds sentences, too many different ones for categories."""
    alone = {name: columns[0] for name, columns in chosen.items() if name not in kinds and len(columns) == 1}
    return [name for name, column in alone.items() if column not in column_kinds and _is_text(frame[column])]


def _is_text(column: polars.Series) -> bool:
    import polars as pl

    if not is_string(column.dtype):
        return False
    known = column.cast(pl.String).drop_nulls()
    if known.n_unique() <= max(_FEW_TEXTS, len(known) // 2):
        return False
    words = known.str.strip_chars().str.count_matches(r"\s+") + 1
    return float(words.mean() or 0) >= _WORDS  # type: ignore[arg-type]


def ending_of(cell: str) -> str:
    """The ending of a path in small letters, with its dot."""
    dot = cell.rfind(".")
    return cell[dot:].lower() if dot > cell.rfind("/") else ""


def path_cells(column: polars.Series) -> list[str | None]:
    """The paths of a column, None where a cell is empty."""
    import polars as pl

    cells = [None if cell is None else cell.strip() for cell in column.cast(pl.String).to_list()]
    return [None if not cell or cell in EMPTY_WORDS else cell for cell in cells]


def _declared(name: str, kind: TableKind | None, column: polars.Series) -> FilePaths:
    import polars as pl

    if not is_string(column.dtype) and column.dtype != pl.Null:
        raise InputError(
            f"modality {name!r} of kind {kind}: column {column.name!r} holds {column.dtype.base_type()}, not paths of "
            "files"
        )
    cells = path_cells(column)
    family = _family_of(name, column.name, cells)
    if kind == "image" and family == "array":
        family = "picture"
    if kind in ("array", "tokens") and family != "array":
        raise InputError(f"modality {name!r} of kind {kind}: column {column.name!r} holds {family} files, not .npy")
    if kind == "sound" and family != "sound":
        raise InputError(f"modality {name!r} of kind sound: column {column.name!r} holds {family} files")
    return FilePaths(column.name, family, None if kind in ("sound", "array") else kind, cells)  # type: ignore[arg-type]


def _holds_paths(column: polars.Series, folder: Path) -> bool:
    """Whether most cells have the ending of a file that is read, and one of the first is a file."""
    if not is_string(column.dtype):
        return False
    cells = [cell for cell in path_cells(column) if cell is not None]
    named = sum(ending_of(cell) in FAMILIES for cell in cells)
    if not named or named < _PATHS_SHARE * len(cells):
        return False
    if any(is_file(folder / cell) for cell in cells[:_LOOKED_AT]):
        return True
    warnings.warn(
        f"column {column.name!r} holds names such as {cells[0]!r}, but none of the first {min(len(cells), _LOOKED_AT)} "
        f"is a file in {str(folder)!r}, which relative paths start from: its cells are read as strings",
        stacklevel=2,
    )
    return False


def is_file(path: Path | str) -> bool:
    """Whether there is such a file; False for a pipe, a device, and what cannot be a path."""
    try:
        return os.path.isfile(path)
    except (OSError, ValueError):
        return False


def _family_of(name: str, column: str, cells: Sequence[str | None]) -> Family:
    families = {FAMILIES[ending] for cell in cells if cell is not None and (ending := ending_of(cell)) in FAMILIES}
    if families == {"picture", "array"}:
        families = {"picture"}
    if len(families) > 1:
        raise InputError(
            f"modality {name!r}: column {column!r} holds files of different kinds ({', '.join(sorted(families))}): "
            "make a column of each"
        )
    if not families:
        shown = next((cell for cell in cells if cell is not None), None)
        what = "is empty" if shown is None else f"holds {shown!r}"
        raise InputError(
            f"modality {name!r}: column {column!r} {what}, where paths of files are needed. Files that are read end in "
            f"{', '.join(FAMILIES)}"
        )
    return families.pop()
