"""Parts of a method that are trained differently: the encoder of each modality, the fusion and the head.

Settings such as `lr={"text": 2e-5, "head": 1e-3}` name parts. Every parameter of a method belongs to exactly one: to a
modality if it lies in that modality's encoder, wherever the method keeps it; to "head" if it turns features into the
output; to "fusion" otherwise. "rest" stands for all parts that are not named.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torch import nn

from consilience.core.errors import InputError
from consilience.encoders import Encoder, Pretrained, encoder_layers
from consilience.methods import Method, PerModality
from consilience.training.part_names import BY_PART, FUSION, HEAD
from consilience.training.training_settings import ResolvedSettings

_HEADS = ("head", "heads")


def parts_of(module: nn.Module) -> dict[str, str]:
    """Return the part of each parameter by its name.

    Args:
        module: A method.

    Example:
        >>> from consilience import methods
        >>> from consilience.core.samples import Modality
        >>> from consilience.core.targets import Task
        >>> import numpy as np
        >>> sound = {"sound": Modality("sound", "vector", (3,))}
        >>> method = methods.build("concat", methods.Spec(sound, Task.of_labels(np.array([0, 1]))))
        >>> sorted(set(parts_of(method).values()))
        ['fusion', 'head', 'sound']
    """
    return dict(_walk(module, "", FUSION))


def _walk(module: nn.Module, prefix: str, part: str) -> Iterator[tuple[str, str]]:
    for name, parameter in module._parameters.items():
        if parameter is not None:
            yield prefix + name, part
    for name, child in module._modules.items():
        if child is None:
            continue
        path = f"{prefix}{name}."
        if name == "encoders" and isinstance(child, PerModality) and part == FUSION:
            for place, modality in enumerate(child.names):
                yield from _walk(child.each[place], f"{path}each.{place}.", modality)
            continue
        own = part
        if isinstance(child, Encoder) and child.modality_name:
            own = child.modality_name
        elif isinstance(module, Method) and name in _HEADS:
            own = HEAD
        yield from _walk(child, path, own)


def depths_of(module: nn.Module) -> dict[str, tuple[int, int]]:
    """Return the layer of each parameter of an encoder, from 0, and the encoder's last layer, by the parameter's name.

    What comes before the layers, such as the word vectors that a method has taken out of a BERT, belongs to layer 0.
    Parameters of fusion and head are not listed.

    Args:
        module: A method.
    """
    parts = parts_of(module)
    names = {id(parameter): name for name, parameter in module.named_parameters()}
    layer: dict[str, int] = {}
    last: dict[str, int] = {}
    for child in module.modules():
        if not isinstance(child, Encoder):
            continue
        layers = encoder_layers(child)
        for place, group in enumerate(layers):
            for part in group:
                for parameter in part.parameters():
                    name = names[id(parameter)]
                    layer[name] = place
                    last[parts[name]] = max(last.get(parts[name], 0), len(layers) - 1)
    return {name: (layer.get(name, 0), last.get(part, 0)) for name, part in parts.items() if part not in (FUSION, HEAD)}


def check_trained(module: nn.Module, training: Mapping[str, Any]) -> None:
    """Raise an error for a setting by part that names a part of a method whose weights are all fixed for good.

    Args:
        module: A method.
        training: Settings of training by name.

    Raises:
        InputError: If there is such a part; it would never be trained.
    """
    named = {setting: given for setting in BY_PART if isinstance(given := training.get(setting), Mapping)}
    if not named:
        return
    parts, trained = parts_of(module), {name for name, weight in module.named_parameters() if weight.requires_grad}
    fixed = set(parts.values()) - {parts[name] for name in trained}
    for setting, given in named.items():
        if wrong := [name for name in given if name in fixed]:
            raise InputError(
                f"training {type(module).__name__}: {setting} is given for {wrong[0]!r}, whose weights are all fixed: "
                "set freeze=False or lora in its encoder, or leave it out"
            )


def parameter_groups(
    module: nn.Module, names: Iterable[str], settings: ResolvedSettings, lr: float | None = None
) -> list[dict[str, Any]] | None:
    """Return groups of parameters for an optimizer, or None where all are trained alike.

    Each group has its `weight_decay`, and as `rate` the learning rate that schedules multiply. With `layer_decay` d the
    rate of layer l of an encoder of L layers is multiplied by d^(L − 1 − l); a number is for pretrained encoders.

    Args:
        module: A method.
        names: Of the parameters to train.
        settings: How to train.
        lr: Learning rate of a phase, if not that of the settings; rates by part keep their ratio to it.
    """
    if not (settings.lr_by_part or settings.weight_decay_by_part or settings.layer_decay is not None):
        return None
    parts, parameters = parts_of(module), dict(module.named_parameters())
    depths = depths_of(module) if settings.layer_decay is not None else {}
    decays = _layer_decays(module, settings.layer_decay)
    ratio = 1.0 if lr is None else lr / settings.lr
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name in names:
        part = parts[name]
        rate = settings.lr_by_part.get(part, settings.lr) * ratio
        if part in decays and name in depths:
            layer, last = depths[name]
            rate *= decays[part] ** (last - layer)
        decay = settings.weight_decay_by_part.get(part, settings.weight_decay)
        groups.setdefault((rate, decay), []).append(parameters[name])
    return [
        {"params": weights, "lr": rate, "rate": rate, "weight_decay": decay}
        for (rate, decay), weights in groups.items()
    ]


def _layer_decays(module: nn.Module, given: float | Mapping[str, float] | None) -> Mapping[str, float]:
    """Modality → decay; a number is that of every pretrained encoder."""
    if given is None:
        return {}
    if isinstance(given, Mapping):
        return given
    return {child.modality_name: given for child in module.modules() if isinstance(child, Pretrained)}
