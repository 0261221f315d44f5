"""The inputs of every estimator: mappings, arrays and tables become samples, and its parameters become a trainer.

A 2-D table is several modalities: `columns` says which columns belong to which.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.utils.validation import validate_data

from consilience.core.errors import InputError, show, unknown_name
from consilience.core.modalities import Modality, to_numpy
from consilience.core.samples import Kind, Samples
from consilience.data.files.column_encoding import Encoding, learn_encoding
from consilience.data.files.column_reading import is_string, read_columns
from consilience.data.files.table_reading import is_frame, read_header, read_table
from consilience.data.files.tables import choose_columns, encode_columns, find_modalities
from consilience.estimators.sklearn_parameters import TRAINING, DeclaredParameters
from consilience.training import Callback, Trainer
from consilience.training.callbacks import check_callbacks

_ADVICE = "fill single cells beforehand (DataFrame.fillna, fill_null), or drop the rows"
Columns = Mapping[str, slice | int | str | Sequence[int] | Sequence[str]]


class ReadsSamples(DeclaredParameters):
    """An estimator that reads samples and trains: the parameters that all of them have."""

    trains = True

    columns: Mapping[str, Any] | None = None
    kinds: Mapping[str, Any] | None = None
    training: Mapping[str, Any] | None = None
    callbacks: Callback | Sequence[Callback] | None = None
    random_state: Any = 0
    device: str  # one of the settings of training
    modalities_: tuple[str, ...]
    encodings_: dict[str, Encoding]  # of a DataFrame's columns

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
        chosen = {**parameters, **further}
        if chosen["steps"] is not None and chosen["epochs"] == self.training_defaults.get("epochs"):
            chosen["epochs"] = None  # not the user's: a budget in steps takes its place
        return Trainer(**chosen, seed=seed, callbacks=check_callbacks(self.callbacks))

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
        there = find_modalities(frame, encodings, read_header(frame))
        values, _ = encode_columns(frame, there, {}, _ADVICE, as_stored=True)
        if missing := [repr(name) for name in encodings if name not in values]:
            warnings.warn(f"the table has no columns of {', '.join(missing)}: missing for every sample", stacklevel=2)
        return values

    def _feature_names(self) -> list[str]:
        return [str(name) for name in getattr(self, "feature_names_in_", ())]

    def _string_columns(self) -> list[str]:
        encodings = getattr(self, "encodings_", {})
        return [column for encoding in encodings.values() for column in encoding.categories]


def split_columns(columns: Columns | None, width: int, header: Sequence[str] = ()) -> dict[str, list[int]]:
    """Return modality → positions of its columns; without `columns` the table is one modality, "x".

    >>> split_columns({"audio": slice(0, 2), "rest": [2, -1]}, width=4)
    {'audio': [0, 1], 'rest': [2, 3]}
    >>> split_columns({"audio": "mfcc_*"}, width=3, header=["mfcc_0", "mfcc_1", "age"])
    {'audio': [0, 1]}
    """
    if columns is None:
        return {"x": list(range(width))}
    if not isinstance(columns, Mapping) or not columns:
        raise InputError(f"columns must be a mapping of modality → columns, got {show(columns)}")
    split: dict[str, list[int]] = {}
    owner: dict[int, str] = {}
    for modality, chosen in columns.items():
        split[modality] = _positions(modality, chosen, width, header)
        for position in split[modality]:
            if position in owner:
                column = repr(header[position]) if header else position
                problem = (
                    f"is twice in modality {modality!r}"
                    if owner[position] == modality
                    else f"is in two modalities, {owner[position]!r} and {modality!r}"
                )
                raise InputError(f"columns: column {column} {problem}")
            owner[position] = modality
    return split


def learn_frame(
    frame: Any, columns: Columns | None, header: Sequence[str], kinds: Mapping[str, Kind]
) -> tuple[dict[str, Encoding], dict[str, np.ndarray]]:
    """How the columns of each modality of a DataFrame become features, and these features.

    Columns are encoded as `load_data` encodes those of a table, with two differences: numbers keep their precision, and
    a single column of strings is text unless `kinds` says "vector". `header` is empty if the columns have no names.
    """
    names = read_header(frame)
    encodings, values = {}, {}
    for name, positions in split_columns(columns, len(names), header).items():
        part = read_table(frame, [names[position] for position in positions])
        text = kinds.get(name) == "text" or (name not in kinds and len(positions) == 1 and is_string(part.dtypes[0]))
        if text and len(positions) > 1:
            raise InputError(f"modality {name!r} of kind text must be one column, got {len(positions)}")
        read = read_columns(name, part, text, as_stored=True)
        encodings[name] = learn_encoding(read, np.ones(len(part), dtype=bool), fill=None)
        values[name] = encodings[name].encode(read, _ADVICE)
    return encodings, values


def rename_columns(frame: Any, names: Sequence[str] = ()) -> Any:
    """A DataFrame with other column names, by default "0", "1", …"""
    names = names or [str(position) for position in range(len(frame.columns))]
    if hasattr(frame, "set_axis"):  # pandas
        return frame.set_axis(names, axis=1)
    return frame.rename(dict(zip(frame.columns, names)))


def number_encodings(columns: Columns | None, header: Sequence[str], texts: Collection[str]) -> dict[str, Encoding]:
    """The encodings of columns of numbers, and of one column of text for each modality in `texts`."""
    encodings = {}
    for name, positions in split_columns(columns, len(header), header).items():
        own = [header[position] for position in positions]
        encodings[name] = Encoding(own[0], [], None, {}) if name in texts else Encoding(None, own, None, {})
    return encodings


def _positions(modality: str, chosen: Any, width: int, header: Sequence[str]) -> list[int]:
    what = f"columns of modality {modality!r}"
    if isinstance(chosen, slice):
        positions = list(range(width))[chosen]
    else:
        wanted = np.atleast_1d(np.asarray(chosen))
        if any(isinstance(entry, str) for entry in wanted.flat):
            return _named(what, modality, chosen, header)
        if wanted.dtype.kind == "b" and wanted.shape == (width,):
            wanted = np.flatnonzero(wanted)
        if wanted.size and (wanted.dtype.kind not in "iu" or wanted.ndim != 1):
            raise InputError(
                f"{what} must be a slice, positions, a mask of all {width} columns, names or globs, got {chosen!r} "
                f"(n_features = {width})"
            )
        beyond = wanted[(wanted < -width) | (wanted >= width)]
        if beyond.size:
            raise InputError(f"{what}: no column {beyond[0]} (n_features = {width})")
        positions = [int(position) % width for position in wanted]
    if not positions:
        raise InputError(f"{what}: {chosen!r} selects no column (n_features = {width})")
    return positions


def _named(what: str, modality: str, chosen: Any, header: Sequence[str]) -> list[int]:
    if not header:
        raise InputError(f"{what} are names ({chosen!r}), but the table has none: give a DataFrame, or positions")
    places = {name: position for position, name in enumerate(header)}
    return [places[name] for name in choose_columns(header, {modality: chosen}, reserved=())[modality]]
