"""Dynamic against static weights, measured: the loss of an output, and of the same experts with constant weights.

Zhang et al. 2023, *Provable Dynamic Fusion for Low-Quality Multimodal Data*, theorem 2: the static weight of a modality
is the mean of its dynamic weight, w̄_m = E[w_m] (eq. 5), here over samples with the same modalities.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from consilience.bayes.calibration import fit_temperature
from consilience.evaluation.trust import ExpertRecord, losses_of
from consilience.evaluation.weighted_sum import mean_weights


@dataclass(frozen=True)
class StaticComparison:
    """Mean losses of a method's output and of Σ_m w̄_m f_m, on the same samples.

    A total weight above one divides the temperature of the output, which changes the loss whatever the weights do from
    sample to sample. So both are also given at the temperature at which their loss is lowest on these samples.

    Attributes:
        loss: Of the method's output.
        static_loss: Of Σ_m w̄_m f_m.
        temperature, static_temperature: Where the loss of each is lowest; None for a regression.
        best_loss, best_static_loss: The losses there; None for a regression.
    """

    loss: float
    static_loss: float
    temperature: float | None = None
    static_temperature: float | None = None
    best_loss: float | None = None
    best_static_loss: float | None = None


def compare_with_static(record: ExpertRecord) -> StaticComparison | None:
    """Compare a method's output with static weights of the same means; None where opinions were not kept."""
    if record.opinions is None or record.output is None or record.truth is None:
        return None
    some = record.present.any(axis=1)
    static = mean_weights(record.weights, record.present)[some]
    outputs = record.output[some], np.einsum("nm,nmc->nc", static, record.opinions[some])
    y, classification = record.truth[some], record.guessing is not None
    loss, static_loss = (float(losses_of(output, y, classification).mean()) for output in outputs)
    if not classification:
        return StaticComparison(loss, static_loss)
    heats = [float(fit_temperature(output[:, None], y, smoothing=0)[0]) for output in outputs]
    best = [float(losses_of(output / heat, y, True).mean()) for output, heat in zip(outputs, heats)]
    return StaticComparison(loss, static_loss, *heats, *best)
