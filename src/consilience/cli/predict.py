"""Apply a saved model to new data: labels with probabilities or numbers, and trust where the method has it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from consilience.cli import options
from consilience.core.errors import InputError, name_rows

if TYPE_CHECKING:
    import polars
    from jsonargparse import ArgumentParser, Namespace

    from consilience.core.samples import Samples

USAGE = "MODEL DATA [options]"
EXAMPLES = """  consilience predict model new.csv --out predictions.csv
  consilience predict runs/sensors/best new.csv"""


def add_arguments(parser: ArgumentParser) -> None:
    """The model, the data, and where to write."""
    parser.add_argument("model", type=str, help="a folder that train or compare wrote")
    parser.add_argument("data", type=str, help="a file laid out as in training, with or without the target")
    parser.add_argument("--out", type=str, metavar="FILE", help="a .csv or .parquet file; printed as CSV unless given")


def run(chosen: Namespace, command: list[str]) -> None:
    """Predict every row."""
    import numpy as np

    from consilience.estimators import BayesFusion, MultimodalVAE, load
    from consilience.methods.latent.single_encoder import SingleEncoder

    path = None if chosen.out is None else Path(chosen.out)
    if path is not None and path.suffix not in (".csv", ".parquet"):
        raise InputError(f"predict: --out must end in .csv or .parquet, got {path.name!r}")
    if path is not None:
        options.check_out_file("predict", "out", path, [chosen.data])
    model = load(chosen.model)
    if isinstance(model, BayesFusion):
        raise InputError(
            f"predict: {chosen.model} is a BayesFusion, which was not trained from a file; use it in Python: "
            "consilience.load(path).predict(opinions)"
        )
    if isinstance(model, MultimodalVAE | SingleEncoder):
        raise InputError(
            f"predict: {chosen.model} is a {type(model).__name__}, which has learned no target; consilience generate "
            "fills in modalities, and consilience.load(path).encode(X) gives latents"
        )
    samples = model.model_.read(chosen.data)
    absent = [name for name in model.modalities_ if name not in samples]
    if absent:
        print(f"consilience: {chosen.data} has nothing of {', '.join(absent)}: missing throughout", file=sys.stderr)
    known = [name for name in model.modalities_ if name in samples]
    empty = np.flatnonzero(~samples.only(known).present.any(axis=1))
    if len(empty):
        print(
            f"consilience: {chosen.data} has nothing of any modality in {name_rows(empty)}: the prediction there is "
            "what the model answers to nothing",
            file=sys.stderr,
        )
    table = predictions(model, samples)
    if path is None:
        print(table.write_csv(), end="")
    else:
        table.write_csv(path) if path.suffix == ".csv" else table.write_parquet(path)
        print(f"{len(table)} predictions: {path}")


def predictions(model: Any, samples: Samples) -> polars.DataFrame:
    """One row per sample: prediction, each class's probability, each modality's trust."""
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
