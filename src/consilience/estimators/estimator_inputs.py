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
from consilience.data.files.column_encoding import Encoding
from consilience.data.files.table_reading import is_frame
from consilience.estimators.column_selection import (
    Columns,
    encode_frame,
    learn_frame,
    number_encodings,
    rename_columns,
    split_columns,
)
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
    encodings_: dict[str, Encoding]  # of a DataFrame's columns

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
        values = X if named else self._read_table(X, known)
        kinds = self.kinds
        if known is not None:
            # The values alone may look different: token lists of equal length, or texts that are all missing.
            kinds = None if isinstance(X, Samples) else {name: known[name].kind for name in values if name in known}
        return Samples.of(values, kinds=kinds, present=present, weight=weight)

    def _read_table(self, X: Any, known: Mapping[str, Modality] | None) -> dict[str, np.ndarray]:
        """The modalities of a table; NaN is allowed, since a row of a modality that is all NaN is missing."""
        if known is not None and not (self.columns or hasattr(self, "n_features_in_")):
            names = ", ".join(self.modalities_)
            raise InputError(f"the model was fitted on modalities by name ({names}): give a mapping or Samples of them")
        if is_frame(X):
            return self._learn_frame(X) if known is None else self._encode_frame(X, known)
        if strings := self._string_columns():
            raise InputError(
                f"the model was fitted on a DataFrame with columns of strings ({', '.join(map(repr, strings))}): give "
                "a DataFrame with the same column names"
            )
        X = to_numpy("X", X) if hasattr(X, "detach") else X
        fitting = known is None
        X = validate_data(self, X, reset=fitting, ensure_all_finite=False, ensure_min_samples=2 if fitting else 1)
        split = split_columns(self.columns, X.shape[1], self._feature_names())
        return {name: X[:, positions] for name, positions in split.items()}

    def _learn_frame(self, X: Any) -> dict[str, np.ndarray]:
        # Only the columns in use must be numbers, booleans or strings.
        validate_data(self, X, reset=True, skip_check_array=True)
        names = self._feature_names()
        frame = X if names else rename_columns(X)
        self.encodings_, values = learn_frame(frame, self.columns, names, self.kinds or {})
        return values

    def _encode_frame(self, X: Any, known: Mapping[str, Modality]) -> dict[str, np.ndarray]:
        """Columns are found by name, so that their order does not matter and unused ones may be left out.

        A DataFrame that is one modality of numbers is checked by scikit-learn, which requires the same columns in the
        same order. If the model or the DataFrame has no names of columns, they go by position.
        """
        names = self._feature_names()
        by_name = names and all(isinstance(column, str) for column in X.columns)
        if not by_name or (self.columns is None and not self._string_columns()):
            validate_data(self, X, reset=False, skip_check_array=True)
        frame = X if by_name else rename_columns(X, names)
        encodings = getattr(self, "encodings_", None)
        if encodings is None:  # fitted on an array, or saved by a release that did not save encodings
            texts = [name for name, modality in known.items() if modality.kind == "text"]
            encodings = number_encodings(self.columns, names or list(map(str, range(X.shape[1]))), texts)
        values = encode_frame(frame, encodings)
        if missing := [repr(name) for name in encodings if name not in values]:
            warnings.warn(f"the table has no columns of {', '.join(missing)}: missing for every sample", stacklevel=2)
        return values

    def _feature_names(self) -> list[str]:
        return [str(name) for name in getattr(self, "feature_names_in_", ())]

    def _string_columns(self) -> list[str]:
        encodings = getattr(self, "encodings_", {})
        return [column for encoding in encodings.values() for column in encoding.categories]


def like_input(X: Any, values: np.ndarray) -> Any:
    """Return a tensor on the same device if X holds tensors and the values are numbers, else the array."""
    given = list(X.values()) if isinstance(X, Mapping) else [X]
    if values.dtype.kind in "biuf" and all(hasattr(value, "detach") for value in given):
        return torch.from_numpy(values).to(given[0].device)
    return values
