"""Run a protocol file or a script of a paper, and show the results beside the published figures."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING

from consilience.cli import options
from consilience.core.errors import InputError
from consilience.data.named_sets import DATA_VARIABLE

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser, Namespace

    from consilience.reproduction.study import Reproduction

USAGE = "FILE.yaml | FILE.py | NAME | --list [options]"
EXAMPLES = """  consilience reproduce --list
  consilience reproduce papers/qmf-table1.yaml --quick
  consilience reproduce digits-robustness --quick --jobs 2
  consilience reproduce progressive-synthetic --quick --jobs 2"""


def add_arguments(parser: ArgumentParser) -> None:
    """Add the protocol and its size."""
    name = "protocol file (.yaml), script (.py), or the name of one in the folder papers"
    parser.add_argument("name", type=str, nargs="?", default=None, help=name)
    parser.add_argument(
        "--list", action="store_true", help="list the protocols and scripts of papers, with data, size and minutes"
    )
    parser.add_argument("--quick", action="store_true", help="a small version that takes minutes on two cores")
    parser.add_argument("--data-dir", type=str, metavar="FOLDER", help="folder with the files of named data sets")
    options.add_running(parser)


def run(chosen: Namespace, command: list[str]) -> None:
    """List the protocols, or run one."""
    from consilience.reproduction.needs import describe_needs
    from consilience.reproduction.papers import find_paper, list_papers, run_paper

    if chosen.list or chosen.name is None:
        titles = list_papers()
        if not titles:
            raise InputError("reproduce: there is no folder 'papers' here; give the path of a protocol file")
        width = max(map(len, titles))
        for name, title in titles.items():
            print(f"{name:{width}}  {title}")
            if needs := describe_needs(name, chosen.data_dir):
                print(f"{'':{width}}  {needs}")
        return
    path = find_paper(chosen.name)
    if chosen.data_dir is not None:
        os.environ[DATA_VARIABLE] = chosen.data_dir  # the processes that do the jobs read it too
    done = run_paper(
        path,
        quick=chosen.quick,
        out=chosen.out,
        jobs=chosen.jobs,
        cluster=chosen.cluster,
        side_by_side=chosen.side_by_side,
        command=shlex.join(command),
    )
    print_document(done, chosen.format)


def print_document(done: Reproduction, format: str) -> None:
    """Print the tables; on a console also the answer in words, and the path of the report."""
    from rich.console import Console

    tables = done.document.table(format)
    if format != "console":
        print(tables, end="")
        return
    console = Console()
    console.print(tables)
    for sentence in done.document.answer:
        console.print(sentence.replace("`", ""), markup=False, highlight=False)
    print(f"\nreport: {done.page}")
