"""What a protocol or script of `papers` needs, said before it is run: data, number of trainings, and time.

The time is what a run took that `benchmarks/paper_minutes.py` measured and stored beside the protocols.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from consilience.comparison.quick_default import THOROUGH_SEEDS
from consilience.core.errors import InputError
from consilience.data.named_sets import DATA_SETS
from consilience.reproduction.papers import constant_of_script, find_paper
from consilience.reproduction.protocol import Protocol, read_protocol

TIMINGS = "timings.json"
_SETS = "SETS"  # the constant of a script that names the sets it reads


def describe_needs(name: str, data_dir: str | None = None) -> str:
    """Return which data a protocol or script needs, how many trainings it takes, and how long, in a sentence.

    Args:
        name: Its name in a folder `papers`.
        data_dir: Where the files of named sets are looked for.
    """
    path = find_paper(name)
    try:
        protocol = read_protocol(path) if path.suffix == ".yaml" else Protocol(path, "", script=path)
    except InputError:
        return ""
    there = {
        each: "" if each not in DATA_SETS or DATA_SETS[each].available(data_dir) else " (files missing)"
        for each in dict.fromkeys(_sets(protocol))
    }
    said = [f"data: {', '.join(each + note for each, note in there.items())}"] if there else []
    timings = read_timings(path.parent).get(name, {})
    full = sum(_trainings(part.full) for part in protocol.parts.values())
    quick = sum(_trainings(part.quick) for part in protocol.parts.values() if part.quick is not None)
    if not quick and "processor_seconds" in timings.get("quick", {}):  # one that was ended did not plan all of them
        quick = timings["quick"]["jobs"]
    unit = "trainings" if protocol.script is None else "jobs"
    counts = [f"{full} {unit}"] if full else []
    counts += [f"{quick} {'' if full else unit + ' '}with --quick"] if quick else []
    said += [", ".join(counts)] if counts else []
    said += [say_time(timings)]
    return "; ".join(said)


def read_timings(folder: Path) -> dict[str, dict[str, Any]]:
    """Return name → "quick" or "full" → what was measured; empty for a folder without such a file."""
    try:
        return json.loads((folder / TIMINGS).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}


def say_time(timings: Mapping[str, Mapping[str, Any]]) -> str:
    """Return how long a run takes, in processor time: two cores take about half as long.

    Args:
        timings: "quick" and "full" → "processor_seconds", or "more_than_seconds" for a run that was ended.

    Example:
        >>> say_time({"quick": {"processor_seconds": 130.0}, "full": {"more_than_seconds": 3600}})
        '2 processor minutes with --quick, more than 60 in full'
        >>> say_time({})
        'time not measured'
    """
    words = {"quick": "with --quick", "full": "in full"}
    said: list[str] = []
    for size, where in words.items():
        if size not in timings:
            continue
        ended = "more_than_seconds" in timings[size]
        seconds = timings[size]["more_than_seconds" if ended else "processor_seconds"]
        minutes = f"{'more than ' if ended else ''}{max(1, round(seconds / 60))}"
        unit = "" if said else " processor minute" + ("" if minutes == "1" else "s")
        said.append(f"{minutes}{unit} {where}")
    return ", ".join(said) or "time not measured"


def _sets(protocol: Protocol) -> Iterator[str]:
    for part in protocol.parts.values():
        yield from _names(part.full)
    yield from _names(protocol.settings)
    for cut in protocol.settings.get("cuts", ()):
        yield from _names(cut)
    if protocol.script is not None and protocol.script == protocol.path:
        yield from constant_of_script(protocol.script, _SETS) or ()


def _names(arguments: Mapping[str, Any]) -> list[str]:
    data = arguments.get("data", [])
    return [str(each) for each in (data if isinstance(data, list | tuple) else [data])]


def _trainings(arguments: Mapping[str, Any]) -> int:
    methods = arguments.get("methods")
    if methods is None:
        return 0
    return len(methods) * len(_names(arguments)) * int(arguments.get("seeds", THOROUGH_SEEDS))
