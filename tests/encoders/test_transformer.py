import math

import pytest
import torch

from consilience.core.samples import Modality
from consilience.encoders import Transformer
from consilience.encoders.transformer import TransformerLayer, sinusoids


@torch.no_grad()
def test_attention_against_a_loop():
    torch.manual_seed(0)
    width, heads, steps = 6, 2, 4
    layer = TransformerLayer(width, heads, 0.0).eval().double()
    x = torch.randn(2, steps, width, dtype=torch.float64)
    mask = torch.tensor([[True, True, True, False], [True, False, True, False]])
    weight, bias = layer.queries_keys_values.weight, layer.queries_keys_values.bias
    expected = torch.zeros_like(x)
    size = width // heads
    for row in range(2):
        for head in range(heads):
            rows = [slice(part * width + head * size, part * width + (head + 1) * size) for part in range(3)]
            q, k, v = (x[row] @ weight[rows[part]].T + bias[rows[part]] for part in range(3))
            for step in range(steps):
                scores = [
                    math.exp(q[step] @ k[other] / math.sqrt(size)) if mask[row, other] else 0.0
                    for other in range(steps)
                ]
                attended = sum(score / sum(scores) * v[other] for other, score in enumerate(scores))
                expected[row, step, head * size : (head + 1) * size] = attended
    expected = expected @ layer.mix.weight.T + layer.mix.bias
    torch.testing.assert_close(layer.attend(x, mask), expected)


def test_a_layer_against_torchs_own():
    torch.manual_seed(0)
    ours = TransformerLayer(8, 4, 0.0)
    theirs = torch.nn.TransformerEncoderLayer(8, 4, 32, dropout=0.0, batch_first=True, norm_first=True)
    pairs = {
        "self_attn.in_proj_weight": ours.queries_keys_values.weight,
        "self_attn.in_proj_bias": ours.queries_keys_values.bias,
        "self_attn.out_proj.weight": ours.mix.weight,
        "self_attn.out_proj.bias": ours.mix.bias,
        "linear1.weight": ours.feed_forward[0].weight,
        "linear1.bias": ours.feed_forward[0].bias,
        "linear2.weight": ours.feed_forward[3].weight,
        "linear2.bias": ours.feed_forward[3].bias,
    }
    theirs.load_state_dict(pairs, strict=False)
    x, mask = torch.randn(3, 5, 8), torch.arange(5) < torch.tensor([5, 2, 3])[:, None]
    torch.testing.assert_close(ours(x, mask)[mask], theirs(x, src_key_padding_mask=~mask)[mask])


@pytest.mark.parametrize("width", [1, 2, 7, 8])
def test_sinusoids_by_hand(width):
    positions = sinusoids(5, width)
    assert positions.shape == (5, width)
    for step in range(5):
        for column in range(width):
            angle = step / 10_000 ** (2 * (column // 2) / width)
            expected = math.cos(angle) if column % 2 else math.sin(angle)
            assert positions[step, column].item() == pytest.approx(expected, abs=1e-6)


def test_position_matters_and_length_is_free():
    torch.manual_seed(0)
    encoder = Transformer(Modality("s", "sequence", (6, 5))).eval()
    x = torch.randn(1, 6, 5)
    assert not torch.allclose(encoder(x).pooled, encoder(x.flip(1)).pooled, atol=1e-3)
    assert encoder(torch.randn(2, 300, 5)).sequence.shape == (2, 300, 64)


def test_pooled_is_the_mean_of_the_real_parts():
    torch.manual_seed(0)
    encoder = Transformer(Modality("t", "tokens", (6,), vocabulary=9)).eval()
    encoded = encoder(torch.tensor([[3, 0, 5, 7, 0, 0], [0, 0, 0, 0, 0, 0]]), torch.tensor([4, 6]))
    assert encoded.mask.sum(1).tolist() == [3, 0]
    torch.testing.assert_close(encoded.pooled[0], encoded.sequence[0, [0, 2, 3]].mean(0))
    assert not encoded.pooled[1].any()


def test_one_stage_a_layer():
    encoder = Transformer(Modality("s", "sequence", (6, 5)), layers=3)
    assert list(encoder.stages) == ["embed", "layer1", "layer2", "layer3"]
