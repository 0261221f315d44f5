"""What a comparison does where nobody says: a few strong methods and baselines, with few seeds."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from math import lcm
from typing import Any

from consilience.core.errors import InputError
from consilience.core.memory_limit import memory_limit

# Strong methods of each kind, and baselines: those of them that are registered are compared. The short ones come first,
# so that the time left is known soon.
QUICK_METHODS = ("late", "concat", "linear", "boosted", "majority", "best-unimodal", "bayes-robust", "auto")
QUICK_SEEDS, THOROUGH_SEEDS = 5, 10
# Processes of the command line, where their number is not given, and the memory that each may need.
_MOST_JOBS, _MEMORY_OF_JOB = 4, 2 * 2**30


def default_methods(thorough: bool, with_settings: Iterable[str] = ()) -> tuple[str, ...] | None:
    """Return the methods to compare where none are named; None for all.

    Args:
        thorough: Whether to compare all.
        with_settings: Methods that were given settings: they are meant to take part.

    Example:
        >>> default_methods(thorough=True) is None, default_methods(thorough=False, with_settings=["qmf"])[-1]
        (True, 'qmf')
    """
    from consilience.comparison.plan import registered_name
    from consilience.methods import METHODS

    if thorough:
        return None
    added = [name for name in with_settings if registered_name(name) in METHODS]  # others are named by an error
    return tuple(dict.fromkeys([*(name for name in QUICK_METHODS if name in METHODS), *added]))


def default_seeds(named: bool, thorough: bool, folds: Iterable[int | None] = ()) -> int:
    """Return the number of seeds where none is given.

    Args:
        named: Whether the methods are named.
        thorough: Whether all methods are compared.
        folds: Of each set, None where it has none: every fold of all sets is tested, and as often as the others.

    >>> default_seeds(named=False, thorough=False), default_seeds(named=True, thorough=False)
    (5, 10)
    >>> default_seeds(named=False, thorough=False, folds=[4])
    8
    """
    usual, once = THOROUGH_SEEDS if named or thorough else QUICK_SEEDS, lcm(*filter(None, folds))
    return -(-usual // once) * once


def default_jobs(named: bool, device: str = "auto") -> int:
    """Return the number of processes of the command line where none is given.

    A comparison of the default methods takes minutes on one core, and its trainings do not wait for each other: it uses
    the cores, at most four, each with 2 GiB of the memory that this process may use. Named methods are trained in one
    process, and so are those on a GPU, which would have to be shared.

    Args:
        named: Whether the methods are named.
        device: Where they are trained.

    >>> default_jobs(named=True), default_jobs(named=False, device="cuda")
    (1, 1)
    """
    if named or device not in ("auto", "cpu") or (device == "auto" and os.path.exists("/dev/nvidia0")):
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, _MOST_JOBS, memory_limit() // _MEMORY_OF_JOB))


def seeds_at_once(sets: Mapping[str, Mapping[str, Any]]) -> int:
    """How many seeds test every fold of all sets, by what `DataSet.describe` returned; 1 without folds.

    >>> seeds_at_once({"clinic": {"split_rule": {"folds": 5}}, "digits": {}})
    5
    """
    return lcm(*((about.get("split_rule") or {}).get("folds") or 1 for about in sets.values()))


def check_seeds_of_folds(seeds: int, folds: Mapping[str, int | None]) -> None:
    """Raise an error if so many seeds leave some folds of a set untested, or test some more often than others.

    Args:
        seeds: Seed s tests on fold s mod K.
        folds: Set → K, None where it has no folds.

    Raises:
        InputError: It says which numbers of seeds test every fold.
    """
    for name, count in folds.items():
        if count is not None and seeds % count:
            tested = f"only {seeds} of the {count} folds" if seeds < count else f"some of the {count} folds more often"
            whole = max(1, seeds // count) * count
            raise InputError(
                f"compare: {seeds} seed{'' if seeds == 1 else 's'} would test {tested} of {name!r}: each seed is "
                f"tested on one fold. Give seeds={whole} (--seeds {whole}) to test every fold "
                f"{_times(whole // count)}, or {whole + count} {_times(whole // count + 1)}"
            )


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")
