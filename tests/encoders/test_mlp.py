import pytest
import torch
from torch import nn

from consilience.core.errors import InputError
from consilience.core.samples import Modality
from consilience.encoders import Mlp


def test_against_plain_layers():
    torch.manual_seed(0)
    encoder = Mlp(Modality("v", "vector", (7,)), hidden=(5, 4)).eval()
    x = torch.randn(3, 7)
    hidden = x
    for linear, norm, *_ in encoder.stages.values():
        z = hidden @ linear.weight.T + linear.bias
        z = (z - z.mean(1, keepdim=True)) / (z.var(1, unbiased=False, keepdim=True) + norm.eps).sqrt()
        hidden = (z * norm.weight + norm.bias).clamp(min=0)
    torch.testing.assert_close(encoder(x).pooled, hidden)


def test_the_norm_layer_bounds_the_features():
    """Features of an input 1000 times as large: as large as before with the norm layer, 1000 times without."""
    modality, x = Modality("v", "vector", (7,)), torch.randn(64, 7, generator=torch.Generator().manual_seed(0))
    growth = {}
    for normalise in (True, False):
        torch.manual_seed(0)
        encoder = Mlp(modality, normalise=normalise).eval()
        growth[normalise] = (encoder(1000 * x).pooled.norm() / encoder(x).pooled.norm()).item()
        bound = encoder.width**0.5  # Σ z² of a normalised row is its width, and ReLU only takes away
        assert (encoder(1e6 * x).pooled.norm(dim=1) <= bound * 1.001).all() == normalise
    assert growth[True] < 1.5
    assert growth[False] > 100


def test_normalise_false_has_no_norm_layer():
    encoder = Mlp(Modality("v", "vector", (7,)), hidden=1, normalise=False)
    assert encoder.width == 1
    assert not any(isinstance(module, nn.LayerNorm) for module in encoder.modules())


def test_without_blocks_the_features_are_the_input():
    encoder = Mlp(Modality("photo", "image", (1, 2, 3)), hidden=[])
    x = torch.randn(4, 1, 2, 3)
    assert encoder.width == 6
    assert torch.equal(encoder(x).pooled, x.flatten(1))
    assert not list(encoder.parameters())


def test_longer_sequences_than_it_was_built_for():
    encoder = Mlp(Modality("audio", "sequence", (6, 5)))
    with pytest.raises(InputError, match=r"'audio' has sequences of 8 time steps.*at most 6.*gru"):
        encoder(torch.zeros(2, 8, 5))
