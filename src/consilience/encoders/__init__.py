"""One modality → features. The encoder is chosen from the modality's kind and shape, or by the user."""

from consilience.encoders.auto import Auto, Linear
from consilience.encoders.bag_of_words import BagOfWords
from consilience.encoders.choice import (
    EncoderChoice,
    as_chosen,
    build_encoder,
    default_encoder,
    describe_choice,
    describe_encoders,
    encoder_names,
    expert_kind,
    gives_features,
    is_custom,
    own_transforms,
    passed_again,
    register_encoder,
    seen_by_encoder,
    settings_of_choices,
)
from consilience.encoders.conv import Conv
from consilience.encoders.custom_module import CustomModule
from consilience.encoders.encoder import Encoded, Encoder, blank_padding, length_mask, mask_lengths, masked_mean
from consilience.encoders.foreign_files import only_passed_files
from consilience.encoders.frozen import Frozen, features
from consilience.encoders.layers import encoder_layers, recomputable_layers
from consilience.encoders.mlp import Mlp, dense_block
from consilience.encoders.pretrained import Bert, Pretrained, ResNet
from consilience.encoders.recurrent import Gru, Lstm
from consilience.encoders.transformer import Transformer
from consilience.encoders.trees import Trees

__all__ = [
    "Auto",
    "BagOfWords",
    "Bert",
    "Conv",
    "CustomModule",
    "Encoded",
    "Encoder",
    "EncoderChoice",
    "Frozen",
    "Gru",
    "Linear",
    "Lstm",
    "Mlp",
    "Pretrained",
    "ResNet",
    "Transformer",
    "Trees",
    "as_chosen",
    "blank_padding",
    "build_encoder",
    "default_encoder",
    "dense_block",
    "describe_choice",
    "describe_encoders",
    "encoder_layers",
    "encoder_names",
    "expert_kind",
    "features",
    "gives_features",
    "is_custom",
    "length_mask",
    "mask_lengths",
    "masked_mean",
    "only_passed_files",
    "own_transforms",
    "passed_again",
    "recomputable_layers",
    "register_encoder",
    "seen_by_encoder",
    "settings_of_choices",
]
