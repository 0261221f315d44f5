"""What an estimator does with validation samples after early stopping: judge the model, and learn from them."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

from consilience.core.errors import InputError, TrustWarning
from consilience.core.samples import Samples
from consilience.estimators.drowned_modality import drowned_modalities, warn_of_drowned
from consilience.training import Model, Trainer
from consilience.training.step_counts import found_steps


class Refits:
    """An estimator that can be trained once more on training and validation samples.

    How often to go over the samples was found by early stopping on validation samples, from which the first model never
    learned. The second is trained on all of them, for as many steps.
    """

    refit: bool
    calibration: Any

    def _check_refit(self, given: bool) -> None:
        """Raise an error if `refit` is asked for and impossible. given: whether the validation set is the user's."""
        if self.refit and given:
            raise InputError(
                "refit=True learns from a share of the training samples that is held out: give validation a share such "
                "as 0.1. Validation samples that are given stay out of the training"
            )
        if self.refit and self.calibration == "validation":
            raise InputError(
                "refit=True learns from the validation samples, and calibration='validation' keeps them out of the "
                "training: give calibration a number of folds, or call calibrate(X, y) with other samples"
            )

    def _judge_and_refit(
        self: Any, model: Model, train: Samples, validation: Samples, whole: Samples, seed: int, class_weight: Any
    ) -> None:
        """Warn of modalities that are better alone, and replace the model by one that was trained on all samples.

        Args:
            model: Trained on `train`, stopped by `validation`.
            train, validation: What it saw, missing modalities filled in where that was asked for.
            whole: Both together, with nothing filled in.
            seed: Of the training.
            class_weight: As for the first model.
        """
        if class_weight is None:  # else the model does not aim at being right most often
            warn_of_drowned(self.method, drowned_modalities(model, train, validation, seed, device=self.device))
        if not self.refit:
            return
        trainer: Trainer = self._trainer(seed)
        folder = None if trainer.checkpoint is None else Path(trainer.checkpoint) / "refit"
        steps = found_steps(model.logs)
        again = replace(trainer, refit_steps=steps, checkpoint=folder, time_limit=None, deadline=None)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TrustWarning)  # of training samples; the first model was judged by others
            final = Model.fit(
                self.method,
                self._filled(whole),
                settings=self.settings,
                encoders=self.encoders,
                task=self._task_kind,
                class_weight=class_weight,
                trainer=again,
            )
        final.misplaced_trust, final.logs = model.misplaced_trust, [*model.logs, *final.logs]
        final.recipe = model.recipe
        if not any(log.interrupted for log in final.logs):  # else the first model is the better one
            self._adopt(final, gives_weights=self.gives_weights_)
