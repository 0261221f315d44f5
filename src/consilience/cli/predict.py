"""Predict new data with a saved model: labels with probabilities, or numbers, and trust where the method has it."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from consilience.cli import options
from consilience.cli.predicted_rows import (
    Format,
    RowWriter,
    beside,
    guarantees,
    output_format,
    predictions,
    reasons,
)
from consilience.core.errors import InputError, name_rows, unknown_name
from consilience.core.settings import Share

if TYPE_CHECKING:
    import polars
    from jsonargparse import ArgumentParser, Namespace

    from consilience.core.samples import Samples

USAGE = "MODEL DATA [options]"
EXAMPLES = """  consilience predict model new.csv --out predictions.csv
  consilience predict runs/sensors/best new.csv --keep id time
  consilience predict model new.csv --coverage 0.9 --abstain-risk 0.02
  consilience predict model new.csv --explain --out explained.parquet
  consilience predict model - --keep time --format jsonl"""
Broken = Literal["error", "missing"]
_STREAM, _JSON_LINES = "-", (".jsonl", ".ndjson")


def add_arguments(parser: ArgumentParser) -> None:
    """Add model, data and output file."""
    parser.add_argument("model", type=str, help="folder written by train or compare")
    data = "file with the columns of the training data; the target may be absent. - reads CSV with a header, or one "
    data += "JSON object per line, from standard input, and writes each row as soon as it is read"
    parser.add_argument("data", type=str, help=data)
    out = ".csv, .parquet or .jsonl file, written when all rows are; if absent, rows are printed"
    parser.add_argument("--out", type=str, metavar="FILE", help=out)
    format = "csv, parquet or jsonl (one JSON object per line); by default what the ending of --out says, else csv"
    options.add_option(parser, "format", Format, format)
    keep = "columns of the data, such as an id, to write before the predictions"
    parser.add_argument("--keep", nargs="+", type=str, metavar="COLUMN", help=keep)
    explain = "add what each modality contributes to the prediction, and the reasons in words"
    parser.add_argument("--explain", action="store_true", help=explain)
    options.add_option(parser, "broken", Broken, "missing: treat files that cannot be read as missing; error: stop")
    options.add_passed_encoders(parser)
    group = parser.add_argument_group("guarantees, from calibration samples")
    options.add_option(
        group, "coverage", Share, "add sets of classes, or intervals, that hold the truth with this probability"
    )
    score = "score of the sets: aps, raps or lac; of the intervals: absolute or normalised (default: aps, absolute)"
    options.add_option(group, "score", Literal["aps", "raps", "lac", "absolute", "normalised"], score)
    empty = (
        "put the predicted class into every set; without it, a set is empty where the row is unlike all calibration "
    )
    empty += "samples of every class, however confident the prediction"
    group.add_argument("--no-empty-sets", action="store_true", help=empty)
    options.add_option(
        group, "abstain_risk", Share, "say where not to decide, so that this share of decisions is wrong at most"
    )
    options.add_option(group, "confidence", Share, "probability with which the risk holds (default: 0.95)")
    group.add_argument(
        "--calibration",
        type=str,
        metavar="FILE",
        help="labelled data that the model has not seen; if absent, the samples that train has saved scores of",
    )


def run(chosen: Namespace, command: list[str]) -> None:
    """Predict every row, and write or print the table."""
    from consilience.data.loading import with_broken
    from consilience.estimators.saved_model import kind_of_saved, load_saved

    for option, needs in (("score", "coverage"), ("confidence", "abstain_risk"), ("no_empty_sets", "coverage")):
        if chosen[option] not in (None, False) and chosen[needs] is None:
            given = option.replace("_", "-")
            raise InputError(f"predict: --{given} is used with --{needs.replace('_', '-')}, which is not given")
    path = None if chosen.out is None else Path(chosen.out)
    kind = output_format(path, chosen.format)
    if path is not None:
        options.check_out_file("predict", "out", path, [chosen.data])
    _check_predicts(chosen.model, kind_of_saved(chosen.model))
    model = load_saved(chosen.model, options.encoders(chosen))
    if chosen.broken is not None:
        model.model_.recipe = with_broken(model.model_.recipe, chosen.broken)
    if chosen.calibration is not None:
        _calibrate(model, chosen.calibration)
    elif not hasattr(model, "calibration_"):
        _check_needs_no_calibration(chosen)
    rows = _stream if chosen.data == _STREAM or Path(chosen.data).suffix in _JSON_LINES else _file
    with RowWriter(path, kind) as writer:
        for kept, samples in rows(model, chosen):
            table = predictions(model, samples)
            sets = (chosen.coverage, chosen.score, chosen.abstain_risk, chosen.confidence, not chosen.no_empty_sets)
            table = table.hstack(guarantees(model, samples, *sets))
            if chosen.explain:
                table = table.hstack(reasons(model, samples))
            writer.write(beside(kept, table))
    if path is not None:
        print(f"{writer.rows} predictions: {path}")


def _check_needs_no_calibration(chosen: Namespace) -> None:
    """Raise an error for an option that needs calibration samples, of a model that has none."""
    for option in ("coverage", "abstain_risk"):
        if chosen[option] is not None:
            raise InputError(
                f"predict: --{option.replace('_', '-')} needs calibration samples, and {chosen.model} has none: give "
                "--calibration FILE with labelled rows that the model was not trained on"
            )


def _check_predicts(path: str, kind: str) -> None:
    """Raise an error for a saved estimator that does not predict rows of a table."""
    if kind == "BayesFusion":
        raise InputError(
            f"predict: {path} is a BayesFusion, which does not read data files; use it in Python: "
            "consilience.load(path).predict(opinions)"
        )
    if kind in ("MultimodalVAE", "SingleEncoder"):
        raise InputError(
            f"predict: {path} is a {kind}, which has no target to predict; use consilience generate to generate "
            "modalities, or consilience.load(path).encode(X) for latents"
        )


def _file(model: Any, chosen: Namespace) -> Iterator[tuple[polars.DataFrame | None, Samples]]:
    """All samples of a file, and the columns that are kept."""
    samples = model.read(chosen.data)
    _tell_absent(chosen.data, model, samples.names)
    _tell_empty(chosen.data, model, samples, 0)
    yield _kept_columns(chosen, len(samples)), samples


def _kept_columns(chosen: Namespace, rows: int) -> polars.DataFrame | None:
    if not chosen.keep:
        return None
    from consilience.data.files.table_reading import format_of, read_header, read_table

    table = Path(chosen.data)
    if format_of(table) != "table":
        raise InputError(f"predict: --keep is for tables, which have columns; {table.name} holds arrays")
    names = list(dict.fromkeys(chosen.keep))
    header = read_header(table)
    for name in names:
        if name not in header:
            raise unknown_name("column", name, header, "It was given in --keep")
    kept = read_table(table, names, strings=names).select(names)
    if len(kept) != rows:
        raise InputError(f"predict: --keep: {table.name} has {len(kept)} rows of these columns, and {rows} samples")
    return kept


def _stream(model: Any, chosen: Namespace) -> Iterator[tuple[polars.DataFrame | None, Samples]]:
    """The samples of standard input, or of a file of JSON lines, as they come."""
    from consilience.data.files.table_streams import stream_rows
    from consilience.data.files.tables import find_modalities
    from consilience.data.loading import recipe_columns

    encodings = recipe_columns(model.model_.recipe)
    numbers = {column: None for encoding in encodings.values() for column in encoding.numbers}
    strings = {column for encoding in encodings.values() for column in encoding.columns if column not in numbers}
    keep = list(dict.fromkeys(chosen.keep or ()))
    kept = [name for name in keep if name not in numbers and name not in strings]
    name = "standard input" if chosen.data == _STREAM else Path(chosen.data).name
    folder = None if chosen.data == _STREAM else Path(chosen.data).absolute().parent
    first = 0
    with _opened(chosen.data) as file:
        for frame in stream_rows(file.read1, name, numbers, sorted(strings), kept):
            if first == 0:
                with _naming(name, 0):
                    _tell_absent(name, model, find_modalities(frame, encodings, frame.columns))
                for column in keep:
                    if column not in frame.columns:
                        raise unknown_name("column", column, frame.columns, "It was given in --keep")
            for piece, samples in _readable(model, frame, name, first, folder):
                _tell_empty(name, model, samples, first)
                yield piece.select(keep) if keep else None, samples
                first += len(piece)


def _readable(
    model: Any, frame: polars.DataFrame, name: str, first: int, folder: Path | None
) -> Iterator[tuple[polars.DataFrame, Samples]]:
    """The rows as samples. If a row cannot be read, those before it come first, and then its error."""
    from consilience.data import read_with_recipe

    recipe = model.model_.recipe
    with _naming(name, first, len(frame)):
        try:  # the target is not needed, and may be there in some rows only
            samples = read_with_recipe(recipe, frame.drop(recipe["target"]["name"], strict=False), folder=folder)
        except InputError:
            if len(frame) == 1:
                raise
            samples = None
    if samples is not None:
        yield frame, samples
        return
    half = len(frame) // 2
    yield from _readable(model, frame[:half], name, first, folder)
    yield from _readable(model, frame[half:], name, first + half, folder)


@contextmanager
def _opened(data: str) -> Iterator[Any]:
    if data != _STREAM:
        with open(data, "rb") as file:
            yield file
        return
    if sys.stdin is None:
        raise InputError("predict: standard input is closed, so - cannot be read")
    yield sys.stdin.buffer


@contextmanager
def _naming(name: str, first: int, rows: int = 0) -> Iterator[None]:
    """Let errors and warnings about a frame name the stream that it is a part of, and where the part begins."""
    where = f"{name}, row {first}" if rows == 1 else f"{name} from row {first} on" if first else name
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            yield
        except InputError as error:
            text = str(error).replace(" (row 0)", "") if rows == 1 else str(error)
            told = text.replace("the DataFrame", where) if "the DataFrame" in text else f"{where}: {text}"
            raise type(error)(told) from error
    for warning in said:
        warnings.warn(str(warning.message).replace("the DataFrame", where), stacklevel=3)


def _tell_absent(name: str, model: Any, there: Mapping[str, Any] | tuple[str, ...]) -> None:
    if absent := [modality for modality in model.modalities_ if modality not in there]:
        print(f"consilience: {name} has no values of {', '.join(absent)}: missing in every row", file=sys.stderr)


def _tell_empty(name: str, model: Any, samples: Samples, first: int) -> None:
    import numpy as np

    known = [modality for modality in model.modalities_ if modality in samples]
    empty = first + np.flatnonzero(~samples.only(known).present.any(axis=1))
    if len(empty):
        print(
            f"consilience: {name} has no modality at all in {name_rows(empty)}: these predictions do not depend "
            "on the data",
            file=sys.stderr,
        )


def _calibrate(model: Any, path: str) -> None:
    labelled = model.model_.read(path)
    if labelled.y is None:
        raise InputError(f"predict: --calibration {path} has no targets")
    model.calibrate(labelled)
