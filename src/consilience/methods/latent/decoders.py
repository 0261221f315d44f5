"""Decoders: z → the numbers that a modality's likelihood is made from. A decoder is any module that takes z.

By default chosen by kind: "mlp" for vectors and tokens, "deconv" for images, "gru" for sequences.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from consilience.core.errors import InputError, UnsupportedError
from consilience.core.registry import Registry
from consilience.core.samples import Kind, Modality
from consilience.core.settings import DeclaredSettings, check_settings, whole_number

DecoderChoice = str | Mapping[str, Any] | nn.Module | None

DECODERS: Registry[type[Decoder]] = Registry("decoder", group="consilience.decoders")
_DEFAULTS = {"vector": "mlp", "image": "deconv", "sequence": "gru", "tokens": "mlp"}


class Decoder(DeclaredSettings, nn.Module):
    """z `[…, latent]` → `[…, *shape]`. A subclass maps `[row, latent]` to anything of as many numbers in `grow`."""

    name: ClassVar[str]
    writes: ClassVar[tuple[Kind, ...]] = ("vector", "image", "sequence", "tokens")

    def __init__(self, shape: tuple[int, ...]):
        super().__init__()
        self.shape = tuple(shape)

    def grow(self, z: Tensor) -> Tensor:
        """`[row, latent]` → `[row, …]`."""
        raise NotImplementedError

    def forward(self, z: Tensor) -> Tensor:
        """All leading dimensions in one call."""
        z = z.to(next(self.parameters(), z).dtype)  # weights may be narrower than what divergences are computed in
        return self.grow(z.reshape(-1, z.shape[-1])).reshape(*z.shape[:-1], *self.shape)


def register_decoder(name: str) -> Callable[[type[Decoder]], type[Decoder]]:
    """Enter a decoder under a name."""
    return DECODERS.register(name, name=name)


def decoder_names() -> list[str]:
    """The names that can be chosen.

    >>> decoder_names()
    ['deconv', 'gru', 'mlp']
    """
    return DECODERS.names()


def build_decoder(modality: Modality, shape: tuple[int, ...], latent: int, choice: DecoderChoice = None) -> Decoder:
    """The decoder of one modality, for a likelihood that wants numbers of this shape.

    choice: None for the default of its kind; a name; a mapping of settings, with a name or without it; any module that
    takes z `[row, latent]` and gives `[row, …]` of as many numbers, of which a copy is used.

    >>> spectrum = Modality("spectrum", "vector", (40,))
    >>> build_decoder(spectrum, (40,), 5, nn.Linear(5, 40))(torch.zeros(2, 3, 5)).shape
    torch.Size([2, 3, 40])
    """
    if isinstance(choice, nn.Module):
        return Given(copy.deepcopy(choice), modality, shape, latent)
    if choice is not None and not isinstance(choice, str | Mapping):
        raise InputError(
            f"the decoder of modality {modality.name!r} must be a name, a mapping with a name and settings, or an "
            f"nn.Module, got {choice!r}"
        )
    settings = {"name": choice} if isinstance(choice, str) else dict(choice or {})
    name = settings.pop("name", _DEFAULTS[modality.kind])
    if name == "deconv" and not settings and min(modality.shape[-2:]) < 4 and not isinstance(choice, str):
        name = "mlp"  # too few pixels to grow from fewer
    cls = DECODERS.find(name, f"It was chosen for modality {modality.name!r}")
    if modality.kind not in cls.writes:
        raise UnsupportedError(
            f"decoder {name!r} is for {', '.join(cls.writes)}, not for modality {modality.describe()}"
        )
    settings = check_settings(f"decoder {name!r} of modality {modality.describe()}", cls, settings)
    try:
        return cls(shape, latent, **settings)  # type: ignore[call-arg]
    except (InputError, TypeError) as error:
        raise InputError(f"decoder {name!r} of modality {modality.describe()}: {error}") from error


class Given(Decoder):
    """A module of the user's own."""

    def __init__(self, module: nn.Module, modality: Modality, shape: tuple[int, ...], latent: int):
        super().__init__(shape)
        self.module = module
        with torch.no_grad():
            was_training = module.training
            try:
                made = module.eval()(torch.zeros(2, latent))
            except (RuntimeError, TypeError, ValueError) as error:
                raise InputError(
                    f"the decoder of modality {modality.describe()} does not take z of shape [row, {latent}]: {error}"
                ) from error
            module.train(was_training)
        if not isinstance(made, Tensor) or made.numel() != 2 * math.prod(shape):
            got = list(made.shape) if isinstance(made, Tensor) else type(made).__name__
            raise InputError(
                f"the decoder of modality {modality.describe()} must give {math.prod(shape)} numbers a sample, shape "
                f"[row, {', '.join(map(str, shape))}], got {got} for two rows"
            )

    def grow(self, z: Tensor) -> Tensor:
        """The module as it is."""
        return self.module(z)


class FrugalReLU(nn.Module):
    """Writes over what it reads where no gradient is wanted; a hook on the layer before it then sees what it wrote."""

    def forward(self, x: Tensor) -> Tensor:
        """max(x, 0)."""
        return functional.relu(x, inplace=not torch.is_grad_enabled())


@register_decoder("mlp")
class MlpDecoder(Decoder):
    """Linear → ReLU blocks, then a linear layer. hidden: each block's width."""

    def __init__(self, shape: tuple[int, ...], latent: int, *, hidden: int | Sequence[int] = (64, 128)):
        super().__init__(shape)
        widths = [hidden] if not isinstance(hidden, Sequence) else list(hidden)
        if isinstance(hidden, str):
            raise InputError(f"hidden must be each block's width, for example [64, 128], got {hidden!r}")
        layers: list[nn.Module] = []
        previous = latent
        for width in widths:
            layers.append(nn.Sequential(nn.Linear(previous, whole_number("hidden", width)), FrugalReLU()))
            previous = width
        self.layers = nn.Sequential(*layers, nn.Linear(previous, math.prod(shape)))

    def grow(self, z: Tensor) -> Tensor:
        """`[row, numbers]`."""
        return self.layers(z)


@register_decoder("deconv")
class Deconv(Decoder):
    """A small map of many channels, doubled in size and halved in channels until it is as large as the image.

    channels: of the last map before the image · stages: how often the map doubles, by default until it began from at
    most 4 pixels a side. Sides need not be powers of two: maps are as large as half the next, rounded up.
    """

    writes = ("image",)

    def __init__(self, shape: tuple[int, ...], latent: int, *, channels: int = 16, stages: int | None = None):
        super().__init__(shape)
        outputs, height, width = shape
        room = max(height, width).bit_length() - 1
        count = (
            max(1, math.ceil(math.log2(max(height, width) / 4))) if stages is None else whole_number("stages", stages)
        )
        if count > room:
            raise InputError(f"an image of {height}×{width} pixels has room for at most {room} stages, got {stages}")
        sides = [(height, width)]
        for _ in range(count):
            sides.append((math.ceil(sides[-1][0] / 2), math.ceil(sides[-1][1] / 2)))
        sides.reverse()
        wide = whole_number("channels", channels) * 2 ** (count - 1)
        self.start = (wide, *sides[0])
        self.spread = nn.Linear(latent, math.prod(self.start))
        stack: list[nn.Module] = []
        for stage, (after, before) in enumerate(zip(sides[1:], sides)):
            narrow = outputs if stage == count - 1 else wide // 2
            extra = (after[0] - 2 * before[0] + 1, after[1] - 2 * before[1] + 1)
            stack += [FrugalReLU(), nn.ConvTranspose2d(wide, narrow, 3, 2, padding=1, output_padding=extra)]
            wide = narrow
        self.stack = nn.Sequential(*stack)

    def grow(self, z: Tensor) -> Tensor:
        """`[row, channel, height, width]`."""
        return self.stack(self.spread(z).reshape(-1, *self.start))


@register_decoder("gru")
class GruDecoder(Decoder):
    """A GRU that starts from z and reads it at every step, with a linear layer on its states. hidden: their width."""

    writes = ("sequence", "tokens")

    def __init__(self, shape: tuple[int, ...], latent: int, *, hidden: int = 64):
        super().__init__(shape)
        hidden = whole_number("hidden", hidden)
        self.start = nn.Linear(latent, hidden)
        self.network = nn.GRU(latent, hidden, batch_first=True)
        self.read = nn.Linear(hidden, shape[-1])

    def grow(self, z: Tensor) -> Tensor:
        """`[row, time, feature]`."""
        states, _ = self.network(z[:, None].expand(-1, self.shape[0], -1), self.start(z).tanh()[None])
        return self.read(states)
