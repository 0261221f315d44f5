"""What a loop can express: nothing new with linear encoders, something new with others (the paper's E.1 and E.2)."""

import pytest
import torch
from torch import nn

from consilience.methods.progressive.progressive import progressive
from methods.progressive.foreign import stir


class Late(nn.Module):
    """One layer for each of two modalities, side by side, a linear head; everything in double precision."""

    def __init__(self, inputs=3, features=4, outputs=2, power=1):
        super().__init__()
        self.one, self.two = (Power(inputs, features, power) for _ in range(2))
        self.join, self.head = nn.Identity(), nn.Linear(2 * features, outputs, bias=False)
        self.double()

    def forward(self, one, two):
        return self.head(self.join(torch.cat([self.one(one), self.two(two)], dim=1)))


class Power(nn.Module):
    """(Wx)^power, element by element."""

    def __init__(self, inputs, features, power):
        super().__init__()
        self.layer, self.power = nn.Linear(inputs, features, bias=False), power

    def forward(self, x):
        return self.layer(x) ** self.power


def loop_of(base, inputs, **options):
    return progressive(base, encoders={"1": "one", "2": "two"}, fusion="join", example=inputs, **options)


@pytest.mark.parametrize("steps", [2, 3, 5])
@pytest.mark.parametrize("mode", ["add", "concat"])
def test_a_linear_loop_is_a_late_fusion(mode, steps):
    torch.manual_seed(0)
    inputs = torch.randn(9, 3).double(), torch.randn(9, 3).double()
    loop = stir(loop_of(Late(), inputs, steps=steps, mode=mode))
    blocks = torch.block_diag(loop.base.one.layer.weight, loop.base.two.layer.weight)
    links = [receiver.link for receiver in loop.receivers]
    fed = torch.cat([link.project[0].weight for link in links])  # context → both inputs
    read = blocks if mode == "add" else torch.block_diag(*(link.extra.weight for link in links))
    feedback = read @ fed
    head = loop.base.head.weight @ sum(torch.linalg.matrix_power(feedback, power) for power in range(steps))
    late = torch.cat(inputs, dim=1) @ blocks.T @ head.T  # the encoders as they were, another head
    torch.testing.assert_close(loop(*inputs), late, rtol=0, atol=1e-10)


def test_squares_in_a_loop_give_what_late_fusion_cannot():
    torch.manual_seed(0)
    one, two = torch.randn(9, 1).double(), torch.randn(9, 1).double()
    base = Late(inputs=1, features=1, outputs=1, power=2)
    with torch.no_grad():
        base.one.layer.weight.fill_(1.0), base.two.layer.weight.fill_(1.0)
        base.head.weight.copy_(torch.tensor([[1.0, 0.0]]))
    # Late fusion's features are even in each modality, whatever is made of them later.
    assert torch.equal(base(-one, two), base(one, two))
    loop = loop_of(base, (one, two))
    a = 0.7
    with torch.no_grad():
        loop.receivers[0].link.project[0].weight.copy_(torch.tensor([[0.0, a]], dtype=torch.float64))
        loop.receivers[1].link.project[0].weight.zero_()
    torch.testing.assert_close(loop(one, two), (one + a * two**2) ** 2, rtol=0, atol=1e-10)
    odd = (loop(one, two) - loop(-one, two)) / 2
    torch.testing.assert_close(odd, 2 * a * one * two**2, rtol=0, atol=1e-10)
