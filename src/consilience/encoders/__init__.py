"""One modality → features. The encoder is chosen from the modality's kind and shape, or by the user."""

from consilience.encoders.bag import Bag
from consilience.encoders.choice import (
    EncoderChoice,
    build_encoder,
    default_encoder,
    describe_choice,
    encoder_names,
    is_custom,
    register_encoder,
)
from consilience.encoders.conv import Conv
from consilience.encoders.encoder import Encoded, Encoder, blank_padding, length_mask, mask_lengths, masked_mean
from consilience.encoders.foreign import Foreign
from consilience.encoders.mlp import Mlp, dense_block
from consilience.encoders.recurrent import Gru, Lstm
from consilience.encoders.transformer import Transformer

__all__ = [
    "Bag",
    "Conv",
    "Encoded",
    "Encoder",
    "EncoderChoice",
    "Foreign",
    "Gru",
    "Lstm",
    "Mlp",
    "Transformer",
    "blank_padding",
    "build_encoder",
    "default_encoder",
    "dense_block",
    "describe_choice",
    "encoder_names",
    "is_custom",
    "length_mask",
    "mask_lengths",
    "masked_mean",
    "register_encoder",
]
