import torch
from hypothesis import given
from hypothesis import strategies as st

from consilience.encoders import blank_padding, length_mask, mask_lengths, masked_mean

lengths_lists = st.lists(st.integers(0, 7), min_size=1, max_size=5)


@given(lengths_lists)
def test_lengths_survive_the_mask(lengths):
    mask = length_mask(torch.tensor(lengths), torch.zeros(len(lengths), 7, 2))
    assert mask.sum(1).tolist() == lengths
    assert mask_lengths(mask).tolist() == lengths


@given(lengths_lists, st.integers(0, 99))
def test_masked_mean_is_the_mean_of_what_is_real(lengths, seed):
    x = torch.randn(len(lengths), 7, 3, generator=torch.Generator().manual_seed(seed))
    mean = masked_mean(x, length_mask(torch.tensor(lengths), x))
    for row, length in enumerate(lengths):
        expected = x[row, :length].mean(0) if length else torch.zeros(3)
        torch.testing.assert_close(mean[row], expected)


def test_masked_mean_of_many_parts_in_bf16():
    ones = torch.ones(1, 3000, 1, dtype=torch.bfloat16)
    mean = masked_mean(ones, length_mask(None, ones))
    assert mean.dtype == torch.bfloat16
    assert abs(mean.item() - 1) < 0.01


def test_blank_padding_removes_nan_from_values_and_gradients():
    x = torch.tensor([[[1.0], [float("nan")]]], requires_grad=True)
    blank = blank_padding(x, torch.tensor([[True, False]]))
    blank.sum().backward()
    assert blank.tolist() == [[[1.0], [0.0]]]
    assert x.grad.tolist() == [[[1.0], [0.0]]]
