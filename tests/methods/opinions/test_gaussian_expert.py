"""The expert of a regression that predicts a number and a variance."""

import pytest
import torch
from torch.distributions import Normal

from consilience.bayes.gaussian_fusion import split_gaussian
from consilience.methods import Spec, Step
from consilience.methods.opinions.gaussian_expert import GaussianExpert, spread_losses
from consilience.methods.opinions.unimodal import Unimodal
from toy_batches import NUMBERS, VECTORS, batch_of

SPEC = Spec(VECTORS, NUMBERS)


def test_the_loss_is_the_gaussian_likelihood():
    torch.manual_seed(0)
    numbers, log_variances, y = torch.randn(3, 5, 2).double()
    constant = 0.5 * torch.log(torch.tensor(2 * torch.pi))
    expected = -Normal(numbers, (0.5 * log_variances).exp()).log_prob(y) - constant
    torch.testing.assert_close(spread_losses(numbers, log_variances, y), expected.mean(dim=1))


def test_numbers_get_the_gradient_they_would_get_without_variances():
    batch = batch_of(8, task=NUMBERS, present=[[True, True]] * 5 + [[False, True]] * 3)
    torch.manual_seed(0)
    plain = Unimodal(SPEC, "image").eval()  # without dropout, which would differ
    expert = GaussianExpert(SPEC, "image").eval()
    expert.load_state_dict(plain.state_dict(), strict=False)
    for method in (plain, expert):
        sum(method.objective(method(batch), batch, Step()).values()).backward()
    for name, parameter in plain.named_parameters():
        torch.testing.assert_close(expert.get_parameter(name).grad, parameter.grad)
    assert expert.spread.weight.grad.abs().sum() > 0
    numbers, _ = split_gaussian(expert(batch).output)
    torch.testing.assert_close(numbers, plain(batch).output)
    assert expert.validation_losses(expert(batch), batch).tolist() == pytest.approx(
        plain.validation_losses(plain(batch), batch).tolist()
    )
