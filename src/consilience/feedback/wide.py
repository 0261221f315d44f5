"""The base method widened to as many parameters as its loop has: `wide:NAME`, a control of progressive fusion.

A loop adds weights. What `pro:NAME` gains over `wide:NAME` is owed to where the weights are, not to their number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from consilience.encoders import Encoder, EncoderChoice, build_encoder
from consilience.errors import UnsupportedError
from consilience.feedback.members import Family, member_class
from consilience.feedback.method import PAPER, Progressive, no_loop
from consilience.methods import Method, Spec, register
from consilience.samples import Modality

# Encoders are widened by at most this factor: a loop that outweighs its base more than that has no fair control.
MOST = 16.0


@register("wide:", paper=PAPER)
class Wide(Family):
    """A method whose encoders are widened until it has as many parameters as `pro:NAME` with the same settings.

    steps, mode, into, link_rank, project: of the loop it is a control of. All encoders are widened by one factor; those of
    the user's own and pretrained ones stay as they are.
    """

    def __init__(
        self,
        spec: Spec,
        *,
        steps: int = 2,
        mode: str = "add",
        into: str | Mapping[str, str] | None = None,
        link_rank: int | None = None,
        project: int | None = None,
        **settings: Any,
    ):
        base = type(self).base
        loop = {"steps": steps, "mode": mode, "into": into, "link_rank": link_rank, "project": project}
        with torch.random.fork_rng(devices=[]):  # models built to be counted draw no numbers from the real one's
            target = count(member_class(Progressive, base)(spec, **loop, **settings))
            factor = fitting_factor(lambda factor: count(base(widened_spec(spec, factor), **settings)), target)
        super().__init__(widened_spec(spec, factor), **settings)

    @classmethod
    def no_member(cls, base: type[Method]) -> str | None:
        """There is a control for whatever can be looped."""
        return no_loop(base)


def count(module: nn.Module) -> int:
    """How many numbers are learned."""
    return sum(parameter.numel() for parameter in module.parameters())


def fitting_factor(counted: Any, target: int) -> float:
    """The factor whose parameter count comes nearest to the target, by bisection: the count grows with the factor.

    >>> round(fitting_factor(lambda factor: 1000 * factor, 1500), 3)
    1.5
    """
    low, high = 1.0, MOST
    if counted(high) < target:
        raise UnsupportedError(
            f"wide: encoders widened {MOST:g} times come to {counted(high)} parameters, the loop has {target}: none of "
            "them is one that can be widened, or the loop is far larger than its base"
        )
    best = low
    for _ in range(16):
        middle = (low + high) / 2
        here = counted(middle)
        if abs(here - target) < abs(counted(best) - target):
            best = middle
        low, high = (middle, high) if here < target else (low, middle)
    return round(best, 6)


def widened_spec(spec: Spec, factor: float) -> Spec:
    """The same spec with every encoder that can be widened wider by a factor."""
    choices = {
        name: widened_choice(modality, spec.encoders.get(name), factor) for name, modality in spec.modalities.items()
    }
    return Spec(spec.modalities, spec.task, choices)


def widened_choice(modality: Modality, choice: EncoderChoice, factor: float) -> EncoderChoice:
    """A choice of encoder, wider by a factor.

    >>> widened_choice(Modality("a", "vector", (4,)), {"hidden": [10, 6]}, 1.5)
    {'name': 'mlp', 'hidden': [15, 9]}
    """
    if isinstance(choice, nn.Module) or factor == 1:
        return choice
    built: Encoder = build_encoder(modality, choice)
    setting = type(built).size
    if setting is None:
        return choice
    size: Any = getattr(built, setting)
    # Attention divides the width among its heads.
    unit: Any = next((module.heads for module in built.modules() if hasattr(module, "heads")), 1)
    wider: Any = (
        [scaled(one, factor, unit) for one in size] if isinstance(size, Sequence) else scaled(size, factor, unit)
    )
    given = {"name": choice} if isinstance(choice, str) else dict(choice or {})
    return {"name": built.name, **given, setting: wider}


def scaled(size: int, factor: float, unit: int = 1) -> int:
    """A size times a factor, rounded to a multiple of a unit.

    >>> scaled(64, 1.1), scaled(64, 1.1, unit=4)
    (70, 72)
    """
    return max(unit, round(size * factor / unit) * unit)
