"""An encoder in the loop: from its second pass on, one of its stages hears the context."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from consilience.core.errors import InputError, UnsupportedError, unknown_name
from consilience.core.samples import Modality
from consilience.encoders import Encoded, Encoder
from consilience.methods.progressive.concatenating_links import Concatenation, build_concatenation, samples_in
from consilience.methods.progressive.dry_run import describe, evaluating
from consilience.methods.progressive.links import Addition, ImageAddition, build_addition, channel_axis, check_mode

# Where the feedback joins when it joins after the last stage, before the features are pooled.
END = "end"
# Links that act on the output of the layer they are hooked to.
BEHIND = (Concatenation, ImageAddition)


class Looped(Encoder):
    """An encoder with a link into one of its stages.

    `begin` opens a loop, `listen` gives the context that the next pass hears, `forget` closes the loop. What comes
    before the stage does not depend on the context: it runs once, and later passes start from what it gave, also where
    a method goes from stage to stage itself. Outside a loop this is the encoder itself.

    layers: those of the stage that the link is hooked to, where it does not come before the stage.
    """

    name = "looped"
    _context: Tensor | None
    _rows: Tensor | None
    _memory: tuple[Tensor, Tensor, Tensor | None] | None
    _started: tuple[Tensor, Tensor | None] | None
    _early: dict[str, tuple[Tensor, Tensor]]  # of the stages before the link, what each received and gave

    def __init__(self, inner: Encoder, at: str, link: nn.Module, layers: list[nn.Module], modality_name: str):
        super().__init__()
        self.inner, self.at, self.link, self.modality_name = inner, at, link, modality_name
        for layer in layers:
            if isinstance(link, BEHIND):
                layer.register_forward_hook(self._after)
            else:
                layer.register_forward_pre_hook(self._before)
        # A link behind the first layer of a plain chain: that layer runs once too.
        stage = None if at == END else inner.stages[at]
        chain = isinstance(stage, nn.Sequential) and type(inner).advance is Encoder.advance
        self.splits = chain and len(layers) == 1 and layers[0] is stage[0] and isinstance(link, BEHIND)  # type: ignore[index]
        # Later passes start from what this one starts from: it must not be written over.
        parts = [] if stage is None else list(stage) if chain else [stage]  # type: ignore[call-overload]
        self.overwrites = writes_over(parts[1:] if self.splits else parts)
        self.forget()

    @property
    def width(self) -> int:  # type: ignore[override]
        """Of the features, as without the loop."""
        return self.inner.width

    @property
    def stages(self) -> nn.ModuleDict:  # type: ignore[override]
        """The stages of the encoder itself."""
        return self.inner.stages

    @property
    def reads(self) -> tuple[str, ...]:  # type: ignore[override]
        """The kinds the encoder itself reads."""
        return self.inner.reads

    @property
    def before(self) -> list[str]:
        """The stages that come before the link and run once."""
        names = list(self.stages)
        return names if self.at == END else names[: names.index(self.at)]

    def begin(self) -> None:
        """Open a loop: the next pass is the first."""
        self.forget()
        self._looping = True

    def listen(self, context: Tensor, rows: Tensor | None) -> None:
        """Hear this context `[batch, width]` in the next pass. rows: which samples have the modality; None: all."""
        self._context, self._rows, self._called = context, rows, False

    def forget(self) -> None:
        """Close the loop: hear nothing, remember nothing."""
        self._context = self._rows = self._memory = self._started = None
        self._early = {}
        self._looping = self._called = False

    def start(self, x: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """As the encoder itself, once in a loop."""
        if self._started is not None:
            return self._started
        started = self.inner.start(x, lengths)
        if self._looping:
            self._started = started
        return started

    def advance(self, stage: str, hidden: Tensor, mask: Tensor | None) -> Tensor:
        """Apply one stage, to what it receives and the context; not again to what it has received in this loop."""
        received, given = self._early.get(stage, (None, hidden))
        if received is hidden:
            return given
        given = self.inner.advance(stage, self._fed(stage, hidden, mask), mask)
        if self._looping and stage in self.before:
            self._early[stage] = hidden, given
        return given

    def finish(self, hidden: Tensor, mask: Tensor | None) -> Encoded:
        """The last stage's output as features."""
        return self.inner.finish(self._fed(END, hidden, mask), mask)

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Encoded:
        """Run what comes before the link once, and the rest at every pass."""
        if self._called:
            raise UnsupportedError(
                f"progressive: the encoder of modality {self.modality_name!r} is called twice in one pass; the "
                "feedback needs one that is called once"
            )
        self._called = self._looping
        before = self.before
        if self._memory is None:
            received, mask = self.start(x, lengths)
            for stage in before:
                received = self.inner.advance(stage, received, mask)
            hidden = self.stages[self.at][0](received) if self.splits else received  # type: ignore[index]
        else:
            received, hidden, mask = self._memory
        if self._looping:
            self._memory = received, hidden, mask
        left = list(self.stages)[len(before) :]
        if self.splits:
            chain: Any = self.stages[left.pop(0)]
            if self._context is not None:
                hidden = self.link(hidden, self._heard(len(hidden)), received, chain[0])
            elif self._looping and self.overwrites:
                hidden = hidden.clone()
            for part in chain[1:]:
                hidden = part(hidden)
        for stage in left:
            hidden = self.advance(stage, hidden, mask)
        return self.finish(hidden, mask)

    def _fed(self, stage: str, hidden: Any, mask: Tensor | None) -> Any:
        if stage != self.at:
            return hidden
        if self._context is None or not isinstance(self.link, Addition):
            return hidden.clone() if self._looping and self.overwrites else hidden
        if isinstance(hidden, Encoded):  # what a module of the user's may return from its one stage
            heard = self._heard(len(hidden.pooled))
            parts = None if hidden.sequence is None else self.link(hidden.sequence, heard, hidden.mask)
            return Encoded(self.link(hidden.pooled, heard), parts, hidden.mask)
        return self.link(hidden, self._heard(len(hidden)), mask)

    def _heard(self, samples: int) -> Tensor:
        """The context of the samples at hand: an encoder may be run on those alone that have the modality."""
        assert self._context is not None
        if samples == len(self._context) or self._rows is None:
            return self._context
        return self._context[self._rows]

    def _after(self, layer: nn.Module, received: tuple[Tensor, ...], output: Tensor) -> Tensor | None:
        if self._context is None:
            return None
        return self.link(output, self._heard(len(output)), received[0], layer)

    def _before(self, layer: nn.Module, received: tuple[Any, ...]) -> tuple[Any, ...]:
        context = None if self._context is None else self._heard(samples_in(layer, received[0]))
        return self.link(received[0], context), *received[1:]


def loop_encoder(
    encoder: Encoder, modality: Modality, context: int, *, into: str | None, mode: str, rank: int | None
) -> Looped:
    """Give an encoder a link of the right shape, found by a dry run on two samples of zeros."""
    check_mode(mode)
    names = [*encoder.stages, END]
    if into is None:  # as early as numbers allow: token ids become numbers in the first stage
        into = names[1] if modality.kind == "tokens" and len(names) > 1 else names[0]
    if into not in names:
        raise unknown_name("stage", into, names, f"It was to receive the feedback in the encoder of {modality.name!r}")
    like = next(encoder.parameters(), torch.empty(0))
    layers: list[nn.Module] = []
    stage = into

    def run(x: Tensor) -> Any:
        return encoder.advance(stage, x, mask)

    with evaluating(encoder):
        hidden, mask = hidden_at(encoder, modality, into)
        received = hidden.pooled if isinstance(hidden, Encoded) else hidden
        if not isinstance(received, Tensor):
            raise UnsupportedError(
                f"progressive: the encoder of modality {modality.name!r} hands {describe(received)} to {into!r}, to "
                "which nothing can be added: feed back into another stage"
            )
        if not received.is_floating_point():
            after = names[names.index(into) + 1]
            raise InputError(
                f"progressive: stage {into!r} of modality {modality.describe()} receives whole numbers, to which "
                f"nothing can be added: feed back into {after!r}"
            )
        link: nn.Module
        if mode == "add":
            axis = -1 if received.ndim == 3 else channel_axis(received)
            # A waveform `[batch, step]` has one channel: it may be of any length.
            waveform = into != END and received.ndim == 2 and mask is not None and mask.shape == received.shape
            if waveform:
                link = Addition(context, 1, axis=axis, rank=rank)
            else:
                module = None if into == END else encoder.stages[into]
                link, layers = build_addition(module, run, received, context=context, axis=axis, rank=rank)
        elif into == END:
            raise UnsupportedError(
                f"progressive: mode='concat' needs a layer to read the context, and after the last stage of modality "
                f"{modality.name!r} features are only pooled: use mode='add', or feed back into an earlier stage"
            )
        else:
            what = f"stage {into!r} of modality {modality.name!r}"
            link, layers = build_concatenation(
                encoder.stages[into], run, received, context=context, samples=len(received), rank=rank, what=what
            )
    return Looped(encoder, into, link.to(device=like.device, dtype=like.dtype), layers, modality.name)


def writes_over(parts: Iterable[nn.Module]) -> bool:
    """Whether some parts, run one after another, may change in place what the first of them is given.

    >>> writes_over([nn.Linear(2, 2), nn.ReLU(inplace=True)]), writes_over([nn.Dropout(), nn.ReLU(inplace=True)])
    (False, True)
    """
    for part in parts:
        if any(getattr(one, "inplace", False) for one in part.modules()):
            return True
        if next(part.parameters(), None) is not None:  # it gives a tensor of its own
            return False
    return False


def hidden_at(encoder: Encoder, modality: Modality, stage: str) -> tuple[Any, Tensor | None]:
    """What a stage receives, and the mask, for two samples of zeros (of ones, for tokens: 0 is padding)."""
    like = next(encoder.parameters(), torch.empty(0))
    shape, tokens = (2, *modality.shape), modality.kind == "tokens"
    x = torch.ones(shape, dtype=torch.long, device=like.device) if tokens else torch.zeros(shape).to(like)
    lengths = torch.full((2,), modality.shape[0], device=like.device) if modality.timed else None
    hidden, mask = encoder.start(x, lengths)
    for one in encoder.stages:
        if one == stage:
            break
        hidden = encoder.advance(one, hidden, mask)
    return hidden, mask
