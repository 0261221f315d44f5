"""`cs.progressive`: progressive fusion around any multimodal model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from torch import nn

from consilience.core.errors import InputError
from consilience.core.settings import OwnCheck, checked
from consilience.methods import Method
from consilience.methods.progressive.progressive_method import loop_method
from consilience.methods.progressive.progressive_module import ProgressiveModule

# Settings that only a method's loop has, and what to do instead for a module.
INSTEAD = {
    "into": "name the inner submodule itself in encoders",
    "step_loss": "add losses of what passes(…) gives to your own",
    "link_penalty": "add the mean square of link_parameters() to your own loss",
}


@checked
def progressive(
    model: Annotated[nn.Module, OwnCheck],
    *,
    encoders: Annotated[Mapping[str, str | nn.Module] | None, OwnCheck] = None,
    fusion: str | nn.Module | None = None,
    steps: int = 2,
    mode: str = "add",
    example: Any = None,
    **options: Any,
) -> nn.Module:
    """Feed what a model has fused back to its encoders, and run it again: `steps` passes in all.

    Before training the result has the outputs of the model, to the last bit.

    Args:
        model: A method (a copy of it is looped; its encoders, fusion and head are known) or any `nn.Module`.
        encoders: For a module: modality → the submodule whose input receives the context.
        fusion: For a module: the submodule whose output is the context.
        steps: The number of passes.
        mode: "add" the context to what a submodule receives, or "concat" it.
        example: For a module: inputs for the dry run that finds the shapes. Without them the first call does it, and
            an optimizer made before that call misses the new weights.
        **options: link_rank, project, detach, statistics, as for `pro:NAME`; for a method also into, step_loss,
            link_penalty.

    Returns:
        The looped model.

    Example:
        >>> import torch
        >>> class TwoBranches(nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.sound, self.sight = nn.Linear(4, 8), nn.Linear(6, 8)
        ...         self.join, self.head = nn.Linear(16, 8), nn.Linear(8, 2)
        ...     def forward(self, sound, sight):
        ...         both = torch.cat([self.sound(sound).relu(), self.sight(sight).relu()], dim=1)
        ...         return self.head(self.join(both).relu())
        >>> base, inputs = TwoBranches(), (torch.randn(3, 4), torch.randn(3, 6))
        >>> loop = progressive(base, encoders={"sound": "sound", "sight": "sight"}, fusion="join", example=inputs)
        >>> torch.equal(loop(*inputs), base(*inputs)), loop.overhead()
        (True, {'base': 250, 'added': 80})
    """
    if isinstance(model, Method):
        if encoders is not None or fusion is not None or example is not None:
            raise InputError("progressive: a method's encoders, fusion and shapes are known: leave them out")
        return loop_method(model, steps=steps, mode=mode, **options)
    if not isinstance(model, nn.Module):
        given = repr(model) if isinstance(model, str) else f"a {type(model).__name__}"
        raise InputError(
            f"progressive: the model must be a built method or an nn.Module, got {given}: by name "
            "there is 'pro:NAME', as in FusionClassifier('pro:concat'); a fitted estimator's method is model_.method"
        )
    if encoders is None or fusion is None:
        raise InputError(
            f"progressive: {type(model).__name__} is not a method of this library: name the submodules that receive "
            "the feedback, encoders={'image': 'path.to.submodule', …}, and the one that is fed back, fusion='path'"
        )
    for option in options:
        if option in INSTEAD:
            raise InputError(f"progressive: {option} is a setting of a method's loop; of a module, {INSTEAD[option]}")
    return ProgressiveModule(model, encoders, fusion, steps=steps, mode=mode, example=example, **options)
