"""Progressive fusion of a registered method, `pro:NAME`: encoders and fusion in a loop, the head once.

Shankar, Thompson and Fiterau 2022: Ĝ_m(x, c) = G_m(x ⊕ W_m c), c_t = F(Ĝ_1(x_1, c_{t−1}), …, Ĝ_M(x_M, c_{t−1})),
c_0 = nothing, prediction = P(c_R). R = 1 is the base method to the last bit; so is any R before training, since W
starts at zero.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from consilience.core.batches import Batch
from consilience.core.errors import UnsupportedError, unknown_name
from consilience.core.samples import Modality
from consilience.core.settings import number, whole_number, yes_or_no
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
from consilience.methods.progressive.dry_run import evaluating
from consilience.methods.progressive.links import check_mode
from consilience.methods.progressive.looped_encoder import loop_encoder
from consilience.methods.progressive.method_family import Family, blank_member
from consilience.methods.progressive.norm_statistics import Statistics, check_statistics

PAPER = "Shankar, Thompson and Fiterau 2022, Progressive Fusion for Multimodal Integration"


@register("pro:", paper=PAPER, equation="7–9")
class Progressive(Family, JointMethod):
    """A loop around a method that has a fusion: `pro:concat`, `pro:align`, …

    steps: how many passes (R); 1 is the base method and creates no weights. mode: the context is added to what a
    stage receives, or concatenated to it. into: the stage that receives it, one name for all encoders or a mapping
    modality → stage; None is the input, or the embeddings of tokens. link_rank: of W, None is full. project: width of a
    learned projection of the context (E), None is none. detach: no gradient from one pass to the one before.
    step_loss: weight of the mean task loss of the earlier passes' readings. link_penalty: weight of the mean square of
    W. statistics: which pass updates batch norms (`Statistics`).
    """

    # What is fed back: "joint", what was fused, or each encoder's "own" features.
    source: ClassVar[str] = "joint"
    steps: int
    detach_steps: bool
    step_loss: float
    link_penalty: float
    project_context: Any
    norms: Statistics

    def __init__(
        self,
        spec: Spec,
        *,
        steps: int = 2,
        mode: str = "add",
        into: str | Mapping[str, str] | None = None,
        link_rank: int | None = None,
        project: int | None = None,
        detach: bool = False,
        step_loss: float = 0.0,
        link_penalty: float = 0.0,
        statistics: str = "per-step",
        **settings: Any,
    ):
        super().__init__(spec, **settings)
        close_loop(
            self,
            steps=steps,
            mode=mode,
            into=into,
            link_rank=link_rank,
            project=project,
            detach=detach,
            step_loss=step_loss,
            link_penalty=link_penalty,
            statistics=statistics,
        )

    @classmethod
    def no_member(cls, base: type[Method]) -> str | None:
        """A loop needs a fusion, and encoders, fusion and head that can be run apart."""
        return no_loop(base)

    def forward(self, batch: Batch) -> Prediction:
        """Encode and fuse `steps` times, read the last."""
        if self.steps == 1:
            return super().forward(batch)
        *earlier, (features, joint) = self.passes(batch)
        prediction = self.read(joint, features, batch)
        if prediction.opinions is None:
            prediction.opinions = self.opine(earlier[0][0])
        if self.step_loss and self.training:
            with self.norms.aside():
                readings = [self.read(fused, made, batch).output for made, fused in earlier]
            prediction.extra = {**prediction.extra, "readings": readings}
        return prediction

    def passes(self, batch: Batch) -> list[tuple[dict[str, Encoded], Tensor]]:
        """Every pass's features and the joint representation made of them, the last being the one that is read."""
        if self.steps == 1:
            features = self.represent(batch)
            return [(features, self.fusion(features, batch))]
        made: list[tuple[dict[str, Encoded], Tensor]] = []
        try:
            for encoder in self.encoders.values():
                encoder.begin()
            for step in range(self.steps):
                with self.norms.during(step):
                    features = self.represent(batch)
                    made.append((features, self.fusion(features, batch)))
                if step < self.steps - 1:
                    self._feed_back(made[-1][1], features, batch)
        finally:  # also when a pass fails: a context left behind would leak into the next batch
            for encoder in self.encoders.values():
                encoder.forget()
        return made

    def objective(self, prediction: Prediction, batch: Batch, step: Step) -> dict[str, Tensor]:
        """The base method's losses on the last pass, those of earlier readings, and the links' penalty."""
        losses = super().objective(prediction, batch, step)
        readings = prediction.extra.get("readings", ())
        if readings:
            early = torch.stack([task_losses(self.task, one, batch) for one in readings]).mean(dim=0)
            losses["steps"] = self.step_loss * weighted_mean(early, batch.weight)
        if self.link_penalty and self.steps > 1:
            squares = [weight.square().sum() for weight in self.link_parameters()]
            count = sum(weight.numel() for weight in self.link_parameters())
            losses["links"] = self.link_penalty * torch.stack(squares).sum() / count
        return losses

    def link_parameters(self) -> list[nn.Parameter]:
        """The weights that the loop added: W of every encoder, and E."""
        if self.steps == 1:
            return []
        links = [parameter for encoder in self.encoders.values() for parameter in encoder.link.parameters()]
        return [*links, *self.project_context.parameters()]

    def overhead(self) -> dict[str, int]:
        """Number of parameters: of the base method, and those the loop added."""
        added = sum(parameter.numel() for parameter in self.link_parameters())
        if self.steps > 1:  # columns that recurrent layers gained
            added += sum(getattr(encoder.link, "columns", 0) for encoder in self.encoders.values())
        return {"base": sum(parameter.numel() for parameter in self.parameters()) - added, "added": added}

    def _feed_back(self, joint: Tensor, features: Mapping[str, Encoded], batch: Batch) -> None:
        for name, encoder in self.encoders.items():
            context = joint if self.source == "joint" else features[name].pooled
            context = context.detach() if self.detach_steps else context
            context = self.project_context[name](context) if self.source == "own" else self.project_context(context)
            every = name in batch.complete or batch.stacked  # all rows are encoded
            rows = None if every else batch.present_in(name).nonzero()[:, 0]
            encoder.listen(context, rows)


@register("unimodal-feedback:", paper=PAPER, equation="fig. 13")
class UnimodalFeedback(Progressive):
    """The control of progressive fusion: each encoder hears its own features again, nothing crosses.

    What `pro:NAME` gains over `unimodal-feedback:NAME` is owed to the other modalities, not to running twice.
    """

    source = "own"


def close_loop(
    method: Any,
    *,
    steps: int,
    mode: str,
    into: str | Mapping[str, str] | None,
    link_rank: int | None,
    project: int | None,
    detach: bool,
    step_loss: float,
    link_penalty: float,
    statistics: str,
) -> None:
    """Give a method the links of a loop; with one step, none."""
    method.steps = whole_number("steps", steps)
    check_mode(mode)
    check_statistics(statistics)
    rank = None if link_rank is None else whole_number("link_rank", link_rank)
    width = None if project is None else whole_number("project", project)
    method.detach_steps = yes_or_no("detach", detach)
    method.step_loss = number("step_loss", step_loss, "≥ 0")
    method.link_penalty = number("link_penalty", link_penalty, "≥ 0")
    stages = joining_stages(into, method.names)
    if method.steps == 1:
        return
    widths = context_widths(method)
    context = widths if width is None else dict.fromkeys(widths, width)
    expand = {
        name: nn.Identity() if width is None else nn.Linear(size, width, bias=False).to(next(method.parameters()))
        for name, size in widths.items()
    }
    method.project_context = expand[method.names[0]] if method.source == "joint" else PerModality(expand)
    looped = {
        name: loop_encoder(encoder, method.modalities[name], context[name], into=stages[name], mode=mode, rank=rank)
        for name, encoder in method.encoders.items()
    }
    method.encoders = PerModality(looped)
    once = [one.stages[stage] for one in looped.values() for stage in one.before]
    method.norms = Statistics(method, method.steps, statistics, once)


def joining_stages(into: str | Mapping[str, str] | None, names: Iterable[str]) -> dict[str, str | None]:
    """The stage that receives the feedback in each modality's encoder; None is the default one."""
    if into is None or isinstance(into, str):
        return dict.fromkeys(names, into)
    chosen: dict[str, str | None] = dict.fromkeys(names)
    for name, stage in into.items():
        if name not in chosen:
            raise unknown_name("modality", name, chosen, "It was given in into")
        chosen[name] = stage
    return chosen


def context_widths(method: Progressive) -> dict[str, int]:
    """The width of what each encoder is fed back, found by one dry run on two samples."""
    example = blank_batch(method.modalities, next(method.parameters()))
    with evaluating(method):
        features = method.represent(example)
        joint = method.fusion(features, example)
    if not isinstance(joint, Tensor) or joint.ndim != 2:
        what = f"shape {list(joint.shape)}" if isinstance(joint, Tensor) else type(joint).__name__
        raise UnsupportedError(
            f"progressive: the fusion of {type(method).__name__} must give [batch, width], got {what}"
        )
    return {name: (joint if method.source == "joint" else features[name].pooled).shape[1] for name in method.names}


def blank_batch(modalities: Mapping[str, Modality], like: Tensor, samples: int = 2) -> Batch:
    """Samples of zeros (of ones, for tokens: 0 is padding) with every modality present."""
    values, lengths = {}, {}
    for name, modality in modalities.items():
        shape = (samples, *modality.shape)
        tokens = modality.kind == "tokens"
        values[name] = torch.ones(shape, dtype=torch.long, device=like.device) if tokens else like.new_zeros(shape)
        if modality.timed:
            lengths[name] = torch.full((samples,), modality.shape[0], device=like.device)
    present = torch.ones(samples, len(values), dtype=torch.bool, device=like.device)
    index = torch.arange(samples, device=like.device)
    weight = like.new_ones(samples)
    return Batch(values, present, index=index, weight=weight, lengths=lengths, complete=frozenset(values))


def no_loop(base: type[Method]) -> str | None:
    """Why a method cannot be looped, or None if it can."""
    if issubclass(base, Progressive):
        return f"'{base.name}' is a loop already"
    if not issubclass(base, JointMethod):
        return f"'{base.name}' has no fusion of features to feed back"
    if base.forward is not JointMethod.forward:
        return f"the forward pass of '{base.name}' is its own, not encoders, fusion and head"
    return None


def loop_method(base: Method, **loop: Any) -> Progressive:
    """A copy of a built method in a loop; the method itself is left as it is."""
    why = no_loop(type(base))
    if why is not None:
        raise UnsupportedError(f"progressive: {why}")
    looped: Progressive = blank_member(Progressive, type(base))
    looped.__setstate__(copy.deepcopy(base).__getstate__())
    known = inspect.signature(Progressive.__init__).parameters.values()
    settings = {one.name: one.default for one in known if one.kind is inspect.Parameter.KEYWORD_ONLY}
    for setting in loop:
        if setting not in settings:
            raise unknown_name("setting", setting, settings, "It was given to progressive")
    close_loop(looped, **{**settings, **loop})
    return looped
