"""MATLAB files of multi-view sets, laid out as Han et al. (Trusted Multi-View Classification) publish them.

`x1_train`, `x1_test`, …, `xV_train`, `xV_test` hold one view each, `[n, feature]`; `gt_train`, `gt_test` the labels.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from consilience.core.errors import InputError
from consilience.core.samples import Samples
from consilience.core.targets import TaskKind, infer_task_kind
from consilience.data.dataset import DataSet
from consilience.data.splits import given_split

_VIEW = re.compile(r"x(\d+)_(train|test)")
_PARTS = ("train", "test")


def load_matlab(path: Path, *, task: TaskKind | None = None, seed: int = 0) -> DataSet:
    """Modalities `view1`, `view2`, …; the file's test part, validation drawn from its train part."""
    views, y, words = read_views(path)
    task = task or infer_task_kind(y)
    samples = Samples.of({f"view{number}": value for number, value in views.items()}, y)
    return DataSet(path.stem, samples, task, *given_split(words, y, task, seed=seed))


def read_views(path: Path) -> tuple[dict[int, np.ndarray], np.ndarray, np.ndarray]:
    """Views by number `[n, feature]`, labels `[n]`, and the word "train" or "test" for each row."""
    content = _read_content(path)
    found = _only_numbers(content)
    numbers = _view_numbers(content, _PARTS)
    wanted = [f"{stem}_{part}" for stem in (*(f"x{one}" for one in numbers), "gt") for part in _PARTS]
    missing = [name for name in wanted if name not in found]
    if not numbers or missing:
        raise InputError(
            f"{path.name} must hold x1_train, x1_test, …, gt_train and gt_test, all numbers; it lacks "
            f"{', '.join(missing) or 'x1_train'} and holds {', '.join(sorted(found)) or 'nothing'}"
        )
    views, y = _join_parts(path, found, numbers, _PARTS)
    assert y is not None
    return views, y, np.repeat(_PARTS, [found[f"gt_{part}"].size for part in _PARTS])


def read_new_views(path: Path) -> tuple[dict[str, np.ndarray], np.ndarray | None]:
    """Views `view1`, `view2`, … and, where there are any, labels, of whichever of the two parts is there."""
    content = _read_content(path)
    found = _only_numbers(content)
    parts = [part for part in _PARTS if _view_numbers(content, [part])]
    numbers = _view_numbers(content, parts)
    stems = [f"x{one}" for one in numbers]
    if any(f"gt_{part}" in content for part in parts):
        stems.append("gt")
    missing = [f"{stem}_{part}" for stem in stems for part in parts if f"{stem}_{part}" not in found]
    if not parts or missing:
        raise InputError(
            f"{path.name} must hold x1_test, x2_test, …, or x1_train, …, or both, all numbers; it lacks "
            f"{', '.join(missing) or 'x1_test'} and holds {', '.join(sorted(found)) or 'nothing'}"
        )
    views, y = _join_parts(path, found, numbers, parts)
    return {f"view{number}": value for number, value in views.items()}, y


def _only_numbers(content: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: value for name, value in content.items() if value.dtype.kind in "biuf"}


def _view_numbers(content: Mapping[str, np.ndarray], parts: Sequence[str]) -> list[int]:
    return sorted({int(match[1]) for match in map(_VIEW.fullmatch, content) if match and match[2] in parts})


def _join_parts(
    path: Path, found: Mapping[str, np.ndarray], numbers: Sequence[int], parts: Sequence[str]
) -> tuple[dict[int, np.ndarray], np.ndarray | None]:
    """The parts one below the other: views by number `[n, feature]`, and labels `[n]` where there are any."""
    for part in parts:
        first = f"gt_{part}" if f"gt_{part}" in found else f"x{numbers[0]}_{part}"
        rows = found[first].size if first.startswith("gt") else len(found[first])
        for number in numbers:
            value = found[f"x{number}_{part}"]
            if value.ndim != 2 or len(value) != rows:
                raise InputError(
                    f"{path.name}: x{number}_{part} must be [n, feature] with {rows} rows as in {first}, "
                    f"got {list(value.shape)}"
                )
    for number in numbers:
        widths = [found[f"x{number}_{part}"].shape[1] for part in parts]
        if len(set(widths)) > 1:
            raise InputError(f"{path.name}: view {number} has {widths[0]} features in train, {widths[1]} in test")
    views = {
        number: np.concatenate([found[f"x{number}_{part}"] for part in parts]).astype(np.float32) for number in numbers
    }
    labels = [found[f"gt_{part}"].ravel() for part in parts if f"gt_{part}" in found]
    return views, np.concatenate(labels) if labels else None


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
