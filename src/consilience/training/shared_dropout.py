"""Dropout that the models of a stack have in common: a mask for each would take as long as the rest of a step."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn


class _SharedDropout(nn.Module):
    """Dropout with one mask for all models of a stack: a mask for each would take as long as the rest of a step."""

    def __init__(self, rate: float, random: np.random.Generator):
        super().__init__()
        # Random bytes are compared with it, so that the rate is a multiple of 1/256.
        self.dropped, self.random = min(round(256 * rate), 255), random

    def forward(self, x: Tensor) -> Tensor:
        """Set values to 0 at random, and enlarge the others."""
        if not self.training or not self.dropped:
            return x
        drawn = np.frombuffer(self.random.bytes(x.numel()), dtype=np.uint8)
        dtype = np.float64 if x.dtype == torch.float64 else np.float32
        factors = np.multiply(drawn >= self.dropped, 256 / (256 - self.dropped), dtype=dtype)
        return x * torch.from_numpy(factors).view(x.shape).to(x.device, x.dtype)


def share_dropout(module: nn.Module, seed: int) -> None:
    """Replace the dropout of a module that computes for all models of a stack."""
    random = np.random.default_rng([seed, 256])
    for part in list(module.modules()):
        for name, child in part.named_children():
            if type(child) is nn.Dropout:
                part.add_module(name, _SharedDropout(child.p, random).train(child.training))
