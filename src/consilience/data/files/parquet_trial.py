"""A trial reading of a Parquet file in a process of its own.

polars ends its process if a damaged file asks for more memory than there can be. A file that the trial process has read
can be read here.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from consilience.core.errors import InputError

_SECONDS = 60
_BYTES_A_SECOND = 5_000_000  # slower disks than this are not waited for
_LONGEST = 300  # characters of a reason
_CELLS = 10_000_000  # at a time, so that the trial needs less memory than the reading

_PROGRAM = """
import json, sys
import polars
path, columns, rows = json.loads(sys.stdin.read())
table = polars.scan_parquet(path, glob=False)
length = table.select(polars.len()).collect().item()
for start in range(0, length, rows):
    table.select(columns).slice(start, rows).collect()
"""


def try_parquet(path: Path, columns: Sequence[str]) -> None:
    """Read columns of a Parquet file in another process, and forget them.

    Raises:
        InputError: The process ended before it had read them, or took far longer than the size of the file explains.
    """
    given = json.dumps([str(path.absolute()), list(columns), max(1, _CELLS // max(1, len(columns)))])
    seconds = _SECONDS + path.stat().st_size / _BYTES_A_SECOND
    try:
        # -P: a file polars.py in the working folder is not imported.
        done = subprocess.run(  # noqa: S603 - our own program; the path and the columns are its input
            [sys.executable, "-P", "-c", _PROGRAM], input=given.encode(), capture_output=True, timeout=seconds
        )
    except subprocess.TimeoutExpired as error:
        raise InputError(f"{path.name} cannot be read as a table: it takes more than {seconds:.0f} seconds") from error
    if done.returncode:
        raise InputError(f"{path.name} cannot be read as a table: {_reason(done.stderr.decode(errors='replace'))}")


def _reason(told: str) -> str:
    """The line of an error: the last of Python's, or the first of a process that polars ended.

    >>> _reason("Traceback (most recent call last):\\n  File ...\\npolars.exceptions.ComputeError: no magic\\n")
    'no magic'
    """
    lines = [line.strip() for line in told.splitlines() if line.strip()]
    if not lines:
        return "the process that read it ended"
    python = [line for line in lines if line.startswith(("polars.", "pyo3_runtime."))]
    chosen = python[-1].partition(": ")[2] if python else lines[0] if "Traceback" not in lines[0] else lines[-1]
    return chosen[:_LONGEST]
