"""The inputs of every estimator: mappings, arrays, tables and rows become samples, its parameters become a trainer.

A 2-D table is several modalities: `columns` says which columns belong to which. Arrays in a mapping are the modalities
as they are; a DataFrame in it is read by the names of its columns.
"""

from __future__ import annotations

import warnings
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
from scipy.sparse import issparse
from sklearn.utils.validation import validate_data

from consilience.core.errors import InputError, SavedModelError, unknown_name
from consilience.core.modalities import Modality, to_numpy
from consilience.core.samples import Samples
from consilience.core.settings import checked
from consilience.data.files.cell_fills import Fill
from consilience.data.files.column_encoding import Encoding
from consilience.data.files.column_reading import ColumnKind
from consilience.data.files.table_reading import is_frame, read_header
from consilience.data.files.tables import encode_columns, find_modalities
from consilience.data.loading import read_with_recipe, recipe_columns
from consilience.estimators.column_choice import split_columns
from consilience.estimators.frame_inputs import (
    ADVICE,
    encode_array,
    learn_array,
    learn_frame,
    number_encodings,
    rename_columns,
    without_empty_strings,
)
from consilience.estimators.row_inputs import as_dictionaries, rows_to_frame, rows_to_modalities
from consilience.estimators.sklearn_parameters import TRAINING, DeclaredParameters
from consilience.estimators.torch_data import check_every_row_in_order, is_torch_data, read_torch_data
from consilience.training import Callback, Trainer
from consilience.training.callbacks import check_callbacks


class ReadsSamples(DeclaredParameters):
    """An estimator that reads samples and trains: the parameters that all of them have."""

    trains = True

    columns: Mapping[str, Any] | None = None
    kinds: Mapping[str, Any] | None = None
    fill: Fill = "indicator"
    training: Mapping[str, Any] | None = None
    callbacks: Callback | Sequence[Callback] | None = None
    random_state: Any = 0
    device: str  # one of the settings of training
    modalities_: tuple[str, ...]
    encodings_: dict[str, Encoding]  # of the columns of a table

    def _trainer(self, seed: int) -> Trainer:
        """The trainer that the parameters describe."""
        parameters = {name: getattr(self, name) for name in TRAINING}
        further = dict(self.training or {})
        allowed = Trainer.__dataclass_fields__.keys() - {"preparation", "logs", "callbacks", "stop_by_rows"}
        for name, value in further.items():
            if name == "seed":
                raise InputError(f"training: the seed is the parameter random_state; give random_state={value!r}")
            if name not in allowed:
                raise unknown_name("training setting", name, allowed)
            default = self.training_defaults.get(name, TRAINING[name].default) if name in TRAINING else None
            if name in TRAINING and parameters[name] != default:
                raise InputError(f"training: {name!r} is given twice, as a parameter and in training; give one of them")
        chosen = {**parameters, **further}
        if chosen["steps"] is not None and chosen["epochs"] == self.training_defaults.get("epochs"):
            chosen["epochs"] = None  # not the user's: a budget in steps takes its place
        return Trainer(**chosen, seed=seed, callbacks=check_callbacks(self.callbacks))

    def _read(
        self, X: Any, present: Any = None, weight: Any = None, known: Mapping[str, Modality] | None = None
    ) -> Samples:
        """Read `Samples`, a mapping of arrays or DataFrames, one table with `columns`, or rows.

        known: the modalities of training, which set the kinds; None when fitting.
        """
        if is_torch_data(X):
            if known is not None:
                check_every_row_in_order(X)
            X = read_torch_data(X)
        if (rows := as_dictionaries(X)) is not None:
            if self._reads_by_name(known):
                X = rows_to_modalities(rows, self.modalities_)
            else:
                X = rows_to_frame(rows)
                names = self._feature_names() if known is not None and self.columns is None else []
                # Keys have no order; of a DataFrame that is one modality, scikit-learn requires it.
                X = X.select(names) if names and set(names) <= set(X.columns) else X
        # A sparse matrix may be a mapping too; the error of validate_data explains how to make it dense.
        named = isinstance(X, Samples) or (isinstance(X, Mapping) and not issparse(X))
        if named and known is None and self.columns is not None:
            raise InputError("columns= is for one 2-D array or DataFrame; a mapping has the modalities as its keys")
        if known is not None and is_frame(X) and self._learned_columns() is None and self._recipe():
            values: Any = read_with_recipe(self._recipe(), X).without_targets()
            _warn_of_absent(known, values)
        elif isinstance(X, Samples):
            values = X
        else:
            values = self._read_mapping(X, known) if named else self._read_table(X, known)
        kinds = self._kinds_of_modalities()
        if known is not None:
            # The values alone may look different: token lists of equal length, or texts that are all missing.
            kinds = {name: known[name].kind for name in values if name in known}
        if isinstance(values, Samples) and known is not None:
            kinds = None
        return Samples.of(values, kinds=kinds, present=present, weight=weight)

    @checked
    def read(self, path: str | Path) -> Samples:
        """Read new samples from a file with the layout of the training file."""
        if (recipe := getattr(self, "recipe_", None)) is None:
            raise SavedModelError(
                "reading a file: the model was not trained on samples that load_data read, so the format of a file is "
                "unknown. Give a mapping of arrays"
            )
        return read_with_recipe(recipe, path)

    def _kinds_of_modalities(self) -> Mapping[str, Any] | None:
        """`kinds` without those that say what becomes of a column of a table."""
        if not isinstance(self.kinds, Mapping) or not hasattr(self, "encodings_"):
            return self.kinds
        return {name: kind for name, kind in self.kinds.items() if kind not in get_args(ColumnKind)} or None

    def _recipe(self) -> Mapping[str, Any]:
        """How the file or DataFrame of training was read, if `load_data` did it, and it was a table."""
        recipe = getattr(self, "recipe_", None) or getattr(getattr(self, "model_", None), "recipe", None) or {}
        return recipe if recipe.get("format") == "table" else {}

    def _learned_columns(self) -> dict[str, Encoding] | None:
        """The encodings of the columns of training, of one table or of DataFrames in a mapping."""
        if self.columns or hasattr(self, "n_features_in_"):
            return getattr(self, "encodings_", {})
        return getattr(self, "encodings_", None) or None

    def _known_encodings(self) -> dict[str, Encoding]:
        """The encodings of the columns of training, whether the estimator or `load_data` learned them."""
        if not self._recipe():
            return self._learned_columns() or {}
        learned = recipe_columns(self._recipe())
        return {name: known for name, known in learned.items() if isinstance(known, Encoding)}

    def _reads_by_name(self, known: Mapping[str, Modality] | None) -> bool:
        """Whether a row has one value for each modality, instead of one for each column."""
        return known is not None and self._learned_columns() is None and not self._recipe()

    def _read_mapping(self, X: Mapping[str, Any], known: Mapping[str, Modality] | None) -> dict[str, Any]:
        """The modalities of a mapping, of which DataFrames are encoded; their columns are found by name."""
        values = {name: without_empty_strings(value) for name, value in X.items()}
        frames = {name: frame for name, frame in X.items() if isinstance(name, str) and is_frame(frame)}
        if known is None:
            learned: dict[str, Encoding] = {}
            kinds = self.kinds or {}
            headers = {name: read_header(frame) for name, frame in frames.items()}
            columns = [*frames, *(column for header in headers.values() for column in header)]
            for key, kind in kinds.items():
                if kind in get_args(ColumnKind) and key not in columns:
                    raise unknown_name("modality or column", key, columns, "It was given in kinds")
            for name, frame in frames.items():
                own = {key: kind for key, kind in kinds.items() if key == name or key in headers[name]}
                encodings, read = learn_frame(frame, {name: slice(None)}, (), own, self.fill)
                learned, values = learned | encodings, values | read
            if learned:
                self.encodings_ = learned
            return values
        encodings = {} if self.columns else getattr(self, "encodings_", {})
        for name, frame in frames.items():
            if name in encodings:
                find_modalities(frame, {name: encodings[name]}, read_header(frame))
                values |= encode_columns(frame, {name: encodings[name]}, {}, ADVICE, as_stored=True)[0]
            elif name in known and all(isinstance(column, str) for column in frame.columns):
                warnings.warn(
                    f"modality {name!r} is a DataFrame, but the model was fitted on an array of it: its columns are "
                    "taken by position, whatever their names",
                    stacklevel=2,
                )
        return values

    def _read_table(self, X: Any, known: Mapping[str, Modality] | None) -> dict[str, np.ndarray]:
        """The modalities of a table; NaN is allowed, since a row of a modality that is all NaN is missing."""
        if known is not None and self._learned_columns() is None:
            names = ", ".join(self.modalities_)
            raise InputError(f"the model was fitted on modalities by name ({names}): give a mapping or Samples of them")
        if is_frame(X):
            return self._learn_frame(X) if known is None else self._encode_frame(X, known)
        if strings := self._string_columns():
            raise InputError(
                f"the model was fitted on a DataFrame with columns of strings ({', '.join(map(repr, strings))}): give "
                "a DataFrame with the same column names"
            )
        if known is not None and not (self.columns or hasattr(self, "n_features_in_")):
            raise InputError("the model was fitted on DataFrames by name: give a mapping of them, or one DataFrame")
        return self._read_array(X, fitting=known is None)

    def _read_array(self, X: Any, fitting: bool) -> dict[str, np.ndarray]:
        X = to_numpy("X", X) if hasattr(X, "detach") else X
        X = validate_data(self, X, reset=fitting, ensure_all_finite=False, ensure_min_samples=2 if fitting else 1)
        header = self._feature_names()
        places = split_columns(self.columns, X.shape[1], header)
        split = {name: X[:, positions] for name, positions in places.items()}
        known = header or list(map(str, range(X.shape[1])))
        names = {name: [known[position] for position in positions] for name, positions in places.items()}
        if fitting and self.fill != "none":
            self.encodings_, split = learn_array(split, names, self.kinds or {}, self.fill)
        elif not fitting and hasattr(self, "encodings_"):
            split = encode_array(split, names, self.encodings_)
        return split

    def _learn_frame(self, X: Any) -> dict[str, np.ndarray]:
        # Only the columns in use must be numbers, booleans or strings.
        validate_data(self, X, reset=True, skip_check_array=True)
        names = self._feature_names()
        frame = X if names else rename_columns(X)
        self.encodings_, values = learn_frame(frame, self.columns, names, self.kinds or {}, self.fill)
        return values

    def _encode_frame(self, X: Any, known: Mapping[str, Modality]) -> dict[str, np.ndarray]:
        """Columns are found by name, so that their order does not matter and unused ones may be left out.

        A DataFrame that is one modality of numbers is checked by scikit-learn, which requires the same columns in the
        same order. If the model or the DataFrame has no names of columns, they go by position.
        """
        names = self._feature_names()
        of_mapping = not (self.columns or hasattr(self, "n_features_in_"))
        by_name = of_mapping or (names and all(isinstance(column, str) for column in X.columns))
        if not by_name or (self.columns is None and not of_mapping and not self._string_columns()):
            validate_data(self, X, reset=False, skip_check_array=True)
        frame = X if by_name else rename_columns(X, names)
        encodings = getattr(self, "encodings_", None)
        if encodings is None:  # fitted on an array with fill="none", or saved by a release without encodings
            texts = [name for name, modality in known.items() if modality.kind == "text"]
            encodings = number_encodings(self.columns, names or list(map(str, range(X.shape[1]))), texts)
        there = find_modalities(frame, encodings, read_header(frame))
        values, _ = encode_columns(frame, there, {}, ADVICE, as_stored=True)
        _warn_of_absent(encodings, values)
        return values

    def _feature_names(self) -> list[str]:
        return [str(name) for name in getattr(self, "feature_names_in_", ())]

    def _string_columns(self) -> list[str]:
        encodings = getattr(self, "encodings_", {})
        return [column for encoding in encodings.values() for column in (*encoding.categories, *encoding.calendars)]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.fill != "none"
        return tags


def _warn_of_absent(modalities: Iterable[str], values: Container[str]) -> None:
    if missing := [repr(name) for name in modalities if name not in values]:
        warnings.warn(f"the table has no columns of {', '.join(missing)}: missing for every sample", stacklevel=3)


def recipe_of(train: Samples) -> dict[str, Any] | None:
    """How the training samples were read, without modalities that are not among them."""
    if train.recipe is None:
        return None
    entries = [entry for entry in train.recipe["modalities"] if entry["name"] in train]
    return {**train.recipe, "modalities": entries}
