"""Frozen parts: some parts of a method are trained only after some epochs or steps, all at once or layer by layer.

A part that begins with random weights, such as a new head, at first sends large and meaningless gradients into a
pretrained encoder. Frozen until the head has learned something, the encoder keeps what it knows. Layer by layer, the
last layer first, is the gradual unfreezing of Howard and Ruder 2018, *Universal Language Model Fine-tuning for Text
Classification*.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection

from torch import nn

from consilience.core.errors import InputError
from consilience.encoders import Encoder
from consilience.encoders.pretrained_body import keep_frozen
from consilience.training.part_names import FUSION, HEAD
from consilience.training.parts import depths_of, parts_of
from consilience.training.training_settings import ResolvedSettings, read_freeze

logger = logging.getLogger("consilience")


class Freezing:
    """Freezes parameters of a module until their step; use it as a context, which ends with all of them trainable.

    Frozen parameters get no gradients, so that no optimizer moves them, not even by weight decay, and an encoder that
    is frozen as a whole is in evaluation mode: no dropout, and statistics of batches stay.

    Args:
        module: The method.
        names: Names of the parameters that are trained now.
        settings: How to train.
        steps_per_epoch: Steps of the optimizer in an epoch.
        before: Steps that were taken before the first one counted here.
        ends: Whether training ends with this, so that what is frozen then never was trained.

    Attributes:
        last: Number of steps after which nothing is frozen any more.
    """

    def __init__(
        self,
        module: nn.Module,
        names: Collection[str],
        settings: ResolvedSettings,
        steps_per_epoch: int,
        before: int = 0,
        ends: bool = True,
    ):
        self.module, self.freeze, self.ends = module, dict(settings.freeze or {}), ends
        # Each parameter, its part, and the number of steps for which it is frozen.
        self._until: list[tuple[nn.Parameter, str, int]] = []
        if self.freeze:
            chosen, parts, depths = set(names), parts_of(module), depths_of(module)
            for name, parameter in module.named_parameters():
                part = parts[name]
                if part in self.freeze and name in chosen and parameter.requires_grad:
                    steps = frozen_steps(part, self.freeze[part], *depths.get(name, (0, 0)), steps_per_epoch) - before
                    if steps > 0:
                        self._until.append((parameter, part, steps))
            frozen = {id(parameter) for parameter, _, _ in self._until}
            if frozen and all(id(each) in frozen for each in module.parameters() if each.requires_grad):
                raise InputError(
                    f"training {type(module).__name__}: freeze={self.freeze!r} would freeze every part, so that "
                    "nothing is left to train"
                )
        self._places = sorted({steps for _, _, steps in self._until})
        self.last = self._places[-1] if self._places else 0

    def __bool__(self) -> bool:
        return bool(self._until)

    def __enter__(self) -> Freezing:
        return self

    def __exit__(self, *error: object) -> None:
        still = sorted({part for parameter, part, _ in self._until if not parameter.requires_grad})
        for parameter, _, _ in self._until:
            parameter.requires_grad_(True)
        if still and self.ends and error[0] is None:
            logger.warning(
                "training %s: %s stayed frozen, since training ended before the end of freeze=%r",
                type(self.module).__name__,
                ", ".join(still),
                self.freeze,
            )

    def at(self, step: int) -> None:
        """Freeze what is frozen at a step, counted from 0, and put encoders that are frozen in evaluation mode."""
        for parameter, _, steps in self._until:
            parameter.requires_grad_(step >= steps)
        ours = {id(parameter) for parameter, _, _ in self._until}
        for encoder in self.module.modules() if ours and self.module.training else ():
            if isinstance(encoder, Encoder) and not ours.isdisjoint(map(id, encoder.parameters())):
                encoder.train()
                keep_frozen(encoder)

    def changes(self, first: int, last: int) -> bool:
        """Return whether something begins to be trained at one of the steps from `first` to `last`."""
        return any(first <= place <= last for place in self._places)


def frozen_steps(part: str, when: int | str, layer: int, last: int, steps_per_epoch: int) -> int:
    """Return for how many steps a layer of a part is frozen.

    Args:
        part: Its name, for messages.
        when: As it is given in `freeze`.
        layer: Number of the layer, from 0.
        last: Number of the last layer; 0 where a part has no layers.
        steps_per_epoch: Steps of the optimizer in an epoch.

    Example:
        >>> [frozen_steps("text", "2..5", layer, 3, steps_per_epoch=10) for layer in (3, 2, 1, 0)]
        [20, 30, 40, 50]
        >>> frozen_steps("head", 2, 0, 0, steps_per_epoch=10)
        20
    """
    first_free, last_free, in_steps = read_freeze(part, when)
    if first_free != last_free and last == 0:
        what = "has no layers" if part in (FUSION, HEAD) else "has an encoder of a single layer"
        raise InputError(f"training: freeze of {part!r} cannot go layer by layer, {when!r}: it {what}")
    share = (last - layer) / last if last else 0.0
    found = first_free + (last_free - first_free) * share
    return math.ceil(found * (1 if in_steps else steps_per_epoch) - 1e-9)
