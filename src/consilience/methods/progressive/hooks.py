"""Hooks on the submodules of any `nn.Module`: what one receives in a dry run, and the link that it hears later."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from consilience.core.errors import UnsupportedError
from consilience.methods.progressive.concatenating_links import RecurrentConcatenation, build_concatenation, narrow
from consilience.methods.progressive.dry_run import describe, tensors_in
from consilience.methods.progressive.links import Addition, PackedAddition, build_addition, channel_axis, first_layer


class Scout:
    """Watches what a submodule receives and gives in a dry run, and how often it is called."""

    def __init__(self, module: nn.Module, path: str):
        self.module, self.path, self.calls = module, path, 0
        self.args: tuple[Any, ...] = ()
        self.kwargs: dict[str, Any] = {}
        self.output: Any = None
        self.handle = module.register_forward_hook(self.after, with_kwargs=True)

    def after(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        """Remember the call."""
        self.calls += 1
        self.args, self.kwargs, self.output = args, kwargs, output

    def argument(self) -> int | str:
        """The argument that can receive, by place or by name: the first tensor or packed sequence."""
        if self.calls != 1:
            times = "not called" if self.calls == 0 else f"called {self.calls} times"
            raise UnsupportedError(
                f"progressive: submodule {self.path!r} is {times} in one forward pass; the feedback needs one that is "
                "called once"
            )
        named: list[tuple[Any, Any]] = [*enumerate(self.args), *self.kwargs.items()]
        for key, value in named:
            if isinstance(value, Tensor | PackedSequence):
                return key
        raise UnsupportedError(f"progressive: submodule {self.path!r} receives no tensor to feed back into")


class Receiver(nn.Module):
    """The link into one submodule, and the context it is to hear."""

    def __init__(self, scout: Scout, samples: int, context: int, mode: str, rank: int | None):
        super().__init__()
        module, self.argument = scout.module, scout.argument()
        self.context: Tensor | None = None
        self.batch_axis = 0
        self.layers: tuple[Any, ...] = ()  # those the link is hooked to, if not to the submodule; the base's
        self.handles: list[Any] = []
        received: Any = replaced(scout.args, scout.kwargs, self.argument)
        self.link: nn.Module
        if isinstance(received, PackedSequence):
            self._check(scout.path, received, int(received.batch_sizes[0]), samples)
        elif received.is_floating_point():
            self.batch_axis = self._find_batch(scout, received, samples)
        else:
            self._onto_output(scout, samples, context, mode, rank)
            return
        packed, data = (received, received.data) if isinstance(received, PackedSequence) else (None, received)

        def run(x: Tensor) -> Any:
            given = x if packed is None else packed._replace(data=x)
            args, kwargs = replacing(scout.args, scout.kwargs, self.argument, given)
            return module(*args, **kwargs)

        layers: list[Any] = []
        if mode == "concat":
            what = f"submodule {scout.path!r}"
            self.link, layers = build_concatenation(
                module, run, data, context=context, samples=samples, rank=rank, what=what
            )
        elif packed is not None:
            self.link = PackedAddition(context, data.shape[-1], rank=rank)
        else:
            axis = -1 if self.batch_axis else channel_axis(data, first_layer(module))
            self.link, layers = build_addition(module, run, data, context=context, axis=axis, rank=rank)
        self.layers = tuple(layers)
        for layer in layers:
            self.handles.append(
                layer.register_forward_pre_hook(self.beside_steps, with_kwargs=True)
                if isinstance(self.link, RecurrentConcatenation)
                else layer.register_forward_hook(self.after_layer, with_kwargs=True)
            )
        if not layers:
            self.handles.append(module.register_forward_pre_hook(self.into_input, with_kwargs=True))

    def _onto_output(self, scout: Scout, samples: int, context: int, mode: str, rank: int | None) -> None:
        """Token ids cannot be added to: their embeddings can."""
        hidden = scout.output
        if mode == "concat" or not (isinstance(hidden, Tensor) and hidden.is_floating_point()):
            into = "the embedding with mode='add', or" if mode == "concat" else "the embedding, or"
            raise UnsupportedError(
                f"progressive: submodule {scout.path!r} receives whole numbers and gives {describe(hidden)}: feed back "
                f"into {into} into what follows it"
            )
        self.batch_axis = self._find_batch(scout, hidden, samples)
        self.link = Addition(context, hidden.shape[-1], axis=-1, rank=rank)
        self.handles.append(scout.module.register_forward_hook(self.onto_output))

    def _find_batch(self, scout: Scout, hidden: Tensor, samples: int) -> int:
        """Which axis is the batch: of `[batch, time, feature]` and `[time, batch, feature]` the one that fits."""
        fitting = [axis for axis in range(2 if hidden.ndim == 3 else 1) if hidden.ndim > 1]
        fitting = [axis for axis in fitting if hidden.shape[axis] == samples]
        if len(fitting) == 2:
            return int(time_first(scout.module))
        self._check(scout.path, hidden, samples if fitting else -1, samples)
        return fitting[0]

    @staticmethod
    def _check(path: str, hidden: Any, found: int, samples: int) -> None:
        if found != samples:
            raise UnsupportedError(
                f"progressive: submodule {path!r} sees {describe(hidden)}, to which a context of {samples} samples "
                "cannot be broadcast: choose one that sees one entry for each sample, batch first"
            )

    def listen(self, context: Tensor | None) -> None:
        """Hear this context from now on; None: nothing."""
        self.context = context

    def remove(self) -> None:
        """Take the hooks off, and the columns that recurrent layers gained."""
        for handle in self.handles:
            handle.remove()
        for layer in self.layers:
            if isinstance(layer, nn.RNNBase):
                narrow(layer, self.link.width)  # type: ignore[arg-type]

    def into_input(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Add to what the submodule receives."""
        if self.context is None:
            return None
        return replacing(args, kwargs, self.argument, self._added(replaced(args, kwargs, self.argument)))

    def onto_output(self, module: nn.Module, received: Any, output: Tensor) -> Tensor | None:
        """Add to what the submodule gives."""
        return None if self.context is None else self._added(output)

    def after_layer(self, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor) -> Any:
        """Add what the context, added to the layer's input or beside it, would have changed."""
        if self.context is None:
            return None
        return self.link(output, self.context, (*args, *kwargs.values())[0], layer)

    def beside_steps(self, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Further inputs of a recurrent layer: zeros where there is no context."""
        key = 0 if args else "input"
        return replacing(args, kwargs, key, self.link(replaced(args, kwargs, key), self.context))

    def _added(self, hidden: Any) -> Any:
        if self.batch_axis:
            return self.link(hidden.transpose(0, 1), self.context).transpose(0, 1)
        return self.link(hidden, self.context)


class Tap(nn.Module):
    """Takes what a submodule gives, as a context `[batch, width]`."""

    def __init__(self, module: nn.Module, path: str):
        super().__init__()
        self.path, self.calls = path, 0
        self.listening = False
        self.given: Tensor | None = None
        self.handle = module.register_forward_hook(self.after, with_kwargs=True)

    def after(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        """Remember the output."""
        if self.listening:
            self.calls += 1
            # A copy: what follows may write over it, as a ReLU in place does.
            self.given = as_context(module, kwargs, output, self.path).clone()

    def take(self) -> Tensor:
        """What was given in this pass; from now on, the next one's."""
        given, calls = self.given, self.calls
        self.given, self.calls = None, 0
        if given is None or calls > 1:
            times = "not called" if given is None else f"called {calls} times"
            raise UnsupportedError(
                f"progressive: the fusion {self.path!r} is {times} in one forward pass; the one that is fed back must "
                "be called once"
            )
        return given

    def listen(self, listening: bool) -> None:
        """Begin or end to take, with nothing taken yet."""
        self.listening, self.given, self.calls = listening, None, 0


def as_context(module: nn.Module, kwargs: dict[str, Any], output: Any, path: str) -> Tensor:
    """What a submodule gave as one vector for each sample, `[batch, width]`.

    Of a recurrent layer the last states, of a sequence the mean over time (over real steps, where the submodule was
    told by `attention_mask` which they are), of a map the mean over space; of a tuple, mapping or dataclass (a model's
    output object) the first tensor counts.
    """
    if isinstance(module, nn.RNNBase):
        state = output[1][0] if isinstance(module, nn.LSTM) else output[1]  # [layer × direction, batch, hidden]
        last = state[-2:] if module.bidirectional else state[-1:]
        return last.transpose(0, 1).flatten(1)
    tensor = next(tensors_in(output), None)
    if tensor is None or tensor.ndim < 2:
        raise UnsupportedError(
            f"progressive: the fusion {path!r} must give numbers [batch, width], a sequence or a map of them, got "
            f"{describe(output)}"
        )
    if tensor.ndim == 2:
        return tensor
    if time_first(module):
        tensor = tensor.transpose(0, 1)
    layers = [one for one in module.modules() if next(one.parameters(recurse=False), None) is not None]
    if channel_axis(tensor, layers[-1] if layers else None) == 1:
        return tensor.flatten(2).mean(2)
    mask = kwargs.get("attention_mask")
    if isinstance(mask, Tensor) and mask.shape == tensor.shape[:2]:
        real = mask.to(tensor.dtype)
        return torch.einsum("bt,btd->bd", real, tensor) / real.sum(1, keepdim=True).clamp(min=1)
    return tensor.flatten(1, -2).mean(1)


def time_first(module: nn.Module) -> bool:
    """Whether one of torch's own recurrent or attention modules reads `[time, batch, feature]`."""
    known = (nn.RNNBase, nn.MultiheadAttention, nn.TransformerEncoder, nn.TransformerEncoderLayer)
    own = [one for one in module.modules() if isinstance(one, nn.RNNBase | nn.MultiheadAttention)]
    return isinstance(module, known) and bool(own) and not own[0].batch_first


def replaced(args: tuple[Any, ...], kwargs: dict[str, Any], key: int | str) -> Any:
    """The argument that is to be replaced."""
    return args[key] if isinstance(key, int) else kwargs[key]


def replacing(args: tuple[Any, ...], kwargs: dict[str, Any], key: int | str, value: Any) -> Any:
    """The arguments of a call with one of them replaced, by place or by name."""
    if isinstance(key, str):
        return args, {**kwargs, key: value}
    return (*args[:key], value, *args[key + 1 :]), kwargs
