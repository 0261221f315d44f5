"""`utd-mhad`: human actions seen by an inertial sensor and as a skeleton, two sequences of their own lengths."""

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
from consilience.data.named_sets import Files, register
from consilience.data.splits import given_split

_FILES = Files(
    folder="utd_mhad",
    names=("sequences.npz",),
    what="UTD-MHAD's inertial and skeleton sequences",
    origin="Chen, Jafari and Kehtarnavaz's UTD-MHAD page (one array KIND/aA_sS_tT for each recording, as an npz)",
    licence="research use",
)
_KEY = re.compile(r"(inertial|skeleton)/a([0-9]+)_s([0-9]+)_t([0-9]+)")


@register("utd-mhad", description="27 actions of eight people, inertial and skeleton sequences", files=_FILES)
def utd_mhad(folder: Path, *, steps: Annotated[int, Interval(2)] | None = None, seed: NonNegativeInt = 0) -> DataSet:
    """Inertial `[time, 6]` and skeleton `[time, 60]`; people of odd number train, those of even number test.

    steps: every recording stretched or shrunk to so many steps, since people take different time for an action.
    """
    arrays = read_npz(folder / _FILES.names[0])
    found: dict[tuple[int, int, int], dict[str, np.ndarray]] = {}
    for key, value in arrays.items():
        match = _KEY.fullmatch(key)
        if match is None:
            raise InputError(f"{_FILES.names[0]}: an array is named KIND/aACTION_sSUBJECT_tTAKE, got {key!r}")
        found.setdefault(tuple(int(one) for one in match.groups()[1:]), {})[match[1]] = value  # type: ignore[arg-type]
    recordings = sorted(found)
    y = np.array([action for action, _, _ in recordings])
    words = np.array(["train" if subject % 2 else "test" for _, subject, _ in recordings])
    values = {
        kind: [None if kind not in found[one] else _in_steps(found[one][kind], steps) for one in recordings]
        for kind in ("inertial", "skeleton")
    }
    samples = Samples.of(values, y)
    return DataSet("utd-mhad", samples, "classification", *given_split(words, y, "classification", seed=seed))


def _in_steps(recording: np.ndarray, steps: int | None) -> np.ndarray:
    """`[time, …]` → `[steps, feature]` by linear interpolation; the time it took, where steps is None."""
    flat = recording.astype(np.float32).reshape(len(recording), -1)
    if steps is None:
        return flat
    at = np.linspace(0, len(flat) - 1, int(steps))
    before = at.astype(np.int64)
    after = np.minimum(before + 1, len(flat) - 1)
    share = (at - before).astype(np.float32)[:, None]
    return (1 - share) * flat[before] + share * flat[after]
