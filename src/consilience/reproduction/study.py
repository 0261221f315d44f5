"""Run one function over many settings, resumable and in parallel, and write a page about all results.

For studies that are not a comparison of methods. The scripts in `papers/` are written with it.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import logging
import shlex
import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from consilience.comparison.engine import run_jobs
from consilience.comparison.plan import Job, digest, to_json
from consilience.comparison.store import Result, Store, versions_used, writing
from consilience.core.errors import InputError
from consilience.core.file_names import file_name
from consilience.report.document import Document, Section, write_document
from consilience.report.wording import say_versions
from consilience.version import __version__

logger = logging.getLogger("consilience")

Settings = Mapping[str, Any]
# What the names of modules begin with that `load_script` has made.
SCRIPTS = "_script_"


@dataclass(frozen=True)
class Reproduction:
    """A finished reproduction: its run folder, its contents as plain data, and the path of its page."""

    folder: Path
    document: Document
    page: Path


def run_folder(name: str, quick: bool, out: str | Path | None = None) -> Path:
    """Return the run folder of a reproduction: `out` if given, else a folder below `runs`, one for each size.

    Example:
        >>> run_folder("qmf-table1", quick=True).as_posix()
        'runs/qmf-table1-quick'
    """
    return Path(out) if out is not None else Path("runs") / file_name(f"{name}{'-quick' if quick else ''}")


def run_study(
    name: str,
    measure: Callable[[Settings, Settings], Result],
    cells: Sequence[Settings],
    shared: Settings,
    describe: Callable[[list[Result]], Document],
    *,
    measure_group: Callable[[list[Settings], Settings], list[Result]] | None = None,
    group_of: Callable[[Settings], Hashable] = lambda cell: None,
    quick: bool = False,
    out: str | Path | None = None,
    jobs: int = 1,
    cluster: str | None = None,
    verbose: int = 1,
    command: str = "",
) -> Reproduction:
    """Measure every cell that has no result in the run folder yet, and write the page of all results.

    Args:
        name: Name of the study; the run folder is called after it.
        measure: Called with the settings of a cell and the shared ones; returns its result. With several jobs it must
            be a function at the top level of a file: every process loads that file itself.
        cells: The settings of each cell, in JSON values.
        shared: The settings that all cells share, in JSON values. A run folder with other ones is refused.
        describe: Called with the results in the order of the cells; returns the page.
        measure_group: Measures several cells at once. It is used on a GPU only, before the other cells are measured.
        group_of: Maps a cell to its group; cells that map to None are measured alone.
        quick: Whether this is the quick form, which has a run folder of its own.
        out: The run folder; by default a folder in `runs`.
        jobs: Number of processes.
        cluster: "ray" for the processes of a Ray cluster. They are sent the file of `measure` and the code and
            settings beside it and in the folders there, but no data.
        verbose: 0 for no progress.
        command: The command to repeat the study with, for the page.

    Returns:
        The run folder, the page as plain data, and the path of the page.

    Raises:
        InputError: The run folder holds something else, or was made with other shared settings.
        TrainingError: A cell failed.
    """
    asked = json.loads(to_json({"experiment": name, **shared, "version": __version__}))
    listed = [Cell(name, "", 0, "", digest([asked, cell]), cell) for cell in cells]
    store = Store(run_folder(name, quick, out))
    listing = [cell.to_json() for cell in listed]
    plan = {"asked": asked, "jobs": listing, "command": command, "versions": versions_used()}
    store.settle(asked, lambda: plan)
    if measure_group is not None and cluster is None and _has_gpu():
        _measure_groups(listed, shared, store, measure_group, group_of)
    measuring: Callable[..., Result]
    if cluster is not None:
        from consilience.reproduction.sent_scripts import SentFunction

        measuring = SentFunction.of(name, measure)  # its machines may not have the file
    else:
        measuring = partial(_measure, measure) if jobs == 1 else _measuring_of_file(name, measure)
    run_jobs(listed, shared, store, workers=jobs, cluster=cluster, verbose=verbose, measuring=measuring)
    results = list(store.read_all(listed, name).values())
    page = replace(describe(results), command=command)
    page = _with_versions(page, (store.read_plan() or {}).get("versions"))
    with writing(store.folder):
        path = write_document(page, store.folder)
    return Reproduction(store.folder, page, path)


def run_from_command_line(run: Callable[..., Reproduction], names: Sequence[str] = ()) -> None:
    """Call the `run` function of a script with options from the command line, and print its answer.

    Args:
        run: Takes `quick`, `out`, `jobs`, `cluster` and `command`, as `run_study` does.
        names: The studies of the script where it has several; `run` gets the chosen one as `name`.
    """
    parser = argparse.ArgumentParser()
    if names:
        parser.add_argument("name", choices=names)
    parser.add_argument("--quick", action="store_true", help="minutes on two cores instead of full size")
    parser.add_argument("--out", metavar="FOLDER", help="run folder; by default one in runs")
    parser.add_argument("--jobs", type=int, default=1, help="number of processes")
    parser.add_argument("--cluster", choices=["ray"], help="run on a cluster")
    done = run(**vars(parser.parse_args()), command=shlex.join(["python", *sys.argv]))
    print("\n".join(done.document.answer))
    print(f"\nreport: {done.page}")


def load_script(path: str | Path) -> ModuleType:
    """Import a Python file by its path, once in each process.

    Args:
        path: The file. It need not be importable by name.

    Returns:
        The module; the same one at every call.
    """
    path = Path(path).resolve()
    name = f"{SCRIPTS}{digest(str(path))}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None or not path.is_file():
            raise InputError(f"{path} is not a Python file")
        sys.modules[name] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(sys.modules[name])
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]


@dataclass(frozen=True)
class Cell(Job):
    """One call of a study's function; its settings identify it."""

    settings: Settings = field(default_factory=dict)

    def describe(self) -> str:
        """The settings in one phrase, for progress and messages."""
        return ", ".join(f"{name} {value}" for name, value in self.settings.items())


def _measure(function: Callable[..., Result], cell: Any, shared: Settings, store: Store) -> Result:
    return function(cell.settings, shared)


def _measuring_of_file(study: str, function: Callable[..., Result]) -> Callable[..., Result]:
    """Return what measures a cell in another process, which loads the function's file once and keeps its caches."""
    code, name = getattr(function, "__code__", None), getattr(function, "__qualname__", "")
    if code is None or not name.isidentifier():
        raise InputError(f"{study}: with several jobs, measure must be a function at the top level of a file")
    return partial(_measure_by_name, str(Path(code.co_filename).absolute()), name)


def _measure_by_name(path: str, name: str, cell: Any, shared: Settings, store: Store) -> Result:
    return _measure(getattr(load_script(path), name), cell, shared, store)


def _measure_groups(
    cells: Sequence[Cell],
    shared: Settings,
    store: Store,
    measure_group: Callable[[list[Settings], Settings], list[Result]],
    group_of: Callable[[Settings], Hashable],
) -> None:
    """Measure the open cells of each group at once; each result is stored under its own cell."""
    groups: dict[Hashable, list[Cell]] = {}
    for cell in cells:
        group = group_of(cell.settings)
        if group is not None and not store.has(cell):
            groups.setdefault(group, []).append(cell)
    for members in groups.values():
        results = measure_group([cell.settings for cell in members], shared)
        for cell, result in zip(members, results, strict=True):
            store.write(cell, result)
        logger.info("%d measured at once, the first: %s", len(members), members[0].describe())


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def _with_versions(document: Document, versions: Mapping[str, str] | None) -> Document:
    """Add the versions that a run was started with to the last section."""
    if not versions:
        return document
    made = next(
        (section for section in document.sections if section.name == "made"), Section("made", "How it was made")
    )
    others = tuple(section for section in document.sections if section is not made)
    return replace(document, sections=(*others, replace(made, words=(*made.words, say_versions(versions)))))
