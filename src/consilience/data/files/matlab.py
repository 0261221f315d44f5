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
from consilience.core.targets import infer_task_kind
from consilience.data.dataset import DataSet
from consilience.data.files.file_options import FileOptions
from consilience.data.files.mat_arrays import read_mat
from consilience.data.splits import given_split

_VIEW = re.compile(r"x(\d+)_(train|test)")
_PARTS = ("train", "test")


def load_matlab(path: Path, options: FileOptions) -> DataSet:
    """Modalities `view1`, `view2`, …; validation is drawn from the train part of the file."""
    views, y, parts = read_views(path)
    task = options.task or infer_task_kind(y)
    samples = Samples.of({f"view{number}": value for number, value in views.items()}, y)
    return DataSet(path.stem, samples, task, *given_split(parts, y, task, seed=options.seed))


def read_views(path: Path) -> tuple[dict[int, np.ndarray], np.ndarray, np.ndarray]:
    """Views by number `[n, feature]`, labels `[n]`, and "train" or "test" for each row `[n]`."""
    content = read_mat(path)
    _check_content(path, content, _PARTS, labels=True, example="x1_train, x1_test, …, gt_train and gt_test")
    views, y = _join_parts(path, content, _PARTS)
    assert y is not None
    return views, y, np.repeat(_PARTS, [content[f"gt_{part}"].size for part in _PARTS])


def read_new_views(path: Path) -> tuple[dict[str, np.ndarray], np.ndarray | None]:
    """Views `view1`, `view2`, … and labels, if the file has them, of the parts that the file has."""
    content = read_mat(path)
    parts = [part for part in _PARTS if _view_numbers(content, [part])]
    labels = any(f"gt_{part}" in content for part in parts)
    _check_content(path, content, parts or ["test"], labels, "x1_test, x2_test, …, or x1_train, …, or both")
    views, y = _join_parts(path, content, parts)
    return {f"view{number}": value for number, value in views.items()}, y


def _check_content(
    path: Path, content: Mapping[str, np.ndarray], parts: Sequence[str], labels: bool, example: str
) -> None:
    """Refuse a file that lacks a view or the labels of a part, or holds no numbers there."""
    stems = [f"x{number}" for number in _view_numbers(content, parts) or [1]] + ["gt"] * labels
    missing = [f"{stem}_{part}" for stem in stems for part in parts if f"{stem}_{part}" not in content]
    if missing:
        raise InputError(
            f"{path.name} must hold {example}, all numbers; it lacks {', '.join(missing)} and holds "
            f"{', '.join(sorted(content)) or 'nothing'}"
        )


def _view_numbers(content: Mapping[str, np.ndarray], parts: Sequence[str]) -> list[int]:
    return sorted({int(match[1]) for match in map(_VIEW.fullmatch, content) if match and match[2] in parts})


def _join_parts(
    path: Path, found: Mapping[str, np.ndarray], parts: Sequence[str]
) -> tuple[dict[int, np.ndarray], np.ndarray | None]:
    """The parts joined: views by number `[n, feature]`, and labels `[n]` if there are any."""
    numbers = _view_numbers(found, parts)
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
