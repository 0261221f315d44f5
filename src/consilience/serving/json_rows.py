"""Rows of plain JSON, `{"vibration_0": 1.2, "note": "hot"}`, as what a model reads; names and cells are checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from consilience.core.errors import SavedModelError, show, unknown_name
from consilience.data.files.column_encoding import Encoding
from consilience.data.loading import recipe_columns
from consilience.serving.refusals import Refusal, malformed

_LONGEST_NAME = 256


@dataclass(frozen=True)
class RowLayout:
    """The names that a row may have.

    Attributes:
        columns: Modality → its columns, of a model of a table; empty for a model of arrays.
        modalities: The names of the modalities.
        files: Columns whose cells name files in training.
        ignored: Further names that are accepted and not used: the target.
    """

    columns: Mapping[str, tuple[str, ...]]
    modalities: tuple[str, ...]
    files: frozenset[str]
    ignored: frozenset[str]

    @classmethod
    def of(cls, model: Any) -> RowLayout:
        """Return the layout of a fitted `FusionClassifier` or `FusionRegressor`."""
        recipe = model.model_.recipe or {}
        if model._reads_by_name(model.model_.preparation.raw):
            return cls({}, model.modalities_, frozenset(), frozenset())
        known = model._known_encodings()
        files: frozenset[str] = frozenset()
        target = None
        if model._learned_columns() is None and recipe:
            read = recipe_columns(recipe)
            files = frozenset(
                column for each in read.values() if not isinstance(each, Encoding) for column in each.columns
            )
            target = (recipe.get("target") or {}).get("name")
        columns = {name: tuple(each.columns) for name, each in known.items()}
        if not columns and not files:
            raise SavedModelError("this model reads tables without names of columns, which rows of JSON cannot give")
        ignored = frozenset([target]) if isinstance(target, str) else frozenset()
        return cls(columns, model.modalities_, files, ignored)

    @property
    def names(self) -> list[str]:
        """Every name with a meaning."""
        return [column for columns in self.columns.values() for column in columns] or list(self.modalities)

    def read(self, rows: Any, most: int) -> list[dict[str, Any]]:
        """Check rows, and complete them: a column that a row lacks is empty there.

        Args:
            rows: A list of objects.
            most: The largest number of rows.

        Raises:
            Refusal: Something is not a row, a name is unknown, or a cell is no number, string, true, false or null.
        """
        if not isinstance(rows, list):
            raise malformed(f"rows must be a list of objects, got {show(rows)}")
        if not rows:
            raise malformed("rows is empty: give at least one row")
        check_row_count(len(rows), most)
        for n, row in enumerate(rows):
            if not isinstance(row, dict):
                raise malformed(f"row {n} must be an object of names and values, got {show(row)}")
        given = dict.fromkeys(name for row in rows for name in row)
        known = frozenset(self.names)
        for name in given:
            if name not in known and name not in self.ignored:
                self._refuse_name(name)
        if not self.columns:
            return [{name: value for name, value in row.items() if value is not None} for row in rows]
        used = [columns for columns in self.columns.values() if any(column in given for column in columns)]
        names = [column for columns in used for column in columns]
        completed = [{name: row.get(name) for name in names} for row in rows]
        for n, row in enumerate(completed):
            for name, cell in row.items():
                if isinstance(cell, list | dict):
                    raise malformed(f"row {n}: column {name!r} must be one number, string, true, false or null")
        if not any(cell is not None for row in completed for cell in row.values()):
            raise malformed("no row has a value of any modality")
        return completed

    def _refuse_name(self, name: str) -> None:
        if len(name) > _LONGEST_NAME:
            raise malformed(f"a name of {len(name)} characters is no name of a column")
        if name in self.files:
            raise malformed(
                f"column {name!r} names files, and a server opens none for its clients: send the decoded values as a "
                "tensor to /v2/models/NAME/infer, or leave the column out"
            )
        what = "column" if self.columns else "modality"
        raise Refusal(400, str(unknown_name(what, name, self.names[:200])))


def check_row_count(rows: int, most: int) -> None:
    """Raise a refusal for too many rows, or none."""
    if rows < 1:
        raise malformed("a request needs at least one row")
    if rows > most:
        raise Refusal(413, f"a request may have {most} rows, got {rows}: send several requests")
