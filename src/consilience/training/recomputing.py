"""Gradient checkpointing: the activations within a layer are computed again for the gradient and not kept.

Memory then grows with the inputs of layers, and not with everything that a layer computes; the forward pass of every
layer is computed twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from consilience.encoders import recomputable_layers


@contextmanager
def recomputed(module: nn.Module, when: bool = True) -> Iterator[int]:
    """Within the block the layers of a module's pretrained encoders and transformers are computed twice, if `when`.

    Dropout is the same both times, so that gradients are those without this. Yields how many layers there are.

    Example:
        >>> from consilience.core.samples import Modality
        >>> from consilience.encoders import build_encoder
        >>> sound = build_encoder(Modality("sound", "sequence", (9, 2)), {"name": "transformer", "layers": 3})
        >>> with recomputed(sound) as layers:
        ...     layers
        3
    """
    layers = list(recomputable_layers(module)) if when else []
    for layer in layers:
        layer.forward = _twice(layer.forward)
    try:
        yield len(layers)
    finally:
        for layer in layers:
            del layer.forward


def _twice(forward: Callable[..., Any]) -> Callable[..., Any]:
    """A forward pass that keeps only its inputs for the gradient."""

    def call(*arguments: Any, **given: Any) -> Any:
        if not torch.is_grad_enabled():
            return forward(*arguments, **given)
        return checkpoint(forward, *arguments, use_reentrant=False, **given)

    return call
