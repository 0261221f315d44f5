"""Progressive fusion of any `nn.Module`: hooks on the submodules that hear the context and on the one that gives it.

The hooks are bound methods of registered submodules, not closures: they survive `deepcopy`, pickle and compilation.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

from consilience.core.errors import InputError, unknown_name
from consilience.core.settings import whole_number, yes_or_no
from consilience.methods.progressive.dry_run import evaluating
from consilience.methods.progressive.hooks import Receiver, Scout, Tap
from consilience.methods.progressive.links import check_mode
from consilience.methods.progressive.norm_statistics import Statistics


class ProgressiveModule(nn.Module):
    """A module called like its base and returning what the base returns, after `steps` passes.

    encoders: modality → the submodule whose input receives the feedback (its output, where the input is token ids);
    fusion: the submodule whose output is fed back, pooled over time or space to `[batch, width]`. Both by dotted path
    or as the submodule itself. mode, link_rank, project, detach, statistics: as for `pro:NAME`.

    The base is not copied: it is `base`, and carries hooks from then on that do nothing outside a call of this module
    (a recurrent layer that hears by concatenation reads further inputs, zeros); `remove` takes all of that off.

    Links are built by a dry run on `example` (a tuple of arguments, a mapping of keyword arguments, or one tensor),
    or in the first call without one: then only after it do `parameters()` name them all.
    """

    def __init__(
        self,
        base: nn.Module,
        encoders: Mapping[str, str | nn.Module],
        fusion: str | nn.Module,
        *,
        steps: int = 2,
        mode: str = "add",
        link_rank: int | None = None,
        project: int | None = None,
        detach: bool = False,
        statistics: str = "per-step",
        example: Any = None,
    ):
        super().__init__()
        self.base = base
        self.steps, self.mode = whole_number("steps", steps), check_mode(mode)
        self.link_rank = None if link_rank is None else whole_number("link_rank", link_rank)
        self.project = None if project is None else whole_number("project", project)
        self.detach_steps = yes_or_no("detach", detach)
        self.paths = encoder_paths(base, encoders)
        self.fusion_path = submodule_path(base, fusion, "fusion")
        self.norms = Statistics(base, self.steps, statistics)
        self.receivers = nn.ModuleList()
        self.expand: nn.Module = nn.Identity()
        self.tap: Tap | None = None
        if example is not None and self.steps > 1:
            args, kwargs = call_arguments(example)
            self._build(args, kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the base `steps` times, each pass hearing what the one before has fused; the last one's output."""
        return self.passes(*args, **kwargs)[-1]

    def passes(self, *args: Any, **kwargs: Any) -> list[Any]:
        """Every pass's output, for a loss on each of them."""
        if self.steps == 1:
            return [self.base(*args, **kwargs)]
        if self.tap is None:
            self._build(args, kwargs)
            if self.base.training and torch.is_grad_enabled():
                warnings.warn(
                    "progressive: this first call has made the loop's own weights, and an optimizer made before it "
                    "would leave them at zero, where the loop changes nothing: give progressive(…, example=inputs), "
                    "or make the optimizer now",
                    stacklevel=3,
                )
        assert self.tap is not None
        outputs = []
        try:
            self.tap.listen(True)
            for step in range(self.steps):
                with self.norms.during(step):
                    outputs.append(self.base(*args, **kwargs))
                if step < self.steps - 1:
                    context = self.tap.take()
                    context = self.expand(context.detach() if self.detach_steps else context)
                    for receiver in self._receivers():
                        receiver.listen(context)
        finally:  # also when a pass fails: a context left behind would leak into the next call
            self.tap.listen(False)
            for receiver in self._receivers():
                receiver.listen(None)
        return outputs

    def link_parameters(self) -> list[nn.Parameter]:
        """The weights that the loop added: W of every receiver, and E."""
        return [*self.receivers.parameters(), *self.expand.parameters()]

    def overhead(self) -> dict[str, int]:
        """Number of parameters: of the base, and those the loop added."""
        added = sum(parameter.numel() for parameter in self.link_parameters())
        added += sum(getattr(receiver.link, "columns", 0) for receiver in self._receivers())
        return {"base": sum(parameter.numel() for parameter in self.parameters()) - added, "added": added}

    def remove(self) -> nn.Module:
        """Take everything off the base and return it."""
        for receiver in self._receivers():
            receiver.remove()
        if self.tap is not None:
            self.tap.handle.remove()
        self.receivers, self.tap = nn.ModuleList(), None
        return self.base

    def _receivers(self) -> Iterator[Receiver]:
        return iter(self.receivers)  # type: ignore[arg-type]

    def _build(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """One dry run in evaluation mode tells what every receiver receives and how wide the context is."""
        self.tap = Tap(self.base.get_submodule(self.fusion_path), self.fusion_path)
        scouts = [Scout(self.base.get_submodule(path), path) for path in self.paths.values()]
        try:
            with evaluating(self.base):
                self.tap.listen(True)
                self.base(*args, **kwargs)
                for scout in scouts:
                    scout.handle.remove()
                context = self.tap.take()
                samples, width = context.shape
                if self.project is not None:
                    self.expand, width = nn.Linear(width, self.project, bias=False), self.project
                for scout in scouts:
                    self.receivers.append(Receiver(scout, samples, width, self.mode, self.link_rank))
        except BaseException:  # the base is left as it was
            for scout in scouts:
                scout.handle.remove()
            self.remove()
            raise
        self.tap.listen(False)
        like = next((one for one in self.base.parameters() if one.is_floating_point()), context)
        for module in (self.expand, self.receivers):
            module.to(device=like.device, dtype=like.dtype)


def encoder_paths(base: nn.Module, encoders: Mapping[str, str | nn.Module]) -> dict[str, str]:
    """Modality → the dotted path of its submodule, each another one."""
    if not isinstance(encoders, Mapping):
        raise InputError(f"progressive: encoders must be a mapping modality → submodule, got {encoders!r}")
    if not encoders:
        raise InputError("progressive: name at least one submodule that receives the feedback in encoders={…}")
    paths = {name: submodule_path(base, one, f"encoders[{name!r}]") for name, one in encoders.items()}
    names = {path: name for name, path in paths.items()}
    for name, path in paths.items():
        if names[path] != name:
            raise InputError(f"progressive: submodule {path!r} was given for both {name!r} and {names[path]!r}")
    return paths


def submodule_path(base: nn.Module, which: str | nn.Module, what: str) -> str:
    """The dotted path of a submodule given by path or as itself."""
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
    """An example as the arguments of a call."""
    if isinstance(example, Mapping):
        return (), dict(example)
    return (tuple(example), {}) if type(example) in (tuple, list) else ((example,), {})
