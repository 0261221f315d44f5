"""The scores of calibration samples in the folder of a saved estimator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from consilience.evaluation.calibration_scores import CalibrationScores
from consilience.training.model_folder import Folder, prefixed

CALIBRATION = "calibration."


def write_calibration(estimator: Any, described: dict[str, Any]) -> dict[str, Tensor]:
    """Return the scores of calibration samples as tensors, and add their description to `described`, if there are any.

    `split_calibration` and `restore_calibration` read them.
    """
    if not hasattr(estimator, "calibration_"):
        return {}
    arrays, described["calibration"] = estimator.calibration_.state()
    return prefixed(CALIBRATION, {name: torch.from_numpy(array) for name, array in arrays.items()})


def split_calibration(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the tensors that are no scores of calibration samples, and those that are, without their prefix."""
    own = Folder({}, dict(tensors)).part(CALIBRATION)
    return {name: tensor for name, tensor in tensors.items() if not name.startswith(CALIBRATION)}, own


def restore_calibration(tensors: Mapping[str, Tensor], described: Mapping[str, Any]) -> CalibrationScores:
    """Return the scores that `write_calibration` wrote."""
    return CalibrationScores.from_state({name: tensor.numpy() for name, tensor in tensors.items()}, described)
