"""Train, validation and test: drawn with a seed, the same share of every class in each part, or as the data says."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from consilience.core.errors import InputError, name_rows
from consilience.core.settings import NonNegativeInt, check_value
from consilience.core.targets import TaskKind, check_labels

PARTS = ("train", "validation", "test")
# Words that files use for the three parts.
_SPELLINGS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "valid", "val", "dev"), "validation"),
    **dict.fromkeys(("test", "testing"), "test"),
}
VALIDATION_SHARE = 0.15
TEST_SHARE = 0.15
_STREAM = 1


class Split(NamedTuple):
    """Which part each row belongs to `[n]`, and how much of that was drawn here rather than given with the data."""

    parts: np.ndarray
    official: bool  # the test part came with the data
    drawn_validation: bool


def draw_split(
    y: np.ndarray,
    task: TaskKind,
    *,
    seed: int = 0,
    validation: float = VALIDATION_SHARE,
    test: float = TEST_SHARE,
) -> Split:
    """Draw all three parts, stratified by class; every class is in train, even one of a single sample.

    >>> split = draw_split(np.array([0, 1] * 50), "classification", seed=0, validation=0.2, test=0.2)
    >>> [int((split.parts == part).sum()) for part in PARTS]
    [60, 20, 20]
    """
    n = len(y)
    return Split(_draw(y, task, seed, max(1, round(validation * n)), max(1, round(test * n))), False, True)


def given_split(
    values: Any,
    y: np.ndarray,
    task: TaskKind,
    *,
    seed: int = 0,
    validation: float = VALIDATION_SHARE,
    where: str = "the split",
) -> Split:
    """Take the parts that came with the data; where they name no validation rows, draw a share of the train rows."""
    parts = _read_parts(values, where)
    if len(parts) != len(y):
        raise InputError(f"{where} has {len(parts)} rows, the targets have {len(y)}")
    for part in ("train", "test"):
        if not (parts == part).any():
            counts = ", ".join(f"{(parts == one).sum()} {one}" for one in PARTS)
            advice = ". A set with two parts is read as train and test; validation is drawn from train"
            raise InputError(f"{where} has no {part} rows ({counts}){advice if part == 'test' else ''}")
    drawn = not (parts == "validation").any()
    if drawn:
        parts = redraw_validation(parts, y, task, seed, validation)
    return Split(parts, True, drawn)


def settle_split(given: Any, y: np.ndarray, task: TaskKind, *, seed: int = 0, where: str = "the split") -> Split:
    """The split that came with the data, or where there is None, one drawn 70/15/15."""
    if given is None:
        return draw_split(y, task, seed=seed)
    return given_split(given, y, task, seed=seed, where=where)


def redraw(split: Split, y: np.ndarray, task: TaskKind, seed: int) -> Split:
    """A new draw of whatever was drawn before, with parts of the same size; what came with the data stays."""
    if not split.official:
        counts = [int((split.parts == part).sum()) for part in ("validation", "test")]
        return split._replace(parts=_draw(y, task, seed, *counts))
    if not split.drawn_validation:
        return split
    return split._replace(parts=redraw_validation(split.parts, y, task, seed))


def redraw_validation(
    parts: np.ndarray, y: np.ndarray, task: TaskKind, seed: int, share: float = VALIDATION_SHARE
) -> np.ndarray:
    """Draw validation from everything that is not test: as many as there were, or where there were none, a share."""
    pool = np.flatnonzero(parts != "test")
    count = int((parts == "validation").sum()) or max(1, round(share * len(pool)))
    parts = parts.astype("<U10")
    parts[pool] = _draw(y[pool], task, seed, count, 0)
    return parts


def _draw(y: np.ndarray, task: TaskKind, seed: int, validation: int, test: int) -> np.ndarray:
    n = len(y)
    group = np.unique(check_labels(y), return_inverse=True)[1] if task == "classification" else np.zeros(n, int)
    seed = check_value("seed", seed, NonNegativeInt)
    # A stream of its own: a generated set draws its samples from the plain seed.
    rng = np.random.default_rng([seed, _STREAM])
    parts = np.full(n, "train", dtype="<U10")
    parts[pick_stratified(group, np.arange(n), test, rng)] = "test"
    parts[pick_stratified(group, np.flatnonzero(parts == "train"), validation, rng)] = "validation"
    # A class that training never sees cannot be learned: its first row comes back.
    lost = np.setdiff1d(group, group[parts == "train"])
    rows = np.array([np.flatnonzero(group == one)[0] for one in lost], dtype=int)
    parts[rows] = "train"
    return parts


def pick_stratified(group: np.ndarray, rows: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Exactly `count` of the rows, each group with its share to within one (systematic sampling of sorted groups)."""
    count = min(count, len(rows))
    shuffled = rows[np.lexsort((rng.random(len(rows)), group[rows]))]
    step = np.arange(len(rows) + 1) * count // max(1, len(rows))
    return shuffled[np.diff(step) > 0]


def _read_parts(values: Any, where: str) -> np.ndarray:
    given = np.asarray(values)
    if given.ndim != 1:
        raise InputError(f"{where} must name one part a sample, shape [n], got {list(given.shape)}")
    words, position = np.unique([_word(value) for value in given.tolist()], return_inverse=True)
    read = np.array([_SPELLINGS.get(str(word), "") for word in words], dtype="<U10")[position]
    if (read == "").any():
        rows = np.flatnonzero(read == "")
        value = given[rows[0]]
        found = "an empty cell" if value is None or value == "" else repr(value.item() if given.dtype != "O" else value)
        raise InputError(
            f"{where} holds {found} ({name_rows(rows)}): it must say 'train', 'validation' (or 'val', 'dev') or 'test' "
            "in every row"
        )
    return read


def _word(value: object) -> str:
    return value.strip().lower() if isinstance(value, str) else ""
