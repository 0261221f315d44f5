"""What a comparison finds out about its splits before the first job: classes that parts lack, and what groups change.

Groups are checked on train and validation rows alone: extra trees on all numbers, cross-validated once by random rows
and once by whole groups. If rows of a group are alike, the first says too much.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from consilience.core.samples import Samples
from consilience.data import DataSet
from consilience.data.folds import fold_at_random, fold_groups
from consilience.data.splits import class_numbers

_FOLDS = 3
_ROWS, _FEATURES, _TREES = 4_000, 500, 100
# Rows of larger sets are drawn at random many times over; no class is then missing from a part by chance.
_MOST_ROWS = 200_000


def split_facts(data: DataSet, seeds: int) -> dict[str, Any]:
    """Return what is to be known of a set's splits, in JSON values; nothing where there is nothing to say.

    Args:
        data: The set.
        seeds: How many seeds, each of which may draw parts of its own.

    Returns:
        lacking: part → class → the number of seeds with which the part has no sample of the class.
        group_check: column, given (whether the split is by it), metric, random, grouped.

    Raises:
        InputError: If the train part of a seed lacks a class.
    """
    facts: dict[str, Any] = {}
    lacking: dict[str, dict[str, int]] = {}
    if data.rule is not None or len(data) <= _MOST_ROWS:
        for seed in range(seeds):
            parts = data.draw_parts(seed)
            if data.rule is not None:
                replace(data, split=parts)  # refuses a class that is not learned
            for part, classes in data.lacking_classes(parts).items():
                counted = lacking.setdefault(part, {})
                for name in classes:
                    counted[str(name)] = counted.get(str(name), 0) + 1
    if lacking:
        facts["lacking"] = lacking
    if (check := check_groups(data)) is not None:
        facts["group_check"] = check
    return facts


def check_groups(data: DataSet) -> dict[str, Any] | None:
    """Return what random folds and whole groups say of the same rows; None without groups or a column like groups.

    Args:
        data: Its rule or its hint has the groups.
    """
    given = data.rule is not None and data.rule.group is not None
    if given and not data.official_split:
        assert data.rule is not None
        group, column = data.rule.group, data.rule.column
    elif data.hint is not None:
        group, column = data.hint.codes, data.hint.column
    else:
        return None
    assert group is not None
    rows = np.flatnonzero(np.isin(data.draw_parts(0), ("train", "validation")))
    if len(rows) > _ROWS:  # whole groups
        order = np.random.default_rng(0).permutation(group.max() + 1)[group[rows]]
        rows = rows[np.argsort(order, kind="stable")[:_ROWS]]
    samples = data.samples.select(rows)
    x, group = _numbers(samples), group[rows]
    assert samples.y is not None
    assert data.task is not None
    classes = class_numbers(samples.y, data.task)
    if not x.shape[1] or len(np.unique(group)) < 2 * _FOLDS or samples.y.ndim > 1:
        return None
    kept = {
        "random": fold_at_random(classes, _FOLDS, 0),
        "grouped": fold_groups(group, classes, _FOLDS, 0),
    }
    y = classes if data.task == "classification" else samples.y.astype(np.float64)
    scores = {name: _cross_validate(x, y, fold_of, data.task == "classification") for name, fold_of in kept.items()}
    metric = "accuracy" if data.task == "classification" else "r2"
    return {"column": column, "given": given, "metric": metric, "rows": len(rows), **scores}


def _numbers(samples: Samples) -> np.ndarray:
    """All numbers of the samples `[n, feature]`, at most so many; missing ones and text are left out or 0."""
    tables = [
        samples.read(name).reshape(len(samples), -1).astype(np.float32)
        for name, modality in samples.modalities.items()
        if modality.kind in ("vector", "sequence", "image")
    ]
    if not tables:
        return np.zeros((len(samples), 0), dtype=np.float32)
    joined = np.concatenate(tables, axis=1)
    return np.nan_to_num(joined[:, :: -(-joined.shape[1] // _FEATURES)])


def _cross_validate(x: np.ndarray, y: np.ndarray, fold_of: np.ndarray, classification: bool) -> float:
    """The accuracy, or R², of extra trees on the samples that are held out, all folds together."""
    from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor
    from sklearn.metrics import accuracy_score, r2_score

    model = (ExtraTreesClassifier if classification else ExtraTreesRegressor)(_TREES, random_state=0, n_jobs=1)
    said = np.empty_like(y)
    for fold in range(_FOLDS):
        held = fold_of == fold
        said[held] = model.fit(x[~held], y[~held]).predict(x[held])
    return float((accuracy_score if classification else r2_score)(y, said))


def split_notes(sets: Mapping[str, Mapping[str, Any]], seeds: int) -> list[str]:
    """Return the sentences on the splits that a reader must know.

    Args:
        sets: Name → the description of the set, with its `split_facts`.
        seeds: How many there are.

    Example:
        >>> check = {"column": "patient", "given": True, "metric": "accuracy", "random": 0.82, "grouped": 0.75}
        >>> split_notes({"ward": {"group_check": check}}, 5)
        ['On ward, a random split would have said 82.0 % accuracy, whole groups of patient say 75.0 % (extra trees on
        train and validation rows).']
    """
    notes = []
    for name, about in sets.items():
        if (check := about.get("group_check")) is not None:
            notes.append(_group_note(name, check))
        for part, classes in about.get("lacking", {}).items():
            listing = ", ".join(f"{label} ({count} of {seeds} seeds)" for label, count in classes.items())
            notes.append(
                f"On {name}, the {part} part has no sample of class {listing}: its scores do not show how these are "
                "predicted."
            )
    return notes


def _group_note(name: str, check: Mapping[str, Any]) -> str:
    of, column = "extra trees on train and validation rows", check["column"]
    if check["metric"] == "accuracy":
        random, grouped = (f"{100 * check[way]:.1f} %" for way in ("random", "grouped"))
        random += " accuracy"
    else:
        random, grouped = f"an R² of {check['random']:.2f}", f"{check['grouped']:.2f}"
    if check["given"]:
        return f"On {name}, a random split would have said {random}, whole groups of {column} say {grouped} ({of})."
    return (
        f"On {name}, column {column} looks like a group: the random split of this comparison says {random}, whole "
        f"groups of {column} would say {grouped} ({of}). Use --group {column}."
    )
