"""What every estimator does at the door: whatever the user has becomes samples, and parameters become a trainer."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from scipy.sparse import issparse
from sklearn.utils.validation import validate_data

from consilience.core.errors import InputError, unknown_name
from consilience.core.modalities import Modality, to_numpy
from consilience.core.samples import Kind, Samples
from consilience.estimators.column_selection import Columns, is_frame, split_columns, take_columns
from consilience.estimators.sklearn_parameters import NestedParameters
from consilience.training import Trainer


class ReadsSamples(NestedParameters):
    """An estimator with the parameters `columns`, `kinds` and `training`, and those of `Trainer` that it has itself."""

    columns: Columns | None
    kinds: Mapping[str, Kind] | None
    training: Mapping[str, Any] | None
    modalities_: tuple[str, ...]

    def _forget(self) -> None:
        """If fitting fails, no model of an earlier fit is left to be taken for the new one."""
        for name in [name for name in vars(self) if name.endswith("_") and not name.startswith("_")]:
            delattr(self, name)

    def _check_mappings(self, *names: str) -> None:
        for name in names:
            value = getattr(self, name)
            if value is not None and not isinstance(value, Mapping):
                raise InputError(f"{name} must be a mapping or None, got {value!r}")

    def _trainer(self, seed: int) -> Trainer:
        fields = Trainer.__dataclass_fields__.keys() - {"preparation", "logs", "seed"}
        own = {name: value for name, value in self.get_params(deep=False).items() if name in fields}
        for name, value in (self.training or {}).items():
            if name in own or name == "seed":
                parameter = "random_state" if name == "seed" else name
                raise InputError(f"training: {name!r} is a parameter of its own; give {parameter}={value!r}")
            if name not in fields:
                raise unknown_name("training setting", name, fields - own.keys())
        return Trainer(**own, **(self.training or {}), seed=seed)

    def _read(
        self, X: Any, present: Any = None, weight: Any = None, known: Mapping[str, Modality] | None = None
    ) -> Samples:
        """Whatever the user has, as samples: `Samples`, a mapping of arrays, or one table and `columns`.

        known: the modalities of training, which decide how the same names are read again; None when fitting.
        """
        # A sparse matrix may be a mapping too; validate_data says how to make it dense.
        named = isinstance(X, Samples) or (isinstance(X, Mapping) and not issparse(X))
        if named and known is None and self.columns is not None:
            raise InputError("columns= is for one 2-D array or DataFrame; a mapping names its modalities itself")
        values = X if named else self._read_table(X, fitting=known is None)
        kinds = self.kinds
        if known is not None:
            # Token lists that happen to be of equal length, say, or texts that all are missing.
            kinds = None if isinstance(X, Samples) else {name: known[name].kind for name in values if name in known}
        return Samples.of(values, kinds=kinds, present=present, weight=weight)

    def _read_table(self, X: Any, fitting: bool) -> dict[str, np.ndarray]:
        """A table's modalities; NaN is let through, since a modality that is all NaN is missing."""
        if not (fitting or self.columns or hasattr(self, "n_features_in_")):
            names = ", ".join(self.modalities_)
            raise InputError(f"the model was fitted on modalities by name ({names}): give a mapping or Samples of them")
        if not fitting and is_frame(X) and (there := self._read_what_is_left(X)):
            return there
        if is_frame(X):  # of whose columns only those in use must be numbers, or a text
            validate_data(self, X, reset=fitting, skip_check_array=True)
        else:
            X = to_numpy("X", X) if hasattr(X, "detach") else X
            X = validate_data(self, X, reset=fitting, ensure_all_finite=False, ensure_min_samples=2 if fitting else 1)
        split = split_columns(self.columns, X.shape[1], list(getattr(self, "feature_names_in_", ())))
        return {name: take_columns(X, name, positions) for name, positions in split.items()}

    def _read_what_is_left(self, X: Any) -> dict[str, np.ndarray] | None:
        """The modalities of a DataFrame from which a failed sensor's columns, or unused ones, were left out.

        None where all columns are there, or where something else is amiss, of which scikit-learn's check then speaks.
        """
        header, seen = [str(one) for one in X.columns], [str(one) for one in getattr(self, "feature_names_in_", ())]
        if not seen or header == seen or header != [one for one in seen if one in set(header)]:
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
        return {name: take_columns(X, name, [header.index(one) for one in own]) for name, own in left.items()}


def without_targets(samples: Samples) -> Samples:
    """The same samples without y and weights: what is to be predicted must not matter, known to training or not."""
    if samples.y is None and samples.weight is None:
        return samples
    return Samples(samples.modalities, samples.values, samples.present, samples.lengths, None, None, samples.index)


def like_input(X: Any, values: np.ndarray) -> Any:
    """Tensors, where the modalities are, if that is what came in; else numpy, as for labels that are text."""
    given = list(X.values()) if isinstance(X, Mapping) else [X]
    if values.dtype.kind in "biuf" and all(hasattr(one, "detach") for one in given):
        return torch.from_numpy(values).to(given[0].device)
    return values
