"""`wide:NAME`, a control of progressive fusion: the base method with as many parameters as its loop has.

A loop adds weights. What `pro:NAME` gains over `wide:NAME` comes from where the weights are, not from their number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from torch import nn

from consilience.core.errors import UnsupportedError
from consilience.core.samples import Modality
from consilience.core.seeding import seeded
from consilience.core.settings import settings_of
from consilience.encoders import Encoder, EncoderChoice, build_encoder
from consilience.encoders.choice import read_choice
from consilience.methods import Method, Spec, register
from consilience.methods.progressive.loop_settings import MethodLoopSettings
from consilience.methods.progressive.method_family import Family, member_class
from consilience.methods.progressive.progressive_method import PAPER, Progressive, reason_against_loop

# Encoders are widened by at most this factor: a loop that outweighs its base more than that has no fair control.
MOST_FACTOR = 16.0
# If the number of parameters is off by more than this share, encoders are widened by factors of their own.
TOLERANCE = 0.01


@register("wide:", paper=PAPER)
class Wide(Family):
    """A method whose encoders are widened until it has as many parameters as `pro:NAME` with the same settings.

    What `pro:NAME` gains over `wide:NAME` comes from where the weights are, not from their number. The control is ours.
    All encoders are widened by one factor, or by factors of their own where that comes nearer. A user's own encoders
    and pretrained ones stay as they are. A method whose width is a setting of its own (`mult`, `ef-lstm`) is widened
    by that.

    Args:
        spec: What the method is built from.
        **settings: Of the loop that it is a control of (steps, mode, into, link_rank, project), and of the base method.
    """

    own_settings: ClassVar = {
        name: settings_of(MethodLoopSettings)[name] for name in ("steps", "mode", "into", "link_rank", "project")
    }

    def __init__(self, spec: Spec, **settings: Any):
        base = type(self).base
        loop, settings = self.split_settings(settings)
        # Models that are built to be counted must not change the random weights of the real one.
        with seeded(0):
            target = count(member_class(Progressive, base)(spec, **loop, **settings))
            spec, settings = widened(base, spec, settings, target)
        super().__init__(spec, **settings)

    @classmethod
    def reason_against_base(cls, base: type[Method]) -> str | None:
        """Return why a method cannot be looped; every method that can be looped has this control."""
        return reason_against_loop(base)


def count(module: nn.Module) -> int:
    """Return the number of parameters."""
    return sum(parameter.numel() for parameter in module.parameters())


def widened(base: Any, spec: Spec, settings: dict[str, Any], target: int) -> tuple[Spec, dict[str, Any]]:
    """Return the spec and the settings of a method with about `target` parameters."""
    if base.size is not None:
        factor = fitting_factor(lambda factor: count(base(spec, **widened_settings(base, settings, factor))), target)
        return spec, widened_settings(base, settings, factor)
    chosen = spec.preferring(base(spec, **settings).choices)  # a method may have encoders of its own choice
    factors = fitting_factors(
        lambda factors: count(base(widened_spec(chosen, factors), **settings)), tuple(spec.modalities), target
    )
    return widened_spec(chosen, factors), settings


def widened_settings(base: type[Method], settings: Mapping[str, Any], factor: float) -> dict[str, Any]:
    """Return a method's settings with its width times a factor, rounded to a multiple of its attention heads."""
    assert base.size is not None
    given = {name: setting.default for name, setting in settings_of(base).items()} | dict(settings)
    return {**settings, base.size: scaled(given[base.size], factor, given.get("heads", 1))}


def fitting_factors(
    counted: Callable[[dict[str, float]], int], names: tuple[str, ...], target: int
) -> dict[str, float]:
    """Return factors, by modality, whose parameter count comes within 1 % of the target, or as near as possible."""
    together = fitting_factor(lambda factor: counted(dict.fromkeys(names, factor)), target)
    factors = dict.fromkeys(names, together)
    for name in names:  # widths are whole numbers: several encoders can come nearer than one
        if abs(counted(factors) - target) <= TOLERANCE * target:
            break

        def counted_with(factor: float, name: str = name, factors: dict[str, float] = factors) -> int:
            return counted({**factors, name: factor})

        try:
            own = fitting_factor(counted_with, target)
        except UnsupportedError:  # an encoder that cannot be widened
            continue
        factors = min(factors, {**factors, name: own}, key=lambda tried: abs(counted(tried) - target))
    return factors


def fitting_factor(counted: Callable[[float], int], target: int) -> float:
    """Return the factor whose parameter count is nearest to the target, by bisection: the count grows with the factor.

    >>> round(fitting_factor(lambda factor: round(1000 * factor), 1500), 2)
    1.5
    """
    low, high = 1.0, 2.0
    while counted(high) < target:
        if high >= MOST_FACTOR:
            raise UnsupportedError(
                f"wide: encoders widened {high:g} times come to {counted(high)} parameters, the loop has {target}: "
                "none of them is one that can be widened, or the loop is far larger than its base"
            )
        low, high = high, 2 * high
    counts: dict[float, int] = {factor: counted(factor) for factor in (low, high)}
    for _ in range(14):
        middle = (low + high) / 2
        counts[middle] = counted(middle)
        low, high = (middle, high) if counts[middle] < target else (low, middle)
    return min(counts, key=lambda factor: abs(counts[factor] - target))


def widened_spec(spec: Spec, factors: Mapping[str, float]) -> Spec:
    """Return the spec with every encoder that can be widened wider by its factor."""
    choices = {
        name: widened_choice(modality, spec.encoders.get(name), factors[name])
        for name, modality in spec.modalities.items()
    }
    return Spec(spec.modalities, spec.task, choices)


def widened_choice(modality: Modality, choice: EncoderChoice, factor: float) -> EncoderChoice:
    """Return a choice of encoder, wider by a factor.

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
        [scaled(width, factor, unit) for width in size] if isinstance(size, Sequence) else scaled(size, factor, unit)
    )
    given = {"name": choice} if isinstance(choice, str) else dict(choice or {})
    return {"name": built.name, **given, setting: wider}


def scaled(size: int, factor: float, unit: int = 1) -> int:
    """Return a size times a factor, rounded to a multiple of a unit.

    >>> scaled(64, 1.1), scaled(64, 1.1, unit=4)
    (70, 72)
    """
    return max(unit, round(size * factor / unit) * unit)
