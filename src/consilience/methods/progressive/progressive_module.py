"""Progressive fusion of any `nn.Module`: hooks on the submodules that receive the context and on the one it comes from.

The hooks are bound methods of registered submodules, not closures: they survive `deepcopy`, pickle and compilation.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from consilience.core.errors import InputError, UnsupportedError, unknown_name
from consilience.core.settings import check_settings
from consilience.methods.progressive.call_state import call_state
from consilience.methods.progressive.dry_run import dependent_modules, evaluating
from consilience.methods.progressive.hooks import CallRecorder, ContextSource, Receiver
from consilience.methods.progressive.loop_settings import LoopSettings
from consilience.methods.progressive.norm_statistics import NormStatistics


class ProgressiveModule(nn.Module):
    """A module called like its base that returns what the base returns, after `steps` passes.

    The base is not copied: it is `base`, and has hooks that do nothing outside a call of this module (a recurrent
    layer with mode="concat" reads further inputs, which are zeros then). `remove` takes them off.

    Args:
        base: The module.
        encoders: Modality → the submodule whose input receives the context (its output, where the input is token
            ids), by dotted path or as the submodule itself.
        fusion: The submodule whose output is fed back, pooled over time or space to `[batch, width]`.
        example: Inputs for the dry run that builds the links: a tuple of arguments, a mapping of keyword arguments, or
            a single tensor. Without it the first call builds them, and only then do `parameters()` include them.
        **loop: The fields of `LoopSettings`.
    """

    def __init__(
        self,
        base: nn.Module,
        encoders: Mapping[str, str | nn.Module],
        fusion: str | nn.Module,
        *,
        example: Any = None,
        **loop: Any,
    ):
        super().__init__()
        self.base = base
        self.loop = LoopSettings(**check_settings("progressive", LoopSettings, loop))
        self.paths = encoder_paths(base, encoders)
        self.fusion_path = submodule_path(base, fusion, "fusion")
        self.norms = NormStatistics(base, self.loop.steps, self.loop.statistics)
        self.receivers = nn.ModuleList()
        self.expand: nn.Module = nn.Identity()
        self.source: ContextSource | None = None
        if example is not None and self.loop.steps > 1:
            self._build(*call_arguments(example))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the base `steps` times, each pass with the context of the previous one, and return the last output."""
        return self.passes(*args, **kwargs)[-1]

    def passes(self, *args: Any, **kwargs: Any) -> list[Any]:
        """Return the output of every pass, for a loss on each of them."""
        if self.loop.steps == 1:
            return [self.base(*args, **kwargs)]
        if self.source is None:
            self._build(args, kwargs)
            if self.base.training and torch.is_grad_enabled():
                warnings.warn(
                    "progressive: this first call has made the loop's own weights, and an optimizer made before it "
                    "would leave them at zero, where the loop changes nothing: give progressive(…, example=inputs), "
                    "or make the optimizer now",
                    stacklevel=3,
                )
        assert self.source is not None
        outputs: list[Any] = []
        states: dict[nn.Module, Any] = {}
        for step in range(self.loop.steps):
            contexts: list[Tensor] = []
            last = step == self.loop.steps - 1
            with call_state(states if last else {**states, self.source: contexts}), self.norms.during(step):
                outputs.append(self.base(*args, **kwargs))
            if not last:
                context = self.source.only(contexts)
                context = self.expand(context.detach() if self.loop.detach else context)
                states = dict.fromkeys(self.receivers, context)
        return outputs

    def link_parameters(self) -> list[nn.Parameter]:
        """Return the weights that the loop added: W of every receiver, and the projection of the context."""
        return [*self.receivers.parameters(), *self.expand.parameters()]

    def overhead(self) -> dict[str, int]:
        """Return the number of parameters of the base, and of those that the loop added."""
        added = sum(parameter.numel() for parameter in self.link_parameters())
        added += sum(getattr(receiver.link, "columns", 0) for receiver in self._receivers())
        return {"base": sum(parameter.numel() for parameter in self.parameters()) - added, "added": added}

    def remove(self) -> nn.Module:
        """Take everything off the base and return it."""
        for receiver in self._receivers():
            receiver.remove()
        if self.source is not None:
            self.source.handle.remove()
        self.norms.remove()
        self.receivers, self.source = nn.ModuleList(), None
        return self.base

    def _receivers(self) -> Iterator[Receiver]:
        return iter(self.receivers)  # type: ignore[arg-type]

    def _build(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Build the links by a dry run in evaluation mode, which shows all shapes."""
        source = ContextSource(self.base.get_submodule(self.fusion_path), self.fusion_path)
        contexts: list[Tensor] = []
        recorders = [CallRecorder(self.base.get_submodule(path), path, contexts) for path in self.paths.values()]
        try:
            with evaluating(self.base):
                with call_state({source: contexts}):
                    self.base(*args, **kwargs)
                for recorder in recorders:
                    recorder.remove()
                context = source.only(contexts)
                check_loop(self.base, self.base.get_submodule(self.fusion_path), recorders, args, kwargs)
                samples, width = context.shape
                if self.loop.project is not None:
                    self.expand, width = nn.Linear(width, self.loop.project, bias=False), self.loop.project
                for recorder in recorders:
                    self.receivers.append(Receiver(recorder, samples, width, self.loop.mode, self.loop.link_rank))
        except BaseException:  # the base is left as it was
            for recorder in recorders:
                recorder.remove()
            source.handle.remove()
            self.remove()
            raise
        like = next((weight for weight in self.base.parameters() if weight.is_floating_point()), context)
        for module in (self.expand, self.receivers):
            module.to(device=like.device, dtype=like.dtype)
        self.norms.attach()
        self.source = source


def check_loop(
    base: nn.Module, fusion: nn.Module, recorders: Sequence[CallRecorder], args: tuple[Any, ...], kwargs: Any
) -> None:
    """Refuse what is no loop: a submodule that reads what the fusion returns, or no submodule before the fusion."""
    late = {recorder.module: recorder.path for recorder in recorders if recorder.follows_fusion}
    if not late:
        return
    paths = list(late.values())
    if len(late) < len(recorders):
        paths = [late[module] for module in dependent_modules(base, fusion, list(late), args, kwargs)]
    if paths:
        raise UnsupportedError(
            f"progressive: the context cannot return to the fusion from {', '.join(map(repr, paths))}, called after "
            "the fusion has returned, so that there would be no loop: name submodules in encoders whose output the "
            "fusion reads"
        )


def encoder_paths(base: nn.Module, encoders: Mapping[str, str | nn.Module]) -> dict[str, str]:
    """Return the dotted path of each modality's submodule. No two modalities may share a submodule."""
    if not isinstance(encoders, Mapping):
        raise InputError(f"progressive: encoders must be a mapping modality → submodule, got {encoders!r}")
    if not encoders:
        raise InputError("progressive: name at least one submodule that receives the feedback in encoders={…}")
    paths = {name: submodule_path(base, which, f"encoders[{name!r}]") for name, which in encoders.items()}
    names = {path: name for name, path in paths.items()}
    for name, path in paths.items():
        if names[path] != name:
            raise InputError(f"progressive: submodule {path!r} was given for both {name!r} and {names[path]!r}")
    return paths


def submodule_path(base: nn.Module, which: str | nn.Module, what: str) -> str:
    """Return the dotted path of a submodule that is given by path or as itself."""
    known = {path: module for path, module in base.named_modules() if path}
    if isinstance(which, str):
        if which not in known:
            raise unknown_name("submodule", which, known, f"It was given as {what} of {type(base).__name__}")
        return which
    for path, module in known.items():
        if module is which:
            return path
    raise InputError(f"progressive: {what}, a {type(which).__name__}, is no submodule of {type(base).__name__}")


def call_arguments(example: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return an example as the arguments of a call."""
    if isinstance(example, Mapping):
        return (), dict(example)
    return (tuple(example), {}) if type(example) in (tuple, list) else ((example,), {})
