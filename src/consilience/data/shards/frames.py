"""Shards of tables, Parquet or Arrow: their columns, their number of rows, and some rows of some columns."""

from __future__ import annotations

import glob
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from consilience.core.errors import InputError
from consilience.data.files.damaged_files import reading
from consilience.data.shards.chunk_sizes import Piece, cut_shards
from consilience.data.shards.locations import PARQUET, is_url, opened

if TYPE_CHECKING:
    import numpy as np
    import polars


class TableFiles:
    """Parquet or Arrow files with the same columns, whose rows follow each other."""

    def __init__(self, places: Sequence[str], name: str):
        """`name` is what error messages call all of them."""
        self.places, self.name = list(places), name
        schemas = [dict(self._schema(place)) for place in self.places]
        self.schema: dict[str, Any] = schemas[0]
        for place, schema in zip(self.places, schemas):
            both = {**self.schema, **schema}
            column = next((column for column in both if schema.get(column) != self.schema.get(column)), None)
            if column is not None:
                raise InputError(
                    f"{name}: column {column!r} is {self.schema.get(column, 'absent')} in {_short(self.places[0])} and "
                    f"{schema.get(column, 'absent')} in {_short(place)}: write all shards with the same columns"
                )
        self.rows = [self._count(place) for place in self.places]
        if not sum(self.rows):
            raise InputError(f"{name} has no rows")

    def cut(self, most: int) -> tuple[list[Piece], np.ndarray]:
        """Return chunks of at most so many rows, see `cut_shards`; a shard behind a URL is one chunk."""
        if not is_url(self.places[0]):
            return cut_shards(self.rows, most)
        return cut_shards(self.rows, max(self.rows))

    def read(self, piece: Piece, columns: Sequence[str]) -> polars.DataFrame:
        """Read some rows of one shard."""
        import polars as pl

        place, rows = self.places[piece.shard], piece.stop - piece.start
        if not is_url(place):
            return self._reading(place, lambda: self._scan(place).select(columns).slice(piece.start, rows).collect())
        with opened(place) as file:
            load = pl.read_parquet if _is_parquet(place) else pl.read_ipc
            return self._reading(place, lambda: load(file, columns=list(columns))).slice(piece.start, rows)

    def _schema(self, place: str) -> Mapping[str, Any]:
        import polars as pl

        load = pl.read_parquet_schema if _is_parquet(place) else pl.read_ipc_schema
        with opened(place) as file:
            return self._reading(place, lambda: load(file))

    def _count(self, place: str) -> int:
        import polars as pl

        if not is_url(place):
            return int(self._reading(place, lambda: self._scan(place).select(pl.len()).collect()).item())
        return len(self.read(Piece(self.places.index(place), 0, 2**62), list(self.schema)[:1]))

    def _scan(self, place: str) -> polars.LazyFrame:
        import polars as pl

        if _is_parquet(place):
            return pl.scan_parquet(place, glob=False)
        return pl.scan_ipc(glob.escape(place))  # a name with brackets is no pattern

    def _reading(self, place: str, read: Any) -> Any:
        return reading(Path(PurePosixPath(place).name) if is_url(place) else Path(place), read)


def _is_parquet(place: str) -> bool:
    return place.lower().endswith(PARQUET)


def _short(place: str) -> str:
    return PurePosixPath(place.replace("\\", "/")).name
