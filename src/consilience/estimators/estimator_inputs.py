"""What every estimator does at the door: whatever the user has becomes samples, and parameters become a trainer."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from scipy.sparse import issparse
from sklearn.utils.validation import validate_data

from consilience.core.errors import InputError, unknown_name
from consilience.core.modalities import Modality, to_numpy
from consilience.core.samples import Kind, Samples
from consilience.estimators.column_selection import Columns, is_frame, split_columns, take_columns
from consilience.estimators.sklearn_parameters import TRAINING, DeclaredParameters
from consilience.training import Callback, Trainer


class ReadsSamples(DeclaredParameters):
    """An estimator that reads samples and trains: the parameters that all of them have."""

    trains = True

    columns: Columns | None = None
    kinds: Mapping[str, Kind] | None = None
    training: Mapping[str, Any] | None = None
    callbacks: Sequence[Callback] | None = None
    random_state: Any = 0
    device: str  # one of the settings of training
    modalities_: tuple[str, ...]

    def _check_mappings(self, *names: str) -> None:
        for name in names:
            value = getattr(self, name)
            if value is not None and not isinstance(value, Mapping):
                raise InputError(f"{name} must be a mapping or None, got {value!r}")

    def _trainer(self, seed: int) -> Trainer:
        """The trainer that the parameters describe."""
        parameters = {name: getattr(self, name) for name in TRAINING}
        further = dict(self.training or {})
        allowed = Trainer.__dataclass_fields__.keys() - {"preparation", "logs", "callbacks"}
        for name, value in further.items():
            if name == "seed":
                raise InputError(f"training: the seed is the parameter random_state; give random_state={value!r}")
            if name not in allowed:
                raise unknown_name("training setting", name, allowed)
            default = self.training_defaults.get(name, TRAINING[name].default) if name in TRAINING else None
            if name in TRAINING and parameters[name] != default:
                raise InputError(f"training: {name!r} is given twice, as a parameter and in training; give one of them")
        return Trainer(**{**parameters, **further}, seed=seed, callbacks=self.callbacks)

    def _read(
        self, X: Any, present: Any = None, weight: Any = None, known: Mapping[str, Modality] | None = None
    ) -> Samples:
        """Read `Samples`, a mapping of arrays, or one table with `columns`.

        known: the modalities of training, which set the kinds; None when fitting.
        """
        # A sparse matrix may be a mapping too; the error of validate_data explains how to make it dense.
        named = isinstance(X, Samples) or (isinstance(X, Mapping) and not issparse(X))
        if named and known is None and self.columns is not None:
            raise InputError("columns= is for one 2-D array or DataFrame; a mapping has the modalities as its keys")
        values = X if named else self._read_table(X, fitting=known is None)
        kinds = self.kinds
        if known is not None:
            # The values alone may look different: token lists of equal length, or texts that are all missing.
            kinds = None if isinstance(X, Samples) else {name: known[name].kind for name in values if name in known}
        return Samples.of(values, kinds=kinds, present=present, weight=weight)

    def _read_table(self, X: Any, fitting: bool) -> dict[str, np.ndarray]:
        """The modalities of a table. NaN is allowed: a modality that is all NaN is missing."""
        if not (fitting or self.columns or hasattr(self, "n_features_in_")):
            names = ", ".join(self.modalities_)
            raise InputError(f"the model was fitted on modalities by name ({names}): give a mapping or Samples of them")
        if not fitting and is_frame(X) and (values := self._read_incomplete(X)):
            return values
        if is_frame(X):  # only the columns in use must be numbers or text
            validate_data(self, X, reset=fitting, skip_check_array=True)
        else:
            X = to_numpy("X", X) if hasattr(X, "detach") else X
            X = validate_data(self, X, reset=fitting, ensure_all_finite=False, ensure_min_samples=2 if fitting else 1)
        split = split_columns(self.columns, X.shape[1], list(getattr(self, "feature_names_in_", ())))
        return {name: take_columns(X, name, positions) for name, positions in split.items()}

    def _read_incomplete(self, X: Any) -> dict[str, np.ndarray] | None:
        """The modalities of a DataFrame without all columns of a modality, or without unused columns.

        None if all columns are present, or if something else is wrong, which the check of scikit-learn then reports.
        """
        header, seen = [str(name) for name in X.columns], [str(name) for name in getattr(self, "feature_names_in_", ())]
        if not seen or header == seen or header != [name for name in seen if name in set(header)]:
            return None
        owned = {
            name: [seen[position] for position in positions]
            for name, positions in split_columns(self.columns, len(seen), seen).items()
        }
        left = {name: own for name, own in owned.items() if set(own) & set(header)}
        if not left or any(set(own) - set(header) for own in left.values()):
            return None
        if lost := [name for name in owned if name not in left]:
            names = ", ".join(map(repr, lost))
            warnings.warn(f"the table has no columns of {names}: missing for every sample", stacklevel=2)
        return {name: take_columns(X, name, [header.index(column) for column in own]) for name, own in left.items()}


def like_input(X: Any, values: np.ndarray) -> Any:
    """Return a tensor on the same device if X holds tensors and the values are numbers, else the array."""
    given = list(X.values()) if isinstance(X, Mapping) else [X]
    if values.dtype.kind in "biuf" and all(hasattr(value, "detach") for value in given):
        return torch.from_numpy(values).to(given[0].device)
    return values
