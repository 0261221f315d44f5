"""Walks through the latent: between two samples, and along single dimensions; decoded on the way."""

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
    """From each sample of the first set to its counterpart in the second, on a straight line between posterior means.

    Returns name → `[n, step, *shape]`, the decoders' means in the user's units.
    """
    if len(first) != len(second):
        raise InputError(
            f"interpolation goes from sample to sample: got {len(first)} to start and {len(second)} to end"
        )
    if steps < 2:
        raise InputError(f"steps must be a whole number ≥ 2, got {steps!r}")
    ends = [torch.from_numpy(trained.encode(samples, device=device)[0]) for samples in (first, second)]
    share = torch.linspace(0, 1, steps)[:, None]
    return trained.write(torch.lerp(ends[0][:, None], ends[1][:, None], share), names)


def traverse(
    trained: TrainedLatent,
    start: np.ndarray,
    names: Sequence[str] | None = None,
    dimensions: Sequence[int] | None = None,
    span: float = 2.0,
    steps: int = 9,
) -> dict[str, np.ndarray]:
    """From one latent `[latent]`, each of the dimensions from −span to span: name → `[dimension, step, *shape]`."""
    latent = trained.model.latent
    chosen = list(range(latent)) if dimensions is None else list(dimensions)
    for one in chosen:
        if not 0 <= one < latent:
            raise InputError(f"dimension {one} is not among those of the latent, 0 … {latent - 1}")
    z = torch.from_numpy(np.asarray(start, dtype=np.float32)).expand(len(chosen), steps, latent).clone()
    for place, one in enumerate(chosen):
        z[place, :, one] = torch.linspace(-span, span, steps)
    return trained.write(z, names)


def liveliest(mean: np.ndarray, count: int) -> list[int]:
    """The dimensions along which posterior means `[n, latent]` vary most, the first that of most variance."""
    return np.argsort(-mean.var(axis=0))[:count].tolist()
