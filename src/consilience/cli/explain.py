"""Explain predictions of a saved model: what each modality contributes, in words, as a table and as a picture."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from consilience.cli import options
from consilience.core.errors import InputError, unknown_name
from consilience.core.files import write_atomically
from consilience.core.settings import NonNegativeInt, PositiveInt, Share

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser, Namespace

    from consilience.core.samples import Samples
    from consilience.estimators.explanation import Explanation

USAGE = "MODEL DATA [--row N …] [options]"
EXAMPLES = """  consilience explain model new.csv --row 17
  consilience explain model new.csv --row 17 18 --out explained.html
  consilience explain model new.csv --row 17 --value log-probability --of leak --out row17.png
  consilience explain runs/sensors/best new.csv --out contributions.json
  consilience explain runs/sensors/best new.csv --permute --metric balanced_accuracy"""
_VALUES = "probability, log-probability, accuracy, nll, output or mse"
_ENDINGS = (".html", ".png", ".svg", ".json")


def add_arguments(parser: ArgumentParser) -> None:
    """Add model, data, rows, what is explained, and the output file."""
    parser.add_argument("model", type=str, help="folder written by train or compare")
    parser.add_argument("data", type=str, help="file with the columns of the training data")
    help = "rows to explain, from 0; if absent, mean contributions over the rows, at most --samples of them"
    options.add_option(parser, "row", NonNegativeInt, help, nargs="+")
    help = f"what is explained: {_VALUES}; for means accuracy or mse by default if the data have the target"
    parser.add_argument("--value", type=str, metavar="NAME", help=help)
    help = "class whose probability is explained, the predicted one if absent; or number of the target, from 0"
    parser.add_argument("--of", type=str, metavar="CLASS", help=help)
    options.add_option(parser, "coverage", Share, "coverage of the conformal set", default=0.9, metavar="P")
    help = "largest number of rows for means; evenly spread over the file"
    options.add_option(parser, "samples", PositiveInt, help, default=500)
    help = "permutation importance instead: of each modality, or of the groups named"
    parser.add_argument("--permute", nargs="*", type=str, metavar="NAME=MODALITY[,MODALITY…]", help=help)
    help = "metric of the permutation importance; accuracy, or mse for regression, if absent"
    parser.add_argument("--metric", type=str, metavar="NAME", help=help)
    options.add_option(parser, "repeats", PositiveInt, "how often each group is permuted", default=5)
    parser.add_argument("--out", type=str, metavar="FILE", help=".html page, .png or .svg picture, or .json")
    options.add_passed_encoders(parser)


def run(chosen: Namespace, command: list[str]) -> None:
    """Explain rows or the mean, print words and a table, and write the file."""
    from rich.console import Console

    from consilience.core.evenly_spread import evenly_spread
    from consilience.report.explanation_words import mean_table, sample_table, say_mean, say_sample
    from consilience.report.text_table import console_tables

    path = check_out(chosen)
    model = load_predictor("explain", chosen)
    samples = model.read(chosen.data)
    if chosen.permute is not None:
        permute(model, samples, chosen, path)
        return
    if chosen.metric is not None:
        raise InputError("explain: --metric is that of --permute; --value says what else is explained")
    rows = list(dict.fromkeys(chosen.row)) if chosen.row else evenly_spread(len(samples), chosen.samples).tolist()
    if beyond := [row for row in rows if row >= len(samples)]:
        raise InputError(
            f"explain: --row {beyond[0]}: {chosen.data} has {len(samples)} rows, from 0 to {len(samples) - 1}"
        )
    picked = samples.select(rows)
    found = model.explain(
        picked, value=chosen_value(chosen, picked, model), of=chosen_target(chosen.of, model), coverage=chosen.coverage
    )
    console = Console(highlight=False, markup=False)
    if chosen.row:
        for sample in rows_of(found, rows):
            sys.stdout.write("\n".join(say_sample(sample)) + "\n\n")
            sys.stdout.flush()
            console.print(console_tables([sample_table(sample)]))
    else:
        mean = found.mean()
        sys.stdout.write("\n".join(say_mean(mean, found.value)) + "\n\n")
        sys.stdout.flush()
        console.print(console_tables([mean_table(mean)]))
    if path is not None:
        write(path, found, rows if chosen.row else None, chosen, command)
        print(f"written: {path}")


def permute(model: Any, samples: Samples, chosen: Namespace, path: Path | None) -> None:
    """Print the permutation importance of modalities, or of groups of them, and write it as JSON."""
    from rich.console import Console

    from consilience.evaluation import permutation_importance
    from consilience.report.importance_table import importance_table
    from consilience.report.text_table import console_tables

    if chosen.row:
        raise InputError("explain: --permute shuffles all rows; leave --row out")
    if path is not None and path.suffix != ".json":
        raise InputError(f"explain: --permute writes .json only, got {path.name!r}")
    if samples.y is None:
        raise InputError(f"explain: --permute needs the true targets, and {chosen.data} lacks the target column")
    groups = options.columns("permute", chosen.permute, "explain: ") or None
    found = permutation_importance(model, samples, groups=groups, metric=chosen.metric, repeats=chosen.repeats)
    Console(highlight=False, markup=False).print(console_tables([importance_table(found)]))
    if path is not None:
        write_atomically(path, json.dumps(found.to_json(), indent=1, ensure_ascii=False) + "\n")
        print(f"written: {path}")


def check_out(chosen: Namespace) -> Path | None:
    """Return the file to write; raise an error if it cannot be written, before the work is done."""
    if chosen.out is None:
        return None
    path = Path(chosen.out)
    if path.suffix not in _ENDINGS:
        raise InputError(f"explain: --out must end in {', '.join(_ENDINGS)}, got {path.name!r}")
    if path.suffix in (".png", ".svg") and chosen.row and len(set(chosen.row)) > 1:
        raise InputError(f"explain: a picture shows one row; give one --row, or --out {path.stem}.html for several")
    options.check_out_file("explain", "out", path, [chosen.data])
    return path


def load_predictor(command: str, chosen: Namespace) -> Any:
    """Return the model, if it is one that reads data files and predicts."""
    from consilience.estimators import FusionClassifier, FusionRegressor, load

    model = load(chosen.model, encoders=options.encoders(chosen))
    if not isinstance(model, FusionClassifier | FusionRegressor):
        raise InputError(
            f"{command}: {chosen.model} is a {type(model).__name__}, which does not predict from data files"
            + ("; use it in Python: consilience.load(path)" if type(model).__name__ == "BayesFusion" else "")
        )
    return model


def chosen_value(chosen: Namespace, samples: Samples, model: Any) -> str | None:
    """Return the value that was asked for; for means by default the metric, where the targets are known."""
    if chosen.value is not None or chosen.row or chosen.of is not None or samples.y is None:
        return chosen.value
    return "accuracy" if hasattr(model, "classes_") else "mse"


def chosen_target(of: str | None, model: Any) -> Any:
    """Return the label whose text was given, or the number of a regression's target."""
    if of is None:
        return None
    if not hasattr(model, "classes_"):
        return int(of) if of.isdigit() else of
    labels = {str(label): label for label in model.classes_.tolist()}
    if of not in labels:
        raise unknown_name("class", of, labels, "It was given as --of")
    return labels[of]


def rows_of(found: Explanation, rows: list[int]) -> list[Any]:
    """Return the explained samples with their numbers in the file."""
    from dataclasses import replace

    return [replace(sample, row=row) for sample, row in zip(found, rows)]


def write(path: Path, found: Explanation, rows: list[int] | None, chosen: Namespace, command: list[str]) -> None:
    """Write a page, a picture or JSON; rows: None for the mean."""
    from consilience.report.explanation_figure import draw_mean, draw_sample, save_drawing
    from consilience.report.explanation_page import explanation_page

    samples = [] if rows is None else rows_of(found, rows)
    mean = found.mean() if rows is None else None
    if path.suffix == ".json":
        plain = {
            "value": found.value,
            "rows": [sample.to_json() for sample in samples],
            "mean": None if mean is None else mean.to_json(),
        }
        write_atomically(path, json.dumps(plain, indent=1, ensure_ascii=False) + "\n")
    elif path.suffix == ".html":
        title = f"What {Path(chosen.model).name} predicts on {Path(chosen.data).name}, and why"
        page = explanation_page(samples, mean, found.value, title, shlex.join(command))
        write_atomically(path, page.encode("utf-8", "replace"))
    else:
        save_drawing(draw_mean(mean, found.value) if mean is not None else draw_sample(samples[0]), path)
