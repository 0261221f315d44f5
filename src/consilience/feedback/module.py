"""Progressive fusion of any `nn.Module`: hooks on the submodules that hear the context and on the one that gives it.

The hooks are bound methods of registered submodules, not closures: they survive `deepcopy`, pickle and compilation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from consilience.encoders.choice import whole_number
from consilience.errors import InputError, UnsupportedError, unknown_name
from consilience.feedback.links import (
    CONVOLUTIONS,
    Addition,
    Concatenation,
    PackedAddition,
    channel_axis,
    check_mode,
    first_layer,
)
from consilience.feedback.statistics import Statistics


class ProgressiveModule(nn.Module):
    """A module called like its base and returning what the base returns, after `steps` passes.

    encoders: modality → the submodule whose input receives the feedback (its output, where the input is whole
    numbers); fusion: the submodule whose output is fed back, pooled over time or space to `[batch, width]`. Both by
    dotted path or as the submodule itself. The base is not copied: it is `base`, and carries hooks from then on that
    do nothing outside a call of this module; `remove` takes them off.

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
        rank: int | None = None,
        project: int | None = None,
        detach: bool = False,
        statistics: str = "last",
        example: Any = None,
    ):
        super().__init__()
        self.base = base
        self.steps, self.mode = whole_number("steps", steps), check_mode(mode)
        self.rank = None if rank is None else whole_number("rank", rank)
        self.project = None if project is None else whole_number("project", project)
        self.detach_steps = bool(detach)
        if not encoders:
            raise InputError("progressive: name at least one submodule that receives the feedback in encoders={…}")
        self.paths = {name: submodule_path(base, one, f"encoders[{name!r}]") for name, one in encoders.items()}
        self.fusion_path = submodule_path(base, fusion, "fusion")
        self.norms = Statistics([base], self.steps, statistics)
        self.receivers = nn.ModuleList()
        self.expand: nn.Module = nn.Identity()
        self.tap = Tap(base.get_submodule(self.fusion_path)) if self.steps > 1 else None
        if example is not None and self.steps > 1:
            args, kwargs = call_arguments(example)
            self._build(args, kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the base `steps` times, each pass hearing what the one before has fused; the last one's output."""
        return self.passes(*args, **kwargs)[-1]

    def passes(self, *args: Any, **kwargs: Any) -> list[Any]:
        """Every pass's output, for a loss on each of them."""
        if self.tap is None:
            return [self.base(*args, **kwargs)]
        if not self.receivers:
            self._build(args, kwargs)
        outputs = []
        try:
            for step in range(self.steps):
                with self.norms.during(step):
                    outputs.append(self.base(*args, **kwargs))
                if step < self.steps - 1:
                    context = self.tap.take(self.fusion_path)
                    context = context.detach() if self.detach_steps else context
                    context = self.expand(context)
                    for receiver in self._receivers():
                        receiver.listen(context)
        finally:  # also when a pass fails: a context left behind would leak into the next call
            self.tap.given = None
            for receiver in self._receivers():
                receiver.listen(None)
        return outputs

    def overhead(self) -> dict[str, int]:
        """Number of parameters: of the base, and those the loop added."""
        base = sum(parameter.numel() for parameter in self.base.parameters())
        return {"base": base, "added": sum(parameter.numel() for parameter in self.parameters()) - base}

    def _receivers(self) -> Iterator[Receiver]:
        return iter(self.receivers)  # type: ignore[arg-type]

    def remove(self) -> nn.Module:
        """Take the hooks off the base and return it."""
        for receiver in self._receivers():
            receiver.handle.remove()
        if self.tap is not None:
            self.tap.handle.remove()
        return self.base

    def _build(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """One dry run in eval mode tells what every receiver receives and how wide the context is."""
        assert self.tap is not None
        modes = {module: module.training for module in self.base.modules()}
        scouts = {name: Scout(self.base.get_submodule(path)) for name, path in self.paths.items()}
        self.base.eval()
        try:
            with torch.no_grad():
                self.base(*args, **kwargs)
            context = self.tap.take(self.fusion_path)
        finally:
            self.tap.given = None
            for scout in scouts.values():
                scout.remove()
            for module, training in modes.items():
                module.training = training
        width = context.shape[1]
        like = next((one for one in self.base.parameters() if one.is_floating_point()), context)
        if self.project is not None:
            self.expand, width = nn.Linear(width, self.project, bias=False), self.project
        receivers = [
            Receiver(self.base.get_submodule(path), path, scouts[name], len(context), width, self.mode, self.rank)
            for name, path in self.paths.items()
        ]
        self.receivers.extend(receivers)
        for module in (self.expand, self.receivers):
            module.to(device=like.device, dtype=like.dtype)


class Tap(nn.Module):
    """Takes what a submodule gives, as a context `[batch, width]`."""

    def __init__(self, module: nn.Module):
        super().__init__()
        self.given: Tensor | None = None
        self.handle = module.register_forward_hook(self.after)

    def after(self, module: nn.Module, received: Any, output: Any) -> None:
        """Remember the output: a tensor, or the first tensor of a tuple or of a model's output object."""
        tensor = first_tensor(output)
        if tensor is None or tensor.ndim < 2 or not tensor.is_floating_point():
            raise UnsupportedError(
                f"progressive: the fusion {type(module).__name__} must give a tensor [batch, width], a sequence or a "
                f"map, got {describe(output)}"
            )
        # Maps are averaged over space, sequences over time: what is fed back is one vector for each sample.
        self.given = tensor if tensor.ndim == 2 else tensor.mean(1) if tensor.ndim == 3 else tensor.flatten(2).mean(2)

    def take(self, path: str) -> Tensor:
        """What was given in this pass."""
        if self.given is None:
            raise UnsupportedError(f"progressive: the fusion {path!r} was not called in this pass")
        return self.given


class Scout:
    """Watches what a submodule receives and gives in a dry run, and how often it is called."""

    def __init__(self, module: nn.Module):
        self.calls = 0
        self.argument: Any = None
        self.received: Any = None
        self.output: Any = None
        self.handles = [
            module.register_forward_pre_hook(self.before, with_kwargs=True),
            module.register_forward_hook(self.after),
        ]

    def before(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Find the argument that can receive: the first tensor or packed sequence."""
        self.calls += 1
        named = [*enumerate(args), *kwargs.items()]
        self.argument, self.received = next(
            ((key, value) for key, value in named if isinstance(value, Tensor | PackedSequence)), (None, None)
        )

    def after(self, module: nn.Module, received: Any, output: Any) -> None:
        """Remember the output."""
        self.output = output

    def remove(self) -> None:
        """Stop watching."""
        for handle in self.handles:
            handle.remove()


class Receiver(nn.Module):
    """The link into one submodule, and the context it is to hear."""

    def __init__(
        self,
        module: nn.Module,
        path: str,
        scout: Scout,
        samples: int,
        context: int,
        mode: str,
        rank: int | None,
    ):
        super().__init__()
        self.path = path
        self.context: Tensor | None = None
        if scout.calls != 1:
            times = "not at all" if scout.calls == 0 else f"{scout.calls} times"
            raise UnsupportedError(
                f"progressive: submodule {path!r} is called {times} in one forward pass; the feedback needs one that "
                "is called once"
            )
        if scout.received is None:
            raise UnsupportedError(f"progressive: submodule {path!r} receives no tensor to feed back into")
        self.argument = scout.argument
        self.packed = isinstance(scout.received, PackedSequence)
        whole = not self.packed and not scout.received.is_floating_point()
        hidden = scout.output if whole else scout.received
        if whole and not (isinstance(hidden, Tensor) and hidden.is_floating_point()):
            raise UnsupportedError(
                f"progressive: submodule {path!r} receives whole numbers and gives {describe(hidden)}: feed back into "
                "the embedding, or into what follows it"
            )
        if self.packed:
            self.batch_axis = 0
        else:
            self.batch_axis = 1 if hidden.ndim == 3 and time_first(module) else 0
            if hidden.ndim < 2 or hidden.shape[self.batch_axis] != samples:
                raise UnsupportedError(
                    f"progressive: submodule {path!r} sees {describe(hidden)}, the context has {samples} samples: it "
                    "cannot be broadcast to it"
                )
        first = first_layer(module)
        if mode == "add" or whole:
            axis = -1 if self.packed or self.batch_axis else channel_axis(hidden, None if whole else module)
            channels = hidden.data.shape[-1] if self.packed else hidden.shape[axis]
            self.link: nn.Module = (
                PackedAddition(context, channels, rank=rank)
                if self.packed
                else Addition(context, channels, axis=axis, rank=rank)
            )
            hook: Any = module.register_forward_hook(self.onto_output) if whole else None
            self.handle = hook or module.register_forward_pre_hook(self.into_input, with_kwargs=True)
        elif isinstance(first, (nn.Linear, *CONVOLUTIONS)):
            self.link = Concatenation(context, first, rank=rank)
            self.handle = first.register_forward_hook(self.beside_input)
        else:
            begins = "has no weights" if first is None else f"begins with {type(first).__name__}"
            raise UnsupportedError(
                f"progressive: mode='concat' needs a submodule that begins with a linear or convolutional layer; "
                f"{path!r} {begins}: use mode='add'"
            )

    def listen(self, context: Tensor | None) -> None:
        """Hear this context from now on; None: nothing."""
        self.context = context

    def into_input(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Add to what the submodule receives."""
        if self.context is None:
            return None
        if isinstance(self.argument, str):
            return args, {**kwargs, self.argument: self._added(kwargs[self.argument])}
        changed = list(args)
        changed[self.argument] = self._added(args[self.argument])
        return tuple(changed), kwargs

    def onto_output(self, module: nn.Module, received: Any, output: Tensor) -> Tensor | None:
        """Add to what the submodule gives."""
        return None if self.context is None else self._added(output)

    def beside_input(self, layer: nn.Module, received: tuple[Tensor, ...], output: Tensor) -> Tensor | None:
        """Add what further inputs of the layer would have added."""
        return None if self.context is None else self.link(output, self.context, received[0])

    def _added(self, hidden: Any) -> Any:
        if self.batch_axis:
            return self.link(hidden.transpose(0, 1), self.context).transpose(0, 1)
        return self.link(hidden, self.context)


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
    raise InputError(f"progressive: {what} is no submodule of {type(base).__name__}: {type(which).__name__}")


def call_arguments(example: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """An example as the arguments of a call."""
    if isinstance(example, Mapping):
        return (), dict(example)
    return (tuple(example), {}) if isinstance(example, tuple | list) else ((example,), {})


def first_tensor(output: Any) -> Tensor | None:
    """A tensor as it is; of a tuple, list or mapping (a model's output object) the first tensor in it."""
    if isinstance(output, Tensor):
        return output
    parts = output.values() if isinstance(output, Mapping) else output if isinstance(output, tuple | list) else ()
    return next((one for one in parts if isinstance(one, Tensor)), None)


def time_first(module: nn.Module) -> bool:
    """Whether a recurrent or attention module reads `[time, batch, feature]`."""
    own = [one for one in module.modules() if isinstance(one, nn.RNNBase | nn.MultiheadAttention)]
    return bool(own) and not own[0].batch_first


def describe(value: Any) -> str:
    """A value in a message: what it is, and its shape."""
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} of shape {list(value.shape)}"
    return type(value).__name__
