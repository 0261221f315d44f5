"""A look at a freshly trained method: does it trust a modality more, the more that modality is wrong?"""

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
# Samples looked at. With so many, a correlation of .1 stands out from chance.
MOST = 500
# What to turn to; the second can itself be found wanting, and is then not recommended.
_UNMOVED_BY_CONFIDENCE = ("late-probs", "bayes-robust")


def misplaced_trust(model: Model, samples: Samples, *, device: str = "auto") -> dict[str, Correlation]:
    """The modalities whose weight grows with their own loss once some samples are mildly corrupted: r(w, ℓ) > 0.

    Zhang et al. 2023, *Provable Dynamic Fusion for Low-Quality Multimodal Data*, theorem 2, wants r ≤ 0 for every
    modality. Only what chance does not explain is told: the whole confidence interval lies above 0. Empty for a method
    without opinions or weights. A weight that depends on nothing but which modalities are present is passed over: it
    rises with the loss where samples that lack others are harder, and yet judges none of them. samples: with y; at
    most 500 of them, evenly spread, are scored.
    """
    if model.predict(samples[:1], device=device).weights is None:
        return {}
    rows = np.unique(np.linspace(0, len(samples) - 1, MOST).round().astype(np.int64))
    damaged = Corruptor(model.reference()).apply(samples[rows], level=LEVEL)
    made = model.predict(damaged, device=device)
    if made.opinions is None or made.weights is None:
        return {}
    assert damaged.y is not None
    y = torch.from_numpy(model.task.encode(damaged.y))
    names = tuple(model.preparation.raw)
    present = torch.from_numpy(
        np.stack([damaged.present_in(name) if name in damaged else np.zeros(len(y), bool) for name in names], axis=1)
    )
    # What is to be judged, without the inputs.
    batch = Batch({}, present, index=torch.arange(len(y)), weight=torch.ones(len(y)), y=y)
    losses = expert_losses(model.task, made.opinions, batch)
    counted = present & made.weights.isfinite() & losses.isfinite()
    static = static_weights(made.weights.float().nan_to_num().double().numpy(), present.numpy())
    found = {
        name: correlation(made.weights[:, column], losses[:, column], counted[:, column])
        for column, name in enumerate(names)
        if not static[column]
    }
    return {name: one for name, one in found.items() if one.positive}


def warn_of_misplaced_trust(method: str, found: Mapping[str, Correlation]) -> None:
    """One warning for all modalities that are trusted more the more they are wrong; silent if there are none."""
    if not found:
        return
    figures = ", ".join(f"{name} (r = {one.r:+.2f}, {one.low:+.2f} … {one.high:+.2f})" for name, one in found.items())
    others = " or ".join(name for name in _UNMOVED_BY_CONFIDENCE if name != method)
    warnings.warn(
        f"{method} trusts a modality more when it is wrong: on mildly corrupted samples the weight of {figures} rises "
        "with that modality's own loss. Where features grow with the noise, so does an expert's confidence. Bound them "
        "with an encoder that has a norm layer, such as mlp with normalise=True (its default), or choose a method "
        f"that does not weigh by confidence, such as {others}",
        TrustWarning,
        stacklevel=3,
    )
