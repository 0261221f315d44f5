"""A data set: samples with targets, their split into train, validation and test, and the task."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np

from consilience.core.errors import InputError, listed, name_rows
from consilience.core.samples import Modality, Samples
from consilience.core.settings import Interval, NonNegativeInt, checked
from consilience.core.targets import Task, TaskKind, check_labels, check_numbers
from consilience.data.group_hints import GroupHint
from consilience.data.split_rules import SplitRule
from consilience.data.splits import PARTS, UNUSED, Split, redraw


class SplitFields(NamedTuple):
    """The fields of `DataSet` that may depend on the split, as a reader makes them."""

    samples: Samples
    extra: Mapping[str, Any]
    reading: Mapping[str, Any]


# Makes these fields for another split, if values depend on it (fill values, categories).
Remake = Callable[[np.ndarray], SplitFields]
RECIPE_VERSION = 1
Part = Literal["train", "validation", "test"]


@dataclass(frozen=True, eq=False, repr=False)
class DataSet:
    """Samples with targets, split into train, validation and test.

    Attributes:
        name: Of the set.
        samples: All rows; `samples.index` numbers them over the whole set.
        task: "classification" or "regression"; None without targets.
        split: `[n]` of "train", "validation", "test".
        official_split: Whether the test part came with the data.
        drawn_validation: Whether the validation part was drawn here.
        description: One line.
        licence: Of the data.
        extra: Further facts, such as the true posterior of a generated set.
        remake: Makes samples, extra and reading for another split; None if they do not depend on it.
        reading: What a reader of files learned from the train rows, for `recipe`.
        rule: Groups, times or folds by which parts are drawn; None: single rows at random.
        hint: A column that looks like groups, where no rule has any.

    Example:
        >>> from consilience.data import load_data
        >>> load_data("digits")
        DataSet digits: 1797 samples (1079 train, 359 validation, 359 test), 4 modalities, 10 classes
    """

    name: str
    samples: Samples
    task: TaskKind | None
    split: np.ndarray
    official_split: bool = False
    drawn_validation: bool = True
    description: str = ""
    licence: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)
    remake: Remake | None = None
    reading: Mapping[str, Any] = field(default_factory=dict)
    rule: SplitRule | None = None
    hint: GroupHint | None = None

    def __post_init__(self) -> None:
        if self.rule is not None:
            for codes in (self.rule.group, self.rule.time):
                if codes is not None and len(codes) != len(self.samples):
                    raise InputError(f"data set {self.name!r}: {len(codes)} groups or times for {len(self)} samples")
            ordered = self.samples.ordered_by(self.rule.group, self.rule.time)
            object.__setattr__(self, "samples", ordered)
        if self.split.dtype.kind not in "UO" or self.split.ndim != 1:
            raise InputError(f"data set {self.name!r}: split must be an array [n] of {', '.join(PARTS)}")
        if (self.samples.y is None) != (self.task is None):
            problem = "a task but no targets" if self.task else "targets but no task"
            raise InputError(f"data set {self.name!r} has {problem}")
        if len(self.split) != len(self.samples):
            raise InputError(
                f"data set {self.name!r} has {len(self.samples)} samples, its split {len(self.split)} rows"
            )
        for part in PARTS:
            if not (self.split == part).any():
                raise InputError(f"data set {self.name!r} has {len(self.samples)} samples, none of them for {part}")
        if self.task == "classification":
            self._check_classes()
        elif self.task == "regression":
            check_numbers(self.y)

    def _check_classes(self) -> None:
        labels = check_labels(self.y)
        train = labels[self.split == "train"]
        Task.of_labels(train)  # refuses a single class
        unseen = np.flatnonzero(~np.isin(labels, np.unique(train)) & (self.split != UNUSED))
        if len(unseen):
            raise InputError(
                f"data set {self.name!r}: class {labels[unseen[0]].item()!r} ({name_rows(unseen)}) does not occur in "
                f"the train part. {self._advice_on_class(unseen)}"
            )

    def _advice_on_class(self, unseen: np.ndarray) -> str:
        """What to do about rows of a class that the train part lacks."""
        rule = self.rule
        if rule is not None and rule.group is not None:
            same = unseen[check_labels(self.y)[unseen] == check_labels(self.y)[unseen[0]]]
            found = list(dict.fromkeys(rule.name_of(int(row)) for row in same))
            return (
                f"Its samples there are of {', '.join(found[:3])}{' …' if len(found) > 3 else ''}: give samples of "
                "other groups, drop the rows, or leave the group out"
            )
        if rule is not None and rule.time is not None:
            fewer = ", take fewer folds" if rule.folds is not None else ""
            return f"By {rule.column!r} it comes later than the train rows: drop the rows{fewer}, or leave the time out"
        return "Put at least one such sample there, or drop the rows"

    def __repr__(self) -> str:
        sizes = ", ".join(f"{count} {part}" for part, count in self.sizes.items())
        about = f"{len(self.classes)} classes" if self.classes is not None else self.task or "no targets"
        modalities = f"{len(self.modalities)} modalit{'ies' if len(self.modalities) > 1 else 'y'}"
        return f"DataSet {self.name}: {len(self)} samples ({sizes}), {modalities}, {about}"

    def __len__(self) -> int:
        return len(self.samples)

    @property
    def y(self) -> np.ndarray:
        """All targets: `[n]`, or `[n, target]`."""
        if self.samples.y is None:
            raise InputError(
                f"data set {self.name!r} was loaded without targets, as a model without a target takes it: name the "
                f"column to predict with target= (--target){self._unread()}"
            )
        return self.samples.y

    def _unread(self) -> str:
        columns = self.extra.get("unread")
        return f"; of no modality are {listed(columns)}" if columns else ""

    @property
    def groups(self) -> np.ndarray | None:
        """The group of each row as the data call it `[n]`; None without groups. `train.group` has their numbers."""
        if self.rule is None or self.rule.group is None:
            return None
        return np.array(self.rule.labels)[self.rule.group] if len(self.rule.labels) else self.rule.group

    @property
    def modalities(self) -> dict[str, Modality]:
        """Every modality by name."""
        return self.samples.modalities

    @property
    def sizes(self) -> dict[str, int]:
        """Part → its number of samples."""
        return {part: int((self.split == part).sum()) for part in PARTS}

    @cached_property
    def classes(self) -> np.ndarray | None:
        """The classes in order, or None for a regression and without targets."""
        return np.unique(check_labels(self.y)) if self.task == "classification" else None

    @cached_property
    def train(self) -> Samples:
        """The samples to learn from."""
        return self.part("train")

    @cached_property
    def validation(self) -> Samples:
        """The samples for early stopping and for choosing settings."""
        return self.part("validation")

    @cached_property
    def test(self) -> Samples:
        """The samples to evaluate on."""
        return self.part("test")

    @checked
    def part(self, name: Part) -> Samples:
        """The samples of one part; memory-mapped modalities stay on disk."""
        return self.samples.select(self.split == name).with_recipe(self.recipe())

    @checked
    def resplit(self, seed: NonNegativeInt) -> DataSet:
        """The same data with those parts drawn again that were drawn here, in the same sizes.

        - If no split came with the data, all three parts are drawn, stratified by class.
        - If only a test part came with it, validation is drawn from the rest.
        - If all three parts came with it, nothing changes.

        By groups, by time or in folds if the set has a rule. Fill values and categories of a table are learned again
        from the new train rows.
        """
        parts = self.draw_parts(seed)
        if self.remake is None:
            return replace(self, split=parts)
        return replace(self, split=parts, **self.remake(parts)._asdict())

    def draw_parts(self, seed: int) -> np.ndarray:
        """Return the part of each row `[n]` that `resplit` gives it with a seed."""
        split = Split(self.split, self.official_split, self.drawn_validation)
        y = np.zeros(len(self)) if self.task is None else self.y  # without targets, nothing to stratify by
        return redraw(split, y, self.task or "regression", seed, self.rule).parts

    def lacking_classes(self, parts: np.ndarray | None = None) -> dict[str, list[Any]]:
        """Return part → the classes that it lacks, for parts `[n]` of a classification that lack any."""
        if self.classes is None:
            return {}
        parts, labels = self.split if parts is None else parts, check_labels(self.y)
        found = {part: np.setdiff1d(self.classes, labels[parts == part]).tolist() for part in PARTS}
        return {part: lacking for part, lacking in found.items() if lacking}

    @checked
    def with_folds(self, folds: Annotated[int, Interval(2)]) -> DataSet:
        """Return the set with its test part as one of so many folds, another for every seed of `resplit`."""
        if self.official_split:
            raise InputError(f"data set {self.name!r} comes with its own test part: leave folds out")
        rule = SplitRule(folds=folds) if self.rule is None else replace(self.rule, folds=folds)
        return replace(self, rule=rule).resplit(0)

    def recipe(self) -> dict[str, Any]:
        """How these samples were read, in JSON values, so that `read_with_recipe` reads new ones the same way.

        It holds the kind and shape of every modality; for a table the columns, categories and fill values of the train
        rows; for a named set its options. Whatever has an order is a list, so that sorting the keys changes nothing.

        Example:
            >>> from consilience.data import load_data
            >>> load_data("digits").recipe()["modalities"][0]
            {'name': 'top_left', 'kind': 'vector', 'shape': [16]}
        """
        own = self.reading.get("modalities", {})
        described = {
            "recipe": RECIPE_VERSION,
            "data": self.name,
            "format": "arrays",
            "target": {"name": "y"},
            **self.reading,
            "modalities": [
                {"name": name, "kind": modality.kind, "shape": modality.shape, **own.get(name, {})}
                for name, modality in self.modalities.items()
            ],
        }
        return json.loads(json.dumps(described, default=_plain))

    def describe(self) -> dict[str, Any]:
        """The contents of the set in JSON values: modalities, share of missing samples, classes, sizes of the parts.

        Example:
            >>> from consilience.data import load_data
            >>> load_data("digits").describe()["modalities"][0]
            {'name': 'top_left', 'kind': 'vector', 'shape': [16], 'missing': 0.0}
        """
        files = self.extra.get("files", {})
        filled = self.extra.get("filled", {})
        described: dict[str, Any] = {
            "name": self.name,
            "description": self.description,
            "licence": self.licence,
            "task": self.task,
            "samples": len(self),
            "split": self.sizes,
            "official_split": self.official_split,
            "drawn_validation": self.drawn_validation,
            **({} if self.rule is None else {"split_rule": self.rule.describe()}),
            "on_disk": self.samples.on_disk,
            "modalities": [
                {
                    "name": modality.name,
                    "kind": modality.kind,
                    "shape": list(modality.shape),
                    "missing": float(1 - self.samples.present_in(modality.name).mean()),
                    **({"files": dict(files[modality.name])} if modality.name in files else {}),
                    **({"filled": dict(filled[modality.name])} if modality.name in filled else {}),
                }
                for modality in self.modalities.values()
            ],
        }
        if self.classes is not None:
            labels = check_labels(self.y)
            described["classes"] = [
                {"class": name.item(), "samples": int((labels == name).sum()), "share": float((labels == name).mean())}
                for name in self.classes
            ]
        elif self.task is not None:
            described["targets"] = [
                {"mean": float(y.mean()), "std": float(y.std()), "min": float(y.min()), "max": float(y.max())}
                for y in check_numbers(self.y).T
            ]
        return described


DataSet.__init__ = checked(DataSet.__init__)  # type: ignore[method-assign]


def _plain(value: Any) -> Any:
    """Options of a named set may be arrays."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise InputError(f"{value!r} cannot be part of a recipe: use numbers, strings and lists")
