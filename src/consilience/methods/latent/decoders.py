"""Decoders: z → the numbers that a modality's likelihood is made from. A decoder is any module that takes z.

By default chosen by kind: "mlp" for vectors and tokens, "deconv" for images, "gru" for sequences.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from consilience.core.errors import InputError, UnsupportedError
from consilience.core.registry import Registry
from consilience.core.samples import Kind, Modality
from consilience.core.settings import DeclaredSettings, PositiveInt, check_settings

DecoderChoice = str | Mapping[str, Any] | nn.Module | None

DECODERS: Registry[type[Decoder]] = Registry("decoder", group="consilience.decoders")
_DEFAULTS = {"vector": "mlp", "image": "deconv", "sequence": "gru", "tokens": "mlp"}


class Decoder(DeclaredSettings, nn.Module):
    """z `[…, latent]` → `[…, *shape]`.

    A subclass takes the shape and the width of z, and its settings as keyword-only arguments, and defines
    `decode_rows`.

    Attributes:
        writes: The kinds of modality that it is for.
    """

    name: ClassVar[str]
    writes: ClassVar[tuple[Kind, ...]] = ("vector", "image", "sequence", "tokens")

    def __init__(self, shape: tuple[int, ...]):
        super().__init__()
        self.shape = tuple(shape)

    def decode_rows(self, z: Tensor) -> Tensor:
        """Decode `[row, latent]` to `[row, …]`, in any shape with as many numbers as `shape` has."""
        raise NotImplementedError

    def forward(self, z: Tensor) -> Tensor:
        """Decode z with any leading dimensions, in one call."""
        z = z.to(next(self.parameters(), z).dtype)  # weights may have fewer bits than divergences are computed in
        return self.decode_rows(z.reshape(-1, z.shape[-1])).reshape(*z.shape[:-1], *self.shape)


def register_decoder(name: str) -> Callable[[type[Decoder]], type[Decoder]]:
    """Register a decoder under a name."""
    return DECODERS.register(name, name=name)


def build_decoder(modality: Modality, shape: tuple[int, ...], latent: int, choice: DecoderChoice = None) -> Decoder:
    """Build the decoder of a modality.

    Args:
        modality: The modality.
        shape: The shape of what its likelihood needs for a sample.
        latent: The width of z.
        choice: None for the default of its kind; a name; a mapping of settings, with a name or without it; or any
            module from z `[row, latent]` to `[row, …]` of as many numbers, of which a copy is used.

    Example:
        >>> spectrum = Modality("spectrum", "vector", (40,))
        >>> build_decoder(spectrum, (40,), 5, nn.Linear(5, 40))(torch.zeros(2, 3, 5)).shape
        torch.Size([2, 3, 40])
    """
    if isinstance(choice, nn.Module):
        return UserDecoder(copy.deepcopy(choice), modality, shape, latent)
    if choice is not None and not isinstance(choice, str | Mapping):
        raise InputError(
            f"the decoder of modality {modality.name!r} must be a name, a mapping with a name and settings, or an "
            f"nn.Module, got {choice!r}"
        )
    settings = {"name": choice} if isinstance(choice, str) else dict(choice or {})
    name = settings.pop("name", _DEFAULTS[modality.kind])
    if name == "deconv" and not settings and min(modality.shape[-2:]) < 4 and not isinstance(choice, str):
        name = "mlp"  # too few pixels for transposed convolutions
    cls = DECODERS.find(name, f"It was chosen for modality {modality.name!r}")
    if modality.kind not in cls.writes:
        raise UnsupportedError(
            f"decoder {name!r} is for {', '.join(cls.writes)}, not for modality {modality.describe()}"
        )
    where = f"decoder {name!r} of modality {modality.describe()}"
    settings = check_settings(where, cls, settings)
    try:
        return cls(shape, latent, **settings)  # type: ignore[call-arg]
    except (InputError, TypeError) as error:
        raise InputError(f"{where}: {error}") from error


class UserDecoder(Decoder):
    """A module of the user's own."""

    def __init__(self, module: nn.Module, modality: Modality, shape: tuple[int, ...], latent: int):
        super().__init__(shape)
        self.module = module
        with torch.no_grad():
            was_training = module.training
            try:
                output = module.eval()(torch.zeros(2, latent))
            except (RuntimeError, TypeError, ValueError) as error:
                raise InputError(
                    f"the decoder of modality {modality.describe()} does not take z of shape [row, {latent}]: {error}"
                ) from error
            module.train(was_training)
        if not isinstance(output, Tensor) or output.numel() != 2 * math.prod(shape):
            got = list(output.shape) if isinstance(output, Tensor) else type(output).__name__
            raise InputError(
                f"the decoder of modality {modality.describe()} must give {math.prod(shape)} numbers a sample, shape "
                f"[row, {', '.join(map(str, shape))}], got {got} for two rows"
            )

    def decode_rows(self, z: Tensor) -> Tensor:
        """Call the module."""
        return self.module(z)


class FrugalReLU(nn.Module):
    """A ReLU that works in place where no gradient is needed; a hook on the layer before it then sees its output."""

    def forward(self, x: Tensor) -> Tensor:
        """max(x, 0)."""
        return functional.relu(x, inplace=not torch.is_grad_enabled())


@register_decoder("mlp")
class MlpDecoder(Decoder):
    """Linear → ReLU blocks, then a linear layer."""

    def __init__(
        self,
        shape: tuple[int, ...],
        latent: int,
        *,
        hidden: Annotated[PositiveInt | Sequence[PositiveInt], "width of each block"] = (64, 128),
    ):
        super().__init__(shape)
        widths = [latent, *([hidden] if isinstance(hidden, int) else hidden)]
        blocks = [nn.Sequential(nn.Linear(before, after), FrugalReLU()) for before, after in pairwise(widths)]
        self.layers = nn.Sequential(*blocks, nn.Linear(widths[-1], math.prod(shape)))

    def decode_rows(self, z: Tensor) -> Tensor:
        """`[row, numbers]`."""
        return self.layers(z)


@register_decoder("deconv")
class Deconv(Decoder):
    """Transposed convolutions: a small map of many channels is doubled in size and halved in channels at each stage.

    Sides need not be powers of two: each map is half as large as the next, rounded up.
    """

    writes = ("image",)

    def __init__(
        self,
        shape: tuple[int, ...],
        latent: int,
        *,
        channels: Annotated[PositiveInt, "of the last map before the image"] = 16,
        stages: Annotated[PositiveInt | None, "how often the map doubles; None: from at most 4 pixels a side"] = None,
    ):
        super().__init__(shape)
        outputs, height, width = shape
        most = max(height, width).bit_length() - 1
        count = stages or max(1, math.ceil(math.log2(max(height, width) / 4)))
        if count > most:
            raise InputError(f"an image of {height}×{width} pixels has room for at most {most} stages, got {stages}")
        sides = [(height, width)]
        for _ in range(count):
            sides.append((math.ceil(sides[-1][0] / 2), math.ceil(sides[-1][1] / 2)))
        sides.reverse()
        wide = channels * 2 ** (count - 1)
        self.start = (wide, *sides[0])
        self.spread = nn.Linear(latent, math.prod(self.start))
        stack: list[nn.Module] = []
        for stage, (after, before) in enumerate(zip(sides[1:], sides)):
            narrow = outputs if stage == count - 1 else wide // 2
            extra = (after[0] - 2 * before[0] + 1, after[1] - 2 * before[1] + 1)
            stack += [FrugalReLU(), nn.ConvTranspose2d(wide, narrow, 3, 2, padding=1, output_padding=extra)]
            wide = narrow
        self.stack = nn.Sequential(*stack)

    def decode_rows(self, z: Tensor) -> Tensor:
        """`[row, channel, height, width]`."""
        return self.stack(self.spread(z).reshape(-1, *self.start))


@register_decoder("gru")
class GruDecoder(Decoder):
    """A GRU whose initial state and whose input at every step come from z, with a linear layer on its states."""

    writes = ("sequence", "tokens")

    def __init__(
        self, shape: tuple[int, ...], latent: int, *, hidden: Annotated[PositiveInt, "width of the states"] = 64
    ):
        super().__init__(shape)
        self.start = nn.Linear(latent, hidden)
        self.network = nn.GRU(latent, hidden, batch_first=True)
        self.read = nn.Linear(hidden, shape[-1])

    def decode_rows(self, z: Tensor) -> Tensor:
        """`[row, time, feature]`."""
        states, _ = self.network(z[:, None].expand(-1, self.shape[0], -1), self.start(z).tanh()[None])
        return self.read(states)
