"""A saved fusion model that only predicts, explains and calibrates: loaded without scikit-learn."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from consilience.core.errors import InputError, SavedModelError
from consilience.core.samples import Samples
from consilience.core.settings import checked
from consilience.core.targets import check_labels, check_numbers
from consilience.encoders import EncoderChoice
from consilience.estimators.fusion_prediction import PredictsClasses, PredictsFusion
from consilience.estimators.prediction_sets import PredictsIntervals
from consilience.estimators.saved_calibration import restore_calibration, split_calibration
from consilience.training import load_model
from consilience.training.model import Model
from consilience.training.model_folder import loading, published_model, read_description, read_extra_tensors, rebuilding


class _SavedModel(PredictsFusion):
    """A model that was loaded; it reads `Samples`, and cannot be fitted."""

    def __init__(self, model: Model, gives_weights: bool, device: str):
        self.device = device
        self._adopt(model, gives_weights)

    def _observed(self, X: Any, present: Any) -> Samples:
        return Samples.of(X, present=present).without_targets()

    def _targets(self, X: Any, y: Any) -> np.ndarray:
        y = X.y if y is None and isinstance(X, Samples) else y
        if y is None:
            raise InputError(f"{type(self).__name__}: targets are needed, but y is None")
        return check_labels(y) if self.model_.task.classification else check_numbers(y)

    @checked
    def trust(self, X: Any, present: Any = None) -> Any:
        """Return the trust in each modality per sample `[n, modality]`, if the method weighs its modalities."""
        return self._trust(X, present)


class SavedClassifier(PredictsClasses, _SavedModel):
    """What `FusionClassifier.save` wrote, for predictions."""


class SavedRegressor(PredictsIntervals, _SavedModel):
    """What `FusionRegressor.save` wrote, for predictions."""


def load_saved(
    path: str | Path, encoders: Mapping[str, EncoderChoice] | None = None
) -> SavedClassifier | SavedRegressor:
    """Load what a `FusionClassifier` or `FusionRegressor` saved, for predictions alone.

    Args:
        path: The folder.
        encoders: As for `consilience.load`.

    Returns:
        An object that predicts as the estimator does.

    Raises:
        SavedModelError: As for `consilience.load`, or if the folder holds another estimator.
    """
    folder = published_model(Path(path))
    with loading(folder, encoders):
        read_description(folder)  # the errors of a folder that is no model come first
        model, extra = load_model(folder, encoders)
        classes: dict[str, Any] = {"FusionClassifier": SavedClassifier, "FusionRegressor": SavedRegressor}
        if str(extra.get("estimator")) not in classes:
            raise SavedModelError(
                f"{path} holds a model but no estimator; read it with consilience.training.load_model"
            )
        with rebuilding(folder, "the estimator"):
            device = str(extra["parameters"].get("device", "auto"))
            saved = classes[extra["estimator"]](model, extra["learned"]["gives_weights_"], device)
            if "imputer" in extra or "calibration" in extra:
                tensors, scores = split_calibration(read_extra_tensors(folder))
            if "imputer" in extra:
                from consilience.methods.latent.trained_latent_model import TrainedLatent

                saved.imputer_ = TrainedLatent.from_state(tensors, extra["imputer"])
            if "calibration" in extra:
                saved.calibration_ = restore_calibration(scores, extra["calibration"])
    return saved


def kind_of_saved(path: str | Path) -> str:
    """Return the name of the estimator in a folder, such as "FusionClassifier"; "" for a model without one."""
    described = read_description(published_model(Path(path)))
    extra = described.get("extra")
    return str(described.get("estimator") or (extra.get("estimator", "") if isinstance(extra, dict) else ""))
