"""A training set as whole batches, for what is not trained by gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from consilience.core.batches import Batch
from consilience.core.samples import Samples
from consilience.training.augment_batch import Augmenter
from consilience.training.batch_loader import BatchLoader

if TYPE_CHECKING:
    from consilience.training.trainer import Trainer

# Copies of the training samples, each with other noise, if the training is augmented.
COPIES = 2


def whole_batches(train: Samples, trainer: Trainer, reads: str | None = None) -> list[Batch]:
    """Return all samples as one batch on the CPU; with augmentation, as noisy copies.

    Args:
        train: Training samples.
        trainer: With the preparation, and noise where training is augmented.
        reads: The only modality that is read. Values of the others are not corrupted then; they only go missing.
    """
    assert trainer.preparation is not None
    loader = BatchLoader(train, trainer.preparation, torch.device("cpu"), resident=True)
    whole = loader.everything
    assert whole is not None
    augmenter = Augmenter.of(trainer.augment, loader, reads)
    if augmenter is None:
        return [whole]
    return [augmenter.in_epoch(trainer.seed + copy)(whole) for copy in range(COPIES)]
