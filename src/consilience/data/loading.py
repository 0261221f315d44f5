"""`load_data`: every data set, by name, by path, or from a DataFrame; `read_with_recipe`: new samples for a model."""

from __future__ import annotations

import os
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from consilience.core.errors import InputError, SavedModelError, SplitWarning, listed, unknown_name
from consilience.core.samples import Modality, Samples
from consilience.core.settings import Interval, NonNegativeInt, PositiveInt, checked
from consilience.core.targets import TaskKind
from consilience.data.dataset import RECIPE_VERSION, DataSet
from consilience.data.files.cell_fills import Fill, restore_fills, restore_flagged
from consilience.data.files.column_encoding import Encoding
from consilience.data.files.column_reading import ColumnKind
from consilience.data.files.file_options import FileOptions
from consilience.data.files.table_reading import TABLES, format_of, is_frame, no_such_path, table_name
from consilience.data.media.columns import TableKind
from consilience.data.media.reading import Broken, FileColumn
from consilience.data.named_sets import DATA_SETS
from consilience.data.shards.locations import TABLE_SHARDS, names_shards

_FILE_OPTIONS = (
    *("target", "modalities", "kinds", "split", "fill", "task", "media", "broken", "seed"),
    *("group", "time", "folds", "buffer"),
)


@checked
def load_data(
    name_or_path: str | os.PathLike[str] | Any,
    *,
    target: Annotated[str | None, "column to predict"] = None,
    modalities: Annotated[
        Mapping[str, str | Sequence[str]] | Sequence[str] | None,
        "columns of each modality in a table; of arrays the modalities to keep",
    ] = None,
    data_dir: Annotated[str | os.PathLike[str] | None, "folder with the files of named data sets"] = None,
    kinds: Annotated[
        Mapping[str, TableKind | ColumnKind] | None,
        "kind of a modality where its shape does not show it, such as review=text; of a column calendar, category or "
        "number",
    ] = None,
    split: Annotated[str | None, "column with train, validation or test; drawn at random if absent"] = None,
    fill: Annotated[
        Fill | None,
        "value of single empty cells: median, mean, zero, indicator (median, and a feature that says where; default "
        "for tables) or none (an error)",
    ] = None,
    task: Annotated[TaskKind | None, "classification or regression, where the target does not show it"] = None,
    media: Annotated[
        Mapping[str, Mapping[str, Any]] | None, "settings of the files of a modality, such as photo.size=128"
    ] = None,
    broken: Annotated[Broken | None, "missing: treat files that cannot be read as missing, instead of an error"] = None,
    seed: Annotated[NonNegativeInt | None, "of the split, and of data sets that are generated"] = None,
    group: Annotated[str | None, "column of groups, such as patients: no group is in two parts"] = None,
    time: Annotated[
        str | None, "column of times: the latest rows are the test part, those before them validation"
    ] = None,
    folds: Annotated[
        Annotated[int, Interval(2)] | None,
        "number of folds; seed s tests on fold s mod K of repeat s // K, with --time on expanding folds",
    ] = None,
    buffer: Annotated[
        PositiveInt | None, "rows of shards that are in memory at once, half of them shuffled together; default 256 MiB"
    ] = None,
    **options: Any,
) -> DataSet:
    """Load a data set by name (`data_names()` lists them), from a file, or from a DataFrame.

    - `.csv`, `.tsv` (also `.gz`) or `.parquet`, and pandas or polars DataFrames: a `target` column and `modalities`, a
      mapping of name → column names or globs. Strings are one-hot encoded, booleans become 0 and 1. A row whose cells
      of a modality are all empty lacks that modality; single empty cells are filled. Times and identifiers are left
      out, with a warning. A column of paths of pictures, recordings or arrays is read from these files;
      `"photo": "path:image"` names its kind. Relative paths start from the folder of the table. Without a target the
      set serves models that are trained without one.
    - `.npz`, or a folder of `.npy` files, which stay on disk: one array per modality with the samples first, `y`,
      optionally `split` and `<modality>_lengths`.
    - Shards, which are read in chunks while a model is trained: a folder or glob of `.parquet` or Arrow files
      (`.arrow`, `.feather`, `.ipc`) with the same columns, or of `NAME-NUMBER.npy`; also a URL that fsspec opens, such
      as `s3://bucket/folder`.
    - `.mat`, as multi-view sets are published: `x1_train`, `x1_test`, …, `gt_train`, `gt_test`.

    Args:
        name_or_path: The name of a data set, a path, or a DataFrame.
        target: The column (or array, by default "y") to predict.
        modalities: For tables, modality → column names or globs; otherwise the names of the modalities to keep.
        data_dir: The folder of the files of named sets, by default the environment variable CONSILIENCE_DATA.
        kinds: Modality → kind, where it does not follow from the shape; "text" for a column of sentences. For a table
            also column → "calendar" (features of year, day of the year, weekday and hour), "category" (one-hot) or
            "number" (whole numbers that look like identifiers).
        split: The column (or array, by default "split") that says train, validation or test. Without one, 70/15/15 is
            drawn with `seed`, stratified by class. If it names no validation rows, they are drawn from train.
        fill: What single empty cells become, learned from the train rows: "median", "mean", "zero", "indicator" (the
            median, and for each column with gaps in the train rows a feature that says where) or "none" (an error).
            None: "indicator" for tables, "none" for arrays.
        task: "classification" or "regression", where it does not follow from the targets. Whole numbers with many
            values are taken for amounts, with a warning.
        media: Modality whose cells are paths of files → settings, such as {"photo": {"size": 128}}.
        broken: "missing" if files that are missing or cannot be read are no error.
        seed: Of whatever is drawn.
        group: The column (or array) of groups. Rows of a group are never in two parts, nor in two folds of a
            cross-fitting.
        time: The column (or array) of numbers, dates or strings of dates that orders the rows, instead of groups: the
            latest 15 % are the test part, the 15 % before them validation. Cross-fitting holds out successive rows.
        folds: K: the test part is fold `seed` mod K of repeat `seed` // K, stratified by class, by whole groups with
            `group`. With `time` fold 0 is the latest and each is tested by a model of the rows before it.
        buffer: Of shards, and of one `.parquet` that is to be read like them, the rows that are in memory at once. If
            all of them fit, an epoch is in the order that it has in memory; otherwise it takes shards in random order,
            and shuffles the rows of half the buffer together.
        options: Those of the named set.

    Returns:
        The samples with their targets and their split.

    Example:
        >>> load_data("gaussians", n=300, dependence=0.5).sizes
        {'train': 180, 'validation': 60, 'test': 60}
    """
    of_files = {
        "target": target,
        "kinds": kinds,
        "split": split,
        "fill": fill,
        "task": task,
        "media": media,
        "broken": broken,
    }
    ordering = {option: value for option, value in (("group", group), ("time", time)) if value is not None}
    given: dict[str, Any] = {option: value for option, value in of_files.items() if value is not None}
    if isinstance(name_or_path, str) and name_or_path in DATA_SETS:
        own = DATA_SETS[name_or_path].options
        options = {**{name: value for name, value in ordering.items() if name in own}, **options}
        given |= {name: value for name, value in ordering.items() if name not in own}
        if buffer is not None:
            raise InputError(f"buffer is for shards; data set {name_or_path!r} has none: leave buffer out")
        if given:
            raise InputError(
                f"data set {name_or_path!r} has its own target, kinds and split: {', '.join(given)} "
                f"{'is' if len(given) == 1 else 'are'} for files of your own"
            )
        data = DATA_SETS[name_or_path].load(data_dir, options if seed is None else {"seed": seed, **options})
        data = data if folds is None else data.with_folds(folds)
        return _keep(data, modalities)
    given |= ordering | ({} if folds is None else {"folds": folds})
    if buffer is not None or names_shards(name_or_path, target):
        if options:
            raise unknown_name("option", next(iter(options)), _FILE_OPTIONS, f"It was given for {name_or_path!r}")
        data = _load_shards(name_or_path, modalities, FileOptions(**given, seed=0 if seed is None else seed), buffer)
        _warn_of_split(data)
        return data
    if is_frame(name_or_path):
        source, name = name_or_path, "the DataFrame"
    elif isinstance(name_or_path, str | os.PathLike):
        source = _find_path(name_or_path)
        name = source.name
    else:
        raise InputError(
            f"load_data reads a set by name, a file by its path, or a DataFrame, got {type(name_or_path).__name__}"
        )
    if options:
        raise unknown_name("option", next(iter(options)), _FILE_OPTIONS, f"It was given for {name!r}")
    data = _load(source, modalities, FileOptions(**given, seed=0 if seed is None else seed), given)
    _warn_of_split(data)
    return data


def _load_shards(place: Any, modalities: Any, options: FileOptions, buffer: int | None) -> DataSet:
    from consilience.data.shards.arrays import load_array_shards
    from consilience.data.shards.locations import find_shards, is_url
    from consilience.data.shards.tables import load_table_shards

    if not isinstance(place, str | os.PathLike):
        raise InputError(f"buffer is for shards: give a folder, a glob or a URL of them, got {type(place).__name__}")
    if not is_url(place) and Path(place).is_file() and not Path(place).name.lower().endswith(TABLE_SHARDS):
        raise InputError(f"buffer is for shards, of {', '.join(TABLE_SHARDS)} or .npy; {str(place)!r} is read whole")
    found = find_shards(place)
    whole = Path(place).absolute()
    name = str(place) if is_url(place) else whole.name if whole.exists() else whole.parent.name
    if found[0].lower().endswith(".npy"):
        return load_array_shards(found, name, _names(modalities), options, buffer)
    return load_table_shards(found, name, modalities, options, buffer)


def _warn_of_split(data: DataSet) -> None:
    """Warn of classes that the validation or test part lacks, and of a column that looks like groups."""
    lacking = [
        f"the {part} part has no sample of {'class' if len(classes) == 1 else 'classes'} {listed(classes)}"
        for part, classes in data.lacking_classes().items()
    ]
    if lacking:
        warnings.warn(
            f"data set {data.name!r}: {' and '.join(lacking)}, so that scores do not show how these are predicted. "
            f"Give more samples of them{', or folds (--folds 5)' if data.rule is None else ''}",
            SplitWarning,
            stacklevel=3,
        )
    if data.hint is not None:
        warnings.warn(f"data set {data.name!r}: {data.hint.sentence}", SplitWarning, stacklevel=3)


def _load(source: Path | Any, modalities: Any, options: FileOptions, given: Collection[str]) -> DataSet:
    # The reader of each format is imported when it is needed, and polars and scipy with it.
    found = format_of(source) if isinstance(source, Path) else "table"
    if found == "table":
        from consilience.data.files.tables import load_table

        return load_table(source, modalities, options)
    if found == "matlab":
        from consilience.data.files.matlab import load_matlab

        for option in set(given) - {"task"}:
            raise InputError(f"{option} does not apply to {source.name!r}: the file determines it")
        return _keep(load_matlab(source, options), modalities)
    from consilience.data.files.arrays import load_arrays, no_arrays

    if source.is_dir() and not any(source.glob("*.npy")):
        raise no_arrays(source)
    for option in {"media", "broken"} & set(given):
        raise InputError(f"{option} is for tables with paths of files; {source.name!r} holds arrays")
    return load_arrays(source, _names(modalities), options)


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


def read_with_recipe(
    recipe: Mapping[str, Any], source: str | os.PathLike[str] | Any, *, folder: Path | None = None
) -> Samples:
    """Read new samples in the same way as the data set that a recipe is of.

    The same columns or arrays are read in the same order, with the categories and fill values of the train rows. A
    category that these did not have is all zeros, with a warning. Other columns, such as a split, are ignored. A
    modality without any of its columns is left out of the samples, which means missing for all.

    Args:
        recipe: What `DataSet.recipe()` returned.
        source: For a table `.csv`, `.tsv` (also `.gz`), `.parquet` or a DataFrame, whichever it was in training; for
            arrays `.npz`, a folder of `.npy`, or a `.mat`, in which the train or the test part may be absent.
        folder: What relative paths in the cells of a table start from. By default the folder of the table, for a
            DataFrame the current one.

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
    if recipe["recipe"] != RECIPE_VERSION:
        raise SavedModelError(
            f"the recipe is of version {recipe['recipe']!r}, this release reads {RECIPE_VERSION}: upgrade consilience, "
            "or train again"
        )
    # The reader of each format is imported when it is needed, and polars and scipy with it.
    found = "table" if table else format_of(path)
    if recipe.get("format") == "table":
        if found != "table":
            what = "is a folder" if path.is_dir() else "is not one"
            raise InputError(f"training read a table, {str(path)!r} {what}: give {', '.join(TABLES)}")
        from consilience.data.files.tables import read_new_table

        with _parsing():
            encodings = _columns_of(recipe)
            column, strings = recipe["target"]["name"], recipe["target"]["type"] == "string"
        return read_new_table(path, encodings, column, strings, folder)
    with _parsing():
        entries = {entry["name"]: entry for entry in recipe["modalities"]}
        modalities = {name: Modality(name, entry["kind"], tuple(entry["shape"])) for name, entry in entries.items()}
        fills = {name: restore_fills(entry["fills"]) for name, entry in entries.items() if "fills" in entry}
        flagged = {
            name: restore_flagged(entry["flagged"], len(fills[name]))
            for name, entry in entries.items()
            if "flagged" in entry
        }
        target = recipe["target"]["name"]
    if found == "table":
        raise InputError(
            f"training read one array per modality ({', '.join(modalities)}), {table_name(path)!r} is a table: give "
            ".npz, a folder of .npy, or .mat"
        )
    from consilience.data.files.arrays import read_new_arrays

    return read_new_arrays(path, modalities, fills, target, flagged)


def recipe_columns(recipe: Mapping[str, Any] | None) -> dict[str, Encoding | FileColumn]:
    """Return modality → the columns of a table that a recipe reads, and how they become features.

    Raises:
        InputError: The recipe is not one of a table.
    """
    if recipe is None or recipe.get("format") != "table":
        raise InputError(
            "rows of a table are given, and training did not read a table: give a file like that of training"
        )
    with _parsing():
        return _columns_of(recipe)


def with_broken(recipe: Mapping[str, Any] | None, broken: Broken) -> dict[str, Any]:
    """Return a recipe that treats files that cannot be read otherwise.

    Raises:
        InputError: No modality of the recipe is read from files.
    """
    entries = () if recipe is None else recipe.get("modalities", ())
    if recipe is None or not any("media" in entry for entry in entries):
        raise InputError("broken is for models of tables with paths of files; this model reads no files")
    return {**recipe, "modalities": [{**each, "broken": broken} if "media" in each else each for each in entries]}


def _columns_of(recipe: Mapping[str, Any]) -> dict[str, Encoding | FileColumn]:
    return {
        entry["name"]: FileColumn.from_json(entry) if "media" in entry else Encoding.from_json(entry)
        for entry in recipe["modalities"]
    }


@contextmanager
def _parsing() -> Iterator[None]:
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SavedModelError(f"the recipe cannot be read: {type(error).__name__}: {error}") from error
