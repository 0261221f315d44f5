"""A fitted `MultimodalVAE`, or one of its encoders, as a folder: safetensors and JSON, nothing that is executed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import nn

from consilience.core.errors import SavedModelError
from consilience.encoders import EncoderChoice
from consilience.estimators.sklearn_parameters import describe_parameters, restore_parameters
from consilience.methods.latent.single_encoder import SingleEncoder
from consilience.methods.latent.trained_latent_model import TrainedLatent
from consilience.training.model_folder import Folder, read_sealed, reunite, write_sealed

if TYPE_CHECKING:
    from consilience.estimators.multimodal_vae import MultimodalVAE

ESTIMATOR, ENCODER = "MultimodalVAE", "EncoderAlone"
_LEARNED = ("n_features_in_", "feature_names_in_", "n_iter_")


def write_latent(path: Path, model: MultimodalVAE) -> Path:
    """Write the folder that `read_latent` reads. Encoders and decoders of one's own are asked for when loading."""
    tensors, described = model.trained_.state()
    parameters = model.get_params(deep=False)
    del parameters["decoders"]  # saved with the model, as the encoders are
    learned = {name: np.asarray(getattr(model, name)).tolist() for name in _LEARNED if hasattr(model, name)}
    return write_sealed(
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
    """The parameters of a saved `MultimodalVAE`, and what it had learned, by the attributes' names."""
    folder = read_sealed(path)
    try:
        described = dict(folder.described["latent"])
        parameters, learned = restore_parameters(folder.described["parameters"]), dict(folder.described["learned"])
        settings = dict(described["settings"])
        described["encoders"] = reunite(path, described["encoders"], encoders or {})
        settings["decoders"] = reunite(path, settings["decoders"] or {}, decoders or {}, "decoders") or None
        described["settings"] = settings
    except (KeyError, TypeError) as error:
        raise SavedModelError(f"loading {path}: the description is damaged: {type(error).__name__}: {error}") from error
    try:
        trained = TrainedLatent.from_state(folder.tensors, described)
    except SavedModelError as error:
        raise SavedModelError(f"loading {path}: {error}") from error
    learned["trained_"], learned["modalities_"] = trained, trained.names
    if "feature_names_in_" in learned:
        learned["feature_names_in_"] = np.array(learned["feature_names_in_"], dtype=object)
    return {**parameters, "encoders": trained.encoders or None, "decoders": settings["decoders"]}, learned


def write_encoder(path: Path, trained: TrainedLatent, name: str) -> Path:
    """Write the encoder of one modality alone."""
    tensors, described = SingleEncoder.of(trained, name).state()
    return write_sealed(path, Folder({"estimator": ENCODER, "encoder": described}, tensors))


def read_encoder(path: Path, encoders: Mapping[str, EncoderChoice] | None = None) -> SingleEncoder:
    """Read what `write_encoder` wrote."""
    folder = read_sealed(path)
    try:
        described = dict(folder.described["encoder"])
        described["encoders"] = reunite(path, described["encoders"], encoders or {})
    except (KeyError, TypeError) as error:
        raise SavedModelError(f"loading {path}: the description is damaged: {type(error).__name__}: {error}") from error
    return SingleEncoder.from_state(folder.tensors, described)
