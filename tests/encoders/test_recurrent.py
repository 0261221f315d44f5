import pytest
import torch
from torch import nn

from consilience.core.samples import Modality
from consilience.encoders import Gru, Lstm

SEQUENCE = Modality("s", "sequence", (6, 5))
LENGTHS = torch.tensor([6, 1, 4, 2])


def plain(encoder: Gru | Lstm, network: type, layers: int, bidirectional: bool) -> nn.RNNBase:
    """torch's own network of all layers at once, with the encoder's weights."""
    whole = network(5, 4, num_layers=layers, bidirectional=bidirectional, batch_first=True)
    for number in range(layers):
        layer = encoder.stages[f"layer{number + 1}"]
        for part, suffix in ((layer.forwards, ""), (layer.backwards, "_reverse")):
            for name, value in part.named_parameters() if part is not None else ():
                getattr(whole, name.replace("_l0", f"_l{number}{suffix}")).data.copy_(value)
    return whole


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize(("encoder_class", "network"), [(Lstm, nn.LSTM), (Gru, nn.GRU)])
def test_against_torch_on_each_sample_without_padding(encoder_class, network, layers, bidirectional):
    torch.manual_seed(0)
    encoder = encoder_class(SEQUENCE, hidden=4, layers=layers, bidirectional=bidirectional).eval()
    whole = plain(encoder, network, layers, bidirectional)
    x = torch.randn(4, 6, 5)
    encoded = encoder(x, LENGTHS)
    for row, length in enumerate(LENGTHS.tolist()):
        states, final = whole(x[row : row + 1, :length])
        final = final[0] if network is nn.LSTM else final
        last = torch.cat([final[-2, 0], final[-1, 0]]) if bidirectional else final[-1, 0]
        torch.testing.assert_close(encoded.sequence[row, :length], states[0])
        torch.testing.assert_close(encoded.pooled[row], last)
        assert not encoded.sequence[row, length:].any()


def test_gradients_against_packed_sequences():
    torch.manual_seed(0)
    encoder = Lstm(SEQUENCE, hidden=4, bidirectional=True, dropout=0.0)
    whole = plain(encoder, nn.LSTM, 1, True)
    x = torch.randn(4, 6, 5)
    encoder(x, LENGTHS).pooled.square().sum().backward()
    packed = nn.utils.rnn.pack_padded_sequence(x, LENGTHS, batch_first=True, enforce_sorted=False)
    whole(packed)[1][0].square().sum().backward()
    layer = encoder.stages["layer1"]
    for part, suffix in ((layer.forwards, ""), (layer.backwards, "_reverse")):
        for name, value in part.named_parameters():
            torch.testing.assert_close(value.grad, getattr(whole, name + suffix).grad)


def test_a_sequence_of_no_steps_has_zero_features():
    encoded = Gru(SEQUENCE, bidirectional=True)(torch.randn(2, 6, 5), torch.tensor([0, 3]))
    assert not encoded.pooled[0].any()
    assert not encoded.mask[0].any()


def test_a_padding_id_between_tokens_is_a_step_and_not_an_end():
    torch.manual_seed(0)
    encoder = Gru(Modality("t", "tokens", (5,), vocabulary=9)).eval()
    gap, closed, padded = (torch.tensor([ids]) for ids in ([3, 0, 4, 0, 0], [3, 4, 0, 0, 0], [3, 0, 4]))
    assert encoder(gap).mask.tolist() == [[True, True, True, False, False]]
    torch.testing.assert_close(encoder(gap).pooled, encoder(padded).pooled)
    assert not torch.allclose(encoder(gap).pooled, encoder(closed).pooled)


def test_width_counts_both_directions():
    assert Gru(SEQUENCE, hidden=4).width == 4
    assert Lstm(SEQUENCE, hidden=4, bidirectional=True).width == 8
