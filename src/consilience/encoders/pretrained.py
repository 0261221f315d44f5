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
from torch import Tensor
from torch.nn import functional

from consilience.core.errors import InputError, UnsupportedError
from consilience.core.samples import Kind, Modality, Samples
from consilience.core.settings import Names, NonNegativeInt, PositiveFloat, PositiveInt, Rate
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
from consilience.encoders.lora import add_lora
from consilience.encoders.pretrained_body import (
    describe_model,
    empty_body,
    feature_width,
    freeze_weights,
    keep_frozen,
    load_body,
    named_stages,
)
from consilience.encoders.processors import import_transformers, make_processor, token_ids
from consilience.preparation.transforms import Transform

Pooling = Literal["mean", "first"]
# The name of a model's main input → the kinds of modalities that it can read.
_READS: dict[str, tuple[Kind, ...]] = {
    "input_ids": ("tokens",),
    "pixel_values": ("image",),
    "input_values": ("sequence", "vector"),
}


@register_encoder("pretrained")
class Pretrained(Encoder):
    """Any text, image or audio model of transformers, by its name on the hub or a folder.

    ResNets have stages `embedder`, `stage1`, …, BERTs `embeddings`, `layer1`, …; any other model is one stage, `model`.

    Args:
        modality: Tokens, an image, a sequence or a vector, as the model reads.
        model: A name on the Hugging Face hub, or a folder.
        freeze: True keeps all weights, False trains them (use a small learning rate); a number trains that many of the
            last layers. Frozen parts stay in evaluation mode.
        lora: Rank of trained adapters in the frozen model (LoRA, by the library PEFT): beside every linear map and
            convolution in its layers. None: no adapters.
        lora_alpha: The adapters' outputs are multiplied by lora_alpha / lora. None: by 2.
        lora_dropout: Dropout rate of what the adapters read.
        lora_targets: Only maps of these names, such as `query` and `value`. None: all.
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
        lora: PositiveInt | None = None,
        lora_alpha: PositiveFloat | None = None,
        lora_dropout: Rate = 0.0,
        lora_targets: Names | None = None,
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
        if lora is not None:
            if freeze is not True:
                raise InputError(f"lora={lora} trains adapters in a frozen model: freeze must be True, got {freeze!r}")
            add_lora(body, lora, lora_alpha, lora_dropout, lora_targets)
        elif lora_alpha is not None or lora_dropout or lora_targets is not None:
            raise InputError("lora_alpha, lora_dropout and lora_targets need lora, the rank of the adapters")
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
            return torch.where(mask, token_ids(x) - 1, self._config.pad_token_id or 0), mask
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
