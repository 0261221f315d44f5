"""Saves and loads a fitted `MultimodalVAE`, or one of its encoders, as safetensors and JSON."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import nn

from consilience.encoders import EncoderChoice
from consilience.estimators.sklearn_parameters import describe_parameters, restore_parameters
from consilience.methods.latent.single_encoder import SingleEncoder
from consilience.methods.latent.trained_latent_model import TrainedLatent
from consilience.training.model_folder import Folder, add_custom_modules, read_folder, rebuilding, write_folder

if TYPE_CHECKING:
    from consilience.estimators.multimodal_vae import MultimodalVAE

ESTIMATOR, ENCODER = "MultimodalVAE", "EncoderAlone"
_LEARNED = ("n_features_in_", "feature_names_in_", "n_iter_")


def write_latent(path: Path, model: MultimodalVAE) -> Path:
    """Write the folder that `read_latent` reads. The user's own encoders and decoders must be passed when loading."""
    tensors, described = model.trained_.state()
    parameters = model.get_params(deep=False)
    del parameters["decoders"]  # saved with the model, as the encoders are
    learned = {name: np.asarray(getattr(model, name)).tolist() for name in _LEARNED if hasattr(model, name)}
    return write_folder(
        path,
        Folder(
            {
                "estimator": ESTIMATOR,
                "parameters": describe_parameters(parameters),
                "learned": learned,
                "latent": described,
            },
            tensors,
        ),
    )


def read_latent(
    path: Path,
    encoders: Mapping[str, EncoderChoice] | None = None,
    decoders: Mapping[str, nn.Module] | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the parameters of a saved `MultimodalVAE`, and its fitted attributes by name."""
    folder = read_folder(path)
    with rebuilding(path):
        described = dict(folder.described["latent"])
        parameters, learned = restore_parameters(folder.described["parameters"]), dict(folder.described["learned"])
        settings = dict(described["settings"])
        described["encoders"] = add_custom_modules(path, described["encoders"], encoders or {})
        settings["decoders"] = add_custom_modules(path, settings["decoders"] or {}, decoders or {}, "decoders") or None
        described["settings"] = settings
        trained = TrainedLatent.from_state(folder.tensors, described)
    learned["trained_"], learned["modalities_"] = trained, trained.names
    if "feature_names_in_" in learned:
        learned["feature_names_in_"] = np.array(learned["feature_names_in_"], dtype=object)
    return {**parameters, "encoders": trained.encoders or None, "decoders": settings["decoders"]}, learned


def write_encoder(path: Path, trained: TrainedLatent, name: str) -> Path:
    """Write the encoder of one modality alone."""
    tensors, described = SingleEncoder.of(trained, name).state()
    return write_folder(path, Folder({"estimator": ENCODER, "encoder": described}, tensors))


def read_encoder(path: Path, encoders: Mapping[str, EncoderChoice] | None = None) -> SingleEncoder:
    """Read what `write_encoder` wrote."""
    folder = read_folder(path)
    with rebuilding(path, "the encoder"):
        described = dict(folder.described["encoder"])
        described["encoders"] = add_custom_modules(path, described["encoders"], encoders or {})
        return SingleEncoder.from_state(folder.tensors, described)
