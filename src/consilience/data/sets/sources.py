"""Where the files of the named data sets come from: `sources.toml`, beside this file."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

from consilience.data.named_sets import Files


def source_files(source: str, *names: str) -> Files:
    """The files of an entry of `sources.toml`.

    >>> source_files("hydraulic", "cycles_1hz.npz").licence
    'CC BY 4.0'
    """
    return Files(names=names, **_sources()[source])


@cache
def _sources() -> dict[str, dict[str, str]]:
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
