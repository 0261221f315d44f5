import pytest
import torch
from torch import nn
from torch.nn import functional

from consilience.core.samples import Modality
from consilience.encoders import Conv


def image(*shape: int) -> Modality:
    return Modality("i", "image", shape)


@pytest.mark.parametrize(
    ("shape", "channels"),
    [
        ((1, 28, 28), [6, 12, 24, 48]),
        ((1, 112, 112), [6, 12, 24, 48, 96, 192]),
        ((3, 16, 16), [6, 12, 24, 48]),
        ((1, 8, 8), [12, 24, 48]),
        ((1, 4, 4), [24, 48]),
        ((1, 1, 2), [48]),
        ((3, 500, 300), [6, 12, 24, 48, 96, 192]),
    ],
)
def test_channels_double(shape, channels):
    encoder = Conv(image(*shape))
    convolutions = [stage[0] for stage in encoder.stages.values()]
    assert [convolution.out_channels for convolution in convolutions] == channels
    assert [convolution.kernel_size[0] for convolution in convolutions] == [5] + [3] * (len(channels) - 1)
    assert all(convolution.bias is None for convolution in convolutions)
    assert encoder.width == channels[-1]


@pytest.mark.parametrize(("side", "sides"), [(28, [14, 7, 3, 1]), (112, [56, 28, 14, 7, 3, 1])])
def test_sides_halve_down_to_one_pixel(side, sides):
    encoder = Conv(image(1, side, side)).eval()
    hidden, mask = encoder.start(torch.randn(2, 1, side, side))
    seen = []
    for stage in encoder.stages:
        hidden = encoder.advance(stage, hidden, mask)
        seen.append(hidden.shape[-1])
    assert seen == sides


def test_against_the_same_layers_in_the_papers_order():
    """Conv → batch norm → ReLU → max-pool; ours pools first, which must be the same in value and gradient."""
    torch.manual_seed(0)
    encoder = Conv(image(1, 28, 28))
    x = torch.randn(5, 1, 28, 28)
    hidden = x
    for convolution, norm, *_ in encoder.stages.values():
        z = functional.conv2d(hidden, convolution.weight, padding="same")
        hidden = functional.max_pool2d(functional.batch_norm(z, None, None, norm.weight, norm.bias, True).relu(), 2)
    ours = encoder(x).pooled
    torch.testing.assert_close(ours, hidden[:, :, 0, 0])
    ours_gradient = torch.autograd.grad(ours.square().sum(), list(encoder.parameters()))
    theirs_gradient = torch.autograd.grad(hidden.square().sum(), list(encoder.parameters()))
    torch.testing.assert_close(ours_gradient, theirs_gradient, rtol=1e-4, atol=1e-4)


def test_positions_are_parts_row_by_row():
    encoder = Conv(image(1, 28, 20), stages=2).eval()
    x = torch.randn(2, 1, 28, 20)
    encoded = encoder(x)
    plane = nn.Sequential(*encoder.stages.values())(x)
    assert encoded.sequence.shape == (2, 7 * 5, encoder.width)
    assert encoded.mask.all()
    assert torch.equal(encoded.sequence[1, 2 * 5 + 3], plane[1, :, 2, 3])
    torch.testing.assert_close(encoded.pooled, encoded.sequence.mean(1))


@pytest.mark.parametrize("shape", [(1, 1, 2), (2, 64, 1), (1, 1, 100), (3, 5, 3), (1, 3, 200), (1, 2, 2)])
def test_any_proportion_with_one_sample_in_training(shape):
    encoder = Conv(image(*shape))
    encoded = encoder(torch.randn(1, *shape))
    assert encoded.pooled.shape == (1, encoder.width)
    assert encoded.pooled.isfinite().all()


def test_settings():
    encoder = Conv(image(1, 28, 28), channels=10, stages=3)
    assert encoder.width == 40
    assert encoder(torch.randn(2, 1, 28, 28)).sequence.shape == (2, 9, 40)
