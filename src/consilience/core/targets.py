"""Targets: classes or numbers, checked, and encoded for training."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from consilience.core.errors import InputError, SavedModelError, TableWarning, listed, name_rows
from consilience.core.modalities import is_missing, to_numpy

TaskKind = Literal["classification", "regression"]


@dataclass(frozen=True, eq=False)
class Task:
    """The task a method is trained for.

    Networks learn standardised targets; predictions are in the units of the user.

    Args:
        kind: "classification" or "regression".
        outputs: Number of classes or targets.
        classes: Labels in the order of the output columns.
        mean: Mean of each target on the training data.
        scale: Standard deviation of each target on the training data.
        flat: Whether the targets of a regression have shape `[n]`, as predictions then do.

    Example:
        >>> task = Task.of_labels(np.array(["cat", "dog", "cat"]))
        >>> task.outputs, task.encode(np.array(["dog", "cat"])).tolist()
        (2, [1, 0])
    """

    kind: TaskKind
    outputs: int
    classes: np.ndarray | None = None
    mean: np.ndarray | None = None
    scale: np.ndarray | None = None
    flat: bool = True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Task) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash((self.kind, self.outputs, self.flat))

    @property
    def classification(self) -> bool:
        """Whether this is a classification."""
        return self.kind == "classification"

    @classmethod
    def of(cls, y: np.ndarray, kind: TaskKind | None = None, weight: np.ndarray | None = None) -> Task:
        """Learn the task from the training targets; without `kind`, fractional numbers mean regression."""
        kind = kind or infer_task_kind(y)
        return cls.of_labels(y) if kind == "classification" else cls.of_numbers(y, weight)

    @classmethod
    def of_labels(cls, y: np.ndarray) -> Task:
        """Learn the classes from training labels `[n]` of integers, strings or booleans."""
        labels = check_labels(y)
        classes = np.unique(labels)
        if len(classes) < 2:
            raise InputError(
                "classification needs at least two classes in the training targets, got one class: "
                f"{classes[0].item()!r}. Check the target column and the split"
            )
        return cls("classification", len(classes), classes=classes)

    @classmethod
    def of_numbers(cls, y: np.ndarray, weight: np.ndarray | None = None) -> Task:
        """Learn mean and scale of training targets `[n]` or `[n, target]`."""
        flat = np.asarray(y).ndim == 1
        numbers = check_numbers(y)
        # Relative to one of its values, a constant target has a standard deviation of exactly 0.
        with np.errstate(over="ignore", invalid="ignore"):
            away = numbers - numbers[0]
            mean = np.average(away, axis=0, weights=weight)
            scale = np.sqrt(np.average((away - mean) ** 2, axis=0, weights=weight))
        if not np.isfinite(scale).all():
            raise InputError(
                f"regression targets spread from {numbers.min():.3g} to {numbers.max():.3g}, too far to square: use "
                "other units, or their logarithm"
            )
        # A constant target is not scaled: dividing by zero would make it NaN.
        scale = np.where(scale > 0, scale, 1.0)
        return cls("regression", numbers.shape[1], mean=numbers[0] + mean, scale=scale, flat=flat)

    @classmethod
    def none(cls) -> Task:
        """Return a task without targets, for models that are trained without them.

        >>> Task.none().outputs
        0
        """
        return cls("regression", 0, mean=np.zeros(0), scale=np.zeros(0))

    def encode(self, y: np.ndarray) -> np.ndarray:
        """Turn targets into class indices `[n]` (int64) or standardised numbers `[n, target]` (float64)."""
        if not self.classification:
            numbers = check_numbers(y)
            if numbers.shape[1] != self.outputs:
                raise InputError(
                    f"targets have {numbers.shape[1]} columns, the model was trained to predict {self.outputs}"
                )
            return (numbers - self.mean) / self.scale
        assert self.classes is not None
        labels = check_labels(y)
        try:
            position = np.searchsorted(self.classes, labels).clip(max=len(self.classes) - 1)
            unseen = self.classes[position] != labels
        except TypeError:  # labels of a type that cannot be ordered against the classes
            position, unseen = np.zeros(len(labels), int), np.ones(len(labels), bool)
        if np.any(unseen):
            rows = np.flatnonzero(unseen)
            raise InputError(
                f"label {labels[rows[0]].item()!r} ({name_rows(rows)}) does not occur in the training targets; "
                f"the classes are {listed(self.classes.tolist())}. Put at least one such sample into training, or drop "
                "the rows"
            )
        return position.astype(np.int64)

    def decode(self, output: np.ndarray) -> np.ndarray:
        """Turn a method's output `[n, output]` into predicted labels `[n]` or numbers in the user's units.

        Raises:
            InputError: If a number is not finite.
        """
        if self.classification:
            assert self.classes is not None
            return self.classes[np.argmax(output, axis=1)]
        assert self.mean is not None
        assert self.scale is not None
        with np.errstate(over="ignore", invalid="ignore"):
            numbers = output.astype(np.float64) * self.scale + self.mean
        broken = ~np.isfinite(numbers).all(axis=1)
        if broken.any():
            raise InputError(
                f"prediction: the predicted number is not finite in {name_rows(np.flatnonzero(broken))}: the values of "
                "these samples are too large, or the model is damaged"
            )
        return numbers[:, 0] if self.flat else numbers

    def to_json(self) -> dict[str, Any]:
        """Return the task as JSON values."""
        described: dict[str, Any] = {"kind": self.kind, "outputs": self.outputs, "flat": self.flat}
        if self.classification:
            assert self.classes is not None
            dtype = self.classes.dtype
            # JSON has no bytes; Latin-1 gives every byte a character of its own.
            classes = np.char.decode(self.classes, "latin-1") if dtype.kind == "S" else self.classes
            described |= {"classes": classes.tolist(), "dtype": dtype.str}
        else:
            assert self.mean is not None
            assert self.scale is not None
            described |= {"mean": self.mean.tolist(), "scale": self.scale.tolist()}
        return described

    @classmethod
    def from_json(cls, described: dict[str, Any], ordered: bool = True) -> Task:
        """Return the task that `to_json` wrote; `ordered`: its classes must be in order, as those of y are."""
        try:
            kind, outputs = described["kind"], int(described["outputs"])
            if kind == "classification":
                dtype = np.dtype(described["dtype"])
                classes = np.array(described["classes"])
                classes = np.char.encode(classes, "latin-1") if dtype.kind == "S" else classes.astype(dtype)
                task = cls(kind, outputs, classes=classes)
                valid = dtype.kind in "biufUS" and classes.shape == (outputs,)
                valid = valid and len(np.unique(classes)) == outputs
                valid = valid and (not ordered or bool((classes[1:] > classes[:-1]).all()))
            else:
                mean, scale = np.array(described["mean"], float), np.array(described["scale"], float)
                task = cls(kind, outputs, mean=mean, scale=scale, flat=described["flat"])
                valid = kind == "regression" and mean.shape == scale.shape == (outputs,)
                valid &= bool(np.isfinite([mean, scale]).all() and (scale > 0).all())
                valid &= isinstance(task.flat, bool) and (outputs <= 1 or not task.flat)
        except (KeyError, TypeError, ValueError) as error:
            raise SavedModelError(f"the saved task cannot be read: {type(error).__name__}: {error}") from error
        if not valid:
            raise SavedModelError(f"the saved task is inconsistent: a {kind} with {outputs} outputs, {described}")
        return task


def infer_task_kind(y: np.ndarray) -> TaskKind:
    """Infer the kind of task: fractional numbers or several columns of floats are a regression.

    >>> infer_task_kind(np.array([0.5, 1.25])), infer_task_kind(np.array(["a", "b"]))
    ('regression', 'classification')
    """
    values = np.asarray(y)
    if values.dtype.kind == "f" and (values.ndim == 2 or np.any(values != np.round(values))):
        return "regression"
    return "classification"


def guess_task(y: np.ndarray, what: str) -> TaskKind:
    """Infer the kind of task from the targets of a file, where whole numbers may be classes or amounts.

    Whole numbers are amounts if a value has few rows, as in AutoGluon: if there are more than 0.1 values a row (0.05
    beyond 1000 rows), or more than 1000 values. Up to 20 values are always classes, which small sets of few classes
    need. Beyond 20 a warning states the guess, since either may be wrong. `what` names the targets.

    >>> guess_task(np.arange(50) % 3, "target column 'stage'")
    'classification'
    """
    values = np.asarray(y)
    if infer_task_kind(values) == "regression" or values.dtype.kind not in "iuf" or values.ndim != 1:
        return infer_task_kind(values)
    different = len(np.unique(values))
    if different <= _FEW_VALUES:
        return "classification"
    share = _VALUES_PER_ROW if len(values) <= _MANY_ROWS else _VALUES_PER_ROW / 2
    amounts = different > min(share * len(values), _MOST_CLASSES)
    guess, other = ("amounts, a regression", "classification") if amounts else ("classes", "regression")
    warnings.warn(
        f"{what} holds {different} different whole numbers in {len(values)} rows, which are taken for {guess}; "
        f"task={other!r} (--task {other}) if they are not",
        TableWarning,
        stacklevel=3,
    )
    return "regression" if amounts else "classification"


# Of `guess_task`.
_FEW_VALUES, _MOST_CLASSES, _MANY_ROWS, _VALUES_PER_ROW = 20, 1000, 1000, 0.1


def check_labels(y: np.ndarray) -> np.ndarray:
    """Check labels `[n]`: integers, strings, booleans or whole-numbered floats."""
    if isinstance(y, list | tuple):
        check_no_trailing_nulls("targets", y)
    labels = _as_array(y)
    if labels.dtype.kind == "f" and isinstance(y, list | tuple) and all(isinstance(label, int) for label in y):
        raise InputError("targets hold whole numbers of which some need more than 64 bits: make all labels strings")
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1:
        raise InputError(
            f"classification targets must be one label per sample, shape [n], got shape {list(labels.shape)}; "
            + _ONE_LABEL
        )
    if not len(labels):
        raise InputError("there are no targets: the set is empty")
    if labels.dtype.kind in "OT":
        labels = _unbox_labels(labels.tolist())
    if labels.dtype.kind == "f":
        if not np.isfinite(labels).all():
            rows = np.flatnonzero(~np.isfinite(labels))
            raise InputError(f"Input y contains NaN or infinity ({name_rows(rows)}); drop or correct these targets")
        if np.any(labels != np.round(labels)):
            raise InputError(
                "Unknown label type: continuous targets for a classifier, for example "
                f"{labels[labels != np.round(labels)][0]}. Use a regressor, or turn the targets into classes"
            )
    if labels.dtype.kind not in "biufUS":
        times = f"; {_NO_TIMES}" if labels.dtype.kind in "mM" else ""
        raise InputError(f"targets of type {labels.dtype} are not labels: use integers, strings or booleans{times}")
    return labels


def label_positions(labels: np.ndarray, place_of: Mapping[Any, int]) -> np.ndarray:
    """Return the position of each label `[n]` by a mapping label → position; −1 for a label that is not in it.

    >>> label_positions(np.array(["cat", "dog", "cat", "bird"]), {"dog": 0, "cat": 1})
    array([ 1,  0,  1, -1])
    """
    different, which = np.unique(labels, return_inverse=True)
    return np.array([place_of.get(label, -1) for label in different.tolist()], dtype=np.int64)[which]


def check_no_trailing_nulls(what: str, labels: Sequence[Any]) -> None:
    """Refuse strings that end in a null character, which numpy would drop: two labels would become one.

    >>> check_no_trailing_nulls("targets", ["a", "a\\0"])
    Traceback (most recent call last):
    consilience.core.errors.InputError: targets: 'a\\x00' ends in a null character (row 1): remove it
    """
    rows = [
        row
        for row, label in enumerate(labels)
        if (isinstance(label, str) and label.endswith("\0")) or (isinstance(label, bytes) and label.endswith(b"\0"))
    ]
    if rows:
        raise InputError(f"{what}: {labels[rows[0]]!r} ends in a null character ({name_rows(rows)}): remove it")


def check_numbers(y: np.ndarray) -> np.ndarray:
    """Check finite numbers `[n]` or `[n, target]`, and return them as float64 `[n, target]`."""
    values = _as_array(y)
    if values.dtype.kind not in "biuf":
        try:
            if values.dtype.kind not in "OUST":  # dates and complex numbers are not converted
                raise TypeError
            values = values.astype(np.float64)
        except (TypeError, ValueError):
            advice = f": {_NO_TIMES}" if values.dtype.kind in "mM" else ""
            raise InputError(f"regression targets must be numbers, got values of type {values.dtype}{advice}") from None
    if values.ndim not in (1, 2):
        raise InputError(f"regression targets must have shape [n] or [n, target], got {list(values.shape)}")
    if not values.size:
        raise InputError(f"there are no targets: the set is empty, its shape is {list(values.shape)}")
    numbers = values.astype(np.float64).reshape(len(values), -1)
    broken = ~np.isfinite(numbers).all(axis=1)
    if broken.any():
        raise InputError(
            f"Input y contains NaN or infinity ({name_rows(np.flatnonzero(broken))}); drop or correct these targets"
        )
    return numbers


_NO_TIMES = "in place of a time, predict a number such as the days or hours since a fixed one"
_ONE_LABEL = "multi-label targets are not supported: train one classifier per label"


def _as_array(y: Any) -> np.ndarray:
    try:
        return to_numpy("targets", y)
    except InputError:
        raise InputError(f"targets must have one label or the same number of values per sample; {_ONE_LABEL}") from None


def _unbox_labels(labels: list[Any]) -> np.ndarray:
    """Convert labels that are Python objects to an array of one type."""
    missing = np.flatnonzero([is_missing(label) for label in labels])
    if len(missing):
        raise InputError(f"targets contain missing labels ({name_rows(missing)})")
    several = np.flatnonzero([isinstance(label, list | tuple | set | frozenset | np.ndarray) for label in labels])
    if len(several):
        raise InputError(f"targets hold several labels ({name_rows(several)}); {_ONE_LABEL}")
    if len({isinstance(label, str) for label in labels}) > 1:
        types = ", ".join(sorted({type(label).__name__ for label in labels}))
        raise InputError(f"targets mix strings with other labels (types {types}): make all labels strings")
    check_no_trailing_nulls("targets", labels)
    array = np.array(labels)
    if array.dtype.kind == "f" and all(isinstance(label, int) for label in labels):
        raise InputError("targets hold whole numbers of which some need more than 64 bits: make all labels strings")
    return array
