"""`consilience.load`: finds out which estimator a folder holds, and reads it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from consilience.core.errors import InputError, SavedModelError
from consilience.core.settings import Names, checked
from consilience.encoders import EncoderChoice
from consilience.estimators.bayes_fusion import BayesFusion
from consilience.estimators.fusion import FusionClassifier, FusionRegressor, load_fusion
from consilience.estimators.multimodal_vae import MultimodalVAE
from consilience.estimators.saving import BAYES, ENCODER, LATENT, read_bayes, read_encoder, read_latent
from consilience.methods.latent.single_encoder import SingleEncoder
from consilience.training.model_folder import loading, published_model, read_description


@checked
def load(
    path: str | Path,
    *,
    encoders: Mapping[str, EncoderChoice] | None = None,
    decoders: Mapping[str, nn.Module] | None = None,
    trusted: str | Names = (),
) -> FusionClassifier | FusionRegressor | BayesFusion | MultimodalVAE | SingleEncoder:
    """Load an estimator that `save` wrote, or an exported encoder.

    Nothing in the folder is executed, no file outside of it is read, and nothing is written. What lies outside of the
    folder is used only if it is passed here.

    Args:
        path: The folder.
        encoders: Modality → encoder, for what is not saved with a model: modules of the user's own, and the pretrained
            model and cache of a `frozen` encoder (`"frozen:FOLDER"`, or its settings).
        decoders: The same for the decoders of a `MultimodalVAE`.
        trusted: Full names of the types of experts that are not defined by scikit-learn. Name only types you trust.

    Returns:
        The fitted estimator, or the encoder.

    Raises:
        SavedModelError: If the folder is damaged, is not a saved model, or needs something that was not given; the
            message says what to pass.

    Example:
        >>> import tempfile
        >>> from consilience import FusionClassifier, load_data
        >>> digits = load_data("digits")
        >>> model = FusionClassifier("late", epochs=1).fit(digits.train)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     again = load(model.save(f"{folder}/digits"))
        >>> bool((again.predict(digits.test) == model.predict(digits.test)).all())
        True
    """
    folder = published_model(Path(path))
    with loading(folder, encoders):
        return _load(folder, encoders, decoders, trusted)


def _load(
    folder: Path,
    encoders: Mapping[str, EncoderChoice] | None,
    decoders: Mapping[str, nn.Module] | None,
    trusted: str | Names,
) -> Any:
    estimator = read_description(folder).get("estimator")
    if decoders and estimator != LATENT:
        raise InputError(f"loading {folder}: only a {LATENT} has decoders, so leave decoders= out")
    if estimator == LATENT:
        return _rebuild(MultimodalVAE, folder, *read_latent(folder, encoders, decoders))
    if estimator == ENCODER:
        return read_encoder(folder, encoders)
    if estimator != BAYES:
        return load_fusion(folder, encoders)
    if encoders:
        raise InputError(f"loading {folder}: a {BAYES} has no encoders, so leave encoders= out")
    return _rebuild(BayesFusion, folder, *read_bayes(folder, trusted))


def _rebuild(cls: Any, path: Path, parameters: Mapping[str, Any], learned: Mapping[str, Any]) -> Any:
    try:
        model = cls(**parameters)
    except TypeError as error:
        raise SavedModelError(
            f"loading {path}: the {cls.__name__} cannot be rebuilt as it was saved: {error}"
        ) from error
    for name, value in learned.items():
        setattr(model, name, value)
    return model
