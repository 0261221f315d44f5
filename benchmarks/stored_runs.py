"""Benchmark runs in parallel processes; each is kept in a file when it ends, and a second call goes on from there."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joblib


def measure_all(measure: Callable[..., Any], keys: list[tuple], jobs: int, store: Path | None) -> dict[tuple, Any]:
    """Measure what `store` does not have yet.

    Args:
        measure: Called with the parts of a key.
        keys: Of the runs, in the order in which they start.
        jobs: Processes.
        store: The file; None: nothing is kept, or read.

    Returns:
        What was measured for each key.
    """
    found = joblib.load(store) if store is not None and store.exists() else {}
    missing = [key for key in keys if key not in found]
    runs = joblib.Parallel(n_jobs=jobs, batch_size=1, pre_dispatch="all", return_as="generator_unordered")
    for key, result in runs(joblib.delayed(_with_key)(measure, key) for key in missing):
        found[key] = result
        if store is not None:
            part = store.with_name(f"{store.name}.part")
            joblib.dump(found, part)
            os.replace(part, store)
    return {key: found[key] for key in keys}


def _with_key(measure: Callable[..., Any], key: tuple) -> tuple[tuple, Any]:
    return key, measure(*key)
