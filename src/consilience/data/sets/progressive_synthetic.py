"""`progressive-synthetic`: the regression of Shankar et al., Progressive Fusion for Multimodal Integration, B.1.

One modality is a function of a latent Z with a disturbance, the other is the disturbance alone, so that the second
helps to correct the first. In equation 3 of the paper a sign is missing; it is taken as a sum.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np

from consilience.core.samples import Samples
from consilience.core.settings import Fraction, Interval, NonNegativeFloat, NonNegativeInt, PositiveInt
from consilience.data.dataset import DataSet
from consilience.data.named_sets import register
from consilience.data.sets.shared_nuisances import correlated
from consilience.data.splits import draw_split

_LEAK = 0.01  # the slope below zero, which the paper does not state: PyTorch's default


@register(
    "progressive-synthetic",
    description="Regression where one modality carries the other's disturbance (Shankar et al. 2022, Progressive "
    "Fusion, B.1)",
)
def progressive_synthetic(
    *,
    n: Annotated[int, Interval(10)] = 2000,
    d: PositiveInt = 4,
    eta: float = 1.0,
    sigma2: NonNegativeFloat = 0.1,
    dependence: Fraction = 0.0,
    seed: NonNegativeInt = 0,
) -> DataSet:
    """Draw Z ~ U[−2.5, 2.5]^d and W₁, W₂, W_y with standard normal entries, and make of them

        x1 = lReLU(W₁Z) + 2|η| sin(W₂Z) + ε₁        x2 = sin(W₂Z) + σ₂ε₂        y = W_y Z + ε_y

    with standard normal noise ε. `dependence` is the correlation of ε₁ and ε₂, which is 0 in the paper: the modalities
    then share a noise besides Z, and the second tells more about the first. `extra` holds the latent `z` `[n, d]` and
    `w_y` `[d]`.
    """
    rng = np.random.default_rng(seed)
    z = rng.uniform(-2.5, 2.5, size=(n, d))
    w_1, w_2, w_y = rng.normal(size=(d, d)), rng.normal(size=(d, d)), rng.normal(size=d)
    disturbance = np.sin(z @ w_2.T)
    signal = z @ w_1.T
    noise_1, noise_2 = rng.normal(size=(n, d)), rng.normal(size=(n, d))
    x1 = np.where(signal > 0, signal, _LEAK * signal) + 2 * abs(eta) * disturbance + noise_1
    x2 = disturbance + sigma2 * correlated(noise_2, noise_1, dependence)
    y = z @ w_y + rng.normal(size=n)
    samples = Samples.of({"x1": x1.astype(np.float32), "x2": x2.astype(np.float32)}, y)
    split = draw_split(y, "regression", seed=seed, validation=0.2, test=0.2)
    return DataSet("progressive-synthetic", samples, "regression", *split, extra={"z": z, "w_y": w_y})
