import torch
from torch.nn import functional

from consilience.core.samples import Modality
from consilience.encoders import BagOfWords

TITLE = Modality("title", "tokens", (4,), vocabulary=9)


def test_against_a_mean_by_hand():
    torch.manual_seed(0)
    encoder = BagOfWords(TITLE, width=6).eval()
    ids, lengths = torch.tensor([[3, 5, 3, 0], [7, 8, 2, 1], [0, 4, 0, 6]]), torch.tensor([3, 2, 4])
    vectors = encoder.stages["embed"].weight
    means = torch.stack(
        [(2 * vectors[3] + vectors[5]) / 3, (vectors[7] + vectors[8]) / 2, (vectors[4] + vectors[6]) / 2]
    )
    linear, norm = encoder.block[0], encoder.block[1]
    expected = functional.layer_norm(linear(means), [6], norm.weight, norm.bias).relu()
    encoded = encoder(ids, lengths)
    torch.testing.assert_close(encoded.pooled, expected)
    assert torch.equal(encoded.sequence[1, :2], vectors[[7, 8]])
    assert not encoded.sequence[~encoded.mask].any()


def test_order_is_ignored():
    encoder = BagOfWords(TITLE).eval()
    torch.testing.assert_close(encoder(torch.tensor([[3, 5, 7]])).pooled, encoder(torch.tensor([[7, 3, 5]])).pooled)


def test_the_padding_vector_stays_zero_in_training():
    encoder = BagOfWords(TITLE)
    optimiser = torch.optim.AdamW(encoder.parameters(), lr=0.1)
    for _ in range(3):
        optimiser.zero_grad()
        encoder(torch.tensor([[3, 5, 0, 0]])).pooled.square().sum().backward()
        optimiser.step()
    assert not encoder.stages["embed"].weight[0].any()
