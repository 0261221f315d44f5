import copy

import pytest
import torch
from torch import Tensor, nn

from consilience.core.errors import InputError
from consilience.core.samples import Modality
from consilience.encoders import CustomModule, Encoded, build_encoder

VECTOR = Modality("v", "vector", (7,))
IMAGE = Modality("photo", "image", (1, 28, 28))
SEQUENCE = Modality("audio", "sequence", (6, 5))
TOKENS = Modality("title", "tokens", (6,), vocabulary=11)


class Function(nn.Module):
    """A module that is one function."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


class Lengthy(nn.Module):
    """A module that asks for lengths."""

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        return x.sum((1, 2), keepdim=False)[:, None] * 0 + (lengths if lengths is not None else -1)[:, None]


def test_features():
    encoder = build_encoder(VECTOR, nn.Linear(7, 3))
    x = torch.randn(4, 7)
    encoded = encoder(x)
    assert encoder.width == 3
    assert encoded.sequence is None
    assert torch.equal(encoded.pooled, encoder.stages["module"](x))


def test_parts_are_masked_by_lengths():
    encoder = build_encoder(SEQUENCE, nn.Linear(5, 3))
    x = torch.randn(2, 6, 5)
    x[1, 2:] = float("nan")
    encoded = encoder(x, torch.tensor([6, 2]))
    assert encoder.width == 3
    assert encoded.mask.sum(1).tolist() == [6, 2]
    torch.testing.assert_close(encoded.pooled[1], encoder.stages["module"](x[1, :2]).mean(0))
    assert encoded.sequence.isfinite().all()


def test_parts_that_are_not_time_steps_are_all_real():
    encoder = build_encoder(SEQUENCE, Function(lambda x: x[:, ::2]))
    encoded = encoder(torch.randn(2, 6, 5), torch.tensor([6, 2]))
    assert encoded.mask.shape == (2, 3)
    assert encoded.mask.all()


def test_feature_map():
    encoder = build_encoder(IMAGE, nn.Conv2d(1, 8, 5, stride=4))
    x = torch.randn(2, 1, 28, 28)
    encoded = encoder(x)
    assert encoder.width == 8
    assert encoded.sequence.shape == (2, 36, 8)
    torch.testing.assert_close(encoded.pooled, encoder.stages["module"](x).mean((2, 3)))


def test_tokens_and_a_lazy_module():
    module = nn.Sequential(nn.Embedding(11, 4), nn.Flatten(), nn.LazyLinear(3))
    encoder = build_encoder(TOKENS, module)
    assert encoder.width == 3
    assert encoder(torch.randint(0, 11, (5, 6))).pooled.shape == (5, 3)


def test_encoded_is_passed_through_and_completed():
    encoder = build_encoder(SEQUENCE, Function(lambda x: Encoded(x.mean(1), x)))
    encoded = encoder(torch.randn(2, 6, 5))
    assert encoder.width == 5
    assert encoded.mask.all()
    assert encoded.mask.shape == (2, 6)


def test_lengths_reach_a_module_that_asks_for_them():
    encoder = build_encoder(SEQUENCE, Lengthy())
    assert encoder(torch.zeros(2, 6, 5), torch.tensor([4, 0])).pooled.tolist() == [[4], [0]]


def test_stage_by_stage_and_deepcopy():
    encoder = build_encoder(SEQUENCE, nn.Linear(5, 3))
    x, lengths = torch.randn(2, 6, 5), torch.tensor([6, 2])
    hidden, mask = encoder.start(x, lengths)
    for stage in encoder.stages:
        hidden = encoder.advance(stage, hidden, mask)
    assert torch.equal(encoder.finish(hidden, mask).pooled, encoder(x, lengths).pooled)
    assert torch.equal(copy.deepcopy(encoder)(x, lengths).pooled, encoder(x, lengths).pooled)


def test_the_dry_run_leaves_no_trace():
    module = nn.Sequential(nn.BatchNorm1d(7), nn.Linear(7, 3))
    module[0].eval()  # frozen by the user
    encoder = CustomModule(module, VECTOR)
    assert encoder.training
    assert not module[0].training
    assert module[1].training
    assert module[0].num_batches_tracked == 0
    assert all(parameter.grad is None for parameter in encoder.parameters())


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (
            nn.Linear(6, 3),
            r"Linear given for modality v \(vector 7\) failed on a batch of shape \[2, 7\]: RuntimeError",
        ),
        (Function(lambda x: (x, x)), "must return a tensor or an Encoded, got tuple"),
        (Function(lambda x: x.sum(1)), r"\[batch, part, width\].*got \[2\]"),
        (Function(lambda x: x[:1]), r"for a batch of 2 it returned \[1, 7\]"),
        (Function(lambda x: x.long()), "floating-point numbers.* torch.int64"),
        (Function(lambda x: Encoded(x.sum(1))), r"returned \[2\]"),
        (Function(lambda x: Encoded(x, x[:, None, :3])), r"sequence \[batch, part, 7\].*got \[2, 1, 3\]"),
    ],
)
def test_what_does_not_fit_is_named(module, words):
    with pytest.raises(InputError, match=words):
        build_encoder(VECTOR, module)
