"""Saved estimators, back again: which one a folder holds, and who can read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from consilience.encoders import EncoderChoice
from consilience.errors import InputError, SavedModelError
from consilience.estimators.bayes import BayesFusion
from consilience.estimators.bayes_saving import ESTIMATOR, read_bayes
from consilience.estimators.fusion import FusionClassifier, FusionRegressor, load_fusion
from consilience.training.saving import read_description


def load(
    path: str | Path, *, encoders: Mapping[str, EncoderChoice] | None = None, trusted: Sequence[str] = ()
) -> FusionClassifier | FusionRegressor | BayesFusion:
    """Read an estimator that `save` wrote; nothing in the folder is executed.

    encoders: custom ones are passed again · trusted: types of scikit-learn experts that scikit-learn does not define
    itself, by their full names, which whoever loads them answers for.
    """
    folder = Path(path)
    if read_description(folder).get("estimator") != ESTIMATOR:
        return load_fusion(folder, encoders)
    if encoders:
        raise InputError(f"loading {path}: a {ESTIMATOR} has no encoders, so leave encoders= out")
    parameters, learned = read_bayes(folder, trusted)
    try:
        model = BayesFusion(**parameters)
    except TypeError as error:
        raise SavedModelError(f"loading {path}: the fusion cannot be rebuilt as it was saved: {error}") from error
    for name, value in learned.items():
        setattr(model, name, value)
    return model
