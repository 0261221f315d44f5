"""Predict new data with a saved model: labels with probabilities, or numbers, and trust where the method has it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from consilience.cli import options
from consilience.core.errors import InputError, name_rows
from consilience.core.files import write_atomically

if TYPE_CHECKING:
    import polars
    from jsonargparse import ArgumentParser, Namespace

    from consilience.core.samples import Samples

USAGE = "MODEL DATA [options]"
EXAMPLES = """  consilience predict model new.csv --out predictions.csv
  consilience predict runs/sensors/best new.csv"""


def add_arguments(parser: ArgumentParser) -> None:
    """Add model, data and output file."""
    parser.add_argument("model", type=str, help="folder written by train or compare")
    parser.add_argument("data", type=str, help="file with the columns of the training data; the target may be absent")
    parser.add_argument("--out", type=str, metavar="FILE", help=".csv or .parquet file; if absent, CSV is printed")
    options.add_passed_encoders(parser)


def run(chosen: Namespace, command: list[str]) -> None:
    """Predict every row, and write or print the table."""
    import numpy as np

    from consilience.estimators import BayesFusion, MultimodalVAE, load
    from consilience.methods.latent.single_encoder import SingleEncoder

    path = None if chosen.out is None else Path(chosen.out)
    if path is not None and path.suffix not in (".csv", ".parquet"):
        raise InputError(f"predict: --out must end in .csv or .parquet, got {path.name!r}")
    if path is not None:
        options.check_out_file("predict", "out", path, [chosen.data])
    model = load(chosen.model, encoders=options.encoders(chosen))
    if isinstance(model, BayesFusion):
        raise InputError(
            f"predict: {chosen.model} is a BayesFusion, which does not read data files; use it in Python: "
            "consilience.load(path).predict(opinions)"
        )
    if isinstance(model, MultimodalVAE | SingleEncoder):
        raise InputError(
            f"predict: {chosen.model} is a {type(model).__name__}, which has no target to predict; use consilience "
            "generate to generate modalities, or consilience.load(path).encode(X) for latents"
        )
    samples = model.model_.read(chosen.data)
    absent = [name for name in model.modalities_ if name not in samples]
    if absent:
        print(f"consilience: {chosen.data} has no values of {', '.join(absent)}: missing in every row", file=sys.stderr)
    known = [name for name in model.modalities_ if name in samples]
    empty = np.flatnonzero(~samples.only(known).present.any(axis=1))
    if len(empty):
        print(
            f"consilience: {chosen.data} has no modality at all in {name_rows(empty)}: these predictions do not depend "
            "on the data",
            file=sys.stderr,
        )
    table = predictions(model, samples)
    if path is None:
        sys.stdout.flush()
        sys.stdout.buffer.write(table.write_csv().encode())  # in UTF-8, as in a file
    else:
        write_atomically(path, table.write_csv if path.suffix == ".csv" else table.write_parquet)
        print(f"{len(table)} predictions: {path}")


def predictions(model: Any, samples: Samples) -> polars.DataFrame:
    """Return one row per sample: prediction, probability of each class, trust of each modality."""
    import polars

    columns: dict[str, Any] = {}
    decided = model.predict(samples)
    if decided.ndim == 1:
        columns["prediction"] = decided
    else:
        columns |= {f"prediction_{target}": column for target, column in enumerate(decided.T)}
    if hasattr(model, "predict_proba"):
        for name, column in zip(model.classes_.tolist(), model.predict_proba(samples).T):
            columns[f"probability_{name}"] = column
    if hasattr(model, "trust"):
        for name, column in zip(model.modalities_, model.trust(samples).T):
            columns[f"trust_{name}"] = column
    return polars.DataFrame(columns)
