"""An encoder in a loop: from the second pass on, one of its stages receives the context."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from consilience.core.errors import InputError, UnsupportedError, unknown_name
from consilience.core.samples import Modality
from consilience.encoders import Encoded, Encoder
from consilience.methods.progressive.call_state import state_of
from consilience.methods.progressive.dry_run import describe, evaluating
from consilience.methods.progressive.links import (
    Addition,
    Concatenation,
    ImageAddition,
    build_addition,
    build_concatenation,
    channel_axis,
    samples_in,
)

# The name of the place after the last stage, before the features are pooled.
END = "end"
# Links that change the output of the layer that they are hooked to.
OUTPUT_LINKS = (Concatenation, ImageAddition)


class EncoderLoop:
    """What one encoder keeps during one call of a looped method (see `call_state`)."""

    def __init__(self) -> None:
        self.context: Tensor | None = None  # of the next pass, `[batch, width]`
        self.rows: Tensor | None = None  # the samples that have the modality; None: all
        self.called = False  # in this pass
        self.started: tuple[Tensor, Tensor | None] | None = None  # what `start` returned
        self.stage_outputs: dict[str, tuple[Tensor, Tensor]] = {}  # what stages before the link received and returned
        # What the layer of the link receives, what comes after the link starts from, and the mask.
        self.at_link: tuple[Tensor, Tensor, Tensor | None] | None = None

    def next_pass(self, context: Tensor, rows: Tensor | None) -> None:
        """Begin another pass, with this context."""
        self.context, self.rows, self.called = context, rows, False

    def context_of(self, samples: int) -> Tensor:
        """Return the context of the samples at hand: an encoder is run on those that have the modality."""
        assert self.context is not None
        if self.rows is None or samples == len(self.context):
            return self.context
        return self.context[self.rows]


class LoopedEncoder(Encoder):
    """An encoder with a link into one of its stages.

    During a call of a looped method its state is an `EncoderLoop`. What comes before the stage does not depend on the
    context: it runs once, and later passes start from its output, also where a method calls the stages itself.
    Outside such a call this is the encoder itself.

    `at` is the stage that receives the context, or `END`. `layers` are the layers of the stage that the link is hooked
    to, if it does not come before the stage.
    """

    name = "looped"

    def __init__(self, inner: Encoder, at: str, link: nn.Module, layers: list[nn.Module], modality_name: str):
        super().__init__()
        self.inner, self.at, self.link, self.modality_name = inner, at, link, modality_name
        self.width, self.reads = inner.width, inner.reads  # type: ignore[misc]
        for layer in layers:
            if isinstance(link, OUTPUT_LINKS):
                layer.register_forward_hook(self._change_output)
            else:
                layer.register_forward_pre_hook(self._change_input)
        # With a link behind the first layer of a plain chain, that layer runs once too.
        stage = None if at == END else inner.stages[at]
        chain = isinstance(stage, nn.Sequential) and type(inner).advance is Encoder.advance
        self.splits = chain and len(layers) == 1 and layers[0] is stage[0] and isinstance(link, OUTPUT_LINKS)  # type: ignore[index]
        # Later passes start from the same tensor, which must not be changed in place.
        parts = [] if stage is None else list(stage) if chain else [stage]  # type: ignore[call-overload]
        self.overwrites = writes_in_place(parts[1:] if self.splits else parts)

    @property
    def stages(self) -> nn.ModuleDict:  # type: ignore[override]
        """The stages of the inner encoder."""
        return self.inner.stages

    @property
    def before(self) -> list[str]:
        """The stages that come before the link and run once."""
        names = list(self.stages)
        return names if self.at == END else names[: names.index(self.at)]

    def start(self, x: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Do what the inner encoder does, once in a call."""
        state: EncoderLoop | None = state_of(self)
        if state is None:
            return self.inner.start(x, lengths)
        if state.started is None:
            state.started = self.inner.start(x, lengths)
        return state.started

    def advance(self, stage: str, hidden: Tensor, mask: Tensor | None) -> Tensor:
        """Apply a stage to what it receives and the context; a stage before the link is not run twice on one tensor."""
        state: EncoderLoop | None = state_of(self)
        if state is None:
            return self.inner.advance(stage, hidden, mask)
        received, output = state.stage_outputs.get(stage, (None, hidden))
        if received is hidden:
            return output
        output = self.inner.advance(stage, self._with_context(state, stage, hidden, mask), mask)
        if stage in self.before:
            state.stage_outputs[stage] = hidden, output
        return output

    def finish(self, hidden: Tensor, mask: Tensor | None) -> Encoded:
        """Return the last stage's output as features."""
        state: EncoderLoop | None = state_of(self)
        return self.inner.finish(hidden if state is None else self._with_context(state, END, hidden, mask), mask)

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Encoded:
        """Run what comes before the link once in a call, and the rest in every pass."""
        state: EncoderLoop | None = state_of(self)
        if state is None:
            return self.inner(x, lengths)
        if state.called:
            raise UnsupportedError(
                f"progressive: the encoder of modality {self.modality_name!r} is called twice in one pass; the "
                "feedback needs an encoder that is called once"
            )
        state.called = True
        before = self.before
        if state.at_link is None:
            received, mask = self.start(x, lengths)
            for stage in before:
                received = self.inner.advance(stage, received, mask)
            hidden = self.stages[self.at][0](received) if self.splits else received  # type: ignore[index]
            state.at_link = received, hidden, mask
        received, hidden, mask = state.at_link
        remaining = list(self.stages)[len(before) :]
        if self.splits:
            chain: Any = self.stages[remaining.pop(0)]
            if state.context is not None:
                hidden = self.link(hidden, state.context_of(hidden.shape[0]), received, chain[0])
            elif self.overwrites:
                hidden = hidden.clone()
            for part in chain[1:]:
                hidden = part(hidden)
        for stage in remaining:
            hidden = self.advance(stage, hidden, mask)
        return self.finish(hidden, mask)

    def _with_context(self, state: EncoderLoop, stage: str, hidden: Any, mask: Tensor | None) -> Any:
        """Return what a stage receives, with the context added if the link comes before this stage."""
        if stage != self.at:
            return hidden
        if state.context is None or not isinstance(self.link, Addition):
            return hidden.clone() if self.overwrites else hidden
        if isinstance(hidden, Encoded):  # what a user's module may return from its only stage
            context = state.context_of(hidden.pooled.shape[0])
            parts = None if hidden.sequence is None else self.link(hidden.sequence, context, hidden.mask)
            return Encoded(self.link(hidden.pooled, context), parts, hidden.mask)
        return self.link(hidden, state.context_of(hidden.shape[0]), mask)

    def _change_output(self, layer: nn.Module, received: tuple[Tensor, ...], output: Tensor) -> Tensor | None:
        state: EncoderLoop | None = state_of(self)
        if state is None or state.context is None:
            return None
        return self.link(output, state.context_of(output.shape[0]), received[0], layer)

    def _change_input(self, layer: nn.Module, received: tuple[Any, ...]) -> tuple[Any, ...]:
        state: EncoderLoop | None = state_of(self)
        without = state is None or state.context is None
        context = None if without else state.context_of(samples_in(layer, received[0]))  # type: ignore[union-attr]
        return self.link(received[0], context), *received[1:]


def loop_encoder(
    encoder: Encoder, modality: Modality, context: int, *, into: str | None, mode: str, rank: int | None
) -> LoopedEncoder:
    """Give an encoder a link of the right shape, found by a dry run on two blank samples.

    `into` is the stage that receives the context `[batch, context]`; None: the first that does not receive token ids.
    """
    names = [*encoder.stages, END]
    if into is None:
        into = names[1] if modality.kind == "tokens" and len(names) > 1 else names[0]
    if into not in names:
        raise unknown_name("stage", into, names, f"It was to receive the feedback in the encoder of {modality.name!r}")
    like = next(encoder.parameters(), torch.empty(0))
    layers: list[nn.Module] = []
    stage = into

    def run(x: Tensor) -> Any:
        return encoder.advance(stage, x, mask)

    with evaluating(encoder):
        hidden, mask = input_of_stage(encoder, modality, into)
        received = hidden.pooled if isinstance(hidden, Encoded) else hidden
        if not isinstance(received, Tensor):
            raise UnsupportedError(
                f"progressive: the encoder of modality {modality.name!r} passes {describe(received)} to {into!r}, to "
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
    return LoopedEncoder(encoder, into, link.to(device=like.device, dtype=like.dtype), layers, modality.name)


def writes_in_place(parts: Iterable[nn.Module]) -> bool:
    """Return whether some parts, run one after another, may change the first one's input in place.

    >>> writes_in_place([nn.Linear(2, 2), nn.ReLU(inplace=True)])
    False
    >>> writes_in_place([nn.Dropout(), nn.ReLU(inplace=True)])
    True
    """
    for part in parts:
        if any(getattr(module, "inplace", False) for module in part.modules()):
            return True
        if next(part.parameters(), None) is not None:  # its output is a new tensor
            return False
    return False


def blank_inputs(modality: Modality, like: Tensor, samples: int = 2) -> tuple[Tensor, Tensor | None]:
    """Return values and lengths of samples of zeros, or of ones for tokens, where 0 is padding."""
    shape = (samples, *modality.shape)
    tokens = modality.kind == "tokens"
    values = torch.ones(shape, dtype=torch.long, device=like.device) if tokens else like.new_zeros(shape)
    return values, torch.full((samples,), modality.shape[0], device=like.device) if modality.timed else None


def input_of_stage(encoder: Encoder, modality: Modality, stage: str) -> tuple[Any, Tensor | None]:
    """Return what a stage receives, and the mask, for two blank samples."""
    hidden, mask = encoder.start(*blank_inputs(modality, next(encoder.parameters(), torch.empty(0))))
    for name in encoder.stages:
        if name == stage:
            break
        hidden = encoder.advance(name, hidden, mask)
    return hidden, mask
