import pytest
import torch
from torch import nn

from consilience.core.errors import SavedModelError
from consilience.training.building_limits import INPUT, TENSORS, BuildingLimits


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Linear(50_000, 50_000),
        lambda: torch.zeros(INPUT + 1),
        lambda: torch.arange(10**12),
        lambda: torch.eye(10**6),
        lambda: torch.randn(10**12, generator=torch.Generator()),
        lambda: torch.full((10**6, 10**6), 1.0),
        lambda: nn.Embedding(10**9, 64),
    ],
)
def test_what_the_weights_do_not_account_for_is_refused_before_it_is_made(make):
    with BuildingLimits([torch.zeros(9)]), pytest.raises(SavedModelError, match="ask for a tensor of"):
        make()


def test_many_small_tensors_are_refused():
    with BuildingLimits([torch.zeros(9)]), pytest.raises(SavedModelError, match="ask for many times the 9 numbers"):
        [torch.zeros(1) for _ in range(TENSORS + 9)]


def test_what_was_saved_can_be_built_as_it_was():
    torch.manual_seed(0)
    layer = nn.Linear(5000, 4000)  # more than an input may have
    torch.manual_seed(0)
    with BuildingLimits(layer.state_dict().values()):
        again = nn.Linear(5000, 4000)
    assert torch.equal(layer.weight, again.weight)
    torch.zeros(INPUT + 1)  # the limits end with the block
