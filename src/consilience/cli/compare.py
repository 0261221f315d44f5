"""Compare fusion methods on your data: train each over several seeds, and test it on clean and corrupted data."""

from __future__ import annotations

import json
import shlex
from functools import partial
from typing import TYPE_CHECKING, Any

from consilience.cli import options
from consilience.core.settings import Fraction, NonNegativeFloat, NonNegativeInt, PositiveInt

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser, Namespace

USAGE = "DATA [DATA …] [options]"
EXAMPLES = """  consilience compare digits
  consilience compare digits --methods late concat --corruption gaussian missing --levels 0 5 10 --seeds 10 --jobs 2
  consilience compare sensors.csv --target fault --modality 'temp=TS*' --modality 'pressure=PS*' --out runs/sensors"""

# Options that `compare` takes under the same name.
_AS_GIVEN = (
    *("levels", "seeds", "repeats", "probability", "metric", "reference", "tune", "choose_by"),
    *("out", "side_by_side", "cluster", "thorough"),
)


def add_arguments(parser: ArgumentParser) -> None:
    """Add data, methods and protocol."""
    parser.add_argument("data", nargs="+", type=str, help="names of data sets, or files")
    group = parser.add_argument_group("protocol")
    group.add_argument(
        "--methods", nargs="+", type=str, metavar="NAME", help="methods; a few strong ones and baselines if absent"
    )
    group.add_argument(
        "--thorough", action="store_true", help="compare all methods that support the data, with 10 seeds"
    )
    group.add_argument(
        "--corruption",
        nargs="+",
        type=str,
        metavar="NAME",
        help="corruptions of the test set, such as gaussian, or sound=missing to corrupt that modality only; if "
        "absent, noise (blanks in text) and missing modalities",
    )
    add = partial(options.add_option, group)
    levels = [0.0, 5.0, 10.0]
    add("levels", NonNegativeFloat, "levels of corruption", default=levels, nargs="+", metavar="L")
    seeds = "number of seeds; 5 if absent, 10 with --methods or --thorough; with --folds K a multiple of K"
    add("seeds", PositiveInt, seeds)
    add("repeats", PositiveInt, "draws of the corruption per seed", default=1)
    add("probability", Fraction, "probability that a modality of a test sample is corrupted", default=0.5, metavar="P")
    group.add_argument("--metric", type=str, metavar="NAME", help="accuracy, or mse for regression, if absent")
    group.add_argument(
        "--reference", type=str, metavar="NAME", help="method that the others are compared with; late if absent"
    )
    group.add_argument(
        "--choose-by",
        type=str,
        metavar="NAME",
        help="metric of validation samples by which best/ is chosen; nll, or mse for regression, if absent",
    )
    group.add_argument(
        "--no-refit",
        action="store_true",
        help="publish a model of the comparison, instead of training the chosen method on train and validation samples",
    )
    add("tune", NonNegativeInt, "trials of random search per method; 0: no search", default=0)
    options.add_loading(parser)
    options.add_training(parser)
    options.add_class_weight(parser)
    options.add_running(parser, jobs=None)
    options.add_worst(parser)


def run(chosen: Namespace, command: list[str]) -> None:
    """Compare, and print the table and the paths of the report and the published model."""
    from consilience.comparison import compare
    from consilience.comparison.quick_default import default_jobs

    options.check_names("compare", "methods", chosen.methods)
    training = options.training(chosen)
    jobs = chosen.jobs or default_jobs(chosen.methods is not None, training.get("device", "auto"))
    corruption = None if chosen.corruption is None else [read_corruption(text) for text in chosen.corruption]
    comparison = compare(
        chosen.data,
        chosen.methods,
        corruption=corruption,
        settings=options.settings(chosen),
        encoders=options.encoders(chosen) or "auto",
        training=training,
        jobs=jobs,
        class_weight=options.class_weight(chosen),
        command=shlex.join(command),
        refit=not chosen.no_refit,
        **{name: chosen[name] for name in _AS_GIVEN},
        **options.loading(chosen),
    )
    show(comparison, chosen.format, chosen.worst)


def read_corruption(text: str) -> Any:
    """Return a name, or a mapping modality → name.

    >>> read_corruption("image=gaussian,text=blank")
    {'image': 'gaussian', 'text': 'blank'}
    """
    return dict(options.each_pair("corruption", text.split(","))) if "=" in text else text


def show(comparison: Any, format: str, worst: bool = False) -> None:
    """Print the table; on a console also a summary, and the paths of the report and the published model."""
    from rich.console import Console

    table = comparison.table(format, worst=worst)
    if format != "console":
        print(table, end="" if table.endswith("\n") else "\n")
        return
    from consilience.report.recommendation import notes_beside, recommend
    from consilience.report.sentences import headline

    console = Console()
    console.print(table)
    console.print()
    findings = comparison.findings
    advice = [sentence for each in recommend(findings) for sentence in each.sentences]
    for sentence in (*advice, *notes_beside(findings), "", *headline(findings)):
        console.print(sentence.replace("`", ""), markup=False, highlight=False)
    print(f"\nreport: {comparison.folder / 'report.html'}")
    for name, folder in comparison.bests.items():
        where = f" for {name}" if len(comparison.findings.sets) > 1 else ""
        method = json.loads((folder / "model.json").read_text(encoding="utf-8"))["method"]
        print(f"best model{where}: {folder} ({method})")
