"""The loss of many perceptrons at once, computed by batched products instead of `torch.func.vmap`.

Most of a step of a small network is overhead, and that of `vmap` is more than that of the products themselves: this
takes less than half the time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from consilience.encoders import Mlp
from consilience.methods import Method
from consilience.training.stacked_data import Trials

# Stacked weights by name and the batches of all trials → the terms of the objective, `[trial]` each.
Objective = Callable[[Mapping[str, Tensor], Trials], dict[str, Tensor]]


def batched_objective(method: Method) -> Objective | None:
    """Return a function that computes the objective of a stack of methods like this one, if there is one.

    There is for a classification by one `Mlp` and a linear head (`Method.stacked_input` says what it reads), whose
    objective is the mean cross-entropy.

    Args:
        method: One of the stacked methods, in training mode; its dropout is used.
    """
    encoder, head = getattr(method, "encoder", None), getattr(method, "head", None)
    plain = isinstance(encoder, Mlp) and encoder.steps is None and isinstance(head, nn.Linear)
    alone = vars(type(method)).get("cross_entropy_alone", False)  # not inherited: a subclass may have another objective
    if not plain or not method.task.classification or not alone:
        return None
    layers = [
        (f"encoder.stages.{name}.{place}", layer)
        for name, block in encoder.stages.items()  # type: ignore[union-attr]
        for place, layer in enumerate(block.children())
    ]

    def objective(weights: Mapping[str, Tensor], batch: Trials) -> dict[str, Tensor]:
        hidden = method.stacked_input(batch.values)
        for name, layer in layers:
            hidden = _apply(layer, name, weights, hidden)
        logits = _linear("head", weights, hidden)
        losses = functional.cross_entropy(logits.flatten(0, 1), batch.y.flatten(), reduction="none").view(batch.y.shape)
        counted = method.stacked_presence(batch.present)
        weight = torch.ones_like(losses) if batch.weight is None else batch.weight
        losses = losses if counted is None else losses * counted
        return {"task": (losses * weight).sum(dim=1) / weight.sum(dim=1)}

    return objective


def _apply(layer: nn.Module, name: str, weights: Mapping[str, Tensor], x: Tensor) -> Tensor:
    """One layer of every trial: `[trial, batch, in]` → `[trial, batch, out]`."""
    if isinstance(layer, nn.Linear):
        return _linear(name, weights, x)
    if isinstance(layer, nn.LayerNorm):
        scale, shift = weights[f"{name}.weight"][:, None], weights[f"{name}.bias"][:, None]
        return functional.layer_norm(x, x.shape[-1:], eps=layer.eps) * scale + shift
    return layer(x)


def _linear(name: str, weights: Mapping[str, Tensor], x: Tensor) -> Tensor:
    return torch.baddbmm(weights[f"{name}.bias"][:, None], x, weights[f"{name}.weight"].transpose(1, 2))
