"""LoRA: a pretrained model stays as it is, and learns a product of two small matrices beside each of its linear maps.

    h = W x + (α / r) B A x,   A: [r, in], B: [out, r], B = 0 at the start

Hu et al. 2022, *LoRA: Low-Rank Adaptation of Large Language Models*, by the library PEFT.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from consilience.core.errors import InputError, UnsupportedError
from consilience.encoders.pretrained_body import layer_list


def add_lora(body: nn.Module, rank: int, alpha: float | None, dropout: float, targets: Sequence[str] | None) -> None:
    """Freeze a model, and put adapters beside linear maps and convolutions of its layers, in place.

    Args:
        body: The model.
        rank: r.
        alpha: α. None: 2 r.
        dropout: Dropout rate of what the adapters read.
        targets: The last part of the names of the maps, such as "query" and "value". None: all in its layers.

    Raises:
        UnsupportedError: If PEFT is not installed, or the model has no such map.
        InputError: If no map has one of the names.
    """
    peft = import_peft()
    maps = linear_maps(body)
    if not maps:
        raise UnsupportedError(
            f"LoRA adapts linear maps and convolutions, and {type(body).__name__} has none in layers"
        )
    if targets is not None:
        known = sorted({name.rpartition(".")[2] for name in maps})
        if unknown := [name for name in targets if name not in known]:
            raise InputError(f"lora_targets: {type(body).__name__} has no {unknown[0]!r}; it has {', '.join(known)}")
        maps = [name for name in maps if name.rpartition(".")[2] in targets]
    config = peft.LoraConfig(
        r=rank,
        lora_alpha=2.0 * rank if alpha is None else alpha,
        lora_dropout=dropout,
        target_modules=maps,
        bias="none",
    )
    peft.inject_adapter_in_model(config, body)
    wrapped = [name for name, module in body.named_modules() if is_adapted(module)]
    if len(wrapped) != len(maps):  # a part of a name must not have matched another map
        raise UnsupportedError(
            f"LoRA was to adapt {len(maps)} maps of {type(body).__name__}, PEFT adapted {len(wrapped)}"
        )


def linear_maps(body: nn.Module) -> list[str]:
    """The names of the linear maps and the convolutions within the repeated layers of a model."""
    within = {id(part) for layer in layer_list(body) for part in layer.modules()}
    return [
        name
        for name, module in body.named_modules()
        if id(module) in within and type(module) in (nn.Linear, nn.Conv2d, nn.Conv1d)
    ]


def is_adapted(module: nn.Module) -> bool:
    """Whether a module is a linear map with an adapter.

    >>> is_adapted(nn.Linear(2, 2))
    False
    """
    return hasattr(module, "lora_A") and hasattr(module, "base_layer")


def merge_lora(module: nn.Module) -> int:
    """Replace every map with an adapter by one map that computes the same, in place; return how many there were.

    A merged model needs no PEFT, and is as fast as one without adapters; it cannot be trained on.
    """
    merged = 0
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if is_adapted(child):
                adapted: Any = child
                adapted.merge(safe_merge=True)
                setattr(parent, name, adapted.get_base_layer())
                merged += 1
    return merged


def import_peft() -> Any:
    """Import the library PEFT, or raise an error that says how to install it."""
    try:
        import peft
    except ImportError:
        raise UnsupportedError("LoRA needs the library PEFT: pip install 'consilience[lora]'") from None
    return peft
