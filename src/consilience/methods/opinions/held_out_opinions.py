"""Out-of-fold opinions on training samples, kept after cross-fitting to fuse them with some modalities hidden."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from consilience.bayes.reliability import Measured
from consilience.core.samples import Samples
from consilience.data.folds import folds_as_groups
from consilience.methods import Method, PerModality
from consilience.methods.opinions.bayes import Rule, RuleData, fit_rule
from consilience.methods.opinions.modality_views import is_numeric, view
from consilience.training import Trainer


@dataclass
class HeldOut:
    """What a method keeps of its cross-fitting. Samples of weight 0 are not part of it.

    Attributes:
        learned: Out-of-fold opinions, targets, what is present, and weights, of n samples.
        rows: These among all training samples, ascending `[n]`.
        fold_of: Their folds `[n]`.
        samples: All training samples.
        trainer: How to predict.
        experts: The experts of the folds, by modality and fold.
        rules: One for each fold, learned from the opinions of the others; None before they are needed.
        measured: Out-of-fold, in the order of `rows`; None before it is needed.
    """

    learned: RuleData
    rows: np.ndarray
    fold_of: np.ndarray
    samples: Samples
    trainer: Trainer
    experts: Sequence[Sequence[Method]]
    rules: Sequence[Rule] | None = None
    measured: Measured | None = None

    def fit_rules(self, build: Callable[[], Rule], folds: int) -> list[Rule]:
        """Build a rule for each fold and fit it to the opinions of the other folds, in 64 bits."""
        rules = []
        for fold in range(folds):
            others = np.flatnonzero(self.fold_of != fold)
            groups = folds_as_groups(self.samples, self.fold_of[others])
            rules.append(fit_rule(build().double(), self.learned.select(others), groups))
        return rules

    def by_fold(self, rows: np.ndarray) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """Yield each fold, which of the given training samples `[k]` are in it, and where they are in `self.rows`."""
        place = np.searchsorted(self.rows, rows).clip(max=len(self.rows) - 1)
        known = self.rows[place] == rows
        for fold in np.unique(self.fold_of[place[known]]):
            chosen = np.flatnonzero(known & (self.fold_of[place] == fold))
            yield int(fold), chosen, place[chosen]

    def parts(self, most: int) -> Iterator[tuple[int, np.ndarray]]:
        """Yield all samples in parts of one fold each, of at most so many: the fold, and places in `self.rows`."""
        for fold in np.unique(self.fold_of):
            own = np.flatnonzero(self.fold_of == fold)
            for start in range(0, len(own), most):
                yield int(fold), own[start : start + most]


def training_views(
    experts: PerModality,
    parts: Sequence[Samples],
    trainer: Trainer,
    fold_experts: Sequence[Sequence[Method]],
    fold_of: np.ndarray,
    fold: int | None,
) -> list[np.ndarray]:
    """Every modality's view of the parts, one after the other; features are those of the fold's own expert.

    Of spoilt parts, features of samples in other folds are zeros, since they are not needed.

    Args:
        experts: Those of all samples, by modality.
        parts: The training samples, then their spoilt copies.
        trainer: How to predict.
        fold_experts: By modality and fold.
        fold_of: Each training sample's fold `[n]`.
        fold: Whose experts to use. None: those of all samples.
    """
    assert trainer.preparation is not None
    batches = [trainer.preparation.batch(part) for part in parts]
    views = []
    for m, (name, expert) in enumerate(experts.items()):
        modality = expert.modalities[name]
        if is_numeric(modality):
            views.append(np.concatenate([view(modality, batch, None, torch.float64).numpy() for batch in batches]))
            continue
        used, width = expert if fold is None else fold_experts[m][fold], expert.encoder.width
        seen = np.zeros((len(parts), len(fold_of), width))
        for number, part in enumerate(parts):
            rows = np.flatnonzero(fold_of == fold) if number else np.arange(len(fold_of))
            if len(rows):
                joint = trainer.predict(used, part.select(rows)).joint
                seen[number, rows] = view(modality, batches[number], joint, torch.float64).numpy()
        views.append(seen.reshape(-1, width))
    return views
