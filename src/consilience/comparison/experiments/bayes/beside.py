"""Figures to stand beside ours: of the recipe when it was chosen, and those that came with the saved predictions."""

from __future__ import annotations

from consilience.comparison.experiments.bayes.deciding import (
    MEAN,
    OURS,
    SINGLE,
    STACKED,
    SUM,
    TEMPERED,
    THEOREM,
)
from consilience.comparison.experiments.bayes.linear import CONCAT, DROPOUT

Figures = dict[str, tuple[float | None, float | None]]  # way → accuracy in per cent and log-loss, where there are such

_UNEVEN: Figures = {
    SINGLE: (73.7, 0.780),
    MEAN: (90.2, 0.608),
    SUM: (93.2, 0.319),
    THEOREM: (96.2, 0.194),
    TEMPERED: (96.1, 0.162),
    OURS: (97.7, 0.099),
    CONCAT: (97.0, 0.126),
    STACKED: (96.4, 0.153),
}
# (experiment, condition) → figures.
FIGURES: dict[tuple[str, str], Figures] = {
    ("bayes-digits", "n900"): {
        SINGLE: (71.7, 0.849),
        MEAN: (90.9, 0.716),
        SUM: (94.5, 0.266),
        THEOREM: (94.5, 0.266),
        TEMPERED: (94.5, 0.209),
        OURS: (97.2, 0.101),
        CONCAT: (95.8, 0.139),
        STACKED: (94.9, 0.179),
    },
    ("bayes-digits", "n100"): {
        SINGLE: (62.7, 1.157),
        MEAN: (84.5, 0.995),
        SUM: (88.7, 0.434),
        THEOREM: (88.7, 0.434),
        TEMPERED: (88.7, 0.391),
        OURS: (89.5, 0.374),
        CONCAT: (89.1, 0.378),
        STACKED: (88.6, 0.388),
    },
    ("bayes-digits", "uneven"): _UNEVEN,
    ("bayes-digits", "uneven-last"): _UNEVEN,  # which classes were the frequent ones is not recorded
    ("bayes-digits", "missing"): {THEOREM: (None, 0.640), OURS: (None, 0.584), DROPOUT: (None, 0.759)},
    ("bayes-handwritten", "n1000"): {
        SINGLE: (96.4, 0.140),
        MEAN: (98.3, 0.246),
        SUM: (98.6, 0.108),
        THEOREM: (98.6, 0.108),
        TEMPERED: (98.6, 0.049),
        OURS: (98.8, 0.043),
        CONCAT: (98.5, 0.054),
        STACKED: (98.9, 0.046),
    },
    ("bayes-handwritten", "missing"): {THEOREM: (None, 0.203), OURS: (None, 0.174), DROPOUT: (None, 0.273)},
    ("bayes-predictions", "pairs"): {
        "image": (63.8, None),
        "audio": (90.5, None),
        "centralnet": (96.8, None),
        THEOREM: (95.5, None),
        MEAN: (92.5, None),
    },
}
# Σ_c |estimated − true share| of reversed classes, from the fused posterior and from the best expert's alone.
SHARES_OFF = {"bayes-digits": (0.10, 0.29)}
