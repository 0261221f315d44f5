"""The body of a pretrained model: loaded or rebuilt without its heads, described, taken apart into layers, frozen."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from consilience.core.errors import InputError, SavedModelError, UnsupportedError
from consilience.encoders.foreign_files import loading_saved_model
from consilience.encoders.processors import import_transformers, load_pretrained, read_processor, read_tokeniser

# The entries of a processor's configuration that are used here.
_PROCESSOR = (
    *("do_resize", "size", "resample", "crop_pct", "do_center_crop", "crop_size"),
    *("do_normalize", "image_mean", "image_std"),
)
# The entries of a model's configuration that name code, or where it came from; a model is rebuilt without them.
_OF_CODE = frozenset(
    (
        *("auto_map", "custom_pipelines", "name_or_path", "_name_or_path", "task_specific_params"),
        *(
            f"{start}{part}_implementation{end}"
            for part in ("attn", "experts")
            for start in ("", "_")
            for end in ("", "_internal")
        ),
    )
)
# The entries that hold words of any kind.
_LABELS = ("id2label", "label2id")


def load_body(model: str) -> Any:
    """A pretrained model without its heads, in 32 bits; of an encoder and decoder, the encoder.

    Pickled weights (`pytorch_model.bin`) are read as tensors only, and for a saved model not at all.
    """
    safe = True if loading_saved_model() else None
    body = load_pretrained("AutoModel", model, dtype=torch.float32, use_safetensors=safe, weights_only=True)
    return _without_heads(body)


def empty_body(config: Mapping[str, Any]) -> Any:
    """The same model with weights yet to be loaded, from nothing but its configuration."""
    transformers = import_transformers()
    settings = without_references(config)
    try:
        built = transformers.AutoConfig.for_model(settings.pop("model_type"), **settings)
        return _without_heads(transformers.AutoModel.from_config(built, dtype=torch.float32, trust_remote_code=False))
    except Exception as error:  # of any of the libraries that take part, for a configuration with any content
        raise InputError(
            f"a pretrained model cannot be built from its saved configuration: {type(error).__name__}: {error}"
        ) from error


def without_references(config: Mapping[str, Any]) -> dict[str, Any]:
    """A model's configuration without what would load code, and an error if it would load files.

    Raises:
        SavedModelError: If a value names a file, a folder or a model on the hub.

    >>> without_references({"model_type": "bert", "auto_map": {"AutoModel": "code.Model"}, "_name_or_path": "a/b"})
    {'model_type': 'bert'}
    """
    return {key: _without_references(key, value) for key, value in config.items() if key not in _OF_CODE}


def _without_references(key: str, value: Any) -> Any:
    if key in _LABELS:
        return value
    if isinstance(value, Mapping):
        return without_references(value)
    if isinstance(value, list):
        return [_without_references(key, item) for item in value]
    # A backbone is loaded by its name, and a model of timm may name files in any of its settings.
    of_timm = key == "model_type" and str(value).startswith("timm")
    if isinstance(value, str) and (key == "backbone" or of_timm or any(mark in value for mark in "/\\:")):
        raise SavedModelError(
            f"the configuration of a pretrained model names {key}={value!r}, which is not part of the saved model. "
            "If you trust it, pass the pretrained model again: load(path, encoders={modality: 'pretrained:FOLDER'})"
        )
    return value


def _without_heads(body: Any) -> Any:
    if getattr(body.config, "is_encoder_decoder", False):
        body = body.get_encoder()
    pooler = getattr(body, "pooler", None)
    if pooler is not None and any(True for _ in pooler.parameters()):  # a layer for pretraining, which is not used here
        body.pooler = None
    return body


def describe_model(name: str, body: Any) -> dict[str, Any]:
    """All that is needed to rebuild a model except its weights, as plain JSON values."""
    processor = {} if body.main_input_name == "input_ids" else read_processor(name)
    return {
        "model": json.loads(body.config.to_json_string(use_diff=False)),
        "processor": {key: processor[key] for key in _PROCESSOR if processor.get(key) is not None},
        "first_token": read_tokeniser(name)[2] if body.main_input_name == "input_ids" else None,
    }


def feature_width(name: str, body: Any) -> int:
    """The width of a model's features."""
    config = body.config
    sizes = getattr(config, "hidden_sizes", None)
    width = sizes[-1] if sizes else getattr(config, "hidden_size", getattr(config, "d_model", None))
    if width is None:
        raise UnsupportedError(f"model {name!r} ({config.model_type}) does not state the width of its features")
    return int(width)


def named_stages(body: Any) -> nn.ModuleDict:
    """The named stages of a ResNet or a BERT; any other model is one stage."""
    if body.config.model_type == "resnet":
        named = {f"stage{number}": stage for number, stage in enumerate(body.encoder.stages, start=1)}
        return nn.ModuleDict({"embedder": body.embedder, **named})
    if body.config.model_type == "bert":
        named = {f"layer{number}": layer for number, layer in enumerate(body.encoder.layer, start=1)}
        return nn.ModuleDict({"embeddings": body.embeddings, **named})
    return nn.ModuleDict({"model": body})


def layer_list(body: nn.Module) -> list[nn.Module]:
    """The repeated layers of a model: the list of modules with the most weights."""
    lists: list[Any] = [module for module in body.modules() if isinstance(module, nn.ModuleList)]
    largest: Any = max(lists, key=lambda found: sum(map(torch.numel, found.parameters())), default=())
    return list(largest)


def norms_after_layers(body: nn.Module) -> list[nn.Module]:
    """The norms of a model beside its layers, which follow the last one."""
    return [module for module in body.children() if isinstance(module, nn.LayerNorm)]


def freeze_weights(body: nn.Module, freeze: bool | int) -> None:
    """Freeze all weights (True), none (False), or all but the last `freeze` layers and what follows them."""
    if freeze is False:
        return
    body.requires_grad_(False)
    if freeze is True or freeze == 0:
        return
    layers = layer_list(body)
    if freeze > len(layers):
        raise InputError(f"freeze={freeze} would train more layers than the model's {len(layers)}: use False for all")
    for trained in (*layers[-freeze:], *norms_after_layers(body)):
        trained.requires_grad_(True)


def keep_frozen(module: nn.Module) -> None:
    """Evaluation mode for every part whose weights are all frozen: no dropout, and batch statistics stay."""
    weights = list(module.parameters())
    if weights and not any(weight.requires_grad for weight in weights):
        module.eval()
        return
    for child in module.children() if weights else ():
        keep_frozen(child)
