"""The class shares under which experts were trained: given, estimated from their opinions, or those of y."""

from __future__ import annotations

from typing import Any

import numpy as np

from consilience.bayes.opinion_inputs import finite_logits, read_prior
from consilience.bayes.priors import estimate_expert_priors
from consilience.core.errors import InputError, unknown_name
from consilience.estimators.opinion_sources import OpinionSet
from consilience.estimators.opinion_warnings import warn_of_other_shares


def expert_prior(
    setting: Any, opinion_set: OpinionSet, y: np.ndarray, weight: np.ndarray | None, classes: np.ndarray
) -> np.ndarray | None:
    """The class prior of the experts, `[class]` or `[modality, class]`; None for the shares of y.

    Args:
        setting: `prior` of `BayesFusion`: "empirical", "experts", or shares.
        opinion_set: Opinions of the samples in fitting.
        y: Class indices `[n]`.
        weight: Weights `[n]` of the samples; None: all count the same.
        classes: Labels `[class]`, for messages.

    Raises:
        UnknownNameError: The setting is another word.
        InputError: The shares are none, or 0 for a class that occurs.
    """
    if isinstance(setting, str):
        if setting not in ("empirical", "experts"):
            raise unknown_name("prior", setting, ["empirical", "experts"], "Or give the classes' shares [class]")
        finite = finite_logits(np.where(opinion_set.present[:, :, None], opinion_set.logits, 0.0))
        if setting == "experts":
            return estimate_expert_priors(finite, y, opinion_set.present, weight=weight)
        warn_of_other_shares(finite, opinion_set, y, np.ones(len(y)) if weight is None else weight)
        return None
    _, modalities, width = opinion_set.logits.shape
    priors = read_prior(setting, modalities, width, opinion_set.names)
    if (priors[:, y] == 0).any():
        rows = np.flatnonzero((priors[:, y] == 0).any(axis=0))
        raise InputError(f"prior: class {classes[y[rows[0]]].item()!r} has share 0, but occurs in y")
    return priors[0] if len(priors) == 1 else priors
