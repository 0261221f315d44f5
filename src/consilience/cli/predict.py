"""Predict new data with a saved model: labels with probabilities, or numbers, and trust where the method has it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from consilience.cli import options
from consilience.core.errors import InputError, name_rows
from consilience.core.files import write_atomically
from consilience.core.settings import Share

if TYPE_CHECKING:
    import polars
    from jsonargparse import ArgumentParser, Namespace

    from consilience.core.samples import Samples

USAGE = "MODEL DATA [options]"
EXAMPLES = """  consilience predict model new.csv --out predictions.csv
  consilience predict runs/sensors/best new.csv
  consilience predict model new.csv --coverage 0.9 --abstain-risk 0.02"""


def add_arguments(parser: ArgumentParser) -> None:
    """Add model, data and output file."""
    parser.add_argument("model", type=str, help="folder written by train or compare")
    parser.add_argument("data", type=str, help="file with the columns of the training data; the target may be absent")
    parser.add_argument("--out", type=str, metavar="FILE", help=".csv or .parquet file; if absent, CSV is printed")
    options.add_passed_encoders(parser)
    group = parser.add_argument_group("guarantees, from calibration samples")
    options.add_option(
        group, "coverage", Share, "add sets of classes, or intervals, that hold the truth with this probability"
    )
    score = "score of the sets: aps, raps or lac; of the intervals: absolute or normalised (default: aps, absolute)"
    options.add_option(group, "score", Literal["aps", "raps", "lac", "absolute", "normalised"], score)
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
    import numpy as np

    from consilience.estimators.saved_model import kind_of_saved, load_saved

    for option, needs in (("score", "coverage"), ("confidence", "abstain_risk")):
        if chosen[option] is not None and chosen[needs] is None:
            raise InputError(f"predict: --{option} is used with --{needs.replace('_', '-')}, which is not given")
    path = None if chosen.out is None else Path(chosen.out)
    if path is not None and path.suffix not in (".csv", ".parquet"):
        raise InputError(f"predict: --out must end in .csv or .parquet, got {path.name!r}")
    if path is not None:
        options.check_out_file("predict", "out", path, [chosen.data])
    _check_predicts(chosen.model, kind_of_saved(chosen.model))
    model = load_saved(chosen.model, options.encoders(chosen))
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
    if chosen.calibration is not None:
        _calibrate(model, chosen.calibration)
    table = predictions(model, samples)
    table = table.hstack(
        guarantees(model, samples, chosen.coverage, chosen.score, chosen.abstain_risk, chosen.confidence)
    )
    if path is None:
        sys.stdout.flush()
        sys.stdout.buffer.write(table.write_csv().encode())  # in UTF-8, as in a file
    else:
        write_atomically(path, table.write_csv if path.suffix == ".csv" else table.write_parquet)
        print(f"{len(table)} predictions: {path}")


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
    if model.gives_weights_:
        for name, column in zip(model.modalities_, model.trust(samples).T):
            columns[f"trust_{name}"] = column
    return polars.DataFrame(columns)


def guarantees(
    model: Any,
    samples: Samples,
    coverage: float | None = None,
    score: str | None = None,
    risk: float | None = None,
    confidence: float | None = None,
) -> polars.DataFrame:
    """Return columns with a stated guarantee: set, or low and high, if a coverage is given; abstained, if a risk is."""
    import polars

    from consilience.evaluation import set_labels

    columns: dict[str, Any] = {}
    given = {} if score is None else {"score": score}
    if coverage is not None:
        found = model.predict_set(samples, coverage, **given)
        if hasattr(model, "classes_"):
            columns["set"] = ["|".join(map(str, labels)) for labels in set_labels(found, model.classes_)]
        elif found.ndim == 2:
            columns |= {"low": found[:, 0], "high": found[:, 1]}
        else:
            for target in range(found.shape[1]):
                columns |= {f"low_{target}": found[:, target, 0], f"high_{target}": found[:, target, 1]}
    if risk is not None:
        if not hasattr(model, "abstain"):
            raise InputError("predict: --abstain-risk is for classes; this model predicts numbers")
        columns["abstained"] = model.abstain(
            samples, risk, **({} if confidence is None else {"confidence": confidence})
        )
    return polars.DataFrame(columns)


def _calibrate(model: Any, path: str) -> None:
    labelled = model.model_.read(path)
    if labelled.y is None:
        raise InputError(f"predict: --calibration {path} has no targets")
    model.calibrate(labelled)
