"""A check of a trained method: does it give a modality more weight, the larger that modality's own loss is?"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import torch

from consilience.core.batches import Batch
from consilience.core.correlation import Correlation, correlation, static_weights
from consilience.core.errors import TrustWarning
from consilience.core.samples import Samples
from consilience.corruption import Corruptor
from consilience.methods import expert_losses

if TYPE_CHECKING:
    from consilience.training.model import Model

# The milder of the levels in Zhang et al.: noise of five standard deviations, or every second word, on every second
# modality. Below it, confidence may still fall with the noise where it rises beyond.
LEVEL = 5.0
# Samples that are scored. With so many, a correlation of 0.1 is significant.
MOST = 500
# Methods to recommend; the one that is warned about is left out.
_UNMOVED_BY_CONFIDENCE = ("late-probs", "bayes-robust")


def misplaced_trust(model: Model, samples: Samples, *, device: str = "auto") -> dict[str, Correlation]:
    """Find modalities whose weight grows with their own loss on mildly corrupted samples: r(w, ℓ) > 0.

    Zhang et al. 2023, *Provable Dynamic Fusion for Low-Quality Multimodal Data*, theorem 2, requires r ≤ 0 for every
    modality. A weight that depends only on which modalities are present is ignored: it rises with the loss if samples
    that lack others are harder, although it judges none of them.

    Args:
        model: The trained model.
        samples: Samples with y; at most 500 of them, evenly spread, are scored.
        device: Where to predict.

    Returns:
        Modality → correlation, where the whole confidence interval lies above 0. Empty for a method without opinions
        or weights.
    """
    if model.predict(samples[:1], device=device).weights is None:
        return {}
    rows = np.unique(np.linspace(0, len(samples) - 1, MOST).round().astype(np.int64))
    damaged = Corruptor(model.reference()).apply(samples[rows], level=LEVEL)
    prediction = model.predict(damaged, device=device)
    if prediction.opinions is None or prediction.weights is None:
        return {}
    assert damaged.y is not None
    y = torch.from_numpy(model.task.encode(damaged.y))
    names = tuple(model.preparation.raw)
    present = torch.from_numpy(damaged.present_among(names))
    # Targets and present modalities; the losses need no inputs.
    batch = Batch({}, present, index=torch.arange(len(y)), weight=torch.ones(len(y)), y=y)
    losses = expert_losses(model.task, prediction.opinions, batch)
    counted = present & prediction.weights.isfinite() & losses.isfinite()
    static = static_weights(prediction.weights.float().nan_to_num().double().numpy(), present.numpy())
    correlations = {
        name: correlation(prediction.weights[:, column], losses[:, column], counted[:, column])
        for column, name in enumerate(names)
        if not static[column]
    }
    return {name: value for name, value in correlations.items() if value.positive}


def warn_of_misplaced_trust(method: str, correlations: Mapping[str, Correlation]) -> None:
    """Warn once of all modalities that `misplaced_trust` found; do nothing if there are none."""
    if not correlations:
        return
    figures = ", ".join(f"{name} (r = {c.r:+.2f}, {c.low:+.2f} … {c.high:+.2f})" for name, c in correlations.items())
    others = " or ".join(name for name in _UNMOVED_BY_CONFIDENCE if name != method)
    warnings.warn(
        f"{method} trusts a modality more when it is wrong: on mildly corrupted samples the weight of {figures} rises "
        "with that modality's own loss. Where features grow with the noise, so does an expert's confidence. Bound them "
        "with an encoder that has a norm layer, such as mlp with normalise=True (its default), or choose a method "
        f"that does not weigh by confidence, such as {others}",
        TrustWarning,
        stacklevel=3,
    )
