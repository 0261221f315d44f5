"""Watch a log for changes: when a sensor breaks, the classes shift or experts contradict each other, with an alarm."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from consilience.cli import options
from consilience.cli.explain import load_predictor
from consilience.core.errors import InputError, unknown_name
from consilience.core.files import write_atomically
from consilience.core.settings import Share

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser, Namespace

    from consilience.core.samples import Samples
    from consilience.estimators.monitor import Monitor
    from consilience.report.watch_page import Watched

USAGE = "MODEL DATA --reference FILE [options]"
EXAMPLES = """  consilience watch model log.csv --reference validation.csv
  consilience watch runs/machines/best log.csv --reference validation.csv --time time --out watch.html
  consilience watch model monday.csv --reference validation.csv --state monitor.json
  consilience watch model tuesday.csv --state monitor.json"""
_PIECES = 150  # of a log, for the figure


def add_arguments(parser: ArgumentParser) -> None:
    """Add model, log, reference, and what is written."""
    parser.add_argument("model", type=str, help="folder written by train or compare")
    parser.add_argument("data", type=str, help="log: a file with the columns of the training data, oldest row first")
    help = "rows of the time when the model worked, on which it was not trained; the target may be absent"
    parser.add_argument("--reference", type=str, metavar="FILE", help=help)
    help = "column of the log that says when a row was recorded, for words and figure; any text"
    parser.add_argument("--time", type=str, metavar="COLUMN", help=help)
    help = "share of unchanged logs that may have any alarm, however long they are"
    options.add_option(parser, "false_alarms", Share, help, default=0.01)
    help = ".json file: continue with the monitor in it, if it is there, and write it when the log is read"
    parser.add_argument("--state", type=str, metavar="FILE", help=help)
    parser.add_argument("--out", type=str, metavar="FILE", help=".html page")
    options.add_passed_encoders(parser)


def run(chosen: Namespace, command: list[str]) -> None:
    """Replay the log, print a line for each alarm, and write the page and the state."""
    from consilience.estimators.monitor import Monitor
    from consilience.evaluation.stream_alarms import say_alarms
    from consilience.report.watch_page import watch_page

    inputs = [chosen.data, *([] if chosen.reference is None else [chosen.reference])]
    for option, ending in (("out", ".html"), ("state", ".json")):
        if chosen[option] is not None:
            if Path(chosen[option]).suffix != ending:
                raise InputError(f"watch: --{option} must end in {ending}, got {Path(chosen[option]).name!r}")
            options.check_out_file("watch", option, Path(chosen[option]), inputs)
    resumed = chosen.state is not None and Path(chosen.state).is_file()
    if chosen.reference is None and not resumed:
        raise InputError(
            "watch: --reference FILE is needed: rows of the time when the model worked, on which it was not trained"
        )
    model = load_predictor("watch", chosen)
    samples, times = model.read(chosen.data), _times(chosen)
    if times is not None and len(times) != len(samples):
        raise InputError(f"watch: {chosen.data} has {len(times)} rows with a time, and {len(samples)} samples")
    if resumed:
        monitor = Monitor.load(chosen.state, model)
    else:
        window = max(20, len(samples) // 60)
        monitor = Monitor(model, model.read(chosen.reference), false_alarms=chosen.false_alarms, window=window)
    watched = replay(monitor, samples, times)
    for sentence in say_alarms(watched.alarms):
        print(sentence)
    if chosen.out is not None:
        title = f"{Path(chosen.data).name}, watched by {Path(chosen.model).name}"
        page = watch_page(watched, title, shlex.join(command))
        write_atomically(chosen.out, page.encode("utf-8", "replace"))
        print(f"written: {chosen.out}")
    if chosen.state is not None:
        monitor.save(chosen.state)
        print(f"state after {monitor.rows} rows: {chosen.state}")


def replay(monitor: Monitor, samples: Samples, times: list[str] | None) -> Watched:
    """Give the rows to a monitor piece by piece; prints each alarm."""
    from consilience.report.watch_page import Watched

    size = max(1, len(samples) // _PIECES)
    ends: list[int] = []
    states: list[Any] = []
    already = len(monitor.alarms)
    first = monitor.rows
    for start in range(0, len(samples), size):
        rows = range(start, min(start + size, len(samples)))
        own = None if times is None else times[rows.start : rows.stop]
        states.append(monitor.update(samples.select(list(rows)), times=own))
        ends.append(first + rows.stop)
        for alarm in states[-1].alarms:
            print(f"alarm: {alarm.describe()}", flush=True)
    return Watched(ends, states, monitor.alarms[already:], times, monitor.class_shares(), monitor.false_alarms)


def _times(chosen: Namespace) -> list[str] | None:
    """The column that says when each row was recorded."""
    if chosen.time is None:
        return None
    from consilience.data.files.table_reading import format_of, read_header, read_table

    table = Path(chosen.data)
    if format_of(table) != "table":
        raise InputError(f"watch: --time is for tables, which have columns; {table.name} holds arrays")
    if chosen.time not in (header := read_header(table)):
        raise unknown_name("column", chosen.time, header, "It was given in --time")
    column = read_table(table, [chosen.time], strings=[chosen.time])[chosen.time]
    return ["" if time is None else str(time) for time in column.to_list()]
