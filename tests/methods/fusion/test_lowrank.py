"""Low-rank fusion against the full tensor it factorises."""

import torch

from consilience.methods.fusion.lowrank import LowRank, contract
from consilience.methods.fusion.tensor import outer_product


def test_equals_the_contraction_of_the_full_tensor():
    generator = torch.Generator().manual_seed(0)
    features = [torch.randn(5, width, generator=generator, dtype=torch.float64) for width in (3, 4, 2)]
    factors = [torch.randn(6, width + 1, 7, generator=generator, dtype=torch.float64) for width in (3, 4, 2)]
    weights = torch.randn(6, generator=generator, dtype=torch.float64)
    # The weight tensor in full: Σ_r w_r F_1r ⊗ F_2r ⊗ F_3r, contracted with the outer product of [h, 1].
    tensor = torch.einsum("r,rio,rjo,rko->ijko", weights, *factors)
    expected = torch.einsum("bt,to->bo", outer_product(features), tensor.flatten(0, 2))
    torch.testing.assert_close(contract(features, factors, weights), expected, rtol=1e-10, atol=1e-10)


def test_in_float32_to_the_fifth_digit():
    generator = torch.Generator().manual_seed(1)
    features = [torch.randn(8, 16, generator=generator) for _ in range(2)]
    module = LowRank({"a": 16, "b": 16}, 5, 10)
    tensor = torch.einsum("r,rio,rjo->ijo", module.weights, *module.factors)
    expected = outer_product(features) @ tensor.flatten(0, 1)
    got = contract(features, list(module.factors), module.weights)
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)


def test_every_factor_trains():
    module = LowRank({"a": 4, "b": 3, "c": 2}, 5, 6)
    features = [torch.randn(8, width) for width in (4, 3, 2)]
    contract(features, list(module.factors), module.weights).square().sum().backward()
    for factor in module.factors:
        assert (factor.grad.abs().sum(dim=(1, 2)) > 0).all()  # each of the ranks
