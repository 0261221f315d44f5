"""The latent model that fills in missing modalities for `FusionClassifier(impute=…)`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from consilience.core.errors import InputError, unknown_name
from consilience.core.samples import Samples
from consilience.estimators.multimodal_vae import MultimodalVAE
from consilience.estimators.sklearn_parameters import TRAINING
from consilience.methods.latent.trained_latent_model import TrainedLatent
from consilience.training.time_limit import Deadline

# Parameters that the imputer has from the estimator where they are not the default and `impute` does not set them;
# only the method hides modalities.
_SHARED_WITH_IMPUTER = ("training", *(name for name in TRAINING if name not in ("modality_dropout", "augment")))
# Parameters of an imputer that the samples and the estimator set.
_NOT_OF_IMPUTE = ("columns", "kinds", "fill", "validation", "random_state", "callbacks", "encoders", "decoders")


def fit_imputer(
    impute: str | Mapping[str, Any],
    parameters: Mapping[str, Any],
    train: Samples,
    validation: Samples | None,
    seed: int,
    deadline: Deadline | None = None,
) -> TrainedLatent:
    """Train the latent model on the training samples without their targets.

    Args:
        impute: An objective, or parameters of `MultimodalVAE`.
        parameters: Parameters of the estimator.
        train: Training samples.
        validation: Samples for early stopping.
        seed: Of initial weights, batches and draws.
        deadline: When it has to end, unless `impute` has a time limit or training settings of its own.
    """
    if not isinstance(impute, str | Mapping):
        raise InputError(
            f"impute must be an objective of MultimodalVAE, a mapping of its parameters, or None, got {impute!r}"
        )
    given = {"objective": impute} if isinstance(impute, str) else dict(impute)
    allowed = MultimodalVAE().get_params(deep=False).keys() - set(_NOT_OF_IMPUTE)
    for name in given:
        if name not in allowed:
            raise unknown_name("setting", name, allowed, "It was given in impute")
    alike = {
        name: parameters[name]
        for name in _SHARED_WITH_IMPUTER
        if name not in TRAINING or parameters[name] != TRAINING[name].default
    }
    if deadline is not None and "time_limit" not in given:
        alike["training"] = {**(alike["training"] or {}), "deadline": deadline}
    held_out = None if validation is None else validation.without_targets()
    model = MultimodalVAE(**{**alike, **given}, validation=held_out, random_state=seed)
    return model.fit(train.without_targets(), sample_weight=train.weight).trained_
