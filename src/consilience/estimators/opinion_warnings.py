"""Warnings about opinions from which a fusion would learn something wrong."""

from __future__ import annotations

import warnings

import numpy as np

from consilience.estimators.opinion_sources import OpinionSet

# The distance between an expert's mean probabilities and the shares of y, beyond that by chance, that is warned of.
_OTHER_SHARES = 0.1


def warn_of_other_shares(logits: np.ndarray, opinion_set: OpinionSet, y: np.ndarray, weight: np.ndarray) -> None:
    """Warn if an expert's mean probabilities are not the shares of the classes in y, which it is taken to know."""
    p = np.exp(logits - logits.max(axis=2, keepdims=True))
    p /= p.sum(axis=2, keepdims=True)
    classes, far = logits.shape[2], []
    for place, name in enumerate(opinion_set.names):
        rows = opinion_set.present[:, place]
        if not rows.any():
            continue
        counted = weight[rows] / weight[rows].sum()
        shares = np.bincount(y[rows], weights=counted, minlength=classes)
        distance = 0.5 * np.abs(counted @ p[rows, place] - shares).sum()
        if distance > _OTHER_SHARES + 0.5 * np.sqrt(classes / rows.sum()):
            far.append(f"{name!r} ({distance:.2f})")
    if far:
        warnings.warn(
            f"the mean probabilities of {', '.join(far)} are far from the shares of the classes in y (in brackets, "
            "half of the sum of absolute differences). If the experts were trained with other shares, on balanced "
            "classes for example, their prior would be counted wrongly: give these shares, prior=[…], or "
            "prior='experts' to estimate them",
            UserWarning,
            stacklevel=4,
        )


def warn_if_perfect(opinion_set: OpinionSet, y: np.ndarray) -> None:
    """Warn if an expert is right on every sample, as it would be on those that it was trained on."""
    wrong = (opinion_set.logits.argmax(axis=2) != y[:, None]) & opinion_set.present
    never = np.flatnonzero(opinion_set.present.any(axis=0) & ~wrong.any(axis=0))
    perfect = [opinion_set.names[place] for place in never]
    if perfect:
        warnings.warn(
            f"{', '.join(map(repr, perfect))} is right on every sample given to fit. If these are the samples the "
            "experts were trained on, their opinions look better than they are: use out-of-fold opinions "
            "(sklearn.model_selection.cross_val_predict), or samples held out",
            UserWarning,
            stacklevel=4,
        )
