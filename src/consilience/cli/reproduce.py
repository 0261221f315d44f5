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
    """Which protocol, and how large."""
    parser.add_argument("name", type=str, nargs="?", default=None)
    parser.add_argument("--list", action="store_true", help="list what is in the folder papers")
    parser.add_argument("--quick", action="store_true", help="minutes on two cores instead of full size")
    parser.add_argument("--data-dir", type=str, metavar="FOLDER", help="where the files of named sets lie")
    options.add_running(parser)


def run(chosen: Namespace, command: list[str]) -> None:
    """List the folder, or run one protocol."""
    from consilience.reproduction.papers import find_paper, list_papers, run_paper

    if chosen.list or chosen.name is None:
        titles = list_papers()
        if not titles:
            raise InputError("reproduce: there is no folder 'papers' here; give the path of a protocol file")
        width = max(map(len, titles))
        for name, title in titles.items():
            print(f"{name:{width}}  {title}")
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
    """The tables; on a console also the answer in words, and where the page is."""
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
