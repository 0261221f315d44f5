"""The split into train, validation and test: drawn with a seed and stratified by class, or given with the data.

A rule draws by groups, by time or in folds instead, see `consilience.data.split_rules`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from consilience.core.errors import InputError, name_rows
from consilience.core.settings import NonNegativeInt, check_value
from consilience.core.targets import TaskKind, check_labels
from consilience.data.split_rules import SplitRule, draw_test, pick

PARTS = ("train", "validation", "test")
# Rows after those that an expanding fold tests are in no part.
UNUSED = "unused"
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
    """The part of each row `[n]`, and which parts came with the data."""

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

    Args:
        y: The targets `[n]`.
        task: A regression is not stratified.
        seed: Of the draw.
        validation: The share of validation samples.
        test: The share of test samples.

    Example:
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
    """The split that came with the data; if it names no validation rows, a share of the train rows is drawn.

    Args:
        values: One word per row: train, validation (or val, dev) or test.
        y: The targets `[n]`.
        task: A regression is not stratified.
        seed: Of the draw.
        validation: The share of the train rows that is drawn.
        where: What error messages call the split.
    """
    parts = _read_parts(values, where)
    if len(parts) != len(y):
        raise InputError(f"{where} has {len(parts)} rows, the targets have {len(y)}")
    for part in ("train", "test"):
        if not (parts == part).any():
            counts = ", ".join(f"{(parts == name).sum()} {name}" for name in PARTS)
            advice = ". A set with two parts is read as train and test; validation is drawn from train"
            raise InputError(f"{where} has no {part} rows ({counts}){advice if part == 'test' else ''}")
    drawn = not (parts == "validation").any()
    if drawn:
        parts = redraw_validation(parts, y, task, seed, validation)
    return Split(parts, True, drawn)


def settle_split(
    given: Any,
    y: np.ndarray,
    task: TaskKind,
    *,
    seed: int = 0,
    where: str = "the split",
    rule: SplitRule | None = None,
) -> Split:
    """The split that came with the data, or if it is None, one drawn 70/15/15 or by a rule.

    Args:
        given: One word per row, or None.
        y: The targets `[n]`.
        task: A regression is not stratified.
        seed: Of the draw.
        where: What error messages call the split.
        rule: Groups, times or folds.

    Raises:
        InputError: The given split has a group in two parts, or there are folds as well.
    """
    if rule is None:
        return draw_split(y, task, seed=seed) if given is None else given_split(given, y, task, seed=seed, where=where)
    if given is None:
        return Split(_draw_by(rule, y, task, seed), False, True)
    if rule.folds is not None:
        raise InputError(f"{where} says which rows are the test part: leave folds out, or the split")
    split = given_split(given, y, task, seed=seed, where=where)
    came = np.where(split.parts == "test", "test", "train") if split.drawn_validation else split.parts
    _check_whole_groups(rule, came, where)
    return redraw(split, y, task, seed, rule)


def redraw(split: Split, y: np.ndarray, task: TaskKind, seed: int, rule: SplitRule | None = None) -> Split:
    """Draw those parts again that did not come with the data, in the same sizes, or by a rule."""
    if not split.official:
        if rule is not None:
            return split._replace(parts=_draw_by(rule, y, task, seed))
        counts = [int((split.parts == part).sum()) for part in ("validation", "test")]
        return split._replace(parts=_draw(y, task, seed, *counts))
    if not split.drawn_validation:
        return split
    if rule is not None:
        seed = check_value("seed", seed, NonNegativeInt)
        pool = np.where(split.parts == "test", "test", "train")
        wanted = max(1, round(VALIDATION_SHARE * int((pool == "train").sum())))
        return split._replace(parts=_draw_validation_by(rule, pool, class_numbers(y, task), wanted, seed))
    return split._replace(parts=redraw_validation(split.parts, y, task, seed))


def redraw_validation(
    parts: np.ndarray, y: np.ndarray, task: TaskKind, seed: int, share: float = VALIDATION_SHARE
) -> np.ndarray:
    """Draw validation from everything that is not test: as many as there were, or if there were none, a share."""
    pool = np.flatnonzero(parts != "test")
    count = int((parts == "validation").sum()) or max(1, round(share * len(pool)))
    parts = parts.astype("<U10")
    parts[pool] = _draw(y[pool], task, seed, count, 0)
    return parts


def class_numbers(y: np.ndarray, task: TaskKind) -> np.ndarray:
    """The number of each sample's class `[n]`; zeros for a regression."""
    return np.unique(check_labels(y), return_inverse=True)[1] if task == "classification" else np.zeros(len(y), int)


def _draw_by(rule: SplitRule, y: np.ndarray, task: TaskKind, seed: int) -> np.ndarray:
    seed, classes = check_value("seed", seed, NonNegativeInt), class_numbers(y, task)
    parts = draw_test(rule, classes, seed, TEST_SHARE)
    whole = len(parts) if rule.folds is None else int((parts == "train").sum())
    return _draw_validation_by(rule, parts, classes, max(1, round(VALIDATION_SHARE * whole)), seed)


def _draw_validation_by(rule: SplitRule, parts: np.ndarray, classes: np.ndarray, count: int, seed: int) -> np.ndarray:
    """The parts with about so many of the train rows as validation."""
    parts = parts.astype("<U10")
    pool = np.flatnonzero(parts == "train")
    if rule.group is None and rule.time is None:
        rng = np.random.default_rng([seed, _STREAM])
        chosen = pick_stratified(classes, pool, count, rng)
        parts[chosen] = "validation"
        lost = np.setdiff1d(classes[pool], classes[parts == "train"])
        parts[[chosen[classes[chosen] == label][0] for label in lost]] = "train"
        return parts
    parts[pick(rule, classes, pool, count, seed)] = "validation"
    return parts


def _check_whole_groups(rule: SplitRule, parts: np.ndarray, where: str) -> None:
    if rule.group is None:
        return
    number = np.unique(parts, return_inverse=True)[1]
    first = np.full(rule.group.max() + 1, len(parts))
    np.minimum.at(first, rule.group, np.arange(len(parts)))
    torn = np.flatnonzero(number != number[first[rule.group]])
    if len(torn):
        row = int(torn[0])
        both = f"{parts[first[rule.group[row]]]} and {parts[row]}"
        raise InputError(f"{where} has samples of {rule.name_of(row)} in {both}: correct it, or leave the group out")


def _draw(y: np.ndarray, task: TaskKind, seed: int, validation: int, test: int) -> np.ndarray:
    n = len(y)
    group = class_numbers(y, task)
    seed = check_value("seed", seed, NonNegativeInt)
    # A stream of its own: a generated set draws its samples from the plain seed.
    rng = np.random.default_rng([seed, _STREAM])
    parts = np.full(n, "train", dtype="<U10")
    parts[pick_stratified(group, np.arange(n), test, rng)] = "test"
    parts[pick_stratified(group, np.flatnonzero(parts == "train"), validation, rng)] = "validation"
    # A class without a train row cannot be learned, so its first row becomes one.
    lost = np.setdiff1d(group, group[parts == "train"])
    rows = np.array([np.flatnonzero(group == label)[0] for label in lost], dtype=int)
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
