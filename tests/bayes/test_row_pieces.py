"""Rows in pieces: the result of all rows at once, and its gradient."""

import pytest
import torch

from consilience.bayes.row_pieces import in_pieces


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8])
def test_pieces_give_what_all_rows_give(size):
    x, y = torch.randn(7, 3), torch.randn(7)
    seen = []

    def function(some, others):
        seen.append(len(some))
        return some.exp() * others[:, None]

    assert torch.equal(in_pieces(function, size, x, y), x.exp() * y[:, None])
    assert max(seen) <= size
    asked = x.clone().requires_grad_()
    in_pieces(function, size, asked, y).sum().backward()
    torch.testing.assert_close(asked.grad, x.exp() * y[:, None])


def test_no_rows_give_no_rows():
    assert in_pieces(lambda some: some[:, :2], 4, torch.zeros(0, 3)).shape == (0, 2)
