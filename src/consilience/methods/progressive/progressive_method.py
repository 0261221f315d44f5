"""Progressive fusion of a registered method, `pro:NAME`: encoders and fusion in a loop, the head once.

Shankar, Thompson and Fiterau 2022: Ĝ_m(x, c) = G_m(x ⊕ W_m c), c_t = F(Ĝ_1(x_1, c_{t−1}), …, Ĝ_M(x_M, c_{t−1})),
c_0 = nothing, prediction = P(c_R). R = 1 is the base method to the last bit; so is any R before training, since W
starts at zero.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from consilience.core.batches import Batch
from consilience.core.errors import UnsupportedError, unknown_name
from consilience.core.samples import Modality
from consilience.core.settings import check_settings, settings_of
from consilience.encoders import Encoded
from consilience.methods import (
    JointMethod,
    Method,
    PerModality,
    Prediction,
    Spec,
    Step,
    register,
    task_losses,
    weighted_mean,
)
from consilience.methods.progressive.call_state import call_state
from consilience.methods.progressive.dry_run import evaluating
from consilience.methods.progressive.loop_settings import MethodLoopSettings
from consilience.methods.progressive.looped_encoder import EncoderLoop, blank_inputs, loop_encoder
from consilience.methods.progressive.method_family import Family, blank_member
from consilience.methods.progressive.norm_statistics import NormStatistics

PAPER = "Shankar, Thompson and Fiterau 2022, Progressive Fusion for Multimodal Integration"


@register("pro:", paper=PAPER, equation="7–9")
class Progressive(Family, JointMethod):
    """A loop around a method that has a fusion: `pro:concat`, `pro:align`, …

    The fused representation is fed back to the encoders, which encode their inputs again with this context. The
    weights of the base method are the same in every pass; only W is new.

        h_m^t = G_m(x_m ⊕ W_m E c_{t−1})         c_t = F(h_1^t, …, h_M^t)         z = P c_R,   c_0 = nothing

    ⊕ is addition (`mode="add"`), or concatenation to the input of a layer ("concat"). W acts on channels and is the
    same at all pixels and steps. Padding receives no context, and the encoder of a missing modality is not run. With
    R = 1 the output equals that of the base method; before training it does for any R, because W starts at zero. If the
    context joins at an inner stage, the stages before it run once. Methods without a fusion of features (`late`, `qmf`)
    cannot be looped.

    Args:
        spec: What the method is built from.
        **settings: The fields of `MethodLoopSettings`, and the settings of the base method.
    """

    own_settings = settings_of(MethodLoopSettings)
    # What is fed back: the "joint" representation, or to each encoder its "own" features.
    source: ClassVar[Literal["joint", "own"]] = "joint"
    steps: int
    detach_steps: bool
    step_loss: float
    link_penalty: float
    project_context: Any
    norms: NormStatistics

    def __init__(self, spec: Spec, **settings: Any):
        loop, base = self.split_settings(settings)
        super().__init__(spec, **base)
        close_loop(self, MethodLoopSettings(**loop))

    @classmethod
    def reason_against_base(cls, base: type[Method]) -> str | None:
        """Return why a method cannot be looped: it needs encoders, fusion and head that can be run separately."""
        return reason_against_loop(base)

    def forward(self, batch: Batch) -> Prediction:
        """Encode and fuse `steps` times, then apply the head to the last joint representation."""
        if self.steps == 1:
            return super().forward(batch)
        *earlier, (features, joint) = self.passes(batch)
        prediction = self.read(joint, features, batch)
        if prediction.opinions is None:
            prediction.opinions = self.opine(earlier[0][0])
        if self.step_loss and self.training:
            with self.norms.without_update():
                readings = [self.read(fused, encoded, batch).output for encoded, fused in earlier]
            prediction.extra = {**prediction.extra, "readings": readings}
        return prediction

    def passes(self, batch: Batch) -> list[tuple[dict[str, Encoded], Tensor]]:
        """Return every pass's features and the joint representation made of them; the head reads the last."""
        if self.steps == 1:
            features = self.represent(batch)
            return [(features, self.fusion(features, batch))]
        passes: list[tuple[dict[str, Encoded], Tensor]] = []
        states = {name: EncoderLoop() for name in self.names}
        with call_state({self.encoders[name]: state for name, state in states.items()}):
            for step in range(self.steps):
                with self.norms.during(step):
                    features = self.represent(batch)
                    joint = self.fusion(features, batch)
                passes.append((features, joint))
                if step < self.steps - 1:
                    for name, state in states.items():
                        state.next_pass(self._context(name, joint, features), _rows_with(batch, name))
        return passes

    def objective(self, prediction: Prediction, batch: Batch, step: Step) -> dict[str, Tensor]:
        """Return the base method's losses on the last pass, the loss of the earlier passes and the links' penalty."""
        losses = super().objective(prediction, batch, step)
        readings = prediction.extra.get("readings", ())
        if readings:
            early = torch.stack([task_losses(self.task, output, batch) for output in readings]).mean(dim=0)
            losses["steps"] = self.step_loss * weighted_mean(early, batch.weight)
        if self.link_penalty and self.steps > 1:
            squares = [weight.square().sum() for weight in self.link_parameters()]
            count = sum(weight.numel() for weight in self.link_parameters())
            losses["links"] = self.link_penalty * torch.stack(squares).sum() / count
        return losses

    def link_parameters(self) -> list[nn.Parameter]:
        """Return the weights that the loop added: W of every encoder, and the projection of the context."""
        if self.steps == 1:
            return []
        links = [parameter for encoder in self.encoders.values() for parameter in encoder.link.parameters()]
        return [*links, *self.project_context.parameters()]

    def overhead(self) -> dict[str, int]:
        """Return the number of parameters of the base method, and of those that the loop added."""
        added = sum(parameter.numel() for parameter in self.link_parameters())
        if self.steps > 1:  # columns that recurrent layers gained
            added += sum(getattr(encoder.link, "columns", 0) for encoder in self.encoders.values())
        return {"base": sum(parameter.numel() for parameter in self.parameters()) - added, "added": added}

    def _context(self, name: str, joint: Tensor, features: Mapping[str, Encoded]) -> Tensor:
        """Return what the encoder of a modality receives in the next pass."""
        context = joint if self.source == "joint" else features[name].pooled
        context = context.detach() if self.detach_steps else context
        return self.project_context[name](context) if self.source == "own" else self.project_context(context)


@register("unimodal-feedback:", paper=PAPER, equation="fig. 13")
class UnimodalFeedback(Progressive):
    """A control of progressive fusion: each encoder receives its own features again, and nothing of the others.

    What `pro:NAME` gains over `unimodal-feedback:NAME` comes from the other modalities, not from running twice.

        h_m^t = G_m(x_m ⊕ W_m E_m h_m^{t−1})         c = F(h_1^R, …, h_M^R)         z = P c
    """

    source = "own"


def close_loop(method: Any, loop: MethodLoopSettings) -> None:
    """Give a method the links of a loop; with one step, none."""
    method.steps, method.detach_steps = loop.steps, loop.detach
    method.step_loss, method.link_penalty = loop.step_loss, loop.link_penalty
    stages = stage_of_each(loop.into, method.names)
    if loop.steps == 1:
        return
    widths = context_widths(method)
    context = widths if loop.project is None else dict.fromkeys(widths, loop.project)
    like = next(method.parameters())
    project = {
        name: nn.Identity() if loop.project is None else nn.Linear(width, loop.project, bias=False).to(like)
        for name, width in widths.items()
    }
    method.project_context = project[method.names[0]] if method.source == "joint" else PerModality(project)
    looped = {
        name: loop_encoder(
            encoder, method.modalities[name], context[name], into=stages[name], mode=loop.mode, rank=loop.link_rank
        )
        for name, encoder in method.encoders.items()
    }
    method.encoders = PerModality(looped)
    once = [encoder.stages[stage] for encoder in looped.values() for stage in encoder.before]
    method.norms = NormStatistics(method, loop.steps, loop.statistics, once)
    method.norms.attach()


def stage_of_each(into: str | Mapping[str, str] | None, names: Iterable[str]) -> dict[str, str | None]:
    """Return the stage that receives the context in each modality's encoder; None is the default stage."""
    if into is None or isinstance(into, str):
        return dict.fromkeys(names, into)
    chosen: dict[str, str | None] = dict.fromkeys(names)
    for name, stage in into.items():
        if name not in chosen:
            raise unknown_name("modality", name, chosen, "It was given in into")
        chosen[name] = stage
    return chosen


def context_widths(method: Progressive) -> dict[str, int]:
    """Return the width of what each encoder receives, found by a dry run on two samples."""
    example = blank_batch(method.modalities, next(method.parameters()))
    with evaluating(method):
        features = method.represent(example)
        joint = method.fusion(features, example)
    if not isinstance(joint, Tensor) or joint.ndim != 2:
        what = f"shape {list(joint.shape)}" if isinstance(joint, Tensor) else type(joint).__name__
        raise UnsupportedError(
            f"progressive: the fusion of {type(method).__name__} must return [batch, width], got {what}"
        )
    return {name: (joint if method.source == "joint" else features[name].pooled).shape[1] for name in method.names}


def blank_batch(modalities: Mapping[str, Modality], like: Tensor, samples: int = 2) -> Batch:
    """Return blank samples with every modality present."""
    values, lengths = {}, {}
    for name, modality in modalities.items():
        values[name], length = blank_inputs(modality, like, samples)
        if length is not None:
            lengths[name] = length
    present = torch.ones(samples, len(values), dtype=torch.bool, device=like.device)
    index = torch.arange(samples, device=like.device)
    weight = like.new_ones(samples)
    return Batch(values, present, index=index, weight=weight, lengths=lengths, complete=frozenset(values))


def reason_against_loop(base: type[Method]) -> str | None:
    """Return why a method cannot be looped, or None if it can."""
    if issubclass(base, Progressive):
        return f"'{base.name}' is a loop already"
    if not issubclass(base, JointMethod):
        return f"'{base.name}' has no fusion of features to feed back"
    if base.forward is not JointMethod.forward:
        return f"the forward pass of '{base.name}' is its own, not encoders, fusion and head"
    return None


def loop_method(base: Method, **loop: Any) -> Progressive:
    """Return a copy of a built method in a loop; the method itself stays as it is."""
    reason = reason_against_loop(type(base))
    if reason is not None:
        raise UnsupportedError(f"progressive: {reason}")
    settings = MethodLoopSettings(**check_settings("progressive", MethodLoopSettings, loop))
    looped: Progressive = blank_member(Progressive, type(base))
    looped.__setstate__(copy.deepcopy(base).__getstate__())
    close_loop(looped, settings)
    return looped


def _rows_with(batch: Batch, name: str) -> Tensor | None:
    """Return the samples that have a modality; None: all. In a stacked batch every row is encoded."""
    return None if name in batch.complete or batch.stacked else batch.present_in(name).nonzero()[:, 0]
