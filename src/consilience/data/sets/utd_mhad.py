"""`utd-mhad`: human actions as two sequences of different lengths, of an inertial sensor and of a skeleton."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import numpy as np

from consilience.core.errors import InputError
from consilience.core.samples import Samples
from consilience.core.settings import Interval, NonNegativeInt
from consilience.data.dataset import DataSet
from consilience.data.files.arrays import read_npz
from consilience.data.named_sets import register, source_files
from consilience.data.splits import given_split

_FILES = source_files("utd-mhad", "sequences.npz")
_KEY = re.compile(r"(inertial|skeleton)/a([0-9]+)_s([0-9]+)_t([0-9]+)")


@register("utd-mhad", description="27 actions of eight people, inertial and skeleton sequences", files=_FILES)
def utd_mhad(folder: Path, *, steps: Annotated[int, Interval(2)] | None = None, seed: NonNegativeInt = 0) -> DataSet:
    """Inertial `[time, 6]` and skeleton `[time, 60]`; odd-numbered people train, even-numbered people test.

    Args:
        folder: Of the file.
        steps: Resample every recording to so many steps, since people take different time for an action.
        seed: Of the validation part.
    """
    arrays = read_npz(folder / _FILES.names[0])
    found: dict[tuple[int, int, int], dict[str, np.ndarray]] = {}
    for key, value in arrays.items():
        match = _KEY.fullmatch(key)
        if match is None:
            raise InputError(f"{_FILES.names[0]}: an array is named KIND/aACTION_sSUBJECT_tTAKE, got {key!r}")
        found.setdefault(tuple(int(number) for number in match.groups()[1:]), {})[match[1]] = value  # type: ignore[arg-type]
    recordings = sorted(found)
    y = np.array([action for action, _, _ in recordings])
    part_of_row = np.array(["train" if subject % 2 else "test" for _, subject, _ in recordings])
    values = {
        kind: [None if kind not in found[key] else _in_steps(found[key][kind], steps) for key in recordings]
        for kind in ("inertial", "skeleton")
    }
    samples = Samples.of(values, y)
    return DataSet("utd-mhad", samples, "classification", *given_split(part_of_row, y, "classification", seed=seed))


def _in_steps(recording: np.ndarray, steps: int | None) -> np.ndarray:
    """`[time, …]` → `[steps, feature]` by linear interpolation; not resampled if steps is None."""
    flat = recording.astype(np.float32).reshape(len(recording), -1)
    if steps is None:
        return flat
    at = np.linspace(0, len(flat) - 1, int(steps))
    before = at.astype(np.int64)
    after = np.minimum(before + 1, len(flat) - 1)
    share = (at - before).astype(np.float32)[:, None]
    return (1 - share) * flat[before] + share * flat[after]
