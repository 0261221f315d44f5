"""Hooks on the submodules of any `nn.Module`: record a dry run, feed the context in, read the fusion's output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from consilience.core.errors import UnsupportedError
from consilience.methods.progressive.call_state import state_of
from consilience.methods.progressive.dry_run import describe, tensors_in
from consilience.methods.progressive.links import (
    Addition,
    RecurrentConcatenation,
    build_addition,
    build_concatenation,
    channel_axis,
    first_layer,
    resize_input,
)

Kwargs = dict[str, Any]


class CallRecorder:
    """Records what a submodule receives and returns in a dry run, how often it is called, and if the fusion came first.

    `contexts` is the list that receives what the fusion returns.
    """

    def __init__(self, module: nn.Module, path: str, contexts: list[Tensor]):
        self.module, self.path, self.calls = module, path, 0
        self.args: tuple[Any, ...] = ()
        self.kwargs: Kwargs = {}
        self.output: Any = None
        self.follows_fusion = False
        self._contexts = contexts
        self._handles = [
            module.register_forward_pre_hook(self.note_order),
            module.register_forward_hook(self.record, with_kwargs=True),
        ]

    def note_order(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        """Record whether the fusion has returned before the submodule is called."""
        self.follows_fusion = bool(self._contexts)

    def remove(self) -> None:
        """Take the hooks off."""
        for handle in self._handles:
            handle.remove()

    def record(self, module: nn.Module, args: tuple[Any, ...], kwargs: Kwargs, output: Any) -> None:
        """Record a call."""
        self.calls += 1
        self.args, self.kwargs, self.output = args, kwargs, output

    def argument(self) -> int | str:
        """Return the position or name of the first argument that is a tensor or a packed sequence."""
        if self.calls != 1:
            raise UnsupportedError(
                f"progressive: submodule {self.path!r} is {_times(self.calls)} in one forward pass; the feedback "
                "needs a submodule that is called once"
            )
        named: list[tuple[Any, Any]] = [*enumerate(self.args), *self.kwargs.items()]
        for key, value in named:
            if isinstance(value, Tensor | PackedSequence):
                return key
        raise UnsupportedError(f"progressive: submodule {self.path!r} receives no tensor to feed back into")


class Receiver(nn.Module):
    """The link into one submodule, built from a dry run on some samples.

    During a call its state (`call_state`) is the context `[batch, width]`.
    """

    def __init__(self, recorder: CallRecorder, samples: int, context: int, mode: str, rank: int | None):
        super().__init__()
        module, self.argument = recorder.module, recorder.argument()
        self.batch_axis = 0
        self.layers: tuple[Any, ...] = ()  # layers of the base that the link is hooked to, if not to the submodule
        self.handles: list[Any] = []
        received: Any = _argument(recorder.args, recorder.kwargs, self.argument)
        self.link: nn.Module
        if isinstance(received, PackedSequence):
            self._check_samples(recorder.path, received, int(received.batch_sizes[0]), samples)
        elif received.is_floating_point():
            self.batch_axis = self._find_batch_axis(recorder, received, samples)
        else:
            self._add_to_output(recorder, samples, context, mode, rank)
            return
        packed, data = (received, received.data) if isinstance(received, PackedSequence) else (None, received)

        def run(x: Tensor) -> Any:
            value = x if packed is None else packed._replace(data=x)
            args, kwargs = _with_argument(recorder.args, recorder.kwargs, self.argument, value)
            return module(*args, **kwargs)

        layers: list[Any] = []
        if mode == "concat":
            what = f"submodule {recorder.path!r}"
            self.link, layers = build_concatenation(
                module, run, data, context=context, samples=samples, rank=rank, what=what
            )
        elif packed is not None:
            self.link = Addition(context, data.shape[-1], rank=rank)
        else:
            axis = -1 if self.batch_axis else channel_axis(data, first_layer(module))
            self.link, layers = build_addition(module, run, data, context=context, axis=axis, rank=rank)
        self.layers = tuple(layers)
        for layer in layers:
            self.handles.append(
                layer.register_forward_pre_hook(self.widen_input, with_kwargs=True)
                if isinstance(self.link, RecurrentConcatenation)
                else layer.register_forward_hook(self.change_layer_output, with_kwargs=True)
            )
        if not layers:
            self.handles.append(module.register_forward_pre_hook(self.change_input, with_kwargs=True))

    def _add_to_output(self, recorder: CallRecorder, samples: int, context: int, mode: str, rank: int | None) -> None:
        """Add to what a submodule returns that receives token ids."""
        hidden = recorder.output
        if mode == "concat" or not (isinstance(hidden, Tensor) and hidden.is_floating_point()):
            into = "the embedding with mode='add', or" if mode == "concat" else "the embedding, or"
            raise UnsupportedError(
                f"progressive: submodule {recorder.path!r} receives whole numbers and returns {describe(hidden)}: feed "
                f"back into {into} into what follows it"
            )
        self.batch_axis = self._find_batch_axis(recorder, hidden, samples)
        self.link = Addition(context, hidden.shape[-1], axis=-1, rank=rank)
        self.handles.append(recorder.module.register_forward_hook(self.change_output))

    def _find_batch_axis(self, recorder: CallRecorder, hidden: Tensor, samples: int) -> int:
        """Return the batch axis: the one of `[batch, time, feature]` or `[time, batch, feature]` that fits."""
        fitting = [axis for axis in range(2 if hidden.ndim == 3 else 1) if hidden.ndim > 1]
        fitting = [axis for axis in fitting if hidden.shape[axis] == samples]
        if len(fitting) == 2:
            return int(is_time_first(recorder.module))
        self._check_samples(recorder.path, hidden, samples if fitting else -1, samples)
        return fitting[0]

    @staticmethod
    def _check_samples(path: str, hidden: Any, received: int, samples: int) -> None:
        if received != samples:
            raise UnsupportedError(
                f"progressive: submodule {path!r} receives {describe(hidden)}, to which a context of {samples} samples "
                "cannot be broadcast: choose a submodule that receives one entry for each sample, batch first"
            )

    def remove(self) -> None:
        """Remove the hooks, and the columns that recurrent layers gained."""
        for handle in self.handles:
            handle.remove()
        for layer in self.layers:
            if isinstance(layer, nn.RNNBase):
                resize_input(layer, -self.link.width)  # type: ignore[arg-type,operator]

    def change_input(self, module: nn.Module, args: tuple[Any, ...], kwargs: Kwargs) -> Any:
        """Add to what the submodule receives."""
        context = state_of(self)
        if context is None:
            return None
        return _with_argument(args, kwargs, self.argument, self._add(_argument(args, kwargs, self.argument), context))

    def change_output(self, module: nn.Module, received: Any, output: Tensor) -> Tensor | None:
        """Add to what the submodule returns."""
        context = state_of(self)
        return None if context is None else self._add(output, context)

    def change_layer_output(self, layer: nn.Module, args: tuple[Any, ...], kwargs: Kwargs, output: Tensor) -> Any:
        """Change a layer's output as the context in its input would."""
        context = state_of(self)
        return None if context is None else self.link(output, context, (*args, *kwargs.values())[0], layer)

    def widen_input(self, layer: nn.Module, args: tuple[Any, ...], kwargs: Kwargs) -> Any:
        """Give a recurrent layer its further inputs: zeros where there is no context."""
        key = 0 if args else "input"
        return _with_argument(args, kwargs, key, self.link(_argument(args, kwargs, key), state_of(self)))

    def _add(self, hidden: Any, context: Tensor) -> Any:
        if self.batch_axis:
            return self.link(hidden.transpose(0, 1), context).transpose(0, 1)
        return self.link(hidden, context)


class ContextSource(nn.Module):
    """Reads what the fusion returns. Its state during a call (`call_state`) is the list that receives the contexts."""

    def __init__(self, module: nn.Module, path: str):
        super().__init__()
        self.path = path
        self.handle = module.register_forward_hook(self.read_output, with_kwargs=True)

    def read_output(self, module: nn.Module, args: tuple[Any, ...], kwargs: Kwargs, output: Any) -> None:
        """Append the output as a context."""
        contexts = state_of(self)
        if contexts is not None:
            # A copy: what follows may change it in place, as a ReLU does.
            contexts.append(as_context(module, kwargs, output, self.path).clone())

    def only(self, contexts: list[Tensor]) -> Tensor:
        """Return the context of a pass, which must have called the fusion once."""
        if len(contexts) != 1:
            raise UnsupportedError(
                f"progressive: the fusion {self.path!r} is {_times(len(contexts))} in one forward pass; the submodule "
                "that is fed back must be called once"
            )
        return contexts[0]


def as_context(module: nn.Module, kwargs: Mapping[str, Any], output: Any, path: str) -> Tensor:
    """Return what a submodule returned as one vector for each sample, `[batch, width]`.

    Of a recurrent layer the last states are taken, of a sequence the mean over time (over the steps of
    `attention_mask`, where the submodule received one), of a map the mean over space. Of a tuple, mapping or dataclass
    (a model's output object) the first tensor is taken.
    """
    if isinstance(module, nn.RNNBase):
        state = output[1][0] if isinstance(module, nn.LSTM) else output[1]  # [layer × direction, batch, hidden]
        last = state[-2:] if module.bidirectional else state[-1:]
        return last.transpose(0, 1).flatten(1)
    tensor = next(tensors_in(output), None)
    if tensor is None or tensor.ndim < 2:
        raise UnsupportedError(
            f"progressive: the fusion {path!r} must return numbers [batch, width], a sequence or a map of them, got "
            f"{describe(output)}"
        )
    if tensor.ndim == 2:
        return tensor
    if is_time_first(module):
        tensor = tensor.transpose(0, 1)
    layers = [part for part in module.modules() if next(part.parameters(recurse=False), None) is not None]
    if channel_axis(tensor, layers[-1] if layers else None) == 1:
        return tensor.flatten(2).mean(2)
    mask = kwargs.get("attention_mask")
    if isinstance(mask, Tensor) and mask.shape == tensor.shape[:2]:
        real = mask.to(tensor.dtype)
        return torch.einsum("bt,btd->bd", real, tensor) / real.sum(1, keepdim=True).clamp(min=1)
    return tensor.flatten(1, -2).mean(1)


def is_time_first(module: nn.Module) -> bool:
    """Return whether one of torch's own recurrent or attention modules reads `[time, batch, feature]`."""
    known = (nn.RNNBase, nn.MultiheadAttention, nn.TransformerEncoder, nn.TransformerEncoderLayer)
    parts = [part for part in module.modules() if isinstance(part, nn.RNNBase | nn.MultiheadAttention)]
    return isinstance(module, known) and bool(parts) and not parts[0].batch_first


def _times(calls: int) -> str:
    return "not called" if calls == 0 else f"called {calls} times"


def _argument(args: tuple[Any, ...], kwargs: Kwargs, key: int | str) -> Any:
    return args[key] if isinstance(key, int) else kwargs[key]


def _with_argument(args: tuple[Any, ...], kwargs: Kwargs, key: int | str, value: Any) -> Any:
    """Return the arguments of a call with one of them replaced, by position or by name."""
    if isinstance(key, str):
        return args, {**kwargs, key: value}
    return (*args[:key], value, *args[key + 1 :]), kwargs
