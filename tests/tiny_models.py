"""Pretrained models small enough for tests: random weights, saved as a hub would have them. Nothing is downloaded."""

from __future__ import annotations

import json
from pathlib import Path

import torch

WORDS = ["a", "red", "green", "blue", "square", "circle", "small", "large", "mark", "thing", "on", "the", "left"]


def tiny_bert(folder: Path, pieces: bool = False) -> str:
    """A BERT of two layers with a tokeniser over a few words, or of letters as pieces of words."""
    from transformers import BertConfig, BertModel

    words = letter_tokeniser(folder, sentences=False) if pieces else tiny_tokeniser(folder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=words,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=32,
        pad_token_id=0,
    )
    BertModel(config).save_pretrained(folder)
    return str(folder)


def tiny_xlnet(folder: Path, pieces: bool = False) -> str:
    """An XLNet of two layers with the same tokeniser, or with one of letters as XLNet's own cuts words."""
    from transformers import XLNetConfig, XLNetModel

    words = letter_tokeniser(folder, sentences=True) if pieces else tiny_tokeniser(folder)
    torch.manual_seed(0)
    config = XLNetConfig(vocab_size=words, d_model=16, n_layer=2, n_head=2, d_inner=24, pad_token_id=0)
    XLNetModel(config).save_pretrained(folder)
    return str(folder)


def tiny_tokeniser(folder: Path) -> int:
    """A tokeniser over a few words, and how many it knows."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: place for place, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS])}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    PreTrainedTokenizerFast(
        tokenizer_object=made,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        model_max_length=12,
    ).save_pretrained(folder)
    return len(vocabulary)


def letter_tokeniser(folder: Path, sentences: bool) -> int:
    """A tokeniser that cuts words into letters, and how many pieces it knows.

    sentences: as XLNet's, a unigram model in which a mark stands for the space before a word and special tokens come
    last; otherwise as BERT's, in which punctuation is cut off and later pieces begin with ##.
    """
    from string import ascii_lowercase as letters

    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    first, last = ("<cls>", "<sep>") if sentences else ("[CLS]", "[SEP]")
    special = ["[PAD]", "[UNK]", first, last]
    if sentences:
        pieces = [*special, "▁", *letters, "'", "▁the", "▁red", "th"]
        made = Tokenizer(models.Unigram([(piece, -1.0 / len(piece)) for piece in pieces], unk_id=1))
        made.pre_tokenizer = pre_tokenizers.Metaspace()
        template = "$A <sep> <cls>"
    else:
        pieces = [*special, *letters, *(f"##{letter}" for letter in letters), "'", "the", "##ing"]
        made = Tokenizer(models.WordPiece({piece: place for place, piece in enumerate(pieces)}, unk_token=special[1]))
        made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        template = "[CLS] $A [SEP]"
    made.post_processor = processors.TemplateProcessing(template, special_tokens=[(first, 2), (last, 3)])
    names = {"pad_token": special[0], "unk_token": special[1], "cls_token": first, "sep_token": last}
    PreTrainedTokenizerFast(tokenizer_object=made, model_max_length=30, **names).save_pretrained(folder)
    return len(pieces)


def tiny_resnet(folder: Path) -> str:
    """A ResNet of two stages that reads images of 16 × 16."""
    from transformers import ResNetConfig, ResNetModel

    torch.manual_seed(0)
    config = ResNetConfig(embedding_size=8, hidden_sizes=[8, 12], depths=[1, 1], layer_type="basic", num_channels=3)
    ResNetModel(config).save_pretrained(folder)
    describe_images(folder, size={"shortest_edge": 16})
    return str(folder)


def tiny_vit(folder: Path) -> str:
    """A vision transformer of two layers that reads images of 16 × 16."""
    from transformers import ViTConfig, ViTModel

    torch.manual_seed(0)
    config = ViTConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, image_size=16, patch_size=8
    )
    ViTModel(config).save_pretrained(folder)
    describe_images(folder, size={"height": 16, "width": 16})
    return str(folder)


def describe_images(folder: Path, **said: object) -> None:
    """What a folder says about the images that its model reads."""
    usual = {"do_normalize": True, "image_mean": [0.5, 0.4, 0.3], "image_std": [0.2, 0.25, 0.5], "resample": 2}
    (folder / "preprocessor_config.json").write_text(json.dumps({**usual, **said}), encoding="utf-8")


def tiny_wav2vec2(folder: Path) -> str:
    """A wav2vec 2.0 of two layers that makes one part of every 8 steps."""
    from transformers import Wav2Vec2Config, Wav2Vec2Model

    torch.manual_seed(0)
    config = Wav2Vec2Config(
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        conv_dim=[8, 8],
        conv_kernel=[4, 2],
        conv_stride=[4, 2],
        num_feat_extract_layers=2,
        feat_extract_norm="layer",
        num_conv_pos_embeddings=4,
        num_conv_pos_embedding_groups=2,
        mask_time_prob=0.0,
        apply_spec_augment=False,
    )
    Wav2Vec2Model(config).save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps({"do_normalize": True}), encoding="utf-8")
    return str(folder)
