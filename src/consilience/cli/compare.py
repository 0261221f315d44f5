"""Which fusion method should I use on my data? Trains methods over seeds, corrupts the test set, and says."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any

from consilience.cli import options

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser, Namespace

USAGE = "DATA [DATA …] [options]"
EXAMPLES = """  consilience compare digits
  consilience compare digits --methods late concat --corruption gaussian missing --levels 0 5 10 --seeds 10 --jobs 2
  consilience compare sensors.csv --target fault --modality temp=TS* --modality pressure=PS* --out runs/sensors"""


def add_arguments(parser: ArgumentParser) -> None:
    """Data, methods and protocol."""
    parser.add_argument("data", nargs="+", type=str, help="names of data sets, or files")
    group = parser.add_argument_group("protocol")
    group.add_argument("--methods", nargs="+", type=str, metavar="NAME", help="all that serve the data unless given")
    group.add_argument(
        "--corruption",
        nargs="+",
        type=str,
        metavar="NAME",
        help="what goes wrong: by default noise or blanks, and missing; also image=gaussian,text=blank",
    )
    group.add_argument("--levels", nargs="+", type=float, default=[0.0, 5.0, 10.0], metavar="L", help="how badly")
    group.add_argument("--seeds", type=int, default=10, metavar="N", help="repetitions")
    group.add_argument("--repeats", type=int, default=1, metavar="N", help="draws of the noise for every seed")
    group.add_argument(
        "--probability", type=float, default=0.5, metavar="P", help="that a modality of a test sample is hit"
    )
    group.add_argument("--metric", type=str, help="accuracy, or mse for a regression, unless given")
    group.add_argument("--reference", type=str, metavar="NAME", help="what the others are compared with; late")
    group.add_argument("--tune", type=int, default=0, metavar="N", help="trials of random search for every method")
    options.add_loading(parser)
    options.add_training(parser)
    options.add_running(parser)
    options.add_worst(parser)


def run(chosen: Namespace, command: list[str]) -> None:
    """Compare, print the table, say where the rest is."""
    from consilience.comparison import compare

    options.check_format(chosen)
    comparison = compare(
        chosen.data,
        chosen.methods,
        corruption=None if chosen.corruption is None else [read_corruption(one) for one in chosen.corruption],
        levels=chosen.levels,
        seeds=chosen.seeds,
        repeats=chosen.repeats,
        probability=chosen.probability,
        metric=chosen.metric,
        reference=chosen.reference,
        settings=options.settings(chosen),
        encoders=options.encoders(chosen),
        training=options.training(chosen),
        tune=chosen.tune,
        out=chosen.out,
        jobs=chosen.jobs,
        side_by_side=chosen.side_by_side,
        cluster=chosen.cluster,
        command=shlex.join(command),
        **options.loading(chosen),
    )
    say(comparison, chosen.format, chosen.worst)


def read_corruption(text: str) -> Any:
    """A name, or a mapping modality → name.

    >>> read_corruption("image=gaussian,text=blank")
    {'image': 'gaussian', 'text': 'blank'}
    """
    return dict(options.each_pair("corruption", text.split(","))) if "=" in text else text


def say(comparison: Any, format: str, worst: bool = False) -> None:
    """The table; on a console also the answer in words, and where the report and the best model are."""
    from rich.console import Console

    table = comparison.table(format, worst=worst)
    if format != "console":
        print(table, end="" if table.endswith("\n") else "\n")
        return
    from consilience.report.sentences import headline

    console = Console()
    console.print(table)
    console.print()
    for sentence in (*headline(comparison.findings), *comparison.findings.notes):
        console.print(sentence.replace("`", ""), markup=False, highlight=False)
    print(f"\nreport: {comparison.folder / 'report.html'}")
    for name, folder in comparison.bests.items():
        where = f" for {name}" if len(comparison.findings.sets) > 1 else ""
        method = json.loads((folder / "model.json").read_text(encoding="utf-8"))["method"]
        print(f"best model on validation{where}: {folder} ({method})")
