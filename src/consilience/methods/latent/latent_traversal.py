"""Decoded paths through the latent: between two samples, and along single dimensions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from consilience.core.errors import InputError
from consilience.core.samples import Samples
from consilience.methods.latent.trained_latent_model import TrainedLatent


def interpolate(
    trained: TrainedLatent,
    first: Samples,
    second: Samples,
    names: Sequence[str] | None = None,
    steps: int = 9,
    device: str = "auto",
) -> dict[str, np.ndarray]:
    """Decode a straight line between the posterior means of each sample of the first set and its counterpart.

    Returns:
        Name → `[n, step, *shape]`, the decoders' means in the user's units.
    """
    if len(first) != len(second):
        raise InputError(
            f"interpolation goes from sample to sample: got {len(first)} to start and {len(second)} to end"
        )
    if steps < 2:
        raise InputError(f"steps must be a whole number ≥ 2, got {steps!r}")
    ends = [torch.from_numpy(trained.encode(samples, device=device)[0]) for samples in (first, second)]
    share = torch.linspace(0, 1, steps)[:, None]
    return trained.decode(torch.lerp(ends[0][:, None], ends[1][:, None], share), names)


def traverse(
    trained: TrainedLatent,
    start: np.ndarray,
    names: Sequence[str] | None = None,
    dimensions: Sequence[int] | None = None,
    span: float = 2.0,
    steps: int = 9,
) -> dict[str, np.ndarray]:
    """Vary each of some dimensions of a latent `[latent]` from −span to span: name → `[dimension, step, *shape]`."""
    latent = trained.model.latent
    chosen = list(range(latent)) if dimensions is None else list(dimensions)
    for dimension in chosen:
        if not 0 <= dimension < latent:
            raise InputError(f"dimension {dimension} is not among those of the latent, 0 … {latent - 1}")
    z = torch.from_numpy(np.asarray(start, dtype=np.float32)).expand(len(chosen), steps, latent).clone()
    for place, dimension in enumerate(chosen):
        z[place, :, dimension] = torch.linspace(-span, span, steps)
    return trained.decode(z, names)


def most_varying_dimensions(mean: np.ndarray, count: int) -> list[int]:
    """Return the dimensions along which posterior means `[n, latent]` vary most, in decreasing order."""
    return np.argsort(-mean.var(axis=0))[:count].tolist()
