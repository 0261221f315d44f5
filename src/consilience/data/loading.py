"""`load_data`: one door to every data set, by name or by path."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from consilience.core.errors import InputError, unknown_name
from consilience.core.samples import Kind
from consilience.core.settings import NonNegativeInt, checked
from consilience.core.targets import TaskKind
from consilience.data.dataset import DataSet
from consilience.data.files.formats import format_of, no_such_path
from consilience.data.named_sets import DATA_SETS

_FILE_OPTIONS = ("target", "modalities", "kinds", "split", "fill", "task", "seed")


@checked
def load_data(
    name_or_path: str | os.PathLike[str],
    *,
    target: Annotated[str | None, "column to predict"] = None,
    modalities: Annotated[
        Mapping[str, str | Sequence[str]] | Sequence[str] | None,
        "columns of each modality in a table; of arrays the modalities to keep",
    ] = None,
    data_dir: Annotated[str | os.PathLike[str] | None, "folder with the files of named data sets"] = None,
    kinds: Annotated[
        Mapping[str, Kind] | None, "kind of a modality where its shape does not show it, such as review=text"
    ] = None,
    split: Annotated[str | None, "column with train, validation or test; drawn at random if absent"] = None,
    fill: Annotated[str | None, "median, mean or zero: value of single empty cells"] = None,
    task: Annotated[TaskKind | None, "classification or regression, where the target does not show it"] = None,
    seed: Annotated[NonNegativeInt | None, "of the split, and of data sets that are generated"] = None,
    **options: Any,
) -> DataSet:
    """Load a data set by name (`data_names()` lists them), or from files of one's own.

    - `.npz`, or a folder of `.npy` files, which stay on disk: one array per modality with the samples first, `y`,
      optionally `split` and `<modality>_lengths`.
    - `.csv`, `.tsv` (also `.gz`) or `.parquet`: a `target` column and `modalities`, a mapping of name → column names
      or globs. Strings are one-hot encoded, booleans become 0 and 1. A row whose cells of a modality are all empty
      lacks that modality.
    - `.mat`, as multi-view sets are published: `x1_train`, `x1_test`, …, `gt_train`, `gt_test`.

    target: the column (or array, "y" unless told) to predict · modalities: a mapping for tables, elsewhere the names
    to keep · data_dir: where the files of named sets lie, else the environment variable CONSILIENCE_DATA · kinds:
    modality → kind, where it does not follow from the shape; "text" for a column of sentences · split: the column (or
    array, "split" unless told) that says train, validation or test; without one, 70/15/15 is drawn with `seed`,
    stratified by class, and where it names no validation rows they are drawn from train · fill: "median", "mean" or
    "zero" for single empty cells, learned on the train rows · task: "classification" or "regression", where the
    targets do not say · options: those of the named set.

    >>> load_data("gaussians", n=300, dependence=0.5).sizes
    {'train': 180, 'validation': 60, 'test': 60}
    """
    given = {"target": target, "kinds": kinds, "split": split, "fill": fill, "task": task}
    given = {option: value for option, value in given.items() if value is not None}
    if isinstance(name_or_path, str) and name_or_path in DATA_SETS:
        if given:
            raise InputError(
                f"data set {name_or_path!r} has its own target, kinds and split: {', '.join(given)} "
                f"{'is' if len(given) == 1 else 'are'} for files of your own"
            )
        data = DATA_SETS[name_or_path].load(data_dir, options if seed is None else {"seed": seed, **options})
        return _keep(data, modalities)
    if not isinstance(name_or_path, str | os.PathLike):
        raise InputError(
            f"load_data reads a set by name or a file by its path, got {type(name_or_path).__name__}: a table in "
            "memory goes to FusionClassifier.fit or Samples.of; fill its single empty cells first, with df.fillna say"
        )
    path = _find_path(name_or_path)
    if options:
        raise unknown_name("option", next(iter(options)), _FILE_OPTIONS, f"It was given for {path.name!r}")
    return _load_path(path, modalities, given, 0 if seed is None else seed)


def _load_path(path: Path, modalities: Any, given: dict[str, Any], seed: int) -> DataSet:
    # Each format's reader is imported when it is needed, and polars and scipy with it.
    what = format_of(path)
    if what == "table":
        from consilience.data.files.tables import load_table

        return load_table(path, modalities=modalities, seed=seed, **given)
    if what == "matlab":
        from consilience.data.files.matlab import load_matlab

        _refuse(path, given, allowed=("task",))
        return _keep(load_matlab(path, seed=seed, **given), modalities)
    from consilience.data.files.arrays import load_arrays

    return load_arrays(path, modalities=_names(modalities), seed=seed, **given)


def _find_path(given: str | os.PathLike[str]) -> Path:
    path = Path(given)
    if path.exists():
        return path
    if len(path.parts) == 1 and not path.suffix:
        raise unknown_name("data set", str(given), DATA_SETS, "A file or folder of that name does not exist either")
    raise no_such_path(path)


def _names(modalities: Any) -> tuple[str, ...] | None:
    if modalities is None:
        return None
    if isinstance(modalities, str | Mapping):
        raise InputError(
            "modalities as a mapping of name → columns is for tables; here give the list of names to keep, "
            f"got {modalities!r}"
        )
    if not modalities or len(set(modalities)) < len(modalities):
        raise InputError(f"modalities must name one or more modalities, each once, got {list(modalities)}")
    return tuple(modalities)


def _keep(data: DataSet, modalities: Any) -> DataSet:
    names = _names(modalities)
    return data if names is None else replace(data, samples=data.samples.only(names))


def _refuse(path: Path, given: Mapping[str, Any], allowed: Sequence[str]) -> None:
    for option in given:
        if option not in allowed:
            raise InputError(f"{option} does not apply to {path.name!r}: the file says it itself")
