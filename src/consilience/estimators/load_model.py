"""Saved estimators, back again: which one a folder holds, and who can read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from torch import nn

from consilience.core.errors import InputError, SavedModelError
from consilience.encoders import EncoderChoice
from consilience.estimators.bayes_fusion import BayesFusion
from consilience.estimators.bayes_fusion_saving import ESTIMATOR, read_bayes
from consilience.estimators.fusion import FusionClassifier, FusionRegressor, load_fusion
from consilience.estimators.multimodal_vae import MultimodalVAE
from consilience.estimators.multimodal_vae_saving import ENCODER, read_encoder, read_latent
from consilience.estimators.multimodal_vae_saving import ESTIMATOR as LATENT
from consilience.methods.latent.single_encoder import SingleEncoder
from consilience.training.model_folder import read_description


def load(
    path: str | Path,
    *,
    encoders: Mapping[str, EncoderChoice] | None = None,
    decoders: Mapping[str, nn.Module] | None = None,
    trusted: Sequence[str] = (),
) -> FusionClassifier | FusionRegressor | BayesFusion | MultimodalVAE | SingleEncoder:
    """Read an estimator that `save` wrote, or an encoder that was exported alone; nothing in the folder is executed.

    encoders, decoders: custom ones are passed again · trusted: types of scikit-learn experts that scikit-learn does not
    define itself, by their full names, which whoever loads them answers for.
    """
    folder = Path(path)
    estimator = read_description(folder).get("estimator")
    if decoders and estimator != LATENT:
        raise InputError(f"loading {path}: only a {LATENT} has decoders, so leave decoders= out")
    if estimator == LATENT:
        return _load_latent(folder, encoders, decoders)
    if estimator == ENCODER:
        return read_encoder(folder, encoders)
    if estimator != ESTIMATOR:
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


def _load_latent(
    path: Path, encoders: Mapping[str, EncoderChoice] | None, decoders: Mapping[str, nn.Module] | None
) -> MultimodalVAE:
    parameters, learned = read_latent(path, encoders, decoders)
    try:
        model = MultimodalVAE(**parameters)
    except TypeError as error:
        raise SavedModelError(f"loading {path}: the model cannot be rebuilt as it was saved: {error}") from error
    for name, value in learned.items():
        setattr(model, name, value)
    return model
