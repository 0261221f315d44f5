"""What all plans share: how reconstructions are added up."""

import pytest
import torch
from torch.overrides import TorchFunctionMode

from consilience.core.batches import Batch
from consilience.methods import Step
from consilience.methods.latent.objectives.objective import OBJECTIVES, reconstruct
from methods.latent.latent_toys import batch_of, model_of

MIXED = [[1, 1, 1], [1, 1, 0], [0, 1, 1], [0, 0, 1]]
ONCE = [[[1, 0, 0], [0, 1, 1]], [[0, 1, 1], [1, 0, 0]], [[1, 1, 0], [0, 0, 1]], [[0, 0, 0], [1, 1, 1]]]


def narrow(batch):
    """The batch in 32 bits."""
    values = {name: value.float() for name, value in batch.values.items()}
    return Batch(values, batch.present, index=batch.index, weight=batch.weight.float(), complete=batch.complete)


def one_by_one(model, batch, z, factors):
    """Each set, sample and modality by itself."""
    total = torch.zeros(len(batch), dtype=z.dtype)
    for position, name in enumerate(model.names):
        for number in range(len(z)):
            density = model.log_density(name, z[number], batch)
            for row in range(len(batch)):
                factor = factors[number, min(row, factors.shape[1] - 1), position] * model.weights[position]
                if factor:
                    total[row] += factor * density[row]
    return total


FACTORS = {
    "for all samples": torch.tensor([[[0.5, 0, 2]], [[0, 0, 1 / 3]]]),
    "once each": torch.tensor(ONCE).float().transpose(0, 1),
    "some twice, some never": torch.tensor(ONCE).float().transpose(0, 1) * 2 + torch.tensor(MIXED) - 1,
    "by what is there": torch.tensor(MIXED).float().expand(2, -1, -1) / 3,
    "none": torch.zeros(2, 4, 3),
}


@pytest.mark.parametrize("weights", [{}, {"a": 0.0, "b": 2.5}], ids=["equal", "weighed"])
@pytest.mark.parametrize("factors", FACTORS.values(), ids=FACTORS)
def test_reconstructions_are_added_up_as_one_by_one(factors, weights):
    model, batch, z = model_of(3, weights=weights), batch_of(3), torch.randn(2, 4, 2).double()
    wanted = one_by_one(model, batch, z, factors.double())
    torch.testing.assert_close(reconstruct(model, batch, z, factors.double()), wanted, rtol=0, atol=1e-10)


@pytest.mark.parametrize("factors", FACTORS.values(), ids=FACTORS)
def test_mixed_precision_adds_up_in_32_bits(factors):
    """Layers compute in 16 bits, sums of log-densities do not: neither are they rounded, nor do they overflow."""
    model, batch, z = model_of(3).float(), narrow(batch_of(3)), torch.randn(2, 4, 2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        wanted = one_by_one(model, batch, z, factors)
        found = reconstruct(model, batch, z, factors)
        made = model(batch)
    assert found.dtype == made.output.dtype == torch.float32
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
    whole = -torch.stack(list(made.extra["terms"].values())).sum(0)
    torch.testing.assert_close(made.output[:, 0], whole, rtol=1e-5, atol=1e-5)


class Numbers(TorchFunctionMode):
    """Notes what makes a tensor of Python's numbers, for which a GPU has to wait."""

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function in (torch.tensor, torch.as_tensor, torch.Tensor.new_tensor):
            self.found.append(function.__name__)
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("weights", [{}, {"a": 2.5}], ids=["equal", "weighed"])
@pytest.mark.parametrize("name", OBJECTIVES.names())
def test_no_step_waits_for_numbers_to_reach_the_device(name, weights):
    """Such a step could not be recorded either."""
    model, batch = model_of(3, name, weights=weights).train(), batch_of(3)
    with Numbers() as numbers:
        model.objective(model(batch), batch, Step())
    assert not numbers.found
