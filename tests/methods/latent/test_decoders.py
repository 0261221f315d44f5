import pytest
import torch
from torch import nn

from consilience.core.errors import InputError, UnsupportedError
from consilience.core.samples import Modality
from consilience.methods.latent.decoders import build_decoder


def modality(kind, *shape):
    return Modality("m", kind, shape, vocabulary=7 if kind == "tokens" else None)


@pytest.mark.parametrize(
    ("one", "shape", "name"),
    [
        (modality("vector", 6), (6,), "mlp"),
        (modality("image", 1, 3, 3), (1, 3, 3), "mlp"),
        (modality("image", 1, 4, 4), (1, 4, 4), "deconv"),
        (modality("image", 3, 28, 14), (3, 28, 14), "deconv"),
        (modality("image", 2, 7, 15), (2, 7, 15), "deconv"),
        (modality("sequence", 9, 2), (9, 2), "gru"),
        (modality("tokens", 5), (5, 7), "mlp"),
    ],
)
def test_decoders_by_kind_give_their_shape_and_learn(one, shape, name):
    decoder = build_decoder(one, shape, 3)
    assert decoder.name == name
    z = torch.randn(2, 4, 3)
    made = decoder(z)
    assert made.shape == (2, 4, *shape)
    torch.testing.assert_close(decoder(z[1]), made[1])
    made.square().sum().backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in decoder.parameters())


def test_a_module_of_the_users_own_is_copied_and_checked():
    own = nn.Linear(3, 12)
    decoder = build_decoder(modality("image", 3, 2, 2), (3, 2, 2), 3, own)
    z = torch.randn(5, 3)
    torch.testing.assert_close(decoder(z), own(z).view(5, 3, 2, 2))
    assert own.weight is not decoder.module.weight
    with pytest.raises(InputError, match=r"m \(vector 4\) must give 4 numbers a sample, .*got \[2, 12\] for two rows"):
        build_decoder(modality("vector", 4), (4,), 3, own)
    with pytest.raises(InputError, match=r"does not take z of shape \[row, 5\]"):
        build_decoder(modality("vector", 12), (12,), 5, own)


def test_choices_are_checked():
    vector, image = modality("vector", 4), modality("image", 1, 8, 8)
    assert build_decoder(vector, (4,), 2, {"hidden": 9}).layers[0][0].out_features == 9
    with pytest.raises(InputError, match=r"unknown decoder 'cnn'.*'m'"):
        build_decoder(vector, (4,), 2, "cnn")
    with pytest.raises(InputError, match="unknown setting 'width'"):
        build_decoder(vector, (4,), 2, {"width": 9})
    with pytest.raises(UnsupportedError, match="'deconv' is for image, not for modality m"):
        build_decoder(vector, (4,), 2, "deconv")
    with pytest.raises(InputError, match="has room for at most 3 stages, got 5"):
        build_decoder(image, (1, 8, 8), 2, {"stages": 5})
    with pytest.raises(InputError, match="hidden must be a whole number"):
        build_decoder(vector, (4,), 2, {"hidden": [0]})
    with pytest.raises(InputError, match="must be a name, a mapping"):
        build_decoder(vector, (4,), 2, 3)
