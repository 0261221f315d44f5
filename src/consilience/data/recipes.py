"""How a data set was read, in plain JSON, so that new samples can be read the same way.

A recipe holds what was learned from the train rows (categories, fill values) and the names, kinds and shapes of the
modalities. Whatever has an order is a list, so that sorting the keys changes nothing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from consilience.core.errors import InputError, SavedModelError
from consilience.core.samples import Modality, Samples
from consilience.data.files.column_encoding import Encoding, restore_fills
from consilience.data.files.table_reading import TABLES, format_of, is_frame, no_such_path, table_name

_VERSION = 1
_Parsed = TypeVar("_Parsed")


def write_recipe(name: str, modalities: Mapping[str, Modality], reading: Mapping[str, Any]) -> dict[str, Any]:
    """The recipe of a data set.

    Args:
        name: Of the set.
        modalities: Its modalities by name.
        reading: What its reader learned. Without it the set was not read from a table, so new samples are arrays.
    """
    own = reading.get("modalities", {})
    described = {
        "recipe": _VERSION,
        "data": name,
        "format": "arrays",
        "target": {"name": "y"},
        **reading,
        "modalities": [
            {"name": name, "kind": modality.kind, "shape": modality.shape, **own.get(name, {})}
            for name, modality in modalities.items()
        ],
    }
    return json.loads(json.dumps(described, default=_plain))


def read_with_recipe(recipe: Mapping[str, Any], source: str | os.PathLike[str] | Any) -> Samples:
    """Read new samples in the same way as the data set that a recipe is of.

    The same columns or arrays are read in the same order, with the categories and fill values of the train rows. A
    category that these did not have is all zeros, with a warning. Other columns, such as a split, are ignored. A
    modality without any of its columns is left out of the samples, which means missing for all.

    Args:
        recipe: What `DataSet.recipe()` returned.
        source: For a table `.csv`, `.tsv` (also `.gz`), `.parquet` or a DataFrame, whichever it was in training; for
            arrays `.npz`, a folder of `.npy`, or a `.mat`, in which the train or the test part may be absent.

    Returns:
        The samples; `y` is None where the source has no targets.

    Raises:
        InputError: The source does not fit the recipe.
        SavedModelError: The recipe is damaged, or of a newer release.
    """
    table = is_frame(source)
    path: Any = source if table else Path(source)
    if not table and not path.exists():
        raise no_such_path(path)
    if not isinstance(recipe, Mapping) or "recipe" not in recipe:
        raise SavedModelError("this is not the recipe of a data set: give what DataSet.recipe() returned")
    if recipe["recipe"] != _VERSION:
        raise SavedModelError(
            f"the recipe is of version {recipe['recipe']!r}, this release reads {_VERSION}: upgrade consilience, or "
            "train again"
        )
    # The reader of each format is imported when it is needed, and polars and scipy with it.
    found = "table" if table else format_of(path)
    if recipe.get("format") == "table":
        if found != "table":
            raise InputError(f"training read a table, {path.name!r} is not one: give {', '.join(TABLES)}")
        from consilience.data.files.tables import read_new_table

        return read_new_table(path, *_parse(_table, recipe))
    modalities, fills, target = _parse(_arrays, recipe)
    if found == "table":
        raise InputError(
            f"training read one array per modality ({', '.join(modalities)}), {table_name(path)!r} is a table: give "
            ".npz, a folder of .npy, or .mat"
        )
    from consilience.data.files.arrays import read_new_arrays

    return read_new_arrays(path, modalities, fills, target)


def _table(recipe: Mapping[str, Any]) -> tuple[dict[str, Encoding], str, bool]:
    encodings = {entry["name"]: Encoding.from_json(entry) for entry in recipe["modalities"]}
    return encodings, recipe["target"]["name"], recipe["target"]["type"] == "string"


def _arrays(recipe: Mapping[str, Any]) -> tuple[dict[str, Modality], dict[str, np.ndarray], str]:
    entries = {entry["name"]: entry for entry in recipe["modalities"]}
    modalities = {name: Modality(name, entry["kind"], tuple(entry["shape"])) for name, entry in entries.items()}
    fills = {name: restore_fills(entry["fills"]) for name, entry in entries.items() if "fills" in entry}
    return modalities, fills, recipe["target"]["name"]


def _parse(parse: Callable[[Mapping[str, Any]], _Parsed], recipe: Mapping[str, Any]) -> _Parsed:
    try:
        return parse(recipe)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SavedModelError(f"the recipe cannot be read: {type(error).__name__}: {error}") from error


def _plain(value: Any) -> Any:
    """Options of a named set may be arrays."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise InputError(f"{value!r} cannot be part of a recipe: use numbers, strings and lists")
