"""Notices a modality that predicts better alone than the trained model does with all of them.

Networks that are trained together fit the training samples by whatever lets the loss fall first. A wide modality that
knows little can fit them by heart, and a narrow one that knows much then learns nothing: it is drowned.
"""

from __future__ import annotations

import math
import warnings
from typing import NamedTuple

import numpy as np

from consilience.core.errors import ModalityWarning
from consilience.core.samples import Samples
from consilience.methods import ExpertMethod, JointMethod
from consilience.methods.opinions.linear_expert import STRENGTHS, path_of_solutions, solving_seconds
from consilience.training import Model, Trainer

# P of a difference by chance, over all modalities together.
_LEVEL = 0.02
# The penalty of the logistic regressions is not chosen: the best of several on the samples that judge would flatter.
_UP_TO = STRENGTHS.index(0.1)
# Training samples that they learn from, and the seconds that one may take.
_ROWS, _LONGEST = 5_000, 5.0


class Drowned(NamedTuple):
    """A modality that is better alone.

    Attributes:
        modality: Its name.
        alone: Share of the validation samples with the modality that its logistic regression has right.
        together: Share of the same samples that the model has right.
        rows: Number of these samples.
    """

    modality: str
    alone: float
    together: float
    rows: int


def drowned_modalities(
    model: Model, train: Samples, validation: Samples, seed: int = 0, *, device: str = "auto"
) -> list[Drowned]:
    """Find modalities whose logistic regression has significantly more validation samples right than the model.

    The two are compared on the same samples by McNemar's exact test, one-sided, at 2 % over all modalities together.
    The most frequent class must be beaten too. A few validation samples can hardly be significant, and the model was
    stopped early by them, which favours it. Only vectors are looked at, and only methods that train all modalities
    together.

    Args:
        model: The trained model of a classification.
        train: What it was trained on.
        validation: Samples that it was not trained on, with y.
        seed: Chooses the training samples where there are many.
        device: Where to predict.

    Returns:
        The modalities, the best one alone first.
    """
    method = model.method
    if not isinstance(method, JointMethod | ExpertMethod) or not model.task.classification or len(method.names) < 2:
        return []
    assert train.y is not None
    assert validation.y is not None
    if len(train) > _ROWS:
        train = train.select(np.sort(np.random.default_rng(seed).choice(len(train), _ROWS, replace=False)))
    y = model.task.encode(validation.y)
    right = model.predict(validation, device=device).output.argmax(dim=1).numpy() == y
    inputs = model.preparation.batch(validation)
    counted = np.ones(len(y), dtype=bool) if validation.weight is None else validation.weight > 0
    trainer = Trainer(preparation=model.preparation, device="cpu")
    names = [name for name in method.names if method.modalities[name].kind == "vector" and name in train]
    found = []
    for name in names:
        size = math.prod(method.modalities[name].shape)
        rows = np.flatnonzero(counted & inputs.present_in(name).numpy())
        if not _can_differ(right[rows], len(names)) or solving_seconds(len(train), size, model.task.outputs) > _LONGEST:
            continue
        weight, bias = path_of_solutions(train, name, trainer, model.task.outputs, up_to=_UP_TO)[-1]
        logits = inputs[name].flatten(1).double().numpy()[rows] @ weight.T + bias
        alone = logits.argmax(axis=1) == y[rows]
        usual = y[rows] == np.bincount(y[rows]).argmax()  # what knows nothing is not drowned
        rivals = right[rows], usual
        if all(chance_of_difference(alone, rival) * len(names) < _LEVEL for rival in rivals):
            found.append(Drowned(name, float(alone.mean()), float(right[rows].mean()), len(rows)))
    return sorted(found, key=lambda each: -each.alone)


def chance_of_difference(first: np.ndarray, second: np.ndarray) -> float:
    """Return the probability that the first of two equally good ones wins so often, where only one is right.

    Args:
        first: Whether the first is right, booleans `[n]`.
        second: Whether the second is right `[n]`.

    Example:
        >>> chance_of_difference(np.array([True] * 8), np.array([False] * 5 + [True] * 3))
        0.03125
    """
    wins, losses = int((first & ~second).sum()), int((second & ~first).sum())
    return sum(math.comb(wins + losses, k) for k in range(wins, wins + losses + 1)) / 2 ** (wins + losses)


def _can_differ(right: np.ndarray, modalities: int) -> bool:
    """Whether the model has so many samples wrong that one right in all of them would be significant."""
    return 2.0 ** -float((~right).sum()) * modalities < _LEVEL


def warn_of_drowned(method: str, found: list[Drowned]) -> None:
    """Warn once of the best modality that is drowned; do nothing if there is none."""
    if not found:
        return
    best = found[0]
    warnings.warn(
        f"{method} is worse than one of its modalities: on {best.rows} validation samples a logistic regression on "
        f"{best.modality!r} alone has {best.alone:.1%} right, {method} with all modalities {best.together:.1%}. "
        "Trained together, the others have drowned it. Use method='auto' or 'bayes', which train the expert of each "
        "modality alone, or try modality_dropout=0.5",
        ModalityWarning,
        stacklevel=4,
    )
