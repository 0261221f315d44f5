"""MATLAB files of multi-view sets, laid out as Han et al. (Trusted Multi-View Classification) publish them.

`x1_train`, `x1_test`, …, `xV_train`, `xV_test` hold one view each, `[n, feature]`; `gt_train`, `gt_test` the labels.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from consilience.data.dataset import DataSet
from consilience.data.splits import given_split
from consilience.errors import InputError
from consilience.samples import Samples
from consilience.targets import TaskKind, infer_task_kind

_VIEW = re.compile(r"x(\d+)_(train|test)")


def load_matlab(path: Path, *, task: TaskKind | None = None, seed: int = 0) -> DataSet:
    """Modalities `view1`, `view2`, …; the file's test part, validation drawn from its train part."""
    views, y, words = read_views(path)
    task = task or infer_task_kind(y)
    samples = Samples.of({f"view{number}": value for number, value in views.items()}, y)
    return DataSet(path.stem, samples, task, *given_split(words, y, task, seed=seed))


def read_views(path: Path) -> tuple[dict[int, np.ndarray], np.ndarray, np.ndarray]:
    """Views by number `[n, feature]`, labels `[n]`, and the word "train" or "test" for each row."""
    content = _read_content(path)
    found = {name: value for name, value in content.items() if value.dtype.kind in "biuf"}
    numbers = sorted({int(match[1]) for match in map(_VIEW.fullmatch, content) if match})
    wanted = [f"{stem}_{part}" for stem in (*(f"x{one}" for one in numbers), "gt") for part in ("train", "test")]
    missing = [name for name in wanted if name not in found]
    if not numbers or missing:
        raise InputError(
            f"{path.name} must hold x1_train, x1_test, …, gt_train and gt_test, all numbers; it lacks "
            f"{', '.join(missing) or 'x1_train'} and holds {', '.join(sorted(found)) or 'nothing'}"
        )
    parts = {}
    for part in ("train", "test"):
        parts[part] = found[f"gt_{part}"].ravel()
        for number in numbers:
            value = found[f"x{number}_{part}"]
            if value.ndim != 2 or len(value) != len(parts[part]):
                raise InputError(
                    f"{path.name}: x{number}_{part} must be [n, feature] with {len(parts[part])} rows as in gt_{part}, "
                    f"got {list(value.shape)}"
                )
    for number in numbers:
        widths = [found[f"x{number}_{part}"].shape[1] for part in parts]
        if widths[0] != widths[1]:
            raise InputError(f"{path.name}: view {number} has {widths[0]} features in train, {widths[1]} in test")
    views = {
        number: np.concatenate([found[f"x{number}_{part}"] for part in parts]).astype(np.float32) for number in numbers
    }
    words = np.repeat(list(parts), [len(y) for y in parts.values()])
    return views, np.concatenate(list(parts.values())), words


def _read_content(path: Path) -> dict[str, np.ndarray]:
    from scipy.io import loadmat

    try:
        content = loadmat(path)
    except NotImplementedError as error:
        raise InputError(
            f"{path.name} is a MATLAB 7.3 file, which is another format: save it again with save(..., '-v7')"
        ) from error
    except Exception as error:  # scipy raises what its parser stumbles on
        raise InputError(f"{path.name} is truncated or not a MATLAB file: {type(error).__name__}: {error}") from error
    return {name: value for name, value in content.items() if isinstance(value, np.ndarray)}
