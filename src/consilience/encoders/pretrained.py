"""Pretrained models as encoders, by name on the Hugging Face hub or from a folder, through the library transformers.

Each reads what it was trained on: text by its own tokeniser, images at its own size and normalisation, waveforms.
Images are resized as tensors on the device; torchvision is not needed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from consilience.core.errors import InputError, SavedModelError, UnsupportedError
from consilience.core.samples import Kind, Modality, Samples
from consilience.core.settings import NonNegativeInt
from consilience.encoders.choice import register_encoder
from consilience.encoders.encoder import (
    Encoded,
    Encoder,
    blank_padding,
    length_mask,
    mask_lengths,
    masked_mean,
    token_mask,
)
from consilience.encoders.foreign_files import loading_saved_model
from consilience.encoders.processors import (
    import_transformers,
    load_pretrained,
    make_processor,
    read_processor,
    read_tokeniser,
)
from consilience.preparation.transforms import Transform

Pooling = Literal["mean", "first"]
# The name of a model's main input → the kinds of modalities that it can read.
_READS: dict[str, tuple[Kind, ...]] = {
    "input_ids": ("tokens",),
    "pixel_values": ("image",),
    "input_values": ("sequence", "vector"),
}
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


@register_encoder("pretrained")
class Pretrained(Encoder):
    """Any text, image or audio model of transformers, by its name on the hub or a folder.

    ResNets have stages `embedder`, `stage1`, …, BERTs `embeddings`, `layer1`, …; any other model is one stage, `model`.

    Args:
        modality: Tokens, an image, a sequence or a vector, as the model reads.
        model: A name on the Hugging Face hub, or a folder.
        freeze: True keeps all weights, False trains them (use a small learning rate); a number trains that many of the
            last layers. Frozen parts stay in evaluation mode.
        pooling: The model's parts as one vector: their "mean", or the "first" of them, which BERT and ViT classify by.
        rebuilt: Set by a saved model in place of the folder: the configuration as JSON.
    """

    reads: ClassVar[tuple[Kind, ...]] = ("tokens", "image", "sequence", "vector")
    argument = "model"
    files = ("model",)
    prepares = True
    default_model: ClassVar[str | None] = None

    def __init__(
        self,
        modality: Modality,
        *,
        model: str | None = None,
        freeze: bool | NonNegativeInt = True,
        pooling: Pooling = "mean",
        rebuilt: str | None = None,
    ):
        super().__init__()
        self.pooling, self._kind = pooling, modality.kind
        name = self.model_name(model)
        self.settings = {"model": name}
        body = load_body(name) if rebuilt is None else empty_body(json.loads(rebuilt)["model"])
        if modality.kind not in _READS.get(body.main_input_name, ()):
            raise UnsupportedError(
                f"model {name!r} reads {body.main_input_name}, which {modality.describe()} cannot be made into"
            )
        self._described = describe_model(name, body) if rebuilt is None else json.loads(rebuilt)
        self._config, self.width = body.config, feature_width(name, body)
        if modality.kind == "tokens" and (modality.vocabulary or 0) > body.config.vocab_size + 1:
            raise InputError(
                f"model {name!r} knows {body.config.vocab_size} tokens and {modality.describe()} has "
                f"{modality.vocabulary} ids: it was not prepared by this model's tokeniser"
            )
        freeze_weights(body, freeze)
        self.stages = named_stages(body)

    @classmethod
    def model_name(cls, model: str | None) -> str:
        """The given model, or the default one of this encoder."""
        chosen = cls.default_model if model is None else model
        if chosen is None:
            raise InputError("model must be given: a name on the Hugging Face hub, or a folder")
        return chosen

    @classmethod
    def sees(cls, modality: Modality, settings: Mapping[str, Any]) -> Modality:
        """Text as tokens; everything else as it is."""
        if modality.kind != "text":
            return modality
        return replace(modality, kind="tokens", shape=(1,), vocabulary=2)

    @classmethod
    def prepare(cls, samples: Samples, name: str, settings: Mapping[str, Any]) -> Transform:
        """The model's own tokeniser for text; pixels and waveforms at their own scale."""
        return make_processor(samples, name, cls.model_name(settings.get("model")))

    def saved(self) -> str:
        """The model's configuration. Its weights are saved with the method: hub and folder are not needed again."""
        return json.dumps(self._described)

    @property
    def first_token(self) -> int | None:
        """The id of the token that starts a text, in the model's own numbering."""
        return self._described["first_token"]

    @property
    def processor(self) -> dict[str, Any]:
        """The configuration of the model's processor of images or sound."""
        return self._described["processor"]

    def train(self, mode: bool = True) -> Pretrained:
        """Set training mode for the parts that are trained."""
        super().train(mode)
        keep_frozen(self.stages)
        return self

    def start(self, x: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Ids in the model's own numbering, images at its size and normalisation, or waveforms."""
        if self._kind == "tokens":
            mask = token_mask(x, lengths)
            return torch.where(mask, x - 1, self._config.pad_token_id or 0), mask
        if self._kind == "image":
            return preprocess_images(x, self.processor, getattr(self._config, "num_channels", x.shape[1])), None
        if self._kind == "sequence" and x.shape[2] == 1:
            x = x[..., 0]
        mask = length_mask(lengths, x)
        x = blank_padding(x, mask)
        return standardise_waveform(x, mask) if self.processor.get("do_normalize") and x.ndim == 2 else x, mask

    def advance(self, stage: str, hidden: Tensor, mask: Tensor | None) -> Tensor:
        """Apply one stage, or the whole model."""
        module = self.stages[stage]
        if stage == "model":
            return whole_pass(module, hidden, mask)
        if stage == "embeddings":
            return module(input_ids=hidden)
        return module(hidden, self.attention_mask(hidden, mask)) if stage.startswith("layer") else module(hidden)

    def attention_mask(self, hidden: Tensor, mask: Tensor | None) -> Tensor | None:
        """The attention mask of a BERT's layers."""
        create = import_transformers().masking_utils.create_bidirectional_mask
        real = None if mask is None else without_empty_rows(mask)
        return create(config=self._config, inputs_embeds=hidden, attention_mask=real)

    def finish(self, hidden: Tensor, mask: Tensor | None) -> Encoded:
        """The last layer's parts, and their pooled vector."""
        if hidden.ndim == 4:
            hidden = hidden.flatten(2).transpose(1, 2)
        if mask is not None and mask.shape[1] != hidden.shape[1]:  # parts of a waveform are fewer than its steps
            count = getattr(self.stages["model"], "_get_feat_extract_output_lengths", None)
            mask = None if count is None else length_mask(count(mask_lengths(mask)).long(), hidden)
        if mask is None:
            mask = length_mask(None, hidden)
        hidden = blank_padding(hidden, mask)
        return Encoded(hidden[:, 0] if self.pooling == "first" else masked_mean(hidden, mask), hidden, mask)


@register_encoder("bert")
class Bert(Pretrained):
    """BERT (Devlin et al., "BERT: pre-training of deep bidirectional transformers"), `bert-base-uncased` by default."""

    reads = ("tokens",)
    default_model = "google-bert/bert-base-uncased"


@register_encoder("resnet")
class ResNet(Pretrained):
    """A residual network (He et al., "Deep residual learning for image recognition"), ResNet-18 by default."""

    reads = ("image",)
    default_model = "microsoft/resnet-18"


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


def freeze_weights(body: nn.Module, freeze: bool | int) -> None:
    """Freeze all weights (True), none (False), or all but the last `freeze` layers and what follows them."""
    if freeze is False:
        return
    body.requires_grad_(False)
    if freeze is True or freeze == 0:
        return
    lists = [module for module in body.modules() if isinstance(module, nn.ModuleList)]
    layers = max(lists, key=lambda module: sum(map(torch.numel, module.parameters())), default=nn.ModuleList())
    if freeze > len(layers):
        raise InputError(f"freeze={freeze} would train more layers than the model's {len(layers)}: use False for all")
    norms = [module for module in body.children() if isinstance(module, nn.LayerNorm)]  # after the last layer
    for trained in (*layers[-freeze:], *norms):
        trained.requires_grad_(True)


def keep_frozen(module: nn.Module) -> None:
    """Evaluation mode for every part whose weights are all frozen: no dropout, and batch statistics stay."""
    weights = list(module.parameters())
    if weights and not any(weight.requires_grad for weight in weights):
        module.eval()
        return
    for child in module.children() if weights else ():
        keep_frozen(child)


def whole_pass(body: Any, x: Tensor, mask: Tensor | None) -> Tensor:
    """All of a model at once: the last layer's parts `[batch, part, width]`, or maps."""
    inputs: dict[str, Any] = {body.main_input_name: x}
    if mask is not None and x.ndim == 2:
        inputs["attention_mask"] = without_empty_rows(mask).long()  # XLNet subtracts it, which booleans do not support
    return body(**inputs).last_hidden_state


def without_empty_rows(mask: Tensor) -> Tensor:
    """A mask `[batch, part]` in which every row has a real part: attention to nothing would be NaN."""
    first = torch.arange(mask.shape[1], device=mask.device) == 0
    return mask | (first & ~mask.any(1, keepdim=True))


def standardise_waveform(x: Tensor, mask: Tensor) -> Tensor:
    """Each waveform `[batch, time]` with mean 0 and variance 1 over its real steps."""
    count = mask.sum(1, keepdim=True).clamp(min=1)
    centred = blank_padding(x - x.sum(1, keepdim=True) / count, mask)
    return centred / (centred.square().sum(1, keepdim=True) / count + 1e-7).sqrt()


def preprocess_images(x: Tensor, processor: Mapping[str, Any], channels: int) -> Tensor:
    """Images `[batch, channel, height, width]` from 0 to 1, resized and normalised as a model's processor does it."""
    if x.shape[1] == 1 and channels > 1:
        x = x.expand(-1, channels, -1, -1)
    if x.shape[1] != channels:
        raise InputError(f"the model reads images of {channels} channels, got {x.shape[1]}")
    size, crop = processor.get("size"), processor.get("crop_size") if processor.get("do_center_crop") else None
    if size is not None and processor.get("do_resize", True):
        height, width = _target(size, x)
        if isinstance(size, Mapping) and "shortest_edge" in size and processor.get("crop_pct") and height < 384:
            crop = size["shortest_edge"]
            height, width = _target({"shortest_edge": int(crop / processor["crop_pct"])}, x)
        if (height, width) != tuple(x.shape[2:]):
            mode = "bicubic" if processor.get("resample") == 3 else "bilinear"
            x = functional.interpolate(x, (height, width), mode=mode, antialias=True).clamp(0, 1)
    if crop is not None:
        height, width = (crop, crop) if isinstance(crop, int) else (crop["height"], crop["width"])
        top, left = (x.shape[2] - height) // 2, (x.shape[3] - width) // 2
        x = x[:, :, max(top, 0) : max(top, 0) + height, max(left, 0) : max(left, 0) + width]
    if processor.get("do_normalize", True) and "image_mean" in processor:
        mean, std = (x.new_tensor(processor[key])[:, None, None] for key in ("image_mean", "image_std"))
        x = (x - mean) / std
    return x


def _target(size: int | Mapping[str, int], x: Tensor) -> tuple[int, int]:
    """Height and width to resize to."""
    if isinstance(size, int):
        return size, size
    if "height" in size and "width" in size:
        return size["height"], size["width"]
    if "shortest_edge" not in size:
        raise UnsupportedError(f"the model's processor asks for images of size {dict(size)}, which is not known here")
    short = min(x.shape[2:])
    return tuple(size["shortest_edge"] * side // short for side in x.shape[2:])  # type: ignore[return-value]
