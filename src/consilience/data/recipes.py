"""How a data set was read, in plain JSON, so that new samples can be read the same way without saying it again.

A recipe holds what reading learned on the train rows (categories, fill values) beside the modalities' names, kinds
and shapes; whatever has an order is a list, so that sorting keys does no harm.
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
from consilience.data.files.cell_filling import restore_fills
from consilience.data.files.column_encoding import Encoding
from consilience.data.files.formats import TABLES, format_of, no_such_path

_VERSION = 1
_Parsed = TypeVar("_Parsed")


def write_recipe(name: str, modalities: Mapping[str, Modality], reading: Mapping[str, Any]) -> dict[str, Any]:
    """The recipe of a set: its name, its modalities, and what its reader says of itself and of each of them.

    A set whose reader says nothing was not read from a table: new samples of it come as one array a modality.
    """
    own = reading.get("modalities", {})
    described = {
        "recipe": _VERSION,
        "data": name,
        "format": "arrays",
        "target": {"name": "y"},
        **reading,
        "modalities": [
            {"name": one.name, "kind": one.kind, "shape": one.shape, **own.get(one.name, {})}
            for one in modalities.values()
        ],
    }
    return json.loads(json.dumps(described, default=_plain))


def read_with_recipe(recipe: Mapping[str, Any], path: str | os.PathLike[str]) -> Samples:
    """Read new samples as the set was read that `recipe` is of: `DataSet.recipe()`, also after a trip through JSON.

    The same columns or arrays in the same order, with the categories and fill values of the train rows; a category
    that these did not have is all zeros, with a warning. Whatever else is in the file is passed over, such as a split.
    A modality of which nothing is there is left out of the samples: missing for all. `y` is read where there are
    targets, else None.

    A table is read from `.csv`, `.tsv` (also `.gz`) or `.parquet`, whichever of them it was in training; arrays from
    `.npz`, a folder of `.npy`, or a `.mat` in which the train or the test part, and the labels, may be absent.
    """
    path = Path(path)
    if not path.exists():
        raise no_such_path(path)
    if not isinstance(recipe, Mapping) or "recipe" not in recipe:
        raise SavedModelError("this is no recipe of a data set: give what DataSet.recipe() returned")
    if recipe["recipe"] != _VERSION:
        raise SavedModelError(
            f"the recipe is of version {recipe['recipe']!r}, this release reads {_VERSION}: upgrade consilience, or "
            "train again"
        )
    # Each format's reader is imported when it is needed, and polars and scipy with it.
    found = format_of(path)
    if recipe.get("format") == "table":
        if found != "table":
            raise InputError(f"training read a table, {path.name!r} is none: give {', '.join(TABLES)}")
        from consilience.data.files.new_tables import read_new_table

        return read_new_table(path, *_parse(_table, recipe))
    modalities, fills, target = _parse(_arrays, recipe)
    if found == "table":
        raise InputError(
            f"training read one array a modality ({', '.join(modalities)}), {path.name!r} is a table: give .npz, a "
            "folder of .npy, or .mat"
        )
    from consilience.data.files.new_arrays import read_new_arrays

    return read_new_arrays(path, modalities, fills, target)


def _table(recipe: Mapping[str, Any]) -> tuple[dict[str, Encoding], str, bool]:
    encodings = {one["name"]: Encoding.from_json(one) for one in recipe["modalities"]}
    return encodings, recipe["target"]["name"], recipe["target"]["type"] == "string"


def _arrays(recipe: Mapping[str, Any]) -> tuple[dict[str, Modality], dict[str, np.ndarray], str]:
    entries = {one["name"]: one for one in recipe["modalities"]}
    modalities = {name: Modality(name, one["kind"], tuple(one["shape"])) for name, one in entries.items()}
    fills = {name: restore_fills(one["fills"]) for name, one in entries.items() if "fills" in one}
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
