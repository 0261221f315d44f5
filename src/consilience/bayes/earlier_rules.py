"""The learned buffers of a `BayesRule` that an earlier version saved, in today's form."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from consilience.bayes.kappa import Coefficients
from consilience.bayes.presence_coefficients import interpolated


def translate_earlier(rule: nn.Module, state_dict: dict[str, Any], prefix: str) -> None:
    """Add to a saved state, in place, what the rule of its version did not have; the rule answers as it did then.

    Rules of 0.1 were fitted as if y followed the experts' prior. Without `plain_temperature`, the default was another
    calibration, and one fit served all sets of modalities.
    """
    if prefix + "prior" in state_dict and prefix + "shift" not in state_dict:
        state_dict[prefix + "shift"] = torch.zeros_like(rule.get_buffer("shift"))
        state_dict[prefix + "target"] = state_dict[prefix + "prior"].clone()
    saved = state_dict.get(prefix + "weights")
    # Another shape is refused in loading; the table of a damaged file could be too large for the memory.
    if saved is None or saved.shape != rule.get_buffer("temperature").shape:
        return
    if prefix + "plain_temperature" not in state_dict:
        state_dict[prefix + "plain_temperature"] = torch.ones_like(rule.get_buffer("temperature"))
        state_dict[prefix + "plain_share"] = torch.zeros_like(rule.get_buffer("plain_share"))
        alpha, beta = (state_dict.get(prefix + name, torch.zeros(())) for name in ("alpha", "beta"))
        table = interpolated(Coefficients(saved.double().cpu().numpy(), float(alpha), float(beta)), len(saved))
        for name, values in (("weights", table.weights), ("alpha", table.alpha), ("beta", table.beta)):
            if prefix + name in state_dict:
                state_dict[prefix + name] = values.to(saved)
