"""`impute=`: the latent model that fills in what is missing before a classifier or regressor sees it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from consilience.core.errors import InputError, unknown_name
from consilience.core.samples import Samples
from consilience.estimators.estimator_inputs import without_targets
from consilience.estimators.multimodal_vae import MultimodalVAE
from consilience.methods.latent.trained_latent_model import TrainedLatent

# Trained as the method is, unless `impute` says otherwise.
_ALIKE = (
    "epochs",
    "batch_size",
    "lr",
    "optimizer",
    "weight_decay",
    "patience",
    "training",
    "device",
    "precision",
    "verbose",
)
# What the samples and the estimator decide.
_DECIDED = ("columns", "kinds", "validation", "random_state", "encoders", "decoders")


def fit_imputer(
    impute: str | Mapping[str, Any],
    parameters: Mapping[str, Any],
    train: Samples,
    validation: Samples | None,
    seed: int,
) -> TrainedLatent:
    """A latent model of the training samples, whose targets it does not see.

    impute: an objective, or parameters of `MultimodalVAE` · parameters: those of the estimator it serves.
    """
    if not isinstance(impute, str | Mapping):
        raise InputError(
            f"impute must be an objective of MultimodalVAE, a mapping of its parameters, or None, got {impute!r}"
        )
    given = {"objective": impute} if isinstance(impute, str) else dict(impute)
    allowed = MultimodalVAE().get_params(deep=False).keys() - set(_DECIDED)
    for name in given:
        if name not in allowed:
            raise unknown_name("setting", name, allowed, "It was given in impute")
    alike = {name: parameters[name] for name in _ALIKE}
    held_out = None if validation is None else without_targets(validation)
    model = MultimodalVAE(**{**alike, **given}, validation=held_out, random_state=seed)
    return model.fit(without_targets(train), sample_weight=train.weight).trained_
