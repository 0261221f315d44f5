"""The layers of an encoder from its input on, for learning rates by layer and for unfreezing one after another."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from consilience.encoders.encoder import Encoder
from consilience.encoders.pretrained import Pretrained
from consilience.encoders.pretrained_body import layer_list, norms_after_layers
from consilience.encoders.transformer import Transformer


def encoder_layers(encoder: Encoder) -> list[tuple[nn.Module, ...]]:
    """Return the modules of each layer of an encoder, from its input on.

    Layer 0 of a pretrained model is everything before its repeated layers, such as its embeddings; a norm after the
    last layer belongs to it. What is not in any of the modules belongs to layer 0. The layers of any other encoder are
    its stages.

    Example:
        >>> from consilience.core.samples import Modality
        >>> from consilience.encoders import build_encoder
        >>> sound = build_encoder(Modality("sound", "sequence", (9, 2)), {"name": "transformer", "layers": 3})
        >>> len(encoder_layers(sound))
        4
    """
    stages = list(encoder.stages.values())
    if not isinstance(encoder, Pretrained) or list(encoder.stages) != ["model"]:
        return [(stage,) for stage in stages]
    body = stages[0]
    layers: list[tuple[nn.Module, ...]] = [(layer,) for layer in layer_list(body)]
    if not layers:
        return [(body,)]
    return [(), *layers[:-1], (*layers[-1], *norms_after_layers(body))]


def recomputable_layers(module: nn.Module) -> Iterator[nn.Module]:
    """Yield the layers whose activations are worth computing twice: those of pretrained models and transformers.

    Layers with statistics of batches, such as those of a ResNet, would count every batch twice, and are left out.
    """
    seen: set[int] = set()
    for encoder in module.modules():
        if not isinstance(encoder, Pretrained | Transformer):
            continue
        for group in encoder_layers(encoder)[1:]:
            for layer in group:
                counts = any(isinstance(part, nn.modules.batchnorm._BatchNorm) for part in layer.modules())
                if id(layer) not in seen and not isinstance(layer, nn.LayerNorm) and not counts:
                    seen.add(id(layer))
                    yield layer
