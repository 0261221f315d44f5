"""The base method widened to as many parameters as its loop has: `wide:NAME`, a control of progressive fusion.

A loop adds weights. What `pro:NAME` gains over `wide:NAME` is owed to where the weights are, not to their number.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

from consilience.core.errors import UnsupportedError
from consilience.core.samples import Modality
from consilience.encoders import Encoder, EncoderChoice, build_encoder
from consilience.encoders.choice import read_choice
from consilience.methods import Method, Spec, register
from consilience.methods.progressive.method_family import Family, member_class
from consilience.methods.progressive.progressive_method import PAPER, Progressive, no_loop

# Encoders are widened by at most this factor: a loop that outweighs its base more than that has no fair control.
MOST = 16.0
# How far, relatively, the number of parameters may be off before encoders are widened by factors of their own.
NEAR = 0.01


@register("wide:", paper=PAPER)
class Wide(Family):
    """A method whose encoders are widened until it has as many parameters as `pro:NAME` with the same settings.

    steps, mode, into, link_rank, project: of the loop it is a control of. All encoders are widened by one factor, or by
    factors of their own where that comes nearer; those of the user's own and pretrained ones stay as they are. A method
    whose width is a setting of its own (`mult`, `ef-lstm`) is widened by that.
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
            if base.size is None:
                plain: Any = base(spec, **settings)
                spec = spec.preferring(plain.choices)  # a method may have encoders of its own choice
                counted = partial(_encoders_wider, base, spec, settings)
                spec = widened_spec(spec, fitting_factors(counted, tuple(spec.modalities), target))
            else:
                factor = fitting_factor(lambda one: count(base(spec, **widened_settings(base, settings, one))), target)
                settings = widened_settings(base, settings, factor)
        super().__init__(spec, **settings)

    @classmethod
    def no_member(cls, base: type[Method]) -> str | None:
        """There is a control for whatever can be looped."""
        return no_loop(base)


def count(module: nn.Module) -> int:
    """How many numbers are learned."""
    return sum(parameter.numel() for parameter in module.parameters())


def _encoders_wider(base: Any, spec: Spec, settings: Mapping[str, Any], factors: dict[str, float]) -> int:
    return count(base(widened_spec(spec, factors), **settings))


def widened_settings(base: type[Method], settings: Mapping[str, Any], factor: float) -> dict[str, Any]:
    """A method's settings with its own width times a factor, in units of its heads where attention divides it."""
    assert base.size is not None
    known = {one.name: one.default for one in inspect.signature(base.__init__).parameters.values()}
    given = {**known, **settings}
    return {**settings, base.size: scaled(given[base.size], factor, given.get("heads", 1))}


def fitting_factors(
    counted: Callable[[dict[str, float]], int], names: tuple[str, ...], target: int
) -> dict[str, float]:
    """Factors, by modality, whose parameter count comes within a hundredth of the target, or as near as can be."""
    together = fitting_factor(lambda factor: counted(dict.fromkeys(names, factor)), target)
    factors = dict.fromkeys(names, together)
    for name in names:  # widths are whole numbers: what one encoder cannot meet, several can
        if abs(counted(factors) - target) <= NEAR * target:
            break
        others = {one: factor for one, factor in factors.items() if one != name}
        try:
            alone = fitting_factor(partial(_with, counted, others, name), target)
        except UnsupportedError:  # one that cannot be widened
            continue
        factors = min(factors, {**factors, name: alone}, key=lambda one: abs(counted(one) - target))
    return factors


def _with(counted: Callable[[dict[str, float]], int], others: Mapping[str, float], name: str, factor: float) -> int:
    return counted({**others, name: factor})


def fitting_factor(counted: Callable[[float], int], target: int) -> float:
    """The factor whose parameter count comes nearest to the target, by bisection: the count grows with the factor.

    >>> round(fitting_factor(lambda factor: round(1000 * factor), 1500), 2)
    1.5
    """
    low, high = 1.0, 2.0
    while counted(high) < target:
        if high >= MOST:
            raise UnsupportedError(
                f"wide: encoders widened {high:g} times come to {counted(high)} parameters, the loop has {target}: "
                "none of them is one that can be widened, or the loop is far larger than its base"
            )
        low, high = high, 2 * high
    ends: dict[float, int] = {one: counted(one) for one in (low, high)}
    for _ in range(14):
        middle = (low + high) / 2
        ends[middle] = counted(middle)
        low, high = (middle, high) if ends[middle] < target else (low, middle)
    return min(ends, key=lambda factor: abs(ends[factor] - target))


def widened_spec(spec: Spec, factors: Mapping[str, float]) -> Spec:
    """The same spec with every encoder that can be widened wider by its factor."""
    choices = {
        name: widened_choice(modality, spec.encoders.get(name), factors[name])
        for name, modality in spec.modalities.items()
    }
    return Spec(spec.modalities, spec.task, choices)


def widened_choice(modality: Modality, choice: EncoderChoice, factor: float) -> EncoderChoice:
    """A choice of encoder, wider by a factor.

    >>> widened_choice(Modality("a", "vector", (4,)), {"hidden": [10, 6]}, 1.5)
    {'name': 'mlp', 'hidden': [15, 9]}
    """
    if isinstance(choice, nn.Module) or factor == 1:
        return choice
    setting = read_choice(modality, choice)[0].size
    if setting is None:
        return choice
    built: Encoder = build_encoder(modality, choice)
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
