"""Schedules for each modality, as callbacks of the training; `bench_choices.py` measures whether they help."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from consilience.methods.losses import expert_losses
from consilience.training.callbacks import Callback
from consilience.training.training_settings import LEAST_STEPS, PATIENCE_STEPS


class RateByWidth(Callback):
    """The encoder of a modality learns at a rate ∝ 1/√features, relative to the narrowest one.

    A wide input moves its encoder's outputs further with each step. Every update of the weights is shortened, which is
    a lower rate without an optimizer of its own.
    """

    def on_phase_start(self, run: Any) -> None:
        """Note the weights and the factor of each encoder."""
        widths = {name: np.prod(modality.shape) for name, modality in run.module.modalities.items()}
        self.scaled = [
            (weight, float(np.sqrt(min(widths.values()) / widths[name])), weight.detach().clone())
            for name, encoder in run.module.encoders.items()
            for weight in encoder.parameters()
        ]

    @torch.no_grad()
    def on_step_end(self, run: Any) -> None:
        """Shorten the update."""
        for weight, factor, before in self.scaled:
            weight.copy_(before.lerp(weight, factor))
            before.copy_(weight)


class OwnStop(Callback):
    """The expert of a modality stops at its own lowest validation loss, by the rule that stops a whole training.

    For `late`, whose experts have a loss of their own. The last expert ends with the training.
    """

    def on_phase_start(self, run: Any) -> None:
        """Begin with every expert learning."""
        self.best = dict.fromkeys(run.module.names, (np.inf, 0))
        self.weights: dict[str, dict[str, Tensor]] = {}
        self.stopped: set[str] = set()

    @torch.no_grad()
    def on_epoch_start(self, run: Any) -> None:
        """Judge the experts, and end those that have waited long enough."""
        method, batch = run.module, run.validation.everything
        own = expert_losses(method.task, method.eval()(batch).opinions, batch)
        own = (own * batch.present).sum(dim=0) / batch.present.sum(dim=0).clamp(min=1)
        for name, loss in zip(method.names, own.tolist()):
            if name in self.stopped:
                continue
            parts = self._parts(run, name)
            waited = run.steps - self.best[name][1]
            if loss < self.best[name][0]:
                self.best[name] = loss, run.steps
                self.weights[name] = {key: value.detach().clone() for key, value in parts.state_dict().items()}
            elif len(self.stopped) + 1 < len(method.names) and run.steps >= LEAST_STEPS and waited >= PATIENCE_STEPS:
                self.stopped.add(name)
                parts.load_state_dict(self.weights[name])
                for weight in parts.parameters():
                    weight.requires_grad_(False)
                    weight.grad = None

    def on_phase_end(self, run: Any) -> None:
        """Leave no weight frozen."""
        for name in self.stopped:
            for weight in self._parts(run, name).parameters():
                weight.requires_grad_(True)

    def _parts(self, run: Any, name: str) -> nn.ModuleList:
        return nn.ModuleList([run.module.encoders[name], run.module.heads[name]])
